"""`wane why`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.conftest import Wane
from prune.keeping import ago, insert
from servers import SqliteDatabase

CONTRACT = """
[store]
url = "{url}"
[scheduler]
tick = {{ every = "5m" }}
[table.job]
scheduler = "tick"
why = "A test."
state = "status"
live = ["queued"]
time = {{ column = "at_ms", unit = "ms" }}
[table.job.rule.done]
when = ["done"]
keep = "7d"
[table.line]
scheduler = "tick"
why = "A test."
time = {{ column = "at_ms", unit = "ms" }}
[table.line.rule.old]
keep = "7d"
"""


@pytest.fixture
def shop(sqlite_database: SqliteDatabase, folder: Path, wane: Wane) -> Wane:
    sqlite_database.execute("CREATE TABLE job (id integer PRIMARY KEY, status text, at_ms integer)")
    sqlite_database.execute(
        "CREATE TABLE line (sale integer NOT NULL, number integer NOT NULL, at_ms integer, PRIMARY KEY (sale, number))"
    )
    insert(sqlite_database, "job", "id, status, at_ms", (1, "done", ago(8)), (2, "[red]queued", ago(8)))
    insert(sqlite_database, "line", "sale, number, at_ms", (1, 2, ago(1)))
    (folder / "wane.toml").write_text(CONTRACT.format(url=sqlite_database.url))
    assert wane("migrate").code == 0
    return wane


def test_it_lists_every_condition_and_the_fix(shop: Wane) -> None:
    result = shop("why", "job", "1")
    assert result.code == 0
    assert result.out.startswith("job id = 1: blocked\n")
    assert "yes        status is 'done'" in result.out
    assert "no         not stopped by: flag" in result.out
    assert "fix: `wane enable` turns it on" in result.err


def test_a_row_of_an_append_only_table_is_left_to_an_explicit_prune(shop: Wane, folder: Path) -> None:
    contract = folder / "wane.toml"
    contract.write_text(
        contract.read_text().replace('[table.line]\nscheduler = "tick"', "[table.line]\nappend_only = true")
    )
    expected = "no sweep takes rows of this table, which is append-only: `wane prune line.old` does\n"
    assert shop("why", "line", "sale=1", "number=2").err == expected


def test_it_prints_one_document(shop: Wane) -> None:
    shop("enable")
    found = shop("why", "job", "1", "--json").json
    assert (found["verdict"], found["key"], found["gone"]) == ("due", {"id": "1"}, None)
    [rule] = found["rules"]
    assert [one["kind"] for one in rule["conditions"]] == ["state", "time", "bound", "hold"]


def test_markup_in_values_is_text(shop: Wane) -> None:
    assert "no rule is about rows with status = '[red]queued'" in shop("why", "job", "2").out


def test_a_key_of_several_columns_is_named(shop: Wane) -> None:
    assert shop("why", "line", "sale=1", "number=2").out.startswith("line sale = 1, number = 2: waiting\n")
    refused = shop("why", "line", "1")
    assert (refused.code, "the key of line is sale, number" in refused.err) == (1, True)


def test_a_row_that_is_gone(shop: Wane) -> None:
    shop("enable")
    shop("sweep", "job")
    result = shop("why", "job", "1")
    assert result.out.startswith("job id = 1: gone\n")
    assert "prune  job    done  job 1" in result.out
    assert "unknown: which run took it" in result.err
