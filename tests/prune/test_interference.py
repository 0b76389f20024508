"""What triggers and rewrite rules of the application do to a deletion: if they keep a row, it is an error and nothing
has changed."""

from __future__ import annotations

import pytest

from prune.keeping import Keeping, ago, follower, insert, jobs, keeping, notes, rule, table
from servers import Database, PostgresDatabase
from wane._contract.model import Table
from wane._prune.pace import FAST
from wane.errors import StoreError


def keep_rows(database: Database, name: str, condition: str = "TRUE") -> None:
    """Create a trigger of the application that silently keeps rows."""
    if database.store == "sqlite":
        database.execute(
            f"CREATE TRIGGER keep_{name} BEFORE DELETE ON {name} WHEN {condition} BEGIN SELECT RAISE(IGNORE); END"
        )
    else:
        database.script(f"""
            CREATE FUNCTION keep_{name}() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RETURN CASE WHEN {condition} THEN NULL ELSE old END; END $$;
            CREATE TRIGGER keep_{name} BEFORE DELETE ON {name} FOR EACH ROW EXECUTE FUNCTION keep_{name}();
        """)


def unchanged(opened: Keeping, names: dict[str, list[int]]) -> None:
    assert {name: opened.ids(name) for name in names} == names
    assert opened.trail() == []


FOLLOWED = table("job", rule(followers=[follower("note.job_id")]))


@pytest.mark.parametrize("condition", ["TRUE", "old.id = 2"])
def test_a_trigger_that_keeps_rows_is_an_error(database: Database, condition: str) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(4)])
    keep_rows(database, "job", condition)
    with keeping(database) as opened:
        with pytest.raises(StoreError, match="4 rows were due and locked, but the database took") as caught:
            opened.keeper.prune("job", rule="old", limit=10)
        assert "trigger" in caught.value.hint
        unchanged(opened, {"job": [0, 1, 2, 3]})


@pytest.mark.parametrize("condition", ["TRUE", "old.id = 2"])
@pytest.mark.parametrize("limit", [1, 100])
def test_a_trigger_that_keeps_followers_is_an_error(database: Database, condition: str, limit: int) -> None:
    jobs(database, (1, "done", ago(30)))
    notes(database, (2, 1, "x"))
    keep_rows(database, "note", condition)
    with keeping(database, FOLLOWED) as opened:
        with pytest.raises(StoreError, match=r"kept some|stay"):
            opened.keeper.prune("job", rule="old", limit=limit)
        unchanged(opened, {"job": [1], "note": [2]})


def test_a_trigger_that_keeps_one_follower_of_many_is_an_error(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    notes(database, *[(n, 1, "x") for n in range(5)])
    keep_rows(database, "note", "old.id = 3")
    with keeping(database, FOLLOWED) as opened:
        with pytest.raises(StoreError, match="the database kept some"):
            opened.keeper.prune("job", rule="old", limit=100)
        unchanged(opened, {"job": [1], "note": [0, 1, 2, 3, 4]})


def test_a_sweep_of_such_a_table_fails_and_ends(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(4)])
    keep_rows(database, "job")
    with keeping(database) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=FAST).rules
        assert (swept.outcome, swept.rows, swept.batches) == ("failed", 0, 0)
        assert "trigger" in swept.message
        unchanged(opened, {"job": [0, 1, 2, 3]})


def test_a_trigger_that_only_reads_is_no_problem(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(4)])
    database.execute("CREATE TABLE diary (id integer)")
    if database.store == "sqlite":
        database.execute("CREATE TRIGGER tell AFTER DELETE ON job BEGIN INSERT INTO diary VALUES (old.id); END")
    else:
        database.script("""
            CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
            BEGIN INSERT INTO diary VALUES (old.id); RETURN old; END $$;
            CREATE TRIGGER tell BEFORE DELETE ON job FOR EACH ROW EXECUTE FUNCTION tell();
        """)
    with keeping(database) as opened:
        assert opened.keeper.prune("job", rule="old", limit=3).counts == {"job": 3}
        assert sorted(database.query("SELECT id FROM diary")) == [(0,), (1,), (2,)]


def test_a_trigger_that_needs_a_search_path_reports_it_and_nothing_changes(postgres_database: PostgresDatabase) -> None:
    database = postgres_database
    jobs(database, *[(n, "done", ago(30)) for n in range(4)])
    database.script("""
        CREATE TABLE diary (id integer);
        CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO diary VALUES (old.id); RETURN old; END $$;
        CREATE TRIGGER tell BEFORE DELETE ON job FOR EACH ROW EXECUTE FUNCTION tell();
    """)
    with keeping(database) as opened:
        with pytest.raises(StoreError, match='relation "diary" does not exist') as failed:
            opened.keeper.prune("job", rule="old", limit=3)
        assert "`ALTER FUNCTION public.tell() SET search_path = …, pg_temp`" in failed.value.hint
        unchanged(opened, {"job": [0, 1, 2, 3]})
        database.execute("ALTER FUNCTION tell() SET search_path = public, pg_temp")
        assert opened.keeper.prune("job", rule="old", limit=3).counts == {"job": 3}


@pytest.mark.parametrize("declared", [table(), FOLLOWED])
@pytest.mark.parametrize(
    "action", ["DO INSTEAD NOTHING", "DO INSTEAD UPDATE job SET state = 'deleted' WHERE job.id = old.id"]
)
def test_a_rewrite_rule_that_keeps_rows_is_an_error(
    postgres_database: PostgresDatabase, declared: Table, action: str
) -> None:
    jobs(postgres_database, (1, "done", ago(30)), (2, "done", ago(30)))
    notes(postgres_database, (1, 1, "x"))
    postgres_database.execute(f"CREATE RULE keep AS ON DELETE TO job {action}")
    with keeping(postgres_database, declared) as opened:
        with pytest.raises(StoreError):
            opened.keeper.prune("job", rule="old", limit=10)
        unchanged(opened, {"job": [1, 2], "note": [1]})
        assert postgres_database.query("SELECT DISTINCT state FROM job") == [("done",)]


def test_a_rewrite_rule_that_keeps_followers_is_an_error(postgres_database: PostgresDatabase) -> None:
    jobs(postgres_database, (1, "done", ago(30)))
    notes(postgres_database, (1, 1, "x"))
    postgres_database.execute("CREATE RULE keep AS ON DELETE TO note DO INSTEAD NOTHING")
    with keeping(postgres_database, FOLLOWED) as opened:
        for limit in (1, 10):
            with pytest.raises(StoreError):
                opened.keeper.prune("job", rule="old", limit=limit)
        unchanged(opened, {"job": [1], "note": [1]})


def test_a_trigger_of_a_partition_that_keeps_rows_is_an_error(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("""
        CREATE TABLE job (id int, state text, at_ms bigint, PRIMARY KEY (id, state)) PARTITION BY LIST (state);
        CREATE TABLE job_done PARTITION OF job FOR VALUES IN ('done');
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER keep BEFORE DELETE ON job_done FOR EACH ROW EXECUTE FUNCTION keep();
    """)
    insert(postgres_database, "job", "id, state, at_ms", (1, "done", ago(30)))
    with keeping(postgres_database) as opened:
        with pytest.raises(StoreError, match="the database took 0"):
            opened.keeper.prune("job", rule="old", limit=10)
        unchanged(opened, {"job": [1]})


def test_a_trigger_of_a_followers_partition_that_keeps_rows_is_an_error(postgres_database: PostgresDatabase) -> None:
    jobs(postgres_database, (1, "done", ago(30)))
    postgres_database.script("""
        CREATE TABLE note (id int, job_id int) PARTITION BY LIST (job_id);
        CREATE TABLE note_1 PARTITION OF note FOR VALUES IN (1);
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER keep BEFORE DELETE ON note_1 FOR EACH ROW EXECUTE FUNCTION keep();
    """)
    insert(postgres_database, "note", "id, job_id", (1, 1))
    with keeping(postgres_database, FOLLOWED) as opened:
        for limit in (1, 10):
            with pytest.raises(StoreError, match=r"kept some|stay"):
                opened.keeper.prune("job", rule="old", limit=limit)
        unchanged(opened, {"job": [1], "note": [1]})


def test_rows_that_a_policy_hides_are_an_error_and_not_nothing(postgres_database: PostgresDatabase) -> None:
    jobs(postgres_database, (1, "done", ago(30)))
    with keeping(postgres_database) as opened:
        postgres_database.script("""
            CREATE ROLE app_of_wane_tests;
            GRANT ALL ON job TO app_of_wane_tests;
            GRANT ALL ON SCHEMA wane TO app_of_wane_tests;
            GRANT ALL ON ALL TABLES IN SCHEMA wane TO app_of_wane_tests;
            ALTER TABLE job ENABLE ROW LEVEL SECURITY;
        """)
        try:
            application = postgres_database.connect()
            application.execute("SET ROLE app_of_wane_tests")
            with pytest.raises(StoreError, match="row-level security"):
                opened.keeper.prune("job", rule="old", limit=10, connection=application)
            unchanged(opened, {"job": [1]})
        finally:
            postgres_database.script("DROP OWNED BY app_of_wane_tests; DROP ROLE app_of_wane_tests")


def test_a_trigger_that_appears_later_is_noticed_at_once(database: Database) -> None:
    """A rule that is bound stays so for a while, but every batch compares what it relies on."""
    jobs(database, *[(n, "done", ago(30)) for n in range(4)])
    with keeping(database) as opened:
        assert opened.keeper.prune("job", rule="old", limit=1).rows == 1
        keep_rows(database, "job", "old.id = 2")
        with pytest.raises(StoreError, match="3 rows were due and locked, but the database took 2"):
            opened.keeper.prune("job", rule="old", limit=10)
        assert opened.ids() == [1, 2, 3]
