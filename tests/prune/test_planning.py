"""A plan states what is due, in numbers worked out by hand, and changes nothing."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from covering import EVENTS, HEALTHY, SCHEDULER, loaded, numbers
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.fingerprint import fingerprint
from wane._contract.model import Age, Contract, Follower, Reference, Rule, Table, Time, Unit
from wane._contract.names import TableName
from wane._db import open_store
from wane._db.counting import Count, Exactness
from wane._db.statement import Statement
from wane._db.url import resolve_url
from wane._prune.build_plan import build_plan
from wane._prune.plan import Plan, Step
from wane.errors import StoreError

pytestmark = pytest.mark.unmigrated

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY_MS = 86_400_000

TEXT = f"""{SCHEDULER}
[archive]
url = "./archive"
[archive.jobs]
keep = "forever"
[table.jobs]
scheduler = "s"
why = "A test."
state = "status"
live = ["queued"]
time = {{ column = "done_ms", unit = "ms" }}
[table.jobs.rule.marked]
when = ["failed"]
keep = "2d"
then = {{ mark = "dead" }}
[table.jobs.rule.cold]
when = ["done", "dead"]
keep = "7d"
then = "archive"
unless = [{{ referenced_by = "letters.job_id" }}]
with = [{{ table = "runs", columns = ["job_id"], with = ["lines.run_id"] }}]
[table.seen]
why = "A test."
append_only = true
time = {{ column = "at_ms", unit = "ms" }}
[table.seen.rule.expired]
expires = {{ column = "ends_ms", unit = "ms" }}
[table.seen.rule.cap]
most = 2
per = "tenant"
[table.kept]
why = "A test."
[table.kept.rule.all]
keep = "forever"
[excused]
letters = {{ elsewhere = "theirs" }}
"""

SCHEMA = """
CREATE TABLE jobs (id bigint NOT NULL PRIMARY KEY, status text, done_ms bigint);
CREATE INDEX jobs_done ON jobs (status, done_ms, id);
CREATE TABLE letters (id bigint NOT NULL PRIMARY KEY, job_id bigint);
CREATE INDEX letters_job ON letters (job_id);
CREATE TABLE runs (id bigint NOT NULL PRIMARY KEY, job_id bigint REFERENCES jobs (id));
CREATE INDEX runs_job ON runs (job_id);
CREATE TABLE lines (id bigint NOT NULL PRIMARY KEY, run_id bigint REFERENCES runs (id));
CREATE INDEX lines_run ON lines (run_id);
CREATE TABLE seen (id bigint NOT NULL PRIMARY KEY, tenant text, at_ms bigint, ends_ms bigint);
CREATE INDEX seen_at ON seen (tenant, at_ms, id);
CREATE INDEX seen_ends ON seen (ends_ms, id);
CREATE TABLE kept (id bigint NOT NULL PRIMARY KEY);
"""


def ago(days: float) -> int:
    return int(NOW.timestamp() * 1000 - days * DAY_MS)


def fill(database: Database) -> None:
    database.script(SCHEMA)
    jobs = [
        (1, "queued", ago(90)),  # live
        (2, "failed", ago(3)),  # to be marked
        (3, "failed", ago(2)),  # exactly as old as its window: stays
        (4, "done", ago(30)),  # due, with two runs
        (5, "done", ago(8)),  # due
        (6, "dead", ago(10)),  # due, with a run
        (7, "done", ago(20)),  # a letter refers to it
        (8, "done", None),
        (9, "done", ago(-1)),
        (10, "dead", ago(7)),  # exactly as old as its window: stays
    ]
    database.executemany("INSERT INTO jobs VALUES (?, ?, ?)", jobs)
    database.execute("INSERT INTO letters VALUES (1, 7)")
    database.executemany("INSERT INTO runs VALUES (?, ?)", [(1, 4), (2, 4), (3, 6), (4, 7), (5, 1)])
    database.executemany("INSERT INTO lines VALUES (?, ?)", [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5)])
    seen = [
        (1, "a", ago(5), ago(1)),  # expired; the cap has no room for it either
        (2, "a", ago(4), ago(-1)),
        (3, "a", ago(3), ago(0)),  # expires exactly now
        (4, "b", ago(9), ago(-9)),
    ]
    database.executemany("INSERT INTO seen VALUES (?, ?, ?, ?)", seen)


def planned(database: Database, contract: Contract, *only: str, seconds: float = 60, explain: bool = False) -> Plan:
    with open_store(resolve_url(database.url), read_only=True) as store:
        return build_plan(store, contract, now=NOW, only=only, seconds=seconds, explain=explain)


def shown(step: Step) -> tuple[object, ...]:
    return (
        f"{step.table}.{step.rule}",
        step.action,
        step.cutoff,
        step.due,
        step.oldest,
        step.newest,
        step.followers,
        step.table_rows,
        step.share,
        step.swept,
    )


def test_a_plan_states_what_a_person_would_count(database: Database) -> None:
    fill(database)
    contract = loaded(TEXT)
    plan = planned(database, contract)
    days = timedelta(days=1)
    assert [shown(step) for step in plan.steps] == [
        (
            "jobs.marked",
            "mark",
            NOW - 2 * days,
            Count(1),
            NOW - 3 * days,
            NOW - 3 * days,
            {},
            Count(10),
            0.1,
            True,
        ),
        (
            "jobs.cold",
            "archive",
            NOW - 7 * days,
            Count(3),
            NOW - 30 * days,
            NOW - 8 * days,
            {"runs": Count(3), "lines": Count(4)},
            Count(10),
            0.3,
            True,
        ),
        ("seen.expired", "prune", NOW, Count(2), NOW - days, NOW, {}, Count(4), 0.5, False),
        ("seen.cap", "prune", None, Count(1), NOW - 5 * days, NOW - 5 * days, {}, Count(4), 0.25, False),
    ]
    assert plan.total == Count(6), "the row that has expired and is beyond the cap counts once"
    assert (plan.made_at, plan.fingerprint, plan.problems) == (NOW, fingerprint(contract), ())
    assert [(step.takes, step.stop, step.share_exactness) for step in plan.steps] == [(None, None, Exactness.EXACT)] * 4


def test_without_a_time_the_clock_of_the_database_decides(database: Database) -> None:
    database.script(HEALTHY)
    with open_store(resolve_url(database.url), read_only=True) as store:
        before = store.now()
        plan = build_plan(store, loaded(EVENTS))
        assert before <= plan.made_at <= store.now()
        assert plan.made_at.tzinfo is UTC
    [step] = plan.steps
    assert step.cutoff == plan.made_at - timedelta(days=7)


def test_an_empty_table_has_nothing_due(database: Database) -> None:
    database.script(HEALTHY)
    [step] = planned(database, loaded(EVENTS)).steps
    assert (step.due, step.oldest, step.newest, step.table_rows, step.share, step.takes) == (
        Count(0),
        None,
        None,
        Count(0),
        0.0,
        None,
    )


def test_rules_that_do_not_fit_are_reported_and_the_others_planned(database: Database) -> None:
    fill(database)
    plan = planned(database, loaded(TEXT.replace('column = "ends_ms"', 'column = "end_ms"')))
    assert [f"{step.table}.{step.rule}" for step in plan.steps] == ["jobs.marked", "jobs.cold", "seen.cap"]
    [problem] = plan.problems
    assert (problem.code, problem.path, problem.fix) == (
        "missing-column",
        "table.seen.rule.expired.time",
        "did you mean 'ends_ms'?",
    )


@pytest.mark.parametrize(
    ("only", "steps"),
    [
        (("jobs",), ["jobs.marked", "jobs.cold"]),
        (("jobs.cold",), ["jobs.cold"]),
        (("seen.cap", "jobs.marked"), ["jobs.marked", "seen.cap"]),
        (("seen", "seen.cap"), ["seen.expired", "seen.cap"]),
        (("kept",), []),
    ],
)
def test_only_what_was_requested_is_planned(database: Database, only: tuple[str, ...], steps: list[str]) -> None:
    fill(database)
    plan = planned(database, loaded(TEXT), *only)
    assert [f"{step.table}.{step.rule}" for step in plan.steps] == steps


def test_only_the_problems_of_what_was_requested_are_reported(database: Database) -> None:
    fill(database)
    contract = loaded(TEXT.replace('column = "ends_ms"', 'column = "end_ms"'))
    assert planned(database, contract, "jobs").problems == ()
    assert [one.code for one in planned(database, contract, "seen.expired").problems] == ["missing-column"]
    assert [one.code for one in planned(database, contract, "seen").problems] == ["missing-column"]


def test_a_table_that_follows_by_two_references_is_counted_by_each(database: Database) -> None:
    database.script(
        f"{HEALTHY} CREATE TABLE links (id bigint NOT NULL PRIMARY KEY, a_id bigint, b_id bigint);"
        "CREATE INDEX links_a ON links (a_id); CREATE INDEX links_b ON links (b_id)"
    )
    database.executemany("INSERT INTO events VALUES (?, ?)", [(1, ago(30)), (2, ago(1))])
    database.executemany("INSERT INTO links VALUES (?, ?, ?)", [(1, 1, 2), (2, 1, 2), (3, 2, 1)])
    [step] = planned(database, loaded(f'{EVENTS}with = ["links.a_id", "links.b_id"]')).steps
    assert step.followers == {"links.a_id": Count(2), "links.b_id": Count(1)}


@pytest.mark.parametrize("name", ["per%cent", 'quo"te', "größe"])
def test_names_of_all_kinds_are_planned(database: Database, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    child = '"c ' + name.replace('"', '""') + '"'
    database.script(
        f"CREATE TABLE {quoted} ({quoted} bigint NOT NULL PRIMARY KEY, at bigint); CREATE INDEX i ON {quoted} (at);"
        f"CREATE TABLE {child} (id bigint NOT NULL PRIMARY KEY, {quoted} bigint);"
        f"CREATE INDEX j ON {child} ({quoted});"
        f"CREATE TABLE leaf (id bigint NOT NULL PRIMARY KEY, {quoted} bigint); CREATE INDEX k ON leaf ({quoted})"
    )
    database.execute(f"INSERT INTO {quoted} VALUES (1, {ago(30)})")
    database.execute(f"INSERT INTO {child} VALUES (5, 1)")
    database.execute("INSERT INTO leaf VALUES (7, 5)")
    events = Table(
        TableName(name),
        "A test.",
        (
            Rule(
                "old",
                Age(Time("at", Unit.MILLISECONDS), timedelta(days=7)),
                followers=(
                    Follower(
                        Reference(TableName(f"c {name}"), (name,)),
                        followers=(Follower(Reference(TableName("leaf"), (name,))),),
                    ),
                ),
            ),
        ),
    )
    [step] = planned(database, Contract(None, (events,)), explain=True).steps
    assert (step.due, step.followers) == (Count(1), {f"c {name}": Count(1), "leaf": Count(1)})
    assert all(one.query_plan or one.text.startswith("LOCK TABLE") for one in step.statements)


def test_the_statement_is_shown_with_its_values_and_its_query_plan(database: Database) -> None:
    fill(database)
    contract = loaded(TEXT)
    [step] = planned(database, contract, "jobs.marked", explain=True).steps
    find, *_, take = step.statements
    assert find.text.startswith("SELECT")
    assert take.text.startswith("UPDATE")
    assert "failed" in take.parameters.values()
    assert "jobs_done" in find.query_plan or "jobs" in find.query_plan
    [quiet] = planned(database, contract, "jobs.marked").steps
    assert quiet.statements == tuple(replace(one, query_plan="") for one in step.statements)


def test_progress_is_reported_before_each_step(database: Database) -> None:
    fill(database)
    reported: list[tuple[int, int, str]] = []
    with open_store(resolve_url(database.url), read_only=True) as store:
        build_plan(store, loaded(TEXT), now=NOW, progress=lambda *step: reported.append(step))
    assert reported == [(0, 4, "jobs.marked"), (1, 4, "jobs.cold"), (2, 4, "seen.expired"), (3, 4, "seen.cap")]


# Estimates

MANY = 400_000


def test_what_takes_too_long_is_estimated_and_reports_it(database: Database) -> None:
    database.script(HEALTHY)
    database.execute(f"INSERT INTO events SELECT n, {ago(100)} + n FROM {numbers(MANY)}")
    database.execute("ANALYZE")
    [step] = planned(database, loaded(EVENTS), seconds=0.001).steps
    assert step.due is not None
    assert step.table_rows is not None
    if database.store == "postgres":
        assert step.due.exactness is Exactness.ESTIMATE
        assert MANY * 0.8 < step.due.rows < MANY * 1.2
    else:
        assert step.due.exactness is Exactness.AT_LEAST
        assert 100 <= step.due.rows <= MANY
    assert step.table_rows.exactness is Exactness.ESTIMATE
    assert MANY * 0.8 < step.table_rows.rows < MANY * 1.2
    [exact] = planned(database, loaded(EVENTS)).steps
    assert (exact.due, exact.table_rows) == (Count(MANY), Count(MANY))


def test_an_estimate_is_of_the_rows_not_of_a_subquery_beside_them(postgres_database: PostgresDatabase) -> None:
    """The planner lists subqueries of conditions first."""
    postgres_database.script(HEALTHY)
    postgres_database.execute("INSERT INTO events SELECT n, n FROM generate_series(1, 1000) AS n")
    postgres_database.execute("ANALYZE")
    beside = "SELECT count(*) FROM public.events WHERE (SELECT min(id) FROM public.events) > 0 OR at > 0"
    with open_store(resolve_url(postgres_database.url)) as store:
        assert store.planner.estimate(Statement(beside, {})) == 1_000


def test_without_statistics_the_size_of_a_table_is_the_planners_guess_or_a_bound(database: Database) -> None:
    database.script(HEALTHY)
    database.execute(f"INSERT INTO events SELECT n, {ago(100)} + n FROM {numbers(MANY)}")
    [step] = planned(database, loaded(EVENTS), seconds=0.001).steps
    if database.store == "postgres":
        assert step.table_rows is not None
        assert step.table_rows.exactness is Exactness.ESTIMATE
        assert step.table_rows.rows > MANY / 10
    else:
        assert step.table_rows == Count(MANY, Exactness.AT_MOST)
        assert step.share is not None
        assert step.share_exactness is Exactness.AT_LEAST


def test_followers_that_take_too_long_are_not_guessed_on_sqlite(database: Database) -> None:
    database.script(
        f"{HEALTHY} CREATE TABLE reads (id bigint NOT NULL PRIMARY KEY, event_id bigint);"
        "CREATE INDEX reads_event ON reads (event_id)"
    )
    database.execute(f"INSERT INTO events SELECT n, {ago(100)} + n FROM {numbers(100_000)}")
    database.execute(f"INSERT INTO reads SELECT n, n FROM {numbers(100_000)}")
    [step] = planned(database, loaded(f'{EVENTS}with = ["reads.event_id"]'), seconds=0.001).steps
    if database.store == "postgres":
        follower = step.followers["reads"]
        assert follower is not None
        assert follower.exactness is Exactness.ESTIMATE
    else:
        assert step.followers == {"reads": None}


# Reads only


def test_planning_leaves_every_byte_of_a_sqlite_file_as_it_is(sqlite_database: SqliteDatabase) -> None:
    fill(sqlite_database)
    sqlite_database.execute("PRAGMA wal_checkpoint(truncate)")
    before = (digest(sqlite_database), sqlite_database.path.stat().st_mtime_ns)
    planned(sqlite_database, loaded(TEXT), explain=True)
    assert (digest(sqlite_database), sqlite_database.path.stat().st_mtime_ns) == before
    assert sqlite_database.path.with_name("test.db-wal").stat().st_size == 0


def digest(database: SqliteDatabase) -> str:
    return hashlib.sha256(database.path.read_bytes()).hexdigest()


def test_the_database_itself_refuses_writes_while_planning(database: Database) -> None:
    fill(database)
    schema = "main" if database.store == "sqlite" else "public"
    with open_store(resolve_url(database.url), read_only=True) as store:
        for text in ("DELETE FROM {}.jobs", "CREATE TABLE {}.other (id integer)", "UPDATE {}.jobs SET done_ms = 0"):
            with pytest.raises(StoreError, match=r"(?i)read-?only"):
                store.run(text.format(schema), {})
            with pytest.raises(StoreError, match=r"(?i)read-?only"), store.transaction() as transaction:
                transaction.execute(text.format(schema), {})
            if database.store == "postgres":
                with pytest.raises(StoreError, match=r"(?i)read-?only"):
                    store.read(Statement(text.format(schema), {}), 1)
        build_plan(store, loaded(TEXT), now=NOW)
    assert database.query("SELECT count(*) FROM jobs") == [(10,)]


def test_planning_waits_for_no_writer(database: Database) -> None:
    """A transaction that has changed every row and is not finished changes nothing for a plan."""
    fill(database)
    writer = database.connect()
    writer.execute("BEGIN IMMEDIATE" if database.store == "sqlite" else "BEGIN")
    writer.execute("UPDATE jobs SET status = 'queued'")
    assert planned(database, loaded(TEXT)).due == 6
    writer.execute("ROLLBACK")
