"""`wane plan`: what is due, as a table, as data, and as a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import AT, CONTRACT, fill, write_contract
from servers import Database, PostgresDatabase
from wane._cli.plan import print_plan
from wane._db.counting import Count, Exactness
from wane._keeper import open_keeper
from wane._prune.plan import Takes, read_plan
from wane._rules import reads


def test_a_plan_shows_each_rule_and_what_leaves_with_it(wane: Wane, filled: Database) -> None:
    done = wane("plan", "--at", AT)
    assert done.code == 0
    _, head, rule, follower = done.out.splitlines()
    assert head.split() == ["rule", "then", "due", "of", "share", "oldest", "newest", "cutoff", "takes"]
    assert rule.split()[:5] == ["inbox.failed", "prune", "3", "6", "50.0%"]
    assert "2026-01-02 00:00:00" in rule
    assert "2026-01-03 00:00:00" in rule
    assert follower.split() == ["with", "note", "2"]
    assert done.err.splitlines() == [
        "3 rows due under 1 rule, and 2 that leave with them",
        "not swept: inbox.failed: the database does not have Wane's own tables yet; `wane migrate` creates them",
        "not swept: inbox.failed: the master flag retention.enabled is off; `wane enable` turns it on",
    ]


def test_what_leaves_under_two_rules_is_a_bound(wane: Wane, filled: Database, folder: Path) -> None:
    text = CONTRACT.replace(
        "[excused]",
        """\
[table.inbox.rule.old]
when = ["failed"]
keep = "1d"
with = ["note.inbox_id"]

[excused]""",
    )
    write_contract(folder, filled.url, text)
    done = wane("plan", "--at", AT)
    assert "rows due under 2 rules, and ≤ " in done.err


def test_a_plan_states_what_apply_does_with_steps_that_were_not_counted(
    wane: Wane, filled: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "wane apply" not in wane("plan", "--at", AT).out
    monkeypatch.setattr(reads, "count", lambda *_, **__: Count(3, Exactness.ESTIMATE))
    reported = wane("plan", "--at", AT).out
    assert "`wane apply` refuses the plan if more rows than that are due" in reported
    assert "--seconds" in reported
    monkeypatch.setattr(reads, "count", lambda *_, **__: None)
    assert "could not be found out: `wane apply` refuses the plan" in wane("plan", "--at", AT).out


def test_a_plan_states_what_ends_a_sweep_and_what_raises_it(wane: Wane, filled: Database, folder: Path) -> None:
    contract = CONTRACT.replace('keep = "7d"\nwith', 'keep = "7d"\nbudget = {{ rows = 2 }}\nwith')
    write_contract(folder, filled.url, contract)
    done = wane("plan", "--at", AT)
    assert done.out.splitlines()[2].endswith("unknown")
    assert (
        "inbox.failed: a sweep stops after 2 rows, at its budget of 2 rows; all that is due takes 3 sweeps or more."
        " To take more in one, raise table.inbox.rule.failed.budget.rows"
    ) in done.out
    step = wane("plan", "--at", AT, "--json").json["steps"][0]
    assert (step["takes"], step["stop"]["setting"]) == (None, "table.inbox.rule.failed.budget.rows")
    assert (step["share"], step["share_exactness"]) == (0.5, "exact")
    for words in (["migrate"], ["enable"], ["sweep", "--approve", "inbox.failed", "--fast"]):
        assert wane(*words).code == 0
    shown = wane("plan").out.splitlines()[2]
    assert shown.rpartition("  ")[2].endswith("s")
    takes = wane("plan", "--json").json["steps"][0]["takes"]
    assert (takes["low_seconds_exactness"], takes["high_seconds_exactness"], takes["sweeps"]) == (
        "estimate",
        "estimate",
        1,
    )
    assert 0 < takes["low_seconds"] <= takes["high_seconds"] <= 60


def test_a_plan_names_what_stops_the_sweep(wane: Wane, filled: Database, folder: Path) -> None:
    write_contract(folder, filled.url, CONTRACT + "\n[sweep]\nfuse_rows = 3\nfirst_fuse = 0.4\n")

    def stopped(*words: str) -> list[str]:
        found = wane(*(words or ("plan",))).err.splitlines()
        return [line.removeprefix("not swept: inbox.failed: ") for line in found if "not swept" in line]

    missing = "the database does not have Wane's own tables yet; `wane migrate` creates them"
    off = "the master flag retention.enabled is off; `wane enable` turns it on"
    fused = (
        "4 of 6 rows are due (66.7%), and the first sweep of a rule may take 40% of a table without approval;"
        " `wane approve inbox.failed` reviews and approves it"
    )
    assert stopped() == [missing, off, fused]
    wane("migrate")
    assert stopped() == stopped("sweep", "--dry-run") == [off, fused]
    wane("enable")
    wane("disable", "inbox")
    assert [one["kind"] for one in wane("plan", "--json").json["obstacles"]] == ["flag", "fuse"]
    assert stopped()[0] == "the flag retention.inbox.enabled is off; `wane enable inbox` turns it on"
    wane("enable", "inbox")
    assert stopped() == [fused]
    assert wane("sweep").out.splitlines()[1].endswith("fused")
    assert stopped("sweep", "--dry-run", "--approve", "inbox") == []
    assert wane("approve", "inbox.failed", "--yes").code == 0
    assert stopped() == []
    assert wane("sweep").code == 0
    assert wane("plan").err == "0 rows due under 1 rule\n"


def test_a_bound_is_shown_as_one(wane: Wane, filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "count", lambda *_, **__: Count(2, Exactness.AT_LEAST))
    done = wane("plan", "--at", AT)
    assert done.out.splitlines()[2].split()[:7] == ["inbox.failed", "prune", "≥", "2", "6", "≥", "33.3%"]
    assert done.err.startswith("≥ 2 rows due under 1 rule, and ≥ 2 that leave with them\n")
    assert "≥ 2 rows due, not counted in time, so the fuse may stop it; `wane approve inbox.failed` reviews" in done.err
    monkeypatch.setattr(reads, "count", lambda *_, **__: Count(1, Exactness.EXACT))
    assert wane("plan", "--at", AT).err.startswith("1 row due under 1 rule, and 1 that leaves with it\n")


@pytest.mark.parametrize(
    ("low", "high", "exactness", "text"),
    [
        (0.0, 0.4, Exactness.ESTIMATE, "less than 1 s"),
        (0.2, 0.4, Exactness.ESTIMATE, "less than 1 s"),
        (0.2, 5.0, Exactness.ESTIMATE, "up to 5 s"),
        (2.0, 5.0, Exactness.ESTIMATE, "2–5 s"),
        (50.0, 180.0, Exactness.ESTIMATE, "50 s–3 min"),
        (5.1, 5.2, Exactness.ESTIMATE, "5 s"),
        (40.0, 50.0, Exactness.AT_LEAST, "≥ 40 s"),
        (0.4, 50.0, Exactness.AT_LEAST, "unknown"),
    ],
)
def test_how_long_a_sweep_takes_is_a_range_in_words(
    filled: Database,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    low: float,
    high: float,
    exactness: Exactness,
    text: str,
) -> None:
    with open_keeper(contract=folder / "wane.toml", read_only=True) as keeper:
        made = keeper.plan()
    [step] = made.steps
    print_plan(replace(made, steps=(replace(step, takes=Takes(low, high, exactness, 3)),)))
    assert capfd.readouterr().out.splitlines()[2].endswith(f"  {text}")


def test_what_was_not_counted_has_no_number(wane: Wane, filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "count", lambda *_, **__: None)
    total = "an unknown number of rows due under 1 rule; what leaves with them was not counted"
    assert wane("plan", "--at", AT).err.splitlines()[0] == total


def test_planning_changes_nothing(wane: Wane, filled: Database) -> None:
    before = filled.query("SELECT * FROM inbox ORDER BY id")
    wane("plan", "--at", AT, "-v")
    assert filled.query("SELECT * FROM inbox ORDER BY id") == before


def test_exit_code_three_states_that_rows_are_due(wane: Wane, filled: Database) -> None:
    assert wane("plan", "--at", AT).code == 0
    assert wane("plan", "--at", AT, "--exit-code").code == 3
    assert wane("plan", "--at", "2026-01-01T00:00:00Z", "--exit-code").code == 0


def test_a_plan_is_data(wane: Wane, filled: Database) -> None:
    done = wane("plan", "--at", AT, "--json", "--exit-code")
    assert (done.code, done.err) == (3, "")
    assert done.json["made_at"] == "2026-01-10T00:00:00+00:00"
    [step] = done.json["steps"]
    assert (step["due"], step["due_exactness"]) == (3, "exact")
    assert (step["followers"], step["followers_exactness"]) == ({"note": 2}, {"note": "exact"})
    assert any("DELETE" in one["text"] for one in step["statements"])


def test_a_plan_can_be_saved_to_a_file(wane: Wane, filled: Database, folder: Path) -> None:
    done = wane("plan", "--at", AT, "--out", "plan.json", "--json")
    assert done.code == 0
    assert read_plan(folder / "plan.json").due == 3
    written = json.loads((folder / "plan.json").read_text())
    assert {**written, "partitions": [], "obstacles": done.json["obstacles"]} == done.json
    assert "wrote plan.json" in wane("plan", "--at", AT, "--out", "plan.json").err


def test_a_plan_that_cannot_be_written_fails(wane: Wane, filled: Database) -> None:
    done = wane("plan", "--out", "nowhere/plan.json")
    assert done.code == 1
    assert "nowhere/plan.json" in done.err


def test_verbose_shows_the_statement_its_values_and_its_query_plan(wane: Wane, filled: Database) -> None:
    done = wane("plan", "--at", AT, "-v")
    assert "DELETE FROM" in done.out
    assert '"failed"' in done.out
    assert "inbox_age" in done.out if filled.store == "sqlite" else "cost=" in done.out


def test_only_some_rules_are_planned_when_they_are_named(wane: Wane, filled: Database) -> None:
    for name in ("inbox", "inbox.failed"):
        assert len(wane("plan", name, "--json").json["steps"]) == 1


@pytest.mark.parametrize(
    ("name", "error", "hint"),
    [
        ("inbx", "error: the contract has no table 'inbx'", "hint: did you mean 'inbox'?"),
        ("inbox.fialed", "error: inbox has no rule 'fialed'", "hint: did you mean 'failed'?"),
        ("inbox.x", "error: inbox has no rule 'x'", "hint: rules: failed"),
    ],
)
def test_an_unknown_name_is_answered_with_a_near_one(
    wane: Wane, filled: Database, name: str, error: str, hint: str
) -> None:
    done = wane("plan", name)
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [error, hint]


def test_rules_that_do_not_fit_the_database_fail_the_plan_and_are_reported(
    wane: Wane, filled: Database, folder: Path
) -> None:
    write_contract(folder, filled.url, CONTRACT.replace('"received_at_ms"', '"gone_at_ms"'))
    done = wane("plan")
    assert done.code == 1
    assert "missing-column" in done.out
    assert wane("plan", "--json").json["problems"][0]["code"] == "missing-column"


def test_a_broken_contract_leaves_stdout_empty(wane: Wane, filled: Database, folder: Path) -> None:
    write_contract(folder, filled.url, CONTRACT.replace('"7d"', '"never"'))
    for words in (("plan",), ("plan", "--json")):
        done = wane(*words)
        assert (done.code, done.out) == (1, "")
        assert "table.inbox.rule.failed.keep" in done.err
        assert "the contract has 1 mistake" in done.err


@pytest.mark.parametrize("words", [("--at", "yesterday"), ("--seconds", "0"), ("--nothing",), ("--at",)])
def test_wrong_usage_exits_two(wane: Wane, filled: Database, words: tuple[str, ...]) -> None:
    done = wane("plan", *words)
    assert (done.code, done.out) == (2, "")
    assert words[0] in done.err


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 160])
def test_a_narrow_terminal_loses_columns_before_it_folds_words(
    wane: Wane, filled: Database, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = wane("plan", "--at", AT).out.splitlines()
    table = lines[next(number for number, line in enumerate(lines) if line.startswith("rule")) :]
    assert len(table) == 3
    assert max(map(len, table)) <= width
    assert table[1].startswith("inbox.failed ")
    assert ("cutoff" in table[0]) == (width >= 60)


def test_the_url_on_the_command_line_replaces_the_contracts(wane: Wane, filled: Database, folder: Path) -> None:
    write_contract(folder, "sqlite:///nowhere.db")
    assert wane("plan", "--at", AT, "--json", "--url", filled.url).json["steps"][0]["due"] == 3


def test_rows_that_could_not_be_counted_are_not_called_none(
    wane: Wane, postgres_database: PostgresDatabase, folder: Path
) -> None:
    """On PostgreSQL, where a reader can be kept waiting."""
    fill(postgres_database)
    write_contract(folder, postgres_database.url)
    with postgres_database.connect() as other, other.transaction():
        other.execute("LOCK TABLE inbox IN ACCESS EXCLUSIVE MODE")
        done = wane("plan", "--at", AT, "--exit-code", "--seconds", "0.2")
    assert done.code == 1


@pytest.mark.parametrize("out", ["folder", "file/plan.json", "nowhere/plan.json", "/", "/proc/plan.json"])
def test_a_plan_that_cannot_be_written_is_an_error(wane: Wane, filled: Database, folder: Path, out: str) -> None:
    (folder / "folder").mkdir()
    (folder / "file").touch()
    before = sorted(folder.iterdir())
    done = wane("plan", "--out", out)
    assert (done.code, done.out) == (1, "")
    assert f"error: the plan cannot be written to {out}: " in done.err
    assert "hint: " in done.err
    assert sorted(folder.iterdir()) == before
