"""GitHub issues: for each operation what is asked, and what its answer means in the canonical types. Pure.

Each pair of functions names the page of GitHub's REST documentation that it follows. A 2xx proves nothing alone: an
answer counts only if it is about the repository and number that were asked for.
"""

import hashlib
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import msgspec

from compass_forged.errors import BadAnswer, BadCursor, BadRepo, ForgeStatus, IsPullRequest
from compass_forged.providers.caller import ForgeAnswer
from compass_forged.providers.github_dialect import REPO
from compass_forged.providers.http import HttpRequest
from compass_forged.wire.schema import (
    ARTIFACT_NUMBER_MAX,
    GHOST,
    LIST_LIMIT_DEFAULT,
    LIST_LIMIT_MAX,
    Comment,
    CommentOnIssue,
    CommentRef,
    CreateIssue,
    ForgeAccount,
    ForgeRef,
    GetIssue,
    Issue,
    ListIssues,
)

COMMENTS_SHOWN: Final = 30
"""How many of an issue's newest comments are read with it; also the size of a page of them."""
LIST_PAGE: Final = 100
LIST_PAGE_SMALL: Final = 20
"""Issues a page; the small one where a hundred whole bodies are over the cap of an answer."""

_SHOWN_LABELS = 10
_NO_CONTENT = 204

_T = TypeVar("_T")


# --- what GitHub answers, as far as it matters ----------------------------------------------------------------------


class _User(msgspec.Struct):
    login: str = ""
    type: str = ""


class _Label(msgspec.Struct):
    name: str | None = None


class _Issue(msgspec.Struct):
    id: int
    number: int
    html_url: str
    title: str
    state: str
    created_at: str | None = None
    updated_at: str | None = None
    body: str | None = None
    user: _User | None = None
    labels: list[_Label | str] = msgspec.field(default_factory=list[_Label | str])
    comments: int = 0
    pull_request: object = None


class _Comment(msgspec.Struct):
    id: int
    html_url: str
    created_at: str | None = None
    body: str | None = None
    user: _User | None = None


_issue_decoder = msgspec.json.Decoder(_Issue)
_issues_decoder = msgspec.json.Decoder(list[_Issue])
_comment_decoder = msgspec.json.Decoder(_Comment)
_comments_decoder = msgspec.json.Decoder(list[_Comment])


def repo_path(repo: str) -> tuple[str, str, str]:
    """The path segments of a repository, its grammar checked.

    Raises:
        BadRepo: the agent's fault.
    """
    if not REPO.fullmatch(repo):
        raise BadRepo("repo: must be owner/name, such as acme/site, in GitHub's own characters")
    owner, _, name = repo.partition("/")
    return "repos", owner, name


# --- create an issue: docs.github.com/rest/issues/issues#create-an-issue --------------------------------------------


def create_issue_request(arm: CreateIssue) -> HttpRequest:
    """What opens an issue."""
    json: dict[str, object] = {"title": arm.title, "body": arm.body}
    if arm.labels:
        json["labels"] = list(arm.labels)
    return HttpRequest("POST", (*repo_path(arm.repo), "issues"), json=json)


def created_issue(answer: ForgeAnswer, arm: CreateIssue, forge: ForgeRef) -> Issue:
    """The issue that was opened. Labels that did not come back are named in its warnings.

    Raises:
        BadAnswer: nobody knows what stands on the forge.
    """
    raw = _decode(_issue_decoder, answer)
    issue = _issue(raw, answer, forge)
    _expect_repo(answer, issue.repo, answer.moved_to or arm.repo)
    have = {label.casefold() for label in issue.labels}
    missing = [label for label in dict.fromkeys(arm.labels) if label.strip().casefold() not in have]
    if missing:
        shown = ", ".join(missing[:_SHOWN_LABELS]) + (" and others" if len(missing) > _SHOWN_LABELS else "")
        issue.warnings.append(f"labels not applied (the forge account may not set them): {shown}")
    return issue


# --- comment: docs.github.com/rest/issues/comments#create-an-issue-comment ------------------------------------------


def comment_request(arm: CommentOnIssue) -> HttpRequest:
    """What comments on an issue; GitHub takes a pull request's number as well."""
    path = (*repo_path(arm.repo), "issues", str(arm.issue_number), "comments")
    return HttpRequest("POST", path, json={"body": arm.body})


def written_comment(answer: ForgeAnswer, arm: CommentOnIssue) -> CommentRef:
    """The comment that was written.

    Raises:
        BadAnswer: nobody knows what stands on the forge.
    """
    raw = _decode(_comment_decoder, answer)
    _expect_place(answer, raw.html_url, answer.moved_to or arm.repo, arm.issue_number)
    if raw.id <= 0:
        _bad(answer, "the forge's answer has no id")
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
    raw = _decode(_issue_decoder, answer)
    if raw.pull_request:
        raise IsPullRequest(arm.issue_number)
    issue = _issue(raw, answer, forge)
    if not answer.moved:
        _expect_repo(answer, issue.repo, arm.repo)
        _expect_number(answer, issue.number, arm.issue_number)
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


def read_comments(answer: ForgeAnswer, repo: str, number: int) -> list[Comment]:
    """A page of comments, oldest first.

    Raises:
        BadAnswer: the answer is not about this issue.
    """
    comments = [] if answer.status == _NO_CONTENT else _decode(_comments_decoder, answer)
    if not answer.moved:
        for raw in comments:
            _expect_place(answer, raw.html_url, repo, number)
    return [
        Comment(
            id=str(raw.id),
            author=_account(raw.user),
            body=raw.body or "",
            url=raw.html_url,
            created_at=_time(raw.created_at),
        )
        for raw in comments
    ]


# --- list issues: docs.github.com/rest/issues/issues#list-repository-issues -----------------------------------------


_LINK_WORDS: Final = ("page", "per_page", "after", "before", "since")
_LINK_VALUE = re.compile(r"[A-Za-z0-9+/=_.:-]{1,200}", re.ASCII)
_LINK_NEXT = re.compile(r'<([^<>]{1,4096})>\s*;[^,<]*\brel="?next"?(?=[\s;,]|$)')
_CURSOR = re.compile(r"i1~([0-9a-f]{16})~([0-9]{1,3})~(.{0,1000})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ListPosition:
    """A place within a listing: the query words that lead to a page, and how many of its items lie behind us."""

    words: tuple[tuple[str, str], ...] = (("per_page", str(LIST_PAGE)),)
    skip: int = 0

    def smaller(self) -> "ListPosition | None":
        """The same place in small pages; None where the pages are small already or are not counted by number."""
        words = dict(self.words)
        if words.get("per_page") != str(LIST_PAGE) or not words.keys() <= {"per_page", "page"}:
            return None
        page, skip = divmod((int(words.get("page", "1")) - 1) * LIST_PAGE + self.skip, LIST_PAGE_SMALL)
        return ListPosition((("per_page", str(LIST_PAGE_SMALL)), ("page", str(page + 1))), skip)


@dataclass(frozen=True, slots=True)
class IssuePage:
    """One page of a listing: its items, None for each pull request, and the place of the next page if there is one."""

    items: tuple[Issue | None, ...]
    next: ListPosition | None


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
    raws = [] if answer.status == _NO_CONTENT else _decode(_issues_decoder, answer)
    items = tuple(None if raw.pull_request else _issue(raw, answer, forge) for raw in raws)
    for issue in items:
        if issue is not None and not answer.moved:
            _expect_repo(answer, issue.repo, arm.repo)
    return IssuePage(items, _next_page(answer.headers.get("link", ""), position) if raws else None)


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
    words = _link_words(match[3]) if match else None
    if match is None or match[1] != _listing(arm) or not words or int(match[2]) > LIST_PAGE:
        raise BadCursor(
            "cursor: not one that this listing handed out; use next_cursor unchanged, with the same filters"
        )
    return ListPosition(words, int(match[2]))


def _listing(arm: ListIssues) -> str:
    told = msgspec.json.encode([arm.repo.casefold(), arm.state or "open", arm.labels])
    return hashlib.sha256(told).hexdigest()[:16]


def _next_page(link: str, position: ListPosition) -> ListPosition | None:
    """The place of the next page from a Link header: its words alone, so that no URL is ever followed."""
    match = _LINK_NEXT.search(link)
    parts = _split(match[1]) if match else None
    words = _link_words(parts.query) if parts else None
    if not words:
        return None
    size = dict(position.words).get("per_page", str(LIST_PAGE))
    following = words if "per_page" in dict(words) else (("per_page", size), *words)
    return ListPosition(following) if following != position.words else None


def _link_words(query: str) -> tuple[tuple[str, str], ...] | None:
    """Those query words that name a page; None if one of them is not what GitHub would write."""
    words = tuple((key, value) for key, value in parse_qsl(query) if key in _LINK_WORDS)
    counts = [value for key, value in words if key in {"page", "per_page"}]
    if any(not _LINK_VALUE.fullmatch(value) for _, value in words) or len(dict(words)) != len(words):
        return None
    if any(not re.fullmatch(r"[1-9][0-9]{0,8}", count, re.ASCII) for count in counts):
        return None
    return words


# --- shared ---------------------------------------------------------------------------------------------------------


def _decode(decoder: msgspec.json.Decoder[_T], answer: ForgeAnswer) -> _T:
    try:
        return decoder.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(answer.status, "the forge's answer is not the JSON that is due") from error


def _issue(raw: _Issue, answer: ForgeAnswer, forge: ForgeRef) -> Issue:
    repo, number = _place(answer, raw.html_url, "issues")
    _expect_number(answer, number, raw.number)
    if raw.id <= 0 or not 0 < raw.number <= ARTIFACT_NUMBER_MAX:
        _bad(answer, "the forge's answer has no id or number")
    return Issue(
        forge=forge,
        repo=repo,
        number=raw.number,
        title=raw.title,
        body=raw.body or "",
        state="closed" if raw.state == "closed" else "open",
        labels=[name for name in (_label(label) for label in raw.labels) if name],
        url=raw.html_url,
        author=_account(raw.user),
        created_at=_time(raw.created_at),
        updated_at=_time(raw.updated_at),
        comments_total=min(max(0, raw.comments), _COMMENTS_MAX),
    )


def _label(label: _Label | str) -> str:
    return label if isinstance(label, str) else label.name or ""


def _account(user: _User | None) -> ForgeAccount:
    if user is None or not user.login:
        return GHOST
    return ForgeAccount(login=user.login, is_bot=user.type == "Bot" or user.login.endswith("[bot]"))


_COMMENTS_MAX = 2**31
"""More comments than any issue has: a forge's number goes no further than it can be written on the wire."""


def _time(text: str | None) -> str:
    """A time as RFC 3339 in UTC, to the second or as fine as it came; "" for what is none.

    An answer is not lost for it: what it says of an artifact holds, whenever that was made.
    """
    try:
        moment = datetime.fromisoformat(text or "")
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return ""


def _split(url: str) -> SplitResult | None:
    """The parts of a URL that a forge wrote; None where it is none."""
    if not (url.isascii() and url.isprintable()):
        return None
    try:
        return urlsplit(url)
    except ValueError:
        return None


def _place(answer: ForgeAnswer, url: str, *kinds: str) -> tuple[str, int]:
    """Repository and number from the URL of an artifact's page."""
    parts = _split(url)
    segments = parts.path.strip("/").split("/") if parts else []
    number = segments[3] if len(segments) == 4 else ""  # noqa: PLR2004 -- owner, name, kind, number
    if (
        parts is None
        or parts.scheme not in {"https", "http"}
        or "@" in parts.netloc
        or not re.fullmatch(r"[1-9][0-9]{0,18}", number, re.ASCII)
        or segments[2] not in kinds
        or not REPO.fullmatch("/".join(segments[:2]))
    ):
        _bad(answer, "the forge's answer has no URL of an artifact")
    return "/".join(segments[:2]), int(number)


def _expect_place(answer: ForgeAnswer, url: str, repo: str, number: int) -> None:
    found_repo, found_number = _place(answer, url, "issues", "pull")
    _expect_repo(answer, found_repo, repo)
    _expect_number(answer, found_number, number)


def _expect_repo(answer: ForgeAnswer, found: str, wanted: str) -> None:
    if found.casefold() != wanted.casefold():
        _bad(answer, "the forge's answer is about another repository")


def _expect_number(answer: ForgeAnswer, found: int, wanted: int) -> None:
    if found != wanted:
        _bad(answer, "the forge's answer is about another number")


def _bad(answer: ForgeAnswer, why: str) -> NoReturn:
    raise BadAnswer(answer.status, why)
