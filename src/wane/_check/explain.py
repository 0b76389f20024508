"""Explaining the codes of findings and the errors: what each means, why it matters, how to fix it, an example.

`explanations.toml` is the only source: `wane explain` prints it, and the pages of the reference are generated from it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from wane._findings import did_you_mean

_SOURCE = Path(__file__).with_name("explanations.toml")


@dataclass(frozen=True, slots=True)
class Explanation:
    """One code, explained in Markdown."""

    code: str
    reports: tuple[str, ...]
    """What reports it: contract, database, archive, live, health or error."""
    means: str
    why: str
    fix: str
    example: str


@cache
def explanations() -> dict[str, Explanation]:
    """Return every explanation by its code."""
    entries = tomllib.loads(_SOURCE.read_text(encoding="utf-8"))
    return {
        code: Explanation(code, tuple(entry["reports"]), entry["means"], entry["why"], entry["fix"], entry["example"])
        for code, entry in entries.items()
    }


_WORDS = {"fuse": "fused-rule", "fused": "fused-rule", "flag": "sweeps-off", "off": "sweeps-off"}
"""What sweeps end with, and what `wane plan` and `wane why` name as an obstacle, where the code has another name."""


def explain(code: str) -> Explanation | None:
    """Return the explanation of a code, in any case, or of the outcome of a sweep; None if there is none."""
    by_name = {known.lower(): one for known, one in explanations().items()}
    return by_name.get(_WORDS.get(code.lower(), code.lower()))


def suggest_code(code: str) -> str:
    """Suggest a code for one that does not exist: one that begins with it as a word, or is similar; else return ""."""
    known = {one.lower(): one for one in explanations()}
    begun = [name for lower, name in known.items() if lower.startswith(f"{code.lower()}-")]
    if begun:
        return f"did you mean {begun[0]!r}?"
    near = did_you_mean(code.lower(), known)
    return next((f"did you mean {name!r}?" for lower, name in known.items() if f"{lower!r}" in near), "")
