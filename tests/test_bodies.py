"""The bound on requests held over all containers: what counts, who waits, and that everything comes back."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from compass_forged.bodies import BodyBytes, Purse, Share
from compass_forged.connection import GatewayLimits
from compass_forged.gateway import Gateway
from compass_forged.observability import Counters
from compass_forged.wire.codec import encode_call
from compass_forged.wire.frames import HEADER_BYTES, encode_frame
from compass_forged.wire.schema import CommentOnIssue, ForgeCall, ReplyFrame
from tests.support.core import RawClient, call_of, fault_of, frame_of, reply_to, session_of, table_of

# --- the bound ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "fits"), [(99, True), (100, True), (101, False)])
def test_who_holds_nothing_may_have_all_that_is_left_and_no_byte_more(size: int, fits: bool) -> None:
    bodies = BodyBytes(100)
    assert bodies.take_nowait(bodies.share_of("a"), size) is fits
    assert bodies.held == (size if fits else 0)


@pytest.mark.parametrize(("size", "fits"), [(39, True), (40, True), (41, False)])
def test_a_container_alone_may_hold_half(size: int, fits: bool) -> None:
    bodies = BodyBytes(100)
    share = bodies.share_of("a")
    assert bodies.take_nowait(share, 10)
    assert bodies.take_nowait(share, size) is fits


def test_however_many_containers_flood_one_that_comes_later_finds_room() -> None:
    bodies = BodyBytes(1000)
    held = []
    for number in range(9):
        share = bodies.share_of(f"flood-{number}")
        while bodies.take_nowait(share, 1):
            pass
        held.append(share.held)
    assert held[0] == 500  # alone: half of all, and so on with what was left
    assert held[1] == 250
    assert bodies.take_nowait(bodies.share_of("late"), 1)
    assert bodies.held <= 1000


@dataclass
class Queue:
    """Readers that wait, and whose turn came, in order."""

    bodies: BodyBytes
    nursery: trio.Nursery
    granted: list[str] = field(default_factory=list)

    async def wait(self, container: str, size: int, *, scope: trio.CancelScope | None = None) -> None:
        async def take() -> None:
            with scope or trio.CancelScope():
                await self.bodies.take(self.bodies.share_of(container), size)
                self.granted.append(container)

        self.nursery.start_soon(take)
        await wait_all_tasks_blocked()


@asynccontextmanager
async def queue(most: int) -> AsyncIterator[Queue]:
    async with trio.open_nursery() as nursery:
        yield Queue(BodyBytes(most), nursery)
        nursery.cancel_scope.cancel()


def filled(bodies: BodyBytes, size: int) -> Share:
    """A container that holds ``size`` bytes, all in one frame."""
    share = bodies.share_of("full")
    assert bodies.take_nowait(share, size)
    return share


async def test_turns_go_round_by_container_and_not_by_who_came_first() -> None:
    async with queue(100) as made:
        full = filled(made.bodies, 100)
        for _ in range(5):
            await made.wait("flood", 10)
        await made.wait("quiet", 10)
        await made.wait("other", 10)
        assert made.granted == []
        turns = []
        for _ in range(6):
            before = len(made.granted)
            made.bodies.give(full, 10)
            await wait_all_tasks_blocked()
            turns.append("".join(made.granted[before:]))
        # The flood holds 10 then, and is passed over until it would hold no more than is left: 20 and 20.
        assert turns == ["flood", "quiet", "other", "", "", "flood"]
        assert made.bodies.waiting == 3


async def test_two_that_want_alike_take_turns() -> None:
    async with queue(100) as made:
        full = filled(made.bodies, 100)
        for _ in range(3):
            await made.wait("one", 1)
            await made.wait("two", 1)
        for _ in range(20):
            made.bodies.give(full, 1)
            await wait_all_tasks_blocked()
        assert made.granted == ["one", "two"] * 3


async def test_a_container_with_its_share_is_passed_over_and_served_as_it_gives_back() -> None:
    async with queue(100) as made:
        flood = made.bodies.share_of("flood")
        for _ in range(5):
            assert made.bodies.take_nowait(flood, 10)
        await made.wait("flood", 10)
        assert made.granted == []
        await made.wait("quiet", 10)  # does not queue behind it
        assert made.granted == ["quiet"]
        made.bodies.give(flood, 10)
        await wait_all_tasks_blocked()
        assert made.granted == ["quiet"]  # 40 and 10 are held: with 50 it would hold more than is left
        made.bodies.give(flood, 10)
        await wait_all_tasks_blocked()
        assert made.granted == ["quiet", "flood"]


async def test_room_is_kept_for_a_large_frame_and_small_ones_do_not_slip_past_it() -> None:
    async with queue(100) as made:
        full = made.bodies.share_of("full")
        for _ in range(5):
            assert made.bodies.take_nowait(full, 10)
        other = made.bodies.share_of("other")
        assert made.bodies.take_nowait(other, 25)
        await made.wait("large", 40)
        await made.wait("small", 6)  # 25 are free
        assert made.granted == []
        assert not made.bodies.take_nowait(made.bodies.share_of("newcomer"), 1)
        made.bodies.give(full, 10)
        assert made.granted == []
        made.bodies.give(full, 10)
        await wait_all_tasks_blocked()
        assert made.granted == ["large"]
        made.bodies.give(full, 10)
        await wait_all_tasks_blocked()
        assert made.granted == ["large", "small"]


async def test_whoever_stops_waiting_makes_way_for_those_behind() -> None:
    async with queue(100) as made:
        full = filled(made.bodies, 90)
        scope = trio.CancelScope()
        await made.wait("large", 50, scope=scope)
        await made.wait("small", 5)
        assert made.granted == []
        scope.cancel()
        await wait_all_tasks_blocked()
        assert made.granted == ["small"]
        assert made.bodies.waiting == 0
        made.bodies.give(full, 90)
        assert made.bodies.held == 5


@pytest.mark.parametrize("granted_first", [False, True])
async def test_bytes_granted_to_one_that_is_cancelled_in_the_same_moment_are_not_lost(granted_first: bool) -> None:
    async with queue(100) as made:
        full = filled(made.bodies, 100)
        scope = trio.CancelScope()
        await made.wait("a", 50, scope=scope)
        if granted_first:
            made.bodies.give(full, 100)
            scope.cancel()
        else:
            scope.cancel()
            made.bodies.give(full, 100)
        await wait_all_tasks_blocked()
        assert made.bodies.held == sum(50 for _ in made.granted)
        assert made.bodies.waiting == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["take", "give", "leave"]), st.sampled_from("abcd"), st.integers(1, 20)), max_size=80
    )
)
def test_the_bound_holds_nobody_waits_who_need_not_and_all_comes_back(steps: list[tuple[str, str, int]]) -> None:
    async def main() -> None:
        bodies = BodyBytes(20)
        held: list[tuple[Share, int]] = []
        waiting: list[trio.CancelScope] = []

        async def take(container: str, size: int) -> None:
            share = bodies.share_of(container)
            with trio.CancelScope() as scope:
                if not bodies.take_nowait(share, size):
                    waiting.append(scope)
                    await bodies.take(share, size)
                held.append((share, size))
            if scope in waiting:
                waiting.remove(scope)

        async with trio.open_nursery() as nursery:
            for what, container, size in steps:
                if what == "take":
                    nursery.start_soon(take, container, size)
                elif what == "give" and held:
                    bodies.give(*held.pop(size % len(held)))
                elif what == "leave" and waiting:
                    waiting[size % len(waiting)].cancel()
                await wait_all_tasks_blocked()
                assert sum(size for _, size in held) == bodies.held <= 20
                for share in map(bodies.share_of, "abcd"):
                    assert share.held == sum(size for owner, size in held if owner is share)
                assert len(waiting) == bodies.waiting
                assert held or not waiting  # somebody can always go on
            while held:
                bodies.give(*held.pop())
                await wait_all_tasks_blocked()
            assert not waiting
            assert bodies.held == 0

    trio.run(main)


# --- at a connection ------------------------------------------------------------------------------------------------


class Held:
    """A relayed call that nobody answers before the test does."""

    def abandon(self) -> None:
        pass


class Rig:
    """A gateway with containers ``a``, ``b``, … bound; calls wait until the test answers them."""

    def __init__(self, nursery: trio.Nursery, limits: GatewayLimits) -> None:
        self.nursery = nursery
        self.asked: list[str] = []
        self.answers: dict[str, Callable[[], None]] = {}
        self.counters = Counters()
        sessions = table_of(*(session_of(name, f"s-{name}") for name in "abcdef"))
        self.gateway = Gateway(sessions, self._relay, counters=self.counters, limits=limits)

    def _relay(self, _session: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> Held:
        self.asked.append(call.call_id)
        self.answers[call.call_id] = lambda: answer(reply_to(call))
        return Held()

    def connect(self, container: str) -> RawClient:
        ours, theirs = memory_stream_pair()
        self.nursery.start_soon(self.gateway.serve_connection, theirs, container)
        return RawClient(ours)

    async def answer(self, *call_ids: str) -> None:
        for call_id in call_ids:
            self.answers.pop(call_id)()
        await wait_all_tasks_blocked()

    @property
    def held(self) -> int:
        return self.gateway.bodies.held


@asynccontextmanager
async def rig(limits: GatewayLimits) -> AsyncIterator[Rig]:
    async with trio.open_nursery() as nursery:
        yield Rig(nursery, limits)
        nursery.cancel_scope.cancel()


def call(call_id: str, fill: int = 100) -> ForgeCall:
    return call_of(CommentOnIssue(repo="acme/site", issue_number=7, body="x" * fill), call_id)


SIZE = len(encode_call(call("a1")))
"""What each of those holds: their ids are of one length."""


def limits_for(frames: int, *, more: int = 0, calls: int = 64, size: int = SIZE) -> GatewayLimits:
    """A bound of so many frames."""
    return GatewayLimits(frame_max_bytes=size, bodies_max_bytes=frames * size + more, calls_per_connection=calls)


@pytest.mark.parametrize(("more", "started"), [(-1, 1), (0, 2), (1, 2)])
async def test_at_the_bound_a_reader_stops_reading_and_loses_nothing(more: int, started: int) -> None:
    async with rig(limits_for(4, more=more)) as made:  # half of it is two calls, or a byte less than two
        client = made.connect("a")
        await client.send(*(call(f"a{number}") for number in range(1, 6)))
        await wait_all_tasks_blocked()
        assert made.asked == ["a1", "a2"][:started]
        assert made.held == started * SIZE
        assert made.counters.total("body_waits") == 1
        for number in range(1, 6):
            await made.answer(f"a{number}")
        assert made.asked == ["a1", "a2", "a3", "a4", "a5"]
        assert [reply.call_id for reply in [await client.reply() for _ in range(5)]] == made.asked
        assert made.held == 0


async def test_a_container_that_floods_over_many_connections_keeps_nobody_from_a_share() -> None:
    async with rig(limits_for(8)) as made:
        floods = [made.connect("a") for _ in range(6)]
        for number, client in enumerate(floods):
            await client.send(call(f"a{number}"), call(f"A{number}"))
        await wait_all_tasks_blocked()
        assert len(made.asked) == 4
        for name in "bc":
            await made.connect(name).send(call(f"{name}1"))
            await wait_all_tasks_blocked()
            assert made.asked[-1] == f"{name}1"  # at once, though eight calls of the flood wait
        for one in list(made.answers):
            await made.answer(one)
        assert made.held == len(made.answers) * SIZE


async def test_a_frame_counts_from_its_length_on_and_its_clock_stands_while_it_waits_for_room(
    autojump_clock: MockClock,
) -> None:
    async with rig(limits_for(2)) as made:
        holders = [made.connect("a"), made.connect("b")]
        for name, holder in zip("ab", holders, strict=True):
            await holder.stream.send_all(frame_of(call(f"{name}1"))[: HEADER_BYTES - 1])
        await wait_all_tasks_blocked()
        assert made.held == 0
        for name, holder in zip("ab", holders, strict=True):
            await holder.stream.send_all(frame_of(call(f"{name}1"))[HEADER_BYTES - 1 :][:2])
        await wait_all_tasks_blocked()
        assert made.held == 2 * SIZE
        late = made.connect("c")
        await late.stream.send_all(frame_of(call("c1"))[:50])
        for name, holder in zip("ab", holders, strict=True):
            await holder.stream.send_all(frame_of(call(f"{name}1"))[HEADER_BYTES + 1 :])
        await trio.sleep(1000)
        assert made.asked == ["a1", "b1"]
        await made.answer("a1")
        await trio.sleep(9)
        assert made.held == 2 * SIZE
        await late.stream.send_all(frame_of(call("c1"))[50:])
        await wait_all_tasks_blocked()
        assert made.asked == ["a1", "b1", "c1"]
        await made.answer("b1", "c1")
        assert made.held == 0


async def test_half_a_frame_that_is_given_up_gives_its_bytes_back(autojump_clock: MockClock) -> None:
    async with rig(limits_for(2)) as made:
        client = made.connect("a")
        await client.stream.send_all(frame_of(call("a1"))[:20])
        await wait_all_tasks_blocked()
        assert made.held == SIZE
        assert fault_of(await client.reply()) == "invalid_argument"
        await wait_all_tasks_blocked()
        assert made.held == 0


async def test_frames_that_come_to_nothing_give_their_bytes_back() -> None:
    async with rig(limits_for(2)) as made:
        client = made.connect("a")
        await client.stream.send_all(encode_frame(b"\xc1" * SIZE))
        assert fault_of(await client.reply()) == "invalid_argument"
        await client.send(call("a1"))
        await wait_all_tasks_blocked()
        assert made.held == SIZE
    async with rig(limits_for(4)) as made:
        client = made.connect("a")
        await client.send(call("a1"), call("a1"))
        assert fault_of(await client.reply()) == "invalid_argument"  # in flight already
        assert made.held == SIZE
        await client.stream.send_all(b"\0\0\0\0")
        await wait_all_tasks_blocked()
        assert made.held == 0


async def test_the_call_of_an_unbound_container_gives_its_bytes_back() -> None:
    async with rig(limits_for(2)) as made:
        client = made.connect("nobody")
        await client.send(call("a1"), call("a2"), call("a3"))
        for _ in range(3):
            assert fault_of(await client.reply()) == "permission_denied"
        assert made.held == 0


@pytest.mark.parametrize("how", ["peer goes", "cancelled"])
async def test_a_connection_that_ends_gives_back_what_it_holds_and_what_it_waits_for(how: str) -> None:
    limits = limits_for(6, calls=2)
    async with rig(limits) as made, trio.open_nursery() as nursery:
        ours, theirs = memory_stream_pair()
        nursery.start_soon(made.gateway.serve_connection, theirs, "a")
        client = RawClient(ours)
        await client.send(call("a1"), call("a2"), call("a3"))  # the third waits for a slot
        await wait_all_tasks_blocked()
        assert (made.asked, made.held) == (["a1", "a2"], 3 * SIZE)
        waits = made.connect("a")
        await waits.send(call("a4"))
        await wait_all_tasks_blocked()
        assert made.gateway.bodies.waiting == 1
        if how == "cancelled":
            nursery.cancel_scope.cancel()
        else:
            await client.stream.aclose()
            await made.answer("a1")  # its reader has a slot, and sees that nobody is there
        await wait_all_tasks_blocked()
        assert "a4" in made.asked
        assert made.held == SIZE
        for late in ("a2", "a3"):
            if late in made.answers:
                await made.answer(late)  # for nobody: gives nothing back a second time
        assert made.held == SIZE


async def test_a_reader_that_is_cancelled_as_it_waits_leaves_no_trace() -> None:
    async with rig(limits_for(2)) as made:
        await made.connect("a").send(call("a1"))
        await made.connect("b").send(call("b1"))
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            ours, theirs = memory_stream_pair()
            nursery.start_soon(made.gateway.serve_connection, theirs, "c")
            await RawClient(ours).send(call("c1"))
            await wait_all_tasks_blocked()
            assert made.gateway.bodies.waiting == 1
            nursery.cancel_scope.cancel()
        assert made.gateway.bodies.waiting == 0
        await made.answer("a1", "b1")
        assert made.held == 0


async def test_a_container_that_was_closed_and_came_back_starts_anew_and_nothing_is_counted_twice() -> None:
    async with rig(limits_for(4)) as made:
        await made.connect("a").send(call("a1"), call("a2"))
        await wait_all_tasks_blocked()
        made.gateway.forget("a")
        await made.connect("a").send(call("a3"))
        await wait_all_tasks_blocked()
        assert made.asked == ["a1", "a2", "a3"]
        await made.answer("a1", "a2", "a3")
        assert made.held == 0


def test_a_bound_below_the_largest_frame_is_refused() -> None:
    GatewayLimits(frame_max_bytes=100, bodies_max_bytes=100)
    with pytest.raises(ValueError, match="bodies_max_bytes must be at least frame_max_bytes"):
        GatewayLimits(frame_max_bytes=101, bodies_max_bytes=100)


def test_a_purse_is_emptied_once() -> None:
    bodies = BodyBytes(100)
    purse = Purse(bodies, "a")
    assert purse.begin(10)
    purse.keep("1")
    assert purse.begin(5)
    assert bodies.held == 15
    purse.empty()
    purse.empty()
    assert bodies.held == 0
