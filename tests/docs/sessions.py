"""The shell sessions of a page: what it tells a reader to save and to type, and what the reader should then see.

A fenced block marked `console` is run line by line; a block after "Save this as `NAME`:" is written to that file. What is printed is
compared loosely: dates, fingerprints, durations and the width of columns may differ, and `…` stands for anything. A command that fails must be
followed by `echo $?`. A page says which sample it starts from in a comment, `<!-- starts with: shop -->`.
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
_STARTS_WITH = re.compile(r"<!-- starts with: (\w+) -->")
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


def starts_with(page: str) -> str | None:
    found = _STARTS_WITH.search(page)
    return found[1] if found else None


def steps(page: str) -> Iterator[Command | File]:
    """What the reader does, in order."""
    for block in _BLOCK.finditer(page):
        if block["file"]:
            yield File(block["file"], block["body"])
        elif block["language"] == "console":
            for part in re.split(r"^\$ ", block["body"], flags=re.MULTILINE)[1:]:
                text, _, printed = part.partition("\n")
                yield Command(text, printed)


@dataclass
class Shell:
    """A folder in which commands are typed one after the other."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    code: int = 0

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
            asked = isinstance(following, Command) and following.text == "echo $?"
            assert self.code == 0 or asked, f"$ {step.text}\n{printed}exits {self.code}"
            pattern = loosely(step.printed)
            assert re.fullmatch(pattern, plain(printed)), f"$ {step.text}\n{printed}\nis not what the page shows"

    def type(self, text: str) -> str:
        """What one command prints, people's lines and data together."""
        if text == "echo $?":
            code, self.code = self.code, 0
            return f"{code}\n"
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        kept = {
            key: value for key, value in os.environ.items() if not key.startswith(("WANE_", "COLUMNS", "DATABASE_"))
        }
        environment = {**kept, "PATH": path, **self.environment}
        words = shlex.split(text)
        if words[0] == "wane" and not _SHELL.search(text):
            finished = run_forked(words, self.folder, environment, merge=True)
            self.code = finished.returncode
            return finished.stdout
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


def plain(text: str) -> str:
    """Without what may differ from day to day and from terminal to terminal."""
    text = _SECONDS.sub("SECONDS", _FINGERPRINT.sub("FINGERPRINT", _DATE.sub("DATE", text)))
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def loosely(text: str) -> str:
    """The pattern that what is printed must match."""
    return ".*".join(re.escape(piece) for piece in plain(text).split("…")).replace(".*", r"(?s:.*)")
