"""Linear as a provider: the half of it that has to do with issues. What it has not raises before any I/O.

Linear takes an id for what is created. So nothing is created twice however often it is sent: a create under a key has
an id of its own, which a repeated one meets ("already exists"), and of any write whose end is unknown the id tells
whether it was carried out.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeVar

import trio

from compass_forged import owner
from compass_forged.errors import (
    ForeignAnswer,
    ForgeError,
    ForgePrecondition,
    ForgeStatus,
    ForgeUnavailable,
    Unsupported,
)
from compass_forged.observability import get_logger
from compass_forged.ports import CallContext
from compass_forged.providers import linear_comments as comments
from compass_forged.providers import linear_issues as issues
from compass_forged.providers import linear_listing as listing
from compass_forged.providers.answers import left_out
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.forge_answer import AnswerTooLarge, ForgeAnswer
from compass_forged.providers.identity import Identity
from compass_forged.providers.linear_actor import Actor
from compass_forged.providers.linear_answers import team_key
from compass_forged.providers.linear_errors import EntityExists, ExclusiveLabels, TeamGone
from compass_forged.providers.linear_found import Found
from compass_forged.providers.linear_labels import Label, explained, found_labels, labels_request
from compass_forged.providers.linear_teams import Team, Teams
from compass_forged.wire.schema import (
    CommentOnIssue,
    CommentOnPullRequest,
    CommentRef,
    CreateIssue,
    CreatePullRequest,
    ForgeRef,
    GetIssue,
    GetPullRequest,
    Issue,
    IssuesResult,
    ListIssues,
    PullRequest,
    ReviewRef,
    SubmitReview,
)

log = get_logger(__name__)

BASE_URL: Final = "https://api.linear.app"
HOST: Final = "linear.app"
"""Of every coordinate, wherever the API is spoken to: there is one Linear."""
BODY_LIMIT: Final = 60_000
"""Ours: Linear publishes no limit."""
LIST_PAGES_MAX: Final = 10
"""How many pages one listing reads before it hands out a cursor, however few issues it found."""
LOOKS: Final = 2
"""How often something is looked for by its id once nobody knows whether it was made."""
LOOK_AGAIN_SECONDS: Final = 1.0
LOOK_SECONDS: Final = 5.0
"""How long looking for it may take in all."""
_NO_SUCH: Final = 404
_NAMED_REFUSALS: Final = frozenset({403, 422})
"""How Linear refuses a write for the name that it is to stand under."""

T = TypeVar("T")


class _OutOfScope(ForgeStatus):
    """What a create has made stands where the call may not touch it. Told as any other refusal."""


class LinearProvider:
    """Implements ``Provider`` for Linear under one credential, which is for one workspace."""

    def __init__(self, http: ForgeHttp, *, create_as_user: str = "", display_icon_url: str = "") -> None:
        """Join an operation's parts.

        Args:
            http: the caller.
            create_as_user: the name under which everything is written, where the credential is an app's own.
            display_icon_url: the picture beside it; "" for none.
        """
        self._http = http
        self._forge = ForgeRef(provider="linear", host=HOST)
        self._teams = Teams(http)
        self._actor = Actor(http, name=create_as_user, icon_url=display_icon_url)

    @property
    def name(self) -> str:
        """``linear``."""
        return self._forge.provider

    @property
    def host(self) -> str:
        """Always ``linear.app``."""
        return self._forge.host

    @property
    def body_limit(self) -> int:
        """In bytes of UTF-8."""
        return BODY_LIMIT

    @property
    def http(self) -> ForgeHttp:
        """The caller, for its gate's ``statistics`` and its credential's ``broken``."""
        return self._http

    @property
    def writes_as(self) -> str:
        """The name that a write would stand under now; "" where that is the credential's own, or nothing is known."""
        return self._actor.words().get("createAsUser", "")

    def canonical_repo(self, repo: str) -> str:
        """The team's key in upper case.

        Raises:
            BadRepo: the string is no key.
        """
        return team_key(repo)

    async def learn_identity(self) -> Identity:
        """Ask Linear who the credential is, which decides whether it may choose a name to write under.

        Raises:
            ForgeError: it cannot be learned now.
        """
        return await self._actor.learn()

    # --- writes -------------------------------------------------------------------------------------------------

    async def create_issue(self, arm: CreateIssue, context: CallContext) -> Issue:
        """Open an issue. Under a key that has opened one before, it is that one, ``replayed``.

        Raises:
            BadArgument: the title is too long, or a label is not there or cannot be set.
            ForgePrecondition: the team takes no new issues.
        """
        issues.check_title(arm.title)
        with _before_the_write():
            team = await self._teams.find(team_key(arm.repo), context)
            if team.retired:
                raise ForgePrecondition("the team is retired and takes no new issues")
            labels = await self._labels(team, arm, context)
        issue_id = issues.new_id(context.create_id)

        async def write(actor: dict[str, str]) -> Issue:
            request = issues.create_request(
                issue_id, team.id, arm.title, arm.body, [label.id for label in labels], actor
            )
            answer = await self._http.write(request, context)
            with self._http.proving():
                made = issues.created_issue(answer, issue_id, team.id, self._forge)
            if made.repo.upper() != team.key.upper():  # renamed since it was looked up: that a scope may forbid
                self._teams.forget(team_key(arm.repo))
            return made

        async def look() -> Issue | None:
            return await self._standing(issue_id, team, arm, context)

        with self._minding(team_key(arm.repo), labels):
            return await self._written(write, look)

    async def comment_on_issue(self, arm: CommentOnIssue, context: CallContext) -> CommentRef:
        """Comment on an issue, wherever it stands by now if the call may touch that."""
        key = team_key(arm.repo)
        with _before_the_write(), self._minding(key):
            issue_id = (await self._find(key, arm.issue_number, context, whole=False)).id
        comment_id = issues.new_id(None)

        async def write(actor: dict[str, str]) -> CommentRef:
            request = comments.comment_request(comment_id, issue_id, arm.body, actor)
            answer = await self._http.write(request, context)
            with self._http.proving():
                return comments.written_comment(answer, comment_id, issue_id)

        async def look() -> CommentRef | None:
            answer = await self._http.read(comments.comment_by_id_request(comment_id), context)
            return comments.comment_by_id(answer, comment_id, issue_id)

        return await self._written(write, look)

    async def _written(
        self, write: Callable[[dict[str, str]], Awaitable[T]], look: Callable[[], Awaitable[T | None]]
    ) -> T:
        """Write; where nobody knows how that ended, or an earlier attempt stands in the way, what there is.

        Raises:
            ForgeError: what the write met, with the true ``outcome``.
        """
        try:
            return await self._written_as(write)
        except ForgeError as error:
            if error.outcome != "unknown" and not isinstance(error, EntityExists):
                raise
            failure = error
        try:
            log.warning("the end of a write is not known; it is looked for by its id", why=type(failure).__name__)
            found = await self._look_for(look)
            if found is not None:
                return found
            if isinstance(failure, EntityExists):
                raise ForgeUnavailable("what an earlier attempt made cannot be read now", outcome="unknown")
            raise failure
        finally:
            # An error that a frame of its own traceback holds is a cycle, and with it stays what the call held.
            del failure

    async def _written_as(self, write: Callable[[dict[str, str]], Awaitable[T]]) -> T:
        """Write under the configured name; if that is refused, once more without: a refused write has made nothing."""
        await self._http.credential.token()  # another one than before may be another's
        words = self._actor.words()
        if words:
            try:
                return await write(words)
            except (ForgePrecondition, ForgeStatus) as error:
                if not _may_be_for_the_name(error):
                    raise
        made = await write({})
        if words:
            self._actor.degrade()
        return made

    async def _look_for(self, look: Callable[[], Awaitable[T | None]]) -> T | None:
        """What stands under the id of a write. A forge that has just failed may take a moment to show it.

        Raises:
            ForgeError: something stands there that cannot be ours, or may not be touched.
        """
        with trio.move_on_after(LOOK_SECONDS):
            for attempt in range(LOOKS):
                if attempt:
                    await trio.sleep(LOOK_AGAIN_SECONDS)
                try:
                    found = await look()
                except (ForeignAnswer, _OutOfScope):
                    raise
                except ForgeError as error:
                    log.warning("what was written cannot be looked for", why=str(error))
                else:
                    if found is not None:
                        return found
        return None

    async def _standing(self, issue_id: str, team: Team, arm: CreateIssue, context: CallContext) -> Issue | None:
        """What stands under the id of a create: the same one, made by this attempt or one that went before.

        Raises:
            ForeignAnswer: it is not this agent's.
            ForgeStatus: it stands in a team that the call may not touch.
        """
        answer = await self._http.read(issues.by_id_request(issue_id), context)
        found = issues.by_id(answer, issue_id, self._forge)
        if found is None:
            return None
        if not self._is_of(found, arm.body):
            raise ForeignAnswer(answer.status, "the issue under this create's id is not this agent's")
        issue = found.issue
        if found.team_id != team.id:
            if context.may_touch is not None and not context.may_touch(issue.repo):
                raise _OutOfScope(404, "the issue of this key stands in a team outside the session's scope")
            # A key that was used for another team before; an issue that people have moved since is no mismatch.
            issue.replay_mismatch = not any(former.startswith(f"{team.key}-") for former in found.previous)
        issue.replayed = context.create_id is not None
        return issue

    def _is_of(self, found: Found, stamped: str) -> bool:
        """Whether an issue was written for whom ``stamped`` is.

        By its header or, where people have removed that, by the account that opened it. The id says so already, which
        nobody else could have made.
        """
        theirs, ours = owner.parse(found.issue.body), owner.parse(stamped)
        if theirs is not None and ours is not None:
            return (theirs.agent, theirs.owner) == (ours.agent, ours.owner)
        return theirs is None and found.creator_id in {"", self._actor.viewer_id or found.creator_id}

    # --- reads --------------------------------------------------------------------------------------------------

    async def get_issue(self, arm: GetIssue, context: CallContext) -> Issue:
        """Read an issue with its newest comments, archived or not, under its present place."""
        key = team_key(arm.repo)
        with self._minding(key):
            return (await self._find(key, arm.issue_number, context, whole=True)).issue

    async def list_issues(self, arm: ListIssues, context: CallContext) -> IssuesResult:
        """List a team's issues, newest first: page after page until enough are there, within bounds.

        Raises:
            BadCursor: the cursor was not handed out for this listing.
        """
        key = team_key(arm.repo)
        after = listing.read_cursor(arm)
        wanted = listing.list_limit(arm)
        found: list[Issue] = []
        warnings: list[str] = []
        broken = 0
        with self._minding(key):
            team = await self._teams.find(key, context)
            size = wanted
            for _ in range(LIST_PAGES_MAX):
                answer, size = await self._page(arm, team, min(size, wanted - len(found)), after, context)
                page = listing.read_page(answer, team.id, self._forge, after=after, alone=not found)
                found += page.items
                broken += page.broken
                warnings += page.errors
                after = page.after
                if not after or len(found) >= wanted:
                    break
        for issue in found:
            self._check_key(key, issue.repo, context)
        return IssuesResult(
            items=found,
            next_cursor=listing.write_cursor(arm, after),
            warnings=[*left_out(broken, "items"), *dict.fromkeys(warnings)],
        )

    async def _page(
        self, arm: ListIssues, team: Team, size: int, after: str, context: CallContext
    ) -> tuple[ForgeAnswer, int]:
        """A page, a smaller one where it would be too large; and how large it was."""
        while True:
            try:
                return await self._http.read(listing.list_request(arm, team.id, size, after), context), size
            except AnswerTooLarge as error:
                if size == 1:
                    raise
                log.info("a page of a listing is too large; it is read in smaller ones", why=str(error))
            size = (size + 1) // 2

    async def _find(self, key: str, number: int, context: CallContext, *, whole: bool) -> Found:
        """An issue by its number in a team, or by an identifier that it had before it was moved to another one.

        Raises:
            ForgeStatus: there is none, or people have deleted it, or the call may not touch where it stands.
        """
        issues.check_number(number)
        team = await self._teams.find(key, context)
        answer = await self._http.read(issues.by_number_request(team.id, number, whole=whole), context)
        found = issues.by_number(answer, team.id, number, self._forge, whole=whole)
        if found is None:
            try:
                answer = await self._http.read(issues.by_identifier_request(key, number, whole=whole), context)
            except ForgeStatus as error:  # in whatever words: the team has no such number, and nor has it had one
                raise (error if error.status == _NO_SUCH else ForgeStatus(_NO_SUCH, error.detail)) from None
            found = issues.by_identifier(answer, key, number, self._forge, whole=whole)
        if found.trashed:
            raise ForgeStatus(404, "the issue was deleted")
        self._check_key(key, found.issue.repo, context)
        return found

    def _check_key(self, key: str, repo: str, context: CallContext) -> None:
        """What stands under another key than was asked for must be in the call's scope too.

        Raises:
            ForgeStatus: it is not; told as any other refusal, so that the new place does not show.
        """
        if repo.upper() == key:
            return
        self._teams.forget(key)  # if the team was renamed, the next call learns so
        if context.may_touch is not None and not context.may_touch(repo):
            raise ForgeStatus(404, "moved to a team outside the session's scope")

    # --- what Linear has not ------------------------------------------------------------------------------------

    async def create_pull_request(self, arm: CreatePullRequest, context: CallContext) -> PullRequest:  # noqa: ARG002 -- the port's shape
        """Linear has no pull requests."""
        raise Unsupported(self.name, "create_pull_request")

    async def comment_on_pull_request(self, arm: CommentOnPullRequest, context: CallContext) -> CommentRef:  # noqa: ARG002 -- likewise
        """Linear has no pull requests."""
        raise Unsupported(self.name, "comment_on_pull_request")

    async def submit_review(self, arm: SubmitReview, context: CallContext) -> ReviewRef:  # noqa: ARG002 -- likewise
        """Linear has no reviews."""
        raise Unsupported(self.name, "submit_review")

    async def get_pull_request(self, arm: GetPullRequest, context: CallContext) -> PullRequest:  # noqa: ARG002 -- likewise
        """Linear has no pull requests."""
        raise Unsupported(self.name, "get_pull_request")

    # --- small helpers ------------------------------------------------------------------------------------------

    async def _labels(self, team: Team, arm: CreateIssue, context: CallContext) -> list[Label]:
        names = list(dict.fromkeys(label.strip() for label in arm.labels))
        if not names:
            return []
        return found_labels(await self._http.read(labels_request(team.id, names), context), team.id, names)

    @contextmanager
    def _minding(self, key: str, labels: list[Label] | None = None) -> Generator[None, None, None]:
        """Forget a team that is gone, and say which labels exclude each other, as errors pass by."""
        try:
            yield
        except TeamGone:
            self._teams.forget(key)
            raise
        except ExclusiveLabels as error:
            raise explained(labels or []) from error


def _may_be_for_the_name(error: ForgePrecondition | ForgeStatus) -> bool:
    """Whether a write may have been refused, and so not made, for the name that it was to stand under.

    In what words Linear does so is not known: "forbidden", a missing scope and an invalid input all may be it.
    """
    if error.outcome != "rejected" or isinstance(error, ExclusiveLabels):
        return False
    return isinstance(error, ForgePrecondition) or error.status in _NAMED_REFUSALS


@contextmanager
def _before_the_write() -> Generator[None, None, None]:
    """What fails in the block failed before anything of the write went out."""
    try:
        yield
    except ForgeError as error:
        error.outcome = "not_sent"
        raise
