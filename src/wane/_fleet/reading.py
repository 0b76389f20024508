"""Reading a fleet file: which databases are archived together, each under which contract.

A mistake of the file itself refuses the fleet, and all of them are reported at once. A contract with mistakes is a
failure of its members alone, reported with all of those.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, unquote, urlsplit

from pydantic import Field

from wane._contract.entries import Entry
from wane._contract.load import ContractReading, parse_file, read_contract
from wane._contract.mistakes import Mistakes, mask
from wane._contract.model import Contract
from wane._contract.refused import Refused
from wane._contract.values import URL, ReadBy, Text
from wane._findings import errors_of, many
from wane.errors import ContractError

SETTINGS = ("parallel", "commit_members")
KEYS = (*SETTINGS, "member")
_PATTERN = re.compile(r"[*?]")
_SQLITE = re.compile(r"sqlite:/{0,3}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|/|\$\{")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = "{name}"
_MOST_MEMBERS = 100_000
_PATH = Text("a path", "write a path in quotes, relative to the fleet file")


def _read_urls(value: object) -> list[str]:
    urls = value if isinstance(value, list) else [value]
    if not urls:
        raise Refused("an empty list", "name a database, or remove `url`")
    return [URL.read(one) for one in urls]


class MemberEntry(Entry):
    """One member of the fleet, or many by a pattern."""

    contract: Annotated[str, _PATH] = Field(
        description="The path of a contract, relative to the fleet file. With `*` or `?` in it, every file that matches is a member."
    )
    url: Annotated[list[str], ReadBy(_read_urls, {"type": ["string", "array"]})] | None = Field(
        None,
        description="The database instead of the contract's own: a URL, or the name of an environment variable that holds one; a list"
        " for several databases under one contract. A SQLite path with `*` or `?` in it means every file that matches.",
    )
    archive: Annotated[str, URL] | None = Field(
        None,
        description="The archive instead of the contract's own, relative to the fleet file; `{name}` is the member's name.",
    )


class FleetEntry(Entry):
    """What a fleet file declares beside its members."""

    parallel: Annotated[int, Field(ge=1, le=64, strict=True)] = Field(
        4, description="How many members are worked on at a time."
    )
    commit_members: Annotated[int, Field(ge=1, le=1_000, strict=True)] = Field(
        50,
        description="The most members whose sweeps are in one commit of an archive that they share: so many databases are open at a"
        " time.",
    )


@dataclass(frozen=True, slots=True)
class FleetMember:
    """One database of a fleet, under its contract."""

    name: str
    contract: Contract | None
    """None if the contract has mistakes."""
    url: str | None = field(default=None, repr=False)
    """The database instead of the contract's own."""
    problem: ContractError | None = None

    def require_contract(self) -> Contract:
        """Return the contract; raise ContractError with its mistakes if it has any."""
        if self.contract is None:
            assert self.problem is not None
            raise self.problem
        return self.contract


@dataclass(frozen=True, slots=True)
class FleetFile:
    """The members of a fleet, in the order of the file, and how many are worked on and committed at a time."""

    path: Path
    members: tuple[FleetMember, ...]
    parallel: int
    commit_members: int


def load_fleet(path: Path | str) -> FleetFile:
    """Read a fleet file; raise ContractError with every mistake."""
    mistakes = Mistakes(str(path))
    found = _FleetFileReader(Path(path), mistakes).read()
    errors = errors_of(mistakes.findings)
    if errors:
        raise ContractError(f"{mask(str(path))}: the fleet file has {many(len(errors), 'mistake')}", errors)
    return found


class _FleetFileReader:
    def __init__(self, path: Path, mistakes: Mistakes) -> None:
        self.path = path
        self.base = path.parent.resolve()
        self.mistakes = mistakes
        self.readings: dict[Path, ContractReading] = {}

    def read(self) -> FleetFile:
        data = parse_file(self.path, self.mistakes, missing="write one: see docs/how-to/archive-a-fleet.md")
        for key in data:
            if key not in KEYS:
                self.mistakes.unknown([key], key, "unknown section", KEYS)
        settings = self.mistakes.read(FleetEntry, {key: data[key] for key in data if key in SETTINGS}, [])
        entries = data.get("member", {})
        members: list[FleetMember] = []
        if not isinstance(entries, dict) or not entries:
            if not self.mistakes.findings:
                self.mistakes.error(
                    ["member"], "missing-key", "the fleet has no members", 'add [member.NAME] with `contract = "…"`'
                )
        else:
            for name, entry in entries.items():
                members += self._members(name, self.mistakes.read(MemberEntry, entry, ["member", name]))
            self._require_single(members)
            self._require_one_spark(members)
        settings = settings or FleetEntry()  # With mistakes, nothing runs.
        return FleetFile(self.path, tuple(members), settings.parallel, settings.commit_members)

    def _members(self, name: str, entry: MemberEntry | None) -> Iterator[FleetMember]:
        if entry is None:
            return
        at = ["member", name]
        urls = entry.url
        of_files = [url for url in urls or () if _SQLITE.match(url) and _PATTERN.search(url)]
        several = urls is not None and (len(urls) > 1 or bool(of_files))
        if _PATTERN.search(entry.contract) and several:
            self.mistakes.error(
                [*at, "url"],
                "wrong-value",
                "the contract is a pattern, and the databases are several",
                "write one member for each contract, or one pattern",
            )
            return
        for label, path in self._contracts(entry.contract, at):
            for part, url in [("", None)] if urls is None else self._databases(urls, at, several=several):
                whole = "/".join(one for one in (name, label, part) if one)
                yield self._member(whole, path, url, entry.archive)

    def _contracts(self, text: str, at: Sequence[str]) -> Iterator[tuple[str, Path]]:
        if not _PATTERN.search(text):
            yield "", self.base / text
            return
        found = list(_matches(text, self.base))
        if not found:
            self.mistakes.error([*at, "contract"], "wrong-value", f"no file matches {text!r}", "correct the pattern")
        yield from ((label, path) for label, path in found)

    def _databases(self, urls: Sequence[str], at: Sequence[str], *, several: bool) -> Iterator[tuple[str, str]]:
        for number, url in enumerate(urls):
            prefix = _SQLITE.match(url)
            if prefix is None:
                yield _label(url) if several else "", url
                continue
            # Three slashes begin a path that is relative, and a fourth one is the first of an absolute path.
            text = unquote(url[prefix.end() :])
            if not _PATTERN.search(text):
                path = self.base / text
                yield path.stem if several else "", f"sqlite:///{quote(str(path))}"
                continue
            found = list(_matches(text, self.base))
            if not found:
                where = [*at, "url", number] if len(urls) > 1 else [*at, "url"]
                self.mistakes.error(where, "wrong-value", f"no file matches {text!r}", "correct the pattern")
            for label, path in found:
                yield label, f"sqlite:///{quote(str(path))}"

    def _member(self, name: str, path: Path, url: str | None, archive: str | None) -> FleetMember:
        reading = self.readings.get(path) or read_contract(path)
        self.readings[path] = reading
        if reading.contract is None:
            wrong = errors_of(reading.findings)
            text = f"{mask(str(path))}: the contract has {many(len(wrong), 'mistake')}"
            return FleetMember(name, None, url, ContractError(text, wrong))
        contract = reading.contract
        if archive is not None:
            text = archive.replace(_NAME, name)
            contract = replace(contract, archive_url=text if _SCHEME.match(text) else str(self.base / text))
        return FleetMember(name, contract, url)

    def _require_single(self, members: Sequence[FleetMember]) -> None:
        for name, count in Counter(member.name for member in members).items():
            if count > 1:
                self.mistakes.error(
                    ["member", name.partition("/")[0]],
                    "wrong-value",
                    f"{count} members are called {name!r}",
                    "write members of their own, so that each has a name",
                )
        known: dict[object, str] = {}
        for member in members:
            if member.contract is None:
                continue
            first = known.setdefault((member.contract.path, member.url), member.name)
            if first != member.name:
                self.mistakes.error(
                    ["member", member.name.partition("/")[0]],
                    "wrong-value",
                    f"{member.name!r} is the same contract and database as {first!r}",
                    "remove one of them",
                )
        if len(members) > _MOST_MEMBERS:
            self.mistakes.error(["member"], "wrong-value", f"{len(members):,} members", f"at most {_MOST_MEMBERS:,}")

    def _require_one_spark(self, members: Sequence[FleetMember]) -> None:
        first: FleetMember | None = None
        for member in members:
            if member.contract is None:
                continue
            first = first or member
            assert first.contract is not None
            spark, other = first.contract.spark, member.contract.spark
            if (spark.master, spark.remote, spark.settings) != (other.master, other.remote, other.settings):
                self.mistakes.error(
                    ["member", member.name.partition("/")[0]],
                    "wrong-value",
                    f"[spark] of {member.name!r} has another master, remote or other settings than that of {first.name!r}",
                    "a fleet is one Spark application: include one file with [spark] in all contracts",
                )
                return


def _matches(text: str, base: Path) -> Iterator[tuple[str, Path]]:
    """Return the files that match a pattern, each with what its wildcards stand for."""
    root = Path(text).anchor or str(base)
    pattern = text.removeprefix(root) if Path(text).is_absolute() else text
    plain = re.compile(_expression(pattern))
    for path in sorted(Path(root).glob(pattern)):
        if path.is_file():
            matched = plain.fullmatch(path.relative_to(root).as_posix())
            parts = [one.strip("/") for one in matched.groups()] if matched else [path.stem]
            yield "/".join(one for one in parts if one), path


def _expression(pattern: str) -> str:
    parts = {"**": "(.*?)", "*": "([^/]*)", "?": "([^/])", "**/": "(.*?)"}
    return "".join(parts.get(one) or re.escape(one) for one in re.split(r"(\*\*/|\*\*|\*|\?)", pattern))


def _label(url: str) -> str:
    """Return the name of a database: of its variable, or the last part of its URL."""
    if _VARIABLE_NAME.fullmatch(url):
        return url
    try:
        return urlsplit(url).path.rpartition("/")[2] or "database"
    except ValueError:
        return "database"
