"""A small webhook application for tests: its schema, its contract, and events with everything of theirs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from servers import Database
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane.reference import contract_path, schema_sql

T = 1_700_000_000
"""Some timestamp, in unix seconds."""


def contract() -> Contract:
    return load_contract(contract_path("webhooks"))


def prepare(database: Database) -> None:
    """Create the application's tables, with one endpoint, and Wane's own."""
    for script in schema_sql("webhooks", database.store).values():
        database.script(script)
    database.execute("INSERT INTO knocker_endpoints (id, name, path, created_at) VALUES (1, 'shop', '/shop', ?)", (T,))
    with open_store(resolve_url(database.url)) as store:
        store.migrate()


def event(
    database: Database,
    number: int,
    status: str,
    received_at: int,
    *,
    attempts: int = 0,
    deliveries: int = 0,
    jobs: Iterable[str] = (),
) -> None:
    """Insert one event; `jobs` are the queues that have a job for it."""
    database.execute(
        "INSERT INTO knocker_events (id, endpoint_id, status, headers_json, body, received_at) VALUES (?, 1, ?, '{}', ?, ?)",
        (number, status, b"{}", received_at),
    )
    for _ in range(attempts):
        database.execute(
            "INSERT INTO knocker_attempts (event_id, outcome, duration_ms, attempted_at) VALUES (?, 'handled', 5, ?)",
            (number, received_at),
        )
    for _ in range(deliveries):
        delivery(database, received_at, number)
    for queue in jobs:
        database.execute(
            "INSERT INTO _honker_live (queue, payload, run_at) VALUES (?, ?, ?)",
            (queue, json.dumps({"event_id": number}), received_at),
        )


def delivery(database: Database, received_at: int, event_id: int | None = None) -> None:
    database.execute(
        "INSERT INTO knocker_deliveries (endpoint_id, event_id, headers_json, body, received_at) VALUES (1, ?, '{}', ?, ?)",
        (event_id, b"{}", received_at),
    )


def events(database: Database) -> list[int]:
    """Return the events that are left."""
    return [number for (number,) in database.query("SELECT id FROM knocker_events ORDER BY id")]


def count(database: Database, table: str) -> int:
    [(rows,)] = database.query(f"SELECT count(*) FROM {table}")
    return int(rows)


def audits(database: Database) -> int:
    return count(database, "wane_audit" if database.store == "sqlite" else "wane.audit")


def contract_file(folder: Path) -> Path:
    path = folder / "wane.toml"
    path.write_text('include = ["reference:webhooks"]\n', encoding="utf-8")
    return path
