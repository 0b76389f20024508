"""The PostgreSQL store: one database, its clock and its planner."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from wane._db.migrations import pending
from wane._db.postgres.bounded import AtOnceTransaction, BoundedConnection, numbered
from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.postgres.dialect import PostgresDialect, PostgresTypes
from wane._db.postgres.gate import GATE
from wane._db.postgres.planner import PostgresPlanner
from wane._db.postgres.plpgsql import SessionFunction
from wane._db.postgres.reflect import read_schemas, reflect
from wane._db.postgres.settings import BY_INDEX, SAFE_SETTINGS, SEARCH_PATH, UNLIMITED, set_locally, set_session
from wane._db.postgres.transaction import LOCAL_SETTINGS, PostgresTransaction, beginning, inside, opened
from wane._db.postgres.watch import PostgresWatch
from wane._db.schema import SEES_ALL_ROWS, Schema
from wane._db.statement import Execute, Statement
from wane._db.store import Store
from wane._db.transaction import Transaction, driver_connection
from wane._db.url import DatabaseUrl
from wane._db.watch import Watch
from wane.errors import Locked, SchemaChanged, StoreError, TimedOut, Unreachable, WaneError

OLDEST_VERSION = 140000
CONNECT_SECONDS = 10
_CANCEL_SECONDS = 5.0
_LOCK_MILLISECONDS = 5_000
_CONNECTION: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    # A server that vanished without notice is detected in half a minute, not in hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""Defaults for what a URL does not set itself."""
_SETTINGS = {
    **SAFE_SETTINGS,
    "lock_timeout": str(_LOCK_MILLISECONDS),
    # Statements are short; compiling them would take longer than running them.
    "jit": "off",
}
_MIGRATION_MILLISECONDS = 60_000
_SNAPSHOT_TIMEOUT = "30s"
_READ_COMMITTED = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BY_INDEX_SETTINGS = {**_SETTINGS, **BY_INDEX}
_AT_ONCE = {
    read_only: AtOnceTransaction(
        f"{_READ_COMMITTED} {'READ ONLY' if read_only else 'READ WRITE'}",
        set_locally(_BY_INDEX_SETTINGS),
        set_session(
            {
                **_BY_INDEX_SETTINGS,
                "default_transaction_isolation": "read committed",
                "default_transaction_read_only": "on" if read_only else "off",
            }
        ),
    )
    for read_only in (False, True)
}
_CREATING = {
    **LOCAL_SETTINGS,
    # The first call compiles a function, whether it was compiled before to check it or not.
    "check_function_bodies": "off",
    # What ends with the session need not survive a crash.
    "synchronous_commit": "off",
}
_NO_ANSWER = "the database refused to answer"
_LIMIT = "SELECT pg_catalog.set_config('statement_timeout', %s, true)"
_UNKNOWN_NAMES = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedObject,
)
"""The errors of a statement that names something missing: an operator counts as a function, and a type as an object."""
_REFUSED = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.ForeignKeyViolation,
    psycopg.errors.RestrictViolation,
    # The session's own default; other transactions set another when they begin.
    psycopg.errors.ReadOnlySqlTransaction,
    # Something discarded what the session had.
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
)
"""The errors of a function that must not do what it was called for: it raises the first one itself."""
_IN_FUNCTION = re.compile(r"^PL/pgSQL function (.+\)) line ", re.MULTILINE)
_MIGRATION_LOCK = GATE
"""Serialises migrations; held only inside one transaction, so connection poolers do not disturb it."""

_IDENTITY = """
SELECT (SELECT system_identifier FROM pg_control_system()), oid FROM pg_database WHERE datname = current_database()
"""
_DATABASE = "SELECT '', oid FROM pg_database WHERE datname = current_database()"
_MAY_IDENTIFY = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_APPLIED = f"SELECT name FROM {OWN_SCHEMA}.migration ORDER BY name"
_HAS_TABLE = f"SELECT to_regclass('{OWN_SCHEMA}.migration') IS NOT NULL"
_SCHEMA_OWNER = f"SELECT (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = '{OWN_SCHEMA}')"
_ADMIN_ROLE = (
    f"let a superuser, or the owner of the tables and of schema {OWN_SCHEMA}, run `wane roles --apply`, and grant the"
    " contract's admin role to the role that runs Wane"
)
_AS_OWNER = "connect as its owner, or as a member of the owner's role; no grant on it is enough"
_OWNED = re.compile("must be owner of ")
_OF_SCHEMA = re.compile("permission denied for schema (?P<schema>.+)")
"""What messages in English begin with; in other languages the hint is less specific."""
_MIGRATION_TABLE = (
    f"CREATE TABLE IF NOT EXISTS {OWN_SCHEMA}.migration"
    " (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
)


class PostgresStore(Store):
    """A PostgreSQL database."""

    kind = "postgres"
    has_partitions = True
    has_roles = True
    has_functions = True
    enforces_keys = True
    dialect = PostgresDialect()
    types = PostgresTypes()
    migration_list = f"SET search_path = {SEARCH_PATH};\nCREATE SCHEMA IF NOT EXISTS {OWN_SCHEMA};\n{_MIGRATION_TABLE}"
    migration_end = "RESET search_path;\n"
    migration_entry = f"INSERT INTO {OWN_SCHEMA}.migration (name) VALUES ('{{}}')"

    def __init__(self, url: DatabaseUrl, *, read_only: bool, answer_seconds: float | None = None) -> None:
        self.shown = url.shown
        self.url = url
        self._read_only = read_only
        self._closed = False
        self._turn = threading.RLock()
        self._inside = 0
        self._answer_seconds = answer_seconds
        self._connection = _connect(url, answer_seconds=answer_seconds)
        self._own_identity = ""
        self.creations = 0
        """Transactions that created functions of the session, besides what the store is used for."""
        self.located = {}
        try:
            if self._connection.info.server_version < OLDEST_VERSION:
                version = self._connection.info.parameter_status("server_version")
                raise StoreError(f"PostgreSQL {version} is too old", "Wane needs PostgreSQL 14 or newer")
            self.is_migrated()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closed = True
        self._connection.close()

    def interrupt(self) -> None:
        self.interrupted = True
        with suppress(psycopg.Error):  # Without an answer, the statement's own limit ends it.
            self._connection.cancel_safe(timeout=_CANCEL_SECONDS)

    def _connected(self) -> BoundedConnection:
        """Return the connection, with no setting of an earlier call: see `_alive`."""
        connection = self._alive()
        connection.end_calls()
        return connection

    def _alive(self) -> BoundedConnection:
        """Return the connection; a new one if it broke since the last call, but never inside a transaction."""
        if self.interrupted:
            raise TimedOut("the read was cancelled")
        connection = self._connection
        if self._inside:
            return connection
        if not connection.closed and connection.has_news():
            # The server sends nothing on an idle connection, except that it is closing it.
            try:
                connection.execute("SELECT 1")
            except psycopg.Error:
                connection.close()  # Also one with an answer that was not read: it would refuse every call.
        if connection.closed and not self._closed:
            self._connection = _connect(self.url, answer_seconds=self._answer_seconds)
        return self._connection

    @contextmanager
    def _read_transaction(
        self, settings: Mapping[str, str] = MappingProxyType({}), level: str = "READ COMMITTED"
    ) -> Iterator[BoundedConnection]:
        """Yield the connection in a read-only transaction.

        Inside a transaction, that one is used, and its settings stay as they are.
        """
        connection = self._connected()
        if self._inside:
            yield connection
            return
        begin = f"BEGIN ISOLATION LEVEL {level} READ ONLY; {set_locally({**_SETTINGS, **settings})}"
        with opened(connection, begin):
            yield connection

    def read_one(
        self, what: str, text: str, parameters: Mapping[str, object], settings: Mapping[str, str] = MappingProxyType({})
    ) -> list[tuple[Any, ...]]:
        """Run one statement as `reading` would, in one round trip where it is not inside a transaction."""
        with self._turn, _Explained(what):
            connection = self._connected()
            if self._inside or not connection.writes_readable_texts:
                with self._read_transaction(settings) as connection:
                    return connection.execute(text, parameters).fetchall()
            local = set_locally({**_SETTINGS, **settings})
            return connection.run_in_transaction(f"{_READ_COMMITTED} READ ONLY", local, [(text, parameters)])[0]

    @contextmanager
    def reading(self, what: str, settings: Mapping[str, str] = MappingProxyType({})) -> Iterator[BoundedConnection]:
        """Yield the connection in a read-only transaction; `what` begins the messages of the driver's errors."""
        with self._turn, _Explained(what), self._read_transaction(settings) as connection:
            yield connection

    @property
    def planner(self) -> PostgresPlanner:
        return PostgresPlanner(self)

    def now(self) -> datetime:
        # clock_timestamp, not now(): the latter is fixed inside a transaction. It depends on no setting, and its binary
        # form on no style, so it needs no transaction of its own.
        with self._turn, _Explained(_NO_ANSWER):
            [(timestamp,)] = self._alive().execute("SELECT pg_catalog.clock_timestamp()", binary=True).fetchall()
        return timestamp.astimezone(UTC)  # type: ignore[no-any-return]

    def clock(self) -> datetime | None:
        return None

    def clone(self, *, answer_seconds: float | None = None) -> PostgresStore:
        store = PostgresStore(self.url, read_only=self._read_only, answer_seconds=answer_seconds)
        store.audit = self.audit
        return store

    def run(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        with self._turn, _Explained("the database refused"):
            connection = self._alive()
            if not self._inside:
                return connection.at_once(_AT_ONCE[self._read_only], text, parameters)
            cursor = connection.execute(text.encode(), parameters)
            return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []

    def write(self, *, durable: bool = True) -> AbstractContextManager[tuple[Execute, datetime | None]]:
        del durable  # A second statement for it would cost more than it saves: statements set it themselves.
        return nullcontext((self.run, self.clock()))

    def watch(self) -> Watch:
        with _Explained("the database cannot be watched"):
            connection = _connect(self.url, answer_seconds=self._answer_seconds)
            with _closed_on_failure(connection):
                return PostgresWatch(connection, _AT_ONCE[True], _Explained)

    def identity(self) -> str:
        [(permitted,)] = self._rows(_MAY_IDENTIFY)
        return _identity(self._rows(_IDENTITY if permitted else _DATABASE))

    def reflect(self, *, own: bool = False) -> Schema:
        with self._turn, _Explained("the schema cannot be read"):
            self.located.clear()
            connection, settings = self._connected(), set_locally(_SETTINGS)
            found = reflect(connection, own=own, path=connection.search_path, settings=settings)
            return found.with_table(reflect(connection, own=True, settings=settings), "audit") if self.audit else found

    def schemas(self) -> list[str]:
        """Return the schemas in which a name without one is resolved, in their order."""
        with self.reading(_NO_ANSWER) as connection:
            return read_schemas(connection, connection.search_path)

    def read(self, statement: Statement, seconds: float, *, often: bool = False) -> list[tuple[Any, ...]]:
        if not often and not self._inside:
            limit = {"statement_timeout": _milliseconds(seconds)}
            return self.read_one(_NO_ANSWER, statement.text, statement.parameters, limit)
        with self.reading_for(seconds, by_index=often) as connection:
            if not often:
                return connection.execute(statement.text, statement.parameters).fetchall()
            # The driver would parse a long text for placeholders every time.
            text, names = numbered(statement.text, connection.info.encoding)
            values = [statement.parameters[name] for name in names]
            return psycopg.RawCursor(connection).execute(text, values, prepare=connection.may_prepare).fetchall()

    @contextmanager
    def reading_for(self, seconds: float, *, by_index: bool = False) -> Iterator[BoundedConnection]:
        """Yield the connection in a read-only transaction whose statements may take `seconds` each."""
        limit = _milliseconds(seconds)
        settings = {"statement_timeout": limit, **(BY_INDEX if by_index else {})}
        with self.reading(_NO_ANSWER, settings) as connection:
            if not self._inside:
                yield connection
                return
            [(before,)] = connection.execute("SELECT current_setting('statement_timeout')").fetchall()
            connection.execute(_LIMIT, [limit])
            yield connection
            connection.execute(_LIMIT, [before])

    @contextmanager
    def transaction(self, connection: object | None = None, *, durable: bool = True) -> Iterator[Transaction]:
        if connection is None:
            with self._own_transaction("the database refused", durable=durable) as transaction:
                yield transaction
            return
        used = driver_connection(connection, psycopg.Connection)
        own = self._own_identity = self._own_identity or self.identity()
        with _Explained("the database refused"), inside(used):
            transaction = PostgresTransaction(used)
            # Not by name: another server may have a database of the same name.
            if _identity(transaction.execute(_IDENTITY, {})) != own:
                hint = "pass a connection to the keeper's own database"
                raise StoreError("the connection is to another database", hint)
            yield transaction
            transaction.run_final_statement()

    @contextmanager
    def snapshot(self) -> Iterator[Transaction]:
        with (
            self._turn,
            _Explained(_NO_ANSWER),
            self._read_transaction({"statement_timeout": _SNAPSHOT_TIMEOUT}, level="REPEATABLE READ") as connection,
        ):
            self._inside += 1
            try:
                yield PostgresTransaction(connection)
            finally:
                self._inside -= 1

    def literal(self, statement: Statement) -> str:
        with self._turn, _Explained("the statement cannot be written"):
            cursor = psycopg.ClientCursor(self._connected())
            return cursor.mogrify(statement.text, statement.parameters)

    @contextmanager
    def exported_snapshot(self) -> Iterator[str]:
        """Hold one snapshot for readers on other connections, and yield its name."""
        with _Explained("no snapshot can be exported"):
            connection = _connect(self.url, answer_seconds=self._answer_seconds)
        try:
            with _Explained("no snapshot can be exported"):
                connection.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {set_locally(SAFE_SETTINGS)}")
                connection.execute(UNLIMITED)
                [(name,)] = connection.execute("SELECT pg_export_snapshot()").fetchall()
            yield name
        finally:
            connection.close()

    @contextmanager
    def _own_transaction(self, what: str, *hint: str, durable: bool = True) -> Iterator[PostgresTransaction]:
        # Threads that share a store take turns: inside another's transaction, a thread could not commit its own work.
        with self._turn, _Explained(what, *hint):
            used = self._connected()
            self._inside += 1
            try:
                with beginning(used, durable=durable, read_only=self._read_only) as transaction:
                    yield transaction
            finally:
                self._inside -= 1

    def call(
        self,
        functions: Sequence[SessionFunction],
        values: Sequence[object],
        settings: Mapping[str, str],
        *,
        most_seconds: float | None,
    ) -> tuple[Any, ...] | None:
        """Call the last of some functions of the session outside any transaction, in one round trip, under settings.

        None if the session cannot have the functions, or if it refused: then nothing was changed.
        """
        with self._turn, _Explained("the database refused"):
            connection = self._alive()
            if self._inside or not self._has_functions(connection, functions):
                return None
            limit = {} if most_seconds is None else {"statement_timeout": _milliseconds(most_seconds)}
            try:
                return connection.call(functions[-1].call, values, set_session({**settings, **limit}))
            except _REFUSED:
                return None

    def _has_functions(self, connection: BoundedConnection, functions: Sequence[SessionFunction]) -> bool:
        """Create functions in the session unless it has them; return whether it has them: not behind a pooler."""
        if connection.pooled:
            return False
        missing = [one for one in functions if one.name not in connection.functions]
        if missing:
            connection.functions |= dict.fromkeys((one.name for one in missing), False)
            with suppress(psycopg.ProgrammingError, psycopg.NotSupportedError):
                definitions: list[tuple[str, Mapping[str, object]]] = [
                    (one.definition.replace("%", "%%"), {}) for one in missing
                ]
                begin = f"{_READ_COMMITTED} READ WRITE"
                connection.run_in_transaction(begin, set_locally(_CREATING), definitions)
                connection.functions |= dict.fromkeys((one.name for one in missing), True)
                self.creations += 1
        return all(connection.functions[one.name] for one in functions)

    def run_bare(self, text: str, least_version: int) -> list[tuple[Any, ...]] | None:
        """Run one statement outside any transaction and without settings; it names everything in full.

        None inside a transaction, or if the server is older than the statement needs.
        """
        with self._turn, _Explained(_NO_ANSWER):
            connection = self._alive()
            if self._inside or connection.info.server_version < least_version:
                return None
            return connection.execute(text.encode(), prepare=connection.may_prepare).fetchall()

    @property
    def is_pooled(self) -> bool:
        """Return whether the URL leads to a connection pooler, so that no session is the store's own."""
        return self._alive().pooled

    def dedicated_session(self, text: str, wait_seconds: float) -> None:
        """Run one statement outside any transaction, however long it takes: one that builds or detaches concurrently.

        Its settings can only be the session's; `partitions_of` has checked that the session is the store's own.
        """
        with self._turn, _Explained("the database refused"):
            connection = self._connected()
            settings = {**_SETTINGS, "lock_timeout": str(int(wait_seconds * 1000))}
            for name, value in settings.items():
                connection.execute("SELECT pg_catalog.set_config(%s, %s, false)", [name, value])
            try:
                connection.execute(text.encode())
            finally:
                if not connection.closed:
                    connection.execute("RESET ALL")

    def applied_migrations(self) -> list[str]:
        hint = (
            f"{_ADMIN_ROLE}. To read only the pressure, the reader role and"
            f" {OWN_SCHEMA}.v_queue_retention_pressure are enough"
        )
        with self._turn, _Explained("Wane's own tables cannot be read", hint), self._read_transaction() as connection:
            [(known,)] = connection.execute(_HAS_TABLE).fetchall()
            return [name for (name,) in connection.execute(_APPLIED).fetchall()] if known else []

    def migrate(self) -> list[str]:
        with self._turn:
            return self._migrate(self._connected())

    def _migrate(self, connection: BoundedConnection) -> list[str]:
        access = "READ ONLY" if self._read_only else "READ WRITE"
        # A second process waits for the first, for longer than any other lock is worth.
        settings = set_locally({**_SETTINGS, "lock_timeout": str(_MIGRATION_MILLISECONDS)})
        hint = (
            f"let the database's owner run `GRANT CREATE ON DATABASE … TO {connection.info.user}`, or "
            f"`CREATE SCHEMA {OWN_SCHEMA} AUTHORIZATION {connection.info.user}`, or what `wane migrate --print` prints,"
            " and then `wane roles --apply`, and grant it the contract's admin role"
        )
        explained = _Explained("Wane's own tables cannot be created", hint)
        with (
            explained,
            opened(connection, f"{_READ_COMMITTED} {access}; {settings}"),
        ):
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_MIGRATION_LOCK])
            [(owner,)] = connection.execute(_SCHEMA_OWNER)
            if owner is not None:
                explained.grant = f"schema {OWN_SCHEMA} belongs to {owner}: {_AS_OWNER}"
            else:  # Even with IF NOT EXISTS it would need the right to create schemas.
                connection.execute(f"CREATE SCHEMA {OWN_SCHEMA}")
            [(known,)] = connection.execute(_HAS_TABLE)
            if not known:
                connection.execute(_MIGRATION_TABLE)
            lacking = pending(self.kind, [name for (name,) in connection.execute(_APPLIED)])
            for migration in lacking:
                connection.execute(migration.sql.encode())
                connection.execute(f"INSERT INTO {OWN_SCHEMA}.migration (name) VALUES (%s)", [migration.name])
        self._migrated = True
        return [migration.name for migration in lacking]

    def _rows(self, text: str) -> list[tuple[Any, ...]]:
        return self.read_one(_NO_ANSWER, text, {})


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000) or 1)  # Zero would be no limit.


def _connect(url: DatabaseUrl, *, answer_seconds: float | None = None) -> BoundedConnection:
    try:
        given = conninfo_to_dict(url.raw)
        connection = BoundedConnection.connect(
            url.raw,
            autocommit=True,
            application_name="wane",
            prepare_threshold=None,
            **{name: value for name, value in _CONNECTION.items() if name not in given},
        )
    except (psycopg.Error, UnicodeError) as problem:
        raise Unreachable(
            f"{url.shown} cannot be reached: {_first_line(problem)}", "check the URL and that it runs"
        ) from problem
    connection.answer_seconds = answer_seconds
    with _closed_on_failure(connection), _Explained("the connection cannot be set up"):
        connection.recognise()
    return connection


@contextmanager
def _closed_on_failure(connection: BoundedConnection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _identity(found: list[tuple[Any, ...]]) -> str:
    [(system, database)] = found
    return f"postgres:{system}:{database}"


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0]


def _pinning(problem: psycopg.Error) -> str:
    """Return the hint for an application's function that uses a bare name, which Wane's search path does not have."""
    called = _IN_FUNCTION.search(problem.diag.context or "")
    if called is None:
        return ""
    return (
        f"{called[1]} uses a bare name, and Wane's transactions find nothing by one but what is PostgreSQL's own:"
        f" `ALTER FUNCTION {called[1]} SET search_path = …, pg_temp`, or name schemas in it"
    )


_ENDED_BY_SERVER: Mapping[type[Exception], str] = {
    psycopg.errors.IdleInTransactionSessionTimeout: "idle_in_transaction_session_timeout",
    psycopg.errors.TransactionTimeout: "transaction_timeout",
}
"""How the server ends a connection whose transaction pauses, or lasts, for too long, as on a host that is overloaded;
and the setting that limits it.

The driver does not count these as errors of the connection."""


class _Explained:
    """Convert the driver's errors to Wane's, with messages for users."""

    __slots__ = ("_what", "grant")

    def __init__(self, what: str, grant: str = "") -> None:
        self._what, self.grant = what, grant

    def __enter__(self) -> None:
        """Do nothing: errors are converted when they leave the block."""

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        if isinstance(problem, psycopg.Error):
            raise _explain(problem, self._what, self.grant) from problem


def _privilege(message: str) -> str:
    """Return the hint for a privilege that is missing: what only an owner may do, no grant allows."""
    if "row-level security" in message:
        return SEES_ALL_ROWS
    if _OWNED.match(message):
        return _AS_OWNER
    if denied := _OF_SCHEMA.match(message):
        schema = denied["schema"]
        if schema == OWN_SCHEMA:
            creating = "`wane migrate`, `wane sql install` and `wane partition convert`"
            return f"{_ADMIN_ROLE}; {creating} create there what needs the schema's owner, or a member of its role"
        return (
            f"let its owner grant the role that runs Wane USAGE on schema {schema}, and CREATE to create anything there"
        )
    return _ADMIN_ROLE


def _explain(problem: psycopg.Error, what: str, grant: str) -> WaneError:
    """Return Wane's error for one of the driver's."""
    if isinstance(problem, psycopg.errors.QueryCanceled):
        return TimedOut("a read took longer than it may")
    if isinstance(problem, psycopg.errors.LockNotAvailable):
        return Locked(f"{what}: lock contention: another transaction holds a lock that is needed")
    if isinstance(problem, psycopg.errors.DeadlockDetected):
        return Locked(f"{what}: deadlock with another transaction")
    text = f"{what}: {_first_line(problem)}"
    if isinstance(problem, psycopg.errors.InsufficientPrivilege):
        return StoreError(text, grant or _privilege(_first_line(problem)))
    if isinstance(problem, _UNKNOWN_NAMES):
        if hint := _pinning(problem):
            return StoreError(text, hint)
        return SchemaChanged(text, "a table or a column that a statement names is no longer as it was")
    if isinstance(problem, psycopg.errors.ReadOnlySqlTransaction):
        return StoreError(
            text, "connect to the primary if this is a standby; otherwise turn off `default_transaction_read_only`"
        )
    if isinstance(problem, (psycopg.OperationalError, *_ENDED_BY_SERVER)):
        hint = (
            "nothing of it was committed, unless the connection broke during the commit; the next call connects again"
        )
        if setting := _ENDED_BY_SERVER.get(type(problem)):
            hint = f"{hint}; if the host is not overloaded, raise `{setting}` of the role that runs Wane (ALTER ROLE)"
        return Unreachable(text, hint)
    return StoreError(text)
