"""What the reference contracts promise, written down a second time: a changed window must be changed here as well."""

from __future__ import annotations

import tomllib
from datetime import timedelta
from pathlib import Path

import pytest

from wane._contract.conditions import equal_to
from wane._contract.duration import FOREVER, Forever
from wane._contract.load import load_contract, read_contract
from wane._contract.model import (
    Age,
    Cap,
    Contract,
    ExcuseKind,
    Expiry,
    Mark,
    Orphans,
    Prune,
    ReferencedBy,
    ToArchive,
    WhileNull,
)
from wane._contract.names import TableName
from wane.reference import contract_path, names, schema_sql

HOURS = timedelta(hours=1)
DAYS = timedelta(days=1)

EXPIRES = "expires"
AGES: dict[str, timedelta | str] = {
    "presence_entries/expired": EXPIRES,
    "presence_entries/cap": "at most 500 per tenant_id",
    "connections/expired": EXPIRES,
    "channel_inbound_dedupe/expired": EXPIRES,
    "channel_outbox/failed": 7 * DAYS,
    "channel_inbox/failed": 7 * DAYS,
    "channel_inbox/completed": 7 * DAYS,
    "lane_leases/expired": EXPIRES,
    "workspace_leases/expired": EXPIRES,
    "oauth_pending/expired": EXPIRES,
    "oauth_refresh_leases/expired": EXPIRES,
    "models_dev_refresh_leases/expired": EXPIRES,
    "outbox/old": 24 * HOURS,
    "outbox_consumers/idle": 24 * HOURS,
    "work_claims/completed": 168 * HOURS,
    "work_claims/abandoned": 24 * HOURS,
    "work_claim_tombstones/forgotten": EXPIRES,
    "knocker_events/settled": 7 * DAYS,
    "knocker_deliveries/orphans": 24 * HOURS,
    "event_outbox/cold": 90 * DAYS,
    "event_pending/drained": 7 * DAYS,
    "iu_auto_instantiate_event_log/old": 365 * DAYS,
    "iu_route_dead_letter/resolved": 365 * DAYS,
    "job_dead_letter/resolved": 365 * DAYS,
    "job_queue/cleaned": 30 * DAYS,
    "job_queue/gone": 90 * DAYS,
    "dot_iu_command_run/finished": 90 * DAYS,
}
TIMES = {
    "presence_entries/expired": "expires_at_ms ms",
    "presence_entries/cap": "last_seen_at_ms ms",
    "connections/expired": "expires_at_ms ms",
    "channel_inbound_dedupe/expired": "expires_at_ms ms",
    "channel_outbox/failed": "sent_at native or iso",
    "channel_inbox/failed": "received_at_ms ms",
    "channel_inbox/completed": "received_at_ms ms",
    "lane_leases/expired": "lease_expires_at_ms ms",
    "workspace_leases/expired": "lease_expires_at_ms ms",
    "oauth_pending/expired": "expires_at native or iso",
    "oauth_refresh_leases/expired": "lease_expires_at_ms ms",
    "models_dev_refresh_leases/expired": "lease_expires_at_ms ms",
    "outbox/old": "created_at native or iso",
    "outbox_consumers/idle": "updated_at native or iso",
    "work_claims/completed": "completed_at native",
    "work_claims/abandoned": "abandoned_at native",
    "work_claim_tombstones/forgotten": "remembered_until native",
    "knocker_events/settled": "received_at s",
    "knocker_deliveries/orphans": "received_at s",
    "event_outbox/cold": "created_at native",
    "event_pending/drained": "drained_at native",
    "iu_auto_instantiate_event_log/old": "created_at native",
    "iu_route_dead_letter/resolved": "resolved_at native",
    "job_dead_letter/resolved": "resolved_at native",
    "job_queue/cleaned": "finished_at native",
    "job_queue/gone": "finished_at native",
    "dot_iu_command_run/finished": "finished_at native",
}
LIVE = {
    "channel_outbox": {"queued", "sending"},
    "channel_inbox": {"queued", "processing"},
    "work_claims": {"available", "claimed"},
    "knocker_events": {"received", "processing", "failed", "dead"},
    "job_queue": {"queued", "running", "failed"},
    "dot_iu_command_run": {"running"},
}
FOLLOWERS = {
    "event_outbox": ["event_read.event_id"],
    "knocker_events": ["knocker_attempts.event_id", "knocker_deliveries.event_id", "_honker_live.event_id"],
}
EXCUSED = {
    "models_dev_cache": ExcuseKind.SINGLETON,
    "knocker_endpoints": ExcuseKind.CONSTANT,
    "_honker_live": ExcuseKind.INLINE,
    "dot_iu_runtime_lease": ExcuseKind.IN_PLACE,
    "iu_lifecycle_log": ExcuseKind.APPEND_ONLY,
    "iu_route_worker_cursor": ExcuseKind.CONSTANT,
    "iu_sql_event_route": ExcuseKind.CONSTANT,
    "iu_vector_sync_point": ExcuseKind.MIRROR,
    "queue_heartbeat": ExcuseKind.IN_PLACE,
    "iu_core.iu_staging_record": ExcuseKind.ELSEWHERE,
    "iu_core.iu_staging_payload": ExcuseKind.ELSEWHERE,
}


@pytest.fixture
def contract(tmp_path: Path) -> Contract:
    """Return all reference contracts in one."""
    return including(tmp_path, *names())


def test_the_substrate_has_flags_of_its_own(tmp_path: Path) -> None:
    flags = [including(tmp_path, name).sweep for name in ("substrate", "statestore")]
    assert [(one.master_flag, one.table_flag) for one in flags] == [
        ("iu_core.retention_enabled", "queue.retention.{table}.enabled"),
        ("retention.enabled", "retention.{table}.enabled"),
    ]


def including(folder: Path, *included: str, more: str = "") -> Contract:
    file = folder / "wane.toml"
    file.write_text(f"include = {[f'reference:{name}' for name in included]}\n{more}")
    return load_contract(file)


@pytest.mark.parametrize("name", names())
def test_each_contract_stands_by_itself_without_mistakes_or_warnings(name: str) -> None:
    assert read_contract(contract_path(name)).findings == ()


@pytest.mark.parametrize("name", names())
def test_a_reference_contract_names_no_database(name: str) -> None:
    assert "store" not in tomllib.loads(contract_path(name).read_text())


def test_an_unknown_name_does_not_ship() -> None:
    with pytest.raises(KeyError):
        contract_path("nothing")
    with pytest.raises(KeyError):
        schema_sql("nothing", "sqlite")


def test_every_rule_has_its_window(contract: Contract) -> None:
    found: dict[str, timedelta | str] = {}
    for table, rule in contract.rules():
        match rule.bound:
            case Age(keep=keep) | Orphans(keep=keep):
                found[f"{table.name}/{rule.name}"] = keep
            case Expiry():
                found[f"{table.name}/{rule.name}"] = EXPIRES
            case Cap(most=most, per=per):
                found[f"{table.name}/{rule.name}"] = f"at most {most} per {' '.join(per)}"
    assert found == AGES


def test_every_rule_reads_its_column_in_its_unit(contract: Contract) -> None:
    found = {}
    for table, rule in contract.rules():
        assert not isinstance(rule.bound, Forever)
        time = rule.bound.time
        assert time is not None
        found[f"{table.name}/{rule.name}"] = f"{time.column} {' or '.join(one.unit.value for one in time.each)}"
    assert found == TIMES


def test_every_age_is_a_window_that_a_team_can_change() -> None:
    for name in names():
        tables = tomllib.loads(contract_path(name).read_text())["table"]
        for table, life in tables.items():
            for rule, promise in life["rule"].items():
                assert "window" in promise.get("keep", {"window": ""}), f"{table}.{rule} writes its age down"


def test_inbox_and_outbox_of_a_channel_share_one_window(tmp_path: Path) -> None:
    changed = including(tmp_path, "statestore", more='[window]\n"lifecycle.channels.terminalRetentionDays" = "14d"\n')
    rules = {changed.table(TableName(table)).rule(rule) for table, rule in CHANNEL_RULES}
    assert {rule.bound.keep for rule in rules if isinstance(rule.bound, Age)} == {14 * DAYS}


CHANNEL_RULES = [("channel_inbox", "failed"), ("channel_inbox", "completed"), ("channel_outbox", "failed")]


def test_outbox_and_its_consumers_share_one_window(tmp_path: Path) -> None:
    changed = including(tmp_path, "statestore", more='[window]\n"lifecycle.outbox.retention" = "36h"\n')
    bounds = [changed.table(TableName(name)).rules[0].bound for name in ("outbox", "outbox_consumers")]
    assert [bound.keep for bound in bounds if isinstance(bound, Age)] == [36 * HOURS, 36 * HOURS]


def test_live_states_are_never_selected(contract: Contract) -> None:
    assert {str(table.name): set(table.live) for table in contract.tables if table.state is not None} == LIVE
    for table, rule in contract.rules():
        assert not set(rule.states) & set(table.live)


def test_every_state_that_a_schema_allows_is_live_ruled_or_excused(contract: Contract) -> None:
    for table in contract.tables:
        if table.state is None:
            continue
        named = {*table.live, *(state for state, _ in table.excused), *(s for rule in table.rules for s in rule.states)}
        assert named == STATES[str(table.name)]


STATES = {
    "channel_outbox": {"queued", "sending", "sent", "failed"},
    "channel_inbox": {"queued", "processing", "completed", "failed"},
    "work_claims": {"available", "claimed", "completed", "abandoned"},
    "knocker_events": {"received", "processing", "handled", "ignored", "failed", "dead"},
    "job_queue": {"queued", "running", "failed", "succeeded", "cancelled", "cleaned"},
    "dot_iu_command_run": {"running", "succeeded", "failed"},
}


def test_metric_labels_are_those_that_dashboards_know(contract: Contract) -> None:
    labels = {table.label(rule) for table, rule in contract.rules()}
    assert {"channel_inbox.failed", "channel_inbox.completed", "channel_outbox.failed", "presence_entries"} <= labels
    assert {"work_claims.completed", "work_claims.abandoned", "outbox", "outbox_consumers"} <= labels


def test_floors_hold_dead_letters_and_command_runs(contract: Contract) -> None:
    assert {str(table): floor for table, floor in contract.floors} == {
        "dot_iu_command_run": 90 * DAYS,
        "iu_route_dead_letter": 365 * DAYS,
        "job_dead_letter": 365 * DAYS,
    }


def test_schedulers_tick_every_five_minutes(contract: Contract) -> None:
    assert {scheduler.name: scheduler.every for scheduler in contract.schedulers} == dict.fromkeys(
        ("statestore", "outbox", "claims", "events", "jobs"), timedelta(minutes=5)
    )


def test_events_are_archived_and_the_archive_forgets_only_where_a_team_opts_in(tmp_path: Path) -> None:
    rule = including(tmp_path, "substrate").table(TableName("event_outbox")).rule("cold")
    assert rule.action == ToArchive()
    assert including(tmp_path, "substrate").archive[0].keep == FOREVER
    opted_in = including(tmp_path, "substrate", more='[window]\n"events.archive" = "365d"\n')
    assert opted_in.archive[0].keep == 365 * DAYS


def test_finished_jobs_are_marked_before_they_are_gone(contract: Contract) -> None:
    jobs = contract.table(TableName("job_queue"))
    assert jobs.rule("cleaned").action == Mark("cleaned")
    assert (jobs.rule("cleaned").states, jobs.rule("gone").states) == (("succeeded", "cancelled"), ("cleaned",))
    assert jobs.rule("gone").action == Prune()


def test_only_resolved_dead_letters_and_drained_events_leave(contract: Contract) -> None:
    for table, column in (
        ("iu_route_dead_letter", "resolved_at"),
        ("job_dead_letter", "resolved_at"),
        ("event_pending", "drained_at"),
    ):
        [rule] = contract.table(TableName(table)).rules
        assert rule.guards == (WhileNull(column),)


def test_a_message_waits_for_every_reply_and_a_job_for_its_dead_letter(contract: Contract) -> None:
    guards = {
        f"{table.name}/{rule.name}": str(guard.reference)
        for table, rule in contract.rules()
        for guard in rule.guards
        if isinstance(guard, ReferencedBy)
    }
    assert guards == {
        "channel_inbox/failed": "channel_outbox.inbox_id",
        "channel_inbox/completed": "channel_outbox.inbox_id",
        "job_queue/gone": "job_dead_letter.job_id",
    }


def test_tables_that_hold_others_back_are_swept_before_them(contract: Contract) -> None:
    order = [str(table.name) for table in contract.tables]
    assert order.index("channel_outbox") < order.index("channel_inbox")
    assert order.index("job_dead_letter") < order.index("job_queue")


def test_followers_leave_with_their_parent(contract: Contract) -> None:
    found: dict[str, list[str]] = {}
    for table, _, follower in contract.followers():
        found.setdefault(str(table.name), []).append(str(follower.reference))
    assert found == FOLLOWERS


def test_only_jobs_of_the_webhook_queue_follow_an_event(contract: Contract) -> None:
    where = {str(follower.reference.table): follower.where for _, _, follower in contract.followers()}
    assert where["_honker_live"] == (("queue", equal_to("knocker.events")),)
    assert where["knocker_attempts"] == where["knocker_deliveries"] == ()


def test_nothing_but_an_explicit_prune_deletes_webhooks(contract: Contract) -> None:
    explicit = {str(table.name) for table in contract.tables if table.append_only}
    assert explicit == {"knocker_events", "knocker_deliveries"}
    for name in explicit:
        table = contract.table(TableName(name))
        assert table.scheduler is None
        assert [rule.budget.rows for rule in table.rules] == [100]


def test_orphan_deliveries_are_those_without_an_event(contract: Contract) -> None:
    bound = contract.table(TableName("knocker_deliveries")).rule("orphans").bound
    assert isinstance(bound, Orphans)
    assert bound.reference == "event_id"


def test_tables_bounded_elsewhere_state_how(contract: Contract) -> None:
    assert {str(table): excuse.kind for table, excuse in contract.excused} == EXCUSED
    sent = dict(contract.table(TableName("channel_outbox")).excused)
    assert sent["sent"].kind is ExcuseKind.INLINE


def test_staging_can_be_taken_over_as_the_comment_shows(tmp_path: Path) -> None:
    comment = contract_path("substrate").read_text().partition("# A team that takes staging over")[2]
    block = [line.removeprefix("#     ") for line in comment.splitlines() if line.startswith("#     ")]
    (tmp_path / "team.toml").write_text("\n".join(['include = ["reference:substrate"]', *block]))
    staging = load_contract(tmp_path / "team.toml").table(TableName("iu_staging_record", "iu_core"))
    windows = [(rule.bound.keep, rule.action) for rule in staging.rules if isinstance(rule.bound, Age)]
    assert windows == [(15 * DAYS, Mark("expired")), (30 * DAYS, ToArchive())]


def test_the_page_about_them_names_every_table_and_every_window(contract: Contract) -> None:
    page = (Path(__file__).parents[2] / "docs/reference/reference-contracts.md").read_text()
    tables = {table.name for table in contract.tables} | {name for name, _ in contract.excused}
    tables |= {follower.reference.table for _, _, follower in contract.followers()}
    stated = [*(f"`{table}`" for table in tables), *(f"`{window}` = " for window, _ in contract.windows)]
    assert [name for name in stated if name not in page] == []
