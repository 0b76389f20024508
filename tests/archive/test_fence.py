"""A writer of the archive that was replaced commits nothing any more, at whatever point it was stopped: the log itself
refuses it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from archive.cold import cold_keeper, conserve, events
from archive.inline import InlineExecutor
from servers import Database
from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.files import ColdFile, Replacement
from wane._archive.delta.files import replace as replace_files
from wane._archive.pipeline.removal import GoneCopies, remove_copies
from wane._leases import Lease
from wane._prune.sweep import Outcome
from wane.errors import ArchiveBusy

EARLIER = Lease("archive event", "one", 1, datetime(2026, 1, 1, tzinfo=UTC))
LATER = replace(EARLIER, holder="another", fence=2)


@pytest.mark.parametrize("before", ["commit", "write"])
def test_a_writer_that_was_stopped_for_longer_than_its_lease_commits_nothing(
    database: Database, tmp_path: Path, before: str
) -> None:
    """It is stopped after it has shown its lease: before it reads the log, and before it writes to it."""
    events(database, 20)
    ever = {table: {row for (row,) in database.query(f"SELECT id FROM {table}")} for table in ("event", "event_read")}
    with cold_keeper(database, tmp_path) as cold:
        tests = Path(__file__).parent.parent
        writer = [sys.executable, "-m", "archive.stopped_writer", str(tmp_path), before]
        with subprocess.Popen(writer, cwd=tests, env={**os.environ, "PYTHONPATH": str(tests)}) as process:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            lease = cold.keeper.store.dialect.own_table("lease")
            database.execute(f"UPDATE {lease} SET until = '2020-01-01T00:00:00.000000Z'")
            # The table changed, so that its successor abandons what it copied and copies it anew.
            database.execute("ALTER TABLE event ADD COLUMN note text")
            with cold_keeper(database, tmp_path) as successor:
                # It goes on before the successor's own copies are committed.
                successor.at["planned"] = lambda: _go_on(process, tmp_path)
                assert successor.one().outcome is Outcome.DONE
            assert process.wait(60) == 0
        assert (tmp_path / "reason").read_text().startswith("failed: ")
        conserve(cold, ever, done=True)
        assert len(cold.cold()) == 20


def _go_on(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.send_signal(signal.SIGCONT)
    process.wait(60)
    assert (folder / "reason").exists()


def _commit(cold: ColdTable, leases: Sequence[Lease], number: int) -> None:
    cold.commit("event", number, [], leases)


def _remove(cold: ColdTable, leases: Sequence[Lease], number: int) -> None:
    remove_copies(InlineExecutor(), cold, GoneCopies.stale(number, [("[1]", "a")], follows=False), leases, why="a test")


def _remove_copies(cold: ColdTable, leases: Sequence[Lease], number: int) -> None:
    remove_copies(InlineExecutor(), cold, GoneCopies.restored([(number, "[1]")], follows=False), leases, why="a test")


def _replace(cold: ColdTable, leases: Sequence[Lease], number: int) -> None:
    removed: tuple[ColdFile, ...] = ()
    replace_files(cold, "event", number, Replacement("event", removed, ()), leases, rows_leave=True)


@pytest.mark.parametrize("change", [_commit, _remove, _remove_copies, _replace])
def test_every_change_of_the_archive_reads_the_log_for_its_fence(
    tmp_path: Path, change: Callable[[ColdTable, Sequence[Lease], int], Any]
) -> None:
    cold = ColdTable(tmp_path, "event", "origin")
    cold.ensure([["id", "long"]], follows=False)
    cold.take_over([EARLIER])
    change(cold, [EARLIER], 7)
    cold.take_over([LATER])
    version = DeltaTable(str(cold.folder)).version()
    with pytest.raises(ArchiveBusy, match="later lease"):
        change(ColdTable(tmp_path, "event", "origin"), [EARLIER], 8)
    assert DeltaTable(str(cold.folder)).version() == version
    change(cold, [LATER], 8)
