"""The cleanup queue of a Prefect server behind standard input: each line is a call, and each line printed answers one.

As in Prefect itself, every call gets its queue from `get_worker_cleanup_queue()`, and calls run side by side.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any
from uuid import UUID

from prefect.server.worker_communication.cleanup_queue import get_worker_cleanup_queue


async def serve() -> None:
    calls: set[asyncio.Task[None]] = set()
    send({"ready": True})
    while line := await asyncio.to_thread(sys.stdin.readline):
        calls.add(asyncio.create_task(answer(**json.loads(line))))


async def answer(number: int, call: str, options: dict[str, Any]) -> None:
    given = {name: UUID(value) if name.endswith("_id") else value for name, value in options.items()}
    try:
        queue = get_worker_cleanup_queue()
        found = await getattr(queue, call)(**given)
    except Exception as error:
        send({"number": number, "error": type(error).__name__, "message": str(error)})
        return
    send({"number": number, "result": found.model_dump(mode="json") if hasattr(found, "model_dump") else found})


def send(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve())
