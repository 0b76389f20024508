"""Findings that the contract accepts: marked, never hidden; an acceptance that is over or pointless is reported."""

from __future__ import annotations

from datetime import date

import pytest

from covering import EVENTS, loaded
from wane._check.acceptance import accept
from wane._contract.fingerprint import fingerprint
from wane._findings import Finding, Severity, open_errors

TODAY = date(2026, 3, 1)
ALL = {"contract", "database", "archive", "live", "health"}


def accepted(text: str, *findings: Finding, ran: set[str] = ALL) -> dict[str, str | None]:
    return {one.code: one.accepted for one in accept(loaded(text), findings, TODAY, ran=ran)}


def found(code: str, path: str = "", table: str = "") -> Finding:
    return Finding(Severity.ERROR, code, "a message", path=path, table=table)


@pytest.mark.parametrize(
    ("at", "path", "table", "matches"),
    [
        ("table.jobs.rule.done", "table.jobs.rule.done", "jobs", True),
        ("table.jobs", "table.jobs.rule.done", "jobs", True),
        ("jobs", "table.jobs.rule.done", "jobs", True),
        ("table.jobs.rule.done", "table.jobs.rule.done.with[0]", "jobs", True),
        ("table.jobs.rule.don", "table.jobs.rule.done", "jobs", False),
        ("table.job", "table.jobs.rule.done", "jobs", False),
        ("other", "table.jobs.rule.done", "jobs", False),
        (None, "", "", True),
        (None, "table.jobs.rule.done", "jobs", False),
    ],
)
def test_a_finding_is_accepted_by_its_code_and_its_subject(
    at: str | None, path: str, table: str, matches: bool
) -> None:
    at_line = "" if at is None else f'at = "{at}"\n'
    text = f'[[accept]]\ncode = "delete-trigger"\n{at_line}reason = "It only logs."\n'
    marked = accepted(text, found("delete-trigger", path, table), found("no-index", path, table))
    assert marked.pop("no-index") is None, "another code is not meant"
    assert marked["delete-trigger"] == ("It only logs." if matches else None)
    assert ("accept-unused" in marked) != matches


def test_an_error_that_is_accepted_is_no_open_error() -> None:
    text = '[[accept]]\ncode = "overdue"\nat = "jobs"\nreason = "The backlog is known."\n'
    findings = accept(loaded(text), [found("overdue", table="jobs"), found("overdue", table="mail")], TODAY, ran=ALL)
    assert [one.table for one in open_errors(findings)] == ["mail"]


def test_an_acceptance_ends_after_its_last_day() -> None:
    text = '[[accept]]\ncode = "overdue"\nat = "jobs"\nreason = "Known."\nuntil = {}\n'
    overdue = found("overdue", table="jobs")
    assert accepted(text.format("2026-03-01"), overdue) == {"overdue": "Known. (until 2026-03-01)"}
    assert accepted(text.format('"2026-02-28"'), overdue) == {"overdue": None, "accept-ended": None}


def test_an_acceptance_is_unused_only_if_every_check_that_reports_its_code_was_run() -> None:
    text = '[[accept]]\ncode = "delete-trigger"\nat = "jobs"\nreason = "It only logs."\n'
    assert accepted(text, ran={"contract"}) == {}
    assert accepted(text, ran={"contract", "database", "archive"}) == {"accept-unused": None}
    live = text.replace("delete-trigger", "overdue")
    assert accepted(live, ran={"contract", "database", "archive"}) == {}
    assert accepted(live, ran={"contract", "live"}) == {"accept-unused": None}


def test_an_unknown_code_is_an_error_of_the_contract() -> None:
    text = '[[accept]]\ncode = "delete-triger"\nat = "jobs"\nreason = "It only logs."\n'
    [one] = accept(loaded(text), [], TODAY, ran={"contract"})
    assert (one.severity, one.code, one.path, one.line) == (Severity.ERROR, "unknown-code", "accept[0]", 1)
    assert one.fix == "did you mean 'delete-trigger'?"
    assert accept(loaded(text), [], TODAY, ran={"health"}) == [], "no reason for an unhealthy verdict"


def test_acceptances_change_no_fingerprint() -> None:
    accepting = '\n[[accept]]\ncode = "overdue"\nat = "events"\nreason = "Known."\n'
    assert fingerprint(loaded(EVENTS)) == fingerprint(loaded(EVENTS + accepting))
