"""`wane audit`: the trail of everything that left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer
from rich.markup import escape

from wane._cli.confirm import NOTHING_DONE
from wane._cli.harness import WITHOUT_TABLES, Call, CommandResult, command
from wane._cli.output import counts_text, print_fitting, print_line, time_text
from wane._cli.values import parse_time
from wane._keeper import Keeper
from wane._ledger import AuditEntry

_LATEST = 1_000
"""How many of the latest audit rows are read to name what there is instead."""
app = typer.Typer(help="The trail of everything that left.", no_args_is_help=True)


@command(app, "list")
def audit_list(
    call: Call,
    kind: Annotated[
        str | None, typer.Option(metavar="KIND", help="prune, mark, prune_orphans, archive, shelve, restore …")
    ] = None,
    name: Annotated[str | None, typer.Option("--table", metavar="TABLE", help="One table.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="An ISO 8601 time, unix seconds, or a duration such as 7d.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The most to show.")] = 50,
) -> CommandResult:
    """List the audit trail, newest first. Exits 4 if it has no row at all of the kind or of the table."""
    keeper = call.open(call.load(without_file=WITHOUT_TABLES))
    after = None if since is None else parse_time(since, keeper.store.now(), "--since")
    entries = keeper.audit(kind=kind, table=name, since=after, limit=limit)
    unknown = "" if entries else _unknown(keeper, kind, name)

    def show() -> None:
        print_trail(entries)
        if unknown or not entries:
            print_line(f"[yellow]{escape(unknown)}[/]" if unknown else "no audit row was found")

    data = [{**asdict(entry), "rows": entry.rows} for entry in entries]
    return CommandResult(data, show, NOTHING_DONE if unknown else 0)


def _unknown(keeper: Keeper, kind: str | None, name: str | None) -> str:
    """Return which filter no audit row can pass; "" if there is one for each."""
    latest = keeper.audit(limit=_LATEST)
    if not latest:
        return ""
    if kind is not None and not keeper.audit(kind=kind, limit=1):
        known = ", ".join(sorted({one.kind for one in latest}))
        return f"the audit trail has no row of the kind {kind!r}; it has: {known}"
    if name is not None and not keeper.audit(table=name, limit=1):
        known = ", ".join(sorted({one.table for one in latest}))
        return f"the audit trail has no row of the table {name!r}; it has: {known}"
    return ""


def print_trail(entries: Sequence[AuditEntry]) -> None:
    """Print the audit trail as a table."""
    print_fitting(
        [partial(_cells, entry) for entry in entries],
        (("audit", "at", "kind", "table", "rule", "rows", "batches", "by", "run"), "seconds"),
        (("audit", "at", "kind", "table", "rule", "rows", "by", "run"), "seconds"),
        (("audit", "at", "kind", "table", "rule", "rows", "by"), "seconds"),
        (("audit", "at", "kind", "table", "rule", "rows"), "seconds"),
        (("audit", "at", "kind", "table", "rule", "rows"), "minutes"),
        right=("audit", "batches"),
    )


def _cells(entry: AuditEntry, timespec: str) -> dict[str, str]:
    # PostgreSQL orders the keys of stored JSON its own way: the table itself comes first, then what left with it.
    counts = sorted(entry.counts.items(), key=lambda one: (one[0] != entry.table, one[0]))
    return {
        "audit": str(entry.id),
        "at": time_text(entry.executed_at, timespec),
        "kind": entry.kind,
        "table": escape(entry.table),
        "rule": escape(entry.rule or str(entry.inputs.get("rule", ""))),
        "rows": _direction(entry) + counts_text(dict(counts)),
        "batches": str(entry.batches),
        "by": escape(entry.actor),
        "run": escape(entry.run or ""),
    }


def _direction(entry: AuditEntry) -> str:
    """Return what distinguishes rows that came back, or were copied into a side table, from rows that left."""
    if entry.kind != "restore":
        return ""
    return "copied: " if "into" in entry.inputs else "back: "
