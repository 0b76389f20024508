"""`wane check`, `wane schema`, `wane init`: the contract, by itself and against a database."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, astuple
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from rich.markup import escape

from wane._archive.facade import Archive
from wane._check.acceptance import accept
from wane._check.cover import cover
from wane._check.live import live
from wane._check.propose import propose
from wane._cli.confirm import NOTHING_DONE
from wane._cli.finding_formats import FindingFormat, sarif, workflow_commands
from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.options import CONTRACT
from wane._cli.output import many, print_findings, print_json, print_line, print_widest, summary, table
from wane._contract.fingerprint import fingerprint
from wane._contract.load import read_contract
from wane._contract.model import Contract
from wane._contract.schema import json_schema
from wane._contract.show import markdown, rows
from wane._contract.values import UNDECIDED
from wane._db import Store, open_store
from wane._db.url import resolve_url, unset_variable
from wane._findings import Finding, Severity, open_errors
from wane._keeper import database_url

app = typer.Typer()


@command(app, "check")
def check(
    call: Call,
    cover_: Annotated[
        bool,
        typer.Option(
            "--cover",
            help="Compare it with the database too (reads only): tables, columns, encodings, indexes, foreign keys, cascades,"
            " triggers, row security, excuses.",
        ),
    ] = False,
    live_: Annotated[
        bool, typer.Option("--live", help="Prove that the database keeps the contract's promises now (reads only).")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="With --cover: tables and states that the contract does not mention are errors."),
    ] = False,
    show: Annotated[bool, typer.Option("--show", help="Print the contract as a table for people.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="With --show: print Markdown.")] = False,
    form: Annotated[
        FindingFormat,
        typer.Option(
            "--format",
            help="How to print findings: for people, as JSON, as annotations of GitHub Actions, or as SARIF 2.1.0 for"
            " code scanning.",
        ),
    ] = FindingFormat.TEXT,
) -> CommandResult:
    """Check a contract: every mistake at once, each with its fix.

    Exits 1 if there are errors, 4 if the contract declares nothing. Without --cover and --live no database is touched.
    """
    if strict and not cover_:
        raise typer.BadParameter(
            "only a comparison with the database finds unmentioned tables and states: add --cover",
            param_hint="--strict",
        )
    if as_markdown and not show:
        raise typer.BadParameter("--markdown requires --show", param_hint="--markdown")
    if call.as_json and form not in (FindingFormat.TEXT, FindingFormat.JSON):
        raise typer.BadParameter(f"--json and --format {form} exclude each other", param_hint="--format")
    reading = read_contract(call.contract)
    contract, findings, database, empty = reading.contract, list(reading.findings), "", False
    if contract is not None:
        ran, today = {"contract"}, datetime.now(UTC).date()
        if cover_ or live_:
            database_at = database_url(call.url, contract)
            with open_store(database_at, contract.store, audit=contract.covers_audit, read_only=True) as store:
                database, today = store.shown, store.now().date()
                findings += _compared(store, contract, findings, cover_=cover_, live_=live_, strict=strict)
            ran |= {*(("database", "archive") if cover_ else ()), *(("live",) if live_ else ())}
        elif call.url is None:
            findings += _unset(contract)
        empty = not contract.tables and not contract.excused
        if empty:
            message = "it declares no table, so nothing is ever pruned"
            fix = "write a [table.NAME] for each table, or let `wane init` propose them"
            findings.append(Finding(Severity.WARNING, "empty-contract", message, fix, str(call.contract)))
        findings = accept(contract, findings, today, ran=ran)

    data = _as_json(contract, database, findings, show=show)

    def print_all() -> None:
        if show and contract is not None:
            _show(contract, as_markdown=as_markdown)
        print_findings(findings)
        _print_verdict(contract, call.contract, database, findings)

    printers: dict[FindingFormat, Callable[[], object]] = {
        FindingFormat.TEXT: print_all,
        FindingFormat.JSON: lambda: print_json(data),
        FindingFormat.SARIF: lambda: print_json(sarif(findings, call.contract)),
        FindingFormat.GITHUB: lambda: typer.echo(workflow_commands(findings, call.contract), nl=False),
    }
    code = 1 if open_errors(findings) else NOTHING_DONE if empty else 0
    return CommandResult(data, printers[form], code)


def _compared(
    store: Store, contract: Contract, known: list[Finding], *, cover_: bool, live_: bool, strict: bool
) -> list[Finding]:
    """Compare a contract with a database, and return what is not known yet."""
    found = cover(store, contract, strict=strict) if cover_ else []
    if live_:
        broken = [*live(store, contract), *Archive(store, contract, actor="").findings()]
        found += [one for one in broken if one not in (*known, *found)]  # Both report what does not fit.
    return found


def _unset(contract: Contract) -> list[Finding]:
    """Report a variable that [store] url needs and that is not set: no database is needed here, and every other command
    would fail."""
    name = None if contract.store.url is None else unset_variable(contract.store.url)
    if name is None:
        return []
    message = f"the environment variable {name} is not set: no command finds the database"
    fix = f"set {name}, or give --url"
    file = "" if contract.path is None else str(contract.path)
    return [contract.located(Finding(Severity.WARNING, "unset-variable", message, fix, file, "store.url"))]


def _as_json(contract: Contract | None, database: str, findings: list[Finding], *, show: bool) -> dict[str, object]:
    result: dict[str, object] = {
        "ok": not open_errors(findings),
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
    heads = ("table", "bounded by", "pruned by", "safety invariant", "observe")
    wide, narrow = table(*heads), table("", "", show_header=False)
    for row in rows(contract):
        wide.add_row(*map(escape, astuple(row)))
        narrow.add_row("")
        for head, text in zip(heads, astuple(row), strict=True):
            narrow.add_row(f"[dim]{head}[/]", f"[bold]{escape(text)}[/]" if head == "table" else escape(text))
    print_widest(wide, narrow)


def _print_verdict(contract: Contract | None, path: Path, database: str, findings: list[Finding]) -> None:
    counts = summary(findings)
    subject = escape(f"{path} against {database}" if database else str(path))
    if contract is None or open_errors(findings):
        print_line(f"[red]{subject}: {counts}[/]")
    else:
        covered = f"{many(len(contract.tables), 'table')} with rules, {len(contract.excused)} excused"
        print_line(f"[green]{subject}: fine[/] ({covered}; {counts})")


@command(app, "schema", Services(database=False))
def schema(_call: Call) -> CommandResult:
    """Print the JSON Schema of contract files, for editors."""
    return CommandResult(json_schema(), lambda: print_json(json_schema()), versioned=False)


@command(app, "init", Services(database=False))
def init(
    _call: Call,
    url: Annotated[
        str, typer.Argument(metavar="URL", help="The database to read, or the name of the variable that holds its URL.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the proposal; - for stdout.")] = CONTRACT,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> CommandResult:
    """Read a live database and propose a contract for it.

    It proposes no windows: what only you can decide is marked DECIDE, and `wane check` fails until you have.
    """
    to_stdout = str(out) == "-"
    if not to_stdout and _exists(out) and not force:
        raise typer.BadParameter(f"{out} exists already; --force overwrites it", param_hint="--out")
    with open_store(resolve_url(url), read_only=True) as store:
        text = propose(store, url_text=url if to_stdout else _seen_from(out.parent, url))
        database = store.shown
    if not to_stdout:
        _write(out, text)
    undecided = _undecided(text)

    def show() -> None:
        if to_stdout:
            typer.echo(text, nl=False)
            return
        check_it = "wane check --cover" if out == CONTRACT else f"wane check --cover -c {out}"
        print_line(f"wrote [bold]{escape(str(out))}[/] with {many(undecided, 'thing')} to DECIDE")
        print_line(f"then run [bold]{escape(check_it)}[/]")

    file = None if to_stdout else str(out)
    return CommandResult({"database": database, "file": file, "undecided": undecided, "contract": text}, show)


def _exists(out: Path) -> bool:
    """Return whether there is a file of that name; raise if it is a directory, or no file can be written there."""
    try:
        if out.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        if not out.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such folder")
        if not os.access(out.parent, os.W_OK):
            raise PermissionError(errno.EACCES, "its folder cannot be written")
        return out.exists()
    except OSError as problem:
        raise _unwritable(out, problem) from None


def _write(out: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    partial = out.with_name(out.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(out)
    except OSError as problem:
        with suppress(OSError):
            partial.unlink()
        raise _unwritable(out, problem) from None


def _unwritable(out: Path, problem: OSError) -> typer.BadParameter:
    message = f"{out} cannot be written: {problem.strerror}; name a file in a folder that can be written"
    return typer.BadParameter(message, param_hint="--out")


def _undecided(text: str) -> int:
    """Count the decisions that are left to a person; comments do not count."""
    return sum(line.count(f'"{UNDECIDED}"') for line in text.splitlines() if not line.startswith("#"))


def _seen_from(folder: Path, url: str) -> str:
    """Return the URL as a contract in that folder must write it: relative SQLite paths start at the contract."""
    scheme, name = url[:10], url[10:]
    path = resolve_url(url).path if scheme.lower() == "sqlite:///" else None
    if path is None or path.is_absolute():
        return url
    # By the real folders: `..` out of a linked folder leads elsewhere.
    up = os.path.relpath(Path.cwd().resolve(), folder.resolve())
    return url if up == "." else f"{scheme}{quote(up)}/{name}"
