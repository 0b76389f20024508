"""The statements of a rule as they are shown: in the order in which they run, with the values of a first batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from wane._contract.model import ToColdTier
from wane._db.statement import Statement
from wane._frozen import frozen
from wane._prune.take import rechecks
from wane._rules.rows import Rows
from wane._rules.rule_statements import statements_of
from wane._rules.run_step import RunStep
from wane._rules.selection import Selection, losing

if TYPE_CHECKING:
    from wane._prune.sql_postgres import Closing


@frozen
class ShownStatement:
    """A statement, and what it is run for."""

    purpose: str
    statement: Statement


class Preview:
    """Collects the statements of a rule; keys that a batch reads are shown as `…`."""

    def __init__(self, rows: Rows, selection: Selection, now: datetime, limit: int) -> None:
        self.rows = rows
        self.selection = selection
        self.rule = statements_of(rows, selection)
        self.keys = [("…",) * len(selection.key)]
        self.shown: list[ShownStatement] = []
        self._now = now
        self._limit = limit
        self._scoped = selection.in_scope((None,) * len(selection.per)) if selection.scope is None else selection

    def add(self, *steps: RunStep) -> None:
        """Add statements of the rule, with their slots filled."""
        action = self.selection.rule.action
        for step in steps:
            if (statement := step.statement) is None:
                continue
            if step.losing is not None and isinstance(action, ToColdTier):
                from wane._prune.sql_cold_tier import shown_moving

                statement = shown_moving(self.rows.dialect, action.schema, step.losing, statement)
            filled = self.rule.fill(
                statement,
                self._scoped,
                self._now,
                keys=self.keys,
                limit=self._limit,
                follower_limit=self._limit,
                behind=self._scoped.scope,
                slice_rows=self._limit,
                ended=0,
            )
            self.shown.append(ShownStatement(step.described, filled))

    def add_filled(self, purpose: str, statement: Statement) -> None:
        """Add a statement that has no slots."""
        self.shown.append(ShownStatement(purpose, statement))

    def close_references(self, when: str = "") -> bool:
        """Add what prevents new references to the rule's rows; return whether locking rows may wait then."""
        if not self.rows.dialect.locks_rows:  # A plan on SQLite need not import what only PostgreSQL has.
            return True
        from wane._prune.sql_postgres import closing_references

        closings = closing_references(self.rows, self.selection)
        self._close(closings, when)
        # A transaction that holds a table's lock waits for no row's.
        return all(one.protected is not None for one in closings)

    def close_followers(self) -> None:
        """Add what prevents new references to followers."""
        if self.rows.dialect.locks_rows:
            from wane._prune.sql_postgres import closing_followers

            self._close(closing_followers(self.rows, self.selection))

    def _close(self, closings: Iterable[Closing], when: str = "") -> None:
        for one in closings:
            protected = one.protected is not None
            self.add(
                RunStep("check that a foreign key protects references", one.protected, when),
                RunStep("prevent new references", one.lock, "if none does" if protected else when),
            )


def preview(rows: Rows, selection: Selection, now: datetime, limit: int) -> list[ShownStatement]:
    """Return the statements that take the oldest due rows."""
    shown = Preview(rows, selection, now, limit)
    rule = shown.rule
    shown.add(*rule.scope_steps())
    waiting = shown.close_references()
    if rule.take_range is not None:
        shown.add(*rule.range_steps())
    else:
        _add_by_key(shown, waiting=waiting)
    shown.add(*rule.later_steps(selection))
    return shown.shown


def _add_by_key(shown: Preview, *, waiting: bool) -> None:
    """Add the statements that read keys, lock their rows, check them again, and take them."""
    rule, selection, by_key = shown.rule, shown.selection, ""
    if rule.unheld is not None:
        shown.add(*rule.unheld.steps())
        by_key = "if rows are held, or do not fit"
    shown.add(RunStep("find the oldest due rows", rule.candidates, by_key))
    shown.add(*rule.lock_steps(waiting=waiting), *rule.spared_steps())
    if rechecks(selection):
        shown.add(RunStep("check them again, and count what leaves with them", rule.recheck, by_key))
        shown.close_followers()
        for one in sorted(rule.followers, key=lambda one: len(one.path)):
            shown.add(RunStep(f"lock {one.name}, then check again", one.lock))
    shown.add(*_moving(shown.rows, selection))
    shown.add(*rule.take_steps(selection.table, by_key))
    for one in rule.followers:
        shown.add(*one.some_steps())


def _moving(rows: Rows, selection: Selection) -> Sequence[RunStep]:
    """Return the statements that prepare a move to another schema."""
    if not isinstance(selection.rule.action, ToColdTier):
        return ()
    from wane._prune.sql_cold_tier import locked_columns, months

    tables = [locked_columns(rows.dialect, table) for table in losing(selection)]
    columns = [RunStep("prevent changes of the columns", one) for one in tables]
    return [RunStep("find their months", months(rows, selection)), *columns]
