"""Builds the configured forges: for each, its roles' credential, budget gate, transport and provider."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from compass_forged.budget import Budget, BudgetSettings
from compass_forged.config import BudgetConfig, Config, ForgeConfig, TokenPlace
from compass_forged.errors import ConfigError
from compass_forged.ports import Role, TokenSource
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.credentials import Credential, EnvToken, FileToken
from compass_forged.providers.gate import Gate
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.github_dialect import GitHubDialect
from compass_forged.providers.http import HttpTransport
from compass_forged.providers.registry import Entry, Registry
from compass_forged.providers.resolver import bounded_look_ups
from compass_forged.providers.urls import BaseUrl


@asynccontextmanager
async def open_registry(config: Config) -> AsyncGenerator[Registry, None]:
    """The registry of the configuration's forges, its connections closed when the block ends.

    No forge is asked: one that is out of reach does not keep the daemon from starting. Tokens are read, so that a
    missing one shows now.

    Raises:
        ConfigError: no forge has a credential, or one's URL, CA file or token cannot be used.
    """
    if not config.forge:
        raise ConfigError(
            "forge: none has a credential; write a [[forge]] with an author into the configuration, "
            "or set GITHUB_FORGE_TOKEN"
        )
    async with AsyncExitStack() as stack:
        stack.enter_context(bounded_look_ups())
        entries = [
            Entry(
                provider=forge.provider,
                host=forge.host.casefold(),
                author=await _provider(forge, "author", forge.author, config.budget, stack),
                reviewer=await _provider(forge, "reviewer", forge.reviewer, config.budget, stack)
                if forge.reviewer
                else None,
            )
            for forge in config.forge
        ]
        default = next(forge for forge in config.forge if forge.default)
        yield Registry(entries, (default.provider, default.host))


async def _provider(
    forge: ForgeConfig, role: Role, place: TokenPlace | None, budget: BudgetConfig, stack: AsyncExitStack
) -> GitHubProvider:
    if place is None:
        raise ConfigError(f"forge {forge.host}: {role}: missing")
    source: TokenSource = FileToken(place.file) if place.file else EnvToken(place.env)
    await source.token()
    transport = await stack.enter_async_context(
        HttpTransport(BaseUrl.parse(forge.base_url), ca_file=forge.ca_file or None)
    )
    gate = Gate(Budget(_budget_settings(budget)), name=f"{forge.host}/{role}")
    return GitHubProvider(
        ForgeHttp(transport, gate, Credential(role, source), GitHubDialect()), host=forge.host.casefold()
    )


def _budget_settings(budget: BudgetConfig) -> BudgetSettings:
    return BudgetSettings(
        reserve=budget.reserve,
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
