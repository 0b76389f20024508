"""The hook for pre-commit: pre-commit can read it, and what it runs judges a contract."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pre_commit.clientlib import load_manifest

from commands import run_forked

MANIFEST = Path(__file__).parents[2] / ".pre-commit-hooks.yaml"


CONTRACT = """\
[scheduler]
tick = {{ every = "5m" }}

[table.events]
why       = "Nobody reads older ones."
scheduler = "tick"
time      = "created_at"
rule.old  = {{ keep = "{window}" }}
"""


@pytest.mark.parametrize(("window", "code"), [("7d", 0), ("soon", 1)])
def test_the_hook_judges_the_contract(tmp_path: Path, window: str, code: int) -> None:
    (hook,) = load_manifest(str(MANIFEST))
    (tmp_path / "wane.toml").write_text(CONTRACT.format(window=window), encoding="utf-8")
    assert run_forked(hook["entry"].split(), tmp_path, os.environ).returncode == code
