"""What the contract accepts, as `wane check` and `wane health` show it."""

from __future__ import annotations

from pathlib import Path

from cli.conftest import Wane
from cli.running import CONTRACT, fill, write_contract
from cli.sarif import check_sarif
from servers import Database

ACCEPTED = """
[[accept]]
code = "uncovered-table"
at = "forgotten"
reason = "It goes with release 4."
until = 2099-12-31
"""


def test_check_health_and_their_formats_show_what_is_accepted(wane: Wane, database: Database, folder: Path) -> None:
    fill(database)
    database.execute("CREATE TABLE forgotten (id integer PRIMARY KEY)")
    write_contract(folder, database.url, f"strict = true\n{CONTRACT}{ACCEPTED}")
    done = wane("check", "--cover")
    assert done.code == 0
    assert "accepted error uncovered-table forgotten\n  the contract does not name this table" in done.out
    assert "  accepted: It goes with release 4. (until 2099-12-31)" in done.out
    assert "1 note, 1 accepted" in done.err
    [shown] = [one for one in wane("check", "--cover", "--json").json["findings"] if one["code"] == "uncovered-table"]
    assert (shown["severity"], shown["accepted"]) == ("error", "It goes with release 4. (until 2099-12-31)")
    sarif = wane("check", "--cover", "--format", "sarif").json
    check_sarif(sarif)
    suppressed = [one["suppressions"] for one in sarif["runs"][0]["results"] if "suppressions" in one]
    justification = "It goes with release 4. (until 2099-12-31)"
    assert suppressed == [[{"kind": "inSource", "status": "accepted", "justification": justification}]]
    github = wane("check", "--cover", "--format", "github").out
    assert "::notice file=wane.toml,title=uncovered-table::forgotten: " in github
    assert "accepted: It goes with release 4." in github.replace("%0A", "\n")

    assert wane("migrate").code == 0
    report = wane("health", "--json").json
    assert {one["code"]: one["accepted"] for one in report["findings"]}["uncovered-table"] == justification
    assert "uncovered-table" not in report["verdict"]
    database.execute("DROP TABLE forgotten")
    gone = wane("check", "--cover")
    line = (folder / "wane.toml").read_text().splitlines().index("[[accept]]") + 1
    assert f"warning accept-unused wane.toml:{line} accept[0]" in gone.out
    assert gone.code == 0
    assert "accept-unused" not in wane("check").out, "nothing is known without --cover"


def test_what_is_accepted_deletes_nothing_more(wane: Wane, database: Database, folder: Path) -> None:
    """An acceptance changes reports, not rules: one that is refused stays refused."""
    fill(database)
    database.execute(
        "CREATE TABLE copy_of (id integer PRIMARY KEY, inbox_id integer REFERENCES inbox (id) ON DELETE CASCADE)"
    )
    database.execute("CREATE INDEX copy_inbox ON copy_of (inbox_id)")
    database.execute("INSERT INTO copy_of VALUES (1, 1)")
    excused = CONTRACT.replace("[excused]", "[excused]\ncopy_of = {{ in_place = 'rewritten' }}")
    accepting = "\n[[accept]]\ncode = 'uncounted-cascade'\nat = 'table.inbox'\nreason = 'We know.'\n"
    write_contract(folder, database.url, excused + accepting)
    assert wane("check", "--cover").code == 0
    for words in (("migrate",), ("enable",)):
        assert wane(*words).code == 0
    assert wane("sweep").code == 1
    assert wane("plan").code == 1
    assert database.query("SELECT count(*) FROM inbox") == [(6,)]
