"""Scripted answers, delays, drops and truncations; the log and the counts of side effects."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import trio

from compass_forged.emulator.app import Forge
from compass_forged.emulator.asgi import ConnectionDropped
from compass_forged.emulator.script import LOG_MAX_ENTRIES, Rule, rule_from_json
from compass_forged.emulator.seed import default_seed
from compass_forged.emulator.state import loop_clock
from tests.emulator.inprocess import BASE_URL, TOKENS, client

ISSUES = "/repos/acme/site/issues"


async def test_answer_replaces_the_effect(forge: Forge, author: httpx.AsyncClient) -> None:
    forge.script.add(Rule("POST", "/repos/*/issues", status=503, headers={"Retry-After": "7"}, body={"message": "no"}))
    answer = await author.post(ISSUES, json={"title": "t"})
    assert (answer.status_code, answer.json(), answer.headers["retry-after"]) == (503, {"message": "no"}, "7")
    assert answer.headers["x-ratelimit-limit"] == "5000"
    assert forge.state.commits["issue"] == 0
    assert (await author.post(ISSUES, json={"title": "t"})).status_code == 201
    assert forge.script.pending == 0


async def test_commit_then_bad_gateway(forge: Forge, author: httpx.AsyncClient) -> None:
    forge.script.add(Rule("POST", commit=True, status=502, headers={"content-type": "text/html"}, body="<h1>502</h1>"))
    answer = await author.post(ISSUES, json={"title": "kept"})
    assert (answer.status_code, answer.text, answer.headers["content-type"]) == (502, "<h1>502</h1>", "text/html")
    assert forge.state.commits["issue"] == 1
    assert forge.state.issue("acme/site", 4).title == "kept"


async def test_rules_match_in_order_skip_and_are_used_up(forge: Forge, author: httpx.AsyncClient) -> None:
    forge.script.add(Rule("GET", "/user", skip=1, times=2, status=500), Rule("*", "/meta", status=404, body=b"\x00"))
    statuses = [(await author.get("/user")).status_code for _ in range(4)]
    assert statuses == [200, 500, 500, 200]
    raw = await author.get("/meta")
    assert (raw.status_code, raw.content) == (404, b"\x00")
    assert "content-type" not in raw.headers
    forge.script.add(Rule(status=500))
    forge.script.clear()
    assert (await author.get("/user")).status_code == 200


async def test_own_answer_with_other_headers(forge: Forge, author: httpx.AsyncClient) -> None:
    forge.script.add(Rule(headers={"X-RateLimit-Remaining": "0"}))
    answer = await author.get("/user")
    assert (answer.status_code, answer.headers["x-ratelimit-remaining"]) == (200, "0")
    assert answer.json()["login"] == "forge-author"


@pytest.mark.parametrize("commit", [True, False])
async def test_drop(forge: Forge, author: httpx.AsyncClient, commit: bool) -> None:
    forge.script.add(Rule("POST", drop=True, commit=commit))
    with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
        await author.post(ISSUES, json={"title": "t"})
    assert forge.state.commits["issue"] == int(commit)
    assert forge.log.find("POST")[0].status is None


async def test_drop_through_httpx_own_transport(forge: Forge) -> None:
    forge.script.add(Rule(drop=True))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=forge), base_url=BASE_URL) as plain:
        with pytest.raises(ConnectionDropped):
            await plain.get("/meta")
        assert (await plain.get("/meta")).status_code == 200


async def test_truncation(forge: Forge, author: httpx.AsyncClient) -> None:
    forge.script.add(Rule("POST", truncate=20), Rule("POST", truncate=1_000_000))
    with pytest.raises(httpx.RemoteProtocolError, match="complete message body"):
        await author.post(ISSUES, json={"title": "t"})
    assert forge.state.commits["issue"] == 1
    assert (await author.post(ISSUES, json={"title": "t"})).status_code == 201


async def test_an_hour_of_delay_takes_no_time(autojump_clock: object) -> None:
    forge = Forge(default_seed(TOKENS), clock=loop_clock(datetime(2026, 1, 1, tzinfo=UTC)))
    author = client(forge, TOKENS["forge-author"])
    forge.script.add(Rule("POST", delay=3600), Rule("POST", delay_after=3600))
    began = trio.current_time()
    late = (await author.post(ISSUES, json={"title": "t"})).json()
    assert trio.current_time() - began == pytest.approx(3600)
    assert late["created_at"] == "2026-01-01T01:00:00Z"
    slow = await author.post(ISSUES, json={"title": "t"})
    assert slow.json()["created_at"] == "2026-01-01T01:00:00Z"
    assert slow.headers["date"] == "Thu, 01 Jan 2026 01:00:00 GMT"
    assert trio.current_time() - began == pytest.approx(7200)


async def test_giving_up_during_a_delay_leaves_the_effect_on_the_right_side(autojump_clock: object) -> None:
    forge = Forge(default_seed(TOKENS))
    author = client(forge, TOKENS["forge-author"])
    for rule, committed in ((Rule(delay=10), 0), (Rule(delay_after=10), 1)):
        forge.script.add(rule)
        with trio.move_on_after(5) as scope:
            await author.post(ISSUES, json={"title": "t"})
        assert scope.cancelled_caught
        assert forge.state.commits["issue"] == committed


async def test_log_says_who_asked_what_and_never_the_token(forge: Forge, author: httpx.AsyncClient) -> None:
    await author.post(f"{ISSUES}?x=1", json={"title": "t"})
    await author.post(ISSUES, content=b"no json")
    await client(forge, "bad-token").get("/user")
    forge.script.add(Rule(status=500))
    await author.get("/user")
    made, raw, bad, scripted = forge.log.find()
    assert (made.method, made.path, made.query, made.login) == ("POST", ISSUES, "x=1", "forge-author")
    assert (made.body, made.status, made.at, made.scripted) == ({"title": "t"}, 201, "2026-05-04T03:02:01Z", False)
    assert made.headers["content-type"] == "application/json"
    assert (raw.body, raw.status) == ("no json", 400)
    assert (bad.login, bad.status, bad.body) == (None, 401, None)
    assert (scripted.status, scripted.scripted) == (500, True)
    assert [each.number for each in forge.log.find()] == [1, 2, 3, 4]
    assert forge.log.count("POST", "/repos/*") == 2
    for token in (*TOKENS.values(), "bad-token"):
        assert token not in repr(forge.log.find())


def test_log_is_bounded(forge: Forge) -> None:
    for _ in range(LOG_MAX_ENTRIES + 5):
        forge.log.open("", "GET", "/", "", None, [], b"")
    assert forge.log.count() == LOG_MAX_ENTRIES
    assert forge.log.find()[-1].number == LOG_MAX_ENTRIES + 5


async def test_reset_goes_back_to_the_seed(forge: Forge, author: httpx.AsyncClient) -> None:
    await author.post(ISSUES, json={"title": "t"})
    forge.script.add(Rule(status=500))
    forge.reset()
    assert (forge.state.commits.total(), forge.log.count(), forge.script.pending) == (0, 0, 0)
    assert (await author.get(f"{ISSUES}/4")).status_code == 404
    assert (await author.get("/user")).headers["x-ratelimit-used"] == "2"


def test_rule_from_json_has_every_name() -> None:
    given: dict[str, Any] = {
        "method": "POST",
        "path": "/x",
        "times": 2,
        "skip": 1,
        "commit": True,
        "status": 500,
        "headers": {"a": "b"},
        "body": [1],
        "delay": 1,
        "delay_after": 0.5,
        "truncate": 3,
        "drop": False,
    }
    assert rule_from_json(given) == Rule(**given)


@pytest.mark.parametrize(
    "given", [{"state": 1}, {"times": True}, {"commit": 1}, {"headers": []}, {"status": "500"}, {"delay": None}]
)
def test_rule_from_json_refuses_mistakes(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^rule: .*(unknown name|wrong type)"):
        rule_from_json(given)
