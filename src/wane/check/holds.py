"""Holds that keep nothing: they are stored by the name of their table, and a table that was renamed is another one.

Nobody can say which table such a hold was meant for, so no rule takes rows until it is released.
"""

from __future__ import annotations

from collections.abc import Iterable

from wane.check.report import Report
from wane.findings import Severity
from wane.store import Store
from wane.store.due import qualified
from wane.store.schema import Schema

READ_SECONDS = 2.0


def lost_holds(store: Store, schema: Schema) -> list[str]:
    """Return the tables that holds in force name and the database does not have."""
    held = store.held_tables(READ_SECONDS) or ()
    return sorted(name for name in held if not is_known(store, schema, name))


def is_known(store: Store, schema: Schema, held: str) -> bool:
    """Return whether the database has the table that a hold names."""
    # SQLite finds tables in any case.
    fold = str.lower if store.kind == "sqlite" else str
    return fold(held) in {fold(qualified(table)) for table in schema.tables}


def report_lost_holds(names: Iterable[str], report: Report) -> None:
    """Report each as an error."""
    for name in names:
        report.add(
            Severity.ERROR,
            "lost-hold",
            name,
            "",
            f"a hold is on {name}, but the database has no such table: if it was renamed, nothing keeps its rows",
            "hold the table under its new name (`wane hold add`), then release the old hold;"
            " `wane hold list` shows its number",
        )
