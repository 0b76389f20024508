"""What happens to columns on the way to the archive: what leaves is what may be kept, and it is proven like any other
row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from archive.cold import CONTRACT, STAYING, cold_keeper, refused
from archive.cold import events as old_events
from servers import Database, SqliteDatabase
from wane._archive.rows import content
from wane._cli import app
from wane._prune.sweep import Outcome
from wane.errors import WrongArgument
from wane.web import console
from web.client import open_client

TRANSFORM = (
    '{{ drop = ["amount"], hash = ["body", "number"], mask = {{ mail = {{ first = 1, last = 4 }}, card = "***" }} }}'
)
DESCRIBED = {
    "drop": ["amount"],
    "hash": ["body", "number"],
    "mask": {"mail": "all but the first 1 and the last 4", "card": "***"},
}


def contract(transform: str = TRANSFORM) -> str:
    return CONTRACT.replace('keep = "forever"\n', f'keep = "forever"\ntransform = {transform}\n')


def events(database: Database, rows: int = 100) -> None:
    old_events(database, rows)
    for column in ("mail text", "card bigint", "number bigint"):
        database.execute(f"ALTER TABLE event ADD COLUMN {column}")
    mails = "CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN 'a@b' ELSE 'zoë' || id || '@example.org' END"
    database.execute(f"UPDATE event SET mail = {mails}, card = CASE WHEN id % 3 > 0 THEN id * 7 END, number = 12 - id")
    database.execute("UPDATE event SET body = NULL WHERE id = 5")


def covered(mail: str | None) -> str | None:
    if mail is None:
        return None
    return "*" * len(mail) if len(mail) <= 5 else f"{mail[0]}{'*' * (len(mail) - 5)}{mail[-4:]}"


def hashed(value: object) -> str | None:
    return None if value is None else hashlib.sha256(str(value).encode()).hexdigest()


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "fast"])
def test_the_archive_has_what_the_transformation_leaves(database: Database, tmp_path: Path, strict: bool) -> None:
    events(database)
    rows = database.query("SELECT id, status, at_ms, body, mail, card, number FROM event WHERE id <= 100 ORDER BY id")
    with cold_keeper(database, tmp_path, contract()) as cold:
        done = cold.one(strict=strict)
        assert (done.outcome, done.evicted["event"], done.stale) == (Outcome.DONE, 100, 0)
        assert cold.hot() == list(STAYING)
        found = sorted(cold.archived(), key=lambda row: int(row["id"]))
        assert "amount" not in found[0]
        wanted = [
            (key, status, at, hashed(body), covered(mail), None if card is None else "***", hashed(number))
            for key, status, at, body, mail, card, number in rows
        ]
        names = ("id", "status", "at_ms", "body", "mail", "card", "number")
        assert [tuple(row[name] for name in names) for row in found] == wanted
        [proof, _] = cold.keeper.archive.verify()
        assert proof.problems == ()


def test_the_journal_the_trail_the_plan_and_the_list_name_it(database: Database, tmp_path: Path) -> None:
    events(database, 10)
    with cold_keeper(database, tmp_path, contract()) as cold:
        [step] = cold.keeper.plan().steps
        assert step.transform == DESCRIBED
        cold.one()
        [entry] = cold.keeper.audit(kind="archive")
        assert entry.inputs["transform"] == DESCRIBED
        status, followers = cold.keeper.archive.tables()
        assert (status.transform, followers.transform) == (DESCRIBED, None)


def test_transformed_rows_do_not_come_back(database: Database, tmp_path: Path) -> None:
    events(database, 20)
    with cold_keeper(database, tmp_path, contract()) as cold:
        cold.one()
        for into in (None, "side"):
            with pytest.raises(
                WrongArgument, match=r"transformed on the way .*drop amount; hash body, number; mask card, mail"
            ):
                cold.keeper.archive.restore("event", where="id <= 3", into=into)
        assert cold.hot() == list(STAYING)
        assert cold.cold() == list(range(1, 21))
        # So no command is offered that would be refused; what left with the row was not transformed.
        gone = cold.keeper.why("event", 1).gone
        assert gone is not None
        assert gone.archived is not None
        assert gone.archived.restore == ""
        assert gone.archived.transformed == "drop amount; hash body, number; mask card, mail"
        contract_file = str(tmp_path / "wane.toml")
        printed = CliRunner().invoke(app, ["why", "event", "1", "-c", contract_file]).output
        assert "wane archive restore" not in printed
        assert f"not restorable: transformed on the way to the archive: {gone.archived.transformed}" in printed
        with open_client(console(cold.keeper.contract)) as client:
            page = client.get("/tables/event?key=1").text
        assert f"Not restorable: transformed on the way to the archive: {gone.archived.transformed}" in page


def test_rows_that_were_archived_before_come_back(database: Database, tmp_path: Path) -> None:
    events(database, 10)
    with cold_keeper(database, tmp_path) as cold:
        cold.one()
    masked = contract('{{ mask = {{ body = "gone", mail = {{ last = 2 }} }} }}')
    with cold_keeper(database, tmp_path, masked) as cold:
        cold.keeper.archive.restore("event", where="id <= 2", protect=timedelta(0))
        assert cold.one().outcome is Outcome.DONE
        assert sorted((row["id"], row["body"] == "gone") for row in cold.archived()) == [
            (n, n <= 2) for n in range(1, 11)
        ]
        with pytest.raises(WrongArgument, match=r'the row \["1"\]|transformed'):
            cold.keeper.archive.restore("event", where="id <= 5")
        done = cold.keeper.archive.restore("event", where="id > 2 AND id <= 5")
        assert done.restored["event"] == 3


def test_a_row_that_changes_before_it_leaves_stays(database: Database, tmp_path: Path) -> None:
    events(database)
    with cold_keeper(database, tmp_path, contract()) as cold:
        cold.at["committed"] = lambda: database.execute("UPDATE event SET body = 'changed' WHERE id = 7")
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, 1)
        assert cold.hot() == [7, *STAYING]
        assert 7 not in cold.cold()


def test_a_transformation_that_changes_halfway_begins_anew(database: Database, tmp_path: Path) -> None:
    events(database, 30)
    with cold_keeper(database, tmp_path, contract('{{ mask = {{ body = "x" }} }}')) as cold:
        cold.at["written"] = cold.keeper.disable
        assert cold.one().outcome is not Outcome.DONE
    with cold_keeper(database, tmp_path, contract('{{ mask = {{ body = "y" }} }}')) as cold:
        done = cold.one()
        assert (done.outcome, done.stale) == (Outcome.DONE, 0)
        assert {row["body"] for row in cold.archived() if row["id"] != 5} == {"y"}


def test_a_value_that_was_not_transformed_is_not_proven(
    sqlite_database: SqliteDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events(sqlite_database, 20)
    wrong: Callable[..., object] = lambda column, kind: content.texts(content.whole(column), kind)  # noqa: E731
    monkeypatch.setattr(content, "hashes", wrong)
    with cold_keeper(sqlite_database, tmp_path, contract()) as cold:
        done = cold.one(strict=True)
        assert (done.outcome, "another content" in done.message) == (Outcome.FAILED, True)
        assert len(cold.hot()) == 20 + len(STAYING)
        assert cold.cold() == []


@pytest.mark.parametrize(
    ("transform", "code", "message"),
    [
        ('{{ drop = ["bodi"] }}', "missing-column", "no column 'bodi'"),
        ('{{ drop = ["id"] }}', "transformed-key", "known by their key and their time"),
        ('{{ hash = ["id"] }}', "transformed-key", "known by their key"),
        ('{{ mask = {{ at_ms = "x" }} }}', "transformed-key", "their time"),
        ('{{ hash = ["amount"] }}', "untransformable-type", "no one text to hash"),
        ("{{ mask = {{ number = {{ last = 4 }} }} }}", "untransformable-type", "only texts"),
    ],
)
def test_what_cannot_be_transformed_is_refused(
    database: Database, tmp_path: Path, transform: str, code: str, message: str
) -> None:
    events(database, 5)
    with cold_keeper(database, tmp_path, contract(transform)) as cold:
        assert message in refused(cold, code).message
        assert len(cold.hot()) == 5 + len(STAYING)


def test_a_column_that_the_archive_cannot_store_may_be_dropped(sqlite_database: SqliteDatabase, tmp_path: Path) -> None:
    events(sqlite_database, 5)
    sqlite_database.execute("ALTER TABLE event ADD COLUMN anything")
    with cold_keeper(sqlite_database, tmp_path) as cold:
        assert cold.one().outcome is Outcome.FAILED
    with cold_keeper(sqlite_database, tmp_path, contract('{{ drop = ["anything"] }}')) as cold:
        assert cold.one().outcome is Outcome.DONE
