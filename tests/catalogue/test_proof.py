"""Every contract of the catalogue leaves what the system's own cleaner leaves, row by row.

Installed systems need environments of their own, which `make catalogue` makes; those whose schema is written down do
not.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from catalogue.proving import PROOFS, contents, copies, differences, findings, more, prepare, sweep, unquoted
from servers import Database

CASES = [
    pytest.param(name, store, marks=[] if proof.schema_only else pytest.mark.catalogue, id=f"{name}-{store}")
    for name, proof in PROOFS.items()
    for store in proof.stores
]


@pytest.fixture
def server(name: str, store: str) -> str:
    return store if store == "sqlite" else PROOFS[name].server


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "store"), CASES)
def test_a_sweep_leaves_what_the_cleaner_leaves(name: str, store: str, empty: Database, tmp_path: Path) -> None:
    proof = PROOFS[name]
    proof.run("create", empty)
    proof.run("fill", empty)
    before = contents(empty)
    with copies(empty, tmp_path) as (theirs, ours):
        proof.run("clean", theirs)
        prepare(proof, ours)
        contract = proof.contract(tmp_path)
        if not proof.schema_only:
            assert findings(proof, ours, contract) == []
        left = sweep(ours, contract, proof.sweeps)
        cleaned, swept = contents(theirs), contents(ours)
        for table in cleaned:
            if unquoted(table) in proof.written:
                assert len(cleaned[table]) == len(swept[table])
                cleaned[table] = swept[table]
        different = {unquoted(one): more(before, cleaned, swept, one) for one in differences(cleaned, swept)}
        assert sorted(different) == sorted(one for _, named in proof.differs for one in named)
        rows, gone = (sum(map(len, one.values())) for one in (before, swept))
        assert 0 < left == rows - gone < rows
        if not proof.schema_only:
            proof.run("use", ours)
    if record := os.environ.get("WANE_CATALOGUE_RECORD"):
        line: dict[str, object] = {"system": name, "contracts": proof.contracts}
        line |= {"version": proof.version(), "store": store}
        accepted = [(why, {one: different[one] for one in named}) for why, named in proof.differs]
        line |= {"tables": len(before), "rows": rows, "left": left, "differs": accepted}
        line |= {"schema_only": True} if proof.schema_only else {}
        with Path(record).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
