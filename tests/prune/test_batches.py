"""Batches: one transaction each, under one audit row, which no batch can leave out."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest

from prune.keeping import ago, jobs, keeping
from servers import Database
from wane._db.statement import Statement
from wane._db.transaction import Transaction
from wane._ledger import AuditEntry, Ledger
from wane._prune.batches import Batches
from wane._prune.pace import FAST
from wane._prune.pacing import Closed, require_running
from wane._prune.primitive import take_all_scopes
from wane._prune.take import Batch
from wane.errors import StoreError


def delete(transaction: Transaction) -> int:
    table = "public.job" if transaction.kind == "postgres" else "job"
    return transaction.change(Statement(f"DELETE FROM {table} WHERE id = 1", {}))


def entry() -> AuditEntry:
    return AuditEntry("prune", "job", "tester", {}, {}, datetime.now(UTC), rule="old")


def begin(transaction: Transaction) -> datetime:
    return transaction.now()


def test_a_batch_that_is_not_recorded_is_not_committed(database: Database) -> None:
    jobs(database, (1, "done", ago(60)))
    with keeping(database) as opened:
        batches = Batches(opened.keeper.store, FAST, entry(), begin)
        with pytest.raises(StoreError, match="no audit row states them"), batches.open():
            pass
        with batches.open() as batch:
            batch.record({})
        with pytest.raises(StoreError, match="no audit row states them"), batches.open() as batch:
            assert delete(batch.transaction) == 1
        assert opened.ids() == [1]
        assert [one.rows for one in opened.trail()] == [0]


@pytest.mark.parametrize("recorded", ["none", "fewer", "all"])
@pytest.mark.parametrize("connection", ["own", "caller"])
def test_rows_that_leave_unrecorded_are_not_committed(database: Database, connection: str, recorded: str) -> None:
    jobs(database, (1, "done", ago(60)), (2, "done", ago(61)))
    with keeping(database) as opened, database.connect() as caller:
        store, contract = opened.keeper.store, opened.keeper.contract
        [declared] = contract.tables
        selection = opened.keeper.pruner.bindings.selection(declared, declared.rules[0])

        def take() -> None:
            with store.transaction(caller if connection == "caller" else None) as transaction:
                now = transaction.now()
                taken = take_all_scopes(transaction, Batch(selection, now, limit=10, most=10))
                assert taken.counts == {"job": 2}
                if recorded != "none":
                    counts = taken.counts if recorded == "all" else {"job": 1}
                    Ledger.of(transaction).record(AuditEntry("prune", "job", "tester", {}, counts, now))

        if recorded == "all":
            take()
        else:
            with pytest.raises(StoreError, match=f"{1 if recorded == 'fewer' else 2} of job"):
                take()
        caller.commit()
        assert opened.ids() == ([] if recorded == "all" else [1, 2])
        assert [one.counts for one in opened.trail()] == ([{"job": 2}] if recorded == "all" else [])


def test_all_batches_add_to_one_audit_row(database: Database) -> None:
    jobs(database, (1, "done", ago(60)))
    with keeping(database) as opened:
        batches = Batches(opened.keeper.store, FAST, entry(), begin)
        for counts in ({"job": 1}, {"job": 0, "note": 2}, {"note": 3}):
            with batches.open() as batch:
                batch.record(counts)
        [audit] = opened.trail()
        assert (audit.counts, audit.rows, audit.batches) == ({"job": 1, "note": 5}, 6, 3)
        assert (batches.audit.id, batches.audit.counts) == (audit.id, audit.counts)
        assert batches.last.counts == {"job": 0, "note": 3}


def test_a_batch_that_fails_changes_no_count(database: Database) -> None:
    jobs(database, (1, "done", ago(60)))
    with keeping(database) as opened:
        batches = Batches(opened.keeper.store, FAST, entry(), begin)
        with batches.open() as batch:
            batch.record({"job": 2})
        with suppress(ZeroDivisionError), batches.open() as batch:
            batch.record({"job": 1})
            raise ZeroDivisionError
        assert batches.audit.counts == {"job": 2}
        with batches.open() as batch:
            batch.record({"job": 1})
        [audit] = opened.trail()
        assert audit.counts == {"job": 3}


def test_what_refuses_a_batch_refuses_it_before_its_first_statement(database: Database) -> None:
    jobs(database, (1, "done", ago(60)))

    def closed(transaction: Transaction) -> datetime:
        raise Closed("off")

    with keeping(database) as opened:
        batches = Batches(opened.keeper.store, FAST, entry(), closed)
        with pytest.raises(Closed), batches.open() as batch:
            delete(batch.transaction)
        assert opened.ids() == [1]
        batches.stop.set()
        with pytest.raises(Closed, match="stop requested"):
            require_running(batches.stop)
