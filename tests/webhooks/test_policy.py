"""RetentionPolicy: no threshold, no deletion; everything else is checked when it is made."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from wane.webhooks import RetentionPolicy


def test_defaults_name_everything_but_a_window() -> None:
    policy = RetentionPolicy(event_older_than_s=1)
    assert [getattr(policy, field.name) for field in fields(policy)] == [60, ("handled", "ignored"), 1, 100, None, 100]


def test_its_fields_have_the_order_that_callers_know() -> None:
    assert [field.name for field in fields(RetentionPolicy)] == [
        "interval_s",
        "event_statuses",
        "event_older_than_s",
        "event_limit",
        "orphan_deliveries_older_than_s",
        "orphan_deliveries_limit",
    ]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({}, ValueError),
        ({"event_older_than_s": 0}, ValueError),
        ({"event_older_than_s": -1}, ValueError),
        ({"event_older_than_s": math.nan}, ValueError),
        ({"event_older_than_s": math.inf}, ValueError),
        ({"event_older_than_s": True}, TypeError),
        ({"event_older_than_s": "7d"}, TypeError),
        ({"orphan_deliveries_older_than_s": 0}, ValueError),
        ({"event_older_than_s": 1, "orphan_deliveries_older_than_s": False}, TypeError),
        ({"event_older_than_s": 1, "interval_s": 0}, ValueError),
        ({"event_older_than_s": 1, "interval_s": True}, TypeError),
        ({"event_older_than_s": 1, "interval_s": None}, TypeError),
        ({"event_older_than_s": 1, "event_limit": 0}, ValueError),
        ({"event_older_than_s": 1, "event_limit": 1001}, ValueError),
        ({"event_older_than_s": 1, "orphan_deliveries_limit": 1.0}, TypeError),
        ({"event_older_than_s": 1, "event_statuses": "handled"}, TypeError),
        ({"event_older_than_s": 1, "event_statuses": ()}, ValueError),
        ({"event_older_than_s": 1, "event_statuses": ["dead"]}, ValueError),
        ({"event_older_than_s": 1, "event_statuses": ["failed"]}, ValueError),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        RetentionPolicy(**options)


def test_it_cannot_be_changed_afterwards() -> None:
    policy = RetentionPolicy(event_older_than_s=1, event_statuses=["ignored"])  # type: ignore[arg-type]
    assert policy.event_statuses == ("ignored",)
    with pytest.raises(FrozenInstanceError):
        policy.event_limit = 1_000_000  # type: ignore[misc]
