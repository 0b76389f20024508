"""A table whose months leave: what its rules require of a month's rows, and what the journal records of each month.

Rows are checked against the rules' own conditions; a row that none of them lets leave retains its month.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from wane._archive.journal import Journal
from wane._contract.duration import Forever
from wane._contract.model import Prune, Retired, ToArchive, ToColdTier
from wane._db.statement import Execute
from wane._leases import Lease
from wane._ledger import Ledger
from wane._partition.anatomy import Anatomy
from wane._partition.journal import PartitionJournal, Retirement
from wane._partition.records import Leaf, Range
from wane._partition.sql_retire import Weight
from wane._partition.sql_steps import Note
from wane._partition.table import PartitionTarget
from wane._partition.work import PartitionWork
from wane._prune.binding import Bindings
from wane._prune.gates import append_only_gate, closed_gate
from wane._prune.pacing import Closed
from wane._rules.selection import Selection


@dataclass(frozen=True, slots=True)
class RetiringTable:
    """One table, under a lease; without one, read-only."""

    work: PartitionWork
    target: PartitionTarget
    lease: Lease | None
    anatomy: Anatomy
    selections: tuple[Selection, ...]
    """The rules under which rows leave with their month."""
    followers: tuple[PartitionTarget, ...]
    """The tables that are partitioned along with it."""
    now: datetime
    """The database's clock when this began: it decides what is due until the end, however long that takes."""

    @classmethod
    def unbound(cls, work: PartitionWork, target: PartitionTarget, lease: Lease | None) -> RetiringTable:
        """Build this for a table without its rules; raise if it is not partitioned."""
        return cls(work, target, lease, work.anatomy(target), (), tuple(work.followers(target)), work.store.now())

    @classmethod
    def of(cls, work: PartitionWork, target: PartitionTarget, lease: Lease | None) -> RetiringTable:
        """Build this for a table; raise if it is not partitioned, or its rules do not fit the database."""
        assert target.declared is not None
        kinds = (Prune, ToColdTier) if target.settings.then is Retired.MOVE else (Prune,)
        bindings = Bindings(work.store, work.contract)
        selections = tuple(
            bindings.selection(target.declared, rule)
            for rule in target.declared.rules
            if rule.active and isinstance(rule.action, kinds)
        )
        return replace(cls.unbound(work, target, lease), selections=selections)

    @property
    def name(self) -> str:
        return str(self.target.name)

    @property
    def then(self) -> Retired:
        return self.target.settings.then

    # Deciding

    @property
    def cutoff(self) -> datetime | None:
        """Return the time by which a month must have ended to be past its time; None if months stay forever."""
        keep = self.target.settings.keep
        return None if isinstance(keep, Forever) else self.now - keep

    def closed(self) -> str:
        """Report why nothing of the table may leave now; "" if it may."""
        target = self.target
        if target.declared is None or target.declared.append_only:
            return append_only_gate(target.name)
        with self.work.store.snapshot() as transaction:
            return closed_gate(Ledger.of(transaction).flags(), target.name, self.work.contract.sweep)

    def require_open(self) -> None:
        """Raise Closed if nothing of the table may leave now."""
        closed = self.closed()
        if closed:
            raise Closed(closed)

    def hindered(self, leaf: Leaf) -> str:
        """Report why a partition can never be retired, whatever its rows; "" if it can."""
        return self.work.steps.hindrance(self.anatomy, leaf) if self.anatomy.by_application else ""

    def weigh(self, table: str, seconds: float | None = None) -> Weight:
        """Count the rows of a partition, and those that must stay; raise TimedOut if that takes longer."""
        return self.work.steps.weigh(table, self.selections, self.now, seconds)

    def why(self, weight: Weight) -> str:
        """Report why a month stays; "" if it may leave."""
        with self.work.store.snapshot() as transaction:
            sweep = Journal(transaction).unfinished(self.name)
        if sweep is not None:
            return f"sweep {sweep.id} of its archive is unfinished: `wane archive run` finishes it"
        if self.then is Retired.ARCHIVE:
            return f"{weight.rows:,} of its rows are not in the archive yet" if weight.rows else ""
        return self.staying(weight)

    def staying(self, weight: Weight) -> str:
        """Report what keeps rows of a month; "" if nothing does."""
        if not weight.staying:
            return ""
        reasons = [f"{weight.held:,} held"] if weight.held else []
        other = weight.staying - weight.held
        if other > 0:
            reasons.append(f"{other:,} that no rule lets go now, by state, age or guard")
        assert self.target.declared is not None
        if any(isinstance(rule.action, ToArchive) for rule in self.target.declared.rules):
            reasons.append('rows of a rule that archives leave through the archive: then = "archive"')
        return f"{weight.staying:,} of its {weight.rows:,} rows must stay: {'; '.join(reasons)}"

    # Followers

    def follower(self, taken: dict[str, Any]) -> tuple[PartitionTarget, Range]:
        """Return the table and the range of a follower's month that was taken along."""
        target = next(one for one in self.followers if str(one.name) == taken["table"])
        return target, Range(taken["lower"], taken["upper"])

    def anatomy_of(self, follower: PartitionTarget) -> Anatomy:
        """Return the anatomy of a table that is partitioned along."""
        return self.work.anatomy(follower, self.target)

    # The journal

    def require(self, run: Execute) -> None:
        """Raise unless the lease is still held, and keep it held until the transaction has ended."""
        assert self.lease is not None
        self.work.require(self.lease, run)

    def noted(self, begun: Retirement, location: str | None, along: list[dict[str, Any]]) -> Note:
        """Return what writes, in the transaction of a step, what was taken along so far and where the month itself is.

        `location` None: the month is where it was.
        """

        def note(run: Execute) -> None:
            self.require(run)
            moved: dict[str, Any] = {} if location is None else {"place": location}
            PartitionJournal(run).move(begun.id, "detaching", along=along, **moved)

        return note

    def note(self, begun: Retirement, along: list[dict[str, Any]]) -> None:
        with self.work.store.transaction() as transaction:
            self.noted(begun, None, along)(transaction.execute)

    def audit(
        self, own: Ledger, kind: str, begun: Retirement, counts: dict[str, int], cutoff: datetime | None = None
    ) -> int:
        """Record a month in the audit trail; return the number of the entry."""
        inputs = {
            "partition": begun.partition,
            "from": begun.range.lower,
            "to": begun.range.upper,
            "then": self.then.value,
        }
        now = self.work.store.now()
        return own.note(kind, self.name, self.work.actor, inputs, now, counts=counts, cutoff=cutoff)

    def emit(self, step: str, partition: str, began: float) -> None:
        self.work.emit(self.target, step, began, partition)
