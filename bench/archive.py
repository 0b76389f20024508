"""How long it takes to move rows to an archive, beside the ways that people do it by hand.

    .venv/bin/python -m bench.archive [--rows 2000000] [--rounds 3] [--only sqlite|postgres]
    .venv/bin/python -m bench.archive --cold 30000 | --scale 5 --rows 10000000 | --files 1000 | --cluster --rows 40000

Every round gives each contender the same table of about 500 bytes a row, all of it due, and takes them in turns. Wane
copies, reads back, proves, commits and evicts, and can be killed anywhere; the others copy and delete. On PostgreSQL
every row is written by a transaction of its own. All connections are open and every Spark runs already
(`spark_start_seconds` says what that took); the rival over JDBC has a Spark of its own, with Spark's own settings of
Java. The first archive run of a schema proves every row inside the database; so a few rows go first, unmeasured, and
what is measured is the everyday run. CPU seconds are those of this process, its Java, its tasks and the database's
server: on a busy machine they are the numbers to trust.

`--cold` measures a first run of so many rows in a process of its own, with Spark's start and the strict proof of a
first sweep. `--scale` measures Wane alone with a part of the rows (a fifth, say) and with all of them: time, CPU, and
the most memory of each kind of process; its rows have one transaction, because writing each by its own would take
longer than archiving them. `--files` builds an archive of so many files, and counts those that a query by key reads.
`--cluster` measures a standalone cluster of one, two and four worker processes, with a database that makes every
connection wait: see `Waiting`. Raw samples go to bench/results/archive.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import adbc_driver_postgresql.dbapi as adbc_postgres
import adbc_driver_sqlite.dbapi as adbc_sqlite
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from bench.measuring import ROOT, machine, postgres_url, print_line, timed
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.files import listing
from wane._archive.rows.statistics import statistics as statistics_of
from wane._archive.spark.session import session
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._keeper import Keeper, open_keeper
from wane._prune.pace import FAST

RESULTS = ROOT / "bench" / "results" / "archive.json"
JDBC = Path(os.environ.get("WANE_BENCH_JDBC_JAR", "/usr/share/java/postgresql.jar"))
"""Debian's libpostgresql-jdbc-java. It speaks TCP only: without a server that does, in WANE_BENCH_POSTGRES_URL, it is
left out."""
NOW = datetime.now(UTC)
FIRST = NOW - timedelta(days=180)
DAYS = 90
COLUMNS = "id, created_at, event_domain, event_type, event_stream, correlation_id, payload"
POSTGRES_TABLE = """
CREATE TABLE event_outbox (
  id bigint PRIMARY KEY, created_at timestamptz NOT NULL, event_domain text NOT NULL, event_type text NOT NULL,
  event_stream text NOT NULL, correlation_id uuid, payload text NOT NULL
)
"""
SQLITE_TABLE = POSTGRES_TABLE.replace("timestamptz", "integer").replace("uuid", "text").replace("bigint", "integer")
INDEX = "CREATE INDEX event_outbox_age ON event_outbox (created_at, id)"
ROW = """SELECT n, to_timestamp({first} + n * {step}::double precision), 'orders', 'order_' || n % 7, 'stream-' || n % 1000,
        md5(n::text)::uuid, repeat(md5((n * 7)::text), 4) || repeat(md5((n % 500)::text), 7)"""
FILL = f"""
DO $fill$
BEGIN
  FOR n IN 1..{{rows}} LOOP
    BEGIN
      INSERT INTO event_outbox {ROW};
    EXCEPTION WHEN unique_violation THEN RAISE;  -- A block with a handler is a transaction of its own.
    END;
  END LOOP;
END $fill$
"""
FILL_AT_ONCE = f"INSERT INTO event_outbox {ROW} FROM generate_series(1, {{rows}}) AS n"
COUNTED = 10_000
"""Of the first so many rows it is checked that each was written by a transaction of its own."""
WARM = 100


def contract(folder: Path, url: str, unit: str, spark: str = "") -> Contract:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "wane.toml"
    file.write_text(f"""
[store]
url = {json.dumps(url)}
[scheduler]
s = {{ every = "5m" }}
[table.event_outbox]
scheduler = "s"
why = "A benchmark."
time = {{ column = "created_at"{unit} }}
[table.event_outbox.rule.cold]
keep = "90d"
then = "archive"
[archive]
url = "./archive"
[archive.event_outbox]
keep = "forever"
{spark}""")
    return load_contract(file)


class Watched:
    """What a family of processes uses, sampled ten times a second: CPU seconds, and the most memory that each kind
    held at a time.

    Processes end meanwhile, and what they used is in no parent's sum: Spark lets its idle workers go.
    """

    def __init__(self, *families: int, without: Sequence[int] = ()) -> None:
        """Watch without the processes that are measured apart, such as a server that this process started."""
        self._families = families
        self._without = without
        self._first: dict[int, float] = {}
        self._last: dict[int, float] = {}
        self.most: dict[str, int] = {}

    def __enter__(self) -> Watched:
        self._sample()
        self._first = dict(self._last)
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watching.join()
        self._sample()

    @property
    def cpu_seconds(self) -> float:
        return sum(seconds - self._first.get(pid, 0.0) for pid, seconds in self._last.items())

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            self._sample()

    def _sample(self) -> None:
        for first in self._families:
            for pid, kind in family(first, self._without):
                self._last[pid] = max(self._last.get(pid, 0.0), _cpu(pid))
                self.most[kind] = max(self.most.get(kind, 0), _resident(pid) // 1024)


def _cpu(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def family(pid: int, without: Sequence[int] = ()) -> Iterator[tuple[int, str]]:
    """Yield a process and its descendants: a driver, or a server's first process."""
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        if one in without:
            continue
        try:
            name = Path(f"/proc/{one}/comm").read_text().strip()
        except OSError:
            continue
        yield one, "server" if name == "postgres" else "driver" if one == pid else "java" if name == "java" else "task"
        waiting += _children(one)


def _children(pid: int) -> list[int]:
    try:
        lists = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(one) for text in lists for one in text.split()]


def _resident(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)


# --- The databases ----------------------------------------------------------------------------------------------------


class Postgres:
    kind = "postgres"
    unit = ""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)

    def fresh(self, rows: int, *, at_once: bool = False) -> None:
        self.connection.execute("DROP TABLE IF EXISTS event_outbox")
        self.connection.execute(POSTGRES_TABLE.encode())
        fill = FILL_AT_ONCE if at_once else FILL
        self.connection.execute(fill.format(first=FIRST.timestamp(), step=DAYS * 86_400 / rows, rows=rows).encode())
        if not at_once:
            counted = "SELECT count(*), count(DISTINCT xmin::text) FROM event_outbox WHERE id <= %s"
            [(written, transactions)] = self.connection.execute(counted, [COUNTED]).fetchall()
            assert written == transactions
        self.connection.execute(INDEX)
        self.connection.execute("VACUUM ANALYZE event_outbox")
        self.connection.execute("CHECKPOINT")

    def server(self) -> list[int]:
        """Return the server's first process, if it runs on this machine."""
        stat = Path(f"/proc/{self.connection.info.backend_pid}/stat")
        return [int(stat.read_text().rpartition(")")[2].split()[1])] if stat.exists() else []

    def size(self) -> int:
        [(size,)] = self.connection.execute("SELECT pg_relation_size('event_outbox')").fetchall()
        return int(size)

    def left(self) -> int:
        [(left,)] = self.connection.execute("SELECT count(*) FROM event_outbox").fetchall()
        return int(left)

    def delete(self) -> None:
        self.connection.execute(
            "DELETE FROM event_outbox WHERE created_at < %s", [NOW - timedelta(days=90) + timedelta(days=1)]
        )

    def arrow(self) -> Iterator[pa.RecordBatch]:
        with adbc_postgres.connect(self.url) as connection, connection.cursor() as cursor:
            columns = COLUMNS.replace("correlation_id", "correlation_id::text AS correlation_id")
            cursor.execute(f"SELECT {columns} FROM event_outbox ORDER BY created_at")
            with cursor.fetch_record_batch() as batches:
                yield from batches


class Sqlite:
    kind = "sqlite"
    unit = ', unit = "ms"'

    def __init__(self, folder: Path) -> None:
        self.path = folder / "bench.db"
        self.url = f"sqlite:///{self.path}"
        self.connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.executescript("PRAGMA journal_mode = wal; PRAGMA synchronous = normal;")
        return connection

    def fresh(self, rows: int, *, at_once: bool = False) -> None:
        del at_once  # Rows of SQLite have no transactions.
        self.connection.executescript("DROP TABLE IF EXISTS event_outbox; VACUUM")
        self.connection.execute(SQLITE_TABLE)
        step = DAYS * 86_400_000 / rows
        first = FIRST.timestamp() * 1000
        payload = [(f"{n:032x}" * 4) for n in range(997)]
        self.connection.execute("BEGIN")
        self.connection.executemany(
            "INSERT INTO event_outbox VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    n,
                    int(first + n * step),
                    "orders",
                    f"order_{n % 7}",
                    f"stream-{n % 1000}",
                    f"{n * 7919:036x}",
                    f"{n * 104729:032x}" * 4 + payload[n % 997] + payload[n % 499][:96],
                )
                for n in range(1, rows + 1)
            ),
        )
        self.connection.execute("COMMIT")
        self.connection.execute(INDEX)
        self.connection.execute("ANALYZE")
        self.connection.execute("PRAGMA wal_checkpoint(truncate)")

    def server(self) -> list[int]:
        return []

    def size(self) -> int:
        return self.path.stat().st_size

    def left(self) -> int:
        [(left,)] = self.connection.execute("SELECT count(*) FROM event_outbox").fetchall()
        return int(left)

    def delete(self) -> None:
        until = int((NOW - timedelta(days=89)).timestamp() * 1000)
        self.connection.execute("DELETE FROM event_outbox WHERE created_at < ?", [until])

    def arrow(self) -> Iterator[pa.RecordBatch]:
        self.connection.close()  # Two SQLite libraries in one process must not have one file open at a time.
        with adbc_sqlite.connect(str(self.path)) as connection, connection.cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": "65536"})
            cursor.execute(f"SELECT {COLUMNS} FROM event_outbox ORDER BY created_at")
            with cursor.fetch_record_batch() as batches:
                yield from batches
        self.connection = self._connect()


Database = Postgres | Sqlite


# --- Contenders: each empties the table into a folder -----------------------------------------------------------------


def wane(database: Database, folder: Path, rows: int, *, at_once: bool = False) -> Callable[[], dict[str, Any]]:
    """Prepare Wane by a run over a few rows, which proves the schema."""
    promised = contract(folder, database.url, database.unit)
    with open_keeper(None, contract=promised) as keeper:
        keeper.migrate()
        keeper.enable()
        keeper.archive.adopt()  # The folder of the round before is gone.
    database.fresh(WARM)
    _archive(promised)
    database.fresh(rows, at_once=at_once)
    return lambda: _archive(promised)


def _archive(promised: Contract) -> dict[str, Any]:
    with open_keeper(None, contract=promised) as keeper:
        [ran] = keeper.archive.run(pace=FAST).rules
    assert ran.outcome == "done", ran
    return {"seconds_of": ran.seconds}


def pyarrow_script(database: Database, folder: Path) -> dict[str, Any]:
    """Read as Arrow, a Parquet file for each month, one DELETE."""
    writers: dict[str, pq.ParquetWriter] = {}
    (folder / "rows").mkdir(parents=True)
    for batch in database.arrow():
        table = pa.Table.from_batches([batch])
        times = table["created_at"]
        if not pa.types.is_timestamp(times.type):
            times = pc.cast(times, pa.timestamp("ms"))
        months = pc.strftime(times, "%Y-%m")
        for month in pc.unique(months).to_pylist():
            if month not in writers:
                target = folder / "rows" / f"{month}.parquet"
                writers[month] = pq.ParquetWriter(target, table.schema, compression="zstd")
            writers[month].write_table(table.filter(pc.equal(months, month)))
    for writer in writers.values():
        writer.close()
    database.delete()
    return {}


def copy_and_zstd(database: Database, folder: Path) -> dict[str, Any]:
    """Run `COPY … TO STDOUT | zstd`, one DELETE; on SQLite what its own shell prints as CSV."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(database, Postgres):
        command = ["psql", database.url, "-qc", f"COPY (SELECT {COLUMNS} FROM event_outbox) TO STDOUT"]
    else:
        command = ["sqlite3", "-csv", str(database.path), f"SELECT {COLUMNS} FROM event_outbox"]
    with (folder / "rows.zst").open("wb") as file:
        reading = subprocess.Popen(command, stdout=subprocess.PIPE)
        subprocess.run(["zstd", "-q", "-c"], stdin=reading.stdout, stdout=file, check=True)
        assert reading.wait() == 0
    database.delete()
    return {}


JDBC_PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR").getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "UTC")
print("started", flush=True)
for line in sys.stdin:
    job = json.loads(line)
    frame = spark.read.jdbc(
        job["url"],
        "(SELECT *, to_char(created_at, 'YYYY-MM') AS month FROM event_outbox) AS t",
        column="id",
        lowerBound=0,
        upperBound=job["rows"],
        numPartitions=4,
        properties={"user": job["user"], "driver": "org.postgresql.Driver", "fetchsize": "10000"},
    )
    frame.write.option("compression", "zstd").partitionBy("month").parquet(job["folder"])
    print("written", flush=True)
"""


class SparkJdbc:
    """Spark's own reader over JDBC in four ranges, its own Parquet writer by month, one DELETE; warm after the first
    job."""

    def __init__(self, database: Postgres, folder: Path) -> None:
        options = psycopg.conninfo.conninfo_to_dict(database.url)
        [(schema,)] = database.connection.execute("SELECT current_schema()").fetchall()
        host, port = options.get("host", "localhost"), options.get("port", 5432)
        self.database = database
        self.url = f"jdbc:postgresql://{host}:{port}/{options['dbname']}?currentSchema={schema}"
        self.user = options["user"]
        environ = {**os.environ, "PYSPARK_SUBMIT_ARGS": f"--driver-class-path {JDBC} pyspark-shell"}
        self.program = subprocess.Popen(
            [sys.executable, "-c", JDBC_PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environ,
        )
        self._await("started")
        database.fresh(WARM)
        self.run(folder / "jdbc-warm", WARM)

    def _await(self, word: str) -> None:
        assert self.program.stdout is not None
        assert self.program.stdout.readline().strip() == word

    def run(self, folder: Path, rows: int) -> dict[str, Any]:
        assert self.program.stdin is not None
        job = {"url": self.url, "user": self.user, "rows": rows, "folder": str(folder / "rows")}
        self.program.stdin.write(json.dumps(job) + "\n")
        self.program.stdin.flush()
        self._await("written")
        self.database.delete()
        return {}

    def close(self) -> None:
        self.program.kill()
        self.program.wait()


# --- Measuring --------------------------------------------------------------------------------------------------------


def measure(database: Database, folder: Path, rows: int, rounds: int) -> dict[str, Any]:
    def fresh_first(contender: Callable[[Path], dict[str, Any]]) -> Callable[[Path], Callable[[], dict[str, Any]]]:
        def prepare(target: Path) -> Callable[[], dict[str, Any]]:
            database.fresh(rows)
            return lambda: contender(target)

        return prepare

    contenders: dict[str, Callable[[Path], Callable[[], dict[str, Any]]]] = {
        "wane": lambda target: wane(database, target, rows),
        "pyarrow_script": fresh_first(lambda target: pyarrow_script(database, target)),
    }
    if shutil.which("zstd") and shutil.which("psql" if database.kind == "postgres" else "sqlite3"):
        contenders["copy_and_zstd"] = fresh_first(lambda target: copy_and_zstd(database, target))
    rival = None
    if isinstance(database, Postgres) and ("host=/" in database.url or not JDBC.exists()):
        print_line(f"Spark over JDBC is not measured: it needs TCP and {JDBC} (Debian: libpostgresql-jdbc-java)")
    elif isinstance(database, Postgres):
        rival = SparkJdbc(database, folder)
        contenders["spark_jdbc"] = fresh_first(lambda target: rival.run(target, rows))
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, prepare in contenders.items():
            target = folder / f"{database.kind}-{name}-{number}"
            run = prepare(target)
            heap = database.size()
            whose = rival.program.pid if rival is not None and name == "spark_jdbc" else os.getpid()
            servers = database.server()
            with Watched(whose, without=servers) as used, Watched(*servers) as server:
                seconds, reported = timed(run)
            if whose != os.getpid():
                used.most.pop("driver")  # A pipe's end.
            assert database.left() == 0, name
            size = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
            server_cpu = server.cpu_seconds
            cpu = {"cpu_seconds": round(used.cpu_seconds + server_cpu, 2), "server_cpu_seconds": round(server_cpu, 2)}
            sample = {"seconds": round(seconds, 2), **cpu, "size_of_heap": round(size / heap, 3), **reported}
            samples[name].append({**sample, "memory_mb": used.most | server.most})
            print_line(f"{database.kind} round {number + 1} {name}: {samples[name][-1]}")
            shutil.rmtree(target)
    if rival is not None:
        rival.close()
    return {"rows": rows, **_now(), "samples": samples, "ratios": ratios(samples)}


def _now() -> dict[str, Any]:
    return {"measured_on": machine()["measured_on"], "load": round(os.getloadavg()[1], 1)}


def ratios(samples: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    def median(name: str, what: str) -> float:
        return statistics.median(sample[what] for sample in samples[name])

    others = [name for name in samples if name != "wane"]
    found = {f"time, wane / {name}": median("wane", "seconds") / median(name, "seconds") for name in others}
    found |= {f"CPU, wane / {name}": median("wane", "cpu_seconds") / median(name, "cpu_seconds") for name in others}
    ours = samples["wane"]
    found["verifying / copying"] = statistics.median(
        one["seconds_of"]["written"] / one["seconds_of"]["planned"] for one in ours
    )
    found["archive / heap"] = statistics.median(one["size_of_heap"] for one in ours)
    return {name: round(value, 3) for name, value in found.items()}


def scale(database: Database, folder: Path, rows: int, factor: int) -> dict[str, Any]:
    """Archive a part of the rows, and all of them."""
    found: dict[str, Any] = {}
    for name, count in (("part", rows // factor), ("whole", rows)):
        target = folder / f"{database.kind}-{name}"
        run = wane(database, target, count, at_once=True)
        servers = database.server()
        with Watched(os.getpid(), without=servers) as used, Watched(*servers) as server:
            seconds, reported = timed(run)
        shutil.rmtree(target)
        spent = round(used.cpu_seconds + server.cpu_seconds, 2)
        sample = {"rows": count, "seconds": round(seconds, 2), "cpu_seconds": spent}
        found[name] = {**sample, **reported, "memory_mb": used.most | server.most}
        print_line(f"{database.kind} {name}: {found[name]}")
    part, whole = found["part"], found["whole"]
    found["time"] = round(whole["seconds"] / part["seconds"], 3)
    found["CPU"] = round(whole["cpu_seconds"] / part["cpu_seconds"], 3)
    found["memory"] = {
        kind: round(most / part["memory_mb"][kind], 2)
        for kind, most in whole["memory_mb"].items()
        if kind in part["memory_mb"]
    }
    return {"factor": factor, **_now(), **found}


def cold(database: Database, folder: Path, rows: int) -> dict[str, Any]:
    """Archive for the first time, in a process of its own: Spark and its workers start, and every row is proven
    twice."""
    promised = contract(folder, database.url, database.unit)
    with open_keeper(None, contract=promised) as keeper:
        keeper.migrate()
        keeper.enable()
        keeper.archive.adopt()
    database.fresh(rows)
    started = time.monotonic()
    command = [sys.executable, "-c", COLD, str(promised.path), str(started)]
    program = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    with Watched(program.pid) as used, Watched(*database.server()) as server:
        _, errors = program.communicate()
    seconds = time.monotonic() - started
    assert program.returncode == 0, errors
    assert database.left() == 0
    parts = json.loads(errors.splitlines()[-1])
    spent = round(used.cpu_seconds + server.cpu_seconds, 2)
    return {"rows": rows, **_now(), "seconds": round(seconds, 2), "cpu_seconds": spent, "parts": parts}


COLD = """
import sys, time
import bench.archive as b
parts = {"python_and_imports": time.monotonic() - float(sys.argv[2])}
promised = b.load_contract(b.Path(sys.argv[1]))
parts["spark"] = b.timed(lambda: b.session(promised.spark))[0]
parts["run"], done = b.timed(lambda: b._archive(promised))
parts = {name: round(seconds, 2) for name, seconds in parts.items()}
b.print_line(b.json.dumps({**parts, **done}))
"""


# --- A query by key ---------------------------------------------------------------------------------------------------


ROWS_OF_A_FILE = 20


def by_key(database: Database, folder: Path, files: int) -> dict[str, Any]:
    """Query an archive of many files for one row, by its key and by a condition that no file can be skipped by.

    A sweep of a few rows makes the table; the other files are written like its own and added in one commit, because
    sweeps of so many ranges would take longer than all that is measured.
    """
    promised = contract(folder, database.url, database.unit)
    with open_keeper(None, contract=promised) as keeper:
        keeper.migrate()
        keeper.enable()
        keeper.archive.adopt()
        database.fresh(WARM)
        _archive(promised)
        [table] = keeper.archive._cold_tables()
        _add_files(table, files)
        row = WARM + files // 2 * ROWS_OF_A_FILE
        conditions = {"first": "id = 1", "one": f"id = {row}", "all": f"id + 0 = {row}"}
        found: dict[str, Any] = {}
        for name, where in conditions.items():  # The first one is to warm up.
            with Watched(os.getpid()) as used:
                seconds, (read, rows) = timed(lambda where=where: _queried(keeper, where))
            assert rows == 1
            found[name] = {"seconds": round(seconds, 2), "cpu_seconds": round(used.cpu_seconds, 2), "files": read}
    del found["first"]
    return {"files": files, **_now(), **found}


def _queried(keeper: Keeper, where: str) -> tuple[int, int]:
    frame = keeper.archive.query("event_outbox", where=where)
    return len(frame.inputFiles()), len(frame.collect())


def _add_files(table: ColdTable, files: int) -> None:
    handle = table.fresh()
    assert handle is not None
    like = Path(str(table.folder)) / listing(handle)[0].path
    month = like.parent.name.partition("=")[2]
    rows = pq.ParquetFile(like).read().take([0] * ROWS_OF_A_FILE)
    actions: list[Any] = []
    for number in range(files):
        first = WARM + 1 + number * ROWS_OF_A_FILE
        ids = range(first, first + ROWS_OF_A_FILE)
        made = rows
        for name, values in (("id", pa.array(ids)), ("_key", pa.array([f'["{one}"]' for one in ids]))):
            made = made.set_column(made.column_names.index(name), name, values)
        path = like.with_name(f"sweep-0000000001-{number:06d}-bench.parquet")
        pq.write_table(made, path, compression="zstd", write_page_checksum=True)
        stats = json.dumps(statistics_of(pq.read_metadata(path), ()))
        name = f"{like.parent.name}/{path.name}"
        actions.append(AddAction(name, path.stat().st_size, {"_month": month}, 1, data_change=True, stats=stats))
    table.write(handle, actions, [], {})


# --- A cluster, and a database that makes every process wait ----------------------------------------------------------


BYTES_PER_SECOND = 500_000
WAITING = """
CREATE FUNCTION waiting() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN OLD; END $$;
CREATE TRIGGER waiting BEFORE DELETE ON event_outbox FOR EACH ROW WHEN (OLD.id % 50 = 0) EXECUTE FUNCTION waiting();
"""


class Waiting:
    """A line to the server over which every connection gets so many bytes a second, without using a processor.

    It simulates a server that is far away, or reads from a slow disk, and has more of both than one connection can use;
    `WAITING` is the same for what rows wait for when they are deleted. So one task takes as long as the rows that it
    reads, two take half of it if they run at the same time, and two cores suffice to show whether four do.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._number = host, port
        self._line = socket.create_server(("127.0.0.1", 0))
        self.port = self._line.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._line.accept()
            server = self._connect()
            for pair in ((client, server, None), (server, client, BYTES_PER_SECOND)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _connect(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, self._number))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{self._host}/.s.PGSQL.{self._number}")
        return server

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, most: int | None) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
                if most is not None:
                    time.sleep(len(data) / most)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


ON_CLUSTER = """
import json, sys, time
import bench.archive as b
from wane._archive.pipeline import evictors
from wane._archive.spark.executor import SparkExecutor
evictors.ROWS_EACH = 1  # So few rows would be evicted by one task; a sweep of a million is divided.
def warm(number):
    import adbc_driver_postgresql, deltalake, pyarrow.parquet, wane._archive.pipeline.evictors, wane._archive.pipeline.extract
    time.sleep(1)  # So that no worker does the part of another.
    return "{}"
# Executors start, unpack what is shipped to them, and import it, before anything is measured.
list(SparkExecutor(b.load_contract(b.Path(sys.argv[1])).spark).run(warm, 4 * int(sys.argv[2])))
b.print_line(json.dumps(b._archive(b.load_contract(b.Path(sys.argv[1])))))
"""


def on_clusters(database: Postgres, folder: Path, rows: int) -> dict[str, Any]:
    """Run one, two and four worker processes; each of the sixteen ranges waits for as long in all of them."""
    sys.path.insert(0, str(ROOT / "tests"))
    from archive.cluster import cluster, environment

    options = psycopg.conninfo.conninfo_to_dict(database.url)
    line = Waiting(str(options["host"]), int(options["port"]))
    user = ":".join(quote(str(options[one])) for one in ("user", "password") if one in options)
    given = f"postgresql://{user}@127.0.0.1:{line.port}/{options['dbname']}"
    if "options" in options:
        given += f"?options={quote(str(options['options']))}"
    folder.mkdir()
    shipped = environment(folder)
    found: dict[str, Any] = {}
    for workers in (1, 2, 4):
        target = folder / str(workers)
        target.mkdir()
        with cluster(target, workers, {"WANE_TASK_URL": given}) as master:
            settings = f"""[spark]
master = "{master}"
url_variable = "WANE_TASK_URL"
range_rows = {-(-rows // 16)}
evictors = {workers}
[spark.settings]
"spark.archives" = "{shipped}#env"
"spark.pyspark.python" = "./env/bin/python"
"spark.driver.host" = "127.0.0.1"
"spark.executor.memory" = "512m"
"""
            promised = contract(target, database.url, database.unit, settings)
            with open_keeper(None, contract=promised) as keeper:
                keeper.migrate()
                keeper.enable()
                keeper.archive.adopt()
            database.fresh(rows)
            database.connection.execute(f"DROP FUNCTION IF EXISTS waiting CASCADE; {WAITING}".encode())
            command = [sys.executable, "-c", ON_CLUSTER, str(promised.path), str(workers)]
            done = subprocess.run(command, cwd=ROOT, check=True, stderr=subprocess.PIPE, text=True)
            assert database.left() == 0
        steps = json.loads(done.stderr.splitlines()[-1])["seconds_of"]
        found[str(workers)] = {"copy_seconds": steps["planned"], "evict_seconds": steps["committed"]}
        print_line(f"cluster of {workers}: {found[str(workers)]}")
    for step in ("copy", "evict"):
        times = {one: sample[f"{step}_seconds"] for one, sample in found.items() if one.isdigit()}
        found[f"{step}, 1 worker / 2, 1 / 4"] = [round(times["1"] / times[one], 2) for one in ("2", "4")]
    return {"rows": rows, **_now(), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--cold", type=int, metavar="ROWS")
    parser.add_argument("--scale", type=int, metavar="FACTOR")
    parser.add_argument("--files", type=int)
    parser.add_argument("--cluster", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= machine()
    with tempfile.TemporaryDirectory(prefix="wane-bench-") as target:
        folder = Path(target)
        settings = contract(folder / "first", "sqlite:///unused.db", Sqlite.unit).spark
        if not options.cluster and not options.cold:
            results["spark_start_seconds"] = round(timed(lambda: session(settings))[0], 2)

        def measured(database: Database) -> None:
            kind = results.setdefault(database.kind, {})
            if options.cold:
                kind["cold"] = cold(database, folder / f"{database.kind}-cold", options.cold)
                print_line(f"{database.kind} cold: {kind['cold']}")
            elif options.scale:
                kind["scale"] = scale(database, folder, options.rows, options.scale)
                print_line(f"{database.kind} scale: {kind['scale']}")
            elif options.files:
                kind["by_key"] = by_key(database, folder / f"{database.kind}-files", options.files)
                print_line(f"{database.kind} by key: {kind['by_key']}")
            elif options.cluster:
                assert isinstance(database, Postgres)
                kind["cluster"] = on_clusters(database, folder / "clusters", options.rows)
            else:
                kind |= measure(database, folder, options.rows, options.rounds)

        if options.only != "postgres" and not options.cluster:
            measured(Sqlite(folder))
        if options.only != "sqlite":
            with postgres_url(tcp=True) as url:
                measured(Postgres(url))
    text = json.dumps(results, indent=2) + "\n"
    assert target not in text
    RESULTS.write_text(text)
    for kind in ("sqlite", "postgres"):
        for name, value in results.get(kind, {}).get("ratios", {}).items():
            print(f"| {kind} | {name} | {value} |")


if __name__ == "__main__":
    main()
