"""Both stores describe the same logical schema alike."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servers import Database
from wane._db.postgres.reflect import reflect as reflect_postgres
from wane._db.schema import Column, ForeignKey, Index, Kind, OnDelete, Schema, TableInfo, Trigger
from wane._db.sqlite.reflect import reflect as reflect_sqlite

HOME = {"sqlite": "main", "postgres": "public"}

# Text ordered by bytes, a whole number and a rowid or identity key are spelled differently.
SPELLING = {
    "sqlite": {"text": "TEXT", "number": "INTEGER", "serial": "INTEGER PRIMARY KEY"},
    "postgres": {
        "text": 'text COLLATE "C"',
        "number": "bigint",
        "serial": "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    },
}

TRIGGER = {
    "sqlite": """
        CREATE TRIGGER "on delete" AFTER DELETE ON channel_inbox BEGIN SELECT 1; END;
        CREATE TRIGGER "on insert" AFTER INSERT ON channel_inbox BEGIN SELECT 1; END;
    """,
    "postgres": """
        CREATE FUNCTION quiet() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER "on delete" AFTER DELETE ON channel_inbox FOR EACH ROW EXECUTE FUNCTION quiet();
        CREATE TRIGGER "on insert" AFTER INSERT ON channel_inbox FOR EACH ROW EXECUTE FUNCTION quiet();
    """,
}

TABLES = """
CREATE TABLE channel_inbox (
  inbox_id {serial},
  status {text} NOT NULL,
  received_at_ms {number} NOT NULL,
  doubled {number} GENERATED ALWAYS AS (received_at_ms * 2) STORED,
  payload {text}
);
CREATE INDEX inbox_due ON channel_inbox (status, received_at_ms, inbox_id);
CREATE INDEX inbox_failed ON channel_inbox (received_at_ms) WHERE status = 'failed';
CREATE UNIQUE INDEX inbox_folded ON channel_inbox (lower(payload), status);

CREATE TABLE "Select ""from"" Wörld. x" (
  "Order" {number} NOT NULL,
  "a.b" {text} NOT NULL,
  "dröp table" {text},
  PRIMARY KEY ("a.b", "Order"),
  UNIQUE ("dröp table", "Order")
);

CREATE TABLE channel_outbox (
  id {number} NOT NULL PRIMARY KEY,
  inbox_id {number} CONSTRAINT to_inbox REFERENCES channel_inbox ON DELETE CASCADE,
  answers {number} CONSTRAINT "to self" REFERENCES channel_outbox (id) ON DELETE SET NULL,
  "k.1" {text},
  k2 {number},
  CONSTRAINT "odd key" FOREIGN KEY ("k.1", k2) REFERENCES "Select ""from"" Wörld. x" ("a.b", "Order") ON DELETE RESTRICT
);

CREATE TABLE no_key (a {text});
CREATE VIEW failed AS SELECT inbox_id, status FROM channel_inbox WHERE status = 'failed';
"""


def reflected(database: Database) -> Schema:
    connection = database.connect()
    return reflect_sqlite(connection) if database.store == "sqlite" else reflect_postgres(connection)


def alike(table: TableInfo) -> TableInfo:
    """Return the table without what the stores may spell differently: types, the printed text of SQL, names given by
    the store."""
    made_by_store = ("sqlite_autoindex_", "PRIMARY KEY")
    indexes = [
        replace(
            index,
            name="" if index.name.startswith(made_by_store) or index.name.endswith(("_pkey", "_key")) else index.name,
            predicate=None if index.predicate is None else "some",
        )
        for index in table.indexes
    ]
    return replace(
        table,
        schema="home",
        columns=tuple(replace(column, type="") for column in table.columns),
        indexes=tuple(sorted(indexes, key=lambda index: (index.name, str(index.columns)))),
        foreign_keys=tuple(replace(key, to_schema="home") for key in table.foreign_keys),
        delete_triggers=tuple(replace(trigger, definition="", unpinned="") for trigger in table.delete_triggers),
    )


def column(name: str, *, nullable: bool = True, generated: bool = False) -> Column:
    return Column(name, "", nullable, generated)


EXPECTED = (
    TableInfo(
        "home",
        'Select "from" Wörld. x',
        Kind.TABLE,
        (column("Order", nullable=False), column("a.b", nullable=False), column("dröp table")),
        primary_key=("a.b", "Order"),
        indexes=(
            Index("", ("a.b", "Order"), unique=True, collations=(None, None)),
            Index("", ("dröp table", "Order"), unique=True, collations=(None, None)),
        ),
    ),
    TableInfo(
        "home",
        "channel_inbox",
        Kind.TABLE,
        (
            column("inbox_id", nullable=False),
            column("status", nullable=False),
            column("received_at_ms", nullable=False),
            column("doubled", generated=True),
            column("payload"),
        ),
        primary_key=("inbox_id",),
        indexes=(
            Index("", ("inbox_id",), unique=True, collations=(None,)),
            Index("inbox_due", ("status", "received_at_ms", "inbox_id"), collations=(None, None, None)),
            Index("inbox_failed", ("received_at_ms",), predicate="some", collations=(None,)),
            Index("inbox_folded", (None, "status"), unique=True, collations=(None, None)),
        ),
        delete_triggers=(Trigger("on delete", ""),),
    ),
    TableInfo(
        "home",
        "channel_outbox",
        Kind.TABLE,
        (column("id", nullable=False), column("inbox_id"), column("answers"), column("k.1"), column("k2")),
        primary_key=("id",),
        indexes=(Index("", ("id",), unique=True, collations=(None,)),),
        foreign_keys=(
            ForeignKey("to self", ("answers",), "home", "channel_outbox", ("id",), OnDelete.SET_NULL),
            ForeignKey("to_inbox", ("inbox_id",), "home", "channel_inbox", ("inbox_id",), OnDelete.CASCADE),
            ForeignKey("odd key", ("k.1", "k2"), "home", 'Select "from" Wörld. x', ("a.b", "Order"), OnDelete.RESTRICT),
        ),
    ),
    TableInfo("home", "failed", Kind.VIEW, (column("inbox_id"), column("status"))),
    TableInfo("home", "no_key", Kind.TABLE, (column("a"),)),
)


def test_one_logical_schema_is_described_alike_by_every_store(database: Database) -> None:
    database.script(TABLES.format(**SPELLING[database.store]))
    database.script(TRIGGER[database.store])
    schema = reflected(database)
    assert {table.schema for table in schema.tables} == {HOME[database.store]}
    assert tuple(alike(table) for table in schema.tables) == EXPECTED


def test_a_name_without_a_schema_is_found_in_the_stores_home(database: Database) -> None:
    database.execute("CREATE TABLE t (a integer)")
    schema = reflected(database)
    assert schema.find(None, "t") == schema.find(HOME[database.store], "t") == schema.tables[0]
    assert schema.find(None, "T") is None


def test_every_store_estimates_rows_after_analyze(database: Database) -> None:
    database.execute("CREATE TABLE t (a integer)")
    database.executemany("INSERT INTO t VALUES (?)", [(number,) for number in range(42)])
    assert reflected(database).tables[0].rows_estimate is None
    database.execute("ANALYZE")
    assert reflected(database).tables[0].rows_estimate == 42


@pytest.mark.parametrize(
    "name", ["a b", 'a"b', "a.b", "a'b", "SELECT", "Ünïcödé", "日本語", "a%sb", "a{b}", "a:b?c", "[x]", "`x`"]
)
def test_a_name_of_any_characters_comes_back_exactly(database: Database, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    database.script(f"""
        CREATE TABLE {quoted} ({quoted} integer NOT NULL PRIMARY KEY);
        CREATE TABLE zchild ({quoted} integer, CONSTRAINT {quoted} FOREIGN KEY ({quoted}) REFERENCES {quoted});
    """)
    index = '"i' + name.replace('"', '""') + '"'
    database.script(f"CREATE INDEX {index} ON {quoted} ({quoted}) WHERE {quoted} > 5")
    home = HOME[database.store]
    schema = reflected(database)
    reported, child = schema.find(None, name), schema.find(None, "zchild")
    assert reported is not None
    assert child is not None
    assert ([column.name for column in reported.columns], reported.primary_key) == ([name], (name,))
    (partial,) = [index for index in reported.indexes if index.predicate is not None]
    assert (partial.name, partial.columns) == (f"i{name}", (name,))
    assert child.foreign_keys == (ForeignKey(name, (name,), home, name, (name,)),)
