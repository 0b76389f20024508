"""Holds without effect: they are stored by the name of their table, and a renamed table is another one.

There is no way to know which table such a hold was meant for, so no rule takes rows until it is released.
"""

from __future__ import annotations

from collections.abc import Iterable

from wane._db import Store
from wane._db.schema import Schema, qualified
from wane._findings import Severity
from wane._rules.reads import held_tables
from wane._rules.report import Report

READ_SECONDS = 2.0


def lost_holds(store: Store, schema: Schema, held: Iterable[str] | None = None) -> list[str]:
    """Return the table names of holds in force that the database does not have; `held` are all, if they were read."""
    names = held_tables(store, READ_SECONDS) if held is None else held
    return sorted(name for name in names or () if not is_known(store, schema, name))


def is_known(store: Store, schema: Schema, held: str) -> bool:
    """Return whether the database has the table that a hold names."""
    fold = str.lower if store.folds_names else str
    return fold(held) in {fold(qualified(table)) for table in schema.tables}


def report_lost_holds(names: Iterable[str], report: Report) -> None:
    """Report each table name as an error."""
    for name in names:
        report.add(
            Severity.ERROR,
            "lost-hold",
            name,
            "",
            f"a hold is on {name}, but the database has no such table: nothing leaves any table until that hold is released",
            "if the table was renamed, hold it under its new name first (`wane hold add`); then `wane hold release` the old hold,"
            " whose number `wane hold list` shows",
        )
