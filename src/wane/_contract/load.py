"""Reading a contract: from a TOML file, and the files it includes, to a Contract or to all of its mistakes."""

from __future__ import annotations

import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wane import catalogue, reference
from wane._contract.mistakes import Mistakes, append_key, describe, key_path, mask
from wane._contract.model import Contract
from wane._contract.names import TableName, parse_reference
from wane._contract.positions import KeyParts, scan_lines
from wane._contract.resolve import SourceFile, resolve
from wane._contract.settings import SECTIONS
from wane._findings import Finding, errors_of, many
from wane._frozen import frozen
from wane.errors import ContractError

KEYS = (
    "include",
    "strict",
    *SECTIONS,
    "scheduler",
    "window",
    "floor",
    "table",
    "excused",
    "accept",
    "archive",
    "partition",
)
"""The keys at the top of a file."""
_SHIPPED: dict[str, tuple[Callable[[], tuple[str, ...]], Callable[[str], Path], str]] = {
    "reference:": (reference.names, reference.contract_path, "no reference contract"),
    "catalogue:": (catalogue.names, catalogue.contract_path, "no contract of the catalogue"),
}
"""The prefixes of contracts that ship, with their names, their paths, and the message for one that does not exist."""
_LINE = re.compile(r"\(at line (\d+), column")
_MOST_FILES = 100
_MOST_BYTES = 4 * 1024 * 1024
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


@frozen
class ContractReading:
    """The result of reading a file: the contract if it has no errors, and all findings in any case."""

    contract: Contract | None
    findings: tuple[Finding, ...]


def load_contract(path: Path | str) -> Contract:
    """Read a contract; raise ContractError with every mistake."""
    reading = read_contract(path)
    if reading.contract is None:
        mistakes = errors_of(reading.findings)
        raise ContractError(f"{mask(str(path))}: the contract has {many(len(mistakes), 'mistake')}", mistakes)
    return reading.contract


def read_contract(path: Path | str) -> ContractReading:
    """Read a contract and return it with all findings; the contract is None if any of them is an error."""
    path = Path(path)
    files: list[SourceFile] = []
    _collect(path, str(path), files, ())
    contract = replace(resolve(path, files), positions=_positions(files))
    findings = tuple(finding for file in files for finding in file.mistakes.findings)
    return ContractReading(None if errors_of(findings) else contract, findings)


def _positions(files: Sequence[SourceFile]) -> dict[str, tuple[str, int]]:
    """Return the file and the line of every key."""
    found = {}
    for file in files:
        texts: dict[KeyParts, str] = {(): ""}  # Keys can be long, and most begin with one that came before.
        for parts, line in file.mistakes.lines.items():
            if parts:
                above = texts[parts[:-1]] if parts[:-1] in texts else key_path(parts[:-1])
                texts[parts] = append_key(above, parts[-1])
            found[texts[parts]] = (file.mistakes.file, line)
    return found


def _collect(path: Path, shown: str, files: list[SourceFile], above: tuple[Path, ...]) -> None:
    """Append the file's included files, then the file itself: later files may override windows of earlier ones."""
    mistakes = Mistakes(shown)
    itself = _real(path)
    included = "" if not above else f"{above[-1].name} includes it: correct the path"
    data = parse_file(path, mistakes, included, missing="write one, or let `wane init URL` propose one")
    for key in data:
        if key not in KEYS:
            mistakes.unknown([key], key, "unknown section", KEYS)
    for position, item in enumerate(_included(data, mistakes)):
        at: list[object] = ["include", position]
        target = _target(item, path, mistakes, at)
        if target is None:
            continue
        if _real(target) in (*above, itself):
            mistakes.error(at, "include-cycle", f"{item!r} includes itself", "remove this include")
        elif _real(target) in [file.path for file in files]:
            mistakes.error(at, "included-twice", f"{item!r} is already included", "remove this include")
        elif len(files) + len(above) + 1 >= _MOST_FILES:
            mistakes.error(at, "too-many-files", f"more than {_MOST_FILES} files", "include fewer")
        else:
            shown_as = item if item.startswith(tuple(_SHIPPED)) else str(Path(shown).parent / item)
            _collect(target, shown_as, files, (*above, itself))
    files.append(SourceFile(itself, data, mistakes, above))


def _real(path: Path) -> Path:
    """Resolve a path to the real file, so that a file is recognised under every name."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # A symlink loop or a NUL: opening the file reports it.
        return path


def parse_file(path: Path, mistakes: Mistakes, included: str = "", *, missing: str) -> dict[str, Any]:
    """Read a TOML file; collect what is wrong with it, and return nothing of it then. `missing`: what to do without
    it."""
    content = b""
    try:
        content = _read(path)
    except _NotAFile as problem:
        mistakes.error([], "unreadable", f"cannot be read: {problem}", included or "name a file")
    except FileNotFoundError:
        mistakes.error([], "unreadable", "no such file", included or missing)
    except OSError as problem:
        mistakes.error([], "unreadable", f"cannot be read: {problem.strerror or problem}", included)
    except ValueError:
        mistakes.error([], "unreadable", "cannot be read: not the name of a file", included)
    if len(content) > _MOST_BYTES:
        mistakes.error([], "unreadable", f"larger than {_MOST_BYTES} bytes", "a contract is a short text")
        return {}
    try:
        text = content.decode("utf-8-sig")
        data = tomllib.loads(text)
    except UnicodeDecodeError as problem:
        mistakes.error([], "unreadable", f"not UTF-8 text, at byte {problem.start}", "a contract is TOML in UTF-8")
    except RecursionError:
        mistakes.error([], "not-toml", "not valid TOML: nested too deeply")
    except tomllib.TOMLDecodeError as problem:
        found = _LINE.search(str(problem))
        mistakes.lines = {} if found is None else {(): int(found[1])}
        mistakes.error([], "not-toml", f"not valid TOML: {problem}")
    except ValueError:
        mistakes.error([], "not-toml", "not valid TOML: a number of thousands of digits")
    else:
        mistakes.lines = scan_lines(text)
        return data
    return {}


class _NotAFile(Exception):
    """A path names something other than a regular file."""


def _read(path: Path) -> bytes:
    """Read a regular file, up to one byte more than a contract may have.

    Anything else is refused: opening a pipe or a terminal would block.
    """
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise _NotAFile(f"it is {_KINDS.get(kind, 'no file')}")
    with path.open("rb") as file:
        return file.read(_MOST_BYTES + 1)


def _included(data: dict[str, Any], mistakes: Mistakes) -> list[str]:
    items = data.get("include", [])
    if not isinstance(items, list):
        mistakes.error(["include"], "wrong-type", f"found {describe(items)}, expected a list of paths")
        return []
    for position, item in enumerate(items):
        if not isinstance(item, str):
            mistakes.error(["include", position], "wrong-type", f"found {describe(item)}, expected a path in quotes")
    return [item for item in items if isinstance(item, str)]


def _target(item: str, base: Path, mistakes: Mistakes, at: list[object]) -> Path | None:
    prefix, _, name = item.partition(":")
    shipped = _SHIPPED.get(f"{prefix}:")
    if shipped is None:
        return base.parent / item
    names, contract_path, missing = shipped
    if name in names():
        return contract_path(name)
    mistakes.unknown(at, name, f"{missing} is called {name!r}", names(), "unknown-reference")
    return None


def covered_tables(path: Path) -> list[TableName]:
    """Return the tables that one file has rules or excuses for, or lets follow others; its windows may be undecided."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    named = [TableName.parse(name) for section in ("table", "excused") for name in data.get(section, {})]
    rules = [rule for table in data.get("table", {}).values() for rule in table.get("rule", {}).values()]
    return list(dict.fromkeys([*named, *(name for rule in rules for name in _followers(rule))]))


def _followers(entry: dict[str, Any]) -> Iterator[TableName]:
    """Return the tables that leave with the rows of a rule, or of a follower."""
    for follower in entry.get("with", []):
        if isinstance(follower, str):
            yield parse_reference(follower)[0]
        else:
            yield TableName.parse(follower["table"])
            yield from _followers(follower)
