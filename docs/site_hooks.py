"""Hooks of the documentation's site: pages of the repository's root, and files of `deploy/`, are part of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors that they have where the repository is browsed, so that links are the same."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = _anchor
    return config


def _anchor(heading: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not below `docs/`."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    for path in sorted((ROOT / "deploy").rglob("*")):
        if path.is_file():
            # A browser shows texts, and offers to save files of other kinds.
            files.append(File.generated(config, f"{path.relative_to(ROOT)}.txt", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Rewrite links that leave `docs/`: to pages of the site where there are, else to their text."""
    name = page.file.src_uri
    folder = ROOT if name in PAGES else (ROOT / "docs" / name).parent
    up = "../" * name.count("/")

    def moved(link: re.Match[str]) -> str:
        address, hash_, anchor = link[1].partition("#")
        if not address or "://" in address:
            return link[0]
        target = (folder / address).resolve()
        if not target.is_relative_to(ROOT):
            return link[0]
        inside = target.relative_to(ROOT).as_posix()
        if inside.startswith("docs/"):
            return f"]({up}{inside.removeprefix('docs/')}{hash_}{anchor})"
        if inside in PAGES:
            return f"]({up}{inside}{hash_}{anchor})"
        if inside == "README.md":
            return f"]({up}index.md)"
        if target.is_file() and inside.startswith("deploy/"):
            return f"]({up}{inside}.txt)"
        return f"]({up}index.md)"

    return _LINK.sub(moved, markdown)
