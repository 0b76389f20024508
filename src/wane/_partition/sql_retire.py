"""Retiring whole partitions: checked row by row against the rules' own conditions, detached concurrently, quarantined,
then dropped or moved.

What is in quarantine lies in Wane's own schema, where no contract has tables. The range that a partition leaves is
covered again, so that a row which comes late is still caught.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.schema import TableInfo
from wane._db.statement import Execute, Statement, text_literal
from wane._db.transaction import Transaction
from wane._partition.anatomy import Anatomy, fitted, own_names, quote
from wane._partition.records import MAX, MIN, Leaf, Range
from wane._partition.sql_cover import Covering
from wane._partition.sql_ddl import qualified_name, unpartitioned_name
from wane._partition.sql_steps import PATIENCE_SECONDS, LockPatience, Note, doubled, limit_statements, read_leaves
from wane._prune.dialects import row_taker
from wane._rules.dependencies_postgres import require_same_effects
from wane._rules.queries import queries_of
from wane._rules.rows import Rows, rows_of
from wane._rules.selection import BoundFollower, BoundReference, Selection, follower_paths
from wane._rules.statements import delete_below, delete_identified, lock_below
from wane.errors import StoreError

_STRETCH = 10_000
_OUTBOUND = "SELECT conname::text FROM pg_constraint WHERE conrelid = to_regclass(%(table)s) AND contype = 'f' AND conparentid = 0"
_OUTBOUND_TO = f"{_OUTBOUND} AND confrelid = to_regclass(%(to)s)"

_LOCKED = "10s"
"""The longest that a partition may take to detach under a lock: PostgreSQL verifies that no foreign key refers to
it."""
_UNMOVABLE = """
SELECT c.relname::text, c.relkind = 'f' FROM pg_partition_tree(to_regclass(%(table)s)) AS part
JOIN pg_class AS c ON c.oid = part.relid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind = 'f' OR n.nspname <> %(schema)s ORDER BY 1 LIMIT 1
"""
_PARTS = """
SELECT c.relname::text, ARRAY(SELECT i.relname::text FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid
                              WHERE x.indrelid = c.oid ORDER BY 1)
FROM pg_partition_tree(to_regclass(%(table)s)) AS part JOIN pg_class AS c ON c.oid = part.relid
WHERE part.level > 0 ORDER BY part.level, 1
"""
_ABOVE = """
SELECT c.relname::text FROM pg_partition_ancestors(%(leaf)s::oid) AS above JOIN pg_class AS c ON c.oid = above.relid
JOIN pg_inherits AS i ON i.inhrelid = c.oid AND i.inhparent = to_regclass(%(table)s)
"""
_INDEXES = """
SELECT c.relname::text FROM pg_index AS x JOIN pg_class AS c ON c.oid = x.indexrelid
WHERE x.indrelid = to_regclass(%(table)s) ORDER BY 1
"""
_GRANTEES = """
SELECT DISTINCT CASE WHEN e.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(e.grantee)) END
FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS e
WHERE c.oid = to_regclass(%(table)s) AND e.grantee <> c.relowner
"""


@dataclass(frozen=True, slots=True)
class Weight:
    """The number of rows of a partition, how many of them must stay, and how many of those are held."""

    rows: int
    staying: int
    held: int = 0


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of a partition after one key, up to and including another."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    after: list[str] | None
    until: list[str] | None

    def where(self, values: dict[str, Any]) -> str:
        """Write the condition on rows called t; the keys are added to `values`."""
        conditions = []
        for end, sign, keys in (("after", ">", self.after), ("until", "<=", self.until)):
            if keys is not None:
                values |= {f"{end}_{number}": key for number, key in enumerate(keys)}
                typed = ", ".join(f"%({end}_{number})s::text::{kind}" for number, kind in enumerate(self.types))
                conditions.append(f"({doubled(', '.join(f't.{quote(name)}' for name in self.names))}) {sign} ({typed})")
        return " AND ".join(conditions) or "true"


class RetireSteps(Covering):
    """Steps that retire a partition, and put it back while it is quarantined."""

    def weigh(self, table: str, selections: Sequence[Selection], now: datetime, seconds: float | None = None) -> Weight:
        """Count the rows of a partition, and those that must stay now: by state, age, guards and holds, as in
        sweeps."""
        rows = rows_of(self.store)
        p = rows.parameters()
        leaving = " OR ".join(f"({' AND '.join(rows.due(p, one, now))})" for one in selections) or "false"
        free = " AND ".join(text for one in selections for text in rows.unheld(p, one)) or "true"
        text = (
            f"SELECT count(*), count(*) FILTER (WHERE ({leaving}) IS NOT TRUE),"
            f" count(*) FILTER (WHERE ({free}) IS NOT TRUE) FROM {doubled(table)} AS t"
        )
        limit = "0" if seconds is None else f"{round(seconds * 1000)}ms"
        with self.store.transaction() as transaction:
            limit_statements(transaction.execute, limit)
            [(all_rows, staying, held)] = transaction.execute(text, p.values)
        return Weight(all_rows, staying, held)

    def partition_of(self, table: TableInfo, key: Mapping[str, object]) -> str | None:
        """Return the name of the partition that has the row of a key; None if there is no such row."""
        queries = queries_of(self.store)
        p = queries.rows.parameters()
        has_key = " AND ".join(queries.has_key(p, [one for one in table.columns if one.name in key], key))
        name = queries.dialect.table(table)
        found = self._one(f"SELECT t.tableoid::bigint FROM {name} AS t WHERE {has_key}", p.values)
        if found is not None:
            found = self._one(_ABOVE, {"leaf": found[0], "table": name.replace("%%", "%")})
        return None if found is None else str(found[0])

    def elsewhere(self, follower: BoundFollower, leaf: str, parent: str) -> bool:
        """Check whether a row of a follower's partition follows no row of the parent's partition.

        It follows another row, or none at all.
        """
        rows = rows_of(self.store)
        p = rows.parameters()
        follows = " AND ".join([rows.refers(follower.reference, "f", "r"), *rows.fixed(p, follower, "f")])
        text = (
            f"SELECT 1 FROM {doubled(leaf)} AS f"
            f" WHERE NOT EXISTS (SELECT 1 FROM {doubled(parent)} AS r WHERE {follows}) LIMIT 1"
        )
        with self.store.transaction() as transaction:
            limit_statements(transaction.execute)
            return bool(transaction.execute(text, p.values))

    def is_live(self, follower: BoundFollower, side: str) -> bool:
        """Check whether a row of a follower that was taken along is in a state that keeps the row that it follows."""
        rows = rows_of(self.store)
        p = rows.parameters()
        live = rows.live(p, follower, "f")
        if not live:
            return False
        with self.store.transaction() as transaction:
            limit_statements(transaction.execute)
            return bool(transaction.execute(f"SELECT 1 FROM {doubled(side)} AS f WHERE {live} LIMIT 1", p.values))

    # Detaching

    def hindrance(self, a: Anatomy, leaf: Leaf) -> str:
        """Report why a partition that the application made can never be moved to the quarantine; "" if it can."""
        if leaf.schema != a.schema:
            return f"it is in the schema {leaf.schema}, and Wane retires partitions in the schema of their table only"
        with self.store.transaction() as transaction:
            found = transaction.execute(_UNMOVABLE, {"table": qualified_name(a, leaf.name), "schema": a.schema})
        if not found:
            return ""
        (name, is_foreign) = found[0]
        return f"{name} is {'a foreign table' if is_foreign else 'in another schema'}, which Wane does not move"

    def detach(self, a: Anatomy, leaf: str, range_: Range, patience: LockPatience) -> bool:
        """Detach a partition concurrently, or finish a detachment that was begun.

        Beside a DEFAULT partition PostgreSQL detaches no other concurrently, so the table is locked meanwhile. Return
        False, and detach nothing, if no partition of this name has this range any more.
        """
        found = _attached(self.leaves(a.schema, a.name), leaf, range_)
        if found is None:
            return False
        if not found.pending and self.default_leaf(a.schema, a.name) is not None:
            return self.patiently(lambda transaction: self._detach_locked(transaction, a, leaf, range_), patience)
        how = "FINALIZE" if found.pending else "CONCURRENTLY"
        self.store.dedicated_session(
            f"ALTER TABLE {a.table} DETACH PARTITION {qualified_name(a, leaf)} {how}", PATIENCE_SECONDS
        )
        return True

    def _detach_locked(self, transaction: Transaction, a: Anatomy, leaf: str, range_: Range) -> bool:
        run = transaction.execute
        limit_statements(run, _LOCKED)
        self._lock(transaction, [a.table], "ACCESS EXCLUSIVE")
        if _attached(read_leaves(run, a.schema, a.name), leaf, range_) is None:
            return False
        run(doubled(f"ALTER TABLE {a.table} DETACH PARTITION {qualified_name(a, leaf)}"), {})
        return True

    def quarantine(
        self, a: Anatomy, leaf: str, range_: Range, detached: str, note: Note, patience: LockPatience
    ) -> None:
        """Move a detached partition to Wane's own schema, and cover its range again."""

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            self._lock(transaction, [a.table], "ACCESS EXCLUSIVE")
            source = qualified_name(a, leaf)
            waiting = self._there(run, source) and not self._there(run, own_name(detached))
            if waiting and not any(one.name == leaf for one in read_leaves(run, a.schema, a.name)):
                # A table that is out of sight must not keep others from deleting what it refers to.
                for (key,) in run(_OUTBOUND, {"table": source}):
                    run(doubled(f"ALTER TABLE {source} DROP CONSTRAINT {quote(key)}"), {})
                mark = _mark(a, detached)
                if a.by_application:
                    self._hide_parts(run, a, source, mark)
                # Its range is covered by another partition of its name, whose indexes may have to coexist with these
                # one day. An application's index has no such namesake, unless in quarantine.
                for (index,) in run(_INDEXES, {"table": source}):
                    if not a.by_application or self._there(run, own_name(index)):
                        renamed = quote(fitted(index, mark))
                        run(doubled(f"ALTER INDEX {qualified_name(a, index)} RENAME TO {renamed}"), {})
                run(doubled(f"ALTER TABLE {source} RENAME TO {quote(detached)}"), {})
                run(doubled(f"ALTER TABLE {qualified_name(a, detached)} SET SCHEMA {OWN_SCHEMA}"), {})
            self._cover(run, a, leaf, range_)
            note(run)

        self.patiently(work, patience)

    def _hide_parts(self, run: Execute, a: Anatomy, source: str, mark: str) -> None:
        """Move the partitions of a partition to Wane's own schema, under names that are free there."""
        for part, indexes in self._parts(run, source):
            for index in indexes:
                if self._there(run, own_name(index)):
                    renamed = quote(fitted(index, mark))
                    run(doubled(f"ALTER INDEX {qualified_name(a, index)} RENAME TO {renamed}"), {})
            name = fitted(part, mark) if self._there(run, own_name(part)) else part
            if name != part:
                run(doubled(f"ALTER TABLE {qualified_name(a, part)} RENAME TO {quote(name)}"), {})
            run(doubled(f"ALTER TABLE {qualified_name(a, name)} SET SCHEMA {OWN_SCHEMA}"), {})

    def _show_parts(self, run: Execute, a: Anatomy, detached: str, mark: str) -> None:
        """Move the partitions of a partition back, under their own names."""
        for part, indexes in self._parts(run, detached):
            run(doubled(f"ALTER TABLE {own_name(part)} SET SCHEMA {quote(a.schema)}"), {})
            for kind, name in (("TABLE", part), *(("INDEX", index) for index in indexes)):
                if name.endswith(mark):
                    was = quote(name.removesuffix(mark))
                    run(doubled(f"ALTER {kind} {qualified_name(a, name)} RENAME TO {was}"), {})

    def _parts(self, run: Execute, table: str) -> list[tuple[str, list[str]]]:
        """Return the names of the partitions of a partition, on all levels, each with its indexes."""
        return [(name, list(indexes)) for name, indexes in run(_PARTS, {"table": table})]

    def await_references(self, selections: Sequence[Selection], patience: LockPatience) -> None:
        """Wait for transactions that are about to refer to a row, where only a probe can find references.

        What they write is visible from now on.
        """

        def work(transaction: Transaction) -> None:
            for selection in selections:
                row_taker(transaction).close_references(selection)

        self.patiently(work, patience)

    def stretches(self, a: Anatomy, leaf: str) -> Iterator[Stretch]:
        """Yield stretches of a partition's rows in the order of its key, a few thousand rows each.

        Starting over for every batch would read ever more rows for nothing.
        """
        names = list(dict.fromkeys([*a.key, a.time]))
        types = {column.name: column.type for column in a.columns}
        key, out = ", ".join(map(quote, names)), ", ".join(f"{quote(name)}::text" for name in names)
        backwards = ", ".join(f"picked.{quote(name)} DESC" for name in names)
        after: list[str] | None = None
        while True:
            stretch = Stretch(tuple(names), tuple(types[name] for name in names), after, None)
            values: dict[str, object] = {}
            text = (
                f"SELECT {doubled(out)} FROM (SELECT {doubled(key)} FROM {doubled(leaf)} AS t WHERE {stretch.where(values)}"
                f" ORDER BY {doubled(key)} LIMIT {_STRETCH}) AS picked ORDER BY {doubled(backwards)} LIMIT 1"
            )
            with self.store.transaction() as transaction:
                found = transaction.execute(text, values)
            if not found:
                return
            yield replace(stretch, until=list(found[0]))
            after = list(found[0])

    def take_along(
        self,
        selection: Selection,
        path: tuple[BoundFollower, ...],
        leaf: str,
        side: str,
        limit: int,
        note: Note,
        stretch: Stretch | None = None,
        below: Sequence[tuple[tuple[BoundFollower, ...], str]] = (),
        within: tuple[str, Range] | None = None,
    ) -> int:
        """Move some rows that follow a partition's rows, or a stretch of them, to a side table; return how many.

        `within`: the time column of the partition's rows, and its range, by which a follower that refers to that
        column is searched in those of its own partitions alone. Rows that follow those (`below`, the deepest first,
        each with its side table) left before. What was inserted since moves with them, under their locks: the
        foreign key's ON DELETE CASCADE would delete it.
        """
        rows = rows_of(self.store)
        p = rows.parameters()
        source, links = rows.chain(p, path, "t")
        if within is not None:
            links += "".join(f" AND {one}" for one in _within(rows, path[0].reference, *within))
        if stretch is not None:
            links += f" AND {stretch.where(p.values)}"
        last, follower = f"f{len(path) - 1}", path[-1]
        identity = ", ".join(rows.dialect.encode_key(f"{last}.{name}") for name in rows.identity(follower))
        with self.store.transaction() as transaction:
            run = transaction.execute
            found = run(
                f"SELECT {identity} FROM {doubled(leaf)} AS t, {source} WHERE {links}"
                f" LIMIT {p.bind('limit', limit)} FOR UPDATE OF {last}",
                p.values,
            )
            inner = [(one[len(path) :], table) for one, table in below] if found else []
            for tail, _ in sorted(inner, key=lambda one: len(one[0])):
                if tail[-1].followers:
                    statement = lock_below(rows, follower, tail, found)
                    run(statement.text, statement.parameters)
            for tail, table in inner:
                self._move_to_side(run, tail[-1], table, delete_below(rows, follower, tail, found))
            moved = self._move_to_side(run, follower, side, delete_identified(rows, follower, found))
            if moved:
                # RetireSteps detaches partitions, so the tables' stamps differ.
                require_same_effects(rows, run, selection)
            note(run)
        return moved

    def _move_to_side(self, run: Execute, follower: BoundFollower, side: str, deleting: Statement) -> int:
        table = self.store.dialect.table(follower.reference.table).replace("%%", "%")
        run(doubled(f"CREATE TABLE IF NOT EXISTS {side} AS TABLE {table} WITH NO DATA"), {})
        [(moved,)] = run(
            f"WITH gone AS ({deleting.text} RETURNING *), kept AS (INSERT INTO {doubled(side)} SELECT * FROM gone RETURNING 1)"
            " SELECT count(*) FROM kept",
            deleting.parameters,
        )
        return int(moved)

    # Putting back

    def put_back(
        self,
        parts: Sequence[tuple[Anatomy, str, Range, str | None]],
        sides: Sequence[tuple[str, str]],
        note: Note,
        patience: LockPatience,
    ) -> None:
        """Attach partitions in quarantine again, and put rows that were taken along back: all of it or nothing."""

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            limit_statements(run)
            waiting = [(side, table) for side, table in sides if self._there(run, side)]
            # Moving rows takes long. Do it before the lock, unless a foreign key has to see their parents first.
            early = [one for one in waiting if not run(_OUTBOUND_TO, {"table": one[1], "to": parts[0][0].table})]
            self._pour_sides(run, early)
            self._lock(transaction, [a.table for a, *_ in parts], "ACCESS EXCLUSIVE")
            for number, (a, leaf, range_, detached) in enumerate(parts):
                if detached is not None and self._there(run, detached):
                    self._put_back(run, a, leaf, range_, detached, f"wane_late_{number}")
            self._pour_sides(run, [one for one in waiting if one not in early])
            note(run)

        self.patiently(work, patience)

    def _put_back(self, run: Execute, a: Anatomy, leaf: str, range_: Range, detached: str, late: str) -> None:
        came_late = self._uncover(run, a, range_, late)
        bare = detached.partition(".")[2]
        mark = _mark(a, bare)
        self._show_parts(run, a, detached, mark)
        run(doubled(f"ALTER TABLE {detached} SET SCHEMA {quote(a.schema)}"), {})
        run(doubled(f"ALTER TABLE {quote(a.schema)}.{bare} RENAME TO {quote(leaf)}"), {})
        # A long name was shortened to fit the mark; those that undoing needs are known.
        requested = [*own_names(a.name), *(one.name for one in a.indexes)]
        requested += [unpartitioned_name(leaf, number) for number in range(len(a.unpartitioned_indexes))]
        was = {fitted(name, mark): name for name in requested}
        for (index,) in run(_INDEXES, {"table": qualified_name(a, leaf)}):
            if index.endswith(mark):
                name = was.get(index, index.removesuffix(mark))
                run(doubled(f"ALTER INDEX {qualified_name(a, index)} RENAME TO {quote(name)}"), {})
        run(doubled(f"ALTER TABLE {a.table} ATTACH PARTITION {qualified_name(a, leaf)} FOR VALUES {range_.sql}"), {})
        if came_late:
            self._pour(run, f"pg_temp.{late}", a.table)

    def _pour_sides(self, run: Execute, sides: Sequence[tuple[str, str]]) -> None:
        for side, table in sides:
            self._pour(run, side, table)
            run(doubled(f"DROP TABLE {side}"), {})

    def _pour(self, run: Execute, source: str, table: str) -> None:
        columns = self._columns(run, table)
        run(doubled(f"INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {source}"), {})

    # Ending

    def drop_quarantined(self, tables: Sequence[str], note: Any, patience: LockPatience) -> dict[str, int]:
        """Drop tables in quarantine; `note` receives the number of rows of each, in the same transaction."""

        def work(transaction: Transaction) -> dict[str, int]:
            run = transaction.execute
            limit_statements(run)
            counts = {}
            for table in tables:
                if not self._there(run, table):
                    continue
                run(doubled(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"), {})
                [(counts[table],)] = run(doubled(f"SELECT count(*) FROM {table}"), {})
                run(doubled(f"DROP TABLE {table}"), {})
            note(run, counts)
            return counts

        return self.patiently(work, patience)

    def move_to_schema(
        self, moves: Sequence[tuple[str, str]], schema: str, reader: str, note: Note, patience: LockPatience
    ) -> None:
        """Move tables in quarantine to the schema of archived tables, readable by its reader alone.

        Each gets its name. Empty tables are dropped, except the last.
        """

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            if not run("SELECT 1 FROM pg_namespace WHERE nspname = %(schema)s", {"schema": schema}):
                run(doubled(f"CREATE SCHEMA {quote(schema)}"), {})
            for detached, name in moves:
                if not self._there(run, detached):
                    continue
                if detached != moves[-1][0] and not run(doubled(f"SELECT 1 FROM {detached} LIMIT 1"), {}):
                    run(doubled(f"DROP TABLE {detached}"), {})
                    continue
                self._move(run, detached, schema, name)
                if run("SELECT 1 FROM pg_roles WHERE rolname = %(role)s", {"role": reader}):
                    run(doubled(f"GRANT SELECT ON {quote(schema)}.{quote(name)} TO {quote(reader)}"), {})
            note(run)

        self.patiently(work, patience)

    def _move(self, run: Execute, detached: str, schema: str, name: str) -> None:
        if self._there(run, f"{quote(schema)}.{quote(name)}"):
            raise StoreError(f"{schema}.{name} is there already", "rename it, then retire again")
        for (grantee,) in run(_GRANTEES, {"table": detached}):
            run(doubled(f"REVOKE ALL ON {detached} FROM {grantee}"), {})
        for part, _ in self._parts(run, detached):
            run(doubled(f"ALTER TABLE {own_name(part)} SET SCHEMA {quote(schema)}"), {})
        run(doubled(f"ALTER TABLE {detached} SET SCHEMA {quote(schema)}"), {})
        bare = detached.partition(".")[2]
        run(doubled(f"ALTER TABLE {quote(schema)}.{bare} RENAME TO {quote(name)}"), {})


def _attached(leaves: Sequence[Leaf], name: str, range_: Range) -> Leaf | None:
    """Return the partition of a name, if it still has its range: an application may use a name again."""
    return next((one for one in leaves if one.name == name and one.range == range_), None)


def _within(rows: Rows, reference: BoundReference, time: str, range_: Range) -> Iterator[str]:
    """Yield what follows from a reference to rows of a partition: the referring column is in its range, too."""
    for mine, theirs in zip(reference.columns, reference.to, strict=True):
        if theirs.name == time and mine.type == theirs.type:
            for sign, end in ((">=", range_.lower), ("<", range_.upper)):
                if end not in (MIN, MAX):
                    yield f"{rows.column(mine, 'f0')} {sign} {text_literal(end)}"


def _mark(a: Anatomy, detached: str) -> str:
    """Return what is appended to names while their partition is in quarantine.

    Of an application's names few get one, and none of the others may end with it.
    """
    return ("_wane" if a.by_application else "_") + detached.rpartition("_")[2].rstrip('"')


def quarantine_name(leaf: Leaf, number: int) -> str:
    """Return the name of a partition while it is in quarantine, in Wane's own schema."""
    return fitted(f"{leaf.schema}_{leaf.name}", f"_{number}")


def own_name(name: str) -> str:
    return f"{OWN_SCHEMA}.{quote(name)}"


def paths_of(selections: Sequence[Selection]) -> list[tuple[Selection, tuple[BoundFollower, ...]]]:
    """Return every follower of some rules, once, the deepest first."""
    found: dict[tuple[Any, ...], tuple[Selection, tuple[BoundFollower, ...]]] = {}
    for selection in selections:
        for path in follower_paths(selection):
            found.setdefault(_names(path), (selection, path))
    return sorted(found.values(), key=lambda one: -len(one[1]))


def is_below(path: Sequence[BoundFollower], other: Sequence[BoundFollower]) -> bool:
    """Check whether a path of followers continues where another one ends."""
    return len(path) > len(other) and _names(path[: len(other)]) == _names(other)


def _names(path: Sequence[BoundFollower]) -> tuple[Any, ...]:
    return tuple((one.reference.table.qualified, tuple(c.name for c in one.reference.columns)) for one in path)
