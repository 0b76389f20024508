"""Bounded reads of what is due under a bound rule.

A read that takes too long gives an estimate that is marked as one, or None.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from wane._db.counting import TOO_LONG, Count, Exactness, count, sample
from wane._db.schema import Column
from wane._db.statement import Parameters
from wane._db.store import Store
from wane._db.timestamps import read_time
from wane._frozen import frozen
from wane._rules.probes import UNREAD, Probe, gather
from wane._rules.queries import queries_of
from wane._rules.rows import rows_of
from wane._rules.rule_statements import scopes_of, statements_of
from wane._rules.scopes import MOST_SCOPES
from wane._rules.selection import BoundFollower, Selection, follower_paths
from wane.errors import StoreError, Unreachable

_BOUNDED_ROWS = (10_000, 100)
"""How many rows are counted when counting all of them takes too long, and when that takes too long as well."""
_TOGETHER = (256, 64, 1)
"""How many probes go into one statement: many, to save round trips; if one of them fails, fewer, and in the end each
alone."""


@frozen
class DueRows:
    """What is due under one rule. None means: could not be determined in the time allowed."""

    count: Count | None
    oldest: datetime | None
    newest: datetime | None
    followers: tuple[tuple[str, Count | None], ...] = ()


def count_due(store: Store, selection: Selection, now: datetime, seconds: float, most: int | None = None) -> int:
    """Count the due rows, never by an estimate; with `most`, up to that. Raise TimedOut if that takes longer."""
    [(rows,)] = store.read(queries_of(store).count_due(selection, now, most), seconds)
    return int(rows)


def any_due(store: Store, selection: Selection, now: datetime, floor: Sequence[object] | None, seconds: float) -> bool:
    """Check whether a row is due behind a position, as the next batch would find it; raise TimedOut as above."""
    rule = statements_of(rows_of(store), selection)

    def found(one: Selection, floor: Sequence[object] | None) -> bool:
        return bool(store.read(rule.fill(rule.candidates, one, now, limit=1, floor=floor), seconds))

    if not selection.per or selection.scope is not None:
        return found(selection, floor)
    last = None if floor is None else tuple(floor)
    passed = 0
    for scope in scopes_of(rule, selection, now, lambda statement: store.read(statement, seconds), last):
        if found(selection.in_scope(scope), None):
            return True
        passed += 1
    return passed >= MOST_SCOPES and bool(keys_due(store, selection, now, 1, seconds))


def read_due(store: Store, selection: Selection, now: datetime, seconds: float, known: Count | None = None) -> DueRows:
    """Read what a rule would take now; `known` is how many rows that are, if it was counted."""
    queries = queries_of(store)
    counted = known or count(
        store,
        queries.count_due(selection, now),
        seconds,
        planned=queries.estimate_due([selection], now),
        up_to=partial(queries.count_due, selection, now),
    )
    followers = tuple(
        (name, count(store, queries.count_followers(selection, path, now), seconds))
        for name, path in _named(sorted(follower_paths(selection), key=len))
    )
    return DueRows(
        counted,
        _edge(store, selection, now, seconds, newest=False),
        _edge(store, selection, now, seconds, newest=True),
        followers,
    )


def _edge(store: Store, selection: Selection, now: datetime, seconds: float, *, newest: bool) -> datetime | None:
    if selection.own_time is None:
        return None
    try:
        found = store.read(queries_of(store).edge_due(selection, now, newest=newest), seconds)
    except TOO_LONG:
        return None
    times = [at for (value,) in found if (at := read_time(value, selection.time)) is not None]
    return (max if newest else min)(times, default=None)


def keys_due(store: Store, selection: Selection, now: datetime, limit: int, seconds: float) -> list[tuple[Any, ...]]:
    """Read the keys of the oldest due rows, oldest first."""
    return store.read(queries_of(store).keys_due(selection, now, limit), seconds)


def held_tables(store: Store, seconds: float) -> frozenset[str] | None:
    """Read the tables in which anything is held; None if that cannot be read, so that every row has to be checked."""
    if not store.migrated:
        return frozenset()
    try:
        held = queries_of(store).held_tables()
        return frozenset(name for (name,) in store.reader(seconds)(held.text, held.parameters))
    except Unreachable:
        raise
    except StoreError:
        return None


def read_probes(
    store: Store, probes: Sequence[Probe], seconds: float, within: float, values: Mapping[str, object] | None = None
) -> list[Any]:
    """Read the value of each probe, or UNREAD for one that takes longer than `seconds` or is refused.

    After `within` seconds, all that remain are UNREAD. `values` are the values of prepared probes.
    """
    return _read_probes(store, probes, seconds, time.monotonic() + within, values, _TOGETHER)


def _read_probes(
    store: Store,
    probes: Sequence[Probe],
    seconds: float,
    end: float,
    values: Mapping[str, object] | None,
    sizes: Sequence[int],
) -> list[Any]:
    # Probes that failed together are retried in smaller groups.
    smaller = [size for size in sizes[1:] if size < len(probes)]
    read: list[Any] = []
    for first in range(0, len(probes), sizes[0]):
        part = probes[first : first + sizes[0]]
        found = _read_together(store, part, min(seconds, end - time.monotonic()), values)
        if found is None and smaller:
            found = _read_probes(store, part, seconds, end, values, smaller)
        read += [UNREAD] * len(part) if found is None else found
    return read


def _read_together(
    store: Store, probes: Sequence[Probe], seconds: float, values: Mapping[str, object] | None
) -> list[Any] | None:
    if seconds <= 0:
        return None
    text, p = gather(rows_of(store), probes, values)
    try:
        [found] = store.read(p.statement(text), seconds, often=True)
    except Unreachable:
        raise
    except StoreError:
        return None
    return list(found)


def count_never_due(store: Store, selection: Selection, limit: int, seconds: float) -> int | None:
    """Count the rows that the rule is about and can never select, because their time is not plausible.

    Count up to `limit`; None if that takes too long.
    """
    try:
        [(rows,)] = store.read(queries_of(store).count_never_due(selection, limit), seconds)
        return int(rows)
    except TOO_LONG:
        return None


def count_unselected(store: Store, selections: Sequence[Selection], limit: int, seconds: float) -> int | None:
    """Count the rows of a table that no rule selects, though some would but for `where`.

    Count up to `limit`; None if that takes too long.
    """
    try:
        [(rows,)] = store.read(queries_of(store).count_unselected(selections, limit), seconds)
        return int(rows)
    except TOO_LONG:
        return None


def count_due_without(
    store: Store, selection: Selection, now: datetime, columns: Sequence[Column], limit: int, seconds: float
) -> Count | None:
    """Count the due rows that have NULL in all of some columns, up to `limit`.

    If that takes too long, count them among the first due rows; None if there is none among those.
    """
    queries = queries_of(store)
    for among in (None, *_BOUNDED_ROWS):
        statement = queries.count_due_without(selection, now, columns, limit, among=among)
        with suppress(*TOO_LONG):
            [(rows,)] = store.read(statement, seconds)
            if among is None:
                return Count(rows, Exactness.AT_LEAST if rows == limit else Exactness.EXACT)
            return Count(rows, Exactness.AT_LEAST) if rows else None
    return None


def sample_times(store: Store, selection: Selection, limit: int, seconds: float, *, indexed: bool) -> list[object]:
    """Read some values of a rule's time column: of any rows, and of those that the rule is about.

    The latter come from both ends if an index serves the rule.
    """
    column, rows = selection.time_column, rows_of(store)
    values = sample(store, selection.table, column, limit, seconds)
    name, table = rows.column(column), store.dialect.table(selection.table)
    order = f" ORDER BY {store.dialect.order('t', column, selection.time)}"
    for ends in (f"{order} ASC", f"{order} DESC") if indexed else ("",):
        # One state at a time: over several, no index is ordered by time.
        for state in selection.rule.states or (None,):
            p = Parameters(store.dialect)
            about = rows.about(p, selection, None if state is None else [state])
            where = " AND ".join([*about, f"{name} IS NOT NULL"])
            text = f"SELECT {name} FROM {table} AS t WHERE {where}{ends} LIMIT {p.bind('limit', limit)}"
            with suppress(*TOO_LONG):
                values += [value for (value,) in store.read(p.statement(text), seconds)]
    return values


def _named(paths: Sequence[tuple[BoundFollower, ...]]) -> list[tuple[str, tuple[BoundFollower, ...]]]:
    """Label followers by their table; where a table follows by several references, by those."""
    tables = Counter(path[-1].reference.table.name for path in paths)
    named = []
    for path in paths:
        reference = path[-1].reference
        columns = ",".join(column.name for column in reference.columns)
        several = tables[reference.table.name] > 1
        named.append((f"{reference.table.name}.{columns}" if several else reference.table.name, path))
    return named
