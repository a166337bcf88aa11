"""What the translators of Linear's answers share: requests, roots, people, identifiers. Pure.

An answer may hold data and errors at once. What has come is used, if it is what was asked for, and what is missing is
told; an answer without data never gets here: the dialect has made an error of it.
"""

import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from compass_forged.errors import BadRepo, ForeignAnswer
from compass_forged.providers.answers import Items, bad, decode, read_items
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.http import HttpRequest
from compass_forged.providers.linear_documents import Document
from compass_forged.providers.linear_errors import read_errors
from compass_forged.wire.schema import ARTIFACT_NUMBER_MAX, GHOST, ForgeAccount

TEAM_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_]{0,31}", re.ASCII)
"""Linear's are short, and may hold digits."""
EXACT_MAX: Final = 2**53
"""Linear counts in doubles: beyond this, one of them stands for several numbers."""
_IDENTIFIER: Final = re.compile(rf"({TEAM_KEY.pattern})-([1-9][0-9]{{0,18}})", re.ASCII)
_PATH: Final = ("graphql",)
_SHOWN_ERRORS: Final = 3

T = TypeVar("T")
R = TypeVar("R")


# --- requests -------------------------------------------------------------------------------------------------------


def query(document: Document, **variables: object) -> HttpRequest:
    """What asks for ``document``: the constant itself, and every value as a variable."""
    json = {"query": document.text, "operationName": document.name, "variables": variables}
    return HttpRequest("POST", _PATH, json=json)


def team_key(repo: str) -> str:
    """A repo as the key of a team, in upper case as Linear keeps them.

    Raises:
        BadRepo: the agent's fault.
    """
    if TEAM_KEY.fullmatch(repo) is None:
        raise BadRepo("repo: must be a Linear team's key, such as ENG")
    return repo.upper()


# --- roots ----------------------------------------------------------------------------------------------------------


class _Envelope(msgspec.Struct):
    data: dict[str, msgspec.Raw] | None = None


class _Connection(msgspec.Struct):
    nodes: list[msgspec.Raw]


_envelope_decoder = msgspec.json.Decoder(_Envelope)
_connection_decoder = msgspec.json.Decoder(_Connection)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer's root field.

    Attributes:
        answer: the answer as it came; ``body`` is the root field's JSON alone.
        errors: what the forge says is missing from it, one line each.
    """

    answer: ForgeAnswer
    errors: list[str]


def reply(document: Document, answer: ForgeAnswer) -> Reply:
    """The root field of an answer to ``document``.

    Raises:
        BadAnswer: there is none, and no error says why.
    """
    data = decode(_envelope_decoder, answer).data or {}
    root = bytes(data.get(document.root, b"null"))
    if root == b"null":
        bad(answer, "the forge's answer holds neither data nor an error")
    errors = [f"the forge could not tell everything: {error.detail}" for error in read_errors(answer.body)]
    return Reply(ForgeAnswer(answer.status, answer.headers, root), errors[:_SHOWN_ERRORS])


def decoded(decoder: msgspec.json.Decoder[T], found: Reply) -> T:
    """A root field as the decoder has it.

    Raises:
        BadAnswer: it is not what is due.
    """
    return decode(decoder, found.answer)


def nodes(decoder: msgspec.json.Decoder[T], read: Callable[[T], R], found: Reply) -> Items[R]:
    """The nodes of a connection, each decoded and read by itself.

    Raises:
        BadAnswer: it is no connection, or no node of it can be read.
    """
    return read_items(decoded(_connection_decoder, found).nodes, decoder, read, found.answer)


# --- people ---------------------------------------------------------------------------------------------------------


class User(msgspec.Struct):
    """Somebody in the workspace; an app is one too."""

    id: str = ""
    name: str | None = None
    displayName: str | None = None  # noqa: N815 -- Linear's word
    app: bool | None = None


class Bot(msgspec.Struct):
    """An integration, or an app on somebody's behalf."""

    name: str | None = None
    userDisplayName: str | None = None  # noqa: N815 -- Linear's word


class External(msgspec.Struct):
    """Somebody outside the workspace."""

    name: str | None = None
    displayName: str | None = None  # noqa: N815 -- Linear's word


def account(user: User | None, bot: Bot | None, external: External | None) -> ForgeAccount:
    """Who wrote something, by the first of the three that names anyone; the ghost where none does."""
    if user is not None and (name := user.displayName or user.name):
        return ForgeAccount(login=plain_name(name), is_bot=bool(user.app))
    if bot is not None and (name := bot.userDisplayName or bot.name):
        return ForgeAccount(login=plain_name(name), is_bot=True)
    if external is not None and (name := external.displayName or external.name):
        return ForgeAccount(login=plain_name(name))
    return ForgeAccount(login=GHOST.login, is_bot=bot is not None)


def plain_name(name: str) -> str:
    """A name as people see it: some come back with their ampersands escaped."""
    return html.unescape(name) if "&" in name else name


# --- what an answer is about ----------------------------------------------------------------------------------------


def place(answer: ForgeAnswer, identifier: str) -> tuple[str, int]:
    """Team key and number of an identifier such as ``ENG-12``.

    Raises:
        BadAnswer: it is none.
    """
    found = _IDENTIFIER.fullmatch(identifier)
    if found is None or int(found[2]) > ARTIFACT_NUMBER_MAX:
        bad(answer, "the forge's answer has no identifier of an issue")
    return found[1], int(found[2])


def is_page(url: str, *words: str) -> bool:
    """Whether a URL is one of a page, and has these words as parts of its path."""
    if not (url.isascii() and url.isprintable()):
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    segments = [segment.casefold() for segment in parts.path.split("/")]
    plain = parts.scheme in {"https", "http"} and bool(parts.netloc) and "@" not in parts.netloc
    return plain and all(word.casefold() in segments for word in words)


def expect_id(answer: ForgeAnswer, found: str, wanted: str, what: str) -> None:
    """What came is what was asked for.

    Raises:
        ForeignAnswer: it is another.
    """
    if found.casefold() != wanted.casefold():
        raise ForeignAnswer(answer.status, f"the forge's answer is about another {what}")
