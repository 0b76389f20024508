"""Expressions that users write, in Spark's SQL: read word by word, and refused unless every word only reads the row.

Conditions of queries are such expressions, and so are the columns of a projection. Spark's expressions can do far more
than compare: read other tables and files, aggregate rows, call Java, read its settings. So one is accepted by an
allowlist of its words, never by a list of what is forbidden. Spark splits a text into words by the same rules, and
parses what was accepted; no query, no other table and no other function can be written with these words. No Java is
needed for it, so it is the same over Spark Connect.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<comment>--|/\*)
      | (?P<raw>[rR]['"])
      | (?P<text>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
      | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:BD|bd|[LlSsYyDdFf])?)(?![\w.])
      | (?P<word>[^\W0-9]\w*)
      | `(?P<quoted>(?:[^`]|``)+)`
      | (?P<sign><=>|<=|>=|<>|!=|==|::|\|\||[=<>(),+\-*/%&|^~!])""",
    re.VERBOSE | re.DOTALL,
)
_FUNCTIONS = {
    *("between", "coalesce", "ifnull", "nvl", "nvl2", "nullif", "if", "isnull", "isnotnull", "isnan", "nanvl"),
    *("upper", "lower", "ucase", "lcase", "length", "char_length", "character_length", "octet_length", "trim", "ltrim"),
    *("rtrim", "substr", "substring", "left", "right", "concat", "replace", "instr", "locate", "position", "contains"),
    *("concat_ws", "lpad", "rpad", "initcap", "translate", "mask", "regexp_replace", "regexp_extract"),
    *("substring_index", "base64", "unbase64", "sha", "sha1", "crc32", "try_divide", "bround"),
    *("startswith", "endswith", "like", "ilike", "rlike", "regexp", "regexp_like", "split_part", "reverse", "ascii"),
    *("abs", "ceil", "ceiling", "floor", "round", "sign", "signum", "mod", "pmod", "greatest", "least", "sqrt"),
    *("power", "date", "timestamp", "to_date", "to_timestamp", "date_trunc", "trunc", "year", "quarter", "month"),
    *("day", "dayofmonth", "dayofweek", "weekday", "dayofyear", "hour", "minute", "second", "extract", "date_part"),
    *("datepart", "date_add", "date_sub", "dateadd", "datediff", "date_diff", "timestampadd", "timestampdiff"),
    *("add_months", "months_between", "last_day", "timestamp_seconds", "timestamp_millis", "timestamp_micros"),
    *("unix_seconds", "unix_millis", "unix_micros", "unix_timestamp", "from_unixtime", "date_format"),
    *("current_date", "current_timestamp", "now", "hex", "unhex", "md5", "sha2", "hash", "xxhash64"),
    *("get_json_object", "cast", "try_cast", "int", "bigint", "double", "decimal", "string", "boolean", "binary"),
    *("dec", "numeric", "char", "varchar"),
}
_BEFORE_BRACKETS = {
    *("and", "or", "not", "in", "between", "is", "like", "ilike", "rlike", "regexp", "any", "some", "all", "case"),
    *("when", "then", "else", "div", "distinct", "from", "for", "interval"),
}
_WORDS = {
    *_BEFORE_BRACKETS,
    *("null", "true", "false", "end", "as", "escape", "both", "leading", "trailing"),
    *("current_date", "current_timestamp", "now"),
    *("int", "integer", "bigint", "long", "smallint", "short", "tinyint", "byte", "float", "real", "double", "decimal"),
    *("dec", "numeric", "string", "boolean", "binary", "date", "timestamp", "timestamp_ntz", "timestamp_ltz", "to"),
    *("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond"),
    *("years", "quarters", "months", "weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds"),
    *("dayofweek", "dayofyear", "doy", "dow"),
}
_BEGINS_A_QUERY = {"select", "table", "values", "with", "map", "reduce", "exists", "lateral", "insert"}
"""Words that begin a query: they are the name of a column only in backquotes."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of an expression: its kind, its text without quotes of a name, where it begins, and where it ends."""

    kind: str
    text: str
    start: int = 0
    end: int = 0


class ForbiddenWord(Exception):
    """An expression has a word that may do more than read the row."""


class NoSuchColumn(Exception):
    """An expression names a column that does not exist."""


def require_reading(words: Sequence[Word], columns: Collection[str], refused: Collection[str] = ()) -> None:
    """Raise ForbiddenWord or NoSuchColumn unless every word is a value, a column, or one that only reads the row.

    `refused`: words that are not allowed although they only read.
    """
    known = {name.lower() for name in columns}
    if not words:
        raise ForbiddenWord("an empty text")
    operand = False
    for word, following in zip(words, [*words[1:], Word("", "")], strict=True):
        called = following.text == "(" and following.kind == "sign"
        if word.kind == "word":
            if word.text.lower() in refused:
                raise ForbiddenWord(word.text.lower())
            _require_word(word.text.lower(), known, called=called, operand=operand)
        elif word.kind == "quoted" and (called or word.text.lower() not in known):
            raise ForbiddenWord(f"`{word.text}`()") if called else NoSuchColumn(word.text)
        elif word.kind == "text" and called:
            raise ForbiddenWord(f"{word.text}()")
        elif word.text == "*" and not operand:
            raise ForbiddenWord("*")
        operand = word.kind != "sign" or word.text == ")"


def _require_word(word: str, known: set[str], *, called: bool, operand: bool) -> None:
    if called:
        if word not in _FUNCTIONS | _BEFORE_BRACKETS:
            raise ForbiddenWord(f"{word}()")
    # The `from` of a function has something before it; that of a query has not.
    elif word in _BEGINS_A_QUERY or (word == "from" and not operand):
        raise ForbiddenWord(word)
    elif word not in known and word not in _WORDS:
        raise NoSuchColumn(word)


def is_meaningful(word: str) -> bool:
    """Check whether a word that is not in quotes may be something else than the name of a column."""
    return word.lower() in _WORDS or word.lower() in _BEGINS_A_QUERY


def words_of(text: str) -> Iterator[Word]:
    """Split an expression into its words; raise ForbiddenWord where Spark would read something else than these."""
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        kind = None if found is None else found.lastgroup
        if found is None or kind is None:
            raise ForbiddenWord(f"{text[position : position + 20]!r}")
        if kind in ("comment", "raw"):
            raise ForbiddenWord("a comment" if kind == "comment" else "a raw text")
        if kind != "space":
            name = found[kind].replace("``", "`") if kind == "quoted" else found[kind]
            yield Word(kind, name, position, found.end())
        position = found.end()
