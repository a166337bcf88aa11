"""Load on Postgres by the store: as many callers as the cell says, over the store's usual four connections."""

import itertools
import sys
import time
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import trio

from bench.support.store_cells import CREATED_AT, FINGERPRINT, KEPT_NUMBER, PLACE, StoreCell, StoreSample, Stretch
from compass_forged.observability import configure_logging
from compass_forged.ports import Account, AuthoredArtifact, ContainerSpec, Coordinate, SessionBinding
from compass_forged.store.postgres import PostgresStore, open_postgres_store


async def _measure(store: PostgresStore, account: Account, cell: StoreCell) -> StoreSample:
    numbers = itertools.count(cell.first_number)
    stretch = Stretch(cell)

    async def call() -> None:
        ask = _asking(store, account, cell, numbers)
        began = time.perf_counter_ns()
        await ask()
        while stretch.count(began):
            began = time.perf_counter_ns()
            await ask()

    async with trio.open_nursery() as nursery:
        for _ in range(cell.callers):
            nursery.start_soon(call)
    return stretch.sample()


def _asking(
    store: PostgresStore, account: Account, cell: StoreCell, numbers: Iterator[int]
) -> Callable[[], Awaitable[object]]:
    if cell.operation == "lookup":
        return lambda: store.authored_artifact_by_request_id(account.agent_id, f"key-{KEPT_NUMBER}")
    return lambda: store.record_authored_artifact(_artifact(account, next(numbers)))


def _artifact(account: Account, number: int) -> AuthoredArtifact:
    return AuthoredArtifact(
        coordinate=Coordinate("github", "github.com", "acme/app", "issue", number),
        repo="acme/app",
        account=account,
        session_id=PLACE[2],
        client_request_id=f"key-{number}",
        fingerprint=FINGERPRINT,
        url=f"https://github.com/acme/app/issues/{number}",
        created_at=CREATED_AT,
    )


async def _run(dsn: str) -> None:
    host, *binding = PLACE
    async with (
        open_postgres_store(dsn, apply_migrations=False) as joined,
        open_postgres_store(dsn, apply_migrations=False, join_at_most=1) as unjoined,
    ):
        await joined.open_container(host, ContainerSpec(binding[0]))
        container, session, agent, owner = binding
        account = (await joined.bind_session(host, SessionBinding(container, session, agent, owner))).account
        await joined.record_authored_artifact(_artifact(account, KEPT_NUMBER))
        print("ready", flush=True)
        for line in sys.stdin.buffer:  # blocks the loop, which has nothing else to do
            cell = msgspec.json.decode(line, type=StoreCell)
            sample = await _measure(joined if cell.joined else unjoined, account, cell)
            print(msgspec.json.encode(sample).decode(), flush=True)


if __name__ == "__main__":
    configure_logging("json", "warning", sys.stderr)
    trio.run(_run, sys.argv[1])
