"""A database where retention does its work, and ways to make it unhealthy: one each."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from covering import loaded
from prune.keeping import insert, timestamp
from servers import Database
from wane._contract.model import Contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._ledger import AuditEntry, Ledger
from wane._prune.sql_fuse import FuseStates
from wane._schedule.sql import Alive, Timetable, Window
from wane.observe._health import TableHealth
from wane.observe._sql_snapshots import Snapshot, Snapshots
from wane.queue import Queue, RetryPolicy
from wane.reference import schema_sql

CONTRACT = """
include = ["reference:claims"]
[scheduler]
tick = { every = "5m" }
[health]
hot_read_ms = 60000   # How long a read takes on a busy machine is no subject of these tests.

[table.job]
scheduler = "tick"
why   = "Done jobs stay for a week."
state = "state"
live  = ["queued"]
time  = { column = "at_ms", unit = "ms" }
[table.job.rule.old]
when = ["done"]
keep = "7d"

[table.inbox]
scheduler = "tick"
why   = "A message outlives its replies."
state = "state"
live  = ["new"]
time  = { column = "at_ms", unit = "ms" }
[table.inbox.rule.completed]
when   = ["completed"]
keep   = "7d"
unless = [{ referenced_by = "reply.inbox_id" }]

[table.thread]
scheduler = "tick"
why  = "Posts leave with their thread, and their likes with them."
time = { column = "at_ms", unit = "ms" }
[table.thread.rule.old]
keep = "30d"
with = [{ table = "post", columns = ["thread_id"], with = ["liking.post_id"] }]

[table.presence]
scheduler = "tick"
why  = "Rebuilt by heartbeats."
time = { column = "seen_ms", unit = "ms" }
[table.presence.rule.expired]
expires = { column = "ends_ms", unit = "ms" }
[table.presence.rule.cap]
most = 10

[excused]
cache = { singleton = "one row" }
route = { constant = "one row per route", rows = 5 }
reply = { inline = "deleted when it is sent" }
"""

SCHEMA = """
CREATE TABLE job (id integer PRIMARY KEY, state text NOT NULL, at_ms bigint);
CREATE INDEX job_age ON job (state, at_ms, id);
CREATE TABLE inbox (id integer PRIMARY KEY, state text NOT NULL, at_ms bigint);
CREATE INDEX inbox_age ON inbox (state, at_ms, id);
CREATE TABLE reply (id integer PRIMARY KEY, inbox_id integer);
CREATE INDEX reply_inbox ON reply (inbox_id);
CREATE TABLE thread (id integer PRIMARY KEY, at_ms bigint);
CREATE INDEX thread_age ON thread (at_ms, id);
CREATE TABLE post (id integer PRIMARY KEY, thread_id integer);
CREATE INDEX post_thread ON post (thread_id);
CREATE TABLE liking (id integer PRIMARY KEY, post_id integer);
CREATE INDEX liking_post ON liking (post_id);
CREATE TABLE presence (id integer PRIMARY KEY, seen_ms bigint, ends_ms bigint);
CREATE INDEX presence_seen ON presence (seen_ms, id);
CREATE INDEX presence_end ON presence (ends_ms, id);
CREATE TABLE cache (id integer PRIMARY KEY);
CREATE TABLE route (id integer PRIMARY KEY);
"""

HOUR = 1 / 24
MINUTE = HOUR / 60


def ago(days: float) -> int:
    """Return milliseconds since 1970, so many days before now: some of it is a matter of minutes."""
    return round((time.time() - days * 86_400) * 1_000)


@dataclass
class World:
    """The database and its keeper."""

    database: Database
    keeper: Keeper

    def settle(self, **settings: Any) -> None:
        """Judge by other settings."""
        contract = replace(self.keeper.contract, health=replace(self.keeper.contract.health, **settings))
        self.keeper = Keeper(contract, self.keeper.store, actor="tester")

    def codes(self) -> list[tuple[str, str]]:
        return [(one.code, one.table) for one in self.keeper.health().findings]

    def record(self, table: str, rule: str, rows: int, *, days: float) -> None:
        """Record an entry of the trail, as a sweep so many days ago would have left it."""
        at = timestamp(ago(days))
        entry = AuditEntry("prune", table, "tester", {}, {table: rows}, at, rule=rule, run=uuid.uuid4().hex)
        with self.keeper.store.transaction() as transaction:
            Ledger.of(transaction).record(entry)

    def measure(self, table: str, rate: float, *, days: float = MINUTE) -> None:
        """Store a snapshot of so many days ago, at which the table grew by so many rows a day."""
        store = self.keeper.store
        full = f"{'main' if store.kind == 'sqlite' else 'public'}.{table}"
        at, near = timestamp(ago(days)), abs(rate) / 10
        taken = Snapshot(at, full, 100, True, None, False, rate, rate - near, rate + near)
        with store.transaction() as transaction:
            Snapshots(store.dialect).write(transaction.execute, taken)

    def table(self, name: str) -> TableHealth:
        [found] = [one for one in self.keeper.health().tables if one.pressure.table == name]
        return found

    def age_trail(self, days: float) -> None:
        """Date the last sweeps so many days back."""
        at = timestamp(ago(days))
        sqlite = self.keeper.store.kind == "sqlite"
        name, value = ("wane_audit", at.isoformat()) if sqlite else ("wane.audit", at)
        self.database.execute(f"UPDATE {name} SET executed_at = ?", (value,))


def contract() -> Contract:
    return loaded(CONTRACT)


@contextmanager
def healthy(database: Database, *, migrate: bool = True) -> Iterator[World]:
    """Yield a database where nothing is wrong: rows of all kinds, none overdue, just swept."""
    database.script(SCHEMA)
    database.script(schema_sql("claims", database.store)["main"])
    insert(database, "job", "id, state, at_ms", (1, "queued", ago(90)), (2, "done", ago(6)), (3, "done", ago(1)))
    insert(
        database, "inbox", "id, state, at_ms", (1, "new", ago(90)), (2, "completed", ago(90)), (3, "completed", ago(1))
    )
    insert(database, "reply", "id, inbox_id", (1, 2), (2, None))
    insert(database, "thread", "id, at_ms", (1, ago(2)), (2, ago(29)))
    insert(database, "post", "id, thread_id", (1, 1), (2, 2), (3, None))
    insert(database, "liking", "id, post_id", (1, 1))
    insert(database, "presence", "id, seen_ms, ends_ms", *((n, ago(n * HOUR), ago(-1)) for n in range(1, 9)))
    insert(database, "cache", "id", (1,))
    insert(database, "route", "id", (1,), (2,))
    with open_store(resolve_url(database.url)) as store:
        if migrate:
            store.migrate()
        keeper = Keeper(contract(), store, actor="tester")
        if migrate:
            keeper.enable()
            keeper.adopt()
            keeper.sweep()
            Timetable(store.dialect).heartbeat(store.run, Alive("worker-1", "worker", "idle", "f", 10.0), store.clock())
        yield World(database, keeper)


# --- Sicknesses ---------------------------------------------------------------------------------------------------


def sweeps_off(world: World) -> None:
    world.keeper.disable()


def table_off(world: World) -> None:
    world.keeper.disable("job")


def another_contract(world: World) -> None:
    store = world.keeper.store
    Timetable(store.dialect).adopt(store.run, "0123456789abcdef", "somebody", store.clock())


def late_scheduler(world: World) -> None:
    store = world.keeper.store
    with store.transaction() as transaction:
        Timetable(store.dialect).lock_window(transaction.execute, "tick", timestamp(ago(HOUR)))
        Timetable(store.dialect).write_window(
            transaction.execute, Window("tick", None, timestamp(ago(HOUR)), None, "me")
        )


def silent_executor(world: World) -> None:
    store = world.keeper.store
    Timetable(store.dialect).leave(store.run, "worker-1")
    Timetable(store.dialect).heartbeat(store.run, Alive("worker-2", "worker", "idle", "f", 10.0), timestamp(ago(HOUR)))


def dead_letter(world: World) -> None:
    with closing(Queue(world.keeper.store, "retention", policy=RetryPolicy(attempts=1))) as queue:
        queue.enqueue("sweep", message_id="m")
        reserved = queue.reserve()
        assert reserved is not None
        queue.release(reserved.message_id, reserved.token, "it failed")


def stale_reservation(world: World) -> None:
    before = timestamp(ago(HOUR))
    with closing(Queue(world.keeper.store, "retention", clock=lambda: before)) as queue:
        queue.enqueue("sweep", message_id="m")
        assert queue.reserve() is not None


def overdue(world: World) -> None:
    world.age_trail(3 * HOUR)
    insert(world.database, "job", "id, state, at_ms", (10, "done", ago(7 + 2 * HOUR)))


def overdue_and_freed_long_ago(world: World) -> None:
    """Insert a guarded row that no sweep took since its guard fell."""
    world.age_trail(3 * HOUR)
    world.database.execute("DELETE FROM reply WHERE id = 1")


def sweeps_without_effect(world: World) -> None:
    insert(world.database, "job", "id, state, at_ms", *((n, "done", ago(7 + HOUR)) for n in range(10, 40)))


def falling_behind(world: World) -> None:
    late = ((n, "done", ago(8)) for n in range(100, 150))
    soon = ((n, "done", ago(7 - MINUTE)) for n in range(200, 250))
    insert(world.database, "job", "id, state, at_ms", *late, *soon)
    world.record("job", "old", 5, days=4 * HOUR)
    world.record("job", "old", 5, days=MINUTE)


def uncovered(world: World) -> None:
    world.database.script("CREATE TABLE stray (id integer PRIMARY KEY)")


def broken_rule(world: World) -> None:
    world.database.script("DROP TABLE job")


def cap_exceeded(world: World) -> None:
    rows = ((n, ago(2 * HOUR), ago(-1)) for n in range(100, 120))
    insert(world.database, "presence", "id, seen_ms, ends_ms", *rows)


def second_singleton(world: World) -> None:
    insert(world.database, "cache", "id", (2,))


def too_many_routes(world: World) -> None:
    insert(world.database, "route", "id", *((n,) for n in range(10, 20)))


def dangling(world: World) -> None:
    """Delete a completed message while its reply stands."""
    world.database.execute("DELETE FROM inbox WHERE id = 2")


def orphaned_follower(world: World) -> None:
    world.database.execute("DELETE FROM thread WHERE id = 2")


def orphaned_inner_follower(world: World) -> None:
    world.database.execute("DELETE FROM post WHERE id = 1")


def stale_claim(world: World) -> None:
    claims = world.keeper.claims()
    claims.claim("task", "me", ttl=timedelta(hours=1))
    at = timestamp(ago(HOUR))
    value: object = at.strftime("%Y-%m-%d %H:%M:%S") if world.keeper.store.kind == "sqlite" else at
    world.database.execute("UPDATE work_claims SET expires_at = ?", (value,))


def fused(world: World) -> None:
    """Make an unattended sweep due that would take most of the table."""
    store = world.keeper.store
    with store.transaction() as transaction:
        states = FuseStates(store.dialect, transaction.execute)
        states.blow("job", "old", "1,204 of 1,206 rows are due (99.8%)", transaction.now())
        states.blow("gone", "old", "the contract has no such table any more", transaction.now())


def slow_reads(world: World) -> None:
    world.settle(hot_read_ms=0.000_001, counted_rows=2)


CONDITIONS: dict[Callable[[World], None], tuple[str, str]] = {
    sweeps_off: ("sweeps-off", ""),
    table_off: ("table-off", "job"),
    another_contract: ("another-contract", ""),
    late_scheduler: ("late-scheduler", ""),
    silent_executor: ("silent-executor", ""),
    dead_letter: ("dead-letters", ""),
    stale_reservation: ("stale-reservation", ""),
    overdue: ("overdue", "job"),
    overdue_and_freed_long_ago: ("overdue", "inbox"),
    sweeps_without_effect: ("sweeps-without-effect", "job"),
    falling_behind: ("falling-behind", "job"),
    uncovered: ("uncovered-table", "stray"),
    broken_rule: ("broken-rule", "job"),
    cap_exceeded: ("cap-exceeded", "presence"),
    second_singleton: ("false-excuse", "cache"),
    too_many_routes: ("false-excuse", "route"),
    dangling: ("dangling-reference", "inbox"),
    orphaned_follower: ("orphaned-follower", "thread"),
    orphaned_inner_follower: ("orphaned-follower", "thread"),
    stale_claim: ("stale-claim", "work_claims"),
    fused: ("fused-rule", "job"),
    slow_reads: ("slow-reads", ""),
}
"""Each with the code and the table of the one finding that it makes."""
