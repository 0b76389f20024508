"""Work claims for asyncio: the same calls with the same results."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from claims.working import DAY, pass_time
from servers import Database
from wane._async_keeper import AsyncKeeper
from wane._keeper import Keeper
from wane.claims import AsyncWorkClaims, Claim, Denial, Reclaim, WorkClaims
from wane.errors import ClaimLost
from wane.reference import contract_path


def public(kind: type) -> dict[str, Callable[..., Any]]:
    return {name: value for name, value in vars(kind).items() if not name.startswith("_") and inspect.isfunction(value)}


def test_every_call_can_be_awaited_and_no_other() -> None:
    assert set(public(AsyncWorkClaims)) == set(public(WorkClaims))


@pytest.mark.parametrize("name", sorted(public(WorkClaims)))
def test_an_awaited_call_is_a_coroutine_with_the_same_words(name: str) -> None:
    call = getattr(AsyncWorkClaims, name)
    assert inspect.iscoroutinefunction(call)
    assert call.__doc__ == getattr(WorkClaims, name).__doc__


def test_a_keepers_claims_take_the_same_arguments() -> None:
    assert list(inspect.signature(AsyncKeeper.claims).parameters) == list(inspect.signature(Keeper.claims).parameters)


def test_calls_do_the_same(database: Database) -> None:
    async def use() -> None:
        async with await AsyncKeeper.open(database.url, contract=contract_path("claims"), actor="ada") as keeper:
            await keeper.migrate()
            claims = await keeper.claims(reclaim=Reclaim.never(), reclaim_abandoned=Reclaim.always())
            assert await claims.missing()
            assert await claims.missing_sql()
            assert await claims.install()
            await claims.submit("t")
            claim, denial = await asyncio.gather(claims.claim("t", "ada", 60), claims.claim("t", "bob", 60))
            assert isinstance(claim, Claim)
            assert isinstance(denial, Denial)
            claim = await claims.extend(claim, 600)
            work = await claims.complete(claim)
            assert await claims.get("t") == work
            assert [one.task_id for one in await claims.list_by_state("completed")] == ["t"]
            other = await claims.claim("u", "ada", 60)
            assert isinstance(other, Claim)
            await claims.abandon(other)
            assert isinstance(await claims.claim("u", "bob", 60), Claim)
            with pytest.raises(ClaimLost):
                await claims.complete(other)
            pass_time(database, 30 * DAY)
            assert [one.task_id for one in await claims.list_expired()] == ["u"]
            assert [one.task_id for one in await claims.return_expired()] == ["u"]
            [step] = (await claims.preview_vacuum(completed_age_hours=1)).values()
            assert step.due is not None
            assert step.due.rows == 1
            assert (await claims.vacuum(completed_age_hours=1)).rows == 1
            assert (await claims.vacuum_expired(completed_age_hours=1)).rows == 0
            memory = await claims.remembered("t")
            assert memory is not None
            assert memory.pruned

    asyncio.run(use())
