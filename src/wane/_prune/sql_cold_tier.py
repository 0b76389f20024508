"""The cold tier inside the database: rows move to `<schema>.<table>_<yyyymm>`, by the UTC month of their rule's time.

A row is copied by the statement that deletes it, so what arrives is exactly what left, in one transaction. A table of
the archive has the columns of the hot one, no constraints, and an index on the key. A column that was added to the hot
table is added; one that was dropped stays, and later rows are NULL there; one whose type changed has the wider of both
types. Any other change of a type is an error before anything moves, because no column could hold both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from wane._contract.model import ToColdTier
from wane._db.postgres.dialect import PostgresDialect
from wane._db.schema import TableInfo, qualified
from wane._db.statement import Dialect, Statement, text_literal
from wane._rules.rows import Rows
from wane._rules.selection import Selection, follower_paths
from wane.errors import StoreError

if TYPE_CHECKING:
    from wane._db.transaction import Transaction
    from wane._prune.take import Key

_SUFFIX = "_yyyymm"
LOCK_SPACE = 0x77616E66
"""The key space of the advisory locks that serialise transactions that would create the same table."""

_READERS = """
SELECT DISTINCT acl.grantee::regrole::text FROM pg_catalog.pg_namespace AS namespace, aclexplode(namespace.nspacl) AS acl
WHERE namespace.nspname = %(schema)s AND acl.privilege_type = 'USAGE' AND acl.grantee <> 0
AND acl.grantee <> (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user)
"""


_WHOLE = "ARRAY['smallint', 'integer', 'bigint']"
_FRACTIONS = "ARRAY['real', 'double precision']"


def holds(one: str, other: str) -> str:
    """Write the condition that a column of one type, as PostgreSQL writes it, holds every value of another type.

    Where neither is known the condition is false or NULL.
    """

    def digits(kind: str, expression: str) -> str:
        return f"substring({kind} from '{expression}')::integer"

    precision, scale, length = r"^numeric\(([0-9]+),", r",(-?[0-9]+)\)$", r"^character varying\(([0-9]+)\)$"
    return (
        f"({one} = {other}"
        f" OR array_position({_WHOLE}, {one}) >= array_position({_WHOLE}, {other})"
        f" OR array_position({_FRACTIONS}, {one}) >= array_position({_FRACTIONS}, {other})"
        f" OR ({one} = 'numeric' AND {other} ~ '^numeric')"
        f" OR ({digits(one, scale)} = {digits(other, scale)} AND {digits(one, precision)} >= {digits(other, precision)})"
        f" OR ({one} IN ('text', 'character varying') AND {other} ~ '^(text$|character varying)')"
        f" OR {digits(one, length)} >= {digits(other, length)})"
    )


def name_of(table: TableInfo, month: str) -> str:
    """Return the name of the table for a month of a table: `event_outbox_202601`."""
    return f"{table.name}_{month.replace('-', '')}"


class MonthTable:
    """The archive tables for the rows of one rule and one month, with what leaves with them."""

    def __init__(self, transaction: Transaction, schema: str, month: str) -> None:
        self._transaction = transaction
        self._schema = schema
        self._month = month
        self._columns: dict[tuple[str, str], list[str]] = {}

    def _target(self, table: TableInfo) -> TableInfo:
        return TableInfo(self._schema, name_of(table, self._month), table.kind, table.columns)

    def ready(self, table: TableInfo, key: Sequence[str]) -> None:
        """Create the archive table for rows of a table, or check that the existing one fits."""
        run, dialect = self._transaction.execute, self._transaction.dialect
        # From here on no transaction can change the table's columns: what is copied is complete.
        self._transaction.read(locked_columns(dialect, table))
        target = self._target(table)
        hot = self._transaction.columns(table)
        cold = self._transaction.columns(target)
        if not cold:
            run(
                "SELECT pg_advisory_xact_lock(%(space)s, hashtext(%(name)s))",
                {"space": LOCK_SPACE, "name": qualified(target)},
            )
            cold = self._transaction.columns(target)
        if not cold:
            self._make(table, target, hot, key)
        else:
            self._fit(table, target, hot, cold)
        self._columns[table.qualified] = [name for name, _ in hot]

    def _make(self, table: TableInfo, target: TableInfo, hot: list[tuple[str, str]], key: Sequence[str]) -> None:
        run, dialect = self._transaction.execute, self._transaction.dialect
        schema, quoted = dialect.quote(self._schema), dialect.table(target)
        if not run("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %(schema)s", {"schema": self._schema}):
            run(f"CREATE SCHEMA IF NOT EXISTS {schema}", {})
        columns = ", ".join(f"{dialect.quote(name)} {kind.replace('%', '%%')}" for name, kind in hot)
        run(f"CREATE TABLE {quoted} ({columns})", {})
        comment = text_literal(f"wane: {qualified(table)}").replace("%", "%%")
        run(f"COMMENT ON TABLE {quoted} IS {comment}", {})
        # A role that may use the schema may read what is stored there, whichever role stored it.
        for (reader,) in run(_READERS, {"schema": self._schema}):
            run(f"GRANT SELECT ON {quoted} TO {reader.replace('%', '%%')}", {})
        if key:
            run(f"CREATE INDEX ON {quoted} ({', '.join(dialect.quote(name) for name in key)})", {})

    def _fit(
        self, table: TableInfo, target: TableInfo, hot: list[tuple[str, str]], cold: list[tuple[str, str]]
    ) -> None:
        run, dialect = self._transaction.execute, self._transaction.dialect
        where = f"{target.schema}.{target.name}"
        [(comment,)] = run(
            "SELECT obj_description(to_regclass(%(table)s), 'pg_class')",
            {"table": dialect.table(target).replace("%%", "%")},
        )
        if comment is not None and comment != f"wane: {qualified(table)}":
            raise StoreError(
                f"{where} does not hold rows of {qualified(table)}: its comment is {comment!r}",
                "rename it, so that a new one is made; nothing was moved",
            )
        has, wanted = dict(cold), dict(hot)
        for name, kind in has.items():
            if name not in wanted or wanted[name] == kind:
                continue
            kinds: dict[str, object] = {"cold": kind, "hot": wanted[name]}
            cold_kind, hot_kind = "%(cold)s::text", "%(hot)s::text"
            [(fits, wider)] = run(f"SELECT {holds(cold_kind, hot_kind)}, {holds(hot_kind, cold_kind)}", kinds)
            if not fits and not wider:
                raise StoreError(
                    f"{table.name}.{name} is {wanted[name]} now, and {where} has it as {kind}: no column holds both",
                    "nothing was moved; rename that table, so that a new one is made, or change its column",
                )
            if not fits:
                widened = f"ALTER COLUMN {dialect.quote(name)} TYPE {wanted[name].replace('%', '%%')}"
                run(f"ALTER TABLE {dialect.table(target)} {widened}", {})
        for name, kind in hot:
            if name not in has:
                column = f"{dialect.quote(name)} {kind.replace('%', '%%')}"
                run(f"ALTER TABLE {dialect.table(target)} ADD COLUMN {column}", {})

    def copying(self, table: TableInfo, statement: Statement) -> Statement:
        """Rewrite a statement that deletes rows of a table, so that they are inserted here."""
        names = self._columns[table.qualified]
        return moving(self._transaction.dialect, statement, self._target(table), names)


def moving(dialect: Dialect, statement: Statement, target: TableInfo, names: Sequence[str]) -> Statement:
    """Delete, and insert into another table what was deleted: one statement, so exactly the same rows."""
    columns = ", ".join(dialect.quote(name) for name in names)
    return Statement(
        f"WITH gone AS (\n{statement.text}\nRETURNING {columns}\n)\nINSERT INTO {dialect.table(target)} ({columns})\n"
        f"SELECT {columns} FROM gone",
        statement.parameters,
    )


def month_tables(
    transaction: Transaction, rows: Rows, selection: Selection, keys: Sequence[Key]
) -> Iterator[tuple[MonthTable, list[Key]]]:
    """Yield a month_table for each month of some rows, prepared for them and their followers, and the keys of its
    rows."""
    action = selection.rule.action
    assert isinstance(action, ToColdTier)
    keys_of: dict[str, list[Key]] = defaultdict(list)
    for *key, month in transaction.read(rows.dialect.fill_keys(months(rows, selection), keys)):
        keys_of[month].append(tuple(key))
    for month, some in sorted(keys_of.items()):
        month_table = MonthTable(transaction, action.schema, month)
        month_table.ready(selection.table, [column.name for column in selection.key])
        for path in follower_paths(selection):
            table = path[-1].reference.table
            month_table.ready(table, table.primary_key)
        yield month_table, some


def locked_columns(dialect: Dialect, table: TableInfo) -> Statement:
    """Write the statement after which no transaction can change a table's columns."""
    return Statement(f"LOCK TABLE {dialect.table(table)} IN ROW EXCLUSIVE MODE", {})


def months(rows: Rows, selection: Selection) -> Statement:
    """Write the query for the month of each row with some keys."""
    p = rows.parameters()
    outputs = [rows.dialect.encode_key(rows.column(column)) for column in selection.key]
    outputs.append(PostgresDialect().month("t", selection.time_column, selection.time))
    where = rows.among(p, selection, None)
    return p.statement(f"SELECT {', '.join(outputs)}\nFROM {rows.dialect.table(selection.table)} AS t\nWHERE {where}")


def shown_moving(dialect: Dialect, schema: str, table: TableInfo, statement: Statement) -> Statement:
    """Return a statement that deletes rows of a table as it is run, with `_yyyymm` for the month."""
    archived = TableInfo(schema, f"{table.name}{_SUFFIX}", table.kind, table.columns)
    return moving(dialect, statement, archived, [column.name for column in table.columns])
