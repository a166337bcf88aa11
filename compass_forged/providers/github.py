"""GitHub as a provider: each operation joins its two translators to the caller.

What it does not have yet raises ``Unsupported`` before any I/O.
"""

from typing import Final

from compass_forged.errors import ForgeStatus, Unsupported
from compass_forged.observability import get_logger
from compass_forged.ports import CallContext
from compass_forged.providers import github_issues as issues
from compass_forged.providers.caller import AnswerTooLarge, ForgeAnswer, ForgeHttp
from compass_forged.wire.schema import (
    Comment,
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

BASE_URL: Final = "https://api.github.com"
HOST: Final = "github.com"
BODY_LIMIT: Final = 65_536
"""GitHub counts characters; bytes are the stricter."""
LIST_PAGES_MAX: Final = 10
"""How many pages one listing reads before it hands out a cursor, however few issues it found."""
LIST_TEXT_MAX: Final = 8 << 20
"""How many characters of bodies one listing holds before it hands out a cursor."""
COMMENT_PAGES_MAX: Final = 4


class GitHubProvider:
    """Implements ``Provider`` for one GitHub host under one credential."""

    def __init__(self, http: ForgeHttp, *, host: str = HOST) -> None:
        """``host`` is the forge's host as coordinates have it, not that of its API."""
        self._http = http
        self._forge = ForgeRef(provider="github", host=host)

    @property
    def name(self) -> str:
        """``github``."""
        return self._forge.provider

    @property
    def host(self) -> str:
        """The host as coordinates have it."""
        return self._forge.host

    @property
    def body_limit(self) -> int:
        """In bytes of UTF-8."""
        return BODY_LIMIT

    @property
    def http(self) -> ForgeHttp:
        """The caller, for its gate's ``statistics`` and its credential's ``broken``."""
        return self._http

    def canonical_repo(self, repo: str) -> str:
        """``owner/name`` casefolded: GitHub tells no two repositories apart by case.

        Raises:
            BadRepo: the string fails GitHub's grammar.
        """
        issues.repo_path(repo)
        return repo.casefold()

    async def create_issue(self, arm: CreateIssue, context: CallContext) -> Issue:
        """Open an issue."""
        answer = await self._http.write(issues.create_issue_request(arm), context)
        return issues.created_issue(answer, arm, self._forge)

    async def comment_on_issue(self, arm: CommentOnIssue, context: CallContext) -> CommentRef:
        """Comment on an issue."""
        answer = await self._http.write(issues.comment_request(arm), context)
        return issues.written_comment(answer, arm)

    async def get_issue(self, arm: GetIssue, context: CallContext) -> Issue:
        """Read an issue with its newest comments.

        Raises:
            IsPullRequest: the number is a pull request's.
        """
        answer = await self._http.read(issues.get_issue_request(arm), context)
        issue = issues.read_issue(answer, arm, self._forge)
        _check_moved(answer, issue, context)
        if issue.comments_total:
            issue.comments = await self._newest_comments(issue, context)
        issue.comments_total = max(issue.comments_total, len(issue.comments))
        return issue

    async def list_issues(self, arm: ListIssues, context: CallContext) -> IssuesResult:
        """List issues, never pull requests: page after page until enough are there, within bounds.

        Raises:
            BadCursor: the cursor was not handed out for this listing.
        """
        position = issues.read_cursor(arm)
        wanted = issues.list_limit(arm)
        found: list[Issue] = []
        text = 0
        for _ in range(LIST_PAGES_MAX):
            position, page = await self._issue_page(arm, position, context)
            for index, issue in enumerate(page.items[position.skip :], position.skip):
                if issue is None:
                    continue
                text += len(issue.body)
                if len(found) == wanted or (found and text > LIST_TEXT_MAX):
                    here = issues.ListPosition(position.words, index)
                    return IssuesResult(items=found, next_cursor=issues.write_cursor(arm, here))
                found.append(issue)
            if page.next is None:
                return IssuesResult(items=found)
            position = page.next
            if len(found) == wanted:
                break
        return IssuesResult(items=found, next_cursor=issues.write_cursor(arm, position))

    async def create_pull_request(self, arm: CreatePullRequest, context: CallContext) -> PullRequest:  # noqa: ARG002 -- the port's shape
        """Not there yet."""
        raise Unsupported(self.name, "create_pull_request")

    async def comment_on_pull_request(self, arm: CommentOnPullRequest, context: CallContext) -> CommentRef:  # noqa: ARG002 -- likewise
        """Not there yet."""
        raise Unsupported(self.name, "comment_on_pull_request")

    async def submit_review(self, arm: SubmitReview, context: CallContext) -> ReviewRef:  # noqa: ARG002 -- likewise
        """Not there yet."""
        raise Unsupported(self.name, "submit_review")

    async def get_pull_request(self, arm: GetPullRequest, context: CallContext) -> PullRequest:  # noqa: ARG002 -- likewise
        """Not there yet."""
        raise Unsupported(self.name, "get_pull_request")

    async def _issue_page(
        self, arm: ListIssues, position: issues.ListPosition, context: CallContext
    ) -> tuple[issues.ListPosition, issues.IssuePage]:
        """A page, in small pages where a whole one is too large; with the place that it was read from."""
        try:
            answer = await self._http.read(issues.list_issues_request(arm, position), context)
        except AnswerTooLarge as error:
            answer, smaller = None, position.smaller()
            if smaller is None:
                raise
            log.info("a page of a listing is too large; it is read in smaller ones", why=str(error))
            position = smaller
        if answer is None:
            answer = await self._http.read(issues.list_issues_request(arm, position), context)
        page = issues.read_issue_page(answer, arm, self._forge, position)
        for issue in page.items:
            if issue is not None:
                _check_moved(answer, issue, context)
        return position, page

    async def _newest_comments(self, issue: Issue, context: CallContext) -> list[Comment]:
        """The newest comments, read forward from the last full page on: more may have come since they were counted."""
        first = issues.first_comments_page(issue.comments_total)
        comments: list[Comment] = []
        for page in range(first, first + COMMENT_PAGES_MAX):
            answer = await self._http.read(issues.comments_request(issue.repo, issue.number, page), context)
            new = issues.read_comments(answer, issue.repo, issue.number)
            comments += new
            if len(new) < issues.COMMENTS_SHOWN:
                break
        return comments[-issues.COMMENTS_SHOWN :]


def _check_moved(answer: ForgeAnswer, issue: Issue, context: CallContext) -> None:
    """A read that was redirected must not show a repository that the call may not touch.

    Raises:
        ForgeStatus: told as any other refusal, so that the new place does not show.
    """
    if answer.moved and context.may_touch is not None and not context.may_touch(issue.repo):
        raise ForgeStatus(404, "moved to a repository outside the session's scope")
