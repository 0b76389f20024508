"""Write the OpenAPI document of the HTTP API, and the list of its endpoints in the reference."""

from __future__ import annotations

import json
import re
from pathlib import Path

from wane.web._endpoints import ENDPOINTS, openapi

REFERENCE = Path(__file__).parent / "reference"


def listing() -> str:
    """Return the endpoints as a table in Markdown."""
    lines = ["| endpoint | role | values | |", "|---|---|---|---|"]
    for one in ENDPOINTS:
        values = ", ".join(f"`{value.name}`{'' if value.required else '?'}" for value in one.values)
        lines.append(f"| `{one.method} {one.path}` | {one.role.value} | {values} | {one.description} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """Return the page with the list as it is now."""
    return re.sub(
        r"(<!-- endpoints -->\n).*?(<!-- end of endpoints -->)", rf"\g<1>{listing()}\n\g<2>", text, flags=re.DOTALL
    )


if __name__ == "__main__":
    (REFERENCE / "openapi.json").write_text(json.dumps(openapi(), indent=2) + "\n", encoding="utf-8")
    http = REFERENCE / "http.md"
    http.write_text(page(http.read_text(encoding="utf-8")), encoding="utf-8")
