"""Values as JSON: what the API answers, without secrets."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Any

_SECRET = ("token_hash", "token", "secret")
"""Fields that are never written. A reservation's token is added by the one endpoint that grants it."""


def plain(value: Any) -> Any:
    """Return a value as JSON has it: objects by their own documents, or by their fields, times in ISO 8601,
    durations in seconds."""
    if hasattr(value, "as_dict"):
        return plain(value.as_dict())
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value) if one.name not in _SECRET}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items() if key not in _SECRET}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def as_json(value: Any) -> bytes:
    """Write a value as a JSON document."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False).encode()
