"""Lists, pages, conditional requests and names, as GitHub gives them."""

from datetime import timedelta
from typing import Any

import httpx
import pytest

from compass_forged.emulator.app import Forge, ForgeSettings
from compass_forged.emulator.seed import default_seed
from tests.emulator.inprocess import TOKENS, Hand, client

ISSUES = "/repos/acme/site/issues"


def _numbers(answer: httpx.Response) -> list[int]:
    return [each["number"] for each in answer.json()]


async def _numbers_of(who: httpx.AsyncClient, **query: str) -> list[int]:
    return _numbers(await who.get(ISSUES, params=query))


@pytest.fixture
def history(forge: Forge, clock: Hand) -> Forge:
    """Three seeded entries at the start, then 4 (a day later, closed), 5 (two days later, both labels)."""
    state = forge.state
    site, mona = state.repo("acme/site"), state.account("mona")
    clock.now += timedelta(days=1)
    state.set_issue_state(state.add_issue(site, mona, "four", labels=["Bug"]), "closed", mona)
    clock.now += timedelta(days=1)
    state.add_issue(site, state.account("outsider"), "five", labels=["docs", "bug"], assignees=[mona])
    clock.now += timedelta(days=1)
    state.add_comment(state.issue("acme/site", 2), mona, "late")
    return forge


async def test_list_holds_pull_requests_and_shares_numbers(author: httpx.AsyncClient) -> None:
    shown = (await author.get(ISSUES)).json()
    assert [(each["number"], "pull_request" in each) for each in shown] == [(3, True), (2, False), (1, False)]
    assert shown[0]["pull_request"]["url"].endswith("/repos/acme/site/pulls/3")
    assert shown[0]["html_url"].endswith("/acme/site/pull/3")
    made = await author.post(ISSUES, json={"title": "t"})
    assert made.json()["number"] == 4
    assert made.headers["location"] == made.json()["url"] == "http://forge.test/repos/acme/site/issues/4"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, [5, 3, 2, 1]),
        ({"state": "closed"}, [4]),
        ({"state": "all"}, [5, 4, 3, 2, 1]),
        ({"labels": "bug", "state": "all"}, [5, 4, 1]),
        ({"labels": "BUG, docs"}, [5]),
        ({"labels": "bug,none"}, []),
        ({"labels": ","}, [5, 3, 2, 1]),
        ({"creator": "OUTSIDER"}, [5, 2]),
        ({"creator": "nobody-such"}, []),
        ({"assignee": "mona"}, [5]),
        ({"assignee": "nobody-such"}, []),
        ({"assignee": "*"}, [5]),
        ({"assignee": "none"}, [3, 2, 1]),
        ({"sort": "updated"}, [2, 5, 3, 1]),
        ({"sort": "comments", "direction": "asc"}, [3, 5, 1, 2]),
        ({"direction": "asc", "state": "all"}, [1, 2, 3, 4, 5]),
        ({"since": "2026-05-05T03:02:01Z", "state": "all"}, [5, 4, 2]),
        ({"since": "2026-05-05T03:02:02", "state": "all"}, [5, 2]),
        ({"since": "", "state": "closed"}, [4]),
    ],
)
async def test_filters_and_orders(
    history: Forge, author: httpx.AsyncClient, query: dict[str, str], expected: list[int]
) -> None:
    assert await _numbers_of(author, **query) == expected


async def test_pages_are_linked_as_on_github(author: httpx.AsyncClient) -> None:
    for number in range(4, 14):
        await author.post(ISSUES, json={"title": f"issue {number}"})
    repo_id = (await author.get("/repos/acme/site")).json()["id"]
    base = f"http://forge.test/repositories/{repo_id}/issues?per_page=3"
    first, middle, last = [await author.get(ISSUES, params={"per_page": 3, "page": page}) for page in (1, 2, 5)]
    assert first.headers["link"] == f'<{base}&page=2>; rel="next", <{base}&page=5>; rel="last"'
    assert middle.headers["link"] == (
        f'<{base}&page=1>; rel="prev", <{base}&page=3>; rel="next", <{base}&page=5>; rel="last", '
        f'<{base}&page=1>; rel="first"'
    )
    assert last.headers["link"] == f'<{base}&page=4>; rel="prev", <{base}&page=1>; rel="first"'
    assert _numbers(last) == [1]
    seen: list[int] = []
    page: httpx.Response | None = first
    while page is not None:
        seen += _numbers(page)
        page = await author.get(page.links["next"]["url"]) if "next" in page.links else None
    assert seen == list(range(13, 0, -1))


async def test_links_keep_the_query_and_are_absent_on_one_page(author: httpx.AsyncClient) -> None:
    answer = await author.get(ISSUES, params={"labels": "bug", "state": "all", "per_page": "1", "page": "2"})
    assert answer.json() == []
    assert "link" not in answer.headers
    two = await author.get(f"{ISSUES}?state=all&labels=&per_page=2")
    assert "state=all&per_page=2&page=2" in two.links["next"]["url"]
    beyond = await author.get(ISSUES, params={"per_page": "2", "page": "9"})
    assert beyond.json() == []
    assert beyond.links["prev"]["url"].endswith("page=2")


@pytest.mark.parametrize(
    ("query", "count"),
    [("", 30), ("per_page=101", 100), ("per_page=0", 30), ("per_page=x", 30), ("page=0", 30), ("page=%C2%B2", 30)],
)
async def test_page_sizes(forge: Forge, author: httpx.AsyncClient, query: str, count: int) -> None:
    site, mona = forge.state.repo("acme/site"), forge.state.account("mona")
    for _ in range(100):
        forge.state.add_issue(site, mona, "t")
    assert len((await author.get(f"{ISSUES}?{query}")).json()) == count


async def test_comments_are_oldest_first_paged_and_since(history: Forge, author: httpx.AsyncClient) -> None:
    path = f"{ISSUES}/1/comments"
    made = await author.post(path, json={"body": "second"})
    assert made.headers["location"] == made.json()["url"]
    assert (await author.get(made.headers["location"])).json() == made.json()
    assert [each["body"] for each in (await author.get(path)).json()] == ["I see the same.", "second"]
    assert [each["body"] for each in (await author.get(path, params={"per_page": 1, "page": 2})).json()] == ["second"]
    assert len((await author.get(path, params={"since": "2026-05-06T00:00:00Z"})).json()) == 1
    assert (await author.get(f"{ISSUES}/1")).json()["comments"] == 2
    other = f"/repos/acme/vault/issues/comments/{made.json()['id']}"
    assert (await author.get(other)).status_code == 404


async def test_names_compare_without_case_and_come_back_canonical(author: httpx.AsyncClient) -> None:
    answer = await author.get("/repos/ACME/Site/issues/1")
    assert answer.json()["repository_url"] == "http://forge.test/repos/acme/site"
    repo = (await author.get("/repos/aCme/sItE")).json()
    assert (repo["full_name"], repo["open_issues_count"]) == ("acme/site", 3)
    by_id = await author.get(f"/repositories/{repo['id']}")
    assert by_id.json() == repo


async def test_encoded_slash_stays_in_its_segment(author: httpx.AsyncClient) -> None:
    made = await author.post("/repos/acme/site/labels", json={"name": "area/ui"})
    assert made.headers["location"].endswith("/labels/area%2Fui")
    assert (await author.get(made.headers["location"])).json()["name"] == "area/ui"
    assert (await author.get("/repos/acme/site/labels/area/ui")).status_code == 404


async def test_not_modified_is_free_and_bound_to_the_token(
    author: httpx.AsyncClient, nobody: httpx.AsyncClient, outsider: httpx.AsyncClient
) -> None:
    first = await author.get(ISSUES)
    tag = {"if-none-match": first.headers["etag"]}
    assert first.headers["etag"].startswith('W/"')
    again = await author.get(ISSUES, headers=tag)
    assert (again.status_code, again.content) == (304, b"")
    assert "content-length" not in again.headers
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["x-ratelimit-used"] == first.headers["x-ratelimit-used"]
    assert (await outsider.get(ISSUES, headers=tag)).status_code == 200
    assert (await author.get(ISSUES, headers=tag | {"accept": "application/json"})).status_code == 200
    await author.post(ISSUES, json={"title": "t"})
    changed = await author.get(ISSUES, headers={"if-none-match": f'"x", {first.headers["etag"]}'})
    assert changed.status_code == 200
    anonymous = await nobody.get(ISSUES)
    unchanged = await nobody.get(ISSUES, headers={"if-none-match": anonymous.headers["etag"].removeprefix("W/")})
    assert unchanged.status_code == 304
    assert int(unchanged.headers["x-ratelimit-used"]) == int(anonymous.headers["x-ratelimit-used"]) + 1


async def test_usual_headers(forge: Forge, author: httpx.AsyncClient) -> None:
    answer = await author.get(f"{ISSUES}/1")
    assert answer.headers["date"] == "Mon, 04 May 2026 03:02:01 GMT"
    assert answer.headers["last-modified"] == "Mon, 04 May 2026 03:02:01 GMT"
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.headers["x-github-media-type"] == "github.v3; format=json"
    assert answer.headers["x-github-api-version-selected"] == "2022-11-28"
    other = await author.get(f"{ISSUES}/1")
    assert answer.headers["x-github-request-id"] != other.headers["x-github-request-id"]


async def test_head_has_no_body(author: httpx.AsyncClient) -> None:
    answer = await author.head(f"{ISSUES}/1")
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


async def test_deleted_accounts_are_ghosts_or_null(forge: Forge, author: httpx.AsyncClient) -> None:
    forge.state.delete_account("mona", "ghost")
    forge.state.delete_account("outsider", "gone")
    assert (await author.get(f"{ISSUES}/1")).json()["user"]["login"] == "ghost"
    assert (await author.get(f"{ISSUES}/2")).json()["user"] is None
    assert (await client(forge, TOKENS["outsider"]).get("/user")).status_code == 401


async def test_same_requests_give_the_same_answers(clock: Hand) -> None:
    async def play() -> list[Any]:
        who = client(Forge(default_seed(TOKENS), clock=clock), TOKENS["forge-author"])
        await who.post(ISSUES, json={"title": "t", "labels": ["new"]})
        await who.post(f"{ISSUES}/4/comments", json={"body": "b"})
        return [(await who.get(f"{ISSUES}/4")).json(), (await who.get(f"{ISSUES}/4/comments")).json()]

    assert await play() == await play()


async def test_enterprise_server(clock: Hand) -> None:
    seed = default_seed(TOKENS)
    forge = Forge(seed, settings=ForgeSettings(enterprise="3.19.0", prefix="/api/v3"), clock=clock)
    forge.limits.settings.per_hour = None
    who = client(forge, TOKENS["forge-author"])
    answer = await who.get("/api/v3/repos/acme/site/issues/1")
    assert answer.json()["url"] == "http://forge.test/api/v3/repos/acme/site/issues/1"
    assert answer.json()["html_url"] == "http://forge.test/acme/site/issues/1"
    assert answer.headers["x-github-enterprise-version"] == "enterprise-server@3.19.0"
    assert not [name for name in answer.headers if name.startswith("x-ratelimit")]
    assert (await who.get("/api/v3/meta")).json()["installed_version"] == "3.19.0"
    for path in ("/api/v3/rate_limit", "/api/v3/versions", "/user"):
        assert (await who.get(path)).status_code == 404
    later = {"x-github-api-version": "2026-03-10"}
    assert (await who.get("/api/v3/user", headers=later)).status_code == 400
