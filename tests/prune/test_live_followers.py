"""A follower in a live state of its own table keeps the row that it follows, unless the contract says that it leaves
too."""

from __future__ import annotations

from contextlib import suppress

import psycopg
import pytest

from prune.keeping import ago, follower, insert, jobs, keeping, notes, rule, table
from servers import Database, PostgresDatabase
from wane._contract.model import Follower, Table
from wane._prune.pace import FAST
from wane._sqlfunctions import install
from wane.errors import BindError, Locked

NOTES = table("note", rule(when=["sent"]), state="kind", live=["draft", "open"])
PAGES = table("page", rule(when=["read"]), state="mood", live=["unread"])
PAGE = "CREATE TABLE page (id integer NOT NULL PRIMARY KEY, note_id integer {}, mood text, at_ms bigint)"


def followed(*followers: Follower) -> Table:
    return table("job", rule(followers=followers))


def prepare(database: Database, *, keys: bool = True) -> None:
    """Insert four due rows with a note each: of row 1 a live one, of row 2 a live one among others, of rows 3 and 4
    none."""
    jobs(database, *[(n, "done", ago(30 - n)) for n in range(1, 5)])
    rows = [(1, 1, "draft"), (2, 2, "sent"), (3, 2, "open"), (4, 3, "sent"), (5, 4, None)]
    notes(database, *rows, foreign_key="job (id)" if keys else None)
    database.execute("ALTER TABLE note ADD COLUMN at_ms bigint")


def pages(database: Database, *rows: tuple[int, int, str], keys: bool = True) -> None:
    database.execute(PAGE.format("REFERENCES note (id)" if keys else ""))
    database.execute("CREATE INDEX page_note ON page (note_id)")
    insert(database, "page", "id, note_id, mood", *rows)


@pytest.mark.parametrize("keys", [True, False], ids=["foreign key", "no key"])
def test_a_live_follower_keeps_its_row(database: Database, keys: bool) -> None:
    prepare(database, keys=keys)
    with keeping(database, followed(follower("note.job_id")), NOTES) as opened:
        assert opened.keeper.plan("job").due == 2
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 2, "note": 2}
        assert (opened.ids(), opened.ids("note")) == ([1, 2], [1, 2, 3])
        database.execute("UPDATE note SET kind = 'sent' WHERE id = 3")
        opened.keeper.enable()
        [swept] = opened.keeper.sweep("job", pace=FAST).rules
        assert swept.counts == {"job": 1, "note": 2}
        assert (opened.ids(), opened.ids("note")) == ([1], [1])


def test_a_live_follower_of_a_follower_keeps_the_row(database: Database) -> None:
    prepare(database)
    database.execute("UPDATE note SET kind = 'sent'")
    pages(database, (1, 1, "unread"), (2, 2, "read"), (3, 4, "unread"))
    with keeping(database, followed(follower("note.job_id", follower("page.note_id"))), NOTES, PAGES) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 2, "note": 3, "page": 1}
        assert (opened.ids(), opened.ids("note"), opened.ids("page")) == ([1, 3], [1, 4], [1, 3])


def test_the_contract_may_state_that_live_followers_leave(database: Database) -> None:
    prepare(database)
    pages(database, (1, 1, "unread"), (2, 4, "unread"))
    inner = follower("page.note_id")
    with keeping(database, followed(follower("note.job_id", inner, live_leaves=True)), NOTES, PAGES) as opened:
        [step] = [step for step in opened.keeper.plan().steps if step.table == "job"]
        assert step.live_followers == ("note",)
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 2, "note": 3, "page": 0}
        assert (opened.ids(), opened.ids("note"), opened.ids("page")) == ([1, 3], [1, 4], [1, 2])


def test_a_live_row_that_would_not_leave_keeps_nothing(database: Database) -> None:
    prepare(database, keys=False)
    with keeping(database, followed(follower("note.job_id", where={"kind": "open"})), NOTES) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 3, "note": 0}
        assert (opened.ids(), opened.ids("note")) == ([2], [1, 2, 3, 4, 5])


def test_a_row_with_too_many_followers_loses_none_while_one_of_them_is_live(database: Database) -> None:
    prepare(database)
    insert(database, "note", "id, job_id, kind", *[(n, 2, "sent") for n in range(10, 30)])
    with keeping(database, followed(follower("note.job_id")), NOTES) as opened:
        database.execute("DELETE FROM note WHERE job_id IN (3, 4)")
        database.execute("DELETE FROM job WHERE id IN (3, 4)")
        assert opened.keeper.prune("job", rule="old", limit=5).rows == 0
        database.execute("UPDATE note SET kind = NULL WHERE id = 3")
        assert opened.keeper.prune("job", rule="old", limit=5).counts == {"job": 0, "note": 5}
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 1, "note": 17}
        assert (opened.ids(), opened.ids("note")) == ([1], [1])


def test_a_row_that_a_live_one_follows_is_not_discarded(database: Database) -> None:
    prepare(database)
    with keeping(database, followed(follower("note.job_id")), NOTES) as opened:
        assert not opened.keeper.discard("job", {"id": 2})
        assert opened.keeper.discard("job", {"id": 3})
        assert (opened.ids(), opened.ids("note")) == ([1, 2, 4], [1, 2, 3, 5])


def test_an_explicit_call_leaves_rows_with_live_followers(database: Database) -> None:
    prepare(database)
    with keeping(database, followed(follower("note.job_id")), NOTES) as opened:
        assert opened.keeper.prune("job", states=["done"], older_than=ago(1) // 1_000, limit=100).counts["job"] == 2
        assert opened.ids() == [1, 2]


def test_a_live_state_that_cannot_be_found_refuses_the_rule(database: Database) -> None:
    prepare(database)
    for lost in (table("note", rule(), state="mood", live=["x"]), table("note", rule(), state="job_id", live=["x"])):
        with keeping(database, followed(follower("note.job_id")), lost) as opened:
            with pytest.raises(BindError) as raised:
                opened.keeper.prune("job", rule="old", limit=100)
            assert [one.code for one in raised.value.findings] in (["missing-column"], ["wrong-state-type"])
            assert opened.ids() == [1, 2, 3, 4]


REVIVED = "UPDATE note SET kind = 'open' WHERE id = 4"
ARRIVED = "INSERT INTO note (id, job_id, kind) VALUES (9, 3, 'draft')"
ARRIVED_BELOW = "INSERT INTO page (id, note_id, mood) VALUES (9, 4, 'unread')"
REVIVED_BELOW = "UPDATE page SET mood = 'unread' WHERE id = 2"


@pytest.mark.parametrize("surface", ["python", "sql"])
@pytest.mark.parametrize("keys", [True, False], ids=["foreign key", "no key"])
@pytest.mark.parametrize("change", [REVIVED, ARRIVED, ARRIVED_BELOW, REVIVED_BELOW])
def test_a_follower_that_becomes_live_in_an_open_transaction_keeps_its_row(
    postgres_database: PostgresDatabase, change: str, keys: bool, surface: str
) -> None:
    prepare(postgres_database, keys=keys)
    pages(postgres_database, (1, 5, "read"), (2, 4, "read"), keys=keys)
    writer, caller = postgres_database.connect(), postgres_database.connect()
    declared = followed(follower("note.job_id", follower("page.note_id")))
    with keeping(postgres_database, declared, NOTES, PAGES) as opened:
        install(opened.keeper)

        def prune() -> int:
            if surface == "python":
                return opened.keeper.prune("job", rule="old", limit=100).counts["job"]
            [(done,)] = caller.execute("SELECT wane.prune('job', 'old', 100)").fetchall()
            return int(done["counts"]["job"])

        with writer.transaction():
            writer.execute(change.encode())
            with suppress(Locked, psycopg.errors.LockNotAvailable):
                assert prune() <= 1
        prune()
        assert opened.ids() == [1, 2, 3]
        assert {1, 2, 3, 4} <= set(opened.ids("note"))
