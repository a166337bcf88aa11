"""Reads: live from the forge, bodies without headers, each artifact with who wrote it as far as that is known."""

from collections.abc import Sequence
from typing import Final

import msgspec
import trio

from compass_forged import owner
from compass_forged.errors import StoreError
from compass_forged.observability import Counters, get_logger
from compass_forged.ports import ArtifactKind, Coordinate, Store
from compass_forged.service.bound import BoundCall, ServiceLimits
from compass_forged.wire.codec import encode_reply
from compass_forged.wire.frames import REPLY_MAX_BYTES
from compass_forged.wire.schema import (
    Attribution,
    Comment,
    GetIssue,
    GetPullRequest,
    Issue,
    IssueResult,
    ListIssues,
    PullRequest,
    PullRequestResult,
    ResultArm,
    ResultFrame,
    Review,
    ReviewThread,
)

_log = get_logger(__name__)

_FRAME_SLACK_BYTES: Final = 4096
_ATTRIBUTION_BYTES: Final = 256
"""What the proof of an artifact's author may add to a reply at the most, words and names of fields together."""
_BODY_TIMES_LIMIT: Final = 4
"""A forge's body of so many times its own limit is cut: no honest one is that long, and reading it takes a while."""


class Reader:
    """Reads for the service. One query a page asks the ownership index; without it the text's own claim counts."""

    def __init__(self, store: Store, *, counters: Counters, limits: ServiceLimits) -> None:
        """``store`` holds the ownership index."""
        self._store = store
        self._counters = counters
        self._limits = limits

    async def get_issue(self, bound: BoundCall, arm: GetIssue) -> ResultArm:
        """An issue with its newest comments."""
        issue = await bound.provider.get_issue(arm, bound.context)
        await self._clean(bound, [issue])
        await self._clean(bound, issue.comments)
        await self._verify(bound, "issue", [issue])
        _shorten(IssueResult(issue=issue), issue.comments)
        return IssueResult(issue=issue)

    async def get_pull_request(self, bound: BoundCall, arm: GetPullRequest) -> ResultArm:
        """A pull request with its comments, reviews and threads."""
        pull = await bound.provider.get_pull_request(arm, bound.context)
        await self._clean(bound, [pull])
        await self._clean(bound, pull.comments)
        await self._clean(bound, pull.reviews)
        for thread in pull.threads:
            await self._clean(bound, thread.comments)
        await self._verify(bound, "pull_request", [pull])
        result = PullRequestResult(pull_request=pull)
        for newest_last in _long_lists(pull):
            _shorten(result, newest_last)
        return result

    async def list_issues(self, bound: BoundCall, arm: ListIssues) -> ResultArm:
        """A page of issues."""
        page = await bound.provider.list_issues(arm, bound.context)
        await self._clean(bound, page.items)
        fewer = len(page.items) // 2
        while fewer and _size(page) + _ATTRIBUTION_BYTES * len(page.items) > REPLY_MAX_BYTES:
            # Cursors are the provider's, so a shorter page must be asked for: half as many items.
            page = await bound.provider.list_issues(msgspec.structs.replace(arm, limit=fewer), bound.context)
            await self._clean(bound, page.items)
            fewer = min(fewer, len(page.items)) // 2
        await self._verify(bound, "issue", page.items)
        return page

    async def _verify(self, bound: BoundCall, kind: ArtifactKind, artifacts: list[Issue] | list[PullRequest]) -> None:
        """Where the index knows who wrote what, that stands instead of what the text claims. One query."""
        if not artifacts:
            return
        wanted = {made.number: bound.coordinate(kind, made.number, made.repo) for made in artifacts}
        known = await self._index_lookup(list(wanted.values()), bound.account.agent_id)
        for made in artifacts:
            made.attribution = known.get(wanted[made.number], made.attribution)

    async def _clean(self, bound: BoundCall, texts: Sequence[Issue] | list[Comment] | list[Review]) -> None:
        """Strip the bodies, and say what they claim of their authors."""
        for text in texts:
            await trio.lowlevel.checkpoint()  # a page of hostile bodies takes a while to strip: let others run
            body = cut(bound, text.body, self._counters)
            text.attribution = claimed(body)
            text.body = owner.strip(body)

    async def _index_lookup(self, coordinates: list[Coordinate], asker: int) -> dict[Coordinate, Attribution]:
        if not self._store.available:
            return {}
        with trio.move_on_after(self._limits.attribution_seconds):
            try:
                found = await self._store.attribution_of(coordinates, asker=asker)
            except StoreError as error:
                _log.warning("attribution not looked up", error=str(error))
            else:
                return {
                    place: Attribution(who.agent, who.owner, who.session_id, verified=True)
                    for place, who in found.items()
                }
        self._counters.add("attribution_lookups_failed")
        return {}


def cut(bound: BoundCall, body: str, counters: Counters) -> str:
    """A body from the forge, cut where it is longer than any honest one."""
    most = bound.provider.body_limit * _BODY_TIMES_LIMIT
    if not most or len(body) <= most:
        return body
    counters.add("forge_bodies_cut")
    _log.warning("a body from the forge was cut", coordinate=bound.context.coordinate, chars=len(body))
    return body[:most]


def claimed(body: str) -> Attribution | None:
    """What a text says of its author: a claim, whoever wrote it."""
    claim = owner.parse(body)
    return None if claim is None else Attribution(claim.agent, claim.owner, claim.session, verified=False)


def _long_lists(pull: PullRequest) -> list[list[Comment] | list[Review] | list[ReviewThread]]:
    """What a pull request may have too much of, in the order in which it goes."""
    return [pull.comments, pull.threads, pull.reviews]


def _shorten(result: ResultArm, items: list[Comment] | list[Review] | list[ReviewThread]) -> None:
    """Drop the oldest of ``items``, which are the first, until the result fits into a reply; totals tell."""
    while len(items) > 1 and _size(result) > REPLY_MAX_BYTES:
        del items[: (len(items) + 1) // 2]


def _size(result: ResultArm) -> int:
    return len(encode_reply(ResultFrame(call_id="", result=result))) + _FRAME_SLACK_BYTES
