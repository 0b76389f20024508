"""Conservation, by a second engine: hot rows and archived rows together are every row that the application has, value by value.

DuckDB compares both multisets (`EXCEPT ALL`, both ways) after every step of a row's life, so that a row that is lost, twice, or changed on
its way shows, whatever Wane itself counts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from archive.cold import NOW_MS, Cold, cold_keeper, events, insert_events
from servers import Database
from wane._prune.sweep import Outcome

ROWS = 130
SHAPES = {
    "event": {
        "id": pa.int64(),
        "status": pa.string(),
        "at_ms": pa.int64(),
        "body": pa.string(),
        "amount": pa.float64(),
    },
    "event_read": {"id": pa.int64(), "event_id": pa.int64(), "who": pa.string()},
}


def table_of(name: str, rows: list[Any]) -> pa.Table:
    shape = SHAPES[name]
    columns = [[row[number] for row in rows] for number in range(len(shape))]
    numbers = ([None if value is None else float(value) for value in column] for column in columns[4:])
    return pa.table([*columns[:4], *numbers], schema=pa.schema(shape.items()))


def sql(text: str, **tables: pa.Table) -> pa.Table:
    with duckdb.connect() as engine:
        for name, table in tables.items():
            engine.register(name, table)
        return engine.sql(text).to_arrow_table()


class Oracle:
    """What the application has written."""

    def __init__(self, cold: Cold) -> None:
        self.cold = cold
        self.ever = {name: self.hot(name) for name in SHAPES}

    def hot(self, name: str) -> pa.Table:
        return table_of(name, self.cold.database.query(f"SELECT {', '.join(SHAPES[name])} FROM {name}"))

    def changing(self, change: Callable[[], object]) -> None:
        """Let the application change hot rows."""
        before = {name: self.hot(name) for name in SHAPES}
        change()
        for name, was in before.items():
            left = "SELECT * FROM ever EXCEPT ALL SELECT * FROM was"
            given = {"ever": self.ever[name], "was": was, "now": self.hot(name)}
            self.ever[name] = sql(f"({left}) UNION ALL SELECT * FROM now", **given)

    def run(self, statement: str) -> None:
        self.changing(lambda: self.cold.database.execute(statement))

    def compare(self) -> None:
        for name, shape in SHAPES.items():
            cold = table_of(name, [[row[column] for column in shape] for row in self.cold.archived(name)])
            given = {"ever": self.ever[name], "hot": self.hot(name), "cold": cold}
            here = "(SELECT * FROM hot UNION ALL SELECT * FROM cold)"
            lost = sql(f"SELECT * FROM ever EXCEPT ALL {here}", **given)
            extra = sql(f"{here} EXCEPT ALL SELECT * FROM ever", **given)
            assert (lost.to_pylist(), extra.to_pylist()) == ([], []), name


def test_every_row_is_hot_or_cold_while_the_application_changes_it(database: Database, tmp_path: Path) -> None:
    live(database, tmp_path)


@pytest.mark.frames_on_spark
@pytest.mark.sampled
def test_every_row_is_hot_or_cold_when_its_file_is_written_anew(database: Database, tmp_path: Path) -> None:
    live(database, tmp_path, compact=True)


def live(database: Database, tmp_path: Path, *, compact: bool = False) -> None:
    events(database, ROWS)
    with cold_keeper(database, tmp_path) as cold:
        oracle = Oracle(cold)
        # The application goes on between the copy and the eviction, and between two batches of it.
        cold.at["committed"] = lambda: oracle.run("UPDATE event SET body = 'changed' WHERE id IN (5, 70)")
        cold.at["batch"] = lambda: oracle.run(f"UPDATE event SET at_ms = {NOW_MS} WHERE id = 120")
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, 3), done.message
        oracle.compare()
        assert cold.keeper.archive.restore("event", keys=[{"id": 9}, {"id": 44}]).restored["event"] == 2
        oracle.compare()
        oracle.run("UPDATE event SET body = 'back' WHERE id = 9")
        oracle.changing(lambda: insert_events(database, range(1_001, 1_011)))
        assert cold.one().archived["event"] == 12, "ten that are new, and two that had changed"
        oracle.compare()
        if compact:
            assert {one.outcome for one in cold.keeper.archive.compact()} == {Outcome.DONE}
            oracle.compare()
