"""Reading files that are not what they should be: findings, never another exception, never a secret."""

from __future__ import annotations

import os
import socket
import sys
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.cases import GOOD, STATES, inside, read, reported
from texts import CHARACTERS
from wane._contract.load import load_contract, read_contract
from wane._contract.mistakes import Mistakes
from wane._contract.resolve import SourceFile, resolve
from wane.errors import ContractError

BOM = b"\xef\xbb\xbf"


def test_all_errors_are_raised_together(tmp_path: Path) -> None:
    (tmp_path / "wane.toml").write_text(GOOD.replace("7d", "0d").replace('"at"', "5"))
    with inside(tmp_path), pytest.raises(ContractError) as error:
        load_contract("wane.toml")
    assert str(error.value) == (
        "wane.toml: the contract has 2 mistakes\n"
        "wane.toml:6 table.t.time: 5 is not a time column\n"
        '  fix: write its name, or { column = "…", unit = "…" }\n'
        "wane.toml:8 table.t.rule.r.keep: '0d' is zero\n"
        '  fix: write a duration longer than zero, for example "90d", "168h" or "1d 12h"'
    )


def test_warnings_do_not_stop_a_contract(tmp_path: Path) -> None:
    (tmp_path / "wane.toml").write_text(GOOD + '[window]\nunread = "7d"\n')
    assert len(load_contract(tmp_path / "wane.toml").tables) == 1
    assert len(read_contract(tmp_path / "wane.toml").findings) == 1


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"[table", "error not-toml: wane.toml: not valid TOML: Expected ']'"),
        (b"strict = true\nstrict = true\n", "error not-toml: wane.toml: not valid TOML: Cannot overwrite a value"),
        (b"a = " + b"[" * 100_000, "error not-toml: wane.toml: not valid TOML: nested too deeply"),
        (b"a = " + b"9" * 5000, "error not-toml: wane.toml: not valid TOML: a number of thousands of digits"),
        (b"a = 2026-13-01", "error not-toml: wane.toml: not valid TOML: "),
        (b"\x00\x01\x02", "error not-toml: wane.toml: not valid TOML: "),
        (b"\x7fELF\xff\xfe", "error unreadable: wane.toml: not UTF-8 text, at byte 4"),
        (b"# \xc3\x28", "error unreadable: wane.toml: not UTF-8 text, at byte 2"),
        (b"#" * 10_000_000, "error unreadable: wane.toml: larger than 4194304 bytes"),
        (b"", ""),
        (BOM + GOOD.encode(), ""),
        (GOOD.replace("\n", "\r\n").encode(), ""),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_a_file_of_other_content(content: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "wane.toml").write_bytes(content)
    with inside(tmp_path):
        reading = read_contract("wane.toml")
    assert reported(reading).startswith(expected)
    assert len(reading.findings) == (1 if expected else 0)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with inside(tmp_path):
        assert reported(read_contract("wane.toml")) == (
            "error unreadable: wane.toml: no such file\n  fix: write one, or let `wane init URL` propose one"
        )
        (tmp_path / "folder.toml").mkdir()
        assert reported(read_contract("folder.toml")) == (
            "error unreadable: folder.toml: cannot be read: it is a directory\n  fix: name a file"
        )
        assert reported(read_contract("a\x00b")) == "error unreadable: a\\x00b: cannot be read: not the name of a file"
        assert reported(read_contract("a" * 300)).endswith("cannot be read: File name too long")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("pipe")
    with inside(tmp_path), socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for name, what in (
            ("pipe", "a pipe"),
            ("link", "a pipe"),
            ("folder", "a directory"),
            ("socket", "a socket"),
            ("/dev/zero", "a device"),
            ("/dev/tty", "a device"),
        ):
            problem = f"error unreadable: {name}: cannot be read: it is {what}"
            assert reported(read_contract(name)) == f"{problem}\n  fix: name a file"
            included = reported(read(tmp_path, wane=f'include = ["{name}"]\n' + GOOD))
            assert included == f"{problem}\n  fix: wane.toml includes it: correct the path"


def test_an_included_file_has_a_largest_size(tmp_path: Path) -> None:
    with (tmp_path / "large.toml").open("wb") as file:
        file.truncate(2**40)
    assert reported(read(tmp_path, wane='include = ["large.toml"]\n' + GOOD)) == (
        "error unreadable: large.toml: larger than 4194304 bytes\n  fix: a contract is a short text"
    )


def test_a_file_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Permissions would not stop root, as which the tests may run.
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "wane.toml").touch()
    monkeypatch.setattr(Path, "open", refuse)
    with inside(tmp_path):
        assert reported(read_contract("wane.toml")) == "error unreadable: wane.toml: cannot be read: Permission denied"


@pytest.mark.parametrize("depth", [50, 500, 1_200])
def test_keys_nested_without_end(depth: int, tmp_path: Path) -> None:
    assert sys.getrecursionlimit() < 1_200
    deep = ".".join(["a"] * depth)
    for toml in (
        GOOD + f"{deep} = 1\n",
        GOOD + f"[{deep}]\n",
        STATES + f"[table.t.rule.r]\nkeep = '7d'\nwhen = [{{ {deep} = 1 }}]\n",
        GOOD + f"then = {{ {deep} = 1 }}\n",
        GOOD + f"with = [{{ table = 'c', columns = 'x', where = {{ {deep} = 1 }} }}]\n",
    ):
        reading = read(tmp_path, wane=toml)
        assert reading.contract is None
        assert all(len(str(finding)) < 2_000 for finding in reading.findings)


@pytest.mark.parametrize("depth", [3, 60, 200, 400])
def test_followers_nested_without_end(depth: int, tmp_path: Path) -> None:
    follower = "'leaf.x'"
    for number in range(depth):
        follower = f"{{ table = 'c{number}', columns = 'x', with = [{follower}] }}"
    reading = read(tmp_path, wane=GOOD + f"with = [{follower}]\n")
    assert reading.contract is not None or reading.findings


def test_what_people_wrote_is_reported_shortly_and_without_commands_to_the_terminal(tmp_path: Path) -> None:
    long = "x" * 100_000
    reading = read(tmp_path, wane=GOOD.replace("7d", long) + f'[excused]\n"\\u001b[31m{long}" = 5\n')
    assert len(reading.findings) == 2
    for finding in reading.findings:
        assert len(str(finding)) < 1_500
        assert str(finding).replace("\n", "").isprintable()


SECRET = "hunter2"
URL = f"postgresql://me:{SECRET}@db/app?password={SECRET}"


@pytest.mark.parametrize(
    "toml",
    [
        f'{GOOD}[store]\nurl = "{URL}"\n',
        f'store = "{URL}"\n{GOOD}',
        f'archive = "{URL}"\n{GOOD}',
        f'{GOOD}[store]\nulr = "{URL}"\n',
        f'{GOOD}[store]\nurl = ["{URL}"]\n',
        f'{GOOD}[store]\nschemas = "{URL}"\n',
        f'{GOOD}[store]\nattach = "{URL}"\n',
        f'{GOOD}[store]\n"{URL}" = 1\n',
        f'{GOOD}[archive]\nurl = "{URL}"\n',
        f'{GOOD}[archive."{URL}"]\nkeep = "1d"\n',
        f'include = ["{URL}"]\n{GOOD}',
        f'include = ["reference:{URL}"]\n{GOOD}',
        f'"{URL}" = 1\n{GOOD}',
        f'[table."{URL}"]\n{GOOD}',
        GOOD.replace("7d", URL),
        GOOD.replace('why = "w"', f'why = "w"\ninline = ["{URL}"]'),
        f'{GOOD}[store]\nurl = "{URL}\n',
    ],
)
def test_a_password_is_never_reported(toml: str, tmp_path: Path) -> None:
    reading = read(tmp_path, wane=toml)
    assert SECRET not in f"{reading!r} {reading}"
    for finding in reading.findings:
        assert SECRET not in f"{finding} {finding!r} {finding.as_dict()}"
    if reading.contract is not None:
        assert SECRET not in f"{reading.contract!r} {reading.contract.store!r}"
    else:
        with inside(tmp_path), pytest.raises(ContractError) as error:
            load_contract("wane.toml")
        assert SECRET not in f"{error.value!r} {error.value}"


def test_a_url_given_for_a_path_is_masked() -> None:
    with pytest.raises(ContractError) as error:
        load_contract(URL)
    assert SECRET not in str(error.value)


def test_a_url_without_a_password_is_no_mistake(tmp_path: Path) -> None:
    for url in ("DATABASE_URL", "sqlite:///a:b@c.db", "postgresql://me@db/app", "postgresql://me:${PASSWORD}@db/app"):
        assert reported(read(tmp_path, wane=f'{GOOD}[store]\nurl = "{url}"\n')) == ""


WORDS = st.sampled_from(
    [
        "include",
        "strict",
        "store",
        "scheduler",
        "window",
        "floor",
        "budget",
        "table",
        "excused",
        "archive",
        "url",
        "rule",
        "why",
        "state",
        "live",
        "time",
        "key",
        "keep",
        "expires",
        "most",
        "per",
        "orphans",
        "unless",
        "with",
        "then",
        "derived",
        "when",
        "null",
        "not_null",
        "referenced_by",
        "columns",
        "to",
        "where",
        "mark",
        "column",
        "unit",
        "zone",
        "every",
        "rows",
        "singleton",
        "mirror",
        "append_only",
        "t",
        "t.u",
        "a.b.c",
        "DECIDE",
        "forever",
        "prune",
        "archive",
        "7d",
        "0d",
        "ms",
        "UTC",
    ]
)
SHORT = st.text(CHARACTERS, max_size=5)
KEYS = WORDS | SHORT
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        WORDS,
        SHORT,
        st.integers(),
        st.booleans(),
        st.floats(),
        st.just(date(2026, 1, 1)),
        st.just(time(7, 30)),
        st.just(datetime(2026, 1, 1)),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)
PIECES = st.fixed_dictionaries(
    {},
    optional={
        "strict": VALUES,
        "store": st.dictionaries(st.sampled_from(["url", "schemas", "attach"]), VALUES) | VALUES,
        "scheduler": st.dictionaries(KEYS, st.fixed_dictionaries({"every": VALUES})) | VALUES,
        "window": st.dictionaries(KEYS, VALUES),
        "floor": st.dictionaries(KEYS, VALUES),
        "budget": st.dictionaries(st.sampled_from(["rows", "seconds"]), VALUES),
        "table": st.dictionaries(
            KEYS,
            st.fixed_dictionaries(
                {"why": st.just("w") | VALUES},
                optional={
                    **dict.fromkeys(["scheduler", "state", "live", "time", "key", "excused", "append_only"], VALUES),
                    "rule": st.dictionaries(
                        KEYS,
                        st.dictionaries(
                            st.sampled_from(
                                [
                                    "when",
                                    "keep",
                                    "expires",
                                    "most",
                                    "per",
                                    "time",
                                    "orphans",
                                    "unless",
                                    "with",
                                    "then",
                                    "derived",
                                ]
                            ),
                            VALUES,
                        ),
                    )
                    | VALUES,
                },
            )
            | VALUES,
        )
        | VALUES,
        "excused": st.dictionaries(KEYS, VALUES),
        "archive": st.dictionaries(KEYS, VALUES),
    },
)


@given(PIECES)
def test_any_content_makes_findings_or_a_contract(data: dict[str, Any]) -> None:
    mistakes = Mistakes("wane.toml")
    resolve(Path("wane.toml"), [SourceFile(Path("wane.toml"), data, mistakes)])
    for finding in mistakes.findings:
        assert finding.message
        assert str(finding).replace("\n", "").isprintable()
