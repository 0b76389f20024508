"""The examples of docs/reference/sql.md and docs/reference/webhooks.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servers import Database, PostgresDatabase, SqliteDatabase
from wane._keeper import open_keeper
from wane._sqlfunctions import install
from wane.reference import schema_sql
from wane.webhooks import WebhookRetention
from webhooks.hooks import T, contract, contract_file, delivery, event, prepare

_SWEEP = "fn_event_outbox_archive_sweep"
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def blocks(page: str, language: str) -> list[str]:
    text = (REFERENCE / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def fill(database: Database) -> None:
    prepare(database)
    event(database, 1, "handled", T, attempts=2, deliveries=1, jobs=["knocker.events"])
    delivery(database, T)


@pytest.mark.parametrize("page", ["sql.md", "webhooks.md"])
def test_python_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = blocks(page, "python")
    assert examples
    monkeypatch.chdir(tmp_path)
    contract_file(tmp_path)
    database = SqliteDatabase(tmp_path / "hooks.db")
    fill(database)
    for example in examples:
        # The loop of the second example waits for the interval after the pass above it.
        exec(compile(example.replace("interval_s=60", "interval_s=0.1"), page, "exec"), {"__name__": "__main__"})
    assert database.query("SELECT count(*) FROM knocker_events") == [(0,)]
    assert database.query("SELECT count(*) FROM knocker_deliveries") == [(0,)]
    database.close()


def statements() -> list[str]:
    return [one for example in blocks("sql.md", "sql") for one in example.split(";\n") if one.strip()]


def test_the_archive_sweep_of_the_reference_contract_runs(postgres_database: PostgresDatabase, tmp_path: Path) -> None:
    postgres_database.script(schema_sql("substrate", "postgres")["main"])
    postgres_database.execute(
        "INSERT INTO event_outbox (event_domain, event_type, event_stream, actor, payload, created_at)"
        " SELECT 'd', 't', 's', 'a', '{}', timestamp FROM unnest(ARRAY['2026-01-05'::timestamptz, now()]) AS m(timestamp)"
    )
    file = tmp_path / "wane.toml"
    file.write_text(
        'include = ["reference:substrate"]\n[archive.event_outbox]\nkeep = "forever"\ntier = "database"\n',
        encoding="utf-8",
    )
    examples = [one for one in statements() if _SWEEP in one]
    assert len(examples) == 2
    with open_keeper(postgres_database.url, contract=file, actor="a test") as keeper:
        keeper.migrate()
        keeper.enable()
        install(keeper)
        for statement in examples:
            assert postgres_database.query(statement)[0][0]["outcome"] == "done"
    assert postgres_database.query("SELECT count(*) FROM archive.event_outbox_202601") == [(1,)]
    assert postgres_database.query("SELECT count(*) FROM event_outbox") == [(1,)]


def test_sql_examples_run(postgres_database: PostgresDatabase) -> None:
    fill(postgres_database)
    with WebhookRetention.open(postgres_database.url, contract=contract()) as webhooks:
        install(webhooks.keeper)
    for statement in statements():
        if _SWEEP not in statement:
            assert postgres_database.query(statement), statement
    assert postgres_database.query("SELECT count(*) FROM knocker_events") == [(0,)]
    postgres_database.script("SET search_path = public, wane")
    assert postgres_database.query("SELECT count(*) FROM knocker_prune_audits") == [(4,)]
