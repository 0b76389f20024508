"""Processes that use one queue at the same time: `python swarm.py URL ROLE COUNT SEED`.

Each is forked, opens the database for itself, and prints one line of JSON per thing that it did, after it was done. A
line that is there is true; what was done right before a kill may have no line.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

from wane._db import open_store
from wane._db.postgres import store as imported  # noqa: F401 - before processes are forked
from wane._db.url import resolve_url
from wane.queue import Queue, RetryPolicy

LEASE_SECONDS = 0.5
POLICY = RetryPolicy(attempts=1000, lease=timedelta(seconds=LEASE_SECONDS))


def report(**what: Any) -> None:
    os.write(1, (json.dumps({**what, "process": os.getpid()}) + "\n").encode())


def drain(queue: Queue, generator: random.Random) -> None:
    """Reserve and ack until nothing is left, one or several at a time, now and then with kinds."""
    while True:
        kinds = generator.choice([None, None, ["a", "b"], ["b", "a", "c"]])
        taken = queue.reserve_many(generator.choice([1, 1, 3]), kinds=kinds)
        for one in taken:
            report(
                took=one.message_id,
                deliveries=one.message.deliveries,
                answer=queue.ack(one.message_id, one.token).answer,
            )
        if not taken and not queue.messages(limit=1):
            return


def churn(queue: Queue, generator: random.Random) -> None:
    """Enqueue, reserve, ack, release, renew, expire, until it is killed."""
    number = 0
    while True:
        number += 1
        key = f"{os.getpid()}-{number}"
        report(sent=queue.enqueue("k", message_id=key).message_id)
        for one in queue.reserve_many(generator.choice([1, 2, 4])):
            end = generator.random()
            if end < 0.6:
                report(acked=one.message_id, answer=queue.ack(one.message_id, one.token).answer)
            elif end < 0.8:
                queue.release(one.message_id, one.token, "later")
            elif end < 0.9:
                queue.renew(one.message_id, one.token)
        if generator.random() < 0.1:
            queue.expire_leases(10)


def listen(queue: Queue, generator: random.Random) -> None:
    """Follow the sequence until it says that the work is done; every message must be seen without waiting for a
    timeout."""
    after = 0
    while True:
        report(waiting=after)
        found = queue.wait_for_wakeup(after, 20)
        report(received=found, at=time.time())
        if found is None or queue.messages(kind="end", limit=1):
            return
        assert found > after
        after = found


ROLES: dict[str, Callable[[Queue, random.Random], None]] = {"drain": drain, "churn": churn, "listen": listen}


def main(url: str, role: str, count: int, seed: int) -> None:
    children = []
    together = multiprocessing.get_context("fork").Barrier(count)
    for number in range(count):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with open_store(resolve_url(url)) as store, closing(Queue(store, "pool", policy=POLICY)) as queue:
                    together.wait(60)
                    report(ready=True)
                    ROLES[role](queue, random.Random(f"{seed} {number}"))
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    failed = [child for child in children if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) not in (0, -9)]
    sys.exit(len(failed))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
