"""The PostgreSQL store: one database, its clock and its planner."""

from __future__ import annotations

import re
import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from wane._contract.names import TableName, join_name
from wane._db.migrations import pending
from wane._db.postgres.bounded import AtOnceTransaction, BoundedConnection, numbered
from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.postgres.dialect import PostgresDialect, PostgresTypes
from wane._db.postgres.gate import GATE
from wane._db.postgres.plpgsql import SessionFunction
from wane._db.postgres.reflect import read_schemas, reflect
from wane._db.postgres.settings import BY_INDEX, SAFE_SETTINGS, SEARCH_PATH, UNLIMITED, set_locally, set_session
from wane._db.postgres.transaction import LOCAL_SETTINGS, PostgresTransaction, beginning, inside, opened
from wane._db.postgres.watch import PostgresWatch
from wane._db.queryplan import QueryPlan, read_postgres_plan
from wane._db.schema import Column, Kind, Schema, TableInfo, index_name
from wane._db.statement import Execute, Statement
from wane._db.store import Activity, Store, Watch
from wane._db.transaction import Transaction, driver_connection
from wane._db.url import DatabaseUrl
from wane.errors import Locked, SchemaChanged, StoreError, TimedOut, Unreachable

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
_ESTIMATE = {
    # A parallel plan would report the rows of one worker.
    "max_parallel_workers_per_gather": "0",
    # An estimate is not worth waiting for.
    "lock_timeout": "200ms",
}
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
    # The session's own default; other transactions say otherwise when they begin.
    psycopg.errors.ReadOnlySqlTransaction,
    # Something discarded what the session had.
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
)
"""The errors of a function that must not do what it was called for: it raises the first one itself."""
_IN_FUNCTION = re.compile(r"^PL/pgSQL function (.+\)) line ", re.MULTILINE)
_MIGRATION_LOCK = GATE
"""Serialises migrations; held only inside one transaction, so connection poolers do not disturb it."""

_KNOWS_ACTIVITY = 150000
"""Since this version, counters are up to date soon enough."""
_ACTIVITY = """
SELECT pg_catalog.pg_stat_force_next_flush(), pg_catalog.pg_stat_get_db_xact_commit(d.oid),
  pg_catalog.pg_stat_get_db_xact_rollback(d.oid), pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text
FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
"""
"""This session's own counters are written at once, the others' about every second; the next transaction's number is
known at once."""

_QUIET = """
SELECT extract(epoch FROM clock_timestamp() - max(state_change))::float8,
  count(*) = count(*) FILTER (WHERE state LIKE 'idle%%')
FROM pg_catalog.pg_stat_activity WHERE datid IS NOT NULL AND pid <> pg_backend_pid()
"""
"""How long ago another session did something, and whether all of them are idle, as far as this role may know."""
_NO_SESSIONS_SECONDS = 3600.0
"""For how long nobody was there where no other session is: how long, nobody knows."""

_IDENTITY = """
SELECT (SELECT system_identifier FROM pg_control_system()), oid FROM pg_database WHERE datname = current_database()
"""
_DATABASE = "SELECT '', oid FROM pg_database WHERE datname = current_database()"
_MAY_IDENTIFY = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')"
_SCHEMA_OF = """
SELECT space.nspname::text
FROM unnest(%(schemas)s::text[]) WITH ORDINALITY AS searched (name, position)
JOIN pg_catalog.pg_namespace AS space ON space.nspname = searched.name
JOIN pg_catalog.pg_class AS class ON class.relnamespace = space.oid AND class.relname = %(name)s
ORDER BY searched.position
LIMIT 1
"""
_APPLIED = f"SELECT name FROM {OWN_SCHEMA}.migration ORDER BY name"
_HAS_TABLE = f"SELECT to_regclass('{OWN_SCHEMA}.migration') IS NOT NULL"
_HAS_SCHEMA = f"SELECT to_regnamespace('{OWN_SCHEMA}') IS NOT NULL"
_MIGRATION_TABLE = (
    f"CREATE TABLE IF NOT EXISTS {OWN_SCHEMA}.migration"
    " (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
)

_BEHIND = """
WITH RECURSIVE reads AS (
    SELECT to_regclass(%(view)s)::oid AS relation
  UNION
    SELECT source.refobjid
    FROM reads
    JOIN pg_catalog.pg_rewrite AS rule ON rule.ev_class = reads.relation
    JOIN pg_catalog.pg_depend AS source
      ON source.classid = 'pg_catalog.pg_rewrite'::regclass AND source.objid = rule.oid
     AND source.refclassid = 'pg_catalog.pg_class'::regclass
)
SELECT DISTINCT namespace.nspname::text, class.relname::text
FROM reads
JOIN pg_catalog.pg_class AS class ON class.oid = reads.relation AND class.relkind IN ('r', 'p')
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = class.relnamespace
ORDER BY 1, 2
"""


_PARTS = """
SELECT class.reltuples::float8, class.relpages, pg_relation_size(class.oid) / current_setting('block_size')::float8
FROM pg_partition_tree(%(table)s::regclass) AS part JOIN pg_class AS class ON class.oid = part.relid
WHERE part.isleaf
"""
_LEAST_PLANNED_PAGES = 10
"""As many pages as the planner supposes that a table has that was never analyzed."""


def _rows_of_parts(planned: int, parts: Sequence[tuple[float, int, float]]) -> int:
    """Estimate the rows of all partitions by their sizes: the planner supposes rows in those that are new and empty."""
    known = [(tuples / pages, size) for tuples, pages, size in parts if tuples >= 0 and pages > 0]
    new = [size for tuples, pages, size in parts if tuples < 0 or pages == 0]
    counted, pages = sum(density * size for density, size in known), sum(size for _, size in known)
    supposed = sum(max(size, _LEAST_PLANNED_PAGES) for size in new)
    density = counted / pages if pages else planned / supposed if supposed else 0.0
    return round(counted + density * sum(new))


class PostgresStore(Store):
    """A PostgreSQL database."""

    kind = "postgres"
    own_activity = Activity(changes=1, transactions=2)
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
        self._located: dict[TableName, TableName] = {}
        try:
            if self._connection.info.server_version < OLDEST_VERSION:
                raise StoreError(f"{self.version()} is too old", "Wane needs PostgreSQL 14 or newer")
            self.is_migrated()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closed = True
        self._connection.close()

    def _cancel(self) -> None:
        with suppress(psycopg.Error):  # Without an answer, the statement's own limit ends it.
            self._connection.cancel_safe(timeout=_CANCEL_SECONDS)

    def _connected(self) -> BoundedConnection:
        """Return the connection, with no setting of an earlier call: see `_alive`."""
        connection = self._alive()
        connection.end_calls()
        return connection

    def _alive(self) -> BoundedConnection:
        """Return the connection; a new one if it broke since the last call, but never inside a transaction."""
        self._require_uninterrupted()
        connection = self._connection
        if self._inside:
            return connection
        if not connection.closed and _has_news(connection):
            # The server sends nothing on an idle connection, except that it is closing it.
            with suppress(psycopg.OperationalError):
                connection.execute("SELECT 1")
        if connection.closed and not self._closed:
            self._connection = _connect(self.url, answer_seconds=self._answer_seconds)
        return self._connection

    @contextmanager
    def _looking(
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

    def now(self) -> datetime:
        # clock_timestamp, not now(): the latter is fixed inside a transaction.
        [(timestamp,)] = self._rows("SELECT clock_timestamp()")
        return timestamp.astimezone(UTC)  # type: ignore[no-any-return]

    def clock(self) -> datetime | None:
        return None

    def clone(self, *, answer_seconds: float | None = None) -> PostgresStore:
        store = PostgresStore(self.url, read_only=self._read_only, answer_seconds=answer_seconds)
        store.audit = self.audit
        return store

    def tables_behind(self, view: TableInfo) -> list[str]:
        found = self.run(_BEHIND, {"view": self.dialect.table(view).replace("%%", "%")})
        return [join_name([schema, name]) for schema, name in found]

    def run(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        with self._turn, _explained("the database refused"):
            connection = self._alive()
            if self._inside:
                cursor = connection.execute(text.encode(), parameters)
            else:
                cursor = connection.at_once(_AT_ONCE[self._read_only], text, parameters)
            return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []

    @contextmanager
    def write(self, *, durable: bool = True) -> Iterator[tuple[Execute, datetime | None]]:
        del durable  # A second statement for it would cost more than it saves: statements set it themselves.
        yield self.run, self.clock()

    def watch(self) -> Watch:
        with _explained("the database cannot be watched"):
            connection = _connect(self.url, answer_seconds=self._answer_seconds)
            return PostgresWatch(connection, _AT_ONCE[True], _explained)

    def identity(self) -> str:
        [(permitted,)] = self._rows(_MAY_IDENTIFY)
        return _identity(self._rows(_IDENTITY if permitted else _DATABASE))

    def is_same_database(self, identity: str) -> bool:
        # A physical replica that was promoted has the same system identifier and the same database oid.
        system, number = identity.split(":")[1:]
        now, same = self.identity().split(":")[1:]
        return number == same and (system == now or not system or not now)

    def version(self) -> str:
        return f"PostgreSQL {self._connection.info.parameter_status('server_version')}"

    def reflect(self, *, own: bool = False) -> Schema:
        with (
            self._turn,
            _explained("the schema cannot be read"),
            self._looking(level="REPEATABLE READ") as connection,
        ):
            self.forget_located()
            found = reflect(connection, own=own, path=connection.search_path)
            return found.with_table(reflect(connection, own=True), "audit") if self.audit else found

    def locate(self, name: TableName) -> TableName:
        if name.schema is not None:
            return name
        known = self._located.get(name)
        if known is not None:
            return known
        with self._turn, _explained("the schema cannot be read"), self._looking() as connection:
            schemas = read_schemas(connection, connection.search_path)
            found = connection.execute(_SCHEMA_OF, {"schemas": schemas, "name": name.name}).fetchall()
        for (schema,) in found:
            self._located[name] = TableName(name.name, schema)
        return self._located.get(name, name)  # A table that is missing may be created at any time.

    def forget_located(self) -> None:
        self._located.clear()

    def schemas(self) -> list[str]:
        """Return the schemas in which a name without one is resolved, in their order."""
        with self._turn, _explained("the database refused to answer"), self._looking() as connection:
            return read_schemas(connection, connection.search_path)

    def read(self, statement: Statement, seconds: float, *, often: bool = False) -> list[tuple[Any, ...]]:
        with self._reading(seconds, by_index=often) as connection:
            if not often:
                return connection.execute(statement.text, statement.parameters).fetchall()
            # The driver would parse a long text for placeholders every time.
            text, names = numbered(statement.text)
            values = [statement.parameters[name] for name in names]
            return psycopg.RawCursor(connection).execute(text, values, prepare=connection.may_prepare).fetchall()

    @contextmanager
    def _reading(self, seconds: float, *, by_index: bool = False) -> Iterator[BoundedConnection]:
        limit = str(int(seconds * 1000) or 1)
        settings = {"statement_timeout": limit, **(BY_INDEX if by_index else {})}
        with self._turn, _explained("the database refused to answer"), self._looking(settings) as connection:
            if not self._inside:
                yield connection
                return
            [(before,)] = connection.execute("SELECT current_setting('statement_timeout')").fetchall()
            connection.execute(_LIMIT, [limit])
            yield connection
            connection.execute(_LIMIT, [before])

    def time_read(self, statement: Statement, times: int, seconds: float) -> float:
        taken = []
        with self._reading(seconds, by_index=True) as connection:
            for _ in range(times):
                began = time.perf_counter()
                connection.execute(statement.text, statement.parameters, prepare=connection.may_prepare).fetchall()
                taken.append(time.perf_counter() - began)
        return min(taken)

    def activity(self) -> Activity | None:
        with self._turn, _explained("the database refused to answer"):
            connection = self._alive()
            if self._inside or connection.info.server_version < _KNOWS_ACTIVITY:
                return None
            # Without settings, whose names and values it does not use: it is asked after every batch.
            cursor = connection.execute(_ACTIVITY, prepare=connection.may_prepare)
            [(_, transactions, undone, next_transaction)] = cursor.fetchall()
            return Activity(int(next_transaction), transactions + undone)

    def quiet_seconds(self) -> float:
        with self._turn, _explained("the database refused to answer"), self._looking() as connection:
            [(seconds, idle)] = connection.execute(_QUIET, {}).fetchall()
        return (_NO_SESSIONS_SECONDS if seconds is None else max(seconds, 0.0)) if idle else 0.0

    def estimate_rows(self, table: TableInfo) -> int | None:
        planned = self.estimate(Statement(f"SELECT 1 FROM {self.dialect.table(table)}", {}))
        if planned is None or table.kind is not Kind.PARTITIONED:
            return planned
        with self._turn, _explained("the database refused to answer"), self._looking() as connection:
            parts = connection.execute(_PARTS, {"table": self.dialect.table(table)}).fetchall()
        return _rows_of_parts(planned, parts)

    def row_numbers(self, table: TableInfo) -> tuple[int, int] | None:
        del table  # Rows have no numbers, only positions, which updates change.
        return None

    def count_after(self, table: TableInfo, number: int, most: int, seconds: float) -> int:
        raise NotImplementedError("PostgreSQL numbers no rows")

    def explain(self, statement: Statement) -> str:
        with self._turn, _explained("the statement cannot be explained"), self._looking() as connection:
            found = connection.execute(f"EXPLAIN {statement.text}", statement.parameters).fetchall()
        return "\n".join(line for (line,) in found)

    def query_plan(self, statement: Statement) -> QueryPlan:
        with self._turn, _explained("the statement cannot be explained"), self._looking() as connection:
            explained = connection.execute(f"EXPLAIN (FORMAT JSON) {statement.text}", statement.parameters)
            [([tree],)] = explained.fetchall()
        return read_postgres_plan(tree["Plan"])

    def estimate(self, statement: Statement) -> int | None:
        with self._turn, _explained("the statement cannot be explained"), self._looking(_ESTIMATE) as connection:
            explained = connection.execute(f"EXPLAIN (FORMAT JSON) {statement.text}", statement.parameters)
            [([tree],)] = explained.fetchall()
        node = tree["Plan"]
        while node["Node Type"] == "Aggregate":
            # Besides its input, a node lists the subqueries of its conditions.
            node = next(one for one in node["Plans"] if one["Parent Relationship"] == "Outer")
        return int(node["Plan Rows"])

    def index_ddl(self, table: TableInfo, columns: Sequence[Column], time: Column | None, where: str = "") -> str:
        quote = self.dialect.quote
        parts = [
            quote(column.name) + (' COLLATE "C"' if column == time and column.collation is not None else "")
            for column in columns
        ]
        # CONCURRENTLY does not exist for partitioned tables.
        how = "CREATE INDEX" if table.kind.value == "partitioned table" else "CREATE INDEX CONCURRENTLY"
        text = f"{how} {quote(index_name(table, columns))} ON {self.dialect.table(table)} ({', '.join(parts)})"
        return (f"{text} WHERE {where};" if where else f"{text};").replace("%%", "%")

    @contextmanager
    def transaction(self, connection: object | None = None, *, durable: bool = True) -> Iterator[Transaction]:
        if connection is None:
            with self._own_transaction("the database refused", durable=durable) as transaction:
                yield transaction
            return
        used = driver_connection(connection, psycopg.Connection)
        own = self._own_identity = self._own_identity or self.identity()
        with _explained("the database refused"), inside(used):
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
            _explained("the database refused to answer"),
            self._looking({"statement_timeout": _SNAPSHOT_TIMEOUT}, level="REPEATABLE READ") as connection,
        ):
            self._inside += 1
            try:
                yield PostgresTransaction(connection)
            finally:
                self._inside -= 1

    def literal(self, statement: Statement) -> str:
        with self._turn, _explained("the statement cannot be written"):
            cursor = psycopg.ClientCursor(self._connected())
            return cursor.mogrify(statement.text, statement.parameters)

    @contextmanager
    def exported_snapshot(self) -> Iterator[str]:
        with _explained("no snapshot can be exported"):
            connection = _connect(self.url, answer_seconds=self._answer_seconds)
        try:
            with _explained("no snapshot can be exported"):
                connection.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {set_locally(SAFE_SETTINGS)}")
                connection.execute(UNLIMITED)
                [(name,)] = connection.execute("SELECT pg_export_snapshot()").fetchall()
            yield name
        finally:
            connection.close()

    @contextmanager
    def _own_transaction(self, what: str, *hint: str, durable: bool = True) -> Iterator[PostgresTransaction]:
        # Threads that share a store take turns: inside another's transaction, a thread could not commit its own work.
        with self._turn, _explained(what, *hint):
            used = self._connected()
            self._inside += 1
            try:
                with beginning(used, durable=durable, read_only=self._read_only) as transaction:
                    yield transaction
            finally:
                self._inside -= 1

    def call(
        self, functions: Sequence[SessionFunction], values: Sequence[object], *, most_seconds: float | None
    ) -> tuple[Any, ...] | None:
        """Call the last of some functions of the session outside any transaction, in one round trip.

        None if the session cannot have the functions, or if it refused: then nothing was changed.
        """
        with self._turn, _explained("the database refused"):
            connection = self._alive()
            if self._inside or not all(self._has_function(connection, one) for one in functions):
                return None
            limit = (
                LOCAL_SETTINGS["statement_timeout"] if most_seconds is None else f"{int(most_seconds * 1000) or 1}ms"
            )
            try:
                return connection.call(functions[-1].call, values, limit)
            except _REFUSED:
                return None

    def _has_function(self, connection: BoundedConnection, function: SessionFunction) -> bool:
        """Create a function in the session unless it has it; return whether it has it: not behind a pooler."""
        if connection.pooled:
            return False
        if function.name not in connection.functions:
            connection.functions[function.name] = False
            with suppress(psycopg.ProgrammingError, psycopg.NotSupportedError):
                with opened(connection, f"{_READ_COMMITTED} READ WRITE; {set_locally(LOCAL_SETTINGS)}"):
                    connection.execute(function.definition.encode())
                connection.functions[function.name] = True
        return connection.functions[function.name]

    @property
    def is_pooled(self) -> bool:
        """Return whether the URL leads to a connection pooler, so that no session is the store's own."""
        return self._alive().pooled

    def alone(self, text: str, wait_seconds: float) -> None:
        """Run one statement outside any transaction, however long it takes: one that builds or detaches concurrently.

        Its settings can only be the session's; `partitions_of` has checked that the session is the store's own.
        """
        with self._turn, _explained("the database refused"):
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
            "the role that runs Wane needs the contract's admin role: `wane roles --apply`, then GRANT it. Who only wants to see the"
            f" pressure needs the reader role, and asks {OWN_SCHEMA}.v_queue_retention_pressure"
        )
        with self._turn, _explained("Wane's own tables cannot be read", hint), self._looking() as connection:
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
            f"`CREATE SCHEMA {OWN_SCHEMA} AUTHORIZATION {connection.info.user}`, or what `wane migrate --print` prints"
        )
        with (
            _explained("Wane's own tables cannot be created", hint),
            opened(connection, f"{_READ_COMMITTED} {access}; {settings}"),
        ):
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_MIGRATION_LOCK])
            [(prepared,)] = connection.execute(_HAS_SCHEMA)
            if not prepared:  # Even with IF NOT EXISTS it would need the right to create schemas.
                connection.execute(f"CREATE SCHEMA {OWN_SCHEMA}")
            [(known,)] = connection.execute(_HAS_TABLE)
            if not known:
                connection.execute(_MIGRATION_TABLE)
            lacking = pending(self.kind, [name for (name,) in connection.execute(_APPLIED)])
            for migration in lacking:
                connection.execute(migration.sql.encode())
                connection.execute(f"INSERT INTO {OWN_SCHEMA}.migration (name) VALUES (%s)", [migration.name])
        self.migrated = True
        return [migration.name for migration in lacking]

    def _rows(self, text: str) -> list[tuple[Any, ...]]:
        with self._turn, _explained("the database refused to answer"), self._looking() as connection:
            return connection.execute(text.encode()).fetchall()


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
    with _explained("the connection cannot be set up"):
        connection.recognise()
    return connection


def _has_news(connection: psycopg.Connection[Any]) -> bool:
    """Check whether the server sent something that has not been read."""
    readable = select.poll()
    readable.register(connection.fileno(), select.POLLIN)
    return bool(readable.poll(0))


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


@contextmanager
def _explained(what: str, grant: str = "grant the role what it needs, or use another") -> Iterator[None]:
    """Convert the driver's errors to Wane's, with messages for users."""
    try:
        yield
    except psycopg.errors.QueryCanceled as problem:
        raise TimedOut("a read took longer than it may") from problem
    except psycopg.errors.LockNotAvailable as problem:
        raise Locked(f"{what}: others hold locks that it needs") from problem
    except psycopg.errors.DeadlockDetected as problem:
        raise Locked(f"{what}: others hold locks that it needs, and wait for its own") from problem
    except psycopg.errors.InsufficientPrivilege as problem:
        raise StoreError(f"{what}: {_first_line(problem)}", grant) from problem
    except _UNKNOWN_NAMES as problem:
        if hint := _pinning(problem):
            raise StoreError(f"{what}: {_first_line(problem)}", hint) from problem
        hint = "a table or a column that a statement names is no longer as it was"
        raise SchemaChanged(f"{what}: {_first_line(problem)}", hint) from problem
    except psycopg.errors.ReadOnlySqlTransaction as problem:
        hint = "the connection or the server is read-only; a standby's primary is not"
        raise StoreError(f"{what}: {_first_line(problem)}", hint) from problem
    except psycopg.OperationalError as problem:
        hint = (
            "nothing of it was committed, unless the connection broke during the commit; the next call connects again"
        )
        raise Unreachable(f"{what}: {_first_line(problem)}", hint) from problem
    except psycopg.Error as problem:
        raise StoreError(f"{what}: {_first_line(problem)}") from problem
