"""Structured log lines for what operators must see, under the names that their dashboards know.

`<scheduler>.lifecycle_pruned`, one per sweep that removed rows; `<scheduler>.lifecycle_tick_failed`, one per failed attempt;
`<scheduler>.lifecycle_prune_budget_exhausted`. They go to the standard library's logger `wane`; the facts are in each record's `wane` attribute
and, as key=value, in its message.
"""

from __future__ import annotations

import logging
from typing import Any

from wane.events import BudgetExhausted, Event, RuleFailed, RuleSwept, SlowedDown

LOGGER = logging.getLogger("wane")
UNSCHEDULED = "wane"
"""Stands for the scheduler where a table has none."""


def log_event(event: Event) -> None:
    """A listener that logs."""
    if isinstance(event, RuleSwept):
        if event.action == "prune" and any(event.counts.values()):
            _log(logging.INFO, f"{_scheduler(event)}.lifecycle_pruned", event, rows=sum(event.counts.values()))
    elif isinstance(event, RuleFailed):
        _log(logging.ERROR, f"{_scheduler(event)}.lifecycle_tick_failed", event, error=event.error)
    elif isinstance(event, BudgetExhausted):
        name = f"{_scheduler(event)}.lifecycle_prune_budget_exhausted"
        _log(logging.WARNING, name, event, spent=event.spent)
    elif isinstance(event, SlowedDown):
        _log(logging.INFO, "wane.slowed_down", event, cause=event.cause)


def _scheduler(event: RuleSwept | RuleFailed | BudgetExhausted) -> str:
    return event.scheduler or UNSCHEDULED


def _log(level: int, name: str, event: RuleSwept | RuleFailed | BudgetExhausted | SlowedDown, **facts: Any) -> None:
    facts = {"event": name, "table": getattr(event, "label", event.table), "rule": event.rule, **facts}
    text = " ".join(f"{key}={_quoted(value)}" for key, value in facts.items())
    LOGGER.log(level, "%s", text, extra={"wane": facts})


def _quoted(value: object) -> str:
    text = str(value)
    if text and not any(mark in text for mark in ' "=\n\t'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'
