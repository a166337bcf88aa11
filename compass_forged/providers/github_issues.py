"""GitHub issues: for each operation what is asked, and what its answer means in the canonical types. Pure.

Each pair of functions names the page of GitHub's REST documentation that it follows. A 2xx proves nothing alone: an
answer counts only if it is about the repository and number that were asked for.
"""

import hashlib
import math
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

import msgspec

from compass_forged.errors import BadCursor, ForgeStatus, IsPullRequest
from compass_forged.providers.answers import Items, bad, decode, decode_items
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github_answers import (
    PAGE,
    PAGE_SMALL,
    Artifact,
    OwnAccount,
    WrittenComment,
    artifact_fields,
    expect_author,
    expect_number,
    expect_place,
    expect_repo,
    link_query,
    page_words,
    read_comment,
    repo_path,
)
from compass_forged.providers.http import HttpRequest
from compass_forged.wire.schema import (
    LIST_LIMIT_DEFAULT,
    LIST_LIMIT_MAX,
    Comment,
    CommentRef,
    CreateIssue,
    ForgeRef,
    GetIssue,
    Issue,
    ListIssues,
)

COMMENTS_SHOWN: Final = 30
"""How many of an issue's newest comments are read with it; also the size of a page of them."""

_SHOWN_LABELS = 10


# --- what GitHub answers, as far as it matters ----------------------------------------------------------------------


class _Issue(Artifact):
    pull_request: object = None


_issue_decoder = msgspec.json.Decoder(_Issue)
_comment_decoder = msgspec.json.Decoder(WrittenComment)


# --- create an issue: docs.github.com/rest/issues/issues#create-an-issue --------------------------------------------


def create_issue_request(arm: CreateIssue) -> HttpRequest:
    """What opens an issue."""
    json: dict[str, object] = {"title": arm.title, "body": arm.body}
    if arm.labels:
        json["labels"] = list(arm.labels)
    return HttpRequest("POST", (*repo_path(arm.repo), "issues"), json=json)


def created_issue(answer: ForgeAnswer, arm: CreateIssue, forge: ForgeRef, own: OwnAccount | None = None) -> Issue:
    """The issue that was opened. Labels that did not come back are named in its warnings.

    Raises:
        BadAnswer: nobody knows what stands on the forge.
    """
    raw = decode(_issue_decoder, answer)
    issue = _issue(raw, answer, forge)
    expect_repo(answer, issue.repo, answer.moved_to or arm.repo)
    expect_author(answer, raw.user, own)
    have = {label.casefold() for label in issue.labels}
    missing = [label for label in dict.fromkeys(arm.labels) if label.strip().casefold() not in have]
    if missing:
        shown = ", ".join(missing[:_SHOWN_LABELS]) + (" and others" if len(missing) > _SHOWN_LABELS else "")
        issue.warnings.append(f"labels not applied (the forge account may not set them): {shown}")
    return issue


# --- comment: docs.github.com/rest/issues/comments#create-an-issue-comment ------------------------------------------


def comment_request(repo: str, number: int, body: str) -> HttpRequest:
    """What comments on an issue, or on a pull request's conversation: GitHub takes both numbers here."""
    return HttpRequest("POST", (*repo_path(repo), "issues", str(number), "comments"), json={"body": body})


def written_comment(answer: ForgeAnswer, repo: str, number: int, own: OwnAccount | None = None) -> CommentRef:
    """The comment that was written.

    Raises:
        BadAnswer: nobody knows what stands on the forge.
    """
    raw = decode(_comment_decoder, answer)
    expect_place(answer, raw.html_url, answer.moved_to or repo, number)
    expect_author(answer, raw.user, own)
    if raw.id <= 0:
        bad(answer, "the forge's answer has no id")
    return CommentRef(url=raw.html_url, comment_id=str(raw.id))


# --- get an issue: docs.github.com/rest/issues/issues#get-an-issue --------------------------------------------------


def get_issue_request(arm: GetIssue) -> HttpRequest:
    """What reads an issue."""
    return HttpRequest("GET", (*repo_path(arm.repo), "issues", str(arm.issue_number)))


def read_issue(answer: ForgeAnswer, arm: GetIssue, forge: ForgeRef) -> Issue:
    """The issue without its comments; one that has moved stands under its new repository and number.

    Raises:
        IsPullRequest: the number is a pull request's.
        BadAnswer: the answer is not about this issue.
    """
    raw = decode(_issue_decoder, answer)
    if raw.pull_request:
        raise IsPullRequest(arm.issue_number)
    issue = _issue(raw, answer, forge)
    if not answer.moved:
        expect_repo(answer, issue.repo, arm.repo)
        expect_number(answer, issue.number, arm.issue_number)
    return issue


def first_comments_page(total: int) -> int:
    """The page from which reading on holds the newest ``COMMENTS_SHOWN`` of ``total`` comments."""
    return max(1, math.ceil(total / COMMENTS_SHOWN) - 1)


def comments_request(repo: str, number: int, page: int) -> HttpRequest:
    """What reads a page of an issue's comments, oldest first.

    docs.github.com/rest/issues/comments#list-issue-comments
    """
    path = (*repo_path(repo), "issues", str(number), "comments")
    return HttpRequest("GET", path, (("per_page", str(COMMENTS_SHOWN)), ("page", str(page))))


def read_comments(answer: ForgeAnswer, repo: str, number: int) -> Items[Comment]:
    """A page of comments, oldest first.

    Raises:
        BadAnswer: the answer is not about this issue.
    """

    def read(raw: WrittenComment) -> Comment:
        return read_comment(raw, answer, repo, number)

    return decode_items(_comment_decoder, read, answer)


# --- list issues: docs.github.com/rest/issues/issues#list-repository-issues -----------------------------------------


_CURSOR = re.compile(r"i1~([0-9a-f]{16})~([0-9]{1,3})~(.{0,1000})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ListPosition:
    """A place within a listing: the query words that lead to a page, and how many of its items lie behind us."""

    words: tuple[tuple[str, str], ...] = (("per_page", str(PAGE)),)
    skip: int = 0

    def smaller(self) -> "ListPosition | None":
        """The same place in small pages; None where the pages are small already or are not counted by number."""
        words = dict(self.words)
        if words.get("per_page") != str(PAGE) or not words.keys() <= {"per_page", "page"}:
            return None
        page, skip = divmod((int(words.get("page", "1")) - 1) * PAGE + self.skip, PAGE_SMALL)
        return ListPosition((("per_page", str(PAGE_SMALL)), ("page", str(page + 1))), skip)


@dataclass(frozen=True, slots=True)
class IssuePage:
    """One page of a listing.

    Attributes:
        items: in the forge's order; None for each pull request, and for each item that could not be read.
        next: the place of the next page, if there is one.
        broken: the places of the items that could not be read.
    """

    items: tuple[Issue | None, ...]
    next: ListPosition | None
    broken: tuple[int, ...] = ()


def list_limit(arm: ListIssues) -> int:
    """How many issues are wanted: 30 if not said, and never over 100."""
    return min(arm.limit, LIST_LIMIT_MAX) if arm.limit > 0 else LIST_LIMIT_DEFAULT


def list_issues_request(arm: ListIssues, position: ListPosition) -> HttpRequest:
    """What reads a page of a listing, newest first.

    Raises:
        ForgeStatus: a label holds a comma, which GitHub has in no label and takes for a list. Nothing was sent.
    """
    if any("," in label for label in arm.labels):
        raise ForgeStatus(422, "labels: a label cannot hold a comma")
    query = [("state", arm.state or "open"), ("sort", "created"), ("direction", "desc")]
    if arm.labels:
        query.append(("labels", ",".join(arm.labels)))
    return HttpRequest("GET", (*repo_path(arm.repo), "issues"), (*query, *position.words))


def read_issue_page(answer: ForgeAnswer, arm: ListIssues, forge: ForgeRef, position: ListPosition) -> IssuePage:
    """A page of a listing, which at GitHub holds pull requests too.

    Raises:
        BadAnswer: the answer is not about this repository.
    """

    def read(raw: _Issue) -> Issue | None:
        if raw.pull_request:
            return None
        issue = _issue(raw, answer, forge)
        if not answer.moved:
            expect_repo(answer, issue.repo, arm.repo)
        return issue

    found = decode_items(_issue_decoder, read, answer)
    items = found.good
    for index in found.broken:  # a cursor counts places, so each item keeps its own
        items.insert(index, None)
    return IssuePage(tuple(items), _next_page(answer, position) if items else None, found.broken)


def write_cursor(arm: ListIssues, position: ListPosition) -> str:
    """A place as an opaque string, bound to the listing that it is a place in."""
    return f"i1~{_listing(arm)}~{position.skip}~{urlencode(position.words)}"


def read_cursor(arm: ListIssues) -> ListPosition:
    """The place that a call's cursor names; the start where it has none.

    Raises:
        BadCursor: the agent's fault: it was not handed out for this listing.
    """
    if not arm.cursor:
        return ListPosition()
    match = _CURSOR.fullmatch(arm.cursor)
    words = page_words(match[3]) if match else None
    if match is None or match[1] != _listing(arm) or not words or int(match[2]) > PAGE:
        raise BadCursor(
            "cursor: not one that this listing handed out; use next_cursor unchanged, with the same filters"
        )
    return ListPosition(words, int(match[2]))


def _listing(arm: ListIssues) -> str:
    told = msgspec.json.encode([arm.repo.casefold(), arm.state or "open", arm.labels])
    return hashlib.sha256(told).hexdigest()[:16]


def _next_page(answer: ForgeAnswer, position: ListPosition) -> ListPosition | None:
    words = link_query(answer, "next")
    if words is None:
        return None
    size = dict(position.words).get("per_page", str(PAGE))
    following = words if "per_page" in dict(words) else (("per_page", size), *words)
    return ListPosition(following) if following != position.words else None


def _issue(raw: _Issue, answer: ForgeAnswer, forge: ForgeRef) -> Issue:
    return Issue(**artifact_fields(raw, answer, forge, "issues"))
