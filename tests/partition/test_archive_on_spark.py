"""Months whose rows leave through the archive first, on Spark itself."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from partition.partitioning import keeping, partitions
from partition.test_retire import COLD, OLDEST, PAST, SCHEMA, aged, count, outcomes
from races.racing import Background, await_true
from servers import PostgresDatabase
from wane.events import Event, PartitionStep

pytestmark = pytest.mark.group("spark")


def test_months_are_archived_on_spark_and_then_dropped(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(SCHEMA)
    with keeping(postgres_database, tmp_path, COLD.format(folder=tmp_path)) as keeper:
        aged(postgres_database, keeper)
        before = count(postgres_database, "event"), count(postgres_database, "event_read")
        done = keeper.partition.retire("event")
        assert outcomes(done)[PAST] == "dropped"
        assert PAST not in partitions(postgres_database)
        cold = {table.table: table.rows for table in keeper.archive.tables()}
        assert cold["event"] == before[0] - count(postgres_database, "event")
        assert cold["event_read"] == before[1] - count(postgres_database, "event_read")
        dropped = [entry for entry in keeper.audit(kind="drop") if entry.inputs["partition"] == PAST]
        assert [sum(entry.counts.values()) for entry in dropped] == [0], "its rows had left before it did"


@pytest.mark.sampled
def test_a_runner_archives_rows_and_lets_their_months_go(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(SCHEMA)
    reported: list[Event] = []
    with keeping(postgres_database, tmp_path, COLD.format(folder=tmp_path), reported.append) as keeper:
        aged(postgres_database, keeper)
        before = count(postgres_database, "event")
        remaining = f"event_p_{OLDEST.later().name}"
        postgres_database.execute(
            f"UPDATE {remaining} SET status = 'open' WHERE id = (SELECT min(id) FROM {remaining})"
        )
        assert keeper.run(max_runs=1).failures == 0
        assert count(postgres_database, PAST) == 0, "its rows were archived"
        # What one window archives, the next run finds empty.
        stop = threading.Event()
        running = Background(lambda: keeper.run(stop=stop))
        await_true(lambda: PAST not in partitions(postgres_database), "the month has left")
        stop.set()
        assert running.result().failures == 0
        assert count(postgres_database, remaining) == 1, "a row that is live keeps its month"
        [cold] = [table for table in keeper.archive.tables() if table.table == "event"]
        assert cold.rows == before - count(postgres_database, "event")
    assert [event.step for event in reported if isinstance(event, PartitionStep) and event.partition == PAST] == [
        "quarantined",
        "dropped",
    ]
