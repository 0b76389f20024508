"""The list of mutations fits the product, and its quick ones are noticed. `make mutations` tries them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Clusters
from mutations.run import ROOT, URL_VARIABLE, Mutation, Workspace, copied, load, mutated
from sampling import LEFT_OUT

MUTATIONS = load()
QUICK = [one for one in MUTATIONS if one.quick]
pytestmark = pytest.mark.xdist_group("mutations")
"""One worker compiles the copy of the tree, once for all of these tests."""


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with copied() as made:
        yield made


def test_every_mutation_still_fits(tree: Path) -> None:
    for mutation in MUTATIONS:
        with mutated(tree, mutation):
            for edit in mutation.edits:
                if edit.file.endswith(".py"):
                    compile((tree / edit.file).read_text(), edit.file, "exec")


def test_every_test_that_is_named_exists(tree: Path, request: pytest.FixtureRequest) -> None:
    # Most of them are collected here anyway, and the copy has the same files.
    here = [f"{item.path.relative_to(ROOT)}::{item.name}" for item in request.session.items]
    here = [*here, *request.config.stash[LEFT_OUT]]
    known = {*here, *(test.partition(end)[0] for test in here for end in ("[", "::"))}
    named = sorted({test for mutation in MUTATIONS for test in mutation.tests} - known)
    if named:
        done = Workspace(tree).run_tests(["--collect-only", *named])
        assert done.returncode == 0, done.stdout[-3000:]


def test_some_are_quick() -> None:
    assert len(QUICK) >= 5
    assert len({mutation.guard for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", QUICK, ids=lambda mutation: mutation.guard)
def test_a_guard_that_is_taken_out_is_missed(mutation: Mutation, tree: Path, clusters: Clusters) -> None:
    assert Workspace(tree, {URL_VARIABLE: clusters["postgres"].url}).survivors(mutation) == []
