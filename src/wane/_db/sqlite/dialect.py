"""The SQL that SQLite needs for users' rows.

SQLite stores any value in any column, so the type of the value itself is part of every condition: an ISO text compared
with an INTEGER column would otherwise select every integer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from wane._contract.conditions import Constant
from wane._contract.model import State, Time, Unit
from wane._db.schema import Column, TableInfo, index_name
from wane._db.sqlite.reflect import OWN_PREFIX
from wane._db.statement import Dialect, Parameters, Slot, Statement, Types, When, text_literal
from wane._db.timestamps import PER_SECOND, SMALLEST, day_bound, earliest_text, fraction_bound, micros, text_bound

_PLACEHOLDER = re.compile(r"""('(?:[^']|'')*'|"(?:[^"]|"")*")|:([A-Za-z_]\w*)""")
"""Matches quoted text first, because that is no placeholder."""
_TEXT_TYPES = ("CHAR", "CLOB", "TEXT")
_DATE = "[0-9][0-9][0-9][0-9]-[01][0-9]-[0-3][0-9]"
_UUID_7 = "????????-????-7???-????-????????????"


class HostClock:
    """Bound to a statement, the time of the host's clock when the statement runs.

    A function of SQL would make SQLite copy every page that a DELETE changes.
    """

    def __conform__(self, protocol: object) -> str:
        """Return what the driver binds."""
        return str(self)

    def __str__(self) -> str:
        return _stamp(datetime.now(UTC))

    def __repr__(self) -> str:
        return "HostClock()"


class SqliteDialect(Dialect):
    """The dialect for sqlite3: named placeholders are `:name`."""

    locks_rows = False

    def placeholder(self, name: str) -> str:
        return f":{name}"

    def order(self, alias: str, column: Column, time: Time) -> str:
        expression = f"{alias}.{self.quote(column.name)}"
        # A column may compare its texts case-insensitively; timestamps are compared byte by byte.
        return (
            f"{expression} COLLATE BINARY"
            if column.collation is not None and (time.also or time.unit not in PER_SECOND)
            else expression
        )

    def exact(self, alias: str, column: Column, time: Time) -> str:
        expression = self.order(alias, column, time)
        if time.unit in PER_SECOND or time.unit is Unit.DATE:
            return expression
        fraction = f"substr(substr({_fraction(expression, time)}, 2) || '000000000', 1, 9)"
        return f"substr({expression}, 1, 19) || '.' || {fraction}"

    def instant(self, expression: str, time: Time) -> str:
        """Write the instant as microseconds since 1970."""
        if time.unit in PER_SECOND:
            return f"CAST({expression} AS INTEGER) * {1_000_000 // PER_SECOND[time.unit]}"
        if time.unit is Unit.DATE:
            return f"strftime('%s', {expression}, '+1 day') * 1000000"
        fraction = f"substr(substr({_fraction(expression, time)}, 2) || '000000', 1, 6)"
        return f"(strftime('%s', substr({expression}, 1, 19)) * 1000000 + CAST({fraction} AS INTEGER))"

    def plausible(self, p: Parameters, alias: str, column: Column, time: Time) -> list[str]:
        if time.also:
            return self.any_unit([self.plausible(p, alias, column, one) for one in time.each])
        expression = self.order(alias, column, time)
        if _digits(column, time):
            smallest = p.bind("earliest", SMALLEST[time.unit])
            return [
                f"typeof({expression}) = 'text'",
                f"{expression} NOT GLOB '*[^0-9]*'",
                f"length({expression}) BETWEEN 1 AND 18",
                f"instr({expression}, char(0)) = 0",
                f"CAST({expression} AS INTEGER) >= {smallest}",
            ]
        if time.unit in PER_SECOND:
            smallest = p.bind("earliest", SMALLEST[time.unit])
            # Numbers sort before every text and blob; calling typeof() for each row takes a third longer.
            return [f"+{expression} <= 9e999", f"{expression} >= {smallest}"]
        earliest = p.bind("earliest", earliest_text(time))
        return [f"typeof({expression}) = 'text'", self._shape(expression, time), f"{expression} >= {earliest}"]

    def greatest(self, expressions: Sequence[str]) -> str:
        # max() of a NULL is NULL, so each is replaced by another one where it is NULL.
        rotated = [", ".join([*expressions[at:], *expressions[:at]]) for at in range(len(expressions))]
        return f"max({', '.join(f'coalesce({one})' for one in rotated)})"

    def ordered_key(self, alias: str, column: Column) -> list[str]:
        expression = f"{alias}.{self.quote(column.name)}"
        if not _is_text(column):
            return [f"+{expression} <= 9e999"]
        uuid = f"length({expression}) = 36 AND {expression} GLOB '{_UUID_7}' AND {expression} NOT GLOB '*[^-0-9a-f]*'"
        ulid = f"length({expression}) = 26 AND {expression} GLOB '[0-7]*' AND {expression} NOT GLOB '*[^0-9A-HJKMNP-TV-Z]*'"
        return [f"typeof({expression}) = 'text'", f"instr({expression}, char(0)) = 0", f"(({uuid}) OR ({ulid}))"]

    def lowest_key(self, column: Column) -> object:
        return "" if _is_text(column) else -(2**63)

    def highest_key(self, column: Column) -> object:
        return chr(ord("z") + 1) if _is_text(column) else 2**63 - 1

    def _shape(self, expression: str, time: Time) -> str:
        """Write the condition that a text has the shape of a timestamp.

        That is a date, a clock time, up to nine digits of fraction and, unless naive, a UTC suffix; or a date alone.
        """
        if time.unit is Unit.DATE:
            return (
                f"({expression} GLOB '{_DATE}' AND instr({expression}, char(0)) = 0"
                f" AND strftime('%Y-%m-%d', {expression}, '+0 days') IS {expression})"
            )
        between = "T" if time.unit is Unit.ISO else " "
        fraction = _fraction(expression, time)
        suffix = "" if _naive(time) else f" AND ({expression} GLOB '*Z' OR {expression} GLOB '*+00:00')"
        second = f"substr({expression}, 1, 19)"
        # What comes back the same is written like that. 30 February comes back as another day, if there is something to
        # add; 25 o'clock as NULL. datetime() takes half as long as the format that is the same.
        written = (
            f"datetime({second}, '+0 days') IS {second}"
            if between == " "
            else f"strftime('%Y-%m-%d{between}%H:%M:%S', {second}, '+0 days') IS {second}"
        )
        shape = (
            f"({written}{suffix}"
            # A text may hold a zero byte, where GLOB and length() stop reading.
            f" AND instr({expression}, char(0)) = 0"
            f" AND (({fraction} GLOB '.[0-9]*' AND {fraction} NOT GLOB '.*[^0-9]*' AND length({fraction}) <= 10)"
            f" OR {fraction} = ''))"
        )
        return f"({_usual_shape(expression, time)} OR {shape})"

    def encoding(self, column: Column, time: Time, *, inclusive: bool) -> Callable[[datetime], object] | None:
        del column
        if time.unit is Unit.DATE:
            return lambda at: day_bound(at, time.zone, inclusive=inclusive).isoformat()
        # SQLite compares a whole number with a fraction exactly, so no rounding is needed.
        return (lambda at: _number(at, time)) if time.unit in PER_SECOND else None

    def compared(self, alias: str, column: Column, time: Time, sign: str, bound: str) -> str:
        expression = self.order(alias, column, time)
        return f"{f'CAST({expression} AS INTEGER)' if _digits(column, time) else expression} {sign} {bound}"

    def past_window(self, p: Parameters, alias: str, column: Column, time: Time, now: When, window: str) -> str:
        value = self.instant(self.order(alias, column, time), time)
        if time.unit in PER_SECOND:
            # Numbers may have fractions, which `instant` leaves out.
            value = f"{self.order(alias, column, time)} * {1_000_000 // PER_SECOND[time.unit]}"
        return f"{value} < {p.bind_time('window_now', now, column, time, micros)} - {window}"

    def walks(self, column: Column, time: Time) -> bool:
        return not any(_digits(column, one) for one in time.each)

    def lowest(self, column: Column, time: Time) -> object:
        if any(_digits(column, one) for one in time.each):
            return ""
        # Numbers sort before texts.
        numbers = [SMALLEST[one.unit] - 1 for one in time.each if one.unit in PER_SECOND]
        return min(numbers) if numbers else min(earliest_text(one) for one in time.each)[:-1]

    def highest(self, column: Column, time: Time, at: datetime, *, inclusive: bool) -> object:
        if any(_digits(column, one) for one in time.each):
            return chr(ord("9") + 1)
        texts = [_next_text(at, one, inclusive=inclusive) for one in time.each if one.unit not in PER_SECOND]
        return max(texts) if texts else max(int(fraction_bound(at, one.unit)) + 1 for one in time.each)

    def one_of(
        self, p: Parameters, name: str, expression: str, column: Column, states: Sequence[Constant | Slot]
    ) -> str:
        wanted = f"IN ({', '.join(p.bind(name, state) for state in states)})"
        if column.collation is None:
            return f"{expression} {wanted}"
        # An index has only the column's own order; the bytes are compared on the rows that it finds.
        return f"{expression} {wanted} AND {self.bytewise(expression, column)} {wanted}"

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
        bound = [p.bind(name, value) for value in values]
        compared = f"NOT IN ({', '.join(bound)})" if sign == "not" else f"{sign} {bound[0]}"
        storage = _holds_text(expression) if isinstance(values[0], str) else _holds_number(expression)
        return f"{storage} AND {self.bytewise(expression, column)} {compared}"

    def compares_columns(self, expression: str, column: Column, sign: str, other: str, other_column: Column) -> str:
        sign = "<>" if sign == "not" else sign
        if not _is_text(column):
            return f"{_holds_number(expression)} AND {_holds_number(other)} AND {expression} {sign} {other}"
        return f"{_holds_text(expression)} AND {_holds_text(other)} AND {expression} COLLATE BINARY {sign} {other}"

    def bytewise(self, expression: str, column: Column) -> str:
        return expression if column.collation is None else f"{expression} COLLATE BINARY"

    def equal(self, p: Parameters, name: str, expression: str, column: Column, value: object) -> str:
        if value is None:
            return f"{expression} IS NULL"
        bound, sign = p.bind(name, value), "IS" if isinstance(value, Slot) else "="
        if column.collation is None:
            return f"{expression} {sign} {bound}"
        return f"{expression} {sign} {bound} AND {self.bytewise(expression, column)} {sign} {bound}"

    def count_up_to(self, table: TableInfo, most: str, *, without_children: bool) -> str:
        del without_children
        # Skipping rows costs half of counting them, and all rows of a table are counted page by page.
        name = self.table(table)
        more = f"SELECT 1 FROM {name} LIMIT 1 OFFSET {most}"
        return f"SELECT CASE WHEN ({more}) IS NULL THEN (SELECT count(*) FROM {name}) ELSE {most} END"

    def spread(self, table: TableInfo, rows: int, believed: int | None) -> str:
        del believed
        # By the row's number itself: SQLite would read a whole index, which holds that number too, and is smaller.
        name, number = f"{self.table(table)} NOT INDEXED", _row_number(table)
        lowest, highest = (f"(SELECT {end}({number}) FROM {name})" for end in ("min", "max"))
        step = f"max(1, CAST(({highest} - {lowest}) / {max(1, rows - 1)} AS INTEGER))"
        # Not at equal distances: every twentieth row may be of another kind than the others.
        at = "wane_point.at + wane_point.i * 7919 % wane_point.step"
        points = (
            f"WITH RECURSIVE wane_point(i, at, step) AS (SELECT 1, {lowest}, {step} UNION ALL"
            f" SELECT i + 1, at + step, step FROM wane_point WHERE i < {rows - 1})"
            f" SELECT (SELECT {number} FROM {name} WHERE {number} >= {at} ORDER BY {number} LIMIT 1) FROM wane_point"
            f" UNION ALL SELECT {highest}"
        )
        return f"(SELECT * FROM {name} WHERE {number} IN ({points}))"

    def finds_nothing(self, query: str) -> str:
        return f"({query} LIMIT 1) IS NULL"

    def finds_some(self, query: str) -> str:
        return f"({query} LIMIT 1) IS NOT NULL"

    def reference_forms(self, expression: str, column: Column, to: Column) -> list[str]:
        if column.collation == to.collation:
            return [expression]
        if to.collation is None:
            # An index has only the column's own order; the bytes are compared on the rows that it finds.
            return [expression, f"{expression} COLLATE BINARY"]
        return [f"{expression} COLLATE {self.quote(to.collation)}"]

    def identity(self, table: TableInfo, *, inherited: bool) -> list[str]:
        del inherited  # SQLite has no inheritance.
        key = [table.column(name) for name in table.primary_key]
        if key and all(column is not None and not column.nullable for column in key):
            return [self.quote(name) for name in table.primary_key]
        return [_row_number(table)]

    def identified(
        self, p: Parameters, table: TableInfo, found: Sequence[tuple[Any, ...]] | None, *, inherited: bool
    ) -> str:
        names = self.identity(table, inherited=inherited)
        return self.keys(p, [Column(name, "", nullable=False) for name in names], found)

    def locking(self, alias: str) -> str:
        return ""

    def assign(self, p: Parameters, column: Column, value: object) -> str:
        return p.bind("mark", value)

    def encode_key(self, expression: str) -> str:
        # A bare column would come through the converters that a caller's connection may have for its type.
        return f"+{expression}"

    def decode_key(self, p: Parameters, name: str, column: Column, value: object) -> str:
        return p.bind(name, value)

    def keys(self, p: Parameters, columns: Sequence[Column], keys: Sequence[tuple[Any, ...]] | None) -> str:
        if keys is None:
            return _listed(len(columns), p.bind("keys", Slot("keys")))
        if _fit_json(keys):
            return _listed(len(columns), p.bind("keys", _json(keys)))
        # JSON holds no blobs and no exact fractions.
        rows = (
            ", ".join(p.bind(f"k{column}_{number}", value) for column, value in enumerate(key))
            for number, key in enumerate(keys)
        )
        return f"VALUES {', '.join(f'({row})' for row in rows)}"

    def fill_keys(self, statement: Statement, keys: Sequence[tuple[Any, ...]]) -> Statement:
        if "keys" not in statement.parameters:
            return statement
        if _fit_json(keys):
            return Statement(statement.text, {**statement.parameters, "keys": _json(keys)})
        p, width = Parameters(self), len(keys[0])
        listed = self.keys(p, [Column("", "", nullable=False)] * width, keys)
        rest = {name: value for name, value in statement.parameters.items() if name != "keys"}
        return Statement(statement.text.replace(_listed(width, self.placeholder("keys")), listed), {**rest, **p.values})

    def recheck(self, conditions: Sequence[str]) -> str:
        # Bare conditions would tempt the planner to walk everything due instead of a handful of keys.
        whole = "\n    AND ".join(conditions)
        return f"CASE WHEN {whole} THEN 1 ELSE 0 END"

    def own_table(self, name: str) -> str:
        return f"main.{OWN_PREFIX}{name}"

    def key_text(self, columns: Sequence[Column], alias: str) -> str:
        # quote() distinguishes the number 1 from the text '1' and writes blobs too.
        return f"json_array({', '.join(f'quote({alias}.{self.quote(column.name)})' for column in columns)})"

    def names_table(self, expression: str, names: Sequence[str]) -> str:
        return super().names_table(f"{expression} COLLATE NOCASE", names)

    def in_force(self, p: Parameters, hold: str) -> str:
        clock = p.bind("clock", HostClock())
        return f"{hold}.released_at IS NULL AND ({hold}.ends_at IS NULL OR {hold}.ends_at > {clock})"

    def json(self, placeholder: str) -> str:
        return placeholder

    def json_count(self, column: str, key: str) -> str:
        return f"json_extract({column}, '$.\"' || {key} || '\"')"

    def encode_time(self, timestamp: datetime) -> object:
        return _stamp(timestamp)

    def decode_time(self, stamp: Any) -> datetime:
        return datetime.fromisoformat(stamp)

    def index_ddl(self, table: TableInfo, columns: Sequence[Column], time: Column | None, where: str = "") -> str:
        quote_name = self.quote
        collate = " COLLATE BINARY"
        parts = [
            quote_name(column.name) + (collate if column == time and column.collation is not None else "")
            for column in columns
        ]
        name = quote_name(index_name(table, columns))
        text = f"CREATE INDEX {name} ON {quote_name(table.name)} ({', '.join(parts)})"
        return f"{text} WHERE {where};" if where else f"{text};"


class SqliteTypes(Types):
    """SQLite's declared types are intentions; the statements check the actual type of a value themselves."""

    def time(self, column: Column, time: Time, *, several: bool = False) -> str:
        numeric = "INT" in column.type or any(
            word in column.type for word in ("REAL", "FLOA", "DOUB", "NUMERIC", "DEC")
        )
        if time.unit is Unit.NATIVE and time.zone not in (None, "UTC"):
            return f'SQLite writes CURRENT_TIMESTAMP in UTC: use unit = "text" for wall-clock times of {time.zone}'
        # Whatever a column is declared as, it accepts texts; and numbers, which a text column converts to texts.
        if time.unit not in PER_SECOND and numeric and not several:
            return f'{column.name} is declared {column.type} and needs a unit of numbers: "s", "ms" or "us"'
        if time.unit in PER_SECOND and _is_text(column) and not several:
            return f'{column.name} is declared {column.type} and needs a unit of text: "iso", "text", "date" or none'
        if "BLOB" in column.type:
            return f"{column.name} is declared {column.type}, which holds no timestamps"
        return ""

    def ordered_key(self, column: Column) -> str:
        if column.collation is not None:
            return f"{column.name} compares by {column.collation}, not byte by byte, so its order is not that of time"
        if "INT" in column.type or _is_text(column):
            return ""
        return f"{column.name} is declared {column.type or 'without a type'}: only whole numbers and texts (UUIDv7, ULID) ascend"

    def window(self, column: Column) -> str:
        if "INT" in column.type:
            return ""
        return f"{column.name} is declared {column.type or 'without a type'}, which holds no whole numbers"

    def walked_key(self, column: Column) -> str:
        if "INT" in column.type or _is_text(column):
            return ""
        return f"{column.name} is declared {column.type or 'without a type'}: rows are walked by a key of whole numbers or texts"

    def state(self, column: Column, state: State) -> str:
        text = _is_text(column)
        if text and not isinstance(state, str):
            return f"{column.name} is declared {column.type}, and {state!r} is not a text"
        if "INT" in column.type and isinstance(state, str):
            return f"{column.name} is declared {column.type}, and {state!r} is not a number"
        if isinstance(state, int) and not -(2**63) <= state < 2**63:
            return f"{state} is larger than any number of SQLite"
        return ""

    def constant(self, column: Column, value: Constant, sign: str) -> str:
        if isinstance(value, str) and _affinity(column) == "NUMERIC" and _reads_as_number(value):
            return (
                f"{column.name} is declared {column.type}, which makes a number of {value!r}: write it without quotes"
            )
        if isinstance(value, float):
            numeric = _affinity(column) in ("NUMERIC", "BLOB", "ANY")
            return "" if numeric else f"{column.name} is declared {column.type}, and {value!r} is not a text"
        if sign not in ("=", "not") and _is_text(column):
            return f"{column.name} is declared {column.type}: texts are equal or not, and have no other order"
        return self.state(column, value)

    def columns(self, column: Column, other: Column, sign: str) -> str:
        mine, theirs = (_comparable_kind(one) for one in (column, other))
        declared = " and ".join(f"{one.name} is declared {one.type or 'without a type'}" for one in (column, other))
        if mine != theirs or not mine:
            return f"{declared}: only two columns of numbers, or two of texts, can be compared"
        if mine == "text" and sign not in ("=", "not"):
            return f"{declared}: texts are equal or not, and have no other order"
        return ""

    def reference(self, column: Column, to: Column) -> str:
        mine, theirs = _affinity(column), _affinity(to)
        # A foreign key gives the child's value the parent's affinity. A comparison of two columns makes numbers of both
        # if one of them is numeric, and converts nothing otherwise.
        if theirs == "NUMERIC" or mine == theirs or (theirs == "BLOB" and mine == "TEXT"):
            return ""
        return (
            f"{column.name} is declared {column.type or 'without a type'} and {to.name} {to.type or 'without a type'}: SQLite compares"
            " their values otherwise than a foreign key does, '1' and '01' may be equal; declare both alike"
        )

    def loose(self, column: Column) -> bool:
        return column.collation is not None

    def rules_allowed(self, table: TableInfo) -> str:
        if table.schema == "main":
            return ""
        return (
            f"{table.schema}.{table.name} is in an attached database: one SQLite transaction over two files is not atomic, "
            "so only tables of the main database can have rules"
        )

    def shelving_allowed(self, table: TableInfo) -> str:
        return f'SQLite has no schemas to keep rows of {table.name} in: archive to `url`, without `tier = "database"`'


def _affinity(column: Column) -> str:
    """Return the affinity that SQLite derives from a column's declared type.

    Whole numbers and fractions compare alike, so both are NUMERIC here.
    """
    if column.type == "ANY":
        return "ANY"  # In a STRICT table it converts nothing, elsewhere it is numeric.
    for words, affinity in ((("INT",), "NUMERIC"), (_TEXT_TYPES, "TEXT"), (("BLOB",), "BLOB")):
        if any(word in column.type for word in words):
            return affinity
    return "NUMERIC" if column.type else "BLOB"


def _comparable_kind(column: Column) -> str:
    """Return what a column is declared to hold, numbers or texts; "" if that is uncertain."""
    if _is_text(column):
        return "text"
    words = ("INT", "REAL", "FLOA", "DOUB", "NUMERIC", "DEC", "BOOL")
    return "number" if any(word in column.type for word in words) else ""


def _reads_as_number(text: str) -> bool:
    """Return whether SQLite may take a text for a number, in a comparison with a numeric column."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _holds_number(expression: str) -> str:
    """Write the condition that a value is a number: those sort before all texts and blobs.

    Calling typeof() in a DELETE would copy every page that it changes.
    """
    return f"+{expression} <= 9e999"


def _holds_text(expression: str) -> str:
    """Write the condition that a value is a text: those sort after all numbers and before all blobs."""
    return f"+{expression} >= '' AND +{expression} < x''"


def _row_number(table: TableInfo) -> str:
    """Return the name of the number that SQLite gives each row: a column may be called rowid, and then means that."""
    taken = {column.name.lower() for column in table.columns}
    return next(name for name in ("rowid", "_rowid_", "oid") if name not in taken)


def _listed(width: int, keys: str) -> str:
    """Write a bound JSON array of keys as a query."""
    parts = ", ".join(f"json_extract(value, '$[{number}]')" for number in range(width))
    return f"SELECT {'value' if width == 1 else parts} FROM json_each({keys})"


def _number(at: datetime, time: Time) -> int | float:
    bound = fraction_bound(at, time.unit)
    return int(bound) if int(bound) == bound else float(bound)


def _next_text(at: datetime, time: Time, *, inclusive: bool) -> str:
    """Return a text that sorts after every one that is before an instant (inclusive: or at it)."""
    if time.unit is Unit.DATE:
        return (day_bound(at, time.zone, inclusive=inclusive) + timedelta(days=1)).isoformat()
    return text_bound(at, time, inclusive=inclusive).next_second


def _json(keys: Sequence[tuple[Any, ...]]) -> str:
    """Write keys as one value instead of thousands: binding them one by one took longer than deleting the rows."""
    return json.dumps([key[0] if len(key) == 1 else key for key in keys], ensure_ascii=False)


def _fit_json(keys: Sequence[tuple[Any, ...]]) -> bool:
    """Check whether SQLite reads keys from JSON unchanged: whole numbers, and texts without a zero byte."""
    return all(type(one) is int or (type(one) is str and "\x00" not in one) for key in keys for one in key)


def _is_text(column: Column) -> bool:
    return any(word in column.type for word in _TEXT_TYPES)


def _digits(column: Column, time: Time) -> bool:
    """Return whether numbers are written as texts of digits, as in a text column."""
    return time.unit in PER_SECOND and _is_text(column)


def _naive(time: Time) -> bool:
    return time.zone is not None or time.unit is Unit.NATIVE


def _fraction(expression: str, time: Time) -> str:
    """Write what follows the second: a point and digits, or nothing."""
    if _naive(time):
        return f"substr({expression}, 20)"
    return f"substr({expression}, 20, length({expression}) - CASE WHEN {expression} GLOB '*Z' THEN 20 ELSE 25 END)"


def _usual_shape(expression: str, time: Time) -> str:
    """Write a condition that only texts of timestamps fulfil, and those with microseconds do.

    It takes a third of the time. date() reads all of the text, and returns another day for 30 February, and for 24
    o'clock; a fraction that it rounds up to the next day is left to the other check.
    """
    between, suffix = "T" if time.unit is Unit.ISO else " ", "" if _naive(time) else "+00:00"
    pattern = f"????-??-??{between}??:??:??.{'[0-9]' * 6}{suffix}"
    return (
        f"(length(CAST({expression} AS BLOB)) = {26 + len(suffix)} AND {expression} GLOB '{pattern}'"
        f" AND date({expression}, '+0 days') IS substr({expression}, 1, 10))"
    )


def _stamp(timestamp: datetime) -> str:
    """Write a timestamp as Wane's own tables do: texts of one length, which are compared digit by digit."""
    # Formatting by a pattern takes three times as long.
    return timestamp.astimezone(UTC).isoformat("T", "microseconds")[:26] + "Z"


def at_one_time(statement: Statement, clock: str) -> Statement:
    """Bind a time of the host's clock, so that several statements decide by the same one."""
    values = {name: clock if isinstance(value, HostClock) else value for name, value in statement.parameters.items()}
    return Statement(statement.text, values)


def literal(statement: Statement) -> str:
    """Write the statement with its values as literals."""
    return _PLACEHOLDER.sub(
        lambda match: _value(statement.parameters[match[2]]) if match[2] else match[1], statement.text
    )


def _value(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, HostClock):
        return "strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')"  # Read when the statement runs, here to the millisecond.
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, str):
        return text_literal(value) if "\x00" not in value else f"CAST(x'{value.encode().hex()}' AS TEXT)"
    if isinstance(value, float):
        return repr(value)
    assert isinstance(value, int)
    return str(int(value))
