"""A create is ended at its every step, by everything that can end one: never an artifact without its row and memo.

An instrument of trio's counts the steps of the tasks that run calls. A create is run again and again and ended right
before its step 1, 2, 3 … until one comes to its own end first; so every checkpoint on its way has been the last one.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal, TypeAlias

import httpx
import msgspec
import pytest
import trio
from trio.testing import MockClock

from compass_forged.hub import CallDeadlines, Hub
from compass_forged.life import Life
from compass_forged.observability import Counters
from compass_forged.ports import AuthoredArtifact, CallContext, ContainerSpec, Provider, Session, SessionBinding
from compass_forged.providers.fake import FakeProvider, Step
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.registry import Entry, Registry
from compass_forged.service import ForgeService
from compass_forged.sessions import SessionTable
from compass_forged.store.memory import MemoryStore
from compass_forged.wire.schema import (
    CreateIssue,
    ErrorResult,
    FaultFrame,
    ForgeCall,
    Issue,
    IssueResult,
    ReplyFrame,
    ResultFrame,
)
from tests.support.core import logged
from tests.support.forge_http import issue_json, new_http

CREATE = CreateIssue(repo="acme/site", title="A title", body="The words.")
DEADLINE_SECONDS = 1.0
"""The first call's. Far below what recording and grace have, so that nothing else passes at a jump to it."""
GRACE_SECONDS = 30.0
OTHERS_SECONDS = 100.0
"""The deadline of everybody else: it does not pass at a jump to the end of the first one's grace."""

End: TypeAlias = Literal["disconnect", "deadline", "grace", "unbind", "crash", "drain", "stop"]
Callers: TypeAlias = Literal["keyed", "keyless", "joined"]


class InMemory:
    """The scripted forge, with a wait on either side of the commit."""

    def __init__(self) -> None:
        self._fake = FakeProvider(delay=0.01)
        self._waiting = _Waiting(self._fake)
        self.provider: Provider = self._waiting

    @property
    def called(self) -> int:
        """How many creates may have reached the forge."""
        return len(self._fake.issues)

    @property
    def answered(self) -> int:
        """How many creates have come back as done."""
        return self._waiting.answered

    @property
    def numbers(self) -> list[int]:
        """What stands on the forge."""
        return sorted(number for _, number in self._fake.issues)


class _Waiting(FakeProvider):
    """Hands creates on to another forge, which takes a moment to answer."""

    def __init__(self, fake: FakeProvider) -> None:
        super().__init__()
        self._fake = fake
        self.answered = 0

    async def create_issue(self, arm: CreateIssue, context: CallContext) -> Issue:
        self._fake.script("create_issue", Step(after=0.01))
        issue = await self._fake.create_issue(arm, context)
        self.answered += 1
        return issue


class OverHttp(httpx.AsyncBaseTransport):
    """GitHub's create behind the real provider: caller, gate, credential and transport, but for the network."""

    def __init__(self) -> None:
        self._github = _Counted(new_http(self))
        self.provider: Provider = self._github
        self.called = 0
        self.numbers: list[int] = []

    @property
    def answered(self) -> int:
        """How many creates have come back as done."""
        return self._github.answered

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert request.method == "POST"
        self.called += 1
        await trio.sleep(0.01)  # on its way
        number = len(self.numbers) + 1
        self.numbers.append(number)
        await trio.sleep(0.01)  # on its way back
        sent = msgspec.json.decode(request.content)
        body = msgspec.json.encode(issue_json(number, body=sent["body"]))
        return httpx.Response(201, stream=_Slowly(body[:100], body[100:]))


class _Counted(GitHubProvider):
    """The real provider, which counts the creates that it has brought home."""

    answered = 0

    async def create_issue(self, arm: CreateIssue, context: CallContext) -> Issue:
        issue = await super().create_issue(arm, context)
        self.answered += 1
        return issue


class _Slowly(httpx.AsyncByteStream):
    """An answer's body that has to be waited for."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            await trio.sleep(0.01)
            yield chunk


Forge: TypeAlias = InMemory | OverHttp
DEADLINES = CallDeadlines(write_seconds=OTHERS_SECONDS, grace_seconds=GRACE_SECONDS)


@dataclass
class Asked:
    """One caller: what it was answered, and how the world stood right then."""

    forge: Forge
    life: Life | None = None
    replies: list[ReplyFrame] = field(default_factory=list)
    called: list[int] = field(default_factory=list)

    def take(self, reply: ReplyFrame) -> None:
        self.replies.append(reply)
        self.called.append(self.forge.called)

    @property
    def sent(self) -> bool:
        return self.life is not None and self.life.sent


class Steps(trio.abc.Instrument):
    """Counts the steps of the tasks that run calls, and acts once, right before the one it was told."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.seen = 0
        self.acted = False
        self.failed: list[Exception] = []
        self._at = at
        self._act = act

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task.name != "call":
            return
        self.seen += 1
        if self.seen == self._at:
            self.acted = True
            try:
                self._act()
            except Exception as error:  # noqa: BLE001 -- trio would log it and go on without the instrument
                self.failed.append(error)


@dataclass
class World:
    """Everything from the hub down, and one bound session."""

    forge: Forge
    clock: MockClock
    store: MemoryStore = field(default_factory=MemoryStore)
    counters: Counters = field(default_factory=Counters)
    sessions: SessionTable = field(default_factory=lambda: SessionTable([]))

    def hub(self) -> Hub:
        """A hub over a service of its own, as after a start: only store and forge remember."""
        registry = Registry([Entry("github", "github.com", self.forge.provider)])
        hub = Hub(self.sessions, counters=self.counters, deadlines=DEADLINES)
        hub.wire(ForgeService(self.store, registry, ref_secret=b"k" * 32, counters=self.counters))
        return hub

    async def bind(self) -> Session:
        """Bind the session, in the store and here."""
        await self.store.open_container("host-1", ContainerSpec("c1"))
        session = await self.store.bind_session("host-1", SessionBinding("c1", "s-1", "scout", "ada"))
        self.sessions.bind(session)
        return session

    async def rows(self) -> list[AuthoredArtifact]:
        """The ownership rows, by number."""
        return sorted(await self.store.list_authored_artifacts(), key=lambda row: row.coordinate.number)


async def _settled(hub: Hub) -> None:
    with trio.fail_after(300):  # the deadline, the grace, and the record's own
        while hub.in_flight:  # noqa: ASYNC110 -- the hub tells nobody
            await trio.sleep(0.5)


def _ended(world: World, hub: Hub, first: Asked, end: End, draining: trio.Event) -> Callable[[], None]:
    def act() -> None:
        assert first.life is not None
        match end:
            case "disconnect":
                first.life.abandon()
            case "deadline":
                world.clock.jump(max(0.0, first.life.deadline - trio.current_time()))
            case "grace":
                world.clock.jump(max(0.0, first.life.deadline + GRACE_SECONDS - trio.current_time()))
            case "crash":
                assert hub._workers._nursery is not None
                hub._workers._nursery.cancel_scope.cancel()
            case "unbind":
                world.sessions.unbind("c1")
                hub.unbound("s-1")
            case "stop":
                hub.stop()
            case "drain":
                draining.set()

    return act


async def _drain_when_told(hub: Hub, draining: trio.Event) -> None:
    await draining.wait()
    await hub.drain(0)
    hub.stop()


@dataclass
class Ended:
    """What is left of one run."""

    acted: bool
    first: Asked
    others: list[Asked]
    answered_before: int
    rows: list[AuthoredArtifact]


async def _run(world: World, callers: Callers, end: End, at: int) -> Ended:
    """One create, or two under one key, ended before step ``at``."""
    await world.bind()
    hub = world.hub()
    draining = trio.Event()
    asked = [Asked(world.forge) for _ in range(2 if callers == "joined" else 1)]
    steps = Steps(at, lambda: None)
    act = _ended(world, hub, asked[0], end, draining)
    answered: list[int] = []

    def at_the_step() -> None:
        answered.append(len(asked[0].replies))
        act()

    steps._act = at_the_step
    async with trio.open_nursery() as nursery:
        await nursery.start(hub.run)
        nursery.start_soon(_drain_when_told, hub, draining)
        trio.lowlevel.add_instrument(steps)
        for number, one in enumerate(asked):
            # All but the first have no deadline that a jump would reach.
            timeout = 0 if number else int(DEADLINE_SECONDS * 1000)
            call = ForgeCall(
                call_id=str(number),
                arm=CREATE,
                client_request_id="" if callers == "keyless" else "k-1",
                timeout_ms=timeout,
            )
            one.life = hub.submit("s-1", call, one.take)
        await _settled(hub)
        trio.lowlevel.remove_instrument(steps)
        assert steps.failed == []
        assert hub.in_flight == 0
        assert not len(hub._deadlines)
        nursery.cancel_scope.cancel()
    return Ended(steps.acted, asked[0], asked[1:], answered[0] if answered else 0, await world.rows())


async def _retry(world: World) -> Issue:
    """The same create under the same key, in a daemon that was started again."""
    await world.bind()
    hub = world.hub()
    async with trio.open_nursery() as nursery:
        await nursery.start(hub.run)
        reply = await hub.relay("s-1", ForgeCall(call_id="again", arm=CREATE, client_request_id="k-1"))
        nursery.cancel_scope.cancel()
    assert isinstance(reply, ResultFrame), reply
    assert isinstance(reply.result, IssueResult), reply
    return reply.result.issue


def _denies(reply: ReplyFrame) -> bool:
    """Whether a reply says that nothing of this call was sent."""
    if isinstance(reply, FaultFrame):  # unavailable alone means unknown
        return reply.code != "unavailable" or "before the call was sent" in reply.message
    return isinstance(reply.result, ErrorResult) and reply.result.outcome in {"not_sent", "rejected"}


def _check(ended: Ended, forge: Forge, end: End, callers: Callers) -> None:
    recorded = [row.coordinate.number for row in ended.rows]
    # The ends that may cut off a sent write, and only at the forge: what has come back as done is recorded, but for a
    # record that is itself out of time.
    cut_off = end in {"stop", "drain", "grace"} and (not forge.answered or end == "grace")
    if not cut_off:
        assert recorded == forge.numbers
    assert set(recorded) <= set(forge.numbers)
    assert len(forge.numbers) <= 1
    assert forge.called <= 1
    assert all((row.client_request_id is None) == (callers == "keyless") for row in ended.rows)
    if end == "disconnect" and ended.acted:
        assert len(ended.first.replies) == ended.answered_before  # nothing is said to who has gone
    else:
        assert len(ended.first.replies) == 1
    assert all(len(one.replies) == 1 for one in ended.others)
    for one in (ended.first, *ended.others):
        for reply, called in zip(one.replies, one.called, strict=True):
            _check_reply(reply, called, one, recorded)


def _check_reply(reply: ReplyFrame, called: int, asked: Asked, recorded: list[int]) -> None:
    if _denies(reply):
        assert not asked.sent
        assert called == 0, reply
    elif isinstance(reply, ResultFrame) and isinstance(reply.result, IssueResult):
        assert [reply.result.issue.number] == recorded
    elif isinstance(reply, ResultFrame):
        assert isinstance(reply.result, ErrorResult)
        assert reply.result.outcome == "unknown"


def _trio(scenario: Callable[[MockClock], Awaitable[Any]]) -> Any:
    clock = MockClock(autojump_threshold=0)

    async def bounded() -> Any:
        with trio.fail_after(100_000):
            return await scenario(clock)

    with logged():
        return trio.run(bounded, clock=clock)


@pytest.mark.parametrize("end", ["disconnect", "deadline", "grace", "unbind", "crash", "drain", "stop"])
@pytest.mark.parametrize("callers", ["keyed", "keyless", "joined"])
@pytest.mark.parametrize("forge", [InMemory, OverHttp])
def test_a_create_ended_at_any_step_leaves_no_artifact_without_its_row(
    forge: type[Forge], callers: Callers, end: End
) -> None:
    created = prevented = 0
    for at in count(1):

        async def scenario(clock: MockClock, at: int = at) -> Ended:
            world = World(forge(), clock)
            ended = await _run(world, callers, end, at)
            _check(ended, world.forge, end, callers)
            if callers != "keyless":
                before = list(world.forge.numbers)
                again = await _retry(world)
                row = ended.rows[0].coordinate.number if ended.rows else None
                assert again.replayed == (row is not None)
                assert row in {None, again.number}
                if not before or row is not None:
                    assert world.forge.numbers == [again.number]
            return ended

        ended = _trio(scenario)
        created += bool(ended.rows)
        prevented += not ended.rows
        if not ended.acted:
            break
    # A first step, and one after each wait: memo, before the send, after it, record. One more ends it.
    assert at > (4 if callers == "keyless" else 5)
    assert created  # the send was met from both sides; a joiner whom its leader leaves creates by itself
    assert prevented or (callers == "joined" and end in {"disconnect", "deadline", "grace"})
