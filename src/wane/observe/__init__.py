"""Listeners for emitted events, and readings of the database: metrics, logs, health, growth, space."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wane.observe._logs import configure_logging, log_event
    from wane.observe._metrics import Metrics
    from wane.observe._telemetry import Telemetry

__all__ = ["Metrics", "Telemetry", "configure_logging", "log_event"]
_MODULES = {"Metrics": "_metrics", "Telemetry": "_telemetry", "configure_logging": "_logs", "log_event": "_logs"}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: metrics need libraries that not every installation has."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"wane.observe.{_MODULES[name]}"), name)
