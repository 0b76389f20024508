"""A database of the store that a test names, as systems do not all run on every one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from conftest import Clusters
from servers import Database, SqliteDatabase


@pytest.fixture
def server(store: str) -> str:
    """Return the server that has the database; a system may need another one than its store's."""
    return store


@pytest.fixture
def empty(server: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    """Yield a database without tables, of the store that the test is parametrized with."""
    if server == "sqlite":
        with closing(SqliteDatabase(tmp_path / "empty.db")) as sqlite:
            yield sqlite
    else:
        clusters: Clusters = request.getfixturevalue("clusters")
        with clusters.database(server) as postgres:
            yield postgres
