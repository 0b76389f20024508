"""What SQLite's planner expects of statements: their query plans; it does not report its estimates."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from wane._db.planner import Planner
from wane._db.queryplan import QueryPlan, read_sqlite_plan
from wane._db.schema import TableInfo
from wane._db.statement import Statement

if TYPE_CHECKING:
    from wane._db.sqlite.store import SqliteStore


class SqlitePlanner(Planner):
    """The planner of a SQLite database."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    def explain(self, statement: Statement) -> str:
        depth: dict[int, int] = {0: -1}
        lines = []
        for identifier, parent, _, detail in self._explained(statement):
            depth[identifier] = depth.get(parent, -1) + 1
            lines.append("  " * depth[identifier] + detail)
        return "\n".join(lines)

    def query_plan(self, statement: Statement) -> QueryPlan:
        return read_sqlite_plan(self._explained(statement))

    def _explained(self, statement: Statement) -> list[tuple[Any, ...]]:
        with self._store.reading("the statement cannot be explained") as connection:
            return connection.execute(f"EXPLAIN QUERY PLAN {statement.text}", statement.parameters).fetchall()

    def estimate(self, statement: Statement) -> int | None:
        del statement
        return None

    def estimate_rows(self, table: TableInfo) -> int | None:
        return table.rows_estimate  # What ANALYZE counted, or nothing.

    def time_read(self, statement: Statement, times: int, seconds: float) -> float:
        taken = []
        for _ in range(times):
            began = time.perf_counter()
            self._store.read(statement, seconds)
            taken.append(time.perf_counter() - began)
        return min(taken)
