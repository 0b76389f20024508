"""Assertions about retention, for the tests of an application, and fixtures for pytest.

In `conftest.py`:

    pytest_plugins = ["wane.testing"]

    @pytest.fixture
    def wane_url(database_url):
        return database_url

A test then states what must be due, at which time:

    def test_done_jobs_leave_after_a_week(wane_keeper, wane_clock):
        insert_job(state="done", finished_at=wane_clock.now)
        assert_due(wane_keeper, "jobs.done", 0, at=wane_clock.now)
        wane_clock.advance(days=7, seconds=1)
        assert_due(wane_keeper, "jobs.done", 1, at=wane_clock.now)
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from wane._db.counting import Exactness
from wane._findings import Severity
from wane._formats import time_text
from wane._keeper import Keeper, open_keeper

if TYPE_CHECKING:
    from wane._prune.plan import Plan

__all__ = ["TestClock", "assert_covered", "assert_due", "assert_nothing_due"]

_COUNTING_SECONDS = 30.0


class TestClock:
    """A time that only a test moves. It begins at the database's own time, without fractions of a second."""

    __test__ = False  # pytest collects classes of that name

    def __init__(self, now: datetime) -> None:
        self.now = now.replace(microsecond=0)

    def advance(self, duration: timedelta | None = None, *, days: float = 0, seconds: float = 0) -> datetime:
        """Move the clock forward, and return the new time."""
        self.now += (duration or timedelta()) + timedelta(days=days, seconds=seconds)
        return self.now


def assert_due(keeper: Keeper, rule: str, rows: int, *, at: datetime | None = None) -> None:
    """Assert that a sweep at that time would take this number of rows, by a `table.rule` or by all rules of a `table`.

    Followers are not counted. The time is the database's own if none is given; nothing leaves.
    """
    plan = _counted_plan(keeper, (rule,), at)
    assert plan.due == rows, f"{plan.due} rows are due, not {rows}\n{_described(plan)}"


def assert_nothing_due(keeper: Keeper, *rules: str, at: datetime | None = None) -> None:
    """Assert that a sweep at that time would take no row, by the named rules or by any."""
    plan = _counted_plan(keeper, rules, at)
    assert plan.due == 0, f"{plan.due} rows are due, not 0\n{_described(plan)}"


def assert_covered(keeper: Keeper) -> None:
    """Assert that the contract fits the database, and mentions every table and state: run it after your migrations."""
    errors = [one for one in keeper.check(strict=True) if one.severity is Severity.ERROR]
    assert not errors, "\n".join(f"{one.code}: {one.message}. {one.fix}" for one in errors)


def _counted_plan(keeper: Keeper, rules: tuple[str, ...], at: datetime | None) -> Plan:
    plan = keeper.plan(*rules, now=at, seconds=_COUNTING_SECONDS)
    assert not plan.problems, "\n".join(one.message for one in plan.problems)
    assert plan.total.exactness is Exactness.EXACT, f"the due rows could not be counted\n{_described(plan)}"
    return plan


def _described(plan: Plan) -> str:
    return "\n".join(
        f"  {step.table}.{step.rule}: {0 if step.due is None else step.due.rows} due, before {time_text(step.cutoff)}"
        for step in plan.steps
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the setting that names the contract."""
    parser.addini("wane_contract", "The contract file, from the root of the project.", default="wane.toml")


@pytest.fixture
def wane_contract(pytestconfig: pytest.Config) -> Path:
    """Return the path of the contract: the setting `wane_contract`."""
    return pytestconfig.rootpath / str(pytestconfig.getini("wane_contract"))


@pytest.fixture
def wane_url() -> str | None:
    """Return the URL of the database to test: override it; otherwise it is the contract's own."""
    return None


@pytest.fixture
def wane_keeper(wane_contract: Path, wane_url: str | None) -> Iterator[Keeper]:
    """Return a keeper of the database, with Wane's own tables in it."""
    with open_keeper(wane_url, contract=wane_contract, actor="pytest") as keeper:
        keeper.migrate()
        yield keeper


@pytest.fixture
def wane_clock(wane_keeper: Keeper) -> TestClock:
    """Return a clock that begins at the database's time."""
    return TestClock(wane_keeper.store.now())
