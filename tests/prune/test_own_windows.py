"""Windows of rows: in a column, or in the row of another table; never shorter than the rule's, and nonsense keeps a
row."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from prune.keeping import DAY, Keeping, ago, follower, insert, keeping, notes, rule, table, timestamp
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.model import Age, Longer, Pick, Reference, Table, Time, Unit, WindowUnit
from wane._contract.names import TableName
from wane._db.counting import Count
from wane._prune.pace import Pace
from wane._sqlfunctions import install
from wane._why.model import RowVerdict

JOB = "CREATE TABLE job (id integer NOT NULL PRIMARY KEY, at_ms bigint, b_ms bigint, days bigint, queue text)"
QUEUE = "CREATE TABLE queue (id integer NOT NULL PRIMARY KEY, name text NOT NULL UNIQUE, days bigint)"
AT = Time("at_ms", Unit.MILLISECONDS)
IN_ROW = Longer("days", WindowUnit.DAYS)
IN_QUEUE = Longer("days", WindowUnit.DAYS, Reference(TableName("queue"), ("queue",), ("name",)))
ROWS: dict[int, tuple[float, int | None]] = {
    1: (30, 20),
    2: (30, 29),
    3: (30, 31),
    4: (30, 0),
    5: (30, None),
    6: (30, -1),
    7: (30, 2**62),
    8: (5, 1),
    9: (8, 1),
    10: (30, 36_526),
}
"""How many days old each row is, and its own window in days."""
DUE = {1, 2, 9}


def aged(longer: Longer = IN_ROW, time: Time = AT, **more: Any) -> Table:
    return table("job", rule("old", Age(time, 7 * DAY, longer), when=(), **more), state=None)


def fill(database: Database, *, queues: bool = False) -> None:
    database.script(f"{JOB}; {QUEUE}; CREATE INDEX job_at ON job (at_ms, id);")
    insert(
        database,
        "job",
        "id, at_ms, days, queue",
        *((n, ago(age), None if queues else days, f"q{n}") for n, (age, days) in ROWS.items()),
    )
    if queues:
        insert(database, "queue", "id, name, days", *((n, f"q{n}", days) for n, (_, days) in ROWS.items()))
        insert(database, "job", "id, at_ms, queue", (50, ago(90), "no such queue"), (51, ago(90), None))


def left(opened: Keeping) -> set[int]:
    return set(ROWS) - set(opened.ids())


@pytest.mark.parametrize("queues", [False, True])
def test_a_row_stays_as_long_as_it_states_and_never_shorter_than_the_rule(database: Database, queues: bool) -> None:
    fill(database, queues=queues)
    with keeping(database, aged(IN_QUEUE if queues else IN_ROW)) as opened:
        [step] = opened.keeper.plan().steps
        assert step.due == Count(3)
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=Pace(1.0, 1.0, 1, 1, 1)).rules
        assert (swept.counts, left(opened)) == ({"job": 3}, DUE)
        assert {50, 51} <= set(opened.ids()) or not queues


@pytest.mark.parametrize("queues", [False, True])
def test_why_states_when_the_own_window_of_a_row_ends(database: Database, queues: bool) -> None:
    fill(database, queues=queues)
    with keeping(database, aged(IN_QUEUE if queues else IN_ROW)) as opened:
        opened.keeper.enable()
        found = {n: opened.keeper.why("job", n) for n in ROWS}
        verdicts = {n: one.verdict for n, one in found.items()}
        waiting = {3: RowVerdict.WAITING, 8: RowVerdict.WAITING}
        assert verdicts == dict.fromkeys(ROWS, RowVerdict.RETAINED) | dict.fromkeys(DUE, RowVerdict.DUE) | waiting
        ends = {n: one.rules[0].due_at for n, one in found.items() if one.rules[0].due_at is not None}
        assert ends == {n: timestamp(ago(ROWS[n][0] - max(ROWS[n][1] or 0, 7))) for n in (*DUE, *waiting)}
        assert found[3].summary.endswith("31d after its at_ms")
        name = "queue.days" if queues else "days"
        assert f"{name} = -1, and it requires: " in found[6].summary


def test_followers_leave_with_rows_whose_window_has_passed(database: Database) -> None:
    fill(database)
    notes(database, (1, 1, "x"), (2, 3, "x"), foreign_key="job (id)")
    with keeping(database, aged(followers=[follower("note.job_id")])) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 3, "note": 1}
        assert (left(opened), opened.ids("note")) == (DUE, [2])


def test_windows_count_from_the_time_that_counts(database: Database) -> None:
    fill(database)
    database.execute("UPDATE job SET b_ms = ? WHERE id = 1", (ago(10),))  # Its window is 20 days.
    chosen = Time("at_ms", Unit.MILLISECONDS, beside=("b_ms",), pick=Pick.LATEST)
    with keeping(database, aged(time=chosen)) as opened:
        opened.keeper.prune("job", rule="old", limit=100)
        assert left(opened) == DUE - {1}


def test_an_explicit_prune_respects_windows_of_rows(database: Database) -> None:
    fill(database)
    with keeping(database, aged()) as opened:
        pruned = opened.keeper.prune("job", older_than=timestamp(ago(7.5)), limit=100)
        assert (pruned.rows, left(opened)) == (1, {1})  # Windows count back from the cutoff.


def test_sqlite_texts_are_no_windows(sqlite_database: SqliteDatabase) -> None:
    fill(sqlite_database)
    sqlite_database.execute("UPDATE job SET days = 'twenty' WHERE id = 1")
    with keeping(sqlite_database, aged()) as opened:
        opened.keeper.prune("job", rule="old", limit=100)
        assert left(opened) == DUE - {1}


@pytest.mark.parametrize("queues", [False, True])
@pytest.mark.parametrize("encoding", ["bigint", "timestamptz", "timestamp", "numeric", "text"])
def test_the_functions_in_the_database_take_the_same_rows(
    postgres_database: PostgresDatabase, encoding: str, queues: bool
) -> None:
    fill(postgres_database, queues=queues)
    instant = "to_timestamp(at_ms / 1000.0)"
    converted, time = {
        "bigint": ("at_ms", AT),
        "timestamptz": (instant, Time("at_ms")),
        "timestamp": (f"{instant} AT TIME ZONE 'UTC'", Time("at_ms", zone="UTC")),
        "numeric": ("at_ms / 1000.0", Time("at_ms", Unit.SECONDS)),
        "text": (
            f"""to_char({instant} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""",
            Time("at_ms", Unit.ISO),
        ),
    }[encoding]
    postgres_database.execute(f"ALTER TABLE job ALTER at_ms TYPE {encoding} USING {converted}")
    if encoding == "text":
        postgres_database.execute("UPDATE job SET at_ms = 'yesterday' WHERE id = 9")
    due = DUE - ({9} if encoding == "text" else set())
    with keeping(postgres_database, aged(IN_QUEUE if queues else IN_ROW, time)) as opened:
        assert install(opened.keeper).refused == ()
        [(found,)] = postgres_database.query("SELECT due FROM wane.v_queue_retention_pressure WHERE tbl = 'job'")
        assert found == len(due)
        assert opened.keeper.plan().due == len(due)
        [(answer,)] = postgres_database.query("SELECT wane.prune('job', 'old', 1)")
        assert (answer["rows"], len(left(opened))) == (1, 1)
        assert opened.keeper.prune("job", rule="old", limit=100).rows == len(due) - 1
        assert left(opened) == due


def test_a_row_that_becomes_due_old_is_not_late(database: Database) -> None:
    fill(database)
    with keeping(database, aged()) as opened:
        opened.keeper.enable()
        opened.keeper.sweep()
        insert(database, "job", "id, at_ms, days", (60, ago(40), 39))
        [job] = [one for one in opened.keeper.health().tables if one.pressure.table == "job"]
        assert job.rules[0].due == Count(1)
        assert (job.late_seconds or 0.0) < timedelta(minutes=5).total_seconds()
