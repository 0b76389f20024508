"""The reference contracts fit the schemas that they ship with, and what they let go is the same on every store."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from servers import Database, SqliteDatabase
from wane._check.cover import cover
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._db import Store, open_store
from wane._db.counting import Exactness
from wane._db.statement import Statement
from wane._db.url import resolve_url
from wane._demo.seed import TRAPS, attached_path, seed
from wane._findings import Finding, Severity
from wane._prune.build_plan import build_plan
from wane._prune.plan import Plan
from wane._rules.queries import queries_of
from wane._rules.selection import bind_contract, follower_paths
from wane.reference import names, schema_sql

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ROWS = 6_000


def including(tmp_path: Path, database: Database, *which: str) -> Contract:
    attach = ""
    if isinstance(database, SqliteDatabase) and "substrate" in which:
        attach = f"[store]\nattach = {{ iu_core = '{attached_path(database.path).name}' }}\n"
    file = tmp_path / "reference.toml"
    file.write_text(f"include = {[f'reference:{name}' for name in which]}\n{attach}")
    return load_contract(file)


def create(database: Database, *which: str) -> None:
    for name in which:
        for schema, sql in schema_sql(name, database.store).items():
            if schema == "main":
                database.script(sql)
            elif isinstance(database, SqliteDatabase):
                with closing(SqliteDatabase(attached_path(database.path))) as attached:
                    attached.script(sql)


def opened(database: Database, contract: Contract) -> Store:
    return open_store(resolve_url(database.url), contract.store, read_only=True)


def worse_than_a_note(found: list[Finding]) -> list[str]:
    return [str(one) for one in found if one.severity is not Severity.NOTE]


@pytest.mark.parametrize("which", [*((name,) for name in names()), names()], ids=[*names(), "all"])
def test_a_reference_contract_covers_its_empty_schema_strictly(
    database: Database, tmp_path: Path, which: tuple[str, ...]
) -> None:
    create(database, *which)
    contract = including(tmp_path, database, *which)
    with opened(database, contract) as store:
        assert cover(store, contract, strict=True) == []


def test_a_reference_contract_covers_only_its_own_schema(database: Database, tmp_path: Path) -> None:
    create(database, "claims", "webhooks")
    contract = including(tmp_path, database, "claims")
    with opened(database, contract) as store:
        found = cover(store, contract, strict=True)
    assert {one.code for one in found} == {"uncovered-table"}
    assert all(one.table.startswith(("knocker_", "_honker_")) for one in found)


@pytest.fixture
def seeded(database: Database, tmp_path: Path) -> tuple[Database, Contract]:
    seed(database.url, rows=ROWS, now=NOW)
    return database, including(tmp_path, database, *names())


def test_the_reference_contracts_cover_a_busy_database_strictly(seeded: tuple[Database, Contract]) -> None:
    database, contract = seeded
    with opened(database, contract) as store:
        found = cover(store, contract, strict=True)
    assert worse_than_a_note(found) == []
    # The planted rows without a usable timestamp are reported.
    assert {one.code for one in found} == {"never-due"}


def test_no_planted_row_is_in_the_plan(seeded: tuple[Database, Contract]) -> None:
    database, contract = seeded
    with opened(database, contract) as store:
        selections, problems = bind_contract(contract, store.reflect(), store.types)
        assert problems == []
        for trap in TRAPS:
            for selection in selections:
                if str(selection.name) == trap.table:
                    statement = queries_of(store).count_due(selection, NOW)
                    planted = Statement(
                        f"{statement.text} AND t.{_percent(store, trap.predicate)}", statement.parameters
                    )
                    assert store.read(planted, 60) == [(0,)], f"{trap.name} is due under {selection.label}"
                for path in follower_paths(selection):
                    if path[-1].reference.table.name == trap.table:
                        statement = queries_of(store).count_followers(selection, path, NOW)
                        predicate = _percent(store, trap.predicate)
                        planted = Statement(f"{statement.text} AND {predicate}", statement.parameters)
                        assert store.read(planted, 60) == [(0,)], f"{trap.name} follows {selection.label}"


def _percent(store: Store, predicate: str) -> str:
    return predicate.replace("%", "%%") if store.kind == "postgres" else predicate


def comparable(plan: Plan) -> list[object]:
    return [
        (
            f"{step.table}.{step.rule}",
            step.action,
            step.cutoff,
            step.due,
            step.oldest,
            step.newest,
            step.followers,
            step.table_rows,
            step.share,
            step.takes,
            step.swept,
        )
        for step in plan.steps
    ]


def test_both_stores_make_the_same_plan(seeded: tuple[Database, Contract], tmp_path: Path) -> None:
    database, contract = seeded
    with closing(SqliteDatabase(tmp_path / "yardstick.db")) as yardstick:
        seed(yardstick.url, rows=ROWS, now=NOW)
        theirs = including(tmp_path, yardstick, *names())
        with opened(yardstick, theirs) as store:
            expected = build_plan(store, theirs, now=NOW, seconds=60)
    with opened(database, contract) as store:
        plan = build_plan(store, contract, now=NOW, seconds=60)
    assert comparable(plan) == comparable(expected)
    assert plan.fingerprint == expected.fingerprint
    assert plan.problems == ()
    # Equal and empty would prove nothing.
    busy = [step for step in plan.steps if step.due is not None and step.due.rows]
    assert len(busy) >= len(plan.steps) - 1
    assert all(step.due is not None and step.due.exactness is Exactness.EXACT for step in plan.steps)
    assert any(sum(count.rows for count in step.followers.values() if count) for step in plan.steps)
