"""The reference of the contract lists every setting with the default, the bounds and the description that the code
has."""

from __future__ import annotations

import runpy

from docs.sessions import ROOT


def test_its_tables_are_those_of_the_settings() -> None:
    page = (ROOT / "docs/reference/contract.md").read_text(encoding="utf-8")
    generated = runpy.run_path(str(ROOT / "docs/generate_contract.py"))["generated"]
    assert generated(page) == page, "run `make docs`"
