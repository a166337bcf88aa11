"""A Python process that has imported trio and does nothing: what the daemon's weight is measured against."""

import sys

import trio

from bench.support.processes import stdin_closed


async def _wait() -> None:
    print("ready", flush=True)
    await stdin_closed()


if __name__ == "__main__":
    sys.exit(trio.run(_wait))
