"""What becomes of months that were detached: put back, moved to the schema of archived tables, or dropped when the
quarantine is over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wane._db.statement import Execute
from wane._ledger import Ledger
from wane._partition.anatomy import Anatomy, quote
from wane._partition.journal import PartitionJournal, Retirement
from wane._partition.model import Retiring
from wane._partition.records import Range
from wane._partition.retiring_table import RetiringTable
from wane._partition.sql_retire import paths_of
from wane._prune.sql_outbox import OutboxEvent, write_event
from wane.errors import PartitionError
from wane.events import hard_deleted, hard_deleted_name

_REQUESTED = "requested"
GONE = "another process detached or dropped it"


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Months of one table that were detached and wait to be dropped, moved or put back."""

    leaving: RetiringTable

    def months(self) -> list[Retirement]:
        """Return the months in quarantine, in the order in which they were detached."""
        with self.leaving.work.steps.journaling() as journal:
            return journal.retired(self.leaving.target.full, "quarantined")

    def reattach(self, partition: str) -> Retiring:
        """Put a month back because a user requests it; raise PartitionError if it is not in quarantine."""
        quarantined = self.months()
        found = [one for one in quarantined if one.partition == partition]
        if not found:
            raise PartitionError(
                f"no partition {partition!r} of {self.leaving.name} is in quarantine",
                f"in quarantine: {', '.join(one.partition for one in quarantined) or 'none'}",
            )
        return self.put_back(found[0], found[0].along, found[0].place, _REQUESTED)

    def put_back(self, begun: Retirement, along: Sequence[dict[str, Any]], location: str | None, why: str) -> Retiring:
        """Put a month back with what was taken along: all of it or nothing."""
        leaving, work, began = self.leaving, self.leaving.work, time.monotonic()
        parts: list[tuple[Anatomy, str, Range, str | None]] = [
            (leaving.anatomy, begun.partition, begun.range, location)
        ]
        for one in along:
            if "leaf" in one:
                other, range_ = leaving.follower(one)
                parts.append((leaving.anatomy_of(other), one["leaf"], range_, one["place"]))
        sides = [(one["place"], self._table_of(one["table"])) for one in along if "leaf" not in one]

        def note(run: Execute) -> None:
            leaving.require(run)
            PartitionJournal(run).move(begun.id, "attached", place=None)
            counts = begun.counts if begun.state == "quarantined" else {}
            leaving.audit(Ledger(work.store.dialect, run), "reattach", begun, counts)

        work.steps.put_back(parts, sides, note, leaving.target.patience)
        leaving.emit("attached", begun.partition, began)
        outcome = {_REQUESTED: "attached", GONE: "gone"}.get(why, "stays")
        return Retiring(leaving.name, begun.partition, outcome, begun.counts, why, None, None, time.monotonic() - began)

    def _table_of(self, name: str) -> str:
        for _, path in paths_of(self.leaving.selections):
            if str(path[-1].reference.name) == name:
                return self.leaving.work.store.dialect.table(path[-1].reference.table).replace("%%", "%")
        raise PartitionError(f"{name} follows {self.leaving.name} no longer", "put the rule back")

    def move(
        self, begun: Retirement, location: str, counts: dict[str, int], along: list[dict[str, Any]], began: float
    ) -> Retiring:
        """Move a month, with what was taken along, to the schema of archived tables, for good."""
        leaving, roles = self.leaving, self.leaving.work.contract.roles
        suffix = self._suffix(begun.range)
        moves = [(one["place"], f"{one['table']}_{self._suffix_along(one, suffix)}") for one in along]
        moves.append((location, f"{leaving.target.info.name}_{suffix}"))
        destination = f"{quote(roles.archive_schema)}.{quote(moves[-1][1])}"

        def note(run: Execute) -> None:
            leaving.require(run)
            PartitionJournal(run).move(begun.id, "moved", place=destination)

        leaving.work.steps.move_to_schema(moves, roles.archive_schema, roles.reader, note, leaving.target.patience)
        leaving.emit("moved", begun.partition, began)
        return Retiring(leaving.name, begun.partition, "moved", counts, "", destination, None, time.monotonic() - began)

    def resume_move(self, one: Retirement) -> Retiring:
        """Finish a move that was interrupted."""
        assert one.place is not None
        return self.move(one, one.place, one.counts, one.along, time.monotonic())

    def _suffix(self, range_: Range) -> str:
        """Return what the name of a moved partition ends with: its month, or where the application let it begin."""
        calendar = self.leaving.target.calendar
        begins, ends = (calendar.timestamp(end) for end in (range_.lower, range_.upper))
        timestamp = begins or ends
        assert timestamp is not None
        by_application = self.leaving.anatomy.by_application
        name = calendar.compact_name(timestamp) if by_application else calendar.month_of(timestamp).archived_name
        return name if begins else f"before_{name}"

    def _suffix_along(self, taken: dict[str, Any], suffix: str) -> str:
        if "leaf" not in taken:
            return f"{suffix}_with"
        return self._suffix(Range(taken["lower"], taken["upper"])) if self.leaving.anatomy.by_application else suffix

    def drop(self, one: Retirement) -> Retiring:
        """Drop a month whose quarantine is over, if the flags allow it and still nothing keeps its rows."""
        leaving, work, began = self.leaving, self.leaving.work, time.monotonic()
        closed = leaving.closed()
        if closed:
            return Retiring(leaving.name, one.partition, "off", one.counts, closed, one.place)
        assert one.place is not None
        staying = leaving.staying(leaving.weigh(one.place))
        if staying:
            why = f"{staying}; `wane partition retire {leaving.name} --reattach {one.partition}` puts it back"
            return Retiring(leaving.name, one.partition, "stays", one.counts, why, one.place)
        numbers: list[int] = []

        def note(run: Execute, counts: dict[str, int]) -> None:
            leaving.require(run)
            PartitionJournal(run).move(one.id, "dropped", place=None)
            numbers.append(leaving.audit(Ledger(work.store.dialect, run), "drop", one, counts))
            events, now = work.contract.events, work.store.now()
            for table, rows in one.counts.items():
                if rows and events.writes_pruned(table):
                    event = OutboxEvent(hard_deleted_name(table), table, rows, numbers[0], now)
                    write_event(work.store, run, events.outbox, event)

        counts = work.steps.drop_quarantined(
            [one.place, *(each["place"] for each in one.along)], note, leaving.target.patience
        )
        for table, rows in one.counts.items():
            if rows and work.contract.events.emits_hard_deleted(table):
                work.listener(hard_deleted(table, None, rows, numbers[0]))
        leaving.emit("dropped", one.partition, began)
        return Retiring(leaving.name, one.partition, "dropped", counts, seconds=time.monotonic() - began)
