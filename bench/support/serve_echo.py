"""The bare trio echo of the round-trip benchmark: length-prefixed frames in, frames of the daemon's reply size out.

It knows no codec, no sessions, no deadlines and no limits: what is left is trio and the socket. Arguments: a socket on
which each frame is answered by a send of its own, one on which the frames of one receive are answered by one joined
send, and as JSON the reply frame's size for each request frame's size.
"""

import json
import socket
import sys
from functools import partial

import trio

from bench.support.processes import raise_descriptor_limit, settle_collector, stdin_closed
from compass_forged.wire.frames import HEADER_BYTES

_RECEIVE_BYTES = 64 << 10
_BACKLOG = 256


async def _echo(stream: trio.SocketStream, *, replies: dict[int, bytes], joined: bool) -> None:
    received = bytearray()
    async with stream:
        while data := await stream.receive_some(_RECEIVE_BYTES):
            received += data
            out = []
            while len(received) >= HEADER_BYTES:
                whole = HEADER_BYTES + int.from_bytes(received[:HEADER_BYTES], "big")
                if len(received) < whole:
                    break
                del received[:whole]
                if joined:
                    out.append(replies[whole])
                else:
                    await stream.send_all(replies[whole])
            if out:
                await stream.send_all(b"".join(out))


async def _listen(path: str) -> trio.SocketListener:
    listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    await listener.bind(path)
    listener.listen(_BACKLOG)
    return trio.SocketListener(listener)


async def _serve(each_path: str, joined_path: str, replies: dict[int, bytes]) -> None:
    async with trio.open_nursery() as nursery:
        for path, joined in ((each_path, False), (joined_path, True)):
            handler = partial(_echo, replies=replies, joined=joined)
            await nursery.start(trio.serve_listeners, handler, [await _listen(path)])
        settle_collector()
        print("ready", flush=True)
        await stdin_closed()
        nursery.cancel_scope.cancel()


def _reply(frame_bytes: int) -> bytes:
    return (frame_bytes - HEADER_BYTES).to_bytes(HEADER_BYTES, "big") + bytes(frame_bytes - HEADER_BYTES)


def main() -> None:
    """Serve until standard input closes."""
    raise_descriptor_limit()
    sizes = json.loads(sys.argv[3])
    replies = {int(request): _reply(reply) for request, reply in sizes.items()}
    trio.run(_serve, sys.argv[1], sys.argv[2], replies)


if __name__ == "__main__":
    main()
