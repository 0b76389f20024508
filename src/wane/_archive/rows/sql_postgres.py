"""Copying rows out of PostgreSQL: types, keys, versions and checksums."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from wane._archive.rows.types import FIELDS_AT_ONCE, SAMPLED_EVERY, ArchiveDialect, KeyTexts, Stored
from wane._contract.model import Time
from wane._db.postgres.dialect import PostgresDialect, _bare, json_of
from wane._db.schema import Column

_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_MOST_DIGITS = 38
_TEXTS = {
    *(
        "text",
        "character varying",
        "character",
        "name",
        "uuid",
        "json",
        "jsonb",
        "xml",
        "numeric",
        "interval",
    ),
    *("time without time zone", "time with time zone", "inet", "cidr", "macaddr", "macaddr8", "bit", "bit varying"),
    *("tsvector", "tsquery", "point", "line", "lseg", "box", "path", "polygon", "circle"),
    *("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange"),
    *("int4multirange", "int8multirange", "nummultirange", "datemultirange", "tsmultirange", "tstzmultirange"),
}
"""Types whose text represents the value exactly, under the settings of our connections."""
_EXTENSIONS = {"citext", "hstore", "ltree"}
"""The same, of extensions: their schema precedes them."""
_ARRAYS = (
    _TEXTS
    | _EXTENSIONS
    | {
        *("smallint", "integer", "bigint", "real", "double precision", "boolean", "bytea", "date"),
        *("timestamp without time zone", "timestamp with time zone", "oid"),
    }
)
_WHOLE = {"smallint", "integer", "bigint"}
_MICROSECONDS = "(extract(epoch FROM {x}) * 1000000)::bigint::text"


def _float_text(width: int, x: str) -> str:
    # A NaN has a sign and bits of its own; to SQL every NaN is equal, so all of them have one text.
    return f"encode(float{width}send(CASE WHEN {x} = 'NaN' THEN 'NaN' ELSE {x} END), 'hex')"


_PLAIN = {
    "smallint": Stored("", "short"),
    "integer": Stored("", "integer"),
    "bigint": Stored("", "long"),
    "oid": Stored("", "long", "{x}::bigint"),
    "boolean": Stored("", "boolean"),
    "real": Stored("", "float", text=_float_text(4, "{x}")),
    "double precision": Stored("", "double", text=_float_text(8, "{x}")),
    "bytea": Stored("", "binary", text="encode({x}, 'hex')"),
    "date": Stored(
        "", "date", text="({x} - date '1970-01-01')::text", refused="{x} < '0001-01-01' OR {x} > '9999-12-31'"
    ),
    "timestamp with time zone": Stored(
        "", "timestamp", text=_MICROSECONDS, refused="{x} < '0001-01-01 00:00:00+00' OR {x} > '9999-12-31 00:00:00+00'"
    ),
    "timestamp without time zone": Stored(
        "", "timestamp_ntz", text=_MICROSECONDS, refused="{x} < '0001-01-01 00:00:00' OR {x} > '9999-12-31 00:00:00'"
    ),
}
_CASTS = {
    "text": Stored("", "string", "{x}::text"),
    "integer": Stored("", "long", "{x}::bigint", "{x}::bigint::text"),
    "real": Stored("", "double", "{x}::double precision", _float_text(8, "{x}::double precision")),
    "blob": Stored("", "binary", "{x}::bytea", "encode({x}::bytea, 'hex')"),
}


class PostgresArchive(ArchiveDialect):
    """A row's version is the transaction that wrote it (`xmin`)."""

    def stored(self, column: Column, cast: str | None, time: Time | None) -> Stored | None:
        found = _CASTS[cast] if cast is not None else _stored(column)
        if found is None:
            return None
        return Stored(column.name, found.kind, found.select, found.text, found.refused)

    def hashed(self, stored: Stored) -> Stored:
        value = stored.select if stored.kind == "binary" else f"convert_to({stored.text}, 'UTF8')"
        made = f"encode(sha256({value}), 'hex')"
        return Stored(stored.name, "string", made, made)

    def starred(self, value: str, first: int, last: int) -> str:
        rest = f"length({value}) - {first + last}"
        return (
            f"CASE WHEN {rest} <= 0 THEN repeat('*', length({value}))"
            f" ELSE left({value}, {first}) || repeat('*', {rest}) || right({value}, {last}) END"
        )

    def key(self, columns: Sequence[Column], alias: str) -> str:
        return json_of(columns, [f"{_column(alias, column.name)}::text" for column in columns])

    def key_refused(self, columns: Sequence[Column], stored: Sequence[Stored], alias: str) -> list[tuple[str, str]]:
        return [(f"{_column(alias, column.name)} IS NULL", column.name) for column in columns if column.nullable]

    def key_texts(self, columns: Sequence[Column], stored: Sequence[Stored]) -> KeyTexts | None:
        known = {one.hot: one for one in stored}
        for column in columns:
            one = known.get(column.name)
            # Texts are stored as they are in the key.
            if one is None or not (one.select == "{x}::text" if one.kind == "string" else _bare(column) in _WHOLE):
                return None
        return KeyTexts(tuple(known[column.name].name for column in columns), '", "', quoted=False)

    def refused(self, conditions: Sequence[tuple[str, str]]) -> str | None:
        return None

    def read_key(self, text: str) -> tuple[object, ...]:
        return tuple(json.loads(text))

    def version(self, stored: Sequence[Stored], alias: str) -> str:
        return f"{alias}.xmin::text"

    def read_version(self, alias: str) -> str | None:
        return f"{alias}.xmin"  # Its four bytes: a text for each row costs more than all else that is read of it.

    def month(self, alias: str, column: Column, time: Time) -> str:
        return PostgresDialect().month(alias, column, time)

    def row_digest(self, stored: Sequence[Stored], alias: str) -> str:
        texts = [one.canonical(_column(alias, one.hot)) for one in stored]
        if len(texts) > FIELDS_AT_ONCE:
            pieces = (texts[start : start + FIELDS_AT_ONCE] for start in range(0, len(texts), FIELDS_AT_ONCE))
            texts = [self._fields(piece) for piece in pieces]
        return self._fields(texts)

    def _fields(self, texts: Sequence[str]) -> str:
        return self.digest(
            " || ".join(
                f"coalesce(octet_length(convert_to({text}, 'UTF8'))::text || ':' || {text}, '~')" for text in texts
            )
        )

    def digest(self, expression: str) -> str:
        return f"md5(convert_to({expression}, 'UTF8'))"

    def sampled(self, table: str, key: str, column: str, digest: str, row: str, source: str) -> str:
        # The list of keys, because a row's other columns in the same query would make it read the table. OFFSET, or the
        # digest would be computed again wherever it is used.
        found = (
            f"SELECT count(*) AS n, coalesce(sum(d.k), 0) AS k, array_agg(d.x) FILTER (WHERE d.k & {SAMPLED_EVERY - 1} = 0) AS some"
            f" FROM (SELECT {key} AS x, {digest} AS k FROM {source} OFFSET 0) AS d"
        )
        rows = f"SELECT {row} AS r FROM {table} AS s WHERE s.{column} = ANY (i.some) OFFSET 0"
        sums = f"SELECT count(d.r) AS n, {self.sums('d.r')} AS r FROM ({rows}) AS d"
        return f"SELECT i.n, i.k, p.n, p.r FROM ({found}) AS i, LATERAL ({sums}) AS p"

    def whole_number(self, column: Column, stored: Stored) -> str | None:
        return f"{{t}}.{_name(column.name)}::bigint" if _bare(column) in _WHOLE else None

    def sums(self, expression: str, halves: int = 2) -> str:
        values = (f"('x' || substr({expression}, {start}, 16))::bit(64)::bigint" for start in (1, 17)[:halves])
        return " || ' ' || ".join(f"coalesce(sum({value}), 0)::text" for value in values)

    def typed(self, selected: Sequence[tuple[str, str, str]], source: str) -> str:
        return f"SELECT {', '.join(f'{value} AS {_name(name)}' for value, name, _ in selected)} FROM {source}"


def _stored(column: Column) -> Stored | None:
    if column.labels:
        return Stored("", "string", "{x}::text")
    digits = _NUMERIC.fullmatch(column.type)
    if digits and int(digits[1]) <= _MOST_DIGITS and 0 <= int(digits[2]) <= int(digits[1]):
        kind = f"decimal({digits[1]},{digits[2]})"
        return Stored("", kind, "{x}::text", refused="{x} IN ('NaN', 'Infinity', '-Infinity')")
    kind = _bare(column)
    if kind in _PLAIN:
        return _PLAIN[kind]
    schema, _, name = kind.rpartition(".")
    kind = name if schema and name.removesuffix("[]") in _EXTENSIONS else kind
    if kind in _TEXTS | _EXTENSIONS or (kind.endswith("[]") and kind.removesuffix("[]") in _ARRAYS):
        return Stored("", "string", "{x}::text")
    return None


def _name(name: str) -> str:
    return PostgresDialect.quote(name)


def _column(alias: str, name: str) -> str:
    return f"{alias}.{_name(name)}"
