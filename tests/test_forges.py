"""The configured forges as the daemon opens them, against the bundled forge over loopback."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
import trio.lowlevel

from compass_forged.config import Config, ForgeConfig, TokenPlace, check_config
from compass_forged.emulator.app import Forge
from compass_forged.emulator.script import Rule
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import serve_forge
from compass_forged.errors import CallError, ConfigError, ForeignAnswer, ForgeUnavailable
from compass_forged.forges import check_forges, keep_identities, learn_identities, open_registry
from compass_forged.providers import resolver
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.identity import Identities
from compass_forged.providers.registry import Entry, Registry
from compass_forged.wire.schema import CreateIssue, SubmitReview
from tests.emulator.inprocess import TOKENS
from tests.support.apps import APP_ID, CLIENT_ID, INSTALLATION_ID, app_seed, key_file
from tests.support.forge_http import issue_json, new_context


def new_forge() -> Forge:
    return Forge(
        {
            **default_seed(TOKENS),
            "apps": [
                app_seed(installations=[{"id": INSTALLATION_ID, "account": "acme"}, {"id": 100, "account": "mona"}])
            ],
        }
    )


def token_file(folder: Path, login: str) -> TokenPlace:
    path = folder / f"token-{login}"
    path.write_text(TOKENS[login])
    path.chmod(0o600)
    return TokenPlace(file=str(path))


def app_place(folder: Path, installation_id: int = INSTALLATION_ID, **issuer: Any) -> TokenPlace:
    named = issuer or {"app_id": APP_ID}
    return TokenPlace(installation_id=installation_id, key_file=str(key_file(folder)), **named)


def config(url: str, author: TokenPlace, reviewer: TokenPlace | None = None) -> Config:
    forge = ForgeConfig(
        provider="github", default=True, host="Forge.Test", base_url=url, author=author, reviewer=reviewer
    )
    return check_config(Config(host_id="h", forge=[forge]), "test", {})


@asynccontextmanager
async def opened(forge: Forge, author: TokenPlace, reviewer: TokenPlace | None = None) -> AsyncIterator[Registry]:
    async with serve_forge(forge) as url, started(config(url, author, reviewer)) as registry:
        yield registry


@asynccontextmanager
async def started(config: Config) -> AsyncIterator[Registry]:
    """As a daemon starts."""
    async with open_registry(config) as registry:
        await learn_identities(registry)
        yield registry


def identities(registry: Registry) -> Identities:
    found = registry.default.identities
    assert found is not None
    return found


async def login_of_a_write(entry: Entry) -> str:
    assert isinstance(entry.author, GitHubProvider)
    issue = await entry.author.create_issue(CreateIssue(repo="acme/site", title="t"), new_context()[0])
    return issue.author.login if issue.author else ""


async def test_every_kind_of_place_gives_a_token_and_an_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGE_TEST_TOKEN", TOKENS["forge-author"])
    places = {
        "forge-author": [
            token_file(tmp_path, "forge-author"),
            TokenPlace(env="FORGE_TEST_TOKEN"),
            TokenPlace(command=[sys.executable, "-S", "-c", f"print({TOKENS['forge-author']!r})"]),
        ],
        "compass[bot]": [app_place(tmp_path), app_place(tmp_path, client_id=CLIENT_ID)],
    }
    for login, each in places.items():
        for place in each:
            async with opened(new_forge(), place, token_file(tmp_path, "forge-reviewer")) as registry:
                assert str(identities(registry).known("author")) == login
                await registry.default.check_reviewer()
                assert await login_of_a_write(registry.default) == login


async def test_one_account_in_both_roles_stops_the_start(tmp_path: Path) -> None:
    author = token_file(tmp_path, "forge-author")
    async with serve_forge(new_forge()) as url:
        with pytest.raises(ConfigError, match=r"forge.test: author and reviewer are the same account, forge-author; "):
            async with started(config(url, author, author)):
                raise AssertionError
        with pytest.raises(ConfigError, match=r"same account, compass\[bot\]"):
            async with started(config(url, app_place(tmp_path), app_place(tmp_path, 100))):
                raise AssertionError


async def test_a_forge_out_of_reach_does_not_stop_the_start_and_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compass_forged.forges.IDENTITY_SECONDS", 0.1)
    forge = new_forge()
    forge.script.add(Rule(method="GET", path="/user", delay=30))
    roles = (token_file(tmp_path, "forge-author"), token_file(tmp_path, "forge-reviewer"))
    async with opened(forge, *roles) as registry:
        assert not identities(registry).all_known
        async with trio.open_nursery() as nursery:
            await nursery.start(keep_identities, registry)
            with trio.fail_after(5):
                while not identities(registry).all_known:  # noqa: ASYNC110 -- the background tells nobody
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        await registry.default.check_reviewer()


async def test_a_daemon_whose_forge_is_down_starts_and_only_reviews_wait(tmp_path: Path) -> None:
    roles = (token_file(tmp_path, "forge-author"), token_file(tmp_path, "forge-reviewer"))
    with structlog.testing.capture_logs() as logs:
        async with started(config("http://127.0.0.1:9", *roles)) as registry:
            with pytest.raises(ForgeUnavailable):
                await registry.default.check_reviewer()
    assert {line["role"] for line in logs if "identity" in line["event"]} == {"author", "reviewer"}


REVIEW = SubmitReview(repo="acme/site", pull_number=3, verdict="comment", body="Looks good.")


async def test_no_review_goes_out_before_both_accounts_are_known_and_nothing_else_waits(tmp_path: Path) -> None:
    forge = new_forge()
    forge.script.add(Rule(method="GET", path="/user", status=500, body="", times=18))
    roles = (token_file(tmp_path, "forge-author"), token_file(tmp_path, "forge-reviewer"))
    async with opened(forge, *roles) as registry:
        reviewer = registry.default.reviewer
        assert reviewer is not None
        with pytest.raises(ForgeUnavailable) as refused:
            await reviewer.submit_review(REVIEW, new_context()[0])
        assert refused.value.outcome == "not_sent"
        assert await login_of_a_write(registry.default) == "forge-author"
        forge.script.clear()
        identities(registry)._ask_at = 0.0  # it was asked only just now
        assert (await reviewer.submit_review(REVIEW, new_context()[0])).review_id
    assert forge.log.count("POST", "*/reviews") == 1


async def test_a_reviewer_that_becomes_the_author_is_refused_from_then_on(tmp_path: Path) -> None:
    reviewer = token_file(tmp_path, "forge-reviewer")
    async with opened(new_forge(), token_file(tmp_path, "forge-author"), reviewer) as registry:
        (tmp_path / "token-forge-reviewer").write_text(TOKENS["forge-author"])
        assert isinstance(registry.default.reviewer, GitHubProvider)
        await registry.default.reviewer.http.credential.token()
        await trio.lowlevel.checkpoint()
        identities(registry)._ask_at = 0.0  # a start has only just asked
        with pytest.raises(CallError, match="same account"):
            await registry.default.check_reviewer()


@pytest.mark.parametrize("place", ["file", "command", "key"])
async def test_what_cannot_be_read_shows_at_the_start_and_asks_nobody(tmp_path: Path, place: str) -> None:
    if place == "file":
        given = TokenPlace(file=str(tmp_path / "none"))
    elif place == "command":
        given = TokenPlace(command=[sys.executable, "-S", "-c", "raise SystemExit(3)"])
    else:
        given = TokenPlace(app_id=1, installation_id=1, key_file=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"^github:Forge.Test author: .*(none|status 3)"):
        await check_forges(config("http://127.0.0.1:9", given))
    good = token_file(tmp_path, "forge-author")
    with pytest.raises(ConfigError, match=r"^github:Forge.Test reviewer: .*(none|status 3)"):
        await check_forges(config("http://127.0.0.1:9", good, given))


async def test_a_url_that_cannot_be_used_is_told_with_its_forge(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^github:Forge.Test author: base_url: must begin with https://"):
        await check_forges(config("forge.test/api", token_file(tmp_path, "forge-author")))


async def test_a_configuration_is_checked_without_asking_a_forge(tmp_path: Path) -> None:
    forge = new_forge()
    async with serve_forge(forge) as url:
        await check_forges(config(url, token_file(tmp_path, "forge-author"), app_place(tmp_path)))
    assert not forge.log.count("*", "*")


async def test_names_are_looked_up_in_bounded_threads_while_forges_are_open(tmp_path: Path) -> None:
    async with open_registry(config("http://127.0.0.1:9", token_file(tmp_path, "forge-author"))):
        inside = trio.socket.set_custom_hostname_resolver(None)
        assert isinstance(inside, resolver.BoundedResolver)
        trio.socket.set_custom_hostname_resolver(inside)


async def test_a_forge_without_an_author_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none has a credential"):
        async with open_registry(Config()):
            raise AssertionError
    bare = Config(forge=[ForgeConfig(provider="github", default=True)])
    with pytest.raises(ConfigError, match="author: missing"):
        async with open_registry(bare):
            raise AssertionError


async def test_an_account_whose_writings_come_back_as_another_s_is_asked_for_again(tmp_path: Path) -> None:
    forge = new_forge()
    another = issue_json(user={"login": "eve", "type": "User", "id": 66})
    forge.script.add(Rule(method="POST", path="/repos/acme/site/issues", status=201, body=another))
    roles = (token_file(tmp_path, "forge-author"), token_file(tmp_path, "forge-reviewer"))
    async with opened(forge, *roles) as registry:
        found = identities(registry)
        with pytest.raises(ForeignAnswer):
            await login_of_a_write(registry.default)
        assert not found.author.is_settled
        assert found.reviewer is not None
        assert found.reviewer.is_settled
        await found.learn()
        assert found.all_known
