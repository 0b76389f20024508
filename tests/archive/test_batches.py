"""A reader's batches are bounded by their bytes, whatever the rows are."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime

import pytest

from archive.copying import batch_sizes, bound, workers
from servers import Database
from wane._archive.rows.sql import RANGE
from wane._archive.spark.connect import source_of
from wane._archive.spark.reader import BATCH_BYTES, BATCH_ROWS
from wane._db import open_store
from wane._db.url import resolve_url

KILOBYTE = 1024
OLD_MS = 1_600_000_000_000


def read(pool: ProcessPoolExecutor, database: Database) -> list[tuple[int, int]]:
    """Return the rows and bytes of every batch."""
    with open_store(resolve_url(database.url)) as store:
        rows = bound(store)
        [part] = rows.parts
        now = datetime.now(UTC)
        copy, widest = (
            store.literal(one).replace(RANGE, "1 = 1") for one in (rows.copy(part, now), rows.widest(part, now))
        )
        source = source_of(store)
        return pool.submit(batch_sizes, source.kind, source.path, source.secret, copy, widest).result()


def fill(database: Database, sizes: dict[int, int]) -> None:
    """Insert so many rows of each size in kilobytes, in this order."""
    database.execute("CREATE TABLE t (id bigint PRIMARY KEY, at_ms bigint NOT NULL, body text)")
    numbered = [size for size, rows in sizes.items() for _ in range(rows)]
    database.executemany(
        "INSERT INTO t VALUES (?, ?, ?)", [(n, OLD_MS + n, "x" * (size * KILOBYTE)) for n, size in enumerate(numbered)]
    )


@pytest.mark.parametrize(
    ("sizes", "most"),
    [
        ({1024: 40}, 4),
        ({0: 10, 24 * 1024: 2, 1: 10}, 25),
        ({0: 9_000, 5 * 1024: 1}, 4),
    ],
    ids=["wide rows", "rows larger than a batch", "one wide row among many"],
)
def test_batches_are_bounded_by_their_bytes_and_rows(database: Database, sizes: dict[int, int], most: int) -> None:
    fill(database, sizes)
    with workers() as pool:
        found = read(pool, database)
    first = 1 if database.store == "sqlite" else 0  # A row of no key that shows what the columns are.
    assert sum(rows for rows, _ in found) == sum(sizes.values()) + first
    assert len(found) <= most
    widest = max(sizes) * KILOBYTE
    for rows, size in found:
        assert rows <= BATCH_ROWS or database.store == "postgres"
        # PostgreSQL's driver ends a batch with the row that fills it.
        assert size <= BATCH_BYTES + (widest if database.store == "postgres" else 0) + KILOBYTE * KILOBYTE or rows == 1
