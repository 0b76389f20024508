"""A statement of a rule as the engine runs it: what for, and when."""

from __future__ import annotations

from typing import NamedTuple

from wane._db.schema import TableInfo
from wane._db.statement import Statement

IF_LOCKED = "if others hold locks"
IF_LARGE = "if the table is large, without an index that serves"
IF_MANY = "if a row has more followers than fit into a batch"


class RunStep(NamedTuple):
    """One statement. Those of a rule are listed in the order in which they run."""

    purpose: str
    statement: Statement | None
    """None if the rule does not need it."""
    condition: str = ""
    """When it runs; empty if always."""
    losing: TableInfo | None = None
    """The table whose rows it takes, if they may be moved instead of deleted."""

    @property
    def described(self) -> str:
        return f"{self.condition}: {self.purpose}" if self.condition else self.purpose
