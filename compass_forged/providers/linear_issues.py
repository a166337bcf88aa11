"""Linear issues and comments: for each operation what is asked, and what its answer means in canonical types. Pure.

An issue's number counts within its team: ``ENG-12`` is number 12 of the repo ENG. A 2xx proves nothing alone, and nor
does the presence of an issue: of a write, ``success`` decides, and the id must be the one that was sent.
"""

import hashlib
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from compass_forged.errors import BadAnswer, BadArgument, BadCursor, ForgeStatus
from compass_forged.providers.answers import Items, bad, left_out, read_items, utc_time
from compass_forged.providers.caller import ForgeAnswer
from compass_forged.providers.http import HttpRequest
from compass_forged.providers.linear_answers import (
    EXACT_MAX,
    Bot,
    External,
    Reply,
    User,
    account,
    decoded,
    expect_id,
    is_page,
    nodes,
    place,
    plain_name,
    query,
    reply,
)
from compass_forged.providers.linear_documents import (
    COMMENT_BY_ID,
    COMMENT_CREATE,
    COMMENTS_COUNTED,
    ISSUE_BY_ID,
    ISSUE_BY_IDENTIFIER,
    ISSUE_BY_NUMBER,
    ISSUE_CREATE,
    ISSUE_PLACE_BY_IDENTIFIER,
    ISSUE_PLACE_BY_NUMBER,
    ISSUES,
    LIST_PAGE_MAX,
)
from compass_forged.wire.schema import (
    LIST_LIMIT_DEFAULT,
    LIST_LIMIT_MAX,
    Comment,
    CommentRef,
    ForgeRef,
    Issue,
    ListIssues,
)

TITLE_MAX_CHARS: Final = 250
"""Ours: Linear publishes no limit."""
CLOSED_TYPES: Final = ("completed", "canceled", "duplicate")
"""The types of workflow states in which an issue is closed; names of states are free text, and say nothing."""
UUID_BYTES: Final = 16


# --- what Linear answers, as far as it matters ----------------------------------------------------------------------


class _State(msgspec.Struct):
    type: str = ""


class _Team(msgspec.Struct):
    id: str = ""
    key: str = ""


class _Label(msgspec.Struct):
    name: str | None = None


class _Labels(msgspec.Struct):
    nodes: list[_Label] = msgspec.field(default_factory=list[_Label])


class _PageInfo(msgspec.Struct):
    hasNextPage: bool = False  # noqa: N815 -- Linear's word
    endCursor: str | None = None  # noqa: N815 -- Linear's word


class _Page(msgspec.Struct):
    nodes: list[msgspec.Raw] = msgspec.field(default_factory=list[msgspec.Raw])
    pageInfo: _PageInfo = msgspec.field(default_factory=_PageInfo)  # noqa: N815 -- Linear's word


class _Comment(msgspec.Struct):
    id: str
    body: str | None = None
    url: str | None = None
    createdAt: str | None = None  # noqa: N815 -- Linear's word
    user: User | None = None
    botActor: Bot | None = None  # noqa: N815 -- Linear's word
    externalUser: External | None = None  # noqa: N815 -- Linear's word


class _Issue(msgspec.Struct):
    id: str
    identifier: str
    previousIdentifiers: list[str] | None = None  # noqa: N815 -- Linear's word
    url: str | None = None
    title: str | None = None
    description: str | None = None
    createdAt: str | None = None  # noqa: N815 -- Linear's word
    updatedAt: str | None = None  # noqa: N815 -- Linear's word
    archivedAt: str | None = None  # noqa: N815 -- Linear's word
    trashed: bool | None = None
    state: _State | None = None
    team: _Team | None = None
    creator: User | None = None
    botActor: Bot | None = None  # noqa: N815 -- Linear's word
    externalUserCreator: External | None = None  # noqa: N815 -- Linear's word
    labels: _Labels | None = None
    comments: _Page | None = None
    counted: _Page | None = None


class _Created(msgspec.Struct):
    success: bool = False
    issue: _Issue | None = None


class _Anchor(msgspec.Struct):
    id: str = ""


class _WrittenComment(msgspec.Struct):
    id: str
    url: str | None = None
    issue: _Anchor | None = None


class _Commented(msgspec.Struct):
    success: bool = False
    comment: _WrittenComment | None = None


_issue_decoder = msgspec.json.Decoder(_Issue)
_comment_decoder = msgspec.json.Decoder(_Comment)
_page_decoder = msgspec.json.Decoder(_Page)
_created_decoder = msgspec.json.Decoder(_Created)
_commented_decoder = msgspec.json.Decoder(_Commented)
_written_decoder = msgspec.json.Decoder(_WrittenComment)


@dataclass(frozen=True, slots=True)
class Found:
    """An issue, and what of it is only for us.

    Attributes:
        id: Linear's own.
        issue: as the wire has it.
        team_id: where it stands; "" if that was not told.
        creator_id: which user wrote it; "" if none did.
        previous: the identifiers that it has had in other teams.
        trashed: whether somebody has deleted it; it is purged some time.
    """

    id: str
    issue: Issue
    team_id: str = ""
    creator_id: str = ""
    previous: frozenset[str] = field(default_factory=frozenset[str])
    trashed: bool = False


# --- create: issueCreate --------------------------------------------------------------------------------------------


def new_id(seed: bytes | None) -> str:
    """The id of something new in the form of a version 4 UUID, as Linear takes it: ``seed``'s own, or a random one."""
    return str(uuid.uuid4() if seed is None else uuid.UUID(bytes=seed[:UUID_BYTES], version=4))


def check_title(title: str) -> None:
    """A title that Linear will take.

    Raises:
        BadArgument: it is too long.
    """
    if len(title) > TITLE_MAX_CHARS:
        raise BadArgument(f"title: {len(title) - TITLE_MAX_CHARS} characters too long; linear takes {TITLE_MAX_CHARS}")


def create_request(
    issue_id: str, team_id: str, title: str, body: str, label_ids: Sequence[str], actor: Mapping[str, str]
) -> HttpRequest:
    """What opens an issue; ``actor`` is under what name, and may be empty."""
    given: dict[str, object] = {"id": issue_id, "teamId": team_id, "title": title, "description": body, **actor}
    if label_ids:
        given["labelIds"] = list(label_ids)
    return query(ISSUE_CREATE, input=given)


def created_issue(answer: ForgeAnswer, issue_id: str, team_id: str, forge: ForgeRef) -> Issue:
    """The issue that was opened.

    Raises:
        BadAnswer: nobody knows what stands on the forge.
    """
    found = reply(ISSUE_CREATE, answer)
    raw = decoded(_created_decoder, found)
    if not raw.success or raw.issue is None:
        bad(answer, "the forge says that the create did not succeed, and not why")
    made = _found(raw.issue, answer, forge)
    expect_id(answer, made.id, issue_id, "issue")
    expect_id(answer, made.team_id, team_id, "team")
    _expect_page(answer, made.issue)
    made.issue.warnings += found.errors
    return made.issue


def by_id_request(issue_id: str) -> HttpRequest:
    """What looks for an issue by its id."""
    return query(ISSUE_BY_ID, id=issue_id)


def by_id(answer: ForgeAnswer, issue_id: str, forge: ForgeRef) -> Found | None:
    """The issue of that id, in whatever team it stands now; None if there is none to be seen.

    Raises:
        BadAnswer: the answer is not about this issue.
    """
    found = _first(reply(ISSUE_BY_ID, answer), forge)
    if found is not None:
        expect_id(answer, found.id, issue_id, "issue")
        _expect_page(answer, found.issue)
    return found


# --- get: issues by team and number, else issue by an identifier that it had ----------------------------------------


def by_number_request(team_id: str, number: int, *, whole: bool) -> HttpRequest:
    """What reads an issue by its number in a team: ``whole``, with its newest comments, or its place alone."""
    return query(ISSUE_BY_NUMBER if whole else ISSUE_PLACE_BY_NUMBER, team=team_id, number=float(number))


def by_number(answer: ForgeAnswer, team_id: str, number: int, forge: ForgeRef, *, whole: bool) -> Found | None:
    """The issue of that number; None if the team has none.

    Raises:
        BadAnswer: the answer is not about this issue.
    """
    found = _first(reply(ISSUE_BY_NUMBER if whole else ISSUE_PLACE_BY_NUMBER, answer), forge)
    if found is not None:
        expect_id(answer, str(found.issue.number), str(number), "number")
        expect_id(answer, found.team_id, team_id, "team")
    return found


def by_identifier_request(key: str, number: int, *, whole: bool) -> HttpRequest:
    """What asks for an issue by an identifier that may be a former one."""
    return query(ISSUE_BY_IDENTIFIER if whole else ISSUE_PLACE_BY_IDENTIFIER, identifier=f"{key}-{number}")


def by_identifier(answer: ForgeAnswer, key: str, number: int, forge: ForgeRef, *, whole: bool) -> Found:
    """The issue that has, or had, that identifier.

    Raises:
        BadAnswer: the answer is not about this issue.
    """
    found = reply(ISSUE_BY_IDENTIFIER if whole else ISSUE_PLACE_BY_IDENTIFIER, answer)
    made = _found(decoded(_issue_decoder, found), answer, forge)
    made.issue.warnings += found.errors
    wanted = f"{key}-{number}".upper()
    had = {*made.previous, f"{made.issue.repo}-{made.issue.number}"}
    expect_id(answer, wanted if wanted in {one.upper() for one in had} else "", wanted, "issue")
    return made


def check_number(number: int) -> None:
    """A number that Linear can tell from its neighbours.

    Raises:
        ForgeStatus: it is so large that there is no issue of that number.
    """
    if number > EXACT_MAX:
        raise ForgeStatus(404, "no such number")


# --- comment: commentCreate -----------------------------------------------------------------------------------------


def comment_request(comment_id: str, issue_id: str, body: str, actor: Mapping[str, str]) -> HttpRequest:
    """What comments on an issue."""
    return query(COMMENT_CREATE, input={"id": comment_id, "issueId": issue_id, "body": body, **actor})


def written_comment(answer: ForgeAnswer, comment_id: str, issue_id: str) -> CommentRef:
    """The comment that was written.

    Raises:
        BadAnswer: nobody knows what stands on the forge.
    """
    raw = decoded(_commented_decoder, reply(COMMENT_CREATE, answer))
    if not raw.success or raw.comment is None:
        bad(answer, "the forge says that the comment did not succeed, and not why")
    return _comment_ref(raw.comment, answer, comment_id, issue_id)


def comment_by_id_request(comment_id: str) -> HttpRequest:
    """What looks for a comment by its id."""
    return query(COMMENT_BY_ID, id=comment_id)


def comment_by_id(answer: ForgeAnswer, comment_id: str, issue_id: str) -> CommentRef | None:
    """The comment of that id; None if there is none to be seen.

    Raises:
        BadAnswer: the answer is not about this comment.
    """

    def read(raw: _WrittenComment) -> CommentRef:
        return _comment_ref(raw, answer, comment_id, issue_id)

    return next(iter(nodes(_written_decoder, read, reply(COMMENT_BY_ID, answer)).good), None)


def _comment_ref(raw: _WrittenComment, answer: ForgeAnswer, comment_id: str, issue_id: str) -> CommentRef:
    expect_id(answer, raw.id, comment_id, "comment")
    if raw.issue is not None:
        expect_id(answer, raw.issue.id, issue_id, "issue")
    if not is_page(raw.url or ""):
        bad(answer, "the forge's answer has no URL of a comment")
    return CommentRef(url=raw.url or "", comment_id=raw.id)


# --- list: issues of a team -----------------------------------------------------------------------------------------

_CURSOR: Final = re.compile(r"l1~([0-9a-f]{16})~([!-~]{1,1000})", re.ASCII)
_LINEAR_CURSOR: Final = re.compile(r"[!-~]{1,1000}", re.ASCII)


@dataclass(frozen=True, slots=True)
class IssuePage:
    """One page of a listing.

    Attributes:
        items: in the forge's order, newest first; what is trashed is left out.
        after: Linear's own cursor behind it; "" if this is the last.
        broken: how many could not be read.
        errors: what the forge says is missing.
    """

    items: list[Issue]
    after: str
    broken: int
    errors: list[str]


def list_limit(arm: ListIssues) -> int:
    """How many issues are wanted: 30 if not said, and never over 100."""
    return min(arm.limit, LIST_LIMIT_MAX, LIST_PAGE_MAX) if arm.limit > 0 else LIST_LIMIT_DEFAULT


def list_request(arm: ListIssues, team_id: str, first: int, after: str) -> HttpRequest:
    """What reads a page of a listing. Closed issues are archived in time: where they are wanted, those come too."""
    wanted: dict[str, object] = {"team": {"id": {"eq": team_id}}}
    state = arm.state or "open"
    if state != "all":
        wanted["state"] = {"type": {"in" if state == "closed" else "nin": list(CLOSED_TYPES)}}
    if arm.labels:
        wanted["and"] = [{"labels": {"some": {"name": {"eqIgnoreCase": label}}}} for label in arm.labels]
    return query(ISSUES, filter=wanted, first=first, after=after or None, archived=state != "open")


def read_page(answer: ForgeAnswer, team_id: str, forge: ForgeRef, *, after: str, alone: bool) -> IssuePage:
    """A page of a listing.

    Args:
        answer: the forge's.
        team_id: whose issues were asked for.
        forge: for coordinates.
        after: the place behind which the page was asked for.
        alone: whether nothing has been read before it; if not, one without a readable item takes nothing with it.

    Raises:
        BadAnswer: the answer is not about this team, or leads nowhere.
    """
    asked = after

    def read(raw: _Issue) -> Found:
        found = _found(raw, answer, forge)
        if found.team_id:
            expect_id(answer, found.team_id, team_id, "team")
        return found

    found = reply(ISSUES, answer)
    page = decoded(_page_decoder, found)
    items: Items[Found]
    try:
        items = read_items(page.nodes, _issue_decoder, read, answer)
    except BadAnswer:
        if alone:
            raise
        items = Items(broken=tuple(range(len(page.nodes))))
    after = page.pageInfo.endCursor or "" if page.pageInfo.hasNextPage else ""
    if page.pageInfo.hasNextPage and (_LINEAR_CURSOR.fullmatch(after) is None or after == asked):
        bad(answer, "the forge's answer says that there is more, and not where")
    return IssuePage([one.issue for one in items.good if not one.trashed], after, len(items.broken), found.errors)


def write_cursor(arm: ListIssues, after: str) -> str:
    """A place as an opaque string, bound to the listing that it is a place in."""
    return f"l1~{_listing(arm)}~{after}" if after else ""


def read_cursor(arm: ListIssues) -> str:
    """Linear's own cursor within a call's; "" for the start.

    Raises:
        BadCursor: the agent's fault: it was not handed out for this listing.
    """
    if not arm.cursor:
        return ""
    match = _CURSOR.fullmatch(arm.cursor)
    if match is None or match[1] != _listing(arm):
        raise BadCursor(
            "cursor: not one that this listing handed out; use next_cursor unchanged, with the same filters"
        )
    return match[2]


def _listing(arm: ListIssues) -> str:
    told = msgspec.json.encode(["linear", arm.repo.upper(), arm.state or "open", arm.labels])
    return hashlib.sha256(told).hexdigest()[:16]


# --- shared ---------------------------------------------------------------------------------------------------------


def _first(found: Reply, forge: ForgeRef) -> Found | None:
    def read(raw: _Issue) -> Found:
        return _found(raw, found.answer, forge)

    first = next(iter(nodes(_issue_decoder, read, found).good), None)
    if first is not None:
        first.issue.warnings += found.errors
    return first


def _found(raw: _Issue, answer: ForgeAnswer, forge: ForgeRef) -> Found:
    repo, number = place(answer, raw.identifier)
    if not raw.id:
        bad(answer, "the forge's answer has no id of an issue")
    issue = Issue(
        forge=forge,
        repo=repo,
        number=number,
        title=raw.title or "",
        body=raw.description or "",
        state="closed" if raw.state is not None and raw.state.type in CLOSED_TYPES else "open",
        labels=[plain_name(label.name) for label in (raw.labels.nodes if raw.labels else ()) if label.name],
        url=raw.url or "",
        author=account(raw.creator, raw.botActor, raw.externalUserCreator),
        created_at=utc_time(raw.createdAt),
        updated_at=utc_time(raw.updatedAt),
    )
    if raw.archivedAt:
        issue.warnings.append("archived on the forge")
    if raw.comments is not None:
        _add_comments(issue, raw.comments, raw.counted, answer)
    return Found(
        id=raw.id,
        issue=issue,
        team_id=raw.team.id if raw.team else "",
        creator_id=raw.creator.id if raw.creator else "",
        previous=frozenset(raw.previousIdentifiers or ()),
        trashed=bool(raw.trashed),
    )


def _add_comments(issue: Issue, page: _Page, counted: _Page | None, answer: ForgeAnswer) -> None:
    """The newest comments, oldest first; Linear gives them the other way round."""

    def read(raw: _Comment) -> Comment:
        return Comment(
            id=raw.id,
            author=account(raw.user, raw.botActor, raw.externalUser),
            body=raw.body or "",
            url=raw.url or "",
            created_at=utc_time(raw.createdAt),
        )

    items = read_items(page.nodes, _comment_decoder, read, answer) if page.nodes else None
    issue.comments = items.good[::-1] if items else []
    issue.warnings += left_out(len(items.broken) if items else 0, "comments")
    issue.comments_total = max(len(page.nodes), len(counted.nodes) if counted else 0)
    if counted is not None and counted.pageInfo.hasNextPage:
        issue.warnings.append(f"more than {COMMENTS_COUNTED} comments; comments_total is not exact")


def _expect_page(answer: ForgeAnswer, issue: Issue) -> None:
    if not is_page(issue.url, "issue", f"{issue.repo}-{issue.number}"):
        bad(answer, "the forge's answer has no URL of the issue")
