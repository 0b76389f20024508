"""Finding the columns that a contract needs: those that hold timestamps, and the one that holds the row's state.

Values decide and names only hint. Every probe is bounded: a few hundred values, a second, and a budget for all probes
together, after which the remaining columns are proposed without having been read. Samples come from all parts of a
table. What cannot be determined is left undecided, never guessed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from wane._check.encodings import NOT_A_TIME, encodings
from wane._check.vocabulary import (
    CREATED,
    DONE,
    EXPIRIES,
    HOLDERS,
    LEADING_TIMES,
    LIFECYCLE,
    NUMBERS,
    PARTS,
    ROLES,
    STATE_SUFFIXES,
    STATES,
    TIMES,
    WORK,
    last_word,
    words,
)
from wane._contract import toml
from wane._contract.model import State, Time, Unit
from wane._contract.values import UNDECIDED
from wane._db.counting import StateShare, count_rows, distinct, has_more_rows_than, sample, state_shares
from wane._db.schema import Column, TableInfo
from wane._db.store import Store
from wane._db.timestamps import read_time
from wane._findings import many
from wane.errors import StoreError, Unreachable

READ_SECONDS = 1.0
TOTAL_SECONDS = 60.0
SAMPLED_ROWS = 200
SHARED_ROWS = 2_000
"""Of a large table, the states of this many rows are counted."""
PROBED_ROWS = 8
"""Enough to decide whether a column whose name gives no hint is worth a sample; even wide texts are cheap."""
MANY_ROWS = 50_000
"""Beyond this, states are read from an index or from a sample, never by reading the whole table."""
MOST_STATES = 24
_LONGEST_STATE = 64
_LONG_NAME = 2
_MOSTLY = 0.5
_FIRST_TIME = datetime(1990, 1, 1, tzinfo=UTC)
"""What was before is a duration that is written as a time: three seconds are 1970-01-01 00:00:03."""

_UNIT_NAMES = {
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "iso": "ISO text",
    "text": "text",
    "date": "dates",
    "iso without zone": "ISO text without a zone",
    "text without zone": "text without a zone",
    NOT_A_TIME: "no timestamp",
}
_WHOSE_CLOCK = "Declare which zone's wall clock it is.{}"
_FIXED_KEYS = (0, 1, "0", "1", "singleton", "default", "global", "main")
_PAST, _FUTURE = timedelta(days=366), timedelta(days=3660)


@dataclass(frozen=True, slots=True)
class TimeColumn:
    """A column that holds timestamps, or may. `unit` and `zone` may be undecided, but never both."""

    column: Column
    unit: str
    zone: str | None
    seen: str
    """What was observed, as a sentence without its full stop."""
    named: bool
    """Whether the name suggests a time, too."""
    undecided: str = ""
    """The open question about its encoding, as a sentence."""
    oldest: datetime | None = None
    newest: datetime | None = None
    null_share: float | None = None
    """The share of NULL among the values that were read; None if none were."""
    held: bool = False
    """Whether another column names who holds the row until then."""
    part: bool = False
    """Whether the name suggests the expiry of a part of the row, not of the row."""

    @property
    def declared(self) -> str:
        """Write the column's declaration in a contract, in TOML."""
        parts = {"column": self.column.name}
        if self.unit != Unit.NATIVE:
            parts["unit"] = self.unit
        if self.zone is not None:
            parts["zone"] = self.zone
        return toml.text(self.column.name) if len(parts) == 1 else toml.value(parts)

    @property
    def sentence(self) -> str:
        """Return what was observed, as a sentence."""
        return f"{toml.key(self.column.name)}: {self.seen}."

    @property
    def question(self) -> str:
        """Return what was observed, and what is to be decided."""
        return f"{self.sentence} {self.undecided}".rstrip()

    @property
    def expiry(self) -> bool:
        """Return whether the name suggests an expiry."""
        return not EXPIRIES.isdisjoint(words(self.column.name)) and not self.part

    @property
    def empty(self) -> bool:
        """Return whether its values were read, and all of them are NULL."""
        return self.null_share == 1.0

    @property
    def of_work(self) -> bool:
        """Return whether the name suggests a lease or claim on the row, whose end is not the row's end."""
        return self.held or not WORK.isdisjoint(words(self.column.name))

    def around(self, now: datetime) -> bool:
        """Return whether the values, if there are any, lie around now, as those of an expiry do."""
        if self.oldest is None or self.newest is None:
            return True
        return self.newest >= now - _PAST and self.oldest <= now + _FUTURE

    @property
    def done(self) -> bool:
        """Return whether the name suggests when the work on the row was done."""
        return not DONE.isdisjoint(words(self.column.name))

    @property
    def of_creation(self) -> bool:
        """Return whether the name suggests when the row was created."""
        return not CREATED.isdisjoint(words(self.column.name))

    @property
    def terminal(self) -> bool:
        """Return whether the name suggests the last thing that happens to a row."""
        return any(not names.isdisjoint(words(self.column.name)) for names in ROLES[:3])

    @property
    def rank(self) -> tuple[int, int]:
        """Rank the column as one to age by; lower is better."""
        found = words(self.column.name)
        role = next((rank for rank, names in enumerate(ROLES) if not names.isdisjoint(found)), len(ROLES))
        if self.named and self.done and self.column.nullable and self.newest is None and self.empty:
            return 0, 1  # Nothing is done yet. Ageing by anything else would let unfinished rows leave.
        if self.unit == UNDECIDED:
            return 3, role
        # Most rows would never leave by a column that they have not, unless it means that their work is done.
        rare = not self.terminal and (self.null_share or 0.0) > _MOSTLY
        return (2 if not self.named else 1 if self.newest is None or rare else 0), role


@dataclass(frozen=True, slots=True)
class States:
    """A column that holds states, or may."""

    column: Column
    values: tuple[State, ...]
    seen: str
    likely: bool
    """Whether name and values agree; otherwise the column is only mentioned in a remark."""

    @property
    def sentence(self) -> str:
        return f"{toml.key(self.column.name)}: {self.seen}."


class Samples:
    """Samples a database's values, within a time budget."""

    def __init__(self, store: Store, *, total_seconds: float = TOTAL_SECONDS) -> None:
        self.store = store
        self.now = store.now()
        self._deadline = time.monotonic() + total_seconds
        self._probed: tuple[TableInfo | None, dict[str, list[object]]] = None, {}
        self._counted: dict[tuple[str, str], int] = {}

    def rows(self, table: TableInfo) -> tuple[str, bool]:
        """Return the number of rows, in words, and whether that is too many to read them all."""
        seconds = self._seconds()
        if seconds is None:
            return "not read: there was no time left", True
        try:
            more = has_more_rows_than(self.store, table, MANY_ROWS, seconds)
            if more:
                return f"more than {MANY_ROWS:,} rows", True
            count = None if more is None else count_rows(self.store, table, seconds)
        except Unreachable:
            raise
        except StoreError as problem:
            return f"could not be read: {problem.message}", True
        if count is None:
            return "could not be counted in time", True
        self._counted[table.qualified] = count.rows
        return many(count.rows, "row"), False

    def sample(self, table: TableInfo, column: Column, limit: int) -> list[object] | None:
        """Return some values; None if they could not be read."""
        seconds, known = self._seconds(), self._counted.get(table.qualified)
        if seconds is None or known == 0:
            return None if known is None else []
        try:
            return sample(self.store, table, column, limit, seconds, known)
        except Unreachable:
            raise
        except StoreError:  # no right to read it, or a value that the driver cannot represent, such as infinity
            return None

    def probe(self, table: TableInfo, column: Column) -> list[object]:
        """Return a handful of values without NULL, cached while the same table is examined."""
        if self._probed[0] is not table:
            self._probed = table, {}
        known = self._probed[1]
        if column.name not in known:
            known[column.name] = [one for one in self.sample(table, column, PROBED_ROWS) or () if one is not None]
        return known[column.name]

    def distinct(self, table: TableInfo, column: Column, *, many: bool) -> tuple[list[object], bool]:
        """Return the distinct values, NULL included, and whether the list is complete."""
        if self._counted.get(table.qualified) == 0:
            return [], True
        indexed = any(i.columns[:1] == (column.name,) and i.predicate is None for i in table.indexes)
        seconds = self._seconds()
        if seconds is not None and (indexed or not many):
            try:
                found = distinct(self.store, table, column, MOST_STATES + 1, seconds)
            except Unreachable:
                raise
            except StoreError:
                found = None
            if found is not None:
                return list(found), True
        return list(dict.fromkeys(self.sample(table, column, SHARED_ROWS) or [])), False

    def shares(self, table: TableInfo, state: Column | None, time: Column | None, *, many: bool) -> str:
        """Describe how many rows are in each state, and how many of them have no time; "" if that is unknown."""
        seconds = self._seconds()
        if seconds is None or (state is None and time is None) or self._counted.get(table.qualified) == 0:
            return ""
        try:
            shares = state_shares(self.store, table, state, time, SHARED_ROWS if many else None, seconds)
        except Unreachable:
            raise
        except StoreError:
            return ""
        return _described(shares, time, stateful=state is not None, many=many)

    def always_set(self, table: TableInfo, state: Column, time: Column, *, many: bool) -> set[State] | None:
        """Return the states in which a nullable column is never NULL; None unless it is always NULL in the others."""
        seconds = self._seconds()
        if seconds is None or self._counted.get(table.qualified) == 0:
            return None
        try:
            shares = state_shares(self.store, table, state, time, SHARED_ROWS if many else None, seconds)
        except Unreachable:
            raise
        except StoreError:
            return None
        given = {one.state for one in shares if one.without_time == 0 and one.state is not None}
        pure = all(one.without_time in (0, one.rows) for one in shares)
        return given if pure and 0 < len(given) < len(shares) else None

    def only_row(self, table: TableInfo) -> str:
        """Return what marks the table as a singleton, such as "one row, id = 1"; "" if nothing does."""
        if not table.primary_key and table.columns and len(self.sample(table, table.columns[0], 2) or []) == 1:
            return "one row"
        column = table.column(table.primary_key[0]) if len(table.primary_key) == 1 else None
        values = [] if column is None else self.sample(table, column, 2) or []
        if column is None or not values or any(value != values[0] for value in values):
            return ""
        return f"one row, {column.name} = {values[0]}" if values[0] in _FIXED_KEYS else ""

    def _seconds(self) -> float | None:
        left = self._deadline - time.monotonic()
        return min(READ_SECONDS, left) if left > 0 else None

    # Timestamps

    def time_columns(self, table: TableInfo) -> list[TimeColumn]:
        """Return the columns that hold timestamps, or whose name alone suggests it, in the table's order."""
        referring = {name for key in table.foreign_keys for name in key.columns}
        found = [
            self._time_column(table, column)
            for column in table.columns
            if nameable(column.name) and column.name not in referring
        ]
        return [
            replace(one, held=_is_held(table, one.column), part=_is_part(table, one.column))
            for one in found
            if one is not None and (one.newest is None or one.newest >= _FIRST_TIME)
        ]

    def _time_column(self, table: TableInfo, column: Column) -> TimeColumn | None:
        units, zoned = self._fitting(column)
        if not units:
            return None
        last = last_word(column.name)
        named = last in TIMES or _declared_as_time(column) or not LEADING_TIMES.isdisjoint(words(column.name)[:1])
        if Unit.NATIVE in units and len(units) == 1:
            return self._typed(table, column, Unit.NATIVE, zoned=zoned, named=True)
        if units == [Unit.DATE]:
            return self._typed(table, column, Unit.DATE, zoned=False, named=named)
        if not named:
            if last in NUMBERS or table.primary_key == (column.name,):
                return None
            probed = self.probe(table, column)
            if not probed or NOT_A_TIME in encodings(probed, self.now):
                return None
        return self._encoded(column, units, self.sample(table, column, SAMPLED_ROWS), named=named)

    def _fitting(self, column: Column) -> tuple[list[Unit], bool]:
        """Return the units that the column's type can hold, and whether a native value needs a zone."""
        fits = self.store.types.time
        units = [unit for unit in Unit if not fits(column, Time(column.name, unit))]
        if not units and not fits(column, Time(column.name, Unit.NATIVE, "UTC")):
            return [Unit.NATIVE], True
        return units, False

    def _typed(self, table: TableInfo, column: Column, unit: Unit, *, zoned: bool, named: bool) -> TimeColumn:
        """Return a column whose type determines how it encodes timestamps."""
        zone = UNDECIDED if zoned else None
        values = self.sample(table, column, SAMPLED_ROWS)
        spread, oldest, newest = _spread(values, Time(column.name, unit, "UTC" if zoned else None))
        undecided = _WHOSE_CLOCK.format("") if zoned else ""
        seen = f"{column.type}{spread}"
        missing = _null_share(values)
        return TimeColumn(
            column, unit, zone, seen, named, undecided=undecided, oldest=oldest, newest=newest, null_share=missing
        )

    def _encoded(
        self, column: Column, units: Sequence[Unit], values: list[object] | None, *, named: bool
    ) -> TimeColumn | None:
        choices = " or ".join(toml.text(unit) for unit in units if unit is not Unit.NATIVE)
        given = list(dict.fromkeys(one for one in values or () if one is not None))
        real = [one for one in given if not (named and _placeholder(one))]
        ways = encodings(real, self.now)
        if not ways:
            if not named:
                return None
            seen = "its values could not be read" if values is None else "no timestamps seen"
            undecided = f"Its unit is open: {choices}."
            return TimeColumn(column, UNDECIDED, None, seen, named, undecided, null_share=_null_share(values))
        if set(ways) == {NOT_A_TIME}:
            return None
        [(way, _), *others] = ways.most_common()
        unit, _, naive = way.partition(" ")
        if others or unit not in units:
            if not named and NOT_A_TIME in ways:
                return None
            return TimeColumn(
                column, UNDECIDED, None, _mixture(ways), named, f"Make them agree, then declare {choices}."
            )
        spread, oldest, newest = _spread(real, Time(column.name, Unit(unit), "UTC" if naive else None))
        seen = f"{_UNIT_NAMES[way]}{spread}"
        if len(real) < len(given):
            seen += ", beside placeholders such as 0"
        if not named:
            seen += "; only its values show that it is a time"
        undecided = ""
        if naive:
            written = ' "UTC" if CURRENT_TIMESTAMP writes it.' if Unit.NATIVE in units and unit == Unit.TEXT else ""
            undecided = _WHOSE_CLOCK.format(written)
        zone = UNDECIDED if naive else None
        return TimeColumn(column, unit, zone, seen, named, undecided, oldest, newest, _null_share(values))

    # States

    def states(self, table: TableInfo, *, many: bool) -> list[States]:
        """Return the columns that hold states, or may, the likeliest first."""
        found = [self._states(table, column, many=many) for column in table.columns if nameable(column.name)]
        order = {word: rank for rank, word in enumerate(STATES)}

        def rank(one: States) -> tuple[bool, bool, int]:
            named = words(one.column.name)
            return not one.likely, len(named) > 1, min(order.get(word, len(order)) for word in named)

        return sorted((one for one in found if one is not None), key=rank)

    def _states(self, table: TableInfo, column: Column, *, many: bool) -> States | None:
        *first, last = words(column.name) or [""]
        named = last in STATES or (last in STATE_SUFFIXES and not set(STATES).isdisjoint(first))
        if _identifies(table, column):
            return None
        if column.labels:
            lively = not LIFECYCLE.isdisjoint(label.lower() for label in column.labels)
            return States(column, column.labels, f"the enum has {_listed(column.labels)}", likely=named or lively)
        if not any(not self.store.types.state(column, one) for one in ("", 0, False)):
            return None
        if not named:
            return self._unnamed_states(table, column)
        values, complete = self.distinct(table, column, many=many)
        states = [one for one in values if one is not None]
        if len(states) > MOST_STATES or not all(_can_be_state(one) for one in states):
            return None
        ordered: list[State] = sorted(states, key=lambda one: (str(type(one)), one))  # type: ignore[arg-type]
        if not ordered:
            return States(column, (), "called like a state; no values seen", likely=len(first) < _LONG_NAME)
        where = "holds" if complete else "holds, among the sampled rows,"
        missing = ", and NULL, which no rule selects" if None in values else ""
        # The state of a part of the row (email_change_confirm_status) is called like one, too; values decide.
        likely = not first or any(str(one).lower() in LIFECYCLE for one in ordered)
        return States(column, tuple(ordered), f"{where} {_listed(ordered)}{missing}", likely=likely)

    def _unnamed_states(self, table: TableInfo, column: Column) -> States | None:
        """Return a column whose values resemble states, for a remark only: outcomes and kinds resemble states, too."""
        probed = self.probe(table, column)
        if not probed or not all(isinstance(one, str) and one.lower() in LIFECYCLE for one in probed):
            return None
        values = sorted({one for one in self.sample(table, column, SAMPLED_ROWS) or [] if isinstance(one, str)})
        if not 1 < len(values) <= MOST_STATES or not all(_can_be_state(one) for one in values):
            return None
        return States(column, tuple(values), f"may be a state too, it holds {_listed(values)}", likely=False)


def nameable(name: str) -> bool:
    """Check whether a contract can name a column: an empty name cannot be written, and the placeholder is reserved."""
    return name not in ("", UNDECIDED) and "\x00" not in name


def _declared_as_time(column: Column) -> bool:
    """Check whether the type that a column is declared with names a time; SQLite stores anything in it all the same."""
    return column.type.upper().startswith(("DATE", "TIMESTAMP"))


def _identifies(table: TableInfo, column: Column) -> bool:
    """Check whether a column identifies a row, of this table or of another: it is part of a key."""
    unique = any(index.unique and index.columns == (column.name,) for index in table.indexes)
    refers = any(column.name in key.columns for key in table.foreign_keys)
    return unique or refers or column.name in table.primary_key


def _is_held(table: TableInfo, column: Column) -> bool:
    """Check whether another column of the same words names who holds the row: acquired_by beside acquired_until."""
    named = set(words(column.name))
    held = named - EXPIRIES - TIMES
    return not EXPIRIES.isdisjoint(named) and any(
        last_word(other.name) in HOLDERS and not held.isdisjoint(words(other.name)[:-1]) for other in table.columns
    )


def _is_part(table: TableInfo, column: Column) -> bool:
    named = " ".join(words(table.name))
    return any(word in PARTS and word not in named for word in words(column.name))


def _null_share(values: Sequence[object] | None) -> float | None:
    return None if not values else sum(one is None for one in values) / len(values)


def _can_be_state(value: object) -> bool:
    return isinstance(value, int) or (isinstance(value, str) and len(value) <= _LONGEST_STATE)


def _listed(states: Sequence[State]) -> str:
    return ", ".join(toml.value(state) for state in states)


def _described(shares: Sequence[StateShare], time: Column | None, *, stateful: bool, many: bool) -> str:
    rows, missing = sum(one.rows for one in shares), sum(one.without_time for one in shares)
    if rows < 2 or not (stateful or missing):
        return ""
    base = f"Of {rows:,} rows sampled across the table" if many else f"Of all {rows:,} rows"
    name = "" if time is None else toml.key(time.name)
    if not stateful:
        return f"{base}, {name} is NULL in {_percent(missing, rows)}."
    parts = []
    for one in shares[:MOST_STATES]:
        state = "NULL" if one.state is None else toml.value(one.state)
        without = f" ({name} is NULL in {_percent(one.without_time, one.rows)})" if one.without_time else ""
        parts.append(f"{_percent(one.rows, rows)} {state}{without}")
    return f"{base}: {', '.join(parts)}."


def _percent(part: int, whole: int) -> str:
    share = 100 * part / whole
    if part == whole:
        return "all"
    return "< 1 %" if share < 1 else "> 99 %" if share > 99 else f"{share:.0f} %"


def _placeholder(value: object) -> bool:
    """Check whether a value is a number at or before 1970: it stands for a missing timestamp and is never selected."""
    return isinstance(value, int | float | Decimal) and value == value and value <= 0


def _mixture(ways: Counter[str]) -> str:
    ordered = sorted(ways.items(), key=lambda item: (-item[1], item[0]))
    return "written in different ways: " + ", ".join(f"{count} × {_UNIT_NAMES.get(way, way)}" for way, count in ordered)


def _spread(values: Sequence[object] | None, time: Time) -> tuple[str, datetime | None, datetime | None]:
    """Return the range of the values' timestamps, in words, and its ends; None for ends that are not known."""
    if values is None:
        return ", its values could not be read", None, None
    times = {time_of for value in values if (time_of := read_time(value, time)) is not None}
    if not times:
        return ", no values seen", None, None
    oldest, newest = min(times), max(times)
    # A day means the instant at which it ends.
    inside = timedelta(microseconds=1) if time.unit is Unit.DATE else timedelta()
    days = list(dict.fromkeys(f"{one - inside:%Y-%m-%d}" for one in (oldest, newest)))
    count = many(len(times), "sampled value", "different sampled values")
    return f", {' … '.join(days)} in {count}", oldest, newest
