"""A GitHub Enterprise Server of its default settings: another base, an older version list, no limits in its answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from compass_forged.config import Config, ForgeConfig, TokenPlace, check_config
from compass_forged.emulator.app import Forge, ForgeSettings
from compass_forged.emulator.limits import LimitSettings
from compass_forged.emulator.script import Rule
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import serve_forge
from compass_forged.errors import RateLimited
from compass_forged.forges import learn_identities, open_registry
from compass_forged.ports import CallContext
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.registry import Registry
from compass_forged.wire.schema import CommentOnIssue, CreateIssue, GetIssue, ListIssues
from tests.emulator.inprocess import TOKENS
from tests.support.apps import APP_ID, INSTALLATION_ID, app_seed, key_file
from tests.support.forge_http import RecordingGuard, new_context
from tests.test_forges import token_file

RELEASE = "3.17.4"


def new_forge() -> Forge:
    settings = ForgeSettings(limits=LimitSettings(per_hour=None), enterprise=RELEASE, prefix="/api/v3")
    return Forge({**default_seed(TOKENS), "apps": [app_seed()]}, settings=settings)


@asynccontextmanager
async def enterprise(forge: Forge, author: TokenPlace, reviewer: TokenPlace | None = None) -> AsyncIterator[Registry]:
    async with serve_forge(forge) as url:
        given = ForgeConfig(
            provider="github",
            default=True,
            host="ghe.example",
            base_url=f"{url}/api/v3",
            author=author,
            reviewer=reviewer,
        )
        async with open_registry(check_config(Config(host_id="h", forge=[given]), "test", {})) as registry:
            await learn_identities(registry)
            yield registry


def author_of(registry: Registry) -> GitHubProvider:
    assert isinstance(registry.default.author, GitHubProvider)
    return registry.default.author


async def test_everything_goes_below_its_base_under_the_version_that_it_knows(tmp_path: Path) -> None:
    forge = new_forge()
    roles = (token_file(tmp_path, "forge-author"), token_file(tmp_path, "forge-reviewer"))
    async with enterprise(forge, *roles) as registry:
        await registry.default.check_reviewer()
        github = author_of(registry)
        made = await github.create_issue(CreateIssue(repo="acme/site", title="t", body="b"), new_context()[0])
        await github.comment_on_issue(
            CommentOnIssue(repo="acme/site", issue_number=made.number, body="c"), new_context()[0]
        )
        read = await github.get_issue(GetIssue(repo="acme/site", issue_number=made.number), new_context()[0])
        listed = await github.list_issues(ListIssues(repo="acme/site", state="all", limit=2), new_context()[0])
    assert (read.title, [comment.body for comment in read.comments], len(listed.items)) == ("t", ["c"], 2)
    assert made.forge.host == "ghe.example"
    for request in forge.log.find():
        assert request.path.startswith("/api/v3/")
        assert request.headers["x-github-api-version"] == "2022-11-28"


async def test_a_server_without_limits_has_none_but_our_own(tmp_path: Path) -> None:
    async with enterprise(new_forge(), token_file(tmp_path, "forge-author")) as registry:
        github = author_of(registry)
        for _ in range(30):
            await github.get_issue(GetIssue(repo="acme/site", issue_number=1), new_context()[0])
        budget = github.http.gate.statistics().budget
    assert [(one.resource, one.remaining, one.limit) for one in budget.resources] == [("core", None, None)]
    assert budget.points_last_minute > 30


async def test_a_throttle_of_a_server_without_limits_is_kept(tmp_path: Path) -> None:
    forge = new_forge()
    forge.script.add(Rule(path="*/issues/1", status=429, body="", headers={"retry-after": "30"}))
    async with enterprise(forge, token_file(tmp_path, "forge-author")) as registry:
        with pytest.raises(RateLimited):
            await author_of(registry).get_issue(GetIssue(repo="acme/site", issue_number=1), new_context()[0])
        assert 29 < author_of(registry).http.gate.statistics().budget.closed_for <= 30


@pytest.mark.parametrize("write", [False, True])
async def test_a_renamed_repository_is_followed_below_the_base(tmp_path: Path, write: bool) -> None:
    forge = new_forge()
    forge.state.rename_repo("acme/site", "shop")
    async with enterprise(forge, token_file(tmp_path, "forge-author")) as registry:
        context = CallContext(container="box", guard=RecordingGuard(), may_touch=lambda _: True)
        github = author_of(registry)
        if write:
            made = await github.create_issue(CreateIssue(repo="acme/site", title="t"), context)
        else:
            made = await github.get_issue(GetIssue(repo="acme/site", issue_number=1), context)
    assert made.repo == "acme/shop"


async def test_an_app_of_its_own_works_there(tmp_path: Path) -> None:
    place = TokenPlace(app_id=APP_ID, installation_id=INSTALLATION_ID, key_file=str(key_file(tmp_path)))
    async with enterprise(new_forge(), place) as registry:
        made = await author_of(registry).create_issue(CreateIssue(repo="acme/vault", title="t"), new_context()[0])
        assert made.author is not None
        assert made.author.login == "compass[bot]"


async def test_unchanged_answers_are_told_again_there_too(tmp_path: Path) -> None:
    forge = new_forge()
    async with enterprise(forge, token_file(tmp_path, "forge-author")) as registry:
        for _ in range(3):
            await author_of(registry).get_issue(GetIssue(repo="acme/site", issue_number=2), new_context()[0])
    assert [request.status for request in forge.log.find("GET", "*/issues/2")] == [200, 304, 304]
