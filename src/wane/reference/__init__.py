"""Reference contracts that ship, each with the schema it was written for, on both stores.

A contract includes one as `include = ["reference:statestore"]`. The windows live in these files and nowhere in the
code.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Literal

_ATTACHED = {"substrate": ("iu_core",)}
"""Schemas beside the main one. On SQLite they are databases of their own, attached under that name."""


def names() -> tuple[str, ...]:
    """Return the reference contracts, by the name they are included with."""
    return ("statestore", "claims", "webhooks", "substrate")


def contract_path(name: str) -> Path:
    """Return the path of a contract; raise KeyError for a name that does not ship."""
    return _path(name, "toml")


def schema_sql(name: str, store: Literal["sqlite", "postgres"]) -> dict[str, str]:
    """Return the statements that create the contract's tables, by the schema to run them in.

    SQLite has one script for `main`, which comes first, and one for each attached database; its statements name no
    schema, so each runs on a connection to that database's own file. PostgreSQL has one script for everything.
    """
    scripts = {"main": _path(name, f"{store}.sql")}
    if store == "sqlite":
        scripts |= {schema: _path(name, f"{schema}.sqlite.sql") for schema in _ATTACHED.get(name, ())}
    return {schema: path.read_text(encoding="utf-8") for schema, path in scripts.items()}


def _path(name: str, suffix: str) -> Path:
    if name not in names():
        raise KeyError(name)
    return Path(str(files(__name__).joinpath(f"{name}.{suffix}")))
