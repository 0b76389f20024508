"""Sweeping a rule: batch after batch until nothing is due or the budget is spent.

Each batch is one transaction that reads the gates, takes rows and adds to the rule's audit row. A sweep can stop
between any two batches: when it is requested to, when a gate closes, when its budget is spent, when another process
took over. A rule that fails, fails alone. What is due is decided once for a rule and a run, at its start: every batch,
and a later attempt of the same run, uses the cutoff that the audit row records.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from wane._contract.fingerprint import rule_fingerprint
from wane._contract.lookup import is_named
from wane._contract.model import Cap, Contract, Follower, Mark, Orphans, ReferencedBy, Rule, Table, ToArchive
from wane._contract.settings import Budget
from wane._db import Store
from wane._db.transaction import Transaction
from wane._findings import did_you_mean
from wane._leases import Fence
from wane._ledger import AuditEntry, Ledger
from wane._prune.admission import require_admin
from wane._prune.approval import check_fuse, record_swept
from wane._prune.batches import Batches, pass_gates
from wane._prune.binding import Bindings
from wane._prune.build_plan import action_name
from wane._prune.dialects import repeated_batches
from wane._prune.fuse import PROBE_SECONDS
from wane._prune.gates import closed_gate
from wane._prune.other_users import OtherUsers
from wane._prune.pace import Pace
from wane._prune.pacing import STOPPED, Closed, Stopped
from wane._prune.primitive import take_all_scopes, whoami
from wane._prune.sql_activity import activity_of
from wane._prune.sql_outbox import write_taken_event
from wane._prune.sql_walk import WalkCursors
from wane._prune.take import Batch, CapEdge, Position, Taken
from wane._rules.access import can_walk_by_key
from wane._rules.reads import any_due
from wane._rules.rows import cutoff
from wane._rules.selection import Selection
from wane.errors import LeaseLost, Locked, SchemaChanged, TimedOut, WaneError, WrongArgument
from wane.events import (
    BudgetExhausted,
    Listener,
    RowsArchived,
    RuleFailed,
    RuleSwept,
    WorkProgressed,
    hard_deleted,
    ignore_event,
)

if TYPE_CHECKING:
    from wane._prune.sql_batch_call import BatchCall
    from wane._prune.sql_batch_loop import BatchLoop

_PLANNED = "rows of the plan"
_ROWS_READ_WHILE_ONE_LEAVES = 5
_LOST = "lost its lease to another process"


def no_fence(transaction: Transaction) -> None:
    """Check nothing: a sweep by hand has no lease to lose."""


class Outcome(StrEnum):
    """How the sweep of a rule ended."""

    DONE = "done"
    BUDGET = "budget"
    STOPPED = "stopped"
    OFF = "off"
    FUSED = "fused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SweptRule:
    """What the sweep of one rule did."""

    table: str
    rule: str
    action: str
    outcome: Outcome
    counts: dict[str, int]
    batches: int
    seconds: float
    message: str = ""

    @property
    def rows(self) -> int:
        return sum(self.counts.values())

    @property
    def failed(self) -> bool:
        """Return whether it failed, or waits for approval."""
        return self.outcome in (Outcome.FAILED, Outcome.FUSED)


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep of some rules."""

    run: str
    rules: tuple[SweptRule, ...]

    @property
    def failed(self) -> bool:
        return any(rule.failed for rule in self.rules)


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """What a plan contains for one rule: the time that decides, and the most rows that may leave."""

    now: datetime
    rows: int


@dataclass(slots=True)
class Sweeper:
    """Sweeps the rules of one contract on one store."""

    store: Store
    contract: Contract
    actor: str = field(default_factory=whoami)
    listener: Listener = ignore_event
    pace: Pace = field(default_factory=Pace)
    unattended: bool = True
    """Whether the fuse stops rules that would take a large share of their table."""
    approved: Collection[str] = ()
    """Rules (`table.rule`), or all rules of a `table`, that may take any share regardless."""
    stop: threading.Event = field(default_factory=threading.Event)
    fence: Callable[[Transaction], None] = no_fence
    """Called inside every batch's transaction, before anything is taken; raises LeaseLost if another process may work
    now."""
    bindings: Bindings = field(init=False)
    others: OtherUsers = field(init=False)

    def __post_init__(self) -> None:
        self.bindings = Bindings(self.store, self.contract)
        self.others = OtherUsers(activity_of(self.store))

    def sweep(
        self,
        only: Collection[str] = (),
        *,
        budget: Budget | Mapping[str, int] | None = None,
        planned: dict[str, PlannedRows] | None = None,
        run: str | None = None,
    ) -> Sweep:
        """Sweep every rule, or those named `table` or `table.rule`, in the order of the contract.

        Under the name of an earlier `run`, continue that run: its audit rows are added to.
        """
        self.store.require_migrated()
        require_admin(self.store, self.contract)
        resumed = run is not None
        run = run or uuid.uuid4().hex
        swept = []
        rules = list(self._rules(only))
        for table, rule in rules if planned is None else _as_planned(rules):
            plan = None if planned is None else planned.get(f"{table.name}.{rule.name}")
            if planned is not None and plan is None:
                continue
            one = _RuleSweep(self, run, table, rule, _budget(rule, budget), plan, resumed=resumed)
            swept.append(one.run())
            if one.lost:
                break  # The other process sweeps the rest.
        return Sweep(run, tuple(swept))

    def _rules(self, only: Collection[str]) -> Iterator[tuple[Table, Rule]]:
        for table, rule in self.contract.rules():
            named = not only or is_named(only, table.name, rule.name)
            if named and not table.append_only and not isinstance(rule.action, ToArchive):
                yield table, rule


def _as_planned(rules: Sequence[tuple[Table, Rule]]) -> list[tuple[Table, Rule]]:
    """Sort rules so that none makes rows due for a later one: those rows were not in the plan."""
    left, ordered = list(rules), []
    while left:
        # In a cycle, the contract's order decides.
        first = next((one for one in left if not any(_frees(one, other) for other in left if other != one)), left[0])
        left.remove(first)
        ordered.append(first)
    return ordered


def _frees(one: tuple[Table, Rule], other: tuple[Table, Rule]) -> bool:
    """Check whether sweeping one rule can make rows due for another: by marking them, or by taking what saved them."""
    (table, rule), (their_table, their_rule) = one, other
    if isinstance(rule.action, Mark):
        return table == their_table and their_rule.selects(rule.action.state)
    loses = {table.name} | {follower.reference.table for follower in _walk(rule.followers)}
    bound = their_rule.bound
    if isinstance(bound, Orphans) and bound.missing is not None and bound.missing.table in loses:
        return True
    return any(isinstance(guard, ReferencedBy) and guard.reference.table in loses for guard in their_rule.guards)


def _walk(followers: Sequence[Follower]) -> Iterator[Follower]:
    for follower in followers:
        yield follower
        yield from _walk(follower.followers)


def _budget(rule: Rule, given: Budget | Mapping[str, int] | None) -> Budget:
    """Return the budget of a sweep: the rule's own, or what was given instead of it, or of some of its limits."""
    if isinstance(given, Budget):
        return given
    known = [one.name for one in fields(Budget)]
    for name in given or {}:
        if name not in known:
            raise WrongArgument(f"a budget has no {name!r}", did_you_mean(name, known) or f"it has {', '.join(known)}")
    return replace(rule.budget, **(given or {}))


def _least_size(rule: Rule) -> int:
    """Return the rows below which a batch takes hardly less time: one of a cap reads all rows that stay."""
    return rule.bound.most // _ROWS_READ_WHILE_ONE_LEAVES if isinstance(rule.bound, Cap) else 0


class _RuleSweep:
    """The sweep of one rule."""

    def __init__(
        self,
        sweeper: Sweeper,
        run: str,
        table: Table,
        rule: Rule,
        budget: Budget,
        planned: PlannedRows | None,
        *,
        resumed: bool = False,
    ) -> None:
        self.sweeper = sweeper
        self.run_id = run
        self.resumed = resumed
        self.table = table
        self.rule = rule
        self.budget = budget
        self.planned = planned
        self.now: datetime
        """The time that decides what is due, in every batch."""
        self.name = f"{table.name}.{rule.name}"
        self.action = action_name(rule)
        self.counts: Counter[str] = Counter({str(table.name): 0})
        """What this attempt took."""
        self.committed = 0
        """Batches of this attempt."""
        self.audit_id: int | None = None
        self.lost = False
        """Whether another process took over."""
        self.rebound = False
        """Whether the rule was bound again since the last batch, because the schema changed."""
        self.nothing_due = False
        """Whether the probe before the first batch found nothing: then the batch only records that in the audit
        trail."""
        self.approved_plan: str | None = None
        """The fingerprint of the approved plan that lets the rule take a share that the fuse would stop."""
        self.due: int | None = None
        """The rows of the table that are due; None if they were not counted."""
        self.too_little_left = False
        """Whether what is left of the budget is too little for the next row with its followers."""
        self.calling: tuple[Selection, BatchCall | BatchLoop | None] | None = None
        """What takes the batches of a bound rule in one call each, if they can be."""
        self.skip_locked = False
        """Whether batches skip rows that others have locked, because one met such rows or took too long."""
        self.edge: CapEdge | None = None
        """Where the cap's edge was in the batch before."""
        self.by_key = False
        """Whether batches walk the table by its key."""
        self.until: Position | None = None
        """The key with which the walk ends."""
        self.unwalked = False
        """Whether the walk began behind the first key, so that rows before it are still to be walked."""
        self.began = time.monotonic()

    def run(self) -> SweptRule:
        try:
            self.selection = self.sweeper.bindings.selection(self.table, self.rule)
            self.batches = self._begin()
            outcome, message = self._refused() or self._run()
            if self.committed:
                record_swept(
                    self.sweeper.store, str(self.table.name), self.rule.name, completed=outcome is Outcome.DONE
                )
        except Closed as closed:
            outcome, message = Outcome.OFF, str(closed)
        except LeaseLost:
            self.lost = True
            outcome, message = Outcome.STOPPED, _LOST
        except WaneError as problem:
            outcome, message = Outcome.FAILED, str(problem)
            self._emit_failure(message)
        swept = SweptRule(
            str(self.table.name),
            self.rule.name,
            self.action,
            outcome,
            dict(self.counts),
            self.committed,
            time.monotonic() - self.began,
            message,
        )
        for table, rows in swept.counts.items() if self.action == "prune" else ():
            if rows and self.sweeper.contract.events.emits_hard_deleted(table):
                self.sweeper.listener(hard_deleted(table, swept.rule, rows, self.audit_id))
        if self.action == "shelve" and swept.rows and self.sweeper.contract.events.emits_archived(swept.table):
            moved = dict(swept.counts)
            self.sweeper.listener(RowsArchived(swept.table, swept.rule, self.audit_id or 0, moved, moved, 0))
        self.sweeper.listener(
            RuleSwept(
                self.table.scheduler,
                swept.table,
                swept.rule,
                self.table.label(self.rule),
                self.action,
                swept.counts,
                swept.batches,
                swept.seconds,
                outcome.value,
            )
        )
        return swept

    def _begin(self) -> Batches:
        """Fix the time that decides what is due, and read the audit row of an earlier attempt of this run."""
        sweeper = self.sweeper
        self.now = sweeper.store.now() if self.planned is None else self.planned.now
        earlier = None
        if self.resumed:
            own = Ledger(sweeper.store.dialect, sweeper.store.reader(PROBE_SECONDS))
            earlier = own.entry_of_run(self.run_id, str(self.table.name), self.rule.name)
        ending = cutoff(self.rule, self.now)
        if earlier is not None and ending is not None and earlier.cutoff is not None:
            # Never later than now: the window may have become longer since that attempt.
            self.now = min(self.now, earlier.cutoff + (self.now - ending))
        audit = AuditEntry.begun(
            self.action,
            str(self.table.name),
            sweeper.actor,
            self._inputs(),
            self.now,
            rule=self.rule.name,
            run=self.run_id,
            cutoff=cutoff(self.rule, self.now),
            counts=None if earlier is None else earlier.counts,
            number=None if earlier is None else earlier.id,
        )
        return Batches(
            sweeper.store,
            sweeper.pace,
            audit,
            lambda transaction: pass_gates(transaction, self.selection, sweeper.contract.sweep, sweeper.fence),
            sweeper.stop,
            sweeper.listener,
            self.table.scheduler,
            self.table.label(self.rule),
            others=sweeper.others,
            least_size=_least_size(self.rule),
            retry_seconds=sweeper.pace.pause_seconds(sweeper.pace.target_seconds),
        )

    def _inputs(self) -> dict[str, object]:
        inputs: dict[str, object] = {
            "rule": self.rule.name,
            "promise": rule_fingerprint(self.rule),
            "budget": self.budget.rows,
            "sweep": True,
        }
        return inputs if self.approved_plan is None else {**inputs, "plan": self.approved_plan}

    def _approval(self) -> str:
        """Return what a sweep of the rest needs if this one was approved for itself only, and may have left much."""
        if not is_named(self.sweeper.approved, self.table.name, self.rule.name):
            return ""
        return f", approved too if more than {self.sweeper.contract.sweep.fuse:.0%} of the table is due then"

    def _emit_failure(self, message: str) -> None:
        label = self.table.label(self.rule)
        self.sweeper.listener(RuleFailed(self.table.scheduler, str(self.table.name), self.rule.name, label, message))

    def _refused(self) -> tuple[Outcome, str] | None:
        """Return why the rule is not swept at all: its gate is closed, or a user should review its share first."""
        if self.sweeper.stop.is_set():
            return Outcome.STOPPED, STOPPED
        # Read without a transaction: this check waits for no writer. Every batch checks again.
        own = Ledger(self.sweeper.store.dialect, self.sweeper.store.reader(PROBE_SECONDS))
        closed = closed_gate(own.flags(), self.table.name, self.sweeper.contract.sweep)
        if closed:
            return Outcome.OFF, closed
        named = is_named(self.sweeper.approved, self.table.name, self.rule.name)
        attended = not self.sweeper.unattended or named or self.planned is not None
        if attended or self.action == "mark":
            return None
        requested, approval = check_fuse(self.sweeper.store, self.sweeper.contract, self.selection, self.now)
        if requested.blown:
            return Outcome.FUSED, requested.blown
        self.nothing_due, self.due = requested.nothing_due, requested.due
        if approval is not None:
            self.approved_plan, self.planned = approval.plan, PlannedRows(approval.planned_at, approval.rows)
            self.batches = self._begin()
        return None

    def _run(self) -> tuple[Outcome, str]:
        """Run batch after batch until nothing is due, a stop is requested, or the budget is spent."""
        due = self.due if self.planned is None else self.planned.rows
        of = None if due is None else min(due, self.budget.rows)
        self.sweeper.listener(WorkProgressed("sweep", str(self.table.name), self.rule.name, "row", 0, of))
        floor = self._begin_walk(by_key=self._walks_by_key())
        while True:
            spent = self._spent()
            if spent and self.committed:
                if spent == _PLANNED or not self._has_more(floor):
                    return Outcome.DONE, ""
                self._emit_budget(spent)
                rest = f"the rest leaves with the next sweep{self._approval()}; to take more in one, raise `{spent}` of its budget"
                return Outcome.BUDGET, f"the budget of {spent} is spent; {rest}"
            try:
                taken = self.batches.attempt(partial(self._batch, floor), self._may_retry)
            except Stopped:
                return Outcome.STOPPED, STOPPED
            except SchemaChanged as problem:
                self._rebind(problem)
                floor = self._begin_walk(by_key=self._walks_by_key())
                continue
            except (Locked, TimedOut) as problem:
                if self._takes_too_long(problem):
                    floor = self._begin_walk(by_key=True)
                elif not self._has_spent():
                    raise _failed(problem, self.batches.size)  # noqa: B904
                continue
            floor = taken.floor
            self.batches.adapt(self.batches.size if self.by_key else None)
            if taken.done and not self.unwalked:
                return Outcome.DONE, ""
            if taken.done:
                self.unwalked, floor = False, None
            self.batches.pause()

    def _walks_by_key(self) -> bool:
        return self.sweeper.bindings.walks_by_key(self.table, self.rule)

    def _begin_walk(self, *, by_key: bool) -> Position | None:
        """Return where the first batch begins: with the oldest row, or with the key where the walk before ended."""
        self.by_key = by_key
        floor = self.until = None
        if by_key and not self.nothing_due:
            store = self.sweeper.store
            floor, self.until = WalkCursors(store.dialect, store.reader(PROBE_SECONDS)).of(self.selection)
        self.unwalked = floor is not None
        return floor

    def _takes_too_long(self, problem: Locked | TimedOut) -> bool:
        """Check whether not even the smallest batch is found in time: the query plan was wrong about its index."""
        smallest = self.batches.size <= self.sweeper.pace.least_batch
        return isinstance(problem, TimedOut) and smallest and not self.by_key and can_walk_by_key(self.selection)

    def _has_more(self, floor: Position | None) -> bool:
        """Check whether another batch would find anything: a budget that was just enough is not exhausted."""
        if self.by_key:
            return True  # Unknown until the walk ends.
        try:
            return any_due(self.sweeper.store, self.selection, self.now, floor, PROBE_SECONDS)
        except (Locked, TimedOut):
            return True

    def _rebind(self, problem: SchemaChanged) -> None:
        """Bind the rule to the schema as it is now; raise BindError if it must not take rows any more."""
        if self.rebound:
            raise problem
        self.rebound = True
        self.selection, self.edge = self.sweeper.bindings.rebind(self.table, self.rule), None

    def _batch(self, floor: Position | None) -> Taken:
        next_batch = self._next_batch(floor)
        taken = self._call(next_batch) or self._run_batch(next_batch)
        self.edge = taken.edge
        self.until = None if taken.done else taken.until
        self._count(taken.counts)
        return taken

    def _count(self, counts: dict[str, int]) -> None:
        self.committed += 1
        self.rebound = False
        self.counts.update(counts)

    def _call(self, batch: Batch) -> Taken | None:
        """Take one or more batches in one call; None if the batch is to be taken statement by statement."""
        if batch.skip_locked or batch.limit <= 0 or batch.slice_rows or not self._may_call(batch):
            return None
        if self.calling is None or self.calling[0] is not self.selection:
            self.calling = self.selection, self._batch_call()
        call = self.calling[1]
        found = None if call is None else call.take(self.batches.audit, batch, self._most_batches(batch))
        if found is None:
            return None
        self.too_little_left = False
        taken, self.audit_id = found.batches, found.audit_id
        for one in taken[:-1]:
            self.batches.add(found.audit_id, one.counts, one.seconds)
            self.batches.emit()
            self._count(one.counts)
        # What interrupted a batch or two of several means nothing for the next ones.
        middle = median(one.seconds for one in taken)
        self.batches.add(found.audit_id, taken[-1].counts, taken[-1].seconds, middle)
        return Taken(taken[-1].counts, found.floor, done=found.done, edge=found.edge)

    def _may_call(self, batch: Batch) -> bool:
        """Return whether calls are worth what preparing them takes: not for what one batch may take.

        A sweep of which nothing was counted expects that many rows of a large table are due. How many rows fit into a
        call with their followers is known only after the first batch.
        """
        if self.audit_id is not None or self.selection.followers:
            return self.audit_id is not None
        known = self.due if self.planned is None else self.planned.rows
        expected = self.selection.table.rows_estimate if known is None else known
        return not self.nothing_due and expected is not None and expected > batch.limit

    def _most_batches(self, batch: Batch) -> int:
        """Return how many batches of this size fit into the budget and the plan, where the sweep does not pause."""
        if self.sweeper.pace.pauses:
            return 1
        left = (self.budget.rows - self.counts.total()) // batch.most
        if self.planned is not None:
            left = min(left, (self.planned.rows - self.counts[str(self.table.name)]) // batch.limit)
        return max(1, min(left, self.budget.batches - self.committed))

    def _batch_call(self) -> BatchCall | BatchLoop | None:
        sweeper, fence = self.sweeper, self.sweeper.fence
        fenced = fence is no_fence or isinstance(fence, Fence)
        # Events are written with the client's values.
        if not fenced or sweeper.contract.events.outbox is not None:
            return None
        settings, lease = sweeper.contract.sweep, fence if isinstance(fence, Fence) else None
        return repeated_batches(sweeper.store, self.selection, self.now, settings, lease)

    def _run_batch(self, next_batch: Batch) -> Taken:
        with self.batches.open() as batch:
            taken = self._take(batch.transaction, next_batch)
            batch.record(taken.counts)
            write_taken_event(self.sweeper.store, batch.transaction, self.sweeper.contract.events, batch.entry)
        self.audit_id = batch.audit_id
        return taken

    def _next_batch(self, floor: Position | None) -> Batch:
        """Limit a batch by the budget, followers included, and by the plan, which counts the rule's own rows."""
        size = self.batches.size
        left = self.budget.rows - self.counts.total()
        most = max(1, min(size, left))
        # What is left of a budget is not spent on some followers of a row that stays until the next sweep.
        whole = left < size and bool(self.counts.total())
        limit = most
        if self.planned is not None:
            limit = min(most, self.planned.rows - self.counts[str(self.table.name)])
        return Batch(
            self.selection,
            self.now,
            limit,
            most,
            floor,
            self.skip_locked,
            whole,
            size if self.by_key else 0,
            swept=True,
            followers=self._followers(),
            edge=self.edge,
            until=self.until,
        )

    def _followers(self) -> float | None:
        own = self.counts[str(self.table.name)]
        return self.counts.total() / own - 1 if own else None

    def _take(self, transaction: Transaction, batch: Batch) -> Taken:
        if batch.limit <= 0 or self.nothing_due:
            # Recorded in the audit trail, like every sweep that took nothing.
            return Taken({}, batch.floor, done=True)
        taken = take_all_scopes(transaction, batch)
        if self.by_key:
            self._move_cursor(transaction, taken)
        self.too_little_left = batch.whole and not taken.done and not any(taken.counts.values())
        return taken

    def _move_cursor(self, transaction: Transaction, taken: Taken) -> None:
        cursors = WalkCursors(transaction.dialect, transaction.execute)
        if taken.done:
            cursors.forget(self.selection)
        elif taken.floor is not None:
            cursors.move(self.selection, taken.floor, taken.until, self.now)

    def _spent(self) -> str:
        if self.planned is not None and self.counts[str(self.table.name)] >= self.planned.rows:
            return _PLANNED
        if self.counts.total() >= self.budget.rows or self.too_little_left:
            return "rows"
        if self.committed >= self.budget.batches:
            return "batches"
        return "seconds" if time.monotonic() - self.began >= self.budget.seconds else ""

    def _has_spent(self) -> bool:
        """Check whether a budget ends the sweep, which has recorded at least one batch."""
        return bool(self.committed and self._spent())

    def _may_retry(self, problem: Locked | TimedOut) -> bool:
        """Check whether a smaller batch, which skips locked rows from now on, may succeed."""
        can_skip = not isinstance(self.rule.bound, Cap)
        if self.batches.size <= self.sweeper.pace.least_batch and (self.skip_locked or not can_skip):
            return False
        if self._takes_too_long(problem) or self._has_spent():
            return False
        self.skip_locked = can_skip
        return True

    def _emit_budget(self, spent: str) -> None:
        label = self.table.label(self.rule)
        self.sweeper.listener(BudgetExhausted(self.table.scheduler, str(self.table.name), self.rule.name, label, spent))


def _failed(problem: Locked | TimedOut, size: int) -> Locked | TimedOut:
    """Return the error of a sweep that gives up; one without an index for its guards or followers is the usual
    cause."""
    if isinstance(problem, Locked):
        return problem
    failed = TimedOut(
        f"a batch of {size} rows did not finish in its time; nothing of it was taken",
        "`wane check --cover` prints the indexes that are missing",
    )
    failed.__cause__ = problem
    return failed
