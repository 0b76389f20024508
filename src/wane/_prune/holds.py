"""Holds: an order that a row, or a whole table, is retained, regardless of the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Protocol

from wane._arguments import require_limit
from wane._contract.lookup import parse_table_name
from wane._db import Store
from wane._db.schema import Column, Kind, Schema, TableInfo, hold_names, qualified
from wane._db.transaction import Transaction
from wane._findings import did_you_mean
from wane._ledger import Hold, Ledger
from wane._prune.primitive import whoami
from wane._prune.sql_views import tables_behind
from wane._rules.holds import is_known
from wane._rules.queries import queries_of
from wane.errors import Locked, StoreError, TimedOut, UnknownTable, Unreachable, WrongArgument

MOST_SHOWN = 10_000


class Elsewhere(Protocol):
    """Where rows may be that are no longer in their table, such as an archive."""

    def find(self, table: TableInfo, key: Mapping[str, object]) -> str | None:
        """Return the text by which a hold names the row of this key; None if it is not there."""

    def has(self, transaction: Transaction, table: TableInfo, text: str) -> bool:
        """Check whether the row that was found is still there; called when no process can take it any more."""


def add_hold(
    store: Store,
    table: str,
    *,
    key: Mapping[str, object] | None,
    reason: str,
    author: str | None = None,
    ends_at: datetime | None = None,
    archive: Elsewhere | None = None,
) -> Hold:
    """Hold a row by its primary key, archived or not, or the whole table.

    When this returns, no batch can take what is held. Rows of a partition, or of a table that inherits, are rows of the
    table at the root as well: that one is held.
    """
    if not reason.strip():
        raise WrongArgument("a hold needs a reason")
    store.require_migrated()
    info = _find(store, table)
    cold = None
    if key is not None and not _is_hot(store, info, key) and archive is not None:
        # The archive is searched before the gate is closed: that may take a while.
        cold = archive.find(info, key)
    with store.transaction() as transaction:
        transaction.close_gate(info)
        now = transaction.now()
        if ends_at is not None and ends_at <= now:
            raise WrongArgument(f"the hold would end in the past: {ends_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")
        text = None
        if key is not None:
            found = transaction.execute(*_requested(store, info, key))
            if not found and cold is not None and archive is not None and archive.has(transaction, info, cold):
                found = [(cold,)]
            if not found:
                shown = ", ".join(f"{name} = {value}" for name, value in key.items())
                raise WrongArgument(f"{table} has no row with {shown}", "a row that is gone cannot be held")
            text = found[0][0]
        hold = Hold(qualified(info), text, reason.strip(), author or whoami(), now, ends_at)
        number = Ledger.of(transaction).add_hold(hold)
    return Hold(hold.table, text, hold.reason, hold.author, now, ends_at, id=number)


def _is_hot(store: Store, info: TableInfo, key: Mapping[str, object]) -> bool:
    """Check whether the table has a row; raise WrongArgument if no row can have such a key."""
    try:
        return bool(store.run(*_requested(store, info, key)))
    except (Unreachable, TimedOut, Locked):
        raise
    except StoreError as problem:  # A value that the column's type cannot hold.
        shown = ", ".join(f"{name} = {value}" for name, value in key.items())
        raise WrongArgument(f"no row of {info.name} can have {shown}", problem.message) from problem


def _requested(store: Store, info: TableInfo, key: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    statement = queries_of(store).key_text(info, _columns(info, key), key)
    return statement.text, statement.parameters


def list_holds(store: Store, table: str | None = None, *, everything: bool = False, limit: int = 100) -> list[Hold]:
    """Return the holds in force, newest first; with `everything`, past ones too."""
    store.require_migrated()
    names = [] if table is None else hold_names(_find(store, table))
    schema = store.reflect()
    with store.snapshot() as transaction:
        found = Ledger.of(transaction).holds(
            tables=names, everything=everything, limit=require_limit(limit, MOST_SHOWN)
        )
    return [replace(one, lost=not is_known(store, schema, one.table)) for one in found]


def release_hold(store: Store, number: int, *, by: str | None = None) -> None:
    """Release a hold; raise if there is none of that number."""
    store.require_migrated()
    with store.transaction() as transaction:
        if not Ledger.of(transaction).release_hold(number, by=by or whoami(), at=transaction.now()):
            raise WrongArgument(f"there is no hold {number}, or it was released already", "`wane hold list` shows them")


def _find(store: Store, table: str) -> TableInfo:
    name = parse_table_name(table)
    schema = store.reflect()
    info = schema.find(name.schema, name.name)
    if info is None:
        raise UnknownTable(
            f"the database has no table {table}", did_you_mean(name.name, [one.name for one in schema.tables])
        )
    return _root(store, schema, info)


def _root(store: Store, schema: Schema, info: TableInfo) -> TableInfo:
    """Return the table under whose name rows of a table are held; raise if they cannot be."""
    above = [one for name in info.ancestors if (one := schema.find(*name)) is not None]
    roots = [one for one in above if not one.ancestors]
    if len(roots) > 1:
        names = " and ".join(qualified(one) for one in roots)
        raise WrongArgument(f"{info.name} inherits from {names}, and may lose rows with either", "hold both")
    if roots:
        return roots[0]
    if info.kind in (Kind.VIEW, Kind.MATERIALIZED_VIEW):
        tables = ", ".join(tables_behind(store, info)) or "the tables that it reads"
        raise WrongArgument(f"{info.name} is a {info.kind.value}: it has no rows of its own", f"hold {tables}")
    if info.kind in (Kind.FOREIGN, Kind.VIRTUAL):
        where = "the database that has them" if info.kind is Kind.FOREIGN else "the tables behind it"
        raise WrongArgument(
            f"{info.name} is a {info.kind.value}: no rule deletes its rows, and no hold keeps them",
            f"hold rows in {where}",
        )
    return info


def _columns(info: TableInfo, key: Mapping[str, object]) -> list[Column]:
    if not info.primary_key or set(key) not in (set(info.row_key), set(info.primary_key)):
        wanted = ", ".join(info.row_key) or "a primary key, which it does not have"
        raise WrongArgument(f"the key of {info.name} is {wanted}", "name exactly these columns")
    return [column for name in info.primary_key if name in key and (column := info.column(name)) is not None]
