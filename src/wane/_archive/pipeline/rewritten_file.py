"""Files of the archive that are written anew without some of their rows: by tasks, and read back by other tasks before
they count."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from wane._archive.delta.comparison import digests, groups
from wane._archive.delta.failure import answers
from wane._archive.delta.files import NewFile
from wane._archive.delta.paths import ColdPath, cold_path, source, sync_file, sync_folder
from wane._archive.rows import content
from wane._archive.rows.content import Shape
from wane._archive.rows.statistics import statistics
from wane._archive.spark.executor import ArchiveExecutor
from wane.errors import Unproven


@dataclass(frozen=True, slots=True)
class RewrittenFile:
    """What became of one file."""

    path: str
    gone: int
    rest: NewFile | None
    """What is left of it; None if nothing is, or all of it."""


def rewritten_files(
    executor: ArchiveExecutor, task: Callable[[int], str], count: int, folder: str, shape: Shape
) -> list[RewrittenFile]:
    """Run tasks that answer with what `write_rest` returned for files below a folder, and prove that the new files hold
    the rest; raise Unproven if they do not."""
    answered = answered_files(executor, task, count)
    made = [RewrittenFile(one["path"], one["gone"], one["rest"] and NewFile(**one["rest"])) for one in answered]
    left = {one["rest"]["path"]: one["groups"] for one in answered if one["rest"]}
    if digests(executor, cold_path(folder), list(left), shape) != left:
        raise Unproven(f"what was written to {folder} does not hold what was left", "nothing was changed; run it again")
    return made


def answered_files(executor: ArchiveExecutor, task: Callable[[int], str], count: int) -> list[Any]:
    """Run tasks, and return what they answer of each of their files."""
    return [file for one in answers(executor.run(task, count)) for file in one["files"]]


def count_rows(masks: Sequence[Any]) -> int:
    """Count the rows that masks select."""
    return sum(pc.sum(mask).as_py() or 0 for mask in masks)


def write_rest(
    folder: ColdPath, path: str, new: str, masks: Sequence[Any], shape: Shape, texts: Sequence[str]
) -> dict[str, Any]:
    """Write a file anew without the rows that a mask for each group of them selects; return what became of it.

    Nothing is written if all of its rows go, or none. `texts`: text columns whose minima and maxima are written to the
    archive's log.
    """
    gone = count_rows(masks)
    answer: dict[str, Any] = {"path": path, "gone": gone, "rest": None, "groups": []}
    if gone in (0, sum(map(len, masks))):
        return answer
    left = _write(folder / new, folder / path, masks, shape)
    footer = pq.read_metadata(source(folder / new))
    rest = {
        "path": new,
        "month": new.partition("/")[0].partition("=")[2],
        "rows": footer.num_rows,
        "bytes": (folder / new).stat().st_size,
        "statistics": json.dumps(statistics(footer, texts)),
    }
    return {**answer, "rest": rest, "groups": left}


def _write(new: ColdPath, old: ColdPath, masks: Sequence[Any], shape: Shape) -> list[str]:
    """Write the rest of each row group; return the digests of all of them."""
    schema = pa.schema([(name, content.arrow_type(kind)) for name, kind in shape])
    left = []
    with new.open("xb") as sink:
        with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
            for table, mask in zip(groups(old, shape), masks, strict=True):
                rest = table.filter(pc.invert(mask)).combine_chunks()
                if len(rest):
                    left.append(content.content_digest(rest))
                    writer.write_table(rest, row_group_size=len(rest))
        sync_file(new, sink)
    sync_folder(new.parent)
    return left
