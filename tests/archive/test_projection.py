"""What Spark's SQL makes of rows on the way to the archive: evaluated over one snapshot, proven after it, refused if it
is more than that."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from archive.cold import CONTRACT, DAY_MS, OLD_MS, PACE, STAYING, Cold, cold_keeper, events
from servers import Database, SqliteDatabase
from wane._archive.rows import content
from wane._archive.rows.sql import ArchivedPart, ArchiveRows
from wane._archive.rows.types import Stored
from wane._cli import app
from wane._prune.sweep import Outcome
from wane.errors import WrongArgument

SELECT = ["id", "status", "at_ms", "upper(body) AS title", "amount * 2 AS double", "md5(`body`) AS hashed"]
NOTES = """
[store]
url = {url}
[archive]
url = "cold"
[archive.note]
keep = "365d"
transform = {{ select = SELECT }}
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
range_rows = 6
"""


def written(select: list[str]) -> str:
    return str(select).replace("{", "{{").replace("}", "}}")


def contract(select: list[str]) -> str:
    return CONTRACT.replace(
        'keep = "forever"\n', f'keep = "forever"\ntransform = {{{{ select = {written(select)} }}}}\n'
    ).replace("range_rows = 60", "range_rows = 10")


def notes(database: Database, rows: int = 14) -> None:
    database.execute("CREATE TABLE note (id bigint PRIMARY KEY, at_ms bigint NOT NULL, body text, qty integer)")
    database.execute("CREATE INDEX note_due ON note (at_ms, id)")
    values = [(n, OLD_MS - n * DAY_MS * 10, None if n == 3 else f"body {n}", n) for n in range(1, rows + 1)]
    database.executemany("INSERT INTO note VALUES (?, ?, ?, ?)", values)


@pytest.mark.frames_on_spark
def test_the_archive_has_what_the_projection_makes_and_lives_on_without_the_way_back(
    database: Database, tmp_path: Path
) -> None:
    events(database, 25)
    rows = database.query("SELECT id, status, at_ms, body, amount FROM event WHERE id <= 25 ORDER BY id")
    with cold_keeper(database, tmp_path, contract(SELECT)) as cold:
        assert [one for one in cold.keeper.check() if one.severity.value == "error"] == []
        described = {"select": SELECT}
        [step] = cold.keeper.plan().steps
        assert step.transform == described
        cold.at["committed"] = lambda: database.execute("UPDATE event SET body = 'changed' WHERE id = 7")
        done = cold.one()
        assert (done.outcome, done.evicted["event"], done.stale) == (Outcome.DONE, 24, 1), done.message
        assert cold.hot() == [7, *STAYING]
        found = sorted(cold.archived(), key=lambda row: int(row["id"]))
        names = ("id", "status", "at_ms", "title", "double")
        assert [tuple(row[name] for name in names) for row in found] == [
            (key, status, at, body.upper(), 2 * amount) for key, status, at, body, amount in rows if key != 7
        ]
        assert {"body", "amount"}.isdisjoint(found[0])
        assert cold.cold("event_read") == sorted(10 * n + m for n in range(1, 26) if n != 7 for m in range(n % 3))
        entry = cold.keeper.audit(kind="archive")[0]
        assert entry.inputs["transform"] == described
        assert cold.keeper.archive.tables()[0].transform == described
        assert [one.problems for one in cold.keeper.archive.verify()] == [(), ()]
        frame = cold.keeper.archive.query("event", where="title LIKE 'BODY 1%'", columns=["id", "double"])
        assert sorted(row.id for row in frame.collect()) == [1, *range(10, 20)]
        [compacted, _] = cold.keeper.archive.compact(least_files=2)
        assert (compacted.outcome, compacted.files > compacted.into) == (Outcome.DONE, True), compacted.message
        cold.keeper.hold("event", {"id": 9}, reason="dispute")
        with pytest.raises(WrongArgument, match=r"transformed on the way .*select id, status, at_ms, upper\(body\) AS"):
            cold.keeper.archive.restore("event", where="id = 1", pace=PACE)
    shown = CliRunner().invoke(app, ["check", "--show", "-c", str(tmp_path / "wane.toml")])
    assert "upper(body) AS title" in " ".join(shown.output.split()), shown.output
    counted = CliRunner().invoke(app, ["archive", "run", "--dry-run", "-c", str(tmp_path / "wane.toml")])
    assert "upper(body) AS title" in " ".join(counted.output.split()), counted.output


@pytest.mark.frames_on_spark
def test_rows_leave_by_range_expire_by_their_time_and_change_their_projection(
    database: Database, tmp_path: Path
) -> None:
    notes(database)
    first = NOTES.replace("SELECT", str(["id", "at_ms", "qty % 4 AS kind", "body"]))
    with cold_keeper(database, tmp_path, first) as cold:
        done = cold.one(strict=True)
        assert (done.outcome, done.evicted["note"], done.stale) == (Outcome.DONE, 14, 0), done.message
        assert {row["id"]: (row["kind"], row["body"]) for row in cold.archived("note")} == {
            n: (n % 4, None if n == 3 else f"body {n}") for n in range(1, 15)
        }
    database.execute("INSERT INTO note VALUES (20, ?, 'later', 100)", (OLD_MS,))
    second = first.replace("qty % 4 AS kind", "CAST(qty AS bigint) AS kind").replace('keep = "365d"', 'keep = "300d"')
    with cold_keeper(database, tmp_path, second) as cold:
        assert cold.one().outcome is Outcome.DONE
        assert {row["id"]: row["kind"] for row in cold.archived("note")}[20] == 100
        cold.keeper.archive.expire()
        assert cold.cold("note") == [1, 2, 3, 4, 5, 6, 7, 8, 9, 20]


@pytest.mark.frames_on_spark
def test_what_spark_refuses_or_cannot_compute_moves_nothing(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    notes(sqlite_database)
    wrong = {
        "upper(body AS title": "Spark refuses an expression",
        "upper(id, body) AS title": "Spark refuses an expression",
        "NULL AS nothing": "is void, which the archive has no type for",
        "CAST(id AS tinyint) AS small": "is byte, which the archive has no type for",
        "INTERVAL 1 day AS a_day": "which the archive has no type for",
    }
    for expression, message in wrong.items():
        with cold_keeper(sqlite_database, tmp_path, NOTES.replace("SELECT", str(["id", "at_ms", expression]))) as cold:
            [finding] = [one for one in cold.keeper.check() if one.code == "wrong-projection"]
            assert message in finding.message
            done = cold.one()
            assert (done.outcome, message in done.message) == (Outcome.FAILED, True), done.message
    unlucky = NOTES.replace("SELECT", str(["id", "at_ms", "CAST(substr(body, 6) AS int) / (qty - 9) AS share"]))
    with cold_keeper(sqlite_database, tmp_path, unlucky) as cold:
        assert [one for one in cold.keeper.check() if one.severity.value == "error"] == []
        done = cold.one()
        assert (done.outcome, "[DIVIDE_BY_ZERO]" in done.message) == (Outcome.FAILED, True), done.message
        assert len(cold.hot("note")) == 14
        assert cold.archived("note") == []


@pytest.mark.frames_on_spark
def test_a_value_that_spark_did_not_make_is_not_proven(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, NOTES.replace("SELECT", str(["id", "at_ms", "body"]))) as cold:
        cold.at["written"] = lambda: _change_a_value(cold, monkeypatch)
        done = cold.one()
        assert (done.outcome, "Spark's read-back of" in done.message) == (Outcome.FAILED, True), done.message
        assert len(cold.hot("note")) == 14
        assert cold.archived("note") == []


def _change_a_value(cold: Cold, patch: pytest.MonkeyPatch) -> None:
    """Change a file so that Arrow, which wrote it, does not notice."""
    path = min((cold.folder / "cold/note").glob("_month=*/*.parquet"))
    table, digest = pq.ParquetFile(path).read().combine_chunks(), content.content_digest
    changed = table.set_column(table.schema.get_field_index("body"), "body", pa.array(["x"] * len(table)))
    pq.write_table(changed, path, write_page_checksum=True)
    known = {digest(changed.combine_chunks()): digest(table)}
    patch.setattr(content, "content_digest", lambda read: known.get(digest(read), digest(read)))


@pytest.mark.frames_on_spark
def test_rows_that_are_read_otherwise_than_the_database_has_them_are_not_projected(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes(sqlite_database, 3)
    read = ArchiveRows._selected

    def misread(rows: ArchiveRows, part: ArchivedPart, stored: Stored, name: str) -> tuple[str, str, str]:
        return ("'x'", name, "string") if name == "body" else read(rows, part, stored, name)

    monkeypatch.setattr(ArchiveRows, "_selected", misread)
    with cold_keeper(sqlite_database, tmp_path, NOTES.replace("SELECT", str(["id", "at_ms", "body"]))) as cold:
        done = cold.one()
        assert (done.outcome, "other rows of note were read" in done.message) == (Outcome.FAILED, True), done.message
        assert cold.hot("note") == [1, 2, 3]


REFUSED = {
    "bodi": ("missing-column", "no column bodi"),
    "upper(bodi) AS b": ("missing-column", "no column bodi"),
    "upper(body)": ("wrong-projection", "without a name"),
    "max(body) AS b": ("wrong-projection", "max() is not allowed"),
    "rand() AS b": ("wrong-projection", "rand() is not allowed"),
    "uuid() AS b": ("wrong-projection", "uuid() is not allowed"),
    "explode(body) AS b": ("wrong-projection", "explode() is not allowed"),
    "row_number() OVER (ORDER BY id) AS b": ("wrong-projection", "row_number() is not allowed"),
    "(SELECT 1) AS b": ("wrong-projection", "select is not allowed"),
    "mine(body) AS b": ("wrong-projection", "mine() is not allowed"),
    "current_timestamp AS b": ("wrong-projection", "current_timestamp is not allowed"),
    "now() AS b": ("wrong-projection", "now is not allowed"),
    "CAST('today' AS date) AS b": ("wrong-projection", "'today' is not allowed"),
    "*": ("wrong-projection", "without a name"),
    "body /* x */ AS b": ("wrong-projection", "a comment is not allowed"),
    "body AS at_ms": ("wrong-projection", "names at_ms twice"),
}


def test_what_may_do_more_than_read_its_row_is_refused_without_spark(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    notes(sqlite_database)
    for expression, (code, message) in REFUSED.items():
        with cold_keeper(sqlite_database, tmp_path, NOTES.replace("SELECT", str(["id", "at_ms", expression]))) as cold:
            found = [one for one in cold.keeper.check() if one.severity.value == "error"]
            assert [(one.code, message in one.message) for one in found[:1]] == [(code, True)], (expression, found)
            assert cold.one().outcome is Outcome.FAILED
    for select, lost in ((["at_ms"], "id"), (["id", "at_ms + 1 AS at_ms"], "at_ms"), (["id AS key", "at_ms"], "id")):
        with cold_keeper(sqlite_database, tmp_path, NOTES.replace("SELECT", str(select))) as cold:
            [finding] = [one for one in cold.keeper.check() if one.severity.value == "error"]
            assert (finding.code, f"must have note.{lost} as it is" in finding.message) == ("transformed-key", True)
    assert len(sqlite_database.query("SELECT id FROM note")) == 14
