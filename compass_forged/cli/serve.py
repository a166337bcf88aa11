"""``serve``: the daemon in this process."""

import sys
from pathlib import Path

import msgspec
import trio

from compass_forged.cli.common import configuration
from compass_forged.config import Config
from compass_forged.daemon import serve, settle_collector
from compass_forged.hardening import keep_memory_private
from compass_forged.observability import configure_logging


def run_daemon(config_path: Path | None, run_dir: Path | None) -> None:
    """Run until drained; what goes wrong is raised."""
    config = configuration(config_path)
    if run_dir is not None:
        config = msgspec.structs.replace(config, run_dir=str(run_dir.absolute()))
    configure_logging(config.log.format, config.log.level, sys.stderr)
    keep_memory_private()
    trio.run(_serve, config, restrict_keyboard_interrupt_to_checkpoints=True)


async def _serve(config: Config) -> None:
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, config)
        settle_collector()
