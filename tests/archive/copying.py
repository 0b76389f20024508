"""Copying and proving without Spark: the tasks themselves, in a process of their own.

A process of their own, because ADBC brings a SQLite of its own: with the test's connections to the same file in one
process, they would take each other's locks away.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servers import Database
from wane._archive.delta.failure import answers
from wane._archive.pipeline import extract
from wane._archive.pipeline.extract import CopyJob, PartJob, copy_ranges
from wane._archive.pipeline.verify import FileJob, ProofJob, files_of, read_back
from wane._archive.rows.content import Checks
from wane._archive.rows.dialects import archive_dialect
from wane._archive.rows.sql import ArchiveRows, bind_archive
from wane._archive.spark.connect import source_of
from wane._archive.spark.reader import Source, open_reader
from wane._contract.model import Age, ArchiveTable, Contract, Rule, Table, Time, ToArchive, Unit
from wane._contract.names import TableName
from wane._db import Store, open_store
from wane._db.url import resolve_url
from wane._rules.rows import rows_of
from wane._rules.selection import bind_rule

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@contextmanager
def workers() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        yield pool


def bound(store: Store, cast: dict[str, str] | None = None) -> ArchiveRows:
    """Return the table `t` with (id, at_ms), all of its old rows."""
    from datetime import timedelta

    name = TableName.parse("t")
    rule = Rule("cold", Age(Time("at_ms", Unit.MILLISECONDS), timedelta(days=1)), action=ToArchive())
    table = Table(name, "a test", (rule,))
    settings = ArchiveTable(name, timedelta(days=9999), tuple((cast or {}).items()))
    selection, findings = bind_rule(Contract(None, (table,)), table, rule, store.reflect(), store.types)
    assert selection is not None, findings
    return bind_archive(rows_of(store), archive_dialect(store), selection, [settings])


def copied(
    pool: ProcessPoolExecutor,
    database: Database,
    folder: Path,
    *,
    strict: bool = True,
    cast: dict[str, str] | None = None,
    tamper: bool = False,
) -> tuple[pa.Table, Checks, Checks]:
    """Return what the files hold, what the database says, and what was read back."""
    with open_store(resolve_url(database.url)) as store:
        rows = bound(store, cast)
        [part] = rows.parts
        copy = store.literal(rows.copy(part, datetime.now(UTC)))
        checks = store.literal(rows.checks(part, datetime.now(UTC), strict=strict))
        widest = store.literal(rows.widest(part, datetime.now(UTC)))
        unstorable = store.literal(rows.unstorable(part, datetime.now(UTC)))
        texts = copy, widest, checks, unstorable
        how = rows.assembly(part), rows.dialect.declares_types, rows.whole_key(part) is not None
        parts = [PartJob("t", str(folder), part.shape, False, *texts, *how)]
        job = CopyJob(1, source_of(store), parts, [[(0, "1 = 1")]])
    # The secret stays here: the process gets it as an argument, which is what a socket does elsewhere.
    [answer] = answers([pool.submit(_copy, job, job.source.secret, tamper=tamper).result()])
    [manifest] = answer["manifests"]
    files = files_of([folder], [manifest])
    proof = ProofJob([part.shape], files, strict)
    reported = Checks()
    for number in range(len(files)):
        [answer] = answers([read_back(proof, number)])
        reported += Checks(*answer["checks"])
    table = pa.concat_tables([_read(file) for file in files]) if files else pa.table({})
    return table, Checks(*manifest["parts"][0]["checks"]), reported


def batch_sizes(kind: str, path: str | None, secret: str | None, copy: str, widest: str) -> list[tuple[int, int]]:
    """Return the rows and bytes of every batch that a reader gives."""
    with open_reader(Source(kind, path, secret)) as reader:
        return [(batch.num_rows, batch.nbytes) for batch in reader.batches(copy, widest)]


def _read(file: FileJob) -> pa.Table:
    return pq.ParquetFile(file.path).read()


def _copy(job: CopyJob, secret: str | None, *, tamper: bool) -> str:
    job = replace(job, source=replace(job.source, secret=secret))
    original = extract._batches
    if tamper:
        extract._batches = _tampered  # type: ignore[assignment]
    try:
        return copy_ranges(job, 0)
    finally:
        extract._batches = original


_original = extract._batches


def _tampered(*arguments: Any) -> Iterator[pa.RecordBatch]:
    """Read as a driver that decodes one value wrongly."""
    for batch in _original(*arguments):
        values = batch["body"].to_pylist()
        if values:  # A batch that only declared types has no rows left.
            values[0] = f"{values[0]}?"
        yield batch.set_column(batch.schema.names.index("body"), "body", pa.array(values, pa.string()))


def shown(value: object) -> str:
    return json.dumps(value, default=str)
