"""A scripted forge in memory, as a ``Provider``: for tests of the daemon, demos and measurements.

Unscripted, it behaves as a small, honest forge: it remembers what was written and answers reads from that. A script
makes a call fail, wait, or lose its answer after the write has been committed.
"""

import copy
import math
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, TypeVar

import trio

from compass_forged.errors import BadRepo, ForgeStatus, IsPullRequest, PullRequestExists
from compass_forged.ports import CallContext
from compass_forged.wire.schema import (
    LIST_LIMIT_DEFAULT,
    LIST_LIMIT_MAX,
    Arm,
    Checks,
    Comment,
    CommentOnIssue,
    CommentOnPullRequest,
    CommentRef,
    CreateIssue,
    CreatePullRequest,
    ForgeAccount,
    ForgeRef,
    GetIssue,
    GetPullRequest,
    Issue,
    IssuesResult,
    ListIssues,
    PullRequest,
    Review,
    ReviewRef,
    SubmitReview,
    arm_name,
)

_VERDICTS_READ: Final[dict[str, Literal["approved", "changes_requested", "commented"]]] = {
    "approve": "approved",
    "request_changes": "changes_requested",
    "comment": "commented",
}
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Step:
    """What the next call of an operation does.

    Attributes:
        before: seconds to wait before the first byte of a write, or at the start of a read.
        after: seconds to wait after the write is committed, before the answer.
        error: raised instead of acting.
        lost: raised after the write is committed, instead of the answer: a forge that commits and then fails.
    """

    before: float = 0.0
    after: float = 0.0
    error: Exception | None = None
    lost: Exception | None = None


class FakeProvider:
    """Implements ``Provider`` in memory, and honours ``guard.sending`` as a real one does."""

    def __init__(
        self,
        *,
        name: str = "github",
        host: str = "github.com",
        body_limit: int = 65_536,
        login: str = "compass-bot",
        delay: float = 0.0,
    ) -> None:
        """Start empty.

        Args:
            name: the provider's word.
            host: the forge's host.
            body_limit: in bytes of UTF-8; 0 for none.
            login: the forge account that everything is written by.
            delay: how long every call waits once, in seconds; 0 yields to other tasks once.
        """
        self._forge = ForgeRef(provider=name, host=host)
        self._body_limit = body_limit
        self._author = ForgeAccount(login=login, is_bot=True)
        self._delay = delay
        self._scripts: defaultdict[str, deque[Step]] = defaultdict(deque)
        self._next_number: Counter[str] = Counter()
        self._comments = 0
        self._writes = 0
        self.calls: list[Arm] = []
        self.issues: dict[tuple[str, int], Issue] = {}
        self.pull_requests: dict[tuple[str, int], PullRequest] = {}

    @property
    def name(self) -> str:
        """The provider's word."""
        return self._forge.provider

    @property
    def host(self) -> str:
        """The forge's host."""
        return self._forge.host

    @property
    def body_limit(self) -> int:
        """In bytes of UTF-8."""
        return self._body_limit

    def canonical_repo(self, repo: str) -> str:
        """The name casefolded.

        Raises:
            BadRepo: it is not two words with a slash between them.
        """
        owner, slash, name = repo.partition("/")
        if not (owner and slash and name) or "/" in name or not repo.isascii() or not repo.isprintable():
            raise BadRepo("repo: must be owner/name")
        return repo.casefold()

    def script(self, operation: str, *steps: Step) -> None:
        """Queue what the next calls of ``operation``, an arm's tag, do; after that it behaves again."""
        self._scripts[operation].extend(steps)

    def count(self, operation: str = "") -> int:
        """How many calls have come, of one operation or of all."""
        return sum(1 for arm in self.calls if not operation or arm_name(arm) == operation)

    async def create_issue(self, arm: CreateIssue, context: CallContext) -> Issue:
        """Open an issue."""
        step = await self._begin(arm, context, write=True)
        number, url, now = self._new(arm.repo, "issues")
        issue = Issue(
            forge=self._forge,
            repo=arm.repo,
            number=number,
            title=arm.title,
            body=arm.body,
            state="open",
            labels=list(arm.labels),
            url=url,
            author=self._author,
            created_at=now,
            updated_at=now,
        )
        self.issues[self.canonical_repo(arm.repo), number] = issue
        return await self._end(step, copy.deepcopy(issue))

    async def comment_on_issue(self, arm: CommentOnIssue, context: CallContext) -> CommentRef:
        """Comment on an issue or a pull request."""
        step = await self._begin(arm, context, write=True)
        return await self._end(step, self._comment(arm.repo, arm.issue_number, arm.body))

    async def create_pull_request(self, arm: CreatePullRequest, context: CallContext) -> PullRequest:
        """Open a pull request.

        Raises:
            PullRequestExists: one is open for its head and base.
        """
        step = await self._begin(arm, context, write=True)
        for (repo, _), other in self.pull_requests.items():
            place = (other.head_ref, other.base_ref, other.state)
            if repo == self.canonical_repo(arm.repo) and place == (arm.head_ref, arm.base_ref or "main", "open"):
                raise PullRequestExists(copy.deepcopy(other))
        number, url, now = self._new(arm.repo, "pull")
        pull = PullRequest(
            forge=self._forge,
            repo=arm.repo,
            number=number,
            title=arm.title,
            body=arm.body,
            state="open",
            url=url,
            author=self._author,
            created_at=now,
            updated_at=now,
            head_ref=arm.head_ref,
            base_ref=arm.base_ref or "main",
            head_sha=f"{self._writes:040x}",
            draft=arm.draft,
            checks=Checks(),
        )
        self.pull_requests[self.canonical_repo(arm.repo), number] = pull
        return await self._end(step, copy.deepcopy(pull))

    async def comment_on_pull_request(self, arm: CommentOnPullRequest, context: CallContext) -> CommentRef:
        """Comment on a pull request or an issue."""
        step = await self._begin(arm, context, write=True)
        return await self._end(step, self._comment(arm.repo, arm.pull_number, arm.body))

    async def submit_review(self, arm: SubmitReview, context: CallContext) -> ReviewRef:
        """Review a pull request; every inline comment finds its line."""
        step = await self._begin(arm, context, write=True)
        pull = self._find(self.pull_requests, arm.repo, arm.pull_number)
        pull.reviews.append(Review(author=self._author, verdict=_VERDICTS_READ[arm.verdict], body=arm.body))
        number = len(pull.reviews)
        url = f"{pull.url}#pullrequestreview-{number}"
        ref = ReviewRef(url=url, review_id=str(number), verdict=arm.verdict, inline_count=len(arm.comments))
        return await self._end(step, ref)

    async def get_issue(self, arm: GetIssue, context: CallContext) -> Issue:
        """Read an issue.

        Raises:
            IsPullRequest: the number is a pull request's.
        """
        step = await self._begin(arm, context, write=False)
        if (self.canonical_repo(arm.repo), arm.issue_number) in self.pull_requests:
            raise IsPullRequest(arm.issue_number)
        return await self._end(step, copy.deepcopy(self._find(self.issues, arm.repo, arm.issue_number)))

    async def list_issues(self, arm: ListIssues, context: CallContext) -> IssuesResult:
        """List issues, newest first; a cursor is the number below which it goes on."""
        step = await self._begin(arm, context, write=False)
        key = self.canonical_repo(arm.repo)
        below = int(arm.cursor) if arm.cursor else math.inf
        state = arm.state or "open"
        matching = [
            issue
            for (repo, number), issue in sorted(self.issues.items(), key=lambda item: -item[0][1])
            if repo == key and number < below and state in {"all", issue.state} and set(arm.labels) <= set(issue.labels)
        ]
        limit = min(arm.limit or LIST_LIMIT_DEFAULT, LIST_LIMIT_MAX)
        items = [copy.deepcopy(issue) for issue in matching[:limit]]
        for issue in items:
            issue.comments = []
        cursor = str(items[-1].number) if len(matching) > limit else ""
        return await self._end(step, IssuesResult(items=items, next_cursor=cursor))

    async def get_pull_request(self, arm: GetPullRequest, context: CallContext) -> PullRequest:
        """Read a pull request."""
        step = await self._begin(arm, context, write=False)
        return await self._end(step, copy.deepcopy(self._find(self.pull_requests, arm.repo, arm.pull_number)))

    # --- one call -----------------------------------------------------------------------------------------------

    async def _begin(self, arm: Arm, context: CallContext, *, write: bool) -> Step:
        """Count the call, do what its script says comes first, and tell the guard before a write."""
        self.calls.append(arm)
        script = self._scripts[arm_name(arm)]
        step = script.popleft() if script else Step()
        await trio.sleep(self._delay + step.before)
        if step.error is not None:
            raise step.error
        context.forge_requests += 1
        if write:
            await context.guard.sending()
        return step

    async def _end(self, step: Step, answer: _T) -> _T:
        if step.after:
            await trio.sleep(step.after)
        if step.lost is not None:
            raise step.lost
        return answer

    # --- the forge's state --------------------------------------------------------------------------------------

    def _now(self) -> str:
        """A second later with every write, so that order shows and tests can tell the times beforehand."""
        self._writes += 1
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self._writes)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _new(self, repo: str, kind: str) -> tuple[int, str, str]:
        """Number, URL and time of a new artifact."""
        key = self.canonical_repo(repo)
        self._next_number[key] += 1
        number = self._next_number[key]
        return number, f"https://{self.host}/{repo}/{kind}/{number}", self._now()

    def _comment(self, repo: str, number: int, body: str) -> CommentRef:
        key = (self.canonical_repo(repo), number)
        artifact = self.issues.get(key) or self._find(self.pull_requests, repo, number)
        self._comments += 1
        comment_id = str(self._comments)
        url = f"{artifact.url}#issuecomment-{comment_id}"
        artifact.comments.append(
            Comment(id=comment_id, author=self._author, body=body, url=url, created_at=self._now())
        )
        artifact.comments_total += 1
        return CommentRef(url=url, comment_id=comment_id)

    def _find(self, artifacts: Mapping[tuple[str, int], _T], repo: str, number: int) -> _T:
        artifact = artifacts.get((self.canonical_repo(repo), number))
        if artifact is None:
            raise ForgeStatus(404, "Not Found")
        return artifact
