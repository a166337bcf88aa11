"""Service and hub together: a create that has gone out is finished and recorded, whatever becomes of its caller."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked

from compass_forged.hub import CallDeadlines, Hub
from compass_forged.ports import Session
from compass_forged.providers.fake import Step
from compass_forged.sessions import SessionTable
from compass_forged.wire.schema import FaultFrame, ForgeCall, ReplyFrame, ResultFrame
from tests.support.service import CREATE, World, account_of, issue_of, new_world, refusal_of, waiting

CALL = ForgeCall(call_id="1", arm=CREATE, client_request_id="k-1")


@asynccontextmanager
async def hub_over(world: World) -> AsyncIterator[Hub]:
    """A running hub over the world's service, with the scout's session bound."""
    sessions = SessionTable([Session("s-1", "c1", account_of(world.scout))])
    hub = Hub(sessions, counters=world.counters, deadlines=CallDeadlines(write_seconds=30, grace_seconds=30))
    hub.wire(world.service)
    async with trio.open_nursery() as nursery:
        await nursery.start(hub.run)
        yield hub
        nursery.cancel_scope.cancel()


def refused(reply: ReplyFrame) -> tuple[str, str]:
    assert isinstance(reply, ResultFrame), reply
    return refusal_of(reply.result)


async def test_a_deadline_after_the_send_answers_unknown_and_the_same_key_gets_the_issue(
    autojump_clock: MockClock,
) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(after=40))
    async with hub_over(world) as hub:
        assert refused(await hub.relay("s-1", CALL)) == ("deadline_exceeded", "unknown")
        assert trio.current_time() == pytest.approx(30)
        again = await hub.relay("s-1", msgspec.structs.replace(CALL, call_id="2"))
        assert isinstance(again, ResultFrame)
        assert issue_of(again.result).replayed
        assert trio.current_time() == pytest.approx(40)
    assert world.forge_calls == 1
    assert len(world.store.recorded) == 1


@pytest.mark.parametrize(("before", "outcome"), [(0, "unknown"), (40, "not_sent")])
async def test_a_joiner_whose_deadline_passes_knows_only_what_its_leader_knows(
    before: float, outcome: str, autojump_clock: MockClock
) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(before=before, after=40))
    async with hub_over(world) as hub, trio.open_nursery() as nursery:
        nursery.start_soon(hub.relay, "s-1", CALL)
        await wait_all_tasks_blocked()
        joiner = msgspec.structs.replace(CALL, call_id="2", timeout_ms=5000)
        assert refused(await hub.relay("s-1", joiner)) == ("deadline_exceeded", outcome)
        assert trio.current_time() == pytest.approx(5)


async def test_a_deadline_before_the_send_answers_not_sent_and_nothing_stands(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(before=40))
    async with hub_over(world) as hub:
        assert refused(await hub.relay("s-1", CALL)) == ("deadline_exceeded", "not_sent")
        await trio.sleep(60)
    assert world.forge.issues == {}
    assert world.store.recorded == []


@pytest.mark.parametrize("moment", ["at the forge", "in the record"])
async def test_a_caller_that_goes_away_after_the_send_costs_neither_issue_nor_record(
    autojump_clock: MockClock, moment: str
) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(after=5 if moment == "at the forge" else 0))
    world.store.hooks["record"].append(waiting(5))
    async with hub_over(world) as hub:
        with trio.move_on_after(2) as connection:
            await hub.relay("s-1", CALL)
        assert connection.cancelled_caught
        assert hub.in_flight == 1
        await trio.sleep(20)
        assert hub.in_flight == 0
    assert [artifact.client_request_id for artifact in world.store.recorded] == ["k-1"]


async def test_a_session_unbound_after_the_send_is_the_one_that_is_recorded(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(after=5))
    async with hub_over(world) as hub, trio.open_nursery() as nursery:
        nursery.start_soon(hub.relay, "s-1", CALL)
        await wait_all_tasks_blocked()
        hub.unbound("s-1")
    assert [artifact.session_id for artifact in world.store.recorded] == ["s-1"]


async def test_a_drain_that_ends_within_the_record_leaves_it_its_time(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.store.hooks["record"].append(waiting(8))
    async with hub_over(world) as hub, trio.open_nursery() as nursery:
        nursery.start_soon(hub.relay, "s-1", CALL)
        await wait_all_tasks_blocked()
        assert not await hub.drain(1)
    assert len(world.store.recorded) == 1


@pytest.mark.parametrize("way", ["unbind", "drain", "stop"])
@pytest.mark.parametrize("sent", [True, False])
async def test_a_joiner_that_is_given_up_is_told_whether_its_leader_may_have_created(
    way: str, sent: bool, autojump_clock: MockClock
) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(after=8) if sent else Step(before=8))
    replies: dict[str, ReplyFrame] = {}

    async def ask(call_id: str) -> None:
        replies[call_id] = await hub.relay("s-1", msgspec.structs.replace(CALL, call_id=call_id))

    async with hub_over(world) as hub:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, "leader")
            await trio.sleep(1)
            nursery.start_soon(ask, "joiner")
            await trio.sleep(1)
            if way == "unbind":
                hub.unbound("s-1")
            elif way == "drain":
                assert not await hub.drain(0)
            else:
                hub.stop()
            await wait_all_tasks_blocked()
            joiner = replies["joiner"]
            assert trio.current_time() == pytest.approx(2)
        leader = replies["leader"]
    if sent:
        assert refused(joiner) == ("unavailable", "unknown")
        assert isinstance(leader, ResultFrame)
        if way == "unbind":
            assert issue_of(leader.result).number == 1  # it goes on, and is recorded
            assert len(world.store.recorded) == 1
        else:
            assert refused(leader) == ("deadline_exceeded", "unknown")
    else:
        assert isinstance(joiner, FaultFrame)
        assert isinstance(leader, FaultFrame)
        assert joiner.code == leader.code == ("permission_denied" if way == "unbind" else "unavailable")
        assert world.forge.issues == {}
    assert world.forge_calls == 1


async def test_a_joiner_that_a_crash_cuts_off_does_not_claim_that_nothing_was_sent(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(after=10))
    async with hub_over(world) as hub, trio.open_nursery() as nursery:
        nursery.start_soon(hub.relay, "s-1", CALL)
        await wait_all_tasks_blocked()
        replies: list[ReplyFrame] = []
        hub.submit("s-1", msgspec.structs.replace(CALL, call_id="2"), replies.append)
        await wait_all_tasks_blocked()
        workers = hub._workers._nursery
        assert workers is not None
        workers.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        assert refused(replies[0]) == ("unavailable", "unknown")
    assert world.forge_calls == 1
