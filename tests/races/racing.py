"""Two sides of a race: one in a thread of its own, and proof that it waits for the other before the other goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

from servers import Database
from wane._keeper import Keeper, open_keeper
from wane._partition.sql import PostgresPartitions
from wane._prune.sweep import Sweeper
from wane.events import Event, Listener, ignore_event

R = TypeVar("R")

PATIENCE_SECONDS = 90.0
"""How long anything may take before a test gives up: most of the time that a test has, because a busy machine may need
it."""

ANY_SESSION = 0
"""The backend of a keeper behind a connection pooler, which gives each of its transactions any of the pooler's
sessions."""

OLD = datetime.now(UTC) - timedelta(days=30)
NEW = datetime.now(UTC)

SCHEDULER = """
[scheduler]
night = { every = "1h" }
"""
JOBS = (
    SCHEDULER
    + """
[table.jobs]
scheduler = "night"
why   = "a test"
state = "status"
live  = ["open"]
time  = { column = "done_at", unit = "ms" }
[table.jobs.rule.done]
when = ["done"]
keep = "7d"
"""
)
GUARDED = JOBS + 'unless = [{ referenced_by = "notes.job_id" }]\n'
FOLLOWED = JOBS + 'with = ["notes.job_id"]\n'

SCHEMA = """
CREATE TABLE jobs (id bigint PRIMARY KEY, status text NOT NULL, done_at bigint, beat integer NOT NULL DEFAULT 0);
CREATE INDEX jobs_due ON jobs (status, done_at, id);
CREATE TABLE notes (id bigint PRIMARY KEY, job_id bigint {references}, body text);
CREATE INDEX notes_job ON notes (job_id);
"""
CAPPED = (
    SCHEDULER
    + """
[table.beats]
scheduler = "night"
why  = "a test"
time = { column = "seen_at", unit = "ms" }
[table.beats.rule.cap]
most = 50
"""
)


def ms(timestamp: datetime) -> int:
    return int(timestamp.timestamp() * 1000)


def create(database: Database, references: str = "") -> None:
    """Create jobs and their notes; `references` is how notes refer to them, nothing at all by default."""
    for statement in SCHEMA.format(references=references).split(";"):
        if statement.strip():
            database.execute(statement)


def fill(database: Database, rows: int, *, status: str = "done") -> list[int]:
    """Insert jobs that are due, the oldest first."""
    database.executemany(
        "INSERT INTO jobs (id, status, done_at) VALUES (?, ?, ?)",
        [(number, status, ms(OLD) + number) for number in range(1, rows + 1)],
    )
    return list(range(1, rows + 1))


def ids(database: Database, table: str = "jobs") -> list[int]:
    return [number for (number,) in database.query(f"SELECT id FROM {table} ORDER BY id")]


@contextmanager
def enabled_keeper(
    database: Database, folder: Path, contract: str, listener: Listener = ignore_event
) -> Iterator[Keeper]:
    """Yield a keeper with its own connection, ready to sweep."""
    file = folder / "wane.toml"
    file.write_text(contract)
    with open_keeper(database.url, contract=file, actor="race", listener=listener) as keeper:
        keeper.store.migrate()
        keeper.enable()
        yield keeper


def sweeper(keeper: Keeper, listener: Listener = ignore_event, **options: Any) -> Sweeper:
    """Return a sweeper without a fuse: tests take whole tables."""
    return Sweeper(keeper.store, keeper.contract, "race", listener, unattended=False, **options)


class Background(Generic[R]):
    """A call in a thread of its own."""

    def __init__(self, call: Callable[[], R]) -> None:
        self._call = call
        self._result: list[R] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result.append(self._call())
        except BaseException as problem:
            self._error.append(problem)

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self, seconds: float = PATIENCE_SECONDS) -> R:
        self._thread.join(seconds)
        assert not self.running, "it still waits"
        if self._error:
            raise self._error[0]
        return self._result[0]


def await_true(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.002)


def backend(connection: Any) -> int:
    return int(connection.info.backend_pid)


def await_waiting(database: Database, waiting: int, behind: int) -> None:
    """Return when the server itself says that one backend waits for a lock of the other; see `ANY_SESSION`."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    waiter = "" if waiting == ANY_SESSION else f" AND pid = {waiting}"
    holder = f" AND {behind} = ANY(pg_blocking_pids(pid))" if behind != ANY_SESSION else ""
    await_true(
        lambda: database.query(waits + waiter + holder) != [(0,)], f"backend {waiting or '?'} waits for {behind or '?'}"
    )


def backend_of(keeper: Keeper | PostgresPartitions) -> int:
    connection = keeper.store._connection  # type: ignore[attr-defined]
    return ANY_SESSION if connection.pooled else backend(connection)


class Received:
    """Remembers every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


class Paused:
    """Stops a transaction right before a statement, until the test lets it go on.

    The statement is chosen by a text that it has in it. Nothing of the product is replaced: the call goes through as it
    is.
    """

    def __init__(self, monkeypatch: Any, kind: type, method: str, before: str) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        original = getattr(kind, method)
        pause = self

        def paused(this: Any, *arguments: Any, **options: Any) -> Any:
            text = arguments[0] if isinstance(arguments[0], str) else getattr(arguments[0], "text", "")
            if before in text and not pause.reached.is_set():
                pause.reached.set()
                assert pause.go_on.wait(PATIENCE_SECONDS), "the test never let it go on"
            return original(this, *arguments, **options)

        monkeypatch.setattr(kind, method, paused)

    def await_reached(self) -> None:
        assert self.reached.wait(PATIENCE_SECONDS), "it never came to that statement"


def audited(keeper: Keeper, table: str = "jobs") -> int:
    """Count the rows of a table that left by the whole trail."""
    return sum(entry.counts.get(table, 0) for entry in keeper.audit(limit=10_000))


def total(counts: Sequence[dict[str, int]], table: str = "jobs") -> int:
    return sum(one.get(table, 0) for one in counts)
