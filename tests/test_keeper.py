"""The front door: what it opens, what it passes on, and how it answers names that nobody knows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

import wane
from covering import EVENTS, HEALTHY, codes, loaded
from servers import Database, SqliteDatabase
from wane._contract.lookup import require_known
from wane._contract.model import Contract
from wane._keeper import database_url, open_keeper
from wane.errors import ContractError, UnknownRule, UnknownTable, Unreachable, UrlError

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CONTRACT = f"""{EVENTS}
[table.'"odd.name"']
scheduler = "s"
why = "A test."
time = {{ column = "at", unit = "ms" }}
[table.'"odd.name"'.rule.first]
keep = "7d"
[table.'"odd.name"'.rule.second]
keep = "9d"
[table."app.jobs"]
why = "A test."
[table."app.jobs".rule.kept]
keep = "forever"
"""


@pytest.fixture
def contract_file(tmp_path: Path) -> Path:
    file = tmp_path / "wane.toml"
    file.write_text(EVENTS)
    return file


def test_a_keeper_checks_and_plans(database: Database, contract_file: Path) -> None:
    database.script(HEALTHY)
    database.execute("INSERT INTO events VALUES (1, 1700000000000)")
    with wane.open(database.url, contract=contract_file, read_only=True) as keeper:
        assert keeper.check(strict=True) == []
        plan = keeper.plan(now=NOW)
        assert (plan.due, plan.made_at) == (1, NOW)
        assert keeper.plan("events", now=NOW) == plan
        assert keeper.plan("events.old", now=NOW, explain=True).steps[0].statements[0].query_plan != ""
    with pytest.raises(Exception, match=r"(?i)closed"):
        keeper.plan(now=NOW)


def test_strictness_is_passed_on(database: Database, contract_file: Path) -> None:
    database.script(f"{HEALTHY} CREATE TABLE logs (id integer PRIMARY KEY)")
    with open_keeper(database.url, contract=contract_file, read_only=True) as keeper:
        assert [(one.code, one.severity.value) for one in keeper.check()] == [("uncovered-table", "warning")]
        assert [(one.code, one.severity.value) for one in keeper.check(strict=True)] == [("uncovered-table", "error")]
    accepting = '[[accept]]\ncode = "uncovered-table"\nat = "logs"\nreason = "It goes."\n'
    contract_file.write_text(contract_file.read_text() + accepting)
    with open_keeper(database.url, contract=contract_file, read_only=True) as keeper:
        assert [(one.code, one.accepted) for one in keeper.check()] == [("uncovered-table", "It goes.")]


@pytest.mark.parametrize("form", ["path", "text", "contract"])
def test_a_contract_may_be_a_file_or_a_contract(database: Database, contract_file: Path, form: str) -> None:
    database.script(HEALTHY)
    forms: dict[str, Contract | Path | str] = {
        "path": contract_file,
        "text": str(contract_file),
        "contract": loaded(EVENTS),
    }
    with open_keeper(database.url, contract=forms[form], read_only=True) as keeper:
        assert codes(keeper.check()) == []


def test_a_contract_with_mistakes_opens_nothing(contract_file: Path) -> None:
    contract_file.write_text(EVENTS.replace("7d", "seven"))
    with pytest.raises(ContractError, match="the contract has 1 mistake"):
        open_keeper("sqlite:///nowhere.db", contract=contract_file)


# Which database


def test_the_contracts_own_database_lies_beside_it(sqlite_database: SqliteDatabase, contract_file: Path) -> None:
    assert contract_file.parent == sqlite_database.path.parent
    sqlite_database.script(HEALTHY)
    contract_file.write_text(f'[store]\nurl = "sqlite:///{sqlite_database.path.name}"\n{EVENTS}')
    with open_keeper(contract=contract_file, read_only=True) as keeper:
        assert keeper.check(strict=True) == []


def test_a_url_that_is_given_wins_and_starts_where_the_process_is(
    sqlite_database: SqliteDatabase, contract_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_database.script(HEALTHY)
    elsewhere = contract_file.parent / "elsewhere"
    elsewhere.mkdir()
    contract_file.write_text(f'[store]\nurl = "sqlite:///missing.db"\n{EVENTS}')
    monkeypatch.chdir(elsewhere)
    with open_keeper("sqlite:///../test.db", contract=contract_file, read_only=True) as keeper:
        assert keeper.check(strict=True) == []
    with pytest.raises(Unreachable, match="there is no database at"):
        open_keeper(contract=contract_file)


def test_no_database_at_all_is_reported() -> None:
    with pytest.raises(UrlError) as caught:
        database_url(None, loaded(EVENTS))
    assert str(caught.value) == (
        'no database is named\n  hint: give a URL, or write `url = "…"` under [store] in the contract'
    )


def test_the_contracts_variable_is_read_when_the_database_is_opened(
    sqlite_database: SqliteDatabase, contract_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract_file.write_text(f'[store]\nurl = "WANE_TEST_DATABASE"\n{EVENTS}')
    contract = wane.load_contract(contract_file)
    with pytest.raises(UrlError, match="the environment variable WANE_TEST_DATABASE is not set"):
        open_keeper(contract=contract)
    monkeypatch.setenv("WANE_TEST_DATABASE", sqlite_database.url)
    open_keeper(contract=contract).close()


def test_a_password_in_the_contract_is_in_no_representation(contract_file: Path) -> None:
    contract_file.write_text(f'[store]\nurl = "postgresql://u:s3cret@127.0.0.1:1/db"\n{EVENTS}')
    contract = wane.load_contract(contract_file)
    assert "s3cret" not in repr(contract)
    with pytest.raises(Unreachable) as caught:
        open_keeper(contract=contract)
    assert "s3cret" not in f"{caught.value!r} {caught.value} {caught.value.__cause__}"


# Names


@pytest.mark.parametrize(
    "name", ["events", "events.old", '"odd.name"', '"odd.name".second', "app.jobs", "app.jobs.kept"]
)
def test_a_table_or_a_rule_is_known_by_its_name(name: str) -> None:
    require_known(loaded(CONTRACT), [name])


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("event", UnknownTable, "the contract has no table 'event'\n  hint: did you mean 'events'?"),
        ("events.odl", UnknownRule, "events has no rule 'odl'\n  hint: did you mean 'old'?"),
        ("events.first", UnknownRule, "events has no rule 'first'\n  hint: rules: old"),
        (
            '"odd.name".x',
            UnknownRule,
            "\"odd.name\" has no rule 'x'\n  hint: rules: first, second",
        ),
        ("event.old", UnknownTable, "the contract has no table 'event.old'\n  hint: did you mean 'events.old'?"),
        (
            "zebra",
            UnknownTable,
            "the contract has no table 'zebra'\n  hint: its tables: events, \"odd.name\", app.jobs",
        ),
        ("app.job", UnknownTable, "the contract has no table 'app.job'\n  hint: did you mean 'app.jobs'?"),
        ("", UnknownTable, "the contract has no table ''\n  hint: its tables: events, \"odd.name\", app.jobs"),
    ],
)
def test_an_unknown_name_is_reported_with_the_nearest_one(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        require_known(loaded(CONTRACT), ["events", name])
    assert str(caught.value) == message


def test_an_unknown_name_is_reported_before_anything_is_read(database: Database, contract_file: Path) -> None:
    with open_keeper(database.url, contract=contract_file, read_only=True) as keeper:
        with pytest.raises(UnknownTable, match="did you mean 'events'"):
            keeper.plan("evnts")
        with pytest.raises(UnknownRule):
            keeper.plan("events.new")
