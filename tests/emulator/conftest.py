"""A forge with known tokens, and clients of it, without sockets."""

from collections.abc import Callable

import httpx
import pytest

from compass_forged.emulator.app import Forge
from compass_forged.emulator.seed import default_seed
from tests.emulator.inprocess import TOKENS, Hand, client


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def forge(clock: Hand) -> Forge:
    return Forge(default_seed(TOKENS), clock=clock)


@pytest.fixture
def author(forge: Forge) -> httpx.AsyncClient:
    return client(forge, TOKENS["forge-author"])


@pytest.fixture
def outsider(forge: Forge) -> httpx.AsyncClient:
    return client(forge, TOKENS["outsider"])


@pytest.fixture
def nobody(forge: Forge) -> httpx.AsyncClient:
    return client(forge)


@pytest.fixture
def as_login(forge: Forge) -> Callable[[str], httpx.AsyncClient]:
    def make(login: str) -> httpx.AsyncClient:
        forge.state.grant_token(f"{login}-extra", login)
        return client(forge, f"{login}-extra")

    return make
