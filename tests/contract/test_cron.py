"""Cron expressions: every field, days of both kinds, and clocks that change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wane._contract.cron import Cron, parse_cron
from wane._contract.refused import Refused

BERLIN = "Europe/Berlin"


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


def times(text: str, after: datetime, count: int, zone: str = "UTC") -> list[datetime]:
    cron, found = Cron(parse_cron(text), zone), [after]
    for _ in range(count):
        found.append(cron.next_after(found[-1]))
    return found[1:]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15 3 * * *", [utc(2026, 1, 1, 3, 15), utc(2026, 1, 2, 3, 15)]),
        ("*/20 * * * *", [utc(2026, 1, 1, 0, 20), utc(2026, 1, 1, 0, 40), utc(2026, 1, 1, 1)]),
        (
            "0-10/5,59 12 * * *",
            [utc(2026, 1, 1, 12), utc(2026, 1, 1, 12, 5), utc(2026, 1, 1, 12, 10), utc(2026, 1, 1, 12, 59)],
        ),
        ("0 0 * * MON", [utc(2026, 1, 5), utc(2026, 1, 12)]),
        ("0 0 * * 7", [utc(2026, 1, 4), utc(2026, 1, 11)]),
        ("0 0 * * sat-sun", [utc(2026, 1, 3), utc(2026, 1, 4), utc(2026, 1, 10)]),
        ("0 0 31 * *", [utc(2026, 1, 31), utc(2026, 3, 31), utc(2026, 5, 31)]),
        ("0 0 29 2 *", [utc(2028, 2, 29), utc(2032, 2, 29)]),
        ("0 0 13 * fri", [utc(2026, 1, 2), utc(2026, 1, 9), utc(2026, 1, 13), utc(2026, 1, 16)]),  # Either kind of day.
        ("0 0 */10 * fri", [utc(2026, 5, 1), utc(2026, 7, 31)]),  # `*/10` restricts nothing, as in every cron: both.
        ("30 6 1 mar,jun *", [utc(2026, 3, 1, 6, 30), utc(2026, 6, 1, 6, 30), utc(2027, 3, 1, 6, 30)]),
        ("@weekly", [utc(2026, 1, 4), utc(2026, 1, 11)]),
        ("@yearly", [utc(2027, 1, 1), utc(2028, 1, 1)]),
    ],
)
def test_times_follow_from_the_fields(text: str, expected: list[datetime]) -> None:
    assert times(text, utc(2026, 1, 1), len(expected)) == expected


def test_one_spelling_is_one_expression() -> None:
    assert parse_cron("  0   0  * * MON ") == "0 0 * * mon"
    assert parse_cron("@Daily") == parse_cron("@midnight") == "0 0 * * *"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * 32 * *",
            "* * * 13 *",
            "* * * * 8",
        ),
        *("-1 * * * *", "5-1 * * * *", "*/0 * * * *", "5/10 * * * *", "a * * * *", "1, * * * *", "* * * * mondays"),
        *("0 0 30 2 *", "0 0 31 4,6 *", "*/x * * * *", "1-2-3 * * * *", "@fortnightly", "٣ * * * *", "1.5 * * * *"),
    ],
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_cron(text)
    assert refused.value.fix


def test_a_skipped_time_runs_at_the_next_one_that_clocks_show() -> None:
    # At 02:00 on 29 March 2026 clocks in Berlin go to 03:00, which is 01:00 in UTC.
    assert times("30 2 * * *", utc(2026, 3, 28, 12), 2, BERLIN) == [utc(2026, 3, 29, 1), utc(2026, 3, 30, 0, 30)]
    # Several that are skipped, and the one at 03:00, are one.
    assert times("*/30 2,3 * * *", utc(2026, 3, 28, 12), 3, BERLIN) == [
        utc(2026, 3, 29, 1),
        utc(2026, 3, 29, 1, 30),
        utc(2026, 3, 30, 0),
    ]


def test_a_repeated_time_runs_once() -> None:
    # At 03:00 on 25 October 2026 clocks in Berlin go back to 02:00: 02:30 is 00:30 and 01:30 in UTC.
    assert times("30 2 * * *", utc(2026, 10, 24, 12), 2, BERLIN) == [utc(2026, 10, 25, 0, 30), utc(2026, 10, 26, 1, 30)]
    cron = Cron("30 2 * * *", BERLIN)
    for minute in (31, 59, 90, 91, 150):
        assert cron.last_until(utc(2026, 10, 25) + timedelta(minutes=minute)) == utc(2026, 10, 25, 0, 30)


def test_a_day_that_a_zone_left_out_runs_when_the_next_one_begins() -> None:
    found = times("0 12 * * *", datetime(2011, 12, 29, 13, tzinfo=ZoneInfo("Pacific/Apia")), 2, "Pacific/Apia")
    assert found == [utc(2011, 12, 30, 10), utc(2011, 12, 30, 22)]  # Midnight, and noon, of 31 December.


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        ("15 3 * * *", timedelta(days=1)),
        ("*/5 * * * *", timedelta(minutes=5)),
        ("0 8-18 * * *", timedelta(hours=14)),
        ("0 8-18 * * mon-fri", timedelta(days=2, hours=14)),
        ("0 0 1 * *", timedelta(days=31)),
        ("0 0 29 2 *", timedelta(days=1461)),
        ("7,11 * * * *", timedelta(minutes=56)),
    ],
)
def test_the_longest_interval_is_known(text: str, longest: timedelta) -> None:
    assert Cron(text).longest == longest


FIELDS = st.tuples(
    st.sampled_from(["*", "*/7", "0", "15,45", "3-59/11"]),
    st.sampled_from(["*", "2", "1-3", "*/5", "0,23"]),
    st.sampled_from(["*", "1", "28-31", "*/2"]),
    st.sampled_from(["*", "3", "10", "*/3"]),
    st.sampled_from(["*", "0", "1-5", "sun"]),
).map(" ".join)
ZONES = st.sampled_from(["UTC", BERLIN, "America/Havana", "Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns"])
INSTANTS = st.datetimes(datetime(2009, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))


@given(text=FIELDS, zone=ZONES, instant=INSTANTS)
def test_the_last_and_the_next_time_enclose_every_instant(text: str, zone: str, instant: datetime) -> None:
    cron = Cron(parse_cron(text), zone)
    last, following = cron.last_until(instant), cron.next_after(instant)
    assert last <= instant < following
    assert cron.next_after(last) == following
    assert cron.last_until(following) == following
    assert cron.last_until(following - timedelta(microseconds=1)) == last
