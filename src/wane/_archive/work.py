"""What all work on archived rows has: a contract, its store, and how the work runs, stops and is reported.

It needs none of the archive's libraries, as the archive inside the database does not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Self

from wane._contract.model import Contract
from wane._db import Store
from wane._db.transaction import Transaction
from wane._prune.pace import Pace
from wane.events import Listener, ignore_event


@dataclass(frozen=True, slots=True)
class ArchiveWork:
    """Work on archived rows of one contract's tables."""

    store: Store
    contract: Contract
    actor: str
    listener: Listener = ignore_event
    stop: threading.Event = field(default_factory=threading.Event)
    """Set to stop at the next batch."""
    fence: Callable[[Transaction], None] = lambda _: None
    """Called inside every transaction that deletes rows; raises if another process may work by now."""
    custom_pace: Pace | None = None

    @classmethod
    def of(cls, work: ArchiveWork) -> Self:
        """Return the same, as one kind of work."""
        return cls(*(getattr(work, one.name) for one in fields(ArchiveWork)))

    @property
    def pace(self) -> Pace:
        return self.custom_pace or Pace.of(self.contract.sweep)
