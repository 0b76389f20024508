"""Names and types: everything that a contract speaks of must be there, and be what it is taken for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from covering import EVENTS, HEALTHY, RULE_PATH, codes, compared, finding, findings, loaded
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._contract.model import Excuse, ExcuseKind
from wane._contract.names import TableName
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper


def test_a_database_that_fits_its_contract_gives_no_findings(database: Database) -> None:
    database.script(HEALTHY)
    assert findings(database, EVENTS, strict=True) == []


# Missing


def test_a_missing_table_is_reported_with_the_nearest_name(database: Database) -> None:
    database.script("CREATE TABLE event (id integer PRIMARY KEY)")
    assert findings(database, EVENTS + "[excused]\nevent = { inline = 'elsewhere' }") == [
        finding(
            "error",
            "missing-table",
            "events",
            "table.events",
            "the database has no table events",
            "did you mean 'event'?",
        )
    ]


def test_a_missing_table_without_a_near_name_may_be_created_or_removed(database: Database) -> None:
    [one] = findings(database, EVENTS)
    assert one.fix == "create it, or remove it here"


def test_a_missing_table_of_a_schema_is_named_as_the_contract_writes_it(database: Database) -> None:
    [one] = findings(database, EVENTS.replace("table.events", 'table."app.events"'))
    assert (one.path, one.table, one.message) == (
        'table."app.events"',
        "app.events",
        "the database has no table app.events",
    )


def test_an_excuse_for_a_missing_table_is_stale(database: Database) -> None:
    database.script(HEALTHY)
    text = f"{EVENTS}[excused]\ncache = {{ inline = 'gone by itself' }}"
    assert findings(database, text) == [
        finding(
            "warning", "missing-table", "cache", "excused.cache", "the database has no table cache", "remove it here"
        )
    ]
    database.script("CREATE TABLE cache (id integer PRIMARY KEY)")
    assert findings(database, text) == []


def test_a_missing_table_whose_rows_stay_forever_is_reported_too(database: Database) -> None:
    text = '[table.ledger]\nwhy = "Law."\n[table.ledger.rule.all]\nkeep = "forever"\n'
    assert findings(database, text) == [
        finding(
            "warning", "missing-table", "ledger", "table.ledger", "the database has no table ledger", "remove it here"
        )
    ]
    database.script("CREATE TABLE ledger (id integer PRIMARY KEY)")
    assert findings(database, text, strict=True) == []


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ('with = ["reads.event_id"]', "with"),
        ('unless = [{ referenced_by = "reads.event_id" }]', "unless"),
        ('with = [{ table = "kids", columns = ["event_id"], with = ["reads.kid_id"] }]', "with"),
    ],
    ids=["follower", "guard", "nested follower"],
)
def test_a_missing_table_of_a_reference_is_reported(database: Database, rule: str, path: str) -> None:
    database.script(
        f"{HEALTHY} CREATE TABLE kids (id integer PRIMARY KEY, event_id bigint);"
        " CREATE INDEX kids_event ON kids (event_id);"
    )
    found = [one for one in findings(database, EVENTS + rule) if one.code != "uncovered-table"]
    assert found == [
        finding(
            "error",
            "missing-table",
            "events",
            f"{RULE_PATH}.{path}",
            "the database has no table reads",
            "create it, or remove it here",
        )
    ]
    database.script(
        "CREATE TABLE reads (id integer PRIMARY KEY, event_id bigint, kid_id bigint);"
        " CREATE INDEX reads_event ON reads (event_id); CREATE INDEX reads_kid ON reads (kid_id);"
    )
    assert [one for one in findings(database, EVENTS + rule) if one.code != "uncovered-table"] == []


COLUMNS = "columns: id, at"


@pytest.mark.parametrize(
    ("change", "path", "message", "fix"),
    [
        (('column = "at"', 'column = "att"'), "rule.old.time", "'att'", "did you mean 'at'?"),
        (('why = "A test."', 'why = "A test."\nkey = ["tenant"]'), "key", "'tenant'", COLUMNS),
        (('keep = "7d"', 'keep = "7d"\norphans = "parent"'), "rule.old.orphans", "'parent'", COLUMNS),
        (('keep = "7d"', 'keep = "7d"\nunless = [{ null = "done" }]'), "rule.old.unless", "'done'", COLUMNS),
        (('keep = "7d"', 'keep = "7d"\nunless = [{ not_null = "lock" }]'), "rule.old.unless", "'lock'", COLUMNS),
        (('keep = "7d"', 'most = 5\nper = "tenant"'), "rule.old.per", "'tenant'", COLUMNS),
        (('keep = "7d"', 'expires = { column = "ends", unit = "ms" }'), "rule.old.time", "'ends'", COLUMNS),
    ],
    ids=["time", "key", "orphans", "null", "not null", "per", "expires"],
)
def test_a_missing_column_is_reported_where_the_contract_names_it(
    database: Database, change: tuple[str, str], path: str, message: str, fix: str
) -> None:
    database.script(HEALTHY)
    assert findings(database, EVENTS.replace(*change)) == [
        finding("error", "missing-column", "events", f"table.events.{path}", f"events has no column {message}", fix)
    ]


def test_a_missing_state_column_does_not_hide_the_other_mistakes_of_the_rule(database: Database) -> None:
    database.script("CREATE TABLE events (id integer PRIMARY KEY, created bigint)")
    text = EVENTS.replace('why = "A test."', 'why = "A test."\nstate = "status"\nlive = ["new"]') + 'when = ["done"]'
    assert findings(database, text) == [
        finding(
            "error",
            "missing-column",
            "events",
            "table.events.state",
            "events has no column 'status'",
            "columns: id, created",
        ),
        finding(
            "error",
            "missing-column",
            "events",
            f"{RULE_PATH}.time",
            "events has no column 'at'",
            "columns: id, created",
        ),
    ]


@pytest.mark.parametrize(
    "reference", ["reads.parent", '{ table = "reads", columns = ["event_id"], to = ["uuid"] }'], ids=["theirs", "ours"]
)
def test_a_missing_column_of_a_reference_is_reported(database: Database, reference: str) -> None:
    database.script(f"{HEALTHY} CREATE TABLE reads (id integer PRIMARY KEY, event_id bigint)")
    written = reference if reference.startswith("{") else f'"{reference}"'
    [one, *_] = findings(database, f"{EVENTS}with = [{written}]")
    assert (one.code, one.path) == ("missing-column", f"{RULE_PATH}.with")
    assert one.message in ("reads has no column 'parent'", "events has no column 'uuid'")


# Keys and references


def test_a_table_without_a_key_needs_one(database: Database) -> None:
    database.script("CREATE TABLE events (id bigint NOT NULL, at bigint); CREATE INDEX events_at ON events (at, id)")
    assert findings(database, EVENTS) == [
        finding(
            "error",
            "no-key",
            "events",
            "table.events.key",
            "events has no primary key",
            "name the columns of a unique key: `key = […]`",
        )
    ]
    keyed = EVENTS.replace('why = "A test."', 'why = "A test."\nkey = ["id"]')
    assert findings(database, keyed) == [
        finding(
            "error",
            "no-key",
            "events",
            "table.events.key",
            "(id) is not unique in events",
            "name columns with a unique index",
        )
    ]
    database.script("CREATE UNIQUE INDEX events_partly ON events (id) WHERE at > 0")
    assert codes(findings(database, keyed)) == ["no-key"]
    database.script("CREATE UNIQUE INDEX events_id ON events (id)")
    assert findings(database, keyed) == []


def test_a_reference_needs_as_many_columns_as_the_key(database: Database) -> None:
    database.script(
        "CREATE TABLE events (tenant text NOT NULL, id bigint NOT NULL, at bigint, PRIMARY KEY (tenant, id));"
        " CREATE INDEX events_at ON events (at);"
        " CREATE TABLE reads (id bigint NOT NULL PRIMARY KEY, tenant text, event_id bigint);"
        " CREATE INDEX reads_event ON reads (tenant, event_id);"
    )
    found = findings(database, f'{EVENTS}with = ["reads.event_id"]')
    assert found == [
        finding(
            "error",
            "wrong-reference",
            "events",
            f"{RULE_PATH}.with",
            "reads.event_id has 1 columns, the key it points at 2: tenant, id",
            "name all columns of the reference: { table, columns, to }",
        )
    ]
    whole = 'with = [{ table = "reads", columns = ["tenant", "event_id"] }]'
    assert findings(database, EVENTS + whole, strict=True) == []


# Kinds


def kind_finding(text: str, fix: str = "") -> list[object]:
    return [finding("error", "not-a-table", "events", "table.events", text, fix)]


def test_a_view_is_not_a_table(database: Database) -> None:
    database.script("CREATE TABLE base (id integer PRIMARY KEY, at bigint); CREATE VIEW events AS SELECT * FROM base")
    text = f"{EVENTS}[excused]\nbase = {{ inline = 'soon' }}"
    assert findings(database, text) == kind_finding("events is a view, and a table is expected")


def test_a_view_holds_no_rows_and_needs_no_entry(database: Database) -> None:
    database.script(f"{HEALTHY} CREATE VIEW recent AS SELECT * FROM events")
    assert findings(database, EVENTS, strict=True) == []


def test_a_materialized_view_is_not_a_table(postgres_database: PostgresDatabase) -> None:
    postgres_database.script("CREATE MATERIALIZED VIEW events AS SELECT 1 AS id, 2::bigint AS at")
    assert findings(postgres_database, EVENTS) == kind_finding("events is a materialized view, and a table is expected")


def test_a_foreign_table_is_not_a_table_and_is_not_read(postgres_database: PostgresDatabase) -> None:
    # Without a handler every read of its rows would fail.
    postgres_database.script(
        "CREATE FOREIGN DATA WRAPPER nowhere; CREATE SERVER there FOREIGN DATA WRAPPER nowhere;"
        "CREATE FOREIGN TABLE events (id bigint, at bigint, status text) SERVER there"
    )
    text = EVENTS.replace('why = "A test."', 'why = "A test."\nstate = "status"\nlive = ["new"]') + 'when = ["done"]'
    assert findings(postgres_database, text) == kind_finding("events is a foreign table, and a table is expected")
    assert findings(postgres_database, "", strict=True) == []


def test_a_virtual_table_is_not_a_table_but_holds_rows(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script("CREATE VIRTUAL TABLE events USING fts5 (at)")
    assert findings(sqlite_database, EVENTS) == kind_finding("events is a virtual table, and a table is expected")
    assert codes(findings(sqlite_database, "", strict=True)) == ["uncovered-table"]
    assert findings(sqlite_database, "[excused]\nevents = { mirror = 'an index' }", strict=True) == []


PARTITIONS = """
CREATE TABLE events (id bigint, at bigint, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (1000);
CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (1000) TO (2000) PARTITION BY RANGE (id);
CREATE TABLE events_2_1 PARTITION OF events_2 FOR VALUES FROM (0) TO (1000);
CREATE INDEX events_at ON events (at, id);
"""


def test_a_partition_is_named_by_its_parent(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(PARTITIONS)
    for partition in ("events_1", "events_2", "events_2_1"):
        text = EVENTS.replace("table.events", f"table.{partition}")
        [one, uncovered] = findings(postgres_database, text)
        assert one == finding(
            "error",
            "not-a-table",
            partition,
            f"table.{partition}",
            f"{partition} is a partition",
            "name its parent, public.events",
        )
        assert (uncovered.code, uncovered.table) == ("uncovered-table", "events")


def test_a_partitioned_table_covers_its_partitions(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(PARTITIONS)
    assert findings(postgres_database, EVENTS, strict=True) == []


def test_a_table_that_others_inherit_from_has_no_key(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(f"{HEALTHY} CREATE TABLE events_old () INHERITS (events)")
    message = "events has tables that inherit from it: events_old"
    assert findings(postgres_database, EVENTS, strict=True) == [
        finding("error", "inherited-table", "events", "table.events", message, "use partitions")
    ]


@pytest.mark.parametrize(
    "descendants",
    [
        "CREATE TABLE above (LIKE events); ALTER TABLE events INHERIT above; CREATE TABLE events_old () INHERITS (events)",
        "CREATE TABLE side (x int); CREATE TABLE events_old () INHERITS (side, events)",
    ],
    ids=["in the middle", "second parent"],
)
def test_a_table_that_others_inherit_from_has_no_key_wherever_it_stands(
    postgres_database: PostgresDatabase, descendants: str
) -> None:
    postgres_database.script(f"{HEALTHY} {descendants}")
    excused = (
        "\n[excused]\nabove = { inline = 'x' }\n"
        if "above" in descendants
        else "\n[excused]\nside = { inline = 'x' }\n"
    )
    found = findings(postgres_database, EVENTS + excused)
    assert [(one.code, one.message) for one in found] == [
        ("inherited-table", "events has tables that inherit from it: events_old")
    ]


# Types


def type_finding(text: str) -> list[object]:
    return [finding("error", "wrong-time-type", "events", f"{RULE_PATH}.time", text)]


@pytest.mark.parametrize(
    ("declared", "time", "message"),
    [
        ("INTEGER", '"at"', 'at is declared INTEGER and needs a unit of numbers: "s", "ms" or "us"'),
        (
            "TEXT",
            '{ column = "at", unit = "s" }',
            'at is declared TEXT and needs a unit of text: "iso", "text", "date" or none',
        ),
        ("BLOB", '{ column = "at", unit = "s" }', "at is declared BLOB, which holds no timestamps"),
        (
            "TEXT",
            '{ column = "at", zone = "Europe/Vienna" }',
            'SQLite writes CURRENT_TIMESTAMP in UTC: use unit = "text" for wall-clock times of Europe/Vienna',
        ),
    ],
)
def test_sqlite_refuses_a_unit_that_the_column_cannot_hold(
    sqlite_database: SqliteDatabase, declared: str, time: str, message: str
) -> None:
    sqlite_database.script(f"CREATE TABLE events (id INTEGER PRIMARY KEY, at {declared})")
    assert findings(sqlite_database, EVENTS.replace('{ column = "at", unit = "ms" }', time)) == type_finding(message)


@pytest.mark.parametrize(
    ("declared", "time", "message"),
    [
        ("integer", '{ column = "at", unit = "ms" }', "at is integer, which does not hold a number of ms since 1970"),
        ("bigint", '"at"', 'at is bigint and needs a unit: "s", "ms" or "us"'),
        ("text", '"at"', 'at is text and needs a unit: "iso", "text" or "date"'),
        ("bigint", '{ column = "at", unit = "iso" }', 'at is bigint, and unit = "iso" needs a text'),
        ("json", '"at"', "at is json, which is no timestamp"),
        (
            "timestamp",
            '"at"',
            'at is timestamp without time zone: its values shift with the session, so declare their zone, for example zone = "UTC"',
        ),
        (
            "timestamptz",
            '{ column = "at", zone = "UTC" }',
            "at is timestamp with time zone, which knows its zone: remove `zone`",
        ),
    ],
)
def test_postgres_refuses_a_unit_that_the_column_cannot_hold(
    postgres_database: PostgresDatabase, declared: str, time: str, message: str
) -> None:
    postgres_database.script(f"CREATE TABLE events (id integer PRIMARY KEY, at {declared})")
    assert findings(postgres_database, EVENTS.replace('{ column = "at", unit = "ms" }', time)) == type_finding(message)


@pytest.mark.parametrize(
    ("declared", "time"),
    [
        ("integer", '{ column = "at", unit = "s" }'),
        ("double precision", '{ column = "at", unit = "us" }'),
        ("numeric(20, 3)", '{ column = "at", unit = "s" }'),
        ("varchar(40)", '{ column = "at", unit = "iso" }'),
        ("timestamptz(0)", '"at"'),
        ("timestamp", '{ column = "at", zone = "UTC" }'),
    ],
)
def test_postgres_takes_every_type_that_can_hold_the_timestamps(
    postgres_database: PostgresDatabase, declared: str, time: str
) -> None:
    collate = ' COLLATE "C"' if "char" in declared else ""
    postgres_database.script(
        f"CREATE TABLE events (id integer PRIMARY KEY, at {declared}); CREATE INDEX events_at ON events (at{collate})"
    )
    text = EVENTS.replace('{ column = "at", unit = "ms" }', time)
    assert findings(postgres_database, text, strict=True) == []


# Said twice, and not said at all


def test_a_table_named_with_and_without_its_schema_is_stated_twice(database: Database) -> None:
    """A file that does so is refused before; a contract may also be made by a program."""
    schema = "main" if database.store == "sqlite" else "public"
    database.script(HEALTHY)
    contract = loaded(EVENTS)
    twice = replace(contract, excused=((TableName("events", schema), Excuse(ExcuseKind.INLINE, "soon")),))
    assert compared(database, twice) == [
        finding(
            "error",
            "declared-twice",
            f"{schema}.events",
            f'excused."{schema}.events"',
            f"{schema}.events and events are the same table, {schema}.events",
            "keep one of the two",
        )
    ]
    assert compared(database, contract) == []


def test_a_follower_may_write_a_table_otherwise_than_its_own_entry(database: Database) -> None:
    schema = "main" if database.store == "sqlite" else "public"
    database.script(
        f"{HEALTHY} CREATE TABLE reads (id bigint NOT NULL PRIMARY KEY, event_id bigint);"
        " CREATE INDEX reads_event ON reads (event_id);"
    )
    contract = loaded(f'{EVENTS}with = ["{schema}.reads.event_id"]')
    excused = replace(contract, excused=((TableName("reads"), Excuse(ExcuseKind.INLINE, "soon")),))
    assert compared(database, excused, strict=True) == []


def uncovered(severity: str, table: str, key: str = "") -> object:
    return finding(
        severity,
        "uncovered-table",
        table,
        "",
        "the contract does not name this table, so its rows never leave",
        f"add [table.{key or table}] with a rule, or give the reason under [excused]",
    )


def test_an_unmentioned_table_is_a_warning_and_strictly_an_error(database: Database) -> None:
    database.script(f"{HEALTHY} CREATE TABLE logs (id integer PRIMARY KEY)")
    assert findings(database, EVENTS) == [uncovered("warning", "logs")]
    assert findings(database, EVENTS, strict=True) == [uncovered("error", "logs")]
    assert findings(database, f"strict = true\n{EVENTS}") == [uncovered("error", "logs")]
    assert findings(database, f"{EVENTS}[excused]\nlogs = {{ inline = 'soon' }}", strict=True) == []


def test_a_table_of_another_schema_is_shown_as_it_must_be_written(postgres_database: PostgresDatabase) -> None:
    postgres_database.script('CREATE SCHEMA app; CREATE TABLE app."odd.name" (id integer PRIMARY KEY)')
    assert findings(postgres_database, "") == [uncovered("warning", 'app."odd.name"', "'app.\"odd.name\"'")]
    assert findings(postgres_database, "[excused]\n'app.\"odd.name\"' = { inline = 'soon' }", strict=True) == []


def test_schemas_that_the_contract_does_not_cover_are_not_reported(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(f"{HEALTHY} CREATE SCHEMA app; CREATE TABLE app.logs (id integer PRIMARY KEY)")
    assert findings(postgres_database, f"[store]\nschemas = ['public']\n{EVENTS}", strict=True) == []
    assert findings(postgres_database, EVENTS, strict=True) == [uncovered("error", "app.logs", '"app.logs"')]


def test_temporary_and_own_tables_are_not_the_contracts_business(database: Database) -> None:
    database.script(f"{HEALTHY} CREATE TEMP TABLE scratch (id integer)")
    with_own = (
        "CREATE TABLE wane_audit (id integer)"
        if database.store == "sqlite"
        else ("CREATE SCHEMA wane; CREATE TABLE wane.audit (id integer)")
    )
    database.script(with_own)
    assert findings(database, EVENTS, strict=True) == []


def test_tables_of_an_extension_are_not_the_contracts_business(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(f"{HEALTHY} CREATE TABLE owned (id integer);ALTER EXTENSION plpgsql ADD TABLE owned")
    assert findings(postgres_database, EVENTS, strict=True) == []


def test_tables_of_an_attached_database_can_be_excused_and_not_ruled(
    sqlite_database: SqliteDatabase,
) -> None:
    other = SqliteDatabase(sqlite_database.path.with_name("other.db"))
    other.script(HEALTHY)
    other.close()
    attach = "[store]\nattach = { app = 'other.db' }\n"
    assert findings(sqlite_database, attach, strict=True) == [uncovered("error", "app.events", '"app.events"')]
    excused = attach + "[excused]\n'app.events' = { elsewhere = 'theirs' }"
    assert findings(sqlite_database, excused, strict=True) == []
    ruled = attach + EVENTS.replace("table.events", 'table."app.events"')
    assert findings(sqlite_database, ruled) == [
        finding(
            "error",
            "refused-table",
            "app.events",
            'table."app.events"',
            "app.events is in an attached database: one SQLite transaction over two files is not atomic, "
            "so only tables of the main database can have rules",
        )
    ]


def test_a_hold_on_a_table_that_was_renamed_is_an_error(database: Database) -> None:
    database.script(f"{HEALTHY} CREATE TABLE audited (id bigint NOT NULL PRIMARY KEY)")
    with Keeper(loaded(EVENTS), open_store(resolve_url(database.url))) as keeper:
        keeper.migrate()
        held = keeper.hold("audited", reason="a test")
        keeper.hold("events", reason="a test")
    database.script("ALTER TABLE audited RENAME TO archived")
    text = f"{EVENTS}[excused]\narchived = {{ inline = 'soon' }}\n"
    message = f"a hold is on {held.table}, but the database has no such table: nothing leaves any table until that hold is released"
    fix = (
        "if the table was renamed, hold it under its new name first (`wane hold add`); then `wane hold release` the old hold,"
        " whose number `wane hold list` shows"
    )
    lost = finding("error", "lost-hold", held.table, "", message, fix)
    assert findings(database, text) == [lost]
    with Keeper(loaded(text), open_store(resolve_url(database.url))) as keeper:
        assert keeper.check_live() == [lost]
        assert held.id is not None
        keeper.release_hold(held.id)
    assert findings(database, text) == []


def test_partitions_that_nothing_makes_are_reported(database: Database) -> None:
    database.script(HEALTHY)
    declared = '[partition.events]\nmade_by = "application"\ntime = { column = "at", unit = "ms" }\nkeep = "7d"\n'
    [one] = findings(database, EVENTS + declared)
    assert (one.code, one.path, one.severity) == ("wrong-partitions", "partition.events", "error")
    plain = "events is not partitioned"
    assert one.message == (plain if isinstance(database, PostgresDatabase) else "SQLite has no partitions")
    assert "rows leave by the rules of the table" in one.fix
