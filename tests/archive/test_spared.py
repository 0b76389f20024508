"""A rule that archives spares its newest rows: also those that become the newest between their copy and their
eviction."""

from __future__ import annotations

from pathlib import Path

import pytest

from archive.cold import CONTRACT, cold_keeper, events
from servers import Database

SPARING = CONTRACT.replace('keep = "90d"\n', 'keep = "90d"\nspare = {{ newest = 2 }}\n').replace(
    'unless = [{{ referenced_by = "event_guard.event_id" }}]\n', ""
)
WITHOUT_FOLLOWERS = SPARING.replace('with = ["event_read.event_id"]\n', "")


@pytest.mark.parametrize("contract", [SPARING, WITHOUT_FOLLOWERS], ids=["followed", "alone"])
def test_a_row_that_becomes_one_of_the_newest_after_its_copy_stays(
    database: Database, tmp_path: Path, contract: str
) -> None:
    events(database, 9)
    database.script("DROP TABLE event_guard; DELETE FROM event WHERE id > 10000;")
    if contract is WITHOUT_FOLLOWERS:
        database.execute("DROP TABLE event_read")
    with cold_keeper(database, tmp_path, contract) as cold:

        def remove_newest() -> None:
            if contract is SPARING:
                database.execute("DELETE FROM event_read WHERE event_id = 9")
            database.execute("DELETE FROM event WHERE id = 9")

        cold.at["committed"] = remove_newest
        cold.run()
        assert cold.hot() == [7, 8]
