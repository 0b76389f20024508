"""Conversion from a partitioned table back to a plain one.

The swap back takes milliseconds, whatever the partitions hold; then rows that came since are moved into the table in
small batches, while the application runs. A conversion that has not swapped yet is simply taken back.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from wane._db.statement import Execute
from wane._leases import Lease
from wane._partition.anatomy import Anatomy, AnatomyKey, anatomy_from
from wane._partition.journal import COPYING_FACTS, Change, PartitionJournal
from wane._partition.model import PartitionDone
from wane._partition.sql_steps import Note
from wane._partition.table import PartitionTarget
from wane._partition.work import PartitionWork
from wane._prune.pacing import Stopped
from wane.errors import Locked, PartitionError, TimedOut


@dataclass(frozen=True, slots=True)
class Undoer:
    """Makes tables of one contract plain again."""

    work: PartitionWork

    def undo(self, target: PartitionTarget) -> PartitionDone:
        """Make a table plain, after those that were partitioned along; resume where an earlier attempt ended."""
        work, began = self.work, time.monotonic()
        work.store.require_migrated()
        self._require_whole(target)
        ways = []
        for one in (*work.followers(target), target):
            with work.leased(one) as lease:
                way = _Undo(work, one, lease)
                ways.append(way)
                way.run(required=one is target and not any(other.did != "nothing" for other in ways[:-1]))
            if way.stopped:
                break
        return work.done(
            target,
            ways[-1].did,
            began,
            partitions=tuple(name for way in ways for name in way.gone),
            rows=sum(way.rows for way in ways),
            stopped=any(way.stopped for way in ways),
            problems=tuple(problem for way in ways for problem in way.problems),
        )

    def _require_whole(self, target: PartitionTarget) -> None:
        """Raise if months are in quarantine or being retired: a plain table could not take them back."""
        with self.work.steps.journaling() as journal:
            leaving, quarantined = (
                journal.retired(target.full, "detaching"),
                journal.retired(target.full, "quarantined"),
            )
        if leaving:
            raise PartitionError(
                f"a partition of {target.name} is being retired", "`wane partition retire` finishes that first"
            )
        if quarantined:
            raise PartitionError(
                f"{', '.join(one.partition for one in quarantined)} of {target.name} {'is' if len(quarantined) == 1 else 'are'} in quarantine,"
                " and could not be merged into a plain table",
                f"`wane partition undo {target.name} --reattach` puts them back first; or wait until they are dropped",
            )


class _Undo:
    """One table, under a lease."""

    def __init__(self, work: PartitionWork, target: PartitionTarget, lease: Lease) -> None:
        self.work = work
        self.store = work.store
        self.steps = work.steps
        self.target = target
        self.lease = lease
        self.did = "nothing"
        self.gone: list[str] = []
        self.rows = 0
        self.stopped = False
        self.problems: list[str] = []

    def run(self, *, required: bool) -> None:
        change = self._change()
        if change is None:
            if required:
                raise PartitionError(f"{self.target.name} was not partitioned by Wane", "there is nothing to undo")
            return
        a = anatomy_from(change.facts["anatomy"])
        if change.kind == "convert" and change.state not in ("swapped", "done"):
            self._take_back(a)
            return
        if change.kind == "split":
            change = self._unsplit(a, change)
        if change.kind != "undo":
            self._swap_back(a, change)
            change = self._change()
            assert change is not None
        self.did = "undone"
        if change.state == "merging":
            self._merge(a, change.facts)
        if not self.stopped:
            self._restore(a)

    def _change(self) -> Change | None:
        return self.work.change(self.target)

    def _emit(self, step: str, began: float, partition: str | None = None) -> None:
        self.work.emit(self.target, step, began, partition)

    def _note(self, state: str, facts: dict[str, Any]) -> Note:
        return self.work.noted(self.target, self.lease, "undo", state, facts)

    def _take_back(self, a: Anatomy) -> None:
        """Remove what was prepared for a conversion that has not swapped yet."""
        began = time.monotonic()
        note = self.work.noted(self.target, self.lease, "convert", "planned", {"anatomy": a.as_json()})
        self.steps.discard(a, note, self.target.patience)
        self.steps.drop_own_indexes(a)
        self._forget()
        self.did = "rolled back"
        self._emit("rolled back", began)

    def _unsplit(self, a: Anatomy, change: Change) -> Change:
        """Discard an unfinished copy into months."""
        facts = {key: value for key, value in change.facts.items() if key not in COPYING_FACTS}
        note = self.work.noted(self.target, self.lease, "convert", "done", facts)
        self.steps.discard_split(a, change.facts["old"], note, self.target.patience)
        found = self._change()
        assert found is not None
        return found

    def _forget(self) -> None:
        with self.store.transaction() as transaction:
            self.work.require(self.lease, transaction.execute)
            PartitionJournal(transaction.execute).forget(self.target.full)

    def _swap_back(self, a: Anatomy, change: Change) -> None:
        began = time.monotonic()

        def note(run: Execute, filled: list[str], inbound: list[AnatomyKey]) -> None:
            keys = {(key.table, key.name): key for key in (*a.broken_keys, *inbound)}
            facts = {**change.facts, "filled": filled, "restore": [asdict(key) for key in keys.values()]}
            self._note("merging", facts)(run)

        self.steps.swap_back(a, change.facts["old"], note, self.target.patience)
        self._emit("swapped back", began)

    def _merge(self, a: Anatomy, facts: dict[str, Any]) -> None:
        for leaf in facts["filled"]:
            began = time.monotonic()
            try:
                self._merge_leaf(a, leaf, self._note("merging", facts))
            except Stopped:
                self.stopped = True
                return
            self.gone.append(leaf)
            self._emit("merged", began, leaf)
        keys = [AnatomyKey(**key) for key in facts["restore"]]
        self.steps.restore_keys(a, keys, self._note("restored", facts), self.target.patience)

    def _merge_leaf(self, a: Anatomy, leaf: str, note: Note) -> None:
        """Move the rows of a partition into the table, and drop it."""
        patience, pacing = self.target.patience, self.work.pacing(self.target)
        while True:
            # A merge has retried its locks already, as long as the contract specifies.
            moved = pacing.run(lambda size: self.steps.merge(a, leaf, size, patience), _took_too_long)
            self.rows += moved
            if not moved and self.steps.drop_merged(a, leaf, note, patience):
                return

    def _restore(self, a: Anatomy) -> None:
        began = time.monotonic()
        self.problems += self.steps.validate_keys(a)
        self.steps.drop_own_indexes(a)
        self.steps.analyze(a.table)
        self._forget()
        self._emit("plain", began)


def _took_too_long(problem: Locked | TimedOut) -> bool:
    return isinstance(problem, TimedOut)
