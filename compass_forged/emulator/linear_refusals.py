"""How Linear refuses: errors in the body, with a type, a code and words, as reported against public clients."""

from collections.abc import Mapping
from typing import Any, Final

JsonObject = dict[str, Any]


class LinearRefused(Exception):
    """A request is refused.

    Attributes:
        status: the HTTP status, which says little.
        extensions: what stands beside the message.
    """

    def __init__(self, message: str, *, type_: str, code: str, status: int = 400, **more: object) -> None:
        super().__init__(message)
        self.status = status
        self.extensions: JsonObject = {
            "type": type_,
            "code": code,
            "statusCode": more.pop("status_code", status),
            "userError": True,
            **more,
        }

    def as_json(self) -> JsonObject:
        """The error as it stands in ``errors``."""
        return {"message": str(self), "extensions": self.extensions}


NOT_AUTHENTICATED: Final = "Authentication required, not authenticated"


def not_authenticated() -> LinearRefused:
    """No token, or none that is known."""
    return LinearRefused(
        NOT_AUTHENTICATED,
        type_="authentication error",
        code="AUTHENTICATION_ERROR",
        status=401,
        userPresentableMessage="You need to authenticate to access this operation.",
    )


def key_as_bearer() -> LinearRefused:
    """An API key behind ``Bearer``."""
    return LinearRefused(
        "It looks like you're trying to use an API key as a Bearer token. Remove the Bearer prefix from the "
        "Authorization header.",
        type_="authentication error",
        code="AUTHENTICATION_ERROR",
    )


def rate_limited(limit: int, what: str) -> LinearRefused:
    """The hour's requests or points are used up."""
    return LinearRefused(
        f"Rate limit exceeded. Only {limit} {what} are allowed per 1 hour.",
        type_="ratelimited",
        code="RATELIMITED",
        status_code=429,
    )


def too_complex(points: float) -> LinearRefused:
    """One query costs more than any may."""
    return LinearRefused(
        "Query too complex",
        type_="invalid input",
        code="INPUT_ERROR",
        userPresentableMessage=(
            f"The query is too complex. Complexity: {points:.0f}. Maximum allowed complexity: 10000."
        ),
    )


def not_valid(message: str) -> LinearRefused:
    """The document does not fit the schema."""
    return LinearRefused(message, type_="graphql error", code="GRAPHQL_VALIDATION_FAILED")


def not_found(what: str) -> LinearRefused:
    """There is none, or none that the caller sees."""
    return LinearRefused(
        f"Entity not found: {what}",
        type_="invalid input",
        code="INPUT_ERROR",
        userPresentableMessage=f"Could not find referenced {what}.",
    )


def already_exists(what: str, entity_id: str) -> LinearRefused:
    """The id that the client chose is taken."""
    return LinearRefused(f"Entity {what} with id {entity_id} already exists", type_="invalid input", code="INPUT_ERROR")


def bad_argument(name: str, constraints: Mapping[str, str]) -> LinearRefused:
    """A value is not what it must be."""
    return LinearRefused(
        "Argument Validation Error",
        type_="invalid input",
        code="INVALID_INPUT",
        validationErrors=[{"property": name, "constraints": dict(constraints)}],
        userPresentableMessage=next(iter(constraints.values())),
    )


def bad_input(message: str) -> LinearRefused:
    """A value does not fit what is there."""
    return LinearRefused(message, type_="invalid input", code="INPUT_ERROR", userPresentableMessage=message)


def no_scope() -> LinearRefused:
    """The token may only read."""
    return LinearRefused("Invalid scope: `write` required", type_="forbidden", code="FORBIDDEN", status_code=403)
