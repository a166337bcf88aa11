"""Comments on Linear's issues: what is asked, and what an answer means in the canonical types. Pure.

A 2xx proves nothing alone: ``success`` decides, and the id must be the one that was sent.
"""

from collections.abc import Mapping

import msgspec

from compass_forged.providers.answers import bad
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.http import HttpRequest
from compass_forged.providers.linear_answers import decoded, expect_id, is_page, nodes, query, reply
from compass_forged.providers.linear_documents import COMMENT_BY_ID, COMMENT_CREATE
from compass_forged.wire.schema import CommentRef


class _Anchor(msgspec.Struct):
    id: str = ""


class _WrittenComment(msgspec.Struct):
    id: str
    url: str | None = None
    issue: _Anchor | None = None


class _Commented(msgspec.Struct):
    success: bool = False
    comment: _WrittenComment | None = None


_commented_decoder = msgspec.json.Decoder(_Commented)
_written_decoder = msgspec.json.Decoder(_WrittenComment)


def comment_request(comment_id: str, issue_id: str, body: str, actor: Mapping[str, str]) -> HttpRequest:
    """What comments on an issue."""
    return query(COMMENT_CREATE, input={"id": comment_id, "issueId": issue_id, "body": body, **actor})


def written_comment(answer: ForgeAnswer, comment_id: str, issue_id: str) -> CommentRef:
    """The comment that was written.

    Raises:
        BadAnswer: nobody knows what stands on the forge.
    """
    raw = decoded(_commented_decoder, reply(COMMENT_CREATE, answer))
    if not raw.success or raw.comment is None:
        bad(answer, "the forge says that the comment did not succeed, and not why")
    return _comment_ref(raw.comment, answer, comment_id, issue_id)


def comment_by_id_request(comment_id: str) -> HttpRequest:
    """What looks for a comment by its id."""
    return query(COMMENT_BY_ID, id=comment_id)


def comment_by_id(answer: ForgeAnswer, comment_id: str, issue_id: str) -> CommentRef | None:
    """The comment of that id; None if there is none to be seen.

    Raises:
        BadAnswer: the answer is not about this comment.
    """

    def read(raw: _WrittenComment) -> CommentRef:
        return _comment_ref(raw, answer, comment_id, issue_id)

    return next(iter(nodes(_written_decoder, read, reply(COMMENT_BY_ID, answer)).good), None)


def _comment_ref(raw: _WrittenComment, answer: ForgeAnswer, comment_id: str, issue_id: str) -> CommentRef:
    expect_id(answer, raw.id, comment_id, "comment")
    if raw.issue is not None:
        expect_id(answer, raw.issue.id, issue_id, "issue")
    if not is_page(raw.url or ""):
        bad(answer, "the forge's answer has no URL of a comment")
    return CommentRef(url=raw.url or "", comment_id=raw.id)
