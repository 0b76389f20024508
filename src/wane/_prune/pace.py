"""The pace of a sweep: batches as large as fit a target time, and a pause after each, to protect the application.

While no other process uses the database there is none to protect, and pauses are short: long enough to notice others.
Pauses shrink over half a second without other activity, and grow at the first transaction of another process. Beside
others a sweep works a fifth of its duty, in batches a fifth as long; where one connection writes at a time, a fortieth
of it beside other writers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import field, replace
from itertools import combinations
from statistics import median

from wane._contract.settings import Budget, SweepSettings
from wane._frozen import frozen
from wane._ledger import SweepCost

_MOST_FORESEEN = 10_000
"""Batches that are foreseen one by one."""
_LEAST_APART = 0.01
"""Sweeps whose batches are more alike in size than this do not separate fixed costs from costs per row."""

_NO_OTHER_USERS = 9
"""How many times the duty a sweep works while no one else uses the database."""
_NO_OTHER_WRITERS = 8
"""The same where one connection writes at a time: an application that writes rarely tries until it meets a pause, and
waits longer between its tries each time."""
_QUIET_SECONDS = 0.5
"""No other user is assumed if nothing was seen for this long."""
_BESIDE_WRITERS = 40
"""How many times less a sweep works beside others where one connection writes at a time: a batch makes the
application's next write wait, and most of the slowest hundredth of its writes are already those that move the
write-ahead log into the database. So there is one batch for some hundred writes, not one for ten."""
_BESIDE_OTHERS = 5
"""How many times less a sweep works beside others where several connections write at a time, and how many times shorter
its batches are. What meets a batch does not wait for it, but shares processors and the write-ahead log with it: so few
statements meet a batch, and one that does is delayed by no more than such statements differ anyway."""
_LEAST_RATIO = 0.5
"""A sweep that deviates further from the others, by half or twice, was an exception."""


@frozen
class Pace:
    """The settings. What share of the time a duty allows depends on who else uses the database: see `after_quiet`."""

    target_seconds: float = 0.005
    duty: float = 0.1
    first_batch: int = 500
    least_batch: int = 50
    most_batch: int = 20_000
    most_growth: float = 2.0
    """How many times as large as a batch the next one may be."""
    most_pause_seconds: float = 2.0
    connections: int = 1
    """How many connections work at this pace at a time; beside others, each has its part of the time."""

    @classmethod
    def of(cls, settings: SweepSettings) -> Pace:
        """Return the pace that a contract sets."""
        return cls(target_seconds=settings.batch_ms / 1000, duty=settings.duty)

    def next_batch(self, batch: int, seconds: float, fixed: float = 0.0) -> int:
        """Compute the size of the next batch: towards the target, by its growth at most, or halved.

        `fixed` is the part of `seconds` that a smaller batch would take too. Where it is most of the target, a batch
        may take twice as long as it: more and smaller batches would lock rows for longer in all.
        """
        allowed = max(self.target_seconds, 2 * fixed)
        ratio = (allowed - fixed) / max(seconds - fixed, 1e-6)
        return round(min(max(batch * min(max(ratio, 0.5), self.most_growth), self.least_batch), self.most_batch))

    @property
    def pauses(self) -> bool:
        """Return whether there is a pause after a batch."""
        return self.duty < 1

    def when_idle(self, *, one_writer: bool = False) -> Pace:
        """Return the pace while no one else uses the database."""
        return self.after_quiet(_QUIET_SECONDS, one_writer=one_writer)

    def after_quiet(self, seconds: float, *, one_writer: bool = False) -> Pace:
        """Return the pace when no one else has used the database for some seconds.

        An application that uses it rarely meets a sweep that works for less of the time the more often it does. Where
        there is none to protect, each of several connections works as one does.
        """
        share = min(seconds / _QUIET_SECONDS, 1.0)
        beside = self.duty / self.connections / (_BESIDE_WRITERS if one_writer else _BESIDE_OTHERS)
        idle = self.duty * (_NO_OTHER_WRITERS if one_writer else _NO_OTHER_USERS)
        shortest = self.target_seconds / (1 if one_writer else _BESIDE_OTHERS)
        return replace(
            self,
            duty=min(beside + (idle - beside) * share, 1.0),
            target_seconds=shortest + (self.target_seconds - shortest) * share,
        )

    def pause_seconds(self, seconds: float) -> float:
        """Compute the pause after a batch that took `seconds`."""
        longest = (seconds + self.most_pause_seconds) * self.connections - seconds
        return min(seconds * (1 / self.duty - 1), longest)


_REMEMBERED_BATCHES = 8
_ASSUMED_FIXED = 0.6
"""The fixed part of what batches cost that were all of one size: high enough for the next one to be larger by half."""


@frozen
class BatchCosts:
    """The rows and seconds of the latest batches, to learn what a batch costs whatever its size."""

    _batches: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))

    def add(self, rows: int, seconds: float) -> None:
        """Add a batch that changed rows."""
        if rows:
            self._batches.append((rows, seconds))

    def fixed_seconds(self, target_seconds: float) -> float:
        """Estimate the cost of a batch without rows: the line through the batches, by medians, where it has no rows.

        One batch in four may be an outlier, such as one that waited for a lock. Zero until batches of different sizes
        were seen. Where all of the remembered ones are alike and take longer than their target, most of that is
        assumed to be fixed, so that the next one is larger: a series of slow batches would otherwise leave a sweep with
        the smallest ones for good, whatever a row costs.
        """
        slopes = [(b - a) / (m - n) for (n, a), (m, b) in combinations(self._batches, 2) if n != m]
        if not slopes:
            usual = median(seconds for _, seconds in self._batches) if self._batches else 0.0
            alike = len(self._batches) == _REMEMBERED_BATCHES and usual > target_seconds
            return usual * _ASSUMED_FIXED if alike else 0.0
        per_row = max(median(slopes), 0.0)
        return max(median(seconds - per_row * rows for rows, seconds in self._batches), 0.0)


@frozen
class Costs:
    """What batches of a rule cost: some seconds each, and some for every row."""

    fixed_seconds: float
    row_seconds: float

    def of(self, rows: int, batches: int = 1) -> float:
        """Return the seconds that some batches take."""
        return self.fixed_seconds * batches + self.row_seconds * rows


@frozen
class Foreseen:
    """How a sweep will go: what it takes until nothing is due, or until a budget is spent."""

    rows: int
    seconds: float
    spent: str
    """The budget that ends it: "rows", "seconds" or "batches"; "" if it takes everything."""


def foresee(pace: Pace, costs: Costs, rows: int, budget: Budget, besides: float = 1.0) -> Foreseen:
    """Foresee a sweep of a rule with `rows` rows to take, followers included: batch by batch, with its pauses.

    A batch lasts `besides` times as long as it works.
    """
    size, taken, seconds, batches = pace.first_batch, 0, 0.0, 0
    while True:
        batch = min(size, rows - taken, budget.rows - taken)
        worked = costs.of(batch)
        taken, seconds, batches = taken + batch, seconds + worked * besides, batches + 1
        if taken >= rows:
            return Foreseen(taken, seconds, "")
        seconds += pace.pause_seconds(worked * besides)
        if taken >= budget.rows:
            return Foreseen(taken, seconds, "rows")
        if batches >= budget.batches:
            return Foreseen(taken, seconds, "batches")
        if seconds >= budget.seconds:
            return Foreseen(taken, seconds, "seconds")
        if batches >= _MOST_FORESEEN:  # From here on, all batches are alike.
            return Foreseen(rows, seconds / taken * rows, "")
        size = pace.next_batch(size, worked, costs.fixed_seconds)


def learn_costs(sweeps: Sequence[SweepCost]) -> tuple[Costs, Costs] | None:
    """Learn what batches cost from earlier sweeps: the lowest and the highest costs that explain them; None if none.

    Sweeps whose batches were of different sizes separate fixed costs from costs per row, by least squares; how far
    the sweeps deviate from that gives the range. Otherwise all of the cost may be by row, or half of it fixed.
    """
    if not sweeps:
        return None
    rows, batches = sum(one.rows for one in sweeps), sum(one.batches for one in sweeps)
    seconds = sum(one.seconds for one in sweeps)
    fitted = _fit(sweeps)
    if fitted is None:
        return Costs(seconds / batches / 2, seconds / rows / 2), Costs(0.0, seconds / rows)
    ratios = [one.seconds / max(fitted.of(one.rows, one.batches), 1e-9) for one in sweeps]
    low, high = (min(max(ratio, _LEAST_RATIO), 1 / _LEAST_RATIO) for ratio in (min(ratios), max(ratios)))
    return (
        Costs(fitted.fixed_seconds * low, fitted.row_seconds * low),
        Costs(fitted.fixed_seconds * high, fitted.row_seconds * high),
    )


def _fit(sweeps: Sequence[SweepCost]) -> Costs | None:
    """Fit seconds = fixed × batches + row × rows by least squares, neither below zero; None if that is undetermined."""
    bb, rr, br = (
        float(sum(values))
        for values in zip(*((s.batches**2, s.rows**2, s.batches * s.rows) for s in sweeps), strict=True)
    )
    bs, rs = sum(s.batches * s.seconds for s in sweeps), sum(s.rows * s.seconds for s in sweeps)
    apart = bb * rr - br * br
    if apart < _LEAST_APART * bb * rr:
        return None
    fixed, row = (bs * rr - rs * br) / apart, (rs * bb - bs * br) / apart
    if fixed < 0:
        return Costs(0.0, rs / rr)
    return Costs(bs / bb, 0.0) if row < 0 else Costs(fixed, row)


FAST = Pace(target_seconds=0.1, duty=1.0, most_batch=100_000, most_growth=10.0)
"""No pauses: for maintenance windows and tests. Batches are larger, because each one writes the pages of indexes
anew, and soon so, because there is no other user whom a large one could surprise."""
