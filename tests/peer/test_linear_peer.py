"""Linear's documents before the independent peer, as far as it knows what they ask for: whose it is, and teams.

It has neither ids of the client's nor filters by number, team or label, nor ``botActor``; no document is bent for it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from compass_forged.budget import Budget
from compass_forged.errors import ForgeStatus
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.credentials import Credential, StaticToken
from compass_forged.providers.gate import Gate
from compass_forged.providers.http import HttpTransport
from compass_forged.providers.linear import LinearProvider
from compass_forged.providers.linear_dialect import LinearDialect
from compass_forged.providers.linear_teams import Teams
from compass_forged.providers.urls import BaseUrl
from tests.support.forge_http import new_context
from tests.support.peer import Peer

pytestmark = pytest.mark.peer

TOKEN = "lin_test_app"


@asynccontextmanager
async def linear_at(url: str) -> AsyncIterator[ForgeHttp]:
    credential = Credential("author", StaticToken(TOKEN))
    async with HttpTransport(BaseUrl.parse(url)) as transport:
        yield ForgeHttp(transport, Gate(Budget()), credential, LinearDialect(bearer=True))


async def test_the_peer_says_whose_the_token_is(linear_peer: Peer) -> None:
    async with linear_at(linear_peer.url) as http:
        identity = await LinearProvider(http, create_as_user="Compass").learn_identity()
    assert (identity.login, identity.kind) == ("forge-app", "user")


async def test_the_peer_resolves_a_teams_key(linear_peer: Peer) -> None:
    async with linear_at(linear_peer.url) as http:
        teams = Teams(http)
        team = await teams.find("SEA", new_context()[0])
        with pytest.raises(ForgeStatus, match="404"):
            await teams.find("NONE", new_context()[0])
    assert (team.key, bool(team.id), team.retired) == ("SEA", True, False)
