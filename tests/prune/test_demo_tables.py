"""Every rule of the reference contracts, pruned to the end on seeded tables: exactly what was planned leaves, and no
planted trap."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from servers import Database
from wane._contract.load import load_contract
from wane._contract.model import ToArchive
from wane._db import open_store
from wane._db.url import resolve_url
from wane._demo.seed import seed
from wane._demo.traps import TRAPS
from wane._prune.build_plan import build_plan
from wane._prune.primitive import Pruner


def contract_file(folder: Path, database: Database) -> Path:
    lines = ['include = ["reference:statestore", "reference:claims", "reference:webhooks", "reference:substrate"]']
    if database.store == "sqlite":
        stem = Path(database.url.removeprefix("sqlite:///")).stem
        lines += ["[store]", f'attach = {{ iu_core = "{stem}-iu_core.db" }}']
    path = folder / "wane.toml"
    path.write_text("\n".join(lines))
    return path


def test_what_is_planned_leaves_and_nothing_else(database: Database, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    seed(database.url, rows=6_000, now=now)
    contract = load_contract(contract_file(tmp_path, database))
    with open_store(resolve_url(database.url), contract.store) as store:
        store.migrate()
        pruner = Pruner(store, contract, actor="test")
        # Rules later in the file may become due by what earlier ones take, so each is planned right before it is
        # pruned.
        for table, rule in contract.rules():
            if isinstance(rule.action, ToArchive):
                continue
            name = str(table.name)
            before = Counter(_counts(database, contract))
            [step] = build_plan(store, contract, only=[f"{name}.{rule.name}"]).steps
            assert step.due is not None
            expected = Counter({name: 0 if step.action == "mark" else step.due.rows})
            expected.update({follower: count.rows for follower, count in step.followers.items() if count is not None})
            taken: Counter[str] = Counter()
            while True:
                pruned = pruner.prune(name, rule=rule.name, limit=400)
                taken.update(pruned.counts)
                if pruned.rows == 0:
                    break
            left = before - Counter(_counts(database, contract))
            assert left == +expected, f"{name}.{rule.name}"
            assert taken[name] >= step.due.rows
            if step.action != "mark":
                assert +taken == left
        for trap in TRAPS:
            if trap.lasting and not trap.table.startswith("iu_core"):
                [(count,)] = database.query(f"SELECT count(*) FROM {trap.table} WHERE {trap.predicate}")
                assert count == trap.rows, trap.name


def _counts(database: Database, contract: object) -> dict[str, int]:
    tables = sorted(
        {trap.table for trap in TRAPS if "." not in trap.table}
        | {"event_read", "knocker_attempts"}
        | {
            "knocker_deliveries",
            "_honker_live",
            "oauth_refresh_leases",
            "models_dev_refresh_leases",
            "iu_auto_instantiate_event_log",
            "lane_leases",
        }
    )
    return {table: database.query(f"SELECT count(*) FROM {table}")[0][0] for table in tables}
