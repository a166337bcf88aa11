"""One container that asks a thousand times a second, and nine quiet ones, through gateway, hub, service and gate.

The clock is virtual, so the figures are those of the queues and not of the machine: what a quiet container waits for is
the forge and its turn.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from compass_forged.budget import Budget, BudgetSettings, Kind
from compass_forged.gateway import Gateway
from compass_forged.hub import Hub
from compass_forged.observability import Counters
from compass_forged.ports import CallContext, Session
from compass_forged.providers.fake import FakeProvider
from compass_forged.providers.gate import CONCURRENCY, Admission, Gate
from compass_forged.providers.registry import Entry, Registry
from compass_forged.service import ForgeService
from compass_forged.sessions import SessionTable
from compass_forged.store.memory import MemoryStore
from compass_forged.wire.schema import (
    Arm,
    CommentOnIssue,
    CommentRef,
    CreateIssue,
    ErrorResult,
    GetIssue,
    Issue,
    ResultFrame,
)
from tests.support.core import SCOUT, Logged, RawClient, call_of, logged

QUIET = [f"quiet-{number}" for number in range(9)]
NOISY = "noisy"
NOISY_CONNECTIONS = 3
"""Enough that the container's own limits are met as well."""
A_FORGE_MOMENT = (0.05, 0.15)
READ = GetIssue(repo="acme/site", issue_number=1)
UNLIMITED = BudgetSettings(points_per_minute=1_000_000)
WRITE = CommentOnIssue(repo="acme/site", issue_number=1, body="A remark.")


@pytest.fixture(autouse=True)
def events() -> Iterator[Logged]:
    with logged() as events:
        yield events


class SlowForge(FakeProvider):
    """A forge that takes its time, behind the gate of one credential."""

    def __init__(self, settings: BudgetSettings) -> None:
        super().__init__()
        self.gate = Gate(Budget(settings))
        self.order: list[str] = []
        self.most = 0
        self._random = random.Random(7)  # noqa: S311 -- the same delays in every run

    @property
    def served(self) -> Counter[str]:
        """How many calls of each container came through."""
        return Counter(self.order)

    async def get_issue(self, arm: GetIssue, context: CallContext) -> Issue:
        admission = await self._pass(context, "read")
        found = await super().get_issue(arm, context)
        admission.settle()
        return found

    async def comment_on_issue(self, arm: CommentOnIssue, context: CallContext) -> CommentRef:
        admission = await self._pass(context, "write")
        made = await super().comment_on_issue(arm, context)
        admission.settle()
        return made

    async def _pass(self, context: CallContext, kind: Kind) -> Admission:
        admission = await self.gate.admit(context.container, kind)
        try:
            self.most = max(self.most, self.gate.statistics().in_flight)
            await trio.sleep(self._random.uniform(*A_FORGE_MOMENT))
        except BaseException:
            admission.settle(sent=False)
            raise
        self.order.append(context.container)
        return admission


@dataclass
class Seen:
    """What the quiet containers waited, in virtual seconds, and what the noisy one got."""

    waits: list[float] = field(default_factory=list)
    answered: int = 0
    refused: int = 0

    def percentile(self, share: float) -> float:
        """The wait that ``share`` of the calls did not exceed."""
        return sorted(self.waits)[int(share * (len(self.waits) - 1))]


class Daemon:
    """Everything between a container's stream and the forge."""

    def __init__(self, nursery: trio.Nursery, settings: BudgetSettings) -> None:
        self.forge = SlowForge(settings)
        sessions = SessionTable([Session(f"s-{name}", name, SCOUT) for name in (NOISY, *QUIET)])
        counters = Counters()
        self.hub = Hub(sessions, counters=counters)
        registry = Registry([Entry("github", "github.com", self.forge)])
        self.hub.wire(ForgeService(MemoryStore(), registry, ref_secret=b"k" * 32, counters=counters))
        self._gateway = Gateway(sessions, self.hub.submit, counters=counters)
        self._nursery = nursery

    async def start(self) -> None:
        """Run the hub, and have the issue that everybody is about to read."""
        await self._nursery.start(self.hub.run)
        guard = _NoGuard()
        await self.forge.create_issue(CreateIssue(repo="acme/site", title="A title"), CallContext("", guard))

    def connect(self, container: str) -> RawClient:
        ours, theirs = memory_stream_pair()
        self._nursery.start_soon(self._gateway.serve_connection, theirs, container)
        return RawClient(ours)


class _NoGuard:
    sent = False

    async def sending(self) -> None:
        await trio.lowlevel.checkpoint()


async def _quiet(client: RawClient, arm: Arm, plan: "_Plan", first: float, seen: Seen) -> None:
    """One call at a time, and a pause; until the time is over."""
    await trio.sleep(first)
    number = 0
    while trio.current_time() < plan.seconds:
        number += 1
        began = trio.current_time()
        await client.send(call_of(arm, str(number)))
        reply = await client.reply()
        assert isinstance(reply, ResultFrame)
        assert not isinstance(reply.result, ErrorResult), reply
        seen.waits.append(trio.current_time() - began)
        await trio.sleep(plan.every)


async def _noisy(client: RawClient, arm: Arm, per_second: float) -> None:
    number = 0
    while True:
        number += 1
        await client.send(call_of(arm, str(number)))
        await trio.sleep(1 / per_second)


async def _take(client: RawClient, seen: Seen) -> None:
    while True:
        reply = await client.reply()
        assert isinstance(reply, ResultFrame)
        if isinstance(reply.result, ErrorResult):
            assert reply.result.code == "resource_exhausted"
            seen.refused += 1
        else:
            seen.answered += 1


@dataclass(frozen=True)
class _Plan:
    """Seconds between a quiet container's calls, seconds in all, and the calls a second of the noisy one."""

    every: float
    seconds: float
    flood: float
    settings: BudgetSettings = field(default_factory=BudgetSettings)


async def _day(arm: Arm, plan: _Plan) -> tuple[Seen, SlowForge]:
    seen = Seen()
    async with trio.open_nursery() as nursery:
        daemon = Daemon(nursery, plan.settings)
        await daemon.start()
        for _ in range(NOISY_CONNECTIONS if plan.flood else 0):
            client = daemon.connect(NOISY)
            nursery.start_soon(_noisy, client, arm, plan.flood / NOISY_CONNECTIONS)
            nursery.start_soon(_take, client, seen)
        async with trio.open_nursery() as quiet:
            for number, name in enumerate(QUIET):
                quiet.start_soon(_quiet, daemon.connect(name), arm, plan, 0.5 + 0.037 * number, seen)
        nursery.cancel_scope.cancel()
    return seen, daemon.forge


def _run(
    arm: Arm, *, every: float, seconds: float, flood: float = 0, settings: BudgetSettings | None = None
) -> tuple[Seen, SlowForge]:
    plan = _Plan(every, seconds, flood, settings or BudgetSettings())

    async def bounded() -> tuple[Seen, SlowForge]:
        with trio.fail_after(seconds + 60):
            return await _day(arm, plan)

    return trio.run(bounded, clock=MockClock(autojump_threshold=0))


def test_beside_a_flood_of_reads_nine_quiet_containers_wait_at_most_twice_as_long() -> None:
    """Where the forge's own minute is no limit: what is shared is the daemon, its gate and its connections."""
    alone, _ = _run(READ, every=0.2, seconds=4, settings=UNLIMITED)
    beside, forge = _run(READ, every=0.2, seconds=4, flood=1000, settings=UNLIMITED)
    assert len(alone.waits) > 100
    assert len(beside.waits) > 100
    for share in (0.5, 0.99, 1.0):
        assert beside.percentile(share) <= 2 * alone.percentile(share)
    # The flood had the forge to itself but for the quiet ones' calls, and what was too much for it was told so.
    assert forge.most == CONCURRENCY
    assert forge.served[NOISY] > sum(forge.served[name] for name in QUIET)
    assert beside.answered
    assert beside.refused


def test_beside_a_flood_that_used_up_the_minutes_points_a_quiet_container_waits_for_one_turn_of_each() -> None:
    """Points come back one at a time, and go round by container: whoever asks gets its turn before a second one."""
    beside, forge = _run(READ, every=2, seconds=20, flood=300)
    points = BudgetSettings().points_per_minute
    second_thirds = points * 2 / 3 / 60  # what comes back in a second, once the first third has gone
    assert max(beside.waits) <= (len(QUIET) + 1) / second_thirds + A_FORGE_MOMENT[1]
    assert forge.served[NOISY] >= points / 3  # what the quiet ones do not need is the flood's
    assert beside.refused > beside.answered


def test_beside_a_flood_of_writes_a_quiet_container_waits_for_one_turn_of_each() -> None:
    """What the forge lets be written is a write a second: there is a flood's worth less of it, and it is shared."""
    beside, forge = _run(WRITE, every=5, seconds=6, flood=200)
    turn = BudgetSettings().creation_interval
    assert len(beside.waits) >= len(QUIET)
    assert max(beside.waits) <= (len(QUIET) + 1) * turn + A_FORGE_MOMENT[1]
    assert min(forge.served[name] for name in QUIET) >= 1
    burst = BudgetSettings().creation_burst  # the flood's, before anybody else came
    assert forge.order[:burst] == [NOISY] * burst
    assert forge.order[burst : burst + len(QUIET) + 2].count(NOISY) <= 2
    assert beside.refused > beside.answered
