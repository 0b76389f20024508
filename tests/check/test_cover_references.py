"""What the database does by itself when a row leaves: foreign keys, triggers, rules, row security."""

from __future__ import annotations

import pytest

from covering import EVENTS, HEALTHY, RULE_PATH, codes, finding, findings, role
from servers import Database, PostgresDatabase, SqliteDatabase

FOLLOW = 'with = ["reads.event_id"]'
GUARD = 'unless = [{ referenced_by = "reads.event_id" }]'
DECIDE = f"let it follow, `{FOLLOW}`, or guard the row, `{GUARD}`"


def child(action: str = "", name: str = "reads", column: str = "event_id", parent: str = "events") -> str:
    return (
        f"CREATE TABLE {name} (id bigint NOT NULL PRIMARY KEY, {column} bigint DEFAULT 0, queue text,"
        f" CONSTRAINT {name}_fk FOREIGN KEY ({column}) REFERENCES {parent} (id) {action});"
        f"CREATE INDEX {name}_{column} ON {name} ({column});"
    )


def excusing(*tables: str) -> str:
    return "\n[excused]\n" + "\n".join(f"{table} = {{ inline = 'soon' }}" for table in tables)


REFUSING = "reads.event_id refers to events, so its rows cannot leave while they are referred to"
CASCADING = "the foreign key reads_fk deletes rows of reads with events's, uncounted"
UPDATING = "the foreign key reads_fk changes event_id of reads when events's rows leave"

FLAVOURS = [
    ("", "error", "unguarded-reference", REFUSING),
    ("ON DELETE NO ACTION", "error", "unguarded-reference", REFUSING),
    ("ON DELETE RESTRICT", "error", "unguarded-reference", REFUSING),
    ("ON DELETE CASCADE", "error", "uncounted-cascade", CASCADING),
    ("ON DELETE SET NULL", "warning", "silent-update", UPDATING),
    ("ON DELETE SET DEFAULT", "warning", "silent-update", UPDATING),
    ("DEFERRABLE INITIALLY DEFERRED", "error", "unguarded-reference", REFUSING),
]


@pytest.mark.parametrize(
    ("action", "severity", "code", "message"), FLAVOURS, ids=[one[0] or "none" for one in FLAVOURS]
)
def test_a_foreign_key_is_followed_or_guarded_or_reported(
    database: Database, action: str, severity: str, code: str, message: str
) -> None:
    database.script(HEALTHY + child(action))
    assert findings(database, EVENTS + excusing("reads")) == [
        finding(severity, code, "events", RULE_PATH, message, DECIDE)
    ]
    assert findings(database, EVENTS + FOLLOW, strict=True) == []
    assert findings(database, EVENTS + GUARD + excusing("reads"), strict=True) == []


def test_without_a_foreign_key_there_is_nothing_to_report(database: Database) -> None:
    database.script(HEALTHY + "CREATE TABLE reads (id bigint NOT NULL PRIMARY KEY, event_id bigint)")
    assert findings(database, EVENTS + excusing("reads"), strict=True) == []


def test_a_follower_with_a_condition_does_not_cover_a_foreign_key(database: Database) -> None:
    database.script(HEALTHY + child())
    text = f'{EVENTS}with = [{{ table = "reads", columns = ["event_id"], where = {{ queue = "mail" }} }}]'
    assert findings(database, text) == [finding("error", "unguarded-reference", "events", RULE_PATH, REFUSING, DECIDE)]


def test_another_column_of_the_same_table_does_not_cover_a_foreign_key(database: Database) -> None:
    database.script(HEALTHY + child() + "ALTER TABLE reads ADD COLUMN other bigint; CREATE INDEX o ON reads (other)")
    assert codes(findings(database, f'{EVENTS}with = ["reads.other"]')) == ["unguarded-reference"]


def test_a_column_that_points_elsewhere_does_not_cover_a_foreign_key(database: Database) -> None:
    database.script(
        "CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, code bigint NOT NULL UNIQUE, at bigint);"
        "CREATE INDEX events_at ON events (at);"
        "CREATE TABLE reads (id bigint NOT NULL PRIMARY KEY, event_id bigint CONSTRAINT reads_fk REFERENCES events (code));"
        "CREATE INDEX reads_event ON reads (event_id);"
    )
    reference = '{ table = "reads", columns = ["event_id"], to = ["code"] }'
    decide = f"let it follow, `with = [{reference}]`, or guard the row, `unless = [{{ referenced_by = {reference} }}]`"
    for rule in ("", GUARD):
        assert findings(database, EVENTS + rule + excusing("reads")) == [
            finding("error", "unguarded-reference", "events", RULE_PATH, REFUSING, decide)
        ]
    assert findings(database, f"{EVENTS}with = [{reference}]", strict=True) == []
    assert (
        findings(database, f"{EVENTS}unless = [{{ referenced_by = {reference} }}]" + excusing("reads"), strict=True)
        == []
    )


COMPOSITE = """
CREATE TABLE events (tenant text NOT NULL, id bigint NOT NULL, at bigint, PRIMARY KEY (tenant, id));
CREATE INDEX events_at ON events (at);
CREATE TABLE reads (
    id bigint NOT NULL PRIMARY KEY, tenant text, event_id bigint,
    CONSTRAINT reads_fk FOREIGN KEY (tenant, event_id) REFERENCES events (tenant, id)
);
CREATE INDEX reads_event ON reads (event_id, tenant);
"""


def test_a_composite_foreign_key_is_written_so_that_it_can_be_copied(database: Database) -> None:
    database.script(COMPOSITE)
    reference = '{ table = "reads", columns = ["tenant", "event_id"] }'
    follow, guard = f"with = [{reference}]", f"unless = [{{ referenced_by = {reference} }}]"
    assert findings(database, EVENTS + excusing("reads")) == [
        finding(
            "error",
            "unguarded-reference",
            "events",
            RULE_PATH,
            "reads (tenant, event_id) refers to events, so its rows cannot leave while they are referred to",
            f"let it follow, `{follow}`, or guard the row, `{guard}`",
        )
    ]
    assert findings(database, EVENTS + follow, strict=True) == []
    assert findings(database, EVENTS + guard + excusing("reads"), strict=True) == []


def test_a_composite_reference_may_name_its_columns_in_another_order(database: Database) -> None:
    database.script(COMPOSITE.replace("text", "bigint"))
    reference = '{ table = "reads", columns = ["event_id", "tenant"], to = ["id", "tenant"] }'
    assert findings(database, f"{EVENTS}with = [{reference}]", strict=True) == []
    crossed = reference.replace('to = ["id", "tenant"]', 'to = ["tenant", "id"]')
    assert "unguarded-reference" in codes(findings(database, f"{EVENTS}with = [{crossed}]"))


def test_a_guard_by_a_part_of_a_composite_foreign_key_saves_even_more(database: Database) -> None:
    database.script(COMPOSITE)
    guard = 'unless = [{ referenced_by = { table = "reads", columns = ["event_id"], to = ["id"] } }]'
    assert findings(database, EVENTS + guard + excusing("reads"), strict=True) == []


@pytest.mark.parametrize("action", ["", "ON DELETE CASCADE", "ON DELETE SET NULL"])
def test_a_table_that_refers_to_itself_can_only_be_guarded(database: Database, action: str) -> None:
    database.script(
        "CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, at bigint,"
        f" parent bigint CONSTRAINT tree REFERENCES events (id) {action});"
        "CREATE INDEX events_at ON events (at, id); CREATE INDEX events_parent ON events (parent)"
    )
    guard = 'unless = [{ referenced_by = "events.parent" }]'
    [one] = findings(database, EVENTS)
    assert one.code in ("unguarded-reference", "uncounted-cascade", "silent-update")
    assert one.fix == f"guard the row, `{guard}`"
    assert findings(database, EVENTS + guard, strict=True) == []


# Nested followers


def test_a_foreign_key_to_a_follower_is_followed_inside_it(database: Database) -> None:
    database.script(HEALTHY + child() + child(name="notes", column="read_id", parent="reads"))
    assert findings(database, EVENTS + FOLLOW + excusing("notes")) == [
        finding(
            "error",
            "unguarded-reference",
            "events",
            RULE_PATH,
            "notes.read_id refers to reads, so its rows cannot leave while they are referred to",
            'let it follow too, inside the entry of reads: `with = ["notes.read_id"]`',
        )
    ]
    nested = 'with = [{ table = "reads", columns = ["event_id"], with = ["notes.read_id"] }]'
    assert findings(database, EVENTS + nested, strict=True) == []


def test_a_follower_that_is_referred_to_by_the_row_itself_cannot_be_followed_round(database: Database) -> None:
    database.script(
        "CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, at bigint, last_read bigint);"
        "CREATE INDEX events_at ON events (at, id); CREATE INDEX events_last ON events (last_read);" + child()
    )
    if database.store == "sqlite":
        database.script(
            "DROP TABLE reads; DROP TABLE events;"
            "CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, at bigint,"
            " last_read bigint CONSTRAINT round REFERENCES reads (id));"
            "CREATE INDEX events_at ON events (at, id); CREATE INDEX events_last ON events (last_read);" + child()
        )
    else:
        database.script("ALTER TABLE events ADD CONSTRAINT round FOREIGN KEY (last_read) REFERENCES reads (id)")
    [one] = findings(database, EVENTS + FOLLOW)
    assert (one.code, one.fix) == ("unguarded-reference", "change round: a row cannot follow itself")


# Excuses that a cascade breaks


@pytest.mark.parametrize("kind", ["append_only", "mirror", "elsewhere"])
def test_a_cascade_into_a_table_that_nothing_may_delete_from_breaks_its_excuse(database: Database, kind: str) -> None:
    database.script(HEALTHY + child("ON DELETE CASCADE"))
    text = f"{EVENTS}\n[excused]\nreads = {{ {kind} = 'promised' }}"
    assert findings(database, text) == [
        finding(
            "error",
            "excuse-broken",
            "events",
            RULE_PATH,
            f"reads is excused as {kind}, but the foreign key reads_fk deletes its rows with events's",
            "guard the row, or change reads_fk",
        )
    ]
    assert findings(database, f"{EVENTS}{GUARD}\n[excused]\nreads = {{ {kind} = 'promised' }}", strict=True) == []


def test_a_cascade_below_a_follower_breaks_an_excuse_as_well(database: Database) -> None:
    database.script(HEALTHY + child() + child("ON DELETE CASCADE", name="notes", column="read_id", parent="reads"))
    text = f"{EVENTS}{FOLLOW}\n[excused]\nnotes = {{ append_only = 'law' }}"
    [one] = findings(database, text)
    assert (one.code, one.message) == (
        "excuse-broken",
        "notes is excused as append_only, but the foreign key notes_fk deletes its rows with reads's",
    )


# Rules that delete nothing

MARKING = """
[scheduler]
s = { every = "5m" }
[table.events]
scheduler = "s"
why = "A test."
state = "status"
live = ["new"]
excused = { gone = { elsewhere = "swept by hand" } }
time = { column = "at", unit = "ms" }
[table.events.rule.old]
when = ["done"]
keep = "7d"
then = { mark = "gone" }
"""
MARKED = (
    "CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, status text, at bigint);"
    "CREATE INDEX events_at ON events (status, at, id);"
)


def test_a_row_that_is_marked_stays_and_so_do_those_that_refer_to_it(database: Database) -> None:
    database.script(MARKED + child("ON DELETE CASCADE"))
    assert findings(database, MARKING + excusing("reads"), strict=True) == []


# PostgreSQL's other places for rows


def test_a_foreign_key_of_a_partition_only_counts(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        f"{HEALTHY} CREATE TABLE reads (id bigint, event_id bigint, PRIMARY KEY (id)) PARTITION BY RANGE (id);"
        "CREATE INDEX reads_event ON reads (event_id);"
        "CREATE TABLE reads_1 PARTITION OF reads FOR VALUES FROM (0) TO (10);"
        "ALTER TABLE reads_1 ADD CONSTRAINT part_fk FOREIGN KEY (event_id) REFERENCES events (id) ON DELETE CASCADE"
    )
    assert findings(postgres_database, EVENTS + excusing("reads")) == [
        finding(
            "error",
            "uncounted-cascade",
            "events",
            RULE_PATH,
            "the foreign key part_fk deletes rows of reads with events's, uncounted",
            DECIDE,
        )
    ]
    assert findings(postgres_database, EVENTS + FOLLOW, strict=True) == []


def test_a_foreign_key_of_a_partitioned_table_counts_once(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        f"{HEALTHY} CREATE TABLE reads (id bigint, event_id bigint CONSTRAINT reads_fk REFERENCES events (id),"
        " PRIMARY KEY (id)) PARTITION BY RANGE (id);"
        "CREATE INDEX reads_event ON reads (event_id);"
        "CREATE TABLE reads_1 PARTITION OF reads FOR VALUES FROM (0) TO (10);"
        "CREATE TABLE reads_2 PARTITION OF reads FOR VALUES FROM (10) TO (20)"
    )
    assert codes(findings(postgres_database, EVENTS + excusing("reads"))) == ["unguarded-reference"]
    assert findings(postgres_database, EVENTS + FOLLOW, strict=True) == []


PARTITIONED = """
CREATE TABLE events (id bigint, at bigint, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (1000);
CREATE INDEX events_at ON events (at, id);
"""


def test_a_foreign_key_to_a_partition_counts(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        f"{PARTITIONED} CREATE TABLE reads (id bigint PRIMARY KEY, event_id bigint, event_at bigint,"
        " CONSTRAINT reads_fk FOREIGN KEY (event_id, event_at) REFERENCES events_1 (id, at));"
        "CREATE INDEX reads_event ON reads (event_id, event_at)"
    )
    assert codes(findings(postgres_database, EVENTS + excusing("reads"))) == ["unguarded-reference"]
    follow = 'with = [{ table = "reads", columns = ["event_id", "event_at"] }]'
    assert findings(postgres_database, EVENTS + follow, strict=True) == []


def test_a_foreign_key_of_an_inheriting_table_counts(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        f"{HEALTHY} CREATE TABLE reads (id bigint PRIMARY KEY, event_id bigint); CREATE INDEX r ON reads (event_id);"
        "CREATE TABLE reads_old (CONSTRAINT old_fk FOREIGN KEY (event_id) REFERENCES events (id)) INHERITS (reads)"
    )
    assert codes(findings(postgres_database, EVENTS + excusing("reads"))) == ["unguarded-reference"]
    assert findings(postgres_database, EVENTS + FOLLOW, strict=True) == []


def test_a_cascade_of_a_table_that_is_named_like_wanes_own_counts(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script(HEALTHY + child("ON DELETE CASCADE", name="Wane_orders"))
    assert codes(findings(sqlite_database, EVENTS + excusing("Wane_orders"))) == ["uncounted-cascade"]
    assert findings(sqlite_database, EVENTS + 'with = ["Wane_orders.event_id"]', strict=True) == []


def test_a_cascade_of_an_extensions_table_counts(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(HEALTHY + child("ON DELETE CASCADE") + "ALTER EXTENSION plpgsql ADD TABLE reads")
    try:
        assert codes(findings(postgres_database, EVENTS + excusing("reads"))) == ["uncounted-cascade"]
        assert findings(postgres_database, EVENTS + FOLLOW, strict=True) == []
    finally:
        postgres_database.script("ALTER EXTENSION plpgsql DROP TABLE reads")


def test_a_cascade_of_a_table_in_wanes_schema_counts(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        f"{HEALTHY} CREATE SCHEMA wane; {child('ON DELETE CASCADE')} ALTER TABLE reads SET SCHEMA wane"
    )
    assert codes(findings(postgres_database, EVENTS + excusing("'wane.reads'"))) == ["uncounted-cascade"]


def test_a_cascade_of_an_inheriting_table_in_the_middle_counts(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        f"{HEALTHY} CREATE TABLE side (x int); CREATE TABLE reads (id bigint PRIMARY KEY, event_id bigint);"
        "CREATE INDEX r ON reads (event_id); CREATE TABLE reads_old (CONSTRAINT old_fk FOREIGN KEY (event_id)"
        " REFERENCES events (id) ON DELETE CASCADE) INHERITS (side, reads)"
    )
    assert codes(findings(postgres_database, EVENTS + excusing("reads", "side"))) == ["uncounted-cascade"]
    assert findings(postgres_database, EVENTS + FOLLOW + excusing("side"), strict=True) == []


def test_a_foreign_key_in_another_schema_is_shown_with_it(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        f"{HEALTHY} CREATE SCHEMA app; CREATE TABLE app.reads (id bigint PRIMARY KEY,"
        " event_id bigint CONSTRAINT reads_fk REFERENCES events (id)); CREATE INDEX r ON app.reads (event_id)"
    )
    [one] = findings(postgres_database, EVENTS + excusing("'app.reads'"))
    assert one.message.startswith("app.reads.event_id refers to events")
    assert 'with = ["app.reads.event_id"]' in one.fix
    assert findings(postgres_database, f'{EVENTS}with = ["app.reads.event_id"]', strict=True) == []


# Triggers, rules, row security

TRIGGERED = "make sure that it does neither; a batch that deletes fewer rows than it matched fails"


def triggered(name: str, table: str = "events") -> object:
    message = f"{name} fires when rows of {table} are deleted: it may keep them or change other rows, uncounted"
    return finding("warning", "delete-trigger", "events", RULE_PATH, message, TRIGGERED)


def trigger(store: str, when: str, table: str = "events", name: str = "keeper") -> str:
    if store == "sqlite":
        return f"CREATE TRIGGER {name} {when} ON {table} BEGIN SELECT 1; END"
    return (
        "CREATE OR REPLACE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog"
        " AS 'BEGIN RETURN NULL; END';"
        f"CREATE TRIGGER {name} {when} ON {table} FOR EACH ROW EXECUTE FUNCTION nothing()"
    )


def test_a_trigger_whose_names_depend_on_the_session_is_reported(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(HEALTHY + trigger("postgres", "AFTER DELETE"))
    postgres_database.execute("ALTER FUNCTION nothing() RESET search_path")
    [found] = findings(postgres_database, EVENTS)
    assert found.code == "delete-trigger"
    assert '`ALTER FUNCTION public.nothing() SET search_path = "public", pg_temp`' in found.fix


@pytest.mark.parametrize("when", ["BEFORE DELETE", "AFTER DELETE"])
def test_a_delete_trigger_is_reported(database: Database, when: str) -> None:
    database.script(HEALTHY + trigger(database.store, when))
    assert findings(database, EVENTS) == [triggered("keeper")]


@pytest.mark.parametrize("when", ["BEFORE INSERT", "AFTER UPDATE"])
def test_a_trigger_on_something_else_is_not(database: Database, when: str) -> None:
    database.script(HEALTHY + trigger(database.store, when))
    assert findings(database, EVENTS, strict=True) == []


def test_a_delete_trigger_of_a_follower_is_reported(database: Database) -> None:
    database.script(HEALTHY + child() + trigger(database.store, "AFTER DELETE", "reads"))
    assert findings(database, EVENTS + FOLLOW) == [triggered("keeper", "reads")]


def test_a_delete_trigger_does_not_matter_to_rows_that_are_marked(database: Database) -> None:
    database.script(MARKED + trigger(database.store, "BEFORE DELETE"))
    assert findings(database, MARKING, strict=True) == []


def test_a_disabled_trigger_does_nothing(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(HEALTHY + trigger("postgres", "BEFORE DELETE"))
    postgres_database.script("ALTER TABLE events DISABLE TRIGGER keeper")
    assert findings(postgres_database, EVENTS, strict=True) == []


def test_a_delete_trigger_of_one_partition_is_reported(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(PARTITIONED + trigger("postgres", "BEFORE DELETE", "events_1"))
    assert findings(postgres_database, EVENTS) == [triggered("keeper")]


def test_a_delete_trigger_of_a_partitioned_table_is_reported_once(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(PARTITIONED + trigger("postgres", "AFTER DELETE"))
    assert findings(postgres_database, EVENTS) == [triggered("keeper")]


def test_a_rewrite_rule_on_delete_is_reported(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(HEALTHY + "CREATE RULE soft AS ON DELETE TO events DO INSTEAD NOTHING")
    assert findings(postgres_database, EVENTS) == [triggered("soft")]


@pytest.mark.parametrize("contract", [EVENTS, MARKING], ids=["prune", "mark"])
def test_row_security_is_reported(postgres_database: PostgresDatabase, contract: str) -> None:
    postgres_database.script(MARKED + "CREATE INDEX at ON events (at, id)")
    assert findings(postgres_database, contract, strict=True) == []
    postgres_database.script("ALTER TABLE events ENABLE ROW LEVEL SECURITY")
    assert findings(postgres_database, contract) == [], "it does not apply to a superuser"
    with role(postgres_database, "GRANT SELECT ON events TO ROLE") as url:
        found = [one for one in findings(postgres_database, contract, url=url) if one.code == "row-security"]
        assert found == [
            finding(
                "warning",
                "row-security",
                "events",
                RULE_PATH,
                "row-level security of events hides rows from this role; Wane refuses to read so",
                "run Wane as a role with BYPASSRLS, which members of it do not inherit, or as the table's owner, unless the"
                " table has FORCE ROW LEVEL SECURITY",
            )
        ]


def test_row_security_of_a_follower_is_reported(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(HEALTHY + child() + "ALTER TABLE reads ENABLE ROW LEVEL SECURITY")
    twice = f"{EVENTS}{FOLLOW}\n[table.events.rule.older]\nkeep = '90d'\n{FOLLOW}"
    assert findings(postgres_database, twice) == [], "it does not apply to a superuser"
    with role(postgres_database, "GRANT SELECT ON events, reads TO ROLE") as url:
        [one] = [one for one in findings(postgres_database, twice, url=url) if one.code == "row-security"]
    assert one.message.partition(" hides")[0] == "row-level security of reads", "once, for both rules"


def test_an_update_of_rows_that_leave_in_the_same_batch_is_a_note(database: Database) -> None:
    """The newest state of a run follows the run, and the run refers to it."""
    database.script(HEALTHY + child() + "CREATE INDEX reads_event ON reads (event_id);")
    database.execute("ALTER TABLE events ADD COLUMN read_id bigint REFERENCES reads (id) ON DELETE SET NULL")
    [one] = [one for one in findings(database, EVENTS + FOLLOW) if one.code == "silent-update"]
    assert (one.severity, one.fix) == ("note", "nothing, if each refers to its own rows")
    assert "changes read_id of events when reads's rows leave, and events's rows leave with them" in one.message


def test_a_foreign_key_of_an_attached_database_is_its_own(sqlite_database: SqliteDatabase) -> None:
    other = SqliteDatabase(sqlite_database.path.with_name("other.db"))
    other.script(HEALTHY + child("ON DELETE CASCADE"))
    other.close()
    sqlite_database.script(HEALTHY)
    text = (
        "[store]\nattach = { app = 'other.db' }\n"
        + EVENTS.replace("table.events", 'table."main.events"')
        + "\n[excused]\n'app.reads' = { inline = 'a' }\n'app.events' = { inline = 'b' }"
    )
    # Two files, two tables of one name, and no foreign key between the files.
    assert findings(sqlite_database, text, strict=True) == []


NOTED = """
[table.reads]
scheduler = "s"
why = "A test."
time = { column = "at", unit = "ms" }
state = "queue"
live = ["open", "new"]
[table.reads.rule.old]
when = ["sent"]
keep = "7d"
"""


READS_WITH_TIME = " ALTER TABLE reads ADD COLUMN at bigint; CREATE INDEX reads_at ON reads (queue, at, id);"


def test_followers_that_leave_in_a_live_state_are_named(database: Database) -> None:
    database.script(HEALTHY + child() + READS_WITH_TIME)
    leaving = 'with = [{ table = "reads", columns = "event_id", live = "leave" }]'
    message = "rows of reads in a live state ('open', 'new') leave with rows of events"
    fix = 'to let a live row of reads keep the row that it follows, remove `live = "leave"`'
    named = finding("note", "live-follower", "events", RULE_PATH, message, fix)
    assert findings(database, EVENTS + leaving + NOTED, strict=True) == [named]
    assert findings(database, EVENTS + FOLLOW + NOTED, strict=True) == []
    without = NOTED.replace('["open", "new"]', "[]")
    assert findings(database, EVENTS + leaving + without) == []


def test_a_follower_of_a_follower_that_leaves_in_a_live_state_is_named(database: Database) -> None:
    database.script(HEALTHY + child(name="parts") + child(parent="parts") + READS_WITH_TIME)
    inner = '{ table = "reads", columns = "event_id", live = "leave" }'
    text = f'{EVENTS}with = [{{ table = "parts", columns = "event_id", with = [{inner}] }}]{NOTED}'
    [named] = findings(database, text)
    assert (named.code, named.message) == (
        "live-follower",
        "rows of reads in a live state ('open', 'new') leave with rows of parts",
    )
