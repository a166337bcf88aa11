"""Where a process's CPU time goes, by asking again and again what runs: cheap enough not to change it.

Asked is every millisecond of CPU time, or as often as the kernel's clock ticks (some tick every 4 ms).

A call into C counts for the Python line that made it; a signal is seen when it returns.
"""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

EVERY_SECONDS: Final = 0.001


class Place(msgspec.Struct, frozen=True):
    """A function that was running, and in how many samples."""

    file: str
    function: str
    samples: int


@contextmanager
def sampled(out: Path) -> Iterator[None]:
    """Sample the block and write its places to ``out`` as JSON, the most frequent first."""
    seen: Counter[tuple[str, str]] = Counter()

    def take(_number: int, frame: FrameType | None) -> None:
        if frame is not None:
            seen[frame.f_code.co_filename, frame.f_code.co_qualname] += 1

    before = signal.signal(signal.SIGPROF, take)
    signal.setitimer(signal.ITIMER_PROF, EVERY_SECONDS, EVERY_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    places = [Place(file, function, samples) for (file, function), samples in seen.most_common()]
    out.write_bytes(msgspec.json.encode(places))
