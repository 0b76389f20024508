"""The functions and the views that users call, written for one contract and stamped with its fingerprint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from wane._contract.model import ToColdTier
from wane._contract.settings import EventSettings
from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.postgres.dialect import PostgresDialect
from wane._db.postgres.plpgsql import dollars, literal
from wane._db.postgres.settings import SEARCH_PATH
from wane._db.schema import PRESSURE_VIEW
from wane._ledger import audit_insertion
from wane._rules.probes import ProbedTable
from wane._sqlfunctions.cold_tier import (
    ArchiveSweep,
    archive_sweep_function,
    move_function,
    shelf_function,
)
from wane._sqlfunctions.health import HEALTH_FUNCTION, health_function
from wane._sqlfunctions.outbox import EVENT_VARIABLES, event_statements
from wane._sqlfunctions.plpgsql import PINNED, interval, plpgsql, table_of, wrong
from wane._sqlfunctions.pressure import REPLACED_FUNCTIONS, pressure_statements
from wane._sqlfunctions.take import TakeFunction, take_function
from wane._sqlfunctions.webhooks import (
    WEBHOOK_FUNCTIONS,
    Webhooks,
    audits_view,
    stale_webhook_functions,
    webhook_functions,
)
from wane.observe._sql_installed import STAMP
from wane.webhooks._model import AUDITS_VIEW


@dataclass(frozen=True, slots=True)
class ByRule:
    """`wane.prune(table, rule, …)`: how it takes rows, or why it does not."""

    table: str
    rule: str
    kind: str
    take: TakeFunction | None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class OrphansFunction:
    """`wane.prune_orphans(table, …)`."""

    table: str
    states: Sequence[str | int | bool]
    """The states that the audit trail records as requested."""
    take: TakeFunction | None
    floor: timedelta
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Surface:
    """Everything that is installed for a contract."""

    fingerprint: str
    takes: Sequence[TakeFunction]
    rules: Sequence[ByRule]
    orphans: Sequence[OrphansFunction]
    webhooks: Webhooks | None
    tables: Sequence[ProbedTable]
    counted_rows: int
    """The view of pressure counts up to here."""
    events: EventSettings
    sweeps: Sequence[ArchiveSweep]
    most_rows: int


_PUBLIC = ("contract_fingerprint", "prune", "prune_orphans", HEALTH_FUNCTION)
_VIEWS = (AUDITS_VIEW, PRESSURE_VIEW)
_PATH = f"SET LOCAL search_path = {SEARCH_PATH}"
"""The session that runs the printed statements may have another search path."""


def install_statements(surface: Surface) -> list[str]:
    """Return the statements that install a surface and replace any earlier one, to run in one transaction."""
    functions = _shared(surface.events) + [_function_text(take) for take in surface.takes]
    functions += [_fingerprint(surface), _prune(surface), _prune_orphans(surface)]
    public = list(_PUBLIC)
    view: list[str] = []
    if surface.webhooks is not None:
        functions += webhook_functions(surface.webhooks)
        public += WEBHOOK_FUNCTIONS
        view = [audits_view(surface.webhooks)]
    if surface.sweeps:
        functions += [shelf_function(), *(archive_sweep_function(one, surface.most_rows) for one in surface.sweeps)]
        public += [one.name for one in surface.sweeps]
    functions += [*pressure_statements(surface.tables, surface.counted_rows), health_function()]
    stamp = literal(STAMP + surface.fingerprint)
    # Functions that are replaced, rather than dropped, retain the rights granted on them.
    staying = [*public, *REPLACED_FUNCTIONS, PRESSURE_VIEW, *([AUDITS_VIEW] if view else [])]
    # A view may still depend on a function that is no longer needed, until the view is replaced.
    return [_PATH, _drop(staying), *functions, *view, _drop(staying), _stamp(stamp, public)]


def _function_text(take: TakeFunction) -> str:
    moves = isinstance(take.selection.rule.action, ToColdTier)
    return move_function(take) if moves else take_function(take)


def uninstall_statements() -> list[str]:
    """Return the statement that removes everything that was installed."""
    return [_drop([])]


def _drop(staying: Sequence[str]) -> str:
    like, names = literal(STAMP + "%"), literal(list(staying))
    body = f"""\
DECLARE one text;
BEGIN
  FOR one IN SELECT format('DROP VIEW %s', oid::regclass) FROM pg_class
    WHERE relnamespace = to_regnamespace('{OWN_SCHEMA}') AND obj_description(oid, 'pg_class') LIKE {like}
      AND relname <> ALL ({names}::text[])
  LOOP EXECUTE one; END LOOP;
  FOR one IN SELECT format('DROP FUNCTION %s', oid::regprocedure) FROM pg_proc
    WHERE pronamespace = to_regnamespace('{OWN_SCHEMA}') AND obj_description(oid, 'pg_proc') LIKE {like}
      AND (proname <> ALL ({names}::text[]) OR {stale_webhook_functions()})
      AND NOT EXISTS (SELECT FROM pg_depend AS d WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = pg_proc.oid
        AND d.classid = 'pg_rewrite'::regclass)
  LOOP EXECUTE one; END LOOP;
END"""
    return f"DO {dollars(body)}"


def _stamp(stamp: str, public: Sequence[str]) -> str:
    """Write the statement that stamps everything of Wane's in the schema, to distinguish it from others' objects."""
    names = literal(list(public))
    body = f"""\
DECLARE one text;
BEGIN
  FOR one IN SELECT format('COMMENT ON FUNCTION %s IS %L', oid::regprocedure, {stamp}) FROM pg_proc
    WHERE pronamespace = to_regnamespace('{OWN_SCHEMA}') AND (proname LIKE 'sql\\_%' OR proname = ANY ({names}::text[]))
  LOOP EXECUTE one; END LOOP;
  FOR one IN SELECT format('COMMENT ON VIEW %s IS %L', oid::regclass, {stamp}) FROM pg_class
    WHERE relnamespace = to_regnamespace('{OWN_SCHEMA}') AND relkind = 'v' AND relname = ANY ({literal(list(_VIEWS))}::text[])
  LOOP EXECUTE one; END LOOP;
END"""
    return f"DO {dollars(body)}"


def _shared(events: EventSettings) -> list[str]:
    """Write the functions that the others call."""
    return [_timestamp_function(), _record_function(events), _run_function(), _limit_function(), _older_than_function()]


def _timestamp_function() -> str:
    body = """\
BEGIN
  RETURN to_char(instant AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS')
    || CASE WHEN to_char(instant AT TIME ZONE 'UTC', 'US') = '000000' THEN '' ELSE to_char(instant AT TIME ZONE 'UTC', '.US') END
    || '+00:00';
END"""
    return plpgsql("sql_timestamp", "instant timestamptz", body, returns="text")


def _record_function(events: EventSettings) -> str:
    recorded = {
        "executed_at": "wane_clock",
        "kind": "wane_kind",
        "table_name": "wane_table",
        "rule": "wane_rule",
        "run_id": "NULL",
        "actor": "coalesce(nullif(current_setting('wane.actor', true), ''), session_user)",
        "cutoff": "wane_cutoff",
        "inputs": "wane_inputs",
        "counts": "wane_counts",
        "row_count": "wane_rows",
        "batches": "1",
        "seconds": "round(extract(epoch FROM clock_timestamp() - wane_began)::numeric, 6)",
    }
    body = f"""\
DECLARE number bigint; {EVENT_VARIABLES}
BEGIN
  {audit_insertion(PostgresDialect(), recorded)} INTO number;
{event_statements(events)}
  RETURN jsonb_build_object('table', wane_table, 'rule', wane_rule, 'kind', wane_kind, 'counts', wane_counts, 'rows', wane_rows,
    'cutoff', {OWN_SCHEMA}.sql_timestamp(wane_cutoff), 'audit_id', number);
END"""
    parameters = (
        "wane_kind text, wane_table text, wane_rule text, wane_inputs jsonb, wane_counts jsonb, wane_rows bigint,"
        " wane_cutoff timestamptz, wane_clock timestamptz, wane_began timestamptz"
    )
    return plpgsql("sql_record", parameters, body)


def _run_function() -> str:
    body = f"""\
DECLARE
  statement text := format('SELECT {OWN_SCHEMA}.sql_take_%s($1, $2, $3, $4, $5, $6, $7)', wane_number);
  done jsonb;
BEGIN
  BEGIN
    EXECUTE statement INTO done USING wane_kind, wane_rule, wane_inputs, wane_limit, wane_most, wane_now, false;
    RETURN done;
  EXCEPTION WHEN lock_not_available THEN
    -- Others hold rows locked: those are left for the next time.
    IF NOT wane_may_skip THEN RAISE; END IF;
  END;
  EXECUTE statement INTO done USING wane_kind, wane_rule, wane_inputs, wane_limit, wane_most, wane_now, true;
  RETURN done;
END"""
    parameters = (
        "wane_number integer, wane_may_skip boolean, wane_kind text, wane_rule text, wane_inputs jsonb,"
        " wane_limit integer, wane_most integer, wane_now timestamptz"
    )
    return plpgsql("sql_run", parameters, body)


def _limit_function() -> str:
    body = f"""\
BEGIN
  IF wane_limit IS NULL OR wane_limit < 1 OR wane_limit > wane_most THEN
    {wrong("format('the limit must be from 1 to %s, not %s', wane_most, coalesce(wane_limit::text, 'NULL'))")}
  END IF;
  RETURN wane_limit;
END"""
    return plpgsql("sql_limit", "wane_limit integer, wane_most integer", body, returns="integer")


def _older_than_function() -> str:
    body = f"""\
BEGIN
  IF wane_at IS NULL THEN
    {wrong("'older_than is NULL: no threshold, no deletion'")}
  END IF;
  IF NOT isfinite(wane_at) OR wane_at < timestamptz 'epoch' OR wane_at >= timestamptz '2200-01-01 00:00:00+00' THEN
    {wrong("format('older_than is not a plausible time: %s', wane_at)", "'unix seconds are not milliseconds'")}
  END IF;
  IF wane_at > clock_timestamp() + interval '1 minute' THEN
    {wrong("format('older_than is in the future: %s', wane_at)", "'no row can be that old yet'")}
  END IF;
  IF wane_floor > interval '0' AND wane_at > clock_timestamp() - wane_floor THEN
    {wrong("format('older_than is under the floor of %s', wane_floor)")}
  END IF;
  RETURN wane_at;
END"""
    return plpgsql("sql_older_than", "wane_at timestamptz, wane_floor interval", body, returns="timestamptz")


def _fingerprint(surface: Surface) -> str:
    return (
        f"CREATE OR REPLACE FUNCTION {OWN_SCHEMA}.contract_fingerprint() RETURNS text LANGUAGE sql IMMUTABLE\n"
        f"{PINNED}\nAS {dollars(f'SELECT {literal(surface.fingerprint)}::text')}"
    )


def _number(take: TakeFunction | None) -> list[str]:
    return ["NULL::integer", "NULL::boolean"] if take is None else [str(take.number), str(take.may_skip).lower()]


def _prune(surface: Surface) -> str:
    offered = table_of(
        [
            (literal(one.table), literal(one.rule), literal(one.kind), *_number(one.take), literal(one.refused))
            for one in surface.rules
        ],
        "table_name, rule_name, kind, number, may_skip, refused",
        "'', '', '', 0, false, ''",
    )
    body = f"""\
DECLARE offer record;
BEGIN
  PERFORM {OWN_SCHEMA}.sql_limit(row_limit, {surface.most_rows});
  SELECT * INTO offer FROM {offered} WHERE o.table_name = prune.table_name AND o.rule_name = prune.rule_name;
  IF NOT FOUND THEN
    {wrong("format('the contract has no rule %s.%s that prunes', table_name, rule_name)", "'`wane check --show` lists the rules; install again after a change'")}
  END IF;
  IF offer.number IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = format('%s.%s: %s', table_name, rule_name, offer.refused);
  END IF;
  RETURN {OWN_SCHEMA}.sql_run(offer.number, offer.may_skip, offer.kind, rule_name,
    jsonb_build_object('rule', rule_name, 'limit', row_limit), row_limit, row_limit, NULL);
END"""
    return plpgsql("prune", "table_name text, rule_name text, row_limit integer", body)


def _prune_orphans(surface: Surface) -> str:
    offered = table_of(
        [
            (
                literal(one.table),
                f"{literal(json.dumps(list(one.states)))}::jsonb",
                *_number(one.take),
                interval(one.floor),
                literal(one.refused),
            )
            for one in surface.orphans
        ],
        "table_name, states, number, may_skip, floor, refused",
        "'', '[]'::jsonb, 0, false, interval '0', ''",
    )
    body = f"""\
DECLARE offer record;
BEGIN
  PERFORM {OWN_SCHEMA}.sql_limit(row_limit, {surface.most_rows});
  SELECT * INTO offer FROM {offered} WHERE o.table_name = prune_orphans.table_name;
  IF NOT FOUND THEN
    {wrong("format('no rule of %s prunes orphans', table_name)", "'`wane check --show` lists the rules; install again after a change'")}
  END IF;
  IF offer.number IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = format('%s: %s', table_name, offer.refused);
  END IF;
  PERFORM {OWN_SCHEMA}.sql_older_than(older_than, offer.floor);
  RETURN {OWN_SCHEMA}.sql_run(offer.number, offer.may_skip, 'prune_orphans', NULL,
    jsonb_build_object('states', offer.states, 'older_than', {OWN_SCHEMA}.sql_timestamp(older_than), 'limit', row_limit),
    row_limit, row_limit, older_than);
END"""
    return plpgsql("prune_orphans", "table_name text, older_than timestamptz, row_limit integer", body)
