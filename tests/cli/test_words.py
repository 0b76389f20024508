"""What a command says where a number alone would mislead: broken rules, days, missing indexes, rows left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Wane
from cli.running import CONTRACT, write_contract
from servers import Database

DAYS = """\
[store]
url = "{url}"

[scheduler]
tick = {{ every = "1h" }}

[health]
counted_rows = 10

[table.rollup]
why = "Reports of a year are read."
scheduler = "tick"
time = {{ column = "day", unit = "date", zone = "Europe/Berlin" }}
[table.rollup.rule.old]
keep = "30d"

[table.log]
why = "Logs of a month are read."
scheduler = "tick"
time = {{ column = "at_ms", unit = "ms" }}
[table.log.rule.old]
keep = "30d"
"""


def test_a_plan_without_a_rule_that_can_be_planned_reports_it(wane: Wane, filled: Database, folder: Path) -> None:
    write_contract(folder, filled.url, CONTRACT.replace("received_at_ms", "recieved_at_ms"))
    done = wane("plan")
    assert (done.code, "missing-column" in done.out) == (1, True)
    assert "nothing could be planned: 1 error" in done.err
    assert "0 rows due under 0 rules" not in done.err
    two = CONTRACT.replace("[excused]", '[table.settings]\nwhy = "x"\nscheduler = "tick"\n') + ""
    broken = two.replace('settings = {{ singleton = "one row, id = 1" }}', "")
    broken += '\n[table.settings.rule.old]\ntime = {{ column = "at", unit = "ms" }}\nkeep = "1d"\n'
    write_contract(folder, filled.url, broken)
    done = wane("plan", "--at", "2026-01-10T00:00:00Z")
    assert (done.code, "3 rows due under 1 rule, and 2 that leave with them; 1 error" in done.err) == (1, True)


@pytest.fixture
def days(database: Database, folder: Path) -> Database:
    database.execute("CREATE TABLE rollup (id integer PRIMARY KEY, day date)")
    database.executemany("INSERT INTO rollup VALUES (?, ?)", [(1, "2026-01-10"), (2, "2026-03-29"), (3, "2026-07-01")])
    database.execute("CREATE TABLE log (id integer PRIMARY KEY, at_ms bigint)")
    database.executemany("INSERT INTO log VALUES (?, ?)", [(n, 1_767_225_600_000 + n) for n in range(20)])
    write_contract(folder, database.url, DAYS)
    return database


def test_a_column_of_dates_is_shown_as_its_dates(wane: Wane, days: Database) -> None:
    assert wane("plan", "--out", "plan.json").code == 0
    [rollup] = [one for one in json.loads(Path("plan.json").read_text())["steps"] if one["table"] == "rollup"]
    assert (rollup["oldest"], rollup["newest"]) == ("2026-01-10", "2026-07-01")
    assert "2026-01-10           2026-07-01" in wane("plan").out
    pressure = {one["tbl"]: one for one in wane("pressure", "--json").json}
    assert (pressure["rollup"]["oldest"], pressure["rollup"]["newest"]) == ("2026-01-10", "2026-07-01")
    assert "2026-01-10  2026-07-01" in wane("pressure").out
    assert wane("migrate").code == 0
    assert wane("health", "--record", "--json").json["tables"][0]["rules"][0]["oldest_due"] == "2026-01-10"
    assert wane("apply", "plan.json").code == 4, "sweeps are off, and the plan was read"


def test_pressure_names_the_index_that_its_times_need(wane: Wane, days: Database) -> None:
    done = wane("pressure")
    [line] = [line for line in done.out.splitlines() if line.startswith("log")]
    assert line.split()[1] == "20" or line.split()[1].startswith("~")
    assert "oldest and newest of log are unknown: no index is ordered by time; `wane check --cover` prints" in done.err
    days.execute("CREATE INDEX log_age ON log (at_ms, id)")
    assert "no index" not in wane("pressure").err


def test_the_audit_trail_lists_the_users_tables_and_states_what_it_leaves_out(wane: Wane, filled: Database) -> None:
    for words in (("migrate",), ("enable",), ("approve", "--yes")):
        wane(*words)
    assert wane("audit", "list", "--table", "inbox").code == 4
    assert "has no row of the table 'inbox' yet" in wane("audit", "list", "--table", "inbox").err
    missed = wane("audit", "list", "--table", "inbx")
    assert (missed.code, "no row of the table 'inbx'; did you mean 'inbox'?" in missed.err) == (4, True)
    assert wane("run", "--max-runs", "1").code == 0
    mine = wane("audit", "list", "--json")
    assert {one["table"] for one in mine.json} == {"inbox"}
    own = 5
    assert (mine.document["own_left_out"], mine.document["own_left_out_exactness"]) == (own, "exact")
    assert "5 rows of Wane's own tables left out: --own lists them" in wane("audit", "list").err
    every = wane("audit", "list", "--own", "--json")
    assert (len(every.json), every.document["own_left_out"]) == (len(mine.json) + own, 0)
    snapshots = next(one["table"] for one in every.json if one["table"].endswith("snapshot"))
    assert {one["table"] for one in wane("audit", "list", "--table", snapshots, "--json").json} == {snapshots}
    assert all(one["rows"] is not None for one in wane("growth", "--json").json), "one run measures the tables once"
    unknown = wane("audit", "list", "--kind", "prun")
    assert (unknown.code, "no row of the kind 'prun'; did you mean 'prune'?" in unknown.err) == (4, True)


def test_a_plan_learns_what_archiving_takes_from_earlier_sweeps(wane: Wane, filled: Database, folder: Path) -> None:
    archived = CONTRACT.replace('keep = "7d"', 'keep = "7d"\nthen = "archive"')
    write_contract(folder, filled.url, archived + '\n[archive]\nurl = "./cold"\n[archive.inbox]\nkeep = "forever"\n')
    assert wane("migrate").code == 0
    [step] = wane("plan", "--json").json["steps"]
    assert (step["action"], step["takes"]) == ("archive", None)
    sweep = "wane.archive_sweep" if filled.store == "postgres" else "wane_archive_sweep"
    audit = "wane.audit" if filled.store == "postgres" else "wane_audit"
    begun, ended = "2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:30.000000Z"
    filled.execute(
        f"INSERT INTO {audit} (executed_at, kind, table_name, rule, run_id, actor, inputs, counts, row_count, batches, seconds)"
        " VALUES (?, 'archive', 'inbox', 'failed', 'r', 'a', '{}', '{\"inbox\": 900}', 900, 1, 1.5)",
        (ended,),
    )
    [(number,)] = filled.query(f"SELECT max(id) FROM {audit}")
    strict = "true" if filled.store == "postgres" else "1"
    filled.execute(
        f"INSERT INTO {sweep} (table_name, rule, state, strict, decided_at, planned_at, changed_at, actor, columns, archived, evicted, audit_id)"
        f" VALUES ('inbox', 'failed', 'done', {strict}, ?, ?, ?, 'a', '{{}}', '{{\"inbox\": 900}}', '{{\"inbox\": 900}}', ?)",
        (begun, begun, ended, number),
    )
    [step] = wane("plan", "--json").json["steps"]
    assert step["takes"]["sweeps"] == 1
    assert step["takes"]["low_seconds"] < 30 < step["takes"]["high_seconds"] * 10
    assert step["takes"]["low_seconds_exactness"] == "estimate"


def test_an_archive_with_a_path_is_sent_to_its_url(wane: Wane, folder: Path) -> None:
    (folder / "wane.toml").write_text('[store]\nurl = "sqlite:///a.db"\n[archive]\npath = "./archive"\n')
    done = wane("check")
    assert done.code == 1
    assert "the archive's address is `url`; a table has its own [archive.NAME] with `keep`" in done.out


def test_init_checks_where_it_writes_before_it_connects(wane: Wane, folder: Path) -> None:
    done = wane("init", "postgresql://nobody@127.0.0.1:1/nothing", "--out", "missing/wane.toml")
    assert (done.code, "missing/wane.toml cannot be written" in done.err) == (2, True)


def test_init_prompts_for_no_key_of_a_table_with_one_row(wane: Wane, database: Database) -> None:
    database.execute("CREATE TABLE version (number integer)")
    database.execute("INSERT INTO version VALUES (1)")
    text = wane("init", database.url, "--out", "-").out
    assert '\nkey = ["DECIDE"]' not in text
    assert 'version = { constant = "DECIDE" }' in text
