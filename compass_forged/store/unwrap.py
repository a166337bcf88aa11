"""A nursery that serves a block must not change what the block raises."""

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def unwrapped() -> Generator[None, None, None]:
    """Raise a lone exception out of the block as itself, not in the group that a nursery puts around it.

    Groups of several stay groups: none is lost.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        error = _lone(group)
        if error is group:
            raise
        # The context would show the group again; the cause that the error came with stays.
        raise error from error.__cause__


def _lone(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
