"""Comparing a contract, written as text, with a test's database."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from servers import Database, PostgresDatabase
from wane._check.cover import READ_SECONDS, cover
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane._findings import Finding, Severity

SCHEDULER = '[scheduler]\ns = { every = "5m" }\n'

EVENTS = f"""{SCHEDULER}
[table.events]
scheduler = "s"
why = "A test."
time = {{ column = "at", unit = "ms" }}
[table.events.rule.old]
keep = "7d"
"""
"""A contract about one table, `events`, whose rows leave by age. More of the rule may follow."""

TABLE = "CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, at bigint);"
HEALTHY = f"{TABLE} CREATE INDEX events_at ON events (at, id);"
"""The table that this contract is about, with all that it needs."""

RULE_PATH = "table.events.rule.old"


def numbers(count: int) -> str:
    """Return a table `s` with the numbers n from 0 on, for filling tables faster than row by row."""
    last = count - 1
    return f"(WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < {last}) SELECT n FROM r) AS s"


def loaded(text: str) -> Contract:
    """Return the contract that a text states. Its file is gone, so its path says nothing."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "wane.toml"
        file.write_text(text, encoding="utf-8")
        return load_contract(file)


def findings(
    database: Database, text: str, *, strict: bool = False, seconds: float = READ_SECONDS, url: str = ""
) -> list[Finding]:
    """Return what is found, without the name of the contract's file."""
    return compared(database, loaded(text), strict=strict, seconds=seconds, url=url)


def compared(
    database: Database, contract: Contract, *, strict: bool = False, seconds: float = READ_SECONDS, url: str = ""
) -> list[Finding]:
    with open_store(resolve_url(url or database.url), contract.store, read_only=True) as store:
        found = cover(store, contract, strict=strict, seconds=seconds)
    for one in found:
        # A finding says where the contract is to be fixed, if it can be fixed there.
        assert one.file == (str(contract.path) if one.path else "")
    return [Finding(one.severity, one.code, one.message, one.fix, "", one.path, one.table) for one in found]


def finding(severity: str, code: str, table: str, path: str, message: str, fix: str = "") -> Finding:
    return Finding(Severity(severity), code, message, fix, "", path, table)


def codes(found: list[Finding]) -> list[str]:
    return [one.code for one in found]


@contextmanager
def role(database: PostgresDatabase, grants: str) -> Iterator[str]:
    """Yield the URL of a plain role with these rights and no others. `ROLE` in the grants stands for it."""
    name = f"wane_test_{secrets.token_hex(6)}"
    database.script(f"CREATE ROLE {name} LOGIN; {grants.replace('ROLE', name)}")
    parts = urlsplit(database.url)
    host = parts.netloc.rpartition("@")[2]
    try:
        yield urlunsplit(parts._replace(netloc=f"{name}@{host}"))
    finally:
        database.script(f"DROP OWNED BY {name}; DROP ROLE {name}")
