"""Apps on the bundled forge: the claim, the token, what it may do and how long."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest

from compass_forged.emulator.app import Forge
from compass_forged.emulator.seed import BadSeed, default_seed
from tests.emulator.inprocess import TOKENS, Hand, client
from tests.emulator.openapi import documents
from tests.support.apps import APP_ID, CLIENT_ID, INSTALLATION_ID, app_seed, key_file

ACCESS_TOKENS = f"/app/installations/{INSTALLATION_ID}/access_tokens"


def seed(**app: Any) -> Mapping[str, Any]:
    return {**default_seed(TOKENS), "apps": [app_seed(**app)]}


@pytest.fixture
def forge(clock: Hand) -> Forge:
    return Forge(seed(), clock=clock)


@pytest.fixture
def key(tmp_path: Path) -> str:
    return key_file(tmp_path).read_text()


def claim(clock: Hand, key: str, **other: Any) -> str:
    now = int(clock.now.timestamp())
    return jwt.encode({"iss": str(APP_ID), "iat": now - 60, "exp": now + 540, **other}, key, algorithm="RS256")


def check_shape(method: str, path: str, answer: httpx.Response) -> None:
    for document in documents():
        assert document.errors(method, path, answer.status_code, answer.json()) == []


@pytest.mark.parametrize("issuer", [str(APP_ID), CLIENT_ID])
async def test_an_app_is_told_who_it_is_and_given_a_token(forge: Forge, clock: Hand, key: str, issuer: str) -> None:
    app = client(forge, claim(clock, key, iss=issuer))
    itself = await app.get("/app")
    assert (itself.status_code, itself.json()["slug"], itself.json()["id"]) == (200, "compass", APP_ID)
    check_shape("get", "/app", itself)
    given = await app.post(ACCESS_TOKENS)
    assert given.status_code == 201
    check_shape("post", "/app/installations/{installation_id}/access_tokens", given)
    assert len(given.json()["token"]) > 400
    bot = client(forge, given.json()["token"])
    made = await bot.post("/repos/acme/vault/issues", json={"title": "t"})
    assert (made.status_code, made.json()["user"]["login"], made.json()["user"]["type"]) == (201, "compass[bot]", "Bot")
    assert (await bot.get("/user")).json()["message"] == "Resource not accessible by integration"


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({"exp": 601}, "too far in the future"),
        ({"exp": -1}, "must be a numeric value"),
        ({"iat": 1}, "'Issued at'"),
        ({"iss": "12"}, "Integration not found"),
    ],
)
async def test_a_claim_is_refused_in_githubs_words(
    forge: Forge, clock: Hand, key: str, times: dict[str, Any], message: str
) -> None:
    now = int(clock.now.timestamp())
    moved = {name: value if name == "iss" else now + value for name, value in times.items()}
    refused = await client(forge, claim(clock, key, **moved)).get("/app")
    assert refused.status_code == 401
    assert message in refused.json()["message"]


async def test_a_claim_that_another_key_signed_or_that_is_none_is_refused(forge: Forge, clock: Hand, key: str) -> None:
    signed = claim(clock, key)
    forged = signed[:-8] + "AAAAAAAA"
    unsigned = jwt.encode({"iss": str(APP_ID)}, "", algorithm="none")
    for text in (forged, unsigned, "no.claim.atall", TOKENS["forge-author"]):
        refused = await client(forge, text).post(ACCESS_TOKENS)
        assert (refused.status_code, refused.json()["message"]) == (401, "A JSON web token could not be decoded")
    assert (await client(forge).get("/app")).status_code == 401
    assert (await client(forge, signed).get("/repos/acme/site")).json()["message"] == "Bad credentials"


async def test_a_token_ends_after_an_hour(forge: Forge, clock: Hand, key: str) -> None:
    token = (await client(forge, claim(clock, key)).post(ACCESS_TOKENS)).json()["token"]
    bot = client(forge, token)
    clock.now += timedelta(minutes=59)
    assert (await bot.get("/repos/acme/vault")).status_code == 200
    clock.now += timedelta(minutes=1)
    assert (await bot.get("/repos/acme/vault")).json()["message"] == "Bad credentials"


async def test_an_unknown_or_suspended_installation_gets_no_token(forge: Forge, clock: Hand, key: str) -> None:
    app = client(forge, claim(clock, key))
    assert (await app.post("/app/installations/7/access_tokens")).status_code == 404
    (registered,) = forge.state.apps.all()
    registered.installations[INSTALLATION_ID].suspended = True
    assert (await app.post(ACCESS_TOKENS)).json()["message"] == "This installation has been suspended"


@pytest.mark.parametrize(
    ("granted", "method", "path", "accepted"),
    [
        ({}, "GET", "/repos/acme/site", "metadata=read"),
        ({"metadata": "read"}, "GET", "/repos/acme/site", ""),
        ({"issues": "read"}, "POST", "/repos/acme/site/issues", "issues=write"),
        ({"issues": "write"}, "POST", "/repos/acme/site/issues", ""),
        ({"issues": "read"}, "GET", "/repos/acme/site/issues", ""),
        ({}, "POST", "/repos/acme/site/issues/1/comments", "issues=write; pull_requests=write"),
        ({"pull_requests": "write"}, "POST", "/repos/acme/site/issues/1/comments", ""),
        ({}, "GET", "/rate_limit", ""),
    ],
)
@pytest.mark.parametrize("login", ["forge-author", "compass[bot]"])
async def test_a_token_may_do_what_it_was_granted(
    forge: Forge, login: str, granted: dict[str, str], method: str, path: str, accepted: str
) -> None:
    forge.state.grant_token("limited-token", login, permissions=granted)
    answer = await client(forge, "limited-token").request(method, path, json={"title": "t", "body": "b"})
    assert answer.headers.get("x-accepted-github-permissions", "") == accepted
    if accepted:
        who = "integration" if login == "compass[bot]" else "personal access token"
        assert (answer.status_code, answer.json()["message"]) == (403, f"Resource not accessible by {who}")
    else:
        assert answer.is_success


async def test_a_users_token_that_ends_says_when(forge: Forge, clock: Hand) -> None:
    forge.state.grant_token("passing-token", "forge-author", ends=clock.now + timedelta(days=3))
    answer = await client(forge, "passing-token").get("/user")
    assert answer.headers["github-authentication-token-expiration"] == "2026-05-07 03:02:01 UTC"
    assert "github-authentication-token-expiration" not in (await client(forge, "author-token").get("/user")).headers


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ({"color": "red"}, "unknown name 'color'"),
        ({"installations": [{"id": 1, "account": "nobody"}]}, "nobody"),
    ],
)
def test_a_seed_with_a_wrong_app_is_named(app: dict[str, Any], words: str) -> None:
    with pytest.raises(BadSeed, match=words):
        Forge(seed(**app))


def test_two_apps_of_one_id_are_refused() -> None:
    with pytest.raises(BadSeed, match="the id is taken"):
        Forge({"accounts": [{"login": "acme"}], "apps": [app_seed(), app_seed()]})


def test_an_app_may_ask_for_less() -> None:
    forge = Forge(seed(permissions={"issues": "read"}))
    (registered,) = forge.state.apps.all()
    assert registered.permissions == {"issues": "read"}
