"""Inspecting a table of the archive: what its log says, and whether its files hold what the log says."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from wane._archive.cold_table import ColdTable
from wane._archive.executor import ArchiveExecutor
from wane._archive.failure import answering, answers
from wane._archive.model import ColdStatus, Proof
from wane._archive.types import MONTH

if TYPE_CHECKING:
    from deltalake import DeltaTable


def status_of(cold: ColdTable) -> ColdStatus | None:
    """Read the status of a table from its log; return None if there is no table yet."""
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
    )


def _files(table: Any) -> list[dict[str, Any]]:
    actions = pa.table(table.get_add_actions(flatten=True))
    columns = ("path", "num_records", "size_bytes", f"partition.{MONTH}")
    rows = zip(*(actions[name].to_pylist() for name in columns), strict=True)
    return [{"path": path, "rows": count or 0, "bytes": size, "month": month} for path, count, size, month in rows]


def proof(executor: ArchiveExecutor, cold: ColdTable, table: DeltaTable) -> Proof:
    """Read every file of a table that was opened, and report the damaged ones."""
    files = _files(table)
    found = answers(executor.run(partial(_read, str(cold.folder), files), len(files)))
    problems = tuple(sorted(one["problem"] for one in found if one["problem"]))
    return Proof(cold.name, len(files), sum(one["rows"] for one in found), problems)


def _read(folder: str, files: list[dict[str, Any]], number: int) -> str:
    return answering(lambda: _counted(Path(folder), files[number]))


def _counted(folder: Path, file: dict[str, Any]) -> dict[str, Any]:
    path = folder / unquote(file["path"])
    rows = 0
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as opened:
            for batch in opened.iter_batches():
                rows += len(batch)
                batch.validate(full=True)
    except (OSError, pa.ArrowException) as problem:
        return {"rows": rows, "problem": f"{path}: {problem}"}
    if rows != file["rows"] or path.stat().st_size != file["bytes"]:
        return {"rows": rows, "problem": f"{path}: the log says {file['rows']} rows, and it holds {rows}"}
    return {"rows": rows, "problem": ""}
