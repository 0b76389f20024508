"""The facade: a Keeper has a contract and a store, and delegates every call to the package that implements it.

A package is imported by the first call that needs it: most commands and programs use one or two of them, and all of
them take longer to import than most commands run.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wane._closable import Closable
from wane._contract.load import load_contract
from wane._contract.lookup import require_known
from wane._contract.model import Contract, State
from wane._db import Store, open_store
from wane._db.counting import READ_SECONDS, REVIEW_SECONDS
from wane._db.url import DatabaseUrl, resolve_url
from wane.errors import ArchiveError, UrlError, WrongArgumentType

if TYPE_CHECKING:
    from wane._archive.delta.group_commit import Commits
    from wane._archive.facade import Archive
    from wane._contract.settings import Budget
    from wane._findings import Finding
    from wane._ledger import AuditEntry, Hold
    from wane._partition.facade import Partition
    from wane._prune.approval import Approver, FuseReview
    from wane._prune.build_plan import Progress
    from wane._prune.inline import InlineDeletion
    from wane._prune.pace import Pace
    from wane._prune.plan import Plan, Step
    from wane._prune.primitive import Pruned, Pruner
    from wane._prune.sql_fuse import Approval
    from wane._prune.sweep import Sweep, Sweeper
    from wane._roles.model import RolePlan
    from wane._schedule import Ran, Status
    from wane._schedule.sql import InForce
    from wane._why.model import WhyRow
    from wane.claims import Reclaim, WorkClaims
    from wane.events import Listener
    from wane.observe._ages import AgeHistogram
    from wane.observe._growth import TableGrowth
    from wane.observe._health import Health
    from wane.observe._pressure import Pressure
    from wane.observe._probe import Prober
    from wane.observe._space import FileVacuumed, Space
    from wane.observe._sql_snapshots import Snapshot
    from wane.queue import Queue, RetryPolicy
    from wane.queue._wakeups import Wakeups


class Keeper(Closable):
    """Keeps the promises of one contract on one database. Close it, or use it as a context manager."""

    def __init__(
        self,
        contract: Contract,
        store: Store,
        *,
        actor: str | None = None,
        listener: Listener | None = None,
        commits: Commits | None = None,
    ) -> None:
        """Set up a keeper; `commits` makes the commits of its archive together with those of other databases."""
        self.contract = contract
        self.store = store
        self._actor = actor
        self._listener = listener or _default_listener()
        self._commits = commits
        self._wakeups: Wakeups | None = None

    @cached_property
    def pruner(self) -> Pruner:
        """Return what takes rows by rules, in transactions of its own or of a caller."""
        from wane._prune.primitive import Pruner

        return Pruner(self.store, self.contract, actor=self._actor, listener=self._listener)

    @cached_property
    def archive(self) -> Archive:
        """Return what moves rows to the archive, and reads it: see docs/reference/python.md."""
        from wane._archive.facade import Archive

        return Archive(
            self.store, self.contract, actor=self.pruner.actor, listener=self._listener, commits=self._commits
        )

    @cached_property
    def partition(self) -> Partition:
        """Return what partitions tables by the month, and back (PostgreSQL): see docs/reference/python.md."""
        from wane._partition.facade import Partition

        return Partition(
            self.store,
            self.contract,
            actor=self.pruner.actor,
            archiving=self._archive_table,
            listener=self._listener,
        )

    @cached_property
    def _prober(self) -> Prober:
        from wane.observe._probe import Prober

        return Prober(self.contract)

    def close(self) -> None:
        if self._wakeups is not None:
            self._wakeups.close()
        self.store.close()

    def migrate(self) -> list[str]:
        """Create or update Wane's own tables; return what was applied. Safe to repeat, and for concurrent processes."""
        return self.store.migrate()

    def check(self, *, strict: bool = False) -> list[Finding]:
        """Report everything about the database that the contract gets wrong or leaves out."""
        from wane._check.acceptance import accept
        from wane._check.cover import cover

        findings = cover(self.store, self.contract, strict=strict)
        return accept(self.contract, findings, self.store.now().date(), ran={"database", "archive"})

    def check_live(self) -> list[Finding]:
        """Report every promise of the contract that the database breaks now."""
        from wane._check.acceptance import accept
        from wane._check.live import live

        findings = [*live(self.store, self.contract), *self.archive.findings()]
        return accept(self.contract, findings, self.store.now().date(), ran={"live"})

    def _archive_table(self, table: str) -> None:
        """Move what is due of one table to the archive, or raise: whole months leave only after their rows did."""
        done = self.archive.run(table)
        if done.failed:
            raise ArchiveError(
                "; ".join(rule.message for rule in done.rules if rule.message),
                f"see what is unfinished: `wane archive status`; then `wane archive run {table}` again",
            )

    # Taking rows

    def prune(
        self,
        table: str,
        *,
        rule: str | None = None,
        states: Collection[State] | None = None,
        older_than: datetime | float | None = None,
        limit: int,
        scope: dict[str, Any] | None = None,
        actor: str | None = None,
        connection: object | None = None,
    ) -> Pruned:
        """Take at most `limit` rows, oldest first, in one audited transaction: see `wane._prune.primitive`."""
        return self.pruner.prune(
            table,
            rule=rule,
            states=states,
            older_than=older_than,
            limit=limit,
            scope=scope,
            actor=actor,
            connection=connection,
        )

    def prune_orphans(
        self,
        table: str,
        *,
        older_than: datetime | float,
        limit: int,
        states: Collection[State] | None = None,
        actor: str | None = None,
        connection: object | None = None,
    ) -> Pruned:
        """Take at most `limit` rows whose parent reference is NULL, oldest first, in one audited transaction."""
        return self.pruner.prune_orphans(
            table, older_than=older_than, limit=limit, states=states, actor=actor, connection=connection
        )

    def preview(
        self,
        table: str,
        *,
        rule: str | None = None,
        states: Collection[State] | None = None,
        older_than: datetime | float | None = None,
        orphans: bool = False,
        seconds: float = READ_SECONDS,
    ) -> Step:
        """Preview `prune` and `prune_orphans`: return what would leave now, the statement and its plan.

        Changes nothing.
        """
        return self.pruner.preview(
            table, rule=rule, states=states, older_than=older_than, orphans=orphans, seconds=seconds
        )

    def consume(
        self, table: str, key: Mapping[str, object], *, connection: object | None = None
    ) -> dict[str, Any] | None:
        """Delete a one-time row and return it, once, only while it has not expired."""
        return self._inline_deletion().consume(table, key, connection)

    def discard(self, table: str, key: Mapping[str, object], *, connection: object | None = None) -> bool:
        """Delete a row whose work succeeded."""
        return self._inline_deletion().discard(table, key, connection)

    def _inline_deletion(self) -> InlineDeletion:
        from wane._prune.inline import InlineDeletion

        return InlineDeletion(self.store, self.pruner.bindings, self._listener)

    def sweep(
        self,
        *only: str,
        budget: Budget | Mapping[str, int] | None = None,
        approve: Collection[str] = (),
        pace: Pace | None = None,
        stop: threading.Event | None = None,
    ) -> Sweep:
        """Sweep every rule, or those named, batch by batch, if the flags allow it.

        `budget` replaces that of each rule, or some of its limits, such as `{"rows": 1_000}`.
        """
        if isinstance(approve, str):
            raise WrongArgumentType(f"approve must be a list of rules, not {approve!r}", f"write [{approve!r}]")
        require_known(self.contract, [*only, *approve])
        return self._sweeper(pace, stop, approve).sweep(only, budget=budget)

    def apply(self, plan: Plan, *, pace: Pace | None = None, stop: threading.Event | None = None) -> Sweep:
        """Take exactly what a plan lists, or raise PlanError if the database no longer matches it."""
        from wane._prune.apply import apply_plan

        return apply_plan(self._sweeper(pace, stop, ()), plan)

    def _sweeper(self, pace: Pace | None, stop: threading.Event | None, approve: Collection[str]) -> Sweeper:
        from wane._prune.pace import Pace
        from wane._prune.sweep import Sweeper

        return Sweeper(
            self.store,
            self.contract,
            self.pruner.actor,
            self._listener,
            pace=pace or Pace.of(self.contract.sweep),
            approved=approve,
            stop=stop or threading.Event(),
        )

    # What the fuse stops

    def review(self, *only: str, seconds: float = REVIEW_SECONDS) -> FuseReview:
        """Find the rules that the fuse stops now, with their plans, counted. Changes nothing."""
        return self._approver.review(only, seconds=seconds)

    def approve(self, review: FuseReview, *, expires_after: timedelta = timedelta(days=7)) -> list[Approval]:
        """Approve the plans of a review: unattended sweeps may take them, until each rule's first completed sweep."""
        return self._approver.approve(review, expires_after=expires_after)

    def approvals(self, *only: str) -> list[Approval]:
        """List the approvals in force, all or those of rules named `table` or `table.rule`."""
        return self._approver.approvals(only)

    def revoke(self, *only: str) -> list[Approval]:
        """Revoke the approvals in force, all or those of rules named `table` or `table.rule`; return them."""
        return self._approver.revoke(only)

    @property
    def _approver(self) -> Approver:
        from wane._prune.approval import Approver

        return Approver(self.store, self.contract, actor=self.pruner.actor)

    # Control

    def roles(self) -> RolePlan:
        """Return the statements that give the contract's roles the rights they need, and no more (PostgreSQL)."""
        from wane._roles.plan import plan_roles

        return plan_roles(self.store, self.contract)

    def apply_roles(self) -> RolePlan:
        """Run the missing ones of the statements of `roles`, in one transaction, and return them."""
        from wane._roles.plan import apply_roles

        return apply_roles(self.store, self.contract)

    def enable(self, table: str | None = None) -> str:
        """Open the master gate, or a table's; return the flag's name."""
        return self._set_gate(table, enabled=True)

    def disable(self, table: str | None = None) -> str:
        """Close the master gate, or a table's: sweeps stop at their next batch."""
        return self._set_gate(table, enabled=False)

    def _set_gate(self, table: str | None, *, enabled: bool) -> str:
        from wane._prune.gates import set_gate

        if table is not None:
            self.pruner.bindings.table(table)
        return set_gate(self.store, table, self.contract.sweep, enabled=enabled, by=self.pruner.actor)

    def hold(
        self, table: str, key: Mapping[str, object] | None = None, *, reason: str, ends_at: datetime | None = None
    ) -> Hold:
        """Add a hold: a row, or without a key the whole table, stays, regardless of the rules."""
        from wane._archive.facade import elsewhere
        from wane._prune.holds import add_hold

        return add_hold(
            self.store,
            table,
            key=key,
            reason=reason,
            author=self.pruner.actor,
            ends_at=ends_at,
            archive=elsewhere(self.archive),
        )

    def holds(self, table: str | None = None, *, everything: bool = False, limit: int = 100) -> list[Hold]:
        """List holds in force, newest first; with `everything`, all of them."""
        from wane._prune.holds import list_holds

        return list_holds(self.store, table, everything=everything, limit=limit)

    def release_hold(self, number: int) -> None:
        """Release a hold."""
        from wane._prune.holds import release_hold

        release_hold(self.store, number, by=self.pruner.actor)

    # The cleanup queue

    def queue(self, pool: str, *, policy: RetryPolicy | None = None) -> Queue:
        """Return the cleanup queue of one work pool. All queues of a keeper wait for wakeups over one connection."""
        from wane.queue import Queue
        from wane.queue._wakeups import Wakeups

        if self._wakeups is None:
            self._wakeups = Wakeups(self.store)
        return Queue(self.store, pool, policy=policy, listener=self._listener, wakeups=self._wakeups)

    # Work claims

    def claims(self, *, reclaim: Reclaim | None = None, reclaim_abandoned: Reclaim | None = None) -> WorkClaims:
        """Return work claims, under a policy on reclaiming finished work: never, unless another one is chosen."""
        from wane.claims import WorkClaims

        return WorkClaims(self.pruner, reclaim=reclaim, reclaim_abandoned=reclaim_abandoned)

    # Running

    def run(
        self,
        *,
        schedulers: Collection[str] | None = None,
        workers: int = 1,
        stop: threading.Event | None = None,
        max_runs: int | None = None,
    ) -> Ran:
        """Run schedulers and workers until `stop` is set: the named ones, all of them, or with an empty list none.

        With `max_runs`, end after that number of windows of each scheduler, when their sweeps are done.
        """
        from wane._archive.scheduled import ScheduledArchive
        from wane._partition.chore import PartitionChore
        from wane._schedule import Chore, Runner
        from wane.observe._growth import GrowthChore
        from wane.observe._recording import HealthChore

        growth, health = GrowthChore(self.contract, self._listener), HealthChore(self.contract)
        partition = PartitionChore(self.contract, self._listener)
        return Runner(
            self.store,
            self.contract,
            schedulers=schedulers,
            workers=workers,
            max_runs=max_runs,
            actor=self.pruner.actor,
            listener=self._listener,
            stop=stop or threading.Event(),
            chores=[Chore(growth.seconds, growth), Chore(health.seconds, health), Chore(partition.seconds, partition)],
            archive=ScheduledArchive(self.contract),
        ).run()

    def adopt(self) -> InForce:
        """Put this contract in force: runners with another one are refused, and stop at their next batch."""
        from wane._schedule.adoption import adopt

        return adopt(self.store, self.contract, by=self.pruner.actor)

    def status(self) -> Status:
        """Read the current status: flags, schedulers, executors, running sweeps, the queue."""
        from wane._schedule import read_status

        return read_status(self.store, self.contract)

    # Reading

    def pressure(self) -> list[Pressure]:
        """Read how many rows each table has, how old they are, and how many are due. Bounded, and cheap to repeat."""
        from wane.observe._pressure import Pressure

        return [Pressure.of(one) for one in self._prober.read_pressure(self.store).tables]

    def health(self) -> Health:
        """Read whether retention does its work: facts, everything that is wrong, and a verdict.

        Bounded, and cheap to repeat.
        """
        from wane.observe._examine import examine

        return examine(self._prober.read(self.store), self.contract, self.archive.findings())

    def record_health(self) -> Health:
        """Read health, and store the report, as `run` does at intervals: SQL readers get it with its age."""
        from wane.observe._recording import record_health

        health = self.health()
        record_health(self.store, self.contract, health)
        return health

    def growth(self, table: str | None = None) -> list[TableGrowth]:
        """Read from the snapshots how fast every table grows, or one, and when it will be too large."""
        from wane.observe._growth import read_growth

        return read_growth(self.store, self.contract, table)

    def why(self, table: str, key: object) -> WhyRow:
        """Explain what happens to one row: which rule takes it and when, what retains it, or where it went.

        `key` maps the columns of the key to their values; of a key of one column, the value alone will do.
        """
        from wane._why.answer import explain_row

        return explain_row(self.store, self.contract, self.pruner.bindings, self.archive, table, key)

    def ages(self, table: str, *, seconds: float = READ_SECONDS) -> AgeHistogram | None:
        """Read how old the rows of a table are, in equal steps: all of them, or a sample; None if no rule ages them.

        Counting them, and reading them, may each take `seconds`.
        """
        from wane.observe._ages import read_ages

        return read_ages(self.store, self.contract, table, seconds)

    def space(self, table: str | None = None, *, since: datetime | None = None) -> Space:
        """Read the size of every table, or of one, what pruning freed since a time (a week ago), and advice."""
        from wane.observe._space import read_space

        return read_space(self.store, self.contract, table, since=since)

    def vacuum(
        self, *, seconds: float | None = None, pages: int | None = None, stop: threading.Event | None = None
    ) -> FileVacuumed:
        """Vacuum a SQLite file: give free pages back to the disk, within a budget: the contract's, or the one given."""
        from wane.observe._space import FileVacuum

        settings = self.contract.space
        seconds = settings.seconds if seconds is None else seconds
        pages = settings.pages if pages is None else pages
        return FileVacuum(self.store, seconds, pages, stop or threading.Event()).run()

    def take_snapshots(self) -> list[Snapshot]:
        """Measure every table now, as `run` does once in an interval, and store the snapshots."""
        from wane.observe._growth import take_snapshots

        return take_snapshots(self.store, self.contract, listener=self._listener)

    def audit(
        self,
        *,
        kind: str | None = None,
        table: str | None = None,
        since: datetime | None = None,
        own: bool = True,
        before: int | None = None,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """Read the audit trail, newest first; without `own` only what left the users' tables, not Wane's own.

        `before` continues after an entry, by its number.
        """
        from wane._arguments import require_limit
        from wane._ledger import Ledger
        from wane._schedule.own_tables import own_names

        self.store.require_migrated()
        without = () if own else own_names(self.store)
        with self.store.snapshot() as transaction:
            return Ledger.of(transaction).trail(
                kind=kind, table=table, since=since, without=without, before=before, limit=require_limit(limit)
            )

    def record_action(self, action: str, table: str | None = None, inputs: Mapping[str, object] | None = None) -> int:
        """Record what an operator did in the audit trail, where no rows left; return the entry's number."""
        from wane._ledger import Ledger

        self.store.require_migrated()
        with self.store.transaction() as transaction:
            facts = {"action": action, **(inputs or {})}
            ledger, now = Ledger.of(transaction), transaction.now()
            return ledger.note("action", table or "*", self.pruner.actor, facts, now, counts={})

    def plan(
        self,
        *only: str,
        now: datetime | None = None,
        seconds: float = READ_SECONDS,
        explain: bool = False,
        progress: Progress | None = None,
    ) -> Plan:
        """Plan what is due, under every rule or under those named `table` or `table.rule`."""
        from wane._prune.build_plan import build_plan

        require_known(self.contract, only)
        archive = None
        if self.contract.archive:  # Other contracts need not import it.
            from wane._archive.planning import ArchivePlanning

            archive = ArchivePlanning(self.store, self.contract)
        return build_plan(
            self.store,
            self.contract,
            now=now,
            only=only,
            seconds=seconds,
            explain=explain,
            progress=progress,
            archive=archive,
        )


def _default_listener() -> Listener:
    from wane.events import ignore_event

    return ignore_event


def open_keeper(
    url: str | None = None,
    *,
    contract: Contract | Path | str,
    read_only: bool = False,
    actor: str | None = None,
    listener: Listener | None = None,
) -> Keeper:
    """Open a database with its contract. Without a URL the contract's own is used.

    `actor` is recorded in the audit trail; `listener` receives every event.
    """
    if not isinstance(contract, Contract):
        contract = load_contract(contract)
    store = open_store(database_url(url, contract), contract.store, audit=contract.covers_audit, read_only=read_only)
    return Keeper(contract, store, actor=actor, listener=listener)


def database_url(url: str | None, contract: Contract) -> DatabaseUrl:
    """Resolve the database's URL: the one given, or the contract's, with paths relative to the contract's folder."""
    if url is not None:
        return resolve_url(url)
    if contract.store.url is None:
        raise UrlError("no database is named", 'give a URL, or write `url = "…"` under [store] in the contract')
    return resolve_url(contract.store.url, base=None if contract.path is None else contract.path.parent)
