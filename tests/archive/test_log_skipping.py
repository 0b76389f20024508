"""The archive's log decides which files are read; footers are read only of files of which it does not say enough."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo, GreaterThan
from pyspark.sql.types import StructType

from archive.cold import OLD_MS, Cold, cold_keeper, events
from archive.test_evolution import CONTRACT, insert, notes
from servers import Database, SqliteDatabase
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.comparison import groups
from wane._archive.delta.files import logged_edges
from wane._archive.maintenance import archived_holds
from wane._archive.query import skipping
from wane._archive.query.cold_rows import PlainRows, request
from wane._archive.query.plain_condition import parse
from wane._archive.query.skipping import all_files, kinds_of, without_others
from wane._archive.query.staging import Choice
from wane._archive.rows.names import ColumnNames
from wane._archive.rows.statistics import statistics
from wane._contract.settings import SparkSettings
from wane._leases import Lease
from wane.contrib.spark import _ColdReader

LEASE = Lease("archive event", "one", 1, datetime(2026, 1, 1, tzinfo=UTC))
SHAPE = [["id", "long"], ["at", "timestamp"], ["body", "string"]]
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
PARTITION = "_month=2026-01"


def time_of(number: int) -> datetime:
    return FIRST + timedelta(seconds=number)


def edges_of(number: int) -> dict[str, Any]:
    """Return statistics of a file with ten ids, and as many seconds."""
    first, last = number * 10, number * 10 + 9
    low = {"id": first, "at": time_of(first).isoformat(), "_sweep": 1}
    return {
        "numRecords": 10,
        "minValues": low,
        "maxValues": {"id": last, "at": time_of(last).isoformat(), "_sweep": 1},
        "nullCount": {},
    }


def name_of(number: int) -> str:
    return f"{PARTITION}/{number:06d}.parquet"


def add(table: ColdTable, files: Mapping[str, tuple[int, Mapping[str, Any] | None]]) -> None:
    """Add files to the log, by their names, each with its bytes and statistics, whether they exist or not."""
    handle = table.fresh()
    assert handle is not None
    month = {"_month": "2026-01"}
    actions: list[Any] = [
        AddAction(name, size, month, 1, data_change=True, stats="" if stats is None else json.dumps(stats))
        for name, (size, stats) in files.items()
    ]
    table.write(handle, actions, [LEASE], {})


def write(folder: Path, name: str, columns: Mapping[str, Any]) -> int:
    """Write a file; return its bytes."""
    count = len(next(iter(columns.values())))
    own = {"_key": [f"[{one}]" for one in range(count)], "_version": ["1"] * count, "_sweep": pa.array([1] * count)}
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({**columns, **own}), path)
    return path.stat().st_size


def made(folder: Path, count: int, there: int) -> ColdTable:
    """Return a table of many files, of which only one is on the disk: opening another would fail."""
    table = ColdTable(folder, "event", "origin")
    table.ensure(SHAPE, follows=False)
    rows = range(there * 10, there * 10 + 10)
    columns = {
        "id": pa.array(rows),
        "at": pa.array([time_of(one) for one in rows]),
        "body": [f"b{one}" for one in rows],
    }
    size = write(folder / "event", name_of(there), columns)
    add(table, {name_of(one): (size, edges_of(one)) for one in range(count)})
    return table


@pytest.fixture
def no_footer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail whenever a footer is read to decide whether a file can match."""

    def refuse(path: object, names: object) -> Any:
        raise AssertionError(f"the footer of {path} was read")

    monkeypatch.setattr(skipping, "footer_edges", refuse)


def footers_read(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, set[str]]]:
    """Record from now on which footers are read, and of which columns."""
    opened: list[tuple[str, set[str]]] = []
    before = skipping.footer_edges

    def counted(path: Any, names: Any) -> Any:
        opened.append((path.name, set(names)))
        return before(path, names)

    monkeypatch.setattr(skipping, "footer_edges", counted)
    return opened


def left(table: ColdTable, where: str) -> list[str]:
    handle = table.require()
    condition = parse(where, kinds_of(handle))
    assert condition is not None
    return [file.path.name for file in without_others(all_files(table.folder, handle, condition), condition)]


@pytest.mark.parametrize(
    "where",
    [
        "id = 7004",
        "id BETWEEN 7004 AND 7006 AND body LIKE 'b%'",
        "at = '2026-01-01 01:56:44'",
        "at > '2026-01-01 01:56:43' AND at < '2026-01-01 01:56:45' AND body IS NOT NULL",
        "id = 7004 AND body <> 'x' AND _month = '2026-01'",
    ],
)
def test_a_query_by_key_or_time_opens_one_file_of_a_thousand_and_no_other_footer(
    tmp_path: Path, where: str, no_footer: None
) -> None:
    table = made(tmp_path, 1_000, there=700)
    assert left(table, where) == ["000700.parquet"]
    requested = request(table, ColumnNames(), where=where, columns=["id"], limit=None, settings=SparkSettings())
    assert (7004,) in list(PlainRows(requested))
    assert (len(requested.files), requested.of_files) == (1, 1_000)


def test_files_are_skipped_however_many_there_are(tmp_path: Path, no_footer: None) -> None:
    table = made(tmp_path, 2_500, there=2_400)
    assert left(table, "id = 24004") == ["002400.parquet"]
    assert left(table, "at >= '2026-01-01 06:40:04' AND id <= 24009") == ["002400.parquet"]
    assert left(table, "_sweep = 2 OR _month = '2026-02' OR id > 24999") == []


def test_footers_are_read_only_of_files_that_the_log_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made(tmp_path, 2_500, there=2_400)
    opened = footers_read(monkeypatch)
    assert left(table, "id = 24004 AND body = 'b24004'") == ["002400.parquet"]
    assert left(table, "id = 24004 AND body = 'z'") == []
    assert opened == [("002400.parquet", {"body"})] * 2


def test_a_file_without_statistics_or_of_which_some_are_missing_is_read(tmp_path: Path) -> None:
    table = made(tmp_path, 3, there=0)
    half = edges_of(1)
    del half["maxValues"]["id"]
    size = write(tmp_path / "event", f"{PARTITION}/null.parquet", {"id": pa.array([None, 5], pa.int64())})
    add(table, {f"{PARTITION}/none.parquet": (1, None), f"{PARTITION}/half.parquet": (1, half)})
    add(table, {f"{PARTITION}/null.parquet": (size, {"numRecords": 2})})
    assert left(table, "id = 1") == ["000000.parquet", "half.parquet", "none.parquet"]
    assert left(table, "id = 5") == ["000000.parquet", "half.parquet", "none.parquet", "null.parquet"]
    # NULLs have no minimum: what asks for them reads every file.
    assert len(left(table, "id IS NULL OR id = 1")) == 6
    assert len(left(table, "NOT (id = 1)")) == 6


def test_a_maximum_that_another_program_cut_to_milliseconds_skips_nothing_that_matches(tmp_path: Path) -> None:
    table = ColdTable(tmp_path, "event", "origin")
    table.ensure([["at", "timestamp"], ["local", "timestamp_ntz"]], follows=False)
    low, high = "2026-01-01T00:00:00.000", "2026-01-01T00:00:00.123"
    stats = {
        "numRecords": 1,
        "minValues": {"at": f"{low}Z", "local": low},
        "maxValues": {"at": f"{high}Z", "local": high},
    }
    add(table, {f"{PARTITION}/cut.parquet": (1, stats)})
    for name in ("at", "local"):
        assert left(table, f"{name} = '2026-01-01 00:00:00.123999'") == ["cut.parquet"]
        assert left(table, f"{name} = '2026-01-01 00:00:00.125'") == []


def test_a_text_that_another_program_may_have_cut_skips_nothing(tmp_path: Path) -> None:
    table = ColdTable(tmp_path, "event", "origin")
    table.ensure([["body", "string"]], follows=False, texts=["body"])
    stats = {"numRecords": 1, "minValues": {"body": "a" * 40}, "maxValues": {"body": "b" * 40}}
    whole = {"numRecords": 1, "minValues": {"body": "a"}, "maxValues": {"body": "b" * 32}}
    add(table, {f"{PARTITION}/cut.parquet": (1, stats), f"{PARTITION}/whole.parquet": (1, whole)})
    assert left(table, "body = 'c'") == ["cut.parquet"]


def test_a_program_that_rewrites_files_writes_no_text_into_the_log(tmp_path: Path, no_footer: None) -> None:
    table = made(tmp_path, 1, there=0)
    DeltaTable(str(tmp_path / "event")).delete("id = 3")
    [rewritten] = [file.path.name for file in all_files(table.folder, table.require())]
    written = max((tmp_path / "event" / "_delta_log").glob("*.json")).read_text()
    assert rewritten in written
    assert '\\"body\\"' not in written.partition('"add"')[2].partition('"stats"')[2]
    assert left(table, "id = 4") == [rewritten]
    assert left(table, "id = 10") == []


TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    times=st.lists(st.none() | TIMES, min_size=1, max_size=4),
    days=st.lists(st.none() | st.dates(), min_size=1, max_size=4),
    numbers=st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=4),
)
def test_no_value_of_a_file_is_outside_of_what_its_log_states(
    tmp_path_factory: pytest.TempPathFactory,
    times: list[datetime | None],
    days: list[date | None],
    numbers: list[int | None],
) -> None:
    folder = tmp_path_factory.mktemp("log")
    table = ColdTable(folder, "event", "origin")
    kinds = [["at", "timestamp"], ["local", "timestamp_ntz"], ["day", "date"], ["a%20number.of`it", "integer"]]
    table.ensure(kinds, follows=False)
    longest = max(len(times), len(days), len(numbers))
    columns = {
        "at": pa.array(_padded([one and one.replace(tzinfo=UTC) for one in times], longest), pa.timestamp("us", "UTC")),
        "local": pa.array(_padded(times, longest), pa.timestamp("us")),
        "day": pa.array(_padded(days, longest), pa.date32()),
        "a%20number.of`it": pa.array(_padded(numbers, longest), pa.int32()),
    }
    name = f"{PARTITION}/a%20b.parquet"
    size = write(folder / "event", name, columns)
    add(table, {name: (size, statistics(pq.read_metadata(folder / "event" / name), ()))})
    # A column that was widened since.
    table.ensure([*kinds[:-1], ["a%20number.of`it", "long"]], follows=False)
    handle = table.require()
    [edges] = logged_edges(handle, [one for one, _ in kinds]).values()
    for column, values in columns.items():
        known = [one for one in values.to_pylist() if one is not None]
        assert column not in edges or all(edges[column][0] <= one <= edges[column][1] for one in known)
    if any(one is not None for one in numbers):
        assert "a%20number.of`it" in edges
    if any(one is not None for one in days):
        assert "day" in edges


def _padded(values: Sequence[Any], length: int) -> list[Any]:
    return [*values, *[None] * (length - len(values))]


@pytest.fixture
def cold(database: Database, tmp_path: Path) -> Iterator[Cold]:
    events(database, 200)
    with cold_keeper(database, tmp_path) as keeping:
        keeping.one()
        yield keeping


def test_queries_restores_and_holds_decide_by_the_log(
    cold: Cold, no_footer: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    [row] = [one for one in cold.archived() if one["id"] == 7]
    for where in ("id = 7", f"at_ms = {row['at_ms']}"):
        found = cold.keeper.archive.read("event", where=where)
        assert [one[found.columns.index("id")] for one in found] == [7]
        assert len(found.files.names) == 1 < found.files.of_files
    kinds = kinds_of(DeltaTable(str(cold.folder / "cold" / "event")))
    for choice in (Choice(keys=({"id": "7"},)), Choice(where="id = 7")):
        condition = choice.condition(kinds, SparkSettings())
        handle = DeltaTable(str(cold.folder / "cold" / "event"))
        assert len(without_others(all_files(cold.folder / "cold" / "event", handle, condition), condition)) == 1
    opened: list[Any] = []

    def counted(path: Any, shape: Any) -> Any:
        opened.append(path)
        return groups(path, shape)

    monkeypatch.setattr(archived_holds, "groups", counted)
    cold.keeper.hold("event", {"id": 199}, reason="asked for")
    assert len(opened) == 1


def test_a_column_that_was_renamed_or_has_an_odd_name_is_skipped_by(
    database: Database, tmp_path: Path, no_footer: None
) -> None:
    notes(database, '"unit price" integer, size integer')
    for first in (1, 101):
        insert(database, first, 10, size=first, **{'"unit price"': first})
        with cold_keeper(database, tmp_path, CONTRACT) as cold:
            cold.one()
    database.execute("ALTER TABLE note RENAME COLUMN size TO weight")
    insert(database, 201, 10, weight=201, **{'"unit price"': 201})
    renamed = CONTRACT.replace('keep = "forever"', 'keep = "forever"\nrenamed = {{ weight = "size" }}', 1)
    with cold_keeper(database, tmp_path, renamed) as cold:
        cold.one()
        for where in ("weight = 101", "`unit price` = 101", "weight = 201"):
            found = cold.keeper.archive.read("note", where=where)
            assert len(list(found)) == 10
            assert (len(found.files.names), found.files.of_files) == (1, 3)


def test_wane_cold_skips_by_the_log_and_by_origin(tmp_path: Path, no_footer: None) -> None:
    for origin in ("a" * 32, "b" * 32):
        table = ColdTable(tmp_path, "event", origin, shared=True)
        table.ensure(SHAPE, follows=False)
        for number in range(3):
            rows = range(number * 10, number * 10 + 10)
            columns = {"id": pa.array(rows), "at": pa.array([time_of(one) for one in rows])}
            size = write(Path(str(table.folder)), name_of(number), columns)
            add(table, {name_of(number): (size, edges_of(number))})
    path = str(tmp_path / "event")
    schema = StructType.fromJson(json.loads(DeltaTable(path).schema().to_json()))

    def files(*filters: Any) -> list[str]:
        made = _ColdReader(path, schema)
        list(made.pushFilters(list(filters)))
        return [one.file.removeprefix(f"{path}/") for one in made.partitions()]

    assert len(files()) == 6
    assert files(EqualTo(("_origin",), "b" * 32), EqualTo(("id",), 14)) == [f"_origin={'b' * 32}/{name_of(1)}"]
    assert len(files(EqualTo(("_origin",), "a" * 32))) == 3
    assert files(EqualTo(("_origin",), "nobody")) == []
    assert len(files(GreaterThan(("at",), time_of(20)))) == 2
    assert left(ColdTable(tmp_path, "event", "a" * 32, shared=True), "id = 14") == ["000001.parquet"]


def test_an_archive_from_before_decides_by_footers_until_its_next_sweep(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 200)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        path = str(tmp_path / "cold" / "event")
        DeltaTable(path).alter.set_table_properties({"delta.dataSkippingStatsColumns": "_sweep"})
        opened = footers_read(monkeypatch)
        assert len(list(cold.keeper.archive.read("event", where="id = 7"))) == 1
        assert opened
        sqlite_database.execute("INSERT INTO event (id, status, at_ms) VALUES (999, 'done', ?)", (OLD_MS,))
        assert cold.one().archived["event"] == 1
        opened.clear()
        assert len(list(cold.keeper.archive.read("event", where="id = 7"))) == 1
        assert opened == []
