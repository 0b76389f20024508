"""`wane prune`, `wane sweep`, `wane apply`: taking rows from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import AT, CONTRACT, write_contract
from servers import Database

CUTOFF = "2026-01-03T00:00:00Z"
"""Seven days before the moment that `running.AT` names: three failed messages are older."""


@pytest.fixture
def ready(filled: Database, wane: Wane) -> Database:
    """A database with Wane's own tables, and sweeps turned on."""
    assert wane("migrate").code == 0
    assert wane("enable").code == 0
    return filled


def ids(database: Database) -> list[int]:
    return [one for (one,) in database.query("SELECT id FROM inbox ORDER BY id")]


def test_nothing_leaves_without_the_audit_trail(wane: Wane, filled: Database) -> None:
    for words in (("prune", "inbox.failed"), ("sweep",), ("audit", "list"), ("enable",), ("hold", "list")):
        done = wane(*words)
        assert (done.code, done.out) == (1, "")
        assert "hint: run `wane migrate`" in done.err
    assert ids(filled) == [1, 2, 3, 4, 5, 6]


def test_an_explicit_prune_takes_the_oldest_and_counts_what_leaves_with_them(wane: Wane, ready: Database) -> None:
    done = wane("prune", "inbox", "--state", "failed", "--older-than", CUTOFF, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["counts"] == {"inbox": 3, "note": 2}
    assert done.json["rows"] == 5
    assert ids(ready) == [4, 5, 6]
    assert ready.query("SELECT count(*) FROM note") == [(0,)]
    [entry] = wane("audit", "list", "--json").json
    assert entry["id"] == done.json["audit_id"]
    assert entry["counts"] == done.json["counts"]


def test_a_dry_run_takes_nothing_and_writes_nothing(wane: Wane, ready: Database) -> None:
    done = wane("prune", "inbox", "--state", "failed", "--older-than", CUTOFF, "--dry-run")
    assert done.code == 0
    assert done.out.startswith("3 rows of inbox would leave: nothing was changed\n")
    assert "with them 2 rows of note" in done.out
    assert "DELETE" in done.out
    assert ids(ready) == [1, 2, 3, 4, 5, 6]
    assert wane("audit", "list", "--json").json == []


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("inbox",), 2, "no threshold, no deletion"),
        (("inbox", "--state", "queued", "--older-than", CUTOFF), 1, "queued"),
        (("inbox", "--state", "failed", "--older-than", "soon"), 2, "soon"),
        (("inbox.failed", "--older-than", CUTOFF), 2, "a rule has its own"),
        (("inbox.fialed",), 1, "did you mean 'failed'?"),
        (("inbx", "--older-than", CUTOFF), 1, "did you mean 'inbox'?"),
        (("inbox.failed", "--limit", "0"), 1, "limit"),
    ],
)
def test_a_prune_that_is_not_certain_is_refused(
    wane: Wane, ready: Database, words: tuple[str, ...], code: int, told: str
) -> None:
    done = wane("prune", *words)
    assert (done.code, done.out) == (code, "")
    assert told in " ".join(done.err.split())
    assert ids(ready) == [1, 2, 3, 4, 5, 6]


def test_a_held_row_stays_until_it_is_released(wane: Wane, ready: Database) -> None:
    held = wane("hold", "add", "inbox", "--key", "id=2", "--reason", "the [auditors] asked", "--json").json
    pruned = wane("prune", "inbox", "--state", "failed", "--older-than", CUTOFF, "--json").json
    assert pruned["counts"]["inbox"] == 2
    assert ids(ready) == [2, 4, 5, 6]
    assert "the [auditors] asked" in wane("hold", "list").out
    assert wane("hold", "release", held["id"]).code == 0
    assert wane("hold", "list", "--json").json == []
    assert wane("prune", "inbox", "--state", "failed", "--older-than", CUTOFF, "--json").json["counts"]["inbox"] == 1


@pytest.mark.parametrize("words", [("--key", "2"), ()])
def test_a_hold_needs_a_key_that_names_its_column_and_a_reason(
    wane: Wane, ready: Database, words: tuple[str, ...]
) -> None:
    done = wane("hold", "add", "inbox", *words, *(("--reason", "x") if words else ()))
    assert (done.code, done.out) == (2, "")


def test_a_sweep_takes_what_is_due_and_the_trail_tells_it(wane: Wane, ready: Database, folder: Path) -> None:
    done = wane("sweep", "--approve", "inbox.failed", "--json")
    assert (done.code, done.err) == (0, "")
    [rule] = done.json["rules"]
    assert rule["outcome"] == "done"
    assert rule["counts"] == {"inbox": 4, "note": 2}
    assert ids(ready) == [5, 6]
    listed = wane("audit", "list", "--table", "inbox")
    assert "inbox 4, note 2" in listed.out
    assert wane("sweep", "--json").json["rules"][0]["rows"] == 0


def test_a_sweep_that_is_off_takes_nothing_and_says_so(wane: Wane, ready: Database) -> None:
    assert wane("disable", "inbox", "--json").json["enabled"] is False
    done = wane("sweep", "--approve", "inbox.failed")
    assert done.code == 0
    assert "off: " in done.err
    assert "`wane enable inbox`" in done.err
    assert ids(ready) == [1, 2, 3, 4, 5, 6]
    wane("enable", "inbox")
    wane("disable")
    assert "`wane enable`" in wane("sweep", "--approve", "inbox.failed").err
    assert ids(ready) == [1, 2, 3, 4, 5, 6]


def test_a_plan_is_applied_as_it_was_read(wane: Wane, ready: Database, folder: Path) -> None:
    wane("plan", "--out", "plan.json")
    done = wane("apply", "plan.json", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["rules"][0]["counts"] == {"inbox": 4, "note": 2}
    assert ids(ready) == [5, 6]


def test_a_plan_of_another_contract_or_moment_is_refused(wane: Wane, ready: Database, folder: Path) -> None:
    wane("plan", "--at", AT, "--out", "old.json")
    wane("plan", "--out", "plan.json")
    write_contract(folder, ready.url, CONTRACT.replace('"7d"', '"8d"'))
    for file, told in (("plan.json", "contract"), ("old.json", "contract"), ("nowhere.json", "nowhere.json")):
        done = wane("apply", file)
        assert (done.code, done.out) == (1, "")
        assert told in done.err
    write_contract(folder, ready.url)
    assert "hours old" in wane("apply", "old.json").err
    (folder / "wane.json").write_text("{}")
    assert wane("apply", "wane.json").code == 1
    assert ids(ready) == [1, 2, 3, 4, 5, 6]


def test_a_plan_that_is_not_carried_out_is_a_failure(wane: Wane, ready: Database) -> None:
    assert wane("plan", "--out", "plan.json").code == 0
    wane("disable")
    before = ready.query("SELECT count(*) FROM inbox")
    assert wane("apply", "plan.json").code == 1
    assert ready.query("SELECT count(*) FROM inbox") == before
