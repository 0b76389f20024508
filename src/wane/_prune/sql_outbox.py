"""Events as rows of the application's own outbox.

They are written in the transaction that they describe, so they exist exactly if it committed.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime

from wane._contract.names import TableName
from wane._contract.settings import EventSettings, OutboxSettings
from wane._db.sqlite.store import SqliteStore
from wane._db.statement import Execute, Parameters, Statement
from wane._db.store import Store
from wane._db.timestamps import micros
from wane._db.transaction import Transaction
from wane._frozen import frozen
from wane._ledger import AuditEntry
from wane.errors import StoreError
from wane.events import archived_name, hard_deleted_name

_WORD = re.compile(r"\{([a-z_]+)\}")
_SECONDS = 5.0
_SCHEMA_OF = """
SELECT space.nspname::text
FROM unnest(%(schemas)s::text[]) WITH ORDINALITY AS searched (name, position)
JOIN pg_catalog.pg_namespace AS space ON space.nspname = searched.name
JOIN pg_catalog.pg_class AS class ON class.relnamespace = space.oid AND class.relname = %(name)s
ORDER BY searched.position
LIMIT 1
"""


@frozen
class OutboxEvent:
    """What an event reports. It carries signals, never the contents of rows."""

    name: str
    table: str
    rows: int
    audit: int | None
    at: datetime
    also: Mapping[str, object] = field(default_factory=dict)
    """Further entries of its payload."""


def write_taken_event(store: Store, transaction: Transaction, events: EventSettings, entry: AuditEntry) -> None:
    """Write the events of what a transaction took, by its audit entry: moved to the archive, or deleted for good."""
    if events.outbox is None or entry.kind == "mark":
        return
    if entry.kind == "shelve":
        emitted = [(archived_name(entry.table), entry.table)] if events.emits_archived(entry.table) else []
    else:
        emitted = [(hard_deleted_name(table), table) for table in entry.counts if events.writes_pruned(table)]
    for name, table in emitted:
        rows = entry.counts.get(table, 0)
        if rows:
            event = OutboxEvent(name, table, rows, entry.id, entry.executed_at, {"rule": entry.rule})
            write_event(store, transaction.execute, events.outbox, event)


def write_event(store: Store, run: Execute, outbox: OutboxSettings | None, event: OutboxEvent) -> None:
    """Write one event through `run`, whichever transaction that uses; nothing if the contract names no outbox."""
    if outbox is None:
        return
    domain, _, name = event.name.partition("/")
    now = event.at.isoformat()
    payload = {"event": event.name, "table": event.table, "rows": event.rows, "audit": event.audit, "at": now}
    words = {
        "name": event.name,
        "domain": domain,
        "event": name,
        "table": event.table,
        "rows": str(event.rows),
        "audit": "" if event.audit is None else str(event.audit),
        "now": now,
        "now_s": str(micros(event.at) // 1_000_000),
        "now_ms": str(micros(event.at) // 1_000),
        "uuid": str(uuid.uuid4()),
        "payload": json.dumps({**payload, **event.also}, ensure_ascii=True),
    }
    p = Parameters(store.dialect)
    quote = store.dialect.quote
    values = [
        p.bind(f"v{number}", _WORD.sub(lambda word: words[word[1]], text))
        for number, (_, text) in enumerate(outbox.columns)
    ]
    columns = ", ".join(quote(column) for column, _ in outbox.columns)
    found = locate(store, TableName.parse(outbox.table))
    target = ".".join(quote(one) for one in (found.schema, found.name) if one is not None)
    try:
        run(f"INSERT INTO {target} ({columns}) VALUES ({', '.join(values)})", p.values)
    except Exception as problem:  # Whatever the driver raises: the context is known here.
        store.located.clear()
        raise StoreError(
            f"the event {event.name} cannot be written to {outbox.table}: {problem}",
            "fix `outbox` under [events]; until then nothing that emits an event is done",
        ) from problem


def locate(store: Store, name: TableName) -> TableName:
    """Return a name by which statements find the table, as `reflect` would; if there is none, the name itself.

    A table that was found is remembered until the schema is reflected again.
    """
    if name.schema is not None or isinstance(store, SqliteStore):
        return name  # SQLite's statements find tables without a schema as `reflect` does.
    from wane._db.postgres.store import PostgresStore

    assert isinstance(store, PostgresStore)
    if name not in store.located:
        searched: dict[str, object] = {"schemas": store.schemas(), "name": name.name}
        for (schema,) in store.read(Statement(_SCHEMA_OF, searched), _SECONDS):
            store.located[name] = TableName(name.name, schema)
    return store.located.get(name, name)  # A table that is missing may be created at any time.
