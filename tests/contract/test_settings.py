"""Settings: declared once, overridden one by one by the files that include others."""

from __future__ import annotations

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from contract.cases import GOOD, read, reported
from wane._contract.mistakes import Mistakes
from wane._contract.model import Contract, ToArchive, ToColdTier
from wane._contract.settings import SECTIONS, QueueSettings, Section, Settings


@pytest.mark.parametrize("section", SECTIONS.values())
def test_an_empty_section_has_the_defaults(section: type[Section]) -> None:
    mistakes = Mistakes("wane.toml")
    assert mistakes.read(section, {}, ["x"]) == section()
    assert mistakes.findings == []


@pytest.mark.parametrize("section", SECTIONS.values())
def test_every_setting_is_described(section: type[Section]) -> None:
    assert section.__doc__
    for setting in fields(section):  # type: ignore[arg-type]
        assert setting.metadata["description"].endswith("."), setting.name


def test_every_section_is_a_part_of_the_contract() -> None:
    assert set(SECTIONS) == {field.name for field in fields(Settings)} < {field.name for field in fields(Contract)}


def test_a_file_overrides_single_settings_of_what_it_includes(tmp_path: Path) -> None:
    a = GOOD + '[queue]\nlease = "1m"\nattempts = 7\n[spark.settings]\na = 1\nb = 2\n[store]\nattach = { x = "x.db" }\n'
    wane = 'include = ["a.toml"]\n[queue]\nattempts = 9\n[spark.settings]\nb = 3\n[store]\nattach = { y = "y.db" }\n'
    contract = read(tmp_path, wane=wane, a=a).contract
    assert contract is not None
    assert contract.queue == QueueSettings(lease=timedelta(minutes=1), attempts=9)
    assert contract.spark.settings == (("a", "1"), ("b", "3")), "merged by key"
    assert contract.store.attach == (("y", "y.db"),), "replaced"


def test_a_budget_of_a_rule_takes_the_rest_from_the_contract(tmp_path: Path) -> None:
    wane = GOOD + "budget = { rows = 5 }\n[budget]\nrows = 50\nseconds = 8\n"
    contract = read(tmp_path, wane=wane).contract
    assert contract is not None
    budget = contract.tables[0].rules[0].budget
    assert (budget.rows, budget.seconds, budget.batches) == (5, 8, 1_000)


def test_settings_of_two_files_must_go_together(tmp_path: Path) -> None:
    a = GOOD + '[roles]\nadmin = "boss"\n'
    assert reported(read(tmp_path, wane='include = ["a.toml"]\n[roles]\nreader = "boss"\n', a=a)) == (
        "error wrong-value: wane.toml roles: one role for two purposes\n  fix: give every purpose a role of its own"
    )


def test_the_tier_of_the_including_file_counts(tmp_path: Path) -> None:
    a = GOOD + 'then = "archive"\n[archive]\nurl = "a"\n[archive.t]\nkeep = "forever"\ntier = "database"\n'
    for tier, action in (("database", ToColdTier("archive")), ("lake", ToArchive())):
        wane = f'include = ["a.toml"]\n[archive.t]\nkeep = "forever"\ntier = "{tier}"\n'
        contract = read(tmp_path, wane=wane, a=a).contract
        assert contract is not None
        assert contract.tables[0].rules[0].action == action
