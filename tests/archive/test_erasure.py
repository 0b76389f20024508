"""The log of the archive keeps no texts of rows, and nothing at all of rows that the audit trail calls erased."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from archive.cold import DAY_MS, NOW_MS, Cold, cold_keeper
from servers import Database, SqliteDatabase
from wane._archive.maintenance.trimming import trim
from wane._archive.spark.session import session
from wane._prune.sweep import Outcome

LONG_AGO = time.time() - 40 * 86_400
CONTRACT = """
[store]
url = {url}
[archive]
url = "cold"
[archive.person]
keep = "150d"
[scheduler]
night = {{ every = "1h" }}
[table.person]
scheduler = "night"
why   = "a test"
time  = {{ column = "at_ms", unit = "ms" }}
[table.person.rule.cold]
keep = "90d"
then = "archive"
[spark]
lease_seconds = 60
"""


def people(database: Database) -> None:
    """Insert rows whose key is a text: two months that are due for erasure, one that is not."""
    database.execute("CREATE TABLE person (email text PRIMARY KEY, at_ms bigint NOT NULL, iban text, born integer)")
    database.execute("CREATE INDEX person_at ON person (at_ms, email)")
    rows = [
        (f"{name}@example.org", NOW_MS - days * DAY_MS, f"DE89-{name}", 700_000_000 + days)
        for name, days in (("alice", 300), ("bob", 299), ("carol", 298), ("dan", 220), ("erin", 120), ("frank", 119))
    ]
    database.executemany("INSERT INTO person VALUES (?, ?, ?, ?)", rows)


def reported(cold: Cold) -> str:
    """Return everything that the log says: commits as they are, checkpoints without compression."""
    log = cold.folder / "cold" / "person" / "_delta_log"
    texts = [path.read_text() for path in sorted(log.glob("*.json"))]
    texts += [str(pq.read_table(path).to_pylist()) for path in sorted(log.glob("*.parquet"))]
    return "\n".join(texts)


def age(cold: Cold) -> None:
    """Let everything have happened long ago."""
    folder = cold.folder / "cold" / "person"
    for entry in (folder / "_delta_log").glob("*.json"):
        old = rf"\g<1>{int(LONG_AGO * 1000)}"
        entry.write_text(re.sub(r'("deletionTimestamp":)\d+', old, entry.read_text()))
    for path in [*folder.glob("_month=*/*"), *(folder / "_delta_log").iterdir()]:
        os.utime(path, (LONG_AGO, LONG_AGO))


def test_no_text_of_a_row_stands_in_the_log(database: Database, tmp_path: Path) -> None:
    people(database)
    with cold_keeper(database, tmp_path, CONTRACT) as cold:
        cold.at["committed"] = lambda: database.execute("UPDATE person SET born = 1 WHERE email LIKE 'bob%'")
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, 1)
        assert cold.one().archived == {"person": 1}
        assert cold.keeper.archive.restore("person", keys=[{"email": "carol@example.org"}]).restored == {"person": 1}
        log = reported(cold)
        assert "example.org" not in log
        assert "DE89" not in log
        # Times and numbers are there, so that readers can skip files.
        assert str(NOW_MS - 300 * DAY_MS) in log
        names = {row["email"].partition("@")[0] for row in cold.archived("person")}
        assert names == {"alice", "bob", "dan", "erin", "frank"}


def test_texts_that_the_contract_declares_stand_in_the_log(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    people(sqlite_database)
    contract = CONTRACT.replace('keep = "150d"', 'keep = "150d"\nstatistics = ["iban"]')
    with cold_keeper(sqlite_database, tmp_path, contract) as cold:
        cold.one()
        assert "DE89-alice" in reported(cold)
        assert "example.org" not in reported(cold)


def test_nothing_in_the_log_shows_erased_rows(database: Database, tmp_path: Path) -> None:
    people(database)
    contract = CONTRACT.replace('keep = "150d"', 'keep = "150d"\nstatistics = ["email"]')
    with cold_keeper(database, tmp_path, contract) as cold:
        cold.one()
        [expired] = cold.keeper.archive.expire()
        assert sum(expired.rows["person"].values()) == 4
        [early] = cold.keeper.archive.tidy()
        assert early.erased == ()
        assert "alice" in reported(cold)
        age(cold)
        [tidied] = cold.keeper.archive.tidy()
        assert tidied.outcome is Outcome.DONE, tidied.message
        expiries = [entry.id for entry in cold.keeper.audit(kind="archive_expire") if entry.counts["person"]]
        assert sorted(tidied.erased) == sorted(number for number in expiries if number is not None)
        log = reported(cold)
        entries = f"{'wane_' if database.store == 'sqlite' else 'wane.'}archive_log_entry"
        log += "".join(entry for (entry,) in database.query(f"SELECT entry FROM {entries}"))
        assert not [name for name in ("alice", "bob", "carol", "dan") if name in log]
        assert "erin" in log
        # The table reads as before, the pipeline goes on, and the log has all its commits.
        assert {row["email"] for row in cold.archived("person")} == {"erin@example.org", "frank@example.org"}
        assert cold.keeper.check_live() == []
        database.execute("INSERT INTO person VALUES ('gina@example.org', ?, 'x', 1)", (NOW_MS - 118 * DAY_MS,))
        assert cold.one().outcome is Outcome.DONE
        assert len(cold.archived("person")) == 3


def test_an_expiry_is_not_called_erased_while_the_log_names_its_files(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, CONTRACT) as cold:
        cold.one()
        cold.keeper.archive.expire()
        age(cold)
        for path in (cold.folder / "cold" / "person" / "_delta_log").iterdir():
            os.utime(path)
        [tidied] = cold.keeper.archive.tidy()
        assert (tidied.files > 0, tidied.erased) == (True, ())


def test_readers_of_delta_lake_read_a_trimmed_log(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    import polars

    people(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, CONTRACT) as cold:
        cold.one()
        age(cold)
        folder = str(cold.folder / "cold" / "person")
        cold.keeper.archive.tidy()
        assert sorted(path.name for path in Path(folder, "_delta_log").iterdir()) == [
            "00000000000000000001.checkpoint.parquet",
            "00000000000000000001.json",
            "_last_checkpoint",
        ]
        read: Any = polars.read_delta(folder)
        assert sorted(read["email"].to_list())[0] == "alice@example.org"
        assert len(read) == 6
        [status] = cold.keeper.archive.tables()
        assert (status.rows, status.version) == (6, 1)


def replayed(folder: Path) -> list[str]:
    """Return the files of a Delta Lake table by its protocol alone: the last checkpoint, then every later commit in
    order."""
    log = folder / "_delta_log"
    version = -1
    files: dict[str, bool] = {}
    if (log / "_last_checkpoint").exists():
        version = json.loads((log / "_last_checkpoint").read_text())["version"]
        for row in pq.read_table(log / f"{version:020d}.checkpoint.parquet").to_pylist():
            if row.get("add") is not None:
                files[unquote(row["add"]["path"])] = True
    while (entry := log / f"{version + 1:020d}.json").exists():
        version += 1
        for line in entry.read_text().splitlines():
            action = json.loads(line)
            if "remove" in action:
                files.pop(unquote(action["remove"]["path"]), None)
            if "add" in action:
                files[unquote(action["add"]["path"])] = True
    return sorted(str(folder / path) for path in files)


@pytest.mark.frames_on_spark
@pytest.mark.sampled("sqlite")
def test_an_independent_reader_sees_the_same_rows_after_the_log_is_trimmed(database: Database, tmp_path: Path) -> None:
    import polars

    people(database)
    with cold_keeper(database, tmp_path, CONTRACT) as cold:
        # Commits that add, rewrite and remove files.
        cold.at["committed"] = lambda: database.execute("UPDATE person SET born = 1 WHERE email LIKE 'bob%'")
        cold.one()
        cold.one()
        cold.keeper.archive.restore("person", keys=[{"email": "carol@example.org"}])
        cold.keeper.archive.expire()
        folder = cold.folder / "cold" / "person"
        spark = session(cold.keeper.contract.spark)

        def read() -> list[list[tuple[Any, ...]]]:
            names = [field.name for field in DeltaTable(str(folder)).schema().fields]
            plain = spark.read.option("basePath", str(folder)).parquet(*replayed(folder)).select(*names)
            rows = [tuple(row) for row in plain.collect()]
            others: Any = polars.read_delta(str(folder)).select(names)
            delta = [tuple(row[name] for name in names) for row in cold.archived("person")]
            return [sorted(rows, key=str), sorted(others.rows(), key=str), sorted(delta, key=str)]

        before = read()
        assert before[0] == before[1] == before[2]
        assert len(before[0]) == 2
        entries = len(list((folder / "_delta_log").glob("*.json")))
        age(cold)
        [tidied] = cold.keeper.archive.tidy()
        assert tidied.files > 0
        assert len(list((folder / "_delta_log").glob("*.json"))) == 1 < entries
        assert read() == before
        # Commits after the checkpoint count as well.
        database.execute("INSERT INTO person VALUES ('gina@example.org', ?, 'x', 1)", (NOW_MS - 118 * DAY_MS,))
        cold.one()
        after = read()
        assert after[0] == after[1] == after[2]
        assert set(after[0]) > set(before[0])
        assert len(after[0]) == 3


def test_a_log_without_its_checkpoint_is_refused(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    people(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, CONTRACT) as cold:
        cold.one()
        age(cold)
        cold.keeper.archive.tidy()
        [checkpoint] = (cold.folder / "cold" / "person" / "_delta_log").glob("*.checkpoint.parquet")
        checkpoint.unlink()
        [found] = cold.keeper.check_live()
        assert found.code == "archive-log"
        assert "from a backup" in found.fix
        assert cold.one().outcome is Outcome.FAILED


def test_entries_that_are_young_stay(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    people(sqlite_database)
    with cold_keeper(sqlite_database, tmp_path, CONTRACT) as cold:
        cold.one()
        [table] = cold.keeper.archive._cold_tables()
        assert trim(table, cold.keeper.store.now().replace(year=2020)) == 0
        assert len(list((table.folder / "_delta_log").iterdir())) == 2
