"""What a worker of `wane run` does for the archive of a table: one sweep of every rule that archives, and periodically
the archive's own maintenance.

Whether there is anything to do is read from the database and the archive's log. Spark is started when there is, and not
before.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from wane._archive.spark.session import stopped_when_idle
from wane._archive.tier.tier import DatabaseTier
from wane._archive.work import ArchiveWork
from wane._contract.model import Contract, Rule, Table, ToArchive, ToColdTier
from wane._db import Store
from wane._db.transaction import Transaction
from wane._leases import Leases
from wane._ledger import Ledger
from wane._prune.sweep import Outcome, SweptRule
from wane.errors import SparkError
from wane.events import Listener, RuleFailed

if TYPE_CHECKING:
    from wane._archive.context import ArchiveContext
    from wane._archive.maintenance.upkeep import Upkeep
    from wane._archive.model import CompactedTable, ExpiredTable, TidiedTable

_MOST_MONTHS = 12
"""How many months of one table expire, or are compacted, at once; the rest follows the next time."""
_ANSWER_SECONDS = 900.0
"""Finding where a range ends may take minutes: longer than any other query of a runner."""


class ScheduledArchive:
    """Archives, and maintains the archive, on behalf of workers."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self._failing: set[str] = set()
        """Tables for whose archives a maintenance step failed the last time: it is retried in the next window."""

    def work(
        self,
        store: Store,
        table: Table,
        *,
        actor: str,
        listener: Listener,
        fence: Callable[[Transaction], None],
        stop: threading.Event,
    ) -> list[SweptRule]:
        """Archive what is due of one table, and maintain its archive.

        If another process holds the lease of its archive, do nothing: the next window checks again.
        """
        work = ArchiveWork(store, self.contract, actor, listener, stop, fence)
        if any(rule.active and isinstance(rule.action, ToColdTier) for rule in table.rules):
            return self._expire_tier(DatabaseTier.of(work), table)
        rules = [rule for rule in table.rules if rule.active and isinstance(rule.action, ToArchive)]
        if not rules or table.append_only:
            return []
        with stopped_when_idle(self.contract.spark.idle_stop), store.clone(answer_seconds=_ANSWER_SECONDS) as own:
            archiving = _Archiving(replace(work, store=own), table, self._failing)
            try:
                return archiving.rules(rules)
            except ImportError as problem:
                missing = SparkError(
                    f"the archive's libraries are missing: {problem.name}", "pip install 'wane[spark]'"
                )
                return [archiving.failed(rules[0], str(missing))]

    def _expire_tier(self, tier: DatabaseTier, table: Table) -> list[SweptRule]:
        """Expire rows that are archived in the same database, if that was last done long enough ago."""
        name = str(table.name)
        if tier.cutoff(table) is None or table.append_only:
            return []
        with tier.store.snapshot() as transaction:
            last = Ledger.of(transaction).trail(kind="archive_expire", table=name, limit=1)
            if last and transaction.now() - last[0].executed_at < self.contract.upkeep.every:
                return []
        done = tier.expire(table)
        if done.outcome is not Outcome.FAILED:
            return []
        rule = next(one for one in table.rules if isinstance(one.action, ToColdTier))
        tier.listener(RuleFailed(table.scheduler, name, rule.name, table.label(rule), done.message))
        return [SweptRule(name, rule.name, "shelve", Outcome.FAILED, {name: 0}, 0, 0.0, done.message)]


class _Archiving:
    """Archives one table."""

    def __init__(self, work: ArchiveWork, table: Table, failing: set[str]) -> None:
        self.work = work
        self.store = work.store
        self.table = table
        self.name = str(table.name)
        self.failing = failing

    def rules(self, rules: list[Rule]) -> list[SweptRule]:
        from wane._archive.archiver import Archiver
        from wane._archive.context import ArchiveContext

        busy = self._busy()
        if busy:
            return [self._swept(rule.name, Outcome.OFF, busy) for rule in rules]
        context = ArchiveContext.of(self.work)
        archiver = Archiver(context, most_sweeps=1, wait=True, unattended=True)
        done = []
        for rule in rules:
            began = time.monotonic()
            moved = archiver.archive(self.table, rule)
            done.append(
                SweptRule(
                    self.name,
                    rule.name,
                    "archive",
                    moved.outcome,
                    moved.evicted,
                    len(moved.sweeps),
                    time.monotonic() - began,
                    moved.message,
                )
            )
        if all(one.outcome in (Outcome.DONE, Outcome.BUDGET) for one in done):
            done += self._maintain(rules[0], context)
        return done

    def failed(self, rule: Rule, message: str) -> SweptRule:
        self.work.listener(RuleFailed(self.table.scheduler, self.name, rule.name, self.table.label(rule), message))
        return self._swept(rule.name, Outcome.FAILED, message)

    def _swept(self, rule: str, outcome: Outcome, message: str) -> SweptRule:
        return SweptRule(self.name, rule, "archive", outcome, {self.name: 0}, 0, 0.0, message)

    def _busy(self) -> str:
        with self.store.write() as (run, now):
            held = Leases(self.store.dialect).current(run, now)
        return next((f"{one.holder} writes to its archive" for one in held if one.name == f"archive {self.name}"), "")

    def _maintain(self, rule: Rule, context: ArchiveContext) -> list[SweptRule]:
        """Expire, compact and tidy, if that was last done long enough ago; a step that fails does not stop the others.

        Tidying the table itself comes last, and its entry in the audit trail records when all of it was done.
        """
        from wane._archive.maintenance.compact import Compaction
        from wane._archive.maintenance.expire import ArchiveExpiry
        from wane._archive.maintenance.tidy import Tidying
        from wane._archive.maintenance.upkeep import Upkeep

        upkeep = Upkeep(context)
        if not self._is_time(upkeep):
            return []
        settings = self.work.contract.upkeep
        names = upkeep.written_by(self.name, upkeep.sweeps())
        steps: list[Callable[[], ExpiredTable | CompactedTable | TidiedTable]] = [
            lambda: ArchiveExpiry(upkeep).expire(self.table, most_months=_MOST_MONTHS)
        ]
        for name in [*names[1:], self.name]:
            steps.append(
                lambda name=name: Compaction(upkeep).compact(  # type: ignore[misc]
                    name, least_files=settings.files, most_months=_MOST_MONTHS
                )
            )
            steps.append(lambda name=name: Tidying(upkeep).tidy(name))  # type: ignore[misc]
        swept: list[SweptRule] = []
        self.failing.discard(self.name)
        for step in steps:
            try:
                done = step()
            except ImportError:
                raise  # The libraries are missing, for every step.
            except Exception as problem:
                # Also what no step expects fails alone: without tidying, the disk fills.
                first = str(problem).strip().partition("\n")[0]
                self.failing.add(self.name)
                swept.append(self.failed(rule, f"{type(problem).__name__}: {first}"))
                continue
            if done.outcome is Outcome.DONE:
                continue
            if done.outcome is not Outcome.FAILED:
                # Stopped, switched off, or another worker has its lease now: the same holds for every other step.
                outcome = Outcome.STOPPED if self.work.stop.is_set() else Outcome.OFF
                return [*swept, self._swept(rule.name, outcome, done.message)]
            if done.busy:
                swept.append(self._swept(rule.name, Outcome.OFF, done.message))
            else:
                self.failing.add(self.name)
                swept.append(self.failed(rule, done.message))
        return swept

    def _is_time(self, upkeep: Upkeep) -> bool:
        if upkeep.cold(self.name).open() is None:
            return False
        if self.name in self.failing:
            return True
        with self.store.snapshot() as transaction:
            last = Ledger.of(transaction).trail(kind="archive_tidy", table=self.name, limit=1)
            return not last or transaction.now() - last[0].executed_at >= self.work.contract.upkeep.every
