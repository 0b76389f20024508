"""The rules of the SARIF 2.1.0 schema for what Wane writes: names, types, what is required, and nothing else allowed.

The standard's own schema forbids other properties as well, so a property that it does not have fails here too.
"""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator, FormatChecker


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**properties, "properties": {"type": "object"}},
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: dict[str, Any], *, least: int = 0, unique: bool = False) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": least, "uniqueItems": unique}


_TEXT = {"type": "string"}
_MULTIFORMAT = _object(("text",), text=_TEXT, markdown=_TEXT)
_MESSAGE = {
    **_object(text=_TEXT, markdown=_TEXT, id=_TEXT, arguments=_list(_TEXT)),
    "anyOf": [{"required": ["text"]}, {"required": ["id"]}],
}
_RULE = _object(
    ("id",),
    id=_TEXT,
    name=_TEXT,
    shortDescription=_MULTIFORMAT,
    fullDescription=_MULTIFORMAT,
    help=_MULTIFORMAT,
    helpUri={"type": "string", "format": "uri"},
)
_DRIVER = _object(
    ("name",),
    name=_TEXT,
    version=_TEXT,
    semanticVersion=_TEXT,
    informationUri={"type": "string", "format": "uri"},
    rules=_list(_RULE, unique=True),
)
_REGION = _object(
    startLine={"type": "integer", "minimum": 1},
    startColumn={"type": "integer", "minimum": 1},
    endLine={"type": "integer", "minimum": 1},
    endColumn={"type": "integer", "minimum": 1},
)
_ARTIFACT = _object(
    uri={"type": "string", "format": "uri-reference"}, uriBaseId=_TEXT, index={"type": "integer", "minimum": -1}
)
_PHYSICAL = {**_object(artifactLocation=_ARTIFACT, region=_REGION), "anyOf": [{"required": ["artifactLocation"]}]}
_LOGICAL = _object(name=_TEXT, fullyQualifiedName=_TEXT, decoratedName=_TEXT, kind=_TEXT)
_LOCATION = _object(physicalLocation=_PHYSICAL, logicalLocations=_list(_LOGICAL, unique=True), message=_MESSAGE)
_SUPPRESSION = _object(
    ("kind",),
    kind={"enum": ["inSource", "external"]},
    status={"enum": ["accepted", "underReview", "rejected"]},
    justification=_TEXT,
    location=_LOCATION,
    guid=_TEXT,
)
_RESULT = _object(
    ("message",),
    ruleId=_TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level={"enum": ["none", "note", "warning", "error"]},
    kind={"enum": ["notApplicable", "pass", "fail", "review", "open", "informational"]},
    message=_MESSAGE,
    locations=_list(_LOCATION),
    suppressions=_list(_SUPPRESSION, unique=True),
)
_RUN = _object(("tool",), tool=_object(("driver",), driver=_DRIVER), results=_list(_RESULT))
_LOG = {
    "type": "object",
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": _list(_RUN),
    },
    "required": ["version", "runs"],
    "additionalProperties": False,
}


def check_sarif(document: Any) -> None:
    """Raise unless a document is a SARIF 2.1.0 log, and its results name rules that it has."""
    Draft202012Validator(_LOG, format_checker=FormatChecker()).validate(document)
    for run in document["runs"]:
        rules = [rule["id"] for rule in run["tool"]["driver"].get("rules", [])]
        assert len(rules) == len(set(rules))
        for result in run.get("results", []):
            assert rules[result["ruleIndex"]] == result["ruleId"]
