"""The webhook names in the database: `knocker_prune_events` and its siblings, and the view of their audit rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from wane.store.postgres.functions.taking import Taking
from wane.store.postgres.functions.words import interval, literal, plpgsql, table_of, wrong
from wane.store.postgres.reflect import OWN_SCHEMA

WEBHOOK_FUNCTIONS = ("knocker_prune_events", "knocker_prune_orphan_deliveries", "knocker_run_retention_pass")
AUDITS_VIEW = "knocker_prune_audits"


@dataclass(frozen=True, slots=True)
class Webhooks:
    """`knocker_…`: one function for every choice of statuses, and one for orphan deliveries."""

    events: Sequence[tuple[tuple[str, ...], Taking]]
    orphans: Taking
    queue_name: str | None
    counted: Sequence[tuple[str, str]]
    """(name in a summary, table as the trail names it)."""
    settled: Sequence[str]
    most: int
    most_followers: int
    events_kind: str
    orphans_kind: str
    floors: tuple[timedelta, timedelta]


def webhook_functions(webhooks: Webhooks) -> list[str]:
    return [
        _knocker_take_events(webhooks),
        _knocker_take_orphans(webhooks),
        plpgsql(
            "knocker_prune_events",
            f"statuses text[] DEFAULT {literal(list(webhooks.settled))}::text[], older_than double precision DEFAULT NULL,"
            " row_limit integer DEFAULT 100",
            f"BEGIN\n  RETURN {OWN_SCHEMA}.sql_knocker_events(statuses, older_than, row_limit, '{{}}');\nEND",
        ),
        plpgsql(
            "knocker_prune_orphan_deliveries",
            "older_than double precision DEFAULT NULL, row_limit integer DEFAULT 100",
            f"BEGIN\n  RETURN {OWN_SCHEMA}.sql_knocker_orphans(older_than, row_limit, '{{}}');\nEND",
        ),
        _knocker_pass(webhooks),
    ]


def _knocker_take_events(webhooks: Webhooks) -> str:
    offered = table_of(
        [(f"{literal(sorted(statuses))}::text[]", str(taking.number)) for statuses, taking in webhooks.events],
        "statuses, number",
        "'{}'::text[], 0",
    )
    known = sorted({status for statuses, _ in webhooks.events for status in statuses})
    summary = ", ".join(
        f"{literal(name)}, coalesce((done -> 'counts' ->> {literal(table)})::bigint, 0)"
        for name, table in webhooks.counted
    )
    body = f"""\
DECLARE
  chosen integer;
  done jsonb;
  distinct_statuses text[];
BEGIN
  PERFORM {OWN_SCHEMA}.sql_limit(row_limit, {webhooks.most});
  IF coalesce(cardinality(statuses), 0) = 0 THEN
    {wrong("'statuses is empty: name at least one'")}
  END IF;
  distinct_statuses := ARRAY(SELECT s FROM unnest(statuses) WITH ORDINALITY AS u(s, n) GROUP BY s ORDER BY min(n));
  SELECT o.number INTO chosen FROM {offered}
    WHERE o.statuses = ARRAY(SELECT s FROM unnest(distinct_statuses) AS u(s) ORDER BY s COLLATE "C");
  IF NOT FOUND THEN
    {wrong("format('events in %s are never pruned here', statuses)", literal(f"statuses: {', '.join(known)}"))}
  END IF;
  PERFORM {OWN_SCHEMA}.sql_older_than(to_timestamp(older_than), {interval(webhooks.floors[0])});
  done := {OWN_SCHEMA}.sql_run(chosen, true, {literal(webhooks.events_kind)}, NULL,
    jsonb_build_object('statuses', to_jsonb(distinct_statuses), 'older_than', older_than, 'limit', row_limit,
      'queue_name', {literal(webhooks.queue_name)}::text) || marks,
    row_limit, {webhooks.most_followers}, to_timestamp(older_than));
  RETURN jsonb_build_object({summary});
END"""
    parameters = "statuses text[], older_than double precision, row_limit integer, marks jsonb"
    return plpgsql("sql_knocker_events", parameters, body)


def _knocker_take_orphans(webhooks: Webhooks) -> str:
    deliveries = literal(dict(webhooks.counted)["deliveries_pruned"])
    body = f"""\
DECLARE done jsonb;
BEGIN
  PERFORM {OWN_SCHEMA}.sql_limit(row_limit, {webhooks.most});
  PERFORM {OWN_SCHEMA}.sql_older_than(to_timestamp(older_than), {interval(webhooks.floors[1])});
  done := {OWN_SCHEMA}.sql_run({webhooks.orphans.number}, true, {literal(webhooks.orphans_kind)}, NULL,
    jsonb_build_object('older_than', older_than, 'limit', row_limit, 'queue_name', {literal(webhooks.queue_name)}::text) || marks,
    row_limit, {webhooks.most_followers}, to_timestamp(older_than));
  RETURN jsonb_build_object('deliveries_pruned', (done -> 'counts' ->> {deliveries})::bigint);
END"""
    return plpgsql("sql_knocker_orphans", "older_than double precision, row_limit integer, marks jsonb", body)


def _knocker_pass(webhooks: Webhooks) -> str:
    told = "format('{name} must be above zero, not %s', {name})"
    window = "{name} <= 0 OR {name} = 'NaN' OR {name} = 'Infinity'"
    checks = "\n".join(
        f"  IF {window.format(name=name)} THEN\n    {wrong(told.format(name=name))}\n  END IF;"
        for name in ("event_older_than_s", "orphan_deliveries_older_than_s")
    )
    body = f"""\
DECLARE
  clock double precision := extract(epoch FROM clock_timestamp());
  marks jsonb := jsonb_build_object('pass', replace(gen_random_uuid()::text, '-', ''));
  events jsonb;
  orphans jsonb;
BEGIN
  IF event_older_than_s IS NULL AND orphan_deliveries_older_than_s IS NULL THEN
    {wrong("'the pass enables nothing: no threshold, no deletion'", "'give event_older_than_s, orphan_deliveries_older_than_s, or both'")}
  END IF;
{checks}
  IF event_older_than_s IS NOT NULL THEN
    events := {OWN_SCHEMA}.sql_knocker_events(event_statuses, clock - event_older_than_s, event_limit, marks);
  END IF;
  IF orphan_deliveries_older_than_s IS NOT NULL THEN
    orphans := {OWN_SCHEMA}.sql_knocker_orphans(clock - orphan_deliveries_older_than_s, orphan_deliveries_limit, marks);
  END IF;
  RETURN jsonb_build_object('events', events, 'orphan_deliveries', orphans);
END"""
    parameters = (
        f"event_statuses text[] DEFAULT {literal(list(webhooks.settled))}::text[], event_older_than_s double precision DEFAULT NULL,"
        " event_limit integer DEFAULT 100, orphan_deliveries_older_than_s double precision DEFAULT NULL,"
        " orphan_deliveries_limit integer DEFAULT 100"
    )
    return plpgsql("knocker_run_retention_pass", parameters, body)


def audits_view(webhooks: Webhooks) -> str:
    events, deliveries = literal(webhooks.events_kind), dict(webhooks.counted)["deliveries_pruned"]
    counts = ",\n  ".join(
        (
            f"coalesce((counts ->> {literal(table)})::bigint, 0)"
            if table == deliveries
            else f"CASE WHEN kind = {events} THEN coalesce((counts ->> {literal(table)})::bigint, 0) END"
        )
        + f" AS {name}"
        for name, table in webhooks.counted
    )
    return f"""\
CREATE OR REPLACE VIEW {OWN_SCHEMA}.{AUDITS_VIEW} AS
SELECT id, kind, inputs ->> 'queue_name' AS queue_name, floor(extract(epoch FROM executed_at))::bigint AS executed_at,
  {counts},
  jsonb_strip_nulls(jsonb_build_object('statuses', inputs -> 'statuses', 'older_than', inputs -> 'older_than',
    'limit', inputs -> 'limit'))::text AS summary_json
FROM {OWN_SCHEMA}.audit
WHERE kind IN ({events}, {literal(webhooks.orphans_kind)})
ORDER BY id DESC"""
