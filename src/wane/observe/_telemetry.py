"""Spans and metrics for OpenTelemetry.

`Telemetry` is a listener. A sweep of a rule is a span, its batches are events of that span; steps of the archive and of
partitions are spans of their own. Metrics have the names and labels that they have for Prometheus, because they are the
same ones. What is sent never contains the contents of rows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wane._contract.model import Contract
from wane._db import Store
from wane._prune.sweep import Outcome
from wane.errors import MetricsError
from wane.events import (
    ArchiveMaintained,
    ArchiveStep,
    BatchTaken,
    BudgetExhausted,
    Event,
    PartitionStep,
    RuleFailed,
    RuleSwept,
    SlowedDown,
    TickFailed,
    WorkFailed,
    WorkProgressed,
)
from wane.observe._gauge import GAUGES

try:
    from opentelemetry import metrics as otel_metrics
    from opentelemetry import trace
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, Status, StatusCode, TracerProvider

    from wane.observe._metrics import BATCH_BUCKETS, SWEEP_BUCKETS, Metrics
except ImportError as problem:
    raise MetricsError("OpenTelemetry is not installed", "install it: pip install 'wane[otel]'") from problem

_SCOPE = "wane"
_NANOSECONDS = 1_000_000_000
_FAILED = (Outcome.FAILED.value, Outcome.FUSED.value)


@dataclass  # Without slots, which all threads would share.
class _OpenSweeps(threading.local):
    """The spans of the sweeps that run in this thread, and why a rule failed, by table and rule."""

    spans: dict[tuple[str, str], Span] = field(default_factory=dict)
    errors: dict[tuple[str, str], str] = field(default_factory=dict)


class Telemetry:
    """The spans and metrics of one contract, in this process: a listener of its keeper."""

    def __init__(
        self,
        contract: Contract,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        """Create the instruments; without providers, those that the application has set up are used."""
        self._metrics = Metrics(contract)
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._meter = otel_metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._open = _OpenSweeps()
        self._sweep_seconds = self._histogram("wane_sweep_seconds", "How long sweeps of rules took.", SWEEP_BUCKETS)
        self._batch_seconds = self._histogram("wane_batch_seconds", "How long a batch took.", BATCH_BUCKETS)
        for family in self._metrics.registry.collect():
            if family.type in ("counter", "gauge"):
                suffix = "_total" if family.type == "counter" else ""
                self._observe(family.type, family.name, f"{family.name}{suffix}", family.documentation)

    def watch(self, open_store: Callable[[], Store]) -> None:
        """Include gauges of the database, read over a connection of their own: `watch(keeper.store.clone)`."""
        self._metrics.watch(open_store)
        for gauge in GAUGES:
            self._observe("gauge", gauge.name, gauge.name, gauge.help)

    def close(self) -> None:
        """Stop reading the database."""
        self._metrics.close()

    # Metrics

    def _histogram(self, name: str, text: str, buckets: Iterable[float]) -> otel_metrics.Histogram:
        return self._meter.create_histogram(
            name, "s", text, explicit_bucket_boundaries_advisory=list(map(float, buckets))
        )

    def _observe(self, kind: str, name: str, sample: str, text: str) -> None:
        """Create an instrument that reads a metric of the registry when it is collected."""

        def read(_: CallbackOptions) -> Iterable[Observation]:
            for family in self._metrics.registry.restricted_registry([sample]).collect():
                for one in family.samples:
                    if one.name == sample:
                        yield Observation(one.value, one.labels)

        if kind == "counter":
            self._meter.create_observable_counter(name, [read], description=text)
        else:
            self._meter.create_observable_gauge(name, [read], description=text)

    # Spans

    def __call__(self, event: Event) -> None:
        self._metrics(event)
        match event:
            case WorkProgressed(work="sweep", rule=str(rule), done=0):
                self._open.spans[event.table, rule] = self._tracer.start_span("wane.sweep")
            case BatchTaken():
                self._batch_seconds.record(event.seconds, _labels(event.scheduler, event.table, event.rule))
                self._note(event.table, event.rule, "batch", {"rows": sum(event.counts.values())})
            case SlowedDown():
                self._note(event.table, event.rule, "slowed_down", {"cause": event.cause})
            case BudgetExhausted():
                self._note(event.table, event.rule, "budget_exhausted", {"spent": event.spent})
            case RuleFailed():
                self._open.errors[event.table, event.rule] = event.error
            case RuleSwept():
                self._swept(event)
            case ArchiveStep():
                rows = sum((event.evicted or event.archived).values())
                facts = {"table": event.table, "rule": event.rule, "sweep": event.sweep, "rows": rows}
                self._past(f"wane.archive.{event.state}", event.seconds, facts)
            case ArchiveMaintained():
                facts = {"table": event.table, "rows": sum(event.rows.values()), "files": event.files}
                self._past(f"wane.archive.{event.action}", event.seconds, facts)
            case PartitionStep():
                facts = {"table": event.table, "step": event.step, "partition": event.partition or ""}
                self._past("wane.partition", event.seconds, facts)
            case TickFailed():
                self._past("wane.tick", 0.0, {"scheduler": event.scheduler}, event.error)
            case WorkFailed():
                self._past("wane.work", 0.0, {"kind": event.kind}, event.error)
            case _:
                pass  # It has no duration: metrics and logs have it.

    def _note(self, table: str, rule: str, name: str, facts: Mapping[str, Any]) -> None:
        span = self._open.spans.get((table, rule))
        if span is not None:
            span.add_event(name, _named(facts))

    def _swept(self, event: RuleSwept) -> None:
        if event.batches:
            self._sweep_seconds.record(event.seconds, _labels(event.scheduler, event.table, event.rule))
        rule = (event.table, event.rule)
        error = self._open.errors.pop(rule, "")
        span = self._open.spans.pop(rule, None) or self._begin("wane.sweep", event.seconds)
        span.set_attributes(
            _named(
                {
                    **_labels(event.scheduler, event.table, event.rule),
                    "action": event.action,
                    "outcome": event.outcome,
                    "rows": sum(event.counts.values()),
                    "batches": event.batches,
                }
            )
        )
        _end(span, error or (event.outcome if event.outcome in _FAILED else ""))

    def _past(self, name: str, seconds: float, facts: Mapping[str, Any], error: str = "") -> None:
        """Send the span of what ended just now."""
        span = self._begin(name, seconds)
        span.set_attributes(_named(facts))
        _end(span, error)

    def _begin(self, name: str, seconds: float) -> Span:
        return self._tracer.start_span(name, start_time=time.time_ns() - int(seconds * _NANOSECONDS))


def _labels(scheduler: str | None, table: str, rule: str) -> dict[str, Any]:
    return {"scheduler": scheduler or _SCOPE, "table": table, "rule": rule}


def _named(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {f"wane.{name}": value for name, value in facts.items()}


def _end(span: Span, error: str) -> None:
    if error:
        span.set_status(Status(StatusCode.ERROR, error))
    span.end()
