"""Proposing a contract for a live database: what `wane init` writes.

The proposal reports what was found and decides nothing. Every table that has a section has at least one `"DECIDE"`,
every rule has one of its own, and no window is ever suggested, so the file cannot pass `wane check` before a person has
thought about each table. Tables whose rows are parts of others', and have no life of their own, leave with those. It
only reads.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from wane._check.bookkeeping import bookkeeping_tool
from wane._check.candidates import Samples, States, TimeColumn, nameable
from wane._check.vocabulary import words
from wane._contract import toml
from wane._contract.load import covered_tables
from wane._contract.model import State
from wane._contract.names import TableName, join_name
from wane._contract.values import UNDECIDED
from wane._db.schema import ForeignKey, Kind, OnDelete, Schema, TableInfo
from wane._db.store import Store
from wane._db.url import mask
from wane._rules.selection import READABLE
from wane.catalogue import CataloguedSystem, contract_path, systems

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


@dataclass(frozen=True, slots=True)
class _Examined:
    """What was found in one table."""

    table: TableInfo
    rows: str
    """Their number, in words."""
    many: bool
    states: tuple[States, ...]
    state: States | None
    times: tuple[TimeColumn, ...]
    expiry: TimeColumn | None
    time: TimeColumn | None
    """What its rows age by."""
    ends: tuple[tuple[TimeColumn, tuple[State, ...]], ...] = ()
    """The columns that hold when a row ended, where each is set in other states, with these states."""

    @property
    def bounded(self) -> bool:
        """Return whether anything shows when its rows are old."""
        return self.time is not None or self.expiry is not None

    @property
    def lives(self) -> bool:
        """Return whether its rows have a life of their own: a state, an end or an expiry."""
        ended = self.time is not None and self.time.terminal
        return self.state is not None or self.expiry is not None or ended


def _latest(found: Sequence[CataloguedSystem]) -> list[CataloguedSystem]:
    """Leave out earlier versions of a system: a later one has the tables of an earlier one, and more."""
    return [one for one in found if not any(one.recognise.keys() < more.recognise.keys() for more in found)]


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
        self.examined: dict[tuple[str, str], _Examined] = {}
        self.leads: dict[tuple[str, str], list[TableInfo]] = {}
        self.systems = _latest([one for one in systems() if self._has(one)])
        covered = [name for one in self.systems for name in covered_tables(contract_path(one.name))]
        self.catalogued = {key for key, shown in self.names.items() if any(name.covers(shown) for name in covered)}

    def text(self) -> str:
        tables: list[str] = []
        excused = ["[excused]", toml.comment("Tables that need no rules, with the reason.")]
        skipped: list[str] = []
        for table in sorted(self.schema.tables, key=lambda one: one.qualified):
            if table.is_side_table or table.qualified in self.catalogued:
                continue
            if table.kind not in READABLE or table.parent in self.known or not table.name:
                skipped += self._skipped(table)
            elif tool := bookkeeping_tool(table):
                skipped.append(
                    toml.comment(f"{self._key(table)} is {tool}'s record of schema changes: it needs no line.")
                )
            elif refusal := self.store.types.rules_allowed(table):
                excused += [toml.comment(f"{refusal}."), f"{self._key(table)} = {{ elsewhere = {_OPEN} }}"]
            else:
                self.examined[table.qualified] = self._examine(table)
        for found in self.examined.values():
            parents = self._leads(found.table)
            if parents:
                names = ", ".join(self._key(parent) for parent in parents)
                skipped.append(toml.comment(f"{self._key(found.table)}: its rows leave with those of {names}."))
            elif not found.bounded and not found.states and all(one.of_work for one in found.times):
                excused += self._unbounded(found)
            else:
                tables.append("\n".join(self._table(found, excused)))
        # Contracts of the catalogue have their own schedulers.
        scheduler = "" if self.systems and not tables else f"[scheduler]\n{SCHEDULER} = {{ every = {_OPEN} }}"
        systems = ["\n".join(self._include()), "\n".join(self._windows())] if self.systems else ["", ""]
        remarks = "\n".join(self._in_other_schemas())
        head = [_HEADER.rstrip(), remarks, systems[0], "\n".join(self._store()), scheduler, systems[1]]
        parts = [*filter(None, head), *tables, "\n".join([*excused, *skipped])]
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

    # Systems of the catalogue

    def _has(self, system: CataloguedSystem, schema: str | None = None) -> bool:
        """Check whether the database has the tables by which a system is recognised, in their schema or in another."""
        for name, columns in system.recognise.items():
            parsed = TableName.parse(name)
            info = self.schema.find(schema or parsed.schema, parsed.name)
            if info is None or info.kind not in READABLE or not all(map(info.column, columns)):
                return False
        return True

    def _in_other_schemas(self) -> Iterator[str]:
        absent = [one for one in systems() if not self._has(one)]
        for schema in sorted({table.schema for table in self.schema.tables}):
            for one in _latest([one for one in absent if self._has(one, schema)]):
                yield toml.comment(
                    f"The schema {schema} has the tables of {one.title}. The contract catalogue:{one.name} is for"
                    " another one: copy it, rename its tables, include the copy, and remove what is proposed for them below."
                )

    def _include(self) -> Iterator[str]:
        for one in self.systems:
            named = sorted(str(name) for name in covered_tables(contract_path(one.name)))
            yield toml.comment(f"{one.title}: {', '.join(named)}. Compared with {one.cleaner}.")
            for statement in one.prepare:
                yield toml.comment(f"Once, before the first sweep: {statement}")
        yield f"include = {toml.value([f'catalogue:{one.name}' for one in self.systems])}"

    def _windows(self) -> Iterator[str]:
        windows = {name: window for one in self.systems for name, window in one.windows.items()}
        if not windows:
            return
        yield "[window]"
        for name, window in windows.items():
            own = f"Its own cleaner uses {toml.text(window.own)}" if window.own else "It deletes none by itself"
            yield toml.comment(f"{own} ({window.why}).")
            yield f"{toml.key(name)} = {_OPEN}"

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

    def _examine(self, table: TableInfo) -> _Examined:
        rows, many = self.samples.rows(table)
        states = self.samples.states(table, many=many)
        times = self.samples.time_columns(table)
        likely = [one for one in states if one.likely]
        ends = {one.column: self._ends(table, one, times, many=many) for one in likely}
        state = min(likely, key=lambda one: _last_end(ends[one.column]), default=None)
        times = [one for one in times if state is None or one.column != state.column]
        expiry = None if state is not None else self._expiry(times)
        # Rows do not age by the time at which a lease or a part of them begins or expires.
        ages = [one for one in times if not (one.expiry or one.of_work or one.part)] if expiry is None else []
        time = min(ages, key=lambda one: (one.rank, -one.newest.timestamp() if one.newest else 0.0), default=None)
        found = () if state is None else ends[state.column]
        known = {one for _, given in found for one in given}
        apart = len(found) > 1 and len(known) == sum(len(given) for _, given in found)
        return _Examined(table, rows, many, tuple(states), state, tuple(times), expiry, time, found if apart else ())

    def _ends(
        self, table: TableInfo, state: States, times: list[TimeColumn], *, many: bool
    ) -> tuple[tuple[TimeColumn, tuple[State, ...]], ...]:
        """Return the columns that are set in some states only, always, and named like the end of a row."""
        found = []
        for one in times:
            if one.terminal and one.column.nullable and one.column != state.column:
                given = self.samples.always_set(table, state.column, one.column, many=many)
                if given:
                    found.append((one, tuple(value for value in state.values if value in given)))
        return tuple(sorted(found, key=lambda end: end[0].rank))

    def _leads(self, table: TableInfo) -> list[TableInfo]:
        """Return the tables whose rows this table's rows leave with: those that they are parts of, and that end."""
        if table.qualified not in self.leads:
            self.leads[table.qualified] = self._find_leads(table)
        return self.leads[table.qualified]

    def _find_leads(self, table: TableInfo) -> list[TableInfo]:
        found = self.examined[table.qualified]
        if found.lives:
            return []
        parents = [self.known[name] for name, all_of in self.children.items() if any(c.table is table for c in all_of)]
        return [
            parent
            for parent in parents
            if parent is not table
            and (examined := self.examined.get(parent.qualified)) is not None
            and any(one.table is table and _follows(one, parent) for one in self.children[parent.qualified])
            and ((examined.bounded and examined.lives) or self._is_part(parent, {table.qualified}))
        ]

    def _is_part(self, table: TableInfo, below: set[tuple[str, str]]) -> bool:
        """Check whether a table's rows leave with others, without coming round to a table below it."""
        if table.qualified in below or self.examined[table.qualified].lives:
            return False
        return any(
            _follows(one, self.known[name])
            and name in self.examined
            and (self.examined[name].lives or self._is_part(self.known[name], below | {table.qualified}))
            for name, children in self.children.items()
            for one in children
            if one.table is table and name != table.qualified
        )

    def _unbounded(self, found: _Examined) -> Iterator[str]:
        parents = [self.known.get((key.to_schema, key.to_table)) for key in found.table.foreign_keys]
        leads = [
            one for one in parents if one is not None and one.qualified in self.examined and one is not found.table
        ]
        names = ", ".join(dict.fromkeys(map(self._key, leads)))
        follow = f" Its rows can leave with those of {names}: name it in `with` there, not here." if names else ""
        yield toml.comment(f"{self._key(found.table)}: {found.rows}, and no column with timestamps or states.{follow}")
        yield f"{self._key(found.table)} = {{ constant = {_OPEN} }}"

    def _table(self, found: _Examined, excused: list[str]) -> Iterator[str]:
        table, rows, many, states, state = found.table, found.rows, found.many, found.states, found.state
        times, expiry, time = found.times, found.expiry, found.time
        yield f"[table.{self._key(table)}]"
        yield toml.comment(f"{rows[:1].upper()}{rows[1:]}.")
        yield from self._remarks(table)
        only = "" if many else self.samples.only_row(table)
        if only:
            yield toml.comment("Perhaps a singleton: then remove this table here and take its line under [excused].")
            excused.append(toml.comment(f"{self._key(table)} = {{ singleton = {toml.text(only)} }}"))
        yield f"why = {_OPEN}"
        yield f"scheduler = {toml.text(SCHEDULER)}"
        yield from self._row_key(table, singleton=bool(only))
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
        if found.ends:
            yield from self._rules_by_end(found)
        else:
            yield from self._rule(table, state_known=state is not None, time=time, expiry=expiry)

    def _rules_by_end(self, found: _Examined) -> Iterator[str]:
        """Write a rule for each column that holds when a row ended: each is set in other states."""
        for end, given in found.ends:
            name = words(end.column.name)[0]
            yield f"[table.{self._key(found.table)}.rule.{toml.key(name)}]"
            yield toml.comment(
                f"{toml.key(end.column.name)} is set in {', '.join(map(toml.value, given))}, and in no other state."
            )
            yield f"when = {toml.value(list(given))}"
            yield f"time = {end.declared}"
            yield f"keep = {_OPEN}"
            yield from self._references(found.table)

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

    def _expiry(self, times: Sequence[TimeColumn]) -> TimeColumn | None:
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
            if len(table.partition_key) == 1 and (table.partitioning or "").startswith("RANGE"):
                yield toml.comment(
                    'If they are ranges of time, [partition] with `made_by = "application"` retires them.'
                )
        elif parts:
            yield toml.comment(f"Other tables ({parts}) inherit from it; its rules reach their rows too.")
        if table.row_security:
            yield toml.comment("Row security may hide rows.")
        for trigger in table.delete_triggers[:_MOST_REMARKS]:
            yield toml.comment(f"The trigger or rule {toml.key(trigger.name)} fires when rows are deleted.")
        if not all(nameable(column.name) for column in table.columns):
            yield toml.comment("It has columns that a contract cannot name.")

    def _row_key(self, table: TableInfo, *, singleton: bool) -> Iterator[str]:
        if table.primary_key:
            return
        key = _unique_key(table)
        if key:
            yield toml.comment("No primary key; these columns are unique and never NULL.")
            yield f"key = {toml.value(key)}"
        else:
            yield toml.comment("No primary key and no other key: rules need columns that are unique and never NULL.")
            line = f"key = [{_OPEN}]"
            yield toml.comment(line) if singleton else line  # One row needs no key until it has rules.

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
        taken: list[str] = []
        for child in self.children.get(table.qualified, ()):
            reference = self._reference(child, table)
            columns = ", ".join(toml.key(name) for name in child.key.columns)
            refers = f"{self._key(child.table)} refers here by {columns}"
            follows = _follows(child, table)
            entry = self._follower(child, table, {table.qualified}) if follows else f"{{ referenced_by = {reference} }}"
            if entry in follow or entry in guard or entry in taken:
                continue
            if follows:
                cascade = child.key.on_delete is OnDelete.CASCADE
                why = "the database cascades" if cascade else "its key contains the reference"
                # What has no section of its own leaves here; for others it is a suggestion.
                part = table in self._leads(child.table)
                yield toml.comment(f"{refers}; {why}, so its rows {'leave' if part else 'can leave'} with the row.")
                (taken if part else follow).append(entry)
            else:
                effect = child.key.on_delete
                what = f" (ON DELETE {effect.value})" if effect is not OnDelete.NO_ACTION else ""
                yield toml.comment(f"{refers}{what}: it can save the row, or leave with it (`with`).")
                guard.append(entry)
        for name, column in self._unenforced(table):
            yield toml.comment(
                f"{name}.{toml.key(column)} may refer here, without a foreign key: its rows may save the row (`unless`),"
                " or leave with it (`with`)."
            )
        if taken:
            yield f"with = [{', '.join(taken)}]"
        if follow:
            suggested = f"with = [{', '.join([*taken, *follow])}]"
            yield f"# or: {suggested}" if taken else f"# {suggested}"
        if guard:
            yield "# " + f"unless = [{', '.join(guard)}]"

    def _follower(self, child: _Child, parent: TableInfo, above: set[tuple[str, str]]) -> str:
        """Write a follower, with the followers of its own that have no section."""
        inner = [
            self._follower(one, child.table, above | {child.table.qualified})
            for one in self.children.get(child.table.qualified, ())
            if one.table.qualified not in above | {child.table.qualified}
            and _follows(one, child.table)
            and child.table in self._leads(one.table)
        ]
        reference = self._reference(child, parent)
        if not inner:
            return reference
        name, key = self.names[child.table.qualified], child.key
        full = {"table": str(name), "columns": list(key.columns)}
        if key.to_columns != (parent.primary_key or _unique_key(parent)):
            full["to"] = list(key.to_columns)
        written = toml.value(full).removesuffix("}").rstrip()
        return f"{written}, with = [{', '.join(inner)}] }}"

    def _unenforced(self, table: TableInfo) -> Iterator[tuple[str, str]]:
        """Yield columns of other tables that are called and typed like a reference to this table's key."""
        keys = [table.primary_key, *(index.columns for index in table.indexes if index.unique)]
        single = {mine for names in keys if len(names) == 1 and (mine := table.column(names[0] or "")) is not None}
        called = {
            (name, mine.type)
            for mine in single
            for name in (f"{_singular(table.name)}_{mine.name}".lower(), mine.name.lower())
            if len(words(name)) > 1
        }
        for other in self.examined.values():
            for column in other.table.columns:
                if (
                    other.table is not table
                    and (column.name.lower(), column.type) in called
                    and (column.name,) != other.table.primary_key
                    and not any(column.name in one.columns for one in other.table.foreign_keys)
                ):
                    yield self._key(other.table), column.name

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


def _age(time: TimeColumn | None, times: Sequence[TimeColumn]) -> TimeColumn | None:
    """Return the column that shows how old rows are whose work is not done; None if there is none, or all are done."""
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


def _follows(child: _Child, parent: TableInfo) -> bool:
    """Check whether the child's rows are to leave with the parent's, if any."""
    return child.table is not parent and (child.key.on_delete is OnDelete.CASCADE or _composed(child))


def _last_end(ends: tuple[tuple[TimeColumn, tuple[State, ...]], ...]) -> tuple[int, int]:
    """Rank a state by the end of a row that it decides: what happens last comes first."""
    return min((one.rank for one, _ in ends), default=(9, 9))


def _singular(name: str) -> str:
    return name.removesuffix("s")
