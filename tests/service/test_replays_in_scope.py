"""What an earlier create made is told within the scope of the session that asks now, whatever session made it."""

from dataclasses import replace

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from compass_forged.ports import Caller
from compass_forged.providers.fake import Step
from compass_forged.wire.schema import (
    Arm,
    CreateIssue,
    ForgeSelector,
    Issue,
    PullRequest,
    PullRequestResult,
    ResultArm,
    arm_name,
)
from tests.support.service import (
    CREATE,
    GHE,
    PULL,
    REPO,
    Guard,
    World,
    error_of,
    issue_of,
    new_world,
    pull_of,
    refusal_of,
    waiting,
)

ELSEWHERE = "Acme/other"
HERE = msgspec.structs.replace(CREATE, repo=ELSEWHERE)
PULL_HERE = msgspec.structs.replace(PULL, repo=ELSEWHERE)
SCOPE = ("github/acme/other",)
MESSAGE = "the session's scope does not include this repository"


def narrowed(world: World, scope: tuple[str, ...] = SCOPE) -> Caller:
    """The scout in a later session, which may touch the other repository alone."""
    return replace(world.scout, session_id="s-9", scope=scope)


def denied(result: ResultArm | None, outcome: str = "not_sent") -> None:
    """It is refused as any call outside the scope is, to the letter."""
    assert refusal_of(result) == ("permission_denied", outcome)
    assert error_of(result).message == MESSAGE


def made_of(result: ResultArm | None) -> Issue:
    """The issue or pull request that a call answered."""
    return pull_of(result) if isinstance(result, PullRequestResult) else issue_of(result)


# --- the memo -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_hand", [True, False], ids=["at hand", "in the store"])
@pytest.mark.parametrize(
    ("made", "asked"), [(CREATE, HERE), (PULL, PULL_HERE), (PULL, HERE), (CREATE, PULL_HERE)], ids=arm_name
)
async def test_a_memo_outside_the_scope_is_not_told(made: Arm, asked: Arm, *, at_hand: bool) -> None:
    world = await new_world()
    await world.run(made, "k-1")
    calls = world.forge_calls
    for _ in range(2):  # a memo that was read for it is not told the next time either
        world.events.clear()
        if not at_hand:
            world.service._creates._at_hand.clear()
        guard = Guard()
        denied(await world.run(asked, "k-1", caller=narrowed(world), guard=guard))
        assert world.events == ([] if at_hand else ["memo"])
        assert not guard.sent
    assert world.forge_calls == calls
    assert world.counters.total("memo_hits") == 0
    assert len(world.store.recorded) == 1


@pytest.mark.parametrize("scope", [None, ("github/acme/*",), ("github:github.com/ACME/site", "github/acme/other")])
@pytest.mark.parametrize("at_hand", [True, False], ids=["at hand", "in the store"])
async def test_a_memo_within_the_scope_is_told_as_ever(scope: tuple[str, ...] | None, *, at_hand: bool) -> None:
    world = await new_world()
    made = issue_of(await world.run(CREATE, "k-1"))
    if not at_hand:
        world.service._creates._at_hand.clear()
    again = issue_of(await world.run(HERE, "k-1", caller=replace(world.scout, scope=scope)))
    assert (again.url, again.replayed, again.replay_mismatch) == (made.url, True, True)
    assert world.counters.total("memo_hits") == 1


@pytest.mark.parametrize("at_hand", [True, False], ids=["at hand", "in the store"])
async def test_a_memo_is_judged_at_its_own_forge_and_not_at_the_one_that_is_called(*, at_hand: bool) -> None:
    world = await new_world(linear=True)
    await world.run(CREATE, "k-1", forge=ForgeSelector("github", GHE))
    await world.run(CreateIssue(repo="SEA", title="t"), "k-2", forge=ForgeSelector("linear"))
    without: list[tuple[str, tuple[str, ...]]] = [
        ("k-1", ("github/acme/site",)),
        ("k-2", ("github/acme/site", "github/sea", "linear/ops")),
    ]
    for key, scope in without:
        if not at_hand:
            world.service._creates._at_hand.clear()
        denied(await world.run(CREATE, key, caller=narrowed(world, scope)))
    for key, scope in (("k-1", ("github/*/*", f"github:{GHE}/acme/site")), ("k-2", ("github/*/*", "linear/sea"))):
        assert issue_of(await world.run(CREATE, key, caller=narrowed(world, scope))).replayed
    assert world.forge.count() == 0


async def test_a_body_too_large_is_not_looked_at_before_the_scope_of_its_memo() -> None:
    world = await new_world()
    await world.run(CREATE, "k-1")
    huge = msgspec.structs.replace(HERE, body="x" * 65_536)
    denied(await world.run(huge, "k-1", caller=narrowed(world)))


# --- joined ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [(CREATE, HERE), (PULL, PULL_HERE)], ids=arm_name)
async def test_a_create_that_is_joined_is_told_within_the_joiners_scope(
    autojump_clock: MockClock, first: Arm, second: Arm
) -> None:
    world = await new_world()
    world.forge.script(arm_name(first), Step(after=1))
    async with trio.open_nursery() as nursery:
        leader = world.ask(nursery, first)
        await wait_all_tasks_blocked()
        narrow = world.ask(nursery, second, caller=narrowed(world))
        wide = world.ask(nursery, second)
    assert not made_of(leader.result).replayed
    denied(narrow.result)
    assert not narrow.guard.sent
    assert made_of(wide.result).replayed
    assert sorted(world.events) == ["forge", "memo", "record"]
    assert world.counters.total("memo_joins") == 1


async def test_what_the_leader_may_not_be_told_its_joiner_may(autojump_clock: MockClock) -> None:
    world = await new_world()
    await world.run(CREATE, "k-1")
    world.service._creates._at_hand.clear()
    world.events.clear()

    world.store.hooks["memo"].append(waiting(1))
    async with trio.open_nursery() as nursery:
        leader = world.ask(nursery, HERE, caller=narrowed(world))
        await wait_all_tasks_blocked()
        joiner = world.ask(nursery, HERE)
    denied(leader.result)
    assert issue_of(joiner.result).replayed
    assert world.events == ["memo"]


# --- a pull request that stands -------------------------------------------------------------------------------------


async def standing(world: World) -> PullRequest:
    """A pull request of the scout's, which the forge shows for the other repository's branches too: it has moved."""
    await world.run(PULL, "k-1")
    found = world.forge.pull_requests["acme/other", 41] = world.forge.pull_requests["acme/site", 1]
    world.events.clear()
    world.store.recorded.clear()
    return found


@pytest.mark.parametrize("key", ["k-2", ""])
async def test_a_pull_request_that_stands_outside_the_scope_is_not_told(key: str) -> None:
    world = await new_world()
    await standing(world)
    guard = Guard()
    denied(await world.run(PULL_HERE, key, caller=narrowed(world), guard=guard), "rejected")
    assert guard.sent  # the forge was asked, and has said no
    assert world.events == (["memo", "forge"] if key else ["forge"])  # the index was not
    assert world.store.recorded == []
    assert world.counters.total("creates_found") == world.counters.total("outcomes_corrected") == 0
    assert pull_of(await world.run(PULL_HERE, key)).replayed


async def test_the_ref_of_a_lost_attempt_tells_nobody_outside_the_scope_either() -> None:
    world = await new_world()
    found = await standing(world)
    await world.run(msgspec.structs.replace(PULL_HERE, head_ref="another"), "k-2")
    found.body = world.forge.posted[-1]
    world.store._artifacts.clear()
    world.store._memos.clear()
    world.service._creates._at_hand.clear()
    world.store.recorded.clear()
    world.events.clear()
    denied(await world.run(PULL_HERE, "k-2", caller=narrowed(world)), "rejected")
    assert world.events == ["memo", "forge"]
    assert world.store.recorded == []
    assert pull_of(await world.run(PULL_HERE, "k-2")).replayed  # it was proof enough


async def test_a_joiner_whose_scope_holds_it_is_not_denied_with_the_one_it_joined(autojump_clock: MockClock) -> None:
    world = await new_world()
    await standing(world)
    world.forge.script("create_pull_request", Step(before=1))
    async with trio.open_nursery() as nursery:
        leader = world.ask(nursery, PULL_HERE, "k-2", caller=narrowed(world))
        await wait_all_tasks_blocked()
        joiner = world.ask(nursery, PULL_HERE, "k-2")
    denied(leader.result, "rejected")
    assert (pull_of(joiner.result).repo, pull_of(joiner.result).replayed) == (REPO, True)
