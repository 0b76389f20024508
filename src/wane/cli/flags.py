"""`wane enable`, `wane disable`, `wane hold`, `wane audit`: steering sweeps, and looking at what they did."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer
from rich.markup import escape

from wane.cli.options import CONTRACT, ContractOption, JsonOption, UrlOption
from wane.cli.output import console, counts_text, moment_text, print_fitting, print_json, say, table
from wane.cli.own import open_alone
from wane.cli.times import parse_time
from wane.contract.duration import parse_duration
from wane.contract.names import TableName
from wane.keeper import open_keeper
from wane.ledger import AuditEntry

TableArgument = Annotated[str | None, typer.Argument(metavar="TABLE", help="One table; the master flag if left out.")]

hold_app = typer.Typer(help="Orders that rows stay, whatever the rules say.", no_args_is_help=True)
audit_app = typer.Typer(help="The trail of everything that left.", no_args_is_help=True)


def enable(
    name: TableArgument = None, contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Turn sweeps on: all of them (the master flag), or one table's."""
    _set(name, contract, url, enabled=True, as_json=as_json)


def disable(
    name: TableArgument = None, contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Turn sweeps off: all of them, or one table's. A running sweep stops at its next batch."""
    _set(name, contract, url, enabled=False, as_json=as_json)


def _set(name: str | None, contract: object, url: str | None, *, enabled: bool, as_json: bool) -> None:
    with open_keeper(url, contract=contract) as keeper:  # type: ignore[arg-type]
        flag = keeper.enable(name) if enabled else keeper.disable(name)
    if as_json:
        print_json({"flag": flag, "enabled": enabled})
    else:
        say(f"{escape(flag)} is [bold]{'on' if enabled else 'off'}[/]")


@hold_app.command("add")
def hold_add(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table, as the contract or the database names it.")],
    reason: Annotated[str, typer.Option(help="Why it must stay.")],
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="The row's primary key; the whole table if left out."),
    ] = None,
    ends: Annotated[str | None, typer.Option(help="When it ends: an ISO 8601 moment, or a duration from now.")] = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold a row, or a whole table. When this returns, no batch can take what is held."""
    values = {}
    for text in key or ():
        column, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not COLUMN=VALUE", param_hint="--key")
        values[column] = value
    with open_alone(url, contract) as keeper:
        now = keeper.store.now()
        moment = None
        if ends is not None:
            try:
                moment = now + parse_duration(ends)
            except ValueError:
                moment = parse_time(ends, now, "--ends")
        hold = keeper.hold(name, values or None, reason=reason, ends_at=moment)
    if as_json:
        print_json(asdict(hold))
    else:
        # Of a partition, the table that it is a part of is held.
        held = name if TableName.parse(name).name == TableName.parse(hold.table).name else hold.table
        what = escape(held) if hold.key is None else f"{escape(held)} {escape(hold.key)}"
        until = "" if hold.ends_at is None else f" until {moment_text(hold.ends_at)}"
        say(f"hold [bold]{hold.id}[/]: {what} stays{until}")


@hold_app.command("list")
def hold_list(
    name: Annotated[str | None, typer.Argument(metavar="TABLE", help="Only this table's.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Past ones too.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The most to show.")] = 100,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List holds in force, newest first."""
    with open_alone(url, contract) as keeper:
        holds = keeper.holds(name, everything=everything, limit=limit)
    if as_json:
        print_json([asdict(hold) for hold in holds])
        return
    shown = table("hold", "table", "key", "reason", "by", "since", "until", right=("hold",))
    for hold in holds:
        end = hold.released_at or hold.ends_at
        shown.add_row(
            str(hold.id),
            escape(hold.table),
            escape(hold.key or "the whole table"),
            escape(hold.reason),
            escape(hold.author),
            moment_text(hold.created_at),
            moment_text(end),
        )
    console().print(shown)
    for hold in holds:
        if hold.lost and hold.released_at is None:
            say(
                f"[red]hold {hold.id} keeps no row: the database has no table {escape(hold.table)}[/]; hold it under its new"
                f" name, then `wane hold release {hold.id}`"
            )


@hold_app.command("release")
def hold_release(
    number: Annotated[int, typer.Argument(metavar="HOLD", help="Its number, from `wane hold list`.")],
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a hold go: the rules decide again."""
    with open_alone(url, contract) as keeper:
        keeper.release_hold(number)
    if as_json:
        print_json({"released": number})
    else:
        say(f"hold [bold]{number}[/] is released")


@audit_app.command("list")
def audit_list(
    kind: Annotated[str | None, typer.Option(help="prune, mark, prune_orphans, …")] = None,
    name: Annotated[str | None, typer.Option("--table", help="One table.")] = None,
    since: Annotated[
        str | None, typer.Option(help="An ISO 8601 moment, unix seconds, or a duration such as 7d.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The most to show.")] = 50,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the trail, newest first."""
    with open_alone(url, contract) as keeper:
        moment = None if since is None else parse_time(since, keeper.store.now(), "--since")
        entries = keeper.audit(kind=kind, table=name, since=moment, limit=limit)
    if as_json:
        print_json([{**asdict(entry), "rows": entry.rows} for entry in entries])
    else:
        print_trail(entries)


def print_trail(entries: list[AuditEntry]) -> None:
    """Print the audit trail as a table."""
    print_fitting(
        [partial(_cells, entry) for entry in entries],
        (("audit", "at", "kind", "table", "rule", "took", "batches", "by", "run"), "seconds"),
        (("audit", "at", "kind", "table", "rule", "took", "by"), "seconds"),
        (("audit", "at", "table", "rule", "took"), "seconds"),
        (("audit", "at", "table", "rule", "took"), "minutes"),
        right=("audit", "batches"),
    )


def _cells(entry: AuditEntry, timespec: str) -> dict[str, str]:
    # PostgreSQL orders the keys of stored JSON its own way: the table itself comes first, then what left with it.
    counts = sorted(entry.counts.items(), key=lambda one: (one[0] != entry.table, one[0]))
    return {
        "audit": str(entry.id),
        "at": moment_text(entry.executed_at, timespec),
        "kind": entry.kind,
        "table": escape(entry.table),
        "rule": escape(entry.rule or ""),
        "took": counts_text(dict(counts)),
        "batches": str(entry.batches),
        "by": escape(entry.actor),
        "run": (entry.run or "")[:8],
    }
