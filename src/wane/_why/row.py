"""A row that is there: what each rule does with it, and what stops the rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from wane._contract.duration import format_duration
from wane._contract.fingerprint import fingerprint
from wane._contract.mistakes import key_path
from wane._contract.model import Age, Contract, Expiry, Mark, Orphans, Rule, Table, ToArchive
from wane._db import Store
from wane._findings import many, pasted
from wane._ledger import Ledger
from wane._prune import fuse
from wane._prune.binding import Bindings
from wane._prune.build_plan import action_name
from wane._prune.fuse import COUNT_SECONDS, PROBE_SECONDS
from wane._prune.gates import closed_flag
from wane._prune.obstacles import Obstacle, not_migrated
from wane._prune.sql_fuse import FuseStates
from wane._rules.row_parts import MOST_COUNTED, RowCondition, RowParts, count_ahead, read_row_parts
from wane._rules.rows import cutoff
from wane._rules.selection import Selection
from wane._why.model import RowVerdict, WhyRule
from wane.errors import BindError, TimedOut

_DONE = {"prune": "deletes it", "archive": "moves it to the archive", "shelve": "moves it to the cold tier"}


@dataclass(frozen=True, slots=True)
class RowReader:
    """Reads what the rules of a contract do with one row, as of one time."""

    store: Store
    contract: Contract
    bindings: Bindings
    now: datetime

    def explain(self, table: Table, rule: Rule, key: Mapping[str, object]) -> WhyRule | None:
        """Explain what a rule does with the row of a key; None if there is no such row."""
        try:
            selection = self.bindings.selection(table, rule)
        except BindError as problem:
            return self._refused(rule, problem)
        parts = read_row_parts(self.store, selection, key, self.now, COUNT_SECONDS)
        if parts is None:
            return None
        due_at = _due_at(rule, parts)
        obstacles = () if parts.unmet else tuple(self._obstacles(table, rule, selection, parts))
        verdict = _verdict(parts, due_at, obstacles)
        return WhyRule(
            rule=rule.name,
            action=action_name(rule),
            verdict=verdict,
            summary=_summary(rule, verdict, parts, due_at, obstacles),
            conditions=parts.conditions,
            cutoff=cutoff(rule, self.now),
            time=parts.time,
            due_at=due_at,
            obstacles=obstacles,
        )

    def _refused(self, rule: Rule, problem: BindError) -> WhyRule:
        obstacles = tuple(Obstacle(one.code, one.message, one.fix) for one in problem.findings)
        summary = f"{rule.name} takes no row: {problem.findings[0].message if problem.findings else problem.message}"
        when, action = cutoff(rule, self.now), action_name(rule)
        return WhyRule(rule.name, action, RowVerdict.BLOCKED, summary, (), when, None, None, obstacles)

    def _obstacles(self, table: Table, rule: Rule, selection: Selection, parts: RowParts) -> Iterator[Obstacle]:
        if not self.store.migrated:
            yield not_migrated()
            return
        own = Ledger(self.store.dialect, self.store.reader(PROBE_SECONDS))
        closed = closed_flag(own.flags(), table.name, self.contract.sweep)
        if closed is not None:
            yield Obstacle("flag", *closed)
        if table.append_only:
            fix = pasted("prune", f"{table.name}.{rule.name}")
            yield Obstacle("append_only", "the table is append-only: no sweep takes its rows", f"{fix} does, by hand")
        elif not isinstance(rule.action, Mark):
            yield from self._fuse(table, rule, selection)
        if not isinstance(rule.action, ToArchive) and not selection.per:
            yield from self._budget(table, rule, selection, parts)

    def _fuse(self, table: Table, rule: Rule, selection: Selection) -> Iterator[Obstacle]:
        blown = fuse.probe(self.store, self.contract.sweep, selection, self.now).blown
        if not blown:
            return
        states = FuseStates(self.store.dialect, self.store.reader(PROBE_SECONDS))
        state = states.of(str(table.name), rule.name)
        if state is None or state.approved(fingerprint(self.contract), self.now) is None:
            name = f"{table.name}.{rule.name}"
            by_hand = f", or take it by hand: {pasted('archive', 'run', name)}"
            fix = f"review it: {pasted('approve', name)}"
            yield Obstacle("fuse", blown, fix + (by_hand if isinstance(rule.action, ToArchive) else ""))

    def _budget(self, table: Table, rule: Rule, selection: Selection, parts: RowParts) -> Iterator[Obstacle]:
        most = rule.budget.rows
        setting = key_path(["table", table.name, "rule", rule.name, "budget", "rows"])
        try:
            ahead = count_ahead(self.store, selection, parts, self.now, most, COUNT_SECONDS)
        except TimedOut:
            return
        if ahead >= most:
            message = f"at least {many(ahead, 'row')} leave before it, and one sweep takes {most:,} at the most"
            yield Obstacle("budget", message, f"later sweeps take it, or raise {setting}")


def _due_at(rule: Rule, parts: RowParts) -> datetime | None:
    if parts.time is None:
        return None
    window = _window(rule, parts)
    try:
        return None if window is None else parts.time + window
    except OverflowError:
        return None


def _window(rule: Rule, parts: RowParts) -> timedelta | None:
    """Return how long after its time a row is due; None if no time makes it due."""
    if isinstance(rule.bound, Expiry):
        return timedelta()
    if not isinstance(rule.bound, Age | Orphans):
        return None
    if rule.bound.longer is None:
        return rule.bound.keep
    return None if parts.window is None else max(rule.bound.keep, parts.window)


def _verdict(parts: RowParts, due_at: datetime | None, obstacles: tuple[Obstacle, ...]) -> RowVerdict:
    if not parts.unmet:
        return RowVerdict.BLOCKED if obstacles else RowVerdict.DUE
    waits = due_at is not None and [one.kind for one in parts.unmet] == ["bound"]
    return RowVerdict.WAITING if waits else RowVerdict.RETAINED


def _summary(
    rule: Rule, verdict: RowVerdict, parts: RowParts, due_at: datetime | None, obstacles: tuple[Obstacle, ...]
) -> str:
    does = f"marks it {rule.action.state!r}" if isinstance(rule.action, Mark) else _DONE[action_name(rule)]
    if verdict is RowVerdict.DUE:
        by = " of a worker or `wane archive run`" if isinstance(rule.action, ToArchive) else ""
        return f"{rule.name} {does} with the next sweep{by}"
    if verdict is RowVerdict.BLOCKED:
        return f"{rule.name} would take it, but {obstacles[0].message}"
    if verdict is RowVerdict.WAITING:
        return f"{rule.name} {does} after {due_at:%Y-%m-%d %H:%M:%S} UTC, {_window_in_words(rule, parts)}"
    unmet = (one for one in parts.unmet if one.met is not None)
    return f"{rule.name} does not take it: {'; '.join(map(unmet_in_words, unmet))}"


def _window_in_words(rule: Rule, parts: RowParts) -> str:
    window = _window(rule, parts)
    assert isinstance(rule.bound, Age | Orphans | Expiry)
    name = str(rule.bound.time)
    its = name if name.startswith("the latest ") else f"its {name}"
    return f"{format_duration(window)} after {its}" if window else its


def unmet_in_words(condition: RowCondition) -> str:
    """Describe what a row lacks: the values that it has, and what the rule requires."""
    if condition.retaining is not None:
        more = "at least " if condition.retaining >= MOST_COUNTED else ""
        what = "hold" if condition.kind == "hold" else "row"
        return f"it requires: {condition.requires}, and found {more}{many(condition.retaining, what)}"
    values = ", ".join(f"{name} = {shown(value)}" for name, value in condition.values.items())
    return f"{values}, and it requires: {condition.requires}" if values else f"it requires: {condition.requires}"


def shown(value: object) -> str:
    """Write a value of a row for people."""
    if value is None:
        return "NULL"
    if isinstance(value, datetime):
        text = f"{value:%Y-%m-%d %H:%M:%S%z}"
    else:
        text = str(value) if isinstance(value, Decimal | UUID | date) else repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
