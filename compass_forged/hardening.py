"""What the daemon's process denies itself, so that its memory, and the tokens in it, are nobody else's to read."""

import ctypes
import os
import resource
from typing import Final

from compass_forged.observability import get_logger

_PR_SET_DUMPABLE: Final = 4

_log = get_logger(__name__)


def keep_memory_private() -> None:
    """No core is dumped, now or after any raise of the limit; no process of the same user may trace or read this one.

    What this process starts takes over the limit, and not the other: a program that is executed anew is dumpable.
    A host that allows neither is told of, and served all the same.
    """
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (OSError, ValueError) as error:
        _log.warning("core dumps cannot be forbidden; set LimitCORE=0 for the unit", error=str(error))
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        reason = os.strerror(ctypes.get_errno())
        _log.warning("this process cannot be hidden from others of its user", error=reason)
