"""`wane growth`: sizes, rates, days, warnings and a course that fits."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from cli.conftest import Wane
from cli.running import fill
from servers import Database
from wane._cli.growth import sparkline
from wane._keeper import open_keeper
from wane.observe._sql_snapshots import Snapshot, Snapshots


def remember(rows_a_day: int, last: int, days: int = 12, table: str = "inbox") -> None:
    with open_keeper(contract="wane.toml") as keeper:
        keeper.migrate()
        now, snapshots = keeper.store.now(), Snapshots(keeper.store.dialect)
        schema = "main" if keeper.store.kind == "sqlite" else "public"
        with keeper.store.transaction() as transaction:
            for day in range(days, -1, -1):
                known = Snapshot(
                    now - timedelta(days=day), f"{schema}.{table}", last - day * rows_a_day, True, 123_456_789, True
                )
                snapshots.write(transaction.execute, known)


def test_measuring_states_how_many(wane: Wane, filled: Database) -> None:
    assert wane("migrate").code == 0
    done = wane("growth", "snapshot")
    assert (done.code, done.out, done.err) == (0, "", "3 tables: 3 counted, 0 estimated\n")
    assert [one["rows"] for one in wane("growth", "snapshot", "--json").json] == [6, 2, 1]


def test_all_tables_in_one_table(wane: Wane, filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(10_000, 900_000)
    monkeypatch.setenv("COLUMNS", "80")
    done = wane("growth")
    assert done.code == 0
    assert all(len(line) <= 80 for line in done.out.splitlines())
    [line] = [line for line in done.out.splitlines() if line.startswith("inbox")]
    assert line.split()[1:7] == ["900,000", "123", "MB", "+10,000", "10", "410"]
    assert "n/a" in done.out
    assert "warning: inbox has 900,000 rows and comes near 1,000,000, in about 10 days by its rate" in done.err
    assert wane("growth", "show").out == done.out


@pytest.mark.parametrize("width", [40, 80, 120])
def test_one_table_with_a_course_that_fits(
    wane: Wane, filled: Database, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    remember(10_000, 700_000)
    monkeypatch.setenv("COLUMNS", str(width))
    done = wane("growth", "inbox")
    assert done.code == 0
    [course] = [line for line in done.out.splitlines() if "█" in line]
    assert (course[0], course[-1], len(course)) == ("▁", "█", 13)
    assert ": from 580,000 to 700,000 rows" in done.out
    remember(10_000, 700_000, days=200)
    assert max(len(line) for line in wane("growth", "inbox").out.splitlines() if "█" in line) == width
    assert "days to 1,000,000 rows: 30" in done.out
    assert "in 30 days: 1,000,000 rows" in done.out
    assert "warning: inbox reaches 1,000,000 rows, in about 30 days" in done.err


def test_the_numbers_are_those_of_the_last_snapshot_and_its_time_is_shown(wane: Wane, filled: Database) -> None:
    assert wane("migrate").code == 0
    assert wane("growth", "snapshot").code == 0
    filled.execute("DELETE FROM note")
    done = wane("growth")
    assert [line.split()[1] for line in done.out.splitlines() if line.startswith("note")] == ["2"]
    assert re.fullmatch(r"measured \d{4}-\d\d-\d\d [\d:]{8}; `wane growth snapshot` measures now\n", done.err)


def test_json_has_numbers_or_words(wane: Wane, filled: Database) -> None:
    remember(0, 5)
    found = {one["table"]: one for one in wane("growth", "--json").json}
    assert found["inbox"]["days_to"]["5000000"] == {"days": "never", "earliest": None, "latest": None}
    assert found["note"]["days_to"]["5000000"]["days"] == "n/a"
    assert found["inbox"]["rows_per_day"] == {"rate": 0.0, "low": 0.0, "high": 0.0}
    assert (found["inbox"]["snapshots"], found["inbox"]["verdict"]) == (13, "steady")
    assert wane("growth", "inbox", "--json").json == [found["inbox"]]


def test_without_snapshots_it_states_what_to_do(wane: Wane, filled: Database) -> None:
    assert wane("migrate").code == 0
    for words in (("growth",), ("growth", "inbox")):
        done = wane(*words)
        assert done.code == 0
        assert "wane growth snapshot" in done.err


def test_an_unknown_table_is_an_error(wane: Wane, filled: Database) -> None:
    assert wane("migrate").code == 0
    done = wane("growth", "inbx")
    assert (done.code, done.out) == (1, "")
    assert "did you mean 'inbox'?" in done.err


def test_a_terminal_without_unicode_gets_a_course_in_ascii(process: Wane, database: Database, folder: object) -> None:
    from pathlib import Path

    from cli.running import write_contract

    fill(database)
    write_contract(Path(str(folder)), database.url)
    remember(10_000, 700_000)
    done = process("growth", "inbox", PYTHONIOENCODING="ascii", COLUMNS="60")
    assert done.code == 0
    assert "_" in done.out
    assert "#" in done.out
    assert done.out.isascii()


def test_a_course_of_any_length_fits() -> None:
    assert (sparkline([]), sparkline([3]), sparkline([0, 7])) == ("", "▁", "▁█")
    assert sparkline([5.0, 5.0, 5.0]) == "▁▁▁"
    assert sparkline(list(range(100)), 8) == "▁▂▃▄▅▆▇█"
    assert sparkline(list(range(100)), 8, unicode=False) == "_.-~=+*#"


def test_a_table_that_its_window_bounds_never_reaches_more(wane: Wane, filled: Database) -> None:
    remember(10, 60, days=5)
    done = wane("growth", "inbox")
    assert "its window or cap bounds it: it tends to about 70 rows\n" in done.out
    assert "days to 1,000,000 rows: never" in done.out
    [found] = wane("growth", "inbox", "--json").json
    assert found["tends_to"] == {"rows": 70, "high": 70}
    assert found["days_to"]["1000000"]["days"] == "never"
