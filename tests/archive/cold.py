"""A table whose old rows go to an archive, what is in the archive, and the law that no row is ever lost or in two
places."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from archive.object_server import ObjectServer
from servers import Database
from wane._archive.model import ArchivedRule, ArchiveRun
from wane._findings import Finding
from wane._keeper import Keeper, open_keeper
from wane._prune.pace import Pace
from wane._prune.sweep import Outcome
from wane.events import ArchiveStep, BatchTaken, Event, WorkProgressed

PACE = Pace(target_seconds=1.0, duty=1.0, first_batch=40, least_batch=40, most_batch=40)
"""Small batches without pauses: every sweep has several."""
PATIENCE_SECONDS = 240.0
"""How long anything may take before a test gives up: a test here has 300 seconds, of which a busy machine may need
most."""
DAY_MS = 86_400_000
NOW_MS = int(time.time() * 1000)
OLD_MS = NOW_MS - 200 * DAY_MS

CONTRACT = """
[store]
url = {url}
[archive]
url = "cold"
[archive.event]
keep = "forever"
[scheduler]
night = {{ every = "1h" }}
[table.event]
scheduler = "night"
why   = "a test"
state = "status"
live  = ["open"]
time  = {{ column = "at_ms", unit = "ms" }}
[table.event.rule.cold]
when = ["done"]
keep = "90d"
then = "archive"
with = ["event_read.event_id"]
unless = [{{ referenced_by = "event_guard.event_id" }}]
[spark]
range_rows = 60
lease_seconds = 60
"""


@dataclass
class Cold:
    """A keeper, its database, and everything that was reported."""

    database: Database
    keeper: Keeper
    folder: Path
    server: ObjectServer | None = None
    """The object store that the archive is in; None if it is in a folder."""
    url: str = ""
    events: list[Event] = field(default_factory=list)
    at: dict[str, Callable[[], object]] = field(default_factory=dict)
    """What happens, once, when a sweep has reached a state, or has let a batch go."""
    hears: list[Callable[[Event], object]] = field(default_factory=list)
    """Who else hears everything."""

    def listen(self, event: Event) -> None:
        self.events.append(event)
        for one in self.hears:
            one(event)
        state = event.state if isinstance(event, ArchiveStep) else "batch" if isinstance(event, BatchTaken) else ""
        if (act := self.at.pop(state, None)) is not None:
            act()

    def run(self, *only: str, **options: Any) -> ArchiveRun:
        return self.keeper.archive.run(*only, **{"pace": PACE, **options})

    def one(self, **options: Any) -> ArchivedRule:
        [rule] = self.run(**options).rules
        return rule

    def progress(self, work: str) -> list[tuple[int, int | None]]:
        """Return rows done, of how many, as long work reported them."""
        reported = [one for one in self.events if isinstance(one, WorkProgressed) and one.work == work]
        assert {(one.unit, one.exact) for one in reported} == {("row", True)}
        return list(dict.fromkeys((one.done, one.of) for one in reported))

    def archived(self, table: str = "event") -> list[dict[str, Any]]:
        if self.server is not None:
            return self.server.archived(f"{self.url}/{table}")
        return archived(self.folder / "cold" / table)

    def hot(self, table: str = "event") -> list[Any]:
        return [one for (one,) in self.database.query(f"SELECT id FROM {table} ORDER BY id")]

    def cold(self, table: str = "event") -> list[Any]:
        return sorted(row["id"] for row in self.archived(table))


def archived(folder: Path) -> list[dict[str, Any]]:
    """Return what any other reader sees of the table."""
    if not (folder / "_delta_log").exists():
        return []
    read = pa.table(DeltaTable(str(folder)).to_pyarrow_table())
    return list(read.to_pylist())


@contextmanager
def cold_keeper(
    database: Database,
    folder: Path,
    contract: str = CONTRACT,
    *,
    enable: bool = True,
    server: ObjectServer | None = None,
    url: str = "",
) -> Iterator[Cold]:
    if server is not None:
        contract = contract.replace('url = "cold"', f'url = "{url}"')
    (folder / "wane.toml").write_text(contract.format(url=json.dumps(database.url)))
    cold: list[Cold] = []
    with open_keeper(
        contract=folder / "wane.toml", actor="tester", listener=lambda event: cold[0].listen(event)
    ) as keeper:
        keeper.migrate()
        if enable:
            keeper.enable()
        cold.append(Cold(database, keeper, folder, server, url))
        yield cold[0]


def events(database: Database, rows: int = 200) -> None:
    """Insert old rows with followers, young ones, live ones, guarded ones. The larger its id, the younger a row."""
    for statement in (
        "CREATE TABLE event (id bigint PRIMARY KEY, status text NOT NULL, at_ms bigint NOT NULL, body text, amount numeric(12,2))",
        "CREATE TABLE event_read (id bigint PRIMARY KEY, event_id bigint NOT NULL REFERENCES event (id), who text)",
        "CREATE TABLE event_guard (id bigint PRIMARY KEY, event_id bigint NOT NULL REFERENCES event (id))",
        "CREATE INDEX event_due ON event (status, at_ms, id)",
        "CREATE INDEX event_read_event ON event_read (event_id)",
        "CREATE INDEX event_guard_event ON event_guard (event_id)",
    ):
        database.execute(statement)
    insert_events(database, range(1, rows + 1))
    database.executemany(
        "INSERT INTO event VALUES (?, ?, ?, ?, ?)",
        [
            (10_001, "done", NOW_MS - DAY_MS, "young", 1),
            (10_002, "open", OLD_MS, "live", None),
            (10_003, "done", OLD_MS, "guarded", None),
        ],
    )
    database.execute("INSERT INTO event_guard VALUES (1, 10003)")


def insert_events(database: Database, ids: Sequence[int]) -> None:
    # All of them are due, however many there are.
    database.executemany(
        "INSERT INTO event VALUES (?, ?, ?, ?, ?)",
        [(n, "done", OLD_MS + n % 2_000 * 60_000 * 60, f"body {n} \U0001f600", n / 4) for n in ids],
    )
    database.executemany(
        "INSERT INTO event_read VALUES (?, ?, ?)", [(n * 10 + m, n, "me") for n in ids for m in range(n % 3)]
    )


STAYING = [10_001, 10_002, 10_003]


def refused(cold: Cold, code: str) -> Finding:
    """Require that nothing can be archived, and return the one finding of a code that reports why."""
    assert cold.one().outcome is Outcome.FAILED
    [finding] = [one for one in cold.keeper.check() if one.code == code]
    return finding


def damage(file: Path, column: str) -> None:
    """Change one byte of a column's values, so that only the page's checksum shows that they are others."""
    with pq.ParquetFile(file) as opened:
        of = opened.metadata.row_group(0).column(opened.schema_arrow.names.index(column))
        was = opened.read([column])
    begin = of.dictionary_page_offset or of.data_page_offset
    content = file.read_bytes()
    for position in reversed(range(begin, begin + of.total_compressed_size)):
        changed = content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :]
        with suppress(OSError, pa.ArrowException), pq.ParquetFile(pa.BufferReader(changed)) as opened:
            if not opened.read([column]).equals(was):
                file.write_bytes(changed)
                return
    raise AssertionError(f"no byte of {column} changes its values and lets them be read")


def conserve(cold: Cold, ever: dict[str, set[int]], *, done: bool) -> None:
    """Require every row in at least one table; once its sweep is done, in exactly one."""
    for table, ids in ever.items():
        hot, frozen = Counter(cold.hot(table)), Counter(cold.cold(table))
        assert set(hot) | set(frozen) == ids, f"{table}: lost {ids - set(hot) - set(frozen)}"
        assert max(frozen.values(), default=1) == 1, f"{table}: archived twice"
        if done:
            assert not set(hot) & set(frozen), f"{table}: in both places"
