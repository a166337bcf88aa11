"""Supervision: a long-lived task that crashes is logged, counted and started again; too often, and the daemon ends.

The backoff doubles from ``first_seconds`` to ``last_seconds``, half of it jitter, and starts over once the task has run
for ``window_seconds`` without a crash. More than ``restarts`` crashes within the window raise ``RestartsExhausted``,
which the composition root turns into exit status 70: limping is worse than being restarted from outside.
"""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio

from compass_forged.errors import RestartsExhausted
from compass_forged.observability import Counters, get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """How often and how soon a crashed task is started again. Seconds on trio's clock."""

    restarts: int = 5
    window_seconds: float = 60.0
    first_seconds: float = 0.1
    last_seconds: float = 5.0


_USUAL: Final = RestartPolicy()


async def supervise(
    name: str,
    body: Callable[[], Awaitable[None]],
    *,
    counters: Counters,
    policy: RestartPolicy | None = None,
    up: trio.Event | None = None,
    rng: random.Random | None = None,
) -> None:
    """Run ``body`` and start it again whenever it raises; return when it returns.

    Where ``up`` is given, what ``body`` raises before it is set is raised: a task that never ran is not restarted.

    Raises:
        RestartsExhausted: it crashed more often than the policy allows.
    """
    policy = policy or _USUAL
    uniform = rng.uniform if rng else random.uniform  # a generator of its own is 2.5 KB for each container
    crashes: list[float] = []
    while True:
        try:
            await body()
        except Exception as error:
            if up is not None and not up.is_set():
                raise
            if _is_exhaustion(error):
                raise  # a supervised task below has given up: starting it afresh would hide that
            now = trio.current_time()
            crashes = [at for at in crashes if at > now - policy.window_seconds]
            crashes.append(now)
            counters.add("supervisor_restarts", task=name)
            _log.exception("task crashed", task=name, crashes_in_window=len(crashes))
            if len(crashes) > policy.restarts:
                raise RestartsExhausted(
                    f"{name} crashed {len(crashes)} times within {policy.window_seconds:g} s"
                ) from error
        else:
            return
        ceiling = min(policy.last_seconds, policy.first_seconds * 2 ** (len(crashes) - 1))
        await trio.sleep(uniform(ceiling / 2, ceiling))


def _is_exhaustion(error: Exception) -> bool:
    """Whether ``error`` is ``RestartsExhausted``, or a nursery's group that holds one."""
    if isinstance(error, ExceptionGroup):
        return error.subgroup(RestartsExhausted) is not None
    return isinstance(error, RestartsExhausted)
