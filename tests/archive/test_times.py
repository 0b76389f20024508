"""Which archived rows lie before a cutoff, decided by column, is what each value means by itself."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wane._archive.rows.times import before
from wane._contract.model import Time, Unit
from wane._db.timestamps import PER_SECOND, micros, month_of, read_time

MONTH, CUTOFF = "2025-03", datetime(2025, 3, 20, 12, 0, 0, 500_000, UTC)
EDGES = [
    datetime(2025, 3, 1, tzinfo=UTC),
    datetime(2025, 4, 1, tzinfo=UTC),
    datetime(2025, 3, 30, 2, 30, tzinfo=UTC),
    CUTOFF,
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
]
instants = st.one_of(
    st.sampled_from(EDGES),
    st.sampled_from(EDGES[1:4]).flatmap(
        lambda edge: st.integers(-3, 3).map(lambda n: edge + timedelta(microseconds=n))
    ),
    st.datetimes(datetime(2025, 2, 20), datetime(2025, 4, 10)).map(lambda one: one.replace(tzinfo=UTC)),
)
texts = st.one_of(
    st.builds(
        lambda instant, separator, fraction, suffix: f"{instant:%Y-%m-%d{separator}%H:%M:%S}{fraction}{suffix}",
        instants,
        st.sampled_from("T "),
        st.one_of(st.just(""), st.text("0123456789", min_size=1, max_size=10).map(lambda digits: f".{digits}")),
        st.sampled_from(["", "Z", "+00:00", "+01:00", "z", "\n"]),
    ),
    st.sampled_from(
        ["", "2025-02-30T00:00:00Z", "2025-03-10T24:00:00Z", "2025-03-10T23:59:60Z", "2025-13-01 00:00:00"]
    ),
    st.text(max_size=5),
)
numbers = st.one_of(
    instants.flatmap(
        lambda one: st.sampled_from([micros(one) * per_second // 1_000_000 for per_second in PER_SECOND.values()])
    ),
    st.integers(-(2**63), 2**63 - 1),
)
KINDS: list[tuple[str, Any, Any]] = [
    ("numbers", pa.int64(), numbers),
    ("fractions", pa.float64(), st.floats()),
    ("decimals", pa.decimal128(20, 3), st.integers(-(10**15), 10**15).map(lambda n: Decimal(n).scaleb(-3))),
    ("timestamps", pa.timestamp("us", "UTC"), instants),
    ("wall clocks", pa.timestamp("us"), instants.map(lambda one: one.replace(tzinfo=None))),
    ("days", pa.date32(), st.one_of(instants.map(lambda one: one.date()), st.sampled_from([date.min, date.max]))),
    ("texts", pa.string(), texts),
    ("texts of days", pa.string(), instants.map(lambda one: f"{one:%Y-%m-%d}")),
]
TIMES = [Time("at", unit, zone) for unit in Unit for zone in (None, "Europe/Berlin")]


@pytest.mark.parametrize(("kind", "values"), [one[1:] for one in KINDS], ids=[one[0] for one in KINDS])
@given(data=st.data())
def test_a_column_is_decided_as_each_of_its_values(kind: Any, values: Any, data: st.DataObject) -> None:
    found = data.draw(st.lists(st.none() | values, max_size=6))
    column = pa.array(found, kind)
    for time in [*TIMES, Time("at", Unit.MILLISECONDS, None, (Unit.ISO,))]:
        expected = [
            instant is not None and instant < CUTOFF and month_of(instant, time) == MONTH
            for instant in (read_time(value, time) for value in column.to_pylist())
        ]
        assert before(column, time, CUTOFF, MONTH).to_pylist() == expected, (found, time)
