"""A simulated fleet that reads issues for a while, in virtual time, against the bundled forge.

Each line on standard input is a ``Fleet``, answered by its ``Outcome``.
"""

import random
import statistics
import sys
from collections import Counter, deque
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import httpx
import msgspec
import trio
import trio.testing

from compass_forged.budget import Budget
from compass_forged.emulator.app import Forge, ForgeSettings
from compass_forged.emulator.limits import LimitSettings
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.state import loop_clock
from compass_forged.errors import ForgeError
from compass_forged.ports import CallContext
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.credentials import Credential, StaticToken
from compass_forged.providers.gate import Gate
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.github_dialect import GitHubDialect
from compass_forged.providers.http import HttpTransport
from compass_forged.providers.urls import BaseUrl
from compass_forged.wire.schema import CommentOnIssue, GetIssue, Issue

_START: Final = datetime(2026, 5, 4, 3, 0, 0, tzinfo=UTC)
_REPO: Final = "acme/site"
_TOKEN: Final = "ghp_" + "bench" * 7
_CALL_SECONDS: Final = 15.0
_FORGE_SECONDS: Final = (0.1, 0.5)


class Fleet(msgspec.Struct, frozen=True):
    """Who reads what, for how long, and how.

    Attributes:
        agents: how many; each reads every issue once a minute.
        issues: how many.
        minutes: for how long.
        naive: each asks for everything every time, of a forge whose limit never ends.
        spread: each begins at a moment of its own, not on the minute.
        seed: of the random moments.
    """

    agents: int
    issues: int
    minutes: int
    naive: bool
    spread: bool
    seed: int


class Outcome(msgspec.Struct, frozen=True):
    """What came of it; see the benchmark."""

    primary: int
    requests: int
    points: int
    answered: int
    wrong: int
    refused: int
    wait_p50: float
    wait_p99: float


class _Guard:
    """A call that nobody takes back."""

    sent = False

    async def sending(self) -> None:
        """Nothing to tell anybody."""
        await trio.lowlevel.checkpoint()


@dataclass
class _Wire(httpx.AsyncBaseTransport):
    """The way to the forge and back, which takes its time; it counts as GitHub does."""

    forge: Forge
    random: random.Random
    primary: int = 0
    requests: int = 0
    points: int = 0
    _recent: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """One request: half of the time before the forge sees it, half after."""
        assert isinstance(request.stream, httpx.AsyncByteStream)
        content = b"".join([part async for part in request.stream])
        seconds = self.random.uniform(*_FORGE_SECONDS)
        await trio.sleep(seconds / 2)
        self._count(5 if request.method == "POST" else 1)
        status, headers, body = await _answer(self.forge, request, content)
        self.primary += status != 304
        await trio.sleep(seconds / 2)
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))

    def _count(self, weight: int) -> None:
        self.requests += 1
        now = trio.current_time()
        self._recent.append((now, weight))
        while self._recent[0][0] <= now - 60:
            self._recent.popleft()
        self.points = max(self.points, sum(points for _, points in self._recent))


async def _answer(forge: Forge, request: httpx.Request, content: bytes) -> tuple[int, list[Any], bytes]:
    scope = {
        "type": "http",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.partition(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, request.url.port),
    }
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        await trio.lowlevel.checkpoint()
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        sent.append(message)

    await forge(scope, receive, send)
    return sent[0]["status"], sent[0]["headers"], b"".join(part.get("body", b"") for part in sent[1:])


def _provider(wire: _Wire) -> GitHubProvider:
    http = ForgeHttp(
        HttpTransport(BaseUrl.parse("https://forge.test"), transport=wire),
        Gate(Budget()),
        Credential("author", StaticToken(_TOKEN)),
        GitHubDialect(),
    )
    return GitHubProvider(http, host="forge.test")


@dataclass
class _Run:
    """One fleet under way."""

    fleet: Fleet
    forge: Forge
    wire: _Wire
    provider: GitHubProvider
    seen: Counter[str] = field(default_factory=Counter[str])
    waits: list[float] = field(default_factory=list[float])

    async def agent(self, number: int, offset: float) -> None:
        """Read every issue once a minute."""
        for minute in range(self.fleet.minutes):
            await trio.sleep_until(minute * 60 + offset)
            async with trio.open_nursery() as nursery:
                for issue in range(1, self.fleet.issues + 1):
                    nursery.start_soon(self.read, f"agent-{number}", issue)

    async def read(self, container: str, number: int) -> None:
        """One read, held against what stood on the forge when it was asked for."""
        asked_at = trio.current_time()
        stood = len(self.forge.state.issue(_REPO, number).comments)
        try:
            with trio.fail_after(_CALL_SECONDS):
                issue = await self._ask(container, number)
        except (ForgeError, trio.TooSlowError):
            self.seen["refused"] += 1
            return
        self.seen["answered"] += 1
        self.seen["wrong"] += issue.comments_total < stood or len(issue.comments) < min(stood, len(issue.comments) or 1)
        self.waits.append(trio.current_time() - asked_at)

    async def _ask(self, container: str, number: int) -> Issue:
        context = CallContext(container=container, guard=_Guard())
        provider = _provider(self.wire) if self.fleet.naive else self.provider
        return await provider.get_issue(GetIssue(repo=_REPO, issue_number=number), context)

    async def others(self) -> None:
        """Change an issue a minute: in turns by a person on the forge, and by an agent through the daemon."""
        state = self.forge.state
        for minute in range(self.fleet.minutes):
            await trio.sleep_until(minute * 60 + 20.25)
            number = minute % self.fleet.issues + 1
            if minute % 2:
                state.add_comment(state.issue(_REPO, number), state.account("mona"), f"news of minute {minute}")
            else:
                arm = CommentOnIssue(repo=_REPO, issue_number=number, body=f"news of minute {minute}")
                await self.provider.comment_on_issue(arm, CallContext(container="writer", guard=_Guard()))


async def _run(fleet: Fleet) -> Outcome:
    limit = 1_000_000_000 if fleet.naive else 5000
    settings = ForgeSettings(limits=LimitSettings(per_hour=limit))
    forge = Forge(default_seed({"forge-author": _TOKEN}), settings=settings, clock=loop_clock(_START))
    state = forge.state
    while len(state.repo(_REPO).issues) < fleet.issues + 1:
        state.add_issue(state.repo(_REPO), state.account("mona"), "An issue", "b" * 2000)
    state.issue(_REPO, 3).pull = None  # the seed's pull request
    moments = random.Random(fleet.seed)  # noqa: S311 -- simulated moments
    wire = _Wire(forge, moments)
    run = _Run(fleet, forge, wire, _provider(wire))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run.others)
        for number in range(fleet.agents):
            nursery.start_soon(run.agent, number, moments.uniform(0, 59) if fleet.spread else 0.0)
    waits = sorted(run.waits)
    return Outcome(
        primary=wire.primary,
        requests=wire.requests,
        points=wire.points,
        answered=run.seen["answered"],
        wrong=run.seen["wrong"],
        refused=run.seen["refused"],
        wait_p50=statistics.median(waits),
        wait_p99=waits[len(waits) * 99 // 100],
    )


def main() -> None:
    """Answer fleets until standard input closes."""
    for line in sys.stdin.buffer:
        fleet = msgspec.json.decode(line, type=Fleet)
        outcome = trio.run(_run, fleet, clock=trio.testing.MockClock(autojump_threshold=0))
        print(msgspec.json.encode(outcome).decode(), flush=True)


if __name__ == "__main__":
    main()
