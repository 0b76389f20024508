"""The Python reference: its examples run as they stand and print what they say, and it leaves out nothing that is
public."""

from __future__ import annotations

import logging
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from docs.sessions import ROOT, loosely, plain, shop
from wane import errors
from wane._keeper import Keeper

PAGE = (ROOT / "docs/reference/python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_its_examples_print_what_they_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert EXAMPLES
    monkeypatch.chdir(shop(tmp_path))
    names: dict[str, Any] = {"__name__": "__main__"}
    logger = logging.getLogger("wane")
    monkeypatch.setattr(logger, "handlers", [])
    monkeypatch.setattr(logger, "level", logging.NOTSET)
    try:
        for example in EXAMPLES:
            exec(compile(example, "python.md", "exec"), names)
            printed = plain(capsys.readouterr().out)
            promised = "\n".join(re.findall(r"^\s*# → (.*)$", example, re.MULTILINE))
            assert re.fullmatch(loosely(promised), printed), f"{example}\nprints\n{printed}"
    finally:
        names["keeper"].close()


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name, value in vars(Keeper).items()
        if not name.startswith("_") and not isinstance(value, cached_property)
    ),
)
def test_it_documents_every_call(name: str) -> None:
    assert re.search(rf"^##+ `{name}`$", PAGE, re.MULTILINE), f"{name} has no section"
    assert re.search(rf"^`{name}\(.*\) -> ", PAGE, re.MULTILINE), f"{name} does not say what it takes and returns"


def test_it_documents_every_error() -> None:
    public = [
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == "wane.errors"
    ]
    tree = PAGE[PAGE.index("## Errors") :]
    assert [name for name in public if not name.startswith("_") and name not in tree] == []
