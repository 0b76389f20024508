"""The contract file's shape, piece by piece, as pydantic models.

A model here validates one piece on its own; the constraints between pieces are checked in `resolve`. Pieces are
validated one at a time, so that a mistake in one hides no mistake in another. The JSON Schema for editors is generated
from the same models.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from wane.contract.duration import PATTERN, format_duration, parse_duration
from wane.contract.model import (
    FOREVER,
    Budget,
    ExcuseKind,
    Forever,
    HealthSettings,
    Mark,
    Prune,
    QueueSettings,
    Reference,
    SparkSettings,
    State,
    SweepSettings,
    Time,
    ToArchive,
    Unit,
)
from wane.contract.names import TableName, parse_reference
from wane.contract.refused import Refused, told
from wane.contract.variables import VARIABLE
from wane.findings import did_you_mean

_MASTER = re.compile(r"local(\[.*\])?|(spark|k8s)://.+|yarn")

UNDECIDED = "DECIDE"
"""The placeholder that `wane init` writes where only a person can decide; every value that equals it is refused."""

MOST_ROWS = 2**53
"""The largest count or cap: JSON readers represent integers exactly up to here."""


class WindowName(str):
    """A window that is looked up in [window]."""

    __slots__ = ()


def _undecided(value: object) -> None:
    if value == UNDECIDED:
        raise Refused(f"{UNDECIDED!r} is a placeholder of `wane init`", "decide, then write it here")


def _duration(value: object) -> timedelta:
    _undecided(value)
    return parse_duration(value)


def duration_between(least: timedelta, most: timedelta, why: str) -> BeforeValidator:
    """Build a validator for durations within bounds; `why` is the fix shown for a shorter or longer one."""

    def read(value: object) -> timedelta:
        found = _duration(value)
        if found < least:
            raise Refused(f"{told(value)} is shorter than {format_duration(least)}", why)
        if found > most:
            raise Refused(f"{told(value)} is longer than {format_duration(most)}", why)
        return found

    return BeforeValidator(read)


def _keep(value: object) -> timedelta | Forever | WindowName:
    _undecided(value)
    if value == "forever":
        return FOREVER
    if isinstance(value, dict):
        if set(value) == {"window"} and isinstance(value["window"], str):
            return WindowName(value["window"])
        raise Refused("a table is not a window", 'write a duration, "forever", or { window = "name" }')
    return parse_duration(value)


def read_window(value: object) -> timedelta | Forever:
    _undecided(value)
    return FOREVER if value == "forever" else parse_duration(value)


def _sentence(value: object) -> str:
    _undecided(value)
    if not isinstance(value, str):
        raise Refused(f"{told(value)} is not a sentence", "write a sentence in quotes")
    if not value.strip():
        raise Refused("empty", "write a sentence")
    return value.strip()


def read_url(value: object) -> str:
    """Validate a URL or a path. The error never repeats the value, which may contain a secret."""
    _undecided(value)
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        raise Refused("this is not a URL", "write a URL or a path in quotes")
    return value


def _without_variable(value: object) -> None:
    """Refuse `${NAME}` where it is not expanded: only the URLs of [store] and [archive] expand variables."""
    found = VARIABLE.search(value) if isinstance(value, str) else None
    if found is not None:
        raise Refused(f"{found[0]} is not replaced by a variable's value here", "write the value itself")


def _master(value: object) -> str:
    _undecided(value)
    _without_variable(value)
    if not isinstance(value, str) or not _MASTER.fullmatch(value):
        raise Refused(
            f"{told(value)} is no master of Spark", 'write "local[*,4]", "spark://host:7077", "yarn" or "k8s://…"'
        )
    return value


def _column(value: object) -> str:
    _undecided(value)
    if not isinstance(value, str) or not value or "\x00" in value:
        raise Refused(f"{told(value)} is not a column's name", "write the name in quotes")
    return value


def _columns(value: object) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if not names:
        raise Refused("empty", "name at least one column")
    columns = tuple(_column(name) for name in names)
    if len(set(columns)) != len(columns):
        raise Refused("a column is named twice", "name it once")
    return columns


def _time(value: object) -> Time:
    if isinstance(value, str):
        return Time(_column(value))
    if not isinstance(value, dict):
        raise Refused(f"{told(value)} is not a time column", 'write its name, or { column = "…", unit = "…" }')
    for key in value:
        if key not in ("column", "unit", "zone"):
            hint = did_you_mean(key, ("column", "unit", "zone"))
            raise Refused(f"unknown key {key!r}", f"{hint} allowed: column, unit, zone".strip())
    if "column" not in value:
        raise Refused("the column is missing", 'write { column = "…" }')
    first, *also = _units(value.get("unit", Unit.NATIVE.value))
    return Time(_column(value["column"]), first, _zone(value.get("zone"), (first, *also)), tuple(also))


def _units(value: object) -> list[Unit]:
    """Parse the encoding of a column's timestamps, or several encodings that the column mixes."""
    _undecided(value)
    given = value if isinstance(value, list) else [value]
    if not given:
        raise Refused("no unit", f"allowed: {', '.join(Unit)}")
    for unit in given:
        _undecided(unit)
        if not isinstance(unit, str) or unit not in list(Unit):
            hint = did_you_mean(unit, Unit)
            raise Refused(f"unknown unit {told(unit)}", f"{hint} allowed: {', '.join(Unit)}".strip())
    if len(set(given)) != len(given):
        raise Refused("a unit is named twice", "name it once")
    return [Unit(str(unit)) for unit in given]


def _zone(value: object, units: tuple[Unit, ...]) -> str | None:
    _undecided(value)
    if value is None:
        return None
    if all(unit in (Unit.SECONDS, Unit.MILLISECONDS, Unit.MICROSECONDS) for unit in units):
        raise Refused(f"a number of {units[0].value} since 1970 has no zone", "remove it")
    if len(units) > 1 and value != "UTC":
        raise Refused(
            "moments of one column in several units must all be in UTC", 'write zone = "UTC" for texts without a zone'
        )
    try:
        # "localtime" depends on the machine that reads the contract.
        if isinstance(value, str) and value != "localtime":
            ZoneInfo(value)
            return value
    except (KeyError, ValueError, OSError):
        pass
    raise Refused(f"unknown zone {told(value)}", 'use a name such as "UTC" or "Europe/Vienna"')


def _state(value: object) -> State:
    _undecided(value)
    if not isinstance(value, str | int | bool):
        raise Refused(f"{told(value)} is not a state", "use texts, whole numbers or booleans")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Refused(f"{told(value)} is not a state", "no column holds a number of more than 64 bits")
    if isinstance(value, str) and "\x00" in value:
        raise Refused(f"{told(value)} is not a state", "no column holds a text with a NUL character")
    return value


def _states(value: object) -> tuple[State, ...]:
    _undecided(value)
    if not isinstance(value, list):
        raise Refused(
            f"{told(value)} is not a list of states",
            f"write [{told(value)}]" if isinstance(value, str | int) else 'write ["…"]',
        )
    states = tuple(_state(state) for state in value)
    if len({type(state) for state in states}) > 1:
        raise Refused("states of different types", "a column holds texts, numbers or booleans")
    if len(set(states)) != len(states):
        raise Refused("a state is listed twice", "list it once")
    return states


def _some_states(value: object) -> tuple[State, ...]:
    states = _states(value)
    if not states:
        raise Refused("empty", "a rule without states selects nothing; name them, or remove the rule")
    return states


def _reference(value: object) -> Reference:
    if isinstance(value, str):
        table, column = parse_reference(value)
        return Reference(table, (column,))
    if isinstance(value, dict) and set(value) <= {"table", "columns", "to"} and {"table", "columns"} <= set(value):
        columns, to = _columns(value["columns"]), _columns(value["to"]) if "to" in value else ()
        if to and len(to) != len(columns):
            raise Refused(f"{len(columns)} columns refer to {len(to)}", "name as many in `to` as in `columns`")
        return Reference(_table_name(value["table"]), columns, to)
    raise Refused(
        f"{told(value)} is not a reference", 'write "table.column" or { table = "…", columns = ["…"], to = ["…"] }'
    )


def _table_name(value: object) -> TableName:
    if not isinstance(value, str):
        raise Refused(f"{told(value)} is not a table's name", "write the name in quotes")
    return TableName.parse(value)


def _then(value: object) -> Prune | ToArchive | Mark:
    _undecided(value)
    if value == "prune":
        return Prune()
    if value == "archive":
        return ToArchive()
    if isinstance(value, dict) and set(value) == {"mark"}:
        return Mark(_state(value["mark"]))
    raise Refused(f"{told(value)} is not something to do", 'use "prune", "archive" or { mark = "state" }')


_DURATION_SCHEMA: dict[str, Any] = {
    "type": "string",
    "pattern": PATTERN,
    "description": 'A duration such as "90d", "168h" or "1d 12h".',
}
_WINDOW_SCHEMA: dict[str, Any] = {"anyOf": [_DURATION_SCHEMA, {"const": "forever", "description": "Rows stay."}]}
_COLUMNS_SCHEMA = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}]
}
_STATE_SCHEMA = {"type": ["string", "integer", "boolean"]}


def _states_schema(least: int) -> dict[str, Any]:
    kinds = ("string", "integer", "boolean")
    lists = [{"type": "array", "items": {"type": kind}, "uniqueItems": True, "minItems": least} for kind in kinds]
    return {"anyOf": lists}


_REFERENCE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string", "description": "table.column or schema.table.column"},
        {
            "type": "object",
            "properties": {"table": {"type": "string"}, "columns": _COLUMNS_SCHEMA, "to": _COLUMNS_SCHEMA},
            "required": ["table", "columns"],
            "additionalProperties": False,
        },
    ]
}
_TIME_SCHEMA = {
    "anyOf": [
        {"type": "string", "description": "A column with native times."},
        {
            "type": "object",
            "properties": {
                "column": {"type": "string"},
                "unit": {
                    "anyOf": [
                        {"enum": [unit.value for unit in Unit]},
                        {
                            "type": "array",
                            "items": {"enum": [unit.value for unit in Unit]},
                            "minItems": 1,
                            "uniqueItems": True,
                            "description": "Several that the column mixes: each value is in one of them.",
                        },
                    ]
                },
                "zone": {"type": "string", "description": "Values are wall-clock times of this place."},
            },
            "required": ["column"],
            "additionalProperties": False,
        },
    ]
}

Duration = Annotated[timedelta, BeforeValidator(_duration), WithJsonSchema(_DURATION_SCHEMA)]
Window = Annotated[Any, BeforeValidator(read_window), WithJsonSchema(_WINDOW_SCHEMA)]
Keep = Annotated[
    Any,
    BeforeValidator(_keep),
    WithJsonSchema(
        {
            "anyOf": [
                *_WINDOW_SCHEMA["anyOf"],
                {
                    "type": "object",
                    "properties": {"window": {"type": "string", "description": "A name from [window]."}},
                    "required": ["window"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
Sentence = Annotated[str, BeforeValidator(_sentence), WithJsonSchema({"type": "string", "pattern": r"\S"})]
ColumnName = Annotated[str, BeforeValidator(_column), WithJsonSchema({"type": "string", "minLength": 1})]
Columns = Annotated[tuple[str, ...], BeforeValidator(_columns), WithJsonSchema(_COLUMNS_SCHEMA)]
States = Annotated[Any, BeforeValidator(_states), WithJsonSchema(_states_schema(0))]
SomeStates = Annotated[Any, BeforeValidator(_some_states), WithJsonSchema(_states_schema(1))]
TimeSpec = Annotated[Any, BeforeValidator(_time), WithJsonSchema(_TIME_SCHEMA)]
ReferenceSpec = Annotated[Any, BeforeValidator(_reference), WithJsonSchema(_REFERENCE_SCHEMA)]
Then = Annotated[
    Any,
    BeforeValidator(_then),
    WithJsonSchema(
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
        }
    ),
]
Url = Annotated[str, BeforeValidator(read_url), WithJsonSchema({"type": "string", "minLength": 1})]
Count = Annotated[int, Field(ge=1, le=MOST_ROWS, strict=True)]


class Piece(BaseModel):
    """A piece of the file: unknown keys are mistakes, and values keep the type that TOML gave them."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)
    also: ClassVar[tuple[str, ...]] = ()
    """Keys beside the fields, which are read on their own."""


class BudgetPiece(Piece):
    """The most that one sweep of one rule may do."""

    rows: Count | None = None
    seconds: Count | None = None
    batches: Count | None = None

    def over(self, default: Budget) -> Budget:
        """Return this budget, with missing values taken from the default."""
        return Budget(self.rows or default.rows, self.seconds or default.seconds, self.batches or default.batches)


def _flag_name(value: object) -> str:
    _undecided(value)
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        raise Refused("not a flag's name", "write a text in quotes")
    return value


def _table_flag(value: object) -> str:
    name = _flag_name(value)
    if name.count("{table}") != 1 or name.replace("{table}", "").count("{"):
        raise Refused(
            "not a name for every table's flag", 'write {table} once in it: "queue.retention.{table}.enabled"'
        )
    return name


FlagName = Annotated[str, BeforeValidator(_flag_name), WithJsonSchema({"type": "string", "minLength": 1})]
TableFlag = Annotated[str, BeforeValidator(_table_flag), WithJsonSchema({"type": "string", "pattern": r"\{table\}"})]
Share = Annotated[float, Field(gt=0, le=1)]


class SweepPiece(Piece):
    """How sweeps go."""

    batch_ms: Count | None = Field(default=None, description="What one batch should take, in milliseconds.")
    duty: Share | None = Field(default=None, description="The share of time at work; the rest is pauses.")
    fuse: Share | None = Field(default=None, description="The largest share of a table that a rule may take unasked.")
    first_fuse: Share | None = Field(default=None, description="The same for the first sweep of a rule.")
    fuse_rows: Count | None = Field(default=None, description="The fuse ignores rules with fewer due rows than this.")
    master_flag: FlagName | None = Field(default=None, description="Sweeps are off until this flag is on.")
    table_flag: TableFlag | None = Field(default=None, description="A table's sweeps are on until this flag is off.")

    def over(self, default: SweepSettings) -> SweepSettings:
        """Return these settings, with missing values taken from the default."""
        return replace(default, **{key: getattr(self, key) for key in self.model_fields_set})


_MOST_POOL_BYTES = 1_000
_MOST_ATTEMPTS = 1_000


def _pool(value: object) -> str:
    _undecided(value)
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        raise Refused("not a pool's name", "write a text in quotes, without a NUL character")
    if len(value.encode(errors="replace")) > _MOST_POOL_BYTES:
        raise Refused(f"a pool's name of more than {_MOST_POOL_BYTES:,} bytes", "write a shorter one")
    return value


PoolName = Annotated[
    str, BeforeValidator(_pool), WithJsonSchema({"type": "string", "minLength": 1, "maxLength": _MOST_POOL_BYTES})
]
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
_SCHEMA = WithJsonSchema(_DURATION_SCHEMA)
Forgotten = Annotated[
    timedelta,
    duration_between(60 * _SECOND, 365 * _DAY, 'executors beat every ten seconds: "1d" is usual'),
    _SCHEMA,
]
Lease = Annotated[
    timedelta,
    duration_between(
        _SECOND,
        _DAY,
        'time limits inside the database are derived from it, and nobody takes over before it ends: "30s" is usual',
    ),
    _SCHEMA,
]
Backoff = Annotated[
    timedelta,
    duration_between(timedelta(milliseconds=1), _DAY, 'it doubles with every attempt: "10s" is usual'),
    _SCHEMA,
]
Remember = Annotated[
    timedelta,
    duration_between(
        _SECOND, 3_650 * _DAY, 'keep finished messages for as long as you may want to look at them: "7d" is usual'
    ),
    _SCHEMA,
]
Every = Annotated[
    timedelta, duration_between(_SECOND, 3_650 * _DAY, 'a window is an interval such as "5m" or "1h"'), _SCHEMA
]
Attempts = Annotated[int, Field(ge=1, le=_MOST_ATTEMPTS, strict=True)]


class QueuePiece(Piece):
    """How sweeps travel from schedulers to workers."""

    pool: PoolName | None = Field(default=None, description="The work pool of the sweeps.")
    lease: Lease | None = Field(default=None, description="How long a silent worker keeps its sweep from others.")
    attempts: Attempts | None = Field(
        default=None, description="How often a sweep is tried before it is a dead letter."
    )
    backoff: Backoff | None = Field(default=None, description="The pause before the second attempt; it doubles.")
    remember: Remember | None = Field(default=None, description="How long a finished message is kept.")
    dead_letters: Window | None = Field(default=None, description="How long a resolved dead letter is kept.")

    def over(self, default: QueueSettings) -> QueueSettings:
        """Return these settings, with missing values taken from the default."""
        return replace(default, **{key: getattr(self, key) for key in self.model_fields_set})


class HealthPiece(Piece):
    """Say when a table counts as unhealthy."""

    grace: Duration | None = Field(default=None, description="How long a due row may wait beyond a sweep's interval.")
    partition_rows: Count | None = Field(default=None, description="Rows from which on partitions are recommended.")
    partition_finished_rows: Count | None = Field(
        default=None, description="The same for finished rows of a table with states."
    )
    hot_read_ms: Annotated[float, Field(gt=0, le=60_000)] | None = Field(
        default=None, description="What a read through a rule's index may take, in milliseconds."
    )
    counted_rows: Annotated[int, Field(ge=1, le=1_000_000, strict=True)] | None = Field(
        default=None, description="Rows are counted up to here, and estimated beyond."
    )
    forget_silent: Forgotten | None = Field(
        default=None, description="How long an executor that fell silent is told of."
    )
    every: Every | None = Field(default=None, description="How often `wane run` records a health report.")

    def over(self, default: HealthSettings) -> HealthSettings:
        """Return these settings, with missing values taken from the default."""
        return replace(default, **{key: getattr(self, key) for key in self.model_fields_set})


class SchedulerPiece(Piece):
    """A scheduler."""

    every: Every = Field(description="How often it sweeps.")


NamedTable = Annotated[Any, BeforeValidator(_table_name), WithJsonSchema({"type": "string"})]


class FollowerPiece(Piece):
    """Rows of another table that leave with the row they refer to."""

    table: NamedTable
    columns: Columns
    to: Columns | None = None
    where: dict[ColumnName, Annotated[Any, BeforeValidator(_state), WithJsonSchema(_STATE_SCHEMA)]] = Field(
        default_factory=dict, description="Only rows with these values."
    )
    with_: list[FollowerItem] = Field(default_factory=list, alias="with")
    live: Literal["keep", "leave"] = Field(
        default="keep",
        description="Rows in a live state of their own table keep the row that they follow, or leave with it.",
    )

    @model_validator(mode="after")
    def _lengths(self) -> FollowerPiece:
        if self.to is not None and len(self.to) != len(self.columns):
            raise Refused(
                f"{len(self.columns)} columns refer to {len(self.to)}", "name as many in `to` as in `columns`"
            )
        return self


def _follower(value: object) -> object:
    """Expand a follower written in the short form `table.column` to the full form."""
    if not isinstance(value, str):
        return value
    table, column = parse_reference(value)
    return {"table": str(table), "columns": column}


FollowerItem = Annotated[FollowerPiece, BeforeValidator(_follower)]


class GuardPiece(Piece):
    """A fact that saves a row: exactly one of the three."""

    referenced_by: ReferenceSpec | None = Field(default=None, description="Saved while a row refers to it.")
    null: ColumnName | None = Field(default=None, description="Saved while this column is NULL.")
    not_null: ColumnName | None = Field(default=None, description="Saved while this column is not NULL.")

    @model_validator(mode="after")
    def _one(self) -> GuardPiece:
        if sum(value is not None for value in (self.referenced_by, self.null, self.not_null)) != 1:
            raise Refused("a guard says one thing", "say exactly one of referenced_by, null, not_null")
        return self


class RulePiece(Piece):
    """One promise about a table."""

    when: SomeStates | None = Field(default=None, description="The states that the rule selects.")
    keep: Keep | None = Field(default=None, description="How long a row stays.")
    expires: TimeSpec | None = Field(default=None, description="The column that holds the moment of expiry.")
    most: Count | None = Field(default=None, description="The most rows to keep.")
    per: Columns | None = Field(default=None, description="The scope that `most` counts in.")
    time: TimeSpec | None = Field(default=None, description="The rule's own time column.")
    orphans: ColumnName | None = Field(default=None, description="Only rows where this reference is NULL.")
    unless: list[GuardPiece] = Field(default_factory=list, description="Guards: each saves the row.")
    with_: list[FollowerItem] = Field(default_factory=list, alias="with", description="Rows that leave with the row.")
    then: Then = Field(default=Prune(), description="What happens to a due row.")
    derived: bool = Field(default=False, strict=True, description="Derived inventory: a cap may evict live rows.")
    budget: BudgetPiece = BudgetPiece()


class ExcusePiece(Piece):
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
    def _one(self) -> ExcusePiece:
        if len(self.kinds()) != 1:
            raise Refused("an excuse has one kind", f"say exactly one of {', '.join(ExcuseKind)}")
        if self.singleton is not None and self.rows not in (None, 1):
            raise Refused(f"a singleton has one row, not {self.rows}", "remove `rows`, or use another kind")
        return self

    def kinds(self) -> list[tuple[ExcuseKind, str]]:
        given = [(kind, getattr(self, kind.value)) for kind in ExcuseKind]
        return [(kind, reason) for kind, reason in given if reason is not None]


class TablePiece(Piece):
    """One table's life, without its rules."""

    also = ("rule",)

    why: Sentence = Field(description="The safety invariant: what pruning may never break.")
    scheduler: str | None = Field(default=None, description="A name from [scheduler].")
    state: ColumnName | None = Field(default=None, description="The column that holds the row's state.")
    live: States | None = Field(default=None, description="The states that are never selected.")
    time: TimeSpec | None = Field(default=None, description="The column that rules age by.")
    key: Columns | None = Field(default=None, description="The columns that identify a row.")
    excused: dict[str, ExcusePiece] = Field(default_factory=dict, description="States without a rule, and why.")
    append_only: bool = Field(default=False, strict=True, description="Only an explicit prune may delete.")
    inline: Sentence | None = Field(default=None, description="Where the application prunes by itself.")
    observe: Sentence | None = Field(default=None, description="Where to look.")
    age: TimeSpec | None = Field(
        default=None, description="The column that pressure and health tell the age of rows by, if not `time`."
    )


class StorePiece(Piece):
    """The database."""

    url: Url | None = Field(
        default=None, description="A URL, or the name of an environment variable with one.", repr=False
    )
    schemas: list[str] = Field(default_factory=list, description="PostgreSQL: the schemas to cover.")
    attach: dict[str, str] = Field(default_factory=dict, description="SQLite: databases to attach.")


CASTS = ("text", "integer", "real", "blob")


def _cast(value: object) -> str:
    _undecided(value)
    if value not in CASTS:
        hint = did_you_mean(value, CASTS)
        raise Refused(f"{told(value)} is not a type of the archive", f"{hint} allowed: {', '.join(CASTS)}".strip())
    return str(value)


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise Refused(f"{told(value)} is not a setting", "write a text, a number, true or false")
    _without_variable(value)
    return str(value)


class ArchiveTablePiece(Piece):
    """How long the archive keeps a table's rows."""

    keep: Keep
    tier: Literal["lake", "database"] | None = Field(
        default=None, description="Where its rows go: the archive at `url`, or another schema of the same database."
    )
    cast: dict[ColumnName, Annotated[str, BeforeValidator(_cast), WithJsonSchema({"enum": list(CASTS)})]] = Field(
        default_factory=dict, description="Columns that the archive keeps as another type."
    )
    statistics: list[ColumnName] = Field(
        default_factory=list,
        description="Columns of texts whose least and greatest values stand in the archive's log, so that readers can skip files by them.",
    )


class SparkPiece(Piece):
    """How the archive's pipeline runs."""

    master: (
        Annotated[
            str, BeforeValidator(_master), WithJsonSchema({"type": "string", "pattern": f"^({_MASTER.pattern})$"})
        ]
        | None
    ) = Field(default=None, description="Where Spark runs.")
    range_rows: Count | None = Field(default=None, description="Rows that one task reads.")
    sweep_rows: Count | None = Field(default=None, description="Rows that one sweep moves.")
    lease_seconds: Annotated[int, Field(ge=5, le=86_400, strict=True)] | None = Field(
        default=None, description="How long a dead writer keeps others from a table's archive."
    )
    url_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", strict=True)] | None = Field(
        default=None, description="On a cluster: its workers' environment variable with the database's URL."
    )
    settings: dict[
        str, Annotated[str, BeforeValidator(_setting), WithJsonSchema({"type": ["string", "number", "boolean"]})]
    ] = Field(default_factory=dict, description="Any of Spark's own settings.")

    def over(self, default: SparkSettings) -> SparkSettings:
        """Return these settings, with missing values taken from the default."""
        given = {key: getattr(self, key) for key in self.model_fields_set}
        if "settings" in given:
            given["settings"] = tuple({**dict(default.settings), **self.settings}.items())
        return replace(default, **given)
