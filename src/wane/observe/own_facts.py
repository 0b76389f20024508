"""Facts from Wane's own tables: flags, runners, dead letters, and how fast tables grew when they were last measured."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from wane.archive.sql_log import ArchiveLog, archive_findings
from wane.contract.model import Contract
from wane.db import Store
from wane.db.statement import Statement
from wane.ledger import Ledger
from wane.observe.health import SchedulerHealth
from wane.observe.sql_snapshots import Snapshots
from wane.prune.gates import flag_name
from wane.queue.dialects import messages_of
from wane.schedule.sql import Timetable

OWN_SECONDS = 2.0
"""The most seconds that one statement may take."""
_MOST_EXECUTORS = 500
_MOST_TABLES = 10_000


class OwnFacts:
    """The facts about retention in Wane's own tables."""

    def __init__(self, store: Store, contract: Contract, now: datetime) -> None:
        def run(text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
            return store.read(Statement(text, parameters), OWN_SECONDS)

        flags = Ledger(store.dialect, run).flags()
        master = flags.get(contract.sweep.master_flag)
        self.enabled = master is not None and master.enabled
        names = {str(table.name): flag_name(table.name, contract.sweep) for table in contract.tables}
        self.disabled = tuple(
            name for name, flag in names.items() if (set_ := flags.get(flag)) is not None and not set_.enabled
        )
        self.in_force = Timetable(store.dialect).in_force(run)
        self.executors = tuple(Timetable(store.dialect).heartbeats(run, _MOST_EXECUTORS))
        windows = {window.scheduler: window for window in Timetable(store.dialect).windows(run)}
        self.schedulers = tuple(
            SchedulerHealth(
                one.name,
                one.every.total_seconds(),
                known := windows.get(one.name),
                0.0 if known is None else max((now - known.due_at).total_seconds(), 0.0),
            )
            for one in contract.schedulers
        )
        self.dead_letters = sum(many for _, state, many, _ in messages_of(store).counts(run) if state == "dead")
        oldest = now - max(2 * contract.growth.every, contract.growth.least)
        latest = Snapshots(store.dialect).latest(run, now, _MOST_TABLES)
        self.measured = {one.table: one for one in latest if one.taken_at >= oldest}
        """The latest snapshots of tables, by their full names; an old measurement says nothing about today."""
        self.archive = archive_findings(ArchiveLog(store.dialect, run))
