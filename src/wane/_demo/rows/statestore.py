"""Presence, connections, channels, leases, handshakes and the broadcast outbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wane._demo.rows import DAY, HOUR, MINUTE, Load, World, load
from wane._demo.traps import trap

TENANTS = ("acme", "globex", "initech", "umbrella")
WEIGHTS = (60, 25, 10, 5)
CHANNELS = ("telegram", "slack", "email", "sms")
ROLES = ("client", "node", "gateway")
TOPICS = ("ws.broadcast", "presence.changed", "approval.created", "task.progress")


def statestore(world: World) -> Iterator[Load]:
    yield _presence(world)
    yield _connections(world)
    yield _dedupe(world)
    yield from _channels(world)
    yield from _leases(world)
    yield _handshakes(world)
    yield from _outbox(world)
    yield load(
        "models_dev_cache",
        "id etag sha256 json fetched_at updated_at",
        [(1, 'W/"5f1c"', "9f86d081884c7d65", '{"models": []}', world.native(world.ago(HOUR)), world.native(world.now))],
    )


def _presence(world: World) -> Load:
    luck, rows = world.luck("presence_entries"), []
    for number in range(world.count(0.008)):
        [tenant] = luck.choices(TENANTS, WEIGHTS)
        heartbeat = world.ago(luck.randrange(5 * MINUTE) if luck.random() < 0.8 else luck.randrange(HOUR, 2 * DAY))
        start = heartbeat - luck.randrange(3 * DAY)
        rows.append(
            (tenant, f"i-{number:06}", luck.choice(ROLES), start * 1000, heartbeat * 1000, (heartbeat + HOUR) * 1000)
        )
    for name in trap("quiet-tenant").values():
        heartbeat, expiry = world.ago(200 * DAY), world.now + 30 * DAY
        rows.append(("hermit", name, "node", heartbeat * 1000, heartbeat * 1000, expiry * 1000))
    return load("presence_entries", "tenant_id instance_id role connected_at_ms last_seen_at_ms expires_at_ms", rows)


def _connections(world: World) -> Load:
    luck, rows = world.luck("connections"), []
    columns = "tenant_id connection_id edge_id principal_id connected_at_ms last_seen_at_ms expires_at_ms"

    def row(tenant: str, name: str, start: int, seen: int) -> tuple[Any, ...]:
        edge, principal = f"edge-{luck.randrange(8)}", f"user-{luck.randrange(5000)}"
        return tenant, name, edge, principal, start * 1000, seen * 1000, (seen + HOUR) * 1000

    for number in range(world.count(0.005)):
        [tenant] = luck.choices(TENANTS, WEIGHTS)
        seen = world.ago(luck.randrange(MINUTE) if luck.random() < 0.7 else luck.randrange(HOUR, 3 * DAY))
        rows.append(row(tenant, f"c-{number:06}", seen - luck.randrange(5 * DAY), seen))
    rows += [row("acme", name, world.ago(365 * DAY), world.now) for name in trap("long-connection").values()]
    return load("connections", columns, rows)


def _dedupe(world: World) -> Load:
    luck = world.luck("channel_inbound_dedupe")
    received = world.times(luck, world.count(0.04), days=3)
    rows = [(luck.choice(CHANNELS), f"m-{number:07}", (time + DAY) * 1000) for number, time in enumerate(received)]
    rows += [("slack", name, 0) for name in trap("zero-expiry").values()]
    return load("channel_inbound_dedupe", "channel message_id expires_at_ms", rows)


def _channels(world: World) -> Iterator[Load]:
    luck = world.luck("channel_inbox")
    inbox: list[tuple[Any, ...]] = []
    outbox: list[tuple[Any, ...]] = []

    def message(name: str, status: str, received: int) -> int:
        number, [tenant] = len(inbox) + 1, luck.choices(TENANTS, WEIGHTS)
        done = world.native(received + 30) if status in ("completed", "failed") else None
        error = "handler timed out" if status == "failed" else None
        thread, channel = f"t-{luck.randrange(900)}", luck.choice(CHANNELS)
        payload = f'{{"text": "message {number}"}}'
        inbox.append((number, tenant, channel, thread, name, status, payload, received * 1000, done, error))
        return number

    def reply(to: int, name: str, status: str, created: int, sent: int | None) -> None:
        tenant, channel, thread = inbox[to - 1][1:4]
        error = "recipient refused" if status == "failed" else None
        times = world.native(created), world.native(sent)
        outbox.append((len(outbox) + 1, tenant, to, channel, thread, name, f"reply to {to}", status, *times, error))

    for number, time in enumerate(world.times(luck, world.count(0.07), days=20)):
        [status] = luck.choices(("completed", "failed"), (93, 7))
        if time > world.ago(2 * HOUR):
            [status] = luck.choices(("completed", "queued", "processing"), (60, 30, 10))
        to = message(f"m-{number:07}", status, time)
        if status == "completed" and luck.random() < 0.3:
            [outcome] = luck.choices(("failed", "sent", "queued", "sending"), (80, 5, 12, 3))
            sent = time + luck.randrange(HOUR) if outcome in ("failed", "sent") else None
            reply(to, f"r-{number:07}", outcome, time + 5, sent)

    old = world.ago(40 * DAY)
    for name, reply_name in zip(trap("replied").values(), trap("sent-reply").values(), strict=True):
        reply(message(name, "completed", old), reply_name, "sent", old, old + MINUTE)
    for name, reply_name in zip(trap("failed-with-reply").values(), trap("never-attempted").values(), strict=True):
        reply(message(name, "failed", old), reply_name, "failed", old, None)
    for number, name in enumerate(trap("waiting-reply").values()):
        reply(message(f"m-waiting-{number}", "completed", old), name, "queued", old, None)
    for name in trap("stuck").values():
        message(name, "processing", old)
    for name in trap("from-tomorrow").values():
        message(name, "completed", world.now + 30 * DAY)
    for name in trap("inbox-boundary").values():
        message(name, "completed", world.ago(7 * DAY))

    columns = "inbox_id tenant_id channel thread_id message_id status payload_json received_at_ms processed_at error"
    yield load("channel_inbox", columns, inbox)
    columns = "outbox_id tenant_id inbox_id channel thread_id dedupe_key body status created_at sent_at error"
    yield load("channel_outbox", columns, outbox)


def _leases(world: World) -> Iterator[Load]:
    luck = world.luck("leases")

    def until() -> int:
        return (world.ago(luck.randrange(2 * DAY)) if luck.random() < 0.8 else world.now + luck.randrange(HOUR)) * 1000

    def worker() -> str:
        return f"worker-{luck.randrange(24)}"

    renewed = (world.now + 30 * DAY) * 1000
    lanes = [("acme", f"agent-{n}", "main", worker(), until()) for n in range(world.count(0.003))]
    lanes += [("acme", f"held-{n}", "main", owner, renewed) for n, owner in enumerate(trap("held-lane").values())]
    yield load("lane_leases", "tenant_id key lane lease_owner lease_expires_at_ms", lanes)

    spaces = [("globex", f"w-{n}", worker(), until()) for n in range(world.count(0.001))]
    spaces += [("globex", f"held-{n}", owner, renewed) for n, owner in enumerate(trap("held-workspace").values())]
    yield load("workspace_leases", "tenant_id workspace_id lease_owner lease_expires_at_ms", spaces)

    profiles = [("acme", f"profile-{n}", worker(), until()) for n in range(world.count(0.0005))]
    yield load("oauth_refresh_leases", "tenant_id auth_profile_id lease_owner lease_expires_at_ms", profiles)
    catalogs = [("catalog", worker(), renewed), ("catalog-legacy", worker(), world.ago(90 * DAY) * 1000)]
    yield load("models_dev_refresh_leases", "key lease_owner lease_expires_at_ms", catalogs)


def _handshakes(world: World) -> Load:
    luck = world.luck("oauth_pending")
    columns = "tenant_id state provider_id pkce_verifier redirect_uri scopes created_at expires_at"

    def row(state: str, created: int, expires: int) -> tuple[Any, ...]:
        provider, verifier = luck.choice(("github", "google")), f"{luck.getrandbits(64):016x}"
        times = world.native(created), world.native(expires)
        return "acme", state, provider, verifier, "https://app.example/callback", "openid", *times

    starts = world.times(luck, world.count(0.001), days=2)
    rows = [row(f"{luck.getrandbits(96):024x}", created, created + 10 * MINUTE) for created in starts]
    rows += [row(name, world.ago(MINUTE), world.now + DAY) for name in trap("open-handshake").values()]
    return load("oauth_pending", columns, rows)


def _outbox(world: World) -> Iterator[Load]:
    luck = world.luck("outbox")
    rows: list[tuple[Any, ...]] = []
    for number, time in enumerate(world.times(luck, world.count(0.07), days=3), 1):
        [tenant] = luck.choices(TENANTS, WEIGHTS)
        rows.append((number, tenant, luck.choice(TOPICS), f'{{"sequence": {number}}}', world.native(time)))
    for number, name in enumerate(trap("outbox-boundary").values(), len(rows) + 1):
        rows.append((number, "acme", name, "{}", world.native(world.ago(DAY))))
    yield load("outbox", "id tenant_id topic payload_json created_at", rows)

    consumers = [
        (luck.choice(TENANTS), f"edge-{number}", len(rows) - luck.randrange(50), world.native(time))
        for number, time in enumerate(world.times(luck, 40, days=4))
    ]
    consumers += [("acme", name, 1, world.native(world.ago(HOUR))) for name in trap("slow-consumer").values()]
    yield load("outbox_consumers", "tenant_id consumer_id last_outbox_id updated_at", consumers)
