import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from compass_forged.errors import ForgeUnavailable
from compass_forged.providers.http import HttpTransport, TransportFailure
from compass_forged.providers.resolver import THREADS_MAX, BoundedResolver, bounded_look_ups
from compass_forged.providers.urls import BaseUrl
from tests.support.forge_http import new_context, new_http
from tests.support.raw_http import WRITE, exchange

BASE = BaseUrl.parse("https://forge.test")


class Hanging:
    """A resolver that does not answer until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.asked = 0

    def __call__(self, *_arguments: object) -> list[Any]:
        self.asked += 1
        self.let_go.wait(20)
        raise socket.gaierror(socket.EAI_NONAME, "no such name")


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.let_go.set()


async def test_a_deadline_holds_though_the_thread_of_the_look_up_lives(hanging: Hanging) -> None:
    with bounded_look_ups(BoundedResolver(hanging)) as resolver:
        async with HttpTransport(BASE) as transport:
            with trio.move_on_after(0.05) as scope:
                await exchange(transport, WRITE)
            assert scope.cancelled_caught
            assert resolver.busy == 1
            hanging.let_go.set()
            while resolver.busy:  # noqa: ASYNC110 -- a thread that nobody waits for tells nobody
                await trio.sleep(0.005)


async def test_who_comes_while_all_threads_hang_is_refused_at_once_and_nothing_was_sent(hanging: Hanging) -> None:
    with bounded_look_ups(BoundedResolver(hanging)) as resolver:
        async with HttpTransport(BASE) as transport, trio.open_nursery() as nursery:
            for _ in range(THREADS_MAX):
                nursery.start_soon(exchange, transport)
            while hanging.asked < THREADS_MAX:  # noqa: ASYNC110 -- likewise
                await trio.sleep(0.005)
            with trio.fail_after(1), pytest.raises(TransportFailure, match="cannot connect") as failure:
                await exchange(transport, WRITE)
            assert not failure.value.sent
            assert (hanging.asked, resolver.busy) == (THREADS_MAX, THREADS_MAX)
            nursery.cancel_scope.cancel()


async def test_a_name_that_is_not_there_is_a_forge_out_of_reach_and_not_a_refused_credential() -> None:
    def missing(*_arguments: object) -> list[Any]:
        raise socket.gaierror(socket.EAI_AGAIN, "forge.test")

    with bounded_look_ups(BoundedResolver(missing)), pytest.raises(ForgeUnavailable) as failure:
        await new_http(None, base=BASE, jitter=-0.5).write(WRITE, new_context()[0])
    assert failure.value.outcome == "not_sent"
    assert "forge.test" not in str(failure.value)


async def test_names_are_found_in_both_directions_and_the_resolver_is_put_back() -> None:
    with bounded_look_ups() as resolver:
        assert (await trio.socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM))[0][4][1] == 80
        assert (await trio.socket.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST))[0] == "127.0.0.1"
        assert resolver.busy == 0
    assert trio.socket.set_custom_hostname_resolver(None) is None
