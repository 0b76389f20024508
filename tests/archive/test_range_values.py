"""SQLite: what leaves with its range has, bit by bit, the values of its copies, however they are read; and nothing else
leaves.

Tasks run in processes of their own: ADBC's SQLite in this one would release the locks of the driver's.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from archive.cold import OLD_MS, cold_keeper
from archive.inline import ForkedExecutor, without_spark
from archive.test_plain_rows import PLAIN, one_by_one
from servers import SqliteDatabase
from wane._archive.pipeline import range_take
from wane._archive.pipeline.range_reader import RangeReader
from wane._prune.sweep import Outcome
from wane.errors import StoreError, TimedOut

ROWS = 12
COLUMNS = "whole integer, words text, bytes blob, fraction real, amount numeric(12,2), free any, bare"
CAST = PLAIN.replace('keep = "forever"', 'keep = "forever"\ncast = {{ free = "text", bare = "real" }}')


@pytest.fixture(params=["over the connection", "by a process"])
def reading(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    without_spark(monkeypatch, ForkedExecutor)
    monkeypatch.setattr(range_take, "READ_APART", 0 if request.param == "by a process" else 10**9)
    return str(request.param)


def fill(database: SqliteDatabase, **values: Any) -> None:
    database.execute(
        f"CREATE TABLE event (id integer PRIMARY KEY, status text NOT NULL, at_ms integer NOT NULL, {COLUMNS})"
    )
    database.execute("CREATE INDEX event_due ON event (status, at_ms, id)")
    for n in range(1, ROWS + 1):
        row = {"id": n, "status": "done", "at_ms": OLD_MS + n, **values}
        database.execute(
            f"INSERT INTO event ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", tuple(row.values())
        )


SAME: dict[str, dict[str, Any]] = {
    "null": {},
    "empty": {"words": "", "bytes": b"", "whole": 0, "fraction": 0.0, "amount": 0, "free": ""},
    "odd": {"words": "a\0b '😀", "bytes": b"\0\xff", "whole": -(2**63), "bare": -0.0, "amount": -2, "free": 1.5},
    "large": {"words": "x" * 70_000, "whole": 2**63 - 1, "fraction": 1.7976931348623157e308, "amount": 0.1},
    "infinite": {"fraction": float("inf"), "amount": float("-inf")},
}


@pytest.mark.parametrize("values", SAME)
def test_rows_with_any_values_leave_without_a_read_of_their_own(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: str, values: str
) -> None:
    fill(sqlite_database, **SAME[values])
    checked = one_by_one(monkeypatch)
    with cold_keeper(sqlite_database, tmp_path, CAST) as cold:
        done = cold.one()
        assert (done.outcome, done.evicted, done.stale) == (Outcome.DONE, {"event": ROWS}, 0), done.message
    assert checked == []


DIFFER: dict[str, tuple[str, Any, Any]] = {
    "null and empty text": ("words", None, ""),
    "empty text and null": ("words", "", None),
    "text and text": ("words", "a", "b"),
    "text and its bytes": ("words", "a", b"a"),
    "texts by a zero byte": ("words", "a", "a\0"),
    "null and empty bytes": ("bytes", None, b""),
    "bytes and bytes": ("bytes", b"a\0", b"a"),
    "bytes and their text": ("bytes", b"a", "a"),
    "null and zero": ("whole", None, 0),
    "number and number": ("whole", 2**53, 2**53 + 1),
    "number and fraction": ("whole", 1, 1.5),
    "number and text": ("whole", 1, "one"),
    "number and a fraction as large": ("whole", 2**63 - 1, 2.0**63),
    "zero and negative zero": ("bare", 0.0, -0.0),
    "negative zero and zero": ("bare", -0.0, 0.0),
    "fraction and the next one": ("fraction", 0.1, 0.1 + 2**-56),
    "fraction and null": ("fraction", 0.0, None),
    "fraction and text": ("fraction", 1.0, "one"),
    "fraction and NaN, which is null": ("fraction", 1.0, float("nan")),
    "infinities": ("fraction", float("inf"), float("-inf")),
    "amounts": ("amount", 1, 1.5),
    "amount and text": ("amount", 1, "one"),
    "cast values": ("free", 1, 2),
    "cast null": ("free", "", None),
}


@pytest.mark.sampled(
    "by a process-null and empty text",
    "over the connection-text and its bytes",
    "by a process-number and a fraction as large",
    "over the connection-negative zero and zero",
    "by a process-zero and negative zero",
)
@pytest.mark.parametrize("difference", DIFFER)
def test_a_row_with_one_other_value_stays(
    sqlite_database: SqliteDatabase, tmp_path: Path, reading: str, difference: str
) -> None:
    column, before, after = DIFFER[difference]
    fill(sqlite_database, **{column: before})
    with cold_keeper(sqlite_database, tmp_path, CAST) as cold:
        cold.at["committed"] = lambda: sqlite_database.execute(f"UPDATE event SET {column} = ? WHERE id = 7", (after,))
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, 1), done.message
        assert (cold.hot(), cold.cold()) == ([7], [n for n in range(1, ROWS + 1) if n != 7])


CHANGES = {
    "missing": ("DELETE FROM event WHERE id = 7", [], 0),
    "added": (f"INSERT INTO event (id, status, at_ms) VALUES (99, 'done', {OLD_MS + 7})", [99], 0),
    "copied": (
        f"INSERT INTO event SELECT 99, status, at_ms, {', '.join(['NULL'] * 7)} FROM event WHERE id = 7",
        [99],
        0,
    ),
    "exchanged": ("UPDATE event SET id = 99 WHERE id = 7", [99], 0),
    "all gone": ("DELETE FROM event", [], 0),
    "not due": ("UPDATE event SET status = 'open' WHERE id = 7", [7], 1),
}


@pytest.mark.sampled("over the connection-missing", "by a process-added", "by a process-exchanged")
@pytest.mark.parametrize("change", CHANGES)
def test_other_rows_than_the_copies_stay(
    sqlite_database: SqliteDatabase, tmp_path: Path, reading: str, change: str
) -> None:
    statement, stays, stale = CHANGES[change]
    fill(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, CAST) as cold:
        cold.at["committed"] = lambda: sqlite_database.execute(statement)
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, stale), done.message
        assert cold.hot() == stays
        assert cold.cold() == [n for n in range(1, ROWS + 1) if n not in stays]


def test_hashed_values_are_compared_as_they_were_copied(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    fill(sqlite_database, words="secret")
    checked = one_by_one(monkeypatch)
    hashed = CAST.replace('keep = "forever"', 'keep = "forever"\ntransform = {{ hash = ["words"] }}')
    with cold_keeper(sqlite_database, tmp_path, hashed) as cold:
        cold.at["committed"] = lambda: checked.append(0)
        assert cold.one().evicted == {"event": ROWS}
        assert checked == [0], "every row left with its range"
    assert "secret" not in str(cold.archived())


def test_a_database_without_a_log_is_read_over_the_connection(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reading: str
) -> None:
    fill(sqlite_database)
    sqlite_database.execute("PRAGMA journal_mode = delete")
    monkeypatch.delattr(RangeReader, "reading")
    with cold_keeper(sqlite_database, tmp_path, CAST) as cold:
        assert cold.one().evicted == {"event": ROWS}


def test_a_process_that_ends_takes_no_row_with_it(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch, ForkedExecutor)
    monkeypatch.setattr(range_take, "READ_APART", 0)
    fill(sqlite_database)
    start = RangeReader.start

    def started(self: RangeReader) -> None:
        start(self)
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)

    with cold_keeper(sqlite_database, tmp_path, CAST) as cold:
        with monkeypatch.context() as patch:
            patch.setattr(RangeReader, "start", started)
            failed = cold.one()
        assert (failed.outcome, "the process that reads" in failed.message) == (Outcome.FAILED, True)
        assert cold.hot() == cold.cold() == list(range(1, ROWS + 1))
        assert cold.one().outcome is Outcome.DONE
        assert cold.hot() == []


def test_an_answer_that_was_given_up_is_never_read(sqlite_database: SqliteDatabase) -> None:
    reader = RangeReader(sqlite_database.path, 30.0)
    reader.start()
    with pytest.raises(KeyError), reader.reading("SELECT 1 AS n"):
        raise KeyError
    assert not reader.started
    reader.start()
    with reader.reading("SELECT 2 AS n") as answer:
        assert answer() == pa.table({"n": [2]})
    with pytest.raises(StoreError, match="no such table"), reader.reading("SELECT * FROM nowhere") as answer:
        answer()
    assert not reader.started


def test_a_process_is_not_waited_for_forever(sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = RangeReader(sqlite_database.path, 30.0)
    reader.start()
    assert reader._process is not None
    os.kill(reader._process.pid, signal.SIGSTOP)
    monkeypatch.setattr(reader, "_seconds", 0.0)
    with pytest.raises(TimedOut), reader.reading("SELECT 1 AS n") as answer:
        answer()
    assert not reader.started


def test_what_the_transaction_deleted_is_still_read(sqlite_database: SqliteDatabase) -> None:
    fill(sqlite_database)
    reader = RangeReader(sqlite_database.path, 30.0)
    connection = sqlite_database.connect()
    try:
        reader.start()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM event")
        with reader.reading("SELECT count(*) AS n FROM event") as answer:
            assert answer()["n"].to_pylist() == [ROWS]
        connection.execute("COMMIT")
        with reader.reading("SELECT count(*) AS n FROM event") as answer:
            assert answer()["n"].to_pylist() == [0]
    finally:
        connection.close()
        reader.close()
