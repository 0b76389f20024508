"""Splitting the partition from before the conversion into months: rows are copied in small batches beside the
application, whose changes a trigger carries along, then swapped.

Copy and original are equal in every snapshot from the time that a row is copied: a transaction that changes a row
changes its copy too, and a row is locked while it is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.postgres.settings import SEARCH_PATH, function_settings
from wane._db.statement import Execute, text_literal
from wane._db.transaction import Transaction
from wane._partition.anatomy import Anatomy, AnatomyKey, fitted, quote, read_standing
from wane._partition.records import MIN, Range
from wane._partition.sql_ddl import key_statements, leaf_statements, qualified_name, root_name, root_statements
from wane._partition.sql_steps import LockPatience, Note, Steps, doubled, limit_statements, read_leaves

_TRIGGER = "wane_split"
_RANGE = "wane_range"

NoteKey = Callable[[Execute, "list[str] | None"], None]
"""Notes a key of the rows that are copied, in a transaction of others; None where there are no rows."""


class Splitting(Steps):
    """Steps from one long partition to months."""

    def begin_split(
        self, a: Anatomy, old: str, leaves: Sequence[tuple[str, Range]], note: NoteKey, patience: LockPatience
    ) -> None:
        """Create the months, empty and out of the application's sight, and carry every change along from now on.

        `note` receives the last key that there is to copy, in the same transaction.
        """

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            self._clear_split(run, a, old)
            for one in root_statements(a):
                run(doubled(one.text), {})
            for name, range_ in leaves:
                for text in leaf_statements(a, root_name(a), name, range_):
                    run(doubled(text), {})
                # Proves the range when the month is attached, so that its rows need not be read then.
                run(
                    doubled(
                        f"ALTER TABLE {qualified_name(a, name)} ADD CONSTRAINT {_RANGE} CHECK ({_inside(a, range_)})"
                    ),
                    {},
                )
            self._lock(transaction, [qualified_name(a, old)], "SHARE ROW EXCLUSIVE")
            columns = [name.strip() for name in self._columns(run, a.table).split(", ")]
            key = " AND ".join(f"t.{quote(name)} = OLD.{quote(name)}" for name in _order(a))
            values = ", ".join(f"NEW.{name}" for name in columns)
            shadow = root_name(a)
            run(
                doubled(
                    f"CREATE FUNCTION {_function(a)}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER"
                    f" {function_settings({'search_path': SEARCH_PATH})}"
                    f" AS $wane$ BEGIN IF TG_OP = 'TRUNCATE' THEN TRUNCATE {shadow}; RETURN NULL; END IF;"
                    f" IF TG_OP <> 'INSERT' THEN DELETE FROM {shadow} AS t WHERE {key}; END IF;"
                    f" IF TG_OP <> 'DELETE' THEN INSERT INTO {shadow} ({', '.join(columns)}) OVERRIDING SYSTEM VALUE"
                    f" VALUES ({values}); END IF; RETURN NULL; END $wane$"
                ),
                {},
            )
            # A role with EXECUTE could make it the trigger of another table, and write here with our rights.
            run(doubled(f"REVOKE EXECUTE ON FUNCTION {_function(a)}() FROM PUBLIC"), {})
            source = qualified_name(a, old)
            run(
                doubled(
                    f"CREATE TRIGGER {_TRIGGER} AFTER INSERT OR UPDATE OR DELETE ON {source} FOR EACH ROW"
                    f" EXECUTE FUNCTION {_function(a)}()"
                ),
                {},
            )
            run(
                doubled(
                    f"CREATE TRIGGER {_TRIGGER}_all AFTER TRUNCATE ON {source} FOR EACH STATEMENT"
                    f" EXECUTE FUNCTION {_function(a)}()"
                ),
                {},
            )
            # Rows behind it are new from now on, and carried along. To copy them too could go on for as long as the
            # application adds rows faster than they are copied.
            rows = run(doubled(f"SELECT {_texts(a)} FROM {source} AS picked {_last_first(a)} LIMIT 1"), {})
            note(run, [str(value) for value in rows[0]] if rows else None)

        self.patiently(work, patience)

    def copy_some(
        self, a: Anatomy, old: str, floor: list[str] | None, last: list[str], limit: int, note: NoteKey
    ) -> tuple[int, list[str] | None]:
        """Copy some rows after a cursor, up to the last key; return how many were read, and the new cursor.

        `note` receives the new cursor, in the same transaction.
        """
        names = _order(a)
        types = {column.name: column.type for column in a.columns}
        order = ", ".join(quote(name) for name in names)
        with self.store.transaction() as transaction:
            run = transaction.execute
            columns = self._columns(run, a.table)
            bounds, values = list[str](), dict[str, object]()
            for letter, operator, key in (("l", "<=", last), *([("f", ">", floor)] if floor else [])):
                values |= {f"{letter}{number}": value for number, value in enumerate(key)}
                typed = ", ".join(f"%({letter}{number})s::text::{types[name]}" for number, name in enumerate(names))
                bounds.append(f"({doubled(order)}) {operator} ({typed})")
            found = run(
                f"WITH picked AS MATERIALIZED (SELECT {doubled(columns)} FROM {doubled(qualified_name(a, old))}"
                f" WHERE {' AND '.join(bounds)} ORDER BY {doubled(order)} LIMIT {int(limit)} FOR SHARE), copied AS (INSERT INTO {doubled(root_name(a))}"
                f" ({doubled(columns)}) OVERRIDING SYSTEM VALUE SELECT * FROM picked ON CONFLICT DO NOTHING RETURNING 1)"
                f" SELECT (SELECT count(*) FROM picked), {doubled(_texts(a))} FROM picked {doubled(_last_first(a))} LIMIT 1",
                values,
            )
            if not found:
                return 0, floor
            [(count, *end)] = found
            note(run, end)
        return int(count), end

    def differs(self, a: Anatomy, old: str) -> str:
        """Report how the copy differs from the original, in one snapshot; "" if it does not."""

        def sums(table: str) -> str:
            digest = "coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)"
            return f"(SELECT count(*) || ' rows, ' || {digest} FROM (SELECT {columns} FROM {table}) AS t)"

        with self.store.transaction() as transaction:
            run = transaction.execute
            limit_statements(run)
            columns = self._columns(run, a.table)
            [(mine, theirs)] = run(doubled(f"SELECT {sums(qualified_name(a, old))}, {sums(root_name(a))}"), {})
        return "" if mine == theirs else f"the original has {mine}, the copy {theirs}"

    def swap_split(self, a: Anatomy, old: str, note: Note, patience: LockPatience) -> None:
        """Replace the one long partition by the months and drop it: its rows are in them."""

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            leaves = [leaf.name for leaf in read_leaves(run, a.schema, a.name)]
            keys: list[AnatomyKey] = read_standing(run, a.schema, a.name, leaves).inbound
            self._lock(transaction, [a.table, *(key.table for key in keys)], "ACCESS EXCLUSIVE")
            for key in keys:
                run(doubled(f"ALTER TABLE {key.table} DROP CONSTRAINT {quote(key.name)}"), {})
            source, shadow = qualified_name(a, old), root_name(a)
            run(doubled(f"ALTER TABLE {a.table} DETACH PARTITION {source}"), {})
            own, _, bare = shadow.partition(".")
            for leaf in read_leaves(run, own, bare.strip('"')):
                month = qualified_name(a, leaf.name)
                run(doubled(f"ALTER TABLE {shadow} DETACH PARTITION {month}"), {})
                run(doubled(f"ALTER TABLE {a.table} ATTACH PARTITION {month} FOR VALUES {leaf.range.sql}"), {})
                run(doubled(f"ALTER TABLE {month} DROP CONSTRAINT {_RANGE}"), {})
            for column in a.columns:
                if column.sequence is not None and not column.identity:
                    run(doubled(f"ALTER TABLE {source} ALTER COLUMN {quote(column.name)} DROP DEFAULT"), {})
            self._clear_split(run, a, old)
            run(doubled(f"DROP TABLE {source}"), {})
            for key in keys:
                for text in key_statements(
                    key.table, key.name, key.definition, key.comment, partitioned=key.partitioned
                ):
                    run(doubled(text), {})
            note(run)

        self.patiently(work, patience)

    def discard_split(self, a: Anatomy, old: str, note: Note, patience: LockPatience) -> None:
        """Remove the copy, and the triggers that carry changes to it."""

        def work(transaction: Transaction) -> None:
            run = transaction.execute
            self._lock(transaction, [qualified_name(a, old)], "ACCESS EXCLUSIVE")
            self._clear_split(run, a, old)
            note(run)

        self.patiently(work, patience)

    def _clear_split(self, run: Execute, a: Anatomy, old: str) -> None:
        for name in (_TRIGGER, f"{_TRIGGER}_all"):
            run(doubled(f"DROP TRIGGER IF EXISTS {name} ON {qualified_name(a, old)}"), {})
        run(doubled(f"DROP FUNCTION IF EXISTS {_function(a)}()"), {})
        run(doubled(f"DROP TABLE IF EXISTS {root_name(a)}"), {})


def _function(a: Anatomy) -> str:
    return f"{OWN_SCHEMA}.{quote(fitted(f'{a.schema}_{a.name}', '_split'))}"


def _order(a: Anatomy) -> list[str]:
    """Return the columns in whose order rows are copied: its key, which has an index whatever other indexes the table
    has."""
    return list(dict.fromkeys([*a.key, a.time]))


def _texts(a: Anatomy) -> str:
    return ", ".join(f"picked.{quote(name)}::text" for name in _order(a))


def _last_first(a: Anatomy) -> str:
    # By the columns themselves: a bare name would be that of their text.
    return "ORDER BY " + ", ".join(f"picked.{quote(name)} DESC" for name in _order(a))


def _inside(a: Anatomy, range_: Range) -> str:
    column = quote(a.time)
    below = f"{column} < {text_literal(range_.upper)}"
    return below if range_.lower == MIN else f"{column} >= {text_literal(range_.lower)} AND {below}"
