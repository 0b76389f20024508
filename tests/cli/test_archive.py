"""`wane archive` on the command line: what it prints, and how it exits."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from archive.cold import CONTRACT, events
from archive.test_expire import EXPIRING, GOING, old_events
from cli.conftest import Wane
from servers import SqliteDatabase

pytestmark = pytest.mark.group("spark")


@pytest.fixture
def shop(sqlite_database: SqliteDatabase, folder: Path) -> SqliteDatabase:
    """Return a small database with its contract as ./wane.toml."""
    events(sqlite_database, 30)
    (folder / "wane.toml").write_text(CONTRACT.format(url=f'"{sqlite_database.url}"'))
    return sqlite_database


def test_from_run_to_query(shop: SqliteDatabase, wane: Wane, folder: Path) -> None:
    wane("migrate")
    for words in (("status",), ("ls",), ("verify",)):
        assert "nothing was archived yet" in wane("archive", *words).err
    assert "nothing was restored" in wane("archive", "restores").err
    off = wane("archive", "run", "--json")
    assert (off.code, off.json["rules"][0]["outcome"]) == (4, "off")
    closed = "the master flag retention.enabled is off: `wane enable` turns it on"
    assert wane("archive", "run", "--dry-run", "--json").json["rules"][0]["closed"] == closed
    assert f"not moved now: {closed}\n" in wane("archive", "run", "--dry-run").err
    wane("enable")
    assert "event.cold: `wane archive run` moves these rows, `wane sweep` does not\n" in wane("plan").err
    why = wane("why", "event", "1").out
    assert "cold moves it to the archive with the next sweep of a worker or `wane archive run`\n" in why
    due = wane("archive", "run", "--dry-run")
    assert "not moved now" not in due.err
    assert (
        due.err.splitlines()[-1]
        == "a dry run: 30 rows would be archived, with their followers in event_read, nothing was changed"
    )
    done = wane("archive", "run", "--fast")
    assert done.code == 0, done.err
    assert "event.cold" in done.out
    assert "sweep 1 is committed" in done.err
    assert wane("archive", "status", "--json").json[0]["state"] == "done"
    assert "event.cold" in wane("archive", "status", "event").out
    [rows, reads] = wane("archive", "ls", "--json").json
    assert (rows["table"], rows["rows"], reads["rows"]) == ("event", 30, 30)
    assert "event_read" in wane("archive", "ls").out
    checked = wane("archive", "verify")
    assert checked.code == 0
    assert "event: 30 rows" in checked.out
    assert checked.err.endswith("verified: 2 tables, every file as the log has it\n")
    recorded = [one["inputs"] for one in wane("audit", "list", "--json").json if one["kind"] == "action"]
    assert [(one["action"], one["problems"]) for one in recorded] == [("archive verify", 0)] * 2
    requested = wane("archive", "query", "event", "--where", "id < 4", "--columns", "id, body", "--json")
    assert sorted(row["id"] for row in requested.json) == [1, 2, 3]
    assert "starting Spark" not in checked.err + requested.err
    for options in ("--columns id,body,_month --json", "--format csv --limit 30"):
        plain, spark = (wane("archive", "query", "event", *(options + extra).split()) for extra in ("", " --spark"))
        assert plain.out == spark.out
    read = list(csv.DictReader(io.StringIO(wane("archive", "query", "event", "--limit", "5", "--format", "csv").out)))
    assert len(read) == 5
    for options in ("--limit 29", "--limit 29 --json", "--format csv"):
        assert "there are more, --limit shows them" in wane("archive", "query", "event", *options.split()).err
    assert "there are more" not in wane("archive", "query", "event", "--limit", "30").err
    assert "body 7" in wane("archive", "query", "event", "--where", "id = 7").out
    written = wane("archive", "query", "event", "--format", "parquet", "--out", folder / "some.parquet")
    assert (written.code, pq.read_metadata(folder / "some.parquet").num_rows) == (0, 30)
    assert written.err == f"30 rows written to {folder / 'some.parquet'}\n"
    part = ["--limit", "7", "--format", "parquet", "--out", "part.parquet"]
    assert "the first 7 rows: there are more" in wane("archive", "query", "event", *part).err
    assert pq.read_metadata(folder / "part.parquet").num_rows == 7
    assert [one.name for one in folder.iterdir() if one.name.startswith(".some")] == []
    none = wane("archive", "query", "event", "--where", "id < 0", "--format", "parquet", "--out", folder / "none")
    assert (none.code, pq.read_metadata(folder / "none").num_rows) == (0, 0)
    assert wane("archive", "query", "event", "--where", "id < 0", "--json").json == []
    unsound = wane("archive", "query", "event", "--where", "cast(body AS int) = 1")
    assert (unsound.code, "the archive condition failed" in unsound.err) == (1, True)
    would = wane("archive", "restore", "event", "--where", "id <= 4", "--dry-run")
    assert (would.code, "would come back" in would.out) == (0, True)
    assert would.err.splitlines()[-1] == "a dry run: 8 rows would come back, nothing was changed"
    back = wane("archive", "restore", "event", "--key", "id=1", "--key", "id=2", "--protect", "2d", "--fast", "--json")
    assert (back.code, back.json["restored"]) == (0, {"event": 2, "event_read": 3})
    assert len(wane("hold", "list", "--json").json) == 5
    shop.execute("UPDATE event SET body = 'another' WHERE id = 1")
    shop.execute("INSERT INTO event VALUES (3, 'done', 5, 'another', NULL)")
    refused = wane("archive", "restore", "event", "--run", "archive-1")
    assert (refused.code, "other rows have their keys" in refused.err) == (1, True)
    skipped = wane("archive", "restore", "event", "--run", "1", "--on-conflict", "skip", "--protect", "0", "--fast")
    assert (skipped.code, "1 row stays in the archive" in skipped.err) == (0, True)
    assert "3 rows" not in skipped.err
    side = wane("archive", "restore", "event", "--where", "id = 3", "--into", "side")
    assert (side.code, "in the archive still" in side.err) == (0, True)
    assert shop.query("SELECT id FROM side") == [(3,)]
    gone = wane("archive", "restore", "event", "--key", "id=1")
    assert (gone.code, "the archive has no such row" in gone.err) == (1, True)
    some = wane("archive", "restore", "event", "--key", "id=3", "--key", "id=1", "--dry-run", "--on-conflict", "skip")
    assert (some.code, "the archive has no row for 1 key" in some.err) == (1, True)
    assert wane("archive", "restore", "event", "--where", "id < 0").code == 4
    listed = wane("archive", "restores", "event", "--json").json
    assert [(one["id"], one["state"], one["into"], one["chosen"], one["unrestored"]) for one in listed] == [
        (3, "done", "side", 1, 0),
        (2, "done", None, 28, 1),
        (1, "done", None, 2, 0),
    ]
    assert (listed[2]["restored"], listed[2]["inputs"]["keys"]) == (back.json["restored"], [{"id": "1"}, {"id": "2"}])
    assert "event into side" in wane("archive", "restores").out
    assert len(wane("archive", "restores", "--limit", "1", "--json").json) == 1
    counted = wane("archive", "survey", "--json").json
    assert {(one["table"], one["tier"], one["rows"]) for one in counted} == {
        ("event", "hot", 33),
        ("event_read", "hot", 30),
        ("event", "archive", 1),
        ("event_read", "archive", 0),
    }
    drawn = wane("archive", "survey", "event", "--months")
    assert (drawn.code, "█" in drawn.out, "to 5M" in drawn.out) == (0, True, True)
    damaged = Path(DeltaTable(str(folder / "cold" / "event")).file_uris()[0])
    damaged.write_bytes(damaged.read_bytes()[:-1])
    broken = wane("archive", "verify", "event")
    assert broken.code == 1
    assert str(damaged) in broken.err.replace("\n", "")
    assert "not verified: 1 problem; restore the files from a backup\n" in broken.err


def test_a_damaged_log_is_an_error_and_repair_names_its_table(shop: SqliteDatabase, wane: Wane, folder: Path) -> None:
    wane("migrate")
    wane("enable")
    assert wane("archive", "run", "--fast").code == 0
    whole = wane("archive", "repair")
    assert (whole.code, whole.out) == (0, "event, event_read: no commit is missing\n")
    entry = max((folder / "cold" / "event_read" / "_delta_log").glob("*.json"))
    entry.write_text("damaged")
    broken = wane("archive", "verify")
    assert (broken.code, broken.out) == (1, "event: 30 rows in 1 file\n")
    assert broken.err.startswith("error: the log of ")
    assert "event_read cannot be read" in broken.err.replace("\n", "")
    assert "`wane archive repair` writes it anew" in broken.err.replace("\n", " ")
    assert broken.err.endswith("not verified: 1 problem\n")
    mended = wane("archive", "repair")
    assert (mended.code, mended.out.split(":")[:2]) == (0, ["event_read", " 1 commit was missing"])
    assert wane("archive", "verify").code == 0


def test_mistakes_are_reported(shop: SqliteDatabase, wane: Wane, folder: Path) -> None:
    wane("migrate")
    wane("enable")
    (folder / "cold").write_text("a file")
    failed = wane("archive", "run")
    assert failed.code == 1
    assert "cannot be" in failed.err
    assert wane("archive", "run", "nothing").code == 1
    (folder / "cold").unlink()
    empty = wane("archive", "query", "event")
    assert empty.code == 1
    assert "nothing of event is archived yet" in empty.err
    assert wane("archive", "query", "event", "--format", "parquet").code == 2
    assert wane("archive", "query", "event", "--out", folder / "x").code == 2
    assert wane("archive", "query", "event", "--format", "parquet", "--out", folder / "no" / "x").code == 2
    assert wane("archive", "query", "event", "--limit", "20000").code == 2
    for wrong in (
        (),
        ("--where", "id = 1", "--run", "1"),
        ("--run", "x"),
        ("--key", "5"),
        ("--where", "id = 1", "--protect", "soon"),
    ):
        assert wane("archive", "restore", "event", *wrong).code == 2
    nothing = wane("archive", "restore", "event", "--where", "id = 1")
    assert (nothing.code, "nothing of event is archived yet" in nothing.err) == (1, True)
    assert wane("archive", "restore", "event_read", "--where", "id = 1").code == 1
    assert wane("archive", "survey", "evnt").code == 1


@pytest.mark.sampled
def test_from_expire_to_tidy(sqlite_database: SqliteDatabase, wane: Wane, folder: Path) -> None:
    old_events(sqlite_database)
    (folder / "wane.toml").write_text(EXPIRING.format(url=f'"{sqlite_database.url}"'))
    wane("migrate")
    wane("enable")
    assert wane("archive", "run", "--fast").code == 0
    held = wane("hold", "add", "event", "--key", "id=3", "--reason", "a test")
    assert held.code == 0, held.err
    shown = wane("archive", "expire", "--dry-run")
    assert "event_read" in shown.out
    gone = sum(int(line.split()[2]) for line in shown.out.splitlines()[1:])
    assert shown.err.splitlines()[-1] == f"a dry run: {gone} rows would be deleted for good, nothing was changed"
    assert wane("archive", "expire", "--dry-run", "--json").json[0]["dry_run"] is True
    [done] = wane("archive", "expire", "--json").json
    assert (done["outcome"], sum(done["rows"]["event"].values())) == ("done", len(GOING) - 1)
    trail = wane("audit", "list", "--kind", "archive_expire", "--json").json
    assert sum(entry["counts"]["event"] for entry in trail) == len(GOING) - 1
    repeated = wane("archive", "expire")
    assert (repeated.code, "event" in repeated.out) == (0, False)
    assert repeated.err.splitlines()[-1] == "0 rows were deleted for good"
    [rows, _] = wane("archive", "compact", "--json").json
    assert rows["outcome"] == "done"
    none = wane("archive", "compact", "--dry-run", "--files", "50")
    assert "event_read" in none.out
    assert none.err.splitlines()[-1] == "a dry run: 0 files would be rewritten, nothing was changed"
    assert wane("archive", "compact").err.splitlines()[-1] == "0 files were rewritten"
    untidied = wane("archive", "tidy", "--dry-run", "--older-than", "2h")
    assert (
        untidied.err.splitlines()[-1] == "a dry run: 0 files of 0 bytes would be removed from disk, nothing was changed"
    )
    assert (
        wane("archive", "tidy", "--older-than", "2h").err.splitlines()[-1]
        == "0 files of 0 bytes were removed from disk"
    )
    [tidied, _] = wane("archive", "tidy", "--json", "--older-than", "2h").json
    assert (tidied["files"], tidied["waiting"] > 0) == (0, True)
    refused = wane("archive", "tidy", "--older-than", "1m")
    assert refused.code != 0
    assert "at least 1h" in refused.err
    assert wane("archive", "tidy", "--older-than", "soon").code == 2
    wane("disable", "event")
    off = wane("archive", "expire")
    assert (off.code, "is off" in off.err) == (0, True)


def test_rows_that_cannot_be_written_are_not_requested(shop: SqliteDatabase, wane: Wane, folder: Path) -> None:
    done = wane("archive", "query", "event", "--format", "parquet", "--out", "/proc/rows.parquet")
    assert (done.code, done.out) == (1, "")
    assert "error: /proc/rows.parquet cannot be written: " in done.err
    assert "starting Spark" not in done.err
