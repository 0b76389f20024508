"""The pace of a sweep: batches as large as fit a target time, and a pause after each, to protect the application."""

from __future__ import annotations

from dataclasses import dataclass

from wane.contract.model import SweepSettings


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

    def next_batch(self, batch: int, seconds: float) -> int:
        """Compute the size of the next batch: towards the target, at most doubled or halved."""
        ratio = self.target_seconds / max(seconds, 1e-6)
        return round(min(max(batch * min(max(ratio, 0.5), 2.0), self.least_batch), self.most_batch))

    def pause_seconds(self, seconds: float) -> float:
        """Compute the pause after a batch that took `seconds`."""
        return min(seconds * (1 / self.duty - 1), self.most_pause_seconds)


FAST = Pace(target_seconds=0.05, duty=1.0)
"""No pauses: for maintenance windows and tests."""
