"""Sweeps that are alone hardly pause; as soon as anyone else uses the database, they do."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from races.racing import JOBS, create, fill, kept, sweeper
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._db import open_store
from wane._db.store import Activity
from wane._db.url import resolve_url
from wane._prune.others import OtherUsers
from wane._prune.pace import Pace
from wane.events import BatchTaken, Event

PACE = Pace(target_seconds=10.0, first_batch=4, least_batch=4, most_batch=4, most_pause_seconds=0.001)


@dataclass
class Counters:
    """A database whose counters a test moves; a sweep's own batch counts as one change and two transactions."""

    changes: int = 0
    transactions: int = 0
    seconds: float = 0.0
    known: bool = True
    others: OtherUsers = field(init=False)

    def __post_init__(self) -> None:
        store = SimpleNamespace(activity=self.read, own_activity=Activity(1, 2))
        self.others = OtherUsers(store, lambda: self.seconds)  # type: ignore[arg-type]

    def read(self) -> Activity | None:
        return Activity(self.changes, self.transactions) if self.known else None

    def batch(self, changes: int = 0, transactions: int = 0, seconds: float = 0.125) -> bool:
        """Take a batch while others do some work; return whether the sweep is alone."""
        self.changes += 1 + changes
        self.transactions += 2 + transactions
        self.seconds += seconds
        return self.others.are_absent()


def test_a_sweep_is_alone_once_nothing_was_seen_for_a_second() -> None:
    counters = Counters()
    assert [counters.batch() for _ in range(11)] == [False] * 8 + [True] * 3


def test_one_change_of_another_is_noticed_after_the_same_batch() -> None:
    counters = Counters()
    [counters.batch() for _ in range(20)]
    assert not counters.batch(changes=1, transactions=1)
    assert [counters.batch() for _ in range(10)] == [False] * 7 + [True] * 3


def test_many_reads_of_others_are_noticed_and_a_few_are_not() -> None:
    counters = Counters()
    [counters.batch() for _ in range(20)]
    assert [counters.batch(transactions=number % 3 == 0) for number in range(20)] == [True] * 20
    assert not counters.batch(transactions=40)


def test_counters_that_are_unknown_say_nothing_about_others() -> None:
    counters = Counters(known=False)
    assert not any(counters.batch() for _ in range(30))


def test_the_pace_alone_works_eight_times_as_much_and_never_more_than_always() -> None:
    assert Pace(duty=0.1).alone.pause_seconds(0.008) == pytest.approx(0.002)
    assert Pace(duty=0.5).alone.pause_seconds(0.008) == 0
    assert not Pace(duty=1.0).pauses


def test_a_store_counts_what_others_commit_and_its_own_batches(database: Database, tmp_path: Path) -> None:
    create(database)
    fill(database, 40)
    found: list[Activity | None] = []
    with kept(database, tmp_path, JOBS) as keeper:

        def listen(event: Event) -> None:
            if isinstance(event, BatchTaken):
                found.append(keeper.store.activity())

        assert sweeper(keeper, listen, pace=PACE).sweep().rules[0].counts == {"jobs": 40}
        assert None not in found
        steps = [two.changes - one.changes for one, two in pairwise(found) if one and two]
        assert max(set(steps), key=steps.count) == keeper.store.own_activity.changes
        before = keeper.store.activity()
        database.execute("INSERT INTO jobs (id, status, done_at) VALUES (99, 'open', 1)")
        after = keeper.store.activity()
        assert before is not None
        assert after is not None
        assert after.changes > before.changes


@pytest.mark.parametrize("beside", ["nobody", "an application"])
def test_pauses_are_short_beside_nobody_and_long_beside_an_application(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    monkeypatch.setattr("wane._prune.others._QUIET_SECONDS", 1e-9)
    monkeypatch.setattr("wane._prune.others._WINDOW_SECONDS", 1e-9)
    create(database)
    fill(database, 80)
    worked: list[float] = []
    waited: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0.0)
            return False

    def listen(event: Event) -> None:
        if isinstance(event, BatchTaken):
            worked.append(event.seconds)
            if beside == "an application":
                database.execute("UPDATE jobs SET beat = beat + 1 WHERE id = 80")

    with kept(database, tmp_path, JOBS) as keeper:
        pace = Pace(target_seconds=10.0, first_batch=4, least_batch=4, most_batch=4, most_pause_seconds=1000.0)
        sweeper(keeper, listen, pace=pace, stop=Stop()).sweep()
    shares = sorted(work / (work + wait) for work, wait in zip(worked[3:], waited[3:], strict=False))
    assert len(shares) > 10
    # Now and then the server itself does something.
    middle = shares[len(shares) // 2]
    assert middle == pytest.approx(0.8 if beside == "nobody" else 0.1)


def test_readers_of_a_sqlite_file_do_not_count(sqlite_database: SqliteDatabase) -> None:
    with open_store(resolve_url(sqlite_database.url)) as store:
        before = store.activity()
        sqlite_database.query("SELECT * FROM sqlite_master")
        assert store.activity() == before


def test_readers_of_postgresql_count(postgres_database: PostgresDatabase) -> None:
    with open_store(resolve_url(postgres_database.url)) as store:
        before = store.activity()
        for _ in range(20):
            postgres_database.query("SELECT 1")
        postgres_database.query("SELECT pg_stat_force_next_flush()")
        after = store.activity()
        assert before is not None
        assert after is not None
        assert after.transactions - before.transactions > 20
