"""`kill -9` while copies of rows that the application deleted are erased: nothing else goes, and of them nothing is
left on the disk."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from archive.cold import CONTRACT, STAYING, archived, insert_events
from crash.erasing_launcher import DELETED
from crash.test_archive_kills import MORE_TRIES, PATIENCE_SECONDS, SEED, Launcher, begin
from servers import SqliteDatabase

pytestmark = pytest.mark.crash

DIRECTED = ["decide", "replace event", "replaced event", "replaced event_read", "end", "unlink"]
ROWS = 10
ERASING = CONTRACT.replace('keep = "forever"', 'keep = "forever"\nstatistics = ["body"]')
"""With the texts of rows in the log's statistics, which a request to delete them means too."""


class ErasingLauncher(Launcher):
    def __init__(self, contract: Path, log: Path, database: Path) -> None:
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("erasing_launcher.py"), contract, log, database],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        )


def on_disk(folder: Path) -> str:
    """Return everything that the archive's files have of rows: values, and what footers and log say of them."""
    texts = [path.read_text() for path in folder.rglob("*.json")]
    for path in folder.rglob("*.parquet"):
        file = pq.ParquetFile(path)
        texts += [str(file.metadata.row_group(number).to_dict()) for number in range(file.num_row_groups)]
        texts.append(str(file.read().to_pylist()))
    return "\n".join(texts)


@pytest.mark.timeout(PATIENCE_SECONDS)
def test_erasing_survives_kills_and_leaves_nothing_of_deleted_rows(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    steps = DIRECTED if "WANE_KILLS" in os.environ else ["replaced event", "unlink"]
    launcher = ErasingLauncher(begin(sqlite_database, tmp_path, ERASING), tmp_path / "steps", sqlite_database.path)
    ever: set[int] = set()
    tries, hit = 0, set[str]()
    try:
        while set(steps) - hit and tries < len(steps) + MORE_TRIES:
            ids = range(101 + tries * 20, 101 + tries * 20 + ROWS)
            insert_events(sqlite_database, ids)
            ever |= {n for n in ids if n % DELETED}
            hit.add(launcher.kill_at(SEED + tries, next(step for step in steps if step not in hit)))
            tries += 1
            cold = Counter(row["id"] for row in archived(tmp_path / "cold" / "event"))
            hot = {n for (n,) in sqlite_database.query("SELECT id FROM event")}
            assert ever <= hot | set(cold), f"lost {sorted(ever - hot - set(cold))}"
        assert set(steps) <= hit, "a step was never reached"
        launcher.finish(SEED)
    finally:
        launcher.close()
    cold = Counter(row["id"] for row in archived(tmp_path / "cold" / "event"))
    assert cold == Counter(ever)
    assert {n for (n,) in sqlite_database.query("SELECT id FROM event")} == set(STAYING)
    assert {row["event_id"] for row in archived(tmp_path / "cold" / "event_read")} <= ever
    written = on_disk(tmp_path / "cold")
    assert f"body {min(ever)} " in written, "what is found here would be found"
    for n in range(105, 101 + tries * 20, DELETED):
        assert f"body {n} " not in written, "a deleted row is still on the disk"
