"""One call of `prune`: at most so many, oldest first, strictly before the cutoff, all or nothing, with one audit
row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from prune.keeping import (
    DAY,
    EXPIRES,
    JOB,
    KEEP_WEEK,
    WEEK,
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
from servers import Database, SqliteDatabase
from wane._contract.model import Age, Mark, Time, Unit
from wane.errors import BindError, NotMigrated, StoreError
from wane.events import RowsPruned

# --- At most, oldest first ------------------------------------------------------------------------------------------


def test_at_most_the_limit_leaves_and_the_oldest_first(database: Database) -> None:
    jobs(database, (1, "done", ago(10)), (2, "done", ago(30)), (3, "done", ago(20)), (4, "done", ago(40)))
    with keeping(database) as opened:
        assert opened.keeper.prune("job", rule="old", limit=1).counts == {"job": 1}
        assert opened.ids() == [1, 2, 3]
        assert opened.keeper.prune("job", rule="old", limit=2).counts == {"job": 2}
        assert opened.ids() == [1]
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 1}
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 0}


def test_the_oldest_of_several_states_leave_first(database: Database) -> None:
    jobs(database, *[(n, ("done", "failed")[n % 2], ago(40 - n)) for n in range(10)])
    with keeping(database, table("job", rule(when=["done", "failed"]))) as opened:
        opened.keeper.prune("job", rule="old", limit=5)
        assert opened.ids() == [5, 6, 7, 8, 9]


def test_rows_of_one_timestamp_leave_by_their_key(database: Database) -> None:
    same = ago(30)
    jobs(database, *[(n, "done", same) for n in (9, 2, 7, 4, 11)])
    with keeping(database) as opened:
        opened.keeper.prune("job", rule="old", limit=2)
        assert opened.ids() == [7, 9, 11]


def test_rows_of_one_timestamp_leave_by_all_columns_of_their_key(database: Database) -> None:
    database.execute(
        "CREATE TABLE job (a text NOT NULL, b integer NOT NULL, state text, at_ms bigint, PRIMARY KEY (a, b))"
    )
    same = ago(30)
    insert(database, "job", "a, b, state, at_ms", *[(a, b, "done", same) for a in "yxz" for b in (10, 9)])
    with keeping(database) as opened:
        opened.keeper.prune("job", rule="old", limit=3)
        assert database.query("SELECT a, b FROM job ORDER BY a, b") == [("y", 10), ("z", 9), ("z", 10)]


def test_a_limit_that_falls_among_rows_of_one_timestamp_is_exact(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30 if n < 50 else 20)) for n in range(100)])
    with keeping(database) as opened:
        for left in (70, 40, 10, 0):
            opened.keeper.prune("job", rule="old", limit=30)
            assert opened.ids() == list(range(100 - left, 100))


# --- Strictly before the cutoff -------------------------------------------------------------------------------------


@pytest.mark.parametrize("distance", [-1, 0, 1])
def test_a_cutoff_is_strict(database: Database, distance: int) -> None:
    at = ago(30)
    jobs(database, (1, "done", at + distance))
    with keeping(database) as opened:
        pruned = opened.keeper.prune("job", states=["done"], older_than=timestamp(at), limit=10)
        assert pruned.rows == (1 if distance < 0 else 0)
        assert pruned.cutoff == timestamp(at)


def test_a_cutoff_between_two_units_of_the_column_is_exact(database: Database) -> None:
    """Half a millisecond after the column's timestamp, that timestamp is before it."""
    at = ago(30)
    jobs(database, (1, "done", at), (2, "done", at + 1))
    with keeping(database) as opened:
        cutoff = timestamp(at) + timedelta(microseconds=500)
        assert opened.keeper.prune("job", states=["done"], older_than=cutoff, limit=10).rows == 1
        assert opened.ids() == [2]


def test_a_cutoff_in_another_zone_is_the_same_time(database: Database) -> None:
    from zoneinfo import ZoneInfo

    at = ago(30)
    jobs(database, (1, "done", at - 1), (2, "done", at))
    with keeping(database) as opened:
        there = timestamp(at).astimezone(ZoneInfo("Asia/Kolkata"))
        assert opened.keeper.prune("job", states=["done"], older_than=there, limit=10).cutoff == timestamp(at)
        assert opened.ids() == [2]


def test_unix_seconds_are_a_cutoff(database: Database) -> None:
    at = ago(30) // 1_000
    jobs(database, (1, "done", at * 1_000 - 1), (2, "done", at * 1_000))
    with keeping(database) as opened:
        assert opened.keeper.prune("job", states=["done"], older_than=at, limit=10).rows == 1
        assert opened.ids() == [2]
        assert opened.keeper.prune("job", states=["done"], older_than=at + 0.001, limit=10).rows == 1


def test_an_expiry_is_at_or_before_now(database: Database) -> None:
    database.execute("CREATE TABLE lease (id integer NOT NULL PRIMARY KEY, expires_ms bigint)")
    insert(database, "lease", "id, expires_ms", (1, ago(1)), (2, ago(0)), (3, ago(-1)), (4, None))
    with keeping(database, table("lease", rule("expired", EXPIRES, when=()), state=None)) as opened:
        assert opened.keeper.prune("lease", rule="expired", limit=10).rows == 2
        assert opened.ids("lease") == [3, 4]


@pytest.mark.parametrize("junk", [None, 0, -1, 1_700_000_000, 5_000])
def test_a_row_whose_time_is_no_timestamp_never_leaves(database: Database, junk: int | None) -> None:
    jobs(database, (1, "done", junk), (2, "done", ago(30)))
    with keeping(database) as opened:
        opened.keeper.prune("job", rule="old", limit=10)
        opened.keeper.prune("job", states=["done"], older_than=datetime.now(UTC), limit=10)
        assert opened.ids() == [1]


def test_only_the_states_of_the_rule_leave(database: Database) -> None:
    jobs(database, *[(n, state, ago(30)) for n, state in enumerate(["done", "queued", "DONE", "done ", "", "failed"])])
    with keeping(database) as opened:
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 1
        assert opened.ids() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("time", [Time("at", Unit.ISO), Time("at", Unit.TEXT), Time("at", Unit.ISO, "Europe/Vienna")])
def test_texts_leave_oldest_first_too(database: Database, time: Time) -> None:
    database.execute("CREATE TABLE job (id integer NOT NULL PRIMARY KEY, state text, at text)")
    between = "T" if time.unit is Unit.ISO else " "
    suffix = "" if time.zone else "Z"
    days = [5, 3, 4, 1, 2]
    insert(
        database,
        "job",
        "id, state, at",
        *[(day, "done", f"2024-01-0{day}{between}00:00:00{suffix}") for day in days],
        (9, "done", f"2024-01-01{between}00:00{suffix}"),
        (10, "done", "yesterday"),
    )
    with keeping(database, table("job", rule(bound=Age(time, DAY)))) as opened:
        assert opened.keeper.prune("job", rule="old", limit=3).rows == 3
        assert opened.ids() == [4, 5, 9, 10]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", ["a'b", 'say "hi"', "%s", ":k0", "ü", "", " ", "\\", "a\nb", "{0}"]),
        ("integer", [-5, 0, 2**31 - 1]),
    ],
)
def test_odd_keys_leave_like_others(database: Database, kind: str, values: list[object]) -> None:
    database.execute(f"CREATE TABLE job (id {kind} NOT NULL PRIMARY KEY, state text, at_ms bigint)")
    insert(database, "job", "id, state, at_ms", *[(value, "done", ago(30)) for value in values])
    with keeping(database) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).rows == len(values)
        assert opened.ids() == []


def test_odd_names_of_tables_and_columns_are_only_names(database: Database) -> None:
    database.execute('CREATE TABLE "a{0} %s;--" (":id" integer NOT NULL PRIMARY KEY, "st%ate" text, "at{ms}" bigint)')
    insert(database, '"a{0} %s;--"', '":id", "st%ate", "at{ms}"', (1, "done", ago(30)), (2, "done", ago(1)))
    from dataclasses import replace

    from wane._contract.names import TableName

    declared = table("job", rule(bound=Age(Time("at{ms}", Unit.MILLISECONDS), WEEK)), state="st%ate")
    with keeping(database, replace(declared, name=TableName("a{0} %s;--"))) as opened:
        name = str(opened.keeper.contract.tables[0].name)
        assert opened.keeper.prune(name, rule="old", limit=10).counts == {name: 1}
        assert database.query('SELECT ":id" FROM "a{0} %s;--"') == [(2,)]


def test_an_empty_table_is_no_mistake(database: Database) -> None:
    jobs(database)
    with keeping(database) as opened:
        assert opened.keeper.prune("job", rule="old", limit=10).counts == {"job": 0}


def test_a_table_of_a_schema_is_found_by_its_full_name(database: Database) -> None:
    schema = "main" if database.store == "sqlite" else "public"
    jobs(database, (1, "done", ago(30)))
    with keeping(database, table(f"{schema}.job")) as opened:
        assert opened.keeper.prune(f"{schema}.job", rule="old", limit=10).counts == {f"{schema}.job": 1}


# --- All or nothing -------------------------------------------------------------------------------------------------


@pytest.mark.unmigrated
def test_without_its_own_tables_nothing_leaves(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database, migrate=False) as opened:
        with pytest.raises(NotMigrated, match="does not have Wane's own tables"):
            opened.keeper.prune("job", rule="old", limit=10)
        assert opened.ids() == [1]


def test_if_the_audit_row_cannot_be_written_nothing_leaves(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(5)])
    with keeping(database) as opened:
        if database.store == "sqlite":
            database.execute(
                "CREATE TRIGGER full BEFORE INSERT ON wane_audit BEGIN SELECT RAISE(ABORT, 'no room'); END"
            )
        else:
            database.execute("ALTER TABLE wane.audit ADD CONSTRAINT no_room CHECK (row_count < 0)")
        with pytest.raises(StoreError, match=r"no.room"):
            opened.keeper.prune("job", rule="old", limit=10)
        assert opened.ids() == [0, 1, 2, 3, 4]
        assert opened.trail() == []
        assert opened.reported(RowsPruned) == []


def test_if_one_row_cannot_leave_none_does(database: Database) -> None:
    """The fourth of ten rows is refused by a trigger of the application; the first three come back."""
    jobs(database, *[(n, "done", ago(30 - n)) for n in range(10)])
    if database.store == "sqlite":
        database.execute(
            "CREATE TRIGGER keep BEFORE DELETE ON job WHEN old.id = 3 BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    else:
        database.script("""
            CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN IF old.id = 3 THEN RAISE EXCEPTION 'not this one'; END IF; RETURN old; END $$;
            CREATE TRIGGER keep BEFORE DELETE ON job FOR EACH ROW EXECUTE FUNCTION keep();
        """)
    with keeping(database) as opened:
        with pytest.raises(StoreError, match="not this one"):
            opened.keeper.prune("job", rule="old", limit=10)
        assert opened.ids() == list(range(10))
        assert opened.trail() == []
        assert opened.keeper.prune("job", rule="old", limit=3).rows == 3


def test_after_a_failure_the_next_call_works(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 1
        database.execute("DROP TABLE job")
        with pytest.raises(BindError):
            opened.keeper.prune("job", rule="old", limit=10)
        database.execute(JOB)
        insert(database, "job", "id, state, at_ms", (1, "done", ago(30)))
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 1


@pytest.mark.parametrize("kind", ["guarded", "followers", "mark"])
def test_a_limit_is_reached_however_few_values_a_statement_may_bind(
    sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("wane._db.sqlite.transaction.SqliteTransaction.most_values", 3)
    jobs(sqlite_database, *[(n, "done", ago(30)) for n in range(12)])
    notes(sqlite_database)
    declared = {
        "guarded": rule(unless=[referenced_by("note.job_id")]),
        "followers": rule(followers=[follower("note.job_id")]),
        "mark": rule(then=Mark("cleaned")),
    }[kind]
    with keeping(sqlite_database, table("job", declared)) as opened:
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 10
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 2
        assert [entry.rows for entry in opened.trail()] == [10, 2]


# --- The audit row --------------------------------------------------------------------------------------------------


def test_a_call_by_rule_is_reported_in_every_field(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "done", ago(30)), (3, "done", ago(1)))
    before = datetime.now(UTC)
    with keeping(database) as opened:
        pruned = opened.keeper.prune("job", rule="old", limit=7)
        after = datetime.now(UTC)
        [entry] = opened.trail()
    assert (pruned.table, pruned.rule, pruned.kind, pruned.rows) == ("job", "old", "prune", 2)
    assert entry.id == pruned.audit_id
    assert (entry.kind, entry.table, entry.rule, entry.run) == ("prune", "job", "old", None)
    assert entry.actor == "tester"
    assert entry.inputs == {"rule": "old", "limit": 7}
    assert entry.counts == {"job": 2}
    assert (entry.rows, entry.batches) == (2, 1)
    assert 0 <= entry.seconds < 10
    slack = timedelta(seconds=1)  # The database's clock is another one.
    assert before - slack <= entry.executed_at <= after + slack
    assert entry.cutoff is not None
    assert entry.cutoff == pruned.cutoff
    assert entry.executed_at - entry.cutoff == WEEK


def test_an_explicit_call_is_reported_with_what_was_requested(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    cutoff = timestamp(ago(20)) + timedelta(microseconds=7)
    with keeping(database, table("job", rule(when=["done", "failed"]))) as opened:
        opened.keeper.prune("job", states=["failed", "done"], older_than=cutoff, limit=7, actor="anna@desk")
        [entry] = opened.trail()
    assert (entry.kind, entry.rule, entry.actor) == ("prune", None, "anna@desk")
    assert entry.inputs == {"states": ["failed", "done"], "older_than": cutoff.isoformat(), "limit": 7}
    assert entry.cutoff == cutoff


def test_a_call_that_takes_nothing_is_reported_too(database: Database) -> None:
    jobs(database, (1, "done", ago(1)))
    with keeping(database) as opened:
        pruned = opened.keeper.prune("job", rule="old", limit=7)
        [entry] = opened.trail()
    assert (entry.id, entry.counts, entry.rows) == (pruned.audit_id, {"job": 0}, 0)


def test_every_call_has_one_row_and_the_newest_is_listed_first(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(4)])
    with keeping(database) as opened:
        numbers = [opened.keeper.prune("job", rule="old", limit=2).audit_id for _ in range(3)]
        entries = opened.keeper.audit()
        assert [entry.id for entry in entries] == numbers[::-1]
        assert [entry.rows for entry in entries] == [0, 2, 2]
        assert [entry.id for entry in opened.keeper.audit(limit=1)] == numbers[-1:]
        assert opened.keeper.audit(kind="mark") == []
        assert opened.keeper.audit(table="other") == []
        assert len(opened.keeper.audit(kind="prune", table="job", since=timestamp(ago(1)))) == 3
        assert opened.keeper.audit(since=timestamp(ago(-1))) == []


def test_a_cutoff_is_reported_to_the_microsecond(database: Database) -> None:
    jobs(database)
    cutoff = datetime(2024, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
    with keeping(database) as opened:
        opened.keeper.prune("job", states=["done"], older_than=cutoff, limit=1)
        assert opened.trail()[0].cutoff == cutoff


def test_the_event_reports_what_was_committed(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    with keeping(database) as opened:
        opened.keeper.prune("job", rule="old", limit=7)
        reported = RowsPruned("tick", "job", "old", "job.old", "prune", {"job": 1}, committed=True)
        assert opened.reported(RowsPruned) == [reported]


def test_no_rule_of_a_contract_reaches_the_trail(database: Database) -> None:
    """Wane's own tables are not among those that a contract can name."""
    jobs(database)
    name = "wane_audit" if database.store == "sqlite" else "wane.audit"
    declared = table(name, rule(bound=Age(Time("executed_at"), DAY), when=()), state=None)
    with keeping(database, declared) as opened, pytest.raises(BindError, match="has no table"):
        opened.keeper.prune(name, rule="old", limit=10)


def test_a_dry_run_changes_nothing_and_reports_what_would_leave(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "done", ago(20)), (3, "done", ago(1)))
    with keeping(database) as opened:
        step = opened.keeper.preview("job", rule="old")
        assert step.due is not None
        assert (step.due.rows, step.oldest, step.newest) == (2, timestamp(ago(30)), timestamp(ago(20)))
        assert any("DELETE" in one.text for one in step.statements)
        assert all(one.query_plan for one in step.statements)
        step = opened.keeper.preview("job", states=["done"], older_than=timestamp(ago(25)))
        assert step.due is not None
        assert step.due.rows == 1
        assert opened.ids() == [1, 2, 3]
        assert opened.trail() == []


def test_a_week_is_seven_days_to_the_millisecond(database: Database) -> None:
    """The rule's own cutoff: rows a second on either side of it."""
    now = ago(0)
    jobs(database, (1, "done", now - 7 * 86_400_000 - 1_000), (2, "done", now - 7 * 86_400_000 + 3_600_000))
    with keeping(database, table("job", rule(bound=KEEP_WEEK))) as opened:
        opened.keeper.prune("job", rule="old", limit=10)
        assert opened.ids() == [2]


def test_states_may_be_numbers_or_booleans(database: Database) -> None:
    flag = "boolean"
    database.execute(f"CREATE TABLE job (id integer NOT NULL PRIMARY KEY, code smallint, flag {flag}, at_ms bigint)")
    rows = [(n, n % 3, n % 2 == 1, ago(30)) for n in range(6)]
    insert(database, "job", "id, code, flag, at_ms", *rows)
    number = table("job", rule(when=[1]), state="code", live=[0])
    with keeping(database, number) as opened:
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 2
        assert opened.ids() == [0, 2, 3, 5]
    with keeping(database, table("job", rule(when=[True]), state="flag", live=[False])) as opened:
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 2
        assert opened.ids() == [0, 2]


def test_the_unit_of_the_column_decides(database: Database) -> None:
    database.execute("CREATE TABLE job (id integer NOT NULL PRIMARY KEY, state text, at_s bigint, at_ms bigint)")
    insert(database, "job", "id, state, at_s, at_ms", (1, "done", ago(30) // 1_000, ago(1)))
    with keeping(database) as opened:
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 0
    with keeping(database, table("job", rule(bound=Age(Time("at_s", Unit.SECONDS), WEEK)))) as opened:
        assert opened.keeper.prune("job", rule="old", limit=10).rows == 1
