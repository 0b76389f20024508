"""Statement shapes over users' tables, the same on both stores; a dialect fills in what differs.

Everything that decides whether a row is due is written by `Rows.due`, once. Counting, listing and deleting all use it, so what
`plan` shows is what `prune` takes, and the statement that deletes repeats the whole of it.

Identifiers are quoted by the dialect's one function; values are bound, never written into the text. The row's table is always
called `t`.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Any

from wane.contract.model import Age, Cap, Expiry, Mark, Orphans, Rule, State, Time
from wane.contract.names import join_name
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

    def __init__(self, dialect: Dialect, suffix: str = "") -> None:
        """Every name ends with the suffix: what several wrote can be put together then."""
        self.dialect = dialect
        self.values: dict[str, object] = {}
        self._suffix = suffix
        self._bound: dict[tuple[str, str], str] = {}
        self._numbers: dict[str, int] = {}

    def bind(self, name: str, value: object) -> str:
        """The placeholder for a value; the same value under the same name is bound once."""
        # True equals 1, and a list of one the list of the other; a database knows the difference.
        written = repr(value)
        unique = self._bound.get((name, written))
        # Whoever wrote another value in its place since meant that one.
        if unique is None or repr(self.values[unique]) != written:
            unique = self._unused(name)
            self._bound[name, written] = unique
            self.values[unique] = value
        return self.dialect.placeholder(unique)

    def _unused(self, name: str) -> str:
        number = self._numbers.get(name, 1)
        unique = f"{name}{self._suffix}" if number == 1 else f"{name}_{number}{self._suffix}"
        while unique in self.values:
            number += 1
            unique = f"{name}_{number}{self._suffix}"
        self._numbers[name] = number + 1
        return unique

    def statement(self, text: str) -> Statement:
        return Statement(text, dict(self.values))


class Dialect(ABC):
    """What differs between the stores when they speak of users' rows."""

    json_each: str = "json_each"
    """The function that lists the keys and values of a JSON object."""
    typed_keys = False
    """Whether keys that come back are compared like the columns they came from, so that those need not be read again."""

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
        """Conditions under which the column's value is a moment, written as declared; the last one is that it is no placeholder."""

    @abstractmethod
    def before(
        self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime, *, inclusive: bool
    ) -> list[str]:
        """Conditions under which a plausible value means a moment before the given one (inclusive: or at it)."""

    @abstractmethod
    def since(self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime) -> list[str]:
        """Conditions under which a value is plausible and means the given moment or a later one; texts are compared to the second.

        For counting, where an index must find the first of them: what is due is `before`'s to say.
        """

    @abstractmethod
    def one_of(self, p: Parameters, name: str, expression: str, column: Column, states: Sequence[State]) -> str:
        """The condition that a column holds one of some values."""

    @abstractmethod
    def bytewise(self, expression: str, column: Column) -> str:
        """A column's value, compared by its bytes where the column itself would compare more loosely."""

    @abstractmethod
    def equal(self, p: Parameters, name: str, expression: str, column: Column, value: object) -> str:
        """The condition that a column holds a value, or is NULL if the value is None; an index on the column serves it."""

    def count_up_to(self, table: TableInfo, most: str, *, alone: bool) -> str:
        """A query that counts the rows of a table, up to a number that is bound or written. `alone`: nothing inherits from it."""
        del alone
        return f"SELECT count(*) FROM (SELECT 1 FROM {self.table(table)} LIMIT {most}) AS some_rows"

    @abstractmethod
    def none(self, query: str) -> str:
        """The condition that a query finds nothing, asked row by row and answered by the first row that it finds."""

    @abstractmethod
    def compared(self, expression: str, column: Column, to: Column) -> list[str]:
        """A column that refers to another one, in every way in which it must be found among that one's values."""

    @abstractmethod
    def identity(self, follower: BoundFollower) -> list[str]:
        """Columns, quoted, that tell any two rows of a follower apart: its key, or what the store itself knows rows by."""

    @abstractmethod
    def assign(self, p: Parameters, column: Column, value: object) -> str:
        """A bound value of a column's type, to be written to it."""

    # Keys on their way through the client

    @abstractmethod
    def out(self, expression: str) -> str:
        """A value as it is read, so that `back` means the same value again."""

    @abstractmethod
    def back(self, p: Parameters, name: str, column: Column, value: object) -> str:
        """A value that was read by `out`, bound again."""

    @abstractmethod
    def keys(self, p: Parameters, columns: Sequence[Column], keys: Sequence[tuple[Any, ...]]) -> str:
        """Keys that were read by `out`, as a query that gives them again."""

    @abstractmethod
    def recheck(self, conditions: Sequence[str]) -> str:
        """Conditions on rows that are found by their keys: checked on each, and no way to find them."""

    # Wane's own tables

    @abstractmethod
    def own(self, name: str) -> str:
        """One of Wane's own tables."""

    @abstractmethod
    def key_text(self, columns: Sequence[Column], alias: str) -> str:
        """A row's key as one text, as holds write it: equal for the same row only."""

    @abstractmethod
    def in_force(self, hold: str) -> str:
        """The condition that a hold is in force, by the database's clock."""

    @abstractmethod
    def json(self, placeholder: str) -> str:
        """A bound JSON text."""

    @abstractmethod
    def json_count(self, column: str, key: str) -> str:
        """The number that a column of JSON holds under a key; NULL if it holds none."""

    @abstractmethod
    def stamp(self, moment: datetime) -> object:
        """A moment as Wane's own tables write it."""

    @abstractmethod
    def moment(self, stamp: Any) -> datetime:
        """A moment as Wane's own tables wrote it."""


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
        self.with_holds = False
        """Whether the database has Wane's own tables, so that holds can be asked for."""

    def parameters(self) -> Parameters:
        return Parameters(self.dialect)

    def without_holds(self) -> Rows:
        """The same, where it is known that nothing is held."""
        return Rows(self.dialect)

    def before(
        self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime, *, inclusive: bool
    ) -> list[str]:
        """Conditions under which a plausible value means a moment before the given one (inclusive: or at it)."""
        return self.dialect.before(p, alias, column, time, moment, inclusive=inclusive)

    def since(self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime) -> list[str]:
        """Conditions under which a value is plausible and means the given moment or a later one."""
        return self.dialect.since(p, alias, column, time, moment)

    def column(self, column: Column, alias: str = "t") -> str:
        return f"{alias}.{self.dialect.quote(column.name)}"

    def columns(self, columns: Sequence[Column], alias: str = "t") -> str:
        return ", ".join(self.column(column, alias) for column in columns)

    def row(self, expressions: Sequence[str]) -> str:
        """A row value; a single one needs no brackets, and SQLite's planner likes it better without."""
        return expressions[0] if len(expressions) == 1 else f"({', '.join(expressions)})"

    def due(
        self,
        p: Parameters,
        selection: Selection,
        now: datetime,
        states: Sequence[State] | None = None,
        *,
        held: bool = True,
        floored: bool = False,
        ended: bool = False,
    ) -> list[str]:
        """Every condition for a row to be due, guards included. `states` narrows to some of the rule's states.

        Without `held`, nothing is due as soon as anything is held: cheaper, where it is known that nothing is. `floored` and `ended`
        say that a narrower bound on the time stands beside these conditions, by which rows are to be found instead.
        """
        rule = selection.rule
        conditions: list[str] = []
        if rule.states:
            assert selection.state is not None
            wanted = rule.states if states is None else states
            conditions.append(self.dialect.one_of(p, "state", self.column(selection.state), selection.state, wanted))
        if selection.orphan is not None:
            conditions.append(f"{self.column(selection.orphan)} IS NULL")
        conditions += self._scope(p, selection, "t")
        conditions += self._identified(selection, "t")
        plausible = self.dialect.plausible(p, "t", selection.time_column, selection.time)
        conditions += [self.dialect.recheck(plausible)] if floored else plausible
        bound = self._bound(p, selection, now)
        conditions += [self.dialect.recheck(bound)] if ended else bound
        conditions += self._column_guards(selection)
        conditions += [
            self.dialect.none(
                f"SELECT 1 FROM {self.dialect.table(guard.table)} AS g WHERE {self.refers(guard, 'g', 't')}"
            )
            for guard in selection.saved_by
        ]
        if self.with_holds:
            conditions += self._not_held(p, selection) if held else self._nothing_held(p, selection)
        return conditions

    def _active_hold(self, p: Parameters, table: TableInfo) -> tuple[str, str]:
        """Where holds are, and the condition that one is on the table or a row of it, and in force."""
        active = f"h.table_name = {p.bind('held', qualified(table))} AND {self.dialect.in_force('h')}"
        return f"{self.dialect.own('hold')} AS h", active

    def _nothing_held(self, p: Parameters, selection: Selection) -> list[str]:
        """Nobody holds anything of the tables that lose rows. Answered once for the whole statement."""
        holds = [self._active_hold(p, table) for table in losing(selection)]
        return [f"NOT EXISTS (SELECT 1 FROM {hold} WHERE {active})" for hold, active in holds]

    def held_tables(self) -> Statement:
        """The tables of which somebody holds anything, by their full names."""
        return Statement(
            f"SELECT DISTINCT h.table_name FROM {self.dialect.own('hold')} AS h WHERE {self.dialect.in_force('h')}", {}
        )

    def anything_held(self, selection: Selection) -> Statement:
        """A row if somebody holds anything of the tables that lose rows."""
        p = self.parameters()
        return p.statement(f"SELECT 1 WHERE NOT ({' AND '.join(self._nothing_held(p, selection))})")

    def unheld(self, p: Parameters, selection: Selection) -> list[str]:
        """The conditions that nobody holds the row, its table, or a row that would leave with it."""
        return self._not_held(p, selection) if self.with_holds else []

    def _not_held(self, p: Parameters, selection: Selection) -> list[str]:
        """Nobody holds the row, its table, or a row that would leave with it.

        The first half is answered once for the whole statement, so holds cost little where there are none.
        """
        conditions = []
        for path in ((), *follower_paths(selection)):
            table = path[-1].reference.table if path else selection.table
            hold, active = self._active_hold(p, table)
            last = f"f{len(path) - 1}" if path else "t"
            # Holds name rows by the table's own key, whatever key the contract chose.
            keys = [self.dialect.key_text(key, last) for key in _hold_keys(table)]
            mine = " OR ".join(["h.key IS NULL", *(f"h.key = {key}" for key in keys)])
            mine = f"({mine})" if keys else mine
            source, links = self.chain(p, path, "t")
            tables = ", ".join(part for part in (hold, source) if part)
            where = " AND ".join(part for part in (active, mine, links) if part)
            conditions.append(
                f"(NOT EXISTS (SELECT 1 FROM {hold} WHERE {active}) OR NOT EXISTS (SELECT 1 FROM {tables} WHERE {where}))"
            )
        return conditions

    def _scope(self, p: Parameters, selection: Selection, alias: str) -> list[str]:
        return [
            self.dialect.equal(p, "scope", self.column(column, alias), column, value)
            for column, value in zip(selection.per, selection.scope or (), strict=False)
        ]

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
        return self.before(p, "t", selection.time_column, selection.time, moment, inclusive=inclusive)

    def _beyond_cap(self, p: Parameters, selection: Selection, bound: Cap) -> str:
        """At or below the first row that the cap has no room for. By position, never by count: two pruners agree on it."""
        if selection.per and selection.scope is None:
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
            *self._scope(p, selection, "n"),
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
        return p.statement(self.oldest(p, selection, now, limit, outputs=self.keys(selection)))

    def count_some_due(self, selection: Selection, now: datetime, limit: int) -> Statement:
        """How many rows are due; beyond the limit nobody looks."""
        p = self.parameters()
        some = self.oldest(p, selection, now, limit, outputs=self.keys(selection))
        return p.statement(f"SELECT count(*) FROM ({some}) AS some_due")

    def edge_due(self, selection: Selection, now: datetime, *, newest: bool) -> Statement:
        """The time of the oldest or newest due row: one probe per state, because a probe over several states would sort them all."""
        p = self.parameters()
        probes = self.edge_probes(p, selection, now, newest=newest)
        return p.statement(f"SELECT moment FROM ({' UNION ALL '.join(probes)}) AS edges")

    def edge_probes(self, p: Parameters, selection: Selection, now: datetime, *, newest: bool) -> list[str]:
        """The probes that `edge_due` puts together."""
        direction = "DESC" if newest else "ASC"
        time = self.dialect.order("t", selection.time_column, selection.time)
        probes = []
        for number, states in enumerate(self.one_state_each(selection)):
            where = " AND ".join(self.due(p, selection, now, states))
            probe = (
                f"SELECT {self.column(selection.time_column)} AS moment FROM {self.dialect.table(selection.table)} AS t"
            )
            probes.append(
                f"SELECT moment FROM ({probe} WHERE {where} ORDER BY {time} {direction} LIMIT 1) AS p{number}"
            )
        return probes

    def count_followers(self, selection: Selection, path: Sequence[BoundFollower], now: datetime) -> Statement:
        """How many rows at the end of a path of followers would leave with due rows."""
        p = self.parameters()
        leaving = self._pointed_at(selection, path, " AND ".join(self.due(p, selection, now)))
        return p.statement(f"SELECT count(*) FROM {self._following(p, path, leaving)}")

    def _pointed_at(self, selection: Selection, path: Sequence[BoundFollower], where: str) -> str:
        """What the first follower of a path points at, of the rows that a condition names."""
        to = self.columns(path[0].reference.to, "t")
        return f"SELECT {to} FROM {self.dialect.table(selection.table)} AS t WHERE {where}"

    def _followers_of(
        self, p: Parameters, selection: Selection, path: Sequence[BoundFollower], keys: Sequence[tuple[Any, ...]]
    ) -> str:
        """The table at the end of a path of followers, and the condition that a row of it follows rows with these keys."""
        if self.dialect.typed_keys and path[0].reference.to == selection.key:
            return self._following(p, path, self.dialect.keys(p, selection.key, keys))
        return self._following(p, path, self._pointed_at(selection, path, self.among(p, selection, keys)))

    def _following(self, p: Parameters, path: Sequence[BoundFollower], leaving: str) -> str:
        """The table at the end of a path of followers, and the condition that a row of it follows what leaves."""
        source = ""
        for number, follower in enumerate(path):
            reference, alias = follower.reference, f"f{number}"
            where = [*self._refers_among(reference, alias, leaving), *self.fixed(p, follower, alias)]
            source = f"{self.dialect.table(reference.table)} AS {alias} WHERE {' AND '.join(where)}"
            if number + 1 < len(path):
                leaving = f"SELECT {self.columns(path[number + 1].reference.to, alias)} FROM {source}"
        return source

    def _refers_among(self, reference: BoundReference, alias: str, leaving: str) -> list[str]:
        ways = product(
            *(
                self.dialect.compared(self.column(mine, alias), mine, theirs)
                for mine, theirs in zip(reference.columns, reference.to, strict=True)
            )
        )
        return [f"{self.row(way)} IN ({leaving})" for way in ways]

    def fixed(self, p: Parameters, follower: BoundFollower, alias: str) -> list[str]:
        return [
            self.dialect.one_of(p, "where", self.column(column, alias), column, [value])
            for column, value in follower.where
        ]

    def one_state_each(self, selection: Selection) -> list[list[State] | None]:
        return [[state] for state in selection.rule.states] or [None]

    def places(self, selection: Selection) -> list[str]:
        """What `oldest` calls a row's position."""
        names = [f"k{i}" for i, column in enumerate(selection.key) if column.name != selection.time_column.name]
        return ["moment", *names]

    def place_columns(self, selection: Selection) -> list[Column]:
        """The columns behind `places`."""
        return [selection.time_column, *(c for c in selection.key if c.name != selection.time_column.name)]

    def behind(self, p: Parameters, selection: Selection, floor: Sequence[object] | None) -> list[str]:
        """Only rows behind a position: where the batch before ended."""
        return [] if floor is None else [self._beside(p, selection, ">", "floor", floor)]

    def up_to(self, p: Parameters, selection: Selection, ceiling: Sequence[object]) -> str:
        """Only rows at or before a position."""
        return self._beside(p, selection, "<=", "ceiling", ceiling)

    def _beside(self, p: Parameters, selection: Selection, sign: str, name: str, place: Sequence[object]) -> str:
        bound = [
            self.dialect.back(p, f"{name}_{number}", column, value)
            for number, (column, value) in enumerate(zip(self.place_columns(selection), place, strict=True))
        ]
        return f"{self.row(self.position(selection, 't'))} {sign} {self.row(bound)}"

    def keys(self, selection: Selection) -> list[str]:
        """What `oldest` calls a row's key."""
        return [f"k{number}" for number in range(len(selection.key))]

    def oldest(
        self,
        p: Parameters,
        selection: Selection,
        now: datetime,
        limit: int,
        floor: Sequence[object] | None = None,
        outputs: Sequence[str] = ("*",),
        *,
        held: bool = True,
    ) -> str:
        """The oldest due rows (k0, k1, …, moment), oldest first: each state walked along its own index range, then merged."""
        n = p.bind("n", limit)
        ascending = ", ".join(self.position(selection, "t"))
        keys = [f"{self.column(column)} AS k{number}" for number, column in enumerate(selection.key)]
        time = self.dialect.order("t", selection.time_column, selection.time)
        parts = []
        for number, states in enumerate(self.one_state_each(selection)):
            due = self.due(p, selection, now, states, held=held, floored=floor is not None)
            where = " AND ".join([*due, *self.behind(p, selection, floor)])
            source = f"{self.dialect.table(selection.table)} AS t WHERE {where} ORDER BY {ascending} LIMIT {n}"
            parts.append(f"SELECT * FROM (SELECT {', '.join(keys)}, {time} AS moment FROM {source}) AS s{number}")
        # Qualified, because an output may be called like the key that it shows as text.
        merged = ", ".join(f"oldest.{name}" for name in self.places(selection))
        union = " UNION ALL ".join(parts)
        return f"SELECT {', '.join(outputs)} FROM ({union}) AS oldest ORDER BY {merged} LIMIT {n}"

    # Taking

    def verb(self, p: Parameters, selection: Selection) -> str:
        """Delete the row, or mark it."""
        table, action = self.dialect.table(selection.table), selection.rule.action
        if not isinstance(action, Mark):
            return f"DELETE FROM {table} AS t"
        assert selection.state is not None
        mark = self.dialect.assign(p, selection.state, action.state)
        return f"UPDATE {table} AS t SET {self.dialect.quote(selection.state.name)} = {mark}"

    def candidates(
        self,
        selection: Selection,
        now: datetime,
        limit: int,
        floor: Sequence[object] | None = None,
        *,
        held: bool = True,
    ) -> Statement:
        """The keys of the oldest due rows and then their positions, to be handed back."""
        p = self.parameters()
        names = [*self.keys(selection), *self.places(selection)]
        outputs = [self.dialect.out(f"oldest.{name}") for name in names]
        return p.statement(self.oldest(p, selection, now, limit, floor, outputs, held=held))

    def among(self, p: Parameters, selection: Selection, keys: Sequence[tuple[Any, ...]], alias: str = "t") -> str:
        """The condition that a row is one of those with these keys."""
        key = self.row([self.column(column, alias) for column in selection.key])
        return f"{key} IN ({self.dialect.keys(p, selection.key, keys)})"

    def still_due(
        self, selection: Selection, now: datetime, keys: Sequence[tuple[Any, ...]], most: int, *, held: bool = True
    ) -> Statement:
        """Which of these rows are due, oldest first, each with the number of rows that would leave with it, counted up to `most` each."""
        p = self.parameters()
        where = f"{self.among(p, selection, keys)} AND {self.dialect.recheck(self.due(p, selection, now, held=held))}"
        counts = [self._count_with(p, selection, path, most) for path in follower_paths(selection)]
        outputs = [*(self.dialect.out(self.column(column)) for column in selection.key), " + ".join(["0", *counts])]
        return p.statement(
            f"SELECT {', '.join(outputs)} FROM {self.dialect.table(selection.table)} AS t WHERE {where}"
            f" ORDER BY {', '.join(self.position(selection, 't'))}"
        )

    def _count_with(self, p: Parameters, selection: Selection, path: Sequence[BoundFollower], most: int) -> str:
        source, where = self.chain(p, path, "t")
        return f"(SELECT count(*) FROM (SELECT 1 FROM {source} WHERE {where} LIMIT {p.bind('most', most)}) AS c)"

    def chain(self, p: Parameters, path: Sequence[BoundFollower], parent: str) -> tuple[str, str]:
        """The tables of a path of followers, and the conditions that link them to each other and to the parent."""
        tables = [f"{self.dialect.table(one.reference.table)} AS f{number}" for number, one in enumerate(path)]
        links = [
            self.refers(one.reference, f"f{number}", f"f{number - 1}" if number else parent)
            for number, one in enumerate(path)
        ]
        fixed = [text for number, one in enumerate(path) for text in self.fixed(p, one, f"f{number}")]
        return ", ".join(tables), " AND ".join([*links, *fixed])

    def delete_followers(
        self, selection: Selection, path: Sequence[BoundFollower], keys: Sequence[tuple[Any, ...]]
    ) -> Statement:
        """Delete every row of a follower that belongs to rows with these keys."""
        p = self.parameters()
        return p.statement(f"DELETE FROM {self._followers_of(p, selection, path, keys)}")

    def any_follower(
        self, selection: Selection, path: Sequence[BoundFollower], keys: Sequence[tuple[Any, ...]]
    ) -> Statement:
        """A row if anything of a follower belongs to rows with these keys."""
        p = self.parameters()
        return p.statement(f"SELECT 1 FROM {self._followers_of(p, selection, path, keys)} LIMIT 1")

    def delete_some_followers(
        self, selection: Selection, path: Sequence[BoundFollower], key: tuple[Any, ...], now: datetime, limit: int
    ) -> Statement:
        """Delete some rows of a follower that belong to one row, which is due and has too many to leave with it at once."""
        p = self.parameters()
        last = len(path) - 1
        table = path[-1].reference.table
        identity = self.dialect.identity(path[-1])
        source, links = self.chain(p, path, "t")
        due = self.dialect.recheck(self.due(p, selection, now))
        where = " AND ".join([links, self.among(p, selection, [key]), due])
        some = (
            f"SELECT {', '.join(f'f{last}.{name}' for name in identity)}"
            f" FROM {self.dialect.table(selection.table)} AS t, {source} WHERE {where} LIMIT {p.bind('some', limit)}"
        )
        mine = self.row([f"d.{name}" for name in identity])
        return p.statement(f"DELETE FROM {self.dialect.table(table)} AS d WHERE {mine} IN ({some})")

    def take_keys(
        self, selection: Selection, now: datetime, keys: Sequence[tuple[Any, ...]], *, held: bool = True
    ) -> Statement:
        """Take the rows with these keys, if they are still due."""
        p = self.parameters()
        verb = self.verb(p, selection)
        where = f"{self.among(p, selection, keys)} AND {self.dialect.recheck(self.due(p, selection, now, held=held))}"
        return p.statement(f"{verb} WHERE {where}")

    def take_oldest(self, selection: Selection, now: datetime, limit: int) -> Statement:
        """Take the oldest due rows in one statement, which finds them and sees nobody else's changes while it does."""
        p = self.parameters()
        verb = self.verb(p, selection)
        key = self.row([self.column(column) for column in selection.key])
        return p.statement(
            f"{verb} WHERE {key} IN ({self.oldest(p, selection, now, limit, outputs=self.keys(selection))})"
        )

    def end_of_batch(
        self, selection: Selection, now: datetime, limit: int, floor: Sequence[object] | None = None
    ) -> Statement:
        """The position of the last of the oldest due rows, so many of them; nothing if fewer are due, or if anything is held.

        SQLite merges the states along their index, row by row, if nothing stands between them and the order: no limit for each, and
        no output but the order itself.
        """
        p = self.parameters()
        position, places = self.position(selection, "t"), self.places(selection)
        named = ", ".join(f"{one} AS {name}" for one, name in zip(position, places, strict=True))
        parts = []
        for states in self.one_state_each(selection):
            due = self.due(p, selection, now, states, held=False, floored=floor is not None)
            where = [*due, *self.behind(p, selection, floor)]
            parts.append(f"SELECT {named} FROM {self.dialect.table(selection.table)} AS t WHERE {' AND '.join(where)}")
        order = ", ".join(places)
        outputs = ", ".join(self.dialect.out(f"last.{name}") for name in places)
        return p.statement(
            f"WITH last AS MATERIALIZED (SELECT {order} FROM ({' UNION ALL '.join(parts)}) AS oldest ORDER BY {order}"
            f" LIMIT 1 OFFSET {p.bind('n', limit - 1)}) SELECT {outputs} FROM last"
        )

    def take_up_to(
        self, selection: Selection, now: datetime, floor: Sequence[object] | None, end: Sequence[object] | None
    ) -> Statement:
        """Take every due row up to a position, which `end_of_batch` found; nothing if anything is held."""
        p = self.parameters()
        verb = self.verb(p, selection)
        floored, ended = floor is not None, end is not None
        due = self.due(p, selection, now, held=False, floored=floored, ended=ended)
        where = [*due, *self.behind(p, selection, floor)]
        if end is not None:
            where += self._up_to(p, selection, end)
        return p.statement(f"{verb} WHERE {' AND '.join(where)}")

    def _up_to(self, p: Parameters, selection: Selection, end: Sequence[object]) -> list[str]:
        time, *key = self.position(selection, "t")
        at, *keys = [
            self.dialect.back(p, f"end_{number}", column, value)
            for number, (column, value) in enumerate(zip(self.place_columns(selection), end, strict=True))
        ]
        return [f"{time} <= {at}", *([f"({time} < {at} OR {self.row(key)} <= {self.row(keys)})"] if key else [])]

    def take_range(
        self,
        selection: Selection,
        now: datetime,
        limit: int,
        floor: Sequence[object] | None = None,
        *,
        held: bool = True,
    ) -> Statement:
        """Take the oldest due rows in one statement: find where the batch ends, then take everything due up to there.

        Without `held`, nothing is taken as soon as anything is held.

        The whole predicate stands again where rows are taken, so a row that another transaction changed in the meantime is looked at
        anew. Returns the count and the position where the batch ended (NULLs if nothing is due).
        """
        p = self.parameters()
        places = self.places(selection)
        oldest = self.oldest(p, selection, now, limit, floor, held=held)
        descending = ", ".join(f"{name} DESC" for name in places)
        verb = self.verb(p, selection)
        end = f"{self.row(self.position(selection, 't'))} <= (SELECT {', '.join(places)} FROM last)"
        where = " AND ".join([*self.due(p, selection, now, held=held), *self.behind(p, selection, floor), end])
        outputs = ", ".join(self.dialect.out(f"last.{name}") for name in places)
        return p.statement(
            f"WITH last AS MATERIALIZED (SELECT {', '.join(places)} FROM ({oldest}) AS batch ORDER BY {descending} LIMIT 1),\n"
            f"gone AS ({verb} WHERE {where} RETURNING 1)\n"
            f"SELECT (SELECT count(*) FROM gone), {outputs} FROM (SELECT 1) AS one LEFT JOIN last ON true"
        )

    def remove(
        self, selection: Selection, key: Mapping[str, object], alive_at: datetime | None, live: Sequence[State] = ()
    ) -> Statement:
        """Delete one row by its key, unless it is held, and return it; with a moment, only if it expires after that and is in one
        of the live states, if there are any."""
        p = self.parameters()
        where = " AND ".join(self._removable(p, selection, key, alive_at, live))
        outputs = ", ".join(self.dialect.quote(column.name) for column in selection.table.columns)
        return p.statement(f"DELETE FROM {self.dialect.table(selection.table)} AS t WHERE {where} RETURNING {outputs}")

    def removable(
        self, selection: Selection, key: Mapping[str, object], alive_at: datetime | None, live: Sequence[State] = ()
    ) -> Statement:
        """The key, to be handed back, of the row that `remove` would delete."""
        p = self.parameters()
        where = " AND ".join(self._removable(p, selection, key, alive_at, live))
        outputs = ", ".join(self.dialect.out(self.column(column)) for column in selection.key)
        return p.statement(f"SELECT {outputs} FROM {self.dialect.table(selection.table)} AS t WHERE {where}")

    def _removable(
        self,
        p: Parameters,
        selection: Selection,
        key: Mapping[str, object],
        alive_at: datetime | None,
        live: Sequence[State],
    ) -> list[str]:
        conditions = [
            self.dialect.equal(p, f"k{number}", self.column(column), column, key[column.name])
            for number, column in enumerate(selection.key)
        ]
        if alive_at is not None:
            column, time = selection.time_column, selection.time
            expired = self.dialect.before(p, "t", column, time, alive_at, inclusive=True)
            conditions += [*self.dialect.plausible(p, "t", column, time), f"NOT ({' AND '.join(expired)})"]
            if live and selection.state is not None:
                conditions.append(self.dialect.one_of(p, "state", self.column(selection.state), selection.state, live))
        return conditions + self._not_held(p, selection)

    def key_text(self, table: TableInfo, columns: Sequence[Column], key: Mapping[str, object]) -> Statement:
        """The key of one row as holds write it; no row if there is no such row."""
        p = self.parameters()
        where = " AND ".join(
            self.dialect.equal(p, f"k{number}", self.column(column), column, key[column.name])
            for number, column in enumerate(columns)
        )
        return p.statement(
            f"SELECT {self.dialect.key_text(columns, 't')} FROM {self.dialect.table(table)} AS t WHERE {where}"
        )

    def scopes_beyond_cap(self, selection: Selection, limit: int) -> Statement:
        """The scopes that hold more rows than the cap allows."""
        assert isinstance(selection.rule.bound, Cap)
        p = self.parameters()
        scope = [self.dialect.bytewise(self.column(column, "n"), column) for column in selection.per]
        outputs = ", ".join(self.dialect.out(text) for text in scope)
        return p.statement(
            f"SELECT {outputs} FROM {self.dialect.table(selection.table)} AS n WHERE {self._room(p, selection)}"
            f" GROUP BY {', '.join(scope)} HAVING count(*) > {p.bind('most', selection.rule.bound.most)}"
            f" ORDER BY {', '.join(scope)} LIMIT {p.bind('limit', limit)}"
        )

    def scopes_due(self, selection: Selection, now: datetime, limit: int) -> Statement:
        """The scopes of which a row is due: exact, and slower than `scopes_beyond_cap`, which knows neither states nor holds."""
        p = self.parameters()
        scope = [self.dialect.bytewise(self.column(column), column) for column in selection.per]
        where = " AND ".join(self.due(p, selection, now))
        return p.statement(
            f"SELECT {', '.join(self.dialect.out(text) for text in scope)} FROM {self.dialect.table(selection.table)} AS t"
            f" WHERE {where} GROUP BY {', '.join(scope)} ORDER BY {', '.join(scope)} LIMIT {p.bind('limit', limit)}"
        )


def follower_paths(selection: Selection) -> list[tuple[BoundFollower, ...]]:
    """Every follower, as the way to it from the row; the deepest first, so that no reference is ever left without its row."""
    paths: list[tuple[BoundFollower, ...]] = []

    def visit(above: tuple[BoundFollower, ...], follower: BoundFollower) -> None:
        for inner in follower.followers:
            visit((*above, follower), inner)
        paths.append((*above, follower))

    for follower in selection.followers:
        visit((), follower)
    return paths


def losing(selection: Selection) -> list[TableInfo]:
    """The tables that lose rows under a rule: its own, and those of its followers."""
    return [selection.table, *(path[-1].reference.table for path in follower_paths(selection))]


def qualified(table: TableInfo) -> str:
    """A table's full name, as holds write it."""
    return join_name([table.schema, table.name])


def _hold_keys(table: TableInfo) -> list[list[Column]]:
    """The keys that a hold may know a row by: its own, and the whole primary key where that says more."""
    names = dict.fromkeys((table.row_key, table.primary_key))
    return [[column for name in key if (column := table.column(name)) is not None] for key in names if key]
