"""`kill -9` in the middle of everything: no message is lost, and none is done twice.

Processes enqueue, reserve, ack, release and renew as fast as they can, and are killed at seeded times. WANE_KILLS says
how many.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from datetime import timedelta

import pytest

from queueing import message_table, reported, swarm
from servers import Database
from wane._db import Store
from wane.queue import Queue, RetryPolicy

pytestmark = pytest.mark.crash

KILLS = int(os.environ.get("WANE_KILLS", "8"))
AT_ONCE = 4
SEED = 11


@pytest.mark.timeout(max(300, 5 * KILLS))
def test_nothing_is_lost_and_nothing_is_done_twice(database: Database, store: Store) -> None:
    generator = random.Random(SEED)
    lines = []
    for round_ in range(max(1, KILLS // AT_ONCE)):
        with swarm(database, "churn", AT_ONCE, seed=generator.randrange(2**32)) as process:
            assert process.stdout is not None
            first: list[str] = []
            while len(children := {line["process"] for line in reported(first) if "ready" in line}) < AT_ONCE:
                first.append(process.stdout.readline())
            for child in sorted(children):
                time.sleep(generator.uniform(0, 0.25))
                os.kill(child, signal.SIGKILL)
            rest = process.communicate()[0]
            assert process.returncode == 0, f"round {round_}: one of them ended by itself"
            lines += reported([*first, *rest.splitlines()])
    sent = {line["sent"] for line in lines if "sent" in line}
    acked = Counter(line["acked"] for line in lines if line.get("answer") == "accepted")
    assert len(sent) > KILLS
    assert acked, "nothing was done before the kills"
    assert max(acked.values()) == 1, "a message was done twice"
    stored: dict[str, str] = dict(database.query(f"SELECT message_id, state FROM {message_table(database)}"))
    assert sent <= set(stored), "a message is lost"
    assert {name for name in acked if stored[name] != "done"} == set(), "a message that was done came back"
    assert "dead" not in stored.values()
    if database.store == "sqlite":
        assert database.query("PRAGMA integrity_check") == [("ok",)]

    # The next consumer finds everything that the dead held, when its lease has ended, and finishes it.
    queue = Queue(store, "pool", policy=RetryPolicy(attempts=1000, lease=timedelta(seconds=60)))
    finished = 0
    deadline = time.monotonic() + 20
    while queue.messages(limit=1):
        assert time.monotonic() < deadline, "messages of the dead never came back"
        for one in queue.reserve_many(100):
            assert one.message_id not in acked
            assert queue.ack(one.message_id, one.token).accepted
            finished += 1
        time.sleep(0.01)
    # What was acked right before a kill may have no line: done is at least what was reported, and never more than what
    # is there.
    assert len(acked) <= len(stored) - finished
    assert {state for (state,) in database.query(f"SELECT state FROM {message_table(database)}")} == {"done"}
