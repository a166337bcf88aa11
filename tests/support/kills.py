"""Kills a real daemon at random instants while it creates, and counts what stands on the forge afterwards.

A round: a daemon is asked for creates, each under a key of its own; at a random instant it gets SIGKILL; another one is
started in its place; every create is asked for again under its key. The forge and the store are looked at between kill
and retry, and after the retry. What must be true is asserted on the spot, and what is allowed is counted:

* no key has more than one artifact, but where the kill fell between the send and the record. Then the forge holds one
  that the store does not know, and the retry may make a second. This is the named window: every other key is exact;
* what was answered is recorded, and answered again with the same number;
* nothing is recorded that the forge does not hold, under its agent's name;
* every path is as it was: no socket is bound by hand, no file is left over, and who was bound is bound.
"""

import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from compass_forged import owner
from compass_forged.agent import ConnectionLost, DaemonUnreachable, ForgeCall, ForgeClient, connect
from compass_forged.emulator.app import Forge, ForgeSettings
from compass_forged.emulator.limits import LimitSettings
from compass_forged.emulator.script import Rule
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import serve_forge
from compass_forged.wire.schema import CreateIssue, Issue, IssueResult
from tests.support.postgres import fresh_database, psql
from tests.support.world import AUTHOR_TOKEN, REVIEWER_TOKEN, DaemonProcess, Place

REPO: Final = "acme/site"
AGENTS: Final = {"one": ("scout", "ada"), "two": ("mole", "bob")}
"""The containers, and who is bound in each."""
CREATES: Final = 8
"""Creates of a round, half of them from each container."""
_FORGE_SECONDS: Final = 0.03
"""The forge waits up to so long before a create takes effect, and again before it is answered."""
_ROWS: Final = (
    "SELECT client_request_id, number, handle, session_id FROM forge_authored_artifacts"
    " JOIN agent_accounts ON id = agent_account_id ORDER BY number DESC LIMIT 100"
)
"""The newest rows: more than two rounds can have made."""
_NO_PACE: Final = """
[budget]
creations_per_minute = 1000000
creations_per_hour = 1000000
write_burst = 1000000
write_interval_seconds = 0
"""


@dataclass
class Tally:
    """What came of all creates of all rounds, by where the kill found them.

    Attributes:
        kills: daemons killed.
        found: creates by where they were: ``not created``, ``in the window`` (created, not recorded), ``recorded``
            (and not answered), ``answered``.
        duplicates: keys with two artifacts, all of them out of the window.
    """

    kills: int = 0
    found: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0

    def __str__(self) -> str:
        found = ", ".join(f"{count} {where}" for where, count in sorted(self.found.items()))
        creates = sum(self.found.values())
        return f"{self.kills} kills under {creates} creates: {found}; {self.duplicates} duplicates"


@dataclass(frozen=True)
class _Seen:
    """What stands under each key: numbers on the forge, oldest first, and the number that is recorded."""

    on_forge: dict[str, list[int]]
    recorded: dict[str, int]


@dataclass
class _Asked:
    """What the callers of a daemon that was killed heard: an answer, that nobody knows, or that nothing was sent."""

    answered: dict[str, Issue] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    unsent: set[str] = field(default_factory=set)


class Killing:
    """A forge, a store, and daemons that come and go; made by ``killing``."""

    def __init__(self, where: Place, forge: Forge, dsn: str, rng: random.Random) -> None:
        self.tally = Tally()
        self._where = where
        self._forge = forge
        self._dsn = dsn
        self._rng = rng
        self._spread = 0.0
        self.daemon = DaemonProcess(where)

    async def begin(self) -> None:
        """Bind the agents, and learn how long a round's creates take when nobody is killed."""
        await trio.to_thread.run_sync(self.daemon.wait_ready)
        await trio.to_thread.run_sync(self._bind)
        self._paths = self._listing()
        began = trio.current_time()
        await self._ask_all([f"warm-{number}" for number in range(CREATES)])
        self._spread = 1.2 * (trio.current_time() - began)

    async def round(self, number: int) -> None:
        """One kill, and everything that must be true then."""
        keys = [f"round-{number}-{each}" for each in range(CREATES)]
        asked = await self._ask_until_killed(keys)
        self.tally.kills += 1
        assert self._listing() == self._paths, "a kill leaves every path where it was"
        self.daemon.close()
        self.daemon = DaemonProcess(self._where)
        await trio.to_thread.run_sync(self.daemon.wait_ready)
        await self._forge_at_rest(number)

        before = await self._look(number)
        window = self._judge(keys, asked, before)
        again = await self._ask_all(keys)
        self._judge_retry(window, again, before, await self._look(number))
        assert self._listing() == self._paths

    # --- asking -----------------------------------------------------------------------------------------------------

    def _bind(self) -> None:
        with self._where.control() as control:
            for container, (agent, user) in AGENTS.items():
                control.open_container(container)
                control.bind_session(container, f"s-{agent}", agent=agent, owner=user)

    def _listing(self) -> list[str]:
        return sorted(str(path) for path in self._where.run_dir.rglob("*"))

    def _delay_creates(self) -> None:
        self._forge.script.clear()
        for _ in range(CREATES):
            before, after = (self._rng.uniform(0, _FORGE_SECONDS) for _ in range(2))
            self._forge.script.add(Rule(method="POST", path=f"/repos/{REPO}/issues", delay=before, delay_after=after))

    async def _ask_until_killed(self, keys: list[str]) -> "_Asked":
        asked = _Asked()

        async def ask(client: ForgeClient, key: str, pause: float) -> None:
            await trio.sleep(pause)
            try:
                asked.answered[key] = await _create(client, key)
            except ConnectionLost:
                asked.lost.add(key)
            except DaemonUnreachable:
                asked.unsent.add(key)

        self._delay_creates()
        async with AsyncExitStack() as stack:
            clients = await self._clients(stack)
            async with trio.open_nursery() as nursery:
                for index, key in enumerate(keys):
                    pause = self._rng.uniform(0, self._spread / 2)
                    nursery.start_soon(ask, clients[index % len(clients)], key, pause)
                await trio.sleep(self._rng.uniform(0, self._spread))
                self.daemon.process.kill()
            await trio.to_thread.run_sync(self.daemon.kill)
        return asked

    async def _ask_all(self, keys: list[str]) -> dict[str, Issue]:
        """Ask for all of a daemon that lives."""
        issues: dict[str, Issue] = {}

        async def ask(client: ForgeClient, key: str) -> None:
            issues[key] = await _create(client, key)

        self._delay_creates()
        async with AsyncExitStack() as stack:
            clients = await self._clients(stack)
            async with trio.open_nursery() as nursery:
                for index, key in enumerate(keys):
                    nursery.start_soon(ask, clients[index % len(clients)], key)
        return issues

    async def _clients(self, stack: AsyncExitStack) -> list[ForgeClient]:
        """One for each container, over the socket that has been there from the beginning."""
        return [
            await stack.enter_async_context(connect(self._where.socket(container), reconnect_seconds=0))
            for container in AGENTS
        ]

    # --- looking ----------------------------------------------------------------------------------------------------

    async def _forge_at_rest(self, number: int) -> None:
        """What the killed daemon had sent takes effect, or not, before anything is judged."""
        await trio.sleep(2 * _FORGE_SECONDS)
        before = self._on_forge(number)
        await trio.sleep(_FORGE_SECONDS)
        assert self._on_forge(number) == before

    def _on_forge(self, number: int) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for issue in self._forge.state.repo(REPO).issues.values():
            if issue.title.startswith(f"round-{number}-"):
                found.setdefault(issue.title, []).append(issue.number)
        return found

    async def _look(self, number: int) -> _Seen:
        said = await trio.to_thread.run_sync(psql, self._dsn, _ROWS)
        every = [line.split("|") for line in said.splitlines()]
        rows = [row for row in every if row[0].startswith(f"round-{number}-")]
        for key, issue_number, agent, session in rows:
            held = self._forge.state.issue(REPO, int(issue_number))
            claim = owner.parse(held.body or "")
            assert held.title == key, "nothing is recorded that the forge does not hold"
            assert claim is not None, held.body
            assert (claim.agent, claim.session) == (agent, session)
        assert len(rows) == len({row[0] for row in rows})
        return _Seen(self._on_forge(number), {row[0]: int(row[1]) for row in rows})

    # --- judging ----------------------------------------------------------------------------------------------------

    def _judge(self, keys: list[str], asked: _Asked, seen: _Seen) -> set[str]:
        """After the kill; the keys in the window."""
        window = set()
        assert sorted([*asked.answered, *asked.lost, *asked.unsent]) == sorted(keys)
        for key in keys:
            on_forge, recorded = seen.on_forge.get(key, []), seen.recorded.get(key)
            assert len(on_forge) <= 1, f"{key} was sent twice"
            assert key not in asked.unsent or not on_forge, f"{key} was said not to be sent"
            if key in asked.answered:
                assert recorded == asked.answered[key].number, f"{key} was answered and is not recorded"
                where = "answered"
            elif recorded is not None:
                where = "recorded"
            elif on_forge:
                where = "in the window"
                window.add(key)
            else:
                where = "not created"
            self.tally.found[where] += 1
        return window

    def _judge_retry(self, window: set[str], again: dict[str, Issue], before: _Seen, after: _Seen) -> None:
        """After every create was asked for again."""
        for key, issue in again.items():
            on_forge = after.on_forge[key]
            assert len(on_forge) <= 1 + (key in window), f"{key} has {len(on_forge)} artifacts"
            assert after.recorded[key] == issue.number
            assert issue.number in on_forge
            if key in before.recorded:
                assert issue.replayed
                assert issue.number == before.recorded[key]
            self.tally.duplicates += len(on_forge) - 1


async def _create(client: ForgeClient, key: str) -> Issue:
    call = ForgeCall(call_id=key, arm=CreateIssue(repo=REPO, title=key, body="words"), client_request_id=key)
    result = await client.forge(call)
    assert isinstance(result, IssueResult)
    return result.issue


@asynccontextmanager
async def killing(where: Place, seed: int) -> AsyncIterator[Killing]:
    """A forge in this process, a store on the test server, and a first daemon, ready for rounds."""
    forge = Forge(
        default_seed({"forge-author": AUTHOR_TOKEN, "forge-reviewer": REVIEWER_TOKEN}),
        settings=ForgeSettings(limits=LimitSettings(per_hour=None)),
    )
    async with serve_forge(forge) as url:
        dsn = await trio.to_thread.run_sync(fresh_database)
        where.configure(url, store='{ env = "TEST_DSN" }', environ={"TEST_DSN": dsn}, extra=_NO_PACE)
        made = Killing(where, forge, dsn, random.Random(seed))  # noqa: S311 -- instants, no secret
        try:
            await made.begin()
            yield made
        finally:
            made.daemon.close()
