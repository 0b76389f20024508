"""The commands in the fixes of health and `check --live`: each can be pasted as it is printed, and does what it
says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from cli.conftest import Wane
from observe.unhealthy import (
    CONTRACT,
    HOUR,
    ago,
    another_contract,
    cap_exceeded,
    dead_letter,
    fused,
    healthy,
    late_scheduler,
    overdue,
    stale_claim,
    sweeps_off,
    table_off,
    uncovered,
)
from servers import Database, SqliteDatabase

CONDITIONS = (
    another_contract,
    dead_letter,
    overdue,
    cap_exceeded,
    stale_claim,
    fused,
    late_scheduler,
    uncovered,
    table_off,
    sweeps_off,
)
MENDED = {"another-contract", "sweeps-off", "table-off", "overdue", "stale-claim", "fused-rule"}
"""What is gone when the commands were run: the others need a person, or time."""


def commands(fix: str) -> list[list[str]]:
    return [shlex.split(one)[1:] for one in re.findall(r"`(wane [^`]+)`", fix)]


def write(folder: Path, url: str, text: str) -> None:
    (folder / "wane.toml").write_text(f'{text}\n[store]\nurl = "{url}"\n', encoding="utf-8")


def test_each_command_in_a_fix_can_be_pasted(wane: Wane, database: Database, folder: Path) -> None:
    write(folder, database.url, CONTRACT)
    with healthy(database) as world:
        for make in CONDITIONS:
            make(world)
        found = [*world.keeper.health().findings, *world.keeper.check_live()]
    assert {one.code for one in found} >= MENDED
    pasted = {tuple(words): None for one in found for words in commands(one.fix)}
    assert len(pasted) >= 9
    for _ in range(2):  # Sweeps are on after the first time.
        for words in pasted:
            done = wane(*words, *(["--help"] if words == ("run",) else []))
            assert done.code != 2, f"wane {' '.join(words)}: {done.err}"
            assert "no such" not in done.err.lower(), words
    left = {one["code"] for one in wane("health", "--json").json["findings"]}
    assert not left & MENDED


ARCHIVED = """
[scheduler]
tick = { every = "5m" }
[archive]
url = "cold"
[archive.job]
keep = "forever"
[table."job list"]
why = "a name that a shell would split"
scheduler = "tick"
time = { column = "at_ms", unit = "ms" }
rule.old = { keep = "7d" }
[table.job]
why = "kept in the archive"
scheduler = "tick"
time = { column = "at_ms", unit = "ms" }
rule.cold = { keep = "7d", then = "archive" }
"""


def test_a_rule_that_archives_has_its_own_command(wane: Wane, sqlite_database: SqliteDatabase, folder: Path) -> None:
    for name in ("job", "job list"):
        sqlite_database.execute(f'CREATE TABLE "{name}" (id integer PRIMARY KEY, at_ms bigint NOT NULL)')
        sqlite_database.execute(f'CREATE INDEX "{name}_age" ON "{name}" (at_ms, id)')
        sqlite_database.execute(f'INSERT INTO "{name}" VALUES (1, ?), (2, ?)', (ago(7 + HOUR), ago(1)))
    write(folder, sqlite_database.url, ARCHIVED)
    wane("migrate")
    wane("enable")
    at = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 hours')"
    for name, rule in (("job", "cold"), ("job list", "old")):
        columns = "executed_at, kind, table_name, rule, run_id, actor, inputs, counts, row_count, batches, seconds"
        values = f"{at}, 'prune', '{name}', '{rule}', 'r1', 'me', '{{}}', '{{}}', 5, 1, 0.1"
        sqlite_database.execute(f"INSERT INTO wane_audit ({columns}) VALUES ({values})")
    fixes = {one["table"]: one["fix"] for one in wane("health", "--json").json["findings"] if one["code"] == "overdue"}
    assert "sweep now: `wane archive run job.cold`" in fixes["job"]
    [_, words] = commands(fixes["job list"])
    assert words == ["sweep", "job list.old"]
    assert wane(*words).code == 0
    only = wane("sweep", "job.cold")
    assert (only.code, only.err.splitlines()[-1]) == (4, "not swept: job.cold; `wane archive run` moves its rows")
