"""Every contract of the catalogue leaves exactly what the system's own cleaner leaves, row by row, on a real schema."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from catalogue.proving import PROOFS, contents, copy_rows, differences, sweep, version
from conftest import Clusters
from servers import Database, PostgresDatabase, SqliteDatabase

pytestmark = pytest.mark.catalogue
CASES = [(name, store) for name, proof in PROOFS.items() for store in proof.stores]


@pytest.fixture
def pair(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Database, Database]]:
    if store == "sqlite":
        with (
            closing(SqliteDatabase(tmp_path / "theirs.db")) as theirs,
            closing(SqliteDatabase(tmp_path / "ours.db")) as ours,
        ):
            yield theirs, ours
    else:
        clusters: Clusters = request.getfixturevalue("clusters")
        with clusters.database("postgres") as theirs:
            # A cluster has one database at a time.
            name = urlsplit(theirs.url).path.removeprefix("/")
            theirs.execute(f"CREATE DATABASE {name}_ours")
            try:
                with closing(PostgresDatabase(theirs.url.replace(name, f"{name}_ours"))) as ours:
                    yield theirs, ours
            finally:
                theirs.execute(f"DROP DATABASE {name}_ours WITH (FORCE)")


@pytest.mark.parametrize(("name", "store"), CASES)
def test_a_sweep_leaves_what_the_cleaner_leaves(
    name: str, store: str, pair: tuple[Database, Database], tmp_path: Path
) -> None:
    proof, (theirs, ours) = PROOFS[name], pair
    proof.run("create", theirs)
    proof.run("fill", theirs)
    if store == "postgres":
        proof.run("create", ours)
    copy_rows(theirs, ours)
    before = contents(theirs)
    assert differences(before, contents(ours)) == {}
    proof.run("clean", theirs)
    left = sweep(ours, proof.contract(tmp_path))
    after = contents(theirs)
    assert differences(after, contents(ours)) == {}
    rows, gone = (sum(map(len, one.values())) for one in (before, after))
    assert 0 < left == rows - gone < rows
    proof.run("use", ours)
    if record := os.environ.get("WANE_CATALOGUE_RECORD"):
        line = {"system": name, "contracts": proof.contracts, "version": version(proof), "store": store}
        with Path(record).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "tables": len(before), "rows": rows, "left": rows - gone}) + "\n")
