"""Conditions that users write, in Spark's SQL: parsed into a tree, and refused unless every part of it only reads the
row.

Spark's conditions can do far more than compare: read other tables and files, call Java, read its settings. So a tree is
accepted by an allowlist of its parts, never by a list of what is forbidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from wane._archive.paths import local_path
from wane.errors import Unproven, WaneError, WrongArgument

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_CHARACTERS = 100_000
_PACKAGE = "org.apache.spark.sql.catalyst."
_FUNCTION, _COLUMN = f"{_PACKAGE}analysis.UnresolvedFunction", f"{_PACKAGE}analysis.UnresolvedAttribute"
_PARTS = {
    f"{_PACKAGE}expressions.{name}"
    for name in (
        *("And", "Or", "Not", "Literal", "Cast", "CaseWhen", "In", "IsNull", "IsNotNull"),
        *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
        *("Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder", "UnaryMinus", "UnaryPositive"),
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"),
        *("Like", "RLike", "LikeAny", "LikeAll", "NotLikeAny", "NotLikeAll", "Lower", "StringLocate"),
        *("Concat", "Substring", "StringTrim", "StringTrimLeft", "StringTrimRight", "CreateNamedStruct"),
        *("TimestampAdd", "TimestampDiff"),
    )
}
_FUNCTIONS = {
    *("between", "coalesce", "ifnull", "nvl", "nvl2", "nullif", "if", "isnull", "isnotnull", "isnan", "nanvl"),
    *("upper", "lower", "ucase", "lcase", "length", "char_length", "character_length", "octet_length", "trim", "ltrim"),
    *("rtrim", "substr", "substring", "left", "right", "concat", "replace", "instr", "locate", "position", "contains"),
    *("startswith", "endswith", "like", "ilike", "rlike", "regexp", "regexp_like", "split_part", "reverse", "ascii"),
    *(
        "abs",
        "ceil",
        "ceiling",
        "floor",
        "round",
        "sign",
        "signum",
        "mod",
        "pmod",
        "greatest",
        "least",
        "sqrt",
        "power",
    ),
    *("date", "timestamp", "to_date", "to_timestamp", "date_trunc", "trunc", "year", "quarter", "month", "day"),
    *(
        "dayofmonth",
        "dayofweek",
        "weekday",
        "dayofyear",
        "hour",
        "minute",
        "second",
        "extract",
        "date_part",
        "datepart",
    ),
    *("date_add", "date_sub", "dateadd", "datediff", "date_diff", "add_months", "months_between", "last_day"),
    *("timestamp_seconds", "timestamp_millis", "timestamp_micros", "unix_seconds", "unix_millis", "unix_micros"),
    *("unix_timestamp", "from_unixtime", "date_format", "current_date", "current_timestamp", "now"),
    *("hex", "unhex", "md5", "sha2", "hash", "xxhash64", "get_json_object"),
    *("int", "bigint", "double", "decimal", "string", "boolean", "binary"),
}
_NAMED = re.compile(r"\[[A-Z][A-Z_.]+\]")
"""How Spark names its errors."""
_UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE\.\w+\] Encountered error while reading file (?:file:(?://)?)?(.+?\.parquet)"
)
_WITHOUT_BRACKETS = ("current_date", "current_timestamp", "now")
_HINT = "a condition compares columns and values, for example \"id < 10 AND body LIKE '%error%'\""


def matching(frame: DataFrame, where: str) -> DataFrame:
    """Return the rows of a frame that meet a condition.

    Raise WrongArgument if it cannot be parsed, or does more than read them.
    """
    require_short(where)
    try:
        tree = frame.sparkSession._jsparkSession.sessionState().sqlParser().parseExpression(where)
        _require_harmless(tree, frame.columns)
        return frame.where(where)
    except spark_errors() as problem:
        raise refused(problem, frame.columns) from None


def require_short(where: str) -> None:
    """Raise WrongArgument if a condition is longer than any that a person would write."""
    if len(where) > _MOST_CHARACTERS:
        raise WrongArgument(f"the condition is longer than {_MOST_CHARACTERS:,} characters", _HINT)


def unknown_column(name: str, columns: Sequence[str]) -> WrongArgument:
    """Build the error for a condition that names a column that does not exist."""
    return WrongArgument(f"the archive cannot be asked that: it has no column {name}", f"columns: {', '.join(columns)}")


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that Spark raises: most are its own, some are Java's."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JJavaError


def refused(problem: Exception, columns: Sequence[str]) -> WaneError:
    """Build the error for what Spark refused, in one line."""
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    unreadable = _UNREADABLE.search(str(problem))
    if unreadable is not None:
        return Unproven(f"{local_path(unreadable[1])} cannot be trusted", "`wane archive verify` checks all files")
    named = [line[line.index("[") :] for line in lines if _NAMED.search(line)]
    reason = (named or lines or [type(problem).__name__])[0]
    return WrongArgument(f"the archive cannot be asked that: {reason}", f"columns: {', '.join(columns)}")


def _require_harmless(tree: Any, columns: Sequence[str]) -> None:
    known = {name.lower() for name in columns}
    for part in _walk(tree):
        kind = part.getClass().getName()
        if kind in _PARTS:
            continue
        if kind == _COLUMN:
            name = part.nameParts().mkString("\0").lower()
            if name in known or name in _WITHOUT_BRACKETS:
                continue
            raise unknown_column(name.replace("\0", "."), columns)
        if kind == _FUNCTION:
            name = part.nameParts().mkString(".").lower()
            if name in _FUNCTIONS:
                continue
            raise WrongArgument(f"the archive cannot be asked that: {name}() is not allowed in a condition", _HINT)
        what = kind.rpartition(".")[2].removesuffix("$")
        raise WrongArgument(f"the archive cannot be asked that: {what} is not allowed in a condition", _HINT)


def _walk(part: Any) -> Iterator[Any]:
    yield part
    children = part.children()
    for number in range(children.size()):
        yield from _walk(children.apply(number))
