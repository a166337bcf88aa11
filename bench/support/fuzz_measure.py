"""What a fuzzer measures: times in buckets that do not grow, memory from the kernel, progress for people."""

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

_SHARE_BITS: Final = 5
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


class Histogram:
    """Durations in nanoseconds, in buckets of about 3 % each; the largest is kept exactly, with who it was."""

    def __init__(self) -> None:
        self._counts = [0] * (64 << _SHARE_BITS)
        self.count = 0
        self.largest = 0
        self.largest_number = -1

    def add(self, nanoseconds: int, number: int) -> None:
        """Count a duration of input ``number``."""
        self.count += 1
        if nanoseconds > self.largest:
            self.largest, self.largest_number = nanoseconds, number
        shift = max(0, nanoseconds.bit_length() - 1 - _SHARE_BITS)
        self._counts[(shift << _SHARE_BITS) + (nanoseconds >> shift)] += 1

    def quantile(self, share: float) -> int:
        """The upper edge of the bucket below which ``share`` of the durations lie; 0 without any."""
        left = share * self.count
        for index, count in enumerate(self._counts):
            left -= count
            if count and left <= 0:
                shift = max(0, (index >> _SHARE_BITS) - 1)
                return min(((index - (shift << _SHARE_BITS) + 1) << shift) - 1, self.largest)
        return self.largest

    def microseconds(self) -> dict[str, float]:
        """The usual quantiles for a report."""
        shares = {"p50": 0.5, "p99": 0.99, "p99_9": 0.999}
        found = {name: round(self.quantile(share) / 1000, 1) for name, share in shares.items()}
        return {**found, "max": round(self.largest / 1000, 1)}


def rss_bytes(pid: int | str = "self") -> int:
    """Resident memory of a process.

    Raises:
        OSError: there is no such process.
    """
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES


Progress: TypeAlias = Callable[[int, str], None]
"""Told now and then how much of a run is done, and the words to show beside the bar."""


def _silent(_done: int, _words: str) -> None:
    """Shows nothing: nobody watches."""


@contextmanager
def progress(title: str, total: int | None, *, shown: bool) -> Generator[Progress, None, None]:
    """A bar on standard error where that is a terminal; ``total`` None where the run's length is not known."""
    if not (shown and sys.stderr.isatty()):
        yield _silent
        return
    from rich.console import Console  # noqa: PLC0415 -- a run in CI shows nothing and needs it not
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn  # noqa: PLC0415 -- likewise
    from rich.progress import Progress as Bar  # noqa: PLC0415 -- likewise

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} {task.fields[words]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, words="")

        def show(done: int, words: str) -> None:
            bar.update(task, completed=done, words=words)

        yield show
