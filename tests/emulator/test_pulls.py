"""Pull requests, reviews and checks on the bundled forge: what is refused, what has an effect, and on what."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from compass_forged.emulator.app import Forge
from compass_forged.emulator.pull_changes import NewComment, add_check_run, add_review, facts, push, reply, set_status
from compass_forged.emulator.records import ChangedFile
from compass_forged.emulator.state import UnknownName
from tests.emulator.inprocess import TOKENS

PULLS = "/repos/acme/site/pulls"
REVIEWS = f"{PULLS}/3/reviews"
NEW = {"title": "t", "head": "front-page", "base": "main"}
IMAGES = "src/images.js"
ENTRIES = {"path": IMAGES, "body": "b", "line": 5, "side": "RIGHT"}

As = Callable[[str], httpx.AsyncClient]


def review(*comments: dict[str, Any], event: str | None = "COMMENT", body: str = "b", **more: Any) -> dict[str, Any]:
    told: dict[str, Any] = {"body": body, **more}
    return told | ({"event": event} if event else {}) | ({"comments": list(comments)} if comments else {})


def at(line: int | None, **more: Any) -> dict[str, Any]:
    return {**ENTRIES, "line": line, **more}


def said(answer: httpx.Response) -> str:
    assert answer.status_code == 422, answer.text
    body = answer.json()
    errors = body.get("errors")
    if errors is None:
        return str(body["message"])
    (error,) = errors
    return error if isinstance(error, str) else str(error.get("message") or f"{error['field']} {error['code']}")


# --- pull requests --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"title": ""}, "title missing_field"),
        ({"title": "x" * 257}, "title is too long"),
        ({"body": "x" * 65_537}, "body is too long"),
        ({"head": None}, "nil is not a string"),
        ({"head": "none"}, "head invalid"),
        ({"head": "nobody:front-page"}, "head invalid"),
        ({"base": "none"}, "base invalid"),
        ({"head": "main"}, "No commits between main and main"),
        ({"head": "empty"}, "No commits between main and empty"),
        ({"head": "topic"}, "A pull request already exists for acme:topic."),
        ({"head": "ACME:topic"}, "A pull request already exists for acme:topic."),
        ({"draft": "yes"}, "is not a boolean"),
    ],
)
async def test_what_is_no_pull_request(
    forge: Forge, author: httpx.AsyncClient, change: dict[str, Any], why: str
) -> None:
    push(forge.state, forge.state.repo("acme/site"), "empty", [])
    assert why in said(await author.post(PULLS, json=NEW | change))
    assert not forge.state.commits


async def test_a_pull_request_needs_its_head_and_base(author: httpx.AsyncClient) -> None:
    for name in ("head", "base"):
        rest = {key: value for key, value in NEW.items() if key != name}
        told = said(await author.post(PULLS, json=rest))
        assert told.startswith("Invalid request.")
        assert f'"{name}"' in told


async def test_who_may_write_to_the_head_opens_it(forge: Forge, author: httpx.AsyncClient, as_login: As) -> None:
    state = forge.state
    assert (await as_login("outsider").post(PULLS, json=NEW)).status_code == 403
    fork = state.add_repo("outsider", "site", fork_of="acme/site")
    push(state, fork, "front-page", [ChangedFile("a", "@@ -0,0 +1 @@\n+a")])
    theirs = await as_login("outsider").post(PULLS, json=NEW | {"head": "outsider:front-page"})
    ours = await author.post(PULLS, json=NEW)
    assert (theirs.status_code, ours.status_code) == (201, 201)
    assert theirs.json()["head"]["repo"]["full_name"] == "outsider/site"
    assert (theirs.json()["head"]["label"], ours.json()["head"]["label"]) == ("outsider:front-page", "acme:front-page")
    assert state.commits["pull_request"] == 2
    found = [each["number"] for each in (await author.get(f"{PULLS}?head=outsider:front-page")).json()]
    assert found == [theirs.json()["number"]]
    forge.state.repo("acme/site").archived = True
    assert (await author.post(PULLS, json=NEW | {"head": "how-to-test"})).status_code == 403


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("", [5, 4]),
        ("?state=closed", [3]),
        ("?state=all&direction=asc", [3, 4, 5]),
        ("?state=all&sort=updated", [3, 5, 4]),
        ("?head=acme:front-page", [4]),
        ("?head=front-page", [5, 4]),  # without an owner it filters nothing
        ("?base=topic", [5]),
        ("?base=none", []),
        ("?per_page=1&page=2", [4]),
    ],
)
async def test_lists(forge: Forge, author: httpx.AsyncClient, clock: Any, query: str, numbers: list[int]) -> None:
    from datetime import timedelta

    await author.post(PULLS, json=NEW)
    await author.post(PULLS, json=NEW | {"head": "how-to-test", "base": "topic", "draft": True})
    clock.now += timedelta(seconds=9)
    forge.state.set_issue_state(forge.state.issue("acme/site", 3), "closed", forge.state.account("mona"))
    assert [each["number"] for each in (await author.get(PULLS + query)).json()] == numbers


async def test_files_have_patches_where_there_are_any(forge: Forge, author: httpx.AsyncClient) -> None:
    files = [ChangedFile("a b.txt", "@@ -1 +1,2 @@\n x\n+y"), ChangedFile("picture.png", None, "renamed", "old.png")]
    push(forge.state, forge.state.repo("acme/site"), "topic", files)
    text, picture = (await author.get(f"{PULLS}/3/files")).json()
    assert (text["patch"], text["additions"], text["deletions"]) == ("@@ -1 +1,2 @@\n x\n+y", 1, 0)
    assert "patch" not in picture
    assert (picture["status"], picture["previous_filename"]) == ("renamed", "old.png")
    assert (await author.get(f"{PULLS}/3")).json()["changed_files"] == 2


# --- reviews --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (review(event="LIKE"), "is not a member of"),
        (review(event="COMMENT", body=" "), "You need to leave a comment"),
        (review(event="REQUEST_CHANGES", body=""), "You need to leave a comment"),
        ({"event": "APPROVE", "body": 3}, "is not a string"),
        (review(body="x" * 65_537), "Body is too long"),
        (review(commit_id="0" * 40), "commit_id is not part of the pull request"),
        (review(at(15)), "Line could not be resolved"),
        (review(at(5, path="none")), "Path could not be resolved"),
        (
            review(at(15), at(5, path="none"), at(16)),
            "Line could not be resolved, Path could not be resolved, and Line",
        ),
        (review(at(15), at(5), at(5, path="none")), "Line could not be resolved and Path could not be resolved"),
        (review(at(6, start_line=6)), "start line must precede the end line"),
        (review(at(6, start_line=7)), "start line must precede the end line"),
        (review(at(5, side="LEFT", start_line=5, start_side="RIGHT")), "start line must precede the end line"),
        (review(at(25, start_line=5)), "start line must be part of the same hunk as the line"),
        (review(at(25, start_line=15)), "Start line could not be resolved"),
        (review(at(None)), "line must be part of the diff"),
        (review(at(5, body=" ")), "Body can't be blank"),
        (review(at(5, body="x" * 65_537)), "Body is too long"),
        (review(at(5, side="MIDDLE")), "Side is not included"),
        (review(at(5, subject_type="file")), "is not a permitted key"),
        (review({**ENTRIES, "line": "5"}), "is not an integer"),
        ({"comments": {}}, "is not an array"),
        ({"comments": [3]}, "is not an object"),
        ({"comments": [{"body": "b", "line": 3}]}, "wasn't supplied"),
    ],
)
async def test_a_review_is_all_or_nothing(
    forge: Forge, author: httpx.AsyncClient, body: dict[str, Any], why: str
) -> None:
    assert why in said(await author.post(REVIEWS, json=body))
    assert facts(forge.state.issue("acme/site", 3)).reviews == []
    assert not forge.state.commits


@pytest.mark.parametrize("event", ["APPROVE", "REQUEST_CHANGES"])
async def test_nobody_gives_a_verdict_on_his_own(as_login: As, event: str) -> None:
    mona = as_login("mona")
    assert "your own pull request" in said(await mona.post(REVIEWS, json=review(event=event)))
    assert (await mona.post(REVIEWS, json=review())).json()["state"] == "COMMENTED"
    pending = (await mona.post(REVIEWS, json=review(event=None))).json()
    assert "your own" in said(await mona.post(f"{REVIEWS}/{pending['id']}/events", json={"event": event, "body": "b"}))


async def test_a_review_without_an_event_waits_for_its_author(
    forge: Forge, author: httpx.AsyncClient, as_login: As
) -> None:
    pending = (await author.post(REVIEWS, json=review(at(5), event=None))).json()
    assert pending["state"] == "PENDING"
    assert "submitted_at" not in pending
    assert "one pending review per pull request" in said(await author.post(REVIEWS, json=review()))
    other = as_login("forge-reviewer")
    assert (await other.get(REVIEWS)).json() == []
    assert (await other.get(f"{REVIEWS}/{pending['id']}")).status_code == 404
    assert (await other.delete(f"{REVIEWS}/{pending['id']}")).status_code == 404
    assert (await author.get(f"{PULLS}/3/comments")).json() == []
    assert [each["id"] for each in (await author.get(REVIEWS)).json()] == [pending["id"]]
    events = f"{REVIEWS}/{pending['id']}/events"
    assert "can't be blank" in said(await author.post(events, json={}))
    submitted = (await author.post(events, json={"event": "REQUEST_CHANGES", "body": "now"})).json()
    assert (submitted["state"], submitted["body"]) == ("CHANGES_REQUESTED", "now")
    assert "non-pending" in said(await author.post(events, json={"event": "APPROVE"}))
    assert "non-pending" in said(await author.delete(f"{REVIEWS}/{pending['id']}"))
    assert [each["line"] for each in (await other.get(f"{PULLS}/3/comments")).json()] == [5]
    assert forge.state.commits["review"] == 2


async def test_a_pending_review_is_deleted_with_its_comments(forge: Forge, author: httpx.AsyncClient) -> None:
    pending = (await author.post(REVIEWS, json=review(at(5), event=None))).json()
    assert (await author.delete(f"{REVIEWS}/{pending['id']}")).status_code == 200
    held = facts(forge.state.issue("acme/site", 3))
    assert (held.reviews, held.review_comments) == ([], [])


async def test_comments_stand_where_they_were_put_until_the_diff_moves_on(
    forge: Forge, author: httpx.AsyncClient
) -> None:
    made = await author.post(REVIEWS, json=review(at(5), at(6, start_line=4), at(5, side="LEFT"), event="APPROVE"))
    assert made.json()["state"] == "APPROVED"
    held = facts(forge.state.issue("acme/site", 3))
    answered = reply(
        forge.state, forge.state.issue("acme/site", 3), forge.state.account("mona"), held.review_comments[0].id, "r"
    )
    newest = (await author.get(f"{PULLS}/3/comments?sort=created&direction=desc")).json()
    oldest = (await author.get(f"{PULLS}/3/comments?direction=desc")).json()
    assert [each["id"] for each in newest] == [each["id"] for each in oldest[::-1]]
    assert [(each["side"], each["start_line"], each["line"]) for each in oldest] == [
        ("RIGHT", None, 5),
        ("RIGHT", 4, 6),
        ("LEFT", None, 5),
        ("RIGHT", None, 5),
    ]
    assert oldest[3]["in_reply_to_id"] == oldest[0]["id"]
    assert oldest[0]["diff_hunk"].endswith("+line 5, lazily")
    assert answered.reply_to == oldest[0]["id"]
    push(forge.state, forge.state.repo("acme/site"), "topic", [ChangedFile(IMAGES, "@@ -1 +1 @@\n-a\n+b")])
    moved = (await author.get(f"{PULLS}/3/comments")).json()
    assert [(each["line"], each["position"], each["original_line"]) for each in moved][:2] == [
        (None, None, 5),
        (None, None, 6),
    ]
    old = await author.post(REVIEWS, json=review(at(5), commit_id=oldest[0]["commit_id"]))
    assert old.status_code == 200
    push(forge.state, forge.state.repo("acme/site"), "topic", [], force=True)
    assert "commit_id" in said(await author.post(REVIEWS, json=review(at(5), commit_id=oldest[0]["commit_id"])))


def test_people_s_changes_name_what_is_not_there(forge: Forge) -> None:
    state = forge.state
    mona, pull = state.account("mona"), state.issue("acme/site", 3)
    with pytest.raises(UnknownName, match="no pull request"):
        add_review(state, state.issue("acme/site", 1), mona, "COMMENT", "b")
    with pytest.raises(UnknownName, match="not there"):
        reply(state, pull, mona, 1, "b")
    with pytest.raises(UnknownName, match=f"{IMAGES}:15: not a line of the diff"):
        add_review(state, pull, mona, "COMMENT", "b", [NewComment(IMAGES, "b", "RIGHT", 15)])
    assert facts(pull).reviews == []


# --- checks ---------------------------------------------------------------------------------------------------------


async def test_of_a_suite_s_runs_the_latest_are_shown_unless_all_are_asked_for(
    forge: Forge, author: httpx.AsyncClient
) -> None:
    site = forge.state.repo("acme/site")
    sha = site.branches["front-page"].sha
    add_check_run(forge.state, site, sha, "build", "failure")
    add_check_run(forge.state, site, sha, "build", "success")
    add_check_run(forge.state, site, sha, "build", status="queued", suite=2)
    runs = f"/repos/acme/site/commits/{sha}/check-runs"
    latest = (await author.get(runs)).json()
    assert (latest["total_count"], [each["conclusion"] for each in latest["check_runs"]]) == (2, [None, "success"])
    assert (await author.get(f"{runs}?filter=all&per_page=1")).json()["total_count"] == 3
    forge.state.grant_token(TOKENS["forge-author"], "forge-author", permissions={"statuses": "read"})
    assert (await author.get(runs)).status_code == 403
    assert (await author.get(f"/repos/acme/site/commits/{sha}/status")).status_code == 200


@pytest.mark.parametrize(
    ("states", "combined"),
    [
        ([], "pending"),
        (["success"], "success"),
        (["success", "pending"], "pending"),
        (["pending", "error"], "failure"),
        (["failure"], "failure"),
    ],
)
async def test_combined_status(forge: Forge, author: httpx.AsyncClient, states: list[str], combined: str) -> None:
    site = forge.state.repo("acme/site")
    sha = site.branches["front-page"].sha
    for index, state in enumerate(states):
        set_status(forge.state, site, sha, f"ci/{index}", "pending")
        set_status(forge.state, site, sha, f"ci/{index}", state)
    told = (await author.get(f"/repos/acme/site/commits/{sha}/status")).json()
    assert (told["state"], told["total_count"]) == (combined, len(states))
    assert [each["state"] for each in told["statuses"]] == states
