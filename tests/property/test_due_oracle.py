"""What a store says is due equals what a plain reading of the contract's reference says, row by row.

The oracle reads every row back through a raw connection and decides in Python. It shares no code with the stores: it
has its own reading of every encoding and its own knowledge of the clocks of Vienna in 2024.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.due_rows import SECONDS, opened
from servers import Database
from wane._contract.conditions import Comparison, Condition, equal_to
from wane._contract.model import (
    Age,
    Cap,
    Contract,
    Expiry,
    Guard,
    Longer,
    MissingParent,
    Orphans,
    Pick,
    Reference,
    ReferencedBy,
    Rule,
    Spare,
    State,
    Table,
    Time,
    Unit,
    WhileNotNull,
    WhileNull,
    WindowUnit,
)
from wane._contract.names import TableName
from wane._rules.reads import DueRows, keys_due, read_due
from wane._rules.selection import bind_contract

"""How many examples to draw for each store: few in every run, many for a night."""

EPOCH = datetime(1970, 1, 1)
HOUR = timedelta(hours=1)

# Whole and broken seconds, and every edge of the hours that clocks in Vienna skip and repeat.
CUTOFFS = [
    datetime(2024, 6, 1, 12),
    datetime(2024, 6, 1),
    datetime(2024, 5, 31, 22),
    datetime(2024, 5, 31, 22, 0, 0, 1),
    datetime(2024, 6, 1, 12, 0, 0, 500_000),
    datetime(2024, 6, 1, 12, 0, 0, 123_456),
    datetime(2024, 6, 1, 11, 59, 59, 999_999),
    datetime(2024, 3, 31, 0, 59, 59, 999_999),
    datetime(2024, 3, 31, 1),
    datetime(2024, 3, 31, 1, 0, 0, 1),
    datetime(2024, 3, 31, 1, 30, 0, 250_000),
    datetime(2024, 3, 31, 2),
    datetime(2024, 10, 26, 23, 59, 59, 999_999),
    datetime(2024, 10, 27, 0),
    datetime(2024, 10, 27, 0, 30),
    datetime(2024, 10, 27, 1),
    datetime(2024, 10, 27, 1, 30),
    datetime(2024, 10, 27, 2),
]
DISTANCES_US = [
    *(
        0,
        0,
        0,
        1,
        -1,
        999,
        1_000,
        -1_000,
        500_000,
        -500_000,
        999_999,
        1_000_000,
        -1_000_000,
        1_800_000_000,
        -1_800_000_000,
    ),
    *(
        3_600_000_000,
        -3_600_000_000,
        -3_600_000_001,
        7_200_000_000,
        -7_200_000_000,
        -86_400_000_000,
        3 * 10**14,
        -(10**15),
    ),
]


# --- The tables -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Encoding:
    """A column's type on one store and what the contract says of it."""

    name: str
    type: str
    unit: Unit = Unit.NATIVE
    zone: str | None = None
    also: tuple[Unit, ...] = ()

    @property
    def each(self) -> list[Encoding]:
        return [replace(self, unit=unit, also=()) for unit in (self.unit, *self.also)]


VIENNA = "Europe/Vienna"
ENCODINGS = {
    "sqlite": [
        Encoding("s_integer", "INTEGER", Unit.SECONDS),
        Encoding("s_real", "REAL", Unit.SECONDS),
        Encoding("s_untyped", "", Unit.SECONDS),
        Encoding("ms_integer", "INTEGER", Unit.MILLISECONDS),
        Encoding("ms_numeric", "NUMERIC", Unit.MILLISECONDS),
        Encoding("us_bigint", "BIGINT", Unit.MICROSECONDS),
        Encoding("iso_text", "TEXT", Unit.ISO),
        Encoding("iso_nocase", "TEXT COLLATE NOCASE", Unit.ISO),
        Encoding("iso_untyped", "", Unit.ISO),
        Encoding("iso_vienna", "TEXT", Unit.ISO, VIENNA),
        Encoding("text_varchar", "VARCHAR(40)", Unit.TEXT),
        Encoding("text_vienna", "TEXT", Unit.TEXT, VIENNA),
        Encoding("text_utc", "TEXT", Unit.TEXT, "UTC"),
        Encoding("native_text", "TEXT"),
        Encoding("native_datetime", "DATETIME"),
        Encoding("native_utc", "TIMESTAMP", zone="UTC"),
        Encoding("date_text", "TEXT", Unit.DATE),
        Encoding("date_declared", "DATE", Unit.DATE),
        Encoding("date_nocase", "TEXT COLLATE NOCASE", Unit.DATE),
        Encoding("date_vienna", "TEXT", Unit.DATE, VIENNA),
        Encoding("mixed_date_iso", "TEXT", Unit.ISO, also=(Unit.DATE,)),
        Encoding("mixed_ms_iso", "INTEGER", Unit.MILLISECONDS, also=(Unit.ISO,)),
        Encoding("mixed_digits", "TEXT", Unit.MILLISECONDS, also=(Unit.ISO,)),
        Encoding("mixed_native_iso", "TEXT", also=(Unit.ISO,)),
        Encoding("mixed_nocase", "TEXT COLLATE NOCASE", Unit.ISO, also=(Unit.TEXT, Unit.NATIVE)),
        Encoding("mixed_s_ms", "NUMERIC", Unit.SECONDS, also=(Unit.MILLISECONDS,)),
        Encoding("mixed_untyped", "", Unit.ISO, also=(Unit.MICROSECONDS, Unit.TEXT)),
    ],
    "postgres": [
        Encoding("s_integer", "integer", Unit.SECONDS),
        Encoding("s_bigint", "bigint", Unit.SECONDS),
        Encoding("s_double", "double precision", Unit.SECONDS),
        Encoding("s_numeric", "numeric", Unit.SECONDS),
        Encoding("ms_bigint", "bigint", Unit.MILLISECONDS),
        Encoding("ms_numeric", "numeric(20, 4)", Unit.MILLISECONDS),
        Encoding("us_bigint", "bigint", Unit.MICROSECONDS),
        Encoding("us_double", "double precision", Unit.MICROSECONDS),
        Encoding("iso_text", "text", Unit.ISO),
        Encoding("iso_varchar", 'varchar(60) COLLATE "C"', Unit.ISO),
        Encoding("iso_vienna", "text", Unit.ISO, VIENNA),
        Encoding("text_text", "text", Unit.TEXT),
        Encoding("text_vienna", "text", Unit.TEXT, VIENNA),
        Encoding("native", "timestamptz"),
        Encoding("native_milli", "timestamptz(3)"),
        Encoding("native_utc", "timestamp", zone="UTC"),
        Encoding("native_vienna", "timestamp(6)", zone=VIENNA),
        Encoding("date_native", "date", Unit.DATE),
        Encoding("date_vienna", "date", Unit.DATE, VIENNA),
        Encoding("date_text", "text", Unit.DATE),
        Encoding("mixed_date_iso", "text", Unit.DATE, also=(Unit.ISO,)),
        Encoding("mixed_digits", "text", Unit.MILLISECONDS, also=(Unit.ISO,)),
        Encoding("mixed_texts", 'varchar(60) COLLATE "C"', Unit.ISO, also=(Unit.TEXT,)),
        Encoding("mixed_three", "text", Unit.TEXT, also=(Unit.SECONDS, Unit.ISO)),
        Encoding("mixed_s_ms", "bigint", Unit.SECONDS, also=(Unit.MILLISECONDS,)),
        Encoding("mixed_native_iso", "timestamptz", also=(Unit.ISO,)),
    ],
}

TABLE = """
CREATE TABLE {name} (
  id {integer} NOT NULL PRIMARY KEY, a {text}, b {integer}, timestamp {type}, state {state}, code {integer}, flag {flag},
  scope {scope}, parent {integer}, locked {text}, low {small}, high {integer}, word {word}, other {type}, UNIQUE (a, b)
)
"""
COLUMNS = (
    *(
        "id",
        "a",
        "b",
        "timestamp",
        "state",
        "code",
        "flag",
        "scope",
        "parent",
        "locked",
        "low",
        "high",
        "word",
        "other",
    ),
)
SPELLING = {
    "sqlite": {
        "integer": "INTEGER",
        "text": "TEXT",
        "state": "TEXT COLLATE NOCASE",
        "flag": "BOOLEAN",
        "scope": "TEXT COLLATE NOCASE",
        "small": "INT",
        "word": "VARCHAR(9) COLLATE NOCASE",
    },
    "postgres": {
        "integer": "bigint",
        "text": "text",
        "state": "varchar(9)",
        "flag": "boolean",
        "scope": "text",
        "small": "smallint",
        "word": "varchar(9)",
    },
}
CHILDREN = "CREATE TABLE child (ref {integer}, x {text}, y {integer}, at {integer})"
IN_CHILD = Time("at", Unit.MILLISECONDS, child=Reference(TableName("child"), ("ref",), ("id",)))


# --- The oracle -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Read:
    """What a value means: seconds since 1970, of UTC or of a wall clock. A float says how many of its units make a
    second."""

    seconds: Fraction
    wall: bool = False
    size: int = 0


def seconds_of(timestamp: datetime) -> Fraction:
    return Fraction((timestamp - EPOCH) // timedelta(microseconds=1), 1_000_000)


NEVER = seconds_of(datetime(9999, 12, 30))
SMALLEST = {Unit.SECONDS: 1, Unit.MILLISECONDS: 10**11, Unit.MICROSECONDS: 10**14}
SIZE = {Unit.SECONDS: 1, Unit.MILLISECONDS: 1_000, Unit.MICROSECONDS: 1_000_000}


def read(value: Any, encoding: Encoding, store: str) -> Read | None:
    """Return a value's meaning, or None if it is not what was declared."""
    if encoding.also:
        if isinstance(value, str) and re.fullmatch("[0-9]{1,18}", value):
            value = int(value) if re.search("(?i)text|char", encoding.type) else value
        found = (read(value, one, store) for one in encoding.each)
        return next((one for one in found if one is not None and one.seconds < NEVER), None)
    if encoding.unit in SIZE:
        if not isinstance(value, int | float | Decimal) or value != value or value in (float("inf"), float("-inf")):
            return None
        size = SIZE[encoding.unit]
        floating = size if isinstance(value, float) else 0
        return Read(Fraction(value) / size, size=floating) if value >= SMALLEST[encoding.unit] else None
    if not isinstance(value, str):
        return None
    if encoding.unit is Unit.DATE:
        return read_day(value, encoding)
    if encoding.unit is Unit.NATIVE and store == "postgres":
        # As PostgreSQL prints it: no padding, and the zone as hours.
        match = re.fullmatch(r"([0-9]{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d+))?(\+00)?", value)
    else:
        suffix = "" if encoding.zone or encoding.unit is Unit.NATIVE else r"(?:Z|\+00:00)"
        between = "T" if encoding.unit is Unit.ISO else " "
        match = re.fullmatch(
            rf"([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}{between}[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}})(?:\.([0-9]{{1,9}}))?{suffix}",
            value,
        )
    if match is None:
        return None
    try:
        whole = datetime.fromisoformat(match[1])
    except ValueError:
        return None
    fraction = match[2] or "0"
    seconds = seconds_of(whole) + Fraction(int(fraction), 10 ** len(fraction))
    first = Fraction(3601 if encoding.zone == VIENNA else 1)
    return Read(seconds, wall=encoding.zone == VIENNA) if seconds >= first else None


def read_day(value: str, encoding: Encoding) -> Read | None:
    """Return when a day is over. What a zero becomes is no day."""
    if not re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        return None
    try:
        day = datetime.fromisoformat(value)
    except ValueError:
        return None
    return Read(seconds_of(day) + 86_400, wall=encoding.zone == VIENNA) if day > EPOCH else None


def is_before(value: Read, timestamp: datetime, inclusive: bool) -> bool:
    bound = seconds_of(timestamp)
    if value.size:  # a float is compared with the float that is nearest to the bound
        bound = Fraction(float(bound * value.size)) / value.size
    instant = value.seconds
    if value.wall:
        skipped, repeated = seconds_of(datetime(2024, 3, 31, 2)), seconds_of(datetime(2024, 10, 27, 2))
        if skipped + 3600 <= instant < skipped + 7200:
            # It stands behind what was skipped, and all of that counts as winter time: 2:59 is 1:59 in UTC.
            return bound >= skipped
        instant -= 7200 if skipped + 7200 <= instant < repeated else 3600
    return instant <= bound if inclusive else instant < bound


def oracle(
    rows: Sequence[dict[str, Any]],
    children: Sequence[tuple[Any, ...]],
    table: Table,
    encoding: Encoding,
    store: str,
    now: datetime,
) -> list[dict[str, Any]]:
    """Return the due rows, oldest first."""
    [rule] = table.rules
    key = table.key or ("id",)
    if isinstance(rule.bound, Cap) and rule.bound.by is not None:
        return beyond_by_key(rows, children, table, rule, rule.bound, (rule.bound.by, *key))
    if isinstance(rule.bound, Age | Expiry) and rule.bound.time.child is not None:
        return old_by_child(rows, children, table, rule, key, now)
    known = [
        (row, meaning)
        for row in rows
        if (meaning := meaning_of(row, rule, encoding, store)) is not None
        and all(row[name] is not None for name in key)
    ]
    due = [
        row
        for row, meaning in known
        if selected(row, meaning, rule, now, known, key, table, [one[0] for one in children])
        and not saved(row, rule, children)
    ]

    def order(row: dict[str, Any]) -> tuple[Any, ...]:
        text = isinstance(row["timestamp"], str) and not (store == "postgres" and encoding.unit is Unit.NATIVE)
        if pick_of(rule) is not None:
            return (raw_order(row, rule, encoding, store), *(row[name] for name in key))
        meaning = read(row["timestamp"], encoding, store)
        assert meaning is not None
        first: Any = row["timestamp"].encode() if text else meaning.seconds
        if encoding.also:  # As the column has them: numbers stand before texts.
            number = isinstance(row["timestamp"], int | float | Decimal)
            first = (not number, row["timestamp"] if number else first)
        return (first, *(row[name] for name in key if name != "timestamp"))

    return sorted(due, key=order)


def old_by_child(
    rows: Sequence[dict[str, Any]],
    children: Sequence[tuple[Any, ...]],
    table: Table,
    rule: Rule,
    key: Sequence[str],
    now: datetime,
) -> list[dict[str, Any]]:
    """Return the rows whose children are all old enough, if any child has a time."""
    inclusive = isinstance(rule.bound, Expiry)
    cutoff = now if isinstance(rule.bound, Expiry) else now - rule.bound.keep  # type: ignore[union-attr]

    def old(at: int) -> bool:
        return at >= SMALLEST[Unit.MILLISECONDS] and is_before(Read(Fraction(at, 1_000)), cutoff, inclusive=inclusive)

    due = []
    for row in rows:
        times = [at for ref, *_, at in children if ref == row["id"] and at is not None]
        if times and all(map(old, times)) and own(row, rule, table) and not saved(row, rule, children):
            due.append(row)
    known = [row for row in due if all(row[name] is not None for name in key)]
    return sorted(known, key=lambda row: [row[name] for name in key])


def pick_of(rule: Rule) -> Pick | None:
    assert isinstance(rule.bound, Age | Orphans | Expiry | Cap)
    return None if rule.bound.time is None else rule.bound.time.pick


def candidates(row: dict[str, Any], rule: Rule) -> list[Any]:
    """Return the values of which one is the row's time."""
    if pick_of(rule) is None:
        return [row["timestamp"]]
    given = [row[name] for name in ("timestamp", "other") if row[name] is not None]
    return given[:1] if pick_of(rule) is Pick.FIRST else given


def meaning_of(row: dict[str, Any], rule: Rule, encoding: Encoding, store: str) -> Read | None:
    """Return what the row's time means; None if it has none, or a value that may be it is not what was declared."""
    found = [read(value, encoding, store) for value in candidates(row, rule)]
    known = [one for one in found if one is not None]
    return max(known, key=lambda one: one.seconds) if known and len(known) == len(found) else None


def raw_order(row: dict[str, Any], rule: Rule, encoding: Encoding, store: str) -> Any:
    """Return what sorts rows as their first column with a value does: texts by their bytes."""

    def one(value: Any) -> Any:
        meaning = read(value, encoding, store)
        assert meaning is not None
        text = isinstance(value, str) and not (store == "postgres" and encoding.unit is Unit.NATIVE)
        return value.encode() if text else meaning.seconds

    return one(candidates(row, rule)[0])


def beyond_by_key(
    rows: Sequence[dict[str, Any]],
    children: Sequence[tuple[Any, ...]],
    table: Table,
    rule: Rule,
    bound: Cap,
    order: tuple[str, ...],
) -> list[dict[str, Any]]:
    """Return the rows beyond a cap by key: those with a smaller key than so many others of the rule, whatever their
    times are."""

    def position(row: dict[str, Any]) -> list[Any]:
        return [row[name] for name in order]

    known = [row for row in rows if all(row[name] is not None for name in order)]
    due = [
        row
        for row in known
        if own(row, rule, table)
        and not saved(row, rule, children)
        and bound.most
        <= sum(
            position(one) > position(row)
            for one in known
            if own(one, rule, table) and [one[c] for c in bound.per] == [row[c] for c in bound.per]
        )
    ]
    return sorted(due, key=position)


def selected(
    row: dict[str, Any],
    meaning: Read,
    rule: Rule,
    now: datetime,
    known: Sequence[tuple[dict[str, Any], Read]],
    key: Sequence[str],
    table: Table,
    parents: Sequence[Any],
) -> bool:
    bound = rule.bound
    if not own(row, rule, table):
        return False
    if isinstance(bound, Orphans):
        if bound.missing is None and row[bound.reference] is not None:
            return False
        if bound.missing is not None and (row[bound.reference] is None or row[bound.reference] in parents):
            return False

    def newer(per: Sequence[str]) -> int:
        def position(one: dict[str, Any], when: Read) -> tuple[Any, ...]:
            return (when.seconds, *(one[name] for name in key if name != "timestamp"))

        return sum(
            when.seconds < NEVER
            and own(one, rule, table)
            and [one[c] for c in per] == [row[c] for c in per]
            and position(one, when) > position(row, meaning)
            for one, when in known
        )

    if isinstance(bound, Cap):
        return meaning.seconds < NEVER and newer(bound.per) >= bound.most
    if rule.spare is not None and newer(rule.spare.per) < rule.spare.newest:
        return False
    if isinstance(bound, Expiry):
        return is_before(meaning, now, inclusive=True)
    assert isinstance(bound, Age | Orphans)
    return is_before(meaning, now - bound.keep, inclusive=False) and (
        bound.longer is None or past_own_window(row[bound.longer.column], meaning, now)
    )


def past_own_window(hours: Any, meaning: Read, now: datetime) -> bool:
    """Check a row's own window: windows of rows are whole numbers of hours, up to a hundred years; whatever else stands
    there keeps the row."""
    if not isinstance(hours, int) or not 1 <= hours <= 36_525 * 24:
        return False
    return is_before(meaning, now - hours * HOUR, inclusive=False)


def own(row: dict[str, Any], rule: Rule, table: Table) -> bool:
    """Return whether the rule is about the row, due or not."""
    if not all(fulfils(row, name, condition) for name, condition in rule.conditions):
        return False
    if table.state is None:
        return True
    state = row[table.state]
    if rule.all_but is not None:
        return fulfils(row, table.state, Condition((Comparison("not", rule.all_but),)))
    return any(type_and_value(state) == type_and_value(one) for one in rule.states)


def fulfils(row: dict[str, Any], name: str, condition: Condition) -> bool:
    """Check a condition: a comparison is true of values of one kind only, and never of a NULL."""
    value = row[name]
    if value is None:
        return condition.null is True
    if not condition.comparisons:
        return condition.null is False
    return all(
        compared(value, one.sign, one.values if one.column is None else [row[one.column]])
        for one in condition.comparisons
    )


def compared(value: Any, sign: str, others: Sequence[Any]) -> bool:
    kinds = {type_and_value(one)[0] for one in (value, *others)}
    if kinds not in ({"text"}, {"number"}):
        return False
    match sign:
        case "=":
            return value in others
        case "not":
            return value not in others
    [other] = others
    return bool({"<": value < other, "<=": value <= other, ">": value > other, ">=": value >= other}[sign])


def type_and_value(value: Any) -> tuple[str, Any]:
    return ("text" if isinstance(value, str) else "number" if isinstance(value, int | float) else "other", value)


def saved(row: dict[str, Any], rule: Rule, children: Sequence[tuple[Any, ...]]) -> bool:
    for guard in rule.guards:
        if isinstance(guard, WhileNull) and row[guard.column] is None:
            return True
        if isinstance(guard, WhileNotNull) and row[guard.column] is not None:
            return True
        if isinstance(guard, ReferencedBy):
            to = guard.reference.to
            for ref, x, y, _ in children:
                pairs = [(ref, row["id"])] if to == ("id",) else [(x, row["a"]), (y, row["b"])]
                if all(mine is not None and mine == theirs for mine, theirs in pairs):
                    return True
    return False


# --- What is drawn --------------------------------------------------------------------------------------------------

JUNK_TEXTS = [
    "",
    "soon",
    "2024-01-01",
    "2024-01-01T00:00Z",
    "2024-01-01T00:00:00",
    "2024-01-01 00:00:00",
    "2024-01-01T00:00:00z",
    "2024-01-01t00:00:00Z",
    "2024-01-01T00:00:00Z\n",
    " 2024-01-01T00:00:00Z",
    "2024-01-01T00:00:00+01:00",
    "2024-01-01T00:00:00-00:00",
    "2024-01-01T00:00:00+00:00Z",
    "2024-01-01T00:00:00Z+00:00",
    "2024-01-01T00:00:00.Z",
    "2024-01-01T00:00:00.Z5Z",
    "2024-01-01T00:00:00.5Z0Z",
    "2024-01-01T00:00:00.1234567890Z",
    "2024-01-01T00:00:00,5Z",
    "2023-13-01T00:00:00Z",
    "2023-00-01T00:00:00Z",
    "2023-02-29T00:00:00Z",
    "2024-02-29T00:00:00Z",
    "1900-02-29T00:00:00Z",
    "2023-04-31T00:00:00Z",
    "2023-01-32T00:00:00Z",
    "2023-01-00T00:00:00Z",
    "2023-01-01T24:00:00Z",
    "2023-01-01T23:59:60Z",
    "2023-01-01T23:60:00Z",
    "٢٠٢٣-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "1969-12-31T23:59:59Z",
    "1970-01-01T00:00:00Z",
    "1970-01-01T00:00:01Z",
    "1970-01-01T01:00:00Z",
    "9999-12-31T23:59:59Z",
    "12024-01-01T00:00:00Z",
    "1704067200",
]
JUNK_DAYS = ["2024-1-1", "2023-02-29", "2024-02-29", "1900-02-29", "0000-01-01", "0001-01-01", "9999-12-31"]
JUNK_DAYS += ["1969-12-31", "1970-01-01", "1970-01-02", "2024-01-01\n", "2024-01-01 ", "2023-00-01", "2023-01-00"]
JUNK_NUMBERS = [0, 1, -1, 86_400, 1_700_000_000, 2_000_000_000, -1_700_000_000]
BIG_JUNK_NUMBERS = [99_999_999_999, 100_000_000_000, 1_700_000_000_000, 1_700_000_000_000_000, -(2**62), 2**62]
JUNK_TIMESTAMPS = [
    "infinity",
    "-infinity",
    "0001-01-01 00:00:00",
    "4000-01-01 00:00:00 BC",
    "9999-12-31 23:59:59",
    "20000-01-01 00:00:00",
]
JUNK_TIMESTAMPS += [
    "1970-01-01 00:00:00",
    "1970-01-01 00:00:01",
    "1970-01-01 01:00:00",
    "1970-01-01 01:00:01",
    "1969-12-31 23:59:59",
]


def junk(encoding: Encoding, store: str) -> st.SearchStrategy[Any]:
    if encoding.type == "date":
        return st.sampled_from([one.partition(" ")[0] + (" BC" if "BC" in one else "") for one in JUNK_TIMESTAMPS])
    texts = [*JUNK_DAYS] if encoding.unit is Unit.DATE else []
    texts += [text if encoding.unit is Unit.ISO else text.replace("T", " ") for text in JUNK_TEXTS]
    if encoding.zone or encoding.unit is Unit.NATIVE:
        texts += [text.removesuffix("Z") for text in texts]
    if store == "sqlite":
        loose = [
            b"2024-01-01T00:00:00Z",
            b"",
            float("inf"),
            1.5,
            "2024-01-01T00:00:00Z\0",
            "2024-01-01\0",
            "2024-01-01 00:00:00\0 or so",
        ]
        return st.sampled_from([*texts, *JUNK_NUMBERS, *BIG_JUNK_NUMBERS, *loose])
    if encoding.unit is Unit.NATIVE:
        return st.sampled_from(JUNK_TIMESTAMPS)
    if encoding.unit not in SIZE:
        return st.sampled_from(texts)
    if encoding.type == "integer":
        return st.sampled_from(JUNK_NUMBERS)
    floating = encoding.type in ("double precision", "numeric")
    return st.sampled_from(
        [*JUNK_NUMBERS, *BIG_JUNK_NUMBERS[:-2], *(map(float, ("nan", "inf", "-inf")) if floating else ())]
    )


@st.composite
def timestamps(draw: st.DrawFn, encoding: Encoding, store: str, cutoff: datetime) -> Any:
    """Return a value of the column, most often close to the cutoff."""
    if encoding.also:
        value = draw(timestamps(draw(st.sampled_from(encoding.each)), store, cutoff))
        if store != "postgres" or value is None:
            return value
        if "timestamp" in encoding.type:
            return value if not isinstance(value, str) or value in JUNK_TIMESTAMPS else None
        if "int" in encoding.type:
            return int(value)
        return value if isinstance(value, str) else str(int(value))
    kind = draw(st.sampled_from(["near"] * 8 + ["junk", "none"]))
    if kind == "none":
        return None
    if kind == "junk":
        return draw(junk(encoding, store))
    timestamp = cutoff + timedelta(microseconds=draw(st.sampled_from(DISTANCES_US)))
    if encoding.unit in SIZE:
        exact = Decimal(int(seconds_of(timestamp) * 1_000_000)) * SIZE[encoding.unit] / 1_000_000
        whole = store == "postgres" and encoding.type in ("integer", "bigint", "text")
        if whole or draw(st.booleans()):
            return int(exact)
        return exact if store == "postgres" and "numeric" in encoding.type else float(exact)
    if encoding.zone == VIENNA:
        timestamp += draw(st.sampled_from([HOUR, 2 * HOUR]))
    if encoding.unit is Unit.DATE:
        return (timestamp + timedelta(days=draw(st.sampled_from([-2, -1, -1, 0])))).date().isoformat()
    if store == "postgres" and encoding.unit is Unit.NATIVE:
        return timestamp if encoding.zone else timestamp.replace(tzinfo=UTC)
    digits = draw(st.sampled_from([0, 0, 1, 3, 6, 6, 9]))
    nanos = f"{timestamp.microsecond:06d}{draw(st.sampled_from(['000', '000', '001', '999']))}"
    naive = encoding.zone is not None or encoding.unit is Unit.NATIVE
    suffix = "" if naive else draw(st.sampled_from(["Z", "Z", "+00:00"]))
    second = (
        timestamp.isoformat("T" if encoding.unit is Unit.ISO else " ", "seconds") if not timestamp.microsecond else None
    )
    second = second or timestamp.replace(microsecond=0).isoformat("T" if encoding.unit is Unit.ISO else " ")
    return second + (f".{nanos[:digits]}" if digits else "") + suffix


STATES: dict[str, list[Any]] = {
    "state": ["done", "failed", "DONE", "live", "done ", None],
    "code": [1, 2, 3, None],
    "flag": [True, False, None],
}


HOSTILE: dict[str, dict[str, list[Any]]] = {
    "sqlite": {
        "low": [1, 5, 5, 7, 2.5, "x", "", b"5", None],
        "high": [5, 5, 7, 7.5, "x", b"", None],
        "word": ["mail", "MAIL", "sms", "x", "", b"mail", 5, None],
    },
    "postgres": {
        "low": [1, 5, 5, 7, None],
        "high": [5, 5, 7, 10**12, None],
        "word": ["mail", "MAIL", "sms", "x", "", None],
    },
}
"""Values of columns that conditions compare: SQLite's columns hold values of any type."""

CONDITIONS: list[tuple[str, Condition]] = [
    ("word", equal_to("mail")),
    ("word", Condition((Comparison("=", ("mail", "sms")),))),
    ("word", Condition((Comparison("not", ("mail",)),))),
    ("word", Condition((Comparison("not", ("mail", "x")),), null=True)),
    ("word", Condition(null=True)),
    ("word", Condition(null=False)),
    ("word", Condition((Comparison("=", column="scope"),))),
    ("word", Condition((Comparison("not", column="scope"),), null=True)),
    ("flag", equal_to(True)),
    ("flag", Condition((Comparison("=", (False,)),), null=True)),
    ("low", equal_to(5)),
    ("low", Condition((Comparison("not", (5, 7)),))),
    *(("low", Condition((Comparison(sign, (5,)),))) for sign in ("<", "<=", ">", ">=")),
    ("low", Condition((Comparison(">", (1,)), Comparison("<", (7,))), null=True)),
    *(("low", Condition((Comparison(sign, column="high"),))) for sign in ("=", "not", "<", ">=")),
    ("high", Condition((Comparison("not", (7,)), Comparison(">=", column="low")))),
]


@dataclass(frozen=True)
class Example:
    """One rule, one time, and the rows of its table."""

    encoding: Encoding
    table: Table
    now: datetime
    rows: list[tuple[Any, ...]]
    children: list[tuple[Any, ...]]
    limit: int


@st.composite
def examples(draw: st.DrawFn, store: str) -> Example:
    encoding = draw(st.sampled_from(ENCODINGS[store]))
    cutoff = draw(st.sampled_from(CUTOFFS))
    time = Time("timestamp", encoding.unit, encoding.zone, encoding.also)
    caps = [] if encoding.also else ["cap", "scoped cap"]
    key = draw(st.sampled_from([(), (), ("a", "b"), ("b", "a"), ("timestamp", "id")]))
    kind = draw(st.sampled_from(["age", "age", "expiry", "orphans", "cap by key", "child", *caps]))
    if not encoding.also and kind in ("age", "expiry", "orphans"):
        pick = draw(st.sampled_from([None, None, Pick.FIRST, Pick.LATEST]))
        time = time if pick is None else replace(time, beside=("other",), pick=pick)
    now = cutoff
    if kind in ("age", "orphans"):
        keep = draw(st.sampled_from([timedelta(days=7), timedelta(hours=1), timedelta(microseconds=1)]))
        now = cutoff + keep
        bound: Age | Orphans | Expiry | Cap = Age(time, keep) if kind == "age" else Orphans(time, keep, "parent")
        if kind == "orphans" and draw(st.booleans()):
            bound = Orphans(time, keep, "parent", MissingParent(("parent",), TableName("child"), ("ref",)))
        if kind == "age" and not encoding.also and encoding.zone != VIENNA and draw(st.booleans()):
            bound = Age(time, keep, Longer("parent", WindowUnit.HOURS))
    elif kind == "expiry":
        bound = Expiry(time)
    elif kind == "child":
        key = draw(st.sampled_from([(), ("a", "b"), ("b", "a")]))
        bound = Age(IN_CHILD, HOUR) if draw(st.booleans()) else Expiry(IN_CHILD)
        now += HOUR
    else:
        scopes = [("scope",), ("scope", "code"), ("code",), ("code", "parent"), ("id",)]
        per = draw(st.sampled_from(scopes)) if kind == "scoped cap" else ()
        bound = Cap(time, draw(st.integers(1, 4)), per)
        if kind == "cap by key":
            key = draw(st.sampled_from([(), ("a", "b"), ("b", "a")]))
            per = draw(st.sampled_from([(), ("scope",), ("code", "parent"), ("a",)]))
            bound = Cap(None, bound.most, per, "b" if key else "id")
    state = draw(st.sampled_from([None, "state", "code", "flag"]))
    states: list[State] = []
    if state is not None:
        known = [one for one in STATES[state] if one is not None]
        states = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
    all_but: tuple[State, ...] | None = None
    if state not in (None, "flag") and draw(st.integers(0, 3)) == 0:
        states, all_but = [], tuple(states)
    conditions = dict(draw(st.lists(st.sampled_from(CONDITIONS), max_size=2)))
    guards: list[Guard] = draw(
        st.lists(
            st.sampled_from(
                [
                    WhileNull("locked"),
                    WhileNotNull("locked"),
                    WhileNull("parent"),
                    ReferencedBy(Reference(TableName("child"), ("ref",), ("id",))),
                    ReferencedBy(Reference(TableName("child"), ("x", "y"), ("a", "b"))),
                ]
            ),
            max_size=2,
            unique=True,
        )
    )
    name = TableName(encoding.name)
    spare = None
    ordered = isinstance(bound, Age | Expiry) and bound.time.pick is None and bound.time.elsewhere is None
    if not encoding.also and ordered and draw(st.integers(0, 2)) == 0:
        spare = Spare(draw(st.integers(1, 3)), draw(st.sampled_from([(), ("scope",), ("code",), ("scope", "parent")])))
    where = tuple(sorted(conditions.items(), key=lambda one: one[0]))
    rule = Rule("rule", bound, tuple(states), tuple(guards), all_but=all_but, conditions=where, spare=spare)
    table = Table(name, "a test", (rule,), key=key, state=state)

    windows = [None, 0, -1, 1, 1, 2, 168, 2**62, *(["2", "x"] if store == "sqlite" else [])]
    rows = []
    used = set()
    for number in draw(st.lists(st.integers(1, 60), max_size=14, unique=True)):
        a, b = draw(st.sampled_from(["a", "b", "c", None])), draw(st.sampled_from([1, 2, 3, None]))
        if (a, b) in used and a is not None and b is not None:
            b = 100 + number
        used.add((a, b))
        rows.append(
            (
                number,
                a,
                b,
                draw(timestamps(encoding, store, cutoff)),
                *(draw(st.sampled_from(STATES[column])) for column in ("state", "code", "flag")),
                draw(st.sampled_from(["x", "X", "y", None])),
                draw(st.sampled_from(windows if isinstance(bound, Age) and bound.longer else [None, None, 7])),
                draw(st.sampled_from([None, "worker"])),
                *(draw(st.sampled_from(HOSTILE[store][column])) for column in ("low", "high", "word")),
                draw(timestamps(encoding, store, cutoff)) if time.beside else None,
            )
        )
    near = int(seconds_of(cutoff) * 1_000)
    # Children point at a few of the rows, at none, or half.
    children = (
        [
            (
                draw(st.sampled_from([None, row[0]])),
                draw(st.sampled_from([None, row[1]])),
                draw(st.sampled_from([None, row[2]])),
                draw(st.sampled_from([None, 17, *(near + step for step in (-1, 0, 1, 3_600_000, -(10**10)))])),
            )
            for row in draw(st.lists(st.sampled_from(rows), max_size=6 if kind == "child" else 3))
        ]
        if rows
        else []
    )
    children += [(7, None, None, None)] * draw(st.integers(0, 1))
    return Example(encoding, table, now, rows, children, draw(st.sampled_from([1, 3, 100, 100])))


# --- The property ---------------------------------------------------------------------------------------------------


class Bench:
    """Every table of a store, made once; each example fills one of them anew."""

    def __init__(self, database: Database, stack: ExitStack) -> None:
        self.database = database
        spelling = SPELLING[database.store]
        database.script(CHILDREN.format_map(spelling))
        for encoding in ENCODINGS[database.store]:
            database.script(TABLE.format(name=encoding.name, type=encoding.type, **spelling))
        self.store = stack.enter_context(opened(database))
        self.schema = self.store.reflect()

    def run(self, example: Example) -> None:
        database, name = self.database, example.encoding.name
        database.script(f"DELETE FROM {name}; DELETE FROM child;")
        marks = ", ".join("?" * len(COLUMNS))
        if example.rows:
            database.executemany(f"INSERT INTO {name} ({', '.join(COLUMNS)}) VALUES ({marks})", example.rows)
        if example.children:
            database.executemany("INSERT INTO child (ref, x, y, at) VALUES (?, ?, ?, ?)", example.children)
        native = database.store == "postgres" and (
            example.encoding.unit is Unit.NATIVE or example.encoding.type == "date"
        )
        times = ("timestamp", "other") if native else ()
        columns = ", ".join(f"{column}::text" if column in times else column for column in COLUMNS)
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in database.query(f"SELECT {columns} FROM {name}")]
        children = database.query("SELECT ref, x, y, at FROM child")

        expected = oracle(rows, children, example.table, example.encoding, database.store, example.now)
        selections, findings = bind_contract(Contract(None, (example.table,)), self.schema, self.store.types)
        assert findings == []
        [selection] = selections
        now = example.now.replace(tzinfo=UTC)
        key = example.table.key or ("id",)
        found = keys_due(self.store, selection, now, example.limit, SECONDS)
        if isinstance(bound := selection.rule.bound, Cap) and bound.by is not None:
            key = (bound.by, *(name for name in key if name != bound.by))
        positions = [index for index, name in enumerate(key) if name != "timestamp" or not selection.one_time]
        wanted = [tuple(row[name] for name in key) for row in expected][: example.limit]
        assert [[one[i] for i in positions] for one in found] == [[one[i] for i in positions] for one in wanted]
        due = read_due(self.store, selection, now, SECONDS)
        assert due.count is not None
        assert due.count.rows == len(expected)
        if selection.own_time is None:
            assert (due.oldest, due.newest) == (None, None)
        else:
            self.check_edges(due, expected, selection.rule, example.encoding)

    def check_edges(self, due: DueRows, expected: Sequence[dict[str, Any]], rule: Rule, encoding: Encoding) -> None:
        meanings = [meaning_of(row, rule, encoding, self.database.store) for row in expected]
        timestamps = sorted(meaning.seconds for meaning in meanings if meaning is not None)
        if not timestamps:
            assert (due.oldest, due.newest) == (None, None)
            return
        # Texts are read in the order of an index, which is that of timestamps except inside a second.
        text = encoding.unit is Unit.NATIVE if self.database.store == "sqlite" else False
        text = text or bool({encoding.unit, *encoding.also} & {Unit.ISO, Unit.TEXT})
        slack = Fraction(1) if text else Fraction(1, 1_000_000)
        for reported, timestamp in ((due.oldest, timestamps[0]), (due.newest, timestamps[-1])):
            assert reported is not None
            if encoding.zone == VIENNA:
                ahead = timestamp - seconds_of(reported.replace(tzinfo=None))
                assert 3600 - slack <= ahead <= 7200 + slack
            else:
                assert abs(timestamp - seconds_of(reported.replace(tzinfo=None))) <= slack


def check(database: Database) -> None:
    with ExitStack() as stack:
        bench = Bench(database, stack)

        @settings(suppress_health_check=list(HealthCheck))
        @given(example=examples(database.store))
        def due_is_what_the_oracle_finds(example: Example) -> None:
            bench.run(example)

        due_is_what_the_oracle_finds()


@pytest.mark.timeout(0)
def test_due_rows_are_those_of_the_oracle(database: Database) -> None:
    check(database)
