"""Caps of tables without a time: the newest by their key stay, where that key ascends; rows with other keys stay,
too."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from prune.keeping import follower, insert, keeping, notes, referenced_by, rule, table
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.model import Cap, Table
from wane._db.counting import Count
from wane._prune.pace import Pace
from wane._sqlfunctions import install

JOB = "CREATE TABLE job (id {type} NOT NULL PRIMARY KEY, tenant text, state text)"


def capped(most: int, *per: str, by: str = "id", **more: Any) -> Table:
    bound = Cap(None, most, per, by)
    return table("job", rule("cap", bound, when=(), **more), state=None, key=())


def keyed(database: Database, *ids: object, type_: str = "bigint") -> None:
    database.execute(JOB.format(type=type_))
    insert(database, "job", "id, tenant, state", *((one, f"t{n % 2}", "done") for n, one in enumerate(ids)))


def uuid_7(number: int) -> str:
    return f"0190{number:04x}-0000-7000-8000-{uuid.uuid4().hex[:12]}"


def ulid(number: int) -> str:
    return f"01J{number:07d}" + uuid.uuid4().hex[:16].upper()


def test_the_newest_by_key_stay(database: Database) -> None:
    keyed(database, *range(-3, 7))
    with keeping(database, capped(4)) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100).counts == {"job": 6}
        assert opened.ids() == [3, 4, 5, 6]
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 0
        assert [(one.kind, one.cutoff, one.rows) for one in opened.trail()] == [("prune", None, 6), ("prune", None, 0)]


@pytest.mark.parametrize("shape", ["plain", "guarded", "followed", "held"])
def test_a_sweep_takes_batch_by_batch_what_lies_beyond(database: Database, shape: str) -> None:
    keyed(database, *range(30))
    shapes: dict[str, dict[str, Any]] = {
        "guarded": {"unless": [referenced_by("note.job_id")]},
        "followed": {"followers": [follower("note.job_id")]},
    }
    more = shapes.get(shape, {})
    if more:
        notes(database, (1, 3, "x"), foreign_key="job (id)")
    stays = [3] if shape in ("guarded", "held") else []
    with keeping(database, capped(5, **more)) as opened:
        if shape == "held":
            opened.keeper.hold("job", {"id": 3}, reason="a dispute")
        opened.keeper.enable()
        [swept] = opened.keeper.sweep(pace=Pace(1.0, 1.0, 4, 4, 4)).rules
        assert swept.counts["job"] == 25 - len(stays)
        assert opened.ids() == [*stays, *range(25, 30)]


def test_each_scope_keeps_its_newest(database: Database) -> None:
    keyed(database, *range(10))
    with keeping(database, capped(2, "tenant")) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 6
        assert opened.ids() == [6, 7, 8, 9]


def test_a_key_of_two_columns_is_ordered_by_the_one_that_is_named(database: Database) -> None:
    database.execute("CREATE TABLE job (tenant text NOT NULL, seq integer NOT NULL, PRIMARY KEY (tenant, seq))")
    insert(database, "job", "tenant, seq", *((tenant, n) for tenant in "ab" for n in range(4)))
    with keeping(database, capped(3, by="seq")) as opened:
        opened.keeper.prune("job", rule="cap", limit=100)
        assert database.query("SELECT tenant, seq FROM job ORDER BY seq, tenant") == [("b", 2), ("a", 3), ("b", 3)]


@pytest.mark.parametrize("make", [uuid_7, ulid])
@pytest.mark.parametrize("type_", ["text", "uuid"])
def test_texts_and_uuids_that_ascend_are_ordered_and_others_stay_and_do_not_count(
    database: Database, make: Callable[[int], str], type_: str
) -> None:
    if type_ == "uuid" and (isinstance(database, SqliteDatabase) or make is ulid):
        type_ = "text"
    ordered = [make(n) for n in range(6)]
    random = [str(uuid.uuid4()) for _ in range(3)]
    odd = [] if type_ == "uuid" else ["", "zz", make(9).swapcase(), ordered[0] + "x", f"f{ordered[0]}"]
    keyed(database, *ordered, *random, *odd, type_=type_)
    with keeping(database, capped(2)) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 4
        assert {str(one) for one in opened.ids()} == {*ordered[4:], *random, *odd}


def test_sqlite_texts_in_a_column_of_numbers_stay_and_do_not_count(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.execute(JOB.format(type="INTEGER").replace("PRIMARY KEY", "UNIQUE"))
    insert(sqlite_database, "job", "id", *((one,) for one in (1, 2, 3, "a", "b", b"c")))
    declared = Table(capped(2).name, "a test", capped(2).rules, scheduler="tick", key=("id",))
    with keeping(sqlite_database, declared) as opened:
        assert opened.keeper.prune("job", rule="cap", limit=100).rows == 1
        assert opened.ids() == [2, 3, "a", "b", b"c"]


def test_such_a_table_has_no_age_and_its_pressure_states_what_is_due(database: Database) -> None:
    keyed(database, *range(10))
    with keeping(database, capped(4)) as opened:
        [step] = opened.keeper.plan().steps
        assert (step.cutoff, step.oldest, step.newest) == (None, None, None)
        assert step.due is not None
        assert step.due.rows == 6
        [found] = [one for one in opened.keeper.pressure() if one.table == "job"]
        assert (found.due, found.oldest, found.newest) == (Count(6), None, None)
        health = opened.keeper.health()
        [job] = [one for one in health.tables if one.pressure.table == "job"]
        assert (job.late_seconds, job.rules[0].oldest_due) == (None, None)


@pytest.mark.parametrize("per", [(), ("tenant",)])
def test_the_functions_in_the_database_take_the_same_rows(
    postgres_database: PostgresDatabase, per: tuple[str, ...]
) -> None:
    keyed(postgres_database, *range(40))
    with keeping(postgres_database, capped(5, *per)) as opened:
        assert install(opened.keeper).refused == ()
        [(answer,)] = postgres_database.query("SELECT wane.prune('job', 'cap', 7)")
        assert answer["rows"] == 7
        [(answer,)] = postgres_database.query("SELECT wane.prune('job', 'cap', 100)")
        assert answer["rows"] == 40 - 7 - 5 * (len(per) + 1)
        assert opened.ids() == list(range(40 - 5 * (len(per) + 1), 40))
        [(rows, oldest, due)] = postgres_database.query(
            "SELECT rows, oldest, due FROM wane.v_queue_retention_pressure WHERE tbl = 'job'"
        )
        assert (rows, oldest, due) == (5 * (len(per) + 1), None, 0)
