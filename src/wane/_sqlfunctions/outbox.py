"""Events of the functions' deletions, as rows of the application's outbox: `wane._prune.sql_outbox` in SQL."""

from __future__ import annotations

import re

from wane._contract.names import TableName
from wane._contract.settings import EventSettings, OutboxSettings
from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.postgres.plpgsql import literal
from wane._db.statement import Dialect

_WORD = re.compile(r"\{([a-z_]+)\}")
_VALUES = {
    "name": "wane_name",
    "domain": "split_part(wane_name, '/', 1)",
    "event": "substr(wane_name, strpos(wane_name, '/') + 1)",
    "table": "wane_reported",
    "rows": "wane_many::text",
    "audit": "number::text",
    "now": f"{OWN_SCHEMA}.sql_timestamp(wane_clock)",
    "now_s": "floor(extract(epoch FROM wane_clock))::bigint::text",
    "now_ms": "floor(extract(epoch FROM wane_clock) * 1000)::bigint::text",
    "uuid": "gen_random_uuid()::text",
    "payload": (
        "jsonb_build_object('event', wane_name, 'table', wane_reported, 'rows', wane_many, 'audit', number, 'at',"
        f" {OWN_SCHEMA}.sql_timestamp(wane_clock), 'rule', wane_rule)::text"
    ),
}


def event_statements(events: EventSettings) -> str:
    """Write PL/pgSQL that records the events of the audit entry with the id `number`; "" without an outbox."""
    if events.outbox is None:
        return ""
    pruned = _among(events.hard_deleted) + " AND " + _among(events.outbox.prunes)
    return f"""\
  FOR wane_reported, wane_many IN SELECT e.key, e.value::bigint FROM jsonb_each_text(wane_counts) AS e WHERE e.value::bigint > 0 LOOP
    wane_name := CASE
      WHEN wane_kind = 'mark' THEN NULL
      WHEN wane_kind = 'shelve' THEN CASE WHEN wane_reported = wane_table AND {_among(events.archived)} THEN 'system/' || wane_reported || '_archived' END
      WHEN {pruned} THEN 'system/' || wane_reported || '_hard_deleted' END;
    IF wane_name IS NOT NULL THEN
      EXECUTE {_insert(events.outbox)};
    END IF;
  END LOOP;"""


EVENT_VARIABLES = "wane_reported text; wane_many bigint; wane_name text;"


def _among(tables: bool | tuple[str, ...]) -> str:
    if isinstance(tables, bool):
        return str(tables).lower()
    return f"wane_reported = ANY ({literal(list(tables))}::text[])"


def _insert(outbox: OutboxSettings) -> str:
    """Write the INSERT as a text with untyped literals, which PostgreSQL converts to each column's type."""
    name = TableName.parse(outbox.table)
    table = ".".join(Dialect.quote(one) for one in (name.schema, name.name) if one is not None)
    columns = ", ".join(Dialect.quote(column) for column, _ in outbox.columns)
    text = (
        f"INSERT INTO {table} ({columns}) VALUES (".replace("%", "%%") + ", ".join(["%L"] * len(outbox.columns)) + ")"
    )
    return f"format({literal(text)}, {', '.join(_filled(one) for _, one in outbox.columns)})"


def _filled(text: str) -> str:
    parts = []
    for position, part in enumerate(_WORD.split(text)):
        if position % 2:
            parts.append(_VALUES[part])
        elif part:
            parts.append(literal(part))
    return " || ".join(parts) if parts else "''"
