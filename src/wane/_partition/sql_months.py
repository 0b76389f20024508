"""Months of a partitioned table, cut off the range that catches the rest before they are needed."""

from __future__ import annotations

from wane._db.statement import text_literal
from wane._db.transaction import Transaction
from wane._partition.anatomy import Anatomy, quote
from wane._partition.records import MAX, Leaf, Range
from wane._partition.sql_ddl import leaf_statements, qualified_name
from wane._partition.sql_steps import LockPatience, Note, Steps, doubled
from wane.errors import StoreError


class Months(Steps):
    """New partitions."""

    def add_month(
        self, a: Anatomy, name: str, range_: Range, rest: Leaf, most: int, note: Note, patience: LockPatience
    ) -> int:
        """Cut a month off the range that catches the rest, with the rows that lie in it; return how many.

        Raise StoreError if the rest holds more than `most` rows.
        """

        def work(transaction: Transaction) -> int:
            run = transaction.execute
            self._lock(transaction, [a.table], "ACCESS EXCLUSIVE")
            catch = qualified_name(a, rest.name)
            found = run(doubled(f"SELECT count(*) FROM (SELECT 1 FROM {catch} LIMIT {int(most) + 1}) AS caught"), {})
            if found[0][0] > most:
                raise StoreError(
                    f"{catch} holds more than {most:,} rows that lie beyond every month",
                    "correct or delete those whose times are wrong; if they are right, months were not created for too long:"
                    " `wane partition undo` and then `wane partition convert` move every row to its month",
                )
            run(doubled(f"ALTER TABLE {a.table} DETACH PARTITION {catch}"), {})
            for text in leaf_statements(a, a.table, name, range_):
                run(doubled(text), {})
            columns, inside = self._columns(run, a.table), f"{quote(a.time)} < {text_literal(range_.upper)}"
            with self._quietly(run, qualified_name(a, name)):
                moved = run(
                    doubled(
                        f"WITH moved AS (DELETE FROM {catch} WHERE {inside} RETURNING {columns}) INSERT INTO"
                        f" {qualified_name(a, name)} ({columns}) OVERRIDING SYSTEM VALUE SELECT {columns} FROM moved RETURNING 1"
                    ),
                    {},
                )
            later = Range(range_.upper, MAX)
            run(doubled(f"ALTER TABLE {a.table} ATTACH PARTITION {catch} FOR VALUES {later.sql}"), {})
            note(run)
            return len(moved)

        return self.patiently(work, patience)

    def add_leaf(self, a: Anatomy, name: str, range_: Range, note: Note, patience: LockPatience) -> None:
        """Create a partition for a range that has none."""

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            self._lock(transaction, [a.table], "ACCESS EXCLUSIVE")
            for text in leaf_statements(a, a.table, name, range_):
                run(doubled(text), {})
            note(run)

        self.patiently(work, patience)
