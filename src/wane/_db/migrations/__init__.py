"""Wane's own tables, as numbered SQL files, one per store. A file that has landed never changes; a change is a new
file.

A migration is known by its title: the number only orders them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from wane._frozen import frozen

if TYPE_CHECKING:
    from wane._db.store import Store


@frozen
class Migration:
    """One step, by name, with its SQL for one store."""

    name: str
    sql: str

    @property
    def title(self) -> str:
        """Return the name without its number."""
        return title(self.name)


def title(name: str) -> str:
    """Return the name of a migration without its number."""
    return name.partition("_")[2]


@cache
def migrations(store: str) -> tuple[Migration, ...]:
    """Return every migration for a store ("sqlite" or "postgres"), in order."""
    suffix = f".{store}.sql"
    found = [one for one in files(__package__).iterdir() if one.name.endswith(suffix)]
    return tuple(
        Migration(one.name.removesuffix(suffix), one.read_text(encoding="utf-8"))
        for one in sorted(found, key=lambda one: one.name)
    )


def pending(store: str, applied: Iterable[str]) -> list[Migration]:
    """Return the migrations that a database lacks, in order, given the names of those it has."""
    known = {title(name) for name in applied}
    return [one for one in migrations(store) if one.title not in known]


def pending_script(store: Store) -> list[Migration]:
    """Return what `migrate` would apply, as SQL for users to run: with the list of migrations and the entries in it."""
    lacking = pending(store.kind, store.applied_migrations())
    found = [f"{one.sql}{store.migration_entry.format(one.name)};\n" for one in lacking]
    if found:
        found[0] = f"{store.migration_list};\n{found[0]}"
        found[-1] += store.migration_end
    return [Migration(one.name, text) for one, text in zip(lacking, found, strict=True)]
