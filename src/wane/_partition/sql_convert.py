"""The steps from a plain table to a partitioned one. Each is one transaction, or safe to repeat."""

from __future__ import annotations

from collections.abc import Sequence

from wane._db.transaction import Transaction
from wane._partition.anatomy import Anatomy, own_names, quote, read_anatomy
from wane._partition.records import Ddl, Range
from wane._partition.sql_ddl import (
    analyze,
    bound_statements,
    leaf_statements,
    qualified_name,
    root_name,
    root_statements,
    swap_statements,
)
from wane._partition.sql_steps import PATIENCE_SECONDS, LockPatience, Note, Steps, doubled
from wane.errors import StoreError

_INDEX = """
SELECT x.indisvalid AND x.indisready, x.indrelid = to_regclass(%(table)s)
FROM pg_index AS x JOIN pg_class AS c ON c.oid = x.indexrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(index)s
"""
CONSTRAINT = "SELECT convalidated FROM pg_constraint WHERE conrelid = to_regclass(%(table)s) AND conname = %(name)s"


class ChangedMeanwhile(StoreError):
    """A table is no longer what it was when its conversion was planned."""


class Converting(Steps):
    """From a plain table to a partitioned one."""

    def build_index(self, a: Anatomy, name: str, ddl: Ddl) -> None:
        """Build an index concurrently. What an earlier attempt left half-built is removed first."""
        found = self._one(_INDEX, {"table": a.table, "schema": a.schema, "index": name})
        if found == (True, True):
            return
        if found is not None:
            if not found[1]:
                raise StoreError(f"{a.schema}.{name} already exists", "rename it")
            self.store.dedicated_session(f"DROP INDEX CONCURRENTLY {qualified_name(a, name)}", PATIENCE_SECONDS)
        self.store.dedicated_session(ddl.text, PATIENCE_SECONDS)

    def make_root(self, a: Anatomy, leaves: Sequence[tuple[str, Range]], note: Note, patience: LockPatience) -> None:
        """Create the partitioned table and its partitions in Wane's own schema, out of the application's sight."""

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            run(doubled(f"DROP TABLE IF EXISTS {root_name(a)}"), {})
            for one in root_statements(a):
                run(doubled(one.text), {})
            for name, range_ in leaves:
                for text in leaf_statements(a, root_name(a), name, range_):
                    run(doubled(text), {})
            note(run)

        self.patiently(work, patience)

    def bound(self, a: Anatomy, upper: str, note: Note, patience: LockPatience) -> None:
        """Allow no new row at or beyond a time from now on."""

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            self._lock(transaction, [a.table], "ACCESS EXCLUSIVE")
            if not run(CONSTRAINT, {"table": a.table, "name": own_names(a.name)[2]}):
                run(doubled(bound_statements(a, upper)[0].text), {})
            note(run)

        self.patiently(work, patience)

    def validate(self, a: Anatomy, upper: str) -> None:
        """Prove the bound for every row, while the application runs."""
        self.store.dedicated_session(bound_statements(a, upper)[1].text, PATIENCE_SECONDS)

    def swap(self, a: Anatomy, old: str, upper: str, note: Note, patience: LockPatience) -> None:
        """Replace the table by the partitioned one; raise ChangedMeanwhile if the table was changed since the plan."""

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            self._lock(transaction, [a.table, *(key.table for key in a.inbound)], "ACCESS EXCLUSIVE")
            now, _ = read_anatomy(run, a.schema, a.name, a.time)
            if now != a:
                raise ChangedMeanwhile(
                    f"{a.schema}.{a.name} was changed since its conversion was planned",
                    "nothing was done to it: `wane partition undo` removes what was prepared; then convert it again",
                )
            position = self._position(run, a)
            for text in swap_statements(a, old, upper):
                run(doubled(text), {})
            self._set_position(run, a, position)
            note(run)

        self.patiently(work, patience)

    def analyze(self, table: str) -> None:
        """Update the planner's statistics of a table that is partitioned now: autovacuum does not."""
        self.store.dedicated_session(analyze(table), PATIENCE_SECONDS)

    def discard(self, a: Anatomy, note: Note, patience: LockPatience) -> None:
        """Remove everything that was prepared for a swap."""

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            bound = own_names(a.name)[2]
            if run(CONSTRAINT, {"table": a.table, "name": bound}):
                self._lock(transaction, [a.table], "ACCESS EXCLUSIVE")
                run(doubled(f"ALTER TABLE {a.table} DROP CONSTRAINT IF EXISTS {quote(bound)}"), {})
            run(doubled(f"DROP TABLE IF EXISTS {root_name(a)}"), {})
            note(run)

        self.patiently(work, patience)

    def drop_own_indexes(self, a: Anatomy) -> None:
        """Drop the indexes that were built for a swap, concurrently."""
        for name in own_names(a.name)[:2]:
            if self._one(_INDEX, {"table": a.table, "schema": a.schema, "index": name}) is not None:
                self.store.dedicated_session(f"DROP INDEX CONCURRENTLY {qualified_name(a, name)}", PATIENCE_SECONDS)
