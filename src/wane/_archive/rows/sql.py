"""Statements that copy rows to the archive, prove the copies, and find the rows again to delete them.

What is due is decided by `Rows.due` here as everywhere; these statements only specify which columns are read of it, and
in which range. A copy of a row is made of parts: the row itself, and one part for every table whose rows leave with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from wane._archive.rows.names import ColumnNames
from wane._archive.rows.projection import Projected, UnfitProjection, read_projection
from wane._archive.rows.types import (
    HASHABLE,
    KEY,
    MONTH,
    PARENT,
    REFUSED,
    VERSION,
    ArchiveDialect,
    Assembly,
    KeyTexts,
    SqlNumber,
    Stored,
    key_digest,
    version_digest,
)
from wane._contract.mistakes import key_path
from wane._contract.model import ArchiveTable, Transform
from wane._db.schema import Column, TableInfo
from wane._db.statement import Parameters, Statement, text_literal
from wane._db.timestamps import PER_SECOND
from wane._db.transaction import Transaction
from wane._findings import Finding, Severity, did_you_mean
from wane._rules.rows import Rows, nested
from wane._rules.selection import BoundFollower, Selection, follower_paths
from wane._rules.walk import Walk
from wane.errors import BindError

SAMPLED = "00"
"""Where keys are not whole numbers: rows whose key's digest begins so are proven in full, one in 256."""
_ALL = 2**62
RANGE = "/*range*/ 1 = 1"
"""Placeholder for the bounds of a range."""
WRITTEN_BY = (
    "CASE WHEN age(t.xmin) = 2147483647 THEN t.xmin::text::bigint ELSE age('3'::xid)::bigint - age(t.xmin) + 3 END"
)
"""PostgreSQL: a number whose last 31 bits, which digests are made of, are those of the transaction that wrote a row.

Only texts have a cast to numbers, and cost more than the distance from the first transaction, which is 3. What was
written before that one has no distance.
"""


@dataclass(frozen=True, slots=True)
class ArchivedPart:
    """One table of a copy."""

    name: str
    """As the contract names the table."""
    table: TableInfo
    path: tuple[BoundFollower, ...]
    """The path from the row; empty for the row itself."""
    alias: str
    key: tuple[Column, ...]
    columns: tuple[Stored, ...]
    """What is read of the table."""
    projection: tuple[Projected, ...] = ()
    """What the archive has instead of the columns that are read; empty if it has these."""
    projected: tuple[tuple[str, str], ...] = ()
    """The columns of the projection and their types, once Spark has computed them."""

    @property
    def hashed(self) -> dict[str, str]:
        """Return the columns that tasks hash, each with the kind of what they read."""
        return {one.name: one.hashed_from[1] for one in self.columns if one.hashed_from is not None}

    @property
    def read_shape(self) -> list[list[str]]:
        """Return the columns that are read, by the archive's names, and their types."""
        return [[one.name, one.kind] for one in self.columns]

    @property
    def hot_shape(self) -> list[list[str]]:
        """Return the columns that are read, by the table's names, and their types."""
        return [[one.hot, one.kind] for one in self.columns]

    @property
    def shape(self) -> list[list[str]]:
        """Return the columns and their types, to be compared with what the archive has."""
        assert bool(self.projection) == bool(self.projected)
        return [[name, kind] for name, kind in self.projected] if self.projection else self.read_shape


class ArchiveRows:
    """Writes statements about the copies of one rule's rows."""

    def __init__(
        self, rows: Rows, dialect: ArchiveDialect, selection: Selection, parts: Sequence[ArchivedPart]
    ) -> None:
        self.rows = rows
        self.dialect = dialect
        self.selection = selection
        self.parts = tuple(parts)

    @property
    def is_projected(self) -> bool:
        """Return whether the archive has what Spark makes of the rows."""
        return bool(self.parts[0].projection)

    def set_projected(self, shape: Sequence[Sequence[str]]) -> None:
        """Set the types of the projection's columns, as Spark computed them."""
        made = tuple((name, kind) for name, kind in shape)
        self.parts = (replace(self.parts[0], projected=made), *self.parts[1:])

    def archived(self, column: Column) -> str:
        """Return the archive's name of a column of the rule's table."""
        return next((one.name for one in self.parts[0].columns if one.hot == column.name), column.name)

    @property
    def walk(self) -> Walk:
        return Walk(self.rows, self.selection)

    def layout(self, transaction: Transaction) -> list[list[list[str]]]:
        """Read what the columns of every part are now, to be compared with what they are later."""
        return [transaction.layout(part.table) for part in self.parts]

    def changed(self, transaction: Transaction, layout: object) -> bool:
        """Check whether some table is no longer what it was when this was bound, or when its layout was read."""
        now = self.layout(transaction)
        bound = [[[column.name, column.type] for column in part.table.columns] for part in self.parts]
        return now != layout or [[column[:2] for column in part] for part in now] != bound

    # Planning

    def ceiling(self, now: datetime, limit: int, floor: Sequence[object] | None) -> Statement:
        """Write the query of the position of the last of the next `limit` due rows; without result if there are fewer.

        The database walks the index, materializes nothing, and encodes no position but the last.
        """
        p = self.rows.parameters()
        return p.statement(f"SELECT {self._position()} FROM {nested(self.walk.last(p, now, limit, floor))} AS batch")

    def rest(self, now: datetime, limit: int, floor: Sequence[object] | None) -> Statement:
        """Write the query of the number of the next due rows, up to a limit, and the position of the last of them."""
        p = self.rows.parameters()
        batch = self.walk.oldest(p, now, limit, floor)
        order = ", ".join(f"batch.{name} DESC" for name in self.walk.names)
        return p.statement(
            f"WITH batch AS ({batch}) SELECT (SELECT count(*) FROM batch), {self._position()} FROM batch ORDER BY {order} LIMIT 1"
        )

    def _position(self) -> str:
        return ", ".join(self.rows.dialect.encode_key(f"batch.{name}") for name in self.walk.names)

    def bounds(self, floor: Sequence[object] | None, ceiling: Sequence[object], now: datetime) -> Statement:
        """Write the condition that a row is inside a range of rows that are due."""
        p = self.rows.parameters()
        if floor is None:
            begins = self.rows.due(p, self.selection, now, ended=True, row_only=True)
        else:
            begins = [self._first(p, ">=", "floor", floor), *self.walk.behind(p, floor)]
        return p.statement(" AND ".join([*begins, *self._up_to(p, ceiling)]))

    def behind(self, floor: Sequence[object] | None, now: datetime) -> Statement:
        """Write the condition that a row that is due is behind a position; with none, every one is."""
        p = self.rows.parameters()
        due = self.rows.due(p, self.selection, now, floored=floor is not None, row_only=True)
        return p.statement(" AND ".join([*due, *self.walk.behind(p, floor)]))

    def _up_to(self, p: Parameters, ceiling: Sequence[object]) -> list[str]:
        return [self._first(p, "<=", "ceiling", ceiling), self.walk.up_to(p, ceiling)]

    def _first(self, p: Parameters, sign: str, name: str, position: Sequence[object]) -> str:
        """Write the condition on the first column of a position alone: SQLite uses one condition for each end of a
        range, and a partial index only if that is on a column."""
        columns, mine = self.rows.position_columns(self.selection), self.rows.position(self.selection, "t")
        return self.rows.compare(columns[:1], mine[:1], sign, self.walk.bind(p, name, position)[:1])

    # Copying

    def copy(
        self, part: ArchivedPart, now: datetime, between: tuple[Sequence[object], Sequence[object]] | None = None
    ) -> Statement:
        """Write the query of the copies of one part: of rows from one position to another, in their order.

        Without positions, RANGE is a placeholder for a range's bounds.
        """
        p = self.rows.parameters()
        selected = [self._selected(part, one, one.name) for one in part.columns]
        if self.key_texts(part) is None:
            selected.append((self.dialect.key(part.key, part.alias), KEY, "string"))
        if part.path:
            selected += self._parents()
        version = self.dialect.read_version(part.alias)
        if version is not None:
            selected.append((version, VERSION, "string"))
        if part.path or self.month_read is None:
            selected.append(self._month())
        refused = self.dialect.refused(self._refusals(part))
        if refused is not None:
            selected.append((refused, REFUSED, "long"))
        order = ", ".join(self.rows.position(self.selection, "t"))
        source = self._source(p, part, now)
        if between is not None:
            source = source.replace(RANGE, self._between(p, *between))
        return p.statement(self.dialect.typed(selected, f"{source} ORDER BY {order}"))

    def _selected(self, part: ArchivedPart, stored: Stored, name: str) -> tuple[str, str, str]:
        if stored.hashed_from is not None:
            select, kind = stored.hashed_from
            return select.replace("{x}", self._column(part, stored)), name, kind
        return stored.selected(self._column(part, stored)), name, "string" if "(" in stored.kind else stored.kind

    def key_texts(self, part: ArchivedPart) -> KeyTexts | None:
        """Return how the keys of a part are made from its columns; None if the database writes them."""
        return self.dialect.key_texts(part.key, part.columns)

    def parent_texts(self) -> KeyTexts | None:
        """Return how the keys of the rows that others leave with are made from the columns that `copy` reads of
        them."""
        found = self.key_texts(self.parts[0])
        return found and replace(found, names=tuple(f"{PARENT}{number}" for number in range(len(found.names))))

    def _parents(self) -> list[tuple[str, str, str]]:
        row = self.parts[0]
        stored = {one.name: one for one in row.columns}
        made, read = self.key_texts(row), self.parent_texts()
        if made is None or read is None:
            return [(self.dialect.key(self.selection.key, "t"), PARENT, "string")]
        return [self._selected(row, stored[name], hidden) for name, hidden in zip(made.names, read.names, strict=True)]

    @property
    def month_read(self) -> Stored | None:
        """Return the column that months are made of; None if the database writes them."""
        time, name = self.selection.time, self.selection.time_column.name
        [found] = [one for one in self.parts[0].columns if one.hot == name]
        whole = found.kind in ("integer", "long") if time.unit in PER_SECOND else True
        timed = found.kind in ("integer", "long", "timestamp", "timestamp_ntz", "date", "string")
        return found if whole and timed and found.select == "{x}" and not time.also else None

    def _month(self) -> tuple[str, str, str]:
        read = self.month_read
        if read is not None:
            return self._selected(self.parts[0], read, MONTH)
        return self.dialect.month("t", self.selection.time_column, self.selection.time), MONTH, "string"

    def assembly(self, part: ArchivedPart) -> Assembly:
        """Return how the columns that the archive adds to the rows of a part are made from what `copy` reads."""
        read = self.month_read
        return Assembly(
            self.key_texts(part),
            self.parent_texts() if part.path else None,
            None if read is None else read.name,
            PER_SECOND.get(self.selection.time.unit),
        )

    def unstorable(self, part: ArchivedPart, now: datetime) -> Statement:
        """Write the query of the key of one row that cannot be stored, and the names of the columns because of which.

        NULLs if every row can be stored; with RANGE in it.
        """
        p = self.rows.parameters()
        names = self._refused(part)
        listed = f"SELECT {self.dialect.key(part.key, part.alias)} AS k, {names} AS r FROM {self._source(p, part, now)}"
        return p.statement(f"SELECT max(k), max(r) FROM (SELECT k, r FROM ({listed}) AS d WHERE r <> '' LIMIT 1) AS e")

    def widest(self, part: ArchivedPart, now: datetime) -> Statement:
        """Write the query of the bytes of texts and binaries in the longest of these rows; with RANGE in it."""
        p = self.rows.parameters()
        sizes = [
            f"coalesce(octet_length({self._column(part, one)}), 0)"
            for one in part.columns
            if one.kind in ("string", "binary")
        ]
        return p.statement(f"SELECT max({' + '.join(['0', *sizes])}) FROM {self._source(p, part, now)}")

    def whole_key(self, part: ArchivedPart) -> str | None:
        """Write the key of a part as a number; None if it is not one whole number."""
        stored = {one.hot: one for one in part.columns}
        if len(part.key) != 1 or part.key[0].name not in stored:
            return None
        found = self.dialect.whole_number(part.key[0], stored[part.key[0].name])
        return None if found is None else found.replace("{t}", part.alias)

    def checks(self, part: ArchivedPart, now: datetime, *, strict: bool) -> Statement:
        """Write the query of the checks of a part, with RANGE in it.

        They are rows, the sum of their keys' digests, rows proven in full, and the sums of those rows' digests.
        """
        p = self.rows.parameters()
        whole = self.whole_key(part)
        if whole is not None and not strict:
            return p.statement(self._sampled(p, part, now, whole))
        digested = self._digested(p, part, now, strict=strict) if whole is None else self._numbered(p, part, now, whole)
        keys = self.dialect.sums("d.k", 1) if whole is None else "coalesce(sum(d.k), 0)"
        # Not to be merged: a digest would be computed again wherever it is used.
        return p.statement(
            f"SELECT count(*), {keys}, count(d.r), {self.dialect.sums('d.r')} FROM ({digested} LIMIT {_ALL}) AS d"
        )

    def _digested(self, p: Parameters, part: ArchivedPart, now: datetime, *, strict: bool) -> str:
        key = self.dialect.digest(self.dialect.key(part.key, part.alias))
        row = self.dialect.row_digest(part.columns, "c")
        if not strict:
            row = f"CASE WHEN substr(c.{KEY}, 1, {len(SAMPLED)}) = '{SAMPLED}' THEN {row} END"
        columns = ", ".join(self._column(part, one) for one in part.columns)
        keyed = f"SELECT {columns}, {key} AS {KEY} FROM {self._source(p, part, now)} LIMIT {_ALL}"
        return f"SELECT c.{KEY} AS k, {row} AS r FROM ({keyed}) AS c"

    def _numbered(self, p: Parameters, part: ArchivedPart, now: datetime, key: str) -> str:
        """Write the same for keys that are numbers."""
        row = self.dialect.row_digest(part.columns, part.alias)
        return f"SELECT {key_digest(SqlNumber(key)).text} AS k, {row} AS r FROM {self._source(p, part, now)}"

    def _sampled(self, p: Parameters, part: ArchivedPart, now: datetime, key: str) -> str:
        """Write the checks of keys that are numbers: only the index is read of rows that are not proven in full."""
        return self.dialect.sampled(
            self.rows.dialect.table(part.table),
            key,
            self.rows.dialect.quote(part.key[0].name),
            key_digest(SqlNumber(key)).text,
            self.dialect.row_digest(part.columns, "s"),
            self._source(p, part, now),
        )

    def _source(self, p: Parameters, part: ArchivedPart, now: datetime) -> str:
        chained, links = self.rows.chain(p, part.path, "t") if part.path else ("", "")
        tables = ", ".join(one for one in (f"{self.rows.dialect.table(self.selection.table)} AS t", chained) if one)
        # The bounds of the range are where an index is entered and left.
        due = self.rows.due(p, self.selection, now, floored=True, ended=True)
        conditions = [*due, RANGE, *([links] if links else [])]
        return f"{tables} WHERE {' AND '.join(conditions)}"

    def _column(self, part: ArchivedPart, stored: Stored) -> str:
        return f"{part.alias}.{self.rows.dialect.quote(stored.hot)}"

    def _refused(self, part: ArchivedPart) -> str:
        """Write the expression that lists the columns whose values cannot be stored."""
        found = self._refusals(part)
        names = (f"CASE WHEN {wrong} THEN {text_literal(f'{name} ')} ELSE '' END" for wrong, name in found)
        return " || ".join(["''", *names]).replace("%", "%%" if self.rows.dialect.typed_keys else "%")

    def _refusals(self, part: ArchivedPart) -> list[tuple[str, str]]:
        """Return when a row cannot be stored: conditions, each with its column."""
        nullable = {column.name for column in part.table.columns if column.nullable}
        found = [
            (one.refusal(self._column(part, one), nullable=one.hot in nullable), one.hot)
            for one in part.columns
            if one.refused
        ]
        return [*found, *self.dialect.key_refused(part.key, part.columns, part.alias)]

    # Eviction

    def _between(self, p: Parameters, first: Sequence[object], last: Sequence[object]) -> str:
        begins = [self._first(p, ">=", "floor", first), self.walk.since(p, first)]
        return " AND ".join([*begins, *self._up_to(p, last)])

    def take_range(
        self,
        first: Sequence[object],
        last: Sequence[object],
        now: datetime,
        *,
        summed: bool = False,
        unheld: bool = False,
    ) -> Statement:
        """Write the statement that takes every due row from one position to another, and returns what it took.

        How many rows, and a line with the key and version of each; nothing where versions are made of values. `summed`:
        instead of the lines the sums of the keys' digests and of the digests of keys and versions. `unheld`: take
        nothing if the table has any hold.
        """
        rows = self.rows.sparing_held_tables() if unheld else self.rows
        p = rows.parameters()
        part = self.parts[0]
        where = [*rows.due(p, self.selection, now, floored=True, ended=True), self._between(p, first, last)]
        taking = f"{rows.verb(p, self.selection)} WHERE {' AND '.join(where)}"
        if self.dialect.checksums:
            return p.statement(taking)
        if not summed:
            line = f"{self.dialect.key(part.key, 't')} || ' ' || {self.dialect.version(part.columns, 't')}"
            # A key is JSON, which escapes line breaks.
            return p.statement(
                f"WITH g AS ({taking} RETURNING {line} AS l) SELECT count(*), string_agg(l, chr(10)) FROM g"
            )
        outputs = [f"{key_digest(SqlNumber(self.whole_key(part) or '')).text} AS k", f"{WRITTEN_BY} AS v"]
        versions = version_digest(SqlNumber("g.k"), SqlNumber("g.v")).text
        sums = f"count(*), coalesce(sum(g.k), 0), coalesce(sum({versions}), 0)"
        return p.statement(f"WITH g AS ({taking} RETURNING {', '.join(outputs)}) SELECT {sums} FROM g")

    def present(self, keys: Sequence[tuple[Any, ...]]) -> Statement:
        """Write the query of the rows with these keys that exist: key, and version."""
        p = self.rows.parameters()
        part = self.parts[0]
        outputs = [self.dialect.key(part.key, "t"), self.dialect.version(part.columns, "t")]
        where = self.rows.among(p, self.selection, keys)
        return p.statement(
            f"SELECT {', '.join(outputs)} FROM {self.rows.dialect.table(self.selection.table)} AS t WHERE {where}"
        )

    def keys_present(self, keys: Sequence[tuple[Any, ...]]) -> Statement:
        """Write the query of the keys, among these, of rows that exist; it depends on no other column of the table."""
        p = self.rows.parameters()
        where = self.rows.among(p, self.selection, keys)
        table = self.rows.dialect.table(self.selection.table)
        return p.statement(f"SELECT {self.dialect.key(self.selection.key, 't')} FROM {table} AS t WHERE {where}")

    def due(self, keys: Sequence[tuple[Any, ...]], now: datetime) -> Statement:
        """Write the query of which of the rows with these keys are due."""
        p = self.rows.parameters()
        due = self.rows.dialect.recheck(self.rows.due(p, self.selection, now))
        where = f"{self.rows.among(p, self.selection, keys)} AND {due}"
        return p.statement(
            f"SELECT {self.dialect.key(self.selection.key, 't')}"
            f" FROM {self.rows.dialect.table(self.selection.table)} AS t WHERE {where}"
        )

    def following(self, part: ArchivedPart, keys: Sequence[tuple[Any, ...]]) -> Statement:
        """Write the query of what follows the rows with these keys: the row's key, its own key, and its version.

        The rows are locked, where the store locks rows.
        """
        p = self.rows.parameters()
        chained, links = self.rows.chain(p, part.path, "t")
        outputs = [
            self.dialect.key(self.selection.key, "t"),
            self.dialect.key(part.key, part.alias),
            self.dialect.version(part.columns, part.alias),
        ]
        where = f"{self.rows.among(p, self.selection, keys)} AND {links}"
        return p.statement(
            f"SELECT {', '.join(outputs)} FROM {self.rows.dialect.table(self.selection.table)} AS t, {chained}"
            f" WHERE {where}{self.rows.dialect.locking(part.alias)}"
        )


def bind_archive(
    rows: Rows, dialect: ArchiveDialect, selection: Selection, archive: Sequence[ArchiveTable], file: str = ""
) -> ArchiveRows:
    """Bind a rule that archives to the types of its columns; raise BindError with everything that cannot be stored.

    `archive`: how archived tables are stored. What it declares of a table applies to all of its rows: those that a rule
    archives, and those that leave with others.
    """
    findings: list[Finding] = []

    def refuse(code: str, message: str, fix: str = "") -> None:
        path = key_path(["table", str(selection.name)])
        findings.append(Finding(Severity.ERROR, code, message, fix, file, path, str(selection.name)))

    declared = {one.table: one for one in archive}
    paths: list[tuple[BoundFollower, ...]] = [(), *sorted(follower_paths(selection), key=len)]
    parts = []
    for path in paths:
        name = path[-1].reference.name if path else selection.name
        settings = declared.get(name, ArchiveTable(name, None))
        parts.append(_part(rows, dialect, selection, path, settings, refuse))
        table = parts[-1].table
        known_by = set(table.primary_key) if path else _known_by(rows, selection)
        _require_columns(table, settings, known_by, refuse)
    for (_, twice), count in Counter(part.table.qualified for part in parts).items():
        if count > 1:
            refuse(
                "archived-twice",
                f"rows of {twice} would leave with this rule in {count} ways, and be archived once for each",
                "name one reference in `with`, and guard with the other: `unless = [{ referenced_by = … }]`",
            )
    if findings:
        raise BindError(f"{selection.label} cannot be archived as it is", findings)
    return ArchiveRows(rows, dialect, selection, parts)


def _known_by(rows: Rows, selection: Selection) -> set[str]:
    """Return the columns by which copies are found, compared and expired."""
    known_by = (*selection.key, *rows.position_columns(selection), *selection.time_columns)
    return {*selection.table.primary_key, *(column.name for column in known_by)}


def _projection(
    rows: Rows, selection: Selection, settings: ArchiveTable, names: ColumnNames, refuse: Any
) -> tuple[Projected, ...]:
    """Read the projection of an archived table, if it has one."""
    table, select = selection.table, () if settings.transform is None else settings.transform.select
    if not select:
        return ()
    try:
        found = read_projection(select, table.name, [column.name for column in table.columns])
    except UnfitProjection as problem:
        refuse(problem.code, problem.message, problem.fix)
        return ()
    unchanged = {one.column for one in found if one.name == one.column}
    for name in sorted(_known_by(rows, selection) - unchanged):
        refuse(
            "transformed-key",
            f"`select` must have {table.name}.{name} as it is: archived rows are known by their key and their time",
            f'add "{name}" to `select`',
        )
    folded = Counter(one.name.lower() for one in found)
    for one in found:
        if folded[one.name.lower()] > 1:
            refuse("wrong-projection", f"`select` names {one.name} twice, or by case only", "name each column once")
    for name in settings.statistics:
        if name not in [one.name for one in found]:
            refuse("missing-column", f"`statistics` names {name}, which `select` has not", "remove it, or select it")
    return tuple(replace(one, name=names.archived(one.name)) for one in found)


def _require_columns(table: TableInfo, settings: ArchiveTable, needed: Collection[str], refuse: Any) -> None:
    """Refuse settings of columns that do not exist, and a transformation of those by which copies are found, compared
    and expired."""
    known = [column.name for column in table.columns]
    for now, before in settings.renamed:
        if now not in known:
            fix = did_you_mean(now, known) or "remove it from `renamed`"
            refuse("missing-column", f"{table.name} has no column {now!r} that was {before}", fix)
    for name, _ in settings.cast:
        if name not in known:
            refuse("missing-column", f"{table.name} has no column {name!r} to cast", "remove the cast")
    for name in () if settings.transform is None else settings.transform.columns():
        if name not in known:
            fix = did_you_mean(name, known) or "remove it from `transform`"
            refuse("missing-column", f"{table.name} has no column {name!r} to transform", fix)
        elif name in needed:
            refuse(
                "transformed-key",
                f"{table.name}.{name} cannot be transformed: archived rows are known by their key and their time",
                f"remove {name} from `transform`",
            )


def _transformed(
    dialect: ArchiveDialect, column: Column, stored: Stored | None, transform: Transform, refuse: Any
) -> Stored | None:
    """Return how a column is stored after its transformation."""
    masks = dict(transform.mask)
    if column.name in transform.hash and stored is not None:
        if stored.kind not in HASHABLE:
            refuse(
                "untransformable-type",
                f"{column.name} is {column.type}, whose values have no one text to hash",
                "drop it, or mask it with a text",
            )
            return stored
        return dialect.hashed(stored)
    mask = masks.get(column.name)
    if mask is None:
        return stored
    if mask.text is not None:
        made = f"CASE WHEN {{x}} IS NOT NULL THEN '{mask.text}' END"
        return Stored(column.name, "string", made, made)
    if stored is None or stored.kind != "string":
        refuse(
            "untransformable-type",
            f"{column.name} is {column.type}, and only texts have first and last characters",
            f'mask it with a text: `mask = {{ {column.name} = "***" }}`',
        )
        return stored
    made = dialect.starred(stored.select, mask.first, mask.last)
    return Stored(column.name, "string", made, made, stored.refused)


def _part(
    rows: Rows,
    dialect: ArchiveDialect,
    selection: Selection,
    path: tuple[BoundFollower, ...],
    settings: ArchiveTable,
    refuse: Any,
) -> ArchivedPart:
    casts, names = dict(settings.cast), ColumnNames(dict(settings.renamed))
    transform = settings.transform or Transform()
    assert not (path and transform.select), "a follower is archived by no projection"
    projection = _projection(rows, selection, settings, names, refuse) if not path else ()
    table = path[-1].reference.table if path else selection.table
    name = str(path[-1].reference.name if path else selection.name)
    key = selection.key
    if path:
        key = tuple(column for one in table.primary_key if (column := table.column(one)) is not None)
        if not key or path[-1].inherited:
            refuse("no-key", f"{table.name} has no primary key by which its archived rows could be known again")
    stored = []
    folded = Counter(names.archived(column.name).lower() for column in table.columns)
    read = {name for one in projection for name in one.reads}
    for column in table.columns:
        if column.name in transform.drop or (projection and column.name not in read):
            continue
        one = dialect.stored(column, casts.get(column.name), None if path else _time_of(selection, column))
        one = _transformed(dialect, column, one, transform, refuse)
        where = f"{table.name}.{column.name}"
        if one is None:
            declared = column.type or "nothing"
            refuse(
                "unarchivable-type",
                f"{where} is declared {declared}, which the archive cannot keep without losing something",
                f'declare what its values become: `[archive.{name}]` with `cast = {{ {column.name} = "text" }}`',
            )
        elif folded[names.archived(column.name).lower()] > 1:
            refuse(
                "unarchivable-name",
                f"{where} differs from another column by case only, or is archived under the same name",
                "rename it, or remove it from `renamed`",
            )
        else:
            stored.append(replace(one, name=names.archived(column.name), column=column.name))
    alias = f"f{len(path) - 1}" if path else "t"
    return ArchivedPart(name, table, path, alias, key, tuple(stored), projection)


def _time_of(selection: Selection, column: Column) -> Any:
    return selection.time if column.name == selection.time_column.name else None
