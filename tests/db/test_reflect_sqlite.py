"""What reflection reads of a SQLite database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from servers import SqliteDatabase
from wane._db import open_store
from wane._db.schema import Column, ForeignKey, Index, Kind, OnDelete, Schema, TableInfo, Trigger
from wane._db.sqlite.reflect import OWN_PREFIX, ROWID_KEY, reflect
from wane._db.url import resolve_url


def seen(database: SqliteDatabase, script: str = "") -> Schema:
    database.script(script)
    return reflect(database.connect())


def table(schema: Schema, name: str, namespace: str = "main") -> TableInfo:
    found = schema.find(namespace, name)
    assert found is not None, [table.qualified for table in schema.tables]
    return found


def only(database: SqliteDatabase, script: str) -> TableInfo:
    """Return the first table of the script, by name."""
    return seen(database, script).tables[0]


def names(schema: Schema) -> list[str]:
    return [table.name for table in schema.tables]


def test_an_empty_database_has_no_tables_and_resolves_names_in_main(sqlite_database: SqliteDatabase) -> None:
    assert seen(sqlite_database) == Schema((), ("main",))


# --- Columns ------------------------------------------------------------------------------------------------------


def test_columns_keep_their_order_and_declared_types_in_upper_case(sqlite_database: SqliteDatabase) -> None:
    reported = only(sqlite_database, "CREATE TABLE t (b varchar(10), a, c double precision NOT NULL, d Integer)")
    assert reported.columns == (
        Column("b", "VARCHAR(10)", nullable=True),
        Column("a", "", nullable=True),
        Column("c", "DOUBLE PRECISION", nullable=False),
        Column("d", "INTEGER", nullable=True),
    )


def test_stored_and_virtual_generated_columns_are_marked(sqlite_database: SqliteDatabase) -> None:
    reported = only(
        sqlite_database,
        "CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a + 1) STORED, c int AS (a * 2) VIRTUAL, d int DEFAULT 7)",
    )
    assert [(column.name, column.type, column.generated) for column in reported.columns] == [
        ("a", "INT", False),
        ("b", "INT", True),
        ("c", "INT", True),
        ("d", "INT", False),
    ]


def test_a_columns_own_collation_is_reported_whether_or_not_it_is_indexed(sqlite_database: SqliteDatabase) -> None:
    reported = only(
        sqlite_database,
        """
        CREATE TABLE t (
          a text COLLATE nocase,              -- , COLLATE rtrim
          b text COLLATE BINARY,
          c text DEFAULT ('x' COLLATE nocase) CHECK (c <> 'y' COLLATE nocase),
          d text DEFAULT ', COLLATE nocase' /* COLLATE nocase, */ NOT NULL,
          "e COLLATE nocase" text,
          [f, g] decimal(10, 2) CONSTRAINT "odd," CHECK ([f, g] IN (1, 2)) COLLATE "RTrim",
          CHECK (a <> b COLLATE rtrim)
        )
        """,
    )
    assert [(column.name, column.collation) for column in reported.columns] == [
        ("a", "NOCASE"),
        ("b", None),
        ("c", None),
        ("d", None),
        ("e COLLATE nocase", None),
        ("f, g", "RTRIM"),
    ]


def test_columns_added_renamed_and_dropped_later_keep_their_collation(sqlite_database: SqliteDatabase) -> None:
    reported = only(
        sqlite_database,
        """
        CREATE TABLE t (gone int, a text, b text COLLATE nocase);
        ALTER TABLE t ADD COLUMN c text COLLATE rtrim;
        ALTER TABLE t DROP COLUMN gone;
        ALTER TABLE t RENAME COLUMN b TO "B b";
        """,
    )
    assert [(column.name, column.collation) for column in reported.columns] == [
        ("a", None),
        ("B b", "NOCASE"),
        ("c", "RTRIM"),
    ]


def test_a_table_made_by_a_query_is_reported_like_any_other(sqlite_database: SqliteDatabase) -> None:
    reported = only(sqlite_database, "CREATE TABLE t AS SELECT 1 AS a, 'x' AS \"b (\"")
    assert (reported.kind, [column.name for column in reported.columns]) == (Kind.TABLE, ["a", "b ("])


# --- Keys and indexes ---------------------------------------------------------------------------------------------


def test_the_rowid_key_counts_as_an_index_and_is_never_null(sqlite_database: SqliteDatabase) -> None:
    reported = only(sqlite_database, "CREATE TABLE t (a text, id INTEGER PRIMARY KEY)")
    assert reported.primary_key == ("id",)
    assert reported.indexes == (Index(ROWID_KEY, ("id",), unique=True, collations=(None,)),)
    assert reported.column("id") == Column("id", "INTEGER", nullable=False)


def test_a_key_that_is_not_the_rowid_is_reported_once_and_may_be_null_as_sqlite_allows(
    sqlite_database: SqliteDatabase,
) -> None:
    reported = only(sqlite_database, "CREATE TABLE t (id text PRIMARY KEY)")
    assert reported.primary_key == ("id",)
    assert reported.indexes == (Index("sqlite_autoindex_t_1", ("id",), unique=True, collations=(None,)),)
    assert reported.column("id") == Column("id", "TEXT", nullable=True)


def test_a_table_without_a_key_has_neither_key_nor_index(sqlite_database: SqliteDatabase) -> None:
    reported = only(sqlite_database, "CREATE TABLE t (a text)")
    assert (reported.primary_key, reported.indexes) == ((), ())


@pytest.mark.parametrize("options", ["", "WITHOUT ROWID", "STRICT"])
def test_a_composite_key_is_in_the_order_of_the_key_not_of_the_columns(
    sqlite_database: SqliteDatabase, options: str
) -> None:
    reported = only(sqlite_database, f"CREATE TABLE t (a text, b int, c text, PRIMARY KEY (c, a)) {options}")
    assert reported.primary_key == ("c", "a")
    assert [(index.columns, index.unique) for index in reported.indexes] == [(("c", "a"), True)]


def test_the_columns_of_a_key_without_rowid_are_never_null(sqlite_database: SqliteDatabase) -> None:
    reported = only(sqlite_database, "CREATE TABLE t (id text PRIMARY KEY, a text) WITHOUT ROWID")
    assert [column.nullable for column in reported.columns] == [False, True]


def test_unique_constraints_and_unique_indexes_are_unique_indexes(sqlite_database: SqliteDatabase) -> None:
    reported = only(
        sqlite_database,
        "CREATE TABLE t (a text UNIQUE, b int, c int, UNIQUE (c, b)); CREATE UNIQUE INDEX own ON t (b); CREATE INDEX plain ON t (c)",
    )
    assert {index.columns: index.unique for index in reported.indexes} == {
        ("a",): True,
        ("c", "b"): True,
        ("b",): True,
        ("c",): False,
    }


def test_the_expressions_of_an_index_are_unnamed_columns(sqlite_database: SqliteDatabase) -> None:
    reported = only(sqlite_database, "CREATE TABLE t (a text, b int); CREATE INDEX i ON t (lower(a), b DESC, b + 1)")
    assert reported.indexes[0].columns == (None, "b", None)


def test_each_index_column_has_the_collation_it_is_ordered_by(sqlite_database: SqliteDatabase) -> None:
    reported = only(
        sqlite_database,
        "CREATE TABLE t (a text COLLATE nocase, b text, c text); CREATE INDEX i ON t (a, b COLLATE rtrim, c, a COLLATE binary)",
    )
    assert reported.indexes[0].collations == ("NOCASE", "RTRIM", None, None)


@pytest.mark.parametrize(
    ("ddl", "predicate"),
    [
        ("CREATE INDEX i ON t (a) WHERE b = 'x'", "b = 'x'"),
        ("create unique index i on t(a)where b is null", "b is null"),
        (
            "CREATE INDEX i ON t (a) /* WHERE no */ WHERE (b = ') WHERE') AND a > 1 -- really",
            "(b = ') WHERE') AND a > 1",
        ),
        (
            "CREATE INDEX [i WHERE j] ON t (a, (CASE WHEN b = 'WHERE' THEN 1 END))\nWHERE\n a IN (1,\n 2) ;",
            "a IN (1,\n 2)",
        ),
        ('CREATE INDEX IF NOT EXISTS main.`i``j` ON t (a) WHERE "a where" > 0', '"a where" > 0'),
    ],
)
def test_a_partial_index_has_its_predicate_as_written(
    sqlite_database: SqliteDatabase, ddl: str, predicate: str
) -> None:
    reported = only(sqlite_database, f'CREATE TABLE t (a int, b text, "a where" int); {ddl}')
    assert reported.indexes[0].predicate == predicate


def test_a_full_index_over_a_column_called_where_has_no_predicate(sqlite_database: SqliteDatabase) -> None:
    reported = only(sqlite_database, 'CREATE TABLE t ("where" int); CREATE INDEX i ON t ("where")')
    assert reported.indexes[0].predicate is None


# --- Foreign keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", list(OnDelete))
def test_a_foreign_key_shows_what_it_does_on_delete(sqlite_database: SqliteDatabase, action: OnDelete) -> None:
    schema = seen(
        sqlite_database,
        f"""
        CREATE TABLE parent (id INTEGER PRIMARY KEY);
        CREATE TABLE child (p int CONSTRAINT up REFERENCES parent (id) ON UPDATE CASCADE ON DELETE {action});
        """,
    )
    assert table(schema, "child").foreign_keys == (ForeignKey("up", ("p",), "main", "parent", ("id",), action),)


def test_a_foreign_key_without_parent_columns_means_the_parents_key(sqlite_database: SqliteDatabase) -> None:
    schema = seen(
        sqlite_database,
        """
        CREATE TABLE parent (a int, b int, PRIMARY KEY (b, a));
        CREATE TABLE child (x int, y int, FOREIGN KEY (y, x) REFERENCES parent ON DELETE CASCADE);
        """,
    )
    assert table(schema, "child").foreign_keys == (
        ForeignKey("FOREIGN KEY (y, x)", ("y", "x"), "main", "parent", ("b", "a"), OnDelete.CASCADE),
    )


def test_a_foreign_key_names_its_parent_exactly_whatever_case_it_was_written_in(
    sqlite_database: SqliteDatabase,
) -> None:
    schema = seen(
        sqlite_database,
        """
        CREATE TABLE "Parent" (Id INTEGER PRIMARY KEY, "Näme" text UNIQUE);
        CREATE TABLE child (p int REFERENCES PARENT (ID), n text REFERENCES parent ("nÄme"), N2 text REFERENCES parent ("Näme"));
        """,
    )
    assert [(key.to_table, key.to_columns) for key in table(schema, "child").foreign_keys] == [
        ("Parent", ("Näme",)),
        ("Parent", ("nÄme",)),  # only ASCII letters fold: this one names a column that does not exist
        ("Parent", ("Id",)),
    ]


def test_a_foreign_key_to_a_table_that_is_gone_is_reported_as_written(sqlite_database: SqliteDatabase) -> None:
    reported = only(sqlite_database, "CREATE TABLE child (p int REFERENCES gone, q int REFERENCES gone (id))")
    assert [(key.to_table, key.to_columns) for key in reported.foreign_keys] == [("gone", ()), ("gone", ("id",))]


def test_a_table_may_refer_to_itself(sqlite_database: SqliteDatabase) -> None:
    reported = only(sqlite_database, "CREATE TABLE t (id INTEGER PRIMARY KEY, up int REFERENCES t ON DELETE SET NULL)")
    assert reported.foreign_keys == (ForeignKey("FOREIGN KEY (up)", ("up",), "main", "t", ("id",), OnDelete.SET_NULL),)


def test_every_foreign_key_keeps_its_own_constraint_name(sqlite_database: SqliteDatabase) -> None:
    schema = seen(
        sqlite_database,
        """
        CREATE TABLE p (id INTEGER PRIMARY KEY, "references" int UNIQUE);
        CREATE TABLE child (
          a int CONSTRAINT filled NOT NULL REFERENCES p,
          b int CONSTRAINT "b's, (key)" REFERENCES p ("references") ON DELETE SET DEFAULT CONSTRAINT late CHECK (b > 0),
          c int REFERENCES p,
          d int DEFAULT 'REFERENCES p',
          CONSTRAINT [table's] FOREIGN KEY (d) REFERENCES p (id)
          CONSTRAINT generated FOREIGN KEY (c) REFERENCES p (id)
        );
        """,
    )
    assert [(key.columns, key.name) for key in table(schema, "child").foreign_keys] == [
        (("a",), "FOREIGN KEY (a)"),
        (("b",), "b's, (key)"),
        (("c",), "FOREIGN KEY (c)"),
        (("c",), "generated"),
        (("d",), "table's"),
    ]


# --- Triggers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TRIGGER x AFTER DELETE ON t BEGIN SELECT 1; END",
        "create trigger x before delete on T for each row when old.a > 1 begin select 1; end",
        "CREATE TRIGGER x DELETE ON t BEGIN SELECT 1; END",
        "CREATE TRIGGER IF NOT EXISTS main.x /* INSERT */ AFTER -- UPDATE\n DELETE ON t BEGIN SELECT 1; END",
        'CREATE TRIGGER "x" DELETE ON "t" BEGIN INSERT INTO t VALUES (\'UPDATE\'); END',
    ],
)
def test_a_trigger_that_fires_on_delete_is_reported(sqlite_database: SqliteDatabase, ddl: str) -> None:
    reported = only(sqlite_database, f"CREATE TABLE t (a int); {ddl}")
    stored = sqlite_database.query("SELECT sql FROM sqlite_master WHERE type = 'trigger'")
    assert reported.delete_triggers == (Trigger("x", stored[0][0]),)


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TRIGGER x AFTER INSERT ON t BEGIN DELETE FROM t; END",
        "CREATE TRIGGER x BEFORE UPDATE OF a ON t BEGIN DELETE FROM t; END",
        'CREATE TRIGGER "AFTER DELETE ON t" UPDATE ON t BEGIN DELETE FROM t; END',
        "CREATE VIEW v AS SELECT a FROM t; CREATE TRIGGER x INSTEAD OF INSERT ON v BEGIN DELETE FROM t; END",
        "CREATE TRIGGER IF NOT EXISTS main.x INSERT ON t BEGIN DELETE FROM t; END",
        "CREATE TRIGGER über\u00a0x$1 INSERT ON t BEGIN DELETE FROM t; END",
        "CREATE TRIGGER [delete] INSERT ON t BEGIN DELETE FROM t; END",
        "CREATE TRIGGER before /* DELETE */ INSERT ON t BEGIN DELETE FROM t; END",
    ],
)
def test_a_trigger_that_fires_on_something_else_is_not_reported(sqlite_database: SqliteDatabase, ddl: str) -> None:
    schema = seen(sqlite_database, f"CREATE TABLE t (a int); {ddl}")
    assert [trigger for table in schema.tables for trigger in table.delete_triggers] == []


@pytest.mark.parametrize("name", ["[if]", "before", "after", "instead", "[of]", "`x``y`", "'text'", '"a "" b"'])
def test_a_delete_trigger_is_reported_whatever_its_name_is(sqlite_database: SqliteDatabase, name: str) -> None:
    reported = only(
        sqlite_database, f"CREATE TABLE t (a int); CREATE TRIGGER {name} AFTER DELETE ON t BEGIN SELECT 1; END"
    )
    assert len(reported.delete_triggers) == 1


def test_a_trigger_instead_of_deleting_from_a_view_is_reported_at_the_view(sqlite_database: SqliteDatabase) -> None:
    schema = seen(
        sqlite_database,
        """
        CREATE TABLE t (a int);
        CREATE VIEW v AS SELECT a FROM t;
        CREATE TRIGGER x INSTEAD OF DELETE ON v BEGIN DELETE FROM t WHERE a = OLD.a; END;
        """,
    )
    assert [trigger.name for trigger in table(schema, "v").delete_triggers] == ["x"]
    assert table(schema, "t").delete_triggers == ()


# --- Kinds --------------------------------------------------------------------------------------------------------


def without_table_list(connection: sqlite3.Connection) -> sqlite3.Connection:
    """Return the connection as a SQLite before 3.37 would be: a pragma it does not know answers nothing."""

    def authorise(action: int, first: str | None, *_: str | None) -> int:
        return sqlite3.SQLITE_IGNORE if (action, first) == (sqlite3.SQLITE_PRAGMA, "table_list") else sqlite3.SQLITE_OK

    connection.set_authorizer(authorise)
    assert connection.execute("PRAGMA table_list").fetchall() == []
    return connection


VIRTUAL_TABLES = """
    CREATE TABLE docs_notes (a text);
    CREATE VIRTUAL TABLE docs USING fts5 (title, body);
    CREATE VIRTUAL TABLE IF NOT EXISTS "old ""docs" USING "fts4" (title);
    CREATE VIRTUAL TABLE boxes USING rtree (id, x0, x1);
"""


@pytest.mark.parametrize("old", [False, True], ids=["current", "before 3.37"])
def test_virtual_tables_are_reported_and_the_tables_inside_them_are_not(
    sqlite_database: SqliteDatabase, old: bool
) -> None:
    sqlite_database.script(VIRTUAL_TABLES)
    connection = sqlite_database.connect()
    schema = reflect(without_table_list(connection) if old else connection)
    assert [(table.name, table.kind) for table in schema.tables] == [
        ("boxes", Kind.VIRTUAL),
        ("docs", Kind.VIRTUAL),
        ("docs_notes", Kind.TABLE),
        ('old "docs', Kind.VIRTUAL),
    ]
    assert [column.name for column in table(schema, "docs").columns] == ["title", "body"]


@pytest.mark.parametrize("old", [False, True], ids=["current", "before 3.37"])
def test_a_users_table_named_like_the_content_of_a_virtual_table_over_it_is_reported(
    sqlite_database: SqliteDatabase, old: bool
) -> None:
    sqlite_database.script("""
        CREATE TABLE docs_content (content text);
        CREATE VIRTUAL TABLE docs USING fts5 (content, content = 'docs_content');
        CREATE VIRTUAL TABLE own USING fts5 (content, title);
    """)
    connection = sqlite_database.connect()
    schema = reflect(without_table_list(connection) if old else connection)
    assert names(schema) == ["docs", "docs_content", "own"]


def test_a_table_that_only_mentions_virtual_tables_is_a_table(sqlite_database: SqliteDatabase) -> None:
    reported = only(
        sqlite_database, "CREATE TABLE \"virtual table\" (a text DEFAULT 'CREATE VIRTUAL TABLE x USING fts5')"
    )
    assert reported.kind is Kind.TABLE


def test_a_virtual_table_whose_module_is_missing_is_reported_without_columns(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script("""
        CREATE TABLE t (a int);
        PRAGMA writable_schema = on;
        INSERT INTO sqlite_master VALUES ('table', 'far', 'far', 0, 'CREATE VIRTUAL TABLE far USING nowhere (a)');
        PRAGMA writable_schema = off;
    """)
    schema = reflect(sqlite_database.connect())
    assert (table(schema, "far").kind, table(schema, "far").columns) == (Kind.VIRTUAL, ())
    assert table(schema, "t").columns != ()


def test_views_are_reported_as_views_with_their_columns(sqlite_database: SqliteDatabase) -> None:
    schema = seen(sqlite_database, "CREATE TABLE t (a int); CREATE VIEW v AS SELECT a, a + 1 AS b FROM t")
    assert table(schema, "v").kind is Kind.VIEW
    assert [column.name for column in table(schema, "v").columns] == ["a", "b"]


def test_a_view_over_a_table_that_is_gone_does_not_hide_the_rest(sqlite_database: SqliteDatabase) -> None:
    schema = seen(sqlite_database, "CREATE VIEW broken AS SELECT * FROM gone; CREATE TABLE t (a int)")
    assert names(schema) == ["broken", "t"]
    assert table(schema, "broken").columns == ()


def test_sqlites_and_wanes_own_tables_are_left_out(sqlite_database: SqliteDatabase) -> None:
    schema = seen(
        sqlite_database,
        f"""
        CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT);
        CREATE TABLE {OWN_PREFIX}audit (a int);
        CREATE TABLE {OWN_PREFIX.upper()}HOLD (a int);
        CREATE TABLE wane_claim_fence (a int);
        CREATE TABLE {OWN_PREFIX.upper()}OTHER (a int);
        CREATE TABLE wanes (a int);
        CREATE TABLE "sqliteX" (a int);
        ANALYZE;
        """,
    )
    assert names(schema) == ["WANE_OTHER", "sqliteX", "t", "wanes"]


def test_wanes_own_tables_are_known_by_name_after_a_migration(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script("CREATE TABLE wane_orders (a int); CREATE TABLE t (a int)")
    with open_store(resolve_url(sqlite_database.url)) as store:
        store.migrate()
        assert names(store.reflect()) == ["t", "wane_orders"]
        assert "wane_audit" in names(store.reflect(own=True))
        assert "wane_orders" not in names(store.reflect(own=True))


def test_a_hidden_table_that_refers_to_another_is_reported(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script("""
        CREATE TABLE t (id INTEGER PRIMARY KEY);
        CREATE TABLE wane_hold (id INTEGER PRIMARY KEY, t_id int REFERENCES T (id) ON DELETE CASCADE);
        CREATE TABLE wane_flag (hold_id int REFERENCES wane_hold ON DELETE CASCADE);
        CREATE TABLE wane_clock (a int);
        CREATE VIRTUAL TABLE docs USING fts5 (body);
    """)
    assert names(seen(sqlite_database)) == ["docs", "t", "wane_flag", "wane_hold"]


# --- Databases ----------------------------------------------------------------------------------------------------


def test_attached_databases_are_reported_under_their_own_names_and_temporary_tables_are_not(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    sqlite_database.script("CREATE TABLE t (a int); CREATE INDEX i ON t (a)")
    connection = sqlite_database.connect()
    connection.execute("ATTACH ? AS ?", (str(tmp_path / "other.db"), 'o"ther. one'))
    connection.executescript("""
        CREATE TABLE "o""ther. one".t (id INTEGER PRIMARY KEY, a text COLLATE nocase);
        CREATE UNIQUE INDEX "o""ther. one".i ON t (a) WHERE a > 'x';
        CREATE TABLE "o""ther. one".child (p int REFERENCES t);
        CREATE TEMP TABLE passing (a int);
        CREATE TEMP TABLE t (shadowing int);
    """)
    schema = reflect(connection)
    assert [table.qualified for table in schema.tables] == [
        ("main", "t"),
        ('o"ther. one', "child"),
        ('o"ther. one', "t"),
    ]
    assert table(schema, "t").indexes == (Index("i", ("a",), collations=(None,)),)
    other = table(schema, "t", 'o"ther. one')
    assert other.indexes[1:] == (Index("i", ("a",), unique=True, predicate="a > 'x'", collations=("NOCASE",)),)
    child = table(schema, "child", 'o"ther. one')
    assert (child.foreign_keys[0].to_schema, child.foreign_keys[0].to_columns) == ('o"ther. one', ("id",))
    assert schema.search_path == ("main",)
    assert schema.find(None, "t") == table(schema, "t")


# --- Estimates ----------------------------------------------------------------------------------------------------


def test_rows_are_estimated_by_what_analyze_counted_and_unknown_without_it(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script("""
        CREATE TABLE bare (a int);
        CREATE TABLE "In dexed" (a int, b int);
        CREATE INDEX part ON "In dexed" (a) WHERE a <= 2;
        CREATE INDEX whole ON "In dexed" (b, a);
        CREATE TABLE keyed (a int PRIMARY KEY) WITHOUT ROWID;
        CREATE TABLE vacant (a int);
    """)
    for name in ("bare", "In dexed", "keyed"):
        sqlite_database.executemany(f'INSERT INTO "{name}" (a) VALUES (?)', [(number,) for number in range(7)])
    assert {table.rows_estimate for table in seen(sqlite_database).tables} == {None}
    schema = seen(sqlite_database, "ANALYZE")
    assert {table.name: table.rows_estimate for table in schema.tables} == {
        "bare": 7,
        "In dexed": 7,
        "keyed": 7,
        "vacant": None,
    }


def test_statistics_that_were_tampered_with_are_ignored(sqlite_database: SqliteDatabase) -> None:
    schema = seen(
        sqlite_database,
        "CREATE TABLE t (a int); ANALYZE; INSERT INTO sqlite_stat1 VALUES ('t', NULL, 'many'), (NULL, NULL, '3'), ('t', 'i', NULL)",
    )
    assert table(schema, "t").rows_estimate is None


# --- The caller's connection --------------------------------------------------------------------------------------


def test_the_callers_open_transaction_stays_open_and_its_new_tables_are_reported(
    sqlite_database: SqliteDatabase,
) -> None:
    connection = sqlite_database.connect()
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE fresh (a int)")
    assert names(reflect(connection)) == ["fresh"]
    assert connection.in_transaction
    connection.execute("ROLLBACK")
    assert names(reflect(connection)) == []


def test_no_transaction_is_left_behind(sqlite_database: SqliteDatabase) -> None:
    connection = sqlite_database.connect()
    reflect(connection)
    assert not connection.in_transaction


def test_a_connection_with_its_own_row_factory_and_implicit_transactions_is_welcome(
    sqlite_database: SqliteDatabase,
) -> None:
    sqlite_database.script("CREATE TABLE t (a int)")
    connection = sqlite3.connect(sqlite_database.path)
    connection.row_factory = lambda _cursor, row: {"a": row}
    try:
        assert names(reflect(connection)) == ["t"]
        assert not connection.in_transaction
    finally:
        connection.close()


def test_a_read_only_database_can_be_reflected(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script("CREATE TABLE t (a int)")
    connection = sqlite3.connect(f"file:{sqlite_database.path}?mode=ro", uri=True)
    try:
        assert names(reflect(connection)) == ["t"]
    finally:
        connection.close()
