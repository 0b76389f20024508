"""Wane as the storage of Prefect's cleanup queue: Prefect's own suite, ours beside it, and servers as processes."""

from __future__ import annotations

import subprocess
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from uuid import uuid4

import pytest

from contrib.beside import HERE, Server, environment, prefect_python
from servers import Database, PostgresServer, packaged_installation, short_directory
from wane._db import open_store
from wane._db.url import resolve_url

pytestmark = pytest.mark.prefect
SUITE_TESTS = 19
"""How many tests the suite of Prefect 3.8.8 has."""
KIND = "cancelling_timeout_teardown.v1"


def migrate(url: str) -> None:
    with open_store(resolve_url(url)) as store:
        store.migrate()


def message(pool: str, key: str = "key") -> dict[str, object]:
    return {
        "message_id": str(uuid4()),
        "idempotency_key": key,
        "work_pool_id": pool,
        "kind": KIND,
        "target": {"flow_run": "🌒"},
    }


def test_prefects_own_suite_and_wanes_pass(database: Database, tmp_path: Path) -> None:
    migrate(database.url)
    report = tmp_path / "report.xml"
    done = subprocess.run(
        [
            *(prefect_python(), "-m", "pytest", "-c", str(HERE / "pytest.ini"), f"--junit-xml={report}"),
            *(str(HERE / "suite.py"), str(HERE / "beside_the_suite.py")),
        ],
        env=environment(tmp_path, WANE_PREFECT_URL=database.url),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cases = ElementTree.parse(report).findall(".//testcase")
    assert [case.get("name") for case in cases if len(case.findall("*"))] == []
    suite = [case for case in cases if "TestWorkerCleanupQueue" in (case.get("classname") or "")]
    assert len(suite) == SUITE_TESTS
    assert len(cases) > SUITE_TESTS + 1


def test_servers_share_a_database_and_lose_nothing_when_one_is_killed(database: Database, tmp_path: Path) -> None:
    migrate(database.url)
    pool = str(uuid4())
    with (
        Server(tmp_path, WANE_PREFECT_URL=database.url) as one,
        Server(tmp_path, WANE_PREFECT_URL=database.url) as other,
    ):
        before = one.call("read_wakeup_sequence", work_pool_id=pool)
        waiting = one.send("wait_for_wakeup", work_pool_id=pool, after=before, timeout=60)
        first = other.call("enqueue", **message(pool))
        began = time.monotonic()
        assert one.answer(waiting)["result"] == {"work_pool_id": pool, "sequence": before + 1}
        assert time.monotonic() - began < 20

        requested = [(server, server.send("reserve", work_pool_id=pool)) for server in (one, other, one, other)]
        [taken] = [found for server, number in requested if (found := server.answer(number)["result"]) is not None]
        assert taken["message_id"] == first["message_id"]
        assert taken["target"] == {"flow_run": "🌒"}

        one.kill()
        other.kill()

    with Server(tmp_path, WANE_PREFECT_URL=database.url) as third:
        scope = {"work_pool_id": pool, "message_id": first["message_id"]}
        assert third.call("read_message", **scope)["delivery_count"] == 1
        assert third.call("reserve", work_pool_id=pool) is None
        done = third.call("ack", **scope, reservation_token=taken["reservation_token"])
        assert done["status"] == "accepted"
        assert third.call("enqueue", **message(pool))["message_id"] == first["message_id"]
        assert third.call("read_wakeup_sequence", work_pool_id=pool) == before + 1


def test_a_database_that_goes_down_is_reported_and_one_that_comes_back_is_used(tmp_path: Path) -> None:
    installation = packaged_installation()
    assert installation is not None
    directory = (short_directory() or tmp_path) / f"wane-prefect-{uuid4().hex[:8]}"
    pool = str(uuid4())
    with PostgresServer(installation, directory, durable=True) as postgres:
        migrate(postgres.url)
        with Server(tmp_path, WANE_PREFECT_URL=postgres.url) as server:
            server.call("enqueue", **message(pool))
            assert server.call("wait_for_wakeup", work_pool_id=pool, after=0, timeout=20)["sequence"] == 1
            postgres.stop()
            kind, words = server.error("reserve", work_pool_id=pool)
            assert kind == "Unreachable"
            assert "cannot be reached" in words
            assert server.error("wait_for_wakeup", work_pool_id=pool, after=1, timeout=5)[0] == "Unreachable"
            postgres.start()
            assert server.call("reserve", work_pool_id=pool) is not None
            waiting = server.send("wait_for_wakeup", work_pool_id=pool, after=1, timeout=20)
            server.call("wake_dispatchers", work_pool_id=pool)
            assert server.answer(waiting)["result"]["sequence"] == 2
