"""Installing, calling, refusing: what the functions inside PostgreSQL promise beyond taking the right rows."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

import wane
from servers import PostgresDatabase
from sqlfunctions.tables import CONTRACT, SCHEMA, contract_file
from wane import Keeper
from wane._contract.fingerprint import fingerprint
from wane._contract.model import Contract, Follower, WhileNotNull
from wane._contract.names import TableName
from wane._sqlfunctions import install, installed_fingerprint, sql_surface, uninstall
from wane.errors import NotMigrated, StoreError
from wane.webhooks import RetentionPolicy, WebhookRetention
from webhooks.hooks import T, delivery, event, events, prepare
from webhooks.hooks import contract as webhooks_contract

OLD = datetime(2026, 1, 1)
LONG_AGO_MS = 1_700_000_000_000


@pytest.fixture
def database(postgres_database: PostgresDatabase) -> PostgresDatabase:
    postgres_database.script(SCHEMA)
    return postgres_database


@pytest.fixture
def keeper(database: PostgresDatabase, tmp_path: Path) -> Iterator[Keeper]:
    with wane.open(database.url, contract=contract_file(tmp_path)) as opened:
        opened.store.migrate()
        install(opened)
        yield opened


@pytest.fixture
def hooks(postgres_database: PostgresDatabase) -> PostgresDatabase:
    prepare(postgres_database)
    with WebhookRetention.open(postgres_database.url, contract=webhooks_contract()) as webhooks:
        install(webhooks.keeper)
    return postgres_database


def functions(database: PostgresDatabase) -> set[str]:
    return {
        name
        for (name,) in database.query("SELECT proname FROM pg_proc WHERE pronamespace = 'wane'::regnamespace")
        if not name.startswith("sql_") and name != "message_wakes"  # The queue's own.
    }


def jobs(database: PostgresDatabase) -> list[int]:
    return [number for (number,) in database.query("SELECT id FROM job ORDER BY id")]


def add_jobs(database: PostgresDatabase, *numbers: int) -> None:
    database.executemany("INSERT INTO job VALUES (?, 'cleaned', ?)", [(n, LONG_AGO_MS + n) for n in numbers])


def prune(database: PostgresDatabase, table: str, rule: str, limit: int | None) -> Any:
    [(answer,)] = database.query("SELECT wane.prune(?, ?, ?)", (table, rule, limit))
    return answer


# Installing


@pytest.mark.unmigrated
def test_nothing_is_installed_until_it_is_requested(database: PostgresDatabase, tmp_path: Path) -> None:
    with wane.open(database.url, contract=contract_file(tmp_path)) as keeper:
        with pytest.raises(NotMigrated):
            install(keeper)
        assert installed_fingerprint(keeper.store) is None
        keeper.store.migrate()
        assert sql_surface(keeper).fingerprint == fingerprint(keeper.contract)
        assert installed_fingerprint(keeper.store) is None


def test_functions_carry_the_fingerprint_of_their_contract(keeper: Keeper, database: PostgresDatabase) -> None:
    expected = fingerprint(keeper.contract)
    assert database.query("SELECT wane.contract_fingerprint()") == [(expected,)]
    assert installed_fingerprint(keeper.store) == expected


def test_another_contract_replaces_the_functions(keeper: Keeper, database: PostgresDatabase, tmp_path: Path) -> None:
    add_jobs(database, 1)
    database.execute("UPDATE job SET finished_ms = (extract(epoch FROM now()) * 1000)::bigint - 6 * 86400000")
    longer = CONTRACT.replace('keep = "5d"', 'keep = "7d"')
    with wane.open(database.url, contract=contract_file(tmp_path, longer)) as other:
        assert fingerprint(other.contract) != installed_fingerprint(other.store)
        install(other)
        assert fingerprint(other.contract) == installed_fingerprint(other.store)
    assert prune(database, "job", "gone", 10)["rows"] == 0
    install(keeper)
    assert prune(database, "job", "gone", 10)["rows"] == 1


def test_a_rule_that_left_the_contract_can_no_longer_be_called(
    keeper: Keeper, database: PostgresDatabase, tmp_path: Path
) -> None:
    without = CONTRACT.partition("[table.lease]")[0] + "[excused]\nlease = { inline = 'x' }"
    with wane.open(database.url, contract=contract_file(tmp_path, without)) as other:
        install(other)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=r"no rule lease\.expired"):
        prune(database, "lease", "expired", 10)


def test_rights_that_were_granted_outlive_a_new_installation(keeper: Keeper, database: PostgresDatabase) -> None:
    database.script("REVOKE ALL ON FUNCTION wane.prune FROM PUBLIC")
    install(keeper)
    [(rights,)] = database.query("SELECT proacl::text FROM pg_proc WHERE oid = 'wane.prune'::regproc")
    assert not any(right.startswith("=X/") for right in rights.strip("{}").split(","))


def test_uninstalling_removes_the_functions_and_leaves_the_trail(keeper: Keeper, database: PostgresDatabase) -> None:
    prune(database, "job", "gone", 10)
    database.script("CREATE FUNCTION wane.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    uninstall(keeper.store)
    assert functions(database) == {"mine"}
    assert database.query("SELECT count(*) FROM pg_proc WHERE pronamespace = 'wane'::regnamespace") == [(2,)]
    assert installed_fingerprint(keeper.store) is None
    assert database.query("SELECT count(*) FROM wane.audit") == [(1,)]
    uninstall(keeper.store)


def test_webhook_names_come_and_go_with_their_tables(hooks: PostgresDatabase, tmp_path: Path) -> None:
    named = {"knocker_prune_events", "knocker_prune_orphan_deliveries", "knocker_run_retention_pass"}
    assert named <= functions(hooks)
    hooks.script("CREATE TABLE note (id bigint PRIMARY KEY)")
    with wane.open(hooks.url, contract=contract_file(tmp_path, "[excused]\nnote = { inline = 'x' }")) as keeper:
        install(keeper)
        assert functions(hooks) == {"contract_fingerprint", "prune", "prune_orphans", "fn_retention_health"}
        assert hooks.query("SELECT to_regclass('wane.knocker_prune_audits')") == [(None,)]


def test_the_printed_script_can_be_run_by_hand(keeper: Keeper, database: PostgresDatabase) -> None:
    text = sql_surface(keeper).text
    uninstall(keeper.store)
    add_jobs(database, 1)
    database.script(text)
    assert installed_fingerprint(keeper.store) == fingerprint(keeper.contract)
    assert prune(database, "job", "gone", 10)["rows"] == 1


def test_a_rule_by_wall_clock_is_refused_and_reports_it(database: PostgresDatabase, tmp_path: Path) -> None:
    berlin = CONTRACT.replace('zone = "UTC"', 'zone = "Europe/Berlin"')
    with wane.open(database.url, contract=contract_file(tmp_path, berlin)) as keeper:
        keeper.store.migrate()
        [refused] = install(keeper).refused
        assert refused.rule == "post.old"
        assert "wall-clock times of Europe/Berlin" in refused.reason
        add_jobs(database, 1)
        assert prune(database, "job", "gone", 10)["rows"] == 1
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="Europe/Berlin"):
            prune(database, "post", "old", 10)


def test_a_rule_that_does_not_fit_the_database_is_refused(database: PostgresDatabase, tmp_path: Path) -> None:
    database.script("ALTER TABLE lease RENAME COLUMN expires_us TO expires")
    with wane.open(database.url, contract=contract_file(tmp_path)) as keeper:
        keeper.store.migrate()
        [refused] = install(keeper).refused
        assert refused.rule == "lease.expired"
        assert "expires_us" in refused.reason


def test_sqlite_has_no_functions_in_the_database(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch()
    with wane.open(f"sqlite:///{path}", contract=contract_file(tmp_path, "")) as keeper:
        assert installed_fingerprint(keeper.store) is None
        for act in (lambda: install(keeper), lambda: uninstall(keeper.store)):
            with pytest.raises(StoreError, match="SQLite keeps no functions"):
                act()


# Calling


@pytest.mark.parametrize("limit", [None, 0, -1, 100_001])
def test_a_limit_that_cannot_be_meant_is_refused(keeper: Keeper, database: PostgresDatabase, limit: int | None) -> None:
    add_jobs(database, 1)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="from 1 to 100000"):
        prune(database, "job", "gone", limit)
    assert jobs(database) == [1]


@pytest.mark.parametrize(("table", "rule"), [("jobs", "gone"), ("job", "old"), (None, "gone"), ("job", None)])
def test_an_unknown_rule_is_refused(keeper: Keeper, database: PostgresDatabase, table: str, rule: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="the contract has no rule"):
        prune(database, table, rule, 10)


@pytest.mark.parametrize("older_than", [None, "tomorrow", "infinity", "-infinity", "1969-01-01", "2300-01-01"])
def test_a_timestamp_that_cannot_be_meant_is_refused(
    keeper: Keeper, database: PostgresDatabase, older_than: str | None
) -> None:
    database.execute("INSERT INTO receipt VALUES (1, NULL, ?)", (OLD,))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="older_than"):
        database.query("SELECT wane.prune_orphans('receipt', ?::timestamptz, 10)", (older_than,))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no rule of job prunes orphans"):
        database.query("SELECT wane.prune_orphans('job', now(), 10)")


def test_a_floor_holds_in_sql_too(database: PostgresDatabase, tmp_path: Path) -> None:
    floored = CONTRACT.replace('keep    = "1d"', 'keep    = "9d"') + '\n[floor]\nreceipt = "8d"\n'
    with wane.open(database.url, contract=contract_file(tmp_path, floored)) as keeper:
        keeper.store.migrate()
        assert install(keeper).refused == ()
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="floor"):
        database.query("SELECT wane.prune_orphans('receipt', now() - interval '7 days', 10)")
    database.query("SELECT wane.prune_orphans('receipt', now() - interval '9 days', 10)")


def test_a_call_commits_or_vanishes_with_its_transaction(keeper: Keeper, database: PostgresDatabase) -> None:
    add_jobs(database, 1)
    connection = database.connect()
    connection.execute("BEGIN")
    connection.execute("SELECT wane.prune('job', 'gone', 10)")
    connection.execute("ROLLBACK")
    assert jobs(database) == [1]
    assert keeper.audit() == []


def test_settings_of_the_caller_stay_as_they_were(keeper: Keeper, database: PostgresDatabase) -> None:
    connection = database.connect()
    names = ["lock_timeout", "timezone", "row_security", "search_path", "plan_cache_mode", "datestyle"]
    connection.execute("SET timezone = 'Asia/Kathmandu'; SET datestyle = 'German'; SET lock_timeout = '7s'")

    def settings() -> list[Any]:
        return [connection.execute(f"SHOW {name}").fetchone() for name in names]

    before = settings()
    connection.execute("SELECT wane.prune('post', 'old', 10)")
    assert settings() == before


def test_a_snapshot_that_cannot_see_others_is_refused(keeper: Keeper, database: PostgresDatabase) -> None:
    connection = database.connect()
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    with pytest.raises(psycopg.errors.InvalidTransactionState, match="repeatable read"):
        connection.execute("SELECT wane.prune('job', 'gone', 10)")


def test_the_trail_names_who_called(keeper: Keeper, database: PostgresDatabase) -> None:
    connection = database.connect()
    connection.execute("SELECT wane.prune('job', 'gone', 10)")
    connection.execute("SET wane.actor = 'nightly'")
    connection.execute("SELECT wane.prune('job', 'gone', 10)")
    [(user,)] = database.query("SELECT session_user::text")
    assert [entry.actor for entry in keeper.audit()] == ["nightly", user]


def test_a_failing_call_leaves_no_audit_row(keeper: Keeper, database: PostgresDatabase) -> None:
    add_jobs(database, 1)
    database.script("""
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'stays'; END $$;
        CREATE TRIGGER keep BEFORE DELETE ON job FOR EACH ROW EXECUTE FUNCTION keep();
    """)
    with pytest.raises(psycopg.errors.RaiseException, match="stays"):
        prune(database, "job", "gone", 10)
    assert jobs(database) == [1]
    assert keeper.audit() == []


def test_a_trigger_that_silently_keeps_rows_is_noticed(database: PostgresDatabase, tmp_path: Path) -> None:
    database.script("""
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
        CREATE TRIGGER keep BEFORE DELETE ON job FOR EACH ROW EXECUTE FUNCTION keep();
    """)
    with wane.open(database.url, contract=contract_file(tmp_path)) as keeper:
        keeper.store.migrate()
        install(keeper)
    add_jobs(database, 1)
    with pytest.raises(psycopg.errors.RaiseException, match="1 rows were due and locked, but the database took 0"):
        prune(database, "job", "gone", 10)


@pytest.mark.parametrize(
    ("table", "rule", "columns"), [("job", "gone", "'cleaned', 1700000000000"), ("post", "old", "'2026-01-01', NULL")]
)
def test_rows_that_others_hold_locked_are_left_for_the_next_time(
    keeper: Keeper, database: PostgresDatabase, table: str, rule: str, columns: str
) -> None:
    database.execute(f"INSERT INTO {table} VALUES (1, {columns}), (2, {columns}), (3, {columns})")
    other = database.connect()
    other.execute("BEGIN")
    other.execute(f"SELECT 1 FROM {table} WHERE id = 2 FOR UPDATE")
    assert prune(database, table, rule, 10)["rows"] == 2
    other.execute("ROLLBACK")
    assert prune(database, table, rule, 10)["rows"] == 1


def test_a_row_that_is_revived_while_the_function_waits_stays(keeper: Keeper, database: PostgresDatabase) -> None:
    add_jobs(database, 1, 2)
    other, caller = database.connect(), database.connect()
    caller.execute("SET lock_timeout = 0")
    other.execute("BEGIN")
    other.execute("UPDATE job SET status = 'queued' WHERE id = 1")
    answers: list[Any] = []
    # Waits for less than 200 ms, then goes round the row that is locked.
    thread = threading.Thread(
        target=lambda: answers.append(caller.execute("SELECT wane.prune('job', 'gone', 10)").fetchone())
    )
    thread.start()
    await_lock(database)
    other.execute("COMMIT")
    thread.join(10)
    assert answers[0][0]["rows"] == 1
    assert jobs(database) == [1]


def test_a_row_that_gets_a_reference_while_the_function_waits_stays(keeper: Keeper, database: PostgresDatabase) -> None:
    """There is no foreign key from outbox to inbox: only the lock on outbox shows it."""
    database.execute("INSERT INTO inbox VALUES (1, 'done', ?), (2, 'done', ?)", (OLD, OLD))
    other, caller = database.connect(), database.connect()
    other.execute("BEGIN")
    other.execute("INSERT INTO outbox VALUES (1, 1)")
    answers: list[Any] = []
    thread = threading.Thread(
        target=lambda: answers.append(caller.execute("SELECT wane.prune('inbox', 'done', 10)").fetchone())
    )
    thread.start()
    await_lock(database)
    other.execute("COMMIT")
    thread.join(10)
    assert answers[0][0]["rows"] == 1
    assert database.query("SELECT id FROM inbox") == [(1,)]


def test_a_hold_keeps_its_row(keeper: Keeper, database: PostgresDatabase) -> None:
    add_jobs(database, 1, 2)
    keeper.hold("job", {"id": 1}, reason="a dispute")
    assert prune(database, "job", "gone", 10)["rows"] == 1
    assert jobs(database) == [1]
    keeper.hold("job", reason="everything stays")
    assert prune(database, "job", "gone", 10)["rows"] == 0


def await_lock(database: PostgresDatabase) -> None:
    """Wait until a backend of this database waits for a lock."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if database.query(
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        ):
            return
        time.sleep(0.01)
    raise AssertionError("nobody waits")


# Webhooks


def test_a_pass_in_sql_is_one_transaction_with_one_audit_row_for_each_path(hooks: PostgresDatabase) -> None:
    event(hooks, 1, "handled", T, attempts=2, deliveries=1, jobs=["knocker.events", "emails"])
    event(hooks, 2, "dead", T)
    delivery(hooks, T)
    [(answer,)] = hooks.query(
        "SELECT wane.knocker_run_retention_pass('[\"handled\", \"ignored\"]', ?, 100, ?, 100, 'knocker.events')",
        (T + 1, T + 1),
    )
    assert answer == {
        "event_result": {"events_pruned": 1, "attempts_pruned": 2, "deliveries_pruned": 1, "live_jobs_pruned": 1},
        "orphan_result": {"deliveries_pruned": 1},
    }
    assert events(hooks) == [2]
    assert hooks.query("SELECT queue FROM _honker_live") == [("emails",)]
    found = hooks.query(
        "SELECT kind, queue_name, events_pruned, attempts_pruned, deliveries_pruned, live_jobs_pruned FROM wane.knocker_prune_audits"
    )
    assert found == [
        ("prune_orphan_deliveries", "knocker.events", None, None, 1, None),
        ("prune_events", "knocker.events", 1, 2, 1, 1),
    ]


def test_a_call_in_sql_names_its_queue(hooks: PostgresDatabase) -> None:
    event(hooks, 1, "handled", T, jobs=["knocker.events", "emails"])
    event(hooks, 2, "ignored", T, jobs=["knocker.events"])
    call = """SELECT wane.knocker_prune_events('["handled"]', ?, 100, 'emails')"""
    assert hooks.query(call, (T + 1,)) == [
        ({"events_pruned": 1, "attempts_pruned": 0, "deliveries_pruned": 0, "live_jobs_pruned": 1},)
    ]
    assert hooks.query("SELECT queue FROM _honker_live") == [("knocker.events",)] * 2
    hooks.query("SELECT wane.knocker_prune_orphan_deliveries(?, 10, 'emails')", (T,))
    [(answer,)] = hooks.query("SELECT wane.knocker_prune_events(NULL, ?, 100, NULL)", (T + 1,))
    assert (answer["events_pruned"], answer["live_jobs_pruned"]) == (1, 1)
    named = hooks.query("SELECT queue_name FROM wane.knocker_prune_audits")
    assert named == [("knocker.events",), ("emails",), ("emails",)]


def test_functions_of_older_arguments_are_dropped(hooks: PostgresDatabase) -> None:
    stamp = hooks.query("SELECT obj_description('wane.contract_fingerprint()'::regprocedure, 'pg_proc')")[0][0]
    hooks.script(
        "CREATE FUNCTION wane.knocker_prune_events(statuses text[], older_than float8) RETURNS jsonb LANGUAGE sql"
        f" AS 'SELECT NULL::jsonb'; COMMENT ON FUNCTION wane.knocker_prune_events(text[], float8) IS '{stamp}'"
    )
    with WebhookRetention.open(hooks.url, contract=webhooks_contract()) as webhooks:
        install(webhooks.keeper)
    names = "SELECT oid::regprocedure::text FROM pg_proc WHERE proname = 'knocker_prune_events'"
    assert hooks.query(names) == [("wane.knocker_prune_events(text,double precision,integer,text)",)]


def test_the_view_and_the_typed_surface_list_the_same(hooks: PostgresDatabase) -> None:
    event(hooks, 1, "handled", T - 10, attempts=2)
    with WebhookRetention.open(hooks.url, contract=webhooks_contract()) as webhooks:
        webhooks.prune_events(older_than=T, limit=3)
        hooks.query("SELECT wane.knocker_prune_orphan_deliveries(older_than => ?)", (T,))
        listed = webhooks.list_prune_audits()
    viewed = hooks.query("TABLE wane.knocker_prune_audits")
    assert [row[:8] for row in viewed] == [tuple(getattr(one, name) for name in one.__slots__)[:8] for one in listed]
    assert [json.loads(row[8]) for row in viewed] == [json.loads(one.summary_json) for one in listed]


def test_a_pass_in_sql_is_a_pass_for_the_loop_too(hooks: PostgresDatabase) -> None:
    hooks.query("SELECT wane.knocker_run_retention_pass(events_older_than => ?)", (T,))
    policy = RetentionPolicy(interval_s=3600, event_older_than_s=604800)
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    with WebhookRetention.open(hooks.url, contract=webhooks_contract()) as webhooks:
        assert webhooks.run_retention(policy, stop_event=stop).passes == 0


@pytest.mark.parametrize(
    "call",
    [
        "knocker_prune_events('[\"handled\"]', NULL, 10)",
        "knocker_prune_events()",
        "knocker_prune_events('[]', 1700000000, 10)",
        "knocker_prune_events('handled', 1700000000, 10)",
        "knocker_prune_events('{}', 1700000000, 10)",
        "knocker_prune_events('[1]', 1700000000, 10)",
        "knocker_prune_events('[\"handled\"]', 1700000000, 10, '')",
        "knocker_prune_orphan_deliveries(1700000000, 10, '')",
        "knocker_prune_events('[\"failed\"]', 1700000000, 10)",
        'knocker_prune_events(\'["handled", "dead"]\', 1700000000, 10)',
        "knocker_prune_events('[\"received\"]', 1700000000, 10)",
        "knocker_prune_events('[\"handled\"]', 1700000000, 0)",
        "knocker_prune_events('[\"handled\"]', 1700000000, 1001)",
        "knocker_prune_events('[\"handled\"]', 1700000000000, 10)",
        "knocker_prune_events('[\"handled\"]', -1, 10)",
        "knocker_prune_orphan_deliveries(NULL, 10)",
        "knocker_prune_orphan_deliveries(1700000000, NULL)",
        "knocker_run_retention_pass()",
        "knocker_run_retention_pass('[\"handled\"]', NULL, 100, NULL, 100, 'knocker.events')",
        "knocker_run_retention_pass(events_older_than => 'NaN')",
        "knocker_run_retention_pass(events_older_than => 1700000000, orphans_older_than => -1)",
        "knocker_run_retention_pass(events_older_than => 1700000000, events_limit => 0)",
    ],
)
def test_slips_in_webhook_calls_are_refused(hooks: PostgresDatabase, call: str) -> None:
    for number, status in enumerate(("handled", "failed", "dead", "received")):
        event(hooks, number, status, T - 10)
    delivery(hooks, T - 10)
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        hooks.query(f"SELECT wane.{call}")
    assert events(hooks) == [0, 1, 2, 3]
    assert hooks.query("SELECT count(*) FROM wane.audit") == [(0,)]


def test_a_pass_in_sql_is_all_or_nothing(hooks: PostgresDatabase) -> None:
    event(hooks, 1, "handled", T)
    delivery(hooks, T)
    hooks.script("""
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'stays'; END $$;
        CREATE TRIGGER keep BEFORE DELETE ON knocker_deliveries FOR EACH ROW EXECUTE FUNCTION keep();
    """)
    with WebhookRetention.open(hooks.url, contract=webhooks_contract()) as webhooks:
        install(webhooks.keeper)
    with pytest.raises(psycopg.errors.RaiseException, match="stays"):
        hooks.query(
            "SELECT wane.knocker_run_retention_pass(events_older_than => ?, orphans_older_than => ?)", (T + 1, T + 1)
        )
    assert events(hooks) == [1]
    assert hooks.query("SELECT count(*) FROM wane.audit") == [(0,)]


def guarded_twice(*, followers: tuple[Follower, ...] | None = None) -> Contract:
    """Return the webhook contract with a second rule for handled events, which saves those with an error."""
    declared = webhooks_contract()
    events = declared.table(TableName("knocker_events"))
    [settled] = events.rules
    careful = replace(settled, name="careful", states=("handled",), guards=(WhileNotNull("last_error"),))
    if followers is not None:
        careful = replace(careful, followers=followers)
    tables = tuple(replace(one, rules=(settled, careful)) if one is events else one for one in declared.tables)
    return replace(declared, tables=tables)


@pytest.mark.parametrize("surface", ["sql", "python"])
def test_webhook_calls_honour_every_rule_of_a_status(postgres_database: PostgresDatabase, surface: str) -> None:
    prepare(postgres_database)
    for number, status in enumerate(("handled", "handled", "ignored"), 1):
        event(postgres_database, number, status, T)
    postgres_database.execute("UPDATE knocker_events SET last_error = 'x' WHERE id IN (1, 3)")
    with WebhookRetention.open(postgres_database.url, contract=guarded_twice()) as webhooks:
        if surface == "python":
            assert webhooks.prune_events(older_than=T + 1).events_pruned == 1
        else:
            install(webhooks.keeper)
            [(done,)] = postgres_database.query("SELECT wane.knocker_prune_events(older_than => ?)", (T + 1,))
            assert done["events_pruned"] == 1
    assert events(postgres_database) == [1, 3]


def test_statuses_whose_rules_differ_in_followers_are_not_offered_together(postgres_database: PostgresDatabase) -> None:
    prepare(postgres_database)
    event(postgres_database, 1, "handled", T)
    event(postgres_database, 2, "ignored", T)
    with WebhookRetention.open(postgres_database.url, contract=guarded_twice(followers=())) as webhooks:
        refused = [one.rule for one in install(webhooks.keeper).refused]
    assert refused == [
        "knocker_events.careful",
        "prune_events(handled)",
        "prune_events(handled, ignored)",
    ]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="never pruned here"):
        postgres_database.query("SELECT wane.knocker_prune_events(older_than => ?)", (T + 1,))
    [(done,)] = postgres_database.query("SELECT wane.knocker_prune_events('[\"ignored\"]', ?, 100)", (T + 1,))
    assert (done["events_pruned"], events(postgres_database)) == (1, [1])
