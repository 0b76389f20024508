"""Webhook events, the attempts to handle them, every delivery, and the jobs of several queues."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from wane._demo.rows import DAY, HOUR, Load, World, load
from wane._demo.traps import trap

ENDPOINTS = ("stripe", "github", "shopify", "slack")
TYPES = ("invoice.paid", "push", "order.created", "message.posted")
STATUSES = {"handled": 88, "ignored": 6, "failed": 3, "dead": 3}
QUEUE = "knocker.events"


def webhooks(world: World) -> Iterator[Load]:
    yield load(
        "knocker_endpoints",
        "id name path provider created_at",
        [(number, name, f"/hooks/{name}", name, world.ago(400 * DAY)) for number, name in enumerate(ENDPOINTS, 1)],
    )
    family = _WebhookRows(world)
    family.ordinary()
    family.planted()
    columns = "id endpoint_id event_type provider_event_id dedupe_key status attempt_count headers_json body received_at handled_at"
    yield load("knocker_events", columns, family.events)
    yield load("knocker_attempts", "event_id outcome error duration_ms attempted_at", family.attempts)
    columns = "endpoint_id event_id provider_delivery_id signature_valid signature_error headers_json body received_at"
    yield load("knocker_deliveries", columns, family.deliveries)
    jobs = [(queue, json.dumps({"event_id": event}), worker, time) for queue, event, worker, time in family.jobs]
    yield load("_honker_live", "queue payload worker_id run_at", jobs)


class _WebhookRows:
    def __init__(self, world: World) -> None:
        self.world = world
        self.luck = world.luck("knocker_events")
        self.events: list[tuple[Any, ...]] = []
        self.attempts: list[tuple[Any, ...]] = []
        self.deliveries: list[tuple[Any, ...]] = []
        self.jobs: list[tuple[Any, ...]] = []

    def ordinary(self) -> None:
        luck, world = self.luck, self.world
        for number, time in enumerate(world.times(luck, world.count(0.06), days=30)):
            [status] = luck.choices(list(STATUSES), list(STATUSES.values()))
            if time > world.ago(HOUR):
                status = luck.choice(("received", "processing", "handled"))
            event = self.event(f"evt-{number:07}", status, time)
            for _ in range(1 + (luck.random() < 0.1)):
                self.delivery(event, f"dlv-{len(self.deliveries):07}", time)
            if status in ("received", "processing"):
                self.jobs.append((QUEUE, event, None, time))
            elif luck.random() < 0.02:
                self.jobs.append((QUEUE, event, f"worker-{luck.randrange(4)}", time))
        for time in world.times(luck, world.count(0.004), days=5):
            self.delivery(None, f"dlv-{len(self.deliveries):07}", time)

    def planted(self) -> None:
        world, old = self.world, self.world.ago(60 * DAY)
        for name, receipt in zip(trap("dead-event").values(), trap("receipt-of-dead").values(), strict=True):
            self.delivery(self.event(name, "dead", old), receipt, old)
        for name in trap("failed-event").values():
            self.event(name, "failed", old)
        for name in trap("stuck-event").values():
            self.event(name, "received", old)
        for name in trap("zero-received").values():
            self.event(name, "handled", 0)
        for name in trap("events-boundary").values():
            self.event(name, "handled", world.ago(7 * DAY))
        for name in trap("young-orphan").values():
            self.delivery(None, name, world.ago(HOUR))
        for number, name in enumerate(trap("other-queue").values()):
            self.jobs.append(("emails", self.event(f"evt-due-{number}", "handled", old), name, old))

    def event(self, dedupe_key: str, status: str, received: int) -> int:
        number, luck = len(self.events) + 1, self.luck
        kind = luck.randrange(len(ENDPOINTS))
        tries = {"received": 0, "processing": 1, "failed": 2, "dead": 5}.get(status, 1)
        ended = received + luck.randrange(1, 90) if status in ("handled", "ignored") else None
        for attempt in range(tries):
            last = attempt == tries - 1 and ended is not None
            outcome, error = (status, None) if last else ("failed", "handler raised")
            self.attempts.append((number, outcome, error, luck.randrange(5, 900), received + attempt * 60))
        body = f'{{"id": "{dedupe_key}"}}'.encode()
        self.events.append(
            (number, kind + 1, TYPES[kind], dedupe_key, dedupe_key, status, tries, "{}", body, received, ended)
        )
        return number

    def delivery(self, event: int | None, name: str, received: int) -> None:
        valid = event is not None
        endpoint = self.events[event - 1][1] if event is not None else self.luck.randrange(len(ENDPOINTS)) + 1
        error = None if valid else "signature does not match"
        self.deliveries.append((endpoint, event, name, valid, error, "{}", f'{{"n": "{name}"}}'.encode(), received))
