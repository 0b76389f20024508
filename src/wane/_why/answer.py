"""Answering for one row: its verdict under all rules of its table, or what is known of it once it is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from wane._archive.facade import Archive
from wane._contract.lookup import find_table
from wane._contract.model import Contract, Table
from wane._db import Store
from wane._db.schema import TableInfo, hold_names
from wane._ledger import Hold, Ledger
from wane._partition.model import RowPartition
from wane._prune.binding import Bindings
from wane._prune.fuse import PROBE_SECONDS
from wane._rules.queries import queries_of
from wane._schedule.status import read_status
from wane._why.gone import explain_gone
from wane._why.model import GoneRow, RowVerdict, WhyRow, WhyRule
from wane._why.row import RowReader, shown
from wane.errors import BindError, Locked, StoreError, TimedOut, UnknownTable, Unreachable, WrongArgument

_MOST_HOLDS = 10_000
_DECIDING = (RowVerdict.DUE, RowVerdict.BLOCKED, RowVerdict.WAITING)
_FAR = datetime.max.replace(tzinfo=UTC)


def explain_row(
    store: Store, contract: Contract, bindings: Bindings, archive: Archive, name: str, key: object
) -> WhyRow:
    """Explain why the row of a key is still in its table, or no longer."""
    table = find_table(contract, name)
    now = store.now()
    info = store.reflect().find(table.name.schema, table.name.name)
    if info is None:
        raise UnknownTable(
            f"the database has no table {name}", "compare the contract with the database: `wane check --cover`"
        )
    named = _named(table, _key(table, info, bindings), key)
    text = _key_text(store, info, named)
    reader = RowReader(store, contract, bindings, now)
    found = [] if text is None else [reader.explain(table, rule, named) for rule in table.rules if rule.active]
    rules = tuple(one for one in found if one is not None)
    if text is None or len(rules) < len(found):
        gone = explain_gone(store, contract, archive, table, info, named)
        summary = f"{table.name} has no row with this key; {_location(gone)}"
        return WhyRow(str(table.name), named, now, RowVerdict.GONE, summary, gone=gone)
    first = _first(rules)
    return WhyRow(
        table=str(table.name),
        key=named,
        answered_at=now,
        verdict=RowVerdict.RETAINED if first is None else first.verdict,
        summary=_retained(table, rules) if first is None else first.summary,
        rules=rules,
        holds=_holds(store, info, text),
        scheduler=table.scheduler,
        next_sweep_at=_next_sweep(store, contract, table),
        partition=_partition(store, contract, table, named),
    )


def _location(gone: GoneRow) -> str:
    if gone.archived is not None:
        return f"the archive has it, in {gone.archived.month}"
    if gone.quarantined is None:
        return "nothing records where it went"
    until = "" if gone.quarantined.until is None else f" until {gone.quarantined.until:%Y-%m-%d %H:%M} UTC"
    return f"it left with its partition {gone.quarantined.partition}, which is in quarantine{until}"


def _key(table: Table, info: TableInfo, bindings: Bindings) -> Sequence[str]:
    """Return the columns that identify a row: those that its rules identify it by."""
    for rule in table.rules:
        if rule.active:
            with suppress(BindError):
                return [column.name for column in bindings.selection(table, rule).key]
    return table.key or info.row_key


def _named(table: Table, names: Sequence[str], key: object) -> dict[str, object]:
    """Return a key by its columns; of a key of one column, the value alone will do."""
    if not isinstance(key, Mapping):
        if len(names) != 1:
            raise WrongArgument(f"the key of {table.name} is {', '.join(names)}", "name each of these columns")
        return {names[0]: key}
    if set(key) != set(names):
        given = ", ".join(map(str, key)) or "nothing"
        raise WrongArgument(f"the key of {table.name} is {', '.join(names)}, not {given}", "name exactly these columns")
    return {name: key[name] for name in names}


def _key_text(store: Store, info: TableInfo, key: Mapping[str, object]) -> str | None:
    """Return the key of a row as holds write it; None if there is no such row."""
    order = [name for name in info.primary_key if name in key]
    columns = [column for name in (order if len(order) == len(key) else key) if (column := info.column(name))]
    try:
        found = store.read(queries_of(store).key_text(info, columns, key), PROBE_SECONDS)
    except (Unreachable, TimedOut, Locked):
        raise
    except StoreError as problem:  # A value that the column's type cannot hold.
        values = ", ".join(f"{name} = {shown(value)}" for name, value in key.items())
        raise WrongArgument(f"no row of {info.name} can have {values}", problem.message) from problem
    return str(found[0][0]) if found else None


def _first(rules: Sequence[WhyRule]) -> WhyRule | None:
    """Return the rule that decides: the one that takes the row first; None if none takes it."""
    for verdict in _DECIDING:
        found = [one for one in rules if one.verdict is verdict]
        if found and verdict is RowVerdict.WAITING:
            return min(found, key=lambda one: one.due_at or _FAR)
        if found:
            return found[0]
    return None


def _retained(table: Table, rules: Sequence[WhyRule]) -> str:
    """Explain why no rule takes a row: because of its state, or because of what each rule requires."""
    states = [one for rule in rules for one in rule.conditions if one.kind == "state"]
    if rules and len(states) == len(rules) and not any(one.met for one in states):
        [(column, value)] = states[0].values.items()
        excuse = next((one for state, one in table.excused if state == value), None)
        if value in table.live:
            return f"{column} = {shown(value)} is a live state: no rule takes such a row"
        if excuse is not None:
            return f"{column} = {shown(value)} is excused as {excuse.kind.value}: {excuse.reason}"
        return f"no rule is about rows with {column} = {shown(value)}"
    closest = [one for one in rules if not any(not each.met and each.kind == "state" for each in one.conditions)]
    return "; ".join(one.summary for one in closest) or f"no rule of {table.name} ever takes a row"


def _holds(store: Store, info: TableInfo, text: str) -> tuple[Hold, ...]:
    if not store.migrated:
        return ()
    own = Ledger(store.dialect, store.reader(PROBE_SECONDS))
    found = own.holds(tables=hold_names(info), limit=_MOST_HOLDS)
    return tuple(one for one in found if one.key is None or one.key == text)


def _partition(store: Store, contract: Contract, table: Table, key: Mapping[str, object]) -> RowPartition | None:
    if contract.partitioned(table.name) is None:
        return None
    from wane._partition.row import partition_of_row

    return partition_of_row(store, contract, table.name, key)


def _next_sweep(store: Store, contract: Contract, table: Table) -> datetime | None:
    if table.scheduler is None or not store.migrated:
        return None
    schedulers = read_status(store, contract).schedulers
    return next((one.next_at for one in schedulers if one.name == table.scheduler), None)
