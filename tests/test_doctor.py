"""What ``doctor`` finds, against the bundled forge over loopback."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
import structlog.testing
import trio

from compass_forged import doctor
from compass_forged.cli.main import run
from compass_forged.config import TokenPlace
from compass_forged.doctor import Finding, examine
from compass_forged.emulator.app import Forge, ForgeSettings
from compass_forged.emulator.limits import LimitSettings
from compass_forged.emulator.script import Rule
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import serve_forge
from compass_forged.errors import BadCredentials, ForgeError, ForgeStatus, ForgeUnavailable
from compass_forged.forges import open_registry
from compass_forged.providers.credentials import Credential, StaticToken
from compass_forged.providers.fake import FakeProvider
from compass_forged.providers.identity import Identities, Identity, RoleIdentity
from compass_forged.providers.registry import Entry
from compass_forged.wire.schema import CreateIssue
from tests.emulator.inprocess import TOKENS
from tests.support.apps import APP_ID, INSTALLATION_ID, app_seed, key_file
from tests.support.forge_http import new_context
from tests.test_forges import config, new_forge, token_file

SITE = (("acme", "site"),)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """The command sets up the logging of its process, which is this one."""
    yield
    structlog.reset_defaults()


async def found(
    forge: Forge, author: TokenPlace, reviewer: TokenPlace | None = None, repos: Sequence[tuple[str, str]] = ()
) -> dict[tuple[str, str], list[Finding]]:
    async with serve_forge(forge) as url:
        findings = await examine(config(url, author, reviewer), repos)
    by_place: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        by_place.setdefault((finding.subject.removeprefix("github:forge.test "), finding.check), []).append(finding)
    return by_place


def limited(folder: Path, forge: Forge, token: str = "limited-token", **granted: str) -> TokenPlace:
    """A fine-grained token."""
    forge.state.grant_token(token, "forge-author", permissions=granted)
    path = folder / "limited"
    path.write_text(token)
    path.chmod(0o600)
    return TokenPlace(file=str(path))


async def test_two_whole_accounts_are_fine(tmp_path: Path) -> None:
    roles = (token_file(tmp_path, "forge-author"), token_file(tmp_path, "forge-reviewer"))
    findings = await found(new_forge(), *roles, SITE)
    assert {finding.state for each in findings.values() for finding in each} == {"ok"}
    assert findings["author", "account"][0].said == "forge-author (user 1001)"
    assert findings["reviewer", "account"][0].said.startswith("forge-reviewer (user ")
    assert findings["author", "limit"][0].said.endswith(" of 5000 requests left this hour")
    assert findings["author", "acme/site"][0].said == "may be written to"
    assert findings["github:forge.test", "author and reviewer"][0].said == "are two accounts"


@pytest.mark.parametrize(
    ("left", "state", "words"),
    [(timedelta(days=30, hours=1), "ok", "in 30 days"), (timedelta(days=2), "warning", "put a new token in its place")],
)
async def test_a_token_that_ends_is_told_with_its_end(tmp_path: Path, left: timedelta, state: str, words: str) -> None:
    forge = new_forge()
    forge.state.grant_token(TOKENS["forge-author"], "forge-author", ends=datetime.now(UTC) + left)
    (finding,) = (await found(forge, token_file(tmp_path, "forge-author")))["author", "expiry"]
    assert (finding.state, words in finding.said) == (state, True)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2022-11-12 10:31:26 UTC", datetime(2022, 11, 12, 10, 31, 26, tzinfo=UTC)),
        ("2022-11-12 10:31:26 -0700", datetime(2022, 11, 12, 17, 31, 26, tzinfo=UTC)),
        ("2022-13-12 10:31:26 UTC", None),
        ("soon", None),
    ],
)
def test_ends_are_read_in_both_writings(text: str, moment: datetime | None) -> None:
    assert doctor._moment(text) == moment


@pytest.mark.parametrize(
    ("headers", "check", "state", "words"),
    [
        ({"x-oauth-scopes": "gist, repo"}, "permissions", "ok", "scope repo"),
        ({"x-oauth-scopes": "public_repo"}, "permissions", "warning", "private repositories"),
        ({"x-oauth-scopes": "gist"}, "permissions", "bad", "neither scope"),
        ({"github-authentication-token-expiration": "soon"}, "expiry", "warning", "no date known"),
        ({"date": "Mon, 04 May 2020 03:02:01 GMT"}, "clock", "warning", "behind"),
        ({"x-ratelimit-remaining": "0"}, "limit", "warning", "0 of 5000"),
    ],
)
async def test_headers_are_told(tmp_path: Path, headers: Mapping[str, str], check: str, state: str, words: str) -> None:
    forge = new_forge()
    forge.script.add(Rule(method="GET", path="/user", headers=headers, times=9))
    (finding,) = (await found(forge, token_file(tmp_path, "forge-author")))["author", check]
    assert (finding.state, words in finding.said) == (state, True), finding


async def test_a_server_without_limits_names_none(tmp_path: Path) -> None:
    forge = Forge(
        default_seed(TOKENS), settings=ForgeSettings(limits=LimitSettings(per_hour=None), enterprise="3.17.0")
    )
    (finding,) = (await found(forge, token_file(tmp_path, "forge-author")))["author", "limit"]
    assert (finding.state, finding.said) == ("ok", "the forge names none")


async def test_what_a_fine_grained_token_lacks_is_named_though_the_forge_s_words_do_not(tmp_path: Path) -> None:
    forge = new_forge()
    author = limited(tmp_path, forge, metadata="read", issues="write")
    said = {finding.said: finding.state for finding in (await found(forge, author, None, SITE))["author", "acme/site"]}
    assert said == {
        "may be written to": "ok",
        "pull requests cannot be read: lacks pull_requests=read": "bad",
        "statuses cannot be read: lacks statuses=read": "warning",
        "checks cannot be read: lacks checks=read": "warning",
    }


@pytest.mark.parametrize("token", ["github_pat_limited-token", "ghu_limited-token"])
async def test_of_a_token_that_the_forge_tells_no_permissions_of_it_says_where_they_show(
    tmp_path: Path, token: str
) -> None:
    forge = new_forge()
    author = limited(tmp_path, forge, token, metadata="read", issues="read")
    (finding,) = (await found(forge, author))["author", "permissions"]
    assert finding.state == "warning"
    assert "\n" not in finding.said
    assert "a write permission that is missing shows at the first refusal" in finding.said
    assert "`the forge refuses`" in finding.said

    with structlog.testing.capture_logs() as logs:  # and there it is
        async with serve_forge(forge) as url, open_registry(config(url, author)) as registry:
            with pytest.raises(ForgeStatus):
                await registry.default.author.create_issue(CreateIssue(repo="acme/site", title="t"), new_context()[0])
    assert [log["permissions"] for log in logs if log["event"] == "the forge refuses"] == ["issues=write"]


async def test_a_repository_that_is_not_seen_or_not_pushed_to_is_told(tmp_path: Path) -> None:
    forge = new_forge()
    forge.state.rename_repo("acme/site", "shop")
    findings = await found(forge, token_file(tmp_path, "outsider"), None, [("acme", "vault"), ("acme", "shop")])
    assert [finding.said for finding in findings["author", "acme/vault"]] == ["is not seen: the forge answered 404"]
    (rights, *_) = findings["author", "acme/shop"]
    assert (rights.state, rights.said.partition(":")[0]) == ("warning", "may be read and not be pushed to")


async def test_single_sign_on_is_told_as_that(tmp_path: Path) -> None:
    forge = new_forge()
    forge.script.add(Rule(path="/repos/acme/site", status=403, headers={"x-github-sso": "required; url=x"}, body={}))
    (finding,) = (await found(forge, token_file(tmp_path, "forge-author"), None, SITE))["author", "acme/site"]
    assert (finding.state, "single sign-on" in finding.said) == ("bad", True)


@pytest.mark.parametrize(
    ("granted", "state", "words"),
    [
        ({"metadata": "read", "issues": "write", "pull_requests": "read"}, "bad", "lacks pull_requests=write;"),
        ({"metadata": "read", "issues": "write", "pull_requests": "write"}, "warning", "checks=read, statuses=read"),
        (None, "ok", "issues=write"),
    ],
)
async def test_an_app_is_asked_what_its_installation_grants(
    tmp_path: Path, granted: dict[str, str] | None, state: str, words: str
) -> None:
    more = {} if granted is None else {"permissions": granted}
    forge = Forge({**default_seed(TOKENS), "apps": [app_seed(**more)]})
    place = TokenPlace(app_id=APP_ID, installation_id=INSTALLATION_ID, key_file=str(key_file(tmp_path)))
    findings = await found(forge, place)
    assert findings["author", "account"][0].said == f"compass[bot] (app {APP_ID})"
    (finding,) = findings["author", "permissions"]
    assert (finding.state, words in finding.said) == (state, True), finding
    assert findings["reviewer", "credential"][0].state == "warning"


async def test_a_refused_token_and_one_account_in_both_roles_are_bad(tmp_path: Path) -> None:
    forge = new_forge()
    forge.state.revoke_token(TOKENS["forge-reviewer"])
    author = token_file(tmp_path, "forge-author")
    findings = await found(forge, author, token_file(tmp_path, "forge-reviewer"))
    assert findings["reviewer", "credential"][0].state == "bad"
    assert findings["reviewer", "credential"][0].said.endswith("put the new one in its place")
    assert findings["github:forge.test", "author and reviewer"][0].state == "bad"
    findings = await found(new_forge(), author, author)
    assert "the same account" in findings["github:forge.test", "author and reviewer"][0].said


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule(path="/user", status=500, body="", times=9), "500 when asked whose"),
        (
            Rule(path="/user", status=403, body={"message": "Resource not accessible by integration"}, times=9),
            "by its key",
        ),
        (Rule(path="/user", status=200, body="<html>", times=9), "is base_url its API?"),
    ],
)
async def test_an_account_that_is_not_told_is_told_as_that(tmp_path: Path, rule: Rule, words: str) -> None:
    forge = new_forge()
    forge.script.add(rule)
    (finding,) = (await found(forge, token_file(tmp_path, "forge-author")))["author", "account"]
    assert (finding.state != "ok", words in finding.said) == (True, True), finding


async def test_an_answer_on_a_repository_that_cannot_be_read_is_bad(tmp_path: Path) -> None:
    forge = new_forge()
    forge.script.add(Rule(path="/repos/acme/site", status=200, body="[]"))
    findings = await found(forge, token_file(tmp_path, "forge-author"), None, SITE)
    assert "cannot be read" in findings["author", "acme/site"][0].said


async def test_a_forge_that_does_not_answer_is_given_up_and_what_was_found_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "CHECK_SECONDS", 0.5)
    forge = new_forge()
    forge.script.add(Rule(path="/repos/acme/site", delay=60))
    findings = await found(forge, token_file(tmp_path, "forge-author"), None, SITE)
    assert findings["author", "account"][0].state == "ok"
    assert findings["author", "forge"][0].state == "bad"


async def test_a_forge_out_of_reach_is_bad(tmp_path: Path) -> None:
    findings = await examine(config("http://127.0.0.1:9", token_file(tmp_path, "forge-author")))
    assert any(finding.state == "bad" and "cannot connect" in finding.said for finding in findings)


@pytest.mark.parametrize(
    ("told", "state", "said"),
    [
        (Identity("user", 7, "Forge App"), "ok", "Forge App"),
        (ForgeUnavailable("cannot connect to the forge", outcome="not_sent"), "bad", "cannot connect to the forge"),
        (
            BadCredentials("author", "the forge answered 401"),
            "bad",
            (
                "the author credential is not usable: the forge answered 401; "
                "renew it at the forge and put the new one in its place"
            ),
        ),
        (None, "bad", "not known"),
    ],
)
async def test_of_a_forge_that_tells_nothing_else_the_account_is_told(
    told: Identity | ForgeError | None, state: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "CHECK_SECONDS", 0.05)

    async def learn() -> Identity:
        await trio.sleep(60 if told is None else 0)
        if isinstance(told, Identity):
            return told
        raise told or AssertionError

    role = RoleIdentity(Credential("author", StaticToken("lin_api_0123456789")), learn)
    entry = Entry("linear", "linear.app", FakeProvider(), identities=Identities("linear.app", role))
    (finding,) = await doctor._entry(entry, ())
    assert (finding.subject, finding.check) == ("linear:linear.app author", "account")
    assert (finding.state, finding.said) == (state, said)


def test_few_descriptors_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 256))
    assert doctor._descriptors().state == "warning"
    monkeypatch.setattr("resource.getrlimit", lambda _: (-1, -1))
    assert doctor._descriptors().said == "no limit"


# --- the command ----------------------------------------------------------------------------------------------------


def write_config(folder: Path, url: str) -> str:
    path = folder / "config.toml"
    path.write_text(
        f'host_id = "h"\n[[forge]]\nprovider = "github"\ndefault = true\nhost = "forge.test"\nbase_url = "{url}"\n'
        f'author = {{ file = "{token_file(folder, "forge-author").file}" }}\n'
    )
    return str(path)


async def command(forge: Forge, folder: Path, *arguments: str) -> int:
    async with serve_forge(forge) as url:
        return await trio.to_thread.run_sync(run, ["doctor", "--config", write_config(folder, url), *arguments])


async def test_the_command_prints_a_table_and_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await command(new_forge(), tmp_path, "--repo", "acme/site") == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["SUBJECT", "CHECK", "STATE", "FOUND"]
    assert ["github:forge.test", "author", "account", "OK", "forge-author", "(user", "1001)"] in lines


async def test_the_command_prints_json_and_exits_with_1_where_calls_would_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge = new_forge()
    forge.state.revoke_token(TOKENS["forge-author"])
    assert await command(forge, tmp_path, "--json") == 1
    findings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert {"subject", "check", "state", "said"} == findings[0].keys()
    assert "bad" in {finding["state"] for finding in findings}
    assert TOKENS["forge-author"] not in str(findings)


@pytest.mark.parametrize("repo", ["acme", "acme/..", "acme/site/x", "a b/c"])
def test_what_is_no_repository_is_a_usage_error(tmp_path: Path, repo: str) -> None:
    assert run(["doctor", "--config", write_config(tmp_path, "http://127.0.0.1:9"), "--repo", repo]) == 2


def test_a_configuration_that_cannot_be_used_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--config", str(tmp_path / "none.toml")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
