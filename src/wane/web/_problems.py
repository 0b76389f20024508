"""Errors as answers: the status of each kind of error, and its problem document (RFC 9457)."""

from __future__ import annotations

from typing import Any

from wane.errors import (
    ArchiveBusy,
    BindError,
    ContractError,
    Locked,
    NotAllowed,
    NotInstalled,
    NotMigrated,
    PlanError,
    TimedOut,
    UnknownRule,
    UnknownTable,
    Unreachable,
    WaneError,
    WrongArgument,
    WrongArgumentType,
)

_STATUSES: tuple[tuple[type[WaneError], int], ...] = (
    (UnknownTable, 404),
    (UnknownRule, 404),
    (WrongArgument, 400),
    (WrongArgumentType, 400),
    (NotAllowed, 403),
    (Unreachable, 503),
    (TimedOut, 503),
    (Locked, 503),
    (ArchiveBusy, 409),
    (NotMigrated, 409),
    (NotInstalled, 409),
    (PlanError, 409),
    (BindError, 409),
    (ContractError, 409),
)


class RequestRefused(Exception):
    """A request that is refused before it reaches the keeper."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint


def status_of(problem: WaneError) -> int:
    """Return the HTTP status of an error."""
    return next((status for kind, status in _STATUSES if isinstance(problem, kind)), 500)


def problem_of(problem: WaneError | RequestRefused) -> dict[str, Any]:
    """Return the problem document of an error; its code is what `wane explain` explains."""
    if isinstance(problem, RequestRefused):
        return _document(problem.status, problem.code, problem.message, problem.hint)
    made = _document(status_of(problem), type(problem).__name__, problem.message, problem.hint)
    findings = getattr(problem, "findings", ())
    return {**made, "findings": [one.as_dict() for one in findings]} if findings else made


def _document(status: int, code: str, message: str, hint: str) -> dict[str, Any]:
    made = {"type": f"urn:wane:{code}", "title": code, "status": status, "detail": message, "code": code}
    return {**made, "hint": hint} if hint else made
