"""One request, as pages and endpoints read it: its values are checked here, with the messages of the rest of Wane."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl

from wane._arguments import require_limit, require_text
from wane._keeper import Keeper
from wane.errors import WrongArgument
from wane.web._access import Identity
from wane.web._jobs import ArchiveJobs
from wane.web._shared_health import SharedHealth

ALL = "all tables"
"""What confirms an action on every table."""
OLDEST_PLAN = timedelta(hours=1)
"""An action takes a plan that is younger."""
_MOST_FIELDS = 200
_MOST_TEXT = 10_000
_WHOLE = re.compile(r"-?[0-9]{1,18}")
"""A whole number that every store can hold."""


@dataclass(frozen=True, slots=True)
class WebCall:
    """A request, and who made it."""

    identity: Identity
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)
    jobs: ArchiveJobs = field(kw_only=True)
    health: SharedHealth = field(kw_only=True)
    cross_site: bool = False
    """Whether a page of another site sent it, as the browser reports."""

    @property
    def actor(self) -> str:
        """Return the name under which the audit trail records what the caller does."""
        return f"{self.identity.name} (web)"

    def as_actor(self, keeper: Keeper) -> Keeper:
        """Return a keeper whose actions the audit trail records under the name of the caller."""
        return Keeper(keeper.contract, keeper.store, actor=self.actor)

    def text(self, name: str) -> str | None:
        """Return a value of the address or of the body; None if it is missing or empty."""
        value = self.query.get(name, self.body.get(name))
        if value is not None and not isinstance(value, str):
            raise WrongArgument(f"{name} must be a text, not {value!r}")
        return require_text(name, value, most=_MOST_TEXT) if value else None

    def required(self, name: str) -> str:
        """Return a value that must be there."""
        value = self.text(name)
        if value is None:
            raise WrongArgument(f"{name} is missing", f"give `{name}`")
        return value

    def whole(self, name: str) -> int | None:
        """Return a whole number; None if it is missing."""
        value = self.query.get(name, self.body.get(name))
        if value is None or value == "":
            return None
        text = str(value)
        return int(text) if _WHOLE.fullmatch(text) else _refuse(name, value)

    def limit(self, default: int = 50, most: int = 1_000) -> int:
        """Return how many items a page has."""
        given = self.whole("limit")
        return require_limit(default if given is None else given, most)


def _refuse(name: str, value: object) -> int:
    raise WrongArgument(f"{name} must be a whole number, not {str(value)[:80]!r}")


def parse_body(content: bytes, kind: str) -> dict[str, Any]:
    """Return the values of a form or of a JSON object; raise WrongArgument for anything else."""
    if not content:
        return {}
    try:
        text = content.decode("utf-8")
        if kind.startswith("application/x-www-form-urlencoded"):
            return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, strict_parsing=True))
        value = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise WrongArgument("the body is neither a form nor JSON", "send a JSON object") from problem
    if not isinstance(value, dict):
        raise WrongArgument("the body is no JSON object", "send a JSON object")
    return value


def parse_key_text(text: str) -> object:
    """Return a key as people type it: a value, or COLUMN=VALUE for each column, separated by commas."""
    pairs = [one.partition("=") for one in text.split(",")]
    if all(equals and column.strip() for column, equals, _ in pairs):
        return {column.strip(): value for column, _, value in pairs}
    return text


def parse_key_columns(text: str, key: Sequence[str] = ()) -> Mapping[str, str]:
    """Return a key by its columns; refuse a value without its column, unless the `key` has only one."""
    parsed = parse_key_text(text)
    if not isinstance(parsed, Mapping):
        if len(key) == 1:
            return {key[0]: text}
        raise WrongArgument("the key has no column", "write COLUMN=VALUE for each column, separated by commas")
    return parsed


def require_confirmed(call: WebCall, table: str | None) -> None:
    """Raise unless the caller typed the table's name."""
    wanted = ALL if table is None else table
    if call.text("confirm") != wanted:
        raise WrongArgument(f"this is confirmed by {wanted!r}", f"give `confirm` as {wanted!r}")
