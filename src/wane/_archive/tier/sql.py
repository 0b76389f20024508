"""Statements over rows that moved to another schema of the same database: which of them expire, and which come back.

Every statement takes rows of one month, with what left with them, out of the tables of that month, and deletes them for
good or inserts them where they came from: one statement, so exactly the same rows. What followed a row goes with it,
unless the month has another row of the same key that stays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from wane._db.schema import Column, TableInfo, qualified
from wane._db.statement import Parameters, Statement
from wane._db.transaction import Transaction
from wane._ledger import Hold
from wane._prune.sql_cold_tier import name_of
from wane._rules.rows import Rows
from wane._rules.selection import BoundFollower, BoundReference, Selection
from wane.errors import WrongArgument

_MONTHS = """
SELECT c.relname::text, pg_catalog.pg_total_relation_size(c.oid) FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind = 'r' AND pg_catalog.obj_description(c.oid, 'pg_class') = %(comment)s
ORDER BY c.relname
"""
_COMPARISON = re.compile(
    r"""\s*(?:"((?:[^"]|"")+)"|`([^`]+)`|([A-Za-z_][A-Za-z0-9_]*))\s*(=|<>|!=|<=|>=|<|>)\s*(?:'((?:[^']|'')*)'|(-?[0-9.]+))\s*"""
)
_AND = re.compile(r"and\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TierMonth:
    """The tables of one month of a table's rows."""

    month: str
    """`202601`."""
    bytes: int


def find_months(transaction: Transaction, schema: str, table: TableInfo) -> list[TierMonth]:
    """List the months that a schema has of a table's rows, the oldest first."""
    comment = f"wane: {qualified(table)}"
    found = transaction.execute(_MONTHS, {"schema": schema, "comment": comment})
    months = ((name.removeprefix(f"{table.name}_"), size) for name, size in found)
    return [TierMonth(month, size) for month, size in months if re.fullmatch(r"[0-9]{6}", month, re.ASCII)]


@dataclass(frozen=True, slots=True)
class TierComparison:
    """A comparison of a column with a value, which is passed as a text and cast to the column's type."""

    column: str
    sign: str
    value: str


def parse_comparisons(where: str) -> list[TierComparison]:
    """Parse comparisons that are joined by AND. Raise WrongArgument for everything else: it would be run as SQL."""
    found, rest = [], where
    while True:
        match = _COMPARISON.match(rest)
        if match is None:
            raise _too_much(where)
        quoted, ticked, bare, sign, text, number = match.groups()
        name = (quoted or "").replace('""', '"') or ticked or bare
        found.append(TierComparison(name, sign, number if text is None else text.replace("''", "'")))
        rest = rest[match.end() :]
        if not rest:
            return found
        joined = _AND.match(rest)
        if joined is None:
            raise _too_much(where)
        rest = rest[joined.end() :]


def _too_much(where: str) -> WrongArgument:
    return WrongArgument(
        f"{where!r} is more than comparisons of columns with values",
        "rows that are in the same database are chosen by comparisons joined by AND: \"id >= 5 AND status = 'done'\"",
    )


class TierRows:
    """Writes statements about one month of a rule's rows."""

    def __init__(self, rows: Rows, transaction: Transaction, selection: Selection, schema: str, month: str) -> None:
        self.rows = rows
        self.hot = selection
        self._schema = schema
        self._month = month
        self.table = self._cold(selection.table)
        self.columns = {name for name, _ in transaction.columns(self.table)}
        """The columns of the month's table, which may lack some of the hot one."""
        self.paths: list[tuple[BoundFollower, ...]] = []
        """What left with its rows, the nearest first, as far as the month has tables for it."""
        self._columns: dict[tuple[str, str], set[str]] = {}
        self._visit(transaction, (), selection.followers)

    def _cold(self, table: TableInfo) -> TableInfo:
        return replace(table, schema=self._schema, name=name_of(table, self._month))

    def _visit(
        self, transaction: Transaction, above: tuple[BoundFollower, ...], followers: Sequence[BoundFollower]
    ) -> None:
        for follower in followers:
            table = follower.reference.table
            names = {name for name, _ in transaction.columns(self._cold(table))}
            if names:
                self._columns[table.qualified] = names
                self.paths.append((*above, follower))
                self._visit(transaction, (*above, follower), follower.followers)

    @property
    def names(self) -> list[str]:
        """Return the tables whose rows are taken, as the contract names them."""
        return [str(self.hot.name), *(str(path[-1].reference.name) for path in self.paths)]

    # Which rows

    def expired(self, p: Parameters, cutoff: datetime, selections: Sequence[Selection]) -> list[str]:
        """Write the conditions that a row's time, by every rule that moves rows here, is before an instant."""
        found = []
        for selection in selections:
            found += self.rows.plausible(p, selection, "t")
            found += self.rows.before(p, selection, "t", cutoff, inclusive=False)
        return [*dict.fromkeys(found), *self.unheld(p)]

    def unheld(self, p: Parameters) -> list[str]:
        """Write the conditions that neither a row, nor its table, nor a row that left with it is held."""
        found = [f"NOT {self.rows.is_held(p, self.hot.table, 't')}"]
        for path in self.paths:
            source, links = self._chain(path)
            held = self.rows.is_held(p, path[-1].reference.table, f"f{len(path) - 1}")
            found.append(f"NOT EXISTS (SELECT 1 FROM {source} WHERE {links} AND {held})")
        return found

    def _chain(self, path: Sequence[BoundFollower]) -> tuple[str, str]:
        quote = self.rows.dialect.table
        tables = [f"{quote(self._cold(one.reference.table))} AS f{number}" for number, one in enumerate(path)]
        links = [
            self.rows.refers(one.reference, f"f{number}", f"f{number - 1}" if number else "t")
            for number, one in enumerate(path)
        ]
        return ", ".join(tables), " AND ".join(links)

    def chosen(self, p: Parameters, comparisons: Sequence[Sequence[TierComparison]], *aliases: str) -> list[str]:
        """Write the condition that a row meets all comparisons of one of some lists, for each alias (`t` alone if none
        is named); values are bound once."""
        ways = []
        for some in comparisons:
            parts = []
            for one in some:
                column = self.hot.table.column(one.column)
                if column is None or one.column not in self.columns:
                    raise WrongArgument(
                        f"{self.table.schema}.{self.table.name} has no column {one.column!r}",
                        f"columns: {', '.join(sorted(self.columns))}",
                    )
                value = f"({p.bind('value', one.value)}::text)::{column.type.replace('%', '%%')}"
                parts.append((column, one.sign.replace("!=", "<>"), value))
            ways.append(parts)

        def written(alias: str) -> str:
            joined = (
                " AND ".join(f"{self.rows.column(column, alias)} {sign} {value}" for column, sign, value in parts)
                for parts in ways
            )
            return f"({' OR '.join(f'({one})' for one in joined)})"

        return [written(alias) for alias in aliases or ("t",)]

    def free(self) -> list[str]:
        """Write the condition that no row of the hot table has a row's key."""
        return [f"NOT {one}" for one in self.taken()]

    def taken(self) -> list[str]:
        """Write the condition that a row of the hot table has a row's key."""
        same = self._same("t", "h", self.hot.key)
        return [f"EXISTS (SELECT 1 FROM {self.rows.dialect.table(self.hot.table)} AS h WHERE {same})"]

    def newest(self, other: str) -> list[str]:
        """Write the condition that no later row of the month that meets a condition, on `o`, has a row's key.

        A key that was reused may have been archived twice. The later row is further on in the table.
        """
        same = self._same("o", "t", self.hot.key)
        return [f"NOT EXISTS (SELECT 1 FROM {self._table} AS o WHERE {same} AND o.ctid > t.ctid AND {other})"]

    def _same(self, one: str, other: str, key: Sequence[Column]) -> str:
        sign = self.rows.dialect.sign
        return " AND ".join(
            f"{self.rows.column(column, one)} {sign('=', column)} {self.rows.column(column, other)}" for column in key
        )

    # Statements

    def count(self, p: Parameters, where: Sequence[str]) -> Statement:
        """Write the query of the number of rows that meet conditions."""
        return p.statement(f"SELECT count(*) FROM {self._table} AS t WHERE {' AND '.join(where)}")

    def count_following(self, p: Parameters, path: Sequence[BoundFollower], where: Sequence[str]) -> Statement:
        """Write the query of the number of rows that left with rows that meet conditions."""
        source, links = self._chain(path)
        return p.statement(f"SELECT count(*) FROM {self._table} AS t, {source} WHERE {' AND '.join([*where, links])}")

    @property
    def _key(self) -> str:
        return self.rows.dialect.key_text(list(self.hot.key), "t")

    def first(self, p: Parameters, where: Sequence[str], limit: int) -> Statement:
        """Write the query of the keys of the first rows that meet conditions."""
        return p.statement(
            f"SELECT {self._key} FROM {self._table} AS t WHERE {' AND '.join(where)}"
            f" ORDER BY t.ctid LIMIT {p.bind('limit', limit)}"
        )

    def others(self, p: Parameters, keys: Sequence[str]) -> list[str]:
        """Write the condition that a row has none of some keys."""
        return [f"{self._key} <> ALL ({p.bind('keys', list(keys))}::text[])"] if keys else []

    def keys(self, where: Sequence[str]) -> str:
        """Write the query of the keys of rows that meet conditions, as a part of `older_versions`."""
        return f"SELECT {self._key} AS k FROM {self._table} AS t WHERE {' AND '.join(where)}"

    def lost(self, p: Parameters, where: Sequence[str]) -> tuple[list[str], Statement] | None:
        """Write the query of how many rows have values in columns that the hot table no longer has, by column."""
        hot = {column.name for column in self.hot.table.columns}
        names = sorted(self.columns - hot)
        if not names:
            return None
        counts = ", ".join(f"count(t.{self.rows.dialect.quote(name)})" for name in names)
        return names, p.statement(f"SELECT {counts} FROM {self._table} AS t WHERE {' AND '.join(where)}")

    @property
    def _table(self) -> str:
        return self.rows.dialect.table(self.table)

    def delete(self, p: Parameters, where: Sequence[str], limit: int) -> Statement:
        """Write the statement that deletes rows, with what left with them; it returns how many of each table."""
        steps, names = self._taking(p, where, limit)
        return p.statement(f"WITH {', '.join(steps)} SELECT {_counts(names)}")

    def restore(self, p: Parameters, where: Sequence[str], limit: int, hold: Hold | None) -> Statement:
        """Write the statement that moves rows back, with what left with them; it returns how many of each table.

        References are checked at the end of the statement, when all of them are back. `hold`: what protects each row
        from the next sweep.
        """
        steps, names = self._taking(p, where, limit)
        back = []
        for number, name in enumerate(names):
            table = self.paths[number - 1][-1].reference.table if number else self.hot.table
            known = self._columns[table.qualified] if number else self.columns
            shared = [column.name for column in table.columns if column.name in known and not column.generated]
            listed = ", ".join(map(self.rows.dialect.quote, shared))
            back.append(
                f"back{number} AS (INSERT INTO {self.rows.dialect.table(table)} ({listed}) OVERRIDING SYSTEM VALUE"
                f" SELECT {listed} FROM {name} RETURNING 1)"
            )
            if hold is not None:
                back.append(f"held{number} AS ({self._hold(p, table, name, hold)})")
        counts = _counts([f"back{number}" for number in range(len(names))])
        return p.statement(f"WITH {', '.join([*steps, *back])} SELECT {_counts(names)}, {counts}")

    def _hold(self, p: Parameters, table: TableInfo, source: str, hold: Hold) -> str:
        dialect = self.rows.dialect
        assert hold.ends_at is not None
        key = [column for name in table.primary_key if (column := table.column(name)) is not None]
        values = [
            p.bind("table", qualified(table)),
            dialect.key_text(key, "g"),
            p.bind("reason", hold.reason),
            p.bind("author", hold.author),
            p.bind("created_at", dialect.encode_time(hold.created_at)),
            p.bind("ends_at", dialect.encode_time(hold.ends_at)),
        ]
        return (
            f"INSERT INTO {dialect.own_table('hold')} (table_name, key, reason, author, created_at, ends_at)"
            f" SELECT {', '.join(values)} FROM {source} AS g RETURNING 1"
        )

    def _taking(self, p: Parameters, where: Sequence[str], limit: int) -> tuple[list[str], list[str]]:
        """Write the steps that delete rows and what left with them, and the names of their results."""
        chosen = (
            f"chosen AS MATERIALIZED (SELECT t.ctid AS c FROM {self._table} AS t WHERE {' AND '.join(where)}"
            f" ORDER BY t.ctid LIMIT {p.bind('limit', limit)} FOR UPDATE)"
        )
        steps = [
            chosen,
            f"gone AS (DELETE FROM {self._table} AS t USING chosen WHERE t.ctid = chosen.c RETURNING t.*)",
        ]
        names = ["gone"]
        results: dict[tuple[BoundFollower, ...], str] = {(): "gone"}
        for number, path in enumerate(self.paths):
            reference = path[-1].reference
            follower = self.rows.dialect.table(self._cold(reference.table))
            links = self.rows.refers(reference, "f", "g")
            if len(path) == 1:
                links += f" AND NOT EXISTS ({self._staying(reference)})"
            results[path] = f"went{number}"
            steps.append(
                f"went{number} AS (DELETE FROM {follower} AS f USING {results[path[:-1]]} AS g WHERE {links} RETURNING f.*)"
            )
            names.append(f"went{number}")
        return steps, names

    def _staying(self, reference: BoundReference) -> str:
        """Write the query of rows that a follower refers to as well, and that stay."""
        links = self.rows.refers(reference, "f", "k")
        return f"SELECT 1 FROM {self._table} AS k WHERE {links} AND k.ctid NOT IN (SELECT c FROM chosen)"


def older_versions(p: Parameters, months: Sequence[str], limit: int) -> Statement:
    """Write the query of keys that several rows of some months have: the first of them, and how many rows of all of
    them are not the newest of their key."""
    return p.statement(
        f"WITH versions AS ({' UNION ALL '.join(months)}),"
        " repeated AS (SELECT k, count(*) - 1 AS older FROM versions GROUP BY k HAVING count(*) > 1)"
        f" SELECT k, (sum(older) OVER ())::bigint FROM repeated ORDER BY k LIMIT {p.bind('limit', limit)}"
    )


def held_row(
    rows: Rows,
    transaction: Transaction,
    table: TableInfo,
    schema: str,
    month: TierMonth,
    key: Sequence[tuple[str, str]] | None,
    text: str | None,
) -> Statement:
    """Write the query of the text by which a hold names a row of a month, by its key or by that text."""
    p = transaction.parameters()
    dialect = rows.dialect
    columns = [column for name in table.primary_key if (column := table.column(name)) is not None]
    written = dialect.key_text(columns, "t")
    where = [] if text is None else [f"{written} = {p.bind('text', text)}"]
    for name, value in key or ():
        column = table.column(name)
        if column is not None:
            cast = f"({p.bind('value', value)}::text)::{column.type.replace('%', '%%')}"
            where.append(f"{rows.column(column, 't')} = {cast}")
    source = dialect.table(replace(table, schema=schema, name=name_of(table, month.month)))
    return p.statement(f"SELECT {written} FROM {source} AS t WHERE {' AND '.join(where)} LIMIT 1")


def _counts(names: Sequence[str]) -> str:
    return ", ".join(f"(SELECT count(*) FROM {name})" for name in names)
