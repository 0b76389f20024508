"""Health as gauges: what it says is scraped, and whatever it costs or however it fails, the scrape goes on."""

from __future__ import annotations

from contextlib import closing

import pytest

from observe.reading import of
from observe.unhealthy import HOUR, World, ago, healthy, overdue, second_singleton, slow_reads, uncovered
from prune.keeping import insert
from servers import Database
from wane._contract.model import Contract
from wane._db import Store
from wane.errors import StoreError, Unreachable
from wane.observe._binding import BoundContract, bind_tables
from wane.observe._gauge import BACKLOG, HEALTHY
from wane.observe._gauges import Gauges
from wane.observe._metrics import Metrics


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


def test_an_unhealthy_table_has_no_value_and_a_reason(database: Database) -> None:
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


def test_paces_and_reads_are_reported_where_they_are_known(database: Database) -> None:
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


class Failing:
    """Reads the gauges of a store whose schema cannot be read, by a clock of its own; counts the attempts."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = world.keeper.store
        self.now = 0.0
        self.problem: Exception | None = None
        self.attempts = 0
        self.gauges = Gauges(world.keeper.contract, budget_seconds=30.0, clock=lambda: self.now)
        monkeypatch.setattr("wane.observe._probe.bind_tables", self.bind)

    def bind(self, store: Store, contract: Contract) -> BoundContract:
        self.attempts += 1
        if self.problem is not None:
            raise self.problem
        return bind_tables(store, contract)

    def healthy(self) -> list[float]:
        return [value for _, value in self.gauges.read(self.store)[HEALTHY]]


def test_what_fails_is_skipped_for_a_while_and_the_last_reading_stands_in(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    with healthy(database) as world:
        failing = Failing(world, monkeypatch)
        assert failing.healthy() == [1.0]
        failing.problem = StoreError("permission denied")
        failing.now += 61
        for _ in range(5):
            assert failing.healthy() == [1.0]
            failing.now += 15
        assert failing.attempts == 2
        failing.now += 170
        assert failing.healthy() == []
        failing.problem = None
        failing.now += 300
        assert failing.healthy() == [1.0]


def test_a_database_that_is_gone_is_no_failure_of_health(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with healthy(database) as world:
        failing = Failing(world, monkeypatch)
        failing.problem = Unreachable("gone")
        with pytest.raises(Unreachable):
            failing.healthy()


def test_without_time_nothing_is_read(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    with healthy(database) as world:
        failing = Failing(world, monkeypatch)
        failing.gauges.budget_seconds = 0.01
        assert failing.healthy() == []
        assert failing.attempts == 0


def test_own_tables_that_cannot_be_read_hide_no_backlog(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise StoreError("permission denied for table flag")

    with healthy(database) as world:
        overdue(world)
        monkeypatch.setattr("wane.observe._probe.OwnFacts", refuse)
        values = Gauges(world.keeper.contract, budget_seconds=30.0).read(world.keeper.store)
        assert (("tick", "job", "old"), 1.0) in values[BACKLOG]
        assert values[HEALTHY] == [], "nobody knows"
        with pytest.raises(StoreError, match="permission denied"):
            world.keeper.health()
