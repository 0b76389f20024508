"""The statements of a rule as they are shown: in the order in which they run, with the values of a first batch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from wane._contract.model import ToArchive, ToColdTier
from wane._db.schema import TableInfo
from wane._db.statement import Statement
from wane._frozen import frozen
from wane._prune.take import rechecks
from wane._rules.indexes import has_time_index
from wane._rules.rows import Rows
from wane._rules.selection import Selection, losing
from wane._rules.statements import statements_of

if TYPE_CHECKING:
    from wane._prune.sql_postgres import Closing

_MANY = "if a row has more followers than fit into a batch"
_LOCKED = "if others hold locks"
_LARGE = "if the table is large, without an index that serves"


@frozen
class ShownStatement:
    """A statement, and what it is run for."""

    purpose: str
    statement: Statement


def preview(rows: Rows, selection: Selection, now: datetime, limit: int) -> list[ShownStatement]:
    """Return the statements that take the oldest due rows; keys that a batch reads are shown as `…`."""
    rule, action, locks = statements_of(rows, selection), selection.rule.action, rows.dialect.locks_rows
    scoped = selection.in_scope((None,) * len(selection.per)) if selection.scope is None else selection
    shown: list[ShownStatement] = []

    def add(purpose: str, statement: Statement | None, losing: TableInfo | None = None) -> None:
        if statement is None:
            return
        if losing is not None and isinstance(action, ToColdTier):
            from wane._prune.sql_cold_tier import shown_moving

            statement = shown_moving(rows.dialect, action.schema, losing, statement)
        keys = [("…",) * len(selection.key)]
        filled = rule.fill(
            statement,
            scoped,
            now,
            keys=keys,
            limit=limit,
            follower_limit=limit,
            behind=scoped.scope,
            slice_rows=limit,
        )
        shown.append(ShownStatement(purpose, filled))

    def close(closings: Sequence[Closing]) -> None:
        for one in closings:
            add("check that a foreign key protects references", one.protected)
            add("prevent new references" if one.protected is None else "if none does: prevent new references", one.lock)

    def add_later() -> None:
        if rule.at_once is not None:
            call = "in one call, full batches from the second on"
            if rule.at_once.end_time is not None:
                add(f"{call}: find a time at which the batch ends", rule.at_once.end_time)
                call = "in the same call, if there is none"
            add(f"{call}: find where the batch ends", rule.at_once.end)
            add("in the same call: take the batch", rule.at_once.take)
            if selection.has_delete_triggers:
                add("in the same call: check that none of it is left", rule.at_once.retained)
            else:
                add("in the same call, if fewer are left than a batch may have: take them", rule.at_once.rest)

    def add_next_scopes() -> None:
        for number, statement in enumerate(rule.scopes_behind):
            add(f"{'if the last one has a NULL: ' if number else ''}find the next scopes", statement)
        for statement in rule.scopes[1:]:
            add("if nothing leaves: find others", statement)

    def add_slices() -> None:
        if rule.slices is not None and not has_time_index(selection, rows.dialect, "postgres" if locks else "sqlite"):
            add(f"{_LARGE}: find where the first slice ends", rule.slices.first)
            add(f"{_LARGE}: find where the next one ends", rule.slices.next)
            add(f"{_LARGE}: find the due rows in it", rule.slices.due)
            if rule.take_range is not None:
                add(f"{_LARGE}: lock them", rule.lock)
                add(f"{_LARGE}: take them", rule.take)

    for statement in rule.scopes[:1]:
        add("find the scopes beyond the cap", statement)
    closings: list[Closing] = []
    if locks:  # A plan on SQLite need not import what only PostgreSQL has.
        from wane._prune.sql_postgres import closing_references

        closings = closing_references(rows, selection)
    close(closings)
    if rule.take_range is not None:
        find, take, held = "find where the batch ends", "take the batch", ""
        if not locks:
            add("find where the cap ends, again once others have changed anything", rule.edge)
        if rule.unheld is not None:
            add(find, rule.unheld[0])
            add(take, rule.unheld[1])
            held = "if rows are held: "
        add(f"{held}{find}", rule.batch_end)
        if rule.known_edge is not None:
            swept = "if a sweep is alone: "
            add(f"{swept}check that no transaction has ended", rule.known_edge.ended)
            add(f"{swept}find where the cap ends", rule.edge)
            add(f"{swept}{find}", rule.known_edge.end)
            add(f"{swept}{take}", rule.known_edge.take)
            held = "if others are active, or outside of a sweep: "
        add(f"{held}{take}", rule.take_range)
        if locks:
            add(f"{_LOCKED}: find the oldest due rows", rule.candidates)
            add(f"{_LOCKED}: lock those that are free", rule.lock_unlocked)
            add(f"{_LOCKED}: take them", rule.take)
        add_next_scopes()
        add_later()
        add_slices()
        return shown
    by_key = ""
    if rule.with_followers is not None:
        add("find where the batch ends", rule.with_followers.end)
        add("count what leaves with it", rule.with_followers.count)
        for name, statement in rule.with_followers.followers:
            add(f"if all of it fits: take {name}", statement)
        add("if all of it fits: take the batch", rule.with_followers.take)
        by_key = "if rows are held, or do not fit: "
    if not isinstance(action, ToArchive):  # The archive knows which rows it copied.
        add(f"{by_key}find the oldest due rows", rule.candidates)
    if any(one.protected is None for one in closings):
        # A transaction that holds a table's lock waits for no row's.
        add("lock those that are free", rule.lock_unlocked)
    else:
        add("lock them", rule.lock)
        add(f"{_LOCKED}: lock those that are free", rule.lock_unlocked)
    for statement in rule.lock_times:
        add("lock what holds their times or windows", statement)
    add("lock the newest rows, which are spared, until two reads agree", rule.lock_spared)
    if rechecks(selection):
        add(f"{by_key}check them again, and count what leaves with them", rule.recheck)
        if locks:
            from wane._prune.sql_postgres import closing_followers

            close(closing_followers(rows, selection))
        for one in sorted(rule.followers, key=lambda one: len(one.path)):
            add(f"lock {one.name}, then check again", one.lock)
    if isinstance(action, ToColdTier):
        from wane._prune.sql_cold_tier import locked_columns, months

        add("find their months", months(rows, selection))
        for table in losing(selection):
            add("prevent changes of the columns", locked_columns(rows.dialect, table))
    for one in rule.followers:
        add(f"{by_key}take {one.name}", one.take, one.table)
        if one.path[-1].has_delete_triggers:
            add(f"check that none of {one.name} is left", one.remaining)
    add(f"{by_key}take them", rule.take, selection.table)
    for one in rule.followers:
        add(f"{_MANY}: take some of {one.name}", one.some, None if one.childless else one.table)
        add(f"{_MANY}: take those without followers", one.childless, one.table)
        add(f"{_MANY}: check whether any of {one.name} is left", one.remaining)
    add_next_scopes()
    add_later()
    add_slices()
    return shown
