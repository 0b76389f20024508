"""Starts processes that sweep, one after the other, so that each can be killed: `python launcher.py URL CONTRACT
STEPS`.

For every seed and step that it reads it forks a process and prints its number; when that process is gone, it prints how
it ended. A forked process begins to sweep within milliseconds, which makes hundreds of kills affordable.

The swept code is the product's own. Only here, and only to be able to say where a kill came, its methods write the name
of the step that begins to the file STEPS, and then dawdle for a timestamp, so that no step is too short to be hit.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from wane._db.postgres.store import PostgresStore
from wane._db.sqlite.store import SqliteStore
from wane._db.statement import Statement
from wane._keeper import open_keeper
from wane._ledger import Ledger
from wane._prune.pace import Pace
from wane._prune.sql_postgres import PostgresRowTaker
from wane._prune.sweep import Sweeper
from wane._rules.rule_statements import RuleStatements

DAWDLE_SECONDS = 0.003
WAIT_SECONDS = 60
BATCH = 20
PACE = Pace(target_seconds=1.0, duty=0.5, first_batch=BATCH, least_batch=BATCH, most_batch=BATCH)


class Steps:
    """Writes where the process is; the last line of the file is the step that was under way when it died. It may wait
    at one to be killed."""

    def __init__(self, file: int, generator: random.Random, target: str = "-") -> None:
        self._file = file
        self._generator = generator
        self.target = target

    def enter(self, step: str) -> None:
        os.write(self._file, f"{step}\n".encode())
        time.sleep(WAIT_SECONDS if step == self.target else self._generator.uniform(0, DAWDLE_SECONDS))

    def before(self, owner: type[Any], method: str, step: str) -> None:
        """Let a method report the step first."""
        original = getattr(owner, method)

        def logged(this: Any, *arguments: Any, **options: Any) -> Any:
            self.enter(step)
            return original(this, *arguments, **options)

        setattr(owner, method, logged)

    def function(self, module: Any, name: str, step: str) -> None:
        """Let a function of a module report the step first."""
        original = getattr(module, name)

        def logged(*arguments: Any, **options: Any) -> Any:
            self.enter(step)
            return original(*arguments, **options)

        setattr(module, name, logged)

    def statements(self) -> None:
        """Let the statements of a rule report their step when they are about to run."""
        original = RuleStatements.fill

        def logged(this: RuleStatements, statement: Statement, *arguments: Any, **options: Any) -> Statement:
            ranged = this.unheld
            if statement in (this.candidates, this.batch_end) or (ranged and statement == ranged.end):
                self.enter("look")
            elif statement in (this.take, this.take_range) or (ranged and statement == ranged.take):
                self.enter("take")
            elif statement == this.recheck or (ranged and statement == ranged.count):
                self.enter("recheck")
            elif any(statement in (one.take, one.some) for one in this.followers) or (
                ranged and any(statement == one for _, one in ranged.followers)
            ):
                self.enter("followers")
            return original(this, statement, *arguments, **options)

        RuleStatements.fill = logged  # type: ignore[assignment, method-assign]

    def around(self, store: type[Any]) -> None:
        """Let transactions report when they begin, and when they are about to commit."""
        original: Callable[..., Any] = store.transaction

        @contextmanager
        def logged(this: Any, connection: object | None = None, *, durable: bool = True) -> Iterator[Any]:
            with original(this, connection, durable=durable) as transaction:
                if store is SqliteStore:
                    self.enter("lock")  # There the write lock of the file is the only one.
                yield transaction
                self.enter("commit")

        store.transaction = logged


class Pauses(threading.Event):
    """Nothing ever stops this sweep; its pauses are steps like the others."""

    steps: Steps

    def wait(self, timeout: float | None = None) -> bool:
        self.steps.enter("pause")
        return False


def sweep(url: str, contract: Path, steps: Steps, generator: random.Random) -> None:
    """Sweep until killed; whatever else ends it is a failure."""
    for owner, method, step in (
        (PostgresRowTaker, "lock", "lock"),
        (Ledger, "record", "audit"),
        (Ledger, "add_to_record", "audit"),
        (PostgresStore, "call", "call"),
    ):
        steps.before(owner, method, step)
    steps.statements()
    steps.around(SqliteStore)
    steps.around(PostgresStore)
    stop = Pauses()
    stop.steps = steps
    with open_keeper(url, contract=contract, actor="to be killed") as keeper:
        sweeper = Sweeper(keeper.store, keeper.contract, "to be killed", pace=PACE, unattended=False, stop=stop)
        names = [f"{table.name}.{rule.name}" for table, rule in keeper.contract.rules()]
        while True:
            name = generator.choice(names)
            sweeper.sweep([name])


def serve(log: str, work: Callable[[Steps, random.Random], None]) -> None:
    """Fork a process for every line of the input, a seed and a step or "-", and print its number and how it ended.

    In a group of its own, so that it can be killed with its tasks.
    """
    for line in sys.stdin:
        seed, _, target = line.strip().partition(" ")
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            generator = random.Random(int(seed))
            code = 1
            try:
                work(Steps(file, generator, target), generator)
                code = 0
            except Exception:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def main(url: str, contract: str, log: str) -> None:
    serve(log, partial(sweep, url, Path(contract)))


if __name__ == "__main__":
    main(*sys.argv[1:])
