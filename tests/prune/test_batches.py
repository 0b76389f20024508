"""Batches: one transaction each, under one audit row, which no batch can leave out."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import pytest

from prune.keeping import ago, jobs, keeping
from servers import Database
from wane._db.statement import Statement
from wane._db.transaction import Transaction
from wane._ledger import AuditEntry
from wane._prune.batches import Batches, Closed, require_running
from wane._prune.pace import FAST


def delete(transaction: Transaction) -> int:
    table = "public.job" if transaction.kind == "postgres" else "job"
    return transaction.change(Statement(f"DELETE FROM {table} WHERE id = 1", {}))


def entry() -> AuditEntry:
    return AuditEntry("prune", "job", "tester", {}, {}, datetime.now(UTC), rule="old")


def begin(transaction: Transaction) -> datetime:
    return transaction.now()


def test_a_batch_that_is_not_recorded_is_not_committed(database: Database) -> None:
    jobs(database, (1, "done", ago(60)))
    with keeping(database) as kept:
        batches = Batches(kept.keeper.store, FAST, entry(), begin)
        with pytest.raises(AttributeError), batches.open() as batch:
            assert delete(batch.transaction) == 1
        assert kept.ids() == [1]
        assert kept.trail() == []


def test_all_batches_add_to_one_audit_row(database: Database) -> None:
    jobs(database, (1, "done", ago(60)))
    with keeping(database) as kept:
        batches = Batches(kept.keeper.store, FAST, entry(), begin)
        for counts in ({"job": 1}, {"job": 0, "note": 2}, {"note": 3}):
            with batches.open() as batch:
                batch.record(counts)
        [audit] = kept.trail()
        assert (audit.counts, audit.rows, audit.batches) == ({"job": 1, "note": 5}, 6, 3)
        assert (batches.audit.id, batches.audit.counts) == (audit.id, audit.counts)
        assert batches.last.counts == {"job": 0, "note": 3}


def test_a_batch_that_fails_changes_no_count(database: Database) -> None:
    jobs(database, (1, "done", ago(60)))
    with keeping(database) as kept:
        batches = Batches(kept.keeper.store, FAST, entry(), begin)
        with batches.open() as batch:
            batch.record({"job": 2})
        with suppress(ZeroDivisionError), batches.open() as batch:
            batch.record({"job": 1})
            raise ZeroDivisionError
        assert batches.audit.counts == {"job": 2}
        with batches.open() as batch:
            batch.record({"job": 1})
        [audit] = kept.trail()
        assert audit.counts == {"job": 3}


def test_what_refuses_a_batch_refuses_it_before_its_first_statement(database: Database) -> None:
    jobs(database, (1, "done", ago(60)))

    def closed(transaction: Transaction) -> datetime:
        raise Closed("off")

    with keeping(database) as kept:
        batches = Batches(kept.keeper.store, FAST, entry(), closed)
        with pytest.raises(Closed), batches.open() as batch:
            delete(batch.transaction)
        assert kept.ids() == [1]
        batches.stop.set()
        with pytest.raises(Closed, match="stop requested"):
            require_running(batches.stop)
