"""Durations: what is written is what is meant, and what is not clear is refused."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from texts import ANY_TEXT, CHARACTERS
from wane._contract.duration import LONGEST, PATTERN, format_duration, parse_duration
from wane._contract.refused import Refused

EXAMPLES = 'for example "90d", "168h" or "1d 12h"'
MICROSECOND = timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("90d", timedelta(days=90)),
        ("168h", timedelta(days=7)),
        ("7 days", timedelta(days=7)),
        ("1d 12h", timedelta(hours=36)),
        ("1d12h", timedelta(hours=36)),
        ("12h 1d", timedelta(hours=36)),
        ("2w", timedelta(days=14)),
        ("5m", timedelta(minutes=5)),
        ("5 min", timedelta(minutes=5)),
        ("5ms", timedelta(milliseconds=5)),
        ("5us", timedelta(microseconds=5)),
        (" 1 hour ", timedelta(hours=1)),
        ("007d", timedelta(days=7)),
        ("365000d", LONGEST),
        ("0" * 5000 + "1d", timedelta(days=1)),
    ],
)
def test_a_duration_is_read(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration
    assert re.search(PATTERN, text)


@pytest.mark.parametrize(
    ("value", "message", "fix"),
    [
        ("", "empty", f"no threshold, no deletion; write {EXAMPLES}"),
        ("  ", "empty", f"no threshold, no deletion; write {EXAMPLES}"),
        ("0d", "'0d' is zero", f"write a duration longer than zero, {EXAMPLES}"),
        ("0d 0h", "'0d 0h' is zero", f"write a duration longer than zero, {EXAMPLES}"),
        ("-1d", "'-1d' is negative", f"write a duration longer than zero, {EXAMPLES}"),
        ("7", "'7' has no unit", f"write a number and a unit, {EXAMPLES}"),
        ("1.5d", "'1.5d' has a fraction", 'write whole numbers, for example "1d 12h" for one and a half days'),
        ("7x", "'7x' has the unknown unit 'x'", "use w, d, h, m, s, ms or us"),
        ("1 month", "'1 month' counts in 'month', which has no exact length", "write days, for example 30d or 365d"),
        ("1y", "'1y' counts in 'y', which has no exact length", "write days, for example 30d or 365d"),
        ("7D", "'7D' is not a duration", f"write a number and a unit, {EXAMPLES}"),
        ("7d 3", "'7d 3' is not a duration", f"write a number and a unit, {EXAMPLES}"),
        ("١d", "'١d' is not a duration", f"write a number and a unit, {EXAMPLES}"),
        ("P7D", "'P7D' is not a duration", f"write a number and a unit, {EXAMPLES}"),
        ("forever", "'forever' is not a duration", f"write a number and a unit, {EXAMPLES}"),
        ("1d 2 days", "'1d 2 days' names the unit 'd' twice", "add the two up"),
        ("365001d", "'365001d' is longer than 365000 days", 'write "forever" if that is meant'),
        ("99999999999999999d", "'99999999999999999d' is longer than 365000 days", 'write "forever" if that is meant'),
        (7, "7 has no unit", f"write a number and a unit in quotes, {EXAMPLES}"),
        (0.5, "0.5 has no unit", f"write a number and a unit in quotes, {EXAMPLES}"),
        (True, "true is not a duration", f"write a number and a unit in quotes, {EXAMPLES}"),
        (None, "None is not a duration", f"write a number and a unit in quotes, {EXAMPLES}"),
        ([], "a list is not a duration", f"write a number and a unit in quotes, {EXAMPLES}"),
    ],
)
def test_what_is_not_clear_is_refused(value: object, message: str, fix: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_duration(value)
    assert (refused.value.message, refused.value.fix) == (message, fix)


def test_a_number_of_thousands_of_digits_is_too_long() -> None:
    with pytest.raises(Refused, match="is longer than 365000 days"):
        parse_duration("9" * 5000 + "us")


@given(st.integers(min_value=1, max_value=LONGEST // MICROSECOND))
@example(LONGEST // MICROSECOND)
@example(1)
def test_every_duration_is_read_back_as_it_was_written(micros: int) -> None:
    duration = micros * MICROSECOND
    text = format_duration(duration)
    assert parse_duration(text) == duration
    assert re.search(PATTERN, text)


@given(st.one_of(ANY_TEXT, st.text("0123456789 .-dhmsuw"), st.from_regex(PATTERN, alphabet=CHARACTERS)))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        duration = parse_duration(text)
    except ValueError:
        return
    assert timedelta() < duration <= LONGEST
    assert re.search(PATTERN, text), "an editor would mark a good duration as wrong"


@pytest.mark.parametrize("duration", [timedelta(), -MICROSECOND])
def test_only_durations_longer_than_zero_are_written(duration: timedelta) -> None:
    with pytest.raises(ValueError, match="longer than zero"):
        format_duration(duration)
