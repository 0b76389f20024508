"""The pipeline without Spark, where it is not Spark that is tested: tasks run in this process, one after the other, and
rows are chosen by the engine that comes with deltalake. Everything else is the product's own. Where a task must die
without its driver, `ForkedExecutor` runs it."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import QueryBuilder

from archive import imported as imported
from wane._archive.delta.failure import TransientFailure
from wane._archive.delta.paths import ColdPath, cold_path, source
from wane._archive.query import staging
from wane._archive.query.staging import DIGEST, Choice, StagedPart
from wane._archive.rows import content
from wane._archive.rows.content import Checks, Shape
from wane._archive.rows.types import KEY, ORIGIN, PARENT, SWEEP
from wane._archive.spark import executor
from wane._archive.spark.executor import Begun, Progress, SparkExecutor, Work, unseen
from wane.errors import ArchiveError


def call(task: Callable[[int], str], number: int) -> str:
    try:
        return task(number)
    except TransientFailure as problem:
        return str(problem)  # Which is what is known when Spark has tried often enough.


def fork(task: Callable[[int], str], number: int) -> str:
    """Run one task in a process of its own, as Spark does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            with os.fdopen(writing, "w") as out:
                out.write(call(task, number))
                out.flush()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answered:
        answer = answered.read()
    os.waitpid(child, 0)
    return answer


class InlineExecutor:
    """Runs tasks one after the other, and has no frames."""

    call = staticmethod(call)

    def __init__(self, *_: object) -> None:
        pass

    def spark(self) -> Any:
        return None

    def run(self, task: Callable[[int], str], count: int, progress: Progress = unseen) -> Iterator[str]:
        for number in range(count):
            yield self.call(task, number)

    def most_at_a_time(self) -> int:
        return 1

    def begin(self, task: Callable[[int], str], count: int) -> Begun:
        raise NotImplementedError("tasks run one after the other")

    def stream(self, work: Work, count: int, progress: Progress = unseen) -> Iterator[str]:
        raise NotImplementedError("there are no frames without Spark")

    def reread(self, paths: Sequence[str], shape: Shape, *, whole_keys: bool) -> Checks:
        tables = (pq.ParquetFile(source(cold_path(path))).read() for path in paths)
        return sum((content.check(one, shape, strict=True, whole_keys=whole_keys) for one in tables), Checks())

    def stage(self, parts: Sequence[StagedPart], choice: Choice, folder: ColdPath, piece_rows: int) -> list[int]:
        return stage(parts, choice, folder, piece_rows)


def stage(parts: Sequence[StagedPart], choice: Choice, folder: ColdPath, piece_rows: int) -> list[int]:
    """Do what `staging.stage` does on Spark."""
    rows = _read(parts[0], _condition(choice))
    newest = max_by_key(rows)
    pieces = math.ceil(len(rows) / piece_rows)
    for piece in range(pieces):
        _write(newest, KEY, KEY, parts[0], folder / "0", piece, pieces)
    remaining = set(zip(newest[SWEEP].to_pylist(), newest[KEY].to_pylist(), strict=True))
    for number, part in enumerate(parts[1:], 1):
        if part.cold.open() is not None:
            following = _read(part, "true")
            pairs = zip(following[SWEEP].to_pylist(), following[PARENT].to_pylist(), strict=True)
            following = following.filter(pa.array([pair in remaining for pair in pairs], pa.bool_()))
            for piece in range(pieces):
                _write(following, PARENT, KEY, part, folder / str(number), piece, pieces)
    return [staging.count(folder, 0, piece) for piece in range(pieces)]


def _condition(choice: Choice) -> str:
    if choice.where is not None:
        return choice.where
    if choice.sweep is not None:
        return f"{SWEEP} = {choice.sweep}"
    return " OR ".join(" AND ".join(f"{name} = '{value}'" for name, value in key.items()) for key in choice.keys)


def _read(part: StagedPart, where: str) -> pa.Table:
    table = part.cold.open()
    if table is None:
        raise ArchiveError(f"nothing of {part.cold.name} is archived yet")
    if part.cold.shared:
        where = f"({where}) AND {ORIGIN} = '{part.cold.folder.name.partition('=')[2]}'"
    found = QueryBuilder().register("cold", table).execute(f"SELECT * FROM cold WHERE {where}").read_all()
    read = pa.table(found)
    read = read.drop_columns([ORIGIN]) if part.cold.shared else read
    kinds = {str(pa.string_view()): pa.string(), str(pa.binary_view()): pa.binary()}
    return read.cast(pa.schema([pa.field(field.name, kinds.get(str(field.type), field.type)) for field in read.schema]))


def max_by_key(rows: pa.Table) -> pa.Table:
    newest: dict[str, int] = {}
    for key, number in zip(rows[KEY].to_pylist(), rows[SWEEP].to_pylist(), strict=True):
        newest[key] = max(number, newest.get(key, 0))
    pairs = zip(rows[KEY].to_pylist(), rows[SWEEP].to_pylist(), strict=True)
    return rows.filter(pa.array([newest[key] == number for key, number in pairs], pa.bool_()))


def _write(rows: pa.Table, by: str, then: str, part: StagedPart, folder: ColdPath, piece: int, pieces: int) -> None:
    mine = rows.filter(
        pa.array([zlib.crc32(key.encode()) % pieces == piece for key in rows[by].to_pylist()], pa.bool_())
    )
    if not len(mine):
        return
    mine = mine.take(pc.sort_indices(mine, [(name, "ascending") for name in dict.fromkeys((by, then))]))
    mine = mine.append_column(DIGEST, pa.array(staging._digests(mine, part.shape, part.lacking), pa.string()))
    piece_folder = folder / f"{staging.PIECE}={piece}"
    piece_folder.mkdir(parents=True)
    with (piece_folder / "rows.parquet").open("xb") as sink:
        pq.write_table(mine, sink)


class ForkedExecutor(InlineExecutor):
    """Runs each task in a process of its own, as Spark does."""

    call = staticmethod(fork)


class InlineSparkExecutor(SparkExecutor):
    """Runs tasks in this process; frames are Spark's."""

    def run(self, task: Callable[[int], str], count: int, progress: Progress = unseen) -> Iterator[str]:
        return InlineExecutor().run(task, count, progress)

    def most_at_a_time(self) -> int:
        return 1


def tasks_without_spark(patch: pytest.MonkeyPatch) -> None:
    """Let tasks run so in this process; what works on DataFrames goes on to need Spark."""
    patch.setattr(executor, "default", InlineSparkExecutor)


def without_spark(patch: pytest.MonkeyPatch, made: type[InlineExecutor] = InlineExecutor) -> None:
    """Let the pipeline run so in this process."""
    patch.setattr(executor, "default", made)
