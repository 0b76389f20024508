"""Whether finished work may be claimed again: an explicit policy, and never a side effect of pruning.

How long work is remembered is decided when it is finished, by the policy of the finishing process, and stored with the
row. So the result is the same whether the row is still there, was just pruned, or its tombstone waits to be swept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from wane.claims._arguments import require_window
from wane.claims._model import Finished
from wane.errors import WrongArgumentType

Callback = Callable[[Finished], bool]


@dataclass(frozen=True, slots=True)
class Reclaim:
    """A policy, built with `Reclaim.never()`, `.always()`, `.after(timedelta)` or `.by(callback)`."""

    kind: str
    window: timedelta | None = None
    """A cool-down, or how long `never` and `by` remember; None: forever."""
    callback: Callback | None = None

    @classmethod
    def never(cls, *, remember: timedelta | None = None) -> Self:
        """Build a policy under which finished work stays finished: forever, or for `remember`."""
        return cls("never", None if remember is None else require_window("remember", remember))

    @classmethod
    def always(cls) -> Self:
        """Build a policy under which finished work may be claimed again at once. Nothing is remembered."""
        return cls("always")

    @classmethod
    def after(cls, cooldown: timedelta) -> Self:
        """Build a policy under which finished work is remembered for a cool-down, and may then be claimed again."""
        return cls("after", require_window("cooldown", cooldown))

    @classmethod
    def by(cls, callback: Callback, *, remember: timedelta | None = None) -> Self:
        """Build a policy under which a function decides each time, for as long as the work is remembered.

        It runs inside the transaction of the claim, so it should be quick.
        """
        if not callable(callback):
            raise WrongArgumentType(f"a function is needed, not {callback!r}")
        return cls("by", None if remember is None else require_window("remember", remember), callback)

    def remembered_until(self, finished_at: datetime) -> datetime | None:
        """Return until when work that is finished now counts as finished; None: forever."""
        if self.kind == "always":
            return finished_at
        return None if self.window is None else _add(finished_at, self.window)

    def allows(self, finished: Finished, now: datetime) -> bool:
        """Check whether finished work may be claimed again now."""
        if finished.remembered_until is not None and finished.remembered_until <= now:
            return True
        if self.kind == "after":
            until = self.until(finished)
            return until is not None and until <= now
        if self.callback is not None:
            answer = self.callback(finished)
            if not isinstance(answer, bool):
                raise WrongArgumentType(f"the function of Reclaim.by answered {answer!r}, not True or False")
            return answer
        return self.kind == "always"

    def until(self, finished: Finished) -> datetime | None:
        """Return when work that may not be claimed now may be claimed again; None if that is unknown or never."""
        if self.kind != "after" or self.window is None:
            return finished.remembered_until
        if finished.finished_at is None:
            return finished.remembered_until  # Of unknown age: it stays finished as long as it is remembered.
        cooled = _add(finished.finished_at, self.window)
        return cooled if finished.remembered_until is None else min(cooled, finished.remembered_until)


def _add(time: datetime, window: timedelta) -> datetime:
    """Add a window to a time; return the time itself on overflow: a row may claim to be finished in the year 9999."""
    try:
        return time + window
    except OverflowError:
        return time
