"""What pruning freed, what nobody uses, what to do about it; and giving pages back on SQLite."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from covering import loaded, numbers
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.settings import SpaceSettings
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._ledger import Ledger
from wane._prune.pace import FAST
from wane.errors import Locked, NotMigrated, StoreError, UnknownTable, WrongArgument
from wane.observe._space import FileVacuum
from wane.observe._sql_space import give_back, read_database_space

TEXT = """
[scheduler]
s = { every = "5m" }
[table.events]
scheduler = "s"
why = "A test."
time = { column = "at", unit = "ms" }
[table.events.rule.old]
keep = "7d"
with = ["parts.event_id"]
"""
ROWS = 3_000
OLD = 1_700_000_000_000
BODY = "x" * 200
SMALL = SpaceSettings(bytes=20_000)


def fill(database: Database) -> None:
    database.script(
        "CREATE TABLE events (id bigint PRIMARY KEY, at bigint NOT NULL, body text);"
        "CREATE INDEX events_at ON events (at, id);"
        "CREATE TABLE parts (id bigint PRIMARY KEY, event_id bigint REFERENCES events (id));"
        "CREATE INDEX parts_event ON parts (event_id);"
    )
    database.execute(f"INSERT INTO events SELECT n, {OLD} + n, '{BODY}' FROM {numbers(ROWS)}")
    database.execute(f"INSERT INTO parts SELECT n, n FROM {numbers(100)}")


@contextmanager
def migrated_keeper(
    database: Database, *, read_only: bool = False, settings: SpaceSettings = SMALL
) -> Iterator[Keeper]:
    contract = replace(loaded(TEXT), space=settings)
    with Keeper(contract, open_store(resolve_url(database.url), read_only=read_only)) as keeper:
        if not read_only:
            keeper.migrate()
        yield keeper


@pytest.fixture
def keeper(database: Database) -> Iterator[Keeper]:
    if isinstance(database, SqliteDatabase):
        database.script("PRAGMA journal_mode = delete; PRAGMA auto_vacuum = incremental; VACUUM")
    fill(database)
    with migrated_keeper(database) as opened:
        yield opened


def settle(database: Database) -> None:
    """Let PostgreSQL know its own numbers: statistics and activity are reported late."""
    if database.store == "postgres":
        database.script("ANALYZE")
        [(version,)] = database.query("SELECT current_setting('server_version_num')::int")
        if version >= 150000:
            database.query("SELECT pg_stat_force_next_flush()")


def test_what_left_is_reported_by_the_trail_and_on_the_disk(keeper: Keeper, database: Database) -> None:
    keeper.take_snapshots()
    settle(database)
    before = {one.table: one for one in keeper.space().tables}
    assert before["events"].space.row_bytes == pytest.approx(len(BODY) + 40, abs=30)
    assert (before["events"].pruned_rows, before["events"].freed_bytes) == (0, 0)
    keeper.prune("events", rule="old", limit=2_100)
    settle(database)
    found = {one.table: one for one in keeper.space().tables}
    events, parts = found["events"], found["parts"]
    assert (events.pruned_rows, parts.pruned_rows) == (2_000, 100)
    assert events.freed_bytes == pytest.approx(2_000 * (len(BODY) + 40), rel=0.2)
    # Nothing went back to the disk: the room is there, and new rows will use it.
    if database.store == "postgres":
        assert events.changed_bytes is not None
        assert events.changed_bytes >= 0
    else:
        assert keeper.space().database.free_pages
        assert keeper.space().database.free_bytes >= 1_900 * len(BODY)


def test_what_left_before_does_not_count(keeper: Keeper) -> None:
    keeper.prune("events", rule="old", limit=10)
    later = keeper.store.now() + timedelta(microseconds=1)
    assert keeper.space("events", since=later - timedelta(hours=1)).tables[0].pruned_rows == 5
    assert keeper.space("events", since=later).tables[0].pruned_rows == 0


def test_marked_rows_are_not_freed(keeper: Keeper) -> None:
    entry = keeper.prune("events", rule="old", limit=1)
    with keeper.store.transaction() as transaction:
        Ledger.of(transaction).record(replace(keeper.audit(limit=1)[0], kind="mark", counts={"events": 999}))
    assert entry.counts["events"] in (0, 1)
    assert (keeper.space("events").tables[0].pruned_rows or 0) < 2


def test_one_table_and_what_is_unknown(keeper: Keeper) -> None:
    [one] = keeper.space("parts").tables
    assert one.table == "parts"
    assert one.space.rows in (0, 100)
    assert one.bytes_then is None
    assert one.changed_bytes is None
    with pytest.raises(UnknownTable, match="nope"):
        keeper.space("nope")
    with pytest.raises(WrongArgument, match="still to come"):
        keeper.space(since=keeper.store.now() + timedelta(days=1))


def test_an_empty_table_and_an_empty_history_are_fine(database: Database) -> None:
    database.script("CREATE TABLE events (id bigint PRIMARY KEY, at bigint)")
    with migrated_keeper(database) as keeper:
        [one] = keeper.space().tables
    assert (one.pruned_rows, one.freed_bytes, one.changed_bytes, one.advice) == (0, 0, None, ())


def test_a_read_only_database_is_measured(keeper: Keeper, database: Database) -> None:
    with migrated_keeper(database, read_only=True) as reader:
        assert [one.table for one in reader.space().tables] == ["events", "parts"]
        with pytest.raises(StoreError):
            reader.vacuum()


@pytest.mark.unmigrated
def test_without_own_tables_it_states_what_to_run(database: Database) -> None:
    with Keeper(loaded(TEXT), open_store(resolve_url(database.url))) as opened, pytest.raises(NotMigrated):
        opened.space()


# PostgreSQL


def advice(keeper: Keeper, table: str = "events") -> dict[str, str]:
    [one] = keeper.space(table).tables
    return {each.what: each.statement for each in one.advice}


def test_advice_follows_the_state_of_a_table(postgres_database: PostgresDatabase) -> None:
    fill(postgres_database)
    with migrated_keeper(postgres_database) as keeper:
        assert advice(keeper) == {"analyze": 'ANALYZE "public"."events";'}
        settle(postgres_database)
        assert advice(keeper) == {}
        postgres_database.execute("DELETE FROM parts")
        postgres_database.execute("DELETE FROM events WHERE id % 10 <> 0")
        settle(postgres_database)
        [one] = keeper.space("events").tables
        assert one.space.dead_rows == 2_700, one.space
        assert one.dead_bytes == pytest.approx(2_700 * 240, rel=0.2), one.space
        assert advice(keeper)["vacuum"] == 'VACUUM (ANALYZE) "public"."events";'
        for statement in advice(keeper).values():
            postgres_database.execute(statement)
        settle(postgres_database)
        [one] = keeper.space("events").tables
        assert one.space.vacuumed_at is not None
        assert (one.space.unused_bytes or 0) > 0.7 * one.space.table_bytes
        reported = [(each.what, each.statement, each.blocks) for each in one.advice if each.what != "reindex"]
        assert reported == [
            ("trim", 'VACUUM (TRUNCATE, ANALYZE) "public"."events";', False),
            ("repack", "pg_repack --table=public.events", False),
            ("rewrite", 'VACUUM (FULL, ANALYZE) "public"."events";', True),
        ]
        assert [each.blocks for each in one.advice] == sorted(each.blocks for each in one.advice)
        for what, statement, _ in reported:
            if what != "repack":  # A command, of an extension.
                postgres_database.execute(statement)
        settle(postgres_database)
        assert advice(keeper) == {}
        [one] = keeper.space("events").tables
        assert (one.space.unused_bytes or 0) < 0.2 * one.space.table_bytes


def test_an_index_that_is_mostly_empty_is_to_be_rebuilt(postgres_database: PostgresDatabase) -> None:
    fill(postgres_database)
    with migrated_keeper(postgres_database) as keeper:
        postgres_database.execute("DELETE FROM parts")
        postgres_database.execute("DELETE FROM events WHERE id % 10 <> 0")
        postgres_database.execute("VACUUM ANALYZE events")
        [one] = keeper.space("events").tables
        statements = [each.statement for each in one.advice if each.what == "reindex"]
        assert 'REINDEX INDEX CONCURRENTLY "public"."events_at";' in statements
        for statement in statements:
            postgres_database.execute(statement)
        settle(postgres_database)
        [one] = keeper.space("events").tables
        assert [each for each in one.advice if each.what == "reindex"] == []


def test_small_tables_are_not_worth_a_word(postgres_database: PostgresDatabase) -> None:
    fill(postgres_database)
    with migrated_keeper(postgres_database, settings=SpaceSettings()) as keeper:
        postgres_database.execute("DELETE FROM parts")
        settle(postgres_database)
        assert advice(keeper) == {}


def test_partitions_are_reported_together_and_their_indexes_by_name(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        "CREATE TABLE events (id bigint, at bigint, PRIMARY KEY (id)) PARTITION BY RANGE (id);"
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (1000);"
        "CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (1000) TO (2000);"
        f"INSERT INTO events SELECT n, n FROM {numbers(2000)}"
    )
    settle(postgres_database)
    with migrated_keeper(postgres_database) as keeper:
        [one] = keeper.space().tables
    assert (one.table, one.space.rows) == ("events", 2_000)
    assert [index.name for index in one.space.indexes] == ["events_1_pkey", "events_2_pkey"]
    assert one.space.index_bytes == sum(index.bytes for index in one.space.indexes)


def test_postgresql_is_never_vacuumed_by_wane(postgres_database: PostgresDatabase) -> None:
    fill(postgres_database)
    with (
        migrated_keeper(postgres_database) as keeper,
        pytest.raises(StoreError, match="which Wane does not run") as refused,
    ):
        keeper.vacuum()
    assert "wane space" in refused.value.hint


# SQLite


def holed(database: SqliteDatabase, mode: str = "incremental") -> None:
    """Create a database of which most pages are free."""
    database.script(f"PRAGMA journal_mode = delete; PRAGMA auto_vacuum = {mode}; VACUUM; PRAGMA journal_mode = wal")
    fill(database)
    database.execute("DELETE FROM parts")
    database.execute("DELETE FROM events")


def free(keeper: Keeper) -> int:
    return read_database_space(keeper.store).free_pages or 0


def test_pages_are_given_back_until_none_is_free(sqlite_database: SqliteDatabase) -> None:
    holed(sqlite_database)
    with migrated_keeper(sqlite_database) as keeper:
        before = free(keeper)
        assert before > 100
        [(pages,)] = sqlite_database.query("PRAGMA page_count")
        [reported] = keeper.space().advice
        assert (reported.what, reported.statement) == ("incremental vacuum", "wane space --vacuum")
        done = keeper.vacuum()
        assert (done.pages, done.left_pages, done.ended) == (before, 0, "done")
        assert done.bytes == before * 4096
        assert keeper.vacuum().pages == 0
        assert keeper.space().advice == ()
    sqlite_database.query("PRAGMA wal_checkpoint(TRUNCATE)")
    assert sqlite_database.path.stat().st_size <= (pages - before // 2) * 4096
    assert sqlite_database.query("PRAGMA integrity_check") == [("ok",)]


def test_no_more_pages_than_the_budget_allows(sqlite_database: SqliteDatabase) -> None:
    holed(sqlite_database)
    with migrated_keeper(sqlite_database) as keeper:
        before = free(keeper)
        done = keeper.vacuum(pages=37)
        assert (done.pages, done.left_pages, done.ended) == (37, before - 37, "pages")


def test_no_more_time_than_the_budget_allows_and_a_stop_is_received(sqlite_database: SqliteDatabase) -> None:
    holed(sqlite_database)
    with migrated_keeper(sqlite_database) as keeper:
        small = replace(FAST, first_batch=1, least_batch=1, most_batch=1)
        done = FileVacuum(keeper.store, 0.000001, 1_000, pace=small).run()
        assert done.ended == "seconds"
        stop = threading.Event()
        stop.set()
        done = keeper.vacuum(stop=stop)
        assert (done.pages, done.ended) == (0, "stopped")


@pytest.mark.parametrize(("seconds", "pages"), [(0, 5), (-1.0, 5), (5, 0), (5, -3)])
def test_a_budget_of_nothing_is_refused(sqlite_database: SqliteDatabase, seconds: float, pages: int) -> None:
    holed(sqlite_database)
    with migrated_keeper(sqlite_database) as keeper:
        before = free(keeper)
        with pytest.raises(WrongArgument, match="above zero"):
            keeper.vacuum(seconds=seconds, pages=pages)
        # To SQLite itself, no pages would mean all of them.
        assert give_back(keeper.store, 0) == 0
        assert free(keeper) == before


@pytest.mark.parametrize(("mode", "words"), [("none", "bit by bit"), ("full", "every commit")])
def test_other_modes_are_refused_with_what_to_do(sqlite_database: SqliteDatabase, mode: str, words: str) -> None:
    holed(sqlite_database, mode)
    with migrated_keeper(sqlite_database) as keeper:
        with pytest.raises(StoreError, match=words):
            keeper.vacuum()
        reported = keeper.space().advice
        if mode == "full":
            assert reported == ()
            return
        copy, one = reported
        assert (copy.statement, copy.blocks) == ("VACUUM INTO 'compact.db';", False)
        assert (one.statement, one.blocks) == ("PRAGMA auto_vacuum = INCREMENTAL; VACUUM;", True)
    sqlite_database.script(f"PRAGMA journal_mode = delete; {one.statement}")
    with migrated_keeper(sqlite_database) as keeper:
        assert read_database_space(keeper.store).auto_vacuum == "incremental"
        assert free(keeper) == 0


def test_a_database_that_others_keep_is_unchanged(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    holed(sqlite_database)
    monkeypatch.setattr("wane._db.sqlite.store.BUSY_SECONDS", 0.05)
    with migrated_keeper(sqlite_database) as keeper, closing(sqlite3.connect(sqlite_database.path)) as other:
        before = free(keeper)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Locked):
            keeper.vacuum()
        other.rollback()
        assert free(keeper) == before
