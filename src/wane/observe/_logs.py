"""Structured log lines for operators, under the names that their dashboards use.

`<scheduler>.lifecycle_pruned`, one per sweep that removed rows; `<scheduler>.lifecycle_tick_failed`, one per failed
attempt; `<scheduler>.lifecycle_prune_budget_exhausted`; and the others listed in docs/reference/observability.md. They
go to the standard library's logger `wane`; the facts are in each record's `wane` attribute and, as key=value, in its
message.

Applications configure logging themselves. `configure_logging` is for processes that are Wane's own.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

from wane import events
from wane.observe._log_options import LogFormat, LogLevel

LOGGER = logging.getLogger("wane")
UNSCHEDULED = "wane"
"""Stands for the scheduler where a table has none."""
_LABELS: ContextVar[Mapping[str, str] | None] = ContextVar("labels", default=None)
"""Facts that every line has at present."""


def log_event(event: events.Event) -> None:
    """Log an event; usable as a listener."""
    match event:
        case events.RuleSwept(action="prune") if any(event.counts.values()):
            rows = event.counts.get(event.table, 0)
            followers = sum(event.counts.values()) - rows
            more = {"followers": followers} if followers else {}
            log(logging.INFO, _name(event, "lifecycle_pruned"), **_which(event), rows=rows, **more)
        case events.BudgetExhausted():
            name = _name(event, "lifecycle_prune_budget_exhausted")
            log(logging.WARNING, name, **_which(event), spent=event.spent)
        case events.RuleFailed():
            log(logging.ERROR, _name(event, "lifecycle_tick_failed"), **_which(event), error=event.error)
        case events.TickFailed():
            log(_level(event), _name(event, "lifecycle_tick_failed"), error=event.error)
        case events.WorkFailed():
            log(_level(event), _name(event, "lifecycle_tick_failed"), kind=event.kind, error=event.error)
        case events.OutageEnded():
            log(logging.WARNING, "wane.outage_ended", seconds=round(event.seconds, 1), attempts=event.attempts)
        case events.RetentionPassFailed():
            # The webhooks' loop belongs to no scheduler.
            log(logging.ERROR, f"{UNSCHEDULED}.lifecycle_tick_failed", table=event.table, error=event.error)
        case events.SweepsEnqueued():
            sweeps = ",".join(event.kinds)
            log(logging.INFO, _name(event, "lifecycle_tick"), window=event.window, sweeps=sweeps)
        case events.SlowedDown():
            log(logging.INFO, "wane.slowed_down", table=event.table, rule=event.rule, cause=event.cause)
        case events.MessageDead():
            facts = {"pool": event.pool, "message_id": event.message_id, "kind": event.kind, "reason": event.reason}
            log(logging.WARNING, "wane.message_dead", **facts)
        case events.HeartbeatWritten():
            log(logging.DEBUG, "wane.heartbeat", executor=event.executor, role=event.role, doing=event.doing)
        case events.RowsArchived():
            counts = {"rows": event.evicted.get(event.table, 0), "stayed": event.stale}
            log(logging.INFO, f"system/{event.table}_archived", rule=event.rule, sweep=event.sweep, **counts)
        case events.RowsRestored():
            counts = {
                "rows": event.restored.get(event.table, 0),
                "existing": event.existing,
                "unrestored": event.unrestored,
            }
            log(logging.INFO, f"system/{event.table}_restored", restore=event.restore, into=event.into, **counts)
        case events.ArchiveStep():
            where = {"table": event.table, "rule": event.rule, "state": event.state}
            log(logging.DEBUG, "wane.archive_step", **where, sweep=event.sweep)
        case events.ArchiveColumnChanged():
            types = {"change": event.change, "was": event.was or "", "now": event.now or ""}
            where = {"table": event.table, "column": event.column}
            log(logging.WARNING, "wane.archive_column_changed", **where, **types, sweep=event.sweep)
        case events.ArchiveMaintained():
            counts = {"rows": sum(event.rows.values()), "files": event.files, "bytes": event.bytes}
            log(logging.INFO, "wane.archive_maintained", action=event.action, table=event.table, **counts)
        case events.TableNearThreshold():
            days = "n/a" if event.days is None else round(event.days, 1)
            log(
                logging.WARNING,
                "wane.table_near_threshold",
                table=event.table,
                rows=event.rows,
                threshold=event.threshold,
                reason=event.reason,
                days=days,
            )
        case events.SnapshotTaken():
            seconds = round(event.seconds, 3)
            log(logging.DEBUG, "wane.snapshot_taken", tables=event.tables, counted=event.counted, seconds=seconds)
        case events.HardDeleted():
            log(logging.DEBUG, event.name, table=event.table, rule=event.rule or "", rows=event.rows, audit=event.audit)
        case events.PartitionStep():
            where = {"table": event.table, "step": event.step, "partition": event.partition or ""}
            log(logging.INFO, "wane.partition_step", **where, seconds=round(event.seconds, 3))
        case (
            events.RuleSwept()
            | events.BatchTaken()
            | events.WorkProgressed()
            | events.RowsPruned()
            | events.RowConsumed()
            | events.ArchiveProgress()
        ):
            pass  # Metrics count them; a line for each would drown the others.


@contextmanager
def labelled(**labels: str) -> Iterator[None]:
    """Add facts to every line that is logged meanwhile: the member of a fleet that it is about."""
    token = _LABELS.set(labels)
    try:
        yield
    finally:
        _LABELS.reset(token)


def log(level: int, name: str, **facts: Any) -> None:
    """Log one line."""
    if LOGGER.isEnabledFor(level):
        facts = {"event": name, **(_LABELS.get() or {}), **facts}
        LOGGER.log(level, "%s", _pairs(facts), extra={"wane": facts})


def _name(
    event: events.RuleSwept
    | events.BudgetExhausted
    | events.RuleFailed
    | events.TickFailed
    | events.WorkFailed
    | events.SweepsEnqueued,
    what: str,
) -> str:
    return f"{event.scheduler or UNSCHEDULED}.{what}"


def _level(event: events.TickFailed | events.WorkFailed) -> int:
    """Return the level of a failure: an outage is one error, however many attempts fail while it lasts."""
    return logging.DEBUG if event.repeated else logging.ERROR


def _which(event: events.RuleSwept | events.BudgetExhausted | events.RuleFailed) -> dict[str, str]:
    return {"table": event.table, "rule": event.rule}


def _pairs(facts: dict[str, Any]) -> str:
    return " ".join(f"{key}={_quoted(value)}" for key, value in facts.items())


def _quoted(value: object) -> str:
    text = str(value)
    if text.isprintable() and text and not any(mark in text for mark in ' "=\\'):
        return text
    # As a JSON string: always on one line, with non-ASCII letters unescaped.
    return json.dumps(text, ensure_ascii=False)


# Processes of Wane's own


def configure_logging(level: LogLevel | str = LogLevel.INFO, form: LogFormat | str = LogFormat.TEXT) -> None:
    """Write the records of the logger `wane`, from a level on, to stderr, one line each.

    Calling it again replaces the settings.
    """
    handler = _StderrHandler(LogFormat(form))
    for other in [one for one in LOGGER.handlers if isinstance(one, _StderrHandler)]:
        LOGGER.removeHandler(other)
    LOGGER.addHandler(handler)
    LOGGER.setLevel(LogLevel(level).name)


class _StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to the current stderr: a progress bar may have replaced it."""

    def __init__(self, form: LogFormat) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(_Formatter(form))

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        raise AttributeError("log lines go to stderr")


class _Formatter(logging.Formatter):
    """One line for each record: time, level, and the facts, or the message where there are no facts."""

    def __init__(self, form: LogFormat) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")
        facts = {"time": f"{at}Z", "level": record.levelname.lower()}
        facts |= getattr(record, "wane", None) or {"logger": record.name, "message": record.getMessage()}
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return json.dumps(facts, default=str) if self._form is LogFormat.JSON else _pairs(facts)
