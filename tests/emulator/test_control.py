"""The control path: another process scripts the forge and looks into it."""

from typing import Any

import httpx
import pytest

from compass_forged.emulator.app import Forge, ForgeSettings
from compass_forged.emulator.seed import default_seed
from tests.emulator.inprocess import TOKENS, Hand, client

ISSUES = "/repos/acme/site/issues"


@pytest.fixture
def forge(clock: Hand) -> Forge:
    return Forge(default_seed(TOKENS), settings=ForgeSettings(control_token="control"), clock=clock)


@pytest.fixture
def control(forge: Forge) -> httpx.AsyncClient:
    return client(forge, "control")


async def _change(control: httpx.AsyncClient, **change: Any) -> httpx.Response:
    return await control.post("/_forge/change", json=change)


async def test_control_needs_its_token(forge: Forge, author: httpx.AsyncClient, nobody: httpx.AsyncClient) -> None:
    for who in (author, nobody):
        answer = await who.get("/_forge/state")
        assert (answer.status_code, "control token" in answer.json()["error"]) == (401, True)
    without = client(Forge(default_seed(TOKENS)), "control")
    assert (await without.get("/_forge/state")).status_code == 404
    assert forge.log.count() == 0


async def test_script_log_and_state(forge: Forge, control: httpx.AsyncClient, author: httpx.AsyncClient) -> None:
    rules = [{"method": "POST", "status": 502, "commit": True}, {"path": "/user", "status": 500}]
    assert (await control.post("/_forge/script", json=rules)).json() == {"pending": 2}
    assert (await control.post("/_forge/script", json={"path": "/meta", "drop": True})).json() == {"pending": 3}
    assert (await author.post(ISSUES, json={"title": "kept"})).status_code == 502
    state = (await control.get("/_forge/state")).json()
    assert state["commits"] == {"issue": 1}
    assert state["repositories"]["acme/site"]["issues"][3]["title"] == "kept"
    assert state["repositories"]["acme/site"]["issues"][0]["comments"][0]["author"] == "outsider"
    log = (await control.get("/_forge/log", params={"method": "POST"})).json()["requests"]
    assert [(each["login"], each["status"], each["body"]) for each in log] == [("forge-author", 502, {"title": "kept"})]
    for token in TOKENS.values():
        assert token not in str(state) + str(log)


async def test_changes(forge: Forge, control: httpx.AsyncClient, author: httpx.AsyncClient) -> None:
    for change in (
        {"change": "lock", "repo": "acme/site", "number": 1},
        {"change": "close", "repo": "acme/site", "number": 1, "by": "mona"},
        {"change": "delete", "repo": "acme/site", "number": 2},
        {"change": "transfer", "repo": "acme/site", "number": 3, "to": "acme/vault"},
        {"change": "delete_account", "login": "mona", "gone": True},
        {"change": "revoke_token", "token": TOKENS["outsider"]},
        {"change": "set_remaining", "login": "forge-author", "remaining": 100},
        {"change": "disable_issues", "repo": "acme/vault"},
        {"change": "archive", "repo": "acme/vault"},
        {"change": "rename", "repo": "acme/site", "to": "home"},
    ):
        assert (await _change(control, **change)).json() == {"ok": True}
    site, vault = forge.state.repo("acme/home"), forge.state.repo("acme/vault")
    assert (site.issues[1].locked, site.issues[1].state, site.issues[2].deleted) == (True, "closed", True)
    assert site.issues[3].transferred_to == (vault.id, 1)
    assert (vault.archived, vault.has_issues, forge.state.account("mona").presence) == (True, False, "gone")
    assert forge.state.caller(TOKENS["outsider"]) is None
    assert (await author.get("/user")).headers["x-ratelimit-remaining"] == "99"


async def test_changes_of_pull_requests(forge: Forge, control: httpx.AsyncClient) -> None:
    where = {"repo": "acme/site", "number": 3}
    comment = {"path": "a.txt", "line": 1, "body": "why?", "side": "RIGHT"}
    two = {**comment, "line": 2, "start_line": 1}
    for change in (
        {"change": "push", "repo": "acme/site", "branch": "topic", "files": [{"name": "a.txt", "new": "1\n2\n"}]},
        {
            "change": "review",
            **where,
            "review": {"author": "forge-reviewer", "event": "APPROVE", "comments": [comment, two]},
        },
        {"change": "reply", **where, "by": "mona", "to": 5_000_001, "body": "so"},
        {"change": "review", **where, "review": {"author": "forge-author", "body": "begun"}},
        {"change": "check", "repo": "acme/site", "branch": "topic", "name": "build", "conclusion": "failure"},
        {"change": "status", "repo": "acme/site", "branch": "topic", "context": "ci", "state": "success"},
        {"change": "merge", **where, "by": "mona"},
    ):
        answer = await _change(control, **change)
        assert answer.json() == {"ok": True}, change
    issues = (await control.get("/_forge/state")).json()["repositories"]["acme/site"]["issues"]
    assert issues[0]["pull_request"] is None
    shown = issues[2]["pull_request"]
    assert (shown["head"], shown["base"], shown["draft"], shown["merged"]) == ("topic", "main", False, True)
    assert [(each["author"], each["state"]) for each in shown["reviews"]] == [
        ("forge-reviewer", "APPROVED"),
        ("mona", "COMMENTED"),
        ("forge-author", "PENDING"),
    ]
    placed = [(each["author"], each["start_line"], each["line"], each["body"]) for each in shown["review_comments"]]
    assert placed == [
        ("forge-reviewer", None, 1, "why?"),
        ("forge-reviewer", 1, 2, "why?"),
        ("mona", None, 1, "so"),
    ]
    site = forge.state.repo("acme/site")
    assert [each.conclusion for each in site.check_runs if each.sha == shown["head_sha"]] == ["failure"]
    assert [each.state for each in site.statuses if each.sha == shown["head_sha"]] == ["success"]


async def test_seed_and_reset(forge: Forge, control: httpx.AsyncClient) -> None:
    seed = {"accounts": [{"login": "new"}], "tokens": {"new-token": "new"}}
    assert (await control.post("/_forge/seed", json=seed)).json() == {"ok": True}
    assert (await client(forge, "new-token").get("/user")).json()["login"] == "new"
    assert (await control.post("/_forge/reset")).json() == {"ok": True}
    assert (await client(forge, "new-token").get("/user")).status_code == 401


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/_forge/script", {"label": 1}, "unknown name"),
        ("/_forge/script", None, "a rule is an object"),
        ("/_forge/change", {"change": "rename", "repo": "acme/site", "to": 3}, "rpartition"),
        ("/_forge/seed", {"label": 1}, "unknown name"),
        ("/_forge/change", {"change": "explode"}, "known are rename"),
        ("/_forge/change", {"change": "lock", "repo": "acme/site"}, "number"),
        ("/_forge/change", {"change": "lock", "repo": "acme/site", "number": 77}, "not there"),
        ("/_forge/change", {}, "change"),
        ("/_forge/change", {"change": "merge", "repo": "acme/site", "number": 1, "by": "mona"}, "no pull request"),
        (
            "/_forge/change",
            {"change": "push", "repo": "acme/site", "branch": "b", "files": [{"label": 1}]},
            "unknown name",
        ),
    ],
)
async def test_mistakes_are_answered(control: httpx.AsyncClient, path: str, body: Any, says: str) -> None:
    answer = await control.post(path, json=body)
    assert answer.status_code == 400
    assert says in answer.json()["error"]


async def test_unknown_control_paths(control: httpx.AsyncClient) -> None:
    nothing = await control.get("/_forge/nothing")
    assert nothing.status_code == 404
    assert "GET /_forge/log, GET /_forge/state, POST /_forge/script" in nothing.json()["error"]
    assert (await control.get("/_forge/reset")).status_code == 404
    assert (await control.post("/_forge/script", content=b"{")).status_code == 400
