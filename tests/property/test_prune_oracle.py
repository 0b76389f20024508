"""Whatever happens to a database, what leaves it is what a plain reading of the contract lets go, oldest first, and is
reported exactly.

The model is four dictionaries and decides in Python, sharing no code with the stores. After every operation the
database must equal it: no live, held or referenced row is ever gone, and the trail has counted what is.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from servers import Database
from wane._contract.conditions import equal_to
from wane._contract.model import (
    Age,
    Cap,
    Contract,
    Follower,
    Guard,
    Mark,
    Orphans,
    Reference,
    ReferencedBy,
    Rule,
    Spare,
    Table,
    Time,
    Unit,
    WhileNotNull,
    WhileNull,
)
from wane._contract.names import TableName
from wane._db import open_store
from wane._db.url import resolve_url
from wane._keeper import Keeper
from wane._prune.pace import Pace
from wane.errors import WrongArgument

"""How many examples to draw for each store: few in every run, many for a night."""

START = round(time.time() * 1_000)
DAY = 86_400_000
AT = Time("at_ms", Unit.MILLISECONDS)
SMALL = Pace(target_seconds=0.05, duty=1.0, first_batch=3, least_batch=3, most_batch=4)

# Two families of tables: the second has foreign keys, so that every reference must be followed or guarded.
SCHEMA = """
CREATE TABLE {p}job (id integer NOT NULL PRIMARY KEY, state text NOT NULL, at_ms bigint, tenant text, resolved integer, parent integer);
CREATE TABLE {p}note (id integer NOT NULL PRIMARY KEY, job_id integer {job}, kind text);
CREATE TABLE {p}page (id integer NOT NULL PRIMARY KEY, note_id integer {note});
CREATE TABLE {p}reply (id integer NOT NULL PRIMARY KEY, job_id integer {job});
CREATE INDEX {p}job_due ON {p}job (state, at_ms, id);
CREATE INDEX {p}note_job ON {p}note (job_id);
CREATE INDEX {p}page_note ON {p}page (note_id);
CREATE INDEX {p}reply_job ON {p}reply (job_id);
"""
COLUMNS = {
    "job": ("id", "state", "at_ms", "tenant", "resolved", "parent"),
    "note": ("id", "job_id", "kind"),
    "page": ("id", "note_id"),
    "reply": ("id", "job_id"),
}
CHILDREN_FIRST = ("page", "note", "reply", "job")
STATES = ["queued", "done", "failed", "cleaned"]
AGES = [30, 30, 20, 10, 8, 6, 1, 0]
JUNK = [None, 0, 17, -5]

Row = dict[str, Any]


# --- The model ------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """Every row, and every hold as (table, key or None)."""

    rows: dict[str, dict[int, Row]] = field(default_factory=lambda: {name: {} for name in COLUMNS})
    holds: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    live_notes: tuple[str, ...] = ()

    def held(self, table: str, number: int) -> bool:
        return (table, None) in self.holds.values() or (table, number) in self.holds.values()

    def leaving_with(self, job: int, followers: Sequence[Follower]) -> set[tuple[str, int]]:
        found: set[tuple[str, int]] = set()
        for follower in followers:
            wanted = dict(follower.where)
            for number, note in self.rows["note"].items():
                if note["job_id"] == job and all(note[name] == one.constant for name, one in wanted.items()):
                    found.add(("note", number))
                    if follower.followers:
                        found |= {("page", n) for n, page in self.rows["page"].items() if page["note_id"] == number}
        return found

    def stays_for_follower(self, job: int, followers: Sequence[Follower]) -> bool:
        """Return whether a note that would leave with the job is live, and the contract does not say that it leaves all
        the same."""
        return any(
            self.rows["note"][number]["kind"] in self.live_notes
            for one in followers
            if not one.live_leaves
            for name, number in self.leaving_with(job, [one])
            if name == "note"
        )

    def saved(self, job: Row, guards: Sequence[Guard]) -> bool:
        for guard in guards:
            if isinstance(guard, WhileNull) and job[guard.column] is None:
                return True
            if isinstance(guard, WhileNotNull) and job[guard.column] is not None:
                return True
            if isinstance(guard, ReferencedBy) and any(
                reply["job_id"] == job["id"] for reply in self.rows["reply"].values()
            ):
                return True
        return False

    def due(self, rule: Rule, cutoff: int | None) -> list[int]:
        """Return due jobs, oldest first. The cutoff is the caller's, or None for the rule's own."""
        found = [
            job
            for job in self.rows["job"].values()
            if job["state"] in rule.states
            and timestamp(job) is not None
            and self.beyond(job, rule, cutoff)
            and not self.saved(job, rule.guards)
            and not self.stays_for_follower(job["id"], rule.followers)
            and not self.held("job", job["id"])
            and not any(self.held(*one) for one in self.leaving_with(job["id"], rule.followers))
        ]
        return [job["id"] for job in sorted(found, key=position)]

    def newer(self, job: Row, rule: Rule, per: Sequence[str]) -> int:
        """Return how many rows of the rule's own are newer, of the same scope."""
        return sum(
            timestamp(other) is not None
            and other["state"] in rule.states
            and all(other[name] == job[name] for name in per)
            and position(other) > position(job)
            for other in self.rows["job"].values()
        )

    def beyond(self, job: Row, rule: Rule, cutoff: int | None) -> bool:
        bound = rule.bound
        if isinstance(bound, Cap):
            return self.newer(job, rule, bound.per) >= bound.most
        if rule.spare is not None and self.newer(job, rule, rule.spare.per) < rule.spare.newest:
            return False
        assert isinstance(bound, Age | Orphans)
        if isinstance(bound, Orphans) and job[bound.reference] is not None:
            return False
        # Ages are whole days and windows have a half: no example is decided by how long the test took.
        limit = START - bound.keep // timedelta(milliseconds=1) if cutoff is None else cutoff
        return bool(job["at_ms"] < limit)


def timestamp(job: Row) -> int | None:
    at: int | None = job["at_ms"]
    return at if at is not None and at >= 10**11 else None


def position(job: Row) -> tuple[int, int]:
    return job["at_ms"], job["id"]


# --- What is drawn --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    linked: bool
    rules: tuple[Rule, ...]
    operations: list[tuple[Any, ...]]
    live_notes: tuple[str, ...]
    """States of notes that the contract calls live."""


def followers(prefix: str, choice: str, *, live_leaves: bool = False) -> tuple[Follower, ...]:
    page = Follower(Reference(TableName(f"{prefix}page"), ("note_id",)))
    note = Reference(TableName(f"{prefix}note"), ("job_id",))
    draft = (("kind", equal_to("draft")),)
    return {
        "none": (),
        "notes": (Follower(note, live_leaves=live_leaves),),
        "drafts": (Follower(note, draft, live_leaves=live_leaves),),
        "pages": (Follower(note, (), (page,), live_leaves),),
        "pages of drafts": (Follower(note, draft, (page,), live_leaves),),
    }[choice]


@st.composite
def rules(draw: st.DrawFn, linked: bool) -> tuple[Rule, ...]:
    prefix = "linked_" if linked else ""
    replied = ReferencedBy(Reference(TableName(f"{prefix}reply"), ("job_id",)))

    def guards() -> tuple[Guard, ...]:
        free: list[Guard] = [WhileNull("resolved"), WhileNotNull("resolved"), WhileNotNull("tenant")]
        chosen: list[Guard] = draw(st.lists(st.sampled_from(free), max_size=1))
        return (*chosen, replied) if linked or draw(st.booleans()) else tuple(chosen)

    def following() -> tuple[Follower, ...]:
        choices = ["pages"] if linked else ["none", "none", "notes", "drafts", "pages", "pages of drafts"]
        return followers(prefix, draw(st.sampled_from(choices)), live_leaves=draw(st.booleans()))

    keep = timedelta(days=draw(st.sampled_from([5, 7, 15])), hours=12)
    longer = keep + timedelta(days=10)
    made = [
        Rule(
            "old",
            Age(AT, keep),
            draw(st.sampled_from([("done",), ("done", "failed")])),
            guards(),
            following(),
            spare=draw(st.sampled_from([None, None, Spare(1, ("tenant",)), Spare(2)])),
        ),
        Rule("marked", Age(AT, keep), ("failed",), guards(), action=Mark("cleaned")),
        Rule("gone", Age(AT, longer), ("cleaned",), guards(), following()),
        Rule("orphans", Orphans(AT, keep, "parent"), ("done", "cleaned"), guards(), following()),
        Rule(
            "cap",
            Cap(AT, draw(st.integers(1, 4)), draw(st.sampled_from([(), (), ("tenant",)]))),
            draw(st.sampled_from([("done",), ("done", "failed", "cleaned")])),
            guards(),
            following(),
        ),
    ]
    chosen = draw(st.lists(st.sampled_from(range(len(made))), min_size=2, max_size=4, unique=True))
    return tuple(made[number] for number in chosen)


JOBS, NOTES, PAGES, REPLIES = (st.integers(1, most) for most in (9, 12, 8, 3))
TIMESTAMPS = st.one_of(st.sampled_from([START - age * DAY for age in AGES]), st.sampled_from(JUNK))
LIMITS = st.sampled_from([1, 2, 3, 4, 7, 100])

WRITES = st.one_of(
    st.tuples(
        st.just("job"),
        JOBS,
        st.sampled_from(STATES),
        TIMESTAMPS,
        st.sampled_from(["a", "b", None]),
        st.sampled_from([None, 1]),
        st.sampled_from([None, 1]),
    ),
    st.tuples(st.just("note"), NOTES, JOBS, st.sampled_from(["draft", "sent", None])),
    st.tuples(st.just("page"), PAGES, NOTES),
    st.tuples(st.just("reply"), REPLIES, JOBS),
    st.tuples(st.just("state"), JOBS, st.sampled_from(STATES)),
    st.tuples(st.just("kind"), NOTES, st.sampled_from(["draft", "sent", None])),
    st.tuples(st.just("time"), JOBS, TIMESTAMPS),
    st.tuples(st.just("forget"), REPLIES),
)
TAKES = st.one_of(
    st.tuples(st.just("prune"), st.integers(0, 3), LIMITS),
    st.tuples(st.just("prune"), st.integers(0, 3), LIMITS),
    st.tuples(
        st.just("explicit"),
        st.sampled_from(
            [["done"], ["done", "cleaned"], ["cleaned", "done"], ["cleaned", "failed"], ["queued"], ["lost"]]
        ),
        st.one_of(JOBS, st.none()),
        LIMITS,
    ),
    st.tuples(st.just("sweep")),
    st.tuples(st.just("discard"), JOBS),
    st.tuples(
        st.just("hold"),
        st.sampled_from(["job", "job", "note", "page"]),
        st.one_of(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.none()),
    ),
    st.tuples(st.just("release"), st.integers(0, 5)),
)


@st.composite
def populations(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Return a database in which much is due, and much of that is saved by something."""
    jobs = draw(st.integers(3, 9))
    job = st.integers(1, jobs)
    many = draw(st.lists(st.tuples(job, st.sampled_from(["draft", "draft", "sent", None])), max_size=9))
    pages = draw(st.lists(st.integers(1, len(many)), max_size=6)) if many else []
    made: list[tuple[Any, ...]] = [
        (
            "job",
            number,
            draw(st.sampled_from(["done"] * 5 + ["failed"] * 3 + ["cleaned", "queued"])),
            draw(st.sampled_from([START - age * DAY for age in (30, 30, 30, 25, 20, 20, 10, 8, 1)] + JUNK[:1])),
            draw(st.sampled_from(["a", "a", "b", None])),
            draw(st.sampled_from([None, 1])),
            draw(st.sampled_from([None, None, 1])),
        )
        for number in range(1, jobs + 1)
    ]
    made += [("note", number, *one) for number, one in enumerate(many, 1)]
    made += [("page", number, note) for number, note in enumerate(pages, 1)]
    made += [("reply", number, one) for number, one in enumerate(draw(st.lists(job, max_size=2)), 1)]
    for name, most in (("job", jobs), ("note", len(many)), ("page", len(pages))):
        if most and draw(st.integers(0, 3)) == 0:
            made.append(("hold", name, draw(st.integers(1, most))))
    return made


@st.composite
def examples(draw: st.DrawFn) -> Example:
    linked = draw(st.booleans())
    begin = draw(populations())
    rest = draw(st.lists(st.one_of(TAKES, TAKES, TAKES, WRITES), min_size=2, max_size=12))
    live = draw(st.sampled_from([(), ("draft",), ("sent",), ("draft", "sent")]))
    return Example(linked, draw(rules(linked)), [*begin, *rest], live)


# --- The machine ----------------------------------------------------------------------------------------------------


class Bench:
    """Both families of tables, made once; each example fills one of them anew."""

    def __init__(self, database: Database, stack: ExitStack) -> None:
        self.database = database
        database.script(SCHEMA.format(p="", job="", note=""))
        links = {"job": "REFERENCES linked_job (id)", "note": "REFERENCES linked_note (id)"}
        database.script(SCHEMA.format(p="linked_", **links))
        self.store = stack.enter_context(open_store(resolve_url(database.url)))
        self.store.migrate()

    def run(self, example: Example) -> None:
        own = ("wane_audit", "wane_hold") if self.database.store == "sqlite" else ("wane.audit", "wane.hold")
        for name in own:
            self.database.execute(f"DELETE FROM {name}")
        play = Play(self.database, self.store, example)
        for operation in example.operations:
            play.perform(*operation)
            if operation[0] in ("prune", "explicit", "sweep", "discard"):
                play.compare()
        play.compare()


class Play:
    """One example: the database, the model, and every operation on both."""

    def __init__(self, database: Database, store: Any, example: Example) -> None:
        self.database = database
        self.example = example
        self.prefix = "linked_" if example.linked else ""
        self.model = Model(live_notes=example.live_notes)
        self.audits = 0
        declared = Table(
            TableName(f"{self.prefix}job"), "a test", example.rules, scheduler="tick", state="state", live=("queued",)
        )
        notes = Table(TableName(f"{self.prefix}note"), "a test", (), state="kind", live=example.live_notes)
        self.keeper = Keeper(Contract(None, (declared, notes)), store, actor="oracle")
        self.keeper.enable()
        for name in CHILDREN_FIRST:
            database.execute(f"DELETE FROM {self.prefix}{name}")

    def perform(self, kind: str, *arguments: Any) -> None:
        getattr(self, f"do_{kind}")(*arguments)

    # Looking

    def read(self) -> dict[str, dict[int, Row]]:
        found: dict[str, dict[int, Row]] = {}
        for name, columns in COLUMNS.items():
            rows = self.database.query(f"SELECT {', '.join(columns)} FROM {self.prefix}{name}")
            found[name] = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
        return found

    def compare(self) -> None:
        assert self.read() == self.model.rows
        assert len(self.keeper.audit(limit=1_000)) == self.audits

    # Writing

    def do_job(self, number: int, *values: Any) -> None:
        row = dict(zip(COLUMNS["job"], (number, *values), strict=True))
        known = number in self.model.rows["job"]
        self.model.rows["job"][number] = row
        if known:
            names = ", ".join(f"{name} = ?" for name in COLUMNS["job"][1:])
            self.database.execute(f"UPDATE {self.prefix}job SET {names} WHERE id = ?", (*values, number))
        else:
            self.insert("job", row)

    def insert(self, name: str, row: Row) -> None:
        marks = ", ".join("?" * len(row))
        self.database.execute(f"INSERT INTO {self.prefix}{name} VALUES ({marks})", tuple(row.values()))

    def child(self, name: str, parent: str, row: Row) -> None:
        target = row[COLUMNS[name][1]]
        if row["id"] in self.model.rows[name] or (self.example.linked and target not in self.model.rows[parent]):
            return
        self.model.rows[name][row["id"]] = row
        self.insert(name, row)

    def do_note(self, number: int, job: int, kind: str | None) -> None:
        self.child("note", "job", {"id": number, "job_id": job, "kind": kind})

    def do_page(self, number: int, note: int) -> None:
        self.child("page", "note", {"id": number, "note_id": note})

    def do_reply(self, number: int, job: int) -> None:
        self.child("reply", "job", {"id": number, "job_id": job})

    def do_state(self, number: int, state: str) -> None:
        if number in self.model.rows["job"]:
            self.model.rows["job"][number]["state"] = state
            self.database.execute(f"UPDATE {self.prefix}job SET state = ? WHERE id = ?", (state, number))

    def do_kind(self, number: int, kind: str | None) -> None:
        if number in self.model.rows["note"]:
            self.model.rows["note"][number]["kind"] = kind
            self.database.execute(f"UPDATE {self.prefix}note SET kind = ? WHERE id = ?", (kind, number))

    def do_time(self, number: int, at: int | None) -> None:
        if number in self.model.rows["job"]:
            self.model.rows["job"][number]["at_ms"] = at
            self.database.execute(f"UPDATE {self.prefix}job SET at_ms = ? WHERE id = ?", (at, number))

    def do_forget(self, number: int) -> None:
        self.model.rows["reply"].pop(number, None)
        self.database.execute(f"DELETE FROM {self.prefix}reply WHERE id = ?", (number,))

    # Holding

    def do_hold(self, name: str, number: int | None) -> None:
        if number is not None and number not in self.model.rows[name]:
            with pytest.raises(WrongArgument, match="has no row"):
                self.keeper.hold(f"{self.prefix}{name}", {"id": number}, reason="a test")
            return
        key: dict[str, object] | None = None if number is None else {"id": number}
        held = self.keeper.hold(f"{self.prefix}{name}", key, reason="a test")
        assert held.id is not None
        self.model.holds[held.id] = (name, number)

    def do_release(self, choice: int) -> None:
        if self.model.holds:
            number = list(self.model.holds)[choice % len(self.model.holds)]
            del self.model.holds[number]
            self.keeper.release_hold(number)

    # Taking rows

    def do_prune(self, choice: int, limit: int) -> None:
        rule = self.example.rules[choice % len(self.example.rules)]
        pruned = self.keeper.prune(f"{self.prefix}job", rule=rule.name, limit=limit)
        self.taken(rule, None, limit, pruned.counts)
        event(f"{rule.name}: {'some' if pruned.rows else 'none'}")

    def do_explicit(self, states: list[str], job: int | None, limit: int) -> None:
        """Prune with a cutoff that is exactly the timestamp of a row, if there is such a row: it must stay."""
        at = START - 4 * DAY
        if job is not None and job in self.model.rows["job"]:
            at = timestamp(self.model.rows["job"][job]) or at
        cutoff = datetime.fromtimestamp(at // 1_000, UTC) + timedelta(milliseconds=at % 1_000)

        def call() -> dict[str, int]:
            return self.keeper.prune(f"{self.prefix}job", states=states, older_than=cutoff, limit=limit).counts

        rule = self.explicit(states)
        if rule is None:
            with pytest.raises(WrongArgument):
                call()
            return
        self.taken(rule, at, limit, call())

    def explicit(self, states: list[str]) -> Rule | None:
        """Return what the contract has for these states together; None if it lets one of them go by no age."""
        covering = []
        for state in states:
            fitting = [
                rule
                for rule in self.example.rules
                if isinstance(rule.bound, Age) and not isinstance(rule.action, Mark) and state in rule.states
            ]
            if state == "queued" or not fitting:
                return None
            covering += fitting
        if len({(frozenset(rule.followers), rule.spare) for rule in covering}) > 1:
            return None
        return replace(
            covering[0],
            states=tuple(states),
            guards=tuple(guard for rule in covering for guard in rule.guards),
        )

    def do_sweep(self) -> None:
        sweep = self.keeper.sweep(pace=SMALL)
        assert not sweep.failed, [swept.message for swept in sweep.rules]
        for rule, swept in zip(self.example.rules, sweep.rules, strict=True):
            started = deepcopy(self.model.rows)
            # Rule after rule, to the end. Nothing that a rule takes makes another row due under the same rule.
            for job in self.model.due(rule, None):
                self.take(rule, job)
            assert self.named(swept.counts) == self.difference(started, self.model.rows, rule), rule.name
            self.audits += 1
        reported = {entry.rule: entry for entry in self.keeper.audit(limit=1_000) if entry.run == sweep.run}
        assert {name: entry.counts for name, entry in reported.items()} == {
            swept.rule: swept.counts for swept in sweep.rules
        }

    def do_discard(self, job: int) -> None:
        rule = self.example.rules[0]
        with_it = self.model.leaving_with(job, rule.followers)
        stays = self.model.held("job", job) or any(self.model.held(*one) for one in with_it)
        stays = stays or self.model.stays_for_follower(job, rule.followers)
        if self.example.linked and any(reply["job_id"] == job for reply in self.model.rows["reply"].values()):
            return  # The application itself would be refused.
        if self.example.linked and not rule.followers and self.model.leaving_with(job, followers("linked_", "notes")):
            return
        gone = self.keeper.discard(f"{self.prefix}job", {"id": job})
        assert gone is (job in self.model.rows["job"] and not stays)
        if gone:
            self.take(replace(rule, action=Rule("x", rule.bound).action), job)

    def take(self, rule: Rule, job: int) -> None:
        if isinstance(rule.action, Mark):
            self.model.rows["job"][job]["state"] = rule.action.state
            return
        for name, number in self.model.leaving_with(job, rule.followers):
            del self.model.rows[name][number]
        del self.model.rows["job"][job]

    def named(self, counts: dict[str, int]) -> dict[str, int]:
        return {name.removeprefix(self.prefix): count for name, count in counts.items() if count}

    def difference(
        self, before: dict[str, dict[int, Row]], after: dict[str, dict[int, Row]], rule: Rule
    ) -> dict[str, int]:
        if isinstance(rule.action, Mark):
            changed = sum(row["state"] != after["job"][number]["state"] for number, row in before["job"].items())
            return {"job": changed} if changed else {}
        return {name: gone for name in before if (gone := len(before[name]) - len(after[name]))}

    def taken(self, rule: Rule, cutoff: int | None, limit: int, counts: dict[str, int]) -> None:
        """Require that a call took the oldest due rows with all that follows them, as far as the limit goes, and
        reported it."""
        self.audits += 1
        [entry, *_] = self.keeper.audit(limit=1)
        assert entry.counts == counts
        before, after = deepcopy(self.model.rows), self.read()
        assert self.named(counts) == self.difference(before, after, rule)
        assert sum(counts.values()) <= limit
        due = self.model.due(rule, cutoff)
        if isinstance(rule.bound, Cap) and rule.bound.per:
            self.taken_of_scopes(rule, due, after)
            return
        if isinstance(rule.action, Mark):
            gone = [number for number in due if after["job"][number]["state"] != before["job"][number]["state"]]
        else:
            gone = [number for number in due if number not in after["job"]]
        assert gone == due[: len(gone)], "the oldest leave first"
        if not rule.followers:
            assert len(gone) == min(limit, len(due))
        for job in gone:
            self.take(rule, job)
        if not gone and due:
            # More follows the oldest row than the limit holds: that leaves first, and fills the limit.
            with_it = self.model.leaving_with(due[0], rule.followers)
            assert len(with_it) >= limit
            lost = {one for one in with_it if one[1] not in after[one[0]]}
            assert len(lost) == limit
            for name, number in lost:
                del self.model.rows[name][number]
        assert after == self.model.rows

    def taken_of_scopes(self, rule: Rule, due: list[int], after: dict[str, dict[int, Row]]) -> None:
        """Require the oldest of each scope; which scope comes first is not promised."""
        assert isinstance(rule.bound, Cap)
        scopes: dict[Any, list[int]] = {}
        for job in due:
            scopes.setdefault(self.model.rows["job"][job]["tenant"], []).append(job)
        gone = {job for job in due if job not in after["job"]}
        partly = []
        for of_scope in scopes.values():
            left = [job for job in of_scope if job not in gone]
            assert of_scope == [*(job for job in of_scope if job in gone), *left], "the oldest leave first"
            partly += left[:1]
        for job in gone:
            self.take(rule, job)
        if after != self.model.rows:
            # At most one row, which more follows than fits, lost some of that; nothing else left beside it.
            assert not gone
            lost = {
                (name, number)
                for name in ("note", "page")
                for number in self.model.rows[name]
                if number not in after[name]
            }
            assert any(lost <= self.model.leaving_with(job, rule.followers) for job in partly)
            for name, number in lost:
                del self.model.rows[name][number]
        assert after == self.model.rows


def check(database: Database) -> None:
    with ExitStack() as stack:
        bench = Bench(database, stack)

        @settings(suppress_health_check=list(HealthCheck))
        @given(example=examples())
        def the_database_equals_the_model(example: Example) -> None:
            bench.run(example)

        the_database_equals_the_model()


@pytest.mark.timeout(0)
def test_what_leaves_is_what_the_model_lets_go(database: Database) -> None:
    check(database)
