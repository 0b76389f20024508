"""Running the command as people and scripts do, and a small database for it to speak of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servers import Database
from wane._cli.output import FORMAT
from wane._db.counting import Exactness

AT = "2026-01-10T00:00:00Z"
"""The timestamp that the tests plan for."""
_DAY_MS = 86_400_000
_AT_MS = 1_767_225_600_000 + 9 * _DAY_MS

CONTRACT = """\
[store]
url = "{url}"

[scheduler]
tick = {{ every = "5m" }}

[table.inbox]
why       = "A message outlives every reply that refers to it."
scheduler = "tick"
state     = "status"
live      = ["queued"]
time      = {{ column = "received_at_ms", unit = "ms" }}

[table.inbox.rule.failed]
when = ["failed"]
keep = "7d"
with = ["note.inbox_id"]

[excused]
settings = {{ singleton = "one row, id = 1" }}
"""


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Return everything on stdout, as JSON: anything else there is an error, and so is a number in another
        shape."""
        document = json.loads(self.out)
        check_numbers(document)
        return document

    @property
    def json(self) -> Any:
        """Return the content of the document, without its format."""
        document = self.document
        if isinstance(document, list):
            return document
        if "items" in document:
            return document["items"]
        return {key: value for key, value in document.items() if key != "format" or value != FORMAT}


def check_numbers(found: Any) -> None:
    """Check that how exact a number `x` is stands beside it in `x_exactness`, everywhere, and nowhere else."""
    if isinstance(found, list):
        for one in found:
            check_numbers(one)
    elif isinstance(found, dict) and "$schema" not in found:
        assert not {"exact", "exactness", "estimated"} & found.keys(), found
        for name, words in found.items():
            if name.endswith("_exactness"):
                _check_words(found[name.removesuffix("_exactness")], words)
            elif name != "parameters":  # What is bound to a statement is the user's.
                check_numbers(words)


def _check_words(numbers: Any, words: Any) -> None:
    if isinstance(numbers, dict):
        assert numbers.keys() == words.keys()
        for key, number in numbers.items():
            _check_words(number, words[key])
    elif numbers is None:
        assert words is None
    else:
        assert isinstance(numbers, int | float)
        assert words in list(Exactness)


def fill(database: Database) -> None:
    """Insert three old failed messages with two notes, a young one, a live one, one without a time, and a table that is
    excused."""
    for statement in (
        "CREATE TABLE inbox (id integer PRIMARY KEY, status text NOT NULL, received_at_ms bigint)",
        "CREATE TABLE note (id integer PRIMARY KEY, inbox_id integer NOT NULL REFERENCES inbox (id))",
        "CREATE TABLE settings (id integer PRIMARY KEY)",
        "CREATE INDEX inbox_age ON inbox (status, received_at_ms, id)",
        "CREATE INDEX note_inbox ON note (inbox_id)",
    ):
        database.execute(statement)
    old, young = _AT_MS - 8 * _DAY_MS, _AT_MS - 6 * _DAY_MS
    messages = [
        (1, "failed", old),
        (2, "failed", old + 1),
        (3, "failed", old + 2),
        (4, "failed", young),
        (5, "queued", old),
        (6, "failed", None),
    ]
    database.executemany("INSERT INTO inbox VALUES (?, ?, ?)", messages)
    database.executemany("INSERT INTO note VALUES (?, ?)", [(1, 1), (2, 1)])
    database.execute("INSERT INTO settings VALUES (1)")


def write_contract(folder: Path, url: str, text: str = CONTRACT) -> Path:
    path = folder / "wane.toml"
    path.write_text(text.format(url=url), encoding="utf-8")
    return path
