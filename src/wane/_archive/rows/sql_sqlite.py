"""Copying rows out of SQLite: types, keys, versions and checksums.

Any value can be stored in any column, so every value's own type is checked: one that is not what its column declares is
refused. SQLite has no digests; functions of ours compute them (`digests.py`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from wane._archive.rows.types import DIGITS, FIELDS_AT_ONCE, SAMPLED_EVERY, ArchiveDialect, KeyTexts, Stored
from wane._contract.model import Time, Unit
from wane._db.schema import Column
from wane._db.statement import Dialect
from wane._db.timestamps import PER_SECOND
from wane._db.transaction import Transaction

_EXACT = 2**53
_TYPE = "typeof({x}) <> '%s'"
_KINDS = {
    "integer": Stored("", "long", refused=_TYPE % "integer"),
    "text": Stored("", "string", refused=_TYPE % "text"),
    "blob": Stored("", "binary", refused=_TYPE % "blob"),
    "real": Stored("", "double", refused=_TYPE % "real"),
    # A whole number in such a column is restored as one.
    "numeric": Stored(
        "",
        "double",
        "CAST({x} AS REAL)",
        refused=f"typeof({{x}}) NOT IN ('integer', 'real') OR"
        f" (typeof({{x}}) = 'integer' AND {{x}} NOT BETWEEN -{_EXACT} AND {_EXACT})",
    ),
}
_CASTS = {
    "text": Stored("", "string", "CAST({x} AS TEXT)"),
    "integer": Stored("", "long", "CAST({x} AS INTEGER)"),
    "real": Stored("", "double", "CAST({x} AS REAL)"),
    "blob": Stored("", "binary", "CAST({x} AS BLOB)"),
}
_WORDS = (
    (("INT",), "integer"),
    (("CHAR", "CLOB", "TEXT"), "text"),
    (("BLOB",), "blob"),
    (("REAL", "FLOA", "DOUB"), "real"),
    (("BOOL",), "integer"),
    (("DATE", "TIME", "JSON", "UUID", "STRING"), "text"),
    (("NUMERIC", "DEC", "NUMBER", "MONEY"), "numeric"),
)
"""SQLite's own rules for declared types, in its order, then what users mean by others."""
_KEY_TYPES = {_KINDS["integer"].refused, _KINDS["text"].refused}
"""Of columns whose values quote() writes as Arrow can."""
_FIRST = {"long": "0", "string": "''", "binary": "x''", "double": "0.0"}


def reads_beside_writes(transaction: Transaction) -> bool:
    """Return whether others read while this transaction writes: without a log, they wait for each other."""
    return transaction.execute("PRAGMA main.journal_mode", {}) == [("wal",)]


class SqliteArchive(ArchiveDialect):
    """A row has no version: its values are compared, as a digest where rows are checked one by one."""

    checksums = True
    declares_types = True

    def stored(self, column: Column, cast: str | None, time: Time | None) -> Stored | None:
        if cast is not None:
            found = _CASTS[cast]
        else:
            kind = _kind(column)
            if time is not None and (kind is None or (kind == "text" and time.unit in PER_SECOND)):
                kind = "numeric" if time.unit in PER_SECOND else "text"
            if kind is None:
                return None
            found = _KINDS[kind]
        return Stored(column.name, found.kind, found.select, found.text, found.refused)

    def hashed(self, stored: Stored) -> Stored:
        # The driver through which tasks read has no function of ours.
        made = f"wane_sha256({stored.select})"
        return Stored(stored.name, "string", made, refused=stored.refused, hashed_from=(stored.select, stored.kind))

    def starred(self, value: str, first: int, last: int) -> str:
        rest = f"length({value}) - {first + last}"
        return (
            f"CASE WHEN {rest} <= 0 THEN {_stars(f'length({value})')} ELSE"
            f" substr({value}, 1, {first}) || {_stars(rest)} || substr({value}, length({value}) - {last - 1}) END"
        )

    def key(self, columns: Sequence[Column], alias: str) -> str:
        # quote() distinguishes the number 1 from the text '1', and writes blobs too.
        return f"json_array({', '.join(f'quote({_column(alias, column.name)})' for column in columns)})"

    def key_refused(self, columns: Sequence[Column], stored: Sequence[Stored], alias: str) -> list[tuple[str, str]]:
        refused = []
        whole = {one.hot for one in stored if one.refused == _KINDS["integer"].refused}
        for column in columns:
            if column.name in whole and not column.nullable:
                continue
            value = _column(alias, column.name)
            # quote() stops at a zero byte, and writes a fraction with too few digits.
            wrong = f"typeof({value}) NOT IN ('integer', 'text', 'blob') OR (typeof({value}) = 'text' AND instr({value}, char(0)))"
            refused.append((wrong, column.name))
        return refused

    def key_texts(self, columns: Sequence[Column], stored: Sequence[Stored]) -> KeyTexts | None:
        known = {one.hot: one for one in stored}
        if not all(known[column.name].refused in _KEY_TYPES for column in columns if column.name in known):
            return None
        names = (known[column.name].name if column.name in known else column.name for column in columns)
        return KeyTexts(tuple(names), '","', quoted=True)

    def refused(self, conditions: Sequence[tuple[str, str]]) -> str | None:
        # One value for all columns: each costs more to read than to check.
        return " OR ".join(f"({wrong})" for wrong, _ in conditions) or "0"

    def read_key(self, text: str) -> tuple[object, ...]:
        return tuple(_literal(one) for one in json.loads(text))

    def version(self, stored: Sequence[Stored], alias: str) -> str:
        # Digests are of texts, in which a value of another type than its column declares can equal the copy's.
        refused = [one.refusal(_column(alias, one.hot)) for one in stored if one.refused]
        digest = self.row_digest(stored, alias)
        return (
            f"CASE WHEN {' OR '.join(f'({wrong})' for wrong in refused)} THEN '' ELSE {digest} END"
            if refused
            else digest
        )

    def read_version(self, alias: str) -> str | None:
        return None

    def month(self, alias: str, column: Column, time: Time) -> str:
        value = _column(alias, column.name)
        if time.unit not in PER_SECOND:
            return f"substr({value}, 1, 7)"
        whole = value if time.unit is Unit.SECONDS else f"{value} / {PER_SECOND[time.unit]}"
        return f"strftime('%Y-%m', CAST({whole} AS INTEGER), 'unixepoch')"

    def row_digest(self, stored: Sequence[Stored], alias: str) -> str:
        fields = [_field(one, one.select.replace("{x}", _column(alias, one.hot))) for one in stored]
        if len(fields) > FIELDS_AT_ONCE:
            pieces = (fields[start : start + FIELDS_AT_ONCE] for start in range(0, len(fields), FIELDS_AT_ONCE))
            fields = [f"'{DIGITS}:' || {self.digest(' || '.join(piece))}" for piece in pieces]
        return self.digest(" || ".join(fields))

    def digest(self, expression: str) -> str:
        return f"wane_digest({expression})"

    def sampled(self, table: str, key: str, column: str, digest: str, row: str, source: str) -> str:
        # Limited, or the digest would be computed again wherever it is used. SQLite reads a row's other columns only if
        # it needs them.
        found = (
            f"SELECT count(*) AS n, coalesce(sum(d.k), 0) AS k,"
            f" json_group_array(d.x) FILTER (WHERE d.k & {SAMPLED_EVERY - 1} = 0) AS some"
            f" FROM (SELECT {digest} AS k, {key} AS x FROM {source} LIMIT {2**62}) AS d"
        )
        rows = f"SELECT {row} AS r FROM json_each(i.some) AS e CROSS JOIN {table} AS s ON s.{column} = e.value"
        sums = f"SELECT count(d.r) || ' ' || {self.sums('d.r')} FROM ({rows}) AS d"
        return f"SELECT i.n, i.k, ({sums}) FROM ({found}) AS i"

    def whole_number(self, column: Column, stored: Stored) -> str | None:
        # Where the column is cast, its values may be of any type.
        return f"{{t}}.{Dialect.quote(column.name)}" if stored.refused == _KINDS["integer"].refused else None

    def sums(self, expression: str, halves: int = 2) -> str:
        # An aggregate of ours without input returns NULL. FILTER, because calling it is expensive, and most rows are
        # not proven in full.
        some = f"wane_digest_sums({expression}, {halves}) FILTER (WHERE {expression} IS NOT NULL)"
        return f"coalesce({some}, '{' '.join('0' * halves)}')"

    def typed(self, selected: Sequence[tuple[str, str, str]], source: str) -> str:
        # The driver guesses a column's type from its first values, so a row of known types comes first; its key is
        # empty.
        first = ", ".join(f"{_FIRST[kind]} AS {Dialect.quote(name)}" for _, name, kind in selected)
        rest = ", ".join(f"{value} AS {Dialect.quote(name)}" for value, name, _ in selected)
        return f"SELECT {first} UNION ALL SELECT * FROM (SELECT {rest} FROM {source})"


def _kind(column: Column) -> str | None:
    return next((kind for words, kind in _WORDS if any(word in column.type for word in words)), None)


def _field(stored: Stored, value: str) -> str:
    """Write the canonical text of a value with its length in front, in plain SQL: calling a function of ours is
    expensive."""
    if stored.kind == "double":
        text = f"'16:' || wane_real_text({value})"
    elif stored.kind == "binary":
        text = f"(2 * length({value})) || ':' || lower(hex({value}))"
    elif stored.kind == "string":
        # Of the text itself, length() would stop at a zero byte.
        text = f"length(CAST({value} AS BLOB)) || ':' || {value}"
    else:
        text = f"length({value}) || ':' || {value}"
    return f"coalesce({text}, '~')"


def _stars(count: str) -> str:
    return f"replace(hex(zeroblob({count})), '00', '*')"


def _literal(text: str) -> int | str | bytes:
    """Decode the value that quote() wrote."""
    if text.startswith("X'"):
        return bytes.fromhex(text[2:-1])
    return text[1:-1].replace("''", "'") if text.startswith("'") else int(text)


def _column(alias: str, name: str) -> str:
    return f"{alias}.{Dialect.quote(name)}"
