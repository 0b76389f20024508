"""The contracts of the catalogue: complete but for their windows, recognised by their tables, and each of them proven."""

from __future__ import annotations

import json
import runpy
import tomllib
from pathlib import Path

import pytest

from catalogue.proving import PROOFS, ROOT
from servers import Database
from wane import catalogue
from wane._check.cover import cover
from wane._check.propose import propose
from wane._contract.load import covered_tables, load_contract, read_contract
from wane._contract.model import Contract
from wane._db import open_store
from wane._db.url import resolve_url
from wane._findings import Severity

SYSTEMS = {one.name: one for one in catalogue.systems()}
TIME = {"sqlite": "datetime", "postgres": "timestamptz"}
NAIVE = {"sqlite": "datetime", "postgres": "timestamp"}
TABLES = {
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
}
"""The columns that matter of each system's tables."""


def build(database: Database, name: str) -> None:
    script = TABLES[name].replace("<time>", TIME[database.store]).replace("<naive>", NAIVE[database.store])
    database.script(script)


def decided(folder: Path, *names: str) -> Contract:
    """A contract that includes some of the catalogue, with every window decided."""
    windows = {window for name in names for window in SYSTEMS[name].windows}
    lines = [f'"{window}" = "30d"' for window in sorted(windows)]
    included = ", ".join(f'"catalogue:{name}"' for name in names)
    file = folder / "wane.toml"
    file.write_text("\n".join([f"include = [{included}]", "strict = true", "[window]", *lines]), encoding="utf-8")
    return load_contract(file)


def test_every_contract_is_proven() -> None:
    assert sorted(name for proof in PROOFS.values() for name in proof.contracts) == sorted(catalogue.names())
    assert sorted(TABLES) == sorted(catalogue.names())


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_window_has_no_default(name: str, tmp_path: Path) -> None:
    file = tmp_path / "wane.toml"
    file.write_text(f'include = ["catalogue:{name}"]', encoding="utf-8")
    missing = {one.message for one in read_contract(file).findings if one.severity is Severity.ERROR}
    assert all(any(window in message for message in missing) for window in SYSTEMS[name].windows)
    assert bool(missing) == bool(SYSTEMS[name].windows)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_contract_fits_its_tables(database: Database, name: str, tmp_path: Path) -> None:
    build(database, name)
    with open_store(resolve_url(database.url), read_only=True) as store:
        found = cover(store, decided(tmp_path, name), strict=True)
    assert [one for one in found if one.code != "no-index"] == [], "indexes are the system's own"


def test_a_name_that_the_catalogue_lacks_is_suggested(tmp_path: Path) -> None:
    file = tmp_path / "wane.toml"
    file.write_text('include = ["catalogue:cellery"]', encoding="utf-8")
    found = next(one for one in read_contract(file).findings if one.code == "unknown-reference")
    assert found.message == "no contract of the catalogue is called 'cellery'"
    assert "did you mean 'celery'" in found.fix


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_is_recognised_and_its_windows_are_left_to_decide(database: Database, name: str) -> None:
    build(database, name)
    database.execute("CREATE TABLE mine (id integer PRIMARY KEY, status text, finished_at text)")
    with open_store(resolve_url(database.url), read_only=True) as store:
        data = tomllib.loads(propose(store, url_text="x"))
    assert data["include"] == [f"catalogue:{name}"]
    assert data.get("window", {}) == dict.fromkeys(SYSTEMS[name].windows, "DECIDE")
    assert list(data["table"]) == ["mine"]
    assert data["excused"] == {}


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
