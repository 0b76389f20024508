"""`wane pressure`, `wane health` and `wane check --live`: what they print, and what their exit codes say."""

from __future__ import annotations

from pathlib import Path

from cli.conftest import Wane
from cli.running import CONTRACT, write_contract
from servers import Database


def test_pressure_is_a_table_or_data(wane: Wane, filled: Database) -> None:
    done = wane("pressure", "--json")
    assert (done.code, done.err) == (0, "")
    inbox, note, settings = done.json
    assert (inbox["tbl"], inbox["rows"], inbox["due"], inbox["share"]) == ("inbox", 6, 4, 0.6667)
    assert (inbox["oldest"], inbox["newest"]) == ("2026-01-02T00:00:00+00:00", "2026-01-04T00:00:00+00:00")
    assert inbox["rows_exactness"] == inbox["due_exactness"] == "exact"
    assert (note["rows"], note["due"], note["oldest"], settings["rows"]) == (2, None, None, 1)
    shown = wane("pressure")
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[1].split() == [
        "inbox",
        "6",
        *["2026-01-02", "00:00:00", "2026-01-04", "00:00:00", "4", "66.7%"],
    ]


def test_health_states_what_is_wrong_until_it_is_repaired(wane: Wane, filled: Database) -> None:
    unhealthy = wane("health")
    assert unhealthy.code == 1
    assert "error not-migrated" in unhealthy.out
    assert "no sweeps" in unhealthy.out.splitlines()[1]
    assert "fix: run `wane migrate`" in unhealthy.out
    assert unhealthy.err.strip().endswith("unhealthy: not-migrated, overdue (2 errors)")
    for words in (["migrate"], ["enable"], ["sweep", "--approve", "inbox.failed"]):
        assert wane(*words).code == 0
    well = wane("health", "--json")
    assert (well.code, well.err) == (0, "")
    assert (well.json["healthy"], well.json["verdict"], well.json["findings"]) == (True, "healthy", [])
    [inbox] = [one for one in well.json["tables"] if one["table"] == "inbox"]
    assert inbox["rules"][0]["last_rows"] == 4
    assert wane("health").err.strip().endswith("healthy (nothing to report)")


def test_promises_are_proved_on_a_running_database(wane: Wane, filled: Database, folder: Path) -> None:
    done = wane("check", "--live")
    assert done.code == 1
    assert "error overdue wane.toml:14 table.inbox.rule.failed" in done.out
    filled.execute("INSERT INTO settings VALUES (2)")
    both = wane("check", "--live", "--cover", "--json")
    assert both.code == 1
    codes = [one["code"] for one in both.json["findings"]]
    assert codes.count("false-excuse") == 1  # Both check excuses.
    assert codes[-1] == "overdue"
    write_contract(folder, filled.url, CONTRACT.replace('"7d"', '"36500d"').replace("singleton", "inline"))
    assert wane("check", "--live").code == 0


def test_a_database_that_is_not_there_is_an_error_and_not_a_verdict(wane: Wane, folder: Path) -> None:
    write_contract(folder, "sqlite:///nowhere.db")
    for words in (["health"], ["pressure"], ["check", "--live"]):
        done = wane(*words)
        assert (done.code, done.out) == (1, "")
        assert "there is no database" in done.err
