"""The pages: each shows what the keeper knows, and no value of the database becomes markup."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from partition.partitioning import PLAIN
from partition.partitioning import keeping as partitioning
from prune.keeping import DAY, ago, insert, jobs, keeping, rule, table
from servers import Database
from wane._contract.model import Contract, Excuse, ExcuseKind, Follower, Reference
from wane._contract.names import TableName
from wane._keeper import Keeper
from wane.observe._ages import AgeHistogram
from wane.observe._health import Health
from wane.observe._sql_snapshots import Snapshot, Snapshots
from wane.queue import RetryPolicy
from wane.web import console
from wane.web._pages import PAGES
from wane.web._shared_health import SharedHealth
from web.client import Client, open_client
from web.conftest import EVIL, EVIL_STATE, Shop

LISTED = [page.path for page in PAGES if page.listed]


def test_every_page_answers_and_escapes(shop: Shop) -> None:
    keeper = shop.keeper
    keeper.enable()
    keeper.sweep()
    keeper.hold("job", reason=EVIL)
    keeper.queue(EVIL).enqueue(EVIL)
    evil = quote(EVIL, safe="")
    paths = [
        *LISTED,
        f"/tables/{evil}",
        "/tables/job?key=4",
        f"/tables/{evil}?key={quote(EVIL)}",
        f"/tables?find={quote(EVIL)}",
    ]
    paths += [
        f"/runs?table={quote(EVIL)}&kind={quote(EVIL)}",
        f"/queue?pool={quote(EVIL)}",
        f"/tables/no{evil}",
        "/nowhere",
    ]
    for path in paths:
        response = shop.client.get(path)
        found = 404 if path in (f"/tables/no{evil}", "/nowhere") else 200
        assert response.status_code == found, (path, response.text)
        assert "<script>alert" not in response.text, path
        assert "onerror=alert(1)>" not in response.text.replace("&gt;", ""), path
        assert "49" not in re.findall(r"'(\d+)$", response.text), path
    assert "a live state" not in shop.client.get("/tables/job?key=4").text


def test_the_overview_states_what_is_wrong_and_how_to_repair_it(shop: Shop) -> None:
    text = shop.client.get("/").text
    assert "Sweeps are off" in text
    assert "Fix: " in text
    assert 'hx-trigger="every 15s"' in text
    assert "hx-trigger" not in shop.client.get("/?pause=1").text


def test_a_table_shows_its_contract_curve_ages_statements_and_a_row(shop: Shop) -> None:
    keeper = shop.keeper
    with keeper.store.transaction() as transaction:
        own = Snapshots(transaction.dialect)
        for days in range(12):
            name = "public.job" if keeper.store.kind == "postgres" else "main.job"
            own.write(
                transaction.execute, Snapshot(keeper.store.now() - days * DAY, name, 1000 - days * 50, True, 4096, True)
            )
    page = shop.client.get("/tables/job?key=1").text
    assert "done older than 7d by at_ms" in page
    assert '<polyline class="rows"' in page
    assert '<polyline class="forecast"' in page
    assert 'class="cutoff"' in page
    assert "DELETE FROM" in page
    assert "neither it nor its table is held" in page
    assert "the master flag retention.enabled is off" in page


def test_ages_are_counted_in_equal_steps(shop: Shop) -> None:
    ages = shop.keeper.ages("job")
    assert isinstance(ages, AgeHistogram)
    assert (ages.exact, ages.rows, ages.without_time, ages.rule) == (True, 4, 0, "old")
    assert sum(one.rows for one in ages.buckets) == 4
    steps = {one.until - one.since for one in ages.buckets}
    assert max(steps) - min(steps) <= timedelta(milliseconds=1)
    assert ages.cutoff == ages.now - timedelta(days=7)


def test_tables_are_sorted_and_found(shop: Shop) -> None:
    text = shop.client.get("/tables?sort=due&find=job").text
    assert "/tables/job" in text
    assert "script" not in re.sub(r"<script src=[^>]*>", "", text).replace("</script>", "")
    assert "No table has this name." in shop.client.get("/tables?find=zzz").text


def test_runs_are_filtered_paged_and_exported(shop: Shop) -> None:
    shop.keeper.enable()
    shop.keeper.sweep()
    shop.keeper.sweep("job")
    text = shop.client.get("/runs?table=job&limit=1").text
    cursor = re.search(r"cursor=(\d+)", text)
    assert cursor
    assert "No run was found." in shop.client.get(f"/runs?table=job&cursor={1}").text
    rows = list(csv.DictReader(io.StringIO(shop.client.get("/runs.csv?table=job").text)))
    assert [(one["table"], one["rule"], one["rows"]) for one in rows] == [("job", "old", "0"), ("job", "old", "1")]
    exported = shop.client.get("/runs.json")
    assert len(exported.json()["items"]) == 3
    assert "attachment" in exported.headers["content-disposition"]


def test_an_export_holds_no_formula(shop: Shop) -> None:
    keeper = shop.keeper
    keeper.pruner.prune("job", rule="old", limit=10, actor="=cmd()")
    [row] = csv.DictReader(io.StringIO(shop.client.get("/runs.csv").text))
    assert row["actor"] == "'=cmd()"


def test_the_queue_shows_dead_letters_without_tokens(shop: Shop) -> None:
    queue = shop.keeper.queue("mail", policy=RetryPolicy(attempts=1))
    queue.enqueue("send", message_id="m1")
    reserved = queue.reserve()
    assert reserved is not None
    queue.release("m1", reserved.token, "bounced")
    text = shop.client.get("/queue?pool=mail").text
    assert "bounced" in text
    answer = shop.client.get("/api/v1/queue/dead-letters?pool=mail").text
    assert "token" not in answer


@pytest.mark.unmigrated
def test_a_database_without_wanes_own_tables_reports_it(sqlite_database: Database) -> None:
    jobs(sqlite_database, (1, "done", ago(8)))
    with (
        keeping(sqlite_database, migrate=False) as opened,
        open_client(console(opened.keeper.contract, url=sqlite_database.url)) as client,
    ):
        assert "wane migrate" in client.get("/").text
        assert client.get("/tables/job").status_code == 200
        assert client.get("/queue").status_code == 409
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200


def test_it_is_mounted_below_a_path(sqlite_database: Database) -> None:
    jobs(sqlite_database, (1, "done", ago(8)))
    with keeping(sqlite_database) as opened:
        inner = console(opened.keeper.contract, url=sqlite_database.url)
        with open_client(Starlette(routes=[Mount("/retention", inner)])) as client:
            page = client.get("/retention/tables")
            assert 'href="/retention/tables/job"' in page.text
            assert client.get("/retention/static/console.css").status_code == 200
            assert client.get("/retention/api/v1/tables").json()["items"][0]["table"] == "job"


def test_an_evil_state_is_shown_as_text(shop: Shop) -> None:
    found = shop.client.get("/api/v1/why?table=job&key=4").json()
    assert found["rules"][0]["conditions"][0]["values"] == {"state": EVIL_STATE}


def test_partitions_are_listed_by_month(postgres_database: Database, tmp_path: Path) -> None:
    postgres_database.script(PLAIN)
    with partitioning(postgres_database, tmp_path) as keeper:
        keeper.partition.convert("event", accept=True)
        with open_client(console(keeper.contract, url=postgres_database.url)) as client:
            page = client.get("/partitions").text
            [found] = client.get("/api/v1/partitions").json()["items"]
    assert (found["table"], found["problem"]) == ("event", None)
    assert found["partitions"]
    assert all(f"<li>{one}</li>" in page for one in found["partitions"])


@contextmanager
def covering(database: Database) -> Iterator[Client]:
    """Yield a console over a table, one whose rows leave with its rows, and an excused one."""
    jobs(database, *((n, "done", ago(8)) for n in range(50)))
    database.execute("CREATE TABLE part (id integer PRIMARY KEY, job_id integer REFERENCES job (id))")
    database.execute("CREATE TABLE flags (name text PRIMARY KEY)")
    contract = Contract(
        None,
        (table("job", rule("old", followers=(Follower(Reference(TableName("part"), ("job_id",))),))),),
        excused=((TableName("flags"), Excuse(ExcuseKind.CONSTANT, "few")),),
    )
    with open_client(console(contract, url=database.url)) as client:
        yield client


def test_every_link_to_a_table_leads_to_its_page(database: Database) -> None:
    with covering(database) as client:
        links = set(re.findall(r'href="(/tables/[^"]+)"', client.get("/tables").text))
        assert links == {"/tables/job", "/tables/part", "/tables/flags"}
        for link in links:
            page = client.get(link)
            assert page.status_code == 200, (link, page.text)
            assert ("Why is a row still here" in page.text) == (link == "/tables/job")
        assert "follows job (job_id)" in client.get("/tables/part").text
        assert "few" in client.get("/tables/flags").text
        found = client.get("/api/v1/table?table=part").json()
        assert (found["contract"]["bound"], found["ages"]) == ("follows job (job_id)", None)
        assert client.get("/tables/jop").status_code == 404


def test_a_run_of_all_tables_or_of_an_unknown_one_has_no_link(shop: Shop) -> None:
    shop.keeper.record_action("enable")
    shop.keeper.record_action("hold", "dropped")
    text = shop.client.get("/runs").text
    assert "<td>all tables</td>" in text
    assert "<td>dropped</td>" in text


def test_a_hold_is_shown_by_the_columns_of_its_key(shop: Shop) -> None:
    shop.keeper.hold("job", {"id": 3}, reason="dispute")
    shop.keeper.hold(f'"{EVIL}"', {"id": EVIL}, reason="quoted")
    assert "<td>id = 3</td>" in shop.client.get("/tables/job").text
    assert shop.client.get("/api/v1/holds?table=jop").status_code == 404
    rows = [one["row"] for one in shop.client.get("/api/v1/holds").json()["items"]]
    assert rows == [{"id": EVIL}, {"id": "3"}]
    why = shop.client.get("/api/v1/why?table=job&key=3").json()
    assert (why["key"], [one["reason"] for one in why["holds"]]) == ({"id": "3"}, ["dispute"])


def test_due_rows_that_were_not_counted_in_time_are_counted_on_request(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = shop.client.get("/tables/job").text
    assert "Count all due rows" not in page
    monkeypatch.setattr("wane.web._pages._PLAN_SECONDS", 0.0)
    insert(shop.opened.database, "job", "id, state, at_ms", *((n, "done", ago(9)) for n in range(100, 20_000)))
    page = shop.client.get("/tables/job").text
    assert 'href="/tables/job?count=all"' in page
    assert "19,901 rows due" in shop.client.get("/tables/job?count=all").text


def test_pages_share_a_health_report_until_an_action(guarded: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    reading = Keeper.health

    def counted(keeper: Keeper) -> Health:
        read.append(1)
        return reading(keeper)

    monkeypatch.setattr(Keeper, "health", counted)
    mine = {"headers": guarded.bearer("operator")}
    for path in ("/", "/tables", "/tables/job"):
        assert guarded.client.get(path, **mine).status_code == 200
    assert len(read) == 1
    assert guarded.client.post("/api/v1/disable", json={"table": "job", "confirm": "job"}, **mine).status_code == 200
    assert "off</dd>" in guarded.client.get("/tables/job", **mine).text
    assert len(read) == 2


def test_a_report_is_reread_when_it_is_old_or_was_forgotten(shop: Shop) -> None:
    now = [0.0]
    reports = SharedHealth(clock=lambda: now[0])
    first = reports.read(shop.keeper)
    now[0] = 4.0
    assert reports.read(shop.keeper) is first
    now[0] = 6.0
    second = reports.read(shop.keeper)
    assert second is not first
    reports.forget()
    assert reports.read(shop.keeper) is not second


def test_a_console_without_authentication_needs_no_token(shop: Shop) -> None:
    assert shop.client.get("/login").headers["location"] == "/"
    signed = shop.client.post("/login", data={"token": "wane_x"})
    assert (signed.status_code, "it only reads" in signed.text) == (403, True)
    refused = shop.client.post("/api/v1/sweep", json={}).json()
    assert (refused["code"], "token" in refused["detail"]) == ("ReadOnly", False)
