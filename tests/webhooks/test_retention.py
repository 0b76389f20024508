"""Passes and the loop: one transaction, due times from the trail, and no failure that ends it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Iterator

import pytest

from servers import Database, PostgresDatabase
from wane._async_keeper import AsyncKeeper
from wane.errors import StoreError
from wane.events import Event, HardDeleted, RetentionPassFailed, RowsPruned
from wane.webhooks import (
    AsyncWebhookRetention,
    PruneDeliveriesResult,
    PruneEventsResult,
    RetentionPassResult,
    RetentionPolicy,
    RetentionRuns,
    WebhookRetention,
)
from webhooks.hooks import T, audits, contract, count, delivery, event, events, prepare
from webhooks.test_prune import keep_attempts

DAY = 86_400
BOTH = RetentionPolicy(interval_s=3600, event_older_than_s=7 * DAY, orphan_deliveries_older_than_s=DAY)
QUICK = RetentionPolicy(interval_s=0.05, event_older_than_s=7 * DAY)


@pytest.fixture
def webhooks(database: Database) -> Iterator[WebhookRetention]:
    prepare(database)
    with WebhookRetention.open(database.url, contract=contract()) as opened:
        yield opened


def fill(database: Database) -> None:
    now = int(time.time())
    event(database, 1, "handled", now - 8 * DAY, attempts=2, deliveries=1, jobs=["knocker.events"])
    event(database, 2, "handled", now - 6 * DAY)
    delivery(database, now - 2 * DAY)
    delivery(database, now - DAY // 2)


def test_a_pass_takes_what_the_policy_enables_with_one_audit_row_each(
    webhooks: WebhookRetention, database: Database
) -> None:
    fill(database)
    taken = webhooks.run_retention_pass(BOTH)
    assert taken == RetentionPassResult(PruneEventsResult(1, 2, 1, 1), PruneDeliveriesResult(1))
    assert events(database) == [2]
    assert count(database, "knocker_deliveries") == 1
    assert [audit.kind for audit in webhooks.list_prune_audits()] == ["prune_orphan_deliveries", "prune_events"]


def test_a_path_without_a_window_is_off(webhooks: WebhookRetention, database: Database) -> None:
    fill(database)
    assert webhooks.run_retention_pass(QUICK).orphan_deliveries is None
    assert webhooks.run_retention_pass(RetentionPolicy(orphan_deliveries_older_than_s=DAY)).events is None
    assert audits(database) == 2


def test_a_pass_is_all_or_nothing(webhooks: WebhookRetention, database: Database) -> None:
    now = int(time.time())
    event(database, 1, "handled", now - 8 * DAY)
    delivery(database, now - 2 * DAY)
    keep(database, "knocker_deliveries")
    with pytest.raises(StoreError):
        webhooks.run_retention_pass(BOTH)
    assert events(database) == [1]
    assert audits(database) == 0


def test_a_pass_inside_the_callers_transaction_vanishes_with_it(webhooks: WebhookRetention, database: Database) -> None:
    fill(database)
    connection = database.connect()
    connection.execute("BEGIN")
    webhooks.run_retention_pass(BOTH, connection=connection)
    connection.execute("ROLLBACK")
    assert events(database) == [1, 2]
    assert audits(database) == 0


def test_the_loop_runs_as_often_as_it_is_reported(webhooks: WebhookRetention, database: Database) -> None:
    assert webhooks.run_retention(QUICK, max_runs=3) == RetentionRuns(passes=3, failures=0)
    assert audits(database) == 3


def test_passes_of_the_loop_keep_the_interval(webhooks: WebhookRetention) -> None:
    policy = RetentionPolicy(interval_s=0.3, event_older_than_s=DAY)
    webhooks.run_retention(policy, max_runs=3)
    third, second, first = (entry.executed_at for entry in webhooks.keeper.audit(kind="prune_events"))
    # SQLite writes milliseconds.
    assert min((second - first).total_seconds(), (third - second).total_seconds()) >= 0.299


def test_a_restart_before_the_interval_is_over_neither_doubles_nor_starves_a_pass(
    database: Database, webhooks: WebhookRetention
) -> None:
    """Restarted every tenth of the interval, the loop still runs about once per interval."""
    policy = RetentionPolicy(interval_s=0.4, event_older_than_s=DAY)
    began = time.monotonic()
    passes = 0
    while passes < 3 and time.monotonic() - began < 60:
        stop = threading.Event()
        timer = threading.Timer(0.04, stop.set)
        timer.start()
        with WebhookRetention.open(database.url, contract=contract()) as restarted:
            passes += restarted.run_retention(policy, stop_event=stop).passes
        timer.join()
    assert passes == audits(database)
    assert 3 <= passes <= 1 + (time.monotonic() - began) / 0.4


def test_a_prune_by_hand_does_not_put_a_pass_off(webhooks: WebhookRetention, database: Database) -> None:
    webhooks.prune_events(older_than=T)
    assert webhooks.run_retention(BOTH, max_runs=1).passes == 1
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    assert webhooks.run_retention(BOTH, stop_event=stop).passes == 0


def test_enabling_another_path_is_due_at_once(webhooks: WebhookRetention) -> None:
    only_events = RetentionPolicy(interval_s=3600, event_older_than_s=7 * DAY)
    webhooks.run_retention(only_events, max_runs=1)
    assert webhooks.run_retention(BOTH, max_runs=1).passes == 1


def test_several_loops_share_one_interval(database: Database, webhooks: WebhookRetention) -> None:
    stop = threading.Event()
    runs: list[RetentionRuns] = []

    def loop() -> None:
        with WebhookRetention.open(database.url, contract=contract()) as mine:
            runs.append(mine.run_retention(BOTH, stop_event=stop))

    threads = [threading.Thread(target=loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(1.0)  # Long enough for each to poll; what is asserted holds at any time.
    stop.set()
    for thread in threads:
        thread.join()
    assert sum(one.passes for one in runs) == 1
    assert sum(one.failures for one in runs) == 0
    assert audits(database) == 2


def test_a_loop_that_is_stopped_before_it_begins_does_nothing(webhooks: WebhookRetention, database: Database) -> None:
    stop = threading.Event()
    stop.set()
    assert webhooks.run_retention(QUICK, stop_event=stop) == RetentionRuns(0, 0)
    assert audits(database) == 0


def test_a_failing_pass_is_reported_and_the_loop_goes_on(database: Database) -> None:
    prepare(database)
    fill(database)
    keep_attempts(database)
    reported: list[Event] = []

    def listener(happened: Event) -> None:
        reported.append(happened)
        if isinstance(happened, RetentionPassFailed) and len(reported) == 2:
            database.execute("DROP TRIGGER keep" + ("" if database.store == "sqlite" else " ON knocker_attempts"))

    with WebhookRetention.open(database.url, contract=contract(), listener=listener) as webhooks:
        assert webhooks.run_retention(QUICK, max_runs=3) == RetentionRuns(passes=1, failures=2)
    passes = [one for one in reported if not isinstance(one, HardDeleted)]
    assert [type(one) for one in passes] == [RetentionPassFailed, RetentionPassFailed, RowsPruned]
    assert isinstance(reported[0], RetentionPassFailed)
    assert reported[0].table == "knocker_events"
    assert "attempts stay" in reported[0].error
    assert events(database) == [2]
    assert audits(database) == 1


def test_without_a_listener_a_failing_pass_is_logged(
    webhooks: WebhookRetention, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    fill(database)
    keep_attempts(database)
    with caplog.at_level(logging.ERROR, "wane.webhooks"):
        webhooks.run_retention(QUICK, max_runs=1)
    assert "attempts stay" in caplog.text


def test_a_lost_connection_is_reopened(postgres_database: PostgresDatabase) -> None:
    prepare(postgres_database)
    with WebhookRetention.open(postgres_database.url, contract=contract()) as webhooks:
        webhooks.run_retention(QUICK, max_runs=1)
        postgres_database.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'wane' AND datname = current_database()"
        )
        assert webhooks.run_retention(QUICK, max_runs=2).passes >= 1


@pytest.mark.parametrize("wrong", [0, -1, True])
def test_a_number_of_runs_that_cannot_be_meant_is_refused(webhooks: WebhookRetention, wrong: int) -> None:
    with pytest.raises((ValueError, TypeError)):
        webhooks.run_retention(QUICK, max_runs=wrong)


def test_the_async_surface_does_the_same(database: Database) -> None:
    prepare(database)
    fill(database)

    async def main() -> None:
        async with await AsyncWebhookRetention.open(database.url, contract=contract()) as webhooks:
            assert await webhooks.prune_events(older_than=T) == PruneEventsResult(0, 0, 0, 0)
            assert await webhooks.prune_orphan_deliveries(older_than=T) == PruneDeliveriesResult(0)
            stop = asyncio.Event()
            loop = asyncio.create_task(webhooks.run_retention(BOTH, stop_event=stop))
            while len(await webhooks.list_prune_audits()) < 4:  # Answered while the loop waits.
                await asyncio.sleep(0.01)
            stop.set()
            assert await loop == RetentionRuns(passes=1, failures=0)
            taken = await webhooks.run_retention_pass(BOTH)
            assert taken.events == PruneEventsResult(0, 0, 0, 0)

    asyncio.run(main())
    assert events(database) == [2]


def test_the_async_surface_can_share_an_async_keeper(database: Database) -> None:
    prepare(database)

    async def main() -> None:
        async with await AsyncKeeper.open(database.url, contract=contract()) as keeper:
            webhooks = AsyncWebhookRetention(keeper)
            await webhooks.prune_events(older_than=T)
            assert [entry.kind for entry in await keeper.audit()] == ["prune_events"]

    asyncio.run(main())


def test_the_async_surface_has_every_call() -> None:
    def calls(kind: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}

    assert calls(WebhookRetention) - calls(AsyncWebhookRetention) == {"attempt_pass"}


def keep(database: Database, table: str) -> None:
    """Make the database refuse to delete from a table."""
    if database.store == "sqlite":
        database.script(f"CREATE TRIGGER keep BEFORE DELETE ON {table} BEGIN SELECT RAISE(ABORT, 'stays'); END")
        return
    database.script(f"""
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'stays'; END $$;
        CREATE TRIGGER keep BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION keep();
    """)
