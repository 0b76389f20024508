"""The documentation as a site: it builds without warnings, and loads nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.sessions import ROOT


@pytest.mark.deploy
@pytest.mark.timeout(600)
def test_the_site_builds_without_warnings_and_works_offline(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert (
            re.findall(
                r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//[^"]*"|<link[^>]*rel="stylesheet"[^>]* href="http',
                text,
            )
            == []
        )
    assert (tmp_path / "site/search/search_index.js").exists()
    assert (tmp_path / "site/deploy/systemd/wane.service.txt").exists()
