"""What an exchange with a forge comes to where it is no error."""

from collections.abc import Mapping
from dataclasses import dataclass

from compass_forged.errors import BadAnswer


class AnswerTooLarge(BadAnswer):
    """The answer to a read is over the cap: the request asked for too much at once."""


@dataclass(frozen=True, slots=True)
class ForgeAnswer:
    """An answer that is no error.

    Attributes:
        status: the HTTP status, always 2xx.
        headers: names in lower case.
        body: the whole body, which the translator decodes.
        moved: whether a read was redirected, so that it may rightly be about another repository or number.
        moved_to: the repository that a write was resent to; "" if it was not.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    moved: bool = False
    moved_to: str = ""
