from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from compass_forged import deadlines as module
from compass_forged.deadlines import Deadlines


class Timed:
    """Remembers when it was due."""

    def __init__(self) -> None:
        self.due_at: list[float] = []

    def due(self) -> None:
        self.due_at.append(trio.current_time())


@asynccontextmanager
async def running() -> AsyncIterator[Deadlines]:
    deadlines = Deadlines()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        yield deadlines
        nursery.cancel_scope.cancel()


async def test_each_is_due_at_its_time_whatever_the_order(autojump_clock: MockClock) -> None:
    async with running() as deadlines:
        kept = {when: Timed() for when in (5.0, 2.0, 9.0, 1.0)}
        for when, timed in kept.items():
            deadlines.keep(timed, when)
            await wait_all_tasks_blocked()  # it waits for the first of them, and one that is sooner comes
        await trio.sleep(20)
        assert {when: timed.due_at for when, timed in kept.items()} == {when: [when] for when in kept}
        assert len(deadlines) == 0


async def test_what_has_passed_is_due_at_once(autojump_clock: MockClock) -> None:
    async with running() as deadlines:
        await trio.sleep(10)
        timed = Timed()
        deadlines.keep(timed, 3)
        await trio.sleep(1)
        assert timed.due_at == [10]


async def test_what_was_dropped_is_not_due(autojump_clock: MockClock) -> None:
    async with running() as deadlines:
        dropped, kept = Timed(), Timed()
        number = deadlines.keep(dropped, 5)
        deadlines.keep(kept, 5)
        deadlines.drop(number)
        deadlines.drop(number)
        await trio.sleep(10)
        assert (dropped.due_at, kept.due_at) == ([], [5])


@pytest.mark.parametrize("when", [2.0, 8.0])
async def test_what_was_moved_is_due_at_the_new_time_alone(when: float, autojump_clock: MockClock) -> None:
    async with running() as deadlines:
        timed = Timed()
        number = deadlines.keep(timed, 5)
        await wait_all_tasks_blocked()
        deadlines.move(number, timed, when)
        await trio.sleep(10)
        assert timed.due_at == [when]


async def test_what_is_moved_when_it_is_due_is_due_again(autojump_clock: MockClock) -> None:
    class Twice(Timed):
        def due(self) -> None:
            super().due()
            if len(self.due_at) == 1:
                deadlines.move(number, self, 7)

    async with running() as deadlines:
        timed = Twice()
        number = deadlines.keep(timed, 5)
        await trio.sleep(10)
        assert timed.due_at == [5, 7]


async def test_all_that_is_due_together_is_told_in_one_turn(autojump_clock: MockClock) -> None:
    async with running() as deadlines:
        many = [Timed() for _ in range(50)]
        for timed in many:
            deadlines.keep(timed, 5)
        await trio.sleep(6)
        assert all(timed.due_at == [5] for timed in many)


@settings(max_examples=50)
@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=120))
def test_sweeping_loses_nothing_and_leaves_little(steps: list[tuple[bool, int]]) -> None:
    """Whatever is kept and dropped: what is left is due at its time, and what has ended does not pile up."""

    async def scenario() -> None:
        left: dict[int, tuple[float, Timed]] = {}
        async with running() as deadlines:
            for drops, number in steps:
                if drops and left:
                    chosen = list(left)[number % len(left)]
                    del left[chosen]
                    deadlines.drop(chosen)
                else:
                    timed = Timed()
                    left[deadlines.keep(timed, 1 + number)] = (1 + number, timed)
                    assert len(deadlines._heap) <= 4 + 2 * len(left) + 1  # swept when something is added
            assert len(deadlines) == len(left)
            await trio.sleep(60)
        assert all(timed.due_at == [when] for when, timed in left.values())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SWEEP_AT", 4)
        trio.run(scenario, clock=MockClock(autojump_threshold=0))
