"""Proposing a contract for a live database: what `wane init` writes.

The proposal reports what was found and decides nothing. Every table has at least one `"DECIDE"`, every rule has one of
its own, and no window is ever suggested, so the file cannot pass `wane check` before a person has thought about each
table. It only reads.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from wane._check.candidates import Samples, TimeColumn, nameable
from wane._contract import toml
from wane._contract.names import TableName, join_name
from wane._contract.values import UNDECIDED
from wane._db.schema import ForeignKey, Kind, OnDelete, Schema, TableInfo
from wane._db.store import Store
from wane._db.url import mask
from wane._rules.selection import READABLE

SCHEDULER = "default"
URL_VARIABLE = "DATABASE_URL"
_MOST_REMARKS = 8
_FROM_ENVIRONMENT = re.compile(r"(?<=[:=])\$\{[A-Za-z_][A-Za-z0-9_]*\}(?=[@&]|$)")
_OPEN = toml.text(UNDECIDED)

_HEADER = """\
# Proposed by `wane init` from what the database holds now. Nothing is decided yet: replace every "DECIDE" below,
# remove what does not apply, and run `wane check --cover` until it reports nothing. Lines that start with # are remarks
# about what was seen, or suggestions to take by removing the #.
"""


def propose(store: Store, *, url_text: str) -> str:
    """Write the text of a contract to start from, for this database, with `url_text` as its URL."""
    return _Proposal(store, url_text).text()


@dataclass(frozen=True, slots=True)
class _Child:
    """A table whose rows refer to the rows of another one."""

    table: TableInfo
    key: ForeignKey


class _Proposal:
    def __init__(self, store: Store, url_text: str) -> None:
        self.store = store
        self.url_text = url_text
        self.schema = store.reflect()
        self.samples = Samples(store)
        self.known = {table.qualified: table for table in self.schema.tables}
        self.names = {table.qualified: _name(table, self.schema, self.known) for table in self.schema.tables}
        self.parts = Counter(table.parent for table in self.schema.tables if table.parent is not None)
        self.children = self._children()

    def text(self) -> str:
        tables: list[str] = []
        excused = ["[excused]", toml.comment("Tables that need no rules, with the reason.")]
        skipped: list[str] = []
        for table in sorted(self.schema.tables, key=lambda one: one.qualified):
            if table.is_side_table:
                continue
            if table.kind not in READABLE or table.parent in self.known or not table.name:
                skipped += self._skipped(table)
            elif refusal := self.store.types.rules_allowed(table):
                excused += [toml.comment(f"{refusal}."), f"{self._key(table)} = {{ elsewhere = {_OPEN} }}"]
            else:
                tables.append("\n".join(self._table(table, excused)))
        scheduler = f"[scheduler]\n{SCHEDULER} = {{ every = {_OPEN} }}"
        parts = [_HEADER.rstrip(), "\n".join(self._store()), scheduler, *tables, "\n".join([*excused, *skipped])]
        return "\n\n".join(parts) + "\n"

    def _skipped(self, table: TableInfo) -> Iterator[str]:
        if table.parent in self.known:
            if table.kind is not Kind.PARTITION:  # partitions are counted at their parent
                parent = self._key(self.known[table.parent])
                yield toml.comment(f"{self._key(table)} inherits from {parent}, whose rules reach its rows.")
        elif not table.name:
            yield toml.comment("A table without a name cannot be named in a contract.")
        elif table.kind is Kind.VIRTUAL:
            yield toml.comment(f"{self._key(table)} is a virtual table and can have no rules; to excuse it:")
            yield toml.comment(f"{self._key(table)} = {{ elsewhere = {_OPEN} }}")
        else:
            yield toml.comment(f"{self._key(table)} is a {table.kind.value}: it needs no rules.")

    def _store(self) -> Iterator[str]:
        yield "[store]"
        if _holds_secret(self.url_text):
            yield toml.comment("The URL holds a secret, so it is read from this environment variable.")
            yield f"url = {toml.text(URL_VARIABLE)}"
        else:
            yield f"url = {toml.text(self.url_text)}"
        attached = sorted({table.schema for table in self.schema.tables if self.store.types.rules_allowed(table)})
        if attached:
            files = dict.fromkeys(attached, "file.db")
            yield toml.comment("Attached databases are named here.")
            yield toml.comment(f"attach = {toml.value(files)}")

    # One table

    def _table(self, table: TableInfo, excused: list[str]) -> Iterator[str]:
        rows, many = self.samples.rows(table)
        states = self.samples.states(table, many=many)
        state = next((one for one in states if one.likely), None)
        times = [one for one in self.samples.time_columns(table) if state is None or one.column != state.column]
        expiry = None if state is not None else self._expiry(times)
        # Rows do not age by the time at which a lease or a part of them expires.
        ages = [one for one in times if not one.expiry] if expiry is None else []
        time = min(ages, key=lambda one: one.rank, default=None)

        yield f"[table.{self._key(table)}]"
        yield toml.comment(f"{rows[:1].upper()}{rows[1:]}.")
        yield from self._remarks(table)
        only = "" if many else self.samples.only_row(table)
        if only:
            yield toml.comment("Perhaps a singleton: then remove this table here and take its line under [excused].")
            excused.append(toml.comment(f"{self._key(table)} = {{ singleton = {toml.text(only)} }}"))
        yield f"why = {_OPEN}"
        yield f"scheduler = {toml.text(SCHEDULER)}"
        yield from self._row_key(table)
        if state is not None:
            yield toml.comment(state.sentence)
            yield f"state = {toml.text(state.column.name)}"
            yield f"live = [{_OPEN}]"
        column = None if state is None else state.column
        nullable = time.column if time is not None and time.column.nullable else None
        if shares := self.samples.shares(table, column, nullable, many=many):
            yield toml.comment(shares)
        for other in states:
            if other is not state:
                yield toml.comment(other.sentence)
        if time is not None:
            without = " A row without it never leaves." if time.column.nullable else ""
            yield toml.comment(f"{time.question}{without}")
            yield f"time = {time.declared}"
        age = _age(time, times) if state is None else None
        if age is not None and time is not None:
            yield toml.comment(
                f"{age.question} Reports read the age of rows without {toml.key(time.column.name)} from it."
            )
            yield f"age = {age.declared}"
        rest = [one for one in times if one not in (time, age, expiry)]
        for one in rest[:_MOST_REMARKS]:
            yield toml.comment(f"Also {one.sentence}{self._about_expiry(one)}")
        if len(rest) > _MOST_REMARKS:
            yield toml.comment(f"And {len(rest) - _MOST_REMARKS} more columns with timestamps.")
        yield ""
        yield from self._rule(table, state_known=state is not None, time=time, expiry=expiry)

    def _rule(
        self, table: TableInfo, *, state_known: bool, time: TimeColumn | None, expiry: TimeColumn | None
    ) -> Iterator[str]:
        name = "expired" if expiry is not None else "finished" if state_known else "old"
        yield f"[table.{self._key(table)}.rule.{name}]"
        if state_known:
            yield f"when = [{_OPEN}]"
        if expiry is not None:
            yield toml.comment(expiry.question)
            yield toml.comment('An expiry needs no window; decide whether rows go when it has passed (then = "prune").')
            yield f"expires = {expiry.declared}"
            yield f"then = {_OPEN}"
        else:
            if time is None:
                yield toml.comment(
                    'No column with timestamps was found: keep = "forever", or let the rows follow another table, '
                    "or excuse the table."
                )
            yield f"keep = {_OPEN}"
        yield from self._references(table)

    def _expiry(self, times: list[TimeColumn]) -> TimeColumn | None:
        """Return the column that holds the rows' expiry; None if there is none.

        A lease on a row's work ends without ending the row.
        """
        for one in times:
            if not one.expiry or not one.around(self.samples.now):
                continue
            if one.of_work and (one.column.nullable or len(times) > 1):
                continue
            return one
        return None

    def _about_expiry(self, time: TimeColumn) -> str:
        if not time.expiry:
            return ""
        if not time.around(self.samples.now):
            return " It is called like an expiry, but its values are far from now."
        if time.of_work:
            return " It may be the end of a lease on the row's work, not of the row."
        return " It may be when the row expires."

    def _remarks(self, table: TableInfo) -> Iterator[str]:
        parts = self.parts[table.qualified]
        if table.kind is Kind.PARTITIONED:
            yield toml.comment(f"Partitioned; its partitions ({parts}) belong to it and are not named here.")
        elif parts:
            yield toml.comment(f"Other tables ({parts}) inherit from it; its rules reach their rows too.")
        if table.row_security:
            yield toml.comment("Row security may hide rows.")
        for trigger in table.delete_triggers[:_MOST_REMARKS]:
            yield toml.comment(f"The trigger or rule {toml.key(trigger.name)} fires when rows are deleted.")
        if not all(nameable(column.name) for column in table.columns):
            yield toml.comment("It has columns that a contract cannot name.")

    def _row_key(self, table: TableInfo) -> Iterator[str]:
        if table.primary_key:
            return
        key = _unique_key(table)
        if key:
            yield toml.comment("No primary key; these columns are unique and never NULL.")
            yield f"key = {toml.value(key)}"
        else:
            yield toml.comment("No primary key and no other key: rules need columns that are unique and never NULL.")
            yield f"key = [{_OPEN}]"

    # Names

    def _key(self, table: TableInfo) -> str:
        return toml.key(str(self.names[table.qualified]))

    # References

    def _children(self) -> dict[tuple[str, str], list[_Child]]:
        """Return for every table the foreign keys that point at it; those of a partition count for its root."""
        children: dict[tuple[str, str], list[_Child]] = defaultdict(list)
        for table in self.schema.tables:
            child = self._root(table)
            for key in table.foreign_keys:
                parent = self.known.get((key.to_schema, key.to_table))
                if parent is None or child.kind not in READABLE or not child.name:
                    continue
                one = _Child(child, key)
                names = [*key.columns, *key.to_columns]
                if len(key.columns) == len(key.to_columns) and all(map(nameable, names)):
                    children[self._root(parent).qualified].append(one)
        for found in children.values():
            found.sort(key=lambda one: (one.table.qualified, one.key.columns, one.key.name))
        return children

    def _root(self, table: TableInfo) -> TableInfo:
        if table.kind is Kind.PARTITION and table.parent is not None:
            return self.known.get(table.parent, table)
        return table

    def _references(self, table: TableInfo) -> Iterator[str]:
        """Yield suggestions for the rows that refer to this table's, each to be accepted or removed."""
        follow: list[str] = []
        guard: list[str] = []
        for child in self.children.get(table.qualified, ()):
            reference = self._reference(child, table)
            columns = ", ".join(toml.key(name) for name in child.key.columns)
            refers = f"{self._key(child.table)} refers here by {columns}"
            follows = child.table is not table and (child.key.on_delete is OnDelete.CASCADE or _composed(child))
            entry = reference if follows else f"{{ referenced_by = {reference} }}"
            if entry in follow or entry in guard:
                continue
            if follows:
                cascade = child.key.on_delete is OnDelete.CASCADE
                why = "the database cascades" if cascade else "its key contains the reference"
                yield toml.comment(f"{refers}; {why}, so its rows can leave with the row.")
                follow.append(entry)
            else:
                effect = child.key.on_delete
                what = f" (ON DELETE {effect.value})" if effect is not OnDelete.NO_ACTION else ""
                yield toml.comment(f"{refers}{what}: it can save the row, or leave with it (`with`).")
                guard.append(entry)
        if follow:
            yield "# " + f"with = [{', '.join(follow)}]"
        if guard:
            yield "# " + f"unless = [{', '.join(guard)}]"

    def _reference(self, child: _Child, parent: TableInfo) -> str:
        name, key = self.names[child.table.qualified], child.key
        direct = key.to_columns == (parent.primary_key or _unique_key(parent))
        if direct and len(key.columns) == 1:
            parts = [name.name] if name.schema is None else [name.schema, name.name]
            return toml.text(join_name([*parts, key.columns[0]]))
        full: dict[str, object] = {"table": str(name), "columns": list(key.columns)}
        return toml.value(full if direct else {**full, "to": list(key.to_columns)})


def _name(table: TableInfo, schema: Schema, known: dict[tuple[str, str], TableInfo]) -> TableName:
    """Return the shortest name that resolves to this table."""
    first = next((schema_name for schema_name in schema.search_path if (schema_name, table.name) in known), None)
    return TableName(table.name, None if first == table.schema else table.schema)


def _age(time: TimeColumn | None, times: list[TimeColumn]) -> TimeColumn | None:
    """Return the column that says how old rows are whose work is not done; None if there is none, or all are done."""
    if time is None or not time.done or not time.column.nullable:
        return None
    return next((one for one in times if one.of_creation and not one.column.nullable), None)


def _unique_key(table: TableInfo) -> tuple[str, ...]:
    """Return the shortest set of columns that is unique and never NULL; () if there is none."""
    keys = []
    for index in table.indexes:
        names = tuple(name for name in index.columns if name is not None)
        columns = [column for name in names if (column := table.column(name)) is not None]
        whole = len(columns) == len(index.columns) > 0 and index.unique and index.valid and index.predicate is None
        if whole and all(nameable(column.name) and not column.nullable for column in columns):
            keys.append(names)
    return min(keys, key=lambda names: (len(names), names), default=())


def _composed(child: _Child) -> bool:
    """Check whether the child's rows are parts of the parent's: the reference is part of a key that identifies them."""
    keys = [set(child.table.primary_key)]
    keys += [
        {name for name in index.columns if name}
        for index in child.table.indexes
        if index.unique and index.predicate is None
    ]
    columns = [child.table.column(name) for name in child.key.columns]
    required = all(column is not None and not column.nullable for column in columns)
    return required and any(set(child.key.columns) < key for key in keys)


def _holds_secret(url: str) -> bool:
    """Check whether the URL itself contains a password.

    Names of keys may be percent-encoded, so both forms are checked.
    """
    bare = _FROM_ENVIRONMENT.sub("", url).replace(":@", "@")
    return any(mask(one).replace("=***", "=") != one for one in (bare, unquote(bare)))
