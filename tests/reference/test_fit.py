"""The reference contracts fit the databases that they describe, as the applications themselves create and fill them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from reference.test_recovery import drill, ms
from servers import Database, SqliteDatabase
from wane._check.cover import cover
from wane._contract.load import load_contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane.reference import contract_path

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "reference-contracts.md").read_text(encoding="utf-8")
QUEUE = """
CREATE TABLE knocker_endpoints (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL);
CREATE TABLE knocker_events (id INTEGER PRIMARY KEY AUTOINCREMENT, endpoint_id INTEGER NOT NULL REFERENCES knocker_endpoints (id),
  received_at INTEGER NOT NULL, status TEXT NOT NULL);
CREATE TABLE knocker_deliveries (id INTEGER PRIMARY KEY AUTOINCREMENT, event_id INTEGER REFERENCES knocker_events (id),
  received_at INTEGER NOT NULL);
CREATE TABLE knocker_attempts (id INTEGER PRIMARY KEY AUTOINCREMENT,
  event_id INTEGER NOT NULL REFERENCES knocker_events (id) ON DELETE CASCADE);
CREATE TABLE _honker_live (id INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, payload TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'pending', run_at INTEGER NOT NULL DEFAULT 0);
"""


def iso(hours: float) -> str:
    """Return a time so many hours ago, as an application of JavaScript writes it."""
    timestamp = datetime.now(UTC) - timedelta(hours=hours)
    return timestamp.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp.microsecond // 1000:03}Z"


def test_rows_leave_whichever_writer_encoded_their_times(database: Database, tmp_path: Path) -> None:
    with drill(database, "statestore", tmp_path) as world:
        message = {"tenant_id": "t", "channel": "c", "thread_id": "h", "message_id": "m", "payload_json": "{}"}
        world.put("channel_inbox", {"inbox_id": 1, "received_at_ms": ms(1), **message})
        reply = {"tenant_id": "t", "inbox_id": 1, "channel": "c", "thread_id": "h", "body": "…", "status": "failed"}
        pending = {"tenant_id": "t", "provider_id": "p", "pkce_verifier": "v", "redirect_uri": "r", "scopes": "s"}
        for write, how in ((iso, "iso"), (world.native, "native")):
            for late, early, name in ((24 * 20, 1, f"old-{how}"), (24, -1, f"new-{how}")):
                world.put("channel_outbox", {"dedupe_key": name, "sent_at": write(late), **reply})
                world.put("oauth_pending", {"state": name, "expires_at": write(early), **pending})
            for age, name in ((48, f"old-{how}"), (1, f"new-{how}")):
                consumer = {"tenant_id": "t", "consumer_id": name, "last_outbox_id": 0, "updated_at": write(age)}
                world.put("outbox_consumers", consumer)
                row = {"tenant_id": "t", "topic": name, "payload_json": "{}", "created_at": write(age)}
                world.put("outbox", row)
        world.sweep()
        new = ["new-iso", "new-native"]
        assert world.all("SELECT dedupe_key FROM channel_outbox ORDER BY 1") == new
        assert world.all("SELECT state FROM oauth_pending ORDER BY 1") == new
        assert world.all("SELECT consumer_id FROM outbox_consumers ORDER BY 1") == new
        assert world.all("SELECT topic FROM outbox ORDER BY 1") == new
        codes = {one.code for one in cover(world.keeper.store, world.keeper.contract, strict=True)}
        assert not codes & {"mixed-encoding", "wrong-encoding", "no-index", "missing-column"}


def test_the_queue_gets_the_column_that_its_page_names(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script(QUEUE)
    sqlite_database.script("INSERT INTO knocker_endpoints VALUES (1, 'e')")
    now = int(time.time())
    for number, status, age in ((1, "handled", 8), (2, "handled", 6), (3, "dead", 8)):
        sqlite_database.execute("INSERT INTO knocker_events VALUES (?, 1, ?, ?)", (number, now - age * 86_400, status))
        sqlite_database.execute(
            "INSERT INTO _honker_live (queue, payload) VALUES ('knocker.events', ?)", (f'{{"event_id": {number}}}',)
        )
    sqlite_database.execute("INSERT INTO _honker_live (queue, payload) VALUES ('emails', '{\"event_id\": 1}')")
    sqlite_database.execute("INSERT INTO _honker_live (queue, payload) VALUES ('raw', 'no json')")
    contract = load_contract(contract_path("webhooks"))
    with Keeper(contract, open_store(resolve_url(sqlite_database.url))) as keeper:
        missing = [one for one in cover(keeper.store, contract) if one.code == "missing-column"]
        assert [one.message for one in missing] == ["_honker_live has no column 'event_id'"]
    [statements] = re.findall(r"```sql\n(ALTER TABLE _honker_live.*?)```", PAGE, re.DOTALL)
    sqlite_database.script(statements)
    with Keeper(contract, open_store(resolve_url(sqlite_database.url))) as keeper:
        keeper.migrate()
        assert "missing-column" not in [one.code for one in cover(keeper.store, contract)]
        counts = keeper.prune("knocker_events", rule="settled", limit=100).counts
        assert (counts["knocker_events"], counts["_honker_live"]) == (1, 1)
    jobs = sqlite_database.query("SELECT queue, event_id FROM _honker_live ORDER BY id")
    assert jobs == [("knocker.events", 2), ("knocker.events", 3), ("emails", 1), ("raw", None)]
    shipped = (contract_path("webhooks").parent / "webhooks.sqlite.sql").read_text(encoding="utf-8")
    assert statements.strip() in shipped
