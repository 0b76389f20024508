"""`wane.testing`, as the tests of an application use it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contrib.shop import DUE, FRESH_MS, make_shop
from servers import Database
from wane import Keeper
from wane import open as open_keeper
from wane.testing import TestClock, assert_covered, assert_due, assert_nothing_due

FRESH = datetime.fromtimestamp(FRESH_MS / 1000, UTC)

CONFTEST = """\
import pytest
pytest_plugins = ["wane.testing"]

@pytest.fixture
def wane_url():
    return {url!r}
"""
TESTS = """\
from wane.testing import assert_covered, assert_due

def test_the_contract_covers_the_schema(wane_keeper):
    assert_covered(wane_keeper)

def test_what_is_due(wane_keeper, wane_clock):
    before = wane_clock.now
    assert_due(wane_keeper, "jobs.done", 5, at=before)
    assert wane_clock.advance(days=1) > before
    assert_due(wane_keeper, "jobs", 5, at=wane_clock.now)

def test_what_is_not(wane_keeper):
    assert_due(wane_keeper, "jobs.done", 4)
"""


@pytest.fixture
def keeper(database: Database, tmp_path: Path) -> Keeper:
    return open_keeper(database.url, contract=make_shop(database, tmp_path))


def test_rows_become_due_when_the_clock_passes_their_window(keeper: Keeper) -> None:
    clock = TestClock(FRESH)
    with keeper:
        assert_due(keeper, "jobs.done", DUE)
        clock.advance(timedelta(days=7))
        assert_due(keeper, "jobs.done", DUE, at=clock.now)
        clock.advance(seconds=1)
        assert_due(keeper, "jobs.done", DUE + 1, at=clock.now)


def test_a_wrong_number_is_named_with_what_is_due(keeper: Keeper) -> None:
    with keeper:
        with pytest.raises(
            AssertionError, match=r"5 rows are due, not 4\n  jobs.done: 5 due, before \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$"
        ):
            assert_due(keeper, "jobs", 4)
        with pytest.raises(AssertionError, match="5 rows are due, not 0"):
            assert_nothing_due(keeper)


def test_a_table_that_the_contract_forgot_is_named(database: Database, keeper: Keeper) -> None:
    with keeper:
        assert_covered(keeper)
        database.execute("CREATE TABLE forgotten (id integer PRIMARY KEY)")
        with pytest.raises(AssertionError, match=r"uncovered-table: .*forgotten"):
            assert_covered(keeper)


def test_the_fixtures_of_the_plugin(sqlite_database: Database, tmp_path: Path) -> None:
    make_shop(sqlite_database, tmp_path)
    (tmp_path / "conftest.py").write_text(CONFTEST.format(url=sqlite_database.url), encoding="utf-8")
    (tmp_path / "test_shop.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "5 rows are due, not 4" in done.stdout
