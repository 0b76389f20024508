"""Every reader of Delta Lake reads the same rows, of every type, also where rows came back and files were written anew
by Spark."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from archive.cold import Cold, cold_keeper
from archive.test_restore_types import CONTRACT
from archive.test_types import OLD_MS, POSTGRES, SQLITE
from servers import Database
from wane._archive.spark.session import session
from wane._contract.settings import SparkSettings
from wane._prune.sweep import Outcome
from wane.contrib.spark import register

EVERY = 6
"""Rows have their values in turn: each type has as many, at most, and a NULL."""
WORDS: list[Any] = ["", "e\u0301 \U0001f600", "a\nb\tc ", "NULL"]
VALUES: dict[str, list[Any]] = {
    "smallint": [-(2**15), 2**15 - 1, 0],
    "integer": [-(2**31), 2**31 - 1, 0],
    "bigint": [-(2**63), 2**63 - 1, 2**53 + 1],
    "boolean": [True, False],
    "real": [float("nan"), -0.0, 1.5, float("-inf")],
    "double precision": [float("nan"), -0.0, 5e-324, 0.1 + 0.2, float("inf")],
    "text": WORDS,
    "varchar(7)": ["aé\U0001f600", ""],
    "char(5)": ["ab", ""],
    "bytea": [b"", b"\x00\xff", b"abc"],
    "numeric(20,6)": ["-9999999999999.999999", "0.000001", "0"],
    "numeric": ["NaN", "1.500", "1e40", "-0.0000001"],
    "date": ["0001-01-01", "1582-10-10", "1900-01-01", "9999-12-31"],
    "timestamptz": [
        "0001-01-02 00:00:00.000001+00",
        "1582-10-10 12:00+00",
        "1899-12-31+00",
        "9999-12-30 23:59:59.999999+00",
    ],
    "timestamp": ["0001-01-02 00:00:00.000001", "1582-10-10 12:00", "1900-01-01", "9999-12-30 23:59:59.999999"],
    "time": ["00:00", "23:59:59.999999"],
    "interval": ["1 mon -2 days 03:04:05.678901", "0"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-4fff-8fff-ffffffffffff"],
    "json": ['{"a": 1, "a": 2}', " [1,\n2.50] "],
    "jsonb": ['{"b": [1, {"a": "\U0001f600"}]}', "1e400"],
    "integer[]": ["{1,NULL,3}", "{}", "[0:1]={5,6}"],
    "text[]": ['{{a,"b c"},{NULL,"NULL"}}', '{"{","\\"",","}'],
    "numeric[]": ["{1.50,NaN}", "{}"],
    "inet": ["10.0.0.1/8", "::1"],
    "int4range": ["[1,5)", "empty"],
    "bit varying(9)": ["", "010101010"],
    "point": ["(1.5,-2)", "(0,0)"],
    "oid": [0, 2**32 - 1],
    "INTEGER": [-(2**63), 2**63 - 1, 2**53 + 1],
    "BOOLEAN": [0, 1],
    "TEXT": WORDS,
    "VARCHAR(3)": ["longer than it says", ""],
    "BLOB": [b"", b"\x00\xff", b"abc"],
    "REAL": [-0.0, 5e-324, 0.1 + 0.2, float("inf")],
    "NUMERIC(10,2)": [2**53, -1.25, 0],
    "DATE": ["0001-01-01", "9999-12-31"],
    "DATETIME": ["0001-01-01 00:00:00.000001", "9999-12-31"],
    "JSON": ['{"a": 1, "a": 2}', "[1, 2.50]"],
}


def add(database: Database, ids: range) -> None:
    columns = [one.partition(" ")[2] for one in (POSTGRES if database.store == "postgres" else SQLITE)]
    rows = []
    for n in ids:
        values = [[*VALUES[kind], None] for kind in columns]
        rows.append((n, OLD_MS + n, *(some[n % len(some)] for some in values)))
    typed = database.store == "postgres"
    marks = ", ".join(f"?::{kind}" if typed and kind != "bytea" else "?" for kind in columns)
    database.executemany(f"INSERT INTO t VALUES (?, ?, {marks})", rows)


@contextmanager
def archived(database: Database, folder: Path) -> Iterator[Cold]:
    """Yield an archive of two sweeps, from which some rows came back."""
    columns = POSTGRES if database.store == "postgres" else SQLITE
    database.execute(f"CREATE TABLE t (id bigint PRIMARY KEY, at_ms bigint NOT NULL, {', '.join(columns)})")
    database.execute("CREATE INDEX t_due ON t (at_ms, id)")
    with cold_keeper(database, folder, CONTRACT) as cold:
        for ids in (range(4 * EVERY), range(100, 100 + 2 * EVERY)):
            add(database, ids)
            assert cold.one().outcome is Outcome.DONE
        assert cold.keeper.archive.restore("t", where="id = 3 OR id = 104").restored == {"t": 2}
        yield cold


def by_duckdb(folder: str) -> pa.Table:
    cold = DeltaTable(folder).to_pyarrow_dataset()
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        engine.register("cold", cold)
        return engine.sql("SELECT * FROM cold").to_arrow_table()


def by_polars(folder: str) -> pa.Table:
    return polars.scan_delta(folder).collect().to_arrow()


def by_pandas(folder: str) -> pa.Table:
    read: pd.DataFrame = DeltaTable(folder).to_pandas(types_mapper=pd.ArrowDtype)
    return pa.Table.from_pandas(read, preserve_index=False)


def by_spark(folder: str) -> pa.Table:
    spark = session(SparkSettings())
    register(spark)
    return spark.read.format("wane_cold").load(folder).toArrow()


READERS: dict[str, Callable[[str], pa.Table]] = {"DuckDB": by_duckdb, "Polars": by_polars, "pandas": by_pandas}


def exact(table: pa.Table, like: pa.Schema) -> list[list[Any]]:
    """Return the values of every row, by its id; of numbers with a fraction their bits, by which NaN equals itself and
    no zero the other one."""
    rows = table.select(like.names).cast(like).sort_by("id").to_pylist()
    return [[struct.pack(">d", one) if isinstance(one, float) else one for one in row.values()] for row in rows]


def agree(cold: Cold, readers: dict[str, Callable[[str], pa.Table]]) -> list[list[Any]]:
    folder = str(cold.folder / "cold" / "t")
    read = pa.table(DeltaTable(folder).to_pyarrow_table())
    expected = exact(read, read.schema)
    left = [n for n in (*range(4 * EVERY), *range(100, 100 + 2 * EVERY)) if n not in (3, 104)]
    assert read.sort_by("id")["id"].to_pylist() == left
    for name, reader in readers.items():
        for row, wanted in zip(exact(reader(folder), read.schema), expected, strict=True):
            assert row == wanted, f"{name} reads the row {row[0]} otherwise"
    return expected


def test_duckdb_polars_and_pandas_read_the_same_rows_of_every_type(database: Database, tmp_path: Path) -> None:
    with archived(database, tmp_path) as cold:
        agree(cold, READERS)


@pytest.mark.on_spark
@pytest.mark.sampled("postgres")
def test_all_readers_read_the_same_rows_after_a_compaction_too(database: Database, tmp_path: Path) -> None:
    with archived(database, tmp_path) as cold:
        before = agree(cold, {**READERS, "Spark": by_spark})
        [compacted] = cold.keeper.archive.compact()
        assert (compacted.outcome, compacted.files > compacted.into) == (Outcome.DONE, True), compacted.message
        assert agree(cold, {**READERS, "Spark": by_spark}) == before


DELTA_SCAN = """
import pathlib, sys
import duckdb, duckdb_extension_delta, pyarrow

[extension] = pathlib.Path(duckdb_extension_delta.__file__).parent.rglob("delta.duckdb_extension")
with duckdb.connect() as engine:
    engine.execute("SET autoinstall_known_extensions = false")
    engine.execute(f"LOAD '{extension}'")
    engine.execute("SET TimeZone = 'UTC'")
    read = engine.sql(f"SELECT * FROM delta_scan('{sys.argv[1]}')").to_arrow_table()
with pyarrow.ipc.new_stream(sys.stdout.buffer, read.schema) as out:
    out.write_table(read)
"""
DUCKDB = os.environ.get("WANE_DUCKDB")


def test_duckdbs_own_extension_reads_the_same_rows(database: Database, tmp_path: Path) -> None:
    """Each version of DuckDB needs its own build of the extension, which lags behind the newest DuckDB."""

    def read(folder: str) -> pa.Table:
        assert DUCKDB is not None
        done = subprocess.run([DUCKDB, "-c", DELTA_SCAN, folder], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        return pa.ipc.open_stream(done.stdout).read_all()

    if DUCKDB is None:
        pytest.skip("WANE_DUCKDB names no Python that has duckdb-extension-delta, a duckdb of its version, and pyarrow")
    with archived(database, tmp_path) as cold:
        agree(cold, {"delta_scan": read})
