"""The front door for asyncio: the same calls with the same results, one after the other."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from prune.keeping import EXPIRES, ago, insert, jobs, keeping, rule, table
from servers import Database
from wane._archive.asynchronous import AsyncArchive
from wane._archive.facade import Archive
from wane._async_keeper import AsyncKeeper
from wane._keeper import Keeper
from wane._partition.asynchronous import AsyncPartition
from wane._partition.facade import Partition
from wane._prune.pace import FAST
from wane.errors import WrongArgument


def public(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_") and callable(value)}


def test_every_call_of_a_keeper_can_be_awaited() -> None:
    missing = set(public(Keeper)) - set(public(AsyncKeeper))
    assert missing == set()
    extra = set(public(AsyncKeeper)) - set(public(Keeper))
    assert extra == set(), "what only one of them can do would be a second copy"


@pytest.mark.parametrize("name", sorted(public(Keeper)))
def test_an_awaited_call_is_a_coroutine_with_the_same_words(name: str) -> None:
    call = getattr(AsyncKeeper, name)
    assert inspect.iscoroutinefunction(call)
    assert call.__doc__ == getattr(Keeper, name).__doc__


def test_every_call_of_an_archive_can_be_awaited_with_the_same_words() -> None:
    assert set(public(AsyncArchive)) == set(public(Archive))
    for name, call in public(AsyncArchive).items():
        assert inspect.iscoroutinefunction(call)
        assert call.__doc__ == getattr(Archive, name).__doc__


def test_every_call_of_partitions_can_be_awaited_with_the_same_words() -> None:
    assert set(public(AsyncPartition)) == set(public(Partition))
    for name, call in public(AsyncPartition).items():
        assert inspect.iscoroutinefunction(call)
        assert call.__doc__ == getattr(Partition, name).__doc__


def test_calls_do_the_same(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30 - n)) for n in range(10)])
    database.execute("CREATE TABLE ticket (id integer NOT NULL PRIMARY KEY, expires_ms bigint)")
    insert(database, "ticket", "id, expires_ms", (1, ago(-1)), (2, ago(-1)))
    tables = table(), table("ticket", rule("expired", EXPIRES, when=()), state=None)

    async def use(keeper: AsyncKeeper) -> None:
        assert (await keeper.prune("job", rule="old", limit=1)).counts == {"job": 1}
        held = await keeper.hold("job", {"id": 1}, reason="a test")
        assert [one.id for one in await keeper.holds()] == [held.id]
        assert await keeper.enable() == "retention.enabled"
        plan = await keeper.plan("job")
        assert plan.due == 8
        assert (await keeper.preview("job", rule="old")).due == plan.steps[0].due
        swept = await keeper.apply(plan, pace=FAST)
        assert swept.rules[0].counts == {"job": 8}
        assert held.id is not None
        await keeper.release_hold(held.id)
        assert (await keeper.sweep("job", pace=FAST)).rules[0].counts == {"job": 1}
        assert await keeper.consume("ticket", {"id": 1}) == {"id": 1, "expires_ms": ago(-1)}
        assert await keeper.discard("ticket", {"id": 2}) is True
        await keeper.disable()
        assert [entry.rows for entry in await keeper.audit()] == [1, 8, 1]
        assert isinstance(await keeper.check(), list)

    with keeping(database, *tables) as opened:
        asyncio.run(use(AsyncKeeper(opened.keeper)))
        assert opened.ids() == []


def test_errors_reach_who_awaits(database: Database) -> None:
    jobs(database)

    async def use(keeper: AsyncKeeper) -> None:
        with pytest.raises(WrongArgument, match="limit"):
            await keeper.prune("job", rule="old", limit=0)

    with keeping(database) as opened:
        asyncio.run(use(AsyncKeeper(opened.keeper)))


def test_calls_that_are_awaited_together_run_one_after_the_other(database: Database) -> None:
    jobs(database, *[(n, "done", ago(30)) for n in range(40)])
    threads: set[str] = set()

    def listen(event: object) -> None:
        threads.add(threading.current_thread().name)

    async def use(keeper: AsyncKeeper) -> list[int]:
        calls: list[Awaitable[Any]] = [keeper.prune("job", rule="old", limit=5) for _ in range(8)]
        return [pruned.rows for pruned in await asyncio.gather(*calls)]

    with keeping(database, listener=listen) as opened:
        assert asyncio.run(use(AsyncKeeper(opened.keeper))) == [5] * 8
        assert opened.ids() == []
        assert [entry.rows for entry in opened.trail()] == [5] * 8
    assert len(threads) == 1
    assert threads != {threading.main_thread().name}


def test_the_loop_goes_on_while_a_call_waits(database: Database) -> None:
    """The keeper's thread stands still inside a listener; the loop does not."""
    jobs(database, (1, "done", ago(30)))
    free, waiting = threading.Event(), threading.Event()

    def listen(event: object) -> None:
        waiting.set()
        assert free.wait(30)

    async def use(keeper: AsyncKeeper) -> None:
        call = asyncio.create_task(_run(keeper))
        while not waiting.is_set():
            await asyncio.sleep(0)
        assert not call.done()
        free.set()
        assert (await call).rows == 1

    async def _run(keeper: AsyncKeeper) -> Any:
        return await keeper.prune("job", rule="old", limit=5)

    with keeping(database, listener=listen) as opened:
        asyncio.run(use(AsyncKeeper(opened.keeper)))


def test_it_opens_and_closes_like_a_keeper(database: Database, tmp_path: Any) -> None:
    jobs(database)
    contract = tmp_path / "wane.toml"
    contract.write_text(
        '[scheduler]\ntick = { every = "5m" }\n[table.job]\nwhy = "x"\nscheduler = "tick"\nstate = "state"\n'
        'live = []\ntime = { column = "at_ms", unit = "ms" }\n[table.job.rule.old]\nwhen = ["done"]\nkeep = "7d"\n'
    )

    async def use() -> None:
        async with await AsyncKeeper.open(database.url, contract=contract, actor="anna") as keeper:
            assert (await keeper.plan()).due == 0

    asyncio.run(use())
