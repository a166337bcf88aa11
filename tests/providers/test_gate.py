import math
from collections import Counter

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from compass_forged.budget import Budget, BudgetSettings, Kind, Reading
from compass_forged.errors import RateLimited
from compass_forged.providers.gate import Admission, Gate


def new_gate(
    *,
    concurrency: int = 16,
    queue_per_container: int = 64,
    creation_burst: int = 10,
    creation_interval: float = 1.0,
    creations_per_hour: int = 500,
) -> Gate:
    settings = BudgetSettings(
        creation_burst=creation_burst, creation_interval=creation_interval, creations_per_hour=creations_per_hour
    )
    budget = Budget(settings)
    return Gate(budget, name="test", concurrency=concurrency, queue_per_container=queue_per_container)


def told(remaining: int, resets_in: float) -> Reading:
    return Reading(resource="core", limit=5000, remaining=remaining, resets_in=resets_in)


async def shut(gate: Gate, seconds: float) -> None:
    """Have the forge say that nothing is left for so long."""
    (await gate.admit("box", "read")).settle(reading=told(0, seconds))


async def test_an_open_gate_lets_go_at_once(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate()
    (await gate.admit("box", "read")).settle()
    assert trio.current_time() == 0
    assert gate.statistics().in_flight == 0


async def test_a_call_waits_for_the_reset_that_comes_before_its_deadline(
    autojump_clock: trio.testing.MockClock,
) -> None:
    gate = new_gate()
    await shut(gate, 20)
    with trio.fail_after(21):
        (await gate.admit("box", "write")).settle()
    assert trio.current_time() == 20


async def test_a_call_whose_deadline_comes_first_is_refused_at_once(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate()
    await shut(gate, 20)
    with trio.fail_after(19), pytest.raises(RateLimited) as refused:
        await gate.admit("box", "read")
    assert trio.current_time() == 0
    assert refused.value.retry_after_seconds == 20
    assert refused.value.outcome == "not_sent"


async def test_a_throttle_refuses_those_who_cannot_wait_that_long(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate()
    await shut(gate, 5)
    ended: dict[str, float] = {}

    async def patient() -> None:
        with trio.fail_after(100):
            (await gate.admit("patient", "write")).settle()
        ended["patient"] = trio.current_time()

    async def hasty() -> None:
        with trio.fail_after(30), pytest.raises(RateLimited) as refused:
            await gate.admit("hasty", "write")
        assert refused.value.retry_after_seconds == 60
        ended["hasty"] = trio.current_time()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(patient)
        nursery.start_soon(hasty)
        await trio.sleep(1)
        assert gate.throttled(None, "status 403") == 60
    assert ended == {"hasty": 1, "patient": 61}


async def test_after_a_throttle_the_waiting_writes_go_one_a_second(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate()
    gate.throttled(60.0, "status 429")
    passed: list[float] = []

    async def write(container: str) -> None:
        (await gate.admit(container, "write")).settle()
        passed.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        for index in range(10):
            nursery.start_soon(write, f"box-{index}")
    assert passed == pytest.approx([60.0 + index for index in range(10)])


async def test_containers_take_turns(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate(concurrency=1)
    order: list[str] = []
    holder = await gate.admit("holder", "read")

    async def read(container: str) -> None:
        admission = await gate.admit(container, "read")
        order.append(container)
        await trio.sleep(1)
        admission.settle()

    async with trio.open_nursery() as nursery:
        for container in "aaaaaabbc":
            nursery.start_soon(read, container)
            await trio.testing.wait_all_tasks_blocked()
        holder.settle()
    assert "".join(order) == "abcabaaaa"


async def test_writes_go_before_reads_and_reads_before_the_background(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate(concurrency=1)
    order: list[str] = []
    holder = await gate.admit("box", "read")
    kinds: list[Kind] = ["background", "read", "write", "read", "write"]

    async def call(kind: Kind) -> None:
        admission = await gate.admit("box", kind)
        order.append(kind)
        admission.settle()

    async with trio.open_nursery() as nursery:
        for kind in kinds:
            nursery.start_soon(call, kind)
            await trio.testing.wait_all_tasks_blocked()
        holder.settle()
    assert order == ["write", "write", "read", "read", "background"]


async def test_reads_pass_while_writes_are_paced(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate(creation_burst=1)
    (await gate.admit("box", "write")).settle()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.admit, "box", "write")
        await trio.testing.wait_all_tasks_blocked()
        (await gate.admit("box", "read")).settle()
        assert trio.current_time() == 0
    assert trio.current_time() == 1


async def test_a_sooner_opening_wakes_the_one_who_keeps_the_time(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate(creation_burst=1)
    (await gate.admit("box", "write")).settle(reading=Reading("search", 30, 0, 50.0))
    passed: list[tuple[str, float]] = []

    async def call(kind: Kind, resource: str) -> None:
        (await gate.admit("box", kind, resource)).settle()
        passed.append((resource, trio.current_time()))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, "read", "search")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(call, "write", "core")
    assert passed == [("core", 1.0), ("search", 50.0)]


async def test_a_full_queue_refuses_its_own_container_only(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate(queue_per_container=2)
    await shut(gate, 10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.admit, "a", "read")
        nursery.start_soon(gate.admit, "a", "read")
        await trio.testing.wait_all_tasks_blocked()
        assert gate.statistics().waiting == {"a": 2}
        with pytest.raises(RateLimited, match="this container") as refused:
            await gate.admit("a", "read")
        assert refused.value.retry_after_seconds == 10
        await gate.admit("b", "read")
    assert gate.statistics().waiting == {}


async def test_a_full_queue_behind_a_full_house_names_a_second(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate(queue_per_container=1, concurrency=1)
    holder = await gate.admit("a", "read")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(gate.admit, "a", "read")
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RateLimited) as refused:
            await gate.admit("a", "read")
        assert refused.value.retry_after_seconds == 1
        holder.settle()


async def test_a_write_too_far_back_in_the_queue_is_refused_at_once(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate(creation_burst=1)
    (await gate.admit("box", "write")).settle()

    async def write() -> None:
        (await gate.admit("box", "write")).settle()

    async with trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(20), pytest.raises(RateLimited) as refused:
            await gate.admit("box", "write")
        assert refused.value.retry_after_seconds == pytest.approx(31)
        with trio.fail_after(3):  # another container has its turn soon
            (await gate.admit("other", "write")).settle()


async def test_cancelled_waiters_leave_nothing_behind(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate(concurrency=2)
    holders = [await gate.admit("box", "read") for _ in range(2)]
    async with trio.open_nursery() as nursery:
        for index in range(50):
            nursery.start_soon(gate.admit, f"box-{index % 5}", "read")
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert gate.statistics().waiting == {}
    for holder in holders:
        holder.settle()
        holder.settle()  # again: nothing happens
    assert gate.statistics().in_flight == 0
    (await gate.admit("box", "read")).settle()


async def test_an_admission_that_meets_a_cancellation_is_given_back(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate(concurrency=1, creations_per_hour=2)
    holder = await gate.admit("box", "write")
    scope = trio.CancelScope()

    async def cancelled() -> None:
        with scope:
            await gate.admit("box", "write")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancelled)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        holder.settle()
    assert gate.statistics().in_flight == 0
    assert gate.statistics().budget.creations_last_hour == 1


async def test_the_next_one_keeps_the_time_when_the_timekeeper_leaves(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate()
    await shut(gate, 30)
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def leaver() -> None:
            with scope:
                await gate.admit("a", "read")

        nursery.start_soon(leaver)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(gate.admit, "b", "read")
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
    assert trio.current_time() == 30


async def test_an_exhausted_resource_shuts_the_gate(autojump_clock: trio.testing.MockClock) -> None:
    gate = new_gate()
    assert gate.exhausted("core", 7.0) == 7.0
    (await gate.admit("box", "read")).settle()
    assert trio.current_time() == 7.0
    assert gate.statistics().budget.resources[0].resource == "core"


class _Forge:
    """A forge with a limit a window; it counts what came once nothing was left."""

    def __init__(self, limit: int, window: float) -> None:
        self.limit, self.window, self.number, self.used, self.overspent = limit, window, 0, 0, 0

    async def serve(self, admission: Admission, delay: float) -> None:
        now = trio.current_time()
        if now // self.window > self.number:
            self.number, self.used = int(now // self.window), 0
        self.overspent += self.used >= self.limit
        self.used += 1
        reading = Reading("core", self.limit, max(0, self.limit - self.used), self.window * (self.number + 1) - now + 1)
        await trio.sleep(delay)
        admission.settle(reading=reading)


@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["write", "read"]),
            st.floats(0, 30),
            st.floats(0.01, 5),
            st.booleans(),
        ),
        min_size=1,
        max_size=60,
    ),
    limit=st.integers(30, 40),
)
def test_no_budget_is_exceeded_and_nobody_starves(
    calls: list[tuple[str, Kind, float, float, bool]], limit: int
) -> None:
    passed: Counter[bool] = Counter()
    forge = _Forge(limit, 60.0)
    gate = new_gate(concurrency=4, creation_interval=0.5)

    async def call(container: str, kind: Kind, start: float, delay: float, gives_up: bool) -> None:
        await trio.sleep(start)
        with trio.move_on_after(0.3 if gives_up else math.inf):
            try:
                admission = await gate.admit(container, kind)
            except RateLimited:
                assert gives_up
                return
            with trio.CancelScope(shield=True):
                await forge.serve(admission, delay)
            passed[gives_up] += 1

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for one in calls:
                nursery.start_soon(call, *one)
        assert gate.statistics().in_flight == 0
        assert gate.statistics().waiting == {}

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert forge.overspent == 0
    assert passed[False] == sum(not gives_up for *_, gives_up in calls)


class _Meter:
    """A forge that counts what arrives, when it arrives: points and creations, as GitHub weighs them."""

    def __init__(self) -> None:
        self.arrived: list[tuple[float, Kind]] = []

    async def serve(self, admission: Admission, kind: Kind, delay: float) -> None:
        await trio.sleep(delay / 2)
        self.arrived.append((trio.current_time(), kind))
        await trio.sleep(delay / 2)
        admission.settle()

    def most(self, seconds: float, weights: dict[Kind, int]) -> int:
        return max(
            (
                sum(weights.get(kind, 0) for at, kind in self.arrived if start <= at < start + seconds - 1e-5)
                for start, _ in self.arrived
            ),
            default=0,
        )


@settings(deadline=None)
@given(
    calls=st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["write", "read"]), st.floats(0, 100), st.floats(0, 50)),
        min_size=1,
        max_size=60,
    )
)
def test_points_and_creations_stay_within_their_minute_and_hour_as_the_forge_sees_them(
    calls: list[tuple[str, Kind, float, float]],
) -> None:
    bounds = BudgetSettings(points_per_minute=20, creations_per_minute=3, creations_per_hour=9, creation_interval=0.0)
    gate, meter = Gate(Budget(bounds)), _Meter()

    async def call(container: str, kind: Kind, start: float, delay: float) -> None:
        await trio.sleep(start)
        await meter.serve(await gate.admit(container, kind), kind, delay)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for one in calls:
                nursery.start_soon(call, *one)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert len(meter.arrived) == len(calls)  # nobody starves
    assert meter.most(60.0, {"write": 5, "read": 1}) <= 20
    assert meter.most(60.0, {"write": 1}) <= 3
    assert meter.most(3600.0, {"write": 1}) <= 9
