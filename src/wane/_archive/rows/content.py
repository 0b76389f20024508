"""The content of rows: their Arrow types, their canonical texts, and digests of both.

The database computes the same digests from the same texts (`wane._archive.rows.types`), which is what makes a proof of
equality possible.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wane._archive.rows.md5 import md5
from wane._archive.rows.sql import SAMPLED
from wane._archive.rows.types import FIELDS_AT_ONCE, KEY, SAMPLED_EVERY, key_digest

Shape = Sequence[Sequence[str]]
"""(column, kind) of every column of a table."""
UNPROVEN_HINT = "nothing was committed and nothing left; the next run copies these rows again"
"""The hint of an error which says that copies differ from the rows."""

_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_TYPES = {
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_BIG_ENDIAN = {"float": ">f4", "double": ">f8"}
_DIGITS = np.frombuffer(bytes(range(256)).hex().encode(), np.uint16)
"""The two hex digits of every byte."""
_MOST_BYTES = 2**31 - 1
"""The most bytes of the texts of an array."""
_DIGESTED_AT_ONCE = 64 * 1024 * 1024
"""The most bytes of rows whose digests are computed at once."""
_BYTES_AT_ONCE = 1 << 16
"""The most bytes of texts that checksums are computed of at once: what fits the cache of a processor is fastest."""
_BASE, _ODD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


def is_kind(kind: object) -> bool:
    """Check whether the archive has columns of a type."""
    return isinstance(kind, str) and (kind in _TYPES or _DECIMAL.fullmatch(kind) is not None)


def arrow_type(kind: str) -> Any:
    """Return the Arrow type of a kind."""
    digits = _DECIMAL.fullmatch(kind)
    return pa.decimal128(int(digits[1]), int(digits[2])) if digits else _TYPES[kind]


def texts(array: Any, kind: str) -> Any:
    """Return the canonical texts of values, NULL where the value is."""
    if kind in ("string", "boolean", "short", "integer", "long"):
        return pc.cast(array, pa.string())
    if kind == "date":
        return pc.cast(pc.cast(array, pa.int32()), pa.string())
    if kind.startswith("timestamp"):
        return pc.cast(pc.cast(array, pa.int64()), pa.string())
    if kind == "binary":
        return _hex_of_binary(array)
    if kind in _BIG_ENDIAN:
        values = array.fill_null(0).to_numpy(zero_copy_only=False).astype(_BIG_ENDIAN[kind])
        values[np.isnan(values)] = np.nan  # A NaN has a sign and bits of its own, which a restore cannot write.
        made = hex_texts(values.view(np.uint8).reshape(-1, values.itemsize))
        return pc.if_else(array.is_valid(), made, pa.scalar(None, pa.string()))
    return _decimal_texts(array.cast(arrow_type(kind)))


def hex_texts(rows: Any) -> Any:
    """Write the bytes of each row of a matrix as hex digits."""
    return _hex(rows.reshape(-1), np.arange(len(rows) + 1) * rows.shape[1])


def _hex_of_binary(array: Any) -> Any:
    filled = array.fill_null(b"")
    ends = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset : filled.offset + len(filled) + 1]
    data = np.frombuffer(filled.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    return pc.if_else(array.is_valid(), _hex(data, ends - ends[0]), pa.scalar(None, pa.string()))


def _hex(data: Any, ends: Any) -> Any:
    ends = 2 * ends.astype(np.int64)
    if ends[-1] > _MOST_BYTES:
        raise pa.ArrowCapacityError("values of more than a gigabyte cannot be compared at once")
    return pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(_DIGITS[data]))


def _decimal_texts(array: Any) -> Any:
    """Write decimals with all of their digits: Arrow's own texts of small ones have an exponent."""
    scale = array.type.scale
    # Without the point: a whole number.
    numbers = pa.Array.from_buffers(pa.decimal128(38, 0), len(array), array.buffers(), offset=array.offset)
    texts = pc.cast(numbers, pa.string())
    if not scale:
        return texts
    digits = pc.ascii_lpad(pc.ascii_ltrim(texts, "-"), scale + 1, "0")
    before, after = pc.utf8_slice_codeunits(digits, 0, -scale), pc.utf8_slice_codeunits(digits, -scale)
    sign = pc.if_else(pc.starts_with(texts, "-"), "-", "")
    return pc.binary_join_element_wise(sign, before, ".", after, "")


def hashes(column: Any, kind: str) -> Any:
    """Compute the SHA-256 of values, as hex digits, NULL where the value is."""
    values = whole(column).cast(arrow_type(kind))
    bare = values if kind == "binary" else texts(values, kind).cast(pa.binary())
    return pa.array([None if one is None else hashlib.sha256(one).hexdigest() for one in bare.to_pylist()], pa.string())


def row_digests(table: Any, shape: Shape) -> Any:
    """Compute the digest of every row of a table, over the columns of its shape, as hex digits."""
    return hex_texts(_row_digests(table, shape))


def _row_digests(table: Any, shape: Shape) -> Any:
    """Compute the digests themselves, some bytes of rows at a time, because their texts take several times as many."""
    if table.nbytes > _DIGESTED_AT_ONCE and len(table) > 1:
        half = len(table) // 2
        return np.concatenate([_row_digests(table.slice(0, half), shape), _row_digests(table.slice(half), shape)])
    fields = [texts(whole(table[name]), kind) for name, kind in shape]
    if len(fields) > FIELDS_AT_ONCE:
        pieces = (fields[start : start + FIELDS_AT_ONCE] for start in range(0, len(fields), FIELDS_AT_ONCE))
        fields = [hex_texts(_digests(piece)) for piece in pieces]
    return _digests(fields)


def _digests(fields: Sequence[Any]) -> Any:
    marked = [
        pc.binary_join_element_wise(pc.cast(pc.binary_length(one), pa.string()), one, ":").fill_null("~")
        for one in fields
    ]
    return md5(pc.binary_join_element_wise(*marked, ""))


def checksums(table: Any, shape: Shape) -> Any:
    """Compute a checksum of 32 bits of every row, as texts: the version of a copy whose row has none.

    The same whatever other rows are beside it. A NULL adds nothing, so that a column that was added later does not
    change it.
    """
    total = np.zeros(len(table), np.uint64)
    for name, kind in shape:
        column = whole(table[name])
        salt = np.uint64(int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest()[:8]) | 1)
        mixed = (_numbers_of(column, kind) ^ salt) * _ODD
        mixed = (mixed ^ (mixed >> np.uint64(29))) * salt
        total += np.where(column.is_valid().to_numpy(zero_copy_only=False), mixed, np.uint64(0))
    return pc.cast(pa.array((total >> np.uint64(32)).astype(np.int64)), pa.string())


def _numbers_of(column: Any, kind: str) -> Any:
    """Compute a number for every value that differs if the value does."""
    if kind in ("string", "binary"):
        return _polynomials(column.fill_null(_zero(column.type)))
    values = column.fill_null(_zero(column.type)).to_numpy(zero_copy_only=False)
    return (values.astype(np.float64) if kind in _BIG_ENDIAN else values.astype(np.int64)).view(np.uint64)


def _polynomials(column: Any) -> Any:
    """Compute the polynomial of every value's bytes, modulo 2^64, some bytes at a time."""
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1].astype(
        np.int64
    )
    data = np.frombuffer(column.buffers()[2] or b"", np.uint8)
    powers, inverses = _powers()
    found = np.empty(len(column), np.uint64)
    first = 0
    while first < len(column):
        last = int(np.searchsorted(ends, ends[first] + _BYTES_AT_ONCE, "right")) - 1
        if last == first:  # Longer than what is computed at once.
            value = data[ends[first] : ends[first + 1]].tobytes()
            found[first] = int.from_bytes(hashlib.md5(value, usedforsecurity=False).digest()[:8])
            first += 1
            continue
        start, end = ends[first], ends[last]
        sums = np.zeros(end - start + 1, np.uint64)
        np.cumsum(data[start:end] * powers[: end - start], out=sums[1:])
        each = ends[first : last + 1] - start
        lengths = np.diff(each).astype(np.uint64)
        found[first:last] = (sums[each[1:]] - sums[each[:-1]]) * inverses[each[:-1]] + lengths * _ODD
        first = last
    return found


@lru_cache(maxsize=1)
def _powers() -> tuple[Any, Any]:
    inverse = np.uint64(pow(int(_BASE), -1, 2**64))
    return tuple(np.cumprod(np.concatenate(([np.uint64(1)], np.full(_BYTES_AT_ONCE, one)))) for one in (_BASE, inverse))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Checks:
    """Rows, the sum of their keys' digests, rows proven in full, and the sums of those rows' digests. Sums are
    independent of order."""

    rows: int = 0
    keys: int = 0
    proven: int = 0
    row_first: int = 0
    row_second: int = 0

    @classmethod
    def read(cls, values: Iterable[object]) -> Checks:
        """Read checks from the database's result: numbers, some of them two in one text."""
        return cls(*(int(number) for value in values for number in str(value).split()))

    def __add__(self, other: Checks) -> Checks:
        return Checks(*(one + two for one, two in zip(self.numbers(), other.numbers(), strict=True)))

    def numbers(self) -> list[int]:
        return [self.rows, self.keys, self.proven, self.row_first, self.row_second]


def check(table: Any, shape: Shape, *, strict: bool, whole_keys: bool = False) -> Checks:
    """Compute the same checks from values that were read back. `whole_keys`: keys are whole numbers, one each."""
    keys, sampled = _key_numbers(table) if whole_keys else _key_texts(table)
    chosen = table if strict else table.filter(pa.array(sampled))
    return Checks(len(table), keys, len(chosen), *_sums(_row_digests(chosen, shape)))


def check_keys(table: Any, *, whole_keys: bool) -> Checks:
    """Compute the checks of keys alone."""
    keys, _ = _key_numbers(table) if whole_keys else _key_texts(table)
    return Checks(len(table), keys)


def _key_texts(table: Any) -> tuple[int, Any]:
    """Compute the sum of the digests of keys, and which rows are sampled."""
    digests = md5(whole(table[KEY]))
    return _sums(digests)[0], digests[:, 0] == int(SAMPLED, 16)


def _key_numbers(table: Any) -> tuple[int, Any]:
    """Compute the same of keys that are numbers, column by column."""
    digests = key_digest(key_numbers(whole(table[KEY])))
    return int(digests.sum()), digests % SAMPLED_EVERY == 0


def key_numbers(keys: Any) -> Any:
    """Read keys that are one whole number each."""
    return pc.cast(pc.utf8_trim(keys, '["]'), pa.int64()).to_numpy(zero_copy_only=False)


def _sums(digests: Any) -> tuple[int, int]:
    halves = digests.view(">i8").astype(np.int64)
    # In two pieces, so that nothing overflows.
    high, low = (halves >> 32).sum(axis=0), (halves & 0xFFFFFFFF).sum(axis=0)
    return (int(high[0]) << 32) + int(low[0]), (int(high[1]) << 32) + int(low[1])


def content_digest(table: Any) -> str:
    """Compute a digest of everything in a table, in its order, to compare what was written with what is read back.

    The same however its columns are divided into chunks. It is of the names, types, lengths, NULLs and values of
    columns, and of each of the latter two of a checksum and a sum that have nothing in common: what is damaged in a way
    that one of them misses changes the other.
    """
    digest = hashlib.sha1(usedforsecurity=False)
    for name in table.column_names:
        column = table[name]
        digest.update(f"{name} {column.type} {len(column)} {column.null_count};".encode())
        if column.null_count:
            valid = _Bytes()
            valid.add(np.packbits(whole(column.is_valid()).to_numpy(zero_copy_only=False)))
            digest.update(valid.text.encode())
            column = column.fill_null(_zero(column.type))
        for each in _values(column):
            digest.update(each.text.encode())
    return digest.hexdigest()


class _Bytes:
    """Bytes that arrive in pieces: a CRC-32, and the sum of all words of eight bytes, modulo 2^64.

    Both together are computed several times as fast as a cryptographic digest.
    """

    def __init__(self) -> None:
        self._count = self._crc = self._sum = 0

    def add(self, data: Any) -> None:
        """Add a buffer of bytes, or an array of numbers."""
        data = memoryview(data).cast("B")
        self._crc = zlib.crc32(data, self._crc)
        # A piece may begin in the middle of a word.
        head = data[: -self._count % 8]
        words = (len(data) - len(head)) // 8
        tail = data[len(head) + words * 8 :]
        total = int(np.frombuffer(data, "<u8", words, len(head)).sum(dtype=np.uint64)) if words else 0
        total += (int.from_bytes(head, "little") << 8 * (self._count % 8)) + int.from_bytes(tail, "little")
        self._sum = (self._sum + total) % 2**64
        self._count += len(data)

    @property
    def text(self) -> str:
        return f"{self._count} {self._crc:x} {self._sum:x};"


def _zero(kind: Any) -> Any:
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(0), kind)
    if pa.types.is_string(kind):
        return ""
    if pa.types.is_binary(kind):
        return b""
    return pa.scalar(0, kind) if not pa.types.is_boolean(kind) else False


def _values(column: Any) -> Iterator[_Bytes]:
    """Yield the values of a column without NULLs, and before texts their lengths."""
    chunks = [chunk for chunk in column.chunks if len(chunk)]
    values = _Bytes()
    if pa.types.is_boolean(column.type):
        values.add(np.packbits(whole(column).to_numpy(zero_copy_only=False)))
    elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        lengths = _Bytes()
        for chunk in chunks:
            ends = np.frombuffer(chunk.buffers()[1], np.int32)[chunk.offset : chunk.offset + len(chunk) + 1]
            lengths.add(np.diff(ends))
            if chunk.buffers()[2] is not None:
                values.add(memoryview(chunk.buffers()[2])[ends[0] : ends[-1]])
        yield lengths
    else:
        width = column.type.bit_width // 8
        for chunk in chunks:
            start = chunk.offset * width
            values.add(memoryview(chunk.buffers()[1])[start : start + len(chunk) * width])
    yield values


def whole(column: Any) -> Any:
    """Combine a column into one chunk; a column without rows has no chunks at all."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column
