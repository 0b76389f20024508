"""Ctrl-C and SIGTERM: long work stops between two steps, and the shell hears why it ended."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import typer


@dataclass(frozen=True)
class Stop:
    """What a signal asks of long work, and which signals came."""

    event: threading.Event = field(default_factory=threading.Event)
    signals: list[int] = field(default_factory=list)

    def end(self, *, failed: bool = False) -> None:
        """End the command with its exit code, if it is not 0."""
        if failed:
            raise typer.Exit(1)
        if self.signals:
            # What was asked for was not done to the end, and shells know these codes.
            raise typer.Exit(128 + self.signals[0])


@contextmanager
def stopping() -> Iterator[Stop]:
    """Catch both signals for as long as the work lasts."""
    stop = Stop()

    def catch(sign: int, _: object) -> None:
        stop.signals.append(sign)
        stop.event.set()

    before = {sign: signal.signal(sign, catch) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
