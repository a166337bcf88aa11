"""socat, with which a container without Python reaches ``mcp.sock``: the host's, else Debian's package in the cache.

Nothing is installed on the host: apt fetches the packages from where the host has its own, and they are unpacked into
a folder of the tests. What keeps that from working (no Debian, no lists, no network) is ``PeerUnavailable``, and a
reason to skip.
"""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.peer import PeerUnavailable, cache_dir, kept

_PLANNED: Final = re.compile(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", re.MULTILINE)
_URL: Final = re.compile(r"\S+://\S+")
_SECONDS: Final = 60.0
_QUIET: Final = ("-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=20")


def find_socat(cache: Path | None = None) -> tuple[str, ...]:
    """The first words of socat's command line.

    Args:
        cache: where Debian's packages are kept; the user's cache by default.

    Raises:
        PeerUnavailable: there is none and none could be fetched; says why.
    """
    if found := shutil.which("socat"):
        return (found,)
    apt, dpkg = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if apt is None or dpkg is None:
        raise PeerUnavailable("there is no socat, and no apt-get and dpkg-deb to fetch it: install socat")
    packages = _needed(apt)
    digest = hashlib.sha256("\n".join(packages).encode()).hexdigest()
    root = kept(cache or cache_dir(), f"socat-{digest[:8]}", lambda folder: _fetch(apt, dpkg, folder, packages))
    libraries = ":".join(sorted({str(path.parent) for path in root.rglob("*.so.*")}))
    command = ("env", f"LD_LIBRARY_PATH={libraries}", str(root / "usr" / "bin" / "socat"))
    _run((*command, "-V"), root)
    return command


def _needed(apt: str) -> list[str]:
    """socat and what it needs that the host has not, each as ``name=version``, as apt would install them."""
    told = _run((apt, "--simulate", "--no-install-recommends", "-o", "Debug::NoLocking=true", "install", "socat"))
    return sorted(f"{name}={version}" for name, version in _PLANNED.findall(told))


def _fetch(apt: str, dpkg: str, folder: Path, packages: Sequence[str]) -> None:
    _run((apt, *_QUIET, "download", *packages), folder)
    for package in folder.glob("*.deb"):
        _run((dpkg, "--extract", str(package), str(folder)))
        package.unlink()


def _run(command: Sequence[str], folder: Path | None = None) -> str:
    """What a command prints.

    Raises:
        PeerUnavailable: it failed.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise PeerUnavailable(f"socat cannot be had: {command[0]} did not end within {_SECONDS:g} s") from error
    if done.returncode != 0:
        *_, last = ["nothing", *done.stderr.strip().splitlines()]
        raise PeerUnavailable(f"socat cannot be had: {command[0]} says {_URL.sub('…', last)[:200]}; install it")
    return done.stdout
