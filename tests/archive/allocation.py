"""How many objects of Python some work makes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def most_allocated(work: Callable[[], object]) -> int:
    """Return how many blocks of memory more than before Python's objects have at the most while some work is done."""
    began = most = sys.getallocatedblocks()

    def traced(*_: Any) -> Any:
        nonlocal most
        most = max(most, sys.getallocatedblocks())
        return traced

    sys.setprofile(traced)
    try:
        work()
    finally:
        sys.setprofile(None)
    return most - began
