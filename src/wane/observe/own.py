"""What Wane's own tables say of how retention does: flags, runners, dead letters, and how fast tables grew when they were last measured."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from wane.check.live import archive_findings
from wane.contract.model import Contract
from wane.observe.growth import told_trend
from wane.observe.health import SchedulerHealth
from wane.prune.gates import flag_name
from wane.store import Store
from wane.store.archive_log import ArchiveLog
from wane.store.own import OwnTables
from wane.store.snapshots import Snapshots
from wane.store.statement import Statement

OWN_SECONDS = 2.0
"""The most that one statement about them may take."""
_MOST_EXECUTORS = 500
_MOST_TABLES = 10_000


class OwnFacts:
    """What Wane's own tables say."""

    def __init__(self, store: Store, contract: Contract, now: datetime) -> None:
        def run(text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
            return store.read(Statement(text, parameters), OWN_SECONDS)

        flags = OwnTables(store.rows.dialect, run).flags()
        master = flags.get(contract.sweep.master_flag)
        self.enabled = master is not None and master.enabled
        names = {str(table.name): flag_name(table.name, contract.sweep) for table in contract.tables}
        self.disabled = tuple(
            name for name, flag in names.items() if (set_ := flags.get(flag)) is not None and not set_.enabled
        )
        self.in_force = store.timetable.in_force(run)
        self.executors = tuple(store.timetable.heartbeats(run, _MOST_EXECUTORS))
        windows = {window.scheduler: window for window in store.timetable.windows(run)}
        self.schedulers = tuple(
            SchedulerHealth(
                one.name,
                one.every.total_seconds(),
                known := windows.get(one.name),
                0.0 if known is None else max((now - known.due_at).total_seconds(), 0.0),
            )
            for one in contract.schedulers
        )
        self.dead_letters = sum(many for _, state, many, _ in store.messages.counts(run) if state == "dead")
        oldest = now - max(2 * contract.growth.every, contract.growth.least)
        latest = Snapshots(store.rows.dialect).latest(run, now, _MOST_TABLES)
        self.trends = {
            one.table: found
            for one in latest
            # What was measured long ago says nothing of today.
            if one.taken_at >= oldest and (found := told_trend(one)) is not None
        }
        """How fast tables grow, by their full names."""
        self.sizes = {one.table: one.bytes for one in latest if one.taken_at >= oldest and one.bytes is not None}
        """What they took then."""
        self.archive = archive_findings(ArchiveLog(store.rows.dialect, run))
