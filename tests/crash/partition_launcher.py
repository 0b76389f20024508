"""Starts processes that convert a table, keep it and take it back, one after the other, so that each can be killed:
`python partition_launcher.py URL CONTRACT FURTHER STEPS`; with - for FURTHER, processes that let months go.

For every line (a seed, and a step or "-") it forks a process and prints its number; when that process is gone, it
prints how it ended. The process goes on until it is killed: forward or back, whatever the journal allows. With a step,
it waits there to be killed.
"""

from __future__ import annotations

import random
import sys
import time
from functools import partial
from pathlib import Path

import psycopg

from crash.launcher import Steps, serve
from wane._keeper import open_keeper
from wane._partition import work
from wane._partition.sql import PostgresPartitions
from wane._prune.pace import Pace
from wane.errors import LeaseLost, PartitionBusy

PACE = Pace(target_seconds=1.0, duty=1.0, first_batch=10, least_batch=10, most_batch=10)
COPYING = Pace(target_seconds=1.0, duty=1.0, first_batch=500, least_batch=500, most_batch=500)
STEPS = {
    "build_index": "index",
    "make_root": "root",
    "bound": "bound",
    "validate": "validate",
    "swap": "swap",
    "analyze": "analyze",
    "discard": "discard",
    "drop_own_indexes": "drop indexes",
    "swap_back": "swap back",
    "merge": "merge",
    "drop_merged": "drop merged",
    "restore_keys": "restore keys",
    "validate_keys": "validate keys",
    "add_month": "month",
    "begin_split": "begin split",
    "copy_some": "copy",
    "differs": "prove",
    "swap_split": "swap split",
    "discard_split": "discard split",
}
"""Every step of converting and going back that changes something, and what it is called in the log."""
LEAVING = {
    "weigh": "weigh",
    "detach": "detach",
    "quarantine": "put aside",
    "take_along": "take along",
    "put_back": "put back",
    "drop_quarantined": "drop",
}
"""The same of months that leave and come back."""


def put_far_rows(url: str) -> None:
    """Insert rows of months to come: what going back has to move."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO event (code, created_at) SELECT 'far ' || gen_random_uuid(), now() + g * interval '5 days'"
            " FROM generate_series(10, 40) AS g"
        )


def take_far_rows(url: str) -> None:
    """Delete them: with them every conversion would begin later and later."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM event WHERE code LIKE 'far %'")


def change(url: str, contract: Path, further: Path, steps: Steps, generator: random.Random) -> None:
    work.LEASE_SECONDS = 1
    for method, step in STEPS.items():
        steps.before(PostgresPartitions, method, step)
    with (
        open_keeper(url, contract=contract, actor="to be killed") as near,
        open_keeper(url, contract=further, actor="to be killed") as far,
    ):
        while True:
            try:
                plan = near.partition.plan("event")
                states = {plan.state, plan.along[0].state}
                forward = generator.random() < 0.5 and not steps.target.startswith("discard")
                if any(state.startswith("undo") for state in states):
                    near.partition.undo("event", pace=PACE)
                elif states == {"plain"}:
                    take_far_rows(url)
                    near.partition.convert("event", accept=True)
                elif (any(state.startswith("split") for state in states) and forward) or (
                    states == {"partitioned"} and generator.random() < 0.3
                ):
                    near.partition.convert("event", accept=True)  # One that follows may be plain again by now.
                    near.partition.split("event", pace=COPYING)
                elif states == {"partitioned"} and forward:
                    put_far_rows(url)
                    far.partition.maintain("event")
                elif forward:
                    near.partition.convert("event", accept=True)
                else:
                    near.partition.undo("event", pace=PACE)
            except (PartitionBusy, LeaseLost):
                time.sleep(0.05)


def leave(url: str, contract: Path, steps: Steps, generator: random.Random) -> None:
    """Let months go and come back; only who is to be killed at the drop lets the quarantine end."""
    work.LEASE_SECONDS = 1
    for method, step in LEAVING.items():
        steps.before(PostgresPartitions, method, step)
    quarantined = "SELECT partition FROM wane.partition_retired WHERE state = 'quarantined'"
    with (
        open_keeper(url, contract=contract, actor="to be killed") as keeper,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        while True:
            try:
                if steps.target == "drop":
                    connection.execute("UPDATE wane.partition_retired SET drop_at = now() WHERE state = 'quarantined'")
                done = keeper.partition.retire("event", pace=PACE)
                assert all(one.outcome in ("quarantined", "dropped") for one in done), done
                for (partition,) in connection.execute(quarantined).fetchall() if steps.target != "drop" else ():
                    if generator.random() < 0.7:
                        keeper.partition.reattach("event", partition)
            except (PartitionBusy, LeaseLost):
                time.sleep(0.05)


def main(url: str, contract: str, further: str, log: str) -> None:
    if further == "-":
        serve(log, partial(leave, url, Path(contract)))
    else:
        serve(log, partial(change, url, Path(contract), Path(further)))


if __name__ == "__main__":
    main(*sys.argv[1:])
