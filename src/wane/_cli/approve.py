"""`wane approve`: rules that the fuse stops, reviewed and approved together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer
from rich.markup import escape

from wane._cli.confirm import NOTHING_DONE, confirm
from wane._cli.harness import Call, CommandResult, Services, command
from wane._cli.output import many, print_findings, print_fitting, print_line
from wane._cli.values import parse_length
from wane._contract.lookup import find_rule, find_table
from wane._contract.mistakes import key_path
from wane._contract.model import Contract
from wane._db.counting import REVIEW_SECONDS
from wane._findings import pasted
from wane._formats import count_text, time_text
from wane._keeper import Keeper
from wane._prune.approval import FusedRule, FuseReview
from wane._prune.sql_fuse import Approval

app = typer.Typer()
_PLANNED = ("table", "rule", "action", "cutoff", "due", "table_rows", "share", "oldest", "newest", "followers")
"""What is shown of a step; of its numbers the exactness too."""


@command(app, "approve", Services(actor=True))
def approve(
    call: Call,
    only: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE[.RULE]...", help="Only these; all if none is named.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve without confirmation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the rules and their plans; change nothing.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Revoke approvals in force instead.")] = False,
    expires: Annotated[
        str, typer.Option(metavar="DURATION", help="How long an approval lasts, 90d at the most.")
    ] = "7d",
    seconds: Annotated[
        float, typer.Option(min=0.01, help="The longest that one count may take; what takes longer is not approved.")
    ] = REVIEW_SECONDS,
) -> CommandResult:
    """List the rules that the fuse stops, with their plans, and approve them together.

    The fuse stops a sweep that would take a large share of a table. Unattended sweeps of an approved rule (`wane run`,
    `wane sweep`) may take the rows of its plan, until its first completed sweep.
    """
    length = parse_length(expires, "--expires")
    keeper = call.open(read_only=dry_run)
    if revoke:
        return _revoke(keeper, only or (), dry_run=dry_run)
    review = keeper.review(*(only or ()), seconds=seconds)
    if not call.as_json:
        _print_review(review)
    waiting = tuple(one for one in review.rules if one.approval is None and one.plan is not None)
    given: list[Approval] = []
    if waiting and not dry_run and confirm(_question(waiting), yes=yes):
        given = keeper.approve(replace(review, rules=waiting), expires_after=length)
    declined = bool(waiting) and not given and not dry_run
    failed = bool(review.problems) or any(one.plan is None for one in review.rules)
    data = {
        "made_at": review.made_at,
        "contract": review.contract,
        "rules": [_as_dict(one) for one in review.rules],
        "approved": given,
        "problems": [finding.as_dict() for finding in review.problems],
    }
    code = 1 if failed else NOTHING_DONE if declined else 0
    return CommandResult(data, partial(_print_given, given, keeper.contract), code)


def _question(waiting: Sequence[FusedRule]) -> str:
    rows = sum(one.step.due.rows for one in waiting if one.step.due is not None)
    return f"Approve {many(len(waiting), 'plan')}, {many(rows, 'row')} in all?"


def _revoke(keeper: Keeper, only: Sequence[str], *, dry_run: bool) -> CommandResult:
    revoked = keeper.approvals(*only) if dry_run else keeper.revoke(*only)

    def show() -> None:
        verb = "would be revoked" if dry_run else "is revoked"
        for one in revoked:
            print_line(f"the approval of [bold]{escape(f'{one.table}.{one.rule}')}[/] (plan {one.plan}) {verb}")
        if not revoked:
            print_line("no approval is in force")

    return CommandResult({"revoked": revoked}, show, 0 if revoked else NOTHING_DONE)


def _as_dict(one: FusedRule) -> dict[str, object]:
    step = {name: value for name, value in one.step.as_dict().items() if name.removesuffix("_exactness") in _PLANNED}
    return {**step, "reason": one.reason, "plan": one.plan, "approval": one.approval}


def _print_review(review: FuseReview) -> None:
    print_findings(review.problems)
    if not review.rules:
        print_line("the fuse stops no rule: nothing waits for approval")
        return
    print_fitting(
        [partial(_cells, one) for one in review.rules],
        (("rule", "then", "due", "of", "share", "oldest", "cutoff", "plan", "approved"), "seconds"),
        (("rule", "then", "due", "of", "share", "oldest", "cutoff", "plan", "approved"), "days"),
        (("rule", "due", "of", "share", "oldest", "plan", "approved"), "days"),
        (("rule", "due", "share", "approved"), "days"),
        right=("due", "of", "share"),
    )
    for one in review.rules:
        print_line(f"{escape(one.name)}: {escape(one.reason)}")
        if one.plan is None:
            print_line(
                f"[yellow]it cannot be approved without a count:[/] give a larger --seconds, or let it go by its budget:"
                f" {escape(pasted('sweep', one.name, '--approve', one.name))}"
            )


def _cells(one: FusedRule, timespec: str) -> dict[str, str]:
    step, given = one.step, one.approval
    return {
        "rule": escape(one.name),
        "then": step.action,
        "due": count_text(step.due),
        "of": count_text(step.table_rows),
        "share": "" if step.share is None else f"{step.share:.1%}",
        "oldest": time_text(step.oldest, timespec),
        "cutoff": time_text(step.cutoff, timespec),
        "plan": one.plan or "",
        "approved": ""
        if given is None
        else f"until {time_text(given.expires_at, timespec)} by {escape(given.approved_by)}",
    }


def _print_given(given: Sequence[Approval], contract: Contract) -> None:
    for one in given:
        name = escape(f"{one.table}.{one.rule}")
        until = time_text(one.expires_at)
        print_line(f"[bold]{name}[/] may take {many(one.rows, 'row')} (plan {one.plan}), until {until} at the latest")
        most = find_rule(find_table(contract, one.table), one.rule).budget.rows
        if one.rows > most:
            setting = key_path(["table", one.table, "rule", one.rule, "budget", "rows"])
            print_line(
                f"  [yellow]its budget ends a sweep after {many(most, 'row')},[/] so that takes"
                f" {math.ceil(one.rows / most):,} sweeps or more; to take more in one, raise {escape(setting)}"
            )
