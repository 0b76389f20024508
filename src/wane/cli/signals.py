"""Ctrl-C and SIGTERM: long work stops between two steps, and the shell hears why it ended."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import typer

from wane.cli.output import say


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
def stopping(*, between: str = "") -> Iterator[Stop]:
    """Catch both signals for as long as the work lasts.

    Work that goes on until a signal comes names what it stops between: the signal is acknowledged, and a second one ends the process at
    once, which is safe because every batch is one transaction.
    """
    stop = Stop()

    def catch(sign: int, _: object) -> None:
        if between and stop.signals:
            os._exit(128 + sign)
        stop.signals.append(sign)
        stop.event.set()  # Before anything is printed: the reader may send the second signal at once.
        if between:
            say(f"stopping at the next {between}")

    before = {sign: signal.signal(sign, catch) for sign in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for sign, handler in before.items():
            signal.signal(sign, handler)
