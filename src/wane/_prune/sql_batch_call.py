"""Batches of a sweep in one call (PostgreSQL): gate, flags, lease, rows and audit row in one function, one round trip.

The function belongs to the session. Its statements are those that `plan -v` shows, parsed and planned once. Whatever it
does not expect makes it raise, and nothing of the batch is committed: a gate that is closed, a lost lease, a reference
that appeared meanwhile, more followers than fit. The same batch is then taken statement by statement, which decides.

A procedure calls the function and commits. Where a sweep does not pause, it takes batch after batch for a short time,
each one a transaction of its own. A batch that fails ends it, unless it is the first one: that raises. So an error
means that the call has committed nothing, and a call that returns reports everything that it has committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from wane._contract.settings import SweepSettings
from wane._db import Store
from wane._db.postgres.gate import ENTER, gates
from wane._db.postgres.plpgsql import SessionFunction, literal, plain, session_function, session_procedure
from wane._db.postgres.settings import BY_INDEX, SEARCH_PATH
from wane._db.postgres.store import PostgresStore
from wane._db.postgres.transaction import LOCAL_SETTINGS
from wane._db.schema import TableInfo
from wane._db.statement import Slot, Statement, TimeSlot
from wane._leases import Fence
from wane._ledger import AuditEntry, audit_addition, audit_insertion
from wane._prune.call_results import MOST_SECONDS, BatchSizes, CalledBatch, CalledBatches
from wane._prune.sql_gates import gates_are_open
from wane._prune.sql_postgres import closing_references
from wane._prune.take import Batch, gated
from wane._rules.batch_statements import FollowerPath
from wane._rules.dependencies_postgres import read_stamps
from wane._rules.rows import Rows
from wane._rules.rule_statements import statements_of
from wane._rules.selection import Selection, follower_paths

_TYPES = {int: "bigint", float: "float8", Decimal: "numeric", str: "text"}
_MOST_REFUSED = 2
"""After this many refusals in a row, the function is not called again in the sweep."""
_UNPLANNABLE = ("enable_sort", "enable_hashjoin", "enable_mergejoin")
"""What a plan that does not know how many rows there will be must not use: it would sort or hash all that could be."""
_RECORDED = {
    "kind": "text",
    "table_name": "text",
    "rule": "text",
    "run_id": "text",
    "actor": "text",
    "cutoff": "timestamptz",
    "inputs": "text",
}
"""What the first batch of a sweep writes into its audit row besides its counts: see `Ledger.record`."""
_SECONDS = "extract(epoch FROM clock_timestamp() - wane_began)"
"""How long the batch took."""
_SPARE_FOLLOWERS = 1.1
"""Rows may have more followers than those before; a batch that does not fit is taken twice."""


class BatchCall:
    """Takes the batches of one rule's sweep. The first one writes the audit row."""

    def __init__(
        self, store: PostgresStore, selection: Selection, now: datetime, settings: SweepSettings, fence: Fence | None
    ) -> None:
        writer = _BatchFunctionWriter(selection, settings, fence)
        times = writer.times(now)
        self._store = store
        self._functions = writer.functions({name: _type_of(value) for name, value in times.items()})
        self._names = [str(selection.name), *(str(path[-1].reference.name) for path in follower_paths(selection))]
        self._first = (writer.rule.lowest, *(None for _ in writer.floors[1:]))
        self._fixed = [*times.values(), None if fence is None else fence.lease.fence]
        self._most_seconds = None if fence is None else fence.most_seconds
        self._latest: dict[str, int] = {}
        """What the latest batch took."""
        self._sizes = BatchSizes()
        self._refused = 0
        self._wasteful = False
        """Whether most of the rows that a batch found stayed: others read on until a batch is full."""

    def take(self, audit: AuditEntry, batch: Batch, most_batches: int) -> CalledBatches | None:
        """Take and commit batches; None if nothing was taken, and the batch is to be taken statement by statement."""
        known = [self._followers(counts) for counts in (audit.counts, self._latest) if counts]
        followers = max(known, default=0.0)
        # A whole number is that of every row, as far as that was seen.
        spare = 1.0 if followers == int(followers) else _SPARE_FOLLOWERS
        limit = min(batch.limit, int(batch.most / (1 + followers * spare)))
        if limit <= 0 or self._wasteful or self._refused == _MOST_REFUSED:
            return None
        most = most_batches if self._sizes.are_steady(limit) else 1
        numbers = (audit.id, audit.rows, limit, batch.most)
        values = [*numbers, *_recorded(audit), *(batch.floor or self._first), *self._fixed, most, MOST_SECONDS]
        found = self._store.call(self._functions, values, _settings(), most_seconds=self._most_seconds)
        if found is None:
            self._refused += 1
            return None
        self._refused = 0
        width = len(self._first)
        end, (done, number, seconds), rows = found[:width], found[width : width + 3], found[width + 3 :]
        batches = [
            CalledBatch(dict(zip(self._names, counts, strict=True)), took)
            for took, *counts in zip(seconds, *rows, strict=True)
        ]
        if not batches:
            return None  # It is the last one, and a trigger may retain some of its rows.
        self._latest = batches[-1].counts
        self._wasteful = 2 * self._latest[self._names[0]] < limit
        return CalledBatches(number, batches, batch.floor if done else end, done)

    def _followers(self, counts: dict[str, int]) -> float:
        """Return how many rows left with each one, by what was taken."""
        own, *others = (counts.get(name, 0) for name in self._names)
        return sum(others) / own if own else 0.0


def batch_call(
    store: Store, selection: Selection, now: datetime, settings: SweepSettings, fence: Fence | None
) -> BatchCall | None:
    """Return what takes the batches of a rule's sweep in one call each; None if they cannot be."""
    assert isinstance(store, PostgresStore)
    at_once = statements_of(Rows(store.dialect, holds=True), selection).at_once
    return None if at_once is None else BatchCall(store, selection, now, settings, fence)


class _BatchFunctionWriter:
    """Writes the function of one rule."""

    def __init__(self, selection: Selection, settings: SweepSettings, fence: Fence | None) -> None:
        self.rows = Rows(PostgresStore.dialect, holds=True)
        self.selection, self.settings, self.fence = selection, settings, fence
        self.rule = statements_of(self.rows, selection)
        assert self.rule.at_once is not None
        self.at_once = self.rule.at_once
        slots = [value for value in self.at_once.take.parameters.values() if isinstance(value, Slot)]
        self.floors = sorted({slot.name for slot in slots if slot.name.startswith("floor_")})
        self.bounds = [slot for slot in slots if isinstance(slot, TimeSlot)]
        self.ends = [f"wane_end_{number}" for number in range(len(self.floors))]
        self.paths = follower_paths(selection)
        self.counts = ["wane_rows", *(f"wane_followers_{number}" for number in range(len(self.paths)))]
        self.gone = [f"wane_gone_{number}" for number in range(len(self.at_once.gone))]

    def times(self, now: datetime) -> dict[str, object]:
        """Return the bounds on times at the time that decides, by their variables."""
        return {_variable(slot): slot.value(now + slot.offset) for slot in self.bounds}

    def functions(self, times: dict[str, str]) -> tuple[SessionFunction, SessionFunction]:
        """Write the function that takes a batch, and the procedure that calls it."""
        parameters = dict.fromkeys(("wane_id", "wane_before", "wane_limit", "wane_most"), "bigint")
        parameters |= {f"wane_{name}": kind for name, kind in _RECORDED.items()}
        parameters |= {f"wane_{name}": "text" for name in self.floors} | times | {"wane_fence": "bigint"}
        outputs = dict.fromkeys(self.ends, "text")
        outputs |= {"wane_done": "boolean", "wane_audit": "bigint"}
        one = session_function(parameters, {**outputs, **dict.fromkeys(self.counts, "bigint")}, self._body())
        lists = {"wane_seconds": "float8[]", **{f"{name}_taken": "bigint[]" for name in self.counts}}
        limits = {"wane_batches": "bigint", "wane_most_seconds": "float8"}
        body = self._repeated(f"SELECT * FROM {one.name}({', '.join(parameters)}) INTO wane_one;")
        return one, session_procedure({**parameters, **limits}, {**outputs, **lists}, body)

    def _repeated(self, call: str) -> str:
        ends = zip(self.ends, self.floors, strict=True)
        lines = [
            "wane_seconds := '{}';",
            *(f"{name}_taken := '{{}}';" for name in self.counts),
            "LOOP",
            "wane_began := clock_timestamp();",
            "wane_until := coalesce(wane_until, wane_began + make_interval(secs => wane_most_seconds));",
            f"IF wane_seconds = '{{}}' THEN {call}",
            f"ELSE BEGIN {call} EXCEPTION WHEN OTHERS OR query_canceled THEN EXIT; END; END IF;",
            "EXIT WHEN wane_one.wane_done IS NULL;",
            "wane_seconds := wane_seconds || extract(epoch FROM clock_timestamp() - wane_began)::float8;",
            *(f"{name}_taken := {name}_taken || wane_one.{name};" for name in self.counts),
            *(f"{end} := wane_one.{end}; wane_{floor} := {end};" for end, floor in ends),
            f"wane_before := wane_before + {' + '.join(f'wane_one.{name}' for name in self.counts)};",
            "wane_done := wane_one.wane_done; wane_audit := wane_one.wane_audit; wane_id := wane_audit;",
            # The end of the call commits the last one.
            "EXIT WHEN wane_done;",
            f"EXIT WHEN cardinality(wane_seconds) >= wane_batches OR 2 * wane_one.{self.counts[0]} < wane_limit;",
            "EXIT WHEN clock_timestamp() >= wane_until;",
            "COMMIT;",
            "END LOOP;",
        ]
        declared = "wane_until timestamptz; wane_began timestamptz; wane_one record;"
        return f"DECLARE {declared}\nBEGIN\n{chr(10).join(lines)}\nEND"

    def _body(self) -> str:
        changes = list(self._changes())
        watched = ", ".join(expression for expression, _ in changes)
        expected = ", ".join(
            f"wane_changes[{number}] + {increase}" for number, (_, increase) in enumerate(changes, start=1)
        )
        retained = plain(self.at_once.retained, _variable)
        lines = [
            "wane_began := clock_timestamp();",
            # Others may have created what a bare name or an operator would find, or hide rows by policies.
            _refuse_if(
                f"current_setting('search_path') <> {literal(SEARCH_PATH)} OR current_setting('row_security') <> 'off'",
                "the session's settings are not the call's",
            ),
            _refuse_if(
                "current_setting('transaction_isolation') <> 'read committed'", "it would not see what others commit"
            ),
            # In statements of their own: what waited at the gate sees what was committed before it was let in.
            f"PERFORM {plain(Statement(ENTER, gates(gated(self.selection)))).removeprefix('SELECT ')};",
            _refuse_if(f"NOT ({self._open()})", "a gate is closed"),
            *self._fenced(),
            *(_refuse_if(f"NOT ({one})", "a reference is not protected") for one in self._protected()),
            *([_refuse_if("NOT current_setting('track_counts')::boolean", "nothing is counted")] if changes else []),
            *([f"wane_changes := ARRAY[{watched}];"] if changes else []),
            *self._find_end(),
            f"IF {self._fits_shortcut()} THEN\n{self._counted(self.at_once.shortcut)}",
            f"ELSE\n{self._counted(self.at_once.take)}\nEND IF;",
            *self._take_unkeyed(),
            _refuse_if(f"wane_rows > wane_limit OR {self._total()} > wane_most", "more rows would leave than fit"),
            *([_refuse_if(f"EXISTS ({retained})", "rows stayed")] if self.selection.has_delete_triggers else []),
            *([_refuse_if(f"ARRAY[{watched}] <> ARRAY[{expected}]", "others changed")] if changes else []),
            _refuse_if(f"wane_rows > 0 AND {self._rebound()}", "the schema changed"),
            f"IF wane_id IS NULL THEN\n{self._record()};\nELSE\n{self._add_to_record()};",
            _refuse_if("NOT FOUND", "the audit row is missing or behind"),
            "wane_audit := wane_id;\nEND IF;",
            # What a deferred trigger refuses, it refuses here: a commit that fails would report no batch before it.
            "SET CONSTRAINTS ALL IMMEDIATE;",
        ]
        declared = "wane_began timestamp with time zone; wane_changes bigint[];"
        declared += "".join(f" {name} {one.type}[];" for name, one in zip(self.gone, self.at_once.gone, strict=True))
        return f"#variable_conflict use_variable\nDECLARE {declared}\nBEGIN\n{chr(10).join(lines)}\nEND"

    def _find_end(self) -> Iterator[str]:
        """Write what finds where the batch ends: a time, with NULLs instead of a key, or a position; or the last
        one."""
        yield "wane_done := false;"
        # What a trigger retains is found by where the batch ends.
        refused = "wane_done := NULL; RETURN;"
        last = refused if self.selection.has_delete_triggers else "wane_done := true;"
        end = f"{plain(self.at_once.end, _variable)}\nINTO {', '.join(self.ends)};\nIF NOT FOUND THEN "
        if self.at_once.end_time is None:
            yield f"{end}{last} END IF;"
        else:
            yield f"{plain(self.at_once.end_time, _variable)}\nINTO {self.ends[0]}, wane_done;"
            yield f"IF wane_done THEN {last}\nELSIF {self.ends[0]} IS NULL THEN\n{end}{refused} END IF;\nEND IF;"

    def _fits_shortcut(self) -> str:
        """Write the condition that the statement with fewer conditions takes the batch."""
        if self.at_once.end_time is None:
            return "wane_done"
        return f"coalesce(wane_{self.floors[1]}, {self.ends[1]}) IS NULL"

    def _counted(self, take: Statement) -> str:
        """Write a statement that takes rows, and counts them with those of each follower."""
        text = plain(take, _variable)
        if not self.paths:
            return f"{text};\nGET DIAGNOSTICS wane_rows = ROW_COUNT;"
        later = [self._count(path) for path, _ in self.at_once.unkeyed]
        return f"{text}\nINTO {', '.join([*(one for one in self.counts if one not in later), *self.gone])};"

    def _take_unkeyed(self) -> Iterator[str]:
        for path, statement in self.at_once.unkeyed:
            yield f"{plain(statement, _variable)};\nGET DIAGNOSTICS {self._count(path)} = ROW_COUNT;"

    def _count(self, path: FollowerPath) -> str:
        """Return the variable that counts the rows at the end of a path of followers."""
        return self.counts[1 + self.paths.index(path)]

    def _open(self) -> str:
        """Write the condition that the gates are open."""
        return gates_are_open(self.rows.dialect, self.selection.name, self.settings, lambda _, value: literal(value))

    def _fenced(self) -> Iterator[str]:
        if self.fence is not None:
            held = self.fence.held(self.rows.dialect, None)
            statement = replace(held, parameters={**held.parameters, "fence": Slot("fence")})
            yield f"PERFORM {plain(statement, _variable).removeprefix('SELECT ')};"
            yield _refuse_if("NOT FOUND", "the lease is lost")

    def _protected(self) -> Iterator[str]:
        """Write the conditions that foreign keys still protect the references that guard rows."""
        for closing in closing_references(self.rows, self.selection):
            assert closing.protected is not None
            yield f"SELECT c.protected FROM ({plain(closing.protected)}) AS c(kept, protected)"

    def _changes(self) -> Iterator[tuple[str, str]]:
        """Write counters of changed rows, each with its increase if nothing but the statement itself changes any.

        A foreign key, or a trigger, may delete or change a reference that appeared while the statement waited.
        """
        for guard in self.selection.guards:
            table = self._relation(guard.table)
            yield f"pg_stat_get_xact_tuples_deleted({table}) + pg_stat_get_xact_tuples_updated({table})", "0"
        for number, path in enumerate(self.paths):
            table = self._relation(path[-1].reference.table)
            yield f"pg_stat_get_xact_tuples_deleted({table})", f"wane_followers_{number}"
            yield f"pg_stat_get_xact_tuples_updated({table})", "0"

    def _relation(self, table: TableInfo) -> str:
        return f"{literal(self.rows.dialect.table(table).replace('%%', '%'))}::regclass"

    def _total(self) -> str:
        return " + ".join(self.counts)

    def _rebound(self) -> str:
        """Write the condition that the tables are no longer as they were: see `PostgresRowTaker.require_bound`."""
        known = [f"{number} {stamp}" for number, stamp in self.selection.dependencies.stamps]
        same = f"concat(s.oid, ' ', s.stamp) = ANY ({literal(known)}::text[])"
        return f"(SELECT count(*) FROM ({plain(read_stamps(self.selection))}) AS s(oid, stamp) WHERE {same}) <> {len(known)}"

    def _record(self) -> str:
        """Write the audit row of the first batch: see `Ledger.record`."""
        sums = ", ".join(f"{literal(name)}, {rows}" for name, rows in self._counted_names())
        values = {
            "executed_at": "wane_began",
            **{name: f"wane_{name}::jsonb" if name == "inputs" else f"wane_{name}" for name in _RECORDED},
            "counts": f"jsonb_build_object({sums})",
            "row_count": self._total(),
            "batches": "1",
            "seconds": _SECONDS,
        }
        return f"{audit_insertion(self.rows.dialect, values)} INTO wane_audit"

    def _counted_names(self) -> Iterator[tuple[str, str]]:
        """Return the tables that lose rows, each with the variable that counts them."""
        names = [str(self.selection.name), *(str(path[-1].reference.name) for path in self.paths)]
        return zip(names, self.counts, strict=True)

    def _add_to_record(self) -> str:
        """Write the addition to the audit row: see `Ledger.add_to_record`."""
        sums = ", ".join(
            f"{literal(name)}, coalesce((counts ->> {literal(name)})::bigint, 0) + {rows}"
            for name, rows in self._counted_names()
        )
        return audit_addition(
            self.rows.dialect,
            counts=f"counts || jsonb_build_object({sums})",
            rows=self._total(),
            batches="1",
            seconds=_SECONDS,
            number="wane_id",
            before="wane_before",
        )


def _variable(slot: Slot) -> str:
    """Return the variable of the function that fills a slot."""
    return f"wane_{slot.time.unit.value}_{slot.name}" if isinstance(slot, TimeSlot) else f"wane_{slot.name}"


def _recorded(audit: AuditEntry) -> list[object]:
    """Return the values of what the first batch writes into its audit row, in their order."""
    return [audit.kind, audit.table, audit.rule, audit.run, audit.actor, audit.cutoff, audit.encoded_inputs]


def _settings() -> dict[str, str]:
    """Return the settings of the session while it is called: setting them for each batch takes longer than checks."""
    plans = {**BY_INDEX, **dict.fromkeys(_UNPLANNABLE, "off")}
    return {**LOCAL_SETTINGS, **plans, "synchronous_commit": "off"}


def _type_of(value: object) -> str:
    if isinstance(value, datetime):
        return "timestamp" if value.tzinfo is None else "timestamptz"
    return _TYPES[type(value)]


def _refuse_if(condition: str, why: str) -> str:
    return f"IF {condition} THEN RAISE EXCEPTION USING ERRCODE = 'serialization_failure', MESSAGE = {literal(why)}; END IF;"
