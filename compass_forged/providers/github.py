"""GitHub as a provider: each operation joins its translators to the caller."""

from collections.abc import Callable
from typing import Final

from compass_forged.observability import Counters, get_logger
from compass_forged.ports import CallContext
from compass_forged.providers import github_issues as issues
from compass_forged.providers import github_pull_flow, github_review_flow
from compass_forged.providers.answers import left_out
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.forge_answer import AnswerTooLarge
from compass_forged.providers.github_access import Access, check_moved
from compass_forged.providers.github_answers import OwnAccount, repo_path
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

BASE_URL: Final = "https://api.github.com"
HOST: Final = "github.com"
BODY_LIMIT: Final = 65_536
"""GitHub counts characters; bytes are the stricter."""
LIST_PAGES_MAX: Final = 10
"""How many pages one listing reads before it hands out a cursor, however few issues it found."""
LIST_TEXT_MAX: Final = 8 << 20
"""How many characters of bodies one listing holds before it hands out a cursor."""


class GitHubProvider:
    """Implements ``Provider`` for one GitHub host under one credential."""

    def __init__(
        self,
        http: ForgeHttp,
        *,
        host: str = HOST,
        own_login: Callable[[], str] = lambda: "",
        own_user_id: Callable[[], int] = lambda: 0,
        not_own: Callable[[], None] = lambda: None,
        counters: Counters | None = None,
    ) -> None:
        """Join an operation's parts.

        Args:
            http: the caller.
            host: the forge's host as coordinates have it, not that of its API.
            own_login: the login that the credential writes as, ``name[bot]`` for an App; "" while it is not known.
                What is written is then not checked for its author, and a verdict on an own pull request is refused
                by the forge alone.
            own_user_id: the user's id; 0 for an App, or while it is not known.
            not_own: told that what was written came back as another account's.
            counters: what is counted for the operator.
        """
        self._http = http
        self._forge = ForgeRef(provider="github", host=host)
        self._access = Access(http, self._forge, OwnAccount(own_login, own_user_id, not_own), counters or Counters())
        self._default_branches = github_pull_flow.DefaultBranches()

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
        repo_path(repo)
        return repo.casefold()

    async def create_issue(self, arm: CreateIssue, context: CallContext) -> Issue:
        """Open an issue."""
        answer = await self._http.write(issues.create_issue_request(arm), context)
        with self._http.proving():
            return issues.created_issue(answer, arm, self._forge, self._access.own)

    async def comment_on_issue(self, arm: CommentOnIssue, context: CallContext) -> CommentRef:
        """Comment on an issue."""
        return await self._comment(arm.repo, arm.issue_number, arm.body, context)

    async def get_issue(self, arm: GetIssue, context: CallContext) -> Issue:
        """Read an issue with its newest comments.

        Raises:
            IsPullRequest: the number is a pull request's.
        """
        answer = await self._http.read(issues.get_issue_request(arm), context)
        issue = issues.read_issue(answer, arm, self._forge)
        check_moved(answer, issue.repo, context)
        if issue.comments_total:
            found = await github_pull_flow.newest_comments(
                self._access, issue.repo, issue.number, issue.comments_total, context
            )
            issue.comments = found.items
            issue.warnings += left_out(found.broken, "comments")
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
        text = broken = 0

        def listed(here: issues.ListPosition | None) -> IssuesResult:
            cursor = issues.write_cursor(arm, here) if here else ""
            return IssuesResult(items=found, next_cursor=cursor, warnings=left_out(broken, "items"))

        for _ in range(LIST_PAGES_MAX):
            position, page = await self._issue_page(arm, position, context)
            for index, issue in enumerate(page.items[position.skip :], position.skip):
                if issue is None:
                    broken += index in page.broken
                    continue
                text += len(issue.body)
                if len(found) == wanted or (found and text > LIST_TEXT_MAX):
                    return listed(issues.ListPosition(position.words, index))
                found.append(issue)
            if page.next is None:
                return listed(None)
            position = page.next
            if len(found) == wanted:
                break
        return listed(position)

    async def create_pull_request(self, arm: CreatePullRequest, context: CallContext) -> PullRequest:
        """Open a pull request, into the repository's default branch where the arm names none.

        Raises:
            PullRequestExists: one stands for its head and base.
        """
        return await github_pull_flow.create(self._access, self._default_branches, arm, context)

    async def comment_on_pull_request(self, arm: CommentOnPullRequest, context: CallContext) -> CommentRef:
        """Comment on a pull request's conversation."""
        return await self._comment(arm.repo, arm.pull_number, arm.body, context)

    async def submit_review(self, arm: SubmitReview, context: CallContext) -> ReviewRef:
        """Review a pull request: comments at their lines where the diff has them, else in the summary.

        The summary comes stamped, the comments stripped of headers.

        Raises:
            BadReview: too large, or a verdict on a pull request of the account's own.
            ForgePrecondition: a pending review that is not ours stands in the way.
        """
        return await github_review_flow.submit(self._access, arm, context, BODY_LIMIT)

    async def get_pull_request(self, arm: GetPullRequest, context: CallContext) -> PullRequest:
        """Read a pull request with its newest comments, its reviews, threads and checks."""
        return await github_pull_flow.read(self._access, arm, context)

    async def _comment(self, repo: str, number: int, body: str, context: CallContext) -> CommentRef:
        answer = await self._http.write(issues.comment_request(repo, number, body), context)
        with self._http.proving():
            return issues.written_comment(answer, repo, number, self._access.own)

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
                check_moved(answer, issue.repo, context)
        return position, page
