"""Wrong contracts and what their author reads: one block per mistake in `mistakes/*.txt`.

### name of the mistake
the whole wane.toml, where @table, @states and @good stand for the beginnings below
---
every finding, as it is printed, with its severity and code before it
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from wane._contract.load import ContractReading, read_contract

TABLE = """\
[scheduler]
s = { every = "5m" }
[table.t]
scheduler = "s"
why = "w"
time = "at"
"""
STATES = (
    TABLE
    + """\
state = "status"
live = ["new"]
"""
)
GOOD = (
    TABLE
    + """\
[table.t.rule.r]
keep = "7d"
"""
)
FOLDER = Path(__file__).with_name("mistakes")


@dataclass(frozen=True)
class Case:
    name: str
    toml: str
    reported: str


def cases(group: str) -> list[Case]:
    blocks = (FOLDER / f"{group}.txt").read_text(encoding="utf-8").split("### ")[1:]
    found = []
    for block in blocks:
        name, _, rest = block.partition("\n")
        toml, _, reported = rest.partition("\n---\n")
        for word, beginning in (("@table\n", TABLE), ("@states\n", STATES), ("@good\n", GOOD)):
            toml = f"{toml}\n".replace(word, beginning)
        found.append(Case(name, toml, reported.strip()))
    return found


def codes_tested() -> set[str]:
    lines = (line.split() for path in FOLDER.glob("*.txt") for line in path.read_text(encoding="utf-8").splitlines())
    return {words[1].rstrip(":") for words in lines if len(words) > 1 and words[0] in ("error", "warning")}


def reported(reading: ContractReading) -> str:
    """Return all findings as a person reads them, severity and code before each, without their lines
    (`test_positions.py`)."""
    shown = [replace(finding, line=None) for finding in reading.findings]
    return "\n".join(f"{finding.severity} {finding.code}: {finding}" for finding in shown)


def read(folder: Path, **files: str) -> ContractReading:
    """Read `wane.toml` in the folder, by its bare name, beside the other files (`a` is written to a.toml)."""
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    with inside(folder):
        return read_contract("wane.toml")


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
