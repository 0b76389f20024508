"""`kill -9` at every step of the cold tier inside PostgreSQL, and at any time, while rows go there and back and the
application changes them: a row is always hot or cold, never both and never neither, and the audit has what moved."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from archive.cold import DAY_MS, NOW_MS, STAYING
from archive.test_cold_tier import SHELVED, everything, shelved
from crash.test_archive_kills import KILLS, PATIENCE_SECONDS, SEED, Application, Launcher, begin, kill_everywhere
from servers import PostgresDatabase

pytestmark = [pytest.mark.crash]

DIRECTED = [
    *("lock", "recheck", "months", "make", "fit", "followers", "take", "audit", "audit more", "commit", "bring back"),
]
"""Every step; the ordinary tests kill at a third of them."""


class ColdTierLauncher(Launcher):
    """Starts processes that move rows to the cold tier and back, and kills them."""

    script = "cold_tier_launcher.py"


class Months(Application):
    """Fills a month of its own each time, so that a table for it has to be made."""

    def fill(self, ids: range) -> None:
        with self._turn:
            at = NOW_MS - (100 + 31 * (ids.start // 100)) * DAY_MS
            self.database.executemany(
                "INSERT INTO event VALUES (?, 'done', ?, ?, NULL)", [(n, at + n, f"body {n}") for n in ids]
            )
            self.database.executemany(
                "INSERT INTO event_read VALUES (?, ?, 'me')", [(n * 10 + m, n) for n in ids for m in range(n % 3)]
            )
            self.bodies |= {n: f"body {n}" for n in ids}


def balance(application: Months) -> None:
    """Compare by key and content: every row is in one tier, and as many went cold as the trail says, but for those that
    came back."""
    with application._turn:
        database, bodies = application.database, application.bodies
        hot: dict[int, Any] = dict(database.query("SELECT id, body FROM event"))
        cold: list[tuple[int, Any]] = everything(shelved(database, columns="id, body"))
        assert Counter([*hot, *(row for row, _ in cold)]) == Counter([*bodies, *STAYING]), "each in one place"
        assert {row: body for row, body in [*hot.items(), *cold] if row in bodies} == bodies
        reads = [row for (row,) in database.query("SELECT id FROM event_read")]
        shelved_reads = [row for (row,) in everything(shelved(database, "event_read", columns="id"))]
        assert Counter(reads + shelved_reads) == Counter(n * 10 + m for n in bodies for m in range(n % 3))
        reported: Counter[str] = Counter()
        for (counts,) in database.query("SELECT counts FROM wane.audit WHERE kind = 'shelve'"):
            reported.update(counts)
        returned: Counter[str] = Counter(
            dict(database.query("SELECT name, sum(n)::bigint FROM returned GROUP BY name"))
        )
        assert reported["event"] - returned["event"] == len(cold)
        assert reported["event_read"] - returned["event_read"] == len(shelved_reads)


@pytest.mark.timeout(PATIENCE_SECONDS + 20 * KILLS)
def test_the_cold_tier_of_postgres_survives_kills(durable_database: PostgresDatabase, tmp_path: Path) -> None:
    launcher = ColdTierLauncher(begin(durable_database, tmp_path, SHELVED), tmp_path / "steps")
    durable_database.execute("CREATE TABLE returned (name text, n bigint)")
    application = Months(durable_database)
    try:
        with application.working():
            kill_everywhere(
                durable_database,
                launcher,
                DIRECTED if KILLS else DIRECTED[1::3],
                fill=application.fill,
                balance=lambda: balance(application),
            )
        launcher.finish(SEED)
        balance(application)
    finally:
        launcher.close()
    assert {row for (row,) in durable_database.query("SELECT id FROM event")} == set(STAYING)
    assert durable_database.query("SELECT count(*) FROM event_read") == [(0,)]
