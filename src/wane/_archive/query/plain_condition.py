"""Conditions that need no Spark: comparisons of columns with values, evaluated with Arrow as Spark would evaluate them.

Only what both evaluate alike is parsed here: comparisons, IN, BETWEEN, LIKE, IS NULL, AND, OR and NOT, each of a column
with values of its own type. Everything else (functions, arithmetic, casts, mistakes) is Spark's, which reports mistakes
too. The same tree decides by the minima and maxima of the archive's log which files need not be read.
"""

from __future__ import annotations

import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from wane._archive.query.condition import unknown_column
from wane._archive.rows.content import arrow_type

Edges = Mapping[str, tuple[Any, Any]]
"""The minimum and maximum of columns in one file, where they are known; wider than the truth at most."""

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<number>[0-9]+(?:\.[0-9]+)?)(?![\w.])
      | (?P<text>'(?:[^'\\]|'')*')
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | `(?P<quoted>[^`]+)`
      | (?P<sign><=>|<=|>=|<>|!=|==|[=<>(),-])""",
    re.VERBOSE,
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)?", re.ASCII)
_WHOLE = ("short", "integer", "long")
_MOST_DIGITS = 38
_DEEPEST = 50
_MEANINGFUL = {
    *("and", "or", "not", "in", "between", "like", "is", "null", "true", "false", "case", "cast", "exists", "interval"),
    *("current_catalog", "current_database", "current_date", "current_schema", "current_time", "current_timestamp"),
    *("current_user", "localtimestamp", "now", "session_user", "user"),
}
"""Words that mean more to Spark than the name of a column."""
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARING: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


class _Unsupported(Exception):
    """The condition has a part that Spark must evaluate."""


class PlainCondition(ABC):
    """A condition, or a part of one, over the columns of one row."""

    @abstractmethod
    def names(self) -> Iterator[str]:
        """Yield the columns that it reads."""

    @abstractmethod
    def mask(self, rows: pa.Table) -> Any:
        """Evaluate it for every row: true, false, or NULL, as in SQL."""

    def bounded(self) -> Iterator[str]:
        """Yield the columns by whose edges it can exclude a file."""
        yield from ()

    def excludes(self, edges: Edges) -> bool:
        """Check whether no row of a file with these edges can meet it."""
        return False


@dataclass(frozen=True, slots=True)
class _Compared(PlainCondition):
    name: str
    sign: str
    value: Any
    type: Any
    """The Arrow type in which column and value are compared."""

    def names(self) -> Iterator[str]:
        yield self.name

    def mask(self, rows: pa.Table) -> Any:
        column = rows[self.name].cast(self.type)
        found = _COMPARING[self.sign](column, scalar(_text(self.value), self.type))
        # To Spark, NaN is greater than every number.
        nan = pa.types.is_floating(self.type) and self.sign[0] == ">"
        return pc.or_(found, pc.is_nan(column)) if nan else found

    def bounded(self) -> Iterator[str]:
        if self.sign != "<>":
            yield self.name

    def excludes(self, edges: Edges) -> bool:
        return _outside(self.sign, self.value, edges.get(self.name))


@dataclass(frozen=True, slots=True)
class _Pattern(PlainCondition):
    name: str
    pattern: str

    def names(self) -> Iterator[str]:
        yield self.name

    def mask(self, rows: pa.Table) -> Any:
        # There is no backslash in the pattern: it would not have been parsed.
        parts = [{"%": ".*", "_": "."}.get(one, rf"\Q{one}\E") for one in re.split("([%_])", self.pattern) if one]
        return pc.match_substring_regex(rows[self.name], rf"(?s)\A{''.join(parts)}\z")


@dataclass(frozen=True, slots=True)
class _IsNull(PlainCondition):
    name: str

    def names(self) -> Iterator[str]:
        yield self.name

    def mask(self, rows: pa.Table) -> Any:
        return rows[self.name].is_null()


@dataclass(frozen=True, slots=True)
class _IsTrue(PlainCondition):
    name: str

    def names(self) -> Iterator[str]:
        yield self.name

    def mask(self, rows: pa.Table) -> Any:
        return rows[self.name]


@dataclass(frozen=True, slots=True)
class _Not(PlainCondition):
    part: PlainCondition

    def names(self) -> Iterator[str]:
        return self.part.names()

    def mask(self, rows: pa.Table) -> Any:
        return pc.invert(self.part.mask(rows))


@dataclass(frozen=True, slots=True)
class _Certain(PlainCondition):
    """Another condition, false where that is NULL."""

    part: PlainCondition

    def names(self) -> Iterator[str]:
        return self.part.names()

    def mask(self, rows: pa.Table) -> Any:
        found = self.part.mask(rows)
        return pc.and_kleene(found.is_valid(), found)

    def bounded(self) -> Iterator[str]:
        return self.part.bounded()

    def excludes(self, edges: Edges) -> bool:
        return self.part.excludes(edges)


@dataclass(frozen=True, slots=True)
class _Joined(PlainCondition):
    """Parts that must all hold, or of which one must."""

    parts: Sequence[PlainCondition]
    every: bool

    def names(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.names()

    def mask(self, rows: pa.Table) -> Any:
        join = pc.and_kleene if self.every else pc.or_kleene
        found = self.parts[0].mask(rows)
        for part in self.parts[1:]:
            found = join(found, part.mask(rows))
        return found

    def bounded(self) -> Iterator[str]:
        for part in self.parts:
            yield from part.bounded()

    def excludes(self, edges: Edges) -> bool:
        return (any if self.every else all)(part.excludes(edges) for part in self.parts)


def _joined(parts: Sequence[PlainCondition], *, every: bool) -> PlainCondition:
    return parts[0] if len(parts) == 1 else _Joined(parts, every)


def _outside(sign: str, value: Any, edges: tuple[Any, Any] | None) -> bool:
    """Check whether no value between two edges compares so with this one; return False if it is not known."""
    if edges is None or not type(edges[0]) is type(edges[1]) is type(value):
        return False
    least, most = edges
    above = least > value or (sign == "<" and least == value)
    below = most < value or (sign == ">" and most == value)
    return (above and sign in ("=", "<", "<=")) or (below and sign in ("=", ">", ">="))


def parse(where: str, kinds: Mapping[str, str]) -> PlainCondition | None:
    """Parse a condition over columns of these kinds; return None if Spark must evaluate it.

    Raise WrongArgument if it names a column that does not exist.
    """
    try:
        where.encode()
        parsing = _Parsing(_tokens(where), kinds)
        found = parsing.alternatives(0)
        if parsing.peek() is not None:
            return None
    except (_Unsupported, UnicodeEncodeError):
        return None
    if parsing.unknown:
        raise unknown_column(parsing.unknown[0].lower(), list(kinds))
    return found


@dataclass(frozen=True, slots=True)
class _ConditionToken:
    kind: str
    text: str

    @property
    def word(self) -> str:
        """Return what the grammar knows it as; nothing for a quoted name or a value."""
        return self.text.lower() if self.kind in ("name", "sign") else ""


def _tokens(where: str) -> list[_ConditionToken]:
    found, start = [], 0
    while start < len(where):
        match = _TOKEN.match(where, start)
        if match is None or (not match[0].isascii() and match.lastgroup != "text"):
            raise _Unsupported
        assert match.lastgroup is not None
        if match.lastgroup != "space":
            found.append(_ConditionToken(match.lastgroup, match[match.lastgroup]))
        start = match.end()
    return found


class _Parsing:
    """Reads tokens from left to right, by the precedence of Spark's grammar."""

    def __init__(self, tokens: Sequence[_ConditionToken], kinds: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._next = 0
        self._kinds = kinds
        lowered = [name.lower() for name in kinds]
        self._columns = {name.lower(): name for name in kinds if lowered.count(name.lower()) == 1}
        self._ambiguous = {name for name in lowered if lowered.count(name) > 1}
        self.unknown: list[str] = []
        """Names that no column has, in the order of the text."""

    def peek(self, ahead: int = 0) -> _ConditionToken | None:
        position = self._next + ahead
        return self._tokens[position] if position < len(self._tokens) else None

    def _take(self) -> _ConditionToken:
        token = self.peek()
        if token is None:
            raise _Unsupported
        self._next += 1
        return token

    def _took(self, *words: str) -> bool:
        """Take these words if they come next."""
        for ahead, word in enumerate(words):
            token = self.peek(ahead)
            if token is None or token.word != word:
                return False
        self._next += len(words)
        return True

    def _require(self, word: str) -> None:
        if not self._took(word):
            raise _Unsupported

    def alternatives(self, depth: int) -> PlainCondition:
        if depth > _DEEPEST:
            raise _Unsupported
        parts = [self._conjunction(depth)]
        while self._took("or"):
            parts.append(self._conjunction(depth))
        return _joined(parts, every=False)

    def _conjunction(self, depth: int) -> PlainCondition:
        parts = [self._negation(depth)]
        while self._took("and"):
            parts.append(self._negation(depth))
        return _joined(parts, every=True)

    def _negation(self, depth: int) -> PlainCondition:
        negated = False
        while self._took("not"):
            negated = not negated
        if self._took("("):
            found = self.alternatives(depth + 1)
            self._require(")")
        else:
            found = self._predicate()
        return _Not(found) if negated else found

    def _predicate(self) -> PlainCondition:
        if self._at_column():
            return self._after(self._column())
        value = self._literal()
        sign = self._sign(self._take())
        return self._compared(self._column(), _MIRRORED.get(sign, sign), value)

    def _after(self, name: str) -> PlainCondition:
        """Read what follows a column."""
        if self._took("is"):
            negated = self._took("not")
            self._require("null")
            return _Not(_IsNull(name)) if negated else _IsNull(name)
        negated = self._took("not")
        if self._took("in"):
            found = self._listed(name)
        elif self._took("between"):
            least = self._compared(name, ">=", self._literal())
            self._require("and")
            found = _Joined((least, self._compared(name, "<=", self._literal())), every=True)
        elif self._took("like"):
            found = self._pattern(name)
        elif negated:
            raise _Unsupported
        else:
            return self._compares(name)
        return _Not(found) if negated else found

    def _listed(self, name: str) -> PlainCondition:
        self._require("(")
        literals = [self._literal()]
        while self._took(","):
            literals.append(self._literal())
        self._require(")")
        return _joined([self._compared(name, "=", one) for one in literals], every=False)

    def _pattern(self, name: str) -> PlainCondition:
        kind, text = self._literal()
        if kind != "text" or self._kinds.get(name, "string") != "string":
            raise _Unsupported
        return _Pattern(name, text)

    def _compares(self, name: str) -> PlainCondition:
        token = self.peek()
        if token is None or token.word in ("and", "or", ")"):
            if self._kinds.get(name, "boolean") != "boolean":
                raise _Unsupported
            return _IsTrue(name)
        sign = self._sign(self._take())
        return self._compared(name, sign, self._literal())

    def _compared(self, name: str, sign: str, literal: tuple[str, str]) -> PlainCondition:
        if sign == "<=>":
            return _Certain(self._compared(name, "=", literal))
        kind = self._kinds.get(name)
        if kind is None:  # An unknown column: the error is raised when all of the text was read.
            return _IsNull(name)
        value = _value(kind, *literal)
        return _Compared(name, sign, value, _compared_as(kind, value))

    def _sign(self, token: _ConditionToken) -> str:
        sign = {"==": "=", "!=": "<>"}.get(token.word, token.word)
        if sign not in _COMPARING and sign != "<=>":
            raise _Unsupported
        return sign

    def _at_column(self) -> bool:
        token, after = self.peek(), self.peek(1)
        if token is None:
            raise _Unsupported
        if token.kind == "quoted":
            return True
        typed = token.word in ("date", "timestamp") and after is not None and after.kind == "text"
        return token.kind == "name" and not typed and token.word not in ("true", "false")

    def _column(self) -> str:
        """Read the name of a column; note a name that no column has."""
        token = self._take()
        if token.kind not in ("name", "quoted") or token.word in _MEANINGFUL:
            raise _Unsupported
        after = self.peek()
        lowered = token.text.lower()
        if lowered in self._ambiguous or (after is not None and after.text == "("):
            raise _Unsupported
        if lowered not in self._columns:
            self.unknown.append(token.text)
            return token.text
        return self._columns[lowered]

    def _literal(self) -> tuple[str, str]:
        """Read a value: its form (number, text, date, timestamp, boolean), and its text."""
        token = self._take()
        if token.word == "-":
            number = self._take()
            if number.kind != "number":
                raise _Unsupported
            return "number", f"-{number.text}"
        if token.word in ("true", "false"):
            return "boolean", token.word
        if token.word in ("date", "timestamp"):
            text = self._take()
            if text.kind != "text":
                raise _Unsupported
            return token.word, _unquoted(text.text)
        if token.kind == "text":
            return "text", _unquoted(token.text)
        if token.kind != "number":
            raise _Unsupported
        return "number", token.text


def scalar(text: str, kind: Any) -> Any:
    """Read a value of an Arrow type from its text. `pyarrow.scalar` would import pandas, which takes half a second."""
    encoded = text.encode()
    ends = pa.py_buffer(struct.pack("=2i", 0, len(encoded)))
    return pa.StringArray.from_buffers(1, ends, pa.py_buffer(encoded)).cast(kind)[0]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return format(value, "f")
    return value.isoformat() if isinstance(value, date) else str(value)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _value(kind: str, form: str, text: str) -> Any:
    """Convert a literal to a value of a column's kind, where Spark's conversion has the same result."""
    if form == "number" and kind in _WHOLE and "." not in text and -(2**63) < int(text) < 2**63:
        return int(text)
    if form == "number" and kind == "double" and len(text) <= _MOST_DIGITS:
        return float(text)
    if form == "number" and kind.startswith("decimal"):
        return Decimal(text)
    if form == "text" and kind == "string":
        return text
    if form == "boolean" and kind == "boolean":
        return text == "true"
    if form in ("text", "date") and kind == "date" and _DATE.fullmatch(text):
        return _valid(date.fromisoformat, text)
    if _TIMESTAMP.fullmatch(text) and (form == "text" or form == kind):
        if kind == "timestamp":
            return _valid(datetime.fromisoformat, text).replace(tzinfo=UTC)
        if kind == "timestamp_ntz":
            return _valid(datetime.fromisoformat, text)
    raise _Unsupported


def _valid(read: Callable[[str], Any], text: str) -> Any:
    try:
        return read(text)
    except ValueError:
        raise _Unsupported from None


def _compared_as(kind: str, value: Any) -> Any:
    """Return the type in which a column and a value are compared, without loss."""
    if kind in _WHOLE:
        return pa.int64()
    column = arrow_type(kind)
    if not kind.startswith("decimal"):
        return column
    scale = max(column.scale, -value.as_tuple().exponent)
    digits = max(column.precision - column.scale, len(str(int(abs(value))))) + scale
    if digits > _MOST_DIGITS:
        raise _Unsupported
    return pa.decimal128(digits, scale)
