"""Linear issues, opened and read: for each operation what is asked, and what its answer means in canonical types. Pure.

An issue's number counts within its team: ``ENG-12`` is number 12 of the repo ENG. A 2xx proves nothing alone, and nor
does the presence of an issue: of a write, ``success`` decides, and the id must be the one that was sent.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from compass_forged.errors import BadArgument, ForgeStatus
from compass_forged.providers.answers import bad
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.http import HttpRequest
from compass_forged.providers.linear_answers import EXACT_MAX, Reply, decoded, expect_id, is_page, nodes, query, reply
from compass_forged.providers.linear_documents import (
    ISSUE_BY_ID,
    ISSUE_BY_IDENTIFIER,
    ISSUE_BY_NUMBER,
    ISSUE_CREATE,
    ISSUE_PLACE_BY_IDENTIFIER,
    ISSUE_PLACE_BY_NUMBER,
)
from compass_forged.providers.linear_found import Found, RawIssue, issue_decoder, read_found
from compass_forged.wire.schema import ForgeRef, Issue

TITLE_MAX_CHARS: Final = 250
"""Ours: Linear publishes no limit."""
UUID_BYTES: Final = 16


# --- what Linear answers, as far as it matters ----------------------------------------------------------------------


class _Created(msgspec.Struct):
    success: bool = False
    issue: RawIssue | None = None


_created_decoder = msgspec.json.Decoder(_Created)


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
    made = read_found(raw.issue, answer, forge)
    expect_id(answer, made.id, issue_id, "issue")
    if made.team_id.casefold() != team_id.casefold():  # ours, as its id says: the team's own rules may move it on
        bad(answer, "the issue does not stand in the team that it was created in")
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
    made = read_found(decoded(issue_decoder, found), answer, forge)
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


# --- shared ---------------------------------------------------------------------------------------------------------


def _first(found: Reply, forge: ForgeRef) -> Found | None:
    def read(raw: RawIssue) -> Found:
        return read_found(raw, found.answer, forge)

    first = next(iter(nodes(issue_decoder, read, found).good), None)
    if first is not None:
        first.issue.warnings += found.errors
    return first


def _expect_page(answer: ForgeAnswer, issue: Issue) -> None:
    if not is_page(issue.url, "issue", f"{issue.repo}-{issue.number}"):
        bad(answer, "the forge's answer has no URL of the issue")
