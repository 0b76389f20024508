"""Holds: what was ordered to stay leaves through no door, until the hold ends or is released."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from prune.keeping import (
    AT,
    EXPIRES,
    Keeping,
    ago,
    follower,
    insert,
    jobs,
    keeping,
    notes,
    referenced_by,
    rule,
    table,
    timestamp,
)
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.model import Cap, Mark, Orphans, Table
from wane._db.statement import Statement
from wane._prune.pace import FAST
from wane._prune.sweep import Outcome
from wane._prune.take import gated
from wane._rules.rule_statements import RuleStatements
from wane.errors import BindError, Locked, UnknownTable, WrongArgument

NOW = datetime.now(UTC)


def hold(opened: Keeping, name: str, key: dict[str, object] | None = None, **more: Any) -> int:
    held = opened.keeper.hold(name, key, reason="a test", **more)
    assert held.id is not None
    return held.id


# --- Every door -----------------------------------------------------------------------------------------------------


def _sweep(opened: Keeping) -> None:
    opened.keeper.enable()
    opened.keeper.sweep(pace=FAST)


def _apply(opened: Keeping) -> None:
    opened.keeper.enable()
    opened.keeper.apply(opened.keeper.plan(), pace=FAST)


DOORS: dict[str, tuple[Table, Callable[[Keeping], object]]] = {
    "rule": (table(), lambda opened: opened.keeper.prune("job", rule="old", limit=10)),
    "explicit": (table(), lambda opened: opened.keeper.prune("job", states=["done"], older_than=NOW, limit=10)),
    "orphans": (
        table("job", rule("orphans", Orphans(AT, timedelta(days=1), "parent_id"), when=["done"])),
        lambda opened: opened.keeper.prune_orphans("job", older_than=NOW, limit=10),
    ),
    "sweep": (table(), _sweep),
    "apply": (table(), _apply),
    "mark": (
        table("job", rule("old", then=Mark("cleaned"))),
        lambda opened: opened.keeper.prune("job", rule="old", limit=10),
    ),
    "cap": (
        table("job", rule("cap", Cap(AT, 1), when=["done"])),
        lambda opened: opened.keeper.prune("job", rule="cap", limit=10),
    ),
    "scoped cap": (
        table("job", rule("cap", Cap(AT, 1, ("tenant",)), when=["done"])),
        lambda opened: opened.keeper.prune("job", rule="cap", limit=10),
    ),
    "guarded": (
        table("job", rule(unless=[referenced_by("note.job_id")])),
        lambda opened: opened.keeper.prune("job", rule="old", limit=10),
    ),
    "followed": (
        table("job", rule(followers=[follower("note.job_id")])),
        lambda opened: opened.keeper.prune("job", rule="old", limit=10),
    ),
    "discard": (table(), lambda opened: [opened.keeper.discard("job", {"id": n}) for n in range(4)]),
    "caller": (
        table(),
        lambda opened: opened.keeper.prune("job", rule="old", limit=10, connection=opened.database.connect()),
    ),
}


def changed(database: Database) -> list[int]:
    """Return the rows that are no longer as they were."""
    left = {number for (number,) in database.query("SELECT id FROM job WHERE state = 'done'")}
    return sorted(set(range(4)) - left)


def fill(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30 - n)) for n in range(4)])
    notes(database)


@pytest.mark.parametrize("door", DOORS)
def test_a_held_row_leaves_through_no_door(database: Database, door: str) -> None:
    declared, open_door = DOORS[door]
    fill(database)
    with keeping(database, declared) as opened:
        hold(opened, "job", {"id": 1})
        open_door(opened)
        newest = [] if "cap" in door else [3]
        assert changed(database) == [0, 2, *newest]


@pytest.mark.parametrize("door", DOORS)
def test_a_held_table_loses_nothing_through_any_door(database: Database, door: str) -> None:
    declared, open_door = DOORS[door]
    fill(database)
    with keeping(database, declared) as opened:
        hold(opened, "job")
        open_door(opened)
        assert changed(database) == []


def test_a_held_row_is_not_consumed(database: Database) -> None:
    database.execute("CREATE TABLE ticket (id integer NOT NULL PRIMARY KEY, expires_ms bigint)")
    insert(database, "ticket", "id, expires_ms", (1, ago(-1)), (2, ago(-1)))
    with keeping(database, table("ticket", rule("expired", EXPIRES, when=()), state=None)) as opened:
        hold(opened, "ticket", {"id": 1})
        assert opened.keeper.consume("ticket", {"id": 1}) is None
        assert opened.keeper.consume("ticket", {"id": 2}) is not None


def test_a_held_row_does_not_use_up_the_limit_and_counts_for_a_cap(database: Database) -> None:
    fill(database)
    with keeping(database, table(), table("note", rule("none", when=()), state=None)) as opened:
        hold(opened, "job", {"id": 0})
        assert opened.keeper.prune("job", rule="old", limit=1).rows == 1
        assert changed(database) == [1]


def test_what_is_planned_leaves_held_rows_out(database: Database) -> None:
    fill(database)
    with keeping(database) as opened:
        hold(opened, "job", {"id": 1})
        assert opened.keeper.plan().due == 3
        assert opened.keeper.preview("job", rule="old").due.rows == 3  # type: ignore[union-attr]


# --- Followers ------------------------------------------------------------------------------------------------------


FOLLOWED = table("job", rule(followers=[follower("note.job_id", follower("page.note_id"))]))


def chain(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "done", ago(20)))
    notes(database, (10, 1, "x"), (11, 1, "x"), (20, 2, "x"))
    database.execute("CREATE TABLE page (id integer NOT NULL PRIMARY KEY, note_id integer)")
    insert(database, "page", "id, note_id", (100, 10), (200, 20))


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize(("name", "key"), [("note", 11), ("page", 100), ("job", 1)])
def test_a_held_follower_saves_its_row_and_everything_with_it(
    database: Database, name: str, key: int, limit: int
) -> None:
    chain(database)
    with keeping(database, FOLLOWED) as opened:
        number = hold(opened, name, {"id": key})
        while opened.keeper.prune("job", rule="old", limit=limit).rows:
            pass
        assert [opened.ids(one) for one in ("job", "note", "page")] == [[1], [10, 11], [100]]
        opened.keeper.release_hold(number)
        while opened.keeper.prune("job", rule="old", limit=limit).rows:
            pass
        assert [opened.ids(one) for one in ("job", "note", "page")] == [[], [], []]


@pytest.mark.parametrize("limit", [1, 100])
def test_a_held_table_of_followers_saves_the_rows_that_have_some(database: Database, limit: int) -> None:
    chain(database)
    database.execute("DELETE FROM page WHERE id = 200")
    with keeping(database, FOLLOWED) as opened:
        hold(opened, "page")
        while opened.keeper.prune("job", rule="old", limit=limit).rows:
            pass
        assert [opened.ids(one) for one in ("job", "note", "page")] == [[1], [10, 11], [100]]


def test_a_held_follower_of_another_kind_saves_nothing(database: Database) -> None:
    """It would not leave with the row."""
    jobs(database, (1, "done", ago(30)), (2, "done", ago(30)))
    notes(database, (1, 1, "draft"), (2, 1, "sent"), (3, 2, "draft"))
    declared = table("job", rule(followers=[follower("note.job_id", where={"kind": "draft"})]))
    with keeping(database, declared) as opened:
        hold(opened, "note", {"id": 2})
        hold(opened, "note", {"id": 3})
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 1, "note": 1}
        assert (opened.ids(), opened.ids("note")) == ([2], [2, 3])


# --- How long -------------------------------------------------------------------------------------------------------


def test_a_hold_that_ended_holds_no_longer(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        number = hold(opened, "job", {"id": 1}, ends_at=NOW + timedelta(hours=1))
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 0
        past = "datetime('now', '-1 second')" if database.store == "sqlite" else "now() - interval '1 second'"
        own = "wane_hold" if database.store == "sqlite" else "wane.hold"
        database.execute(f"UPDATE {own} SET ends_at = {past} WHERE id = {number}")
        assert opened.keeper.holds() == []
        assert [one.id for one in opened.keeper.holds(everything=True)] == [number]
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 1


def test_a_hold_ends_by_the_databases_clock(database: Database) -> None:
    """Two holds, one with an end: as soon as that is past, and not before, its row leaves."""
    jobs(database, (1, "done", ago(30)), (2, "done", ago(30)))
    with keeping(database) as opened:
        ends = opened.keeper.store.now() + timedelta(milliseconds=400)
        hold(opened, "job", {"id": 1}, ends_at=ends)
        hold(opened, "job", {"id": 2})
        while True:
            before = opened.keeper.store.now()
            taken = opened.keeper.prune("job", rule="old", limit=10).rows
            if taken:
                assert opened.keeper.store.now() >= ends
                break
            assert before < ends + timedelta(seconds=5)
        assert opened.ids() == [2]


@pytest.mark.parametrize("seconds", [-1, 0])
def test_a_hold_cannot_end_in_the_past(database: Database, seconds: int) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened, pytest.raises(WrongArgument, match="would end in the past"):
        hold(opened, "job", {"id": 1}, ends_at=opened.keeper.store.now() + timedelta(seconds=seconds))


def test_several_holds_on_one_row_all_have_to_go(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        numbers = [hold(opened, "job", {"id": 1}), hold(opened, "job", {"id": 1}), hold(opened, "job")]
        for number in numbers:
            assert opened.keeper.prune("job", rule="old", limit=10).rows == 0
            opened.keeper.release_hold(number)
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 1


def test_a_released_hold_is_remembered_and_cannot_be_released_twice(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        number = hold(opened, "job", {"id": 1})
        opened.keeper.release_hold(number)
        [past] = opened.keeper.holds(everything=True)
        assert (past.id, past.reason, past.author, past.released_by) == (number, "a test", "tester", "tester")
        assert past.released_at is not None
        for wrong in (number, 999):
            with pytest.raises(WrongArgument, match=f"there is no hold {wrong}"):
                opened.keeper.release_hold(wrong)


def test_a_hold_states_who_why_and_until_when(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        ends = timestamp(ago(-30))
        made = opened.keeper.hold("job", {"id": 1}, reason=" a case at court ", ends_at=ends)
        [found] = opened.keeper.holds("job")
        assert found == made
        assert (found.reason, found.author, found.ends_at) == ("a case at court", "tester", ends)
        assert abs(found.created_at - datetime.now(UTC)) < timedelta(seconds=10)
        assert opened.keeper.holds("job", limit=1) == [made]


# --- Keys -----------------------------------------------------------------------------------------------------------

TEXTS = ["", " ", "a'b", 'say "hi"', "[1]", '["1"]', "null", "\\", "ü", "a\nb", "%s", "x,y", "1"]


def test_odd_texts_hold_exactly_their_row(database: Database) -> None:
    database.execute("CREATE TABLE job (id text NOT NULL PRIMARY KEY, state text, at_ms bigint)")
    insert(database, "job", "id, state, at_ms", *[(text, "done", ago(30)) for text in TEXTS])
    with keeping(database) as opened:
        for text in TEXTS:
            hold(opened, "job", {"id": text})
            insert(database, "job", "id, state, at_ms", (text + "'", "done", ago(30)))
        assert opened.keeper.prune("job", rule="old", limit=100).rows == len(TEXTS)
        assert sorted(opened.ids()) == sorted(TEXTS)


def test_parts_of_a_key_are_reported_apart(database: Database) -> None:
    database.execute(
        "CREATE TABLE job (a text NOT NULL, b text NOT NULL, state text, at_ms bigint, PRIMARY KEY (b, a))"
    )
    keys = [("x", "y"), ("y", "x"), ('x","y', ""), ("x", 'y","'), ("xy", ""), ("", "xy")]
    insert(database, "job", "a, b, state, at_ms", *[(a, b, "done", ago(30)) for a, b in keys])
    with keeping(database) as opened:
        hold(opened, "job", {"a": "x", "b": "y"})
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 5
        assert database.query("SELECT a, b FROM job") == [("x", "y")]


@pytest.mark.parametrize("key", [("code",), ("code", "id"), ("id", "code")])
def test_a_hold_by_the_primary_key_holds_whatever_key_the_contract_names(
    database: Database, key: tuple[str, ...]
) -> None:
    database.execute(
        "CREATE TABLE job (id integer NOT NULL PRIMARY KEY, code text NOT NULL UNIQUE, state text, at_ms bigint)"
    )
    insert(database, "job", "id, code, state, at_ms", (1, "a", "done", ago(30)), (2, "b", "done", ago(30)))
    for declared in (table(key=key), table("job", rule(followers=[follower("note.code", to=["code"])]), key=key)):
        database.execute("CREATE TABLE IF NOT EXISTS note (id integer NOT NULL PRIMARY KEY, code text)")
        with keeping(database, declared) as opened:
            if not opened.keeper.holds():
                hold(opened, "job", {"id": 1})
            opened.keeper.prune("job", rule="old", limit=10)
            assert opened.ids() == [1]


def test_the_order_of_the_contracts_key_does_not_matter(database: Database) -> None:
    database.execute(
        "CREATE TABLE job (a integer NOT NULL, b integer NOT NULL, state text, at_ms bigint, PRIMARY KEY (a, b))"
    )
    insert(database, "job", "a, b, state, at_ms", (1, 2, "done", ago(30)), (2, 1, "done", ago(30)))
    with keeping(database, table(key=["b", "a"])) as opened:
        hold(opened, "job", {"b": 2, "a": 1})
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 1
        assert database.query("SELECT a, b FROM job") == [(1, 2)]


POSTGRES_KEYS: dict[str, tuple[object, object]] = {
    "uuid": (uuid.UUID(int=1), uuid.UUID(int=2)),
    "bytea": (b"\x00\xff'", b"\x00"),
    "timestamptz": (datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 1, tzinfo=UTC)),
    "timestamp": (datetime(2024, 1, 1), datetime(2024, 1, 1, 1)),
    "date": ("2024-01-02", "2024-02-01"),
    "numeric": ("1.50", "1.51"),
    "double precision": (0.1, 0.30000000000000004),
    "interval": ("1 day 02:00", "26 hours 1 second"),
    "boolean": (True, False),
    "varchar(5)": ("a", "A"),
    "tstzrange": ("[2024-01-01 00:00+00,2024-01-02 00:00+00)", "[2024-01-01 00:00+00,2024-01-03 00:00+00)"),
}
OTHER_SETTINGS = {
    "bytea_output": "escape",
    "timezone": "Asia/Kolkata",
    "datestyle": "German",
    "extra_float_digits": "-5",
    "intervalstyle": "iso_8601",
}


@pytest.mark.parametrize("type_", POSTGRES_KEYS)
def test_keys_of_every_type_are_held_on_every_connection(postgres_database: PostgresDatabase, type_: str) -> None:
    """The text of a key depends on a session's settings; the hold must not."""
    held, other = POSTGRES_KEYS[type_]
    postgres_database.execute(f"CREATE TABLE job (id {type_} PRIMARY KEY, state text, at_ms bigint)")
    insert(postgres_database, "job", "id, state, at_ms", (held, "done", ago(30)), (other, "done", ago(30)))
    with keeping(postgres_database) as opened:
        hold(opened, "job", {"id": held})
        connection = postgres_database.connect()
        for name, value in OTHER_SETTINGS.items():
            connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        assert opened.keeper.prune("job", rule="old", limit=10, connection=connection).rows == 1
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 0
        [(count,)] = postgres_database.query(
            f"SELECT count(*) FROM job WHERE id = ?::text::{type_}",
            (f"\\x{held.hex()}" if isinstance(held, bytes) else str(held),),
        )
        assert count == 1


def test_a_domain_over_a_timestamp_is_held_in_every_zone(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("""
        CREATE DOMAIN stamp AS timestamptz;
        CREATE TABLE job (id stamp PRIMARY KEY, state text, at_ms bigint);
    """)
    insert(postgres_database, "job", "id, state, at_ms", ("2024-01-01", "done", ago(30)))
    with keeping(postgres_database) as opened:
        hold(opened, "job", {"id": "2024-01-01 00:00+00"})
        connection = postgres_database.connect()
        connection.execute("SET timezone = 'Asia/Kolkata'")
        assert opened.keeper.prune("job", rule="old", limit=5, connection=connection).rows == 0


@pytest.mark.parametrize("value", [1, "1", 1.5, b"1", b"\x00'", 2**62, "x"])
def test_values_of_every_type_are_held_apart(sqlite_database: SqliteDatabase, value: object) -> None:
    """A column without a type holds a number and its text, which are two rows."""
    sqlite_database.execute("CREATE TABLE job (id PRIMARY KEY, state TEXT, at_ms INTEGER)")
    values = [1, "1", 1.5, b"1", b"\x00'", 2**62, "x"]
    insert(sqlite_database, "job", "id, state, at_ms", *[(one, "done", ago(30)) for one in values])
    with keeping(sqlite_database) as opened:
        hold(opened, "job", {"id": value})
        assert opened.keeper.prune("job", rule="old", limit=100).rows == len(values) - 1
        assert opened.ids() == [value]


def test_a_bytes_key_is_held_on_both_stores(database: Database) -> None:
    kind = "BLOB" if database.store == "sqlite" else "bytea"
    database.execute(f"CREATE TABLE job (id {kind} NOT NULL PRIMARY KEY, state text, at_ms bigint)")
    insert(database, "job", "id, state, at_ms", (b"\x01\xff", "done", ago(30)), (b"a", "done", ago(30)))
    with keeping(database) as opened:
        hold(opened, "job", {"id": b"\x01\xff"})
        assert opened.keeper.prune("job", rule="old", limit=5).rows == 1
        assert opened.ids() == [b"\x01\xff"]


# --- Refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [{}, {"state": "done"}, {"id": 1, "state": "done"}, {"ID": 1}])
def test_a_hold_names_exactly_the_primary_key(database: Database, key: dict[str, object]) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        with pytest.raises(WrongArgument, match="the key of job is id"):
            hold(opened, "job", key)
        assert opened.keeper.holds() == []


def test_a_table_without_a_primary_key_is_held_as_a_whole(database: Database) -> None:
    database.execute("CREATE TABLE job (id integer NOT NULL UNIQUE, state text, at_ms bigint)")
    insert(database, "job", "id, state, at_ms", (1, "done", ago(30)))
    with keeping(database, table(key=["id"])) as opened:
        with pytest.raises(WrongArgument, match="which it does not have"):
            hold(opened, "job", {"id": 1})
        hold(opened, "job")
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 0


def test_a_row_that_is_not_there_cannot_be_held(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened, pytest.raises(WrongArgument, match="job has no row with id = 2"):
        hold(opened, "job", {"id": 2})


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_hold_needs_a_reason(database: Database, reason: str) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened, pytest.raises(WrongArgument, match="needs a reason"):
        opened.keeper.hold("job", {"id": 1}, reason=reason)


def test_a_table_that_is_not_there_cannot_be_held(database: Database) -> None:
    jobs(database)
    with keeping(database) as opened, pytest.raises(UnknownTable, match="did you mean 'job'"):
        hold(opened, "jobb")


def test_a_table_that_the_contract_does_not_name_can_be_held(database: Database) -> None:
    """Followers need no entry of their own."""
    jobs(database, (1, "done", ago(30)))
    notes(database, (1, 1, "x"))
    with keeping(database) as opened:
        hold(opened, "note", {"id": 1})
        assert [one.table.rpartition(".")[2] for one in opened.keeper.holds("note")] == ["note"]


# --- Parts of tables, and what has no rows --------------------------------------------------------------------------

PARTITIONED = """
CREATE TABLE event (id integer NOT NULL, at_ms bigint NOT NULL, PRIMARY KEY (id, at_ms)) PARTITION BY RANGE (at_ms);
CREATE TABLE event_old PARTITION OF event FOR VALUES FROM (MINVALUE) TO (2000000000000) PARTITION BY RANGE (at_ms);
CREATE TABLE event_older PARTITION OF event_old FOR VALUES FROM (MINVALUE) TO (1999999999999);
CREATE INDEX event_age ON event (at_ms, id);
"""
EVENTS = table("event", rule(when=()), state=None)


@pytest.mark.parametrize("name", ["event", "event_old", "event_older"])
def test_a_held_partition_loses_no_rows(postgres_database: PostgresDatabase, name: str) -> None:
    postgres_database.script(PARTITIONED)
    insert(postgres_database, "event", "id, at_ms", (1, ago(30)), (2, ago(30)))
    with keeping(postgres_database, EVENTS) as opened:
        held = hold(opened, name)
        assert [one.table for one in opened.keeper.holds(name)] == ["public.event"]
        assert opened.keeper.prune("event", rule="old", limit=10).rows == 0
        opened.keeper.release_hold(held)
        hold(opened, name, {"id": 1, "at_ms": ago(30)})
        assert opened.keeper.prune("event", rule="old", limit=10).rows == 1
        assert opened.ids("event") == [1]


def descendants(database: PostgresDatabase) -> None:
    """Create notes, and two tables that inherit from them; the rows of the last have another key of their own."""
    jobs(database, (1, "done", ago(30)), (2, "done", ago(30)))
    notes(database)
    database.script(
        "CREATE TABLE note_old (at_ms bigint, PRIMARY KEY (id)) INHERITS (note);"
        "CREATE TABLE note_older (serial integer PRIMARY KEY) INHERITS (note_old);"
        "CREATE INDEX ON note_old (job_id); CREATE INDEX ON note_older (job_id);"
    )
    insert(database, "note_older", "id, job_id, at_ms, serial", (1, 1, ago(30), 71), (2, 2, ago(30), 72))


@pytest.mark.parametrize("name", ["note", "note_old", "note_older"])
@pytest.mark.parametrize("key", [None, {"id": 1}], ids=["table", "row"])
def test_a_held_inheriting_table_keeps_what_it_follows(
    postgres_database: PostgresDatabase, name: str, key: dict[str, object] | None
) -> None:
    descendants(postgres_database)
    with keeping(postgres_database, table("job", rule(followers=[follower("note.job_id")]))) as opened:
        hold(opened, name, key)
        assert opened.keeper.prune("job", rule="old", limit=10).rows == (0 if key is None else 2)
        assert opened.ids() == ([1, 2] if key is None else [1])
        assert 1 in opened.ids("note")


@pytest.mark.parametrize("name", ["note", "note_old", "note_older"])
@pytest.mark.parametrize("key", [None, {"id": 1}], ids=["table", "row"])
def test_what_is_held_of_a_table_stays_when_an_inheriting_table_loses_rows(
    postgres_database: PostgresDatabase, name: str, key: dict[str, object] | None
) -> None:
    descendants(postgres_database)
    declared = table("note_older", rule(when=()), state=None)
    with keeping(postgres_database, declared) as opened:
        hold(opened, name, key)
        assert opened.keeper.prune("note_older", rule="old", limit=10).rows == (0 if key is None else 1)
        assert opened.ids("note_older") == ([1, 2] if key is None else [1])


def test_a_hold_waits_for_batches_that_take_rows_through_an_inheriting_table(
    postgres_database: PostgresDatabase,
) -> None:
    """The gate that a hold closes is the one that the batch is in."""
    descendants(postgres_database)
    with keeping(postgres_database, table("note_older", rule(when=()), state=None)) as opened:
        selection = opened.keeper.pruner.bindings.selection(
            opened.keeper.contract.tables[0], opened.keeper.contract.tables[0].rules[0]
        )
        with opened.keeper.store.transaction() as batch:
            batch.enter(gated(selection))
            # Other tests lock in other databases of the same server.
            here = (
                "locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
            inside = postgres_database.query(f"SELECT count(*) FROM pg_locks WHERE {here} AND granted")
            free = postgres_database.query(
                "SELECT pg_try_advisory_xact_lock(classid::int, hashtext('public.note')) FROM pg_locks"
                f" WHERE {here} LIMIT 1"
            )
        assert (inside, free) == ([(3,)], [(False,)])


def test_a_table_that_inherits_from_two_is_held_by_both(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("CREATE TABLE a (id int); CREATE TABLE b (id int); CREATE TABLE c () INHERITS (a, b)")
    with (
        keeping(postgres_database) as opened,
        pytest.raises(WrongArgument, match=r"public\.a and public\.b.*\n.*hold both"),
    ):
        hold(opened, "c")


def test_a_view_is_not_held_and_names_its_tables(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    notes(database)
    database.execute("CREATE VIEW seen AS SELECT job.id FROM job LEFT JOIN note ON note.job_id = job.id")
    database.execute("CREATE VIEW second_view AS SELECT id FROM seen")
    schema = "main" if database.store == "sqlite" else "public"
    with keeping(database) as opened:
        for key in (None, {"id": 1}):
            with pytest.raises(WrongArgument, match="second_view is a view") as raised:
                opened.keeper.hold("second_view", key, reason="a test")
            assert raised.value.hint in (f"hold {schema}.job, {schema}.note", f"hold {schema}.job")
        assert opened.keeper.holds() == []


def test_a_materialized_view_is_not_held(postgres_database: PostgresDatabase) -> None:
    jobs(postgres_database, (1, "done", ago(30)))
    postgres_database.execute("CREATE MATERIALIZED VIEW seen AS SELECT id FROM job")
    with (
        keeping(postgres_database) as opened,
        pytest.raises(WrongArgument, match=r"materialized view.*\n.*hold public\.job"),
    ):
        hold(opened, "seen")


def test_a_virtual_table_is_not_held(sqlite_database: SqliteDatabase) -> None:
    jobs(sqlite_database)
    sqlite_database.execute("CREATE VIRTUAL TABLE words USING fts5 (body)")
    with keeping(sqlite_database) as opened, pytest.raises(WrongArgument, match="words is a virtual table"):
        hold(opened, "words")


def test_a_foreign_table_is_not_held(postgres_database: PostgresDatabase) -> None:
    jobs(postgres_database)
    postgres_database.script(
        "CREATE FOREIGN DATA WRAPPER elsewhere; CREATE SERVER there FOREIGN DATA WRAPPER elsewhere;"
        "CREATE FOREIGN TABLE far (id integer) SERVER there"
    )
    with keeping(postgres_database) as opened, pytest.raises(WrongArgument, match="far is a foreign table"):
        hold(opened, "far")


def test_a_hold_outlives_a_name_in_another_case(sqlite_database: SqliteDatabase) -> None:
    """SQLite compares names without regard to case."""
    jobs(sqlite_database, (1, "done", ago(30)), (2, "done", ago(30)))
    with keeping(sqlite_database) as opened:
        hold(opened, "job", {"id": 1})
    sqlite_database.execute("ALTER TABLE job RENAME TO work")
    sqlite_database.execute("ALTER TABLE work RENAME TO JOB")
    with keeping(sqlite_database, table("JOB")) as opened:
        assert len(opened.keeper.holds("JOB")) == 1
        assert opened.keeper.prune("JOB", rule="old", limit=10).rows == 1
        assert opened.ids() == [1]


def test_a_hold_on_a_table_that_was_renamed_stops_every_rule(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(1, 4)])
    with keeping(database) as opened:
        number = hold(opened, "job", {"id": 2})
        assert [one.lost for one in opened.keeper.holds()] == [False]
    database.script("ALTER TABLE job RENAME TO task")
    with keeping(database, table("task")) as opened:
        opened.keeper.enable()
        with pytest.raises(BindError) as raised:
            opened.keeper.prune("task", rule="old", limit=10)
        assert [one.code for one in raised.value.findings] == ["lost-hold"]
        [swept] = opened.keeper.sweep(pace=FAST).rules
        assert (swept.outcome, swept.rows) == (Outcome.FAILED, 0)
        assert [one.code for one in opened.keeper.plan().problems] == ["lost-hold"]
        assert opened.ids("task") == [1, 2, 3]
        assert [(one.id, one.lost) for one in opened.keeper.holds()] == [(number, True)]
        hold(opened, "task", {"id": 2})
        opened.keeper.release_hold(number)
        [swept] = opened.keeper.sweep(pace=FAST).rules
        assert (swept.outcome, swept.rows) == (Outcome.DONE, 2)
        assert opened.ids("task") == [2]


def test_a_hold_on_a_table_that_is_back_under_its_name_stops_nothing(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "done", ago(30)))
    with keeping(database) as opened:
        hold(opened, "job", {"id": 2})
        database.script("ALTER TABLE job RENAME TO task")
        assert [one.lost for one in opened.keeper.holds()] == [True]
        database.script("ALTER TABLE task RENAME TO job")
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 1
        assert opened.ids() == [2]


def test_a_hold_that_ends_while_a_batch_is_taken_adds_no_row_to_it(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs(sqlite_database, *((n, "done", ago(30 - n)) for n in range(3)))
    fill = RuleStatements.fill

    def ending(this: RuleStatements, statement: Statement, *arguments: Any, **options: Any) -> Statement:
        if statement is this.take_range:
            store._connection.execute("UPDATE wane_hold SET released_at = '2026-01-01T00:00:00.000000Z'")
        return fill(this, statement, *arguments, **options)

    with keeping(sqlite_database) as opened:
        opened.keeper.hold("job", {"id": 0}, reason="a test")
        store: Any = opened.keeper.store
        monkeypatch.setattr(RuleStatements, "fill", ending)
        with pytest.raises(Locked, match="a hold ended while rows were taken"):
            opened.keeper.prune("job", rule="old", limit=1)
        assert opened.ids() == [0, 1, 2]


@pytest.mark.parametrize("name", ['"', " job", "a..b", '"a"b', "a\x00"])
def test_a_name_that_no_table_can_have_is_a_wrong_argument(database: Database, name: str) -> None:
    jobs(database)
    with keeping(database) as opened:
        for call in (lambda: opened.keeper.holds(name), lambda: opened.keeper.hold(name, reason="r")):
            with pytest.raises(WrongArgument, match="is not a name"):
                call()
