"""What `make test` leaves to `make check`: parameters that cost much and show little that others do not.

Of a test with three parameters or more, counting the store, as many sets run as are needed for every two values of two
parameters to meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from pathlib import Path

import pytest

ALTERNATING = tuple(
    f"tests/{folder}/" for folder in ("archive", "check", "claims", "cli", "observe", "queue", "schedule", "webhooks")
)
"""Where a test with other parameters beside the store runs each of them on one store, in turn. With --all each runs on
all."""
ON_ONE_STORE = ("tests/archive/", "tests/cli/", "tests/schedule/")
"""Where tests without other parameters alternate as well, because they take longest. With --all each runs on all
stores."""
RARELY_POOLED = ("tests/races/",)
"""Where the mark `pooled` names what runs behind a connection pooler. With --all each test does that can."""
POOLED = "postgres-pooled"
LEFT_OUT = pytest.StashKey[list[str]]()
"""The ids of tests that are left out of a run."""


def sampled(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that run without `--all`, of all tests of some files."""
    files: dict[Path, dict[str, list[pytest.Item]]] = {}
    for item in items:
        files.setdefault(item.path, {}).setdefault(item.nodeid.partition("[")[0], []).append(item)
    return {
        item
        for tests in files.values()
        for number, (name, every) in enumerate(tests.items())
        for item in sample(number, name, every)
    }


def sample(number: int, name: str, every: list[pytest.Item]) -> list[pytest.Item]:
    """Return what runs without `--all` of a test, the one with this number in its file."""
    mark = every[0].get_closest_marker("sampled")
    if mark is None and name.startswith(RARELY_POOLED):
        pooled = [item for item in every if parameters(item).startswith(POOLED)]
        quick = every[0].get_closest_marker("pooled")
        prefixes = tuple(f"{POOLED}-{one}" for one in quick.args) or (POOLED,) if quick else ()
        chosen = [item for item in pooled if parameters(item).startswith(prefixes)]
        if pooled and quick and not chosen:
            raise pytest.UsageError(f"{name}: no parameters begin with what `pooled` names")
        return pairwise([item for item in every if item not in pooled]) + chosen
    if mark is None:
        return alternate(number, name, every) if name.startswith(ALTERNATING) else pairwise(every)
    found = [item for item in every if mark.args and parameters(item).startswith(mark.args)]
    if mark.args and not found:
        raise pytest.UsageError(f"{name}: no parameters begin with what `sampled` names")
    return found


def alternate(number: int, name: str, every: list[pytest.Item]) -> list[pytest.Item]:
    """Return each set of the parameters beside the store once: one on the first store, the next on the second, and so
    on."""
    stores = list(dict.fromkeys(store(item) for item in every))
    others = list(dict.fromkeys(others_of(item) for item in every))
    if len(others) == 1 and not name.startswith(ON_ONE_STORE):
        return every
    turns = {(stores[turn % len(stores)], other) for turn, other in enumerate(others, number)}
    return [item for item in every if (store(item), others_of(item)) in turns]


def pairwise(every: list[pytest.Item]) -> list[pytest.Item]:
    """Return as few of the sets of parameters as have each pair of values that all of them have."""
    pairs = [set(combinations(enumerate(values(item)), 2)) for item in every]
    left = set().union(*pairs)
    if all(len(found) <= 1 for found in pairs):
        return every
    chosen = set()
    while left:
        best = max(range(len(every)), key=lambda number: len(pairs[number] & left))
        chosen.add(best)
        left -= pairs[best]
    return [every[number] for number in sorted(chosen)]


def values(item: pytest.Item) -> Sequence[str]:
    """Return the ids of a test's values, one for each parameter, or for those that are declared together."""
    found: Sequence[str] = (
        item.callspec._idlist if isinstance(item, pytest.Function) and hasattr(item, "callspec") else []
    )
    return found


def others_of(item: pytest.Item) -> str:
    return parameters(item).removeprefix(store(item))


def store(item: pytest.Item) -> str:
    """Return the store that a test runs on, or nothing if that is no parameter of it."""
    chosen = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return str(chosen.get("store_id", chosen.get("database", "")))


def parameters(item: pytest.Item) -> str:
    return item.callspec.id if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""
