"""Facts from Wane's own tables: flags, runners, dead letters, and how large tables were when they were last
measured."""

from __future__ import annotations

from datetime import datetime

from wane._archive.delta.sql_log import ArchiveLog, archive_findings
from wane._contract.model import Contract
from wane._db import Store
from wane._db.statement import Execute
from wane._ledger import Ledger
from wane._prune.gates import flag_name
from wane._schedule.sql import Timetable
from wane.observe._sql_snapshots import Snapshots, oldest_valid
from wane.queue._dialects import messages_of

_MOST_EXECUTORS = 500
_MOST_TABLES = 10_000


class OwnFacts:
    """The facts about retention in Wane's own tables."""

    def __init__(self, store: Store, contract: Contract, now: datetime, run: Execute) -> None:
        flags = Ledger(store.dialect, run).flags()
        master = flags.get(contract.sweep.master_flag)
        self.enabled = master is not None and master.enabled
        names = {str(table.name): flag_name(table.name, contract.sweep) for table in contract.tables}
        self.disabled = tuple(
            name for name, flag in names.items() if (set_ := flags.get(flag)) is not None and not set_.enabled
        )
        timetable = Timetable(store.dialect)
        self.in_force = timetable.in_force(run)
        self.executors = tuple(timetable.heartbeats(run, _MOST_EXECUTORS))
        self.windows = {window.scheduler: window for window in timetable.windows(run)}
        self.dead_letters = sum(many for _, state, many, _ in messages_of(store).counts(run) if state == "dead")
        self.snapshots = Snapshots(store.dialect).latest(run, now, _MOST_TABLES)
        """Of the last pass that measured all tables."""
        oldest = oldest_valid(contract.growth, now)
        self.measured = {one.table: one for one in self.snapshots if one.taken_at >= oldest}
        """The same by their full names, where an old measurement does not hold for today."""
        self.archive = archive_findings(ArchiveLog(store.dialect, run))
