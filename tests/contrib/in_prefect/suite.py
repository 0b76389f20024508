"""Prefect's own test suite for cleanup queues, as it was installed, over the database of `WANE_PREFECT_URL`."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import inspect
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prefect.testing.standard_test_suites import WorkerCleanupQueueStandardTestSuite

from wane._db import open_store
from wane._db.url import resolve_url
from wane.contrib.prefect import URL_VARIABLE, WorkerCleanupQueue
from wane.queue._dialects import messages_of


class Clock:
    """A clock that stands still until it is reported."""

    def __init__(self) -> None:
        self.current = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.current

    def advance(self, duration: timedelta) -> None:
        self.current += duration


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def queue(clock: Clock) -> AsyncIterator[WorkerCleanupQueue]:
    with open_store(resolve_url(URL_VARIABLE)) as store, store.transaction() as transaction:
        transaction.execute(f"DELETE FROM {messages_of(store).table}", {})
    made = WorkerCleanupQueue(clock=clock)
    yield made
    await made.close()


class TestWorkerCleanupQueue(WorkerCleanupQueueStandardTestSuite):
    """All of it, and nothing else."""


def test_the_suite_is_as_it_was_published() -> None:
    source = Path(inspect.getfile(WorkerCleanupQueueStandardTestSuite))
    [entry] = [
        one
        for one in importlib.metadata.files("prefect") or ()
        if one.name == source.name and "standard_test_suites" in one.parts
    ]
    assert Path(str(entry.locate())).samefile(source)
    assert entry.hash is not None
    digest = hashlib.new(entry.hash.mode, source.read_bytes()).digest()
    assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == entry.hash.value
