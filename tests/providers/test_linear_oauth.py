"""Tokens of an OAuth application: bought with its secret, renewed in time, by one caller at a time."""

import base64
import json
from pathlib import Path

import httpx
import pytest
import structlog.testing
import trio
from trio.testing import MockClock

from compass_forged.emulator.linear_app import LinearForge, LinearSettings
from compass_forged.emulator.script import Rule
from compass_forged.errors import BadCredentials, ConfigError, ForgeUnavailable, RateLimited
from compass_forged.observability import redact
from compass_forged.providers.http import HttpTransport
from compass_forged.providers.linear_dialect import LinearDialect
from compass_forged.providers.linear_oauth import ClientSecret, ClientToken
from compass_forged.wire.schema import CreateIssue
from tests.emulator.inprocess import ForgeTransport
from tests.support.forge_http import ScriptedForge, answer, new_context
from tests.support.linear import BASE, STAMPED, new_forge, on_forge

SECRET = "s3cret/of the+app&0001"
DAY = 86_400.0
CLIENTS = {"client-1": (SECRET.replace(" ", "_"), "compass")}


@pytest.fixture
def variable(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LINEAR_SECRET", CLIENTS["client-1"][0])
    return "LINEAR_SECRET"


def application(transport: httpx.AsyncBaseTransport, secret: ClientSecret) -> ClientToken:
    return ClientToken(
        "client-1",
        secret,
        role="author",
        transport=HttpTransport(BASE, transport=transport),
        dialect=LinearDialect(bearer=True, wall_clock=lambda: 1_760_000_000.0),
        jitter=lambda: 0.5,
    )


def selling() -> LinearForge:
    return new_forge(settings=LinearSettings(clients=CLIENTS))


def sold(forge: LinearForge) -> int:
    return forge.log.count("POST", "/oauth/token")


def token(number: int, **more: object) -> httpx.Response:
    return answer(200, {"access_token": f"token-number-{number:04d}", "expires_in": 30 * DAY, **more})


async def test_a_token_is_bought_once_and_renewed_a_day_before_its_end(
    variable: str, autojump_clock: MockClock
) -> None:
    forge = selling()
    client = application(ForgeTransport(forge), ClientSecret(variable=variable))

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(client.token)
    first = await client.token()
    assert sold(forge) == 1
    await trio.sleep(29 * DAY - 10)
    assert await client.token() == first
    await trio.sleep(20)
    assert await client.token() != first
    assert sold(forge) == 2
    assert first in forge.state.tokens  # whoever is still under way with it goes on


async def test_writes_go_out_as_the_application_and_survive_the_end_of_a_token(
    variable: str, autojump_clock: MockClock
) -> None:
    forge = selling()
    client = application(ForgeTransport(forge), ClientSecret(variable=variable))
    linear = on_forge(forge, source=client)
    assert (await linear.learn_identity()).kind == "app"
    forge.state.tokens.pop(await client.token())

    context, guard = new_context()
    made = await linear.create_issue(CreateIssue(repo="ENG", title="t", body=STAMPED), context)

    assert made.number == 2
    assert sold(forge) == 2
    assert guard.sendings == 1
    assert forge.state.commits["issue"] == 1


async def test_the_same_scopes_are_asked_for_every_time(variable: str) -> None:
    forge = ScriptedForge([token(1), token(2)])
    client = application(forge, ClientSecret(variable=variable))
    for _ in range(2):
        await client.token()
        client.invalidate()
    assert {request.content for request in forge.requests} == {b"grant_type=client_credentials&scope=read%2Cwrite"}
    assert {request.url.path for request in forge.requests} == {"/oauth/token"}
    assert {request.headers["content-type"] for request in forge.requests} == {"application/x-www-form-urlencoded"}


async def test_the_secret_goes_in_the_one_header_and_in_no_log(variable: str) -> None:
    forge = ScriptedForge([answer(500), token(1)])
    client = application(forge, ClientSecret(variable=variable))
    with structlog.testing.capture_logs() as logs, pytest.raises(ForgeUnavailable) as failed:
        await client.token()
    kind, _, pair = forge.requests[0].headers["authorization"].partition(" ")
    assert (kind, base64.b64decode(pair)) == ("Basic", b"client-1:s3cret%2Fof_the%2Bapp%260001")
    everything = json.dumps(logs) + str(failed.value) + repr(vars(client))
    assert CLIENTS["client-1"][0] not in everything
    assert pair not in everything
    assert pair not in redact(f"Authorization: Basic {pair}")


async def test_a_failed_purchase_backs_off_and_the_old_token_serves_while_it_lives(
    variable: str, autojump_clock: MockClock
) -> None:
    forge = selling()
    client = application(ForgeTransport(forge), ClientSecret(variable=variable))
    first = await client.token()
    forge.script.add(Rule(path="/oauth/token", times=100, status=503, body="busy"))
    await trio.sleep(29 * DAY + 1)
    for _ in range(50):
        assert await client.token() == first
    assert sold(forge) == 2
    await trio.sleep(1.1)
    assert await client.token() == first
    assert sold(forge) == 3
    await trio.sleep(DAY)
    with pytest.raises(ForgeUnavailable, match="503"):
        await client.token()
    with pytest.raises(ForgeUnavailable, match="503"):
        await client.token()
    assert sold(forge) == 4
    forge.script.clear()
    await trio.sleep(60)
    assert await client.token() != first


@pytest.mark.parametrize("status", [400, 401, 403])
async def test_a_refused_application_is_the_operators_to_mend(variable: str, status: int) -> None:
    client = application(ScriptedForge([answer(status, {"error": "invalid_client"})]), ClientSecret(variable=variable))
    with pytest.raises(BadCredentials, match="check client_id and its secret") as refused:
        await client.token()
    assert refused.value.outcome == "not_sent"


async def test_a_limit_on_purchases_is_waited_out(variable: str, autojump_clock: MockClock) -> None:
    forge = ScriptedForge([answer(429, "slow down", {"retry-after": "300"}), token(1)])
    client = application(forge, ClientSecret(variable=variable))
    for _ in range(3):
        with pytest.raises(RateLimited) as refused:
            await client.token()
        assert refused.value.retry_after_seconds == 300
        assert refused.value.outcome == "not_sent"
    await trio.sleep(301)
    assert await client.token() == "token-number-0001"
    assert len(forge.requests) == 2


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"access_token": 7}', b'{"access_token": ""}', b'{"access_token": "a b"}', b"[" * 5000]
)
async def test_an_answer_without_a_token_is_none(variable: str, body: bytes) -> None:
    client = application(ScriptedForge([answer(200, body)]), ClientSecret(variable=variable))
    with pytest.raises(ForgeUnavailable, match="no token that can be used") as failed:
        await client.token()
    assert failed.value.__cause__ is None


@pytest.mark.parametrize(("given", "life"), [(-5, 60), (0, 60), (1e12, 30 * DAY)])
async def test_an_absurd_life_is_drawn_into_bounds(
    variable: str, given: float, life: float, autojump_clock: MockClock
) -> None:
    forge = ScriptedForge([token(1, expires_in=given), token(2)])
    client = application(forge, ClientSecret(variable=variable))
    assert await client.token() == "token-number-0001"
    await trio.sleep(max(life - DAY, life / 2) - 1)
    assert await client.token() == "token-number-0001"
    await trio.sleep(2)
    assert await client.token() == "token-number-0002"


async def test_a_forge_that_does_not_answer_is_given_up(variable: str, autojump_clock: MockClock) -> None:
    async def never(_request: httpx.Request) -> httpx.Response:
        await trio.sleep_forever()
        raise AssertionError

    client = application(ScriptedForge([never]), ClientSecret(variable=variable))
    with pytest.raises(ForgeUnavailable, match="no token within 10 s"):
        await client.token()


async def test_a_purchase_that_hangs_keeps_nobody_from_a_token_that_lives(
    variable: str, autojump_clock: MockClock
) -> None:
    forge = selling()
    client = application(ForgeTransport(forge), ClientSecret(variable=variable))
    first = await client.token()
    await trio.sleep(29 * DAY + 1)
    forge.script.add(Rule(method="POST", path="/oauth/token", delay=60, times=1000))
    late = 0

    async def call() -> None:
        nonlocal late
        with trio.move_on_after(3) as scope:
            assert await client.token() == first
        late += scope.cancelled_caught

    async with trio.open_nursery() as nursery:
        for _ in range(30):
            for _ in range(10):
                nursery.start_soon(call)
            await trio.sleep(1)
    assert late <= 30 / 3
    assert sold(forge) <= 1 + 30 / 3


async def test_a_secret_that_turned_bad_is_told_and_the_token_serves_while_it_lives(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(CLIENTS["client-1"][0])
    file.chmod(0o600)
    client = application(ForgeTransport(selling()), ClientSecret(file=str(file)))
    first = await client.token()
    file.write_text("two\nlines\n")
    await trio.sleep(29 * DAY + 1)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            assert await client.token() == first
    assert [entry["what"] for entry in logs] == ["token of the application"]
    await trio.sleep(DAY)
    with pytest.raises(ConfigError, match="more than one line"):
        await client.token()


async def test_a_secret_that_turned_bad_is_told_as_soon_as_the_token_has_ended(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    file.write_text(CLIENTS["client-1"][0])
    file.chmod(0o600)
    client = application(ForgeTransport(selling()), ClientSecret(file=str(file)))
    first = await client.token()
    file.write_text("two\nlines\n")
    await trio.sleep(30 * DAY - 5)
    assert await client.token() == first
    await trio.sleep(6)
    with pytest.raises(ConfigError, match="more than one line"):
        await client.token()


async def test_a_token_that_has_ended_is_replaced_though_a_purchase_was_put_off(
    variable: str, autojump_clock: MockClock
) -> None:
    forge = selling()
    client = application(ForgeTransport(forge), ClientSecret(variable=variable))
    first = await client.token()
    await trio.sleep(30 * DAY - 4)
    forge.script.add(Rule(method="POST", path="/oauth/token", delay=60, times=1))
    with trio.move_on_after(3.5) as given_up:
        await client.token()
    assert given_up.cancelled_caught
    await trio.sleep(0.6)
    assert await client.token() not in {first, ""}, "one that has ended is no use, whoever gave up buying another"


async def test_a_token_that_ends_while_another_is_refused_is_not_handed_out(
    variable: str, autojump_clock: MockClock
) -> None:
    forge = selling()
    client = application(ForgeTransport(forge), ClientSecret(variable=variable))
    await client.token()
    await trio.sleep(30 * DAY - 4)
    forge.script.add(Rule(method="POST", path="/oauth/token", delay=60, times=1))
    with pytest.raises(ForgeUnavailable, match="no token within 10 s"):
        await client.token()


async def test_an_unreachable_forge_is_told_as_such(variable: str) -> None:
    client = application(ScriptedForge([httpx.ConnectError("refused")]), ClientSecret(variable=variable))
    with pytest.raises(ForgeUnavailable, match="cannot connect") as failed:
        await client.token()
    assert failed.value.outcome == "not_sent"


def test_a_secret_is_read_anew_when_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("the-first-secret\n")
    file.chmod(0o600)
    secret = ClientSecret(file=str(file))
    assert secret.read().reveal() == "the-first-secret"
    assert secret.read().reveal() == "the-first-secret"
    file.write_text("two\nlines\n")
    for _ in range(2):
        with pytest.raises(ConfigError, match="more than one line"):
            secret.read()
    file.write_text("the-second-secret")
    assert secret.read().reveal() == "the-second-secret"


def test_a_missing_secret_is_found_at_the_start() -> None:
    client = application(ScriptedForge([]), ClientSecret(variable="NO_SUCH_VARIABLE"))
    with pytest.raises(ConfigError, match="environment variable NO_SUCH_VARIABLE is not set"):
        client.check()
