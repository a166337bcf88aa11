"""Several daemons, each a process of its own, on one Postgres."""

from collections.abc import Generator
from contextlib import ExitStack

import pytest
import trio

from compass_forged.agent import ForgeCall, ForgeCallFailed, ForgeFault, connect
from compass_forged.wire.schema import GetIssue
from tests.support.postgres import fresh_database, psql
from tests.support.world import DaemonProcess, Place, daemon, place

pytestmark = [pytest.mark.process, pytest.mark.postgres]

NOWHERE = "http://127.0.0.1:9"
LISTENERS = "pg_stat_activity WHERE application_name = 'compass-forged-listener' AND datname = current_database()"


@pytest.fixture
def dsn() -> str:
    return fresh_database()


@pytest.fixture
def places() -> Generator[list[Place], None, None]:
    with ExitStack() as stack:
        yield [stack.enter_context(place()) for _ in range(2)]


def configure(where: Place, dsn: str, host_id: str) -> Place:
    where.configure(NOWHERE, store='{ env = "TEST_DSN" }', environ={"TEST_DSN": dsn}, host_id=host_id)
    return where


def bind(where: Place, session: str, agent: str) -> None:
    with where.control() as control:
        control.open_container("c1")
        control.bind_session("c1", session, agent=agent, owner="ada")


async def is_known(where: Place) -> bool:
    """Whether a call of the container gets past its session, to a forge that does not answer."""
    async with connect(where.socket("c1")) as client:
        try:
            await client.forge(ForgeCall(call_id="1", arm=GetIssue(repo="acme/site", issue_number=1)))
        except ForgeFault as fault:
            assert fault.code == "permission_denied"  # noqa: PT017 -- the one fault that is due
            return False
        except ForgeCallFailed as failed:
            assert failed.code == "unavailable"  # noqa: PT017 -- likewise
        return True


async def is_refused_within(where: Place, seconds: float) -> None:
    with trio.fail_after(seconds):
        while await is_known(where):  # noqa: ASYNC110 -- another process's state
            await trio.sleep(0.01)


def test_a_session_that_sql_ends_is_refused_within_a_second_and_can_move(places: list[Place], dsn: str) -> None:
    one, two = configure(places[0], dsn, "host-1"), configure(places[1], dsn, "host-2")
    with daemon(one), daemon(two):
        bind(one, "s-1", "scout")
        bind(two, "s-2", "scribe")

        async def main() -> None:
            assert await is_known(one)
            assert await is_known(two)
            psql(dsn, "UPDATE agent_sessions SET ended_at = now() WHERE session_id = 's-1'")
            await is_refused_within(one, 1)
            await trio.to_thread.run_sync(bind, two, "s-1", "scout")
            assert await is_known(two)
            assert not await is_known(one)

        trio.run(main)
        rows = psql(dsn, "SELECT session_id, host_id FROM agent_sessions WHERE ended_at IS NULL").split()
        assert rows == ["s-1|host-2"]


def test_a_session_that_ended_while_nobody_listened_is_refused_after_reconnecting(
    places: list[Place], dsn: str
) -> None:
    one = configure(places[0], dsn, "host-1")
    with daemon(one):
        bind(one, "s-1", "scout")

        async def main() -> None:
            # A replica's session fires no trigger: nothing is notified, as while the connection is away.
            psql(dsn, "SET session_replication_role = replica; UPDATE agent_sessions SET ended_at = now()")
            await trio.sleep(0.3)
            assert await is_known(one), "nothing has told it"
            assert psql(dsn, f"SELECT pg_terminate_backend(pid) FROM {LISTENERS}") == "t"  # noqa: S608 -- own words
            await is_refused_within(one, 3)

        trio.run(main)
        assert [line["session"] for line in one.logged() if line["event"] == "session ended elsewhere"] == ["s-1"]


def test_two_daemons_do_not_share_a_host_id(places: list[Place], dsn: str) -> None:
    one, two = (configure(where, dsn, "host-1") for where in places)
    with daemon(one) as first:
        bind(one, "s-1", "scout")
        second = DaemonProcess(two)
        try:
            assert second.process.wait(30) == 1
        finally:
            second.close()
        assert "host_id host-1: another daemon runs under it" in two.log.read_text()
        assert trio.run(is_known, one)
        first.kill()
    with daemon(two):  # the killed one has let go
        assert trio.run(is_known, two)
