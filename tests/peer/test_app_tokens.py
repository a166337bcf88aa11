"""Tokens of a GitHub App against an implementation of Apps that others wrote: claim, exchange, use, renewal."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from compass_forged.config import Config, ForgeConfig, TokenPlace, check_config
from compass_forged.errors import BadCredentials, ConfigError
from compass_forged.forges import learn_identities, open_registry
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.github_app import AppToken
from compass_forged.wire.schema import CreateIssue, GetIssue
from tests.peer.daemon import AUTHOR_TOKEN, LOGINS
from tests.support.apps import APP_ID, INSTALLATION_ID, key_file
from tests.support.forge_http import new_context
from tests.support.peer import Peer, PeerUnavailable, cache_dir, find_node, installed, running

pytestmark = pytest.mark.peer

SEED = Path(__file__).with_name("seed.yaml")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return key_file(tmp_path_factory.mktemp("app"))


@pytest.fixture(scope="module")
def peer_with_app(tmp_path_factory: pytest.TempPathFactory, keys: Path) -> Iterator[Peer]:
    try:
        node = find_node()
        entry = installed(node, cache_dir())
    except PeerUnavailable as error:
        pytest.skip(str(error))
    indented = "\n".join(f"        {line}" for line in keys.read_text().strip().splitlines())
    apps = f"""\
  apps:
    - app_id: {APP_ID}
      slug: compass
      name: Compass
      private_key: |
{indented}
      permissions: {{contents: read, issues: write, pull_requests: write, metadata: read}}
      events: []
      installations:
        - {{installation_id: {INSTALLATION_ID}, account: acme, repository_selection: all}}
"""
    seed = tmp_path_factory.mktemp("seed") / "seed.yaml"
    seed.write_text(SEED.read_text().replace("linear:\n", f"{apps}linear:\n"))
    with running(node, entry, seed, token=AUTHOR_TOKEN, login=LOGINS[AUTHOR_TOKEN]) as started:
        yield started


def config(peer: Peer, author: TokenPlace) -> Config:
    forge = ForgeConfig(provider="github", default=True, host="peer.test", base_url=peer.url, author=author)
    return check_config(Config(host_id="h", forge=[forge]), "test", {})


def place(keys: Path, installation_id: int = INSTALLATION_ID, app_id: int = APP_ID) -> TokenPlace:
    return TokenPlace(app_id=app_id, installation_id=installation_id, key_file=str(keys))


async def test_an_app_writes_under_its_own_name_and_renews_its_token(peer_with_app: Peer, keys: Path) -> None:
    async with open_registry(config(peer_with_app, place(keys))) as registry:
        await learn_identities(registry)
        identities = registry.default.identities
        assert identities is not None
        assert str(identities.known("author")) == "compass[bot]"
        github = registry.default.author
        assert isinstance(github, GitHubProvider)
        source = github.http.credential.source
        assert isinstance(source, AppToken)
        first = await source.token()
        made = await github.create_issue(CreateIssue(repo="acme/site", title="By an App", body="b"), new_context()[0])
        read = await github.get_issue(GetIssue(repo="acme/site", issue_number=made.number), new_context()[0])
        assert (read.title, read.author.login if read.author else "") == ("By an App", "compass[bot]")
        source.invalidate()
        assert await source.token() != first
        assert source.permissions["issues"] == "write"


@pytest.mark.parametrize("wrong", ["installation", "app"])
async def test_an_unknown_app_or_installation_is_told_as_a_credential(
    peer_with_app: Peer, keys: Path, wrong: str
) -> None:
    given = place(keys, 12345) if wrong == "installation" else place(keys, app_id=12345)
    async with open_registry(config(peer_with_app, given)) as registry:
        github = registry.default.author
        assert isinstance(github, GitHubProvider)
        with trio.fail_after(20), pytest.raises((BadCredentials, ConfigError)):
            await github.create_issue(CreateIssue(repo="acme/site", title="t"), new_context()[0])
