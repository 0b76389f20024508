"""Making a plan: contract + database + now → what is due. Reads only, each read bounded; estimates are marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from typing import Protocol

from wane._contract.fingerprint import fingerprint
from wane._contract.lookup import is_named
from wane._contract.mistakes import key_path
from wane._contract.model import Contract, Mark, Rule, ToArchive, ToColdTier
from wane._contract.settings import Budget
from wane._db import Store
from wane._db.counting import (
    READ_SECONDS,
    Count,
    Exactness,
    bound_rows,
    count,
    count_rows,
    count_union,
    share_of,
    sum_counts,
)
from wane._db.schema import TableInfo
from wane._db.statement import Statement
from wane._db.timestamps import shown_time
from wane._findings import Finding, Severity, errors_of
from wane._ledger import Ledger, SweepCost
from wane._prune.pace import Pace, foresee, learn_costs
from wane._prune.plan import ArchiveWait, BudgetStop, Plan, Step, StepStatement, Takes
from wane._prune.preview import ShownStatement, preview
from wane._rules.access import check_indexes
from wane._rules.holds import lost_holds, report_lost_holds
from wane._rules.probes import overlapping
from wane._rules.queries import queries_of
from wane._rules.reads import count_due, read_due
from wane._rules.references import check_references
from wane._rules.report import Report
from wane._rules.rows import cutoff, rows_of
from wane._rules.selection import Selection, bind_contract, follower_paths, without_live_followers
from wane.errors import StoreError, TimedOut, Unreachable

BATCH_ROWS = 500
_LEARNED_SWEEPS = 20
"""The latest sweeps of a rule that its costs are learned from."""
_BESIDES = 2.0
"""What a sweep may take besides the work that is recorded: a commit takes up to as long as the rest of a batch."""

Progress = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, what is next)."""


class PlannedArchive(Protocol):
    """What a plan reads of the archive, which is another folder's."""

    def costs(self, table: str, rule: str, limit: int, seconds: float) -> list[SweepCost]:
        """Return what the latest sweeps of a rule took, newest first."""

    def shown(self, selection: Selection, now: datetime, limit: int, seconds: float | None) -> list[ShownStatement]:
        """Return the statements that evict rows, in the order in which they run; read their values within `seconds`."""


def build_plan(
    store: Store,
    contract: Contract,
    *,
    now: datetime | None = None,
    only: Collection[str] = (),
    seconds: float = READ_SECONDS,
    explain: bool = False,
    progress: Progress | None = None,
    archive: PlannedArchive | None = None,
) -> Plan:
    """Plan every rule, or `only` those named `table` or `table.rule`, as of `now` (by default the database's clock).

    Without `archive` it is unknown how long rules that archive take, and what they run.
    """
    now = now or store.now()
    schema = store.reflect()
    selections, problems = bind_contract(contract, schema, store.types)
    wanted = [one for one in selections if not only or is_named(only, one.name, one.rule.name)]
    steps: list[Step] = []
    planned: list[Selection] = []
    held = Report(contract)
    report_lost_holds(lost_holds(store, schema), held)
    refused: list[Finding] = held.findings

    @cache
    def rows(table: TableInfo) -> Count | None:
        return count_rows(store, table, seconds) or bound_rows(store, table)

    def count_of(table: TableInfo) -> int | None:
        count = rows(table)
        return None if count is None or count.exactness is Exactness.AT_MOST else count.rows

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
            step = plan_step(store, selection, now, seconds, count, swept=swept, explain=explain, archive=archive)
            steps.append(_timed(store, contract, step, selection.rule, seconds, archive))
            planned.append(selection)
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
        total=_total(store, planned, steps, now, seconds),
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
    limit: int = BATCH_ROWS,
    known: Count | None = None,
    archive: PlannedArchive | None = None,
) -> Step:
    """Plan what one rule would take of a table with `rows` rows; its statements are shown with a batch of `limit`.

    `known` is how many rows are due, if that was counted.
    """
    due = read_due(store, selection, now, seconds, known)
    if not isinstance(selection.rule.action, ToArchive):
        shown = preview(rows_of(store), selection, now, limit)
    else:
        shown = [] if archive is None else archive.shown(selection, now, limit, seconds if explain else None)
    statements = tuple(
        StepStatement(
            one.purpose,
            one.statement.text,
            one.statement.parameters,
            _explained(store, one.statement) if explain else "",
        )
        for one in shown
    )
    share = share_of(due.count, rows)
    return Step(
        table=str(selection.name),
        rule=selection.rule.name,
        action=action_name(selection.rule),
        cutoff=cutoff(selection.rule, now),
        due=due.count,
        oldest=shown_time(due.oldest, selection.declared_time),
        newest=shown_time(due.newest, selection.declared_time),
        followers=dict(due.followers),
        table_rows=rows,
        share=None if share is None else share.value,
        takes=None,
        swept=swept,
        statements=statements,
        live_followers=tuple(
            dict.fromkeys(str(path[-1].reference.name) for path in follower_paths(selection) if path[-1].live_leaves)
        ),
        share_exactness=None if share is None else share.exactness,
        saved_by_followers=_saved_by_followers(store, selection, now, seconds, due.count) if explain else None,
    )


def _saved_by_followers(
    store: Store, selection: Selection, now: datetime, seconds: float, due: Count | None
) -> Count | None:
    """Count the rows that would be due if no row in a live state followed them; None if none can, or in no time."""
    if due is None or due.exactness is not Exactness.EXACT or not any(p[-1].live for p in follower_paths(selection)):
        return None
    try:
        return Count(count_due(store, without_live_followers(selection), now, seconds) - due.rows)
    except TimedOut:
        return None


def _total(
    store: Store, selections: Sequence[Selection], steps: Sequence[Step], now: datetime, seconds: float
) -> Count:
    """Count the rows due under any of the rules, each once."""
    tables: dict[str, list[tuple[Selection, Count | None]]] = {}
    for selection, step in zip(selections, steps, strict=True):
        if step.due != Count(0):
            tables.setdefault(step.table, []).append((selection, step.due))
    return sum_counts(_due_once(store, rules, now, seconds) for rules in tables.values())


def _due_once(
    store: Store, rules: Sequence[tuple[Selection, Count | None]], now: datetime, seconds: float
) -> Count | None:
    """Count the rows of one table that are due under some of its rules."""
    selections, each = [selection for selection, _ in rules], [due for _, due in rules]
    if not overlapping(selections):
        return sum_counts(each)
    queries = queries_of(store)
    together = count(
        store,
        queries.count_any_due(selections, now),
        seconds,
        planned=queries.estimate_due(selections, now),
        up_to=partial(queries.count_any_due, selections, now),
    )
    return count_union(together, each)


def _timed(
    store: Store, contract: Contract, step: Step, rule: Rule, seconds: float, archive: PlannedArchive | None
) -> Step:
    """Return the step with how long its next sweep takes, and which budget ends it, as far as that is known."""
    if step.action == "archive":
        step = replace(step, transform=contract.described_transform(step.table, rule))
    leaving = sum_counts([step.due, *step.followers.values()])
    if not step.swept or not leaving.rows:
        return step
    if step.action == "archive":
        takes = (
            None
            if archive is None
            else _archive_takes(contract, step, leaving, _costs(store, step, archive.costs, seconds))
        )
        return replace(step, takes=takes, waits=_waits(contract, step, rule))
    costs = learn_costs(sweeps := _costs(store, step, partial(_sweep_costs, store), seconds))
    if costs is None:
        spent = "rows" if leaving.rows > rule.budget.rows else ""
        return replace(step, stop=_stop(step, rule.budget, spent, rule.budget.rows, leaving.rows))
    pace = Pace.of(contract.sweep)
    # From what it takes if no one else uses the database, to what it takes beside others.
    beside = pace.after_quiet(0.0, one_writer=store.one_writer) if pace.pauses else pace
    foreseen = [
        foresee(how, one, leaving.rows, rule.budget, besides)
        for how, one, besides in zip(
            (pace.when_idle(one_writer=store.one_writer), beside), costs, (1.0, _BESIDES), strict=True
        )
    ]
    low, high = sorted(foreseen, key=lambda one: one.seconds)
    # A budget ends a sweep whatever it finds beyond.
    bound = leaving.exactness is Exactness.AT_LEAST and not (low.spent and high.spent)
    takes = Takes(
        round(low.seconds, 3),
        round(high.seconds, 3),
        Exactness.AT_LEAST if bound else Exactness.ESTIMATE,
        len(sweeps),
    )
    return replace(step, takes=takes, stop=_stop(step, rule.budget, low.spent, low.rows, leaving.rows))


def _sweep_costs(store: Store, table: str, rule: str, limit: int, seconds: float) -> list[SweepCost]:
    return Ledger(store.dialect, store.reader(seconds)).sweep_costs(table, rule, limit)


def _costs(
    store: Store, step: Step, read: Callable[[str, str, int, float], list[SweepCost]], seconds: float
) -> list[SweepCost]:
    if not store.migrated:
        return []
    try:
        return read(step.table, step.rule, _LEARNED_SWEEPS, seconds)
    except TimedOut:
        return []


def _archive_takes(contract: Contract, step: Step, leaving: Count, sweeps: Sequence[SweepCost]) -> Takes | None:
    """Learn from the latest sweeps of the archive: each is one piece of work, from its plan to its end."""
    costs = learn_costs(sweeps)
    if costs is None:
        return None
    number = 1 if step.due is None else math.ceil(step.due.rows / contract.spark.sweep_rows)
    low, high = sorted(one.of(leaving.rows, number) for one in costs)
    exactness = Exactness.AT_LEAST if leaving.exactness is Exactness.AT_LEAST else Exactness.ESTIMATE
    return Takes(round(low, 3), round(high * _BESIDES, 3), exactness, len(sweeps))


def _waits(contract: Contract, step: Step, rule: Rule) -> ArchiveWait | None:
    """Return what workers wait for before they archive the rows, if fewer are due."""
    least, longest = contract.archive_batch(step.table, rule)
    few = step.due is not None and step.due.rows < least
    return ArchiveWait(least, longest.total_seconds()) if few else None


def _stop(step: Step, budget: Budget, spent: str, rows: int, leaving: int) -> BudgetStop | None:
    if not spent:
        return None
    setting = key_path(["table", step.table, "rule", step.rule, "budget", spent])
    return BudgetStop(spent, getattr(budget, spent), rows, math.ceil(leaving / max(rows, 1)), setting)


def _explained(store: Store, statement: Statement) -> str:
    """Return the query plan, or why there is none: a role that may read but not delete can plan, but not explain."""
    try:
        return store.planner.explain(statement)
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
