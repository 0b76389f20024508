"""A database is the same by every URL that leads to it, and a copy is another one."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from servers import PostgresDatabase, SqliteDatabase
from wane._db import open_store
from wane._db.url import resolve_url

pytestmark = pytest.mark.unmigrated


def identity(url: str) -> str:
    with open_store(resolve_url(url), read_only=True) as store:
        return store.identity()


def test_a_file_is_the_same_by_every_path(sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sqlite_database.path
    link = path.with_name("link.db")
    link.symlink_to(path)
    folder = path.parent.with_name(f"{path.parent.name}-link")
    folder.symlink_to(path.parent)
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("STATE_URL", f"sqlite:///{path}")
    urls = [
        f"sqlite:///{path}",
        "sqlite:///test.db",
        "sqlite:///./../" + path.parent.name + "/test.db",
        f"sqlite:///{link}",
        f"sqlite:///{folder}/test.db",
        "SQLITE:///test%2Edb",
        "STATE_URL",
    ]
    assert len({identity(url) for url in urls}) == 1


def test_a_copy_of_a_file_is_another_database(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy2(sqlite_database.path, copy)
    assert identity(f"sqlite:///{copy}") != identity(sqlite_database.url)


def test_a_copy_that_replaced_the_file_is_another_database(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    before = identity(sqlite_database.url)
    sqlite_database.close()
    copy = tmp_path / "copy.db"
    shutil.copy2(sqlite_database.path, copy)
    os.replace(copy, sqlite_database.path)  # noqa: PTH105  the very call that a restore makes
    assert identity(sqlite_database.url) != before


def test_a_server_is_the_same_by_every_way_of_writing_it(
    postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_database.url
    monkeypatch.setenv("SERVER_URL", url)
    other_role = url.replace("postgres@", "postgres:unused%40word@")
    urls = [url, url.replace("postgresql://", "postgres://"), url + "&application_name=other", other_role, "SERVER_URL"]
    assert len({identity(one) for one in urls}) == 1


def test_another_database_of_the_server_is_another_database(postgres_database: PostgresDatabase) -> None:
    parts = urlsplit(postgres_database.url)
    name = f"wane_test_{secrets.token_hex(6)}"
    original = parts.path.removeprefix("/")
    postgres = urlunsplit(parts._replace(path="/postgres"))
    mine = identity(postgres_database.url)
    assert identity(postgres) != mine
    postgres_database.close()
    admin = PostgresDatabase(postgres)
    try:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {original}")
        try:
            assert identity(urlunsplit(parts._replace(path=f"/{name}"))) != mine
        finally:
            admin.execute(f"DROP DATABASE {name}")
    finally:
        admin.close()


def test_a_plain_role_may_request_it(postgres_database: PostgresDatabase) -> None:
    role = f"wane_test_{secrets.token_hex(6)}"
    postgres_database.execute(f"CREATE ROLE {role} LOGIN")
    try:
        assert identity(postgres_database.url.replace("postgres@", f"{role}@")) == identity(postgres_database.url)
    finally:
        postgres_database.execute(f"DROP ROLE {role}")
