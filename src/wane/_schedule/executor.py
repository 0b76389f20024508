"""An executor: a worker or a scheduler that records heartbeats."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from datetime import datetime
from secrets import token_hex

from wane._db import Store
from wane._schedule.sql import Alive, Heartbeat, Timetable
from wane.errors import WaneError
from wane.events import HeartbeatWritten, Listener

HEARTBEAT_SECONDS = 10.0


class Executor:
    """One worker or scheduler of this process, and its heartbeat row, which is updated in place."""

    def __init__(self, role: str, fingerprint: str, listener: Listener, *, number: int = 0) -> None:
        # Two containers may have the same host name and the same process id.
        self.name = f"{role}-{number}@{socket.gethostname()}:{os.getpid()}:{token_hex(3)}"
        self.role = role
        self.doing = "starting"
        self._fingerprint = fingerprint
        self._listener = listener
        self._beaten = float("-inf")

    def heartbeat(self, store: Store, doing: str | None = None) -> None:
        """Record a heartbeat, if what the executor does has changed or the last heartbeat was long ago."""
        now = time.monotonic()
        if doing in (None, self.doing) and now - self._beaten < HEARTBEAT_SECONDS:
            return
        self.doing = doing or self.doing
        alive = Alive(self.name, self.role, self.doing, self._fingerprint, HEARTBEAT_SECONDS)
        with store.write() as (run, clock):
            Timetable(store.dialect).heartbeat(run, alive, clock)
        self._beaten = now
        self._listener(HeartbeatWritten(self.name, self.role, self.doing))

    def leave(self, store: Store) -> None:
        """Stop on purpose. If the database is unreachable, the row falls silent and is pruned later."""
        with suppress(WaneError):
            Timetable(store.dialect).leave(store.run, self.name)


def is_silent(heartbeat: Heartbeat, now: datetime) -> bool:
    """Check whether an executor's last heartbeat is too old for it to be alive."""
    return heartbeat.is_silent(now)
