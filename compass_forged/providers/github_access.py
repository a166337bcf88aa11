"""What the operations of GitHub that need several requests share: the caller, who we are, and reading whole lists."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from compass_forged.errors import ForgeError, ForgeStatus, ForgeUnavailable
from compass_forged.observability import Counters, get_logger
from compass_forged.ports import CallContext
from compass_forged.providers.answers import Items
from compass_forged.providers.caller import ForgeHttp
from compass_forged.providers.forge_answer import AnswerTooLarge, ForgeAnswer
from compass_forged.providers.github_answers import PAGE, PAGE_SMALL, OwnAccount, last_page, link_query
from compass_forged.providers.http import HttpRequest
from compass_forged.wire.schema import ForgeRef, Outcome

log = get_logger(__name__)

T = TypeVar("T")

PAGES_MAX: Final = 10
"""How many pages of one list are read; what lies behind is told as missing."""


@dataclass(frozen=True, slots=True)
class Access:
    """One GitHub host under one credential.

    Attributes:
        http: the caller.
        forge: the coordinate's half that names the forge.
        own: the account that the credential writes as.
        counters: what is counted for the operator.
    """

    http: ForgeHttp
    forge: ForgeRef
    own: OwnAccount
    counters: Counters


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A whole list, as far as it was read.

    Attributes:
        items: in the forge's order.
        broken: how many items could not be read.
        complete: whether no page was left unread.
    """

    items: list[T]
    broken: int = 0
    complete: bool = True


def check_moved(answer: ForgeAnswer, repo: str, context: CallContext) -> None:
    """A read that was redirected must not show a repository that the call may not touch.

    Raises:
        ForgeStatus: told as any other refusal, so that the new place does not show.
    """
    if answer.moved and context.may_touch is not None and not context.may_touch(repo):
        raise ForgeStatus(404, "moved to a repository outside the session's scope")


def check_unmoved(answer: ForgeAnswer, context: CallContext) -> None:
    """What stands below an artifact is read under the name that the forge has just told, and is not elsewhere.

    Raises:
        ForgeUnavailable: it was redirected: moved this moment, or into a repository that the call may not touch, and
            what came from there need not tell which.
    """
    if answer.moved and context.may_touch is not None:
        raise ForgeUnavailable("the forge moved a part of this while it was read; ask again", outcome="unknown")


@contextmanager
def failing_as(
    outcome: Outcome, *, refused: Outcome | None = None, sent: Outcome | None = None
) -> Generator[None, None, None]:
    """Give what fails in the block the outcome that it has for the whole write of which it is a part.

    Args:
        outcome: what it means that a step failed.
        refused: what it means that the forge refused one, if not the same.
        sent: what it means that nobody knows how one ended, if not the same.
    """
    try:
        yield
    except ForgeError as error:
        if refused is not None and isinstance(error, ForgeStatus):
            error.outcome = refused
        elif sent is not None and error.outcome == "unknown":
            error.outcome = sent
        else:
            error.outcome = outcome
        raise


async def read_list(
    http: ForgeHttp,
    context: CallContext,
    ask: Callable[[int, int], HttpRequest],
    read: Callable[[ForgeAnswer], Items[T]],
    *,
    pages_max: int = PAGES_MAX,
    newest: bool = False,
    may_move: bool = False,
    enough: Callable[[list[T]], bool] = lambda _items: False,
) -> Listing[T]:
    """Read a list page by page; in small pages where a whole one is over the cap of an answer.

    Args:
        http: the caller.
        context: the call's.
        ask: (items a page, page) to the request.
        read: the translator of a page.
        pages_max: how many pages are kept, and read at the most but one.
        newest: of a longer list keep the last pages, where the forge tells how many there are.
        may_move: whether ``ask`` may name a repository that has moved; then nothing of the list is shown to anyone.
        enough: whether what was read will do; asked after each page, the last one too. It may take items out.

    Raises:
        ForgeError: as the caller's ``read``.
    """
    try:
        return await _read_list(http, context, PAGE, ask, read, pages_max, newest, may_move, enough)
    except AnswerTooLarge as error:
        log.info("a page of a list is too large; it is read in smaller ones", why=str(error))
        return await _read_list(http, context, PAGE_SMALL, ask, read, pages_max, newest, may_move, enough)


async def _read_list(
    http: ForgeHttp,
    context: CallContext,
    size: int,
    ask: Callable[[int, int], HttpRequest],
    read: Callable[[ForgeAnswer], Items[T]],
    pages_max: int,
    newest: bool,  # noqa: FBT001 -- handed on by position
    may_move: bool,  # noqa: FBT001 -- likewise
    enough: Callable[[list[T]], bool],
) -> Listing[T]:
    items: list[T] = []
    broken = kept = 0
    page, complete = 1, True
    while True:
        answer = await http.read(ask(size, page), context)
        if not may_move:
            check_unmoved(answer, context)
        found = read(answer)
        items += found.good
        broken += len(found.broken)
        kept += 1
        more = goes_on(answer, len(found.good) + len(found.broken), size)
        if enough(items) or not more:
            return Listing(items, broken, complete and not more)
        last = last_page(answer) if newest and page == 1 else None
        if last is not None and last > pages_max:
            items, broken, kept, complete = [], 0, 0, False
            page = last - pages_max
        if kept == pages_max:
            return Listing(items, broken, complete=False)
        page += 1


def goes_on(answer: ForgeAnswer, count: int, size: int) -> bool:
    """Whether another page follows: as the Link header says where there is one, else a full page makes it likely."""
    if "link" in answer.headers:
        return count > 0 and link_query(answer, "next") is not None
    return count >= size
