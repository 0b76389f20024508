"""What sweeps that filled the archive took, by their journal."""

from __future__ import annotations

from wane._db.statement import Dialect, Execute, Parameters
from wane._journal import JSON
from wane._ledger import SweepCost


def archive_costs(dialect: Dialect, execute: Execute, table: str, rule: str, limit: int) -> list[SweepCost]:
    """Return what the latest sweeps of a rule took, from plan to end, newest first."""
    p = Parameters(dialect)
    found = execute(
        f"SELECT s.archived, s.planned_at, s.changed_at FROM {dialect.own_table('archive_sweep')} AS s"
        f" JOIN {dialect.own_table('audit')} AS a ON a.id = s.audit_id AND a.row_count > 0"
        f" WHERE s.table_name = {p.bind('table', table)} AND s.rule = {p.bind('rule', rule)} AND s.state = 'done'"
        f" ORDER BY s.id DESC LIMIT {p.bind('limit', limit)}",
        p.values,
    )
    decode = dialect.decode_time
    return [
        SweepCost(sum(JSON.decode(dialect, archived).values()), 1, (decode(ended) - decode(planned)).total_seconds())
        for archived, planned, ended in found
    ]
