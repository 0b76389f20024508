"""A writer of the archive that stops itself (SIGSTOP) right before a commit, in a process of its own, and says how it
ended when it goes on."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from archive.inline import without_spark
from wane._archive.delta.cold_table import ColdTable
from wane._keeper import open_keeper


def stop_before(method: str, unless: Path) -> None:
    """Stop before the first call of one of the archive table's methods."""
    original = getattr(ColdTable, method)

    def stopping(*arguments: Any, **options: Any) -> Any:
        if not unless.exists():
            unless.touch()
            os.kill(os.getpid(), signal.SIGSTOP)
        return original(*arguments, **options)

    setattr(ColdTable, method, stopping)


def main(folder: Path, method: str) -> None:
    without_spark(pytest.MonkeyPatch())
    stop_before(method, folder / "stopped")
    with open_keeper(contract=folder / "wane.toml", actor="stopped") as keeper:
        [done] = keeper.archive.run().rules
    (folder / "reason").write_text(f"{done.outcome.value}: {done.message}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
