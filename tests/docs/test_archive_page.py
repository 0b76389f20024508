"""The page about the archive: others read it as it says, and see the same rows."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from archive.cold import cold_keeper, events
from archive.inline import without_spark
from servers import SqliteDatabase

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "archive.md"


def test_duckdb_polars_and_pandas_read_the_archive_as_the_page_shows(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_spark(monkeypatch)
    events(sqlite_database, 60)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        assert cold.one().archived["event"] == 60
        archived = cold.archived()
    [code] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    [(month, rows)] = Counter(row["_month"] for row in archived).most_common(1)
    monkeypatch.chdir(tmp_path)
    seen: dict[str, Any] = {}
    exec(code.replace("archive/event_outbox", "cold/event").replace("2026-01", month), seen)
    ids = sorted(row["id"] for row in archived if row["_month"] == month)
    assert len(ids) == rows
    assert [row[0] for row in seen["by_duckdb"]] == ids
    assert seen["by_polars"]["id"].to_list() == ids
    assert seen["by_pandas"]["id"].tolist() == ids
    bodies = {row["id"]: row["body"] for row in archived}
    assert seen["by_polars"]["body"].to_list() == seen["by_pandas"]["body"].tolist() == [bodies[n] for n in ids]
