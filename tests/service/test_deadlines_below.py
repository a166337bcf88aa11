"""What a call's deadline, which no cancel scope tells, is to the parts that would wait beyond it."""

import math

import pytest
import trio
from trio.testing import MockClock

from compass_forged.hub import CallDeadlines, Hub
from compass_forged.observability import Counters
from compass_forged.ports import CallContext, Caller, Session, Work
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.registry import Entry, Registry
from compass_forged.service.steps import ForgeService
from compass_forged.sessions import SessionTable
from compass_forged.wire.schema import (
    CommentOnIssue,
    CommentRef,
    ErrorResult,
    ForgeCall,
    GetIssue,
    IssueCommentResult,
    IssueResult,
    ResultArm,
    ResultFrame,
)
from tests.support.forge_http import ScriptedForge, answer, new_http
from tests.support.service import SECRET, account_of, new_world

READ = ForgeCall(call_id="1", arm=GetIssue(repo="acme/site", issue_number=7))
WRITE = ForgeCall(call_id="1", arm=CommentOnIssue(repo="acme/site", issue_number=7, body="b"))


async def asked(hub: Hub, call: ForgeCall) -> ResultArm:
    async with trio.open_nursery() as nursery:
        await nursery.start(hub.run)
        reply = await hub.relay("s-1", call)
        nursery.cancel_scope.cancel()
    assert isinstance(reply, ResultFrame), reply
    return reply.result


async def new_hub(*, read_seconds: float = 15) -> tuple[Hub, ScriptedForge, GitHubProvider]:
    """A hub over the service and GitHub's provider, on a forge that answers 500."""
    world = await new_world()
    forge = ScriptedForge([answer(500) for _ in range(9)])
    github = GitHubProvider(new_http(forge))
    registry = Registry([Entry("github", "github.com", github)])
    service = ForgeService(world.store, registry, ref_secret=SECRET, counters=world.counters)
    hub = Hub(
        SessionTable([Session("s-1", "c1", account_of(world.scout))]),
        counters=Counters(),
        deadlines=CallDeadlines(read_seconds, 30, 30),
    )
    hub.wire(service)
    return hub, forge, github


async def test_a_call_whose_turn_would_come_after_its_deadline_is_refused_at_once(autojump_clock: MockClock) -> None:
    hub, forge, github = await new_hub()
    github.http.gate.throttled(20.0, "status 429")
    result = await asked(hub, READ)
    assert isinstance(result, ErrorResult)
    assert (result.code, forge.requests) == ("resource_exhausted", [])
    assert result.retry_after_ms >= 19_000
    assert trio.current_time() == pytest.approx(0)


async def test_a_read_is_not_tried_again_where_the_next_try_would_come_too_late(autojump_clock: MockClock) -> None:
    hub, forge, _ = await new_hub(read_seconds=0.3)
    result = await asked(hub, READ)
    assert isinstance(result, ErrorResult)
    assert result.code == "unavailable", "the failure stands, rather than a deadline"
    assert len(forge.requests) == 2


class Watching:
    """A caller that notes the deadline it is told, before and after it sends."""

    def __init__(self) -> None:
        self.told: list[float] = []

    def begin(self, _caller: Caller, call: ForgeCall, context: CallContext) -> ResultArm | Work:
        async def work() -> ResultArm:
            self.told.append(context.deadline)
            await context.guard.sending()
            self.told.append(context.deadline)
            if call is WRITE:
                return IssueCommentResult(comment=CommentRef("u", "1"))
            return ErrorResult(code="not_found", message="")

        return work


@pytest.mark.parametrize(("call", "told"), [(READ, [15, 15]), (WRITE, [30, math.inf])])
async def test_a_sent_write_has_no_deadline_to_wait_for(
    call: ForgeCall, told: list[float], autojump_clock: MockClock
) -> None:
    world = await new_world()
    hub = Hub(SessionTable([Session("s-1", "c1", account_of(world.scout))]), counters=Counters())
    caller = Watching()
    hub.wire(caller)
    assert not isinstance(await asked(hub, call), IssueResult)
    assert caller.told == pytest.approx(told)
