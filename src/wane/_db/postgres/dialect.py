"""The SQL that PostgreSQL needs for users' rows.

Texts that hold timestamps are compared byte by byte (`COLLATE "C"`), because a locale may order digits and signs
differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from wane._contract.conditions import Constant
from wane._contract.model import State, Time, Unit
from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.schema import Column, TableInfo, index_name
from wane._db.statement import Dialect, Parameters, Slot, Statement, Types, When, text_literal
from wane._db.timestamps import (
    EARLIEST,
    EARLIEST_DAY,
    PER_SECOND,
    SMALLEST,
    day_bound,
    earliest_text,
    earliest_wall,
    fraction_bound,
    micros,
    number_bound,
    wall_bound,
)

_FEW_BYTES = 16 * 8192
"""The size of a few pages: fewer than five thousand of the shortest rows."""
_SPREAD_ROWS = 10_000
"""How many rows are read for a sample: whole pages, of which a few rows each are taken."""
_WHOLE = ("smallint", "integer", "bigint")
_BITS = {"smallint": 15, "integer": 31, "bigint": 63}
_FRACTIONAL = ("double precision", "numeric")
_INEXACT = ("real", "double precision")
_NATIVE = ("timestamp with time zone", "timestamp without time zone")
_COMPARABLE = ({*_WHOLE, *_FRACTIONAL, "real"}, {"text", "character varying", "character"})
_NUMBERS = (*_WHOLE, *_INEXACT, "numeric")
_MOST_NAME_BYTES = 63
_DAY = (
    r"([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    r"|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)"
)
_DATE_AND_CLOCK = _DAY + r"%s([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"

_ORDERED_TEXT = (
    "^([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|[0-7][0-9A-HJKMNP-TV-Z]{25})$"  # UUIDv7, ULID
)


UNQUOTED = frozenset({"smallint", "integer", "bigint", "uuid"})
"""Types whose texts need no quotes or escapes in a list of them, whether JSON's or PostgreSQL's."""


def json_of(columns: Sequence[Column], texts: Sequence[str]) -> str:
    """Write the texts of columns as one JSON array."""
    if all(_bare(column) in UNQUOTED and not column.nullable for column in columns):
        inside = """ || '", "' || """.join(texts)
        return f"""('["' || {inside} || '"]')"""  # The same text at a third of the cost.
    return f"jsonb_build_array({', '.join(texts)})::text"


class PostgresDialect(Dialect):
    """The dialect for psycopg: named placeholders are `%(name)s`, and a percent sign in an identifier is doubled."""

    locks_rows = True
    # A transaction whose number is below the first one that is not assigned yet has ended, or is among those in
    # progress: all but the statement's own.
    ended_transactions = (
        "(SELECT pg_snapshot_xmax(s)::text::bigint - (SELECT count(*) FROM pg_snapshot_xip(s))\n"
        "    - CASE WHEN pg_current_xact_id_if_assigned() < pg_snapshot_xmax(s) THEN 1 ELSE 0 END\n"
        "  FROM pg_current_snapshot() AS s)"
    )
    reads_few = True
    typed_keys = True
    json_each = "jsonb_each_text"

    @staticmethod
    def quote(name: str) -> str:
        return Dialect.quote(name).replace("%", "%%")

    def placeholder(self, name: str) -> str:
        return f"%({name})s"

    def order(self, alias: str, column: Column, time: Time) -> str:
        expression = f"{alias}.{self.quote(column.name)}"
        return f'{expression} COLLATE "C"' if column.collation is not None else expression

    def exact(self, alias: str, column: Column, time: Time) -> str:
        expression = self.order(alias, column, time)
        if time.unit not in (Unit.ISO, Unit.TEXT):
            return expression
        bare = expression if time.zone is not None else f"replace(replace({expression}, 'Z', ''), '+00:00', '')"
        return f"(left({bare}, 19) || '.' || rpad(substr({bare}, 21), 9, '0')) COLLATE \"C\""

    def instant(self, expression: str, time: Time) -> str:
        """Write the instant as a timestamptz."""
        if time.unit in PER_SECOND:
            return f"to_timestamp(({expression})::float8 / {PER_SECOND[time.unit]})"
        if time.unit is Unit.DATE:
            return f"((({expression})::date + 1)::timestamp AT TIME ZONE {text_literal(time.zone or 'UTC')})"
        if time.unit is Unit.NATIVE:
            return (
                f"({expression})" if time.zone is None else f"(({expression}) AT TIME ZONE {text_literal(time.zone)})"
            )
        if time.zone is None:
            return f"({expression})::timestamptz"
        return f"(({expression})::timestamp AT TIME ZONE {text_literal(time.zone)})"

    def plausible(self, p: Parameters, alias: str, column: Column, time: Time) -> list[str]:
        if time.also:
            return self.any_unit([self.plausible(p, alias, column, one) for one in time.each])
        if _digits(column, time):
            return [self._number(alias, column, f">= {p.bind('earliest', SMALLEST[time.unit])}::bigint")]
        expression = self.order(alias, column, time)
        if time.unit in PER_SECOND:
            return [f"{expression} >= {p.bind('earliest', SMALLEST[time.unit])}::{_bare(column)}"]
        if time.unit is Unit.NATIVE:
            earliest = EARLIEST if time.zone is None else earliest_wall(time.zone)
            return [f"{expression} >= {p.bind('earliest', earliest)}::{_bare(column)}"]
        if _bare(column) == "date":
            return [f"{expression} >= {p.bind('earliest', EARLIEST_DAY)}::date"]
        return [
            f"{expression} ~ {p.bind('shape', _shape(time))}",
            f"{expression} >= {p.bind('earliest', earliest_text(time))}",
        ]

    def greatest(self, expressions: Sequence[str]) -> str:
        return f"greatest({', '.join(expressions)})"

    def ordered_key(self, alias: str, column: Column) -> list[str]:
        expression, kind = f"{alias}.{self.quote(column.name)}", _bare(column)
        if kind in _WHOLE:
            return []
        if kind == "uuid":
            return [f"substr({expression}::text, 15, 1) = '7'"]
        return [f"{expression} ~ '{_ORDERED_TEXT}'"]

    def lowest_key(self, column: Column) -> object:
        kind = _bare(column)
        if kind in _WHOLE:
            return str(-(2 ** _BITS[kind]))
        return "00000000-0000-0000-0000-000000000000" if kind == "uuid" else ""

    def encoding(self, column: Column, time: Time, *, inclusive: bool) -> Callable[[datetime], object] | None:
        unit, zone = time.unit, time.zone
        if unit in PER_SECOND and (column.type in _WHOLE or _digits(column, time)):
            return lambda at: number_bound(at, unit, inclusive=inclusive)
        if unit in PER_SECOND:
            return lambda at: fraction_bound(at, unit)
        if unit is Unit.DATE and _bare(column) == "date":
            return lambda at: day_bound(at, zone, inclusive=inclusive)
        if unit is Unit.DATE:
            return lambda at: day_bound(at, zone, inclusive=inclusive).isoformat()
        if unit is not Unit.NATIVE:
            return None
        return (lambda at: at) if zone is None else (lambda at: wall_bound(at, zone, inclusive=inclusive))

    def compared(self, alias: str, column: Column, time: Time, sign: str, bound: str) -> str:
        if _digits(column, time):
            return self._number(alias, column, f"{sign} {bound}::bigint")
        # A bound of another type than the column's would cast the column and lose the index.
        whole = time.unit in PER_SECOND and column.type in _WHOLE
        return f"{self.order(alias, column, time)} {sign} {bound}::{'bigint' if whole else _bare(column)}"

    def past_window(self, p: Parameters, alias: str, column: Column, time: Time, now: When, window: str) -> str:
        window = f"{window}::bigint"
        expression = self.order(alias, column, time)
        if time.unit in PER_SECOND:
            size = 1_000_000 // PER_SECOND[time.unit]
            at = f"({p.bind_time('window_now', now, column, time, micros)}::bigint - {window})"
            if column.type in _WHOLE:
                return f"{expression} < ({at} + {size - 1}) / {size}"
            return f"{expression} < ({at}::numeric / {size})::{_bare(column)}"
        at = p.bind_time("window_now", now, column, time, lambda instant: instant)
        past = f"{self.instant(expression, time)} < {at}::timestamptz - {window} * interval '1 microsecond'"
        if time.unit is Unit.NATIVE or _bare(column) == "date":
            return past
        # PostgreSQL need not evaluate conditions in the order in which they are written: no other text is converted.
        return f"CASE WHEN {' AND '.join(self.plausible(p, alias, column, time))} THEN {past} ELSE false END"

    def lowest(self, column: Column, time: Time) -> object:
        if any(_digits(column, one) for one in time.each):
            return ""
        if time.unit in PER_SECOND:
            return str(min(SMALLEST[one.unit] for one in time.each) - 1)
        if time.unit is Unit.NATIVE:
            earliest = EARLIEST if time.zone is None else earliest_wall(time.zone)
            return (earliest - timedelta(microseconds=1)).isoformat(" ")
        if _bare(column) == "date":
            return (EARLIEST_DAY - timedelta(days=1)).isoformat()
        return min(earliest_text(one) for one in time.each)[:-1]

    def walks(self, column: Column, time: Time) -> bool:
        return not any(_digits(column, one) for one in time.each)

    def _number(self, alias: str, column: Column, compared: str) -> str:
        """Write the comparison of a text of digits as the number that it is.

        PostgreSQL need not evaluate conditions in the order in which they are written, hence the CASE.
        """
        expression = f"{alias}.{self.quote(column.name)}"
        return f"CASE WHEN {expression} ~ '^[0-9]{{1,18}}$' THEN {expression}::bigint {compared} ELSE false END"

    def one_of(
        self, p: Parameters, name: str, expression: str, column: Column, states: Sequence[Constant | Slot]
    ) -> str:
        # With ANY, even of one, the planner no longer sees that an index on (state, time) is ordered by time.
        if len(states) == 1:
            wanted = f"= {p.bind(name, states[0])}::{_comparable(column)}"
        else:
            wanted = f"= ANY({p.bind(name, _alike(states))}::{_comparable(column)}[])"
        return self._exactly(expression, column, wanted)

    def compares(
        self,
        p: Parameters,
        name: str,
        expression: str,
        column: Column,
        sign: str,
        values: Sequence[Constant | Slot],
    ) -> str:
        if sign == "=":
            return self.one_of(p, name, expression, column, values)
        kind, number = _comparable(column), _is_number(expression, column)
        if sign == "not":
            none = f"<> ALL({p.bind(name, _alike(values))}::{kind}[])"
            return f"{self.bytewise(expression, column) if column.loose else expression} {none}{number}"
        return f"{expression} {sign} {p.bind(name, values[0])}::{kind}{number}"

    def compares_columns(self, expression: str, column: Column, sign: str, other: str, other_column: Column) -> str:
        sign = "<>" if sign == "not" else sign
        if column.collation is None and other_column.collation is None:
            numbers = _is_number(expression, column) + _is_number(other, other_column)
            return f"{expression} {sign} {other}{numbers}"
        return f'{expression} COLLATE "C" {sign} {other} COLLATE "C"'

    def _exactly(self, expression: str, column: Column, wanted: str) -> str:
        if not column.loose:
            return f"{expression} {wanted}"
        # An index has only the column's own order; the bytes are compared on the rows that it finds.
        return f"{expression} {wanted} AND {self.bytewise(expression, column)} {wanted}"

    def bytewise(self, expression: str, column: Column) -> str:
        return expression if column.collation is None else f'{expression} COLLATE "C"'

    def equal(self, p: Parameters, name: str, expression: str, column: Column, value: object) -> str:
        # IS NOT DISTINCT FROM would cover both cases, but no index serves it.
        if value is None:
            return f"{expression} IS NULL"
        same = self._exactly(expression, column, f"{self.sign('=', column)} {self.decode_key(p, name, column, value)}")
        if not isinstance(value, Slot):
            return same
        return f"({same} OR ({p.bind(name, value)}::text IS NULL AND {expression} IS NULL))"

    def sign(self, sign: str, column: Column) -> str:
        return sign if column.operators is None else f"OPERATOR({self.quote(column.operators)}.{sign})"

    def count_up_to(self, table: TableInfo, most: str, *, without_children: bool) -> str:
        bounded = super().count_up_to(table, most, without_children=without_children)
        if not without_children:
            return bounded
        # A table of few pages is counted page by page, without checking the limit at every row.
        pages = f"SELECT count(*) FROM {self.table(table)} WHERE ctid >= '(0,0)'"
        return f"SELECT CASE WHEN {self._is_small(table)} THEN ({pages}) ELSE ({bounded}) END"

    def read_few(self, table: TableInfo, aggregates: Sequence[str], outputs: Sequence[str]) -> str:
        named = ", ".join(f"{one} AS n{number}" for number, one in enumerate(aggregates))
        pages = f"SELECT {named} FROM {self.table(table)} AS t WHERE ctid >= '(0,0)'"
        array = f"SELECT ARRAY[{', '.join(outputs)}]::bigint[] FROM ({pages}) AS s"
        return f"SELECT CASE WHEN {self._is_small(table)} THEN ({array}) END"

    def time_number(self, expression: str, column: Column, time: Time) -> str | None:
        if time.also:
            return None
        if time.unit in PER_SECOND and _bare(column) in _WHOLE:
            return expression
        if time.unit is Unit.NATIVE and _bare(column) in _NATIVE:
            return f"(extract(epoch FROM {expression}) * 1000000)::bigint"
        return None

    def _is_small(self, table: TableInfo) -> str:
        return f"pg_relation_size({text_literal(self.table(table))}::regclass) <= {_FEW_BYTES}"

    def spread(self, table: TableInfo, rows: int, believed: int | None) -> str:
        share = 100 if not believed else min(100, 100 * max(rows, _SPREAD_ROWS) / believed)
        pages = (
            f"SELECT t.*, row_number() OVER () AS wane_row FROM {self.table(table)} AS t"
            f" TABLESAMPLE SYSTEM ({share:.6f}) REPEATABLE (0)"
        )
        # Not at equal distances: every twentieth row may be of another kind than the others.
        return f"(SELECT * FROM ({pages}) AS pages ORDER BY hashint8(wane_row) LIMIT {rows})"

    def finds_nothing(self, query: str) -> str:
        # OFFSET prevents the planner from joining the whole child table, for every batch. And it estimates IS NULL on a
        # probe as true for one row in 200, so it reads and sorts all that is due, because too few would be left to fill
        # the batch.
        return f"NOT EXISTS ({query} OFFSET 0)"

    def finds_some(self, query: str) -> str:
        return f"EXISTS ({query} OFFSET 0)"  # For the same reason.

    def join_first(self, alias: str, table: str, key: Sequence[Column], columns: Sequence[Column], source: str) -> str:
        # No index finds a row by the columns of a subquery.
        found = ", ".join(f"n.{self.quote(column.name)}" for column in columns)
        return f"CROSS JOIN LATERAL (SELECT {found} FROM {source}) AS {alias}"

    def reference_forms(self, expression: str, column: Column, to: Column) -> list[str]:
        return [expression]

    def identity(self, table: TableInfo, *, inherited: bool) -> list[str]:
        return [self.quote(column.name) for column in _identity(table, inherited=inherited)]

    def identified(
        self, p: Parameters, table: TableInfo, found: Sequence[tuple[Any, ...]] | None, *, inherited: bool
    ) -> str:
        return self.keys(p, _identity(table, inherited=inherited), found)

    def locking(self, alias: str) -> str:
        return f" FOR UPDATE OF {alias}"

    def assign(self, p: Parameters, column: Column, value: object) -> str:
        return f"{p.bind('mark', value)}::{_comparable(column)}"

    def encode_key(self, expression: str) -> str:
        return f"{expression}::text"

    def encoded(self, value: object) -> object:
        if isinstance(value, bytes | bytearray | memoryview):
            return f"\\x{bytes(value).hex()}"
        return value if value is None or isinstance(value, Slot) else str(value)

    def decode_key(self, p: Parameters, name: str, column: Column, value: object) -> str:
        return f"{p.bind(name, self.encoded(value))}::text::{_comparable(column)}"

    def keys(self, p: Parameters, columns: Sequence[Column], keys: Sequence[tuple[Any, ...]] | None) -> str:
        slots: list[object] = [Slot(f"keys_{number}") for number in range(len(columns))]
        values = slots if keys is None else [[key[number] for key in keys] for number in range(len(columns))]
        arrays = [p.bind(f"keys_{number}", value) for number, value in enumerate(values)]
        names = ", ".join(f"k{number}" for number in range(len(columns)))
        typed = ", ".join(f"w.k{number}::{_comparable(column)}" for number, column in enumerate(columns))
        return f"SELECT {typed} FROM unnest({', '.join(f'{array}::text[]' for array in arrays)}) AS w({names})"

    def fill_keys(self, statement: Statement, keys: Sequence[tuple[Any, ...]]) -> Statement:
        arrays = {f"keys_{number}": list(values) for number, values in enumerate(zip(*keys, strict=True))}
        known = {name: array for name, array in arrays.items() if name in statement.parameters}
        return Statement(statement.text, {**statement.parameters, **known})

    def recheck(self, conditions: Sequence[str]) -> str:
        return "\n  AND ".join(conditions)

    def own_table(self, name: str) -> str:
        return f"{OWN_SCHEMA}.{name}"

    def key_text(self, columns: Sequence[Column], alias: str) -> str:
        return json_of(columns, [self._as_text(column, alias) for column in columns])

    def _as_text(self, column: Column, alias: str) -> str:
        expression = f"{alias}.{self.quote(column.name)}"
        # The text of a timestamp depends on the session's zone and style; its number does not.
        if _bare(column).startswith(("timestamp", "date")):
            return f"extract(epoch FROM {expression})::text"
        return f"{expression}::text"

    def in_force(self, p: Parameters, hold: str) -> str:
        return f"{hold}.released_at IS NULL AND ({hold}.ends_at IS NULL OR {hold}.ends_at > clock_timestamp())"

    def json(self, placeholder: str) -> str:
        return f"{placeholder}::jsonb"

    def json_count(self, column: str, key: str) -> str:
        return f"({column} ->> {key})::bigint"

    def encode_time(self, timestamp: datetime) -> object:
        return timestamp

    def decode_time(self, stamp: Any) -> datetime:
        assert isinstance(stamp, datetime)
        return stamp.astimezone(UTC)

    def month(self, alias: str, column: Column, time: Time) -> str:
        """Write the month, in UTC, of a plausible value: `2026-01`."""
        value = f"{alias}.{self.quote(column.name)}"
        if time.unit in PER_SECOND:
            value = f"to_timestamp({value} / {PER_SECOND[time.unit]}.0)"
        elif _bare(column) == "date":
            return f"to_char({value}, 'YYYY-MM')"
        elif time.unit is not Unit.NATIVE:
            return f"left({value}, 7)"
        naive = time.unit is Unit.NATIVE and time.zone is not None
        return f"to_char({value if naive else f'({value}) AT TIME ZONE {chr(39)}UTC{chr(39)}'}, 'YYYY-MM')"

    def index_ddl(self, table: TableInfo, columns: Sequence[Column], time: Column | None, where: str = "") -> str:
        quote = self.quote
        parts = [
            quote(column.name) + (' COLLATE "C"' if column == time and column.collation is not None else "")
            for column in columns
        ]
        # CONCURRENTLY does not exist for partitioned tables.
        how = "CREATE INDEX" if table.kind.value == "partitioned table" else "CREATE INDEX CONCURRENTLY"
        text = f"{how} {quote(index_name(table, columns))} ON {self.table(table)} ({', '.join(parts)})"
        return (f"{text} WHERE {where};" if where else f"{text};").replace("%%", "%")


class PostgresTypes(Types):
    """PostgreSQL's types are strict, so what fits is decided here, before any statement."""

    def time(self, column: Column, time: Time, *, several: bool = False) -> str:
        kind = _bare(column)
        if several and _digits(column, time):
            return ""
        if time.unit in PER_SECOND:
            wide = kind in ("bigint", *_FRACTIONAL)
            if wide or (kind == "integer" and time.unit is Unit.SECONDS):
                return ""
            return f"{column.name} is {column.type}, which does not hold a number of {time.unit.value} since 1970"
        if time.unit is Unit.NATIVE:
            return _native(column, time, kind)
        if time.unit is Unit.DATE and kind == "date":
            return ""
        if kind in ("text", "character varying"):
            return ""
        needed = "a date or a text" if time.unit is Unit.DATE else "a text"
        return f'{column.name} is {column.type}, and unit = "{time.unit.value}" needs {needed}'

    def ordered_key(self, column: Column) -> str:
        kind = _bare(column)
        if kind in (*_WHOLE, "uuid") or (kind in ("text", "character varying") and not column.loose):
            return ""
        return f"{column.name} is {column.type}: only whole numbers, UUIDs and texts (UUIDv7, ULID) ascend"

    def window(self, column: Column) -> str:
        return "" if column.type in _WHOLE else f"{column.name} is {column.type}, which holds no whole numbers"

    def walked_key(self, column: Column) -> str:
        if _bare(column) in (*_WHOLE, "uuid", "text", "character varying"):
            return ""
        return f"{column.name} is {column.type}: rows are walked by a key of whole numbers, UUIDs or texts"

    def state(self, column: Column, state: State) -> str:
        if column.labels:
            labels = ", ".join(column.labels)
            return "" if state in column.labels else f"{state!r} is not a label of {column.type}: {labels}"
        kind = _bare(column)
        fits = {
            "text": str,
            "character varying": str,
            "character": str,
            "smallint": int,
            "integer": int,
            "bigint": int,
            "boolean": bool,
        }.get(kind)
        if fits is None:
            return f"{column.name} is {column.type}: only texts, whole numbers, booleans and enums are compared with values"
        if type(state) is not fits:
            return f"{column.name} is {column.type}, and {state!r} is not of that type"
        if kind in _WHOLE and not -(most := 2 ** _BITS[kind]) <= int(state) < most:
            return f"{column.name} is {column.type}, and {state} is too large for it"
        return ""

    def constant(self, column: Column, value: Constant, sign: str) -> str:
        kind = _bare(column)
        if sign not in ("=", "not") and kind not in _NUMBERS:
            return f"{column.name} is {column.type}: only numbers are below or above a constant"
        if isinstance(value, float):
            fits = kind in _INEXACT or kind == "numeric"
            return "" if fits else f"{column.name} is {column.type}, and {value!r} is not of that type"
        if kind == "uuid":
            return "" if _is_uuid(value) else f"{column.name} is {column.type}, and {value!r} is not of that type"
        if kind in (*_INEXACT, "numeric"):
            whole = type(value) is int
            return "" if whole else f"{column.name} is {column.type}, and {value!r} is not of that type"
        return self.state(column, value)

    def columns(self, column: Column, other: Column, sign: str) -> str:
        kinds, types = {_bare(column), _bare(other)}, f"{column.name} is {column.type} and {other.name} is {other.type}"
        exact = kinds <= {*_WHOLE, "numeric"} or kinds <= set(_INEXACT)
        texts = kinds <= {"text", "character varying"} or kinds == {"character"}
        if not exact and not texts and not (len(kinds) == 1 and (column.labels or kinds <= {"uuid", "boolean"})):
            return f"{types}: only two columns of numbers, of texts or of one type of another kind can be compared"
        if not exact and sign not in ("=", "not"):
            return f"{types}: only numbers are below or above each other"
        return ""

    def reference(self, column: Column, to: Column) -> str:
        mine, theirs = _bare(column), _bare(to)
        types = f"{column.name} is {column.type} and {to.name} is {to.type}"
        if mine == theirs:
            return ""
        if not any({mine, theirs} <= family for family in _COMPARABLE):
            return f"{types}, which cannot be compared"
        if mine in _INEXACT and theirs in ("bigint", "numeric"):
            return f"{types}, which are compared inexactly: one value may refer to two rows"
        if theirs == "character":
            return f"{types}: a foreign key ignores blanks at the end, and a comparison of the two does not"
        return ""

    def loose(self, column: Column) -> bool:
        return column.loose

    def rules_allowed(self, table: TableInfo) -> str:
        return ""

    def shelving_allowed(self, table: TableInfo) -> str:
        if len(f"{table.name}_yyyymm".encode()) <= _MOST_NAME_BYTES:
            return ""
        return f"{table.name} is too long a name: PostgreSQL would cut off the month behind it"


def _native(column: Column, time: Time, kind: str) -> str:
    if kind == "timestamp with time zone":
        return f"{column.name} is {column.type}, which knows its zone: remove `zone`" if time.zone is not None else ""
    if kind == "timestamp without time zone":
        if time.zone is not None:
            return ""
        return f'{column.name} is {column.type}: its values shift with the session, so declare their zone, for example zone = "UTC"'
    if kind in _WHOLE or kind in _FRACTIONAL:
        return f'{column.name} is {column.type} and needs a unit: "s", "ms" or "us"'
    if kind in ("text", "character varying"):
        return f'{column.name} is {column.type} and needs a unit: "iso", "text" or "date"'
    if kind == "date":
        return f'{column.name} is {column.type} and needs unit = "date": a row counts from the end of its day'
    return f"{column.name} is {column.type}, which is no timestamp"


def _shape(time: Time) -> str:
    """Return the pattern that texts of a unit match."""
    if time.unit is Unit.DATE:
        return f"^{_DAY}$"
    suffix = "" if time.zone is not None else r"(Z|\+00:00)"
    return "^" + _DATE_AND_CLOCK % ("T" if time.unit is Unit.ISO else " ") + suffix + "$"


def _digits(column: Column, time: Time) -> bool:
    """Return whether numbers are written as texts of digits, because a text column mixes them with other timestamps."""
    return time.unit in PER_SECOND and _bare(column) in ("text", "character varying")


def _alike(values: Sequence[Constant | Slot]) -> list[object]:
    """Return values that the driver can send as one list: whole numbers and fractions have no common type."""
    if any(isinstance(value, float) for value in values):
        return [float(value) for value in values if isinstance(value, int | float)]
    return list(values)


def _is_uuid(value: Constant) -> bool:
    try:
        return isinstance(value, str) and bool(UUID(value))
    except ValueError:
        return False


def _bare(column: Column) -> str:
    """Return the type without its length or precision: a cast to `varchar(5)`, for example, would change a bound."""
    kind = column.type
    while "(" in kind:
        start, end = kind.index("("), kind.index(")")
        kind = kind[:start].rstrip() + kind[end + 1 :]
    return kind


def _identity(table: TableInfo, *, inherited: bool) -> list[Column]:
    key = [column for name in table.primary_key if (column := table.column(name)) is not None]
    if key and not inherited:
        return key
    # Each partition or inheriting table numbers its rows on its own.
    return [Column("tableoid", "oid", nullable=False), Column("ctid", "tid", nullable=False)]


def _is_number(expression: str, column: Column) -> str:
    """Return the rest of a comparison: PostgreSQL sorts NaN behind all numbers, and it is none."""
    return f" AND {expression} <> 'NaN'" if _bare(column) in ("numeric", "real", "double precision") else ""


def _comparable(column: Column) -> str:
    """Return the type that a state is compared as, so that the column's index can be used."""
    if column.labels:
        return column.type.replace("%", "%%")
    # A bare bit is a single one.
    return {"character varying": "text", "character": "bpchar", "bit": column.type}.get(_bare(column), _bare(column))
