"""Metrics for Prometheus: counters of events in this process, and gauges of what only the database knows.

`Metrics` is a listener. Every series that a contract can have exists from the start at 0, so that a rate includes the
first event. Rows are counted after their commit, batch by batch, under the `table` label of their rule (`Table.label`);
followers are counted under the name of their own table, and the scheduler of the rule that took them. Marking is not
pruning.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from wane import events
from wane._contract.model import Contract, Expiry, Mark, Prune, Rule, Table, ToArchive, ToColdTier
from wane._db import Store
from wane._prune.sweep import Outcome
from wane.errors import MetricsError
from wane.observe._exporter import Exporter
from wane.observe._logs import UNSCHEDULED

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
    from prometheus_client.exposition import choose_encoder
except ImportError as problem:
    raise MetricsError("metrics need prometheus-client", "install it: pip install 'wane[metrics]'") from problem

if TYPE_CHECKING:
    from wane.observe._scrape import DatabaseScrape

_RULE = ("scheduler", "table", "rule")
BATCH_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
SWEEP_BUCKETS = (0.01, 0.1, 1.0, 5.0, 15.0, 60.0, 300.0)
SPENT = ("rows", "seconds", "batches")
"""What a budget limits."""
_MAINTAINED = ("expire", "compact", "tidy")
"""What maintains an archive."""


class Metrics:
    """The metrics of one contract, in this process."""

    def __init__(
        self,
        contract: Contract,
        *,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Register the metrics; with a registry of the application's own, its exporter includes them."""
        self.contract = contract
        self.registry = registry or CollectorRegistry()
        self._clock = clock
        self._tables = {str(table.name): table for table in contract.tables}
        self._scrape: DatabaseScrape | None = None
        self._make()
        self._begin()

    def _make(self) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=self.registry)

        self.pruned_rows = counter(
            "lifecycle_prune_rows_total", "Rows that were pruned and committed.", "scheduler", "table"
        )
        self.tick_errors = counter("lifecycle_tick_errors_total", "Failed attempts of sweeps and ticks.", "scheduler")
        self.marked_rows = counter("wane_marked_rows_total", "Rows whose state was changed by a rule.", *_RULE)
        self.archived_rows = counter(
            "wane_archived_rows_total", "Rows that left for the archive, proven and committed.", "scheduler", "table"
        )
        self.expired_rows = counter(
            "wane_archive_expired_rows_total", "Rows that the archive has forgotten for good.", "table"
        )
        self.archive_files = counter(
            "wane_archive_files_total",
            "Files of the archive that left it (expire, compact) or the disk (tidy).",
            "table",
            "action",
        )
        self.inline_rows = counter(
            "wane_inline_rows_total",
            "Rows that the application took itself: consumed, discarded, or pruned in its own transaction.",
            "scheduler",
            "table",
            "kind",
        )
        self.sweeps = counter("wane_sweeps_total", "Sweeps of rules that ended, by how they ended.", *_RULE, "outcome")
        self.sweep_done = Gauge(
            "wane_sweep_done_timestamp_seconds",
            "When a sweep of the rule last ended with nothing left, in this process; 0: not yet.",
            _RULE,
            registry=self.registry,
        )
        self.sweep_seconds = Histogram(
            "wane_sweep_seconds",
            "How long sweeps of rules took, pauses included.",
            _RULE,
            buckets=SWEEP_BUCKETS,
            registry=self.registry,
        )
        self.batch_seconds = Histogram(
            "wane_batch_seconds",
            "How long the transaction of a batch took.",
            _RULE,
            buckets=BATCH_BUCKETS,
            registry=self.registry,
        )
        self.budgets = counter(
            "wane_budget_exhausted_total", "Sweeps that spent their budget, and of what.", *_RULE, "spent"
        )
        self.slowed_down = counter(
            "wane_slowed_down_total", "Batches retried smaller because of lock contention or a timeout.", *_RULE
        )
        self.ticks = counter("wane_ticks_total", "Windows that a scheduler began.", "scheduler")
        self.enqueued = counter("wane_sweeps_enqueued_total", "Sweeps that a scheduler enqueued.", "scheduler")
        self.dead_letters = counter(
            "wane_dead_letters_total", "Messages that became dead letters in this process.", "pool"
        )

    def _begin(self) -> None:
        """Create every series with the value 0."""
        schedulers = [scheduler.name for scheduler in self.contract.schedulers]
        for name in (*schedulers, UNSCHEDULED):
            self.tick_errors.labels(name)
        for name in schedulers:
            self.ticks.labels(name)
            self.enqueued.labels(name)
        self.dead_letters.labels(self.contract.queue.pool)
        for table, rule in self.contract.rules():
            self._begin_rule(table, rule)
        for table, rule, follower in self.contract.followers():
            if rule.active and isinstance(rule.action, Prune):
                self.pruned_rows.labels(_scheduler(table), str(follower.reference.table))
        for table in self.contract.tables:
            for kind in _inline_kinds(table):
                self.inline_rows.labels(_scheduler(table), str(table.name), kind)

    def _begin_rule(self, table: Table, rule: Rule) -> None:
        labels = (_scheduler(table), str(table.name), rule.name)
        if isinstance(rule.action, Prune):
            self.pruned_rows.labels(_scheduler(table), table.label(rule))
        if isinstance(rule.action, ToArchive | ToColdTier):
            self.archived_rows.labels(_scheduler(table), str(table.name))
            self.expired_rows.labels(str(table.name))
            for action in _MAINTAINED:
                self.archive_files.labels(str(table.name), action)
        if isinstance(rule.action, Mark):
            self.marked_rows.labels(*labels)
        for outcome in Outcome:
            self.sweeps.labels(*labels, outcome.value)
        for spent in SPENT:
            self.budgets.labels(*labels, spent)
        for metric in (self.sweep_done, self.sweep_seconds, self.batch_seconds, self.slowed_down):
            metric.labels(*labels)

    # Listening

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.BatchTaken():
                labels = (event.scheduler or UNSCHEDULED, event.table, event.rule)
                self.batch_seconds.labels(*labels).observe(event.seconds)
                self._count(event, event.action)
            case events.RowsPruned(committed=True):
                self._count(event, event.kind)
            case events.RowsPruned():
                # Whether the caller's transaction was committed is unknown.
                for table, rows in event.counts.items():
                    self.inline_rows.labels(event.scheduler or UNSCHEDULED, table, event.kind).inc(rows)
            case events.RowConsumed():
                self.inline_rows.labels(self._scheduler_of(event.table), event.table, event.kind).inc()
            case events.RuleSwept():
                self._swept(event)
            case events.BudgetExhausted():
                labels = (event.scheduler or UNSCHEDULED, event.table, event.rule)
                self.budgets.labels(*labels, event.spent).inc()
            case events.SlowedDown():
                self.slowed_down.labels(self._scheduler_of(event.table), event.table, event.rule).inc()
            case events.RuleFailed() | events.TickFailed() | events.WorkFailed():
                self.tick_errors.labels(event.scheduler or UNSCHEDULED).inc()
            case events.RetentionPassFailed():
                self.tick_errors.labels(UNSCHEDULED).inc()
            case events.SweepsEnqueued():
                self.ticks.labels(event.scheduler).inc()
                self.enqueued.labels(event.scheduler).inc(len(event.kinds))
            case events.MessageDead():
                self.dead_letters.labels(event.pool).inc()
            case events.ArchiveMaintained():
                for table, rows in event.rows.items():
                    self.expired_rows.labels(table).inc(rows)
                self.archive_files.labels(event.table, event.action).inc(event.files)
            case events.ArchiveStep() | events.ArchiveProgress() | events.RowsArchived():
                pass  # Its batches are counted.
            case events.ArchiveColumnChanged():
                pass  # Rare, and recorded in the audit trail.
            case events.RowsRestored():
                pass  # Restored rows are not counted: they are rare, and recorded in the audit trail.
            case (
                events.HeartbeatWritten()
                | events.OutageEnded()
                | events.SnapshotTaken()
                | events.TableNearThreshold()
                | events.WorkProgressed()
            ):
                pass  # The gauges read it from the database, which includes other processes.
            case events.HardDeleted() | events.PartitionStep():
                pass  # Its rows were counted with the batches that took them.

    def _count(self, event: events.BatchTaken | events.RowsPruned, kind: str) -> None:
        scheduler = event.scheduler or UNSCHEDULED
        if kind == "mark":
            self.marked_rows.labels(scheduler, event.table, event.rule or "").inc(event.counts.get(event.table, 0))
            return
        if kind in ("archive", "shelve"):
            for table, rows in event.counts.items():
                self.archived_rows.labels(scheduler, table).inc(rows)
            return
        for table, rows in event.counts.items():
            self.pruned_rows.labels(scheduler, event.label if table == event.table else table).inc(rows)

    def _swept(self, event: events.RuleSwept) -> None:
        labels = (event.scheduler or UNSCHEDULED, event.table, event.rule)
        self.sweeps.labels(*labels, event.outcome).inc()
        if event.batches:
            self.sweep_seconds.labels(*labels).observe(event.seconds)
        if event.outcome == Outcome.DONE:
            self.sweep_done.labels(*labels).set(self._clock())

    def _scheduler_of(self, table: str) -> str:
        declared = self._tables.get(table)
        return UNSCHEDULED if declared is None else _scheduler(declared)

    # Showing

    def watch(
        self,
        open_store: Callable[[], Store],
        *,
        budget_seconds: float = 1.0,
        fresh_seconds: float = 10.0,
        patience_seconds: float = 5.0,
    ) -> None:
        """Include gauges of the database, read at each scrape over their own connection: `watch(keeper.store.clone)`.

        A reading takes `budget_seconds` at most and is reused for `fresh_seconds`. A scrape waits for it no longer than
        `patience_seconds`; after that it reports the database as down.
        """
        from wane.observe._gauges import Gauges
        from wane.observe._scrape import DatabaseScrape

        self.close()
        gauges = Gauges(self.contract, budget_seconds=budget_seconds)
        self._scrape = DatabaseScrape(
            gauges, open_store, fresh_seconds=fresh_seconds, patience_seconds=patience_seconds
        )
        self.registry.register(self._scrape)

    def close(self) -> None:
        """Stop watching the database; the counters stay."""
        if self._scrape is not None:
            self.registry.unregister(self._scrape)
            self._scrape.close()
            self._scrape = None

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(_Plain(self.registry))

    def write_textfile(self, path: Path | str) -> None:
        """Write all metrics to a file, for the textfile collector of the node exporter.

        The file is replaced atomically: readers see the old one or the new one.
        """
        path = Path(path)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            part.write_bytes(self.text())
            part.replace(path)
        except OSError as problem:
            with suppress(OSError):
                part.unlink()
            raise MetricsError(
                f"metrics cannot be written to {path}: {problem.strerror}",
                "name a file in a folder that can be written",
            ) from problem

    def serve(self, port: int, address: str = "127.0.0.1") -> Exporter:
        """Serve `/metrics` from a thread, until the exporter is closed."""

        def answer(accepted: str) -> tuple[bytes, str]:
            encode, kind = choose_encoder(accepted)
            return encode(_Plain(self.registry)), kind

        return Exporter(answer, port, address)


class _Plain:
    """A registry without the `_created` series, which would double the number of series to no use."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            shown = copy.copy(metric)
            shown.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield shown


def _scheduler(table: Table) -> str:
    return table.scheduler or UNSCHEDULED


def _inline_kinds(table: Table) -> Iterator[str]:
    """Yield the kinds of deletion that an application can run on a table itself."""
    active = [rule for rule in table.rules if rule.active]
    if any(isinstance(rule.bound, Expiry) for rule in active) and not table.append_only:
        yield "consume"
    if active and not table.append_only:
        yield "discard"
    if any(isinstance(rule.action, Prune) for rule in active):
        yield "prune"
