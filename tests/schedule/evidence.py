"""What triggers of the database write down while many processes run, whatever Wane itself says about it.

Every deletion of a swept row records which process did it and who had the table's lease at that time, seen from inside
the deleting transaction. Every change of a message records its states, its token and the timestamp.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from servers import Database

TABLES = ("inbox", "outbox", "jobs", "leases")

_SQLITE_LOGS = """
CREATE TABLE evidence_row (
  seq INTEGER PRIMARY KEY, tbl TEXT, id INTEGER, process INTEGER, holder TEXT, fence INTEGER, at TEXT
);
CREATE TABLE evidence_message (
  seq INTEGER PRIMARY KEY, message_id TEXT, was TEXT, becomes TEXT, was_token TEXT, token TEXT, was_due TEXT, due TEXT, at TEXT
);
CREATE TRIGGER evidence_of_messages AFTER UPDATE ON wane_message BEGIN
  INSERT INTO evidence_message (message_id, was, becomes, was_token, token, was_due, due, at) VALUES
    (NEW.message_id, OLD.state, NEW.state, OLD.token_hash, NEW.token_hash, OLD.due_at, NEW.due_at,
     strftime('%Y-%m-%dT%H:%M:%fZ', 'now'));
END;
"""
_SQLITE_TABLE = """
CREATE TABLE {name} (id INTEGER PRIMARY KEY, done_at INTEGER NOT NULL);
CREATE INDEX {name}_due ON {name} (done_at, id);
CREATE TRIGGER evidence_of_{name} BEFORE DELETE ON {name} BEGIN
  INSERT INTO evidence_row (tbl, id, process, holder, fence, at)
    SELECT '{name}', OLD.id, process_id(), holder, fence, strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
    FROM wane_lease WHERE name = 'sweep:{name}';
END;
"""
_POSTGRES_LOGS = """
CREATE TABLE evidence_row (
  seq bigint GENERATED ALWAYS AS IDENTITY, tbl text, id bigint, process bigint, holder text, fence bigint, at timestamptz
);
CREATE TABLE evidence_message (
  seq bigint GENERATED ALWAYS AS IDENTITY, message_id text, was text, becomes text, was_token text, token text,
  was_due timestamptz, due timestamptz, at timestamptz
);
CREATE FUNCTION evidence_of_message() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
BEGIN
  INSERT INTO evidence_message (message_id, was, becomes, was_token, token, was_due, due, at) VALUES
    (NEW.message_id, OLD.state, NEW.state, OLD.token_hash, NEW.token_hash, OLD.due_at, NEW.due_at, clock_timestamp());
  RETURN NULL;
END $$;
CREATE TRIGGER evidence AFTER UPDATE ON wane.message FOR EACH ROW EXECUTE FUNCTION evidence_of_message();
CREATE FUNCTION evidence_of_row() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$
BEGIN
  PERFORM pg_sleep(0.0004);
  INSERT INTO evidence_row (tbl, id, process, holder, fence, at)
    SELECT TG_TABLE_NAME, OLD.id, current_setting('evidence.process')::bigint, holder, fence, clock_timestamp()
    FROM wane.lease WHERE name = 'sweep:' || TG_TABLE_NAME;
  RETURN OLD;
END $$;
"""
_POSTGRES_TABLE = """
CREATE TABLE {name} (id bigint PRIMARY KEY, done_at bigint NOT NULL);
CREATE INDEX {name}_due ON {name} (done_at, id);
CREATE TRIGGER evidence BEFORE DELETE ON {name} FOR EACH ROW EXECUTE FUNCTION evidence_of_row();
"""


def write_everything_down(database: Database) -> None:
    """Create the swept tables, and the triggers. Wane's own tables must be there."""
    sqlite = database.store == "sqlite"
    database.script(_SQLITE_LOGS if sqlite else _POSTGRES_LOGS)
    for name in TABLES:
        database.script((_SQLITE_TABLE if sqlite else _POSTGRES_TABLE).format(name=name))


def timestamp(stamp: Any) -> datetime:
    if isinstance(stamp, str):
        return datetime.fromisoformat(stamp).astimezone(UTC)
    assert isinstance(stamp, datetime)
    return stamp.astimezone(UTC)


def _maybe(stamp: Any) -> datetime | None:
    return None if stamp is None else timestamp(stamp)


@dataclass(frozen=True)
class Deletion:
    """One row that left."""

    table: str
    id: int
    process: int
    holder: str
    fence: int
    at: datetime


@dataclass(frozen=True)
class Change:
    """One change of one message."""

    message_id: str
    was: str
    becomes: str
    was_token: str | None
    token: str | None
    was_due: datetime | None
    due: datetime | None
    at: datetime


class Evidence:
    """Everything that was written down, and what must hold of it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        rows = database.query("SELECT tbl, id, process, holder, fence, at FROM evidence_row ORDER BY seq")
        self.deletions = [Deletion(row[0], row[1], row[2], row[3], row[4], timestamp(row[5])) for row in rows]
        rows = database.query(
            "SELECT message_id, was, becomes, was_token, token, was_due, due, at FROM evidence_message ORDER BY seq"
        )
        self.changes = [
            Change(row[0], row[1], row[2], row[3], row[4], _maybe(row[5]), _maybe(row[6]), timestamp(row[7]))
            for row in rows
        ]

    def check_sweeps(self) -> None:
        """Require that the process that deleted a row had the table's lease at that time; fences only rise, and two
        processes never take turns under one."""
        for name in TABLES:
            mine = [one for one in self.deletions if one.table == name]
            fence, latest = 0, datetime.min.replace(tzinfo=UTC)
            owners: dict[int, int] = {}
            for one in mine:
                assert f":{one.process}:" in one.holder, f"{one} was done by a process without the lease"
                assert one.fence >= fence, f"{one} came after fence {fence}"
                assert owners.setdefault(one.fence, one.process) == one.process, f"two processes under one fence: {one}"
                if one.fence > fence:
                    assert one.at >= latest, f"{one} overlaps the sweep before"
                fence, latest = one.fence, max(latest, one.at)

    def check_reservations(self) -> None:
        """Require that a message has one valid reservation at a time, and one end."""
        ends: Counter[str] = Counter()
        slack = timedelta(milliseconds=5)  # SQLite's triggers know milliseconds.
        for one in self.changes:
            if one.was == "reserved":
                assert one.was_due is not None
                if one.becomes == "reserved":
                    assert one.token == one.was_token, f"taken from its holder: {one}"
                    assert one.at <= one.was_due + slack, f"renewed after its end: {one}"
                elif one.becomes == "done":
                    assert one.at <= one.was_due + slack, f"acked after its end: {one}"
                    ends[one.message_id] += 1
            if one.becomes == "reserved" and one.was != "reserved":
                assert one.was == "ready", f"reserved though it was not ready: {one}"
            assert one.was not in ("done", "dead"), f"it had ended: {one}"
        assert set(ends.values()) <= {1}
        states = self.database.query(
            f"SELECT message_id, state FROM {'wane_message' if self.database.store == 'sqlite' else 'wane.message'}"
        )
        assert {state for _, state in states} == {"done"}, Counter(state for _, state in states)
        assert {message_id for message_id, _ in states} == set(ends)

    def takeovers(self) -> list[tuple[datetime, datetime]]:
        """Return reservations that ran out: when they ended, and when another worker had the message."""
        found = []
        waiting: dict[str, datetime] = {}
        for one in self.changes:
            if one.was == "reserved" and one.becomes in ("ready", "delayed") and one.was_due and one.at >= one.was_due:
                waiting[one.message_id] = one.was_due
            elif one.becomes == "reserved" and one.message_id in waiting:
                found.append((waiting.pop(one.message_id), one.at))
        return found

    def check_books(self, ever: dict[str, set[int]]) -> None:
        """Require that every row that ever was is there, or left once and is in the trail."""
        reported: Counter[str] = Counter()
        audit = "wane_audit" if self.database.store == "sqlite" else "wane.audit"
        for counts, rows in self.database.query(f"SELECT counts, row_count FROM {audit}"):
            by_table = json.loads(counts) if isinstance(counts, str) else counts
            assert sum(by_table.values()) == rows
            reported.update(by_table)
        for name in TABLES:
            there = {number for (number,) in self.database.query(f"SELECT id FROM {name}")}
            gone = [one.id for one in self.deletions if one.table == name]
            assert len(gone) == len(set(gone)), f"{name}: a row left twice"
            assert there | set(gone) == ever[name]
            assert not there & set(gone)
            assert reported[name] == len(gone), f"{name}: {len(gone)} rows left, and the trail says {reported[name]}"
