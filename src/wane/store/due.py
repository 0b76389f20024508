"""Which rows are due: every condition of a rule, written once for both stores.

Counting, listing and deleting all use `Due.due`, so what `plan` shows is what `prune` takes, and the statement that deletes repeats the
whole of it. The row's table is always called `t`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Self

from wane.contract.model import Age, Cap, Expiry, Orphans, Rule, State, Time
from wane.contract.names import join_name
from wane.store.moments import LATEST
from wane.store.schema import Column, TableInfo
from wane.store.selection import BoundFollower, BoundReference, Selection, follower_paths, losing
from wane.store.statement import Dialect, Parameters, Statement


def cutoff(rule: Rule, now: datetime) -> datetime | None:
    """The instant that decides: rows go if strictly before it, or, for an expiry, at or before it. A cap has none."""
    if isinstance(rule.bound, Age | Orphans):
        return now - rule.bound.keep
    return now if isinstance(rule.bound, Expiry) else None


class Due:
    """Writes the conditions under which rows are due."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.with_holds = False
        """Whether the database has Wane's own tables, so that holds can be asked for."""

    def parameters(self) -> Parameters:
        return Parameters(self.dialect)

    def without_holds(self) -> Self:
        """The same, where it is known that nothing is held."""
        return type(self)(self.dialect)

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

    def compare(self, columns: Sequence[Column], left: Sequence[str], sign: str, right: Sequence[str]) -> str:
        """Whether values of columns stand at or before others (`<=`), or behind them (`>`)."""
        if all(column.operators is None for column in columns):
            return f"{self.row(left)} {sign} {self.row(right)}"
        # Rows are compared by one operator for all of their columns.
        strict = sign.removesuffix("=")
        written = ""
        for column, one, other in reversed(list(zip(columns, left, right, strict=True))):
            signs = [self.dialect.sign(each, column) for each in (sign, f"{strict}=", strict)]
            written = (
                f"{one} {signs[1]} {other} AND ({one} {signs[2]} {other} OR ({written}))"
                if written
                else f"{one} {signs[0]} {other}"
            )
        return f"({written})"

    def one_among(self, columns: Sequence[Column], values: Sequence[str], query: str) -> str:
        """Whether a query finds these values of columns."""
        if all(column.operators is None for column in columns):
            return f"{self.row(values)} IN ({query})"
        names = [f"m{number}" for number in range(len(columns))]
        same = " AND ".join(
            f"{value} {self.dialect.sign('=', column)} m.{name}"
            for column, value, name in zip(columns, values, names, strict=True)
        )
        return f"EXISTS (SELECT 1 FROM ({query}) AS m({', '.join(names)}) WHERE {same})"

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
        conditions += self.no_live_follower(p, selection)
        if self.with_holds:
            conditions += self._not_held(p, selection) if held else self._nothing_held(p, selection)
        return conditions

    def no_live_follower(self, p: Parameters, selection: Selection) -> list[str]:
        """The conditions that no row which would leave with the row is in a live state of its own table."""
        conditions = []
        for path in follower_paths(selection):
            live = self.live(p, path[-1], f"f{len(path) - 1}")
            if live:
                source, links = self.chain(p, path, "t")
                conditions.append(self.dialect.none(f"SELECT 1 FROM {source} WHERE {links} AND {live}"))
        return conditions

    def live(self, p: Parameters, follower: BoundFollower, alias: str) -> str:
        """The condition that a row of a follower keeps the row that it follows; "" if none of them does."""
        if follower.live is None:
            return ""
        column, states = follower.live
        return f"({self.dialect.one_of(p, 'live', self.column(column, alias), column, states)})"

    def _active_hold(self, p: Parameters, table: TableInfo) -> tuple[str, str]:
        """Where holds are, and the condition that one is on the table or a row of it, and in force."""
        return f"{self.dialect.own('hold')} AS h", f"{self.hold_on(p, table)} AND {self.dialect.in_force('h')}"

    def hold_on(self, p: Parameters, table: TableInfo) -> str:
        """The condition that a hold `h` is on the table or a row of it, or on a table that has its rows too."""
        return self.dialect.names_table("h.table_name", [p.bind("held", name) for name in hold_names(table)])

    def hold_of_row(self, table: TableInfo, alias: str) -> str:
        """The condition that a hold `h` on a table is on the whole of it or on a row: by the table's keys, whatever key the contract chose."""
        columns = [[column for name in key if (column := table.column(name)) is not None] for key in table.hold_keys]
        mine = ["h.key IS NULL", *(f"h.key = {self.dialect.key_text(key, alias)}" for key in columns)]
        return f"({' OR '.join(mine)})"

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
            mine = self.hold_of_row(table, last)
            source, links = self.chain(p, path, "t")
            tables = ", ".join(part for part in (hold, source) if part)
            where = " AND ".join(part for part in (active, mine, links) if part)
            conditions.append(
                f"(NOT EXISTS (SELECT 1 FROM {hold} WHERE {active}) OR NOT EXISTS (SELECT 1 FROM {tables} WHERE {where}))"
            )
        return conditions

    def is_held(self, p: Parameters, table: TableInfo, alias: str) -> str:
        """The condition that a row, or its whole table, is held."""
        hold, active = self._active_hold(p, table)
        return f"EXISTS (SELECT 1 FROM {hold} WHERE {active} AND {self.hold_of_row(table, alias)})"

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
        descending = ", ".join(f"{one} DESC" for one in place)
        edge = f"SELECT {', '.join(place)} FROM {table} AS n WHERE {room} ORDER BY {descending} LIMIT 1 OFFSET {most}"
        return self.up_to_found(selection, self._place(selection, "t"), edge)

    def _beyond_scoped_cap(self, p: Parameters, selection: Selection, bound: Cap) -> str:
        quote = self.dialect.quote
        descending = ", ".join(f"{one} DESC" for one in self._place(selection, "n"))
        scope = ", ".join(self.dialect.bytewise(self.column(column, "n"), column) for column in selection.per)
        keys = ", ".join(quote(column.name) for column in selection.key)
        beyond = (
            f"SELECT {keys} FROM"
            f" (SELECT {self.columns(selection.key, 'n')}, row_number() OVER"
            f" (PARTITION BY {scope} ORDER BY {descending}) AS wane_rank"
            f" FROM {self.dialect.table(selection.table)} AS n WHERE {self._room(p, selection)}) AS ranked"
            f" WHERE wane_rank > {p.bind('most', bound.most)}"
        )
        return self.one_among(selection.key, [self.column(column) for column in selection.key], beyond)

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

    def place_columns(self, selection: Selection) -> list[Column]:
        """The columns behind a position."""
        return [selection.time_column, *(c for c in selection.key if c.name != selection.time_column.name)]

    def up_to_found(self, selection: Selection, position: Sequence[str], query: str) -> str:
        """Whether a position is at or before the one that a query finds."""
        columns = self.place_columns(selection)
        if all(column.operators is None for column in columns):
            return f"{self.row(position)} <= ({query})"
        names = [f"e{number}" for number in range(len(columns))]
        found = f"({query}) AS edge({', '.join(names)})"
        return self.compare(columns, position, "<=", [f"(SELECT edge.{name} FROM {found})" for name in names])

    def refers(self, reference: BoundReference, child: str, parent: str) -> str:
        pairs = zip(reference.columns, reference.to, strict=True)
        # The parent stands left: SQLite then compares by the parent's collation, as its foreign keys do.
        return " AND ".join(
            f"{self.column(theirs, parent)} {self.dialect.sign('=', theirs)} {self.column(mine, child)}"
            for mine, theirs in pairs
        )

    def fixed(self, p: Parameters, follower: BoundFollower, alias: str) -> list[str]:
        return [
            self.dialect.one_of(p, "where", self.column(column, alias), column, [value])
            for column, value in follower.where
        ]

    def chain(self, p: Parameters, path: Sequence[BoundFollower], parent: str) -> tuple[str, str]:
        """The tables of a path of followers, and the conditions that link them to each other and to the parent."""
        tables = [f"{self.dialect.table(one.reference.table)} AS f{number}" for number, one in enumerate(path)]
        links = [
            self.refers(one.reference, f"f{number}", f"f{number - 1}" if number else parent)
            for number, one in enumerate(path)
        ]
        fixed = [text for number, one in enumerate(path) for text in self.fixed(p, one, f"f{number}")]
        return ", ".join(tables), " AND ".join([*links, *fixed])

    def among(self, p: Parameters, selection: Selection, keys: Sequence[tuple[Any, ...]], alias: str = "t") -> str:
        """The condition that a row is one of those with these keys."""
        key = [self.column(column, alias) for column in selection.key]
        return self.one_among(selection.key, key, self.dialect.keys(p, selection.key, keys))


def qualified(table: TableInfo) -> str:
    """A table's full name, as holds write it."""
    return join_name([table.schema, table.name])


def hold_names(table: TableInfo) -> list[str]:
    """The names under which holds keep rows of a table: its own, and those of the tables that it is a part of."""
    return [qualified(table), *(join_name(list(above)) for above in table.ancestors)]
