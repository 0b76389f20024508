"""Work claims that are never claimed again once finished, on each store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from claims.working import working
from servers import Database
from wane.claims import WorkClaims


@pytest.fixture
def claims(database: Database) -> Iterator[WorkClaims]:
    with working(database) as opened:
        yield opened
