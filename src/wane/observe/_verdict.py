"""The verdict: what is wrong, from the facts alone, each with its fix.

Pure, so that every failure can be tested by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from wane._check.cover import UNCOVERED
from wane._check.live import about
from wane._contract.duration import format_duration
from wane._contract.mistakes import key_path
from wane._contract.model import Contract, ToArchive
from wane._db.counting import Count, Exactness
from wane._findings import Finding, Severity, many, pasted
from wane.observe._health import Health, RuleHealth, TableHealth

_WORDS = {
    Exactness.EXACT: "",
    Exactness.ESTIMATE: "about ",
    Exactness.AT_LEAST: "at least ",
    Exactness.AT_MOST: "at most ",
}


def judge(read: Health, contract: Contract, misfits: Sequence[Finding], promises: Sequence[Finding]) -> Health:
    """Return the same facts with everything that is wrong about them as findings."""
    found = [
        *_database(read),
        *_runners(read, contract),
        *_misfits(misfits),
        *(finding for table in read.tables for finding in _table(table, read, contract)),
        *promises,
        *(_warning("uncovered-table", name, UNCOVERED, _cover(name), error=contract.strict) for name in read.uncovered),
    ]
    return replace(read, findings=tuple(found))


def _error(code: str, table: str, message: str, fix: str) -> Finding:
    return Finding(Severity.ERROR, code, message, fix, table=table)


def _warning(code: str, table: str, message: str, fix: str, *, error: bool = False) -> Finding:
    return Finding(Severity.ERROR if error else Severity.WARNING, code, message, fix, table=table)


def _cover(name: str) -> str:
    return f"add [{key_path(['table', name])}] with a rule, or give the reason under [excused]"


def _database(read: Health) -> Iterable[Finding]:
    if not read.migrated:
        message = "the database does not have Wane's own tables, so nothing can be swept"
        yield _error("not-migrated", "", message, "run `wane migrate`")
        return
    if not read.enabled:
        message = f"sweeps are off: the master flag {read.master_flag} is off"
        yield _error("sweeps-off", "", message, "turn them on: `wane enable`")
    for table in read.disabled_tables:
        yield _error("table-off", table, "sweeps of the table are off", f"turn them on: {pasted('enable', table)}")
    if read.in_force is not None and read.in_force.fingerprint != read.fingerprint:
        message = (
            f"another contract is in force, {read.in_force.fingerprint}, since {read.in_force.adopted_at:%Y-%m-%d %H:%M:%S} UTC by"
            f" {read.in_force.adopted_by}; this one is {read.fingerprint}"
        )
        yield _error(
            "another-contract", "", message, "put this one in force, `wane adopt`, or check with the other one"
        )
    if read.functions is not None and read.functions != read.fingerprint:
        message = f"the functions inside the database were installed for the contract {read.functions}; this one is {read.fingerprint}"
        yield _error("drifted-functions", "", message, "install them again: `wane sql install`")


def _runners(read: Health, contract: Contract) -> Iterable[Finding]:
    for one in read.schedulers:
        if one.late_seconds > one.every_seconds + contract.health.grace.total_seconds():
            every = format_duration(timedelta(seconds=one.every_seconds))
            message = f"the scheduler {one.name} should have ticked {_ago(one.late_seconds)}, and does every {every}"
            yield _error("late-scheduler", "", message, "start one, `wane run`, or see what keeps it: `wane status`")
    silent = read.silent
    roles = {one.role for one in read.executors if one not in silent}
    for heartbeat in silent:
        seconds = (read.now - heartbeat.beat_at).total_seconds()
        message = f"{heartbeat.executor} sent its last heartbeat {_ago(seconds)}, and should every {heartbeat.every_seconds:g} s"
        forgotten = format_duration(contract.health.forget_silent)
        if heartbeat.role in roles:
            message += f"; another {heartbeat.role} is alive and does its work"
        fix = f"see what became of its process; it is forgotten {forgotten} after its last word"
        yield _warning("silent-executor", "", message, fix, error=heartbeat.role not in roles)
    if read.dead_letters:
        message = f"{many(read.dead_letters, 'message')} of the cleanup queue failed too often and are unresolved dead letters"
        fix = "see why, then try them again or resolve them: `wane queue dead list`"
        yield _error("dead-letters", "", message, fix)


def _misfits(misfits: Sequence[Finding]) -> Iterable[Finding]:
    for one in misfits:
        message = f"a rule does not fit the database and is never swept: {one.message}"
        fix = one.fix or "see `wane check --cover`"
        yield Finding(Severity.ERROR, "broken-rule", message, fix, one.file, one.path, one.table, one.line)


def _table(table: TableHealth, read: Health, contract: Contract) -> Iterable[Finding]:
    name = table.pressure.table
    for rule in table.rules:
        yield from _late(table, rule, read, contract)
    if table.pressure.rows is None or any(rule.due is None for rule in table.rules):
        message = "it could not be read in time, or not at all, so nothing is known about it"
        yield _warning("unread-table", name, message, f"see why: {pasted('plan', name)}, `wane check --cover`")
    if table.partition_recommended:
        yield _warning(
            "partition-recommended", name, _large(table, contract), f"see {pasted('partition', 'plan', name)}"
        )
    if table.partition_near:
        prepare = pasted("partition", "plan", name)
        fix = f"see how it grows, {pasted('growth', name)}, then let more rows leave, or prepare: {prepare}"
        yield _warning("partition-near", name, _nearly(table, contract), fix)
    limit = contract.health.hot_read_ms
    if table.hot_read_ms is not None and table.hot_read_ms > limit:
        message = f"finding one row of its rules takes {table.hot_read_ms:g} ms, and {limit:g} ms are allowed"
        fix = (
            f"see whether an index is missing, `wane check --cover`, and how rows are found, {pasted('plan', name, '-v')};"
            " a smaller table or a vacuum help too"
        )
        yield _warning("slow-reads", name, message, fix)


def _large(table: TableHealth, contract: Contract) -> str:
    settings = contract.health
    rows = table.pressure.rows
    if rows is not None and rows.rows >= settings.partition_rows:
        return f"it has {_count(rows)} rows; from {settings.partition_rows:,} on, partitions are worth their while"
    assert table.finished is not None
    return (
        f"it has {_count(table.finished)} finished rows; from {settings.partition_finished_rows:,} on, partitions are"
        " worth their while"
    )


def _nearly(table: TableHealth, contract: Contract) -> str:
    settings, near = contract.health, contract.growth.near
    rows = table.pressure.rows
    assert rows is not None
    if table.finished is not None and table.finished.rows >= near * settings.partition_finished_rows:
        return (
            f"it has {_count(table.finished)} finished rows; from {settings.partition_finished_rows:,} on, partitions are"
            " worth their while"
        )
    days = "" if table.partition_days is None else f"; at its rate that is in {max(table.partition_days, 1):,.0f} days"
    return f"it has {_count(rows)} rows; from {settings.partition_rows:,} on, partitions are worth their while{days}"


def _late(table: TableHealth, rule: RuleHealth, read: Health, contract: Contract) -> Iterable[Finding]:
    """Report overdue rows: one finding for each rule, with the cause as far as the audit trail shows it."""
    name = table.pressure.table
    grace = (contract.health.grace + contract.archive_wait(name, rule.rule)).total_seconds()
    if rule.late_seconds is None or rule.late_seconds <= grace or rule.oldest_due is None:
        return
    label = f"{name}.{rule.rule}"
    due = "rows are" if rule.due is None else f"{_count(rule.due)} {'row is' if rule.due.rows == 1 else 'rows are'}"
    late = f"{label}: {due} due, the oldest should have left {_ago(rule.late_seconds)}"
    if rule.last_sweep is None:
        message = f"{late}, and no sweep of it is in the trail"
        yield _error(
            "overdue", name, message, f"see who sweeps, `wane status`, and what would leave: {pasted('plan', label)}"
        )
        return
    swept = (read.now - rule.last_sweep).total_seconds()
    every = table.every_seconds or 0.0
    last = f"its last sweep, {_ago(swept)}, took {'nothing' if not rule.last_rows else many(rule.last_rows, 'row')}"
    if not rule.last_rows and rule.late_seconds + every > swept + 1:  # Not by rounding alone.
        fix = f"something keeps the rows: {_sweep(contract, name, rule)} reports what, `wane check --cover` finds triggers and row security"
        yield _error("sweeps-without-effect", name, f"{late}; {last}", fix)
    elif rule.last_rows and swept <= every + grace and (rule.pruned_per_hour or 0.0) <= (rule.due_per_hour or 0.0):
        pace = f"{rule.pruned_per_hour or 0.0:,.0f} rows leave in an hour, {rule.due_per_hour or 0.0:,.0f} become due"
        fix = "raise its budget or `duty`, sweep more often, or add workers"
        yield _error("falling-behind", name, f"{late}; {pace}, so it never drains", fix)
    else:
        fix = f"see who sweeps, `wane status`, or sweep now: {_sweep(contract, name, rule)}"
        yield _error("overdue", name, f"{late}; {last}{_drains(rule)}", fix)


def _drains(rule: RuleHealth) -> str:
    drain = rule.drain
    if drain is None:
        return ""
    return f"; at this pace it drains in {_WORDS[drain.exactness]}{about(timedelta(seconds=drain.value))}"


def _sweep(contract: Contract, table: str, rule: RuleHealth) -> str:
    """Return the command that takes what is due under a rule."""
    archives = any(
        isinstance(one.action, ToArchive)
        for declared in contract.tables
        for one in declared.rules
        if (str(declared.name), one.name) == (table, rule.rule)
    )
    return pasted(*(["archive", "run"] if archives else ["sweep"]), f"{table}.{rule.rule}")


def _ago(seconds: float) -> str:
    return f"{about(timedelta(seconds=seconds))} ago"


def _count(count: Count) -> str:
    return f"{_WORDS[count.exactness]}{count.rows:,}"
