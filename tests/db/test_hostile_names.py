"""Nothing that others create is called by its bare name: not by the engine, not by what it installs, not in a caller's
transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from archive.copying import bound, copied, workers
from claims.working import working
from conftest import Clusters
from hostile import OPTIONS, called, shadow
from partition.partitioning import PLAIN, AfterOneBatch
from partition.partitioning import keeping as partitioned
from servers import Cluster, PostgresDatabase
from sqlfunctions.tables import RULES, SCHEMA, contract_file, fill
from wane._archive.pipeline.followers import Following
from wane._archive.pipeline.sql_evict import Copy, evict
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper, open_keeper
from wane._prune.dialects import row_taker
from wane._prune.pace import FAST, Pace
from wane._sqlfunctions import install

SMALL = Pace(target_seconds=1.0, duty=0.9, first_batch=20, least_batch=20, most_batch=20)
SHADOWED_TYPES = ("text", "timestamptz", "float8", "jsonb", "int4", "int8", "bool", "numeric", "interval")


@pytest.fixture(scope="module")
def template(clusters: Clusters) -> Iterator[str]:
    # Of its own: those who hand out databases drop them when the next one is asked for.
    with closing(Cluster(clusters["postgres"].url)) as cluster, cluster.database() as database:
        connection = database.connect()
        shadow(connection)
        [(name,)] = connection.execute("SELECT current_database()").fetchall()
        database.close()
        yield name


@pytest.fixture
def hostile(clusters: Clusters, template: str) -> Iterator[PostgresDatabase]:
    """Yield a database whose role finds the namesakes; what the test itself does, does not."""
    with clusters["postgres"].database(template=template) as database:
        database.url = f"{database.url}&{OPTIONS}"
        yield database
        assert called(database.connect()) is None


@contextmanager
def keeping(database: PostgresDatabase, folder: Path) -> Iterator[Keeper]:
    database.script(SCHEMA)
    fill(database, seed=7)
    with open_keeper(database.url, contract=contract_file(folder)) as keeper:
        keeper.migrate()
        yield keeper


@contextmanager
def caller(database: PostgresDatabase) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Yield an application's connection that finds the namesakes, and in whose session types and tables are shadowed
    too."""
    with closing(psycopg.connect(database.url, autocommit=True)) as connection:
        for name in SHADOWED_TYPES:
            connection.execute(
                f"CREATE FUNCTION pg_temp.evil_{name}(pg_catalog.{name}) RETURNS pg_catalog.bool LANGUAGE plpgsql AS"
                f" $$ BEGIN PERFORM evil.called('pg_temp.{name}'); RETURN true; END $$"
            )
        for name in SHADOWED_TYPES:
            connection.execute(f"CREATE DOMAIN pg_temp.{name} AS pg_catalog.{name} CHECK (pg_temp.evil_{name}(value))")
        for name in ("job", "pg_class", "pg_proc", "pg_constraint"):
            connection.execute(f"CREATE TEMPORARY TABLE {name} ()")
        yield connection


def test_a_bare_name_would_be_noticed(clusters: Clusters, template: str) -> None:
    with clusters["postgres"].database(template=template) as database:
        with closing(psycopg.connect(f"{database.url}&{OPTIONS}", autocommit=True)) as connection:
            connection.execute("BEGIN READ ONLY")
            connection.execute("SELECT jsonb_build_array('a'::text)")
            connection.execute("ROLLBACK")
        assert called(database.connect()) == "jsonb_build_array(text)"


def reads(keeper: Keeper) -> list[Callable[[], object]]:
    return [
        keeper.plan,
        keeper.check,
        keeper.check_live,
        keeper.health,
        keeper.pressure,
        keeper.status,
        keeper.space,
        keeper.take_snapshots,
        keeper.growth,
        keeper.roles,
    ]


def test_reading_calls_none_of_them(hostile: PostgresDatabase, tmp_path: Path) -> None:
    with keeping(hostile, tmp_path) as keeper:
        for read in reads(keeper):
            read()


def test_taking_calls_none_of_them(hostile: PostgresDatabase, tmp_path: Path) -> None:
    with keeping(hostile, tmp_path) as keeper:
        held = keeper.hold("lease", {"name": "l1"}, reason="court")
        keeper.release_hold(held.id or 0)
        keeper.hold("job", reason="audit")
        for table, rule in RULES:
            keeper.preview(table, rule=rule)
            keeper.prune(table, rule=rule, limit=5)
        keeper.enable()
        assert not [rule for rule in keeper.sweep(pace=FAST).rules if rule.outcome == "failed"]
        assert hostile.query("SELECT count(*) FROM wane.audit WHERE row_count > 0") > [(4,)]


def test_pruning_in_a_callers_transaction_calls_none_of_them(hostile: PostgresDatabase, tmp_path: Path) -> None:
    with keeping(hostile, tmp_path) as keeper, caller(hostile) as connection:
        keeper.hold("lease", {"name": "l1"}, reason="court")
        for table, rule in RULES:
            with connection.transaction():
                keeper.prune(table, rule=rule, limit=5, connection=connection)
                [(path,)] = connection.execute("SHOW search_path").fetchall()
                assert path == "public,evil"


def test_what_is_installed_calls_none_of_them(hostile: PostgresDatabase, tmp_path: Path) -> None:
    with keeping(hostile, tmp_path) as keeper, caller(hostile) as connection:
        install(keeper)
        keeper.apply_roles()
        keeper.hold("lease", {"name": "l1"}, reason="court")
        for table, rule in RULES:
            connection.execute("SELECT wane.prune(%s, %s, 5)", [table, rule])
        connection.execute("SELECT wane.prune_orphans('receipt', pg_catalog.now() - '9 days'::interval, 10)")
        connection.execute("SELECT * FROM wane.v_queue_retention_pressure")
        keeper.record_health()
        connection.execute("SELECT wane.fn_retention_health(), wane.contract_fingerprint()")
        assert hostile.query("SELECT count(*) FROM wane.audit WHERE row_count > 0") > [(4,)]


def test_the_queue_calls_none_of_them(hostile: PostgresDatabase, tmp_path: Path) -> None:
    with keeping(hostile, tmp_path) as keeper, caller(hostile) as connection:
        queue = keeper.queue("mail")
        queue.enqueue("greet", data={"to": "ada"})
        with connection.transaction():
            queue.enqueue("greet", data={"to": "bob"}, connection=connection)
        taken = queue.reserve_many(2)
        assert len(taken) == 2
        queue.renew(taken[0].message.message_id, taken[0].token)
        queue.ack(taken[0].message.message_id, taken[0].token)
        queue.release(taken[1].message.message_id, taken[1].token, "later")
        queue.expire_leases()
        with closing(keeper.store.watch()) as watch:
            watch.read("SELECT count(*) FROM wane.wakeup", {})


def test_claims_call_none_of_them(hostile: PostgresDatabase) -> None:
    with working(hostile) as claims, caller(hostile) as connection:
        for name in ("a", "b"):
            claims.submit(name)
        with connection.transaction():
            claims.submit("c", connection=connection)
        one, other = (claims.claim(name, "ada", 60) for name in ("a", "b"))
        claims.complete(claims.extend(one, 120))  # type: ignore[arg-type]
        claims.abandon(other, reason="late")  # type: ignore[arg-type]
        claims.return_expired()
        claims.vacuum(completed_age_hours=1)
        assert claims.remembered("a") is not None


def test_partitioning_calls_none_of_them(hostile: PostgresDatabase, tmp_path: Path) -> None:
    hostile.script(PLAIN)
    with partitioned(hostile, tmp_path) as keeper:
        keeper.partition.plan("event")
        assert keeper.partition.convert("event", accept=True).did == "converted"
        keeper.partition.maintain()
        assert keeper.partition.split("event", pace=FAST).did == "split"
        assert keeper.partition.undo("event", pace=FAST).did == "undone"


def test_archiving_calls_none_of_them(hostile: PostgresDatabase, tmp_path: Path) -> None:
    hostile.script("CREATE TABLE t (id text PRIMARY KEY, at_ms bigint NOT NULL, body text, data bytea, at timestamptz)")
    hostile.execute(
        "INSERT INTO t SELECT 'k' || g, 1577836800000 + g, 'b', '\\x00', now() FROM generate_series(1, 5) AS g"
    )
    with workers() as pool:
        table, _, _ = copied(pool, hostile, tmp_path)
    assert len(table) == 5
    with open_store(resolve_url(hostile.url)) as store:
        store.migrate()
        rows = bound(store)
        with store.transaction() as transaction:
            wanted = rows.present([(f"k{number}",) for number in range(1, 6)])
            found = transaction.execute(wanted.text, wanted.parameters)
            read = rows.dialect.read_key
            copies = [Copy(text, read(text), version, Following(), 0, version) for text, version in found[:2]]
            evicted = evict(row_taker(transaction), rows, copies, datetime.now(UTC), skip_locked=False)
            assert evicted.counts == {"t": 2}
            first, last = [1577836800000, "k1"], [1577836800009, "k9"]
            taking = rows.take_range(first, last, datetime.now(UTC))
            [(taken, lines)] = transaction.execute(taking.text, taking.parameters)
            assert (taken, sorted(lines.split("\n"))) == (3, sorted(map(" ".join, found[2:])))


INSTALLED = """
SELECT p.oid::regprocedure::text, p.prosecdef, p.proconfig,
       EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) WHERE grantee = 0)
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = 'wane' OR p.proname LIKE 'work\\_claims%'
"""


def test_every_function_that_is_installed_pins_its_search_path(clusters: Clusters, tmp_path: Path) -> None:
    with clusters["postgres"].database() as database, keeping(database, tmp_path) as keeper:
        install(keeper)
        keeper.apply_roles()
        with working(database):
            pass
        installed = database.query(INSTALLED)
        assert len(installed) > len(RULES) + 5
        assert [name for name, _, settings, _ in installed if "search_path=pg_catalog, pg_temp" not in settings] == []
        # What acts with its owner's rights is only for those to whom it is granted.
        assert [name for name, definer, _, public in installed if definer and public] == []
        assert [name for name, definer, *_ in installed if definer] == ["wane.sql_pressure()"]
        # A view would have to be created anew to change what its names mean.
        views = database.query("SELECT viewname, definition FROM pg_views WHERE schemaname = 'wane'")
        assert [name for name, _ in views] == ["v_queue_retention_pressure"]


def test_no_other_role_may_use_the_function_that_copies_changes(clusters: Clusters, tmp_path: Path) -> None:
    with clusters["postgres"].database() as database:
        database.script(PLAIN)
        with partitioned(database, tmp_path) as keeper:
            keeper.partition.convert("event", accept=True)
            assert keeper.partition.split("event", pace=SMALL, stop=AfterOneBatch()).stopped
            found = [row for row in database.query(INSTALLED) if row[1]]
    assert [(name, settings, public) for name, _, settings, public in found] == [
        ("wane.public_event_split()", ["search_path=pg_catalog, pg_temp"], False)
    ]
