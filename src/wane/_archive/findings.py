"""What is wrong with an archive, for `check --live`, `health` and `archive status`. Reads only, and without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from wane._archive.delta.cold_table import ColdTable, root_of
from wane._archive.delta.commits import find_lost
from wane._archive.delta.sql_log import ArchiveLog
from wane._archive.journal import SWEEPS
from wane._archive.maintenance.journal import JOBS
from wane._contract.model import Contract, ToArchive
from wane._db import Store
from wane._findings import Finding, Severity
from wane._journal import Entries

_SECONDS = 10.0


def find(store: Store, contract: Contract, names: Sequence[str]) -> list[Finding]:
    """Find logs that have lost commits, among these tables, and sweeps and jobs that nothing finishes."""
    run = store.reader(_SECONDS)
    origin, _ = ArchiveLog(store.dialect, run).owner()
    if origin is None or contract.archive_url is None:
        return []
    root = root_of(contract)
    found = []
    for name in names:
        problem = find_lost(store, ColdTable(root, name, origin, shared=contract.archive_shared))
        if problem is not None:
            found.append(Finding(Severity.ERROR, "archive-log", problem.message, problem.hint, table=name))
    archiving = {str(one.name) for one, rule in contract.rules() if isinstance(rule.action, ToArchive)}
    known = {*archiving, *names}
    sweeps = Entries(SWEEPS, store.dialect, run).unfinished()
    left = [(f"sweep {one.id}", one.table, f" ({one.state})") for one in sweeps if one.table not in archiving]
    jobs = Entries(JOBS, store.dialect, run).unfinished()
    left += [(f"{one.kind} job {one.id}", one.table, "") for one in jobs if one.table not in known]
    for what, table, state in left:
        command = "run" if what.startswith("sweep") else "tidy"
        found.append(
            Finding(
                Severity.WARNING,
                "unfinished-sweep",
                f"{what} of {table} is unfinished{state}, and no rule archives the table any more",
                f"put the rule back, run `wane archive {command} {table}`, then remove it",
                table=table,
            )
        )
    return found
