"""Types of single values in a contract file: each reads one value, refuses a wrong one, and describes itself to
editors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from wane._contract.duration import FOREVER, LONGEST, PATTERN, Forever, format_duration, parse_duration
from wane._contract.names import TableName
from wane._contract.refused import Refused, written

UNDECIDED = "DECIDE"
"""The placeholder that `wane init` writes where only a person can decide; every value that equals it is refused."""

MOST_ROWS = 2**53
"""The largest count or cap: JSON readers represent integers exactly up to here."""

DURATION_SCHEMA: dict[str, Any] = {
    "type": "string",
    "pattern": PATTERN,
    "description": 'A duration such as "90d", "168h" or "1d 12h".',
}
WINDOW_SCHEMA: dict[str, Any] = {"anyOf": [DURATION_SCHEMA, {"const": "forever", "description": "Rows stay."}]}


def require_decided(value: object) -> None:
    """Raise Refused for the placeholder of `wane init`."""
    if value == UNDECIDED:
        raise Refused(f"{UNDECIDED!r} is a placeholder of `wane init`", "decide, then write it here")


def read_window(value: object) -> timedelta | Forever:
    """Parse a duration or "forever"."""
    require_decided(value)
    return FOREVER if value == "forever" else parse_duration(value)


def read_table_name(value: object) -> TableName:
    """Parse the name of a table."""
    if not isinstance(value, str):
        raise Refused(f"{written(value)} is not a table's name", "write the name in quotes")
    return TableName.parse(value)


class ValueType:
    """An annotation whose `read` parses a value for pydantic, and whose `schema` describes it."""

    def read(self, value: object) -> Any:
        raise NotImplementedError

    def schema(self) -> dict[str, Any]:
        raise NotImplementedError

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self.schema()


@dataclass(frozen=True, eq=False)  # Annotations are hashed, and a schema cannot be.
class ReadBy(ValueType):
    """A value that a function reads."""

    function: Callable[[object], Any]
    described: Mapping[str, Any]

    def read(self, value: object) -> Any:
        return self.function(value)

    def schema(self) -> dict[str, Any]:
        return dict(self.described)


@dataclass(frozen=True)
class Between(ValueType):
    """A duration within bounds; `fix` is shown for a shorter or a longer one."""

    least: timedelta = timedelta(microseconds=1)
    most: timedelta = LONGEST
    fix: str = ""

    def read(self, value: object) -> timedelta:
        require_decided(value)
        found = parse_duration(value)
        if found < self.least:
            raise Refused(f"{written(value)} is shorter than {format_duration(self.least)}", self.fix)
        if found > self.most:
            raise Refused(f"{written(value)} is longer than {format_duration(self.most)}", self.fix)
        return found

    def schema(self) -> dict[str, Any]:
        return dict(DURATION_SCHEMA)


@dataclass(frozen=True)
class Text(ValueType):
    """A text that is not blank and has no NUL character; `noun` and `fix` are shown for anything else."""

    noun: str
    fix: str = "write the name in quotes"
    most_bytes: int | None = None
    blank: bool = False
    """Whether a text of spaces is allowed: columns may be named so."""
    secret: bool = False
    """Whether the message must not repeat the value."""

    def read(self, value: object) -> str:
        require_decided(value)
        if not isinstance(value, str) or not (value if self.blank else value.strip()) or "\x00" in value:
            raise Refused(f"{'this' if self.secret else written(value)} is not {self.noun}", self.fix)
        if self.most_bytes is not None and len(value.encode(errors="replace")) > self.most_bytes:
            raise Refused(f"{self.noun} of more than {self.most_bytes:,} bytes", "write a shorter one")
        return value

    def schema(self) -> dict[str, Any]:
        longest = {} if self.most_bytes is None else {"maxLength": self.most_bytes}
        return {"type": "string", "minLength": 1, **longest}


@dataclass(frozen=True)
class ShortForm:
    """A table that may also be written as a text, which `expand` turns into the table."""

    expand: Callable[[str], object]
    noun: str
    fix: str
    description: str

    def read(self, value: object) -> object:
        if isinstance(value, str):
            return self.expand(value)
        if not isinstance(value, dict):
            raise Refused(f"{written(value)} is not {self.noun}", self.fix)
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.read, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "string", "description": self.description}, handler(schema)]}


@dataclass(frozen=True)
class PairsOf:
    """A TOML table of at least `least` entries, stored as a tuple of pairs so that it stays immutable."""

    value: Any
    least: int = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        values = handler.generate_schema(self.value)
        table = core_schema.dict_schema(core_schema.str_schema(), values, min_length=self.least or None)
        return core_schema.no_info_after_validator_function(_pairs, table)


def _pairs(table: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(table.items())


URL = Text("a URL", "write a URL or a path in quotes", secret=True)
"""The message never repeats the value, which may contain a password."""

Duration = Annotated[timedelta, Between()]
Window = Annotated[timedelta | Forever, ReadBy(read_window, WINDOW_SCHEMA)]
Url = Annotated[str, URL]
NamedTable = Annotated[TableName, ReadBy(read_table_name, {"type": "string", "minLength": 1})]
Count = Annotated[int, Field(ge=1, le=MOST_ROWS, strict=True)]
Share = Annotated[float, Field(gt=0, le=1)]
Boolean = Annotated[bool, Field(strict=True)]
