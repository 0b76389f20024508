"""The tables to which archived rows come back: the hot table and those whose rows left with it, or side tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from wane._archive.cold_table import ColdTable
from wane._archive.context import ArchiveContext
from wane._archive.dialects import archive_dialect, restore_dialect
from wane._archive.journal import Journal
from wane._archive.sql import ArchivedPart, bind_archive
from wane._archive.sql_restore import RestoreRows, Target
from wane._archive.staging import StagedPart
from wane._archive.types import RESERVED
from wane._contract.lookup import parse_table_name
from wane._contract.model import Contract, Table, ToArchive
from wane._contract.names import TableName
from wane._db import Store
from wane._db.schema import Schema, TableInfo
from wane._db.transaction import Transaction
from wane._prune.binding import Bindings
from wane._rules.excuses import excused_tables, mentioned_tables
from wane._rules.rows import rows_of
from wane._rules.selection import READABLE, BoundFollower
from wane.errors import ArchiveError, StoreError, WrongArgument

_MOST_SWEEPS = 100_000


@dataclass(frozen=True, slots=True)
class RestoreTables:
    """What a restore reads from and writes to: the row's own table first, then what left with it, nearest first."""

    parts: tuple[StagedPart, ...]
    targets: tuple[Target, ...]


def find_tables(context: ArchiveContext, table: Table) -> RestoreTables:
    """Find the archive of a table and its hot tables; raise if they no longer fit each other."""
    store, contract = context.store, context.contract
    bindings = Bindings(store, contract)
    archived = next(one for one in contract.archive if one.table == table.name)
    declared = _declared(contract, store.reflect())
    parts: dict[str, Target] = {}
    for rule in table.rules:
        if isinstance(rule.action, ToArchive):
            selection = bindings.selection(table, rule)
            above: dict[tuple[BoundFollower, ...], Target] = {}
            for part in bind_archive(rows_of(store), archive_dialect(store), selection, archived).parts:
                above[part.path] = _target(store, part, declared.get(part.table.qualified), above.get(part.path[:-1]))
                parts.setdefault(part.name, above[part.path])
    colds = context.cold_tables(parts)
    targets = [_fitted(cold, target) for cold, target in zip(colds, parts.values(), strict=True)]
    lacking = _lacking(store, table, targets)
    staged = [
        StagedPart(cold, [[one.name, one.kind] for one in target.columns], missing)
        for cold, target, missing in zip(colds, targets, lacking, strict=True)
    ]
    return RestoreTables(tuple(staged), tuple(targets))


def _declared(contract: Contract, schema: Schema) -> dict[tuple[str, str], Table]:
    """Index the tables of a contract by the database's names of them."""
    found = ((schema.find(table.name.schema, table.name.name), table) for table in contract.tables)
    return {info.qualified: table for info, table in found if info is not None}


def _target(store: Store, part: ArchivedPart, declared: Table | None, above: Target | None) -> Target:
    """Build the target of a part; which of its rows are live is what the contract says of that very table."""
    target = Target(part.name, part.table, part.key, part.columns)
    if part.path:
        target = replace(target, reference=part.path[-1].reference, above=above)
    if declared is None or declared.state is None:
        return target
    state = part.table.column(declared.state)
    states = dict.fromkeys(one for rule in declared.rules if rule.active for one in rule.states)
    finished = tuple(one for one in states if state is not None and not store.types.state(state, one))
    return replace(target, state=state, finished=finished)


def _fitted(cold: ColdTable, target: Target) -> Target:
    """Restrict a target to the columns that the archive has; raise if it has one that the table cannot take."""
    table = cold.open()
    if table is None:
        return target
    known = {one.name: one for one in target.columns}
    archived = {field.name: str(field.type.type) for field in table.schema().fields if field.name not in RESERVED}
    for name, kind in archived.items():
        if name not in known or known[name].kind != kind:
            what = f"is now {known[name].kind}" if name in known else "is gone"
            raise ArchiveError(
                f"{target.name}.{name} {what}, and its archive holds {kind}",
                "add the column again for as long as the restore takes, or read the rows with `wane archive query`",
            )
    return replace(target, columns=tuple(one for one in target.columns if one.name in archived))


def _lacking(store: Store, table: Table, targets: list[Target]) -> list[dict[int, frozenset[str]]]:
    """Return the columns that rows of older sweeps did not have yet, by target and sweep.

    They get what new rows get.
    """
    lacking: list[dict[int, frozenset[str]]] = [{} for _ in targets]
    with store.snapshot() as transaction:
        sweeps = Journal(transaction).sweeps(str(table.name), _MOST_SWEEPS)
    for sweep in sweeps:
        for number, (target, shape) in enumerate(zip(targets, sweep.columns, strict=False)):
            if number and len(sweep.columns) != len(targets):
                break  # Other tables followed at that time, and which ones was not recorded.
            missing = frozenset(one.name for one in target.columns) - {name for name, _ in shape}
            if missing:
                lacking[number][sweep.id] = missing
    return lacking


@dataclass(frozen=True, slots=True)
class Beside:
    """Side tables that rows are copied to: what each of them takes rows of."""

    targets: tuple[Target, ...]
    missing: tuple[tuple[TableName, Target], ...]
    """Those that do not exist yet, and the tables that they are made like."""

    def tables(self, hot: RestoreTables) -> RestoreTables | None:
        """Return the same rows with side tables as targets; None if some of them are missing."""
        return None if self.missing else replace(hot, targets=self.targets)


def beside(store: Store, contract: Contract, tables: RestoreTables, into: str) -> Beside:
    """Find the side tables of a restore; raise WrongArgument if one of them cannot be used."""
    schema = store.reflect()
    used = _used(contract, schema, tables)
    found: list[Target] = []
    missing: list[tuple[TableName, Target]] = []
    for name, target in zip(_names(tables, into), tables.targets, strict=True):
        refused = restore_dialect(store).refused_side(name.schema, name.name)
        if refused:
            raise WrongArgument(f"{name} cannot be a side table: {refused}", "name another table")
        info = schema.find(name.schema, name.name)
        if info is None:
            # Transactions find nothing by a bare name on PostgreSQL, so a new table has its schema from the session's
            # search path.
            missing.append((replace(name, schema=name.schema or next(iter(schema.search_path), None)), target))
            continue
        if info.qualified in used:
            raise WrongArgument(
                f"{name} is a table of the contract", "name another table, which is made if it is not there"
            )
        found.append(_beside(store, target, info))
    return Beside(tuple(found), tuple(missing))


def _used(contract: Contract, schema: Schema, tables: RestoreTables) -> set[tuple[str, str]]:
    """Return every table that the contract mentions, by the database's names: none of them may be a side table."""
    matched = (one.info.qualified for one in excused_tables(contract, schema) if one.info is not None)
    return mentioned_tables(contract, schema) | {*matched} | {one.table.qualified for one in tables.targets}


def _names(tables: RestoreTables, into: str) -> Iterator[TableName]:
    name = parse_table_name(into)
    yield name
    for target in tables.targets[1:]:
        yield replace(name, name=f"{name.name}_{target.table.name}")


def _beside(store: Store, target: Target, info: TableInfo) -> Target:
    hint = "name another side table: one that does not exist is made"
    if info.kind not in READABLE:
        raise WrongArgument(f"{info.name} is a {info.kind.value}, and a table is expected", hint)
    for one in target.columns:
        column, like = info.column(one.name), target.table.column(one.name)
        if column is None:
            raise WrongArgument(
                f"{info.name} has no column {one.name!r}, which archived rows of {target.name} have", hint
            )
        stored = archive_dialect(store).stored(column, None, None)
        if like is None or (column.type != like.type and (stored is None or stored.kind != one.kind)):
            raise WrongArgument(
                f"{info.name}.{one.name} is {column.type or 'of no type'}, and archived rows of {target.name} have {one.kind}",
                hint,
            )
    key = tuple(found for column in target.key if (found := info.column(column.name)) is not None)
    return replace(target, table=info, key=key, state=None, finished=None, reference=None, above=None)


def make_beside(transaction: Transaction, store: Store, missing: Sequence[tuple[TableName, Target]]) -> None:
    """Create the side tables that are missing."""
    statements = RestoreRows(rows_of(store), archive_dialect(store), restore_dialect(store))
    quote = store.dialect.quote
    for name, target in missing:
        table = ".".join(quote(one) for one in (name.schema, name.name) if one is not None)
        for text in statements.side_table(table, target.table, target.key, target.columns):
            transaction.execute(text, {})


class _Undone(Exception):
    """Rolls a transaction back."""


def require_makeable(store: Store, missing: Sequence[tuple[TableName, Target]]) -> None:
    """Raise unless the database allows creating the missing side tables.

    They are created, and the transaction is rolled back.
    """
    if not missing:
        return
    try:
        with suppress(_Undone), store.transaction() as transaction:
            make_beside(transaction, store, missing)
            raise _Undone
    except StoreError as problem:
        raise WrongArgument(
            f"the side table {missing[0][0]} cannot be made: {problem.message}",
            "nothing was changed: name a table in a schema that is there and where you may make tables",
        ) from problem
