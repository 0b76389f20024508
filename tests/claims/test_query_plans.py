"""Nothing is O(rows): every statement of a claim goes by an index to the rows that it touches, however many there
are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from claims.working import stamp, working
from servers import Database
from wane._db.statement import Statement
from wane.claims import WorkClaims
from wane.claims._sql import ClaimStatements, claim_statements

ROWS = 12_000
LIMIT = 20
TOUCHED = 100
"""Far fewer than there are, and than there are of any state."""
NOW = datetime.now(UTC)

STATEMENTS: dict[str, Callable[[ClaimStatements], Statement]] = {
    "find": lambda s: s.find("available-00010", NOW),
    "remembered": lambda s: s.remembered("completed-00010", NOW),
    "written": lambda s: s.written("completed-00010", 7),
    "submit": lambda s: s.submit("new", NOW),
    "take available": lambda s: s.take("available-00010", "ada", NOW, timedelta(seconds=60)),
    "take expired": lambda s: s.take("claimed-00010", "ada", NOW, timedelta(seconds=60)),
    "take finished": lambda s: s.take("completed-00010", "ada", NOW, timedelta(seconds=60)),
    "reopen": lambda s: s.reopen("completed-00010", "completed", 7, NOW),
    "forget": lambda s: s.forget("completed-00010", 7),
    "extend": lambda s: s.extend("claimed-02900", "ada", 7, NOW, timedelta(seconds=60)),
    "finish": lambda s: s.finish(
        "claimed-02900", "ada", 7, state="completed", now=NOW, remembered_until=None, reason=None
    ),
    "list available": lambda s: s.in_state("available", NOW, LIMIT),
    "list claimed": lambda s: s.in_state("claimed", NOW, LIMIT),
    "list completed": lambda s: s.in_state("completed", NOW, LIMIT),
    "list abandoned": lambda s: s.in_state("abandoned", NOW, LIMIT),
    "list expired": lambda s: s.expired(NOW, LIMIT),
    "return expired": lambda s: s.return_expired(NOW, LIMIT)[0],
    "return expired, then": lambda s: s.return_expired(NOW, LIMIT)[-1],
}


def fill(database: Database) -> None:
    """Insert a quarter of the rows in each state; most claims have expired; each finished row has its tombstone."""
    rows = []
    for number in range(ROWS):
        state = ("available", "claimed", "completed", "abandoned")[number % 4]
        at = stamp(database, NOW - timedelta(seconds=ROWS - number))
        expires = stamp(database, NOW + timedelta(seconds=number - ROWS + 1_000)) if state == "claimed" else None
        completed, abandoned = at if state == "completed" else None, at if state == "abandoned" else None
        rows.append((f"{state}-{number // 4:05}", state, "ada", 7, at, expires, completed, abandoned, None))
    database.executemany(
        "INSERT INTO work_claims (task_id, state, owner, fence, created_at, expires_at, completed_at, abandoned_at,"
        " remembered_until) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        rows,
    )
    database.execute("ANALYZE")


@pytest.fixture
def full(database: Database) -> Iterator[tuple[WorkClaims, Database]]:
    with working(database) as claims:
        fill(database)
        yield claims, database


def test_every_statement_goes_by_an_index(full: tuple[WorkClaims, Database]) -> None:
    claims, database = full
    statements = claim_statements(claims.store, "main" if database.store == "sqlite" else "public")
    for name, make in STATEMENTS.items():
        statement = make(statements)
        plan = claims.store.planner.explain(statement)
        read = steps(database, statement) if database.store == "sqlite" else rows_read(database, statement)
        if database.store == "sqlite":
            assert not re.search(r"SCAN (?!CONSTANT)|TEMP B-TREE FOR ORDER BY", plan), (name, plan)
            assert read * 100 < 200 * TOUCHED, (name, read, plan)
        else:
            assert read <= TOUCHED, (name, read, plan)


def steps(database: Database, statement: Statement) -> int:
    """Return hundreds of steps of SQLite's machine."""
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    connection = database.connect()
    connection.execute("BEGIN")
    connection.set_progress_handler(tick, 100)
    connection.execute(statement.text, statement.parameters).fetchall()
    connection.execute("ROLLBACK")
    return count


def rows_read(database: Database, statement: Statement) -> int:
    connection = database.connect()
    connection.execute("BEGIN")
    text = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement.text}"
    [([answer],)] = connection.execute(text.encode(), statement.parameters).fetchall()
    connection.execute("ROLLBACK")
    return max(_read(node) for node in _nodes(answer["Plan"]))


def _read(node: dict[str, Any]) -> int:
    removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Join Filter", 0)
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])


def _nodes(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield tree
    for inner in tree.get("Plans", []):
        yield from _nodes(inner)
