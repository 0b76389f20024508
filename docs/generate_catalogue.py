"""Write the tables of the catalogue's page: what was proven, and which windows the contracts need.

`docs/catalogue.jsonl` is what `make catalogue` recorded: one line for each system and store.
"""

from __future__ import annotations

import json
from pathlib import Path

from wane import catalogue

FOLDER = Path(__file__).parent
PAGE = FOLDER / "reference" / "catalogue.md"
RECORD = FOLDER / "catalogue.jsonl"


def proofs() -> str:
    """Write a line for each system and store."""
    lines = [
        "| contracts | version | store | tables | rows | left with both | every table |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in map(json.loads, RECORD.read_text(encoding="utf-8").splitlines()):
        names = ", ".join(f"`{name}`" for name in record["contracts"])
        store = {"sqlite": "SQLite", "postgres": "PostgreSQL"}[record["store"]]
        numbers = f"{record['tables']} | {record['rows']} | {record['left']}"
        lines.append(f"| {names} | {record['system']} {record['version']} | {store} | {numbers} | equal |")
    return "\n".join(lines)


def windows() -> str:
    """Write a line for each window."""
    lines = ["| contract | window | own | why |", "|---|---|---|---|"]
    lines += [
        f"| `{system.name}` | `{name}` | {f'`{said.own}`' if said.own else 'none'} | {said.why} |"
        for system in catalogue.systems()
        for name, said in system.windows.items()
    ]
    return "\n".join(lines)


def generate(text: str) -> str:
    """Return the page with its tables written anew."""
    for name, table in (("proofs", proofs()), ("windows", windows())):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{table}\n{end}{rest.partition(end)[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(generate(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
