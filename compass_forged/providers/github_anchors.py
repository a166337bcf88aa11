"""Where a review's comments stand in a pull request's diff at GitHub.

The diff's files are listed in pages, with whole patches in them. They are read on only while a file that a comment is
on has not come, within bounds of number and time; what is not found then is told as not found, and why.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from compass_forged.errors import ForgeStatus
from compass_forged.observability import get_logger
from compass_forged.ports import CallContext
from compass_forged.providers import github_files as files
from compass_forged.providers.forge_answer import AnswerTooLarge, ForgeAnswer
from compass_forged.providers.github_access import Access, check_unmoved, goes_on
from compass_forged.providers.github_answers import PAGE, PAGE_SMALL
from compass_forged.providers.github_diff import Anchor, Spot, anchors, find_spots, fits
from compass_forged.wire.schema import InlineComment, PullRequest

log = get_logger(__name__)

FILES_MAX: Final = 3000
"""As many as GitHub lists of one pull request."""
REQUESTS_MAX: Final = 60
"""Twice what those take in whole pages; in small ones it is enough for twelve hundred."""
TOO_LARGE_MAX: Final = 4
"""After how many pages over the cap of an answer, each of which has to be fetched that far, no other one is tried."""
SEARCH_SECONDS: Final = 15.0
"""How long the files are read for; and for no more than half of the time that the call has left."""
_NO_DIFF: Final = frozenset({406, 422})
"""How a diff is refused that is too large to be shown: no reason to refuse the review."""


@dataclass(slots=True)
class Anchored:
    """What was found of the comments' lines.

    Attributes:
        unseen: the files with comments that have not come.
        cut: why such a one may be in the diff all the same; "" if the whole diff was read.
    """

    unseen: set[str]
    cut: str = ""
    _wanted: dict[str, set[Anchor]] = field(default_factory=dict[str, set[Anchor]])
    _spots: dict[str, dict[Anchor, Spot]] = field(default_factory=dict[str, dict[Anchor, Spot]])

    def holds(self, comment: InlineComment) -> bool:
        """Whether the diff has a place for the comment."""
        return fits(comment, self._spots.get(comment.path, {}))

    def may_hold(self, comment: InlineComment) -> bool:
        """Whether the diff may have one that was not found."""
        return bool(self.cut) and comment.path in self.unseen

    def look_at(self, found: Collection[files.ChangedFile]) -> None:
        """Look for lines in files that have come."""
        for file in found:
            if file.path in self.unseen:
                self.unseen.discard(file.path)
                self._spots[file.path] = find_spots(file.patch, self._wanted[file.path])


def _sought(comments: Sequence[InlineComment]) -> Anchored:
    wanted: dict[str, set[Anchor]] = {}
    for comment in comments:
        wanted.setdefault(comment.path, set()).update(anchors(comment))
    return Anchored(set(wanted), _wanted=wanted)


async def find_anchors(
    access: Access, pull: PullRequest, comments: Sequence[InlineComment], context: CallContext
) -> Anchored:
    """Look for the comments' lines in the pull request's diff.

    Raises:
        ForgeError: as the caller's ``read``, but for a diff that is too large.
    """
    found = _sought(comments)
    pages = _Pages(access, pull, context)
    ends = min(context.deadline, trio.current_effective_deadline())
    left = max(0.0, ends - trio.current_time())  # below 0: cancelled, and not told yet
    with trio.move_on_after(min(SEARCH_SECONDS, left / 2)):
        while found.unseen and (page := await pages.next()) is not None:
            found.look_at(page)
    found.cut = pages.cut
    if found.unseen and found.cut:
        log.warning("a diff was not read to its end; comments are folded", why=found.cut, files=pages.behind)
    return found


class _Pages:
    """The pages of a diff's files, one after the other: small ones from the first on that is too large.

    Attributes:
        behind: how many files lie behind, read or passed over.
    """

    def __init__(self, access: Access, pull: PullRequest, context: CallContext) -> None:
        self._access = access
        self._pull = pull
        self._context = context
        self._size = PAGE
        self._requests = 0
        self._too_large = 0
        self._missing = False
        self._over = False
        self._why = ""
        self.behind = 0

    @property
    def cut(self) -> str:
        """Why there may be files that have not come; "" if there are none."""
        if self._why or (self._over and not self._missing):
            return self._why
        return "parts of it could not be read" if self._missing else f"only its first {self.behind} files were read"

    async def next(self) -> list[files.ChangedFile] | None:
        """The next page; None where no other one is to be had."""
        while not self._over and self._requests < REQUESTS_MAX and self._too_large < TOO_LARGE_MAX:
            self._requests += 1
            number = self.behind // self._size + 1
            request = files.files_request(self._pull.repo, self._pull.number, self._size, number)
            try:
                answer = await self._access.http.read(request, self._context)
            except AnswerTooLarge:
                self._shrink_or_pass()
            except ForgeStatus as refused:
                if refused.status not in _NO_DIFF:
                    raise
                self._over, self._why = True, "the forge does not show it"
            else:
                return self._read(answer)
        return None

    def _read(self, answer: ForgeAnswer) -> list[files.ChangedFile]:
        check_unmoved(answer, self._context)
        found = files.read_files(answer)
        count = len(found.good) + len(found.broken)
        self._missing = self._missing or bool(found.broken)
        self._over = not goes_on(answer, count, self._size)
        self.behind += count if self._over else self._size
        if self.behind >= FILES_MAX:
            self._over, self._why = True, f"the forge lists no more than {FILES_MAX} files"
        return found.good

    def _shrink_or_pass(self) -> None:
        self._too_large += 1
        if self._size == PAGE:
            self._size = PAGE_SMALL
        else:
            self._missing = True
            self.behind += PAGE_SMALL
