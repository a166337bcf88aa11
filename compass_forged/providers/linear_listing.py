"""Listings of a Linear team's issues: what is asked, what a page of one means, and the cursors between pages. Pure."""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

import msgspec

from compass_forged.errors import BadAnswer, BadCursor
from compass_forged.providers.answers import Items, bad, read_items
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.http import HttpRequest
from compass_forged.providers.linear_answers import decoded, expect_id, query, reply
from compass_forged.providers.linear_documents import ISSUES, LIST_PAGE_MAX
from compass_forged.providers.linear_found import CLOSED_TYPES, Found, Page, RawIssue, issue_decoder, read_found
from compass_forged.wire.schema import LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX, ForgeRef, Issue, ListIssues

_page_decoder = msgspec.json.Decoder(Page)

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

    def read(raw: RawIssue) -> Found:
        found = read_found(raw, answer, forge)
        if found.team_id:
            expect_id(answer, found.team_id, team_id, "team")
        return found

    found = reply(ISSUES, answer)
    page = decoded(_page_decoder, found)
    items: Items[Found]
    try:
        items = read_items(page.nodes, issue_decoder, read, answer)
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
