"""What the contract declares of a table's columns also applies to rows of it that leave with others: what must not
reach the archive does not reach it by this way either."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from archive.cold import CONTRACT, NOW_MS, OLD_MS, STAYING, Cold, cold_keeper, refused
from archive.cold import events as old_events
from servers import Database, SqliteDatabase
from wane._archive.rows import content
from wane._prune.sweep import Outcome
from wane.errors import WrongArgument

SECTION = """
[archive.event_read]
cast = {{ price = "text" }}
renamed = {{ seen_by = "who" }}
transform = {{ drop = ["mail"], hash = ["seen_by", "number"], mask = {{ card = {{ last = 4 }}, note = "***" }} }}
"""
DESCRIBED = {
    "drop": ["mail"],
    "hash": ["number", "seen_by"],
    "mask": {"card": "all but the last 4", "note": "***"},
}
SECRETS = ("@example.org", "reader", "visa 4111", "remember")
"""Parts of values that must not be in the archive. They have letters: a time is a number, and may have any digits."""
LATER = """
[archive.event_mark]
transform = {{ drop = ["mark"] }}
"""


def contract(section: str = SECTION) -> str:
    return CONTRACT.replace("[scheduler]\n", f"{section}[scheduler]\n")


def events(database: Database, rows: int = 60) -> None:
    old_events(database, rows)
    database.execute("ALTER TABLE event_read RENAME COLUMN who TO seen_by")
    for column in ("mail text", "card text", "number bigint", "note text", "price numeric(12,2)"):
        database.execute(f"ALTER TABLE event_read ADD COLUMN {column}")
    database.execute(
        "UPDATE event_read SET seen_by = 'reader ' || id, mail = 'm' || id || '@example.org', card = 'visa 41112222' || id,"
        " number = 7 - id, note = 'remember ' || id, price = id / 4.0"
    )
    database.execute("UPDATE event_read SET seen_by = NULL, card = NULL, note = NULL WHERE id = 40")


def hashed(value: object) -> str | None:
    return None if value is None else hashlib.sha256(str(value).encode()).hexdigest()


def covered(card: str | None) -> str | None:
    return card and "*" * (len(card) - 4) + card[-4:]


def require_nothing_secret(cold: Cold) -> None:
    """Raise if a secret value is in any file of the archive, also in one that is no longer part of a table."""
    read = [str(content_of(path)) for path in (cold.folder / "cold").rglob("*.parquet")]
    assert read
    for secret in SECRETS:
        assert not any(secret in one for one in read)


def content_of(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as opened:
        return list(opened.read().to_pylist())


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "fast"])
def test_rows_that_leave_with_others_are_transformed_too(database: Database, tmp_path: Path, strict: bool) -> None:
    events(database)
    rows = database.query("SELECT id, event_id, seen_by, card, number, note FROM event_read ORDER BY id")
    with cold_keeper(database, tmp_path, contract()) as cold:
        [step] = cold.keeper.plan().steps
        assert step.transform == {"with": {"event_read": DESCRIBED}}
        done = cold.one(strict=strict)
        assert (done.outcome, done.message, done.stale) == (Outcome.DONE, "", 0)
        assert (done.evicted["event"], done.evicted["event_read"]) == (60, len(rows))
        assert (cold.hot(), cold.hot("event_read")) == (list(STAYING), [])
        found = sorted(cold.archived("event_read"), key=lambda row: int(row["id"]))
        assert not {"mail", "seen_by"} & set(found[0])
        wanted = [
            (key, parent, hashed(who), covered(card), hashed(number), None if note is None else "***")
            for key, parent, who, card, number, note in rows
        ]
        names = ("id", "event_id", "who", "card", "number", "note")
        assert [tuple(row[name] for name in names) for row in found] == wanted
        assert {type(row["price"]) for row in found} == {str}
        assert {row["body"][:5] for row in cold.archived()} == {"body "}
        require_nothing_secret(cold)
        assert [proof.problems for proof in cold.keeper.archive.verify()] == [(), ()]
        [entry] = cold.keeper.audit(kind="archive")
        assert entry.inputs["transform"] == {"with": {"event_read": DESCRIBED}}
        status, followers = cold.keeper.archive.tables()
        assert (status.transform, followers.transform) == (None, DESCRIBED)


@pytest.mark.on_spark
def test_tasks_of_spark_transform_followers(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path, contract()) as cold:
        done = cold.one()
        assert (done.outcome, done.message, cold.hot("event_read")) == (Outcome.DONE, "", [])
        assert {row["note"] for row in cold.archived("event_read")} == {"***", None}
        require_nothing_secret(cold)


def test_a_follower_that_changes_before_it_leaves_keeps_its_row(database: Database, tmp_path: Path) -> None:
    events(database)
    with cold_keeper(database, tmp_path, contract()) as cold:
        change = "UPDATE event_read SET seen_by = 'changed' WHERE id = 70"
        cold.at["committed"] = lambda: database.execute(change)
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, 1)
        assert (cold.hot(), cold.hot("event_read")) == ([7, *STAYING], [70])
        assert (7 in cold.cold(), 70 in cold.cold("event_read")) == (False, False)
        require_nothing_secret(cold)


def test_what_follows_a_follower_is_transformed_beside_a_transformed_row(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    database.execute(
        "CREATE TABLE event_mark (id bigint PRIMARY KEY, read_id bigint NOT NULL REFERENCES event_read (id), mark text)"
    )
    database.execute("CREATE INDEX event_mark_read ON event_mark (read_id)")
    database.execute("INSERT INTO event_mark SELECT id, id, 'remember' FROM event_read")
    nested = contract(SECTION + LATER).replace(
        'with = ["event_read.event_id"]',
        'with = [{{ table = "event_read", columns = "event_id", with = ["event_mark.read_id"] }}]',
    )
    nested = nested.replace('keep = "forever"\n', 'keep = "forever"\ntransform = {{ mask = {{ body = "x" }} }}\n', 1)
    with cold_keeper(database, tmp_path, nested) as cold:
        done = cold.one()
        assert (done.outcome, done.message, done.stale) == (Outcome.DONE, "", 0)
        marks = cold.archived("event_mark")
        assert len(marks) == done.evicted["event_mark"] == len(cold.archived("event_read"))
        assert not any("mark" in row for row in marks)
        assert {row["body"] for row in cold.archived()} == {"x"}
        require_nothing_secret(cold)
        [entry] = cold.keeper.audit(kind="archive")
        assert entry.inputs["transform"] == {
            "mask": {"body": "x"},
            "with": {"event_mark": {"drop": ["mark"]}, "event_read": DESCRIBED},
        }


@pytest.mark.frames_on_spark
def test_followers_of_a_projected_row_are_transformed(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    select = 'transform = {{ select = ["id", "at_ms", "upper(status) AS status"] }}'
    projected = contract().replace('keep = "forever"\n', f'keep = "forever"\n{select}\n', 1)
    with cold_keeper(database, tmp_path, projected) as cold:
        done = cold.one()
        assert (done.outcome, done.message, done.stale) == (Outcome.DONE, "", 0)
        assert {row["status"] for row in cold.archived()} == {"DONE"}
        assert {row["note"] for row in cold.archived("event_read")} == {"***", None}
        require_nothing_secret(cold)


def test_rows_come_back_only_as_they_left(database: Database, tmp_path: Path) -> None:
    events(database, 12)
    before = contract(SECTION[: SECTION.index("transform")])
    with cold_keeper(database, tmp_path, before) as cold:
        cold.one()
    # The archive has numbers under this name, which no hash of one is.
    with cold_keeper(database, tmp_path, contract(SECTION.replace(', "number"', ""))) as cold:
        back = cold.keeper.archive.restore("event", where="id <= 5", protect=timedelta(0))
        assert (back.restored["event"], back.restored["event_read"]) == (5, 6)
        assert database.query("SELECT count(*) FROM event_read WHERE seen_by LIKE 'reader%'") == [(5,)]
        assert cold.one().outcome is Outcome.DONE
        for into in (None, "side"):
            with pytest.raises(
                WrongArgument, match=r'rows of event_read that left with the row \["[1245]"\].*drop mail; hash seen_by'
            ):
                cold.keeper.archive.restore("event", where="id <= 5", into=into)
        # Nothing followed this one.
        back = cold.keeper.archive.restore("event", where="id = 3", protect=timedelta(0))
        assert (back.restored["event"], cold.hot()) == (1, [3, *STAYING])


def test_a_transformation_of_followers_that_changes_halfway_begins_anew(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path, contract(SECTION.replace('note = "***"', 'note = "x"'))) as cold:
        cold.at["written"] = cold.keeper.disable
        assert cold.one().outcome is not Outcome.DONE
    with cold_keeper(database, tmp_path, contract()) as cold:
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, 0)
        assert {row["note"] for row in cold.archived("event_read") if row["id"] != 40} == {"***"}


def test_a_value_of_a_follower_that_was_not_transformed_is_not_proven(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 20)
    wrong: Callable[..., object] = lambda column, kind: content.texts(content.whole(column), kind)  # noqa: E731
    monkeypatch.setattr(content, "hashes", wrong)
    with cold_keeper(sqlite_database, tmp_path, contract()) as cold:
        done = cold.one(strict=True)
        assert (done.outcome, "another content" in done.message) == (Outcome.FAILED, True)
        assert (cold.hot(), cold.cold("event_read")) == ([*range(1, 21), *STAYING], [])


@pytest.mark.parametrize(
    ("setting", "code", "message"),
    [
        ('transform = {{ drop = ["maill"] }}', "missing-column", "event_read has no column 'maill' to transform"),
        ('transform = {{ hash = ["id"] }}', "transformed-key", "event_read.id cannot be transformed"),
        ('transform = {{ hash = ["price"] }}', "untransformable-type", "no one text to hash"),
        ('cast = {{ prize = "text" }}', "missing-column", "event_read has no column 'prize' to cast"),
        ('renamed = {{ seen = "who" }}', "missing-column", "event_read has no column 'seen' that was who"),
    ],
)
def test_what_cannot_be_applied_to_followers_is_refused(
    database: Database, tmp_path: Path, setting: str, code: str, message: str
) -> None:
    events(database, 5)
    with cold_keeper(database, tmp_path, contract(f"[archive.event_read]\n{setting}\n")) as cold:
        assert message in refused(cold, code).message
        assert cold.hot() == [*range(1, 6), *STAYING]


def test_a_table_that_follows_and_has_a_rule_is_transformed_on_both_ways(database: Database, tmp_path: Path) -> None:
    events(database, 10)
    database.execute("ALTER TABLE event_read ADD COLUMN at_ms bigint")
    database.execute(f"UPDATE event_read SET at_ms = CASE WHEN id < 50 THEN {OLD_MS} ELSE {NOW_MS} END")
    database.execute("CREATE INDEX event_read_due ON event_read (at_ms, id)")
    rule = '[table.event_read]\nscheduler = "night"\nwhy = "a test"\n[table.event_read.rule.old]\n'
    rule += 'time = {{ column = "at_ms", unit = "ms" }}\nkeep = "90d"\nthen = "archive"\n'
    both = contract(SECTION.replace("cast", 'keep = "forever"\ncast')).replace("[spark]\n", f"{rule}[spark]\n")
    with cold_keeper(database, tmp_path, both) as cold:
        run = cold.run("event_read")
        assert [one.outcome for one in run.rules] == [Outcome.DONE]
        run = cold.run("event")
        assert [one.outcome for one in run.rules] == [Outcome.DONE]
        found = cold.archived("event_read")
        assert {row["_parent"] is None for row in found} == {True, False}
        assert all(len(row["who"] or "x" * 64) == 64 for row in found)
        require_nothing_secret(cold)
        # What left by the table's own rule was transformed as well.
        with pytest.raises(WrongArgument, match="transformed on the way"):
            cold.keeper.archive.restore("event_read", where="id < 50")
