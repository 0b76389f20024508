"""Metrics over real HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from observe.reading import of, series
from races.racing import await_true
from servers import Database
from wane._contract.model import Contract
from wane._db import Store, open_store
from wane._db.url import resolve_url
from wane.errors import MetricsError, Unreachable, WrongArgument
from wane.events import TickFailed
from wane.observe._exporter import Exporter
from wane.observe._metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(Contract(None, ()))


@pytest.fixture
def exporter(metrics: Metrics) -> Iterator[Exporter]:
    with metrics.serve(0) as serving:
        yield serving


def test_metrics_are_served(metrics: Metrics, exporter: Exporter) -> None:
    metrics(TickFailed("outbox", "no"))
    answer = httpx.get(exporter.url)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert of(answer.text, "lifecycle_tick_errors_total") == {("outbox",): 1.0, ("wane",): 0.0}
    assert exporter.url == f"http://127.0.0.1:{exporter.port}/metrics"


def test_openmetrics_is_served_on_request(exporter: Exporter) -> None:
    answer = httpx.get(exporter.url, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    families = {family.name for family in text_string_to_metric_families(answer.text)}  # type: ignore[no-untyped-call]
    assert "lifecycle_tick_errors" in families


def test_only_metrics_are_served(exporter: Exporter) -> None:
    root = exporter.url.removesuffix("/metrics")
    assert httpx.get(f"{root}/other").status_code == 404
    assert "/metrics" in httpx.get(root).text
    assert httpx.post(exporter.url).status_code == 501
    head = httpx.head(exporter.url)
    assert (head.status_code, head.content) == (200, b"")
    assert httpx.get(f"{exporter.url}?name=x").status_code == 200


def test_a_port_in_use_is_an_error_that_reports_it(metrics: Metrics, exporter: Exporter) -> None:
    with pytest.raises(MetricsError, match=rf"127.0.0.1 port {exporter.port}: the port is in use") as caught:
        metrics.serve(exporter.port)
    assert "another port" in caught.value.hint


@pytest.mark.parametrize("port", [-1, 65_536, True, "9100"])
def test_a_port_that_is_none_is_refused(metrics: Metrics, port: int) -> None:
    with pytest.raises(WrongArgument, match="a port is a number"):
        metrics.serve(port)


@pytest.mark.parametrize("address", ["no such host.invalid", "192.0.2.1"])
def test_an_address_of_another_machine_is_refused(metrics: Metrics, address: str) -> None:
    with pytest.raises(MetricsError, match="metrics cannot be served on") as caught:
        metrics.serve(0, address)
    assert "of this machine" in caught.value.hint


def test_a_closed_exporter_frees_its_port_and_its_thread(metrics: Metrics) -> None:
    before = threading.active_count()
    exporter = metrics.serve(0)
    httpx.get(exporter.url)
    exporter.close()
    exporter.close()
    # The thread that answered ends after its answer has arrived.
    await_true(lambda: threading.active_count() <= before, "its threads have ended")
    with pytest.raises(httpx.ConnectError):
        httpx.get(exporter.url)
    with metrics.serve(exporter.port) as repeated:
        assert httpx.get(repeated.url).status_code == 200


def test_a_client_that_sends_no_request_blocks_no_other(exporter: Exporter) -> None:
    with closing(socket.create_connection(("127.0.0.1", exporter.port))):
        assert httpx.get(exporter.url, timeout=5).status_code == 200


def test_a_scrape_of_a_dead_database_succeeds_and_reports_it(metrics: Metrics, exporter: Exporter) -> None:
    def nowhere() -> Store:
        raise Unreachable("gone")

    metrics.watch(nowhere)
    with closing(metrics):
        answer = httpx.get(exporter.url)
    assert answer.status_code == 200
    assert series(answer.text)[("wane_up", ())] == 0.0


def test_scrapes_at_the_same_time_get_the_same_answer(database: Database, metrics: Metrics, exporter: Exporter) -> None:
    answers: list[float] = []
    with open_store(resolve_url(database.url)) as store, closing(metrics):
        metrics.watch(store.clone)

        def scrape() -> None:
            answers.append(series(httpx.get(exporter.url, timeout=30).text)[("wane_up", ())])

        threads = [threading.Thread(target=scrape) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [1.0] * 8
