import random
from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from compass_forged.errors import RestartsExhausted
from compass_forged.observability import Counters
from compass_forged.supervise import RestartPolicy, supervise
from tests.support.core import Logged, logged


@pytest.fixture(autouse=True)
def events() -> Iterator[Logged]:
    with logged() as events:
        yield events


class Upper(random.Random):
    """Draws the longest pause."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Lower(random.Random):
    """Draws the shortest pause."""

    def uniform(self, a: float, b: float) -> float:
        return a


class Flaky:
    """A task that runs for a while and crashes, so many times; then it returns."""

    def __init__(self, crashes: int, *, runs_seconds: float = 0.0, error: BaseException | None = None) -> None:
        self.left = crashes
        self.runs_seconds = runs_seconds
        self.error = error or ValueError("broken")
        self.started_at: list[float] = []

    async def run(self) -> None:
        self.started_at.append(trio.current_time())
        await trio.sleep(self.runs_seconds)
        if self.left:
            self.left -= 1
            raise self.error


async def test_a_task_that_returns_is_done(autojump_clock: MockClock) -> None:
    task = Flaky(0)
    await supervise("t", task.run, counters=Counters())
    assert len(task.started_at) == 1


async def test_a_crash_is_logged_counted_and_started_again(autojump_clock: MockClock, events: Logged) -> None:
    task, counters = Flaky(2), Counters()
    await supervise("poller", task.run, counters=counters)
    assert len(task.started_at) == 3
    assert counters.total("supervisor_restarts", task="poller") == 2
    assert [(event["event"], event["log_level"], event["task"], event["crashes_in_window"]) for event in events] == [
        ("task crashed", "error", "poller", 1),
        ("task crashed", "error", "poller", 2),
    ]
    assert all(event["exc_info"] for event in events)  # with its traceback


async def test_the_backoff_doubles_up_to_its_bound(autojump_clock: MockClock) -> None:
    task = Flaky(6)
    policy = RestartPolicy(restarts=10, first_seconds=1.0, last_seconds=5.0)
    await supervise("t", task.run, counters=Counters(), policy=policy, rng=Upper())
    # Pauses of 1, 2, 4 and then the bound, 5.
    assert task.started_at == pytest.approx([0, 1, 3, 7, 12, 17, 22])


async def test_half_of_the_backoff_is_jitter(autojump_clock: MockClock) -> None:
    task = Flaky(2)
    policy = RestartPolicy(first_seconds=1.0, last_seconds=5.0)
    await supervise("t", task.run, counters=Counters(), policy=policy, rng=Lower())
    assert task.started_at == pytest.approx([0, 0.5, 1.5])


async def test_the_jitter_lies_between_its_bounds(autojump_clock: MockClock) -> None:
    task = Flaky(1)
    await supervise("t", task.run, counters=Counters(), policy=RestartPolicy(first_seconds=8.0, last_seconds=8.0))
    assert 4.0 <= task.started_at[1] <= 8.0


async def test_more_crashes_than_the_policy_allows_end_it(autojump_clock: MockClock) -> None:
    task = Flaky(100)
    with pytest.raises(RestartsExhausted, match=r"^hub crashed 6 times within 60 s$") as caught:
        await supervise("hub", task.run, counters=Counters())
    assert len(task.started_at) == 6
    assert isinstance(caught.value.__cause__, ValueError)


async def test_exactly_as_many_as_allowed_do_not(autojump_clock: MockClock) -> None:
    task = Flaky(5)
    await supervise("hub", task.run, counters=Counters())
    assert len(task.started_at) == 6


async def test_crashes_outside_the_window_are_forgotten_and_the_backoff_starts_over(autojump_clock: MockClock) -> None:
    task = Flaky(20, runs_seconds=60.0)
    policy = RestartPolicy(restarts=1, window_seconds=60.0, first_seconds=1.0, last_seconds=50.0)
    await supervise("t", task.run, counters=Counters(), policy=policy, rng=Upper())
    assert len(task.started_at) == 21
    assert task.started_at[-1] == pytest.approx(20 * 61)  # each ran for 60 s and waited for 1


async def test_cancellation_passes_and_is_no_crash(autojump_clock: MockClock) -> None:
    counters, task = Counters(), Flaky(1, runs_seconds=1e6)
    with trio.move_on_after(5) as scope:
        await supervise("t", task.run, counters=counters)
    assert scope.cancelled_caught
    assert counters.total("supervisor_restarts") == 0


async def test_cancellation_passes_during_the_backoff(autojump_clock: MockClock) -> None:
    task = Flaky(1)
    with trio.move_on_after(5) as scope:
        await supervise("t", task.run, counters=Counters(), policy=RestartPolicy(first_seconds=100, last_seconds=100))
    assert scope.cancelled_caught
    assert len(task.started_at) == 1


async def test_a_group_of_errors_is_a_crash_too(autojump_clock: MockClock) -> None:
    task = Flaky(1, error=ExceptionGroup("two", [ValueError(), KeyError()]))
    await supervise("t", task.run, counters=Counters())
    assert len(task.started_at) == 2


async def test_what_is_no_exception_is_not_held_up(autojump_clock: MockClock) -> None:
    class Stop(BaseException):
        pass

    task = Flaky(1, error=Stop())
    with pytest.raises(Stop):
        await supervise("t", task.run, counters=Counters())
    assert len(task.started_at) == 1


async def test_exhaustion_below_is_not_a_crash_to_be_restarted(autojump_clock: MockClock) -> None:
    inner = Flaky(1000)

    async def outer() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: supervise("inner", inner.run, counters=Counters()))
            nursery.start_soon(trio.sleep_forever)

    with pytest.RaisesGroup(pytest.RaisesExc(RestartsExhausted, match=r"^inner crashed 6 times within 60 s$")):
        await supervise("outer", outer, counters=Counters())
    assert len(inner.started_at) == 6


async def test_a_crash_before_it_was_up_is_the_starters(autojump_clock: MockClock) -> None:
    task, up = Flaky(1), trio.Event()
    with pytest.raises(ValueError, match="broken"):
        await supervise("t", task.run, counters=Counters(), up=up)
    assert len(task.started_at) == 1
    up.set()
    again = Flaky(1)
    await supervise("t", again.run, counters=Counters(), up=up)
    assert len(again.started_at) == 2


async def test_exhaustion_passes_without_a_group_too(autojump_clock: MockClock) -> None:
    task = Flaky(1, error=RestartsExhausted("inner crashed"))
    with pytest.raises(RestartsExhausted, match="inner crashed"):
        await supervise("outer", task.run, counters=Counters())
    assert len(task.started_at) == 1
