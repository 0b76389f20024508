"""Take every guard out of the product in turn, and see the named tests fail: `python tests/mutations/run.py [--jobs N]
[WORD…]`.

Words choose the mutations whose guard contains one of them. Each job works in a copy of the tree, so the checkout is
never changed, and has one PostgreSQL server and one Java process for all of its tests. The tests named must pass on the
copy as it is; a mutation that they do not notice is a survivor, and the run fails. The archive's mutations come last:
their tests are the slow ones.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

if TYPE_CHECKING:
    from mutations.nursery import Nursery
    from servers import Run

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutations.toml")
COPIED = ("src", "tests", "pyproject.toml")
URL_VARIABLE = "WANE_TEST_POSTGRES_URL"
TESTS_FAILED = 1
"""What pytest answers when tests ran and some failed. A larger number means that they could not be run, a negative one
that a signal ended them: that is noticed as well."""
SECONDS = 900
"""How long one mutation's test may take. Each of its cases has a timeout of its own; this one ends what hangs outside
of them."""
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", re.MULTILINE)
PASSED = re.compile(r"\b[0-9]+ passed\b")
_TIMES = itertools.count(1_000_000_000)
"""When mutated files were written, as far as Python knows: each in a second of its own."""
Given = TypeVar("Given")
Answer = TypeVar("Answer")


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
        # What Python compiled is as old as its source to the second, in which other texts may have been written.
        os.utime(path, (next(_TIMES),) * 2)


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
    """Yield a copy of the tree, to be changed and thrown away."""
    tree = Path(tempfile.mkdtemp(prefix="wane-mutations-"))
    try:
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                # With what was compiled, which the copy's files are as old as; but for what is being written.
                shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("*.pyc.*"))
            else:
                shutil.copy2(source, tree / name)
        yield tree
    finally:
        shutil.rmtree(tree, ignore_errors=True)


@contextmanager
def mutated(tree: Path, mutation: Mutation) -> Iterator[None]:
    """Remove the guard from the copy, for a while."""
    files = {tree / edit.file for edit in mutation.edits}
    before = {file: (file.read_text(), file.stat().st_mtime_ns) for file in files}
    try:
        for edit in mutation.edits:
            edit.apply(tree)
        yield
    finally:
        for file, (text, written) in before.items():
            file.write_text(text)
            os.utime(file, ns=(written, written))


@dataclass(frozen=True)
class Workspace:
    """Where one job works: a copy of the tree, and the servers that its tests use instead of starting their own.

    Invariant: a test never fails because of what another one left in a server. `clean` restores the servers after each
    run of tests, and raises if one of them is gone.
    """

    tree: Path
    nursery: Nursery
    clean: Callable[[], object] = lambda: None

    def run_tests(
        self, tests: Sequence[str], *, first_failure: bool = False, seconds: float | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run tests of the copy against the copy's product; `first_failure` stops there."""
        arguments = [
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            "--all",
            *(["-x"] if first_failure else []),
            *tests,
        ]
        # Not a pipe: a process that a killed test leaves behind would hold it open.
        with tempfile.NamedTemporaryFile("r+") as output:
            try:
                code = self.nursery.run(arguments, Path(output.name), seconds)
            finally:
                self.clean()
            return subprocess.CompletedProcess(arguments, code, output.read())

    def survivors(self, mutation: Mutation) -> list[str]:
        """Return the tests that do not notice that the guard is gone; raise if they could not be run."""
        with mutated(self.tree, mutation):
            found = []
            for test in mutation.tests:
                try:
                    done = self.run_tests([test], first_failure=True, seconds=SECONDS)
                except subprocess.TimeoutExpired:
                    raise Stale(f"{test} did not end within {SECONDS} seconds") from None
                if done.returncode == 0 and not PASSED.search(done.stdout):
                    raise Stale(f"{test} was skipped: what it needs is not installed here")
                if done.returncode == 0:
                    found.append(test)
                elif done.returncode > TESTS_FAILED:
                    raise Stale(f"{test} cannot be run:\n{done.stdout[-4000:]}")
            return found


@contextmanager
def beside(tree: Path, addresses: Mapping[str, str]) -> Iterator[Nursery]:
    """Yield a nursery for a copy of the tree, whose tests use servers at these addresses."""
    from mutations.nursery import nursery

    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPATH": str(tree / "src"),
        "WANE_KILLS": "12",
        "WANE_EXAMPLES": "100",
        **addresses,
    }
    with nursery(tree, environment) as started:
        yield started


class Jobs:
    """Calls that run beside each other, each in a workspace that no other call uses meanwhile."""

    def __init__(self, workspaces: Sequence[Workspace]) -> None:
        self._free: SimpleQueue[Workspace] = SimpleQueue()
        for workspace in workspaces:
            self._free.put(workspace)
        self._pool = ThreadPoolExecutor(len(workspaces))

    def start(self, call: Callable[[Workspace, Given], Answer], given: Given) -> Future[Answer]:
        return self._pool.submit(self._run, call, given)

    def close(self) -> None:
        """Wait for the calls that run now, and drop the others."""
        self._pool.shutdown(cancel_futures=True)

    def _run(self, call: Callable[[Workspace, Given], Answer], given: Given) -> Answer:
        workspace = self._free.get()
        try:
            return call(workspace, given)
        finally:
            self._free.put(workspace)


@contextmanager
def started(count: int) -> Iterator[Jobs]:
    """Yield jobs with a copy of the tree and servers of their own."""
    from servers import Run

    with ExitStack() as stack:
        run = Run.create()
        stack.callback(run.close)
        jobs = Jobs([workspace(stack, run, number) for number in range(count)])
        stack.callback(jobs.close)
        yield jobs


def workspace(stack: ExitStack, run: Run, number: int) -> Workspace:
    from servers import packaged_installation

    tree = stack.enter_context(copied())
    installation = packaged_installation()
    assert installation is not None, "run `make setup` first"
    url = run.server_url(f"postgres-{number}", installation, locale=False)
    java = stack.enter_context(java_process(tree))

    def clean() -> None:
        drop_leftovers(url)
        running = getattr(getattr(java.jvm.org.apache.spark, "SparkContext$"), "MODULE$").getActive()
        if running.isDefined():
            running.get().stop()

    addresses = {
        URL_VARIABLE: url,
        "PYSPARK_GATEWAY_PORT": str(java.java_parameters.port),
        "PYSPARK_GATEWAY_SECRET": java.java_parameters.auth_token,
    }
    return Workspace(tree, stack.enter_context(beside(tree, addresses)), clean)


def drop_leftovers(url: str) -> None:
    """Drop the databases and roles of tests that were killed."""
    with psycopg.connect(url, autocommit=True) as server:
        for (name,) in server.execute("SELECT datname FROM pg_database WHERE datname LIKE 'wane_test_%'").fetchall():
            server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
        for (name,) in server.execute("SELECT quote_ident(rolname) FROM pg_roles WHERE oid >= 16384").fetchall():
            server.execute(f"DROP ROLE {name}".encode())


@contextmanager
def java_process(tree: Path) -> Iterator[Any]:
    """Yield a Java process for the Spark sessions of one job, one after the other: starting it takes longer than most
    tests."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    from wane._archive.spark.java import java_home

    # Spark's Python processes inherit it from Java.
    os.environ.update(PYTHONPATH=str(tree / "src"), PYTHONDONTWRITEBYTECODE="1")
    os.environ.update(JAVA_HOME=java_home(), SPARK_LOCAL_IP="127.0.0.1")
    settings = SparkConf(loadDefaults=False).set(
        "spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    )
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    gateway = launch_gateway(settings, quiet)  # type: ignore[no-untyped-call]
    try:
        yield gateway
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()  # Upon which Java ends.
        gateway.proc.wait()


def unfit(mutations: Sequence[Mutation]) -> dict[str, str]:
    """Return what is wrong with mutations whose text the product no longer has, by guard."""
    found = {}
    with copied() as tree:
        for mutation in mutations:
            try:
                with mutated(tree, mutation):
                    pass
            except Stale as problem:
                found[mutation.guard] = str(problem)
    return found


def failing(jobs: Jobs, tests: Sequence[str]) -> set[str]:
    """Return the tests that fail on the copy as it is. One call runs all tests of a folder, so that they share what is
    slow to start."""
    folders = defaultdict(list)
    for test in tests:
        folders[test.split("/")[1]].append(test)
    largest_first = sorted(folders, key=lambda folder: -len(folders[folder]))
    runs = {jobs.start(Workspace.run_tests, folders[folder]): folder for folder in largest_first}
    found: set[str] = set()
    for number, run in enumerate(as_completed(runs), 1):
        done, folder = run.result(), runs[run]
        failed = FAILED.findall(done.stdout)
        _print(f"[{number}/{len(runs)} folders] {'fails' if done.returncode else 'passes'} as it is: tests/{folder}")
        if done.returncode:
            _print(done.stdout[-4000:])
            found.update(failed or folders[folder])
    return found


def named_by(mutation: Mutation, failed: set[str]) -> list[str]:
    return [
        one for one in failed for test in mutation.tests if one == test or one.startswith((f"{test}[", f"{test}::"))
    ]


def attempt(workspace: Workspace, mutation: Mutation) -> tuple[str, str, float]:
    """Take a guard out: what became of it, details for a person, and how many seconds that took."""
    began = time.monotonic()
    try:
        missed = workspace.survivors(mutation)
    except Stale as problem:
        return "stale", str(problem), time.monotonic() - began
    details = "\n".join(f"not by {test}" for test in missed)
    return "SURVIVED" if missed else "noticed", details, time.monotonic() - began


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Take every guard out in turn, and see the named tests fail.")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="mutations tried at a time (default: 2)")
    parser.add_argument("words", nargs="*", metavar="WORD", help="try only guards that contain one of these")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    chosen = [one for one in load() if not options.words or any(word in one.guard for word in options.words)]
    problems = {guard: f"stale: {problem}" for guard, problem in unfit(chosen).items()}
    with started(options.jobs) as jobs:
        failed = failing(jobs, sorted({test for mutation in chosen for test in mutation.tests}))
        for mutation in chosen:
            if own := named_by(mutation, failed):
                problems.setdefault(mutation.guard, f"stale: fails as it is: {', '.join(own)}")
        cheap_first = sorted(chosen, key=lambda mutation: any("archive" in test for test in mutation.tests))
        runs = {
            jobs.start(attempt, mutation): mutation.guard for mutation in cheap_first if mutation.guard not in problems
        }
        for number, run in enumerate(as_completed(runs), 1):
            (outcome, details, seconds), guard = run.result(), runs[run]
            _print(f"[{number}/{len(runs)}] {outcome:8} {seconds:4.0f} s  {guard}")
            if outcome != "noticed":
                problems[guard] = f"{outcome}: {details}"
                _print(details)
    for guard, problem in problems.items():
        _print(f"\n{guard}\n{problem}")
    minutes = (time.monotonic() - began) / 60
    kinds = Counter(problem.split(":")[0] for problem in problems.values())
    _print(
        f"\n{len(chosen)} mutations in {minutes:.0f} minutes: {len(chosen) - len(problems)} noticed, "
        f"{kinds['SURVIVED']} survived, {kinds['stale']} stale"
    )
    return 1 if problems else 0


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))  # For `servers` and `mutations`.
    sys.exit(main(sys.argv[1:]))
