"""The recovery drill: after rows aged out, state is rebuilt from durable truth, as each table's `why` promises.

Each drill is an application's: it writes, time passes, sweeps run, and then it goes on as if nothing had left. What it
needs must be there, and what has left must be what it can do without.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from servers import Database
from wane._contract.load import load_contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane.claims import Claim, Denial, Reclaim
from wane.reference import contract_path, names, schema_sql
from wane.webhooks import RetentionPolicy, WebhookRetention

DRILLED: dict[str, set[str]] = {
    "statestore": {
        "presence_entries",
        "connections",
        "channel_inbound_dedupe",
        "channel_outbox",
        "channel_inbox",
        "lane_leases",
        "workspace_leases",
        "oauth_pending",
        "oauth_refresh_leases",
        "models_dev_refresh_leases",
        "outbox",
        "outbox_consumers",
    },
    "claims": {"work_claims", "work_claim_tombstones"},
    "webhooks": {"knocker_events", "knocker_deliveries"},
    "substrate": {
        "event_outbox",
        "event_pending",
        "iu_auto_instantiate_event_log",
        "iu_route_dead_letter",
        "job_dead_letter",
        "job_queue",
        "dot_iu_command_run",
    },
}
"""The tables of each contract that a drill below ages out."""


@pytest.mark.parametrize("name", names())
def test_no_table_with_rules_is_left_out(name: str) -> None:
    contract = load_contract(contract_path(name))
    assert {str(table.name) for table in contract.tables} == DRILLED[name]


def ms(hours: float) -> int:
    """Return milliseconds since 1970, so many hours ago."""
    return round((time.time() - hours * 3_600) * 1_000)


class Drill:
    """An application's database, and the keeper that sweeps it."""

    def __init__(self, database: Database, keeper: Keeper) -> None:
        self.database = database
        self.keeper = keeper

    def native(self, hours: float) -> Any:
        timestamp = datetime.now(UTC) - timedelta(hours=hours)
        return timestamp.strftime("%Y-%m-%d %H:%M:%S") if self.database.store == "sqlite" else timestamp

    def put(self, table: str, *rows: dict[str, Any]) -> None:
        for row in rows:
            marks = ", ".join("?" * len(row))
            self.database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))

    def all(self, text: str, *values: object) -> list[Any]:
        found = self.database.query(text, values)
        return [row[0] if len(row) == 1 else row for row in found]

    def sweep(self) -> None:
        """Sweep until nothing is due, as a scheduler would, and find every promise kept."""
        for _ in range(3):
            swept = self.keeper.sweep(
                approve=[f"{table.name}.{rule.name}" for table, rule in self.keeper.contract.rules()]
            )
            assert not swept.failed
        broken = [
            one for one in self.keeper.check_live() if one.table != "event_outbox"
        ]  # Only the archive takes those.
        assert broken == []


@contextmanager
def drill(database: Database, name: str, tmp_path: Path) -> Iterator[Drill]:
    database.script(schema_sql(name, database.store)["main"])
    attach = ""
    if name == "substrate" and database.store == "sqlite":
        from servers import SqliteDatabase

        other = SqliteDatabase(tmp_path / "core.db")
        other.script(schema_sql(name, "sqlite")["iu_core"])
        other.close()
        attach = f'[store]\nattach = {{ iu_core = "{tmp_path / "core.db"}" }}\n'
    file = tmp_path / "wane.toml"
    file.write_text(f'include = ["reference:{name}"]\n{attach}', encoding="utf-8")
    contract = load_contract(file)
    with open_store(resolve_url(database.url), contract.store) as store:
        store.migrate()
        keeper = Keeper(contract, store, actor="drill")
        keeper.enable()
        yield Drill(database, keeper)


# --- The state store ----------------------------------------------------------------------------------------------


def test_presence_is_rebuilt_by_heartbeats(database: Database, tmp_path: Path) -> None:
    with drill(database, "statestore", tmp_path) as world:

        def heartbeat(instance: str, hours: float) -> None:
            """Write what an instance that is alive reports of itself at intervals."""
            world.database.execute(
                "INSERT INTO presence_entries (tenant_id, instance_id, role, connected_at_ms, last_seen_at_ms, expires_at_ms)"
                " VALUES ('t', ?, 'node', ?, ?, ?) ON CONFLICT (tenant_id, instance_id) DO UPDATE SET"
                " last_seen_at_ms = excluded.last_seen_at_ms, expires_at_ms = excluded.expires_at_ms",
                (instance, ms(hours), ms(hours), ms(hours - 0.1)),
            )

        there = ["a", "b", "c"]  # The durable truth: the instances themselves.
        for instance in [*there, "gone"]:
            heartbeat(instance, hours=2)
        world.sweep()
        assert world.all("SELECT instance_id FROM presence_entries") == []
        for instance in there:
            heartbeat(instance, hours=0)
        world.sweep()
        assert world.all("SELECT instance_id FROM presence_entries ORDER BY 1") == there


def test_a_connection_that_is_used_outlives_every_sweep(database: Database, tmp_path: Path) -> None:
    with drill(database, "statestore", tmp_path) as world:
        columns = "tenant_id, connection_id, edge_id, principal_id, connected_at_ms, last_seen_at_ms, expires_at_ms"
        opened = [("t", name, "e", "p", ms(900), ms(2), ms(1)) for name in ("used", "abandoned")]
        world.database.executemany(f"INSERT INTO connections ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", opened)
        world.database.execute("UPDATE connections SET expires_at_ms = ? WHERE connection_id = 'used'", (ms(-1),))
        world.sweep()
        assert world.all("SELECT connection_id FROM connections") == ["used"]
        # A session that was abandoned and comes back opens a new one, under its old name.
        world.database.execute(
            f"INSERT INTO connections ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", (*opened[1][:6], ms(-1))
        )
        world.sweep()
        assert world.all("SELECT connection_id FROM connections ORDER BY 1") == ["abandoned", "used"]


def test_a_cap_evicts_only_what_the_next_heartbeat_recreates(database: Database, tmp_path: Path) -> None:
    with drill(database, "statestore", tmp_path) as world:
        rows = [
            {
                "tenant_id": tenant,
                "instance_id": f"i{n:03}",
                "role": "node",
                "connected_at_ms": ms(9),
                "last_seen_at_ms": ms(1 + n / 1e4),
            }
            for tenant, count in (("noisy", 510), ("quiet", 3))
            for n in range(count)
        ]
        world.database.executemany(
            "INSERT INTO presence_entries (tenant_id, instance_id, role, connected_at_ms, last_seen_at_ms, expires_at_ms)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [(*row.values(), ms(-1)) for row in rows],
        )
        world.sweep()
        counted = "SELECT tenant_id, count(*) FROM presence_entries GROUP BY 1 ORDER BY 1"
        assert world.all(counted) == [("noisy", 500), ("quiet", 3)]
        [evicted] = set(world.all("SELECT 'i509'")) - set(
            world.all("SELECT instance_id FROM presence_entries WHERE tenant_id = 'noisy'")
        )
        world.put("presence_entries", {**rows[509], "last_seen_at_ms": ms(0), "expires_at_ms": ms(-1)})
        world.sweep()
        assert evicted in world.all("SELECT instance_id FROM presence_entries WHERE tenant_id = 'noisy'")
        assert world.all(counted) == [("noisy", 500), ("quiet", 3)]


def test_a_replay_inside_its_window_is_recognised_and_one_after_it_is_not(database: Database, tmp_path: Path) -> None:
    with drill(database, "statestore", tmp_path) as world:

        def is_new(message: str, hours: float) -> bool:
            return bool(
                world.database.execute(
                    "INSERT INTO channel_inbound_dedupe (channel, message_id, expires_at_ms) VALUES ('c', ?, ?)"
                    " ON CONFLICT DO NOTHING",
                    (message, ms(hours - 24)),
                )
            )

        assert is_new("fresh", hours=23.9)
        assert is_new("old", hours=24.1)
        world.sweep()
        assert not is_new("fresh", hours=0)
        assert is_new("old", hours=0)


def test_a_reply_always_finds_its_message_and_the_transcript_needs_neither(database: Database, tmp_path: Path) -> None:
    with drill(database, "statestore", tmp_path) as world:
        message = {
            "tenant_id": "t",
            "channel": "c",
            "thread_id": "h",
            "payload_json": "{}",
            "received_at_ms": ms(24 * 30),
        }
        for number, status in enumerate(("completed", "completed", "failed", "processing"), 1):
            world.put("channel_inbox", {"inbox_id": number, "message_id": f"m{number}", "status": status, **message})
        reply = {"tenant_id": "t", "channel": "c", "thread_id": "h", "body": "…"}
        world.put("channel_outbox", {"inbox_id": 1, "dedupe_key": "waits", "status": "queued", **reply})
        world.put(
            "channel_outbox",
            {"inbox_id": 2, "dedupe_key": "failed", "status": "failed", "sent_at": world.native(24 * 29), **reply},
        )
        world.sweep()
        # The failed reply left, and with nothing referring to them the messages that were done with.
        assert world.all("SELECT inbox_id FROM channel_inbox ORDER BY 1") == [1, 4]
        lost = "SELECT o.outbox_id FROM channel_outbox o LEFT JOIN channel_inbox i ON i.inbox_id = o.inbox_id WHERE i.inbox_id IS NULL"
        assert world.all(lost) == []
        world.database.execute(
            "DELETE FROM channel_outbox WHERE dedupe_key = 'waits'"
        )  # Delivered: the application's own act.
        world.sweep()
        assert world.all("SELECT inbox_id FROM channel_inbox ORDER BY 1") == [4]


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("lane_leases", {"tenant_id": "t", "key": "k", "lane": "l"}),
        ("workspace_leases", {"tenant_id": "t", "workspace_id": "w"}),
        ("oauth_refresh_leases", {"tenant_id": "t", "auth_profile_id": "p"}),
        ("models_dev_refresh_leases", {"key": "k"}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_lease_is_reacquired_and_a_live_one_is_not_lost(
    database: Database, tmp_path: Path, table: str, key: dict[str, Any]
) -> None:
    with drill(database, "statestore", tmp_path) as world:

        def acquire(owner: str, until: int) -> bool:
            """Do what every worker does before it works: take the lease if it is free, or if its end has come."""
            columns = [*key, "lease_owner", "lease_expires_at_ms"]
            return bool(
                world.database.execute(
                    f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
                    f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET lease_owner = excluded.lease_owner,"
                    f" lease_expires_at_ms = excluded.lease_expires_at_ms WHERE {table}.lease_expires_at_ms <= ?",
                    [*key.values(), owner, until, ms(0)],
                )
            )

        assert acquire("one", ms(1))
        world.sweep()
        assert world.all(f"SELECT lease_owner FROM {table}") == []
        assert acquire("two", ms(-1))
        world.sweep()
        assert not acquire("three", ms(-1))
        assert world.all(f"SELECT lease_owner FROM {table}") == ["two"]


def test_a_handshake_completes_inside_its_window(database: Database, tmp_path: Path) -> None:
    with drill(database, "statestore", tmp_path) as world:
        pending = {"tenant_id": "t", "provider_id": "p", "pkce_verifier": "v", "redirect_uri": "u", "scopes": "s"}
        world.put("oauth_pending", {"state": "open", "expires_at": world.native(-0.1), **pending})
        world.put("oauth_pending", {"state": "late", "expires_at": world.native(0.1), **pending})
        world.sweep()
        taken = world.keeper.consume("oauth_pending", {"tenant_id": "t", "state": "open"})
        assert taken is not None
        assert taken["pkce_verifier"] == "v"
        assert world.keeper.consume("oauth_pending", {"tenant_id": "t", "state": "late"}) is None


def test_a_consumer_that_advances_misses_nothing_and_an_idle_one_begins_anew(
    database: Database, tmp_path: Path
) -> None:
    with drill(database, "statestore", tmp_path) as world:
        for age in range(47, -1, -1):  # One message an hour, for two days.
            world.put(
                "outbox",
                {"tenant_id": "t", "topic": f"{age}", "payload_json": "{}", "created_at": world.native(age + 0.5)},
            )
        first = world.all("SELECT min(id) FROM outbox")[0]
        advanced, idle = first + 30, first + 3  # One read until 17 hours ago, the other fell asleep 44 hours ago.
        consumer = {"tenant_id": "t"}
        world.put(
            "outbox_consumers",
            {"consumer_id": "advances", "last_outbox_id": advanced, "updated_at": world.native(1), **consumer},
        )
        world.put(
            "outbox_consumers",
            {"consumer_id": "idle", "last_outbox_id": idle, "updated_at": world.native(44), **consumer},
        )
        unread = world.all("SELECT topic FROM outbox WHERE id > ? ORDER BY id", advanced)
        world.sweep()
        [(name, cursor)] = world.all("SELECT consumer_id, last_outbox_id FROM outbox_consumers")
        assert name == "advances"
        assert world.all("SELECT topic FROM outbox WHERE id > ? ORDER BY id", cursor) == unread
        # Without a cursor one begins before the oldest message, and no number is ever given out again.
        assert world.all("SELECT count(*) FROM outbox WHERE id > 0") == [24]
        world.put("outbox", {"tenant_id": "t", "topic": "next", "payload_json": "{}"})
        assert world.all("SELECT max(id) FROM outbox") == [first + 48]


# --- Claims -------------------------------------------------------------------------------------------------------


def test_finished_work_is_not_resurrected_by_forgetting_its_row(database: Database, tmp_path: Path) -> None:
    with drill(database, "claims", tmp_path) as world:
        claims = world.keeper.claims()
        first = claims.claim("task", "one", timedelta(hours=1))
        assert isinstance(first, Claim)
        claims.complete(first)
        world.database.execute("UPDATE work_claims SET completed_at = ?", (world.native(24 * 8),))
        world.sweep()
        assert world.all("SELECT task_id FROM work_claims") == []
        assert isinstance(claims.claim("task", "two", timedelta(hours=1)), Denial)
        repeated = world.keeper.claims(reclaim=Reclaim.always()).claim("task", "two", timedelta(hours=1))
        assert isinstance(repeated, Claim)
        assert repeated.fence > first.fence


def test_a_claim_whose_holder_died_is_taken_over_and_never_forgotten(database: Database, tmp_path: Path) -> None:
    with drill(database, "claims", tmp_path) as world:
        claims = world.keeper.claims()
        first = claims.claim("task", "dead", timedelta(hours=1))
        assert isinstance(first, Claim)
        world.database.execute(
            "UPDATE work_claims SET claimed_at = ?, expires_at = ?", (world.native(24 * 400), world.native(0.01))
        )
        world.sweep()
        second = claims.claim("task", "alive", timedelta(hours=1))
        assert isinstance(second, Claim)
        assert second.fence > first.fence


# --- Webhooks -----------------------------------------------------------------------------------------------------


def test_what_an_operator_may_still_replay_stays_whole(database: Database, tmp_path: Path) -> None:
    with drill(database, "webhooks", tmp_path) as world:
        old = ms(24 * 30) // 1_000
        world.put("knocker_endpoints", {"id": 1, "name": "e", "path": "/e", "created_at": old})
        states = ("received", "processing", "handled", "ignored", "failed", "dead")
        for number, status in enumerate(states, 101):  # Numbers that nobody gives out by himself.
            event = {
                "id": number,
                "endpoint_id": 1,
                "status": status,
                "dedupe_key": f"d{number - 100}",
                "headers_json": "{}",
            }
            world.put("knocker_events", {**event, "body": b"body", "received_at": old})
            world.put(
                "knocker_deliveries",
                {"endpoint_id": 1, "event_id": number, "headers_json": "{}", "body": b"body", "received_at": old},
            )
        WebhookRetention(world.keeper).run_retention_pass(
            RetentionPolicy(event_older_than_s=7 * 86_400, orphan_deliveries_older_than_s=86_400)
        )
        whole = world.all(
            "SELECT e.status FROM knocker_events e JOIN knocker_deliveries d ON d.event_id = e.id ORDER BY e.id"
        )
        assert whole == ["received", "processing", "failed", "dead"]
        assert world.all("SELECT count(*) FROM knocker_deliveries") == [4]
        assert [one for one in world.keeper.check_live() if one.code != "overdue"] == []
        # A forgotten event that is sent again is accepted; one that repeats a waiting one is recognised.
        repeated = (
            "INSERT INTO knocker_events (endpoint_id, dedupe_key, headers_json, body, received_at) VALUES (1, ?, '{}', ?, 1)"
            " ON CONFLICT DO NOTHING"
        )
        assert world.database.execute(repeated, ("d3", b"")) == 1
        assert world.database.execute(repeated, ("d5", b"")) == 0


# --- The substrate ------------------------------------------------------------------------------------------------


def test_replay_reaches_every_event_whatever_was_swept(database: Database, tmp_path: Path) -> None:
    with drill(database, "substrate", tmp_path) as world:
        event = {"event_domain": "d", "event_type": "t", "event_stream": "s", "payload": "{}"}
        for days in (400, 100, 1):
            world.put("event_outbox", {**event, "actor": "a", "created_at": world.native(24 * days)})
        world.put("event_pending", {**event, "created_at": world.native(24 * 400), "drained_at": None})
        world.put("event_pending", {**event, "created_at": world.native(24 * 400), "drained_at": world.native(24 * 8)})
        world.put(
            "iu_auto_instantiate_event_log",
            {"event_id": 1, "template": "x", "outcome": "made", "created_at": world.native(24 * 366)},
        )
        world.sweep()
        assert world.all("SELECT count(*) FROM event_outbox") == [3]
        assert world.all("SELECT count(*) FROM event_pending WHERE drained_at IS NULL") == [1]
        assert world.all("SELECT count(*) FROM event_pending") == [1]
        assert world.all("SELECT count(*) FROM iu_auto_instantiate_event_log") == [0]
        # What was not drained still can be.
        world.database.execute(
            "INSERT INTO event_outbox (event_domain, event_type, event_stream, actor, payload)"
            " SELECT event_domain, event_type, event_stream, 'drain', payload FROM event_pending WHERE drained_at IS NULL"
        )
        assert world.all("SELECT count(*) FROM event_outbox") == [4]


def test_what_failed_can_be_retried_however_old_it_is(database: Database, tmp_path: Path) -> None:
    with drill(database, "substrate", tmp_path) as world:
        old = world.native(24 * 500)
        for number, status in enumerate(("failed", "succeeded", "succeeded", "queued"), 1):
            finished = None if status == "queued" else old
            job = {"id": number, "kind": "k", "dedupe_key": f"j{number}", "status": status, "payload": "{}"}
            world.put("job_queue", {**job, "enqueued_at": old, "finished_at": finished})
        world.put("job_dead_letter", {"job_id": 1, "error": "e", "resolved_at": None, "first_failed_at": old})
        world.put(
            "job_dead_letter", {"job_id": 2, "error": "e", "resolved_at": world.native(24), "first_failed_at": old}
        )
        world.put("job_dead_letter", {"job_id": 3, "error": "e", "resolved_at": old, "first_failed_at": old})
        world.put("iu_sql_event_route", {"route_code": "r", "event_domain": "d", "event_type": "t", "target": "x"})
        letter = {"route_code": "r", "event_id": 7, "payload": '{"whole": "event"}', "error": "e"}
        world.put("iu_route_dead_letter", {**letter, "resolved_at": None, "last_failed_at": old})
        world.put("iu_route_dead_letter", {**letter, "resolved_at": old, "last_failed_at": old})
        for status in ("running", "succeeded"):
            run = {"command": "c", "arguments": "[]", "requested_by": "me", "status": status}
            world.put("dot_iu_command_run", {**run, "finished_at": None if status == "running" else old})
        world.sweep()
        # The job whose dead letter was dealt with long ago is gone with it; the others can be requeued or referred to.
        assert world.all("SELECT id, status FROM job_queue ORDER BY id") == [
            (1, "failed"),
            (2, "cleaned"),
            (4, "queued"),
        ]
        assert world.all("SELECT job_id FROM job_dead_letter ORDER BY 1") == [1, 2]
        assert world.database.execute("UPDATE job_queue SET status = 'queued' WHERE id = 1 AND status = 'failed'") == 1
        claimable = world.all("SELECT id FROM job_queue WHERE status = 'queued' ORDER BY id")
        assert claimable == [1, 4]
        assert world.all("SELECT payload FROM iu_route_dead_letter") in (['{"whole": "event"}'], [{"whole": "event"}])
        assert world.all("SELECT status FROM dot_iu_command_run") == ["running"]
