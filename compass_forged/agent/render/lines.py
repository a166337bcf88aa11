"""One line for what a write has done, and one for what has failed. Pure."""

from typing import Final

from compass_forged.agent.render.document import left_out
from compass_forged.agent.render.guard import attr, flat, slug, token, url
from compass_forged.wire.schema import CommentRef, Issue, PullRequest, ReviewRef

MESSAGE_CHARS: Final = 500
WARNING_CHARS: Final = 200
WARNINGS: Final = 5


def created(made: Issue) -> str:
    """A create's answer: made now, or by an earlier attempt, whose kind is told."""
    kind = "PR" if isinstance(made, PullRequest) else "issue"
    place = f"#{attr(made.number)} in {slug(made.repo)}"
    link = f": {url(made.url)}" if made.url else ""
    if not made.replayed:
        return f"Created {kind} {place}{link}{_warnings(made.warnings)}"
    mismatch = "; that attempt asked for something else, and nothing was made of this request" * made.replay_mismatch
    named = kind if kind == "PR" else "Issue"
    return f"{named} {place} already created by an earlier attempt{link}{mismatch}{_warnings(made.warnings)}"


def commented(made: CommentRef, number: int, *, pull: bool) -> str:
    """A comment's answer."""
    return f"Commented on {'PR' if pull else 'issue'} #{number}: {url(made.url)}"


def reviewed(made: ReviewRef, number: int) -> str:
    """A review's answer; what was folded into the summary is said."""
    folded = ""
    if made.folded_count:
        total = attr(made.inline_count + made.folded_count)
        folded = f"; {attr(made.folded_count)} of {total} inline comments stand in the summary"
        if not made.warnings:  # or they say why
            folded += ", since their lines are not in the diff"
    return f"Submitted {attr(made.verdict)} review on PR #{number}: {url(made.url)}{folded}{_warnings(made.warnings)}"


def subscribed(subscription_id: str, kind: str, number: int, repo: str) -> str:
    """A subscription's answer."""
    what = "PR" if kind == "pull_request" else "issue"
    return f"Subscribed to {what} #{number} in {slug(repo)}: {token(subscription_id)}"


def unsubscribed(subscription_id: str) -> str:
    """The answer of its end."""
    return f"Unsubscribed {token(subscription_id)}"


def failed(tool: str, code: str, message: str, retry_after_ms: int, advice: str) -> str:
    """A failure of any kind; ``advice`` is ours."""
    retry = f"; retry after {retry_after_ms}ms" if retry_after_ms > 0 else ""
    return f"{tool} failed: {attr(code)}: {flat(message, MESSAGE_CHARS)}{retry}" + (f"; {advice}" if advice else "")


def _warnings(warnings: list[str]) -> str:
    shown = "".join(f"; warning: {flat(each, WARNING_CHARS)}" for each in warnings[:WARNINGS])
    rest = len(warnings) - WARNINGS
    return shown + (f"; {left_out(rest, 'warning')}" if rest > 0 else "")
