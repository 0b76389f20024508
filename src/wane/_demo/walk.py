"""The demonstration: the main job from beginning to end, on a database like a busy application's, step by step."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from wane._archive.model import ArchiveRun, Restored, Surveyed
from wane._demo.seed import ROWS, TRAPS, Trap, attached_path, seed
from wane._findings import Finding
from wane._keeper import open_keeper
from wane._ledger import AuditEntry
from wane._prune.pace import FAST
from wane._prune.plan import Plan
from wane._prune.primitive import Pruned
from wane._prune.sweep import Sweep
from wane.reference import names

DATABASE = "state.db"
CONTRACT = "wane.toml"
PLAN = "plan.json"
ARCHIVE = "archive"
_ARCHIVED = ("event_outbox", "event_read", ".restore")
WEBHOOK_STATES = ("handled", "ignored")


@dataclass(frozen=True, slots=True)
class Built:
    """The database that the demonstration created."""

    contract: Path
    url: str
    counts: dict[str, int]
    now: datetime

    @property
    def plan(self) -> Path:
        return self.contract.with_name(PLAN)

    @property
    def week_ago(self) -> datetime:
        return self.now - timedelta(days=7)


def build(folder: Path, *, rows: int = ROWS, progress: Callable[[str, int, int], None] | None = None) -> Built:
    """Create the database and its contract in a folder of their own, afresh."""
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in _own(folder):
        if earlier.is_dir():
            shutil.rmtree(earlier)
        else:
            earlier.unlink()
    path = folder / DATABASE
    now = datetime.now(UTC)
    try:
        counts = seed(f"sqlite:///{path.absolute()}", rows=rows, now=now, progress=progress)
    except sqlite3.OperationalError as problem:  # The driver's errors about a path or a disk concern the folder.
        raise OSError(errno.EIO, f"the database cannot be written, {problem}") from problem
    contract = folder / CONTRACT
    contract.write_text(contract_text(path), encoding="utf-8")
    return Built(contract, f"sqlite:///{path.absolute()}", counts, now.replace(microsecond=0))


def _own(folder: Path) -> list[Path]:
    """Return what an earlier demonstration left in the folder; raise FileExistsError if it holds other files."""
    databases = (DATABASE, attached_path(Path(DATABASE)).name)
    own = {
        CONTRACT,
        PLAN,
        ARCHIVE,
        *(f"{name}{suffix}" for name in databases for suffix in ("", "-wal", "-shm", "-journal")),
    }
    found = sorted(folder.iterdir())
    strangers = [one.name for one in found if one.name not in own]
    archive = folder / ARCHIVE
    strangers += [one.name for one in archive.iterdir() if one.name not in _ARCHIVED] if archive.is_dir() else []
    if strangers:
        raise FileExistsError(errno.EEXIST, f"it holds other files ({', '.join(strangers[:3])})")
    return found


def contract_text(path: Path) -> str:
    """Write the demonstration's contract, which includes the reference contracts."""
    included = ", ".join(f'"reference:{name}"' for name in names())
    return f"""# The tables of four reference contracts in one database.
include = [{included}]
strict  = true

[store]
url    = "sqlite:///{path.name}"
attach = {{ iu_core = "{attached_path(path).name}" }}
"""


def check(built: Built) -> list[Finding]:
    with open_keeper(contract=built.contract, read_only=True) as keeper:
        return keeper.check()


def plan(built: Built) -> Plan:
    with open_keeper(contract=built.contract, read_only=True) as keeper:
        return keeper.plan(now=built.now)


def apply(built: Built, made: Plan) -> Sweep:
    """Delete exactly what was planned, without pauses: no one else uses this database."""
    made.write(built.plan)
    with open_keeper(contract=built.contract, actor="demo") as keeper:
        keeper.store.migrate()
        keeper.enable()
        return keeper.apply(made, pace=FAST)


def prune_webhooks(built: Built) -> Pruned:
    """Prune webhook tables explicitly: they are append-only, so sweeps leave them alone."""
    with open_keeper(contract=built.contract, actor="demo") as keeper:
        return keeper.prune("knocker_events", states=WEBHOOK_STATES, older_than=built.week_ago, limit=1_000)


@dataclass(frozen=True, slots=True)
class Archived:
    """What became of rows that are archived."""

    run: ArchiveRun
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    """Some of them, as they are in the archive."""
    keys: tuple[str, ...]
    restored: Restored
    survey: list[Surveyed]


ARCHIVED = "event_outbox"
FOUND = "event_type = 'retired'"
SHOWN = ("id", "event_domain", "event_type", "created_at")
SHOWN_ROWS = 3


def archive(built: Built, starting: Callable[[str], None], step: Callable[[str, Any], None]) -> Archived:
    """Archive rows, query some of them, restore those, and survey everything; call `step` after each."""
    with open_keeper(contract=built.contract, actor="demo") as keeper:
        cold = keeper.archive
        done = cold.run(pace=FAST, starting=starting)
        step("run", done)
        rows = list(cold.read(ARCHIVED, where=FOUND, columns=SHOWN, limit=SHOWN_ROWS))
        step("query", rows)
        keys = tuple(str(row[0]) for row in rows)
        restored = cold.restore(ARCHIVED, keys=[{"id": key} for key in keys], pace=FAST)
        step("restore", restored)
        survey = cold.survey(ARCHIVED, "event_read")
        step("survey", survey)
    return Archived(done, SHOWN, rows, keys, restored, survey)


def trail(built: Built, limit: int) -> list[AuditEntry]:
    with open_keeper(contract=built.contract) as keeper:
        return keeper.audit(limit=limit)


def stayed(built: Built) -> list[tuple[Trap, int]]:
    """Count the planted rows that exist now, trap by trap."""
    with _connection(built) as connection:
        return [
            (trap, connection.execute(f"SELECT count(*) FROM {trap.table} WHERE {trap.predicate}").fetchone()[0])
            for trap in TRAPS
        ]


@contextmanager
def _connection(built: Built) -> Any:
    path = built.contract.parent / DATABASE
    connection = sqlite3.connect(path)
    try:
        connection.execute("ATTACH ? AS iu_core", (str(attached_path(path)),))
        yield connection
    finally:
        connection.close()
