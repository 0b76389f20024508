"""Ask a store what is due under one rule, as the commands do: reflect, bind, read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from servers import Database
from wane._contract.model import Bound, Contract, Guard, Rule, State, Table
from wane._contract.names import TableName
from wane._db import open_store
from wane._db.store import Store
from wane._db.url import resolve_url
from wane._findings import Finding
from wane._rules.reads import DueRows, keys_due, read_due
from wane._rules.selection import Selection, bind_contract

SECONDS = 30.0


def one_rule(
    name: str,
    bound: Bound,
    *,
    when: Sequence[State] = (),
    state: str | None = None,
    unless: Sequence[Guard] = (),
    key: Sequence[str] = (),
    schema: str | None = None,
) -> Table:
    """Return a table with one rule, called `rule`."""
    rule = Rule("rule", bound, states=tuple(when), guards=tuple(unless))
    column = state or ("state" if when else None)
    return Table(TableName(name, schema), "a test", (rule,), key=tuple(key), state=column)


@contextmanager
def opened(database: Database) -> Iterator[Store]:
    with open_store(resolve_url(database.url), read_only=True) as store:
        yield store


def bind(store: Store, *tables: Table) -> tuple[list[Selection], list[Finding]]:
    return bind_contract(Contract(None, tables), store.reflect(), store.types)


def bound_rule(store: Store, table: Table) -> Selection:
    selections, findings = bind(store, table)
    assert not findings, "\n".join(str(finding) for finding in findings)
    [selection] = selections
    return selection


def keys(database: Database, table: Table, now: datetime, limit: int = 1_000) -> list[tuple[Any, ...]]:
    """Return the keys of all due rows, oldest first."""
    with opened(database) as store:
        return keys_due(store, bound_rule(store, table), now, limit, SECONDS)


def ids(database: Database, table: Table, now: datetime) -> list[Any]:
    """Return the same for a key of one column; count and edges must agree with the list."""
    with opened(database) as store:
        selection = bound_rule(store, table)
        found = keys_due(store, selection, now, 1_000, SECONDS)
        due = read_due(store, selection, now, SECONDS)
    assert due.count is not None
    assert due.count.rows == len(found)
    assert (due.oldest is None) == (due.newest is None) == (not found)
    return [key for (key,) in found]


def due(database: Database, table: Table, now: datetime) -> DueRows:
    with opened(database) as store:
        return read_due(store, bound_rule(store, table), now, SECONDS)


def refusals(database: Database, *tables: Table) -> list[Finding]:
    """Return what binding reports, in order; a refused rule must not have become a selection."""
    with opened(database) as store:
        selections, findings = bind(store, *tables)
    assert not findings or not selections
    return findings
