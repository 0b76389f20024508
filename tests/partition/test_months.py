"""Months and where they begin."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from wane._contract.model import Time, Unit
from wane._partition.months import Calendar, Month


def test_months_follow_each_other_over_the_year() -> None:
    assert Month(2026, 12).later() == Month(2027, 1)
    assert Month(2027, 1).later(-1) == Month(2026, 12)
    assert Month(2026, 3).later(25) == Month(2028, 4)
    assert (Month(2026, 3).name, Month(2026, 3).archived_name) == ("2026_03", "202603")
    assert Month.named("2026_03") == Month(2026, 3)


@pytest.mark.parametrize(
    ("time", "literal", "begins"),
    [
        (Time("at"), "2026-12-01 00:00:00+00", datetime(2026, 12, 1, tzinfo=UTC)),
        (Time("at", Unit.SECONDS), "1796083200", datetime(2026, 12, 1, tzinfo=UTC)),
        (Time("at", Unit.MILLISECONDS), "1796083200000", datetime(2026, 12, 1, tzinfo=UTC)),
        (Time("at", Unit.MICROSECONDS), "1796083200000000", datetime(2026, 12, 1, tzinfo=UTC)),
        (Time("at", zone="UTC"), "2026-12-01 00:00:00", datetime(2026, 12, 1, tzinfo=UTC)),
        (Time("at", zone="Asia/Tokyo"), "2026-12-01 00:00:00", datetime(2026, 11, 30, 15, tzinfo=UTC)),
    ],
)
def test_a_month_begins_where_its_column_states(time: Time, literal: str, begins: datetime) -> None:
    calendar = Calendar(time)
    assert calendar.literal(Month(2026, 12)) == literal
    assert calendar.begins(Month(2026, 12)) == begins
    assert calendar.timestamp(literal) == begins
    assert calendar.month_of(begins) == Month(2026, 12)


@pytest.mark.parametrize("literal", ["MINVALUE", "MAXVALUE", "infinity", "-infinity", "0044-03-15 00:00:00+00 BC"])
def test_what_is_no_timestamp_is_none(literal: str) -> None:
    assert Calendar(Time("at")).timestamp(literal) is None
