"""The schema changes while a process runs: what a delete relies on is compared in its transaction, so nothing leaves
uncounted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from prune.keeping import EXPIRES, Keeping, ago, follower, insert, jobs, keeping, notes, rule, table
from races.racing import GUARDED, Background, Paused, audited, create, enabled_keeper, fill, ids, sweeper
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._db.postgres.transaction import PostgresTransaction
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome, Sweeper
from wane._sqlfunctions import install
from wane.errors import BindError, SchemaChanged, StoreError
from wane.events import BatchTaken, Event

CASCADE = "CREATE TABLE payment (id integer PRIMARY KEY, job_id integer REFERENCES job (id) ON DELETE CASCADE)"


def paid(database: Database, *numbers: int) -> None:
    """Create a table of the application that is created while Wane runs, with a row for each of these jobs."""
    database.execute(CASCADE)
    insert(database, "payment", "id, job_id", *((number, number) for number in numbers))


@pytest.fixture
def bound(database: Database) -> Iterator[Keeping]:
    """Yield a keeper that has pruned job 1, so its rule is bound; 2 and 3 are due."""
    jobs(database, (1, "done", ago(30)), (2, "done", ago(29)), (3, "done", ago(28)))
    with keeping(database) as opened:
        assert prune(opened, 1) == {"job": 1}
        yield opened


def prune(opened: Keeping, limit: int = 10, **options: Any) -> dict[str, int]:
    return opened.keeper.prune("job", rule="old", limit=limit, **options).counts


def test_a_cascade_that_is_created_after_a_rule_was_bound_is_refused(database: Database, bound: Keeping) -> None:
    paid(database, 2, 3)
    with pytest.raises(BindError, match="deletes rows of payment with job's, uncounted"):
        prune(bound)
    assert (bound.ids(), bound.ids("payment")) == ([2, 3], [2, 3])
    assert [entry.counts for entry in bound.trail()] == [{"job": 1}]


def test_a_cascade_to_a_table_that_follows_is_refused(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "done", ago(29)))
    notes(database, (1, 1, "x"), (2, 2, "x"), foreign_key="job (id) ON DELETE CASCADE")
    with keeping(database, table("job", rule(followers=[follower("note.job_id")]))) as opened:
        assert prune(opened, 2) == {"job": 1, "note": 1}
        database.execute(
            "CREATE TABLE word (id integer PRIMARY KEY, note_id integer REFERENCES note (id) ON DELETE CASCADE)"
        )
        database.execute("INSERT INTO word VALUES (1, 2)")
        with pytest.raises(BindError, match="uncounted"):
            prune(opened)
        assert (opened.ids(), opened.ids("note"), opened.ids("word")) == ([2], [2], [1])


def test_what_is_changed_without_harm_stops_nothing(database: Database, bound: Keeping) -> None:
    database.execute("ALTER TABLE job ADD COLUMN colour text")
    database.execute("CREATE TABLE other (id integer PRIMARY KEY)")
    assert prune(bound) == {"job": 2}


def test_a_column_that_a_rule_needs_and_that_is_gone_is_named(database: Database, bound: Keeping) -> None:
    database.execute("ALTER TABLE job RENAME COLUMN at_ms TO finished_ms")
    with pytest.raises(BindError, match="job has no column 'at_ms'"):
        prune(bound)
    assert bound.ids() == [2, 3]


def test_a_column_whose_type_changed_is_read_as_what_it_is_now(postgres_database: PostgresDatabase) -> None:
    jobs(postgres_database, (1, "done", ago(30)), (2, "done", ago(29)))
    with keeping(postgres_database) as opened:
        assert prune(opened, 1) == {"job": 1}
        postgres_database.execute("ALTER TABLE job ALTER at_ms TYPE text")
        with pytest.raises(BindError, match="at_ms"):
            prune(opened)
        assert opened.ids() == [2]


def test_an_inheriting_table_that_is_created_after_a_rule_was_bound_is_refused(
    postgres_database: PostgresDatabase,
) -> None:
    jobs(postgres_database, (1, "done", ago(30)), (2, "done", ago(29)))
    with keeping(postgres_database) as opened:
        assert prune(opened, 1) == {"job": 1}
        postgres_database.execute("CREATE TABLE descendant () INHERITS (job)")
        postgres_database.execute("INSERT INTO descendant (id, state, at_ms) VALUES (2, 'done', ?)", (ago(29),))
        with pytest.raises(BindError, match="descendant"):
            prune(opened)
        assert opened.ids() == [2, 2]


def test_a_partition_with_a_cascade_of_its_own_is_refused(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(f"""
        CREATE TABLE job (id integer PRIMARY KEY, state text NOT NULL, at_ms bigint) PARTITION BY RANGE (id);
        CREATE TABLE job_1 PARTITION OF job FOR VALUES FROM (1) TO (2);
        CREATE TABLE job_2 (id integer PRIMARY KEY, state text NOT NULL, at_ms bigint);
        CREATE TABLE payment (id integer PRIMARY KEY, job_id integer REFERENCES job_2 ON DELETE CASCADE);
        INSERT INTO job VALUES (1, 'done', {ago(30)});
        INSERT INTO job_2 VALUES (2, 'done', {ago(29)});
        INSERT INTO payment VALUES (1, 2);
    """)
    with keeping(postgres_database) as opened:
        assert prune(opened, 1) == {"job": 1}
        postgres_database.execute("ALTER TABLE job ATTACH PARTITION job_2 FOR VALUES FROM (2) TO (3)")
        with pytest.raises(BindError, match="uncounted"):
            prune(opened)
        assert (opened.ids(), opened.ids("payment")) == ([2], [1])


def test_a_trigger_that_keeps_a_follower_is_noticed(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "done", ago(29)))
    notes(database, (1, 1, "x"), (2, 2, "x"), foreign_key="job (id) ON DELETE CASCADE")
    with keeping(database, table("job", rule(followers=[follower("note.job_id")]))) as opened:
        assert prune(opened, 2) == {"job": 1, "note": 1}
        if isinstance(database, PostgresDatabase):
            database.script(
                "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;"
                "CREATE TRIGGER keep BEFORE DELETE ON note FOR EACH ROW EXECUTE FUNCTION keep()"
            )
        else:
            database.execute("CREATE TRIGGER keep BEFORE DELETE ON note BEGIN SELECT RAISE(IGNORE); END")
        with pytest.raises(StoreError):
            prune(opened)
        assert (opened.ids(), opened.ids("note")) == ([2], [2])


def test_a_sweep_stops_at_a_cascade_that_is_created_between_two_batches(database: Database) -> None:
    jobs(database, *((number, "done", ago(30)) for number in range(1, 7)))

    def listen(event: Event) -> None:
        if isinstance(event, BatchTaken) and not made:
            made.append(event)
            paid(database, 4, 5, 6)

    made: list[Event] = []
    with keeping(database, listener=listen) as opened:
        opened.keeper.enable()
        pace = Pace(first_batch=2, least_batch=1, most_batch=2)
        swept = Sweeper(opened.keeper.store, opened.keeper.contract, "x", listen, pace, unattended=False).sweep()
        assert swept.rules[0].outcome is Outcome.FAILED
        assert "uncounted" in swept.rules[0].message
        assert (opened.ids(), opened.ids("payment")) == ([3, 4, 5, 6], [4, 5, 6])
        assert [entry.counts for entry in opened.trail() if entry.kind == "prune"] == [{"job": 2}]


def test_a_sweep_goes_on_when_the_change_does_not_concern_it(database: Database) -> None:
    jobs(database, *((number, "done", ago(30)) for number in range(1, 7)))

    def listen(event: Event) -> None:
        if isinstance(event, BatchTaken):
            made.append(event)
            database.execute(f"ALTER TABLE job ADD COLUMN colour_{len(made)} text")

    made: list[Event] = []
    with keeping(database) as opened:
        opened.keeper.enable()
        pace = Pace(first_batch=2, least_batch=1, most_batch=2)
        swept = Sweeper(opened.keeper.store, opened.keeper.contract, "x", listen, pace, unattended=False).sweep()
        assert (swept.rules[0].outcome, swept.rules[0].counts) == (Outcome.DONE, {"job": 6})
        assert len(made) >= 3


def test_a_row_that_is_discarded_takes_nothing_uncounted_along(database: Database, bound: Keeping) -> None:
    assert bound.keeper.discard("job", {"id": 2})
    paid(database, 3)
    with pytest.raises(BindError, match="uncounted"):
        bound.keeper.discard("job", {"id": 3})
    assert (bound.ids(), bound.ids("payment")) == ([3], [3])


def test_a_row_that_is_consumed_takes_nothing_uncounted_along(database: Database) -> None:
    database.execute("CREATE TABLE job (id integer NOT NULL PRIMARY KEY, expires_ms bigint)")
    insert(database, "job", "id, expires_ms", (1, ago(-30)), (2, ago(-30)))
    with keeping(database, table("job", rule("expired", EXPIRES, when=()), state=None)) as opened:
        assert opened.keeper.consume("job", {"id": 1}) is not None
        paid(database, 2)
        with pytest.raises(BindError, match="uncounted"):
            opened.keeper.consume("job", {"id": 2})
        assert (opened.ids(), opened.ids("payment")) == ([2], [2])


def test_a_schema_that_the_callers_transaction_changed_is_refused(database: Database, bound: Keeping) -> None:
    connection = database.connect()
    connection.execute("BEGIN")
    connection.execute(CASCADE)
    connection.execute("INSERT INTO payment VALUES (2, 2)")
    with pytest.raises(SchemaChanged, match="commit what changes the schema first"):
        prune(bound, connection=connection)
    assert connection.execute("SELECT count(*) FROM payment").fetchone() == (1,)
    assert connection.execute("SELECT count(*) FROM job").fetchone() == (2,)
    connection.execute("ROLLBACK")
    assert prune(bound) == {"job": 2}


def test_an_inheriting_table_of_the_callers_session_only_is_refused(postgres_database: PostgresDatabase) -> None:
    jobs(postgres_database, (1, "done", ago(30)), (2, "done", ago(29)))
    connection = postgres_database.connect()
    connection.execute("CREATE TEMP TABLE descendant () INHERITS (job)")
    connection.execute("INSERT INTO descendant (id, state, at_ms) VALUES (1, 'done', %s)", [ago(30)])
    with keeping(postgres_database) as opened:
        with connection.transaction(), pytest.raises(SchemaChanged):
            prune(opened, connection=connection)
        assert prune(opened) == {"job": 2}
    assert connection.execute("SELECT id FROM job").fetchall() == [(1,)]


def test_a_temporary_trigger_of_the_callers_connection_is_refused(sqlite_database: SqliteDatabase) -> None:
    jobs(sqlite_database, (1, "done", ago(30)), (2, "done", ago(29)))
    sqlite_database.script("CREATE TABLE other (id integer PRIMARY KEY); INSERT INTO other VALUES (1)")
    connection = sqlite_database.connect()
    connection.execute("CREATE TEMP TRIGGER inserts AFTER INSERT ON job BEGIN SELECT 1; END")
    with keeping(sqlite_database) as opened:
        connection.execute("BEGIN")
        assert prune(opened, 1, connection=connection) == {"job": 1}
        connection.execute("COMMIT")
        connection.execute("CREATE TEMP TRIGGER more AFTER DELETE ON main.JOB BEGIN DELETE FROM other; END")
        connection.execute("BEGIN")
        with pytest.raises(SchemaChanged, match="temporary trigger, more"):
            prune(opened, connection=connection)
        connection.execute("ROLLBACK")
        assert (opened.ids(), opened.ids("other")) == ([2], [1])


@pytest.mark.parametrize("take", ["prune", "sweep"])
def test_a_cascade_that_is_created_between_lock_and_delete_is_refused(
    postgres_database: PostgresDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, take: str
) -> None:
    """Locked rows do not stop ADD FOREIGN KEY; deleted ones do."""
    create(postgres_database, "REFERENCES jobs")
    fill(postgres_database, 3)
    with enabled_keeper(postgres_database, tmp_path, GUARDED) as keeper:
        pause = Paused(monkeypatch, PostgresTransaction, "change", "DELETE FROM")
        if take == "prune":
            taking = Background(lambda: keeper.prune("jobs", rule="done", limit=10).rows)
        else:
            taking = Background(lambda: sweeper(keeper).sweep().rules[0].rows)
        pause.await_reached()
        postgres_database.execute(
            "CREATE TABLE payment (id bigint PRIMARY KEY, job_id bigint REFERENCES jobs ON DELETE CASCADE)"
        )
        pause.go_on.set()
        if take == "prune":
            with pytest.raises(BindError, match="uncounted"):
                taking.result()
        else:
            assert taking.result() == 0
        assert ids(postgres_database) == [1, 2, 3]
        assert audited(keeper) == 0


def test_functions_in_the_database_refuse_a_cascade_that_is_created_after_them(
    postgres_database: PostgresDatabase,
) -> None:
    jobs(postgres_database, (1, "done", ago(30)), (2, "done", ago(29)), (3, "done", ago(28)))
    call = "SELECT wane.prune('job', 'old', 1)"
    with keeping(postgres_database) as opened:
        install(opened.keeper)
        postgres_database.query(call)
        postgres_database.script("ALTER TABLE job ADD COLUMN colour text; CREATE UNIQUE INDEX more ON job (id)")
        postgres_database.query(call)
        assert opened.ids() == [3]
        paid(postgres_database, 3)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="foreign keys, triggers or descendants"):
            postgres_database.query(call)
        assert (opened.ids(), opened.ids("payment")) == ([3], [3])
        postgres_database.execute("DROP TABLE payment")
        postgres_database.query(call)
        assert opened.ids() == []


def test_functions_in_the_database_know_what_every_kind_of_table_does(postgres_database: PostgresDatabase) -> None:
    """What is read from the catalogs, where something harmless changed, is what the rule was bound to."""
    postgres_database.script(f"""
        CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$;
        CREATE TABLE job (id integer, state text NOT NULL, at_ms bigint, tenant integer, PRIMARY KEY (id, tenant))
          PARTITION BY LIST (tenant);
        CREATE TABLE job_1 PARTITION OF job FOR VALUES IN (1);
        CREATE TABLE note (id integer PRIMARY KEY, job_id integer, job_tenant integer,
          FOREIGN KEY (job_id, job_tenant) REFERENCES job ON DELETE CASCADE);
        CREATE INDEX ON note (job_id, job_tenant);
        CREATE TABLE note_heir () INHERITS (note);
        CREATE TABLE "odd 100%" (id integer PRIMARY KEY, job_id integer, job_tenant integer,
          CONSTRAINT "odd 50%" FOREIGN KEY (job_id, job_tenant) REFERENCES job ON DELETE SET NULL);
        CREATE TRIGGER job_fires AFTER DELETE ON job FOR EACH ROW EXECUTE FUNCTION nothing();
        CREATE RULE note_rule AS ON DELETE TO note_heir DO ALSO NOTHING;
        INSERT INTO job VALUES (1, 'done', {ago(30)}, 1), (2, 'done', {ago(30)}, 1);
        INSERT INTO note VALUES (1, 1, 1), (2, 2, 1);
    """)
    followers = [follower("note.job_id,job_tenant")]
    with keeping(postgres_database, table("job", rule(followers=followers))) as opened:
        install(opened.keeper)
        postgres_database.query("SELECT wane.prune('job', 'old', 2)")
        postgres_database.script("CREATE TABLE job_2 PARTITION OF job FOR VALUES IN (2); ALTER TABLE note ADD x int")
        postgres_database.query("SELECT wane.prune('job', 'old', 2)")
        assert (opened.ids(), opened.ids("note")) == ([], [])
        assert [entry.counts for entry in opened.trail()] == [{"job": 1, "note": 1}] * 2
