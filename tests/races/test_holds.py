"""When placing a hold has returned, no batch can take what is held: not one that read before, not one that comes
later."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from races.racing import (
    FOLLOWED,
    GUARDED,
    JOBS,
    Background,
    Paused,
    audited,
    await_waiting,
    backend_of,
    create,
    enabled_keeper,
    fill,
    ids,
    sweeper,
)
from servers import Database
from wane._db.postgres.transaction import PostgresTransaction
from wane._db.sqlite.transaction import SqliteTransaction
from wane._keeper import open_keeper
from wane._prune.sweep import Outcome
from wane.errors import WrongArgument

pytestmark = pytest.mark.usefixtures("patient")

KINDS: dict[str, type[Any]] = {"sqlite": SqliteTransaction, "postgres": PostgresTransaction}


def is_locked(database: Database) -> bool:
    """Return whether another connection is writing to the SQLite file right now."""
    probe = database.connect()
    probe.execute("PRAGMA busy_timeout = 0")
    try:
        probe.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    probe.execute("ROLLBACK")
    return False


@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED], ids=["plain", "guarded", "followed"])
@pytest.mark.parametrize("held", ["a row of the batch", "a later row", "the table"])
def test_a_hold_waits_for_the_batch_that_is_under_way(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contract: str, held: str
) -> None:
    create(database, "REFERENCES jobs")
    if contract is JOBS:
        database.execute("DROP TABLE notes")
    fill(database, 4)
    key = {"a row of the batch": {"id": 2}, "a later row": {"id": 4}, "the table": None}[held]
    with (
        enabled_keeper(database, tmp_path, contract) as keeper,
        open_keeper(database.url, contract=keeper.contract) as other,
    ):
        # The batch has deleted its rows, and has yet to write its audit row and to commit.
        pause = Paused(monkeypatch, KINDS[database.store], "execute", "INSERT INTO")
        batch = Background(lambda: keeper.prune("jobs", rule="done", limit=3))
        pause.await_reached()
        holding = Background(lambda: other.hold("jobs", key, reason="a test"))
        if database.store == "postgres":
            await_waiting(database, backend_of(other), backend_of(keeper))
        else:
            assert is_locked(database)
        assert holding.running
        pause.go_on.set()
        assert batch.result().rows == 3
        if held == "a row of the batch":
            with pytest.raises(WrongArgument, match="no row"):
                holding.result()
            return
        holding.result()
        assert keeper.prune("jobs", rule="done", limit=10).rows == 0
        assert sweeper(keeper).sweep().rules[0].outcome is Outcome.DONE
        assert ids(database) == [4]
        assert audited(keeper) == 3


@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED], ids=["plain", "guarded", "followed"])
def test_a_batch_waits_for_the_hold_that_is_being_placed(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contract: str
) -> None:
    create(database, "REFERENCES jobs")
    if contract is JOBS:
        database.execute("DROP TABLE notes")
    fill(database, 4)
    with (
        enabled_keeper(database, tmp_path, contract) as keeper,
        open_keeper(database.url, contract=keeper.contract) as other,
    ):
        pause = Paused(monkeypatch, KINDS[database.store], "execute", "INSERT INTO")
        holding = Background(lambda: other.hold("jobs", {"id": 2}, reason="a test"))
        pause.await_reached()
        batch = Background(lambda: keeper.prune("jobs", rule="done", limit=10))
        if database.store == "postgres":
            await_waiting(database, backend_of(keeper), backend_of(other))
        else:
            assert is_locked(database)
        assert batch.running
        pause.go_on.set()
        holding.result()
        assert batch.result().rows == 3
        assert ids(database) == [2]


def test_a_hold_on_a_follower_waits_for_the_batch_that_would_take_it_along(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(database, "REFERENCES jobs ON DELETE CASCADE")
    fill(database, 2)
    database.execute("INSERT INTO notes VALUES (1, 1, 'a'), (2, 2, 'b')")
    with (
        enabled_keeper(database, tmp_path, FOLLOWED) as keeper,
        open_keeper(database.url, contract=keeper.contract) as other,
    ):
        pause = Paused(monkeypatch, KINDS[database.store], "execute", "INSERT INTO")
        batch = Background(lambda: keeper.prune("jobs", rule="done", limit=2))
        pause.await_reached()
        holding = Background(lambda: other.hold("notes", {"id": 2}, reason="a test"))
        if database.store == "postgres":
            await_waiting(database, backend_of(other), backend_of(keeper))
        else:
            assert is_locked(database)
        pause.go_on.set()
        assert batch.result().counts == {"jobs": 1, "notes": 1}
        holding.result()
        assert keeper.prune("jobs", rule="done", limit=10).rows == 0
        assert ids(database) == ids(database, "notes") == [2]
