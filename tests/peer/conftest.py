"""The peer for the whole run, and a daemon before it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.peer.daemon import AUTHOR_TOKEN, LOGINS, PeerDaemon
from tests.support.peer import Peer, PeerUnavailable, cache_dir, find_node, installed, running

SEED = Path(__file__).with_name("seed.yaml")


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    try:
        node = find_node()
        entry = installed(node, cache_dir())
    except PeerUnavailable as error:
        pytest.skip(str(error))
    with running(node, entry, SEED, token=AUTHOR_TOKEN, login=LOGINS[AUTHOR_TOKEN]) as started:
        yield started


@pytest.fixture(scope="session")
def linear_peer() -> Iterator[Peer]:
    try:
        node = find_node()
        entry = installed(node, cache_dir())
    except PeerUnavailable as error:
        pytest.skip(str(error))
    with running(node, entry, SEED, token="lin_test_app", login="forge-app", service="linear") as started:
        yield started


@pytest.fixture
def place() -> Iterator[Path]:
    """A short path: a socket's must fit into 107 bytes, and pytest's own folders can be longer."""
    with tempfile.TemporaryDirectory(prefix="cf-peer-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def daemon(peer: Peer) -> Iterator[PeerDaemon]:
    """One daemon for the tests that leave it as it is; with two agents' containers and one without a session."""
    with tempfile.TemporaryDirectory(prefix="cf-peer-") as folder:
        process = PeerDaemon(Path(folder), peer.url, store="memory")
        try:
            process.start()
            with process.control() as control:
                for name in ("scout", "mole", "stray"):
                    control.open_container(name)
                control.bind_session("scout", "s-scout-1", agent="scout", owner="ada")
                control.bind_session("mole", "s-mole-1", agent="mole", owner="bob")
            yield process
            assert process.stop() == 0, process.log()
        finally:
            process.kill()
