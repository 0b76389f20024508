"""Findings for machines that show them beside the code: annotations of GitHub Actions, and SARIF for code scanning."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from wane import __version__
from wane._check.explain import Explanation, explanations
from wane._findings import Finding, Severity

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_REFERENCE = "reference:"


class FindingFormat(StrEnum):
    """How `wane check` prints findings."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


def workflow_commands(findings: Sequence[Finding], contract: Path) -> str:
    """Write a workflow command for each finding, on a line of its own."""
    lines = []
    for one in findings:
        file, line = _position(one, contract)
        where = {"file": file, "line": line, "title": one.code}
        properties = ",".join(f"{key}={_property(str(value))}" for key, value in where.items() if value is not None)
        level = _COMMANDS[one.severity if one.accepted is None else Severity.NOTE]
        lines.append(f"::{level} {properties}::{_data(_text(one))}\n")
    return "".join(lines)


def sarif(findings: Sequence[Finding], contract: Path) -> dict[str, Any]:
    """Return a SARIF 2.1.0 document; a rule of it is the code of a finding."""
    codes = list(dict.fromkeys(one.code for one in findings))
    driver = {"name": "wane", "version": __version__, "rules": [_rule(explanations()[code]) for code in codes]}
    results = [
        {
            "ruleId": one.code,
            "ruleIndex": codes.index(one.code),
            "level": one.severity.value,
            "message": {"text": _text(one)},
            "locations": [_location(one, contract)],
            **_suppressed(one),
        }
        for one in findings
    ]
    return {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def _suppressed(finding: Finding) -> dict[str, Any]:
    """Return the suppression of a finding that the contract accepts."""
    if finding.accepted is None:
        return {}
    return {"suppressions": [{"kind": "inSource", "status": "accepted", "justification": finding.accepted}]}


def _rule(one: Explanation) -> dict[str, Any]:
    return {
        "id": one.code,
        "shortDescription": {"text": one.means},
        "fullDescription": {"text": f"{one.means} {one.why}"},
        "help": {"text": f"{one.fix}\n\n{one.example.strip()}"},
    }


def _location(finding: Finding, contract: Path) -> dict[str, Any]:
    file, line = _position(finding, contract)
    physical: dict[str, Any] = {"artifactLocation": {"uri": quote(file)}}
    if line is not None:
        physical["region"] = {"startLine": line}
    logical = finding.path or finding.table
    return {
        "physicalLocation": physical,
        **({"logicalLocations": [{"fullyQualifiedName": logical}]} if logical else {}),
    }


def _text(finding: Finding) -> str:
    about = finding.path or finding.table
    message = f"{about}: {finding.message}" if about else finding.message
    if finding.accepted is not None:
        return f"{message}\naccepted: {finding.accepted}"
    return f"{message}\nfix: {finding.fix}" if finding.fix else message


def _position(finding: Finding, contract: Path) -> tuple[str, int | None]:
    """Return the finding's file, relative to the working directory where it is below it, and its line.

    What is in no file of the user's is shown at the contract.
    """
    own = bool(finding.file) and not finding.file.startswith(_REFERENCE)
    path, here = Path(finding.file) if own else contract, Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return shown.as_posix(), finding.line if own else None


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
