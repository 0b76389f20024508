"""A fingerprint of what a contract promises: equal if and only if the same rows would leave at the same time.

It is computed from the resolved contract, so comments, the order of keys, prose, the names of windows and the
database's address do not change it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from wane._contract.conditions import Condition
from wane._contract.model import Contract, Rule
from wane._contract.names import TableName
from wane._contract.settings import Budget, Settings

_UNORDERED = {
    "excused",
    "floors",
    "schedulers",
    "archive",
    "partitions",
    "live",
    "states",
    "guards",
    "all_but",
    "values",
}
"""Fields whose order has no meaning. Tables and rules are not among them: they run in the order of the file."""

_PROSE = {
    "why",
    "inline",
    "observe",
    "age",
    "reason",
    "path",
    "accepted",
    "positions",
    "windows",
    "strict",
    "archive_url",
    "archive_shared",
    "ahead",
    "lock",
    "least_rows",
    "longest_wait",
}
_SETTINGS = {section.name for section in dataclasses.fields(Settings)}
"""Settings of the whole contract decide nothing; a rule's own budget, which has the same name as a section, does."""

_LATER = {
    *("partitions", "live_leaves", "also", "cron", "within"),
    *(
        "all_but",
        "conditions",
        "spare",
        "missing",
        "by",
        "beside",
        "pick",
        "child",
        "parent",
        "longer",
        "unlinked",
        "made_by",
        "transform",
        "select",
        "erases_absent",
        "renamed",
    ),
}
"""Fields that were added later; they are omitted while empty, so that older contracts retain their fingerprints."""


def fingerprint(contract: Contract) -> str:
    """Return the first 16 hex digits of a SHA-256 over the promises."""
    return _digest(contract)


def rule_fingerprint(rule: Rule) -> str:
    """Return the same of one rule: it changes with the rows that leave and when they do, but not with the budget."""
    return _digest(replace(rule, budget=Budget()))


def _digest(promises: Contract | Rule) -> str:
    return hashlib.sha256(_text(_plain(promises)).encode()).hexdigest()[:16]


def _field(name: str, value: Any) -> Any:
    plain = _plain(value)
    return sorted(plain, key=_text) if name in _UNORDERED else plain


def _text(plain: Any) -> str:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, TableName):
        return str(value)
    if isinstance(value, Condition) and value.constant is not None:
        return value.constant
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        omitted = _PROSE | _SETTINGS if isinstance(value, Contract) else _PROSE
        names = [
            field.name
            for field in dataclasses.fields(value)
            if field.name not in omitted and (field.name not in _LATER or getattr(value, field.name))
        ]
        return {"is": type(value).__name__, **{name: _field(name, getattr(value, name)) for name in names}}
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value
