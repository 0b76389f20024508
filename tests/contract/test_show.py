"""The contract as people read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.cases import GOOD, STATES, TABLE, read, reported
from wane._contract.load import load_contract
from wane._contract.model import Contract
from wane._contract.show import ShownRow, markdown, rows
from wane.reference import names


def contract(folder: Path, toml: str) -> Contract:
    reading = read(folder, wane=toml)
    assert reading.contract is not None, reported(reading)
    return reading.contract


def shown(folder: Path, toml: str) -> dict[str, ShownRow]:
    return {row.table: row for row in rows(contract(folder, toml))}


ARCHIVE = '[archive]\nurl = "a"\nt = { keep = %s }\n'


@pytest.mark.parametrize(
    ("toml", "bound"),
    [
        (GOOD, "older than 7d by at"),
        (TABLE + 'rule.r.keep = "forever"', "kept forever"),
        (TABLE + 'rule.r.expires = "expires_at_ms"', "expires_at_ms passed"),
        (TABLE + "rule.r.most = 500", "at most 500, newest first by at"),
        (TABLE + 'rule.r = { keep = "7d", time = { first = ["a", "b"] } }', "older than 7d by a, else b"),
        (TABLE + 'rule.r = { expires = { latest = ["a", "b"] } }', "the latest of a, b passed"),
        (
            TABLE + 'rule.r = { keep = "7d", time = { column = "at", child = "c.t_id" } }',
            "older than 7d by the latest c.at",
        ),
        (
            TABLE + 'rule.r = { keep = "7d", longer = { column = "days", unit = "d" } }',
            "older than 7d (or days, if longer) by at",
        ),
        (TABLE + 'rule.r = { most = 500, by = "id" }', "at most 500, newest first by id"),
        (TABLE + 'rule.r = { most = 500, per = ["a", "b"] }', "at most 500 per a, b, newest first by at"),
        (TABLE + 'rule.r = { keep = "1d", orphans = "event_id" }', "event_id NULL and older than 1d by at"),
        (
            STATES + 'rule.a = { when = ["failed"], keep = "7d" }\n'
            'rule.b = { when = ["done"], keep = "168h", unless = [{ referenced_by = "outbox.t_id" }, { null = "x" }] }',
            "failed older than 7d by at; done older than 7d by at unless referenced by outbox.t_id or x is NULL",
        ),
        (
            STATES + 'rule.a = { when = ["ok", "off"], keep = "30d", then = { mark = "cleaned" } }\n'
            'rule.b = { when = ["cleaned"], keep = "90d" }',
            "ok, off become cleaned after 30d by at; cleaned older than 90d by at",
        ),
        (
            GOOD + 'then = "archive"\nwith = ["c.t_id"]\n' + ARCHIVE % '"forever"',
            "archived after 7d by at with c, in the archive forever",
        ),
        (GOOD + 'then = "archive"\n' + ARCHIVE % '"365d"', "archived after 7d by at, in the archive until 365d"),
        (GOOD + '[floor]\nt = "2d"', "older than 7d by at; never under 2d"),
        (
            STATES.replace('["new"]', "[true]") + 'excused = { false = { inline = "at once" } }\n'
            "rule.r = { when = [true], most = 5, derived = true }",
            "true at most 5, newest first by at; false excused (inline): at once",
        ),
        (
            STATES
            + 'rule.a = { when = ["ok"], where = { q = ["a", "b"], n = { ">=" = 5, null = true } }, keep = "7d" }\n'
            'rule.b = { when = "*", where = { done = { not = { column = "most" } }, x = { null = true } }, keep = "9d" }',
            (
                "ok where (n is NULL or n >= 5) and q = a or b: older than 7d by at; "
                "every other state where done not column most and x is NULL: older than 9d by at"
            ),
        ),
        (GOOD + 'spare = { newest = 1, per = ["a", "b"] }', "older than 7d by at but the newest of each a, b"),
        (
            GOOD + 'orphans = { columns = ["a", "b"], of = "s.runs" }',
            "a, b points at no row of s.runs and older than 7d by at",
        ),
        (GOOD + "spare = { newest = 3 }", "older than 7d by at but the newest 3"),
        (GOOD + 'unless = [{ not_null = "locked_by" }]', "older than 7d by at unless locked_by is not NULL"),
    ],
)
def test_what_bounds_a_table(toml: str, bound: str, tmp_path: Path) -> None:
    assert shown(tmp_path, toml)["t"].bound == bound


def test_a_table_is_swept_by_its_scheduler_and_by_the_application(tmp_path: Path) -> None:
    row = shown(tmp_path, GOOD.replace('why = "w"', 'why = "w"\ninline = "on heartbeat"\nobserve = "the wall"'))["t"]
    assert row == ShownRow(
        table="t",
        bound="older than 7d by at",
        trigger="s every 5m; inline: on heartbeat",
        why="w",
        observe='lifecycle_prune_rows_total{scheduler="s",table="t"}; s.lifecycle_pruned; the wall',
    )


def test_rules_by_state_are_counted_by_rule_and_marks_are_not_counted(tmp_path: Path) -> None:
    toml = (
        STATES + 'rule.cleaned = { when = ["ok"], keep = "30d", then = { mark = "cleaned" } }\n'
        'rule.gone = { when = ["cleaned"], keep = "90d" }\nrule.failed = { when = ["failed"], keep = "7d" }'
    )
    assert shown(tmp_path, toml)["t"].observe == (
        'lifecycle_prune_rows_total{scheduler="s",table="t.gone"}; '
        'lifecycle_prune_rows_total{scheduler="s",table="t.failed"}; s.lifecycle_pruned'
    )


def test_followers_have_a_row_of_their_own_beside_the_row_they_refer_to(tmp_path: Path) -> None:
    toml = (
        GOOD
        + 'with = [{ table = "c", columns = ["t_id"], with = ["d.c_id"] }, "e.t_id"]\n[excused]\ne = { inline = "i" }\n'
    )
    found = shown(tmp_path, toml)
    assert found["c"] == ShownRow(
        "c", "follows t (t_id)", "with t: s every 5m", "A row leaves only with its t row.", "audit of t"
    )
    assert found["d"] == ShownRow(
        "d", "follows c (c_id)", "with t: s every 5m", "A row leaves only with its c row.", "audit of t"
    )
    assert found["e"].bound == "inline: i; follows t (t_id)"
    assert found["e"].trigger == "the application; with t: s every 5m"


def test_followers_state_what_their_live_rows_do(tmp_path: Path) -> None:
    runs = '[table.{}]\nscheduler = "s"\nwhy = "w"\ntime = "at"\nstate = "x"\nlive = ["on"]\nrule.r = {{ when = ["off"], keep = "7d" }}\n'
    toml = (
        GOOD
        + 'with = [{ table = "a", columns = "t_id", with = ["b.a_id"] }, { table = "c", columns = "t_id", live = "leave" }]\n'
    )
    found = shown(tmp_path, toml + runs.format("b") + runs.format("c"))
    assert found["t"].bound == "older than 7d by at unless followed by live b with a, c (live rows too)"


def test_append_only_tables_are_pruned_explicitly(tmp_path: Path) -> None:
    toml = '[table.t]\nappend_only = true\nwhy = "w"\ntime = "at"\nrule.r = { keep = "7d", with = ["c.t_id"] }\n'
    found = shown(tmp_path, toml)
    assert (found["t"].trigger, found["t"].observe) == ("explicit prune only", "audit")
    assert found["c"].trigger == "with t: explicit prune only"


def test_excused_tables(tmp_path: Path) -> None:
    toml = (
        GOOD
        + '[excused]\na = { singleton = "one row, id = 1" }\nb = { constant = "c", rows = 9 }\nc = { mirror = "m" }\n'
    )
    found = shown(tmp_path, toml)
    assert found["a"] == ShownRow("a", "singleton: one row, id = 1", "nothing", "No rule selects its rows.", "")
    assert found["b"].bound == "constant: c (at most 9 rows)"
    assert found["c"].why == "Nothing may delete from it."


def test_markdown_has_a_line_per_table_whatever_people_wrote(tmp_path: Path) -> None:
    toml = GOOD.replace('why = "w"', 'why = """a | b\n`c` <d> \\\\| *e*"""')
    metric = 'lifecycle_prune_rows_total{scheduler="s",table="t"}; s.lifecycle_pruned'
    why = r"a \| b \`c\` \<d> \\\| \*e\*"
    assert markdown(contract(tmp_path, toml)).splitlines() == [
        "| Table | Bounded by | Pruned by | Never broken | Observed in |",
        "| --- | --- | --- | --- | --- |",
        f"| t | older than 7d by at | s every 5m | {why} | {metric} |",
    ]


def test_every_table_of_the_reference_contracts_has_one_row(tmp_path: Path) -> None:
    path = tmp_path / "wane.toml"
    path.write_text(f"include = {[f'reference:{name}' for name in names()]}\n")
    loaded = load_contract(path)
    expected = {
        *(str(table.name) for table in loaded.tables),
        *(str(name) for name, _ in loaded.excused),
        *(str(follower.reference.table) for _, _, follower in loaded.followers()),
    }
    found = [row.table for row in rows(loaded)]
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert all(row.bound and row.trigger and row.why for row in rows(loaded))
    assert len(markdown(loaded).splitlines()) == len(found) + 2
