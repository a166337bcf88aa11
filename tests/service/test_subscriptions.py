"""Subscriptions: rows of the store for the agent's own, and no forge is asked."""

import math
from dataclasses import replace

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from compass_forged.errors import StoreConflict, StoreUnavailable, SubscriptionsExhausted, ValueRefused
from compass_forged.hub import CallDeadlines, Hub
from compass_forged.ports import CallContext, Caller, Coordinate, Session
from compass_forged.sessions import SessionTable
from compass_forged.wire.codec import encode_reply
from compass_forged.wire.schema import (
    Arm,
    ForgeCall,
    ForgeSelector,
    ResultArm,
    ResultFrame,
    Subscribe,
    Unsubscribe,
    UnsubscribedResult,
)
from tests.support.core import Logged
from tests.support.service import (
    GHE,
    SUBSCRIBE,
    Guard,
    World,
    account_of,
    error_of,
    new_world,
    raising,
    refusal_of,
    subscription_of,
    waiting,
)

ON_PULL = Subscribe(repo="Acme/site", kind="pull_request", number=1)
SCOPED = ("github/acme/*",)


def payload(result: ResultArm) -> bytes:
    return encode_reply(ResultFrame(call_id="1", result=result))


async def row_of(world: World, ended_by: Unsubscribe, caller: Caller | None = None) -> tuple[Coordinate, str, bool]:
    agent_id = account_of(caller or world.scout).agent_id
    row = await world.store.subscription(agent_id, ended_by.subscription_id)
    assert row is not None
    return row.coordinate, row.session_id, row.live


# --- subscribe ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", [SUBSCRIBE, ON_PULL], ids=lambda arm: arm.kind)
@pytest.mark.parametrize(("forge", "host"), [(None, "github.com"), (ForgeSelector("GitHub", GHE.upper()), GHE)])
async def test_a_subscription_is_a_row_and_no_forge_is_asked(
    arm: Subscribe, forge: ForgeSelector | None, host: str
) -> None:
    world = await new_world()
    context = CallContext("c1", Guard())
    ended_by = subscription_of(await world.run(arm, forge=forge, context=context))
    assert world.events == ["subscribe"]
    assert world.forge_calls == 0
    assert context.coordinate == f"github:{host}/acme/site"
    assert await row_of(world, ended_by) == (("github", host, "acme/site", arm.kind, 1), "s-1", True)


async def test_subscribing_again_answers_the_same_id_however_the_place_is_written() -> None:
    world = await new_world()
    first = await world.run(SUBSCRIBE)
    same = [
        await world.run(SUBSCRIBE, "k-1"),
        await world.run(msgspec.structs.replace(SUBSCRIBE, repo="aCME/SITE"), forge=ForgeSelector("github")),
        await world.run(SUBSCRIBE, caller=replace(world.scout, session_id="s-9")),
    ]
    assert {payload(result) for result in same} == {payload(first)}
    others = [
        await world.run(ON_PULL),
        await world.run(msgspec.structs.replace(SUBSCRIBE, number=2)),
        await world.run(SUBSCRIBE, forge=ForgeSelector("github", GHE)),
        await world.run(SUBSCRIBE, caller=world.pilot),
    ]
    assert len({payload(result) for result in [first, *others]}) == 5


async def test_what_has_ended_begins_again_under_the_same_id() -> None:
    world = await new_world()
    first = await world.run(SUBSCRIBE)
    ended_by = subscription_of(first)
    await world.run(ended_by)
    assert not (await row_of(world, ended_by))[2]
    assert payload(await world.run(SUBSCRIBE, caller=replace(world.scout, session_id="s-9"))) == payload(first)
    assert (await row_of(world, ended_by))[1:] == ("s-9", True)


# --- unsubscribe ----------------------------------------------------------------------------------------------------


async def test_unsubscribing_ends_the_row_and_again_is_no_error() -> None:
    world = await new_world()
    ended_by = subscription_of(await world.run(SUBSCRIBE))
    world.events.clear()
    for _ in range(3):
        assert await world.run(ended_by) == UnsubscribedResult()
    assert world.events == ["unsubscribe"] * 3  # one statement each, and nothing else
    assert world.forge_calls == 0
    assert not (await row_of(world, ended_by))[2]


@pytest.mark.parametrize("scope", [None, SCOPED, ()], ids=str)
async def test_another_agents_id_and_one_that_never_was_are_the_same_bytes(scope: tuple[str, ...] | None) -> None:
    world = await new_world()
    theirs = subscription_of(await world.run(SUBSCRIBE, caller=world.pilot))
    caller = replace(world.scout, scope=scope)
    unknown = ["0b9a2cf4-6f5e-4a86-9bd1-0c7a2f1f9a11", "41", "x" * 128, theirs.subscription_id.upper(), "\ufffd"]
    arms = [theirs, *(Unsubscribe(subscription_id=each) for each in unknown)]
    replies = {payload(await world.run(arm, caller=caller)) for arm in arms}
    assert len(replies) == 1
    error = error_of(await world.run(theirs, caller=caller))
    assert (error.code, error.outcome) == ("not_found", "rejected")
    assert error.message == "no such subscription of this agent"
    assert (await row_of(world, theirs, world.pilot))[2]  # it stands


@pytest.mark.parametrize(
    ("scope", "allowed"),
    [
        (None, True),
        (SCOPED, True),
        (("github:github.com/acme/site",), True),
        (("github/acme/other", "linear/acme"), False),
        ((f"github:{GHE}/acme/*",), False),
        ((), False),
    ],
    ids=str,
)
async def test_the_scope_judges_by_where_the_row_stands(scope: tuple[str, ...] | None, *, allowed: bool) -> None:
    world = await new_world()
    ended_by = subscription_of(await world.run(SUBSCRIBE))
    world.events.clear()
    context = CallContext("c1", Guard())
    # The forge that the call names is nothing to it.
    forge = ForgeSelector("gitlab", "nowhere")
    result = await world.run(ended_by, caller=replace(world.scout, scope=scope), forge=forge, context=context)
    live = (await row_of(world, ended_by))[2]
    assert live == (not allowed)
    if allowed:
        assert result == UnsubscribedResult()
    else:
        assert refusal_of(result) == ("permission_denied", "not_sent")
        assert world.events == ["subscription", "subscription"]  # the second is this test's own
    assert context.coordinate == ("" if scope is None else "github:github.com/acme/site")


# --- a store that is away, slow or says no --------------------------------------------------------------------------


async def arms_of(world: World) -> list[Arm]:
    """A good call of both arms."""
    return [ON_PULL, subscription_of(await world.run(SUBSCRIBE))]


@pytest.mark.parametrize("index", [0, 1], ids=["subscribe", "unsubscribe"])
@pytest.mark.parametrize("scope", [None, SCOPED], ids=["all", "scoped"])
async def test_a_store_known_to_be_away_is_not_asked(index: int, scope: tuple[str, ...] | None) -> None:
    world = await new_world()
    arm = (await arms_of(world))[index]
    world.store.available = False
    world.store.touches = 0
    error = error_of(await world.run(arm, caller=replace(world.scout, scope=scope)))
    assert (error.code, error.outcome, error.retry_after_ms) == ("unavailable", "not_sent", 1000)
    assert world.untouched


@pytest.mark.parametrize(
    ("raised", "code", "outcome", "words"),
    [
        (StoreUnavailable("connection lost"), "unavailable", "unknown", "not known whether this was kept; ask again"),
        (SubscriptionsExhausted("the agent has 9 of 9"), "resource_exhausted", "rejected", "the agent has 9 of 9"),
        (StoreConflict("a row"), "internal", "rejected", "refused this record; nothing was changed"),
        (ValueRefused("a rule"), "internal", "rejected", "refused this record; nothing was changed"),
        (RuntimeError("a bug"), "internal", "unknown", "its log says why"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("index", [0, 1], ids=["subscribe", "unsubscribe"])
async def test_what_comes_of_a_statement_that_went_out_is_told_truly(
    events: Logged, index: int, raised: Exception, code: str, outcome: str, words: str
) -> None:
    world = await new_world()
    arm = (await arms_of(world))[index]
    world.store.hooks["subscribe" if index == 0 else "unsubscribe"].append(raising(raised))
    error = error_of(await world.run(arm))
    assert (error.code, error.outcome) == (code, outcome)
    assert words in error.message
    assert len(events) == (code == "internal")
    assert not hasattr(await world.run(arm), "code")  # asking again does no harm


async def test_a_look_up_that_fails_changed_nothing() -> None:
    world = await new_world()
    ended_by = subscription_of(await world.run(SUBSCRIBE))
    world.store.hooks["subscription"].append(raising(StoreUnavailable("connection lost")))
    result = await world.run(ended_by, caller=replace(world.scout, scope=SCOPED))
    assert refusal_of(result) == ("unavailable", "not_sent")
    assert (await row_of(world, ended_by))[2]


@pytest.mark.parametrize("index", [0, 1], ids=["subscribe", "unsubscribe"])
async def test_a_deadline_within_the_statement_is_unknown_and_the_statement_ends_by_itself(
    index: int, autojump_clock: MockClock
) -> None:
    world = await new_world()
    arm = (await arms_of(world))[index]
    world.store.hooks["subscribe" if index == 0 else "unsubscribe"].append(waiting(40))
    hub = Hub(SessionTable([Session("s-1", "c1", account_of(world.scout))]), counters=world.counters,
              deadlines=CallDeadlines(write_seconds=30, grace_seconds=30))  # fmt: skip
    hub.wire(world.service)
    async with trio.open_nursery() as nursery:
        await nursery.start(hub.run)
        reply = await hub.relay("s-1", ForgeCall(call_id="1", arm=arm))
        assert isinstance(reply, ResultFrame)
        assert refusal_of(reply.result) == ("deadline_exceeded", "unknown")
        await trio.sleep(15)
        assert hub.in_flight == 0
        nursery.cancel_scope.cancel()
    if index == 1:
        assert isinstance(arm, Unsubscribe)
        assert not (await row_of(world, arm))[2]


async def test_a_look_up_that_hangs_ends_with_the_deadline_and_nothing_was_sent(autojump_clock: MockClock) -> None:
    world = await new_world()
    ended_by = subscription_of(await world.run(SUBSCRIBE))
    world.store.hooks["subscription"].append(waiting(math.inf))
    guard = Guard()
    with trio.move_on_after(5) as scope:
        await world.run(ended_by, caller=replace(world.scout, scope=SCOPED), guard=guard)
    assert scope.cancelled_caught
    assert not guard.sent


async def test_an_agent_may_have_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await new_world()
    monkeypatch.setattr("compass_forged.store.rules.SUBSCRIPTIONS_LIMIT", 2)
    ended_by = subscription_of(await world.run(SUBSCRIBE))
    await world.run(ON_PULL)
    third = msgspec.structs.replace(SUBSCRIBE, number=3)
    error = error_of(await world.run(third))
    assert (error.code, error.outcome) == ("resource_exhausted", "rejected")
    assert "as many as it may" in error.message
    assert not hasattr(await world.run(third, caller=world.pilot), "code")
    assert await world.run(ended_by) == UnsubscribedResult()
