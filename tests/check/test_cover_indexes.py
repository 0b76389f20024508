"""Indexes: a rule's oldest rows are found without reading the whole table, or the missing index is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from covering import EVENTS, HEALTHY, RULE_PATH, TABLE, codes, finding, findings, loaded, numbers
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._db import open_store
from wane._db.url import resolve_url
from wane._findings import Finding
from wane._rules import access
from wane._rules.queries import queries_of
from wane._rules.selection import bind_contract

NO_INDEX = "no index finds the rule's oldest rows, so every batch reads the whole table"
STATES = EVENTS.replace('why = "A test."', 'why = "A test."\nstate = "status"\nlive = ["new"]')
STATED = "CREATE TABLE events (id bigint NOT NULL PRIMARY KEY, status text, at bigint, parent bigint, tenant text, done bigint);"


def only(found: list[Finding], code: str) -> Finding:
    assert codes(found) == [code]
    return found[0]


def ddl(store: str, columns: str, table: str = "events", name: str = "") -> str:
    named = name or f"{table}_{columns.replace(', ', '_')}_idx"
    quoted = ", ".join(f'"{column}"' for column in columns.split(", "))
    if store == "sqlite":
        return f'CREATE INDEX "{named}" ON "{table}" ({quoted});'
    return f'CREATE INDEX CONCURRENTLY "{named}" ON "public"."{table}" ({quoted});'


@pytest.mark.parametrize(
    ("rule", "columns"),
    [
        ('when = ["done"]\nkeep = "7d"', "status, at, id"),
        ('when = ["done", "failed"]\nkeep = "7d"', "status, at, id"),
        ('when = ["done"]\nexpires = { column = "done", unit = "ms" }', "status, done, id"),
        ('when = ["done"]\nmost = 5', "status, at, id"),
        ('when = ["done"]\nmost = 5\nper = "tenant"', "tenant, status, at, id"),
        ('when = ["done"]\nkeep = "7d"\norphans = "parent"', "status, parent, at, id"),
        ('when = ["done"]\nkeep = "7d"\nunless = [{ null = "done" }]', "status, at, id"),
        ('when = ["done"]\nkeep = "7d"\nwhere = { tenant = "a", parent = { ">" = 5 } }', "status, tenant, at, id"),
        ('when = "*"\nkeep = "7d"', "at, id"),
    ],
    ids=["state", "states", "expiry", "cap", "cap per scope", "orphans", "guard", "condition", "every other state"],
)
def test_the_printed_index_is_the_one_that_serves(database: Database, rule: str, columns: str) -> None:
    database.script(STATED)
    text = STATES.replace('keep = "7d"', rule)
    expected = finding("note", "no-index", "events", RULE_PATH, NO_INDEX, ddl(database.store, columns))
    assert findings(database, text) == [expected]
    database.execute(expected.fix)
    assert findings(database, text, strict=True) == []


def test_the_age_that_a_table_declares_needs_an_index_too(database: Database) -> None:
    database.script(f"{STATED} CREATE INDEX events_due ON events (status, at, id)")
    text = STATES.replace('keep = "7d"', 'when = ["done"]\nkeep = "7d"')
    text = text.replace("live =", 'age = { column = "done", unit = "ms" }\nlive =')
    message = "no index is in the order of done, so the oldest row is reported only while the table is small"
    expected = finding(
        "warning", "no-age-index", "events", "table.events.age", message, ddl(database.store, "done, id")
    )
    assert findings(database, text) == [expected]
    database.execute("CREATE INDEX events_age ON events (status, done, id)")
    assert findings(database, text) == [], "one walk for each state will do"
    database.execute("DROP INDEX events_age")
    database.execute(expected.fix)
    assert findings(database, text, strict=True) == []


def test_an_index_by_state_and_time_serves_a_condition_too(database: Database) -> None:
    database.script(f"{STATED} CREATE INDEX events_due ON events (status, at, id)")
    text = STATES.replace('keep = "7d"', 'when = ["done"]\nkeep = "7d"\nwhere = { tenant = "a" }')
    assert findings(database, text) == []


def test_the_newest_rows_of_a_scope_need_an_index(database: Database) -> None:
    database.script(f"{STATED} CREATE INDEX events_due ON events (status, at, id)")
    spare = 'spare = { newest = 1, per = "tenant" }'
    text = STATES.replace('keep = "7d"', f'when = ["done"]\nkeep = "7d"\n{spare}')
    message = "no index finds the newest rows, which the rule spares, so every row that is old enough reads many others"
    expected = finding(
        "warning", "no-spare-index", "events", RULE_PATH, message, ddl(database.store, "tenant, status, at, id")
    )
    assert findings(database, text) == [expected]
    database.execute(expected.fix)
    assert findings(database, text, strict=True) == []


def test_a_rule_without_states_needs_time_and_key_only(database: Database) -> None:
    database.script(TABLE)
    assert findings(database, EVENTS) == [
        finding("note", "no-index", "events", RULE_PATH, NO_INDEX, ddl(database.store, "at, id"))
    ]
    database.execute(ddl(database.store, "at, id"))
    assert findings(database, EVENTS, strict=True) == []


def test_names_that_need_quotes_are_quoted_in_the_printed_statement(database: Database) -> None:
    database.script('CREATE TABLE "Odd ""Table""" ("a key" bigint NOT NULL PRIMARY KEY, "select %" bigint)')
    name = "table.'" + '"Odd ""Table"""' + "'"
    text = EVENTS.replace("table.events", name).replace('"at"', '"select %"')
    one = only(findings(database, text), "no-index")
    assert '"Odd ""Table""" ("select %", "a key");' in one.fix
    database.execute(one.fix)
    assert findings(database, text, strict=True) == []


BY_KEY = "no index finds the rule's oldest rows, so sweeps walk the table by its key, all of it"


def test_a_missing_index_is_worth_a_warning_from_a_thousand_rows_on(database: Database) -> None:
    database.script(f"{TABLE} INSERT INTO events SELECT n, 1700000000000 + n FROM {numbers(999)}")
    assert only(findings(database, EVENTS), "no-index").severity == "note"
    database.execute("INSERT INTO events VALUES (1000, 1700000001000)")
    assert only(findings(database, EVENTS), "no-index").severity == "warning"


def test_a_large_table_without_an_index_is_walked_by_its_key(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LARGE", 100)
    database.script(TABLE)
    database.executemany("INSERT INTO events VALUES (?, ?)", ((i, 1_700_000_000_000 + i) for i in range(99)))
    assert only(findings(database, EVENTS), "no-index").message == NO_INDEX
    database.execute("INSERT INTO events VALUES (100, 1700000000100)")
    one = only(findings(database, EVENTS), "no-index")
    assert (one.severity, one.message, one.fix) == ("warning", BY_KEY, ddl(database.store, "at, id"))
    capped = EVENTS.replace('keep = "7d"', "most = 5")
    assert only(findings(database, capped), "no-index").message == NO_INDEX, "a cap has no other order"


# What the query plan decides


def events(database: Database, statuses: str, index: str, rows: int = 5_000) -> None:
    """Insert rows of `events`, a second apart, whose status is an expression over their number."""
    database.script(f"{STATED} CREATE INDEX other ON events {index}")
    database.execute(
        f"INSERT INTO events (id, status, at, tenant) SELECT n, {statuses}, 1600000000000 + n * 1000, 'acme'"
        f" FROM {numbers(rows)}"
    )
    database.execute("ANALYZE events")


@pytest.mark.parametrize("index", ["(at)", "(at, id)", "(at, status)", "(tenant)"])
def test_an_index_by_time_only_serves_a_state_that_nearly_all_rows_have(database: Database, index: str) -> None:
    events(database, "CASE WHEN n % 1000 = 0 THEN 'new' ELSE 'done' END", index)
    served = "at" in index
    assert codes(findings(database, STATES + 'when = ["done"]')) == ([] if served else ["no-index"])


def test_a_cap_is_served_by_an_index_by_time_only(database: Database) -> None:
    events(database, "CASE WHEN n % 1000 = 0 THEN 'new' ELSE 'done' END", "(at, id)")
    text = STATES.replace('keep = "7d"', 'when = ["done"]\nmost = 50')
    assert codes(findings(database, text)) == []


def test_few_rows_of_a_state_are_read_and_sorted(postgres_database: PostgresDatabase) -> None:
    events(postgres_database, "CASE WHEN n % 1000 = 0 THEN 'done' ELSE 'new' END", "(status)", rows=50_000)
    assert codes(findings(postgres_database, STATES + 'when = ["done"]')) == []
    postgres_database.execute("UPDATE events SET status = 'done' WHERE id % 2 = 0")
    postgres_database.execute("ANALYZE events")
    assert codes(findings(postgres_database, STATES + 'when = ["done"]')) == ["no-index"]


def test_old_partitions_are_read_whole(postgres_database: PostgresDatabase) -> None:
    postgres_database.execute(
        "CREATE TABLE events (id bigint, at bigint NOT NULL, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)"
    )
    hour = 3_600_000
    now = postgres_database.query("SELECT (extract(epoch FROM now()) * 1000)::bigint")[0][0]
    for n in range(20):
        begin = now - (10 * 24 - 12 * n + 6) * hour
        end = begin + 12 * hour
        postgres_database.execute(f"CREATE TABLE events_{n} PARTITION OF events FOR VALUES FROM ({begin}) TO ({end})")
    rows = f"SELECT n, {now} - 10 * 24 * {hour}::bigint + n * 80000 FROM {numbers(10_000)}"
    postgres_database.execute(f"INSERT INTO events {rows}")
    postgres_database.execute("ANALYZE events")
    assert codes(findings(postgres_database, EVENTS)) == ["no-index"], "a third of it is due"
    postgres_database.execute(f"DELETE FROM events WHERE at < {now} - 7 * 24 * {hour}::bigint - {hour}")
    postgres_database.execute("VACUUM ANALYZE events")
    assert codes(findings(postgres_database, EVENTS)) == []


# Indexes that seem to serve


@pytest.mark.parametrize(
    "index",
    [
        "(status)",
        "(at, status)",
        "(id, status, at)",
        "(status, id, at)",
        "(status, tenant, at)",
        "(status, at) WHERE status = 'new'",
        "(at) WHERE status = 'new'",
        "(at) WHERE tenant = 'done'",
        "(status, at) WHERE done IS NOT NULL",
        "(status, at) WHERE at IS NULL",
        "(status, (at + 1))",
        "(lower(status), at)",
        "(status, at) WHERE at > 5",
        "(status, at) WHERE status = 'done' OR done IS NULL",
    ],
)
def test_an_index_that_does_not_find_the_oldest_rows_does_not_count(database: Database, index: str) -> None:
    database.script(f"{STATED} CREATE INDEX other ON events {index}")
    assert only(findings(database, STATES + 'when = ["done"]'), "no-index").fix == ddl(database.store, "status, at, id")


@pytest.mark.parametrize(
    "index",
    [
        "(status, at)",
        "(status, at DESC)",
        "(status DESC, at, tenant)",
        "(status, at) WHERE at IS NOT NULL",
        "(status, at) WHERE done IS NOT NULL",
        "(status, at) WHERE done is not null AND at IS NOT NULL",
    ],
)
def test_an_index_that_finds_the_oldest_rows_counts(database: Database, index: str) -> None:
    database.script(f"{STATED} CREATE INDEX other ON events {index}")
    text = STATES + 'when = ["done"]\nunless = [{ null = "done" }]'
    assert findings(database, text, strict=True) == []
    assert "other" in plan_of_the_oldest(database, text)


@pytest.mark.parametrize(
    ("index", "when"),
    [
        ("(at) WHERE status = 'done'", '["done"]'),
        ("(at) WHERE status = 'do''ne'", """["do'ne"]"""),
        ("(status, at) WHERE status IN ('done', 'failed', 'dead')", '["done", "failed"]'),
        ("(at) WHERE status = 'done' AND at IS NOT NULL", '["done"]'),
    ],
)
def test_postgres_uses_an_index_over_the_rules_states_only(
    postgres_database: PostgresDatabase, index: str, when: str
) -> None:
    postgres_database.script(f"{STATED} CREATE INDEX other ON events {index}")
    assert findings(postgres_database, f"{STATES}when = {when}", strict=True) == []
    assert "other" in plan_of_the_oldest(postgres_database, f"{STATES}when = {when}")


def test_sqlite_does_not_use_an_index_over_the_rules_states_only(sqlite_database: SqliteDatabase) -> None:
    """It decides before it knows the bound values, so such an index is not counted on."""
    sqlite_database.script(f"{STATED} CREATE INDEX other ON events (at) WHERE status = 'done'")
    text = f'{STATES}when = ["done"]'
    assert only(findings(sqlite_database, text), "no-index").fix == ddl("sqlite", "status, at, id")
    assert "other" not in plan_of_the_oldest(sqlite_database, text)


def test_postgres_uses_an_index_over_states_that_are_numbers(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        f"{STATED.replace('status text', 'status smallint')} CREATE INDEX other ON events (at) WHERE status = 3"
    )
    text = STATES.replace('["new"]', "[1]")
    assert findings(postgres_database, f"{text}when = [3]", strict=True) == []
    assert "other" in plan_of_the_oldest(postgres_database, f"{text}when = [3]")
    assert codes(findings(postgres_database, f"{text}when = [4]")) == ["no-index"]


def test_an_index_over_orphans_serves_orphans(database: Database) -> None:
    database.script(f"{STATED} CREATE INDEX other ON events (at, id) WHERE parent IS NULL")
    text = EVENTS.replace('keep = "7d"', 'keep = "7d"\norphans = "parent"')
    assert findings(database, text, strict=True) == []
    assert "other" in plan_of_the_oldest(database, text)
    assert codes(findings(database, EVENTS)) == ["no-index"]


@pytest.mark.parametrize("method", ["hash (at)", "brin (at)"])
def test_only_a_btree_is_in_the_order_of_time(postgres_database: PostgresDatabase, method: str) -> None:
    postgres_database.script(f"{TABLE} CREATE INDEX other ON events USING {method}")
    assert codes(findings(postgres_database, EVENTS)) == ["no-index"]


def test_included_columns_are_not_searched(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(f"{STATED} CREATE INDEX other ON events (status) INCLUDE (at)")
    assert codes(findings(postgres_database, STATES + 'when = ["done"]')) == ["no-index"]
    postgres_database.script("CREATE INDEX another ON events (status, at) INCLUDE (tenant)")
    assert findings(postgres_database, STATES + 'when = ["done"]', strict=True) == []


def test_an_index_whose_building_failed_does_not_count(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(f"{TABLE} CREATE INDEX other ON events (at, id)")
    postgres_database.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'other'::regclass")
    assert codes(findings(postgres_database, EVENTS)) == ["no-index"]


def test_a_partitioned_table_gets_an_index_that_it_can_have(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(
        "CREATE TABLE events (id bigint, at bigint, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);"
        "CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (1000);"
        "CREATE INDEX part ON events_1 (at)"
    )
    one = only(findings(postgres_database, EVENTS), "no-index")
    assert one.fix == 'CREATE INDEX "events_at_id_idx" ON "public"."events" ("at", "id");'
    postgres_database.execute(one.fix)
    assert findings(postgres_database, EVENTS, strict=True) == []


ISO = EVENTS.replace('unit = "ms"', 'unit = "iso"')


def collation(database: PostgresDatabase) -> str:
    """Return a collation whose order is not that of bytes, by name; "" if this PostgreSQL has none."""
    names = database.query("SELECT collname FROM pg_collation WHERE collname = 'en-x-icu'")
    return f'COLLATE "{names[0][0]}"' if names else ""


def test_an_index_in_the_order_of_a_language_does_not_serve_texts(postgres_database: PostgresDatabase) -> None:
    language = collation(postgres_database)
    postgres_database.script(
        f"CREATE TABLE events (id bigint PRIMARY KEY, at text {language}); CREATE INDEX other ON events (at, id)"
    )
    if not language:
        # Without ICU every order is that of bytes, and so is the index's.
        assert findings(postgres_database, ISO, strict=True) == []
        return
    one = only(findings(postgres_database, ISO), "no-index")
    assert one.fix == ('CREATE INDEX CONCURRENTLY "events_at_id_idx" ON "public"."events" ("at" COLLATE "C", "id");')
    postgres_database.execute(one.fix)
    assert findings(postgres_database, ISO, strict=True) == []
    assert "events_at_id_idx" in plan_of_the_oldest(postgres_database, ISO)


def test_an_index_in_the_databases_own_order_serves_texts_only_if_that_is_of_bytes(
    postgres_database: PostgresDatabase,
) -> None:
    postgres_database.script("CREATE TABLE events (id bigint PRIMARY KEY, at text); CREATE INDEX other ON events (at)")
    with open_store(resolve_url(postgres_database.url)) as store:
        [table] = store.reflect().tables
    bytewise = table.columns[1].collation is None
    assert codes(findings(postgres_database, ISO)) == ([] if bytewise else ["no-index"])
    postgres_database.script('CREATE INDEX bytewise ON events (at COLLATE "C")')
    assert findings(postgres_database, ISO, strict=True) == []
    assert ("other" if bytewise else "bytewise") in plan_of_the_oldest(postgres_database, ISO) or bytewise


def test_an_index_without_regard_to_case_does_not_serve_texts(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script(
        "CREATE TABLE events (id INTEGER PRIMARY KEY, at TEXT COLLATE NOCASE); CREATE INDEX other ON events (at)"
    )
    one = only(findings(sqlite_database, ISO), "no-index")
    assert one.fix == 'CREATE INDEX "events_at_id_idx" ON "events" ("at" COLLATE BINARY, "id");'
    sqlite_database.execute(one.fix)
    assert findings(sqlite_database, ISO, strict=True) == []
    assert "events_at_id_idx" in plan_of_the_oldest(sqlite_database, ISO)


def test_the_primary_key_serves_where_it_leads_with_the_time(database: Database) -> None:
    database.script("CREATE TABLE events (at bigint NOT NULL, id bigint NOT NULL, PRIMARY KEY (at, id))")
    assert findings(database, EVENTS, strict=True) == []


# References

CHILD = "CREATE TABLE reads (id bigint NOT NULL PRIMARY KEY, event_id bigint, tenant text, kid_id bigint);"
NO_REFERENCE_INDEX = "no index of reads starts with event_id, so every row that leaves reads all of it"


@pytest.mark.parametrize(
    "rule", ['with = ["reads.event_id"]', 'unless = [{ referenced_by = "reads.event_id" }]'], ids=["follower", "guard"]
)
def test_a_reference_needs_an_index_on_its_own_side(database: Database, rule: str) -> None:
    database.script(HEALTHY + CHILD)
    text = f"{EVENTS}{rule}\n" + ("" if rule.startswith("with") else '[excused]\nreads = { inline = "soon" }')
    expected = finding(
        "warning",
        "no-reference-index",
        "events",
        RULE_PATH,
        NO_REFERENCE_INDEX,
        ddl(database.store, "event_id", "reads"),
    )
    assert findings(database, text) == [expected]
    database.execute(expected.fix)
    assert findings(database, text, strict=True) == []


def test_a_nested_follower_needs_an_index_too(database: Database) -> None:
    database.script(
        f"{HEALTHY}{CHILD} CREATE TABLE kids (id bigint NOT NULL PRIMARY KEY, event_id bigint);"
        "CREATE INDEX kids_event ON kids (event_id)"
    )
    text = f'{EVENTS}with = [{{ table = "kids", columns = ["event_id"], with = ["reads.kid_id"] }}]'
    one = only(findings(database, text), "no-reference-index")
    assert one.message == "no index of reads starts with kid_id, so every row that leaves reads all of it"
    database.execute(one.fix)
    assert findings(database, text, strict=True) == []


def test_only_the_archive_is_refused_a_large_table_without_an_index(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(access, "LARGE", 100)
    database.script(HEALTHY + CHILD)
    text = f'{EVENTS}with = ["reads.event_id"]\n'
    archived = f'{text}then = "archive"\n[archive]\nurl = "{tmp_path}"\n[archive.events]\nkeep = "forever"'
    database.executemany("INSERT INTO events VALUES (?, ?)", ((i, 1_700_000_000_000 + i) for i in range(100)))
    assert only(findings(database, archived), "no-reference-index").severity == "warning"
    database.executemany("INSERT INTO reads (id, event_id) VALUES (?, ?)", ((i, i) for i in range(100)))
    assert only(findings(database, text), "no-reference-index").severity == "warning"
    assert only(findings(database, archived), "no-reference-index").severity == "error"


@pytest.mark.parametrize(
    ("index", "serves"),
    [("(tenant, event_id)", True), ("(event_id, tenant)", True), ("(tenant)", False), ("(kid_id, event_id)", False)],
)
def test_an_index_over_what_a_follower_has_in_common_finds_references(
    database: Database, index: str, serves: bool
) -> None:
    database.script(f"{HEALTHY}{CHILD} CREATE INDEX other ON reads {index}")
    database.execute(f"INSERT INTO events SELECT n, 1600000000000 + n FROM {numbers(3_000)}")
    database.execute(
        f"INSERT INTO reads SELECT n, n, CASE WHEN n % 2 = 0 THEN 'run' ELSE 'other' END, n FROM {numbers(3_000)}"
    )
    database.script("ANALYZE events; ANALYZE reads")
    followed = 'with = [{ table = "reads", columns = ["event_id"], where = { tenant = "run" } }]'
    assert codes(findings(database, f"{EVENTS}{followed}")) == ([] if serves else ["no-reference-index"])


def test_an_index_by_the_first_column_of_a_reference_finds_it(database: Database) -> None:
    database.script(
        "CREATE TABLE events (tenant text NOT NULL, id bigint NOT NULL, at bigint, PRIMARY KEY (tenant, id));"
        f"CREATE INDEX events_at ON events (at); {CHILD} CREATE INDEX other ON reads (event_id, id)"
    )
    database.execute(f"INSERT INTO events SELECT 'a', n, 1600000000000 + n FROM {numbers(3_000)}")
    database.execute(f"INSERT INTO reads SELECT n, n, 'a', n FROM {numbers(3_000)}")
    database.script("ANALYZE events; ANALYZE reads")
    text = f'{EVENTS}with = [{{ table = "reads", columns = ["tenant", "event_id"] }}]'
    assert codes(findings(database, text)) == []


@pytest.mark.parametrize(
    ("index", "serves"),
    [
        ("(event_id) WHERE event_id IS NOT NULL", True),
        ("(event_id, tenant)", True),
        ("(tenant, event_id)", False),
        ("(event_id) WHERE tenant IS NOT NULL", False),
        ("((event_id + 1))", False),
    ],
)
def test_which_indexes_find_references(database: Database, index: str, serves: bool) -> None:
    database.script(f"{HEALTHY}{CHILD} CREATE INDEX other ON reads {index}")
    found = findings(database, f'{EVENTS}with = ["reads.event_id"]')
    assert codes(found) == ([] if serves else ["no-reference-index"])


@pytest.mark.parametrize(("method", "serves"), [("hash", True), ("brin", False)])
def test_which_methods_find_references(postgres_database: PostgresDatabase, method: str, serves: bool) -> None:
    postgres_database.script(f"{HEALTHY}{CHILD} CREATE INDEX other ON reads USING {method} (event_id)")
    found = findings(postgres_database, f'{EVENTS}with = ["reads.event_id"]')
    assert codes(found) == ([] if serves else ["no-reference-index"])


def test_a_composite_reference_may_stand_in_any_order(database: Database) -> None:
    database.script(
        "CREATE TABLE events (tenant text NOT NULL, id bigint NOT NULL, at bigint, PRIMARY KEY (tenant, id));"
        f"CREATE INDEX events_at ON events (at); {CHILD} CREATE INDEX other ON reads (event_id, tenant)"
    )
    text = f'{EVENTS}with = [{{ table = "reads", columns = ["tenant", "event_id"] }}]'
    assert findings(database, text, strict=True) == []
    database.script("DROP INDEX other; CREATE INDEX other ON reads (event_id, id)")
    one = only(findings(database, text), "no-reference-index")
    assert one.message.startswith("no index of reads starts with tenant, event_id, ")


def plan_of_the_oldest(database: Database, text: str) -> str:
    """Return how the database finds the rule's oldest rows, if it prefers an index to reading everything."""
    contract = loaded(text)
    database.execute("ANALYZE")
    with open_store(resolve_url(database.url)) as store:
        [selection], _ = bind_contract(contract, store.reflect(), store.types)
        statement = queries_of(store).edge_due(selection, store.now(), newest=False)
        if database.store == "postgres":
            connection = database.connect()
            connection.execute("SET enable_seqscan = off")
            rows = connection.execute(f"EXPLAIN {statement.text}".encode(), statement.parameters).fetchall()
            return "\n".join(line for (line,) in rows)
        return store.planner.explain(statement)
