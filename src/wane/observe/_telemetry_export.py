"""Where telemetry goes: to the providers of the application, or over OTLP to where OTEL_* variables point."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from wane._contract.model import Contract
from wane.errors import MetricsError
from wane.observe._telemetry import Telemetry

try:
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
except ImportError as problem:
    raise MetricsError("OpenTelemetry's exporter is missing", "install it: pip install 'wane[otel]'") from problem


@contextmanager
def exported_telemetry(contract: Contract) -> Iterator[Telemetry]:
    """Yield telemetry that is sent over OTLP, until the end, when the rest is sent.

    In a process that was instrumented already (`opentelemetry-instrument wane run --otel`), the providers that were set
    up there are used.
    """
    if isinstance(trace.get_tracer_provider(), TracerProvider):
        yield Telemetry(contract)
        return
    resource = Resource.create({"service.name": "wane"})
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource=resource)
    telemetry = Telemetry(contract, tracer_provider=tracers, meter_provider=meters)
    try:
        yield telemetry
    finally:
        meters.shutdown()
        tracers.shutdown()
        telemetry.close()
