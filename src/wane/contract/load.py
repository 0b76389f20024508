"""Reading a contract: from a TOML file, and the files it includes, to a Contract or to everything that is wrong with it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wane.contract.model import Contract
from wane.contract.pieces import Mistakes, describe
from wane.contract.resolve import SourceFile, resolve
from wane.errors import ContractError
from wane.findings import Finding, did_you_mean, errors_of
from wane.reference import contract_path, names

SECTIONS = ("include", "strict", "store", "scheduler", "window", "floor", "budget", "table", "excused", "archive")
_REFERENCE = "reference:"
_MOST_FILES = 100
_MOST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of reading a file: the contract if it has no errors, and all findings in any case."""

    contract: Contract | None
    findings: tuple[Finding, ...]


def load_contract(path: Path | str) -> Contract:
    """Read a contract; raise ContractError with every mistake."""
    reading = read_contract(path)
    if reading.contract is None:
        mistakes = errors_of(reading.findings)
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise ContractError(f"{path}: the contract has {count}", mistakes)
    return reading.contract


def read_contract(path: Path | str) -> Reading:
    """Read a contract and tell everything that is worth knowing about it."""
    path = Path(path)
    files: list[SourceFile] = []
    _collect(path, str(path), files, [])
    contract = resolve(path, files)
    findings = tuple(finding for file in files for finding in file.mistakes.findings)
    return Reading(None if errors_of(findings) else contract, findings)


def _collect(path: Path, shown: str, files: list[SourceFile], including: list[Path]) -> None:
    """Append the file's included files, then the file itself: what comes later may set windows of what came before."""
    mistakes = Mistakes(shown)
    data = _parse(path, mistakes)
    for key in data:
        if key not in SECTIONS:
            fix = " ".join(part for part in (did_you_mean(key, SECTIONS), f"allowed: {', '.join(SECTIONS)}") if part)
            mistakes.error([key], "unknown-key", "unknown section", fix)
    for position, item in enumerate(_included(data, mistakes)):
        place = ["include", position]
        target = _target(item, path, mistakes, place)
        if target is None:
            continue
        if target.resolve() in [one.resolve() for one in (*including, path)]:
            mistakes.error(place, "include-cycle", f"{item!r} includes itself", "remove this include")
        elif target.resolve() in [file.path.resolve() for file in files]:
            mistakes.error(place, "included-twice", f"{item!r} is already included", "remove this include")
        elif len(files) >= _MOST_FILES:
            mistakes.error(place, "too-many-files", f"more than {_MOST_FILES} files are included")
        else:
            _collect(target, item, files, [*including, path])
    files.append(SourceFile(path, data, mistakes))


def _parse(path: Path, mistakes: Mistakes) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            mistakes.error([], "unreadable", f"larger than {_MOST_BYTES} bytes: this is not a contract")
            return {}
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        mistakes.error([], "unreadable", "no such file", "write one, or let `wane init URL` propose one")
    except (OSError, UnicodeDecodeError) as problem:
        mistakes.error([], "unreadable", f"cannot be read: {problem}")
    except tomllib.TOMLDecodeError as problem:
        mistakes.error([], "not-toml", f"not valid TOML: {problem}")
    except RecursionError:
        mistakes.error([], "not-toml", "not valid TOML: nested too deeply")
    return {}


def _included(data: dict[str, Any], mistakes: Mistakes) -> list[str]:
    items = data.get("include", [])
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        mistakes.error(["include"], "wrong-type", f"found {describe(items)}, expected a list of paths")
        return []
    return items


def _target(item: str, base: Path, mistakes: Mistakes, place: list[object]) -> Path | None:
    if not item.startswith(_REFERENCE):
        return base.parent / item
    name = item.removeprefix(_REFERENCE)
    if name in names():
        return contract_path(name)
    fix = " ".join(part for part in (did_you_mean(name, names()), f"allowed: {', '.join(names())}") if part)
    mistakes.error(place, "unknown-reference", f"no reference contract is called {name!r}", fix)
    return None
