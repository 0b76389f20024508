"""The steps back from a partitioned table to a plain one. Each is one transaction, or safe to repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wane._db.statement import Execute
from wane._db.transaction import Transaction
from wane._partition.anatomy import Anatomy, AnatomyKey, quote, read_standing
from wane._partition.sql_convert import CONSTRAINT
from wane._partition.sql_ddl import key_statements, qualified_name, swap_back_statements, validate_constraint
from wane._partition.sql_steps import PATIENCE_SECONDS, LockPatience, Note, Steps, doubled, read_leaves
from wane.errors import StoreError

_INVALID_KEYS = """
SELECT format('%%I.%%I', n.nspname, c.relname), k.conname::text
FROM pg_constraint AS k JOIN pg_class AS c ON c.oid = k.conrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE k.confrelid = to_regclass(%(table)s) AND k.contype = 'f' AND k.conparentid = 0 AND NOT k.convalidated
"""
_OWN_CHECKS = """
SELECT conname::text FROM pg_constraint WHERE conrelid = to_regclass(%(leaf)s) AND contype = 'c' AND coninhcount = 0
"""


class UndoSteps(Steps):
    """Steps from a partitioned table to a plain one."""

    def swap_back(
        self, a: Anatomy, old: str, note: Callable[[Execute, list[str], list[AnatomyKey]], None], patience: LockPatience
    ) -> None:
        """Make one partition the table again: the original, or else the largest.

        Partitions with rows inherit from it.
        """

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            leaves = [leaf.name for leaf in read_leaves(run, a.schema, a.name)]
            carriers = [key.table for key in read_standing(run, a.schema, a.name, leaves).inbound]
            self._lock(transaction, [a.table, *carriers], "ACCESS EXCLUSIVE")
            leaves = [leaf.name for leaf in read_leaves(run, a.schema, a.name)]
            now = read_standing(run, a.schema, a.name, leaves)
            original = old in leaves
            base = old if original else self._largest(run, a, leaves)
            filled = [leaf for leaf in leaves if leaf != base and self._holds_rows(run, qualified_name(a, leaf))]
            position = self._position(run, a)
            self._drop_own_checks(run, a, leaves)
            for text in swap_back_statements(a, now, base, filled, original=original):
                run(doubled(text), {})
            self._set_position(run, a, position)
            note(run, filled, now.inbound)

        self.patiently(work, patience)

    def _drop_own_checks(self, run: Execute, a: Anatomy, leaves: Sequence[str]) -> None:
        """Drop the CHECK constraints that only a partition has.

        DETACH CONCURRENTLY leaves its range as one, which outlives ATTACH. The table has none of them, so neither may
        the partition that becomes the table, nor those that inherit from it.
        """
        for leaf in leaves:
            for (name,) in run(_OWN_CHECKS, {"leaf": qualified_name(a, leaf)}):
                run(doubled(f"ALTER TABLE {qualified_name(a, leaf)} DROP CONSTRAINT {quote(name)}"), {})

    def merge(self, a: Anatomy, leaf: str, limit: int, patience: LockPatience) -> int:
        """Move some rows of a table that inherits into the table itself; return how many.

        Writers wait meanwhile, so that a row is not changed while it is moved; readers do not.
        """

        def work(transaction: Transaction) -> int:
            run = transaction.execute
            source = qualified_name(a, leaf)
            if not run("SELECT 1 WHERE to_regclass(%(leaf)s) IS NOT NULL", {"leaf": source}):
                return 0
            self._lock(transaction, [a.table], "SHARE ROW EXCLUSIVE")
            columns = self._columns(run, a.table)
            with self._quietly(run, a.table, source):
                [(left, came)] = run(
                    doubled(
                        f"WITH moved AS (DELETE FROM ONLY {source} WHERE ctid = ANY (ARRAY(SELECT ctid FROM ONLY {source}"
                        f" LIMIT {int(limit)})) RETURNING {columns}), came AS (INSERT INTO {a.table} ({columns})"
                        f" OVERRIDING SYSTEM VALUE SELECT {columns} FROM moved RETURNING 1)"
                        " SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM came)"
                    ),
                    {},
                )
            if left != came:
                raise StoreError(f"{left} rows left {source}, but {came} came to {a.table}", "nothing was changed")
            return int(left)

        return self.patiently(work, patience)

    def drop_merged(self, a: Anatomy, leaf: str, note: Note, patience: LockPatience) -> bool:
        """Drop a table that inherits if it is empty; return whether it was."""

        def work(transaction: Transaction) -> bool:
            run = transaction.execute
            source = qualified_name(a, leaf)
            if run("SELECT 1 WHERE to_regclass(%(leaf)s) IS NOT NULL", {"leaf": source}):
                self._lock(transaction, [a.table], "ACCESS EXCLUSIVE")
                if self._holds_rows(run, source):
                    return False
                run(doubled(f"ALTER TABLE {source} NO INHERIT {a.table}"), {})
                run(doubled(f"DROP TABLE {source}"), {})
            note(run)
            return True

        return self.patiently(work, patience)

    def restore_keys(self, a: Anatomy, keys: Sequence[AnatomyKey], note: Note, patience: LockPatience) -> None:
        """Recreate foreign keys to the table, enforced for new rows."""

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            tables = [key.table for key in keys if self._there(run, key.table)]
            self._lock(transaction, list(dict.fromkeys([a.table, *tables])), "SHARE ROW EXCLUSIVE")
            for key in keys:
                if key.table in tables and not run(CONSTRAINT, {"table": key.table, "name": key.name}):
                    for text in key_statements(
                        key.table, key.name, key.definition, key.comment, partitioned=key.partitioned
                    ):
                        run(doubled(text), {})
            note(run)

        if keys:
            self.patiently(work, patience)
            return
        with self.store.transaction() as transaction:
            note(transaction.execute)

    def validate_keys(self, a: Anatomy) -> list[str]:
        """Validate foreign keys to the table for old rows, while the application runs; return what is wrong with those
        that fail."""
        with self.store.transaction() as transaction:
            waiting = transaction.execute(_INVALID_KEYS, {"table": a.table})
        wrong = []
        for table, name in waiting:
            try:
                self.store.dedicated_session(validate_constraint(table, name), PATIENCE_SECONDS)
            except StoreError as problem:
                wrong.append(f"{table}: {problem.message}")
        return wrong
