"""The gRPC server of the round-trip benchmark: one unary method of grpc.aio, a process of its own.

Arguments: the socket, and as JSON the reply's payload size for each request's payload size. The method with messages
decodes the call, whose deadline gRPC keeps, and encodes the reply; the one with bytes takes and gives bytes. Both
handlers wait once, as the daemon's provider does.
"""

import asyncio
import json
import sys
from typing import Any, Final

import grpc.aio  # deptry: ignore[DEP004] -- benchmarks run in the development environment

from bench.support.processes import raise_descriptor_limit, settle_collector
from bench.support.protobufs import METHOD, SERVICE, Forge, ForgeCall, ForgeReply, Message

BYTES_METHOD: Final = "Bytes"


def _handlers(replies: dict[int, bytes]) -> dict[str, Any]:
    forge = Forge()

    async def call(request: Message, _context: Any) -> Message:
        await asyncio.sleep(0)
        return forge.answer(request)

    async def bytes_call(request: bytes, _context: Any) -> bytes:
        await asyncio.sleep(0)
        return replies[len(request)]

    typed = grpc.unary_unary_rpc_method_handler(
        call, request_deserializer=ForgeCall.FromString, response_serializer=ForgeReply.SerializeToString
    )
    return {METHOD: typed, BYTES_METHOD: grpc.unary_unary_rpc_method_handler(bytes_call)}


async def _serve(path: str, replies: dict[int, bytes]) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, _handlers(replies)),))
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    parent_gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), parent_gone.set)
    settle_collector()
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
