"""A row that the application inserts below a follower while its batch leaves is counted, or refused: never deleted by a
cascade alone.

Followers leave from the bottom up, one statement per table. The application inserts between two of them, or is about to
commit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from races.racing import (
    JOBS,
    Background,
    Paused,
    audited,
    await_true,
    await_waiting,
    backend,
    backend_of,
    create,
    enabled_keeper,
    fill,
    ids,
    sweeper,
)
from servers import PostgresDatabase
from wane._db.postgres.transaction import PostgresTransaction
from wane._keeper import Keeper
from wane._partition.sql import PostgresPartitions, partitions_of
from wane._rules.selection import bind_contract, follower_paths
from wane._sqlfunctions import install

NESTED = 'with = [{ table = "notes", columns = "job_id", with = ["words.note_id"] }]\n'
WORDS = "CREATE TABLE words (id bigint PRIMARY KEY, note_id bigint REFERENCES notes ON DELETE CASCADE)"
SHELVED = '[archive.jobs]\ntier = "database"\nkeep = "forever"\n' + JOBS + 'then = "archive"\n' + NESTED
CONTRACTS = {"pruned": JOBS + NESTED, "shelved": SHELVED}
TAKES: dict[str, Callable[[Keeper], Any]] = {
    "prune": lambda keeper: keeper.prune("jobs", rule="done", limit=10),
    "sweep": lambda keeper: sweeper(keeper).sweep(["jobs.done"]),
}


def prepare(database: PostgresDatabase, references: str = "REFERENCES jobs ON DELETE CASCADE") -> None:
    """Insert two jobs, each with a note, each note with a word."""
    create(database, references)
    database.script(f"{WORDS}; CREATE INDEX words_note ON words (note_id)")
    fill(database, 2)
    database.script("INSERT INTO notes VALUES (1, 1), (2, 2); INSERT INTO words VALUES (1, 1), (2, 2)")


def between(
    database: PostgresDatabase,
    taker: Keeper | PostgresPartitions,
    pause: Paused,
    take: Callable[[], object],
    insert: str,
) -> bool:
    """Insert while the transaction stands before its last delete; return whether the application was let in."""
    application = database.connect()
    taking = Background(take)
    pause.await_reached()
    inserting = Background(lambda: application.execute(insert))

    def waits() -> bool:
        blockers = database.query("SELECT unnest(pg_blocking_pids(?))", (backend(application),))
        return (backend_of(taker),) in blockers

    await_true(lambda: not inserting.running or waits(), "the application inserts, or waits for the batch")
    pause.go_on.set()
    taking.result()
    try:
        inserting.result()
    except psycopg.errors.ForeignKeyViolation:
        return False
    return True


@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_row_inserted_below_a_follower_that_leaves_waits_and_is_refused(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contract: str, take: str
) -> None:
    prepare(postgres_database)
    with enabled_keeper(postgres_database, tmp_path, CONTRACTS[contract]) as keeper:
        pause = Paused(monkeypatch, PostgresTransaction, "change", 'DELETE FROM "public"."notes"')
        insert = "INSERT INTO words VALUES (3, 2)"
        assert not between(postgres_database, keeper, pause, lambda: TAKES[take](keeper), insert)
        assert ids(postgres_database, "words") == []
        assert audited(keeper, "words") == 2


def test_without_a_foreign_key_the_follower_waits_and_what_is_below_it_stays(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(postgres_database, "")
    with enabled_keeper(postgres_database, tmp_path, JOBS + NESTED) as keeper:
        pause = Paused(monkeypatch, PostgresTransaction, "change", 'DELETE FROM "public"."notes"')
        insert = "WITH note AS (INSERT INTO notes VALUES (3, 2) RETURNING id) INSERT INTO words SELECT 3, id FROM note"
        assert between(postgres_database, keeper, pause, lambda: TAKES["prune"](keeper), insert)
        assert len(ids(postgres_database, "words")) + audited(keeper, "words") == 3
        assert len(ids(postgres_database, "notes")) + audited(keeper, "notes") == 3


def test_a_follower_of_a_row_with_too_many_is_not_deleted_above_a_row_that_was_inserted(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(postgres_database)
    postgres_database.script("UPDATE notes SET job_id = 1; DELETE FROM words; INSERT INTO notes VALUES (3, 1), (4, 1)")
    with enabled_keeper(postgres_database, tmp_path, JOBS + NESTED) as keeper:
        pause = Paused(monkeypatch, PostgresTransaction, "change", 'DELETE FROM "public"."notes"')

        def take() -> object:
            return keeper.prune("jobs", rule="done", limit=2)

        # Any of the four notes: two of them are locked to leave.
        insert = "INSERT INTO words SELECT id, id FROM notes ORDER BY id"
        inserted = 4 if between(postgres_database, keeper, pause, take, insert) else 0
        assert audited(keeper, "notes") == 2
        while ids(postgres_database, "notes"):
            take()
        take()
        assert ids(postgres_database) == ids(postgres_database, "words") == []
        assert audited(keeper, "words") == inserted
        assert audited(keeper, "jobs") == 2


def test_a_row_below_a_follower_that_a_transaction_is_about_to_commit_stays_whole(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    """The row that refers is committed while the batch waits for its follower, after the batch counted what would
    leave."""
    prepare(postgres_database)
    application = postgres_database.connect()
    with enabled_keeper(postgres_database, tmp_path, JOBS + NESTED) as keeper:
        with application.transaction():
            application.execute("INSERT INTO words VALUES (3, 2)")
            sweeping = Background(lambda: TAKES["sweep"](keeper))
            await_waiting(postgres_database, backend_of(keeper), backend(application))
        sweeping.result()
        assert ids(postgres_database, "words") == []
        assert audited(keeper, "words") == 3


def test_a_call_takes_no_more_than_its_limit_when_rows_arrive_below_its_followers(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    prepare(postgres_database)
    application = postgres_database.connect()
    with enabled_keeper(postgres_database, tmp_path, JOBS + NESTED) as keeper:
        with application.transaction():
            application.execute("INSERT INTO words VALUES (3, 1)")
            taking = Background(lambda: keeper.prune("jobs", rule="done", limit=3))
            await_waiting(postgres_database, backend_of(keeper), backend(application))
        assert taking.result().rows <= 3
        while ids(postgres_database):
            assert keeper.prune("jobs", rule="done", limit=3).rows <= 3
        assert audited(keeper, "words") == 3


def test_a_row_below_a_follower_of_a_partition_is_quarantined_with_it(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if word 2 were inserted after the words had moved, and word 3 after the notes were locked."""
    prepare(postgres_database)
    with (
        enabled_keeper(postgres_database, tmp_path, JOBS + NESTED) as keeper,
        closing(partitions_of(keeper.store)) as partitions,
    ):
        [selection], _ = bind_contract(keeper.contract, keeper.store.reflect(), keeper.store.types)
        words, notes = follower_paths(selection)
        pause = Paused(monkeypatch, PostgresTransaction, "execute", 'DELETE FROM "public"."notes"')

        def take() -> object:
            below = [(words, "wane.words_aside")]
            return partitions.take_along(
                selection, notes, "public.jobs", "wane.notes_aside", 10, lambda _: None, None, below
            )

        insert = "INSERT INTO words VALUES (3, 2)"
        assert not between(postgres_database, partitions, pause, take, insert)
        assert ids(postgres_database, "notes") == ids(postgres_database, "words") == []
        assert ids(postgres_database, "wane.notes_aside") == ids(postgres_database, "wane.words_aside") == [1, 2]


def test_functions_in_the_database_count_a_row_that_arrives_below_a_follower(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    prepare(postgres_database)
    application, caller = postgres_database.connect(), postgres_database.connect()
    with enabled_keeper(postgres_database, tmp_path, JOBS + NESTED) as keeper:
        install(keeper)

    def prune() -> Any:
        while True:
            try:
                [(answer,)] = caller.execute("SELECT wane.prune('jobs', 'done', 10)").fetchall()
            except psycopg.errors.LockNotAvailable:
                continue
            if answer["rows"]:
                return answer

    with application.transaction():
        application.execute("INSERT INTO words VALUES (3, 2)")
        pruning = Background(prune)
        await_waiting(postgres_database, backend(caller), backend(application))
    assert pruning.result()["counts"] == {"jobs": 2, "notes": 2, "words": 3}
    assert ids(postgres_database, "words") == []
