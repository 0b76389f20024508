"""What the database itself does when a row is deleted: foreign keys, triggers, rules, row security.

A deleted row that takes others with it uncounted, or that cannot be deleted at all, breaks the audit; so every foreign
key to a table that loses rows must be followed or guarded, and whatever else fires on a delete is reported, as are live
rows that leave. Rows are stored in partitions, so what a partition declares for itself counts for its parent.
"""

from __future__ import annotations

from collections.abc import Iterator

from wane._contract import toml
from wane._contract.lint import UNTOUCHABLE
from wane._contract.model import Contract, Mark
from wane._contract.names import TableName, join_name
from wane._db.schema import SEES_ALL_ROWS, Column, ForeignKey, OnDelete, Schema, TableInfo, Trigger
from wane._db.statement import Dialect
from wane._findings import Severity
from wane._frozen import frozen
from wane._rules.excuses import excused_tables
from wane._rules.report import Report, rule_path
from wane._rules.selection import BoundFollower, BoundReference, Selection


def check_references(contract: Contract, schema: Schema, selection: Selection, report: Report) -> None:
    """Report everything that would happen besides the counted deletion."""
    path = rule_path(selection)
    check = _Check(contract, schema, selection.name, path, report)
    if isinstance(selection.rule.action, Mark):
        check.row_security(selection.table)
    else:
        check.leaving(selection.table, selection.key, selection.followers, selection.guards, selection.unlinked)


@frozen
class _Check:
    """One rule's table, and then the tables that follow it."""

    contract: Contract
    schema: Schema
    name: TableName
    path: str
    report: Report

    def leaving(
        self,
        table: TableInfo,
        key: tuple[Column, ...],
        followers: tuple[BoundFollower, ...],
        guards: tuple[BoundReference, ...] = (),
        unlinked: tuple[BoundReference, ...] = (),
        above: tuple[TableInfo, ...] = (),
    ) -> None:
        for child, foreign in self._references_to(table):
            followed = any(_covers(follower.reference, child, foreign) and not follower.where for follower in followers)
            guarded = any(_covers(guard, child, foreign) for guard in guards)
            # A foreign key that is not unlinked after all refuses the batch.
            by_trigger = any(one.delete_triggers for one in self._parts(table)) and any(
                _covers(one, child, foreign) for one in unlinked
            )
            if not followed and not guarded and not by_trigger:
                self._report(table, key, child, foreign, above)
        for part in self._parts(table):
            self._triggers(table, part)
        self.row_security(table)
        for follower in followers:
            inner = follower.reference.table
            self._live_follower(table, follower)
            inner_key = tuple(column for name in inner.primary_key if (column := inner.column(name)))
            self.leaving(inner, inner_key, follower.followers, above=(*above, table))

    def _live_follower(self, table: TableInfo, follower: BoundFollower) -> None:
        """Report a follower whose rows leave although their own table declares their state live."""
        if not follower.live_leaves:
            return
        for declared in self.contract.tables:
            found = self.schema.find(declared.name.schema, declared.name.name)
            if found is not None and found.qualified == follower.reference.table.qualified and declared.live:
                states = ", ".join(repr(state) for state in declared.live)
                self._add(
                    Severity.NOTE,
                    "live-follower",
                    f"rows of {declared.name} in a live state ({states}) leave with rows of {table.name}",
                    f'to let a live row of {declared.name} keep the row that it follows, remove `live = "leave"`',
                )

    def _parts(self, table: TableInfo) -> list[TableInfo]:
        """Return the table and everything that its rows may actually be stored in."""
        return [table, *self.schema.descendants(table)]

    def _references_to(self, table: TableInfo) -> Iterator[tuple[TableInfo, ForeignKey]]:
        targets = {part.qualified for part in self._parts(table)}
        for child in self.schema.tables:
            for key in child.foreign_keys:
                if (key.to_schema, key.to_table) in targets:
                    yield child, key

    def _report(
        self,
        table: TableInfo,
        table_key: tuple[Column, ...],
        child: TableInfo,
        key: ForeignKey,
        above: tuple[TableInfo, ...],
    ) -> None:
        schema, name = child.parent or child.qualified
        shown = TableName(name, None if schema in self.schema.search_path else schema)
        columns = ", ".join(key.columns)
        reference = f"{shown}.{columns}" if len(key.columns) == 1 else f"{shown} ({columns})"
        written = _written(shown, key, table_key)
        follow, guard = f"with = [{written}]", f"unless = [{{ referenced_by = {written} }}]"
        if (schema, name) in [one.qualified for one in (*above, table)]:
            decide = f"guard the row, `{guard}`" if not above else f"change {key.name}: a row cannot follow itself"
        elif above:
            decide = f"let it follow too, inside the entry of {table.name}: `{follow}`"
        else:
            decide = f"let it follow, `{follow}`, or guard the row, `{guard}`"
        if key.on_delete is OnDelete.CASCADE:
            excuse = self._excuse(schema, name)
            if excuse:
                message = f"{shown} is excused as {excuse}, but the foreign key {key.name} deletes its rows with {table.name}'s"
                self._add(Severity.ERROR, "excuse-broken", message, f"guard the row, or change {key.name}")
                return
            message = f"the foreign key {key.name} deletes rows of {shown} with {table.name}'s, uncounted"
            self._add(Severity.ERROR, "uncounted-cascade", message, decide)
        elif key.on_delete in (OnDelete.SET_NULL, OnDelete.SET_DEFAULT):
            message = f"the foreign key {key.name} changes {columns} of {shown} when {table.name}'s rows leave"
            if (schema, name) in [one.qualified for one in above]:
                # Their rows leave in the same batch, after those that follow them.
                message += f", and {shown}'s rows leave with them: only one that refers to another's would stay"
                self._add(Severity.NOTE, "silent-update", message, "nothing, if each refers to its own rows")
            else:
                self._add(Severity.WARNING, "silent-update", message, decide)
        else:
            message = f"{reference} refers to {table.name}, so its rows cannot leave while they are referred to"
            self._add(Severity.ERROR, "unguarded-reference", message, decide)

    def _excuse(self, schema: str, name: str) -> str:
        """Return the kind of the excuse which promises that nothing deletes from the table, if it has one."""
        for one in excused_tables(self.contract, self.schema):
            if one.info is not None and one.info.qualified == (schema, name) and one.excuse.kind in UNTOUCHABLE:
                return one.excuse.kind.value
        return ""

    def _triggers(self, table: TableInfo, part: TableInfo) -> None:
        for trigger in part.delete_triggers:
            self._add(
                Severity.WARNING,
                "delete-trigger",
                f"{trigger.name} fires when rows of {table.name} are deleted: it may keep them or change other rows, uncounted",
                "make sure that it does neither; a batch that deletes fewer rows than it matched fails"
                + (f"; {_pinning(trigger, part)}" if trigger.unpinned else ""),
            )

    def row_security(self, table: TableInfo) -> None:
        """Report once, however many rules take rows of the table, that policies hide rows from this role."""
        message = f"row-level security of {table.name} hides rows from this role; Wane refuses to read so"
        known = (one.message for one in self.report.findings if one.code == "row-security")
        if table.hides_rows and message not in known:
            self._add(Severity.WARNING, "row-security", message, SEES_ALL_ROWS)

    def _add(self, severity: Severity, code: str, message: str, fix: str) -> None:
        self.report.add(severity, code, self.name, self.path, message, fix)


def _pinning(trigger: Trigger, table: TableInfo) -> str:
    return (
        "and Wane's transactions find nothing by a bare name but what is PostgreSQL's own:"
        f" `ALTER FUNCTION {trigger.unpinned} SET search_path = {Dialect.quote(table.schema)}, pg_temp`, if it uses others"
    )


def _covers(reference: BoundReference, child: TableInfo, key: ForeignKey) -> bool:
    """Check whether every row that refers by the foreign key also refers by the contract's reference."""
    pairs = {(mine.name, theirs.name) for mine, theirs in zip(reference.columns, reference.to, strict=True)}
    return reference.table.qualified in (child.qualified, *child.ancestors) and pairs <= set(
        zip(key.columns, key.to_columns, strict=False)
    )


def _written(shown: TableName, key: ForeignKey, table_key: tuple[Column, ...]) -> str:
    """Write the foreign key as a reference in a contract."""
    points_at_key = key.to_columns == tuple(column.name for column in table_key)
    if len(key.columns) == 1 and points_at_key:
        return toml.value(f"{shown}.{join_name(list(key.columns))}")
    reference = {"table": str(shown), "columns": key.columns}
    return toml.value(reference if points_at_key else {**reference, "to": key.to_columns})
