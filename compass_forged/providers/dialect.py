"""How a forge speaks: what the caller asks of GitHub and Linear to judge an answer by."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from compass_forged.budget import Reading
from compass_forged.errors import ForgeError
from compass_forged.providers.http import HttpAnswer, HttpRequest


@dataclass(frozen=True, slots=True)
class Limit:
    """The forge refused for a limit.

    Attributes:
        kind: ``primary`` for a counted limit that is used up, ``secondary`` for a throttle.
        resource: which counted limit.
        delay: seconds until trying again makes sense; None where the forge named none.
    """

    kind: Literal["primary", "secondary"]
    resource: str
    delay: float | None


class Dialect(Protocol):
    """How one kind of forge speaks over HTTP. Pure."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Sent with every request."""
        ...

    def authorization(self, token: str) -> str:
        """The value of the Authorization header."""
        ...

    def reading(self, answer: HttpAnswer) -> Reading | None:
        """What an answer says of its limit, if anything."""
        ...

    def limit(self, answer: HttpAnswer) -> Limit | None:
        """Whether an answer is a refusal for a limit."""
        ...

    def refuses_credential(self, answer: HttpAnswer) -> bool:
        """Whether an answer says that the token is not accepted."""
        ...

    def refusal(self, answer: HttpAnswer) -> ForgeError | None:
        """The error that any other answer amounts to; None for one that may be translated."""
        ...

    def wanted(self, answer: HttpAnswer) -> Mapping[str, str]:
        """What a refusal's headers say the credential lacks, for the log; empty if they say nothing."""
        ...

    def place_request(self, path: tuple[str, ...]) -> HttpRequest | None:
        """The read that tells which repository a path lies in; None if the path names none."""
        ...

    def place_name(self, answer: HttpAnswer) -> str:
        """The repository's canonical name from the answer to that read; "" if it holds none."""
        ...

    def leads_to_same(self, request: HttpRequest, path: tuple[str, ...]) -> bool:
        """Whether a redirect to ``path`` changes the repository alone: not the artifact, nor what is done with it."""
        ...

    def moved(self, request: HttpRequest, repo: str) -> HttpRequest:
        """The same request on another repository."""
        ...
