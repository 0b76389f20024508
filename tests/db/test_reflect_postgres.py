"""What reflection reads of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from servers import PostgresDatabase
from wane._db import open_store
from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.postgres.reflect import reflect
from wane._db.schema import Column, ForeignKey, Index, Kind, OnDelete, Schema, TableInfo, Trigger
from wane._db.url import resolve_url


def seen(database: PostgresDatabase, script: str = "", schemas: tuple[str, ...] = ()) -> Schema:
    if script:
        database.script(script)
    return reflect(database.connect(), schemas)


def table(schema: Schema, name: str, namespace: str = "public") -> TableInfo:
    found = schema.find(namespace, name)
    assert found is not None, [table.qualified for table in schema.tables]
    return found


def only(database: PostgresDatabase, script: str) -> TableInfo:
    """Return the first table of the script, by name."""
    return seen(database, script).tables[0]


def names(schema: Schema) -> list[str]:
    return [table.name for table in schema.tables]


def version(database: PostgresDatabase) -> int:
    return database.connect().info.server_version // 10000


def has_icu(database: PostgresDatabase) -> bool:
    """Return whether this PostgreSQL was built with ICU, the only collations here that do not order by bytes."""
    return bool(database.query("SELECT FROM pg_collation WHERE collname = 'de-x-icu'"))


def test_an_empty_database_has_no_tables(postgres_database: PostgresDatabase) -> None:
    assert seen(postgres_database) == Schema((), ("public",))


# --- Where names are looked up ------------------------------------------------------------------------------------


def test_the_search_path_is_the_sessions_own_without_schemas_that_do_not_exist(
    postgres_database: PostgresDatabase,
) -> None:
    connection = postgres_database.connect()
    connection.execute('CREATE SCHEMA "My Schema"')
    connection.execute('CREATE TABLE "My Schema".t (a int)')
    connection.execute("CREATE TABLE public.t (b int)")
    connection.execute('SET search_path = missing, "My Schema", public')
    schema = reflect(connection)
    assert schema.search_path == ("My Schema", "public")
    assert schema.find(None, "t") == table(schema, "t", "My Schema")


def test_an_empty_search_path_finds_only_names_with_a_schema(postgres_database: PostgresDatabase) -> None:
    connection = postgres_database.connect()
    connection.execute("CREATE TABLE t (a int)")
    connection.execute("SET search_path = ''")
    schema = reflect(connection)
    assert schema.search_path == ()
    assert (schema.find(None, "t"), schema.find("public", "t")) == (None, schema.tables[0])


# --- What is left out ---------------------------------------------------------------------------------------------


def test_system_temporary_and_wanes_own_tables_are_left_out(postgres_database: PostgresDatabase) -> None:
    connection = postgres_database.connect()
    connection.execute(f"CREATE SCHEMA {OWN_SCHEMA}")
    connection.execute(f"CREATE TABLE {OWN_SCHEMA}.audit (a int)")
    connection.execute("CREATE TEMP TABLE passing (a int)")
    connection.execute("CREATE TABLE wane_like (big text)")
    connection.execute("CREATE SEQUENCE numbers")
    connection.execute("CREATE TYPE pair AS (a int, b int)")
    assert names(reflect(connection)) == ["wane_like"]


def test_only_the_schemas_requested_are_reported_and_wanes_own_never(postgres_database: PostgresDatabase) -> None:
    script = f"""
        CREATE SCHEMA one; CREATE SCHEMA "Two, "; CREATE SCHEMA {OWN_SCHEMA};
        CREATE TABLE one.t (a int); CREATE TABLE "Two, ".t (a int); CREATE TABLE t (a int); CREATE TABLE {OWN_SCHEMA}.t (a int);
    """
    schema = seen(postgres_database, script, ("Two, ", "one", "pg_catalog", "absent", OWN_SCHEMA))
    assert [table.qualified for table in schema.tables] == [("Two, ", "t"), ("one", "t")]


@pytest.fixture
def extended(postgres_database: PostgresDatabase) -> Iterator[PostgresDatabase]:
    """Yield a database in which plpgsql, which is always there, owns a table and a schema."""
    postgres_database.script("""
        CREATE SCHEMA internals;
        CREATE TABLE internals.chunk (a int);
        CREATE TABLE internals.member (a int);
        CREATE TABLE member (a int);
        CREATE TABLE mine (a int);
        ALTER EXTENSION plpgsql ADD TABLE member;
        ALTER EXTENSION plpgsql ADD TABLE internals.member;
        ALTER EXTENSION plpgsql ADD SCHEMA internals;
    """)
    yield postgres_database
    postgres_database.script("""
        ALTER EXTENSION plpgsql DROP TABLE member;
        ALTER EXTENSION plpgsql DROP TABLE internals.member;
        ALTER EXTENSION plpgsql DROP SCHEMA internals;
    """)


def test_tables_and_schemas_that_belong_to_an_extension_are_left_out(extended: PostgresDatabase) -> None:
    assert names(seen(extended)) == ["mine"]


def test_a_hidden_table_that_refers_to_another_is_reported(extended: PostgresDatabase) -> None:
    """A table of an extension, one in its schema, one in Wane's, and what refers to those."""
    script = f"""
        ALTER TABLE mine ADD PRIMARY KEY (a);
        ALTER TABLE member ADD PRIMARY KEY (a), ADD FOREIGN KEY (a) REFERENCES mine;
        ALTER TABLE internals.member ADD FOREIGN KEY (a) REFERENCES member;
        ALTER TABLE internals.chunk ADD FOREIGN KEY (a) REFERENCES mine;
        CREATE TABLE internals.alone (a int);
        CREATE SCHEMA {OWN_SCHEMA};
        CREATE TABLE {OWN_SCHEMA}.alone (a int);
        CREATE TABLE {OWN_SCHEMA}.notes (a int REFERENCES mine);
    """
    reported = [table.qualified for table in seen(extended, script).tables]
    assert reported == [
        ("internals", "chunk"),
        ("internals", "member"),
        ("public", "member"),
        ("public", "mine"),
        (OWN_SCHEMA, "notes"),
    ]


def test_a_table_in_another_schema_that_refers_to_one_requested_is_reported(
    postgres_database: PostgresDatabase,
) -> None:
    script = "CREATE SCHEMA one; CREATE TABLE one.t (a int PRIMARY KEY); CREATE TABLE child (a int REFERENCES one.t)"
    schema = seen(postgres_database, script, ("one",))
    assert [table.qualified for table in schema.tables] == [("one", "t"), ("public", "child")]


def test_an_extensions_schema_is_reported_when_it_is_requested_but_not_the_extensions_own_tables(
    extended: PostgresDatabase,
) -> None:
    assert names(seen(extended, schemas=("internals",))) == ["chunk"]


# --- Kinds --------------------------------------------------------------------------------------------------------


def test_every_kind_of_relation_is_reported_as_what_it_is(postgres_database: PostgresDatabase) -> None:
    schema = seen(
        postgres_database,
        """
        CREATE TABLE plain (a int);
        CREATE UNLOGGED TABLE unlogged (a int);
        CREATE VIEW view AS SELECT a FROM plain;
        CREATE MATERIALIZED VIEW matview AS SELECT a FROM plain;
        CREATE FOREIGN DATA WRAPPER dummy;
        CREATE SERVER s FOREIGN DATA WRAPPER dummy;
        CREATE FOREIGN TABLE far (a int) SERVER s;
        CREATE TABLE root (a int, b int) PARTITION BY RANGE (a);
        CREATE TABLE part PARTITION OF root FOR VALUES FROM (0) TO (10);
        CREATE TABLE branch PARTITION OF root FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (b);
        CREATE TABLE leaf PARTITION OF branch DEFAULT;
        CREATE FOREIGN TABLE far_part PARTITION OF root FOR VALUES FROM (20) TO (30) SERVER s;
        """,
    )
    assert {table.name: (table.kind, table.parent) for table in schema.tables} == {
        "plain": (Kind.TABLE, None),
        "unlogged": (Kind.TABLE, None),
        "view": (Kind.VIEW, None),
        "matview": (Kind.MATERIALIZED_VIEW, None),
        "far": (Kind.FOREIGN, None),
        "root": (Kind.PARTITIONED, None),
        "part": (Kind.PARTITION, ("public", "root")),
        "branch": (Kind.PARTITION, ("public", "root")),
        "leaf": (Kind.PARTITION, ("public", "root")),
        "far_part": (Kind.FOREIGN, ("public", "root")),
    }


def test_a_partitions_root_is_named_also_when_its_schema_was_not_requested(postgres_database: PostgresDatabase) -> None:
    script = """
        CREATE SCHEMA parts;
        CREATE TABLE root (a int) PARTITION BY RANGE (a);
        CREATE TABLE parts.branch PARTITION OF root DEFAULT PARTITION BY RANGE (a);
        CREATE TABLE parts.leaf PARTITION OF parts.branch DEFAULT;
    """
    schema = seen(postgres_database, script, ("parts",))
    assert [table.parent for table in schema.tables] == [("public", "root")] * 2


def test_a_table_that_inherits_names_the_root_whose_deletes_reach_it(postgres_database: PostgresDatabase) -> None:
    schema = seen(
        postgres_database,
        "CREATE TABLE base (a int); CREATE TABLE child () INHERITS (base); CREATE TABLE grandchild (b int) INHERITS (child)",
    )
    assert [(table.name, table.kind, table.parent) for table in schema.tables] == [
        ("base", Kind.TABLE, None),
        ("child", Kind.TABLE, ("public", "base")),
        ("grandchild", Kind.TABLE, ("public", "base")),
    ]
    base, child, grandchild = schema.tables
    assert schema.descendants(base) == [child, grandchild]
    assert schema.descendants(child) == [grandchild]
    assert schema.descendants(grandchild) == []


def test_a_table_that_inherits_from_several_is_listed_under_each(postgres_database: PostgresDatabase) -> None:
    schema = seen(
        postgres_database,
        "CREATE TABLE a (x int); CREATE TABLE b (y int); CREATE TABLE b2 () INHERITS (a, b); CREATE TABLE c () INHERITS (b2)",
    )
    a, b, b2, c = schema.tables
    assert (b2.parent, b2.ancestors) == (("public", "a"), (("public", "a"), ("public", "b")))
    assert [schema.descendants(one) for one in (a, b, b2)] == [[b2, c], [b2, c], [c]]


# --- Columns ------------------------------------------------------------------------------------------------------


def test_columns_keep_their_order_and_their_full_types(postgres_database: PostgresDatabase) -> None:
    reported = only(
        postgres_database,
        """
        CREATE TABLE t (gone int, b varchar(10) COLLATE "C", a timestamptz(3) NOT NULL, c numeric(10, 2)[], d timestamp);
        ALTER TABLE t DROP COLUMN gone;
        """,
    )
    assert reported.columns == (
        Column("b", "character varying(10)", nullable=True),
        Column("a", "timestamp(3) with time zone", nullable=False),
        Column("c", "numeric(10,2)[]", nullable=True),
        Column("d", "timestamp without time zone", nullable=True),
    )


def test_generated_columns_are_marked_and_identity_and_defaults_are_not(postgres_database: PostgresDatabase) -> None:
    reported = only(
        postgres_database,
        """
        CREATE TABLE t (
          i int GENERATED ALWAYS AS IDENTITY, d int DEFAULT 7, s serial, g int GENERATED ALWAYS AS (d + 1) STORED
        )
        """,
    )
    assert {column.name: column.generated for column in reported.columns} == {
        "i": False,
        "d": False,
        "s": False,
        "g": True,
    }


def test_virtual_generated_columns_are_marked_where_they_exist(postgres_database: PostgresDatabase) -> None:
    if version(postgres_database) < 18:
        with pytest.raises(psycopg.errors.SyntaxError):
            postgres_database.script("CREATE TABLE t (a int, g int GENERATED ALWAYS AS (a + 1) VIRTUAL)")
        return
    reported = only(postgres_database, "CREATE TABLE t (a int, g int GENERATED ALWAYS AS (a + 1) VIRTUAL)")
    assert [column.generated for column in reported.columns] == [False, True]


def test_a_domain_that_refuses_null_makes_its_column_not_null(postgres_database: PostgresDatabase) -> None:
    reported = only(postgres_database, "CREATE DOMAIN filled AS text NOT NULL; CREATE TABLE t (a filled, b text)")
    assert [(column.type, column.nullable) for column in reported.columns] == [("public.filled", False), ("text", True)]


def test_a_not_null_that_is_not_proven_yet_leaves_the_column_nullable(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("CREATE TABLE t (a int, b int NOT NULL); INSERT INTO t VALUES (NULL, 1)")
    if version(postgres_database) >= 18:
        postgres_database.script("ALTER TABLE t ADD CONSTRAINT later NOT NULL a NOT VALID")
    reported = seen(postgres_database).tables[0]
    assert [column.nullable for column in reported.columns] == [True, False]


def test_the_labels_of_an_enum_come_in_their_order(postgres_database: PostgresDatabase) -> None:
    reported = only(
        postgres_database,
        """
        CREATE SCHEMA app;
        CREATE TYPE app."State" AS ENUM ('queued', 'It''s, "done"', 'äh');
        ALTER TYPE app."State" ADD VALUE 'running' AFTER 'queued';
        CREATE TABLE t (s app."State", a text);
        """,
    )
    assert reported.columns[0] == Column(
        "s", 'app."State"', nullable=True, labels=("queued", "running", 'It\'s, "done"', "äh")
    )
    assert reported.columns[1].labels == ()


# --- Collations ---------------------------------------------------------------------------------------------------


def test_text_that_is_ordered_by_bytes_has_no_collation(postgres_database: PostgresDatabase) -> None:
    reported = only(
        postgres_database,
        'CREATE TABLE t (a text COLLATE "C", b varchar COLLATE "POSIX", c text COLLATE ucs_basic, d name, e int, f uuid)',
    )
    assert [column.collation for column in reported.columns] == [None] * 6


def test_the_c_locale_of_libc_and_the_builtin_provider_order_by_bytes(postgres_database: PostgresDatabase) -> None:
    script = """CREATE COLLATION c_libc (provider = libc, locale = 'C'); CREATE TABLE t (a text COLLATE c_libc"""
    if version(postgres_database) >= 17:
        script += ', b text COLLATE pg_c_utf8, c varchar(3) COLLATE "pg_c_utf8"'
    reported = only(postgres_database, script + ")")
    assert {column.collation for column in reported.columns} == {None}


def test_an_explicit_collation_is_reported_by_its_name(postgres_database: PostgresDatabase) -> None:
    script = """
        CREATE COLLATION "No Case" (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
        CREATE TABLE t (a text COLLATE "de-x-icu", b text COLLATE "No Case");
    """
    if not has_icu(postgres_database):
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            postgres_database.script(script)
        return
    reported = only(postgres_database, script)
    assert [column.collation for column in reported.columns] == ["de-x-icu", "No Case"]


def test_the_default_collation_is_the_databases_own_and_agrees_with_how_it_sorts(
    postgres_database: PostgresDatabase,
) -> None:
    reported = only(postgres_database, "CREATE TABLE t (a text, b varchar(3)); CREATE INDEX i ON t (a)")
    sorts_by_bytes = postgres_database.query("SELECT 'B'::text < 'a'")[0][0]
    collations = {reported.columns[0].collation, reported.columns[1].collation, reported.indexes[0].collations[0]}
    assert len(collations) == 1
    assert (collations == {None}) == sorts_by_bytes


def other_database(database: PostgresDatabase, options: str) -> Any:
    name = f"{database.query('SELECT current_database()')[0][0]}_other"
    database.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8' {options}")
    return name


@pytest.mark.parametrize(
    ("since", "options", "collation"),
    [
        (14, "LC_COLLATE 'C' LC_CTYPE 'C' {libc}", None),
        (14, "LC_COLLATE 'POSIX' LC_CTYPE 'POSIX' {libc}", None),
        (14, "LC_COLLATE 'C.UTF-8' LC_CTYPE 'C.UTF-8' {libc}", None),
        (15, "LOCALE_PROVIDER icu ICU_LOCALE 'de-AT' LC_COLLATE 'C' LC_CTYPE 'C'", "de-AT"),
        (17, "LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C' LC_COLLATE 'C.UTF-8'", None),
        (17, "LOCALE_PROVIDER builtin BUILTIN_LOCALE 'C.UTF-8' LC_COLLATE 'C'", None),
        (18, "LOCALE_PROVIDER builtin BUILTIN_LOCALE 'PG_UNICODE_FAST' LC_COLLATE 'C'", None),
    ],
)
def test_the_databases_own_collation_is_known_for_every_provider(
    postgres_database: PostgresDatabase, since: int, options: str, collation: str | None
) -> None:
    major = version(postgres_database)
    options = options.format(libc="LOCALE_PROVIDER libc" if major >= 15 else "")
    if major < since or (" icu " in options and not has_icu(postgres_database)):
        with pytest.raises(psycopg.Error):
            other_database(postgres_database, options)
        return
    name = other_database(postgres_database, options)
    try:
        with psycopg.connect(postgres_database.url, dbname=name, autocommit=True) as connection:
            connection.execute("CREATE TABLE t (a text)")
            assert reflect(connection).tables[0].columns[0].collation == collation
            in_order = connection.execute("SELECT 'B'::text < 'a'").fetchall()[0][0]
            assert in_order == (collation is None)
    finally:
        postgres_database.execute(f"DROP DATABASE {name} WITH (FORCE)")


# --- Keys and indexes ---------------------------------------------------------------------------------------------


def test_a_composite_key_is_in_the_order_of_the_key_not_of_the_columns(postgres_database: PostgresDatabase) -> None:
    reported = only(postgres_database, "CREATE TABLE t (a int, b int, c int, PRIMARY KEY (c, a))")
    assert reported.primary_key == ("c", "a")
    assert reported.indexes == (Index("t_pkey", ("c", "a"), unique=True, collations=(None, None)),)


def test_a_table_without_a_key_has_neither_key_nor_index(postgres_database: PostgresDatabase) -> None:
    reported = only(postgres_database, "CREATE TABLE t (a int)")
    assert (reported.primary_key, reported.indexes) == ((), ())


def test_columns_that_an_index_merely_includes_are_not_its_columns(postgres_database: PostgresDatabase) -> None:
    reported = only(
        postgres_database,
        "CREATE TABLE t (a int, b int, c int, PRIMARY KEY (c) INCLUDE (a)); CREATE INDEX i ON t (b, a) INCLUDE (c)",
    )
    assert reported.primary_key == ("c",)
    assert {index.name: (index.columns, index.collations) for index in reported.indexes} == {
        "i": (("b", "a"), (None, None)),
        "t_pkey": (("c",), (None,)),
    }


def test_the_expressions_of_an_index_are_unnamed_columns(postgres_database: PostgresDatabase) -> None:
    reported = only(
        postgres_database, "CREATE TABLE t (a text, b int); CREATE INDEX i ON t (lower(a), b DESC, (b + 1))"
    )
    assert reported.indexes[0].columns == (None, "b", None)


def test_index_columns_are_right_after_a_column_was_dropped(postgres_database: PostgresDatabase) -> None:
    reported = only(
        postgres_database,
        "CREATE TABLE t (gone int, a int, b int); ALTER TABLE t DROP COLUMN gone; CREATE UNIQUE INDEX i ON t (b, a)",
    )
    assert reported.indexes == (Index("i", ("b", "a"), unique=True, collations=(None, None)),)


def test_a_partial_index_has_its_predicate_as_the_database_prints_it(postgres_database: PostgresDatabase) -> None:
    reported = only(
        postgres_database, "CREATE TABLE t (a int, b int); CREATE INDEX i ON t (a) WHERE b IS NULL AND a > 1"
    )
    assert reported.indexes[0].predicate == "((b IS NULL) AND (a > 1))"


def test_each_index_column_has_the_collation_it_is_ordered_by(postgres_database: PostgresDatabase) -> None:
    odd = "de-x-icu" if has_icu(postgres_database) else "C"
    reported = only(
        postgres_database,
        f"""
        CREATE TABLE t (a text COLLATE "{odd}", b text COLLATE "C", c int);
        CREATE INDEX i ON t (a, a COLLATE "C", c, b, b COLLATE "{odd}", lower(b), lower(a));
        """,
    )
    name = odd if odd != "C" else None
    assert reported.indexes[0].collations == (name, None, None, None, name, None, name)


def test_an_index_shows_its_access_method(postgres_database: PostgresDatabase) -> None:
    reported = only(
        postgres_database,
        "CREATE TABLE t (a int); CREATE INDEX b ON t (a); CREATE INDEX h ON t USING hash (a); CREATE INDEX r ON t USING brin (a)",
    )
    assert [(index.name, index.method) for index in reported.indexes] == [("b", "btree"), ("h", "hash"), ("r", "brin")]


def test_an_index_whose_concurrent_build_failed_is_not_valid(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (1); CREATE INDEX good ON t (a)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        postgres_database.execute("CREATE UNIQUE INDEX CONCURRENTLY bad ON t (a)")
    reported = seen(postgres_database).tables[0]
    assert [(index.name, index.valid) for index in reported.indexes] == [("bad", False), ("good", True)]


def test_the_indexes_of_partitions_and_of_their_root_are_reported_at_each(postgres_database: PostgresDatabase) -> None:
    schema = seen(
        postgres_database,
        """
        CREATE TABLE root (b int, a int, PRIMARY KEY (a)) PARTITION BY RANGE (a);
        CREATE TABLE part (x int, a int NOT NULL, b int);
        ALTER TABLE part DROP COLUMN x;
        ALTER TABLE root ATTACH PARTITION part DEFAULT;
        CREATE INDEX only_root ON ONLY root (b);
        """,
    )
    root, part = table(schema, "root"), table(schema, "part")
    assert (root.primary_key, part.primary_key) == (("a",), ("a",))
    assert [(index.columns, index.valid) for index in root.indexes] == [(("b",), False), (("a",), True)]
    assert [index.columns for index in part.indexes] == [("a",)]


# --- Foreign keys -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", list(OnDelete))
def test_a_foreign_key_shows_what_it_does_on_delete(postgres_database: PostgresDatabase, action: OnDelete) -> None:
    schema = seen(
        postgres_database,
        f"""
        CREATE TABLE parent (id int PRIMARY KEY);
        CREATE TABLE child (p int CONSTRAINT up REFERENCES parent ON UPDATE CASCADE ON DELETE {action});
        """,
    )
    assert table(schema, "child").foreign_keys == (ForeignKey("up", ("p",), "public", "parent", ("id",), action),)


def test_a_composite_foreign_key_pairs_its_columns_in_its_own_order(postgres_database: PostgresDatabase) -> None:
    schema = seen(
        postgres_database,
        """
        CREATE SCHEMA other;
        CREATE TABLE other.parent (a int, b int, c int, UNIQUE (a, c), PRIMARY KEY (b, a));
        CREATE TABLE child (
          x int, y int,
          CONSTRAINT one FOREIGN KEY (y, x) REFERENCES other.parent,
          CONSTRAINT two FOREIGN KEY (x, y) REFERENCES other.parent (c, a)
        );
        """,
    )
    assert table(schema, "child").foreign_keys == (
        ForeignKey("two", ("x", "y"), "other", "parent", ("c", "a")),
        ForeignKey("one", ("y", "x"), "other", "parent", ("b", "a")),
    )


def test_a_foreign_key_into_a_schema_that_was_not_requested_is_reported_in_full(
    postgres_database: PostgresDatabase,
) -> None:
    script = """
        CREATE SCHEMA mine;
        CREATE TABLE parent (id int PRIMARY KEY);
        CREATE TABLE mine.child (p int CONSTRAINT up REFERENCES parent);
    """
    schema = seen(postgres_database, script, ("mine",))
    assert schema.tables[0].foreign_keys == (ForeignKey("up", ("p",), "public", "parent", ("id",)),)


def test_foreign_keys_between_partitioned_tables_are_reported_once_where_they_were_declared(
    postgres_database: PostgresDatabase,
) -> None:
    schema = seen(
        postgres_database,
        """
        CREATE TABLE parent (id int PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE parent_1 PARTITION OF parent FOR VALUES FROM (0) TO (10);
        CREATE TABLE parent_2 PARTITION OF parent FOR VALUES FROM (10) TO (20);
        CREATE TABLE child (p int, CONSTRAINT up FOREIGN KEY (p) REFERENCES parent ON DELETE CASCADE) PARTITION BY RANGE (p);
        CREATE TABLE child_1 PARTITION OF child FOR VALUES FROM (0) TO (10);
        CREATE TABLE child_2 PARTITION OF child FOR VALUES FROM (10) TO (20);
        ALTER TABLE child_2 ADD CONSTRAINT own FOREIGN KEY (p) REFERENCES parent_2;
        CREATE TABLE aside (p int CONSTRAINT to_part REFERENCES parent_1);
        """,
    )
    assert {table.name: [(key.name, key.to_table) for key in table.foreign_keys] for table in schema.tables} == {
        "parent": [],
        "parent_1": [],
        "parent_2": [],
        "child": [("up", "parent")],
        "child_1": [],
        "child_2": [("own", "parent_2")],
        "aside": [("to_part", "parent_1")],
    }


def test_a_foreign_key_that_is_not_enforced_does_nothing_on_delete(postgres_database: PostgresDatabase) -> None:
    enforced = "NOT ENFORCED" if version(postgres_database) >= 18 else ""
    schema = seen(
        postgres_database,
        f"CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (p int REFERENCES parent ON DELETE CASCADE {enforced})",
    )
    expected = OnDelete.NO_ACTION if enforced else OnDelete.CASCADE
    assert [key.on_delete for key in table(schema, "child").foreign_keys] == [expected]
    assert [key.locks_parent for key in table(schema, "child").foreign_keys] == [not enforced]


@pytest.mark.parametrize(
    ("how", "change", "locks"),
    [
        ("", "", True),
        ("DEFERRABLE", "", False),
        ("DEFERRABLE INITIALLY DEFERRED", "", False),
        ("", "ALTER TABLE child DISABLE TRIGGER ALL", False),
        ("", "ALTER TABLE parent DISABLE TRIGGER ALL", True),
    ],
)
def test_a_foreign_key_locks_its_parent_only_if_it_is_checked_at_once(
    postgres_database: PostgresDatabase, how: str, change: str, locks: bool
) -> None:
    schema = seen(
        postgres_database,
        f"CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (p int REFERENCES parent {how}); {change}",
    )
    assert [key.locks_parent for key in table(schema, "child").foreign_keys] == [locks]


# --- Triggers, rules, row security --------------------------------------------------------------------------------

FUNCTION = "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END';"


def definition(database: PostgresDatabase) -> str:
    """Return the definition of the trigger, where nothing but the system's own is found by a bare name."""
    connection = database.connect()
    connection.execute("SET search_path = pg_catalog")
    [(text,)] = connection.execute("SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgname = 'x'").fetchall()
    return str(text)


@pytest.mark.parametrize(
    "ddl",
    [
        "CREATE TRIGGER x BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION f()",
        "CREATE TRIGGER x AFTER DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION f()",
        "CREATE TRIGGER x AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION f()",
        "CREATE CONSTRAINT TRIGGER x AFTER DELETE ON t DEFERRABLE FOR EACH ROW EXECUTE FUNCTION f()",
    ],
)
def test_a_trigger_that_fires_on_delete_is_reported(postgres_database: PostgresDatabase, ddl: str) -> None:
    reported = only(postgres_database, f"CREATE TABLE t (a int); {FUNCTION} {ddl}")
    assert reported.delete_triggers == (Trigger("x", definition(postgres_database), unpinned="public.f()"),)


def test_triggers_on_other_events_disabled_ones_and_those_of_foreign_keys_are_not_reported(
    postgres_database: PostgresDatabase,
) -> None:
    schema = seen(
        postgres_database,
        f"""
        {FUNCTION}
        CREATE TABLE t (a int PRIMARY KEY);
        CREATE TABLE child (a int REFERENCES t ON DELETE CASCADE);
        CREATE TRIGGER i AFTER INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f();
        CREATE TRIGGER tr AFTER TRUNCATE ON t EXECUTE FUNCTION f();
        CREATE TRIGGER off BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION f();
        ALTER TABLE t DISABLE TRIGGER off;
        """,
    )
    assert [table.delete_triggers for table in schema.tables] == [(), ()]


def test_a_trigger_of_a_partitioned_table_is_reported_there_and_not_at_its_partitions(
    postgres_database: PostgresDatabase,
) -> None:
    schema = seen(
        postgres_database,
        f"""
        {FUNCTION}
        CREATE TABLE root (a int) PARTITION BY RANGE (a);
        CREATE TABLE part PARTITION OF root DEFAULT;
        CREATE TRIGGER x AFTER DELETE ON root FOR EACH ROW EXECUTE FUNCTION f();
        CREATE TRIGGER own AFTER DELETE ON part FOR EACH ROW EXECUTE FUNCTION f();
        """,
    )
    assert {table.name: [trigger.name for trigger in table.delete_triggers] for table in schema.tables} == {
        "root": ["x"],
        "part": ["own"],
    }


def test_rules_and_triggers_on_delete_are_reported_also_for_views(postgres_database: PostgresDatabase) -> None:
    schema = seen(
        postgres_database,
        f"""
        {FUNCTION}
        CREATE TABLE t (a int);
        CREATE RULE "keep it" AS ON DELETE TO t DO INSTEAD NOTHING;
        CREATE RULE inserting AS ON INSERT TO t DO ALSO NOTHING;
        CREATE RULE off AS ON DELETE TO t DO ALSO NOTHING;
        ALTER TABLE t DISABLE RULE off;
        CREATE VIEW v AS SELECT a FROM t;
        CREATE TRIGGER x INSTEAD OF DELETE ON v FOR EACH ROW EXECUTE FUNCTION f();
        """,
    )
    (rule,) = table(schema, "t").delete_triggers
    assert rule.name == "keep it"
    assert "ON DELETE TO public.t DO INSTEAD NOTHING" in rule.definition
    assert [trigger.name for trigger in table(schema, "v").delete_triggers] == ["x"]


def test_row_security_is_reported(postgres_database: PostgresDatabase) -> None:
    schema = seen(
        postgres_database,
        "CREATE TABLE open (a int); CREATE TABLE secured (a int); ALTER TABLE secured ENABLE ROW LEVEL SECURITY",
    )
    assert [(table.name, table.row_security) for table in schema.tables] == [("open", False), ("secured", True)]


# --- Estimates ----------------------------------------------------------------------------------------------------


def test_rows_are_estimated_by_what_analyze_counted_and_unknown_without_it(postgres_database: PostgresDatabase) -> None:
    schema = seen(
        postgres_database,
        """
        CREATE TABLE counted (a int);
        CREATE TABLE fresh (a int);
        CREATE VIEW v AS SELECT a FROM counted;
        CREATE TABLE root (a int) PARTITION BY RANGE (a);
        CREATE TABLE part PARTITION OF root DEFAULT;
        INSERT INTO counted SELECT generate_series(1, 7);
        INSERT INTO fresh SELECT generate_series(1, 7);
        INSERT INTO root SELECT generate_series(1, 9);
        ANALYZE counted;
        ANALYZE root;
        """,
    )
    assert {table.name: table.rows_estimate for table in schema.tables} == {
        "counted": 7,
        "fresh": None,
        "v": None,
        "root": 9,
        "part": 9,
    }


# --- The caller's connection, and the number of statements --------------------------------------------------------


def statements(database: PostgresDatabase) -> int:
    """Count the statements that reflection sends, by what the client library records of its messages."""
    connection = database.connect()
    with TemporaryFile() as file:
        connection.pgconn.trace(file.fileno())
        reflect(connection)
        connection.pgconn.untrace()
        file.seek(0)
        return sum(b"\tParse\t" in line or b"\tQuery\t" in line for line in file)


def test_the_number_of_statements_does_not_grow_with_the_number_of_tables(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("""
        CREATE TABLE parent (id int PRIMARY KEY);
        CREATE FUNCTION make(first int, last int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
          FOR number IN first .. last LOOP
            EXECUTE format('CREATE TABLE t%s (id int PRIMARY KEY, p int REFERENCES parent, a text UNIQUE)', number);
            EXECUTE format('CREATE RULE r AS ON DELETE TO t%s DO ALSO NOTHING', number);
          END LOOP;
        END $$;
        SELECT make(1, 1);
    """)
    before = statements(postgres_database)
    postgres_database.script("SELECT make(2, 200)")
    assert len(seen(postgres_database).tables) == 201
    assert 0 < before == statements(postgres_database) < 20


def test_the_callers_open_transaction_stays_open_and_its_new_tables_are_reported(
    postgres_database: PostgresDatabase,
) -> None:
    connection = psycopg.connect(postgres_database.url)
    with connection:
        connection.execute("CREATE TABLE fresh (a int)")
        assert names(reflect(connection)) == ["fresh"]
        assert connection.info.transaction_status == TransactionStatus.INTRANS
        connection.execute("INSERT INTO fresh VALUES (1)")
        connection.rollback()
        assert names(reflect(connection)) == []


@pytest.mark.parametrize("autocommit", [False, True])
def test_no_transaction_and_no_setting_is_left_behind(postgres_database: PostgresDatabase, autocommit: bool) -> None:
    with psycopg.connect(postgres_database.url, autocommit=autocommit) as connection:
        reflect(connection)
        assert connection.info.transaction_status == TransactionStatus.IDLE
        settings = connection.execute(
            "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')"
        )
        assert settings.fetchall() == [("read committed", "off")]


def test_a_connection_with_its_own_row_factory_is_welcome(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("CREATE TABLE t (a int)")
    with psycopg.connect(postgres_database.url, row_factory=dict_row) as connection:
        assert names(reflect(connection)) == ["t"]


def test_a_role_without_any_rights_sees_the_whole_schema(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("""
        CREATE SCHEMA hidden;
        CREATE TABLE hidden.t (a int PRIMARY KEY, b text DEFAULT 'x');
        CREATE INDEX i ON hidden.t (b) WHERE b <> 'y';
        CREATE RULE r AS ON DELETE TO hidden.t DO ALSO NOTHING;
    """)
    whole = seen(postgres_database)
    connection = postgres_database.connect()
    with connection.transaction(force_rollback=True):
        connection.execute("CREATE ROLE nobody_at_all")
        connection.execute("SET LOCAL ROLE nobody_at_all")
        assert reflect(connection).tables == whole.tables


def test_partitions_that_were_never_analyzed_are_estimated_by_their_sizes(postgres_database: PostgresDatabase) -> None:
    postgres_database.execute("CREATE TABLE day (id int NOT NULL, pad text) PARTITION BY RANGE (id)")
    for n in range(30):
        postgres_database.execute(
            f"CREATE TABLE day_{n} PARTITION OF day FOR VALUES FROM ({n * 100}) TO ({n * 100 + 100})"
        )
    postgres_database.execute("INSERT INTO day SELECT n, repeat('x', 100) FROM generate_series(0, 1499) AS n")
    with open_store(resolve_url(postgres_database.url)) as store:
        info = store.reflect().find(None, "day")
        assert info is not None
        unknown = store.planner.estimate_rows(info)
        assert unknown is not None
        assert 500 < unknown < 4_500
        postgres_database.execute("ANALYZE day_0")
        some = store.planner.estimate_rows(info)
        assert some is not None
        assert 1_400 < some < 1_600
        postgres_database.execute("ANALYZE day")
        assert store.planner.estimate_rows(info) == 1_500
