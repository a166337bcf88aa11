"""Linear for tests: the provider over the bundled forge without sockets, or over a script; and answers in its shape."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx

from compass_forged.budget import Budget, BudgetSettings
from compass_forged.emulator.linear_app import LinearForge, LinearSettings
from compass_forged.emulator.linear_seed import default_linear_seed
from compass_forged.emulator.state import Clock, loop_clock
from compass_forged.observability import Counters
from compass_forged.ports import CallContext, Caller, ContainerSpec, SessionBinding, TokenSource
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.credentials import Credential, StaticToken
from compass_forged.providers.fake import FakeProvider
from compass_forged.providers.gate import Gate
from compass_forged.providers.http import HttpTransport
from compass_forged.providers.linear import LinearProvider
from compass_forged.providers.linear_dialect import LinearDialect
from compass_forged.providers.registry import Entry, Registry
from compass_forged.providers.urls import BaseUrl
from compass_forged.service import ForgeService
from compass_forged.wire.schema import Arm, ForgeCall, ForgeSelector, ResultArm
from tests.emulator.inprocess import ForgeTransport
from tests.support.forge_http import Handler, ScriptedForge
from tests.support.service import HOST, SECRET, Guard, WatchedStore

BASE = BaseUrl.parse("https://api.linear.app")
TOKEN = "lin_oauth_canary-token-of-the-app-0001"
API_KEY = "lin_api_canary-key-of-a-person-0001"
START = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
HEADER = "> `compass:owner agent=scout owner=ada session=s-1`"
STAMPED = f"{HEADER}\n\nThe words."
TEAM_ID = "11111111-1111-4111-8111-111111111111"
ISSUE_ID = "22222222-2222-4222-8222-222222222222"


def new_forge(*, settings: LinearSettings | None = None, clock: Clock | None = None) -> LinearForge:
    """The Linear half with its usual seed, an API key of Mona's besides, and a clock that goes with trio's."""
    seed = default_linear_seed(TOKEN)
    seed["tokens"].append({"token": API_KEY, "user": "Mona & Co"})
    return LinearForge(seed, settings=settings, clock=clock or loop_clock(START))


def new_http(
    transport: httpx.AsyncBaseTransport,
    *,
    token: str = TOKEN,
    source: TokenSource | None = None,
    settings: BudgetSettings | None = None,
    bearer: bool = False,
    wall_clock: float = START.timestamp(),
) -> ForgeHttp:
    """The caller over a transport; its retries pause for the shortest time."""
    return ForgeHttp(
        HttpTransport(BASE, transport=transport),
        Gate(Budget(settings or BudgetSettings(creation_burst=500, creations_per_minute=500)), name="linear"),
        Credential("author", source or StaticToken(token)),
        LinearDialect(bearer=bearer, wall_clock=lambda: wall_clock),
        jitter=lambda: -0.49,
    )


def on_forge(forge: LinearForge, *, name: str = "Compass", icon: str = "", **options: Any) -> LinearProvider:
    """The provider over the bundled forge."""
    return LinearProvider(new_http(ForgeTransport(forge), **options), create_as_user=name, display_icon_url=icon)


def scripted(*script: httpx.Response | Exception | Handler, **options: Any) -> tuple[LinearProvider, ScriptedForge]:
    """The provider over a script."""
    forge = ScriptedForge(list(script))
    return LinearProvider(new_http(forge, **options), create_as_user="Compass"), forge


@asynccontextmanager
async def known(provider: LinearProvider) -> AsyncIterator[LinearProvider]:
    """The provider once it has learned who it is."""
    await provider.learn_identity()
    yield provider


class LinearDesk:
    """A service over a GitHub forge that is never asked, and a Linear one; calls as the bound agent ``scout``.

    Attributes:
        forge: the bundled one, where it is what stands behind.
    """

    def __init__(self, linear: LinearProvider, forge: LinearForge | None = None) -> None:
        self.linear = linear
        self.store = WatchedStore([])
        self.github = FakeProvider()
        self.caller = Caller(None, "", "")
        self._forge = forge
        self.restart()

    @property
    def forge(self) -> LinearForge:
        assert self._forge is not None
        return self._forge

    def restart(self) -> None:
        """A service that remembers nothing but what the store holds."""
        registry = Registry([Entry("github", "github.com", self.github), Entry("linear", "linear.app", self.linear)])
        self.service = ForgeService(self.store, registry, ref_secret=SECRET, counters=Counters())

    async def bind(self, scope: tuple[str, ...] | None = None) -> None:
        """Bind the agent."""
        await self.store.open_container(HOST, ContainerSpec("c1"))
        bound = await self.store.bind_session(HOST, SessionBinding("c1", "s-1", "scout", "ada", scope))
        self.caller = bound.caller

    async def ask(self, arm: Arm, key: str = "") -> ResultArm:
        """One call."""
        if self.caller.account is None:
            await self.bind()
        call = ForgeCall(call_id="1", arm=arm, forge=ForgeSelector("linear"), client_request_id=key)
        return await self.service.execute(self.caller, call, CallContext("c1", Guard()))

    def asked(self, operation: str) -> int:
        """How often the bundled forge was asked for an operation."""
        return self.forge.log.count("POST", f"/graphql/{operation}")


def graphql(data: object = None, *errors: Mapping[str, object], status: int = 200, **headers: str) -> httpx.Response:
    """An answer in GraphQL's shape."""
    body: dict[str, object] = {"data": data} | ({"errors": list(errors)} if errors else {})
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=told, stream=httpx.ByteStream(json.dumps(body).encode()))


def graph_error(message: str, **extensions: object) -> dict[str, object]:
    """One of ``errors``."""
    return {"message": message, "extensions": extensions}


def team_answer(key: str = "ENG", team_id: str = TEAM_ID, **more: object) -> httpx.Response:
    """A team that was looked up by its key."""
    return graphql({"teams": {"nodes": [{"id": team_id, "key": key, "retiredAt": None, **more}]}})


def issue_json(identifier: str = "ENG-7", issue_id: str = ISSUE_ID, **more: Any) -> dict[str, Any]:
    """An issue as our documents ask for it."""
    return {
        "id": issue_id,
        "identifier": identifier,
        "previousIdentifiers": [],
        "url": f"https://linear.app/acme/issue/{identifier}/a-title",
        "title": "A title",
        "description": STAMPED,
        "createdAt": "2026-05-04T03:02:01.000Z",
        "updatedAt": "2026-05-04T03:02:01.000Z",
        "archivedAt": None,
        "trashed": None,
        "state": {"type": "backlog"},
        "team": {"id": TEAM_ID, "key": identifier.partition("-")[0]},
        "creator": {"id": "u-1", "name": "Mona", "displayName": "mona", "app": False},
        "botActor": None,
        "externalUserCreator": None,
        "labels": {"nodes": []},
        **more,
    }


def issues_answer(*found: object, **page_info: object) -> httpx.Response:
    """A page of issues."""
    info = {"hasNextPage": False, "endCursor": None, **page_info}
    return graphql({"issues": {"nodes": list(found), "pageInfo": info}})


def sent(request: httpx.Request) -> dict[str, Any]:
    """The variables that a request carried."""
    variables: dict[str, Any] = json.loads(request.content)["variables"]
    return variables
