"""``mcp``: the ten tools over MCP, for one client on stdio, or for all containers of a host.

Parsed with the standard library, and apart from the other commands: an MCP client starts this for each session, and an
agent's container has neither click nor anything else of the daemon.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

EXIT_USAGE: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        if options.gateway:
            return _gateway(options.config, options.run_dir)
        from compass_forged.agent.mcp.main import run_stdio  # noqa: PLC0415 -- needs the extra, which may be missing
    except ImportError as error:
        extra = "daemon,mcp" if options.gateway else "mcp"
        missing = error.name or str(error)
        sys.stderr.write(f"compass-forged: {missing} is not installed; pip install 'compass-forged[{extra}]'\n")
        return EXIT_USAGE
    return run_stdio(options.socket)


def _gateway(config_path: Path | None, run_dir: Path | None) -> int:
    from compass_forged.mcp_gateway import run_gateway  # noqa: PLC0415 -- needs the daemon's packages and the SDK

    return run_gateway(config_path, run_dir)


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
