"""A finding: one thing that is wrong, or worth knowing, with its location and a fix.

The contract's loader and `wane check` report findings, so that users get all of them at once and scripts get them as
data.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad it is. Only errors stop anything."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding. `code` is stable and documented; `path` is the dotted key in the contract file, `file` that file."""

    severity: Severity
    code: str
    message: str
    fix: str = ""
    file: str = ""
    path: str = ""
    table: str = ""

    def __str__(self) -> str:
        place = " ".join(part for part in (self.file, self.path or self.table) if part)
        text = f"{place}: {self.message}" if place else self.message
        return f"{text}\n  fix: {self.fix}" if self.fix else text

    def as_dict(self) -> dict[str, str]:
        return {
            "severity": self.severity.value,
            "code": self.code,
            "file": self.file,
            "path": self.path,
            "table": self.table,
            "message": self.message,
            "fix": self.fix,
        }


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def did_you_mean(word: object, allowed: Iterable[object]) -> str:
    """Suggest an allowed word for one that is not allowed; return "" if none is similar."""
    near = difflib.get_close_matches(str(word), [str(one) for one in allowed], n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else ""
