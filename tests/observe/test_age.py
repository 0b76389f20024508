"""The age of rows is reported by the column that a table declares for it: a dead letter that nobody resolved is seen to
grow old."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

import wane.sqlite
from observe.reading import of
from servers import Database
from wane._check.cover import cover
from wane._contract.fingerprint import fingerprint
from wane._contract.load import load_contract, read_contract
from wane._contract.show import rows as shown_rows
from wane._keeper import Keeper, open_keeper
from wane._sqlfunctions import install
from wane.errors import ContractError
from wane.observe._metrics import Metrics
from wane.reference import contract_path, schema_sql

DAY = timedelta(days=1)
SMALL = """
[scheduler]
s = { every = "5m" }

[table.letter]
scheduler = "s"
why  = "a test"
time = { column = "resolved_ms", unit = "ms" }
age  = { column = "failed_ms", unit = "ms" }
[table.letter.rule.resolved]
keep = "365d"
unless = [{ null = "resolved_ms" }]

[health]
counted_rows = 10
"""
LETTERS = "CREATE TABLE letter (id BIGINT PRIMARY KEY, failed_ms BIGINT NOT NULL, resolved_ms BIGINT)"


def ms(timestamp: datetime) -> int:
    return round(timestamp.timestamp() * 1000)


def oldest(keeper: Keeper, table: str) -> date | None:
    [found] = [one.oldest for one in keeper.pressure() if one.table == table]
    return found


@pytest.fixture
def substrate(database: Database) -> Database:
    database.script(schema_sql("substrate", database.store)["main"])
    return database


def test_an_unresolved_dead_letter_and_a_queued_job_have_an_age(substrate: Database, tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    text = "%Y-%m-%d %H:%M:%S" + ("" if substrate.store == "sqlite" else "+00")
    failed, enqueued = (now - 800 * DAY), (now - 20 * DAY)
    substrate.execute(
        "INSERT INTO job_queue (id, kind, dedupe_key, status, payload, enqueued_at) VALUES (1, 'k', 'd', 'failed', '{}', ?)",
        (enqueued.strftime(text),),
    )
    substrate.execute(
        "INSERT INTO job_dead_letter (job_id, error, first_failed_at) VALUES (1, 'e', ?)", (failed.strftime(text),)
    )
    with open_keeper(substrate.url, contract=contract_path("substrate"), actor="a test") as keeper:
        keeper.migrate()
        assert oldest(keeper, "job_dead_letter") == failed
        assert oldest(keeper, "job_queue") == enqueued
        [letters] = [one for one in keeper.health().tables if one.pressure.table == "job_dead_letter"]
        assert letters.oldest_age_seconds == pytest.approx(800 * 86_400, abs=600)
        with closing(Metrics(keeper.contract)) as metrics:
            metrics.watch(keeper.store.clone, budget_seconds=30.0, patience_seconds=60.0)
            ages = of(metrics.text(), "wane_table_oldest_row_age_seconds")
        assert ages["job_dead_letter",] == pytest.approx(800 * 86_400, abs=600)
        view = "SELECT tbl, oldest FROM {}v_queue_retention_pressure WHERE tbl IN ('job_queue', 'job_dead_letter')"
        if substrate.store == "postgres":
            install(keeper)
            reported = dict(substrate.query(view.format("wane.")))
        else:
            with closing(sqlite3.connect(substrate.path)) as connection:  # type: ignore[attr-defined]
                wane.sqlite.register(connection, contract=keeper.contract)
                reported = {table: datetime.fromisoformat(at) for table, at in connection.execute(view.format(""))}
        assert reported == {"job_queue": enqueued, "job_dead_letter": failed}


def test_without_an_index_the_age_of_a_large_table_is_not_reported_and_check_names_the_index(
    database: Database, tmp_path: Path
) -> None:
    database.script(LETTERS)
    file = tmp_path / "wane.toml"
    file.write_text(SMALL)
    now = datetime.now(UTC).replace(microsecond=0)
    for number in range(20):
        database.execute("INSERT INTO letter VALUES (?, ?, NULL)", (number, ms(now - (100 + number) * DAY)))
    with open_keeper(database.url, contract=file, actor="a test") as keeper:
        assert oldest(keeper, "letter") is None
        [finding] = [one for one in cover(keeper.store, keeper.contract) if one.code == "no-age-index"]
        assert (finding.path, finding.severity.value) == ("table.letter.age", "warning")
    database.script(finding.fix)
    with open_keeper(database.url, contract=file, actor="a test") as keeper:
        assert oldest(keeper, "letter") == now - 119 * DAY
        assert "no-age-index" not in [one.code for one in cover(keeper.store, keeper.contract)]


def test_an_age_that_does_not_fit_is_reported_and_keeps_no_row_from_leaving(database: Database, tmp_path: Path) -> None:
    database.script(LETTERS)
    now = datetime.now(UTC)
    database.execute("INSERT INTO letter VALUES (1, ?, ?)", (ms(now - 500 * DAY), ms(now - 400 * DAY)))
    for wrong, code in (('"nothing"', "missing-column"), ('"failed_ms"', "wrong-time-type")):
        file = tmp_path / "wane.toml"
        file.write_text(SMALL.replace('{ column = "failed_ms", unit = "ms" }', wrong))
        with open_keeper(database.url, contract=file, actor="a test") as keeper:
            keeper.migrate()
            found = [one for one in cover(keeper.store, keeper.contract) if one.path == "table.letter.age"]
            assert [one.code for one in found] == [code]
            assert oldest(keeper, "letter") is None
            assert [step.due.rows for step in keeper.plan().steps if step.due is not None] == [1]


def test_it_is_part_of_what_is_shown_and_not_of_what_is_promised(tmp_path: Path) -> None:
    file = tmp_path / "wane.toml"
    file.write_text(SMALL)
    contract = load_contract(file)
    assert "age by failed_ms" in shown_rows(contract)[0].observe
    file.write_text(SMALL.replace("age  =", "# age ="))
    assert fingerprint(load_contract(file)) == fingerprint(contract)
    file.write_text(SMALL.replace('{ column = "failed_ms", unit = "ms" }', '{ unit = "ms" }'))
    with pytest.raises(ContractError):
        load_contract(file)
    assert [one.path for one in read_contract(file).findings] == ["table.letter.age.column"]
