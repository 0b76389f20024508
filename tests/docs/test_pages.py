"""The documentation cannot rot: what it links to exists, and what it shows is what happens."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from docs.sessions import PAGES, ROOT, File, Shell, needs_postgres, steps
from servers import Database
from wane._contract.duration import parse_duration

TYPED = [page for page in PAGES if "```console" in page.read_text()]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchor(heading: str) -> str:
    """Return a heading's address, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?://", target):
            continue
        path, _, fragment = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name(page)} links to {target}"
        if fragment:
            headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), flags=re.MULTILINE)
            assert fragment in map(anchor, headings), f"{name(page)} links to {target}"


@pytest.mark.timeout(600)  # A page may have a hundred commands, each a process of its own.
@pytest.mark.parametrize("page", [page for page in TYPED if not needs_postgres(page.read_text())], ids=name)
def test_every_shell_session_does_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    Shell(tmp_path).follow(page.read_text(encoding="utf-8"))


@pytest.mark.unmigrated
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [page for page in TYPED if needs_postgres(page.read_text())], ids=name)
def test_every_shell_session_on_postgresql_does_what_the_page_shows(
    page: Path, postgres_database: Database, tmp_path: Path
) -> None:
    Shell(tmp_path, {"DATABASE_URL": postgres_database.url}).follow(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_window_of_an_example_is_a_duration(page: Path) -> None:
    for block in re.findall(r"^```toml$(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL):
        for keep in re.findall(r'\bkeep\s*=\s*"([^"$]+)"', block):
            assert keep == "forever" or parse_duration(keep), keep


def test_the_shop_of_the_checkout_is_the_one_of_the_tutorial() -> None:
    tutorial = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    saved = {step.name: step.text for step in steps(tutorial) if isinstance(step, File)}
    assert {file.name: file.read_text(encoding="utf-8") for file in (ROOT / "docs/shop").iterdir()} == saved


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != ROOT], ids=name)
def test_every_page_is_reachable_from_the_index(page: Path) -> None:
    index = ROOT / "docs/index.md"
    linked = {(index.parent / one).resolve() for one in re.findall(r"\]\(([^)#\s]+)\)", index.read_text())}
    assert page == index or page in linked


def test_the_architecture_names_every_folder_and_module() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    source = ROOT / "src/wane"
    names = [f"{one.name}/" for one in source.iterdir() if one.is_dir() and list(one.glob("*.py"))]
    names += [one.name for one in source.glob("*.py") if not one.name.startswith("__")]
    assert [name for name in names if name not in page] == []


def test_the_architecture_shows_the_layers_that_are_checked() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    for layers in [one["layers"] for one in contracts if one["type"] == "layers"]:
        assert "```\n" + "\n".join(layers) + "\n```" in page


@pytest.mark.parametrize("file", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_pages_for_contributors_name_files_and_classes_that_exist(file: str) -> None:
    page = (ROOT / file).read_text(encoding="utf-8")
    source = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "src/wane").rglob("*.py"))
    files = {file for file in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", page) if not (ROOT / "src/wane" / file).exists()}
    assert {file for file in files if not (ROOT / file).exists()} == set()
    for name, member in re.findall(r"`([A-Z]\w+)\.(\w+)`", page):
        assert f"class {name}" in source
        assert re.search(rf"def {member}\(|^    {member}:", source, re.MULTILINE)


def test_the_readme_uses_commands_that_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert {"demo", "test"} <= set(re.findall(r"\bmake ([a-z]+)", readme)) <= set(targets)
