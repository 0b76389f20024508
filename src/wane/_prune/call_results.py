"""Several batches of a sweep in one call: what it returns, and whether a call may take more than one."""

from __future__ import annotations

from wane._frozen import frozen
from wane._prune.take import CapEdge, Position

MOST_SECONDS = 0.05
"""After this long, a call begins no further batch: a sweep stops between two calls."""
_STEADY_CALLS = 1
"""How many batches in a row were about as large as the one before them before a call may take several: while sizes
still double, each is a call of its own."""
_STEADY_SIZES = (0.6, 1.6)


@frozen
class CalledBatch:
    """A batch that a call took."""

    counts: dict[str, int]
    seconds: float


@frozen
class CalledBatches:
    """The batches of one call, in their order."""

    audit_id: int
    """The number of the audit row that they were added to, or that the first of them wrote."""
    batches: list[CalledBatch]
    floor: Position | None
    """Where the last one ended."""
    done: bool
    """No row was due behind it."""
    edge: CapEdge | None = None
    """Where the cap's edge is, if the next batch may rely on it."""


class BatchSizes:
    """The sizes of the latest batches: a call takes several only where these stay about the same."""

    def __init__(self) -> None:
        """Begin without any."""
        self._limit, self._steady = 0, 0

    def are_steady(self, limit: int) -> bool:
        """Add a size; return whether batches have been about as large as this one for some time."""
        least, most = (ratio * self._limit for ratio in _STEADY_SIZES)
        self._steady = self._steady + 1 if least <= limit <= most else 0
        self._limit = limit
        return self._steady >= _STEADY_CALLS
