"""Reading a fleet file: its members, and all of its mistakes at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from wane._fleet.reading import FleetFile, load_fleet
from wane.errors import ContractError

CONTRACT = """
[store]
url = "sqlite:///own.db"
[archive]
url = "cold"
[archive.event]
keep = "forever"
[scheduler]
night = { every = "1h" }
[table.event]
scheduler = "night"
why  = "a test"
time = { column = "at_ms", unit = "ms" }
rule.cold = { keep = "90d", then = "archive" }
"""


def load(folder: Path, text: str) -> FleetFile:
    (folder / "fleet.toml").write_text(text)
    return load_fleet(folder / "fleet.toml")


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ContractError) as raised:
        load(folder, text)
    return [f"{finding.path}: {finding.message}" for finding in raised.value.findings]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "wane.toml").write_text(CONTRACT)
    for tenant in ("ada", "bob"):
        (tmp_path / "tenants" / tenant).mkdir(parents=True)
        (tmp_path / "tenants" / tenant / "wane.toml").write_text(CONTRACT)
        (tmp_path / "tenants" / tenant / "state.db").touch()
    return tmp_path


def test_a_member_is_a_contract_with_a_database_and_an_archive(folder: Path) -> None:
    file = load(
        folder,
        """
        parallel = 7
        [member.plain]
        contract = "wane.toml"
        [member.other]
        contract = "wane.toml"
        url = "OTHER_URL"
        archive = "cold/{name}"
        [member.far]
        contract = "wane.toml"
        url = "sqlite:///far/away.db"
        archive = "s3://bucket/{name}"
        """,
    )
    assert file.parallel == 7
    assert [(one.name, one.url) for one in file.members] == [
        ("plain", None),
        ("other", "OTHER_URL"),
        ("far", f"sqlite:///{folder}/far/away.db"),
    ]
    archives = [one.require_contract().archive_url for one in file.members]
    assert archives == ["cold", f"{folder}/cold/other", "s3://bucket/far"]


def test_a_pattern_of_contracts_is_a_member_for_each_file(folder: Path) -> None:
    file = load(folder, '[member.tenant]\ncontract = "tenants/*/wane.toml"\n')
    assert [one.name for one in file.members] == ["tenant/ada", "tenant/bob"]
    assert [one.require_contract().path for one in file.members] == [
        folder / "tenants" / name / "wane.toml" for name in ("ada", "bob")
    ]


@pytest.mark.parametrize("absolute", [False, True])
def test_one_contract_serves_every_database_that_matches(folder: Path, absolute: bool) -> None:
    pattern = f"{folder}/tenants/*/state.db" if absolute else "tenants/*/state.db"
    file = load(
        folder,
        f'[member.tenant]\ncontract = "wane.toml"\nurl = ["sqlite:///{pattern}", "postgresql://ada@host/shop", "SHOP_URL"]\n',
    )
    assert [(one.name, one.url) for one in file.members] == [
        ("tenant/ada", f"sqlite:///{folder}/tenants/ada/state.db"),
        ("tenant/bob", f"sqlite:///{folder}/tenants/bob/state.db"),
        ("tenant/shop", "postgresql://ada@host/shop"),
        ("tenant/SHOP_URL", "SHOP_URL"),
    ]


def test_all_mistakes_of_the_file_are_reported_with_their_keys(folder: Path) -> None:
    found = mistakes(
        folder,
        """
        paralel = 2
        parallel = 0
        [member.a]
        contrct = "wane.toml"
        [member.b]
        contract = "nowhere/*/wane.toml"
        [member.c]
        contract = "wane.toml"
        url = []
        [member.d]
        contract = "tenants/*/wane.toml"
        url = ["A", "B"]
        [member.e]
        contract = "wane.toml"
        url = "sqlite:///none/*.db"
        [member.f]
        contract = "wane.toml"
        [member.g]
        contract = "wane.toml"
        """,
    )
    text = "\n".join(found)
    for part in (
        "paralel: unknown section",
        "parallel: found 0 (a whole number), expected at least 1",
        "member.a.contract: missing",
        "member.a.contrct: unknown key",
        "member.b.contract: no file matches",
        "member.c.url: an empty list",
        "member.d.url: the contract is a pattern, and the databases are several",
        "member.e.url: no file matches",
        "member.g: 'g' is the same contract and database as 'f'",
    ):
        assert part in text
    assert len(found) == 9


def test_a_wrong_key_gets_a_suggestion(folder: Path) -> None:
    with pytest.raises(ContractError, match="did you mean 'contract'"):
        load(folder, '[member.a]\ncontrct = "wane.toml"\n')


@pytest.mark.parametrize("text", ["", "[member]\n"])
def test_a_fleet_without_members_is_refused(folder: Path, text: str) -> None:
    assert "member: the fleet has no members" in mistakes(folder, text)[0]


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"no such file.*\n.*archive-a-fleet"):
        load_fleet(tmp_path / "fleet.toml")


def test_a_contract_with_mistakes_is_a_failure_of_its_member_only(folder: Path) -> None:
    (folder / "tenants" / "ada" / "wane.toml").write_text("[tabel.event]\n")
    ada, bob = load(folder, '[member.tenant]\ncontract = "tenants/*/wane.toml"\n').members
    with pytest.raises(ContractError, match=r"ada/wane.toml: the contract has 1 mistake\n.*unknown section"):
        ada.require_contract()
    assert bob.contract is not None


def test_members_with_different_spark_settings_are_refused(folder: Path) -> None:
    with (folder / "tenants" / "bob" / "wane.toml").open("a") as contract:
        contract.write('[spark]\nmaster = "local[3]"\n')
    [found] = mistakes(folder, '[member.tenant]\ncontract = "tenants/*/wane.toml"\n')
    assert "member.tenant: [spark] of 'tenant/bob' has another master" in found
