"""Orphans by a missing row: references without a foreign key that point at nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from prune.keeping import ago
from prune.test_conditions import CONTRACT, enabled_keeper
from servers import Database, PostgresDatabase
from wane._sqlfunctions import install
from wane.errors import BindError

RULES = """
[table.log]
scheduler = "s"
why = "a test"
time = { column = "at_ms", unit = "ms" }
rule.orphaned = { keep = "7d", orphans = { columns = "run_id", of = "run" } }
"""
BEGIN = CONTRACT.replace("[table.job]", "[table.run]") + 'rule.old = {{ keep = "30d" }}\n'


def create(database: Database, key: str = "integer") -> None:
    database.execute(f"CREATE TABLE run (id {key} NOT NULL PRIMARY KEY, at_ms bigint)")
    database.execute(f"CREATE TABLE log (id integer NOT NULL PRIMARY KEY, run_id {key}, at_ms bigint)")
    database.execute("CREATE INDEX log_at ON log (at_ms, id)")


def add_logs(database: Database, *rows: tuple[int, object, float]) -> None:
    """Insert rows as (id, run_id, days)."""
    database.executemany("INSERT INTO log VALUES (?, ?, ?)", [(n, run, ago(days)) for n, run, days in rows])


def logs(database: Database) -> list[int]:
    return [one for (one,) in database.query("SELECT id FROM log ORDER BY id")]


def test_old_rows_that_point_at_nothing_leave(database: Database, tmp_path: Path) -> None:
    create(database)
    database.execute("INSERT INTO run VALUES (1, ?)", (ago(1),))
    add_logs(database, (1, 1, 30), (2, 9, 30), (3, 9, 1), (4, None, 30), (5, 8, 8))
    with enabled_keeper(database, tmp_path, RULES, BEGIN) as keeper:
        [step] = keeper.plan("log").steps
        assert step.due is not None
        assert step.due.rows == 2
        assert not [one for one in keeper.check_live() if one.code == "dangling-reference"]
        keeper.sweep(approve=["log.orphaned"])
        assert logs(database) == [1, 3, 4]


def test_only_orphans_without_a_time_never_leave_and_why_names_the_parent(database: Database, tmp_path: Path) -> None:
    create(database)
    database.execute("INSERT INTO run VALUES (1, ?)", (ago(1),))
    add_logs(database, (1, 1, 30))
    database.executemany("INSERT INTO log VALUES (?, ?, NULL)", [(2, 1), (3, 9), (4, None)])
    with enabled_keeper(database, tmp_path, RULES, BEGIN) as keeper:
        [finding] = [one for one in keeper.check() if one.code == "never-due" and one.table == "log"]
        assert finding.message.startswith("1 of its rows has no usable time")
        conditions = {one.requires: one.met for one in keeper.why("log", 1).rules[0].conditions}
        assert conditions["run_id points at no row of run"] is False


def test_rows_become_orphans_in_the_sweep_that_takes_their_parents(database: Database, tmp_path: Path) -> None:
    create(database)
    database.execute("INSERT INTO run VALUES (1, ?)", (ago(40),))
    add_logs(database, (1, 1, 40))
    with enabled_keeper(database, tmp_path, RULES, BEGIN) as keeper:
        keeper.sweep(approve=["log.orphaned", "run.old"])
        assert logs(database) == []


def test_references_of_several_columns_and_to_other_keys(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE run (id integer PRIMARY KEY, kind text NOT NULL, number integer NOT NULL)")
    database.execute("CREATE UNIQUE INDEX run_key ON run (kind, number)")
    database.execute("CREATE TABLE log (id integer PRIMARY KEY, run_kind text, run_number integer, at_ms bigint)")
    database.execute("INSERT INTO run VALUES (1, 'a', 1)")
    rows = [(1, "a", 1), (2, "a", 2), (3, "b", 1), (4, None, 2), (5, "a", None)]
    database.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", [(*row, ago(30)) for row in rows])
    reference = '{ columns = ["run_kind", "run_number"], of = "run", to = ["kind", "number"] }'
    rules = RULES.replace('{ columns = "run_id", of = "run" }', reference)
    begin = CONTRACT.partition("[table.job]")[0]
    with enabled_keeper(database, tmp_path, rules, begin) as keeper:
        now = keeper.store.now()
        assert keeper.prune_orphans("log", older_than=now, limit=10).rows == 2
        assert logs(database) == [1, 4, 5]


@pytest.mark.parametrize(
    ("orphans", "message"),
    [
        ('{ columns = "run_id", of = "runs" }', "the database has no table runs"),
        ('{ columns = "runid", of = "run" }', "log has no column 'runid'"),
        ('{ columns = "run_id", of = "run", to = "nope" }', "run has no column 'nope'"),
        ('{ columns = ["run_id", "id"], of = "run" }', "2 columns point at 1 of run: id"),
    ],
)
def test_a_reference_that_does_not_fit_is_refused(
    database: Database, tmp_path: Path, orphans: str, message: str
) -> None:
    create(database)
    rules = RULES.replace('{ columns = "run_id", of = "run" }', orphans)
    with enabled_keeper(database, tmp_path, rules, BEGIN) as keeper:
        assert any(message in one.message for one in keeper.check())
        with pytest.raises(BindError):
            keeper.prune("log", rule="orphaned", limit=1)


def test_columns_that_compare_otherwise_are_refused(database: Database, tmp_path: Path) -> None:
    create(database)
    database.script("DROP TABLE run; CREATE TABLE run (id text PRIMARY KEY, at_ms bigint)")
    with enabled_keeper(database, tmp_path, RULES, BEGIN) as keeper, pytest.raises(BindError) as raised:
        keeper.prune("log", rule="orphaned", limit=1)
    assert [one.code for one in raised.value.findings] == ["wrong-reference"]


def test_functions_in_the_database_take_the_same_orphans(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    create(postgres_database, "uuid")
    one, gone = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
    postgres_database.execute("INSERT INTO run VALUES (?, ?)", (one, ago(1)))
    add_logs(postgres_database, (1, one, 30), (2, gone, 30))
    with enabled_keeper(postgres_database, tmp_path, RULES, BEGIN) as keeper:
        assert install(keeper).refused == ()
        postgres_database.query("SELECT wane.prune('log', 'orphaned', 10)")
        assert logs(postgres_database) == [1]
