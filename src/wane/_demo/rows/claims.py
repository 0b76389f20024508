"""Work claims, and the tombstones of those that were finished and are remembered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wane._demo.rows import DAY, HOUR, MINUTE, Load, World, load
from wane._demo.traps import trap

COLUMNS = "task_id state owner fence created_at claimed_at expires_at completed_at abandoned_at remembered_until"


def claims(world: World) -> Iterator[Load]:
    luck = world.luck("work_claims")
    rows: list[tuple[Any, ...]] = []

    def claim(task: str, state: str, created: int, claimed: int | None = None, **stamps: int) -> None:
        owner = None if state == "available" else f"agent-{luck.randrange(40)}"
        fence = 0 if claimed is None else luck.randrange(1, 9)
        expires = stamps.get("expires", None if claimed is None else claimed + HOUR)
        # This application allows finished work to be claimed again at once: it remembers nothing beyond the end.
        remembered = stamps.get("completed", stamps.get("abandoned", claimed))
        times = (created, claimed, expires, stamps.get("completed"), stamps.get("abandoned"), remembered)
        rows.append((task, state, owner, fence, *map(world.native, times)))

    for number, created in enumerate(world.times(luck, world.count(0.01), days=25)):
        task = f"task-{number:06}"
        claimed = created + luck.randrange(30 * MINUTE)
        ended = claimed + luck.randrange(MINUTE, 50 * MINUTE)
        if ended > world.now:
            claim(task, "available", created)
        elif luck.random() < 0.85:
            claim(task, "completed", created, claimed, completed=ended)
        else:
            claim(task, "abandoned", created, claimed, abandoned=ended)

    old = world.ago(120 * DAY)
    for task in trap("old-live-claim").values():
        claim(task, "claimed", old, old, expires=world.now + 30 * DAY)
    for task in trap("expired-claim").values():
        claim(task, "claimed", old, old, expires=old + HOUR)
    for task in trap("available-again").values():
        claim(task, "available", old, old, completed=old + HOUR, abandoned=old + 2 * HOUR)
    for task in trap("completed-unstamped").values():
        claim(task, "completed", old, old)
    for task in trap("abandoned-lately").values():
        claim(task, "abandoned", old, old, abandoned=world.ago(HOUR))
    for task in trap("claims-boundary").values():
        claim(task, "completed", old, old, completed=world.ago(7 * DAY))
    yield load("work_claims", COLUMNS, rows)

    tombstones: list[tuple[Any, ...]] = []
    for number, finished in enumerate(world.times(luck, world.count(0.004), days=60)):
        times = world.native(finished), world.native(finished + 30 * DAY)
        tombstones.append((f"gone-{number:06}", luck.randrange(1, 9), "completed", *times))
    tombstones += [(task, 3, "completed", world.native(old), None) for task in trap("never-again").values()]
    yield load("work_claim_tombstones", "task_id fence outcome finished_at remembered_until", tombstones)
