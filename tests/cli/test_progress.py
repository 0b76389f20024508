"""Progress: done, total, rate and time left, from events alone; a line every ten seconds where there is no terminal."""

from __future__ import annotations

import logging

import pytest

from cli.conftest import Wane
from servers import Database
from wane._cli.progress import PERIOD_SECONDS, PeriodicReporter, ProgressMeter
from wane.events import ArchiveProgress, ArchiveStep, BatchTaken, Event, RowConsumed, WorkProgressed


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def batch(rows: int, rule: str = "done") -> BatchTaken:
    return BatchTaken("tick", "jobs", rule, "jobs.done", "prune", {"jobs": rows, "job_attempts": 7}, 0.1, 50)


def shown(*events: tuple[float, Event]) -> list[str]:
    """Return what a terminal shows after each event, so many seconds after the first."""
    clock = Clock()
    meter = ProgressMeter(clock)
    texts = []
    for seconds, event in events:
        clock.now = 100.0 + seconds
        work = meter.on_event(event)
        texts.append("" if work is None else work.text(clock.now))
    return texts


def test_a_sweep_has_a_total_a_rate_and_a_time_left() -> None:
    assert shown(
        (0, WorkProgressed("sweep", "jobs", "done", "row", 0, 4_800)),
        (1, batch(400)),
        (2, RowConsumed("jobs", "consume")),
        (3, batch(800)),
        (12, batch(3_600)),
        (12, WorkProgressed("sweep", "jobs", "failed", "row", 0, 300)),
        (13, batch(300, "failed")),
    ) == [
        "jobs.done: sweep, 0 of 4,800 rows (0%)",
        "jobs.done: sweep, 400 of 4,800 rows (8%), 400 rows a second, 11 s left",
        "",
        "jobs.done: sweep, 1,200 of 4,800 rows (25%), 400 rows a second, 9 s left",
        "jobs.done: sweep, 4,800 of 4,800 rows (100%), 400 rows a second",
        "jobs.failed: sweep, 0 of 300 rows (0%)",
        "jobs.failed: sweep, 300 of 300 rows (100%), 300 rows a second",
    ]


def test_what_is_not_known_is_not_shown() -> None:
    assert shown(
        (0, WorkProgressed("sweep", "jobs", "done", "row", 0, None)),
        (2, batch(10)),
        (0, WorkProgressed("split", "events", None, "row", 0, 1_000, exact=False)),
        (10, WorkProgressed("split", "events", None, "row", 500, 1_000, exact=False)),
        (10, batch(5, "other")),
    ) == [
        "jobs.done: sweep, 0 rows",
        "jobs.done: sweep, 10 rows, 5 rows a second",
        "events: split, 0 of ~1,000 rows (0%)",
        "events: split, 500 of ~1,000 rows (50%), 50 rows a second, 10 s left",
        "jobs.other: prune, 5 rows",
    ]


def test_the_archive_counts_pieces_then_rows() -> None:
    step = ArchiveStep("jobs", "done", 7, "committed", {"jobs": 600, "job_attempts": 9}, {}, 1.0)
    assert shown(
        (0, ArchiveProgress("jobs", "done", 7, "planned", 1, 4)),
        (30, ArchiveProgress("jobs", "done", 7, "planned", 2, 4)),
        (40, ArchiveProgress("jobs", "done", 7, "written", 1, 4)),
        (50, step),
        (52, batch(300)),
    ) == [
        "jobs.done: copying, 1 of 4 pieces (25%)",
        "jobs.done: copying, 2 of 4 pieces (50%), 2.0 pieces a minute, 60 s left",
        "jobs.done: reading back, 1 of 4 pieces (25%)",
        "jobs.done: evicting, 0 of 600 rows (0%)",
        "jobs.done: evicting, 300 of 600 rows (50%), 150 rows a second, 2 s left",
    ]


@pytest.mark.parametrize("as_log", [False, True])
def test_without_a_terminal_there_is_a_line_now_and_then(
    as_log: bool, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="wane")
    clock = Clock()
    meter, reporter = ProgressMeter(clock), PeriodicReporter(as_log=as_log)
    events: list[Event] = [WorkProgressed("sweep", "jobs", "done", "row", 0, 4_800), *[batch(40)] * 100]
    for event in events:
        work = meter.on_event(event)
        assert work is not None
        reporter.report(work, clock.now)
        clock.now += PERIOD_SECONDS / 40
    lines = [one.getMessage() for one in caplog.records] if as_log else capfd.readouterr().err.splitlines()
    if as_log:
        assert lines == [
            f"event=wane.progress work=sweep table=jobs rule=done {done} of=4800 of_exactness=exact unit=row {rest}"
            for done, rest in (
                ("done=1600", "per_second=160.0 seconds_left=20.0"),
                ("done=3200", "per_second=160.0 seconds_left=10.0"),
            )
        ]
    else:
        assert lines == [
            "jobs.done: sweep, 1,600 of 4,800 rows (33%), 160 rows a second, 20 s left",
            "jobs.done: sweep, 3,200 of 4,800 rows (67%), 160 rows a second, 10 s left",
        ]


def test_a_sweep_and_an_applied_plan_know_their_totals(
    wane: Wane, filled: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    wane("migrate")
    wane("enable")
    monkeypatch.setattr("wane._cli.progress.PERIOD_SECONDS", 0.0)
    wane("plan", "--out", "plan.json")
    assert "inbox.failed: sweep, 4 of 4 rows (100%)" in wane("apply", "plan.json").err
    filled.execute("INSERT INTO inbox VALUES (9, 'failed', 1700000000000)")
    done = wane("sweep", "--log-level", "info", "--log-format", "json")
    assert (
        '"event": "wane.progress", "work": "sweep", "table": "inbox", "rule": "failed", "done": 1, "of": 1' in done.err
    )
