"""The statements that take rows under a rule, each compiled once, when it is first needed.

Each text is fixed; what differs from batch to batch (times, limits, keys, the position where the batch before ended)
fills its slots. The engine, `plan -v`, the functions in the database and the archive run the same objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, TypedDict, Unpack

from wane._contract.model import Cap
from wane._db.schema import TableInfo
from wane._db.statement import Statement, TimeSlot
from wane._rules.batch_statements import AtOnceStatements, FollowerStatements, KnownEdgeStatements, RangeStatements
from wane._rules.indexes import has_time_index
from wane._rules.rows import Rows
from wane._rules.run_step import IF_LARGE, IF_LOCKED, RunStep
from wane._rules.scopes import MOST_SCOPES, SCOPES, Scope, each_scope, walk_of
from wane._rules.selection import Selection, follower_paths
from wane._rules.slices import SliceStatements, slice_statements
from wane._rules.statements import AHEAD, Compiler, by_range, takes_at_once, takes_followers_by_range

_IF_NULL = "if the last one has a NULL"
_IN_SWEEP, _IF_NO_SWEEP = "in a sweep", "if outside of a sweep"


class SlotValues(TypedDict, total=False):
    """The values of a statement's slots, except those that follow from the time and the selection."""

    keys: Sequence[tuple[Any, ...]]
    """The keys of the rows that it reads or takes."""
    floor: Sequence[object] | None
    """The position behind which it begins; without one, at the oldest due row."""
    end: Sequence[object] | None
    """The position where it ends; without one, at the newest due row."""
    edge: Sequence[object] | None
    """The position of the first row that a cap excludes."""
    ended: int
    """How many transactions had ended when that was read."""
    first: Sequence[object]
    """The first key of a slice of the table."""
    last: Sequence[object]
    """The last key of a slice of the table."""
    slice_rows: int
    """The most rows of a slice of the table."""
    until: Sequence[object]
    """The key with which a walk of the table ends."""
    limit: int
    """The most rows that it returns or takes."""
    follower_limit: int
    """The most rows that it counts of each follower."""
    scopes: int
    """The most scopes that it returns; MOST_SCOPES if not given."""
    behind: Scope | None
    """The scope behind which it begins."""
    ahead: bool
    """Whether it finds where a batch ends at the latest: see `Compiler.unheld`; False if not given."""


class RuleStatements:
    """The statements of one rule. Each is compiled when it is first needed: most sweeps need a few of them."""

    def __init__(self, compiler: Compiler) -> None:
        """Compile nothing yet."""
        self._compiler = compiler
        self._selection = compiler.selection
        self._ranged = by_range(compiler.dialect, compiler.selection)
        self.dialect = compiler.dialect
        self._times: dict[int, tuple[TimeSlot, datetime, object]] = {}
        """The bounds on times that were encoded last, by their slots."""

    @property
    def lowest(self) -> object:
        """Return a value that sorts before what the position of every due row begins with."""
        return self._compiler.lowest()

    @cached_property
    def scopes(self) -> tuple[Statement, ...]:
        """Find the scopes beyond a cap per scope; then, if none of those has anything due, those where something is."""
        return self._compiler.scopes()

    @cached_property
    def scopes_behind(self) -> tuple[Statement, ...]:
        """Find the scopes beyond their cap that are behind one, by the walk that found it; none if they cannot be
        walked."""
        return self._compiler.scopes_behind()

    @cached_property
    def edged_scopes(self) -> tuple[Statement, ...]:
        """Find what the first of `scopes`, then `scopes_behind`, find, each scope with the position of its cap's edge
        and the number of transactions that had ended; none where an edge is not known (see `known_edge`)."""
        return () if self.known_edge is None else self._compiler.edged_scopes()

    @cached_property
    def candidates(self) -> Statement:
        """Find the keys of the oldest due rows, followed by their positions, both encoded."""
        return self._compiler.candidates()

    @cached_property
    def lock(self) -> Statement | None:
        """Lock the rows with some keys, and return their keys; None where the transaction has locked everything."""
        return self._compiler.lock("") if self.dialect.locks_rows else None

    @cached_property
    def lock_unlocked(self) -> Statement | None:
        """Lock them like `lock`, without the rows that others have locked."""
        return self._compiler.lock(" SKIP LOCKED") if self.dialect.locks_rows else None

    @cached_property
    def lock_spared(self) -> Statement | None:
        """Lock the newest rows in the scopes of rows with some keys against changes, and return their keys; None if the
        rule spares none, or where the transaction has locked everything."""
        spares = self._selection.rule.spare is not None
        return self._compiler.lock_spared() if self.dialect.locks_rows and spares else None

    @cached_property
    def lock_times(self) -> tuple[Statement, ...]:
        """Lock the rows of other tables that hold the times and windows of rows with some keys, so that they do not
        change; none where the transaction has locked everything."""
        lookups = self._selection.lookups if self.dialect.locks_rows else ()
        return tuple(self._compiler.lock_times(*one) for one in lookups)

    @cached_property
    def recheck(self) -> Statement:
        """Return which rows with some keys are due, oldest first, each with the number of rows that would leave with
        it, counted up to a limit for each follower."""
        return self._compiler.recheck()

    @cached_property
    def take(self) -> Statement:
        """Take the rows with some keys, if they are due."""
        return self._compiler.take()

    @cached_property
    def edge(self) -> Statement | None:
        """Find the position of the first row that a cap excludes, with the number of transactions that had ended if
        that counts them; None if `take_range` finds it itself."""
        return self._compiler.find_edge() if self._compiler.edge else None

    @cached_property
    def ends_at_edge(self) -> bool:
        """Return whether that is a position where a batch may end: not where texts of timestamps sort differently."""
        return self._compiler.ends_at_edge()

    @cached_property
    def known_edge(self) -> KnownEdgeStatements | None:
        """Take rows up to an edge that is known (PostgreSQL); None if they cannot be."""
        return self._compiler.known_edge() if self._compiler.edge and self.dialect.locks_rows else None

    @cached_property
    def unheld(self) -> RangeStatements | None:
        """Do what `batch_end` and `take_range` do, faster and with what follows the rows, if nothing is held; else take
        nothing.

        None on PostgreSQL, without Wane's own tables, and for rows that are taken by their keys only."""
        rows = self._compiler.rows
        by_position = self._ranged or takes_followers_by_range(rows, self._selection)
        return self._compiler.unheld() if by_position and rows.holds and not self.dialect.locks_rows else None

    @cached_property
    def batch_end(self) -> Statement | None:
        """Find the position of the last row of the batch, where `take_range` does not find it itself."""
        return self._compiler.batch_end() if self._ranged and not self.dialect.locks_rows else None

    @cached_property
    def take_range(self) -> Statement | None:
        """Take the oldest due rows up to the end of the batch; None if the rule's rows are taken by their keys only."""
        if not self._ranged:
            return None
        return self._compiler.take_oldest() if self.dialect.locks_rows else self._compiler.take_up_to()

    @cached_property
    def at_once(self) -> AtOnceStatements | None:
        """Take full batches without locking rows first; None if that is not safe."""
        return self._compiler.at_once() if takes_at_once(self.dialect, self._selection) else None

    @cached_property
    def slices(self) -> SliceStatements | None:
        """Walk the table by its key; None if the order of time decides what is due."""
        if isinstance(self._selection.rule.bound, Cap):
            return None
        return slice_statements(self._compiler.rows, self._selection)

    @cached_property
    def followers(self) -> tuple[FollowerStatements, ...]:
        """Return the statements of every follower, the deepest first."""
        return tuple(self._compiler.follower(path) for path in follower_paths(self._selection))

    def fill(
        self,
        statement: Statement,
        selection: Selection,
        now: datetime | None = None,
        **values: Unpack[SlotValues],
    ) -> Statement:
        """Fill the slots of a statement."""
        given: dict[str, Any] = {"scope": selection.scope, SCOPES.name: MOST_SCOPES, AHEAD.name: False, **values}
        keys = values.get("keys")
        source = statement if keys is None else self.dialect.fill_keys(statement, keys)
        filled = dict(source.parameters)
        for name, slot, group, number in statement.slots:
            if group == "keys" and keys is not None:
                continue
            if isinstance(slot, TimeSlot):
                assert now is not None
                filled[name] = self._time(slot, now)
            elif number is None:
                filled[name] = given[slot.name]
            elif parts := given.get(group):
                filled[name] = self.dialect.encoded(parts[number]) if group in ("scope", "behind") else parts[number]
            else:
                filled[name] = self._outermost(group, now) if number == 0 else None
        return Statement(source.text, filled)

    # As they run

    def scope_steps(self) -> Iterator[RunStep]:
        """Yield the statements that find the first scopes beyond a cap per scope."""
        for statement in self.edged_scopes[:1]:
            yield RunStep("find the scopes beyond the cap with their edges", statement, _IN_SWEEP)
        for statement in self.scopes[:1]:
            yield RunStep("find the scopes beyond the cap", statement, _IF_NO_SWEEP if self.edged_scopes else "")

    def range_steps(self) -> Iterator[RunStep]:
        """Yield the statements that take rows by their position."""
        when = ""
        if not self.dialect.locks_rows:
            yield RunStep("find where the cap ends, again once others have changed anything", self.edge)
        if self.unheld is not None:
            yield from self.unheld.steps()
            when = "if rows are held"
        yield RunStep("find where the batch ends", self.batch_end, when)
        if self.known_edge is not None:
            yield from self.known_edge.steps(None if self.edged_scopes else self.edge)
            when = "if others are active, or outside of a sweep"
        yield RunStep("take the batch", self.take_range, when)
        if self.edged_scopes:
            yield RunStep(
                "find where the cap ends", self.edge, "if a batch goes on in a scope that another did not begin"
            )
        if self.dialect.locks_rows:
            yield RunStep("find the oldest due rows", self.candidates, IF_LOCKED)
            yield RunStep("lock those that are free", self.lock_unlocked, IF_LOCKED)
            yield RunStep("take them", self.take, IF_LOCKED)

    def lock_steps(self, *, waiting: bool, when: str = "") -> Iterator[RunStep]:
        """Yield the statements that lock rows with some keys, and what holds their times."""
        if waiting:
            yield RunStep("lock them", self.lock, when)
        yield RunStep("lock those that are free", self.lock_unlocked, IF_LOCKED if waiting else when)
        for statement in self.lock_times:
            yield RunStep("lock what holds their times or windows", statement, when)

    def spared_steps(self, when: str = "") -> Iterator[RunStep]:
        """Yield the statement that locks the rows that the rule spares."""
        yield RunStep("lock the newest rows, which are spared, until two reads agree", self.lock_spared, when)

    def take_steps(self, table: TableInfo, when: str) -> Iterator[RunStep]:
        """Yield the statements that take rows with some keys, with what follows them."""
        for one in self.followers:
            yield from one.steps(when)
        yield RunStep("take them", self.take, when, table)

    def later_steps(self, selection: Selection) -> Iterator[RunStep]:
        """Yield the statements of later batches and other scopes, and those that walk the table by its key."""
        for number, statement in enumerate(self.edged_scopes[1:]):
            yield RunStep("find the next scopes with their edges", statement, _IF_NULL if number else _IN_SWEEP)
        outside = _IF_NO_SWEEP if self.edged_scopes else ""
        for number, statement in enumerate(self.scopes_behind):
            yield RunStep("find the next scopes", statement, outside or (_IF_NULL if number else ""))
        for statement in self.scopes[1:]:
            yield RunStep("find others", statement, "if nothing leaves")
        if self.at_once is not None:
            yield from self.at_once.steps(has_delete_triggers=selection.has_delete_triggers)
        kind = "postgres" if self.dialect.locks_rows else "sqlite"
        if self.slices is not None and not has_time_index(selection, self.dialect, kind):
            yield from self.slices.steps()
            if self.take_range is not None:
                yield RunStep("lock them", self.lock, IF_LARGE)
                yield RunStep("take them", self.take, IF_LARGE)

    def _time(self, slot: TimeSlot, now: datetime) -> object:
        """Return a bound on a time. All batches of a sweep have the same."""
        known = self._times.get(id(slot))
        if known is None or known[0] is not slot or known[1] != now:
            known = self._times[id(slot)] = slot, now, slot.value(now + slot.offset)
        return known[2]

    def _outermost(self, group: str, now: datetime | None) -> object:
        """Return where a position begins that is not given: no row has this value, so the rest does not count."""
        if group == "end":
            return None if now is None else self._compiler.highest(now)
        return self.lowest if group == "floor" else None


def scopes_of(
    rule: RuleStatements,
    selection: Selection,
    now: datetime,
    read: Callable[[Statement], Sequence[Scope]],
    floor: Scope | None = None,
    edges: dict[Scope, tuple[Any, ...]] | None = None,
) -> Iterator[Scope]:
    """Yield the scopes of a cap per scope that are beyond it, from the one in which the batch before ended.

    At most MOST_SCOPES are read. Where scopes cannot be walked, all of these are read at once, from the first one on.
    In `edges` it writes what `edged_scopes` returns beside each scope.
    """
    edged = () if edges is None else rule.edged_scopes
    first, *following = edged or (rule.scopes[0], *rule.scopes_behind)

    def find(behind: Scope | None, most: int) -> list[Scope]:
        text = first if behind is None else following[walk_of(selection, behind)]
        found = read(rule.fill(text, selection, now, scopes=most, behind=behind))
        width = len(selection.per)
        if edges is not None and edged:
            edges.update((one[:width], one[width:]) for one in found)
        return [one[:width] for one in found]

    return each_scope(find, floor) if rule.scopes_behind else iter(find(None, MOST_SCOPES))


def statements_of(rows: Rows, selection: Selection) -> RuleStatements:
    """Return the statements of a bound rule; they are compiled only once for it."""
    known = selection.compiled.get(rows.holds)
    if known is None:
        known = selection.compiled[rows.holds] = RuleStatements(Compiler(rows, selection))
    assert isinstance(known, RuleStatements)
    return known
