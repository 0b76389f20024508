"""What a database's planner expects of a statement: how it would run, how many rows it would read."""

from __future__ import annotations

from abc import ABC, abstractmethod

from wane._db.queryplan import QueryPlan
from wane._db.schema import TableInfo
from wane._db.statement import Statement


class Planner(ABC):
    """Explains and times statements that change nothing."""

    @abstractmethod
    def explain(self, statement: Statement) -> str:
        """Return the query plan, as the database prints it, empty if it has none; the statement does not run."""

    @abstractmethod
    def query_plan(self, statement: Statement) -> QueryPlan:
        """Return what the query plan of a statement reads; the statement does not run."""

    @abstractmethod
    def estimate(self, statement: Statement) -> int | None:
        """Return how many rows the planner expects a statement to read, or None where the store has no such planner."""

    @abstractmethod
    def estimate_rows(self, table: TableInfo) -> int | None:
        """Estimate how many rows a large table has without reading them; None where that is unknown."""

    @abstractmethod
    def time_read(self, statement: Statement, times: int, seconds: float) -> float:
        """Measure the seconds of a statement that changes nothing: the fastest of several runs, to reduce noise.

        Raise TimedOut if one of them takes longer than allowed.
        """
