"""How much memory this process uses, and how much it may: from its own resident size, and from its cgroup.

Descriptors are opened once and read again and again, so that a look works where no descriptor is left.

Facts from the kernel's documentation (cgroup-v2.rst, proc.rst): ``memory.max`` and ``memory.high`` hold a number of
bytes or the word ``max``; ``memory.current`` counts the page cache too, of which ``active_file`` and ``inactive_file``
of ``memory.stat`` can be dropped without being written anywhere. They are not counted as used here: an embedded store
fills the cache up to any limit, and nothing is wrong then. The root of a hierarchy has none of these files, nor has a
cgroup whose memory is not controlled.
"""

import ctypes
import os
import resource
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STATM: Final = Path("/proc/self/statm")
_CGROUP_OF_SELF: Final = Path("/proc/self/cgroup")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PAGE_BYTES: Final = resource.getpagesize()
_READ_BYTES: Final = 16 << 10
_EASY: Final = 0.75
"""Below this part of the limit the cache is not subtracted: ``memory.stat`` costs the kernel a walk over all CPUs."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes used, and the limit that they stand against; 0 where there is none."""

    used: int
    limit: int

    @property
    def part(self) -> float:
        """The part of the limit that is used; 0 without one."""
        return self.used / self.limit if self.limit else 0.0


class MemorySource:
    """What ``open_memory_source`` gives; a call is one look."""

    def __init__(self, limit: int, statm: int, cgroup: "dict[str, int] | None") -> None:
        """``statm`` and the values of ``cgroup`` are open descriptors."""
        self._limit = limit
        self._statm = statm
        self._cgroup = cgroup

    @property
    def may_have_limit(self) -> bool:
        """Whether there is a limit, or one may be set while the daemon runs."""
        return bool(self._limit) or self._cgroup is not None

    def __call__(self) -> MemoryUse:
        """Use and limit, of the two that there may be the one that is nearer.

        Raises:
            OSError: the kernel did not say.
        """
        resident = int(_read(self._statm).split()[1]) * _PAGE_BYTES
        own = MemoryUse(resident, self._limit)
        group = self._cgroup_use()
        return own if group is None or own.part > group.part else group

    def _cgroup_use(self) -> MemoryUse | None:
        files = self._cgroup
        if files is None:
            return None
        limits = [
            int(word) for word in (_read(files[name]).strip() for name in _LIMITS if name in files) if word != "max"
        ]
        limit = min(limits, default=0)
        if not limit:
            return None
        used = int(_read(files["memory.current"]))
        if used >= limit * _EASY and "memory.stat" in files:
            used = max(0, used - _droppable(_read(files["memory.stat"])))
        return MemoryUse(used, limit)


_LIMITS: Final = ("memory.max", "memory.high")
_FILES: Final = ("memory.current", *_LIMITS, "memory.stat")


@contextmanager
def open_memory_source(
    limit: int, *, statm: Path = _STATM, cgroup_of_self: Path = _CGROUP_OF_SELF, cgroups: Path = _CGROUPS
) -> Generator[MemorySource, None, None]:
    """Open what is read at each look.

    Args:
        limit: bytes that the process may have resident; 0 leaves the cgroup's limit, where there is one.
        statm: the process's own size; another file in tests, like those below.
        cgroup_of_self: names the process's cgroup.
        cgroups: where the cgroups are.

    Raises:
        OSError: the process's own size cannot be read.
    """
    with ExitStack() as stack:

        def opened(path: Path) -> int:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            return descriptor

        yield MemorySource(limit, opened(statm), _open_cgroup(opened, cgroup_of_self, cgroups))


def _open_cgroup(opened: Callable[[Path], int], cgroup_of_self: Path, cgroups: Path) -> dict[str, int] | None:
    """The files of this process's cgroup (version 2); None where its memory is not controlled."""
    try:
        lines = cgroup_of_self.read_text().splitlines()
    except OSError:
        return None
    place = next((line[3:] for line in lines if line.startswith("0::")), None)
    if place is None:
        return None
    files: dict[str, int] = {}
    for name in _FILES:
        try:
            files[name] = opened(cgroups / place.lstrip("/") / name)
        except OSError:
            continue
    return files if "memory.current" in files and any(name in files for name in _LIMITS) else None


def _read(descriptor: int) -> str:
    return os.pread(descriptor, _READ_BYTES, 0).decode("ascii")


def _droppable(stat: str) -> int:
    rows = (line.split() for line in stat.splitlines())
    return sum(int(row[1]) for row in rows if row[0] in {"active_file", "inactive_file"})


def hand_back() -> None:
    """Give free heap back to the system; without it a resident size stays near its highest (``malloc_trim(3)``, glibc).

    Takes milliseconds.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
