"""A row that is not in its table: what the archive and the audit trail know of it, and what nothing records."""

from __future__ import annotations

from collections.abc import Mapping

from wane._archive.facade import Archive, locate_row
from wane._archive.journal import Journal
from wane._contract.model import Contract, Table, ToArchive, ToColdTier, describe_transform
from wane._db import Store
from wane._db.schema import TableInfo
from wane._findings import pasted
from wane._ledger import AuditEntry, Ledger
from wane._partition.model import QuarantinedRow
from wane._why.model import ArchivedCopy, GoneRow
from wane.errors import TimedOut, WaneError

_DEPARTURES = 5
_SECONDS = 10.0
_COUNTS_ONLY = (
    "which run took it: the audit trail records how many rows left, by rule and table, and no keys;"
    " the entries listed are those that may have"
)
_APPLICATION = "whether it ever existed, or the application deleted it itself: nothing records that"


def explain_gone(
    store: Store, contract: Contract, archive: Archive, table: Table, info: TableInfo, key: Mapping[str, object]
) -> GoneRow:
    """Collect what is known of a row that its table does not have."""
    unknown: list[str] = []
    copy = _archived(store, contract, archive, table, info, key, unknown)
    if copy is not None:
        return GoneRow(copy, (), tuple(unknown))
    quarantined = _quarantined(store, contract, table, info, key, unknown)
    if quarantined is not None:
        return GoneRow(None, (), tuple(unknown), quarantined)
    departures = _departures(store, table, unknown)
    unknown += [_COUNTS_ONLY] if departures else []
    for rule in table.rules:
        if isinstance(rule.action, ToColdTier):
            unknown.append(f"whether it is in a table of its month in the schema {rule.action.schema}: not searched")
    return GoneRow(None, departures, (*unknown, _APPLICATION))


def _quarantined(
    store: Store, contract: Contract, table: Table, info: TableInfo, key: Mapping[str, object], unknown: list[str]
) -> QuarantinedRow | None:
    if contract.partitioned(table.name) is None:
        return None
    from wane._partition.row import quarantined_row

    try:
        return quarantined_row(store, contract, table.name, info, key)
    except WaneError as problem:
        unknown.append(f"whether a partition in quarantine has it: {problem.message}")
        return None


def _archived(
    store: Store,
    contract: Contract,
    archive: Archive,
    table: Table,
    info: TableInfo,
    key: Mapping[str, object],
    unknown: list[str],
) -> ArchivedCopy | None:
    moves = any(isinstance(rule.action, ToArchive) for rule in table.rules)
    moves = moves or any(
        isinstance(rule.action, ToArchive) and follower.reference.table == table.name
        for _, rule, follower in contract.followers()
    )
    if contract.archive_url is None or not moves:
        return None
    try:
        found = locate_row(archive, info, key, _SECONDS)
    except WaneError as problem:
        unknown.append(f"whether the archive has it: {problem.message}")
        return None
    if found is None:
        return None
    with store.snapshot() as transaction:
        journal = Journal(transaction)
        sweep = None if found.sweep is None else journal.find(found.sweep)
        transform = None if sweep is None else journal.transformed([str(table.name)])[str(table.name)].get(sweep.id)
    pairs = [word for name, value in key.items() for word in ("--key", f"{name}={value}")]
    return ArchivedCopy(
        found.file,
        found.month,
        found.sweep,
        None if sweep is None else f"{sweep.table}.{sweep.rule}",
        None if sweep is None else sweep.changed_at,
        "" if transform else pasted("archive", "restore", table.name, *pairs).strip("`"),
        describe_transform(transform) if transform else "",
    )


def _departures(store: Store, table: Table, unknown: list[str]) -> tuple[AuditEntry, ...]:
    if not store.migrated:
        unknown.append("what left: the database does not have Wane's own tables")
        return ()
    own = Ledger(store.dialect, store.reader(_SECONDS))
    try:
        return tuple(own.departures(str(table.name), _DEPARTURES))
    except TimedOut:
        unknown.append(f"what left: the audit trail could not be read in {_SECONDS:g} seconds")
        return ()
