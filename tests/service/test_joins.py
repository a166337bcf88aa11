"""Creates under one key at the same time: one provider call, and what the others answer by how the first one ends."""

import dataclasses
import math

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked

from compass_forged.errors import (
    BadAnswer,
    BadCredentials,
    ForgeError,
    ForgeStatus,
    ForgeUnavailable,
    RateLimited,
    RequestKeyTaken,
    StoreUnavailable,
    Unsupported,
    ValueRefused,
)
from compass_forged.providers.fake import Step
from compass_forged.service import ServiceLimits
from compass_forged.wire.schema import IssueResult
from tests.support.service import (
    CREATE,
    Asked,
    World,
    error_of,
    issue_of,
    new_world,
    raising,
    refusal_of,
    waiting,
)

OTHER = msgspec.structs.replace(CREATE, title="Another title")
ANOTHER_CASE = msgspec.structs.replace(CREATE, repo="ACME/SITE")


async def led(world: World, nursery: trio.Nursery, joiners: int = 3) -> tuple[Asked, list[Asked]]:
    """A leader whose call is at the forge, and joiners of the same payload who wait for it."""
    leader = world.ask(nursery)
    await wait_all_tasks_blocked()
    assert world.forge_calls == 1
    others = []
    for _ in range(joiners):
        others.append(world.ask(nursery))
        await wait_all_tasks_blocked()  # so that they wait in this order
    assert world.forge_calls == 1
    return leader, others


def kinds(*calls: Asked) -> list[str]:
    """What became of each call: made, replayed, a code, or cancelled."""
    return [_kind(asked) for asked in calls]


def _kind(asked: Asked) -> str:
    if isinstance(asked.result, IssueResult):
        return "replayed" if asked.result.issue.replayed else "made"
    return "cancelled" if asked.result is None else "/".join(refusal_of(asked.result))


# --- the leader gets its yes ----------------------------------------------------------------------------------------


async def test_a_hundred_at_once_make_one_issue(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(before=1, after=1))
    async with trio.open_nursery() as nursery:
        calls = [world.ask(nursery) for _ in range(100)]
    assert sorted(kinds(*calls)) == ["made"] + ["replayed"] * 99
    assert world.forge_calls == 1
    assert sorted(world.events) == ["forge", "memo", "record"]  # the ninety-nine ask the store nothing
    assert {issue_of(asked.result).url for asked in calls} == {"https://github.com/Acme/site/issues/1"}
    assert not any(issue_of(asked.result).replay_mismatch for asked in calls)
    assert world.counters.total("memo_joins") == 99


async def test_a_hundred_at_once_after_the_fact_are_replayed(autojump_clock: MockClock) -> None:
    world = await new_world()
    await world.run(CREATE, "k-1")
    async with trio.open_nursery() as nursery:
        calls = [world.ask(nursery) for _ in range(100)]
    assert kinds(*calls) == ["replayed"] * 100
    assert world.forge_calls == 1


async def test_a_joiner_answers_the_place_alone(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(after=1))
    async with trio.open_nursery() as nursery:
        leader, (joiner,) = await led(world, nursery, 1)
    made, joined = issue_of(leader.result), issue_of(joiner.result)
    assert (joined.forge, joined.repo, joined.number) == (made.forge, made.repo, made.number)
    assert (joined.url, joined.created_at) == (made.url, made.created_at)
    assert (joined.title, joined.body, joined.labels, joined.attribution) == ("", "", [], None)


async def test_a_joiner_of_another_payload_gets_the_original_and_sees_it(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(after=1))
    async with trio.open_nursery() as nursery:
        await led(world, nursery, 0)
        other, same = world.ask(nursery, OTHER), world.ask(nursery, ANOTHER_CASE)
    assert kinds(other, same) == ["replayed", "replayed"]
    assert [issue_of(asked.result).replay_mismatch for asked in (other, same)] == [True, False]
    assert world.forge_calls == 1


async def test_other_keys_other_agents_and_keyless_creates_do_not_wait(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(before=math.inf))
    async with trio.open_nursery() as nursery:
        leader, _ = await led(world, nursery, 0)
        others = [
            world.ask(nursery, key="k-2"),
            world.ask(nursery, caller=world.pilot),
            world.ask(nursery, key=""),
        ]
        await wait_all_tasks_blocked()
        assert kinds(*others) == ["made"] * 3
        leader.scope.cancel()


async def test_another_session_of_the_agent_joins(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(after=1))
    async with trio.open_nursery() as nursery:
        await led(world, nursery, 0)
        joiner = world.ask(nursery, caller=dataclasses.replace(world.scout, session_id="s-9"))
    assert kinds(joiner) == ["replayed"]
    assert world.forge_calls == 1


async def test_the_record_is_part_of_what_joiners_wait_for(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.store.hooks["record"].append(waiting(3))
    async with trio.open_nursery() as nursery:
        leader = world.ask(nursery)
        await wait_all_tasks_blocked()
        joiner = world.ask(nursery)
        await trio.sleep(2)
        assert not leader.ended
        assert not joiner.ended
    assert kinds(leader, joiner) == ["made", "replayed"]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), RequestKeyTaken("taken"), ValueRefused("rule")], ids=repr)
async def test_joiners_of_a_leader_whose_record_is_lost_still_get_its_issue(
    autojump_clock: MockClock, error: Exception
) -> None:
    world = await new_world(limits=ServiceLimits(record_seconds=1))
    world.store.hooks["record"].extend([raising(error)] * 20)
    world.forge.script("create_issue", Step(after=1))
    async with trio.open_nursery() as nursery:
        leader, others = await led(world, nursery)
    assert kinds(leader, *others) == ["made"] + ["replayed"] * 3
    assert world.forge_calls == 1
    assert world.counters.total("records_lost") == 1


# --- the leader is refused, or never sends --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ForgeUnavailable("connection refused", outcome="not_sent"),
        RateLimited(5, "reserve reached", outcome="not_sent"),
        BadCredentials("author", "no token", outcome="not_sent"),
        Unsupported("github", "create_issue"),
        RuntimeError("a bug before anything was sent"),
    ],
    ids=repr,
)
async def test_after_a_leader_that_did_not_send_the_next_one_leads(autojump_clock: MockClock, error: Exception) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(before=1, error=error), Step(before=1))
    async with trio.open_nursery() as nursery:
        leader, others = await led(world, nursery)
        await trio.sleep(1.5)
        assert world.forge_calls == 2
    assert error_of(leader.result).outcome == "not_sent"
    assert sorted(kinds(*others)) == ["made", "replayed", "replayed"]
    assert world.forge_calls == 2


async def test_if_none_can_send_each_has_tried_once(autojump_clock: MockClock) -> None:
    world = await new_world()
    refused = Step(before=1, error=ForgeUnavailable("connection refused", outcome="not_sent"))
    world.forge.script("create_issue", *[refused] * 4)
    async with trio.open_nursery() as nursery:
        leader, others = await led(world, nursery)
    assert kinds(leader, *others) == ["unavailable/not_sent"] * 4
    assert world.forge_calls == 4


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ValueRefused("rule"), RuntimeError("a bug")], ids=repr)
async def test_after_a_leader_whose_memo_could_not_be_read_the_next_one_leads(
    autojump_clock: MockClock, error: Exception
) -> None:
    world = await new_world()

    async def hook() -> None:
        await trio.sleep(1)
        raise error

    world.store.hooks["memo"].append(hook)
    async with trio.open_nursery() as nursery:
        leader = world.ask(nursery)
        await wait_all_tasks_blocked()
        joiner = world.ask(nursery)
    assert error_of(leader.result).outcome == "not_sent"
    assert kinds(joiner) == ["made"]


async def test_a_leader_too_large_lets_the_next_one_lead(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.store.hooks["memo"].append(waiting(1))
    async with trio.open_nursery() as nursery:
        leader = world.ask(nursery, msgspec.structs.replace(CREATE, body="x" * 65_536))
        await wait_all_tasks_blocked()
        joiner = world.ask(nursery)
    assert kinds(leader, joiner) == ["invalid_argument/not_sent", "made"]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ForgeStatus(422, "title is too long"), "invalid_argument/rejected"),
        (ForgeStatus(404, "Not Found"), "not_found/rejected"),
        (RateLimited(7.5, "slow down", outcome="rejected"), "resource_exhausted/rejected"),
        (BadCredentials("author", "401"), "failed_precondition/rejected"),
    ],
    ids=repr,
)
async def test_a_refusal_is_shared_by_the_same_payload_and_tried_anew_by_another(
    autojump_clock: MockClock, error: ForgeError, answer: str
) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(before=1, error=error))
    async with trio.open_nursery() as nursery:
        leader, others = await led(world, nursery)
        other = world.ask(nursery, OTHER)
        others.append(world.ask(nursery, ANOTHER_CASE))
    assert kinds(leader, *others) == [answer] * 5
    assert {error_of(asked.result) for asked in (leader, *others)} == {error_of(leader.result)}  # hint and words too
    assert kinds(other) == ["made"]
    assert world.forge_calls == 2


# --- the leader's end is not known ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "answer"),
    [
        (Step(after=1, lost=ForgeUnavailable("502", outcome="unknown")), "unavailable/unknown"),
        (Step(after=1, lost=BadAnswer(201, "no URL")), "internal/unknown"),
        (Step(after=1, lost=RuntimeError("a bug after the yes")), "internal/unknown"),
    ],
    ids=lambda value: repr(value.lost) if isinstance(value, Step) else value,
)
async def test_joiners_of_an_unknown_end_never_send(autojump_clock: MockClock, step: Step, answer: str) -> None:
    world = await new_world()
    world.forge.script("create_issue", step)
    async with trio.open_nursery() as nursery:
        leader, others = await led(world, nursery)
        others.append(world.ask(nursery, OTHER))
    assert kinds(leader) == [answer]
    assert {error_of(asked.result).outcome for asked in others} == {"unknown"}
    assert world.forge_calls == 1


# --- cancellation ---------------------------------------------------------------------------------------------------


async def test_a_cancelled_joiner_costs_nobody_else_anything(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(before=1, after=1))
    async with trio.open_nursery() as nursery:
        leader, others = await led(world, nursery)
        others[0].scope.cancel()
        await wait_all_tasks_blocked()
        assert others[0].ended
        assert not leader.ended
        await trio.sleep(1.5)  # the write is out
        others[1].scope.cancel()
        await wait_all_tasks_blocked()
        assert others[1].ended
        assert not leader.ended
    assert kinds(leader, *others) == ["made", "cancelled", "cancelled", "replayed"]
    assert world.forge_calls == 1


async def test_after_a_leader_cancelled_unsent_a_joiner_leads(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(before=10), Step(before=1))
    async with trio.open_nursery() as nursery:
        leader, others = await led(world, nursery)
        leader.scope.cancel()
    assert kinds(leader) == ["cancelled"]
    assert sorted(kinds(*others)) == ["made", "replayed", "replayed"]
    assert world.forge_calls == 2
    assert len(world.forge.issues) == 1


async def test_after_a_leader_cancelled_in_the_memo_a_joiner_leads(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.store.hooks["memo"].append(waiting(10))
    async with trio.open_nursery() as nursery:
        leader = world.ask(nursery)
        await wait_all_tasks_blocked()
        joiner = world.ask(nursery)
        await wait_all_tasks_blocked()
        leader.scope.cancel()
    assert kinds(leader, joiner) == ["cancelled", "made"]
    assert world.forge_calls == 1


async def test_joiners_of_a_leader_cancelled_once_sent_get_unknown_and_never_send(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(after=10))
    async with trio.open_nursery() as nursery:
        leader, others = await led(world, nursery)
        assert leader.guard.sent
        leader.scope.cancel()
    assert kinds(leader, *others) == ["cancelled"] + ["unavailable/unknown"] * 3
    assert world.forge_calls == 1


async def test_all_cancelled_leave_the_key_free(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(before=10))
    async with trio.open_nursery() as nursery:
        leader, others = await led(world, nursery)
        for asked in (*others, leader):
            asked.scope.cancel()
    assert kinds(leader, *others) == ["cancelled"] * 4
    assert world.service._creates._flights == {}
    assert not issue_of(await world.run(CREATE, "k-1")).replayed


@pytest.mark.parametrize(
    "step",
    [
        Step(),
        Step(error=ForgeStatus(422, "no")),
        Step(error=RuntimeError("a bug")),
        Step(lost=ForgeUnavailable("502", outcome="unknown")),
    ],
    ids=lambda step: repr(step.error or step.lost),
)
async def test_nothing_is_kept_of_a_create_that_has_ended(step: Step) -> None:
    world = await new_world()
    world.forge.script("create_issue", step)
    await world.run(CREATE, "k-1")
    assert world.service._creates._flights == {}


async def test_any_moment_of_cancellation_leaves_at_most_one_issue_and_no_lost_row(autojump_clock: MockClock) -> None:
    """The leader is cancelled at each of its moments in turn; a joiner waits, and a retry comes afterwards."""
    for tenths in range(45):
        world = await new_world()
        world.store.hooks["memo"].append(waiting(1))
        world.store.hooks["record"].append(waiting(1))
        world.forge.script("create_issue", Step(before=1, after=1))
        async with trio.open_nursery() as nursery:
            leader = world.ask(nursery)
            await wait_all_tasks_blocked()
            joiner = world.ask(nursery)
            await trio.sleep(tenths / 10 + 0.05)
            leader.scope.cancel()
        moment = f"cancelled after {tenths / 10 + 0.05:.2f} s"
        assert len(world.forge.issues) == 1, moment
        if 20 <= tenths < 30:  # out, and no answer yet
            assert kinds(leader, joiner) == ["cancelled", "unavailable/unknown"], moment
            assert world.store.recorded == [], moment
        else:
            assert kinds(leader, joiner) == (["cancelled", "made"] if tenths < 20 else ["made", "replayed"]), moment
            assert issue_of(await world.run(CREATE, "k-1")).replayed, moment
