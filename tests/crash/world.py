"""Tables for every way of taking rows, one rule each, and the books that are kept of them.

The books must balance after every crash: what was ever put into a table is there, or the audit says that it left,
exactly.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

from servers import Database

OLD_MS = int((datetime.now(UTC) - timedelta(days=30)).timestamp() * 1000)
NEW_MS = int(datetime.now(UTC).timestamp() * 1000)
MOST = 30
"""How many rows the cap leaves."""

CONTRACT = f"""
[scheduler]
night = {{ every = "1h" }}

[table.plain]
scheduler = "night"
why   = "a test"
state = "status"
live  = ["open"]
time  = {{ column = "done_at", unit = "ms" }}
[table.plain.rule.done]
when = ["done"]
keep = "7d"

[table.guarded]
scheduler = "night"
why   = "a test"
time  = {{ column = "done_at", unit = "ms" }}
[table.guarded.rule.done]
keep   = "7d"
unless = [{{ referenced_by = "guard.row_id" }}]

[table.followed]
scheduler = "night"
why   = "a test"
time  = {{ column = "done_at", unit = "ms" }}
[table.followed.rule.done]
keep = "7d"
with = ["follower.row_id"]

[table.marked]
scheduler = "night"
why   = "a test"
state = "status"
live  = ["open"]
time  = {{ column = "done_at", unit = "ms" }}
[table.marked.rule.done]
when = ["done"]
keep = "7d"
then = {{ mark = "seen" }}
[table.marked.rule.seen]
when = ["seen"]
keep = "forever"

[table.capped]
scheduler = "night"
why   = "a test"
time  = {{ column = "done_at", unit = "ms" }}
[table.capped.rule.cap]
most = {MOST}
"""
TABLES = ("plain", "guarded", "followed", "marked", "capped")
LOSING = ("plain", "guarded", "followed", "follower", "capped")
"""Tables that lose rows."""


class World:
    """The tables, what was put into them, and what must hold of them at any time."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.contract = folder / "wane.toml"
        self.contract.write_text(CONTRACT)
        self.ever: dict[str, set[int]] = {name: set() for name in (*TABLES, "guard", "follower")}
        self._next = 1
        for name in TABLES:
            database.execute(
                f"CREATE TABLE {name} (id bigint PRIMARY KEY, status text NOT NULL, done_at bigint NOT NULL, body text)"
            )
            database.execute(f"CREATE INDEX {name}_due ON {name} (status, done_at, id)")
            database.execute(f"CREATE INDEX {name}_old ON {name} (done_at, id)")
        for name, parent in (("guard", "guarded"), ("follower", "followed")):
            database.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, row_id bigint NOT NULL REFERENCES {parent})")
            database.execute(f"CREATE INDEX {name}_row ON {name} (row_id)")

    def fill(self, rows: int) -> None:
        """Put rows into every table: most of them due, some live, some guarded, some with followers."""
        for name in TABLES:
            new = range(self._next, self._next + rows)
            live = {number for number in new if number % 7 == 0}
            self.database.executemany(
                f"INSERT INTO {name} (id, status, done_at) VALUES (?, ?, ?)",
                [
                    (n, "open" if n in live else "done", (NEW_MS if n in live and name != "capped" else OLD_MS) + n)
                    for n in new
                ],
            )
            self.ever[name] |= set(new)
            self._next += rows
            if name == "guarded":
                self._refer("guard", [n for n in new if n % 5 == 0])
            if name == "followed":
                self._refer("follower", [n for n in new for _ in range(n % 3)])

    def _refer(self, name: str, parents: list[int]) -> None:
        new = range(self._next, self._next + len(parents))
        self.database.executemany(f"INSERT INTO {name} VALUES (?, ?)", list(zip(new, parents, strict=True)))
        self.ever[name] |= set(new)
        self._next += len(parents)

    def there(self, name: str) -> set[int]:
        return {number for (number,) in self.database.query(f"SELECT id FROM {name}")}

    def must_stay(self, name: str) -> set[int]:
        """Return rows that no rule may ever take."""
        stay = {number for number in self.ever[name] if number % 7 == 0}
        if name == "guarded":
            stay |= {number for number in self.ever[name] if number % 5 == 0}
        if name == "capped":
            stay = set(sorted(self.ever[name])[-MOST:])  # The larger the number, the newer.
        return stay

    def due(self) -> dict[str, int]:
        """Return how many rows of each table have yet to leave or to be marked."""
        left = {name: len(self.there(name) - self.must_stay(name)) for name in TABLES}
        [(left["marked"],)] = self.database.query(
            "SELECT count(*) FROM marked WHERE status = 'done' AND done_at < ?", (NEW_MS,)
        )
        return left

    def balance(self) -> None:
        """Fail unless the audit has exactly what left, table by table, and nothing left that had to stay."""
        counts: Counter[str] = Counter()
        marks: Counter[str] = Counter()
        audit = "wane_audit" if self.database.store == "sqlite" else "wane.audit"
        for kind, reported, rows, batches in self.database.query(
            f"SELECT kind, counts, row_count, batches FROM {audit}"
        ):
            by_table = json.loads(reported) if isinstance(reported, str) else reported
            assert sum(by_table.values()) == rows
            assert batches >= 1
            (marks if kind == "mark" else counts).update(by_table)
        for name in (*TABLES, "guard", "follower"):
            there = self.there(name)
            assert there <= self.ever[name], f"{name} has rows that nobody put there"
            gone = self.ever[name] - there
            assert len(gone) == counts[name], f"{name}: {len(gone)} rows are gone, and the trail says {counts[name]}"
            assert name in LOSING or not gone
            if name in TABLES:
                assert not self.must_stay(name) - there, f"{name} lost rows that had to stay"
        [(marked,)] = self.database.query("SELECT count(*) FROM marked WHERE status = 'seen'")
        assert marked == marks["marked"]
        dangling = "SELECT count(*) FROM follower WHERE row_id NOT IN (SELECT id FROM followed)"
        assert self.database.query(dangling) == [(0,)]
        if self.database.store == "sqlite":
            assert self.database.query("PRAGMA integrity_check") == [("ok",)]
            assert self.database.query("PRAGMA foreign_key_check") == []
