"""Watching retention from inside the database: the view of pressure, for one contract.

It reads what `wane.observe` reads, with the same probes.

No view here is over users' tables themselves: a function reads them, so that nothing prevents changing or dropping a
table. A table that cannot be read is reported without numbers, and the others are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from wane.contract.model import Cap, HealthSettings, Time
from wane.contract.settings import GrowthSettings
from wane.db.postgres.catalog import OWN_SCHEMA
from wane.db.postgres.dialect import PostgresDialect
from wane.db.postgres.literal import literal
from wane.db.postgres.settings import SAFE_SETTINGS, function_settings
from wane.db.postgres.space import table_size
from wane.db.schema import PRESSURE_VIEW, Column, Kind, TableInfo
from wane.db.statement import Parameters
from wane.db.timestamps import LATEST
from wane.errors import WrongArgument
from wane.rules.probes import Probe, Probes, WatchedTable
from wane.rules.rows import Rows
from wane.rules.selection import Selection
from wane.sqlfunctions.words import ANY_MOMENT, NUMBERED, Variable, bounds, dollars, interval, plain

KEPT_FUNCTIONS = ("sql_watch", "sql_estimate")
"""The view depends on these, so they are replaced in place."""

NOW = "wane_now"
_PLANNED_NOW = "statement_timestamp()"
"""Replaces now where the planner estimates: it can evaluate this expression, but not a variable."""
SETTINGS = function_settings({**SAFE_SETTINGS, "max_parallel_workers_per_gather": "0", "jit": "off"})
_COLUMNS = (
    "wane_tbl text, wane_rule text, wane_rows bigint, wane_rows_exactness text, wane_oldest timestamptz, wane_newest timestamptz,"
    " wane_due bigint, wane_due_exactness text, wane_oldest_due timestamptz, wane_soon bigint, wane_bytes bigint, wane_hot_ms float8,"
    " wane_large boolean"
)


@dataclass(frozen=True, slots=True)
class Promise:
    """A count that must not be more than `limit`."""

    code: str
    table: str
    write: Callable[[Probes, Parameters], str]
    limit: int = 0


@dataclass(frozen=True, slots=True)
class Watching:
    """Everything that is monitored for one contract."""

    fingerprint: str
    tables: Sequence[WatchedTable]
    promises: Sequence[Promise]
    settings: HealthSettings
    growth: GrowthSettings
    master_flag: str
    flags: Sequence[tuple[str, str]]
    """Each table of the contract with its flag."""
    schedulers: Sequence[tuple[str, timedelta]]
    pool: str
    schemas: Sequence[str]
    """The schemas that must be covered; all if none is named."""
    home: str
    """The schema whose tables are named without it."""
    covered: Sequence[tuple[str, str]]
    """Every table that the contract names, by schema and name."""
    strict: bool = False
    forgiving: frozenset[tuple[str, str]] = frozenset()
    """Rules whose rows may be old when they become due."""


class WatchingDialect(PostgresDialect):
    """PostgreSQL's dialect, with times as offsets from a time that the statement itself computes."""

    def __init__(self, now: str) -> None:
        self.now = now

    def before(
        self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime, *, inclusive: bool
    ) -> list[str]:
        known = set(p.values)
        written = super().before(p, alias, column, time, moment, inclusive=inclusive)
        if moment != LATEST and not time.also:
            computed = bounds(column, time, inclusive=inclusive)
            for name in set(p.values) - known:
                p.values[name] = self._computed(computed[NUMBERED.sub("", name)], moment)
        return written

    def since(self, p: Parameters, alias: str, column: Column, time: Time, moment: datetime) -> list[str]:
        known = set(p.values)
        written = super().since(p, alias, column, time, moment)
        if time.also:
            return written
        computed = bounds(column, time, inclusive=False)
        for name in set(p.values) - known:
            if NUMBERED.sub("", name) == "since":
                p.values[name] = self._computed(computed.get("cutoff_second", computed["cutoff"]), moment)
        return written

    def _computed(self, bound: tuple[str, str], moment: datetime) -> Variable:
        kind, text = bound
        return Variable(f"({text.replace('wane_moment', f'({self.now} + {interval(moment - ANY_MOMENT)})')})::{kind}")


def pressure_statements(watching: Watching) -> list[str]:
    """Return the statements of the view and the functions it needs, in an order in which they can be created."""
    return [_estimate(), *_keeping_rights(_Writer(watching).watch()), _view()]


def _keeping_rights(replaced: str) -> list[str]:
    """Return the statements that replace the function behind the view and preserve its SECURITY DEFINER setting.

    Replacing a function retains who may call it, but resets that it acts as its owner: readers would lose access.
    """
    watch = f"{OWN_SCHEMA}.sql_watch(boolean)"
    before = f"""\
BEGIN
  PERFORM set_config('wane.watch_as_owner', (SELECT prosecdef::text FROM pg_catalog.pg_proc WHERE oid = to_regprocedure('{watch}')), true);
END"""
    after = f"""\
BEGIN
  IF current_setting('wane.watch_as_owner', true) = 'true' THEN ALTER FUNCTION {watch} SECURITY DEFINER; END IF;
END"""
    return [f"DO {dollars(before)}", replaced, f"DO {dollars(after)}"]


def _estimate() -> str:
    body = """\
DECLARE node jsonb;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT JSON) ' || wane_query INTO node;
  node := node -> 0 -> 'Plan';
  WHILE node ->> 'Node Type' = 'Aggregate' LOOP
    node := (SELECT child FROM jsonb_array_elements(node -> 'Plans') AS child WHERE child ->> 'Parent Relationship' = 'Outer');
  END LOOP;
  RETURN (node ->> 'Plan Rows')::float8::bigint;
END"""
    return (
        f"CREATE OR REPLACE FUNCTION {OWN_SCHEMA}.sql_estimate(wane_query text) RETURNS bigint LANGUAGE plpgsql\n"
        f"{SETTINGS}\nAS {dollars(body)}"
    )


class _Writer:
    """Writes the function that probes every table."""

    def __init__(self, watching: Watching) -> None:
        self.watching = watching
        self.most = watching.settings.counted_rows

    def watch(self) -> str:
        tables = "\n".join(self._table(one) for one in self.watching.tables)
        held = self._looks().rows.held_tables().text
        body = f"""\
#variable_conflict use_variable
DECLARE
  wane_now timestamptz := clock_timestamp();
  wane_began timestamptz;
  wane_sum bigint;
  wane_most bigint;
  wane_worst text;
  wane_held boolean := EXISTS ({held});
BEGIN
{tables}
END"""
        return (
            f"CREATE OR REPLACE FUNCTION {OWN_SCHEMA}.sql_watch(wane_all boolean) RETURNS TABLE ({_COLUMNS})"
            f" LANGUAGE plpgsql\n{SETTINGS}\nAS {dollars(body)}"
        )

    def _one(self, look: Probe) -> str:
        p = Parameters(WatchingDialect(NOW))
        return f"({plain(p.statement(look(p)))})"

    def _asked(self, variable: str, write: Callable[[Probes, Parameters], str]) -> str:
        """Write a probe of what is due; while no holds exist, no row is checked for holds."""
        asking, free = (self._one(partial(write, looks)) for looks in (self._looks(), self._looks(held=())))
        return f"IF wane_held THEN {variable} := {asking}; ELSE {variable} := {free}; END IF;"

    def _looks(self, now: str = NOW, held: Collection[str] | None = None) -> Probes:
        return Probes(Rows(WatchingDialect(now), holds=True), held)

    def _table(self, one: WatchedTable) -> str:
        looks, rules = self._looks(), list(one.selections)
        name = literal(str(one.name))
        rows = self._one(lambda p: looks.count(p, one.info, self.most, alone=one.alone))
        lines = [
            (
                f"  wane_tbl := {name}; wane_rule := NULL; wane_rows := NULL; wane_rows_exactness := NULL; wane_oldest := NULL;"
                " wane_newest := NULL; wane_bytes := NULL; wane_hot_ms := NULL; wane_large := NULL;"
            ),
            "  BEGIN",
            f"    wane_rows := {rows}; wane_rows_exactness := 'exact';",
            f"    IF wane_rows > {self.most} THEN",
            (
                f"      wane_rows := greatest({OWN_SCHEMA}.sql_estimate({literal(self._all_rows(one.info))}), {self.most});"
                " wane_rows_exactness := 'estimate';"
            ),
            "    END IF;",
        ]
        if one.sight is not None:
            sight = one.sight
            oldest = self._one(lambda p: looks.edge(p, sight, self.most, newest=False, instants=True))
            newest = self._one(lambda p: looks.edge(p, sight, self.most, newest=True, instants=True))
            lines.append(f"    wane_oldest := {oldest}; wane_newest := {newest};")
        lines += ["    IF wane_all THEN", f"      wane_bytes := {self._one(lambda p: table_size(p, one.info))};"]
        lines += [*self._large(one), *self._hot(one), "    END IF;", "  EXCEPTION WHEN OTHERS THEN NULL;", "  END;"]
        lines.append("  wane_sum := 0; wane_most := 0; wane_worst := 'exact';")
        for selection in rules:
            lines += self._rule(one, selection)
        lines += self._all_due(one)
        lines.append(
            f"  wane_tbl := {name}; wane_rule := NULL; wane_due := wane_sum;"
            " wane_due_exactness := CASE WHEN wane_sum IS NOT NULL THEN wane_worst END;"
            " wane_oldest_due := NULL; wane_soon := NULL; RETURN NEXT;"
        )
        return "\n".join(lines)

    def _all_rows(self, table: TableInfo) -> str:
        return f"SELECT 1 FROM {PostgresDialect().table(table)}".replace("%%", "%")

    def _large(self, one: WatchedTable) -> list[str]:
        """Write the statements that decide whether partitions are recommended."""
        settings = self.watching.settings
        if one.info.kind is not Kind.TABLE or not one.selections:
            return ["      wane_large := false;"]
        lines = [f"      wane_large := wane_rows >= {settings.partition_rows};"]
        if one.finished:
            looks = self._looks()
            finished = self._one(lambda p: looks.count_states(p, one.selections[0], one.finished))[1:-1]
            lines += [
                f"      IF NOT wane_large AND wane_rows >= {settings.partition_finished_rows} THEN",
                f"        wane_large := {OWN_SCHEMA}.sql_estimate({literal(finished)}) >= {settings.partition_finished_rows};",
                "      END IF;",
            ]
        return lines

    def _hot(self, one: WatchedTable) -> list[str]:
        if not one.selections or one.hot is None or one.hot.small:
            return []
        looks, sight = self._looks(), one.hot
        read = self._one(lambda p: looks.edge(p, sight, self.most, newest=False))
        return [
            f"      IF wane_rows > {self.most} THEN",
            "        FOR wane_try IN 1..5 LOOP",
            f"          wane_began := clock_timestamp(); PERFORM {read};",
            "          wane_hot_ms := least(wane_hot_ms, extract(epoch FROM clock_timestamp() - wane_began) * 1000);",
            "        END LOOP;",
            "      END IF;",
        ]

    def _rule(self, one: WatchedTable, selection: Selection) -> list[str]:
        """Write the statements that count what is due under one rule, and add it to the table's sum."""
        head = (
            f"  wane_rule := {literal(selection.rule.name)}; wane_due := NULL; wane_due_exactness := NULL;"
            " wane_oldest_due := NULL; wane_soon := NULL;"
        )
        try:
            looks = self._counted(one, selection)
        except WrongArgument:
            # SQL cannot decide what is due under this rule as exactly as the engine.
            return ["  wane_sum := NULL;"]
        add = (
            "  wane_sum := wane_sum + wane_due; wane_most := greatest(wane_most, wane_due); wane_worst := CASE WHEN wane_due IS NULL THEN NULL"
            " WHEN 'estimate' IN (wane_worst, wane_due_exactness) THEN 'estimate' ELSE wane_worst END;"
        )
        return [head, "  BEGIN", *looks, "  EXCEPTION WHEN OTHERS THEN NULL;", "  END;", add, "  RETURN NEXT;"]

    def _counted(self, one: WatchedTable, selection: Selection) -> list[str]:
        due = self._asked("wane_due", lambda looks, p: looks.count_due(p, [selection], ANY_MOMENT, self.most))
        planned = self._looks(_PLANNED_NOW).rows.count_due(selection, ANY_MOMENT)
        lines = [
            f"    {due} wane_due_exactness := 'exact';",
            f"    IF wane_due > {self.most} THEN",
            (
                f"      wane_due := greatest({OWN_SCHEMA}.sql_estimate({literal(plain(planned))}), {self.most});"
                " wane_due_exactness := 'estimate';"
            ),
            "    END IF;",
        ]
        if isinstance(selection.rule.bound, Cap):
            return lines
        oldest = self._asked(
            "wane_oldest_due",
            lambda looks, p: f"({looks.oldest_due(p, selection, ANY_MOMENT, instants=True)})",
        )
        lines += ["    IF wane_all THEN", f"      {oldest}"]
        every = one.every
        if every is not None:
            looks = self._looks()
            soon = self._one(lambda p: looks.soon_due(p, selection, ANY_MOMENT, every, self.most))
            lines.append(f"      wane_soon := {soon};")
        return [*lines, "    END IF;"]

    def _all_due(self, one: WatchedTable) -> list[str]:
        """Write the statements that count a row once where two rules may select it."""
        if not one.selections:
            return ["  wane_sum := NULL; wane_worst := NULL;"]
        if not one.overlapping:
            return []
        looks = self._looks()
        try:
            together = self._one(lambda p: looks.count_due(p, one.selections, ANY_MOMENT, self.most))
        except WrongArgument:
            return ["  wane_sum := NULL; wane_worst := NULL;"]
        return [
            "  BEGIN",
            f"    wane_due := {together};",
            f"    IF wane_due > {self.most} THEN wane_worst := 'at least'; wane_due := greatest({self.most}, wane_most);",
            "    ELSE wane_worst := 'exact'; END IF;",
            "    wane_sum := CASE WHEN wane_sum IS NULL THEN NULL ELSE wane_due END;",
            "  EXCEPTION WHEN OTHERS THEN wane_sum := NULL; wane_worst := NULL;",
            "  END;",
        ]


def _view() -> str:
    return f"""\
CREATE OR REPLACE VIEW {OWN_SCHEMA}.{PRESSURE_VIEW} (tbl, rows, oldest, newest, due, share, rows_exactness, due_exactness) AS
SELECT wane_tbl, wane_rows, wane_oldest, wane_newest, wane_due,
  CASE WHEN wane_rows IS NULL OR wane_due IS NULL THEN NULL WHEN wane_rows = 0 THEN 0
    ELSE round(least(wane_due::numeric / wane_rows, 1), 4) END::float8,
  wane_rows_exactness, wane_due_exactness
FROM {OWN_SCHEMA}.sql_watch(false) WHERE wane_rule IS NULL"""
