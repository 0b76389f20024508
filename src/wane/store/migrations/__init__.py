"""Wane's own tables, as numbered SQL files, one per store. A file that has landed never changes; a change is a new file."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Migration:
    """One step, by name, with its SQL for one store."""

    name: str
    sql: str


def migrations(store: str) -> list[Migration]:
    """Every migration for a store ("sqlite" or "postgres"), in order."""
    suffix = f".{store}.sql"
    found = [one for one in files(__package__).iterdir() if one.name.endswith(suffix)]
    return [
        Migration(one.name.removesuffix(suffix), one.read_text(encoding="utf-8"))
        for one in sorted(found, key=lambda one: one.name)
    ]
