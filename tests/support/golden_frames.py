"""One frame of every kind, whose bytes are kept in ``tests/wire/golden.json``.

After a deliberate change of the schema: ``python -m tests.support.golden_frames > tests/wire/golden.json``, and read
the difference: a reader of the old bytes must still understand the new ones.
"""

import json
import sys
from pathlib import Path

from compass_forged.wire.codec import encode_call, encode_reply
from compass_forged.wire.frames import encode_frame
from compass_forged.wire.schema import (
    Arm,
    Attribution,
    Checks,
    Comment,
    CommentOnIssue,
    CommentOnPullRequest,
    CommentRef,
    CreateIssue,
    CreatePullRequest,
    ErrorResult,
    FaultFrame,
    ForgeAccount,
    ForgeCall,
    ForgeRef,
    ForgeSelector,
    GetIssue,
    GetPullRequest,
    InlineComment,
    Issue,
    IssueCommentResult,
    IssueResult,
    IssuesResult,
    ListIssues,
    PullRequest,
    PullRequestCommentResult,
    PullRequestResult,
    ReplyFrame,
    ResultArm,
    ResultFrame,
    Review,
    ReviewRef,
    ReviewResult,
    ReviewThread,
    SubmitReview,
    Subscribe,
    SubscribedResult,
    Unsubscribe,
    UnsubscribedResult,
)

GOLDEN = Path(__file__).parent.parent / "wire" / "golden.json"

ARMS: dict[str, Arm] = {
    "create_issue": CreateIssue(repo="acme/site", title="Broken links", body="See /about\n", labels=["bug", "docs"]),
    "comment_on_issue": CommentOnIssue(repo="acme/site", issue_number=7, body="Fixed in naïve form ✓"),
    "create_pull_request": CreatePullRequest(
        repo="acme/site", title="Fix links", head_ref="fix/links", body="Closes it", base_ref="main", draft=True
    ),
    "comment_on_pull_request": CommentOnPullRequest(repo="acme/site", pull_number=8, body="Rebased"),
    "submit_review": SubmitReview(
        repo="acme/site",
        pull_number=8,
        verdict="request_changes",
        body="Two things",
        comments=[
            InlineComment(path="a.py", line=3, body="why?"),
            InlineComment(path="a.py", line=9, body="why not?", side="LEFT", start_line=5, start_side="LEFT"),
        ],
    ),
    "get_issue": GetIssue(repo="SEA", issue_number=2**63 - 1),
    "list_issues": ListIssues(repo="acme/site", state="all", labels=["bug"], limit=100, cursor="p2"),
    "get_pull_request": GetPullRequest(repo="acme/site", pull_number=8),
    "subscribe": Subscribe(repo="acme/site", kind="pull_request", number=8),
    "unsubscribe": Unsubscribe(subscription_id="3f0c"),
}

_ATTRIBUTION = Attribution(agent="ada", owner="grace", session="s-1", verified=True)
_AUTHOR = ForgeAccount(login="forge[bot]", is_bot=True)
_GITHUB = ForgeRef(provider="github", host="github.com")
_AT = "2025-01-02T03:04:05Z"
_COMMENT = Comment(id="91", author=ForgeAccount(login="mel"), body="+1", url="https://github.com/c/91", created_at=_AT)
_ISSUE = Issue(
    forge=_GITHUB,
    repo="acme/site",
    number=7,
    id="",
    title="Broken links",
    body="See /about",
    state="open",
    labels=["bug"],
    url="https://github.com/acme/site/issues/7",
    author=_AUTHOR,
    attribution=_ATTRIBUTION,
    created_at=_AT,
    updated_at=_AT,
    comments=[_COMMENT],
    comments_total=12,
    warnings=["label docs was dropped"],
)
_PULL_REQUEST = PullRequest(
    forge=_GITHUB,
    repo="acme/site",
    number=8,
    title="Fix links",
    state="closed",
    url="https://github.com/acme/site/pull/8",
    author=_AUTHOR,
    created_at=_AT,
    updated_at=_AT,
    head_ref="fix/links",
    base_ref="main",
    head_sha="0" * 40,
    draft=True,
    merged=True,
    checks=Checks(state="failure", total=3, failed=["lint"]),
    reviews=[Review(author=_AUTHOR, verdict="changes_requested", body="Two things", attribution=_ATTRIBUTION)],
    threads=[ReviewThread(path="a.py", line=3, resolved=False, comments=[_COMMENT]), ReviewThread(path="b.py")],
)

RESULTS: dict[str, ResultArm] = {
    "issue": IssueResult(issue=_ISSUE),
    "issue_comment": IssueCommentResult(comment=CommentRef(url="https://github.com/c/91", comment_id="91")),
    "pull_request": PullRequestResult(pull_request=_PULL_REQUEST),
    "pr_comment": PullRequestCommentResult(comment=CommentRef(url="https://github.com/c/92", comment_id="92")),
    "review": ReviewResult(
        review=ReviewRef(
            url="https://github.com/r/5",
            review_id="5",
            verdict="request_changes",
            inline_count=1,
            folded_count=1,
            warnings=["one comment was folded"],
        )
    ),
    "issues": IssuesResult(
        items=[Issue(forge=_GITHUB, repo="acme/site", number=7, replayed=True, replay_mismatch=True)], next_cursor="p2"
    ),
    "subscribed": SubscribedResult(subscription_id="3f0c"),
    "unsubscribed": UnsubscribedResult(),
    "error": ErrorResult(code="resource_exhausted", message="wait", retry_after_ms=1500, outcome="not_sent"),
}

CALLS: dict[str, ForgeCall] = {
    **{f"call {name}": ForgeCall(call_id=f"c-{name}", arm=arm) for name, arm in ARMS.items()},
    "call with everything": ForgeCall(
        call_id="c-1",
        arm=ARMS["get_issue"],
        forge=ForgeSelector(provider="linear", host="linear.example"),
        client_request_id="n:call_1",
        timeout_ms=2500,
    ),
}

REPLIES: dict[str, ReplyFrame] = {
    **{f"result {name}": ResultFrame(call_id="c-1", result=arm) for name, arm in RESULTS.items()},
    "fault": FaultFrame(call_id="c-1", code="unavailable", message="draining", retry_after_ms=250),
    "fault of no call": FaultFrame(call_id="", code="invalid_argument", message="frame: zero-length frame"),
}


def encoded() -> dict[str, str]:
    """Each frame's bytes in hex, by its name."""
    payloads = {name: encode_call(call) for name, call in CALLS.items()}
    payloads |= {name: encode_reply(reply) for name, reply in REPLIES.items()}
    return {name: encode_frame(payload).hex() for name, payload in payloads.items()}


if __name__ == "__main__":
    json.dump(encoded(), sys.stdout, indent=1)
    sys.stdout.write("\n")
