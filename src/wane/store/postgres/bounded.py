"""A connection that does not wait for ever: a server may stop, or vanish behind a proxy, without anybody saying so.

Limits of the server (statement_timeout and its kin) do not help there, and neither do keepalives, as long as something answers them.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg

Waiting = Generator[Any, Any, Any]


class BoundedConnection(psycopg.Connection[tuple[Any, ...]]):
    """Gives itself up when the server has said nothing for `answer_seconds`; None: never."""

    answer_seconds: float | None = None

    def wait(self, gen: Waiting, *arguments: Any, **options: Any) -> Any:
        if self.answer_seconds is not None:
            gen = self._within(gen, self.answer_seconds)
        return super().wait(gen, *arguments, **options)

    def _within(self, gen: Waiting, seconds: float) -> Waiting:
        """The same steps; they end with an error if nothing comes for so long."""
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                now = time.monotonic()
                if ready:
                    heard = now
                elif now - heard > seconds:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"the server has said nothing for {seconds:g} seconds")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value
