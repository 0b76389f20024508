"""Wane prunes its own tables by a contract of its own.

That covers finished messages, resolved dead letters, executors that fell silent, and snapshots of tables.
"""

from __future__ import annotations

from datetime import timedelta

from wane._contract.duration import FOREVER, Forever
from wane._contract.model import Age, Contract, Expiry, Rule, Table, Time, Unit, WhileNull
from wane._contract.names import TableName
from wane._contract.settings import EventSettings
from wane._db import Store
from wane._prune.primitive import Pruned, Pruner
from wane._schedule.scheduler import KIND
from wane.events import Listener, ignore_event
from wane.queue import Queue

_ROWS = 10_000
"""The most rows that one call takes of one rule."""
_MOST_LETTERS = 1_000


def own_names(store: Store) -> list[str]:
    """Return the names under which the audit trail records Wane's own tables."""
    return [str(table.name) for table in own_contract(store, Contract(None, ())).tables]


def own_contract(store: Store, contract: Contract) -> Contract:
    """Build the contract for Wane's own tables, with the windows that the user's contract gives."""
    postgres = store.kind == "postgres"

    def name(table: str) -> TableName:
        return TableName(table, "wane") if postgres else TableName(f"wane_{table}")

    def time(column: str) -> Time:
        return Time(column, Unit.NATIVE if postgres else Unit.ISO)

    def age(column: str, keep: timedelta | Forever) -> Age | Forever:
        return FOREVER if isinstance(keep, Forever) else Age(time(column), keep)

    settings = contract.queue
    return Contract(
        path=None,
        tables=(
            Table(
                name("message"),
                why="A key stays taken for as long as it may be enqueued again; a dead letter stays until it was dealt with.",
                state="state",
                live=("ready", "delayed", "reserved"),
                rules=(
                    # The policy of the queue that completed it has set that time: other pools have other policies.
                    Rule("done", Expiry(time("forget_at")), states=("done",)),
                    Rule(
                        "resolved",
                        age("resolved_at", settings.dead_letters),
                        states=("dead",),
                        guards=(WhileNull("resolved_at"),),
                    ),
                ),
            ),
            Table(
                name("heartbeat"),
                why="An executor that is alive beats every few seconds.",
                rules=(Rule("silent", age("beat_at", contract.health.forget_silent)),),
            ),
            Table(
                name("snapshot"),
                why="The rate of a table comes from all snapshots of the last days, and from one a day before that.",
                state="grain",
                rules=(
                    Rule("fine", age("taken_at", contract.growth.fine), states=("fine",)),
                    Rule("day", age("taken_at", contract.growth.keep), states=("day",)),
                ),
            ),
        ),
        sweep=contract.sweep,
        events=EventSettings(hard_deleted=False, archived=False),
    )


def clean_own_tables(
    store: Store, contract: Contract, *, actor: str, listener: Listener = ignore_event
) -> list[Pruned]:
    """Prune Wane's own tables, some thousand rows at a time, by the same primitive and into the same audit trail."""
    own = own_contract(store, contract)
    pruner = Pruner(store, own, actor=actor, listener=listener, own=True)
    return [pruner.prune(str(table.name), rule=rule.name, limit=_ROWS) for table, rule in own.rules()]


def keep_one_dead_letter(queue: Queue, *, by: str) -> None:
    """Resolve all but the latest dead letter of each table: a table that fails for days has one, not hundreds.

    Workers do that when they give up a sweep. A message that became a dead letter because its workers died is only
    handled here.
    """
    known: set[str] = set()
    letters = queue.dead_letters(limit=_MOST_LETTERS)
    for letter in sorted(letters, key=lambda one: one.moved_at, reverse=True):
        kind = letter.message.kind
        if kind in known and kind.startswith(KIND.format("")):
            queue.resolve(letter.message.message_id, by=f"{by}: a later one reports the same")
        known.add(kind)
