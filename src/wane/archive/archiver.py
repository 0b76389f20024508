"""Archiving by rules: under a lease, first what an earlier run left unfinished, then sweep after sweep until nothing is
due."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from wane.archive.journal import Journal
from wane.archive.lease import leased
from wane.archive.model import ArchivedRule
from wane.archive.restore import Restorer
from wane.archive.session import session
from wane.archive.sweep import TableSweep, Tally
from wane.contract.model import Contract, Rule, Table, ToArchive
from wane.db import Store
from wane.db.transaction import Transaction
from wane.errors import LeaseLost, WaneError
from wane.events import (
    BudgetExhausted,
    Listener,
    RuleFailed,
    RuleSwept,
    nobody,
)
from wane.leases import Lease
from wane.ledger import Ledger
from wane.prune import fuse
from wane.prune.batches import Closed
from wane.prune.binding import Bindings
from wane.prune.gates import closed_gate
from wane.prune.pace import Pace
from wane.prune.sweep import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Blown(Exception):
    """A rule would take a larger share of its table than it may unattended."""


class Archiver:
    """Archives the rows of one contract's rules."""

    def __init__(
        self,
        store: Store,
        contract: Contract,
        *,
        actor: str,
        listener: Listener = nobody,
        pace: Pace | None = None,
        strict: bool = False,
        stop: threading.Event | None = None,
        starting: Callable[[str], None] = lambda _: None,
        most_sweeps: int | None = None,
        fence: Callable[[Transaction], None] = lambda _: None,
        unattended: bool = False,
    ) -> None:
        """Set up archiving for a contract.

        `most_sweeps`: how many sweeps of one rule a run may begin; None for no limit. `fence` is called inside every
        transaction that deletes rows, and before every step; it raises if another process may work by now.
        `unattended`: whether the fuse stops rules that would take a large share of their table.
        """
        self.store = store
        self.contract = contract
        self.actor = actor
        self.listener = listener
        self.pace = pace or Pace.of(contract.sweep)
        self.strict = strict
        self.stop = stop or threading.Event()
        self.starting = starting
        self.most_sweeps = most_sweeps
        self.fence = fence
        self.unattended = unattended
        self.bindings = Bindings(store, contract)

    def origin(self) -> str:
        """Return the name by which archives know this database."""
        with self.store.transaction() as transaction:
            return Journal(transaction).origin(uuid.uuid4().hex, self.store.identity())

    def spark(self) -> SparkSession:
        return session(self.contract.spark, self.starting)

    def archive(self, table: Table, rule: Rule) -> ArchivedRule:
        """Move what is due under one rule; first what an earlier sweep of the table left unfinished.

        A failure is the outcome of this rule and does not affect others.
        """
        self.store.require_migrated()
        self.bindings.forget()
        done = Tally(table, rule)
        began = time.monotonic()
        outcome, message = self._archive(table, rule, done)
        who = table.scheduler, str(table.name), rule.name, table.label(rule)
        if outcome is Outcome.FAILED:
            self.listener(RuleFailed(*who, message))
        seconds = time.monotonic() - began
        self.listener(RuleSwept(*who, "archive", done.evicted, done.batches, seconds, outcome.value))
        return done.told(outcome, message)

    def _archive(self, table: Table, rule: Rule, done: Tally) -> tuple[Outcome, str]:
        try:
            with leased(self.store, str(table.name), self.contract.spark.lease_seconds) as lease:
                self._sweep(table, rule, lease, done)
        except Blown as blown:
            return Outcome.FUSED, str(blown)
        except Closed as closed:
            return Outcome.STOPPED if self.stop.is_set() else Outcome.OFF, str(closed)
        except LeaseLost as problem:
            return Outcome.STOPPED, problem.message
        except WaneError as problem:
            return Outcome.FAILED, str(problem)
        return (Outcome.BUDGET, "the rest moves with the next sweep") if done.more else (Outcome.DONE, "")

    def _sweep(self, table: Table, rule: Rule, lease: Lease, done: Tally) -> None:
        self.require_open(table)
        Restorer(self.store, self.contract, actor=self.actor, listener=self.listener, starting=self.starting).finish(
            table, lease
        )
        with self.store.transaction() as transaction:
            unfinished = Journal(transaction).unfinished(str(table.name))
        if unfinished is not None:
            archiving = (one for one in table.rules if isinstance(one.action, ToArchive))
            # A rule that is gone takes no more rows: any other rule knows the table well enough to clean up.
            earlier = next((one for one in archiving if one.name == unfinished.rule), rule)
            TableSweep(self, table, earlier, lease, done).resume(unfinished)
        # One cutoff for all sweeps of this run: rows that become due meanwhile leave with the next.
        now = self.store.now()
        if self.unattended:
            self._ask_fuse(table, rule, now)
        begun = 0
        while TableSweep(self, table, rule, lease, done).begin(now):
            begun += 1
            if begun == self.most_sweeps:
                self.listener(BudgetExhausted(table.scheduler, str(table.name), rule.name, table.label(rule), "rows"))
                done.more = True
                return

    def _ask_fuse(self, table: Table, rule: Rule, now: datetime) -> None:
        """Raise Blown if a new sweep would take too large a share, which needs a person's approval.

        A sweep that was begun is finished whatever its share.
        """
        name = f"{table.name}.{rule.name}"
        selection = self.bindings.selection(table, rule)
        found = fuse.probe(self.store, self.contract.sweep, selection, now, approval=f"wane archive run {name}")
        if found.blown:
            raise Blown(found.blown)

    def require_open(self, table: Table) -> None:
        if self.stop.is_set():
            raise Closed("stop requested")
        if table.append_only:
            raise Closed(f"{table.name} is append-only: only an explicit prune takes rows from it")
        with self.store.transaction() as transaction:
            self.fence(transaction)
            closed = closed_gate(Ledger.of(transaction).flags(), table.name, self.contract.sweep)
        if closed:
            raise Closed(closed)
