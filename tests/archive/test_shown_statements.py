"""`plan -v` shows the statements that evict archived rows: traced at the driver, text for text and in order."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from archive.cold import CONTRACT, Cold, cold_keeper, events
from archive.test_plain_rows import PLAIN, fill
from archive.test_spared import SPARING
from prune.test_shown_statements import matches, traced
from servers import Database
from wane._prune.sweep import Outcome

USERS = ('."event"', '."event_read"', '."event_guard"')
UNGUARDED = CONTRACT.replace('unless = [{{ referenced_by = "event_guard.event_id" }}]\n', "")
RULES = {
    "by range": PLAIN,
    "text": PLAIN,
    "changed": PLAIN,
    "sparing": SPARING,
    "followers": UNGUARDED,
    "followers and guards": CONTRACT,
}


def archive(cold: Cold, monkeypatch: pytest.MonkeyPatch, change: str) -> list[str]:
    """Archive what is due, and return what ran from the commit of the copies until their rows had left."""
    ran: list[str] = []
    with ExitStack() as tracing:

        def begin() -> None:
            if change:
                cold.database.execute(change)
            nonlocal ran
            ran = tracing.enter_context(traced(cold.keeper, monkeypatch, USERS))

        cold.at = {"committed": begin, "evicted": tracing.close}
        assert cold.one().outcome is Outcome.DONE
    return ran


@pytest.mark.parametrize("name", RULES)
def test_what_evicts_rows_is_what_is_shown(
    database: Database, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "text":
        fill(database, "id text", lambda n: f"k{n}")
    elif RULES[name] is PLAIN:
        fill(database)
    else:
        events(database)
        if "referenced_by" not in RULES[name]:
            database.execute("DROP TABLE event_guard")
    with cold_keeper(database, tmp_path, RULES[name]) as cold:
        [step] = cold.keeper.plan(explain=True).steps
        ran = archive(cold, monkeypatch, "UPDATE event SET body = 'changed' WHERE id = 70" if name == "changed" else "")
    assert not any("cannot be explained" in one.query_plan for one in step.statements)
    order = []
    for text in ran:
        found = [n for n, one in enumerate(step.statements) if matches(one, text, database)]
        assert found, text
        order.append(found[0])
    first = list(dict.fromkeys(order))
    purposes = [step.statements[n].purpose for n in first]
    assert first == sorted(first), purposes
    expected = {n for n, one in enumerate(step.statements) if not one.purpose.startswith("if ")}
    assert expected <= set(first), purposes
    by_range = "take the batch, which must be exactly what was copied" in purposes
    assert by_range == (RULES[name] is PLAIN)
    assert any(purpose.startswith("if it is not") for purpose in purposes) == (name == "changed")
