"""A configured Linear as the daemon and ``doctor`` open it, against the bundled forge over loopback."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import structlog.testing
import trio

from compass_forged.cli.main import run
from compass_forged.config import Config, ForgeConfig, TokenPlace, check_config
from compass_forged.daemon import _credential_states
from compass_forged.doctor import examine
from compass_forged.emulator.app import Forge
from compass_forged.emulator.linear_app import LinearForge, LinearSettings
from compass_forged.emulator.linear_seed import default_linear_seed
from compass_forged.emulator.script import Rule
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.server import serve_forge
from compass_forged.errors import ConfigError
from compass_forged.forges import check_forges, keep_identities, learn_identities, open_registry
from compass_forged.providers.linear import LinearProvider
from compass_forged.providers.linear_actor import DEGRADED
from compass_forged.providers.registry import Registry
from compass_forged.wire.schema import CreateIssue, ForgeSelector, GetIssue
from tests.emulator.inprocess import TOKENS
from tests.support.forge_http import new_context
from tests.support.linear import API_KEY, STAMPED, TOKEN

SECRET = "the-secret-of-the-application"
CREATE = CreateIssue(repo="ENG", title="t", body=STAMPED)


def new_forge() -> LinearForge:
    seed = default_linear_seed(TOKEN)
    seed["tokens"].append({"token": API_KEY, "user": "Mona & Co"})
    return LinearForge(seed, settings=LinearSettings(clients={"client-1": (SECRET, "compass")}))


def secret_file(folder: Path, content: str, name: str = "linear") -> str:
    path = folder / name
    path.write_text(content + "\n")
    path.chmod(0o600)
    return str(path)


def config(folder: Path, github: str, linear: str, author: TokenPlace, environ: Mapping[str, str] = {}) -> Config:
    forges = [
        ForgeConfig(
            provider="github",
            default=True,
            host="forge.test",
            base_url=github,
            author=TokenPlace(file=secret_file(folder, TOKENS["forge-author"], "github")),
        ),
        ForgeConfig(provider="linear", base_url=linear, author=author),
    ]
    return check_config(Config(host_id="h", store="memory", forge=forges), "test", environ)


def linear_of(registry: Registry) -> LinearProvider:
    entry = registry.resolve(ForgeSelector("linear"))
    assert (entry.provider, entry.host, entry.reviewer) == ("linear", "linear.app", None)
    assert isinstance(entry.author, LinearProvider)
    return entry.author


async def test_an_application_is_known_at_the_start_and_writes_under_the_configured_name(tmp_path: Path) -> None:
    forge = new_forge()
    places = (
        TokenPlace(file=secret_file(tmp_path, TOKEN)),
        TokenPlace(client_id="client-1", client_secret_file=secret_file(tmp_path, SECRET, "secret")),
    )
    async with serve_forge(Forge(default_seed(TOKENS))) as github, serve_forge(forge) as url:
        for number, place in enumerate(places, 2):
            async with open_registry(config(tmp_path, github, url, place)) as registry:
                await learn_identities(registry)
                linear = linear_of(registry)
                assert linear.writes_as == "Compass"
                assert (await linear.create_issue(CREATE, new_context()[0])).number == number
                assert forge.state.issue(f"ENG-{number}").author.as_user == "Compass"
                states = {state.forge: state for state in _credential_states(registry)}
                shown = states["linear:linear.app"]
                assert (shown.role, shown.account, shown.broken) == ("author", "compass", False)
                assert shown.limit in {5000, 2_000_000}
                assert shown.remaining


async def test_a_probe_that_could_not_run_is_repeated_and_is_no_no(tmp_path: Path) -> None:
    forge = new_forge()
    forge.script.add(Rule(path="/graphql/Viewer", times=3, status=503, body="starting"))
    place = TokenPlace(file=secret_file(tmp_path, TOKEN))
    async with serve_forge(Forge(default_seed(TOKENS))) as github, serve_forge(forge) as url:
        with structlog.testing.capture_logs() as logs:
            async with open_registry(config(tmp_path, github, url, place)) as registry, trio.open_nursery() as nursery:
                await learn_identities(registry)
                linear = linear_of(registry)
                assert linear.writes_as == ""
                assert (await linear.create_issue(CREATE, new_context()[0])).number == 2
                await nursery.start(keep_identities, registry)
                with trio.fail_after(10):
                    while not linear.writes_as:  # noqa: ASYNC110 -- another task's state
                        await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
    assert DEGRADED not in [line["event"] for line in logs]


async def test_a_persons_key_is_degraded_at_the_start(tmp_path: Path) -> None:
    async with serve_forge(Forge(default_seed(TOKENS))) as github, serve_forge(new_forge()) as url:
        place = TokenPlace(env="LINEAR_KEY")
        with pytest.MonkeyPatch.context() as patch, structlog.testing.capture_logs() as logs:
            patch.setenv("LINEAR_KEY", API_KEY)
            async with open_registry(config(tmp_path, github, url, place)) as registry:
                await learn_identities(registry)
                assert linear_of(registry).writes_as == ""
    assert [line["event"] for line in logs].count(DEGRADED) == 1


async def test_a_forge_out_of_reach_does_not_stop_the_start(tmp_path: Path) -> None:
    place = TokenPlace(file=secret_file(tmp_path, TOKEN))
    async with (
        serve_forge(Forge(default_seed(TOKENS))) as github,
        open_registry(config(tmp_path, github, "http://127.0.0.1:1", place)) as registry,
    ):
        await learn_identities(registry)
        assert linear_of(registry).writes_as == ""


@pytest.mark.parametrize(
    "place",
    [
        TokenPlace(file="/nonexistent/linear"),
        TokenPlace(client_id="client-1", client_secret_file="/nonexistent/secret"),
        TokenPlace(client_id="client-1", client_secret_env="NO_SUCH_VARIABLE"),
    ],
)
async def test_a_secret_that_is_not_there_stops_the_start(tmp_path: Path, place: TokenPlace) -> None:
    with pytest.raises(ConfigError):
        await check_forges(config(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:1", place))


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (TOKEN, [("account", "ok", "compass"), ("name", "ok", "stands under Compass")]),
        (API_KEY, [("account", "ok", "Mona & Co"), ("name", "warning", "stands under the account itself")]),
        ("lin_api_not-known-anywhere-0001", [("account", "bad", "the author credential is not usable")]),
    ],
)
async def test_doctor_tells_whose_it_is_and_under_what_name_it_writes(
    tmp_path: Path, content: str, found: list[tuple[str, str, str]]
) -> None:
    async with serve_forge(Forge(default_seed(TOKENS))) as github, serve_forge(new_forge()) as url:
        given = config(tmp_path, github, url, TokenPlace(file=secret_file(tmp_path, content)))
        findings = [one for one in await examine(given) if one.subject.startswith("linear:")]
    assert {one.subject for one in findings} == {"linear:linear.app author"}  # and nothing of a reviewer
    told = {one.check: (one.state, one.said) for one in findings}
    for check, state, words in found:
        assert told[check][0] == state
        assert words in told[check][1]
    if "limit" in told:
        assert "of 5000 requests" in told["limit"][1]
        assert "of 2000000 complexity" in told["limit"][1]


async def test_doctor_says_that_a_forge_is_out_of_reach(tmp_path: Path) -> None:
    given = config(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:1", TokenPlace(file=secret_file(tmp_path, TOKEN)))
    (finding,) = [one for one in await examine(given) if one.subject.startswith("linear:")]
    assert (finding.check, finding.state) == ("account", "bad")
    assert "cannot connect" in finding.said


async def test_the_command_line_checks_a_configuration_with_linear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.toml"
    github = secret_file(tmp_path, TOKENS["forge-author"], "github")
    file.write_text(
        f'store = "memory"\n[[forge]]\nprovider = "github"\ndefault = true\nauthor = {{ file = "{github}" }}\n'
        f'[[forge]]\nprovider = "linear"\nauthor = {{ file = "{secret_file(tmp_path, TOKEN)}" }}\n'
    )
    await trio.lowlevel.checkpoint()
    assert json.dumps(TOKEN) not in capsys.readouterr().out
    assert await trio.to_thread.run_sync(run, ["config", "check", "--config", str(file)]) == 0


async def test_reads_go_over_the_network_as_they_are(tmp_path: Path) -> None:
    forge = new_forge()
    place = TokenPlace(file=secret_file(tmp_path, TOKEN))
    async with (
        serve_forge(forge) as url,
        open_registry(config(tmp_path, "http://127.0.0.1:1", url, place)) as registry,
    ):
        issue = await linear_of(registry).get_issue(GetIssue(repo="ENG", issue_number=1), new_context()[0])
    assert (issue.title, issue.labels) == ("The nightly crawl is slow", ["R&D"])
