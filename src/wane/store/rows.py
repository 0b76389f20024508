"""Statement shapes over users' tables, the same on both stores; a dialect fills in what differs.

Everything that decides whether a row is due is written by `Rows.due`, once. Counting, listing and deleting all use it, so what
`plan` shows is what `prune` takes, and the statement that deletes repeats the whole of it.

Identifiers are quoted by the dialect's one function; values are bound, never written into the text. The row's table is always
called `t`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from wane.contract.model import Age, Cap, Expiry, Mark, Orphans, Rule, State, Time
from wane.store.moments import LATEST
from wane.store.schema import Column, TableInfo
from wane.store.selection import BoundFollower, BoundReference, Selection


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement's exact text and the values bound to it."""

    text: str
    parameters: dict[str, object]


class Parameters:
    """Collects the values of one statement and hands out their placeholders."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.values: dict[str, object] = {}

    def bind(self, name: str, value: object) -> str:
        """The placeholder for a value; the same value under the same name is bound once."""
        unique, number = name, 2
        # True equals 1, and a list of one the list of the other; a database knows the difference.
        while unique in self.values and repr(self.values[unique]) != repr(value):
            unique, number = f"{name}_{number}", number + 1
        self.values[unique] = value
        return self.dialect.placeholder(unique)

    def statement(self, text: str) -> Statement:
        return Statement(text, dict(self.values))


class Dialect(ABC):
    """What differs between the stores when they speak of users' rows."""

    @staticmethod
    def quote(name: str) -> str:
        """The one place where an identifier becomes SQL."""
        return '"' + name.replace('"', '""') + '"'

    def table(self, table: TableInfo) -> str:
        return f"{self.quote(table.schema)}.{self.quote(table.name)}"

    @abstractmethod
    def placeholder(self, name: str) -> str:
        """How a bound value is written."""

    @abstractmethod
    def order(self, alias: str, column: Column, time: Time) -> str:
        """The expression that orders rows by time, as an index on the column does. Texts with different lengths of fraction may
        stand in another order than the moments they mean, inside one second."""

    @abstractmethod
    def exact(self, alias: str, column: Column, time: Time) -> str:
        """The expression that orders plausible values exactly like the moments they mean."""

    @abstractmethod
    def plausible(self, p: Parameters, alias: str, column: Column, time: Time) -> list[str]:
        """Conditions under which the column's value is a moment, written as declared."""

    @abstractmethod
    def before(
        self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime, *, inclusive: bool
    ) -> list[str]:
        """Conditions under which a plausible value means a moment before the given one (inclusive: or at it)."""

    @abstractmethod
    def one_of(self, p: Parameters, name: str, expression: str, column: Column, states: Sequence[State]) -> str:
        """The condition that a column holds one of some values."""

    @abstractmethod
    def bytewise(self, expression: str, column: Column) -> str:
        """A column's value, compared by its bytes where the column itself would compare more loosely."""

    @abstractmethod
    def same(self, left: str, right: str) -> str:
        """The condition that two values are equal, or both NULL."""


def cutoff(rule: Rule, now: datetime) -> datetime | None:
    """The instant that decides: rows go if strictly before it, or, for an expiry, at or before it. A cap has none."""
    if isinstance(rule.bound, Age | Orphans):
        return now - rule.bound.keep
    return now if isinstance(rule.bound, Expiry) else None


def index_name(table: TableInfo, columns: Sequence[Column]) -> str:
    """A name for an index that is proposed to people."""
    name = "_".join([table.name, *(column.name for column in columns)])
    return re.sub(r"\W+", "_", name)[:60] + "_idx"


class Rows:
    """Writes statements about the rows that a rule selects."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def parameters(self) -> Parameters:
        return Parameters(self.dialect)

    def column(self, column: Column, alias: str = "t") -> str:
        return f"{alias}.{self.dialect.quote(column.name)}"

    def columns(self, columns: Sequence[Column], alias: str = "t") -> str:
        return ", ".join(self.column(column, alias) for column in columns)

    def row(self, expressions: Sequence[str]) -> str:
        """A row value; a single one needs no brackets, and SQLite's planner likes it better without."""
        return expressions[0] if len(expressions) == 1 else f"({', '.join(expressions)})"

    def due(
        self, p: Parameters, selection: Selection, now: datetime, states: Sequence[State] | None = None
    ) -> list[str]:
        """Every condition for a row to be due, guards included. `states` narrows to some of the rule's states."""
        rule = selection.rule
        conditions: list[str] = []
        if rule.states:
            assert selection.state is not None
            wanted = rule.states if states is None else states
            conditions.append(self.dialect.one_of(p, "state", self.column(selection.state), selection.state, wanted))
        if selection.orphan is not None:
            conditions.append(f"{self.column(selection.orphan)} IS NULL")
        conditions += self._identified(selection, "t")
        conditions += self.dialect.plausible(p, "t", selection.time_column, selection.time)
        conditions += self._bound(p, selection, now)
        conditions += self._column_guards(selection)
        # A scalar probe stops at the first row that refers; NOT EXISTS made the planner join the whole child table.
        conditions += [
            f"(SELECT 1 FROM {self.dialect.table(guard.table)} AS g WHERE {self.refers(guard, 'g', 't')} LIMIT 1) IS NULL"
            for guard in selection.saved_by
        ]
        return conditions

    def _identified(self, selection: Selection, alias: str) -> list[str]:
        """A key that is NULL identifies no row: SQLite's primary keys may be, and unique keys of both stores."""
        return [f"{self.column(column, alias)} IS NOT NULL" for column in selection.key if column.nullable]

    def _column_guards(self, selection: Selection) -> list[str]:
        return [
            *(f"{self.column(column)} IS NOT NULL" for column in selection.saved_while_null),
            *(f"{self.column(column)} IS NULL" for column in selection.saved_while_not_null),
        ]

    def _bound(self, p: Parameters, selection: Selection, now: datetime) -> list[str]:
        bound = selection.rule.bound
        if isinstance(bound, Cap):
            return [self._beyond_cap(p, selection, bound)]
        moment = cutoff(selection.rule, now)
        assert moment is not None
        inclusive = isinstance(bound, Expiry)
        return self.dialect.before(p, "t", selection.time_column, selection.time, moment, inclusive=inclusive)

    def _beyond_cap(self, p: Parameters, selection: Selection, bound: Cap) -> str:
        """At or below the first row that the cap has no room for. By position, never by count: two pruners agree on it."""
        if selection.per:
            return self._beyond_scoped_cap(p, selection, bound)
        table, most = self.dialect.table(selection.table), p.bind("most", bound.most)
        place, room = self._place(selection, "n"), self._room(p, selection)
        walked = self.dialect.order("n", selection.time_column, selection.time)
        if walked != place[0]:
            # The exact place is no index's order. An index does find the second it is in, and only from there on all are sorted.
            second = f"SELECT substr({walked}, 1, 19) FROM {table} AS n WHERE {room} ORDER BY {walked} DESC"
            room += f" AND {walked} >= ({second} LIMIT 1 OFFSET {most})"
        return (
            f"{self.row(self._place(selection, 't'))} <= (SELECT {', '.join(place)} FROM {table} AS n WHERE {room}"
            f" ORDER BY {', '.join(f'{one} DESC' for one in place)} LIMIT 1 OFFSET {most})"
        )

    def _beyond_scoped_cap(self, p: Parameters, selection: Selection, bound: Cap) -> str:
        quote = self.dialect.quote
        descending = ", ".join(f"{one} DESC" for one in self._place(selection, "n"))
        scope = ", ".join(self.dialect.bytewise(self.column(column, "n"), column) for column in selection.per)
        keys = ", ".join(quote(column.name) for column in selection.key)
        return (
            f"{self.row([self.column(column) for column in selection.key])} IN (SELECT {keys} FROM"
            f" (SELECT {self.columns(selection.key, 'n')}, row_number() OVER"
            f" (PARTITION BY {scope} ORDER BY {descending}) AS wane_rank"
            f" FROM {self.dialect.table(selection.table)} AS n WHERE {self._room(p, selection)}) AS ranked"
            f" WHERE wane_rank > {p.bind('most', bound.most)})"
        )

    def _room(self, p: Parameters, selection: Selection) -> str:
        """Which rows take a place in a cap: those with a key and a moment. A moment that never comes would hold one forever."""
        time, column = selection.time, selection.time_column
        conditions = [
            *self._identified(selection, "n"),
            *self.dialect.plausible(p, "n", column, time),
            *self.dialect.before(p, "n", column, time, LATEST, inclusive=False),
        ]
        return " AND ".join(conditions)

    def _place(self, selection: Selection, alias: str) -> list[str]:
        """Where a row stands in a cap: like `position`, but exact where texts order otherwise."""
        time = self.dialect.exact(alias, selection.time_column, selection.time)
        return [time, *self.position(selection, alias)[1:]]

    def position(self, selection: Selection, alias: str) -> list[str]:
        """(time, key): where a row stands among the others, oldest first."""
        time = self.dialect.order(alias, selection.time_column, selection.time)
        return [time, *(self.column(c, alias) for c in selection.key if c.name != selection.time_column.name)]

    def refers(self, reference: BoundReference, child: str, parent: str) -> str:
        pairs = zip(reference.columns, reference.to, strict=True)
        # The parent stands left: SQLite then compares by the parent's collation, as its foreign keys do.
        return " AND ".join(f"{self.column(theirs, parent)} = {self.column(mine, child)}" for mine, theirs in pairs)

    # Reading

    def count_due(self, selection: Selection, now: datetime) -> Statement:
        p = self.parameters()
        where = " AND ".join(self.due(p, selection, now))
        return p.statement(f"SELECT count(*) FROM {self.dialect.table(selection.table)} AS t WHERE {where}")

    def count_never_due(self, selection: Selection, limit: int) -> Statement:
        """Rows in the rule's states whose time is missing or not a plausible moment."""
        p = self.parameters()
        conditions = []
        if selection.rule.states and selection.state is not None:
            states = selection.rule.states
            conditions.append(self.dialect.one_of(p, "state", self.column(selection.state), selection.state, states))
        conditions += self._column_guards(selection)
        plausible = " AND ".join(self.dialect.plausible(p, "t", selection.time_column, selection.time))
        conditions.append(f"({self.column(selection.time_column)} IS NULL OR NOT ({plausible}))")
        source = f"{self.dialect.table(selection.table)} AS t WHERE {' AND '.join(conditions)}"
        return p.statement(f"SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT {p.bind('n', limit)}) AS stuck")

    def keys_due(self, selection: Selection, now: datetime, limit: int) -> Statement:
        """The keys of the oldest due rows, oldest first."""
        p = self.parameters()
        return p.statement(f"{self._oldest(p, selection, now, limit)}")

    def edge_due(self, selection: Selection, now: datetime, *, newest: bool) -> Statement:
        """The time of the oldest or newest due row: one probe per state, because a probe over several states would sort them all."""
        p = self.parameters()
        direction = "DESC" if newest else "ASC"
        time = self.dialect.order("t", selection.time_column, selection.time)
        probes = []
        for number, states in enumerate(self._one_state_each(selection)):
            where = " AND ".join(self.due(p, selection, now, states))
            probe = (
                f"SELECT {self.column(selection.time_column)} AS moment FROM {self.dialect.table(selection.table)} AS t"
            )
            probes.append(
                f"SELECT moment FROM ({probe} WHERE {where} ORDER BY {time} {direction} LIMIT 1) AS p{number}"
            )
        return p.statement(f"SELECT moment FROM ({' UNION ALL '.join(probes)}) AS edges")

    def count_followers(self, selection: Selection, follower: BoundFollower, now: datetime) -> Statement:
        """How many rows of a direct follower refer to due rows."""
        p = self.parameters()
        where = " AND ".join(self.due(p, selection, now))
        mine = self.row([self.column(column, "f") for column in follower.reference.columns])
        theirs = self.columns(follower.reference.to)
        conditions = [f"{mine} IN (SELECT {theirs} FROM {self.dialect.table(selection.table)} AS t WHERE {where})"]
        conditions += self.fixed(p, follower, "f")
        return p.statement(
            f"SELECT count(*) FROM {self.dialect.table(follower.reference.table)} AS f WHERE {' AND '.join(conditions)}"
        )

    def fixed(self, p: Parameters, follower: BoundFollower, alias: str) -> list[str]:
        return [
            self.dialect.one_of(p, "where", self.column(column, alias), column, [value])
            for column, value in follower.where
        ]

    def _one_state_each(self, selection: Selection) -> list[list[State] | None]:
        return [[state] for state in selection.rule.states] or [None]

    def _oldest(self, p: Parameters, selection: Selection, now: datetime, limit: int) -> str:
        """The oldest due rows, each state walked along its own index range and then merged."""
        n = p.bind("n", limit)
        ascending = ", ".join(self.position(selection, "t"))
        keys = [f"{self.column(column)} AS k{number}" for number, column in enumerate(selection.key)]
        time = self.dialect.order("t", selection.time_column, selection.time)
        parts = []
        for number, states in enumerate(self._one_state_each(selection)):
            where = " AND ".join(self.due(p, selection, now, states))
            source = f"{self.dialect.table(selection.table)} AS t WHERE {where} ORDER BY {ascending} LIMIT {n}"
            parts.append(f"SELECT * FROM (SELECT {', '.join(keys)}, {time} AS moment FROM {source}) AS s{number}")
        merged = ", ".join(
            [
                "moment",
                *(f"k{i}" for i, column in enumerate(selection.key) if column.name != selection.time_column.name),
            ]
        )
        outputs = ", ".join(f"k{number}" for number in range(len(selection.key)))
        return f"SELECT {outputs} FROM ({' UNION ALL '.join(parts)}) AS oldest ORDER BY {merged} LIMIT {n}"

    # Deleting

    def prune(self, selection: Selection, now: datetime, limit: int) -> Statement:
        """One batch: the oldest due rows go, with everything that makes them due checked again on the row that goes."""
        p = self.parameters()
        keys = self.row([self.column(column) for column in selection.key])
        where = " AND ".join(self.due(p, selection, now))
        table = self.dialect.table(selection.table)
        oldest = self._oldest(p, selection, now, limit)
        action = selection.rule.action
        if isinstance(action, Mark):
            assert selection.state is not None
            mark = p.bind("mark", action.state)
            verb = f"UPDATE {table} AS t SET {self.dialect.quote(selection.state.name)} = {mark}"
        else:
            verb = f"DELETE FROM {table} AS t"
        return p.statement(f"{verb}\nWHERE {keys} IN ({oldest})\nAND {where}")
