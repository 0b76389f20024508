"""Contracts for tables of systems that others wrote, proven against the systems' own cleaners.

A contract includes one as `include = ["catalogue:celery"]`. Windows have no defaults: each contract names the windows
that it needs, `systems.toml` has the length that the system's own cleaner would use, and the including file decides.
The same file has the tables and columns by which a system is recognised.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from wane._frozen import frozen


@frozen
class OwnWindow:
    """A window that a contract needs, and what the system's own cleaner would use."""

    own: str
    """The length, or "" if the system deletes nothing by itself."""
    why: str


@frozen
class CataloguedSystem:
    """A system whose tables a contract of the catalogue bounds."""

    name: str
    title: str
    cleaner: str
    """What the contract was compared with."""
    recognise: Mapping[str, tuple[str, ...]]
    """Tables that it has, each with some of its columns."""
    windows: Mapping[str, OwnWindow]
    prepare: tuple[str, ...]
    """Statements that its tables need once, before the first sweep."""


@cache
def systems() -> tuple[CataloguedSystem, ...]:
    """Return every system of the catalogue, by name."""
    data = tomllib.loads(_path("systems.toml").read_text(encoding="utf-8"))
    return tuple(
        CataloguedSystem(
            name,
            one["title"],
            one["cleaner"],
            {table: tuple(columns) for table, columns in one["recognise"].items()},
            {window: OwnWindow(**own) for window, own in one.get("window", {}).items()},
            tuple(one.get("prepare", ())),
        )
        for name, one in sorted(data.items())
    )


def names() -> tuple[str, ...]:
    """Return the contracts, by the name they are included with."""
    return tuple(one.name for one in systems())


def contract_path(name: str) -> Path:
    """Return the path of a contract; raise KeyError for a name that does not ship."""
    if name not in names():
        raise KeyError(name)
    return _path(f"{name}.toml")


def _path(name: str) -> Path:
    return Path(str(files(__name__).joinpath(name)))
