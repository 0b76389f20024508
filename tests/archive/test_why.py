"""`keeper.why` of a row that the archive has: where it is, and how to restore it."""

from __future__ import annotations

from pathlib import Path

from archive.cold import cold_keeper, events
from servers import Database
from wane._why.model import RowVerdict
from wane.web import console
from web.client import open_client


def test_an_archived_row_names_its_file_and_how_to_restore_it(database: Database, tmp_path: Path) -> None:
    events(database, 3)
    with cold_keeper(database, tmp_path) as cold:
        assert cold.keeper.why("event", 1).summary == (
            "cold moves it to the archive with the next sweep of a worker or `wane archive run`"
        )
        cold.one()
        why = cold.keeper.why("event", 1)
        assert why.verdict is RowVerdict.GONE
        assert why.gone is not None
        copy = why.gone.archived
        assert copy is not None
        assert Path(copy.file).is_file()
        assert f"_month={copy.month}" in copy.file
        assert (copy.rule, copy.restore) == ("event.cold", "wane archive restore event --key id=1")
        assert copy.sweep == cold.keeper.archive.status()[0].id
        never = cold.keeper.why("event", 987_654).gone
        assert never is not None
        assert never.archived is None


def test_the_console_shows_the_archive(sqlite_database: Database, tmp_path: Path) -> None:
    events(sqlite_database, 3)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        cold.one()
        with open_client(console(cold.keeper.contract)) as client:
            page = client.get("/archive").text
            found = client.get("/api/v1/archive").json()
            why = client.get("/tables/event?key=1").text
    assert [(one["table"], one["rows"]) for one in found["tables"]] == [("event", 3), ("event_read", 3)]
    assert (found["problem"], found["sweeps"][0]["state"]) == (None, "done")
    assert "event.cold" in page
    assert "wane archive restore event --key id=1" in why
