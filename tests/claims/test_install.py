"""The tables of work claims: created by an explicit call, whole or not at all, once, and missed in words."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from claims.working import denied, finish, granted, submitted, tasks, working
from servers import Database, PostgresDatabase
from wane._check.cover import cover
from wane._contract.load import load_contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane.claims import Reclaim, Work, WorkClaims
from wane.errors import NotInstalled, StoreError
from wane.reference import contract_path, schema_sql


def test_nothing_is_created_without_a_request(database: Database) -> None:
    with working(database, install=False) as claims:
        for call in (lambda: claims.submit("t"), lambda: claims.claim("t", "ada", 60), lambda: claims.get("t")):
            with pytest.raises(NotInstalled, match="run `wane claims install`"):
                call()
        assert "the table work_claims" in claims.missing()


def test_a_second_installation_does_nothing(database: Database) -> None:
    with working(database, install=False) as claims:
        assert "the table work_claims" in claims.install()
        claim = granted(claims.claim("t", "ada", 60))
        assert claims.install() == claims.missing() == []
        assert granted(claims.claim("u", "ada", 60)).fence > claim.fence


@pytest.mark.unmigrated
def test_what_is_installed_is_the_reference_schema(database: Database) -> None:
    with working(database, install=False) as claims:
        printed = claims.missing_sql()
        claims.install()
        installed = claims.store.reflect()
        database.reset()
        for _, sql in printed:
            database.script(sql)
        assert claims.store.reflect() == installed
        assert claims.missing() == []
        database.reset()
        database.script(schema_sql("claims", database.store)["main"])
        assert claims.store.reflect() == installed
        assert claims.missing() == []
        granted(claims.claim("t", "ada", 60))


def test_two_processes_that_install_at_once_install_once(database: Database) -> None:
    def install(_: int) -> list[str]:
        with WorkClaims.open(database.url) as claims:
            return claims.install()

    with ThreadPoolExecutor(6) as pool:
        created = list(pool.map(install, range(6)))
    assert len([one for one in created if one]) == 1
    with working(database, install=False) as claims:
        granted(claims.claim("t", "ada", 60))


def test_a_failing_installation_leaves_nothing(database: Database) -> None:
    database.execute("CREATE TABLE work_claim_tombstones (id integer PRIMARY KEY)")
    with working(database, install=False) as claims:
        with pytest.raises(StoreError, match="not the table of work claims: it has no task_id"):
            claims.install()
        assert database.query(exists(database, "work_claims")) == []


def exists(database: Database, name: str) -> str:
    if database.store == "sqlite":
        return f"SELECT 1 FROM sqlite_master WHERE name = '{name}'"
    return f"SELECT 1 FROM pg_class WHERE relname = '{name}'"


@pytest.mark.parametrize("table", ["work_claims", "work_claim_tombstones"])
def test_a_table_of_another_application_is_refused_by_name(database: Database, table: str) -> None:
    database.execute(f"CREATE TABLE {table} (id integer PRIMARY KEY, owner text)")
    with working(database, install=False) as claims:
        for call in (claims.install, lambda: claims.get("t")):
            with pytest.raises(StoreError, match=f"{table} in .* is not the table of work claims"):
                call()


PARTS = {
    "sqlite": [
        "DROP TABLE work_claim_tombstones",
        "DROP TABLE wane_claim_fence",
        "DELETE FROM wane_claim_fence",
        "DROP TRIGGER work_claims_inserted",
        "DROP TRIGGER work_claims_finished",
        "DROP TRIGGER work_claims_reopened",
    ],
    "postgres": [
        "DROP TABLE work_claim_tombstones",
        "DROP SEQUENCE work_claim_fences",
        "DROP TRIGGER work_claims_inserted ON work_claims",
        "DROP TRIGGER work_claims_finished ON work_claims",
        "DROP TRIGGER work_claims_reopened ON work_claims",
        "DROP FUNCTION work_claims_forget CASCADE",
    ],
}


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("known", [False, True], ids=["before the first call", "between two calls"])
def test_tables_that_are_half_there_are_reported_and_repaired(database: Database, number: int, known: bool) -> None:
    part = PARTS[database.store][number]
    with working(database) as claims:
        fence = finish(claims, "done").fence
    with working(database, install=False) as claims:
        if known:
            claims.get("t")
        database.execute(part)
        if known and "TRIGGER" in part:
            # No call searches for triggers; but nothing ends that would be forgotten.
            claim = granted(claims.claim("t", "ada", 60))
            if "finished" in part:
                with pytest.raises(NotInstalled, match="work_claims_finished"):
                    claims.complete(claim)
                assert [work.task_id for work in claims_left(database, claims)] == ["t"]
            return
        if not known or "FUNCTION" not in part:
            with pytest.raises(NotInstalled, match=r"(?s)but not the .*wane claims install"):
                claims.claim("t", "ada", 60)
        created = claims.install()
        assert created
        assert claims.missing() == []
        new = granted(claims.claim("t", "ada", 60))
        if "TABLE work_claim_tombstones" not in part:
            assert new.fence > fence
        claims.complete(new)
        database.execute("DELETE FROM work_claims")
        denied(claims.claim("t", "bob", 60))


def claims_left(database: Database, claims: WorkClaims) -> list[Work]:
    claims.install()
    return claims.list_by_state("claimed")


def test_nothing_ends_while_triggers_are_switched_off(postgres_database: PostgresDatabase) -> None:
    with working(postgres_database) as claims:
        claim = granted(claims.claim("t", "ada", 60))
        postgres_database.execute("ALTER TABLE work_claims DISABLE TRIGGER ALL")
        with pytest.raises(StoreError, match="would not be remembered"):
            claims.complete(claim)
        postgres_database.execute("ALTER TABLE work_claims ENABLE TRIGGER ALL")
        assert claims.complete(claim).state == "completed"


def test_an_index_that_is_missing_is_no_reason_to_stop(database: Database) -> None:
    with working(database) as claims:
        database.execute("DROP INDEX work_claims_expiry")
    with working(database, install=False) as claims:
        granted(claims.claim("t", "ada", 60))
        assert claims.missing() == ["the index work_claims_expiry"]
        assert claims.install() == ["the index work_claims_expiry"]


def legacy(database: Database) -> None:
    """Create tables as they were before claims were remembered, with rows."""
    text = "timestamptz" if database.store == "postgres" else "TEXT"
    database.execute(
        "CREATE TABLE work_claims (task_id text NOT NULL PRIMARY KEY, state text NOT NULL DEFAULT 'available',"
        f" owner text, fence bigint NOT NULL DEFAULT 0, created_at {text} NOT NULL DEFAULT CURRENT_TIMESTAMP,"
        f" claimed_at {text}, expires_at {text}, completed_at {text}, abandoned_at {text}, reason text)"
    )
    database.execute(
        "INSERT INTO work_claims (task_id, state, owner, fence, completed_at)"
        " VALUES ('done', 'completed', 'old', 700, CURRENT_TIMESTAMP)"
    )
    database.execute("INSERT INTO work_claims (task_id, fence) VALUES ('open', 900)")


def test_a_table_with_rows_from_before_is_taken_over(database: Database) -> None:
    legacy(database)
    with working(database) as claims:
        assert tasks(database, "work_claim_tombstones") == ["done"]
        database.execute("DELETE FROM work_claims WHERE task_id = 'done'")
        denial = denied(claims.claim("done", "ada", 60))
        assert (denial.owner, denial.fence) == ("old", 700)
        assert granted(claims.claim("new", "ada", 60)).fence > 900
        assert submitted(claims.submit("open")).state == "available"


def test_a_strict_check_of_the_reference_contract_finds_nothing(database: Database) -> None:
    contract = load_contract(contract_path("claims"))
    with working(database, Reclaim.after(timedelta(hours=1))) as claims:
        finish(claims, "t")
        assert cover(claims.store, contract, strict=True) == []
    with working(database, Reclaim.never(), install=False) as claims:
        finish(claims, "u")
        # It is remembered for ever, and reported.
        assert [(one.severity, one.code) for one in cover(claims.store, contract, strict=True)] == [
            ("note", "never-due")
        ]


def test_the_tables_lie_in_the_schema_that_the_contract_names(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    postgres_database.execute('CREATE SCHEMA "Ops %"')
    text = contract_path("claims").read_text()
    for table in ("work_claims", "work_claim_tombstones"):
        text = text.replace(f"[table.{table}", f"[table.'\"Ops %\".{table}'")
    file = tmp_path / "wane.toml"
    file.write_text(text)
    with open_store(resolve_url(postgres_database.url)) as store:
        keeper = Keeper(load_contract(file), store)
        keeper.migrate()
        claims = keeper.claims()
        claims.install()
        finish(claims, "t")
        assert postgres_database.query('SELECT task_id FROM "Ops %".work_claim_tombstones') == [("t",)]
        denied(claims.claim("t", "bob", 60))
        postgres_database.execute("UPDATE \"Ops %\".work_claims SET completed_at = completed_at - interval '30 days'")
        assert claims.vacuum(completed_age_hours=168).rows == 1


def test_tables_elsewhere_on_the_search_path_are_found(postgres_database: PostgresDatabase) -> None:
    with working(postgres_database) as claims:
        finish(claims, "t")
    [(name,)] = postgres_database.query("SELECT current_database()")
    postgres_database.execute("CREATE SCHEMA first")
    postgres_database.execute(f"ALTER DATABASE {name} SET search_path = first, public")
    with working(postgres_database, install=False) as claims:
        assert claims.missing() == []
        denied(claims.claim("t", "bob", 60))


@pytest.mark.unmigrated
def test_a_role_without_rights_is_reported_what_it_needs(postgres_database: PostgresDatabase) -> None:
    role = f"poor_{id(postgres_database)}"
    postgres_database.execute(f"CREATE ROLE {role} LOGIN")
    try:
        url = postgres_database.url.replace("postgres@", f"{role}@")
        postgres_database.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        with WorkClaims.open(url) as claims, pytest.raises(StoreError, match="permission denied"):
            claims.install()
    finally:
        postgres_database.execute(f"DROP OWNED BY {role}")
        postgres_database.execute(f"DROP ROLE {role}")


def test_a_function_without_a_search_path_of_its_own_is_replaced(postgres_database: PostgresDatabase) -> None:
    with working(postgres_database) as claims:
        postgres_database.execute("ALTER FUNCTION work_claims_remember() SET search_path = public")
        assert claims.missing() == ["the function work_claims_remember"]
        assert claims.install() == ["the function work_claims_remember"]
        finish(claims, "t")
        assert claims.remembered("t") is not None
