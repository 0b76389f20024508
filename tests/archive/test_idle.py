"""A Spark that a daemon started ends when it is idle, and is started anew when it is needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark import SparkContext

from archive.cold import cold_keeper, events, insert_events
from archive.fleet import ships
from archive.inline import InlineExecutor
from servers import Database
from wane._archive.query.condition import refused, spark_errors
from wane._archive.spark import session as spark_session
from wane._archive.spark.executor import SparkExecutor
from wane._archive.spark.session import long_work, session, stopped_when_idle
from wane._contract.settings import SparkSettings
from wane.errors import SparkError

HOUR = timedelta(hours=1)


def _java() -> subprocess.Popen[bytes]:
    gateway = SparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    assert isinstance(java, subprocess.Popen)
    return java


@pytest.mark.on_spark
@pytest.mark.sampled
@pytest.mark.timeout(900)  # It starts Spark twice.
def test_a_session_stops_when_it_is_idle_and_starts_anew() -> None:
    settings = SparkSettings()
    with stopped_when_idle(timedelta(0)):
        session(settings)
        java = _java()
        with stopped_when_idle(timedelta(0)):
            pass
        assert java.poll() is None, "another one works"
    assert java.wait(timeout=240) is not None
    # Outside of such a block: its Java is that of a command, as the tests of Spark that follow need it.
    assert session(settings).range(3).count() == 3
    # Its caller may have frames of it.
    with stopped_when_idle(timedelta(0)):
        session(settings)
    spark_session._stop_unused(0)
    assert _java().poll() is None


@pytest.mark.on_spark
@pytest.mark.sampled
@pytest.mark.timeout(900)  # It starts Spark twice.
def test_a_java_that_was_killed_is_reported_and_replaced() -> None:
    """As when memory runs out: a process that runs for long must not need a restart."""
    settings = SparkSettings()
    numbers = session(settings).range(3)
    java = _java()
    java.kill()
    java.wait()
    with pytest.raises(spark_errors()) as raised:
        numbers.count()
    error = refused(raised.value, [])
    assert (type(error), error.message) == (SparkError, "Spark has ended while it worked")
    assert session(settings).range(3).count() == 3


def java_options() -> str:
    """Return the options of Java, if Spark were started now."""
    return spark_session._local_only()["spark.driver.extraJavaOptions"]


SHORT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LONG = "-XX:+UseSerialGC"


def test_java_compiles_thoroughly_for_long_work_only() -> None:
    assert java_options() == SHORT
    with long_work(1_999_999):
        assert java_options() == SHORT
    with long_work(2_000_000):
        assert java_options() == LONG
        with long_work(10):
            assert java_options() == LONG, "another one takes long"
    assert java_options() == SHORT
    with stopped_when_idle(HOUR):
        assert java_options() == LONG, "a daemon"
    assert java_options() == SHORT


def test_sockets_are_in_a_folder_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """They ask for no password. In a folder whose path is too long for them there are none, and Spark uses TCP."""
    folder = Path(spark_session._local_only()["spark.python.unix.domain.socket.dir"])
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(spark_session, "_folders", [str(folder.parent / "removed")])
    folder = Path(spark_session._local_only()["spark.python.unix.domain.socket.dir"])
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(spark_session, "_socket_folder", lambda: "/" + "x" * 60)
    assert not [name for name in spark_session._local_only() if "socket" in name]


def test_workers_reuse_memory() -> None:
    """Memory that is given back to the system is cleared when it is needed anew, page by page."""
    written = """
import resource
from wane._archive.spark import daemon
daemon._retain_memory()
bytearray(24_000_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    bytearray(24_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    faults = subprocess.run([sys.executable, "-c", written], check=True, capture_output=True, text=True).stdout
    assert int(faults) < 24_000_000 // 4096


def test_a_sweep_of_which_java_reads_many_rows_is_long_work(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is resumed. Rows are counted in ranges, of 60 rows here. Java reads those of a strict proof."""
    monkeypatch.setattr(spark_session, "_LONG_ROWS", 180)
    seen: list[str] = []
    monkeypatch.setattr(InlineExecutor, "spark", lambda _: seen.append(java_options()))
    events(database, 100)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        assert set(seen) == {SHORT}
        insert_events(database, range(1_000, 1_200))
        seen.clear()
        cold.at["planned"] = lambda: cold.keeper.disable()
        cold.one(strict=True)
        assert seen == []
        cold.keeper.enable()
        cold.one()
        assert set(seen) == {LONG}
        for first, strict, options in ((2_000, True, LONG), (3_000, False, SHORT)):
            insert_events(database, range(first, first + 200))
            seen.clear()
            cold.one(strict=strict)
            assert set(seen) == {options}
    assert java_options() == SHORT


def test_a_fleet_is_long_work(database: Database, tmp_path: Path) -> None:
    with ships(database, tmp_path) as fleet:
        found = fleet.fleet().each(lambda _: java_options(), doing="read")
    assert [one.result for one in found] == [LONG] * 3
    assert java_options() == SHORT


class Started(Exception):
    """Spark would be started now."""


def test_commands_in_which_java_reads_many_rows_are_long_work(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of files that the log excludes do not count."""

    def start(_: object) -> None:
        raise Started(java_options())

    def options(work: Callable[[], object]) -> str:
        with pytest.raises(Started) as started:
            work()
        return str(started.value)

    events(database, 200)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
        archive = cold.keeper.archive
        old = "id <= 30"
        works: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "query": (lambda: archive.query("event"), lambda: archive.query("event", where=old)),
            "read": (lambda: archive.read("event", spark=True), lambda: archive.read("event", where=old, spark=True)),
            "restore": (
                lambda: archive.restore("event", where="id > 0", dry_run=True),
                lambda: archive.restore("event", where=old, dry_run=True),
            ),
        }
        monkeypatch.setattr(InlineExecutor, "spark", start)
        monkeypatch.setattr(spark_session, "_LONG_ROWS", 200)
        for name, (every, few) in works.items():
            assert (options(every), options(few)) == (LONG, SHORT), name
        assert options(lambda: archive.compact("event")) == LONG
        monkeypatch.setattr(spark_session, "_LONG_ROWS", 201)
        assert options(lambda: archive.compact("event")) == SHORT
        assert options(lambda: archive.query("event")) == SHORT
    assert java_options() == SHORT


@pytest.mark.sampled
@pytest.mark.on_spark
def test_tasks_reuse_their_memory() -> None:
    """Arrow's own allocator has it cleared for every batch."""

    def allocator(_: int) -> str:
        import pyarrow as pa

        return str(pa.default_memory_pool().backend_name)

    assert list(SparkExecutor(SparkSettings()).run(allocator, 1)) == ["system"]
