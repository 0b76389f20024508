"""A table whose columns are others than when it was copied keeps its rows, although no row's version and no column's
name or type changed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from archive.cold import CONTRACT, STAYING, cold_keeper, conserve, events
from servers import Database, PostgresDatabase
from wane._prune.sweep import Outcome

ROWS = 20
SCRUBBED = ["ALTER TABLE event DROP COLUMN amount", "ALTER TABLE event ADD COLUMN amount numeric(12,2) DEFAULT 7"]
"""The last column, so that their order stays."""
FOLLOWERS = ["ALTER TABLE event_read DROP COLUMN who", "ALTER TABLE event_read ADD COLUMN who text DEFAULT 'redacted'"]
BEFORE = [
    "CREATE TYPE mood AS ENUM ('good', 'bad')",
    "CREATE TYPE spot AS (x integer, y integer)",
    "ALTER TABLE event ADD COLUMN mood mood DEFAULT 'good'",
    "ALTER TABLE event ADD COLUMN moods mood[] DEFAULT '{bad}'",
    "ALTER TABLE event ADD COLUMN spot spot DEFAULT '(1,2)'",
    "ALTER TABLE event ADD COLUMN other text DEFAULT 'other'",
]
SWAPPED = [
    "ALTER TABLE event RENAME body TO swapping",
    "ALTER TABLE event RENAME other TO body",
    "ALTER TABLE event RENAME swapping TO other",
]
CAST = '[archive.event]\ncast = { spot = "text", moods = "text" }\n'

BY_RANGE = CONTRACT.partition("with = ")[0] + "[spark]\nrange_rows = 60\n"
"""Rows that none follow and none save are deleted by their range, and compared by their transactions."""


class Died(BaseException):
    """What no product code catches."""


def everything(database: Database) -> dict[str, set[int]]:
    return {table: {row for (row,) in database.query(f"SELECT id FROM {table}")} for table in ("event", "event_read")}


def run_statements(database: Database, statements: Sequence[str]) -> None:
    for statement in statements:
        database.execute(statement)


@pytest.mark.parametrize("change", [SCRUBBED, FOLLOWERS], ids=["row", "follower"])
@pytest.mark.parametrize("died", [False, True])
def test_a_column_that_was_dropped_and_readded_keeps_the_rows(
    database: Database, tmp_path: Path, change: list[str], died: bool
) -> None:
    events(database, ROWS)
    ever = everything(database)

    def change_and_die() -> None:
        run_statements(database, change)
        if died:
            raise Died

    with cold_keeper(database, tmp_path) as cold:
        cold.at["committed"] = change_and_die
        if died:
            with pytest.raises(Died):
                cold.one()
        else:
            assert cold.one().stale == (ROWS if database.store == "postgres" or change is SCRUBBED else followed())
    with cold_keeper(database, tmp_path) as cold:
        assert cold.one().outcome is Outcome.DONE
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, ever, done=True)
        assert cold.hot() == STAYING
        if change is SCRUBBED:
            assert {row["amount"] for row in cold.archived()} == {7}
        else:
            assert {row["who"] for row in cold.archived("event_read")} == {"redacted"}


def test_a_table_that_changes_between_two_batches_keeps_the_rows_that_are_left(
    database: Database, tmp_path: Path
) -> None:
    events(database, 50)
    ever = everything(database)
    with cold_keeper(database, tmp_path) as cold:
        cold.at["batch"] = lambda: database.execute("ALTER TABLE event ADD COLUMN note text DEFAULT 'x'")
        done = cold.one()
        assert done.outcome is Outcome.DONE, done.message
        assert 0 < done.stale < 50
        conserve(cold, ever, done=True)
        assert len(cold.hot()) == done.stale + len(STAYING)


def test_a_type_that_changes_between_two_batches_keeps_the_rows_that_are_left(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    events(postgres_database, 50)
    postgres_database.script("DROP TABLE event_read; DROP TABLE event_guard; CREATE TYPE mood AS ENUM ('good', 'bad')")
    postgres_database.execute("ALTER TABLE event ADD COLUMN mood mood DEFAULT 'good'")
    with cold_keeper(postgres_database, tmp_path, BY_RANGE) as cold:
        ever = cold.hot()
        cold.at["batch"] = lambda: postgres_database.execute("ALTER TYPE mood RENAME VALUE 'good' TO 'fine'")
        done = cold.one()
        assert done.outcome is Outcome.DONE, done.message
        assert 0 < done.stale < 50
        assert sorted([*cold.hot(), *cold.cold()]) == ever


def followed() -> int:
    return sum(1 for n in range(1, ROWS + 1) if n % 3)


@pytest.mark.parametrize(
    "change",
    [
        ["ALTER TYPE mood RENAME VALUE 'good' TO 'fine'"],
        ["ALTER TYPE mood RENAME VALUE 'bad' TO 'worse'"],
        ["ALTER TYPE mood RENAME VALUE 'good' TO 'x'", "ALTER TYPE mood RENAME VALUE 'x' TO 'good'"],
        ["ALTER TYPE spot ADD ATTRIBUTE z integer CASCADE"],
        SWAPPED,
    ],
    ids=["label", "label in an array", "label and back", "composite", "names swapped"],
)
def test_a_type_or_a_name_that_changed_its_meaning_keeps_the_rows(
    clusters: Any, tmp_path: Path, change: list[str]
) -> None:
    contract = CONTRACT.replace("[archive.event]\n", CAST.replace("{", "{{").replace("}", "}}"))
    with clusters["postgres"].database() as database:
        events(database, ROWS)
        run_statements(database, BEFORE)
        ever = everything(database)
        with cold_keeper(database, tmp_path, contract) as cold:
            cold.at["committed"] = lambda: run_statements(database, change)
            done = cold.one()
            assert (done.outcome, done.stale) == (Outcome.DONE, ROWS), done.message
            conserve(cold, ever, done=True)
            assert cold.cold() == []
            hot = {
                row[0]: row[1:] for row in database.query("SELECT id, mood::text, spot::text, body, other FROM event")
            }
        with cold_keeper(database, tmp_path, contract) as cold:
            assert cold.one().outcome is Outcome.DONE
            conserve(cold, ever, done=True)
            found = {row["id"]: (row["mood"], row["spot"], row["body"], row["other"]) for row in cold.archived()}
            assert found == {number: row for number, row in hot.items() if number not in STAYING}


def test_a_copy_that_was_cut_short_begins_anew_when_a_column_is_another_one(database: Database, tmp_path: Path) -> None:
    events(database, ROWS)
    ever = everything(database)

    def die() -> None:
        run_statements(database, SCRUBBED)
        raise Died

    with cold_keeper(database, tmp_path) as cold:
        cold.at["written"] = die
        with pytest.raises(Died):
            cold.one()
    with cold_keeper(database, tmp_path) as cold:
        assert cold.one().outcome is Outcome.DONE
        conserve(cold, ever, done=True)
        assert {row["amount"] for row in cold.archived()} <= {7}
        assert cold.one().outcome is Outcome.DONE
        assert cold.hot() == STAYING
