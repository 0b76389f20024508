"""What PostgreSQL's planner expects of statements: query plans and estimates."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from wane._db.planner import Planner
from wane._db.queryplan import QueryPlan, read_postgres_plan
from wane._db.schema import Kind, TableInfo
from wane._db.statement import Statement

if TYPE_CHECKING:
    from wane._db.postgres.store import PostgresStore

_ESTIMATE = {
    # A parallel plan would report the rows of one worker.
    "max_parallel_workers_per_gather": "0",
    # An estimate is not worth waiting for.
    "lock_timeout": "200ms",
}
_PARTS = """
SELECT class.reltuples::float8, class.relpages, pg_relation_size(class.oid) / current_setting('block_size')::float8
FROM pg_partition_tree(%(table)s::regclass) AS part JOIN pg_class AS class ON class.oid = part.relid
WHERE part.isleaf
"""
_LEAST_PLANNED_PAGES = 10
"""As many pages as the planner supposes that a table has that was never analyzed."""


def _rows_of_parts(planned: int, parts: Sequence[tuple[float, int, float]]) -> int:
    """Estimate the rows of all partitions by their sizes: the planner supposes rows in those that are new and empty."""
    known = [(tuples / pages, size) for tuples, pages, size in parts if tuples >= 0 and pages > 0]
    new = [size for tuples, pages, size in parts if tuples < 0 or pages == 0]
    counted, pages = sum(density * size for density, size in known), sum(size for _, size in known)
    supposed = sum(max(size, _LEAST_PLANNED_PAGES) for size in new)
    density = counted / pages if pages else planned / supposed if supposed else 0.0
    return round(counted + density * sum(new))


class PostgresPlanner(Planner):
    """The planner of a PostgreSQL database."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def explain(self, statement: Statement) -> str:
        if statement.text.startswith("LOCK TABLE"):
            return ""
        with self._store.reading("the statement cannot be explained") as connection:
            found = connection.execute(f"EXPLAIN {statement.text}", statement.parameters).fetchall()
        return "\n".join(line for (line,) in found)

    def query_plan(self, statement: Statement) -> QueryPlan:
        return read_postgres_plan(self._tree(statement))

    def estimate(self, statement: Statement) -> int | None:
        node = self._tree(statement, _ESTIMATE)
        while node["Node Type"] == "Aggregate":
            # Besides its input, a node lists the subqueries of its conditions.
            node = next(one for one in node["Plans"] if one["Parent Relationship"] == "Outer")
        return int(node["Plan Rows"])

    def estimate_rows(self, table: TableInfo) -> int | None:
        name = self._store.dialect.table(table)
        planned = self.estimate(Statement(f"SELECT 1 FROM {name}", {}))
        if planned is None or table.kind is not Kind.PARTITIONED:
            return planned
        with self._store.reading("the database refused to answer") as connection:
            parts = connection.execute(_PARTS, {"table": name}).fetchall()
        return _rows_of_parts(planned, parts)

    def time_read(self, statement: Statement, times: int, seconds: float) -> float:
        taken = []
        with self._store.reading_for(seconds, by_index=True) as connection:
            for _ in range(times):
                began = time.perf_counter()
                connection.execute(statement.text, statement.parameters, prepare=connection.may_prepare).fetchall()
                taken.append(time.perf_counter() - began)
        return min(taken)

    def _tree(self, statement: Statement, settings: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
        text = f"EXPLAIN (FORMAT JSON) {statement.text}"
        [([tree],)] = self._store.read_one("the statement cannot be explained", text, statement.parameters, settings)
        return tree["Plan"]  # type: ignore[no-any-return]
