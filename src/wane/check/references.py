"""What the database itself does when a row leaves: foreign keys, triggers, rules, row security.

A deleted row that takes others with it uncounted, or that cannot be deleted at all, breaks the audit; so every foreign key
to a table that loses rows must be followed or guarded, and whatever else fires on a delete is told.
"""

from __future__ import annotations

from collections.abc import Iterator

from wane.check.report import Report
from wane.contract.lint import UNTOUCHABLE
from wane.contract.model import Contract, Mark
from wane.contract.names import TableName
from wane.findings import Severity
from wane.store.schema import ForeignKey, OnDelete, Schema, TableInfo
from wane.store.selection import BoundFollower, BoundReference, Selection


def check_references(contract: Contract, schema: Schema, selection: Selection, report: Report) -> None:
    """Report everything that would happen beside the counted deletion."""
    if isinstance(selection.rule.action, Mark):
        return
    place = f"table.{selection.name}.rule.{selection.rule.name}"
    _check(contract, schema, selection.table, selection.followers, selection.saved_by, selection.name, place, report)


def _check(
    contract: Contract,
    schema: Schema,
    table: TableInfo,
    followers: tuple[BoundFollower, ...],
    guards: tuple[BoundReference, ...],
    name: TableName,
    place: str,
    report: Report,
) -> None:
    for child, key in _references_to(schema, table):
        followed = any(_same(follower.reference, child, key) and not follower.where for follower in followers)
        guarded = any(_same(guard, child, key) for guard in guards)
        if not followed and not guarded:
            _tell(contract, schema, table, child, key, name, place, report)
    _check_side_effects(table, name, place, report)
    for follower in followers:
        _check(contract, schema, follower.reference.table, follower.followers, (), name, place, report)


def _tell(
    contract: Contract,
    schema: Schema,
    table: TableInfo,
    child: TableInfo,
    key: ForeignKey,
    name: TableName,
    place: str,
    report: Report,
) -> None:
    columns = ", ".join(key.columns)
    shown = TableName(child.name, None if child.schema in schema.search_path else child.schema)
    reference = f"{shown}.{columns}" if len(key.columns) == 1 else f"{shown} ({columns})"
    decide = (
        f'let it follow, `with = ["{reference}"]`, or guard the row, `unless = [{{ referenced_by = "{reference}" }}]`'
    )
    if key.on_delete is OnDelete.CASCADE:
        excuse = next((why for one, why in contract.excused if schema.find(one.schema, one.name) == child), None)
        if excuse is not None and excuse.kind in UNTOUCHABLE:
            message = f"{shown} is excused as {excuse.kind.value}, but the foreign key {key.name} deletes its rows with {table.name}'s"
            report.add(Severity.ERROR, "excuse-broken", name, place, message, f"guard the row, or change {key.name}")
            return
        message = f"the foreign key {key.name} deletes rows of {shown} with {table.name}'s, uncounted"
        report.add(Severity.ERROR, "uncounted-cascade", name, place, message, decide)
    elif key.on_delete in (OnDelete.SET_NULL, OnDelete.SET_DEFAULT):
        message = f"the foreign key {key.name} changes {columns} of {shown} when {table.name}'s rows leave"
        report.add(Severity.WARNING, "silent-update", name, place, message, decide)
    else:
        message = f"{reference} refers to {table.name}, so its rows cannot leave while they are referred to"
        report.add(Severity.ERROR, "unguarded-reference", name, place, message, decide)


def _check_side_effects(table: TableInfo, name: TableName, place: str, report: Report) -> None:
    for trigger in table.delete_triggers:
        report.add(
            Severity.WARNING,
            "delete-trigger",
            name,
            place,
            f"{trigger.name} fires when rows of {table.name} are deleted: it may keep them or change other rows, uncounted",
            "make sure that it does neither; a batch that deletes fewer rows than it matched fails",
        )
    if table.row_security:
        report.add(
            Severity.WARNING,
            "row-security",
            name,
            place,
            f"row-level security of {table.name} hides rows from roles it applies to; Wane refuses to read so",
            "run Wane as the table's owner or as a role with BYPASSRLS",
        )


def _references_to(schema: Schema, table: TableInfo) -> Iterator[tuple[TableInfo, ForeignKey]]:
    for child in schema.tables:
        for key in child.foreign_keys:
            if (key.to_schema, key.to_table) == table.qualified and child.parent is None:
                yield child, key


def _same(reference: BoundReference, child: TableInfo, key: ForeignKey) -> bool:
    return reference.table == child and {c.name for c in reference.columns} == set(key.columns)
