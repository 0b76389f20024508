"""Moving rows to monthly tables inside the database: `fn_<table>_archive_sweep`, the equivalent of an engine's sweep.

The function behind it reads, locks, reads again and takes like every other one; the statement that deletes rows also
inserts them into the schema of archived tables, as `wane._prune.sql_cold_tier` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from wane._contract.model import Age, Expiry, Orphans, ToColdTier
from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.postgres.plpgsql import dollars, literal
from wane._db.schema import TableInfo, qualified
from wane._db.statement import Dialect, Statement
from wane._prune.sql_cold_tier import LOCK_SPACE, holds, months
from wane._rules.selection import follower_paths
from wane._sqlfunctions.plpgsql import dynamic, interval, wrong
from wane._sqlfunctions.take import TakeFunction, TakeWriter


@dataclass(frozen=True, slots=True)
class ArchiveSweep:
    """`fn_<table>_archive_sweep(p_cutoff_month, p_limit)` of one table."""

    name: str
    table: str
    takes: Sequence[TakeFunction]
    """Its rules that move rows, in the order of the contract."""
    limit: int
    """The default limit of rows of one call, followers included."""
    master_flag: str
    flag: str
    admin: str | None
    """The role that sweeps need; None where roles are off."""


def move_function(take: TakeFunction) -> str:
    """Write the CREATE FUNCTION statement for a rule that moves rows.

    Raise WrongArgument if SQL cannot decide what is due as the engine does.
    """
    return _MoveWriter(take).function()


class _MoveWriter(TakeWriter):
    """Writes the function of a rule whose rows move to the table of their month."""

    def __init__(self, take: TakeFunction) -> None:
        super().__init__(take)
        paths = follower_paths(self.selection)
        tables = {one.qualified: one for one in (self.selection.table, *(path[-1].reference.table for path in paths))}
        self.tables = list(tables.values())

    def declared(self) -> list[str]:
        arrays = [f"wane_m{number} text[];" for number in range(self.width)]
        targets = [f"wane_h{number} text[];" for number in range(len(self.tables))]
        return [*super().declared(), *arrays, *targets, "wane_month record;"]

    def take_chosen(self) -> str:
        """Write what `PostgresRowTaker.take_chosen` does, month by month."""
        return self._monthly("\n".join(self.take_lines("m")))

    def some_followers(self) -> str:
        """Write what `PostgresRowTaker.take_some_followers` does."""
        return self._monthly(super().some_followers())

    def change(
        self, statement: Statement, name: str, table: TableInfo, keys: str, limit: str = "wane_chunk"
    ) -> list[str]:
        target = f"wane_h{self.tables.index(table)}"
        text, variables = dynamic(statement, self.variables(keys, limit))
        using = f" USING {', '.join(variables)}" if variables else ""
        moving = (
            f"EXECUTE 'WITH gone AS (' || {literal(text)} || ' RETURNING ' || {target}[2] || ') INSERT INTO ' || {target}[1]"
            f" || ' (' || {target}[2] || ') SELECT ' || {target}[2] || ' FROM gone'{using};"
        )
        return [moving, "GET DIAGNOSTICS wane_gone = ROW_COUNT;", self.count(name)]

    def _monthly(self, take: str) -> str:
        """Write a loop that runs statements for each month of the chosen rows, with a table for the rows they take."""
        action = self.selection.rule.action
        assert isinstance(action, ToColdTier)
        months_of = self.write(months(self.rows, self.selection), "c")
        names = [f"o{number}" for number in range(self.width)]
        arrays = ", ".join(f"array_agg(d.{name}) AS {name}" for name in names)
        chosen = " ".join(f"wane_m{number} := wane_month.{name};" for number, name in enumerate(names))
        targets = "\n".join(
            f"  wane_h{number} := {OWN_SCHEMA}.sql_shelf({literal(_quoted(table))}, {literal(qualified(table))},"
            f" {literal(action.schema)}, {literal(table.name)} || '_' || replace(wane_month.month, '-', ''),"
            f" {literal(self._key(table))}::text[]);"
            for number, table in enumerate(self.tables)
        )
        return f"""\
FOR wane_month IN SELECT d.month, {arrays} FROM ({months_of}) AS d({", ".join([*names, "month"])}) GROUP BY d.month ORDER BY d.month LOOP
  {chosen}
{targets}
{take}
END LOOP;"""

    def _key(self, table: TableInfo) -> list[str]:
        own = table.qualified == self.selection.table.qualified
        return [column.name for column in self.selection.key] if own else list(table.primary_key)


def shelf_function() -> str:
    """Write the function that creates a monthly table, or checks that an existing one fits, like `MonthTable.ready`.

    It returns the table and the columns.
    """
    body = f"""\
DECLARE
  target text := format('%I.%I', wane_schema, wane_name);
  comment text := 'wane: ' || wane_reported;
  reader text;
  one record;
BEGIN
  -- From here on no transaction changes the table's columns: what is copied is all there is.
  EXECUTE format('LOCK TABLE %s IN ROW EXCLUSIVE MODE', wane_source);
  IF to_regclass(target) IS NULL THEN
    PERFORM pg_advisory_xact_lock({LOCK_SPACE}, hashtext(wane_schema || '.' || wane_name));
  END IF;
  IF to_regclass(target) IS NULL THEN
    IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace AS n WHERE n.nspname = wane_schema) THEN
      EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', wane_schema);
    END IF;
    EXECUTE format('CREATE TABLE %s (%s)', target, (
      SELECT string_agg(format('%I %s', a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod)), ', ' ORDER BY a.attnum)
      FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = to_regclass(wane_source) AND a.attnum > 0 AND NOT a.attisdropped));
    EXECUTE format('COMMENT ON TABLE %s IS %L', target, comment);
    FOR reader IN SELECT DISTINCT acl.grantee::regrole::text FROM pg_catalog.pg_namespace AS n, aclexplode(n.nspacl) AS acl
      WHERE n.nspname = wane_schema AND acl.privilege_type = 'USAGE' AND acl.grantee <> 0
        AND acl.grantee <> (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user)
    LOOP
      EXECUTE format('GRANT SELECT ON %s TO %s', target, reader);
    END LOOP;
    IF cardinality(wane_key) > 0 THEN
      EXECUTE format('CREATE INDEX ON %s (%s)', target, (SELECT string_agg(quote_ident(k), ', ' ORDER BY n) FROM unnest(wane_key) WITH ORDINALITY AS u(k, n)));
    END IF;
  ELSE
    IF obj_description(to_regclass(target), 'pg_class') <> comment THEN
      {wrong("format('%s does not hold rows of %s: its comment is %L', target, wane_reported, obj_description(to_regclass(target), 'pg_class'))", "'rename it, so that a new one is made; nothing was moved'")}
    END IF;
    FOR one IN SELECT cold.attname AS name, pg_catalog.format_type(cold.atttypid, cold.atttypmod) AS kind,
        pg_catalog.format_type(hot.atttypid, hot.atttypmod) AS wanted
      FROM pg_catalog.pg_attribute AS cold LEFT JOIN pg_catalog.pg_attribute AS hot
        ON hot.attrelid = to_regclass(wane_source) AND hot.attname = cold.attname AND hot.attnum > 0 AND NOT hot.attisdropped
      WHERE cold.attrelid = to_regclass(target) AND cold.attnum > 0 AND NOT cold.attisdropped
    LOOP
      IF one.wanted IS NULL OR one.wanted = one.kind OR {holds("one.kind", "one.wanted")} THEN
        CONTINUE;
      END IF;
      IF {holds("one.wanted", "one.kind")} THEN
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I TYPE %s', target, one.name, one.wanted);
      ELSE
        {wrong("format('%s.%s is %s now, and %s has it as %s: no column holds both', wane_reported, one.name, one.wanted, target, one.kind)", "'nothing was moved; rename that table, so that a new one is made, or change its column'")}
      END IF;
    END LOOP;
    FOR one IN SELECT hot.attname AS name, pg_catalog.format_type(hot.atttypid, hot.atttypmod) AS kind FROM pg_catalog.pg_attribute AS hot
      WHERE hot.attrelid = to_regclass(wane_source) AND hot.attnum > 0 AND NOT hot.attisdropped
        AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute AS cold
          WHERE cold.attrelid = to_regclass(target) AND cold.attname = hot.attname AND cold.attnum > 0 AND NOT cold.attisdropped)
      ORDER BY hot.attnum
    LOOP
      EXECUTE format('ALTER TABLE %s ADD COLUMN %I %s', target, one.name, one.kind);
    END LOOP;
  END IF;
  RETURN ARRAY[target, (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = to_regclass(wane_source) AND a.attnum > 0 AND NOT a.attisdropped)];
END"""
    return (
        f"CREATE OR REPLACE FUNCTION {OWN_SCHEMA}.sql_shelf(wane_source text, wane_reported text, wane_schema text, wane_name text, wane_key text[])"
        f" RETURNS text[] LANGUAGE plpgsql\nAS {dollars(body)}"
    )


def archive_sweep_function(sweep: ArchiveSweep, most: int) -> str:
    """Write the function that users call. Flags gate it like every sweep; if off, it moves nothing and reports that."""
    rules = "\n".join(_rule(take) for take in sweep.takes)
    table = literal(sweep.table)
    body = f"""\
DECLARE
  closed text;
  first timestamptz := date_trunc('month', p_cutoff_month::timestamp) AT TIME ZONE 'UTC';
  done jsonb;
  moved bigint := 0;
  rules jsonb := '[]';
BEGIN
  PERFORM {OWN_SCHEMA}.sql_limit(p_limit, {most});
{_admitted(sweep.admin)}
  IF NOT coalesce((SELECT f.enabled FROM {OWN_SCHEMA}.flag AS f WHERE f.name = {literal(sweep.master_flag)}), false) THEN
    closed := {literal(f"the master flag {sweep.master_flag} is off: `wane enable` turns it on")};
  ELSIF NOT coalesce((SELECT f.enabled FROM {OWN_SCHEMA}.flag AS f WHERE f.name = {literal(sweep.flag)}), true) THEN
    closed := {literal(f"the flag {sweep.flag} is off: `wane enable {sweep.table}` turns it on")};
  END IF;
  IF closed IS NOT NULL THEN
    RETURN jsonb_build_object('table', {table}, 'outcome', 'off', 'message', closed, 'rows', 0, 'rules', rules, 'more', false);
  END IF;
{rules}
  RETURN jsonb_build_object('table', {table}, 'outcome', 'done', 'message', '', 'rows', moved, 'rules', rules, 'more', moved >= p_limit);
END"""
    return (
        f"CREATE OR REPLACE FUNCTION {OWN_SCHEMA}.{Dialect.quote(sweep.name)}"
        f"(p_cutoff_month date DEFAULT NULL, p_limit integer DEFAULT {sweep.limit}) RETURNS jsonb LANGUAGE plpgsql\nAS {dollars(body)}"
    )


def _rule(take: TakeFunction) -> str:
    """Write the call for one rule, while the limit is not reached.

    Only months before the given one move, if one is given, and never a row before its time.
    """
    rule = take.selection.rule
    assert isinstance(rule.bound, Age | Orphans | Expiry)
    # A cutoff is the time of the call less the window, so a call with a time later than its own would shorten the
    # window.
    window = timedelta(microseconds=-1) if isinstance(rule.bound, Expiry) else rule.bound.keep
    name = literal(rule.name)
    return f"""\
  IF moved < p_limit THEN
    done := {OWN_SCHEMA}.sql_run({take.number}, true, 'shelve', {name},
      jsonb_build_object('rule', {name}, 'limit', p_limit - moved, 'cutoff_month', to_char(p_cutoff_month, 'YYYY-MM'), 'sweep', true),
      (p_limit - moved)::integer, (p_limit - moved)::integer,
      CASE WHEN first IS NOT NULL THEN least(clock_timestamp(), first + {interval(window)}) END);
    moved := moved + (done ->> 'rows')::bigint;
    rules := rules || jsonb_build_array(done);
  END IF;"""


def _admitted(admin: str | None) -> str:
    if admin is None:
        return ""
    message = literal(f"sweeping needs the role {admin}")
    hint = literal(f"let an administrator run `wane roles --apply` and GRANT {admin} TO the role that sweeps")
    return f"""\
  IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_roles AS r WHERE r.rolname = {literal(admin)} AND pg_has_role(current_user, r.oid, 'USAGE')) THEN
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = {message}, HINT = {hint};
  END IF;"""


def _quoted(table: TableInfo) -> str:
    return f"{Dialect.quote(table.schema)}.{Dialect.quote(table.name)}"
