"""What the application has written, as a model of its own, and a life of rows under it: copied, evicted, restored,
erased, expired, compacted.

The model changes only when a statement of the application says that it changed a row. DuckDB compares multisets
(`EXCEPT ALL`, both ways), so that a row that is lost, twice, or changed on its way shows, whatever Wane itself counts.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from archive.cold import CONTRACT, DAY_MS, NOW_MS, OLD_MS, Cold, events, insert_events
from archive.test_plain_rows import PLAIN
from servers import Database
from wane._prune.sweep import Outcome

ROWS = 130
KEEP_DAYS = 198
HOUR_MS = 3_600_000
EXPIRED_MS = NOW_MS - KEEP_DAYS * DAY_MS + HOUR_MS // 2
"""No row has a time near it: rows are an hour apart."""
DUE_MS = NOW_MS - 90 * DAY_MS
HELD = 3
EVENT = {"id": pa.int64(), "status": pa.string(), "at_ms": pa.int64(), "body": pa.string(), "amount": pa.float64()}
READ = {"id": pa.int64(), "event_id": pa.int64(), "who": pa.string()}


@dataclass(frozen=True)
class Kind:
    """A table and its contract: rows that others follow and save, or plain ones, which leave by their range."""

    contract: str
    columns: str | None = None
    """The key's, of a table without followers."""
    key: str = "id"

    @property
    def follows(self) -> bool:
        return self.columns is None

    @property
    def shapes(self) -> dict[str, dict[str, Any]]:
        return {"event": EVENT, "event_read": READ} if self.follows else {"event": EVENT}

    def create(self, database: Database, rows: int = ROWS) -> None:
        if self.follows:
            events(database, rows)
            return
        rest = "status text NOT NULL, at_ms bigint NOT NULL, body text, amount numeric(12,2)"
        database.execute(f"CREATE TABLE event ({self.columns}, {rest}, PRIMARY KEY ({self.key}))")
        database.execute("CREATE INDEX event_due ON event (status, at_ms, id)")
        self.insert(database, range(1, rows + 1))

    def insert(self, database: Database, ids: Sequence[int]) -> None:
        if self.follows:
            insert_events(database, ids)
            return
        database.executemany(
            "INSERT INTO event (id, status, at_ms, body, amount) VALUES (?, 'done', ?, ?, ?)",
            [(n, OLD_MS + n % 2_000 * HOUR_MS, f"body {n} \U0001f600", n / 4) for n in ids],
        )


def _expiring(contract: str) -> str:
    return contract.replace('keep = "forever"', f'keep = "{KEEP_DAYS}d"')


KINDS = {
    "followers": Kind(_expiring(CONTRACT)),
    "plain": Kind(_expiring(PLAIN), "id bigint"),
    "pairs": Kind(_expiring(PLAIN), "id bigint, tenant text NOT NULL DEFAULT 'a, \"b\"'", "tenant, id"),
}
"""On PostgreSQL plain rows are compared by sums, if their key is a whole number, or by pairs of key and version; on
SQLite by values."""


def _table(shape: dict[str, Any], rows: Sequence[Sequence[Any]]) -> pa.Table:
    columns = []
    for number, kind in enumerate(shape.values()):
        values = [row[number] for row in rows]
        if kind == pa.float64():
            values = [None if value is None else float(value) for value in values]
        columns.append(pa.array(values, kind))
    return pa.table(columns, names=list(shape))


def _sql(text: str, **tables: pa.Table) -> list[dict[str, Any]]:
    with duckdb.connect() as engine:
        for name, table in tables.items():
            engine.register(name, table)
        return list(engine.sql(text).to_arrow_table().to_pylist())


class Oracle:
    """Every row that the application has and has not deleted; and those that it deleted, copies of which may be
    archived."""

    def __init__(self, cold: Cold, kind: Kind) -> None:
        self.cold = cold
        self.database = cold.database
        self.kind = kind
        self.ever = {name: {row[0]: list(row) for row in self.hot(name)} for name in kind.shapes}
        self.deleted: dict[str, list[list[Any]]] = {name: [] for name in kind.shapes}
        """What such a row was, now or before: a copy was made at any time. A row whose key changed is another one."""
        self.former: dict[int, list[list[Any]]] = {}

    def hot(self, name: str) -> list[Any]:
        return self.database.query(f"SELECT {', '.join(self.kind.shapes[name])} FROM {name}")

    def set(self, number: int, column: str, value: object) -> None:
        """Let the application change a row, if it is hot."""
        if self.database.execute(f"UPDATE event SET {column} = ? WHERE id = ?", (value, number)):
            before = self.ever["event"].pop(number)
            row = list(before)
            row[list(EVENT).index(column)] = value
            self.ever["event"][row[0]] = row
            self.former.setdefault(number, []).append(before)
            if row[0] != number:
                self.deleted["event"] += self.former.pop(number)

    def delete(self, number: int) -> None:
        if self.kind.follows:
            for read in [one for one, row in self.ever["event_read"].items() if row[1] == number]:
                if self.database.execute("DELETE FROM event_read WHERE id = ?", (read,)):
                    self.deleted["event_read"].append(self.ever["event_read"].pop(read))
        if self.database.execute("DELETE FROM event WHERE id = ?", (number,)):
            self.deleted["event"] += [*self.former.pop(number, []), self.ever["event"].pop(number)]

    def insert(self, ids: Sequence[int]) -> None:
        self.kind.insert(self.database, ids)
        at = [n * 10 for n in ids]
        for name, chosen in (("event", set(ids)), ("event_read", {n + m for n in at for m in range(3)})):
            if name in self.kind.shapes:
                self.ever[name] |= {row[0]: list(row) for row in self.hot(name) if row[0] in chosen}

    def erase(self) -> dict[str, int]:
        """Forget what the application deleted."""
        counts = {name: len(rows) for name, rows in self.deleted.items()}
        self.deleted = {name: [] for name in self.deleted}
        return counts

    def expire(self) -> dict[str, int]:
        """Forget what is archived and older than the archive keeps, but for what is held, with what follows it."""
        hot = {row[0] for row in self.hot("event")}
        going = {n for n, row in self.ever["event"].items() if row[2] < EXPIRED_MS and n not in (*hot, HELD)}
        counts = {"event": len(going)}
        self.ever["event"] = {n: row for n, row in self.ever["event"].items() if n not in going}
        if self.kind.follows:
            left = {n: row for n, row in self.ever["event_read"].items() if row[1] not in going}
            counts["event_read"] = len(self.ever["event_read"]) - len(left)
            self.ever["event_read"] = left
        return counts

    def compare(self) -> None:
        """Require every row in one tier, as the application left it, and nothing else but copies of what it deleted."""
        for name, shape in self.kind.shapes.items():
            given = {
                "ever": _table(shape, list(self.ever[name].values())),
                "deleted": _table(shape, self.deleted[name]),
                "hot": _table(shape, self.hot(name)),
                "cold": _table(shape, [[row[column] for column in shape] for row in self.cold.archived(name)]),
            }
            both = "(SELECT * FROM hot UNION ALL SELECT * FROM cold)"
            lost = _sql(f"SELECT * FROM ever EXCEPT ALL {both}", **given)
            extra = _sql(f"({both} EXCEPT ALL SELECT * FROM ever) EXCEPT ALL SELECT * FROM deleted", **given)
            assert (lost, extra) == ([], []), f"{name}: lost {lost[:5]}, extra {extra[:5]}"

    def require_swept(self) -> None:
        """Require that nothing is hot that is due, and nothing archived that is not."""
        staying = {n for n, row in self.ever["event"].items() if row[1] == "open" or row[2] > DUE_MS}
        guarded = (
            {n for (n,) in self.database.query("SELECT event_id FROM event_guard")} if self.kind.follows else set()
        )
        assert set(self.cold.hot()) == staying | guarded


def sweep(cold: Cold) -> Any:
    done = cold.one()
    assert done.outcome is Outcome.DONE, done.message
    return done


def live(cold: Cold, kind: Kind, *, frames: bool) -> None:
    """Lead rows through everything that an archive does, and compare after every step. Some of it needs the frames of a
    Spark."""
    oracle = Oracle(cold, kind)

    def disturb() -> None:
        oracle.set(5, "body", "changed")
        oracle.set(70, "body", "changed")
        oracle.delete(61)

    # The application goes on between the copy and the eviction, and between two batches of it.
    cold.at["committed"] = disturb
    cold.at["batch"] = lambda: oracle.set(120, "at_ms", NOW_MS)
    done = sweep(cold)
    assert done.archived["event"] == ROWS
    assert 2 <= done.stale <= 3, "where tasks evict, they may have taken the last one before"
    oracle.compare()
    held = {"id": HELD} if kind.key == "id" else {"id": HELD, "tenant": 'a, "b"'}
    cold.keeper.hold("event", held, reason="a test")
    for erase in (True, False):
        expected = oracle.erase() if erase else oracle.expire()
        [gone] = cold.keeper.archive.expire(erase_absent=erase)
        assert gone.outcome is Outcome.DONE, gone.message
        assert {name: sum(months.values()) for name, months in gone.rows.items()} == expected, gone.rows
        oracle.compare()
    assert cold.keeper.archive.restore("event", where="id IN (50, 98)").restored["event"] == 2
    oracle.compare()
    oracle.set(50, "body", "back")
    oracle.insert(range(1_001, 1_011))
    assert sweep(cold).archived["event"] == 12, "ten that are new, and two that had changed"
    oracle.compare()
    if frames:
        assert {one.outcome for one in cold.keeper.archive.compact()} == {Outcome.DONE}
        oracle.compare()
    assert all(proof.problems == () for proof in cold.keeper.archive.verify())


STATES = ("planned", "written", "verified", "committed", "batch", "evicted")


class Application:
    """Changes the time, key, state, content and existence of rows: when it is called, or in a thread all the time."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._problem: BaseException | None = None
        self._random = random.Random(15)
        self._new = 20_000
        self.changed = 0

    def change(self, number: int) -> None:
        """Do one of everything, beginning with a row that nothing follows."""
        with self._turn:
            oracle = self.oracle
            self._new += 3
            self.changed += 1
            oracle.set(number, "at_ms", OLD_MS + (number * 7 % ROWS) * HOUR_MS + 1)
            oracle.set(number + 1, "status", "open")
            oracle.set(number + 2, "body", f"changed {self._new}")
            oracle.set(number + 3, "id", self._new)  # Nothing follows it.
            oracle.delete(number + 4)
            gone = any(row[0] == number + 4 for row in oracle.deleted["event"][-1:])
            if gone and number + 4 not in oracle.ever["event"] and self._random.random() < 0.5:
                oracle.insert([number + 4])
            oracle.set(number + 5, "at_ms", NOW_MS)
            oracle.insert([self._new + 1])

    def change_any(self) -> None:
        self.change(self._random.randrange(1, ROWS // 3) * 3)

    def _work(self) -> None:
        try:
            while not self._stop.wait(0.02):
                self.change_any()
        except BaseException as problem:
            self._problem = problem

    @contextmanager
    def working(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
        if self._problem is not None:
            raise self._problem


def race(
    cold: Cold, kind: Kind, *, working: Callable[[Application], AbstractContextManager[None]] = Application.working
) -> None:
    """Sweep while the application changes everything about rows; what is due when it rests is archived, and the rest
    hot."""
    oracle = Oracle(cold, kind)
    application = Application(oracle)
    with working(application):
        for turn in range(2):
            for number, state in enumerate(STATES):
                first = 3 * (1 + number * 6 + turn * 3)
                cold.at[state] = lambda first=first: application.change(first)  # type: ignore[misc]
            sweep(cold)
    assert application.changed >= 2 * (len(STATES) - 1), "a sweep that has no batch has no such event"
    oracle.compare()
    sweep(cold)
    oracle.compare()
    oracle.require_swept()
