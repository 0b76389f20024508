"""The webhook names in the database: `knocker_prune_events` and its siblings, and the view of their audit rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.postgres.plpgsql import literal
from wane._rules.selection import BoundComparison, BoundCondition, BoundFollower, Selection
from wane._sqlfunctions.plpgsql import interval, plpgsql, table_of, wrong
from wane._sqlfunctions.take import QUEUE, TakeFunction
from wane.webhooks._model import AUDITS_VIEW

_STATUSES, _CUTOFF, _LIMIT, _QUEUE = "text", "double precision", "integer", "text"
WEBHOOK_ARGUMENTS = {
    "knocker_prune_events": (
        ("statuses_json", _STATUSES),
        ("older_than", _CUTOFF),
        ('"limit"', _LIMIT),
        ("queue", _QUEUE),
    ),
    "knocker_prune_orphan_deliveries": (("older_than", _CUTOFF), ('"limit"', _LIMIT), ("queue", _QUEUE)),
    "knocker_run_retention_pass": (
        ("statuses_json", _STATUSES),
        ("events_older_than", _CUTOFF),
        ("events_limit", _LIMIT),
        ("orphans_older_than", _CUTOFF),
        ("orphans_limit", _LIMIT),
        ("queue", _QUEUE),
    ),
}
"""The arguments of each function, in order. Cutoffs are unix seconds."""
WEBHOOK_FUNCTIONS = tuple(WEBHOOK_ARGUMENTS)


@dataclass(frozen=True, slots=True)
class Webhooks:
    """`knocker_…`: one function for every combination of statuses, and one for orphan deliveries."""

    events: Sequence[tuple[tuple[str, ...], TakeFunction]]
    orphans: TakeFunction
    queue_name: str | None
    """The queue of a call that names none."""
    counted: Sequence[tuple[str, str]]
    """(name in a summary, table as the audit trail names it)."""
    settled: Sequence[str]
    most: int
    most_followers: int
    events_kind: str
    orphans_kind: str
    floors: tuple[timedelta, timedelta]


def of_any_queue(selection: Selection, table: str, column: str) -> Selection:
    """Return a selection whose live jobs leave if they are in the queue that the call names."""

    def named(follower: BoundFollower) -> BoundFollower:
        where = follower.where
        if follower.reference.name.name == table:
            where = tuple(_any_queue(one) if one.column.name == column else one for one in where)
        return replace(follower, where=where, followers=tuple(map(named, follower.followers)))

    return replace(selection, followers=tuple(map(named, selection.followers)))


def _any_queue(condition: BoundCondition) -> BoundCondition:
    return BoundCondition(condition.column, (BoundComparison("=", (QUEUE,)),))


def stale_webhook_functions() -> str:
    """Write the condition that a function has one of these names with other arguments, so that it must be dropped."""
    current = [
        f"{name}({', '.join(f'{argument} {kind}' for argument, kind in arguments)})"
        for name, arguments in WEBHOOK_ARGUMENTS.items()
    ]
    return (
        f"(proname = ANY ({literal(list(WEBHOOK_FUNCTIONS))}::text[])"
        f" AND proname || '(' || pg_get_function_identity_arguments(oid) || ')' <> ALL ({literal(current)}::text[]))"
    )


def webhook_functions(webhooks: Webhooks) -> list[str]:
    return [
        _knocker_take_events(webhooks),
        _knocker_take_orphans(webhooks),
        plpgsql(
            "knocker_prune_events",
            _parameters("knocker_prune_events", webhooks),
            f"BEGIN\n  RETURN {OWN_SCHEMA}.sql_knocker_events(statuses_json, older_than, \"limit\", queue, '{{}}');\nEND",
        ),
        plpgsql(
            "knocker_prune_orphan_deliveries",
            _parameters("knocker_prune_orphan_deliveries", webhooks),
            f"BEGIN\n  RETURN {OWN_SCHEMA}.sql_knocker_orphans(older_than, \"limit\", queue, '{{}}');\nEND",
        ),
        _knocker_pass(webhooks),
    ]


def _parameters(name: str, webhooks: Webhooks) -> str:
    defaults = {
        "statuses_json": literal(json.dumps(list(webhooks.settled))),
        '"limit"': "100",
        "events_limit": "100",
        "orphans_limit": "100",
    }
    return ", ".join(
        f"{argument} {kind} DEFAULT {defaults.get(argument, 'NULL')}" for argument, kind in WEBHOOK_ARGUMENTS[name]
    )


def _checked(webhooks: Webhooks) -> str:
    """Write the statements that determine the queue of a call, and refuse a cutoff that is not a number."""
    return f"""\
  IF queue = '' THEN
    {wrong("'queue is empty: name one, or leave it out'")}
  END IF;
  queue := coalesce(queue, {literal(webhooks.queue_name)});
  IF older_than = 'NaN' THEN
    {wrong("'older_than is not a number'", "'give unix seconds'")}
  END IF;"""


def _knocker_take_events(webhooks: Webhooks) -> str:
    offered = table_of(
        [(f"{literal(sorted(statuses))}::text[]", str(take.number)) for statuses, take in webhooks.events],
        "statuses, number",
        "'{}'::text[], 0",
    )
    known = sorted({status for statuses, _ in webhooks.events for status in statuses})
    summary = ", ".join(
        f"{literal(name)}, coalesce((done -> 'counts' ->> {literal(table)})::bigint, 0)"
        for name, table in webhooks.counted
    )
    array = wrong("format('statuses must be a JSON array, not %s', statuses_json)", '\'write ["handled", "ignored"]\'')
    body = f"""\
DECLARE
  chosen integer;
  done jsonb;
  parsed jsonb;
  asked text[];
BEGIN
  PERFORM {OWN_SCHEMA}.sql_limit(row_limit, {webhooks.most});
  BEGIN
    parsed := coalesce(statuses_json, {literal(json.dumps(list(webhooks.settled)))})::jsonb;
  EXCEPTION WHEN data_exception THEN
    {array}
  END;
  IF jsonb_typeof(parsed) <> 'array' THEN
    {array}
  END IF;
  IF jsonb_array_length(parsed) = 0 THEN
    {wrong("'statuses is empty: name at least one'")}
  END IF;
  IF EXISTS (SELECT 1 FROM jsonb_array_elements(parsed) AS e(one) WHERE jsonb_typeof(e.one) <> 'string') THEN
    {wrong("format('statuses must be texts, not %s', statuses_json)")}
  END IF;
  asked := ARRAY(SELECT u.s FROM jsonb_array_elements_text(parsed) WITH ORDINALITY AS u(s, n) GROUP BY u.s ORDER BY min(u.n));
  SELECT o.number INTO chosen FROM {offered}
    WHERE o.statuses = ARRAY(SELECT u.s FROM unnest(asked) AS u(s) ORDER BY u.s COLLATE "C");
  IF NOT FOUND THEN
    {wrong("format('events in %s are never pruned here', asked)", literal(f"statuses: {', '.join(known)}"))}
  END IF;
{_checked(webhooks)}
  PERFORM {OWN_SCHEMA}.sql_older_than(to_timestamp(older_than), {interval(webhooks.floors[0])});
  done := {OWN_SCHEMA}.sql_run(chosen, true, {literal(webhooks.events_kind)}, NULL,
    jsonb_build_object('statuses', to_jsonb(asked), 'older_than', older_than, 'limit', row_limit, 'queue_name', queue) || marks,
    row_limit, {webhooks.most_followers}, to_timestamp(older_than));
  RETURN jsonb_build_object({summary});
END"""
    parameters = "statuses_json text, older_than double precision, row_limit integer, queue text, marks jsonb"
    return plpgsql("sql_knocker_events", parameters, body)


def _knocker_take_orphans(webhooks: Webhooks) -> str:
    deliveries = literal(dict(webhooks.counted)["deliveries_pruned"])
    body = f"""\
DECLARE done jsonb;
BEGIN
  PERFORM {OWN_SCHEMA}.sql_limit(row_limit, {webhooks.most});
{_checked(webhooks)}
  PERFORM {OWN_SCHEMA}.sql_older_than(to_timestamp(older_than), {interval(webhooks.floors[1])});
  done := {OWN_SCHEMA}.sql_run({webhooks.orphans.number}, true, {literal(webhooks.orphans_kind)}, NULL,
    jsonb_build_object('older_than', older_than, 'limit', row_limit, 'queue_name', queue) || marks,
    row_limit, {webhooks.most_followers}, to_timestamp(older_than));
  RETURN jsonb_build_object('deliveries_pruned', (done -> 'counts' ->> {deliveries})::bigint);
END"""
    return plpgsql(
        "sql_knocker_orphans", "older_than double precision, row_limit integer, queue text, marks jsonb", body
    )


def _knocker_pass(webhooks: Webhooks) -> str:
    body = f"""\
DECLARE
  marks jsonb := jsonb_build_object('pass', replace(gen_random_uuid()::text, '-', ''));
  events jsonb;
  orphans jsonb;
BEGIN
  IF events_older_than IS NULL AND orphans_older_than IS NULL THEN
    {wrong("'the pass enables nothing: no threshold, no deletion'", "'give events_older_than, orphans_older_than, or both'")}
  END IF;
  IF events_older_than IS NOT NULL THEN
    events := {OWN_SCHEMA}.sql_knocker_events(statuses_json, events_older_than, events_limit, queue, marks);
  END IF;
  IF orphans_older_than IS NOT NULL THEN
    orphans := {OWN_SCHEMA}.sql_knocker_orphans(orphans_older_than, orphans_limit, queue, marks);
  END IF;
  RETURN jsonb_build_object('event_result', events, 'orphan_result', orphans);
END"""
    return plpgsql("knocker_run_retention_pass", _parameters("knocker_run_retention_pass", webhooks), body)


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
