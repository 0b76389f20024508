"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "wane"
TESTS = Path(__file__).parent
DOCS = Path(__file__).parents[1] / "docs"


def test_no_two_public_classes_share_a_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(file.relative_to(SOURCE)))
    assert {name: files for name, files in found.items() if len(files) > 1} == {}


def test_audit_entries_are_built_in_one_file() -> None:
    """By `Ledger.note`, or by `AuditEntry.begun` for work of several batches."""
    builders = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "AuditEntry"
    }
    assert builders == {"_ledger.py"}


NOT_VERBS = frozenset(
    [
        "a",
        "about",
        "after",
        "all",
        "also",
        "an",
        "and",
        "another",
        "any",
        "as",
        "at",
        "because",
        "before",
        "both",
        "by",
        "each",
        "every",
        "everything",
        "for",
        "from",
        "how",
        "if",
        "in",
        "it",
        "like",
        "many",
        "more",
        "most",
        "much",
        "never",
        "no",
        "nobody",
        "none",
        "not",
        "nothing",
        "of",
        "on",
        "one",
        "only",
        "or",
        "other",
        "own",
        "same",
        "several",
        "since",
        "so",
        "some",
        "something",
        "that",
        "the",
        "there",
        "these",
        "this",
        "those",
        "two",
        "until",
        "what",
        "when",
        "where",
        "whether",
        "which",
        "who",
        "whoever",
        "why",
        "with",
    ]
)
"""First words of a docstring that describes instead of saying what the function does."""


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    found = []
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                words = (ast.get_docstring(node) or "Return").split()
                if words[0].strip("`'\",.:;()").lower() in NOT_VERBS:
                    found.append(f"{file.relative_to(SOURCE)}:{node.lineno} {node.name}")
    assert found == []


BANNED_WORDS = frozenset(
    [
        "moment",
        "moments",
        "told",
        "tell",
        "tells",
        "look",
        "looks",
        "looked",
        "looking",
        "place",
        "places",
        "whoever",
        "somebody",
        "nobody",
        "acting",
        "asking",
        "thing",
        "things",
        "tended",
        "heir",
        "heirs",
        "sick",
    ]
)
"""Parts of identifiers that paraphrase a technical word: the glossary in CONTRIBUTING.md has the word to use."""
BANNED_IN_TESTS = BANNED_WORDS | {
    *("telling", "everybody", "anybody", "steer", "steering", "thin", "aside", "room", "rooms"),
    *("bring", "brings", "brought", "kept"),
}
"""The sources still use some of these in a sense of their own."""
STORED_NAMES = frozenset(["place", "looked_at", "in_place", "IN_PLACE", "_in_place", "addInPlace"])
"""Names of columns, of the contract's language and of other libraries."""


def paraphrased_names(folder: Path, banned: frozenset[str]) -> list[str]:
    """List what the Python files of a folder define under a name with a banned word."""
    found = []
    for file in sorted(folder.rglob("*.py")):
        where = file.relative_to(folder)
        if set(re.findall("[a-z]+", file.stem)) & banned:
            found.append(str(where))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    pass
                case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    pass
                case _:
                    continue
            words = {word.lower() for word in re.findall("[A-Z]?[a-z]+|[A-Z]+", name)}
            if words & banned and name not in STORED_NAMES:
                found.append(f"{where}:{node.lineno} {name}")
    return found


def test_identifiers_use_technical_words() -> None:
    assert paraphrased_names(SOURCE, BANNED_WORDS) == []
    assert paraphrased_names(TESTS, BANNED_IN_TESTS) == []


def test_prose_of_the_source_names_who_does_it() -> None:
    # Not \b: words that underscores join are words too.
    words = "nobody|somebody|everybody|whoever|told|moments?"
    paraphrased = re.compile(rf"(?<![a-z])({words})(?![a-z])", re.IGNORECASE)
    pages = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.html"), SOURCE / "_check" / "explanations.toml"]
    assert [
        f"{page.relative_to(SOURCE)}:{number} {found[0]}"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if (found := paraphrased.search(line)) is not None
    ] == []


def test_every_module_is_private_by_name_or_part_of_the_reference() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("reference/*.md"))
    public = [
        ".".join(("wane", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for path in sorted(SOURCE.rglob("*.py"))
        if not any(part.startswith("_") and part != "__init__.py" for part in path.relative_to(SOURCE).parts)
    ]
    assert [name for name in public if f"`{name}`" not in pages and name != "wane"] == []


def test_prose_wraps_at_120_columns() -> None:
    wide = []
    for page in [*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]:
        fenced = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            fenced ^= line.lstrip().startswith("```")
            # A link or a signature cannot be broken.
            one_word = " " not in re.sub("`[^`]*`", "", line.strip().lstrip("-*0123456789. "))
            if len(line) > 120 and not fenced and not line.lstrip().startswith(("|", "<")) and not one_word:
                wide.append(f"{page.name}:{number}")
    assert wide == []
