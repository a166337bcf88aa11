"""GitHub's provider in front of the bundled forge, in process: every wait is trio's."""

from typing import Any

from compass_forged.emulator.app import Forge
from compass_forged.emulator.seed import default_seed
from compass_forged.observability import Counters
from compass_forged.providers.credentials import StaticToken
from compass_forged.providers.github import GitHubProvider
from tests.emulator.inprocess import TOKENS, ForgeTransport
from tests.support.forge_http import new_http

REPO = "acme/site"
SCOUT = "> `compass:owner agent=scout owner=ada session=s-41`"


def new_forge() -> Forge:
    return Forge(default_seed(TOKENS))


def github_as(forge: Forge, login: str = "forge-author", *, known: bool = True, **options: Any) -> GitHubProvider:
    """The provider as ``login``, which it knows itself to be."""
    source = StaticToken(TOKENS[login])
    return GitHubProvider(
        new_http(ForgeTransport(forge), source=source, **options),
        own_login=lambda: login if known else "",
        counters=Counters(),
    )
