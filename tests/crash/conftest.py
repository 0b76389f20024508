"""Databases that survive a crash: a SQLite file that syncs, and a PostgreSQL of one's own that keeps its promises."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from servers import PostgresDatabase, PostgresServer, packaged_installation, short_directory


@pytest.fixture
def durable_server() -> Iterator[PostgresServer]:
    """Yield a server that is durable, and that no other test uses, so that it may crash."""
    installation = packaged_installation()
    assert installation is not None, "no PostgreSQL to crash: run `make setup`"
    directory = Path(tempfile.mkdtemp(prefix="wane-", dir=short_directory()))
    directory.chmod(0o755)
    try:
        with PostgresServer(installation, directory / "durable", durable=True) as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def durable_database(durable_server: PostgresServer) -> Iterator[PostgresDatabase]:
    database = PostgresDatabase(durable_server.url)
    yield database
    database.close()
