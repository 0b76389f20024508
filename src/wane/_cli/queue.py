"""`wane queue`: the messages of the cleanup queue, and its dead letters."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer
from rich.markup import escape

from wane._cli.harness import WITHOUT_TABLES, Call, CommandResult, Services, command
from wane._cli.output import console, many, print_fitting, print_line, table
from wane._cli.values import parse_length
from wane._formats import time_text
from wane._schedule.worker import policy_of
from wane.errors import WaneError
from wane.queue import Answered, DeadLetter, Message, MessageState, Queue

app = typer.Typer(help="The cleanup queue: leased messages.", no_args_is_help=True)
dead_app = typer.Typer(help="Messages that were delivered as often as they may be.", no_args_is_help=True)
app.add_typer(dead_app, name="dead")

PoolOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The work pool; the contract's own, `retention` by default."),
]
MessageArgument = Annotated[str, typer.Argument(metavar="MESSAGE", help="Its id.")]
LimitOption = Annotated[int, typer.Option(min=1, max=1_000, help="The most to show.")]
KindOption = Annotated[str | None, typer.Option(metavar="KIND", help="Only messages of this kind.")]
_UNFINISHED = [state.value for state in (MessageState.READY, MessageState.DELAYED, MessageState.RESERVED)]


@command(app, "list")
def list_(
    call: Call,
    pool: PoolOption = None,
    state: Annotated[str | None, typer.Option(metavar="STATE", help="Only ready, delayed or reserved ones.")] = None,
    kind: KindOption = None,
    limit: LimitOption = 100,
) -> CommandResult:
    """List unfinished messages: ready ones, the oldest first, then reserved and delayed ones, by the time they are
    due."""
    if state is not None and state not in _UNFINISHED:
        raise typer.BadParameter(f"{state!r} is not one of {', '.join(_UNFINISHED)}", param_hint="--state")
    found = _open(call, pool, read_only=True).messages(state=state, kind=kind, limit=limit)
    return CommandResult([_plain(message) for message in found], lambda: _print_messages(found))


def _print_messages(found: Sequence[Message]) -> None:
    print_fitting(
        [partial(_cells, message) for message in found],
        (("message", "kind", "state", "deliveries", "since", "due"), "seconds"),
        (("message", "kind", "state", "since", "due"), "seconds"),
        (("message", "kind", "state", "since", "due"), "minutes"),
        (("message", "kind", "state", "since"), "minutes"),
        (("message", "kind", "state"), "minutes"),
        right=("deliveries",),
    )


@command(app, "show")
def show(call: Call, message_id: MessageArgument, pool: PoolOption = None) -> CommandResult:
    """Show an unfinished message, with what it carries. Exits 1 if there is none of that id."""
    queue = _open(call, pool, read_only=True)
    message = queue.read_message(message_id)
    if message is None:
        dead = queue.read_dead_letter(message_id) is not None
        option = f"--pool {shlex.quote(queue.pool)}"
        named = f"it is a dead letter: `wane queue dead show {shlex.quote(message_id)} {option}`"
        hint = named if dead else f"`wane queue list {option}` shows those there are"
        raise WaneError(f"pool {queue.pool!r} has no unfinished message {message_id!r}", hint)
    return _one(_plain(message))


@command(app, "enqueue")
def enqueue(
    call: Call,
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="What is to be done: workers may ask for some kinds only.")
    ],
    pool: PoolOption = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Its id; a random one if left out.")
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Its idempotency key; its id if left out.")] = None,
    target: Annotated[str, typer.Option(metavar="JSON", help="What it is about, as a JSON object.")] = "{}",
    data: Annotated[str, typer.Option(metavar="JSON", help="What else it carries, as a JSON object.")] = "{}",
    work_queue: Annotated[str | None, typer.Option(metavar="NAME", help="The work queue it is for, if any.")] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Ready only after that time, such as 5m.")
    ] = None,
) -> CommandResult:
    """Store a message, once: if its id or key is known, the message that has it is shown."""
    values: dict[str, Any] = {"target": _object(target, "--target"), "data": _object(data, "--data")}
    if delay is not None:
        values["delay"] = parse_length(delay, "--delay")
    message = _open(call, pool).enqueue(kind, message_id=message_id, key=key, work_queue_id=work_queue, **values)
    text = f"message [bold]{escape(message.message_id)}[/] is {message.state.value}"
    return CommandResult(_plain(message), lambda: print_line(text))


@command(app, "notify")
def notify(call: Call, pool: PoolOption = None) -> CommandResult:
    """Wake everything that waits for the pool; print its new sequence."""
    queue = _open(call, pool)
    sequence = queue.notify()
    text = f"wakeup [bold]{sequence}[/] of pool {escape(queue.pool)}"
    return CommandResult({"pool": queue.pool, "sequence": sequence}, lambda: print_line(text))


@command(app, "expire")
def expire(
    call: Call,
    pool: PoolOption = None,
    everywhere: Annotated[bool, typer.Option("--everywhere", help="Of all pools, by this contract's policy.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="The most messages.")] = 100,
) -> CommandResult:
    """Give back messages whose lease has ended. Delayed ones that are due become ready."""
    expired = _open(call, pool).expire_leases(limit, everywhere=everywhere)
    data = {
        "redelivered": [_plain(message) for message in expired.redelivered],
        "dead_lettered": [_plain(letter.message) for letter in expired.dead_lettered],
        "ready": [_plain(message) for message in expired.ready],
    }
    text = (
        f"{many(len(expired.redelivered), 'message')} given back, {len(expired.dead_lettered):,} dead,"
        f" {len(expired.ready):,} ready after a pause"
    )
    return CommandResult(data, lambda: print_line(text))


@command(dead_app, "list")
def dead_list(
    call: Call,
    pool: PoolOption = None,
    kind: KindOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Resolved ones too.")] = False,
    before: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", min=1, help="The next page: only those before this number, the last one shown."),
    ] = None,
    limit: LimitOption = 100,
) -> CommandResult:
    """List dead letters, newest first."""
    queue = _open(call, pool, read_only=True)
    found = queue.dead_letters(kind=kind, resolved=everything, before=before, limit=limit)
    return CommandResult([_plain(letter.message) for letter in found], lambda: _print_letters(found))


def _print_letters(found: Sequence[DeadLetter]) -> None:
    print_fitting(
        [partial(_letter_cells, letter) for letter in found],
        (("number", "message", "kind", "deliveries", "dead since", "reason", "resolved"), "seconds"),
        (("number", "message", "kind", "dead since", "reason", "resolved"), "minutes"),
        (("number", "message", "kind", "dead since", "reason"), "days"),
        (("number", "message", "reason"), "days"),
        right=("number",),
    )


@command(dead_app, "show")
def dead_show(call: Call, message_id: MessageArgument, pool: PoolOption = None) -> CommandResult:
    """Show a dead letter, with what it carries and why it is dead. Exits 1 if there is none of that id."""
    queue = _open(call, pool, read_only=True)
    letter = queue.read_dead_letter(message_id)
    if letter is None:
        raise _no_letter(queue, message_id)
    return _one(_plain(letter.message))


@command(dead_app, "resolve", Services(actor=True))
def dead_resolve(call: Call, message_id: MessageArgument, pool: PoolOption = None) -> CommandResult:
    """Record that a dead letter was dealt with: from now on it may be pruned."""
    keeper = call.open(call.load(without_file=WITHOUT_TABLES))
    queue = keeper.queue(keeper.contract.queue.pool if pool is None else pool)
    answered = queue.resolve(message_id, by=keeper.pruner.actor)
    return _settled(queue, message_id, answered, "is resolved")


@command(dead_app, "requeue")
def dead_requeue(call: Call, message_id: MessageArgument, pool: PoolOption = None) -> CommandResult:
    """Deliver a dead letter again, as if it had never been delivered."""
    queue = _open(call, pool)
    return _settled(queue, message_id, queue.requeue(message_id), "is ready again")


def _settled(queue: Queue, message_id: str, answered: Answered, done: str) -> CommandResult:
    def show() -> None:
        if answered.reason == "already_resolved":
            hint = "enqueue the work anew if it is to be done"
            raise WaneError(f"dead letter {message_id!r} is resolved already", hint)
        if not answered.accepted:
            raise _no_letter(queue, message_id)
        print_line(f"dead letter [bold]{escape(message_id)}[/] {done}")

    data = {"message_id": message_id, "answer": answered.answer.value, "reason": answered.reason}
    return CommandResult(data, show, 0 if answered.accepted else 1)


def _no_letter(queue: Queue, message_id: str) -> WaneError:
    return WaneError(
        f"pool {queue.pool!r} has no dead letter {message_id!r}",
        f"`wane queue dead list --all --pool {shlex.quote(queue.pool)}` shows those there are",
    )


def _open(call: Call, pool: str | None, *, read_only: bool = False) -> Queue:
    keeper = call.open(call.load(without_file=WITHOUT_TABLES), read_only=read_only)
    return keeper.queue(keeper.contract.queue.pool if pool is None else pool, policy=policy_of(keeper.contract))


def _object(text: str, option: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as problem:
        raise typer.BadParameter(f"it is not JSON: {problem}", param_hint=option) from problem
    if not isinstance(found, dict):
        raise typer.BadParameter("it must be a JSON object", param_hint=option)
    return found


def _plain(message: Message) -> dict[str, Any]:
    """Return everything but the hash of its token, which is secret."""
    return {name: value for name, value in asdict(message).items() if name != "token_hash"}


def _one(found: dict[str, Any]) -> CommandResult:
    def show() -> None:
        shown = table("what", "is", show_header=False)
        for name, value in found.items():
            if isinstance(value, datetime):
                shown.add_row(name, time_text(value))
            elif value is not None:
                text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
                shown.add_row(name, escape(text))
        console().print(shown)

    return CommandResult(found, show)


def _cells(message: Message, timespec: str) -> dict[str, str]:
    return {
        "message": escape(message.message_id),
        "kind": escape(message.kind),
        "state": message.state.value,
        "deliveries": str(message.deliveries),
        "since": time_text(message.created_at, timespec),
        "due": time_text(message.due_at, timespec),
    }


def _letter_cells(letter: DeadLetter, timespec: str) -> dict[str, str]:
    return {
        "number": str(letter.message.seq),
        "message": escape(letter.message.message_id),
        "kind": escape(letter.message.kind),
        "deliveries": str(letter.final_delivery_count),
        "dead since": time_text(letter.moved_at, timespec),
        "reason": escape(letter.release_reason or ""),
        "resolved": escape(f"by {letter.resolved_by}" if letter.resolved_by else ""),
    }
