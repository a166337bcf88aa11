"""What the memory store has beyond the contract."""

from collections.abc import Awaitable, Callable

import pytest
import trio.testing

from compass_forged.errors import StoreUnavailable
from compass_forged.ports import Account, ContainerSpec, SessionBinding, SessionNews
from compass_forged.store.memory import MemoryStore
from tests.support.stores import FINGERPRINT, HOST, authored, bind, issue

ACCOUNT = Account(1, "scout", 1, "ada")


async def news(store: MemoryStore) -> SessionNews:
    async with store.watch_sessions(HOST) as watch:
        return await watch.news()


EVERY_METHOD: dict[str, Callable[[MemoryStore], Awaitable[object]]] = {
    "open_container": lambda store: store.open_container(HOST, ContainerSpec("c1")),
    "close_container": lambda store: store.close_container(HOST, "c1"),
    "bind_session": lambda store: store.bind_session(HOST, SessionBinding("c1", "s-1", "scout", "ada")),
    "end_session": lambda store: store.end_session(HOST, "c1"),
    "load_host": lambda store: store.load_host(HOST),
    "record_authored_artifact": lambda store: store.record_authored_artifact(authored(issue(1), ACCOUNT)),
    "authored_artifact_by_request_id": lambda store: store.authored_artifact_by_request_id(1, "key"),
    "fill_memo": lambda store: store.fill_memo(issue(1), 1, "key", FINGERPRINT),
    "agent_account": lambda store: store.agent_account("scout"),
    "list_authored_artifacts_by_agent": lambda store: store.list_authored_artifacts_by_agent(1),
    "list_authored_artifacts": lambda store: store.list_authored_artifacts(),
    "attribution_of": lambda store: store.attribution_of([issue(1)]),
    "subscribe": lambda store: store.subscribe(ACCOUNT, issue(1), "s-1"),
    "subscription": lambda store: store.subscription(1, "00000000-0000-4000-8000-000000000000"),
    "unsubscribe": lambda store: store.unsubscribe(1, "00000000-0000-4000-8000-000000000000"),
    "ref_secret": lambda store: store.ref_secret(),
    "watch_sessions": news,
}


def test_no_method_is_left_out() -> None:
    public = {name for name in vars(MemoryStore) if not name.startswith("_")}
    assert public == {*EVERY_METHOD, "available"}


@pytest.mark.parametrize("method", EVERY_METHOD)
async def test_switched_off_every_method_fails_and_changes_nothing(method: str) -> None:
    store = MemoryStore()
    before = (await bind(store), await store.load_host(HOST))
    store.available = False
    with pytest.raises(StoreUnavailable):
        await EVERY_METHOD[method](store)
    store.available = True
    assert (await bind(store), await store.load_host(HOST)) == before
    assert await store.list_authored_artifacts() == []


@pytest.mark.parametrize("method", EVERY_METHOD)
async def test_every_method_is_a_checkpoint(method: str) -> None:
    store = MemoryStore()
    await bind(store)
    with trio.testing.assert_checkpoints():
        await EVERY_METHOD[method](store)


async def test_two_stores_have_two_secrets() -> None:
    assert await MemoryStore().ref_secret() != await MemoryStore().ref_secret()


async def test_what_ends_while_the_store_is_away_is_news_once_it_is_back() -> None:
    store = MemoryStore()
    await bind(store)
    async with store.watch_sessions(HOST) as watch:
        assert await watch.news() == SessionNews(None)
        store.available = False
        store._end(HOST, "c1")  # as another daemon would, which still reaches it
        with trio.move_on_after(0.01) as waited:
            await watch.news()
        assert waited.cancelled_caught
        store.available = True
        assert await watch.news() == SessionNews(None)
