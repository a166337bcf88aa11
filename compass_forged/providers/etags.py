"""Answers to reads that the forge marked with an entity tag, kept to be shown again when it says that they still hold.

Nothing is ever served from here without the forge's word: a conditional read costs nothing of GitHub's hourly limit
when it is answered 304, and everything when it is not. A tag holds for the token that it was given to, so a changed
token forgets all. Sources: GitHub's "Best practices for using the REST API", and reports against public clients on tags
that depend on the token.
"""

import re
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace
from typing import Final

from compass_forged.providers.http import HttpAnswer
from compass_forged.providers.tokens import Secret

ENTRIES_MAX: Final = 2_000
TOTAL_MAX_BYTES: Final = 32 << 20
ANSWER_MAX_BYTES: Final = 1 << 20
"""A larger answer is not kept."""
_OK: Final = 200
_CHANGED: Final = frozenset({_OK, 301, 404, 410, 451})
"""What the forge answers where it no longer holds what it told before. A limit or a failure says nothing of that."""
_OVERHEAD_BYTES: Final = 512  # of an entry besides its texts, about
_TAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e]{0,256}"', re.ASCII)


class AnswerCache:
    """The answers of one credential, the least recently used going first."""

    def __init__(self, *, entries_max: int = ENTRIES_MAX, total_max_bytes: int = TOTAL_MAX_BYTES) -> None:
        """The bounds are on entries, and on bytes of bodies, headers and overhead."""
        self._entries_max = entries_max
        self._total_max_bytes = total_max_bytes
        self._answers: OrderedDict[Hashable, HttpAnswer] = OrderedDict()
        self._bytes = 0
        self._token = Secret("")

    def __len__(self) -> int:
        return len(self._answers)

    @property
    def total_bytes(self) -> int:
        """What the answers weigh."""
        return self._bytes

    def find(self, key: Hashable, token: str) -> HttpAnswer | None:
        """The answer that was last given to ``key`` under this token; it has a tag, and is to be asked about."""
        if token != self._token.reveal():
            self._answers.clear()
            self._bytes = 0
            self._token = Secret(token)
        answer = self._answers.get(key)
        if answer is not None:
            self._answers.move_to_end(key)
        return answer

    def keep(self, key: Hashable, token: str, answer: HttpAnswer) -> None:
        """Take over what the forge has just answered to ``key`` under ``token``."""
        if token != self._token.reveal() or answer.status not in _CHANGED:
            return
        old = self._answers.pop(key, None)
        if old is not None:
            self._bytes -= _weight(old)
        weight = _weight(answer)
        if answer.status != _OK or answer.flaw or not tag_of(answer) or weight > ANSWER_MAX_BYTES:
            return
        self._answers[key] = answer
        self._bytes += weight
        while len(self._answers) > self._entries_max or self._bytes > self._total_max_bytes:
            _, oldest = self._answers.popitem(last=False)
            self._bytes -= _weight(oldest)


def confirmed(known: HttpAnswer, answer: HttpAnswer) -> HttpAnswer:
    """What was known, with the headers of the 304 that says that it still holds.

    The tag is one of the body alone: which pages there are besides is told by the 304's own ``Link``. A list that ended
    with a page goes on behind it later, and that page stays as it was. Source: RFC 9111, section 3.2, and reports of
    public clients on GitHub's lists.
    """
    fresh = {name: value for name, value in answer.headers.items() if not name.startswith("content-")}
    return replace(known, headers={**known.headers, **fresh})


def tag_of(answer: HttpAnswer) -> str:
    """The answer's entity tag, as it is sent back; "" if it has none that could be."""
    tag = answer.headers.get("etag", "")
    return tag if _TAG.fullmatch(tag) else ""


def _weight(answer: HttpAnswer) -> int:
    return _OVERHEAD_BYTES + len(answer.body) + sum(len(name) + len(value) for name, value in answer.headers.items())
