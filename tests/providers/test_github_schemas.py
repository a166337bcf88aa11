"""Whatever GitHub's OpenAPI document lets an answer hold is translated, and whatever it does not is a bad answer."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compass_forged.errors import ForgeError
from compass_forged.providers import github_checks as checks
from compass_forged.providers import github_files as files
from compass_forged.providers import github_issues as issues
from compass_forged.providers import github_pulls as pulls
from compass_forged.providers import github_reviews as reviews
from compass_forged.providers import github_threads as threads
from compass_forged.providers.answers import Items
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.wire.schema import (
    Checks,
    CreateIssue,
    CreatePullRequest,
    ForgeRef,
    GetIssue,
    ListIssues,
    SubmitReview,
)
from tests.support.forge_http import SHARED
from tests.support.schemas import Schemas

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the contract documents lie beside a full checkout only")

REPO = "acme/site"
FORGE = ForgeRef(provider="github", host="github.com")
PAGE = f"https://github.com/{REPO}"
ID = st.integers(1, 2**70)
SEVEN = st.just(7)
CREATE_PULL = CreatePullRequest(repo=REPO, title="t", head_ref="topic")
REVIEW = SubmitReview(repo=REPO, pull_number=7, verdict="approve")

Translate = Callable[[ForgeAnswer], object]


def only_good(items: Items[Any]) -> Items[Any]:
    assert items.broken == ()
    return items


def rolled(items: Items[checks.Check]) -> Checks | None:
    return checks.roll_up(only_good(items).good, complete=True)


def read_page(answer: ForgeAnswer) -> issues.IssuePage:
    page = issues.read_issue_page(answer, ListIssues(repo=REPO), FORGE, issues.ListPosition())
    assert page.broken == ()
    return page


def an_issue(path: str = "") -> dict[str, Any]:
    """What makes an answer be about issue 7; everything else is as the document lets it be."""
    return {f"{path}id": ID, f"{path}number": SEVEN, f"{path}html_url": st.just(f"{PAGE}/issues/7")}


def a_pull(path: str = "") -> dict[str, Any]:
    return {f"{path}id": ID, f"{path}number": SEVEN, f"{path}html_url": st.just(f"{PAGE}/pull/7")}


def on_pull(path: str = "") -> dict[str, Any]:
    return {f"{path}id": ID, f"{path}html_url": st.just(f"{PAGE}/pull/7#x")}


_REPO = "/repos/{owner}/{repo}"
_ISSUES, _PULLS = f"{_REPO}/issues", f"{_REPO}/pulls"
_PULL = f"{_PULLS}/{{pull_number}}"
_COMMIT = f"{_REPO}/commits/{{ref}}"
OPERATIONS: list[tuple[str, str, str, dict[str, Any], Translate]] = [
    ("post", _ISSUES, "201", an_issue() | {"pull_request": st.nothing()},
     lambda told: issues.created_issue(told, CreateIssue(repo=REPO, title="t"), FORGE)),
    ("get", f"{_ISSUES}/{{issue_number}}", "200", an_issue() | {"pull_request": st.none()},
     lambda told: issues.read_issue(told, GetIssue(repo=REPO, issue_number=7), FORGE)),
    ("get", _ISSUES, "200", an_issue("[].") | {"[].pull_request": st.sampled_from([None, {"url": "x"}])}, read_page),
    ("post", f"{_ISSUES}/{{issue_number}}/comments", "201", {"id": ID, "html_url": st.just(f"{PAGE}/pull/7#x")},
     lambda told: issues.written_comment(told, REPO, 7)),
    ("get", f"{_ISSUES}/{{issue_number}}/comments", "200", {"[].html_url": st.just(f"{PAGE}/issues/7#x")},
     lambda told: only_good(issues.read_comments(told, REPO, 7))),
    ("get", _REPO, "200", {"full_name": st.just("Acme/Site"), "default_branch": st.sampled_from(["main", "a/b", "é"])},
     lambda told: pulls.read_default_branch(told, REPO)),
    ("post", _PULLS, "201", a_pull(), lambda told: pulls.created_pull(told, CREATE_PULL, FORGE)),
    ("get", _PULLS, "200", a_pull("[]."), lambda told: pulls.looked_up(told, CREATE_PULL, "main", FORGE)),
    ("get", _PULL, "200", a_pull(), lambda told: pulls.read_pull(told, REPO, 7, FORGE)),
    ("get", f"{_PULL}/files", "200", {}, lambda told: only_good(files.read_files(told))),
    ("get", f"{_PULL}/reviews", "200", on_pull("[]."), lambda told: only_good(reviews.read_reviews(told, REPO, 7))),
    ("post", f"{_PULL}/reviews", "200", on_pull() | {"state": st.sampled_from(["APPROVED", "approved"])},
     lambda told: reviews.submitted_review(told, REVIEW)),
    ("get", f"{_PULL}/comments", "200",
     on_pull("[].") | {"[].line": st.none() | st.integers(-1, 2**70), "[].in_reply_to_id": st.integers(0, 9)},
     lambda told: threads.threads_of(only_good(threads.read_review_comments(told, REPO, 7)).good)),
    ("get", f"{_COMMIT}/check-runs", "200", {}, lambda told: rolled(checks.read_check_runs(told))),
    ("get", f"{_COMMIT}/status", "200", {}, lambda told: rolled(checks.read_statuses(told))),
]  # fmt: skip
_IDS = [f"{method} {path.removeprefix(_REPO)}" for method, path, *_ in OPERATIONS]


@cache
def openapi() -> Any:
    return json.loads((SHARED / "github-openapi-subset.json").read_text())


@cache
def answers(index: int, *, hinted: bool) -> st.SearchStrategy[Any]:
    method, path, status, hints, _ = OPERATIONS[index]
    schemas = Schemas(openapi())
    response = schemas.resolved(openapi()["paths"][path][method]["responses"][status])
    usable = {name: each for name, each in hints.items() if not each.is_empty} if hinted else {}
    return schemas.values(response["content"]["application/json"]["schema"], usable)


@needs_shared
@pytest.mark.parametrize("index", range(len(OPERATIONS)), ids=_IDS)
def test_every_answer_that_the_document_describes_is_translated(index: int) -> None:
    *_, status, _, translate = OPERATIONS[index]

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(answers(index, hinted=True))
    def whatever(body: Any) -> None:
        assert msgspec.msgpack.encode(_plain(translate(ForgeAnswer(int(status), {}, json.dumps(body).encode()))))

    whatever()


def _plain(value: object) -> object:
    """What goes out on the wire must be something that it can hold; the rest need only be there."""
    return value if isinstance(value, msgspec.Struct | list) else repr(value)


@needs_shared
@pytest.mark.parametrize("index", range(len(OPERATIONS)), ids=_IDS)
def test_an_answer_about_anything_is_translated_or_bad(index: int) -> None:
    *_, status, _, translate = OPERATIONS[index]

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(answers(index, hinted=False))
    def whatever(body: Any) -> None:
        try:
            translate(ForgeAnswer(int(status), {}, json.dumps(body).encode()))
        except (ForgeError, AssertionError):
            return

    whatever()
