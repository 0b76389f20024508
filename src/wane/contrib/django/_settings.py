"""What the project's settings specify: the contract, and the database in terms of a URL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings

from wane._keeper import Keeper
from wane._keeper import open_keeper as open_by_url
from wane.errors import UrlError, WrongArgument

_SQLITE = "django.db.backends.sqlite3"
_POSTGRES = "django.db.backends.postgresql"
_IN_MEMORY = ":memory:"
_KNOWN = {"contract", "database"}
_PASSED_ON = (
    *("application_name", "connect_timeout", "options", "passfile", "service", "target_session_attrs"),
    *("sslmode", "sslrootcert", "sslcert", "sslkey"),
)
"""The OPTIONS of a PostgreSQL database that are libpq's; the others are Django's."""


def contract_path() -> Path:
    """Return the path of the contract: `WANE["contract"]`, or `wane.toml` beside `manage.py`."""
    return Path(_setting("contract", "wane.toml"))


def database_url() -> str:
    """Return the URL, password included, of the database that `WANE["database"]` names in DATABASES."""
    alias = str(_setting("database", "default"))
    if alias not in settings.DATABASES:
        raise UrlError(f"DATABASES has no {alias!r}, which WANE names", f"write one of {', '.join(settings.DATABASES)}")
    database = settings.DATABASES[alias]
    engine = str(database["ENGINE"])
    if engine == _SQLITE:
        return _sqlite_url(str(database["NAME"]))
    if engine == _POSTGRES:
        return _postgres_url(database)
    raise UrlError(f"DATABASES[{alias!r}] uses {engine}", f"Wane works with {_SQLITE} and {_POSTGRES}")


def open_keeper(**options: Any) -> Keeper:
    """Open the project's database with its contract; `options` are those of `wane.open`."""
    return open_by_url(database_url(), contract=contract_path(), **options)


def _setting(name: str, default: object) -> Any:
    declared: Mapping[str, Any] = getattr(settings, "WANE", {})
    unknown = sorted(set(declared) - _KNOWN)
    if unknown:
        raise WrongArgument(
            f"WANE in the settings has unknown keys: {', '.join(unknown)}", "write contract or database"
        )
    return declared.get(name, default)


def _sqlite_url(name: str) -> str:
    if name == _IN_MEMORY or name.startswith("file:"):
        raise UrlError(f"the database {name!r} belongs to one connection", "Wane needs a database in a file")
    return f"sqlite:///{quote(str(Path(name).absolute()))}"


def _postgres_url(database: Mapping[str, Any]) -> str:
    given = database.get("OPTIONS", {})
    options = {key: str(given[key]) for key in _PASSED_ON if key in given}
    host = str(database.get("HOST") or "")
    # A path is the directory of a socket, which only a parameter can name.
    parameters = options | {"dbname": str(database["NAME"])} | ({"host": host} if host else {})
    named = {"user": "USER", "password": "PASSWORD", "port": "PORT"}
    parameters |= {key: str(database[name]) for key, name in named.items() if database.get(name)}
    return f"postgresql:///?{urlencode(parameters, quote_via=quote)}"
