"""What schedulers and workers share through the database: windows, heartbeats, and the contract in force.

Every time is the database's: `now` may be None where its clock can be read inside the statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wane._db.clocked import ClockedStatements
from wane._db.statement import Execute

SILENT_AFTER_HEARTBEATS = 3
"""An executor that missed this number of heartbeats is silent."""


@dataclass(frozen=True, slots=True)
class Window:
    """A scheduler's last window and when its next one begins."""

    scheduler: str
    window_at: datetime | None
    due_at: datetime
    ticked_at: datetime | None = None
    ticked_by: str | None = None


@dataclass(frozen=True, slots=True)
class Alive:
    """What a worker or scheduler reports about itself."""

    executor: str
    role: str
    doing: str
    fingerprint: str
    every_seconds: float


@dataclass(frozen=True, slots=True)
class Heartbeat(Alive):
    """The same, with its start time and the time of its last heartbeat."""

    started_at: datetime
    beat_at: datetime

    def is_silent(self, now: datetime) -> bool:
        """Check whether the last heartbeat is too old for the executor to be alive."""
        return (now - self.beat_at).total_seconds() > self.every_seconds * SILENT_AFTER_HEARTBEATS


@dataclass(frozen=True, slots=True)
class InForce:
    """The contract that runners must have."""

    fingerprint: str
    adopted_at: datetime
    adopted_by: str


class Timetable(ClockedStatements):
    """Reads and writes these tables through a function that runs statements."""

    def _time(self, stamp: Any) -> datetime | None:
        return None if stamp is None else self.dialect.decode_time(stamp)

    # Windows

    def window(self, run: Execute, scheduler: str) -> Window | None:
        text = (
            f"SELECT scheduler, window_at, due_at, ticked_at, ticked_by FROM {self.dialect.own_table('schedule')}"
            f" WHERE scheduler = {self._('scheduler')}"
        )
        found = run(text, {"scheduler": scheduler})
        return self._window(found[0]) if found else None

    def lock_window(self, run: Execute, scheduler: str, now: datetime) -> Window | None:
        """Lock and return a scheduler's row, due at once if it is new; None if another process has it locked."""
        table = self.dialect.own_table("schedule")
        run(
            f"INSERT INTO {table} (scheduler, due_at) VALUES ({self._('scheduler')}, {self._('now')}) ON CONFLICT DO NOTHING",
            {"scheduler": scheduler, "now": self.dialect.encode_time(now)},
        )
        found = run(
            f"SELECT scheduler, window_at, due_at, ticked_at, ticked_by FROM {table} WHERE scheduler = {self._('scheduler')}"
            f"{' FOR UPDATE SKIP LOCKED' if self._locks else ''}",
            {"scheduler": scheduler},
        )
        return self._window(found[0]) if found else None

    def write_window(self, run: Execute, window: Window) -> None:
        run(
            f"UPDATE {self.dialect.own_table('schedule')} SET window_at = {self._('window')}, due_at = {self._('due')},"
            f" ticked_at = {self._('at')}, ticked_by = {self._('by')} WHERE scheduler = {self._('scheduler')}",
            {
                "scheduler": window.scheduler,
                "window": None if window.window_at is None else self.dialect.encode_time(window.window_at),
                "due": self.dialect.encode_time(window.due_at),
                "at": None if window.ticked_at is None else self.dialect.encode_time(window.ticked_at),
                "by": window.ticked_by,
            },
        )

    def windows(self, run: Execute) -> list[Window]:
        text = f"SELECT scheduler, window_at, due_at, ticked_at, ticked_by FROM {self.dialect.own_table('schedule')} ORDER BY scheduler"
        return [self._window(row) for row in run(text, {})]

    def _window(self, row: tuple[Any, ...]) -> Window:
        scheduler, window_at, due_at, ticked_at, ticked_by = row
        return Window(
            scheduler, self._time(window_at), self.dialect.decode_time(due_at), self._time(ticked_at), ticked_by
        )

    # Heartbeats

    def heartbeat(self, run: Execute, heartbeat: Alive, now: datetime | None) -> None:
        """Record that an executor is alive; the times are the database's."""
        run(
            f"INSERT INTO {self.dialect.own_table('heartbeat')} (executor, role, doing, fingerprint, every_seconds, started_at, beat_at)"
            f" VALUES ({self._('executor')}, {self._('role')}, {self._('doing')}, {self._('fingerprint')}, {self._('every')},"
            f" {self._now}, {self._now}) ON CONFLICT (executor) DO UPDATE SET role = excluded.role, doing = excluded.doing,"
            " fingerprint = excluded.fingerprint, every_seconds = excluded.every_seconds, beat_at = excluded.beat_at",
            {
                "executor": heartbeat.executor,
                "role": heartbeat.role,
                "doing": heartbeat.doing,
                "fingerprint": heartbeat.fingerprint,
                "every": heartbeat.every_seconds,
                **self._times(now),
            },
        )

    def leave(self, run: Execute, executor: str) -> None:
        """Delete the heartbeat of an executor that stopped on purpose: it is not silent."""
        run(
            f"DELETE FROM {self.dialect.own_table('heartbeat')} WHERE executor = {self._('executor')}",
            {"executor": executor},
        )

    def heartbeats(self, run: Execute, limit: int) -> list[Heartbeat]:
        found = run(
            "SELECT executor, role, doing, fingerprint, every_seconds, started_at, beat_at"
            f" FROM {self.dialect.own_table('heartbeat')} ORDER BY role, executor LIMIT {self._('limit')}",
            {"limit": limit},
        )
        decode = self.dialect.decode_time
        return [
            Heartbeat(executor, role, doing, fingerprint, every, decode(started), decode(heartbeat))
            for executor, role, doing, fingerprint, every, started, heartbeat in found
        ]

    # The contract in force

    def in_force(self, run: Execute, *, lock: bool = False) -> InForce | None:
        locked = " FOR SHARE" if lock and self._locks else ""
        text = (
            f"SELECT fingerprint, adopted_at, adopted_by FROM {self.dialect.own_table('contract')} WHERE id = 1{locked}"
        )
        for fingerprint, at, by in run(text, {}):
            return InForce(fingerprint, self.dialect.decode_time(at), by)
        return None

    def adopt(
        self, run: Execute, fingerprint: str, by: str, now: datetime | None, *, only_if_none: bool = False
    ) -> None:
        """Put a contract in force. One that is in force already retains its time of adoption."""
        then = (
            "NOTHING"
            if only_if_none
            else (
                "UPDATE SET fingerprint = excluded.fingerprint, adopted_at = excluded.adopted_at, adopted_by = excluded.adopted_by"
                f" WHERE {self.dialect.own_table('contract')}.fingerprint <> excluded.fingerprint"
            )
        )
        run(
            f"INSERT INTO {self.dialect.own_table('contract')} (id, fingerprint, adopted_at, adopted_by)"
            f" VALUES (1, {self._('fingerprint')}, {self._now}, {self._('by')}) ON CONFLICT (id) DO {then}",
            {"fingerprint": fingerprint, "by": by, **self._times(now)},
        )
