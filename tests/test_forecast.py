"""Rates and forecasts of series whose answer is known."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import loaded
from wane._contract.model import Contract
from wane._forecast import (
    Limit,
    Point,
    Trend,
    Verdict,
    arriving,
    days_to,
    expected,
    find_limit,
    longest_stay,
    shifted,
    trend,
)

HOURS = range(24 * 30)


def found(points: list[Point], least_days: float = 1.0) -> Trend:
    made = trend(points, least_days)
    assert made is not None
    return made


def test_a_straight_line_has_its_slope_and_no_uncertainty() -> None:
    made = found([(day, 500 + 100 * day) for day in range(10)])
    assert (made.rate, made.low, made.high, made.spread) == pytest.approx((100, 100, 100, 0))
    assert made.verdict is Verdict.GROWING
    assert days_to(1_000_000, 1_400, made).days == pytest.approx((1_000_000 - 1_400) / 100)
    ahead = expected(1_400, made, 30)
    assert (ahead.rows, ahead.low, ahead.high) == (4_400, 4_400, 4_400)


@pytest.mark.parametrize("value", [0, 1, 4_999_999])
def test_a_constant_table_never_reaches_anything_more(value: int) -> None:
    made = found([(day, value) for day in range(5)])
    assert (made.rate, made.low, made.high, made.verdict) == (0, 0, 0, Verdict.STEADY)
    assert days_to(5_000_000, value, made).word == "never"


def test_a_shrinking_table_never_reaches_anything_and_never_holds_less_than_nothing() -> None:
    made = found([(day, 10_000 - 1_000 * day) for day in range(10)])
    assert made.verdict is Verdict.SHRINKING
    assert days_to(1_000_000, 1_000, made).word == "never"
    assert expected(1_000, made, 30).rows == 0


def test_what_is_reached_is_reached_whatever_the_rate() -> None:
    shrinking = found([(day, 9_000 - day) for day in range(5)])
    for known in (None, shrinking):
        assert days_to(5_000, 5_000, known).days == 0


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(0, 5)],
        [(0, 5), (10, 5)],
        [(0, 5), (5, 6), (10, 7)],
        [(0.0, 5)] * 20,
        [(hour / 24, hour) for hour in range(23)],
    ],
    ids=["nothing", "one", "two", "three", "one timestamp", "less than a day"],
)
def test_too_little_states_nothing(points: list[Point]) -> None:
    assert trend(points, 1.0) is None
    assert days_to(1_000, 5, trend(points, 1.0)).word == "n/a"


def test_a_quarter_of_nonsense_does_not_move_the_rate() -> None:
    random.seed(3)
    points = [(hour / 24, 1_000 * hour / 24 + (900_000 if random.random() < 0.25 else 0)) for hour in HOURS]
    made = found(points)
    assert made.rate == pytest.approx(1_000, rel=0.05)
    assert made.low <= 1_000 <= made.high


def test_one_jump_is_irregular_and_has_no_forecast() -> None:
    made = found([(day, 100.0 if day < 15 else 900_000.0) for day in range(30)])
    assert made.low < 0 < made.high
    assert days_to(1_000_000, 900_000, made).word == "n/a"
    assert days_to(10**12, 900_000, made).word == "never"


def test_numbers_out_of_a_hat_are_irregular() -> None:
    random.seed(1)
    made = found([(hour / 24, random.choice([10, 30_000, 500_000, 900_000])) for hour in HOURS])
    assert made.verdict is Verdict.IRREGULAR
    assert days_to(1_000_000, 900_000, made).word == "n/a"


def test_a_queue_that_fills_and_empties_is_far_from_a_million_for_ever() -> None:
    made = found([(hour / 24, 1_000 * (hour % 24) / 24) for hour in HOURS])
    assert days_to(1_000_000, 500, made).word == "never"


def _line(points: random.Random) -> list[Point]:
    return [(hour / 24, 1_000 * hour / 24 + points.gauss(0, 3_000)) for hour in HOURS]


def _few(points: random.Random) -> list[Point]:
    return [(float(day), 1_000 * day + points.gauss(0, 500)) for day in range(8)]


def _daily(points: random.Random) -> list[Point]:
    return [(h / 24, 1_000 * h / 24 + 5_000 * math.sin(h / 24 * 2 * math.pi) + points.gauss(0, 100)) for h in HOURS]


def _walk(points: random.Random) -> list[Point]:
    rows, walked = 0.0, []
    for hour in HOURS:
        rows += 1_000 / 24 + points.gauss(0, 300)
        walked.append((hour / 24, rows))
    return walked


@pytest.mark.parametrize("series", [_line, _few, _daily, _walk], ids=["noise", "few", "daily cycle", "random walk"])
def test_the_interval_holds_the_truth_as_often_as_it_states(series: Callable[[random.Random], list[Point]]) -> None:
    made = [found(series(random.Random(seed))) for seed in range(100)]
    assert sum(one.low <= 1_000 <= one.high for one in made) >= 80


@given(st.lists(st.tuples(st.floats(0, 400, allow_subnormal=False), st.integers(0, 2**53)), min_size=0, max_size=80))
def test_any_series_has_a_trend_in_order_or_none(points: list[tuple[float, int]]) -> None:
    made = trend([(day, float(rows)) for day, rows in points], 1.0)
    if made is None:
        return
    assert made.low <= made.rate <= made.high
    reported = days_to(2**53, 5, made)
    assert (reported.days is None) == (reported.word != "")
    if reported.days is not None and reported.earliest is not None and reported.latest is not None:
        assert reported.earliest <= reported.days <= reported.latest


# What arrives


def test_a_rate_comes_from_parts_that_were_alike() -> None:
    assert arriving([(7, 70)] * 4) == Trend(10.0, 10.0, 10.0)
    assert arriving([(0.25, 10)] * 4) == Trend(40.0, 40.0, 40.0), "parts may be shorter than a day"
    assert arriving([(7, 70), (7, 0), (7, 70), (7, 70)]) is None
    assert arriving([(7, 900), (7, 100), (7, 100), (7, 100)]) is None
    assert arriving([(7, 0)] * 4) == Trend(0.0, 0.0, 0.0)
    assert arriving([(0, 5)] * 4) is None


def test_what_leaves_is_taken_from_what_arrives() -> None:
    steady = Trend(10.0, 10.0, 10.0)
    assert days_to(1_000, 500, steady).days == 50
    assert days_to(1_000, 500, shifted(steady, -5)).days == 100
    assert days_to(1_000, 500, shifted(steady, -10)).word == "never"
    assert days_to(1_000, None, steady).word == "n/a"


# What bounds a table


def contract(rules: str, table: str = "") -> Contract:
    return loaded(f"""
[scheduler]
s = {{ every = "5m" }}
[table.t]
scheduler = "s"
why = "A test."
time = {{ column = "at", unit = "ms" }}
{table}
{rules}
[excused]
one = {{ singleton = "one row" }}
few = {{ constant = "one row per route", rows = 5 }}
beats = {{ in_place = "mutated" }}
log = {{ append_only = "never deleted" }}
""")


OLD = '[table.t.rule.old]\nkeep = "90d"'
STATES = 'state = "state"\nlive = ["new"]'
FAILED, DONE = (f'[table.t.rule.{n}]\nwhen = ["{n}"]\nkeep = "{k}"' for n, k in (("failed", "30d"), ("done", "7d")))
CLEANED = '[table.t.rule.cleaned]\nwhen = ["done"]\nkeep = "7d"\nthen = { mark = "cleaned" }'
GONE = '[table.t.rule.gone]\nwhen = ["cleaned"]\nkeep = "60d"'
FOREVER = '[table.t.rule.kept]\nwhen = ["failed"]\nkeep = "forever"'
EXPIRED = '[table.t.rule.ended]\nexpires = { column = "ends", unit = "ms" }'


@pytest.mark.parametrize(
    ("rules", "table", "days"),
    [
        (OLD, "", 90),
        (f"{OLD}\n{EXPIRED}", "", 90),
        (f"{FAILED}\n{DONE}", STATES, 30),
        (f"{FAILED}\n{CLEANED}\n{GONE}", STATES, 60),
        (f"{FOREVER}\n{DONE}", STATES, None),
        (DONE, f'{STATES}\nexcused = {{ sent = {{ inline = "deleted" }} }}', None),
        (CLEANED, STATES + '\nexcused = { cleaned = { append_only = "stays" } }', None),
        (EXPIRED, "", None),
        ("[table.t.rule.cap]\nmost = 500", "", None),
    ],
    ids=["age", "age and expiry", "states", "marked", "forever", "excused", "only marked", "expiry", "cap"],
)
def test_how_long_a_row_stays_at_most(rules: str, table: str, days: int | None) -> None:
    [found] = contract(rules, table).tables
    stay = longest_stay(found)
    assert (None if stay is None else stay.days) == days


def test_a_window_bounds_a_table_to_what_arrives_within_it() -> None:
    limit = find_limit(contract(OLD), "t", 34_263, Trend(381, 370, 390))
    assert limit == Limit(34_290, 35_100)
    net = Trend(1.44, 0.1, 2.0)
    assert days_to(1_000_000, 34_263, net).days == pytest.approx(670_650, rel=0.01), "what a line says"
    assert days_to(1_000_000, 34_263, net, limit).word == "never"
    ahead = expected(34_263, Trend(381, 370, 390), 90, limit)
    assert (ahead.rows, ahead.low, ahead.high) == (34_290, 34_290, 35_100)


def test_a_limit_near_a_threshold_decides_nothing() -> None:
    growing = Trend(100, 90, 110)
    limit = find_limit(contract(OLD), "t", 1_000, growing)
    assert limit == Limit(9_000, 9_900)
    assert days_to(8_000, 1_000, growing, limit).days == 70
    assert (days_to(9_500, 1_000, growing, limit).days, days_to(9_500, 1_000, growing, limit).word) == (None, "n/a")
    assert days_to(10_000, 1_000, growing, limit).word == "never"


def test_a_table_that_holds_far_more_than_its_window_allows_is_not_bounded_by_it() -> None:
    growing = Trend(100, 90, 110)
    assert find_limit(contract(OLD), "t", 14_850, growing) is not None
    assert find_limit(contract(OLD), "t", 14_851, growing) is None


@pytest.mark.parametrize(
    ("name", "rows", "limit"),
    [("one", 1, 1), ("one", 2, None), ("few", 3, 5), ("beats", 7, 7), ("log", 7, None), ("other", 7, None)],
)
def test_excuses_bound_a_table_as_far_as_they_state(name: str, rows: int, limit: int | None) -> None:
    found = find_limit(contract(OLD), name, rows, Trend(100, 90, 110))
    assert (found and found.high) == limit


def test_a_cap_bounds_a_table_whatever_arrives() -> None:
    capped = contract(f"{OLD}\n[table.t.rule.cap]\nmost = 500")
    assert find_limit(capped, "t", 400, None) == Limit(500, 500)
    assert find_limit(capped, "t", 400, Trend(100, 90, 110)) == Limit(500, 500)
    assert days_to(1_000_000, 400, None, Limit(500, 500)).word == "never"
    scoped = contract('[table.t.rule.cap]\nmost = 500\nper = ["tenant"]')
    assert find_limit(scoped, "t", 400, Trend(100, 90, 110)) is None
