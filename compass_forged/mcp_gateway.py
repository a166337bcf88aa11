"""The MCP gateway: one process per host that serves MCP on ``mcp.sock`` beside the ``forge.sock`` of every container.

It is no part of the daemon and none of the daemon's rights pass through it: it holds no credential, and reaches the
daemon only as a container does, through that container's own ``forge.sock``. Who speaks is the directory, here as
there: what comes in on a container's ``mcp.sock`` goes out on the ``forge.sock`` beside it and on no other.

A container's socket comes and goes with its directory, which the daemon makes and removes. That is looked at several
times a second. A restart of the daemon leaves the directories, and with them the sessions of MCP clients, alone.
"""

import logging
import os
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import trio

from compass_forged.agent.client import connect
from compass_forged.agent.errors import AgentError
from compass_forged.agent.mcp.server import make_server
from compass_forged.agent.mcp.session import serve
from compass_forged.config import find_config, read_config
from compass_forged.control.client import ControlClient
from compass_forged.errors import ConfigError, ForgedError, StartError
from compass_forged.listener import CONTAINER_NAME, Peer, RunDir, UnixListener, bind_mcp, serve_listener
from compass_forged.observability import configure_logging, get_logger
from compass_forged.stream import UnixStream
from compass_forged.terminal import one_line

_log = get_logger(__name__)

LOOK_SECONDS: Final = 0.25
"""How often the containers' directories are looked at."""
CONNECTIONS_PER_CONTAINER: Final = 4
DAEMON_SECONDS: Final = 10.0
"""How long a new connection waits for a daemon that is restarting."""
CONTROL_SECONDS: Final = 5.0
_ALL: Final = ""
"""Stands for no container, where all cannot be looked at."""
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


def run_gateway(config_path: Path | None, run_dir: Path | None) -> int:
    """Run until SIGTERM or SIGINT; the process's exit code. What goes wrong at the start is one line."""
    try:
        config = read_config(find_config(config_path))
        configure_logging(config.log.format, config.log.level, sys.stderr)
        logging.getLogger("mcp").setLevel(logging.ERROR)  # its warnings are about what containers send
        trio.run(_until_told, (run_dir or Path(config.run_dir)).absolute())
    except ForgedError as error:
        sys.stderr.write(f"compass-forged mcp: {one_line(str(error), 600)}\n")
        return EXIT_USAGE if isinstance(error, ConfigError) else EXIT_FAILED
    return 0


async def _until_told(path: Path) -> None:
    with (
        RunDir.locked(path, what="MCP gateway") as run_dir,
        trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as told,
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(McpGateway(run_dir).run)
            await anext(told)
            nursery.cancel_scope.cancel()


@dataclass(slots=True)
class _Served:
    """A container whose ``mcp.sock`` is served."""

    listener: UnixListener
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)


class McpGateway:
    """Keeps one listener for each open container."""

    def __init__(self, run_dir: RunDir) -> None:
        """The gateway's own lock of the run directory must be held."""
        self._run_dir = run_dir
        self._served: dict[str, _Served] = {}
        self._refused: dict[str, str] = {}

    async def run(self) -> None:
        """Look for containers until cancelled; the listeners and their connections end with it."""
        async with trio.open_nursery() as nursery:
            while True:
                self._look(nursery)
                await trio.sleep(LOOK_SECONDS)

    def _look(self, nursery: trio.Nursery) -> None:
        """Begin to serve what has been opened, and end what has been closed."""
        for served in self._served.values():
            if not served.listener.current:
                served.scope.cancel()
        found = self._found()
        for name in found - self._served.keys() - {_ALL}:
            try:
                served = self._served[name] = _Served(bind_mcp(self._run_dir, name))
            except StartError as error:
                self._say_once(name, str(error))
                continue
            self._refused.pop(name, None)
            nursery.start_soon(self._serve, name, served, name=f"mcp {name}")
        for name in self._refused.keys() - found:
            del self._refused[name]

    def _found(self) -> set[str]:
        """The containers that are open while the daemon runs; those that are served if one cannot look."""
        try:
            with os.scandir(self._run_dir.path / "containers") as entries:
                names = {entry.name for entry in entries if CONTAINER_NAME.fullmatch(entry.name)}
        except OSError as error:  # no descriptor is left, say: what is served goes on
            self._say_once(_ALL, f"cannot look at the containers: {error.strerror}")
            return {_ALL, *self._served}
        return {name for name in names if self._run_dir.container_socket(name).is_socket()}

    def _say_once(self, name: str, why: str) -> None:
        if self._refused.get(name) != why:
            self._refused[name] = why
            _log.error("container not served over MCP", container=name, error=why)

    async def _serve(self, name: str, served: _Served) -> None:
        async def handle(stream: UnixStream, peer: Peer) -> None:
            async with stream:
                await self._connection(name, stream, peer)

        _log.info("serving MCP", container=name)
        try:
            with served.scope:
                await serve_listener(served.listener, handle, connections=CONNECTIONS_PER_CONTAINER)
        except Exception:  # noqa: BLE001 -- one container's listener costs the others nothing; it is bound anew
            _log.exception("MCP listener crashed", container=name)
        finally:
            served.listener.close()
            del self._served[name]
            _log.info("MCP ended", container=name)

    async def _connection(self, name: str, stream: UnixStream, peer: Peer) -> None:
        """Serve one client over one connection to the container's own socket; raises nothing but Cancelled."""
        try:
            async with connect(self._run_dir.container_socket(name), wait_seconds=DAEMON_SECONDS) as client:
                if why := await self._refusal(name, peer):
                    _log.warning("MCP connection refused", container=name, uid=peer.uid, pid=peer.pid, error=why)
                    return
                _log.info("MCP connected", container=name, uid=peer.uid, gid=peer.gid, pid=peer.pid)
                await serve(make_server(client), _Bytes(stream))
        except (AgentError, ForgedError) as error:
            _log.warning("MCP connection ended", container=name, error=one_line(str(error), 200))
        except Exception:  # noqa: BLE001 -- the edge of one client's connection: it costs no other connection
            _log.exception("MCP connection crashed", container=name)

    async def _refusal(self, name: str, peer: Peer) -> str | None:
        """Why this peer may not speak for the container; None if it may.

        The daemon sees this process at its socket, so the uids that a container names are checked here.

        Raises:
            ForgedError: the daemon could not be asked.
        """
        allowed = await trio.to_thread.run_sync(self._allowed_uids, name)
        if not allowed:
            return None
        if os.geteuid() not in allowed:
            return f"the container names uids; name uid {os.geteuid()} too, as which the MCP gateway runs"
        return None if peer.uid in allowed else "uid not allowed"

    def _allowed_uids(self, name: str) -> list[int]:
        with ControlClient(self._run_dir.control_socket, timeout_seconds=CONTROL_SECONDS) as control:
            for container in control.list_containers():
                if container.name == name:
                    return container.allowed_uids
        raise StartError(f"container {name}: the daemon does not know it any more")


class _Bytes:
    """A connection as the MCP session wants it."""

    def __init__(self, stream: UnixStream) -> None:
        self._stream = stream

    async def receive(self) -> bytes:
        """Some bytes; b"" once the client has gone."""
        try:
            return await self._stream.receive_some()
        except trio.BrokenResourceError:
            return b""

    def send_nowait(self, data: bytes) -> int:
        """Send what goes out right now.

        Raises:
            BrokenResourceError: anyio's: the client has gone.
        """
        try:
            return self._stream.send_nowait(data)
        except trio.BrokenResourceError as error:
            raise anyio.BrokenResourceError from error

    async def send(self, data: bytes) -> None:
        """Send everything.

        Raises:
            BrokenResourceError: anyio's: the client has gone.
        """
        try:
            await self._stream.send_all(data)
        except trio.BrokenResourceError as error:
            raise anyio.BrokenResourceError from error
