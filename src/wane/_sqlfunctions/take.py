"""The function that takes rows by one rule and writes the audit trail.

It reads, locks, reads again and takes, as `RowTaker._take_locked` does. There is no way to call one without writing an
audit row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from wane._contract.model import Cap, Expiry, Rule
from wane._db.postgres.catalog import OWN_SCHEMA
from wane._db.postgres.dialect import PostgresDialect
from wane._db.postgres.gate import ENTER, gates
from wane._db.postgres.plpgsql import Variables, dollars, literal, plain
from wane._db.postgres.settings import SAFE_SETTINGS, function_settings
from wane._db.schema import TableInfo
from wane._db.statement import NOW, Slot, Statement, TimeSlot
from wane._prune.sql_postgres import Closing, closing_followers, closing_references
from wane._prune.take import MOST_LOST, gated
from wane._rules.batch_statements import FollowerStatements
from wane._rules.dependencies_postgres import read_effects, read_stamps
from wane._rules.rows import Rows, cutoff
from wane._rules.rule_statements import statements_of
from wane._rules.scopes import MOST_SCOPES, SCOPES
from wane._rules.selection import Selection, follower_paths
from wane._rules.walk import Walk
from wane._sqlfunctions.plpgsql import bounds, interval, window_now

SETTINGS = function_settings(
    {**SAFE_SETTINGS, "lock_timeout": "200ms", "jit": "off", "plan_cache_mode": "force_custom_plan"}
)
"""The settings of the engine's own connection. A generic plan would not know how many rows are due."""

QUEUE = Slot("queue")
"""The queue that a call of the webhook family names, read from its inputs."""
_PARAMETERS = (
    "wane_kind text, wane_rule text, wane_inputs jsonb, wane_limit integer, wane_most integer,"
    " wane_now timestamptz, wane_skip boolean"
)
_ISOLATED = """\
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_transaction_state',
      MESSAGE = format('the transaction is %s: it would not see what others committed since it began', current_setting('transaction_isolation')),
      HINT = 'prune in a READ COMMITTED transaction';
  END IF;"""
_TRIGGER_HINT = "a trigger or a rule on the table keeps rows from leaving; nothing was changed"


@dataclass(frozen=True, slots=True)
class TakeFunction:
    """One function: its number among the others, and the rule it takes rows by."""

    number: int
    selection: Selection

    @property
    def name(self) -> str:
        return f"{OWN_SCHEMA}.sql_take_{self.number}"

    @property
    def may_skip(self) -> bool:
        """Return whether locked rows may be skipped.

        Which rows are beyond a cap depends on all of them; none may be skipped.
        """
        return not isinstance(self.selection.rule.bound, Cap)


def take_function(take: TakeFunction) -> str:
    """Write the CREATE FUNCTION statement for a rule.

    Raise WrongArgument if SQL cannot decide what is due as the engine does.
    """
    return TakeWriter(take).function()


class TakeWriter:
    """Writes the function of one rule."""

    def __init__(self, take: TakeFunction) -> None:
        self.take = take
        self.rows = Rows(PostgresDialect(), holds=True)
        self.selection = take.selection
        self.rule = statements_of(self.rows, self.selection)
        self.width = len(self.selection.key)
        self.position = range(len(Walk(self.rows, self.selection).names))

    def write(self, statement: Statement, keys: str = "k", limit: str = "wane_chunk") -> str:
        """Return a statement's text with the function's variables in its slots.

        `keys` is the letter of the arrays with the keys: `k` for candidates, `c` for chosen rows.
        """
        return plain(statement, self.variables(keys, limit))

    def variables(self, keys: str, limit: str = "wane_chunk") -> Variables:
        """Return what writes a slot as a variable of the function."""
        return partial(_variable, keys, limit)

    def function(self) -> str:
        rule = self.selection.rule
        variables = self._bounds(rule)
        declared = [*(f"wane_{name} {kind};" for name, (kind, _) in variables.items()), *self.declared()]
        computed = [f"  wane_{name} := {text};" for name, (_, text) in variables.items()]
        deciding = cutoff(rule, NOW)
        if deciding is not None:
            computed.insert(0, f"  wane_at := wane_now + {interval(deciding.offset)};")
        name = literal(str(self.selection.name))
        body = f"""\
#variable_conflict use_variable
DECLARE
  wane_began timestamptz := clock_timestamp();
  wane_clock timestamptz;
  wane_at timestamptz;
  wane_counts jsonb := jsonb_build_object({name}, 0);
  wane_all bigint := wane_most;
  wane_total bigint := 0;
  wane_take bigint;
  wane_rows_left bigint;
  wane_chunk bigint;
  wane_left bigint;
  wane_own bigint := 0;
  wane_sum bigint := 0;
  wane_taken bigint := 0;
  wane_found bigint;
  wane_lost bigint;
  wane_followers float8;
  wane_whole boolean := false;
  wane_scopes bigint;
  wane_gone bigint;
  wane_some boolean;
  wane_closed boolean;
  wane_fits boolean;
  wane_row record;
  wane_scope record;
  {" ".join(declared)}
BEGIN
{_ISOLATED}
  PERFORM {plain(Statement(ENTER, gates(gated(self.selection)))).removeprefix("SELECT ")};
  wane_clock := clock_timestamp();
  wane_now := coalesce(wane_now, wane_clock);
{chr(10).join(computed)}
{self._scopes()}
{self._require_bound()}
  RETURN {OWN_SCHEMA}.sql_record(wane_kind, {name}, wane_rule, wane_inputs, wane_counts, wane_total, wane_at, wane_clock, wane_began);
END"""
        return f"CREATE FUNCTION {self.take.name}({_PARAMETERS}) RETURNS jsonb\nLANGUAGE plpgsql\n{SETTINGS}\nAS {dollars(body)}"

    def declared(self) -> list[str]:
        """Return the declarations of variables beyond those that every function has."""
        declared = [f"wane_{letter}{number} text[];" for letter in "kc" for number in range(self.width)]
        declared += [f"wane_p{number} text[]; wane_f{number} text;" for number in self.position]
        declared += [f"wane_i{number} text[];" for number in range(self._identity_width())]
        declared += [f"wane_s{number} text;" for number in range(len(self.selection.per))]
        if self.rule.lock_spared is not None:
            declared.append("wane_agree boolean;")
            declared += [f"wane_{letter}{number} text[];" for letter in "vw" for number in range(self.width)]
        fixed = [one for path in follower_paths(self.selection) for one in path[-1].where]
        if any(QUEUE in one.values for condition in fixed for one in condition.comparisons):
            declared.append("wane_queue text := wane_inputs ->> 'queue_name';")
        return declared

    def _bounds(self, rule: Rule) -> dict[str, tuple[str, str]]:
        if isinstance(rule.bound, Cap):
            return {}
        inclusive, aged = isinstance(rule.bound, Expiry), self.selection.other_time or self.selection.own_time
        assert aged is not None
        variables = {
            f"{time.unit.value}_{name}": bound
            for time in aged.time.each
            for name, bound in bounds(aged.column, time, inclusive=inclusive).items()
        }
        if self.selection.longer is not None:
            kind, text = window_now(aged.time)
            variables[f"{aged.time.unit.value}_window_now"] = kind, text.replace("wane_at", "wane_now")
        return variables

    def _require_bound(self) -> str:
        """Write what `PostgresRowTaker.require_bound` does.

        Where stamps differ, effects decide: columns and partitions may be added.
        """
        stamps = plain(read_stamps(self.selection))
        known = literal(sorted(f"{number} {stamp}" for number, stamp in self.selection.dependencies.stamps))
        effects = plain(read_effects(self.rows, self.selection))
        bound = literal(sorted(self.selection.dependencies.effects))
        message = (
            f"{self.selection.label}: foreign keys, triggers or descendants changed since the functions were installed"
        )
        return f"""\
  IF wane_total > 0
    AND ARRAY(SELECT concat(s.oid, ' ', s.stamp) AS one FROM ({stamps}) AS s(oid, stamp) ORDER BY concat(s.oid, ' ', s.stamp) COLLATE "C")
      IS DISTINCT FROM {known}::text[]
    AND ({effects}) IS DISTINCT FROM {bound}::text[]
  THEN
    RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state', MESSAGE = {literal(message)},
      HINT = 'nothing was taken; install the functions again: wane sql install';
  END IF;"""

    def _scopes(self) -> str:
        """Write one batch, or what `take_all_scopes` does: one for each scope beyond the cap until the call is full.

        If there are very many and nothing in them may leave, a second round reads those where something may.
        """
        if not self.selection.per:
            return self._batch()
        beyond, due = (self.write(one) for one in self.rule.scopes)
        names = [f"o{number}" for number in range(len(self.selection.per))]
        outputs = ", ".join(names)
        chosen = " ".join(f"wane_s{number} := wane_scope.{name};" for number, name in enumerate(names))
        return f"""\
  FOR wane_round IN 1..2 LOOP
  wane_scopes := 0;
  FOR wane_scope IN
    SELECT * FROM ({beyond}) AS s({outputs}) WHERE wane_round = 1
    UNION ALL
    SELECT * FROM ({due}) AS s({outputs}) WHERE wane_round = 2
  LOOP
  wane_scopes := wane_scopes + 1; wane_whole := wane_total > 0;
  {chosen}
{self._batch()}
  wane_most := wane_all - wane_total;
  EXIT WHEN wane_most <= 0;
  END LOOP;
  EXIT WHEN wane_total > 0 OR wane_scopes < {MOST_SCOPES};
  END LOOP;"""

    def _batch(self) -> str:
        """Write what `PostgresRowTaker.take` does."""
        closings = closing_references(self.rows, self.selection)
        locks = "".join(f"  {one}\n" for one in _closing(closings, "wane_closed := true;"))
        head = f"  wane_take := least(wane_limit, wane_most); wane_closed := false; {self._lowest()}\n{locks}"
        if self.rule.take_range is None:
            return head + self._locked(skip=False)
        ranged = self._ranged(self.rule.take_range)
        return f"{head}  IF NOT wane_skip THEN\n{ranged}\n  ELSE\n{self._locked(skip=True)}\n  END IF;"

    def _lowest(self) -> str:
        """Write the position before every row, where the first batch begins."""
        first, *rest = self.position
        return " ".join([f"wane_f{first} := {literal(self.rule.lowest)};", *(f"wane_f{n} := NULL;" for n in rest)])

    def _ranged(self, take: Statement) -> str:
        """Write what `PostgresRowTaker.take` does without locking: it continues behind rows that others took first."""
        targets = ", ".join(["wane_gone", "wane_found", *(f"wane_f{number}" for number in self.position)])
        return f"""\
  wane_own := 0;
  FOR wane_try IN 1..{MOST_LOST} LOOP
    wane_chunk := wane_take - wane_own;
    {self.write(take)} INTO {targets};
    {self.count(str(self.selection.name))}
    EXIT WHEN wane_found < wane_chunk OR wane_own >= wane_take;
  END LOOP;"""

    def _locked(self, *, skip: bool) -> str:
        """Write what `RowTaker._take_locked` does: it reads as many rows as should fit, until the batch is full."""
        paths = len(follower_paths(self.selection))
        return f"""\
  wane_own := 0; wane_sum := 0; wane_lost := 0; wane_followers := {paths};
  LOOP
    wane_rows_left := wane_most - wane_sum;
    wane_chunk := least(wane_take - wane_own, greatest(1, trunc(wane_rows_left / (1 + wane_followers))::bigint));
    EXIT WHEN wane_rows_left <= 0 OR wane_chunk <= 0 OR wane_lost > {MOST_LOST};
    wane_whole := wane_whole OR wane_sum > 0;
    wane_taken := 0;
{self._find(skip=skip)}
    EXIT WHEN wane_found < wane_chunk AND wane_left >= 0;
    IF wane_taken > 0 THEN wane_followers := wane_sum::float8 / wane_own - 1; ELSE wane_lost := wane_lost + 1; END IF;
  END LOOP;"""

    def _find(self, *, skip: bool) -> str:
        """Write what `RowTaker._lock_and_take` does."""
        assert self.rule.lock is not None
        assert self.rule.lock_unlocked is not None
        width = self.width
        candidates = self._collect(self.rule.candidates, [f"p{number}" for number in self.position])
        free, wait = self._collect(self.rule.lock_unlocked), self._collect(self.rule.lock)
        lock = free if skip else f"IF wane_skip OR wane_closed THEN {free} ELSE {wait} END IF;"
        chosen = " ".join(f"wane_c{n} := array_append(wane_c{n}, wane_row.o{n});" for n in range(width))
        ended = " ".join(f"wane_f{n} := wane_p{n}[cardinality(wane_p{n})];" for n in self.position)
        return f"""\
    {candidates}
    EXIT WHEN wane_k0 IS NULL;
    wane_found := cardinality(wane_k0);
    {lock}
    {self._lock_times()}
{self._without_spared()}{self._choose(f"wane_some := cardinality(wane_c0) = 0; IF wane_some THEN {chosen} END IF;")}
    IF wane_some THEN
      EXIT WHEN wane_whole;
{self.some_followers()}
      EXIT;
    END IF;
{self._lock_followers()}
    IF cardinality(wane_c0) > 0 THEN
{self.take_chosen()}
    END IF;
    IF wane_left >= 0 THEN
      {ended}
    END IF;"""

    def _without_spared(self) -> str:
        """Write what `PostgresRowTaker.lock_spared` does, and leave the rows that it locks out of the candidates."""
        if self.rule.lock_spared is None:
            return ""
        mine, found, before = ([f"wane_{letter}{number}" for number in range(self.width)] for letter in "kvw")
        names = [f"o{number}" for number in range(self.width)]
        outputs, arrays = ", ".join(names), ", ".join(f"array_agg(c.{name})" for name in names)
        pairs = list(zip(found, before, strict=True))
        message = literal(f"{self.selection.name}: the newest rows of it, which stay, changed at every attempt")
        return f"""\
    IF wane_k0 IS NOT NULL THEN
      {" ".join(f"{one} := '{{}}';" for one in before)} wane_agree := false;
      FOR wane_try IN 1..{MOST_LOST} LOOP
        SELECT {arrays} INTO {", ".join(found)} FROM ({self.write(self.rule.lock_spared)}) AS c({outputs});
        wane_agree := {" AND ".join(f"{one} IS NOT DISTINCT FROM {other}" for one, other in pairs)};
        EXIT WHEN wane_agree;
        {" ".join(f"{other} := {one};" for one, other in pairs)}
      END LOOP;
      IF NOT wane_agree THEN RAISE EXCEPTION USING ERRCODE = 'lock_not_available', MESSAGE = {message}; END IF;
      SELECT {arrays} INTO {", ".join(mine)} FROM unnest({", ".join(mine)}) AS c({outputs})
        WHERE ({", ".join(f"c.{name}" for name in names)}) NOT IN (SELECT * FROM unnest({", ".join(found)}) AS spared);
    END IF;
"""

    def _lock_times(self) -> str:
        """Write the locks on rows of other tables that hold the times and windows of locked rows."""
        locks = [re.sub(r"^SELECT ", "PERFORM ", self.write(one)) for one in self.rule.lock_times]
        return f"IF wane_k0 IS NOT NULL THEN {'; '.join(locks)}; END IF;" if locks else ""

    def _choose(self, full: str = "") -> str:
        """Write what `RowTaker._choose` does; `full` runs at the first row that does not fit."""
        still = self.write(self.rule.recheck)
        outputs = ", ".join([*(f"o{number}" for number in range(self.width)), "followers"])
        emptied = " ".join(f"wane_c{number} := '{{}}';" for number in range(self.width))
        chosen = " ".join(f"wane_c{n} := array_append(wane_c{n}, wane_row.o{n});" for n in range(self.width))
        return f"""\
    wane_left := wane_rows_left; wane_some := false; {emptied}
    IF wane_k0 IS NOT NULL THEN
      FOR wane_row IN SELECT * FROM ({still}) AS d({outputs}) LOOP
        wane_left := wane_left - 1 - wane_row.followers;
        IF wane_left < 0 THEN {full} EXIT; END IF;
        {chosen}
      END LOOP;
    END IF;"""

    def _lock_followers(self) -> str:
        """Write what `PostgresRowTaker.lock_followers` does, and the read after it."""
        outermost = sorted(self.rule.followers, key=lambda one: len(one.path))
        rows = [self.write(one.lock, "c") for one in outermost if one.lock is not None]
        if not rows:
            return ""
        closings = _closing(closing_followers(self.rows, self.selection))
        locks = [*closings, *(re.sub(r"^SELECT ", "PERFORM ", one) + ";" for one in rows)]
        keys = " ".join(f"wane_k{n} := wane_c{n};" for n in range(self.width))
        return f"""\
    IF cardinality(wane_c0) > 0 THEN
      {" ".join(locks)}
      wane_fits := wane_left >= 0; {keys}
{self._choose()}
      IF NOT wane_fits THEN wane_left := -1; END IF;
    END IF;"""

    def _collect(self, statement: Statement, positions: Sequence[str] = ()) -> str:
        """Write the query that reads keys into the arrays."""
        names = [f"o{number}" for number in range(self.width)]
        arrays = ", ".join(f"array_agg(c.{name})" for name in [*names, *positions])
        targets = ", ".join(
            [*(f"wane_k{number}" for number in range(self.width)), *(f"wane_{name}" for name in positions)]
        )
        return f"SELECT {arrays} INTO {targets} FROM ({self.write(statement)}) AS c({', '.join([*names, *positions])});"

    def take_chosen(self) -> str:
        """Write what `RowTaker.take_chosen` does."""
        return "\n".join(self.take_lines("c"))

    def take_lines(self, keys: str) -> list[str]:
        """Write the statements that take the rows whose keys are in the arrays of this letter."""
        selection = self.selection
        lines = []
        for one in self.rule.followers:
            lines += self.change(one.take, one.name, one.table, keys)
            if one.path[-1].has_delete_triggers:
                remaining = self.write(one.remaining, keys)
                message = f"{one.name}: rows were to leave with rows of {selection.name}, but the database kept some"
                lines.append(f"IF EXISTS ({remaining}) THEN {_raise(literal(message))} END IF;")
        lines += self.change(self.rule.take, str(selection.name), selection.table, keys)
        message = (
            f"format('%s: %s rows were due and locked, but the database took %s',"
            f" {literal(str(selection.name))}::text, cardinality(wane_{keys}0), wane_gone)"
        )
        lines.append(f"IF wane_gone <> cardinality(wane_{keys}0) THEN {_raise(message)} END IF;")
        return lines

    def some_followers(self) -> str:
        """Write what `RowTaker.take_some_followers` does."""
        lines = ["wane_left := wane_rows_left;"]
        for one in self.rule.followers:
            change = self._some_of(one)
            lines += ["IF wane_left > 0 THEN", *change, "wane_left := wane_left - wane_gone;", "END IF;"]
        stays = literal(f"{self.selection.name}: rows that are to leave with it stay")
        others = [one for one in self.rule.followers if len(one.path) > 1 or not self.selection.holds_time(one.path[0])]
        still = " OR ".join(f"EXISTS ({self.write(one.remaining, 'c')})" for one in others)
        if still:
            due = self.write(self.rule.recheck, "c")
            lines.append(f"IF wane_left = wane_rows_left AND ({still}) AND EXISTS ({due}) THEN {_raise(stays)} END IF;")
        return "\n".join(lines)

    def _some_of(self, one: FollowerStatements) -> list[str]:
        """Write what `RowTaker._take_some` does."""
        if one.childless is None:
            return self.change(one.some, one.name, one.table, "c", "wane_left")
        names = [f"i{number}" for number in range(len(self.rows.identity(one.path[-1])))]
        arrays, targets = (", ".join(form % name for name in names) for form in ("array_agg(c.%s)", "wane_%s"))
        some = self.write(one.some, "c", "wane_left")
        return [
            f"SELECT {arrays} INTO {targets} FROM ({some}) AS c({', '.join(names)});",
            *self.change(one.childless, one.name, one.table, "i"),
        ]

    def _identity_width(self) -> int:
        """Count the arrays that identify the rows of a follower with followers of its own."""
        return max((len(self.rows.identity(one.path[-1])) for one in self.rule.followers if one.childless), default=0)

    def change(
        self, statement: Statement, name: str, table: TableInfo, keys: str, limit: str = "wane_chunk"
    ) -> list[str]:
        """Write the statements that take rows of a table, and count them under a name."""
        del table
        return [f"{self.write(statement, keys, limit)};", "GET DIAGNOSTICS wane_gone = ROW_COUNT;", self.count(name)]

    def count(self, name: str) -> str:
        key = literal(name)
        own = " wane_own := wane_own + wane_gone; wane_taken := wane_taken + wane_gone;"
        return (
            f"wane_counts := wane_counts || jsonb_build_object({key}, coalesce((wane_counts ->> {key})::bigint, 0) + wane_gone);"
            " wane_total := wane_total + wane_gone; wane_sum := wane_sum + wane_gone;"
            f"{own if name == str(self.selection.name) else ''}"
        )


def _variable(keys: str, limit: str, slot: Slot) -> str:
    """Return the variable of a function that fills a slot."""
    if isinstance(slot, TimeSlot):
        return f"wane_{slot.time.unit.value}_{slot.name}"
    letters = {"keys": keys, "floor": "f", "scope": "s"}
    kind, _, number = slot.name.rpartition("_")
    if number.isdigit():
        return f"wane_{letters[kind]}{number}"
    known = {
        "limit": limit,
        "follower_limit": "wane_rows_left",
        QUEUE.name: "wane_queue",
        SCOPES.name: str(MOST_SCOPES),
    }
    return known[slot.name]


def _closing(closings: Sequence[Closing], closed: str = "") -> list[str]:
    """Write the locks on tables that no foreign key protects; `closed` runs after each of them."""
    written = []
    for one in closings:
        lock = f"{plain(one.lock)}; {closed}"
        if one.protected is not None:
            protected = plain(one.protected)
            lock = f"IF NOT (SELECT c.protected FROM ({protected}) AS c(kept, protected)) THEN {lock} END IF;"
        written.append(lock)
    return written


def _raise(message: str) -> str:
    return f"RAISE EXCEPTION USING MESSAGE = {message}, HINT = {literal(_TRIGGER_HINT)};"
