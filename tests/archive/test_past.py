"""The journals forget what has been done for long, and nothing that is still needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archive.cold import CONTRACT, Cold, cold_keeper, events
from archive.test_restore import back, interrupt
from servers import Database
from wane._prune.sweep import Outcome
from wane.errors import ArchiveError

LONG_AGO = "2020-01-01T00:00:00.000000Z"


def own(cold: Cold, table: str) -> str:
    return f"wane_archive_{table}" if cold.database.store == "sqlite" else f"wane.archive_{table}"


def counts(cold: Cold) -> dict[str, int]:
    tables = ("sweep", "range", "restore", "restore_piece", "restore_kept", "job")
    return {table: cold.database.query(f"SELECT count(*) FROM {own(cold, table)}")[0][0] for table in tables}


def let_it_be_long_ago(cold: Cold) -> None:
    for table in ("sweep", "restore", "job"):
        cold.database.execute(f"UPDATE {own(cold, table)} SET changed_at = ?", (LONG_AGO,))


def tidy(cold: Cold) -> Any:
    """Return what the trail says was forgotten of each table."""
    assert {one.outcome for one in cold.keeper.archive.tidy()} == {Outcome.DONE}
    entries = cold.keeper.audit(kind="archive_tidy", limit=2)
    return {entry.table: entry.inputs.get("forgotten") for entry in entries}


def test_details_of_what_was_done_long_ago_are_forgotten(database: Database, tmp_path: Path) -> None:
    events(database, 80)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        back(cold, where="id <= 3")
        database.execute("INSERT INTO event VALUES (5, 'done', 7, 'another', NULL)")
        back(cold, where="id IN (4, 5)", on_conflict="skip")
        before = counts(cold)
        assert before == {"sweep": 1, "range": 2, "restore": 2, "restore_piece": 2, "restore_kept": 1, "job": 0}
        assert tidy(cold) == {"event": None, "event_read": None}, "it was just now"
        assert counts(cold) == before
        let_it_be_long_ago(cold)
        assert tidy(cold)["event"] == {"restores": 2, "ranges": 2, "jobs": 0}
        assert counts(cold) == {**dict.fromkeys(before, 0), "sweep": 1}
        assert cold.keeper.archive.restores() == []
        assert back(cold, where="id = 6").restored["event"] == 1, "a sweep is known for as long as its rows are"
        assert cold.keeper.archive.restores()[0].id == 3, "numbers are not given out again"


def test_what_is_unfinished_is_never_forgotten(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        interrupt(cold, monkeypatch, "_remove", where="id <= 3")
        let_it_be_long_ago(cold)
        assert tidy(cold)["event"] == {"restores": 0, "ranges": 1, "jobs": 0}
        assert back(cold, where="id <= 3").restored["event"] == 3
        assert cold.cold() == list(range(4, 21))


def test_a_sweep_that_was_cut_short_goes_on_years_later(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path, CONTRACT) as cold:
        cold.at["committed"] = _dead
        assert "died" in cold.one().message
        let_it_be_long_ago(cold)
        assert tidy(cold) == {"event": None, "event_read": None}
        assert (cold.one().outcome, cold.cold()) == (Outcome.DONE, list(range(1, 21)))


def _dead(*_: Any, **__: Any) -> None:
    raise ArchiveError("died")
