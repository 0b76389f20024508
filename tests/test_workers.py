"""Several processes run the tests that one has collected: none is lost, whatever becomes of a process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CONFTEST = """
from workers import pytest_runtestloop

def pytest_addoption(parser):
    parser.addoption("--numprocesses", type=int, default=0)

def pytest_configure(config):
    config.addinivalue_line("markers", "group: one worker")
    config.addinivalue_line("markers", "slow: long")
"""
TESTS = """
import os, warnings
import pytest

@pytest.mark.parametrize("number", range(40))
def test_passes(number, tmp_path):
    print("text that no one sees")
    tmp_path.joinpath("file").touch()

def test_fails():
    print("text to see")
    assert [1, 2] == [1, 3]

def test_kills_its_worker():
    os._exit(7)

def test_warns():
    warnings.warn("a warning to see")

@pytest.mark.skip(reason="a reason to see")
def test_is_skipped():
    pass
"""

GROUP = """
import os
from pathlib import Path
import pytest

@pytest.fixture(scope="module")
def process():
    yield os.getpid()
    with Path("closed").open("a") as closed:
        closed.write(f"{os.getpid()} ")

@pytest.mark.group("together")
@pytest.mark.parametrize("number", range(10))
def test_group(process, number):
    with Path("group").open("a") as group:
        group.write(f"{os.getpid()} ")
"""
"""A file of its own: its fixture is closed after its last test, before the worker may get the test that ends it."""


def test_every_test_is_reported_once_also_when_its_worker_dies(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_all.py").write_text(TESTS)
    (tmp_path / "test_group.py").write_text(GROUP)
    options = ["-rs", "-p", "no:cacheprovider", "--disable-plugin-autoload", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-o", f"pythonpath={Path(__file__).parent}", "--numprocesses", "3"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    stated = done.stdout
    assert done.returncode == 1, stated + done.stderr
    assert re.search(r"2 failed, 51 passed, 1 skipped, 1 warning in", stated), stated
    assert "the worker that ran this test ended: exit code 7" in stated
    assert "assert [1, 2] == [1, 3]" in stated
    assert "text to see" in stated
    assert "text that no one sees" not in stated
    assert "a warning to see" in stated
    assert "a reason to see" in stated
    workers = (tmp_path / "group").read_text().split()
    assert len(workers) == 10
    assert len(set(workers)) == 1
    assert (tmp_path / "closed").read_text().split() == [workers[0]]  # Its fixtures, once.
