"""Findings that the contract accepts: marked with the reason, and reported where an acceptance is over or pointless.

It changes reports and exit codes, never what may be deleted: a rule that is refused stays refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import date

from wane._check.explain import explanations, suggest_code
from wane._contract.model import Accepted, Contract
from wane._findings import Finding, Severity

REPORTS = frozenset(("contract", "database", "archive", "live", "health"))
"""What reports findings; errors of commands cannot be accepted."""


def accept(contract: Contract, findings: Iterable[Finding], today: date, *, ran: Collection[str]) -> list[Finding]:
    """Return the findings with those marked that the contract accepts, and what is wrong with its acceptances.

    `ran` are the checks that were run (see `Explanation.reports`): only of their codes it is known that none occurs.
    """
    valid = [one for one in contract.accepted if one.until is None or today <= one.until]
    marked = [_mark(finding, valid) for finding in findings]
    return [*marked, *_problems(contract.accepted, marked, valid, ran)]


def _mark(finding: Finding, valid: Sequence[Accepted]) -> Finding:
    for one in valid:
        if one.matches(finding):
            return replace(finding, accepted=one.reason if one.until is None else f"{one.reason} (until {one.until})")
    return finding


def _problems(
    accepted: Sequence[Accepted], found: Sequence[Finding], valid: Sequence[Accepted], ran: Collection[str]
) -> Iterable[Finding]:
    for one in accepted:
        known = explanations().get(one.code)
        reports = REPORTS.intersection(() if known is None else known.reports)
        about = f"{one.code} at {one.at}" if one.at else one.code
        if not reports and "contract" not in ran:
            continue  # A mistake in the file, which `wane check` reports.
        if not reports:
            fix = suggest_code(one.code) or "write the code as the finding shows it"
            yield _problem(one, Severity.ERROR, "unknown-code", f"no finding has the code {one.code!r}", fix)
        elif one not in valid:
            fix = "correct what the finding reports, or decide anew and write a later `until`"
            yield _problem(one, Severity.WARNING, "accept-ended", f"{about} was accepted until {one.until}", fix)
        elif _ran_all(reports, ran) and not any(one.matches(finding) for finding in found):
            fix = "remove this entry, or write `at` as the finding shows it now"
            yield _problem(one, Severity.WARNING, "accept-unused", f"no finding {about} occurs", fix)


def _ran_all(reports: Collection[str], ran: Collection[str]) -> bool:
    """Return whether every check that reports a code was run; what health reports too, a check of promises finds."""
    return bool(set(reports) & set(ran)) and set(reports) - {"health"} <= set(ran)


def _problem(one: Accepted, severity: Severity, code: str, message: str, fix: str) -> Finding:
    return Finding(severity, code, message, fix, one.file, one.path, line=one.line)
