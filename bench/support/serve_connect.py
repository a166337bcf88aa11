"""The Connect server of the benchmarks: Connect for Python's own ASGI application under uvicorn, a process of its own.

Argument: the socket. One unary method with protobuf messages, which its library decodes and encodes, with the deadline
that the client sends. Its handler waits once, as the daemon's provider does.
"""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from connectrpc.compat import google_protobuf_codecs  # deptry: ignore[DEP004] -- as uvicorn in serve_asgi
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType  # deptry: ignore[DEP004] -- likewise
from connectrpc.server import ConnectASGIApplication, Endpoint  # deptry: ignore[DEP004] -- likewise

from bench.support.protobufs import METHOD, SERVICE, Forge, ForgeCall, ForgeReply, Message
from bench.support.serve_asgi import serve_app


class _Service:
    """The service, as one is written against the stubs of Connect's code generator."""

    def __init__(self) -> None:
        self._forge = Forge()

    async def call(self, request: Message, _context: Any) -> Message:
        """The one method."""
        await asyncio.sleep(0)
        return self._forge.answer(request)


class _Application(ConnectASGIApplication[_Service]):
    """What Connect's code generator makes of a service definition."""

    def __init__(self, service: _Service) -> None:
        super().__init__(service=service, endpoints=self._of, codecs=google_protobuf_codecs())

    @property
    def path(self) -> str:
        """Where the service is mounted."""
        return f"/{SERVICE}"

    def _of(self, service: _Service) -> Mapping[str, Any]:
        method = MethodInfo(
            name=METHOD,
            service_name=SERVICE,
            input=ForgeCall,
            output=ForgeReply,
            idempotency_level=IdempotencyLevel.UNKNOWN,
            stream_type=StreamType.UNARY,
        )
        return {f"/{SERVICE}/{METHOD}": Endpoint.unary(method=method, function=service.call)}


if __name__ == "__main__":
    serve_app(sys.argv[1], _Application(_Service()))
