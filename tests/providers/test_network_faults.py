"""A create through a network that fails in every way: what is told is true, and the write is never sent twice."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
import trio

from compass_forged.budget import BudgetSettings
from compass_forged.emulator import faults
from compass_forged.emulator.app import Forge
from compass_forged.emulator.faults import FaultProxy, Plan, fault_proxy
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import serve_forge
from compass_forged.errors import ForgeError
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.http import CONCURRENCY_MAX
from compass_forged.wire.schema import CreateIssue, GetIssue
from tests.emulator.inprocess import TOKENS
from tests.support.cases import github_at
from tests.support.forge_http import new_context

CREATE = CreateIssue(repo="acme/site", title="A title", body="b" * 500)
READ = GetIssue(repo="acme/site", issue_number=2)


class Source:
    """The bundled forge's own token."""

    async def token(self) -> str:
        await trio.lowlevel.checkpoint()
        return TOKENS["forge-author"]

    def invalidate(self) -> None: ...


@dataclass
class World:
    forge: Forge
    proxy: FaultProxy
    github: GitHubProvider

    async def create(self, seconds: float = 10.0) -> str:
        """What a create ends with: ``done``, an outcome, or ``deadline``."""
        with trio.move_on_after(seconds):
            try:
                await self.github.create_issue(CREATE, new_context()[0])
            except ForgeError as error:
                return error.outcome
            return "done"
        return "deadline"

    @property
    def sent(self) -> int:
        return self.forge.log.count("POST", "/repos/acme/site/issues")

    @property
    def made(self) -> int:
        return self.forge.state.commits["issue"]


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    forge = Forge(default_seed(TOKENS))
    settings = BudgetSettings(
        points_per_minute=100_000, creations_per_minute=10_000, creations_per_hour=10_000, creation_burst=10_000
    )
    async with serve_forge(forge) as url, fault_proxy(urlsplit(url).port or 0) as proxy:
        port = urlsplit(proxy.url).port or 0
        async with github_at(port, source=Source(), settings=settings) as (github, transport):
            yield World(forge, proxy, github)
            assert transport.free_slots == CONCURRENCY_MAX
            with trio.fail_after(5):
                while proxy.open > transport.idle_connections:  # noqa: ASYNC110 -- the proxy's own pace
                    await trio.sleep(0.005)


async def test_a_request_cut_at_any_byte_is_told_as_sent_and_never_sent_again() -> None:
    async with world() as scene:
        await scene.create()
        whole = 1200
        for cut in [*range(1, 40, 7), *range(40, whole, 97)]:
            before = scene.sent
            scene.proxy.plan_open(Plan(request_bytes=cut))
            outcome = await scene.create()
            assert outcome in ({"unknown"} if scene.sent == before else {"unknown", "done"}), cut
            assert scene.sent - before <= 1
            scene.proxy.plan_open(faults.PASS)
            assert await scene.create() == "done"


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_an_answer_cut_at_any_byte_leaves_the_outcome_unknown(ending: faults.Ending) -> None:
    for cut in (0, 1, 12, 60, 300, 900, 1500):
        async with world() as scene:
            scene.proxy.plan(Plan(answer_bytes=cut, ending=ending))
            assert await scene.create() == "unknown", cut
            assert (scene.sent, scene.made) == (1, 1)


@pytest.mark.parametrize(
    "raw",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200\r\nbad header\r\n\r\n",
        faults.header_bomb(300_000),
        b"HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n",
        b"HTTP/1.1 201 Created\r\ncontent-length: 99999999\r\n\r\n{",
        b"HTTP/1.1 201 Created\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\n{}",
        b'HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{"number": 1',
        b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n",
    ],
)
async def test_an_answer_that_is_none_leaves_the_outcome_unknown(raw: bytes) -> None:
    async with world() as scene:
        scene.proxy.plan(Plan(answer=raw))
        assert await scene.create() == "unknown"
        assert scene.sent == 1


async def test_a_connection_that_is_refused_is_told_as_not_sent_and_tried_again() -> None:
    async with world() as scene:
        scene.proxy.plan(Plan(refuse=True))
        assert await scene.create() in {"done", "unknown"}  # the reset may come before the first byte or after it
        assert scene.sent <= 1


async def test_a_half_open_connection_ends_with_the_deadline_and_is_dropped() -> None:
    async with world() as scene:
        scene.proxy.plan(Plan(blackhole=True))
        started = trio.current_time()
        assert await scene.create(0.3) == "deadline"
        assert trio.current_time() - started < 2
        assert scene.sent == 0
        assert await scene.create() == "done"


async def test_a_drip_ends_with_the_deadline_though_each_read_brings_something() -> None:
    async with world() as scene:
        scene.proxy.plan(Plan(drip_bytes=1, drip_delay=0.02))
        with trio.move_on_after(0.4) as scope:
            await scene.github.get_issue(READ, new_context()[0])
        assert scope.cancelled_caught
        assert (await scene.github.get_issue(READ, new_context()[0])).number == 2


async def test_a_pooled_connection_that_closes_under_a_write_leaves_it_unknown_and_unrepeated() -> None:
    async with world() as scene:
        assert await scene.create() == "done"
        scene.proxy.plan_open(Plan(answer_bytes=0))
        assert await scene.create() == "unknown"
        assert (scene.sent, scene.made) == (2, 2)
