"""A slip of the keyboard must not become a deletion: wrong arguments are errors that say what was meant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from prune.keeping import Keeping, ago, jobs, keeping
from servers import Database, SqliteDatabase
from wane._arguments import MOST_ROWS, parse_iso, require_limit, require_states, require_time
from wane.errors import UnknownRule, UnknownTable, WrongArgument, WrongArgumentType

NOW = datetime.now(UTC)


@pytest.mark.parametrize("states", ["done", b"done", None, 5, True, {"done": 1}, iter(["done"]), object()])
def test_states_that_are_no_list_are_a_type_error(states: Any) -> None:
    with pytest.raises(WrongArgumentType, match="states must be a list") as caught:
        require_states(states)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("states", [[None], [1.5], ["done", b"done"], [["done"]], [("done",)], [NOW]])
def test_states_that_are_no_states_are_a_type_error(states: Any) -> None:
    with pytest.raises(WrongArgumentType, match="is not a state"):
        require_states(states)


@pytest.mark.parametrize("states", [[], (), set(), frozenset()])
def test_no_states_at_all_are_a_value_error(states: Any) -> None:
    with pytest.raises(WrongArgument, match="states is empty") as caught:
        require_states(states)
    assert isinstance(caught.value, ValueError)


def test_states_stated_twice_count_once() -> None:
    assert require_states(["a", "b", "a"]) == ("a", "b")
    assert require_states({1}) == (1,)


@pytest.mark.parametrize("value", [True, False, "2024-01-01", None, timedelta(days=7), b"1", [1], 1j])
def test_a_time_that_is_none_is_a_type_error(value: Any) -> None:
    with pytest.raises(WrongArgumentType, match="older_than must be an aware datetime or unix seconds"):
        require_time("older_than", value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (datetime(2024, 1, 1), "has no zone"),
        (1_700_000_000_000, "milliseconds"),
        (1_700_000_000_000_000, "milliseconds"),
        (-1, "not a plausible time"),
        (float("nan"), "is not a timestamp"),
        (float("inf"), "is not a timestamp"),
        (10**400, "is not a timestamp"),
    ],
)
def test_a_time_that_cannot_be_meant_is_a_value_error(value: Any, message: str) -> None:
    with pytest.raises(WrongArgument, match=message):
        require_time("older_than", value)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31 12:00:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
    ],
)
def test_an_iso_time_has_a_zone_or_is_a_day_in_utc(text: str, parsed: datetime) -> None:
    for zoned in (False, True):
        assert parse_iso("since", text, zoned=zoned) == parsed
        assert parse_iso("since", text, zoned=zoned).tzinfo is UTC


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00", "2026-01-31 12:00"])
def test_an_iso_time_without_a_zone_is_in_utc_unless_it_must_have_one(text: str) -> None:
    assert parse_iso("since", text) == datetime(2026, 1, 31, 12, tzinfo=UTC)
    with pytest.raises(WrongArgument, match="since has no zone"):
        parse_iso("since", text, zoned=True)


@pytest.mark.parametrize("text", ["yesterday", "2026-02-30", "0001-01-01T00:00:00+10:00", ""])
def test_a_text_that_is_no_iso_time_is_a_value_error(text: str) -> None:
    with pytest.raises(WrongArgument, match="since is not a timestamp"):
        parse_iso("since", text)


@pytest.mark.parametrize("limit", [True, False, "10", 10.0, None, [10]])
def test_a_limit_that_is_no_number_is_a_type_error(limit: Any) -> None:
    with pytest.raises(WrongArgumentType, match="limit must be a whole number"):
        require_limit(limit)


@pytest.mark.parametrize("limit", [0, -1, -(10**9), MOST_ROWS + 1, 10**18])
def test_a_limit_that_cannot_be_meant_is_a_value_error(limit: int) -> None:
    with pytest.raises(WrongArgument, match="limit must be from 1 to"):
        require_limit(limit)


@pytest.fixture
def opened(sqlite_database: SqliteDatabase) -> Any:
    jobs(sqlite_database, (1, "done", ago(30)), (2, "queued", ago(30)))
    with keeping(sqlite_database) as found:
        yield found
        assert found.ids() == [1, 2]
        assert found.trail() == []


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"rule": "old"}, TypeError, "limit"),
        ({"rule": "old", "limit": 0}, WrongArgument, "limit"),
        ({"rule": "old", "limit": True}, WrongArgumentType, "limit"),
        ({"limit": 5}, WrongArgument, "pass either `rule`, or `older_than`"),
        ({"rule": "old", "older_than": NOW, "limit": 5}, WrongArgument, "pass either `rule`, or `older_than`"),
        ({"states": ["done"], "limit": 5}, WrongArgument, "pass either `rule`, or `older_than`"),
        ({"rule": "old", "states": ["done"], "limit": 5}, WrongArgument, "a rule has its own states"),
        ({"states": "done", "older_than": NOW, "limit": 5}, WrongArgumentType, r"write \['done'\]"),
        ({"states": [], "older_than": NOW, "limit": 5}, WrongArgument, "states is empty"),
        ({"states": ["done"], "older_than": True, "limit": 5}, WrongArgumentType, "older_than"),
        ({"states": ["done"], "older_than": datetime(2024, 1, 1), "limit": 5}, WrongArgument, "no zone"),
        ({"states": ["done"], "older_than": 1_700_000_000_000, "limit": 5}, WrongArgument, "not milliseconds"),
        ({"rule": "oldd", "limit": 5}, UnknownRule, "did you mean"),
        ({"rule": "job.old", "limit": 5}, UnknownRule, "job has no rule"),
        ({"rule": "", "limit": 5}, UnknownRule, "rules: old"),
        ({"rule": "old", "limit": 5, "scope": {"tenant": "a"}}, WrongArgument, "has no `per`"),
    ],
)
def test_a_wrong_call_changes_nothing(opened: Keeping, arguments: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        opened.keeper.prune("job", **arguments)


@pytest.mark.parametrize("name", ["jobs", "Job", "main.job", "", "job.old"])
def test_an_unknown_table_is_reported(opened: Keeping, name: str) -> None:
    with pytest.raises(UnknownTable, match="the contract has no table"):
        opened.keeper.prune(name, rule="old", limit=5)


def test_a_table_that_is_nearly_right_is_suggested(opened: Keeping) -> None:
    with pytest.raises(UnknownTable, match="did you mean 'job'"):
        opened.keeper.prune("jobb", rule="old", limit=5)


def test_a_sweep_and_a_gate_know_their_tables_too(database: Database) -> None:
    jobs(database)
    with keeping(database) as opened:
        for wrong in (lambda: opened.keeper.sweep("jobb"), lambda: opened.keeper.enable("jobb")):
            with pytest.raises(UnknownTable, match="did you mean"):
                wrong()
        with pytest.raises(UnknownRule, match="did you mean"):
            opened.keeper.sweep("job.oldd")
        with pytest.raises(UnknownTable):
            opened.keeper.sweep(approve=["nowhere.old"])
