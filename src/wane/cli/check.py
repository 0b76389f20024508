"""`wane check`, `wane schema`, `wane init`: the contract, by itself and against a database."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from wane.check.cover import cover
from wane.check.propose import propose
from wane.cli.options import CONTRACT, ContractOption, JsonOption, UrlOption
from wane.cli.output import console, print_findings, print_json, say, summary, table
from wane.contract.fingerprint import fingerprint
from wane.contract.load import read_contract
from wane.contract.model import Contract
from wane.contract.schema import json_schema
from wane.contract.show import markdown, rows
from wane.findings import Finding, errors_of
from wane.keeper import database_url
from wane.store import open_store
from wane.store.url import resolve_url


def check(
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    cover_: Annotated[bool, typer.Option("--cover", help="Compare it with the database too (reads only).")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Tables and states nobody mentions are errors.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the contract as a table for people.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="With --show: print Markdown.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check a contract: every mistake at once, each with its fix.

    Exits 1 if there are errors. Without --cover no database is touched.
    """
    reading = read_contract(contract)
    findings = list(reading.findings)
    database = ""
    if reading.contract is not None and cover_:
        with open_store(database_url(url, reading.contract), reading.contract.store, read_only=True) as store:
            database = store.shown
            findings += cover(store, reading.contract, strict=strict)
    failed = bool(errors_of(findings))
    if as_json:
        print_json(_as_json(reading.contract, database, findings, show=show))
    else:
        if show and reading.contract is not None:
            _show(reading.contract, as_markdown=as_markdown)
        print_findings(findings)
        _verdict(reading.contract, contract, database, findings)
    raise typer.Exit(1 if failed else 0)


def _as_json(contract: Contract | None, database: str, findings: list[Finding], *, show: bool) -> dict[str, object]:
    result: dict[str, object] = {
        "ok": not errors_of(findings),
        "fingerprint": None if contract is None else fingerprint(contract),
        "database": database or None,
        "findings": [finding.as_dict() for finding in findings],
    }
    if show and contract is not None:
        result["tables"] = [asdict(row) for row in rows(contract)]
    return result


def _show(contract: Contract, *, as_markdown: bool) -> None:
    if as_markdown:
        typer.echo(markdown(contract))
        return
    shown = table("table", "bounded by", "pruned by", "safety invariant", "observe")
    for row in rows(contract):
        shown.add_row(row.table, row.bound, row.trigger, row.why, row.observe)
    console().print(shown)


def _verdict(contract: Contract | None, path: Path, database: str, findings: list[Finding]) -> None:
    told = summary(findings)
    against = f" against {database}" if database else ""
    if contract is None or errors_of(findings):
        say(f"[red]{path}{against}: {told}[/]")
    else:
        covered = f"{len(contract.tables)} tables with rules, {len(contract.excused)} excused"
        say(f"[green]{path}{against}: fine[/] ({covered}; {told})")


def schema() -> None:
    """Print the JSON Schema of contract files, for editors."""
    print_json(json_schema())


def init(
    url: Annotated[str, typer.Argument(help="The database to read.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the proposal; - for stdout.")] = CONTRACT,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Read a live database and propose a contract for it.

    It proposes no windows: what only you can decide says DECIDE, and `wane check` fails until you have.
    """
    if str(out) != "-" and out.exists() and not force:
        raise typer.BadParameter(f"{out} exists already; --force overwrites it", param_hint="--out")
    with open_store(resolve_url(url), read_only=True) as store:
        text = propose(store, url_text=url)
    if str(out) == "-":
        typer.echo(text, nl=False)
        return
    out.write_text(text, encoding="utf-8")
    say(f"wrote [bold]{out}[/]: decide every DECIDE in it, then run [bold]wane check --cover -c {out}[/]")
