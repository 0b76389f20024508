"""The contracts of the catalogue: complete but for their windows, recognised by their tables, and each of them
proven."""

from __future__ import annotations

import json
import runpy
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from catalogue.proving import PROOFS, ROOT
from servers import Database, PostgresDatabase
from wane import catalogue
from wane._check.acceptance import accept
from wane._check.cover import cover
from wane._check.propose import propose
from wane._contract.load import covered_tables, load_contract, read_contract
from wane._contract.model import Contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane._findings import Severity

SYSTEMS = {one.name: one for one in catalogue.systems()}
PROVEN = {name: proof for proof in PROOFS.values() for name in proof.contracts}
ON_STORES = pytest.mark.parametrize(("name", "store"), [(name, one) for name in SYSTEMS for one in PROVEN[name].stores])
TIME = {"sqlite": "datetime", "postgres": "timestamptz"}
NAIVE = {"sqlite": "datetime", "postgres": "timestamp"}
UNLINKED = "UPDATE procrastinate_periodic_defers SET job_id = NULL WHERE job_id = OLD.id"
UNLINK = {
    "sqlite": f"CREATE TRIGGER unlink BEFORE DELETE ON procrastinate_jobs BEGIN {UNLINKED}; END;",
    "postgres": f"""
        CREATE FUNCTION unlink() RETURNS trigger LANGUAGE plpgsql SET search_path = public
          AS 'BEGIN {UNLINKED}; RETURN OLD; END';
        CREATE TRIGGER unlink BEFORE DELETE ON procrastinate_jobs FOR EACH ROW EXECUTE FUNCTION unlink();
    """,
}
TABLES = {
    # Systems of other languages.
    "pg-boss": """
        CREATE SCHEMA pgboss;
        CREATE TABLE pgboss.version (version int PRIMARY KEY);
        CREATE TABLE pgboss.queue (name text PRIMARY KEY, retention_seconds int NOT NULL, deletion_seconds int NOT NULL);
        CREATE TABLE pgboss.schedule (name text, key text, PRIMARY KEY (name, key));
        CREATE TABLE pgboss.subscription (event text, name text, PRIMARY KEY (event, name));
        CREATE TABLE pgboss.bam (id uuid PRIMARY KEY, created_on <time> NOT NULL);
        CREATE TABLE pgboss.warning (id uuid PRIMARY KEY, type text NOT NULL, created_on <time> NOT NULL);
        CREATE TABLE pgboss.queue_stats (id uuid NOT NULL, captured_on <time> NOT NULL, PRIMARY KEY (id, captured_on))
          PARTITION BY RANGE (captured_on);
        CREATE TABLE pgboss.job_dependency (child_name text, child_id uuid, parent_name text, parent_id uuid,
          PRIMARY KEY (child_name, child_id, parent_name, parent_id));
        CREATE INDEX ON pgboss.job_dependency (parent_name, parent_id);
        CREATE TYPE pgboss.job_state AS ENUM ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
        CREATE TABLE pgboss.job (id uuid, name text, state pgboss.job_state NOT NULL, deletion_seconds int NOT NULL,
          completed_on <time>, keep_until <time> NOT NULL, PRIMARY KEY (name, id)) PARTITION BY LIST (name);
        CREATE TABLE pgboss.job_common PARTITION OF pgboss.job DEFAULT;
    """,
    "graphile-worker": """
        CREATE SCHEMA graphile_worker;
        CREATE TABLE graphile_worker.migrations (id int PRIMARY KEY, ts <time> NOT NULL, breaking boolean NOT NULL);
        CREATE TABLE graphile_worker._private_job_queues (id int PRIMARY KEY, queue_name text NOT NULL, locked_at <time>);
        CREATE TABLE graphile_worker._private_tasks (id int PRIMARY KEY, identifier text NOT NULL);
        CREATE TABLE graphile_worker._private_known_crontabs (identifier text PRIMARY KEY, last_execution <time>);
        CREATE TABLE graphile_worker._private_jobs (id bigint PRIMARY KEY, job_queue_id int, task_id int NOT NULL,
          attempts smallint NOT NULL, max_attempts smallint NOT NULL, run_at <time> NOT NULL, locked_at <time>,
          created_at <time> NOT NULL, updated_at <time> NOT NULL);
        ALTER TABLE graphile_worker._private_jobs ENABLE ROW LEVEL SECURITY;
    """,
    # Systems for Python.
    "celery": """
        CREATE TABLE celery_taskmeta (id integer PRIMARY KEY, task_id varchar(155), status varchar(50), date_done <naive>);
        CREATE TABLE celery_tasksetmeta (id integer PRIMARY KEY, taskset_id varchar(155), date_done <naive>);
    """,
    "django-sessions": """
        CREATE TABLE django_session (session_key varchar(40) NOT NULL PRIMARY KEY, session_data text NOT NULL,
          expire_date <time> NOT NULL);
    """,
    "django-admin": """
        CREATE TABLE django_admin_log (id integer PRIMARY KEY, object_id text, object_repr varchar(200) NOT NULL,
          action_flag smallint NOT NULL, change_message text NOT NULL, content_type_id integer, user_id integer NOT NULL,
          action_time <time> NOT NULL);
    """,
    "django-celery-results": """
        CREATE TABLE django_celery_results_taskresult (id integer PRIMARY KEY, task_id varchar(255) NOT NULL,
          status varchar(50) NOT NULL, date_done <time> NOT NULL, date_created <time> NOT NULL);
        CREATE TABLE django_celery_results_groupresult (id integer PRIMARY KEY, group_id varchar(255) NOT NULL,
          date_done <time> NOT NULL, date_created <time> NOT NULL);
        CREATE TABLE django_celery_results_chordcounter (id integer PRIMARY KEY, group_id varchar(255) NOT NULL,
          sub_tasks text NOT NULL, count integer NOT NULL);
    """,
    "oban-py": """
        CREATE TABLE oban_jobs (id integer PRIMARY KEY, state text NOT NULL, queue text NOT NULL, inserted_at <naive>,
          scheduled_at <naive>, attempted_at <naive>, cancelled_at <naive>, completed_at <naive>, discarded_at <naive>);
        CREATE TABLE oban_leaders (name text NOT NULL PRIMARY KEY, node text NOT NULL, elected_at <naive> NOT NULL,
          expires_at <naive> NOT NULL);
        CREATE TABLE oban_producers (uuid text NOT NULL PRIMARY KEY, node text NOT NULL, queue text NOT NULL,
          started_at <naive>, updated_at <naive> NOT NULL);
    """,
    "procrastinate": """
        CREATE TABLE procrastinate_workers (id integer PRIMARY KEY, last_heartbeat <time> NOT NULL);
        CREATE TABLE procrastinate_jobs (id integer PRIMARY KEY, queue_name text NOT NULL, task_name text NOT NULL,
          status text NOT NULL, scheduled_at <time>, attempts integer NOT NULL,
          worker_id integer REFERENCES procrastinate_workers (id) ON DELETE SET NULL);
        CREATE INDEX procrastinate_jobs_worker ON procrastinate_jobs (worker_id);
        CREATE TABLE procrastinate_periodic_defers (id integer PRIMARY KEY, task_name text NOT NULL,
          defer_timestamp bigint, job_id integer REFERENCES procrastinate_jobs (id));
        CREATE INDEX procrastinate_periodic_defers_job ON procrastinate_periodic_defers (job_id);
        CREATE TABLE procrastinate_events (id integer PRIMARY KEY,
          job_id integer NOT NULL REFERENCES procrastinate_jobs (id) ON DELETE CASCADE, type text, at <time>);
        CREATE INDEX procrastinate_events_job ON procrastinate_events (job_id);
        <unlink>
    """,
    "pgqueuer": """
        CREATE TABLE pgqueuer (id integer PRIMARY KEY, priority integer NOT NULL, created <time> NOT NULL,
          updated <time> NOT NULL, heartbeat <time> NOT NULL, execute_after <time> NOT NULL, status text NOT NULL,
          entrypoint text NOT NULL, attempts integer NOT NULL);
        CREATE TABLE pgqueuer_log (id integer PRIMARY KEY, created <time> NOT NULL, job_id bigint NOT NULL,
          status text NOT NULL, entrypoint text NOT NULL, aggregated boolean DEFAULT false);
        CREATE TABLE pgqueuer_schedules (id integer PRIMARY KEY, expression text NOT NULL, entrypoint text NOT NULL,
          next_run <time> NOT NULL, last_run <time>, status text);
        CREATE TABLE pgqueuer_statistics (id integer PRIMARY KEY, created <time> NOT NULL, count bigint NOT NULL,
          status text NOT NULL, entrypoint text NOT NULL);
    """,
} | {file.stem: file.read_text(encoding="utf-8") for file in (Path(__file__).parent / "tables").glob("*.sql")}
"""The columns that matter of each installed system's tables."""


OTHERS = ("no-index", "no-reference-index", "no-spare-index", "accept-unused")
"""Findings about what only a system's complete schema has: its indexes, its triggers."""


def build(database: Database, name: str) -> None:
    if PROVEN[name].schema_only:
        PROVEN[name].run("create", database)
        return
    script = TABLES[name].replace("<unlink>", UNLINK[database.store])
    script = script.replace("<time>", TIME[database.store]).replace("<naive>", NAIVE[database.store])
    database.script(script)


def decided(folder: Path, *names: str, unbounded: str = "30d") -> Contract:
    """Return a contract that includes some of the catalogue, with every window decided: `unbounded` where a system has
    none."""
    windows = {window: stated.own for name in names for window, stated in SYSTEMS[name].windows.items()}
    lines = [f'"{window}" = "{own or unbounded}"' for window, own in sorted(windows.items())]
    included = ", ".join(f'"catalogue:{name}"' for name in names)
    file = folder / "wane.toml"
    file.write_text("\n".join([f"include = [{included}]", "strict = true", "[window]", *lines]), encoding="utf-8")
    return load_contract(file)


def test_every_contract_is_proven() -> None:
    assert sorted(name for proof in PROOFS.values() for name in proof.contracts) == sorted(catalogue.names())
    assert sorted(TABLES) == sorted(name for name, proof in PROVEN.items() if not proof.schema_only)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_window_has_no_default(name: str, tmp_path: Path) -> None:
    file = tmp_path / "wane.toml"
    file.write_text(f'include = ["catalogue:{name}"]', encoding="utf-8")
    missing = {one.message for one in read_contract(file).findings if one.severity is Severity.ERROR}
    assert all(any(window in message for message in missing) for window in SYSTEMS[name].windows)
    assert bool(missing) == bool(SYSTEMS[name].windows)


@ON_STORES
def test_a_contract_fits_its_tables(empty: Database, name: str, tmp_path: Path) -> None:
    build(empty, name)
    with open_store(resolve_url(empty.url), read_only=True) as store:
        contract = decided(tmp_path, name)
        found = accept(contract, cover(store, contract, strict=True), datetime.now(UTC).date(), ran=("database",))
    assert [one for one in found if not one.accepted and one.code not in OTHERS] == []


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
@pytest.mark.parametrize("name", ["django-admin", "solid-queue", "solid-queue-batches", "laravel-queue"])
def test_what_a_system_never_deletes_may_stay_forever(empty: Database, name: str, tmp_path: Path) -> None:
    build(empty, name)
    with open_store(resolve_url(empty.url), read_only=True) as store:
        found = cover(store, decided(tmp_path, name, unbounded="forever"), strict=True)
    assert [one for one in found if one.code != "no-index"] == []


def test_a_name_that_the_catalogue_lacks_is_suggested(tmp_path: Path) -> None:
    file = tmp_path / "wane.toml"
    file.write_text('include = ["catalogue:cellery"]', encoding="utf-8")
    found = next(one for one in read_contract(file).findings if one.code == "unknown-reference")
    assert found.message == "no contract of the catalogue is called 'cellery'"
    assert "did you mean 'celery'" in found.fix


@ON_STORES
def test_a_system_is_recognised_and_its_windows_are_left_to_decide(empty: Database, name: str) -> None:
    build(empty, name)
    empty.execute("CREATE TABLE mine (id integer PRIMARY KEY, status text, finished_at text)")
    with open_store(resolve_url(empty.url), read_only=True) as store:
        data = tomllib.loads(propose(store, url_text="x"))
    assert data["include"] == [f"catalogue:{name}"]
    assert data.get("window", {}) == dict.fromkeys(SYSTEMS[name].windows, "DECIDE")
    assert list(data["table"]) == ["mine"]
    assert data["excused"] == {}


def test_a_system_in_another_schema_is_named(postgres_database: PostgresDatabase) -> None:
    build(postgres_database, "solid-queue-batches")
    postgres_database.script("ALTER SCHEMA public RENAME TO queue; CREATE SCHEMA public;")
    with open_store(resolve_url(postgres_database.url), read_only=True) as store:
        text = propose(store, url_text="x")
    assert "include" not in tomllib.loads(text)
    assert text.count("has the tables of") == 1
    assert "# The schema queue has the tables of Solid Queue from 1.7 on. The contract catalogue:solid-queue-b" in text


def test_tables_of_the_same_name_with_other_columns_are_another_system(database: Database) -> None:
    database.execute("CREATE TABLE django_session (id integer PRIMARY KEY, status text, finished_at text)")
    with open_store(resolve_url(database.url), read_only=True) as store:
        text = propose(store, url_text="x")
    assert "include" not in tomllib.loads(text)
    assert "[table.django_session]" in text


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_contract_covers_the_tables_by_which_it_is_recognised(name: str) -> None:
    covered = {str(one) for one in covered_tables(catalogue.contract_path(name))}
    assert set(SYSTEMS[name].recognise) <= covered


def test_the_page_is_up_to_date_and_describes_every_contract() -> None:
    written = runpy.run_path(str(ROOT / "docs/generate_catalogue.py"))
    page = written["PAGE"].read_text(encoding="utf-8")
    assert written["generate"](page) == page
    proven = [json.loads(line) for line in written["RECORD"].read_text(encoding="utf-8").splitlines()]
    expected = {(name, store) for name, proof in PROOFS.items() for store in proof.stores}
    assert {(one["system"], one["store"]) for one in proven} == expected
    assert all(f"\n## `{name}`\n" in page for name in catalogue.names())
