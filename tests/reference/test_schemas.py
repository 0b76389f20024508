"""The schemas that ship: they apply, both stores agree, and every rule of the contract finds its table, columns and
index."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
import pytest

from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.duration import Forever
from wane._contract.load import load_contract
from wane._contract.model import Cap, Contract, Orphans, Reference, ReferencedBy, Rule, Table
from wane._contract.names import TableName
from wane._db.postgres.reflect import reflect as reflect_postgres
from wane._db.schema import Schema, TableInfo
from wane._db.sqlite.reflect import reflect as reflect_sqlite
from wane.reference import contract_path, names, schema_sql

TABLES = {
    "statestore": """
        presence_entries connections channel_inbound_dedupe channel_inbox channel_outbox lane_leases workspace_leases
        oauth_pending oauth_refresh_leases models_dev_refresh_leases outbox outbox_consumers models_dev_cache
    """,
    "claims": "work_claims work_claim_tombstones",
    "webhooks": "knocker_endpoints knocker_events knocker_attempts knocker_deliveries _honker_live",
    "substrate": """
        event_outbox event_read event_pending iu_route_dead_letter job_queue job_dead_letter dot_iu_command_run
        iu_core.iu_staging_record iu_core.iu_staging_payload iu_auto_instantiate_event_log iu_lifecycle_log queue_heartbeat
        dot_iu_runtime_lease iu_route_worker_cursor iu_sql_event_route iu_vector_sync_point
    """,
}


def applied(name: str, database: Database) -> Schema:
    """Return the schema of one reference contract, created in the database and read back."""
    scripts = schema_sql(name, database.store)
    database.script(scripts.pop("main"))
    connection = database.connect()
    if isinstance(connection, psycopg.Connection):
        return reflect_postgres(connection)
    assert isinstance(database, SqliteDatabase)
    for schema, script in scripts.items():
        file = database.path.with_name(f"{schema}.db")
        with sqlite3.connect(file) as attached:
            attached.executescript(script)
        attached.close()
        connection.execute(f"ATTACH ? AS {schema}", (str(file),))
    return reflect_sqlite(connection)


def named(schema: Schema) -> dict[str, TableInfo]:
    main = schema.search_path[0]
    return {t.name if t.schema == main else f"{t.schema}.{t.name}": t for t in schema.tables}


@pytest.mark.parametrize("name", names())
def test_a_schema_has_exactly_the_tables_of_its_family(name: str, database: Database) -> None:
    assert set(named(applied(name, database))) == set(TABLES[name].split())


@pytest.mark.parametrize("name", names())
def test_a_contract_speaks_of_every_table_of_its_schema_and_of_no_other(name: str) -> None:
    contract = load_contract(contract_path(name))
    spoken = {table.name for table in contract.tables} | {table for table, _ in contract.excused}
    spoken |= {follower.reference.table for _, _, follower in contract.followers()}
    assert {str(table) for table in spoken} == set(TABLES[name].split())


@pytest.mark.parametrize("name", names())
def test_both_stores_have_the_same_shape(
    name: str, sqlite_database: SqliteDatabase, postgres_database: PostgresDatabase
) -> None:
    left, right = named(applied(name, sqlite_database)), named(applied(name, postgres_database))
    assert {table: shape(info) for table, info in left.items()} == {table: shape(info) for table, info in right.items()}


def shape(info: TableInfo) -> dict[str, Any]:
    """Return what must be equal between stores: all but types and the names that a store makes up itself."""
    key = info.primary_key
    return {
        "columns": [(column.name, column.nullable and column.name not in key) for column in info.columns],
        "key": key,
        "indexes": {(i.columns, i.unique, i.predicate is not None) for i in info.indexes if i.columns != key},
        "foreign keys": {(k.columns, k.to_table, k.to_columns, k.on_delete) for k in info.foreign_keys},
        "triggers": info.delete_triggers,
    }


@pytest.mark.parametrize("name", names())
def test_every_rule_has_an_index_that_finds_the_oldest_due_rows(name: str, database: Database) -> None:
    schema = applied(name, database)
    for table, rule in load_contract(contract_path(name)).rules():
        info = found(schema, table.name)
        wanted = index_columns(table, rule, info)
        assert any(i.columns[: len(wanted)] == wanted for i in info.indexes), f"{table.name}.{rule.name}: {wanted}"


def index_columns(table: Table, rule: Rule, info: TableInfo) -> tuple[str, ...]:
    assert not isinstance(rule.bound, Forever)
    assert rule.bound.time is not None
    first: tuple[str, ...] = (table.state,) if table.state is not None else ()
    if isinstance(rule.bound, Orphans):
        first += (rule.bound.reference,)
    if isinstance(rule.bound, Cap):
        first += rule.bound.per
    first += (rule.bound.time.column,)
    return first + tuple(column for column in info.primary_key if column not in first)


@pytest.mark.parametrize("name", names())
def test_every_reference_that_a_sweep_follows_has_an_index(name: str, database: Database) -> None:
    schema = applied(name, database)
    for reference in references(load_contract(contract_path(name))):
        info = found(schema, reference.table)
        width = len(reference.columns)
        assert any(i.columns[:width] == reference.columns for i in info.indexes), str(reference)


def references(contract: Contract) -> list[Reference]:
    guards = [guard for _, rule in contract.rules() for guard in rule.guards if isinstance(guard, ReferencedBy)]
    return [guard.reference for guard in guards] + [follower.reference for _, _, follower in contract.followers()]


@pytest.mark.parametrize("name", names())
def test_every_foreign_key_to_a_pruned_table_is_guarded_or_followed(name: str, database: Database) -> None:
    schema = applied(name, database)
    contract = load_contract(contract_path(name))
    answered = {(str(reference.table), reference.columns) for reference in references(contract)}
    pruned = {str(table.name) for table in contract.tables}
    for child, info in named(schema).items():
        for key in info.foreign_keys:
            assert key.to_table not in pruned or (child, key.columns) in answered


def test_events_have_the_indexes_that_readers_need(database: Database) -> None:
    events = found(applied("substrate", database), TableName("event_outbox"))
    partial = {index.columns: index.predicate is not None for index in events.indexes}
    assert partial[("event_domain", "event_type", "event_stream")] is False
    assert partial[("correlation_id",)] is True
    assert partial[("event_subject_table", "event_subject_ref")] is True


@pytest.mark.parametrize(
    ("name", "insert"),
    [
        ("claims", "INSERT INTO work_claims (task_id, state) VALUES ('t', 'lost')"),
        ("statestore", "INSERT INTO models_dev_cache (id, sha256, json) VALUES (2, 'x', '{}')"),
        (
            "webhooks",
            "INSERT INTO knocker_attempts (event_id, outcome, duration_ms, attempted_at) VALUES (9, 'handled', 1, 1)",
        ),
    ],
)
def test_a_schema_refuses_what_its_family_rules_out(name: str, insert: str, database: Database) -> None:
    applied(name, database)
    with pytest.raises((sqlite3.IntegrityError, psycopg.IntegrityError)):
        database.execute(insert)


def found(schema: Schema, table: TableName) -> TableInfo:
    info = schema.find(table.schema, table.name)
    assert info is not None, f"no table {table}"
    return info


def test_the_contract_file_ships_beside_its_schemas() -> None:
    folder = {contract_path(name).parent for name in names()}
    assert len(folder) == 1
    shipped = {file.name for file in folder.pop().iterdir() if file.suffix in (".toml", ".sql")}
    assert shipped == {
        Path(f"{name}.{end}").name for name in names() for end in ("toml", "sqlite.sql", "postgres.sql")
    } | {"substrate.iu_core.sqlite.sql"}
