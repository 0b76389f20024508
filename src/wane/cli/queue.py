"""`wane queue`: looking into the cleanup queue, helping it along, and dealing with its dead letters."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from wane.cli.options import CONTRACT, ContractOption, JsonOption, UrlOption
from wane.cli.output import console, many, moment_text, print_fitting, print_json, say, table
from wane.cli.own import open_alone
from wane.cli.prune import ActorOption
from wane.contract.duration import parse_duration
from wane.errors import WaneError
from wane.queue import Answered, DeadLetter, Message, MessageState, Queue
from wane.schedule.worker import policy_of

queue_app = typer.Typer(help="The cleanup queue: leased messages.", no_args_is_help=True)
dead_app = typer.Typer(help="Messages that were delivered as often as they may be.", no_args_is_help=True)
queue_app.add_typer(dead_app, name="dead")

PoolOption = Annotated[
    str | None, typer.Option(help="The work pool; the contract's own, `retention` unless it says otherwise.")
]
MessageArgument = Annotated[str, typer.Argument(metavar="MESSAGE", help="Its id.")]
LimitOption = Annotated[int, typer.Option(min=1, max=1_000, help="The most to show.")]
KindOption = Annotated[str | None, typer.Option(help="Only messages of this kind.")]
_UNFINISHED = [state.value for state in (MessageState.READY, MessageState.DELAYED, MessageState.RESERVED)]


@queue_app.command("list")
def list_(
    pool: PoolOption = None,
    state: Annotated[str | None, typer.Option(help="Only ready, delayed or reserved ones.")] = None,
    kind: KindOption = None,
    limit: LimitOption = 100,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List unfinished messages: ready ones, the oldest first, then those that wait for a moment, the next one first."""
    if state is not None and state not in _UNFINISHED:
        raise typer.BadParameter(f"{state!r} is not one of {', '.join(_UNFINISHED)}", param_hint="--state")
    with _queue(contract, url, pool, read_only=True) as queue:
        found = queue.messages(state=state, kind=kind, limit=limit)
    if as_json:
        print_json([_plain(message) for message in found])
        return
    print_fitting(
        [partial(_cells, message) for message in found],
        (("message", "kind", "state", "deliveries", "since", "due"), "seconds"),
        (("message", "kind", "state", "since", "due"), "seconds"),
        (("message", "kind", "state", "since", "due"), "minutes"),
        (("message", "kind", "state", "since"), "minutes"),
        (("message", "kind", "state"), "minutes"),
        right=("deliveries",),
    )


@queue_app.command("show")
def show(
    message_id: MessageArgument,
    pool: PoolOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show an unfinished message, with what it carries."""
    with _queue(contract, url, pool, read_only=True) as queue:
        message = queue.read_message(message_id)
        if message is None:
            dead = queue.read_dead_letter(message_id) is not None
            place = f"--pool {shlex.quote(queue.pool)}"
            named = f"it is a dead letter: `wane queue dead show {shlex.quote(message_id)} {place}`"
            hint = named if dead else f"`wane queue list {place}` shows those there are"
            raise WaneError(f"pool {queue.pool!r} has no unfinished message {message_id!r}", hint)
    _print_one(_plain(message), as_json=as_json)


@queue_app.command("enqueue")
def enqueue(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="What is to be done: workers may ask for some kinds only.")
    ],
    pool: PoolOption = None,
    message_id: Annotated[str | None, typer.Option("--id", help="Its id; a random one if left out.")] = None,
    key: Annotated[str | None, typer.Option(help="Its idempotency key; its id if left out.")] = None,
    target: Annotated[str, typer.Option(metavar="JSON", help="What it is about, as a JSON object.")] = "{}",
    data: Annotated[str, typer.Option(metavar="JSON", help="What else it carries, as a JSON object.")] = "{}",
    work_queue: Annotated[str | None, typer.Option(help="The work queue it is for, if any.")] = None,
    delay: Annotated[str | None, typer.Option(metavar="DURATION", help="Ready only after so long, such as 5m.")] = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Store a message, once: if its id or key is known, the message that has it is shown."""
    values: dict[str, Any] = {"target": _object(target, "--target"), "data": _object(data, "--data")}
    if delay is not None:
        try:
            values["delay"] = parse_duration(delay)
        except ValueError as problem:
            raise typer.BadParameter(str(problem), param_hint="--delay") from problem
    with _queue(contract, url, pool) as queue:
        message = queue.enqueue(kind, message_id=message_id, key=key, work_queue_id=work_queue, **values)
    if as_json:
        print_json(_plain(message))
    else:
        say(f"message [bold]{escape(message.message_id)}[/] is {message.state.value}")


@queue_app.command("notify")
def notify(
    pool: PoolOption = None, contract: ContractOption = CONTRACT, url: UrlOption = None, as_json: JsonOption = False
) -> None:
    """Wake whoever waits for the pool."""
    with _queue(contract, url, pool) as queue:
        sequence = queue.notify()
    if as_json:
        print_json({"pool": queue.pool, "sequence": sequence})
    else:
        say(f"wakeup [bold]{sequence}[/] of pool {escape(queue.pool)}")


@queue_app.command("expire")
def expire(
    pool: PoolOption = None,
    everywhere: Annotated[bool, typer.Option("--everywhere", help="Of all pools, by this contract's policy.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="The most messages to look at.")] = 100,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give back messages whose lease has ended, and let delayed ones be ready whose moment has come."""
    with _queue(contract, url, pool) as queue:
        expired = queue.expire_leases(limit, everywhere=everywhere)
    if as_json:
        print_json(
            {
                "redelivered": [_plain(message) for message in expired.redelivered],
                "dead_lettered": [_plain_letter(letter) for letter in expired.dead_lettered],
                "ready": [_plain(message) for message in expired.ready],
            }
        )
    else:
        say(
            f"{many(len(expired.redelivered), 'message')} given back, {len(expired.dead_lettered):,} dead,"
            f" {len(expired.ready):,} ready after a pause"
        )


@dead_app.command("list")
def dead_list(
    pool: PoolOption = None,
    kind: KindOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Resolved ones too.")] = False,
    before: Annotated[int | None, typer.Option(min=1, help="The number of the last one of the page before.")] = None,
    limit: LimitOption = 100,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """List dead letters, newest first."""
    with _queue(contract, url, pool, read_only=True) as queue:
        found = queue.dead_letters(kind=kind, resolved=everything, before=before, limit=limit)
    if as_json:
        print_json([_plain_letter(letter) for letter in found])
        return
    print_fitting(
        [partial(_letter_cells, letter) for letter in found],
        (("number", "message", "kind", "deliveries", "dead since", "said", "resolved"), "seconds"),
        (("number", "message", "kind", "dead since", "said", "resolved"), "minutes"),
        (("number", "message", "kind", "dead since", "said"), "days"),
        (("number", "message", "said"), "days"),
        right=("number",),
    )


@dead_app.command("show")
def dead_show(
    message_id: MessageArgument,
    pool: PoolOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a dead letter, with what it carries and why it is dead."""
    with _queue(contract, url, pool, read_only=True) as queue:
        letter = queue.read_dead_letter(message_id)
        if letter is None:
            raise _no_letter(queue, message_id)
    _print_one(_plain_letter(letter), as_json=as_json)


@dead_app.command("resolve")
def dead_resolve(
    message_id: MessageArgument,
    pool: PoolOption = None,
    actor: ActorOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say that a dead letter was dealt with: from now on it may be pruned."""
    with open_alone(url, contract, actor=actor) as keeper:
        queue = keeper.queue(keeper.contract.queue.pool if pool is None else pool)
        answered = queue.resolve(message_id, by=keeper.pruner.actor)
    _settled(queue, message_id, answered, "is resolved", as_json=as_json)


@dead_app.command("requeue")
def dead_requeue(
    message_id: MessageArgument,
    pool: PoolOption = None,
    contract: ContractOption = CONTRACT,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deliver a dead letter again, as if it had never been delivered."""
    with _queue(contract, url, pool) as queue:
        answered = queue.requeue(message_id)
    _settled(queue, message_id, answered, "is ready again", as_json=as_json)


def _settled(queue: Queue, message_id: str, answered: Answered, done: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"message_id": message_id, "answer": answered.answer.value, "reason": answered.reason})
        if not answered.accepted:
            raise typer.Exit(1)
        return
    if answered.reason == "already_resolved":
        raise WaneError(f"dead letter {message_id!r} is resolved already", "enqueue the work anew if it is to be done")
    if not answered.accepted:
        raise _no_letter(queue, message_id)
    say(f"dead letter [bold]{escape(message_id)}[/] {done}")


def _no_letter(queue: Queue, message_id: str) -> WaneError:
    return WaneError(
        f"pool {queue.pool!r} has no dead letter {message_id!r}",
        f"`wane queue dead list --all --pool {shlex.quote(queue.pool)}` shows those there are",
    )


@contextmanager
def _queue(contract: Path, url: str | None, pool: str | None, *, read_only: bool = False) -> Iterator[Queue]:
    with open_alone(url, contract, read_only=read_only) as keeper:
        yield keeper.queue(keeper.contract.queue.pool if pool is None else pool, policy=policy_of(keeper.contract))


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


def _plain_letter(letter: DeadLetter) -> dict[str, Any]:
    return _plain(letter.message)


def _print_one(found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    shown = table("what", "is", show_header=False)
    for name, value in found.items():
        if isinstance(value, datetime):
            shown.add_row(name, moment_text(value))
        elif value is not None:
            shown.add_row(
                name, escape(json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value))
            )
    console().print(shown)


def _cells(message: Message, timespec: str) -> dict[str, str]:
    return {
        "message": escape(message.message_id),
        "kind": escape(message.kind),
        "state": message.state.value,
        "deliveries": str(message.deliveries),
        "since": moment_text(message.created_at, timespec),
        "due": moment_text(message.due_at, timespec),
    }


def _letter_cells(letter: DeadLetter, timespec: str) -> dict[str, str]:
    return {
        "number": str(letter.message.seq),
        "message": escape(letter.message.message_id),
        "kind": escape(letter.message.kind),
        "deliveries": str(letter.final_delivery_count),
        "dead since": moment_text(letter.moved_at, timespec),
        "said": escape(letter.release_reason or ""),
        "resolved": escape(f"by {letter.resolved_by}" if letter.resolved_by else ""),
    }
