"""Columns whose names the archive's files cannot have, and columns that were renamed: rows come back under their own
names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from archive.cold import DAY_MS, OLD_MS, PACE, archived, cold_keeper
from servers import Database
from wane._archive.rows.names import ColumnNames, archived_name, column_name
from wane._prune.sweep import Outcome

CONTRACT = """
[store]
url = {url}
[archive]
url = "cold"
[archive.note]
keep = "KEEP"
RENAMED
[scheduler]
night = {{ every = "1h" }}
[table.note]
scheduler = "night"
why   = "a test"
time  = {{ column = "TIME", unit = "ms" }}
[table.note.rule.cold]
keep = "90d"
then = "archive"
[spark]
range_rows = 3
"""
ODD = ["unit price", "a=b;{{c}}", "größe", "1st", "we`ird", "_key", "100%25", "a.b"]


def contract(time: str, renamed: str = "", keep: str = "forever") -> str:
    return CONTRACT.replace("TIME", time).replace("RENAMED", renamed).replace("KEEP", keep)


def quoted(name: str) -> str:
    return f'"{name}"'


def test_rows_with_odd_names_are_archived_read_held_and_come_back(database: Database, tmp_path: Path) -> None:
    names = [name.format() for name in ODD]
    columns = ", ".join(f"{quoted(name)} text" for name in names)
    database.execute(f'CREATE TABLE note ("note id" bigint PRIMARY KEY, "at (ms)" bigint NOT NULL, {columns})')
    database.execute('CREATE INDEX note_due ON note ("at (ms)", "note id")')
    rows = [(n, OLD_MS + n * 1_000, *(f"{name} {n}" for name in names)) for n in range(1, 8)]
    database.executemany(f"INSERT INTO note VALUES ({', '.join('?' for _ in rows[0])})", rows)
    with cold_keeper(database, tmp_path, contract("at (ms)")) as cold:
        assert [one for one in cold.keeper.check() if one.severity.value == "error"] == []
        done = cold.one(strict=True)
        assert (done.outcome, done.evicted["note"]) == (Outcome.DONE, 7), done.message
        found = archived(tmp_path / "cold/note")
        assert {"note%20id", "at%20%28ms%29", "unit%20price", "a%3Db%3B%7Bc%7D", "größe", "%5Fkey"} <= found[0].keys()
        assert [one.problems for one in cold.keeper.archive.verify()] == [()]
        read = cold.keeper.archive.read("note", where="`unit price` = 'unit price 2' AND `note id` < 5")
        assert read.columns[:2] == ["note id", "at (ms)"]
        assert [row[: len(rows[0])] for row in read] == [rows[1]]
        assert list(cold.keeper.archive.read("note", where="`note id` > 5", columns=["größe"])) == [
            ("größe 6",),
            ("größe 7",),
        ]
        assert cold.keeper.hold("note", {"note id": 3}, reason="dispute").key is not None
        assert cold.keeper.archive.restore("note", where="`a=b;{c}` >= 'a'", pace=PACE).restored == {"note": 7}
        assert database.query('SELECT * FROM note ORDER BY "note id"') == rows


def test_a_renamed_column_that_the_contract_declares_is_one_column(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE note (id bigint PRIMARY KEY, at_ms bigint NOT NULL, body text)")
    database.execute("CREATE INDEX note_due ON note (at_ms, id)")
    database.executemany("INSERT INTO note VALUES (?, ?, ?)", [(n, OLD_MS - n * DAY_MS, "old") for n in (1, 2)])
    with cold_keeper(database, tmp_path, contract("at_ms")) as cold:
        assert cold.one().outcome is Outcome.DONE
    for change in ("body TO words", "at_ms TO made_ms"):
        database.execute(f"ALTER TABLE note RENAME COLUMN {change}")
    database.execute("INSERT INTO note VALUES (3, ?, 'new')", (OLD_MS,))
    declared = contract("made_ms", 'renamed = {{ words = "body", made_ms = "at_ms" }}')
    with cold_keeper(database, tmp_path, declared) as cold:
        done = cold.one()
        assert (done.outcome, done.evicted["note"]) == (Outcome.DONE, 1), done.message
        rows = cold.keeper.archive.read("note", where="words IN ('old', 'new')", columns=["id", "words", "made_ms"])
        assert (rows.columns, sorted(rows)) == (
            ["id", "words", "made_ms"],
            [(1, "old", OLD_MS - DAY_MS), (2, "old", OLD_MS - 2 * DAY_MS), (3, "new", OLD_MS)],
        )
        assert {row["id"]: row["body"] for row in archived(tmp_path / "cold/note")} == {1: "old", 2: "old", 3: "new"}
        [status] = cold.keeper.archive.tables()
        assert {(one.column, one.renamed_from) for one in status.changes} == {("words", "body"), ("made_ms", "at_ms")}
        assert len(cold.keeper.audit(kind="archive_schema")) == 1
        assert cold.keeper.archive.restore("note", where="words = 'old'", pace=PACE).restored == {"note": 2}
        assert database.query("SELECT id, words FROM note ORDER BY id") == [(1, "old"), (2, "old")]


def compacted(folder: Path) -> list[dict[str, Any]]:
    """Return rows of the one file that a compaction wrote, in the order of the file."""
    [file] = folder.glob("_month=*/compact-*.parquet")
    return list(pq.ParquetFile(file).read().to_pylist())


@pytest.mark.frames_on_spark
@pytest.mark.parametrize("time", ["created.at", "created at", "we`ird"])
def test_compaction_sorts_by_a_time_and_a_key_of_any_name(database: Database, tmp_path: Path, time: str) -> None:
    database.execute(f'CREATE TABLE note ("note.id" bigint PRIMARY KEY, "{time}" bigint NOT NULL)')
    database.execute(f'CREATE INDEX note_due ON note ("{time}", "note.id")')
    with cold_keeper(database, tmp_path, contract(time)) as cold:
        # The later a sweep, the older its rows; ten rows have one time.
        for ids in (range(9, 13), range(3, 9), range(1, 3)):
            database.executemany("INSERT INTO note VALUES (?, ?)", [(n, OLD_MS + (n > 2) * 1_000) for n in ids])
            assert cold.one().outcome is Outcome.DONE
        [done] = cold.keeper.archive.compact()
        assert (done.outcome, done.rows, done.into) == (Outcome.DONE, 12, 1), done.message
        column = archived_name(time)
        found = [(row[column], row["note.id"]) for row in compacted(tmp_path / "cold/note")]
        assert found == [(OLD_MS + (n > 2) * 1_000, n) for n in range(1, 13)]
        assert [one.problems for one in cold.keeper.archive.verify()] == [()]


@pytest.mark.frames_on_spark
def test_compaction_sorts_by_a_time_that_was_renamed(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE note (id bigint PRIMARY KEY, at_ms bigint NOT NULL)")
    database.execute("CREATE INDEX note_due ON note (at_ms, id)")
    database.executemany("INSERT INTO note VALUES (?, ?)", [(n, OLD_MS - n) for n in range(1, 4)])
    with cold_keeper(database, tmp_path, contract("at_ms")) as cold:
        assert cold.one().outcome is Outcome.DONE
    database.execute("ALTER TABLE note RENAME COLUMN at_ms TO made_ms")
    database.executemany("INSERT INTO note VALUES (?, ?)", [(n, OLD_MS - n) for n in range(4, 12)])
    with cold_keeper(database, tmp_path, contract("made_ms", 'renamed = {{ made_ms = "at_ms" }}')) as cold:
        assert cold.one().outcome is Outcome.DONE
        [done] = cold.keeper.archive.compact()
        assert done.outcome is Outcome.DONE, done.message
        assert [row["id"] for row in compacted(tmp_path / "cold/note")] == list(range(11, 0, -1))


@pytest.mark.frames_on_spark
def test_compaction_sorts_followers_by_the_rows_that_they_left_with(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE note (id bigint PRIMARY KEY, at_ms bigint NOT NULL)")
    database.execute('CREATE TABLE part (id bigint PRIMARY KEY, "note.id" bigint NOT NULL REFERENCES note (id))')
    database.execute("CREATE INDEX note_due ON note (at_ms, id)")
    database.execute('CREATE INDEX part_note ON part ("note.id")')
    database.executemany("INSERT INTO note VALUES (?, ?)", [(n, OLD_MS) for n in range(8, 12)])
    database.executemany("INSERT INTO part VALUES (?, ?)", [(n, 8 + n // 4) for n in range(3, 15)])
    follows = contract("at_ms").replace(
        'then = "archive"', 'then = "archive"\nwith = [{{ table = "part", columns = "note.id" }}]'
    )
    with cold_keeper(database, tmp_path, follows) as cold:
        assert cold.one().outcome is Outcome.DONE
        assert {one.outcome for one in cold.keeper.archive.compact()} == {Outcome.DONE}
        found = [(row["note.id"], row["id"]) for row in compacted(tmp_path / "cold/part")]
        assert found == [(8 + n // 4, n) for n in range(3, 15)]


def test_a_rename_that_is_declared_too_late_is_refused(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE note (id bigint PRIMARY KEY, at_ms bigint NOT NULL, body text)")
    database.execute("CREATE INDEX note_due ON note (at_ms, id)")
    for number, rename in ((1, "body TO words"), (2, None), (3, None)):
        database.execute("INSERT INTO note VALUES (?, ?, 'x')", (number, OLD_MS))
        late = contract("at_ms", 'renamed = {{ words = "body" }}' if number == 3 else "")
        with cold_keeper(database, tmp_path, late) as cold:
            done = cold.one()
            late_message = "were archived with words before" in done.message
            assert (done.outcome is Outcome.DONE, late_message) == (number < 3, number == 3), done.message
        if rename is not None:
            database.execute(f"ALTER TABLE note RENAME COLUMN {rename}")
    assert database.query("SELECT id FROM note") == [(3,)]


@given(st.text(alphabet="%20a =", min_size=1) | st.text(min_size=1))
@example("a%20b")
def test_a_name_of_the_archive_belongs_to_one_column(name: str) -> None:
    assert column_name(archived_name(name)) == name
    assert not set(archived_name(name)) & set(" ,;{}()\n\t=")
    assert archived_name(name).lower() != "_key"


def test_conditions_are_written_with_the_names_of_the_archive() -> None:
    names = ColumnNames({"words": "body", "day": "when"})
    known = ["body", "when", "unit%20price", "id"]
    for requested, written in {
        "words = 'words' AND id = 1": "`body` = 'words' AND id = 1",
        "upper(WORDS) = 'X'": "upper(`body`) = 'X'",
        "`unit price` > 2 OR `day` IS NULL": "`unit%20price` > 2 OR `when` IS NULL",
        "id = 1": "id = 1",
        "words = 1 /* x */": "words = 1 /* x */",
    }.items():
        assert names.condition(requested, known) == written
