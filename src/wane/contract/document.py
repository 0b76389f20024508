"""The contract file's shape, piece by piece, as pydantic models.

A model here says what one piece may look like on its own; what pieces must be to each other is `resolve`'s business. Pieces are
validated one at a time, so that a mistake in one hides no mistake in another. The JSON Schema for editors comes from the same models.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from wane.contract.duration import parse_duration
from wane.contract.model import (
    FOREVER,
    Archive,
    Budget,
    ExcuseKind,
    Forever,
    Mark,
    Prune,
    Reference,
    State,
    Time,
    Unit,
)
from wane.contract.names import TableName, parse_reference
from wane.findings import did_you_mean

UNDECIDED = "DECIDE"
"""What `wane init` writes where only a person can decide; no value with it passes."""

MOST_ROWS = 2**53
"""The largest count or cap: JSON readers keep integers exact up to here."""


class WindowName(str):
    """A window that is looked up in [window]."""

    __slots__ = ()


def _undecided(value: object) -> None:
    if value == UNDECIDED:
        raise ValueError(f"{UNDECIDED!r} is a placeholder of `wane init`: decide, then write it here")


def _duration(value: object) -> timedelta:
    _undecided(value)
    return parse_duration(value)


def _keep(value: object) -> timedelta | Forever | WindowName:
    _undecided(value)
    if value == "forever":
        return FOREVER
    if isinstance(value, dict):
        if set(value) == {"window"} and isinstance(value["window"], str):
            return WindowName(value["window"])
        raise ValueError('expected a duration, "forever", or { window = "name" }')
    return parse_duration(value)


def read_window(value: object) -> timedelta | Forever:
    _undecided(value)
    return FOREVER if value == "forever" else parse_duration(value)


def _sentence(value: object) -> str:
    _undecided(value)
    if not isinstance(value, str):
        raise ValueError("expected a sentence in quotes")
    if not value.strip():
        raise ValueError("empty: write a sentence")
    return value.strip()


def _column(value: object) -> str:
    _undecided(value)
    if not isinstance(value, str) or not value or "\x00" in value:
        raise ValueError("expected a column's name in quotes")
    return value


def _columns(value: object) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if not names:
        raise ValueError("empty: name at least one column")
    columns = tuple(_column(name) for name in names)
    if len(set(columns)) != len(columns):
        raise ValueError("a column is named twice")
    return columns


def _time(value: object) -> Time:
    if isinstance(value, str):
        return Time(_column(value))
    if not isinstance(value, dict):
        raise ValueError('expected a column\'s name or { column = "…", unit = "…" }')
    for key in value:
        if key not in ("column", "unit", "zone"):
            raise ValueError(f"unknown key {key!r}: allowed are column, unit and zone")
    if "column" not in value:
        raise ValueError('the column is missing: { column = "…" }')
    unit = value.get("unit", Unit.NATIVE.value)
    _undecided(unit)
    if unit not in list(Unit):
        hint = did_you_mean(unit, Unit)
        raise ValueError(f"unknown unit {unit!r}: use {', '.join(Unit)}" + (f"; {hint}" if hint else ""))
    return Time(_column(value["column"]), Unit(unit), _zone(value.get("zone"), Unit(unit)))


def _zone(value: object, unit: Unit) -> str | None:
    _undecided(value)
    if value is None:
        return None
    if unit in (Unit.SECONDS, Unit.MILLISECONDS, Unit.MICROSECONDS):
        raise ValueError(f"a number of {unit.value} since 1970 has no zone: remove it")
    try:
        ZoneInfo(str(value))
    except (KeyError, ValueError, OSError):
        raise ValueError(f'unknown zone {value!r}: use a name such as "UTC" or "Europe/Vienna"') from None
    return str(value)


def _states(value: object) -> tuple[State, ...]:
    _undecided(value)
    if not isinstance(value, list):
        raise ValueError(f"expected a list of states, for example [{_toml(value)}]")
    for state in value:
        _undecided(state)
        if not isinstance(state, str | int | bool):
            raise ValueError(f"{state!r} is not a state: use texts, whole numbers or booleans")
    kinds = {type(state) for state in value}
    if len(kinds) > 1:
        raise ValueError("states of different types: a column holds texts, numbers or booleans")
    if len(set(value)) != len(value):
        raise ValueError("a state is listed twice")
    return tuple(value)


def _some_states(value: object) -> tuple[State, ...]:
    states = _states(value)
    if not states:
        raise ValueError("empty: a rule without states selects nothing; name them, or remove the rule")
    return states


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _reference(value: object) -> Reference:
    if isinstance(value, str):
        table, column = parse_reference(value)
        return Reference(table, (column,))
    if isinstance(value, dict) and set(value) <= {"table", "columns", "to"} and {"table", "columns"} <= set(value):
        columns, to = _columns(value["columns"]), _columns(value["to"]) if "to" in value else ()
        if to and len(to) != len(columns):
            raise ValueError(f"{len(columns)} columns refer to {len(to)}: name as many in `to` as in `columns`")
        return Reference(_table_name(value["table"]), columns, to)
    raise ValueError('expected "table.column" or { table = "…", columns = ["…"], to = ["…"] }')


def _table_name(value: object) -> TableName:
    if not isinstance(value, str):
        raise ValueError("expected a table's name in quotes")
    return TableName.parse(value)


def _then(value: object) -> Prune | Archive | Mark:
    _undecided(value)
    if value == "prune":
        return Prune()
    if value == "archive":
        return Archive()
    if isinstance(value, dict) and set(value) == {"mark"} and isinstance(value["mark"], str | int | bool):
        return Mark(value["mark"])
    raise ValueError(f'{_toml(value)} is not something to do: use "prune", "archive" or {{ mark = "state" }}')


_DURATION_SCHEMA = {"type": "string", "description": 'A duration such as "90d", "168h" or "1d 12h".'}
_COLUMNS_SCHEMA = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}]
}
_STATE_SCHEMA = {"type": ["string", "integer", "boolean"]}
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
                "unit": {"enum": [unit.value for unit in Unit]},
                "zone": {"type": "string", "description": "Values are wall-clock times of this place."},
            },
            "required": ["column"],
            "additionalProperties": False,
        },
    ]
}

Duration = Annotated[timedelta, BeforeValidator(_duration), WithJsonSchema(_DURATION_SCHEMA)]
Window = Annotated[
    Any,
    BeforeValidator(read_window),
    WithJsonSchema({"type": "string", "description": 'A duration, or "forever".'}),
]
Keep = Annotated[
    Any,
    BeforeValidator(_keep),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "description": 'A duration such as "7d", or "forever".'},
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
Sentence = Annotated[str, BeforeValidator(_sentence), WithJsonSchema({"type": "string", "minLength": 1})]
ColumnName = Annotated[str, BeforeValidator(_column), WithJsonSchema({"type": "string", "minLength": 1})]
Columns = Annotated[tuple[str, ...], BeforeValidator(_columns), WithJsonSchema(_COLUMNS_SCHEMA)]
States = Annotated[
    Any, BeforeValidator(_states), WithJsonSchema({"type": "array", "items": _STATE_SCHEMA, "uniqueItems": True})
]
SomeStates = Annotated[
    Any,
    BeforeValidator(_some_states),
    WithJsonSchema({"type": "array", "items": _STATE_SCHEMA, "uniqueItems": True, "minItems": 1}),
]
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
Count = Annotated[int, Field(ge=1, le=MOST_ROWS, strict=True)]


class Piece(BaseModel):
    """A piece of the file: unknown keys are mistakes, and values keep the type that TOML gave them."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class BudgetPiece(Piece):
    """The most that one sweep of one rule may do."""

    rows: Count | None = None
    seconds: Count | None = None
    batches: Count | None = None

    def over(self, default: Budget) -> Budget:
        """This budget, with what it leaves out taken from the default."""
        return Budget(self.rows or default.rows, self.seconds or default.seconds, self.batches or default.batches)


class SchedulerPiece(Piece):
    """A scheduler."""

    every: Duration = Field(description="How often it sweeps.")


class FollowerPiece(Piece):
    """Rows of another table that leave with the row they refer to."""

    table: Annotated[Any, BeforeValidator(_table_name), WithJsonSchema({"type": "string"})]
    columns: Columns
    to: Columns | None = None
    where: dict[str, Annotated[Any, WithJsonSchema(_STATE_SCHEMA)]] = Field(default_factory=dict)
    with_: list[FollowerItem] = Field(default_factory=list, alias="with")

    @model_validator(mode="after")
    def _lengths(self) -> FollowerPiece:
        if self.to is not None and len(self.to) != len(self.columns):
            raise ValueError(
                f"{len(self.columns)} columns refer to {len(self.to)}: name as many in `to` as in `columns`"
            )
        for column, value in self.where.items():
            if not isinstance(value, str | int | bool):
                raise ValueError(f"where.{column}: expected a text, a whole number or a boolean")
        return self


def _follower(value: object) -> object:
    """A follower written as `table.column` is the short form of the full one."""
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
            raise ValueError("a guard says exactly one of referenced_by, null, not_null")
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
            raise ValueError(f"an excuse says exactly one of {', '.join(ExcuseKind)}")
        return self

    def kinds(self) -> list[tuple[ExcuseKind, str]]:
        given = [(kind, getattr(self, kind.value)) for kind in ExcuseKind]
        return [(kind, reason) for kind, reason in given if reason is not None]


class TablePiece(Piece):
    """One table's life, without its rules."""

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


class StorePiece(Piece):
    """The database."""

    url: str | None = Field(default=None, description="A URL, or the name of an environment variable with one.")
    schemas: list[str] = Field(default_factory=list, description="PostgreSQL: the schemas to cover.")
    attach: dict[str, str] = Field(default_factory=dict, description="SQLite: databases to attach.")


class ArchiveTablePiece(Piece):
    """How long the archive keeps a table's rows."""

    keep: Keep
