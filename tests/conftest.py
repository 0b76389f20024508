"""Every test that takes `database` runs on each store: SQLite, PostgreSQL, and the machine's own PostgreSQL where
found."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import workers
from sampling import LEFT_OUT, POOLED, sampled
from servers import (
    URL_VARIABLE,
    Cluster,
    Database,
    Pooler,
    PostgresDatabase,
    Run,
    SqliteDatabase,
    packaged_installation,
    pooler_program,
    scratch_directory,
    system_installation,
)

POSTGRES_IDS = ["postgres", *(["postgres-system"] if system_installation() else [])]
POSTGRES_PARAMS = [*POSTGRES_IDS, *([POOLED] if pooler_program() else [])]
RUN = pytest.StashKey[Run]()
SECOND_SERVER = "postgres-system"
WHERE_SERVERS_DIFFER = ("conformance", "partition/test_there_and_back.py")
"""What depends on a server's version and collation runs on the second server too; the rest does with --both-servers."""
THROUGH_A_POOLER = (
    "archive/test_plain_rows.py",
    "claims/test_work.py",
    "prune/test_prune.py",
    "queue/test_queue.py",
    "races/test_batch_calls.py",
    "db/test_pooler.py",
)
"""What runs behind a connection pooler too: a session is no transaction's own there. The mark `own_session` makes an
exception."""
MIGRATED = (
    *(
        "archive",
        "claims",
        "observe",
        "partition",
        "prune",
        "queue",
        "races",
        "reference",
        "schedule",
        "sqlfunctions",
        "webhooks",
        "why",
    ),
)
"""Where every database has Wane's own tables from the start, because creating them takes longer than most tests. The
mark `unmigrated` makes an exception."""

EXAMPLES = "WANE_EXAMPLES"
"""The variable that says how many examples of a property are tried."""

# Examples share the test's database and call `database.reset()`; a database answers when it can, not by a deadline.
settings.register_profile(
    "wane",
    max_examples=int(os.environ.get(EXAMPLES, "20")),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("wane")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--both-servers", action="store_true", help="run every test on the machine's own PostgreSQL too")
    parser.addoption("--all", action="store_true", help="run all parameters of tests with the mark `sampled`")
    parser.addoption("--numprocesses", type=int, default=0, help="how many processes run tests; 0: this one")
    parser.addoption("--run-minutes", type=int, help="end a run with several workers that takes longer, as a failure")


@pytest.hookimpl(tryfirst=True)  # Before `-k`: so all parameters of a test are here.
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what `sampling` does not choose, without `--all`."""
    config.stash[LEFT_OUT] = []
    if EXAMPLES in os.environ:  # Many examples take as long as they take.
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker(pytest.mark.timeout(0))
    if config.getoption("--all") or any("::" in argument for argument in config.args):
        return
    running = sampled(items)
    left_out = [item for item in items if item not in running]
    items[:] = [item for item in items if item in running]
    config.stash[LEFT_OUT] = [item.nodeid for item in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_collection() -> None:
    gc.disable()  # Collection makes a million objects and hardly any garbage.


def pytest_collection_finish() -> None:
    # What collection made stays until the end: neither the collector nor a forked process needs to touch it again.
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # So that a test's id begins with its store.
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    named = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    for name, stores in (("store_id", ["sqlite", *POSTGRES_PARAMS]), ("server_id", POSTGRES_PARAMS)):
        if name in metafunc.fixturenames and name not in named:
            metafunc.parametrize(name, [store for store in stores if runs_on(store, metafunc)])


def runs_on(store: str, metafunc: pytest.Metafunc) -> bool:
    """Return whether the tests of a file run on a store."""
    path = metafunc.definition.path.relative_to(Path(__file__).parent).as_posix()
    everywhere: bool = metafunc.config.getoption("--both-servers")
    if store == POOLED and metafunc.definition.get_closest_marker("own_session") is not None:
        return False
    if store == POOLED:
        return path.startswith((*THROUGH_A_POOLER, "conformance") if everywhere else THROUGH_A_POOLER)
    return store != SECOND_SERVER or everywhere or path.startswith(WHERE_SERVERS_DIFFER)


def pytest_configure(config: pytest.Config) -> None:
    # A shell lets what it starts in the background ignore interrupts, and so would every process that a test
    # interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    memory = scratch_directory()
    # Some tests start programs that they wrote.
    if memory is not None and not os.statvfs(memory).f_flag & os.ST_NOEXEC:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))
    minutes: int | None = config.getoption("--run-minutes")
    if minutes and config.getoption("--numprocesses"):
        signal.signal(signal.SIGALRM, lambda *_: pytest.exit(f"the run took longer than {minutes} minutes", 1))
        signal.alarm(minutes * 60)
    config.stash[RUN] = Run.create()
    config.pluginmanager.register(workers)


def pytest_unconfigure(config: pytest.Config) -> None:
    gc.unfreeze()  # Libraries print what they count as leaked when the interpreter ends.
    if RUN in config.stash:
        config.stash[RUN].close()


class Clusters:
    """The PostgreSQL servers by id, each started when the first test asks for it."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._open: dict[str, Cluster] = {}
        self._pooler: Pooler | None = None

    def __getitem__(self, name: str) -> Cluster:
        if name not in self._open:
            self._open[name] = Cluster(self._url(name))
        return self._open[name]

    def _url(self, name: str) -> str:
        if name == "postgres" and (url := os.environ.get(URL_VARIABLE)):
            return url
        installation = system_installation() if name == "postgres-system" else packaged_installation()
        if installation is None:
            pytest.fail(f"no PostgreSQL to test with: run `make setup`, or set {URL_VARIABLE}", pytrace=False)
        return self._run.server_url(name, installation, locale=name == "postgres-system")

    def database(self, name: str, *, migrated: bool = False) -> AbstractContextManager[PostgresDatabase]:
        """Return a new database of a server, or, by the name of the pooler, of the packaged one behind it."""
        if name != POOLED:
            return self[name].database(migrated=migrated)
        return self["postgres"].database(through=self.pooler(), migrated=migrated)

    def pooler(self) -> Pooler:
        if self._pooler is None:
            program = pooler_program()
            assert program is not None
            directory = self._run.directory / f"pooler-{os.getpid()}"
            self._pooler = Pooler(program, self["postgres"].url, directory)
            self._pooler.start()
        return self._pooler

    def close(self) -> None:
        if self._pooler is not None:
            self._pooler.stop()
        for cluster in self._open.values():
            cluster.close()


@pytest.fixture(scope="session")
def clusters(pytestconfig: pytest.Config) -> Iterator[Clusters]:
    opened = Clusters(pytestconfig.stash[RUN])
    yield opened
    opened.close()


def migrated(request: pytest.FixtureRequest) -> bool:
    """Return whether a test's database has Wane's own tables."""
    folder = request.path.relative_to(Path(__file__).parent).parts[0]
    return folder in MIGRATED and request.node.get_closest_marker("unmigrated") is None


@pytest.fixture
def database(store_id: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Yield a database without tables of the application, once for each store."""
    if store_id == "sqlite":
        with closing(SqliteDatabase(tmp_path / "test.db", migrated=migrated(request))) as sqlite:
            yield sqlite
    else:
        clusters: Clusters = request.getfixturevalue("clusters")
        with clusters.database(store_id, migrated=migrated(request)) as postgres:
            yield postgres


@pytest.fixture
def sqlite_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteDatabase]:
    """Yield a SQLite database without tables of the application, for what only SQLite does."""
    with closing(SqliteDatabase(tmp_path / "test.db", migrated=migrated(request))) as database:
        yield database


@pytest.fixture
def postgres_database(server_id: str, request: pytest.FixtureRequest, clusters: Clusters) -> Iterator[PostgresDatabase]:
    """Yield a PostgreSQL database without tables of the application, for what only PostgreSQL does."""
    with clusters.database(server_id, migrated=migrated(request)) as database:
        yield database
