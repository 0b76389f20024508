"""The versions of copies whose rows have none: checksums of their values, which a restore compares."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archive.cold import Cold, cold_keeper, events
from servers import SqliteDatabase
from wane._archive.delta.comparison import groups
from wane._archive.pipeline.extract import RangeFiles
from wane._archive.rows import content
from wane._archive.rows.types import MONTH
from wane.errors import ArchiveError

SHAPE = [["id", "long"], ["body", "string"], ["data", "binary"], ["amount", "double"]]
LONG = "x" * (content._BYTES_AT_ONCE + 1)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5, 6], pa.int64()),
        "body": pa.array(["a", "", None, "a\0", LONG, "ab"]),
        "data": pa.array([b"", b"\0", None, b"\0\0", b"a", b"ab"]),
        "amount": pa.array([0.5, -0.0, 0.0, None, 1e300, -1.0]),
    }
)


def of(table: pa.Table) -> list[str]:
    return list(content.checksums(table, SHAPE).to_pylist())


def test_a_row_has_the_same_checksum_whatever_is_beside_it() -> None:
    whole = of(ROWS)
    assert [of(ROWS.slice(number, 1)) for number in range(len(ROWS))] == [[one] for one in whole]
    backwards = ROWS.take([5, 4, 3, 2, 1, 0])
    assert of(backwards) == whole[::-1]
    assert len(set(whole)) == len(ROWS)
    assert all(len(one) <= 10 for one in whole), "it is stored with every row"


def test_what_was_written_is_compared_however_its_columns_are_divided() -> None:
    rows = ROWS.append_column("flag", pa.array([True, None, False, True, True, False]))
    divided = pa.concat_tables([rows.slice(0, 1), rows.slice(1, 0), rows.slice(1, 3), rows.slice(4)])
    assert content.content_digest(divided) == content.content_digest(divided.combine_chunks())
    for name in rows.column_names:
        column = rows.column_names.index(name)
        moved = pa.chunked_array([rows[name].slice(1), rows[name].slice(0, 1)])
        changed = divided.set_column(column, name, moved)
        assert content.content_digest(changed) != content.content_digest(divided), name


@given(data=st.data(), rows=st.lists(st.tuples(st.binary(max_size=20), st.integers(0, 255)), min_size=1, max_size=30))
def test_every_bit_that_was_written_is_compared(data: st.DataObject, rows: list[tuple[bytes, int]]) -> None:
    """Also at any division into pieces, of any length."""
    table = pa.table({"data": [one for one, _ in rows], "small": pa.array([one for _, one in rows], pa.uint8())})
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    pieces = [table.slice(one, two - one) for one, two in pairwise([0, *cuts, len(rows)])]
    digest = content.content_digest(table)
    assert content.content_digest(pa.concat_tables(pieces)) == digest
    values = [bytearray(one) for one, _ in rows]
    filled = [number for number, one in enumerate(values) if one]
    if filled:
        chosen = values[data.draw(st.sampled_from(filled))]
        chosen[data.draw(st.integers(0, len(chosen) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        changed = table.set_column(0, "data", pa.array([bytes(one) for one in values], pa.binary()))
        assert content.content_digest(changed) != digest


def test_swapped_words_have_the_same_sum_and_another_checksum() -> None:
    one, other = (pa.table({"id": pa.array(ids, pa.int64())}) for ids in ([1, 2, 3], [2, 1, 3]))
    assert content.content_digest(one) != content.content_digest(other)


def test_a_change_that_a_checksum_of_32_bits_misses_has_another_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zlib.crc32", lambda *_: 0)
    one, other = (pa.table({"id": pa.array(ids, pa.int64())}) for ids in ([1, 2, 3], [1, 2, 4]))
    assert content.content_digest(one) != content.content_digest(other)


def test_a_dictionary_is_written_of_what_repeats(tmp_path: Path) -> None:
    rows = 10_000
    table = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "kind": [f"kind {number % 7}" for number in range(rows)],
            "stream": [f"stream {number % 500}" for number in range(rows)],
            "body": [f"body {number}" for number in range(rows)],
            "nothing": pa.nulls(rows, pa.string()),
            "paid": [number % 2 == 0 for number in range(rows)],
            "price": pa.array([Decimal(number) for number in range(rows)], pa.decimal128(12, 2)),
            MONTH: ["2026-01"] * rows,
        }
    )
    files = RangeFiles(tmp_path, "rows.parquet", ())
    files.write(table)
    [file] = files.finish()
    group = pq.read_metadata(tmp_path / file["path"]).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    assert {one.path_in_schema for one in columns if one.has_dictionary_page} == {"kind", "stream", "nothing"}


def test_a_file_that_another_writer_rewrote_has_the_same_values(tmp_path: Path) -> None:
    """Spark stores times as INT96 unless it is configured otherwise, and Arrow reads them as nanoseconds."""
    shape = [["at", "timestamp"], ["body", "string"]]
    at = pa.array([datetime(2026, 1, 2, 3, 4, 5, 6, UTC), None], pa.timestamp("us", "UTC"))
    rows = pa.table({"at": at, "body": ["a", "b"]})
    pq.write_table(rows, tmp_path / "own")
    other = rows.set_column(1, "body", rows["body"].cast(pa.large_string()))
    pq.write_table(other, tmp_path / "other", use_deprecated_int96_timestamps=True)
    own, other = (list(groups(tmp_path / name, shape)) for name in ("own", "other"))
    assert own == other


@pytest.mark.parametrize(
    ("column", "value"),
    [("id", 7), ("body", "b"), ("body", ""), ("body", None), ("data", b"\0"), ("data", None), ("amount", -0.5)],
)
def test_every_value_counts(column: str, value: object) -> None:
    one = ROWS.slice(0, 1)
    other = one.set_column(one.column_names.index(column), column, pa.array([value], one[column].type))
    assert of(other) != of(one)


def test_values_that_change_columns_are_other_rows() -> None:
    shape = [["one", "string"], ["two", "string"]]
    table = pa.table({"one": ["a", "b", None, "a"], "two": ["b", "a", "a", None]})
    assert len(set(content.checksums(table, shape).to_pylist())) == 4


def test_a_column_that_was_added_later_changes_no_checksum() -> None:
    wider = ROWS.append_column("later", pa.nulls(len(ROWS), pa.string()))
    assert content.checksums(wider, [*SHAPE, ["later", "string"]]).to_pylist() == of(ROWS)


def rewrite(cold: Cold, *, body: str | None = None, digests: bool = False) -> None:
    """Change every row's text, or give each the digest that older archives have as its version."""
    for file in (cold.folder / "cold" / "event").glob("*/*.parquet"):
        table = pq.ParquetFile(file).read()
        if body is not None:
            table = table.set_column(table.column_names.index("body"), "body", pa.array([body] * len(table)))
        if digests:
            kinds = {"int64": "long", "string": "string", "double": "double"}
            shape = [[one.name, kinds[str(one.type)]] for one in table.schema if not one.name.startswith("_")]
            old = content.row_digests(table, shape)
            table = table.set_column(table.column_names.index("_version"), "_version", old)
        pq.write_table(table, file, compression="zstd", write_page_checksum=True)
    log = cold.folder / "cold" / "event" / "_delta_log"
    for entry in log.glob("*.json"):
        actions = [json.loads(line) for line in entry.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"]["size"] = (log.parent / action["add"]["path"]).stat().st_size
        entry.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def test_rows_of_an_older_archive_come_back(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 30)
    before = sorted(sqlite_database.query("SELECT * FROM event"))
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        rewrite(cold, digests=True)
        assert cold.keeper.archive.restore("event", where="id < 31").restored["event"] == 30
    assert sorted(sqlite_database.query("SELECT * FROM event")) == before


@pytest.mark.parametrize("digests", [True, False])
def test_a_row_that_was_changed_in_the_archive_does_not_come_back(
    sqlite_database: SqliteDatabase, tmp_path: Path, digests: bool
) -> None:
    events(sqlite_database, 30)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        if digests:
            rewrite(cold, digests=True)
        rewrite(cold, body="forged")
        before = cold.hot()
        with pytest.raises(ArchiveError, match="is not what was archived"):
            cold.keeper.archive.restore("event", where="id < 10")
        assert cold.hot() == before
