"""The gRPC server of the round-trip benchmark: unary, bytes in and bytes out, a process of its own.

Arguments: the socket, and as JSON the reply's payload size for each request's payload size. Its handler waits once,
as the daemon's provider does.
"""

import asyncio
import gc
import json
import sys
from typing import Any

import grpc.aio  # deptry: ignore[DEP004] -- benchmarks run in the development environment

from bench.support.processes import raise_descriptor_limit

SERVICE = "bench.RoundTrip"


async def _serve(path: str, replies: dict[int, bytes]) -> None:
    async def call(request: bytes, _context: Any) -> bytes:
        await asyncio.sleep(0)
        return replies[len(request)]

    server = grpc.aio.server()
    handlers = {"Call": grpc.unary_unary_rpc_method_handler(call)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    parent_gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), parent_gone.set)
    gc.freeze()
    print("ready", flush=True)
    await parent_gone.wait()
    await server.stop(grace=None)


def main() -> None:
    """Serve until standard input closes."""
    raise_descriptor_limit()
    sizes = json.loads(sys.argv[2])
    asyncio.run(_serve(sys.argv[1], {int(request): bytes(reply) for request, reply in sizes.items()}))


if __name__ == "__main__":
    main()
