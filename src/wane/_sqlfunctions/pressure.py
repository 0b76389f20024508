"""The view of pressure inside the database, for one contract. It reads what `wane.observe` reads, with the same probes.

The view is not over users' tables themselves: a function reads them, so that nothing prevents changing or dropping a
table. A table that cannot be read is reported without numbers, and the others are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.postgres.dialect import PostgresDialect
from wane._db.postgres.plpgsql import dollars, literal, plain
from wane._db.postgres.settings import SAFE_SETTINGS, function_settings
from wane._db.schema import PRESSURE_COLUMNS, PRESSURE_FUNCTION, PRESSURE_VIEW, TableInfo
from wane._db.statement import NOW, Parameters
from wane._rules.probes import Probe, ProbedTable, Probes
from wane._rules.queries import Queries
from wane._rules.rows import Rows
from wane._rules.selection import Selection
from wane._sqlfunctions.plpgsql import relative_to
from wane.errors import WrongArgument

REPLACED_FUNCTIONS = (PRESSURE_FUNCTION, "sql_estimate")
"""The view depends on these, so they are replaced in place."""

_VARIABLE_NOW = "wane_now"
_PLANNED_NOW = "statement_timestamp()"
"""Replaces now where the planner estimates: it can evaluate this expression, but not a variable."""
SETTINGS = function_settings({**SAFE_SETTINGS, "max_parallel_workers_per_gather": "0", "jit": "off"})
_COLUMNS = (
    "wane_tbl text, wane_rows bigint, wane_rows_exactness text, wane_oldest timestamptz, wane_newest timestamptz,"
    " wane_due bigint, wane_due_exactness text"
)


def pressure_statements(tables: Sequence[ProbedTable], counted_rows: int) -> list[str]:
    """Return the statements of the view and the functions it needs, in an order in which they can be created."""
    return [_estimate(), *_keeping_rights(_ProbeFunctionWriter(counted_rows).function(tables)), _view()]


def _keeping_rights(replaced: str) -> list[str]:
    """Return the statements that replace the function behind the view and preserve its SECURITY DEFINER setting.

    Replacing a function retains who may call it, but resets that it acts as its owner: readers would lose access.
    """
    function = f"{OWN_SCHEMA}.{PRESSURE_FUNCTION}()"
    before = f"""\
BEGIN
  PERFORM set_config('wane.pressure_as_owner', (SELECT prosecdef::text FROM pg_catalog.pg_proc WHERE oid = to_regprocedure('{function}')), true);
END"""
    after = f"""\
BEGIN
  IF current_setting('wane.pressure_as_owner', true) = 'true' THEN ALTER FUNCTION {function} SECURITY DEFINER; END IF;
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


class _ProbeFunctionWriter:
    """Writes the function that probes every table."""

    def __init__(self, counted_rows: int) -> None:
        self.most = counted_rows

    def function(self, tables: Sequence[ProbedTable]) -> str:
        held = Queries(self._probes().rows).held_tables().text
        body = f"""\
#variable_conflict use_variable
DECLARE
  wane_now timestamptz := clock_timestamp();
  wane_one bigint;
  wane_most bigint;
  wane_held boolean := EXISTS ({held});
BEGIN
{chr(10).join(line for one in tables for line in self._table(one))}
END"""
        return (
            f"CREATE OR REPLACE FUNCTION {OWN_SCHEMA}.{PRESSURE_FUNCTION}() RETURNS TABLE ({_COLUMNS})"
            f" LANGUAGE plpgsql\n{SETTINGS}\nAS {dollars(body)}"
        )

    def _probes(self, held: Collection[str] | None = None) -> Probes:
        return Probes(Rows(PostgresDialect(), holds=True), held)

    def _query(self, probe: Probe) -> str:
        p = Parameters(PostgresDialect())
        return f"({plain(p.statement(probe(p)), relative_to(_VARIABLE_NOW))})"

    def _assign_due(self, variable: str, write: Callable[[Probes, Parameters], str]) -> str:
        """Write a probe of what is due; while no holds exist, no row is checked for holds."""
        held, free = (self._query(partial(write, probes)) for probes in (self._probes(), self._probes(held=())))
        return f"IF wane_held THEN {variable} := {held}; ELSE {variable} := {free}; END IF;"

    def _table(self, one: ProbedTable) -> list[str]:
        probes = self._probes()
        rows = self._query(lambda p: probes.count(p, one.info, self.most, without_children=one.without_children))
        lines = [
            (
                f"  wane_tbl := {literal(str(one.name))}; wane_rows := NULL; wane_rows_exactness := NULL;"
                " wane_oldest := NULL; wane_newest := NULL;"
            ),
            "  BEGIN",
            f"    wane_rows := {rows}; wane_rows_exactness := 'exact';",
            f"    IF wane_rows > {self.most} THEN",
            f"      wane_rows := {self._at_least(self._all_rows(one.info))}; wane_rows_exactness := 'estimate';",
            "    END IF;",
        ]
        if (time_range := one.time_range) is not None:
            oldest = self._query(lambda p: probes.edge(p, time_range, self.most, newest=False, instants=True))
            newest = self._query(lambda p: probes.edge(p, time_range, self.most, newest=True, instants=True))
            lines.append(f"    wane_oldest := {oldest}; wane_newest := {newest};")
        lines += ["  EXCEPTION WHEN OTHERS THEN NULL;", "  END;"]
        return [*lines, *self._due(one), "  RETURN NEXT;"]

    def _all_rows(self, table: TableInfo) -> str:
        return f"SELECT 1 FROM {PostgresDialect().table(table)}".replace("%%", "%")

    def _at_least(self, query: str) -> str:
        """Write the planner's estimate of a query that has more rows than are counted."""
        return f"greatest({OWN_SCHEMA}.sql_estimate({literal(query)}), {self.most})"

    def _due(self, one: ProbedTable) -> list[str]:
        """Write the statements that count what is due under any rule; NULL where one of them cannot be counted."""
        try:
            counted = [line for selection in one.selections for line in self._rule(selection)]
            counted += self._together(one) if one.overlapping else []
        except WrongArgument:
            counted = []  # SQL cannot decide what is due under a rule as exactly as the engine.
        if not counted:
            return ["  wane_due := NULL; wane_due_exactness := NULL;"]
        return [
            "  wane_due := 0; wane_most := 0; wane_due_exactness := 'exact';",
            "  BEGIN",
            *counted,
            "  EXCEPTION WHEN OTHERS THEN wane_due := NULL; wane_due_exactness := NULL;",
            "  END;",
        ]

    def _rule(self, selection: Selection) -> list[str]:
        """Write the statements that count what is due under one rule, and add it to the table's sum."""
        due = self._assign_due("wane_one", lambda probes, p: probes.count_due(p, [selection], NOW, self.most))
        return [
            f"    {due}",
            f"    IF wane_one > {self.most} THEN",
            f"      wane_one := {self._at_least(self._planned([selection]))}; wane_due_exactness := 'estimate';",
            "    END IF;",
            "    wane_due := wane_due + wane_one; wane_most := greatest(wane_most, wane_one);",
        ]

    def _together(self, one: ProbedTable) -> list[str]:
        """Write the statements that count a row once where two rules may select it."""
        probes = self._probes()
        together = self._query(lambda p: probes.count_due(p, one.selections, NOW, self.most))
        return [
            f"    wane_one := {together}; wane_due_exactness := 'exact';",
            f"    IF wane_one > {self.most} THEN",
            # Rules may share any of their rows: the larger number is due at least, and the sum at most.
            f"      wane_one := least(greatest({self._at_least(self._planned(one.selections))}, wane_most), wane_due);",
            "      wane_due_exactness := 'estimate';",
            "    END IF;",
            "    wane_due := wane_one;",
        ]

    def _planned(self, selections: Sequence[Selection]) -> str:
        """Write the query whose rows the planner estimates."""
        return plain(Queries(self._probes().rows).estimate_due(selections, NOW), relative_to(_PLANNED_NOW))


def _view() -> str:
    return f"""\
CREATE OR REPLACE VIEW {OWN_SCHEMA}.{PRESSURE_VIEW} ({", ".join(PRESSURE_COLUMNS)}) AS
SELECT wane_tbl, wane_rows, wane_oldest, wane_newest, wane_due,
  CASE WHEN wane_due = 0 AND wane_due_exactness = 'exact' THEN 0
    WHEN wane_rows IS NULL OR wane_due IS NULL THEN NULL WHEN wane_rows = 0 THEN sign(wane_due) ELSE round(least(wane_due::numeric / wane_rows, 1), 4) END::float8,
  wane_rows_exactness, wane_due_exactness,
  CASE WHEN wane_due = 0 AND wane_due_exactness = 'exact' THEN 'exact'
    WHEN wane_rows IS NULL OR wane_due IS NULL THEN NULL
    WHEN wane_rows_exactness = 'exact' AND wane_due_exactness = 'exact' THEN 'exact' ELSE 'estimate' END
FROM {OWN_SCHEMA}.{PRESSURE_FUNCTION}()"""
