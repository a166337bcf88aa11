"""The root command, and the one place that turns errors into exit codes.

0 done, 1 failed, 2 usage or configuration, 69 the daemon is out of reach, 70 internal.
"""

import os
import sys
import traceback
from pathlib import Path

import click

from compass_forged import __version__
from compass_forged.cli import common
from compass_forged.cli.call import call
from compass_forged.cli.operate import container, session, status
from compass_forged.control.client import ControlRefused, DaemonUnreachable
from compass_forged.errors import ConfigError, ForgedError, RestartsExhausted
from compass_forged.observability import configure_logging
from compass_forged.terminal import one_line


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="compass-forged")
@click.option("--debug", is_flag=True, help="Show a traceback where the command fails.")
def cli(*, debug: bool) -> None:
    """The sole write chokepoint between fleets of coding agents and their forges."""
    del debug  # read from the command line where an error is shown, so that it works wherever parsing ends
    configure_logging("auto", "warning", sys.stderr)  # a command's output is its own; `serve` has its own settings


cli.add_command(call)
cli.add_command(container)
cli.add_command(session)
cli.add_command(status)


@cli.command()
@common.config_option
@common.run_dir_option
def serve(config_path: Path | None, run_dir: Path | None) -> None:
    """Run the daemon until SIGTERM, SIGINT or a drain."""
    try:
        from compass_forged.cli.serve import run_daemon  # noqa: PLC0415 -- the other commands do without trio
    except ImportError as error:
        common.needs_extra("daemon", error)
    run_daemon(config_path, run_dir)


@cli.command()
@click.option("--keep", is_flag=True, help="Stay up afterwards and print the commands to talk to it.")
def demo(*, keep: bool) -> None:
    """Show the whole thing on this machine, offline: a private Postgres, a forge, the daemon, two agents."""
    try:
        from compass_forged.demo.run import run_demo  # noqa: PLC0415 -- only the demo needs the forge and rich
    except ImportError as error:
        common.needs_extra("demo", error)
    run_demo(keep=keep)


@cli.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def mcp(arguments: tuple[str, ...]) -> int:
    """Serve the forge tools over MCP: --socket PATH on stdio, --gateway for all containers."""
    from compass_forged.cli.mcp import main as run_mcp  # noqa: PLC0415 -- beside its use

    return run_mcp(arguments)


@cli.group()
def db() -> None:
    """The store's schema."""


@db.command("migrate")
@common.config_option
def db_migrate(config_path: Path | None) -> None:
    """Apply what migrations are due, as the daemon does at its start."""
    try:
        from compass_forged.cli.store import migrate  # noqa: PLC0415 -- needs the daemon's packages
    except ImportError as error:
        common.needs_extra("daemon", error)
    migrate(config_path)


@db.command("status")
@common.config_option
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def db_status(config_path: Path | None, *, as_json: bool) -> None:
    """Which migrations there are, and which are applied."""
    try:
        from compass_forged.cli.store import show_status  # noqa: PLC0415 -- needs the daemon's packages
    except ImportError as error:
        common.needs_extra("daemon", error)
    show_status(config_path, as_json=as_json)


@cli.command()
@click.option("--agent", metavar="HANDLE", help="Those of this agent.")
@click.option("--repo", metavar="REPO", help="Those in this repository: owner/name, or the team's key on Linear.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="At most so many.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
@common.config_option
def artifacts(*, agent: str | None, repo: str | None, limit: int, as_json: bool, config_path: Path | None) -> None:
    """Show who wrote what, the newest first: read from the index, whether a daemon runs or not."""
    try:
        from compass_forged.cli.store import Wanted, show_artifacts  # noqa: PLC0415 -- needs the daemon's packages
    except ImportError as error:
        common.needs_extra("daemon", error)
    show_artifacts(config_path, Wanted(agent, repo, limit), as_json=as_json)


@cli.command()
@common.config_option
@click.option(
    "--repo", "repos", multiple=True, metavar="OWNER/NAME", help="Try each credential on it too (repeatable)."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def doctor(config_path: Path | None, repos: tuple[str, ...], *, as_json: bool) -> int:
    """Show whose the credentials are, when they end, what they lack. Exit code 1 if calls would fail."""
    try:
        from compass_forged.cli.doctor import diagnose  # noqa: PLC0415 -- needs the daemon's packages
    except ImportError as error:
        common.needs_extra("daemon", error)
    return diagnose(config_path, repos, as_json=as_json)


@cli.group()
def config() -> None:
    """The configuration file."""


@config.command("check")
@common.config_option
def config_check(config_path: Path | None) -> None:
    """Check all that `serve` would, tokens and certificate files included, without starting or asking anything."""
    from compass_forged.config import find_config  # noqa: PLC0415 -- beside its use

    found = common.configuration(config_path)
    try:
        import trio  # noqa: PLC0415 -- likewise

        from compass_forged.forges import check_forges  # noqa: PLC0415 -- likewise
    except ImportError as error:
        common.needs_extra("daemon", error)
    trio.run(check_forges, found)
    forges = ", ".join(f"{forge.provider} at {forge.host}" for forge in found.forge)
    click.echo(f"{find_config(config_path) or 'no file, the defaults'}: ok; forges: {forges}")


@config.command("show")
@common.config_option
def config_show(config_path: Path | None) -> None:
    """Print the configuration in force, defaults included, as JSON: where secrets are, never what they are."""
    import msgspec  # noqa: PLC0415 -- beside its use

    click.echo(msgspec.json.format(msgspec.json.encode(common.configuration(config_path)), indent=2).decode())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; errors are one line on stderr."""
    try:
        return int(cli.main(args=arguments, prog_name="compass-forged", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.code if isinstance(error, common.Exit) else error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("compass-forged: interrupted", err=True)
        return common.EXIT_FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at exit
        return common.EXIT_FAILED
    except Exception as error:  # noqa: BLE001 -- the last edge: whatever it is becomes one line and a code
        return _report(error)


def _report(error: Exception) -> int:
    if common.debug_wanted():
        traceback.print_exception(error)
    known = _first_known(error)
    if known is None:
        told = one_line(f"{type(error).__name__}: {error}", 600)
        click.echo(f"compass-forged: internal error: {told} (--debug shows where)", err=True)
        return common.EXIT_INTERNAL
    click.echo(f"compass-forged: {one_line(str(known), 600)}", err=True)
    match known:
        case ConfigError():
            return common.EXIT_USAGE
        case DaemonUnreachable():
            return common.EXIT_UNREACHABLE
        case RestartsExhausted():
            return common.EXIT_INTERNAL
        case ControlRefused() if known.code == "invalid_argument":
            return common.EXIT_USAGE
        case _:
            return common.EXIT_FAILED


def _first_known(error: BaseException) -> ForgedError | None:
    """The error that this package raised on purpose, alone or in a group; None if there is any other."""
    if isinstance(error, ForgedError):
        return error
    if isinstance(error, ExceptionGroup):
        found = [_first_known(inner) for inner in error.exceptions]
        return found[0] if all(found) else None
    return None
