"""Making a plan: contract + database + now → what is due. Reads only, each read bounded; estimates are marked."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from functools import cache

from wane._contract.fingerprint import fingerprint
from wane._contract.mistakes import key_path
from wane._contract.model import Contract, Mark, Rule, ToArchive, ToColdTier
from wane._db import Store
from wane._db.counting import READ_SECONDS, Count, count_rows
from wane._db.schema import TableInfo
from wane._db.statement import Statement
from wane._findings import Finding, Severity, errors_of
from wane._prune.plan import Plan, Step, StepStatement
from wane._prune.preview import preview
from wane._rules.holds import lost_holds, report_lost_holds
from wane._rules.indexes import check_indexes
from wane._rules.reads import read_due
from wane._rules.references import check_references
from wane._rules.report import Report
from wane._rules.rows import cutoff, rows_of
from wane._rules.selection import Selection, bind_contract, follower_paths
from wane.errors import StoreError, Unreachable

BATCH_ROWS = 500
ROWS_PER_SECOND = 2_000
"""The default pace as measured on small machines: a commit takes longer than 500 rows, and a pause nine times as long
follows it."""

Progress = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, what is next)."""


def build_plan(
    store: Store,
    contract: Contract,
    *,
    now: datetime | None = None,
    only: Collection[str] = (),
    seconds: float = READ_SECONDS,
    explain: bool = False,
    progress: Progress | None = None,
) -> Plan:
    """Plan every rule, or `only` those named `table` or `table.rule`, as of `now` (by default the database's clock)."""
    now = now or store.now()
    schema = store.reflect()
    selections, problems = bind_contract(contract, schema, store.types)
    wanted = [one for one in selections if not only or {str(one.name), one.label} & set(only)]
    steps: list[Step] = []
    held = Report(contract)
    report_lost_holds(lost_holds(store, schema), held)
    refused: list[Finding] = held.findings

    @cache
    def rows(table: TableInfo) -> Count | None:
        return count_rows(store, table, seconds)

    def count_of(table: TableInfo) -> int | None:
        count = rows(table)
        return None if count is None else count.rows

    for number, selection in enumerate(wanted):
        if progress is not None:
            progress(number, len(wanted), selection.label)
        report = Report(contract)
        try:
            check_references(contract, schema, selection, report)
            check_indexes(store, selection, count_of, report)
            refused += errors_of(report.findings)  # Due or not, no sweep and no prune takes these rows.
            swept = not contract.table(selection.name).append_only
            count = rows(selection.table)
            steps.append(plan_step(store, selection, now, seconds, count, swept=swept, explain=explain))
        except Unreachable:
            raise
        except StoreError as problem:  # One unreadable table does not prevent others from being planned.
            refused.append(_unreadable(contract, selection, problem))
    tables = {name.rpartition(".")[0] or name for name in only} | set(only)
    return Plan(
        made_at=now,
        fingerprint=fingerprint(contract),
        database=store.identity(),
        url=store.shown,
        steps=tuple(steps),
        problems=(*(finding for finding in problems if not only or finding.table in tables), *refused),
    )


def plan_step(
    store: Store,
    selection: Selection,
    now: datetime,
    seconds: float,
    rows: Count | None,
    *,
    swept: bool,
    explain: bool,
) -> Step:
    """Plan what one rule would take of a table with `rows` rows."""
    due = read_due(store, selection, now, seconds)
    statements = tuple(
        StepStatement(
            one.purpose,
            one.statement.text,
            one.statement.parameters,
            _explained(store, one.statement) if explain else "",
        )
        for one in preview(rows_of(store), selection, now, BATCH_ROWS)
    )
    leaving = sum(count.rows for count in (due.count, *dict(due.followers).values()) if count is not None)
    return Step(
        table=str(selection.name),
        rule=selection.rule.name,
        action=action_name(selection.rule),
        cutoff=cutoff(selection.rule, now),
        due=due.count,
        oldest=due.oldest,
        newest=due.newest,
        followers=dict(due.followers),
        table_rows=rows,
        share=_share(due.count, rows),
        seconds=None if due.count is None else leaving / ROWS_PER_SECOND,
        swept=swept,
        statements=statements,
        live_followers=tuple(
            dict.fromkeys(str(path[-1].reference.name) for path in follower_paths(selection) if path[-1].live_leaves)
        ),
    )


def _explained(store: Store, statement: Statement) -> str:
    """Return the query plan, or why there is none: a role that may read but not delete can plan, but not explain."""
    if statement.text.startswith("LOCK TABLE"):
        return ""
    try:
        return store.explain(statement)
    except Unreachable:
        raise
    except StoreError as problem:
        return problem.message


def _unreadable(contract: Contract, selection: Selection, problem: StoreError) -> Finding:
    finding = Finding(
        Severity.ERROR,
        "unreadable-table",
        problem.message,
        problem.hint,
        "" if contract.path is None else str(contract.path),
        key_path(["table", selection.name, "rule", selection.rule.name]),
        str(selection.name),
    )
    return contract.located(finding)


def action_name(rule: Rule) -> str:
    if isinstance(rule.action, Mark):
        return "mark"
    if isinstance(rule.action, ToColdTier):
        return "shelve"
    return "archive" if isinstance(rule.action, ToArchive) else "prune"


def _share(due: Count | None, rows: Count | None) -> float | None:
    if due is None or rows is None:
        return None
    return min(1.0, due.rows / rows.rows) if rows.rows else float(due.rows > 0)
