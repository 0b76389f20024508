"""Write the tables of the catalogue's page: what was proven, and which windows the contracts need.

`docs/catalogue.jsonl` is what `make catalogue` recorded: one line for each system and store. With a file of new records
as the argument, they replace those of the same systems.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from wane import catalogue

FOLDER = Path(__file__).parent
PAGE = FOLDER / "reference" / "catalogue.md"
RECORD = FOLDER / "catalogue.jsonl"


def records(file: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Read what was proven, by system and store."""
    found = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {(one["system"], one["store"]): one for one in found}


def merge(file: Path) -> None:
    """Replace the records of the systems that a file has."""
    merged = records(RECORD) | records(file)
    text = "".join(f"{json.dumps(merged[key])}\n" for key in sorted(merged))
    RECORD.write_text(text, encoding="utf-8")


def proofs() -> str:
    """Write a line for each system and store."""
    lines = ["| contracts | version | store | tables | rows | left | every table |", "|---|---|---|---|---|---|---|"]
    for record in records(RECORD).values():
        names = ", ".join(f"`{name}`" for name in record["contracts"])
        version = f"{record['system']} {record['version']}{', schema only' if record.get('schema_only') else ''}"
        store = {"sqlite": "SQLite", "postgres": "PostgreSQL"}[record["store"]]
        numbers = f"{record['tables']} | {record['rows']} | {record['left']}"
        lines.append(f"| {names} | {version} | {store} | {numbers} | {compared(record)} |")
    return "\n".join(lines)


def compared(record: dict[str, Any]) -> str:
    """Write in which rows the two differ, and why."""
    said = [
        f"{why} ({', '.join(f'`{one}` {rows}' for one, rows in named.items())})" for why, named in record["differs"]
    ]
    return f"equal, but {'; '.join(said)}" if said else "equal"


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
    for argument in sys.argv[1:]:
        merge(Path(argument))
    PAGE.write_text(generate(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
