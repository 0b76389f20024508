"""Proving that a sweep copied no row twice.

Tasks that do not share a snapshot may both find a row: in the range that it is moved out of, and in the one that it is
moved into. Two copies of one row would be one too many in the archive, and what removes one of them might take the
other along. So keys are compared over all files of a sweep before anything is committed. Where reading the files back
has shown that each holds other keys than all others, no task has to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wane._archive.delta.failure import answering, answers
from wane._archive.delta.paths import cold_path, source
from wane._archive.pipeline.verify import FileJob, KeySpan, KeySpans
from wane._archive.rows import content
from wane._archive.rows.types import KEY
from wane._archive.spark.executor import ArchiveExecutor

KEYS_AT_ONCE = 1_000_000
"""The number of keys that one task compares, and holds in memory."""
_NUMBERS_OF_A_KEY = 8
"""How many keys that are whole numbers take the memory of one that is a text."""
_BYTES = 8
"""The number of bytes at the end of a key that decide which task compares it; the last ones are quotes and brackets."""


@dataclass(frozen=True, slots=True)
class _Share:
    """The keys of one part that one task compares: those that fall into one of several shares."""

    part: int
    number: int
    of: int


def copied_twice(
    executor: ArchiveExecutor, files: Sequence[FileJob], spans: KeySpans = MappingProxyType({})
) -> tuple[int, str] | None:
    """Find a row that a sweep copied twice: its part, and its key; None if there is none.

    `spans`: what reading the files back has found out about their keys.
    """
    if len({file.range for file in files}) < 2:
        return None  # One task read them all, in one snapshot of the database, where keys are unique.
    shares = []
    for part in sorted({file.part for file in files} - {part for part, found in spans.items() if _are_apart(found)}):
        mine = [file for file in files if file.part == part]
        most = KEYS_AT_ONCE * (_NUMBERS_OF_A_KEY if _are_numbers(mine) else 1)
        of = -(-sum(file.rows for file in mine) // most)
        shares += [_Share(part, number, of) for number in range(of)]
    found = answers(executor.run(partial(_compare, list(files), shares), len(shares)))
    return min(((one["part"], one["key"]) for one in found if one["key"] is not None), default=None)


def _are_apart(spans: Sequence[KeySpan]) -> bool:
    """Check whether every key is in one file, and there once, as when keys grow with the times of rows."""
    known = sorted(span for span in spans if span is not None)
    return len(known) == len(spans) and all(one[1] < other[0] for one, other in pairwise(known))


def _compare(files: Sequence[FileJob], shares: Sequence[_Share], number: int) -> str:
    share = shares[number]
    return answering(lambda: {"part": share.part, "key": _twice(files, share)})


def _are_numbers(files: Sequence[FileJob]) -> bool:
    return all(file.whole_keys for file in files)


def _twice(files: Sequence[FileJob], share: _Share) -> str | None:
    mine = [file for file in files if file.part == share.part]
    if _are_numbers(mine):
        return _number_twice((content.key_numbers(keys) for keys in _keys(mine)), share)
    keys = pa.chunked_array(
        [one if share.of == 1 else one.filter(pa.array(_shares(one, share.of) == share.number)) for one in _keys(mine)],
        pa.string(),
    )
    if pc.count_distinct(keys).as_py() == len(keys):
        return None
    counted = pc.value_counts(keys)
    return str(pc.min(counted.field("values").filter(pc.greater(counted.field("counts"), 1))).as_py())


def _number_twice(numbers: Iterable[Any], share: _Share) -> str | None:
    found = np.sort(np.concatenate([one[one % share.of == share.number] for one in numbers]))
    twice = found[1:][found[1:] == found[:-1]]
    return f'["{twice[0]}"]' if len(twice) else None


def _keys(files: Sequence[FileJob]) -> Iterator[Any]:
    for file in files:
        with pq.ParquetFile(source(cold_path(file.path))) as opened:
            for batch in opened.iter_batches(columns=[KEY], use_threads=False):
                yield batch.column(KEY)


def _shares(keys: Any, of: int) -> Any:
    """Compute the share of every key, by its last bytes: equal for equal keys."""
    ends = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2], np.uint8)
    mixed = np.zeros(len(keys), np.uint64)
    for back in range(1, _BYTES + 3):
        byte = data[np.maximum(ends[1:] - back, ends[:-1])]
        mixed = mixed * np.uint64(31) + byte
    return mixed % np.uint64(of)
