"""Databases for the archive, and one Spark session for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from archive import inline
from archive.object_server import ObjectServer, object_server
from conftest import migrated
from servers import Database, SqliteDatabase

MARKS = ("on_spark", "frames_on_spark", "cluster")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Send all tests here that need Spark to one worker, so that one Spark serves them all."""
    here = Path(__file__).parent
    # What stops Spark comes first: another one that has compiled nothing yet is all that the others wait for.
    items.sort(key=lambda item: item.path != here / "test_idle.py")
    for item in items:
        if here in item.path.parents and any(item.get_closest_marker(mark) for mark in MARKS):
            item.add_marker(pytest.mark.group("spark"))


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Yield an empty database on each store. One PostgreSQL is enough here: what differs between them is tested
    elsewhere."""
    if request.param == "sqlite":
        with closing(SqliteDatabase(tmp_path / "test.db", migrated=migrated(request))) as sqlite:
            yield sqlite
    else:
        with request.getfixturevalue("clusters")["postgres"].database(migrated=migrated(request)) as postgres:
            yield postgres


@pytest.fixture(scope="session")
def running() -> Iterator[ObjectServer]:
    """Yield one object store for all tests of a process."""
    with object_server() as server:
        yield server


@pytest.fixture
def server(running: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    """Return an object store, which the environment names."""
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    return running


@pytest.fixture(autouse=True)
def without_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run the pipeline with tasks in this process instead of Spark: see `archive.inline`. The marks `on_spark` and
    `frames_on_spark` make exceptions."""
    with pytest.MonkeyPatch.context() as patch:  # Of its own: a test may undo what it patched itself.
        if request.node.get_closest_marker("frames_on_spark"):
            inline.tasks_without_spark(patch)
        elif not any(request.node.get_closest_marker(mark) for mark in MARKS):
            inline.without_spark(patch)
        yield
