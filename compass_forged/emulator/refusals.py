"""GitHub's refusals, each in GitHub's words. What raises one here answers a request with it.

The words are GitHub's own where a recording or a report shows them; sources stand beside them.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

JsonObject: TypeAlias = dict[str, Any]

DOCS = "https://docs.github.com/rest"
REDIRECT_DOCS = f"{DOCS}/guides/best-practices-for-using-the-rest-api#follow-redirects"
RATE_DOCS = f"{DOCS}/using-the-rest-api/rate-limits-for-the-rest-api"
VERSION_DOCS = f"{DOCS}/about-the-rest-api/api-versions"


class Refused(Exception):
    """The request is answered with an error.

    Attributes:
        status: the HTTP status.
        body: the answer's body, without ``documentation_url`` where the route's own page is to be named.
        headers: what goes into the answer besides the usual headers.
    """

    def __init__(self, status: int, body: JsonObject, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(f"{status} {body.get('message')}")
        self.status = status
        self.body = body
        self.headers = dict(headers or {})


def refusal(status: int, message: str, *, docs: str | None = None, headers: Mapping[str, str] | None = None) -> Refused:
    """An error with a message, under the route's documentation page unless ``docs`` names another."""
    body: JsonObject = {"message": message}
    if docs:
        body["documentation_url"] = docs
    return Refused(status, body, headers)


def not_found() -> Refused:
    """What is not there and what the caller must not know of: one answer for both."""
    return refusal(404, "Not Found")


def no_route() -> Refused:
    """A path or a method that the API has not."""
    return refusal(404, "Not Found", docs=DOCS)


def bad_credentials() -> Refused:
    """An unknown or revoked token."""
    return refusal(401, "Bad credentials", docs=DOCS)


def needs_authentication() -> Refused:
    """A write, or a private page, without a token."""
    return refusal(401, "Requires authentication")


def forbidden(message: str) -> Refused:
    """The caller may see the thing but not do this."""
    return refusal(403, message)


def gone(message: str) -> Refused:
    """It was here."""
    return refusal(410, message)


def unsupported_version(version: str) -> Refused:
    """An API version that is not offered: the one error whose ``errors`` is a bare string."""
    body: JsonObject = {
        "message": "The version you specified is not a supported version.",
        "errors": version,
        "documentation_url": VERSION_DOCS,
    }
    return Refused(400, body)


def moved(method: str, url: str) -> Refused:
    """The thing has another address: 301 to a read, 307 to a write, and both say Moved Permanently (recorded)."""
    status = 301 if method in {"GET", "HEAD"} else 307
    body: JsonObject = {"message": "Moved Permanently", "url": url, "documentation_url": REDIRECT_DOCS}
    return Refused(status, body, {"location": url})


def invalid_request(explanation: str) -> Refused:
    """The body's shape is wrong: GitHub answers with its JSON schema's complaint and no ``errors``."""
    return refusal(422, f"Invalid request.\n\n{explanation}")


def validation_failed(resource: str, field: str, code: str, message: str | None = None, value: Any = None) -> Refused:
    """One field of the body is refused; ``code`` is one of GitHub's codes, such as ``missing_field``."""
    error: JsonObject = {"resource": resource, "field": field, "code": code}
    if message is not None:
        error["message"] = message
    if value is not None:
        error["value"] = value
    return Refused(422, {"message": "Validation Failed", "errors": [error]})


def pull_refused(message: str) -> Refused:
    """A pull request is refused as a whole: an object of ``errors`` with a message and no field."""
    error: JsonObject = {"resource": "PullRequest", "code": "custom", "message": message}
    return Refused(422, {"message": "Validation Failed", "errors": [error]})


def review_refused(*complaints: str) -> Refused:
    """A review is refused: ``errors`` is a list with one string, into which all complaints are joined."""
    *before, last = complaints
    joined = f"{', '.join(before)}{',' if len(before) > 1 else ''} and {last}" if before else last
    return Refused(422, {"message": "Unprocessable Entity", "errors": [joined]})
