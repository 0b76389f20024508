"""What follows rows: how many rows leave with each, and the sums of their digests, column by column.

The same is computed of the rows of the database and of their copies; a row leaves only if both are equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wane._archive.rows.content import whole
from wane._archive.rows.md5 import md5

_PARENT = "parent"


class Following(NamedTuple):
    """The number of rows that follow a row, and the sums of the halves of their digests, modulo 2^64: equal for the
    same rows in the same versions only."""

    rows: int = 0
    first: int = 0
    second: int = 0


_NOTHING = pa.table(
    {_PARENT: pa.array([], pa.string()), **{name: np.zeros(0, np.uint64) for name in Following._fields}}
)


def following(found: Iterable[tuple[int, Any, Any, Any]], keys: Any) -> pa.Table:
    """Add up what follows each of the rows with some keys: a table with the columns of `Following`, a row for each key.

    `found`: the number of a part, and columns of texts: the keys of the rows that its rows follow, their own keys, and
    their versions.
    """
    sums = _summed(pa.concat_tables([_NOTHING, *(_summed(_digested(*one)) for one in found)]))
    chosen = sums.take(pc.index_in(keys, whole(sums[_PARENT])))
    return pa.table({name: chosen[name].fill_null(0) for name in Following._fields})


def each(sums: pa.Table) -> list[Following]:
    """Return what follows each row."""
    return list(map(Following, *(sums[name].to_numpy().tolist() for name in Following._fields)))


def _digested(part: int, parents: Any, keys: Any, versions: Any) -> pa.Table:
    lengths = pc.cast(pc.binary_length(keys), pa.string())
    texts = pc.binary_join_element_wise(str(part), lengths, keys, versions, " ")
    halves = md5(whole(texts)).view(np.uint64)
    ones = np.ones(len(halves), np.uint64)
    return pa.table({_PARENT: parents, "rows": ones, "first": halves[:, 0], "second": halves[:, 1]})


def _summed(rows: pa.Table) -> pa.Table:
    found = rows.group_by(_PARENT, use_threads=False).aggregate([(name, "sum") for name in Following._fields])
    return pa.table({_PARENT: found[_PARENT], **{name: found[f"{name}_sum"] for name in Following._fields}})
