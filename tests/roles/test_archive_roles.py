"""Who may archive, with real login roles: a member of the admin role moves rows, nobody else does, and Spark is not
even started."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from archive.cold import CONTRACT, archived, events
from servers import PostgresDatabase
from wane._keeper import Keeper, open_keeper
from wane._prune.pace import FAST
from wane._prune.sweep import Outcome
from wane.errors import NotAllowed, StoreError

pytestmark = pytest.mark.group("spark")

_ROWS = 30


class Archivists:
    """A database whose old rows go to an archive, with a login role for everybody."""

    def __init__(self, database: PostgresDatabase, folder: Path) -> None:
        self.database = database
        self.folder = folder
        self.mark = secrets.token_hex(4)
        roles = "".join(f'{name} = "{name}_{self.mark}"\n' for name in ("admin", "reader", "application"))
        url = json.dumps(database.url)
        (folder / "wane.toml").write_text(f"{CONTRACT.format(url=url)}[roles]\nenabled = true\n{roles}")

    def login(self, role: str) -> str:
        """Create a login role that is a member of another, or of none."""
        name = f"login_{role}_{self.mark}"
        self.database.script(f"CREATE ROLE {name} LOGIN")
        if role != "stranger":
            self.database.script(f"GRANT {role}_{self.mark} TO {name}")
        parts = urlsplit(self.database.url)
        return urlunsplit(parts._replace(netloc=f"{name}@{parts.netloc.rpartition('@')[2]}"))

    def keeper(self, url: str | None = None) -> Keeper:
        return open_keeper(url, contract=self.folder / "wane.toml")

    def hot(self) -> int:
        [(rows,)] = self.database.query("SELECT count(*) FROM event")
        return int(rows)


@pytest.fixture
def archivists(postgres_database: PostgresDatabase, tmp_path: Path) -> Iterator[Archivists]:
    made = Archivists(postgres_database, tmp_path)
    events(postgres_database, _ROWS)
    with made.keeper() as owner:
        owner.migrate()
        owner.apply_roles()
        owner.enable()
    yield made
    names = postgres_database.query("SELECT rolname FROM pg_roles WHERE rolname LIKE ?", [f"%{made.mark}"])
    for (name,) in names:
        postgres_database.script(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_member_of_the_admin_role_archives(archivists: Archivists) -> None:
    before = archivists.hot()
    with archivists.keeper(archivists.login("admin")) as keeper:
        [done] = keeper.archive.run(pace=FAST).rules
        assert done.outcome is Outcome.DONE, done.message
        assert [one.state for one in keeper.archive.status()] == ["done"]
    assert archivists.hot() == before - _ROWS
    assert len(archived(archivists.folder / "cold" / "event")) == _ROWS


@pytest.mark.parametrize("role", ["application", "reader", "stranger"])
def test_no_other_role_archives_and_spark_is_not_started(archivists: Archivists, role: str) -> None:
    before = archivists.hot()
    started: list[str] = []
    url = archivists.login(role)
    # Of these three only the application may see Wane's own tables at all.
    expected, words = (NotAllowed, "not a member of") if role == "application" else (StoreError, "permission denied")
    with pytest.raises(expected, match=words), archivists.keeper(url) as keeper:
        keeper.archive.run(starting=started.append)
    assert started == []
    assert archivists.hot() == before
    assert not (archivists.folder / "cold").exists()


def test_an_admin_who_was_dismissed_archives_no_more(archivists: Archivists) -> None:
    url = archivists.login("admin")
    with archivists.keeper(url) as keeper:
        archivists.database.script(f"REVOKE admin_{archivists.mark} FROM login_admin_{archivists.mark}")
        with pytest.raises(NotAllowed, match="not a member of"):
            keeper.archive.run()
    with psycopg.connect(url) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("DELETE FROM event")
