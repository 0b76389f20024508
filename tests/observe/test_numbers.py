"""Every number that is shown, compared with plain SQL on one database: equal, or inside the bound that is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from archive import inline
from covering import loaded, numbers
from observe.reading import of
from observe.unhealthy import ago
from prune.keeping import insert
from servers import Database
from wane._db import open_store
from wane._db.counting import Count, Exactness, Figure
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._prune.pace import FAST
from wane._prune.plan import Plan
from wane._sqlfunctions import install
from wane.observe._metrics import Metrics

CONTRACT = """
[scheduler]
tick = { every = "5m" }

[table.job]
scheduler = "tick"
why   = "Done jobs stay for a week, and leave with their attempts unless one runs."
state = "state"
live  = ["queued"]
time  = { column = "at_ms", unit = "ms" }
[table.job.rule.done]
when = ["done"]
keep = "7d"
with = ["attempt.job_id"]

[table.attempt]
scheduler = "tick"
why   = "A running attempt keeps its job; others leave with it."
state = "state"
live  = ["running"]
time  = { column = "at_ms", unit = "ms" }
[table.attempt.rule.lost]
when = ["over", "lost"]
keep = "30d"

[table.notice]
scheduler = "tick"
why  = "A month, and no more than a thousand: many are due under both."
time = { column = "at_ms", unit = "ms" }
[table.notice.rule.old]
keep = "30d"
[table.notice.rule.many]
most = 1000

[table.session]
scheduler = "tick"
why  = "Gone when it expires."
age  = { column = "at_ms", unit = "ms" }
[table.session.rule.expired]
expires = { column = "ends_ms", unit = "ms" }

[excused]
setting = { singleton = "one row" }
"""

SCHEMA = """
CREATE TABLE job (id integer PRIMARY KEY, state text NOT NULL, at_ms bigint);
CREATE INDEX job_age ON job (state, at_ms, id);
CREATE TABLE attempt (id integer PRIMARY KEY, job_id integer, state text NOT NULL, at_ms bigint);
CREATE INDEX attempt_job ON attempt (job_id);
CREATE INDEX attempt_age ON attempt (state, at_ms, id);
CREATE TABLE notice (id integer PRIMARY KEY, at_ms bigint);
CREATE INDEX notice_age ON notice (at_ms, id);
CREATE TABLE session (id integer PRIMARY KEY, at_ms bigint, ends_ms bigint);
CREATE INDEX session_end ON session (ends_ms, id);
CREATE INDEX session_age ON session (at_ms, id);
CREATE TABLE setting (id integer PRIMARY KEY);
"""
TABLES = ("job", "attempt", "notice", "session", "setting")
DUE = {
    "job.done": "FROM job AS t WHERE state = 'done' AND at_ms < {week} AND NOT EXISTS"
    " (SELECT 1 FROM attempt AS a WHERE a.job_id = t.id AND a.state = 'running')",
    "attempt.lost": "FROM attempt AS t WHERE state <> 'running' AND at_ms < {month}",
    "notice.old": "FROM notice AS t WHERE at_ms < {month}",
    "notice.many": "FROM notice AS t WHERE id NOT IN (SELECT id FROM notice ORDER BY at_ms DESC, id DESC LIMIT 1000)",
    "session.expired": "FROM session AS t WHERE ends_ms <= {now}",
}


@dataclass
class Shop:
    """The database and its keeper."""

    database: Database
    keeper: Keeper

    def rows(self, table: str) -> int:
        return self.number(f"SELECT count(*) FROM {table}")

    def due(self, *rules: str, ahead_days: float = 0) -> int:
        """Return the rows that are due under any of some rules of a table, or will be in some days."""
        times = {"now": ago(-ahead_days), "week": ago(7 - ahead_days), "month": ago(30 - ahead_days)}
        each = " UNION ".join(f"SELECT id {DUE[rule].format(**times)}" for rule in rules)
        return self.number(f"SELECT count(*) FROM ({each}) AS due")

    def table_due(self, table: str) -> int:
        return self.due(*(rule for rule in DUE if rule.startswith(f"{table}.")))

    def number(self, text: str) -> int:
        [(number,)] = self.database.query(text)
        return int(number)

    def analyze(self) -> None:
        if self.database.store == "postgres":
            self.database.execute("ANALYZE")


@contextmanager
def shop(database: Database) -> Iterator[Shop]:
    """Yield a shop in which 12,000 jobs are due, 500 more if nothing ran for them, and 1,400 notices, most of them
    under two rules."""
    database.script(SCHEMA)
    day = 86_400_000
    for text in (
        f"job SELECT n + 1, 'done', {ago(8)} - n * {day // 50_000} FROM {numbers(12_500)}",
        f"job SELECT n + 20000, 'queued', {ago(9)} FROM {numbers(300)}",
        f"job SELECT n + 30000, 'done', {ago(1)} FROM {numbers(3_000)}",
        f"attempt SELECT n, n + 1, CASE WHEN n < 500 THEN 'running' ELSE 'over' END, {ago(8)} FROM {numbers(3_000)}",
        f"attempt SELECT n + 5000, NULL, 'lost', {ago(31)} FROM {numbers(20)}",
        f"notice SELECT n, {ago(40)} + n * {day // 100} FROM {numbers(2_400)}",
        f"session SELECT n, {ago(0)} - n * {day // 60}, {ago(-5)} - n * {day // 60} FROM {numbers(600)}",
    ):
        database.execute(f"INSERT INTO {text}")
    database.execute("INSERT INTO setting VALUES (1)")
    with open_store(resolve_url(database.url)) as store:
        keeper = Keeper(loaded(CONTRACT), store, actor="tester")
        keeper.migrate()
        keeper.enable()
        made = Shop(database, keeper)
        made.analyze()
        yield made


def holds(shown: Count | Figure | None, truth: float, *, off: float = 0.1) -> None:
    """Require that what is shown is the truth, or a bound of it; an estimate is off by a tenth at the most."""
    assert shown is not None
    value = shown.rows if isinstance(shown, Count) else shown.value
    allowed: dict[Exactness, Callable[[], bool]] = {
        Exactness.EXACT: lambda: value == pytest.approx(truth, abs=0 if isinstance(shown, Count) else 1e-4),
        Exactness.AT_LEAST: lambda: value <= truth,
        Exactness.AT_MOST: lambda: value >= truth,
        Exactness.ESTIMATE: lambda: abs(value - truth) <= max(off * truth, 2),
    }
    assert allowed[shown.exactness](), (shown, truth)


def stated(report: dict[str, Any], name: str) -> Count | Figure | None:
    """Return a number of a report in JSON, with its exactness."""
    value, exactness = report[name], report[f"{name}_exactness"]
    assert (value is None) == (exactness is None)
    made = Figure if isinstance(value, float) else Count
    return None if value is None else made(value, Exactness(exactness))


def compare_tables(world: Shop, reports: list[dict[str, Any]], name: str) -> None:
    """Compare what pressure and health say of every table with plain SQL."""
    for report in reports:
        table = report[name]
        rows, due = world.rows(table), world.table_due(table) if table != "setting" else None
        holds(stated(report, "rows"), rows)
        if due is None:
            assert stated(report, "due") is None
            continue
        holds(stated(report, "due"), due)
        share = stated(report, "share")
        assert share is None or isinstance(share, Figure)
        if share is not None:
            holds(share, due / rows, off=0.25)
    assert {report[name] for report in reports} == set(TABLES)


def test_a_plan_counts_what_plain_sql_counts(database: Database) -> None:
    with shop(database) as world:
        plan = world.keeper.plan(explain=True, seconds=60)
        assert {f"{one.table}.{one.rule}": one.due for one in plan.steps} == {
            rule: Count(world.due(rule)) for rule in DUE
        }
        assert (world.due("job.done"), world.due("notice.old"), world.due("notice.many")) == (12_000, 1_001, 1_400)
        assert plan.total == Count(sum(world.table_due(table) for table in TABLES if table != "setting"))
        for step in plan.steps:
            assert step.table_rows == Count(world.rows(step.table))
            assert step.share is not None and step.due is not None  # noqa: PT018
            holds(Figure(step.share, step.share_exactness or Exactness.ESTIMATE), step.due.rows / step.table_rows.rows)
        [job, *_] = plan.steps
        leaving = "SELECT count(*) FROM attempt WHERE job_id IN (SELECT id " + DUE["job.done"].format(week=ago(7)) + ")"
        assert job.followers == {"attempt": Count(world.number(leaving))}
        assert job.saved_by_followers == Count(500)

        _compare_hurried(world, world.keeper.plan(seconds=0.001))


def _compare_hurried(world: Shop, plan: Plan) -> None:
    """Compare bounds; an estimate has none here."""
    for step in plan.steps:
        due, rows = world.due(f"{step.table}.{step.rule}"), world.rows(step.table)
        share = Figure(step.share or 0.0, step.share_exactness or Exactness.AT_LEAST)
        for shown, truth in ((step.due, due), (step.table_rows, rows), (share, due / rows)):
            if shown is not None and shown.exactness is not Exactness.ESTIMATE:
                holds(shown, truth)
    if plan.total.exactness is not Exactness.ESTIMATE:
        holds(plan.total, sum(world.table_due(table) for table in TABLES if table != "setting"))


def test_pressure_health_growth_metrics_and_status_hold(database: Database) -> None:
    with shop(database) as world:
        if database.store == "postgres":
            install(world.keeper)
        compare_reports(world)
        world.keeper.take_snapshots()
        compare_growth(world)
        world.keeper.sweep("job", approve=["job.done"], pace=FAST)
        insert(database, "job", "id, state, at_ms", *((n, "queued", ago(1)) for n in range(40_000, 40_100)))
        assert world.rows("job") == 3_900
        world.analyze()
        compare_reports(world)
        [job] = [one.rows for one in world.keeper.pressure() if one.table == "job"]
        assert job == Count(3_900, Exactness.ESTIMATE)
        compare_status(world)


def compare_reports(world: Shop) -> None:
    compare_tables(world, [one.as_dict() for one in world.keeper.pressure()], "tbl")
    compare_tables(world, world.keeper.health().as_dict()["tables"], "table")
    compare_metrics(world)
    if world.database.store == "postgres":
        names = ("tbl", "rows", "due", "share", "rows_exactness", "due_exactness", "share_exactness")
        found = world.database.query(f"SELECT {', '.join(names)} FROM wane.v_queue_retention_pressure")
        compare_tables(world, [dict(zip(names, row, strict=True)) for row in found], "tbl")


def scraped(world: Shop) -> bytes:
    with closing(Metrics(world.keeper.contract)) as metrics:
        metrics.watch(world.keeper.store.clone, budget_seconds=30.0, patience_seconds=60.0)
        return metrics.text()


def compare_metrics(world: Shop) -> None:
    text = scraped(world)
    exact = of(text, "wane_backlog_rows_exact")
    for (rule, _, table), rows in of(text, "wane_backlog_rows").items():
        known = Exactness.EXACT if exact[rule, "tick", table] else Exactness.ESTIMATE
        holds(Count(int(rows), known), world.due(f"{table}.{rule}"))
    assert len(exact) == len(DUE)


def compare_growth(world: Shop) -> None:
    found = {one.table: one.as_json() for one in world.keeper.growth()}
    assert set(found) == set(TABLES)
    for table, report in found.items():
        holds(stated(report, "rows"), world.rows(table))
    assert of(scraped(world), "wane_table_rows") == {(table,): world.rows(table) for table in TABLES}


def compare_status(world: Shop) -> None:
    queue = world.keeper.queue("retention")
    for number in range(3):
        queue.enqueue("sweep", message_id=str(number))
    [ready] = [one for one in world.keeper.status().queue if one.state == "ready"]
    messages = world.keeper.store.dialect.own_table("message")
    assert ready.messages == world.number(f"SELECT count(*) FROM {messages}") == 3


def test_a_survey_counts_what_plain_sql_counts(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    inline.without_spark(monkeypatch)
    with shop(database) as world:
        found = {one.table: one for one in world.keeper.archive.survey()}
        for table in ("job", "attempt", "notice", "session"):
            one, rules = found[table], [rule for rule in DUE if rule.startswith(f"{table}.")]
            assert (one.rows, one.rows_exactness) == (world.rows(table), "exact")
            assert one.due == {days: world.due(*rules, ahead_days=days) for days in (0, 7, 30, 90)}
            assert (set(one.due_exactness.values()), sum(one.months.values())) == ({"exact"}, world.rows(table))
        # 60 a day are created; when they expire says nothing about that.
        assert found["session"].rows_per_day == pytest.approx(60, rel=0.2)
        assert found["setting"].rows == 1
