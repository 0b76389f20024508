"""The tables to which archived rows come back: the hot table and those whose rows left with it, or side tables."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wane._archive.context import ArchiveContext
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.evolution import WHOLE, wider
from wane._archive.journal import Journal
from wane._archive.query.staging import StagedPart
from wane._archive.restore.dialects import restore_dialect
from wane._archive.restore.sql import RestoreRows, Target
from wane._archive.rows.dialects import archive_dialect
from wane._archive.rows.sql import ArchivedPart, bind_archive
from wane._archive.rows.types import RESERVED
from wane._contract.lookup import parse_table_name
from wane._contract.model import Contract, Table, ToArchive, describe_transform
from wane._contract.names import TableName
from wane._db import Store
from wane._db.schema import Column, Schema, TableInfo
from wane._db.transaction import Transaction
from wane._prune.binding import Bindings
from wane._rules.excuses import excused_tables, mentioned_tables
from wane._rules.rows import rows_of
from wane._rules.selection import READABLE, BoundFollower
from wane.errors import ArchiveError, StoreError, WrongArgument

_MOST_SWEEPS = 100_000
_READ_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class RestoreTables:
    """What a restore reads from and writes to: the row's own table first, then what left with it, nearest first."""

    parts: tuple[StagedPart, ...]
    targets: tuple[Target, ...]

    @property
    def left_out(self) -> list[list[str]]:
        """Return the archived columns that each target does not have: their values stay in the archive."""
        return [
            [name for name, _ in part.archived if name not in {one.name for one in target.columns}]
            for part, target in zip(self.parts, self.targets, strict=True)
        ]

    def without(self, left_out: Sequence[Sequence[str]]) -> RestoreTables:
        """Return the same without some columns of each table, also if the table has them by now."""
        targets = [
            replace(target, columns=tuple(one for one in target.columns if one.name not in names))
            for target, names in zip(self.targets, left_out, strict=True)
        ]
        parts = [
            replace(part, shape=[one for one in part.shape if one[0] not in names])
            for part, names in zip(self.parts, left_out, strict=True)
        ]
        return RestoreTables(tuple(parts), tuple(targets))


def find_tables(context: ArchiveContext, table: Table, *, reading: bool = False) -> RestoreTables:
    """Find the archive of a table and its hot tables; raise if they no longer fit each other.

    `reading`: the caller writes nothing.
    """
    store, contract = context.store, context.contract
    bindings = Bindings(store, contract)
    # Rows come back as they were: what was transformed is refused.
    archive = [replace(one, transform=None) for one in contract.archive]
    declared = _declared(contract, store.reflect())
    parts: dict[str, Target] = {}
    for rule in table.rules:
        if isinstance(rule.action, ToArchive):
            selection = bindings.selection(table, rule)
            above: dict[tuple[BoundFollower, ...], Target] = {}
            for part in bind_archive(rows_of(store), archive_dialect(store), selection, archive).parts:
                above[part.path] = _target(store, part, declared.get(part.table.qualified), above.get(part.path[:-1]))
                parts.setdefault(part.name, above[part.path])
    colds = context.cold_tables(parts, reading=reading)
    archived = [_archived(cold) for cold in colds]
    own = _own_kinds(store) if contract.archive_shared else {}
    with store.snapshot() as transaction:
        transformed = Journal(transaction).transformed(parts)
    targets = [
        _fitted(target, {**dict(columns), **own.get(cold.name, {})}, transformed[target.name])
        if cold.open() is not None
        else target
        for cold, target, columns in zip(colds, parts.values(), archived, strict=True)
    ]
    lacking = _lacking(store, table, targets)
    staged = [
        StagedPart(cold, [[one.name, one.kind] for one in target.columns], missing, columns)
        for cold, target, missing, columns in zip(colds, targets, lacking, archived, strict=True)
    ]
    return RestoreTables(tuple(staged), tuple(targets))


def _declared(contract: Contract, schema: Schema) -> dict[tuple[str, str], Table]:
    """Index the tables of a contract by the database's names of them."""
    found = ((schema.find(table.name.schema, table.name.name), table) for table in contract.tables)
    return {info.qualified: table for info, table in found if info is not None}


def _target(store: Store, part: ArchivedPart, declared: Table | None, above: Target | None) -> Target:
    """Build the target of a part; which of its rows are live is what the contract declares of that very table."""
    target = Target(part.name, part.table, part.key, part.columns)
    if part.path:
        target = replace(target, reference=part.path[-1].reference, above=above)
    if declared is None or declared.state is None:
        return target
    state = part.table.column(declared.state)
    states = dict.fromkeys(one for rule in declared.rules if rule.active for one in rule.states)
    finished = tuple(one for one in states if state is not None and not store.types.state(state, one))
    return replace(target, state=state, finished=finished)


def _archived(cold: ColdTable) -> list[tuple[str, str]]:
    """Return every column of hot tables that the archive has, also of those that were dropped since."""
    table = cold.open()
    fields = [] if table is None else table.schema().fields
    return [(field.name, str(field.type.type)) for field in fields if field.name not in RESERVED]


def _own_kinds(store: Store) -> dict[str, dict[str, str]]:
    """Return the widest kind with which this database archived each column, by the archive's tables.

    A table that it shares may have a wider one because of another database, whose rows do not come back here.
    """
    with store.snapshot() as transaction:
        sweeps = Journal(transaction).sweeps(None, _MOST_SWEEPS)
    if len(sweeps) >= _MOST_SWEEPS or any(sweep.parts is None for sweep in sweeps):
        return {}
    found: dict[str, dict[str, str]] = {}
    for sweep in sweeps:
        for name, shape in zip(sweep.parts or (), sweep.columns, strict=True):
            kinds = found.setdefault(name, {})
            for column, kind in shape:
                kinds[column] = wider(kinds.get(column, kind), kind) or kind
    return found


def _fitted(target: Target, archived: Mapping[str, str], transformed: Mapping[int, Mapping[str, Any]]) -> Target:
    """Restrict a target to the columns that the archive has; raise if one of them cannot take archived values."""
    columns = []
    for one in target.columns:
        if one.name not in archived:
            continue
        kind = wider(archived[one.name], one.kind)
        # A whole number that is too large is refused by the database; a fraction would be rounded.
        if kind is None or (kind != one.kind and one.kind not in WHOLE):
            if transformed:
                raise transformed_rows(f"rows of {target.name}", transformed[max(transformed)])
            raise ArchiveError(
                f"{target.name}.{one.hot} is now {one.kind}, and its archive holds {archived[one.name]}",
                "give the column its type back for as long as the restore takes, or read the rows with `wane archive query`",
            )
        columns.append(replace(one, kind=kind))
    named = {one.hot: one.name for one in target.columns}
    for column in target.key:
        if named.get(column.name, column.name) not in archived:
            raise ArchiveError(
                f"{target.name}.{column.name} is its key now, and archived rows have no such column",
                "give the key its old name for as long as the restore takes, or read the rows with `wane archive query`",
            )
    return replace(target, columns=tuple(columns))


def require_values(tables: RestoreTables, chosen: Mapping[str, int], sweeps: Collection[int]) -> None:
    """Raise if chosen rows, which are of these sweeps, have no value of a column that needs one in every row."""
    for part, target in zip(tables.parts, tables.targets, strict=True):
        if not chosen.get(part.cold.name):
            continue
        names = {one.hot: one.name for one in target.columns}
        known = {name for name, _ in part.archived}
        for sweep in sorted(sweeps):
            lacking = part.lacking.get(sweep, frozenset())
            for column in target.table.columns:
                name = names.get(column.name)
                if (name is None or name not in known or name in lacking) and (
                    column in target.key or _is_required(column)
                ):
                    raise ArchiveError(
                        f"rows of sweep {sweep} have no value of {target.name}.{column.name}, which every row needs",
                        "nothing was changed; give the column a default for as long as the restore takes, restore into a side"
                        " table, or read the rows with `wane archive query`",
                    )


def _is_required(column: Column) -> bool:
    """Check whether no row can be inserted without a value of the column."""
    return not (column.nullable or column.generated or column.has_default)


def transformed_rows(what: str, transform: Mapping[str, Any]) -> WrongArgument:
    """Build the error for archived rows that are not the rows that left their table."""
    return WrongArgument(
        f"{what} were transformed on the way to the archive ({describe_transform(transform)}): they are not what left the"
        " table, and do not come back",
        "read them with `wane archive query`; rows that were archived as they were can be restored",
    )


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
        dialect = restore_dialect(store)
        info = schema.find(name.schema, name.name)
        # Transactions find nothing by a bare name on PostgreSQL, so a new table has its schema from the session's
        # search path.
        new = replace(name, schema=name.schema or next(iter(schema.search_path), None))
        refused = dialect.refused_side(name.schema, name.name)
        if info is None and not refused:
            refused = dialect.refused_new(store.reader(_READ_SECONDS), new.schema, new.name)
        if refused:
            raise WrongArgument(f"{name} cannot be a side table: {refused}", "name another table")
        if info is None:
            missing.append((new, target))
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
        column, like = info.column(one.hot), target.table.column(one.hot)
        if column is None:
            raise WrongArgument(
                f"{info.name} has no column {one.hot!r}, which archived rows of {target.name} have", hint
            )
        stored = archive_dialect(store).stored(column, None, None)
        if like is None or (column.type != like.type and (stored is None or stored.kind != one.kind)):
            raise WrongArgument(
                f"{info.name}.{one.hot} is {column.type or 'of no type'}, and archived rows of {target.name} have {one.kind}",
                hint,
            )
    key = tuple(found for column in target.key if (found := info.column(column.name)) is not None)
    return replace(target, table=info, key=key, state=None, finished=None, reference=None, above=None)


def make_beside(transaction: Transaction, store: Store, missing: Sequence[tuple[TableName, Target]]) -> None:
    """Create the side tables that are missing; raise WrongArgument if the database refuses one."""
    statements = RestoreRows(rows_of(store), archive_dialect(store), restore_dialect(store))
    quote = store.dialect.quote
    for name, target in missing:
        table = ".".join(quote(one) for one in (name.schema, name.name) if one is not None)
        try:
            for text in statements.side_table(table, target.table, target.key, target.columns):
                transaction.execute(text, {})
        except StoreError as problem:
            raise WrongArgument(
                f"the side table {name} cannot be created: {problem.message}",
                "nothing was changed: name a table in a schema that exists and in which the role may create tables",
            ) from problem
