"""The PostgreSQL store: one database, its clock and its planner."""

from __future__ import annotations

import re
import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from wane.contract.model import Contract, Shelve
from wane.contract.names import TableName, join_name
from wane.errors import Locked, SchemaChanged, StoreError, TimedOut, Unreachable
from wane.store.archive_reader import UNLIMITED, Source
from wane.store.base import Store, Watch
from wane.store.looks import Look
from wane.store.migrations import migrations
from wane.store.own import Execute
from wane.store.postgres.archive import PostgresArchive
from wane.store.postgres.bounded import BoundedConnection
from wane.store.postgres.cold import preview_shelving
from wane.store.postgres.dialect import PostgresDialect, PostgresTypes
from wane.store.postgres.functions.stamp import FINGERPRINT
from wane.store.postgres.messages import PostgresMessages
from wane.store.postgres.partition import PostgresPartitions
from wane.store.postgres.reflect import OWN_SCHEMA, read_schemas, reflect
from wane.store.postgres.restore import PostgresRestore
from wane.store.postgres.roles import RolePlanner
from wane.store.postgres.settings import SAFE_SETTINGS, SEARCH_PATH, set_locally
from wane.store.postgres.sizes import table_size
from wane.store.postgres.space import read_sizes, read_space
from wane.store.postgres.transaction import PostgresTransaction, beginning, inside, opened, takes_by_key
from wane.store.postgres.watch import PostgresWatch
from wane.store.roles import RolePlan
from wane.store.rows import Rows
from wane.store.schema import Column, Schema, TableInfo, index_name
from wane.store.selection import Selection
from wane.store.space import DatabaseSpace, Size, TableSpace
from wane.store.statement import Statement
from wane.store.timetable import Timetable
from wane.store.transaction import Transaction, driver_connection
from wane.store.url import DatabaseUrl

OLDEST_VERSION = 140000
CONNECT_SECONDS = 10
_LOCK_MILLISECONDS = 5_000
_CONNECTION: dict[str, Any] = {
    "connect_timeout": CONNECT_SECONDS,
    # A server that vanished without a word is noticed in half a minute, not in hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""What a URL does not say itself."""
_SETTINGS = {
    **SAFE_SETTINGS,
    "lock_timeout": str(_LOCK_MILLISECONDS),
    # Statements are short; compiling them would take longer than running them.
    "jit": "off",
}
_BY_INDEX = {
    # The plan of a prepared statement is kept. One that was made while a table was nearly empty would read all of it, over and over, when it is full.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    # There is one good plan: planning anew costs as much as running.
    "plan_cache_mode": "force_generic_plan",
}
_MIGRATION_MILLISECONDS = 60_000
_ESTIMATE = {
    # A parallel plan would tell the rows of one worker.
    "max_parallel_workers_per_gather": "0",
    # A guess is not worth waiting for.
    "lock_timeout": "200ms",
}
_READ_COMMITTED = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BY_INDEX_SETTINGS = set_locally({**_SETTINGS, **_BY_INDEX})
_LIMIT = "SELECT pg_catalog.set_config('statement_timeout', %s, true)"
_PLACEHOLDER = re.compile(r"%\((\w+)\)s|%%")
_KEPT_TEXTS = 128
_UNKNOWN_NAMES = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.UndefinedObject,
)
"""What a statement fails with that names what is not there: an operator is a function, too, and a type an object."""
_IN_FUNCTION = re.compile(r"^PL/pgSQL function (.+\)) line ", re.MULTILINE)
_MIGRATION_LOCK = 0x77616E65
"""Serialises migrations; held only inside one transaction, so connection poolers do not disturb it."""

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
_MEMBERSHIP = """
SELECT current_user, pg_has_role(current_user, oid, 'USAGE'), pg_has_role(current_user, oid, 'MEMBER')
FROM pg_catalog.pg_roles WHERE rolname = %(role)s
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


class PostgresStore(Store):
    """A PostgreSQL database."""

    kind = "postgres"
    migration_list = f"SET search_path = {SEARCH_PATH};\nCREATE SCHEMA IF NOT EXISTS {OWN_SCHEMA};\n{_MIGRATION_TABLE}"
    migration_end = "RESET search_path;\n"
    migration_entry = f"INSERT INTO {OWN_SCHEMA}.migration (name) VALUES ('{{}}')"

    def __init__(self, url: DatabaseUrl, *, read_only: bool, answer_seconds: float | None = None) -> None:
        self.shown = url.shown
        self.rows = Rows(PostgresDialect())
        self.types = PostgresTypes()
        self.messages = PostgresMessages(self.rows.dialect)
        self.timetable = Timetable(self.rows.dialect, locks=True)
        self.archive = PostgresArchive()
        self.restore = PostgresRestore()
        self._url = url
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
            self.rows.with_holds = self.is_migrated()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closed = True
        self._connection.close()

    def _connected(self) -> BoundedConnection:
        """The connection; a new one if it broke since the last call, but never inside a transaction."""
        connection = self._connection
        if self._inside:
            return connection
        if not connection.closed and _has_news(connection):
            # Nobody speaks to an idle connection, but a server that says goodbye.
            with suppress(psycopg.OperationalError):
                connection.execute("SELECT 1")
        if connection.closed and not self._closed:
            self._connection = _connect(self._url, answer_seconds=self._answer_seconds)
        return self._connection

    @contextmanager
    def _looking(
        self, settings: Mapping[str, str] = MappingProxyType({}), level: str = "READ COMMITTED"
    ) -> Iterator[BoundedConnection]:
        """The connection, in a transaction that reads; inside a transaction, in that one, whose settings stay as they are."""
        connection = self._connected()
        if self._inside:
            yield connection
            return
        begin = f"BEGIN ISOLATION LEVEL {level} READ ONLY; {set_locally({**_SETTINGS, **settings})}"
        with opened(connection, begin):
            yield connection

    def now(self) -> datetime:
        # clock_timestamp, not now(): the latter stands still inside a transaction.
        [(moment,)] = self._rows("SELECT clock_timestamp()")
        return moment.astimezone(UTC)  # type: ignore[no-any-return]

    def clock(self) -> datetime | None:
        return None

    def again(self, *, answer_seconds: float | None = None) -> PostgresStore:
        store = PostgresStore(self._url, read_only=self._read_only, answer_seconds=answer_seconds)
        store.audit = self.audit
        return store

    def tables_behind(self, view: TableInfo) -> list[str]:
        found = self.run(_BEHIND, {"view": self.rows.dialect.table(view).replace("%%", "%")})
        return [join_name([schema, name]) for schema, name in found]

    def run(self, text: str, parameters: dict[str, object]) -> list[tuple[Any, ...]]:
        with self._turn, _explained("the database refused"):
            connection = self._connected()
            if self._inside:
                cursor = connection.execute(text.encode(), parameters)
            else:
                begin = f"{_READ_COMMITTED} {'READ ONLY' if self._read_only else 'READ WRITE'}"
                cursor = connection.at_once(begin, _BY_INDEX_SETTINGS, text, parameters)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def acting(self, *, durable: bool = True) -> Iterator[tuple[Execute, datetime | None]]:
        del durable  # A second statement to say so would cost more than it saves: statements say it themselves.
        yield self.run, self.clock()

    def watch(self) -> Watch:
        with _explained("the database cannot be watched"):
            connection = _connect(self._url, answer_seconds=self._answer_seconds)
            return PostgresWatch(connection, set_locally(_SETTINGS), _explained)

    def identity(self) -> str:
        [(permitted,)] = self._rows(_MAY_IDENTIFY)
        return _identity(self._rows(_IDENTITY if permitted else _DATABASE))

    def is_same_database(self, identity: str) -> bool:
        # A physical replica that was promoted has the same system identifier and the same number of the database.
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
        """The schemas in which a name without one is looked up, in their order."""
        with self._turn, _explained("the database refused to answer"), self._looking() as connection:
            return read_schemas(connection, connection.search_path)

    def read(self, statement: Statement, seconds: float, *, often: bool = False) -> list[tuple[Any, ...]]:
        with self._reading(seconds, by_index=often) as connection:
            if not often:
                return connection.execute(statement.text, statement.parameters).fetchall()
            # The driver would look for placeholders in a long text again every time.
            text, names = _numbered(statement.text)
            values = [statement.parameters[name] for name in names]
            return psycopg.RawCursor(connection).execute(text, values, prepare=connection.may_prepare).fetchall()

    @contextmanager
    def _reading(self, seconds: float, *, by_index: bool = False) -> Iterator[BoundedConnection]:
        limit = str(int(seconds * 1000) or 1)
        settings = {"statement_timeout": limit, **(_BY_INDEX if by_index else {})}
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

    def estimate_rows(self, table: TableInfo) -> int | None:
        return self.estimate(Statement(f"SELECT 1 FROM {self.rows.dialect.table(table)}", {}))

    def size_look(self, table: TableInfo) -> Look | None:
        return partial(table_size, table=table)

    def functions_fingerprint(self, seconds: float) -> str | None:
        found = self.read(Statement(FINGERPRINT.replace("%", "%%"), {}), seconds)
        return str(found[0][0]) if found else None

    def explain(self, statement: Statement) -> str:
        with self._turn, _explained("the statement cannot be explained"), self._looking() as connection:
            found = connection.execute(f"EXPLAIN {statement.text}", statement.parameters).fetchall()
        return "\n".join(line for (line,) in found)

    def estimate(self, statement: Statement) -> int | None:
        with self._turn, _explained("the statement cannot be explained"), self._looking(_ESTIMATE) as connection:
            explained = connection.execute(f"EXPLAIN (FORMAT JSON) {statement.text}", statement.parameters)
            [([tree],)] = explained.fetchall()
        node = tree["Plan"]
        while node["Node Type"] == "Aggregate":
            # Beside what it aggregates, a node lists the subqueries of its conditions.
            node = next(one for one in node["Plans"] if one["Parent Relationship"] == "Outer")
        return int(node["Plan Rows"])

    def index_ddl(self, table: TableInfo, columns: Sequence[Column], time: Column | None, where: str = "") -> str:
        quote = self.rows.dialect.quote
        parts = [
            quote(column.name) + (' COLLATE "C"' if column == time and column.collation is not None else "")
            for column in columns
        ]
        # CONCURRENTLY does not exist for partitioned tables.
        how = "CREATE INDEX" if table.kind.value == "partitioned table" else "CREATE INDEX CONCURRENTLY"
        text = f"{how} {quote(index_name(table, columns))} ON {self.rows.dialect.table(table)} ({', '.join(parts)})"
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
            transaction = PostgresTransaction(used, self.rows)
            # Not by name: another server may have a database of the same.
            if _identity(transaction.execute(_IDENTITY, {})) != own:
                hint = "pass a connection to the keeper's own database"
                raise StoreError("the connection is to another database", hint)
            yield transaction
            transaction.run_last_words()

    def literal(self, statement: Statement) -> str:
        with self._turn, _explained("the statement cannot be written"):
            cursor = psycopg.ClientCursor(self._connected())
            return cursor.mogrify(statement.text, statement.parameters)

    def source(self) -> Source:
        return Source("postgres", secret=self._url.raw)

    @contextmanager
    def exported_snapshot(self) -> Iterator[str]:
        with _explained("no snapshot can be exported"):
            connection = _connect(self._url, answer_seconds=self._answer_seconds)
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
        # Threads that share a store take turns: inside another's transaction nothing would be one's own to commit.
        with self._turn, _explained(what, *hint):
            used = self._connected()
            self._inside += 1
            try:
                with beginning(used, self.rows, durable=durable, read_only=self._read_only) as transaction:
                    yield transaction
            finally:
                self._inside -= 1

    def preview(self, selection: Selection, now: datetime, limit: int) -> list[Statement]:
        if isinstance(selection.rule.action, Shelve):
            return preview_shelving(self.rows, selection, self._preview_locked(selection, now, limit))
        if takes_by_key(selection):
            return self._preview_locked(selection, now, limit)
        return [self.rows.take_range(selection, now, limit)]

    def barred(self, role: str) -> str:
        with self._turn, _explained("the database refused to answer"), self._looking() as connection:
            found = connection.execute(_MEMBERSHIP, {"role": role}).fetchall()
        if not found:
            return f"the database has no role {role}"
        [(user, usable, member)] = found
        if usable:
            return ""
        return f"{user} is {'a member of' if member else 'not a member of'} {role}" + (
            ", but does not inherit its rights" if member else ""
        )

    def plan_roles(self, contract: Contract) -> RolePlan:
        self.require_migrated()
        schema = self.reflect()
        with self.transaction() as transaction:
            planner = RolePlanner(transaction.execute, contract, schema, self.types)
            return RolePlan(tuple(planner.plan()), tuple(planner.notes()))

    def apply_roles(self, contract: Contract) -> RolePlan:
        self.require_migrated()
        schema = self.reflect()
        hint = "let a superuser, or who owns the tables and may create roles, run what `wane roles --print` prints"
        with self._own_transaction("roles cannot be set up", hint) as transaction:
            planner = RolePlanner(transaction.execute, contract, schema, self.types)
            before = planner.plan()
            for statement in before:
                if not statement.done:
                    transaction.execute(statement.text.replace("%", "%%"), {})
            # A GRANT that the grantor may not give is a warning, not an error.
            left = [one for one in planner.plan() if not one.done]
            if left:
                raise StoreError(f"roles cannot be set up: {left[0].text} had no effect", hint)
            return RolePlan(tuple(one for one in before if not one.done), tuple(planner.notes()))

    def sizes(self, tables: Sequence[tuple[TableInfo, int | None]], seconds: float) -> dict[tuple[str, str], Size]:
        with self._turn, _explained("the database refused to answer"), self._looking() as connection:
            return read_sizes(connection, [table for table, _ in tables])

    def space(self, tables: Sequence[TableInfo], seconds: float) -> list[TableSpace]:
        with self._turn, _explained("the database refused to answer"), self._looking() as connection:
            found = read_space(connection, tables)
        return [found[table.qualified] for table in tables if table.qualified in found]

    def database_space(self) -> DatabaseSpace:
        [(size,)] = self._rows("SELECT pg_database_size(current_database())")
        return DatabaseSpace(size)

    def give_back(self, pages: int) -> int:
        raise StoreError(
            "PostgreSQL gives room back by VACUUM, which is not for Wane to run", "`wane space` prints what to run"
        )

    def partitions(self) -> PostgresPartitions:
        if self._connected().pooled:
            raise StoreError(
                "partitioning needs a session of its own, and the URL leads to a connection pooler",
                "use the URL of the server itself for it; nothing was changed",
            )
        return PostgresPartitions(self.again())

    def alone(self, text: str, wait_seconds: float) -> None:
        """Run one statement outside any transaction, however long it takes: what builds or detaches while everybody works.

        Its settings can only be the session's, which `partitions` has made sure is ours.
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
            "whoever runs Wane needs the contract's admin role: `wane roles --apply`, then GRANT it. Who only wants to see the"
            f" pressure needs the reader role, and asks {OWN_SCHEMA}.v_queue_retention_pressure"
        )
        with self._turn, _explained("Wane's own tables cannot be read", hint), self._looking() as connection:
            [(known,)] = connection.execute(_HAS_TABLE).fetchall()
            return [name for (name,) in connection.execute(_APPLIED).fetchall()] if known else []

    def migrate(self) -> list[str]:
        connection = self._connected()
        access = "READ ONLY" if self._read_only else "READ WRITE"
        # Whoever comes second waits for the first, for longer than any other lock is worth.
        settings = set_locally({**_SETTINGS, "lock_timeout": str(_MIGRATION_MILLISECONDS)})
        hint = (
            f"let the database's owner run `GRANT CREATE ON DATABASE … TO {connection.info.user}`, or "
            f"`CREATE SCHEMA {OWN_SCHEMA} AUTHORIZATION {connection.info.user}`, or what `wane migrate --print` prints"
        )
        with (
            self._turn,
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
            applied = {name for (name,) in connection.execute(_APPLIED)}
            pending = [one for one in migrations(self.kind) if one.name not in applied]
            for migration in pending:
                connection.execute(migration.sql.encode())
                connection.execute(f"INSERT INTO {OWN_SCHEMA}.migration (name) VALUES (%s)", [migration.name])
        self.rows.with_holds = True
        return [migration.name for migration in pending]

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


@lru_cache(maxsize=_KEPT_TEXTS)
def _numbered(text: str) -> tuple[bytes, tuple[str, ...]]:
    """A text with PostgreSQL's own placeholders, and the names of the values in their order."""
    names: dict[str, int] = {}

    def number(found: re.Match[str]) -> str:
        return "%" if found[1] is None else f"${names.setdefault(found[1], len(names) + 1)}"

    return _PLACEHOLDER.sub(number, text).encode(), tuple(names)


def _has_news(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server sent something that nobody has read."""
    readable = select.poll()
    readable.register(connection.fileno(), select.POLLIN)
    return bool(readable.poll(0))


def _identity(found: list[tuple[Any, ...]]) -> str:
    [(system, database)] = found
    return f"postgres:{system}:{database}"


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0]


def _pinning(problem: psycopg.Error) -> str:
    """What helps where a function of the application finds something by a bare name: Wane's search path has none of it."""
    called = _IN_FUNCTION.search(problem.diag.context or "")
    if called is None:
        return ""
    return (
        f"{called[1]} uses a bare name, and Wane's transactions find nothing by one but what is PostgreSQL's own:"
        f" `ALTER FUNCTION {called[1]} SET search_path = …, pg_temp`, or name schemas in it"
    )


@contextmanager
def _explained(what: str, grant: str = "grant the role what it needs, or use another") -> Iterator[None]:
    """Turn the driver's errors into Wane's, in words for people."""
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
            "nothing of it was committed, unless the connection broke in that very moment; the next call connects again"
        )
        raise Unreachable(f"{what}: {_first_line(problem)}", hint) from problem
    except psycopg.Error as problem:
        raise StoreError(f"{what}: {_first_line(problem)}") from problem
