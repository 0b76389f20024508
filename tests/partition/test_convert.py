"""Converting a table: nothing is lost, nothing is forgotten, nobody is stopped; and whatever cannot be kept is refused
or accepted first."""

from __future__ import annotations

from pathlib import Path

import pytest

from partition.partitioning import CONTRACT, PLAIN, RICH, dump, keeping, partitions, rows
from races.racing import Background, await_true
from servers import PostgresDatabase, SqliteDatabase
from wane._leases import leased
from wane._partition.chore import PartitionChore
from wane._partition.months import Month
from wane._partition.sql import PostgresPartitions
from wane.errors import Locked, PartitionBusy, PartitionError, StoreError
from wane.events import ignore_event

# What has to be accepted, and what is refused


def test_what_would_break_has_to_be_accepted(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(RICH)
    postgres_database.script(
        "CREATE FUNCTION put() RETURNS void LANGUAGE sql AS $$ INSERT INTO event (code) VALUES ('x') ON CONFLICT (code) DO NOTHING $$"
    )
    before = dump(postgres_database)
    with keeping(postgres_database, tmp_path) as keeper:
        plan = keeper.partition.plan("event")
        reported = [(one.code, one.what) for one in plan.all_breaks]
        assert {code for code, _ in reported} == {"on-conflict", "unique-per-month", "foreign-key", "function"}
        assert any("ON CONFLICT (id)" in what for _, what in reported)
        assert any("event_read loses its foreign key read_event" in what for _, what in reported)
        assert any("function public.put()" in what for _, what in reported)
        assert not any("note" in what for _, what in reported), "a foreign key with the time is kept"
        with pytest.raises(PartitionError, match="would break statements"):
            keeper.partition.convert("event")
    assert dump(postgres_database) == before
    assert postgres_database.query("SELECT count(*) FROM wane.partition_change") == [(0,)]


def test_the_plan_shows_every_statement_with_its_lock_and_changes_nothing(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.script(RICH)
    before = dump(postgres_database)
    with keeping(postgres_database, tmp_path) as keeper:
        plan = keeper.partition.plan("event")
    assert dump(postgres_database) == before
    steps = {step.state: step.statements for step in plan.steps}
    assert list(steps) == ["indexed", "rooted", "bounded", "validated", "swapped", "done"]
    assert all("CONCURRENTLY" in one.text and "blocks neither reads nor writes" in one.lock for one in steps["indexed"])
    assert all("ACCESS EXCLUSIVE" in one.lock for one in steps["swapped"])
    assert [one.table for one in plan.along] == ["event_read"]
    assert not plan.recommended
    assert "below 5,000,000" in plan.why


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ALTER TABLE event ALTER COLUMN created_at DROP NOT NULL", "can be NULL"),
        ("ALTER TABLE event SET UNLOGGED", "is not logged"),
        ("CREATE MATERIALIZED VIEW seen AS SELECT code FROM event", "cannot be replaced"),
        ("CREATE FUNCTION f(event) RETURNS int LANGUAGE sql AS 'SELECT 1'", "depends on the table"),
        ("CREATE RULE r AS ON UPDATE TO event DO ALSO NOTHING", "rule r depends"),
        ("CREATE TABLE descendant () INHERITS (event)", "inherits"),
        ("ALTER TABLE event ADD CONSTRAINT short CHECK (length(code) < 99) NOT VALID", "is not validated"),
        ("ALTER TABLE event ADD CONSTRAINT mine CHECK (id > 0) NO INHERIT", "NO INHERIT"),
        ("UPDATE event SET created_at = 'infinity' WHERE id = 1", "further ahead"),
        ("UPDATE event SET created_at = '2999-01-01' WHERE id = 1", "further ahead"),
        ("ALTER TABLE event_read DROP CONSTRAINT event_read_pkey", "no primary key"),
        ("CREATE PUBLICATION p FOR TABLE event", "publication p"),
    ],
)
def test_what_partitions_cannot_have_is_refused_with_the_fix(
    postgres_database: PostgresDatabase, tmp_path: Path, change: str, message: str
) -> None:
    postgres_database.script(PLAIN)
    if "UNLOGGED" in change:
        postgres_database.script(
            "DROP TABLE event_read; CREATE TABLE event_read (event_id bigint, reader text, read_at timestamptz NOT NULL, PRIMARY KEY (event_id, reader))"
        )
    postgres_database.script(change)
    before = dump(postgres_database)
    with keeping(postgres_database, tmp_path) as keeper:
        assert any(message in what and fix for what, fix in keeper.partition.plan("event").all_refused)
        with pytest.raises(PartitionError, match=message) as caught:
            keeper.partition.convert("event", accept=True)
        assert caught.value.hint
    assert dump(postgres_database) == before


def test_sqlite_refuses_loudly(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    sqlite_database.script("CREATE TABLE event (id integer PRIMARY KEY, created_at text)")
    with keeping(sqlite_database, tmp_path) as keeper:
        here = keeper.partition
        for call in (here.plan, here.convert, here.split, here.maintain, here.retire, here.undo):
            with pytest.raises(StoreError, match="SQLite has no partitions"):
                call("event")


def test_a_table_that_the_contract_does_not_partition_is_reported(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.script(PLAIN)
    with keeping(postgres_database, tmp_path, CONTRACT.partition("[partition")[0]) as keeper:
        with pytest.raises(PartitionError, match="does not declare how event is partitioned") as caught:
            keeper.partition.plan("event")
        assert "[partition.event]" in caught.value.hint


# Interruptions


def test_a_second_process_is_refused_while_the_first_is_at_it(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.script(PLAIN)
    with (
        keeping(postgres_database, tmp_path) as keeper,
        leased(keeper.store, "partition public.event", 30, busy=PartitionBusy, doing="they are being changed"),
    ):
        with pytest.raises(PartitionBusy):
            keeper.partition.convert("event", accept=True)
        with pytest.raises(PartitionBusy):
            keeper.partition.undo("event")
    assert partitions(postgres_database) == []


STEPS = ("build_index", "make_root", "bound", "validate", "swap", "analyze")


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("then", ["convert", "undo"])
def test_interrupted_anywhere_it_goes_on_or_is_taken_back(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, then: str
) -> None:
    postgres_database.script(RICH)
    before, was = dump(postgres_database), rows(postgres_database)

    def broken(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with keeping(postgres_database, tmp_path) as keeper:
        with monkeypatch.context() as patch:
            patch.setattr(PostgresPartitions, step, broken)
            with pytest.raises(KeyboardInterrupt):
                keeper.partition.convert("event", accept=True)
        assert rows(postgres_database) == was
        if then == "undo":
            assert keeper.partition.undo("event").did == ("undone" if step == "analyze" else "rolled back")
            assert dump(postgres_database) == before
        else:
            assert keeper.partition.convert("event", accept=True).did == "converted"
            assert len(partitions(postgres_database)) > 3
            assert len(partitions(postgres_database, "event_read")) > 3
    assert rows(postgres_database) == was


def test_an_index_that_was_left_half_built_is_rebuilt(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(PLAIN)
    # A concurrent build waits for transactions that hold an older snapshot of the table.
    older = postgres_database.connect()
    older.execute("BEGIN")
    older.execute("UPDATE event SET body = 'x' WHERE id = 1")
    with keeping(postgres_database, tmp_path) as keeper:
        building = Background(lambda: keeper.partition.convert("event", accept=True))
        half = "SELECT count(*) FROM pg_index WHERE NOT indisvalid AND indexrelid = to_regclass('event_p_key')"
        await_true(lambda: postgres_database.query(half) == [(1,)], "the index is being built")
        postgres_database.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE query LIKE 'CREATE UNIQUE INDEX CONCURRENTLY%' AND datname = current_database()"
        )
        with pytest.raises(StoreError):
            building.result()
        older.execute("COMMIT")
        assert postgres_database.query(half) == [(1,)]
        assert keeper.partition.convert("event", accept=True).did == "converted"
    assert postgres_database.query("SELECT count(*) FROM pg_index WHERE NOT indisvalid") == [(0,)]


def test_an_unavailable_lock_is_retried(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres_database.script(PLAIN)
    holding = postgres_database.connect()
    with keeping(postgres_database, tmp_path) as keeper:
        original = PostgresPartitions.bound

        def bound(this: PostgresPartitions, *arguments: object, **options: object) -> None:
            holding.execute("BEGIN")
            holding.execute("SELECT 1 FROM event LIMIT 1")
            original(this, *arguments, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(PostgresPartitions, "bound", bound)
        converting = Background(lambda: keeper.partition.convert("event", accept=True))
        refused = (
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        await_true(lambda: postgres_database.query(refused) == [(1,)], "it waits for the lock")
        await_true(lambda: postgres_database.query(refused) == [(0,)], "it has given up for now")
        monkeypatch.setattr(PostgresPartitions, "bound", original)
        holding.execute("COMMIT")
        done = converting.result()
    assert done.lock_waits >= 1
    assert done.did == "converted"


def test_a_lock_that_is_never_to_be_had_is_given_up(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres_database.script(PLAIN)
    monkeypatch.setattr("wane._partition.table.ATTEMPTS", 2)
    holding = postgres_database.connect()
    holding.execute("BEGIN")
    with keeping(postgres_database, tmp_path, CONTRACT.replace("ahead = 2", 'ahead = 2\nlock = "10ms"')) as keeper:
        holding.execute("SELECT 1 FROM event LIMIT 1")
        with pytest.raises(Locked):
            keeper.partition.convert("event", accept=True)
        holding.execute("COMMIT")
        assert keeper.partition.undo("event").did == "rolled back"


def test_a_table_that_was_changed_meanwhile_is_not_converted(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres_database.script(PLAIN)
    original = PostgresPartitions.swap

    def swap(this: PostgresPartitions, *arguments: object) -> None:
        postgres_database.execute("CREATE INDEX event_late ON event (body)")
        original(this, *arguments)  # type: ignore[arg-type]

    with keeping(postgres_database, tmp_path) as keeper:
        with monkeypatch.context() as patch:
            patch.setattr(PostgresPartitions, "swap", swap)
            with pytest.raises(StoreError, match="was changed since"):
                keeper.partition.convert("event", accept=True)
        assert partitions(postgres_database) == []
        assert keeper.partition.undo("event").did == "rolled back"
        assert keeper.partition.convert("event", accept=True).did == "converted"
    assert postgres_database.query("SELECT count(*) FROM pg_indexes WHERE indexname LIKE 'event_late%'") == [(2,)]


def test_a_conversion_whose_month_is_near_prepares_for_a_later_one(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres_database.script(PLAIN)

    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    with keeping(postgres_database, tmp_path) as keeper:
        with monkeypatch.context() as patch:
            patch.setattr(PostgresPartitions, "swap", broken)
            with pytest.raises(KeyboardInterrupt):
                keeper.partition.convert("event", accept=True)
        bounds = "SELECT count(*) FROM pg_constraint WHERE conname = 'event_p_bound'"
        assert postgres_database.query(bounds) == [(1,)]
        [(until,)] = postgres_database.query("SELECT facts ->> 'until' FROM wane.partition_change")
        # As if it had been planned last month: its month has begun.
        past = Month.named(until).later(-1).name
        postgres_database.execute(
            "UPDATE wane.partition_change SET facts = jsonb_set(facts, '{until}', to_jsonb(?::text))", (past,)
        )
        PartitionChore(keeper.contract, ignore_event)(keeper.store, "a test")
        assert postgres_database.query(bounds) == [(0,)], (
            "nobody may be refused a row because a conversion was forgotten"
        )
        assert keeper.partition.convert("event", accept=True).did == "converted"
    assert f"event_p_before_{until}" in partitions(postgres_database)
