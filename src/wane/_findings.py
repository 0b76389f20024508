"""A finding: one thing that is wrong, or worth knowing, with its location and a fix.

The contract's loader and `wane check` report findings, so that users get all of them at once and scripts get them as
data.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterable
from dataclasses import field
from enum import StrEnum

from wane._frozen import frozen


class Severity(StrEnum):
    """How bad it is. Only errors stop anything."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@frozen
class Finding:
    """One finding. `code` is stable and documented; `path` is the dotted key in the contract file, `file` that file.

    `line` is the line of that key, or of the table that lacks it.
    """

    severity: Severity
    code: str
    message: str
    fix: str = ""
    file: str = ""
    path: str = ""
    table: str = ""
    line: int | None = field(default=None, compare=False)
    accepted: str | None = None
    """Why the contract accepts it, with the end of that; None if it does not."""

    @property
    def subject(self) -> str:
        """Return what it is about: `wane.toml:12 table.jobs.time`."""
        file = self.file if self.line is None else f"{self.file}:{self.line}"
        return " ".join(part for part in (file, self.path or self.table) if part)

    def __str__(self) -> str:
        text = f"{self.subject}: {self.message}" if self.subject else self.message
        return f"{text}\n  fix: {self.fix}" if self.fix else text

    def as_dict(self) -> dict[str, object]:
        return {
            "severity": self.severity.value,
            "code": self.code,
            "file": self.file,
            "line": self.line,
            "path": self.path,
            "table": self.table,
            "message": self.message,
            "fix": self.fix,
            "accepted": self.accepted,
        }


def command_line(*words: object) -> str:
    """Return a command of Wane for a shell: a name with a blank or a quote in it stays one word."""
    return shlex.join(["wane", *map(str, words)])


def pasted(*words: object) -> str:
    """Return a command of Wane as a fix shows it."""
    return f"`{command_line(*words)}`"


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def open_errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return the errors that the contract does not accept."""
    return [finding for finding in errors_of(findings) if finding.accepted is None]


def did_you_mean(word: object, allowed: Iterable[object]) -> str:
    """Suggest an allowed word for one that is not allowed; return "" if none is similar."""
    near = difflib.get_close_matches(str(word), [str(one) for one in allowed], n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else ""


def many(count: int | str, one: str, more: str = "") -> str:
    """Format a count with what it counts: `1 row`, `1,234 rows`, `more than 5 rows refer`; `more` defaults to an
    added s."""
    text = f"{count:,}" if isinstance(count, int) else count
    return f"{text} {one if text == '1' else more or f'{one}s'}"
