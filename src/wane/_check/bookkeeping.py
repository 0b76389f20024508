"""Tables in which tools that change a schema record what they did: recognised, so that no contract has to excuse them.

A name alone is no proof: a table is recognised only if it also has the columns that the tool gives it.
"""

from __future__ import annotations

from wane._db.schema import TableInfo

_TOOLS: dict[str, tuple[str, tuple[str, ...]]] = {
    "alembic_version": ("Alembic", ("version_num",)),
    "django_migrations": ("Django", ("app", "name", "applied")),
    "schema_migrations": ("Rails, Ecto, golang-migrate or dbmate", ("version",)),
    "ar_internal_metadata": ("Rails", ("key", "value")),
    "flyway_schema_history": ("Flyway", ("installed_rank", "version", "script", "checksum")),
    "goose_db_version": ("goose", ("version_id", "is_applied")),
    "knex_migrations": ("Knex", ("name", "batch", "migration_time")),
    "knex_migrations_lock": ("Knex", ("is_locked",)),
    "databasechangelog": ("Liquibase", ("id", "author", "filename", "dateexecuted")),
    "databasechangeloglock": ("Liquibase", ("id", "locked", "lockedby")),
    "migrations": ("Laravel", ("migration", "batch")),
    "river_migration": ("River", ("version", "created_at")),
    "_prisma_migrations": ("Prisma", ("checksum", "migration_name", "finished_at")),
    "__drizzle_migrations": ("Drizzle", ("hash", "created_at")),
    "SequelizeMeta": ("Sequelize", ("name",)),
    "__EFMigrationsHistory": ("Entity Framework", ("MigrationId", "ProductVersion")),
    "_sqlx_migrations": ("SQLx", ("version", "description", "checksum")),
    "__diesel_schema_migrations": ("Diesel", ("version", "run_on")),
    "refinery_schema_history": ("Refinery", ("version", "name", "applied_on", "checksum")),
    "doctrine_migration_versions": ("Doctrine", ("version", "executed_at")),
    "phinxlog": ("Phinx", ("version", "migration_name")),
    "_yoyo_migration": ("yoyo", ("migration_hash", "migration_id")),
    "migrate_version": ("SQLAlchemy-Migrate", ("repository_id", "repository_path", "version")),
    "atlas_schema_revisions": ("Atlas", ("version", "description", "applied", "total")),
}
"""The tool of each table, and columns that the table has."""


def bookkeeping_tool(table: TableInfo) -> str:
    """Return the tool whose record of schema changes a table is; "" if it is none that is known."""
    tool, columns = _TOOLS.get(table.name, ("", ()))
    names = {column.name for column in table.columns}
    return tool if names.issuperset(columns) else ""
