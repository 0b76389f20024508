"""The JSON Schema for editors: everything that is good passes, and much of what is wrong does not."""

from __future__ import annotations

import json
import tomllib
import warnings
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from contract.cases import GOOD, STATES, TABLE, cases
from wane._contract.load import KEYS
from wane._contract.schema import json_schema
from wane.reference import contract_path, names

DESIGN = """
include = ["reference:webhooks", "teams/billing.toml"]
strict = true
[store]
url = "sqlite:///state.db"
schemas = ["app"]
attach = { core = "core.db" }
[window]
"lifecycle.channels.terminalRetentionDays" = "7d"
keepers = "forever"
[budget]
rows = 100_000
[queue]
pool = "retention"
lease = "30s"
attempts = 3
backoff = "10s"
remember = "7d"
dead_letters = "forever"
[scheduler]
statestore = { every = "5m" }
jobs       = { every = "5m" }
events     = { every = "1h" }
[table.channel_inbox]
scheduler = "statestore"
why   = "A completed message outlives every reply it caused."
state = "status"
live  = ["queued", "processing"]
time  = { column = "received_at_ms", unit = "ms" }
[table.channel_inbox.rule.failed]
when = ["failed"]
keep = "7d"
[table.channel_inbox.rule.completed]
when   = ["completed"]
keep   = "7d"
unless = [{ referenced_by = "channel_outbox.inbox_id" }]
[table.presence_entries]
scheduler = "statestore"
why  = "Derived inventory, rebuilt by heartbeats; not durable truth."
time = { column = "updated_at_ms", unit = "ms" }
[table.presence_entries.rule.expired]
expires = { column = "expires_at_ms", unit = "ms" }
[table.presence_entries.rule.cap]
most = 500
[table.job_queue]
scheduler = "jobs"
why   = "Finished jobs stay referable through the audit window."
state = "status"
live  = ["queued", "running", "failed"]
time  = { column = "finished_at" }
[table.job_queue.rule.cleaned]
when = ["succeeded", "cancelled"]
keep = "30d"
then = { mark = "cleaned" }
[table.job_queue.rule.gone]
when = ["cleaned"]
keep = "90d"
[table.event_outbox]
scheduler = "events"
why  = "Replay history; audit needs it, the hot path does not."
time = { column = "created_at" }
[table.event_outbox.rule.cold]
keep = "90d"
then = "archive"
with = ["event_read.event_id"]
[archive]
url = "./archive"
[archive.event_outbox]
keep = "forever"
[floor]
job_queue = "30d"
[excused]
models_dev_cache = { singleton = "one row, id = 1" }
iu_lifecycle_log = { append_only = "never deleted, by law" }
"""
RULE = STATES + "[table.t.rule.r]\n"


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        schema = json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def errors(validator: Draft202012Validator, toml: str) -> list[Any]:
    return list(validator.iter_errors(tomllib.loads(toml)))


@pytest.mark.parametrize("name", names())
def test_reference_contracts_pass(name: str, validator: Draft202012Validator) -> None:
    assert errors(validator, contract_path(name).read_text(encoding="utf-8")) == []


def test_a_contract_with_everything_passes(validator: Draft202012Validator) -> None:
    assert errors(validator, DESIGN) == []


@pytest.mark.parametrize(
    "toml",
    [
        RULE + 'when = [1]\nkeep = { window = "w" }\norphans = "p"\nbudget = { rows = 5 }\ntime = "x"\n',
        RULE + 'when = [true]\nexpires = "e"\nunless = [{ null = "a" }, { not_null = "b" }]\n',
        RULE + 'when = ["x"]\nmost = 5\nper = ["a", "b"]\nderived = true\n',
        RULE + 'when = ["x"]\nmost = 5\nby = "id"\n',
        RULE + 'when = ["x"]\nkeep = "7d"\ntime = { first = ["a", "b"], unit = "ms" }\n',
        RULE + 'when = ["x"]\nexpires = { latest = ["a", "b"] }\n',
        RULE + 'when = ["x"]\nkeep = "7d"\nlonger = { column = "days", unit = "d" }\n',
        RULE + 'when = ["x"]\nkeep = "7d"\ntime = { column = "at", child = "c.t_id" }\n',
        RULE + 'when = ["x"]\nkeep = "7d"\ntime = { column = "at", parent = { table = "p", columns = "p_id" } }\n',
        RULE + 'when = ["x"]\nkeep = "1d 12h"\nwith = [{ table = "c", columns = "x", to = ["id"], with = ["d.c"] }]\n',
        RULE + 'when = ["x"]\nkeep = "7 days"\nunless = [{ referenced_by = { table = "c", columns = ["x"] } }]\n',
        GOOD.replace('"at"', '{ column = "at", unit = "text", zone = "Europe/Vienna" }'),
    ],
)
def test_good_pieces_pass(toml: str, validator: Draft202012Validator) -> None:
    assert errors(validator, toml) == []


def test_good_beginnings_of_mistakes_pass(validator: Draft202012Validator) -> None:
    """What only `wane check` can see passes in an editor: the schema says no more than the loader does."""
    for case in cases("lint"):
        if "wrong-" not in case.reported and "unknown-key" not in case.reported:
            assert errors(validator, case.toml) == [], case.name


# What a schema cannot see: names that are well-formed texts, values that depend on others.
UNSEEN = {
    "settings": """store url undecided|unused window|unused scheduler|scheduler name with a dot|scheduler too often
        |growth that is measured too often or forgotten too soon|roles with names that are no names|one role for two purposes
        |partitions by a text|partitions by a day|partitions along by a day|partitions of the application made ahead
        |a token in the contract""",
    "table": """why undecided|unknown scheduler, near|unknown scheduler, far|append-only and swept|no scheduler
        |live undecided|live holds a NUL|live holds a huge number|excused is live|excused is selected
        |excused is no number|excused is no boolean|excused boolean is selected|time undecided|zone of a number|unknown zone
        |the machine's zone|column with a NUL|name with too many parts|name with an open quote|name with a NUL
        |the same table in other quotes|rule name with a dot|choice of columns in several units|cap by several columns
        |archived by several columns|newest spared by several columns|newest spared by a child""",
}


@pytest.mark.parametrize("group", UNSEEN)
def test_mistakes_of_shape_do_not_pass(group: str, validator: Draft202012Validator) -> None:
    passed = {case.name for case in cases(group) if not errors(validator, case.toml)}
    assert passed == {name.strip() for name in UNSEEN[group].split("|")} - {""}


@pytest.mark.parametrize(
    "text",
    [
        "",
        'keep = "7d"\nmost = 5',
        "keep = 7",
        'keep = "7"',
        'keep = "0d"',
        'keep = "-7d"',
        'keep = "3 months"',
        'keep = ""',
        'keep = "DECIDE"',
        "keep = true",
        'keep = { windo = "w" }',
        "most = 0",
        "most = true",
        "most = 5.5",
        'keep = "7d"\nper = "x"',
        'expires = "e"\norphans = "p"',
        'keep = "7d"\nthen = "delete"',
        'keep = "7d"\nunless = [{}]',
        'keep = "7d"\nunless = [{ null = "a", not_null = "b" }]',
        'keep = "7d"\nwith = "c.t"',
        'keep = "7d"\nwith = [5]',
        'keep = "7d"\nwith = [{ table = "c" }]',
        'keep = "7d"\nunles = []',
        'expires = { column = "e", unit = "hours" }',
    ],
)
def test_wrong_rules_do_not_pass(text: str, validator: Draft202012Validator) -> None:
    assert errors(validator, f'{RULE}when = ["x"]\n{text}\n')


def test_a_table_needs_a_rule(validator: Draft202012Validator) -> None:
    assert errors(validator, TABLE)
    assert errors(validator, TABLE + "[table.t.rule]\n")


def test_every_section_is_in_the_schema_and_every_reference_is_defined() -> None:
    schema = json_schema()
    assert tuple(schema["properties"]) == KEYS
    text = json.dumps(schema)
    for model in schema["$defs"]:
        assert f'"#/$defs/{model}"' in text
    assert "null" not in _types(schema)
    assert schema == json_schema()


def _types(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["type"]] if isinstance(value.get("type"), str) else []
        return own + [kind for inner in value.values() for kind in _types(inner)]
    return [kind for inner in value for kind in _types(inner)] if isinstance(value, list) else []
