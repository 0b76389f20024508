"""A plan: what is due now under each rule, frozen, so that it can be reviewed and later applied exactly as read."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, field
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wane._db.counting import Count, Exactness, Figure, read_stated, stated, stated_each
from wane._db.timestamps import DAY_SHAPE
from wane._findings import Finding
from wane._frozen import frozen
from wane.errors import PlanError

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORMAT = 4
"""The version of the plan file; a file of another version is refused."""


@frozen
class StepStatement:
    """A statement that a rule runs on the user's tables: its exact text, and the values of a first batch.

    Keys that a batch reads are shown as `…`.
    """

    purpose: str
    text: str
    parameters: dict[str, Any]
    query_plan: str = ""


@frozen
class Takes:
    """How long the next sweep of a rule takes, learned from its latest sweeps: pauses and budgets included."""

    low_seconds: float
    high_seconds: float
    exactness: Exactness
    """"estimate", or "at least" if only some of the due rows were counted."""
    sweeps: int
    """The number of sweeps that it was learned from."""

    def as_dict(self) -> dict[str, Any]:
        return {
            **stated("low_seconds", Figure(self.low_seconds, self.exactness)),
            **stated("high_seconds", Figure(self.high_seconds, self.exactness)),
            "sweeps": self.sweeps,
        }


@frozen
class BudgetStop:
    """The budget that ends the next sweep of a rule before everything that is due has left."""

    budget: str
    """"rows", "seconds" or "batches"."""
    limit: int
    rows: int
    """The rows that one sweep takes, followers included; by its latest sweeps, unless the limit is of rows."""
    sweeps: int
    """The sweeps until nothing is due, at the least."""
    setting: str
    """What raises the budget."""


@frozen
class ArchiveWait:
    """What a scheduled sweep to the archive waits for, while fewer rows are due."""

    least_rows: int
    longest_seconds: float
    """How long a due row waits at the most."""


@frozen
class Step:
    """One rule of a plan."""

    table: str
    rule: str
    action: str
    """"prune", "archive", "shelve" or "mark"."""
    cutoff: datetime | None
    """Rows are due strictly before it; for an expiry, at or before it. A cap has none."""
    due: Count | None
    """None: could not be counted in the time allowed."""
    oldest: datetime | date | None
    """The time of the oldest due row; the day, where the column has days."""
    newest: datetime | date | None
    followers: dict[str, Count | None]
    table_rows: Count | None
    share: float | None
    """Due rows as a share of the table's."""
    takes: Takes | None
    """How long the next sweep takes; None: unknown, because it was never swept, or not by a sweep of rows."""
    swept: bool
    """False for tables that only an explicit prune touches."""
    statements: tuple[StepStatement, ...]
    """What takes the rows, in the order in which it runs."""
    live_followers: tuple[str, ...] = ()
    """Followers of which rows leave also in a live state, because the contract allows it."""
    share_exactness: Exactness | None = None
    stop: BudgetStop | None = None
    """The budget that ends the next sweep; None: it takes everything, or that is unknown."""
    waits: ArchiveWait | None = None
    """What the next scheduled sweep of a rule that archives waits for; None: nothing."""
    transform: dict[str, Any] | None = None
    """What happens to columns of the rows on the way to the archive; None: nothing."""
    saved_by_followers: Count | None = None
    """Rows that would be due if no row in a live state followed them; counted only where a plan is explained."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as the plan file has it: every number with its exactness beside it."""
        return {
            "table": self.table,
            "rule": self.rule,
            "action": self.action,
            "cutoff": self.cutoff,
            **stated("due", self.due),
            "oldest": self.oldest,
            "newest": self.newest,
            **stated_each("followers", self.followers),
            "live_followers": self.live_followers,
            **stated("table_rows", self.table_rows),
            "share": self.share,
            "share_exactness": self.share_exactness,
            "takes": None if self.takes is None else self.takes.as_dict(),
            "stop": None if self.stop is None else asdict(self.stop),
            "waits": None if self.waits is None else asdict(self.waits),
            "transform": self.transform,
            **stated("saved_by_followers", self.saved_by_followers),
            "swept": self.swept,
            "statements": [asdict(one) for one in self.statements],
        }


@frozen
class Plan:
    """What is due now."""

    made_at: datetime
    """The time that decides what is due, by the database's clock."""
    fingerprint: str
    """The fingerprint of the contract's promises."""
    database: str
    """The database's identity."""
    url: str
    """Its URL without secrets."""
    steps: tuple[Step, ...]
    total: Count
    """The rows due under any of the rules, each counted once."""
    problems: tuple[Finding, ...] = ()
    """Rules that do not fit the database and so are not planned."""
    format: int = field(default=FORMAT)

    @property
    def due(self) -> int:
        """Return the rows due under any of the rules, as far as they could be counted."""
        return self.total.rows

    def as_dict(self) -> dict[str, Any]:
        """Return it as the plan file has it."""
        return {
            "format": self.format,
            "made_at": self.made_at,
            "fingerprint": self.fingerprint,
            "database": self.database,
            "url": self.url,
            **stated("total", self.total),
            "steps": [step.as_dict() for step in self.steps],
            "problems": [finding.as_dict() for finding in self.problems],
        }

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), indent=2, ensure_ascii=False, default=_plain)

    def write(self, path: Path) -> None:
        """Write the plan to a file, whole or not at all."""
        hint = "name a file in a folder that can be written"
        if not path.name:
            raise PlanError(f"the plan cannot be written to {path}: it is a directory", hint)
        partial = path.with_name(path.name + ".partial")
        try:
            partial.write_text(self.as_json() + "\n", encoding="utf-8")
            partial.replace(path)
        except (OSError, ValueError) as problem:
            with suppress(OSError, ValueError):
                partial.unlink()
            reason = problem.strerror if isinstance(problem, OSError) else problem
            raise PlanError(f"the plan cannot be written to {path}: {reason}", hint) from problem


@cache
def _adapter() -> TypeAdapter[Plan]:
    from pydantic import TypeAdapter

    return TypeAdapter(Plan)


def _plain(value: object) -> str:
    """Write timestamps as all of Wane's JSON does, and other values of parameters as they are shown."""
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _decode(content: Any) -> Any:
    """Return the content of a plan file with its numbers as counts; what is not a plan's is refused later."""
    if not isinstance(content, dict) or not isinstance(content.get("steps"), list):
        return content
    steps = [_decode_step(step) if isinstance(step, dict) else step for step in content["steps"]]
    return {**content, **_read_counts(content, "total"), "steps": steps}


def _decode_step(step: dict[str, Any]) -> dict[str, Any]:
    counts = _read_counts(step, "due", "followers", "table_rows", "saved_by_followers")
    edges = {name: date.fromisoformat(step[name]) for name in ("oldest", "newest") if _is_day(step.get(name))}
    takes = step.get("takes")
    if isinstance(takes, dict):
        takes = {**takes, "exactness": takes.get("low_seconds_exactness")}
    return {**step, **counts, **edges, "takes": takes}


def _is_day(value: object) -> bool:
    return isinstance(value, str) and DAY_SHAPE.fullmatch(value) is not None


def _read_counts(report: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: read_stated(report, name) for name in names if name in report}


def read_plan(path: Path) -> Plan:
    """Read a plan file; raise PlanError if it is not one."""
    try:
        content = json.loads(path.read_bytes())
        written_as = content.get("format") if isinstance(content, dict) else None
        if isinstance(written_as, int) and written_as != FORMAT:
            raise PlanError(f"{path} was written by another version of Wane", "plan again")
        return _adapter().validate_python(_decode(content))
    except OSError as problem:
        raise PlanError(
            f"{path} cannot be read: {problem.strerror}", "name a file that `wane plan --out FILE` wrote"
        ) from problem
    except (ValueError, RecursionError) as problem:  # ValidationError is a ValueError, and so is every JSON mistake.
        raise PlanError(f"{path} is not a plan", "write one with `wane plan --out FILE`") from problem
