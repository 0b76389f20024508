"""The function that returns the latest recorded health report, with its age. It judges only whether that is too old."""

from __future__ import annotations

from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.postgres.plpgsql import literal
from wane._sqlfunctions.plpgsql import plpgsql

HEALTH_FUNCTION = "fn_retention_health"
_FIX = "record one: `wane run` does at intervals, and `wane health --record` at once"


def health_function() -> str:
    """Write the CREATE FUNCTION statement."""
    body = f"""\
DECLARE
  wane_now timestamptz := clock_timestamp();
  wane_latest record;
  wane_report jsonb := '{{"verdict": "healthy", "now": null, "report_age_seconds": null, "tables": [], "findings": []}}';
  wane_code text := 'no-report';
  wane_message text := 'no health report was recorded yet, so nothing is known';
BEGIN
  SELECT * INTO wane_latest FROM {OWN_SCHEMA}.health_report;
  IF FOUND THEN
    wane_report := wane_latest.report || jsonb_build_object('report_age_seconds',
      round(greatest(extract(epoch FROM wane_now - wane_latest.read_at), 0)::numeric, 1));
    -- A report dated in the future was read by a clock that was set back since.
    IF wane_now BETWEEN wane_latest.read_at - interval '1 minute' AND wane_latest.stale_at THEN RETURN wane_report; END IF;
    wane_code := 'stale-report';
    wane_message := format('the latest health report was read at %s, so the present state is unknown', wane_latest.read_at);
  END IF;
  RETURN wane_report || jsonb_build_object('healthy', false,
    'verdict', 'unhealthy: ' || wane_code || coalesce(', ' || nullif(substr(wane_report ->> 'verdict', {len("unhealthy: ") + 1}), ''), ''),
    'findings', jsonb_build_array(jsonb_build_object('severity', 'error', 'code', wane_code, 'message', wane_message,
      'fix', {literal(_FIX)}, 'file', '', 'path', '', 'table', '')) || (wane_report -> 'findings'));
END"""
    return plpgsql(HEALTH_FUNCTION, "", body)
