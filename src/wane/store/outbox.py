"""Events as rows of the application's own outbox, written in the transaction that they tell of: told exactly if it happened."""

from __future__ import annotations

import json
import re
import uuid
from datetime import datetime
from typing import Any

from wane.contract.names import TableName
from wane.contract.settings import EventSettings, OutboxSettings
from wane.errors import StoreError
from wane.events import archived_name, hard_deleted_name
from wane.store.moments import micros
from wane.store.own import AuditEntry, Execute
from wane.store.statement import Dialect, Parameters
from wane.store.transaction import Transaction

_WORD = re.compile(r"\{([a-z_]+)\}")


def tell(
    transaction: Transaction,
    outbox: OutboxSettings | None,
    name: str,
    table: str,
    rows: int,
    audit: int | None,
    now: datetime,
    **also: Any,
) -> None:
    """Write one event; nothing if the contract names no outbox. It carries signals, never the contents of rows."""
    if outbox is not None:
        write_event(transaction.rows.dialect, transaction.execute, outbox, name, table, rows, audit, now, **also)


def tell_taken(transaction: Transaction, events: EventSettings, entry: AuditEntry, audit: int) -> None:
    """Write the events of what a transaction took, by its entry of the trail: moved to the archive, or deleted for good."""
    if events.outbox is None or entry.kind == "mark":
        return
    if entry.kind == "shelve":
        told = [(archived_name(entry.table), entry.table)] if events.tells_archived(entry.table) else []
    else:
        told = [(hard_deleted_name(table), table) for table in entry.counts if events.writes_pruned(table)]
    for name, table in told:
        rows = entry.counts.get(table, 0)
        if rows:
            tell(transaction, events.outbox, name, table, rows, audit, entry.executed_at, rule=entry.rule)


def write_event(
    dialect: Dialect,
    run: Execute,
    outbox: OutboxSettings,
    name: str,
    table: str,
    rows: int,
    audit: int | None,
    now: datetime,
    **also: Any,
) -> None:
    """Write one event through whatever runs a statement."""
    domain, _, event = name.partition("/")
    payload = {"event": name, "table": table, "rows": rows, "audit": audit, "at": now.isoformat(), **also}
    words = {
        "name": name,
        "domain": domain,
        "event": event,
        "table": table,
        "rows": str(rows),
        "audit": "" if audit is None else str(audit),
        "now": now.isoformat(),
        "now_s": str(micros(now) // 1_000_000),
        "now_ms": str(micros(now) // 1_000),
        "uuid": str(uuid.uuid4()),
        "payload": json.dumps(payload, ensure_ascii=True),
    }
    p = Parameters(dialect)
    quote = dialect.quote
    values = [
        p.bind(f"v{number}", _WORD.sub(lambda word: words[word[1]], text))
        for number, (_, text) in enumerate(outbox.columns)
    ]
    columns = ", ".join(quote(column) for column, _ in outbox.columns)
    try:
        run(f"INSERT INTO {_full_name(dialect, run, outbox)} ({columns}) VALUES ({', '.join(values)})", p.values)
    except Exception as problem:  # Whatever the driver raises: here it is known what it was about.
        raise StoreError(
            f"the event {name} cannot be written to {outbox.table}: {problem}",
            "mend `outbox` under [events]; until then nothing that it should tell of is done",
        ) from problem


def _full_name(dialect: Dialect, run: Execute, outbox: OutboxSettings) -> str:
    table = TableName.parse(outbox.table)
    schema, query = table.schema, dialect.schema_of(table.name)
    if schema is None and query is not None:
        schema = next((found for (found,) in run(query.text, query.parameters)), None)
    return ".".join(dialect.quote(one) for one in (schema, table.name) if one is not None)
