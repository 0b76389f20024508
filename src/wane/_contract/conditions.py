"""Conditions on columns of a row (`where`): one grammar for rules and followers.

A condition is true, false or unknown, as in SQL, and only a true one selects a row: a NULL selects nothing, unless the
condition names it (`null = true`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from wane._contract.refused import Refused, written
from wane._contract.values import require_decided
from wane._findings import did_you_mean
from wane._frozen import frozen

Constant = str | int | float | bool
"""A value that a column is compared with."""

SIGNS = ("=", "not", "<", "<=", ">", ">=")
_ORDERED = SIGNS[2:]
_OPPOSITE = {"=": ("not", "<", ">"), "not": ("=",), "<": ("=", ">", ">="), ">": ("=", "<", "<=")}
_OPPOSITE |= {"<=": (">",), ">=": ("<",)}
"""Comparisons with the same column that are never true together."""


@frozen
class Comparison:
    """A comparison of a column with constants, or with another column of the same row.

    `=` is true for one of the constants, `not` for none of them; the others have one constant.
    """

    sign: str
    values: tuple[Constant, ...] = ()
    column: str | None = None


@frozen
class Condition:
    """What a column must fulfil: every comparison, or, with `null`, to be NULL.

    Without comparisons `null` decides alone: NULL, or not NULL.
    """

    comparisons: tuple[Comparison, ...] = ()
    null: bool | None = None

    @property
    def constant(self) -> Constant | None:
        """Return the one value that the column must have; None if the condition is another."""
        match self.comparisons:
            case (Comparison("=", (value,), None),) if self.null is None:
                return value
        return None


Conditions = tuple[tuple[str, Condition], ...]
"""Columns, by their names in order, and what each must fulfil."""


def equal_to(value: Constant) -> Condition:
    """Return the condition that a column has a value."""
    return Condition((Comparison("=", (value,)),))


# Reading


def read_condition(value: object) -> Condition:
    """Parse a condition: a value, a list of values, or a table of comparisons."""
    require_decided(value)
    if not isinstance(value, dict):
        return Condition((_comparison("=", value),))
    if set(value) == {"column"}:
        return Condition((_comparison("=", value),))
    for key in value:
        if key not in (*SIGNS, "null"):
            hint = did_you_mean(key, (*SIGNS, "null"))
            raise Refused(f"unknown comparison {written(key)}", f"{hint} allowed: {', '.join(SIGNS)}, null".strip())
    null = value.get("null")
    if null is not None and not isinstance(null, bool):
        raise Refused(f"null = {written(null)} is neither true nor false", "write null = true or null = false")
    comparisons = tuple(_comparison(sign, value[sign]) for sign in SIGNS if sign in value)
    if not comparisons and null is None:
        raise Refused("is empty", 'write a value, a list, or comparisons such as { not = "…" } or { ">=" = 5 }')
    if comparisons and null is False:
        raise Refused("a comparison is never true for NULL", "remove `null = false`")
    condition = Condition(comparisons, null)
    if comparisons and _never(condition):
        raise Refused("no value fulfils all of its comparisons", "remove one of them")
    return condition


def _comparison(sign: str, value: object) -> Comparison:
    require_decided(value)
    if isinstance(value, dict):
        if set(value) != {"column"} or not isinstance(value["column"], str) or not value["column"]:
            raise Refused("a table is not a value", 'write a constant, or { column = "…" } for another column')
        require_decided(value["column"])
        return Comparison(sign, column=value["column"])
    values = tuple(_constant(one) for one in (value if isinstance(value, list) else [value]))
    if not values:
        raise Refused("empty", "name at least one value")
    if len({_kind(one) for one in values}) > 1:
        raise Refused("values of different types", "a column holds texts, numbers or booleans")
    if len(set(values)) != len(values):
        raise Refused("a value is listed twice", "list it once")
    if sign in _ORDERED and (isinstance(value, list) or _kind(values[0]) != "number"):
        raise Refused(
            f"{sign} needs a number, and found {written(value)}", "write one, or another column: { column = … }"
        )
    if sign == "not" and _kind(values[0]) == "boolean":
        if len(values) > 1:
            raise Refused("no value fulfils it", "leave one of true and false out")
        return Comparison("=", (not values[0],))
    return Comparison(sign, values)


def _constant(value: object) -> Constant:
    require_decided(value)
    if not isinstance(value, str | int | float | bool):
        raise Refused(f"{written(value)} is not a value", "use texts, numbers or booleans")
    if isinstance(value, float) and not math.isfinite(value):
        raise Refused(f"{written(value)} is not a value", "use a finite number")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise Refused(f"{written(value)} is not a value", "no column holds a number of more than 64 bits")
    if isinstance(value, str) and "\x00" in value:
        raise Refused(f"{written(value)} is not a value", "no column holds a text with a NUL character")
    return value


def _kind(value: Constant) -> str:
    return "text" if isinstance(value, str) else "boolean" if isinstance(value, bool) else "number"


_CONSTANT_SCHEMA: dict[str, Any] = {"type": ["string", "number", "boolean"]}
_LIST_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "array", "items": {"type": kind}, "minItems": 1, "uniqueItems": True}
        for kind in ("string", "number", "boolean")
    ]
}
_COLUMN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"column": {"type": "string", "minLength": 1, "description": "Another column of the same row."}},
    "required": ["column"],
    "additionalProperties": False,
}
CONDITION_SCHEMA: dict[str, Any] = {
    "anyOf": [
        _CONSTANT_SCHEMA,
        *_LIST_SCHEMA["anyOf"],
        _COLUMN_SCHEMA,
        {
            "type": "object",
            "properties": {
                **{
                    sign: {"anyOf": [_CONSTANT_SCHEMA, *_LIST_SCHEMA["anyOf"], _COLUMN_SCHEMA]} for sign in ("=", "not")
                },
                **{sign: {"anyOf": [{"type": "number"}, _COLUMN_SCHEMA]} for sign in _ORDERED},
                "null": {"type": "boolean", "description": "Whether NULL fulfils it too; alone, whether it is NULL."},
            },
            "minProperties": 1,
            "additionalProperties": False,
        },
    ]
}


# Describing


def described(conditions: Conditions) -> str:
    """Format conditions in words."""
    return " and ".join(_described(column, condition) for column, condition in conditions)


def _described(column: str, condition: Condition) -> str:
    if not condition.comparisons:
        return f"{column} is {'' if condition.null else 'not '}NULL"
    words = " and ".join(f"{column} {_compared(one)}" for one in condition.comparisons)
    return f"({column} is NULL or {words})" if condition.null else words


def _compared(one: Comparison) -> str:
    if one.column is not None:
        return f"{one.sign} column {one.column}"
    values = " or ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in one.values)
    return f"{one.sign} {values}"


# Whether two conditions can be true for the same row


def disjoint(one: Conditions, other: Conditions) -> bool:
    """Return whether it is certain that no row fulfils both."""
    theirs = dict(other)
    return any(name in theirs and _exclude(mine, theirs[name]) for name, mine in one)


def _exclude(one: Condition, other: Condition) -> bool:
    if _admits_null(one) and _admits_null(other):
        return False
    if _only_null(one) or _only_null(other):
        return True
    return _never(Condition((*one.comparisons, *other.comparisons)))


def _admits_null(condition: Condition) -> bool:
    return condition.null is True


def _only_null(condition: Condition) -> bool:
    return condition.null is True and not condition.comparisons


def _never(condition: Condition) -> bool:
    """Return whether it is certain that no value fulfils all comparisons."""
    comparisons = condition.comparisons
    columns = [(one.sign, one.column) for one in comparisons if one.column is not None]
    if any(column == theirs and other in _OPPOSITE[sign] for sign, column in columns for other, theirs in columns):
        return True
    constant = [one for one in comparisons if one.column is None]
    wanted = [one.values for one in constant if one.sign == "="]
    if wanted:
        return not any(all(_fulfils(value, one) for one in constant) for value in wanted[0])
    return _empty_range(constant)


def _fulfils(value: Constant, one: Comparison) -> bool:
    # A boolean is a number in SQLite: both may be the same value of one column.
    alike = [other for other in one.values if isinstance(other, str) == isinstance(value, str)]
    if one.sign in ("=", "not"):
        return (value in alike) == (one.sign == "=")
    # An order of values of different kinds is unknown, which excludes nothing.
    return not alike or _ordered(value, one.sign, alike[0])


def _ordered(value: Any, sign: str, bound: Any) -> bool:
    return bool(
        {"<": value < bound, "<=": value <= bound, ">": value > bound, ">=": value >= bound}[sign],
    )


def _empty_range(comparisons: Sequence[Comparison]) -> bool:
    """Return whether bounds leave no number between them."""
    return any(
        low.values[0] > high.values[0]  # type: ignore[operator]
        or (low.values[0] == high.values[0] and (low.sign == ">" or high.sign == "<"))
        for low in _bounds(comparisons, ">")
        for high in _bounds(comparisons, "<")
    )


def _bounds(comparisons: Sequence[Comparison], sign: str) -> Iterator[Comparison]:
    return (one for one in comparisons if one.sign.startswith(sign))
