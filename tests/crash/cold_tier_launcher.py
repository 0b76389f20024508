"""Starts processes that move rows to the cold tier inside PostgreSQL and back by turns, so that each can be killed:
`python cold_tier_launcher.py CONTRACT STEPS`. Like archive_launcher.py; what brings rows back is the statement that
docs/how-to/archive.md shows."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from crash.archive_launcher import PACE, main
from crash.launcher import Steps
from wane._contract.load import load_contract
from wane._db.postgres.store import PostgresStore
from wane._keeper import Keeper, open_keeper
from wane._ledger import Ledger
from wane._prune import sql_postgres
from wane._prune.sql_cold_tier import MonthTable
from wane._prune.sql_postgres import PostgresRowTaker
from wane._prune.sweep import Outcome

RULE = "event.cold"
BACK = "WITH back AS (DELETE FROM archive.{0} WHERE {1} %% 5 = 0 RETURNING *) INSERT INTO public.{2} SELECT * FROM back RETURNING 1"


def hook(steps: Steps) -> None:
    steps.function(sql_postgres, "month_tables", "months")
    for owner, method, step in (
        (MonthTable, "_make", "make"),
        (MonthTable, "_fit", "fit"),
        (PostgresRowTaker, "lock", "lock"),
        (Ledger, "record", "audit"),
        (Ledger, "add_to_record", "audit more"),
    ):
        steps.before(owner, method, step)
    steps.statements()
    steps.around(PostgresStore)


def restore(keeper: Keeper, steps: list[Steps]) -> None:
    """Restore every fifth row of every month, with what left with it, reported in the same transaction."""
    with keeper.store.transaction() as moving:
        found = moving.execute("SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = 'archive' ORDER BY 1", {})
        months = [name.removeprefix("event_") for (name,) in found if not name.startswith("event_read_")]
        for month in months:
            for step in steps:
                step.enter("bring back")
            for table, column in (("event", "id"), ("event_read", "event_id")):
                rows = len(moving.execute(BACK.format(f"{table}_{month}", column, table), {}))
                moving.execute(
                    "INSERT INTO public.returned VALUES (%(table)s, %(rows)s)", {"table": table, "rows": rows}
                )


def shelve_and_restore(contract: Path, *, forever: bool) -> None:
    with open_keeper(contract=load_contract(contract), actor="to be killed") as keeper:
        while True:
            [swept] = keeper.sweep(RULE, approve=[RULE], pace=PACE).rules
            assert swept.outcome is Outcome.DONE, swept
            if not forever:
                return
            restore(keeper, _STEPS)
            time.sleep(0.01)


_STEPS: list[Steps] = []


def hook_and_remember(steps: Steps) -> None:
    hook(steps)
    _STEPS.append(steps)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], hook_and_remember, shelve_and_restore)
