"""Roles on real servers: what each login role is allowed and refused, statement by statement, and who may sweep."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from conftest import POSTGRES_IDS, Clusters, runs_on
from covering import loaded
from servers import Cluster, PostgresDatabase, SqliteDatabase
from wane._contract.model import Contract
from wane._contract.settings import OutboxSettings, RoleSettings
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper, open_keeper
from wane._prune.sweep import Outcome
from wane._roles.plan import barred
from wane._sqlfunctions import install, sql_surface
from wane.errors import NotAllowed, NotMigrated, StoreError

SCHEMA = """
CREATE TABLE job (id bigint PRIMARY KEY, status text NOT NULL, at bigint NOT NULL);
CREATE INDEX job_at ON job (status, at, id);
CREATE TABLE job_log (id bigint PRIMARY KEY, job_id bigint REFERENCES job (id));
CREATE INDEX job_log_job ON job_log (job_id);
CREATE TABLE letter (id bigint PRIMARY KEY, job_id bigint);
CREATE INDEX letter_job ON letter (job_id);
CREATE SCHEMA shop;
CREATE TABLE shop."Odd %"" name" ("i d, )" bigint PRIMARY KEY, at bigint NOT NULL);
CREATE INDEX odd_at ON shop."Odd %"" name" (at, "i d, )");
CREATE TABLE setting (id int PRIMARY KEY);
CREATE TABLE secret (id int PRIMARY KEY);
CREATE SCHEMA archive;
CREATE TABLE archive.job_202601 (id bigint);
CREATE VIEW v_queue_retention_pressure AS SELECT 'job' AS tbl, count(*) AS rows FROM job;
INSERT INTO job SELECT n, CASE WHEN n % 2 = 0 THEN 'done' ELSE 'failed' END, 1700000000000 + n FROM generate_series(1, 40) AS s(n);
INSERT INTO job VALUES (100, 'queued', 1);
INSERT INTO job_log SELECT n, n FROM generate_series(1, 40) AS s(n);
INSERT INTO letter VALUES (1, 2);
INSERT INTO shop."Odd %"" name" SELECT n, 1700000000000 FROM generate_series(1, 5) AS s(n);
INSERT INTO setting VALUES (1);
"""
CONTRACT = """
[scheduler]
s = { every = "5m" }
[table.job]
scheduler = "s"
why = "A test."
state = "status"
live = ["queued"]
time = { column = "at", unit = "ms" }
[table.job.rule.marked]
when = ["failed"]
keep = "7d"
then = { mark = "lost" }
[table.job.rule.lost]
when = ["lost"]
keep = "forever"
[table.job.rule.done]
when = ["done"]
keep = "7d"
with = ["job_log.job_id"]
unless = [{ referenced_by = "letter.job_id" }]
[table.'shop."Odd %"" name"']
scheduler = "s"
why = "A test."
time = { column = "at", unit = "ms" }
[table.'shop."Odd %"" name"'.rule.old]
keep = "7d"
[excused]
setting = { singleton = "one row" }
letter = { elsewhere = "theirs" }
"""
ROLES = ("admin", "reader", "application", "stranger")


@dataclass
class World:
    """A database with roles, and a login role for each of them."""

    database: PostgresDatabase
    contract: Contract
    logins: dict[str, str]

    def url(self, role: str) -> str:
        parts = urlsplit(self.database.url)
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{self.logins[role]}@{host}"))

    def keeper(self, role: str) -> Keeper:
        return Keeper(self.contract, open_store(resolve_url(self.url(role))))


def settings(mark: str, *, enabled: bool = True) -> RoleSettings:
    """Return names of roles: they belong to the whole server, so every test has its own. Their names are as bad as
    names may be."""
    return RoleSettings(enabled, f'admin "{mark}" %s', f"reader; DROP TABLE job; -- {mark}", f"app'{mark}\\")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def make(database: PostgresDatabase) -> World:
    mark = secrets.token_hex(4)
    roles = settings(mark)
    contract = replace(loaded(CONTRACT), roles=roles)
    database.script(SCHEMA)
    with Keeper(contract, open_store(resolve_url(database.url))) as keeper:
        keeper.migrate()
        keeper.apply_roles()
        keeper.enable()
    logins = {role: f"login_{role}_{mark}" for role in ROLES}
    named = {"admin": roles.admin, "reader": roles.reader, "application": roles.application}
    for role, login in logins.items():
        database.script(f"CREATE ROLE {login} LOGIN")
        if role in named:
            database.script(f"GRANT {quoted(named[role] or '')} TO {login}")
    return World(database, contract, logins)


def unmake(world: World) -> None:
    roles = world.contract.roles
    for name in [*world.logins.values(), roles.admin, roles.reader, roles.application or ""]:
        if world.database.query("SELECT 1 FROM pg_roles WHERE rolname = ?", [name]):
            world.database.script(f"DROP OWNED BY {quoted(name)}; DROP ROLE {quoted(name)}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world" in metafunc.fixturenames:
        servers = [server for server in POSTGRES_IDS if runs_on(server, metafunc)]
        metafunc.parametrize("world", servers, indirect=True, scope="module")


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, clusters: Clusters) -> Iterator[World]:
    """Yield one database for all statements: each is rolled back."""
    # A cluster drops what it lent out when the next test asks; this one is kept for as long as the module lasts.
    cluster = Cluster(clusters[request.param].url)
    with cluster.database() as database:
        made = make(database)
        yield made
        unmake(made)
    cluster.close()


@pytest.fixture
def fresh(postgres_database: PostgresDatabase) -> Iterator[World]:
    made = make(postgres_database)
    yield made
    unmake(made)


ODD = 'shop."Odd %" name"'.replace('%"', '%""')
AUDIT = "INSERT INTO wane.audit (executed_at, kind, table_name, actor, inputs, counts, row_count, seconds) VALUES (now(), 'prune', 't', 'a', '{}', '{}', 0, 0)"
STATEMENTS: dict[str, str] = {
    # (statement → who may run it: a admin, r reader, p application)
    "SELECT * FROM job": "a",
    "DELETE FROM job WHERE id = 100": "a",
    "UPDATE job SET status = 'lost' WHERE id = 1": "a",
    "SELECT 1 FROM job WHERE id = 1 FOR UPDATE": "a",
    "UPDATE job SET at = 5": "",
    "INSERT INTO job VALUES (7000, 'done', 1)": "",
    "TRUNCATE job CASCADE": "",
    "DROP TABLE job CASCADE": "",
    "ALTER TABLE job ADD COLUMN x int": "",
    "DELETE FROM job_log WHERE id = 1": "a",
    "UPDATE job_log SET job_id = 1": "",
    "SELECT * FROM letter": "a",
    "LOCK TABLE letter IN SHARE MODE": "a",
    "DELETE FROM letter": "",
    "INSERT INTO letter VALUES (9, 9)": "",
    f"DELETE FROM {ODD}": "a",
    f"UPDATE {ODD} SET at = 1": "",
    "SELECT count(*) FROM setting": "a",
    "DELETE FROM setting": "",
    "SELECT * FROM secret": "",
    "SELECT * FROM archive.job_202601": "r",
    "INSERT INTO archive.job_202601 VALUES (1)": "",
    "DELETE FROM archive.job_202601": "",
    "TRUNCATE archive.job_202601": "",
    "CREATE TABLE archive.job_202602 (id bigint)": "a",
    "SELECT * FROM v_queue_retention_pressure": "r",
    "SELECT * FROM wane.audit": "ap",
    AUDIT: "ap",
    "UPDATE wane.audit SET row_count = 1, counts = '{}'": "a",
    "UPDATE wane.audit SET actor = 'somebody else'": "",
    "DELETE FROM wane.audit": "",
    "TRUNCATE wane.audit": "",
    "SELECT * FROM wane.hold": "ap",
    "UPDATE wane.hold SET released_by = 'me'": "a",
    "UPDATE wane.hold SET reason = 'none'": "",
    "DELETE FROM wane.hold": "",
    "UPDATE wane.flag SET enabled = false": "a",
    "DELETE FROM wane.flag": "",
    "SELECT * FROM wane.message": "a",
    "DELETE FROM wane.message": "a",
    "UPDATE wane.lease SET holder = 'me'": "a",
    "DELETE FROM wane.lease": "",
    "DELETE FROM wane.snapshot": "a",
    "SELECT * FROM wane.contract": "a",
    "UPDATE wane.contract SET fingerprint = 'x'": "a",
    "INSERT INTO wane.migration (name) VALUES ('x')": "",
    "CREATE TABLE wane.mine (id int)": "",
    "DROP TABLE wane.audit": "",
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_each_role_is_allowed_what_it_needs_and_no_more(world: World, role: str, statement: str) -> None:
    letter = {"admin": "a", "reader": "r", "application": "p", "stranger": "s"}[role]
    with psycopg.connect(world.url(role)) as connection:
        try:
            connection.execute(statement.encode())
            allowed = True
        except psycopg.errors.InsufficientPrivilege:
            allowed = False
        finally:
            connection.rollback()
    assert allowed is (letter in STATEMENTS[statement])


def test_everything_is_tried_and_every_role_is_allowed_something() -> None:
    assert {letter for allowed in STATEMENTS.values() for letter in allowed} == {"a", "r", "p"}


def test_a_member_of_the_admin_role_sweeps_runs_holds_and_measures(fresh: World) -> None:
    with fresh.keeper("admin") as keeper:
        swept = keeper.sweep(approve=["job.done", 'shop."Odd %"" name".old'])
        assert [(one.outcome, one.message) for one in swept.rules] == [(Outcome.DONE, "")] * 3
        assert {one.rule: one.rows for one in swept.rules} == {"marked": 20, "done": 38, "old": 5}
        number = keeper.hold("job", {"id": 2}, reason="a test").id
        assert number is not None
        keeper.release_hold(number)
        keeper.disable("job")
        keeper.enable("job")
        assert len(keeper.take_snapshots()) == 7
        assert keeper.growth("job")[0].rows == 22
        assert keeper.audit(limit=1)
        assert [one.table for one in keeper.plan().steps] == ["job", "job", 'shop."Odd %"" name"']
        ran = keeper.run(max_runs=1, workers=1)
        assert (ran.ticks, ran.failures) == (1, 0)
    assert fresh.database.query("SELECT count(*) FROM job_log") == [(21,)]


IN_ANOTHER_TABLE = """
[scheduler]
s = { every = "5m" }
[table.job_log]
scheduler = "s"
why = "A test."
time = { column = "at", unit = "ms", parent = { table = "job", columns = "job_id" } }
rule.old = { keep = "7d" }
[table.'shop."Odd %"" name"']
scheduler = "s"
why = "A test."
time = { column = "id", unit = "s", child = "letter.job_id" }
rule.old = { keep = "7d" }
"""


def test_a_member_of_the_admin_role_locks_the_rows_that_hold_times(fresh: World) -> None:
    contract = replace(loaded(IN_ANOTHER_TABLE), roles=fresh.contract.roles)
    with Keeper(contract, open_store(resolve_url(fresh.database.url))) as keeper:
        keeper.apply_roles()
    with Keeper(contract, open_store(resolve_url(fresh.url("admin")))) as keeper:
        assert keeper.prune("job_log", rule="old", limit=10).rows == 10
        assert keeper.prune('shop."Odd %"" name"', rule="old", limit=10).rows == 1


@pytest.mark.parametrize("role", ["reader", "application", "stranger"])
def test_no_other_role_sweeps(world: World, role: str) -> None:
    if role != "application":
        # They may not even see whether Wane's own tables are there.
        with pytest.raises(StoreError, match="own tables cannot be read") as barred:
            world.keeper(role)
        assert "wane roles --apply" in barred.value.hint
        assert "v_queue_retention_pressure" in barred.value.hint
        return
    with world.keeper(role) as keeper:
        for call in (keeper.sweep, keeper.run):
            with pytest.raises(NotAllowed, match="not a member of") as refused:
                call()
            assert "wane roles --apply" in refused.value.hint
        with open_keeper(world.database.url, contract=world.contract) as owner:
            plan = owner.plan()
        with pytest.raises(NotAllowed):
            keeper.apply(plan)
    assert world.database.query("SELECT count(*) FROM job") == [(41,)]


def test_where_roles_are_off_no_role_is_required(world: World) -> None:
    with world.keeper("application") as keeper:
        keeper.contract = replace(world.contract, roles=replace(world.contract.roles, enabled=False))
        swept = keeper.sweep()
    # The database itself still refuses.
    assert {one.outcome for one in swept.rules} == {Outcome.FAILED}


def test_a_member_that_does_not_inherit_is_reported_so(fresh: World) -> None:
    login, admin = fresh.logins["admin"], fresh.contract.roles.admin
    # Since 16 it is said with the membership, before that with the role.
    fresh.database.script(
        f"ALTER ROLE {login} NOINHERIT; REVOKE {quoted(admin)} FROM {login}; GRANT {quoted(admin)} TO {login}"
    )
    with open_store(resolve_url(fresh.database.url)) as store:
        store.run(f"SET SESSION AUTHORIZATION {login}", {})
        try:
            assert "does not inherit" in barred(store, admin)
        finally:
            store.run("RESET SESSION AUTHORIZATION", {})


def test_a_role_that_is_missing_is_reported_so(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(SCHEMA)
    contract = replace(loaded(CONTRACT), roles=RoleSettings(enabled=True, admin=f"nobody_{secrets.token_hex(4)}"))
    with Keeper(contract, open_store(resolve_url(postgres_database.url))) as keeper:
        keeper.migrate()
        with pytest.raises(NotAllowed, match="has no role"):
            keeper.sweep()


def test_applying_twice_changes_nothing(world: World) -> None:
    with Keeper(world.contract, open_store(resolve_url(world.database.url))) as keeper:
        assert keeper.roles().missing == ()
        assert keeper.apply_roles().statements == ()


def test_rights_that_no_role_needs_are_revoked(fresh: World) -> None:
    roles = fresh.contract.roles
    fresh.database.script(
        f"GRANT ALL ON ALL TABLES IN SCHEMA archive TO {quoted(roles.reader)};"
        f"GRANT DELETE, TRUNCATE ON wane.audit TO {quoted(roles.admin)};"
        f"GRANT INSERT ON job TO {quoted(roles.admin)};"
        f"GRANT INSERT ON job TO {quoted(roles.application or '')};"
        "GRANT SELECT ON wane.audit TO PUBLIC; GRANT SELECT ON job TO PUBLIC;"
    )
    with Keeper(fresh.contract, open_store(resolve_url(fresh.database.url))) as keeper:
        texts = [one.text for one in keeper.roles().missing]
        assert texts
        assert all(text.startswith("REVOKE") for text in texts)
        # What the application and everybody may do with the application's own tables is theirs to say.
        assert not [text for text in texts if '"job"' in text and ("PUBLIC" in text or "app'" in text)]
        assert len(keeper.apply_roles().statements) == len(texts)
        assert keeper.roles().missing == ()


def test_what_is_archived_later_can_be_read_too(fresh: World) -> None:
    fresh.database.script("CREATE TABLE archive.later (id int)")
    with psycopg.connect(fresh.url("reader")) as connection:
        assert connection.execute("SELECT count(*) FROM archive.later").fetchall() == [(0,)]


def test_the_reader_sees_the_pressure_of_tables_that_it_may_not_read(fresh: World) -> None:
    fresh.database.script("DROP VIEW v_queue_retention_pressure")
    with Keeper(fresh.contract, open_store(resolve_url(fresh.database.url))) as keeper:
        install(keeper)
        keeper.apply_roles()
        assert keeper.roles().missing == ()
        keeper.sweep(approve=["job.done", 'shop."Odd %"" name".old'])
    for role in ("reader", "admin"):
        with psycopg.connect(fresh.url(role)) as connection:
            reported = connection.execute(
                "SELECT tbl, rows FROM wane.v_queue_retention_pressure ORDER BY tbl"
            ).fetchall()
            assert reported[0] == ("job", 22)
    for role in ("application", "stranger"):
        with psycopg.connect(fresh.url(role)) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT * FROM wane.v_queue_retention_pressure")
            connection.rollback()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("SELECT * FROM wane.sql_pressure()")


def test_reinstalling_functions_keeps_what_the_roles_were_given(fresh: World) -> None:
    fresh.database.script("DROP VIEW v_queue_retention_pressure")
    changed = replace(fresh.contract, health=replace(fresh.contract.health, counted_rows=5))
    with Keeper(fresh.contract, open_store(resolve_url(fresh.database.url))) as keeper:
        install(keeper)
        keeper.apply_roles()
        for contract in (fresh.contract, changed):
            repeated = Keeper(contract, keeper.store)
            install(repeated)
            assert repeated.roles().missing == ()
        fresh.database.script(sql_surface(keeper).text)
        assert keeper.roles().missing == ()
    with psycopg.connect(fresh.url("reader")) as connection:
        assert connection.execute("SELECT rows FROM wane.v_queue_retention_pressure WHERE tbl = 'job'").fetchall()


def test_installing_functions_grants_no_role_new_rights(fresh: World) -> None:
    with Keeper(fresh.contract, open_store(resolve_url(fresh.database.url))) as keeper:
        install(keeper)
        install(keeper)
        assert fresh.database.query("SELECT prosecdef FROM pg_proc WHERE proname = 'sql_pressure'") == [(False,)]
        assert keeper.roles().missing


def test_the_printed_script_does_the_same(postgres_database: PostgresDatabase) -> None:
    postgres_database.script(SCHEMA)
    contract = replace(loaded(CONTRACT), roles=settings(secrets.token_hex(4)))
    with Keeper(contract, open_store(resolve_url(postgres_database.url))) as keeper:
        keeper.migrate()
        postgres_database.script(keeper.roles().script())
        assert keeper.roles().missing == ()
    unmake(World(postgres_database, contract, {}))


def test_who_may_not_set_roles_up_is_reported_what_to_do_and_changes_nothing(fresh: World) -> None:
    weak = f"weak_{secrets.token_hex(4)}"
    fresh.database.script(
        f"CREATE ROLE {weak} LOGIN; GRANT USAGE ON SCHEMA wane TO {weak}; GRANT SELECT ON wane.migration TO {weak}"
    )
    fresh.logins["weak"] = weak
    with fresh.keeper("weak") as keeper:
        keeper.contract = replace(fresh.contract, roles=settings(secrets.token_hex(4)))
        with pytest.raises(StoreError) as refused:
            keeper.apply_roles()
        assert "wane roles --print" in refused.value.hint
    # A grant that has no effect is only a warning of the server: it must not pass for done.
    fresh.database.script(
        f"REVOKE SELECT ON job FROM {quoted(fresh.contract.roles.admin)}; GRANT SELECT ON job TO {weak}"
    )
    with fresh.keeper("weak") as keeper, pytest.raises(StoreError, match="had no effect") as refused:
        keeper.apply_roles()
    assert "wane roles --print" in refused.value.hint


def test_a_read_only_connection_plans_and_does_not_apply(world: World) -> None:
    with Keeper(world.contract, open_store(resolve_url(world.database.url), read_only=True)) as keeper:
        assert keeper.roles().missing == ()
        keeper.contract = replace(world.contract, roles=settings(secrets.token_hex(4)))
        assert keeper.roles().missing
        with pytest.raises(StoreError):
            keeper.apply_roles()


def test_without_own_tables_there_is_nothing_to_grant(postgres_database: PostgresDatabase) -> None:
    with Keeper(loaded(CONTRACT), open_store(resolve_url(postgres_database.url))) as keeper, pytest.raises(NotMigrated):
        keeper.roles()


def test_row_security_triggers_and_logins_are_noted(fresh: World) -> None:
    fresh.database.script(
        "ALTER TABLE job ENABLE ROW LEVEL SECURITY;"
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END';"
        "CREATE TRIGGER t BEFORE DELETE ON job FOR EACH ROW EXECUTE FUNCTION f();"
        f"ALTER ROLE {quoted(fresh.contract.roles.reader)} LOGIN"
    )
    with Keeper(fresh.contract, open_store(resolve_url(fresh.database.url))) as keeper:
        notes = "\n".join(keeper.roles().notes)
    assert "BYPASSRLS" in notes
    assert "triggers" in notes
    assert "can log in" in notes


def test_sqlite_has_no_roles_and_states_what_protects_it(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script("CREATE TABLE job (id integer PRIMARY KEY, status text, at integer)")
    contract = loaded(CONTRACT.partition("[table.'shop")[0])
    with Keeper(contract, open_store(resolve_url(sqlite_database.url))) as keeper:
        keeper.migrate()
        for call in (keeper.roles, keeper.apply_roles):
            with pytest.raises(StoreError, match="SQLite has no roles") as refused:
                call()
            assert "chmod" in refused.value.hint
        keeper.contract = replace(contract, roles=RoleSettings(enabled=True))
        for sweep in (keeper.sweep, keeper.run):
            with pytest.raises(NotAllowed, match="SQLite has no roles"):
                sweep()


def test_an_application_prunes_inline_with_its_own_rights(fresh: World) -> None:
    role = quoted(fresh.contract.roles.application or "")
    fresh.database.script(f"GRANT SELECT, DELETE, UPDATE ON job, job_log, letter TO {role}")
    with fresh.keeper("application") as keeper:
        pruned = keeper.prune("job", rule="done", limit=10)
        assert sum(pruned.counts.values()) == 10
        assert keeper.audit(limit=1)[0].rows == 10
        assert keeper.discard("job", {"id": 4}) in (True, False)


@pytest.mark.parametrize("name", ["reported", "shop.reported"])
def test_a_member_of_the_admin_role_writes_the_outbox_and_reads_nothing_there(fresh: World, name: str) -> None:
    fresh.database.script(f"CREATE TABLE {name} (kind text, many bigint)")
    outbox = OutboxSettings(name, (("kind", "{name}"), ("many", "{rows}")), prunes=True)
    contract = replace(fresh.contract, events=replace(fresh.contract.events, outbox=outbox))
    world = replace(fresh, contract=contract)
    with world.keeper("admin") as keeper, pytest.raises(StoreError, match="cannot be written to"):
        keeper.prune("job", rule="done", limit=8)
    with Keeper(contract, open_store(resolve_url(world.database.url))) as keeper:
        [granted] = keeper.apply_roles().statements
        assert granted.text.startswith("GRANT INSERT ON ")
    with world.keeper("admin") as keeper:
        done = keeper.prune("job", rule="done", limit=8)
    written = {f"system/{table}_hard_deleted": rows for table, rows in done.counts.items() if rows}
    assert dict(world.database.query(f"SELECT kind, many FROM {name}")) == written
    for statement in (f"SELECT * FROM {name}", f"DELETE FROM {name}", f"UPDATE {name} SET many = 0"):
        with psycopg.connect(world.url("admin")) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())
    for role in ("reader", "application", "stranger"):
        with psycopg.connect(world.url(role)) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(f"INSERT INTO {name} VALUES ('x', 1)".encode())
