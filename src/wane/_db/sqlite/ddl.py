"""What only SQLite's stored DDL text shows: partial predicates, collations, constraint names, trigger events.

The text is read as SQLite's own tokenizer reads it, so quotes, comments, strings and nested parentheses never mislead.
Text that is not understood gives the cautious answer, never an error. Results are cached by text: a schema is reflected
far more often than it changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

# SQLite's whitespace is ASCII, and every character beyond ASCII belongs to a name: `\s` and `\w` would split
# differently. A word is written by the ASCII characters that it cannot have, because compiling a range of all the
# others takes milliseconds at every start.
_TOKEN = re.compile(
    r"""
      (?P<space>  [ \t\n\f\r]+ | --[^\n]* | /\*.*?(?:\*/|\Z) )
    | (?P<quoted> "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\] | '(?:[^']|'')*' )
    | (?P<word>   [^\x00-@\[-^`{-\x7f][^\x00-\#%-/:-@\[-^`{-\x7f]* )
    | (?P<number> [0-9][A-Za-z0-9_.]* )
    | (?P<sign>   . )
    """,
    re.VERBOSE | re.DOTALL,
)

_OTHER_CONSTRAINTS = frozenset({"NOT", "NULL", "DEFAULT", "CHECK", "UNIQUE", "PRIMARY", "COLLATE", "GENERATED", "AS"})

_SHADOWS = {
    "FTS3": ("content", "segments", "segdir", "docsize", "stat"),
    "FTS4": ("content", "segments", "segdir", "docsize", "stat"),
    "FTS5": ("data", "idx", "content", "docsize", "config"),
    "RTREE": ("node", "rowid", "parent"),
    "RTREE_I32": ("node", "rowid", "parent"),
    "GEOPOLY": ("node", "rowid", "parent"),
}


class _DdlToken(NamedTuple):
    kind: str
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """Return the text in upper case. A quoted name retains its quotes, so it is never taken for a keyword."""
        return self.text.upper()

    @property
    def name(self) -> str:
        """Return the identifier without its quotes."""
        if self.kind != "quoted":
            return self.text
        quote, inner = self.text[0], self.text[1:-1]
        return inner if quote == "[" else inner.replace(quote * 2, quote)


def _tokens(sql: str) -> Iterator[_DdlToken]:
    for match in _TOKEN.finditer(sql):
        if match.lastgroup != "space":
            yield _DdlToken(match.lastgroup or "", match.group(), match.start(), match.end())


def _levels(sql: str) -> Iterator[tuple[int, _DdlToken]]:
    """Yield every token with the number of parentheses around it; a parenthesis counts as outside itself."""
    depth = 0
    for token in _tokens(sql):
        depth -= token.text == ")"
        yield depth, token
        depth += token.text == "("


def _definitions(sql: str) -> list[list[_DdlToken]]:
    """Return the columns and constraints of a CREATE TABLE, each without the contents of its own parentheses."""
    parts: list[list[_DdlToken]] = [[]]
    for depth, token in _levels(sql):
        if depth == 0 and token.text == ")":
            break
        if depth == 1 and token.text == ",":
            parts.append([])
        elif depth == 1:
            parts[-1].append(token)
    return parts


def _after_name(sql: str, *create: str) -> list[_DdlToken]:
    """Return the tokens after the object's name in `CREATE <create> name`; empty if it is no such text.

    SQLite stores neither IF NOT EXISTS nor TEMP nor the schema.
    """
    tokens = _tokens(sql)
    expected = ["CREATE", *create]
    if [token.keyword for token in islice(tokens, len(expected))] != expected:
        return []
    return list(islice(tokens, 1, None))


_cached = lru_cache(maxsize=4096)


@_cached
def index_predicate(sql: str) -> str | None:
    """Return the WHERE of a partial index, as it was written."""
    found: _DdlToken | None = None
    last = 0
    for depth, token in _levels(sql):
        if found is None and depth == 0 and token.keyword == "WHERE":
            found = token
        last = token.end
    return sql[found.end : last].strip() if found is not None else None


@_cached
def column_collations(sql: str, columns: int) -> tuple[str | None, ...]:
    """Return, for each of the first `columns` columns of a CREATE TABLE, the collation it declares, in upper case."""
    declared = tuple(_collation(part) for part in _definitions(sql)[:columns])
    return declared + (None,) * (columns - len(declared))


def _collation(definition: list[_DdlToken]) -> str | None:
    declared = None
    for token, following in pairwise(definition):
        if token.keyword == "COLLATE":  # SQLite lets the last one win
            declared = following.name.upper()
    return declared


@_cached
def foreign_key_names(sql: str) -> tuple[str, ...]:
    """Return the constraint name of every foreign key of a CREATE TABLE, in the order of the text; "" if unnamed."""
    names = []
    for part in _definitions(sql):
        pending = ""
        tokens = iter(part)
        for token in tokens:
            if token.keyword == "CONSTRAINT":
                following = next(tokens, None)
                pending = following.name if following is not None else ""
            elif token.keyword == "REFERENCES":
                names.append(pending)
                pending = ""
            elif token.keyword in _OTHER_CONSTRAINTS:
                pending = ""
    return tuple(names)


@_cached
def fires_on_delete(sql: str) -> bool:
    """Check whether a trigger fires when rows are deleted; True for a text that cannot be understood."""
    for token in _after_name(sql, "TRIGGER"):
        if token.keyword in ("BEFORE", "AFTER", "INSTEAD", "OF"):
            continue
        return token.keyword not in ("INSERT", "UPDATE")
    return True


@_cached
def is_virtual(sql: str) -> bool:
    return bool(_after_name(sql, "VIRTUAL", "TABLE"))


@_cached
def shadow_suffixes(sql: str) -> tuple[str, ...]:
    """Return the suffixes of the tables that store this virtual table's content, as far as its module is known."""
    using = _after_name(sql, "VIRTUAL", "TABLE")
    return _SHADOWS.get(using[1].name.upper(), ()) if len(using) > 1 else ()


@_cached
def indexes_content_of_others(sql: str) -> bool:
    """Check whether a full-text table declares with `content=` that its content is another table's, or nowhere."""
    using = _after_name(sql, "VIRTUAL", "TABLE")
    return any(name.keyword == "CONTENT" and sign.text == "=" for name, sign in pairwise(using))
