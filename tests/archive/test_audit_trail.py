"""Old rows of Wane's own audit trail move to the archive, if the contract says so, and leave in no other way."""

from __future__ import annotations

from pathlib import Path

import pytest

from archive.cold import CONTRACT, Cold, cold_keeper, events
from servers import Database, SqliteDatabase
from wane._contract.load import load_contract
from wane._prune.sweep import Outcome
from wane.errors import ContractError, WrongArgument

OLD = "2025-01-01T00:00:00.000000Z"


def with_trail(database: Database) -> tuple[str, str]:
    """Return the trail's name, and a contract that speaks of it."""
    name, unit = ("wane_audit", '"iso"') if database.store == "sqlite" else ("wane.audit", '"native"')
    more = f"""
[archive."{name}"]
keep = "forever"
[table."{name}"]
scheduler = "night"
why  = "The trail is kept for as long as anybody may ask."
time = {{{{ column = "executed_at", unit = {unit} }}}}
[table."{name}".rule.cold]
keep = "90d"
then = "archive"
[spark]
"""
    return name, CONTRACT.replace("[spark]", more)


def numbers(cold: Cold, name: str) -> list[int]:
    return [one for (one,) in cold.database.query(f"SELECT id FROM {name} ORDER BY id")]


def test_old_rows_of_the_trail_move_to_the_archive(database: Database, tmp_path: Path) -> None:
    events(database, 0)
    name, contract = with_trail(database)
    with cold_keeper(database, tmp_path, contract) as cold:
        for _ in range(3):
            cold.run("event")
        database.execute(f"UPDATE {name} SET executed_at = ? WHERE id <= 2", (OLD,))
        before = {entry.id: entry.inputs for entry in cold.keeper.audit()}
        assert [one for one in cold.keeper.check() if one.table == name] == []
        assert cold.keeper.plan(f"{name}.cold").due == 2
        [done] = cold.run(name).rules
        assert (done.outcome, done.evicted) == (Outcome.DONE, {name: 2}), done.message
        assert sorted(row["id"] for row in cold.archived(name)) == [1, 2]
        [reported, third] = cold.keeper.audit()
        assert (reported.table, reported.counts, third.inputs) == (name, {name: 2}, before[3])


def test_the_trail_leaves_in_no_other_way(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    database = sqlite_database
    events(database, 0)
    name, contract = with_trail(database)
    with cold_keeper(database, tmp_path, contract) as cold:
        cold.run("event")
        database.execute(f"UPDATE {name} SET executed_at = ?", (OLD,))
        was = numbers(cold, name)
        with pytest.raises(WrongArgument, match="in no other way"):
            cold.keeper.discard(name, {"id": 1})
        with pytest.raises(WrongArgument, match="does not prune"):
            cold.keeper.prune(name, rule="cold", limit=5)
        with pytest.raises(WrongArgument, match="does not prune"):
            cold.keeper.prune(name, older_than=4_000, limit=5)
        cold.keeper.sweep()
        assert set(was) <= set(numbers(cold, name))
    (tmp_path / "bad.toml").write_text(
        contract.format(url='"sqlite:///x.db"').replace(
            'keep = "90d"\nthen = "archive"\n[spark]', 'keep = "90d"\n[spark]'
        )
    )
    with pytest.raises(ContractError) as caught:
        load_contract(tmp_path / "bad.toml")
    assert "audit-trail" in {finding.code for finding in caught.value.findings}


def test_a_contract_that_does_not_speak_of_it_never_sees_it(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 0)
    with cold_keeper(sqlite_database, tmp_path) as cold:
        assert "wane_audit" not in {table.name for table in cold.keeper.store.reflect().tables}
