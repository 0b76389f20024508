"""Making what the archive adds to a row from the columns that were read: its key, version and month.

Column by column, with the very texts that the database would have written (`ArchiveDialect.key`, `version`, `month`),
because writing them there costs more than reading the rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wane._archive.rows.content import Shape, whole
from wane._archive.rows.types import KeyTexts
from wane.errors import ArchiveError

_ESCAPED = {'["\\\\]': ("\\", '"'), "[\x00-\x1f]": tuple(map(chr, range(0x20)))}
"""Characters that JSON escapes, by a pattern that finds them: the backslash first, with which every escape begins."""
_TIMESTAMPS = (-62_135_596_800_000_000, 253_402_214_400_000_000)
_DAYS = (-719_162, 2_932_896)
"""From the year 1 to the end of the year 9999. What PostgreSQL calls infinite arrives outside of it."""
_NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")


def key_texts(table: Any, made: KeyTexts) -> Any:
    """Make the keys of rows, as JSON arrays of texts."""
    texts = [_key_text(whole(table[name]), quoted=made.quoted) for name in made.names]
    joined = pc.binary_join_element_wise(*texts, made.separator)
    return pc.binary_join_element_wise('["', joined, '"]', "")


def _key_text(column: Any, *, quoted: bool) -> Any:
    if pa.types.is_integer(column.type):
        return pc.cast(column, pa.string())
    if quoted:
        column = pc.binary_join_element_wise("'", pc.replace_substring(column, "'", "''"), "'", "")
    for pattern, characters in _ESCAPED.items():
        if pc.any(pc.match_substring_regex(column, pattern)).as_py():
            for one in characters:
                column = pc.replace_substring(column, one, json.dumps(one)[1:-1])
    return column


def versions(column: Any) -> Any:
    """Make texts of the transactions that wrote rows, each of which arrives as four bytes.

    Raise ArrowInvalid for other widths, and ArchiveError for a row without one: nothing could prove its copy.
    """
    stored = whole(column)
    if isinstance(stored, pa.ExtensionArray):
        stored = stored.storage
    if stored.null_count:
        raise ArchiveError("a row was read without the transaction that wrote it", "nothing was archived; run it again")
    stored = stored.cast(pa.binary(4))  # A slice still has the buffer of the whole.
    numbers = np.frombuffer(stored.buffers()[1], ">u4", len(stored), 4 * stored.offset)
    return pc.cast(pa.array(numbers.astype(np.int64)), pa.string())


def months(column: Any, per_second: int | None) -> Any:
    """Make the months of times, as `2026-01`. Rows are read in the order of their times, so most batches have one."""
    column = whole(column)
    ends = pc.min_max(column).as_py()
    edges = _months(pa.array([ends["min"], ends["max"]], column.type), per_second)
    return pa.repeat(edges[0], len(column)) if edges[0] == edges[1] else _months(column, per_second)


def _months(times: Any, per_second: int | None) -> Any:
    if pa.types.is_string(times.type):
        return pc.utf8_slice_codeunits(times, 0, 7)
    if per_second is not None:
        times = pc.divide(pc.cast(times, pa.int64()), per_second)
        times = pc.cast(times, pa.timestamp("s"))
    days = whole(pc.cast(times, pa.date32(), safe=False)).dictionary_encode()  # Few, and writing texts is slow.
    return pc.strftime(days.dictionary, format="%Y-%m").take(days.indices)


def can_be_stored(table: Any, shape: Shape, keys: Sequence[str]) -> bool:
    """Check whether values that were read are within what their types of the archive hold, and keys are no NULLs."""
    return all(_fits(whole(table[name]), kind) for name, kind in shape) and not any(
        table[name].null_count for name in keys
    )


def _fits(column: Any, kind: str) -> bool:
    if kind.startswith("decimal"):
        return not pc.any(pc.is_in(column, pa.array(_NOT_NUMBERS))).as_py()
    if kind == "date":
        return _within(pc.cast(column, pa.int32()), _DAYS)
    return not kind.startswith("timestamp") or _within(pc.cast(column, pa.int64()), _TIMESTAMPS)


def _within(numbers: Any, bounds: tuple[int, int]) -> bool:
    ends = pc.min_max(numbers).as_py()
    return ends["min"] is None or (ends["min"] >= bounds[0] and ends["max"] <= bounds[1])
