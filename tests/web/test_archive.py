"""The archive: queries and restores run as jobs, are bounded and confirmed, and change what their plan showed."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from archive import inline
from archive.cold import Cold, cold_keeper, conserve, events, insert_events
from servers import Database, SqliteDatabase
from wane._archive.model import VERIFIED
from wane._archive.query.cold_rows import PlainRows
from wane._archive.spark import session as spark_session
from wane._keeper import open_keeper
from wane.web import LOOPBACK, create_token
from wane.web import _jobs as limits
from wane.web._app import Web
from wane.web._shield import Rates
from web.client import Client, open_client

SPARK: Any = object()

EVER = {
    "event": {*range(1, 41), 10_001, 10_002, 10_003},
    "event_read": {n * 10 + m for n in range(1, 41) for m in range(n % 3)},
}


@dataclass
class Shelf:
    """A console over an archive of forty rows."""

    client: Client
    cold: Cold
    tokens: dict[str, str]
    web: Web

    def get(self, path: str, role: str = "viewer", **values: Any) -> Any:
        return self.client.get(f"/api/v1/archive{path}", params=values, headers=self._bearer(role))

    def post(self, path: str, role: str = "admin", **body: Any) -> Any:
        return self.client.post(f"/api/v1/archive{path}", json=body, headers=self._bearer(role))

    def _bearer(self, role: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self.tokens[role]}"} if self.tokens else {}

    def found(self, **values: Any) -> dict[str, Any]:
        """Query until it is done."""
        return self.ended(self.get("/query", **values).json())

    def ended(self, job: dict[str, Any]) -> dict[str, Any]:
        """Poll a job until it has ended."""
        deadline = time.monotonic() + 60
        while job["state"] in ("waiting", "running"):
            assert time.monotonic() < deadline
            job = self.get("/job", job=job["id"]).json()
        answer: dict[str, Any] = self.get("/job", job=job["id"]).json()
        return answer


@contextmanager
def shelf(database: Database, folder: Path, *, authentication: bool = True) -> Iterator[Shelf]:
    events(database, rows=40)
    with pytest.MonkeyPatch.context() as patch:
        inline.without_spark(patch)
        with cold_keeper(database, folder) as cold:
            cold.run()
            keeper = cold.keeper
            tokens = {role: create_token(keeper, role, role)[1] for role in ("viewer", "operator", "admin")}
            web = Web(keeper.contract, database.url, authentication=authentication)
            with open_client(web.app(LOOPBACK, Rates(rate=1e6, burst=1e6))) as client:
                yield Shelf(client, cold, tokens if authentication else {}, web)
            for job in web.jobs.newest(100):  # No job outlives its database.
                assert job.ended.wait(60)


@pytest.fixture
def archived(sqlite_database: SqliteDatabase, tmp_path: Path) -> Iterator[Shelf]:
    with shelf(sqlite_database, tmp_path) as found:
        yield found


def test_a_query_reads_the_files_that_can_hold_its_rows(archived: Shelf) -> None:
    insert_events(archived.cold.database, range(1_000, 1_003))
    archived.cold.run()
    job = archived.found(table="event", where="id <= 3", columns="id, status", limit=2)
    assert (job["state"], job["kind"], job["actor"]) == ("done", "query", "viewer (web)")
    found = job["result"]
    assert (found["columns"], found["rows"], found["more"]) == (["id", "status"], [[1, "done"], [2, "done"]], True)
    files = found["files"]
    assert len(files["names"]) < files["of_files"]
    assert (files["on_spark"], files["names"][0].startswith("_month=")) == (False, True)
    everything = archived.found(table="event", limit=1_000)["result"]
    assert (len(everything["rows"]), everything["more"]) == (43, False)


def test_when_a_table_was_last_verified_is_shown(archived: Shelf) -> None:
    assert archived.get("").json()["verified"] == {}
    for problems in (2, 0):
        archived.cold.keeper.record_action(VERIFIED, "event", {"files": 3, "rows": 40, "problems": problems})
    [(name, last)] = archived.get("").json()["verified"].items()
    assert (name, last["problems"], last["by"]) == ("event", 0, "tester")


def test_the_same_question_is_one_job(archived: Shelf) -> None:
    first, second = (archived.found(table="event", where="id = 1") for _ in range(2))
    assert first["id"] == second["id"]
    assert archived.found(table="event", where="id = 2")["id"] != first["id"]
    listed = archived.get("/jobs").json()["items"]
    assert [one["inputs"]["where"] for one in listed] == ["id = 2", "id = 1"]
    assert "result" not in listed[0]


def test_what_a_query_gets_wrong_is_its_problem(archived: Shelf) -> None:
    missing = archived.found(table="evnt")
    assert (missing["state"], missing["problem"]["code"]) == ("failed", "WrongArgument")
    assert "archived tables: event" in missing["problem"]["hint"]
    assert "no column 'nme'" in archived.found(table="event", columns="nme")["problem"]["detail"]
    assert archived.get("/query", table="event", limit=5_000).status_code == 400
    assert archived.get("/job", job="nothing").status_code == 404


def test_a_query_of_another_site_is_refused(archived: Shelf) -> None:
    headers = {**archived._bearer("viewer"), "sec-fetch-site": "cross-site"}
    refused = archived.client.get("/api/v1/archive/query?table=event", headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (403, "CrossSite")


def test_a_query_needs_no_authentication_where_nothing_else_does(
    sqlite_database: SqliteDatabase, tmp_path: Path
) -> None:
    with shelf(sqlite_database, tmp_path, authentication=False) as open_shelf:
        page = open_shelf.client.get("/archive/query?table=event&where=id+%3D+1&columns=body&limit=5").text
        assert "body 1" in page
        assert "Files read" in page
        assert "/do/" not in open_shelf.client.get("/archive").text


class Stalled:
    """Rows that do not come until they may."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.may, self.stopped = threading.Event(), threading.Event()
        reading = PlainRows.__iter__

        def slow(rows: PlainRows) -> Iterator[tuple[Any, ...]]:
            try:
                for row in reading(rows):
                    self.may.wait(30)
                    yield row
            finally:
                self.stopped.set()

        patch.setattr(PlainRows, "__iter__", slow)


def test_a_slow_query_blocks_no_request_and_its_page_refreshes(
    archived: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled = Stalled(monkeypatch)
    job = archived.get("/query", table="event").json()
    assert (job["state"], job["result"]) == ("running", None)
    archived.client.post("/login", data={"token": archived.tokens["viewer"]})
    page = archived.client.get("/archive/query?table=event").text
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in page
    assert 'hx-get="/archive/query?table=event" hx-trigger="every 2s"' in page
    assert "selected>event</option>" in page
    assert "<option>event_read</option>" in page
    stalled.may.set()
    assert archived.ended(job)["state"] == "done"
    assert "http-equiv" not in archived.client.get(f"/archive/jobs/{job['id']}").text


def test_a_query_that_no_client_waits_for_is_stopped(archived: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    stalled = Stalled(monkeypatch)
    job = archived.get("/query", table="event").json()
    monkeypatch.setattr(limits, "_ABANDONED_SECONDS", -1.0)
    stalled.may.set()
    assert stalled.stopped.wait(30)
    assert "no client waits" in archived.ended(job)["problem"]["detail"]


def test_a_query_that_takes_too_long_is_stopped(archived: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "_LONGEST_SECONDS", -1.0)
    assert "took longer" in archived.found(table="event")["problem"]["detail"]


def test_no_more_jobs_wait_than_may(archived: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    stalled = Stalled(monkeypatch)
    for number in range(limits.MOST_UNFINISHED):
        assert archived.get("/query", table="event", limit=number + 1).status_code == 200
    refused = archived.get("/query", table="event", limit=100)
    assert (refused.status_code, refused.json()["code"]) == (429, "TooManyJobs")
    stalled.may.set()


def test_a_result_has_a_largest_size(archived: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wane.web._archive._MOST_BYTES", 100)
    found = archived.found(table="event", columns="body", limit=40)["result"]
    assert (0 < len(found["rows"]) < 20, found["more"]) == (True, True)


@pytest.fixture(params=["sqlite", "postgres"])
def restoring(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shelf]:
    if request.param == "sqlite":
        with closing(SqliteDatabase(tmp_path / "test.db", migrated=True)) as sqlite, shelf(sqlite, tmp_path) as found:
            yield found
    else:
        clusters = request.getfixturevalue("clusters")
        with clusters["postgres"].database(migrated=True) as postgres, shelf(postgres, tmp_path) as found:
            yield found


def test_a_restore_is_planned_confirmed_and_audited(restoring: Shelf) -> None:
    assert restoring.post("/plan-restore", role="operator", table="event", key="id=7").status_code == 403
    plan = restoring.ended(restoring.post("/plan-restore", table="event", key="id=7").json()["job"])
    assert (plan["kind"], plan["result"]["dry_run"]) == ("restore plan", True)
    assert plan["result"]["chosen"] == {"event": 1, "event_read": 1}
    assert 7 not in restoring.cold.hot()
    requested = {"table": "event", "plan": plan["id"]}
    assert restoring.post("/restore", **requested).status_code == 400
    assert restoring.post("/restore", role="operator", **requested, confirm="event").status_code == 403
    assert 7 not in restoring.cold.hot()
    done = restoring.ended(restoring.post("/restore", **requested, confirm="event").json()["job"])
    assert (done["state"], done["result"]["restored"]) == ("done", {"event": 1, "event_read": 1})
    assert 7 in restoring.cold.hot()
    conserve(restoring.cold, EVER, done=True)
    keeper = restoring.cold.keeper
    assert keeper.audit(kind="restore")[0].actor == "admin (web)"
    [action] = keeper.audit(kind="action")
    assert (action.inputs["action"], action.inputs["key"], action.actor) == ("restore", {"id": "7"}, "admin (web)")
    [restored] = restoring.get("").json()["restores"]
    assert (restored["state"], restored["actor"]) == ("done", "admin (web)")


def test_a_restore_takes_no_more_than_its_plan_showed(archived: Shelf) -> None:
    month = archived.found(table="event", columns="_month", limit=1)["result"]["rows"][0][0]
    plan = archived.ended(archived.post("/plan-restore", table="event", month=month).json()["job"])
    insert_events(archived.cold.database, range(2_000, 2_003))  # At the time of the oldest rows.
    archived.cold.run()
    repeated = archived.ended(archived.post("/plan-restore", table="event", month=month).json()["job"])
    assert repeated["result"]["chosen"]["event"] > plan["result"]["chosen"]["event"] > 0
    job = archived.post("/restore", table="event", plan=plan["id"], confirm="event").json()["job"]
    refused = archived.ended(job)
    assert (refused["state"], refused["problem"]["code"]) == ("failed", "PlanError")
    assert archived.cold.hot() == [10_001, 10_002, 10_003]
    done = archived.ended(archived.post("/restore", table="event", plan=repeated["id"], confirm="event").json()["job"])
    assert done["result"]["restored"] == repeated["result"]["chosen"]


def test_a_restore_needs_a_fresh_plan_of_its_table_that_is_done(
    archived: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = archived.found(table="event")
    assert archived.post("/restore", table="event", plan=query["id"], confirm="event").status_code == 400
    assert archived.post("/restore", table="event", plan="nothing", confirm="event").status_code == 404
    empty = archived.ended(archived.post("/plan-restore", table="event", key="id=77777").json()["job"])
    refused = archived.post("/restore", table="event", plan=empty["id"], confirm="event")
    assert (refused.status_code, refused.json()["detail"]) == (409, "the plan has no rows")
    with monkeypatch.context() as patch:
        patch.setattr("wane.web._archive.OLDEST_PLAN", timedelta(seconds=-1))
        plan = archived.ended(archived.post("/plan-restore", table="event", key="id=7").json()["job"])
        old = archived.post("/restore", table="event", plan=plan["id"], confirm="event")
        assert (old.status_code, old.json()["detail"]) == (409, "the plan was made more than an hour ago")
    assert archived.cold.keeper.audit(kind="action") == []
    failed = archived.ended(archived.post("/plan-restore", table="event", sweep=99).json()["job"])
    assert archived.post("/restore", table="event", plan=failed["id"], confirm="event").status_code == 409


def test_which_rows_a_restore_chooses_is_checked(archived: Shelf) -> None:
    for wrong in (
        {},
        {"key": "id=1", "month": "2026-01"},
        {"month": "2026-13"},
        {"month": "x' OR '1'='1"},
        {"key": "7"},
        {"key": "id=7", "on_conflict": "merge"},
    ):
        assert archived.post("/plan-restore", table="event", **wrong).status_code == 400, wrong
    assert archived.post("/plan-restore", table="evnt", key="id=7").status_code == 404
    assert archived.get("/jobs").json()["items"] == []


def test_an_unfinished_restore_is_ended(archived: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("wane._archive.restore.restore._Restore.go_on", cut_off)
        with pytest.raises(KeyboardInterrupt):
            archived.cold.keeper.archive.restore("event", keys=[{"id": 7}])
    [restore] = archived.get("").json()["restores"]
    archived.client.post("/login", data={"token": archived.tokens["admin"]})
    assert "/do/archive/cancel-restore" in archived.client.get("/archive").text
    requested = {"table": "event", "restore": restore["id"]}
    assert archived.post("/cancel-restore", **requested).status_code == 400
    assert archived.post("/cancel-restore", table="event", restore=99, confirm="event").status_code == 400
    job = archived.ended(archived.post("/cancel-restore", **requested, confirm="event").json()["job"])
    assert (job["state"], job["result"]["state"]) == ("done", "done")
    conserve(archived.cold, EVER, done=True)


def test_a_restore_goes_through_the_forms_of_the_console(archived: Shelf) -> None:
    client = archived.client
    client.post("/login", data={"token": archived.tokens["admin"]})
    page = client.get("/archive").text
    key = re.search(r'name="form_key" value="([^"]+)"', page)
    assert key
    form = {"form_key": key[1], "table": "event", "key": "id=7", "month": "", "sweep": "", "on_conflict": "refuse"}
    assert client.post("/do/archive/plan-restore", data={**form, "form_key": "x"}).status_code == 403
    planned = client.post("/do/archive/plan-restore", data=form)
    assert planned.status_code == 303
    job = planned.headers["location"].rsplit("/", 1)[-1]
    archived.ended({"id": job, "state": "running"})
    shown = client.get(planned.headers["location"]).text
    assert "What would come back" in shown
    assert f'name="plan" value="{job}"' in shown
    body = {"form_key": key[1], "table": "event", "plan": job, "confirm": "event"}
    done = client.post("/do/archive/restore", data=body)
    archived.ended({"id": done.headers["location"].rsplit("/", 1)[-1], "state": "running"})
    assert "What came back" in client.get(done.headers["location"]).text
    assert 7 in archived.cold.hot()
    client.post("/login", data={"token": archived.tokens["operator"]})
    assert "/do/" not in client.get("/archive").text


def test_a_spark_that_a_query_started_ends_when_it_is_idle(archived: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = threading.Event()
    idle = spark_session._Idle()
    monkeypatch.setattr(spark_session, "_idle", idle)
    monkeypatch.setattr(spark_session, "_stop", stopped.set)

    def read(rows: PlainRows) -> Iterator[tuple[Any, ...]]:
        idle.own, idle.used_at = SPARK, time.monotonic()
        return iter([(1,)])

    monkeypatch.setattr(PlainRows, "__iter__", read)
    settings = replace(archived.cold.keeper.contract.spark, idle_stop=timedelta(seconds=0.5))
    contract = replace(archived.cold.keeper.contract, spark=settings)
    monkeypatch.setattr(archived.web.jobs, "_open", lambda: open_keeper(contract=contract))
    for where in ("id = 1", "id = 2"):
        stopped.clear()
        assert archived.found(table="event", where=where, columns="id")["state"] == "done"
        assert stopped.wait(60)
