"""Races wait for each other as long as they must, unless a test is about not waiting."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from wane._db.postgres import transaction


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let batches on PostgreSQL wait for locks for longer, so that a slow machine does not turn one race into
    another."""

    def wait(longest: str = "20s") -> None:
        monkeypatch.setitem(transaction.LOCAL_SETTINGS, "lock_timeout", longest)

    wait()
    return wait
