"""GitHub's review comments, grouped into the threads that REST does not have. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from compass_forged.providers.answers import Items, decode_items
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github_answers import WrittenComment, read_comment, repo_path
from compass_forged.providers.http import HttpRequest
from compass_forged.wire.schema import ARTIFACT_NUMBER_MAX, Comment, ReviewThread


class _ReviewComment(WrittenComment, kw_only=True):
    path: str
    line: int | None = None
    in_reply_to_id: int | None = None


class Placed(NamedTuple):
    """A review comment and where it stands.

    Attributes:
        id: the forge's id.
        reply_to: the id of the comment that it answers; None for one that begins a thread.
        path: the file.
        line: the line of the diff of today; None once that has moved on (the document says never, and it happens), and
            for a comment on a file.
        comment: the comment.
    """

    id: int
    reply_to: int | None
    path: str
    line: int | None
    comment: Comment


_comment_decoder = msgspec.json.Decoder(_ReviewComment)


def review_comments_request(repo: str, number: int, size: int, page: int) -> HttpRequest:
    """What reads a page of a pull request's review comments, newest first.

    docs.github.com/rest/pulls/comments#list-review-comments-on-a-pull-request
    """
    path = (*repo_path(repo), "pulls", str(number), "comments")
    order = (("sort", "created"), ("direction", "desc"))
    return HttpRequest("GET", path, (*order, ("per_page", str(size)), ("page", str(page))))


def read_review_comments(answer: ForgeAnswer, repo: str, number: int) -> Items[Placed]:
    """A page of review comments, in the forge's order.

    Raises:
        BadAnswer: the answer is not about this pull request.
    """

    def read(raw: _ReviewComment) -> Placed:
        comment = read_comment(raw, answer, repo, number, "pull")
        line = raw.line if raw.line is not None and 0 < raw.line <= ARTIFACT_NUMBER_MAX else None
        return Placed(raw.id, raw.in_reply_to_id, raw.path, line, comment)

    return decode_items(_comment_decoder, read, answer)


def threads_of(comments: Iterable[Placed]) -> list[ReviewThread]:
    """The threads, in the order in which they were begun; ``resolved`` is not known, REST has no word of it.

    A reply whose thread was begun before what was read stands in one of its own, with the others to the same comment.
    """
    ordered = sorted(comments, key=lambda each: each.id)
    known = {each.id: each for each in ordered}
    threads: dict[int, ReviewThread] = {}
    for each in ordered:
        root = _root(each, known)
        if root not in threads:
            threads[root] = ReviewThread(path=each.path, line=each.line)
        threads[root].comments.append(each.comment)
    return list(threads.values())


def _root(comment: Placed, known: Mapping[int, Placed]) -> int:
    """The id of the comment that begins the thread. GitHub has no replies to replies; a chain is followed all the same.

    A reply is younger than what it answers, so ids only fall along a chain: it ends.
    """
    here = comment
    while here.reply_to is not None and here.reply_to < here.id:
        above = known.get(here.reply_to)
        if above is None:
            return here.reply_to
        here = above
    return here.id
