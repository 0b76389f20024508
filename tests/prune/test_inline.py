"""What an application does itself: consume a one-time row, once and only while it is live; delete a row whose work is
done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from prune.keeping import EXPIRES, Keeping, ago, follower, insert, jobs, keeping, notes, rule, table
from servers import Database, PostgresDatabase
from wane._contract.duration import FOREVER
from wane._contract.model import Table
from wane.errors import NotMigrated, StoreError, UnknownTable, WrongArgument, WrongArgumentType
from wane.events import RowConsumed

TICKETS = table("ticket", rule("expired", EXPIRES, when=()), state=None)


@contextmanager
def tickets(database: Database, *tables: Table, state: str = "open") -> Iterator[Keeping]:
    """Yield a keeper of four tickets: 1 is live for a day, 2 expired, 3 has no time, 4 has no valid one."""
    database.execute("CREATE TABLE ticket (id integer NOT NULL PRIMARY KEY, code text, state text, expires_ms bigint)")
    insert(
        database,
        "ticket",
        "id, code, state, expires_ms",
        (1, "one", state, ago(-1)),
        (2, "two", state, ago(1)),
        (3, "three", state, None),
        (4, "four", state, 12),
    )
    with keeping(database, *(tables or (TICKETS,))) as opened:
        yield opened


# --- Consuming ------------------------------------------------------------------------------------------------------


def test_a_live_row_is_returned_once_and_gone(database: Database) -> None:
    with tickets(database) as opened:
        found = opened.keeper.consume("ticket", {"id": 1})
        assert found == {"id": 1, "code": "one", "state": "open", "expires_ms": ago(-1)}
        assert opened.ids("ticket") == [2, 3, 4]
        assert opened.keeper.consume("ticket", {"id": 1}) is None
        assert opened.reported(RowConsumed) == [RowConsumed("ticket", "consume")]
        assert opened.trail() == [], "counted, not audited"


@pytest.mark.parametrize("number", [2, 3, 4, 99])
def test_what_is_expired_absent_or_no_timestamp_is_not_consumed(database: Database, number: int) -> None:
    with tickets(database) as opened:
        assert opened.keeper.consume("ticket", {"id": number}) is None
        assert opened.ids("ticket") == [1, 2, 3, 4]
        assert opened.events == []


def test_only_a_live_state_is_consumed(database: Database) -> None:
    """A ticket that was used already is not used again, though it has not expired."""
    declared = table("ticket", rule("expired", EXPIRES, when=["used"]), live=["open"])
    with tickets(database, declared, state="used") as opened:
        assert opened.keeper.consume("ticket", {"id": 1}) is None
        database.execute("UPDATE ticket SET state = 'open' WHERE id = 1")
        assert opened.keeper.consume("ticket", {"id": 1}) is not None


def test_a_held_row_is_not_consumed(database: Database) -> None:
    with tickets(database) as opened:
        held = opened.keeper.hold("ticket", {"id": 1}, reason="a test")
        assert opened.keeper.consume("ticket", {"id": 1}) is None
        assert opened.ids("ticket") == [1, 2, 3, 4]
        assert held.id is not None
        opened.keeper.release_hold(held.id)
        assert opened.keeper.consume("ticket", {"id": 1}) is not None


def test_a_table_without_expiry_has_nothing_to_consume(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened, pytest.raises(WrongArgument, match="no rule with `expires`"):
        opened.keeper.consume("job", {"id": 1})


def test_consuming_in_the_callers_transaction_comes_back_with_it(database: Database) -> None:
    with tickets(database) as opened:
        connection = database.connect()
        connection.execute("BEGIN")
        assert opened.keeper.consume("ticket", {"id": 1}, connection=connection) is not None
        assert opened.keeper.consume("ticket", {"id": 1}, connection=connection) is None
        connection.execute("ROLLBACK")
        assert opened.ids("ticket") == [1, 2, 3, 4]


@pytest.mark.parametrize("shared", [True, False], ids=["one keeper", "two keepers"])
def test_of_many_threads_exactly_one_wins_each_row(database: Database, shared: bool) -> None:
    rows = 12
    database.execute("CREATE TABLE ticket (id integer NOT NULL PRIMARY KEY, expires_ms bigint)")
    insert(database, "ticket", "id, expires_ms", *[(n, ago(-1)) for n in range(rows)])
    won: list[int] = []
    failures: list[BaseException] = []
    together = threading.Barrier(2)

    def consume(opened: Keeping) -> None:
        try:
            for number in range(rows):
                together.wait(30)
                found = opened.keeper.consume("ticket", {"id": number})
                if found is not None:
                    won.append(found["id"])
        except BaseException as problem:
            failures.append(problem)
            together.abort()

    with keeping(database, TICKETS) as one, keeping(database, TICKETS) as other:
        threads = [threading.Thread(target=consume, args=(opened,)) for opened in (one, one if shared else other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert failures == []
    assert sorted(won) == list(range(rows))


# --- Discarding -----------------------------------------------------------------------------------------------------


def test_a_row_is_deleted_whatever_its_age_and_state(database: Database) -> None:
    jobs(database, (1, "queued", ago(0)), (2, "queued", ago(0)))
    with keeping(database) as opened:
        assert opened.keeper.discard("job", {"id": 1}) is True
        assert opened.keeper.discard("job", {"id": 1}) is False
        assert opened.ids() == [2]
        assert opened.reported(RowConsumed) == [RowConsumed("job", "discard")]
        assert opened.trail() == []


def test_a_held_row_is_not_discarded(database: Database) -> None:
    jobs(database, (1, "done", ago(0)), (2, "done", ago(0)))
    with keeping(database) as opened:
        opened.keeper.hold("job", {"id": 1}, reason="a test")
        assert opened.keeper.discard("job", {"id": 1}) is False
        assert opened.keeper.discard("job", {"id": 2}) is True
        opened.keeper.hold("job", reason="the whole table")
        insert(database, "job", "id, state, at_ms", (3, "done", ago(0)))
        assert opened.keeper.discard("job", {"id": 3}) is False


@pytest.mark.parametrize("foreign_key", [None, "job (id)", "job (id) ON DELETE CASCADE"])
def test_what_follows_a_row_leaves_with_it(database: Database, foreign_key: str | None) -> None:
    jobs(database, (1, "done", ago(0)), (2, "done", ago(0)))
    notes(database, (1, 1, "x"), (2, 1, "x"), (3, 2, "x"), foreign_key=foreign_key)
    with keeping(database, table("job", rule(followers=[follower("note.job_id")]))) as opened:
        assert opened.keeper.discard("job", {"id": 1}) is True
        assert (opened.ids(), opened.ids("note")) == ([2], [3])
        opened.keeper.hold("note", {"id": 3}, reason="a test")
        assert opened.keeper.discard("job", {"id": 2}) is False
        assert (opened.ids(), opened.ids("note")) == ([2], [3])


def test_followers_stay_if_the_row_cannot_leave(postgres_database: PostgresDatabase) -> None:
    jobs(postgres_database, (1, "done", ago(0)))
    notes(postgres_database, (1, 1, "x"))
    postgres_database.script("""
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER keep BEFORE DELETE ON job FOR EACH ROW EXECUTE FUNCTION keep();
    """)
    with keeping(postgres_database, table("job", rule(followers=[follower("note.job_id")]))) as opened:
        with pytest.raises(StoreError, match="the database kept it"):
            opened.keeper.discard("job", {"id": 1})
        assert (opened.ids(), opened.ids("note")) == ([1], [1])


# --- Wrong keys -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (1, WrongArgumentType),
        ("1", WrongArgumentType),
        ([1], WrongArgumentType),
        (None, WrongArgumentType),
        ({}, WrongArgument),
        ({"code": "one"}, WrongArgument),
        ({"id": 1, "code": "one"}, WrongArgument),
    ],
)
def test_a_key_names_exactly_its_columns(database: Database, key: Any, error: type[Exception]) -> None:
    with tickets(database) as opened:
        for call in (opened.keeper.consume, opened.keeper.discard):
            with pytest.raises(error, match="key"):
                call("ticket", key)
        assert opened.ids("ticket") == [1, 2, 3, 4]


def test_a_key_that_is_null_is_no_row(database: Database) -> None:
    with tickets(database) as opened:
        assert opened.keeper.consume("ticket", {"id": None}) is None
        assert opened.keeper.discard("ticket", {"id": None}) is False


def test_a_table_must_be_known_and_let_rows_go(database: Database) -> None:
    with tickets(database, TICKETS, table("kept", rule("all", FOREVER, when=()), state=None)) as opened:
        with pytest.raises(UnknownTable, match="did you mean"):
            opened.keeper.consume("tickets", {"id": 1})
        with pytest.raises(WrongArgument, match="no rule that lets rows go"):
            opened.keeper.discard("kept", {"id": 1})


@pytest.mark.unmigrated
def test_without_wanes_own_tables_holds_cannot_be_read(database: Database) -> None:
    database.execute("CREATE TABLE ticket (id integer NOT NULL PRIMARY KEY, expires_ms bigint)")
    with keeping(database, TICKETS, migrate=False) as opened, pytest.raises(NotMigrated):
        opened.keeper.consume("ticket", {"id": 1})


def test_keys_of_several_columns_and_odd_texts_work(database: Database) -> None:
    database.execute("CREATE TABLE ticket (a text NOT NULL, b text NOT NULL, expires_ms bigint, PRIMARY KEY (b, a))")
    insert(database, "ticket", "a, b, expires_ms", ("x'y", '"%s', ago(-1)), ("x'y", "other", ago(-1)))
    with keeping(database, TICKETS) as opened:
        assert opened.keeper.consume("ticket", {"a": "x'y", "b": '"%s'}) is not None
        assert opened.keeper.consume("ticket", {"b": "x'y", "a": "other"}) is None
        assert database.query("SELECT b FROM ticket") == [("other",)]
