"""Rules bound to the database, ready to take rows, and refused if taking them would break a promise.

What `check --cover` reports as an error about a rule (an uncounted cascade, a lost hold) stops that rule here, whether
the check was run or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from typing import TypeVar

from wane._contract.lookup import find_rule, find_table
from wane._contract.model import Age, Contract, Mark, Orphans, Prune, Rule, State, Table, ToArchive, ToColdTier
from wane._contract.names import TableName
from wane._db import Store
from wane._db.counting import count_rows
from wane._db.schema import Schema, TableInfo
from wane._findings import did_you_mean, errors_of
from wane._rules.access import check_indexes, walks_by_key
from wane._rules.holds import lost_holds, report_lost_holds
from wane._rules.references import check_references
from wane._rules.report import Report
from wane._rules.selection import Selection, bind_rule
from wane.errors import BindError, SchemaChanged, WrongArgument

FRESH_SECONDS = 60.0
"""How long a rule stays bound to the schema that was read. What deleting relies on is compared in every transaction
that deletes."""

_COUNT_SECONDS = 2.0

R = TypeVar("R")


@dataclass(slots=True)
class _BoundSchema:
    schema: Schema
    at: float
    reopened: int
    """How often the store had been reopened by then."""
    selections: dict[tuple[TableName, Rule], Selection]
    lost_holds: list[str]
    walked: set[tuple[TableName, Rule]] = field(default_factory=set)
    """The rules whose tables are walked by key."""


class Bindings:
    """Binds rules to one store, and remembers them for a while."""

    def __init__(
        self, store: Store, contract: Contract, clock: Callable[[], float] = time.monotonic, *, own: bool = False
    ) -> None:
        """Bind nothing yet; `own`: the contract covers Wane's own tables."""
        self.store = store
        self._own = own
        self.contract = contract
        self._clock = clock
        self._seen: _BoundSchema | None = None

    def table(self, name: str) -> Table:
        return find_table(self.contract, name)

    def rule(self, table: Table, name: str) -> Rule:
        return find_rule(table, name)

    def selection(self, table: Table, rule: Rule) -> Selection:
        """Return the rule, bound; raise BindError if it does not fit the database or must not take rows."""
        seen, reopened = self._seen, self.store.reopened
        if seen is None or self._clock() - seen.at > FRESH_SECONDS or seen.reopened != reopened:
            schema = self.store.reflect(own=self._own)
            lost = [] if self._own else lost_holds(self.store, schema)
            seen = self._seen = _BoundSchema(schema, self._clock(), reopened, {}, lost)
        known = seen.selections.get((table.name, rule))
        if known is None:
            known = self._bind(table, rule, seen)
            seen.selections[table.name, rule] = known
        return known

    def walks_by_key(self, table: Table, rule: Rule) -> bool:
        """Return whether sweeps walk the table of a bound rule by its key: see `wane._rules.access`."""
        return self._seen is not None and (table.name, rule) in self._seen.walked

    def rebind(self, table: Table, rule: Rule) -> Selection:
        """Bind a rule to the schema as it is now."""
        self.forget()
        return self.selection(table, rule)

    def forget(self) -> None:
        """Read the schema again when a rule is bound the next time."""
        self._seen = None

    def rebinding(self, work: Callable[[], R]) -> R:
        """Run work that binds rules and takes rows; if the schema changed meanwhile, bind again and retry once."""
        with suppress(SchemaChanged):
            return work()
        self.forget()
        try:
            return work()
        except BindError:
            self.forget()  # A schema that was read in the middle of a change is not trusted for long.
            raise

    def _bind(self, table: Table, rule: Rule, seen: _BoundSchema) -> Selection:
        schema, rows = seen.schema, cache(self._rows)
        selection, findings = bind_rule(self.contract, table, rule, schema, self.store.types)
        if selection is not None:
            report = Report(self.contract)
            report_lost_holds(seen.lost_holds, report)
            check_references(self.contract, schema, selection, report)
            check_indexes(self.store, selection, rows, report)
            findings = errors_of(report.findings)
        if selection is None or findings:
            raise BindError(f"{table.name}.{rule.name} cannot take rows from {self.store.shown}", findings)
        if walks_by_key(self.store, selection, rows):
            seen.walked.add((table.name, rule))
        return selection

    def _rows(self, table: TableInfo) -> int | None:
        count = count_rows(self.store, table, _COUNT_SECONDS)
        return None if count is None else count.rows

    def orphan_states(self, table: Table) -> tuple[State, ...]:
        """Return the states of the table's rule for orphans."""
        return _fitting(table, None, orphans=True)[0].states

    def longest_window(self, table: Table, states: tuple[State, ...], *, orphans: bool = False) -> timedelta:
        """Return the longest retention window that the contract gives rows of these states."""
        found = [rule.bound for state in states or (None,) for rule in _fitting(table, state, orphans=orphans)]
        return max(bound.keep for bound in found if isinstance(bound, Age | Orphans))

    def explicit(self, table: Table, states: tuple[State, ...], *, orphans: bool = False) -> Rule:
        """Return a rule for an explicit call: with the caller's cutoff, and the guards of every rule for these states.

        Only what some rule of the contract deletes may be deleted: explicit means a cutoff of the caller's own, not
        rules of its own. Rules that age by different columns or have different followers are refused: no single
        statement does what each of them requires.
        """
        found = [rule for state in states or (None,) for rule in _fitting(table, state, orphans=orphans)]
        rules = list(dict.fromkeys(found))
        first = rules[0]
        for rule in rules[1:]:
            for differs, what in (
                (_columns(rule) != _columns(first), "age by different columns"),
                (set(rule.followers) != set(first.followers), "let different rows leave along (`with`)"),
                (rule.conditions != first.conditions, "select different rows (`where`)"),
                (rule.spare != first.spare, "spare different rows (`spare`)"),
            ):
                if differs:
                    raise WrongArgument(
                        f"{first.name!r} and {rule.name!r} of {table.name} {what}",
                        "prune by one rule, or the states of one rule at a time",
                    )
        assert isinstance(first.bound, Age | Orphans)
        return replace(
            first,
            name="+".join(rule.name for rule in rules),
            # With no window of its own, the cutoff is the time that the caller gives.
            bound=replace(first.bound, keep=timedelta(0)),
            states=states,
            all_but=None if states else first.all_but,
            guards=tuple(dict.fromkeys(guard for rule in rules for guard in rule.guards)),
            action=Prune(),
        )


def _same_type(rule: Rule, state: State) -> bool:
    """Check that a state has the type of the rule's states: 1 and true are equal, and no column has both."""
    return all(type(one) is type(state) for one in rule.states or rule.all_but or ())


def _columns(rule: Rule) -> tuple[object, ...]:
    assert isinstance(rule.bound, Age | Orphans)
    orphans = (rule.bound.reference, rule.bound.missing) if isinstance(rule.bound, Orphans) else ()
    return rule.bound.time, rule.bound.longer, *orphans


def _fitting(table: Table, state: State | None, *, orphans: bool) -> list[Rule]:
    """Return every rule that deletes rows of a state by age; raise if there is none, or one of them archives."""
    kind = Orphans if orphans else Age
    if state is not None and state in table.live:
        raise WrongArgument(f"{state!r} is a live state of {table.name}: such rows are never pruned")
    fitting = [
        rule
        for rule in table.rules
        if isinstance(rule.bound, kind)
        and not isinstance(rule.action, Mark)
        and (state is None or (_same_type(rule, state) and rule.selects(state)))
    ]
    if not fitting:
        what = "orphans" if orphans else "rows" if state is None else f"rows in the state {state!r}"
        known = sorted({str(one) for rule in table.rules for one in rule.states})
        raise WrongArgument(
            f"no rule of {table.name} prunes {what} by age",
            did_you_mean(state, known)
            or (f"states with rules: {', '.join(known)}" if known else "add a rule with `keep`"),
        )
    for rule in fitting:
        if isinstance(rule.action, ToArchive | ToColdTier):
            how = (
                "run the archive"
                if isinstance(rule.action, ToArchive)
                else f"prune by the rule {table.name}.{rule.name}"
            )
            raise WrongArgument(f"{table.name}.{rule.name} moves rows to the archive; it does not prune them", how)
    return fitting
