"""Hot rows as a data source of other Spark jobs: one state of the database, filters in the database, nothing secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, IsNotNull, IsNull, Not

from archive.cold import cold_keeper, events
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._archive.spark.session import session
from wane._contract.settings import SparkSettings
from wane.contrib.spark import HotSource, _HotReader, hot_snapshot, register
from wane.errors import UnknownRule, UnknownTable, WrongArgument

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-with-spark.md"
ROWS = 100


@contextmanager
def held(database: Database, folder: Path) -> Iterator[dict[str, str]]:
    events(database, ROWS)
    with cold_keeper(database, folder):
        pass
    with hot_snapshot(folder / "wane.toml") as snapshot:
        yield {**snapshot, "table": "event", "range_rows": "30"}


def reader(options: dict[str, str], *filters: Filter) -> _HotReader:
    source = HotSource(options)
    made = source.reader(source.schema())
    # Spark evaluates all of them itself.
    assert list(made.pushFilters(list(filters))) == list(filters)
    return made


def read(made: _HotReader) -> list[dict[str, Any]]:
    batches = [batch for partition in made.partitions() for batch in made.read(partition)]
    return sorted(pa.Table.from_batches(batches).to_pylist(), key=lambda row: int(row["id"])) if batches else []


def test_a_job_reads_what_is_due_and_only_that(database: Database, tmp_path: Path) -> None:
    with held(database, tmp_path) as options:
        made = reader(options)
        assert len(made.partitions()) == (1 if database.store == "sqlite" else 5), "ranges, and what is behind them"
        rows = read(made)
        assert [row["id"] for row in rows] == list(range(1, ROWS + 1))
        assert list(rows[0]) == ["id", "status", "at_ms", "body", "amount", "_key", "_version", "_month"]
        assert rows[6]["_month"] == datetime.fromtimestamp(rows[6]["at_ms"] / 1000, UTC).strftime("%Y-%m")
        each = reader({**options, "snapshot": "each task"})
        assert len(each.partitions()) == 5
        assert [row["id"] for row in read(each)] == list(range(1, ROWS + 1))


def test_all_tasks_read_one_state(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    with held(postgres_database, tmp_path) as options:
        made = reader(options)
        postgres_database.execute("DELETE FROM event_read")
        postgres_database.execute("DELETE FROM event WHERE id > 60 AND id <= 100")
        postgres_database.execute("UPDATE event SET body = 'later', at_ms = at_ms + 1000000 WHERE id <= 10")
        rows = read(made)
        assert [row["id"] for row in rows] == list(range(1, ROWS + 1))
        assert not any(row["body"] == "later" for row in rows)
        now = reader({**options, "snapshot": "each task"})
        assert {row["id"] for row in read(now)} <= set(range(1, 61))


def test_the_database_skips_what_filters_exclude(database: Database, tmp_path: Path) -> None:
    with held(database, tmp_path) as options:
        database.execute("UPDATE event SET body = NULL WHERE id = 4")
    with hot_snapshot(tmp_path / "wane.toml") as snapshot:
        options = {**snapshot, "table": "event", "rule": "cold"}
        for filters, wanted in (
            ([EqualTo(("id",), 7)], [7]),
            ([In(("id",), (7, 8, 5_000, None))], [7, 8]),
            ([GreaterThan(("id",), 98), IsNotNull(("id",))], [99, 100]),
            ([IsNull(("body",))], [4]),
            ([GreaterThanOrEqual(("id",), 99), EqualTo(("status",), "done")], [99, 100]),
            ([EqualTo(("status",), "it's")], []),
        ):
            assert [row["id"] for row in read(reader(options, *filters))] == wanted
        for unknown in (
            GreaterThan(("status",), "zzz"),
            Not(EqualTo(("id",), 7)),
            EqualTo(("id",), True),
            EqualTo(("id",), 2**70),
            EqualTo(("_month",), "1999-01"),
            EqualTo(("amount",), 1.5),
        ):
            assert len(read(reader(options, unknown))) == ROWS


def test_no_option_is_secret(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    events(postgres_database, 1)
    with cold_keeper(postgres_database, tmp_path):
        pass
    secret = re.sub(r"//([^@/]*)@", r"//\1:sekret-1@", postgres_database.url)
    with hot_snapshot(tmp_path / "wane.toml", secret) as snapshot:
        assert "sekret-1" not in repr(snapshot)
        assert [row["id"] for row in read(reader({**snapshot, "table": "event"}))] == [1]
    with hot_snapshot(tmp_path / "wane.toml", secret, url_variable="WANE_TASK_URL") as snapshot:
        assert (snapshot["variable"], "at" in snapshot) == ("WANE_TASK_URL", False)


@pytest.mark.parametrize(
    ("options", "problem", "reported"),
    [
        ({"table": None}, WrongArgument, "needs a table"),
        ({"table": "nothing"}, UnknownTable, "nothing"),
        ({"rule": "hot"}, UnknownRule, "no rule 'hot'"),
        ({"now": None}, WrongArgument, "hot_snapshot"),
        ({"range_rows": "many"}, WrongArgument, "range_rows is 'many'"),
        ({"tabel": "event"}, WrongArgument, "no option 'tabel'"),
        # Read as a snapshot of each task, it could have a row twice.
        ({"snapshot": "one  task"}, WrongArgument, "snapshot is 'one  task'"),
        ({"snapshot": None}, WrongArgument, "snapshot is ''"),
    ],
)
def test_options_that_request_nothing_are_refused(
    sqlite_database: SqliteDatabase,
    tmp_path: Path,
    options: dict[str, str | None],
    problem: type[Exception],
    reported: str,
) -> None:
    with held(sqlite_database, tmp_path) as known:
        given = {name: value for name, value in {**known, **options}.items() if value is not None}
        with pytest.raises(problem, match=reported):
            HotSource(given).schema()


@pytest.mark.on_spark
def test_a_job_reads_hot_rows_as_the_page_shows(database: Database, tmp_path: Path) -> None:
    events(database, ROWS)
    with cold_keeper(database, tmp_path):
        pass
    spark = session(SparkSettings())
    [*_, code] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    code = code.replace("wane.toml", str(tmp_path / "wane.toml")).replace("event_outbox", "event")
    seen: dict[str, Any] = {"spark": spark}
    exec(code, seen)
    [[month, count], *_] = seen["months"]
    assert (len(month), sum(rows for _, rows in seen["months"])) == (7, ROWS - 49)
    assert count > 0


@pytest.mark.on_spark
def test_spark_passes_filters_on_and_the_database_skips_what_they_exclude(database: Database, tmp_path: Path) -> None:
    """A value that the archive could not store is an error as soon as its row is read."""
    with held(database, tmp_path):
        pass
    unstorable = "9007199254740993" if database.store == "sqlite" else "'NaN'"
    database.execute(f"UPDATE event SET amount = {unstorable} WHERE id = 50")
    spark = session(SparkSettings())
    register(spark)
    with hot_snapshot(tmp_path / "wane.toml") as snapshot:

        def found(where: str) -> list[int]:
            read = spark.read.format("wane_hot").options(**snapshot).option("table", "event").load()
            return sorted(row.id for row in read.where(where).collect())

        assert found("id IN (7, 8) AND length(body) > 0") == [7, 8]
        assert found("id > 98 AND status = 'done'") == [99, 100]
        with pytest.raises(PySparkException, match="has a value in amount that"):
            found("length(body) > 0 AND pmod(id, 50) = 1")
