"""A database with a contract in force, and short ways to tick, to work and to read what came of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from prune.keeping import ago, insert, table
from servers import Database
from wane._contract.fingerprint import fingerprint
from wane._contract.model import Contract, Scheduler, Table
from wane._contract.settings import QueueSettings, SweepSettings
from wane._db import Store, open_store
from wane._db.postgres.store import PostgresStore
from wane._db.postgres.transaction import PostgresTransaction
from wane._db.sqlite.store import SqliteStore
from wane._db.sqlite.transaction import SqliteTransaction
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._schedule import Runner
from wane._schedule.adoption import require_in_force
from wane._schedule.executor import Executor
from wane._schedule.scheduler import Tick, tick
from wane._schedule.worker import Worker, policy_of
from wane.events import Event
from wane.queue import Queue
from wane.queue._dialects import messages_of
from wane.queue._sql import Message

E = TypeVar("E")

EVERY = timedelta(minutes=5)
NOON = datetime(2100, 6, 1, 12, 0, tzinfo=UTC)
"""The beginning of a window of five minutes, and of one hour; by then, everything that the tests call old is due."""
TICK = (Scheduler("tick", EVERY),)
ALL = SweepSettings(fuse_rows=1_000_000)
"""No fuse: tests take whole tables."""
SLOWLY = SweepSettings(batch_ms=1, duty=0.0001, fuse_rows=1_000_000)
"""Pauses of seconds between batches: a sweep that takes its time."""


class Clock:
    """The database's clock, in the hands of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = NOON
        for kind in (SqliteStore, PostgresStore, SqliteTransaction, PostgresTransaction):
            for name in ("clock", "now"):
                monkeypatch.setattr(kind, name, lambda _: self.now)

    def advance(self, **duration: float) -> None:
        self.now += timedelta(**duration)


def contract_of(
    *tables: Table,
    schedulers: tuple[Scheduler, ...] = TICK,
    sweep: SweepSettings = ALL,
    **queue: Any,
) -> Contract:
    """Return a contract of these tables, `job` with a rule of a week if none are given. Words beside them are settings
    of the queue."""
    return Contract(None, tables or (table(),), schedulers=schedulers, sweep=sweep, queue=QueueSettings(**queue))


class World:
    """One process's view: a contract, a store, and everything that was reported."""

    def __init__(self, database: Database, store: Store, contract: Contract) -> None:
        self.database = database
        self.store = store
        self.contract = contract
        self.events: list[Event] = []
        self.keeper = Keeper(contract, store, actor="tester", listener=self.events.append)
        self.queue = Queue(store, contract.queue.pool, policy=policy_of(contract), listener=self.events.append)
        self._workers: list[Worker] = []
        self._own = "wane_" if database.store == "sqlite" else "wane."

    def tick(self, scheduler: str = "tick") -> Tick | None:
        [chosen] = [one for one in self.contract.schedulers if one.name == scheduler]
        return tick(self.store, self.contract, chosen, self.queue, by="tester", listener=self.events.append)

    def opened(self, scheduler: str = "tick") -> datetime | None:
        """Return the window that a tick opens, if it does."""
        ticked = self.tick(scheduler)
        return None if ticked is None else ticked.window

    def worker(self, stop: threading.Event | None = None) -> Worker:
        executor = Executor("worker", fingerprint(self.contract), self.events.append)
        made = Worker(self.store, self.contract, self.queue, executor, self.events.append, stop or threading.Event())
        self._workers.append(made)
        return made

    def close(self) -> None:
        self.queue.close()
        for worker in self._workers:
            worker.close()

    def runner(self, **options: Any) -> Runner:
        return Runner(self.store, self.contract, listener=self.events.append, **options)

    def reported(self, kind: type[E]) -> list[E]:
        return [event for event in list(self.events) if isinstance(event, kind)]

    def messages(self) -> list[Message]:
        """Return all messages, in the order in which they were enqueued."""
        found = self.database.query(f"SELECT message_id FROM {self.own('message')} ORDER BY seq")
        messages = [
            messages_of(self.store).find(self.store.run, self.queue.pool, message_id=message_id)
            for (message_id,) in found
        ]
        return [message for message in messages if message is not None]

    def states(self) -> list[str]:
        return [message.state.value for message in self.messages()]

    def fence(self, name: str = "job") -> int:
        [(number,)] = self.database.query(f"SELECT fence FROM {self.own('lease')} WHERE name = ?", (f"sweep:{name}",))
        return int(number)

    def own(self, name: str) -> str:
        return f"{self._own}{name}"

    def count(self, name: str) -> int:
        [(rows,)] = self.database.query(f"SELECT count(*) FROM {name}")
        return int(rows)


@contextmanager
def world(database: Database, contract: Contract | None = None, *, enable: bool = True) -> Iterator[World]:
    """Yield a migrated database on which the contract is in force and sweeps are on."""
    with open_store(resolve_url(database.url)) as store:
        store.migrate()
        made = World(database, store, contract or contract_of())
        require_in_force(store, made.contract, by="tester")
        if enable:
            made.keeper.enable()
        try:
            yield made
        finally:
            made.close()


@contextmanager
def beside(one: World, contract: Contract | None = None) -> Iterator[World]:
    """Yield another process on the same database."""
    with one.store.clone() as store:
        other = World(one.database, store, contract or one.contract)
        try:
            yield other
        finally:
            other.close()


def create_jobs(database: Database, rows: int = 0, name: str = "job", *, create: bool = True) -> None:
    """Create a table of jobs, so many of which are due, and one that is live."""
    if create:
        database.execute(f"CREATE TABLE {name} (id integer NOT NULL PRIMARY KEY, state text NOT NULL, at_ms bigint)")
        index = name.replace(".", "_")
        database.execute(f"CREATE INDEX {index}_due ON {name} (state, at_ms, id)")
        insert(database, name, "id, state, at_ms", (0, "queued", ago(400)))
    if rows:
        insert(database, name, "id, state, at_ms", *[(n, "done", ago(30) + n) for n in range(1, rows + 1)])
