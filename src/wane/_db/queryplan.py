"""How a database would run a statement: which tables its query plan reads, in which order, by which conditions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wane._frozen import frozen

_PARTITION = re.compile(r"_\d+")
_SQLITE_SCAN = re.compile(r"(?:SCAN|SEARCH) (?P<alias>\w+)(?: USING (?P<how>.+))?")
_SQLITE_INDEX = re.compile(r"(?:COVERING )?(?:INDEX|INTEGER PRIMARY KEY|PRIMARY KEY)\b")
_SORTED = "USE TEMP B-TREE FOR ORDER BY"
_ALTERNATIVES = re.compile(r"MULTI-INDEX OR|INDEX \d+")


@frozen
class Scan:
    """How a query plan reads one table, under the alias that the statement gives it."""

    alias: str
    indexed: bool
    """Whether it reads along an index."""
    condition: str
    """The condition by which the index finds rows, as the database prints it; "" for none."""
    sorted: bool
    """Whether all rows that it finds are sorted before the first of them is returned."""


@frozen
class QueryPlan:
    """What a query plan reads."""

    scans: tuple[Scan, ...]
    cost: float | None
    """What the planner expects it to cost, in its own unit; None where the store does not report it."""

    def of(self, alias: str) -> list[Scan]:
        """Return the scans of one table; each partition has its own."""
        return [one for one in self.scans if _PARTITION.sub("", one.alias.removeprefix(alias), count=1) == ""]


def read_postgres_plan(tree: Mapping[str, Any]) -> QueryPlan:
    """Read what `EXPLAIN (FORMAT JSON)` prints."""
    return QueryPlan(tuple(_postgres_scans(tree, sorted_above=False)), float(tree["Total Cost"]))


def _postgres_scans(node: Mapping[str, Any], *, sorted_above: bool) -> Iterator[Scan]:
    kind, inner = node["Node Type"], node.get("Plans", [])
    # What is above a limit sorts only the rows that the limit lets through.
    sorted_above = kind == "Sort" or (sorted_above and kind != "Limit")
    if "Alias" in node and "Relation Name" in node:
        bitmap = [one.get("Index Cond", "") for one in _below(inner) if one["Node Type"] == "Bitmap Index Scan"]
        condition = " AND ".join([node.get("Index Cond", ""), *bitmap]).removeprefix(" AND ")
        indexed = kind in ("Index Scan", "Index Only Scan") or bool(bitmap)
        yield Scan(node["Alias"], indexed, condition, sorted_above or bool(bitmap))
    for one in inner:
        yield from _postgres_scans(one, sorted_above=sorted_above)


def _below(nodes: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for node in nodes:
        yield node
        yield from _below(node.get("Plans", []))


def read_sqlite_plan(rows: Sequence[tuple[int, int, int, str]]) -> QueryPlan:
    """Read what `EXPLAIN QUERY PLAN` prints."""
    details = {number: detail for number, _, _, detail in rows}
    parents = {number: parent for number, parent, _, _ in rows}
    sorting = {parent for _, parent, _, detail in rows if detail == _SORTED}

    def query_of(number: int) -> int:
        """Return the node of the query that a scan is part of."""
        parent = parents[number]
        return query_of(parent) if _ALTERNATIVES.fullmatch(details.get(parent, "")) else parent

    scans = []
    for number, _, _, detail in rows:
        found = _SQLITE_SCAN.fullmatch(detail)
        if found is not None:
            how = found["how"] or ""
            indexed = _SQLITE_INDEX.match(how) is not None
            condition = how.partition("(")[2].removesuffix(")") if indexed else ""
            scans.append(Scan(found["alias"], indexed, condition, query_of(number) in sorting))
    return QueryPlan(tuple(scans), None)
