"""A runner on a host whose clock is hours wrong: `python skewed.py URL HOURS`. It ends after one window."""

from __future__ import annotations

import datetime as module
import sys
import time
from datetime import datetime
from typing import Any

_SECONDS = float(sys.argv[2]) * 3_600
_true_time = time.time


class _Kind(type):
    """Real ones are instances too."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


class Wrong(datetime, metaclass=_Kind):
    """The wrong clock."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.now(tz) + module.timedelta(seconds=_SECONDS)


def main(url: str) -> None:
    from schedule.scheduling import ALL, contract_of
    from wane._contract.model import Scheduler
    from wane._keeper import open_keeper

    every = (Scheduler("tick", module.timedelta(seconds=1)),)
    contract = contract_of(schedulers=every, sweep=ALL)
    with open_keeper(url, contract=contract) as keeper:
        wrong = abs(Wrong.now(module.UTC) - keeper.store.now()).total_seconds()
        assert wrong > 3_600
        keeper.run(max_runs=1)
    sys.stdout.write("the clock is wrong\n")


if __name__ == "__main__":
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[1]))
    module.datetime = Wrong  # type: ignore[misc]
    time.time = lambda: _true_time() + _SECONDS
    main(sys.argv[1])
