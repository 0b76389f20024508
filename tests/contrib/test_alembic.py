"""Migrations that Alembic generates leave Wane's own tables alone, and change everything else as before."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from contrib.shop import make_shop
from servers import Database
from wane import open as open_keeper
from wane.contrib.alembic import include_name


def test_own_tables_are_not_dropped_and_the_applications_are_compared(database: Database, tmp_path: Path) -> None:
    contract = make_shop(database, tmp_path)
    database.execute("CREATE TABLE wanes (id bigint PRIMARY KEY)")
    with open_keeper(database.url, contract=contract) as keeper:
        keeper.migrate()
    engine = sqlalchemy.create_engine(database.url.replace("postgresql://", "postgresql+psycopg://"))
    metadata = sqlalchemy.MetaData()
    sqlalchemy.Table("added", metadata, sqlalchemy.Column("id", sqlalchemy.BigInteger, primary_key=True))
    try:
        with engine.connect() as connection:
            options = {"include_schemas": database.url.startswith("postgres"), "include_name": include_name}
            differences = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    finally:
        engine.dispose()
    tables = {(kind, entry.name) for kind, entry, *_ in differences if kind.endswith("_table")}
    assert tables == {("add_table", "added"), ("remove_table", "jobs"), ("remove_table", "wanes")}
