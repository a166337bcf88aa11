"""Teams of Linear by their keys: asked for once, whoever waits, and remembered for a while.

A key can be renamed, an id cannot. So the id is what every request names, and a key that nobody has any more is looked
up by the id that it stood for: the team is then told by its new name, if the call may touch that.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import trio

from compass_forged.errors import ForgeStatus
from compass_forged.ports import CallContext
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.linear_answers import TEAM_KEY, nodes, query, reply
from compass_forged.providers.linear_documents import TEAM_BY_ID, TEAM_BY_KEY, Document

FRESH_SECONDS: Final = 300.0
"""How long a key stands for a team without another look; so long, a rename is not seen."""
TEAMS_MAX: Final = 1024


class _Team(msgspec.Struct):
    id: str
    key: str
    retiredAt: str | None = None  # noqa: N815 -- Linear's word


_team_decoder = msgspec.json.Decoder(_Team)


@dataclass(frozen=True, slots=True)
class Team:
    """A team: Linear's id, its key as it is now, and whether it takes no new issues any more."""

    id: str
    key: str
    retired: bool = False


@dataclass(slots=True)
class _Flight:
    """A look-up under way; ``ended`` with neither a team nor a miss means that it failed or was given up."""

    done: trio.Event = field(default_factory=trio.Event)
    team: Team | None = None
    missing: bool = False


@dataclass(frozen=True, slots=True)
class _Known:
    """A team as it was seen, until when that holds, and under which of the credential's tokens."""

    team: Team
    until: float
    changes: int


class Teams:
    """The teams that one credential sees."""

    def __init__(self, http: ForgeHttp) -> None:
        """``http`` is the caller."""
        self._http = http
        self._known: OrderedDict[str, _Known] = OrderedDict()
        # By key and credential: what one token sees, another need not.
        self._flights: dict[tuple[str, int], _Flight] = {}

    async def find(self, key: str, context: CallContext) -> Team:
        """The team of a key in upper case.

        Of those who ask at once, one asks the forge; if it fails or is cancelled, the next one does.

        Raises:
            ForgeStatus: there is none, or none that the call may touch.
            ForgeError: the forge could not be asked.
        """
        await self._http.credential.token()  # another one than before may be another workspace's
        team = self._fresh(key) or await self._asked(key, context)
        if team.key.upper() != key and context.may_touch is not None and not context.may_touch(team.key):
            raise ForgeStatus(404, "renamed to a team outside the session's scope")
        return team

    def forget(self, key: str) -> None:
        """The forge says that the team is gone, or has another key now: ask anew next time."""
        if (found := self._known.get(key)) is not None:
            self._known[key] = replace(found, until=-math.inf)  # its id may still lead to it

    def _fresh(self, key: str) -> Team | None:
        found = self._known.get(key)
        if found is None or found.changes != self._http.credential.changes or trio.current_time() >= found.until:
            return None
        return found.team

    async def _asked(self, key: str, context: CallContext) -> Team:
        asked = (key, self._http.credential.changes)
        while (flight := self._flights.get(asked)) is not None:
            await flight.done.wait()  # bounded by the call's own deadline
            if flight.team is not None:
                return flight.team
            if flight.missing:
                raise _missing()
        flight = self._flights[asked] = _Flight()
        try:
            flight.team = await self._resolve(key, context)
            flight.missing = flight.team is None
        finally:
            del self._flights[asked]
            flight.done.set()
        if flight.team is None:
            raise _missing()
        return flight.team

    async def _resolve(self, key: str, context: CallContext) -> Team | None:
        changes = self._http.credential.changes
        team = _first(TEAM_BY_KEY, await self._http.read(query(TEAM_BY_KEY, key=key), context))
        if team is not None and team.key.upper() != key:
            team = None  # not what was asked for
        before = self._known.get(key)
        if team is None and before is not None:
            team = _first(TEAM_BY_ID, await self._http.read(query(TEAM_BY_ID, id=before.team.id), context))
            if team is not None and team.id != before.team.id:
                team = None
        self._known.pop(key, None)
        if team is not None:
            self._known[key] = _Known(team, trio.current_time() + FRESH_SECONDS, changes)
            if len(self._known) > TEAMS_MAX:
                self._known.popitem(last=False)
        return team


def _missing() -> ForgeStatus:
    return ForgeStatus(404, "no such team, or not for this credential")


def _first(document: Document, answer: ForgeAnswer) -> Team | None:
    def read(raw: _Team) -> Team:
        return Team(raw.id, raw.key, retired=bool(raw.retiredAt))

    found = nodes(_team_decoder, read, reply(document, answer)).good
    return next((team for team in found if team.id and TEAM_KEY.fullmatch(team.key)), None)
