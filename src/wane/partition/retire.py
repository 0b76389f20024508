"""Retention by the month: a partition all of whose rows may leave is taken off, kept aside for a while, then dropped; or moved, or archived first.

A partition with one row that must stay is not retired, and says why. Rows are weighed by the rules' own conditions before the partition is taken
off, again when nobody can change it any more, and holds once more before it is dropped.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from wane.contract.model import Archive, Contract, Forever, Mark, Prune, Retired, Shelve
from wane.errors import PartitionError, StoreError
from wane.events import Listener, PartitionStep, RowsPruned, hard_deleted
from wane.partition.lease import leased, require
from wane.partition.model import Retiring
from wane.partition.place import Place, followers_of, place_of
from wane.prune.admission import require_admin
from wane.prune.binding import Bindings
from wane.prune.gates import closed_gate
from wane.prune.pace import Pace
from wane.store import Store
from wane.store.archive_journal import Journal
from wane.store.own import AuditEntry, Execute, OwnTables
from wane.store.partitions import MAX, MIN, Leaf, Range
from wane.store.postgres.partition import PostgresPartitions
from wane.store.postgres.partition_anatomy import Anatomy, anatomy_from, quote
from wane.store.postgres.partition_journal import PartitionJournal, Retirement
from wane.store.postgres.partition_retire import Weight, aside_name, own_place, paths_of
from wane.store.postgres.partition_statements import early_name
from wane.store.postgres.partition_statements import place as placed
from wane.store.postgres.partition_steps import Note
from wane.store.selection import BoundFollower, Selection
from wane.store.timetable import Lease

Archiving = Callable[[str], None]
"""Moves the due rows of a table to the archive; raises if that fails."""
_UNDER_WAY = ("detaching", "quarantined")


class Retirer:
    """Retires partitions of tables of one contract."""

    def __init__(
        self,
        store: Store,
        contract: Contract,
        steps: PostgresPartitions,
        *,
        actor: str,
        listener: Listener,
        archiving: Archiving,
        pace: Pace,
        stop: threading.Event,
    ) -> None:
        self.store = store
        self.contract = contract
        self.steps = steps
        self.actor = actor
        self.listener = listener
        self.archiving = archiving
        self.pace = pace
        self.stop = stop
        self.bindings = Bindings(store, contract)

    def retire(self, place: Place, *, dry_run: bool = False) -> list[Retiring]:
        """Retire what is past its time, and drop what was aside for long enough; or only say what would be."""
        self.store.require_migrated()
        require_admin(self.store, self.contract)
        closed = self.closed(place)
        if closed:
            return [Retiring(str(place.name), "", "off", {}, closed)]
        if dry_run:
            return _Retirement(self, place, None).look()
        with leased(self.store, place.full) as lease:
            return _Retirement(self, place, lease).run()

    def reattach(self, place: Place, partition: str) -> Retiring:
        """Put a partition that is aside back, with what was taken along."""
        self.store.require_migrated()
        require_admin(self.store, self.contract)
        with leased(self.store, place.full) as lease:
            return _Retirement(self, place, lease).reattach(partition)

    def closed(self, place: Place) -> str:
        if place.declared is None or place.declared.append_only:
            return f"{place.name} is append-only: only an explicit prune takes rows from it"
        with self.store.transaction() as transaction:
            return closed_gate(transaction.own.flags(), place.name, self.contract.sweep)


class _Retirement:
    """One table, under a lease; without one, only looking."""

    def __init__(self, retirer: Retirer, place: Place, lease: Lease | None) -> None:
        self.retirer = retirer
        self.store = retirer.store
        self.steps = retirer.steps
        self.contract = retirer.contract
        self.place = place
        self.lease = lease
        self.then = place.settings.then
        self.anatomy = self._anatomy(place)
        assert place.declared is not None
        kinds = (Prune, Shelve) if self.then is Retired.MOVE else (Prune,)
        self.selections = [
            retirer.bindings.selection(place.declared, rule)
            for rule in place.declared.rules
            if rule.active and isinstance(rule.action, kinds) and not isinstance(rule.action, Mark)
        ]
        self.archived = any(isinstance(rule.action, Archive) for rule in place.declared.rules)

    def _anatomy(self, place: Place) -> Anatomy:
        with self.steps.journaling() as journal:
            change = journal.change(place.full)
        if change is None or change.kind != "convert" or change.state not in ("swapped", "done"):
            raise PartitionError(
                f"{place.name} is not partitioned by Wane", f"`wane partition convert {place.name}` does that"
            )
        return anatomy_from(change.facts["anatomy"])

    @property
    def name(self) -> str:
        return str(self.place.name)

    @property
    def _quarantined_for(self) -> timedelta:
        """A month whose rows are all in the archive is empty: nobody would put it back."""
        return timedelta(0) if self.then is Retired.ARCHIVE else self.place.settings.quarantine

    def _due(self) -> list[Leaf]:
        """Partitions that ended before the window began, the oldest first."""
        keep = self.place.settings.keep
        if isinstance(keep, Forever):
            return []
        cutoff, calendar = self.store.now() - keep, self.place.calendar
        with self.steps.journaling() as journal:
            aside = {one.partition for one in journal.retired(self.place.full, "quarantined")}
        found: list[tuple[datetime, Leaf]] = []
        for leaf in self.steps.leaves(self.anatomy.schema, self.anatomy.name):
            ends = None if leaf.range.upper == MAX else calendar.moment(leaf.range.upper)
            early = leaf.range.lower == MIN and leaf.name == early_name(self.anatomy)
            if ends is not None and ends <= cutoff and not early and leaf.name not in aside:
                found.append((ends, leaf))
        return [leaf for _, leaf in sorted(found, key=lambda one: one[0])]

    def look(self) -> list[Retiring]:
        """What would be retired now, and what would stay."""
        told = []
        for leaf in self._due():
            weight = self._weigh(placed(self.anatomy, leaf.name))
            why = self._why(weight)
            told.append(Retiring(self.name, leaf.name, "stays" if why else "due", {self.name: weight.rows}, why))
        return told

    def run(self) -> list[Retiring]:
        told = self._drop_due()
        with self.steps.journaling() as journal:
            begun = {one.partition: one for one in journal.retired(self.place.full, "detaching")}
            unmoved = [one for one in journal.retired(self.place.full, "quarantined") if one.drop_at is None]
        for one in unmoved:
            told.append(self._alone(one.partition, lambda one=one: self._move_again(one)))  # type: ignore[misc]
        for one in begun.values():
            told.append(self._alone(one.partition, lambda one=one: self._go_on(one)))  # type: ignore[misc]
        for leaf in self._due():
            if self.retirer.stop.is_set() or leaf.name in begun:
                continue
            told.append(self._alone(leaf.name, lambda leaf=leaf: self._begin(leaf)))  # type: ignore[misc]
        return told + (self._drop_due() if self.then is Retired.ARCHIVE else [])

    def _alone(self, partition: str, work: Callable[[], Retiring]) -> Retiring:
        """A partition that fails, fails alone."""
        try:
            return work()
        except StoreError as problem:
            return Retiring(self.name, partition, "failed", {}, problem.message)

    # Deciding

    def _weigh(self, table: str) -> Weight:
        return self.steps.weigh(table, self.selections, self.store.now())

    def _why(self, weight: Weight) -> str:
        """Why a partition stays; "" if it may go."""
        with self.store.transaction() as transaction:
            sweep = Journal(transaction, self.store.timetable).unfinished(self.name)
        if sweep is not None:
            return f"sweep {sweep.id} of its archive is unfinished: `wane archive run` finishes it"
        if self.then is Retired.ARCHIVE:
            return f"{weight.rows:,} of its rows are not in the archive yet" if weight.rows else ""
        if not weight.staying:
            return ""
        reasons = [f"{weight.held:,} held"] if weight.held else []
        other = weight.staying - weight.held
        if other > 0:
            reasons.append(f"{other:,} that no rule lets go now, by state, age or guard")
        if self.archived:
            reasons.append('rows of a rule that archives leave through the archive: then = "archive"')
        return f"{weight.staying:,} of its {weight.rows:,} rows must stay: {'; '.join(reasons)}"

    # Taking off

    def _begin(self, leaf: Leaf) -> Retiring:
        closed = self.retirer.closed(self.place)
        if closed:
            return Retiring(self.name, leaf.name, "off", {}, closed)
        if self.then is Retired.ARCHIVE:
            self.retirer.archiving(self.name)
        weight = self._weigh(placed(self.anatomy, leaf.name))
        why = self._why(weight)
        if why:
            return Retiring(self.name, leaf.name, "stays", {self.name: weight.rows}, why)
        with self.store.transaction() as transaction:
            self._require(transaction.execute)
            journal = PartitionJournal(transaction.execute)
            journal.retire(self.place.full, leaf.name, leaf.range, self.retirer.actor)
            [begun] = [one for one in journal.retired(self.place.full, "detaching") if one.partition == leaf.name]
        return self._go_on(begun)

    def _go_on(self, begun: Retirement) -> Retiring:
        """Followers first, then the partition itself; what is found to stay after all is put back."""
        began = time.monotonic()
        a, source = self.anatomy, placed(self.anatomy, begun.partition)
        leaf = Leaf(a.schema, begun.partition, begun.range, pending=False, rows_estimate=None)
        aside = aside_name(leaf, begun.id)
        self._settle(begun, begun.along)
        attached = {one.name: one for one in self.steps.leaves(a.schema, a.name)}
        along = list(begun.along)
        taken_off = begun.place is not None
        if not taken_off and begun.partition in attached and not attached[begun.partition].pending:
            why = self._why(self._weigh(source))
            if why:
                return self._back(begun, along, None, why)
        if not taken_off and begun.partition in attached:
            along = self._followers(begun, source, along)
            self.steps.detach(a, begun.partition)
        self.steps.put_aside(
            a,
            begun.partition,
            begun.range,
            aside,
            self._noted(begun, "detaching", own_place(aside), along),
            self.place.patience,
        )
        place = own_place(aside)
        along = self._stragglers(begun, place, along)
        weight = self._weigh(place)
        why = self._why(weight)
        if why:
            return self._back(begun, along, place, why)
        counts = self._quarantine(begun, place, along, weight)
        self._tell("quarantined", begun.partition, began)
        if self.then is Retired.MOVE:
            return self._move(begun, place, counts, along, began)
        drop_at = self.store.now() + self._quarantined_for
        return Retiring(self.name, begun.partition, "quarantined", counts, "", place, drop_at, time.monotonic() - began)

    def _settle(self, begun: Retirement, along: Sequence[dict[str, Any]]) -> None:
        """Whatever a process that died had detached is put aside, and its range covered."""
        for one in along:
            # Once it is aside, a partition of its name may be there again, and cover its range.
            if "leaf" in one and not self.steps.is_there(one["place"]):
                other, range_ = self._follower(one)
                a = self._anatomy(other)
                self.steps.detach(a, one["leaf"])
                aside = one["place"].partition(".")[2].strip('"')
                self.steps.put_aside(a, one["leaf"], range_, aside, self._require, other.patience)

    def _follower(self, one: dict[str, Any]) -> tuple[Place, Range]:
        """The table, and the range, of a follower's partition that was taken along."""
        settings = next(s for s in followers_of(self.contract, self.place.settings) if str(s.table) == one["table"])
        return place_of(self.store, self.contract, settings), Range(one["lower"], one["upper"])

    def _followers(self, begun: Retirement, source: str, along: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Whole partitions of followers, where all of their rows belong to the partition's rows; then what is left, row by row."""
        ends = self.place.calendar.moment(begun.range.upper)
        for settings in followers_of(self.contract, self.place.settings):
            other = place_of(self.store, self.contract, settings)
            for selection, path in paths_of(self.selections):
                if len(path) == 1 and path[0].reference.table.qualified == other.info.qualified:
                    along = self._follow(begun, other, selection, path[0], source, ends, along)
        return self._stragglers(begun, source, along)

    def _follow(
        self,
        begun: Retirement,
        other: Place,
        selection: Selection,
        follower: BoundFollower,
        source: str,
        ends: datetime | None,
        along: list[dict[str, Any]],
    ) -> list[dict[str, Any]]:
        a = self._anatomy(other)
        for leaf in self.steps.leaves(a.schema, a.name):
            upper = None if leaf.range.upper == MAX else other.calendar.moment(leaf.range.upper)
            early = leaf.range.lower == MIN and leaf.name == early_name(a)
            if upper is None or ends is None or upper > ends or early:
                continue
            known = next(
                (one for one in along if one.get("leaf") == leaf.name and one["table"] == str(other.name)), None
            )
            if known is None:
                if not leaf.pending and self.steps.elsewhere(selection, follower, placed(a, leaf.name), source):
                    continue
                known = {
                    "table": str(other.name),
                    "leaf": leaf.name,
                    "lower": leaf.range.lower,
                    "upper": leaf.range.upper,
                    "place": own_place(aside_name(leaf, begun.id)),
                }
                along = [*along, known]
                self._note(begun, "detaching", None, along)
            self.steps.detach(a, leaf.name)
            self.steps.put_aside(
                a,
                leaf.name,
                leaf.range,
                aside_name(leaf, begun.id),
                self._noted(begun, "detaching", None, along),
                other.patience,
            )
        return along

    def _stragglers(self, begun: Retirement, source: str, along: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for number, (selection, path) in enumerate(paths_of(self.selections)):
            name = str(path[-1].reference.name)
            leaf = Leaf(self.anatomy.schema, begun.partition, begun.range, pending=False, rows_estimate=None)
            side = own_place(aside_name(leaf, begun.id)[:50] + f"_with_{number}")
            known = {"table": name, "place": side}
            if known not in along:
                along = [*along, known]
            batch = self.retirer.pace.first_batch
            while True:
                began = time.monotonic()
                moved = self.steps.take_along(
                    selection, path, source, side, batch, self._noted(begun, "detaching", None, along, keep_place=True)
                )
                if not moved:
                    break
                taken = time.monotonic() - began
                batch = self.retirer.pace.next_batch(batch, taken)
                self.retirer.stop.wait(self.retirer.pace.pause_seconds(taken))
        return along

    def _quarantine(self, begun: Retirement, place: str, along: list[dict[str, Any]], weight: Weight) -> dict[str, int]:
        counts: Counter[str] = Counter({self.name: weight.rows})
        for one in along:
            counts[one["table"]] += self.steps.count(one["place"])
        drop_at = None if self.then is Retired.MOVE else self.store.now() + self._quarantined_for
        with self.store.transaction() as transaction:
            self._require(transaction.execute)
            PartitionJournal(transaction.execute).move(
                begun.id, "quarantined", place=place, along=along, counts=counts, drop_at=drop_at
            )
            self._audit(transaction.own, "retire", begun, dict(counts))
        label = self.name
        scheduler = None if self.place.declared is None else self.place.declared.scheduler
        self.retirer.listener(RowsPruned(scheduler, self.name, None, label, "retire", dict(counts), committed=True))
        return dict(counts)

    def _audit(self, own: OwnTables, kind: str, begun: Retirement, counts: dict[str, int]) -> int:
        return own.record(
            AuditEntry(
                kind=kind,
                table=self.name,
                actor=self.retirer.actor,
                inputs={
                    "partition": begun.partition,
                    "from": begun.range.lower,
                    "to": begun.range.upper,
                    "then": self.then.value,
                },
                counts=counts,
                executed_at=self.store.now(),
            )
        )

    # Putting back

    def reattach(self, partition: str) -> Retiring:
        with self.steps.journaling() as journal:
            aside = journal.retired(self.place.full, "quarantined")
        found = [one for one in aside if one.partition == partition]
        if not found:
            raise PartitionError(
                f"no partition {partition!r} of {self.name} is aside",
                f"aside: {', '.join(one.partition for one in aside) or 'none'}",
            )
        return self._back(found[0], found[0].along, found[0].place, "asked for")

    def _back(self, begun: Retirement, along: Sequence[dict[str, Any]], place: str | None, why: str) -> Retiring:
        began = time.monotonic()
        parts: list[tuple[Anatomy, str, Range, str | None]] = [(self.anatomy, begun.partition, begun.range, place)]
        for one in along:
            if "leaf" in one:
                other, range_ = self._follower(one)
                parts.append((self._anatomy(other), one["leaf"], range_, one["place"]))
        sides = [(one["place"], self._table_of(one["table"])) for one in along if "leaf" not in one]

        def note(run: Execute) -> None:
            self._require(run)
            PartitionJournal(run).move(begun.id, "attached", place=None)
            counts = begun.counts if begun.state == "quarantined" else {}
            self._audit(OwnTables(self.store.rows.dialect, run), "reattach", begun, counts)

        self.steps.put_back(parts, sides, note, self.place.patience)
        self._tell("attached", begun.partition, began)
        outcome = "attached" if why == "asked for" else "stays"
        return Retiring(self.name, begun.partition, outcome, begun.counts, why, None, None, time.monotonic() - began)

    def _table_of(self, name: str) -> str:
        for _, path in paths_of(self.selections):
            if str(path[-1].reference.name) == name:
                return self.store.rows.dialect.table(path[-1].reference.table).replace("%%", "%")
        raise PartitionError(f"{name} follows {self.name} no longer", "put the rule back")

    # Ending

    def _move(
        self, begun: Retirement, place: str, counts: dict[str, int], along: list[dict[str, Any]], began: float
    ) -> Retiring:
        """To the schema of archived tables, with what was taken along; there it stays."""
        roles = self.contract.roles
        month = _month(self.place, begun.range.upper if begun.range.lower == MIN else begun.range.lower)
        suffix = f"before_{month}" if begun.range.lower == MIN else month
        moves = [(one["place"], f"{one['table']}_{suffix}" + ("" if "leaf" in one else "_with")) for one in along]
        moves.append((place, f"{self.place.info.name}_{suffix}"))
        target = f"{quote(roles.archive_schema)}.{quote(moves[-1][1])}"

        def note(run: Execute) -> None:
            self._require(run)
            PartitionJournal(run).move(begun.id, "moved", place=target)

        self.steps.move_aside(moves, roles.archive_schema, roles.reader, note, self.place.patience)
        self._tell("moved", begun.partition, began)
        return Retiring(self.name, begun.partition, "moved", counts, "", target, None, time.monotonic() - began)

    def _move_again(self, one: Retirement) -> Retiring:
        assert one.place is not None
        return self._move(one, one.place, one.counts, one.along, time.monotonic())

    def _drop_due(self) -> list[Retiring]:
        now = self.store.now()
        with self.steps.journaling() as journal:
            aside = journal.retired(self.place.full, "quarantined")
        return [
            self._alone(one.partition, lambda one=one: self._drop(one))  # type: ignore[misc]
            for one in aside
            if one.drop_at is not None and one.drop_at <= now
        ]

    def _drop(self, one: Retirement) -> Retiring:
        began = time.monotonic()
        closed = self.retirer.closed(self.place)
        if closed:
            return Retiring(self.name, one.partition, "off", one.counts, closed, one.place)
        assert one.place is not None
        weight = self._weigh(one.place)
        if weight.held:
            return Retiring(
                self.name, one.partition, "stays", one.counts, f"{weight.held:,} of its rows are held", one.place
            )
        numbers: list[int] = []

        def note(run: Execute, counts: dict[str, int]) -> None:
            self._require(run)
            PartitionJournal(run).move(one.id, "dropped", place=None)
            numbers.append(self._audit(OwnTables(self.store.rows.dialect, run), "drop", one, counts))

        counts = self.steps.drop_aside([one.place, *(each["place"] for each in one.along)], note, self.place.patience)
        for table, rows in one.counts.items():
            if rows and self.contract.events.tells_hard_deleted(table):
                self.retirer.listener(hard_deleted(table, None, rows, numbers[0]))
        self._tell("dropped", one.partition, began)
        return Retiring(self.name, one.partition, "dropped", counts, seconds=time.monotonic() - began)

    # The journal

    def _require(self, run: Execute) -> None:
        assert self.lease is not None
        require(self.store, self.lease, run)

    def _noted(
        self,
        begun: Retirement,
        state: str,
        place: str | None,
        along: list[dict[str, Any]] | None,
        *,
        keep_place: bool = False,
    ) -> Note:
        def note(run: Execute) -> None:
            self._require(run)
            journal = PartitionJournal(run)
            now = place
            if keep_place or place is None:
                now = next(
                    (one.place for one in journal.retired(self.place.full, *_UNDER_WAY) if one.id == begun.id), None
                )
            journal.move(begun.id, state, place=now, along=along)

        return note

    def _note(self, begun: Retirement, state: str, place: str | None, along: list[dict[str, Any]]) -> None:
        with self.store.transaction() as transaction:
            self._noted(begun, state, place, along)(transaction.execute)

    def _tell(self, step: str, partition: str, began: float) -> None:
        self.retirer.listener(PartitionStep(self.name, step, partition, time.monotonic() - began))


def _month(place: Place, literal: str) -> str:
    moment = place.calendar.moment(literal)
    assert moment is not None
    return place.calendar.month_of(moment).archived_name
