"""``mcp``: the ten tools over MCP, for one client on stdio, or for all containers of a host.

Parsed with the standard library, and apart from the other commands: an MCP client starts this for each session, and an
agent's container has neither click nor anything else of the daemon.
"""

import argparse
import gc
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

EXIT_USAGE: Final = 2
_COLLECT_AFTER: Final = 20_000


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        with _unwatched():
            run = _gateway(options) if options.gateway else _stdio(options)
    except ImportError as error:
        extra = "daemon,mcp" if options.gateway else "mcp"
        missing = error.name or str(error)
        sys.stderr.write(f"compass-forged: {missing} is not installed; pip install 'compass-forged[{extra}]'\n")
        return EXIT_USAGE
    return run()


def _stdio(options: argparse.Namespace) -> Callable[[], int]:
    from compass_forged.agent.mcp.main import run_stdio  # noqa: PLC0415 -- needs the extra, which may be missing

    return partial(run_stdio, options.socket)


def _gateway(options: argparse.Namespace) -> Callable[[], int]:
    from compass_forged.mcp_gateway import run_gateway  # noqa: PLC0415 -- likewise, and the daemon's packages

    return partial(run_gateway, options.config, options.run_dir)


@contextmanager
def _unwatched() -> Generator[None, None, None]:
    """Import without the garbage collector, which finds nothing in it and takes a tenth of the time.

    Afterwards it is told less to do as well: what was imported stays, and a call makes a thousand objects and leaves
    none.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(_COLLECT_AFTER)
        gc.enable()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="compass-forged mcp",
        description="Serve the ten forge tools over MCP.",
        allow_abbrev=False,
    )
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument(
        "--socket", metavar="PATH", help="in a container: serve one client on stdio, through this forge.sock"
    )
    mode.add_argument(
        "--gateway", action="store_true", help="on the host: serve mcp.sock beside the forge.sock of every container"
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="PATH",
        help="with --gateway: the configuration file (default: $FORGED_CONFIG, else /etc/compass-forged/config.toml)",
    )
    parser.add_argument(
        "--run-dir", type=Path, metavar="PATH", help="with --gateway: where the daemon's sockets are, instead"
    )
    return parser
