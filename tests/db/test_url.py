"""Database URLs: where they come from, what they mean, what is refused, and that no password is ever shown."""

from __future__ import annotations

import sqlite3
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest

from servers import PostgresDatabase, SqliteDatabase
from wane._contract.settings import StoreSettings
from wane._db import open_store
from wane._db.sqlite import store as sqlite_store
from wane._db.url import DatabaseUrl, mask, resolve_url
from wane.errors import StoreError, Unreachable, UrlError, WaneError

HOW = 'write "sqlite:///state.db" or "postgresql://user@host/database"'


def refused(text: str, **environ: str) -> str:
    with pytest.raises(UrlError) as caught:
        resolve_url(text, environ=environ)
    return str(caught.value)


# Where they come from


def test_a_url_may_stand_in_a_variable() -> None:
    url = resolve_url("DATABASE_URL", environ={"DATABASE_URL": "postgresql://u:secret@host/db"})
    assert (url.kind, url.raw, url.shown) == (
        "postgres",
        "postgresql://u:secret@host/db",
        "postgresql://u:***@host/db",
    )


def test_parts_of_a_url_may_stand_in_variables() -> None:
    environ = {"DB_USER": "me", "DB_PASSWORD": "s3cret", "DB_HOST": "there"}
    url = resolve_url("postgresql://${DB_USER}:${DB_PASSWORD}@${DB_HOST}/db", environ=environ)
    assert url.raw == "postgresql://me:s3cret@there/db"
    assert url.shown == "postgresql://me:***@there/db"


def test_a_variable_may_name_others() -> None:
    environ = {"DATABASE_URL": "postgresql://u:${PASSWORD}@host/db", "PASSWORD": "s3cret"}
    assert resolve_url("DATABASE_URL", environ=environ).raw == "postgresql://u:s3cret@host/db"


@pytest.mark.parametrize("environ", [{}, {"DATABASE_URL": ""}], ids=["unset", "empty"])
def test_a_variable_that_is_not_set_is_named(environ: dict[str, str]) -> None:
    assert refused("DATABASE_URL", **environ) == (
        f"the environment variable DATABASE_URL is not set\n  hint: set it to a database URL, or {HOW}"
    )


def test_a_missing_variable_inside_a_url_is_named_and_the_others_are_not_shown() -> None:
    message = refused("postgresql://u:${PASSWORD}@${DB_HOST}/db", PASSWORD="s3cret")
    assert message == (
        "the environment variable DB_HOST, which the database URL uses, is not set\n  hint: set DB_HOST, or name another URL"
    )


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANE_TEST_SOME_URL", "sqlite:///some.db")
    assert resolve_url("WANE_TEST_SOME_URL").path == Path("some.db")


# What they mean


@pytest.mark.parametrize(
    ("text", "base", "path"),
    [
        ("sqlite:///state.db", Path("/etc/app"), Path("/etc/app/state.db")),
        ("sqlite:///var/../state.db", Path("/etc"), Path("/etc/var/../state.db")),
        ("sqlite:////var/lib/state.db", Path("/etc"), Path("/var/lib/state.db")),
        ("sqlite:///state.db", None, Path("state.db")),
        ("sqlite:///with%20space%20and%23.db", None, Path("with space and#.db")),
        ("sqlite:///état.db?mode=ro", None, Path("état.db")),
        ("SQLite:///state.db", None, Path("state.db")),
    ],
)
def test_where_a_sqlite_file_is(text: str, base: Path | None, path: Path) -> None:
    assert resolve_url(text, base=base, environ={}).path == path


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://host/db",
        "postgres://u@host:5432/db",
        "postgresql:///db?host=/var/run/postgresql&port=5433",
        "postgresql://u:p%40ss%2Fw%3Ard%25@host/db",
        "postgresql://u:a:b@host/db",
        "postgresql://u@h1:5432,h2:5433,h3/db?target_session_attrs=read-write",
        "postgresql://u@[2001:db8::1]:5432/db",
        "postgresql://",
        "postgresql://host/db?user=me@tenant",
    ],
)
def test_every_postgres_url_that_the_driver_reads_is_taken(text: str) -> None:
    assert resolve_url(text, environ={}) == DatabaseUrl("postgres", text)


@pytest.mark.parametrize("text", ["sqlite://", "sqlite:"])
def test_a_sqlite_url_has_three_slashes(text: str) -> None:
    assert refused(text) == 'the SQLite URL names no file\n  hint: three slashes and a path: "sqlite:///state.db"'


@pytest.mark.parametrize("text", ["sqlite:shop.db", "sqlite:/shop.db", "sqlite://shop.db"])
def test_the_missing_slashes_of_a_sqlite_url_are_suggested(text: str) -> None:
    assert refused(text) == "the SQLite URL names no file\n  hint: did you mean 'sqlite:///shop.db'?"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("shop.db", "sqlite:///shop.db"),
        ("data/a b.sqlite3", "sqlite:///data/a%20b.sqlite3"),
        ("/var/lib/shop.DB", "sqlite:////var/lib/shop.DB"),
    ],
)
def test_the_path_of_a_file_suggests_its_url(text: str, meant: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a b.sqlite3").touch()
    with pytest.raises(UrlError) as error:
        resolve_url(text, base=tmp_path, environ={})
    assert error.value.hint == f"did you mean {meant!r}?"


def test_a_file_that_exists_is_suggested_whatever_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "shop").touch()
    with pytest.raises(UrlError, match="the environment variable shop is not set") as error:
        resolve_url("shop", base=tmp_path, environ={})
    assert error.value.hint == "did you mean 'sqlite:///shop'?"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("postgresql+psycopg://u:s3cret@h/db", "postgresql://"),
        ("postgresl://u:s3cret@h/db", "postgresql://"),
        ("sqllite:///shop.db", "sqlite://"),
    ],
)
def test_the_nearest_scheme_is_suggested_without_the_rest(text: str, meant: str) -> None:
    message = refused(text)
    assert f"hint: did you mean {meant}… instead of {text.partition(':')[0]}://…?" in message
    assert "s3cret" not in message


@pytest.mark.parametrize("text", ["sqlite:///", "sqlite:///:memory:", "sqlite:///?cache=shared"])
def test_a_database_in_memory_has_nothing_to_keep(text: str) -> None:
    assert refused(text).startswith("a SQLite database in memory has nothing to keep")


def test_a_name_with_a_nul_is_no_file() -> None:
    assert "names no file" in refused("sqlite:///a%00b.db")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("mysql://u:s3cret@host/db", "a URL that starts with mysql:// is no database URL that Wane knows"),
        ("me:s3cret@host/shop.db", "the text given is no database URL that Wane knows"),
        ("host=h password='my s3cret' dbname=d", "the text given is no database URL that Wane knows"),
        ("s3cret pass", "the text given is no database URL that Wane knows"),
        ("", "the text given is no database URL that Wane knows"),
    ],
)
def test_anything_else_is_refused_without_repeating_it(text: str, start: str) -> None:
    message = refused(text)
    assert message.startswith(start)
    assert message.endswith(f"hint: {HOW}")
    assert "s3cret" not in message


# Passwords

WRITE = "%40 for @, %2F for /, %3A for :, %3F for ?, %25 for % and %20 for a space"
ODD = [
    "p@ss",
    "pa/ss",
    "pa:ss",
    "pa%ss",
    "pa?ss",
    "pa#ss",
    "12/34@56",
    "%",
    "@",
    "/",
    "p@s/s:w%o?r#d",
    "a&b=c",
    "ä ö",
    "${X",
]


@pytest.mark.parametrize("password", ODD)
def test_no_password_is_shown_however_it_is_written(password: str) -> None:
    for written in (password, quote(password, safe="")):
        for url in (
            f"postgresql://user:{written}@127.0.0.1:1/db",
            f"postgresql://user@127.0.0.1:1/db?password={written}",
            f"postgresql://user@127.0.0.1:1/db?sslmode=disable&sslpassword={written}",
        ):
            shown = message_about(url)
            assert "user" in shown or "cannot be read" in shown
            for piece in {password, written}:
                # A single sign stands everywhere; what counts is that it stands nowhere as a password.
                if len(piece) > 1:
                    assert piece not in shown.replace(WRITE, "")


def message_about(url: str) -> str:
    """Return everything that could be printed about a URL, the driver's own words included."""
    try:
        resolved = resolve_url(url, environ={})
    except UrlError as problem:
        return "".join(traceback.format_exception(problem)) + repr(problem) + repr(StoreSettings(url=url))
    message = [mask(url), repr(resolved), str(resolved), resolved.shown, repr(StoreSettings(url=url))]
    with pytest.raises(Unreachable) as caught:
        open_store(resolved)
    # The lines of a traceback quote this file, not the values in it.
    message += ["".join(traceback.format_exception(caught.value)), repr(caught.value), str(caught.value)]
    return "\n".join(message)


@pytest.mark.parametrize("password", [one for one in ODD if one != "${X"])
def test_every_password_works_when_it_is_written_with_percent_signs(password: str) -> None:
    url = resolve_url(f"postgresql://user:{quote(password, safe='')}@host/db", environ={})
    import psycopg

    assert psycopg.conninfo.conninfo_to_dict(url.raw)["password"] == password


@pytest.mark.parametrize("password", ["p@ss", "pa/ss", "pa?ss", "pa%ss", "12/34@56", "a b", "a\tb"])
def test_a_password_that_would_be_misread_is_refused_with_the_way_to_write_it(password: str) -> None:
    assert refused(f"postgresql://user:{password}@host/db") == (
        "the PostgreSQL URL cannot be read\n"
        f"  hint: write postgresql://user:password@host:port/database, and in the password {WRITE}"
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:p@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:a\nb@h/d", "postgresql://u:***@h/d"),
        ("postgresql://:p@h/d", "postgresql://:***@h/d"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        (
            "postgresql://h/d?user=u&password=a b&sslmode=require",
            "postgresql://h/d?user=u&password=***&sslmode=require",
        ),
        ("postgresql://h/d?pass%77ord=p", "postgresql://h/d?pass%77ord=***"),
        ("postgresql://h/d?PASSWORD=p&sslkey=/k&passfile=/f", "postgresql://h/d?PASSWORD=***&sslkey=***&passfile=***"),
        (
            "postgresql://h/d?scram_client_key=p&oauth_client_secret=q",
            "postgresql://h/d?scram_client_key=***&oauth_client_secret=***",
        ),
        ("sqlite:///state.db", "sqlite:///state.db"),
    ],
)
def test_what_is_shown_of_a_url(url: str, shown: str) -> None:
    assert mask(url) == shown


# Opening


def unreachable(url: str) -> str:
    with pytest.raises(Unreachable) as caught:
        open_store(resolve_url(url))
    return str(caught.value)


def test_a_missing_file_is_reported_and_never_created(tmp_path: Path) -> None:
    path = tmp_path / "missing.db"
    for read_only in (True, False):
        with pytest.raises(Unreachable) as caught:
            open_store(resolve_url(f"sqlite:///{path}"), read_only=read_only)
        assert str(caught.value) == (
            f"there is no database at {path}\n  hint: check the path; Wane never creates a database"
        )
    assert list(tmp_path.iterdir()) == []


def test_a_missing_attached_file_is_reported_and_never_created(sqlite_database: SqliteDatabase) -> None:
    missing = sqlite_database.path.with_name("missing.db")
    with pytest.raises(Unreachable, match=r"there is no database at .*missing.db"):
        open_store(resolve_url(sqlite_database.url), StoreSettings(attach=(("other", "missing.db"),)))
    assert not missing.exists()


def test_a_directory_is_no_database(tmp_path: Path) -> None:
    assert unreachable(f"sqlite:///{tmp_path}") == f"{tmp_path} is a directory\n  hint: name the database's file"


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 1_000)
    assert unreachable(f"sqlite:///{path}") == (
        f"{path} cannot be opened: file is not a database\n  hint: the file is not a SQLite database"
    )
    assert path.read_text() == "Dear diary, " * 1_000


def test_a_locked_database_is_reported(sqlite_database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "BUSY_SECONDS", 0.1)
    sqlite_database.execute("PRAGMA journal_mode = delete")
    holder = sqlite_database.connect()
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError) as caught:
        open_store(resolve_url(sqlite_database.url))
    assert str(caught.value).startswith(f"{sqlite_database.path} cannot be opened: database is locked\n  hint: ")
    assert "another process" in str(caught.value)
    holder.execute("ROLLBACK")
    open_store(resolve_url(sqlite_database.url)).close()


def test_a_database_that_is_being_written_to_can_be_read(sqlite_database: SqliteDatabase) -> None:
    sqlite_database.script("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    holder = sqlite_database.connect()
    holder.execute("BEGIN IMMEDIATE")
    with open_store(resolve_url(sqlite_database.url), read_only=True) as store:
        assert [table.name for table in store.reflect().tables] == ["t"]


def test_a_connection_that_fails_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Dear diary, " * 1_000)
    for _ in range(3):
        with pytest.raises(WaneError):
            open_store(resolve_url(f"sqlite:///{path}"))
    path.unlink()
    sqlite3.connect(path).close()  # Nothing keeps the file.


def test_an_unreachable_server_is_reported(tmp_path: Path) -> None:
    message = unreachable("postgresql://somebody:s3cret@127.0.0.1:1/db")
    assert message.startswith("postgresql://somebody:***@127.0.0.1:1/db cannot be reached: ")
    assert message.endswith("hint: check the URL and that it runs")
    assert "s3cret" not in message
    assert "cannot be reached" in unreachable(f"postgresql:///db?host={tmp_path}")


def test_a_host_that_does_not_exist_is_reported() -> None:
    message = unreachable("postgresql://u:s3cret@host.invalid/db?connect_timeout=2")
    assert message.startswith("postgresql://u:***@host.invalid/db?connect_timeout=2 cannot be reached: ")
    assert "s3cret" not in message


def test_a_database_that_the_server_does_not_have_is_reported(postgres_database: PostgresDatabase) -> None:
    url = postgres_database.url.replace("/wane_test_", "/no_such_")
    assert 'database "no_such_' in unreachable(url)


def test_a_role_that_the_server_does_not_have_is_reported(postgres_database: PostgresDatabase) -> None:
    url = postgres_database.url.replace("postgres@", "nobody_at_all:s3cret@")
    message = unreachable(url)
    assert 'role "nobody_at_all" does not exist' in message
    assert "s3cret" not in message


def test_an_option_that_the_driver_does_not_know_is_reported() -> None:
    assert 'invalid URI query parameter: "colour"' in unreachable("postgresql://u:s3cret@h/db?colour=red")


def test_attaching_is_for_sqlite(postgres_database: PostgresDatabase) -> None:
    with pytest.raises(StoreError, match="`attach` is for SQLite"):
        open_store(resolve_url(postgres_database.url), StoreSettings(attach=(("other", "other.db"),)))
