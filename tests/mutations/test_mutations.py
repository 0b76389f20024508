"""The list of mutations fits the product, and its quick ones are noticed. `make mutations` tries them all."""

from __future__ import annotations

import pytest

from conftest import Clusters
from mutations.run import URL_VARIABLE, Mutation, Place, copied, load, mutated

MUTATIONS = load()
QUICK = [one for one in MUTATIONS if one.quick]


def test_every_mutation_still_fits() -> None:
    with copied() as tree:
        for mutation in MUTATIONS:
            with mutated(tree, mutation):
                for edit in mutation.edits:
                    if edit.file.endswith(".py"):
                        compile((tree / edit.file).read_text(), edit.file, "exec")


def test_every_test_that_is_named_exists() -> None:
    with copied() as tree:
        named = sorted({test for mutation in MUTATIONS for test in mutation.tests})
        done = Place(tree).run_tests(["--collect-only", *named])
        assert done.returncode == 0, done.stdout[-3000:]


def test_some_are_quick() -> None:
    assert len(QUICK) >= 5
    assert len({mutation.guard for mutation in MUTATIONS}) == len(MUTATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", QUICK, ids=lambda mutation: mutation.guard)
def test_a_guard_that_is_taken_out_is_missed(mutation: Mutation, clusters: Clusters) -> None:
    with copied() as tree:
        assert Place(tree, {URL_VARIABLE: clusters["postgres"].url}).survivors(mutation) == []
