"""The shell sessions of a page: what a reader saves and types, and should then see.

A fenced block marked `console` is run line by line; a block after "Save this as `NAME`:" is written to that file. What
is printed is compared loosely: dates, fingerprints, durations and the width of columns may differ, and `…` stands for
anything. A command that fails must be followed by `echo $?`.

A page starts from nothing but an installed Wane and a checkout (of which it uses `docs/`); one that exports
`DATABASE_URL` has a database of its own. Everything else is on the page.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from commands import run_forked

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_BLOCK = re.compile(
    r"(?:Save\s+this\s+as\s+`(?P<file>[^`]+)`:\s+)?^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_NEEDS_POSTGRES = re.compile(r"^export DATABASE_URL=", re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?)?")
_FINGERPRINT = re.compile(r"\b[0-9a-f]{16}\b")
_SHELL = re.compile(r"[|&;<>()$`*?\[\]{}~#\n]")
"""What a shell may read otherwise than as a part of a word."""
_SECONDS = re.compile(r"\b\d+\.\d\d\b")


@dataclass(frozen=True)
class Command:
    """One line that is typed, and what is printed after it."""

    text: str
    printed: str


@dataclass(frozen=True)
class File:
    """A file that the reader saves."""

    name: str
    text: str


def needs_postgres(page: str) -> bool:
    return _NEEDS_POSTGRES.search(page) is not None


def steps(page: str) -> Iterator[Command | File]:
    """Yield what the reader does, in order."""
    for block in _BLOCK.finditer(page):
        if block["file"]:
            yield File(block["file"], block["body"])
        elif block["language"] == "console":
            for part in re.split(r"^\$ ", block["body"], flags=re.MULTILINE)[1:]:
                text, _, printed = part.partition("\n")
                yield Command(text, printed)


@dataclass
class Shell:
    """A checkout in which commands are typed one after the other."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    code: int = 0

    def __post_init__(self) -> None:
        (self.folder / "docs").symlink_to(ROOT / "docs")

    def follow(self, page: str) -> None:
        """Do what a page says, and compare what it promises."""
        reported = list(steps(page))
        for number, step in enumerate(reported):
            if isinstance(step, File):
                path = self.folder / step.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.text, encoding="utf-8")
                continue
            printed = self.type(step.text)
            following = reported[number + 1] if number + 1 < len(reported) else None
            requested = isinstance(following, Command) and following.text == "echo $?"
            assert self.code == 0 or requested, f"$ {step.text}\n{printed}exits {self.code}"
            pattern = loosely(step.printed)
            assert re.fullmatch(pattern, plain(printed)), f"$ {step.text}\n{printed}\nis not what the page shows"

    def type(self, text: str) -> str:
        """Return what one command prints, people's lines and data together."""
        if text == "echo $?":
            code, self.code = self.code, 0
            return f"{code}\n"
        if text.startswith("cd "):
            self.folder = self.folder / text.removeprefix("cd ")
            return ""
        if " && " in text and all(part.startswith("wane ") for part in text.split(" && ")):
            return self._each(text.split(" && "))
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("WANE_", "COLUMNS", "DATABASE_"))
        }
        environment = {**inherited, "PATH": path, **self.environment}
        command, _, file = text.partition(" > ")
        if command.startswith("wane ") and not _SHELL.search(command + file):
            return self._wane(shlex.split(command), file, environment)
        done = subprocess.run(
            ["bash", "-c", text],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
        self.code = done.returncode
        return done.stdout

    def _each(self, commands: list[str]) -> str:
        """Type commands as long as they succeed."""
        printed = ""
        for command in commands:
            printed += self.type(command)
            if self.code:
                break
        return printed

    def _wane(self, words: list[str], file: str, environment: dict[str, str]) -> str:
        """Run a command of ours without a shell, which would import everything again; its output goes to a file, if one
        is named."""
        if words[1] == "run" and "--max-runs" not in words:
            # A reader ends it by a signal, and has the port for himself.
            words += ["--max-runs", "1", *(["--metrics-port", "0"] if "--metrics-port" in words else [])]
        finished = run_forked(words, self.folder, environment, merge=not file)
        self.code = finished.returncode
        if not file:
            return finished.stdout
        (self.folder / file).write_text(finished.stdout, encoding="utf-8")
        return finished.stderr


def shop(folder: Path) -> Path:
    """Make the tutorial's shop in a folder, as the pages that use it say; return where it is."""
    shell = Shell(folder)
    shell.type("cp -r docs/shop . && cd shop && python make_shop.py && python add_indexes.py")
    assert shell.code == 0
    return folder / "shop"


def plain(text: str) -> str:
    """Remove what may differ from day to day and from terminal to terminal."""
    text = _SECONDS.sub("SECONDS", _FINGERPRINT.sub("FINGERPRINT", _DATE.sub("DATE", text)))
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def loosely(text: str) -> str:
    """Return the pattern that what is printed must match."""
    return ".*".join(re.escape(piece) for piece in plain(text).split("…")).replace(".*", r"(?s:.*)")
