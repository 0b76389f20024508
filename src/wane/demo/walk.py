"""The demonstration: the main job from beginning to end, on a database like a busy application's, told step by step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wane.demo.seed import ROWS, TRAPS, Trap, attached_path, seed
from wane.findings import Finding
from wane.keeper import open_keeper
from wane.plan.model import Plan
from wane.reference import names

DATABASE = "state.db"
CONTRACT = "wane.toml"


@dataclass(frozen=True, slots=True)
class Built:
    """The database that the demonstration made."""

    contract: Path
    url: str
    counts: dict[str, int]
    now: datetime


def build(folder: Path, *, rows: int = ROWS, progress: Callable[[str, int, int], None] | None = None) -> Built:
    """Make the database and its contract in a folder of their own, afresh."""
    folder.mkdir(parents=True, exist_ok=True)
    for earlier in _own(folder):
        earlier.unlink()
    path = folder / DATABASE
    now = datetime.now(UTC)
    counts = seed(f"sqlite:///{path.absolute()}", rows=rows, now=now, progress=progress)
    contract = folder / CONTRACT
    contract.write_text(contract_text(path), encoding="utf-8")
    return Built(contract, f"sqlite:///{path.absolute()}", counts, now.replace(microsecond=0))


def _own(folder: Path) -> list[Path]:
    """What an earlier demonstration left in the folder. Never remove what it did not make."""
    databases = (DATABASE, attached_path(Path(DATABASE)).name)
    own = {CONTRACT, *(f"{name}{suffix}" for name in databases for suffix in ("", "-wal", "-shm", "-journal"))}
    found = sorted(folder.iterdir())
    strangers = [one.name for one in found if one.name not in own]
    if strangers:
        raise FileExistsError(f"{folder} holds other files ({', '.join(strangers[:3])}); name another folder")
    return found


def contract_text(path: Path) -> str:
    """The demonstration's contract: the reference contracts, included."""
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


def stayed(built: Built) -> list[tuple[Trap, int]]:
    """The planted rows that are still there, trap by trap."""
    with _connection(built) as connection:
        return [
            (trap, connection.execute(f"SELECT count(*) FROM {trap.table} WHERE {trap.predicate}").fetchone()[0])
            for trap in TRAPS
        ]


@contextmanager
def _connection(built: Built) -> Any:
    import sqlite3

    path = built.contract.parent / DATABASE
    connection = sqlite3.connect(path)
    try:
        connection.execute("ATTACH ? AS iu_core", (str(attached_path(path)),))
        yield connection
    finally:
        connection.close()
