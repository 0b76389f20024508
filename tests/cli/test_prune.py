"""`wane prune`, `wane sweep`, `wane apply`: taking rows from the command line."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import AT, CONTRACT, write_contract
from servers import Database

CUTOFF = "2026-01-03T00:00:00Z"
"""Seven days before the timestamp that `running.AT` names: three failed messages are older."""


@pytest.fixture
def ready(filled: Database, wane: Wane) -> Database:
    """Return a database with Wane's own tables, and sweeps turned on."""
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


@pytest.mark.usefixtures("ready")
def test_a_dry_run_states_how_much_the_limit_lets_leave(wane: Wane) -> None:
    words = ("prune", "inbox", "--state", "failed", "--older-than", CUTOFF, "--dry-run", "--limit")
    few = "3 rows of inbox due; at most 4 (--limit, followers included) would leave: nothing was changed\n"
    assert wane(*words, "4").out.startswith(few)
    assert wane(*words, "5").out.startswith("3 rows of inbox would leave: nothing was changed\n")
    found = wane(*words, "4", "--json").json
    assert found["limit"] == 4
    limits = {one["parameters"]["limit"] for one in found["statements"] if "limit" in one["parameters"]}
    assert limits == {4}, "the statements are shown as they run"


@pytest.mark.parametrize(
    ("words", "code", "reported"),
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
    wane: Wane, ready: Database, words: tuple[str, ...], code: int, reported: str
) -> None:
    done = wane("prune", *words)
    assert (done.code, done.out) == (code, "")
    assert reported in " ".join(done.err.split())
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


def test_a_sweep_takes_what_is_due_and_the_audit_reports_it(wane: Wane, ready: Database, folder: Path) -> None:
    done = wane("sweep", "--approve", "inbox.failed", "--json")
    assert (done.code, done.err) == (0, "")
    [rule] = done.json["rules"]
    assert rule["outcome"] == "done"
    assert rule["counts"] == {"inbox": 4, "note": 2}
    assert ids(ready) == [5, 6]
    listed = wane("audit", "list", "--table", "inbox")
    assert "inbox 4, note 2" in listed.out
    assert wane("sweep", "--json").json["rules"][0]["rows"] == 0


def test_a_sweep_that_is_off_takes_nothing_and_reports_it(wane: Wane, ready: Database) -> None:
    assert wane("disable", "inbox", "--json").json["enabled"] is False
    done = wane("sweep", "--approve", "inbox.failed")
    assert done.code == 4
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


def test_a_plan_of_another_contract_or_time_is_refused(wane: Wane, ready: Database, folder: Path) -> None:
    wane("plan", "--at", AT, "--out", "old.json")
    wane("plan", "--out", "plan.json")
    write_contract(folder, ready.url, CONTRACT.replace('"7d"', '"8d"'))
    for file, reported in (("plan.json", "contract"), ("old.json", "contract"), ("nowhere.json", "nowhere.json")):
        done = wane("apply", file)
        assert (done.code, done.out) == (1, "")
        assert reported in done.err
    write_contract(folder, ready.url)
    assert "hours old" in wane("apply", "old.json").err
    (folder / "wane.json").write_text("{}")
    assert wane("apply", "wane.json").code == 1
    assert ids(ready) == [1, 2, 3, 4, 5, 6]


def test_a_plan_that_is_not_carried_out_is_a_failure(wane: Wane, ready: Database) -> None:
    assert wane("plan", "--out", "plan.json").code == 0
    wane("disable")
    before = ready.query("SELECT count(*) FROM inbox")
    assert wane("apply", "plan.json").code == 4
    assert ready.query("SELECT count(*) FROM inbox") == before


# --- Refusals and outputs -------------------------------------------------------------------------------------------


def test_milliseconds_are_not_taken_for_a_timestamp(wane: Wane, ready: Database) -> None:
    """1710010112000 also reads as the year 1710 of ISO 8601; it is reported, whatever it reads as."""
    for text in ("1710010112000", "1700000000000", "-5", "nan", "inf"):
        done = wane("prune", "inbox", "--state", "failed", f"--older-than={text}")
        assert (done.code, done.out) == (2, ""), text
        assert "not milliseconds" in " ".join(done.err.replace("│", " ").split()) or "timestamp" in done.err
    assert ids(ready) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("text", ["1767398400", "2026-01-03", "2026-01-03T00:00:00+00:00", "2026-01-03T01:00:00+01:00"])
def test_a_timestamp_may_be_written_in_several_ways(wane: Wane, ready: Database, text: str) -> None:
    done = wane("prune", "inbox", "--state", "failed", "--older-than", text, "--json")
    assert done.json["cutoff"] == "2026-01-03T00:00:00+00:00"
    assert ids(ready) == [4, 5, 6]


def test_a_limit_holds_and_the_actor_is_reported(wane: Wane, ready: Database) -> None:
    words = ("prune", "inbox", "--state", "failed", "--older-than", CUTOFF)
    done = wane(*words, "--limit", "3", "--actor", "anna@desk", "--json")
    assert done.json["rows"] == 3
    assert ids(ready) == [2, 3, 4, 5, 6]
    [entry] = wane("audit", "list", "--json").json
    assert (entry["actor"], entry["kind"], entry["inputs"]["limit"]) == ("anna@desk", "prune", 3)
    done = wane(*words)
    assert done.code == 0
    assert done.out.startswith("pruned inbox 2, note 0 (audit row ")


def test_a_dry_run_of_a_sweep_takes_nothing(wane: Wane, ready: Database) -> None:
    done = wane("sweep", "--dry-run", "--json")
    assert done.code == 0
    assert done.json["steps"][0]["due"] == 4
    assert ids(ready) == [1, 2, 3, 4, 5, 6]
    assert wane("audit", "list", "--json").json == []


def test_a_dry_run_needs_no_tables_of_its_own(wane: Wane, filled: Database) -> None:
    done = wane("prune", "inbox.failed", "--dry-run", "--json")
    assert (done.code, done.json["due"]) == (0, 4)


def test_a_rule_that_fails_does_not_fail_others_and_sets_the_exit_code(
    wane: Wane, ready: Database, folder: Path
) -> None:
    more = '[table.gone]\nwhy = "x"\nscheduler = "tick"\n[table.gone.rule.old]\ntime = "at"\nkeep = "1d"\n[excused]'
    write_contract(folder, ready.url, CONTRACT.replace("[excused]", more))
    done = wane("sweep", "--json")
    assert done.code == 1
    assert [(rule["table"], rule["outcome"]) for rule in done.json["rules"]] == [("inbox", "done"), ("gone", "failed")]
    assert ids(ready) == [5, 6]
    done = wane("sweep", "gone")
    assert done.code == 1
    assert done.err.count("the database has no table gone") == 1
    requested = wane("sweep", "gone", "--log-level", "error")
    assert "event=tick.lifecycle_tick_failed" in requested.err


@pytest.mark.usefixtures("ready")
def test_a_sweep_names_the_rules_that_it_leaves_to_the_archive(wane: Wane, folder: Path, filled: Database) -> None:
    filled.execute("CREATE TABLE event (id integer PRIMARY KEY, at_ms bigint)")
    cold = '[archive]\nurl = "cold"\n[archive.event]\nkeep = "forever"\n[table.event]\nwhy = "x"\nscheduler = "tick"\n'
    cold += 'time = {{ column = "at_ms", unit = "ms" }}\nrule.cold = {{ keep = "1d", then = "archive" }}\n[excused]'
    write_contract(folder, filled.url, CONTRACT.replace("[excused]", cold))
    reported = "not swept: event.cold; `wane archive run` moves its rows"
    assert reported in wane("sweep").err
    assert reported in wane("sweep", "event").err
    assert reported not in wane("sweep", "inbox").err


def test_a_budget_on_the_command_line_replaces_only_what_it_names(wane: Wane, ready: Database, folder: Path) -> None:
    """The rule's own budget is two rows; `--seconds` leaves it at that."""
    write_contract(
        folder,
        ready.url,
        CONTRACT.replace('with = ["note.inbox_id"]', 'with = ["note.inbox_id"]\nbudget = {{ rows = 2 }}'),
    )
    done = wane("sweep", "--seconds", "30", "--json")
    assert done.code == 0
    [rule] = done.json["rules"]
    assert (rule["outcome"], rule["rows"]) == ("budget", 2)
    done = wane("sweep", "--rows", "3")
    assert done.code == 0
    assert (
        "the budget of rows is spent; the rest leaves with the next sweep; to take more in one, raise `rows`"
        in done.err
    )
    assert wane("sweep", "--batches", "1", "--json").json["rules"][0]["rows"] == 1


def test_the_fuse_is_a_failure_until_it_is_approved(wane: Wane, ready: Database) -> None:
    ready.executemany(
        "INSERT INTO inbox VALUES (?, ?, ?)", [(100 + n, "failed", 1_700_000_000_000 + n) for n in range(1_200)]
    )
    done = wane("sweep")
    assert done.code == 1
    assert "`wane approve inbox.failed`" in done.err
    assert len(ids(ready)) == 1_206
    done = wane("sweep", "--approve", "inbox.failed", "--fast", "--json")
    assert (done.code, done.json["rules"][0]["counts"]["inbox"]) == (0, 1_204)
    done = wane("sweep", "--approve", "inbox.fialed")
    assert (done.code, done.out) == (1, "")


# --- Signals --------------------------------------------------------------------------------------------------------

SLOW = "[sweep]\nduty = 0.001\n\n[scheduler]"
"""Two seconds of rest after every batch: time enough to receive a signal."""


@pytest.mark.parametrize(("sign", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize(
    "words", [("sweep", "--approve", "inbox.failed"), ("apply", "plan.json")], ids=["sweep", "apply"]
)
def test_a_signal_stops_between_two_batches(
    wane: Wane, ready: Database, folder: Path, sign: signal.Signals, code: int, words: tuple[str, ...]
) -> None:
    write_contract(folder, ready.url, CONTRACT.replace("[scheduler]", SLOW))
    many = 4_000
    ready.executemany(
        "INSERT INTO inbox VALUES (?, ?, ?)", [(100 + n, "failed", 1_700_000_000_000 + n) for n in range(many)]
    )
    assert wane("plan", "--out", "plan.json").code == 0
    running = subprocess.Popen(
        [sys.executable, "-m", "wane", *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while len(ids(ready)) == many + 6:
        assert running.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    running.send_signal(sign)
    out, err = running.communicate(timeout=60)
    assert running.returncode == code, err
    assert "Traceback" not in err
    assert "stopping after the current batch\n" in err
    [rule] = json.loads(out)["rules"]
    assert rule["outcome"] == "stopped"
    left = len(ids(ready))
    assert 6 < left < many + 6
    assert rule["counts"]["inbox"] == many + 6 - left
    [entry] = wane("audit", "list", "--json").json
    assert (entry["counts"], entry["batches"]) == (rule["counts"], rule["batches"])
    # What was left is taken by the next one.
    write_contract(folder, ready.url)
    done = wane("sweep", "--approve", "inbox.failed", "--fast", "--json")
    assert done.json["rules"][0]["counts"]["inbox"] == left - 2


def test_a_boolean_state_is_written_as_in_the_contract(wane: Wane, database: Database, folder: Path) -> None:
    database.execute("CREATE TABLE log (id integer PRIMARY KEY, done boolean NOT NULL, at_ms bigint)")
    database.executemany("INSERT INTO log VALUES (?, ?, 1)", [(1, True), (2, False)])
    database.execute("UPDATE log SET at_ms = 1700000000000")
    text = CONTRACT.partition("[table.inbox]")[0] + (
        '[table.log]\nwhy = "x"\nscheduler = "tick"\nstate = "done"\nlive = [false]\n'
        'time = {{ column = "at_ms", unit = "ms" }}\n[table.log.rule.old]\nwhen = [true]\nkeep = "7d"\n'
    )
    write_contract(folder, database.url, text)
    assert wane("migrate").code == 0
    assert wane("prune", "log", "--state", "true", "--older-than", "7d", "--yes").code == 0
    assert database.query("SELECT id FROM log") == [(2,)]
