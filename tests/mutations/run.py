"""Take every guard out of the product in turn, and see the named tests fail: `python tests/mutations/run.py [WORD…]`.

Words choose the mutations whose guard has one of them in it. The tree is copied first, so the checkout is never touched. The tests
named must pass on the copy as it is; a mutation that they do not notice is a survivor, and the run fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutations.toml")
COPIED = ("src", "tests", "pyproject.toml")
TESTS_FAILED = 1
"""What pytest answers when tests ran and some failed. A larger number means that they could not be run, a negative one that a
signal ended them: that is noticed as well."""
SECONDS = 300


class Stale(Exception):
    """A mutation that no longer fits the product."""


@dataclass(frozen=True)
class Edit:
    """One text that becomes another."""

    file: str
    was: str
    becomes: str

    def apply(self, tree: Path) -> None:
        path = tree / self.file
        text = path.read_text()
        if text.count(self.was) != 1:
            raise Stale(f"{self.file} has this {text.count(self.was)} times, not once:\n{self.was}")
        path.write_text(text.replace(self.was, self.becomes))


@dataclass(frozen=True)
class Mutation:
    """A guard that is taken out, and the tests that must notice."""

    guard: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]
    quick: bool = False


def load() -> list[Mutation]:
    found = tomllib.loads(LIST.read_text())["mutation"]
    return [
        Mutation(
            one["guard"],
            tuple(Edit(edit["file"], edit["was"], edit["is"]) for edit in one["edit"]),
            tuple(one["tests"]),
            one.get("quick", False),
        )
        for one in found
    ]


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the tree, to be changed and thrown away."""
    tree = Path(tempfile.mkdtemp(prefix="wane-mutations-"))
    try:
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, tree / name)
        yield tree
    finally:
        shutil.rmtree(tree, ignore_errors=True)


@contextmanager
def mutated(tree: Path, mutation: Mutation) -> Iterator[None]:
    """The copy without the guard, for a while."""
    before = {edit.file: (tree / edit.file).read_text() for edit in mutation.edits}
    try:
        for edit in mutation.edits:
            edit.apply(tree)
        yield
    finally:
        for file, text in before.items():
            (tree / file).write_text(text)


def run_tests(tree: Path, tests: Sequence[str], *, each: bool = False) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy against the copy's product; `each` stops at the first failure."""
    environment: dict[str, Any] = {
        **os.environ,
        "PYTHONPATH": str(tree / "src"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "WANE_KILLS": "12",
    }
    options = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", *(["-x"] if each else [])]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def survivors(tree: Path, mutation: Mutation) -> list[str]:
    """The tests that do not notice that the guard is gone; raise if they could not be run."""
    with mutated(tree, mutation):
        found = []
        for test in mutation.tests:
            done = run_tests(tree, [test], each=True)
            if done.returncode == 0:
                found.append(test)
            elif done.returncode > TESTS_FAILED:
                raise Stale(f"{test} cannot be run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return found


def main(words: Sequence[str]) -> int:
    chosen = [one for one in load() if not words or any(word in one.guard for word in words)]
    problems = 0
    with copied() as tree:
        for mutation in chosen:  # Before the long part: what no longer fits is told at once.
            try:
                with mutated(tree, mutation):
                    pass
            except Stale as problem:
                problems += 1
                _tell(f"stale     {mutation.guard}\n{problem}")
        named = sorted({test for mutation in chosen for test in mutation.tests})
        baseline = run_tests(tree, named)
        if baseline.returncode != 0:
            _tell(f"the tests named fail as it is:\n{baseline.stdout[-4000:]}{baseline.stderr[-2000:]}")
            return 1
        for mutation in chosen:
            began = time.monotonic()
            try:
                missed = survivors(tree, mutation)
            except Stale as problem:
                problems += 1
                _tell(f"stale     {mutation.guard}\n{problem}")
                continue
            problems += bool(missed)
            _tell(f"{'SURVIVED' if missed else 'noticed '}  {time.monotonic() - began:4.0f} s  {mutation.guard}")
            for test in missed:
                _tell(f"          not by {test}")
    _tell(f"{len(chosen)} mutations, {problems} not noticed or stale")
    return 1 if problems else 0


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
