"""Probes of users' tables for monitoring: row counts, the oldest and the newest row, what is due, dangling references.

Each probe is a query with one value, so that many of them fit into one statement; each is bounded, by an index that it
walks or by a limit, and reads no more of a large table than of a small one. `Rows.due` decides what is due
here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from datetime import timedelta
from functools import partial
from itertools import combinations
from typing import Final

from wane._contract.model import Cap, Expiry, State, Table, Time
from wane._contract.names import TableName
from wane._db.schema import Column, TableInfo, hold_names
from wane._db.statement import NOW, Parameters, When
from wane._db.timestamps import LATEST
from wane._frozen import frozen
from wane._rules.queries import Queries
from wane._rules.rows import Rows, cutoff
from wane._rules.selection import BoundFollower, BoundReference, Selection, losing
from wane._rules.walk import Walk

Probe = Callable[[Parameters], str]
"""Writes a query with one value."""
Aggregated = tuple[str, Callable[[str], str]]
"""An aggregate of rows `t`, and what writes the whole number that is made of its value."""
Aggregate = Callable[[Parameters], Aggregated]
"""Writes an aggregate."""


class Unread:
    """The result of a probe that took too long or was refused: distinct from NULL and from None."""


UNREAD: Final = Unread()


@frozen
class TimeRangeProbe:
    """How the oldest and the newest rows of a table are found: by which column, and along which index."""

    table: TableInfo
    time: Time
    column: Column
    state: Column | None = None
    states: tuple[State, ...] = ()
    """One walk along an index for each; without any, one walk for all rows."""
    small: bool = False
    """No index is ordered by time: only a table with few rows is probed."""


def overlapping(selections: Sequence[Selection]) -> bool:
    """Return whether two rules of a table may select the same row."""
    return any(one.rule.may_share_rows(other.rule) for one, other in combinations(selections, 2))


@frozen
class ProbedTable:
    """A table that the contract names and the database has."""

    name: TableName
    info: TableInfo
    table: Table | None = None
    """What the contract declares; None for tables that only follow, or are excused."""
    selections: tuple[Selection, ...] = ()
    """The rules that fit the database."""
    time_range: TimeRangeProbe | None = None
    """By the column that the contract declares as the age of its rows."""
    hot: TimeRangeProbe | None = None
    """By a column that its rules age by: the one that reads through their index follow."""
    every: timedelta | None = None
    """How often it is swept; None if it is not."""
    without_children: bool = False
    """Whether it is a table of its own, and nothing inherits from it."""
    by_row: tuple[int, ...] = ()
    """The numbers of the rules whose rows are due by their own columns alone, unless they are held."""
    overlapping: bool = field(init=False)
    """Whether two rules may select the same row."""
    scoped: bool = field(init=False)
    """Whether a rule applies to scopes of the table."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "overlapping", overlapping(self.selections))
        object.__setattr__(self, "scoped", any(one.per for one in self.selections))

    @property
    def finished(self) -> tuple[State, ...]:
        """Return the states that are not live, where the table has states."""
        if self.table is None or self.table.state is None:
            return ()
        states = (state for rule in self.table.rules for state in rule.states)
        return tuple(dict.fromkeys([*states, *dict(self.table.excused)]))


def is_due_by_row(rows: Rows, selection: Selection) -> bool:
    """Return whether rows are due by their own columns: whatever has to be looked up for a row contains a query."""
    conditions = rows.due(rows.parameters(), selection, NOW)
    return not isinstance(selection.rule.bound, Cap) and not any("SELECT" in one for one in conditions)


class Probes:
    """Writes probes."""

    def __init__(self, rows: Rows, held: Collection[str] | None = None) -> None:
        """Prepare probes; `held` are the tables in which anything is held, if that was just read.

        Rows of other tables are not checked for holds.
        """
        self.rows = rows
        self._held = None if held is None else {name.lower() for name in held}
        self._free = rows.without_holds()

    def may_be_held(self, selection: Selection) -> bool:
        """Return whether rows of a rule have to be checked for holds."""
        return self._held is None or (
            bool(self._held)
            and any(name.lower() in self._held for table in losing(selection) for name in hold_names(table))
        )

    def _rows(self, selection: Selection) -> Rows:
        return self.rows if self.may_be_held(selection) else self._free

    def count(self, p: Parameters, table: TableInfo, most: int, *, without_children: bool = False) -> str:
        """Write the count of the rows of a table, up to one more than `most`, or, of a small one, all of them."""
        return self.rows.dialect.count_up_to(table, p.bind("counted", most + 1), without_children=without_children)

    def few(self, p: Parameters, table: TableInfo, aggregates: Sequence[Aggregate]) -> str:
        """Write one pass over a small table for some aggregates; the result is one array of whole numbers."""
        written = [write(p) for write in aggregates]
        outputs = [output(f"s.n{number}") for number, (_, output) in enumerate(written)]
        return self.rows.dialect.read_few(table, [aggregate for aggregate, _ in written], outputs)

    def few_rows(self, p: Parameters) -> Aggregated:
        """Write the count of all rows, for `few`."""
        del p
        return "count(*)", str

    def few_due(self, p: Parameters, selection: Selection, now: When) -> Aggregated:
        """Write the count of a rule's due rows, for `few`."""
        return f"count(*) FILTER (WHERE {' AND '.join(self._rows(selection).due(p, selection, now))})", str

    def few_soon(self, p: Parameters, selection: Selection, now: When, within: timedelta) -> Aggregated:
        """Write the count of the rows that become due within a time, for `few`."""
        return f"count(*) FILTER (WHERE {' AND '.join(self._becoming_due(p, selection, now, within))})", str

    def few_oldest_due(self, p: Parameters, selection: Selection, now: When) -> Aggregated:
        """Write the number of the time of a rule's oldest due row, for `few`; NULL if nothing is due."""
        time = self.rows.dialect.order("t", selection.time_column, selection.time)
        due = " AND ".join(self._rows(selection).due(p, selection, now))
        return f"min({time}) FILTER (WHERE {due})", partial(self._numbered, selection.time_column, selection.time)

    def few_edge(self, p: Parameters, time_range: TimeRangeProbe, *, newest: bool) -> Aggregated:
        """Write the number of the oldest or the newest time, for `few`.

        0 if no row has a time; NULL if the first or last one is not plausible, so that only `edge` can find the next.
        """
        dialect, column, time = self.rows.dialect, time_range.column, time_range.time
        mine = ""
        if time_range.states and time_range.state is not None:
            state = self.rows.column(time_range.state)
            mine = f" FILTER (WHERE {dialect.one_of(p, 'state', state, time_range.state, time_range.states)})"

        def output(found: str) -> str:
            alias, _, name = found.partition(".")
            plausible = " AND ".join(self._plausible(p, time, replace(column, name=name), alias))
            number = self._numbered(column, time, found)
            return f"CASE WHEN {found} IS NULL THEN 0 WHEN {plausible} THEN {number} END"

        return f"{'max' if newest else 'min'}({dialect.order('t', column, time)}){mine}", output

    def _numbered(self, column: Column, time: Time, expression: str) -> str:
        number = self.rows.dialect.time_number(expression, column, time)
        assert number is not None
        return number

    def count_states(self, p: Parameters, selection: Selection, states: Sequence[State]) -> str:
        """Write the count of all rows in some states: for the planner to estimate, not to run."""
        assert selection.state is not None
        dialect = self.rows.dialect
        mine = dialect.one_of(p, "state", self.rows.column(selection.state), selection.state, states)
        return f"SELECT count(*) FROM {dialect.table(selection.table)} AS t WHERE {mine}"

    def edge(
        self, p: Parameters, time_range: TimeRangeProbe, most: int, *, newest: bool, instants: bool = False
    ) -> str:
        """Write the query for the oldest or the newest time in a table's time column.

        NULL if there is none, or if it would take a walk over all rows. The result is as the column has it, or, with
        `instants`, the instant that it means.
        """
        if not time_range.time.also and not instants:
            return self._edge(p, time_range, most, newest=newest)
        probes = [
            (self._edge(p, replace(time_range, time=one), most, newest=newest, named=True), one)
            for one in time_range.time.each
        ]
        return Queries(self.rows).first_of(probes, newest=newest, instants=instants)

    def _edge(self, p: Parameters, time_range: TimeRangeProbe, most: int, *, newest: bool, named: bool = False) -> str:
        dialect = self.rows.dialect
        time = dialect.order("t", time_range.column, time_range.time)
        best = "max" if newest else "min"
        if time_range.small:
            where = " AND ".join(self._plausible(p, time_range.time, time_range.column))
            # Of more, any could be the oldest.
            some = f"SELECT * FROM {dialect.table(time_range.table)} LIMIT {p.bind('counted', most + 1)}"
            few = f"(SELECT count(*) FROM ({some}) AS t) <= {p.bind('few', most)}"
            return f"SELECT {best}({time}){' AS row_time' if named else ''} FROM ({some}) AS t WHERE {where} AND {few}"
        probes = []
        for state in time_range.states or (None,):
            conditions = self._plausible(p, time_range.time, time_range.column)
            if state is not None and time_range.state is not None:
                mine = dialect.one_of(p, "state", self.rows.column(time_range.state), time_range.state, [state])
                conditions.insert(0, mine)
            probes.append(
                f"SELECT {time} AS row_time FROM {dialect.table(time_range.table)} AS t"
                f" WHERE {' AND '.join(conditions)} ORDER BY {time} {'DESC' if newest else 'ASC'} LIMIT 1"
            )
        if len(probes) == 1:
            return probes[0]
        each = " UNION ALL ".join(f"SELECT * FROM ({probe}) AS p{number}" for number, probe in enumerate(probes))
        return f"SELECT {best}(row_time){' AS row_time' if named else ''} FROM ({each}) AS edges"

    def _plausible(self, p: Parameters, time: Time, column: Column, alias: str = "t") -> list[str]:
        """Write the conditions that the row has a plausible time, and not one that means "never"."""
        return [
            *self.rows.dialect.plausible(p, alias, column, time),
            *self.rows.dialect.before(p, alias, column, time, LATEST, inclusive=False),
        ]

    def count_due(self, p: Parameters, selections: Sequence[Selection], now: When, most: int) -> str:
        """Write the count of the rows that are due under one of these rules of a table, each counted once.

        It stops at one more than `most`, or, for a single rule, at one more than `most` in each of its states.
        """
        if len(selections) == 1:
            return self._count_each_state(p, selections[0], now, most)
        parts = []
        for selection in selections:
            walk = Walk(self._rows(selection), selection)
            some = walk.oldest(p, now, most + 1, outputs=walk.keys)
            parts.append(f"SELECT {', '.join(walk.keys)} FROM ({some}) AS d")
        return f"SELECT count(*) FROM ({' UNION '.join(parts)}) AS some_due"

    def _count_each_state(self, p: Parameters, selection: Selection, now: When, most: int) -> str:
        """Write the count state by state, without an order: ordering rows of several states would require a sort."""
        table, rows = self.rows.dialect.table(selection.table), self._rows(selection)
        counts = []
        for one, states in Walk(rows, selection).each():
            where = " AND ".join(rows.due(p, one, now, states))
            some = f"SELECT 1 FROM {table} AS t WHERE {where} LIMIT {p.bind('counted', most + 1)}"
            counts.append(f"(SELECT count(*) FROM ({some}) AS some_due)")
        return f"SELECT {' + '.join(counts)}"

    def oldest_due(self, p: Parameters, selection: Selection, now: When) -> str:
        """Write the query for the time of the oldest due row, as its column has it."""
        found = Queries(self._rows(selection)).edge_probes(p, selection, now, newest=False)
        if selection.time.also:
            return Queries(self.rows).first_of(found, newest=False, instants=False)
        probes = [probe for probe, _ in found]
        return probes[0] if len(probes) == 1 else f"SELECT min(row_time) FROM ({' UNION ALL '.join(probes)}) AS edges"

    def soon_due(self, p: Parameters, selection: Selection, now: When, within: timedelta, most: int) -> str:
        """Write the count of the rows that become due within a time, up to one more than `most`.

        Guards are not checked: they may no longer apply by then.
        """
        return self._some(p, selection, self._becoming_due(p, selection, now, within), most)

    def _becoming_due(self, p: Parameters, selection: Selection, now: When, within: timedelta) -> list[str]:
        when = cutoff(selection.rule, now)
        assert when is not None
        inclusive = isinstance(selection.rule.bound, Expiry)
        column, time = selection.time_column, selection.time
        return [
            *self.rows.about(p, selection),
            *self.rows.dialect.since(p, "t", column, time, when),
            *self.rows.dialect.before(p, "t", column, time, when + within, inclusive=inclusive),
        ]

    def count_since(self, p: Parameters, selection: Selection, when: When, most: int) -> str:
        """Write the count of the rows that count towards a cap since a time, up to one more than `most`."""
        assert isinstance(selection.rule.bound, Cap)
        column, time = selection.time_column, selection.time
        dialect = self.rows.dialect
        conditions = [
            *self.rows.about(p, selection),
            *dialect.since(p, "t", column, time, when),
            *dialect.before(p, "t", column, time, LATEST, inclusive=False),
        ]
        return self._some(p, selection, conditions, most)

    def _some(self, p: Parameters, selection: Selection, conditions: Sequence[str], most: int) -> str:
        source = f"{self.rows.dialect.table(selection.table)} AS t WHERE {' AND '.join(conditions)}"
        return f"SELECT count(*) FROM (SELECT 1 FROM {source} LIMIT {p.bind('counted', most + 1)}) AS some_rows"

    # References

    def count_dangling(
        self,
        p: Parameters,
        parent: TableInfo,
        reference: BoundReference,
        most: int,
        follower: BoundFollower | None = None,
    ) -> str:
        """Write the count of rows whose referenced row is missing, among the first `most` that refer to any."""
        dialect = self.rows.dialect
        mine = [f"{self.rows.column(column, 'n')} IS NOT NULL" for column in reference.columns]
        if follower is not None:
            mine += self.rows.fixed(p, follower, "n")
        order = ", ".join(self.rows.column(column, "n") for column in reference.columns)
        # By the smallest first: with ascending keys those are the rows whose parents are the oldest.
        some = (
            f"SELECT {self.rows.columns(reference.columns, 'n')} FROM {dialect.table(reference.table)} AS n"
            f" WHERE {' AND '.join(mine)} ORDER BY {order} LIMIT {p.bind('checked', most)}"
        )
        there = f"SELECT 1 FROM {dialect.table(parent)} AS t WHERE {self.rows.refers(reference, 'c', 't')}"
        return f"SELECT count(*) FROM ({some}) AS c WHERE {dialect.finds_nothing(there)}"


def gather(rows: Rows, probes: Sequence[Probe], values: Mapping[str, object] | None = None) -> tuple[str, Parameters]:
    """Combine several probes into one statement of one row; `values` are the values of probes written earlier."""
    p = rows.parameters()
    p.values.update(values or {})
    return "SELECT " + ", ".join(f"({probe(p)}) AS probe_{number}" for number, probe in enumerate(probes)), p
