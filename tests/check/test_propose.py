"""A proposed contract says what was found, passes for nobody, and fits the database once every open value is
decided."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from covering import numbers
from servers import Database, PostgresDatabase, SqliteDatabase
from wane._check import candidates
from wane._check.candidates import Samples
from wane._check.propose import propose
from wane._contract import toml
from wane._contract.load import read_contract
from wane._contract.names import TableName
from wane._contract.settings import StoreSettings
from wane._db import Store, open_store
from wane._db.counting import Count, distinct
from wane._db.schema import Column, TableInfo
from wane._db.url import resolve_url
from wane._demo.seed import attached_path, seed
from wane._findings import Finding
from wane._rules.reads import read_due
from wane._rules.selection import bind_contract

OPEN = "DECIDE"
NOW = datetime.now(UTC)

# The same logical columns, spelled for each store.
SPELLING = {
    "sqlite": {"timestamp": "TEXT", "number": "INTEGER", "text": "TEXT", "bool": "INTEGER"},
    "postgres": {"timestamp": "timestamptz", "number": "bigint", "text": "text", "bool": "boolean"},
}


def opened(database: Database, settings: StoreSettings | None = None) -> Store:
    return open_store(resolve_url(database.url), settings, read_only=True)


def proposed(database: Database, settings: StoreSettings | None = None) -> str:
    with opened(database, settings) as store:
        return propose(store, url_text="DATABASE_URL")


def script(database: Database, sql: str) -> None:
    for word, spelled in SPELLING[database.store].items():
        sql = sql.replace(f"<{word}>", spelled)
    database.script(sql)


def timestamp(database: Database, value: datetime) -> object:
    return value.strftime("%Y-%m-%d %H:%M:%S") if database.store == "sqlite" else value


def ms(value: datetime) -> int:
    return int(value.timestamp() * 1000)


def section(text: str, table: str) -> str:
    """Return what the proposal has about one table, its rule included."""
    start = text.index(f"[table.{toml.key(table)}]\n")
    ahead = re.compile(r"^\[(?:table\.(?!.*\.rule\.)|excused)", re.MULTILINE).search(text, start + 1)
    assert ahead is not None
    return text[start : ahead.start()]


def open_values(data: object) -> Iterator[str]:
    if isinstance(data, dict):
        for value in data.values():
            yield from open_values(value)
    elif isinstance(data, list):
        for value in data:
            yield from open_values(value)
    elif data == OPEN:
        yield OPEN


def mistakes(text: str, folder: Path) -> tuple[Finding, ...]:
    file = folder / "wane.toml"
    file.write_text(text, encoding="utf-8")
    return read_contract(file).findings


def assert_open_everywhere(text: str, folder: Path) -> None:
    """Require one mistake for every open value and no other; every table and every rule has one."""
    data = tomllib.loads(text)
    found = mistakes(text, folder)
    assert [one for one in found if OPEN not in one.message] == []
    assert len({one.path for one in found}) == len(found) == len(list(open_values(data)))
    for table in data.get("table", {}).values():
        assert table["why"] == OPEN
        for rule in table["rule"].values():
            assert OPEN in open_values(rule)
    for excuse in data["excused"].values():
        assert OPEN in open_values(excuse)


def assert_fits(text: str, database: Database, folder: Path, settings: StoreSettings | None = None) -> None:
    """Decide everything: then the contract has no mistakes and binds to the database."""
    file = folder / "decided.toml"
    with opened(database, settings) as store:
        schema = store.reflect()
        data = tomllib.loads(text)
        data["scheduler"]["default"]["every"] = "5m"
        for name, table in data.get("table", {}).items():
            parsed = TableName.parse(name)
            info = schema.find(parsed.schema, parsed.name)
            assert info is not None
            decide(table, info, section(text, name))
        for excuse in data["excused"].values():
            excuse.update(dict.fromkeys(excuse, "Somebody else sweeps it."))
        file.write_text("".join(f"{key} = {toml.value(value)}\n" for key, value in data.items()), encoding="utf-8")
        reading = read_contract(file)
        assert reading.contract is not None, reading.findings
        assert reading.findings == ()
        selections, findings = bind_contract(reading.contract, schema, store.types)
        assert findings == []
        assert len(selections) == len(list(reading.contract.rules()))
        for selection in selections:
            read_due(store, selection, store.now(), 5.0)


def decide(table: dict[str, Any], info: TableInfo, remarks: str) -> None:
    table["why"] = "Nobody needs these rows any more."
    ended: list[str] = []
    if "live" in table:
        live, *ended = listed_states(remarks, table["state"])
        table["live"] = [live]
    for rule in table["rule"].values():
        for time in (rule.get("expires"), table.get("time"), table.get("age")):
            if isinstance(time, dict):
                decide_time(time, info)
        if "when" in rule:
            rule["when"] = ended or ["ended"]
        if "then" in rule:
            rule["then"] = "prune"
        if "keep" in rule:
            rule["keep"] = "7d" if "time" in table else "forever"
        if rule.get("keep") == "forever":
            rule.pop("with", None)
            rule.pop("unless", None)


def listed_states(remarks: str, column: str) -> list[str]:
    """Return the states as they stand in the remark, ready to be copied."""
    start = f"# {toml.key(column)}: "
    [remark] = [line.removeprefix(start) for line in remarks.splitlines() if line.startswith(start)]
    listed = remark[remark.index('"') : remark.rindex('"') + 1]
    states: list[str] = tomllib.loads(f"states = [{listed}]")["states"]
    return states


def decide_time(time: dict[str, str], info: TableInfo) -> None:
    column = info.column(time["column"])
    assert column is not None
    if time.get("unit") == OPEN:
        time["unit"] = "iso" if "text" in column.type.lower() else "ms"
    if time.get("zone") == OPEN:
        time["zone"] = "UTC"


def taken(text: str) -> str:
    """Return the proposal with its suggestions about references taken."""
    return re.sub(r"^# (with|unless) = ", r"\1 = ", text, flags=re.MULTILINE)


# --- The reference schemas --------------------------------------------------------------------------------------------


@pytest.fixture
def demonstration(database: Database) -> Database:
    seed(database.url, rows=1_500, now=NOW)
    return database


def demonstration_settings(database: Database) -> StoreSettings:
    if not isinstance(database, SqliteDatabase):
        return StoreSettings()
    return StoreSettings(attach=(("iu_core", attached_path(database.path).name),))


def test_the_reference_schemas_are_proposed_open_and_fit_when_decided(demonstration: Database, tmp_path: Path) -> None:
    settings = demonstration_settings(demonstration)
    text = proposed(demonstration, settings)
    assert_open_everywhere(text, tmp_path)
    assert_fits(text, demonstration, tmp_path, settings)
    assert_fits(taken(text), demonstration, tmp_path, settings)


def test_encodings_are_found_in_the_values(demonstration: Database) -> None:
    data = tomllib.loads(proposed(demonstration))["table"]
    native: Any = {"unit": "text", "zone": OPEN} if demonstration.store == "sqlite" else None

    def written(column: str) -> object:
        return column if native is None else {"column": column, **native}

    assert data["presence_entries"]["rule"] == {
        "expired": {"expires": {"column": "expires_at_ms", "unit": "ms"}, "then": OPEN}
    }
    assert data["lane_leases"]["rule"]["expired"]["expires"] == {"column": "lease_expires_at_ms", "unit": "ms"}
    assert data["oauth_pending"]["rule"]["expired"]["expires"] == written("expires_at")
    assert data["work_claim_tombstones"]["rule"]["expired"]["expires"] == written("remembered_until")
    assert data["knocker_attempts"]["time"] == {"column": "attempted_at", "unit": "s"}
    assert data["knocker_deliveries"]["time"] == {"column": "received_at", "unit": "s"}
    assert data["event_outbox"]["time"] == written("created_at")
    assert data["job_queue"]["time"] == written("finished_at")
    assert data["iu_route_dead_letter"]["time"] == written("resolved_at")


def test_states_are_listed_and_none_is_decided(demonstration: Database) -> None:
    text = proposed(demonstration)
    data = tomllib.loads(text)["table"]
    stateful = {name: table["state"] for name, table in data.items() if "state" in table}
    stateful.pop("iu_core.iu_staging_record", None)  # excused on SQLite, where it is attached
    assert stateful == {
        "channel_inbox": "status",
        "channel_outbox": "status",
        "dot_iu_command_run": "status",
        "job_queue": "status",
        "knocker_events": "status",
        "work_claims": "state",
        "_honker_live": "state",
    }
    assert data["work_claims"]["live"] == [OPEN]
    assert data["work_claims"]["rule"]["finished"] == {"when": [OPEN], "keep": OPEN}
    assert '# state: holds "abandoned", "available", "claimed", "completed".' in section(text, "work_claims")
    assert '# outcome: may be a state too, it holds "failed", "handled", "ignored".' in section(
        text, "knocker_attempts"
    )


def test_a_lease_on_work_is_not_taken_for_the_end_of_the_row(demonstration: Database) -> None:
    text = proposed(demonstration)
    for table, column in (("channel_inbox", "lease_expires_at_ms"), ("_honker_live", "claim_expires_at")):
        stated = section(text, table)
        assert "expires = " not in stated
        assert re.search(f"# Also {column}: .* the end of a lease on the row's work", stated)


def test_references_become_suggestions_for_the_parent(demonstration: Database) -> None:
    text = proposed(demonstration)
    assert '# unless = [{ referenced_by = "channel_outbox.inbox_id" }]' in section(text, "channel_inbox")
    assert '# with = ["event_read.event_id"]' in section(text, "event_outbox")
    events = section(text, "knocker_events")
    assert "knocker_attempts.event_id" in events
    assert "knocker_deliveries.event_id" in events
    assert "# unless" not in section(text, "channel_outbox")


def test_keys_are_left_to_the_primary_key(demonstration: Database) -> None:
    assert all("key" not in table for table in tomllib.loads(proposed(demonstration))["table"].values())


def test_a_singleton_is_suggested_under_excused_and_stays_undecided(demonstration: Database, tmp_path: Path) -> None:
    text = proposed(demonstration)
    suggestion = 'models_dev_cache = { singleton = "one row, id = 1" }'
    assert f"\n# {suggestion}\n" in text[text.index("[excused]") :]
    data = tomllib.loads(text)
    assert "models_dev_cache" not in data["excused"]
    assert data["table"]["models_dev_cache"]["why"] == OPEN
    accepted = text.replace(section(text, "models_dev_cache"), "").replace(f"# {suggestion}", suggestion)
    assert_fits(accepted, demonstration, tmp_path)


def test_attached_tables_can_only_be_excused(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    seed(sqlite_database.url, rows=300, now=NOW)
    text = proposed(sqlite_database, demonstration_settings(sqlite_database))
    data = tomllib.loads(text)
    assert data["excused"]["iu_core.iu_staging_record"] == {"elsewhere": OPEN}
    assert "iu_core.iu_staging_record" not in data["table"]
    assert '# attach = { iu_core = "file.db" }' in text


def test_a_table_outside_of_the_search_path_is_named_with_its_schema(postgres_database: PostgresDatabase) -> None:
    seed(postgres_database.url, rows=300, now=NOW)
    text = proposed(postgres_database)
    assert 'table."iu_core.iu_staging_record"' in text
    assert '\nwith = ["iu_core.iu_staging_payload.record_id"]' in section(text, "iu_core.iu_staging_record")


def test_the_proposal_is_the_same_every_time(demonstration: Database) -> None:
    with opened(demonstration) as store:
        first = propose(store, url_text="DATABASE_URL")
        assert first == propose(store, url_text="DATABASE_URL")
    tables = [name for name in tomllib.loads(first)["table"] if "." not in name]
    assert tables == sorted(tables)


# --- One thing at a time ----------------------------------------------------------------------------------------------


def test_an_empty_database_gets_an_empty_proposal(database: Database, tmp_path: Path) -> None:
    text = proposed(database)
    assert_open_everywhere(text, tmp_path)
    assert tomllib.loads(text) == {
        "store": {"url": "DATABASE_URL"},
        "scheduler": {"default": {"every": OPEN}},
        "excused": {},
    }


def test_empty_tables_are_proposed_with_open_units(database: Database, tmp_path: Path) -> None:
    script(
        database,
        """
        CREATE TABLE jobs (id <number> PRIMARY KEY, status <text> NOT NULL, created_at_ms <number>, note <text>);
        CREATE TABLE tokens (id <number> PRIMARY KEY, expires_at <number> NOT NULL);
        """,
    )
    text = proposed(database)
    assert_open_everywhere(text, tmp_path)
    data = tomllib.loads(text)["table"]
    assert data["jobs"]["state"] == "status"
    assert data["jobs"]["time"] == {"column": "created_at_ms", "unit": OPEN}
    assert data["tokens"]["rule"]["expired"]["expires"] == {"column": "expires_at", "unit": OPEN}
    assert '# created_at_ms: no timestamps seen. Its unit is open: "s" or "ms" or "us".' in section(text, "jobs")
    assert "# 0 rows." in section(text, "jobs")


def test_mixed_encodings_are_reported_and_left_open(database: Database, tmp_path: Path) -> None:
    script(
        database, "CREATE TABLE log (id <number> PRIMARY KEY, created_at <number>, at_text <text>, updated_at <text>)"
    )
    rows: list[tuple[object, ...]] = [(n, ms(NOW) + n, "x", NOW.strftime("%Y-%m-%dT%H:%M:%SZ")) for n in range(5)]
    rows.append((9, int(NOW.timestamp()), "y", NOW.strftime("%Y-%m-%d %H:%M:%S")))
    database.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", rows)
    text = proposed(database)
    assert_open_everywhere(text, tmp_path)
    assert tomllib.loads(text)["table"]["log"]["time"]["unit"] == OPEN
    assert "created_at: written in different ways: 5 × milliseconds, 1 × seconds." in text
    assert "updated_at: written in different ways: 1 × ISO text, 1 × text without a zone." in text
    assert "at_text" not in text


def test_every_unit_of_numbers_and_texts_is_reported_apart(database: Database, tmp_path: Path) -> None:
    script(
        database,
        """
        CREATE TABLE a (id <number> PRIMARY KEY, created_at <number>);
        CREATE TABLE b (id <number> PRIMARY KEY, created_at <number>);
        CREATE TABLE c (id <number> PRIMARY KEY, created_at <number>);
        CREATE TABLE d (id <number> PRIMARY KEY, created_at <text>);
        CREATE TABLE e (id <number> PRIMARY KEY, created_at <text>);
        CREATE TABLE f (id <number> PRIMARY KEY, created_at <text>);
        CREATE TABLE g (id <number> PRIMARY KEY, created_on <text>);
        CREATE TABLE h (id <number> PRIMARY KEY, day date);
        """,
    )
    values = [
        ("a", int(NOW.timestamp())),
        ("b", ms(NOW)),
        ("c", ms(NOW) * 1000),
        ("d", NOW.strftime("%Y-%m-%dT%H:%M:%S.%fZ")),
        ("e", NOW.strftime("%Y-%m-%d %H:%M:%S+00:00")),
        ("f", NOW.strftime("%Y-%m-%dT%H:%M:%S")),
        ("g", NOW.strftime("%Y-%m-%d")),
        ("h", NOW.strftime("%Y-%m-%d")),
    ]
    for table, value in values:
        database.execute(f"INSERT INTO {table} VALUES (7, ?)", [value])
    text = proposed(database)
    data = tomllib.loads(text)["table"]
    units = ["s", "ms", "us", "iso", "text", "iso", "date", "date"]
    assert [data[table]["time"].get("unit") for table in "abcdefgh"] == units
    assert [data[table]["time"].get("zone") for table in "abcdefgh"] == [*[None] * 5, OPEN, None, None]
    assert f"{NOW:%Y-%m-%d} in 1 sampled value" in text.partition("[table.h]")[2]
    assert_open_everywhere(text, tmp_path)
    assert_fits(text, database, tmp_path)


def test_a_time_is_found_by_its_values_where_its_name_states_nothing(database: Database) -> None:
    script(database, "CREATE TABLE t (id <number> PRIMARY KEY, born <number>, size <number>, account_id <number>)")
    database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [(n, ms(NOW) - n, n, ms(NOW)) for n in range(20)])
    text = section(proposed(database), "t")
    assert 'time = { column = "born", unit = "ms" }' in text
    assert "only its values show that it is a time" in text
    assert "account_id" not in text


def test_placeholders_do_not_hide_an_encoding(database: Database, tmp_path: Path) -> None:
    script(database, "CREATE TABLE t (id <number> PRIMARY KEY, created_at <number>)")
    database.executemany("INSERT INTO t VALUES (?, ?)", [(1, 0), (2, -1), (3, ms(NOW)), (4, None)])
    text = proposed(database)
    assert tomllib.loads(text)["table"]["t"]["time"] == {"column": "created_at", "unit": "ms"}
    assert f"milliseconds, {NOW:%Y-%m-%d} in 1 sampled value, beside placeholders such as 0." in text
    assert_fits(text, database, tmp_path)


def test_a_mere_name_makes_no_time(database: Database) -> None:
    script(database, "CREATE TABLE t (id <number> PRIMARY KEY, response_time <number>, created_at <number>)")
    database.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n, 120 + n, ms(NOW)) for n in range(5)])
    assert "response_time" not in proposed(database)


def test_an_expiry_far_from_now_is_no_rule(database: Database) -> None:
    script(database, "CREATE TABLE t (id <number> PRIMARY KEY, expires_at <number> NOT NULL)")
    database.execute("INSERT INTO t VALUES (5, ?)", [ms(NOW - timedelta(days=3000))])
    text = section(proposed(database), "t")
    assert "called like an expiry, but its values are far from now" in text
    assert "expires = " not in text
    assert 'keep = "DECIDE"' in text


def test_a_column_called_state_with_many_values_is_none(database: Database) -> None:
    script(database, "CREATE TABLE t (id <number> PRIMARY KEY, state <text>, created_at <number>)")
    database.executemany("INSERT INTO t VALUES (?, ?, ?)", [(n, f"token-{n}", ms(NOW)) for n in range(100)])
    assert "state" not in tomllib.loads(proposed(database))["table"]["t"]


def test_states_may_be_numbers_and_missing(database: Database, tmp_path: Path) -> None:
    script(database, "CREATE TABLE t (id <number> PRIMARY KEY, phase <number>, created_at <number>)")
    rows = [(n, None if n == 3 else n % 3, ms(NOW)) for n in range(10)]
    database.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    text = proposed(database)
    assert "# phase: holds 0, 1, 2, and NULL, which no rule selects." in text
    assert tomllib.loads(text)["table"]["t"]["state"] == "phase"


def test_a_unique_key_stands_in_for_a_missing_primary_key(database: Database, tmp_path: Path) -> None:
    script(
        database,
        """
        CREATE TABLE uniques (a <text> NOT NULL, b <number> NOT NULL, c <number>, created_at_ms <number>);
        CREATE UNIQUE INDEX with_null ON uniques (c);
        CREATE UNIQUE INDEX partly ON uniques (b) WHERE c IS NULL;
        CREATE UNIQUE INDEX whole ON uniques (b, a);
        CREATE TABLE keyless (a <text>, created_at_ms <number>);
        """,
    )
    text = proposed(database)
    data = tomllib.loads(text)["table"]
    assert data["uniques"]["key"] == ["b", "a"]
    assert data["keyless"]["key"] == [OPEN]
    assert_open_everywhere(text, tmp_path)
    assert_fits(text.replace(section(text, "keyless"), ""), database, tmp_path)


def test_cascades_and_composite_references_are_suggested_as_they_must_be_written(
    database: Database, tmp_path: Path
) -> None:
    script(
        database,
        """
        CREATE TABLE parent (tenant <text>, id <number>, code <number> NOT NULL UNIQUE, created_at_ms <number>,
          up <number> REFERENCES parent (code), PRIMARY KEY (tenant, id));
        CREATE TABLE part (id <number> PRIMARY KEY, tenant <text>, parent_id <number>,
          FOREIGN KEY (tenant, parent_id) REFERENCES parent (tenant, id) ON DELETE CASCADE);
        CREATE TABLE note (id <number> PRIMARY KEY, code <number> REFERENCES parent (code) ON DELETE SET NULL);
        """,
    )
    database.execute("INSERT INTO parent VALUES ('t', 1, 1, ?, NULL)", [ms(NOW)])
    text = proposed(database)
    stated = section(text, "parent")
    assert '# with = [{ table = "part", columns = ["tenant", "parent_id"] }]' in stated
    assert (
        '# unless = [{ referenced_by = { table = "note", columns = ["code"], to = ["code"] } }, '
        '{ referenced_by = { table = "parent", columns = ["up"], to = ["code"] } }]'
    ) in stated
    assert "the database cascades" in stated
    assert "(ON DELETE SET NULL)" in stated
    assert_fits(taken(text), database, tmp_path)


NASTY = [
    'quo"te',
    "dotted.name",
    "two words",
    " spaces ",
    "Größe漢😀",
    "tab\tline\nend\r",
    "back\\slash",
    "#hash",
    "[table.x]",
    "it's",
    "select",
    "UPPER",
    "per%cent",
    "bell\x07",
    "turned\u202eround",
    "{ braces = 1 }",
]


@pytest.mark.parametrize("name", NASTY)
def test_any_identifier_is_written_so_that_it_is_found(database: Database, tmp_path: Path, name: str) -> None:
    q = '"' + name.replace('"', '""') + '"'
    status, at = '"' + f"{name} status".replace('"', '""') + '"', '"' + f"{name} at".replace('"', '""') + '"'
    script(
        database,
        f"""
        CREATE TABLE {q} ({q} <number> NOT NULL UNIQUE, {status} <text> NOT NULL, {at} <number>);
        CREATE TABLE child (id <number> PRIMARY KEY, {q} <number> REFERENCES {q} ({q}));
        """,
    )
    connection = database.connect()
    placeholder = "?" if database.store == "sqlite" else "%s"
    quoted = q if database.store == "sqlite" else q.replace("%", "%%")
    for number, state in enumerate(("new", f"done {name}")):
        connection.execute(
            f"INSERT INTO {quoted} VALUES ({placeholder}, {placeholder}, {placeholder})", (number, state, ms(NOW))
        )
    text = proposed(database)
    assert_open_everywhere(text, tmp_path)
    [key] = [one for one in tomllib.loads(text)["table"] if one != "child"]
    assert TableName.parse(key) == TableName(name)
    table = tomllib.loads(text)["table"][key]
    assert table["key"] == [name]
    assert table["state"] == f"{name} status"
    assert table["time"] == {"column": f"{name} at", "unit": "ms"}
    assert_fits(taken(text), database, tmp_path)


def test_columns_that_a_contract_cannot_name_are_left_out(database: Database, tmp_path: Path) -> None:
    script(database, 'CREATE TABLE t ("DECIDE" <number> NOT NULL UNIQUE, created_at_ms <number>)')
    text = proposed(database)
    assert "It has columns that a contract cannot name." in text
    assert_open_everywhere(text, tmp_path)


def test_a_table_without_a_name_is_reported(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    sqlite_database.script('CREATE TABLE "" (id INTEGER PRIMARY KEY, "" TEXT)')
    text = proposed(sqlite_database)
    assert "A table without a name" in text
    assert_open_everywhere(text, tmp_path)


def test_views_need_no_rules(database: Database) -> None:
    script(database, 'CREATE TABLE t (id <number> PRIMARY KEY); CREATE VIEW "seen\nthere" AS SELECT id FROM t')
    text = proposed(database)
    assert '# "seen\\nthere" is a view: it needs no rules.' in text
    assert tomllib.loads(text)["excused"] == {"t": {"constant": OPEN}}


def test_virtual_tables_can_only_be_excused(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    sqlite_database.script("CREATE VIRTUAL TABLE docs USING fts5(body)")
    text = proposed(sqlite_database)
    assert "table" not in tomllib.loads(text)
    assert "# docs is a virtual table" in text
    assert_open_everywhere(text.replace("# docs = ", "docs = "), tmp_path)


def test_partitions_and_inheriting_tables_belong_to_their_parent(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.script(
        """
        CREATE TABLE events (id bigint, created_at timestamptz NOT NULL, PRIMARY KEY (id, created_at))
          PARTITION BY RANGE (created_at);
        CREATE TABLE events_old PARTITION OF events FOR VALUES FROM ('2020-01-01') TO ('2021-01-01');
        CREATE TABLE events_new PARTITION OF events DEFAULT;
        CREATE TABLE base (id bigint PRIMARY KEY, created_at timestamptz);
        CREATE TABLE descendant () INHERITS (base);
        """
    )
    text = proposed(postgres_database)
    assert list(tomllib.loads(text)["table"]) == ["base", "events"]
    assert "# Partitioned; its partitions (2) belong to it" in section(text, "events")
    assert 'made_by = "application"' in section(text, "events")
    assert "# descendant inherits from base" in text
    assert "events_old" not in text
    postgres_database.execute(
        "DROP TABLE descendant"
    )  # A rule for a table with descendants is refused: its key is not one.
    assert_fits(proposed(postgres_database), postgres_database, tmp_path)


def test_enum_labels_are_listed_in_full_and_native_times_by_their_type(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.script(
        """
        CREATE TYPE "job life" AS ENUM ('queued', 'in "flight"', 'done');
        CREATE TYPE color AS ENUM ('red', 'green');
        CREATE TABLE jobs (id bigint PRIMARY KEY, life "job life", paint color, done_at timestamp(0), made_on date);
        CREATE TABLE odd (id bigint PRIMARY KEY, created_at timestamptz);
        INSERT INTO odd VALUES (4, 'infinity');
        """
    )
    text = proposed(postgres_database)
    data = tomllib.loads(text)["table"]
    assert data["jobs"]["state"] == "life"
    assert '# life: the enum has "queued", "in \\"flight\\"", "done".' in text
    assert '# paint: the enum has "red", "green".' in text
    assert data["jobs"]["time"] == {"column": "done_at", "zone": OPEN}
    assert data["odd"]["time"] == "created_at"
    assert "created_at: timestamp with time zone, its values could not be read." in text
    assert_open_everywhere(text, tmp_path)
    assert_fits(text, postgres_database, tmp_path)


def test_what_fires_on_a_delete_is_remarked(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script("CREATE TABLE t (id INTEGER PRIMARY KEY, created_at TEXT)")
    sqlite_database.script('CREATE TRIGGER "on it" AFTER DELETE ON t BEGIN SELECT 1; END')
    assert '# The trigger or rule "on it" fires when rows are deleted.' in proposed(sqlite_database)


def test_a_table_that_may_not_be_read_is_proposed_all_the_same(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.script(
        """
        CREATE TABLE secret (id bigint PRIMARY KEY, status text, created_at_ms bigint);
        ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
        ALTER TABLE secret FORCE ROW LEVEL SECURITY;
        CREATE ROLE wane_reader_of_nothing;
        """
    )
    try:
        with opened(postgres_database) as store:
            store._connection.execute("SET ROLE wane_reader_of_nothing")  # type: ignore[attr-defined]
            text = propose(store, url_text="DATABASE_URL")
    finally:
        postgres_database.script("DROP ROLE wane_reader_of_nothing")
    assert "# Could not be read: " in text
    assert tomllib.loads(text)["table"]["secret"]["time"] == {"column": "created_at_ms", "unit": OPEN}
    assert_open_everywhere(text, tmp_path)


# --- What was sampled -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("filled", [True, False], ids=["some are done", "none is done"])
def test_an_outbox_ages_by_the_time_at_which_its_events_left(database: Database, tmp_path: Path, filled: bool) -> None:
    done = ["published", "dispatched", "consumed", "acknowledged", "relayed"]
    for word in done:
        script(
            database,
            f"CREATE TABLE {word} (id <number> PRIMARY KEY, created_at_ms <number> NOT NULL, {word}_at_ms <number>)",
        )
        rows = [(n, ms(NOW) - n, ms(NOW) if filled and n else None) for n in range(10)]
        database.executemany(f"INSERT INTO {word} VALUES (?, ?, ?)", rows)
    text = proposed(database)
    for word in done:
        table = tomllib.loads(text)["table"][word]
        assert table["time"] == {"column": f"{word}_at_ms", "unit": "ms" if filled else OPEN}
        assert table["age"] == {"column": "created_at_ms", "unit": "ms"}
        share = "10 %" if filled else "all"
        assert f"# Of all 10 rows, {word}_at_ms is NULL in {share}.\n" in section(text, word)
    assert_open_everywhere(text, tmp_path)
    assert_fits(text, database, tmp_path)


def test_times_and_states_are_those_of_the_whole_table(database: Database) -> None:
    script(
        database,
        """
        CREATE TABLE jobs (id <number> PRIMARY KEY, queue <text>, status <text>, finished_at_ms <number>);
        CREATE INDEX usual ON jobs (queue, status, id);
        """,
    )
    state = "CASE WHEN n < 300 THEN 'cancelled' WHEN n % 20 = 0 THEN 'queued' ELSE 'done' END"
    first = NOW - timedelta(days=400)
    time = f"CASE WHEN n % 20 = 0 THEN NULL ELSE {ms(first)} + n * CAST(8640000 AS bigint) END"
    database.execute(f"INSERT INTO jobs SELECT n, 'q', {state}, {time} FROM {numbers(4_000)}")
    text = section(proposed(database), "jobs")
    assert '# status: holds "cancelled", "done", "queued".' in text
    assert (
        '# Of all 4,000 rows: 88 % "done", 8 % "cancelled" (finished_at_ms is NULL in 5 %),'
        ' 5 % "queued" (finished_at_ms is NULL in all).'
    ) in text
    [(begin, end)] = re.findall(r"# finished_at_ms: milliseconds, ([0-9-]+) … ([0-9-]+) in", text)
    assert datetime.fromisoformat(begin).date() <= (first + timedelta(days=15)).date()
    assert datetime.fromisoformat(end).date() >= (first + timedelta(days=385)).date()


@pytest.mark.parametrize("form", ["rowid", "gap", "without rowid"])
def test_rows_of_every_form_of_table_are_sampled(sqlite_database: SqliteDatabase, form: str) -> None:
    key = "id INTEGER PRIMARY KEY" if form != "without rowid" else "id TEXT PRIMARY KEY"
    end = " WITHOUT ROWID" if form == "without rowid" else ""
    sqlite_database.script(f"CREATE TABLE t ({key}, created_at_ms INTEGER){end}")
    day = 86_400_000
    sqlite_database.execute(
        f"INSERT INTO t SELECT printf('%05d', n), {ms(NOW)} - (1000 - n) * {day} FROM {numbers(1_000)}"
    )
    if form == "gap":
        sqlite_database.execute(
            "INSERT INTO t VALUES (9223372036854775807, ?), (-9223372036854775807, ?)", [ms(NOW)] * 2
        )
    text = section(proposed(sqlite_database), "t")
    [(begin, end)] = re.findall(r"# created_at_ms: milliseconds, ([0-9-]+) … ([0-9-]+) in", text)
    assert datetime.fromisoformat(end).date() >= (NOW - timedelta(days=10)).date()
    if form != "gap":
        assert datetime.fromisoformat(begin).date() <= (NOW - timedelta(days=990)).date()


# --- The URL ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:hunter2@host/db",
        "postgres://me:hun:ter@2@host/db",
        "postgresql://me@host/db?password=hunter2",
        "postgresql://me@host/db?sslmode=require&PassWord=hunter2",
        "postgresql://me@host/db?pass%77ord=hunter2",
        "postgresql://me:${NAME}hunter2@host/db",
    ],
)
def test_a_secret_is_never_written(sqlite_database: SqliteDatabase, url: str) -> None:
    with opened(sqlite_database) as store:
        text = propose(store, url_text=url)
    assert tomllib.loads(text)["store"] == {"url": "DATABASE_URL"}
    assert "hunter2" not in text
    assert "ter@2" not in text
    assert "# The URL holds a secret" in text


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///state.db",
        "sqlite:////var/lib/my state:x@y.db",
        "postgresql://me@host/db?sslmode=require",
        "postgresql://me:${PASSWORD}@host/db",
        "postgresql://me@host/db?password=${PASSWORD}",
        "postgresql:///db?host=/run/socket",
        "MY_DATABASE",
    ],
)
def test_a_url_without_secrets_is_written_as_given(sqlite_database: SqliteDatabase, url: str) -> None:
    with opened(sqlite_database) as store:
        assert tomllib.loads(propose(store, url_text=url))["store"] == {"url": url}


# --- Bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled("sqlite")
def test_a_thousand_tables_are_proposed(database: Database, tmp_path: Path) -> None:
    script(
        database,
        "".join(
            f"CREATE TABLE t{n} (id <number> PRIMARY KEY, status <text>, payload <text>, created_at_ms <number>);"
            for n in range(1000)
        ),
    )
    text = proposed(database)
    assert len(tomllib.loads(text)["table"]) == 1000
    assert_open_everywhere(text, tmp_path)


def test_a_large_table_is_never_read_whole(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    script(
        database,
        """
        CREATE TABLE big (id <number> PRIMARY KEY, status <text>, stage <text>, created_at_ms <number>);
        CREATE INDEX by_status ON big (status);
        """,
    )
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)"
    what = "CASE WHEN i < 50000 THEN 'new' ELSE 'done' END"
    database.execute(f"INSERT INTO big {numbers} SELECT i, {what}, {what}, {ms(NOW)} FROM n")
    requested: list[str] = []

    def counted(self: Store, table: TableInfo, column: Column, limit: int, seconds: float) -> Any:
        requested.append(column.name)
        return distinct(self, table, column, limit, seconds)

    def never(*_: object) -> Count:
        raise AssertionError("a large table was counted")

    monkeypatch.setattr(candidates, "distinct", counted)
    monkeypatch.setattr(candidates, "count_rows", never)
    text = proposed(database)
    assert requested == ["status"]
    assert '# status: holds "done", "new".' in text
    assert '# stage: holds, among the sampled rows, "done", "new".' in text
    [shares] = re.findall(r'# Of ([0-9,]+) rows sampled across the table: ([0-9]+) % "new", ([0-9]+) % "done".', text)
    assert shares[0] == "2,000"
    assert 75 <= int(shares[1]) <= 90
    assert "# More than 50,000 rows." in text


def test_out_of_time_the_rest_is_proposed_unread(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(database, "CREATE TABLE t (id <number> PRIMARY KEY, status <text>, created_at_ms <number>)")
    database.execute("INSERT INTO t VALUES (1, 'new', ?)", [ms(NOW)])
    monkeypatch.setattr("wane._check.propose.Samples", lambda store: Samples(store, total_seconds=0))
    text = proposed(database)
    assert "# Not read: there was no time left." in text
    assert tomllib.loads(text)["table"]["t"]["time"] == {"column": "created_at_ms", "unit": OPEN}
    assert_open_everywhere(text, tmp_path)


def test_the_record_of_a_migration_tool_needs_no_line(sqlite_database: Database) -> None:
    sqlite_database.execute("CREATE TABLE alembic_version (version_num text PRIMARY KEY)")
    text = proposed(sqlite_database)
    assert "# alembic_version is Alembic's record of schema changes: it needs no line." in text
    assert "[table.alembic_version]" not in text
