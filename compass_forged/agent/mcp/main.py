"""``compass-forged mcp --socket PATH``: the ten tools over stdio, for one client, until it closes."""

import sys
from typing import Final

import anyio

from compass_forged.agent.client import connect
from compass_forged.agent.errors import AgentError, DaemonUnreachable
from compass_forged.agent.mcp.server import make_server
from compass_forged.agent.mcp.session import serve
from compass_forged.agent.mcp.stdio import standard_io

EXIT_FAILED: Final = 1
EXIT_UNREACHABLE: Final = 69
EXIT_INTERRUPTED: Final = 130
WAIT_SECONDS: Final = 5.0
"""How long a daemon that does not listen yet is waited for: client and daemon may be started together."""


def run_stdio(socket_path: str) -> int:
    """Serve; the process's exit code. What goes wrong is one line on standard error."""
    if sys.stdin is None or sys.stdout is None:  # closed when the process began: the numbers 0 and 1 are others' by now
        sys.stderr.write("compass-forged mcp: standard input or output is closed; start it with both open\n")
        return EXIT_FAILED
    try:
        anyio.run(_serve, socket_path, backend="trio")
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except AgentError as error:
        sys.stderr.write(f"compass-forged mcp: {error.message}\n")
        return EXIT_UNREACHABLE if isinstance(error, DaemonUnreachable) else EXIT_FAILED
    except BaseExceptionGroup as group:  # once the SDK serves, an interrupt comes out of its task groups
        if group.split(KeyboardInterrupt)[1] is not None:
            raise
        return EXIT_INTERRUPTED
    return 0


async def _serve(socket_path: str) -> None:
    async with connect(socket_path, wait_seconds=WAIT_SECONDS) as client:
        with standard_io() as peer:
            await serve(make_server(client), peer)
