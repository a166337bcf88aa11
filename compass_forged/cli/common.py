"""What the commands share: exit codes, options, and where the daemon is."""

import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import click

from compass_forged.config import Config, find_config, load_config, read_config
from compass_forged.control.client import ControlClient
from compass_forged.terminal import one_line

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 69
EXIT_INTERNAL: Final = 70

config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The configuration file. Default: $FORGED_CONFIG, else /etc/compass-forged/config.toml.",
)
run_dir_option = click.option(
    "--run-dir", type=click.Path(path_type=Path), help="Where the daemon's sockets are. Default: the configuration's."
)


class Exit(click.ClickException):
    """A failure with an exit code of its own, shown as one line."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.code = exit_code

    def show(self, file: IO[Any] | None = None) -> None:
        """One line on stderr."""
        del file
        click.echo(f"compass-forged: {self.message}", err=True)


def configuration(path: Path | None) -> Config:
    """The checked configuration, found as the options say."""
    return load_config(find_config(path))


@contextmanager
def control(config_path: Path | None, run_dir: Path | None) -> Generator[ControlClient, None, None]:
    """A client of the daemon that ``--run-dir`` or the configuration names."""
    # Read, not checked: to steer a daemon one needs none of its secrets.
    where = run_dir if run_dir is not None else Path(read_config(find_config(config_path)).run_dir)
    with ControlClient(where / "control.sock") as client:
        yield client


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Plain columns: for eyes and for ``awk`` alike."""
    cells = [heads, *[[one_line(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    for row in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    """End the command with one line on stderr."""
    raise Exit(message, code)


def needs_extra(extra: str, error: ImportError) -> NoReturn:
    """A package that an extra brings is not installed."""
    fail(f"{error.name or error} is not installed; pip install 'compass-forged[{extra}]'", EXIT_USAGE)


def debug_wanted() -> bool:
    """Whether ``--debug`` stands on the command line."""
    return "--debug" in sys.argv[1:]
