"""`wane queue`: looking into the cleanup queue, helping it along, and dealing with its dead letters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from cli.conftest import Wane
from queueing import opened, taken
from servers import Database
from wane._db import Store
from wane.queue import Queue, RetryPolicy


@pytest.fixture
def ready(filled: Database, wane: Wane) -> Database:
    assert wane("migrate").code == 0
    return filled


@pytest.fixture
def store(ready: Database) -> Iterator[Store]:
    with opened(ready) as store:
        yield store


@pytest.fixture
def queue(store: Store) -> Queue:
    """Return the pool that the command uses, unless another is named."""
    return Queue(store, "retention", policy=RetryPolicy(attempts=1))


def bury(queue: Queue, name: str, kind: str = "k") -> None:
    queue.enqueue(kind, message_id=name, data={"n": 1})
    queue.release(name, taken(queue, kinds=[kind]).token, "it [red]failed[/]")


def test_messages_are_enqueued_listed_and_shown(wane: Wane, ready: Database) -> None:
    words = ("--id", "m [1]", "--key", "k", "--target", '{"table": "t"}', "--data", '{"n": [1]}', "--work-queue", "q")
    sent = wane("queue", "enqueue", "sweep", *words, "--json").json
    assert (sent["pool"], sent["message_id"], sent["state"]) == ("retention", "m [1]", "ready")
    assert (sent["target"], sent["data"], sent["work_queue_id"]) == ({"table": "t"}, {"n": [1]}, "q")
    assert "token_hash" not in sent
    repeated = wane("queue", "enqueue", "sweep", "--key", "k")
    assert (repeated.code, repeated.out, repeated.err) == (0, "", "message m [1] is ready\n")
    late = wane("queue", "enqueue", "late", "--delay", "5m", "--json").json
    assert late["state"] == "delayed"
    listed = wane("queue", "list", "--json").json
    assert [one["message_id"] for one in listed] == ["m [1]", late["message_id"]]
    assert wane("queue", "list", "--state", "delayed", "--json").json == [late]
    assert wane("queue", "list", "--kind", "sweep", "--limit", 1, "--json").json == [sent]
    assert wane("queue", "list", "--pool", "other", "--json").json == []
    assert wane("queue", "show", "m [1]", "--json").json == sent
    for done in (wane("queue", "list"), wane("queue", "show", "m [1]")):
        assert (done.code, done.err) == (0, "")
        assert "m [1]" in done.out
        assert "sweep" in done.out


@pytest.mark.parametrize(("width", "whole"), [(200, "deliveries"), (80, "since"), (50, "")])
def test_a_narrow_list_leaves_out_columns_rather_than_folding_words(
    wane: Wane, ready: Database, monkeypatch: pytest.MonkeyPatch, width: int, whole: str
) -> None:
    sent = wane("queue", "enqueue", "forget", "--json").json
    monkeypatch.setenv("COLUMNS", str(width))
    shown = wane("queue", "list").out
    assert max(map(len, shown.splitlines())) <= width
    assert whole in shown
    if width > 50:
        assert sent["message_id"] in shown
        assert len(shown.splitlines()) == 2


def test_a_pool_of_ones_own(wane: Wane, ready: Database) -> None:
    assert wane("queue", "enqueue", "k", "--pool", "it's 100 %", "--id", "m", "--json").json["pool"] == "it's 100 %"
    assert wane("queue", "show", "m").code == 1
    assert wane("queue", "show", "m", "--pool", "it's 100 %").code == 0
    assert wane("queue", "notify", "--pool", "it's 100 %", "--json").json == {"pool": "it's 100 %", "sequence": 2}
    assert wane("queue", "notify").err == "wakeup 1 of pool retention\n"


def test_overdue_messages_are_given_back(wane: Wane, ready: Database, store: Store) -> None:
    short = RetryPolicy(lease=timedelta(milliseconds=1), attempts=5)
    queues = [Queue(store, pool, policy=short) for pool in ("retention", "other")]
    for queue in queues:
        queue.enqueue("k", message_id="m")
        taken(queue)
    while (due := queues[1].next_due()) is None or due > (store.clock() or store.now()):
        time.sleep(0.01)
    done = wane("queue", "expire", "--json").json
    assert ([one["pool"] for one in done["redelivered"]], done["dead_lettered"], done["ready"]) == (
        ["retention"],
        [],
        [],
    )
    done = wane("queue", "expire", "--everywhere", "--limit", 5)
    assert (done.code, done.out, done.err) == (0, "", "1 message given back, 0 dead, 0 ready after a pause\n")


def test_dead_letters_are_listed_shown_resolved_and_requeued(wane: Wane, ready: Database, queue: Queue) -> None:
    for name in ("a", "b", "c"):
        bury(queue, name, kind=f"kind {name}")
    listed = wane("queue", "dead", "list", "--json").json
    assert [one["message_id"] for one in listed] == ["c", "b", "a"]
    assert (listed[0]["reason"], listed[0]["release_reason"]) == ("max_delivery_attempts_reached", "it [red]failed[/]")
    assert wane("queue", "dead", "list", "--before", listed[1]["seq"], "--json").json == listed[2:]
    assert wane("queue", "dead", "list", "--kind", "kind b", "--limit", 1, "--json").json == listed[1:2]
    assert wane("queue", "dead", "show", "b", "--json").json == listed[1]
    for words in (("list",), ("show", "b")):
        done = wane("queue", "dead", *words)
        assert (done.code, done.err) == (0, "")
        assert "it [red]failed[/]" in done.out
    done = wane("queue", "show", "b")
    assert (done.code, done.out) == (1, "")
    assert "wane queue dead show" in done.err

    assert wane("queue", "dead", "resolve", "b", "--actor", "anna").err == "dead letter b is resolved\n"
    assert [one["message_id"] for one in wane("queue", "dead", "list", "--json").json] == ["c", "a"]
    everything = wane("queue", "dead", "list", "--all", "--json").json
    assert [one["resolved_by"] for one in everything] == [None, "anna", None]
    assert wane("queue", "dead", "requeue", "c").err == "dead letter c is ready again\n"
    assert wane("queue", "dead", "requeue", "a", "--json").json == {
        "message_id": "a",
        "answer": "accepted",
        "reason": None,
    }
    assert [one["message_id"] for one in wane("queue", "list", "--json").json] == ["a", "c"]


def test_what_is_not_there_is_an_error_with_a_hint(wane: Wane, ready: Database, queue: Queue) -> None:
    for words in (("show", "no"), ("dead", "show", "no"), ("dead", "resolve", "no"), ("dead", "requeue", "no")):
        done = wane("queue", *words)
        assert (done.code, done.out) == (1, "")
        assert "pool 'retention' has no" in done.err
        assert "hint:" in done.err
        assert "--pool retention` shows those there are" in " ".join(done.err.split())
    done = wane("queue", "dead", "requeue", "no", "--json")
    assert (done.code, done.json["answer"], done.json["reason"]) == (1, "not_found", "dead_letter_not_found")
    bury(queue, "m")
    assert wane("queue", "dead", "resolve", "m").code == 0
    for verb in ("resolve", "requeue"):
        done = wane("queue", "dead", verb, "m")
        assert (done.code, done.out) == (1, "")
        assert "resolved already" in done.err
        assert wane("queue", "dead", verb, "m", "--json").json["answer"] == "not_current"


def test_wrong_usage_exits_two_and_wrong_values_exit_one(wane: Wane, ready: Database) -> None:
    usage: list[tuple[str, ...]] = [
        ("list", "--limit", "0"),
        ("list", "--limit", "1001"),
        ("list", "--state", "dead"),
        ("enqueue",),
        ("enqueue", "k", "--data", "[1]"),
        ("enqueue", "k", "--target", "{"),
        ("enqueue", "k", "--delay", "soon"),
        ("expire", "--limit", "-1"),
        ("dead", "list", "--before", "0"),
    ]
    for words in usage:
        assert wane("queue", *words).code == 2, words
    values: list[tuple[str, ...]] = [
        ("enqueue", ""),
        ("enqueue", "k", "--pool", ""),
        ("enqueue", "k", "--id", "x" * 900),
        ("enqueue", "k", "--data", '{"n": NaN}'),
        ("enqueue", "k", "--delay", "99999d"),
    ]
    for words in values:
        done = wane("queue", *words)
        assert (done.code, done.out) == (1, ""), words
        assert "error:" in done.err
    wane("queue", "enqueue", "k", "--id", "m", "--key", "a")
    done = wane("queue", "enqueue", "k", "--id", "m", "--key", "b")
    assert done.code == 1
    assert "exists with another key" in done.err


def test_without_the_tables_it_states_how_to_get_them(wane: Wane, filled: Database) -> None:
    for words in (("list",), ("enqueue", "k"), ("dead", "list"), ("notify",)):
        done = wane("queue", *words)
        assert (done.code, done.out) == (1, "")
        assert "wane migrate" in done.err
