"""Bringing rows back: which exist already, which come in, that they are exactly what the archive holds, and that no
sweep takes them at once.

A row comes back with everything that left with it, or not at all. Whatever a statement did is read back by the
database's own digests before the transaction may commit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wane._archive.model import DIFFERENT
from wane._archive.restore.journal import OnConflict
from wane._archive.rows.types import ArchiveDialect, Stored
from wane._contract.model import State
from wane._db.schema import Column, TableInfo
from wane._db.statement import Execute, Parameters, Statement
from wane._db.transaction import Transaction
from wane._ledger import Hold
from wane._rules.rows import Rows
from wane._rules.selection import BoundReference
from wane.errors import StoreError, Unproven

_ROWS_FAULT = ("22", "23", "P0")
"""The classes of PostgreSQL's errors that are about the rows themselves: data, constraints, and what triggers raise."""
LIVE = "the row that has its key is live"
HELD = "the row that has its key is held"
OWNED = "the row that has its key belongs to a row that is live or held"


class RestoreDialect(ABC):
    """What differs between the stores when archived values are written back."""

    most_values: int
    """The most values that one statement takes."""

    @abstractmethod
    def values(self, p: Parameters, columns: Sequence[tuple[Column, Stored]], rows: Sequence[Sequence[Any]]) -> str:
        """Write a query that yields rows of these columns, as c0, c1, …, from values that the archive held."""

    @abstractmethod
    def insert(self, table: str, names: Sequence[str], values: str) -> str:
        """Write a statement that inserts what a query yields, including values that the table would have generated."""

    @abstractmethod
    def declared(self, column: Column) -> str:
        """Return a column's type, to declare a column of another table like it."""

    @abstractmethod
    def create_side(self, table: str, definition: str) -> Sequence[str]:
        """Write the statements that create a side table and mark it as one."""

    @abstractmethod
    def refused_side(self, schema: str | None, name: str) -> str:
        """Return why no side table may have this name; "" if one may."""

    @abstractmethod
    def refused_new(self, run: Execute, schema: str | None, name: str) -> str:
        """Read why no table of this name can be created; "" if one can."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table that rows come back to, and what the archive has of it."""

    name: str
    """The table that the rows came from, as the contract names it."""
    table: TableInfo
    key: tuple[Column, ...]
    columns: tuple[Stored, ...]
    state: Column | None = None
    finished: tuple[State, ...] | None = None
    """The states that some rule of the table takes: rows in any other are live. None if its rows have no states."""
    reference: BoundReference | None = None
    """How its rows refer to those that they leave with; None if they leave on their own."""
    above: Target | None = None
    """The table that it refers to."""

    @property
    def follows(self) -> bool:
        return self.reference is not None


@dataclass(frozen=True, slots=True)
class ColdRow:
    """One archived row."""

    target: int
    key: str
    digest: str
    values: Mapping[str, Any]
    columns: tuple[Stored, ...]
    """The columns it had when it was archived: a column that was added since is not among them."""


@dataclass(frozen=True, slots=True)
class RowFamily:
    """A row and everything that left with it; the row itself first, and none before the row that it refers to."""

    rows: tuple[ColdRow, ...]

    @property
    def key(self) -> str:
        return self.rows[0].key


@dataclass(slots=True)
class Loaded:
    """What became of some families."""

    counts: Counter[str] = field(default_factory=Counter)
    """Rows that came in, by table."""
    replaced: Counter[str] = field(default_factory=Counter)
    """Rows that replaced others, by table."""
    existing: int = 0
    """Rows that existed already, exactly as they were archived."""
    unrestored: list[tuple[str, str]] = field(default_factory=list)
    """Keys of rows that did not come back, each with the reason."""


class RestoreRows:
    """Writes statements about rows that come back."""

    def __init__(self, rows: Rows, archive: ArchiveDialect, restore: RestoreDialect) -> None:
        self.rows = rows
        self.archive = archive
        self.restore = restore

    def _among(self, p: Parameters, target: Target, keys: Sequence[str], alias: str = "t") -> str:
        wanted = [self.archive.read_key(key) for key in keys]
        mine = [self.rows.column(column, alias) for column in target.key]
        return self.rows.one_among(target.key, mine, self.rows.dialect.keys(p, target.key, wanted))

    def present(self, target: Target, columns: Sequence[Stored], keys: Sequence[str], *, lock: bool) -> Statement:
        """Write the query of the rows with these keys that exist: key, and digest over some columns."""
        p = self.rows.parameters()
        outputs = f"{self.archive.key(target.key, 't')}, {self.archive.row_digest(columns, 't')}"
        text = (
            f"SELECT {outputs} FROM {self.rows.dialect.table(target.table)} AS t WHERE {self._among(p, target, keys)}"
        )
        return p.statement(text + (self.rows.dialect.locking("t") if lock else ""))

    def barred(self, target: Target, keys: Sequence[str]) -> Statement:
        """Write the query of the existing rows with these keys that may not be replaced: key, and the reason."""
        p = self.rows.parameters()
        held, live, owned = self._bars(p, target, "t")
        return p.statement(
            f"SELECT {self.archive.key(target.key, 't')},"
            f" CASE WHEN {held} THEN '{HELD}' WHEN {live} THEN '{LIVE}' ELSE '{OWNED}' END"
            f" FROM {self.rows.dialect.table(target.table)} AS t WHERE {self._among(p, target, keys)}"
            f" AND ({held} OR {live} OR {owned})"
        )

    def _bars(self, p: Parameters, target: Target, alias: str) -> tuple[str, str, str]:
        """Write the conditions that a row is held, is live, and belongs to a row that is one of them."""
        held, live, owned = self.rows.is_held(p, target.table, alias), "1 = 0", "1 = 0"
        if target.finished is not None:
            live = "1 = 1"
            if target.state is not None and target.finished:
                column = self.rows.column(target.state, alias)
                finished = self.rows.dialect.one_of(p, "finished", column, target.state, target.finished)
                live = f"(({finished}) IS NOT TRUE)"
        if target.reference is not None and target.above is not None:
            above = f"{alias}_"
            theirs = self.rows.refers(target.reference, alias, above)
            bars = " OR ".join(self._bars(p, target.above, above))
            table = self.rows.dialect.table(target.above.table)
            owned = f"EXISTS (SELECT 1 FROM {table} AS {above} WHERE {theirs} AND ({bars}))"
        return held, live, owned

    def insert(self, target: Target, columns: Sequence[Stored], rows: Sequence[ColdRow]) -> Statement:
        p = self.rows.parameters()
        written = _written(target, columns)
        values = self.restore.values(p, written, _values(written, rows))
        names = [self.rows.dialect.quote(column.name) for column, _ in written]
        return p.statement(self.restore.insert(self.rows.dialect.table(target.table), names, values))

    def replace(self, target: Target, columns: Sequence[Stored], rows: Sequence[ColdRow]) -> Statement:
        """Write the statement that gives rows with the same keys the values that were archived."""
        p = self.rows.parameters()
        written = _written(target, columns)
        values = self.restore.values(p, written, _values(written, rows))
        given = {column.name: f"w.c{number}" for number, (column, _) in enumerate(written)}
        key = {column.name: column for column in target.key}
        quote, sign = self.rows.dialect.quote, self.rows.dialect.sign
        sets = ", ".join(f"{quote(name)} = {value}" for name, value in given.items() if name not in key)
        same = " AND ".join(f"t.{quote(name)} {sign('=', key[name])} {given[name]}" for name in sorted(key))
        return p.statement(
            f"UPDATE {self.rows.dialect.table(target.table)} AS t SET {sets} FROM ({values}) AS w WHERE {same}"
        )

    def hold(self, target: Target, keys: Sequence[str], hold: Hold) -> Statement:
        """Write the statement that holds the rows with these keys, each by its own."""
        p = self.rows.parameters()
        stamp = self.rows.dialect.encode_time
        assert hold.ends_at is not None
        values = [
            p.bind("table", hold.table),
            self.rows.dialect.key_text(_primary_key(target.table), "t"),
            p.bind("reason", hold.reason),
            p.bind("author", hold.author),
            p.bind("created_at", stamp(hold.created_at)),
            p.bind("ends_at", stamp(hold.ends_at)),
        ]
        return p.statement(
            f"INSERT INTO {self.rows.dialect.own_table('hold')} (table_name, key, reason, author, created_at, ends_at)"
            f" SELECT {', '.join(values)} FROM {self.rows.dialect.table(target.table)} AS t"
            f" WHERE {self._among(p, target, keys)}"
        )

    def side_table(self, side: str, part: TableInfo, key: Sequence[Column], columns: Sequence[Stored]) -> Sequence[str]:
        """Write the statements that create a side table with the hot table's columns and key, and nothing else of
        it."""
        quote = self.rows.dialect.quote
        known = {one.hot for one in columns}
        defined = [f"{quote(one.name)} {self.restore.declared(one)}" for one in part.columns if one.name in known]
        names = ", ".join(quote(column.name) for column in key)
        return self.restore.create_side(side, f"{', '.join(defined)}, PRIMARY KEY ({names})")


def load(
    transaction: Transaction,
    statements: RestoreRows,
    targets: Sequence[Target],
    families: Sequence[RowFamily],
    on_conflict: OnConflict,
) -> Loaded:
    """Load families, each whole or not at all; raise Unproven if what came in is not what was archived."""
    if on_conflict is OnConflict.REPLACE:
        # A sweep would check a row again that changes under it, but not its hold.
        for table in sorted(
            {one.table.qualified: one.table for one in targets}.values(), key=lambda one: one.qualified
        ):
            transaction.close_gate(table)

    def read(statement: Statement) -> list[tuple[Any, ...]]:
        return transaction.execute(statement.text, statement.parameters)

    rows = [row for family in families for row in family.rows]
    found = stored_digests(read, statements, targets, rows, lock=True)
    barred = barred_rows(read, statements, targets, rows, found) if on_conflict is OnConflict.REPLACE else {}
    loaded = Loaded()
    incoming: dict[tuple[int, bool, tuple[Stored, ...]], list[ColdRow]] = defaultdict(list)
    for family in families:
        reason = conflict(family, found, barred, on_conflict)
        if reason:
            loaded.unrestored.append((family.key, reason))
            continue
        for row in family.rows:
            present = found.get((row.target, row.key))
            if present == row.digest:
                loaded.existing += 1
            else:
                incoming[row.target, present is not None, row.columns].append(row)
    # By the number of the target: no row comes before the one that it refers to.
    for (number, taken, columns), some in sorted(incoming.items(), key=lambda one: one[0][:2]):
        target = targets[number]
        write = statements.replace if taken else statements.insert
        for chunk in _chunks(some, max(1, statements.restore.most_values // len(columns))):
            changed = transaction.change(write(target, columns, chunk))
            if changed != len(chunk):
                raise StoreError(
                    f"{target.table.name}: {len(chunk)} rows were to come back, and the database took {changed}",
                    "a trigger or a rule on the table keeps rows out; nothing was changed",
                )
            (loaded.replaced if taken else loaded.counts)[target.name] += len(chunk)
    came = [row for some in incoming.values() for row in some]
    now = stored_digests(read, statements, targets, came, lock=False)
    for row in came:
        if now.get((row.target, row.key)) != row.digest:
            raise Unproven(
                f"{targets[row.target].table.name}: the row {row.key} did not come back as it was archived",
                "a trigger changes rows, or a column's type has changed; the row stays in the archive",
            )
    return loaded


def stored_digests(
    read: Any, statements: RestoreRows, targets: Sequence[Target], rows: Sequence[ColdRow], *, lock: bool
) -> dict[tuple[int, str], str]:
    """Read the digests of the rows that have these keys, by target and key.

    Each is over the columns that the archived row has.
    """
    requested: dict[tuple[int, tuple[Stored, ...]], list[str]] = defaultdict(list)
    for row in rows:
        requested[row.target, row.columns].append(row.key)
    found = {}
    for (number, columns), keys in sorted(requested.items(), key=lambda one: one[0][0]):
        for chunk in _chunks(keys, max(1, statements.restore.most_values // len(targets[number].key))):
            for key, digest in read(statements.present(targets[number], columns, chunk, lock=lock)):
                found[number, key] = digest
    return found


def conflict(
    family: RowFamily,
    found: Mapping[tuple[int, str], str],
    barred: Mapping[tuple[int, str], str],
    on_conflict: OnConflict,
) -> str:
    """Report why a family does not come back; "" if it does."""
    for row in family.rows:
        if found.get((row.target, row.key), row.digest) == row.digest:
            continue
        if on_conflict is not OnConflict.REPLACE:
            return DIFFERENT
        if (row.target, row.key) in barred:
            return barred[row.target, row.key]
    return ""


def barred_rows(
    read: Any,
    statements: RestoreRows,
    targets: Sequence[Target],
    rows: Sequence[ColdRow],
    found: Mapping[tuple[int, str], str],
) -> dict[tuple[int, str], str]:
    """Read the existing rows that may not be replaced, each with the reason."""
    barred = {}
    for number, target in enumerate(targets):
        keys = [row.key for row in rows if row.target == number and (number, row.key) in found]
        for chunk in _chunks(keys, max(1, statements.restore.most_values // len(target.key))):
            for key, reason in read(statements.barred(target, chunk)):
                barred[number, key] = reason
    return barred


def is_rows_fault(problem: Exception) -> bool:
    """Check whether the database refused because of the rows, so that others may still come back."""
    if isinstance(problem, Unproven):
        return True
    cause = problem.__cause__
    if cause is None:
        return isinstance(problem, StoreError) and type(problem) is StoreError
    state = getattr(cause, "sqlstate", None)
    return state[:2] in _ROWS_FAULT if state else type(cause).__name__ == "IntegrityError"


def _written(target: Target, columns: Sequence[Stored]) -> list[tuple[Column, Stored]]:
    """Return the columns that can be written.

    The database computes generated columns itself, and the digest shows whether it computed the same.
    """
    pairs = [(target.table.column(one.hot), one) for one in columns]
    return [(column, one) for column, one in pairs if column is not None and not column.generated]


def _values(written: Sequence[tuple[Column, Stored]], rows: Sequence[ColdRow]) -> list[list[Any]]:
    return [[row.values[stored.name] for _, stored in written] for row in rows]


def _primary_key(table: TableInfo) -> list[Column]:
    return [column for name in table.primary_key if (column := table.column(name)) is not None]


def _chunks(items: Sequence[Any], size: int) -> list[Any]:
    return [items[start : start + size] for start in range(0, len(items), size)]
