"""Health from the facts of a reading: how late rows are, at which pace they leave, and the verdict. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from wane._check.acceptance import accept
from wane._check.live import forgiven, late_by
from wane._contract.model import Cap, Contract, Mark
from wane._contract.names import TableName
from wane._db.schema import Kind
from wane._db.timestamps import shown_time
from wane._findings import Finding
from wane._forecast import days_to
from wane._ledger import RuleSweeps
from wane.observe._facts import Facts, RuleFacts, TableFacts
from wane.observe._health import Health, RuleHealth, SchedulerHealth, TableHealth
from wane.observe._pressure import Pressure
from wane.observe._verdict import judge


def examine(facts: Facts, contract: Contract, archive: Sequence[Finding] | None = None) -> Health:
    """Return the health that the facts show; raise the error if Wane's own tables could not be read.

    `archive` are the findings in the archive; without them, those that the last archive command recorded are used.
    """
    if facts.problem is not None:
        raise facts.problem
    own = facts.own
    windows = {} if own is None else own.windows
    read = Health(
        now=facts.now,
        database=facts.database,
        fingerprint=facts.bound.fingerprint,
        in_force=own.in_force if own else None,
        migrated=own is not None,
        enabled=own is not None and own.enabled,
        master_flag=contract.sweep.master_flag,
        disabled_tables=own.disabled if own else (),
        functions=facts.functions,
        dead_letters=own.dead_letters if own else 0,
        uncovered=tuple(map(str, facts.bound.uncovered)),
        schedulers=tuple(
            SchedulerHealth(
                one.name,
                one.longest.total_seconds(),
                known := windows.get(one.name),
                0.0 if known is None else max((facts.now - known.due_at).total_seconds(), 0.0),
            )
            for one in contract.schedulers
        )
        if own
        else (),
        executors=own.executors if own else (),
        tables=tuple(_table(one, facts, contract) for one in facts.tables),
    )
    if archive is None:
        archive = [] if own is None else own.archive
    judged = judge(read, contract, facts.bound.misfits, [*facts.promises, *archive])
    findings = accept(contract, judged.findings, facts.now.date(), ran={"health"})
    return replace(judged, findings=tuple(findings))


def _table(one: TableFacts, facts: Facts, contract: Contract) -> TableHealth:
    info, settings = one.table.info, contract.health
    measured = None if facts.own is None else facts.own.measured.get(str(TableName(info.name, info.schema)))
    trend, limit = (None, None) if measured is None else (measured.trend, measured.limit)
    # Only PostgreSQL has partitions, and only tables with rules need them.
    may_partition = facts.kind == "postgres" and info.kind is Kind.TABLE and bool(one.rules)
    days = None
    if one.rows is not None and may_partition:
        days = days_to(settings.partition_rows, one.rows.rows, trend, limit).days
    soon = days is not None and days <= contract.growth.warn / timedelta(days=1)
    recommended = may_partition and _large(one, contract, 1.0)
    size, exact = one.bytes, True
    if size is None and measured is not None:
        size, exact = measured.bytes, measured.bytes_exact
    made = TableHealth(
        pressure=Pressure.of(one),
        scheduler=None if one.table.table is None else one.table.table.scheduler,
        every_seconds=None if one.table.every is None else one.table.every.total_seconds(),
        bytes=size,
        bytes_exact=exact,
        oldest_age_seconds=None if one.oldest is None else (facts.now - one.oldest).total_seconds(),
        hot_read_ms=None if one.hot_seconds is None else round(one.hot_seconds * 1_000, 3),
        finished=one.finished,
        may_partition=may_partition,
        partition_recommended=recommended,
        partition_near=may_partition and not recommended and (soon or _large(one, contract, contract.growth.near)),
        partition_days=days,
        growth_per_day=None if trend is None else trend.rate,
        enabled=facts.own is None or str(one.table.name) not in facts.own.disabled,
        rules=tuple(_rule(rule, one, facts, contract) for rule in one.rules),
    )
    return _refined(made, one, settings.counted_rows)


def _large(one: TableFacts, contract: Contract, share: float) -> bool:
    """Check whether a table has a share of the rows from which partitions are recommended."""
    settings, rows, finished = contract.health, one.rows, one.finished
    large = rows is not None and rows.rows >= share * settings.partition_rows
    return large or (finished is not None and finished.rows >= share * settings.partition_finished_rows)


def _refined(table: TableHealth, one: TableFacts, most: int) -> TableHealth:
    """Return the table with its inflow as the rate at which rows become due, where that exceeds the counting limit.

    With several rules, the rule that the inflow belongs to is unknown.
    """
    if len(table.rules) != 1 or (soon := one.rules[0].soon) is None or soon <= most or table.inflow_per_hour is None:
        return table
    [rule] = table.rules
    more = max(rule.due_per_hour or 0.0, table.inflow_per_hour)
    return replace(table, rules=(replace(rule, due_per_hour=more, due_per_hour_capped=False),))


def _rule(rule: RuleFacts, one: TableFacts, facts: Facts, contract: Contract) -> RuleHealth:
    selection, every = rule.selection, one.table.every
    last = facts.swept.get((str(selection.name), selection.rule.name))
    late = pruned = due = None
    if every is not None:
        if not isinstance(selection.rule.bound, Cap):
            late = _late(rule, every, last, facts, contract)
        if last is not None:
            pruned = last.rows / max((facts.now - last.first_at).total_seconds(), every.total_seconds()) * 3_600
        if rule.soon is not None:
            due = rule.soon / every.total_seconds() * 3_600
    return RuleHealth(
        rule=selection.rule.name,
        due=rule.due,
        oldest_due=shown_time(rule.oldest_due, selection.declared_time),
        late_seconds=None if late is None else max(late.total_seconds(), 0.0),
        last_sweep=None if last is None else last.last_at,
        last_rows=None if last is None else last.last_rows,
        pruned_per_hour=pruned,
        due_per_hour=due,
        takes=not isinstance(selection.rule.action, Mark),
        runs=_runs(one, last, facts, contract),
        due_per_hour_capped=rule.soon is not None and rule.soon > contract.health.counted_rows,
    )


def _runs(one: TableFacts, last: RuleSweeps | None, facts: Facts, contract: Contract) -> bool:
    """Check whether sweeps of a rule happen: they are on, and an executor is alive or the last one is recent."""
    own, every = facts.own, one.table.every
    if own is None or every is None or not own.enabled or str(one.table.name) in own.disabled:
        return False
    recent = last is not None and facts.now - last.last_at <= 2 * every + contract.health.grace
    return recent or any(not executor.is_silent(facts.now) for executor in own.executors)


def _late(
    rule: RuleFacts, every: timedelta, last: RuleSweeps | None, facts: Facts, contract: Contract
) -> timedelta | None:
    if rule.oldest_due is None:
        return timedelta(0) if rule.due is not None and not rule.due.rows else None
    late = late_by(rule.selection, rule.oldest_due, facts.now, every)
    if last is not None and forgiven(contract, rule.selection, last):
        return min(late, facts.now - last.last_at - every)
    return late
