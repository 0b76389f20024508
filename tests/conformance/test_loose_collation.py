"""A collation that calls different texts equal must not let a rule select a state that it does not name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg

from conformance.due_rows import ids, one_rule
from servers import PostgresDatabase
from wane._contract.model import Age, Time

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def test_a_state_is_compared_by_its_bytes(postgres_database: PostgresDatabase) -> None:
    try:
        postgres_database.execute(
            "CREATE COLLATION careless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
    except psycopg.errors.FeatureNotSupported:
        # A server without ICU has no such collations; then there is nothing that could be loose.
        assert postgres_database.query("SELECT count(*) FROM pg_collation WHERE NOT collisdeterministic") == [(0,)]
        return
    postgres_database.script(
        """
        CREATE TABLE jobs (id int PRIMARY KEY, state text COLLATE careless, at timestamptz);
        INSERT INTO jobs VALUES (1, 'done', '2026-01-01'), (2, 'DONE', '2026-01-01');
        """
    )
    rule = one_rule("jobs", Age(Time("at"), timedelta(days=7)), when=["done"])
    assert ids(postgres_database, rule, NOW) == [1]
