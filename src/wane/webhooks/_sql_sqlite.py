"""The audit rows of webhooks as a view of a SQLite connection; its columns are those of `PruneAudit`."""

from __future__ import annotations

from collections.abc import Mapping

from wane._db.statement import text_literal
from wane.webhooks._model import PRUNE_EVENTS, PRUNE_ORPHAN_DELIVERIES


def audits_query(counted: Mapping[str, str]) -> str:
    """Write the query of the view; `counted` maps counts to tables as the audit trail names them."""
    counts = []
    for name, table in counted.items():
        path = text_literal(f'$."{table}"')
        count = f"coalesce(json_extract(counts, {path}), 0)"
        always = name == "deliveries_pruned"
        counts.append(
            f"{count if always else f'CASE WHEN kind = {text_literal(PRUNE_EVENTS)} THEN {count} END'} AS {name}"
        )
    return (
        "SELECT id, kind, json_extract(inputs, '$.queue_name') AS queue_name,"
        f" CAST(strftime('%s', executed_at) AS INTEGER) AS executed_at, {', '.join(counts)},"
        " CASE WHEN json_type(inputs, '$.statuses') IS NULL"
        " THEN json_object('older_than', json_extract(inputs, '$.older_than'), 'limit', json_extract(inputs, '$.limit'))"
        " ELSE json_object('statuses', json_extract(inputs, '$.statuses'), 'older_than', json_extract(inputs, '$.older_than'),"
        " 'limit', json_extract(inputs, '$.limit')) END AS summary_json FROM main.wane_audit"
        f" WHERE kind IN ({text_literal(PRUNE_EVENTS)}, {text_literal(PRUNE_ORPHAN_DELIVERIES)}) ORDER BY id DESC"
    )
