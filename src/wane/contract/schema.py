"""The contract file as a JSON Schema, for editors that complete and check while a user types.

It is composed from the same models that read the file. It covers the shape of a file; the constraints between its parts
(windows that exist, states that are covered, floors) are checked by `wane check`, so a file that passes here may still
have mistakes.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from wane.contract.document import (
    ArchiveTablePiece,
    BudgetPiece,
    Duration,
    ExcusePiece,
    GuardPiece,
    HealthPiece,
    Piece,
    QueuePiece,
    RulePiece,
    SchedulerPiece,
    SparkPiece,
    StorePiece,
    SweepPiece,
    TablePiece,
    Url,
    Window,
)
from wane.contract.model import ExcuseKind
from wane.contract.sections import EventsPiece, GrowthPiece, PartitionPiece, RolesPiece, SpacePiece, UpkeepPiece

_PIECES: tuple[type[Piece], ...] = (
    ArchiveTablePiece,
    BudgetPiece,
    ExcusePiece,
    GuardPiece,
    HealthPiece,
    RulePiece,
    SchedulerPiece,
    SparkPiece,
    StorePiece,
    QueuePiece,
    SweepPiece,
    TablePiece,
    GrowthPiece,
    SpacePiece,
    RolesPiece,
    EventsPiece,
    UpkeepPiece,
    PartitionPiece,
)
_NAME = {"minLength": 1}


def json_schema() -> dict[str, Any]:
    """Build the JSON Schema (draft 2020-12) of a contract file."""
    _, definitions = models_json_schema(
        [(piece, "validation") for piece in _PIECES], schema_generator=_Generator, ref_template="#/$defs/{model}"
    )
    pieces: dict[str, Any] = definitions["$defs"]
    _one_of(pieces["RulePiece"], ("keep", "expires", "most"))
    _one_of(pieces["GuardPiece"], ("referenced_by", "null", "not_null"))
    _one_of(pieces["ExcusePiece"], tuple(kind.value for kind in ExcuseKind))
    pieces["RulePiece"]["dependentRequired"] = {"orphans": ["keep"], "per": ["most"], "derived": ["most"]}
    for piece in ("RulePiece", "FollowerPiece"):
        short = {"type": "string", "description": "table.column or schema.table.column"}
        pieces[piece]["properties"]["with"]["items"] = {"anyOf": [short, _to("FollowerPiece")]}
    table = pieces["TablePiece"]
    table["description"] = "One table's life."
    table["properties"]["rule"] = {**_named(_to("RulePiece")), "minProperties": 1, "description": "Its promises."}
    table["required"] = [*table["required"], "rule"]
    table["dependentRequired"] = {"state": ["live"], "live": ["state"], "excused": ["state"]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Wane contract",
        "description": "How every table of a database is bounded.",
        "type": "object",
        "properties": {
            "include": {
                "type": "array",
                "items": {"type": "string", **_NAME},
                "uniqueItems": True,
                "description": 'Files to include, or "reference:<name>".',
            },
            "strict": {"type": "boolean", "description": "A table that nobody mentions is an error."},
            "store": _to("StorePiece"),
            "scheduler": {**_named(_to("SchedulerPiece")), "description": "Who sweeps, how often."},
            "window": {**_named(_value(Window)), "description": "Durations with a name."},
            "floor": {**_named(_value(Duration)), "description": "Minimums that no rule of a table may undercut."},
            "budget": _to("BudgetPiece"),
            "sweep": _to("SweepPiece"),
            "queue": _to("QueuePiece"),
            "health": _to("HealthPiece"),
            "growth": _to("GrowthPiece"),
            "space": _to("SpacePiece"),
            "roles": _to("RolesPiece"),
            "events": _to("EventsPiece"),
            "upkeep": _to("UpkeepPiece"),
            "table": {**_named(_to("TablePiece")), "description": "Tables with rules."},
            "excused": {
                **_named(
                    {
                        "anyOf": [
                            _to("ExcusePiece"),
                            {"const": False, "description": "Removes the excuse of an included file."},
                        ]
                    }
                ),
                "description": "Tables without rules, and why.",
            },
            "archive": {
                **_named(_to("ArchiveTablePiece")),
                "properties": {"url": {**_value(Url), "description": "The cold place: a URL or a path."}},
                "description": "The cold place, and how long it keeps the rows of each table.",
            },
            "partition": {**_named(_to("PartitionPiece")), "description": "PostgreSQL: tables that are partitioned."},
            "spark": _to("SparkPiece"),
        },
        "additionalProperties": False,
        "$defs": pieces,
    }


class _Generator(GenerateJsonSchema):
    """Leaves out nulls and defaults: TOML has no null, and omits absent values."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _to(piece: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{piece}"}


def _named(value: dict[str, Any]) -> dict[str, Any]:
    """Build the schema of a table whose keys are names that users choose."""
    return {"type": "object", "propertyNames": _NAME, "additionalProperties": value}


def _value(kind: Any) -> dict[str, Any]:
    return TypeAdapter(kind).json_schema(schema_generator=_Generator)


def _one_of(piece: dict[str, Any], keys: tuple[str, ...]) -> None:
    piece["oneOf"] = [{"required": [key]} for key in keys]
