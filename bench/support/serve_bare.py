"""The least that a server of these calls can be under trio: decode, hand to a parked task, wait once, encode, send.

It has the daemon's frames, codec, sockets and handing on, and nothing else: no sessions, limits, deadlines, checks,
stamp, memory, counters or log. What the daemon takes beyond it is what the daemon does. It knows comments alone.
Argument: the socket.
"""

import os
import socket
import sys
from typing import Final

import trio
from trio.lowlevel import Abort, Task, checkpoint, current_task, reschedule, wait_task_rescheduled

from bench.support.processes import raise_descriptor_limit, settle_collector, stdin_closed
from compass_forged.stream import UnixStream
from compass_forged.wire.codec import decode_call, encode_reply
from compass_forged.wire.frames import FrameBuffer, encode_frame
from compass_forged.wire.schema import CommentOnIssue, CommentRef, ForgeCall, IssueCommentResult, ResultFrame

_BACKLOG: Final = 256
_FIRST_NUMBER: Final = 1_000_000_000


class _Server:
    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._parked: dict[Task, list[tuple[UnixStream, ForgeCall]]] = {}
        self._number = _FIRST_NUMBER

    async def serve(self, stream: UnixStream) -> None:
        """One connection."""
        buffer = FrameBuffer()
        async with stream:
            while data := await stream.receive_some():
                buffer.feed(data)
                while (payload := buffer.next_frame()) is not None:
                    self._hand_on(stream, decode_call(payload))

    def _hand_on(self, stream: UnixStream, call: ForgeCall) -> None:
        if self._parked:
            task, seat = self._parked.popitem()
            seat.append((stream, call))
            reschedule(task)
        else:
            self._nursery.start_soon(self._work, [(stream, call)])

    async def _work(self, seat: list[tuple[UnixStream, ForgeCall]]) -> None:
        task = current_task()

        def leave(_: object) -> Abort:
            del self._parked[task]
            return Abort.SUCCEEDED

        while True:
            stream, call = seat.pop()
            await checkpoint()  # the provider's one wait
            stream.send_nowait(encode_frame(encode_reply(self._reply(call))))
            self._parked[task] = seat
            await wait_task_rescheduled(leave)

    def _reply(self, call: ForgeCall) -> ResultFrame:
        assert isinstance(call.arm, CommentOnIssue)
        self._number += 1
        url = f"https://github.com/{call.arm.repo}/issues/{call.arm.issue_number}#issuecomment-{self._number}"
        reference = CommentRef(url=url, comment_id=str(self._number))
        return ResultFrame(call_id=call.call_id, result=IssueCommentResult(comment=reference))


async def _accept(path: str, server: _Server, nursery: trio.Nursery) -> None:
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        await listener.bind(path)
        listener.listen(_BACKLOG)
        print("ready", flush=True)
        while True:
            connected, _ = await listener.accept()
            nursery.start_soon(server.serve, UnixStream(socket.socket(fileno=os.dup(connected.fileno()))))
            connected.close()


async def _serve(path: str) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_accept, path, _Server(nursery), nursery)
        settle_collector()
        await stdin_closed()
        nursery.cancel_scope.cancel()


def main() -> None:
    """Serve until standard input closes."""
    raise_descriptor_limit()
    trio.run(_serve, sys.argv[1], restrict_keyboard_interrupt_to_checkpoints=True)


if __name__ == "__main__":
    main()
