"""A parent that another transaction is inserting saves its orphan: the batch waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from prune.test_conditions import enabled_keeper
from prune.test_missing_parents import BEGIN, RULES, add_logs, create, logs
from races.racing import Background, await_waiting, backend, backend_of
from servers import PostgresDatabase
from wane._sqlfunctions import install

pytestmark = pytest.mark.usefixtures("patient")


@pytest.mark.parametrize("change", ["INSERT INTO run VALUES (9)", "UPDATE run SET id = 9 WHERE id = 1"])
@pytest.mark.parametrize("commits", [True, False])
def test_a_parent_that_is_being_inserted_saves_its_orphan(
    postgres_database: PostgresDatabase, tmp_path: Path, change: str, commits: bool
) -> None:
    create(postgres_database)
    postgres_database.execute("INSERT INTO run VALUES (1)")
    add_logs(postgres_database, (1, 9, 30), (2, 8, 30))
    with enabled_keeper(postgres_database, tmp_path, RULES, BEGIN) as keeper:
        application = postgres_database.connect()
        with application.transaction(force_rollback=not commits):
            application.execute(change.encode())
            taking = Background(lambda: keeper.prune("log", rule="orphaned", limit=10))
            await_waiting(postgres_database, backend_of(keeper), backend(application))
        assert taking.result().rows == (1 if commits else 2)
        assert logs(postgres_database) == ([1] if commits else [])


def test_a_function_waits_for_a_parent_that_is_being_inserted(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    create(postgres_database)
    add_logs(postgres_database, (1, 9, 30), (2, 8, 30))
    with enabled_keeper(postgres_database, tmp_path, RULES, BEGIN) as keeper:
        install(keeper)
        application, caller = postgres_database.connect(), postgres_database.connect()
        with application.transaction():
            application.execute(b"INSERT INTO run VALUES (9)")
            calling = Background(lambda: caller.execute(b"SELECT wane.prune('log', 'orphaned', 10)").fetchall())
            await_waiting(postgres_database, backend(caller), backend(application))
        calling.result()
        assert logs(postgres_database) == [1]
