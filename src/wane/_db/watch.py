"""Waiting for commits of others: a queue wakes its consumers by them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Watch(ABC):
    """Notices commits that a reader may wait for. It may notice too much, and in rare cases late."""

    @abstractmethod
    def read(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        """Run a statement that changes nothing."""

    @abstractmethod
    def wait(self, seconds: float) -> None:
        """Return as soon as something was noticed, at the latest after `seconds`."""

    @abstractmethod
    def close(self) -> None:
        """Close its connection."""
