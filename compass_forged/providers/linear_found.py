"""An issue as Linear shows it: in the canonical form, and what of it is only for us. Pure."""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from compass_forged.providers.answers import bad, left_out, read_items, utc_time
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.linear_answers import Bot, External, User, account, place, plain_name
from compass_forged.providers.linear_documents import COMMENTS_COUNTED
from compass_forged.wire.schema import Comment, ForgeRef, Issue

CLOSED_TYPES: Final = ("completed", "canceled", "duplicate")
"""The types of workflow states in which an issue is closed; names of states are free text, and say nothing."""


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


class Page(msgspec.Struct):
    """Some of a list, and whether there is more."""

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


class RawIssue(msgspec.Struct):
    """An issue as Linear has it; which of its fields come is up to the document that asked."""

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
    comments: Page | None = None
    counted: Page | None = None


_comment_decoder = msgspec.json.Decoder(_Comment)
issue_decoder = msgspec.json.Decoder(RawIssue)


# --- what it means --------------------------------------------------------------------------------------------------


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


def read_found(raw: RawIssue, answer: ForgeAnswer, forge: ForgeRef) -> Found:
    """The issue, its newest comments oldest first.

    Raises:
        BadAnswer: it has no id or identifier, or none of its comments can be read.
    """
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
    if raw.trashed:
        issue.warnings.append("deleted on the forge: it is in the trash")
    elif raw.archivedAt:
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


def _add_comments(issue: Issue, page: Page, counted: Page | None, answer: ForgeAnswer) -> None:
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
