"""The entries of a contract file that are named by their keys: tables, rules, guards, followers, excuses and others.

A model here validates one entry on its own, as it is written; `rules` and `resolve` build the contract from it and
check the constraints between entries. Entries are validated one at a time, so that a mistake in one hides no mistake
in another. The JSON Schema for editors is generated from the same models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from wane._contract.conditions import CONDITION_SCHEMA, Condition, read_condition
from wane._contract.cron import Cron, parse_cron
from wane._contract.duration import Forever
from wane._contract.maintenance import Within, parse_time_of_day
from wane._contract.model import (
    ExcuseKind,
    Longer,
    MadeBy,
    Mark,
    Masking,
    Pick,
    Prune,
    Reference,
    Retired,
    Scheduler,
    State,
    Time,
    ToArchive,
    Transform,
    Unit,
    WindowUnit,
)
from wane._contract.names import parse_reference
from wane._contract.refused import Refused, written
from wane._contract.settings import Budget
from wane._contract.values import (
    WINDOW_SCHEMA,
    Between,
    Boolean,
    Count,
    NamedTable,
    ReadBy,
    ShortForm,
    Text,
    read_window,
    require_decided,
)
from wane._findings import did_you_mean


class WindowName(str):
    """The name of a window in [window]."""

    __slots__ = ()


_COLUMN = Text("a column's name", blank=True)
_CODE = re.compile("^[a-z]+(-[a-z]+)*$")
_TEN_YEARS = timedelta(days=3_650)


def _keep(value: object) -> timedelta | Forever | WindowName:
    if isinstance(value, dict):
        if set(value) == {"window"} and isinstance(value["window"], str):
            return WindowName(value["window"])
        raise Refused("a table is not a window", 'write a duration, "forever", or { window = "name" }')
    return read_window(value)


def _sentence(value: object) -> str:
    require_decided(value)
    if not isinstance(value, str):
        raise Refused(f"{written(value)} is not a sentence", "write a sentence in quotes")
    if not value.strip():
        raise Refused("empty", "write a sentence")
    return value.strip()


def _finding_code(value: object) -> str:
    if not isinstance(value, str) or not _CODE.search(value):
        raise Refused(f"{written(value)} is not a code", "write it as the finding shows it: delete-trigger")
    return value


def _last_day(value: object) -> date:
    require_decided(value)
    try:
        if isinstance(value, str):
            return date.fromisoformat(value)
    except ValueError:
        pass
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise Refused(f"{written(value)} is not a day", "write a date such as 2027-01-31")


def _columns(value: object) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if not names:
        raise Refused("empty", "name at least one column")
    columns = tuple(_COLUMN.read(name) for name in names)
    if len(set(columns)) != len(columns):
        raise Refused("a column is named twice", "name it once")
    return columns


def _several(value: object) -> tuple[str, ...]:
    columns = _columns(value)
    if len(columns) < 2:
        raise Refused("a choice of one column", 'name at least two, or write { column = "…" }')
    return columns


def _units(value: object) -> tuple[Unit, ...]:
    """Parse the encoding of a column's timestamps, or several encodings that the column mixes."""
    require_decided(value)
    given = value if isinstance(value, list) else [value]
    if not given:
        raise Refused("no unit", f"allowed: {', '.join(Unit)}")
    for unit in given:
        require_decided(unit)
        if not isinstance(unit, str) or unit not in list(Unit):
            hint = did_you_mean(unit, Unit)
            raise Refused(f"unknown unit {written(unit)}", f"{hint} allowed: {', '.join(Unit)}".strip())
    if len(set(given)) != len(given):
        raise Refused("a unit is named twice", "name it once")
    return tuple(Unit(str(unit)) for unit in given)


def _window_unit(value: object) -> WindowUnit:
    require_decided(value)
    if not isinstance(value, str) or value not in list(WindowUnit):
        hint = did_you_mean(value, WindowUnit)
        raise Refused(f"unknown unit {written(value)}", f"{hint} allowed: {', '.join(WindowUnit)}".strip())
    return WindowUnit(value)


def _zone(value: object) -> str:
    require_decided(value)
    try:
        # "localtime" depends on the machine that reads the contract.
        if isinstance(value, str) and value != "localtime":
            ZoneInfo(value)
            return value
    except (KeyError, ValueError, OSError):
        pass
    raise Refused(f"unknown zone {written(value)}", 'use a name such as "UTC" or "Europe/Vienna"')


def _state(value: object) -> State:
    require_decided(value)
    if not isinstance(value, str | int | bool):
        raise Refused(f"{written(value)} is not a state", "use texts, whole numbers or booleans")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Refused(f"{written(value)} is not a state", "no column holds a number of more than 64 bits")
    if isinstance(value, str) and "\x00" in value:
        raise Refused(f"{written(value)} is not a state", "no column holds a text with a NUL character")
    return value


def _states(value: object) -> tuple[State, ...]:
    require_decided(value)
    if not isinstance(value, list):
        raise Refused(
            f"{written(value)} is not a list of states",
            f"write [{written(value)}]" if isinstance(value, str | int) else 'write ["…"]',
        )
    states = tuple(_state(state) for state in value)
    if len({type(state) for state in states}) > 1:
        raise Refused("states of different types", "a column holds texts, numbers or booleans")
    if len(set(states)) != len(states):
        raise Refused("a state is listed twice", "list it once")
    return states


EVERY_OTHER = "*"
"""Stands for every state that neither `live`, `excused` nor another rule of the table names."""


def _when(value: object) -> tuple[State, ...] | Literal["*"]:
    if value == EVERY_OTHER:
        return "*"
    states = _states(value)
    if not states:
        raise Refused("empty", "a rule without states selects nothing; name them, or remove the rule")
    if EVERY_OTHER in states:
        raise Refused(
            '"*" in a list is a state of that name', 'write `when = "*"` for every state that is named nowhere'
        )
    return states


def _then(value: object) -> Prune | ToArchive | Mark:
    require_decided(value)
    if value == "prune":
        return Prune()
    if value == "archive":
        return ToArchive()
    if isinstance(value, dict) and set(value) == {"mark"}:
        return Mark(_state(value["mark"]))
    raise Refused(f"{written(value)} is not an action", 'use "prune", "archive" or { mark = "state" }')


_COLUMNS_SCHEMA = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}]
}
_SEVERAL_SCHEMA = {"type": "array", "items": {"type": "string"}, "minItems": 2, "uniqueItems": True}
_STATE_SCHEMA = {"type": ["string", "integer", "boolean"]}


def _states_schema(least: int) -> dict[str, Any]:
    kinds = ("string", "integer", "boolean")
    lists = [{"type": "array", "items": {"type": kind}, "uniqueItems": True, "minItems": least} for kind in kinds]
    return {"anyOf": lists}


_UNITS_SCHEMA = {
    "anyOf": [
        {"enum": list(Unit)},
        {
            "type": "array",
            "items": {"enum": list(Unit)},
            "minItems": 1,
            "uniqueItems": True,
            "description": "Several that the column mixes: each value is in one of them.",
        },
    ]
}

FindingCode = Annotated[str, ReadBy(_finding_code, {"type": "string", "pattern": _CODE.pattern})]
LastDay = Annotated[date, ReadBy(_last_day, {"type": "string", "format": "date"})]
Keep = Annotated[
    timedelta | Forever | WindowName,
    ReadBy(
        _keep,
        {
            "anyOf": [
                *WINDOW_SCHEMA["anyOf"],
                {
                    "type": "object",
                    "properties": {"window": {"type": "string", "description": "A name from [window]."}},
                    "required": ["window"],
                    "additionalProperties": False,
                },
            ]
        },
    ),
]
Sentence = Annotated[str, ReadBy(_sentence, {"type": "string", "pattern": r"\S"})]
ColumnName = Annotated[str, _COLUMN]
Columns = Annotated[tuple[str, ...], ReadBy(_columns, _COLUMNS_SCHEMA)]
Several = Annotated[tuple[str, ...], ReadBy(_several, _SEVERAL_SCHEMA)]
States = Annotated[tuple[State, ...], ReadBy(_states, _states_schema(0))]
When = Annotated[
    tuple[State, ...] | Literal["*"],
    ReadBy(
        _when,
        {
            "anyOf": [
                *_states_schema(1)["anyOf"],
                {"const": EVERY_OTHER, "description": "Every state that is named nowhere else in the table."},
            ]
        },
    ),
]
Where = Annotated[Condition, ReadBy(read_condition, CONDITION_SCHEMA)]
Then = Annotated[
    Prune | ToArchive | Mark,
    ReadBy(
        _then,
        {
            "anyOf": [
                {"enum": ["prune", "archive"]},
                {
                    "type": "object",
                    "properties": {"mark": _STATE_SCHEMA},
                    "required": ["mark"],
                    "additionalProperties": False,
                },
            ]
        },
    ),
]


class Entry(BaseModel):
    """An entry of the file: unknown keys are mistakes, and values keep the type that TOML gave them."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True)
    read_apart: ClassVar[tuple[str, ...]] = ()
    """Keys beside the fields, whose values are validated on their own."""


def _cron(value: object) -> str:
    require_decided(value)
    return parse_cron(value)


def _time_of_day(value: object) -> str:
    require_decided(value)
    return parse_time_of_day(value)


ZoneName = Annotated[str, ReadBy(_zone, {"type": "string"})]
TimeOfDay = Annotated[str, ReadBy(_time_of_day, {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"})]


class WithinEntry(Entry):
    """A maintenance window: the hours of every day in which sweeps run."""

    from_: TimeOfDay = Field(alias="from", description="When sweeps may start.")
    to: TimeOfDay = Field(description="When they stop, after their batch: on the next day, if that is not later.")
    zone: ZoneName | None = Field(default=None, description="Whose clocks it means; the scheduler's zone, or UTC.")

    @model_validator(mode="after")
    def _some_hours(self) -> Self:
        if self.from_ == self.to:
            raise Refused("it begins and ends at the same time", "leave `within` out to allow the whole day")
        return self


class SchedulerEntry(Entry):
    """A scheduler: `every` or `cron`."""

    every: (
        Annotated[timedelta, Between(timedelta(seconds=1), _TEN_YEARS, 'a window is an interval such as "5m" or "1h"')]
        | None
    ) = Field(default=None, description="How often it sweeps.")
    cron: Annotated[str, ReadBy(_cron, {"type": "string"})] | None = Field(
        default=None, description="When it sweeps: minute, hour, day of the month, month and day of the week."
    )
    zone: ZoneName | None = Field(default=None, description="Whose clocks `cron` and `within` mean; UTC if left out.")
    within: WithinEntry | None = Field(
        default=None, description="A maintenance window: sweeps start only in it, and stop at its end."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.every is None) == (self.cron is None):
            raise Refused(
                "a scheduler needs exactly one of every, cron", 'for example every = "5m", or cron = "15 3 * * *"'
            )
        if self.zone is not None and self.cron is None and self.within is None:
            raise Refused("an interval has no zone", "remove `zone`, or set when: `cron` or `within`")
        return self

    def as_scheduler(self, name: str) -> Scheduler:
        zone = self.zone or "UTC"
        cron = None if self.cron is None else Cron(self.cron, zone)
        every = self.every if cron is None else cron.longest
        assert every is not None
        hours = self.within
        within = None if hours is None else Within(hours.from_, hours.to, hours.zone or zone)
        return Scheduler(name, every, cron, within)


class EncodingEntry(Entry):
    """How columns encode timestamps."""

    unit: Annotated[tuple[Unit, ...], ReadBy(_units, _UNITS_SCHEMA)] = (Unit.NATIVE,)
    zone: ZoneName | None = Field(default=None, description="Values are wall-clock times, or days, in this zone.")

    @model_validator(mode="after")
    def _zone_fits(self) -> Self:
        if self.zone is None:
            return self
        if all(unit in (Unit.SECONDS, Unit.MILLISECONDS, Unit.MICROSECONDS) for unit in self.unit):
            raise Refused(f"a number of {self.unit[0].value} since 1970 has no zone", "remove it")
        if len(self.unit) > 1 and self.zone != "UTC":
            raise Refused(
                "timestamps of one column in several units must all be in UTC",
                'write zone = "UTC" for texts without a zone',
            )
        return self

    def time_of(self, columns: Sequence[str], pick: Pick | None = None) -> Time:
        first, *also = self.unit
        return Time(columns[0], first, self.zone, tuple(also), tuple(columns[1:]), pick)


class TimeEntry(EncodingEntry):
    """A column that holds timestamps, and how it encodes them."""

    column: ColumnName

    def as_time(self) -> Time:
        return self.time_of([self.column])


class ReferenceEntry(Entry):
    """Columns of another table that point at a row's key, or at the columns named in `to`."""

    table: NamedTable
    columns: Columns
    to: Columns | None = None

    @model_validator(mode="after")
    def _lengths(self) -> Self:
        if self.to is not None and len(self.to) != len(self.columns):
            raise Refused(
                f"{len(self.columns)} columns refer to {len(self.to)}", "name as many in `to` as in `columns`"
            )
        return self

    def as_reference(self) -> Reference:
        return Reference(self.table, self.columns, self.to or ())


def _expand_reference(text: str) -> dict[str, str]:
    table, column = parse_reference(text)
    return {"table": str(table), "columns": column}


_REFERENCE = ShortForm(
    _expand_reference,
    "a reference",
    'write "table.column" or { table = "…", columns = ["…"], to = ["…"] }',
    "table.column or schema.table.column",
)
ReferenceItem = Annotated[ReferenceEntry, _REFERENCE]


class RuleTimeEntry(EncodingEntry):
    """A column that holds the times that rows age by, or several of which one does."""

    column: ColumnName | None = None
    first: Several | None = Field(default=None, description="Columns of which the first that is not NULL counts.")
    latest: Several | None = Field(default=None, description="Columns of which the latest time counts.")
    child: ReferenceItem | None = Field(
        default=None, description="Rows of another table that refer to this one: the latest of their times counts."
    )
    parent: ReferenceEntry | None = Field(
        default=None,
        description="The row of another table that holds the time: `columns` of this table refer to it.",
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(value is not None for value in (self.column, self.first, self.latest)) != 1:
            raise Refused("a time needs exactly one of column, first, latest", 'for example { column = "created_at" }')
        if len(self.unit) > 1 and self.column is None:
            raise Refused("several columns share one unit", "name one unit that all of them are in")
        others = [name for name in ("child", "parent") if getattr(self, name) is not None]
        if len(others) > 1 or (others and self.column is None):
            raise Refused(
                "a time in another table is in one column of it", "name the `column`, and `child` or `parent`"
            )
        return self

    def as_time(self) -> Time:
        if self.column is not None:
            child, parent = (None if one is None else one.as_reference() for one in (self.child, self.parent))
            return replace(self.time_of([self.column]), child=child, parent=parent)
        return self.time_of(self.first or self.latest or (), Pick.FIRST if self.first else Pick.LATEST)


_TIME = ShortForm(
    lambda text: {"column": _COLUMN.read(text)},
    "a time column",
    'write its name, or { column = "…", unit = "…" }',
    "A column with native times.",
)
TimeItem = Annotated[TimeEntry, _TIME]
RuleTimeItem = Annotated[RuleTimeEntry, _TIME]


class FollowerEntry(ReferenceEntry):
    """Rows of another table that leave with the row they refer to."""

    where: dict[ColumnName, Where] = Field(default_factory=dict, description="Only rows that fulfil these conditions.")
    with_: list[FollowerItem] = Field(default_factory=list, alias="with")
    live: Literal["keep", "leave"] = Field(
        default="keep",
        description="Rows in a live state of their own table keep the row that they follow, or leave with it.",
    )


FollowerItem = Annotated[FollowerEntry, _REFERENCE]


class GuardEntry(Entry):
    """A fact that saves a row: exactly one of the three."""

    referenced_by: ReferenceItem | None = Field(default=None, description="Saved while a row refers to it.")
    null: ColumnName | None = Field(default=None, description="Saved while this column is NULL.")
    not_null: ColumnName | None = Field(default=None, description="Saved while this column is not NULL.")

    @model_validator(mode="after")
    def _one(self) -> GuardEntry:
        if sum(value is not None for value in (self.referenced_by, self.null, self.not_null)) != 1:
            raise Refused("a guard needs exactly one of referenced_by, null, not_null")
        return self


class OrphansEntry(Entry):
    """A reference whose rows are orphans: where it is NULL, or, with `of`, where it points at no row of that table."""

    columns: Columns = Field(description="The columns of the reference.")
    of: NamedTable | None = Field(default=None, description="The table that it points at, without a foreign key.")
    to: Columns | None = Field(default=None, description="The columns of that table; its key if left out.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.of is None and (self.to is not None or len(self.columns) > 1):
            raise Refused("names no table", 'name the table that the reference points at: of = "…"')
        if self.to is not None and len(self.to) != len(self.columns):
            raise Refused(
                f"{len(self.columns)} columns refer to {len(self.to)}", "name as many in `to` as in `columns`"
            )
        return self


OrphansItem = Annotated[
    OrphansEntry,
    ShortForm(
        lambda text: {"columns": _COLUMN.read(text)},
        "a reference",
        'write its column, or { columns = "…", of = "…" }',
        "A column that is NULL in orphans.",
    ),
]


class SpareEntry(Entry):
    """The newest rows that a rule spares."""

    newest: Count = Field(description="How many of them stay.")
    per: Columns | None = Field(default=None, description="The scope that they are counted in.")


class LongerEntry(Entry):
    """A column that holds how long each row stays."""

    column: ColumnName
    unit: Annotated[WindowUnit, ReadBy(_window_unit, {"enum": list(WindowUnit)})] = Field(
        description="What its numbers count."
    )
    parent: ReferenceEntry | None = Field(
        default=None,
        description="The row of another table that holds the window: `columns` of this table refer to it.",
    )

    def as_longer(self) -> Longer:
        return Longer(self.column, self.unit, None if self.parent is None else self.parent.as_reference())


LongestWait = Annotated[
    timedelta, Between(timedelta(minutes=1), timedelta(days=365), 'rows wait for others: "1d" is usual')
]


class RuleEntry(Entry):
    """One promise about a table."""

    when: When | None = Field(default=None, description="The states that the rule selects.")
    where: dict[ColumnName, Where] = Field(
        default_factory=dict, description="Conditions on other columns: only rows that fulfil all of them."
    )
    keep: Keep | None = Field(default=None, description="How long a row stays.")
    longer: LongerEntry | None = Field(
        default=None, description="Beside `keep`: a column that specifies how long each row stays, if that is longer."
    )
    expires: RuleTimeItem | None = Field(default=None, description="The column that holds the time of expiry.")
    most: Count | None = Field(default=None, description="The most rows to keep.")
    per: Columns | None = Field(default=None, description="The scope that `most` counts in.")
    by: ColumnName | None = Field(
        default=None,
        description="The key's column that orders rows by age for `most`, where no column holds a time.",
    )
    spare: SpareEntry | None = Field(default=None, description="The newest rows, which stay whatever their age.")
    time: RuleTimeItem | None = Field(default=None, description="The rule's own time column.")
    orphans: OrphansItem | None = Field(
        default=None, description="Only rows where this reference is NULL, or points at no row."
    )
    unless: list[GuardEntry] = Field(default_factory=list, description="Guards: each saves the row.")
    with_: list[FollowerItem] = Field(default_factory=list, alias="with", description="Rows that leave with the row.")
    unlinked: list[ReferenceItem] = Field(
        default_factory=list, description="References that a trigger of the database removes before the row leaves."
    )
    then: Then = Field(default=Prune(), description="What happens to a due row.")
    derived: Boolean = Field(default=False, description="Derived inventory: a cap may evict live rows.")
    least_rows: Count | None = Field(
        default=None, description="With `then = \"archive\"`: the rule's own `least_rows` instead of the table's."
    )
    longest_wait: LongestWait | None = Field(
        default=None, description="With `then = \"archive\"`: the rule's own `longest_wait` instead of the table's."
    )
    budget: Budget = Budget()


class ExcuseEntry(Entry):
    """The reason why there is no rule: exactly one kind, with its sentence."""

    singleton: Sentence | None = None
    inline: Sentence | None = None
    in_place: Sentence | None = None
    constant: Sentence | None = None
    mirror: Sentence | None = None
    append_only: Sentence | None = None
    elsewhere: Sentence | None = None
    rows: Count | None = Field(default=None, description="The most rows that the excuse promises.")

    @model_validator(mode="after")
    def _one(self) -> ExcuseEntry:
        if len(self.kinds()) != 1:
            raise Refused("an excuse has one kind", f"use exactly one of {', '.join(ExcuseKind)}")
        if self.singleton is not None and self.rows not in (None, 1):
            raise Refused(f"a singleton has one row, not {self.rows}", "remove `rows`, or use another kind")
        return self

    def kinds(self) -> list[tuple[ExcuseKind, str]]:
        given = [(kind, getattr(self, kind.value)) for kind in ExcuseKind]
        return [(kind, reason) for kind, reason in given if reason is not None]


class AcceptEntry(Entry):
    """A finding that is accepted: it is shown as such, and counts for nothing."""

    code: FindingCode = Field(description="The code of the finding.")
    at: Sentence | None = Field(
        default=None, description="The key or the table that it is about, as it shows it; a key above includes it."
    )
    reason: Sentence = Field(description="Why it is accepted.")
    until: LastDay | None = Field(default=None, description="The last day on which it is; no end if left out.")


class TableEntry(Entry):
    """One table's life, without its rules."""

    read_apart = ("rule",)

    why: Sentence = Field(description="The safety invariant: what pruning may never break.")
    scheduler: str | None = Field(default=None, description="A name from [scheduler].")
    state: ColumnName | None = Field(default=None, description="The column that holds the row's state.")
    live: States | None = Field(default=None, description="The states that are never selected.")
    time: RuleTimeItem | None = Field(default=None, description="The column that rules age by.")
    key: Columns | None = Field(default=None, description="The columns that identify a row.")
    excused: dict[str, ExcuseEntry] = Field(default_factory=dict, description="States without a rule, and why.")
    append_only: Boolean = Field(default=False, description="Only an explicit prune may delete.")
    inline: Sentence | None = Field(default=None, description="Where the application prunes by itself.")
    observe: Sentence | None = Field(
        default=None, description="Where to observe it, beside its metric and its log event."
    )
    age: TimeItem | None = Field(
        default=None, description="The column that pressure and health read the age of rows from, if not `time`."
    )


CASTS = ("text", "integer", "real", "blob")


def _cast(value: object) -> str:
    require_decided(value)
    if value not in CASTS:
        hint = did_you_mean(value, CASTS)
        raise Refused(f"{written(value)} is not a type of the archive", f"{hint} allowed: {', '.join(CASTS)}".strip())
    return str(value)


_MOST_EXPRESSION = 10_000


def _expression(value: object) -> str:
    require_decided(value)
    if isinstance(value, str) and value.strip() and len(value) <= _MOST_EXPRESSION:
        return value.strip()
    raise Refused(
        f"{written(value)} is no expression",
        'write a column, "id", or an expression of Spark\'s SQL with its name, "upper(kind) AS kind"',
    )


_MOST_SHOWN = 100
_MASK_TEXT = r"[\w *#@.,/+<>()\[\]-]{1,100}"
_MASK_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": f"^{_MASK_TEXT}$"},
        {
            "type": "object",
            "properties": {
                name: {"type": "integer", "minimum": 1, "maximum": _MOST_SHOWN} for name in ("first", "last")
            },
            "minProperties": 1,
            "additionalProperties": False,
        },
    ]
}


def _masking(value: object) -> Masking:
    require_decided(value)
    if isinstance(value, str) and re.fullmatch(_MASK_TEXT, value):
        return Masking(text=value)
    counts = value if isinstance(value, dict) and value.keys() <= {"first", "last"} else {}
    if counts and all(type(one) is int and 1 <= one <= _MOST_SHOWN for one in counts.values()):
        return Masking(first=counts.get("first", 0), last=counts.get("last", 0))
    raise Refused(
        f"{written(value)} is no mask",
        'write the text that replaces every value, "***", or how much of it stays, { last = 4 } or { first = 1 }',
    )


class TransformEntry(Entry):
    """What happens to a table's columns on the way to the archive."""

    drop: list[ColumnName] = Field(default_factory=list, description="Columns that the archive does not have.")
    hash: list[ColumnName] = Field(
        default_factory=list,
        description="Columns that the archive has as their SHA-256, in hex: equal values stay equal.",
    )
    mask: dict[ColumnName, Annotated[Masking, ReadBy(_masking, _MASK_SCHEMA)]] = Field(
        default_factory=dict,
        description="Columns whose values the archive has covered: by one text, or but for the first or last characters.",
    )
    select: list[
        Annotated[str, ReadBy(_expression, {"type": "string", "minLength": 1, "maxLength": _MOST_EXPRESSION})]
    ] = Field(
        default_factory=list,
        description="All columns that the archive has, each a column of the table or an expression of Spark's SQL `AS` a name.",
    )

    @model_validator(mode="after")
    def _change_each_column_once(self) -> Self:
        named = [*self.drop, *self.hash, *self.mask]
        if self.select:
            if named:
                raise Refused(
                    "`select` names every column that the archive has",
                    f"write {named[0]} as an expression of `select`, or leave it out, instead of `drop`, `hash` and `mask`",
                )
            return self
        if not named:
            raise Refused("`transform` is empty", "add `drop`, `hash`, `mask` or `select`, or remove it")
        twice = [name for name in dict.fromkeys(named) if named.count(name) > 1]
        if twice:
            raise Refused(f"`transform` names {twice[0]} twice", "use one of `drop`, `hash` and `mask` for a column")
        return self

    def read(self) -> Transform:
        """Return its content."""
        return Transform(tuple(self.drop), tuple(self.hash), tuple(self.mask.items()), tuple(self.select))


class ArchiveTableEntry(Entry):
    """How long the archive keeps a table's rows."""

    keep: Keep | None = Field(
        default=None,
        description="How long the archive keeps the table's rows; required unless they only leave as followers.",
    )
    tier: Literal["lake", "database"] = Field(
        default="lake", description="Where its rows go: the archive at `url`, or another schema of the same database."
    )
    cast: dict[ColumnName, Annotated[str, ReadBy(_cast, {"enum": list(CASTS)})]] = Field(
        default_factory=dict, description="Columns that the archive stores as another type."
    )
    statistics: list[ColumnName] = Field(
        default_factory=list,
        description="Text columns whose minimum and maximum the archive's log stores for each file, so that readers can skip files.",
    )
    least_rows: Count = Field(
        default=1,
        description="Workers and fleets begin a sweep when this number of rows is due, or one has been due for `longest_wait`.",
    )
    longest_wait: LongestWait = Field(
        default=timedelta(days=1), description="How long a due row waits for `least_rows`."
    )
    transform: TransformEntry | None = Field(
        default=None, description="What happens to columns on the way to the archive: what leaves is what may be kept."
    )
    renamed: dict[ColumnName, ColumnName] = Field(
        default_factory=dict,
        description="Columns that were renamed, each with the name under which it was first archived.",
    )
    absent: Literal["keep", "erase"] = Field(
        default="keep",
        description="What becomes of the copy of a row that the application deleted before the sweep came to it.",
    )

    @model_validator(mode="after")
    def _waits_for_something(self) -> Self:
        if "longest_wait" in self.model_fields_set and self.least_rows == 1:
            raise Refused("`longest_wait` without `least_rows`: no row waits", "add `least_rows`, or remove it")
        if self.keep is None and self.tier == "database":
            raise Refused("`keep` is missing", 'add `keep = "forever"` or a duration')
        if self.least_rows > 1 and self.tier == "database":
            raise Refused("rows do not wait where they stay in the database", "remove `least_rows`")
        if self.transform is not None:
            if self.tier == "database":
                raise Refused("rows move as they are inside the database", "remove `transform`, or archive to `url`")
            for key, names in (("cast", self.cast), ("statistics", self.statistics)):
                twice = [name for name in names if name in self.transform.drop]
                if twice:
                    raise Refused(f"`{key}` names {twice[0]}, which `transform` drops", "remove one of them")
        if self.renamed and self.tier == "database":
            raise Refused("tables of the same database are not renamed apart", "remove `renamed`")
        twice = [one for one in self.renamed.values() if list(self.renamed.values()).count(one) > 1]
        if twice:
            raise Refused(f"`renamed` names two columns that were {twice[0]}", "a column has one name")
        if self.absent == "erase" and self.tier == "database":
            raise Refused("rows are not copied before they move within the database", "remove `absent`")
        return self


def _retired(value: object) -> Retired:
    if not isinstance(value, str) or value not in list(Retired):
        raise Refused(f"{written(value)} is not an action for partitions", 'write "drop", "move" or "archive"')
    return Retired(value)


def _require_range(time: TimeEntry) -> TimeEntry:
    """Refuse a time column that cannot be the key of partitions."""
    if len(time.unit) > 1:
        raise Refused(
            "timestamps in several units have no order that partitions could rely on", "partition by a column with one"
        )
    if time.unit[0] in (Unit.ISO, Unit.TEXT):
        raise Refused(
            "timestamps that are written as text have no order that partitions could rely on",
            "partition by a column of another type",
        )
    return time


RangeTime = Annotated[TimeItem, AfterValidator(_require_range)]


def _made_by(value: object) -> MadeBy:
    if not isinstance(value, str) or value not in list(MadeBy):
        raise Refused(f"unknown made_by {written(value)}", 'write "application", or leave it out: Wane makes them')
    return MadeBy(value)


class PartitionFollowerEntry(Entry):
    """A table that is partitioned along."""

    table: NamedTable
    time: RangeTime = Field(description="Its own time column.")


class PartitionEntry(Entry):
    """A table that is partitioned (PostgreSQL): by months that Wane makes, or by ranges that the application makes."""

    time: RangeTime = Field(
        description="The column that decides the partition: native, or a number with its unit; with `made_by`, also days."
    )
    keep: Keep = Field(description="How long a partition stays after its end.")
    made_by: Annotated[MadeBy, ReadBy(_made_by, {"enum": [one.value for one in MadeBy]})] | None = Field(
        default=None,
        description="What makes the partitions: `wane`, or `application` (or an extension); then Wane only retires them.",
    )
    ahead: Annotated[int, Field(ge=1, le=24, strict=True)] = Field(
        default=3, description="The number of months created ahead."
    )
    quarantine: Annotated[
        timedelta,
        Between(timedelta(seconds=1), _TEN_YEARS, 'a partition can be re-attached for as long: "7d" is usual'),
    ] = Field(
        default=timedelta(days=7), description="How long a detached partition can be re-attached before it is dropped."
    )
    then: Annotated[Retired, ReadBy(_retired, {"enum": [one.value for one in Retired]})] = Field(
        default=Retired.DROP,
        description="What happens to a month: it is dropped, moved to the schema of archived tables, or archived by a rule that archives.",
    )
    rows: Count | None = Field(
        default=None,
        description="The number of rows from which partitioning is recommended, instead of that in [health].",
    )
    lock: Annotated[
        timedelta,
        Between(
            timedelta(milliseconds=1),
            timedelta(seconds=10),
            'statements of the application wait as long behind it: "200ms" is usual',
        ),
    ] = Field(
        default=timedelta(milliseconds=200),
        description="How long a statement may wait for a lock behind which the application's statements queue.",
    )
    with_: list[PartitionFollowerEntry] = Field(
        default_factory=list, alias="with", description="Followers that are partitioned along, each by its own time."
    )

    def misfits(self) -> Iterator[tuple[str, Refused]]:
        """Yield the keys that do not fit what makes the partitions, each with its reason."""
        if self.made_by is MadeBy.APPLICATION:
            for name in ("ahead", "rows"):
                if name in self.model_fields_set:
                    yield name, Refused("the application makes the partitions of this table, not Wane", "remove it")
            return
        for name, times in (("time", [self.time]), ("with", [one.time for one in self.with_])):
            if any(time.unit[0] is Unit.DATE for time in times):
                message = "a table cannot be partitioned by a column of dates"
                yield name, Refused(message, "partition by a column of timestamps")
