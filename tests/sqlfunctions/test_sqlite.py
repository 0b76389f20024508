"""Functions on a sqlite3 connection: the same rows, the caller's transaction, and no call where it would not be
safe."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import wane.sqlite
from servers import SqliteDatabase
from wane._contract.fingerprint import fingerprint
from wane._contract.load import load_contract
from wane.errors import NotMigrated, StoreError
from wane.webhooks import RetentionPolicy, WebhookRetention
from webhooks.hooks import T, audits, delivery, event, events, prepare
from webhooks.hooks import contract as webhooks_contract

CONTRACT = """
[scheduler]
tick = { every = "5m" }
[table.inbox]
scheduler = "tick"
why   = "Failed messages stay for a week."
state = "status"
live  = ["queued"]
time  = { column = "at_ms", unit = "ms" }
[table.inbox.rule.failed]
when = ["failed"]
keep = "7d"
with = ["note.inbox_id"]
[table.receipt]
scheduler = "tick"
why  = "A receipt without its message is of no use."
time = { column = "at", unit = "s" }
[table.receipt.rule.orphans]
orphans = "inbox_id"
keep    = "1d"
[excused]
note = { inline = "with its message" }
"""
SCHEMA = """
CREATE TABLE inbox (id INTEGER PRIMARY KEY, status TEXT NOT NULL, at_ms INTEGER);
CREATE INDEX inbox_age ON inbox (status, at_ms, id);
CREATE TABLE note (id INTEGER PRIMARY KEY, inbox_id INTEGER NOT NULL REFERENCES inbox (id));
CREATE INDEX note_inbox ON note (inbox_id);
CREATE TABLE receipt (id INTEGER PRIMARY KEY, inbox_id INTEGER, at INTEGER NOT NULL);
CREATE INDEX receipt_age ON receipt (inbox_id, at, id);
"""
MODES: list[dict[str, Any]] = [{"isolation_level": None}, {"isolation_level": ""}, {"isolation_level": "IMMEDIATE"}]


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    path = tmp_path / "wane.toml"
    path.write_text(CONTRACT, encoding="utf-8")
    return path


@pytest.fixture(params=["wal", "delete"])
def database(sqlite_database: SqliteDatabase, contract: Path, request: pytest.FixtureRequest) -> SqliteDatabase:
    sqlite_database.script(f"PRAGMA journal_mode = {request.param}; {SCHEMA}")
    with wane.open(sqlite_database.url, contract=contract) as keeper:
        keeper.store.migrate()
    for number in (1, 2, 3):
        sqlite_database.execute("INSERT INTO inbox VALUES (?, 'failed', ?)", (number, T * 1000 + number))
        sqlite_database.execute("INSERT INTO note VALUES (?, ?)", (number, number))
    sqlite_database.execute("INSERT INTO inbox VALUES (4, 'queued', ?)", (T * 1000,))
    return sqlite_database


@pytest.fixture(params=MODES, ids=["autocommit", "deferred", "immediate"])
def connection(
    database: SqliteDatabase, contract: Path, request: pytest.FixtureRequest
) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(database.path, **request.param)) as opened:
        opened.execute("PRAGMA foreign_keys = on")
        wane.sqlite.register(opened, contract=contract, actor="tester")
        yield opened


def one(connection: sqlite3.Connection, text: str, *values: object) -> Any:
    [(answer,)] = connection.execute(text, values).fetchall()
    return answer


def inbox(database: SqliteDatabase) -> list[int]:
    return [number for (number,) in database.query("SELECT id FROM inbox ORDER BY id")]


def test_a_select_prunes_and_answers_in_json(connection: sqlite3.Connection, database: SqliteDatabase) -> None:
    answer = json.loads(one(connection, "SELECT wane_prune('inbox', 'failed', 4)"))
    assert answer["counts"] == {"inbox": 2, "note": 2}
    assert (answer["table"], answer["rule"], answer["kind"], answer["rows"]) == ("inbox", "failed", "prune", 4)
    connection.commit()
    assert inbox(database) == [3, 4]
    [(kind, actor, counts)] = database.query("SELECT kind, actor, counts FROM wane_audit")
    assert (kind, actor, json.loads(counts)) == ("prune", "tester", {"inbox": 2, "note": 2})


def test_it_takes_what_the_engine_takes(
    connection: sqlite3.Connection, database: SqliteDatabase, contract: Path
) -> None:
    for limit in (1, 2, 3, 10):
        with wane.open(database.url, contract=contract) as keeper:
            other = database.connect()
            other.execute("BEGIN IMMEDIATE")
            expected = keeper.prune("inbox", rule="failed", limit=limit, connection=other)
            left = other.execute("SELECT id FROM inbox ORDER BY id").fetchall()
            other.execute("ROLLBACK")
        connection.execute("BEGIN")
        answer = json.loads(one(connection, "SELECT wane_prune('inbox', 'failed', ?)", limit))
        assert answer["counts"] == expected.counts
        assert connection.execute("SELECT id FROM inbox ORDER BY id").fetchall() == left
        connection.rollback()


def test_inside_a_transaction_it_commits_or_vanishes_with_it(
    connection: sqlite3.Connection, database: SqliteDatabase
) -> None:
    connection.execute("BEGIN")
    one(connection, "SELECT wane_prune('inbox', 'failed', 100)")
    connection.rollback()
    assert inbox(database) == [1, 2, 3, 4]
    assert audits(database) == 0


def test_it_commits_by_itself_only_if_the_connection_does(
    connection: sqlite3.Connection, database: SqliteDatabase
) -> None:
    one(connection, "SELECT wane_prune('inbox', 'failed', 100)")
    if connection.isolation_level is None:
        assert not connection.in_transaction
        assert inbox(database) == [4]
    else:
        assert connection.in_transaction
        connection.rollback()
        assert inbox(database) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO kept SELECT wane_prune('inbox', 'failed', 100)",
        "INSERT INTO kept VALUES (wane_prune('inbox', 'failed', 100)) RETURNING what",
        "UPDATE kept SET what = wane_prune('inbox', 'failed', 100)",
        "DELETE FROM kept WHERE what = wane_prune('inbox', 'failed', 100)",
        "CREATE TABLE copy AS SELECT wane_prune('inbox', 'failed', 100) AS what",
        "INSERT INTO watched VALUES (1)",
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_inside_a_statement_that_writes_it_is_refused(
    connection: sqlite3.Connection, database: SqliteDatabase, statement: str, inside: bool
) -> None:
    database.script("CREATE TABLE kept (what); INSERT INTO kept VALUES (1); CREATE TABLE watched (what)")
    connection.execute(
        "CREATE TEMP TRIGGER fires AFTER INSERT ON main.watched BEGIN SELECT wane_prune('inbox', 'failed', 100); END"
    )
    if inside:
        connection.execute("BEGIN")
    with pytest.raises(sqlite3.OperationalError):
        connection.execute(statement).fetchall()
    assert "inside a statement that writes" in one(connection, "SELECT wane_last_error()")
    connection.commit()
    assert inbox(database) == [1, 2, 3, 4]
    assert audits(database) == 0
    assert database.query("SELECT * FROM kept") == [(1,)]
    assert database.query("SELECT * FROM watched") == []
    assert database.query("SELECT 1 FROM sqlite_master WHERE name = 'copy'") == []
    assert database.query("PRAGMA integrity_check") == [("ok",)]


def test_while_another_select_of_the_connection_is_open_it_works(
    connection: sqlite3.Connection, database: SqliteDatabase
) -> None:
    reading = connection.execute("SELECT id FROM inbox ORDER BY id")
    assert reading.fetchone() == (1,)
    one(connection, "SELECT wane_prune('inbox', 'failed', 100)")
    connection.commit()
    reading.fetchall()
    assert inbox(database) == [4]
    assert database.query("PRAGMA integrity_check") == [("ok",)]


def test_called_for_several_rows_each_call_is_audited(connection: sqlite3.Connection, database: SqliteDatabase) -> None:
    answers = connection.execute("SELECT wane_prune('inbox', value, 2) FROM json_each('[\"failed\", \"failed\"]')")
    assert [json.loads(answer)["rows"] for (answer,) in answers.fetchall()] == [2, 2]
    connection.commit()
    assert audits(database) == 2


def test_beside_a_writer_it_fails_and_takes_nothing(database: SqliteDatabase, contract: Path) -> None:
    other = database.connect()
    with closing(sqlite3.connect(database.path, isolation_level=None, timeout=0.05)) as connection:
        wane.sqlite.register(connection, contract=contract)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError):
            connection.execute("SELECT wane_prune('inbox', 'failed', 100)")
        assert "locked" in one(connection, "SELECT wane_last_error()")
        other.execute("ROLLBACK")
        one(connection, "SELECT wane_prune('inbox', 'failed', 100)")
        assert one(connection, "SELECT wane_last_error()") is None
    assert inbox(database) == [4]


@pytest.mark.parametrize(
    ("call", "reported"),
    [
        ("wane_prune('inbx', 'failed', 100)", "did you mean 'inbox'"),
        ("wane_prune('inbox', 'faild', 100)", "did you mean 'failed'"),
        ("wane_prune('inbox', 'failed', 0)", "limit must be from 1"),
        ("wane_prune('inbox', 'failed', '100')", "limit must be a whole number"),
        ("wane_prune('inbox', NULL, 100)", "rule must be a text"),
        ("wane_prune_orphans('receipt', NULL, 100)", "older_than must be"),
        ("wane_prune_orphans('receipt', 'yesterday', 100)", "not a timestamp"),
        ("wane_prune_orphans('receipt', '2026-01-01T00:00:00', 100)", "no zone"),
        ("wane_prune_orphans('receipt', 1700000000000, 100)", "not milliseconds"),
        ("wane_prune_orphans('inbox', 1700000000, 100)", "prunes orphans by age"),
    ],
)
def test_a_failing_call_states_why_when_requested(
    connection: sqlite3.Connection, database: SqliteDatabase, call: str, reported: str
) -> None:
    with pytest.raises(sqlite3.OperationalError, match="user-defined function raised exception"):
        connection.execute(f"SELECT {call}")
    assert reported in one(connection, "SELECT wane_last_error()")
    connection.rollback()
    assert audits(database) == 0


@pytest.mark.parametrize("older_than", [T, float(T), "2023-11-14T22:13:20+00:00"])
def test_orphans_leave_by_a_time_that_the_caller_gives(
    connection: sqlite3.Connection, database: SqliteDatabase, older_than: object
) -> None:
    database.execute("INSERT INTO receipt VALUES (1, NULL, ?), (2, NULL, ?), (3, 1, ?)", (T - 1, T, T - 1))
    answer = json.loads(one(connection, "SELECT wane_prune_orphans('receipt', ?, 10)", older_than))
    connection.commit()
    assert (answer["kind"], answer["counts"]) == ("prune_orphans", {"receipt": 1})
    assert answer["cutoff"] == "2023-11-14T22:13:20+00:00"
    assert database.query("SELECT id FROM receipt ORDER BY id") == [(2,), (3,)]


def test_a_connection_that_reads_in_its_own_way_is_left_as_it_was(database: SqliteDatabase, contract: Path) -> None:
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        wane.sqlite.register(connection, contract=contract)
        [row] = connection.execute("SELECT wane_prune('inbox', 'failed', 100) AS answer").fetchall()
        assert json.loads(row["answer"])["rows"] == 6
        assert connection.text_factory is bytes


def test_it_knows_its_contract(connection: sqlite3.Connection, contract: Path) -> None:
    assert one(connection, "SELECT wane_contract_fingerprint()") == fingerprint(load_contract(contract))


def test_a_second_registration_replaces_the_contract(
    connection: sqlite3.Connection, database: SqliteDatabase, tmp_path: Path
) -> None:
    changed = tmp_path / "changed.toml"
    changed.write_text(CONTRACT.replace('"7d"', '"30000d"'), encoding="utf-8")
    wane.sqlite.register(connection, contract=changed)
    assert json.loads(one(connection, "SELECT wane_prune('inbox', 'failed', 100)"))["rows"] == 0


def test_what_has_no_file_or_is_no_connection_is_refused(contract: Path) -> None:
    with closing(sqlite3.connect(":memory:")) as memory, pytest.raises(StoreError, match="memory"):
        wane.sqlite.register(memory, contract=contract)
    with pytest.raises(StoreError, match="sqlite3"):
        wane.sqlite.register("state.db", contract=contract)  # type: ignore[arg-type]


@pytest.mark.unmigrated
def test_a_database_without_wanes_tables_is_refused(sqlite_database: SqliteDatabase, contract: Path) -> None:
    with pytest.raises(NotMigrated):
        wane.sqlite.register(sqlite_database.connect(), contract=contract)


def test_a_file_with_an_odd_name_is_found(tmp_path: Path, contract: Path) -> None:
    path = tmp_path / "100% odd?#${HOME}.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(SCHEMA)
        with pytest.raises(NotMigrated):
            wane.sqlite.register(connection, contract=contract)


def test_the_keepers_own_connection_closes_with_the_callers(database: SqliteDatabase, contract: Path) -> None:
    connection = sqlite3.connect(database.path)
    store = wane.sqlite.register(connection, contract=contract)._keeper.store
    connection.close()
    with pytest.raises(StoreError):
        store.reflect()


# Webhooks


@pytest.fixture
def hooks(sqlite_database: SqliteDatabase) -> SqliteDatabase:
    prepare(sqlite_database)
    return sqlite_database


@pytest.fixture
def hooked(hooks: SqliteDatabase) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(hooks.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = on")
        wane.sqlite.register(connection, contract=webhooks_contract())
        yield connection


def test_the_webhook_names_do_what_the_typed_surface_does(hooked: sqlite3.Connection, hooks: SqliteDatabase) -> None:
    event(hooks, 1, "handled", T - 3, attempts=2, deliveries=1, jobs=["knocker.events", "emails"])
    event(hooks, 2, "ignored", T - 2)
    event(hooks, 3, "dead", T - 2)
    delivery(hooks, T - 1)
    answer = json.loads(one(hooked, "SELECT knocker_prune_events('[\"handled\"]', ?, 100, 'knocker.events')", T))
    assert answer == {"events_pruned": 1, "attempts_pruned": 2, "deliveries_pruned": 1, "live_jobs_pruned": 1}
    assert json.loads(one(hooked, "SELECT knocker_prune_events(NULL, ?, 100, NULL)", T))["events_pruned"] == 1
    orphans = one(hooked, "SELECT knocker_prune_orphan_deliveries(?, 100, 'emails')", T)
    assert json.loads(orphans) == {"deliveries_pruned": 1}
    named = [name for (name,) in hooked.execute("SELECT queue_name FROM knocker_prune_audits")]
    assert named == ["emails", "knocker.events", "knocker.events"]
    assert events(hooks) == [3]


def test_the_view_and_the_typed_surface_list_the_same(hooked: sqlite3.Connection, hooks: SqliteDatabase) -> None:
    event(hooks, 1, "handled", T - 10, attempts=2)
    one(hooked, "SELECT knocker_prune_events(NULL, ?, 100, NULL)", T)
    one(hooked, "SELECT knocker_prune_orphan_deliveries(?, 7, NULL)", T)
    with WebhookRetention.open(hooks.url, contract=webhooks_contract()) as webhooks:
        listed = webhooks.list_prune_audits()
    viewed = hooked.execute("SELECT * FROM knocker_prune_audits").fetchall()
    assert [row[:8] for row in viewed] == [
        tuple(getattr(audit, name) for name in audit.__slots__)[:8] for audit in listed
    ]
    assert [json.loads(row[8]) for row in viewed] == [json.loads(audit.summary_json) for audit in listed]


def test_a_pass_in_sql_is_a_pass_for_the_loop_too(hooked: sqlite3.Connection, hooks: SqliteDatabase) -> None:
    event(hooks, 1, "handled", T)
    delivery(hooks, T)
    call = "SELECT knocker_run_retention_pass(?, ?, 100, ?, 100, 'knocker.events')"
    answer = json.loads(one(hooked, call, '["handled", "ignored"]', T + 1, T + 1))
    assert answer == {
        "event_result": {"events_pruned": 1, "attempts_pruned": 0, "deliveries_pruned": 0, "live_jobs_pruned": 0},
        "orphan_result": {"deliveries_pruned": 1},
    }
    assert audits(hooks) == 2
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    with WebhookRetention.open(hooks.url, contract=webhooks_contract()) as webhooks:
        policy = RetentionPolicy(interval_s=3600, event_older_than_s=604800)
        assert webhooks.run_retention(policy, stop_event=stop).passes == 0


@pytest.mark.parametrize(
    ("call", "reported"),
    [
        ("knocker_prune_events('handled', 1700000000, 10, NULL)", "JSON array"),
        ("knocker_prune_events('\"handled\"', 1700000000, 10, NULL)", "must be a list"),
        ("knocker_prune_events('[]', 1700000000, 10, NULL)", "empty"),
        ("knocker_prune_events('[\"failed\"]', 1700000000, 10, NULL)", "wait for an operator"),
        ("knocker_prune_events(NULL, NULL, 10, NULL)", "unix seconds"),
        ("knocker_prune_orphan_deliveries(1700000000, 1001, NULL)", "from 1 to 1,000"),
        ("knocker_run_retention_pass(NULL, NULL, 100, NULL, 100, NULL)", "no threshold, no deletion"),
        ("knocker_run_retention_pass('\"handled\"', 1, 100, NULL, 100, NULL)", "must be a list"),
        ("knocker_prune_events(NULL, 1700000000, 10, '')", "queue must have 1 to 1,000 characters"),
        ("knocker_prune_orphan_deliveries(1700000000, 10, 5)", "queue must be"),
        ("knocker_run_retention_pass(NULL, 1700000000000, 100, NULL, 100, NULL)", "not milliseconds"),
    ],
)
def test_slips_in_webhook_calls_are_refused(
    hooked: sqlite3.Connection, hooks: SqliteDatabase, call: str, reported: str
) -> None:
    event(hooks, 1, "handled", T - 10)
    with pytest.raises(sqlite3.OperationalError):
        hooked.execute(f"SELECT {call}")
    assert reported in one(hooked, "SELECT wane_last_error()")
    assert events(hooks) == [1]
    assert audits(hooks) == 0
