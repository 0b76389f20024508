"""Progress of long work: how much is done, of how much, at which rate, and how long it still takes.

On a terminal it is one line that changes; elsewhere a line every ten seconds. Every command that takes long uses it,
and it reads only events.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn

from wane._cli.output import console, many, print_line
from wane._db.counting import as_count, stated
from wane._formats import seconds_text
from wane.events import (
    ArchiveProgress,
    ArchiveStep,
    BatchTaken,
    Event,
    Listener,
    SlowedDown,
    WorkProgressed,
)
from wane.observe._logs import log

PERIOD_SECONDS = 10.0
"""How often a line is written where there is no terminal."""
_STEPS = {"planned": "copying", "written": "reading back"}
"""What the archive does after a state."""


@dataclass(slots=True)
class MeasuredWork:
    """One piece of work: its units done so far, of how many."""

    work: str
    table: str
    rule: str | None
    unit: str
    of: int | None
    exact: bool
    began: float
    done: int = 0
    resumed_at: int = 0
    """The units that were done before this process began."""

    @property
    def name(self) -> str:
        return self.table if self.rule is None else f"{self.table}.{self.rule}"

    def rate(self, now: float) -> float | None:
        """Return units a second; None if nothing was done yet."""
        done, seconds = self.done - self.resumed_at, now - self.began
        return done / seconds if done > 0 and seconds > 0 else None

    def seconds_left(self, now: float) -> float | None:
        """Return how long the rest takes at this rate; None if that is unknown."""
        rate = self.rate(now)
        return None if self.of is None or rate is None else max(self.of - self.done, 0) / rate

    def text(self, now: float) -> str:
        """Format it: `jobs.done: sweep, 1,200 of 4,800 rows (25%), 400 rows a second, 9 s left`."""
        rate, left = self.rate(now), self.seconds_left(now)
        parts = [f"{self.name}: {self.work}"]
        if self.of is None:
            parts.append(many(self.done, self.unit))
        else:
            sign, share = "" if self.exact else "~", f" ({min(self.done / self.of, 1):.0%})" if self.of else ""
            parts.append(f"{self.done:,} of {sign}{many(self.of, self.unit)}{share}")
        if rate is not None:
            parts.append(
                f"{rate:,.0f} {self.unit}s a second" if rate >= 1 else f"{rate * 60:.1f} {self.unit}s a minute"
            )
        if left:
            parts.append(f"{seconds_text(left)} left")
        return ", ".join(parts)


class ProgressMeter:
    """Measures the work that events report."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.work: MeasuredWork | None = None

    def on_event(self, event: Event) -> MeasuredWork | None:
        """Return the work that an event is about, measured; None if it is about none."""
        match event:
            case WorkProgressed():
                self._set(event.work, event.table, event.rule, event.unit, event.done, event.of, exact=event.exact)
            case ArchiveProgress():
                self._set(_STEPS.get(event.state, event.state), event.table, event.rule, "piece", event.done, event.of)
            case ArchiveStep(state="committed"):
                rows = event.archived.get(event.table)
                self._set("evicting", event.table, event.rule, "row", 0, rows)
            case BatchTaken():
                work = self.work
                if work is None or (work.table, work.rule, work.unit) != (event.table, event.rule, "row"):
                    work = self._set(event.action, event.table, event.rule, "row", 0, None)
                work.done += event.counts.get(event.table, 0)
            case _:
                return None
        return self.work

    def _set(
        self, work: str, table: str, rule: str | None, unit: str, done: int, of: int | None, *, exact: bool = True
    ) -> MeasuredWork:
        known = self.work
        same = known is not None and (known.work, known.table, known.rule, known.unit) == (work, table, rule, unit)
        if known is None or not same or done < known.done:
            known = self.work = MeasuredWork(work, table, rule, unit, of, exact, self.clock(), done, done)
        known.done, known.of, known.exact = done, of, exact
        return known


@contextmanager
def show_progress(*, as_json: bool, as_log: bool) -> Iterator[Listener]:
    """Yield a listener that shows the progress of work; finished steps and delays remain on the screen.

    `as_json`: nothing but JSON may be printed. `as_log`: log lines are written, and progress is one of them.
    """
    out = console(stderr=True)
    shown = out.is_terminal and not as_json
    columns = SpinnerColumn(), TextColumn("{task.description}")
    meter, reporter = ProgressMeter(), PeriodicReporter(as_log=as_log)
    with Progress(*columns, console=out, transient=True, disable=not shown) as progress:
        task = progress.add_task("working", total=None)

        def listener(event: Event) -> None:
            work = meter.on_event(event)
            if work is not None and shown:
                progress.update(task, description=escape(work.text(meter.clock())))
            elif work is not None:
                reporter.report(work, meter.clock())
            note = _note(event)
            if note and shown:
                progress.console.print(note, soft_wrap=True)
            elif note and not as_json:
                print_line(note)

        yield listener


def _note(event: Event) -> str:
    """Return a line that stays on the screen: a step that is done, or why work is slow."""
    match event:
        case ArchiveStep():
            text = f"{event.table}.{event.rule}: sweep {event.sweep} is {event.state} ({event.seconds:.1f} s)"
            return f"[dim]{escape(text)}[/]"
        case SlowedDown():
            return f"[yellow]{escape(f'{event.table}.{event.rule}: {event.cause}')}[/]"
        case _:
            return ""


class PeriodicReporter:
    """Writes the progress of work as a line now and then: a log line, or one for people."""

    def __init__(self, *, as_log: bool) -> None:
        self._as_log = as_log
        self._reported: float | None = None

    def report(self, work: MeasuredWork, now: float) -> None:
        """Write a line, if the last one, or the beginning, is long enough ago."""
        if self._reported is None:
            self._reported = now
        if now - self._reported < PERIOD_SECONDS:
            return
        self._reported = now
        if not self._as_log:
            print_line(escape(work.text(now)))
            return
        rate, left = work.rate(now), work.seconds_left(now)
        log(
            logging.INFO,
            "wane.progress",
            work=work.work,
            table=work.table,
            rule=work.rule or "",
            done=work.done,
            **stated("of", as_count(work.of, exact=work.exact)),
            unit=work.unit,
            per_second=None if rate is None else round(rate, 1),
            seconds_left=None if left is None else round(left, 1),
        )
