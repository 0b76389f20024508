"""The contract file as a JSON Schema, for editors that complete and check while a user types.

It is composed from the same models that read the file. It covers the shape of a file; the constraints between its parts
(windows that exist, states that are covered, floors) are checked by `wane check`, so a file that passes here may still
have mistakes.
"""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import core_schema

from wane._contract.entries import (
    AcceptEntry,
    ArchiveTableEntry,
    Entry,
    ExcuseEntry,
    GuardEntry,
    PartitionEntry,
    RuleEntry,
    SchedulerEntry,
    TableEntry,
)
from wane._contract.model import ExcuseKind
from wane._contract.settings import SECTIONS, Section
from wane._contract.values import Duration, Url, Window

_MODELS: tuple[type[Entry | Section], ...] = (
    AcceptEntry,
    ArchiveTableEntry,
    ExcuseEntry,
    GuardEntry,
    PartitionEntry,
    RuleEntry,
    SchedulerEntry,
    TableEntry,
    *SECTIONS.values(),
)
_NAME = {"minLength": 1}


def json_schema() -> dict[str, Any]:
    """Build the JSON Schema (draft 2020-12) of a contract file."""
    adapters: list[tuple[str, JsonSchemaMode, TypeAdapter[Any]]] = [
        (model.__name__, "validation", TypeAdapter(model)) for model in _MODELS
    ]
    _, definitions = TypeAdapter.json_schemas(adapters, schema_generator=_Generator, ref_template="#/$defs/{model}")
    models: dict[str, Any] = definitions["$defs"]
    _require_combinations(models)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Wane contract",
        "description": "How every table of a database is bounded.",
        "type": "object",
        "properties": _properties(),
        "additionalProperties": False,
        "$defs": models,
    }


def _require_combinations(models: dict[str, Any]) -> None:
    """Add what keys require of each other."""
    rule, table = models["RuleEntry"], models["TableEntry"]
    _one_of(rule, ("keep", "expires", "most"))
    _one_of(models["RuleTimeEntry"], ("column", "first", "latest"))
    _one_of(models["SchedulerEntry"], ("every", "cron"))
    _one_of(models["GuardEntry"], ("referenced_by", "null", "not_null"))
    _one_of(models["ExcuseEntry"], tuple(kind.value for kind in ExcuseKind))
    rule["dependentRequired"] = {
        "orphans": ["keep"],
        "longer": ["keep"],
        "per": ["most"],
        "by": ["most"],
        "derived": ["most"],
    }
    rule["not"] = {"anyOf": [{"required": [key, "spare"]} for key in ("most", "orphans")]}
    table["description"] = "One table's life."
    table["properties"]["rule"] = {**_named(_to("RuleEntry")), "minProperties": 1, "description": "Its promises."}
    table["required"] = [*table["required"], "rule"]
    table["dependentRequired"] = {"state": ["live"], "live": ["state"], "excused": ["state"]}


def _properties() -> dict[str, Any]:
    """Describe the keys and sections of the file."""
    return {
        "include": {
            "type": "array",
            "items": {"type": "string", **_NAME},
            "uniqueItems": True,
            "description": 'Files to include, "reference:<name>" or "catalogue:<name>".',
        },
        "strict": {"type": "boolean", "description": "A table that the contract does not mention is an error."},
        **{name: _to(section.__name__) for name, section in SECTIONS.items()},
        "scheduler": {**_named(_to("SchedulerEntry")), "description": "Who sweeps, and when."},
        "window": {**_named(_value(Window)), "description": "Durations with a name."},
        "floor": {**_named(_value(Duration)), "description": "Minimums that no rule of a table may undercut."},
        "table": {**_named(_to("TableEntry")), "description": "Tables with rules."},
        "excused": {
            **_named(
                {
                    "anyOf": [
                        _to("ExcuseEntry"),
                        {"const": False, "description": "Removes the excuse of an included file."},
                    ]
                }
            ),
            "description": "Tables without rules, and why; `*` stands for any characters.",
        },
        "accept": {
            "type": "array",
            "items": _to("AcceptEntry"),
            "description": "Findings that are accepted, and why.",
        },
        "archive": {
            **_named(_to("ArchiveTableEntry")),
            "properties": {
                "url": {
                    **_value(Url),
                    "description": "A path, a file URL, or a prefix of an object store: s3://, gs:// or az://.",
                },
                "shared": {
                    "type": "boolean",
                    "description": "Whether several databases share the archive's tables, each in a partition of its own.",
                },
            },
            "description": "Where archived rows go, and how long the archive keeps those of each table.",
        },
        "partition": {**_named(_to("PartitionEntry")), "description": "PostgreSQL: tables that are partitioned."},
    }


class _Generator(GenerateJsonSchema):
    """Leaves out nulls and defaults: TOML has no null, and omits absent values."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _to(model: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{model}"}


def _named(value: dict[str, Any]) -> dict[str, Any]:
    """Build the schema of a table whose keys are names that users choose."""
    return {"type": "object", "propertyNames": _NAME, "additionalProperties": value}


def _value(kind: Any) -> dict[str, Any]:
    return TypeAdapter(kind).json_schema(schema_generator=_Generator)


def _one_of(model: dict[str, Any], keys: tuple[str, ...]) -> None:
    model["oneOf"] = [{"required": [key]} for key in keys]
