"""Reads side by side, of which the whole fails with the one error that counts."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import trio

from compass_forged.errors import BadAnswer, BadCredentials, ForgeError, ForgeStatus, ForgeUnavailable, RateLimited

_RANK: Final[tuple[type[BaseException], ...]] = (
    BadCredentials,
    RateLimited,
    ForgeStatus,
    ForgeUnavailable,
    BadAnswer,
    ForgeError,
)
"""What helps a caller most, first: what an operator must mend, when to come back, a definite no, a passing failure."""


async def together(*jobs: Callable[[], Awaitable[object]]) -> None:
    """Run the jobs side by side; the first that fails ends the others.

    Raises:
        BaseException: what a job raised, as itself and in no group. Of several: a bug before all else, then Cancelled,
            then the kind of ``ForgeError`` that says most.
    """
    try:
        async with trio.open_nursery() as nursery:
            for job in jobs:
                nursery.start_soon(job)
    except BaseExceptionGroup as group:
        error = min(_leaves(group), key=_weight)
        # The context would show the group again; the cause that the error came with stays.
        raise error from error.__cause__


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


def _weight(error: BaseException) -> int:
    if isinstance(error, ForgeError):
        return next(rank for rank, kind in enumerate(_RANK) if isinstance(error, kind))
    return -1 if isinstance(error, trio.Cancelled) else -2
