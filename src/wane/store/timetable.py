"""What schedulers and workers share through the database: leases with fences, windows, heartbeats, and the contract in force.

Every moment is the database's: `now` may be None where its clock can be asked inside the statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from wane.store.own import Execute
from wane.store.statement import Dialect

SILENT_AFTER_BEATS = 3
"""An executor that missed so many beats is silent."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A timed right: who holds it, under which fence, and until when."""

    name: str
    holder: str
    fence: int
    until: datetime


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
    """What a worker or scheduler says of itself."""

    executor: str
    role: str
    doing: str
    fingerprint: str
    every_seconds: float


@dataclass(frozen=True, slots=True)
class Heartbeat(Alive):
    """The same, with since when it lives and when it was last seen alive."""

    started_at: datetime
    beat_at: datetime

    def is_silent(self, now: datetime) -> bool:
        """Whether it was last seen too long ago to be alive."""
        return (now - self.beat_at).total_seconds() > self.every_seconds * SILENT_AFTER_BEATS


@dataclass(frozen=True, slots=True)
class InForce:
    """The contract that runners must have."""

    fingerprint: str
    adopted_at: datetime
    adopted_by: str


class Timetable:
    """Reads and writes these tables through whatever runs a statement."""

    def __init__(self, dialect: Dialect, *, locks: bool) -> None:
        """`locks`: whether rows can be locked; where only one can write at a time, they need not be."""
        self.dialect = dialect
        self._locks = locks
        self._now = "coalesce(%(now)s::timestamptz, clock_timestamp())" if locks else ":now"
        self._until = "%(until)s::timestamptz" if locks else ":until"

    def _(self, name: str) -> str:
        return self.dialect.placeholder(name)

    def _times(self, now: datetime | None, until: datetime | None = None) -> dict[str, object]:
        assert now is not None or self._locks
        stamps = {"now": None if now is None else self.dialect.stamp(now)}
        return stamps if until is None else {**stamps, "until": self.dialect.stamp(until)}

    def _moment(self, stamp: Any) -> datetime | None:
        return None if stamp is None else self.dialect.moment(stamp)

    # Leases

    def take_lease(
        self, run: Execute, name: str, holder: str, until: datetime, now: datetime | None
    ) -> tuple[bool, Lease]:
        """Whether the lease is the holder's now, under a new fence; and the lease, whoever has it."""
        table = self.dialect.own("lease")
        found = run(
            f"INSERT INTO {table} AS l (name, holder, fence, taken_at, until)"
            f" VALUES ({self._('name')}, {self._('holder')}, 1, {self._now}, {self._until})"
            " ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, fence = l.fence + 1, taken_at = excluded.taken_at,"
            f" until = excluded.until WHERE l.until <= {self._now} RETURNING name, holder, fence, until",
            {"name": name, "holder": holder, **self._times(now, until)},
        )
        taken = bool(found)
        if not taken:
            found = run(f"SELECT name, holder, fence, until FROM {table} WHERE name = {self._('name')}", {"name": name})
        [(name, holder, fence, end)] = found
        return taken, Lease(name, holder, fence, self.dialect.moment(end))

    def renew_lease(self, run: Execute, lease: Lease, until: datetime, now: datetime | None) -> bool:
        """Whether the lease was still the holder's; then it ends later."""
        found = run(
            f"UPDATE {self.dialect.own('lease')} SET until = {self._until} WHERE name = {self._('name')}"
            f" AND fence = {self._('fence')} AND until > {self._now} RETURNING 1",
            {"name": lease.name, "fence": lease.fence, **self._times(now, until)},
        )
        return bool(found)

    def end_lease(self, run: Execute, lease: Lease, now: datetime | None) -> None:
        """Let the next one have it at once."""
        run(
            f"UPDATE {self.dialect.own('lease')} SET until = {self._now} WHERE name = {self._('name')}"
            f" AND fence = {self._('fence')} AND until > {self._now}",
            {"name": lease.name, "fence": lease.fence, **self._times(now)},
        )

    def holds_lease(
        self, run: Execute, lease: Lease, fingerprint: str | None, now: datetime | None, *, most_seconds: float
    ) -> bool:
        """Whether the lease is still the holder's and its contract, if given, still in force; the lease stays so until this
        transaction ends.

        Nobody takes it over while the transaction holds its row; and so that a holder that was stopped does not hold it for ever,
        the server ends a statement, or a pause between two, that lasts longer than `most_seconds`.
        """
        what = "1"
        values: dict[str, object] = {
            "name": lease.name,
            "fence": lease.fence,
            **({} if fingerprint is None else {"fingerprint": fingerprint}),
            **self._times(now),
        }
        if self._locks:
            what = (
                "set_config('statement_timeout', %(limit)s, true),"
                " set_config('idle_in_transaction_session_timeout', %(limit)s, true)"
            )
            values["limit"] = str(max(int(most_seconds * 1_000), 1))
        contract = f"SELECT 1 FROM {self.dialect.own('contract')} WHERE fingerprint = {self._('fingerprint')}"
        in_force = "" if fingerprint is None else f" AND EXISTS ({contract})"
        found = run(
            f"SELECT {what} FROM {self.dialect.own('lease')} WHERE name = {self._('name')} AND fence = {self._('fence')}"
            f" AND until > {self._now}{in_force}{' FOR SHARE' if self._locks else ''}",
            values,
        )
        return bool(found)

    def leases(self, run: Execute, now: datetime | None) -> list[Lease]:
        """Leases that somebody has."""
        found = run(
            f"SELECT name, holder, fence, until FROM {self.dialect.own('lease')} WHERE until > {self._now} ORDER BY name",
            self._times(now),
        )
        return [Lease(name, holder, fence, self.dialect.moment(until)) for name, holder, fence, until in found]

    # Windows

    def window(self, run: Execute, scheduler: str) -> Window | None:
        text = (
            f"SELECT scheduler, window_at, due_at, ticked_at, ticked_by FROM {self.dialect.own('schedule')}"
            f" WHERE scheduler = {self._('scheduler')}"
        )
        found = run(text, {"scheduler": scheduler})
        return self._window(found[0]) if found else None

    def lock_window(self, run: Execute, scheduler: str, now: datetime) -> Window | None:
        """A scheduler's row, locked, due at once if it is new; None if another process has it locked."""
        table = self.dialect.own("schedule")
        run(
            f"INSERT INTO {table} (scheduler, due_at) VALUES ({self._('scheduler')}, {self._('now')}) ON CONFLICT DO NOTHING",
            {"scheduler": scheduler, "now": self.dialect.stamp(now)},
        )
        found = run(
            f"SELECT scheduler, window_at, due_at, ticked_at, ticked_by FROM {table} WHERE scheduler = {self._('scheduler')}"
            f"{' FOR UPDATE SKIP LOCKED' if self._locks else ''}",
            {"scheduler": scheduler},
        )
        return self._window(found[0]) if found else None

    def write_window(self, run: Execute, window: Window) -> None:
        run(
            f"UPDATE {self.dialect.own('schedule')} SET window_at = {self._('window')}, due_at = {self._('due')},"
            f" ticked_at = {self._('at')}, ticked_by = {self._('by')} WHERE scheduler = {self._('scheduler')}",
            {
                "scheduler": window.scheduler,
                "window": None if window.window_at is None else self.dialect.stamp(window.window_at),
                "due": self.dialect.stamp(window.due_at),
                "at": None if window.ticked_at is None else self.dialect.stamp(window.ticked_at),
                "by": window.ticked_by,
            },
        )

    def windows(self, run: Execute) -> list[Window]:
        text = f"SELECT scheduler, window_at, due_at, ticked_at, ticked_by FROM {self.dialect.own('schedule')} ORDER BY scheduler"
        return [self._window(row) for row in run(text, {})]

    def _window(self, row: tuple[Any, ...]) -> Window:
        scheduler, window_at, due_at, ticked_at, ticked_by = row
        return Window(
            scheduler, self._moment(window_at), self.dialect.moment(due_at), self._moment(ticked_at), ticked_by
        )

    # Heartbeats

    def beat(self, run: Execute, beat: Alive, now: datetime | None) -> None:
        """Say that an executor is alive; the moments are the database's."""
        run(
            f"INSERT INTO {self.dialect.own('heartbeat')} (executor, role, doing, fingerprint, every_seconds, started_at, beat_at)"
            f" VALUES ({self._('executor')}, {self._('role')}, {self._('doing')}, {self._('fingerprint')}, {self._('every')},"
            f" {self._now}, {self._now}) ON CONFLICT (executor) DO UPDATE SET role = excluded.role, doing = excluded.doing,"
            " fingerprint = excluded.fingerprint, every_seconds = excluded.every_seconds, beat_at = excluded.beat_at",
            {
                "executor": beat.executor,
                "role": beat.role,
                "doing": beat.doing,
                "fingerprint": beat.fingerprint,
                "every": beat.every_seconds,
                **self._times(now),
            },
        )

    def leave(self, run: Execute, executor: str) -> None:
        """An executor that stopped on purpose is not silent."""
        run(
            f"DELETE FROM {self.dialect.own('heartbeat')} WHERE executor = {self._('executor')}", {"executor": executor}
        )

    def heartbeats(self, run: Execute, limit: int) -> list[Heartbeat]:
        found = run(
            "SELECT executor, role, doing, fingerprint, every_seconds, started_at, beat_at"
            f" FROM {self.dialect.own('heartbeat')} ORDER BY role, executor LIMIT {self._('limit')}",
            {"limit": limit},
        )
        moment = self.dialect.moment
        return [
            Heartbeat(executor, role, doing, fingerprint, every, moment(started), moment(beat))
            for executor, role, doing, fingerprint, every, started, beat in found
        ]

    # The contract in force

    def in_force(self, run: Execute, *, lock: bool = False) -> InForce | None:
        locked = " FOR SHARE" if lock and self._locks else ""
        text = f"SELECT fingerprint, adopted_at, adopted_by FROM {self.dialect.own('contract')} WHERE id = 1{locked}"
        for fingerprint, at, by in run(text, {}):
            return InForce(fingerprint, self.dialect.moment(at), by)
        return None

    def adopt(
        self, run: Execute, fingerprint: str, by: str, now: datetime | None, *, only_if_none: bool = False
    ) -> None:
        """Put a contract in force. One that is in force already stays so since when it was."""
        then = (
            "NOTHING"
            if only_if_none
            else (
                "UPDATE SET fingerprint = excluded.fingerprint, adopted_at = excluded.adopted_at, adopted_by = excluded.adopted_by"
                f" WHERE {self.dialect.own('contract')}.fingerprint <> excluded.fingerprint"
            )
        )
        run(
            f"INSERT INTO {self.dialect.own('contract')} (id, fingerprint, adopted_at, adopted_by)"
            f" VALUES (1, {self._('fingerprint')}, {self._now}, {self._('by')}) ON CONFLICT (id) DO {then}",
            {"fingerprint": fingerprint, "by": by, **self._times(now)},
        )
