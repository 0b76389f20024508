"""Which rows are due: every condition of a rule, written once for both stores.

Counting, listing and deleting all use `Rows.due`, so `prune` takes exactly what `plan` shows, and the statement that
deletes repeats all of the conditions. The row's table always has the alias `t`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import product
from textwrap import indent
from typing import Any, TypedDict, TypeVar, Unpack

from wane._contract.conditions import described
from wane._contract.duration import Forever, format_duration
from wane._contract.model import Age, Cap, Expiry, Mark, Orphans, Pick, Rule, State, Time
from wane._db.schema import Column, TableInfo, hold_names
from wane._db.statement import Dialect, Instant, Parameters, When
from wane._db.store import Store
from wane._db.timestamps import LATEST
from wane._findings import many
from wane._frozen import frozen
from wane._rules.scopes import ScopeWalk, can_walk
from wane._rules.selection import (
    BoundCondition,
    BoundFollower,
    BoundLonger,
    BoundReference,
    OtherTime,
    OwnTime,
    Selection,
    follower_paths,
)
from wane._rules.spared import SparedRows

W = TypeVar("W", datetime, Instant, When)


@frozen
class RulePart:
    """One part of what a rule requires of a row: in words, and as conditions of the statements that take rows."""

    kind: str
    """"state", "orphan", "where", "scope", "key", "time", "bound", "guard", "follower", "spare" or "hold"."""
    requires: str
    conditions: Sequence[str]
    columns: tuple[Column, ...] = ()
    """The row's own columns that decide."""
    retaining: Callable[[Parameters], str] | None = None
    """Writes the query for what retains the row in other tables, where that decides."""


def cutoff(rule: Rule, now: W) -> W | None:
    """Return the instant that decides: rows are due strictly before it, or, for an expiry, at or before it.

    A cap has none.
    """
    if isinstance(rule.bound, Age | Orphans):
        return now - rule.bound.keep
    return now if isinstance(rule.bound, Expiry) else None


def all_of(conditions: Sequence[str]) -> str:
    """Join conditions, one per line."""
    return "\n  AND ".join(conditions)


def nested(query: str) -> str:
    """Write a query in brackets, on lines of its own."""
    return f"(\n{indent(query, '  ')}\n)"


class Circumstances(TypedDict, total=False):
    """What a statement ensures besides the conditions of `Rows.due`, which are written accordingly."""

    floored: bool
    """The statement has a narrower lower bound on the time, by which rows are found."""
    ended: bool
    """The statement has a narrower upper bound on the time, by which rows are found."""
    row_only: bool
    """Leave out what depends on other rows: only to find rows that a statement with every condition takes."""
    unread: bool
    """Leave out that the time, or the key that orders rows without one, is what it must be: likewise."""
    after_followers: bool
    """What follows the row has left already, under the locks in which every condition was checked: a time that was in
    there is gone."""
    edge: Sequence[str]
    """The position of the first row that a cap excludes, where it is known; else the condition finds it."""


class Rows:
    """Writes conditions about rows: which are due, held, referred to, and which follow others."""

    def __init__(self, dialect: Dialect, *, holds: bool, by_table: bool = False) -> None:
        """Prepare the conditions; `holds`: whether they spare held rows; `by_table`: a table with any held row is
        spared.

        Without Wane's own tables there are no holds to read.
        """
        self.dialect = dialect
        self.holds = holds
        self._by_table = by_table

    def parameters(self) -> Parameters:
        return Parameters(self.dialect)

    def without_holds(self) -> Rows:
        """Return the same conditions without holds, for use where it is known that nothing is held."""
        return Rows(self.dialect, holds=False)

    def sparing_held_tables(self) -> Rows:
        """Return the same conditions for tables without any hold: of a table with a hold, no row fulfils them."""
        return Rows(self.dialect, holds=self.holds, by_table=True)

    # Columns and rows of values

    def column(self, column: Column, alias: str = "t") -> str:
        return f"{alias}.{self.dialect.quote(column.name)}"

    def columns(self, columns: Sequence[Column], alias: str = "t") -> str:
        return ", ".join(self.column(column, alias) for column in columns)

    def row(self, expressions: Sequence[str]) -> str:
        """Write a row value; a single column has no brackets, which SQLite's planner handles better."""
        return expressions[0] if len(expressions) == 1 else f"({', '.join(expressions)})"

    def compare(self, columns: Sequence[Column], left: Sequence[str], sign: str, right: Sequence[str]) -> str:
        """Write the condition that values of columns sort at or before others (`<=`), or after them (`>`)."""
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
        """Write the condition that a query finds these values of columns."""
        if all(column.operators is None for column in columns):
            return f"{self.row(values)} IN ({query})"
        names = [f"m{number}" for number in range(len(columns))]
        same = " AND ".join(
            f"{value} {self.dialect.sign('=', column)} m.{name}"
            for column, value, name in zip(columns, values, names, strict=True)
        )
        return f"EXISTS (SELECT 1 FROM ({query}) AS m({', '.join(names)}) WHERE {same})"

    def among(
        self, p: Parameters, selection: Selection, keys: Sequence[tuple[Any, ...]] | None, alias: str = "t"
    ) -> str:
        """Write the condition that a row is one of those with these keys; None: with the keys that fill a slot."""
        key = [self.column(column, alias) for column in selection.key]
        return self.one_among(selection.key, key, self.dialect.keys(p, selection.key, keys))

    # The order in which rows leave

    def position(self, selection: Selection, alias: str) -> list[str]:
        """Return (time, key): the position of a row among the others, oldest first. Rows without a time have the
        key."""
        key = [self.column(column, alias) for column in self.key_position(selection)]
        return key if selection.own_time is None else [self._order(selection.own_time, alias), *key]

    def _order(self, own: OwnTime, alias: str) -> str:
        if not own.among or own.walked:
            return self.dialect.order(alias, own.column, own.encoded(own.column))
        return f"coalesce({', '.join(self._orders(own, alias))})"

    def latest(self, own: OwnTime, alias: str) -> str:
        """Write the time of a row, whichever of several columns holds it."""
        if own.time.pick is Pick.LATEST:
            return self.dialect.greatest(self._orders(own, alias))
        return self._order(own, alias)

    def _orders(self, own: OwnTime, alias: str) -> list[str]:
        return [self.dialect.order(alias, column, own.encoded(column)) for column in own.among]

    def position_columns(self, selection: Selection) -> list[Column]:
        """Return the columns of a position."""
        time = [] if selection.own_time is None else [selection.time_column]
        return [*time, *self.key_position(selection)]

    def key_position(self, selection: Selection) -> list[Column]:
        """Return the columns of the key that are behind the time in a position: a time that is in the key is not."""
        timed = selection.time_column.name if selection.one_time else None
        return [column for column in selection.key if column.name != timed]

    def up_to_found(self, selection: Selection, position: Sequence[str], query: str) -> str:
        """Write the condition that a position is at or before the one that a query finds."""
        columns = self.position_columns(selection)
        if all(column.operators is None for column in columns):
            return f"{self.row(position)} <= ({query})"
        names = [f"e{number}" for number in range(len(columns))]
        found = f"({query}) AS edge({', '.join(names)})"
        return self.compare(columns, position, "<=", [f"(SELECT edge.{name} FROM {found})" for name in names])

    # What is due

    def due(
        self,
        p: Parameters,
        selection: Selection,
        now: When,
        states: Sequence[State] | None = None,
        **circumstances: Unpack[Circumstances],
    ) -> list[str]:
        """Write every condition for a row to be due, guards included. `states` narrows to some of the rule's states."""
        parts = self.parts(p, selection, now, states, **circumstances)
        return [condition for part in parts for condition in part.conditions]

    def parts(
        self,
        p: Parameters,
        selection: Selection,
        now: When,
        states: Sequence[State] | None = None,
        *,
        floored: bool = False,
        ended: bool = False,
        row_only: bool = False,
        unread: bool = False,
        after_followers: bool = False,
        edge: Sequence[str] = (),
    ) -> Iterator[RulePart]:
        """Yield what `due` requires, part by part, in the order of its conditions; `why` explains a row by them."""
        yield from self._about(p, selection, states)
        yield RulePart("scope", "it is in the scope", self._scope(p, selection, "t"), selection.per)
        yield RulePart("key", "its key is not NULL", self.identified(selection, "t"), selection.key)
        time = selection.time_columns
        plausible = [] if unread else self.plausible(p, selection, "t", after_followers=after_followers)
        plausible = [self.dialect.recheck(plausible)] if floored and plausible else plausible
        yield RulePart("time", _time_in_words(selection), [*self.chosen(selection, "t"), *plausible], time)
        bound = self._bound(p, selection, now, edge)
        bound = [self.dialect.recheck(bound)] if ended else bound
        longer = selection.longer
        window = (longer.column,) if longer is not None and longer.reference is None else ()
        yield RulePart("bound", _bound_in_words(selection), bound, (*time, *window) or selection.key)
        yield from self._column_guards(selection)
        if not row_only:
            yield from self._references(selection)
            yield from self._live_followers(p, selection)
            yield from self._spared(p, selection)
            yield from self._holds(p, selection)

    def _column_guards(self, selection: Selection) -> Iterator[RulePart]:
        for columns, opposite in (
            (selection.saved_while_null, "NOT NULL"),
            (selection.saved_while_not_null, "NULL"),
        ):
            for column in columns:
                words = f"{column.name} is {opposite.replace('NOT', 'not')}"
                yield RulePart("guard", words, [f"{self.column(column)} IS {opposite}"], (column,))

    def _references(self, selection: Selection) -> Iterator[RulePart]:
        for guard in selection.guards:
            referring = self._referring(guard)
            words = f"no row of {guard.name} refers to it ({_listed(guard.columns)})"
            if guard == selection.missing:
                words = f"{_listed(guard.to)} points at no row of {guard.name}"
            nothing = self.dialect.finds_nothing(referring)
            yield RulePart("guard", words, [nothing], retaining=partial(_without_values, referring))

    def _referring(self, guard: BoundReference) -> str:
        return f"SELECT 1 FROM {self.dialect.table(guard.table)} AS g WHERE {self.refers(guard, 'g', 't')}"

    def without_parent(self, selection: Selection) -> list[str]:
        """Write the condition that a row's reference points at nothing, where that makes it an orphan."""
        missing = selection.missing
        return [] if missing is None else [self.dialect.finds_nothing(self._referring(missing))]

    def _live_followers(self, p: Parameters, selection: Selection) -> Iterator[RulePart]:
        for path in follower_paths(selection):
            if path[-1].live is None:
                continue
            states = " or ".join(map(repr, path[-1].live[1]))
            words = f"no row of {path[-1].reference.name} that would leave with it is {states}"
            nothing = self.dialect.finds_nothing(self._live_follower(path, p))
            yield RulePart("follower", words, [nothing], retaining=partial(self._live_follower, path))

    def _spared(self, p: Parameters, selection: Selection) -> Iterator[RulePart]:
        spare = selection.rule.spare
        if spare is not None:
            scope = f" of the same {_listed(selection.spared_per)}" if selection.spared_per else ""
            words = f"{many(spare.newest, 'row')}{scope} {'is' if spare.newest == 1 else 'are'} newer"
            yield RulePart("spare", words, [SparedRows(self, selection).outnumbered(p)], selection.spared_per)

    def _holds(self, p: Parameters, selection: Selection) -> Iterator[RulePart]:
        if not self.holds:
            return
        paths = ((), *follower_paths(selection))
        for path, condition in zip(paths, self.unheld(p, selection), strict=True):
            follower = f"no row of {path[-1].reference.name} that would leave with it is held" if path else ""
            words = follower or "neither it nor its table is held"
            yield RulePart("hold", words, [condition], retaining=partial(self._hold_on, selection, path))

    def probably_due(self, p: Parameters, selection: Selection, now: When) -> list[str]:
        """Write the conditions of `due` that the planner has statistics for: those on the row's own columns."""
        return [
            *self.about(p, selection),
            *self._scope(p, selection, "t"),
            *self.chosen(selection, "t"),
            *self._bound(p, selection, now),
            *self.column_guards(selection),
        ]

    def about(
        self, p: Parameters, selection: Selection, states: Sequence[State] | None = None, alias: str = "t"
    ) -> list[str]:
        """Write the conditions for the rows that the rule is about, due or not."""
        return [condition for part in self._about(p, selection, states, alias) for condition in part.conditions]

    def _about(
        self, p: Parameters, selection: Selection, states: Sequence[State] | None = None, alias: str = "t"
    ) -> Iterator[RulePart]:
        if selection.rule.by_state:
            yield self._state(p, selection, states, alias)
        if selection.orphan is not None:
            yield self._orphaned(selection.orphan, alias)
        for named, one in zip(selection.rule.conditions, selection.where, strict=True):
            yield RulePart("where", described((named,)), [self._condition(p, one, alias)], one.columns)

    def _state(self, p: Parameters, selection: Selection, states: Sequence[State] | None, alias: str) -> RulePart:
        column, named = selection.state, selection.rule.all_but
        assert column is not None
        state = self.column(column, alias)
        if named is None:
            wanted = states or selection.rule.states
            words = f"{column.name} is {' or '.join(map(repr, wanted))}"
            return RulePart("state", words, [self.dialect.one_of(p, "state", state, column, wanted)], (column,))
        words = f"{column.name} is none of {', '.join(map(repr, named))}" if named else f"{column.name} is not NULL"
        other = self.dialect.compares(p, "state", state, column, "not", named) if named else f"{state} IS NOT NULL"
        return RulePart("state", words, [other], (column,))

    def _orphaned(self, column: Column, alias: str) -> RulePart:
        return RulePart("orphan", f"{column.name} is NULL", [f"{self.column(column, alias)} IS NULL"], (column,))

    def _condition(self, p: Parameters, condition: BoundCondition, alias: str) -> str:
        """Write a condition on a column of a row. It is never true for a NULL, unless it names NULL."""
        column, expression = condition.column, self.column(condition.column, alias)
        if not condition.comparisons:
            return f"{expression} IS {'' if condition.null else 'NOT '}NULL"
        compared = " AND ".join(
            self.dialect.compares(p, "where", expression, column, one.sign, one.values)
            if one.column is None
            else self.dialect.compares_columns(expression, column, one.sign, self.column(one.column, alias), one.column)
            for one in condition.comparisons
        )
        return f"({expression} IS NULL OR ({compared}))" if condition.null else compared

    def column_guards(self, selection: Selection) -> list[str]:
        return [condition for part in self._column_guards(selection) for condition in part.conditions]

    def _scope(self, p: Parameters, selection: Selection, alias: str) -> list[str]:
        return [
            self.dialect.equal(p, "scope", self.column(column, alias), column, value)
            for column, value in zip(selection.per, selection.scope or (), strict=False)
        ]

    def identified(self, selection: Selection, alias: str) -> list[str]:
        """Write the conditions that the key is not NULL: such a key identifies no row.

        SQLite's primary keys may be NULL, and unique keys of both stores.
        """
        return [f"{self.column(column, alias)} IS NOT NULL" for column in selection.key if column.nullable]

    def plausible(self, p: Parameters, selection: Selection, alias: str, *, after_followers: bool = False) -> list[str]:
        """Write the conditions that a row's time, or the key that orders rows without one, is what it must be.

        A key of another form (such as a random UUID) does not order the rows by age.
        """
        own, other = selection.own_time, selection.other_time
        if other is not None:
            gone = after_followers and any(map(selection.holds_time, selection.followers))
            return self._usable_elsewhere(p, other, alias)[1 if gone else 0 :]
        if own is None:
            return self.dialect.ordered_key(alias, selection.key[0])
        return self._of_time(own, alias, lambda one: self.dialect.plausible(p, alias, one, own.encoded(one)))

    def before(self, p: Parameters, selection: Selection, alias: str, when: When, *, inclusive: bool) -> list[str]:
        """Write the conditions that a row's plausible time is before an instant (inclusive: or at it)."""
        own, other = selection.own_time, selection.other_time
        if other is not None:
            past = self.dialect.before(p, "o", other.column, other.time, when, inclusive=inclusive)
            return [self._elsewhere(other, alias, past)]
        assert own is not None
        return self._of_time(
            own,
            alias,
            lambda one: self.dialect.before(p, alias, one, own.encoded(one), when, inclusive=inclusive),
        )

    def _usable_elsewhere(self, p: Parameters, other: OtherTime, alias: str) -> list[str]:
        """Write the conditions that a row's time in another table is there, and what it must be."""
        plausible = self.dialect.plausible(p, "o", other.column, other.time)
        usable = self._elsewhere(other, alias, plausible)
        if not other.in_child:
            return [usable]
        given = f"{self._source_of(other, alias)} AND {self.column(other.column, 'o')} IS NOT NULL"
        return [self.dialect.finds_some(f"SELECT 1 FROM {given}"), usable]

    def _elsewhere(self, other: OtherTime, alias: str, conditions: Sequence[str]) -> str:
        """Write that conditions hold for a row's time in another table: for its parent's, or for each child's."""
        source, held = self._source_of(other, alias), " AND ".join(conditions)
        if not other.in_child:
            return self.dialect.finds_some(f"SELECT 1 FROM {source} AND {held}")
        given = f"{self.column(other.column, 'o')} IS NOT NULL"
        return self.dialect.finds_nothing(f"SELECT 1 FROM {source} AND {given} AND ({held}) IS NOT TRUE")

    def read_elsewhere(self, other: OtherTime, alias: str) -> str:
        """Write the value of a row's time in another table: its parent's, or the latest of its children's."""
        latest = self.dialect.order("o", other.column, other.time)
        source = f"{self._source_of(other, alias)} AND {self.column(other.column, 'o')} IS NOT NULL"
        return f"(SELECT {self.column(other.column, 'o')} FROM {source} ORDER BY {latest} DESC LIMIT 1)"

    def _source_of(self, other: OtherTime, alias: str) -> str:
        """Write the rows `o` of another table that hold the time of a row."""
        link = self.refers(other.reference, *(("o", alias) if other.in_child else (alias, "o")))
        return f"{self.dialect.table(other.reference.table)} AS o WHERE {link}"

    def chosen(self, selection: Selection, alias: str) -> list[str]:
        """Write the conditions that a row has one of several times; of a walk, that its first one is in that column."""
        own = selection.own_time
        if own is None or not own.among:
            return []
        names = [self.column(column, alias) for column in own.among]
        if not own.walked:
            return [f"({' OR '.join(f'{name} IS NOT NULL' for name in names)})"]
        return [f"{name} IS NULL" for name in names[: own.among.index(own.column)]]

    def _of_time(self, own: OwnTime, alias: str, write: Callable[[Column], list[str]]) -> list[str]:
        """Write conditions on a row's time. Of the latest of several columns, they hold for each that is not NULL."""
        if not own.among:
            return write(own.column)
        each = [(self.column(column, alias), " AND ".join(write(column))) for column in own.among]
        if own.time.pick is Pick.LATEST:
            others = [
                f"({name} IS NULL OR ({condition}))"
                for column, (name, condition) in zip(own.among, each, strict=True)
                if not (own.walked and column == own.column)
            ]
            return [*write(own.column), *others] if own.walked else others
        if own.walked:
            return write(own.column)
        nulls = [f"{name} IS NULL AND " for name, _ in each]
        return ["(" + " OR ".join(f"({''.join(nulls[:at])}{each[at][1]})" for at in range(len(each))) + ")"]

    def _bound(self, p: Parameters, selection: Selection, now: When, edge: Sequence[str] = ()) -> list[str]:
        bound = selection.rule.bound
        if isinstance(bound, Cap) and edge:
            mine = self.cap_position(selection, "t")
            return [self.compare(self.position_columns(selection), mine, "<=", edge)]
        if isinstance(bound, Cap):
            return [self._beyond_cap(p, selection, bound)]
        when = cutoff(selection.rule, now)
        assert when is not None
        inclusive = isinstance(bound, Expiry)
        conditions = self.before(p, selection, "t", when, inclusive=inclusive)
        return conditions if selection.longer is None else [*conditions, self._past_own_window(p, selection, now)]

    def _past_own_window(self, p: Parameters, selection: Selection, now: When) -> str:
        """Write the condition that the window of the row itself has passed; a value that is no window never passes."""
        longer, own, other = selection.longer, selection.own_time, selection.other_time
        assert longer is not None
        value = self.column(longer.column, "t" if longer.reference is None else "w")

        def past(alias: str, column: Column, time: Time) -> list[str]:
            return [self.dialect.past_window(p, alias, column, time, now, f"{value} * {longer.micros}")]

        if other is not None:
            passed = self._elsewhere(other, "t", past("o", other.column, other.time))
        else:
            assert own is not None
            passed = " AND ".join(self._of_time(own, "t", lambda one: past("t", one, own.encoded(one))))
        # Nothing is computed with a number that could overflow.
        condition = f"CASE WHEN {value} BETWEEN 1 AND {longer.most} THEN {passed} ELSE false END"
        if longer.reference is None:
            return condition
        return self.dialect.finds_some(f"SELECT 1 FROM {self._window_of(longer.reference)} AND {condition}")

    def own_window(self, longer: BoundLonger) -> str:
        """Write the value of a row's own window: in its column, or in that of its parent."""
        if longer.reference is None:
            return self.column(longer.column)
        return f"(SELECT {self.column(longer.column, 'w')} FROM {self._window_of(longer.reference)})"

    def _window_of(self, parent: BoundReference) -> str:
        return f"{self.dialect.table(parent.table)} AS w WHERE {self.refers(parent, 't', 'w')}"

    def _beyond_cap(self, p: Parameters, selection: Selection, bound: Cap) -> str:
        """Write the condition that a row is at or below the first row that the cap excludes.

        By position, never by count: two concurrent pruners agree on it.
        """
        if selection.per and selection.scope is None:
            return self._beyond_scoped_cap(p, selection, bound)
        return self.up_to_found(selection, self.cap_position(selection, "t"), self.edge(p, selection, bound))

    def edge(self, p: Parameters, selection: Selection, bound: Cap) -> str:
        """Write the query for the position of the first row that a cap excludes."""
        position, counted = self.cap_position(selection, "n"), self.counted(p, selection)
        walked = self.position(selection, "n")[0]
        if walked != position[0]:
            # No index has the exact position's order. An index does find the second it is in, and only rows from there
            # on are sorted.
            second = self.first_excluded(p, selection, bound, [walked], counted)
            counted = [*counted, f"{walked} >= (SELECT substr({walked}, 1, 19) FROM {second})"]
        return f"SELECT {', '.join(position)} FROM {self.first_excluded(p, selection, bound, position, counted)}"

    def first_excluded(
        self, p: Parameters, selection: Selection, bound: Cap, order: Sequence[str], conditions: Sequence[str]
    ) -> str:
        """Write the source of the first row that a cap excludes, `n`, among the rows that fulfil some conditions."""
        most = p.bind("most", bound.most)
        return self.newest(p, selection, order, conditions, f"{most} + 1", f"LIMIT 1 OFFSET {most}")

    def newest(
        self, p: Parameters, selection: Selection, order: Sequence[str], conditions: Sequence[str], most: str, part: str
    ) -> str:
        """Write the source of a part of the `most` newest rows of a rule, `n`, among those that fulfil some conditions.

        Each state is walked along its own index range: over several, no index is ordered by time.
        """
        table, newest = self.dialect.table(selection.table), ", ".join(f"{one} DESC" for one in order)

        def mine(states: Sequence[State] | None) -> str:
            where = " AND ".join([*self.about(p, selection, states, "n"), *conditions]) or "true"
            return f"{table} AS n WHERE {where} ORDER BY {newest}"

        states = selection.rule.states
        if len(states) < 2:
            return f"{mine(None)} {part}"
        columns = self.columns(self.position_columns(selection), "n")
        each = [f"SELECT {columns} FROM {mine([state])} LIMIT {most}" for state in states]
        walks = " UNION ALL ".join(f"SELECT * FROM ({one}) AS w{number}" for number, one in enumerate(each))
        return f"({walks}) AS n ORDER BY {newest} {part}"

    def _beyond_scoped_cap(self, p: Parameters, selection: Selection, bound: Cap) -> str:
        key = [self.column(column) for column in selection.key]
        if can_walk(self.dialect, selection):
            return self.one_among(selection.key, key, ScopeWalk(self, selection).keys_beyond(p))
        quote = self.dialect.quote
        descending = ", ".join(f"{one} DESC" for one in self.cap_position(selection, "n"))
        scope = ", ".join(self.dialect.bytewise(self.column(column, "n"), column) for column in selection.per)
        keys = ", ".join(quote(column.name) for column in selection.key)
        beyond = (
            f"SELECT {keys} FROM"
            f" (SELECT {self.columns(selection.key, 'n')}, row_number() OVER"
            f" (PARTITION BY {scope} ORDER BY {descending}) AS wane_rank"
            f" FROM {self.dialect.table(selection.table)} AS n WHERE {self.own_counted(p, selection)}) AS ranked"
            f" WHERE wane_rank > {p.bind('most', bound.most)}"
        )
        return self.one_among(selection.key, key, beyond)

    def own_counted(self, p: Parameters, selection: Selection) -> str:
        """Write the condition for the rows that count towards a cap: the rule's own, and none of another state."""
        return " AND ".join([*self.about(p, selection, alias="n"), *self.counted(p, selection)]) or "true"

    def counted(self, p: Parameters, selection: Selection) -> list[str]:
        """Write the conditions for a rule's rows that count towards its cap: those with a key and a plausible time.

        A time that means "never" would occupy the cap forever.
        """
        conditions = [
            *self._scope(p, selection, "n"),
            *self.identified(selection, "n"),
            *self.plausible(p, selection, "n"),
        ]
        if selection.own_time is not None:
            time, column = selection.time, selection.time_column
            conditions += self.dialect.before(p, "n", column, time, LATEST, inclusive=False)
        return conditions

    def cap_position(self, selection: Selection, alias: str) -> list[str]:
        """Return a row's position in a cap: like `position`, but exact where texts sort differently."""
        position = self.position(selection, alias)
        if selection.own_time is None:
            return position
        return [self.dialect.exact(alias, selection.time_column, selection.time), *position[1:]]

    def verb(self, p: Parameters, selection: Selection) -> str:
        """Write the verb of the statement that takes rows: delete them, or mark them."""
        table, action = self.dialect.table(selection.table), selection.rule.action
        if not isinstance(action, Mark):
            return f"DELETE FROM {table} AS t"
        assert selection.state is not None
        mark = self.dialect.assign(p, selection.state, action.state)
        return f"UPDATE {table} AS t SET {self.dialect.quote(selection.state.name)} = {mark}"

    # Holds

    def active_hold(self, p: Parameters, table: TableInfo) -> tuple[str, str]:
        """Return the source of holds, and the condition that one is on the table or a row of it, and in force."""
        named = self.dialect.names_table("h.table_name", [p.bind("held", name) for name in hold_names(table)])
        return f"{self.dialect.own_table('hold')} AS h", f"{named} AND {self.dialect.in_force(p, 'h')}"

    def hold_of_row(self, table: TableInfo, alias: str) -> str:
        """Write the condition that a hold `h` on a table is on the whole of it or on a row.

        Rows are identified by the table's keys, whatever key the contract chose.
        """
        columns = [[column for name in key if (column := table.column(name)) is not None] for key in table.hold_keys]
        mine = ["h.key IS NULL", *(f"h.key = {self.dialect.key_text(key, alias)}" for key in columns)]
        return f"({' OR '.join(mine)})"

    def unheld(self, p: Parameters, selection: Selection) -> list[str]:
        """Write the conditions that neither the row, nor its table, nor a row that would leave with it is held.

        The first half is evaluated once for the whole statement, so holds cost little where there are none.
        """
        conditions = []
        for path in ((), *follower_paths(selection)) if self.holds else ():
            table = path[-1].reference.table if path else selection.table
            hold, active = self.active_hold(p, table)
            nothing = f"NOT EXISTS (SELECT 1 FROM {hold} WHERE {active})"
            if self._by_table:
                conditions.append(nothing)
                continue
            conditions.append(f"({nothing}\n    OR NOT EXISTS ({self._hold_on(selection, path, p)}))")
        return conditions

    def _hold_on(self, selection: Selection, path: Sequence[BoundFollower], p: Parameters) -> str:
        """Write the query for holds on the row, or on rows at the end of a path of its followers."""
        table = path[-1].reference.table if path else selection.table
        hold, active = self.active_hold(p, table)
        mine = self.hold_of_row(table, f"f{len(path) - 1}" if path else "t")
        source, links = self.chain(p, path, "t")
        tables = ", ".join(part for part in (hold, source) if part)
        where = " AND ".join(part for part in (active, mine, links) if part)
        return f"SELECT 1 FROM {tables} WHERE {where}"

    def is_held(self, p: Parameters, table: TableInfo, alias: str) -> str:
        """Write the condition that a row, or its whole table, is held."""
        hold, active = self.active_hold(p, table)
        return f"EXISTS (SELECT 1 FROM {hold} WHERE {active} AND {self.hold_of_row(table, alias)})"

    # References and followers

    def refers(self, reference: BoundReference, child: str, parent: str) -> str:
        pairs = zip(reference.columns, reference.to, strict=True)
        # The parent is on the left: SQLite then compares by the parent's collation, as its foreign keys do.
        return " AND ".join(
            f"{self.column(theirs, parent)} {self.dialect.sign('=', theirs)} {self.column(mine, child)}"
            for mine, theirs in pairs
        )

    def refers_among(self, reference: BoundReference, alias: str, leaving: str) -> list[str]:
        """Write the conditions that a row refers to one of the values that a query finds."""
        ways = product(
            *(
                self.dialect.reference_forms(self.column(mine, alias), mine, theirs)
                for mine, theirs in zip(reference.columns, reference.to, strict=True)
            )
        )
        return [self.one_among(reference.to, way, leaving) for way in ways]

    def fixed(self, p: Parameters, follower: BoundFollower, alias: str) -> list[str]:
        return [self._condition(p, one, alias) for one in follower.where]

    def chain(self, p: Parameters, path: Sequence[BoundFollower], parent: str) -> tuple[str, str]:
        """Write the tables of a path of followers, and the conditions that link them to each other and the parent."""
        tables = [f"{self.dialect.table(one.reference.table)} AS f{number}" for number, one in enumerate(path)]
        links = [
            self.refers(one.reference, f"f{number}", f"f{number - 1}" if number else parent)
            for number, one in enumerate(path)
        ]
        fixed = [text for number, one in enumerate(path) for text in self.fixed(p, one, f"f{number}")]
        return ", ".join(tables), " AND ".join([*links, *fixed])

    def following(self, p: Parameters, path: Sequence[BoundFollower], leaving: str) -> str:
        """Write the table at the end of a path of followers, and the condition that its rows follow what leaves."""
        source = ""
        for number, follower in enumerate(path):
            reference, alias = follower.reference, f"f{number}"
            where = [*self.refers_among(reference, alias, leaving), *self.fixed(p, follower, alias)]
            source = f"{self.dialect.table(reference.table)} AS {alias}\nWHERE {all_of(where)}"
            if number + 1 < len(path):
                leaving = f"SELECT {self.columns(path[number + 1].reference.to, alias)} FROM {source}"
        return source

    def pointed_at(self, selection: Selection, path: Sequence[BoundFollower], where: str) -> str:
        """Write the query for the values that the first follower of a path refers to, under a condition."""
        to = self.columns(path[0].reference.to, "t")
        return f"SELECT {to} FROM {self.dialect.table(selection.table)} AS t WHERE {where}"

    def no_live_follower(self, p: Parameters, selection: Selection) -> list[str]:
        """Write the conditions that no row that would leave with the row is in a live state of its own table."""
        return [condition for part in self._live_followers(p, selection) for condition in part.conditions]

    def _live_follower(self, path: Sequence[BoundFollower], p: Parameters) -> str:
        """Write the query for rows at the end of a path of followers that are in a live state."""
        source, links = self.chain(p, path, "t")
        return f"SELECT 1 FROM {source} WHERE {links} AND {self.live(p, path[-1], f'f{len(path) - 1}')}"

    def live(self, p: Parameters, follower: BoundFollower, alias: str) -> str:
        """Write the condition that a row of a follower retains the row that it follows; "" if none of them does."""
        if follower.live is None:
            return ""
        column, states = follower.live
        return f"({self.dialect.one_of(p, 'live', self.column(column, alias), column, states)})"

    def identity(self, follower: BoundFollower) -> list[str]:
        """Return columns, quoted, that identify each row of a follower."""
        return self.dialect.identity(follower.reference.table, inherited=follower.inherited)

    def among_found(
        self, p: Parameters, follower: BoundFollower, found: Sequence[tuple[Any, ...]] | None, alias: str
    ) -> str:
        """Write the condition that a follower's row is one of those identified; None: by what fills a slot."""
        query = self.dialect.identified(p, follower.reference.table, found, inherited=follower.inherited)
        return self.one_of_followers(follower, alias, query)

    def one_of_followers(self, follower: BoundFollower, alias: str, query: str) -> str:
        """Write the condition that a query finds the identity of a follower's row.

        The store's own row identifiers are not columns of the table.
        """
        known = {self.dialect.quote(column.name): column for column in follower.reference.table.columns}
        identity = self.identity(follower)
        columns = [known.get(name, Column(name, "", nullable=False)) for name in identity]
        return self.one_among(columns, [f"{alias}.{name}" for name in identity], query)


def _listed(columns: Sequence[Column]) -> str:
    return ", ".join(column.name for column in columns)


def _without_values(query: str, p: Parameters) -> str:
    """Return a query that binds nothing."""
    del p
    return query


def _time_in_words(selection: Selection) -> str:
    time = selection.rule.bound.time if not isinstance(selection.rule.bound, Forever) else None
    return f"{selection.key[0].name} is a key in order" if time is None else f"{time} is a timestamp as declared"


def _bound_in_words(selection: Selection) -> str:
    bound = selection.rule.bound
    if isinstance(bound, Cap):
        scope = f" of the same {_listed(selection.per)}" if selection.per else ""
        return f"{bound.most:,} rows{scope} are newer, by {_listed(selection.time_columns or selection.key)}"
    if isinstance(bound, Age | Orphans):
        window = f", {format_duration(bound.keep)} ago" if bound.keep else ""
        longer = "" if bound.longer is None else f", and as long ago as its own window requires ({bound.longer})"
        return f"{bound.time} is before the cutoff{window}{longer}"
    assert isinstance(bound, Expiry)
    return f"{bound.time} is not in the future"


def rows_of(store: Store) -> Rows:
    """Return the writer of conditions about users' rows; they respect holds once the database has Wane's own tables."""
    return Rows(store.dialect, holds=store.migrated)
