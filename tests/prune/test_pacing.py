"""Batch after batch: smaller after a failure that another try may not meet, in order, and never for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from servers import SqliteDatabase
from wane._db import open_store
from wane._db.url import resolve_url
from wane._prune.pace import Pace
from wane._prune.pacing import Pacing, Stopped
from wane.errors import Locked, StoreError, TimedOut
from wane.events import Event, SlowedDown

PACE = Pace(target_seconds=1.0, duty=1.0, first_batch=80, least_batch=10, most_batch=80)
PROBLEMS = [Locked("rows are locked"), TimedOut("it took too long")]


@pytest.fixture
def received() -> list[Event]:
    return []


@pytest.fixture
def pacing(sqlite_database: SqliteDatabase, received: list[Event]) -> Iterator[Pacing]:
    with open_store(resolve_url(sqlite_database.url)) as store:
        yield Pacing(store, PACE, threading.Event(), received.append, table="job", rule="old", retry_seconds=0.0)


def failing(problem: Exception, times: int, sizes: list[int]) -> Callable[[int], int]:
    def work(size: int) -> int:
        sizes.append(size)
        if len(sizes) <= times:
            raise problem
        return size

    return work


@pytest.mark.parametrize("problem", PROBLEMS, ids=["locked", "too long"])
def test_a_batch_is_retried_with_half_of_its_size_and_states_why(
    pacing: Pacing, received: list[Event], problem: Exception
) -> None:
    sizes: list[int] = []
    assert pacing.run(failing(problem, 4, sizes)) == 10
    assert sizes == [80, 40, 20, 10, 10]
    assert {(one.table, one.rule) for one in received if isinstance(one, SlowedDown)} == {("job", "old")}
    assert len(received) == 4


@pytest.mark.parametrize("problem", PROBLEMS, ids=["locked", "too long"])
def test_a_batch_is_not_retried_for_ever(pacing: Pacing, problem: Exception) -> None:
    sizes: list[int] = []
    with pytest.raises(type(problem)):
        pacing.run(failing(problem, 1_000, sizes))
    assert len(sizes) == 40


def test_a_batch_that_another_try_does_not_help_is_not_retried(pacing: Pacing, received: list[Event]) -> None:
    sizes: list[int] = []
    with pytest.raises(Locked):
        pacing.run(failing(Locked("rows are locked"), 1, sizes), lambda problem: isinstance(problem, TimedOut))
    with pytest.raises(StoreError):
        pacing.run(failing(StoreError("the disk is full"), 2, sizes))
    assert (sizes, received) == ([80, 80], [])


def test_a_stop_ends_the_work_before_the_next_batch_and_between_two_tries(pacing: Pacing) -> None:
    def work(size: int) -> int:
        pacing.stop.set()
        raise Locked("rows are locked")

    with pytest.raises(Stopped):
        pacing.run(work)
    with pytest.raises(Stopped):
        pacing.run(lambda size: size)


def test_given_items_that_take_too_long_are_worked_on_in_halves_and_in_their_order(pacing: Pacing) -> None:
    done: list[int] = []

    def work(items: Sequence[int]) -> Sequence[int]:
        if len(items) > 3:
            raise TimedOut("it took too long")
        done.extend(items)
        return ()

    pacing.attempt_all(range(10), work)
    assert done == list(range(10))


def test_items_that_others_have_locked_are_retried_and_no_others(pacing: Pacing) -> None:
    tried: list[list[int]] = []

    def work(items: Sequence[int]) -> Sequence[int]:
        tried.append(list(items))
        return [one for one in items if one % 2 and len(tried) < 3]

    pacing.attempt_all([1, 2, 3, 4], work)
    assert tried == [[1, 2, 3, 4], [1, 3], [1, 3]]
    tried.clear()

    def locked(items: Sequence[int]) -> Sequence[int]:
        tried.append(list(items))
        return items

    with pytest.raises(Locked, match="job"):
        pacing.attempt_all([1], locked)
    assert len(tried) == 40


@pytest.mark.parametrize("fails", [0, 4, 9])
def test_a_failure_of_some_items_is_narrowed_down_to_them(pacing: Pacing, fails: int) -> None:
    done: list[int] = []

    def work(items: Sequence[int]) -> Sequence[int]:
        if fails in items:
            raise StoreError("refused")
        done.extend(items)
        return ()

    with pytest.raises(StoreError):
        pacing.attempt_all(range(10), work)
    assert done == []
    with pytest.raises(StoreError):
        pacing.attempt_all(range(10), work, lambda problem: "refused" in problem.message)
    assert done == list(range(fails)), "what comes after it waits for it"


def test_one_item_that_takes_too_long_fails_in_the_end(pacing: Pacing) -> None:
    tried: list[Sequence[int]] = []

    def work(items: Sequence[int]) -> Sequence[int]:
        tried.append(items)
        raise TimedOut("it took too long")

    with pytest.raises(TimedOut):
        pacing.attempt_all([1, 2], work)
    assert (tried[0], len(tried)) == ([1, 2], 41)
