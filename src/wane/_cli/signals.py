"""SIGINT and SIGTERM: long work stops between two steps, and the exit code names the signal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from wane._cli.output import print_line


@dataclass(frozen=True)
class Stop:
    """A request to stop, and the signals that made it."""

    event: threading.Event = field(default_factory=threading.Event)
    signals: list[int] = field(default_factory=list)

    @contextmanager
    def catch_signals(self, unit: str, *, twice: bool = False) -> Iterator[None]:
        """Set the event on a signal, and acknowledge it: the work stops after the current unit (batch, step).

        With `twice` a second signal ends the process at once, which is safe because every batch is one transaction.
        """

        def catch(number: int, _: object) -> None:
            if twice and self.signals:
                os._exit(128 + number)
            self.signals.append(number)
            self.event.set()  # Before anything is printed: the reader may send the second signal at once.
            if len(self.signals) == 1:
                with suppress(RuntimeError):  # The signal interrupted a write to the same stream.
                    print_line(f"stopping after the current {unit}")

        before = {number: signal.signal(number, catch) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
