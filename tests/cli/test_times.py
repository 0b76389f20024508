"""Every command that prints JSON writes an object with its format, and timestamps alike:
`2026-01-10T00:00:00+00:00`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Wane
from cli.running import CONTRACT, fill, write_contract
from servers import Database
from wane._cli import commands
from wane._cli.output import FORMAT
from wane._prune.plan import FORMAT as PLANS
from wane.reference import schema_sql

LIKE_A_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?\+00:00")
WALKED = (
    "growth snapshot",
    "growth show",
    "queue enqueue sweep --pool p --id m --delay 1h",
    "queue list --pool p",
    "queue show m --pool p",
    "queue notify",
    "queue expire",
    "queue dead list",
    "claims list",
    "claims show task",
    "claims return-expired",
    "claims vacuum --completed-age-hours 1",
    "hold add settings --reason a --ends 1d",
    "hold list --all",
    "hold release 1",
    "plan",
    "prune inbox.failed --limit 1 --dry-run",
    "prune inbox.failed --limit 1",
    "audit list",
    "approve --dry-run",
    "sweep --approve inbox.failed",
    "run --max-runs 1",
    "adopt",
    "status",
    "pressure",
    "health",
    "space",
    "check --cover --live",
    "enable",
    "disable",
    "migrate",
)
WITH_TIMESTAMPS = {
    "growth snapshot", "growth show", "queue enqueue sweep --pool p --id m --delay 1h", "queue list --pool p", "queue show m --pool p", "claims list",
    "hold add settings --reason a --ends 1d", "hold list --all", "plan", "prune inbox.failed --limit 1", "audit list",
    "adopt", "status", "pressure", "health", "space",
}  # fmt: skip
"""Those that certainly have some to write here."""
ELSEWHERE = {
    *(
        "init",
        "explain",
        "schema",
        "demo",
        "roles",
        "sql install",
        "sql print",
        "sql status",
        "sql uninstall",
        "claims install",
        "alerts",
        "serve",
        "token create",
        "token list",
        "token revoke",
        "why",
    ),
    *(
        "apply",
        "prune-orphans",
        "queue dead show",
        "queue dead requeue",
        "queue dead resolve",
        "coordination work-vacuum",
    ),
}
"""They write no timestamps, or write what another one writes."""
SPARK = ("archive", "partition")
"""Their own tests run them."""


def texts(found: Any) -> Iterator[str]:
    if isinstance(found, dict):
        for key, value in found.items():
            if key != "parameters":  # What is bound to a statement is written as the column is.
                yield from texts(value)
    elif isinstance(found, list):
        for value in found:
            yield from texts(value)
    elif isinstance(found, str):
        yield found


@pytest.fixture
def walked(database: Database, folder: Path, wane: Wane) -> Wane:
    fill(database)
    database.script(schema_sql("claims", database.store)["main"])
    write_contract(folder, database.url, f'include = ["reference:claims"]\n{CONTRACT}')
    assert wane("migrate").code == 0
    assert wane("enable").code == 0
    assert wane("growth", "snapshot").code == 0
    return wane


def test_every_command_is_walked_or_stated_to_be_elsewhere() -> None:
    names = {" ".join(path) for path, _ in commands()}
    walked = {name for name in names if any(one == name or one.startswith(f"{name} ") for one in WALKED)}
    assert {name for name in names - walked if not name.startswith(SPARK)} == ELSEWHERE & names


def test_every_command_writes_timestamps_in_one_format(walked: Wane, database: Database) -> None:
    database.execute("INSERT INTO work_claims (task_id, state) VALUES ('task', 'available')")
    seen = set()
    for command in WALKED:
        done = walked(*command.split(), "--json")
        assert done.out, f"{command}: {done.err}"
        assert done.document["format"] == (PLANS if command == "plan" else FORMAT), command
        found = [one for one in texts(done.json) if LIKE_A_TIMESTAMP.match(one)]
        assert [one for one in found if not TIMESTAMP.fullmatch(one)] == [], command
        seen |= {command} if found else set()
    assert WITH_TIMESTAMPS - seen == set()
