import os
import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from compass_forged.stream import UnixStream


class Ends(NamedTuple):
    """A connection: our end, and the peer's bare socket."""

    ours: UnixStream
    theirs: socket.socket


@pytest.fixture
def ends() -> Iterator[Ends]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    theirs.setblocking(False)
    with ours, theirs:
        yield Ends(UnixStream(ours), theirs)


def reset(ends: Ends) -> None:
    """Have the peer close with bytes of ours unread, which the kernel tells as a reset."""
    assert ends.ours.send_nowait(b"unread") == 6
    ends.theirs.close()


def fill(ends: Ends) -> int:
    """Send until nothing more fits; how much did."""
    sent = 0
    while size := ends.ours.send_nowait(b"x" * 65536):
        sent += size
    return sent


# --- receiving ------------------------------------------------------------------------------------------------------


async def test_what_has_arrived_is_there_at_once_and_what_comes_is_waited_for(ends: Ends) -> None:
    ends.theirs.sendall(b"one")
    assert await ends.ours.receive_some() == b"one"
    got: list[bytes] = []

    async def receive() -> None:
        got.append(await ends.ours.receive_some())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        assert got == []
        ends.theirs.sendall(b"two")
    assert got == [b"two"]


async def test_no_more_is_received_than_was_asked_for(ends: Ends) -> None:
    ends.theirs.sendall(b"abcdef")
    assert await ends.ours.receive_some(4) == b"abcd"
    assert await ends.ours.receive_some(4) == b"ef"


async def test_the_end_of_the_peer_is_no_bytes(ends: Ends) -> None:
    ends.theirs.sendall(b"last")
    ends.theirs.close()
    assert await ends.ours.receive_some() == b"last"
    assert await ends.ours.receive_some() == b""


async def test_a_reset_is_a_broken_resource(ends: Ends) -> None:
    reset(ends)
    with pytest.raises(trio.BrokenResourceError, match="the connection is gone: Connection reset by peer"):
        await ends.ours.receive_some()


async def test_a_receive_that_is_cancelled_has_taken_nothing(ends: Ends) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await ends.ours.receive_some()
    with trio.move_on_after(0.01) as waiting:
        await ends.ours.receive_some()
    ends.theirs.sendall(b"kept")
    with trio.CancelScope() as full:
        full.cancel()
        await ends.ours.receive_some()
    assert scope.cancelled_caught
    assert waiting.cancelled_caught
    assert full.cancelled_caught
    assert await ends.ours.receive_some() == b"kept"


async def test_a_peer_that_never_lets_it_wait_keeps_nobody_else_waiting(ends: Ends) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        for _ in range(40):
            ends.theirs.sendall(b"more")
            assert await ends.ours.receive_some() == b"more"
        nursery.cancel_scope.cancel()
    assert turns >= 8  # a turn every four, and the first to begin


# --- sending --------------------------------------------------------------------------------------------------------


def test_a_send_that_does_not_wait_says_how_much_went_out(ends: Ends) -> None:
    assert ends.ours.send_nowait(b"all of it") == 9
    assert ends.theirs.recv(100) == b"all of it"
    sent = fill(ends)
    assert sent > 0
    assert ends.ours.send_nowait(b"more") == 0


async def test_all_is_sent_in_parts_as_there_is_room(ends: Ends) -> None:
    data = os.urandom(3 << 20)
    got = bytearray()

    async def take() -> None:
        while len(got) < len(data):
            await trio.lowlevel.wait_readable(ends.theirs)
            got.extend(ends.theirs.recv(50_000))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        await ends.ours.send_all(data)
    assert got == data


@pytest.mark.parametrize("data", [b"", bytearray(b"ab"), memoryview(b"ab")])
async def test_all_kinds_of_bytes_can_be_sent(ends: Ends, data: bytes | bytearray | memoryview) -> None:
    await ends.ours.send_all(data)
    await ends.ours.send_all(b".")
    assert ends.theirs.recv(10) == bytes(data) + b"."


async def test_a_send_waits_for_room_and_can_be_cancelled(ends: Ends) -> None:
    fill(ends)
    with trio.move_on_after(0.01) as waiting:
        await ends.ours.send_all(b"x")
    assert waiting.cancelled_caught
    with trio.move_on_after(0.01) as waiting:
        await ends.ours.wait_send_all_might_not_block()
    assert waiting.cancelled_caught
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends.ours.wait_send_all_might_not_block)
        await wait_all_tasks_blocked()
        while True:
            try:
                ends.theirs.recv(1 << 20)
            except BlockingIOError:
                break


async def test_a_send_in_a_cancelled_scope_sends_nothing(ends: Ends) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await ends.ours.send_all(b"x")
    assert scope.cancelled_caught
    with pytest.raises(BlockingIOError):
        ends.theirs.recv(1)


async def test_a_send_to_a_peer_that_has_gone_is_a_broken_resource(ends: Ends) -> None:
    ends.theirs.close()
    with pytest.raises(trio.BrokenResourceError, match="the connection is gone: Broken pipe"):
        ends.ours.send_nowait(b"x")
    with pytest.raises(trio.BrokenResourceError):
        await ends.ours.send_all(b"x")


async def test_a_peer_that_goes_while_a_send_waits_is_a_broken_resource(ends: Ends) -> None:
    fill(ends)
    with pytest.RaisesGroup(trio.BrokenResourceError):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends.ours.send_all, b"x")
            await wait_all_tasks_blocked()
            ends.theirs.close()


# --- closing --------------------------------------------------------------------------------------------------------


async def test_after_the_close_every_operation_says_so(ends: Ends) -> None:
    await ends.ours.aclose()
    await ends.ours.aclose()  # again is fine
    assert ends.theirs.recv(1) == b""
    with pytest.raises(trio.ClosedResourceError, match="closed on this side"):
        await ends.ours.receive_some()
    with pytest.raises(trio.ClosedResourceError):
        ends.ours.send_nowait(b"x")
    with pytest.raises(trio.ClosedResourceError):
        await ends.ours.send_all(b"x")
    with pytest.raises(trio.ClosedResourceError):
        await ends.ours.wait_send_all_might_not_block()


async def test_the_close_wakes_who_waits(ends: Ends) -> None:
    fill(ends)
    woken: list[str] = []

    async def receive() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await ends.ours.receive_some()
        woken.append("receive")

    async def send() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await ends.ours.send_all(b"x")
        woken.append("send")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        nursery.start_soon(send)
        await wait_all_tasks_blocked()
        await ends.ours.aclose()
    assert sorted(woken) == ["receive", "send"]


async def test_a_close_that_is_cancelled_has_closed(ends: Ends) -> None:
    await trio.aclose_forcefully(ends.ours)
    assert ends.theirs.recv(1) == b""
