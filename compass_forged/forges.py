"""Builds the configured forges: for each, its roles' credential, budget gate, transport and provider."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final

import trio

from compass_forged.budget import Budget, BudgetSettings
from compass_forged.config import BudgetConfig, Config, ForgeConfig, TokenPlace
from compass_forged.errors import ConfigError
from compass_forged.observability import Counters
from compass_forged.ports import Role, TokenSource
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.credentials import Credential, EnvToken, FileToken
from compass_forged.providers.dialect import Dialect
from compass_forged.providers.flights import Writes
from compass_forged.providers.gate import Gate
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.github_app import AppToken
from compass_forged.providers.github_dialect import GitHubDialect
from compass_forged.providers.github_identity import learn_identity
from compass_forged.providers.http import HttpTransport
from compass_forged.providers.identity import Identities, RoleIdentity
from compass_forged.providers.linear import LinearProvider
from compass_forged.providers.linear_dialect import LinearDialect
from compass_forged.providers.linear_oauth import ClientSecret, ClientToken
from compass_forged.providers.registry import Entry, Registry
from compass_forged.providers.resolver import bounded_look_ups
from compass_forged.providers.token_command import REFRESH_SECONDS, CommandToken
from compass_forged.providers.urls import BaseUrl

IDENTITY_SECONDS: Final = 3.0
"""How long a start waits for forges to name the accounts. What is not known by then is learned later."""


@asynccontextmanager
async def open_registry(config: Config, counters: Counters | None = None) -> AsyncGenerator[Registry, None]:
    """The registry of the configuration's forges, its connections closed when the block ends.

    No forge is asked. Tokens are read, so that a missing one shows now. ``counters`` are the providers' too.

    Raises:
        ConfigError: no forge has a credential, or one's URL, CA file or token cannot be used.
    """
    if not config.forge:
        raise ConfigError(
            "forge: none has a credential; write a [[forge]] with an author into the configuration (--config, "
            "$FORGED_CONFIG or /etc/compass-forged/config.toml), or set GITHUB_FORGE_TOKEN"
        )
    async with AsyncExitStack() as stack:
        stack.enter_context(bounded_look_ups())
        counted = counters or Counters()
        entries = [await _entry(forge, config.budget, counted, stack) for forge in config.forge]
        default = next(forge for forge in config.forge if forge.default)
        yield Registry(entries, (default.provider, default.host))


async def keep_identities(registry: Registry, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Keep it known which accounts the registry's credentials are; runs until it is cancelled."""
    async with trio.open_nursery() as nursery:
        for entry in registry.entries:
            if entry.identities is not None:
                nursery.start_soon(entry.identities.keep)
        task_status.started()
        await trio.sleep_forever()


async def learn_identities(registry: Registry) -> None:
    """Ask each forge whose the credentials are. One that does not say so in time does not keep a daemon from starting.

    Raises:
        ConfigError: author and reviewer of a forge are the same account.
    """
    problems: list[ConfigError] = []

    async def learn(identities: Identities) -> None:
        try:
            await identities.learn()
        except ConfigError as error:
            problems.append(error)

    with trio.move_on_after(IDENTITY_SECONDS):
        async with trio.open_nursery() as nursery:
            for entry in registry.entries:
                if entry.identities is not None:
                    nursery.start_soon(learn, entry.identities)
    if problems:
        raise problems[0]


async def _entry(forge: ForgeConfig, budget: BudgetConfig, counters: Counters, stack: AsyncExitStack) -> Entry:
    host = forge.host.casefold()
    if forge.author is None:
        raise ConfigError(f"forge {forge.host}: author: missing")
    writes = Writes()
    if forge.provider == "linear":
        return await _linear_entry(forge, forge.author, budget, writes, stack)
    author = await _http(forge, "author", forge.author, budget, writes, stack)
    reviewer = await _http(forge, "reviewer", forge.reviewer, budget, writes, stack) if forge.reviewer else None
    identities = Identities(host, _identity(author), _identity(reviewer) if reviewer else None)
    if reviewer is not None:
        reviewer.check_writes(identities.check_reviewer)  # all that is written under it is reviews

    def provider(http: ForgeHttp, role: Role) -> GitHubProvider:
        return GitHubProvider(
            http,
            host=host,
            own_login=partial(_login, identities, role),
            own_user_id=partial(_user_id, identities, role),
            not_own=partial(identities.ask_again, role),
            counters=counters,
        )

    return Entry(
        provider=forge.provider,
        host=host,
        author=provider(author, "author"),
        reviewer=provider(reviewer, "reviewer") if reviewer else None,
        identities=identities,
    )


def _login(identities: Identities, role: Role) -> str:
    known = identities.known(role)
    return known.login if known else ""


def _user_id(identities: Identities, role: Role) -> int:
    known = identities.known(role)
    return known.id if known and known.kind == "user" else 0


async def _linear_entry(
    forge: ForgeConfig, place: TokenPlace, budget: BudgetConfig, writes: Writes, stack: AsyncExitStack
) -> Entry:
    author = await _http(forge, "author", place, budget, writes, stack)
    provider = LinearProvider(author, create_as_user=forge.create_as_user, display_icon_url=forge.display_icon_url)
    # Whether it may choose the name it writes under, hangs on who it is; so that is asked until it is known.
    identities = Identities(provider.host, RoleIdentity(author.credential, provider.learn_identity))
    return Entry(provider=provider.name, host=provider.host, author=provider, identities=identities)


def _identity(http: ForgeHttp) -> RoleIdentity:
    is_app = isinstance(http.credential.source, AppToken)
    return RoleIdentity(http.credential, partial(learn_identity, http), lasting=is_app)


async def _http(
    forge: ForgeConfig,
    role: Role,
    place: TokenPlace,
    budget: BudgetConfig,
    writes: Writes,
    stack: AsyncExitStack,
) -> ForgeHttp:
    dialect: Dialect
    if forge.provider == "linear":
        dialect = LinearDialect(bearer=place.bearer or bool(place.client_id))
    else:
        dialect = GitHubDialect()
    try:
        transport = await stack.enter_async_context(_transport(forge))
        # Where a token is asked of the forge, that must not wait behind the calls that wait for it.
        asked = await stack.enter_async_context(_transport(forge)) if place.issuer else transport
        source = await _source(forge, place, role, asked, dialect)
    except ConfigError as error:
        raise ConfigError(f"{forge.provider}:{forge.host} {role}: {error}") from error
    gate = Gate(Budget(_budget_settings(budget)), name=f"{forge.host}/{role}")
    return ForgeHttp(transport, gate, Credential(role, source), dialect, writes=writes)


def _transport(forge: ForgeConfig) -> HttpTransport:
    return HttpTransport(BaseUrl.parse(forge.base_url), ca_file=forge.ca_file or None)


async def _source(
    forge: ForgeConfig, place: TokenPlace, role: Role, transport: HttpTransport, dialect: Dialect
) -> TokenSource:
    """Where a role's token comes from; what can be looked at without the forge is looked at."""
    if forge.provider == "linear" and place.client_id:
        secret = ClientSecret(file=place.client_secret_file, variable=place.client_secret_env)
        client = ClientToken(place.client_id, secret, role=role, transport=transport, dialect=dialect)
        client.check()
        return client
    if place.issuer:
        app = AppToken(
            place.issuer,
            place.installation_id or 0,
            place.key_file,
            role=role,
            transport=transport,
            dialect=dialect,
        )
        app.check()
        return app
    source: TokenSource
    if place.command:
        source = CommandToken(place.command, refresh_seconds=place.refresh_seconds or REFRESH_SECONDS)
    else:
        source = FileToken(place.file) if place.file else EnvToken(place.env)
    await source.token()
    return source


def _budget_settings(budget: BudgetConfig) -> BudgetSettings:
    return BudgetSettings(
        reserve=budget.reserve,
        points_per_minute=budget.points_per_minute,
        creations_per_minute=budget.creations_per_minute,
        creations_per_hour=budget.creations_per_hour,
        creation_burst=budget.write_burst,
        creation_interval=budget.write_interval_seconds,
    )


async def check_forges(config: Config) -> None:
    """Raise what ``open_registry`` would, and ask no forge.

    Raises:
        ConfigError: as ``open_registry``.
    """
    async with open_registry(config):
        await trio.lowlevel.checkpoint()
