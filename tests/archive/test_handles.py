"""How often the log of an archive's table is read: once for as long as it stays the same, whichever process changes
it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from archive.cold import cold_keeper, events
from archive.inline import InlineExecutor
from servers import Database
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.log_entry import LOG
from wane._archive.delta.paths import children
from wane._archive.pipeline.removal import GoneCopies, remove_copies
from wane._leases import Lease

LEASE = Lease("archive event", "one", 1, datetime(2030, 1, 1, tzinfo=UTC))


@pytest.fixture
def table(tmp_path: Path) -> ColdTable:
    table = ColdTable(tmp_path, "event", "origin")
    table.ensure([["id", "long"]], follows=False)
    return table


def test_a_log_that_stays_the_same_is_read_once(table: ColdTable) -> None:
    assert table.open() is table.open() is table.require()


def test_a_commit_of_another_process_is_seen(table: ColdTable) -> None:
    assert table.last_sweep("event") == 0
    ColdTable(table.folder.parent, "event", "origin").commit("event", 7, [], [LEASE])
    assert table.last_sweep("event") == 7


def test_what_was_read_stays_what_it_was_when_the_table_changes(table: ColdTable) -> None:
    path = table.folder / "_month=2026-01" / "one.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"id": [1], "_key": ["[1]"], "_version": ["1"], "_sweep": [7]}), path)
    file = {"path": "_month=2026-01/one.parquet", "bytes": path.stat().st_size, "month": "2026-01", "statistics": "{}"}
    table.commit("event", 7, [file], [LEASE])
    before = table.require()
    version = before.version()
    remove_copies(InlineExecutor(), table, GoneCopies.stale(7, [("[1]", "1")], follows=False), [LEASE], why="a test")
    assert (before.version(), len(before.file_uris())) == (version, 1)
    assert table.require().version() > version
    assert not table.require().file_uris()


def test_an_entry_that_is_lost_is_noticed_by_who_has_read_it(table: ColdTable) -> None:
    table.commit("event", 7, [], [LEASE])
    assert table.last_sweep("event") == 7
    newest = children(table.folder / LOG, "*.json")[-1]
    entry = newest.read_bytes()
    newest.unlink()
    assert table.last_sweep("event") == 0
    newest.write_bytes(entry)
    assert table.last_sweep("event") == 7


def test_a_sweep_reads_each_log_a_few_times(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database)
    read: Counter[str] = Counter()
    handle = ColdTable._handle

    def counted(table: ColdTable) -> object:
        read[table.name] += 1
        return handle(table)

    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        database.execute("UPDATE event SET at_ms = at_ms - 8640000000 WHERE id = 10001")
        monkeypatch.setattr(ColdTable, "_handle", counted)
        assert cold.one().archived["event"] == 1
    # As it is before, to commit, and as it is afterwards.
    assert read == {"event": 3, "event_read": 3}
