"""References that a trigger of the database removes before a row leaves: neither followed nor guarded."""

from __future__ import annotations

from dataclasses import replace

from prune.keeping import Keeping, ago, jobs, keeping, notes, reference, rule, table
from servers import Database
from wane._contract.model import Table
from wane._prune.sweep import Outcome

UNLINKED = replace(rule(), unlinked=(reference("note.job_id"),))
LEAVES = "UPDATE note SET job_id = NULL WHERE job_id = OLD.id"
STAYS = "UPDATE note SET kind = 'seen' WHERE job_id = OLD.id"


def trigger(database: Database, does: str) -> None:
    if database.store == "sqlite":
        database.script(f"CREATE TRIGGER unlink BEFORE DELETE ON job BEGIN {does}; END;")
        return
    database.execute(
        f"CREATE FUNCTION unlink() RETURNS trigger LANGUAGE plpgsql SET search_path = public AS $$ BEGIN {does}; RETURN OLD; END $$"
    )
    database.execute("CREATE TRIGGER unlink BEFORE DELETE ON job FOR EACH ROW EXECUTE FUNCTION unlink()")


def fill(database: Database) -> Table:
    jobs(database, (1, "done", ago(9)), (2, "done", ago(8)), (3, "done", ago(1)))
    notes(database, (1, 1, "a"), (2, 3, "b"), foreign_key="job (id)")
    return table("job", UNLINKED)


def sweep(opened: Keeping) -> tuple[Outcome, str]:
    opened.keeper.enable()
    [swept] = opened.keeper.sweep().rules
    return swept.outcome, swept.message


def test_rows_that_a_trigger_unlinks_leave(database: Database) -> None:
    declared = fill(database)
    trigger(database, LEAVES)
    with keeping(database, declared) as opened:
        assert sweep(opened) == (Outcome.DONE, "")
        assert opened.ids() == [3]
        assert database.query("SELECT id, job_id FROM note ORDER BY id") == [(1, None), (2, 3)]


def test_without_a_trigger_the_reference_is_unguarded(database: Database) -> None:
    with keeping(database, fill(database)) as opened:
        outcome, error = sweep(opened)
        assert (outcome, opened.ids()) == (Outcome.FAILED, [1, 2, 3])
        assert "note.job_id refers to job" in error


def test_a_trigger_that_unlinks_nothing_takes_nothing(database: Database) -> None:
    declared = fill(database)
    trigger(database, STAYS)
    with keeping(database, declared) as opened:
        outcome, error = sweep(opened)
        assert (outcome, opened.ids()) == (Outcome.FAILED, [1, 2, 3])
        assert "foreign key" in error.lower()
        assert database.query("SELECT kind FROM note ORDER BY id") == [("a",), ("b",)]
