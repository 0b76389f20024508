"""Counters have the names and labels that dashboards depend on, exist from the start, and count what was committed,
once."""

from __future__ import annotations

import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from observe.reading import of, series
from prune.keeping import DAY, EXPIRES, Keeping, ago, follower, jobs, keeping, notes, rule, table, timestamp
from servers import Database
from wane._contract.load import load_contract
from wane._contract.model import Contract, Mark, Scheduler, Table
from wane._contract.names import TableName
from wane._contract.settings import Budget
from wane._db import open_store
from wane._db.url import resolve_url
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome
from wane.errors import MetricsError
from wane.events import (
    BatchTaken,
    BudgetExhausted,
    Event,
    HeartbeatWritten,
    MessageDead,
    RetentionPassFailed,
    RowConsumed,
    RowsPruned,
    RuleFailed,
    RuleSwept,
    SlowedDown,
    SweepsEnqueued,
    TickFailed,
    WorkFailed,
)
from wane.observe._metrics import Metrics
from wane.reference import contract_path, names, schema_sql

STATESTORE = {
    ("statestore", "presence_entries", "expired"): "presence_entries",
    ("statestore", "presence_entries", "cap"): "presence_entries",
    ("statestore", "connections", "expired"): "connections",
    ("statestore", "channel_inbound_dedupe", "expired"): "channel_inbound_dedupe",
    ("statestore", "channel_outbox", "failed"): "channel_outbox.failed",
    ("statestore", "channel_inbox", "failed"): "channel_inbox.failed",
    ("statestore", "channel_inbox", "completed"): "channel_inbox.completed",
    ("statestore", "lane_leases", "expired"): "lane_leases",
    ("statestore", "workspace_leases", "expired"): "workspace_leases",
    ("statestore", "oauth_pending", "expired"): "oauth_pending",
    ("statestore", "oauth_refresh_leases", "expired"): "oauth_refresh_leases",
    ("statestore", "models_dev_refresh_leases", "expired"): "models_dev_refresh_leases",
    ("outbox", "outbox", "old"): "outbox",
    ("outbox", "outbox_consumers", "idle"): "outbox_consumers",
}
"""The rules of the state store's contract, and the `table` label of each."""
OUTCOMES = ("done", "budget", "stopped", "off", "fused", "failed")
BATCH_BUCKETS = ("0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "1.0", "5.0", "+Inf")
SWEEP_BUCKETS = ("0.01", "0.1", "1.0", "5.0", "15.0", "60.0", "300.0", "+Inf")


def statestore() -> Contract:
    return load_contract(contract_path("statestore"))


def expected_of_statestore() -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Return every series that the contract of the state store has without its database, written down by hand."""
    wanted: set[tuple[str, tuple[tuple[str, str], ...]]] = set()

    def add(name: str, **labels: str) -> None:
        wanted.add((name, tuple(sorted(labels.items()))))

    for scheduler in ("statestore", "outbox", "wane"):
        add("lifecycle_tick_errors_total", scheduler=scheduler)
    for scheduler in ("statestore", "outbox"):
        add("wane_ticks_total", scheduler=scheduler)
        add("wane_sweeps_enqueued_total", scheduler=scheduler)
    add("wane_dead_letters_total", pool="retention")
    for (scheduler, name, by), label in STATESTORE.items():
        add("lifecycle_prune_rows_total", scheduler=scheduler, table=label)
        labels = {"scheduler": scheduler, "table": name, "rule": by}
        for outcome in OUTCOMES:
            add("wane_sweeps_total", **labels, outcome=outcome)
        for spent in ("rows", "seconds", "batches"):
            add("wane_budget_exhausted_total", **labels, spent=spent)
        add("wane_slowed_down_total", **labels)
        add("wane_sweep_done_timestamp_seconds", **labels)
        for histogram, buckets in (("wane_batch_seconds", BATCH_BUCKETS), ("wane_sweep_seconds", SWEEP_BUCKETS)):
            add(f"{histogram}_count", **labels)
            add(f"{histogram}_sum", **labels)
            for bucket in buckets:
                add(f"{histogram}_bucket", **labels, le=bucket)
        for kind in ("consume", "discard", "prune"):
            if kind != "consume" or by in ("expired", "cap"):
                add("wane_inline_rows_total", scheduler=scheduler, table=name, kind=kind)
    return wanted


def test_every_series_of_the_state_store_exists_from_the_start_at_zero() -> None:
    found = series(Metrics(statestore()).text())
    assert set(found) == expected_of_statestore()
    assert set(found.values()) == {0.0}


def test_the_required_series_of_the_state_store_are_exact() -> None:
    text = Metrics(statestore()).text().decode()
    for (scheduler, *_), label in STATESTORE.items():
        assert f'\nlifecycle_prune_rows_total{{scheduler="{scheduler}",table="{label}"}} 0.0\n' in text
    for scheduler in ("statestore", "outbox"):
        assert f'\nlifecycle_tick_errors_total{{scheduler="{scheduler}"}} 0.0\n' in text
    assert "# TYPE lifecycle_prune_rows_total counter" in text
    assert "# TYPE lifecycle_tick_errors_total counter" in text


def test_every_series_of_the_database_of_the_state_store_is_read(database: Database) -> None:
    database.script(schema_sql("statestore", database.store)["main"])
    with open_store(resolve_url(database.url)) as store:
        store.migrate()
        metrics = Metrics(statestore())
        with closing(metrics):
            metrics.watch(store.clone, budget_seconds=30.0, patience_seconds=60.0)
            text = metrics.text()
    found = series(text)
    wanted = set()
    for scheduler, name, by in STATESTORE:
        labels = {"scheduler": scheduler, "table": name, "rule": by}
        gauges = ["wane_backlog_rows", "wane_oldest_due_row_age_seconds"]
        for gauge in gauges if by == "cap" else [*gauges, "wane_overdue_seconds"]:
            wanted.add((gauge, tuple(sorted(labels.items()))))
        assert found.pop(("wane_backlog_rows_exact", tuple(sorted(labels.items())))) == 1.0
    for state in ("ready", "delayed", "reserved", "dead"):
        for gauge in ("wane_queue_messages", "wane_queue_oldest_message_age_seconds"):
            wanted.add((gauge, (("pool", "retention"), ("state", state))))
    wanted.add(("wane_backlog_unread_rules", ()))
    assert {found.pop(one) for one in wanted} == {0.0}
    assert found.pop(("wane_up", ())) == 1.0
    assert found.pop(("wane_database_read_seconds", ())) > 0
    assert found.pop(("wane_healthy", ())) == 0.0  # Sweeps are off.
    off = (("code", "sweeps-off"), ("severity", "error"), ("table", ""))
    assert found.pop(("wane_health_findings", off)) == 1.0
    assert found.pop(("wane_uncovered_tables", ())) == 0.0
    swept = {name for scheduler, name, by in STATESTORE if by != "cap"}
    for name in swept:
        for gauge in ("wane_table_late_seconds", "wane_table_drain_seconds"):
            assert found.pop((gauge, (("table", name),))) == 0.0
        if database.store == "postgres":
            assert found.pop(("wane_table_partition_recommended", (("table", name),))) == 0.0
    assert set(found) == expected_of_statestore()


@pytest.mark.parametrize("name", names())
def test_every_reference_contract_begins_at_zero(name: str) -> None:
    contract = load_contract(contract_path(name))
    found = series(Metrics(contract).text())
    assert set(found.values()) <= {0.0}
    pruned = {key for key, _ in found if key == "lifecycle_prune_rows_total"}
    assert pruned


def test_a_follower_and_a_mark_have_their_own_series() -> None:
    found = Metrics(load_contract(contract_path("webhooks"))).text()
    followers = {str(one.reference.table) for *_, one in load_contract(contract_path("webhooks")).followers()}
    assert followers
    assert followers <= {label for _, label in of(found, "lifecycle_prune_rows_total")}
    marked = of(Metrics(load_contract(contract_path("substrate"))).text(), "wane_marked_rows_total")
    assert [(by, name) for by, _, name in marked] == [("cleaned", "job_queue")]


# What real sweeps and prunes count

RULES = (
    rule("old", when=("done",), followers=(follower("note.job_id"),)),
    rule("seen", when=("failed",), then=Mark("done")),
)
JOB = table("job", *RULES, scheduler="tick")
CONTRACT = Contract(None, (JOB,), schedulers=(Scheduler("tick", DAY),))
SMALL = Pace(duty=1.0, first_batch=10, least_batch=10, most_batch=10)


@contextmanager
def counting(database: Database, *tables: Table) -> Iterator[tuple[Keeping, Metrics]]:
    metrics = Metrics(replace(CONTRACT, tables=tables or (JOB,)), clock=lambda: 1_000.0)
    with keeping(database, *(tables or (JOB,)), listener=metrics) as opened:
        opened.keeper.enable()
        yield opened, metrics


def fill(database: Database) -> None:
    jobs(database, *((number, "done", ago(30)) for number in range(25)), (50, "failed", ago(30)))
    notes(database, *((number, number % 5, "n") for number in range(7)))


@pytest.mark.parametrize("pace", [SMALL, replace(SMALL, duty=0.99)], ids=["without pauses", "with pauses"])
def test_a_sweep_counts_each_committed_batch_and_followers_by_their_own_name(database: Database, pace: Pace) -> None:
    """With pauses, a batch is counted before the next one begins; without, one call may commit several before that."""
    fill(database)
    received: list[float] = []
    taken = 0
    with counting(database) as (opened, metrics):
        inner = opened.keeper._listener

        def listener(event: Event) -> None:
            nonlocal taken
            inner(event)
            if isinstance(event, BatchTaken):
                taken += event.counts["job"]
                [(left,)] = database.query("SELECT count(*) FROM job WHERE state = 'done'")
                gone = of(metrics.text(), "lifecycle_prune_rows_total")[("tick", "job.old")]
                received.append(gone)
                assert gone == taken
                assert gone <= 25 - left, "counted before its commit"
                assert gone == 25 - left or not pace.pauses
                assert opened.trail()[0].counts["job"] == 25 - left

        opened.keeper._listener = listener
        opened.keeper.sweep("job.old", approve=["job.old"], pace=pace)
        text = metrics.text()
    assert len(received) > 2
    assert of(text, "lifecycle_prune_rows_total") == {("tick", "job.old"): 25.0, ("tick", "note"): 7.0}
    assert of(text, "wane_batch_seconds_count")[("old", "tick", "job")] == len(received)
    assert of(text, "wane_sweep_seconds_count")[("old", "tick", "job")] == 1.0
    assert of(text, "wane_sweeps_total")[("done", "old", "tick", "job")] == 1.0
    assert of(text, "wane_sweep_done_timestamp_seconds") == {
        ("old", "tick", "job"): 1_000.0,
        ("seen", "tick", "job"): 0.0,
    }
    assert of(text, "lifecycle_tick_errors_total") == {("tick",): 0.0, ("wane",): 0.0}


def test_marking_is_not_pruning(database: Database) -> None:
    fill(database)
    with counting(database) as (opened, metrics):
        opened.keeper.sweep("job.seen")
        opened.keeper.prune("job", rule="seen", limit=5)
        text = metrics.text()
    assert set(of(text, "lifecycle_prune_rows_total").values()) == {0.0}
    assert of(text, "wane_marked_rows_total") == {("seen", "tick", "job"): 1.0}


def test_an_explicit_prune_counts_like_a_sweep(database: Database) -> None:
    fill(database)
    with counting(database) as (opened, metrics):
        opened.keeper.prune("job", rule="old", limit=3)
        opened.keeper.prune("job", states=["done"], older_than=timestamp(ago(8)), limit=3)
        counted = of(metrics.text(), "lifecycle_prune_rows_total")
        took = {name: rows for entry in opened.trail() for name, rows in entry.counts.items()}
        total = sum(entry.rows for entry in opened.trail())
    assert set(took) == {"job", "note"}
    assert sum(counted.values()) == total == 6
    assert counted[("tick", "job.old")] > 0


def test_what_a_callers_transaction_may_still_undo_is_not_counted_as_pruned(database: Database) -> None:
    fill(database)
    with counting(database) as (opened, metrics), closing(database.connect()) as connection:
        if database.store == "sqlite":
            connection.execute("BEGIN IMMEDIATE")
        opened.keeper.prune("job", rule="old", limit=30, connection=connection)
        connection.rollback()
        text = metrics.text()
    assert set(of(text, "lifecycle_prune_rows_total").values()) == {0.0}
    assert of(text, "wane_inline_rows_total")[("prune", "tick", "job")] > 0


def test_consumed_and_discarded_rows_are_counted_by_themselves(database: Database) -> None:
    fill(database)
    ticket = table("ticket", rule("expired", EXPIRES, when=()), state=None, scheduler=None)
    database.script("CREATE TABLE ticket (id integer PRIMARY KEY, expires_ms bigint)")
    database.executemany("INSERT INTO ticket VALUES (?, ?)", [(1, ago(-1)), (2, ago(-1))])
    with counting(database, JOB, ticket) as (opened, metrics):
        assert opened.keeper.consume("ticket", {"id": 1})
        assert opened.keeper.consume("ticket", {"id": 1}) is None
        assert opened.keeper.discard("job", {"id": 50})
        found = of(metrics.text(), "wane_inline_rows_total")
    assert found == {
        ("consume", "wane", "ticket"): 1.0,
        ("discard", "wane", "ticket"): 0.0,
        ("prune", "wane", "ticket"): 0.0,
        ("discard", "tick", "job"): 1.0,
        ("prune", "tick", "job"): 0.0,
    }


def test_a_spent_budget_is_counted_with_what_was_spent(database: Database) -> None:
    fill(database)
    with counting(database) as (opened, metrics):
        opened.keeper.sweep("job.old", approve=["job.old"], budget=Budget(rows=5), pace=SMALL)
        text = metrics.text()
    assert of(text, "wane_budget_exhausted_total")[("old", "tick", "rows", "job")] == 1.0
    assert of(text, "wane_sweeps_total")[("budget", "old", "tick", "job")] == 1.0


def test_a_failing_rule_counts_once_as_a_failed_attempt(database: Database) -> None:
    with counting(database) as (opened, metrics):
        opened.keeper.sweep("job.old")  # There is no such table.
        text = metrics.text()
    assert of(text, "lifecycle_tick_errors_total") == {("tick",): 1.0, ("wane",): 0.0}
    assert of(text, "wane_sweeps_total")[("failed", "old", "tick", "job")] == 1.0
    assert of(text, "wane_sweep_done_timestamp_seconds")[("old", "tick", "job")] == 0.0


# Events of schedulers and workers

COUNTED: list[tuple[Event, str, tuple[str, ...], float]] = [
    (TickFailed("tick", "no"), "lifecycle_tick_errors_total", ("tick",), 1),
    (WorkFailed("tick", "retention_sweep_job", "no"), "lifecycle_tick_errors_total", ("tick",), 1),
    (WorkFailed(None, "retention_sweep_job", "no"), "lifecycle_tick_errors_total", ("wane",), 1),
    (RuleFailed(None, "x", "old", "x", "no"), "lifecycle_tick_errors_total", ("wane",), 1),
    (RetentionPassFailed("knocker_events", "no"), "lifecycle_tick_errors_total", ("wane",), 1),
    (
        SweepsEnqueued("tick", "w", ("retention_sweep_a", "retention_sweep_b")),
        "wane_sweeps_enqueued_total",
        ("tick",),
        2,
    ),
    (SweepsEnqueued("tick", "w", ()), "wane_ticks_total", ("tick",), 1),
    (MessageDead("retention", "m", "k", "r"), "wane_dead_letters_total", ("retention",), 1),
    (SlowedDown("job", "old", "locks"), "wane_slowed_down_total", ("old", "tick", "job"), 1),
    (RowConsumed("elsewhere", "consume"), "wane_inline_rows_total", ("consume", "wane", "elsewhere"), 1),
    (
        RowsPruned(None, "x", None, "x.a+b", "prune", {"x": 2, "y": 3}, committed=True),
        "lifecycle_prune_rows_total",
        ("wane", "y"),
        3,
    ),
    (
        BudgetExhausted("tick", "job", "old", "job.old", "seconds"),
        "wane_budget_exhausted_total",
        ("old", "tick", "seconds", "job"),
        1,
    ),
    (
        RuleSwept("tick", "job", "old", "job.old", "prune", {}, 0, 0.0, "off"),
        "wane_sweeps_total",
        ("off", "old", "tick", "job"),
        1,
    ),
]


@pytest.mark.parametrize(("event", "name", "labels", "value"), COUNTED)
def test_each_event_counts(event: Event, name: str, labels: tuple[str, ...], value: float) -> None:
    metrics = Metrics(CONTRACT)
    before = of(metrics.text(), name)
    metrics(event)
    after = of(metrics.text(), name)
    assert after.pop(labels) - before.pop(labels, 0.0) == value
    assert {key: number for key, number in after.items() if number} == {} or name == "lifecycle_prune_rows_total"


def test_a_sweep_that_was_off_states_nothing_about_durations_and_a_heartbeat_counts_nothing() -> None:
    metrics = Metrics(CONTRACT)
    metrics(RuleSwept("tick", "job", "old", "job.old", "prune", {}, 0, 0.0, "off"))
    assert set(of(metrics.text(), "wane_sweep_seconds_count").values()) == {0.0}
    before = metrics.text()
    metrics(HeartbeatWritten("host:1", "worker", "idle"))
    assert metrics.text() == before


def test_every_outcome_of_a_sweep_is_a_series() -> None:
    assert set(OUTCOMES) == {outcome.value for outcome in Outcome}


# Files and registries


def test_a_text_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    metrics = Metrics(CONTRACT)
    path = tmp_path / "wane.prom"
    path.write_text("old")
    held = path.open()
    metrics.write_textfile(path)
    with held:
        assert held.read() == "old", "a reader of the old file reads it to its end"
    assert series(path.read_text()) == series(metrics.text())
    assert [one.name for one in tmp_path.iterdir()] == ["wane.prom"]
    assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444, "the node exporter is another user"


def test_a_text_file_that_cannot_be_written_reports_it_and_leaves_nothing(tmp_path: Path) -> None:
    metrics = Metrics(CONTRACT)
    with pytest.raises(MetricsError, match="No such file or directory"):
        metrics.write_textfile(tmp_path / "nowhere" / "wane.prom")
    (tmp_path / "taken").mkdir()
    with pytest.raises(MetricsError, match="cannot be written to"):
        metrics.write_textfile(tmp_path / "taken")
    assert [one.name for one in tmp_path.iterdir()] == ["taken"]


def test_metrics_can_join_the_registry_of_an_application() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(CONTRACT, registry=registry)
    metrics(TickFailed("tick", "no"))
    assert of(generate_latest(registry), "lifecycle_tick_errors_total")[("tick",)] == 1.0


def test_names_of_tables_may_have_any_letters() -> None:
    odd = replace(JOB, name=TableName('we"ird\\\nname'))
    metrics = Metrics(replace(CONTRACT, tables=(odd,)))
    assert ("tick", f"{odd.name}.old") in of(metrics.text(), "lifecycle_prune_rows_total")


def test_without_the_client_an_error_states_what_to_install() -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "import wane, wane._cli, wane.observe._logs\n"
        "from wane.errors import MetricsError\n"
        "try: import wane.observe._metrics\n"
        "except MetricsError as problem: print(problem)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "metrics need prometheus-client\n  hint: install it: pip install 'wane[metrics]'\n"
