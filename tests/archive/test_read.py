"""Reading archived rows: the same rows in the same order with Spark and without it, from the files that may hold
them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame

from archive.cold import CONTRACT, Cold, cold_keeper, damage, events, insert_events
from archive.inline import without_spark
from servers import PostgresDatabase, SqliteDatabase
from wane._archive.query import cold_rows
from wane._archive.query.cold_rows import PlainRows, SparkRows
from wane._archive.query.plain_condition import parse
from wane._archive.rows.content import arrow_type
from wane.errors import Unproven, WaneError, WrongArgument

KINDS = """
  whole integer, small smallint, truth boolean, fraction double precision, label text, "dot.ted" text, bytes bytea,
  money numeric(12,2), day date, happened timestamptz, wall timestamp
"""
ROWS = """
  SELECT n, 'done', {old} + n * 86400000::bigint,
    nullif(n % 7, 3), n % 5, (ARRAY[true, false, NULL])[n % 3 + 1],
    (ARRAY[0.5, 'NaN', '-0', NULL, 1e300, '-Infinity'])[n % 6 + 1]::double precision,
    (ARRAY['plain', 'it''s', '100%', E'two\nlines', '', NULL, 'Äther \U0001f600', 'under_score'])[n % 8 + 1],
    'd' || n % 3, decode(lpad(to_hex(n), 2, '0'), 'hex'), n / 4.0, DATE '2024-02-28' + n,
    TIMESTAMPTZ '2024-03-31 00:30:00.000001+00' + n * INTERVAL '17 hours', TIMESTAMP '0999-12-31 23:59:59' + n * INTERVAL '1 day'
  FROM generate_series({first}, {last}) n
"""
PLAIN = (
    "id = 7",
    "ID <> 7 AND whole IS NOT NULL",
    "whole IN (1, 2, 99) OR NOT small NOT IN (4)",
    "NOT whole IN (1, 2) AND small <=> 3",
    "whole <=> 3 OR 3 >= id",
    "truth AND NOT id BETWEEN 5 AND 8",
    "NOT truth OR truth = true AND id < 10",
    "fraction > 1",
    "NOT fraction <= 0.5",
    "fraction IN (0, 0.5) OR fraction <> 0.5",
    "fraction = 0 OR fraction < -1",
    "label LIKE 'it''s' OR label LIKE '%!_%'",
    "label LIKE 'under_score' OR label LIKE '100%' OR label LIKE ''",
    "label LIKE 'two%s' OR label NOT LIKE '%l%'",
    "label > 'it' AND label <= 'Äther'",
    "`dot.ted` = 'd1' AND label != 'plain'",
    "money = 2 OR money IN (1.5, 3.250) OR money > 12345678901234567890.12",
    "money BETWEEN -1 AND 0.75",
    "day >= '2024-03-10' AND day < DATE '2024-03-20'",
    "happened < '2024-04-05 10:30:00.000001' OR happened >= TIMESTAMP '2024-04-20'",
    "wall > '1000-01-10' AND wall <> '1000-01-12T23:59:59'",
    "_month > '2000-01' AND _sweep = 2",
    "added = 'late'",
    "id < 0",
)
"""What needs no Spark."""
MISTAKES = ("nothing = 1", "id = 1 AND (NOTHING > 2 OR other = 3)", "`no such` IS NULL", "x" * 100_001)


def typed_rows(database: PostgresDatabase, first: int, last: int, extra: str = "") -> None:
    old = 1_600_000_000_000
    database.execute(
        f"INSERT INTO event {ROWS.format(old=old, first=first, last=last).replace('FROM gen', f'{extra} FROM gen')}"
    )


def outcome(call: Callable[[], Any]) -> tuple[str, str, str]:
    with pytest.raises(WaneError) as refused:
        call()
    return type(refused.value).__name__, refused.value.message, refused.value.hint


@pytest.mark.on_spark
def test_with_spark_and_without_it_the_rows_and_their_order_and_the_errors_are_the_same(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = postgres_database
    database.execute(f"CREATE TABLE event (id bigint PRIMARY KEY, status text, at_ms bigint, {KINDS})")
    without_followers = CONTRACT.partition("with = ")[0] + "[spark]\nrange_rows = 20\n"
    with cold_keeper(database, tmp_path, without_followers) as cold:
        with monkeypatch.context() as patch:
            without_spark(patch)  # What is written is not what is tested here.
            typed_rows(database, 1, 30)
            cold.one()
            database.execute("ALTER TABLE event ADD added text")
            typed_rows(database, 31, 60, ", 'late'")
            cold.one()
        archive, table = cold.keeper.archive, DeltaTable(str(tmp_path / "cold" / "event"))
        table.delete("id = 5")  # Delta Lake rewrites the file that had it, with types of its own.

        def both(**options: Any) -> list[str]:
            plain, spark = archive.read("event", **options), archive.read("event", spark=True, **options)
            assert isinstance(plain, PlainRows), options
            assert isinstance(spark, SparkRows)
            assert plain.columns == spark.columns
            rows = list(map(repr, plain))  # As texts, because NaN is not equal to itself.
            assert rows == list(map(repr, spark)), options
            return rows

        every = both()
        assert len(every) == 59
        assert both(where="_sweep = 2 AND label LIKE 'it%'", columns=["bytes", "_month"], limit=2) != []
        with monkeypatch.context() as patch:
            patch.setattr(cold_rows, "_FIRST_WAVE_BYTES", 1)  # Each file by itself, as large ones are read.
            assert both(limit=45) == every[:45]
        _compare_conditions(archive.query("event"), table)
        for where in MISTAKES:
            reported = outcome(lambda where=where: archive.read("event", where=where))  # type: ignore[misc]
            assert reported == outcome(lambda where=where: archive.query("event", where=where)), where[:80]  # type: ignore[misc]
        assert outcome(lambda: list(archive.read("event", where="1 / (id - 7) = 2")))[0] == "WrongArgument"
        assert outcome(lambda: archive.read("event", columns=["no"])) == outcome(
            lambda: archive.query("event", columns=["no"])
        )
        assert archive.verify() == archive.verify(spark=True)
        assert [row[0] for row in archive.read("event", where="length(label) = 5 AND id < 20")] == [8, 16]
        monkeypatch.setattr(cold_rows, "WITHOUT_SPARK_BYTES", 0)
        assert isinstance(archive.read("event"), SparkRows)


def _compare_conditions(frame: DataFrame, table: DeltaTable) -> None:
    """Compare what every condition is for every row, in one query: true, false or NULL."""
    expected = frame.orderBy("id").selectExpr(*(f"({where}) AS c{number}" for number, where in enumerate(PLAIN)))
    columns = list(zip(*expected.collect(), strict=True))
    kinds = {field.name: str(field.type.type) for field in table.schema().fields}
    rows = pa.table(DeltaTable(table.table_uri).to_pyarrow_table()).sort_by("id")
    rows = pa.table({name: rows[name].cast(arrow_type(kind)) for name, kind in kinds.items()})
    for number, where in enumerate(PLAIN):
        condition = parse(where, kinds)
        assert condition is not None, where
        assert condition.mask(rows).to_pylist() == list(columns[number]), where


@pytest.fixture
def three_months(sqlite_database: SqliteDatabase, tmp_path: Path) -> Any:
    """Archive rows of several months, in a file each."""
    events(sqlite_database, 0)
    insert_events(sqlite_database, [*range(1, 5), *range(801, 805), *range(1601, 1605)])
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        yield cold


def file_of(cold: Cold, row: int) -> Path:
    """Return the file that has a row."""
    [found] = [
        file
        for file in (cold.folder / "cold" / "event").glob("*/*.parquet")
        if row in pq.read_table(file, columns=["id"], partitioning=None)["id"].to_pylist()
    ]
    return found


def test_rows_come_month_by_month(three_months: Cold) -> None:
    ids = [row[0] for row in three_months.keeper.archive.read("event", columns=["id"])]
    assert ids == [*range(1, 5), *range(801, 805), *range(1601, 1605)]


NARROW = ("id = 802", "id IN (801, 804)", "id > 700 AND id < 1000", "id BETWEEN 801 AND 804 OR id = 803", "id <=> 802")


def test_files_that_cannot_hold_such_a_row_are_not_read(three_months: Cold) -> None:
    read = three_months.keeper.archive.read
    expected = {where: list(read("event", where=where)) for where in NARROW}
    others = [file_of(three_months, row) for row in (1, 1601)]
    for other in others:
        damage(other, "body")
    for where, rows in expected.items():
        assert list(read("event", where=where)) == rows != [], where
        for wider in (None, f"NOT ({where})", f"{where} OR body >= 'a'", "amount > 1"):
            with pytest.raises(Unproven, match="cannot be trusted"):
                list(read("event", where=wider))
    for other in others:
        other.unlink()
    for where, rows in expected.items():
        assert list(read("event", where=where)) == rows, "the log excludes the others, whether they are there or not"
        with pytest.raises(Unproven, match="cannot be trusted"):
            read("event", where=f"{where} OR body = 'x'")


def test_the_first_rows_are_read_from_the_first_files(three_months: Cold) -> None:
    read = three_months.keeper.archive.read
    file_of(three_months, 1601).unlink()
    assert [row[0] for row in read("event", limit=8)] == [1, 2, 3, 4, 801, 802, 803, 804]
    with pytest.raises(Unproven):
        read("event", limit=9)


def test_a_damaged_file_is_noticed(three_months: Cold) -> None:
    file = file_of(three_months, 802)
    damage(file, "body")
    with pytest.raises(Unproven, match="cannot be trusted"):
        list(three_months.keeper.archive.read("event"))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(Unproven, match="cannot be trusted"):
        three_months.keeper.archive.read("event")


def test_a_malformed_request_is_refused(three_months: Cold) -> None:
    read = three_months.keeper.archive.read
    with pytest.raises(WrongArgument, match="limit must be at least 1"):
        read("event", limit=0)
    with pytest.raises(WrongArgument, match="no rule archives event_guard"):
        read("event_guard")
