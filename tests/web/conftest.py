"""A console over a small shop, with names and values that try to be markup."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from prune.keeping import Keeping, ago, insert, jobs, keeping, rule, table
from servers import Database
from wane._keeper import Keeper
from wane.web import LOOPBACK, create_token
from wane.web._app import Web
from wane.web._shield import Rates
from web.client import Client, open_client

EVIL = "<script>alert(1)</script>"
EVIL_STATE = "\"><img src=x onerror=alert(1)>'{{7*7}}"


@dataclass(frozen=True)
class Shop:
    """The application, a keeper of the same database, and tokens by role."""

    client: Client
    opened: Keeping
    tokens: dict[str, str]

    @property
    def keeper(self) -> Keeper:
        return self.opened.keeper

    def bearer(self, role: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[role]}"}


@contextmanager
def open_shop(database: Database, *, authentication: bool) -> Iterator[Shop]:
    jobs(database, (1, "done", ago(8)), (2, "done", ago(3)), (3, "queued", ago(9)), (4, EVIL_STATE, ago(9)))
    quoted = f'"{EVIL}"'
    database.execute(f"CREATE TABLE {quoted} (id text PRIMARY KEY, at_ms bigint)")
    insert(database, quoted, "id, at_ms", (EVIL, ago(9)), ("plain", ago(1)))
    evil = table(f'"{EVIL}"', rule("old", when=()), state=None)
    with keeping(database, table(), evil) as opened:
        tokens = {role: create_token(opened.keeper, role, role)[1] for role in ("viewer", "operator", "admin")}
        web = Web(opened.keeper.contract, database.url, authentication=authentication)
        app = web.app(LOOPBACK, Rates(rate=1e6, burst=1e6))
        with open_client(app) as client:
            yield Shop(client, opened, tokens if authentication else {})


@pytest.fixture
def shop(database: Database) -> Iterator[Shop]:
    """Yield a console without authentication."""
    with open_shop(database, authentication=False) as found:
        yield found


@pytest.fixture
def guarded(sqlite_database: Database) -> Iterator[Shop]:
    """Yield a console with authentication."""
    with open_shop(sqlite_database, authentication=True) as found:
        yield found
