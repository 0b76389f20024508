"""A rule bound to a real table: every name it uses exists, and every column has a type that Wane can handle.

Binding is where contract and database meet. It fails closed: a column of an unknown type, a table without a key or a
time whose encoding does not fit its column makes a finding, and a rule with findings is never turned into a statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from wane._contract.conditions import Condition, Conditions, Constant
from wane._contract.duration import Forever
from wane._contract.mistakes import key_path
from wane._contract.model import (
    Age,
    Cap,
    Contract,
    Follower,
    Longer,
    Orphans,
    Reference,
    ReferencedBy,
    Rule,
    State,
    Table,
    Time,
    ToColdTier,
    WhileNotNull,
    WhileNull,
)
from wane._contract.names import TableName
from wane._db.schema import Column, Index, Kind, Schema, TableInfo
from wane._db.statement import Slot, Types
from wane._findings import Finding, Severity, did_you_mean
from wane._frozen import frozen
from wane.errors import SchemaChanged

READABLE = (Kind.TABLE, Kind.PARTITIONED)
_LONGEST = timedelta(days=36_525)
"""The longest window of a row, a hundred years: no arithmetic overflows with it."""


@frozen
class BoundReference:
    """Columns of another table, and the columns of this one that they refer to."""

    name: TableName
    table: TableInfo
    columns: tuple[Column, ...]
    to: tuple[Column, ...]
    enforced: bool = False
    """Whether foreign keys of the table and of every table that inherits from it prevent new references to a row that
    is locked to leave."""
    inherited: bool = False
    """PostgreSQL: whether other tables inherit from it."""


@frozen
class BoundComparison:
    """A comparison whose other column, if it has one, was found."""

    sign: str
    values: tuple[Constant | Slot, ...] = ()
    column: Column | None = None


@frozen
class BoundCondition:
    """A condition whose columns were found."""

    column: Column
    comparisons: tuple[BoundComparison, ...]
    null: bool | None = None

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns that decide."""
        return (self.column, *(one.column for one in self.comparisons if one.column is not None))


@frozen
class BoundFollower:
    """A follower whose table and columns were found."""

    reference: BoundReference
    where: tuple[BoundCondition, ...]
    followers: tuple[BoundFollower, ...]
    has_delete_triggers: bool = False
    """A trigger or rule fires when its rows are deleted, and may prevent that."""
    inherited: bool = False
    """PostgreSQL: other tables inherit from it, and its key is unique in each of them only."""
    live_leaves: bool = False
    """Whether the contract lets its rows leave in any state."""
    live: tuple[Column, tuple[State, ...]] | None = None
    """The states, and their column, in which its rows retain the row that they follow."""

    def walk(self) -> Iterator[BoundFollower]:
        yield self
        for follower in self.followers:
            yield from follower.walk()


@frozen
class Dependencies:
    """What the statements of a bound rule rely on. The transaction that runs them compares it with the database."""

    version: int | None = None
    """SQLite: the version of the schema."""
    stamps: frozenset[tuple[int, str]] = frozenset()
    """PostgreSQL: the stamps of the tables that lose rows, and of their partitions and inheriting tables."""
    effects: frozenset[str] = frozenset()
    """PostgreSQL: the foreign keys, triggers, rules and inheriting tables that decide what else happens when rows of
    these tables are deleted."""


@frozen
class OwnTime:
    """The column of a rule's table that holds the time of a row, and how it encodes it."""

    time: Time
    column: Column
    among: tuple[Column, ...] = ()
    """The columns of which one holds the time, if there are several; `time.pick` selects it."""
    walked: bool = False
    """Whether only rows are meant in which `column` is the first of those that is not NULL."""

    def encoded(self, column: Column) -> Time:
        """Return how one of its columns encodes times."""
        return Time(column.name, self.time.unit, self.time.zone, self.time.also)

    @property
    def walks(self) -> tuple[OwnTime, ...]:
        """Return the times that an index can have in order: one for each column, one for each of its encodings."""
        if self.among:
            return tuple(replace(self, column=column, walked=True) for column in self.among)
        return tuple(OwnTime(time, self.column) for time in self.time.each)


@frozen
class OtherTime:
    """The column of another table that holds the time of a row, and how it encodes it."""

    time: Time
    column: Column
    reference: BoundReference
    """Columns of the other table that refer to the row; of a parent, columns of the row that refer to it."""

    @property
    def in_child(self) -> bool:
        return self.time.child is not None


@frozen
class BoundLonger:
    """The column that holds windows of rows."""

    column: Column
    micros: int
    """How many microseconds one of its numbers is."""
    reference: BoundReference | None
    """Columns of the row that refer to the one that holds its window; None: it is in the row itself."""

    @property
    def name(self) -> str:
        """Return the column's name, with its table if that is another one."""
        return self.column.name if self.reference is None else f"{self.reference.name}.{self.column.name}"

    @property
    def most(self) -> int:
        """Return the largest number that is a window: with a larger one, a row stays."""
        return _LONGEST // timedelta(microseconds=self.micros)

    def read(self, value: object) -> timedelta | None:
        """Return the window that a value of the column is; None if a row with that value stays."""
        if not isinstance(value, int | float | Decimal) or not 1 <= value <= self.most:
            return None
        return timedelta(microseconds=int(value * self.micros))


@frozen
class Selection:
    """The rows that one rule is about, ready to be written as a statement."""

    name: TableName
    table: TableInfo
    rule: Rule
    key: tuple[Column, ...]
    own_time: OwnTime | None
    """None: rows have no time of their own. They are ordered by their key, whose first column, under a cap, ascends as
    rows are inserted."""
    state: Column | None
    other_time: OtherTime | None = None
    """The time of a row that is in another table."""
    longer: BoundLonger | None = None
    per: tuple[Column, ...] = ()
    scope: tuple[Any, ...] | None = None
    """One scope of a cap per scope; None means all of them."""
    orphan: Column | None = None
    missing: BoundReference | None = None
    """The parents whose absence makes a row an orphan. It is one of the guards: a parent that exists saves the row."""
    where: tuple[BoundCondition, ...] = ()
    spared_per: tuple[Column, ...] = ()
    """The scope in which the rule spares its newest rows, if it spares any."""
    saved_while_null: tuple[Column, ...] = ()
    saved_while_not_null: tuple[Column, ...] = ()
    guards: tuple[BoundReference, ...] = ()
    followers: tuple[BoundFollower, ...] = ()
    unlinked: tuple[BoundReference, ...] = ()
    """References that a trigger of the database removes before a row leaves."""
    has_delete_triggers: bool = False
    """Whether a trigger or rule fires when its rows are deleted, on the table or on one of its partitions."""
    dependencies: Dependencies = Dependencies()
    compiled: dict[bool, object] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Its statements, with and without holds: see `wane._rules.rule_statements`."""

    @property
    def label(self) -> str:
        return f"{self.name}.{self.rule.name}"

    @property
    def time(self) -> Time:
        """Return how its time column encodes times; only of a rule whose rows have one."""
        assert self.own_time is not None
        return self.own_time.time

    @property
    def declared_time(self) -> Time | None:
        """Return how the times of its rows are encoded, in this table or another; None if they have none."""
        aged = self.other_time or self.own_time
        return None if aged is None else aged.time

    @property
    def time_column(self) -> Column:
        """Return the column that holds its times; only of a rule whose rows have one."""
        assert self.own_time is not None
        return self.own_time.column

    @property
    def lookups(self) -> list[tuple[BoundReference, bool]]:
        """Return the references to rows of other tables that hold its time or window, each with whether those refer
        to the row."""
        other, longer = self.other_time, self.longer
        found = [] if other is None else [(other.reference, other.in_child)]
        return found if longer is None or longer.reference is None else [*found, (longer.reference, False)]

    def holds_time(self, follower: BoundFollower) -> bool:
        """Return whether a row's time is in the rows of a follower, which leave before the row."""
        other = self.other_time
        if other is None or not other.in_child:
            return False
        mine, its = other.reference, follower.reference
        return (mine.table.qualified, mine.columns, mine.to) == (its.table.qualified, its.columns, its.to)

    @property
    def time_columns(self) -> tuple[Column, ...]:
        """Return the columns that may hold the time of a row; none if its rows have no time."""
        return () if self.own_time is None else self.own_time.among or (self.own_time.column,)

    @property
    def one_time(self) -> bool:
        """Return whether a single column holds the time of every row."""
        return self.own_time is not None and not self.own_time.among

    def walks(self) -> list[Selection]:
        """Return the same rows in parts, each of which an index can have in order: see `OwnTime.walks`."""
        return [self] if self.own_time is None else [replace(self, own_time=one) for one in self.own_time.walks]

    def timed(self, time: Time, column: Column) -> Selection:
        """Return the same rows with another time."""
        return replace(self, own_time=OwnTime(time, column), other_time=None, longer=None)

    def without_where(self) -> Selection:
        """Return the selection of the rows that fulfil all of the rule but its `where`."""
        return replace(self, where=(), rule=replace(self.rule, conditions=()))

    def in_scope(self, scope: tuple[Any, ...]) -> Selection:
        """Return the rows of one scope of a cap per scope; the statements are the same for all of them."""
        one = replace(self, scope=scope)
        one.compiled.update(self.compiled)
        return one


def without_live_followers(selection: Selection) -> Selection:
    """Return the same rows as if no follower in a live state retained one of them."""

    def relaxed(follower: BoundFollower) -> BoundFollower:
        return replace(follower, live=None, followers=tuple(map(relaxed, follower.followers)))

    return replace(selection, followers=tuple(map(relaxed, selection.followers)))


def bind_contract(contract: Contract, schema: Schema, types: Types) -> tuple[list[Selection], list[Finding]]:
    """Bind every active rule of the contract; return those that fit the database, and findings for what does not."""
    selections: list[Selection] = []
    findings: list[Finding] = []
    for table, rule in contract.rules():
        selection, found = bind_rule(contract, table, rule, schema, types)
        findings.extend(finding for finding in found if finding not in findings)
        if selection is not None:
            selections.append(selection)
    return selections, findings


def bind_rule(
    contract: Contract, table: Table, rule: Rule, schema: Schema, types: Types
) -> tuple[Selection | None, list[Finding]]:
    """Bind one rule; return it if it fits the database, and findings for everything that does not fit."""
    binder = _Binder(contract, table, rule, schema, types)
    return binder.bind(), binder.findings


def bind_age(
    contract: Contract, table: Table, schema: Schema, types: Types
) -> tuple[tuple[Time, Column] | None, list[Finding]]:
    """Find the column that a table declares as the age of its rows; None if it declares none, or it does not fit."""
    if table.age is None or schema.find(table.name.schema, table.name.name) is None:
        return None, []  # Binding its rules reports a missing table.
    binder = _Binder(contract, table, table.rules[0], schema, types)
    return binder.age(table.age), binder.findings


def _all(followers: Sequence[Follower]) -> Iterator[Follower]:
    for follower in followers:
        yield follower
        yield from _all(follower.followers)


class _MissingName(Exception):
    """Something that a rule names is missing; the finding is recorded already."""


class _Binder:
    def __init__(self, contract: Contract, table: Table, rule: Rule, schema: Schema, types: Types) -> None:
        self.file = "" if contract.path is None else str(contract.path)
        self.contract = contract
        self.declared = table
        self.rule = rule
        self.schema = schema
        self.types = types
        self.findings: list[Finding] = []

    def bind(self) -> Selection | None:
        try:
            selection = self._selection()
        except _MissingName:
            return None
        return None if self.findings else replace(selection, dependencies=_dependencies(selection, self.schema))

    def age(self, time: Time) -> tuple[Time, Column] | None:
        try:
            column = self._column(self._table(self.declared.name, "age"), time.column, "age")
        except _MissingName:
            return None
        written = self._written(column, time, "age")
        return None if written is None else (written, column)

    def _written(self, column: Column, time: Time, entry: str) -> Time | None:
        """Reduce a time to the units that the column can hold; None, with a finding, if it can hold none of them."""
        problems = [self.types.time(column, one, several=bool(time.also)) for one in time.each]
        fitting = [one.unit for one, problem in zip(time.each, problems, strict=True) if not problem]
        if not fitting:
            self._error(entry, "wrong-time-type", problems[0])
            return None
        return replace(time, unit=fitting[0], also=tuple(fitting[1:]))

    def _selection(self) -> Selection:
        rule, declared = self.rule, self.declared
        assert not isinstance(rule.bound, Forever)
        table = self._table(declared.name, "")
        self._check_allowed(table)
        key = self._key(table)
        state = None if declared.state is None else self._try(self._column, table, declared.state, "state")
        self._check_states(state)
        own_time, other_time = self._times(table, key, rule.bound.time)
        if isinstance(rule.bound, Cap) and rule.bound.by is not None:
            key = self._ordered_key(table, key, rule.bound.by, rule.bound.per)

        def column(name: str, entry: str) -> Column:
            return self._column(table, name, f"rule.{rule.name}.{entry}")

        missing = self._missing_parent(table)
        return Selection(
            name=declared.name,
            table=table,
            rule=rule,
            key=key,
            own_time=own_time,
            state=state,
            other_time=other_time,
            longer=self._longer(table, rule.bound.longer) if isinstance(rule.bound, Age | Orphans) else None,
            per=tuple(column(name, "per") for name in rule.bound.per) if isinstance(rule.bound, Cap) else (),
            orphan=column(rule.bound.reference, "orphans")
            if isinstance(rule.bound, Orphans) and missing is None
            else None,
            missing=missing,
            spared_per=() if rule.spare is None else tuple(column(name, "spare") for name in rule.spare.per),
            where=self._where(rule.conditions, table, f"rule.{rule.name}.where"),
            saved_while_null=(
                *(column(g.column, "unless") for g in rule.guards if isinstance(g, WhileNull)),
                *(() if missing is None else missing.to),
            ),
            saved_while_not_null=tuple(column(g.column, "unless") for g in rule.guards if isinstance(g, WhileNotNull)),
            guards=tuple(self._guards(table, key, missing)),
            followers=tuple(self._follower(follower, table, key) for follower in rule.followers),
            unlinked=tuple(self._reference(one, table, key, f"rule.{rule.name}.unlinked") for one in rule.unlinked),
            has_delete_triggers=any(one.delete_triggers for one in self._parts(table)),
        )

    def _check_allowed(self, table: TableInfo) -> None:
        """Check that rules may take rows of the table, and that the tier can store them."""
        if problem := self.types.rules_allowed(table):
            self._error("", "refused-table", problem)
        rule = self.rule
        if not isinstance(rule.action, ToColdTier):
            return
        followers = (self._table(one.reference.table, f"rule.{rule.name}.with") for one in _all(rule.followers))
        for one in (table, *followers):
            if problem := self.types.shelving_allowed(one):
                self._error(f"rule.{rule.name}.then", "refused-tier", problem)

    def _times(
        self, table: TableInfo, key: tuple[Column, ...], time: Time | None
    ) -> tuple[OwnTime | None, OtherTime | None]:
        """Return the time that rows age by, as one of their own or as one in another table."""
        if time is None:
            return None, None
        if time.elsewhere is None:
            return self._own_time(table, time), None
        return None, self._other_time(table, key, time)

    def _guards(
        self, table: TableInfo, key: tuple[Column, ...], missing: BoundReference | None
    ) -> Iterator[BoundReference]:
        for guard in self.rule.guards:
            if isinstance(guard, ReferencedBy):
                yield self._reference(guard.reference, table, key, f"rule.{self.rule.name}.unless")
        if missing is not None:
            yield missing

    def _own_time(self, table: TableInfo, time: Time) -> OwnTime:
        entry = f"rule.{self.rule.name}.time"
        columns = [self._column(table, name, entry) for name in time.columns]
        written = [self._written(column, time, entry) or time for column in columns]
        among = tuple(columns) if time.pick is not None else ()
        for other in columns[1:]:
            if (other.type, other.collation) != (columns[0].type, columns[0].collation):
                types = (
                    f"{columns[0].name} is {columns[0].type or 'untyped'} and {other.name} {other.type or 'untyped'}"
                )
                message = f"{types}: times of two types cannot be compared exactly"
                self._error(entry, "wrong-time-type", message, "name columns of one type, or write a rule for each")
        return OwnTime(written[0], columns[0], among)

    def _other_time(self, table: TableInfo, key: tuple[Column, ...], time: Time) -> OtherTime:
        entry = f"rule.{self.rule.name}.time"
        if time.child is not None:
            reference = self._reference(time.child, table, key, entry)
        else:
            assert time.parent is not None
            reference = self._one_row(time.parent, table, entry)
        if problem := self.types.walked_key(key[0]):
            self._error(entry, "wrong-time-type", problem, "name another unique key: `key = […]`")
        column = self._column(reference.table, time.column, entry)
        return OtherTime(self._written(column, time, entry) or time, column, reference)

    def _longer(self, table: TableInfo, longer: Longer | None) -> BoundLonger | None:
        if longer is None:
            return None
        entry = f"rule.{self.rule.name}.longer"
        reference = None if longer.parent is None else self._one_row(longer.parent, table, entry)
        column = self._column(table if reference is None else reference.table, longer.column, entry)
        if problem := self.types.window(column):
            self._error(entry, "wrong-window-type", problem, "name a column of whole numbers")
        return BoundLonger(column, longer.unit.length // timedelta(microseconds=1), reference)

    def _one_row(self, reference: Reference, table: TableInfo, entry: str) -> BoundReference:
        """Bind columns of the rule's table that refer to one row of another."""
        parent = self._table(reference.table, entry)
        mine = tuple(self._column(table, name, entry) for name in reference.columns)
        to = tuple(self._column(parent, name, entry) for name in reference.to or parent.primary_key)
        if len(mine) != len(to) or not self._unique(parent, to):
            self._error(
                entry,
                "wrong-reference",
                f"{', '.join(reference.columns)} does not refer to one row of {parent.name}",
                "name the columns of a unique key of it: { table, columns, to }",
            )
            raise _MissingName
        for one, other in zip(mine, to, strict=True):
            if problem := self.types.reference(one, other):
                self._error(entry, "wrong-reference", f"{reference.table}: {problem}")
        return BoundReference(reference.table, parent, mine, to, _enforced(table, mine, parent, to))

    def _ordered_key(
        self, table: TableInfo, key: tuple[Column, ...], by: str, per: tuple[str, ...]
    ) -> tuple[Column, ...]:
        """Return the key with the column that orders rows in front; that column's type must be one that can."""
        entry = f"rule.{self.rule.name}.by"
        column = self._column(table, by, entry)
        if column not in key:
            names = ", ".join(one.name for one in key)
            fix = f"name a column of the key, or another unique key of the table: `key = [{by!r}]`"
            self._error(entry, "unordered-key", f"{by} is not in the key of {table.name} ({names})", fix)
        elif problem := self.types.ordered_key(column):
            self._error(entry, "unordered-key", problem, "name a time column instead: `time = …`")
        return (column, *(one for one in key if one != column))

    def _missing_parent(self, table: TableInfo) -> BoundReference | None:
        """Return the parents that a reference without a foreign key points at, as what saves the rule's rows."""
        bound, entry = self.rule.bound, f"rule.{self.rule.name}.orphans"
        if not isinstance(bound, Orphans) or bound.missing is None:
            return None
        parent = self._table(bound.missing.table, entry)
        mine = tuple(self._column(table, name, entry) for name in bound.missing.columns)
        names = bound.missing.to or parent.row_key
        theirs = tuple(self._column(parent, name, entry) for name in names)
        if len(mine) != len(theirs):
            self._error(
                entry,
                "wrong-reference",
                f"{len(mine)} columns point at {len(theirs)} of {parent.name}: {', '.join(names) or 'it has no key'}",
                "name the columns that they point at: { columns, of, to }",
            )
            raise _MissingName
        for one, other in zip(mine, theirs, strict=True):
            problem = self.types.reference(one, other) or self.types.reference(other, one)
            if not problem and not _same(one.collation, other.collation):
                problem = f"{one.name} and {other.name} have different collations: a value may be equal in one only"
            if problem:
                self._error(entry, "wrong-reference", f"{', '.join(bound.missing.columns)}: {problem}")
        inherited = any(one.kind is not Kind.PARTITION for one in self.schema.descendants(parent))
        return BoundReference(bound.missing.table, parent, theirs, mine, inherited=inherited)

    def _parts(self, table: TableInfo) -> list[TableInfo]:
        """Return the table and everything that its rows may actually be stored in."""
        descendants = self.schema.descendants(table)
        if table.kind is Kind.TABLE and descendants:
            # A key is unique in each of them only, and a delete reaches all.
            names = ", ".join(one.name for one in descendants)
            self._error(
                "", "inherited-table", f"{table.name} has tables that inherit from it: {names}", "use partitions"
            )
        return [table, *descendants]

    def _try(self, find: Callable[..., Column], *arguments: object) -> Column | None:
        """Continue after a missing column, so that the rule's other problems are reported too."""
        try:
            return find(*arguments)
        except _MissingName:
            return None

    def _error(self, entry: str, code: str, message: str, fix: str = "") -> None:
        path = key_path(["table", self.declared.name]) + (f".{entry}" if entry else "")
        finding = Finding(Severity.ERROR, code, message, fix, self.file, path, str(self.declared.name))
        self.findings.append(self.contract.located(finding))

    def _table(self, name: TableName, entry: str) -> TableInfo:
        table = self.schema.find(name.schema, name.name)
        if table is None:
            near = did_you_mean(name.name, [one.name for one in self.schema.tables])
            self._error(
                entry, "missing-table", f"the database has no table {name}", near or "create it, or remove it here"
            )
            raise _MissingName
        if table.kind is Kind.PARTITION and table.parent is not None:
            parent = TableName(table.parent[1], table.parent[0])
            self._error(entry, "not-a-table", f"{name} is a partition", f"name its parent, {parent}")
            raise _MissingName
        if table.kind not in READABLE:
            self._error(entry, "not-a-table", f"{name} is a {table.kind.value}, and a table is expected")
            raise _MissingName
        return table

    def _column(self, table: TableInfo, name: str, entry: str) -> Column:
        column = table.column(name)
        if column is None:
            near = did_you_mean(name, [one.name for one in table.columns])
            fix = near or f"columns: {', '.join(one.name for one in table.columns)}"
            self._error(entry, "missing-column", f"{table.name} has no column {name!r}", fix)
            raise _MissingName
        return column

    def _key(self, table: TableInfo) -> tuple[Column, ...]:
        names = self.declared.key or self._own_key(table)
        if not names:
            self._error(
                "key", "no-key", f"{table.name} has no primary key", "name the columns of a unique key: `key = […]`"
            )
            raise _MissingName
        columns = tuple(self._column(table, name, "key") for name in names)
        if not self._unique(table, columns):
            self._error(
                "key",
                "no-key",
                f"({', '.join(names)}) is not unique in {table.name}",
                "name columns with a unique index",
            )
        return columns

    def _unique(self, table: TableInfo, columns: tuple[Column, ...]) -> bool:
        """Check whether no two rows agree in these columns, by the equality that statements use."""
        loose = {column.name: column.collation for column in columns if self.types.loose(column)}
        names = {column.name for column in columns}

        def distinguishes(index: Index) -> bool:
            # An index of bytes admits both `a` and `A`, and a case-insensitive column treats them as equal.
            orders = dict(zip(index.columns, index.collations, strict=False))
            return all(_same(orders.get(name), loose[name]) for name in index.columns if name in loose)

        if any(
            index.unique and index.valid and index.predicate is None and set(index.columns) <= names
            for index in table.indexes
            if distinguishes(index)
        ):
            return True
        if not loose and self._is_partitioned_by_contract(table) and self._unique_in_each_part(table, names):
            return True
        return not loose and names == set(table.primary_key)

    def _own_key(self, table: TableInfo) -> tuple[str, ...]:
        """Return the primary key, without the time column that was added when Wane partitioned the table.

        Other tables refer to the row by the rest.
        """
        by_wane = self._is_partitioned_by_contract(table) and self._unique_in_each_part(table, set(table.row_key))
        return table.row_key if by_wane else table.primary_key

    def _is_partitioned_by_contract(self, table: TableInfo) -> bool:
        # A key that was unique before Wane converted the table is unique over all of its months. What an application's
        # partitions each declare for themselves may occur in another of them.
        own = [one for one in self.contract.partitions if not one.by_application]
        names = [name for one in own for name in (one.table, *(name for name, _ in one.followers))]
        return bool(table.partition_key) and any(self.schema.find(one.schema, one.name) is table for one in names)

    def _unique_in_each_part(self, table: TableInfo, names: set[str]) -> bool:
        parts = [one for one in self.schema.tables if one.parent == table.qualified and one.kind is Kind.PARTITION]
        return bool(parts) and all(
            any(i.unique and i.valid and i.predicate is None and set(i.columns) <= names for i in part.indexes)
            for part in parts
        )

    def _check_states(self, column: Column | None) -> None:
        if column is None:
            return
        others = self.rule.all_but or ()
        declared = [*self.declared.live, *self.rule.states, *others, *(state for state, _ in self.declared.excused)]
        for state in declared:
            problem = self.types.state(column, state)
            if problem:
                self._error("state", "wrong-state-type", problem)
                return

    def _reference(
        self, reference: Reference, parent: TableInfo, key: tuple[Column, ...], entry: str
    ) -> BoundReference:
        table = self._table(reference.table, entry)
        columns = tuple(self._column(table, name, entry) for name in reference.columns)
        to = tuple(self._column(parent, name, entry) for name in reference.to) or key
        if len(columns) != len(to):
            self._error(
                entry,
                "wrong-reference",
                f"{reference} has {len(columns)} columns, the key it points at {len(to)}: {', '.join(c.name for c in to)}",
                "name all columns of the reference: { table, columns, to }",
            )
            raise _MissingName
        if not reference.to:
            self._require_no_other_parent(reference, table, columns, parent, to, entry)
        for mine, theirs in zip(columns, to, strict=True):
            problem = self.types.reference(mine, theirs)
            if problem:
                self._error(entry, "wrong-reference", f"{reference}: {problem}")
        referring = [table, *(one for one in self.schema.descendants(table) if one.kind is not Kind.PARTITION)]
        enforced = all(_enforced(one, columns, parent, to) for one in referring)
        return BoundReference(reference.table, table, columns, to, enforced, len(referring) > 1)

    def _require_no_other_parent(
        self,
        reference: Reference,
        table: TableInfo,
        columns: tuple[Column, ...],
        parent: TableInfo,
        to: tuple[Column, ...],
        entry: str,
    ) -> None:
        """Refuse columns that a foreign key declares to hold keys of another table: equal numbers prove nothing."""
        found = _referred(self.schema, table, (column.name for column in columns))
        shared = _referred(self.schema, parent, (column.name for column in to))
        if found and not found & {parent.qualified, *parent.ancestors, *shared}:
            others = " and ".join(sorted(name for _, name in found))
            self._error(
                entry,
                "wrong-reference",
                f"{reference} refers to {others} by a foreign key, not to {parent.name}",
                f"name a column that refers to {parent.name}, or let it follow {others}, inside its entry: `with`;"
                f" if its values are keys of {parent.name} too, confirm it: {{ table, columns, to }}",
            )
            raise _MissingName

    def _follower(self, follower: Follower, parent: TableInfo, key: tuple[Column, ...]) -> BoundFollower:
        entry = f"rule.{self.rule.name}.with"
        reference = self._reference(follower.reference, parent, key, entry)
        if not self._unique(parent, reference.to):
            self._error(
                entry,
                "wrong-reference",
                f"{follower.reference} points at {', '.join(c.name for c in reference.to)}, which is not unique in"
                f" {parent.name}: rows would leave with one row while another still has them",
                "point at a unique key: { table, columns, to }",
            )
        own_key = tuple(column for name in reference.table.primary_key if (column := reference.table.column(name)))
        where = self._where(follower.where, reference.table, entry)
        inner = tuple(self._follower(one, reference.table, own_key) for one in follower.followers)
        descendants = self.schema.descendants(reference.table)
        has_delete_triggers = any(one.delete_triggers for one in (reference.table, *descendants))
        inherited = bool(descendants) and reference.table.kind is Kind.TABLE
        live = self._live(follower, reference.table)
        return BoundFollower(reference, where, inner, has_delete_triggers, inherited, follower.live_leaves, live)

    def _where(self, conditions: Conditions, table: TableInfo, entry: str) -> tuple[BoundCondition, ...]:
        return tuple(self._condition(table, name, condition, entry) for name, condition in conditions)

    def _condition(self, table: TableInfo, name: str, condition: Condition, entry: str) -> BoundCondition:
        column = self._column(table, name, entry)
        comparisons = []
        for one in condition.comparisons:
            other = None if one.column is None else self._column(table, one.column, entry)
            problems = [self.types.constant(column, value, one.sign) for value in one.values]
            problems += [] if other is None else [self.types.columns(column, other, one.sign)]
            for problem in filter(None, problems):
                self._error(entry, "wrong-value-type", problem)
            comparisons.append(BoundComparison(one.sign, one.values, other))
        return BoundCondition(column, tuple(comparisons), condition.null)

    def _live(self, follower: Follower, table: TableInfo) -> tuple[Column, tuple[State, ...]] | None:
        """Return the live states of a follower's own table, unless the contract lets such rows leave too."""
        found = (one for one in self.contract.tables if self.schema.find(one.name.schema, one.name.name) is table)
        declared = next(found, None)
        if follower.live_leaves or declared is None or declared.state is None or not declared.live:
            return None
        entry = f"rule.{self.rule.name}.with"
        column = self._column(table, declared.state, entry)
        for state in declared.live:
            problem = self.types.state(column, state)
            if problem:
                self._error(entry, "wrong-state-type", problem)
        return column, declared.live


def _dependencies(selection: Selection, schema: Schema) -> Dependencies:
    tables = losing(selection)
    stamps = {part.stamp for table in tables for part in (table, *schema.descendants(table)) if part.stamp is not None}
    effects = {effect for table in tables for effect in _effects(table, schema)}
    return Dependencies(schema.version, frozenset(stamps), frozenset(effects))


def _effects(table: TableInfo, schema: Schema) -> Iterator[str]:
    """Describe what the database does when rows of a table are deleted, in the form of
    `wane._rules.dependencies_postgres`."""
    descendants = schema.descendants(table)
    parts = {part.qualified for part in (table, *descendants)}
    for child in schema.tables:
        for key in child.foreign_keys:
            if key.enforced and (key.to_schema, key.to_table) in parts:
                yield (
                    f"foreign key {key.name} of {child.schema}.{child.name} ({', '.join(key.columns)}) to"
                    f" {key.to_schema}.{key.to_table} ({', '.join(key.to_columns)}) ON DELETE {key.on_delete}"
                )
    for part in (table, *descendants):
        yield from (f"trigger {trigger.name} on {part.schema}.{part.name}" for trigger in part.delete_triggers)
    if table.kind is Kind.TABLE:
        yield from (
            f"descendant {descendant.schema}.{descendant.name} of {table.schema}.{table.name}"
            for descendant in descendants
        )


def _same(collation: str | None, other: str | None) -> bool:
    return (collation or "").upper() == (other or "").upper()


def _enforced(child: TableInfo, columns: tuple[Column, ...], parent: TableInfo, to: tuple[Column, ...]) -> bool:
    wanted = {(mine.name, theirs.name) for mine, theirs in zip(columns, to, strict=True)}
    return any(
        key.locks_parent
        and (key.to_schema, key.to_table) == parent.qualified
        and set(zip(key.columns, key.to_columns, strict=False)) == wanted
        for key in child.foreign_keys
    )


def _referred(schema: Schema, table: TableInfo, columns: Iterable[str]) -> set[tuple[str, str]]:
    """Return every table whose keys these columns hold by foreign keys: also by those that are on such a key itself."""
    names = {name.casefold() for name in columns}
    found: set[tuple[str, str]] = set()
    ahead = [key for key in table.foreign_keys if {name.casefold() for name in key.columns} == names]
    while ahead:
        key = ahead.pop()
        target = schema.find(key.to_schema, key.to_table)
        if target is not None and target.qualified not in found:
            found |= {target.qualified, *target.ancestors}
            names = {name.casefold() for name in key.to_columns}
            ahead += [one for one in target.foreign_keys if {name.casefold() for name in one.columns} == names]
    return found


def follower_paths(selection: Selection) -> list[tuple[BoundFollower, ...]]:
    """Return the path to every follower, the deepest first, so that no reference is ever left without its row."""
    paths: list[tuple[BoundFollower, ...]] = []

    def visit(above: tuple[BoundFollower, ...], follower: BoundFollower) -> None:
        for inner in follower.followers:
            visit((*above, follower), inner)
        paths.append((*above, follower))

    for follower in selection.followers:
        visit((), follower)
    return paths


def locked_paths(selection: Selection) -> list[tuple[BoundFollower, ...]]:
    """Return the path to every follower whose rows must not change while their row leaves, the outermost first.

    Those are the ones that have followers of their own, and those that retain their row while they are live.
    """
    return sorted((path for path in follower_paths(selection) if path[-1].followers or path[-1].live), key=len)


def losing(selection: Selection) -> list[TableInfo]:
    """Return the tables that lose rows under a rule: its own, and those of its followers."""
    return [selection.table, *(path[-1].reference.table for path in follower_paths(selection))]


def schema_changed(selection: Selection, what: str) -> SchemaChanged:
    """Build the error of tables that are no longer as they were when a rule was bound to them."""
    return SchemaChanged(
        f"{selection.label}: the schema changed while its rows left: {what}",
        "nothing was taken; commit what changes the schema first, then try again",
    )
