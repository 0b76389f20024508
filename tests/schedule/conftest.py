"""A clock that tests move."""

from __future__ import annotations

import pytest

from races.conftest import patient as patient
from schedule.scheduling import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the database's clock, which stands still until it is moved."""
    return Clock(monkeypatch)
