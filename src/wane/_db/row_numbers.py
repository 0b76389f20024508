"""Numbers that SQLite gives to the rows of a table as they come: how many came since another, without reading the
others.

PostgreSQL numbers no rows: they have positions, which updates change.
"""

from __future__ import annotations

from wane._db.schema import TableInfo
from wane._db.statement import Parameters, Statement
from wane._db.store import Store
from wane.errors import StoreError

_SECONDS = 5.0
_LEAST_ROW_BYTES = 4
"""The smallest size of a row of any table."""


def row_numbers(store: Store, table: TableInfo) -> tuple[int, int] | None:
    """Read the first and the last number of a row of a table; (1, 0) for an empty table.

    None if the store numbers no rows, or not in turn.
    """
    if store.kind != "sqlite" or any(column.name.lower() == "rowid" for column in table.columns):
        return None
    name = store.dialect.table(table)
    ends = f"(SELECT min(rowid) FROM {name}) AS first, (SELECT max(rowid) FROM {name}) AS last"
    try:
        [(first, last, pages, size)] = store.read(
            Statement(f"SELECT {ends}, page_count, page_size FROM pragma_page_count(), pragma_page_size()", {}),
            _SECONDS,
        )
    except StoreError:
        return None  # It numbers no rows.
    if first is None:
        return 1, 0
    # Numbers that were given out in turn are dense. As many rows as there are random ones would not fit into the file.
    return (int(first), int(last)) if last - first < pages * size // _LEAST_ROW_BYTES else None


def count_after(store: Store, table: TableInfo, number: int, most: int, seconds: float) -> int:
    """Count the rows that were numbered after another, up to `most`; raise TimedOut if that takes longer."""
    p = Parameters(store.dialect)
    some = (
        f"SELECT 1 FROM {store.dialect.table(table)} WHERE rowid > {p.bind('number', number)} LIMIT {p.bind('n', most)}"
    )
    [(rows,)] = store.read(p.statement(f"SELECT count(*) FROM ({some}) AS some_rows"), seconds)
    return int(rows)
