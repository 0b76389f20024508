"""Databases that go away while a runner runs: it reports, waits and goes on; nothing is lost, and nothing is done
twice."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from conftest import POSTGRES_IDS
from prune.keeping import ago, insert
from races.racing import Background, await_true
from schedule.scheduling import ALL, SLOWLY, World, contract_of, create_jobs, world
from schedule.test_leases import AfterBatch
from servers import (
    PostgresDatabase,
    PostgresServer,
    SqliteDatabase,
    packaged_installation,
    privileges,
    short_directory,
    unprivileged_account,
)
from wane._contract.model import Scheduler
from wane._db import Store, open_store, sqlite
from wane._db.postgres import transaction
from wane._db.url import resolve_url
from wane._schedule import Ran, backoff, runner, worker
from wane._schedule.worker import Worked
from wane.errors import Unreachable
from wane.events import BatchTaken, OutageEnded, TickFailed, WorkFailed

SECOND = (Scheduler("tick", timedelta(seconds=1)),)
PACKAGED = pytest.mark.parametrize("server_id", POSTGRES_IDS[:1])
"""These take seconds, and are about connections, which are the same with every server."""


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit pauses to a second, instead of half a minute."""
    monkeypatch.setattr(backoff, "_LONGEST_SECONDS", 1.0)


@contextmanager
def running(one: World, **options: Any) -> Iterator[Background[Ran]]:
    stop = threading.Event()
    run = Background(one.runner(stop=stop, **options).run)
    try:
        yield run
    finally:
        stop.set()
        run.result()


def failures(one: World) -> int:
    return len(one.reported(TickFailed)) + len(one.reported(WorkFailed))


def await_sweep(one: World, database: PostgresDatabase | SqliteDatabase, number: int) -> None:
    """Wait until a row that becomes due has left: schedulers and workers are at work."""
    insert(database, "job", "id, state, at_ms", (1_000_000 + number, "done", ago(30)))
    await_true(lambda: database.query("SELECT count(*) FROM job WHERE state = 'done'") == [(0,)], "it sweeps")


def test_a_sqlite_file_that_is_replaced_is_reported_of_and_swept(sqlite_database: SqliteDatabase) -> None:
    """A restore from a backup, by moving a file, beside a runner that has the old one open."""
    create_jobs(sqlite_database, 5)
    contract = contract_of(schedulers=SECOND, lease=timedelta(seconds=2), attempts=99, backoff=timedelta(seconds=1))
    path = sqlite_database.path
    with world(sqlite_database, contract) as one, running(one):
        await_sweep(one, sqlite_database, 0)
        before = failures(one)
        sqlite_database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        sqlite_database.close()
        shutil.copy(path, path.with_name("backup"))
        path.with_name("backup").replace(path)
        for end in ("-wal", "-shm"):
            path.with_name(path.name + end).unlink()
        restored = SqliteDatabase(path)
        await_sweep(one, restored, 1)
        assert failures(one) > before
        reported = [event.error for event in one.reported(TickFailed)] + [
            event.error for event in one.reported(WorkFailed)
        ]
        assert any("was replaced by another file while it was open" in error for error in reported)
        restored.close()


def test_an_outage_is_reported_once_when_it_begins_and_once_when_it_is_over(sqlite_database: SqliteDatabase) -> None:
    create_jobs(sqlite_database, 5)
    contract = contract_of(schedulers=SECOND, lease=timedelta(seconds=2), attempts=99, backoff=timedelta(seconds=1))
    path = sqlite_database.path
    with world(sqlite_database, contract) as one, running(one, workers=3):
        await_sweep(one, sqlite_database, 0)
        sqlite_database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        sqlite_database.close()
        path.rename(path.with_name("away"))
        await_true(lambda: failures(one) >= 12, "all of its threads fail")
        path.with_name("away").rename(path)
        await_true(lambda: bool(one.reported(OutageEnded)), "it is over")
        # A sweep that the outage interrupted has failed as well, and reports that itself.
        failed = one.reported(TickFailed) + [event for event in one.reported(WorkFailed) if event.kind == "reserve"]
        [ended] = one.reported(OutageEnded)
        assert [event.repeated for event in failed].count(False) == 1
        assert ended.attempts == len(failed)
        assert ended.seconds > 0


@PACKAGED
def test_killed_backends_are_replaced(postgres_database: PostgresDatabase) -> None:
    create_jobs(postgres_database, 5)
    contract = contract_of(schedulers=SECOND, lease=timedelta(seconds=2), attempts=99, backoff=timedelta(seconds=1))
    with world(postgres_database, contract) as one, running(one, workers=2):
        for number in range(3):
            await_sweep(one, postgres_database, number)
            killed = postgres_database.query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'wane' AND datname = current_database()"
            )
            assert killed
        await_sweep(one, postgres_database, 9)
        assert one.keeper.status().alive
    assert postgres_database.query("SELECT count(*) FROM wane.heartbeat") == [(0,)]


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """Yield a server that no other test uses, so that it may be stopped."""
    installation = packaged_installation()
    assert installation is not None
    directory = Path(tempfile.mkdtemp(prefix="wane-", dir=short_directory()))
    directory.chmod(0o755)
    with PostgresServer(installation, directory / "own", durable=True) as server:
        yield server
    with suppress(OSError):
        directory.rmdir()


def test_a_server_that_restarts_in_the_middle_of_a_sweep_is_survived(own_server: PostgresServer) -> None:
    database = PostgresDatabase(own_server.url)
    create_jobs(database, 3_000)
    contract = contract_of(
        schedulers=SECOND, sweep=SLOWLY, lease=timedelta(seconds=2), attempts=99, backoff=timedelta(seconds=1)
    )
    with world(database, contract) as one, running(one) as run:
        await_true(lambda: bool(one.reported(BatchTaken)), "it sweeps")
        database.close()
        own_server.crash()
        await_true(lambda: failures(one) >= 2, "it reports that the server is away")
        assert run.running
        own_server.start()
        database = PostgresDatabase(own_server.url)
        batches = len(one.reported(BatchTaken))
        await_true(lambda: len(one.reported(BatchTaken)) > batches, "it goes on")
    [(left,)] = database.query("SELECT count(*) FROM job WHERE state = 'done'")
    [(reported,)] = database.query("SELECT sum(row_count) FROM wane.audit")
    assert left + reported == 3_000
    database.close()


def test_a_batch_whose_audit_row_was_lost_takes_nothing(postgres_database: PostgresDatabase) -> None:
    """A server that crashes may lose its last commits; the sweep that goes on over a new connection must notice."""
    create_jobs(postgres_database, 1_200)
    with world(postgres_database) as one:
        one.tick()
        AfterBatch(one, lambda: postgres_database.execute("DELETE FROM wane.audit"))
        assert one.worker().work() is Worked.FAILED
        [batch] = one.reported(BatchTaken)
        assert one.count("job") == 1_201 - batch.counts["job"]
        assert one.keeper.audit() == []
        [message] = one.messages()
        assert message.release_reason is not None
        assert "this sweep's audit row is missing or behind" in message.release_reason


# --- Half-open connections --------------------------------------------------------------------------------------------


class Proxy:
    """Passes bytes on until it falls silent: connections stay open, and nobody ever answers."""

    def __init__(self, socket_path: str) -> None:
        self._path = socket_path
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._silent: set[int] = set()
        self._last_words: bytes | None = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._path)
            number = len(self._pairs)
            self._pairs.append((client, server))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(number, one, other), daemon=True).start()

    def _pass(self, number: int, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                if number in self._silent:
                    continue  # It is read, so the kernel acknowledges it, and goes nowhere.
                if self._last_words is not None and self._last_words in data:
                    self.fall_silent()
                    self._last_words = None
                other.sendall(data)
        if number not in self._silent:
            for each in (one, other):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def fall_silent(self) -> int:
        """Fall silent from now on; connections that are made later work."""
        self._silent |= set(range(len(self._pairs)))
        return len(self._silent)

    def fall_silent_after(self, text: bytes) -> None:
        """Fall silent as soon as it has passed on a message with this text."""
        self._last_words = text

    @property
    def is_silent(self) -> bool:
        return bool(self._silent)

    def close(self) -> None:
        self._listening.close()
        for pair in self._pairs:
            for each in pair:
                each.close()


@contextmanager
def proxied(database: PostgresDatabase) -> Iterator[tuple[Proxy, str]]:
    with psycopg.connect(database.url) as connection:
        folder, port = connection.info.host, connection.info.port
    proxy = Proxy(f"{folder}/.s.PGSQL.{port}")
    parts = urlsplit(database.url)
    url = urlunsplit(parts._replace(netloc=f"postgres@127.0.0.1:{proxy.port}", query=""))
    try:
        yield proxy, url
    finally:
        proxy.close()


def test_a_connection_without_an_answer_is_given_up(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent_inside(store: Store) -> None:
        with store.transaction() as transaction:
            transaction.execute("SELECT 1", {})
            proxy.fall_silent()
            transaction.execute("SELECT 1", {})

    with (
        proxied(postgres_database) as (proxy, url),
        open_store(resolve_url(url)) as store,
        store.clone(answer_seconds=0.5) as bounded,
    ):
        assert bounded.run("SELECT 1", {}) == [(1,)]
        assert bounded.run("SELECT 1 FROM pg_sleep(0.2)", {}) == [(1,)]
        proxy.fall_silent()
        began = time.monotonic()
        with pytest.raises(Unreachable, match=r"no response from the server for 0\.5 seconds"):
            bounded.run("SELECT 1", {})
        assert 0.4 < time.monotonic() - began < 5
        assert bounded.run("SELECT 2", {}) == [(2,)], "the next call connects again"
        with pytest.raises(Unreachable):
            silent_inside(bounded)
        assert bounded.run("SELECT 3", {}) == [(3,)]


@PACKAGED
def test_a_runner_survives_half_open_connections(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(worker, "_LEAST_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(transaction, "_MOST_IDLE", "1s")
    create_jobs(postgres_database, 5)
    contract = contract_of(schedulers=SECOND, sweep=ALL, lease=timedelta(seconds=2), attempts=99)
    with proxied(postgres_database) as (proxy, url):
        database = PostgresDatabase(url)
        with world(database, contract) as one, running(one):
            await_sweep(one, postgres_database, 1)
            assert proxy.fall_silent() >= 3
            await_sweep(one, postgres_database, 2)
            assert any(
                "no response from the server" in event.error
                for event in one.reported(TickFailed) + one.reported(WorkFailed)
            )
            one.store.close()
        database.close()


@PACKAGED
def test_a_window_is_not_locked_for_ever_by_a_connection_that_fell_silent(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside the transaction that opens a window: its server process has the scheduler's row, and waits."""
    monkeypatch.setattr(runner, "_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(transaction, "_MOST_IDLE", "1s")
    contract = contract_of(schedulers=SECOND, sweep=ALL)
    create_jobs(postgres_database, 5)
    with proxied(postgres_database) as (proxy, url):
        database = PostgresDatabase(url)
        with world(database, contract) as one, running(one):
            await_sweep(one, postgres_database, 1)
            proxy.fall_silent_after(b"scheduler = $1 FOR UPDATE")
            await_true(lambda: proxy.is_silent, "it locks the row")
            await_sweep(one, postgres_database, 2)
            one.store.close()
        database.close()


@PACKAGED
def test_a_backend_that_is_stopped_is_given_up_too(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server process that hangs: the kernel acknowledges everything, and nothing comes back."""
    monkeypatch.setattr(runner, "_ANSWER_SECONDS", 1.0)
    monkeypatch.setattr(worker, "_LEAST_ANSWER_SECONDS", 1.0)
    create_jobs(postgres_database, 5)
    contract = contract_of(schedulers=SECOND, lease=timedelta(seconds=2), attempts=99)
    stopped: list[int] = []
    with world(postgres_database, contract) as one, running(one):
        await_sweep(one, postgres_database, 1)
        mine = one.store._connection.info.backend_pid  # type: ignore[attr-defined]
        others = (
            "SELECT pid, state FROM pg_stat_activity WHERE application_name = 'wane' AND datname = current_database()"
            " AND pid <> ?"
        )
        try:
            # One that holds a lock inside the server would stop everybody: all of them must be idle, also afterwards.
            while True:
                found = postgres_database.query(others, (mine,))
                stopped = [pid for pid, state in found if state == "idle"]
                if len(stopped) < max(3, len(found)):  # One that goes on might do everybody's work.
                    continue
                send(stopped, signal.SIGSTOP, tmp_path)
                if {state for pid, state in postgres_database.query(others, (mine,)) if pid in stopped} == {"idle"}:
                    break
                send(stopped, signal.SIGCONT, tmp_path)
            await_sweep(one, postgres_database, 2)
        finally:
            send(stopped, signal.SIGCONT, tmp_path)
    assert failures(one) > 0


def send(backends: list[int], number: signal.Signals, folder: Path) -> None:
    """Send a signal to a process of the server, as the user who runs it."""
    subprocess.run(
        ["kill", f"-{number.value}", *map(str, backends)],
        check=True,
        **{**privileges(unprivileged_account(), folder), "cwd": "/"},
    )


# --- SQLite -----------------------------------------------------------------------------------------------------------


def test_a_locked_sqlite_database_is_reported_and_waited_for(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite.store, "BUSY_SECONDS", 0.3)
    create_jobs(sqlite_database, 5)
    contract = contract_of(schedulers=SECOND, lease=timedelta(seconds=2), attempts=99, backoff=timedelta(seconds=1))
    with world(sqlite_database, contract) as one, running(one):
        await_sweep(one, sqlite_database, 1)
        application = sqlite_database.connect()
        application.execute("BEGIN IMMEDIATE")
        application.execute("UPDATE job SET at_ms = at_ms")
        await_true(lambda: failures(one) > 0, "it reports that the database is locked")
        application.execute("COMMIT")
        await_sweep(one, sqlite_database, 2)
        assert any("locked" in event.error for event in one.reported(TickFailed) + one.reported(WorkFailed))
