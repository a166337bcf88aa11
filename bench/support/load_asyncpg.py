"""Load on Postgres by plain asyncpg under asyncio: a connection for each caller, the statements that the store sends.

A process of its own: where trio_asyncio is imported, plain asyncio is slower.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import asyncpg
import msgspec

from bench.support.store_cells import CREATED_AT, FINGERPRINT, KEPT_NUMBER, PLACE, StoreCell, StoreSample, Stretch
from compass_forged.store.rules import unix_ms
from compass_forged.store.statements import statements


async def _measure(dsn: str, account: tuple[int, int], cell: StoreCell) -> StoreSample:
    connections = [await asyncpg.connect(dsn) for _ in range(cell.callers)]
    numbers = itertools.count(cell.first_number)
    stretch = Stretch(cell)

    async def call(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        ask = _asking(connection, account, cell, numbers)
        began = time.perf_counter_ns()
        await ask()
        while stretch.count(began):
            began = time.perf_counter_ns()
            await ask()

    await asyncio.gather(*map(call, connections))
    for connection in connections:
        await connection.close()
    return stretch.sample()


def _asking(
    connection: "asyncpg.Connection[asyncpg.Record]", account: tuple[int, int], cell: StoreCell, numbers: Iterator[int]
) -> Callable[[], Awaitable[object]]:
    agent, owner = account
    if cell.operation == "lookup":
        sql = statements()["artifact_by_request_id"].sql
        return lambda: connection.fetch(sql, agent, f"key-{KEPT_NUMBER}")
    sql = statements()["record_authored_artifact"].sql
    created_ms = unix_ms(CREATED_AT)

    def record() -> Awaitable[object]:
        number = next(numbers)
        url = f"https://github.com/acme/app/issues/{number}"
        return connection.fetch(
            sql,
            *(1, "github.com", "acme/app", "issue", number, "acme/app", agent, owner, PLACE[2]),
            *(f"key-{number}", FINGERPRINT, url, CREATED_AT, created_ms),
        )

    return record


async def _run(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    row = await connection.fetchrow("SELECT id, owner_user_id FROM agent_accounts WHERE handle = $1", PLACE[3])
    await connection.close()
    assert row is not None
    account = (row["id"], row["owner_user_id"])
    print("ready", flush=True)
    for line in sys.stdin.buffer:  # blocks the loop, which has nothing else to do
        sample = await _measure(dsn, account, msgspec.json.decode(line, type=StoreCell))
        print(msgspec.json.encode(sample).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1]))
