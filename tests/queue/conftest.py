"""A migrated store on every database, and a queue whose clock the test holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queueing import Clock, opened
from servers import Database
from wane._db import Store
from wane.queue import Queue


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(database: Database) -> Iterator[Store]:
    with opened(database) as store:
        store.migrate()
        yield store


@pytest.fixture
def queue(store: Store, clock: Clock) -> Iterator[Queue]:
    made = Queue(store, "pool", clock=clock)
    yield made
    made.close()
