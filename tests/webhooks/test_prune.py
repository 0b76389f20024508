"""`prune_events`, `prune_orphan_deliveries`, `list_prune_audits`: what leaves, what stays, what the trail says."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from servers import Database
from wane._contract.model import Rule
from wane.errors import StoreError, UnknownTable, WrongArgument, WrongArgumentType
from wane.webhooks import PruneAudit, PruneDeliveriesResult, PruneEventsResult, WebhookRetention
from wane.webhooks import _retention as module
from webhooks.hooks import T, audits, contract, count, delivery, event, events, prepare


@pytest.fixture
def webhooks(database: Database) -> Iterator[WebhookRetention]:
    prepare(database)
    with WebhookRetention.open(database.url, contract=contract(), actor="tester") as opened:
        yield opened


def test_events_leave_with_their_rows_in_other_tables(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 10, attempts=3, deliveries=2, jobs=["knocker.events"])
    event(database, 2, "ignored", T - 9, attempts=1, deliveries=1)
    event(database, 3, "handled", T, attempts=1, deliveries=1, jobs=["knocker.events"])
    assert webhooks.prune_events(older_than=T) == PruneEventsResult(2, 4, 3, 1)
    assert events(database) == [3]
    tables = ("knocker_attempts", "knocker_deliveries", "_honker_live")
    assert [count(database, name) for name in tables] == [1, 1, 1]


@pytest.mark.parametrize(("received_at", "leaves"), [(T - 1, True), (T, False), (T + 1, False)])
def test_the_cutoff_is_strict(webhooks: WebhookRetention, database: Database, received_at: int, leaves: bool) -> None:
    event(database, 1, "handled", received_at)
    assert webhooks.prune_events(older_than=T).events_pruned == int(leaves)


def test_a_cutoff_between_two_seconds_is_exact(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T)
    event(database, 2, "handled", T + 1)
    assert webhooks.prune_events(older_than=T + 0.5).events_pruned == 1
    assert events(database) == [2]


def test_live_jobs_of_other_queues_stay(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 10, jobs=["knocker.events", "emails", "knocker.events"])
    assert webhooks.prune_events(older_than=T).live_jobs_pruned == 2
    assert database.query("SELECT queue FROM _honker_live") == [("emails",)]


def test_a_call_may_name_another_queue(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 10, jobs=["knocker.events", "emails", "knocker.events"])
    delivery(database, T - 10)
    assert webhooks.prune_events(older_than=T, queue="emails").live_jobs_pruned == 1
    assert webhooks.prune_orphan_deliveries(older_than=T, queue="emails").deliveries_pruned == 1
    assert database.query("SELECT queue FROM _honker_live") == [("knocker.events",)] * 2
    assert [one.queue_name for one in webhooks.list_prune_audits()] == ["emails", "emails"]
    wrong: Any
    for wrong, error in (("", WrongArgument), (7, WrongArgumentType), ("a\x00b", WrongArgument)):
        with pytest.raises(error, match="queue"):
            webhooks.prune_events(older_than=T, queue=wrong)


def test_a_job_whose_payload_names_no_event_stays(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 10, jobs=["knocker.events"])
    for payload in ('{"event_id": true}', '{"event_id": "1"}', '{"event_id": 1.5}', "{}", "[1]"):
        database.execute(
            "INSERT INTO _honker_live (queue, payload, run_at) VALUES ('knocker.events', ?, 0)", (payload,)
        )
    assert webhooks.prune_events(older_than=T).live_jobs_pruned == 1
    assert count(database, "_honker_live") == 5


def test_audits_are_listed_since_a_time(webhooks: WebhookRetention, database: Database) -> None:
    webhooks.prune_events(older_than=T)
    [first] = webhooks.list_prune_audits()
    audit = "wane_audit" if database.store == "sqlite" else "wane.audit"
    older = "2001-09-09T01:46:40.500000Z" if database.store == "sqlite" else "2001-09-09 01:46:40.5+00"
    database.execute(f"UPDATE {audit} SET executed_at = ?", (older,))
    webhooks.prune_orphan_deliveries(older_than=T)
    assert [one.kind for one in webhooks.list_prune_audits(since=1_000_000_000)] == [
        "prune_orphan_deliveries",
        "prune_events",
    ]
    assert [one.kind for one in webhooks.list_prune_audits(since=1_000_000_000.5)][1:] == ["prune_events"]
    assert [one.kind for one in webhooks.list_prune_audits(since=1_000_000_001)] == ["prune_orphan_deliveries"]
    assert webhooks.list_prune_audits(kind="prune_events", since=first.executed_at) == []
    for wrong in ("yesterday", True, 1_700_000_000_000):
        with pytest.raises((WrongArgument, WrongArgumentType), match="since"):
            webhooks.list_prune_audits(since=wrong)  # type: ignore[arg-type]


def test_a_pass_by_cutoffs(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 10)
    event(database, 2, "ignored", T - 10)
    delivery(database, T - 10)
    done = webhooks.run_retention_pass_before(statuses=["handled"], events_older_than=T)
    assert (done.events, done.orphan_deliveries) == (PruneEventsResult(1, 0, 0, 0), None)
    done = webhooks.run_retention_pass_before(events_older_than=T - 10, orphans_older_than=T)
    assert done.events == PruneEventsResult(0, 0, 0, 0)
    assert done.orphan_deliveries == PruneDeliveriesResult(1)
    assert audits(database) == 3
    with pytest.raises(WrongArgument, match="no threshold"):
        webhooks.run_retention_pass_before()
    assert events(database) == [2]


@pytest.mark.parametrize("status", ["received", "processing", "failed", "dead"])
def test_events_that_are_not_settled_stay(webhooks: WebhookRetention, database: Database, status: str) -> None:
    event(database, 1, status, T - 10)
    assert webhooks.prune_events(older_than=T).events_pruned == 0
    with pytest.raises(ValueError, match=f"'{status}'"):
        webhooks.prune_events(statuses=[status], older_than=T)
    assert events(database) == [1]
    assert audits(database) == 1


@pytest.mark.parametrize("status", ["failed", "dead"])
def test_failed_and_dead_are_refused_even_if_a_rule_lets_them_go(database: Database, status: str) -> None:
    prepare(database)
    declared = contract()
    table = declared.tables[0]
    rule: Rule = replace(table.rules[0], states=("handled", "ignored", "failed", "dead"))
    loose = replace(
        declared, tables=(replace(table, rules=(rule,), live=("received", "processing")), *declared.tables[1:])
    )
    event(database, 1, status, T - 10)
    with (
        WebhookRetention.open(database.url, contract=loose) as webhooks,
        pytest.raises(WrongArgument, match="wait for an operator"),
    ):
        webhooks.prune_events(statuses=["handled", status], older_than=T)
    assert events(database) == [1]


def test_only_the_statuses_that_are_named_leave(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 10)
    event(database, 2, "ignored", T - 10)
    webhooks.prune_events(statuses=("ignored", "ignored"), older_than=T)
    assert events(database) == [1]


def test_the_limit_counts_events_and_the_oldest_leave_first(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 10, attempts=9)
    event(database, 2, "ignored", T - 30, attempts=9)
    event(database, 3, "handled", T - 20, attempts=9)
    assert webhooks.prune_events(older_than=T, limit=2) == PruneEventsResult(2, 18, 0, 0)
    assert events(database) == [1]


def test_an_event_with_too_many_followers_loses_them_call_by_call(
    webhooks: WebhookRetention, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_FOLLOWERS", 10)
    event(database, 1, "handled", T - 10, attempts=25)
    assert [webhooks.prune_events(older_than=T) for _ in range(4)] == [
        PruneEventsResult(0, 10, 0, 0),
        PruneEventsResult(0, 10, 0, 0),
        PruneEventsResult(1, 5, 0, 0),
        PruneEventsResult(0, 0, 0, 0),
    ]


def test_orphan_deliveries_leave_and_those_of_events_stay(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 50, deliveries=1)
    for age in (-1, 0, 1, 2, 3):
        delivery(database, T - age)
    assert webhooks.prune_orphan_deliveries(older_than=T, limit=2) == PruneDeliveriesResult(2)
    left = database.query("SELECT event_id, received_at FROM knocker_deliveries ORDER BY received_at")
    assert left == [(1, T - 50), (None, T - 1), (None, T), (None, T + 1)]


def test_the_trail_states_what_was_requested_and_what_left(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 10, attempts=3, deliveries=2, jobs=["knocker.events"])
    delivery(database, T - 10)
    before = int(time.time())
    webhooks.prune_events(statuses=["handled"], older_than=T, limit=7)
    webhooks.prune_orphan_deliveries(older_than=T, limit=8)
    orphans, of_events = webhooks.list_prune_audits()
    assert before <= of_events.executed_at <= orphans.executed_at <= time.time()
    assert isinstance(of_events.executed_at, int)
    assert replace(of_events, id=0, executed_at=0) == PruneAudit(
        0,
        "prune_events",
        "knocker.events",
        0,
        1,
        3,
        2,
        1,
        '{"statuses": ["handled"], "older_than": 1700000000, "limit": 7}',
    )
    assert replace(orphans, id=0, executed_at=0) == PruneAudit(
        0, "prune_orphan_deliveries", "knocker.events", 0, None, None, 1, None, '{"older_than": 1700000000, "limit": 8}'
    )


def test_the_general_trail_has_the_same_rows(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 10, attempts=3)
    webhooks.prune_events(older_than=T)
    [entry] = webhooks.keeper.audit(kind="prune_events")
    assert (entry.table, entry.actor, entry.rows) == ("knocker_events", "tester", 4)
    assert entry.cutoff == datetime.fromtimestamp(T, UTC)
    assert entry.inputs["queue_name"] == "knocker.events"


def test_a_prune_that_takes_nothing_is_audited_too(webhooks: WebhookRetention) -> None:
    webhooks.prune_events(older_than=T)
    [audit] = webhooks.list_prune_audits(kind="prune_events")
    assert (audit.events_pruned, audit.attempts_pruned, audit.deliveries_pruned, audit.live_jobs_pruned) == (0,) * 4


def test_audits_are_newest_first_filtered_and_limited(webhooks: WebhookRetention) -> None:
    for number in (1, 2, 3):
        webhooks.prune_events(older_than=T + number)
        webhooks.prune_orphan_deliveries(older_than=T + number)
    listed = webhooks.list_prune_audits(limit=3)
    assert [audit.kind.removeprefix("prune_") for audit in listed] == [
        "orphan_deliveries",
        "events",
        "orphan_deliveries",
    ]
    only = webhooks.list_prune_audits(kind="prune_events", limit=2)
    assert [json.loads(audit.summary_json)["older_than"] - T for audit in only] == [3, 2]
    with pytest.raises(ValueError, match="did you mean 'prune_events'"):
        webhooks.list_prune_audits(kind="prune_event")
    for wrong in (0, 1001):
        with pytest.raises(ValueError, match="from 1 to 1,000"):
            webhooks.list_prune_audits(limit=wrong)


def test_a_failing_prune_leaves_no_audit_and_takes_nothing(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 10, attempts=2)
    keep_attempts(database)
    with pytest.raises(StoreError):
        webhooks.prune_events(older_than=T)
    assert events(database) == [1]
    assert count(database, "knocker_attempts") == 2
    assert audits(database) == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"statuses": "handled", "older_than": T}, TypeError),
        ({"statuses": [1], "older_than": T}, TypeError),
        ({"statuses": [], "older_than": T}, ValueError),
        ({"statuses": ["handeld"], "older_than": T}, ValueError),
        ({"older_than": True}, TypeError),
        ({"older_than": "1700000000"}, TypeError),
        ({"older_than": datetime(2026, 1, 1, tzinfo=UTC)}, TypeError),
        ({"older_than": None}, TypeError),
        ({"older_than": math.nan}, ValueError),
        ({"older_than": -1}, ValueError),
        ({"older_than": T * 1000}, ValueError),
        ({"older_than": T, "limit": 0}, ValueError),
        ({"older_than": T, "limit": 1001}, ValueError),
        ({"older_than": T, "limit": True}, TypeError),
        ({"older_than": T, "limit": 10.0}, TypeError),
    ],
)
def test_slips_are_refused_and_take_nothing(
    webhooks: WebhookRetention, database: Database, options: dict[str, Any], error: type[Exception]
) -> None:
    event(database, 1, "handled", T - 10)
    delivery(database, T - 10)
    with pytest.raises(error):
        webhooks.prune_events(**options)
    if "statuses" not in options:
        with pytest.raises(error):
            webhooks.prune_orphan_deliveries(**options)
    assert events(database) == [1]
    assert count(database, "knocker_deliveries") == 1
    assert audits(database) == 0


def test_reading_the_trail_does_not_wait_for_a_writer(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 10)
    webhooks.prune_events(older_than=T)
    application = database.connect()
    application.execute("BEGIN IMMEDIATE" if database.store == "sqlite" else "BEGIN")
    application.execute("UPDATE knocker_endpoints SET name = 'busy'")
    assert [one.events_pruned for one in webhooks.list_prune_audits()] == [1]
    application.execute("ROLLBACK")


def test_inside_the_callers_transaction_it_commits_or_vanishes_with_it(
    webhooks: WebhookRetention, database: Database
) -> None:
    event(database, 1, "handled", T - 10, attempts=1)
    connection = database.connect()
    connection.execute("BEGIN")
    assert webhooks.prune_events(older_than=T, connection=connection).events_pruned == 1
    assert len(webhooks.list_prune_audits(connection=connection)) == 1
    connection.execute("ROLLBACK")
    assert events(database) == [1]
    assert audits(database) == 0
    connection.execute("BEGIN")
    webhooks.prune_events(older_than=T, connection=connection)
    connection.execute("COMMIT")
    assert events(database) == []
    assert audits(database) == 1


def test_a_held_event_stays(webhooks: WebhookRetention, database: Database) -> None:
    event(database, 1, "handled", T - 10)
    event(database, 2, "handled", T - 10)
    webhooks.keeper.hold("knocker_events", {"id": 1}, reason="a dispute")
    assert webhooks.prune_events(older_than=T).events_pruned == 1
    assert events(database) == [1]


def test_results_cannot_be_changed(webhooks: WebhookRetention) -> None:
    result = webhooks.prune_events(older_than=T)
    with pytest.raises(FrozenInstanceError):
        result.events_pruned = 1  # type: ignore[misc]


def test_a_contract_without_webhooks_is_refused(database: Database) -> None:
    without = replace(contract(), tables=())
    with pytest.raises(UnknownTable, match="knocker_events"):
        WebhookRetention.open(database.url, contract=without)


def test_live_jobs_of_no_named_queue_are_refused(database: Database) -> None:
    declared = contract()
    table = declared.tables[0]
    rule = table.rules[0]
    everywhere = tuple(replace(follower, where=()) for follower in rule.followers)
    loose = replace(
        declared, tables=(replace(table, rules=(replace(rule, followers=everywhere),)), *declared.tables[1:])
    )
    with pytest.raises(WrongArgument, match="one named queue"):
        WebhookRetention.open(database.url, contract=loose)


def keep_attempts(database: Database) -> None:
    """Make the database refuse to delete attempts."""
    if database.store == "sqlite":
        database.script(
            "CREATE TRIGGER keep BEFORE DELETE ON knocker_attempts BEGIN SELECT RAISE(ABORT, 'attempts stay'); END"
        )
        return
    database.script("""
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'attempts stay'; END $$;
        CREATE TRIGGER keep BEFORE DELETE ON knocker_attempts FOR EACH ROW EXECUTE FUNCTION keep();
    """)
