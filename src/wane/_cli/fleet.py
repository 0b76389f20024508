"""`--fleet FILE`: a command for every member of a fleet, with a result for each and one total."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.markup import escape

from wane._cli.confirm import NOTHING_DONE
from wane._cli.harness import Call, CommandResult
from wane._cli.output import console, many, print_line, table
from wane._keeper import Keeper
from wane._prune.sweep import Outcome

if TYPE_CHECKING:
    from wane._fleet.fleet import MemberResult

T = TypeVar("T")
_DRY = " (a dry run: nothing was changed)"
_MOST_SHOWN = 50
"""The most members that a table for people lists; --json has all of them."""


@dataclass(frozen=True)
class Listed:
    """How a command prints the results of a fleet: columns, the rows of one member, and numbers to add up."""

    heads: Sequence[str]
    right: Sequence[str]
    rows: Callable[[Any], Iterable[Sequence[str]]]
    total: Callable[[Any], dict[str, int]]
    problems: Callable[[Any], Iterable[str]] = lambda _: ()
    """What went wrong inside a member's result: the member counts as failed."""
    off: Callable[[Any], bool] = lambda _: False
    """Whether flags let nothing run."""
    note: str = ""
    """What the numbers do not include."""


def across(
    call: Call,
    fleet: Path,
    work: Callable[[Keeper], T],
    listed: Listed,
    *,
    doing: str,
    read_only: bool = False,
    dry_run: bool = False,
) -> CommandResult:
    """Do work for every member, and report each and the total. Exits 1 if a member failed, 4 if all were off."""
    results = call.fleet(fleet).each(work, doing=doing, read_only=read_only)
    members = [_member(one, listed) for one in results]
    total: dict[str, int] = {}
    for one in results:
        for name, number in {} if one.result is None else listed.total(one.result).items():
            total[name] = total.get(name, 0) + number
    counts = {
        "members": len(members),
        **{state: sum(one["outcome"] == state for one in members) for state in ("done", "failed", "off", "stopped")},
        **total,
    }
    failed = counts["failed"] > 0
    off = counts["off"] > 0 and counts["off"] == len(members)
    return CommandResult(
        {"members": members, "total": counts},
        lambda: _print(results, members, counts, listed, dry_run=dry_run),
        1 if failed else NOTHING_DONE if off else 0,
    )


def of_original(work: Callable[[Keeper], T]) -> Callable[[Keeper], T]:
    """Return work that refuses a clone of another database, also if nothing is due: what the clone reads in the archive
    and in its journal is the original's, which may be a member too. A database without Wane's own tables is no clone.
    """

    def checked(keeper: Keeper) -> T:
        from wane._archive.context import require_original  # Only when it is called: it takes long to import.

        if keeper.store.migrated:
            require_original(keeper.store)
        return work(keeper)

    return checked


def _member(one: MemberResult[Any], listed: Listed) -> dict[str, Any]:
    problems = [one.problem] if one.failed else [] if one.result is None else list(listed.problems(one.result))
    outcome = Outcome.STOPPED if not one.begun else Outcome.FAILED if problems else Outcome.DONE
    if outcome is Outcome.DONE and one.result is not None and listed.off(one.result):
        outcome = Outcome.OFF
    return {
        "member": one.member,
        "outcome": outcome.value,
        "problems": problems,
        "seconds": round(one.seconds, 3),
        "result": one.result,
    }


def _print(
    results: Sequence[MemberResult[Any]],
    members: Sequence[dict[str, Any]],
    counts: dict[str, int],
    listed: Listed,
    *,
    dry_run: bool,
) -> None:
    rows = [(one.member, *row) for one in results for row in ([] if one.result is None else listed.rows(one.result))]
    shown = table("member", *listed.heads, right=listed.right)
    for row in rows[:_MOST_SHOWN]:
        shown.add_row(*map(escape, row))
    console().print(shown)
    if len(rows) > _MOST_SHOWN:
        print_line(f"{many(len(rows) - _MOST_SHOWN, 'line')} more: --json has all of them")
    for one in members:
        for problem in one["problems"]:
            print_line(f"[red]{escape(one['member'])}:[/] {escape(problem)}")
    words = [many(counts["members"], "member")]
    words += [f"{counts[state]:,} {state}" for state in ("failed", "off", "stopped") if counts[state]]
    numbers = {
        name: number for name, number in counts.items() if name not in ("members", "done", "failed", "off", "stopped")
    }
    words += [f"{number:,} {name.replace('_', ' ')}" for name, number in numbers.items()]
    words += [listed.note] if listed.note else []
    print_line(f"{', '.join(words)}{_DRY if dry_run else ''}")
