"""Columns that are dropped, renamed, added or given another type: archiving goes on, and every value stays under its
column's name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from archive.cold import OLD_MS, PACE, Cold, archived, cold_keeper
from servers import Database, PostgresDatabase
from wane._archive.delta.evolution import wider
from wane._archive.model import Restored
from wane._archive.rows.types import RESERVED
from wane._cli import app
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError
from wane.events import ArchiveColumnChanged

CONTRACT = """
[store]
url = {url}
[archive]
url = "cold"
[archive.note]
keep = "forever"
[scheduler]
night = {{ every = "1h" }}
[table.note]
scheduler = "night"
why   = "a test"
time  = {{ column = "at_ms", unit = "ms" }}
[table.note.rule.cold]
keep = "90d"
then = "archive"
[spark]
range_rows = 60
"""


def notes(database: Database, columns: str = "body text, size integer") -> None:
    database.execute(f"CREATE TABLE note (id bigint PRIMARY KEY, at_ms bigint NOT NULL, {columns})")
    database.execute("CREATE INDEX note_due ON note (at_ms, id)")


def insert(database: Database, first: int, rows: int, **values: object) -> None:
    names = ", ".join(["id", "at_ms", *values])
    marks = ", ".join("?" for _ in range(2 + len(values)))
    database.executemany(
        f"INSERT INTO note ({names}) VALUES ({marks})",
        [(n, OLD_MS + n * 1_000, *values.values()) for n in range(first, first + rows)],
    )


def cold_rows(folder: Path, name: str = "cold/note") -> dict[int, dict[str, Any]]:
    """Return what others read, by id, without what the archive adds."""
    rows = archived(folder / name)
    found = {row["id"]: {name: value for name, value in row.items() if name not in RESERVED} for row in rows}
    assert len(found) == len(rows), "a row is archived twice"
    return found


def back(cold: Cold, **options: Any) -> Restored:
    return cold.keeper.archive.restore("note", pace=PACE, **options)


@contextmanager
def swept(database: Database, folder: Path, rows: int) -> Iterator[Cold]:
    """Yield a keeper that has bound the table as it is now, after its sweep."""
    with cold_keeper(database, folder, CONTRACT) as cold:
        done = cold.one()
        assert (done.outcome, done.archived["note"], done.evicted["note"]) == (Outcome.DONE, rows, rows), done.message
        yield cold


def test_rows_after_a_dropped_a_renamed_and_an_added_column_join_the_rows_before(
    database: Database, tmp_path: Path
) -> None:
    notes(database)
    insert(database, 1, 3, body="old", size=7)
    with swept(database, tmp_path, 3):
        pass
    database.execute("ALTER TABLE note DROP COLUMN size")
    database.execute("ALTER TABLE note RENAME COLUMN body TO words")
    database.execute("ALTER TABLE note ADD COLUMN rank integer")
    insert(database, 4, 2, words="new", rank=1)
    with swept(database, tmp_path, 2) as cold:
        found = cold_rows(tmp_path)
        assert {name: found[1][name] for name in ("body", "size", "words", "rank")} == {
            "body": "old",
            "size": 7,
            "words": None,
            "rank": None,
        }
        assert {name: found[4][name] for name in ("body", "size", "words", "rank")} == {
            "body": None,
            "size": None,
            "words": "new",
            "rank": 1,
        }
        [status] = cold.keeper.archive.tables()
        kinds = {(one.column, one.was is None, one.now is None) for one in status.changes}
        assert kinds == {
            ("body", False, True),
            ("size", False, True),
            ("words", True, False),
            ("rank", True, False),
        }
        assert {one.sweep for one in status.changes} == {cold.keeper.archive.status()[0].id}
        [entry] = cold.keeper.audit(kind="archive_schema")
        assert len(entry.inputs["changes"]) == 4
        reported = [one for one in cold.events if isinstance(one, ArchiveColumnChanged)]
        assert {(one.column, one.change) for one in reported} == {
            ("body", "dropped"),
            ("size", "dropped"),
            ("words", "added"),
            ("rank", "added"),
        }
        assert [proof.problems for proof in cold.keeper.archive.verify()] == [()]
        rows = list(cold.keeper.archive.read("note", where="body = 'old'", columns=["id", "words"]))
        assert sorted(rows) == [(1, None), (2, None), (3, None)]
    insert(database, 6, 1, words="later")
    with swept(database, tmp_path, 1) as cold:
        assert len(cold.keeper.audit(kind="archive_schema")) == 1, "a change is recorded once"
    shown = CliRunner().invoke(app, ["archive", "ls", "--contract", str(tmp_path / "wane.toml")])
    assert "body was dropped, later rows have NULL, since sweep 2" in " ".join(shown.output.split()), shown.output
    listed = CliRunner().invoke(app, ["archive", "ls", "--json", "--contract", str(tmp_path / "wane.toml")])
    assert {one["column"] for one in json.loads(listed.stdout)["items"][0]["changes"]} == {
        "body",
        "size",
        "words",
        "rank",
    }


WIDENED = [
    ("smallint", "integer", 7, 70_000),
    ("integer", "bigint", 7, 2**40),
    ("real", "double precision", 0.1, 0.1),
    ("numeric(6,2)", "numeric(20,2)", "1234.56", "123456789012.25"),
    ("varchar(5)", "text", "short", "longer than five"),
    ("bigint", "integer", 2**40, 7),
]


@pytest.mark.parametrize(("before", "after", "old", "new"), WIDENED, ids=[f"{one[0]}-{one[1]}" for one in WIDENED])
def test_a_type_that_holds_the_other_takes_over_and_every_reader_reads_all_rows(
    postgres_database: PostgresDatabase, tmp_path: Path, before: str, after: str, old: Any, new: Any
) -> None:
    database = postgres_database
    notes(database, f"v {before}")
    insert(database, 1, 2, v=old)
    were: dict[int, Any] = dict(database.query("SELECT id, v FROM note"))
    with swept(database, tmp_path, 2):
        pass
    database.execute(f"ALTER TABLE note ALTER COLUMN v TYPE {after}")
    insert(database, 3, 2, v=new)
    were |= dict(database.query("SELECT id, v FROM note"))
    expected = {n: pytest.approx(v, rel=1e-6) if "real" in before else v for n, v in were.items()}
    with swept(database, tmp_path, 2) as cold:
        assert {n: row["v"] for n, row in cold_rows(tmp_path).items()} == expected
        assert [proof.problems for proof in cold.keeper.archive.verify()] == [()]
        assert dict(cold.keeper.archive.read("note", columns=["id", "v"])) == expected
        assert len(list(cold.keeper.archive.read("note", where="id >= 2", columns=["v"]))) == 3
        folder = str(tmp_path / "cold/note")
        by_polars = polars.scan_delta(folder).select("id", "v").collect()
        assert dict(by_polars.iter_rows()) == expected
        by_pandas: pd.DataFrame = DeltaTable(folder).to_pandas()
        assert dict(zip(by_pandas["id"], by_pandas["v"], strict=True)) == expected
        rows = DeltaTable(folder).to_pyarrow_dataset()
        assert rows is not None
        by_duckdb = duckdb.sql("SELECT id, v FROM rows")
        assert by_duckdb is not None
        assert dict(by_duckdb.fetchall()) == expected
        if before != "bigint":
            assert back(cold, where="id > 0").restored == {"note": 4}
            assert dict(database.query("SELECT id, v FROM note")) == expected
            assert cold.archived("note") == []
        else:
            done = back(cold, where="id > 0")
            assert (done.restored, done.unrestored) == ({"note": 2}, 2)
            assert "out of range" in done.reasons[0][1]
            assert sorted(row["id"] for row in cold.archived("note")) == [1, 2]


def test_a_type_that_no_column_holds_beside_the_old_one_is_refused_before_anything_moves(
    database: Database, tmp_path: Path
) -> None:
    notes(database)
    insert(database, 1, 2, body="text", size=1)
    with swept(database, tmp_path, 2):
        pass
    database.execute("ALTER TABLE note DROP COLUMN body")
    database.execute("ALTER TABLE note ADD COLUMN body integer")
    insert(database, 3, 1, body=5)
    with cold_keeper(database, tmp_path, CONTRACT) as cold:
        done = cold.one()
        assert done.outcome is Outcome.FAILED
        assert "note.body is now" in done.message
        assert "no column holds both" in done.message
        with pytest.raises(ArchiveError, match="its archive holds string"):
            back(cold, where="id = 1")
    assert sorted(cold_rows(tmp_path)) == [1, 2]
    database.execute("ALTER TABLE note RENAME COLUMN body TO number")
    with swept(database, tmp_path, 1):
        assert cold_rows(tmp_path)[3]["number"] == 5


def test_a_column_that_differs_from_a_dropped_one_by_case_only_is_refused(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    notes(postgres_database)
    insert(postgres_database, 1, 1, body="x")
    with swept(postgres_database, tmp_path, 1):
        pass
    postgres_database.execute('ALTER TABLE note RENAME COLUMN body TO "Body"')
    insert(postgres_database, 2, 1, size=1)
    with cold_keeper(postgres_database, tmp_path, CONTRACT) as cold:
        assert "by case only" in cold.one().message
        assert cold.hot("note") == [2]


def test_a_row_with_a_value_of_a_dropped_column_comes_back_and_its_copy_stays(
    database: Database, tmp_path: Path
) -> None:
    notes(database)
    insert(database, 1, 2, body="only here", size=1)
    insert(database, 3, 2, size=2)
    with swept(database, tmp_path, 4):
        pass
    database.execute("ALTER TABLE note DROP COLUMN body")
    with cold_keeper(database, tmp_path, CONTRACT) as cold:
        would = back(cold, where="id > 1", dry_run=True)
        assert would.left_out == {"note.body": 1}
        done = back(cold, where="id > 1")
        assert (done.restored, done.left_out, done.unrestored) == ({"note": 3}, {"note.body": 1}, 0)
        assert database.query("SELECT id, size FROM note ORDER BY id") == [(2, 1), (3, 2), (4, 2)]
        assert {n: row["body"] for n, row in cold_rows(tmp_path).items()} == {1: "only here", 2: "only here"}
        repeated = back(cold, where="id = 2")
        assert (repeated.existing, repeated.left_out) == (1, {"note.body": 1})
        assert sorted(cold_rows(tmp_path)) == [1, 2], "what is nowhere else stays"


def test_a_restore_that_goes_on_leaves_out_the_columns_that_it_began_without(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wane._archive.restore import restore as restoring

    notes(database)
    insert(database, 1, 2, body="only here", size=1)
    with swept(database, tmp_path, 2):
        pass
    database.execute("ALTER TABLE note DROP COLUMN body")
    with cold_keeper(database, tmp_path, CONTRACT) as cold, monkeypatch.context() as patch:
        patch.setattr(restoring._Restore, "_remove", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            back(cold, where="id = 1")
    database.execute("ALTER TABLE note ADD COLUMN body text")
    with cold_keeper(database, tmp_path, CONTRACT) as cold:
        back(cold, where="id = 1")
        assert database.query("SELECT id, body FROM note") == [(1, None)]
        assert cold_rows(tmp_path)[1]["body"] == "only here"


def test_rows_without_a_value_that_every_row_needs_do_not_come_back(database: Database, tmp_path: Path) -> None:
    notes(database)
    insert(database, 1, 2, body="x", size=1)
    with swept(database, tmp_path, 2):
        pass
    if database.store == "sqlite":  # Which adds no such column, so the table is made anew.
        database.execute("DROP TABLE note")
        notes(database, "body text, size integer, rank integer NOT NULL")
    else:
        database.execute("ALTER TABLE note ADD COLUMN rank integer NOT NULL")
    with cold_keeper(database, tmp_path, CONTRACT) as cold:
        with pytest.raises(ArchiveError, match=r"have no value of note\.rank, which every row needs"):
            back(cold, where="id = 1")
        assert sorted(cold_rows(tmp_path)) == [1, 2]
        assert cold.hot("note") == []


def test_wider_is_one_of_both_and_symmetric() -> None:
    kinds = [
        "short",
        "integer",
        "long",
        "float",
        "double",
        "string",
        "date",
        "decimal(6,2)",
        "decimal(8,2)",
        "decimal(8,4)",
    ]
    for one in kinds:
        assert wider(one, one) == one
        for other in kinds:
            assert wider(one, other) == wider(other, one)
            assert wider(one, other) in (one, other, None)
    assert wider("decimal(6,2)", "decimal(8,2)") == "decimal(8,2)"
    for refused in (("long", "double"), ("decimal(8,2)", "decimal(8,4)"), ("string", "long"), ("date", "timestamp")):
        assert wider(*refused) is None


STEPS = st.lists(st.sampled_from(["add", "drop", "rename", "archive", "restore"]), min_size=3, max_size=9)


@pytest.mark.timeout(600)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=8)
@given(steps=STEPS, data=st.data())
def test_no_sequence_of_changes_loses_a_value_of_any_column(
    database: Database, tmp_path_factory: pytest.TempPathFactory, steps: list[str], data: st.DataObject
) -> None:
    """Every value that a row ever had under a column's name is hot under that name, or archived under it, unless its
    hot column was dropped."""
    folder = tmp_path_factory.mktemp("evolve")
    database.reset()
    notes(database, "c0 text")
    columns, made, rows = ["c0"], 1, 0
    ever: dict[tuple[int, str], str] = {}

    def values(row: dict[str, Any]) -> dict[tuple[int, str], str]:
        return {(row["id"], one): value for one, value in row.items() if one.startswith("c") and value is not None}

    for step in [*steps, "archive"]:
        if step == "add":
            database.execute(f"ALTER TABLE note ADD COLUMN c{made} text")
            columns.append(f"c{made}")
            made += 1
        elif step in ("drop", "rename") and columns:
            name = data.draw(st.sampled_from(columns))
            hot: dict[int, str] = dict(database.query(f"SELECT id, {name} FROM note WHERE {name} IS NOT NULL"))
            for n in hot:
                if not _is_archived(folder, n, name):
                    del ever[n, name]
            columns.remove(name)
            if step == "drop":
                database.execute(f"ALTER TABLE note DROP COLUMN {name}")
            else:
                database.execute(f"ALTER TABLE note RENAME COLUMN {name} TO c{made}")
                ever |= {(n, f"c{made}"): value for n, value in hot.items()}
                columns.append(f"c{made}")
                made += 1
        with cold_keeper(database, folder, CONTRACT) as cold:
            if step == "archive":
                rows += 1
                given = {name: f"{name} of {rows}" for name in columns}
                insert(database, rows, 1, **given)
                ever |= {(rows, name): value for name, value in given.items()}
                assert cold.one().outcome is Outcome.DONE
            elif step == "restore" and (folder / "cold").exists():
                back(cold, where="id > 0", on_conflict="skip", protect=None)
        found: dict[tuple[int, str], str] = {}
        for row in archived(folder / "cold/note"):
            found |= values(row)
        listed = ", ".join(["id", *columns])
        for hot_row in database.query(f"SELECT {listed} FROM note"):
            found |= values(dict(zip(["id", *columns], hot_row, strict=True)))
        assert {one: value for one, value in ever.items() if found.get(one) != value} == {}, step


def _is_archived(folder: Path, number: int, name: str) -> bool:
    return any(row["id"] == number and row.get(name) is not None for row in archived(folder / "cold/note"))


@pytest.mark.frames_on_spark
def test_spark_queries_compacts_and_restores_files_with_older_columns(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    database = postgres_database
    notes(database, "body text, size integer, share real, price numeric(6,2)")
    insert(database, 1, 2, body="old", size=7, share=0.5, price="1.25")
    with swept(database, tmp_path, 2):
        pass
    for change in (
        "DROP COLUMN body",
        "ALTER COLUMN size TYPE bigint",
        "ALTER COLUMN share TYPE double precision",
        "ALTER COLUMN price TYPE numeric(20,2)",
    ):
        database.execute(f"ALTER TABLE note {change}")
    insert(database, 3, 2, size=2**40, share=0.1, price="1234567.25")
    with swept(database, tmp_path, 2) as cold:
        archive = cold.keeper.archive
        before = cold_rows(tmp_path)
        frame = archive.query("note", where="size >= 7 AND price > 1", columns=["id", "size"])
        assert sorted(map(tuple, frame.collect())) == [(1, 7), (2, 7), (3, 2**40), (4, 2**40)]
        assert len(list(archive.read("note", where="share < 1", spark=True))) == 4
        [compacted] = archive.compact()
        assert (compacted.outcome, compacted.into) == (Outcome.DONE, 1), compacted.message
        assert cold_rows(tmp_path) == before
        done = back(cold, where="id IN (2, 3)")
        assert (done.restored, done.left_out) == ({"note": 2}, {"note.body": 1})
        assert database.query("SELECT id, size, share FROM note ORDER BY id") == [(2, 7, 0.5), (3, 2**40, 0.1)]
        assert sorted(cold_rows(tmp_path)) == [1, 2, 4]
