import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import pytest
import trio
from trio.lowlevel import Task, current_task
from trio.testing import MockClock, wait_all_tasks_blocked

from compass_forged import workers
from compass_forged.workers import WorkerPool

Work: TypeAlias = Callable[["Job"], Awaitable[None]]


class Job:
    """A job that does what its work says and remembers each end it was told of."""

    def __init__(self, work: Work) -> None:
        self.scope: trio.CancelScope | None = None
        self.ends: list[bool] = []
        """Of each ``finish``: whether it was cut off."""
        self.ended_at = math.nan
        self.task: Task | None = None
        self._work = work

    async def run(self) -> None:
        self.task = current_task()
        await self._work(self)

    def finish(self, *, cut_off: bool) -> None:
        self.ends.append(cut_off)
        self.ended_at = trio.current_time()

    @property
    def own_scope(self) -> trio.CancelScope:
        assert self.scope is not None
        return self.scope


def takes(seconds: float) -> Work:
    async def work(_job: Job) -> None:
        await trio.sleep(seconds)

    return work


async def no_wait(_job: Job) -> None:
    """Ends without giving way to anybody."""
    await trio.lowlevel.checkpoint_if_cancelled()


async def cancels_itself(job: Job) -> None:
    await trio.lowlevel.checkpoint_if_cancelled()
    job.own_scope.cancel()  # too late: it ends before its next wait


@asynccontextmanager
async def running() -> AsyncIterator[WorkerPool]:
    pool = WorkerPool("test")
    async with trio.open_nursery() as nursery:
        await nursery.start(pool.run)
        yield pool
        nursery.cancel_scope.cancel()


async def test_a_job_is_run_and_finished_once() -> None:
    async with running() as pool:
        job = Job(no_wait)
        pool.start(job)
        assert job.ends == []  # not a checkpoint
        await wait_all_tasks_blocked()
        assert job.ends == [False]
    assert job.ends == [False]


async def test_jobs_run_beside_each_other(autojump_clock: MockClock) -> None:
    async with running() as pool:
        jobs = [Job(takes(5)) for _ in range(10)]
        for job in jobs:
            pool.start(job)
        await trio.sleep(6)
        assert [job.ended_at for job in jobs] == [pytest.approx(5)] * 10


async def test_a_parked_worker_takes_the_next_job(autojump_clock: MockClock) -> None:
    async with running() as pool:
        first, second = Job(takes(1)), Job(takes(1))
        pool.start(first)
        await trio.sleep(2)
        pool.start(second)
        await trio.sleep(2)
        assert first.task is second.task
        assert first.scope is second.scope  # one that lasts
        assert second.ends == [False]


async def test_a_job_that_is_given_up_ends_and_its_worker_goes_on(autojump_clock: MockClock) -> None:
    async with running() as pool:
        given_up, next_one = Job(takes(99)), Job(takes(20))
        pool.start(given_up)
        await trio.sleep(3)
        given_up.own_scope.cancel()
        await trio.sleep(2)
        assert given_up.ends == [False]
        assert given_up.ended_at == pytest.approx(3)
        pool.start(next_one)
        await trio.sleep(1)
        assert next_one.task is given_up.task
        assert next_one.scope is not given_up.scope  # that one is spent
        await trio.sleep(20)
        assert next_one.ended_at == pytest.approx(25)


async def test_a_job_that_gives_itself_up_before_its_first_wait_ends_there(autojump_clock: MockClock) -> None:
    async def gives_up(job: Job) -> None:
        job.own_scope.cancel()
        await trio.sleep(99)

    async with running() as pool:
        job = Job(gives_up)
        pool.start(job)
        await trio.sleep(1)
        assert job.ends == [False]
        assert job.ended_at == pytest.approx(0)


async def test_a_shield_ends_with_its_job(autojump_clock: MockClock) -> None:
    async def shields(job: Job) -> None:
        job.own_scope.shield = True
        await trio.sleep(1)

    async with running() as pool:
        shielded, plain = Job(shields), Job(takes(99))
        pool.start(shielded)
        await trio.sleep(2)
        pool.start(plain)
        await wait_all_tasks_blocked()
        assert plain.task is shielded.task
        assert plain.own_scope.shield is False
    assert plain.ends == [True]


async def test_a_scope_cancelled_after_the_jobs_last_wait_spoils_no_other_job(autojump_clock: MockClock) -> None:
    async with running() as pool:
        done, next_one = Job(cancels_itself), Job(takes(1))
        pool.start(done)
        await wait_all_tasks_blocked()
        assert done.ends == [False]
        pool.start(next_one)
        await trio.sleep(2)
        assert next_one.ends == [False]
        assert next_one.ended_at == pytest.approx(1)


async def test_the_end_of_the_pool_cuts_off_what_runs_and_lets_a_shielded_job_end(autojump_clock: MockClock) -> None:
    async def shields(job: Job) -> None:
        job.own_scope.shield = True
        await trio.sleep(10)

    async with running() as pool:
        plain, shielded, parked = Job(takes(99)), Job(shields), Job(no_wait)
        for job in (plain, shielded, parked):
            pool.start(job)
        await trio.sleep(1)
    assert plain.ends == [True]
    assert plain.ended_at == pytest.approx(1)
    assert shielded.ends == [False]
    assert shielded.ended_at == pytest.approx(10)
    assert parked.ends == [False]
    assert not pool.running
    assert not pool._parked


async def test_a_shielded_job_that_is_given_up_after_the_end_of_the_pool_was_not_cut_off(
    autojump_clock: MockClock,
) -> None:
    async def shields(job: Job) -> None:
        job.own_scope.shield = True
        await trio.sleep(7)
        job.own_scope.cancel()
        await trio.sleep(99)

    async with running() as pool:
        job = Job(shields)
        pool.start(job)
        await trio.sleep(1)
    assert job.ends == [False]
    assert job.ended_at == pytest.approx(7)


@pytest.mark.parametrize("parked_before", [True, False])
async def test_a_job_that_was_given_to_a_worker_just_before_the_end_is_finished(parked_before: bool) -> None:
    began: list[Job] = []

    async def waits(job: Job) -> None:
        began.append(job)
        await trio.sleep_forever()

    async with running() as pool:
        if parked_before:
            pool.start(Job(no_wait))
            await wait_all_tasks_blocked()
        job = Job(waits)
        pool.start(job)
    assert began == [job]
    assert job.ends == [True]


async def test_an_error_that_a_job_must_not_raise_ends_the_pool_and_finishes_all_jobs() -> None:
    async def breaks(_job: Job) -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("a bug")

    pool = WorkerPool("test")
    broken, other = Job(breaks), Job(takes(99))
    with pytest.RaisesGroup(pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a bug"))):
        async with trio.open_nursery() as nursery:
            await nursery.start(pool.run)
            pool.start(broken)
            pool.start(other)
    assert broken.ends == [True]
    assert other.ends == [True]
    assert not pool.running


async def test_workers_beyond_those_that_may_idle_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "IDLE_MAX", 2)
    gate = trio.Event()

    async def waits(_job: Job) -> None:
        await gate.wait()

    async with running() as pool:
        jobs = [Job(waits) for _ in range(5)]
        for job in jobs:
            pool.start(job)
        await wait_all_tasks_blocked()
        gate.set()
        await wait_all_tasks_blocked()
        assert [job.ends for job in jobs] == [[False]] * 5
        assert pool._nursery is not None
        assert len(pool._parked) == len(pool._nursery.child_tasks) == 2


async def test_a_pool_can_run_again(autojump_clock: MockClock) -> None:
    pool = WorkerPool("test")
    for _ in range(2):
        async with trio.open_nursery() as nursery:
            await nursery.start(pool.run)
            assert pool.running
            job = Job(takes(1))
            pool.start(job)
            await trio.sleep(2)
            assert job.ends == [False]
            nursery.cancel_scope.cancel()
        assert pool._nursery is None
