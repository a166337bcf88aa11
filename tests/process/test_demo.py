"""The demo, as a user runs it: it tells the truth, and leaves nothing behind, however it ends."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.world import ROOT

pytestmark = [pytest.mark.process, pytest.mark.postgres]

SECONDS = 60.0


class Demo:
    """Demos in a temporary directory of their own."""

    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp
        self.home = tmp / f"compass-forged-demo-{os.geteuid()}"

    def start(self, *options: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "compass_forged", "demo", *options],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(self.tmp), "COLUMNS": "110"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self) -> tuple[int, str]:
        process = self.start()
        said, _ = process.communicate(timeout=SECONDS)
        return process.returncode, said

    def left_files(self) -> list[str]:
        return sorted(str(path.relative_to(self.tmp)) for path in self.tmp.rglob("*"))

    def left_processes(self) -> list[int]:
        """Processes whose command line or working directory lies in the demo's directory."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                home = str((entry / "cwd").readlink())
            except OSError:
                continue
            if str(self.tmp) in words or home.startswith(str(self.tmp)):
                found.append(int(entry.name))
        return found


@pytest.fixture
def demo() -> Generator[Demo, None, None]:
    # A short path, as sockets want it: below a long one the demo takes another place, which has tests of its own.
    with tempfile.TemporaryDirectory(prefix="forged-") as tmp:
        found = Demo(Path(tmp))
        yield found
        for pid in found.left_processes():  # only after a failure
            os.kill(pid, signal.SIGKILL)


def test_the_demo_ends_well_and_leaves_nothing_behind(demo: Demo) -> None:
    status, said = demo.run()
    assert status == 0, said
    for claim in (
        "the first line says who speaks: agent scout of ada, in session s-scout-1",
        "what scout wrote follows byte for byte",
        "one POST in all",
        "stamped as mole of bob, its real author",
        "the header is stripped",
        "the attribution is verified",
        "it is refused, and the forge hears nothing of it",
        "read back it is cut",
        "the forge counts it",
        "scout reads the verdict in its tools' own words, and the comment at its line",
        "the same header, under the application's one name",
        "mole reads it as it reads GitHub's",
        "a pull request is refused by name, and Linear hears nothing of it",
        "one row for each issue and pull request that an agent opened",
    ):
        assert f"✓ {claim}" in said
    assert re.search(r"> `compass:owner agent=scout owner=ada session=s-scout-1 ref=[a-z2-7]{16}`", said)
    assert "forge_authored_artifacts" in said
    assert demo.left_files() == []
    assert demo.left_processes() == []


def _wait_for(process: "subprocess.Popen[str]", words: str) -> str:
    assert process.stdout is not None
    said = ""
    until = time.monotonic() + SECONDS
    for line in process.stdout:
        said += line
        if words in line:
            return said
        assert time.monotonic() < until, said
    raise AssertionError(f"it ended before saying {words!r}:\n{said}")


def test_a_killed_demo_is_cleared_by_the_next_one(demo: Demo) -> None:
    process = demo.start()
    _wait_for(process, "the daemon listens")
    process.kill()
    process.communicate(timeout=SECONDS)
    assert demo.home.exists()
    assert demo.left_processes(), "its Postgres is an orphan now"

    status, said = demo.run()
    assert status == 0, said
    assert demo.left_files() == []
    assert demo.left_processes() == []


def test_what_was_written_in_a_kept_demo_that_was_killed_is_nothing_to_the_next_one(demo: Demo) -> None:
    process = demo.start("--keep")
    said = _wait_for(process, "daemon.log")
    (create,) = {line.strip() for line in said.splitlines() if "call create_issue" in line}
    done = subprocess.run(
        ["/bin/sh", "-c", create], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    process.kill()
    process.communicate(timeout=SECONDS)
    status, said = demo.run()
    assert status == 0, said
    assert demo.left_files() == []
    assert demo.left_processes() == []


def test_kept_demo_prints_commands_that_work_and_stops_on_ctrl_c(demo: Demo) -> None:
    process = demo.start("--keep")
    said = _wait_for(process, "daemon.log")
    commands = [line.strip() for line in said.splitlines() if line.startswith("  ") and "-m compass_forged" in line]
    assert len(commands) >= 5
    for command in commands:
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert done.returncode == 0, (command, done.stderr)
    again = demo.start()
    refused, _ = again.communicate(timeout=SECONDS)
    assert again.returncode == 1
    assert "another demo runs" in refused
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, rest
    assert demo.left_files() == []
    assert demo.left_processes() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("moment", ["listens on", "the daemon listens"])
def test_an_interrupted_demo_leaves_nothing_behind(demo: Demo, moment: str, number: signal.Signals) -> None:
    process = demo.start()
    _wait_for(process, moment)
    process.send_signal(number)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert demo.left_files() == []
    assert demo.left_processes() == []


def test_a_directory_of_somebody_elses_is_refused_and_not_touched(demo: Demo) -> None:
    demo.home.mkdir(mode=0o755)
    (demo.home / "precious").write_text("x")
    status, said = demo.run()
    assert status == 1
    assert "not ours alone" in said
    assert (demo.home / "precious").read_text() == "x"
