"""Checking whether a running database keeps the contract's promises now.

`cover` checks whether the contract fits; this checks whether its promises hold: no due row stays for longer than its
window and a sweep, caps hold, excuses are true, nothing refers to a row that left, no claim and no message is held by a
process that is gone. It only reads, and each probe is bounded: of references, only the first ones by their order are
checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from wane._check.values import false_excuse
from wane._contract.duration import format_duration
from wane._contract.mistakes import key_path
from wane._contract.model import Cap, Contract, Excuse, Expiry, Mark, Rule, Table, Time
from wane._contract.names import TableName
from wane._db import Store
from wane._db.schema import Schema, TableInfo
from wane._db.statement import Parameters, Statement, When
from wane._db.timestamps import read_time, shown_time
from wane._findings import Finding, Severity, many, pasted
from wane._ledger import Ledger, RuleSweeps
from wane._prune.sql_fuse import FuseStates
from wane._rules.excuses import excused_tables
from wane._rules.holds import lost_holds, report_lost_holds
from wane._rules.probes import UNREAD, Probe, Probes
from wane._rules.reads import read_probes
from wane._rules.report import Report, rule_path
from wane._rules.rows import cutoff, rows_of
from wane._rules.selection import BoundFollower, BoundReference, Selection, bind_contract, bind_rule, follower_paths
from wane.claims._sql import CLAIMS
from wane.errors import Locked, TimedOut
from wane.queue._dialects import messages_of

READ_SECONDS = 2.0
"""The most seconds that one probe may take."""
_ALL_SECONDS = 60.0
_MOST_ROWS = 100_000
"""How many rows, or references, of each table are checked."""
_TRAIL_ENTRIES = 5_000
"""How many of the audit trail's latest entries are read to find when a rule was swept."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of the probes."""

    most: int = _MOST_ROWS
    seconds: float = READ_SECONDS
    all_seconds: float = _ALL_SECONDS


def live(store: Store, contract: Contract, bounds: Bounds | None = None) -> list[Finding]:
    """Report every promise of the contract that the database breaks now."""
    schema = store.reflect()
    selections, misfits = bind_contract(contract, schema, store.types)
    check = Live(store, contract, schema, selections, store.now(), read_swept(store), bounds or Bounds())
    report_lost_holds(lost_holds(store, schema), check.report)
    check.overdue()
    check.invariants()
    # A rule that does not bind keeps no promise; `--cover` explains it.
    return [*misfits, *check.report.findings]


def read_swept(store: Store, seconds: float = READ_SECONDS) -> dict[tuple[str, str], RuleSweeps]:
    """Read when each rule was last swept from the audit trail; return an empty mapping if there is no trail.

    Rules that the latest entries do not mention are looked up one by one.
    """
    if not store.migrated:
        return {}

    def run(text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        return store.read(Statement(text, parameters), seconds)

    own = Ledger(store.dialect, run)
    swept, complete = own.swept(_TRAIL_ENTRIES)
    found = {(one.table, one.rule): one for one in swept}
    return found if complete else _Older(own, found)


class _Older(dict[tuple[str, str], RuleSweeps]):
    """Reads the audit trail one by one for rules that its latest entries do not mention."""

    def __init__(self, own: Ledger, known: dict[tuple[str, str], RuleSweeps]) -> None:
        super().__init__(known)
        self._own = own

    def get(self, key: tuple[str, str], default: Any = None) -> Any:
        if key not in self:
            table, rule = key
            for one in self._own.trail(table=table, rule=rule, sweeps_only=True, limit=1):
                rows = one.counts.get(table, one.rows)
                self[key] = RuleSweeps(table, rule, 1, rows, one.executed_at, one.executed_at, rows)
        return super().get(key, default)


def late_by(selection: Selection, oldest: datetime, now: datetime, every: timedelta) -> timedelta:
    """Return how long the oldest due row has waited beyond its window and one sweep interval."""
    due_since = cutoff(selection.rule, now)
    assert due_since is not None
    return due_since - oldest - every


def forgiven(contract: Contract, selection: Selection, last: RuleSweeps) -> bool:
    """Check whether due rows of a rule are late only if no sweep ran since: they may be old when they become due.

    A sweep that spent its budget left some behind, and is no excuse.
    """
    return last.last_rows < selection.rule.budget.rows and becomes_due_late(contract, selection)


def becomes_due_late(contract: Contract, selection: Selection) -> bool:
    """Check whether a lifted guard, another rule's mark, a condition, a newer row or a window of their own can make
    rows due that are old already."""
    marks = (one.action.state for one in contract.table(selection.name).rules if isinstance(one.action, Mark))
    saved = any(path[-1].live for path in follower_paths(selection))
    marked = selection.rule.by_state and any(map(selection.rule.selects, marks))
    changing = selection.rule.guards or selection.guards or selection.where or selection.rule.spare
    return bool(changing) or selection.longer is not None or saved or marked


@dataclass(frozen=True, slots=True)
class Question:
    """One promise as a count of violations: broken if there are more than `limit`."""

    code: str
    table: str
    path: str
    what: str
    """What stays unknown if it cannot be counted."""
    write: Callable[[Probes, Parameters], str]
    describe: Callable[[str], tuple[str, str]]
    """Builds the message and the fix from the number in words."""
    limit: int = 0


@dataclass(slots=True)
class Live:
    """Checks one contract against one database at one point in time."""

    store: Store
    contract: Contract
    schema: Schema
    selections: Sequence[Selection]
    now: datetime
    swept: dict[tuple[str, str], RuleSweeps]
    bounds: Bounds
    report: Report = field(init=False)
    probes: Probes = field(init=False)

    def __post_init__(self) -> None:
        self.report = Report(self.contract)
        self.probes = Probes(rows_of(self.store))

    def every(self, table: Table) -> timedelta | None:
        """Return how often a table is swept; None if it is not."""
        if table.append_only or table.scheduler is None:
            return None
        return next((one.longest for one in self.contract.schedulers if one.name == table.scheduler), None)

    def _swept_rules(self, *, caps: bool) -> list[tuple[Selection, timedelta]]:
        return [
            (selection, every)
            for selection in self.selections
            if isinstance(selection.rule.bound, Cap) == caps
            and (every := self.every(self.contract.table(selection.name))) is not None
        ]

    def _read(self, probes: Sequence[Probe]) -> list[Any]:
        return read_probes(self.store, probes, self.bounds.seconds, self.bounds.all_seconds)

    # What is due

    def overdue(self) -> None:
        """Check that no due row is older than its window and its sweep interval, where rows have times of their own."""
        rules = [(one, every) for one, every in self._swept_rules(caps=False) if one.own_time is not None]
        found = self._read([partial(self.probes.oldest_due, selection=one, now=self.now) for one, _ in rules])
        for (selection, every), value in zip(rules, found, strict=True):
            path = rule_path(selection)
            if value is UNREAD:
                self._unchecked(selection.name, path, "whether rows are overdue")
                continue
            oldest = read_time(value, selection.time)
            if oldest is None:
                continue
            late = late_by(selection, oldest, self.now, every)
            last = self.swept.get((str(selection.name), selection.rule.name))
            if last is not None and forgiven(self.contract, selection, last):
                late = min(late, self.now - last.last_at - every)
            if late > self.contract.health.grace:
                message = (
                    f"its oldest due row ({_row_time(oldest, selection.time)}) should have left {about(late)} ago: "
                    f"it is past its window and a sweep every {format_duration(every)}"
                )
                fix = f"run {pasted('plan', selection.label)}, and check who sweeps it: `wane health`"
                self._add("overdue", selection.name, path, message, fix)

    def invariants(self) -> None:
        """Check all other promises."""
        self._caps()
        self._check_all([*self._excuses(), *self._references(), *self._claims()])
        self._reservations()
        self._fused()

    def _caps(self) -> None:
        """Check that a cap is exceeded by no more than the rows that came since its last sweep, where a time shows
        that."""
        most = self.bounds.most
        for selection, _ in self._swept_rules(caps=True):
            # One at a time: a cap per scope has to read every row.
            [rows] = self._read([partial(self.probes.count_due, selections=[selection], now=self.now, most=most)])
            last = self.swept.get((str(selection.name), selection.rule.name))
            if rows is UNREAD:
                self._unchecked(selection.name, rule_path(selection), "whether its cap holds")
            elif rows and last is not None and selection.own_time is not None:
                since = partial(self.probes.count_since, selection=selection, when=last.last_at, most=rows)
                [came] = self._read([since])
                if came is not UNREAD and rows > came:
                    self._report_cap(selection, rows, came, last.last_at)

    def _report_cap(self, selection: Selection, rows: int, came: int, swept_at: datetime) -> None:
        bound = selection.rule.bound
        assert isinstance(bound, Cap)
        per = f" for each {', '.join(bound.per)}" if bound.per else ""
        message = (
            f"at most {many(bound.most, 'row')}{per} may stay, and {self._count(rows)} are beyond that, though"
            f" {f'{came:,}' if came else 'none'} came since its last sweep ({swept_at:%Y-%m-%d %H:%M:%S} UTC)"
        )
        fix = f"run {pasted('plan', selection.label)}: its budget may be too small, or rows are held"
        self._add("cap-exceeded", selection.name, rule_path(selection), message, fix)

    # Promises that are counts

    def _check_all(self, questions: Sequence[Question]) -> None:
        found = self._read([partial(one.write, self.probes) for one in questions])
        for question, value in zip(questions, found, strict=True):
            if value is UNREAD:
                self._unchecked(question.table, question.path, question.what)
            elif value > question.limit:
                message, fix = question.describe(self._count(value))
                self._add(question.code, question.table, question.path, message, fix)

    def _count(self, value: int) -> str:
        return f"more than {self.bounds.most:,}" if value > self.bounds.most else f"{value:,}"

    def _excuses(self) -> Iterator[Question]:
        """Yield a check for each excuse that promises a number of rows: singletons are single, constants constant."""
        for one in excused_tables(self.contract, self.schema):
            if one.info is None or one.excuse.rows is None:
                continue
            yield Question(
                "false-excuse",
                str(one.name),
                one.path,
                "whether its excuse is true",
                partial(_rows, info=one.info, most=one.excuse.rows),
                partial(_describe_excuse, table=one.name, excuse=one.excuse),
                limit=one.excuse.rows,
            )

    def _references(self) -> list[Question]:
        """Return the checks that no referenced row is gone, and that no follower stayed behind."""
        requested: dict[object, Question] = {}
        for selection in self.selections:
            for guard in selection.guards:
                if guard is selection.missing:
                    continue  # A parent needs no children.
                self._reference(requested, "dangling-reference", selection, selection.table, guard, None)
            self._followers(requested, selection, selection.table, selection.followers)
        return list(requested.values())

    def _followers(
        self,
        requested: dict[object, Question],
        selection: Selection,
        parent: TableInfo,
        followers: Sequence[BoundFollower],
    ) -> None:
        for one in followers:
            self._reference(requested, "orphaned-follower", selection, parent, one.reference, one)
            self._followers(requested, selection, one.reference.table, one.followers)

    def _reference(
        self,
        requested: dict[object, Question],
        code: str,
        selection: Selection,
        parent: TableInfo,
        reference: BoundReference,
        follower: BoundFollower | None,
    ) -> None:
        if reference.enforced and self.store.enforces_keys:
            return
        columns = ", ".join(column.name for column in reference.columns)
        where = () if follower is None else follower.where
        key = (code, parent.qualified, reference.table.qualified, reference.columns, reference.to, where)
        question = Question(
            code,
            str(selection.name),
            rule_path(selection),
            f"whether every {reference.name}.{columns} refers to a row",
            partial(_dangling, parent=parent, reference=reference, most=self.bounds.most, follower=follower),
            partial(
                _describe_dangling if follower is None else _describe_orphaned,
                child=str(reference.name),
                parent=parent.name,
                columns=columns,
            ),
        )
        requested.setdefault(key, question)

    def _claims(self) -> Iterator[Question]:
        """Yield the checks that every claim was taken over, returned or finished within a sweep after its end."""
        for table in self.contract.tables:
            every = self.every(table)
            if table.name.name != CLAIMS or "claimed" not in table.live or every is None:
                continue
            held = Rule("claimed", Expiry(Time("expires_at")), states=("claimed",))
            selection, _ = bind_rule(self.contract, table, held, self.schema, self.store.types)
            if selection is None:
                continue
            ended = self.now - every - self.contract.health.grace
            yield Question(
                "stale-claim",
                str(table.name),
                key_path(["table", table.name]),
                "whether claims are past their end",
                partial(_due, selection=selection, now=ended, most=self.bounds.most),
                partial(_describe_claims, every=format_duration(every)),
            )

    # Wane's own queue

    def _reservations(self) -> None:
        """Check that no message is reserved by a worker that is gone, for longer than a sweep."""
        if not self.store.migrated:
            return
        longest = max((one.longest for one in self.contract.schedulers), default=timedelta(0))
        pool = self.contract.queue.pool
        before = self.now - longest - self.contract.health.grace
        try:
            rows = messages_of(self.store).count_stale(self._run, pool, before, self.bounds.most)
        except (TimedOut, Locked):
            self._unchecked("", "queue", "whether reservations are past their end")
            return
        if rows:
            reserved = many(rows, f"message of the pool {pool} is", f"messages of the pool {pool} are")
            message = f"{reserved} reserved by workers whose lease ended more than {format_duration(longest)} ago"
            fix = "start a worker, which takes them over: `wane status` shows who runs"
            self._add("stale-reservation", "", "queue", message, fix)

    def _fused(self) -> None:
        """Check that the fuse stops no rule that waits for approval."""
        if not self.store.migrated:
            return
        rules = {(str(one.name), one.rule.name): one for one in self.selections}
        try:
            states = FuseStates(self.store.dialect, self._run).all()
        except (TimedOut, Locked):
            self._unchecked("", "sweep.fuse", "whether the fuse stops rules")
            return
        for state in states:
            selection = rules.get((state.table, state.rule))
            if selection is None or state.blown_at is None:
                continue
            message = f"its sweeps take nothing since {state.blown_at:%Y-%m-%d %H:%M:%S} UTC: {state.reason}"
            fix = f"review and approve it: {pasted('approve', selection.label)}"
            self._add("fused-rule", selection.name, rule_path(selection), message, fix)

    def _run(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        return self.store.read(Statement(text, parameters), self.bounds.seconds)

    def _add(self, code: str, table: object, path: str, message: str, fix: str) -> None:
        self.report.add(Severity.ERROR, code, table, path, message, fix)

    def _unchecked(self, table: object, path: str, what: str) -> None:
        message = f"{what} was not checked: reading takes too long, or is not allowed"
        self.report.add(Severity.NOTE, "promise-unchecked", table, path, message)


def _rows(probes: Probes, p: Parameters, info: TableInfo, most: int) -> str:
    return probes.count(p, info, most)


def _dangling(
    probes: Probes,
    p: Parameters,
    parent: TableInfo,
    reference: BoundReference,
    most: int,
    follower: BoundFollower | None,
) -> str:
    return probes.count_dangling(p, parent, reference, most, follower)


def _due(probes: Probes, p: Parameters, selection: Selection, now: When, most: int) -> str:
    return probes.count_due(p, [selection], now, most)


def _describe_excuse(_: str, table: TableName, excuse: Excuse) -> tuple[str, str]:
    return false_excuse(table, excuse)


def _describe_dangling(count: str, child: str, parent: str, columns: str) -> tuple[str, str]:
    refer = many(count, f"row of {child} refers", f"rows of {child} refer")
    return (
        f"{refer} to a row of {parent} that is gone ({columns}), though a row stays as long as anything refers to it",
        f"find who deletes from {parent} outside of Wane; a foreign key would refuse it",
    )


def _describe_orphaned(count: str, child: str, parent: str, columns: str) -> tuple[str, str]:
    return (
        f"{many(count, f'row of {child}', f'rows of {child}')} stayed behind when their row of {parent} left ({columns})",
        f"find who deletes from {parent} outside of Wane, then delete them",
    )


def _describe_claims(count: str, every: str) -> tuple[str, str]:
    return (
        f"{many(count, 'claim')} ended more than {every} ago, neither taken over nor given back",
        "run workers that claim, or give them back: `wane claims return-expired`",
    )


def _row_time(instant: datetime, time: Time) -> str:
    """Format a row's time: `2026-01-10 08:00:00 UTC`, or the day of a column of days."""
    shown = shown_time(instant, time)
    return f"{shown:%Y-%m-%d %H:%M:%S} UTC" if isinstance(shown, datetime) else f"{shown}"


def about(length: timedelta) -> str:
    """Format a length of time in one unit: `40 seconds`, `3 minutes`, `5 hours`, `12 days`."""
    seconds = max(int(length.total_seconds()), 0)
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:,} {unit}s"
    return many(seconds, "second")
