"""A database of the store that a test names, as systems do not all run on every one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from conftest import Clusters
from servers import Database, SqliteDatabase


@pytest.fixture
def empty(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database without tables, of the store that the test is parametrized with, and of the server, if it names one."""
    if store == "sqlite":
        with closing(SqliteDatabase(tmp_path / "empty.db")) as sqlite:
            yield sqlite
    else:
        clusters: Clusters = request.getfixturevalue("clusters")
        with clusters.database(request.node.callspec.params.get("server", store)) as postgres:
            yield postgres
