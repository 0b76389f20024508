"""The PostgreSQL settings of Wane's transactions and of the functions that it installs.

Invariant: every setting ends with its transaction. Behind a connection pooler the next transaction of the same server
connection is another client's. (Where there is none, the settings of statements that run at once, and those of calls,
last until the last of them: see `BoundedConnection.at_once`.) A statement that opens a transaction names `pg_catalog`
explicitly, because it runs under whatever search path is set.
"""

from __future__ import annotations

from collections.abc import Mapping

SEARCH_PATH = "pg_catalog, pg_temp"
"""Nothing that others may create is found by a bare name: a better match in `public` would win even behind pg_catalog,
and pg_temp, if it is not named, is searched first."""
TEXT_SETTINGS = {
    # Holds identify rows by the text of their keys, and keys travel as texts: it must be the same text in every
    # transaction.
    "array_nulls": "on",
    "bytea_output": "hex",
    "datestyle": "ISO",
    "extra_float_digits": "1",
    "intervalstyle": "postgres",
    "lc_monetary": "C",
    "quote_all_identifiers": "off",
    "standard_conforming_strings": "on",
    "timezone": "UTC",
    "xmlbinary": "base64",
    "xmloption": "content",
}
SAFE_SETTINGS = {
    "search_path": SEARCH_PATH,
    **TEXT_SETTINGS,
    # Policies would hide rows silently; off means that they raise instead.
    "row_security": "off",
}
"""The settings of every transaction and every function that handles users' rows."""
BY_INDEX = {
    # The plan of a prepared statement is cached. One that was made while a table was nearly empty would read all of it,
    # every time, once it is full.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    # There is one good plan: planning again costs as much as running.
    "plan_cache_mode": "force_generic_plan",
}
"""The settings of statements that are prepared."""
_NAMES = frozenset({"search_path"})
"""Settings that are lists of names: in quotes, a list would be one name."""


def set_locally(settings: Mapping[str, str]) -> str:
    """Write the statement that changes settings until the transaction ends."""
    return _set(settings, "true")


def set_session(settings: Mapping[str, str]) -> str:
    """Write the statement that changes settings of the session."""
    return _set(settings, "false")


def _set(settings: Mapping[str, str], local: str) -> str:
    return "SELECT " + ", ".join(
        f"pg_catalog.set_config('{name}', '{value}', {local})" for name, value in settings.items()
    )


def function_settings(settings: Mapping[str, str]) -> str:
    """Write the clauses by which a function changes settings while it runs."""
    written = {name: value if name in _NAMES else f"'{value}'" for name, value in settings.items()}
    return "\n".join(f"SET {name} = {value}" for name, value in written.items())


UNLIMITED = (
    "SELECT set_config(name, '0', true) FROM pg_catalog.pg_settings"
    " WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')"
)
"""A transaction that copies is long, and idle while files are written; the second limit exists since PostgreSQL 17."""
