"""Batches that a sweep without pauses takes one after the other (SQLite): what changes between two of them counts in
the next.

The loop rolls back a batch that it did not expect; the same batch is then taken by itself, which decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from races.racing import (
    CAPPED,
    FOLLOWED,
    GUARDED,
    JOBS,
    OLD,
    PATIENCE_SECONDS,
    Background,
    audited,
    create,
    enabled_keeper,
    fill,
    ids,
    ms,
    sweeper,
)
from servers import SqliteDatabase
from wane._db.sqlite.store import SqliteStore
from wane._keeper import Keeper
from wane._leases import Fence, Leases
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome, SweptRule
from wane.events import BatchTaken, Event

SMALL = Pace(target_seconds=10.0, duty=1.0, first_batch=4, least_batch=4, most_batch=4)
ROWS = 80
BEFORE = 10
"""Batches before something happens: from the fifth on they are taken in the loop."""
LEFT = list(range(BEFORE * 4 + 1, ROWS + 1))


@pytest.fixture
def looped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many batches each call of the loop took. Nothing is replaced: calls go through as they are."""
    taken: list[int] = []
    original = SqliteStore.repeat

    def repeat(this: SqliteStore, work: Any) -> Any:
        taken.append(0)
        for one in original(this, work):
            taken[-1] += 1
            yield one

    monkeypatch.setattr(SqliteStore, "repeat", repeat)
    return taken


def swept_beside(keeper: Keeper, change: Callable[[], object], **options: Any) -> SweptRule:
    """Sweep, and change something before the transaction of a batch in the middle of the loop begins."""
    begun = 0

    def trace(text: str) -> None:
        nonlocal begun
        begun += text == "BEGIN IMMEDIATE"
        if begun == BEFORE + 1 and text == "BEGIN IMMEDIATE":
            change()

    assert isinstance(keeper.store, SqliteStore)
    keeper.store._connection.set_trace_callback(trace)
    return sweeper(keeper, pace=SMALL, **options).sweep().rules[0]


@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED], ids=["plain", "guarded", "followed"])
def test_every_batch_has_its_event_and_its_part_of_the_audit_row(
    sqlite_database: SqliteDatabase, tmp_path: Path, looped: list[int], contract: str
) -> None:
    events: list[Event] = []
    create(sqlite_database, "REFERENCES jobs")
    fill(sqlite_database, ROWS)
    if contract is not JOBS:
        sqlite_database.executemany("INSERT INTO notes (id, job_id) VALUES (?, ?)", [(n, n) for n in range(1, 81, 10)])
    with enabled_keeper(sqlite_database, tmp_path, contract) as keeper:
        if contract is JOBS:
            sqlite_database.execute("DROP TABLE notes")
        swept = sweeper(keeper, events.append, pace=SMALL).sweep().rules[0]
        taken = [event for event in events if isinstance(event, BatchTaken)]
        assert sum(looped) > swept.batches // 2
        assert len(taken) == swept.batches
        assert all(event.seconds > 0 and sum(event.counts.values()) <= 4 for event in taken)
        assert sum(event.counts["jobs"] for event in taken) == swept.counts["jobs"] == audited(keeper)
        assert ids(sqlite_database) == (list(range(1, 81, 10)) if contract is GUARDED else [])
        [entry] = keeper.audit()
        assert (entry.batches, entry.counts) == (swept.batches, swept.counts)


def test_rows_with_more_followers_than_those_before_fit_into_their_batches(
    sqlite_database: SqliteDatabase, tmp_path: Path, looped: list[int]
) -> None:
    events: list[Event] = []
    create(sqlite_database, "REFERENCES jobs")
    fill(sqlite_database, ROWS)
    notes = [(10 * n + more, n) for n in range(61, 65) for more in range(3)]
    sqlite_database.executemany("INSERT INTO notes (id, job_id) VALUES (?, ?)", notes)
    with enabled_keeper(sqlite_database, tmp_path, FOLLOWED) as keeper:
        swept = sweeper(keeper, events.append, pace=SMALL).sweep().rules[0]
        assert sum(looped) > 10
        assert swept.counts == {"jobs": ROWS, "notes": 12} == keeper.audit()[0].counts
        assert max(sum(event.counts.values()) for event in events if isinstance(event, BatchTaken)) == 4


def test_the_edge_of_a_cap_is_found_when_others_added_rows(
    sqlite_database: SqliteDatabase, tmp_path: Path, looped: list[int]
) -> None:
    sqlite_database.execute("CREATE TABLE beats (id integer NOT NULL PRIMARY KEY, seen_at bigint NOT NULL)")
    sqlite_database.execute("CREATE INDEX beats_age ON beats (seen_at, id)")
    add = "INSERT INTO beats VALUES (?, ?)"
    sqlite_database.executemany(add, [(n, ms(OLD) + n) for n in range(130)])
    with enabled_keeper(sqlite_database, tmp_path, CAPPED) as keeper:
        more = [(n, ms(OLD) + n) for n in range(130, 140)]
        swept = swept_beside(keeper, lambda: sqlite_database.executemany(add, more))
        assert sum(looped) > 5
        assert (swept.outcome, swept.rows) == (Outcome.DONE, 90)
        assert ids(sqlite_database, "beats") == list(range(90, 140))


@pytest.mark.parametrize("which", [None, "jobs"])
def test_a_gate_that_closes_stops_the_loop(sqlite_database: SqliteDatabase, tmp_path: Path, which: str | None) -> None:
    create(sqlite_database)
    fill(sqlite_database, ROWS)
    sqlite_database.execute("DROP TABLE notes")
    with (
        enabled_keeper(sqlite_database, tmp_path, JOBS) as keeper,
        enabled_keeper(sqlite_database, tmp_path, JOBS) as operator,
    ):
        swept = swept_beside(keeper, lambda: operator.disable(which))
        assert (swept.outcome, ids(sqlite_database), audited(keeper)) == (Outcome.OFF, LEFT, BEFORE * 4)


@pytest.mark.parametrize("references", ["REFERENCES jobs", "REFERENCES jobs ON DELETE CASCADE", ""])
def test_a_reference_that_appears_between_two_batches_saves_its_row(
    sqlite_database: SqliteDatabase, tmp_path: Path, looped: list[int], references: str
) -> None:
    create(sqlite_database, references)
    fill(sqlite_database, ROWS)
    with enabled_keeper(sqlite_database, tmp_path, GUARDED) as keeper:
        add = "INSERT INTO notes (id, job_id) VALUES (1, 42), (2, 60)"
        swept = swept_beside(keeper, lambda: sqlite_database.execute(add))
        assert sum(looped) > BEFORE
        assert (swept.outcome, ids(sqlite_database)) == (Outcome.DONE, [42, 60])
        assert sqlite_database.query("SELECT id, job_id FROM notes ORDER BY id") == [(1, 42), (2, 60)]
        assert swept.counts == keeper.audit()[0].counts == {"jobs": ROWS - 2}


@pytest.mark.parametrize("references", ["REFERENCES jobs", "REFERENCES jobs ON DELETE CASCADE", ""])
def test_a_follower_that_appears_between_two_batches_leaves_counted(
    sqlite_database: SqliteDatabase, tmp_path: Path, looped: list[int], references: str
) -> None:
    create(sqlite_database, references)
    fill(sqlite_database, ROWS)
    with enabled_keeper(sqlite_database, tmp_path, FOLLOWED) as keeper:
        add = "INSERT INTO notes (id, job_id) VALUES (1, 42), (2, 42), (3, 60)"
        swept = swept_beside(keeper, lambda: sqlite_database.execute(add))
        assert sum(looped) > BEFORE
        assert ids(sqlite_database) == ids(sqlite_database, "notes") == []
        assert swept.counts == keeper.audit()[0].counts == {"jobs": ROWS, "notes": 3}


def test_a_held_row_stays_and_the_others_leave(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    create(sqlite_database)
    fill(sqlite_database, ROWS)
    sqlite_database.execute("DROP TABLE notes")
    with (
        enabled_keeper(sqlite_database, tmp_path, JOBS) as keeper,
        enabled_keeper(sqlite_database, tmp_path, JOBS) as operator,
    ):
        swept = swept_beside(keeper, lambda: operator.hold("jobs", {"id": 60}, reason="a test"))
        assert (swept.outcome, ids(sqlite_database), audited(keeper)) == (Outcome.DONE, [60], ROWS - 1)


HELD = {"a row": ({"id": 60}, [60]), "the table": (None, LEFT)}


@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED], ids=["plain", "guarded", "followed"])
@pytest.mark.parametrize("held", HELD)
def test_a_batch_of_the_loop_waits_for_the_hold_that_is_being_placed(
    sqlite_database: SqliteDatabase, tmp_path: Path, looped: list[int], contract: str, held: str
) -> None:
    """The hold is committed only after the batch tried a third time to get the write lock."""
    key, stay = HELD[held]
    create(sqlite_database, "REFERENCES jobs")
    fill(sqlite_database, ROWS)
    if contract is JOBS:
        sqlite_database.execute("DROP TABLE notes")
    placed, begun, waiting = threading.Event(), 0, threading.Event()
    with (
        enabled_keeper(sqlite_database, tmp_path, contract) as keeper,
        enabled_keeper(sqlite_database, tmp_path, contract) as operator,
    ):

        def commit(text: str) -> None:
            if text == "COMMIT" and not placed.is_set():
                placed.set()
                assert waiting.wait(PATIENCE_SECONDS)

        def trace(text: str) -> None:
            nonlocal begun
            begun += text == "BEGIN IMMEDIATE"
            if begun == BEFORE + 1 and not holding:
                holding.append(Background(lambda: operator.hold("jobs", key, reason="a test")))
                assert placed.wait(PATIENCE_SECONDS)
            if begun > BEFORE + 3:
                waiting.set()

        holding: list[Background[object]] = []
        assert isinstance(keeper.store, SqliteStore)
        assert isinstance(operator.store, SqliteStore)
        operator.store._connection.set_trace_callback(commit)
        keeper.store._connection.set_trace_callback(trace)
        swept = sweeper(keeper, pace=SMALL).sweep().rules[0]
        [hold] = holding
        hold.result()
        assert 0 < looped[0] < BEFORE, "it was the loop that did not get the lock"
        assert (swept.outcome, ids(sqlite_database), audited(keeper)) == (Outcome.DONE, stay, ROWS - len(stay))


LOSSES = {
    "another's": "fence = fence + 1",
    "ended": "until = '2001-01-01T00:00:00.000000Z'",
}


@pytest.mark.parametrize("lost", LOSSES)
def test_a_lost_lease_stops_the_loop(sqlite_database: SqliteDatabase, tmp_path: Path, lost: str) -> None:
    create(sqlite_database)
    fill(sqlite_database, ROWS)
    sqlite_database.execute("DROP TABLE notes")
    with enabled_keeper(sqlite_database, tmp_path, JOBS) as keeper:
        store = keeper.store
        with store.write() as (run, now):
            _, lease = Leases(store.dialect).take(run, "sweep:jobs", "race", store.now() + timedelta(hours=1), now)
        fence = Fence(lease, None, 20.0, "it is another's")
        change = f"UPDATE wane_lease SET {LOSSES[lost]}"
        swept = swept_beside(keeper, lambda: sqlite_database.execute(change), fence=fence)
        assert (swept.outcome, ids(sqlite_database), audited(keeper)) == (Outcome.STOPPED, LEFT, BEFORE * 4)


FAILURES = {
    "audit row": ("DELETE FROM wane_audit", "audit row is missing"),
    "cascade": ("CREATE TABLE notes (id integer, job_id bigint REFERENCES jobs ON DELETE CASCADE)", "notes"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_what_fails_a_batch_fails_it_in_the_loop(sqlite_database: SqliteDatabase, tmp_path: Path, failure: str) -> None:
    create(sqlite_database)
    fill(sqlite_database, ROWS)
    sqlite_database.execute("DROP TABLE notes")
    text, message = FAILURES[failure]
    with enabled_keeper(sqlite_database, tmp_path, JOBS) as keeper:
        swept = swept_beside(keeper, lambda: sqlite_database.execute(text))
        assert (swept.outcome, ids(sqlite_database)) == (Outcome.FAILED, LEFT)
        assert message in swept.message


def test_a_file_that_is_replaced_gets_nothing_of_the_loop(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    create(sqlite_database)
    fill(sqlite_database, ROWS)
    sqlite_database.execute("DROP TABLE notes")
    path = Path(sqlite_database.url.removeprefix("sqlite:///"))
    with enabled_keeper(sqlite_database, tmp_path, JOBS) as keeper:
        swept = swept_beside(keeper, lambda: path.rename(tmp_path / "moved"))
        assert (swept.outcome, "was moved" in swept.message) == (Outcome.FAILED, True)
        (tmp_path / "moved").rename(path)
        assert ids(sqlite_database) == LEFT
