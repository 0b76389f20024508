"""Ages in another table: the latest time of a row's children, or its parent's; a row that has none there stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from prune.keeping import WEEK, Keeping, ago, follower, insert, keeping, reference, rule, table, timestamp
from servers import Database, PostgresDatabase
from wane._contract.model import Age, Expiry, Reference, Table, Time, Unit
from wane._contract.names import TableName
from wane._db.counting import Count
from wane._prune.pace import Pace
from wane._sqlfunctions import install

JOB = "CREATE TABLE job (id integer NOT NULL PRIMARY KEY, state text NOT NULL, at_ms bigint, owner integer)"
EVENT = "CREATE TABLE event (id integer NOT NULL PRIMARY KEY, job_id integer {key}, at_ms bigint)"
OWNER = "CREATE TABLE owner (id integer NOT NULL PRIMARY KEY, at_ms bigint)"
IN_CHILD = Time("at_ms", Unit.MILLISECONDS, child=reference("event.job_id"))
IN_PARENT = Time("at_ms", Unit.MILLISECONDS, parent=Reference(TableName("owner"), ("owner",)))
EVENTS: dict[int, Sequence[float | None]] = {
    1: [30, 20],
    2: [30, 1],
    3: [],
    4: [None],
    5: [9, None],
    6: [1],
    7: [8],
}
"""How many days old the events of each job are."""
DUE = {1, 5, 7}


def aged(time: Time = IN_CHILD, *, follow: bool = True, **more: Any) -> Table:
    more |= {"followers": [follower("event.job_id")]} if follow else {}
    return table("job", rule("old", Age(time, WEEK), **more))


def fill(database: Database, key: str = "REFERENCES job (id)") -> None:
    database.script(f"{JOB}; {EVENT.format(key=key)}; CREATE INDEX event_job ON event (job_id);")
    # Their own times are the other way round.
    insert(database, "job", "id, state, at_ms", *((n, "done", ago(1 if n in DUE else 90)) for n in EVENTS))
    events = [(n, days) for n, each in EVENTS.items() for days in each]
    times = [(at, n, None if days is None else ago(days)) for at, (n, days) in enumerate(events)]
    insert(database, "event", "id, job_id, at_ms", *times)
    insert(database, "job", "id, state", (99, "queued"))


def left(opened: Keeping) -> set[int]:
    return {*EVENTS, 99} - set(opened.ids())


@pytest.mark.parametrize("key", ["REFERENCES job (id)", ""])
def test_a_row_is_as_old_as_its_latest_child(database: Database, key: str) -> None:
    fill(database, key)
    with keeping(database, aged()) as opened:
        [note] = [one.message for one in opened.keeper.check() if one.code == "never-due"]
        assert note == "2 of its rows have no row of event with a usable time, and stay until they have one"
        [step] = opened.keeper.plan().steps
        assert (step.due, step.followers, step.oldest) == (Count(3), {"event": Count(5)}, None)
        assert opened.keeper.prune("job", rule="old", limit=3).counts == {"job": 1, "event": 2}
        assert left(opened) == {1}
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 2, "event": 3}
        assert left(opened) == DUE
        assert database.query("SELECT DISTINCT job_id FROM event ORDER BY job_id") == [(2,), (4,), (6,)]
        assert opened.keeper.prune("job", rule="old", limit=100).rows == 0


def test_a_sweep_walks_the_rows_by_their_keys(database: Database) -> None:
    fill(database, "")
    with keeping(database, aged(follow=False)) as opened:
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=Pace(1.0, 1.0, 1, 1, 1)).rules
        assert (swept.counts, left(opened)) == ({"job": 3}, DUE)
        assert opened.trail()[0].rows == 3


@pytest.mark.parametrize("children", [1, 5])
@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_row_with_more_children_than_fit_never_loses_its_time_before_it_leaves(
    database: Database, children: int, most: int
) -> None:
    fill(database)
    database.execute("DELETE FROM event")
    insert(database, "event", "id, job_id, at_ms", *((n, 2, ago(9)) for n in range(children)))
    insert(database, "event", "id, job_id", (50, 2))
    with keeping(database, aged()) as opened:
        for _ in range(30):
            opened.keeper.prune("job", rule="old", limit=most)
        assert left(opened) == (set() if most == 1 else {2})
        rest = database.query("SELECT count(*) FROM event")[0][0]
        assert rest == (1 if most == 1 else 0)


def test_a_childs_value_that_is_no_time_keeps_the_row(database: Database) -> None:
    fill(database)
    insert(database, "event", "id, job_id, at_ms", (50, 1, 17))
    with keeping(database, aged()) as opened:
        opened.keeper.prune("job", rule="old", limit=100)
        assert left(opened) == DUE - {1}


def test_why_shows_the_time_in_the_other_table(database: Database) -> None:
    fill(database)
    with keeping(database, aged()) as opened:
        waits, timeless = opened.keeper.why("job", 6), opened.keeper.why("job", 3)
        assert waits.summary.endswith(", 7d after the latest event.at_ms")
        values = {one.kind: one.values for one in waits.rules[0].conditions}
        assert values["time"] == values["bound"] == {"the latest event.at_ms": ago(1)}
        name = "the latest event.at_ms"
        requires = f"{name} = NULL, and it requires: {name} is a timestamp as declared"
        assert timeless.summary == f"old does not take it: {requires}"


def test_an_explicit_prune_has_its_own_cutoff(database: Database) -> None:
    fill(database)
    with keeping(database, aged()) as opened:
        pruned = opened.keeper.prune("job", states=["done"], older_than=timestamp(ago(8.5)), limit=100)
        assert (pruned.counts["job"], left(opened)) == (2, {1, 5})


@pytest.mark.parametrize("bound", [Age(IN_PARENT, WEEK), Expiry(IN_PARENT)], ids=["age", "expiry"])
def test_a_row_is_as_old_as_its_parent(database: Database, bound: Age | Expiry) -> None:
    database.script(f"{JOB}; {OWNER};")
    insert(database, "owner", "id, at_ms", (1, ago(8)), (2, ago(-1)), (3, None), (4, 17))
    jobs = [(n, "done", ago(90), owner) for n, owner in enumerate((1, 1, 2, 3, 4, None, 77))]
    insert(database, "job", "id, state, at_ms, owner", *jobs)
    with keeping(database, table("job", rule("old", bound))) as opened:
        assert opened.keeper.prune("job", rule="old", limit=100).counts == {"job": 2}
        assert opened.ids() == [2, 3, 4, 5, 6]


@pytest.mark.parametrize("key", ["REFERENCES job (id)", ""])
def test_the_functions_in_the_database_take_the_same_rows(postgres_database: PostgresDatabase, key: str) -> None:
    fill(postgres_database, key)
    with keeping(postgres_database, aged()) as opened:
        assert install(opened.keeper).refused == ()
        [(due,)] = postgres_database.query("SELECT due FROM wane.v_queue_retention_pressure WHERE tbl = 'job'")
        assert due == 3
        [(answer,)] = postgres_database.query("SELECT wane.prune('job', 'old', 3)")
        assert (answer["counts"], left(opened)) == ({"job": 1, "event": 2}, {1})
        postgres_database.query("SELECT wane.prune('job', 'old', 100)")
        assert left(opened) == DUE


def test_pressure_and_health_count_what_is_due(database: Database) -> None:
    fill(database)
    with keeping(database, aged()) as opened:
        [found] = [one for one in opened.keeper.pressure() if one.table == "job"]
        assert (found.due, found.oldest) == (Count(3), None)
        [job] = [one for one in opened.keeper.health().tables if one.pressure.table == "job"]
        assert (job.rules[0].due, job.rules[0].oldest_due) == (Count(3), None)
