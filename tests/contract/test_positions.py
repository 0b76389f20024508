"""Every finding names the line of its key, however the file is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from contract.cases import FOLDER, cases, read
from wane._contract.positions import nearest_line, scan_lines

WRITTEN = '''\
# a comment with [brackets] and "quotes"
strict = true
include = [
  "a.toml",   # ] not the end
  "b.toml",
]

[store]
url = "postgresql://me@host/db#x"

[table."public.odd name"]
why = """
[not.a.table]
key = "no key" \\""" still inside
"""
state = 'status'
live = ["a", "b # c"]
rule.old = { when = ["x"], keep = "7d", unless = [{ null = "p" }, { referenced_by = "n.t" }] }
time.column = "at"
time.unit = "ms"

[[table.t.rule.r.with]]
table = "first"
[[table.t.rule.r.with]]
table = "second"
[table.t.rule.r.with.where]
kind = 1
[ scheduler . s ]
every = 5
'last' = [[1, 2], [3,
  4]]
'''
LINES = {
    ("strict",): 2,
    ("include",): 3,
    ("include", 0): 4,
    ("include", 1): 5,
    ("store",): 8,
    ("store", "url"): 9,
    ("table", "public.odd name"): 11,
    ("table", "public.odd name", "why"): 12,
    ("table", "public.odd name", "state"): 16,
    ("table", "public.odd name", "live", 1): 17,
    ("table", "public.odd name", "rule", "old", "keep"): 18,
    ("table", "public.odd name", "rule", "old", "unless", 1, "referenced_by"): 18,
    ("table", "public.odd name", "time", "unit"): 20,
    ("table", "t", "rule", "r", "with", 0): 22,
    ("table", "t", "rule", "r", "with", 0, "table"): 23,
    ("table", "t", "rule", "r", "with", 1, "table"): 25,
    ("table", "t", "rule", "r", "with", 1, "where", "kind"): 27,
    ("scheduler", "s", "every"): 29,
    ("scheduler", "s", "last", 1, 1): 31,
}


@pytest.mark.parametrize("path", LINES, ids=str)
def test_the_line_of_a_key_is_found(path: tuple[str | int, ...]) -> None:
    assert scan_lines(WRITTEN).get(path) == LINES[path]


def test_the_ends_of_lines_may_be_those_of_windows() -> None:
    lines = scan_lines(WRITTEN.replace("\n", "\r\n"))
    assert {path: lines.get(path) for path in LINES} == LINES


def test_a_missing_key_is_reported_at_its_table() -> None:
    lines = scan_lines("\n[table.t]\nwhy = 1\n")
    assert nearest_line(lines, ["table", "t", "state"]) == 2
    assert nearest_line(lines, ["floor", "t"]) is None


@pytest.mark.parametrize("text", ["[", "a = [", "a = {", '"', "a", "a = ", "[[x]", "= 1", "a = " + "[" * 5_000])
def test_what_is_no_toml_ends_the_scan_and_nothing_else(text: str) -> None:
    assert scan_lines(f"first = 1\n{text}")[("first",)] == 1


def test_every_mistake_of_the_collection_has_the_line_of_its_key(tmp_path: Path) -> None:
    """The line of a finding contains the last name of its path that the file has."""
    checked = 0
    for path in sorted(FOLDER.glob("*.txt")):
        for case in cases(path.stem):
            written = case.toml.splitlines()
            for finding in read(tmp_path, wane=case.toml).findings:
                if finding.line is None:
                    continue
                assert finding.file == "wane.toml"
                names = [part.strip("\"'") for part in finding.path.replace("[", ".").split(".")]
                line = written[finding.line - 1]
                assert any(name in line for name in names) or line.strip(" ]},")[:1] in "\"'{[0123456789", (
                    case.name,
                    line,
                )
                checked += 1
    assert checked > 150


def test_syntax_errors_have_a_line_too(tmp_path: Path) -> None:
    [finding] = read(tmp_path, wane="strict = true\n\nkeep = 7d\n").findings
    assert (finding.code, finding.line) == ("not-toml", 3)
    assert str(finding).startswith("wane.toml:3: not valid TOML")


def test_a_mistake_in_an_included_file_has_the_line_of_that_file(tmp_path: Path) -> None:
    reading = read(tmp_path, wane='include = ["a.toml"]\n', a='\n\n[window]\nw = "0d"\n')
    assert [(one.file, one.line) for one in reading.findings] == [("a.toml", 4)]
