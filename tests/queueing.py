"""What tests of the cleanup queue share: a clock that stands still, messages in any state, and the rows as they are."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from servers import Database
from wane._db import Store, open_store
from wane._db.url import resolve_url
from wane.queue import Queue, Reservation

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
STATES = ("absent", "ready", "delayed", "reserved", "overdue", "done", "dead", "resolved")
_numbers = itertools.count()


class Clock:
    """A clock that stands still until it is reported."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **duration: float) -> None:
        self.now += timedelta(**duration)


@contextmanager
def opened(database: Database, *, read_only: bool = False) -> Iterator[Store]:
    """Yield another store of the database, with connections of its own."""
    with open_store(resolve_url(database.url), read_only=read_only) as store:
        yield store


def message_table(database: Database) -> str:
    return "wane_message" if database.store == "sqlite" else "wane.message"


def rows(database: Database) -> list[tuple[Any, ...]]:
    """Return every message as the database has it."""
    texts = "target AS t, data AS d" if database.store == "sqlite" else "target::text, data::text"
    return database.query(
        "SELECT pool, message_id, idempotency_key, work_queue_id, kind, state, seq, deliveries, created_at, updated_at, due_at,"
        f" token_hash, finished_at, reason, release_reason, resolved_at, resolved_by, {texts}"
        f" FROM {message_table(database)} ORDER BY seq"
    )


def taken(queue: Queue, **options: Any) -> Reservation:
    found = queue.reserve(**options)
    assert found is not None
    return found


@dataclass(frozen=True)
class Made:
    """A message in some state, the token of its last reservation, and one of an earlier reservation."""

    message_id: str
    token: str
    stale: str


def make(queue: Queue, clock: Clock, state: str) -> Made:
    """Create a message in a state, delivered before; `overdue` is reserved, and its lease is about to end when the
    clock advances."""
    kind = f"{state}-{next(_numbers)}"
    if state == "absent":
        return Made(kind, "token", "stale")
    name = queue.enqueue(kind, data={"n": 1}).message_id
    stale = taken(queue, kinds=[kind]).token
    assert queue.release(name, stale, "again").accepted
    if state == "ready":
        return Made(name, stale, stale)
    if state == "delayed":
        late = queue.enqueue(kind, delay=timedelta(hours=1)).message_id
        return Made(late, stale, stale)
    token = taken(queue, kinds=[kind]).token
    if state == "done":
        assert queue.ack(name, token).accepted
    if state in ("dead", "resolved"):
        while queue.release(name, token, "no").accepted:
            token = taken(queue, kinds=[kind]).token
        assert queue.read_dead_letter(name) is not None
    if state == "resolved":
        assert queue.resolve(name, by="anna").accepted
    return Made(name, token, stale)


@contextmanager
def swarm(database: Database, role: str, count: int, seed: int = 1) -> Iterator[subprocess.Popen[str]]:
    """Yield processes that use the database's queue, ready to begin; they are gone when this ends."""
    program = Path(__file__).parent / "queue" / "swarm.py"
    process = subprocess.Popen(
        [sys.executable, program, database.url, role, str(count), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def reported(lines: Iterable[str]) -> list[dict[str, Any]]:
    """Return what processes printed; the last line of one that was killed may be cut off."""
    found = []
    for line in lines:
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found
