"""OpenTelemetry: a sweep is a span with its batches, and the metrics are those that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from prune.keeping import Keeping, ago, jobs, keeping
from servers import Database
from wane._contract.model import Contract
from wane._prune.pace import Pace
from wane.events import ArchiveMaintained, ArchiveStep, Event, PartitionStep, TickFailed, WorkFailed
from wane.observe import Telemetry

TWO_A_BATCH = Pace(1.0, 1.0, 2, 2, 2)


class Sent:
    """A contract's telemetry, and what it sent."""

    def __init__(self) -> None:
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(), MeterProvider([self._metrics])
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.listeners: list[Telemetry] = []

    def of(self, contract: Contract) -> Telemetry:
        self.listeners = [Telemetry(contract, tracer_provider=self.tracers, meter_provider=self.meters)]
        return self.listeners[0]

    def listen(self, event: Event) -> None:
        for one in self.listeners:
            one(event)

    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    def metrics(self) -> dict[str, list[Any]]:
        data = self._metrics.get_metrics_data()
        assert data is not None
        found = (one for resource in data.resource_metrics for scope in resource.scope_metrics for one in scope.metrics)
        return {one.name: list(one.data.data_points) for one in found}


@contextmanager
def sending(database: Database) -> Iterator[tuple[Sent, Keeping]]:
    sent = Sent()
    with keeping(database, listener=sent.listen) as opened, closing(sent.of(opened.keeper.contract)):
        yield sent, opened


def test_a_sweep_is_a_span_and_its_batches_are_events(database: Database) -> None:
    jobs(database, *((number, "done", ago(9)) for number in range(5)))
    with sending(database) as (sent, opened):
        opened.keeper.enable()
        opened.keeper.sweep(pace=TWO_A_BATCH)
        [span] = sent.spans()
        facts = {"scheduler": "tick", "table": "job", "rule": "old", "action": "prune", "outcome": "done", "rows": 5}
        assert dict(span.attributes or {}) == {
            f"wane.{name}": value for name, value in (facts | {"batches": 3}).items()
        }
        batches = [dict(one.attributes or {}) for one in span.events if one.name == "batch"]
        assert batches == [{"wane.rows": 2}, {"wane.rows": 2}, {"wane.rows": 1}]
        assert (span.name, span.status.status_code) == ("wane.sweep", StatusCode.UNSET)
        assert (span.start_time or 0) <= (span.end_time or 0)


def test_a_failed_sweep_is_an_error_with_its_cause(database: Database) -> None:
    jobs(database, (1, "done", ago(9)))
    with sending(database) as (sent, opened):
        opened.keeper.enable()
        database.execute("DROP TABLE job")
        opened.keeper.sweep()
        [span] = sent.spans()
        assert span.status.status_code is StatusCode.ERROR
        assert "job" in (span.status.description or "")
        assert (span.attributes or {})["wane.outcome"] == "failed"


def test_metrics_are_those_of_prometheus(database: Database) -> None:
    jobs(database, *((number, "done", ago(9)) for number in range(5)), (9, "done", ago(1)))
    with sending(database) as (sent, opened):
        opened.keeper.enable()
        sent.listeners[0].watch(opened.keeper.store.clone)
        before = sent.metrics()
        [backlog] = before["wane_backlog_rows"]
        assert (backlog.value, dict(backlog.attributes)) == (5, {"scheduler": "tick", "table": "job", "rule": "old"})
        assert [one.value for one in before["wane_up"]] == [1]
        assert [one.value for one in before["lifecycle_prune_rows"]] == [0]
        opened.keeper.sweep(pace=TWO_A_BATCH)
        after = sent.metrics()
        assert [(one.value, dict(one.attributes)) for one in after["lifecycle_prune_rows"]] == [
            (5, {"scheduler": "tick", "table": "job.old"})
        ]
        assert [one.count for one in after["wane_batch_seconds"]] == [3]
        assert [one.count for one in after["wane_sweep_seconds"]] == [1]


def test_steps_that_have_ended_are_spans_as_long_as_they_took() -> None:
    sent = Sent()
    sent.of(Contract(None, ()))
    for event in (
        ArchiveStep("job", "old", 7, "written", {"job": 3}, {}, 2.0),
        ArchiveMaintained("expire", "job", {"job": 4}, 1, 10, 0.5),
        PartitionStep("job", "detached", "job_2026_01", 1.0),
        TickFailed("tick", "no connection"),
        WorkFailed("tick", "sweep", "lease lost"),
    ):
        sent.listen(event)
    found = [(one.name, _seconds(one), one.status.description) for one in sent.spans()]
    assert found == [
        ("wane.archive.written", 2.0, None),
        ("wane.archive.expire", 0.5, None),
        ("wane.partition", 1.0, None),
        ("wane.tick", 0.0, "no connection"),
        ("wane.work", 0.0, "lease lost"),
    ]


def _seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return round((span.end_time - span.start_time) / 1_000_000_000, 1)
