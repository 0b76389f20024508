"""`wane enable`, `wane disable`, `wane hold`, `wane audit`: control, and the audit trail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from cli.conftest import Wane
from servers import Database
from wane._cli.audit import print_trail
from wane._ledger import AuditEntry

CUTOFF = "2026-01-03T00:00:00Z"
PRUNE = ("prune", "inbox", "--state", "failed", "--older-than", CUTOFF)


@pytest.fixture
def ready(filled: Database, wane: Wane) -> Database:
    assert wane("migrate").code == 0
    return filled


def ids(database: Database) -> list[int]:
    return [one for (one,) in database.query("SELECT id FROM inbox ORDER BY id")]


# --- Flags ----------------------------------------------------------------------------------------------------------


def test_flags_are_reported_by_their_names(wane: Wane, ready: Database) -> None:
    assert wane("enable", "--json").json == {"flag": "retention.enabled", "enabled": True}
    assert wane("disable", "inbox", "--json").json == {"flag": "retention.inbox.enabled", "enabled": False}
    done = wane("disable")
    assert (done.code, done.out) == (0, "")
    assert done.err == "sweeps are off (flag retention.enabled)\n"
    assert wane("enable", "inbox").err == "sweeps of inbox are on (flag retention.inbox.enabled)\n"


def test_a_flag_of_an_unknown_table_is_refused(wane: Wane, ready: Database) -> None:
    for verb in ("enable", "disable"):
        done = wane(verb, "inbx")
        assert (done.code, done.out) == (1, "")
        assert "did you mean 'inbox'?" in done.err


def test_flags_gate_sweeps_and_not_explicit_calls(wane: Wane, ready: Database) -> None:
    done = wane("sweep", "--json")
    assert done.code == 4
    [rule] = done.json["rules"]
    assert (rule["outcome"], rule["rows"]) == ("off", 0)
    assert ids(ready) == [1, 2, 3, 4, 5, 6]
    assert wane(*PRUNE, "--json").json["counts"]["inbox"] == 3


# --- Holds ----------------------------------------------------------------------------------------------------------


def test_a_hold_is_made_listed_and_released(wane: Wane, ready: Database) -> None:
    held = wane("hold", "add", "inbox", "--key", "id=2", "--reason", "the auditors asked", "--json").json
    assert (held["reason"], held["ends_at"]) == ("the auditors asked", None)
    [listed] = wane("hold", "list", "--json").json
    assert listed == held
    assert wane("hold", "list", "note", "--json").json == []
    assert wane("hold", "list", "inbox", "--json").json == [held]
    done = wane("hold", "release", held["id"])
    assert (done.code, done.err) == (0, f"hold {held['id']} is released\n")
    assert wane("hold", "list", "--json").json == []
    [past] = wane("hold", "list", "--all", "--json").json
    assert past["released_at"] is not None
    done = wane("hold", "release", held["id"])
    assert done.code == 1
    assert "released already" in done.err


def test_a_hold_on_a_table_that_was_renamed_is_reported(wane: Wane, ready: Database) -> None:
    held = wane("hold", "add", "note", "--reason", "x", "--json").json
    assert "keeps no row" not in wane("hold", "list").err
    ready.script("ALTER TABLE note RENAME TO letter")
    listed = wane("hold", "list")
    assert f"hold {held['id']} keeps no row: the database has no table {held['table']}" in listed.err
    assert [one["lost"] for one in wane("hold", "list", "--json").json] == [True]
    wane("hold", "release", held["id"])
    assert "keeps no row" not in wane("hold", "list", "--all").err


def test_a_hold_without_a_key_holds_the_table(wane: Wane, ready: Database) -> None:
    done = wane("hold", "add", "inbox", "--reason", "a freeze")
    assert done.code == 0
    assert "inbox stays" in done.err
    assert wane(*PRUNE, "--json").json["rows"] == 0
    assert "the whole table" in wane("hold", "list").out


def test_a_held_follower_saves_its_row(wane: Wane, ready: Database) -> None:
    wane("hold", "add", "note", "--key", "id=1", "--reason", "x")
    assert wane(*PRUNE, "--json").json["counts"] == {"inbox": 2, "note": 0}
    assert ids(ready) == [1, 4, 5, 6]


@pytest.mark.parametrize("ends", ["2h", "2100-01-01T00:00:00Z", "4102444800"])
def test_a_hold_may_end(wane: Wane, ready: Database, ends: str) -> None:
    held = wane("hold", "add", "inbox", "--key", "id=2", "--reason", "x", "--ends", ends, "--json").json
    timestamp = datetime.fromisoformat(held["ends_at"])
    if ends == "2h":
        assert abs(timestamp - datetime.now(UTC) - timedelta(hours=2)) < timedelta(minutes=1)
    else:
        assert timestamp == datetime(2100, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("words", "code", "reported"),
    [
        (("inbox", "--key", "2", "--reason", "x"), 2, "is not COLUMN=VALUE"),
        (("inbox", "--key", "id=2"), 2, "--reason"),
        (("inbox", "--key", "id=2", "--reason", " "), 1, "a hold needs a reason"),
        (("inbox", "--key", "id=77", "--reason", "x"), 1, "inbox has no row with id = 77"),
        (("inbox", "--key", "status=failed", "--reason", "x"), 1, "the key of inbox is id"),
        (("inbx", "--reason", "x"), 1, "did you mean 'inbox'?"),
        (("inbox", "--reason", "x", "--ends", "2001-01-01"), 1, "would end in the past"),
        (("inbox", "--reason", "x", "--ends", "soon"), 2, "soon"),
        (("inbox", "--key", "id=two", "--reason", "x"), 1, ""),
    ],
)
def test_a_hold_that_cannot_be_meant_is_refused(
    wane: Wane, ready: Database, words: tuple[str, ...], code: int, reported: str
) -> None:
    done = wane("hold", "add", *words)
    assert (done.code, done.out) == (code, "")
    assert reported in " ".join(done.err.split())
    assert wane("hold", "list", "--json").json == []


# --- The trail ------------------------------------------------------------------------------------------------------


def test_the_trail_is_filtered_and_limited_newest_first(wane: Wane, ready: Database) -> None:
    for _ in range(3):
        wane(*PRUNE, "--limit", "1")
    wane("enable")
    wane("sweep", "--approve", "inbox.failed")
    everything = wane("audit", "list", "--json").json
    assert [entry["id"] for entry in everything] == sorted((entry["id"] for entry in everything), reverse=True)
    assert len(everything) == 4
    assert everything[0]["run"] is not None
    assert everything[1]["run"] is None
    assert wane("audit", "list", "--limit", "2", "--json").json == everything[:2]
    assert wane("audit", "list", "--kind", "mark", "--json").json == []
    assert wane("audit", "list", "--kind", "prune", "--table", "inbox", "--json").json == everything
    assert wane("audit", "list", "--table", "note", "--json").json == []
    assert wane("audit", "list", "--since", "1h", "--json").json == everything
    assert wane("audit", "list", "--since", "2100-01-01", "--json").json == []
    assert sum(entry["rows"] for entry in everything) == 6


def test_the_trail_for_people_shows_what_left(wane: Wane, ready: Database) -> None:
    wane(*PRUNE, "--actor", "anna [desk]")
    shown = wane("audit", "list").out
    assert "inbox 3, note 2" in shown
    assert "anna [desk]" in shown


def test_the_trail_for_people_shows_the_whole_run(wane: Wane, ready: Database) -> None:
    wane("enable")
    wane("sweep", "--approve", "inbox.failed")
    [entry] = wane("audit", "list", "--json").json
    assert wane("audit", "list").out.splitlines()[-1].endswith(f" {entry['run']}")


@pytest.mark.parametrize("width", [60, 80, 100, 120, 140, 200])
def test_the_trail_shows_its_kind_at_every_width_and_a_restore_is_no_deletion(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    run = "archive-12345678901234567890"
    left = AuditEntry("archive", "event", "anna", {}, {"event": 7, "event_read": 9}, at, "cold", run, id=26)
    back = AuditEntry("restore", "event", "anna", {}, {"event": 3}, at, None, "restore-1", id=27)
    print_trail([back, left])
    shown = " ".join(capsys.readouterr().out.split())
    assert ("kind" in shown, "restore event back: event 3" in shown, "archive event cold event 7" in shown) == (
        True,
        True,
        True,
    )
    assert run in shown or " run" not in shown


def test_a_timestamp_that_is_none_is_wrong_usage(wane: Wane, ready: Database) -> None:
    assert wane("audit", "list", "--since", "yesterday").code == 2
    assert wane("audit", "list", "--since", "1700000000000").code == 2
    unitless = wane("prune", "inbox", "--state", "failed", "--older-than", "30")
    assert unitless.code == 2
    assert "30 has no unit" in unitless.err
    assert "30d" in unitless.err
