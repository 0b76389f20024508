"""Database URLs: where they come from, what they mean, and how they are shown without their secrets."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from urllib.parse import quote, unquote

from wane._contract.variables import VARIABLE
from wane._frozen import frozen
from wane.errors import UrlError

_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_PASSWORD = re.compile(r"(://[^:/?#]*):.*@", re.DOTALL)
_SECRET_KEY = re.compile(r"(?i)pass|secret|key|token")
_MISREAD = re.compile(r"\s|%(?![0-9A-Fa-f]{2})|%00")
_PORTS = re.compile(r"(\[[^\]]*\]|[^:,\[\]]*)(:[0-9]*)?")
_SCHEMES = ("sqlite", "postgresql", "postgres")
_SQLITE_SUFFIXES = (".db", ".db3", ".sqlite", ".sqlite3")
_EXAMPLES = 'write "sqlite:///state.db" or "postgresql://user@host/database"'


@frozen
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
            hint = _file_hint(text, base) or f"set it to a database URL, or {_EXAMPLES}"
            raise UrlError(f"the environment variable {text} is not set", hint)
        text = environ[text]
    url = VARIABLE.sub(lambda match: _secret(match[1], environ), text)
    scheme = url.partition(":")[0].lower()
    if scheme == "sqlite":
        return DatabaseUrl("sqlite", url, _sqlite_path(url, base or Path()))
    if scheme in ("postgresql", "postgres"):
        _require_unambiguous(url)
        return DatabaseUrl("postgres", url)
    known = _SCHEME.match(url)
    what = f"a URL that starts with {known[1]}:// is" if known else "the text given is"
    hint = _scheme_hint(known[1]) if known else _file_hint(text, base)
    raise UrlError(f"{what} no database URL that Wane knows", hint or _EXAMPLES)


def _scheme_hint(scheme: str) -> str:
    """Suggest the scheme that was meant, without the rest of the URL, which may hold a secret."""
    plain = scheme.lower().partition("+")[0]
    near = difflib.get_close_matches(plain, _SCHEMES, n=1, cutoff=0.7)
    return f"did you mean {near[0]}://… instead of {scheme}://…?" if near else ""


def _file_hint(text: str, base: Path | None) -> str:
    """Suggest the URL of a SQLite file for its mere path. A text that is no file's name is not shown: it may be a
    secret."""
    try:
        is_file = ((base or Path()) / text).is_file()
    except (OSError, ValueError):
        return ""
    named = text.lower().endswith(_SQLITE_SUFFIXES) and not _MISREAD.search(text) and "@" not in text
    return f"did you mean {f'sqlite:///{quote(text)}'!r}?" if text and (is_file or named) else ""


def unset_variable(text: str) -> str | None:
    """Return the first variable that a URL needs and the environment lacks; None if it lacks none."""
    if _VARIABLE_NAME.fullmatch(text):
        return None if os.environ.get(text) else text
    return next((name for name in VARIABLE.findall(text) if name not in os.environ), None)


def mask(url: str) -> str:
    """Return the URL as it may be shown: passwords are replaced by ***. It hides too much rather than too little."""
    if url.lower().startswith("sqlite:"):
        return url
    address, question, query = _PASSWORD.sub(r"\1:***@", url).partition("?")
    parts = [part.partition("=") for part in query.split("&")]
    shown = [f"{key}=***" if _SECRET_KEY.search(unquote(key)) else key + sign + value for key, sign, value in parts]
    return address + question + "&".join(shown)


def _require_unambiguous(url: str) -> None:
    """Refuse what the driver would misread: it would take a part of the password for a host or a port, and print it."""
    address, _, query = url.partition("://")[2].partition("?")
    server, slash, database = address.partition("/")
    _, at, hosts = server.rpartition("@")
    ambiguous = (
        _MISREAD.search(url)
        or server.count("@") > 1
        or (slash and "@" in database)
        or not all(_PORTS.fullmatch(host) for host in (hosts if at else server).split(","))
        or (query and not all("=" in part for part in query.split("&")))
    )
    if ambiguous or not url.partition(":")[2].startswith("//"):
        raise UrlError(
            "the PostgreSQL URL cannot be read",
            "write postgresql://user:password@host:port/database, and in the password %40 for @, %2F for /, %3A for :, "
            "%3F for ?, %25 for % and %20 for a space",
        )


def _secret(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise UrlError(
            f"the environment variable {name}, which the database URL uses, is not set",
            f"set {name}, or name another URL",
        )
    return environ[name]


def _sqlite_path(url: str, base: Path) -> Path:
    rest = url.partition(":")[2]
    if not rest.startswith("///"):
        name = rest.lstrip("/")
        meant = f"did you mean {f'sqlite:///{name}'!r}?" if name else 'three slashes and a path: "sqlite:///state.db"'
        raise UrlError("the SQLite URL names no file", meant)
    name = unquote(rest[3:].partition("?")[0])
    if "\0" in name:
        raise UrlError("the SQLite URL names no file", "no file has a name with a NUL character")
    if not name or name == ":memory:":
        raise UrlError("a SQLite database in memory has nothing to keep", 'name a file: "sqlite:///state.db"')
    return base / name
