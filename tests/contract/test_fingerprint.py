"""Fingerprints that databases have recorded: a change of one makes every adopted contract of its kind look changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.cases import read
from wane._contract.fingerprint import fingerprint
from wane._contract.load import load_contract
from wane.reference import contract_path, names

RECORDED = {
    "statestore": "dfde144e3744fddb",
    "claims": "a9e3ac8ca7746faa",
    "webhooks": "6cba4920769b3570",
    "substrate": "5aa10783bdf0e4d2",
}
EVERYTHING = """
include = ["reference:webhooks", "reference:statestore", "reference:claims", "reference:substrate"]
strict = true
[budget]
rows = 5
[sweep]
duty = 1.0
[archive]
url = "./a"
[scheduler]
x = { every = "5m" }
[table.event_z]
scheduler = "x"
why = "w"
time = { column = "a", unit = ["ms", "iso"] }
state = "s"
live = ["l"]
[table.event_z.rule.old]
when = ["b", "c"]
keep = "7d"
budget = { seconds = 9 }
unless = [{ referenced_by = "y.z" }, { null = "q" }]
with = [{ table = "f", columns = ["a"], where = { k = 1 }, live = "leave" }]
[table.event_p]
scheduler = "x"
why = "w"
time = { column = "a", unit = "ms" }
[table.event_p.rule.old]
keep = "7d"
then = "archive"
[archive.event_p]
keep = "90d"
cast = { a = "text" }
[partition.event_p]
time = { column = "a", unit = "ms" }
keep = "8d"
rows = 12
"""


@pytest.mark.parametrize("name", names())
def test_a_reference_contract_keeps_its_fingerprint(name: str) -> None:
    assert fingerprint(load_contract(contract_path(name))) == RECORDED[name]


def test_a_contract_with_everything_keeps_its_fingerprint(tmp_path: Path) -> None:
    contract = read(tmp_path, wane=EVERYTHING).contract
    assert contract is not None
    assert fingerprint(contract) == "21a11f07c3a8d220"


def test_when_a_scheduler_sweeps_is_a_promise(tmp_path: Path) -> None:
    schedulers = [
        'every = "1d"',
        'cron = "0 3 * * *"',
        'cron = "0 4 * * *"',
        'cron = "0 3 * * *", zone = "Europe/Berlin"',
        'every = "1d", within = { from = "01:00", to = "05:00" }',
        'every = "1d", within = { from = "01:00", to = "05:00", zone = "Europe/Berlin" }',
    ]
    found = []
    for scheduler in schedulers:
        text = EVERYTHING.replace('x = { every = "5m" }', f"x = {{ {scheduler} }}")
        contract = read(tmp_path, wane=text).contract
        assert contract is not None
        found.append(fingerprint(contract))
    assert len(set(found)) == len(schedulers)
    same = EVERYTHING.replace('x = { every = "5m" }', 'x = { cron = " 0  3 * * * ", zone = "UTC" }')
    contract = read(tmp_path, wane=same).contract
    assert contract is not None
    assert fingerprint(contract) == found[1]
