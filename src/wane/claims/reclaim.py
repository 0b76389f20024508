"""Whether finished work may be claimed again: a policy that somebody chose, and never a side effect of pruning.

What is remembered is decided when work is finished, by the policy of whoever finishes it, and written with the row. So the answer is the
same whether the row is still there, was pruned a moment ago, or its tombstone waits to be swept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from wane.claims.arguments import require_window
from wane.claims.model import Finished
from wane.errors import WrongArgumentType

Callback = Callable[[Finished], bool]


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Use `Reclaim.never()`, `.always()`, `.after(timedelta)` or `.by(callback)`."""

    kind: str
    window: timedelta | None = None
    """A cool-down, or how long `never` and `by` remember; None: for ever."""
    callback: Callback | None = None

    @classmethod
    def never(cls, *, remember: timedelta | None = None) -> Self:
        """Finished work stays finished: for ever, or as long as it is to be remembered."""
        return cls("never", None if remember is None else require_window(remember, "remember"))

    @classmethod
    def always(cls) -> Self:
        """Finished work may be claimed again at once. Nothing is remembered."""
        return cls("always")

    @classmethod
    def after(cls, cooldown: timedelta) -> Self:
        """Finished work may be claimed again so long after it was finished, and is remembered until then."""
        return cls("after", require_window(cooldown, "cooldown"))

    @classmethod
    def by(cls, callback: Callback, *, remember: timedelta | None = None) -> Self:
        """A function decides each time, for as long as the work is remembered.

        It runs inside the transaction of the claim, so it should be quick.
        """
        if not callable(callback):
            raise WrongArgumentType(f"a function is needed, not {callback!r}")
        return cls("by", None if remember is None else require_window(remember, "remember"), callback)

    def remembered_until(self, finished_at: datetime) -> datetime | None:
        """How long work that is finished now counts as finished. None: for ever."""
        if self.kind == "always":
            return finished_at
        return None if self.window is None else _add(finished_at, self.window)

    def allows(self, finished: Finished, now: datetime) -> bool:
        """Whether finished work may be claimed again now."""
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
        """When work that may not be claimed again now may be, as far as that is known."""
        if self.kind != "after" or self.window is None:
            return finished.remembered_until
        if finished.finished_at is None:
            return finished.remembered_until  # Of unknown age: it stays finished until it is forgotten.
        cooled = _add(finished.finished_at, self.window)
        return cooled if finished.remembered_until is None else min(cooled, finished.remembered_until)


def _add(moment: datetime, window: timedelta) -> datetime:
    """A row may have been finished, so it says, in the year 9999."""
    try:
        return moment + window
    except OverflowError:
        return moment
