"""A table whose months leave: what its rules say of a month's rows, and what is noted of each month.

Rows are weighed by the rules' own conditions; a row that none of them lets go keeps its month.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wane.contract.model import Archive, Forever, Prune, Retired, Shelve
from wane.partition.lease import require
from wane.partition.place import Place
from wane.partition.work import Work
from wane.prune.binding import Bindings
from wane.prune.gates import closed_gate
from wane.store.archive_journal import Journal
from wane.store.own import AuditEntry, Execute, OwnTables
from wane.store.partitions import Range
from wane.store.postgres.partition_anatomy import Anatomy, anatomy_from
from wane.store.postgres.partition_journal import PartitionJournal, Retirement
from wane.store.postgres.partition_retire import Weight
from wane.store.postgres.partition_steps import Note
from wane.store.selection import Selection
from wane.store.timetable import Lease

_UNDER_WAY = ("detaching", "quarantined")


@dataclass(frozen=True, slots=True)
class Leaving:
    """One table, under a lease; without one, only looking."""

    work: Work
    place: Place
    lease: Lease | None
    anatomy: Anatomy
    selections: tuple[Selection, ...]
    """The rules that let rows go with their month."""
    now: datetime
    """The database's clock when this began: what is due is decided by it until the end, however long that takes."""

    @classmethod
    def of(cls, work: Work, place: Place, lease: Lease | None) -> Leaving:
        """A table's months, if it has some; raise if it was not partitioned."""
        anatomy = anatomy_from(work.partitioned(place).facts["anatomy"])
        assert place.declared is not None
        kinds = (Prune, Shelve) if place.settings.then is Retired.MOVE else (Prune,)
        bindings = Bindings(work.store, work.contract)
        selections = tuple(
            bindings.selection(place.declared, rule)
            for rule in place.declared.rules
            if rule.active and isinstance(rule.action, kinds)
        )
        return cls(work, place, lease, anatomy, selections, work.store.now())

    @property
    def name(self) -> str:
        return str(self.place.name)

    @property
    def then(self) -> Retired:
        return self.place.settings.then

    # Deciding

    @property
    def cutoff(self) -> datetime | None:
        """A month that ended by then is past its time; None if months stay forever."""
        keep = self.place.settings.keep
        return None if isinstance(keep, Forever) else self.now - keep

    def closed(self) -> str:
        """Why nothing of the table may leave now; "" if it may."""
        place = self.place
        if place.declared is None or place.declared.append_only:
            return f"{place.name} is append-only: only an explicit prune takes rows from it"
        with self.work.store.transaction() as transaction:
            return closed_gate(transaction.own.flags(), place.name, self.work.contract.sweep)

    def weigh(self, table: str) -> Weight:
        return self.work.steps.weigh(table, self.selections, self.now)

    def why(self, weight: Weight) -> str:
        """Why a month stays; "" if it may go."""
        with self.work.store.transaction() as transaction:
            sweep = Journal(transaction, self.work.store.timetable).unfinished(self.name)
        if sweep is not None:
            return f"sweep {sweep.id} of its archive is unfinished: `wane archive run` finishes it"
        if self.then is Retired.ARCHIVE:
            return f"{weight.rows:,} of its rows are not in the archive yet" if weight.rows else ""
        return self.staying(weight)

    def staying(self, weight: Weight) -> str:
        """What keeps rows of a month; "" if nothing does."""
        if not weight.staying:
            return ""
        reasons = [f"{weight.held:,} held"] if weight.held else []
        other = weight.staying - weight.held
        if other > 0:
            reasons.append(f"{other:,} that no rule lets go now, by state, age or guard")
        assert self.place.declared is not None
        if any(isinstance(rule.action, Archive) for rule in self.place.declared.rules):
            reasons.append('rows of a rule that archives leave through the archive: then = "archive"')
        return f"{weight.staying:,} of its {weight.rows:,} rows must stay: {'; '.join(reasons)}"

    # Followers

    def follower(self, taken: dict[str, Any]) -> tuple[Place, Range]:
        """The table, and the range, of a follower's month that was taken along."""
        place = next(one for one in self.work.followers(self.place) if str(one.name) == taken["table"])
        return place, Range(taken["lower"], taken["upper"])

    def anatomy_of(self, follower: Place) -> Anatomy:
        """What a table consists of that is partitioned along."""
        return anatomy_from(self.work.partitioned(follower, lead=self.place).facts["anatomy"])

    # The journal

    def require(self, run: Execute) -> None:
        """Raise unless the lease is still held, and keep it until the transaction has ended."""
        assert self.lease is not None
        require(self.work.store, self.lease, run)

    def noted(self, begun: Retirement, place: str | None, along: list[dict[str, Any]] | None) -> Note:
        """Writes what was taken along so far, and where the month itself is, in the transaction that did it; None: where it was."""

        def note(run: Execute) -> None:
            self.require(run)
            journal = PartitionJournal(run)
            now = place
            if place is None:
                now = next(
                    (one.place for one in journal.retired(self.place.full, *_UNDER_WAY) if one.id == begun.id), None
                )
            journal.move(begun.id, "detaching", place=now, along=along)

        return note

    def note(self, begun: Retirement, along: list[dict[str, Any]]) -> None:
        with self.work.store.transaction() as transaction:
            self.noted(begun, None, along)(transaction.execute)

    def audit(
        self, own: OwnTables, kind: str, begun: Retirement, counts: dict[str, int], cutoff: datetime | None = None
    ) -> int:
        """A row of the trail about a month; its number."""
        return own.record(
            AuditEntry(
                kind=kind,
                table=self.name,
                actor=self.work.actor,
                inputs={
                    "partition": begun.partition,
                    "from": begun.range.lower,
                    "to": begun.range.upper,
                    "then": self.then.value,
                },
                counts=counts,
                executed_at=self.work.store.now(),
                cutoff=cutoff,
            )
        )

    def tell(self, step: str, partition: str, began: float) -> None:
        self.work.tell(self.place, step, began, partition)
