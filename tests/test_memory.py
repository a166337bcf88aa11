"""Stages of memory: what is held back in each, and when one is left."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from compass_forged.errors import CallError
from compass_forged.memory import MemoryWatch, Stage, next_stage
from compass_forged.memory_use import MemoryUse
from compass_forged.observability import Counters
from compass_forged.ports import ContainerSpec
from compass_forged.wire.schema import ErrorResult, IssueCommentResult, IssueResult
from tests.support.core import Logged, call_of, fault_of, logged
from tests.support.host import host
from tests.support.service import COMMENT, CREATE, READ, World


@pytest.fixture(autouse=True)
def events() -> Iterator[Logged]:
    with logged() as events:
        yield events


@pytest.mark.parametrize(
    ("stage", "part", "then"),
    [
        ("normal", 0.849, "normal"), ("normal", 0.85, "tight"), ("normal", 0.949, "tight"), ("normal", 0.95, "full"),
        ("tight", 0.949, "tight"), ("tight", 0.95, "full"), ("tight", 0.81, "tight"), ("tight", 0.79, "normal"),
        ("full", 0.91, "full"), ("full", 0.89, "tight"), ("full", 0.81, "tight"), ("full", 0.79, "normal"),
        ("full", 1.2, "full"), ("normal", 0.0, "normal"),
    ],
)  # fmt: skip
def test_a_stage_is_left_five_points_below_where_it_begins(stage: Stage, part: float, then: Stage) -> None:
    assert next_stage(stage, part) == then


class Watched:
    """A watch whose source says what the test says, in percent."""

    def __init__(self) -> None:
        self.percent = 50
        self.error: OSError | None = None
        self.handed_back = 0
        self.counters = Counters()
        self.memory = MemoryWatch(self._read, counters=self.counters, hand_back=self._hand_back)

    def _read(self) -> MemoryUse:
        if self.error is not None:
            raise self.error
        return MemoryUse(self.percent, 100)

    def _hand_back(self) -> None:
        self.handed_back += 1

    def at(self, percent: int) -> None:
        self.percent = percent
        self.memory.look()


async def test_it_is_looked_at_every_second_and_each_change_is_logged_and_counted_once(
    autojump_clock: MockClock, events: Logged
) -> None:
    watched = Watched()
    async with trio.open_nursery() as nursery:
        await nursery.start(watched.memory.run)
        await trio.sleep(10)
        assert events == []
        for percent, stage in ((90, "tight"), (96, "full"), (92, "full"), (88, "tight"), (82, "tight"), (70, "normal")):
            watched.percent = percent
            await trio.sleep(5)
            assert watched.memory.stage == stage
        nursery.cancel_scope.cancel()
    assert [(event["before"], event["stage"], event["used"], event["limit"]) for event in events] == [
        ("normal", "tight", 90, 100),
        ("tight", "full", 96, 100),
        ("full", "tight", 88, 100),
        ("tight", "normal", 70, 100),
    ]
    assert [watched.counters.total("memory_stages", stage=stage) for stage in ("tight", "full", "normal")] == [2, 1, 1]


async def test_free_heap_is_handed_back_every_ten_seconds_while_memory_is_short(autojump_clock: MockClock) -> None:
    watched = Watched()
    async with trio.open_nursery() as nursery:
        await nursery.start(watched.memory.run)
        await trio.sleep(100.5)
        assert watched.handed_back == 0
        watched.percent = 90
        await trio.sleep(30)
        assert watched.handed_back == 3
        watched.percent = 10
        await trio.sleep(30)
        assert watched.handed_back == 3
        nursery.cancel_scope.cancel()


async def test_what_cannot_be_read_leaves_the_stage_and_is_logged_once(events: Logged) -> None:
    watched = Watched()
    watched.at(90)
    watched.error = OSError(5, "Input/output error")
    for _ in range(3):
        await trio.lowlevel.checkpoint()
        watched.at(10)
    stages = [watched.memory.stage]
    assert [event["log_level"] for event in events] == ["warning", "error"]
    watched.error = None
    watched.at(10)
    stages.append(watched.memory.stage)
    assert stages == ["tight", "normal"]


# --- creates --------------------------------------------------------------------------------------------------------


async def test_from_tight_on_creates_are_refused_and_reads_and_comments_go_on() -> None:
    world, watched = World(), Watched()
    await world.populate()
    world.service._creates._check_create = watched.memory.check_create
    first = await world.run(CREATE, "k-1")
    assert isinstance(first, IssueResult)
    for percent in (85, 95):
        watched.at(percent)
        for key in ("", "k-2"):
            refused = await world.run(CREATE, key)
            assert isinstance(refused, ErrorResult)
            assert (refused.code, refused.outcome, refused.retry_after_ms) == ("resource_exhausted", "not_sent", 5000)
        again = await world.run(CREATE, "k-1")  # nothing new: the memo answers
        assert isinstance(again, IssueResult)
        assert again.issue.replayed
        assert isinstance(await world.run(READ), IssueResult)
        assert isinstance(await world.run(COMMENT), IssueCommentResult)
    assert watched.counters.total("creates_refused_for_memory") == 4
    creates = len(world.store.recorded)
    assert creates == 1
    watched.at(80)
    assert isinstance(await world.run(CREATE, "k-2"), ErrorResult)  # not yet
    watched.at(79)
    assert isinstance(await world.run(CREATE, "k-2"), IssueResult)


async def test_a_create_that_waited_for_one_that_was_refused_is_refused_by_itself() -> None:
    world, watched = World(), Watched()
    await world.populate()
    watched.at(90)
    world.service._creates._check_create = watched.memory.check_create
    async with trio.open_nursery() as nursery:
        asked = [world.ask(nursery, CREATE, "k-1") for _ in range(3)]
    assert [one.result.code for one in asked if isinstance(one.result, ErrorResult)] == ["resource_exhausted"] * 3


def test_the_refusal_says_that_nothing_was_sent() -> None:
    watched = Watched()
    watched.memory.stage = "tight"
    with pytest.raises(CallError, match="short of memory, so nothing was sent"):
        watched.memory.check_create()


# --- connections ----------------------------------------------------------------------------------------------------


async def test_in_the_last_stage_no_connection_is_accepted_and_those_that_are_there_are_served(tmp_path: Path) -> None:
    async with host(tmp_path / "run") as made:
        await made.containers.open(ContainerSpec("c1"))
        first = await made.connect()
        await first.send(call_of())
        assert fault_of(await first.reply()) == "permission_denied"  # no session is bound
        made.memory_use = MemoryUse(95, 100)
        made.memory.look()
        waiting = await made.connect()  # the kernel's backlog takes it
        await waiting.send(call_of())
        await first.send(call_of())
        assert fault_of(await first.reply()) == "permission_denied"
        await wait_all_tasks_blocked(0.02)
        assert made.gateway.connections_of("c1") == 1
        status = await made.ask(lambda client: client.status())  # the control socket is not held back
        assert status.memory is not None
        assert (status.memory.stage, status.memory.used, status.memory.limit) == ("full", 95, 100)

        made.memory_use = MemoryUse(89, 100)
        made.memory.look()
        assert fault_of(await waiting.reply()) == "permission_denied"
        assert made.gateway.connections_of("c1") == 2
        for client in (first, waiting):
            await client.stream.aclose()


async def test_a_container_that_is_closed_while_connections_are_held_back_is_closed(tmp_path: Path) -> None:
    async with host(tmp_path / "run") as made:
        await made.containers.open(ContainerSpec("c1"))
        made.memory_use = MemoryUse(99, 100)
        made.memory.look()
        client = await made.connect()
        await wait_all_tasks_blocked(0.02)
        await made.containers.close("c1")
        assert not made.run_dir.container_socket("c1").exists()
        with pytest.raises(trio.BrokenResourceError):
            await client.send(call_of())
        await client.stream.aclose()
