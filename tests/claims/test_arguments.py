"""What callers may pass by mistake, and databases that cannot be used: refused in words, and nothing changes."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from claims.working import denied, finish, granted, submitted, tasks, working
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane.claims import Holding, Reclaim, WorkClaims
from wane.errors import Locked, StoreError, Unreachable, WrongArgument, WrongArgumentType

NAMES = [
    pytest.param("", WrongArgument, id="empty"),
    pytest.param(" \t\n", WrongArgument, id="blank"),
    pytest.param("a\x00b", WrongArgument, id="NUL"),
    pytest.param("\ud800", WrongArgument, id="half a character"),
    pytest.param("x" * 1_001, WrongArgument, id="huge"),
    pytest.param("😀" * 251, WrongArgument, id="huge in bytes"),
    pytest.param(b"bytes", WrongArgumentType, id="bytes"),
    pytest.param(7, WrongArgumentType, id="number"),
    pytest.param(None, WrongArgumentType, id="None"),
    pytest.param(["t"], WrongArgumentType, id="list"),
]
GOOD = ["x" * 1_000, "😀" * 250, "é / ' \" % %s :now ; -- \\", "  padded  ", "ÄÖ\u202e\n\t", "%(task)s", "0"]
TTLS = [
    pytest.param(0, WrongArgument, id="zero"),
    pytest.param(-1, WrongArgument, id="negative"),
    pytest.param(math.nan, WrongArgument, id="nan"),
    pytest.param(math.inf, WrongArgument, id="infinite"),
    pytest.param(10**400, WrongArgument, id="huge"),
    pytest.param(1e-9, WrongArgument, id="too short"),
    pytest.param(timedelta(days=367), WrongArgument, id="too long"),
    pytest.param(timedelta(seconds=-5), WrongArgument, id="negative timedelta"),
    pytest.param(timedelta.max, WrongArgument, id="longest timedelta"),
    pytest.param(True, WrongArgumentType, id="bool"),
    pytest.param("60", WrongArgumentType, id="text"),
    pytest.param(None, WrongArgumentType, id="None"),
]


@pytest.mark.parametrize(("name", "error"), NAMES)
def test_a_name_that_cannot_be_stored_is_refused(
    claims: WorkClaims, database: Database, name: Any, error: type[Exception]
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: claims.submit(name),
        lambda: claims.claim(name, "ada", 60),
        lambda: claims.claim("t", name, 60),
        lambda: claims.get(name),
        lambda: claims.remembered(name),
        lambda: claims.complete(Holding(name, "ada", 1)),
        lambda: claims.extend(Holding("t", name, 1), 60),
    ]
    for call in calls:
        with pytest.raises(error):
            call()
    assert tasks(database) == []


@pytest.mark.parametrize("name", GOOD)
def test_any_other_name_comes_back_as_it_was(claims: WorkClaims, name: str) -> None:
    assert submitted(claims.submit(name)).task_id == name
    claim = granted(claims.claim(name, name, 60))
    assert (claim.task_id, claim.owner) == (name, name)
    assert denied(claims.claim(name, "bob", 60)).owner == name
    claims.complete(claims.extend(claim, 120))
    memory = claims.remembered(name)
    assert memory is not None
    assert (memory.task_id, memory.owner) == (name, name)


def test_names_are_reported_apart_byte_by_byte(claims: WorkClaims) -> None:
    for name in ("t", "T", "t ", "\u00e9", "e\u0301"):
        granted(claims.claim(name, "ada", 60))


@pytest.mark.parametrize(("ttl", "error"), TTLS)
def test_a_time_to_live_that_cannot_be_meant_is_refused(
    claims: WorkClaims, database: Database, ttl: Any, error: type[Exception]
) -> None:
    claim = granted(claims.claim("t", "ada", 60))
    with pytest.raises(error):
        claims.claim("u", "ada", ttl)
    with pytest.raises(error):
        claims.extend(claim, ttl)
    assert tasks(database) == ["t"]


@pytest.mark.parametrize("fence", [0, -1, 2**63, 10**30])
def test_a_number_that_was_never_a_fence_is_refused(claims: WorkClaims, fence: int) -> None:
    with pytest.raises(WrongArgument, match="not a valid fence"):
        claims.complete(Holding("t", "ada", fence))


@pytest.mark.parametrize("claim", ["t", None, ("t", "ada", 1), {"task_id": "t"}, Holding("t", "ada", True)])
def test_what_is_no_claim_is_refused(claims: WorkClaims, claim: Any) -> None:
    for act in (claims.complete, claims.abandon):
        with pytest.raises(WrongArgumentType):
            act(claim)


def test_a_denial_is_no_claim(claims: WorkClaims) -> None:
    granted(claims.claim("t", "ada", 60))
    with pytest.raises(WrongArgumentType):
        claims.complete(claims.claim("t", "bob", 60))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reason", "error"),
    [("a\x00b", WrongArgument), ("\udfff", WrongArgument), ("x" * 10_001, WrongArgument), (7, WrongArgumentType)],
    ids=["NUL", "half a character", "huge", "number"],
)
def test_a_reason_that_cannot_be_stored_is_refused(claims: WorkClaims, reason: Any, error: type[Exception]) -> None:
    claim = granted(claims.claim("t", "ada", 60))
    with pytest.raises(error):
        claims.abandon(claim, reason=reason)
    assert claims.abandon(claim, reason="😀 can't").reason == "😀 can't"


@pytest.mark.parametrize(
    ("state", "error"), [("complete", WrongArgument), ("", WrongArgument), (None, WrongArgumentType)]
)
def test_a_state_that_does_not_exist_is_refused(claims: WorkClaims, state: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        claims.list_by_state(state)


def test_a_state_that_is_nearly_right_is_suggested(claims: WorkClaims) -> None:
    with pytest.raises(WrongArgument, match="did you mean 'completed'"):
        claims.list_by_state("complete")


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, "5"])
def test_every_list_is_bounded(claims: WorkClaims, limit: Any) -> None:
    for call in (
        claims.list_expired,
        claims.return_expired,
        lambda limit: claims.list_by_state("available", limit=limit),
    ):
        with pytest.raises((WrongArgument, WrongArgumentType)):
            call(limit=limit)


def test_a_read_only_connection_reads_and_changes_nothing(claims: WorkClaims, database: Database) -> None:
    finish(claims, "t")
    with open_store(resolve_url(database.url), read_only=True) as store:
        reading = Keeper(claims.pruner.contract, store).claims()
        work = reading.get("t")
        assert work is not None
        assert work.state == "completed"
        assert [work.task_id for work in reading.list_by_state("completed")] == ["t"]
        assert reading.list_expired() == []
        for call in (lambda: reading.submit("u"), lambda: reading.claim("u", "ada", 60), reading.return_expired):
            with pytest.raises(StoreError, match=r"read-?only"):
                call()
    assert tasks(database) == ["t"]


def test_a_connection_to_another_database_is_refused(claims: WorkClaims, tmp_path: Any) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    with pytest.raises(StoreError):
        claims.claim("t", "ada", 60, connection=other)
    with pytest.raises(StoreError):
        claims.claim("t", "ada", 60, connection=object())
    other.close()


def test_a_closed_connection_is_reported(claims: WorkClaims, database: Database) -> None:
    connection = database.connect()
    connection.close()
    with pytest.raises((StoreError, sqlite3.ProgrammingError)):
        claims.claim("t", "ada", 60, connection=connection)
    granted(claims.claim("t", "ada", 60))


def test_a_connection_that_died_is_reported_and_the_next_call_reconnects(
    postgres_database: PostgresDatabase,
) -> None:
    with working(postgres_database) as claims:
        claim = granted(claims.claim("t", "ada", 60))
        pid = claims.store._connection.info.backend_pid  # type: ignore[attr-defined]
        callback_ran: list[int] = []

        def kill(_: object) -> bool:
            callback_ran.append(pid)
            postgres_database.query("SELECT pg_terminate_backend(?)", (pid,))
            return True

        with working(postgres_database, Reclaim.by(kill), install=False) as others:
            finish(others, "u")
            pid = others.store._connection.info.backend_pid  # type: ignore[attr-defined]
            with pytest.raises(Unreachable):
                others.claim("u", "bob", 60)
            assert callback_ran
            work = others.get("u")
            assert work is not None
            assert work.state == "completed"
        assert claims.complete(claim).state == "completed"


def test_a_repeatable_read_transaction_is_refused(postgres_database: PostgresDatabase) -> None:
    """It would not see that another process has claimed meanwhile."""
    with working(postgres_database) as claims:
        connection = postgres_database.connect()
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(StoreError, match="repeatable read"):
            claims.claim("t", "ada", 60, connection=connection)


def test_a_database_that_another_process_writes_to_is_locked(sqlite_database: SqliteDatabase) -> None:
    with working(sqlite_database) as claims:
        claims.submit("t")
        claims.store._connection.execute("PRAGMA busy_timeout = 50")  # type: ignore[attr-defined]
        other = sqlite_database.connect()
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Locked):
            claims.claim("t", "ada", 60)
        assert claims.get("t") is not None, "reading waits for nobody"
        other.execute("ROLLBACK")
        granted(claims.claim("t", "ada", 60))


def test_time_that_the_host_sets_back_gives_no_claim_back(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Wane's own tables remember the latest timestamp, an expired claim stays expired."""
    with working(sqlite_database) as claims:
        claim = granted(claims.claim("t", "ada", 60))
        ahead = (claims.store.now() + timedelta(seconds=120)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        sqlite_database.execute("UPDATE wane_clock SET latest = ?", (ahead,))
        granted(claims.claim("t", "bob", 60))
        with pytest.raises(Exception, match="does not hold"):
            claims.complete(claim)
