"""The list of mutations fits the product, and its quick ones are noticed. `make mutations` tries them all."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Clusters
from mutations.run import ROOT, URL_VARIABLE, Edit, Mutation, Workspace, beside, copied, load
from sampling import LEFT_OUT

MUTATIONS = load()
QUICK = [one for one in MUTATIONS if one.quick]
pytestmark = pytest.mark.group("mutations")
"""One worker copies the tree, once for all of these tests."""


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    with copied() as made:
        yield made


@pytest.fixture(scope="module")
def workspace(tree: Path, clusters: Clusters) -> Iterator[Workspace]:
    with beside(tree, {URL_VARIABLE: clusters["postgres"].url}) as nursery:
        yield Workspace(tree, nursery)


def test_every_mutation_still_fits() -> None:
    """Each text is in its file once. What replaces it is code: several edits of a file, in different parts of it, are
    compiled together."""
    texts = {edit.file: (ROOT / edit.file).read_text() for mutation in MUTATIONS for edit in mutation.edits}
    together: dict[str, list[list[tuple[int, Edit]]]] = {file: [] for file in texts}
    for mutation in MUTATIONS:
        for edit in mutation.edits:
            assert texts[edit.file].count(edit.was) == 1, f"{mutation.guard}: {edit.file} has it otherwise: {edit.was}"
            start = texts[edit.file].index(edit.was)
            end = start + len(edit.was)
            for others in together[edit.file]:
                if all(end <= other or other + len(one.was) <= start for other, one in others):
                    others.append((start, edit))
                    break
            else:
                together[edit.file].append([(start, edit)])
    for file, text in texts.items():
        for edits in together[file] if file.endswith(".py") else []:
            changed = text
            for _, edit in edits:
                changed = changed.replace(edit.was, edit.becomes)
            compile(changed, file, "exec")


def test_every_test_that_is_named_exists(request: pytest.FixtureRequest) -> None:
    # Most of them are collected here anyway, and the copy has the same files.
    here = [f"{item.path.relative_to(ROOT)}::{item.name}" for item in request.session.items]
    here = [*here, *request.config.stash[LEFT_OUT]]
    known = {*here, *(test.partition(end)[0] for test in here for end in ("[", "::"))}
    named = sorted({test for mutation in MUTATIONS for test in mutation.tests} - known)
    if named:
        workspace: Workspace = request.getfixturevalue("workspace")
        done = workspace.run_tests(["--collect-only", *named])
        assert done.returncode == 0, done.stdout[-3000:]


def test_some_are_quick() -> None:
    assert len(QUICK) >= 5
    assert len({mutation.guard for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", QUICK, ids=lambda mutation: mutation.guard)
def test_a_guard_that_is_taken_out_is_missed(mutation: Mutation, workspace: Workspace) -> None:
    assert workspace.survivors(mutation) == []


def test_a_guard_that_stays_is_not_missed(workspace: Workspace) -> None:
    # The first run is ended while it starts: what it leaves must not become the answer of the second.
    [test, *_] = QUICK[0].tests
    with pytest.raises(subprocess.TimeoutExpired):
        workspace.run_tests([test], seconds=0.001)
    done = workspace.run_tests([test])
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout[-3000:]
