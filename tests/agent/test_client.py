"""The asynchronous client against a scripted daemon, under both event loops."""

import asyncio
import errno
import random
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from struct import pack
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from compass_forged.agent import (
    AgentError,
    CallIdInUse,
    CallRefused,
    CallTooLarge,
    ClientClosed,
    ConnectionLost,
    DaemonUnreachable,
    ForgeCallFailed,
    ForgeClient,
    ForgeFault,
    ForgeTimeout,
    ProtocolViolation,
    connect,
    connection,
    endpoint,
    exchange,
    link,
    outbox,
)
from compass_forged.wire.frames import FRAME_MAX_BYTES, REPLY_MAX_BYTES
from compass_forged.wire.schema import ErrorResult, ForgeCall, GetIssue, ReplyFrame, ResultArm, SubscribedResult
from tests.support.scripted_daemon import Peer, answer_to, call_of, frame_of_answer, run, scripted_daemon

BIG = 900_000
"""A body that no socket buffer takes at once."""


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def path() -> Iterator[Path]:
    # tmp_path may be longer than a socket's path may be.
    with TemporaryDirectory(prefix="cf") as folder:
        yield Path(folder) / "forge.sock"


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what comes true in a thread, or in the client, which shows no event."""
    while True:
        await anyio.sleep(0.001)
        if condition():
            return


async def until_in_flight(client: ForgeClient, number: int) -> None:
    await until(lambda: client.statistics().in_flight == number)


async def until_lost(client: ForgeClient, path: Path) -> None:
    """Until the client has seen its connection end and nobody listens."""
    await until(lambda: not client.statistics().connected and not path.exists())


def never_answer(peer: Peer) -> None:
    while peer.receive_or_end() is not None:
        pass


async def warm_up(client: ForgeClient) -> None:
    """One call, so that those after it are sent at once."""
    assert await client.forge(call_of("warm")) == answer_to("warm")


class Calls:
    """Calls made by tasks of their own, and how they ended."""

    def __init__(self, client: ForgeClient) -> None:
        self.client = client
        self.ends: dict[str, ResultArm | AgentError] = {}

    async def make(self, call: ForgeCall) -> None:
        await anyio.lowlevel.checkpoint()
        try:
            self.ends[call.call_id] = await self.client.forge(call)
        except AgentError as error:
            self.ends[call.call_id] = error


# --- replies --------------------------------------------------------------------------------------------------------


def test_a_call_returns_its_result_arm(backend: str, path: Path) -> None:
    async def main() -> None:
        async with connect(path) as client:
            assert await client.forge(call_of("a")) == answer_to("a")
            assert await client.forge(call_of("a")) == answer_to("a")
            assert client.statistics().connections == 1

    with scripted_daemon(path, Peer.serve):
        run(backend, main)


def test_replies_in_any_order_find_their_calls(backend: str, path: Path) -> None:
    def daemon(peer: Peer) -> None:
        for call_id in reversed([peer.receive() for _ in range(5)]):
            peer.answer(call_id)

    async def main() -> None:
        async with connect(path) as client:
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                for call_id in "abcde":
                    tasks.start_soon(calls.make, call_of(call_id))
            assert calls.ends == {call_id: answer_to(call_id) for call_id in "abcde"}

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_thousand_calls_in_flight(backend: str, path: Path) -> None:
    def daemon(peer: Peer) -> None:
        ids = [peer.receive() for _ in range(1000)]
        random.Random(7).shuffle(ids)  # noqa: S311 -- any order will do
        for call_id in ids:
            peer.answer(call_id)

    async def main() -> None:
        async with connect(path) as client:
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                for number in range(1000):
                    tasks.start_soon(calls.make, call_of(f"c{number}", size=2000))
            assert calls.ends == {f"c{number}": answer_to(f"c{number}") for number in range(1000)}
            assert client.statistics().in_flight == 0

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_reply_may_come_byte_by_byte_and_two_at_once(backend: str, path: Path) -> None:
    def daemon(peer: Peer) -> None:
        for byte in frame_of_answer(peer.receive()):
            peer.send(bytes([byte]))
        peer.send(frame_of_answer(peer.receive()) + frame_of_answer(peer.receive()))

    async def main() -> None:
        async with connect(path) as client:
            assert await client.forge(call_of("a")) == answer_to("a")
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(calls.make, call_of("b"))
                tasks.start_soon(calls.make, call_of("c"))
            assert calls.ends == {"b": answer_to("b"), "c": answer_to("c")}

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_reply_may_be_larger_than_a_request(backend: str, path: Path) -> None:
    large = SubscribedResult(subscription_id="x" * (2 * FRAME_MAX_BYTES))

    async def main() -> None:
        async with connect(path) as client:
            assert await client.forge(call_of("a")) == large

    with scripted_daemon(path, lambda peer: peer.result(peer.receive(), large)):
        run(backend, main)


def test_a_fault_is_raised_and_the_connection_lives_on(backend: str, path: Path) -> None:
    def daemon(peer: Peer) -> None:
        peer.fault(peer.receive(), "unavailable", "draining", 250)
        peer.fault(peer.receive(), "permission_denied", "the container is not bound")
        peer.serve()

    async def main() -> None:
        async with connect(path) as client:
            with pytest.raises(ForgeFault) as fault:
                await client.forge(call_of("a"))
            assert str(fault.value) == "unavailable: draining"
            assert (fault.value.code, fault.value.message, fault.value.retry_after_ms) == (
                "unavailable",
                "draining",
                250,
            )
            assert fault.value.outcome == "unknown"
            with pytest.raises(ForgeFault) as fault:
                await client.forge(call_of("b"))
            assert fault.value.outcome == "not_sent"
            assert await client.forge(call_of("c")) == answer_to("c")
            assert client.statistics().connections == 1

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_an_in_band_error_is_raised_with_all_it_says(backend: str, path: Path) -> None:
    error = ErrorResult(code="resource_exhausted", message="wait", retry_after_ms=1500, outcome="not_sent")

    async def main() -> None:
        async with connect(path) as client:
            with pytest.raises(ForgeCallFailed) as failed:
                await client.forge(call_of("a"))
            raised = failed.value
            assert (raised.code, raised.message, raised.retry_after_ms, raised.outcome) == (
                "resource_exhausted",
                "wait",
                1500,
                "not_sent",
            )

    with scripted_daemon(path, lambda peer: peer.result(peer.receive(), error)):
        run(backend, main)


def test_a_reply_to_no_call_is_ignored_and_counted(backend: str, path: Path) -> None:
    def daemon(peer: Peer) -> None:
        call_id = peer.receive()
        peer.answer("who?")
        peer.fault("who else?", "internal", "x")
        peer.answer(call_id)

    async def main() -> None:
        async with connect(path) as client:
            assert await client.forge(call_of("a")) == answer_to("a")
            assert client.statistics().unknown_replies == 2

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_reply_that_cannot_be_read_hurts_its_call_alone(backend: str, path: Path) -> None:
    # A map of three: frame is result, call_id is a, result is 1.
    unreadable = b"\x83\xa5frame\xa6result\xa7call_id\xa1a\xa6result\x01"

    def daemon(peer: Peer) -> None:
        assert {peer.receive(), peer.receive()} == {"a", "b"}
        peer.send(pack(">I", len(unreadable)) + unreadable)
        peer.answer("b")

    async def main() -> None:
        async with connect(path) as client:
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(calls.make, call_of("a"))
                tasks.start_soon(calls.make, call_of("b"))
            assert isinstance(calls.ends["a"], ProtocolViolation)
            assert "result: expected object, got int" in str(calls.ends["a"])
            assert calls.ends["b"] == answer_to("b")

    with scripted_daemon(path, daemon):
        run(backend, main)


# --- lost connections -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (b"", "the daemon closed it"),
        (frame_of_answer("a")[:-1], "the daemon closed it within a frame"),
        (b"\0\0", "the daemon closed it within a frame"),
        (pack(">I", REPLY_MAX_BYTES + 1), f"length {REPLY_MAX_BYTES + 1} is over the limit"),
        (b"\0\0\0\0", "zero-length frame"),
        (b"\0\0\0\x01\xc1", "a reply cannot be read: frame: not valid MessagePack"),
        (frame_of_answer("") + frame_of_answer("a"), "a result has no call_id"),
    ],
)
def test_a_lost_connection_ends_all_calls_in_flight_and_the_next_call_connects_anew(
    backend: str, path: Path, last: bytes, why: str
) -> None:
    def daemon(peer: Peer) -> None:
        peer.receive()
        peer.receive()
        peer.send(last)

    async def main() -> None:
        async with connect(path) as client:
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(calls.make, call_of("a"))
                tasks.start_soon(calls.make, call_of("b"))
            for lost in calls.ends.values():
                assert isinstance(lost, ConnectionLost)
                assert why in str(lost)
                assert (lost.code, lost.outcome) == ("unavailable", "unknown")
            assert calls.ends["a"] is not calls.ends["b"]
            assert await client.forge(call_of("a")) == answer_to("a")
            assert client.statistics().connections == 2

    with scripted_daemon(path, daemon, Peer.serve):
        run(backend, main)


def test_a_fault_of_no_call_ends_the_connection_with_its_message(backend: str, path: Path) -> None:
    def daemon(peer: Peer) -> None:
        peer.receive()
        peer.fault("", "invalid_argument", "frame: zero-length frame")

    async def main() -> None:
        async with connect(path) as client:
            with pytest.raises(ConnectionLost, match="invalid_argument: frame: zero-length frame"):
                await client.forge(call_of("a"))
            assert not client.statistics().connected
            assert await client.forge(call_of("a")) == answer_to("a")

    with scripted_daemon(path, daemon, Peer.serve):
        run(backend, main)


def test_a_daemon_that_resets_the_connection(backend: str, path: Path) -> None:
    sent = threading.Event()

    def daemon(_: Peer) -> None:
        sent.wait()  # and close with the calls unread: that is a reset

    async def main() -> None:
        async with connect(path) as client:
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                for call_id, size in (("a", 1), ("b", BIG), ("c", 1)):
                    tasks.start_soon(calls.make, call_of(call_id, size=size))
                    await until_in_flight(client, "abc".index(call_id) + 1)
                sent.set()
            assert isinstance(calls.ends["a"], ConnectionLost)
            assert isinstance(calls.ends["b"], ConnectionLost)
            # It was queued behind the second, so nothing of it had gone out, and it could be sent again.
            assert calls.ends["c"] == answer_to("c")

    with scripted_daemon(path, daemon, Peer.serve):
        run(backend, main)


def test_a_daemon_that_restarts_between_calls_is_found_again(backend: str, path: Path) -> None:
    def one_call(peer: Peer) -> None:
        peer.answer(peer.receive())

    async def main() -> None:
        with scripted_daemon(path, one_call):
            context = connect(path)
            client = await context.__aenter__()
            assert await client.forge(call_of("a")) == answer_to("a")
        await until_lost(client, path)
        calls = Calls(client)
        async with anyio.create_task_group() as tasks:
            for call_id in "bcd":
                tasks.start_soon(calls.make, call_of(call_id))
            await anyio.sleep(0.03)
            assert calls.ends == {}
            daemon = scripted_daemon(path, Peer.serve)
            daemon.__enter__()
        assert calls.ends == {call_id: answer_to(call_id) for call_id in "bcd"}
        assert client.statistics().connections == 2
        await context.__aexit__(None, None, None)
        daemon.__exit__(None, None, None)

    run(backend, main)


def test_a_daemon_that_stays_away_is_reported_after_the_reconnect_time(backend: str, path: Path) -> None:
    async def main() -> None:
        async with connect(path, reconnect_seconds=0.05) as client:
            assert await client.forge(call_of("a")) == answer_to("a")
            await until_lost(client, path)
            with pytest.raises(DaemonUnreachable, match="nothing is there") as unreachable:
                await client.forge(call_of("b"))
            assert unreachable.value.transient
            assert unreachable.value.outcome == "not_sent"

    with scripted_daemon(path, lambda peer: peer.answer(peer.receive())):
        run(backend, main)


def test_a_call_that_runs_out_of_time_while_it_connects_was_not_sent(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "REPLY_GRACE_SECONDS", 0.02)

    async def main() -> None:
        async with connect(path) as client:
            await until_lost(client, path)
            with pytest.raises(ForgeTimeout) as timeout:
                await client.forge(call_of("a", timeout_ms=10))
            assert timeout.value.outcome == "not_sent"

    with scripted_daemon(path, lambda _: None):
        run(backend, main)


def test_connecting_can_wait_for_a_daemon_that_is_not_there_yet(backend: str, path: Path) -> None:
    async def main() -> None:
        async def daemon() -> None:
            await anyio.sleep(0.03)
            with scripted_daemon(path, Peer.serve):
                served.set()
                await done.wait()

        served, done = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(daemon)
            async with connect(path, wait_seconds=10) as client:
                assert served.is_set()
                assert await client.forge(call_of("a")) == answer_to("a")
            done.set()

    run(backend, main)


def test_a_close_that_was_not_noticed_yet_costs_no_call(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    first = iter([ours])

    def open_pair_first(name: str) -> socket.socket:
        return next(first, None) or endpoint.open_socket(name)

    monkeypatch.setattr(link, "open_socket", open_pair_first)

    async def main() -> None:
        async with connect(path) as client:
            await anyio.sleep(0.001)
            theirs.close()
            # The reader has not run since the close.
            assert client.statistics().connected
            assert await client.forge(call_of("b")) == answer_to("b")
            assert client.statistics().connections == 2

    with scripted_daemon(path, Peer.serve):
        run(backend, main)


def test_a_daemon_that_closes_every_new_connection_is_reported(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_closed(_path: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        theirs.close()
        ours.setblocking(False)
        return ours

    monkeypatch.setattr(link, "open_socket", open_closed)

    async def main() -> None:
        async with connect(path) as client:
            with pytest.raises(DaemonUnreachable, match="closes every new connection"):
                await client.forge(call_of("a"))

    run(backend, main)


# --- refused before sending -----------------------------------------------------------------------------------------


def test_what_cannot_be_sent_is_refused_and_nothing_goes_out(backend: str, path: Path) -> None:
    room = FRAME_MAX_BYTES - len(exchange.frame_of(call_of("a", size=70_000))) + 4 + 70_000

    def daemon(peer: Peer) -> None:
        assert peer.receive() == "the largest"
        peer.answer("the largest")
        assert peer.receive() == "good"
        peer.answer("good")

    async def main() -> None:
        async with connect(path) as client:
            for size in (room - len("the largest") + 2, FRAME_MAX_BYTES):
                with pytest.raises(CallTooLarge, match="is over the limit of 1048576 bytes"):
                    await client.forge(call_of("the largest", size=size))
            assert await client.forge(call_of("the largest", size=room - len("the largest") + 1)) is not None
            for call_id in ("", "x" * 129, "é" * 65):
                with pytest.raises(CallRefused, match="call_id: expected 1 to 128 bytes"):
                    await client.forge(call_of(call_id))
            for arm in (GetIssue(repo="\ud800", issue_number=1), GetIssue(repo="r", issue_number=2**64)):
                with pytest.raises(CallRefused, match="call 'a': a field cannot be encoded") as refused:
                    await client.forge(ForgeCall(call_id="a", arm=arm))
                assert (refused.value.code, refused.value.outcome) == ("invalid_argument", "not_sent")
            with pytest.raises(CallRefused, match="a field cannot be encoded"):
                await client.forge(call_of("\ud800"))
            assert await client.forge(call_of("good")) == answer_to("good")

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_call_id_in_flight_is_refused_here(backend: str, path: Path) -> None:
    def daemon(peer: Peer) -> None:
        assert [peer.receive(), peer.receive()] == ["a", "b"]
        peer.answer("a")
        peer.answer("b")
        peer.serve()

    async def main() -> None:
        async with connect(path) as client:
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(calls.make, call_of("a"))
                await until_in_flight(client, 1)
                with pytest.raises(CallIdInUse, match="'a' is in flight"):
                    await client.forge(call_of("a"))
                tasks.start_soon(calls.make, call_of("b"))
            assert calls.ends == {"a": answer_to("a"), "b": answer_to("b")}
            assert await client.forge(call_of("a")) == answer_to("a")

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_call_after_the_context_has_ended_is_refused(backend: str, path: Path) -> None:
    async def main() -> None:
        async with connect(path) as client:
            pass
        with pytest.raises(ClientClosed, match="the client is closed"):
            await client.forge(call_of("a"))
        assert not client.statistics().connected

    with scripted_daemon(path, Peer.serve):
        run(backend, main)


def test_leaving_the_context_ends_the_calls_of_tasks_outside(backend: str, path: Path) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as tasks, connect(path) as client:
            calls = Calls(client)
            tasks.start_soon(calls.make, call_of("a"))
            await until_in_flight(client, 1)
        assert isinstance(calls.ends["a"], ConnectionLost)
        assert "the client was closed" in str(calls.ends["a"])

    with scripted_daemon(path, never_answer):
        run(backend, main)


def test_leaving_the_context_stops_a_call_that_is_connecting(backend: str, path: Path) -> None:
    async def main() -> None:
        async with anyio.create_task_group() as tasks, connect(path) as client:
            calls = Calls(client)
            await until_lost(client, path)
            tasks.start_soon(calls.make, call_of("a"))
            await anyio.sleep(0.01)
        assert isinstance(calls.ends["a"], ClientClosed)

    with scripted_daemon(path, lambda _: None):
        run(backend, main)


def test_what_the_body_raises_comes_out_as_it_is(backend: str, path: Path) -> None:
    async def main() -> None:
        for raised in (ValueError("a"), KeyboardInterrupt(), ForgeFault("internal", "b")):
            with pytest.raises(type(raised)) as caught:
                async with connect(path):
                    raise raised
            assert caught.value is raised

    with scripted_daemon(path, Peer.serve, Peer.serve, Peer.serve):
        run(backend, main)


# --- cancellation and deadlines -------------------------------------------------------------------------------------


def test_a_cancelled_callers_late_reply_is_dropped_and_never_taken_for_another(backend: str, path: Path) -> None:
    def daemon(peer: Peer) -> None:
        peer.answer(peer.receive())
        assert peer.receive() == "a"
        assert peer.receive() == "go"
        peer.result("a", SubscribedResult(subscription_id="late"))
        peer.answer("go")
        peer.serve()

    async def main() -> None:
        async with connect(path) as client:
            await warm_up(client)
            with anyio.move_on_after(0.02) as scope:
                await client.forge(call_of("a"))
            assert scope.cancelled_caught
            assert client.statistics().given_up == 1
            with pytest.raises(CallIdInUse):
                await client.forge(call_of("a"))
            assert await client.forge(call_of("go")) == answer_to("go")
            assert client.statistics().late_replies == 1
            assert client.statistics().given_up == 0
            assert await client.forge(call_of("a")) == answer_to("a")
            assert client.statistics().unknown_replies == 0

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_nothing_is_sent_for_a_caller_who_is_cancelled_already(backend: str, path: Path) -> None:
    def daemon(peer: Peer) -> None:
        peer.answer(peer.receive())
        assert peer.receive() == "b"
        peer.answer("b")

    async def main() -> None:
        async with connect(path) as client:
            await warm_up(client)
            with anyio.CancelScope() as scope:
                scope.cancel()
                await client.forge(call_of("a"))
            assert await client.forge(call_of("b")) == answer_to("b")

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_cancelling_the_whole_context_leaves_nothing_behind(backend: str, path: Path) -> None:
    async def main() -> None:
        with anyio.move_on_after(0.02) as scope:
            async with connect(path) as client:
                await client.forge(call_of("a"))
        assert scope.cancelled_caught

    with scripted_daemon(path, never_answer):
        run(backend, main)


def test_a_task_that_asyncio_itself_cancels(path: Path) -> None:
    def daemon(peer: Peer) -> None:
        peer.answer(peer.receive())
        assert peer.receive() == "a"
        peer.serve()

    async def main() -> None:
        async with connect(path) as client:
            await warm_up(client)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.forge(call_of("a")), 0.02)
            assert await client.forge(call_of("b")) == answer_to("b")
            assert client.statistics().given_up == 1

    with scripted_daemon(path, daemon):
        run("asyncio", main)


def test_a_call_waits_for_its_own_time_and_a_little_more(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "REPLY_GRACE_SECONDS", 0.02)

    def daemon(peer: Peer) -> None:
        assert [peer.receive() for _ in range(2)] == ["slow", "quick"]
        assert peer.receive() == "next"
        peer.answer("slow")
        peer.answer("next")

    async def main() -> None:
        async with connect(path) as client:
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(calls.make, call_of("slow", timeout_ms=60_000))
                await until_in_flight(client, 1)
                began = anyio.current_time()
                with pytest.raises(ForgeTimeout, match=r"no reply from the daemon within 0\.03 s") as timeout:
                    await client.forge(call_of("quick", timeout_ms=10))
                assert anyio.current_time() - began >= 0.03
                assert (timeout.value.code, timeout.value.outcome) == ("deadline_exceeded", "unknown")
                assert await client.forge(call_of("next")) == answer_to("next")
            assert calls.ends == {"slow": answer_to("slow")}

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_call_without_a_time_of_its_own_waits_for_the_clients(backend: str, path: Path) -> None:
    def daemon(peer: Peer) -> None:
        peer.answer(peer.receive())
        peer.receive()
        peer.receive()
        peer.receive_or_end()

    async def main() -> None:
        async with connect(path, call_seconds=0.03) as client:
            assert await client.forge(call_of("a", timeout_ms=10_000)) == answer_to("a")
            for call_id in "bc":
                with pytest.raises(ForgeTimeout, match=r"within 0\.03 s"):
                    await client.forge(call_of(call_id))

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_daemon_that_leaves_too_many_calls_unanswered_is_left(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_GIVEN_UP_MAX", 2)
    monkeypatch.setattr(exchange, "REPLY_GRACE_SECONDS", 0.01)

    def daemon(peer: Peer) -> None:
        peer.answer(peer.receive())
        never_answer(peer)

    async def main() -> None:
        async with connect(path) as client:
            await warm_up(client)
            for call_id in "abc":
                assert client.statistics().connected
                with pytest.raises(ForgeTimeout):
                    await client.forge(call_of(call_id, timeout_ms=1))
            assert not client.statistics().connected

    with scripted_daemon(path, daemon):
        run(backend, main)


# --- a daemon that does not read ------------------------------------------------------------------------------------


def test_calls_wait_their_turn_while_the_daemon_does_not_read(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "REPLY_GRACE_SECONDS", 0.01)
    reads = threading.Event()

    def daemon(peer: Peer) -> None:
        reads.wait()
        received = [peer.receive() for _ in range(3)]
        assert received == ["first", "second", "last"]
        for call_id in received:
            peer.answer(call_id)

    async def main() -> None:
        async with connect(path) as client:
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(calls.make, call_of("first", size=BIG))
                await until_in_flight(client, 1)
                tasks.start_soon(calls.make, call_of("second", size=BIG))
                await anyio.sleep(0.01)
                # Given up while they waited for their turn, these two are never sent.
                with anyio.move_on_after(0.01):
                    await client.forge(call_of("cancelled"))
                with pytest.raises(ForgeTimeout) as timeout:
                    await client.forge(call_of("expired", timeout_ms=1))
                assert timeout.value.outcome == "not_sent"
                assert client.statistics().in_flight == 2
                assert client.statistics().given_up == 0
                tasks.start_soon(calls.make, call_of("last"))
                reads.set()
            assert calls.ends == {name: answer_to(name) for name in ("first", "second", "last")}

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_daemon_that_never_reads_is_left(backend: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_STALL_SECONDS", 0.02)
    done = threading.Event()

    async def main() -> None:
        async with connect(path) as client:
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(calls.make, call_of("a", size=BIG))
                await until_in_flight(client, 1)
                tasks.start_soon(calls.make, call_of("b"))
                await until(lambda: "a" in calls.ends)
                done.set()
            assert "took no byte for 0.02 s" in str(calls.ends["a"])
            # It had not been sent by then, so it went out on the next connection.
            assert calls.ends["b"] == answer_to("b")

    def never_reads(_: Peer) -> None:
        done.wait()

    with scripted_daemon(path, never_reads, Peer.serve):
        run(backend, main)


def test_a_call_that_is_half_sent_and_alone_times_out_and_the_rest_of_it_still_goes_out(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "REPLY_GRACE_SECONDS", 0.02)
    reads = threading.Event()

    def daemon(peer: Peer) -> None:
        peer.answer(peer.receive())
        reads.wait()
        peer.serve()

    async def main() -> None:
        async with connect(path) as client:
            await warm_up(client)
            with pytest.raises(ForgeTimeout) as timeout:
                await client.forge(call_of("a", timeout_ms=1, size=BIG))
            assert timeout.value.outcome == "unknown"
            reads.set()
            assert await client.forge(call_of("b")) == answer_to("b")
            assert client.statistics().late_replies == 1
            assert client.statistics().connections == 1

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_frame_is_never_torn_whenever_its_caller_is_cancelled(backend: str, path: Path) -> None:
    chance = random.Random(11)  # noqa: S311 -- the same moments in every run

    async def main() -> None:
        async with connect(path) as client:
            calls = Calls(client)

            async def impatient(number: int) -> None:
                with anyio.move_on_after(chance.uniform(0, 0.05)):
                    await calls.make(call_of(f"c{number}", size=chance.choice([1, 3000, 300_000])))

            async with anyio.create_task_group() as tasks:
                for number in range(100):
                    tasks.start_soon(impatient, number)
            assert all(end == answer_to(call_id) for call_id, end in calls.ends.items())
            assert await client.forge(call_of("after", size=BIG)) == answer_to("after")
            statistics = client.statistics()
            assert (statistics.connections, statistics.unknown_replies) == (1, 0)
            assert statistics.in_flight == 0

    # The daemon's script fails on bytes that are no frames, and on a client that closes within one.
    with scripted_daemon(path, Peer.serve):
        run(backend, main)


def test_a_socket_that_wakes_for_nothing_is_waited_for_again(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakes = {"readable": 0, "writable": 0}
    reads = threading.Event()

    def at_first_for_nothing(name: str) -> Callable[[socket.socket], Awaitable[None]]:
        wait: Callable[[socket.socket], Awaitable[None]] = getattr(anyio, f"wait_{name}")

        async def spurious(sock: socket.socket) -> None:
            wakes[name] += 1
            if wakes[name] <= 3:
                await anyio.lowlevel.checkpoint()
            else:
                if name == "writable":
                    reads.set()  # the buffer was full each time before
                await wait(sock)

        return spurious

    for name in wakes:
        monkeypatch.setattr(anyio, f"wait_{name}", at_first_for_nothing(name))

    async def main() -> None:
        async with connect(path) as client:
            assert await client.forge(call_of("a", size=BIG)) == answer_to("a")

    def daemon(peer: Peer) -> None:
        reads.wait()
        peer.serve()

    with scripted_daemon(path, daemon):
        run(backend, main)
    assert min(wakes.values()) > 3


# --- callers that read for themselves, and those that send together -------------------------------------------------


def test_a_caller_that_reads_for_itself_hands_out_the_replies_of_others_and_hands_over_when_it_leaves(
    backend: str, path: Path
) -> None:
    def daemon(peer: Peer) -> None:
        peer.answer(peer.receive())
        assert [peer.receive() for _ in range(4)] == ["first", "b", "c", "go"]
        for call_id in ("b", "first", "go", "c"):
            peer.answer(call_id)
        peer.serve()

    async def main() -> None:
        async with connect(path) as client:
            await warm_up(client)  # so that the next caller is alone
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                for number, call_id in enumerate(("first", "b", "c", "go"), start=1):
                    tasks.start_soon(calls.make, call_of(call_id))
                    await until_in_flight(client, number if call_id != "go" else 0)
            assert calls.ends == {call_id: answer_to(call_id) for call_id in ("first", "b", "c", "go")}
            assert await client.forge(call_of("after")) == answer_to("after")

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_caller_that_reads_for_itself_and_is_cancelled_leaves_nobody_waiting(backend: str, path: Path) -> None:
    def daemon(peer: Peer) -> None:
        peer.answer(peer.receive())
        assert [peer.receive(), peer.receive()] == ["alone", "other"]
        assert peer.receive() == "go"
        for call_id in ("alone", "other", "go"):
            peer.answer(call_id)

    async def main() -> None:
        async with connect(path) as client:
            await warm_up(client)
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as leaving:
                        leaving.start_soon(calls.make, call_of("alone"))
                        await until_in_flight(client, 1)
                        tasks.start_soon(calls.make, call_of("other"))
                        await until_in_flight(client, 2)
                        scope.cancel()
                tasks.start_soon(calls.make, call_of("go"))
            assert calls.ends == {"other": answer_to("other"), "go": answer_to("go")}
            assert client.statistics().late_replies == 1

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_caller_that_reads_for_itself_is_told_when_the_client_is_closed(backend: str, path: Path) -> None:
    def daemon(peer: Peer) -> None:
        peer.answer(peer.receive())
        never_answer(peer)

    async def main() -> None:
        async with anyio.create_task_group() as tasks, connect(path) as client:
            await warm_up(client)
            calls = Calls(client)
            tasks.start_soon(calls.make, call_of("a"))
            await until_in_flight(client, 1)
        assert isinstance(calls.ends["a"], ConnectionLost)
        assert "the client was closed" in str(calls.ends["a"])

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_a_failure_of_a_caller_that_reads_for_itself_is_raised_there_and_ends_the_connection_for_all(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def daemon(peer: Peer) -> None:
        peer.answer(peer.receive())
        assert [peer.receive(), peer.receive()] == ["alone", "other"]
        peer.answer("alone")
        peer.receive_or_end()

    def broken(_payload: bytes) -> ReplyFrame:
        raise RuntimeError("a bug")

    async def main() -> None:
        async with connect(path) as client:
            await warm_up(client)
            calls = Calls(client)

            async def fails() -> None:
                with pytest.raises(RuntimeError, match="a bug"):
                    await client.forge(call_of("alone"))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fails)
                await until_in_flight(client, 1)
                with monkeypatch.context() as patch:
                    patch.setattr(connection, "decode_reply", broken)
                    tasks.start_soon(calls.make, call_of("other"))
                    await until(lambda: "other" in calls.ends)
            assert "the client has failed" in str(calls.ends["other"])
            assert await client.forge(call_of("after")) == answer_to("after")

    with scripted_daemon(path, daemon, Peer.serve):
        run(backend, main)


@pytest.mark.parametrize("slow", [False, True])
def test_after_calls_one_by_one_the_end_of_the_connection_is_still_seen(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch, *, slow: bool
) -> None:
    monkeypatch.setattr(connection, "_LINGER_SECONDS", 0.01)

    def daemon(peer: Peer) -> None:
        for _ in range(3):
            call_id = peer.receive()
            if slow:
                time.sleep(0.03)
            peer.answer(call_id)

    async def main() -> None:
        async with connect(path) as client:
            for call_id in "abc":
                assert await client.forge(call_of(call_id)) == answer_to(call_id)
            await until_lost(client, path)
            assert client.statistics().connections == 1

    with scripted_daemon(path, daemon):
        run(backend, main)


class TrickySocket(socket.socket):
    """A connected socket that notes what each send takes, and fails one of them as told."""

    sizes: list[int]
    fails: dict[int, OSError]

    @classmethod
    def around(cls, sock: socket.socket, fails: dict[int, OSError] | None = None) -> "TrickySocket":
        made = cls(fileno=sock.detach())
        made.setblocking(False)
        made.sizes = []
        made.fails = fails or {}
        return made

    def send(self, data: Any, flags: int = 0, /) -> int:
        error = self.fails.pop(len(self.sizes), None)
        if error is not None:
            raise error
        self.sizes.append(super().send(data, flags))
        return self.sizes[-1]


def two_rounds(peer: Peer) -> None:
    """Twenty calls whose answers leave together, and so again."""
    for _ in range(2):
        peer.send(b"".join([frame_of_answer(peer.receive()) for _ in range(20)]))


async def call_twice_each(client: ForgeClient, size: int) -> None:
    """Twenty callers, two calls each."""

    async def caller(number: int) -> None:
        for turn in "ab":
            call_id = f"{turn}{number}"
            assert await client.forge(call_of(call_id, size=size)) == answer_to(call_id)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(caller, number)


@pytest.mark.parametrize(("size", "sends"), [(100, 2), (6_000, 8), (300_000, None)])
def test_the_calls_of_callers_that_were_answered_together_leave_together(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch, size: int, sends: int | None
) -> None:
    socks: list[TrickySocket] = []

    def opened(name: str) -> socket.socket:
        socks.append(TrickySocket.around(endpoint.open_socket(name)))
        return socks[-1]

    monkeypatch.setattr(link, "open_socket", opened)

    async def main() -> None:
        async with connect(path) as client:
            calls = Calls(client)
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(calls.make, call_of(f"w{number}"))
            socks[0].sizes.clear()
            await call_twice_each(client, size)

    def daemon(peer: Peer) -> None:
        peer.send(b"".join([frame_of_answer(peer.receive()) for _ in range(20)]))
        two_rounds(peer)

    with scripted_daemon(path, daemon):
        run(backend, main)
    if sends is not None:
        # In the first round each starts by itself. In the second they were woken together, but for the one that read.
        assert len(socks[0].sizes) <= 20 + sends
    assert sum(socks[0].sizes) > 40 * size


def test_calls_that_leave_together_wait_for_a_socket_that_takes_nothing(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(name: str) -> socket.socket:
        return TrickySocket.around(endpoint.open_socket(name), {21: BlockingIOError()})

    monkeypatch.setattr(link, "open_socket", opened)

    async def main() -> None:
        async with connect(path) as client:
            await warm_up(client)
            await call_twice_each(client, 100)

    def daemon(peer: Peer) -> None:
        peer.answer(peer.receive())
        two_rounds(peer)

    with scripted_daemon(path, daemon):
        run(backend, main)


def test_calls_that_were_to_leave_together_on_a_lost_connection_go_out_on_the_next(
    backend: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails: list[dict[int, OSError]] = [{21: BrokenPipeError(errno.EPIPE, "Broken pipe")}, {}]

    def opened(name: str) -> socket.socket:
        return TrickySocket.around(endpoint.open_socket(name), fails.pop(0))

    monkeypatch.setattr(link, "open_socket", opened)

    async def main() -> None:
        async with connect(path) as client:
            await warm_up(client)
            await call_twice_each(client, 100)
            assert client.statistics().connections == 2

    def first(peer: Peer) -> None:
        peer.answer(peer.receive())
        peer.send(b"".join([frame_of_answer(peer.receive()) for _ in range(20)]))
        assert peer.receive_or_end() is None

    with scripted_daemon(path, first, Peer.serve):
        run(backend, main)
