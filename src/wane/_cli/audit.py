"""`wane audit`: the trail of everything that left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer
from rich.markup import escape

from wane._cli.confirm import NOTHING_DONE
from wane._cli.harness import WITHOUT_TABLES, Call, CommandResult, command
from wane._cli.output import counts_text, many, print_fitting, print_line
from wane._cli.values import parse_time
from wane._db.counting import Count, Exactness, stated
from wane._findings import did_you_mean
from wane._formats import time_text
from wane._keeper import Keeper
from wane._ledger import AuditEntry
from wane._schedule.own_tables import own_names

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
    own: Annotated[
        bool, typer.Option("--own", help="List what left Wane's own tables too; --table lists one of them as well.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The most to show.")] = 50,
) -> CommandResult:
    """List the audit trail, newest first. Exits 4 if it has no row at all of the kind or of the table."""
    keeper = call.open(call.load(without_file=WITHOUT_TABLES))
    after = None if since is None else parse_time(since, keeper.store.now(), "--since")
    filters: dict[str, Any] = {"kind": kind, "table": name, "since": after}
    entries = keeper.audit(**filters, own=own or name is not None, limit=limit)
    left_out = 0 if own or name is not None else len(_own(keeper, filters))
    unknown = "" if entries or left_out else _unknown(keeper, kind, name)

    def show() -> None:
        print_trail(entries)
        if unknown or not entries:
            print_line(f"[yellow]{escape(unknown)}[/]" if unknown else "no audit row was found")
        if left_out:
            some = f"{_LATEST:,} or more rows" if left_out >= _LATEST else many(left_out, "row")
            print_line(f"{some} of Wane's own tables left out: --own lists them")

    data = [{**asdict(entry), "rows": entry.rows} for entry in entries]
    exactness = Exactness.AT_LEAST if left_out >= _LATEST else Exactness.EXACT
    document = {"items": data, **stated("own_left_out", Count(left_out, exactness))}
    return CommandResult(document, show, NOTHING_DONE if unknown else 0)


def _own(keeper: Keeper, filters: Mapping[str, Any]) -> list[AuditEntry]:
    """Return the rows of Wane's own tables that are not listed, up to the number that is read."""
    rows = (
        one for name in own_names(keeper.store) for one in keeper.audit(**{**filters, "table": name}, limit=_LATEST)
    )
    return list(islice(rows, _LATEST))


def _unknown(keeper: Keeper, kind: str | None, name: str | None) -> str:
    """Return which filter no audit row can pass, and what may have been meant; "" if there is one for each."""
    latest = keeper.audit(limit=_LATEST)
    if kind is not None and latest and not keeper.audit(kind=kind, limit=1):
        return _nothing_of("kind", kind, {one.kind for one in latest})
    if name is None or keeper.audit(table=name, limit=1):
        return ""
    declared = {str(table.name) for table in keeper.contract.tables}
    if name in declared:
        return f"the audit trail has no row of the table {name!r} yet"
    return _nothing_of("table", name, declared | {one.table for one in latest})


def _nothing_of(what: str, word: str, known: set[str]) -> str:
    hints = [did_you_mean(word, known), f"it may be: {', '.join(sorted(known))}" if known else ""]
    return f"the audit trail has no row of the {what} {word!r}; {' '.join(filter(None, hints))}".removesuffix("; ")


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
        "batches": str(entry.batches or ""),
        "by": escape(entry.actor),
        "run": escape(entry.run or ""),
    }


def _direction(entry: AuditEntry) -> str:
    """Return what distinguishes rows that came back, or were copied into a side table, from rows that left."""
    if entry.kind != "restore":
        return ""
    return "copied: " if "into" in entry.inputs else "back: "
