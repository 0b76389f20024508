"""Whatever another transaction does to a row between the read of the candidates and the delete, a row that is no longer
due stays.

On PostgreSQL the overlap is real: the server says that the batch waits for the other transaction before that one
commits. On SQLite a batch has the write lock from its first statement, so the other transaction comes before or after,
never between.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from races.racing import (
    CAPPED,
    FOLLOWED,
    GUARDED,
    JOBS,
    NEW,
    OLD,
    Background,
    Paused,
    audited,
    await_waiting,
    backend,
    backend_of,
    create,
    enabled_keeper,
    fill,
    ids,
    ms,
    sweeper,
)
from servers import PostgresDatabase
from wane._db.postgres.transaction import PostgresTransaction
from wane._db.statement import Statement
from wane._keeper import Keeper
from wane._prune.sweep import Outcome

pytestmark = pytest.mark.usefixtures("patient")

DAY = timedelta(days=1)
MARKED = JOBS + 'then = { mark = "seen" }\n[table.jobs.rule.seen]\nwhen = ["seen"]\nkeep = "forever"\n'

CHANGES = {
    "revived": ("UPDATE jobs SET status = 'open' WHERE id = 2", ()),
    "moved in time": ("UPDATE jobs SET done_at = %s WHERE id = 2", (ms(NEW),)),
    "without a time": ("UPDATE jobs SET done_at = NULL WHERE id = 2", ()),
    "another key": ("UPDATE jobs SET id = 99, status = 'open' WHERE id = 2", ()),
}
TAKES: dict[str, Callable[[Keeper], int]] = {
    "prune": lambda keeper: keeper.prune("jobs", rule="done", limit=10).counts["jobs"],
    "explicit": lambda keeper: keeper.prune("jobs", states=["done"], older_than=NEW - DAY, limit=10).counts["jobs"],
    "sweep": lambda keeper: sweeper(keeper).sweep(["jobs.done"]).rules[0].counts["jobs"],
}


def overlap(
    database: PostgresDatabase, keeper: Keeper, statement: str, values: tuple[Any, ...], take: Callable[[Keeper], int]
) -> int:
    """Change rows in an open transaction, begin to take, see the taking wait, then commit."""
    application = database.connect()
    with application.transaction():
        application.execute(statement.encode(), values)
        taking = Background(lambda: take(keeper))
        await_waiting(database, backend_of(keeper), backend(application))
        assert taking.running
    return taking.result()


@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED, MARKED], ids=["plain", "guarded", "followed", "marked"])
def test_a_changed_row_survives(
    postgres_database: PostgresDatabase, tmp_path: Path, contract: str, change: str, take: str
) -> None:
    if contract is MARKED and take == "explicit":
        contract = JOBS  # An explicit call never marks.
    create(postgres_database, "REFERENCES jobs")
    fill(postgres_database, 4)
    if contract is JOBS or contract is MARKED:
        postgres_database.execute("DROP TABLE notes")
    with enabled_keeper(postgres_database, tmp_path, contract) as keeper:
        statement, values = CHANGES[change]
        taken = overlap(postgres_database, keeper, statement, values, TAKES[take])
        assert taken == 3
        assert audited(keeper) == 3
        survivor = 99 if change == "another key" else 2
        if contract is MARKED:
            changed = postgres_database.query("SELECT id FROM jobs WHERE status <> 'seen'")
            assert changed == [(survivor,)]
        else:
            assert ids(postgres_database) == [survivor]


@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("contract", [JOBS, GUARDED, FOLLOWED], ids=["plain", "guarded", "followed"])
@pytest.mark.parametrize("condition", ['{ queue = "mail" }', "{ id = { '<' = { column = 'most' } } }"])
def test_a_row_that_no_longer_fulfils_the_condition_survives(
    postgres_database: PostgresDatabase, tmp_path: Path, contract: str, condition: str, take: str
) -> None:
    create(postgres_database, "REFERENCES jobs")
    postgres_database.execute("ALTER TABLE jobs ADD queue text DEFAULT 'mail', ADD most integer DEFAULT 9")
    fill(postgres_database, 4)
    if contract is JOBS:
        postgres_database.execute("DROP TABLE notes")
    with enabled_keeper(postgres_database, tmp_path, contract + f"where = {condition}\n") as keeper:
        change = "UPDATE jobs SET queue = 'audit', most = 2 WHERE id = 2"
        assert overlap(postgres_database, keeper, change, (), TAKES[take]) == 3
        assert audited(keeper) == 3
        assert ids(postgres_database) == [2]


@pytest.mark.parametrize("action", ["NO ACTION", "RESTRICT", "CASCADE", "SET NULL", "none"])
def test_a_row_that_gets_a_reference_from_an_open_transaction_survives(
    postgres_database: PostgresDatabase, tmp_path: Path, action: str
) -> None:
    create(postgres_database, "" if action == "none" else f"REFERENCES jobs ON DELETE {action}")
    fill(postgres_database, 4)
    with enabled_keeper(postgres_database, tmp_path, GUARDED) as keeper:
        taken = overlap(postgres_database, keeper, "INSERT INTO notes VALUES (1, 2)", (), TAKES["sweep"])
        assert taken == 3
        assert ids(postgres_database) == [2]
        assert postgres_database.query("SELECT id, job_id FROM notes") == [(1, 2)]
        assert audited(keeper) == 3
        assert audited(keeper, "notes") == 0


@pytest.mark.parametrize("action", ["NO ACTION", "CASCADE", "SET NULL", "none"])
def test_a_reference_that_moves_to_the_row_saves_it(
    postgres_database: PostgresDatabase, tmp_path: Path, action: str
) -> None:
    create(postgres_database, "" if action == "none" else f"REFERENCES jobs ON DELETE {action}")
    fill(postgres_database, 4)
    postgres_database.execute("INSERT INTO notes VALUES (1, 4)")
    with enabled_keeper(postgres_database, tmp_path, GUARDED) as keeper:
        taken = overlap(postgres_database, keeper, "UPDATE notes SET job_id = 2 WHERE id = 1", (), TAKES["prune"])
        # The reference left row 4 in the same breath; with a foreign key that is seen in this batch, after the lock.
        assert ids(postgres_database) in ([2], [2, 4])
        assert taken == 4 - len(ids(postgres_database)) == audited(keeper)


@pytest.mark.parametrize("action", ["NO ACTION", "CASCADE"])
def test_a_follower_that_arrives_in_an_open_transaction_leaves_counted(
    postgres_database: PostgresDatabase, tmp_path: Path, action: str
) -> None:
    create(postgres_database, f"REFERENCES jobs ON DELETE {action}")
    fill(postgres_database, 4)
    postgres_database.execute("INSERT INTO notes VALUES (7, 3)")
    with enabled_keeper(postgres_database, tmp_path, FOLLOWED) as keeper:
        taken = overlap(postgres_database, keeper, "INSERT INTO notes VALUES (1, 2)", (), TAKES["sweep"])
        assert taken == 4
        assert ids(postgres_database) == ids(postgres_database, "notes") == []
        assert audited(keeper, "notes") == 2


LIVE_NOTES = """
[table.notes]
scheduler = "night"
why   = "a test"
state = "body"
live  = ["open"]
time  = { column = "id", unit = "ms" }
rule.gone = { when = ["shut"], keep = "7d" }
"""


@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize(
    ("change", "references"),
    [
        ("INSERT INTO notes VALUES (1, 2, 'open')", "REFERENCES jobs"),
        ("INSERT INTO notes VALUES (1, 2, 'open')", ""),
        ("INSERT INTO notes VALUES (1, 2, 'open')", "REFERENCES jobs DEFERRABLE INITIALLY DEFERRED"),
        ("UPDATE notes SET body = 'open' WHERE id = 7", "REFERENCES jobs"),
        ("UPDATE notes SET body = 'open', job_id = 2 WHERE id = 8", "REFERENCES jobs"),
    ],
)
def test_a_follower_that_becomes_live_keeps_its_row(
    postgres_database: PostgresDatabase, tmp_path: Path, change: str, references: str, take: str
) -> None:
    create(postgres_database, references)
    fill(postgres_database, 4)
    postgres_database.execute("INSERT INTO notes VALUES (7, 2, 'shut'), (8, 4, 'shut')")
    with enabled_keeper(postgres_database, tmp_path, FOLLOWED + LIVE_NOTES) as keeper:
        assert overlap(postgres_database, keeper, change, (), TAKES[take]) in (2, 3)
        assert 2 in ids(postgres_database)
        assert postgres_database.query("SELECT job_id FROM notes WHERE body = 'open'") == [(2,)]
        assert audited(keeper) == 4 - len(ids(postgres_database))


def test_the_writer_of_a_live_follower_can_lock_its_row_in_order_to_commit(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    """A deferred foreign key locks the row at the commit: a batch that had it would wait for the writer, and the writer
    for the batch."""
    create(postgres_database, "REFERENCES jobs DEFERRABLE INITIALLY DEFERRED")
    fill(postgres_database, 4)
    application, other = postgres_database.connect(), postgres_database.connect()
    with enabled_keeper(postgres_database, tmp_path, FOLLOWED + LIVE_NOTES) as keeper:
        with application.transaction():
            application.execute("INSERT INTO notes VALUES (1, 2, 'open')")
            taking = Background(lambda: TAKES["prune"](keeper))
            await_waiting(postgres_database, backend_of(keeper), backend(application))
            assert len(other.execute("SELECT 1 FROM jobs FOR KEY SHARE NOWAIT").fetchall()) == 4
        assert taking.result() == 3
        assert ids(postgres_database) == [2]


def test_a_follower_that_becomes_live_does_not_leave_before_its_row(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    """A row with more followers than a batch takes loses some of them first, but none that is live by then."""
    create(postgres_database, "REFERENCES jobs")
    fill(postgres_database, 1)
    postgres_database.execute("INSERT INTO notes SELECT n, 1, 'shut' FROM generate_series(1, 12) AS n")
    with enabled_keeper(postgres_database, tmp_path, FOLLOWED + LIVE_NOTES) as keeper:
        change = "UPDATE notes SET body = 'open' WHERE id <= 11"
        assert overlap(postgres_database, keeper, change, (), TAKES["prune"]) == 0
        assert ids(postgres_database) == [1]
        assert len(ids(postgres_database, "notes")) >= 11


def test_followers_that_the_application_deletes_first_are_its_own(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row with more followers than a batch takes loses some of them first; that there are none by then is no
    failure."""
    create(postgres_database, "REFERENCES jobs")
    fill(postgres_database, 1)
    postgres_database.execute("INSERT INTO notes SELECT n, 1 FROM generate_series(1, 20) AS n")
    with enabled_keeper(postgres_database, tmp_path, FOLLOWED) as keeper:
        pause = Paused(monkeypatch, PostgresTransaction, "change", "DELETE FROM")
        taking = Background(lambda: TAKES["prune"](keeper))
        pause.await_reached()
        postgres_database.execute("DELETE FROM notes")
        pause.go_on.set()
        assert taking.result() == 0
        assert audited(keeper, "notes") == 0
        assert TAKES["prune"](keeper) == 1


@pytest.mark.parametrize("action", ["NO ACTION", "RESTRICT", "CASCADE", "SET NULL"])
def test_a_reference_to_a_row_that_is_leaving_waits_and_is_refused(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    create(postgres_database, f"REFERENCES jobs ON DELETE {action}")
    fill(postgres_database, 2)
    application = postgres_database.connect()
    with enabled_keeper(postgres_database, tmp_path, GUARDED) as keeper:
        pause = Paused(monkeypatch, PostgresTransaction, "change", "DELETE FROM")
        taking = Background(lambda: TAKES["prune"](keeper))
        pause.await_reached()
        referring = Background(lambda: application.execute("INSERT INTO notes VALUES (1, 2)"))
        await_waiting(postgres_database, backend(application), backend_of(keeper))
        pause.go_on.set()
        assert taking.result() == 2
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            referring.result()
        assert ids(postgres_database) == ids(postgres_database, "notes") == []


def test_without_a_foreign_key_a_new_reference_waits_until_the_row_has_left(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(postgres_database)
    fill(postgres_database, 2)
    application = postgres_database.connect()
    with enabled_keeper(postgres_database, tmp_path, GUARDED) as keeper:
        pause = Paused(monkeypatch, PostgresTransaction, "change", "DELETE FROM")
        taking = Background(lambda: TAKES["prune"](keeper))
        pause.await_reached()
        referring = Background(lambda: application.execute("INSERT INTO notes SELECT 1, id FROM jobs WHERE id = 2"))
        await_waiting(postgres_database, backend(application), backend_of(keeper))
        pause.go_on.set()
        assert taking.result() == 2
        referring.result()
        assert ids(postgres_database) == ids(postgres_database, "notes") == [], "it rechecks when it has waited"


def test_a_row_that_a_heartbeat_moves_up_is_not_evicted_by_the_cap(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.execute("CREATE TABLE beats (id bigint PRIMARY KEY, seen_at bigint NOT NULL)")
    postgres_database.execute("CREATE INDEX beats_seen ON beats (seen_at, id)")
    postgres_database.executemany("INSERT INTO beats VALUES (?, ?)", [(n, ms(OLD) + n) for n in range(1, 53)])
    with enabled_keeper(postgres_database, tmp_path, CAPPED) as keeper:
        taken = overlap(
            postgres_database,
            keeper,
            "UPDATE beats SET seen_at = %s WHERE id = 1",
            (ms(NEW),),
            lambda keeper: keeper.prune("beats", rule="cap", limit=10).counts["beats"],
        )
        assert taken == 1, "only 2 was beyond the cap when 1 moved up"
        assert ids(postgres_database, "beats") == [1, *range(3, 53)]
        assert keeper.prune("beats", rule="cap", limit=10).counts["beats"] == 1
        assert len(ids(postgres_database, "beats")) == 50


def test_rows_that_leave_while_a_sweep_is_about_to_delete_move_the_edge_of_the_cap(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres_database.execute("CREATE TABLE beats (id bigint PRIMARY KEY, seen_at bigint NOT NULL)")
    postgres_database.execute("CREATE INDEX beats_seen ON beats (seen_at, id)")
    postgres_database.executemany("INSERT INTO beats VALUES (?, ?)", [(n, ms(OLD) + n) for n in range(1, 61)])
    with enabled_keeper(postgres_database, tmp_path, CAPPED) as keeper:
        pause = Paused(monkeypatch, PostgresTransaction, "change", "DELETE FROM")
        taking = Background(lambda: sweeper(keeper).sweep(["beats.cap"]).rules[0])
        pause.await_reached()
        postgres_database.execute("DELETE FROM beats WHERE id > 57")
        pause.go_on.set()
        swept = taking.result()
        assert (swept.outcome, swept.rows) == (Outcome.DONE, 7)
        assert ids(postgres_database, "beats") == list(range(8, 58)), "the newest fifty that were left"


def test_a_batch_beyond_a_cap_goes_on_where_others_have_added_rows(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = "INSERT INTO beats VALUES (?, ?)"
    postgres_database.execute("CREATE TABLE beats (id bigint PRIMARY KEY, seen_at bigint NOT NULL)")
    postgres_database.execute("CREATE INDEX beats_seen ON beats (seen_at, id)")
    postgres_database.executemany(add, [(n, ms(OLD) + n) for n in range(1, 61)])
    more = [(n, ms(OLD) + n) for n in range(61, 66)]
    original = PostgresTransaction.change

    def change(this: PostgresTransaction, statement: Statement) -> int:
        taken = original(this, statement)
        if more and "DELETE FROM" in statement.text:
            postgres_database.executemany(add, more)
            more.clear()
        return taken

    monkeypatch.setattr(PostgresTransaction, "change", change)
    with enabled_keeper(postgres_database, tmp_path, CAPPED) as keeper:
        swept = sweeper(keeper).sweep(["beats.cap"]).rules[0]
        assert (swept.outcome, swept.rows, swept.batches) == (Outcome.DONE, 15, 1)
        assert ids(postgres_database, "beats") == list(range(16, 66))
        assert not more


def test_a_database_with_another_isolation_level_changes_nothing(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    [(name,)] = postgres_database.query("SELECT current_database()")
    postgres_database.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    create(postgres_database, "REFERENCES jobs ON DELETE CASCADE")
    fill(postgres_database, 4)
    with enabled_keeper(postgres_database, tmp_path, GUARDED) as keeper:
        taken = overlap(postgres_database, keeper, "INSERT INTO notes VALUES (1, 2)", (), TAKES["sweep"])
        assert taken == 3
        assert ids(postgres_database) == [2]
        assert ids(postgres_database, "notes") == [1]


def test_an_open_transaction_that_rolls_back_saves_nothing(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    create(postgres_database, "REFERENCES jobs")
    fill(postgres_database, 2)
    application = postgres_database.connect()
    with enabled_keeper(postgres_database, tmp_path, GUARDED) as keeper:
        with application.transaction(force_rollback=True):
            application.execute("INSERT INTO notes VALUES (1, 2)")
            taking = Background(lambda: sweeper(keeper).sweep())
            await_waiting(postgres_database, backend_of(keeper), backend(application))
        assert taking.result().rules[0].outcome is Outcome.DONE
        assert ids(postgres_database) == []
