"""Ranges that no month has: what remains where a month was, so that a row which comes early or late is still caught.

Every time has a partition. What covers a range is not a month: its rows leave by their rules, and it is never detached.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from wane._db.statement import Execute, text_literal
from wane._db.transaction import Transaction
from wane._partition.anatomy import Anatomy, fitted, quote
from wane._partition.records import MAX, MIN, Leaf, Range
from wane._partition.sql_ddl import early_name, leaf_statements, qualified_name
from wane._partition.sql_steps import LockPatience, Note, Steps, default_leaf, doubled, read_leaves
from wane.errors import StoreError

_MOST_LATE = 10_000
"""The most rows that came late for a range and are moved while the table is locked."""
_REFERRED = """
SELECT 1 FROM pg_constraint WHERE contype = 'f' AND confrelid IN (to_regclass(%(table)s), to_regclass(%(default)s)) LIMIT 1
"""


class Covering(Steps):
    """What covers the ranges beside months."""

    def _cover(self, run: Execute, a: Anatomy, leaf: str, range_: Range) -> None:
        if a.by_application:
            return
        leaves = read_leaves(run, a.schema, a.name)
        if any(_within(range_, one.range) for one in leaves):
            return
        # The partition from before the conversion may begin there too, and must not be read while the table is
        # locked.
        early = next((one for one in leaves if one.range.lower == MIN and one.name == early_name(a)), None)
        if early is not None and early.range.upper == range_.lower:
            self._widen(run, a, early, range_.upper)
            return
        name = early_name(a) if range_.lower == MIN else leaf
        for text in leaf_statements(a, a.table, name, range_):
            run(doubled(text), {})

    def _widen(self, run: Execute, a: Anatomy, early: Leaf, upper: str) -> None:
        run(doubled(f"ALTER TABLE {a.table} DETACH PARTITION {qualified_name(a, early.name)}"), {})
        wider = Range(MIN, upper)
        run(
            doubled(f"ALTER TABLE {a.table} ATTACH PARTITION {qualified_name(a, early.name)} FOR VALUES {wider.sql}"),
            {},
        )

    def join_covers(self, a: Anatomy, note: Note, patience: LockPatience) -> bool:
        """Extend the partition that catches early rows over the gap behind it, with the rows that came late for it.

        Return whether there was one.
        """
        if _gap(a, self.leaves(a.schema, a.name)) is None:
            return False

        def work(transaction: Transaction) -> bool:
            run = transaction.execute
            self._lock(transaction, [a.table], "ACCESS EXCLUSIVE")
            found = _gap(a, read_leaves(run, a.schema, a.name))
            if found is None or self._many(run, qualified_name(a, found[1].name)):
                return False  # Rows that came late leave by their rules; then there are few.
            early, gap = found
            table, columns = qualified_name(a, gap.name), self._columns(run, a.table)
            run(doubled(f"ALTER TABLE {a.table} DETACH PARTITION {table}"), {})
            self._widen(run, a, early, gap.range.upper)
            with self._quietly(run, qualified_name(a, early.name)):
                run(
                    doubled(
                        f"INSERT INTO {qualified_name(a, early.name)} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM {table}"
                    ),
                    {},
                )
            run(doubled(f"DROP TABLE {table}"), {})
            note(run)
            return True

        return self.patiently(work, patience)

    def _uncover(self, run: Execute, a: Anatomy, range_: Range, late: str) -> bool:
        """Free a range: the partition that covers it is replaced by ones that cover only what is beside it.

        Rows that came late are stored in a temporary table named `late`. Return whether there is one.
        """
        if a.by_application:
            return self._take_from_default(run, a, range_, late)
        covering = [one for one in read_leaves(run, a.schema, a.name) if _within(range_, one.range)]
        if not covering:
            return False
        [cover] = covering
        table = qualified_name(a, cover.name)
        self._require_few(run, table)
        run(doubled(f"CREATE TEMPORARY TABLE {late} ON COMMIT DROP AS SELECT * FROM {table}"), {})
        run(doubled(f"ALTER TABLE {a.table} DETACH PARTITION {table}"), {})
        run(doubled(f"DROP TABLE {table}"), {})
        for beside in (Range(cover.range.lower, range_.lower), Range(range_.upper, cover.range.upper)):
            if beside.lower == beside.upper:
                continue
            name = early_name(a) if beside.lower == MIN else gap_name(a, beside)
            for text in leaf_statements(a, a.table, name, beside):
                run(doubled(text), {})
        return True

    def _take_from_default(self, run: Execute, a: Anatomy, range_: Range, late: str) -> bool:
        """Store the rows of a range that the DEFAULT partition caught, so that the range can be attached again."""
        default = default_leaf(run, a.table)
        if default is None:
            return False
        inside = " AND ".join(
            f"{quote(a.time)} {sign} {text_literal(end)}"
            for sign, end in ((">=", range_.lower), ("<", range_.upper))
            if end not in (MIN, MAX)
        )
        caught = f"FROM {default} WHERE {inside or 'true'}"
        [(rows,)] = run(doubled(f"SELECT count(*) FROM (SELECT 1 {caught} LIMIT {_MOST_LATE + 1}) AS late"), {})
        # A foreign key to the table would delete what refers to them, or refuse.
        if rows > _MOST_LATE or (rows and run(_REFERRED, {"table": a.table, "default": default})):
            raise StoreError(f"{default} holds rows that came late for this range", "prune them first")
        run(doubled(f"CREATE TEMPORARY TABLE {late} ON COMMIT DROP AS SELECT * {caught}"), {})
        with self._quietly(run, default):
            run(doubled(f"DELETE {caught}"), {})
        return True

    def _require_few(self, run: Execute, table: str) -> None:
        if self._many(run, table):
            raise StoreError(f"{table} holds more than {_MOST_LATE:,} rows that came late", "prune them first")

    def _many(self, run: Execute, table: str) -> bool:
        [(count,)] = run(doubled(f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT {_MOST_LATE + 1}) AS late"), {})
        return bool(count > _MOST_LATE)


def _within(range_: Range, other: Range) -> bool:
    return _rank(other.lower) <= _rank(range_.lower) and _rank(range_.upper) <= _rank(other.upper)


def _rank(literal: str) -> tuple[int, int, str]:
    """Return a sort key of a range's end among others of the same column."""
    if literal in (MIN, MAX):
        return (-1 if literal == MIN else 1, 0, "")
    return 0, len(literal), literal


def gap_name(a: Anatomy, range_: Range) -> str:
    """Return the name of a partition whose range is not a month: what was left beside one that was put back."""
    return fitted(a.name, "_p_gap_" + hashlib.sha256(range_.sql.encode()).hexdigest()[:8])


def is_cover(a: Anatomy, leaf: Leaf) -> bool:
    """Check whether a partition exists only to catch what comes early or late.

    It is not a month: its rows leave by their rules.
    """
    if a.by_application:
        return False
    return (leaf.range.lower == MIN and leaf.name == early_name(a)) or leaf.name == gap_name(a, leaf.range)


def _gap(a: Anatomy, leaves: Sequence[Leaf]) -> tuple[Leaf, Leaf] | None:
    """Return the partition that catches early rows and the gap right behind it; None if there is no such gap."""
    early = next((one for one in leaves if one.range.lower == MIN and one.name == early_name(a)), None)
    if early is None:
        return None
    behind = (one for one in leaves if one.range.lower == early.range.upper and one.name == gap_name(a, one.range))
    return next(((early, gap) for gap in behind), None)
