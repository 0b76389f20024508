"""The cleanup queue beside its peers: reserve + ack, enqueue, and wakeups, as ratios from one interleaved run.

    python -m bench.queue [--store postgres|sqlite] [--pending 1000 1000000] [--workers 1 4 16] [--seconds 3] [--rounds
    3]

Peers are measured if they are installed (bench/peers.txt, Python 3.12): procrastinate and pgqueuer on PostgreSQL; on
SQLite the queue of honker that knockerlite carries, and honker 0.5.0. Every system has its own database on the same
durable server, or its own file with the same pragmas; workers are processes with a connection each, and they speak to
each system through its own Python interface. `--cpu` adds the CPU time of an operation, of the workers and all
processes of the server together. On SQLite honker never waits for the disk, so Wane is measured as it is, and at NORMAL
like honker: every ratio is between two that wait for the disk, or two that do not. A run replaces what an earlier one
saved of the same store, backlog and number of workers, and leaves the rest; each line has its date, load and versions.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import importlib.util
import json
import multiprocessing
import sqlite3
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.measuring import ROOT, machine, postgres_url, print_line, server_cpu_seconds

POOL = "bench"
Barrier = Any
AT_NORMAL = "wane at NORMAL"
"""Wane on SQLite with `synchronous = NORMAL`, which is no setting of its own."""
_spent: list[tuple[float, float]] = []
"""CPU seconds and seconds of each measurement of this process."""
_most: list[int] = []
"""The most operations of a measurement of this process; empty if only seconds end it."""
_ENOUGH_SECONDS = 60.0
SHORT = 10_000
"""Fewer pending messages than this would run out within seconds, or grow as much by what is enqueued before."""
FEW = 200
"""As many operations are measured at a time on a short queue, which is then filled up to its length: a fifth of the
shortest, so that its length does not change much."""
SHORT_ROUNDS = 4
"""A short queue is measured in so many times more rounds."""
_ends: list[Barrier] = []
"""Before and after the server's CPU time is read at the end of a measurement."""
WARM_UP = 20
"""Operations of each worker before a measurement."""
PAYLOAD = {"flow_run": "0b6c1f0e-3a53-4d8e-9d5e-6a3c2c0f7a11", "reason": "crashed", "attempt": 1}


@dataclass(frozen=True, slots=True)
class System:
    """One queue: how to fill it, and what a worker process does with it."""

    name: str
    fill: Callable[[str, int, int], None]
    """Fill it, by its address, with so many pending messages and so many completed ones."""
    drain: Callable[[str, Barrier, float], int]
    """Reserve and ack for so many seconds; how many."""
    enqueue: Callable[[str, Barrier, float], int]
    packages: tuple[str, ...] = ()
    """Whose versions a result names."""


def warm_up(once: Callable[[], object]) -> None:
    """Run what is measured until statements are prepared and caches filled."""
    for _ in range(WARM_UP):
        once()


async def warm_up_async(once: Callable[[], Any]) -> None:
    for _ in range(WARM_UP):
        await once()


def count_until(seconds: float, once: Callable[[], object]) -> int:
    done, cpu, began = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() < began + seconds and done not in _most:
        once()
        done += 1
    _ended(cpu, began)
    return done


async def count_until_async(seconds: float, once: Callable[[], Any]) -> int:
    done, cpu, began = 0, time.process_time(), time.perf_counter()
    while time.perf_counter() < began + seconds and done not in _most:
        await once()
        done += 1
    _ended(cpu, began)
    return done


def _ended(cpu: float, began: float) -> None:
    """Wait with an open connection until the server's CPU time was read: that of a process that ended is gone."""
    _spent.append((time.process_time() - cpu, time.perf_counter() - began))
    for barrier in _ends:
        barrier.wait()


# Wane


def wane_fill(where: str, pending: int, completed: int) -> None:
    from wane._db import open_store
    from wane._db.url import resolve_url

    with open_store(resolve_url(where)) as store:
        store.migrate()
        counted = "(WITH RECURSIVE n(g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM n WHERE g < {}) SELECT g FROM n)"
        series = "generate_series(1, {})" if store.kind == "postgres" else counted
        table = "wane.message" if store.kind == "postgres" else "wane_message"
        now = "now()" if store.kind == "postgres" else "strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')"
        payload = json.dumps(PAYLOAD)
        if store.kind == "postgres":
            store.run("ALTER TABLE wane.message DISABLE TRIGGER USER", {})
        else:
            store.run("DROP TRIGGER wane_message_enqueued", {})
        for state, many in (("done", completed), ("ready", pending)):
            finished = now if state == "done" else "NULL"
            alias = " AS s(g)" if store.kind == "postgres" else ""
            store.run(
                f"INSERT INTO {table} (pool, message_id, idempotency_key, kind, target, data, state, created_at, updated_at, finished_at)"
                f" SELECT '{POOL}', '{state}' || g, '{state}' || g, 'sweep', '{{}}', '{payload}', '{state}', {now}, {now}, {finished}"
                f" FROM {series.format(many)}{alias}",
                {},
            )
        if store.kind == "postgres":
            store.run("ALTER TABLE wane.message ENABLE TRIGGER USER", {})
            store.run("VACUUM ANALYZE wane.message", {})
        else:
            store.run(
                "CREATE TRIGGER wane_message_enqueued AFTER INSERT ON wane_message WHEN NEW.state = 'ready' BEGIN"
                " INSERT INTO wane_wakeup (pool, bumps) VALUES (NEW.pool, 1) ON CONFLICT (pool) DO UPDATE SET bumps = bumps + 1; END",
                {},
            )


def _wane(where: str) -> Any:
    from wane._db import open_store
    from wane._db.sqlite.store import SqliteStore
    from wane._db.url import resolve_url
    from wane.queue import Queue

    store = open_store(resolve_url(where))
    if isinstance(store, SqliteStore) and AT_NORMAL.replace(" ", "-") in where:
        store._connection.execute("PRAGMA synchronous = normal")
    return Queue(store, POOL)


def wane_drain(where: str, barrier: Barrier, seconds: float) -> int:
    queue = _wane(where)

    def once() -> None:
        reservation = queue.reserve()
        assert reservation is not None
        assert queue.ack(reservation.message_id, reservation.token).accepted

    warm_up(once)
    barrier.wait()
    return count_until(seconds, once)


def wane_enqueue(where: str, barrier: Barrier, seconds: float) -> int:
    queue = _wane(where)

    def once() -> None:
        queue.enqueue("sweep", data=PAYLOAD)

    warm_up(once)
    barrier.wait()
    return count_until(seconds, once)


# The floor: two commits that each change one row by its key


def bare_fill(where: str, pending: int, completed: int) -> None:
    del pending, completed
    statements = ["CREATE TABLE bare (id integer PRIMARY KEY, v integer)"]
    if where.startswith("sqlite"):
        with sqlite3.connect(where.removeprefix("sqlite:///")) as connection:
            connection.execute(statements[0])
            connection.executemany("INSERT INTO bare VALUES (?, 0)", [(n,) for n in range(10_000)])
        return
    import psycopg

    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute(statements[0])
        connection.execute("INSERT INTO bare SELECT g, 0 FROM generate_series(0, 9999) AS g")


def bare_drain(where: str, barrier: Barrier, seconds: float) -> int:
    import random

    if where.startswith("sqlite"):
        connection: Any = sqlite3.connect(where.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
        text, options = "UPDATE bare SET v = v + 1 WHERE id = ?", {}
    else:
        import psycopg

        connection = psycopg.connect(where, autocommit=True)
        text, options = "UPDATE bare SET v = v + 1 WHERE id = %s", {"prepare": True}

    def once() -> None:
        for _ in range(2):
            connection.execute(text, [random.randrange(10_000)], **options)

    warm_up(once)
    barrier.wait()
    return count_until(seconds, once)


# procrastinate


def _procrastinate(where: str) -> Any:
    import procrastinate

    return procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=where, min_size=1, max_size=2))


def procrastinate_fill(where: str, pending: int, completed: int) -> None:
    import psycopg

    async def schema() -> None:
        app = _procrastinate(where)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    asyncio.run(schema())
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        for status, many in (("succeeded", completed), ("todo", pending)):
            connection.execute(
                "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status) SELECT %s, 'sweep', %s::jsonb,"
                " %s::procrastinate_job_status FROM generate_series(1, %s)",
                [POOL, json.dumps(PAYLOAD), status, many],
            )
        connection.execute("VACUUM ANALYZE procrastinate_jobs")


def procrastinate_drain(where: str, barrier: Barrier, seconds: float) -> int:
    from procrastinate.jobs import Status

    async def work() -> int:
        app = _procrastinate(where)
        async with app.open_async():
            manager = app.job_manager
            worker = await manager.register_worker()

            async def once() -> None:
                job = await manager.fetch_job([POOL], worker)
                assert job is not None
                await manager.finish_job(job, Status.SUCCEEDED, delete_job=False)

            await warm_up_async(once)
            await asyncio.to_thread(barrier.wait)
            return await count_until_async(seconds, once)

    return asyncio.run(work())


def procrastinate_enqueue(where: str, barrier: Barrier, seconds: float) -> int:
    async def work() -> int:
        app = _procrastinate(where)
        async with app.open_async():
            task = app.configure_task("sweep", queue=POOL)
            once = partial(task.defer_async, **PAYLOAD)
            await warm_up_async(once)
            await asyncio.to_thread(barrier.wait)
            return await count_until_async(seconds, once)

    return asyncio.run(work())


# pgqueuer


def pgqueuer_fill(where: str, pending: int, completed: int) -> None:
    import psycopg

    async def schema() -> None:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        connection = await asyncpg.connect(where)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    asyncio.run(schema())
    with psycopg.connect(where, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(
            "INSERT INTO pgqueuer_log (job_id, status, priority, entrypoint) SELECT g, 'successful', 0, 'sweep' FROM generate_series(1, %s) AS g",
            [completed],
        )
        connection.execute(
            "INSERT INTO pgqueuer (priority, status, entrypoint, payload) SELECT 0, 'queued', 'sweep', %s FROM generate_series(1, %s)",
            [json.dumps(PAYLOAD).encode(), pending],
        )
        connection.execute("VACUUM ANALYZE pgqueuer")


def pgqueuer_drain(where: str, barrier: Barrier, seconds: float) -> int:
    async def work() -> int:
        from datetime import timedelta

        import asyncpg
        from pgqueuer.adapters.persistence.queries import EntrypointExecutionParameter
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        connection = await asyncpg.connect(where)
        queries = Queries(AsyncpgDriver(connection))
        manager = uuid.uuid4()
        entrypoints = {"sweep": EntrypointExecutionParameter(0)}

        async def once() -> None:
            [job] = await queries.dequeue(1, entrypoints, manager, None, timedelta(seconds=30))  # type: ignore[arg-type]
            await queries.log_jobs([(job, "successful", None)])

        await warm_up_async(once)
        await asyncio.to_thread(barrier.wait)
        return await count_until_async(seconds, once)

    return asyncio.run(work())


def pgqueuer_enqueue(where: str, barrier: Barrier, seconds: float) -> int:
    async def work() -> int:
        import asyncpg
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.queries import Queries

        queries = Queries(AsyncpgDriver(await asyncpg.connect(where)))
        once = partial(queries.enqueue, "sweep", json.dumps(PAYLOAD).encode())
        await warm_up_async(once)
        await asyncio.to_thread(barrier.wait)
        return await count_until_async(seconds, once)

    return asyncio.run(work())


# honker, as knockerlite carries it


def _honker(where: str) -> Any:
    import knocker

    return knocker.open(where.removeprefix("sqlite:///"))


def honker_fill(where: str, pending: int, completed: int) -> None:
    del completed  # It deletes what is done.
    opened = _honker(where)
    with opened.db.transaction() as transaction:
        transaction.query(
            "SELECT count(honker_enqueue(?, ?, NULL, NULL, 0, 3, NULL)) FROM (WITH RECURSIVE n(g) AS (SELECT 1 UNION ALL"
            " SELECT g + 1 FROM n WHERE g < ?) SELECT g FROM n)",
            [opened.queue.name, json.dumps(PAYLOAD), pending],
        )


def honker_drain(where: str, barrier: Barrier, seconds: float) -> int:
    queue = _honker(where).queue
    worker = str(uuid.uuid4())

    def once() -> None:
        [job] = queue.claim_batch(worker, 1)
        assert queue.ack(job.id, worker)

    warm_up(once)
    barrier.wait()
    return count_until(seconds, once)


def honker_enqueue(where: str, barrier: Barrier, seconds: float) -> int:
    opened = _honker(where)
    payload = json.dumps(PAYLOAD)

    def once() -> None:
        with opened.db.transaction() as transaction:
            transaction.query("SELECT honker_enqueue(?, ?, NULL, NULL, 0, 3, NULL) AS id", [opened.queue.name, payload])

    warm_up(once)
    barrier.wait()
    return count_until(seconds, once)


# honker 0.5.0


def _honker_050(where: str) -> Any:
    import honker

    assert importlib.metadata.version("honker") == "0.5.0"
    return honker.open(where.removeprefix("sqlite:///")).queue(POOL)


def honker_050_fill(where: str, pending: int, completed: int) -> None:
    del completed  # It deletes what is done.
    queue = _honker_050(where)
    with queue.db.transaction() as transaction:
        for _ in range(pending):
            queue.enqueue(PAYLOAD, tx=transaction)


def honker_050_drain(where: str, barrier: Barrier, seconds: float) -> int:
    queue = _honker_050(where)
    worker = str(uuid.uuid4())

    def once() -> None:
        [job] = queue.claim_batch(worker, 1)
        assert job.ack()

    warm_up(once)
    barrier.wait()
    return count_until(seconds, once)


def honker_050_enqueue(where: str, barrier: Barrier, seconds: float) -> int:
    queue = _honker_050(where)

    def once() -> None:
        queue.enqueue(PAYLOAD)

    warm_up(once)
    barrier.wait()
    return count_until(seconds, once)


WANE = System("wane", wane_fill, wane_drain, wane_enqueue)
NORMAL = System(AT_NORMAL, wane_fill, wane_drain, wane_enqueue)
BARE = System("two bare commits", bare_fill, bare_drain, bare_drain)
POSTGRES = {
    "procrastinate": System(
        "procrastinate", procrastinate_fill, procrastinate_drain, procrastinate_enqueue, ("procrastinate", "psycopg")
    ),
    "pgqueuer": System("pgqueuer", pgqueuer_fill, pgqueuer_drain, pgqueuer_enqueue, ("pgqueuer", "asyncpg")),
}
SQLITE = {
    "knocker": System("honker", honker_fill, honker_drain, honker_enqueue, ("knockerlite",)),
    "honker": System("honker 0.5.0", honker_050_fill, honker_050_drain, honker_050_enqueue, ("honker",)),
}


def _process(
    work: Callable[[str, Barrier, float], int],
    where: str,
    barriers: tuple[Barrier, Barrier, Barrier],
    seconds: float,
    most: list[int],
    results: Any,
) -> None:
    began, *ends = barriers
    _ends.extend(ends)
    _most.extend(most)
    done = work(where, began, seconds)
    results.put((done, *_spent[-1]))


def rate(
    work: Callable[[str, Barrier, float], int],
    where: str,
    workers: int,
    seconds: float,
    server: int | None = None,
    most: int | None = None,
) -> tuple[float, float]:
    """Return operations per second of several processes together, and the CPU seconds of one, with the server's.

    They end after some seconds, or after `most` operations of all together.
    """
    context = multiprocessing.get_context("spawn")
    barriers = (context.Barrier(workers + 1), context.Barrier(workers + 1), context.Barrier(workers + 1))
    results = context.Queue()
    each = [] if most is None else [most // workers]
    processes = [
        context.Process(target=_process, args=(work, where, barriers, seconds, each, results)) for _ in range(workers)
    ]
    for process in processes:
        process.start()
    spent = 0.0
    for barrier, sign in zip(barriers, (-1, 1, 0), strict=True):
        barrier.wait(seconds + 120)
        spent += 0 if server is None else sign * server_cpu_seconds(server)
    found = [results.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    total = sum(done for done, _, _ in found)
    per_second = sum(done / took for done, _, took in found)
    return per_second, (spent + sum(own for _, own, _ in found)) / total


# Wakeups: how long after an enqueue began a process that waits has been woken


def wane_waits(where: str, barrier: Barrier, wakeups: int) -> list[float]:
    queue = _wane(where)
    sequence = queue.read_wakeup_sequence()
    last = sequence + wakeups
    barrier.wait()
    woken = []
    # On a busy machine one wakeup may follow two enqueues.
    while sequence < last:
        newer = queue.wait_for_wakeup(sequence, timeout=10)
        woken.append(time.monotonic())
        assert newer is not None
        sequence = newer
    return woken


def wane_wakes(where: str, barrier: Barrier, wakeups: int) -> list[float]:
    queue = _wane(where)
    return _enqueue_slowly(barrier, wakeups, lambda: queue.enqueue("sweep", data=PAYLOAD), _drained(queue))


def _drained(queue: Any) -> Callable[[], None]:
    """Return what takes the message for the worker that was woken: an empty queue is what a waiting worker sees."""

    def once() -> None:
        for one in queue.reserve_many(10):
            queue.ack(one.message_id, one.token)

    return once


def honker_waits(where: str, barrier: Barrier, wakeups: int) -> list[float]:
    async def wait() -> list[float]:
        events = _honker(where).db.wal_events()
        await asyncio.to_thread(barrier.wait)
        woken: list[float] = []
        while len(woken) < wakeups:
            await asyncio.wait_for(events.__anext__(), timeout=10)
            woken.append(time.monotonic())
        return woken

    return asyncio.run(wait())


def honker_wakes(where: str, barrier: Barrier, wakeups: int) -> list[float]:
    opened = _honker(where)
    payload = json.dumps(PAYLOAD)

    def once() -> None:
        with opened.db.transaction() as transaction:
            transaction.query("SELECT honker_enqueue(?, ?, NULL, NULL, 0, 3, NULL) AS id", [opened.queue.name, payload])

    return _enqueue_slowly(barrier, wakeups, once, lambda: None)


def _enqueue_slowly(
    barrier: Barrier, wakeups: int, once: Callable[[], object], between: Callable[[], None]
) -> list[float]:
    barrier.wait()
    sent = []
    for _ in range(wakeups):
        time.sleep(0.03)
        sent.append(time.monotonic())
        once()
        time.sleep(0.03)
        between()
    return sent


WAKING = {"wane": (wane_waits, wane_wakes), "honker": (honker_waits, honker_wakes)}


def _latency_process(
    work: Callable[[str, Barrier, int], list[float]],
    where: str,
    barrier: Barrier,
    wakeups: int,
    results: Any,
    name: str,
) -> None:
    results.put((name, work(where, barrier, wakeups)))


def wakeup_latencies(name: str, where: str, wakeups: int) -> list[float]:
    """Return milliseconds from the beginning of an enqueue until a waiting process has been woken."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    processes = [
        context.Process(target=_latency_process, args=(work, where, barrier, wakeups, results, role))
        for role, work in zip(("woken", "sent"), WAKING[name], strict=True)
    ]
    for process in processes:
        process.start()
    found = dict(results.get(timeout=120) for _ in processes)
    for process in processes:
        process.join()
    # A commit between two enqueues may wake too: each enqueue counts with the first wakeup after it.
    woken = sorted(found["woken"])
    latencies = []
    for sent in found["sent"]:
        after = next((one for one in woken if one > sent), None)
        if after is not None:
            latencies.append((after - sent) * 1_000)
    return latencies


def databases(stack: ExitStack, store: str, systems: list[System]) -> dict[str, str]:
    """Create a database for each system."""
    if store == "sqlite":
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wane-bench-")))
        where = {}
        for system in systems:
            path = directory / f"{system.name.replace(' ', '-')}.db"
            with sqlite3.connect(path) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
            where[system.name] = f"sqlite:///{path}"
        return where
    import psycopg

    url = stack.enter_context(postgres_url())
    where = {}
    with psycopg.connect(url, autocommit=True) as connection:
        for number, system in enumerate(systems):
            connection.execute(f"CREATE DATABASE queue_{number}")
            where[system.name] = _other_database(url, f"queue_{number}")
    return where


def _other_database(url: str, name: str) -> str:
    from urllib.parse import urlsplit, urlunsplit

    parts = urlsplit(url)
    # A schema of the given database is none of the new one's.
    query = "&".join(one for one in parts.query.split("&") if not one.startswith("options="))
    return urlunsplit(parts._replace(path=f"/{name}", query=query))


def measure(
    store: str, pending: int, workers: list[int], seconds: float, rounds: int, *, cpu: bool
) -> list[dict[str, Any]]:
    peers = POSTGRES if store == "postgres" else SQLITE
    found = [peer for module, peer in peers.items() if importlib.util.find_spec(module)]
    systems = [WANE, *([NORMAL] if store == "sqlite" else []), BARE, *found]
    lines = []
    with ExitStack() as stack:
        where = databases(stack, store, systems)
        server = stack.enter_context(_server_of(where["wane"])) if store == "postgres" else None
        for system in systems:
            print_line(f"{store}: filling {system.name} with {pending:,} pending")
            system.fill(where[system.name], pending, 1_000_000 if pending >= 1_000_000 else 1_000)
        for what in ("drain", "enqueue"):
            for many in workers:
                samples: dict[str, list[float]] = {system.name: [] for system in systems}
                spent: dict[str, list[float]] = {system.name: [] for system in systems}
                for _ in range(rounds * (SHORT_ROUNDS if pending < SHORT else 1)):
                    for system in systems:
                        few = FEW if pending < SHORT and system is not BARE else None
                        work, there = getattr(system, what), where[system.name]
                        per_second, each = rate(work, there, many, seconds, server, few)
                        if few is not None:
                            _restore_length(system, what, there, few // many * many, many)
                        samples[system.name].append(per_second)
                        spent[system.name].append(round(each * 1_000_000, 1))
                median = {name: statistics.median(values) for name, values in samples.items()}
                ratios = {name: round(median[like(name, median)] / median[name], 2) for name in others(median)}
                print_line(f"{store} {what} pending {pending:,} workers {many}: {median} wane/… {ratios}")
                lines.append(
                    {
                        "store": store,
                        "what": what,
                        "pending": pending,
                        "workers": many,
                        "per_second": samples,
                        "wane_over": ratios,
                        **(_by_cpu(spent) if cpu else {}),
                    }
                )
        if pending < SHORT:
            lines += _measure_wakeups(store, {name: where[name] for name in where if name in WAKING})
    taken = {"measured_on": machine()["measured_on"], "load_at_start": machine()["load_at_start"]}
    return [{**line, **taken, "versions": versions(store, found)} for line in lines]


def versions(store: str, peers: list[System]) -> dict[str, str]:
    """Return the versions of Wane's driver, and of each peer that is measured."""
    own = (
        {"sqlite": sqlite3.sqlite_version} if store == "sqlite" else {"psycopg": importlib.metadata.version("psycopg")}
    )
    return own | {package: importlib.metadata.version(package) for one in peers for package in one.packages}


def merged(saved: list[dict[str, Any]], lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace the saved lines about what was measured anew; keep the others."""

    def about(line: dict[str, Any]) -> tuple[object, ...]:
        return tuple(line.get(key) for key in ("store", "what", "pending", "workers", "system"))

    new = {about(line) for line in lines}
    return [*(line for line in saved if about(line) not in new), *lines]


def others(median: dict[str, float]) -> list[str]:
    """Return the systems that Wane is measured beside."""
    return [name for name in median if name not in ("wane", AT_NORMAL)]


def like(name: str, median: dict[str, float]) -> str:
    """Return Wane with the durability of another system."""
    return AT_NORMAL if name.startswith("honker") and AT_NORMAL in median else "wane"


def _by_cpu(spent: dict[str, list[float]]) -> dict[str, Any]:
    """Return ratios at equal durability: what others take, beside what Wane takes."""
    median = {name: statistics.median(values) for name, values in spent.items()}
    ratios = {name: round(median[name] / median[like(name, median)], 2) for name in others(median)}
    print_line(f"CPU microseconds {median}, wane/… {ratios}")
    return {"cpu_microseconds": spent, "wane_over_by_cpu": ratios}


@contextmanager
def _server_of(url: str) -> Iterator[int]:
    """Yield the process of a connection that stays open: all others of the server have the same parent."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        yield connection.info.backend_pid


def _measure_wakeups(store: str, where: dict[str, str]) -> list[dict[str, Any]]:
    lines = []
    for name, place in where.items():
        if name == "wane":
            _drain_all(place)
        values = sorted(wakeup_latencies(name, place, 200))
        line = {"p50_ms": round(values[len(values) // 2], 2), "p99_ms": round(values[int(len(values) * 0.99)], 2)}
        print_line(f"{store} wakeup {name}: {line}")
        lines.append(
            {"store": store, "what": "wakeup", "system": name, **line, "milliseconds": [round(v, 3) for v in values]}
        )
    return lines


def _drain_all(where: str) -> None:
    queue = _wane(where)
    while found := queue.reserve_many(1_000):
        for one in found:
            queue.ack(one.message_id, one.token)


def _restore_length(system: System, what: str, where: str, operations: int, workers: int) -> None:
    """Let a short queue have as many messages as before it was measured."""
    restore = system.drain if what == "enqueue" else system.enqueue
    rate(restore, where, 1, _ENOUGH_SECONDS, most=operations + (workers - 1) * WARM_UP)  # It warms up itself.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["postgres", "sqlite"], action="append")
    parser.add_argument("--pending", type=int, nargs="+", default=[1_000, 1_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="CPU time of an operation too, at equal durability")
    given = parser.parse_args()
    for store in given.store or ["postgres", "sqlite"]:
        lines = [
            line
            for pending in given.pending
            for line in measure(store, pending, given.workers, given.seconds, given.rounds, cpu=given.cpu)
        ]
        output = ROOT / "bench" / "results" / f"queue-{store}.json"
        saved = json.loads(output.read_text(encoding="utf-8"))["lines"] if output.exists() else []
        result = {**machine(), "lines": merged(saved, lines)}
        output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print_line(f"written to {output.name}")


if __name__ == "__main__":
    main()
