"""Write the entries of codes in docs/reference from their explanations in the package: `make docs`.

Entries stand between `<!-- codes: REPORT -->` and `<!-- end of codes -->`; REPORT is what reports them.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from wane._check.explain import Explanation, explanations

REFERENCE = Path(__file__).parent / "reference"
PAGES = [REFERENCE / name for name in ("findings.md", "health.md", "errors.md")]
_ENTRIES = re.compile(r"(?<=<!-- codes: )([a-z]+)( -->\n).*?(?=<!-- end of codes -->)", re.DOTALL)


def generated(page: str) -> str:
    """Return the page with the entries of its codes. A code that two of its sections report is in the first."""
    written: set[str] = set()

    def section(found: re.Match[str]) -> str:
        mine = [one for one in explanations().values() if found[1] in one.reports and one.code not in written]
        written.update(one.code for one in mine)
        return f"{found[1]}{found[2]}" + "".join(map(_entry, sorted(mine, key=lambda one: one.code)))

    return _ENTRIES.sub(section, page)


def _entry(one: Explanation) -> str:
    parts = [f"### `{one.code}`", _wrapped(f"{one.means} {one.why}"), _wrapped(f"Fix: {one.fix}")]
    return "\n".join(f"\n{part}\n" for part in [*parts, f"```\n{one.example.strip()}\n```"]).replace("\n\n\n", "\n\n")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(generated(path.read_text(encoding="utf-8")), encoding="utf-8")
