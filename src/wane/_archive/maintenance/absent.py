"""Rows that the application deleted after they were copied and before the sweep came to them.

Their copies stay in the archive, and the journal records which they are. They can be erased, as for a request to delete
a person's data: files are rewritten without them and without what left with them, in one job for each month, with the
audit entry, the gates and the holds of an expiry. The journal forgets their keys in the same transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from wane._archive.delta.cold_table import ColdTable
from wane._archive.delta.files import Replacement
from wane._archive.journal import AbsentCopy, Journal
from wane._archive.maintenance.archived_holds import ArchivedHold, NewHold, read_holds
from wane._archive.maintenance.journal import EXPIRE
from wane._archive.maintenance.upkeep import Upkeep
from wane._archive.model import AbsentRow, ExpiredTable
from wane._archive.pipeline.removal import GoneCopies, changed_files, copy_name, find_copies
from wane._contract.model import Table
from wane._db import Store
from wane._db.transaction import Transaction
from wane._leases import Lease
from wane._prune.batches import require_not_append_only

_AT_ONCE = 100_000
"""The most rows that one call erases; the next one continues."""


def list_absent(store: Store, cold: ColdTable, limit: int) -> list[AbsentRow]:
    """Return rows of a table that the application deleted and whose copies are still archived, the oldest first."""
    copies = _recorded(store, cold.name, limit)
    months = _archived(cold, copies)
    with store.snapshot() as transaction:
        found = {copy.sweep_id: Journal(transaction).find(copy.sweep_id) for copy in months}
    rules = {number: sweep.rule for number, sweep in found.items() if sweep is not None}
    return [
        AbsentRow(cold.name, copy.key, copy.sweep_id, rules[copy.sweep_id], months[copy], copy.checked_at)
        for copy in copies
        if copy in months
    ]


def _recorded(store: Store, table: str, limit: int) -> list[AbsentCopy]:
    """Read what the journal has of sweeps that are done: what is unfinished relies on its copies."""
    found: list[AbsentCopy] = []
    with store.snapshot() as transaction:
        journal = Journal(transaction)
        for sweep in journal.absent_sweeps(table):
            found += journal.absent(sweep, limit - len(found))
            if len(found) >= limit:
                break
    return found


def _archived(cold: ColdTable, copies: Sequence[AbsentCopy]) -> dict[AbsentCopy, str]:
    """Return the month of each of these copies that is still archived: others expired, or came back."""
    handle = cold.open()
    if handle is None or not copies:
        return {}
    names = {copy_name(copy.sweep_id, copy.key, copy.version): copy for copy in copies}
    gone = GoneCopies.exactly([(copy.sweep_id, copy.key, copy.version) for copy in copies], follows=False)
    return {names[name]: month for name, month in find_copies(cold, handle, gone).items()}


def erase_absent(upkeep: Upkeep, table: Table, done: ExpiredTable, *, dry_run: bool) -> None:
    """Erase copies of rows that the application deleted; add to `done` what went, or would go."""
    name = str(table.name)
    require_not_append_only(table)
    sweeps = upkeep.sweeps()
    names = upkeep.written_by(name, sweeps)
    if dry_run:
        upkeep.require_whole(names)
        held = read_holds(upkeep, names)
        done.held = held.everything or None
        copies = _erasable(upkeep.store, name, held, done)
        for month in _archived(upkeep.cold(name), copies).values():
            done.add(name, month, 1)
        return
    with upkeep.leases(names, sweeps) as leases:
        with upkeep.transaction(leases) as transaction:
            upkeep.context.require_open(transaction, name)
        upkeep.require_restored(name)
        held = read_holds(upkeep, names)
        done.held = held.everything or None
        erasing = _Erasing(upkeep, name, names, held, leases)
        copies = _erasable(upkeep.store, name, held, done)
        before = sum(done.rows.get(name, {}).values())
        erasing.run(copies, done)
        if sum(done.rows.get(name, {}).values()) == before:
            upkeep.record_nothing(name, EXPIRE, names, leases, inputs={"absent": 0})


def _erasable(store: Store, table: str, held: ArchivedHold, done: ExpiredTable) -> list[AbsentCopy]:
    """Return the copies that one call erases, the oldest first, without held ones; note in `done` if there are more."""
    if held.everything:
        return []
    # Held ones are skipped, so that they do not take the turn of others for ever.
    recorded = _recorded(store, table, _AT_ONCE + len(held.keys) + 1)
    free = [copy for copy in recorded if copy.key not in held.keys]
    done.more_absent = len(free) > _AT_ONCE
    return free[:_AT_ONCE]


class _Erasing:
    """Erases copies of one table's rows, under leases."""

    def __init__(
        self, upkeep: Upkeep, name: str, names: Sequence[str], held: ArchivedHold, leases: Sequence[Lease]
    ) -> None:
        self.upkeep = upkeep
        self.name = name
        self.names = names
        self.held = held
        self.leases = leases

    def run(self, copies: Sequence[AbsentCopy], done: ExpiredTable) -> None:
        archived = _archived(self.upkeep.cold(self.name), copies)
        months: dict[str, list[AbsentCopy]] = defaultdict(list)
        for copy, month in archived.items():
            months[month].append(copy)
        for month, some in sorted(months.items()):
            try:
                self._erase(month, some, done)
            except NewHold as problem:
                done.held = str(problem)
                return
        # They expired or came back, or an earlier call died after it erased them.
        left = [copy for copy in copies if copy not in archived]
        if left:
            with self.upkeep.transaction(self.leases) as transaction:
                Journal(transaction).forget_absent(left)

    def _erase(self, month: str, copies: Sequence[AbsentCopy], done: ExpiredTable) -> None:
        job = self.upkeep.begin(self.name, EXPIRE, self.leases)
        changes = [change for name in self.names if (change := self._change(name, month, copies)).removed]
        plan = {
            "changes": [change.written() for change in changes],
            "inputs": {"month": month, "absent": len(copies)},
        }
        self.upkeep.carry_out(job, self.name, EXPIRE, plan, self.leases, may=partial(self._conclude, copies))
        for change in changes:
            done.add(change.table, month, change.gone)

    def _change(self, name: str, month: str, copies: Sequence[AbsentCopy]) -> Replacement:
        """Write the files of a month anew without these copies, or what left with them."""
        cold = self.upkeep.cold(name)
        handle = cold.open()
        follows = name != self.name
        gone = GoneCopies.exactly([(one.sweep_id, one.key, one.version) for one in copies], follows=follows)
        if handle is None or not set(gone.columns) <= {field.name for field in handle.schema().fields}:
            return Replacement(name, (), ())
        texts = self.upkeep.contract.archive_statistics(name)
        pairs = changed_files(self.upkeep.context.executor, cold, handle, gone, texts, month)
        return Replacement(name, tuple(old for old, _ in pairs), tuple(new for _, new in pairs if new is not None))

    def _conclude(self, copies: Sequence[AbsentCopy], transaction: Transaction) -> None:
        """Forget the copies; raise if a hold was placed meanwhile."""
        self.upkeep.require_no_new_hold(transaction, self.names, self.held)
        Journal(transaction).forget_absent(copies)
