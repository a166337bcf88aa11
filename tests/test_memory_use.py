"""What the kernel says of memory, read from files like its own."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compass_forged.memory_use import MemorySource, MemoryUse, hand_back, open_memory_source

PAGE = os.sysconf("SC_PAGESIZE")


class Kernel:
    """The files of a process that has ten pages resident."""

    def __init__(self, root: Path) -> None:
        self.statm = root / "statm"
        self.statm.write_text("500 10 5 1 0 100 0\n")
        self.of_self = root / "cgroup"
        self.of_self.write_text("4:memory:/old/one\n0::/system.slice/forged.service\n")
        self.cgroups = root / "cgroups"
        self.group = self.cgroups / "system.slice/forged.service"
        self.group.mkdir(parents=True)

    def say(self, **files: str | int) -> None:
        """Write files of the cgroup: ``current=1`` is ``memory.current``."""
        for name, value in files.items():
            (self.group / f"memory.{name}").write_text(f"{value}\n")

    @contextmanager
    def opened(self, limit: int = 0) -> Iterator[MemorySource]:
        with open_memory_source(limit, statm=self.statm, cgroup_of_self=self.of_self, cgroups=self.cgroups) as source:
            yield source


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_without_any_limit_the_resident_size_stands_alone(kernel: Kernel) -> None:
    with kernel.opened() as source:
        assert source() == MemoryUse(10 * PAGE, 0)
        assert source().part == 0
        assert not source.may_have_limit


def test_a_limit_of_ones_own_is_held_against_the_resident_size(kernel: Kernel) -> None:
    with kernel.opened(20 * PAGE) as source:
        assert source.may_have_limit
        assert source().part == 0.5
        kernel.statm.write_text("500 18 5 1 0 100 0\n")
        assert source() == MemoryUse(18 * PAGE, 20 * PAGE)


@pytest.mark.parametrize(
    ("most", "high", "limit"), [("max", "max", 0), (1000, "max", 1000), ("max", 900, 900), (1000, 900, 900)]
)
def test_of_a_cgroups_two_limits_the_nearer_counts(kernel: Kernel, most: str, high: str, limit: int) -> None:
    kernel.say(current=500, max=most, high=high)
    with kernel.opened() as source:
        assert source.may_have_limit
        assert source() == (MemoryUse(500, limit) if limit else MemoryUse(10 * PAGE, 0))


def test_a_limit_that_is_set_while_the_daemon_runs_counts_from_then_on(kernel: Kernel) -> None:
    kernel.say(current=500, max="max", high="max")
    with kernel.opened() as source:
        assert source().limit == 0
        kernel.say(max=600)
        assert source() == MemoryUse(500, 600)


def test_a_cache_that_can_be_dropped_is_not_use(kernel: Kernel) -> None:
    kernel.say(
        current=990,
        max=1000,
        high="max",
        stat="anon 300\nfile 600\ninactive_file 400\nactive_file 150\nslab_reclaimable 9",
    )
    with kernel.opened() as source:
        assert source() == MemoryUse(440, 1000)
        kernel.say(current=740)  # it cannot reach a stage, whatever of it is cache
        assert source() == MemoryUse(740, 1000)
    (kernel.group / "memory.stat").unlink()
    kernel.say(current=990)
    with kernel.opened() as source:
        assert source() == MemoryUse(990, 1000)


def test_of_a_limit_of_ones_own_and_the_cgroups_the_one_counts_that_is_nearer(kernel: Kernel) -> None:
    kernel.say(current=300, max=1000, high="max")
    for pages, expected in ((100, MemoryUse(300, 1000)), (20, MemoryUse(10 * PAGE, 20 * PAGE))):
        with kernel.opened(pages * PAGE) as source:
            assert source() == expected


@pytest.mark.parametrize("case", ["version 1 alone", "not controlled", "no limits", "unreadable"])
def test_where_there_is_no_cgroup_to_ask_there_is_no_limit(kernel: Kernel, case: str) -> None:
    if case == "version 1 alone":
        kernel.say(current=300, max=1000)
        kernel.of_self.write_text("4:memory:/old/one\n")
    elif case == "no limits":
        kernel.say(current=300)
    elif case == "unreadable":
        kernel.of_self.unlink()
    with kernel.opened() as source:
        assert source() == MemoryUse(10 * PAGE, 0)
        assert not source.may_have_limit


def test_in_a_container_of_its_own_the_root_is_the_group(kernel: Kernel) -> None:
    kernel.of_self.write_text("0::/\n")
    kernel.cgroups.joinpath("memory.current").write_text("7\n")
    kernel.cgroups.joinpath("memory.max").write_text("10\n")
    with kernel.opened() as source:
        assert source() == MemoryUse(7, 10)


def test_a_group_that_is_gone_is_an_error_for_whoever_asks(kernel: Kernel) -> None:
    kernel.say(current=300, max=1000)
    with kernel.opened() as source:
        pass
    with pytest.raises(OSError, match="Bad file descriptor"):
        source()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_every_descriptor_is_closed_again(kernel: Kernel) -> None:
    kernel.say(current=300, max=1000, high="max", stat="")
    before = descriptors()
    with kernel.opened():
        assert descriptors() == before + 5
    assert descriptors() == before


def test_the_real_files_of_this_process_can_be_read() -> None:
    with open_memory_source(0) as source:
        assert source().used > 1 << 20


def test_heap_that_is_free_goes_back_to_the_system() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE

    kept = []
    for number in range(2000):  # between them stays something, so that the heap's end does not move
        kept.append(bytes(40_000))
        kept.append(bytes(1000 + number))
    full = resident()
    del kept[::2]
    hand_back()
    assert resident() < full - (50 << 20)


def test_a_system_that_cannot_take_heap_back_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: object())  # as with musl
    hand_back()
