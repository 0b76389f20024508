"""`wane claims` and `wane coordination work-vacuum`, as people and scripts use them."""

from __future__ import annotations

import importlib
import sys
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest

from claims.working import DAY, finish, granted, make_older, tasks, working
from cli.conftest import Wane
from servers import Database

COMMANDS = [("claims", "vacuum"), ("coordination", "work-vacuum")]


@pytest.fixture
def worked(database: Database) -> Database:
    """Create finished, claimed, expired and available work."""
    with working(database) as claims:
        for task, outcome, days in (
            ("completed-old", "completed", 8),
            ("completed-recent", "completed", 6),
            ("abandoned-old", "abandoned", 2),
            ("abandoned-recent", "abandoned", 0.5),
        ):
            finish(claims, task, outcome)
            make_older(database, task, days * DAY)
        granted(claims.claim("held", "ada", 600))
        granted(claims.claim("expired", "bob", 60))
        make_older(database, "expired", timedelta(minutes=5))
        claims.submit("free")
    return database


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_vacuum_reports_counts_per_state(wane: Wane, worked: Database, command: tuple[str, ...]) -> None:
    done = wane(*command, "--completed-age-hours", 168, "--abandoned-age-hours", 24, "--url", worked.url)
    assert done.code == 0
    assert "completed 1 pruned" in done.out
    assert "abandoned 1 pruned" in done.out
    assert tasks(worked) == ["abandoned-recent", "completed-recent", "expired", "free", "held"]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_vacuum_in_json(wane: Wane, worked: Database, command: tuple[str, ...]) -> None:
    done = wane(*command, "--completed-age-hours", 168, "--url", worked.url, "--json", "--actor", "cron")
    assert (done.code, done.err) == (0, "")
    assert done.json["rows"] == 1
    assert done.json["more"] is False
    assert list(done.json["states"]) == ["completed"]
    state = done.json["states"]["completed"]
    assert (state["rows"], state["age_hours"], len(state["audit_ids"])) == (1, 168.0, 1)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_vacuum_without_any_threshold_explains_and_fails(
    wane: Wane, worked: Database, command: tuple[str, ...]
) -> None:
    before = tasks(worked)
    done = wane(*command, "--url", worked.url)
    assert (done.code, done.out) == (2, "")
    assert "no threshold, no deletion" in " ".join(done.err.split())
    assert "--completed-age-hours 168" in " ".join(done.err.split())
    assert tasks(worked) == before


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "inf", "1e12", "soon"])
@pytest.mark.parametrize("option", ["--completed-age-hours", "--abandoned-age-hours"])
def test_an_age_that_cannot_be_meant_is_wrong_usage(wane: Wane, worked: Database, option: str, hours: str) -> None:
    before = tasks(worked)
    done = wane("claims", "vacuum", option, hours, "--url", worked.url)
    assert (done.code, done.out) == (2, "")
    assert option in done.err
    assert tasks(worked) == before


def test_the_program_coordination_is_installed_and_vacuums(
    worked: Database, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["coordination"].partition(":")
    program = getattr(importlib.import_module(module), name)

    def run(*words: object) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["coordination", *map(str, words)])
        capfd.readouterr()
        try:
            program()
        except SystemExit as end:
            return end.code or 0, *capfd.readouterr()
        return 0, *capfd.readouterr()

    before = tasks(worked)
    code, out, err = run("work-vacuum", "--url", worked.url)
    assert (code, out) == (2, "")
    assert "no threshold, no deletion" in " ".join(err.split())
    assert "coordination work-vacuum" in err
    assert tasks(worked) == before
    code, out, _ = run("work-vacuum", "--completed-age-hours", 168, "--abandoned-age-hours", 24, "--url", worked.url)
    assert code == 0
    assert "completed 1 pruned" in out
    assert tasks(worked) == ["abandoned-recent", "completed-recent", "expired", "free", "held"]
    code, _, err = run("work-vacuum", "--completed-age-hours", 168, "--url", "sqlite:///missing.db")
    assert (code, "Traceback" in err) == (1, False)
    assert run("--help")[0] == 0
    assert run("work-claim")[0] == 2


def test_a_dry_run_reports_and_takes_nothing(wane: Wane, worked: Database) -> None:
    before = tasks(worked)
    words = ("claims", "vacuum", "--completed-age-hours", 168, "--abandoned-age-hours", 24, "--dry-run")
    done = wane(*words, "--url", worked.url)
    assert done.code == 0
    assert "completed 1 would leave" in done.out
    assert "nothing was changed" in done.err
    as_json = wane(*words, "--json", "--url", worked.url).json
    assert as_json["dry_run"] is True
    assert (as_json["states"]["abandoned"]["due"], as_json["states"]["abandoned"]["due_exactness"]) == (1, "exact")
    assert tasks(worked) == before


def test_a_limit_states_that_there_may_be_more(wane: Wane, worked: Database) -> None:
    done = wane(
        "claims", "vacuum", "--completed-age-hours", 1, "--abandoned-age-hours", 1, "--limit", 2, "--url", worked.url
    )
    assert "there may be more" in done.err
    assert len(tasks(worked)) == 5


def test_a_contract_file_is_used_where_there_is_one(wane: Wane, worked: Database, folder: Path) -> None:
    (folder / "wane.toml").write_text(
        f'include = ["reference:claims"]\n[store]\nurl = "{worked.url}"\n[floor]\nwork_claims = "20h"\n'
    )
    done = wane("claims", "vacuum", "--abandoned-age-hours", 1)
    assert done.code == 1
    assert "floor" in done.err
    assert wane("claims", "list").code == 0


def test_a_contract_that_is_named_and_missing_is_an_error(wane: Wane, worked: Database) -> None:
    done = wane("claims", "list", "--contract", "missing.toml", "--url", worked.url)
    assert (done.code, done.out) == (1, "")


def test_work_is_listed_by_state(wane: Wane, worked: Database) -> None:
    done = wane("claims", "list", "--url", worked.url)
    assert done.code == 0
    assert [line.split()[:2] for line in done.out.splitlines()[1:]] == [
        ["free", "available"],
        ["expired", "expired"],
        ["held", "claimed"],
        ["completed-old", "completed"],
        ["completed-recent", "completed"],
        ["abandoned-old", "abandoned"],
        ["abandoned-recent", "abandoned"],
    ]
    claimed = wane("claims", "list", "--state", "claimed", "--json", "--url", worked.url).json
    assert [(one["task_id"], one["owner"], one["expired"]) for one in claimed] == [
        ("expired", "bob", True),
        ("held", "ada", False),
    ]
    expired = wane("claims", "list", "--expired", "--json", "--url", worked.url).json
    assert [one["task_id"] for one in expired] == ["expired"]
    assert len(wane("claims", "list", "--limit", 1, "--json", "--url", worked.url).json) == 4


def test_a_state_that_does_not_exist_is_wrong_usage(wane: Wane, worked: Database) -> None:
    done = wane("claims", "list", "--state", "complete", "--url", worked.url)
    assert done.code == 2
    assert "completed" in done.err
    assert wane("claims", "list", "--state", "claimed", "--expired", "--url", worked.url).code == 2


def test_work_is_shown_and_remembered_after_it_was_pruned(wane: Wane, worked: Database) -> None:
    shown = wane("claims", "show", "held", "--url", worked.url)
    assert "ada" in shown.out
    wane("claims", "vacuum", "--completed-age-hours", 168, "--url", worked.url)
    gone = wane("claims", "show", "completed-old", "--url", worked.url)
    assert (gone.code, gone.err) == (0, "")
    assert "was completed by ada" in gone.out
    assert "its row is gone, and it is remembered for ever" in gone.out
    as_json = wane("claims", "show", "completed-old", "--json", "--url", worked.url).json
    assert as_json["work"] is None
    assert as_json["remembered"]["pruned"] is True
    unknown = wane("claims", "show", "nobody-knows", "--url", worked.url)
    assert (unknown.code, unknown.out) == (1, "")
    assert "nothing is known" in unknown.err


def test_expired_claims_are_returned(wane: Wane, worked: Database) -> None:
    done = wane("claims", "return-expired", "--url", worked.url)
    assert done.code == 0
    assert "expired of bob" in done.out
    assert "1 returned" in done.err
    assert wane("claims", "return-expired", "--json", "--url", worked.url).json == []
    assert [
        one["task_id"] for one in wane("claims", "list", "--state", "available", "--json", "--url", worked.url).json
    ] == [
        "expired",
        "free",
    ]


def test_the_tables_are_installed_printed_and_missed(wane: Wane, database: Database) -> None:
    missing = wane("claims", "list", "--url", database.url)
    assert (missing.code, missing.out) == (1, "")
    assert "wane claims install" in missing.err
    printed = wane("claims", "install", "--print", "--url", database.url)
    assert "CREATE TABLE work_claims (" in printed.out
    assert wane("claims", "list", "--url", database.url).code == 1, "printing runs nothing"
    assert wane("claims", "install", "--print", "--json", "--url", database.url).json["missing"][0]["what"] == (
        "the table work_claims"
    )
    done = wane("claims", "install", "--url", database.url)
    assert "created the table work_claims" in done.err
    assert wane("claims", "install", "--json", "--url", database.url).json == {"created": []}
    assert wane("claims", "install", "--print", "--url", database.url).out == ""
    assert wane("claims", "list", "--url", database.url).code == 0


def test_the_sql_that_is_printed_can_be_run_by_hand(wane: Wane, database: Database) -> None:
    database.script(wane("claims", "install", "--print", "--url", database.url).out)
    assert wane("claims", "install", "--json", "--url", database.url).json == {"created": []}
