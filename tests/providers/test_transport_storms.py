"""The connections are whole whatever ends a call, and at whatever step of it."""

import gc
from itertools import count
from typing import Literal

import pytest
import trio

from compass_forged.providers.http import CONCURRENCY_MAX, KEEPALIVE_SECONDS, HttpTransport
from compass_forged.providers.urls import BaseUrl
from tests.support.raw_http import OK, READ, WRITE, exchange, receive_request


class Steps(trio.abc.Instrument):
    """Cancels scopes right before the steps that it is told of, counted over the task that makes it."""

    def __init__(self, at: dict[int, trio.CancelScope]) -> None:
        self.seen = 0
        self._at = at
        self._task = trio.lowlevel.current_task()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is self._task:
            self.seen += 1
            if (scope := self._at.get(self.seen)) is not None:
                scope.cancel()


class Server:
    """Counts its connections; answers in three pieces, so that a body is read in steps."""

    def __init__(self) -> None:
        self.open = 0
        self.requests = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        self.open += 1
        try:
            while await receive_request(stream):
                self.requests += 1
                for piece in (OK[:10], OK[10:-1], OK[-1:]):
                    await stream.send_all(piece)
                    await trio.sleep(0.001)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            await trio.lowlevel.checkpoint()  # the client has gone, as it does here
        finally:
            self.open -= 1
            await trio.aclose_forcefully(stream)


@pytest.mark.parametrize("again", [None, 1, 2, 3])
@pytest.mark.parametrize("state", ["fresh", "kept"])
async def test_a_call_ended_at_any_step_leaves_no_connection_behind(
    state: Literal["fresh", "kept"], again: int | None
) -> None:
    """``again``: so many steps later a scope around the first one is cancelled too."""
    server = Server()
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, server.serve, listeners)
        base = BaseUrl.parse(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        gc.disable()  # or a collection may close what was left open
        try:
            for step in count(1):
                async with HttpTransport(base) as transport:
                    if state == "kept":
                        await exchange(transport)
                    ended = await _ended_at(transport, step, again)
                    assert transport.free_slots == CONCURRENCY_MAX
                    with trio.fail_after(2):
                        while server.open > transport.idle_connections:  # noqa: ASYNC110 -- the server's own pace
                            await trio.sleep(0.001)
                        assert (await exchange(transport, WRITE)).body == b"{}"
                    assert transport.idle_connections <= 2
                if not ended:
                    break
        finally:
            gc.enable()
        nursery.cancel_scope.cancel()
    assert step > 5


async def _ended_at(transport: HttpTransport, step: int, again: int | None) -> bool:
    """Whether a call was cancelled at ``step``, which it had to reach."""
    outer, inner = trio.CancelScope(), trio.CancelScope()
    steps = Steps({step: inner} | ({step + again: outer} if again else {}))

    trio.lowlevel.add_instrument(steps)
    try:
        with outer, inner:
            await exchange(transport, WRITE)
    finally:
        trio.lowlevel.remove_instrument(steps)
    return steps.seen >= step


async def test_a_connection_from_before_the_host_slept_is_not_used_again() -> None:
    server, boot = Server(), 1000.0
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, server.serve, listeners)
        base = BaseUrl.parse(f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}")
        async with HttpTransport(base, boot_clock=lambda: boot) as transport:
            async with trio.open_nursery() as calls:
                calls.start_soon(exchange, transport, READ)
                calls.start_soon(exchange, transport, READ)
            assert (server.open, transport.idle_connections) == (2, 2)
            boot += KEEPALIVE_SECONDS + 1
            await exchange(transport, WRITE)
            assert transport.idle_connections == 1
            with trio.fail_after(2):
                while server.open > 1:  # noqa: ASYNC110 -- the server's own pace
                    await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
