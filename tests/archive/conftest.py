"""Databases for the archive, and one Spark session for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from archive import forked
from servers import Database, SqliteDatabase

GROUP = pytest.mark.xdist_group("spark")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests here that need Spark go to one worker, so that one Spark serves them all. First, because xdist looks at the marks in this
    hook too."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            if "without_spark" not in getattr(item, "fixturenames", ()) or item.get_closest_marker("on_spark"):
                item.add_marker(GROUP)
            item.add_marker(pytest.mark.timeout(300))  # On a busy machine Spark alone takes a minute to start.


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """An empty database on each store. One PostgreSQL is enough here: what differs between them is tested elsewhere."""
    with ExitStack() as stack:
        if request.param == "sqlite":
            sqlite = SqliteDatabase(tmp_path / "test.db")
            stack.callback(sqlite.close)
            yield sqlite
        else:
            yield stack.enter_context(request.getfixturevalue("clusters")["postgres"].database())


@pytest.fixture
def without_spark(request: pytest.FixtureRequest) -> Iterator[None]:
    """The pipeline with forked processes instead of Spark: see `archive.forked`. The mark `on_spark` makes an exception."""
    with pytest.MonkeyPatch.context() as patch:  # Of its own: a test may undo what it patched itself.
        if request.node.get_closest_marker("on_spark") is None:
            forked.without_spark(patch)
        yield
