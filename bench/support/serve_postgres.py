"""A Postgres of the wheel with this version's schema, for the length of its standard input.

It is durable in nothing, so that what is measured is the way to it and not the disk.
"""

import sys
from pathlib import Path

import trio

from bench.support.processes import stdin_closed
from compass_forged.observability import configure_logging
from compass_forged.store.embedded import embedded_postgres
from compass_forged.store.migrate import migrate

_SETTINGS = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


async def _serve(folder: Path) -> None:
    async with embedded_postgres(folder, settings=_SETTINGS) as params:
        await migrate(params)
        print(params.uri, flush=True)
        await stdin_closed()


def main() -> None:
    """Serve in the folder that the first argument names."""
    configure_logging("json", "warning", sys.stderr)
    trio.run(_serve, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
