"""Counts and sums of keys come from the index alone; a row is read only if it is proven in full."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from archive.cold import cold_keeper
from archive.test_plain_rows import PLAIN, fill
from servers import Database, SqliteDatabase
from wane._archive.pipeline.ranges import bounds, cut
from wane._archive.rows.dialects import archive_dialect
from wane._archive.rows.sql import RANGE, bind_archive
from wane._contract.duration import FOREVER
from wane._contract.model import ArchiveTable
from wane._db import open_store
from wane._db.sqlite.digests import register
from wane._db.url import resolve_url
from wane._prune.binding import Bindings
from wane._rules.rows import rows_of


@pytest.mark.parametrize("piece", ["first", "later"])
def test_counts_and_sums_of_keys_read_the_index_only(database: Database, tmp_path: Path, piece: str) -> None:
    fill(database)
    database.execute("VACUUM ANALYZE event" if database.store == "postgres" else "ANALYZE")
    with cold_keeper(database, tmp_path, PLAIN) as cold, open_store(resolve_url(database.url)) as store:
        contract = cold.keeper.contract
        [table] = contract.tables
        selection = Bindings(store, contract).selection(table, table.rules[0])
        rows = bind_archive(rows_of(store), archive_dialect(store), selection, [ArchiveTable(table.name, FOREVER)])
        now = datetime.now(UTC)
        pieces, _ = cut(store, rows, now, range_rows=60, sweep_rows=100)
        within = bounds(rows, pieces[0 if piece == "first" else 1], store, now)
        checks = store.literal(rows.checks(rows.parts[0], now, strict=False)).replace(RANGE, within)
    if isinstance(database, SqliteDatabase):
        connection = database.connect()
        register(connection)
        plan = "\n".join(line[-1] for line in connection.execute(f"EXPLAIN QUERY PLAN {checks}"))
        assert "SEARCH t USING COVERING INDEX event_due (status=? AND at_ms>? AND at_ms<?)" in plan, plan
        return
    database.execute("SET enable_seqscan = off")  # So few rows fit a page or two.
    plan = "\n".join(line for (line,) in database.query(f"EXPLAIN (COSTS off) {checks}"))
    assert "Index Only Scan using event_due on event t" in plan, plan
    assert "Scan on event t" not in plan, plan
