"""The function that reports health from inside the database, for one contract.

It reads what `wane.observe.examine` reads and judges as `wane.observe.verdict` does; only the messages are shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from wane.contract.model import Cap, Mark
from wane.contract.names import TableName
from wane.db.postgres.catalog import OWN_SCHEMA
from wane.db.postgres.literal import literal
from wane.db.schema import Kind
from wane.errors import WrongArgument
from wane.rules.due import cutoff
from wane.rules.probes import Probes, WatchedTable
from wane.rules.rows import Rows
from wane.rules.selection import Selection
from wane.schedule.sql import SILENT_AFTER_BEATS
from wane.sqlfunctions.watching import NOW, SETTINGS, Watching, WatchingDialect
from wane.sqlfunctions.words import ANY_MOMENT, dollars, interval, plain

HEALTH_FUNCTION = "fn_retention_health"
_PRUNED = "(CASE WHEN t.every IS NOT NULL THEN a.total / (greatest(extract(epoch FROM wane_now - a.first_at)::float8, t.every) / 3600) END)"
_FIXES = {
    "another-contract": "put this one in force, `wane adopt`, or look with the other one",
    "archive-log": "see `wane health` where the archive's files are: `wane archive repair`, or a backup of the log",
    "cap-exceeded": "look at `wane plan`: the budget may be too small, or rows are held",
    "dangling-reference": "find who deletes outside of Wane; a foreign key would refuse it",
    "dead-letters": "see why, then try them again or resolve them: `wane queue dead list`",
    "false-excuse": "give the table rules, or mend what writes it",
    "late-scheduler": "start one, `wane run`, or see what keeps it: `wane status`",
    "orphaned-follower": "find who deletes outside of Wane, then delete them",
    "overdue": "see who sweeps, `wane status`, and what would leave: `wane plan`",
    "partition-near": "see how it grows, `wane growth`, then let more rows leave, or prepare for partitions",
    "partition-recommended": "see what it takes: `wane partition plan TABLE`",
    "silent-executor": "see what became of its process",
    "slow-reads": "see how rows are found: `wane plan -v`; a smaller table, a better index or a vacuum help",
    "stale-claim": "run workers that claim, or give them back: `wane claims return-expired`",
    "stale-reservation": "start a worker, which takes them over: `wane status` tells who runs",
    "sweeps-off": "turn them on: `wane enable`",
    "table-off": "turn them on: `wane enable TABLE`",
    "uncovered-table": "give it rules, or the reason under [excused]",
    "unread-table": "see why: `wane plan`, `wane check --cover`",
}


def health_function(watching: Watching) -> str:
    """Write the CREATE FUNCTION statement for a contract; it requires `sql_watch`."""
    return _Writer(watching).function()


class _Writer:
    """Writes the function that reports health."""

    def __init__(self, watching: Watching) -> None:
        self.watching = watching

    def function(self) -> str:
        own, one = OWN_SCHEMA, self.watching
        grace = one.settings.grace.total_seconds()
        body = f"""\
#variable_conflict use_variable
DECLARE
  wane_now timestamptz := clock_timestamp();
  wane_found jsonb := '[]';
  wane_tables jsonb;
  wane_schedulers jsonb;
  wane_executors jsonb;
  wane_uncovered jsonb;
  wane_disabled jsonb;
  wane_in_force text;
  wane_enabled boolean;
  wane_dead bigint;
  wane_count bigint;
  wane_came bigint;
  wane_last timestamptz;
  wane_days float8;
  wane_near boolean;
  wane_row record;
BEGIN
  wane_enabled := coalesce((SELECT f.enabled FROM {own}.flag AS f WHERE f.name = {literal(one.master_flag)}), false);
  IF NOT wane_enabled THEN wane_found := wane_found || {self._finding("sweeps-off", "''", "'sweeps are off'")}; END IF;
  wane_disabled := coalesce((SELECT jsonb_agg(t.name ORDER BY t.place) FROM {self._flags()} JOIN {own}.flag AS f ON f.name = t.flag
    WHERE NOT f.enabled), '[]');
  wane_found := wane_found || coalesce((SELECT jsonb_agg({self._finding("table-off", "d.name", "'sweeps of the table are off'")})
    FROM jsonb_array_elements_text(wane_disabled) AS d(name)), '[]');
  wane_in_force := (SELECT c.fingerprint FROM {own}.contract AS c);
  IF wane_in_force <> {literal(one.fingerprint)} THEN
    wane_found := wane_found || {self._finding("another-contract", "''", "format('another contract is in force, %s', wane_in_force)")};
  END IF;
  wane_schedulers := coalesce((SELECT jsonb_agg(jsonb_build_object('scheduler', s.name, 'every_seconds', s.every, 'due_at', w.due_at,
    'late_seconds', coalesce(round(greatest(extract(epoch FROM wane_now - w.due_at), 0)::numeric, 1), 0)) ORDER BY s.place)
    FROM {self._schedulers()} LEFT JOIN {own}.schedule AS w ON w.scheduler = s.name), '[]');
  wane_found := wane_found || coalesce((SELECT jsonb_agg({self._finding("late-scheduler", "''", "format('the scheduler %s is late', s ->> 'scheduler')")})
    FROM jsonb_array_elements(wane_schedulers) AS s WHERE (s ->> 'late_seconds')::float8 > (s ->> 'every_seconds')::float8 + {grace}), '[]');
  wane_executors := coalesce((SELECT jsonb_agg(jsonb_build_object('executor', h.executor, 'role', h.role, 'beat_at', h.beat_at,
    'silent', extract(epoch FROM wane_now - h.beat_at) > h.every_seconds * {SILENT_AFTER_BEATS}) ORDER BY h.role, h.executor)
    FROM (SELECT * FROM {own}.heartbeat ORDER BY role, executor LIMIT 500) AS h), '[]');
  wane_found := wane_found || coalesce((SELECT jsonb_agg({self._finding("silent-executor", "''", "format('%s is silent', e ->> 'executor')")}
      || jsonb_build_object('severity', CASE WHEN NOT EXISTS (SELECT FROM jsonb_array_elements(wane_executors) AS a WHERE a ->> 'role' = e ->> 'role'
        AND NOT (a ->> 'silent')::boolean) THEN {literal("error")} ELSE {literal("warning")} END))
    FROM jsonb_array_elements(wane_executors) AS e WHERE (e ->> 'silent')::boolean), '[]');
  wane_dead := (SELECT count(*) FROM (SELECT 1 FROM {own}.message
    WHERE state = 'dead' AND resolved_at IS NULL AND ARRAY[pool, kind] IS NOT NULL -- as message_open_kind has it
    LIMIT 10000) AS d);
  IF wane_dead > 0 THEN
    wane_found := wane_found || {self._finding("dead-letters", "''", "format('%s messages failed too often', wane_dead)")};
  END IF;
  wane_tables := '[]';
  FOR wane_row IN
    SELECT coalesce(jsonb_agg({self._rule_object()} ORDER BY o.place) FILTER (WHERE w.wane_rule IS NOT NULL), '[]') AS rules,
      min(w.wane_tbl) AS name, jsonb_agg(to_jsonb(w)) FILTER (WHERE w.wane_rule IS NULL) -> 0 AS facts,
      max(a.last_at) AS last_sweep, t.scheduler, t.every, t.place, t.may_partition, t.finished, g.rate, g.rate_low,
      CASE WHEN bool_and(a.total IS NOT NULL) FILTER (WHERE o.takes) THEN sum({_PRUNED}) FILTER (WHERE o.takes) END AS pruned
    FROM {own}.sql_watch(true) AS w
    JOIN {self._tables()} ON t.name = w.wane_tbl
    LEFT JOIN ({self._growth()}) AS g ON g.table_name = t.full_name
    LEFT JOIN {self._rules()} ON o.name = w.wane_tbl AND o.rule = w.wane_rule
    LEFT JOIN ({self._trail()}) AS a ON a.table_name = w.wane_tbl AND a.rule = w.wane_rule
    GROUP BY t.name, t.scheduler, t.every, t.place, t.may_partition, t.finished, g.rate, g.rate_low ORDER BY t.place
  LOOP
{self._near()}
    wane_tables := wane_tables || jsonb_build_object('table', wane_row.name, 'scheduler', wane_row.scheduler,
      'every_seconds', wane_row.every, 'enabled', NOT wane_disabled ? wane_row.name, 'rows', wane_row.facts -> 'wane_rows',
      'oldest', wane_row.facts -> 'wane_oldest', 'newest', wane_row.facts -> 'wane_newest', 'due', wane_row.facts -> 'wane_due',
      'share', CASE WHEN (wane_row.facts ->> 'wane_rows')::bigint > 0 AND wane_row.facts ->> 'wane_due' IS NOT NULL
        THEN round(least((wane_row.facts ->> 'wane_due')::numeric / (wane_row.facts ->> 'wane_rows')::numeric, 1), 4)
        ELSE (wane_row.facts ->> 'wane_due')::numeric * 0 END,
      'rows_exactness', wane_row.facts -> 'wane_rows_exactness', 'due_exactness', wane_row.facts -> 'wane_due_exactness',
      'bytes', wane_row.facts -> 'wane_bytes', 'hot_read_ms', round((wane_row.facts ->> 'wane_hot_ms')::numeric, 3),
      'oldest_age_seconds', round(extract(epoch FROM wane_now - (wane_row.facts ->> 'wane_oldest')::timestamptz)::numeric, 1),
      'late_seconds', (SELECT max((r ->> 'late_seconds')::numeric) FROM jsonb_array_elements(wane_row.rules) AS r),
      'last_sweep', wane_row.last_sweep, 'growth_per_day', round(wane_row.rate::numeric, 1),
      'inflow_per_hour', round(greatest(wane_row.rate / 24 + wane_row.pruned, 0 * (wane_row.rate + wane_row.pruned))::numeric, 1),
      'pruned_per_hour', round(wane_row.pruned::numeric, 1), 'drain_seconds', (SELECT CASE WHEN bool_and(r ->> 'drain_seconds' IS NOT NULL)
        THEN max((r ->> 'drain_seconds')::numeric) END FROM jsonb_array_elements(wane_row.rules) AS r),
      'partition_recommended', coalesce((wane_row.facts ->> 'wane_large')::boolean, false), 'partition_near', wane_near,
      'partition_days', round(wane_days::numeric, 1), 'rules', wane_row.rules);
  END LOOP;
{self._judged(grace)}
{self._caps()}
{self._promises()}
{self._archive()}
{self._uncovered()}
  RETURN jsonb_build_object('healthy', NOT EXISTS (SELECT FROM jsonb_array_elements(wane_found) AS f WHERE f ->> 'severity' = 'error'),
    'verdict', coalesce((SELECT 'unhealthy: ' || string_agg(c.code, ', ' ORDER BY c.place) FROM (SELECT f ->> 'code' AS code, min(n) AS place
      FROM jsonb_array_elements(wane_found) WITH ORDINALITY AS o(f, n) WHERE f ->> 'severity' = 'error' GROUP BY 1) AS c), 'healthy'),
    'now', wane_now, 'contract', {literal(one.fingerprint)}, 'in_force', wane_in_force, 'enabled', wane_enabled,
    'disabled_tables', wane_disabled, 'dead_letters', wane_dead, 'uncovered', wane_uncovered, 'schedulers', wane_schedulers,
    'executors', wane_executors, 'tables', wane_tables, 'findings', wane_found);
END"""
        return (
            f"CREATE OR REPLACE FUNCTION {own}.{HEALTH_FUNCTION}() RETURNS jsonb LANGUAGE plpgsql\n{SETTINGS}\n"
            f"AS {dollars(body)}"
        )

    def _finding(self, code: str, table: str, message: str, *, severity: str = "error") -> str:
        return (
            f"jsonb_build_object('severity', {literal(severity)}, 'code', {literal(code)}, 'table', {table},"
            f" 'message', {message}, 'fix', {literal(_FIXES[code])})"
        )

    # What the contract says, as tables

    def _values(self, rows: Sequence[Sequence[str]], alias: str, nothing: str) -> str:
        if not rows:
            return f"(SELECT {nothing} WHERE false) AS {alias}"
        return f"(VALUES {', '.join('(' + ', '.join(row) + ')' for row in rows)}) AS {alias}"

    def _flags(self) -> str:
        rows = [[literal(t), literal(f), str(n)] for n, (t, f) in enumerate(self.watching.flags)]
        return self._values(rows, "t(name, flag, place)", "'', '', 0")

    def _schedulers(self) -> str:
        rows = [[literal(name), _seconds(every), str(n)] for n, (name, every) in enumerate(self.watching.schedulers)]
        return self._values(rows, "s(name, every, place)", "'', 0::float8, 0")

    def _tables(self) -> str:
        rows = [
            [
                literal(str(one.name)),
                "NULL::text" if one.table is None or one.table.scheduler is None else literal(one.table.scheduler),
                "NULL::float8" if one.every is None else _seconds(one.every),
                str(n),
                literal(str(TableName(one.info.name, one.info.schema))),
                str(one.info.kind is Kind.TABLE and bool(one.selections)).lower(),
                f"{self._finished(one)}::text",
            ]
            for n, one in enumerate(self.watching.tables)
        ]
        names = "t(name, scheduler, every, place, full_name, may_partition, finished)"
        return self._values(rows, names, "'', '', 0::float8, 0, '', false, ''")

    def _finished(self, one: WatchedTable) -> str:
        """Write the query that finds a table's finished rows, for the planner to estimate."""
        if not one.finished or not one.selections:
            return "NULL"
        rows = Rows(WatchingDialect(NOW), holds=False)
        p = rows.parameters()
        return literal(plain(p.statement(Probes(rows).count_states(p, one.selections[0], one.finished))))

    def _growth(self) -> str:
        """Write the query of how fast tables grew when they were last measured, if that is recent."""
        settings = self.watching.growth
        return f"""\
SELECT s.table_name, s.rate, s.rate_low FROM {OWN_SCHEMA}.snapshot AS s
      WHERE s.taken_at = (SELECT max(taken_at) FROM {OWN_SCHEMA}.snapshot WHERE taken_at <= wane_now)
        AND s.taken_at >= wane_now - {interval(max(2 * settings.every, settings.least))}
        AND s.rate IS NOT NULL AND s.rate_low IS NOT NULL AND s.rate_high IS NOT NULL"""

    def _near(self) -> str:
        """Write the statements that decide whether partitions will be recommended soon, and when."""
        health, growth = self.watching.settings, self.watching.growth
        rows = "(wane_row.facts ->> 'wane_rows')::bigint"
        finished = growth.near * health.partition_finished_rows
        return f"""\
    wane_days := CASE WHEN NOT wane_row.may_partition THEN NULL WHEN {rows} >= {health.partition_rows} THEN 0
      WHEN wane_row.rate_low > 0 THEN ({health.partition_rows} - {rows}) / wane_row.rate END;
    wane_near := coalesce(wane_row.may_partition AND NOT (wane_row.facts ->> 'wane_large')::boolean
      AND ({rows} >= {growth.near * health.partition_rows!r} OR wane_days <= {growth.warn / timedelta(days=1)!r}), false);
    IF wane_row.may_partition AND NOT wane_near AND NOT (wane_row.facts ->> 'wane_large')::boolean AND {rows} >= {finished!r}
      AND wane_row.finished IS NOT NULL
    THEN wane_near := coalesce({OWN_SCHEMA}.sql_estimate(wane_row.finished) >= {finished!r}, false); END IF;"""

    def _rules(self) -> str:
        rows = [
            [
                literal(str(one.name)),
                literal(selection.rule.name),
                _keep(selection),
                str(selection.rule.budget.rows),
                str((str(one.name), selection.rule.name) in self.watching.forgiving).lower(),
                str(n),
                str(not isinstance(selection.rule.action, Mark)).lower(),
                str(len(one.selections) == 1).lower(),
            ]
            for one in self.watching.tables
            for n, selection in enumerate(one.selections)
        ]
        names = "o(name, rule, keep, budget, forgiving, place, takes, alone)"
        return self._values(rows, names, "'', '', 0::float8, 0, false, 0, false, false")

    def _trail(self) -> str:
        """Write the query of each rule's sweeps in the latest entries, as `Ledger.swept` reads them."""
        return f"""\
SELECT g.table_name, g.rule, g.total, g.first_at, r.executed_at AS last_at,
      coalesce((r.counts ->> r.table_name)::bigint, r.row_count) AS last_rows
    FROM (SELECT x.table_name, x.rule, sum(coalesce((x.counts ->> x.table_name)::bigint, x.row_count)) AS total,
        min(x.executed_at) AS first_at, max(x.id) AS last_id FROM {OWN_SCHEMA}.audit AS x
      WHERE x.id > (SELECT max(id) FROM {OWN_SCHEMA}.audit) - 5000 AND x.rule IS NOT NULL GROUP BY x.table_name, x.rule) AS g
    JOIN {OWN_SCHEMA}.audit AS r ON r.id = g.last_id"""

    def _rule_object(self) -> str:
        since = "extract(epoch FROM wane_now - w.wane_oldest_due)::float8 - o.keep - t.every"
        swept = "extract(epoch FROM wane_now - a.last_at)::float8 - t.every"
        late = (
            "CASE WHEN t.every IS NULL OR o.keep IS NULL THEN NULL WHEN w.wane_due = 0 THEN 0"
            f" WHEN w.wane_oldest_due IS NULL THEN NULL WHEN o.forgiving AND a.last_rows < o.budget THEN greatest(least({since}, {swept}), 0)"
            f" ELSE greatest({since}, 0) END"
        )
        # Where more becomes due than is counted, the inflow is used, if known.
        soon = (
            f"(w.wane_soon / t.every * 3600 + CASE WHEN o.alone AND o.takes AND w.wane_soon > {self.watching.settings.counted_rows}"
            f" THEN greatest(coalesce(g.rate / 24 + {_PRUNED}, 0) - w.wane_soon / t.every * 3600, 0) ELSE 0 END)"
        )
        return (
            "jsonb_build_object('rule', w.wane_rule, 'due', w.wane_due, 'due_exactness', w.wane_due_exactness,"
            f" 'oldest_due', w.wane_oldest_due, 'late_seconds', round(({late})::numeric, 1), 'last_sweep', a.last_at,"
            f" 'last_rows', a.last_rows, 'pruned_per_hour', round(({_PRUNED})::numeric, 1),"
            f" 'due_per_hour', round(({soon})::numeric, 1), 'drain_seconds', CASE WHEN w.wane_due = 0 THEN 0"
            f" WHEN {_PRUNED} > {soon} THEN round((w.wane_due / ({_PRUNED} - {soon}) * 3600)::numeric, 1) END)"
        )

    # Judging

    def _judged(self, grace: float) -> str:
        ms = self.watching.settings.hot_read_ms
        late = "format('%s.%s: %s rows are due, the oldest should have left %s seconds ago', x.tbl, x.rule ->> 'rule', x.rule ->> 'due', x.late)"
        large = self._finding(
            "partition-recommended", "t ->> 'table'", "'partitions are worth their while'", severity="warning"
        )
        near = self._finding(
            "partition-near", "t ->> 'table'", "'partitions will soon be worth their while'", severity="warning"
        )
        slow = self._finding("slow-reads", "t ->> 'table'", "'reads through its index are slow'", severity="warning")
        unread = self._finding("unread-table", "t ->> 'table'", "'it could not be read'", severity="warning")
        return f"""\
  wane_found := wane_found || coalesce((SELECT jsonb_agg(jsonb_build_object('severity', 'error', 'table', x.tbl, 'message', {late}, 'fix', {literal(_FIXES["overdue"])}, 'code',
      CASE WHEN x.swept IS NULL THEN 'overdue' WHEN x.taken = 0 AND x.late + x.every > x.swept + 1 THEN 'sweeps-without-effect'
        WHEN x.taken > 0 AND x.swept <= x.every + {grace} AND coalesce((x.rule ->> 'pruned_per_hour')::float8, 0)
          <= coalesce((x.rule ->> 'due_per_hour')::float8, 0) THEN 'falling-behind' ELSE 'overdue' END))
    FROM (SELECT t ->> 'table' AS tbl, r AS rule, (r ->> 'late_seconds')::float8 AS late, (t ->> 'every_seconds')::float8 AS every,
        (r ->> 'last_rows')::bigint AS taken, extract(epoch FROM wane_now - (r ->> 'last_sweep')::timestamptz)::float8 AS swept
      FROM jsonb_array_elements(wane_tables) AS t, jsonb_array_elements(t -> 'rules') AS r) AS x WHERE x.late > {grace}), '[]');
  wane_found := wane_found || coalesce((SELECT jsonb_agg({unread}) FROM jsonb_array_elements(wane_tables) AS t
    WHERE t ->> 'rows' IS NULL OR EXISTS (SELECT FROM jsonb_array_elements(t -> 'rules') AS r WHERE r ->> 'due' IS NULL)), '[]');
  wane_found := wane_found || coalesce((SELECT jsonb_agg({large}) FROM jsonb_array_elements(wane_tables) AS t
    WHERE (t ->> 'partition_recommended')::boolean), '[]');
  wane_found := wane_found || coalesce((SELECT jsonb_agg({near}) FROM jsonb_array_elements(wane_tables) AS t
    WHERE (t ->> 'partition_near')::boolean), '[]');
  wane_found := wane_found || coalesce((SELECT jsonb_agg({slow}) FROM jsonb_array_elements(wane_tables) AS t
    WHERE (t ->> 'hot_read_ms')::float8 > {ms}), '[]');"""

    def _caps(self) -> str:
        """Write the check that a cap is exceeded by no more than the rows that came since its last sweep."""
        most = self.watching.settings.counted_rows
        parts = []
        for one in self.watching.tables:
            for selection in one.selections:
                if not isinstance(selection.rule.bound, Cap) or one.every is None:
                    continue
                name, rule = literal(str(one.name)), literal(selection.rule.name)
                found = self._finding("cap-exceeded", name, "format('%s rows are beyond the cap', wane_count)")
                try:
                    rows = Rows(WatchingDialect("wane_last"), holds=False)
                    p = rows.parameters()
                    came = plain(p.statement(Probes(rows).count_since(p, selection, ANY_MOMENT, most)))
                except WrongArgument:
                    continue
                parts.append(f"""\
  wane_count := (SELECT (r ->> 'due')::bigint FROM jsonb_array_elements(wane_tables) AS t, jsonb_array_elements(t -> 'rules') AS r
    WHERE t ->> 'table' = {name} AND r ->> 'rule' = {rule});
  wane_last := (SELECT (r ->> 'last_sweep')::timestamptz FROM jsonb_array_elements(wane_tables) AS t, jsonb_array_elements(t -> 'rules') AS r
    WHERE t ->> 'table' = {name} AND r ->> 'rule' = {rule});
  IF wane_count > 0 AND wane_last IS NOT NULL THEN
    BEGIN
      wane_came := ({came});
      IF least(wane_count, {most + 1}) > wane_came THEN wane_found := wane_found || {found}; END IF;
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
  END IF;""")
        return "\n".join(parts)

    def _promises(self) -> str:
        own, one = OWN_SCHEMA, self.watching
        parts = []
        for promise in one.promises:
            rows = Rows(WatchingDialect(NOW), holds=True)
            p = rows.parameters()
            try:
                count = plain(p.statement(promise.write(Probes(rows), p)))
            except WrongArgument:
                continue
            found = self._finding(promise.code, literal(promise.table), "format('%s rows', wane_count)")
            parts.append(f"""\
  BEGIN
    wane_count := ({count});
    IF wane_count > {promise.limit} THEN wane_found := wane_found || {found}; END IF;
  EXCEPTION WHEN OTHERS THEN NULL;
  END;""")
        longest = max((every for _, every in one.schedulers), default=timedelta(0)) + one.settings.grace
        stale = self._finding("stale-reservation", "''", "format('%s messages', wane_count)")
        parts.append(f"""\
  wane_count := (SELECT count(*) FROM (SELECT 1 FROM {own}.message WHERE pool = {literal(one.pool)}
    AND state = 'reserved' AND due_at < wane_now - {interval(longest)} LIMIT {one.settings.counted_rows}) AS s);
  IF wane_count > 0 THEN wane_found := wane_found || {stale}; END IF;""")
        return "\n".join(parts)

    def _archive(self) -> str:
        """Write the findings that the last archive command recorded: a function cannot read the archive's files."""
        found = self._finding("archive-log", "l.table_name", "l.problem")
        return f"""\
  wane_found := wane_found || coalesce((SELECT jsonb_agg({found} ORDER BY l.table_name)
    FROM {OWN_SCHEMA}.archive_log AS l WHERE l.problem IS NOT NULL), '[]');"""

    def _uncovered(self) -> str:
        """Write the check for tables with rows that the contract does not name, as in `wane.check.cover.uncovered`."""
        one = self.watching
        covered = self._values([list(map(literal, pair)) for pair in one.covered], "k(place, name)", "'', ''")
        schemas = "true" if not one.schemas else f"n.nspname = ANY ({literal(list(one.schemas))}::text[])"
        found = self._finding(
            "uncovered-table",
            "u.name",
            "'nobody says how its rows leave'",
            severity="error" if one.strict else "warning",
        )
        return f"""\
  wane_uncovered := coalesce((SELECT jsonb_agg(CASE WHEN n.nspname = {literal(one.home)} THEN c.relname::text
      ELSE format('%s.%s', n.nspname, c.relname) END ORDER BY n.nspname, c.relname)
    FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', '{OWN_SCHEMA}') AND {schemas}
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhrelid = c.oid)
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend AS d WHERE d.deptype = 'e'
        AND (d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid
          OR d.classid = 'pg_catalog.pg_namespace'::regclass AND d.objid = n.oid))
      AND NOT EXISTS (SELECT FROM {covered} WHERE k.place = n.nspname AND k.name = c.relname)), '[]');
  wane_found := wane_found || coalesce((SELECT jsonb_agg({found}) FROM jsonb_array_elements_text(wane_uncovered) AS u(name)), '[]');"""


def _seconds(length: timedelta) -> str:
    return f"{length.total_seconds()!r}::float8"


def _keep(selection: Selection) -> str:
    """Write how long before now a row becomes due, in seconds; NULL for a cap."""
    moment = cutoff(selection.rule, ANY_MOMENT)
    return "NULL::float8" if moment is None else _seconds(ANY_MOMENT - moment)
