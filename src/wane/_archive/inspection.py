"""Inspecting a table of the archive: what its log records, and whether its files hold that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.evolution import ColumnChange
from wane._archive.delta.failure import answering, answers
from wane._archive.delta.files import listing
from wane._archive.delta.paths import ColdPath, cold_path, source
from wane._archive.journal import ChangedSweep
from wane._archive.model import ArchivedColumnChange, ColdStatus, Proof

if TYPE_CHECKING:
    from deltalake import DeltaTable

Run = Callable[[Callable[[int], str], int], Iterator[str]]
"""Runs a task for every number below a count, and yields their answers."""


def status_of(cold: ColdTable, changed: Sequence[ChangedSweep] = ()) -> ColdStatus | None:
    """Read the status of a table from its log, and how its columns changed; return None if there is no table yet."""
    table = cold.open()
    if table is None:
        return None
    files = _files(table)
    months = sorted(file["month"] for file in files)
    return ColdStatus(
        cold.name,
        str(cold.folder),
        sum(file["rows"] for file in files),
        sum(file["bytes"] for file in files),
        len(files),
        months[0] if months else None,
        months[-1] if months else None,
        table.version(),
        changes=tuple(
            ArchivedColumnChange(
                change.column, change.was, change.now, sweep.id, sweep.planned_at, renamed_from=change.renamed_from
            )
            for sweep in changed
            for change in (ColumnChange(**one) for one in sweep.changes)
            if change.table == cold.name
        ),
    )


def _files(table: DeltaTable) -> list[dict[str, Any]]:
    return [{"path": one.path, "rows": one.rows, "bytes": one.bytes, "month": one.month} for one in listing(table)]


def bytes_of(table: DeltaTable) -> int:
    """Return the bytes of all files of a table that was opened, as its log has them."""
    return sum(file["bytes"] for file in _files(table))


def in_process(task: Callable[[int], str], count: int) -> Iterator[str]:
    """Run tasks here, one after the other: for a few files Spark takes longer to start than they take to read."""
    return map(task, range(count))


def proof(run: Run, cold: ColdTable, table: DeltaTable) -> Proof:
    """Read every file of a table that was opened, and report the damaged ones."""
    files = _files(table)
    found = answers(run(partial(_read, str(cold.folder), files), len(files)))
    problems = tuple(sorted(one["problem"] for one in found if one["problem"]))
    return Proof(cold.name, len(files), sum(one["rows"] for one in found), problems)


def _read(folder: str, files: list[dict[str, Any]], number: int) -> str:
    return answering(lambda: _counted(cold_path(folder), files[number]))


def _counted(folder: ColdPath, file: dict[str, Any]) -> dict[str, Any]:
    path = folder / unquote(file["path"])
    rows = 0
    try:
        with pq.ParquetFile(source(path), page_checksum_verification=True) as opened:
            for batch in opened.iter_batches():
                rows += len(batch)
                batch.validate(full=True)
    except (OSError, pa.ArrowException) as problem:
        return {"rows": rows, "problem": f"{path}: {problem}"}
    if rows != file["rows"] or path.stat().st_size != file["bytes"]:
        return {"rows": rows, "problem": f"{path}: the log records {file['rows']} rows, and it holds {rows}"}
    return {"rows": rows, "problem": ""}
