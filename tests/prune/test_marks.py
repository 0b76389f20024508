"""Marks: the row stays and its state changes, once, through the same path, and the trail calls it a mark."""

from __future__ import annotations

import pytest

from prune.keeping import AT, KEEP_WEEK, ago, jobs, keeping, notes, referenced_by, rule, table
from servers import Database
from wane._contract.model import Age, Mark, Table, WhileNull
from wane._prune.pace import FAST
from wane.errors import StoreError
from wane.events import BatchTaken, RowsPruned


def marking(**more: object) -> Table:
    cleaned = rule("cleaned", KEEP_WEEK, then=Mark("cleaned"), **more)  # type: ignore[arg-type]
    from datetime import timedelta

    return table("job", cleaned, rule("gone", Age(AT, timedelta(days=50)), when=["cleaned"]))


def states(database: Database) -> dict[int, str]:
    return dict(database.query("SELECT id, state FROM job"))


def test_due_rows_are_marked_oldest_first_and_nothing_leaves(database: Database) -> None:
    jobs(database, (1, "done", ago(10)), (2, "done", ago(30)), (3, "done", ago(1)), (4, "queued", ago(30)))
    with keeping(database, marking()) as opened:
        pruned = opened.keeper.prune("job", rule="cleaned", limit=1)
        assert (pruned.kind, pruned.counts) == ("mark", {"job": 1})
        assert states(database) == {1: "done", 2: "cleaned", 3: "done", 4: "queued"}
        assert opened.keeper.prune("job", rule="cleaned", limit=9).counts == {"job": 1}
        assert opened.keeper.prune("job", rule="cleaned", limit=9).counts == {"job": 0}
        assert states(database) == {1: "cleaned", 2: "cleaned", 3: "done", 4: "queued"}
        assert [(entry.kind, entry.rows) for entry in opened.trail()] == [("mark", 1), ("mark", 1), ("mark", 0)]
        assert {event.kind for event in opened.reported(RowsPruned)} == {"mark"}


def test_the_other_columns_stay_as_they_were(database: Database) -> None:
    jobs(database, (1, "done", ago(30)))
    database.execute("UPDATE job SET tenant = 'x', resolved_ms = 5, parent_id = 7")
    with keeping(database, marking()) as opened:
        opened.keeper.prune("job", rule="cleaned", limit=1)
        assert database.query("SELECT * FROM job") == [(1, "cleaned", ago(30), "x", 5, 7)]


def test_a_marked_row_leaves_by_its_own_rule_from_the_same_time(database: Database) -> None:
    jobs(database, (1, "done", ago(60)), (2, "done", ago(40)))
    with keeping(database, marking()) as opened:
        opened.keeper.enable()
        first, second = opened.keeper.sweep(pace=FAST).rules
        assert (first.action, first.counts, second.action, second.counts) == ("mark", {"job": 2}, "prune", {"job": 1})
        assert states(database) == {2: "cleaned"}
        assert [event.action for event in opened.reported(BatchTaken) if event.counts.get("job")] == ["mark", "prune"]
        assert [(entry.kind, entry.rule, entry.rows) for entry in opened.trail()] == [
            ("mark", "cleaned", 2),
            ("prune", "gone", 1),
        ]


@pytest.mark.parametrize("foreign_key", [None, "job (id)"])
def test_references_to_a_marked_row_stay_valid_and_guards_save_from_marks(
    database: Database, foreign_key: str | None
) -> None:
    jobs(database, (1, "done", ago(30)), (2, "done", ago(30)))
    notes(database, (1, 1, "x"), foreign_key=foreign_key)
    guarded = table("job", rule("cleaned", then=Mark("cleaned"), unless=[referenced_by("note.job_id")]))
    with keeping(database, guarded) as opened:
        opened.keeper.prune("job", rule="cleaned", limit=9)
        assert states(database) == {1: "done", 2: "cleaned"}
    with keeping(database, table("job", rule("cleaned", then=Mark("cleaned")))) as opened:
        opened.keeper.prune("job", rule="cleaned", limit=9)
        assert states(database) == {1: "cleaned", 2: "cleaned"}
        assert opened.ids("note") == [1]


def test_a_guard_of_a_column_saves_from_marks(database: Database) -> None:
    jobs(database, (1, "done", ago(30)), (2, "done", ago(30)))
    database.execute("UPDATE job SET resolved_ms = 1 WHERE id = 2")
    with keeping(database, marking(unless=[WhileNull("resolved_ms")])) as opened:
        opened.keeper.prune("job", rule="cleaned", limit=9)
        assert states(database) == {1: "done", 2: "cleaned"}


def test_a_mark_that_the_database_does_not_take_is_an_error(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(4)])
    if database.store == "sqlite":
        database.execute("CREATE TRIGGER keep BEFORE UPDATE ON job WHEN old.id = 2 BEGIN SELECT RAISE(IGNORE); END")
    else:
        database.script("""
            CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN RETURN CASE WHEN old.id = 2 THEN NULL ELSE new END; END $$;
            CREATE TRIGGER keep BEFORE UPDATE ON job FOR EACH ROW EXECUTE FUNCTION keep();
        """)
    with keeping(database, marking()) as opened:
        with pytest.raises(StoreError, match="4 rows were due and locked, but the database took 3"):
            opened.keeper.prune("job", rule="cleaned", limit=9)
        assert set(states(database).values()) == {"done"}
        assert opened.trail() == []
