import socket
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Any, TypeAlias, cast

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair, wait_all_tasks_blocked

from compass_forged.connection import GatewayLimits, Pending
from compass_forged.connection import Relay as Submit
from compass_forged.gateway import Gateway
from compass_forged.hub import Hub
from compass_forged.observability import Counters
from compass_forged.stream import UnixStream
from compass_forged.wire.codec import decode_reply, encode_call, encode_reply
from compass_forged.wire.frames import FrameBuffer, encode_frame
from compass_forged.wire.schema import (
    CommentOnIssue,
    CommentRef,
    FaultFrame,
    ForgeCall,
    ForgeRef,
    Issue,
    IssueCommentResult,
    IssueResult,
    ReplyFrame,
    ResultFrame,
)
from tests.support.core import (
    PILOT,
    READ,
    WRITE,
    Logged,
    RawClient,
    ScriptedCaller,
    call_of,
    error_of,
    fault_of,
    frame_of,
    in_tasks,
    logged,
    reply_to,
    session_of,
    table_of,
    takes,
)


@pytest.fixture(autouse=True)
def events() -> Iterator[Logged]:
    with logged() as events:
        yield events


AnyRelay: TypeAlias = Submit | Callable[[str, ForgeCall], Awaitable[ReplyFrame]]


@dataclass
class Relay:
    """A relay that remembers what it was given and answers each call once the test lets it."""

    open: bool = True
    asked: list[tuple[str, ForgeCall]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    _gates: dict[str, trio.Event] = field(default_factory=dict)

    async def __call__(self, session_id: str, call: ForgeCall) -> ReplyFrame:
        try:
            if not self.open:
                await self._gates.setdefault(call.call_id, trio.Event()).wait()
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            self.cancelled.append(call.call_id)
            raise
        return reply_to(call)

    def let(self, *call_ids: str) -> None:
        for call_id in call_ids:
            self._gates.setdefault(call_id, trio.Event()).set()

    @property
    def ids(self) -> list[str]:
        return [call.call_id for _, call in self.asked]


def submitting(nursery: trio.Nursery, relay: AnyRelay) -> Submit:
    """A relay as a gateway takes it: a coroutine function's calls run in tasks of the nursery."""
    if isinstance(relay, Relay):
        submit = in_tasks(nursery, relay)

        def remembered(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> Pending:
            relay.asked.append((session_id, call))
            return submit(session_id, call, answer)

        return remembered
    if iscoroutinefunction(relay):
        return in_tasks(nursery, cast("Callable[[str, ForgeCall], Awaitable[ReplyFrame]]", relay))
    return cast("Submit", relay)


class Rig:
    """A gateway with one container bound, ``c1``, and one that is not, ``c2``."""

    def __init__(
        self,
        nursery: trio.Nursery,
        relay: AnyRelay,
        limits: GatewayLimits | None,
    ) -> None:
        self.sessions = table_of(session_of("c1", "s-1"))
        self.counters = Counters()
        self.gateway = Gateway(self.sessions, submitting(nursery, relay), counters=self.counters, limits=limits)
        self._nursery = nursery

    def connect(self, container: str = "c1", *, lockstep: bool = False) -> RawClient:
        ours, theirs = lockstep_stream_pair() if lockstep else memory_stream_pair()
        return self.serve(theirs, RawClient(ours), container)

    def serve(self, stream: trio.abc.Stream, client: RawClient, container: str = "c1") -> RawClient:
        self._nursery.start_soon(self.gateway.serve_connection, stream, container)
        return client


@asynccontextmanager
async def rig(relay: AnyRelay, limits: GatewayLimits | None = None) -> AsyncIterator[Rig]:
    async with trio.open_nursery() as nursery:
        yield Rig(nursery, relay, limits)
        nursery.cancel_scope.cancel()


def calls(*ids: str) -> list[ForgeCall]:
    return [call_of(call_id=one) for one in ids]


# --- answers --------------------------------------------------------------------------------------------------------


async def test_every_frame_gets_one_answer() -> None:
    relay = Relay()
    async with rig(relay) as made:
        client = made.connect()
        ids = [f"call-{n}" for n in range(200)]
        await client.send(*calls(*ids))
        replies = await client.replies(200)
        assert replies == {one: reply_to(call_of(call_id=one)) for one in ids}
        assert relay.asked == [("s-1", call_of(call_id=one)) for one in ids]
        await client.stream.aclose()


async def test_answers_come_in_the_order_they_are_ready() -> None:
    relay = Relay(open=False)
    async with rig(relay) as made:
        client = made.connect()
        await client.send(*calls("a", "b", "c"))
        await wait_all_tasks_blocked()
        for one in ("c", "a", "b"):
            relay.let(one)
            assert (await client.reply()).call_id == one


async def test_a_call_id_in_flight_is_refused_and_the_first_call_still_answered() -> None:
    relay = Relay(open=False)
    async with rig(relay) as made:
        client = made.connect()
        await client.send(*calls("a", "a"))
        reply = await client.reply()
        assert fault_of(reply) == "invalid_argument"
        assert reply.call_id == "a"
        relay.let("a")
        assert await client.reply() == reply_to(call_of(call_id="a"))
        await client.send(*calls("a"))  # and then its id is free
        assert await client.reply() == reply_to(call_of(call_id="a"))
        assert relay.ids == ["a", "a"]


async def test_a_call_id_may_be_in_flight_on_two_connections() -> None:
    relay = Relay(open=False)
    async with rig(relay) as made:
        one, two = made.connect(), made.connect()
        await one.send(*calls("a"))
        await two.send(*calls("a"))
        await wait_all_tasks_blocked()
        relay.let("a")
        assert await one.reply() == await two.reply() == reply_to(call_of(call_id="a"))


GARBAGE = [
    b"\x00",
    b"\xc1",
    b"{}",
    b"\x81",
    b"\xdd\xff\xff\xff\xff",
    b"\x91" * 5000,
    b"\xa2\xff\xff",
    msgspec.msgpack.encode({"frame": "call"}),
    msgspec.msgpack.encode([1, 2, 3]),
]


@pytest.mark.parametrize("payload", GARBAGE, ids=lambda payload: payload[:8].hex())
async def test_what_does_not_decode_is_answered_and_the_connection_goes_on(payload: bytes) -> None:
    relay = Relay()
    async with rig(relay) as made:
        client = made.connect()
        await client.stream.send_all(encode_frame(payload))
        reply = await client.reply()
        assert fault_of(reply) == "invalid_argument"
        assert reply.call_id == ""
        assert relay.asked == []
        await client.send(*calls("next"))
        assert (await client.reply()).call_id == "next"
        assert made.counters.total("frames_refused") == 1


async def test_a_bad_arm_is_answered_under_its_call_id_and_names_the_field() -> None:
    async with rig(Relay()) as made:
        client = made.connect()
        bad = {"frame": "call", "call_id": "x", "call": {"arm": "get_issue", "repo": "a/b", "issue_number": "7"}}
        await client.stream.send_all(encode_frame(msgspec.msgpack.encode(bad)))
        reply = await client.reply()
        assert isinstance(reply, FaultFrame)
        assert (reply.call_id, reply.code) == ("x", "invalid_argument")
        assert reply.message == "call.issue_number: expected int, got str"


@settings(deadline=None)  # each example runs a loop of its own
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
def test_any_payloads_get_one_answer_each(payloads: list[bytes]) -> None:
    async def main() -> None:
        async with rig(Relay()) as made:
            client = made.connect()
            await client.stream.send_all(b"".join(encode_frame(payload) for payload in payloads))
            await client.send(*calls("last"))
            replies = [await client.reply() for _ in range(len(payloads) + 1)]
            assert [fault_of(reply) for reply in replies if reply.call_id != "last"] == ["invalid_argument"] * len(
                payloads
            )

    trio.run(main)


@settings(deadline=None)  # each example runs a loop of its own
@given(st.binary(max_size=200), st.integers(1, 7))
def test_any_bytes_end_in_a_closed_connection_and_nothing_else(data: bytes, size: int) -> None:
    async def main() -> None:
        relay = Relay()
        async with rig(relay, GatewayLimits(frame_max_bytes=64)) as made:
            client = made.connect()
            with suppress(trio.BrokenResourceError):  # it may have closed by then
                for at in range(0, len(data), size):
                    await client.stream.send_all(data[at : at + size])
            await client.stream.send_stream.aclose()  # type: ignore[attr-defined]  # a StapledStream
            while await client.reply_or_end() is not None:
                pass
            await wait_all_tasks_blocked()
            assert made.gateway.connections_of("c1") == 0
            assert made.counters.total("internal_errors") == 0

    trio.run(main)


# --- framing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (b"\0\0\0\0", "zero-length frame"),
        (b"\xff\xff\xff\xff", "length 4294967295 is over the limit of 1048576 bytes"),
        ((1048577).to_bytes(4, "big"), "length 1048577 is over the limit of 1048576 bytes"),
    ],
)
async def test_a_length_that_cannot_be_gets_one_last_fault_and_a_close(header: bytes, why: str) -> None:
    relay = Relay()
    async with rig(relay) as made:
        client = made.connect()
        await client.stream.send_all(frame_of(call_of(call_id="first")))
        assert (await client.reply()).call_id == "first"
        await client.stream.send_all(header + frame_of(call_of(call_id="behind")))
        reply = await client.reply()
        assert fault_of(reply) == "invalid_argument"
        assert isinstance(reply, FaultFrame)
        assert reply.call_id == ""
        assert why in reply.message
        assert await client.reply_or_end() is None
        assert relay.ids == ["first"]


async def test_a_frame_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    size = len(encode_call(call_of()))
    for limit, passes in ((size, True), (size - 1, False)):
        async with rig(Relay(), GatewayLimits(frame_max_bytes=limit)) as made:
            client = made.connect()
            await client.send(call_of())
            assert isinstance(await client.reply(), ResultFrame) is passes


@pytest.mark.parametrize("cut", [1, 3, 4, 20])
async def test_half_a_frame_for_ten_seconds_is_a_fault_and_a_close(cut: int, autojump_clock: MockClock) -> None:
    async with rig(Relay()) as made:
        client = made.connect()
        await trio.sleep(100)  # before a frame there is no clock
        await client.stream.send_all(frame_of(call_of())[:cut])
        reply = await client.reply()
        assert fault_of(reply) == "invalid_argument"
        assert trio.current_time() == pytest.approx(110)
        assert await client.reply_or_end() is None


async def test_a_frame_that_drips_has_ten_seconds_in_all(autojump_clock: MockClock) -> None:
    async with rig(Relay()) as made:
        client = made.connect()
        for byte in frame_of(call_of())[:9]:
            await client.stream.send_all(bytes([byte]))
            await trio.sleep(1.2)
        assert fault_of(await client.reply()) == "invalid_argument"
        assert trio.current_time() == pytest.approx(10.8)  # it came at 10, between two drips
        assert await client.reply_or_end() is None


async def test_a_frame_that_is_whole_just_in_time_is_answered(autojump_clock: MockClock) -> None:
    async with rig(Relay()) as made:
        client = made.connect()
        for _ in range(3):  # each frame has its own ten seconds
            frame = frame_of(call_of())
            await client.stream.send_all(frame[:5])
            await trio.sleep(9.9)
            await client.stream.send_all(frame[5:])
            assert isinstance(await client.reply(), ResultFrame)


async def test_bytes_that_come_after_the_time_is_up_are_no_error_of_the_daemon(mock_clock: MockClock) -> None:
    async with rig(Relay()) as made:
        ours, theirs = memory_stream_pair()
        client = made.serve(theirs, RawClient(ours))
        await client.stream.send_all(frame_of(call_of())[:5])
        await wait_all_tasks_blocked()
        mock_clock.jump(10.5)
        theirs.receive_stream.put_data(b"\0")  # wakes the reader before its deadline is looked at
        assert fault_of(await client.reply()) == "invalid_argument"
        assert await client.reply_or_end() is None
        assert made.counters.total("internal_errors") == 0


async def test_the_clock_of_a_frame_stands_while_the_daemon_is_not_reading(autojump_clock: MockClock) -> None:
    relay = Relay(open=False)
    async with rig(relay, GatewayLimits(calls_per_connection=1)) as made:
        client = made.connect()
        third = frame_of(call_of(call_id="c"))
        await client.stream.send_all(frame_of(call_of(call_id="a")) + frame_of(call_of(call_id="b")) + third[:9])
        await trio.sleep(1000)  # the reader waits for room for b
        assert relay.ids == ["a"]
        relay.let("a", "b", "c")
        await trio.sleep(5)
        await client.stream.send_all(third[9:])
        assert set(await client.replies(3)) == {"a", "b", "c"}


async def test_a_connection_may_be_idle_for_long(autojump_clock: MockClock) -> None:
    async with rig(Relay()) as made:
        client = made.connect()
        await trio.sleep(80_000)
        await client.send(call_of())
        assert isinstance(await client.reply(), ResultFrame)


async def test_a_peer_that_vanishes_within_a_frame_has_no_effect() -> None:
    frame = frame_of(call_of(WRITE))
    for cut in range(len(frame)):
        relay = Relay()
        async with rig(relay) as made:
            client = made.connect()
            await client.stream.send_all(frame[:cut])
            await client.stream.aclose()
            await wait_all_tasks_blocked()
            assert relay.asked == []
            assert made.gateway.connections_of("c1") == 0
            assert made.counters.total("internal_errors") == 0


# --- who speaks -----------------------------------------------------------------------------------------------------


async def test_an_unbound_container_is_denied_and_nothing_is_forwarded() -> None:
    relay = Relay()
    async with rig(relay) as made:
        client = made.connect("c2")
        await client.send(*calls("a", "b"))
        for reply in (await client.replies(2)).values():
            assert fault_of(reply) == "permission_denied"
        assert relay.asked == []
        assert made.counters.total("calls_unbound") == 2


async def test_an_empty_session_is_no_session() -> None:
    relay = Relay()
    async with rig(relay) as made:
        made.sessions.bind(session_of("c2", ""))
        client = made.connect("c2")
        await client.send(call_of())
        assert fault_of(await client.reply()) == "permission_denied"
        assert relay.asked == []


async def test_a_rebind_takes_effect_with_the_next_call() -> None:
    relay = Relay()
    async with rig(relay) as made:
        client = made.connect()

        async def says() -> ReplyFrame:
            await client.send(call_of())
            return await client.reply()

        await says()
        made.sessions.bind(session_of("c1", "s-2", PILOT))
        await says()
        made.sessions.unbind("c1")
        assert fault_of(await says()) == "permission_denied"
        made.sessions.bind(session_of("c1", "s-3", PILOT))
        await says()
        assert [session for session, _ in relay.asked] == ["s-1", "s-2", "s-3"]


# --- a relay that fails ---------------------------------------------------------------------------------------------


async def test_a_relay_without_an_answer_is_an_internal_fault() -> None:
    def silent(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> None:
        """Neither answers nor gives anything to wait for."""

    async with rig(silent) as made:
        client = made.connect()
        await client.send(call_of(call_id="x"))
        reply = await client.reply()
        assert (reply.call_id, fault_of(reply)) == ("x", "internal")


async def test_a_relay_that_raises_is_an_internal_fault_and_the_connection_lives(events: Logged) -> None:
    def broken(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> None:
        if call.call_id == "bad":
            raise ValueError("secret")
        answer(reply_to(call))

    async with rig(broken) as made:
        client = made.connect()
        await client.send(*calls("bad", "good"))
        replies = await client.replies(2)
        assert fault_of(replies["bad"]) == "internal"
        assert "secret" not in str(replies["bad"])
        assert isinstance(replies["good"], ResultFrame)
        assert [event["event"] for event in events if event["log_level"] == "error"] == ["the relay failed"]
        assert made.counters.total("internal_errors", where="relay") == 1


@pytest.mark.parametrize("text", ["x" * (16 << 20), "\ud800"], ids=["over the limit", "no text"])
async def test_a_reply_that_cannot_be_sent_is_an_internal_error_in_band(text: str) -> None:
    async def relay(session_id: str, call: ForgeCall) -> ReplyFrame:
        await trio.lowlevel.checkpoint()
        if call.call_id == "small":
            return reply_to(call)
        return ResultFrame(
            call_id=call.call_id, result=IssueCommentResult(comment=CommentRef(url=text, comment_id="1"))
        )

    async with rig(relay) as made:
        client = made.connect()
        await client.send(*calls("big", "small"))
        replies = await client.replies(2)
        assert error_of(replies["big"]) == ("internal", "")
        assert isinstance(replies["small"], ResultFrame)


async def test_a_fault_that_cannot_be_sent_is_an_internal_fault() -> None:
    async def relay(session_id: str, call: ForgeCall) -> ReplyFrame:
        await trio.lowlevel.checkpoint()
        return FaultFrame(call_id=call.call_id, code="not_found", message="\ud800")

    async with rig(relay) as made:
        client = made.connect()
        await client.send(call_of())
        assert fault_of(await client.reply()) == "internal"


# --- limits ---------------------------------------------------------------------------------------------------------


async def test_a_connections_limit_stops_its_reader_and_loses_nothing() -> None:
    relay = Relay(open=False)
    async with rig(relay, GatewayLimits(calls_per_connection=3)) as made:
        client = made.connect()
        ids = [str(n) for n in range(8)]
        await client.send(*calls(*ids))
        await wait_all_tasks_blocked()
        assert relay.ids == ["0", "1", "2"]
        relay.let("1")
        assert (await client.reply()).call_id == "1"
        await wait_all_tasks_blocked()
        assert relay.ids == ["0", "1", "2", "3"]
        relay.let(*ids)
        assert set(await client.replies(7)) == set(ids) - {"1"}


async def test_a_containers_limit_is_shared_by_its_connections_and_by_nobody_else() -> None:
    relay = Relay(open=False)
    async with rig(relay, GatewayLimits(calls_per_container=2)) as made:
        made.sessions.bind(session_of("c2", "s-2", PILOT))
        one, two, other = made.connect(), made.connect(), made.connect("c2")
        await one.send(*calls("a", "b"))
        await wait_all_tasks_blocked()
        await two.send(*calls("c"))
        await wait_all_tasks_blocked()
        await other.send(*calls("d"))
        await wait_all_tasks_blocked()
        assert relay.ids == ["a", "b", "d"]
        relay.let("a")
        assert (await one.reply()).call_id == "a"
        await wait_all_tasks_blocked()
        assert relay.ids == ["a", "b", "d", "c"]
        relay.let("b", "c", "d")
        assert (await two.reply()).call_id == "c"


async def test_the_slots_of_a_connection_that_went_are_free_again() -> None:
    relay = Relay(open=False)
    async with rig(relay, GatewayLimits(calls_per_container=2)) as made:
        for _ in range(3):
            client = made.connect()
            await client.send(*calls("a", "b"))
            await wait_all_tasks_blocked()
            await client.stream.aclose()
            await wait_all_tasks_blocked()
        assert relay.ids == ["a", "b"] * 3
        assert made.gateway.share_of("c1").calls.free == 2


async def test_a_connection_that_goes_while_it_waits_for_room_leaves_no_slot_taken(autojump_clock: MockClock) -> None:
    relay = Relay(open=False)
    async with rig(relay, GatewayLimits(calls_per_container=1)) as made:
        holder, waiter = made.connect(), made.connect()
        await holder.send(*calls("a"))
        await wait_all_tasks_blocked()
        await waiter.send(*calls("b"))
        await wait_all_tasks_blocked()
        await waiter.stream.aclose()
        relay.let("a", "b")
        await holder.reply()
        await wait_all_tasks_blocked()
        assert made.gateway.share_of("c1").calls.free == 1
        assert made.gateway.connections_of("c1") == 1


async def test_unsent_replies_stop_the_reader(autojump_clock: MockClock) -> None:
    relay, takes_replies = Relay(), trio.Event()
    async with rig(relay, GatewayLimits(outbox_max_bytes=100)) as made:
        ours, theirs = memory_stream_pair()
        pump = theirs.send_stream.send_all_hook
        assert pump is not None

        async def pump_late() -> None:
            await takes_replies.wait()
            await pump()

        theirs.send_stream.send_all_hook = pump_late
        client = made.serve(theirs, RawClient(ours))
        ids = [str(n) for n in range(50)]
        for one in ids:
            await client.send(*calls(one))
            await wait_all_tasks_blocked()
        assert 0 < len(relay.ids) < 10  # a reply has about 60 bytes
        takes_replies.set()
        assert set(await client.replies(50)) == set(ids)


async def test_a_client_that_never_reads_is_dropped_after_ten_seconds(
    autojump_clock: MockClock, events: Logged
) -> None:
    relay = Relay(open=False)
    async with rig(relay) as made:
        client = made.connect(lockstep=True)
        await client.send(*calls("a", "b"))
        await wait_all_tasks_blocked()
        relay.let("a")
        await trio.sleep(9.9)
        assert made.gateway.connections_of("c1") == 1
        await trio.sleep(0.2)
        assert made.gateway.connections_of("c1") == 0
        assert relay.cancelled == ["b"]
        assert made.counters.total("clients_dropped") == 1
        assert [event["container"] for event in events if event["log_level"] == "warning"] == ["c1"]


async def test_a_client_that_reads_slowly_is_not_dropped(autojump_clock: MockClock) -> None:
    async with rig(Relay()) as made:
        client = made.connect(lockstep=True)
        for one in ("a", "b", "c"):
            await client.send(*calls(one))
            await trio.sleep(9)
            assert (await client.reply()).call_id == one


async def test_replies_that_are_ready_go_out_in_one_write() -> None:
    relay = Relay(open=False)
    async with rig(relay) as made:
        ours, theirs = memory_stream_pair()
        client = made.serve(theirs, RawClient(ours))
        await client.send(*calls("a", "b", "c"))
        await wait_all_tasks_blocked()
        relay.let("a", "b", "c")
        await wait_all_tasks_blocked()
        buffer = FrameBuffer()
        buffer.feed(await ours.receive_some())
        payloads = [buffer.next_frame(), buffer.next_frame(), buffer.next_frame()]
        assert {decode_reply(payload).call_id for payload in payloads if payload} == {"a", "b", "c"}


# --- over a real socket ---------------------------------------------------------------------------------------------


def connect_socket(made: Rig, container: str = "c1") -> tuple[RawClient, socket.socket]:
    """A connection over a Unix socket, where replies go out without the writer if they can."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return made.serve(UnixStream(theirs), RawClient(UnixStream(ours)), container), ours


def writers(made: Rig) -> list[bool]:
    return [connection._writer for connection in made.gateway._open]


def owing(made: Rig) -> bool:
    return any(connection.owes for connection in made.gateway._open)


def big_reply_to(call: ForgeCall, size: int = 1 << 20) -> ReplyFrame:
    comment = CommentRef(url=call.call_id * size, comment_id="1")
    return ResultFrame(call_id=call.call_id, result=IssueCommentResult(comment=comment))


async def test_each_call_over_a_socket_is_answered() -> None:
    async with rig(Relay()) as made:
        client, _ = connect_socket(made)
        for one in ("a", "b"):
            await client.send(*calls(one))
            assert await client.reply() == reply_to(call_of(call_id=one))
        ids = [str(n) for n in range(500)]
        await client.send(*calls(*ids))
        assert set(await client.replies(500)) == set(ids)
        await client.stream.aclose()


async def test_a_reply_that_does_not_go_out_in_one_send_is_finished_by_the_writer_in_order() -> None:
    def relay(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> None:
        answer(big_reply_to(call))

    async with rig(relay) as made:
        client, _ = connect_socket(made)
        await client.send(*calls("a", "b", "c"))
        await wait_all_tasks_blocked()
        assert owing(made)
        for one in ("a", "b", "c"):
            assert await client.reply() == big_reply_to(call_of(call_id=one))
        await wait_all_tasks_blocked()
        assert not owing(made)
        await client.stream.aclose()


class CountingStream(UnixStream):
    """Counts the sends that went straight to the socket."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        self.sends: list[int] = []

    def send_nowait(self, data: bytes | memoryview) -> int:
        sent = super().send_nowait(data)
        self.sends.append(sent)
        return sent


@asynccontextmanager
async def counted(relay: AnyRelay) -> AsyncIterator[tuple[Rig, RawClient, CountingStream]]:
    """A connection over a socket whose sends are counted."""
    async with rig(relay) as made:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        stream = CountingStream(theirs)
        client = made.serve(stream, RawClient(UnixStream(ours)))
        yield made, client, stream
        await client.stream.aclose()


def at_once(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> None:
    answer(reply_to(call))


async def test_what_is_answered_at_once_leaves_with_the_last_frame_that_came_with_it() -> None:
    async with counted(at_once) as (_, client, stream):
        ids = [str(n) for n in range(70)]
        await client.send(*calls(*ids))
        assert list(await client.replies(70)) == ids
        assert len(stream.sends) == 3  # 32 frames a turn
        await client.send(*calls("alone"))
        assert await client.reply() == reply_to(call_of(call_id="alone"))
        assert len(stream.sends) == 4


async def test_a_broken_frame_behind_good_ones_holds_no_answer_back() -> None:
    async with counted(at_once) as (made, client, stream):
        await client.stream.send_all(b"".join(frame_of(call) for call in calls("a", "b")) + bytes(4))
        assert list(await client.replies(2)) == ["a", "b"]
        last = await client.reply()
        assert isinstance(last, FaultFrame)
        assert await client.reply_or_end() is None
        assert len(stream.sends) == 1
        assert made.counters.total("internal_errors") == 0


async def test_an_answer_is_not_held_back_by_a_frame_that_waits_for_room() -> None:
    """The second frame of one receive finds no room; what was answered before it goes out meanwhile."""
    answers: list[Callable[[], None]] = []

    def relay(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> Pending | None:
        if call.call_id.startswith("now"):
            answer(reply_to(call))
            return None
        answers.append(lambda: answer(reply_to(call)))
        return Forsaken()

    limits = GatewayLimits(calls_per_connection=1)
    async with rig(relay, limits) as made:
        client, _ = connect_socket(made)
        await client.send(*calls("now", "later", "then"))
        assert await client.reply() == reply_to(call_of(call_id="now"))
        answers[0]()
        assert await client.reply() == reply_to(call_of(call_id="later"))
        await wait_all_tasks_blocked()
        answers[1]()
        assert await client.reply() == reply_to(call_of(call_id="then"))
        await client.stream.aclose()


async def test_what_is_answered_at_once_goes_out_whole_however_little_may_wait() -> None:
    """What was kept together is more than may wait, and goes out at once: nobody is left to wake the reader."""
    async with rig(at_once, GatewayLimits(outbox_max_bytes=100)) as made:
        client, _ = connect_socket(made)
        ids = [str(n) for n in range(70)]
        await client.send(*calls(*ids))
        with trio.fail_after(5):
            assert list(await client.replies(70)) == ids
        await client.stream.aclose()


async def test_answers_that_come_while_the_writer_waits_stay_in_order() -> None:
    """The socket is full; what is answered later, at once or not, comes after what was answered before."""

    def relay(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> None:
        answer(big_reply_to(call) if call.call_id == "big" else reply_to(call))

    async with rig(relay) as made:
        client, _ = connect_socket(made)
        await client.send(*calls("big"))
        await wait_all_tasks_blocked()
        await client.send(*calls("a", "b"))
        await wait_all_tasks_blocked()
        await client.send(*calls("c"))
        await wait_all_tasks_blocked()
        assert owing(made)
        assert [reply.call_id for reply in [await client.reply() for _ in range(4)]] == ["big", "a", "b", "c"]
        await client.stream.aclose()


async def test_a_connection_has_no_writer_until_a_reply_must_wait() -> None:
    async with rig(Relay()) as made:
        client, _ = connect_socket(made)
        await client.send(*calls("a"))
        await client.reply()
        assert writers(made) == [False]
        await client.send(*calls("b", "c"))
        await client.replies(2)
        assert writers(made) == [True]
        await client.stream.aclose()


async def test_a_client_over_a_socket_that_never_reads_is_dropped(autojump_clock: MockClock) -> None:
    def relay(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> None:
        answer(big_reply_to(call))

    async with rig(relay) as made:
        client, _ = connect_socket(made)
        await client.send(*calls("a"))
        await trio.sleep(9.9)
        assert made.gateway.connections_of("c1") == 1
        await trio.sleep(0.2)
        assert made.gateway.connections_of("c1") == 0
        assert made.counters.total("clients_dropped") == 1
        await client.stream.aclose()


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_peer_that_takes_no_replies_any_more_ends_its_connection_and_nothing_else(at_once: bool) -> None:
    waiting: list[Callable[[], None]] = []

    def relay(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> Pending | None:
        if at_once:
            answer(reply_to(call))
            return None
        waiting.append(lambda: answer(reply_to(call)))
        return Forsaken()

    async with rig(relay) as made:
        client, raw = connect_socket(made)
        await client.send(*calls("a"))
        await wait_all_tasks_blocked()
        raw.shutdown(socket.SHUT_RD)  # our end sees no end of its bytes, and cannot send
        if at_once:
            await client.send(*calls("b"))
        for answer in waiting:
            answer()  # raises nothing in whose task it is
        await wait_all_tasks_blocked()
        assert made.gateway.connections_of("c1") == 0
        assert made.gateway.share_of("c1").calls.free == made.gateway.limits.calls_per_container
        assert made.counters.total("internal_errors") == 0
        other, _ = connect_socket(made)
        await client.stream.aclose()
        await other.stream.aclose()


class Forsaken:
    """A call that has been relayed; nobody minds when it is abandoned."""

    def abandon(self) -> None:
        pass


async def test_an_answer_for_a_connection_that_has_gone_is_dropped() -> None:
    late: list[Callable[[], None]] = []

    def relay(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> Pending:
        late.append(lambda: answer(reply_to(call)))
        return Forsaken()

    async with rig(relay) as made:
        client, _ = connect_socket(made)
        await client.send(*calls("a"))
        await wait_all_tasks_blocked()
        await client.stream.aclose()
        await wait_all_tasks_blocked()
        late[0]()
        assert made.gateway.share_of("c1").calls.free == made.gateway.limits.calls_per_container
        assert made.counters.total("internal_errors") == 0


# --- replies nobody reads -------------------------------------------------------------------------------------------


def answers_big(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> None:
    """A relay whose answers take a mebibyte each, but for those to calls named ``s...``."""
    answer(reply_to(call) if call.call_id.startswith("s") else big_reply_to(call))


TWO_BIG_REPLIES = GatewayLimits(outbox_max_bytes=1 << 26, backlog_max_bytes=(5 << 20) // 2)
"""There is room for two of them and not for a third."""


class Remembering(UnixStream):
    """Knows what of that which passed through it is still held somewhere."""

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(connected)
        self.passed: list[weakref.ref[Any]] = []

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        class Received(bytearray):
            pass

        data = Received(await super().receive_some(max_bytes))
        self.passed.append(weakref.ref(data))
        return cast("bytes", data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        assert isinstance(data, memoryview)
        self.passed.append(weakref.ref(data))
        await super().send_all(data)


async def test_an_idle_connection_keeps_nothing_of_what_it_received_or_sent() -> None:
    async with rig(answers_big) as made:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        stream = Remembering(theirs)
        client = made.serve(stream, RawClient(UnixStream(ours)))
        await client.send(*calls("a"))
        await client.reply()
        await wait_all_tasks_blocked()
        assert len(stream.passed) > 2  # the writer sent some
        assert [ref() for ref in stream.passed if ref() is not None] == []
        await client.stream.aclose()


async def test_a_container_that_leaves_large_replies_unread_gets_no_more_of_them_on_any_connection() -> None:
    async with rig(answers_big, TWO_BIG_REPLIES) as made:
        made.sessions.bind(session_of("c3", "s-3", PILOT))
        one, two, other = made.connect(lockstep=True), made.connect(lockstep=True), made.connect("c3", lockstep=True)
        await one.send(*calls("a", "b"))
        await wait_all_tasks_blocked()
        await two.send(*calls("c", "small"))
        replies = await two.replies(2)
        assert error_of(replies["c"]) == ("resource_exhausted", "")
        assert isinstance(replies["c"], ResultFrame)
        assert replies["c"].result.retry_after_ms > 0  # type: ignore[union-attr]  # error_of has looked
        assert replies["small"] == reply_to(call_of(call_id="small"))
        await other.send(*calls("x", "y"))  # and nobody else hears of it
        assert await other.replies(2) == {one: big_reply_to(call_of(call_id=one)) for one in ("x", "y")}
        assert await one.replies(2) == {one: big_reply_to(call_of(call_id=one)) for one in ("a", "b")}
        await two.send(*calls("c"))  # read, and there is room again
        assert await two.reply() == big_reply_to(call_of(call_id="c"))
        await wait_all_tasks_blocked()
        assert made.gateway.share_of("c1").backlog.bytes == made.gateway.share_of("c3").backlog.bytes == 0


@pytest.mark.parametrize("taken", [0, 300 << 10])
async def test_a_connection_that_goes_gives_its_unread_bytes_back(taken: int) -> None:
    async with rig(answers_big, TWO_BIG_REPLIES) as made:
        one, two = made.connect(lockstep=True), made.connect(lockstep=True)
        await one.send(*calls("a", "b"))
        await wait_all_tasks_blocked()
        while taken > 0:  # its writer is then within a batch
            taken -= len(await one.stream.receive_some(taken))
        await two.send(*calls("c"))
        assert error_of(await two.reply())[0] == "resource_exhausted"
        await one.stream.aclose()
        await wait_all_tasks_blocked()
        assert made.gateway.share_of("c1").backlog.bytes == 0
        await two.send(*calls("c"))
        assert await two.reply() == big_reply_to(call_of(call_id="c"))


async def test_a_client_that_is_dropped_gives_its_unread_bytes_back(autojump_clock: MockClock) -> None:
    async with rig(answers_big, TWO_BIG_REPLIES) as made:
        client, _ = connect_socket(made)
        await client.send(*calls("a", "b"))
        await wait_all_tasks_blocked()
        assert made.gateway.share_of("c1").backlog.bytes > 1 << 20
        await trio.sleep(20)
        assert made.counters.total("clients_dropped") == 1
        assert made.gateway.share_of("c1").backlog.bytes == 0
        await client.stream.aclose()


@pytest.mark.parametrize(("slice_bytes", "dropped"), [(256 << 10, False), (100 << 10, True)])
async def test_a_client_that_reads_slowly_but_steadily_is_kept_until_it_has_it_all(
    slice_bytes: int, dropped: bool, autojump_clock: MockClock
) -> None:
    async with rig(answers_big) as made:
        client = made.connect(lockstep=True)
        await client.send(*calls("a"))
        whole = len(encode_frame(encode_reply(big_reply_to(call_of(call_id="a")))))
        received = bytearray()
        while len(received) < whole:
            await trio.sleep(9)
            left = min(slice_bytes, whole - len(received))
            while left and (part := await client.stream.receive_some(left)):
                received += part
                left -= len(part)
            if left:
                break  # the daemon has closed
        assert (len(received) < whole) is dropped
        assert made.counters.total("clients_dropped") == int(dropped)
        if not dropped:
            assert bytes(received) == encode_frame(encode_reply(big_reply_to(call_of(call_id="a"))))
            assert trio.current_time() == pytest.approx(45)  # five times nine: far over one send's ten seconds


ISSUE = Issue(forge=ForgeRef(provider="github", host="github.com"), repo="acme/site", number=2**64)


@pytest.mark.parametrize("over_a_socket", [False, True])
async def test_a_number_past_64_bits_is_an_in_band_internal_and_the_connection_lives(
    over_a_socket: bool, events: Logged
) -> None:
    def relay(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> None:
        result = IssueResult(issue=ISSUE)
        answer(ResultFrame(call_id=call.call_id, result=result) if call.call_id == "big" else reply_to(call))

    async with rig(relay) as made:
        client = connect_socket(made)[0] if over_a_socket else made.connect()
        await client.send(*calls("big"))
        reply = await client.reply()
        assert (reply.call_id, error_of(reply)) == ("big", ("internal", ""))
        await client.send(*calls("next"))
        assert await client.reply() == reply_to(call_of(call_id="next"))
        assert [event["call_id"] for event in events if event["log_level"] == "error"] == ["big"]
        assert made.counters.total("internal_errors") == 0
        await client.stream.aclose()


LARGE = CommentOnIssue(repo="acme/site", issue_number=7, body="x" * 40_000)


@pytest.mark.parametrize(
    ("frame", "count", "turn"),
    [(encode_frame(b"\xc1"), 640, 32), (frame_of(call_of()), 640, 32), (frame_of(call_of(LARGE)), 24, 3)],
    ids=["what does not decode", "calls of an unbound container", "large calls of an unbound container"],
)
async def test_a_flood_that_is_answered_at_once_keeps_nobody_else_waiting(frame: bytes, count: int, turn: int) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with rig(Relay()) as made:
        client = made.connect("c2")
        await client.stream.send_all(frame * count)  # in one receive, if they are small
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            for _ in range(count):
                assert isinstance(await client.reply(), FaultFrame)
            nursery.cancel_scope.cancel()
        assert turns >= count // turn - 1


async def test_a_containers_connections_share_one_turn_and_take_it_one_after_the_other() -> None:
    """Sixteen connections hold the others up no longer than one does, and none of them is passed over."""
    taken: list[str] = []
    most = 0

    def relay(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> None:
        taken.append(call.call_id)
        answer(reply_to(call))

    async def other() -> None:
        nonlocal most
        while True:
            before = len(taken)
            await trio.lowlevel.checkpoint()
            most = max(most, len(taken) - before)

    async with rig(relay) as made:
        async with trio.open_nursery() as nursery:
            pairs = [memory_stream_pair() for _ in range(16)]
            for index, (ours, _) in enumerate(pairs):
                await RawClient(ours).send(*(call_of(call_id=f"{index}-{n}") for n in range(64)))
            clients = [made.serve(theirs, RawClient(ours)) for ours, theirs in pairs]
            nursery.start_soon(other)
            for client in clients:
                await client.replies(64)
            nursery.cancel_scope.cancel()
        assert most <= 2 * 32  # in two passes: the other has its turn first in one, and last in the next
        assert len({call_id.partition("-")[0] for call_id in taken[: 17 * 32]}) == 16


async def test_a_connection_that_ends_in_its_containers_rest_lets_the_others_go_on() -> None:
    for _ in range(10):
        async with rig(at_once) as made:
            clients = [made.connect() for _ in range(4)]
            for client in clients:
                await client.send(*calls(*(str(n) for n in range(200))))
            for _ in range(3):
                await trio.lowlevel.checkpoint()
            await clients[0].stream.aclose()
            await clients[1].stream.aclose()
            with trio.fail_after(5):
                for client in clients[2:]:
                    assert len(await client.replies(200)) == 200


async def test_a_slot_handed_to_a_connection_that_ends_in_the_same_moment_is_not_lost() -> None:
    for order in range(2):
        relay = Relay(open=False)
        async with rig(relay, GatewayLimits(calls_per_container=1)) as made:
            holder = made.connect()
            ours, theirs = memory_stream_pair()
            await holder.send(*calls("a"))
            await wait_all_tasks_blocked()
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(made.gateway.serve_connection, theirs, "c1")
                    await ours.send_all(frame_of(call_of(call_id="b")))
                    await wait_all_tasks_blocked()
                    slots = made.gateway.share_of("c1").calls
                    if order:
                        scope.cancel()
                        slots.give()
                    else:
                        slots.give()  # handed on, and then nobody takes it up
                        scope.cancel()
                    await trio.sleep_forever()
            await wait_all_tasks_blocked()
            assert slots.free == 1


# --- ends -----------------------------------------------------------------------------------------------------------


async def test_a_peer_that_goes_cancels_its_calls() -> None:
    relay = Relay(open=False)
    async with rig(relay) as made:
        client, other = made.connect(), made.connect()
        await client.send(*calls("a", "b"))
        await other.send(*calls("c"))
        await wait_all_tasks_blocked()
        await client.stream.aclose()
        await wait_all_tasks_blocked()
        assert sorted(relay.cancelled) == ["a", "b"]
        relay.let("c")
        assert (await other.reply()).call_id == "c"


async def test_a_sent_write_goes_on_when_its_peer_goes(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        sessions = table_of(session_of("c1", "s-1"))
        caller = ScriptedCaller(takes(10, sends_after=1))
        hub = Hub(sessions, counters=Counters())
        hub.wire(caller)
        await nursery.start(hub.run)
        made = Rig(nursery, hub.submit, None)
        client = made.connect()
        await client.send(call_of(WRITE, "w"), call_of(READ, "r"))
        await trio.sleep(2)
        await client.stream.aclose()
        await wait_all_tasks_blocked()
        assert made.gateway.connections_of("c1") == 0
        assert caller.ended == ["cancelled"]  # the read, though it said that it was sending
        await trio.sleep(9)
        assert caller.ended == ["cancelled", "ok"]
        nursery.cancel_scope.cancel()


async def test_calls_that_end_while_their_connection_does_cost_the_hub_nothing() -> None:
    """Neither has to be first: each time, tasks take their turns in another order."""
    counters = Counters()
    sessions = table_of(session_of("c1", "s-1"))
    hub = Hub(sessions, counters=counters)
    hub.wire(ScriptedCaller(takes(1000)))
    async with trio.open_nursery() as nursery:
        await nursery.start(hub.run)  # unsupervised: a crash would end the test
        made = Rig(nursery, hub.submit, None)
        for _ in range(20):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            client = RawClient(UnixStream(ours))
            async with trio.open_nursery() as serving:
                serving.start_soon(made.gateway.serve_connection, UnixStream(theirs), "c1")
                await client.send(*calls("a", "b", "c", "d"))
                await wait_all_tasks_blocked()
                hub.unbound("s-1")
                serving.cancel_scope.cancel()
            await wait_all_tasks_blocked()
            assert hub.in_flight == 0
            assert made.gateway.share_of("c1").calls.free == made.gateway.limits.calls_per_container
            await client.stream.aclose()
        assert counters.total("internal_errors") == 0
        nursery.cancel_scope.cancel()


class Breaking(trio.abc.Stream):
    """A stream whose operations raise what they are given."""

    def __init__(self, error: Exception, *, at: str) -> None:
        self.error = error
        self.at = at

    async def _do(self, what: str) -> None:
        await trio.lowlevel.checkpoint()
        if self.at == what:
            raise self.error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._do("send")

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await self._do("receive")
        if self.at == "send":
            self.at = "send, given a call"
            return frame_of(call_of())
        if self.at == "send, given a call":
            self.at = "send"
            await trio.sleep_forever()
        return b""

    async def aclose(self) -> None:
        await self._do("close")


@pytest.mark.parametrize("at", ["send", "receive", "close"])
@pytest.mark.parametrize("error", [OSError(5, "I/O"), ValueError("bug"), trio.BrokenResourceError()])
async def test_whatever_a_stream_raises_stays_within_its_connection(at: str, error: Exception) -> None:
    counters = Counters()
    async with trio.open_nursery() as nursery:
        gateway = Gateway(table_of(session_of()), submitting(nursery, Relay()), counters=counters)
        await gateway.serve_connection(Breaking(error, at=at), "c1")  # raises nothing
    assert gateway.connections_of("c1") == 0
    expected = isinstance(error, trio.BrokenResourceError) and at != "close"
    assert counters.total("internal_errors", where="gateway") == (0 if expected else 1)


async def test_an_error_in_sending_an_answer_costs_its_connection_and_not_whoever_answers(events: Logged) -> None:
    class Bug(UnixStream):
        def send_nowait(self, data: bytes | memoryview) -> int:
            raise ValueError("bug")

    answers: list[Callable[[], None]] = []

    def relay(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> Pending:
        answers.append(lambda: answer(reply_to(call)))
        return Forsaken()

    async with rig(relay) as made:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        client = made.serve(Bug(theirs), RawClient(UnixStream(ours)))
        await client.send(*calls("a"))
        await wait_all_tasks_blocked()
        answers[0]()  # raises nothing
        assert await client.reply_or_end() is None
        assert made.counters.total("internal_errors", where="gateway") == 1
        assert [event["exc_info"] for event in events if event["log_level"] == "error"] == [True]
        await client.stream.aclose()


async def test_cancelling_a_connection_passes(autojump_clock: MockClock) -> None:
    relay = Relay(open=False)
    async with trio.open_nursery() as nursery:
        gateway = Gateway(table_of(session_of()), submitting(nursery, relay), counters=Counters())
        ours, theirs = memory_stream_pair()
        await ours.send_all(frame_of(call_of(call_id="a")))
        with trio.move_on_after(5) as scope:
            await gateway.serve_connection(theirs, "c1")
        assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert relay.cancelled == ["a"]
        assert await ours.receive_some() == b""
        assert gateway.connections_of("c1") == 0


async def test_nothing_is_kept_of_a_container_that_went() -> None:
    async with rig(Relay()) as made:
        client = made.connect()
        await client.send(call_of())
        await client.reply()
        await client.stream.aclose()
        await wait_all_tasks_blocked()
        made.gateway.forget("c1")
        assert not made.gateway._connections
        assert not made.gateway._shares
        assert not made.gateway._open


# --- flush ----------------------------------------------------------------------------------------------------------


async def test_a_flush_waits_until_what_is_owed_has_gone_out(autojump_clock: MockClock) -> None:
    relay = Relay(open=False)
    async with rig(relay) as made:
        client = made.connect(lockstep=True)
        await client.send(*calls("a"))
        await wait_all_tasks_blocked()
        assert await made.gateway.flush(1) is False  # under way
        relay.let("a")
        assert await made.gateway.flush(1) is False  # ready, not taken
        made._nursery.start_soon(client.reply)
        assert await made.gateway.flush(1) is True
        assert trio.current_time() == pytest.approx(2)


async def test_a_flush_with_nothing_owed_and_one_whose_peer_goes_end_at_once(autojump_clock: MockClock) -> None:
    relay = Relay(open=False)
    async with rig(relay) as made:
        assert await made.gateway.flush(5) is True
        client = made.connect()
        await client.send(*calls("a"))
        await wait_all_tasks_blocked()

        async def goes() -> None:
            await trio.sleep(1)
            await client.stream.aclose()

        made._nursery.start_soon(goes)
        assert await made.gateway.flush(5) is True
        assert trio.current_time() == pytest.approx(1)


async def test_a_drain_and_a_flush_give_every_caller_its_reply(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        sessions = table_of(session_of("c1", "s-1"))
        hub = Hub(sessions, counters=Counters())
        hub.wire(ScriptedCaller(takes(3, sends_after=1)))
        await nursery.start(hub.run)
        made = Rig(nursery, hub.submit, None)
        client = made.connect()
        await client.send(call_of(WRITE, "w"))
        await wait_all_tasks_blocked()
        assert await hub.drain(20)
        assert await made.gateway.flush(1)
        nursery.cancel_scope.cancel()
    assert isinstance(await client.reply(), ResultFrame)
