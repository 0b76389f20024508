"""Gauges of the database at a scrape, whatever state the database is in.

A scrape never fails and never waits for long. The database is read in a thread of its own, over a connection of its
own, at most once in some seconds; a scrape waits for it up to a limit, and then reports the database as down. A reading
that hangs on a dead connection is abandoned after a while, and the next one begins with a new connection.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily

from wane._db import Store
from wane.errors import WaneError
from wane.observe._gauge import GAUGES, UP, Values
from wane.observe._gauges import Gauges
from wane.observe._logs import log

_HANGING_SECONDS = 60.0
"""A reading that takes longer than this is abandoned."""
_DOWN: Values = {UP: [((), 0.0)]}


@dataclass(slots=True)
class _DatabaseReading:
    """One reading of the database, in progress or done."""

    began: float
    done: threading.Event
    values: Values
    read_at: float = float("-inf")


class DatabaseScrape:
    """A collector, for a registry of the Prometheus client."""

    def __init__(
        self,
        gauges: Gauges,
        open_store: Callable[[], Store],
        *,
        fresh_seconds: float = 10.0,
        patience_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the collector; `open_store` opens a connection of its own: `keeper.store.clone`."""
        self._gauges = gauges
        self._open = open_store
        self._fresh_seconds = fresh_seconds
        self._patience_seconds = patience_seconds
        self._clock = clock
        self._turn = threading.Lock()
        self._latest: _DatabaseReading | None = None
        self._store: Store | None = None
        self._was_up = True
        self._closed = False

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the names alone: registering must not read the database."""
        for gauge in GAUGES:
            yield GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges of the database, from a new reading or one of some seconds ago."""
        values = self._values()
        for gauge in GAUGES:
            family = GaugeMetricFamily(gauge.name, gauge.help, labels=gauge.labels)
            for labels, value in values.get(gauge, []):
                family.add_metric(labels, value)
            yield family

    def close(self) -> None:
        """Close the connection; a reading in progress closes it when it ends."""
        with self._turn:
            self._closed = True
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def _values(self) -> Values:
        with self._turn:
            if self._closed:
                return _DOWN
            now, latest = self._clock(), self._latest
            waiting = latest is not None and not latest.done.is_set() and now - latest.began < _HANGING_SECONDS
            fresh = latest is not None and latest.done.is_set() and now - latest.read_at < self._fresh_seconds
            if latest is None or not (waiting or fresh):
                latest = self._latest = _DatabaseReading(now, threading.Event(), _DOWN)
                store, self._store = self._store, None
                threading.Thread(
                    target=self._read, args=(latest, store), name="wane-metrics-reader", daemon=True
                ).start()
        return latest.values if latest.done.wait(self._patience_seconds) else _DOWN

    def _read(self, reading: _DatabaseReading, store: Store | None) -> None:
        problem = ""
        try:
            store = store or self._open()
            reading.values = {**self._gauges.read(store), UP: [((), 1.0)]}
        except WaneError as error:
            problem = error.message
        except Exception as error:  # Whatever it was, the scrape continues and reports the database as down.
            problem = f"{type(error).__name__}: {error}"
        with self._turn:
            # A connection that failed, or whose reading was abandoned, is not reused.
            if not problem and reading is self._latest and not self._closed:
                self._store, store = store, None
            report = bool(problem) and self._was_up and not self._closed
            if reading is self._latest:
                self._was_up = not problem
            reading.read_at = self._clock()
        if report:
            log(logging.WARNING, "wane.database_unreadable", error=problem)
        reading.done.set()
        if store is not None:
            store.close()
