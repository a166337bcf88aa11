"""Signals beyond the first."""

import signal
import time
from collections.abc import Generator

import pytest
import trio

from compass_forged.agent import ConnectionLost, ForgeCall, ForgeCallFailed, connect
from compass_forged.emulator.app import Forge
from compass_forged.emulator.script import Rule
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import serve_forge
from compass_forged.wire.schema import CreateIssue
from tests.support.host import until
from tests.support.world import AUTHOR_TOKEN, REVIEWER_TOKEN, DaemonProcess, Place, place

pytestmark = pytest.mark.process

ISSUES = "/repos/acme/site/issues"
LONG = 15.0
"""What the forge takes: within the drain time, so that the first signal alone would wait for it."""


@pytest.fixture
def where() -> Generator[Place, None, None]:
    with place() as found:
        yield found


def _ready(where: Place) -> DaemonProcess:
    process = DaemonProcess(where).wait_ready()
    with where.control() as control:
        control.open_container("one")
        control.bind_session("one", "s-1", agent="scout", owner="ada")
    return process


async def test_a_second_signal_ends_at_once(where: Place) -> None:
    forge = Forge(default_seed({"forge-author": AUTHOR_TOKEN, "forge-reviewer": REVIEWER_TOKEN}))
    async with serve_forge(forge) as url:
        where.configure(url, store='"memory"')
        forge.script.add(Rule(method="POST", path=ISSUES, delay=LONG))
        process = await trio.to_thread.run_sync(_ready, where)
        ended: list[ForgeCallFailed | ConnectionLost] = []

        async def ask() -> None:
            try:
                async with connect(where.socket("one")) as client:
                    await client.forge(ForgeCall(call_id="1", arm=CreateIssue(repo="acme/site", title="A title")))
            except (ForgeCallFailed, ConnectionLost) as error:
                ended.append(error)

        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await until(lambda: forge.log.count("POST", ISSUES) == 1)
                began = time.monotonic()
                process.process.send_signal(signal.SIGTERM)
                await until(lambda: any(line["event"] == "draining" for line in where.logged()))
                await trio.sleep(0.05)
                assert process.process.poll() is None  # it waits for what was sent
                process.process.send_signal(signal.SIGTERM)
                assert await trio.to_thread.run_sync(process.process.wait, 10) == 0
                assert time.monotonic() - began < LONG / 2
        finally:
            process.close()
        assert len(ended) == 1
        assert ended[0].outcome == "unknown"  # by the daemon's word, or by the connection's end
        assert not where.socket("one").exists()
        assert [line for line in where.logged() if str(line["event"]).startswith("second signal")]
