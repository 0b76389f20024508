"""The newest rows stay, as many as the rule says, while other transactions delete, revive or move them."""

from __future__ import annotations

from pathlib import Path

import pytest

from prune.keeping import KEEP_WEEK, ago, keeping, rule, table
from prune.test_conditions import add, create, enabled_keeper, ids
from prune.test_spare import scoped
from races.racing import Background, await_waiting, backend, backend_of
from servers import PostgresDatabase
from wane._contract.model import Mark, Spare
from wane._sqlfunctions import install

pytestmark = pytest.mark.usefixtures("patient")


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM job WHERE id = 3",
        "UPDATE job SET state = 'queued' WHERE id = 3",
        "UPDATE job SET tenant = 'b' WHERE id = 3",
        "UPDATE job SET at_ms = 1 WHERE id = 3",
    ],
)
@pytest.mark.parametrize("action", [None, Mark("cleaned")], ids=["prune", "mark"])
def test_the_newest_row_stays_while_another_transaction_removes_a_newer_one(
    postgres_database: PostgresDatabase, change: str, action: Mark | None
) -> None:
    """Both are there when the batch begins: the application's newest, and the one that would be left."""
    scoped(postgres_database, (1, 40, "a"), (2, 30, "a"), (3, 20, "a"))
    declared = table(
        "job", rule(bound=KEEP_WEEK, spare=Spare(1, ("tenant",)), then=action), rule("gone", when=["cleaned"])
    )
    with keeping(postgres_database, declared) as opened:
        application = postgres_database.connect()
        with application.transaction():
            application.execute(change.encode())
            taking = Background(lambda: opened.keeper.prune("job", rule="old", limit=10))
            await_waiting(postgres_database, backend_of(opened.keeper), backend(application))
        assert taking.result().rows == 1
        left = postgres_database.query("SELECT id FROM job WHERE state = 'done' AND tenant = 'a' AND at_ms > 1")
        assert left == [(2,)]


def test_a_function_waits_for_the_transaction_that_removes_a_newer_row(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    create(postgres_database)
    for number in (1, 2, 3):
        add(postgres_database, id=number, at_ms=ago(200 - number), tries=1)
    rules = 'rule.old = { keep = "90d", spare = { newest = 1, per = "tries" } }\n'
    with enabled_keeper(postgres_database, tmp_path, rules) as keeper:
        install(keeper)
        application, caller = postgres_database.connect(), postgres_database.connect()
        with application.transaction():
            application.execute(b"DELETE FROM job WHERE id = 3")
            calling = Background(lambda: caller.execute(b"SELECT wane.prune('job', 'old', 10)").fetchall())
            await_waiting(postgres_database, backend(caller), backend(application))
        calling.result()
        assert ids(postgres_database) == [2]
