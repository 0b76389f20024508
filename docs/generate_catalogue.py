"""Write the tables of the catalogue's page: what was proven, and which windows the contracts need.

`docs/catalogue.jsonl` is what `make catalogue` recorded: one line for each system and store. `generate_catalogue.py FILE`
first replaces the lines of those systems that were recorded in FILE.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from wane import catalogue
from wane._findings import many

FOLDER = Path(__file__).parent
PAGE = FOLDER / "reference" / "catalogue.md"
RECORD = FOLDER / "catalogue.jsonl"


def merge(recorded: Path) -> None:
    """Replace the lines of systems and stores that were proven again, and append those of new ones."""
    lines = [line for file in (RECORD, recorded) for line in file.read_text(encoding="utf-8").splitlines()]
    latest = {(one["system"], one["store"]): line for line in lines for one in [json.loads(line)]}
    RECORD.write_text("".join(f"{line}\n" for line in latest.values()), encoding="utf-8")


def compared(record: dict[str, Any]) -> str:
    """Write in which rows the two differ, and why."""
    words = [
        f"{why} ({many(sum(tables.values()), 'row')} of {many(len(tables), 'table')})"
        for why, tables in record["differs"]
    ]
    return f"equal, but {'; '.join(words)}" if words else "equal"


def proofs() -> str:
    """Write a line for each system and store."""
    lines = [
        "| contracts | version | store | tables | rows | left | every table |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in map(json.loads, RECORD.read_text(encoding="utf-8").splitlines()):
        names = ", ".join(f"`{name}`" for name in record["contracts"])
        store = {"sqlite": "SQLite", "postgres": "PostgreSQL"}[record["store"]]
        numbers = f"{record['tables']} | {record['rows']} | {record['left']}"
        version = f"{record['system']} {record['version']}{', schema only' if record.get('schema_only') else ''}"
        lines.append(f"| {names} | {version} | {store} | {numbers} | {compared(record)} |")
    return "\n".join(lines)


def windows() -> str:
    """Write a line for each window."""
    lines = ["| contract | window | own | why |", "|---|---|---|---|"]
    lines += [
        f"| `{system.name}` | `{name}` | {f'`{words.own}`' if words.own else 'none'} | {words.why} |"
        for system in catalogue.systems()
        for name, words in system.windows.items()
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
    for name in sys.argv[1:]:
        merge(Path(name))
    PAGE.write_text(generate(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
