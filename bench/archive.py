"""How long it takes to move rows to an archive, beside the ways that people do it by hand.

    .venv/bin/python -m bench.archive [--rows 2000000] [--rounds 3] [--only sqlite|postgres] [--scale]

Every round gives each contender the same table of about 500 bytes a row, all of it due, and takes them in turns. Wane copies, reads back,
proves, commits and evicts, and can be killed anywhere; the others copy and delete. On PostgreSQL every ten rows have a transaction of their
own, as applications write them. Everybody's connections are open and everybody's Spark runs already (`spark_start_seconds` says what that
took). The first archive run of a schema proves every row inside the database; so a few rows go first, unmeasured, and what is measured is
the everyday run. CPU seconds are those of this process, its Java, its tasks and the database's server: on a busy machine they are the
numbers to trust. `cold` is a first run in a process of its own, with Spark's start and the strict proof of a first sweep. `--scale`
measures Wane alone with a quarter of the rows and with all of them. Raw samples go to bench/results/archive.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc_postgres
import adbc_driver_sqlite.dbapi as adbc_sqlite
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from bench.measuring import ROOT, machine, postgres_url, print_line, timed
from wane._archive.session import session
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._keeper import open_keeper
from wane._prune.pace import FAST

RESULTS = ROOT / "bench" / "results" / "archive.json"
JDBC = Path(os.environ.get("WANE_BENCH_JDBC_JAR", "/usr/share/java/postgresql.jar"))
"""Debian's libpostgresql-jdbc-java. It speaks TCP only: without a server that does, in WANE_BENCH_POSTGRES_URL, it is left out."""
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
FILL = """
DO $fill$
BEGIN
  FOR low IN 1..{rows} BY 10 LOOP
    BEGIN
      INSERT INTO event_outbox
      SELECT n, to_timestamp({first} + n * {step}::double precision), 'orders', 'order_' || n % 7, 'stream-' || n % 1000,
        md5(n::text)::uuid, repeat(md5((n * 7)::text), 4) || repeat(md5((n % 500)::text), 7)
      FROM generate_series(low, least(low + 9, {rows})) AS n;
    EXCEPTION WHEN unique_violation THEN RAISE;  -- A block with a handler is a transaction of its own.
    END;
  END LOOP;
END $fill$
"""
WARM = 100
COLD_ROWS = 30_000


def contract(folder: Path, url: str, unit: str) -> Contract:
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
""")
    return load_contract(file)


class Memory:
    """The most that this process, its Java and its Python workers ever held at a time, looked at ten times a second."""

    def __enter__(self) -> Memory:
        self.most: dict[str, int] = {}
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watching.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for kind, kilobytes in _family(os.getpid()):
                self.most[kind] = max(self.most.get(kind, 0), kilobytes // 1024)


def _family(pid: int) -> Iterator[tuple[str, int]]:
    yield "driver", _resident(pid)
    waiting = _children(pid)
    while waiting:
        one = waiting.pop()
        try:
            name = Path(f"/proc/{one}/comm").read_text().strip()
        except OSError:
            continue
        if name != "postgres":
            yield ("java" if name == "java" else "task"), _resident(one)
        waiting += _children(one)


def cpu_of_family(pid: int) -> float:
    """CPU seconds of a process and its descendants, those that have ended included."""
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(int(number) for number in fields[11:15])  # utime, stime, and those of ended children.
        waiting += _children(one)
    return total / os.sysconf("SC_CLK_TCK")


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


# --- The databases ----------------------------------------------------------------------------------------------------------------------


class Postgres:
    kind = "postgres"
    unit = ""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)

    def fresh(self, rows: int) -> None:
        self.connection.execute("DROP TABLE IF EXISTS event_outbox")
        self.connection.execute(POSTGRES_TABLE.encode())
        step = DAYS * 86_400 / rows
        self.connection.execute(FILL.format(first=FIRST.timestamp(), step=step, rows=rows).encode())
        self.connection.execute(INDEX)
        self.connection.execute("VACUUM ANALYZE event_outbox")
        self.connection.execute("CHECKPOINT")

    def server_cpu(self) -> float:
        stat = Path(f"/proc/{self.connection.info.backend_pid}/stat")
        return cpu_of_family(int(stat.read_text().rpartition(")")[2].split()[1])) if stat.exists() else 0.0

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

    def fresh(self, rows: int) -> None:
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

    def server_cpu(self) -> float:
        return 0.0

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


# --- Contenders: each empties the table into a folder -------------------------------------------------------------------------------------


def wane(database: Database, folder: Path, rows: int) -> Callable[[], dict[str, Any]]:
    """Prepared by a run over a few rows, which proves the schema."""
    promised = contract(folder, database.url, database.unit)
    with open_keeper(None, contract=promised) as keeper:
        keeper.migrate()
        keeper.enable()
        keeper.archive.adopt()  # The folder of the round before is gone.
    database.fresh(WARM)
    _archive(promised)
    database.fresh(rows)
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
        moments = table["created_at"]
        if not pa.types.is_timestamp(moments.type):
            moments = pc.cast(moments, pa.timestamp("ms"))
        months = pc.strftime(moments, "%Y-%m")
        for month in pc.unique(months).to_pylist():
            if month not in writers:
                place = folder / "rows" / f"{month}.parquet"
                writers[month] = pq.ParquetWriter(place, table.schema, compression="zstd")
            writers[month].write_table(table.filter(pc.equal(months, month)))
    for writer in writers.values():
        writer.close()
    database.delete()
    return {}


def copy_and_zstd(database: Database, folder: Path) -> dict[str, Any]:
    """`COPY … TO STDOUT | zstd`, one DELETE; on SQLite what its own shell prints as CSV."""
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


def spark_jdbc(spark: SparkSession, database: Postgres, folder: Path, rows: int) -> dict[str, Any]:
    """Spark's own reader over JDBC in four ranges, its own Parquet writer by month, one DELETE."""
    options = psycopg.conninfo.conninfo_to_dict(database.url)
    target = f"jdbc:postgresql://{options.get('host', 'localhost')}:{options.get('port', 5432)}/{options['dbname']}"
    [(schema,)] = database.connection.execute("SELECT current_schema()").fetchall()
    target += f"?currentSchema={schema}"
    frame = spark.read.jdbc(
        target,
        "(SELECT *, to_char(created_at, 'YYYY-MM') AS month FROM event_outbox) AS t",
        column="id",
        lowerBound=0,
        upperBound=rows,
        numPartitions=4,
        properties={"user": options["user"], "driver": "org.postgresql.Driver", "fetchsize": "10000"},
    )
    frame.write.option("compression", "zstd").partitionBy("month").parquet(str(folder / "rows"))
    database.delete()
    return {}


# --- Measuring ---------------------------------------------------------------------------------------------------------------------------


def measure(database: Database, folder: Path, spark: SparkSession, rows: int, rounds: int) -> dict[str, Any]:
    def fresh_first(contender: Callable[[Path], dict[str, Any]]) -> Callable[[Path], Callable[[], dict[str, Any]]]:
        def prepare(place: Path) -> Callable[[], dict[str, Any]]:
            database.fresh(rows)
            return lambda: contender(place)

        return prepare

    contenders: dict[str, Callable[[Path], Callable[[], dict[str, Any]]]] = {
        "wane": lambda place: wane(database, place, rows),
        "pyarrow_script": fresh_first(lambda place: pyarrow_script(database, place)),
    }
    if shutil.which("zstd") and shutil.which("psql" if database.kind == "postgres" else "sqlite3"):
        contenders["copy_and_zstd"] = fresh_first(lambda place: copy_and_zstd(database, place))
    if isinstance(database, Postgres) and JDBC.exists() and "host=/" not in database.url:
        contenders["spark_jdbc"] = fresh_first(lambda place: spark_jdbc(spark, database, place, rows))
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, prepare in contenders.items():
            place = folder / f"{database.kind}-{name}-{number}"
            run = prepare(place)
            heap = database.size()
            before = cpu_of_family(os.getpid()), database.server_cpu()
            with Memory() as memory:
                seconds, told = timed(run)
            spent = cpu_of_family(os.getpid()) - before[0], database.server_cpu() - before[1]
            assert database.left() == 0, name
            size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
            cpu = {"cpu_seconds": round(sum(spent), 2), "server_cpu_seconds": round(spent[1], 2)}
            sample = {"seconds": round(seconds, 2), **cpu, "size_of_heap": round(size / heap, 3), **told}
            samples[name].append({**sample, "memory_mb": memory.most})
            print_line(f"{database.kind} round {number + 1} {name}: {samples[name][-1]}")
            shutil.rmtree(place)
    return {"samples": samples, "ratios": ratios(samples)}


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


def scale(database: Database, folder: Path, rows: int) -> dict[str, Any]:
    """A quarter of the rows, and all of them."""
    found: dict[str, Any] = {}
    for name, count in (("quarter", rows // 4), ("whole", rows)):
        run = wane(database, folder / f"{database.kind}-{name}", count)
        with Memory() as memory:
            seconds, told = timed(run)
        found[name] = {"rows": count, "seconds": round(seconds, 2), **told, "memory_mb": memory.most}
        print_line(f"{database.kind} {name}: {found[name]}")
    found["ratio"] = round(found["whole"]["seconds"] / found["quarter"]["seconds"], 3)
    return found


def cold(database: Database, folder: Path) -> dict[str, Any]:
    """A first run in a process of its own: Spark and its workers start, and every row is proven twice."""
    promised = contract(folder, database.url, database.unit)
    with open_keeper(None, contract=promised) as keeper:
        keeper.migrate()
        keeper.enable()
        keeper.archive.adopt()
    database.fresh(COLD_ROWS)
    script = "import bench.archive as b, sys; b._archive(b.load_contract(b.Path(sys.argv[1])))"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, _ = timed(lambda: subprocess.run([sys.executable, "-c", script, str(promised.path)], cwd=ROOT, check=True))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert database.left() == 0
    return {"rows": COLD_ROWS, "seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["sqlite", "postgres"])
    parser.add_argument("--scale", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {"rows": options.rows, **machine()}
    with tempfile.TemporaryDirectory(prefix="wane-bench-") as place:
        folder = Path(place)
        settings = contract(folder / "first", "sqlite:///unused.db", Sqlite.unit).spark
        if JDBC.exists():
            os.environ["PYSPARK_SUBMIT_ARGS"] = f"--driver-class-path {JDBC} pyspark-shell"
        results["spark_start_seconds"], spark = timed(lambda: session(settings))
        results["spark_start_seconds"] = round(results["spark_start_seconds"], 2)

        def measured(database: Database) -> None:
            kind = results.setdefault(database.kind, {})
            if options.scale:
                kind["scale"] = scale(database, folder, options.rows)
            else:
                kind |= measure(database, folder, spark, options.rows, options.rounds)
                kind["cold"] = cold(database, folder / f"{database.kind}-cold")
                print_line(f"{database.kind} cold: {kind['cold']}")

        if options.only != "postgres":
            measured(Sqlite(folder))
        if options.only != "sqlite":
            with postgres_url() as url:
                measured(Postgres(url))
    text = json.dumps(results, indent=2) + "\n"
    assert place not in text
    RESULTS.write_text(text)
    for kind in ("sqlite", "postgres"):
        for name, value in results.get(kind, {}).get("ratios", {}).items():
            print(f"| {kind} | {name} | {value} |")


if __name__ == "__main__":
    main()
