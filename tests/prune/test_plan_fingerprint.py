"""The fingerprint changes with every promise, and with nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from covering import loaded
from wane._contract.duration import FOREVER, Forever
from wane._contract.fingerprint import fingerprint
from wane._contract.model import Age, ArchiveTable, Contract, Excuse, Rule, Scheduler, Table, Unit
from wane._contract.settings import StoreSettings

TEXT = """
strict = true
[store]
url = "sqlite:///state.db"
[scheduler]
fast = { every = "5m" }
slow = { every = "1h" }
[window]
"a.window" = "7d"
[floor]
jobs = "3d"
outbox = "5d"
[budget]
rows = 1_000
[table.jobs]
scheduler = "fast"
why = "Finished jobs stay referable."
inline = "on finish"
observe = "the dashboard"
state = "status"
live = ["queued", "running"]
key = ["tenant", "id"]
time = { column = "finished_at", unit = "text", zone = "Europe/Vienna" }
excused = { lost = { inline = "found again" }, odd = { elsewhere = "theirs" } }
[table.jobs.rule.marked]
when = ["done", "failed"]
keep = { window = "a.window" }
unless = [{ null = "checked_at" }, { not_null = "locked_by" }, { referenced_by = "letters.job_id" }]
then = { mark = "cleaned" }
budget = { rows = 10, seconds = 20, batches = 30 }
[table.jobs.rule.gone]
when = ["cleaned"]
keep = "30d"
with = [{ table = "logs", columns = ["tenant", "job_id"], to = ["tenant", "id"], where = { kind = "run" }, with = [{ table = "lines", columns = ["log_id"] }] }]
[table.outbox]
scheduler = "slow"
why = "Replay."
time = "created_at"
[table.outbox.rule.cold]
keep = "90d"
then = "archive"
[table.presence]
scheduler = "fast"
why = "Derived."
time = { column = "seen_at", unit = "ms" }
[table.presence.rule.expired]
expires = { column = "ends_at", unit = "s" }
[table.presence.rule.cap]
most = 500
per = ["tenant", "lane"]
derived = true
[table.presence.rule.lost]
orphans = "parent_id"
keep = "1d"
[table.ledger]
why = "Law."
append_only = true
[table.ledger.rule.all]
keep = "forever"
[archive]
url = "./archive"
[archive.outbox]
keep = "365d"
[excused]
cache = { singleton = "one row" }
"app.mirror" = { mirror = "of another", rows = 50 }
"""

PROSE = {
    (Table, "why"),
    (Table, "inline"),
    (Table, "observe"),
    (Table, "age"),
    (Excuse, "reason"),
    (Contract, "path"),
    (Contract, "positions"),
    (Contract, "store"),
    (Contract, "windows"),
    (Contract, "strict"),
    (Contract, "archive_url"),
    (Contract, "archive_shared"),
    (Contract, "budget"),
    (Contract, "sweep"),
    (Contract, "queue"),
    (Contract, "health"),
    (Contract, "spark"),
    (Contract, "upkeep"),
    (Contract, "growth"),
    (Contract, "space"),
    (Contract, "roles"),
    (Contract, "events"),
    (Rule, "least_rows"),
    (Rule, "longest_wait"),
    (ArchiveTable, "least_rows"),
    (ArchiveTable, "longest_wait"),
}


@pytest.fixture(scope="module")
def contract() -> Contract:
    return loaded(TEXT)


def changes(value: Any) -> Iterator[tuple[str, bool, Any]]:
    """Yield (what changed, whether it is mere prose, the value with that one change), for every field at every
    depth."""
    if isinstance(value, StoreSettings | Forever):
        return
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            before = getattr(value, field.name)
            path = f"{type(value).__name__}.{field.name}"
            prose = (type(value), field.name) in PROSE
            for what, inner_prose, after in changes(before):
                yield f"{path} {what}", prose or inner_prose, dataclasses.replace(value, **{field.name: after})
    elif isinstance(value, tuple):
        for number, one in enumerate(value):
            yield f"[{number}] left out", False, value[:number] + value[number + 1 :]
            for what, prose, after in changes(one):
                yield f"[{number}] {what}", prose, (*value[:number], after, *value[number + 1 :])
    else:
        yield f"{value!r} changed", False, another(value)


def test_another_unit_of_a_column_is_another_promise(contract: Contract) -> None:
    [table, *rest] = contract.tables
    [rule, *rules] = table.rules
    assert isinstance(rule.bound, Age)
    units = dataclasses.replace(rule.bound.time, also=(Unit.ISO,))
    bound = dataclasses.replace(rule.bound, time=units)
    changed = dataclasses.replace(table, rules=(dataclasses.replace(rule, bound=bound), *rules))
    assert fingerprint(dataclasses.replace(contract, tables=(changed, *rest))) != fingerprint(contract)


def another(value: Any) -> Any:
    if isinstance(value, Enum):
        members = list(type(value))
        return members[(members.index(value) + 1) % len(members)]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, timedelta):
        return value + timedelta(microseconds=1)
    return {type(None): "something", Path: Path("elsewhere")}.get(type(value)) or f"{value}_"


def test_every_promise_changes_it_and_no_prose_does(contract: Contract) -> None:
    before = fingerprint(contract)
    seen: dict[str, str] = {}
    prose_seen = 0
    for what, prose, changed in changes(contract):
        after = fingerprint(changed)
        assert (after == before) is prose, what
        prose_seen += prose
        if not prose:
            # Two different changes are two different contracts.
            assert seen.setdefault(after, what) == what
    assert len(seen) > 150
    assert prose_seen >= 15


def test_forever_is_another_promise_than_any_duration(contract: Contract) -> None:
    [archive] = contract.archive
    changed = dataclasses.replace(contract, archive=(dataclasses.replace(archive, keep=FOREVER),))
    assert fingerprint(changed) != fingerprint(contract)


def test_a_number_a_boolean_and_a_text_are_different_states(contract: Contract) -> None:
    [jobs, *rest] = contract.tables
    prints = {
        fingerprint(dataclasses.replace(contract, tables=(dataclasses.replace(jobs, live=(live,)), *rest)))
        for live in (1, True, "1", "true", "True")
    }
    assert len(prints) == 5


SAME = {
    "comments": ("[floor]", "# why\n[floor]  # and how"),
    "prose": ('why = "Replay."', 'why = "Something else entirely."'),
    "order of keys": ('scheduler = "slow"\nwhy = "Replay."', 'why = "Replay."\nscheduler = "slow"'),
    "order of keys inline": ('column = "seen_at", unit = "ms"', 'unit = "ms", column = "seen_at"'),
    "order of floors": ('jobs = "3d"\noutbox = "5d"', 'outbox = "5d"\njobs = "3d"'),
    "order of schedulers": (
        'fast = { every = "5m" }\nslow = { every = "1h" }',
        'slow = { every = "1h" }\nfast = { every = "5m" }',
    ),
    "order of excuses": (
        'cache = { singleton = "one row" }\n"app.mirror" = { mirror = "of another", rows = 50 }',
        '"app.mirror" = { mirror = "of another", rows = 50 }\ncache = { singleton = "one row" }',
    ),
    "order of excused states": (
        'lost = { inline = "found again" }, odd = { elsewhere = "theirs" }',
        'odd = { elsewhere = "theirs" }, lost = { inline = "found again" }',
    ),
    "order of live states": ('["queued", "running"]', '["running", "queued"]'),
    "order of selected states": ('["done", "failed"]', '["failed", "done"]'),
    "order of guards": (
        '{ null = "checked_at" }, { not_null = "locked_by" }',
        '{ not_null = "locked_by" }, { null = "checked_at" }',
    ),
    "url": ("sqlite:///state.db", "postgresql://somebody@somewhere/else"),
    "name of a window": ("a.window", "another.window"),
    "a window written out": ('keep = { window = "a.window" }', 'keep = "168h"'),
    "another way to write a duration": ('keep = "90d"', 'keep = "12w 6d"'),
    "another way to write a reference": (
        '{ table = "lines", columns = ["log_id"] }',
        '"lines.log_id"',
    ),
    "strictness": ("strict = true", "strict = false"),
    "where the archive is": ('url = "./archive"', 'url = "./elsewhere"'),
}


@pytest.mark.parametrize("what", SAME)
def test_what_promises_nothing_does_not_change_it(contract: Contract, what: str) -> None:
    before, after = SAME[what]
    assert before in TEXT
    assert fingerprint(loaded(TEXT.replace(before, after))) == fingerprint(contract)


OTHER = {
    "window": ('"a.window" = "7d"', '"a.window" = "8d"'),
    "keep": ('keep = "30d"', 'keep = "31d"'),
    "time column": ('"created_at"', '"updated_at"'),
    "unit": ('unit = "ms"', 'unit = "s"'),
    "zone": ("Europe/Vienna", "UTC"),
    "live state": ('["queued", "running"]', '["queued"]'),
    "selected state": ('["done", "failed"]', '["done"]'),
    "guard": ('{ null = "checked_at" }', '{ not_null = "checked_at" }'),
    "condition of a follower": ('kind = "run"', 'kind = "ran"'),
    "most": ("most = 500", "most = 501"),
    "scope": ('["tenant", "lane"]', '["tenant"]'),
    "default budget": ("rows = 1_000", "rows = 1_001"),
    "floor": ('jobs = "3d"', 'jobs = "4d"'),
    "archive": ('keep = "365d"', 'keep = "forever"'),
    "excuse": ("rows = 50", "rows = 51"),
    "order of rules": ('[table.presence.rule.lost]\norphans = "parent_id"\nkeep = "1d"\n', ""),
}


@pytest.mark.parametrize("what", OTHER)
def test_what_promises_something_else_changes_it(contract: Contract, what: str) -> None:
    before, after = OTHER[what]
    assert before in TEXT
    text = TEXT.replace(before, after)
    if what == "order of rules":
        text = text.replace("[table.presence.rule.expired]", before + "[table.presence.rule.expired]")
    assert fingerprint(loaded(text)) != fingerprint(contract)


def test_the_order_of_tables_is_the_order_of_sweeps(contract: Contract) -> None:
    reversed_tables = dataclasses.replace(contract, tables=contract.tables[::-1])
    assert fingerprint(reversed_tables) != fingerprint(contract)


def test_it_is_short_and_the_same_in_every_process(contract: Contract) -> None:
    assert fingerprint(Contract(None, (), schedulers=(Scheduler("s", timedelta(minutes=5)),))) == "cba538dd84c5635b"
    assert len(fingerprint(contract)) == 16
