"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from fnmatch import fnmatch
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

from wane._rules.rule_statements import RuleStatements

# On one worker, each file is parsed once for all of them.
pytestmark = pytest.mark.group("house")

SOURCE = Path(__file__).parents[1] / "src" / "wane"
TESTS = Path(__file__).parent
DOCS = Path(__file__).parents[1] / "docs"
BENCH = Path(__file__).parents[1] / "bench"
ROOT = Path(__file__).parents[1]


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


OF_EACH_STORE = {"Explained": ["_db/postgres/store.py", "_db/sqlite/store.py"]}
"""Classes that are one idea, implemented for each store."""


def test_no_two_classes_share_a_name() -> None:
    """An underscore makes no other name of it: who searches for the word finds both."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(str(file.relative_to(SOURCE)))
    assert {name: sorted(files) for name, files in found.items() if len(files) > 1} == OF_EACH_STORE


def test_audit_entries_are_built_in_one_file() -> None:
    """By `Ledger.note`, or by `AuditEntry.begun` for work of several batches."""
    builders = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "AuditEntry"
    }
    assert builders == {"_ledger.py"}


def test_audit_rows_are_written_by_the_statements_of_one_file() -> None:
    """Also in the functions that PostgreSQL runs."""
    statement = re.compile(r"(INSERT\s+INTO|UPDATE)\s[^\n;]{0,60}\b(wane_)?audit\b")
    writers = {
        file.relative_to(SOURCE).as_posix()
        for file in SOURCE.rglob("*.py")
        if statement.search(file.read_text(encoding="utf-8"))
    }
    assert writers == {"_ledger.py"}


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
    """Those of tests explain why; a test's name states the behaviour."""
    found = []
    for file in (path for folder in (SOURCE, TESTS, BENCH, DOCS) for path in folder.rglob("*.py")):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("test_"):
                words = (ast.get_docstring(node) or "Return").split()
                if words[0].strip("`'\",.:;()").lower() in NOT_VERBS:
                    found.append(f"{file.relative_to(ROOT)}:{node.lineno} {node.name}")
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
        "thin",
        "sick",
        *("telling", "everybody", "anybody", "steer", "steering", "aside", "room", "rooms", "unasked"),
        *("bring", "brings", "brought", "kept", "again", "alone", "ask", "asks", "asked", "say", "says", "said"),
        *("saying", "hear", "heard", "beat", "mend"),
    ]
)
"""Parts of identifiers that paraphrase a technical word: the glossary in CONTRIBUTING.md has the word to use."""
STORED_NAMES = frozenset(
    ["place", "looked_at", "beat_at", "beat_schedule", "fill_beat", "in_place", "IN_PLACE", "_in_place", "addInPlace"]
)
"""Names of columns, of the contract's language and of other libraries."""


def paraphrased_names(folder: Path) -> list[str]:
    """List what the Python files of a folder define under a name with a banned word."""
    found = []
    for file in sorted(folder.rglob("*.py")):
        where = file.relative_to(folder)
        if set(re.findall("[a-z]+", file.stem)) & BANNED_WORDS:
            found.append(str(where))
        for node in ast.walk(parsed(file)):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    pass
                case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                    pass
                case _:
                    continue
            words = {word.lower() for word in re.findall("[A-Z]?[a-z]+|[A-Z]+", name)}
            if words & BANNED_WORDS and name not in STORED_NAMES:
                found.append(f"{where}:{node.lineno} {name}")
    return found


def test_identifiers_use_technical_words() -> None:
    assert [name for folder in (SOURCE, TESTS, BENCH, DOCS) for name in paraphrased_names(folder)] == []


def test_prose_of_code_names_who_does_it() -> None:
    # Not \b: words that underscores join are words too.
    words = "nobody|somebody|everybody|whoever|told|moments?|mend(?:s|ed|ing)?|asks? back|who asks"
    paraphrased = re.compile(rf"(?<![a-z])({words})(?![a-z])", re.IGNORECASE)
    pages = [*SOURCE.rglob("*.py"), *SOURCE.rglob("*.html"), SOURCE / "_check" / "explanations.toml"]
    pages += [*BENCH.rglob("*.py"), *DOCS.rglob("*.py")]
    assert [
        f"{page.relative_to(ROOT)}:{number} {found[0]}"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if (found := paraphrased.search(line)) is not None
    ] == []


def public_files() -> list[Path]:
    return [
        path
        for path in sorted(SOURCE.rglob("*.py"))
        if not any(part.startswith("_") and part != "__init__.py" for part in path.relative_to(SOURCE).parts)
    ]


def reference() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in DOCS.glob("reference/*.md"))


def test_every_module_is_private_by_name_or_part_of_the_reference() -> None:
    names = [
        ".".join(("wane", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for path in public_files()
    ]
    pages = reference()
    assert [name for name in names if f"`{name}`" not in pages and name != "wane"] == []


def test_every_name_of_a_public_module_is_private_by_name_or_part_of_the_reference() -> None:
    code = re.findall(r"```.*?```|`[^`\n]+`", reference(), re.DOTALL)
    written = set(re.findall(r"\w+", " ".join(code)))
    found = []
    for file in public_files():
        names: list[Any] = []
        for node in parsed(file).body:
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    names.append(name)
                case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=exported)):
                    names += [one.value for one in exported if isinstance(one, ast.Constant)]
                case ast.Assign(targets=targets):
                    names += [target.id for target in targets if isinstance(target, ast.Name)]
                case ast.AnnAssign(target=ast.Name(id=name)):
                    names.append(name)
        found += [f"{file.relative_to(SOURCE)} {n}" for n in names if not n.startswith("_") and n not in written]
    assert found == []


SQL = re.compile(
    r"\s*(SELECT\s|INSERT INTO\s|UPDATE\s|DELETE FROM\s|TRUNCATE\s|VACUUM\s|ANALYZE\s|PRAGMA\s|COMMENT ON\s|LOCK TABLE\b"
    r"|(WITH|GRANT|REVOKE) [\w, ]+ (AS|ON)\b|BEGIN (ISOLATION|IMMEDIATE)|SET (LOCAL|TRANSACTION)\s|REINDEX (INDEX|TABLE)\s"
    r"|(CREATE|ALTER|DROP) (OR REPLACE |TEMP |UNIQUE )*(TABLE|INDEX|VIEW|TRIGGER|FUNCTION|SCHEMA|SEQUENCE|POLICY)\s)"
)


def test_statements_are_in_the_files_that_the_architecture_names() -> None:
    written = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    [sentence] = re.findall(r"The conditions of users' rows are written.*?Ruff", written, re.DOTALL)
    homes = re.findall("`([^`]+)`", sentence)
    assert {"_rules/", "sql*.py", "_db/"} <= set(homes)
    found = []
    for file in SOURCE.rglob("*.py"):
        path = file.relative_to(SOURCE)
        if any(fnmatch(file.name, home) or str(path).startswith(home) for home in homes):
            continue
        nodes = list(ast.walk(parsed(file)))
        formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
        parts = {id(part) for node in formatted for part in node.values}
        plain = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in parts]
        for node in (*formatted, *plain):
            pieces = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(one.value) if isinstance(one, ast.Constant) else "x" for one in pieces)
            # An ellipsis is in no statement, only in what is said about one.
            if SQL.match(text) and "…" not in text:
                found.append(f"{path}:{node.lineno} {text[:40]}")
    assert found == []


def test_the_architecture_lists_the_statements_of_a_rule() -> None:
    written = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = written.partition("### The statements of a rule\n")[2].partition("\n## ")[0]
    names = [name for row in re.findall(r"^\|([^|]*`[^|]*)\|", section, re.MULTILINE) for name in row.split("`")[1::2]]
    statements = {name for name, value in vars(RuleStatements).items() if isinstance(value, cached_property)}
    assert sorted(names) == sorted(statements - {"ends_at_edge"})


def test_prose_wraps_at_120_columns() -> None:
    wide = []
    for page in [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *BENCH.glob("*.md")]:
        fenced = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            fenced ^= line.lstrip().startswith("```")
            # A link or a signature cannot be broken.
            one_word = " " not in re.sub("`[^`]*`", "", line.strip().lstrip("-*0123456789. "))
            if len(line) > 120 and not fenced and not line.lstrip().startswith(("|", "<")) and not one_word:
                wide.append(f"{page.name}:{number}")
    assert wide == []


IGNORING = re.compile(r"#\s*(noqa|type: ignore|pragma)")
"""A comment for a tool, which has to be on the line that it is about."""


def test_comments_and_docstrings_wrap_at_120_columns() -> None:
    wide = []
    for file in sorted(path for folder in (SOURCE, TESTS, BENCH, ROOT / ".ci") for path in folder.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        tokens = tokenize.generate_tokens(io.StringIO(text).readline)
        prose = {one.start[0] for one in tokens if one.type == tokenize.COMMENT and not IGNORING.match(one.string)}
        for node in ast.walk(parsed(file)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                prose.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        wide += [
            f"{file.relative_to(ROOT)}:{number}"
            for number, line in enumerate(text.splitlines(), 1)
            if len(line) > 120 and number in prose
        ]
    assert wide == []


def test_comments_of_configuration_wrap_at_120_columns() -> None:
    folders = [SOURCE, TESTS, BENCH, DOCS, ROOT / "deploy"]
    files = [path for folder in folders for ending in ("toml", "yml", "yaml") for path in folder.rglob(f"*.{ending}")]
    files += [path for path in ROOT.iterdir() if path.suffix in (".toml", ".yml", ".yaml", ".txt")]
    files += [path for path in (ROOT / "deploy").rglob("*") if path.is_file()]
    files += [ROOT / "Makefile", ROOT / ".ci" / "run"]
    assert {"pyproject.toml", "mkdocs.yml", "Dockerfile", "wane.service"} <= {file.name for file in files}
    assert [
        f"{file.relative_to(ROOT)}:{number}"
        for file in sorted(set(files))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 120 and re.search(r"(^|\s)##? ", line) and not line.lstrip().startswith(("#:", '"'))
    ] == []
