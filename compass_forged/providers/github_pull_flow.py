"""Opening and reading a pull request at GitHub, both of which take several requests."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

import trio

from compass_forged.errors import ForgeStatus, PullRequestExists
from compass_forged.ports import CallContext
from compass_forged.providers import github_checks as checks
from compass_forged.providers import github_issues as issues
from compass_forged.providers import github_pulls as pulls
from compass_forged.providers import github_reviews as reviews
from compass_forged.providers import github_threads as threads
from compass_forged.providers.answers import left_out
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github_access import Access, Listing, check_moved, check_unmoved, failing_as, read_list
from compass_forged.providers.together import together
from compass_forged.wire.schema import Comment, CreatePullRequest, GetPullRequest, PullRequest

HEAD_RETRY_SECONDS: Final = 1.0
"""How long a head that the forge does not know yet is waited for, once: its branch may have been pushed just now."""
COMMENT_PAGES_MAX: Final = 4
REVIEW_PAGES_MAX: Final = 5
TEXT_MAX: Final = 4 << 20
"""How many characters of review comments one pull request is shown with; the oldest go."""
_NOT_TOLD: Final = frozenset({403, 404, 422})
"""How a source of checks is refused that the credential may not read, that the forge has not, or for a commit gone."""


class DefaultBranches:
    """The default branches of repositories, each kept for a while."""

    def __init__(self, *, keep_seconds: float = 300.0, most: int = 512) -> None:
        """``most`` is how many repositories are kept; the one asked for longest ago goes first."""
        self._keep_seconds = keep_seconds
        self._most = most
        self._known: dict[str, tuple[float, str]] = {}

    async def of(self, access: Access, repo: str, context: CallContext) -> str:
        """The default branch of ``repo``.

        Raises:
            ForgeError: one of its kinds; nothing was written.
        """
        key = repo.casefold()
        told = self._known.get(key)
        if told is not None and trio.current_time() < told[0]:
            return told[1]
        answer = await access.http.read(pulls.repository_request(repo), context)
        name, branch = pulls.read_default_branch(answer, repo)
        check_moved(answer, name, context)
        self._known.pop(key, None)
        self._known[key] = (trio.current_time() + self._keep_seconds, branch)
        while len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return branch


# --- open -----------------------------------------------------------------------------------------------------------


async def create(
    access: Access, branches: DefaultBranches, arm: CreatePullRequest, context: CallContext
) -> PullRequest:
    """Open a pull request.

    Raises:
        PullRequestExists: one stands for its head and base.
        ForgeError: another of its kinds.
    """
    base = arm.base_ref
    if not base:
        with failing_as("not_sent", refused="rejected"):
            base = await branches.of(access, arm.repo, context)
    try:
        answer = await _post(access, arm, base, context)
    except ForgeStatus as refused:
        if not pulls.says_it_exists(refused):
            raise
        raise await _look_up(access, arm, base, context) from refused
    with access.http.proving():
        return pulls.created_pull(answer, arm, access.forge, access.own)


async def _post(access: Access, arm: CreatePullRequest, base: str, context: CallContext) -> ForgeAnswer:
    request = pulls.create_request(arm, base)
    try:
        return await access.http.write(request, context)
    except ForgeStatus as refused:
        patient = trio.current_time() + HEAD_RETRY_SECONDS < min(context.deadline, trio.current_effective_deadline())
        if not patient or not pulls.says_head_unknown(refused):
            raise
    await trio.sleep(HEAD_RETRY_SECONDS)
    with failing_as("rejected", sent="unknown"):  # the first was refused, which is definite: this is no repeat
        return await access.http.write(request, context)


async def _look_up(access: Access, arm: CreatePullRequest, base: str, context: CallContext) -> PullRequestExists:
    """What says which pull request stands for the arm's head and base, if the forge shows it."""
    with failing_as("unknown"):  # something stands there, and an earlier attempt may have made it
        answer = await access.http.read(pulls.look_up_request(arm, base), context)
        found = pulls.looked_up(answer, arm, base, access.forge)
        if found is not None:
            check_moved(answer, found.repo, context)
    login = found.author.login if found and found.author else ""
    return PullRequestExists(found, foreign=found is not None and access.own.known and not access.own.named(login))


# --- read -----------------------------------------------------------------------------------------------------------


async def read(access: Access, arm: GetPullRequest, context: CallContext) -> PullRequest:
    """Read a pull request, and side by side what stands on pages of its own: comments, reviews, threads, checks.

    Raises:
        ForgeError: one of its kinds.
    """
    answer = await access.http.read(pulls.get_request(arm.repo, arm.pull_number), context)
    pull = pulls.read_pull(answer, arm.repo, arm.pull_number, access.forge)
    check_moved(answer, pull.repo, context)
    gather = (_comments, _reviews, _threads, _checks)
    await together(*(partial(each, access, pull, context) for each in gather))
    return pull


async def newest_comments(access: Access, repo: str, number: int, total: int, context: CallContext) -> Listing[Comment]:
    """The newest comments, read forward from the last full page on: more may have come since they were counted."""
    first = issues.first_comments_page(total)
    comments: list[Comment] = []
    broken = 0
    for page in range(first, first + COMMENT_PAGES_MAX):
        answer = await access.http.read(issues.comments_request(repo, number, page), context)
        check_unmoved(answer, context)
        new = issues.read_comments(answer, repo, number)
        comments += new.good
        broken += len(new.broken)
        if len(new.good) + len(new.broken) < issues.COMMENTS_SHOWN:
            break
    return Listing(comments[-issues.COMMENTS_SHOWN :], broken)


async def _comments(access: Access, pull: PullRequest, context: CallContext) -> None:
    if pull.comments_total:
        found = await newest_comments(access, pull.repo, pull.number, pull.comments_total, context)
        pull.comments = found.items
        pull.warnings += left_out(found.broken, "comments")
    pull.comments_total = max(pull.comments_total, len(pull.comments))


async def _reviews(access: Access, pull: PullRequest, context: CallContext) -> None:
    found = await read_list(
        access.http,
        context,
        partial(reviews.reviews_request, pull.repo, pull.number),
        lambda answer: reviews.read_reviews(answer, pull.repo, pull.number),
        pages_max=REVIEW_PAGES_MAX,
        newest=True,
    )
    pull.reviews = [each.review for each in found.items]
    pull.warnings += left_out(found.broken, "reviews")
    if not found.complete:
        pull.warnings.append(f"only {len(pull.reviews)} of the reviews are shown")


async def _threads(access: Access, pull: PullRequest, context: CallContext) -> None:
    found = await read_list(
        access.http,
        context,
        partial(threads.review_comments_request, pull.repo, pull.number),
        lambda answer: threads.read_review_comments(answer, pull.repo, pull.number),
        pages_max=REVIEW_PAGES_MAX,
        enough=lambda read: sum(len(each.comment.body) for each in read) > TEXT_MAX,
    )
    shown, text = 0, 0
    for each in found.items:  # newest first
        text += len(each.comment.body)
        if shown and text > TEXT_MAX:
            break
        shown += 1
    pull.threads = threads.threads_of(found.items[:shown])
    pull.warnings += left_out(found.broken, "review comments")
    if shown < len(found.items) or not found.complete:
        pull.warnings.append(f"only the newest {shown} review comments are shown")


async def _checks(access: Access, pull: PullRequest, context: CallContext) -> None:
    if not pulls.is_sha(pull.head_sha):
        pull.warnings.append("checks are not known: the forge names no head commit")
        return
    sources: list[Listing[checks.Check]] = []
    unknown: list[str] = []

    async def read_source(what: str, ask: checks.Ask, translate: checks.Translate) -> None:
        try:
            sources.append(await read_list(access.http, context, partial(ask, pull.repo, pull.head_sha), translate))
        except ForgeStatus as refused:
            if refused.status not in _NOT_TOLD:
                raise
            unknown.append(what)

    await together(
        partial(read_source, "check runs", checks.check_runs_request, checks.read_check_runs),
        partial(read_source, "statuses", checks.statuses_request, checks.read_statuses),
    )
    found = [check for source in sources for check in source.items]
    why = _unsure(sources, unknown)
    pull.checks = checks.roll_up(found, complete=not why)
    if why:
        pull.warnings.append(f"checks {'may be more than these' if pull.checks else 'are not known'}: {why}")


def _unsure(sources: Sequence[Listing[checks.Check]], unknown: Collection[str]) -> str:
    """Why what was read may not be all; "" if it is."""
    if unknown:
        return f"the forge shows no {' and no '.join(sorted(unknown))}"
    if any(source.broken for source in sources):
        return "some could not be read"
    return "" if all(source.complete for source in sources) else "there are too many to read"
