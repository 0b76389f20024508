"""Database URLs: where they come from, what they mean, and how they are shown without their secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from wane.errors import UrlError

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE_INSIDE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_PASSWORD = re.compile(r"(://[^:/?#]*):.*@")
_SECRET_QUERY = re.compile(r"(?i)\b(password|sslpassword|passfile|sslkey)=([^&\s]*)")
_EXAMPLES = 'write "sqlite:///state.db" or "postgresql://user@host/database"'


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """A URL whose secrets are filled in. Only `shown` may ever be printed."""

    kind: str
    """"sqlite" or "postgres"."""
    raw: str = field(repr=False)
    path: Path | None = None
    """SQLite: the database's file."""

    @property
    def shown(self) -> str:
        return mask(self.raw)


def resolve_url(text: str, *, base: Path | None = None, environ: Mapping[str, str] | None = None) -> DatabaseUrl:
    """Read a URL or the name of an environment variable that holds one. Relative SQLite paths start at `base`."""
    environ = os.environ if environ is None else environ
    if _VARIABLE_NAME.fullmatch(text):
        if not environ.get(text):
            raise UrlError(f"the environment variable {text} is not set", f"set it to a database URL, or {_EXAMPLES}")
        text = environ[text]
    url = _VARIABLE_INSIDE.sub(lambda match: _secret(match[1], environ), text)
    scheme = url.partition(":")[0].lower()
    if scheme == "sqlite":
        return DatabaseUrl("sqlite", url, _sqlite_path(url, base or Path()))
    if scheme in ("postgresql", "postgres"):
        try:
            urlsplit(url)
        except ValueError:
            raise UrlError("the PostgreSQL URL cannot be read", _EXAMPLES) from None
        return DatabaseUrl("postgres", url)
    raise UrlError(f"{mask(url)!r} is not a database URL that Wane knows", _EXAMPLES)


def mask(url: str) -> str:
    """The URL as it may be shown: passwords are replaced by ***. Rather too much is hidden than too little."""
    if url.lower().startswith("sqlite:"):
        return url
    return _SECRET_QUERY.sub(r"\1=***", _PASSWORD.sub(r"\1:***@", url))


def _secret(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise UrlError(f"the environment variable {name}, which the database URL uses, is not set")
    return environ[name]


def _sqlite_path(url: str, base: Path) -> Path:
    rest = url.partition(":")[2]
    if not rest.startswith("///"):
        raise UrlError(f"{url!r} names no file", 'three slashes and a path: "sqlite:///state.db"')
    name = unquote(rest[3:].partition("?")[0])
    if not name or name == ":memory:":
        raise UrlError("a SQLite database in memory has nothing to keep", 'name a file: "sqlite:///state.db"')
    return base / name
