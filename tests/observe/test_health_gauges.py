"""Health as gauges: what it says is scraped, and whatever it costs or however it fails, the scrape goes on."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from observe.reading import of
from observe.sick import HOUR, World, ago, healthy, overdue, second_singleton, slow_reads, uncovered
from prune.keeping import insert
from servers import Database
from wane.contract.model import Contract
from wane.db import Store
from wane.errors import StoreError, Unreachable
from wane.observe.health_gauges import HEALTHY, HealthGauges
from wane.observe.metrics import Metrics


def scraped(world: World) -> bytes:
    with closing(Metrics(world.keeper.contract)) as metrics:
        metrics.watch(world.keeper.store.clone, budget_seconds=30.0, patience_seconds=60.0)
        return metrics.text()


def test_a_healthy_database_is_one(database: Database) -> None:
    with healthy(database) as world:
        text = scraped(world)
        assert of(text, "wane_healthy")[()] == 1.0
        assert of(text, "wane_uncovered_tables")[()] == 0.0
        assert b"wane_health_findings{" not in text
        assert of(text, "wane_table_late_seconds")["job",] == 0.0
        assert of(text, "wane_table_last_sweep_timestamp_seconds")["job",] == pytest.approx(ago(0) / 1000, abs=60)


def test_a_sick_one_is_none_and_says_why(database: Database) -> None:
    with healthy(database) as world:
        overdue(world)
        second_singleton(world)
        uncovered(world)
        text = scraped(world)
        assert of(text, "wane_healthy")[()] == 0.0
        assert of(text, "wane_health_findings") == {
            ("overdue", "error", "job"): 1.0,
            ("false-excuse", "error", "cache"): 1.0,
            ("uncovered-table", "warning", "stray"): 1.0,
        }
        assert of(text, "wane_uncovered_tables")[()] == 1.0
        assert of(text, "wane_table_late_seconds")["job",] == pytest.approx(2 * 3_600 - 300, abs=60)


def test_paces_and_reads_are_told_where_they_are_known(database: Database) -> None:
    with healthy(database) as world:
        slow_reads(world)
        world.record("job", "old", 50, days=HOUR)
        world.record("job", "old", 50, days=0)
        world.measure("job", 240.0)
        insert(database, "job", "id, state, at_ms", *((n, "done", ago(7 + HOUR)) for n in range(100, 200)))
        text = scraped(world)
        assert of(text, "wane_table_pruned_rows_per_hour")["job",] == pytest.approx(100, rel=0.05)
        assert of(text, "wane_table_inflow_rows_per_hour")["job",] == pytest.approx(110, rel=0.05)
        assert 0 < of(text, "wane_table_hot_read_seconds")["job",] < 1
        assert (b"wane_table_partition_recommended{" in text) == (database.store == "postgres")


class Failing(HealthGauges):
    """Tells what reading raised, and how often it was tried."""

    def __init__(self, contract: Contract, problem: Exception) -> None:
        super().__init__(contract, clock=lambda: self.now)
        self.now = 0.0
        self.problem: Exception | None = problem
        self.tried = 0
        watched = self._watcher.watched

        def failing(store: Store) -> Any:
            self.tried += 1
            if self.problem is not None:
                raise self.problem
            return watched(store)

        self._watcher.watched = failing  # type: ignore[method-assign]


def test_what_fails_is_left_alone_for_a_while_and_the_last_reading_stands_in(database: Database) -> None:
    with healthy(database) as world:
        gauges = Failing(world.keeper.contract, StoreError("no"))
        store = world.keeper.store
        gauges.problem = None
        assert (HEALTHY, (), 1.0) in gauges.read(store, 30.0)
        gauges.problem = StoreError("permission denied")
        for _ in range(5):
            gauges.now += 15
            assert (HEALTHY, (), 1.0) in gauges.read(store, 30.0)
        assert gauges.tried == 2
        gauges.now += 290
        assert gauges.read(store, 30.0) == []
        gauges.problem = None
        gauges.now += 300
        assert (HEALTHY, (), 1.0) in gauges.read(store, 30.0)


def test_a_database_that_is_gone_is_no_failure_of_health(database: Database) -> None:
    with healthy(database) as world:
        gauges = Failing(world.keeper.contract, Unreachable("gone"))
        with pytest.raises(Unreachable):
            gauges.read(world.keeper.store, 30.0)


def test_without_time_nothing_is_read(database: Database) -> None:
    with healthy(database) as world:
        gauges = Failing(world.keeper.contract, StoreError("no"))
        assert gauges.read(world.keeper.store, 0.01) == []
        assert gauges.tried == 0
