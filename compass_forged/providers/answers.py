"""What the translators of any forge's answers share: decoding, lists, times. Pure.

A list is judged item by item: one that cannot be read is left out and counted, so that it does not take its neighbours
with it; a list of nothing but such items is none.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Generic, NoReturn, TypeVar

import msgspec

from compass_forged.errors import BadAnswer, ForgeUnavailable
from compass_forged.providers.forge_answer import ForgeAnswer

ITEMS_MAX: Final = 1000
"""More than any page that is asked for holds. Millions of nothing fit under the cap of an answer, and take seconds."""
_ACCEPTED, _NO_CONTENT = 202, 204
_LATER_SECONDS: Final = 2.0

T = TypeVar("T")
R = TypeVar("R")

_raws_decoder = msgspec.json.Decoder(list[msgspec.Raw])
# A pair of surrogates, a lone one, or any other escape, so that an escaped backslash begins none.
_ESCAPES: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def decode(decoder: msgspec.json.Decoder[T], answer: ForgeAnswer) -> T:
    """The answer as the decoder has it.

    Raises:
        BadAnswer: it is not the JSON that is due.
        ForgeUnavailable: it is none yet.
    """
    if answer.status == _ACCEPTED:  # "job scheduled": what comes with it is no answer
        raise ForgeUnavailable(
            "the forge is still working on its answer", outcome="unknown", retry_after_seconds=_LATER_SECONDS
        )
    try:
        return decode_mended(decoder, answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadAnswer(answer.status, "the forge's answer is not the JSON that is due") from error


def decode_mended(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode; half a surrogate pair, which JSON can hold and UTF-8 cannot, is read as a replacement character.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: it is not the JSON that is due.
    """
    try:
        return decoder.decode(body)
    except msgspec.DecodeError:
        mended = _ESCAPES.sub(lambda found: rb"\ufffd" if found[1] else found[0], body)
        if mended == body:
            raise
        return decoder.decode(mended)


@dataclass(frozen=True, slots=True)
class Items(Generic[T]):
    """A list as far as it could be read.

    Attributes:
        good: the items that could be read, in order.
        broken: the places of those that could not, counted from 0 over the whole list.
    """

    good: list[T] = field(default_factory=list[T])
    broken: tuple[int, ...] = ()


def decode_items(decoder: msgspec.json.Decoder[T], read: Callable[[T], R], answer: ForgeAnswer) -> Items[R]:
    """A list, each item decoded and read by itself; 204 is an empty one.

    Raises:
        BadAnswer: it is no list, is absurdly long, or no item of it could be read.
        ForgeUnavailable: as ``decode``.
    """
    raws = [] if answer.status == _NO_CONTENT else decode(_raws_decoder, answer)
    return read_items(raws, decoder, read, answer)


def read_items(
    raws: Collection[msgspec.Raw], decoder: msgspec.json.Decoder[T], read: Callable[[T], R], answer: ForgeAnswer
) -> Items[R]:
    """As ``decode_items``, for a list that stands within an object."""
    if len(raws) > ITEMS_MAX:
        bad(answer, f"the forge's list has more than {ITEMS_MAX} items")
    good: list[R] = []
    broken: list[int] = []
    for index, raw in enumerate(raws):
        try:
            good.append(read(decode_mended(decoder, bytes(raw))))
        except (BadAnswer, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            broken.append(index)
    if broken and not good:
        bad(answer, "no item of the forge's list can be read")
    return Items(good, tuple(broken))


def left_out(broken: int, what: str) -> list[str]:
    """The warning that ``broken`` items of a list are missing; none where none are."""
    if not broken:
        return []
    return [f"{broken} of the forge's {what} could not be read and {'is' if broken == 1 else 'are'} left out"]


def utc_time(text: str | None) -> str:
    """A time as RFC 3339 in UTC, to the second or as fine as it came; "" for what is none.

    An answer is not lost for it: what it says of an artifact holds, whenever that was made.
    """
    try:
        moment = datetime.fromisoformat(text or "")
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return aware.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return ""


def bad(answer: ForgeAnswer, why: str) -> NoReturn:
    """The answer cannot be used."""
    raise BadAnswer(answer.status, why)
