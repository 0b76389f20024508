"""A sweep makes the same batches on every store, whatever kind of rule it is of."""

from __future__ import annotations

from pathlib import Path

import pytest

from prune.keeping import ago
from servers import Database
from wane._keeper import open_keeper
from wane._prune.pace import Pace
from wane.events import BatchTaken, Event

TENS = Pace(target_seconds=0.05, duty=1.0, first_batch=10, least_batch=10, most_batch=10)
"""Batches of ten rows, without pauses."""
TABLES = """
CREATE TABLE item (
  id integer PRIMARY KEY, state text, at_ms bigint, end_ms bigint, tenant text, flag text, days integer, unit_id integer,
  owner_id integer
);
CREATE INDEX item_due ON item (state, at_ms, id);
CREATE TABLE part (id integer PRIMARY KEY, item_id integer, at_ms bigint);
CREATE INDEX part_item ON part (item_id);
CREATE TABLE piece (id integer PRIMARY KEY, part_id integer);
CREATE INDEX piece_part ON piece (part_id);
CREATE TABLE unit (id integer PRIMARY KEY, at_ms bigint, days integer);
"""
CONTRACT = """
[scheduler]
night = { every = "1h" }
[table.item]
scheduler = "night"
why = "A test."
state = "state"
live = ["queued"]
%s
excused = { cleaned = { append_only = "it is marked" } }
[table.item.rule.old]
when = ["done"]
%s
[excused]
part = { in_place = "a test" }
piece = { in_place = "a test" }
unit = { in_place = "a test" }
"""
AT = 'time = { column = "at_ms", unit = "ms" }'
AGED = 'keep = "7d"'
KINDS = {
    "age": (AT, AGED),
    "expiry": (AT, 'expires = { column = "end_ms", unit = "ms" }'),
    "where": (AT, AGED + "\nwhere = { days = 0 }"),
    "unless null": (AT, AGED + '\nunless = [{ null = "end_ms" }]'),
    "unless not null": (AT, AGED + '\nunless = [{ not_null = "flag" }]'),
    "unless referenced": (AT, AGED + '\nunless = [{ referenced_by = "part.item_id" }]'),
    "mark": (AT, AGED + '\nthen = { mark = "cleaned" }'),
    "spare": (AT, AGED + "\nspare = { newest = 3 }"),
    "longer": (AT, AGED + '\nlonger = { column = "days", unit = "d" }'),
    "first": ('time = { first = ["end_ms", "at_ms"], unit = "ms" }', AGED),
    "latest": ('time = { latest = ["at_ms", "end_ms"], unit = "ms" }', AGED),
    "parent": ('time = { column = "at_ms", unit = "ms", parent = { table = "unit", columns = "unit_id" } }', AGED),
    "child": ('time = { column = "at_ms", unit = "ms", child = "part.item_id" }', AGED),
    "parent's window": (
        AT,
        AGED + '\nlonger = { column = "days", unit = "d", parent = { table = "unit", columns = "unit_id" } }',
    ),
    "orphans": (AT, AGED + '\norphans = "owner_id"'),
    "orphans of a missing row": (AT, AGED + '\norphans = { columns = "days", of = "unit" }'),
    "followers": (AT, AGED + '\nwith = ["part.item_id"]'),
    "followers of followers": (
        AT,
        AGED + '\nwith = [{ table = "part", columns = "item_id", with = ["piece.part_id"] }]',
    ),
    "spare per scope": (AT, AGED + '\nspare = { newest = 3, per = "tenant" }'),
    "cap per scope": (AT, 'most = 3\nper = "tenant"'),
    "cap": (AT, "most = 3"),
    "cap by key": ("", 'most = 3\nby = "id"'),
}


@pytest.mark.parametrize(("kind", "due"), [(kind, 20 + 5 * (number % 2)) for number, kind in enumerate(KINDS)])
def test_every_store_makes_the_same_batches_for_every_kind(
    database: Database, tmp_path: Path, kind: str, due: int
) -> None:
    database.script(TABLES)
    time, bound = KINDS[kind]
    staying = 3 if kind.startswith(("spare", "cap")) else 0
    scopes = ["a", "b"] if kind.endswith("per scope") else ["a"]
    rows = due + staying * len(scopes)
    database.execute("INSERT INTO unit VALUES (1, ?, 1)", (ago(60),))
    days = 1 if kind == "longer" else 0
    database.executemany(
        "INSERT INTO item VALUES (?, 'done', ?, ?, ?, NULL, ?, 1, NULL)",
        [(n, ago(60 - n / 100), ago(50 - n / 100), scopes[n % len(scopes)], days) for n in range(1, rows + 1)],
    )
    database.execute("INSERT INTO item VALUES (9999, 'queued', 1, 1, 'a', NULL, 0, 1, NULL)")
    levels = 1
    if kind.startswith(("child", "followers")):
        levels += kind != "child"
        database.execute("INSERT INTO part SELECT id, id, at_ms FROM item")
    if kind == "followers of followers":
        levels += 1
        database.execute("INSERT INTO piece SELECT id, id FROM item")
    file = tmp_path / "wane.toml"
    file.write_text(CONTRACT % (time, bound))
    events: list[Event] = []
    with open_keeper(database.url, contract=file, listener=events.append) as keeper:
        keeper.migrate()
        keeper.enable()
        [swept] = keeper.sweep(pace=TENS).rules
        made = [sum(event.counts.values()) for event in events if isinstance(event, BatchTaken)]
        # Only a scope without rows proves that no scope has any.
        ending = [0] if kind == "cap per scope" and due % 10 else []
        batches = [*expected(due, levels), *ending]
        if kind == "cap":
            batches.remove(0)  # A batch that ends at the edge is known to be the last one.
            if database.store == "postgres" and made[-1] == 0:
                batches.append(0)  # A transaction of another database ended, so that the edge might be another one.
        assert (swept.message, made, swept.batches) == ("", batches, len(made))
        [entry] = keeper.audit(table="item")
        assert (entry.rows, entry.batches) == (due * levels, len(made))


def expected(due: int, levels: int) -> list[int]:
    """Return batches of as many rows as fit into ten with everything that leaves with them; the last one is not
    full."""
    whole = 10 // levels * levels
    return [whole] * (due * levels // whole) + [due * levels % whole]
