"""How a loop retries after a failure: it waits, longer each time, and never for ever."""

from __future__ import annotations

import random
import threading

_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 30.0


class Backoff:
    """The pauses of one loop.

    Half of each is random, so that processes that failed together do not retry together.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._failures = 0

    def succeeded(self) -> None:
        self._failures = 0

    def failed(self) -> None:
        """Wait before a retry, unless a stop is requested."""
        self._stop.wait(self.pause_seconds())

    def pause_seconds(self) -> float:
        """Compute the wait after one more failure."""
        pause: float = min(_FIRST_SECONDS * 2**self._failures, _LONGEST_SECONDS)
        self._failures = min(self._failures + 1, 16)
        return pause * (0.5 + random.random() / 2)
