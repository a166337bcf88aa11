"""Rate limits are counted, shown and refused as on GitHub."""

from datetime import timedelta

import httpx
import pytest

from compass_forged.emulator.app import Forge, ForgeSettings
from compass_forged.emulator.limits import LimitSettings
from compass_forged.emulator.seed import default_seed
from tests.emulator.inprocess import START, TOKENS, Hand, client

ISSUES = "/repos/acme/site/issues"


def _forge(clock: Hand, limits: LimitSettings) -> Forge:
    return Forge(default_seed(TOKENS), settings=ForgeSettings(limits), clock=clock)


def _window(answer: httpx.Response) -> tuple[int, int, int]:
    limit, remaining, used = (int(answer.headers[f"x-ratelimit-{name}"]) for name in ("limit", "remaining", "used"))
    return limit, remaining, used


async def test_each_account_has_its_own_count(
    author: httpx.AsyncClient, outsider: httpx.AsyncClient, nobody: httpx.AsyncClient, forge: Forge
) -> None:
    assert _window(await author.get("/user")) == (5000, 4999, 1)
    assert _window(await author.get("/nothing")) == (5000, 4998, 2)
    assert _window(await outsider.get("/user")) == (5000, 4999, 1)
    assert _window(await nobody.get("/meta")) == (60, 59, 1)
    assert _window(await client(forge, "bad").get("/user")) == (60, 58, 2)
    forge.state.grant_token("second", "forge-author")
    assert _window(await client(forge, "second").get("/user")) == (5000, 4997, 3)


async def test_asking_for_the_limits_is_free(author: httpx.AsyncClient) -> None:
    await author.get("/user")
    answer = await author.get("/rate_limit")
    reset = int(START.timestamp()) + 3600
    assert answer.json()["rate"] == {"limit": 5000, "used": 1, "remaining": 4999, "reset": reset}
    assert answer.json()["resources"]["search"]["limit"] == 30
    assert _window(answer) == (5000, 4999, 1)


@pytest.mark.parametrize("status", [403, 429])
async def test_used_up_until_the_reset(clock: Hand, status: int) -> None:
    forge = _forge(clock, LimitSettings(per_hour=2, refusal_status=status))
    author = client(forge, TOKENS["forge-author"])
    made = [await author.post(ISSUES, json={"title": "t"}) for _ in range(3)]
    assert [each.status_code for each in made] == [201, 201, status]
    assert [_window(each)[1] for each in made] == [1, 0, 0]
    assert made[2].json()["message"].startswith("API rate limit exceeded for user ID")
    assert made[2].headers["x-github-request-id"] in made[2].json()["message"]
    assert _window(made[2]) == (2, 0, 2)
    assert forge.state.commits["issue"] == 2
    assert (await author.get("/rate_limit")).status_code == 200
    assert (await client(forge, TOKENS["forge-reviewer"]).get("/user")).status_code == 200
    clock.now = START + timedelta(hours=1)
    assert _window(await author.get("/user")) == (2, 1, 1)


async def test_anonymous_limit_names_the_address(clock: Hand) -> None:
    nobody = client(_forge(clock, LimitSettings(anonymous_per_hour=1)))
    await nobody.get("/meta")
    assert "for your address" in (await nobody.get("/meta")).json()["message"]


async def test_limits_can_be_off(clock: Hand) -> None:
    forge = _forge(clock, LimitSettings(per_hour=None))
    author = client(forge, TOKENS["forge-author"])
    answer = await author.get("/user")
    assert "x-ratelimit-remaining" not in answer.headers
    assert (await author.get("/rate_limit")).status_code == 404
    forge.limits.set_remaining(1001, 0, clock.now)
    assert (await author.get("/user")).status_code == 200


async def test_remaining_can_be_set(forge: Forge, author: httpx.AsyncClient, clock: Hand) -> None:
    account = forge.state.account("forge-author")
    forge.limits.set_remaining(account.id, 1, clock.now)
    assert _window(await author.get("/user")) == (5000, 0, 5000)
    assert (await author.get("/user")).status_code == 403


async def test_creations_are_throttled_by_the_minute_and_the_hour(clock: Hand) -> None:
    forge = _forge(clock, LimitSettings(creations_per_minute=2, creations_per_hour=3))
    author = client(forge, TOKENS["forge-author"])

    async def create() -> httpx.Response:
        return await author.post(f"{ISSUES}/1/comments", json={"body": "b"})

    assert (await author.post(ISSUES, json={"title": "t"})).status_code == 201
    clock.now += timedelta(seconds=20)
    assert (await create()).status_code == 201
    refused = await create()
    assert (refused.status_code, refused.headers["retry-after"]) == (403, "40")
    assert "secondary rate limit" in refused.json()["message"]
    assert int(refused.headers["x-ratelimit-remaining"]) > 0
    assert (await author.get("/user")).status_code == 200
    clock.now += timedelta(seconds=40)
    assert (await create()).status_code == 201
    clock.now += timedelta(minutes=5)
    assert int((await create()).headers["retry-after"]) == 3600 - 360
    clock.now += timedelta(hours=1)
    assert (await create()).status_code == 201
