"""What ends a whole daemon, and what must not: signals, and a log that nobody reads."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial

import pytest
import trio

from compass_forged.agent import ForgeCall, ForgeCallFailed, SyncForgeClient, connect
from compass_forged.agent.errors import AgentError
from compass_forged.wire.schema import CommentOnIssue, GetIssue
from tests.support.cases import never, raw_forge
from tests.support.host import until
from tests.support.world import ROOT, STOP_SECONDS, DaemonProcess, Place, daemon, place

pytestmark = pytest.mark.process

COMMENT = CommentOnIssue(repo="acme/site", issue_number=1, body="hello")
NONSENSE = GetIssue(repo="nonsense", issue_number=1)
PIPE_BYTES = 64 << 10


@pytest.fixture
def where() -> Generator[Place, None, None]:
    with place() as found:
        yield found


def bind(where: Place) -> None:
    with where.control() as control:
        control.open_container("one")
        control.bind_session("one", "s-scout", agent="scout", owner="ada")


def lines(where: Place, event: str) -> int:
    return sum(line["event"] == event for line in where.logged())


# --- signals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_a_daemon_whose_forge_never_answers_a_write(
    where: Place, second: signal.Signals
) -> None:
    async with raw_forge(never) as forge:
        where.configure(f"http://127.0.0.1:{forge.port}", store='"memory"')
        made = await trio.to_thread.run_sync(DaemonProcess, where)
        try:
            await trio.to_thread.run_sync(made.wait_ready)
            await trio.to_thread.run_sync(bind, where)
            failures: list[AgentError] = []

            async def ask() -> None:
                async with connect(where.socket("one")) as client:
                    with pytest.raises(AgentError) as failed:
                        await client.forge(ForgeCall(call_id="c", arm=COMMENT))
                failures.append(failed.value)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                await until(lambda: any(method == "POST" for method, _ in forge.seen))
                made.process.send_signal(signal.SIGTERM)
                await until(lambda: lines(where, "draining") == 1)
                await trio.sleep(0.3)
                assert made.process.poll() is None, "one signal waits for a write that has gone out"
                began = time.monotonic()
                made.process.send_signal(second)
                status = await trio.to_thread.run_sync(partial(made.process.wait, STOP_SECONDS))
                assert time.monotonic() - began < 10
            assert status == 0
            assert lines(where, "second signal; ending at once") == 1
            assert [error.outcome for error in failures] == ["unknown"]
            assert not where.socket("one").exists()
            assert not (where.run_dir / "control.sock").exists()
        finally:
            made.close()


async def test_a_daemon_that_drains_takes_no_connection_and_serves_those_it_has(where: Place) -> None:
    async with raw_forge(never) as forge:
        where.configure(f"http://127.0.0.1:{forge.port}", store='"memory"', extra="[limits]\ndrain_seconds = 2")
        made = await trio.to_thread.run_sync(DaemonProcess, where)
        try:
            await trio.to_thread.run_sync(made.wait_ready)
            await trio.to_thread.run_sync(bind, where)
            stream = await trio.open_unix_socket(str(where.socket("one")))
            async with stream, trio.open_nursery() as nursery:

                async def ask() -> None:
                    async with connect(where.socket("one")) as client:
                        with pytest.raises(ForgeCallFailed) as failed:
                            await client.forge(ForgeCall(call_id="c", arm=COMMENT))
                    assert failed.value.outcome == "unknown"  # told before the daemon went

                nursery.start_soon(ask)
                await until(lambda: any(method == "POST" for method, _ in forge.seen))
                made.process.send_signal(signal.SIGTERM)
                await until(lambda: not where.socket("one").exists())
                assert lines(where, "draining") == 1
                assert lines(where, "stopped") == 0
                with pytest.raises(FileNotFoundError):
                    await trio.open_unix_socket(str(where.socket("one")))
            assert await trio.to_thread.run_sync(partial(made.process.wait, STOP_SECONDS)) == 0
        finally:
            made.close()


# --- a log that nobody reads ----------------------------------------------------------------------------------------


class Piped(DaemonProcess):
    """A daemon whose stderr is a pipe; ``reader`` is its other end."""

    def __init__(self, where: Place) -> None:
        self._where = where
        self.reader, writer = os.pipe()
        self._log = where.log.open("ab")
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "compass_forged", "serve", "--config", str(where.config)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=writer,
            )
        finally:
            os.close(writer)
        os.set_blocking(self.reader, False)

    def read(self) -> bytes:
        """All that waits in the pipe."""
        data = b""
        with suppress(BlockingIOError):
            while more := os.read(self.reader, 1 << 20):
                data += more
        return data

    def logs(self, event: str) -> bool:
        """Whether such a line comes; a call's comes after its answer."""
        until = time.monotonic() + 10
        data = b""
        while (found := f'"event": "{event}"'.encode()) not in data and time.monotonic() < until:
            data += self.read()
            time.sleep(0.005)
        return found in data


@contextmanager
def piped(where: Place) -> Generator[Piped, None, None]:
    """A ready daemon with a container bound; no forge is behind it."""
    where.configure("http://127.0.0.1:9", store='"memory"')
    made = Piped(where)
    try:
        made.wait_ready()
        bind(where)
        yield made
    finally:
        made.close()
        with suppress(OSError):  # a test may have closed it
            os.close(made.reader)


def ask(where: Place, count: int) -> None:
    """So many calls, each answered in-band and logged with a line of its own."""
    with SyncForgeClient(where.socket("one")) as client:
        for number in range(count):
            with pytest.raises(ForgeCallFailed, match="invalid_argument"):
                client.forge(ForgeCall(call_id=str(number), arm=NONSENSE))


def test_a_daemon_whose_logs_reader_went_away_keeps_answering(where: Place) -> None:
    with piped(where) as made:
        ask(where, 1)
        assert made.logs("call")
        os.close(made.reader)
        ask(where, 20)
        with where.control() as control:
            assert control.status().calls_in_flight == 0
        assert made.stop() == 0


def test_a_daemon_whose_log_nobody_reads_keeps_answering_and_logs_again_once_it_is_read(where: Place) -> None:
    with piped(where) as made:
        ask(where, 600)
        kept = made.read()
        assert len(kept) > PIPE_BYTES - (8 << 10), "the pipe was full"
        events = [json.loads(line)["event"] for line in kept.splitlines()]  # whole lines only
        assert events.count("call") < 600, "and what did not fit was dropped"
        ask(where, 1)
        assert made.logs("call")
        assert made.stop() == 0


def test_a_daemon_whose_log_is_full_can_be_stopped(where: Place) -> None:
    with piped(where) as made:
        ask(where, 600)
        assert made.stop() == 0


def test_a_daemon_whose_log_is_a_full_disk_keeps_answering(where: Place) -> None:
    where.configure("http://127.0.0.1:9", store='"memory"')
    if not os.path.exists("/dev/full"):  # noqa: PTH110 -- a device, not a path of the test's
        pytest.skip("this machine has no /dev/full")
    where.log.symlink_to("/dev/full")
    with daemon(where) as made:
        bind(where)
        ask(where, 20)
        assert made.stop() == 0
