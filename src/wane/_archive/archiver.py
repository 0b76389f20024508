"""Archiving by rules: under a lease, first what an earlier run left unfinished, then sweep after sweep until nothing is
due."""

from __future__ import annotations

import time
from datetime import datetime

from wane._archive.context import ArchiveContext
from wane._archive.journal import Journal
from wane._archive.model import ArchivedRule
from wane._archive.pipeline.sweep import TableSweep, Tally
from wane._archive.restore.journal import RestoreJournal
from wane._archive.restore.restore import Restorer
from wane._archive.rows.dialects import archive_dialect
from wane._archive.rows.sql import ArchiveRows, bind_archive
from wane._contract.duration import format_duration
from wane._contract.model import Rule, Table, ToArchive
from wane._leases import Lease
from wane._prune.approval import check_fuse, record_swept
from wane._prune.batches import require_not_append_only
from wane._prune.binding import Bindings
from wane._prune.sweep import Outcome
from wane._rules.reads import any_due
from wane._rules.rows import rows_of
from wane.events import BudgetExhausted, RuleFailed, RuleSwept

_READ_SECONDS = 600.0
"""The longest that finding whether a row is due may take."""


class Blown(Exception):
    """A rule would take a larger share of its table than it may unattended."""


class Archiver:
    """Archives the rows of one contract's rules."""

    def __init__(
        self,
        context: ArchiveContext,
        *,
        strict: bool = False,
        most_sweeps: int | None = None,
        wait: bool = False,
        unattended: bool = False,
    ) -> None:
        """Set up archiving for a contract.

        `most_sweeps`: how many sweeps of one rule a run may begin; None for no limit. `wait`: whether a rule waits
        until its `least_rows` are due. `unattended`: whether the fuse stops rules that would take a large share
        of their table.
        """
        self.context = context
        self.strict = strict
        self.most_sweeps = most_sweeps
        self.wait = wait
        self.unattended = unattended
        self.bindings = Bindings(context.store, context.contract)

    def archive(self, table: Table, rule: Rule) -> ArchivedRule:
        """Move what is due under one rule; first what an earlier sweep of the table left unfinished.

        A failure is the outcome of this rule and does not affect others.
        """
        self.context.store.require_migrated()
        self.bindings.forget()
        done = Tally(table, rule)
        began = time.monotonic()
        try:
            with self.context.reporting(done), self.context.leased(str(table.name)) as lease:
                self._sweep(table, rule, lease, done)
        except Blown as blown:
            done.outcome, done.message = Outcome.FUSED, str(blown)
        who = table.scheduler, str(table.name), rule.name, table.label(rule)
        if done.outcome is Outcome.FAILED:
            self.context.listener(RuleFailed(*who, done.message))
        if done.sweeps and done.outcome in (Outcome.DONE, Outcome.BUDGET):
            completed = done.outcome is Outcome.DONE
            record_swept(self.context.store, str(table.name), rule.name, completed=completed)
        seconds = time.monotonic() - began
        self.context.listener(RuleSwept(*who, "archive", done.evicted, done.batches, seconds, done.outcome.value))
        return done.report()

    def has_work(self, table: Table, rule: Rule) -> bool:
        """Check whether rows are due that need not wait, or a sweep or a restore of the table is unfinished.

        Reads only, and no archive.
        """
        store = self.context.store
        name = str(table.name)
        with store.snapshot() as transaction:
            if Journal(transaction).unfinished(name) or RestoreJournal(transaction).unfinished(name):
                return True
            now = transaction.now()
        if self.waits(table, rule, now):
            return False
        return any_due(store, self.bindings.selection(table, rule), now, None, _READ_SECONDS)

    def bind(self, table: Table, rule: Rule) -> ArchiveRows:
        """Bind what the archive does with the rows of a rule to the live table."""
        store, contract = self.context.store, self.context.contract
        file = "" if contract.path is None else str(contract.path)
        return bind_archive(
            rows_of(store), archive_dialect(store), self.bindings.selection(table, rule), contract.archive, file
        )

    def waits(self, table: Table, rule: Rule, now: datetime) -> str:
        """Return why no sweep may begin: too few rows are due, and none of them for too long; "" if one may."""
        least, longest = self.context.contract.archive_batch(str(table.name), rule)
        if not self.wait or least == 1:
            return ""
        rows = self.bind(table, rule)

        def due(at: datetime, count: int) -> bool:
            return bool(self.context.store.read(rows.ceiling(at, count, None), _READ_SECONDS))

        if due(now, least) or due(now - longest, 1):
            return ""
        return f"waits until {least:,} rows are due, or one has been due for {format_duration(longest)}"

    def _sweep(self, table: Table, rule: Rule, lease: Lease, done: Tally) -> None:
        self.require_open(table)
        Restorer(self.context).finish(table, lease)
        with self.context.store.transaction() as transaction:
            unfinished = Journal(transaction).unfinished(str(table.name))
        if unfinished is not None:
            archiving = (one for one in table.rules if isinstance(one.action, ToArchive))
            # A rule that is gone takes no more rows: any other rule knows the table well enough to clean up.
            earlier = next((one for one in archiving if one.name == unfinished.rule), rule)
            TableSweep(self, table, earlier, lease, done).resume(unfinished)
        # One cutoff for all sweeps of this run: rows that become due meanwhile leave with the next.
        now = self.context.store.now()
        done.message = self.waits(table, rule, now)
        if done.message:
            TableSweep(self, table, rule, lease, done).record_nothing(now)
            return
        if self.unattended:
            now = self._check_fuse(table, rule, now)
        begun, behind = 0, None
        while (behind := TableSweep(self, table, rule, lease, done).begin(now, behind)) is not None:
            begun += 1
            if begun == self.most_sweeps:
                who = table.scheduler, str(table.name), rule.name, table.label(rule)
                self.context.listener(BudgetExhausted(*who, "rows"))
                done.outcome, done.message = Outcome.BUDGET, "the rest moves with the next sweep"
                return

    def _check_fuse(self, table: Table, rule: Rule, now: datetime) -> datetime:
        """Return the time that decides what a new sweep takes: now, or the time of the plan that was approved.

        Raise Blown if it would take too large a share, which needs a person's approval. A sweep that was begun is
        finished whatever its share.
        """
        selection = self.bindings.selection(table, rule)
        found, approval = check_fuse(self.context.store, self.context.contract, selection, now)
        if found.blown:
            raise Blown(found.blown)
        return now if approval is None else approval.planned_at

    def require_open(self, table: Table) -> None:
        """Raise unless rows of the table may leave now."""
        require_not_append_only(table)
        with self.context.store.transaction() as transaction:
            self.context.fence(transaction)
            self.context.require_open(transaction, table.name)
