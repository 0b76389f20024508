"""The pace of a sweep: batches as large as fit a target time, and a pause after each, to protect the application."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median

from wane._contract.settings import SweepSettings


@dataclass(frozen=True, slots=True)
class Pace:
    """The settings. A duty of 0.1 means: working for a tenth of the time."""

    target_seconds: float = 0.005
    duty: float = 0.1
    first_batch: int = 500
    least_batch: int = 50
    most_batch: int = 20_000
    most_pause_seconds: float = 2.0

    @classmethod
    def of(cls, settings: SweepSettings) -> Pace:
        """Return the pace that a contract sets."""
        return cls(target_seconds=settings.batch_ms / 1000, duty=settings.duty)

    def next_batch(self, batch: int, seconds: float, fixed: float = 0.0) -> int:
        """Compute the size of the next batch: towards the target, at most doubled or halved.

        `fixed` is the part of `seconds` that a smaller batch would take too. Where it is most of the target, a batch
        may take twice as long as it: more and smaller batches would lock rows for longer in all.
        """
        allowed = max(self.target_seconds, 2 * fixed)
        ratio = (allowed - fixed) / max(seconds - fixed, 1e-6)
        return round(min(max(batch * min(max(ratio, 0.5), 2.0), self.least_batch), self.most_batch))

    def pause_seconds(self, seconds: float) -> float:
        """Compute the pause after a batch that took `seconds`."""
        return min(seconds * (1 / self.duty - 1), self.most_pause_seconds)


@dataclass(frozen=True, slots=True)
class BatchCosts:
    """The rows and seconds of the latest batches, to learn what a batch costs whatever its size."""

    _batches: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=8))

    def add(self, rows: int, seconds: float) -> None:
        """Add a batch that changed rows."""
        if rows:
            self._batches.append((rows, seconds))

    def fixed_seconds(self) -> float:
        """Estimate the cost of a batch without rows: the line through the batches, by medians, where it has no rows.

        One batch in four may be an outlier, such as one that waited for a lock. Zero until batches of different sizes
        were seen.
        """
        slopes = [(b - a) / (m - n) for (n, a), (m, b) in combinations(self._batches, 2) if n != m]
        if not slopes:
            return 0.0
        per_row = max(median(slopes), 0.0)
        return max(median(seconds - per_row * rows for rows, seconds in self._batches), 0.0)


FAST = Pace(target_seconds=0.05, duty=1.0)
"""No pauses: for maintenance windows and tests."""
