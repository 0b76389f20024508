"""The function that takes rows by one rule and writes the audit trail.

It reads, locks, reads again and takes, as `Taking._take_locked` does. There is no way to call one without writing an
audit row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wane.contract.model import Cap, Expiry, Rule
from wane.db.postgres.catalog import OWN_SCHEMA
from wane.db.postgres.literal import literal
from wane.db.postgres.settings import SAFE_SETTINGS, function_settings
from wane.db.schema import TableInfo
from wane.db.statement import Statement
from wane.prune.sql_postgres import takes_by_key
from wane.prune.taking import MOST_LOST, gated
from wane.rules.due import cutoff
from wane.rules.relied_postgres import read_effects, read_stamps
from wane.rules.rows import Rows
from wane.rules.selection import BoundFollower, Selection, follower_paths, intermediate_paths
from wane.sqlfunctions.words import ANY_MOMENT, FunctionDialect, Recorder, Variable, bounds, dollars, interval, plain

MOST_SCOPES = 1_000
"""How many scopes one call checks, as in `wane.prune.primitive`."""

SETTINGS = function_settings(
    {**SAFE_SETTINGS, "lock_timeout": "200ms", "jit": "off", "plan_cache_mode": "force_custom_plan"}
)
"""The settings of the engine's own connection. A generic plan would not know how many rows are due."""

QUEUE = Variable("wane_queue")
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
_KEPT = "a trigger or a rule on the table keeps rows from leaving; nothing was changed"


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


def take_function(taking: TakeFunction) -> str:
    """Write the CREATE FUNCTION statement for a rule.

    Raise WrongArgument if SQL cannot decide what is due as the engine does.
    """
    return TakeWriter(taking).function()


class TakeWriter:
    """Writes the function of one rule."""

    def __init__(self, taking: TakeFunction) -> None:
        self.taking = taking
        self.rows = Rows(FunctionDialect(), holds=True)
        self.selection = taking.selection
        if self.selection.per:
            scope = tuple(Variable(f"wane_s{number}") for number in range(len(self.selection.per)))
            self.selection = replace(self.selection, scope=scope)
        self.width = len(self.selection.key)
        self.keys = [tuple(Variable(f"wane_k{number}") for number in range(self.width))]
        self.chosen = [tuple(Variable(f"wane_c{number}") for number in range(self.width))]

    def function(self) -> str:
        rule = self.selection.rule
        variables = self._bounds(rule)
        declared = [*(f"wane_{name} {kind};" for name, (kind, _) in variables.items()), *self.declared()]
        computed = [f"  wane_{name} := {text};" for name, (_, text) in variables.items()]
        if cutoff(rule, ANY_MOMENT) is not None:
            keep = ANY_MOMENT - cutoff(rule, ANY_MOMENT)  # type: ignore[operator]
            computed.insert(0, f"  wane_moment := wane_now - {interval(keep)};")
        name = literal(str(self.selection.name))
        body = f"""\
#variable_conflict use_variable
DECLARE
  wane_began timestamptz := clock_timestamp();
  wane_clock timestamptz;
  wane_moment timestamptz;
  wane_counts jsonb := jsonb_build_object({name}, 0);
  wane_all bigint := wane_most;
  wane_total bigint := 0;
  wane_take bigint;
  wane_room bigint;
  wane_look bigint;
  wane_left bigint;
  wane_own bigint := 0;
  wane_sum bigint := 0;
  wane_taken bigint := 0;
  wane_found bigint;
  wane_lost bigint;
  wane_followers float8;
  wane_floored boolean;
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
  PERFORM {self._gates().removeprefix("SELECT ")};
  wane_clock := clock_timestamp();
  wane_now := coalesce(wane_now, wane_clock);
{chr(10).join(computed)}
{self._scopes()}
{self._require_bound()}
  RETURN {OWN_SCHEMA}.sql_record(wane_kind, {name}, wane_rule, wane_inputs, wane_counts, wane_total, wane_moment, wane_clock, wane_began);
END"""
        return f"CREATE FUNCTION {self.taking.name}({_PARAMETERS}) RETURNS jsonb\nLANGUAGE plpgsql\n{SETTINGS}\nAS {dollars(body)}"

    def declared(self) -> list[str]:
        """Return the declarations of variables beyond those that every function has."""
        declared = [f"wane_{letter}{number} text[];" for letter in "kc" for number in range(self.width)]
        places = range(len(self.rows.places(self.selection)))
        declared += [f"wane_p{number} text[]; wane_f{number} text;" for number in places]
        declared += [f"wane_i{number} text[];" for number in range(self._identity_width())]
        declared += [f"wane_s{number} text;" for number in range(len(self.selection.per))]
        if any(value is QUEUE for path in follower_paths(self.selection) for _, value in path[-1].where):
            declared.append(f"{QUEUE.name} text := wane_inputs ->> 'queue_name';")
        return declared

    def _bounds(self, rule: Rule) -> dict[str, tuple[str, str]]:
        if isinstance(rule.bound, Cap):
            return {}
        inclusive = isinstance(rule.bound, Expiry)
        return {
            f"{time.unit.value}_{name}": bound
            for time in self.selection.time.each
            for name, bound in bounds(self.selection.time_column, time, inclusive=inclusive).items()
        }

    def _gates(self) -> str:
        recorder = Recorder(self.rows)
        recorder.transaction.enter(gated(self.selection))
        return plain(recorder.last())

    def _require_bound(self) -> str:
        """Write what `PostgresTaking.require_bound` does.

        Where stamps differ, effects decide: columns and partitions may be added.
        """
        stamps = plain(read_stamps(self.selection))
        known = literal(sorted(f"{number} {stamp}" for number, stamp in self.selection.relied.stamps))
        effects = plain(read_effects(self.rows, self.selection))
        bound = literal(sorted(self.selection.relied.effects))
        message = f"{self.selection.label}: foreign keys, triggers or heirs changed since the functions were installed"
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
        anywhere = replace(self.selection, scope=None)
        beyond = plain(self.rows.scopes_beyond_cap(anywhere, MOST_SCOPES))
        due = plain(self.rows.scopes_due(anywhere, ANY_MOMENT, MOST_SCOPES))
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
        """Write what `PostgresTaking.take` does."""
        recorder = Recorder(self.rows, closed="wane_closed := true;")
        recorder.close_references(self.selection)
        locks = "".join(f"  {one}\n" for one in recorder.closing)
        head = f"  wane_take := least(wane_limit, wane_most); wane_closed := false;\n{locks}"
        if takes_by_key(self.selection):
            return head + self._locked(skip=False)
        return f"{head}  IF NOT wane_skip THEN\n{self._ranged()}\n  ELSE\n{self._locked(skip=True)}\n  END IF;"

    def _ranged(self) -> str:
        """Write what `PostgresTaking.take` does without locking: it continues behind rows that others took first."""
        look = Variable("wane_look")
        floor = tuple(Variable(f"wane_f{number}") for number in range(len(self.rows.places(self.selection))))
        targets = ", ".join(["wane_gone", "wane_found", *(one.name for one in floor)])
        first = plain(self.rows.take_range(self.selection, ANY_MOMENT, look))
        later = plain(self.rows.take_range(self.selection, ANY_MOMENT, look, floor))
        return f"""\
  wane_own := 0; wane_floored := false;
  FOR wane_try IN 1..{MOST_LOST} LOOP
    wane_look := wane_take - wane_own;
    IF wane_floored THEN {later} INTO {targets}; ELSE {first} INTO {targets}; END IF;
    {self.count(str(self.selection.name))}
    EXIT WHEN wane_found < wane_look OR wane_own >= wane_take;
    wane_floored := true;
  END LOOP;"""

    def _locked(self, *, skip: bool) -> str:
        """Write what `Taking._take_locked` does: it reads as many rows as should fit, until the batch is full."""
        paths = len(follower_paths(self.selection))
        return f"""\
  wane_own := 0; wane_sum := 0; wane_lost := 0; wane_floored := false; wane_followers := {paths};
  LOOP
    wane_room := wane_most - wane_sum;
    wane_look := least(wane_take - wane_own, greatest(1, trunc(wane_room / (1 + wane_followers))::bigint));
    EXIT WHEN wane_room <= 0 OR wane_look <= 0 OR wane_lost > {MOST_LOST};
    wane_whole := wane_whole OR wane_sum > 0;
    wane_taken := 0;
{self._look(skip=skip)}
    EXIT WHEN wane_found < wane_look AND wane_left >= 0;
    IF wane_taken > 0 THEN wane_followers := wane_sum::float8 / wane_own - 1; ELSE wane_lost := wane_lost + 1; END IF;
  END LOOP;"""

    def _look(self, *, skip: bool) -> str:
        """Write what `Taking._lock_and_take` does."""
        selection, width = self.selection, self.width
        places = len(self.rows.places(selection))
        floor = tuple(Variable(f"wane_f{number}") for number in range(places))
        look = Variable("wane_look")
        later = self._candidates(self.rows.candidates(selection, ANY_MOMENT, look, floor), places)
        first = self._candidates(self.rows.candidates(selection, ANY_MOMENT, look), places)
        locks = {how: self._collect(self._lock(skip_locked=how)) for how in (True, False)}
        lock = locks[True] if skip else f"IF wane_skip OR wane_closed THEN {locks[True]} ELSE {locks[False]} END IF;"
        chosen = " ".join(f"wane_c{n} := array_append(wane_c{n}, wane_row.o{n});" for n in range(width))
        ended = " ".join(f"wane_f{n} := wane_p{n}[cardinality(wane_p{n})];" for n in range(places))
        return f"""\
    IF wane_floored THEN {later} ELSE {first} END IF;
    EXIT WHEN wane_k0 IS NULL;
    wane_found := cardinality(wane_k0);
    {lock}
{self._choose(f"wane_some := cardinality(wane_c0) = 0; IF wane_some THEN {chosen} END IF;")}
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
      wane_floored := true; {ended}
    END IF;"""

    def _choose(self, full: str = "") -> str:
        """Write what `Taking._choose` does; `full` runs at the first row that does not fit."""
        still = plain(self.rows.still_due(self.selection, ANY_MOMENT, self.keys, Variable("wane_room")))
        outputs = ", ".join([*(f"o{number}" for number in range(self.width)), "followers"])
        emptied = " ".join(f"wane_c{number} := '{{}}';" for number in range(self.width))
        chosen = " ".join(f"wane_c{n} := array_append(wane_c{n}, wane_row.o{n});" for n in range(self.width))
        return f"""\
    wane_left := wane_room; wane_some := false; {emptied}
    IF wane_k0 IS NOT NULL THEN
      FOR wane_row IN SELECT * FROM ({still}) AS d({outputs}) LOOP
        wane_left := wane_left - 1 - wane_row.followers;
        IF wane_left < 0 THEN {full} EXIT; END IF;
        {chosen}
      END LOOP;
    END IF;"""

    def _lock_followers(self) -> str:
        """Write what `PostgresTaking.lock_followers` does, and the read after it."""
        recorder = Recorder(self.rows)
        if not recorder.lock_followers(self.selection, list(self.chosen)):
            return ""
        rows = [re.sub(r"^SELECT ", "PERFORM ", plain(one)) + ";" for one in recorder.statements]
        locks = [*recorder.closing, *rows]
        kept = " ".join(f"wane_k{n} := wane_c{n};" for n in range(self.width))
        return f"""\
    IF cardinality(wane_c0) > 0 THEN
      {" ".join(locks)}
      wane_fits := wane_left >= 0; {kept}
{self._choose()}
      IF NOT wane_fits THEN wane_left := -1; END IF;
    END IF;"""

    def _candidates(self, statement: Statement, places: int) -> str:
        """Write the query that reads the keys of due rows, and their positions, into the arrays."""
        names = [f"p{number}" for number in range(places)]
        return self._collect(statement, names)

    def _collect(self, statement: Statement, places: Sequence[str] = ()) -> str:
        """Write the query that reads keys into the arrays."""
        names = [f"o{number}" for number in range(self.width)]
        arrays = ", ".join(f"array_agg(c.{name})" for name in [*names, *places])
        targets = ", ".join(
            [*(f"wane_k{number}" for number in range(self.width)), *(f"wane_{name}" for name in places)]
        )
        return f"SELECT {arrays} INTO {targets} FROM ({plain(statement)}) AS c({', '.join([*names, *places])});"

    def _lock(self, *, skip_locked: bool) -> Statement:
        recorder = Recorder(self.rows)
        recorder.lock(self.selection, list(self.keys), skip_locked=skip_locked)
        return recorder.last()

    def take_chosen(self) -> str:
        """Write what `Taking.take_chosen` does."""
        return "\n".join(self.taking_of(self.chosen, "wane_c0"))

    def taking_of(self, keys: list[tuple[Variable, ...]], first: str) -> list[str]:
        """Write the statements that take rows with these keys, of which `first` is the first column."""
        selection = self.selection
        lines = []
        for path in follower_paths(selection):
            reference = path[-1].reference
            followers = self.rows.delete_followers(selection, path, keys)
            lines += self.change(followers, str(reference.name), reference.table)
            if path[-1].watched:
                kept = plain(self.rows.any_follower(selection, path, keys))
                message = f"{path[-1].reference.name}: rows were to leave with rows of {selection.name}, but the database kept some"
                lines.append(f"IF EXISTS ({kept}) THEN {_raise(literal(message))} END IF;")
        taken = self.rows.take_keys(selection, ANY_MOMENT, keys)
        lines += self.change(taken, str(selection.name), selection.table)
        message = (
            f"format('%s: %s rows were due and locked, but the database took %s',"
            f" {literal(str(selection.name))}::text, cardinality({first}), wane_gone)"
        )
        lines.append(f"IF wane_gone <> cardinality({first}) THEN {_raise(message)} END IF;")
        return lines

    def some_followers(self) -> str:
        """Write what `Taking.take_some_followers` does."""
        selection, lines = self.selection, ["wane_left := wane_room;"]
        paths = follower_paths(selection)
        for path in paths:
            change = self._some_of(path)
            lines += ["IF wane_left > 0 THEN", *change, "wane_left := wane_left - wane_gone;", "END IF;"]
        stays = literal(f"{selection.name}: rows that are to leave with it stay")
        still = " OR ".join(f"EXISTS ({plain(self.rows.any_follower(selection, path, self.chosen))})" for path in paths)
        if paths:
            due = plain(self.rows.still_due(selection, ANY_MOMENT, self.chosen, Variable("wane_room")))
            lines.append(f"IF wane_left = wane_room AND ({still}) AND EXISTS ({due}) THEN {_raise(stays)} END IF;")
        return "\n".join(lines)

    def _some_of(self, path: Sequence[BoundFollower]) -> list[str]:
        """Write what `Taking._take_some` does."""
        key, left, follower = self.chosen[0], Variable("wane_left"), path[-1]
        name = str(follower.reference.name)
        if not follower.followers:
            delete = self.rows.delete_some_followers(self.selection, path, key, ANY_MOMENT, left)
            return self.change(delete, name, follower.reference.table)
        some = plain(self.rows.some_followers(self.selection, path, key, ANY_MOMENT, left))
        names = [f"i{number}" for number in range(len(self.rows.identity(follower)))]
        arrays, targets = (", ".join(one % name for name in names) for one in ("array_agg(c.%s)", "wane_%s"))
        found = tuple(Variable(f"wane_{name}") for name in names)
        return [
            f"SELECT {arrays} INTO {targets} FROM ({some}) AS c({', '.join(names)});",
            *self.change(self.rows.delete_childless(follower, [found]), name, follower.reference.table),
        ]

    def _identity_width(self) -> int:
        """Count the arrays that identify the rows of a follower with followers of its own."""
        paths = intermediate_paths(self.selection)
        return max((len(self.rows.identity(path[-1])) for path in paths), default=0)

    def change(self, statement: Statement, name: str, table: TableInfo) -> list[str]:
        """Write the statements that take rows of a table, and count them under a name."""
        del table
        return [f"{plain(statement)};", "GET DIAGNOSTICS wane_gone = ROW_COUNT;", self.count(name)]

    def count(self, name: str) -> str:
        key = literal(name)
        own = " wane_own := wane_own + wane_gone; wane_taken := wane_taken + wane_gone;"
        return (
            f"wane_counts := wane_counts || jsonb_build_object({key}, coalesce((wane_counts ->> {key})::bigint, 0) + wane_gone);"
            " wane_total := wane_total + wane_gone; wane_sum := wane_sum + wane_gone;"
            f"{own if name == str(self.selection.name) else ''}"
        )


def _raise(message: str) -> str:
    return f"RAISE EXCEPTION USING MESSAGE = {message}, HINT = {literal(_KEPT)};"
