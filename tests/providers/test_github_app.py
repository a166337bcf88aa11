"""Installation tokens, against the bundled forge and in virtual time."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
import structlog.testing
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from compass_forged.budget import Budget
from compass_forged.emulator.app import Forge
from compass_forged.emulator.script import Rule
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.state import loop_clock
from compass_forged.errors import BadCredentials, ConfigError, ForgeError, ForgeUnavailable, RateLimited
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.credentials import Credential
from compass_forged.providers.gate import Gate
from compass_forged.providers.github_app import EARLY_SECONDS, AppToken
from compass_forged.providers.github_dialect import GitHubDialect
from compass_forged.providers.http import HttpRequest, HttpTransport
from compass_forged.providers.urls import BaseUrl
from tests.emulator.inprocess import TOKENS, ForgeTransport
from tests.support.apps import APP_ID, CLIENT_ID, INSTALLATION_ID, app_seed, key_file
from tests.support.forge_http import ScriptedForge, answer, new_context

START = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
ACCESS_TOKENS = f"/app/installations/{INSTALLATION_ID}/access_tokens"
WRITE = HttpRequest("POST", ("repos", "acme", "site", "issues"), json={"title": "t"})


@dataclass
class Scene:
    """A forge with an App, and the App's source of tokens. ``skew`` sets the host's clock against the forge's."""

    forge: Forge
    source: AppToken
    transport: HttpTransport
    skew: float = 0.0

    @property
    def minted(self) -> int:
        return self.forge.log.count("POST", ACCESS_TOKENS)


def new_source(transport: HttpTransport, path: Path, wall: Callable[[], float], **other: Any) -> AppToken:
    options = {"issuer": str(APP_ID), "installation_id": INSTALLATION_ID, **other}
    return AppToken(
        options["issuer"],
        options["installation_id"],
        str(path),
        role="reviewer",
        transport=transport,
        dialect=GitHubDialect(wall_clock=wall),
        wall_clock=wall,
        jitter=lambda: 0.5,
    )


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    clock = loop_clock(START)
    forge = Forge({**default_seed(TOKENS), "apps": [app_seed()]}, clock=clock)
    transport = HttpTransport(BaseUrl.parse("https://api.github.com"), transport=ForgeTransport(forge))
    made = Scene(forge, AppToken.__new__(AppToken), transport)
    made.source = new_source(transport, key_file(tmp_path), lambda: clock().timestamp() + made.skew)
    return made


async def test_a_claim_is_dated_a_minute_back_and_ends_before_ten(tmp_path: Path) -> None:
    path, wall = key_file(tmp_path), 1_760_000_000.0
    forge = ScriptedForge([answer(401, {"message": "no"})])
    source = new_source(
        HttpTransport(BaseUrl.parse("https://api.github.com"), transport=forge), path, lambda: wall, issuer=CLIENT_ID
    )
    with pytest.raises(BadCredentials):
        await source.token()
    (request,) = forge.requests
    claim = jwt.decode(
        request.headers["authorization"].removeprefix("Bearer "),
        options={"verify_signature": False, "verify_exp": False},
    )
    assert claim == {"iss": CLIENT_ID, "iat": wall - 60, "exp": wall + 540}
    assert request.url.path == ACCESS_TOKENS


async def test_a_token_is_used_until_five_minutes_before_its_end(scene: Scene, autojump_clock: MockClock) -> None:
    first = await scene.source.token()
    await trio.sleep(3600 - EARLY_SECONDS - 1)
    assert await scene.source.token() == first
    assert scene.minted == 1
    await trio.sleep(1)
    assert await scene.source.token() != first
    assert scene.minted == 2
    assert scene.source.permissions["issues"] == "write"


async def test_many_callers_make_one_renewal(scene: Scene, autojump_clock: MockClock) -> None:
    scene.forge.script.add(Rule(method="POST", path=ACCESS_TOKENS, delay=2, commit=True))
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(scene.source.token)
    assert scene.minted == 1


async def test_a_cancelled_leader_does_not_fail_its_followers(scene: Scene, autojump_clock: MockClock) -> None:
    scene.forge.script.add(Rule(method="POST", path=ACCESS_TOKENS, delay=5, commit=True))
    got: list[str] = []
    leader = trio.CancelScope()

    async def led() -> None:
        with leader:
            await scene.source.token()

    async def follower() -> None:
        got.append(await scene.source.token())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(led)
        await wait_all_tasks_blocked()
        nursery.start_soon(follower)
        await wait_all_tasks_blocked()
        leader.cancel()
    assert leader.cancelled_caught
    assert (len(got), scene.minted) == (1, 2)


@pytest.mark.parametrize("skew", [86_400.0, -86_400.0, 400.0])
async def test_a_wrong_clock_does_no_harm(scene: Scene, autojump_clock: MockClock, skew: float) -> None:
    scene.skew = skew
    first = await scene.source.token()
    await trio.sleep(3600 - EARLY_SECONDS - 1)
    assert await scene.source.token() == first
    await trio.sleep(1)
    assert await scene.source.token() != first
    assert scene.minted <= 3  # the first claim by the host's own clock was refused; then the forge's is known


async def test_a_renewal_that_fails_backs_off_and_the_old_token_serves(scene: Scene, autojump_clock: MockClock) -> None:
    first = await scene.source.token()
    scene.forge.script.add(Rule(method="POST", path=ACCESS_TOKENS, status=502, times=1000))
    await trio.sleep(3600 - EARLY_SECONDS)
    for _ in range(29):  # ten callers a second
        for _ in range(10):
            assert await scene.source.token() == first
        await trio.sleep(10)
    assert 6 <= scene.minted - 1 <= 12
    await trio.sleep(10)
    with pytest.raises(ForgeUnavailable, match="502") as failure:
        await scene.source.token()
    assert failure.value.outcome == "not_sent"
    before = scene.minted
    for _ in range(100):
        with pytest.raises(ForgeUnavailable):
            await scene.source.token()
    assert scene.minted == before
    scene.forge.script.clear()
    await trio.sleep(90)
    assert await scene.source.token() != first


@pytest.mark.parametrize(
    ("status", "headers", "kind", "words"),
    [
        (401, {}, BadCredentials, "App's key"),
        (403, {}, BadCredentials, "suspended"),
        (404, {}, BadCredentials, "installation_id"),
        (422, {}, BadCredentials, "cannot have"),
        (429, {"retry-after": "7"}, RateLimited, "rate limit"),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}, RateLimited, "rate limit"),
        (301, {}, ForgeUnavailable, "301"),
        (500, {}, ForgeUnavailable, "500"),
        (201, {}, ForgeUnavailable, "can be used"),
    ],
)
async def test_refusals_are_told_apart_and_each_caller_gets_its_own(
    scene: Scene, autojump_clock: MockClock, status: int, headers: dict[str, str], kind: type[ForgeError], words: str
) -> None:
    scene.forge.script.add(
        Rule(method="POST", path=ACCESS_TOKENS, status=status, headers=headers, body={"message": "no"}, times=9)
    )
    raised: list[ForgeError] = []
    for _ in range(2):
        with pytest.raises(kind, match=words) as failure:
            await scene.source.token()
        raised.append(failure.value)
    assert raised[0] is not raised[1]
    assert {error.outcome for error in raised} == {"not_sent"}
    assert scene.minted == 1


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b'{"token": "ghs_canary-00000000", "expires_at": "soon"}',
        b'{"token": "two words canary", "expires_at": "2026-05-04T04:02:01Z"}',
        b'{"token": 7}',
    ],
)
async def test_an_answer_that_is_no_token_is_not_shown(scene: Scene, autojump_clock: MockClock, body: bytes) -> None:
    scene.forge.script.add(Rule(method="POST", path=ACCESS_TOKENS, status=201, body=body.decode()))
    with structlog.testing.capture_logs() as logs, pytest.raises(ForgeUnavailable) as failure:
        await scene.source.token()
    assert failure.value.__cause__ is None
    assert "canary" not in str(logs) + str(failure.value)


@pytest.mark.parametrize("life", ["2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z"])
async def test_an_absurd_end_makes_no_hot_loop_and_no_everlasting_token(
    scene: Scene, autojump_clock: MockClock, life: str
) -> None:
    body = json.dumps({"token": "ghs_0123456789abcdef", "expires_at": life})
    scene.forge.script.add(Rule(method="POST", path=ACCESS_TOKENS, status=201, body=body, times=1000))
    for _ in range(360):
        await scene.source.token()
        await trio.sleep(10)
    assert 2 <= scene.minted <= 125


async def test_a_forge_that_does_not_answer_is_waited_for_ten_seconds(scene: Scene, autojump_clock: MockClock) -> None:
    scene.forge.script.add(Rule(method="POST", path=ACCESS_TOKENS, delay=60, commit=True))
    with pytest.raises(ForgeUnavailable, match="within 10 s"):
        await scene.source.token()
    assert trio.current_time() == 10


async def test_a_renewal_that_hangs_keeps_nobody_from_a_token_that_lives(
    scene: Scene, autojump_clock: MockClock
) -> None:
    first = await scene.source.token()
    await trio.sleep(3600 - EARLY_SECONDS)
    scene.forge.script.add(Rule(method="POST", path=ACCESS_TOKENS, delay=60, times=1000))
    late = 0

    async def call() -> None:
        nonlocal late
        with trio.move_on_after(3) as scope:
            assert await scene.source.token() == first
        late += scope.cancelled_caught

    async with trio.open_nursery() as nursery:
        for _ in range(60):  # ten calls each second for a minute, none of which can wait for ten
            for _ in range(10):
                nursery.start_soon(call)
            await trio.sleep(1)
    assert late <= 60 / 3
    assert scene.minted <= 1 + 60 / 3


async def test_a_connection_that_fails_is_a_forge_out_of_reach(tmp_path: Path) -> None:
    forge = ScriptedForge([httpx.ConnectError("10.0.0.1")])
    transport = HttpTransport(BaseUrl.parse("https://api.github.com"), transport=forge)
    with pytest.raises(ForgeUnavailable, match="cannot connect") as failure:
        await new_source(transport, key_file(tmp_path), lambda: 1_760_000_000.0).token()
    assert failure.value.outcome == "not_sent"


@pytest.mark.parametrize(
    "content", ["", "canary", "-----BEGIN RSA PRIVATE KEY-----\ncanary\n-----END RSA PRIVATE KEY-----"]
)
def test_a_key_that_is_none_is_named_and_not_shown(tmp_path: Path, content: str) -> None:
    path = tmp_path / "app.pem"
    path.write_text(content)
    transport = HttpTransport(BaseUrl.parse("https://api.github.com"), transport=ScriptedForge([]))
    source = new_source(transport, path, lambda: 0.0)
    with pytest.raises(ConfigError, match=r"app.pem holds no RSA key to sign with") as refused:
        source.check()
    assert "canary" not in str(refused.value)
    key_file(tmp_path)
    source.check()  # mended, without a restart


async def test_a_key_that_turned_bad_is_told_and_the_token_serves_while_it_lives(
    scene: Scene, autojump_clock: MockClock, tmp_path: Path
) -> None:
    first = await scene.source.token()
    (tmp_path / "app.pem").write_text("no key")
    await trio.sleep(3600 - EARLY_SECONDS)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            assert await scene.source.token() == first
    assert len(logs) == 1
    await trio.sleep(EARLY_SECONDS)
    with pytest.raises(ConfigError, match="no RSA key"):
        await scene.source.token()


@pytest.mark.parametrize("revoked", [False, True])
async def test_a_token_that_has_ended_is_not_used_for_as_long_as_the_bad_key_is_left_alone(
    revoked: bool, scene: Scene, autojump_clock: MockClock, tmp_path: Path
) -> None:
    first = await scene.source.token()
    (tmp_path / "app.pem").write_text("no key")
    await trio.sleep(3600 - 1)
    assert await scene.source.token() == first
    if revoked:
        scene.source.invalidate()
    else:
        await trio.sleep(1)
    with pytest.raises(ConfigError, match="no RSA key"):
        await scene.source.token()
    key_file(tmp_path)
    assert await scene.source.token() != first


async def test_a_revoked_token_is_replaced_within_the_call_once(scene: Scene, autojump_clock: MockClock) -> None:
    http = ForgeHttp(
        scene.transport, Gate(Budget()), Credential("author", scene.source), GitHubDialect(), jitter=lambda: 0.5
    )
    scene.forge.state.revoke_token(await scene.source.token())

    async def write() -> None:
        assert (await http.write(WRITE, new_context()[0])).status == 201

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(write)
    assert scene.minted == 2
    assert scene.forge.state.commits["issue"] == 8


async def test_the_app_names_itself(scene: Scene, autojump_clock: MockClock) -> None:
    app = await scene.source.app()
    assert (app.id, app.slug) == (APP_ID, "compass")
    scene.forge.script.add(Rule(method="GET", path="/app", status=200, body="[]"))
    with pytest.raises(ForgeError, match="cannot be read"):
        await scene.source.app()
    scene.forge.script.add(Rule(method="GET", path="/app", status=404, body="{}"))
    with pytest.raises(BadCredentials):
        await scene.source.app()


def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    transport = HttpTransport(BaseUrl.parse("https://api.github.com"), transport=ScriptedForge([]))
    source = new_source(transport, key_file(tmp_path), lambda: 0.0)
    with pytest.raises(ConfigError, match=r"pip install 'compass-forged\[github-app\]'"):
        source.check()
