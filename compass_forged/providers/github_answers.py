"""What the translators of GitHub's answers share: people, labels, artifacts, places, and pages of lists. Pure.

A 2xx proves nothing alone: an answer counts only if it is about the repository, the number and, of a write, the author
that were asked for.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final, Literal, TypedDict
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from compass_forged.errors import BadRepo, ForeignAnswer
from compass_forged.providers.answers import bad, utc_time
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github_dialect import REPO
from compass_forged.wire.schema import ARTIFACT_NUMBER_MAX, GHOST, Comment, ForgeAccount, ForgeRef

COUNT_MAX: Final = 2**31
"""More of anything than any artifact has: a forge's number goes no further than it can be written on the wire."""
PAGE: Final = 100
"""Items a page, the most that GitHub gives."""
PAGE_SMALL: Final = 20
"""Where a hundred whole items are over the cap of an answer."""


class User(msgspec.Struct):
    """An account, as it stands in anything that it wrote."""

    login: str = ""
    type: str = ""
    id: int = 0


class Label(msgspec.Struct):
    """A label of an issue, where it is no plain string."""

    name: str | None = None


class Artifact(msgspec.Struct):
    """What GitHub shows alike of an issue and of a pull request, read alone or in a list."""

    id: int
    number: int
    html_url: str
    title: str
    state: str
    created_at: str | None = None
    updated_at: str | None = None
    body: str | None = None
    user: User | None = None
    labels: list[Label | str] = msgspec.field(default_factory=list[Label | str])
    comments: int = 0


class WrittenComment(msgspec.Struct):
    """What GitHub shows alike of a comment in a conversation and of one on a diff."""

    id: int
    created_at: str | None = None
    body: str | None = None
    user: User | None = None
    html_url: str = ""


# --- requests -------------------------------------------------------------------------------------------------------


def repo_path(repo: str) -> tuple[str, str, str]:
    """The path segments of a repository, its grammar checked.

    Raises:
        BadRepo: the agent's fault.
    """
    if not REPO.fullmatch(repo):
        raise BadRepo("repo: must be owner/name, such as acme/site, in GitHub's own characters")
    owner, _, name = repo.partition("/")
    return "repos", owner, name


# --- people and labels ------------------------------------------------------------------------------------------


def account(user: User | None) -> ForgeAccount:
    """Who wrote something; the ghost where the forge no longer knows."""
    if user is None or not user.login:
        return GHOST
    return ForgeAccount(login=user.login, is_bot=user.type == "Bot" or user.login.endswith("[bot]"))


def label_names(labels: Iterable[Label | str]) -> list[str]:
    """The labels' names; one without a name is none."""
    names = (label if isinstance(label, str) else label.name or "" for label in labels)
    return [name for name in names if name]


# --- artifacts and comments -----------------------------------------------------------------------------------------


class ArtifactFields(TypedDict):
    """The fields that the canonical issue and pull request share."""

    forge: ForgeRef
    repo: str
    number: int
    title: str
    body: str
    state: Literal["open", "closed"]
    labels: list[str]
    url: str
    author: ForgeAccount
    created_at: str
    updated_at: str
    comments_total: int


def artifact_fields(raw: Artifact, answer: ForgeAnswer, forge: ForgeRef, kind: str) -> ArtifactFields:
    """An artifact's fields in the canonical form; ``kind`` is the word in the URL of its page.

    Raises:
        BadAnswer: it contradicts itself, or has no id, number or URL.
    """
    repo, number = place(answer, raw.html_url, kind)
    expect_number(answer, number, raw.number)
    check_ids(answer, raw.number, raw.id)
    return {
        "forge": forge,
        "repo": repo,
        "number": raw.number,
        "title": raw.title,
        "body": raw.body or "",
        "state": "closed" if raw.state == "closed" else "open",
        "labels": label_names(raw.labels),
        "url": raw.html_url,
        "author": account(raw.user),
        "created_at": utc_time(raw.created_at),
        "updated_at": utc_time(raw.updated_at),
        "comments_total": min(max(0, raw.comments), COUNT_MAX),
    }


def read_comment(raw: WrittenComment, answer: ForgeAnswer, repo: str, number: int, *kinds: str) -> Comment:
    """A comment in the canonical form; of an artifact that has moved it may stand anywhere.

    Raises:
        BadAnswer: it stands on the page of another artifact.
    """
    if raw.html_url and not answer.moved:
        expect_place(answer, raw.html_url, repo, number, *kinds)
    return Comment(
        id=str(raw.id),
        author=account(raw.user),
        body=raw.body or "",
        url=raw.html_url,
        created_at=utc_time(raw.created_at),
    )


# --- what an answer is about ----------------------------------------------------------------------------------------


def check_ids(answer: ForgeAnswer, number: int, *ids: int) -> None:
    """A number that the wire can hold, and ids.

    Raises:
        BadAnswer: there are none.
    """
    if min(ids) <= 0 or not 0 < number <= ARTIFACT_NUMBER_MAX:
        bad(answer, "the forge's answer has no id or number")


def place(answer: ForgeAnswer, url: str, *kinds: str) -> tuple[str, int]:
    """Repository and number from the URL of an artifact's page.

    Raises:
        BadAnswer: it is none.
    """
    parts = _split(url)
    segments = parts.path.strip("/").split("/") if parts else []
    number = segments[3] if len(segments) == 4 else ""  # noqa: PLR2004 -- owner, name, kind, number
    if (
        parts is None
        or parts.scheme not in {"https", "http"}
        or "@" in parts.netloc
        or not re.fullmatch(r"[1-9][0-9]{0,18}", number, re.ASCII)
        or segments[2] not in kinds
        or not REPO.fullmatch("/".join(segments[:2]))
    ):
        bad(answer, "the forge's answer has no URL of an artifact")
    return "/".join(segments[:2]), int(number)


def expect_place(answer: ForgeAnswer, url: str, repo: str, number: int, *kinds: str) -> None:
    """The URL of a page of that repository and number.

    Raises:
        BadAnswer: it is none, or of another.
    """
    found_repo, found_number = place(answer, url, *(kinds or ("issues", "pull")))
    expect_repo(answer, found_repo, repo)
    expect_number(answer, found_number, number)


def expect_repo(answer: ForgeAnswer, found: str, wanted: str) -> None:
    """Repositories compare without regard to case.

    Raises:
        ForeignAnswer: it is another.
    """
    if found.casefold() != wanted.casefold():
        raise ForeignAnswer(answer.status, "the forge's answer is about another repository")


def expect_number(answer: ForgeAnswer, found: int, wanted: int) -> None:
    """The number that was asked for.

    Raises:
        ForeignAnswer: it is another.
    """
    if found != wanted:
        raise ForeignAnswer(answer.status, "the forge's answer is about another number")


class OwnAccount:
    """The account that a credential writes as, as far as it is known."""

    def __init__(
        self,
        login: Callable[[], str] = lambda: "",
        user_id: Callable[[], int] = lambda: 0,
        mistaken: Callable[[], None] = lambda: None,
    ) -> None:
        """Nothing is asked of the forge here.

        Args:
            login: the account's, ``name[bot]`` for an App; "" while not known.
            user_id: a user's; 0 while not known.
            mistaken: told that something came back as another's: an App may have another name by now.
        """
        self._login = login
        self._user_id = user_id
        self.mistaken = mistaken
        self._confirmed = ("", 0)

    def named(self, login: str) -> bool:
        """Whether ``login`` is known to be the account's."""
        own = self._login()
        return bool(own) and same_login(login, own)

    @property
    def known(self) -> bool:
        """Whether its login is known."""
        return bool(self._login())

    def may_have_written(self, user: User | None) -> bool:
        """Whether what ``user`` wrote may be ours: the account is, or one of the two is not known.

        An account may be given another name. So its id counts: a user's own, or the one that has come with its name.
        """
        own = self._login()
        if not own or user is None or not user.login:
            return True
        if same_login(user.login, own):
            self._confirmed = (own, user.id)
            return True
        return user.id > 0 and (user.id == self._user_id() or self._confirmed == (own, user.id))


def expect_author(answer: ForgeAnswer, user: User | None, own: OwnAccount | None) -> None:
    """What was written stands under the account that wrote it, where both are known.

    Raises:
        ForeignAnswer: it is another's.
    """
    if own is not None and not own.may_have_written(user):
        own.mistaken()
        raise ForeignAnswer(answer.status, "the forge's answer is about another author")


def same_login(one: str, other: str) -> bool:
    """Logins compare without regard to case."""
    return one.casefold() == other.casefold()


# --- pages: docs.github.com/rest/using-the-rest-api/using-pagination-in-the-rest-api --------------------------------

_LINK_WORDS: Final = ("page", "per_page", "after", "before", "since")
_LINK_VALUE = re.compile(r"[A-Za-z0-9+/=_.:-]{1,200}", re.ASCII)
_LINKS: Final = {
    relation: re.compile(rf'<([^<>]{{1,4096}})>\s*;[^,<]*\brel="?{relation}"?(?=[\s;,]|$)')
    for relation in ("next", "last")
}


def link_query(answer: ForgeAnswer, relation: str) -> tuple[tuple[str, str], ...] | None:
    """The query words that name the ``next`` or the ``last`` page; None where there is none.

    The words alone are taken over, so that no URL of the forge's is ever followed.
    """
    match = _LINKS[relation].search(answer.headers.get("link", ""))
    parts = _split(match[1]) if match else None
    return (page_words(parts.query) if parts else None) or None


def page_words(query: str) -> tuple[tuple[str, str], ...] | None:
    """Those query words that name a page; None if one of them is not what GitHub would write."""
    words = tuple((key, value) for key, value in parse_qsl(query) if key in _LINK_WORDS)
    counts = [value for key, value in words if key in {"page", "per_page"}]
    if any(not _LINK_VALUE.fullmatch(value) for _, value in words) or len(dict(words)) != len(words):
        return None
    if any(not re.fullmatch(r"[1-9][0-9]{0,8}", count, re.ASCII) for count in counts):
        return None
    return words


def last_page(answer: ForgeAnswer) -> int | None:
    """The number of the last page, where the forge tells it."""
    number = dict(link_query(answer, "last") or ()).get("page")
    return int(number) if number else None


def _split(url: str) -> SplitResult | None:
    """The parts of a URL that a forge wrote; None where it is none."""
    if not (url.isascii() and url.isprintable()):
        return None
    try:
        return urlsplit(url)
    except ValueError:
        return None
