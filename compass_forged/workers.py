"""Parked tasks that run calls, so that a call costs no new task, nursery or cancel scope.

Measured on trio 0.35 (microseconds): a task 13 to 26, a nursery with one task 62, ``fail_after`` 11, waking a parked
task about 10. So a worker keeps one task and one cancel scope for its whole life, which has no deadline of its own
(see ``deadlines.py``). A scope that was cancelled is spent: the worker takes a fresh one and goes on.

The rules:

* A job is finished exactly once, by ``finish``, whatever ends it: its own end, its scope, or the pool's. A worker that
  is woken or started runs at least up to its first wait, so none is lost on the way.
* A job's ``run`` raises nothing but Cancelled.
* A parked task that is cancelled leaves the parked list in its abort function; rescheduling it afterwards would end
  ``trio.run``.
"""

from typing import Final, Protocol

import trio
from trio.lowlevel import Abort, Task, current_task, reschedule, wait_task_rescheduled

IDLE_MAX: Final = 128
"""How many workers may stay parked; a worker beyond that ends with its job."""


class Job(Protocol):
    """What a worker runs.

    Attributes:
        scope: set to the worker's scope before ``run``, which may shield it; whoever gives the job up cancels it. The
            scope is not the job's any more once ``finish`` was called.
    """

    scope: trio.CancelScope | None

    async def run(self) -> None:
        """Do the work; raises nothing but Cancelled."""
        ...

    def finish(self, *, cut_off: bool) -> None:
        """Called once, when the job is over; must not raise. ``cut_off``: the pool ended under it."""
        ...


class WorkerPool:
    """Runs jobs in parked tasks of one nursery, which ``run`` owns."""

    def __init__(self, name: str) -> None:
        """``name`` is what the workers' tasks are called."""
        self._name = name
        self._nursery: trio.Nursery | None = None
        self._parked: dict[Task, list[Job]] = {}

    @property
    def running(self) -> bool:
        """Whether jobs are taken."""
        return self._nursery is not None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the workers until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def start(self, job: Job) -> None:
        """Have a worker run ``job``; not a checkpoint. The pool must be running."""
        if self._parked:
            task, seat = self._parked.popitem()  # the last one in: its memory is still warm
            seat.append(job)
            reschedule(task)
            return
        assert self._nursery is not None  # noqa: S101 -- the caller has asked ``running``
        self._nursery.start_soon(self._work, job, name=self._name)

    async def _work(self, first: Job) -> None:
        task = current_task()
        seat = [first]  # what it is to do; an outcome would say the same, and costs a microsecond
        del first

        def leave(_: object) -> Abort:
            del self._parked[task]
            return Abort.SUCCEEDED

        while True:
            with trio.CancelScope() as scope:  # a new one once the last is spent
                while True:
                    if not seat:
                        if len(self._parked) >= IDLE_MAX:
                            return
                        self._parked[task] = seat
                        await wait_task_rescheduled(leave)
                    await _do(seat.pop(), scope)  # the worker itself keeps nothing of what its last job held


async def _do(job: Job, scope: trio.CancelScope) -> None:
    """Run a job under ``scope`` and finish it; the scope is left as it was, or cancelled."""
    job.scope = scope
    try:
        await job.run()
    except BaseException:
        job.finish(cut_off=not scope.cancel_called)  # what did not come from the job's own scope came from the pool
        raise
    if scope.shield:
        scope.shield = False
    job.finish(cut_off=False)
