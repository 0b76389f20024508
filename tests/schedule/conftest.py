"""A clock that tests move."""

from __future__ import annotations

import pytest

from races.conftest import patient as patient
from schedule.scheduling import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The database's clock, standing still until it is reported."""
    return Clock(monkeypatch)
