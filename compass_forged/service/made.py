"""What this create or an earlier one has made: its row in the index, what is told of it, what proves whose it is."""

import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec

from compass_forged import owner
from compass_forged.fingerprint import request_fingerprint
from compass_forged.ports import ArtifactKind, AuthoredArtifact
from compass_forged.service.bound import BoundCall
from compass_forged.wire.schema import (
    CreateIssue,
    CreatePullRequest,
    ForgeRef,
    Issue,
    IssueResult,
    PullRequest,
    PullRequestResult,
    ResultArm,
)

CreateArm: TypeAlias = CreateIssue | CreatePullRequest
Key: TypeAlias = tuple[int, str]
"""(agent id, client request id)."""


def replayed(memo: AuthoredArtifact, *, mismatch: bool) -> ResultArm:
    """A create answered from its memo: forge, repo, number, url and created_at, in the arm of the stored kind."""
    place = memo.coordinate
    kind: Callable[..., Issue] = Issue if place.kind == "issue" else PullRequest
    found = kind(
        forge=ForgeRef(place.provider, place.host),
        repo=memo.repo,
        number=place.number,
        url=memo.url,
        created_at=memo.created_at,
        replayed=True,
        replay_mismatch=mismatch,
    )
    return result_of(found)


def told(bound: BoundCall, memo: AuthoredArtifact, fingerprint: bytes) -> ResultArm:
    """What the caller is told of an earlier create under its key, which another session may have made elsewhere.

    Raises:
        CallError: it lies outside the scope of the session that asks now.
    """
    bound.check_scope(memo.coordinate)
    return replayed(memo, mismatch=memo.fingerprint != fingerprint)


def result_of(made: Issue) -> ResultArm:
    """The arm in which an issue or a pull request is answered."""
    return PullRequestResult(pull_request=made) if isinstance(made, PullRequest) else IssueResult(issue=made)


def _now() -> str:
    """For a forge that does not tell when it created something."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def row_of(bound: BoundCall, made: Issue, key: Key | None, fingerprint: bytes | None) -> AuthoredArtifact:
    """The row of what was made for the caller; ``key`` and ``fingerprint`` are its memo, None where there is none."""
    kind: ArtifactKind = "pull_request" if isinstance(made, PullRequest) else "issue"
    return AuthoredArtifact(
        coordinate=bound.written_at(kind, made),
        repo=made.repo,
        account=bound.account,
        session_id=bound.session_id,
        client_request_id=key[1] if key else None,
        fingerprint=fingerprint,
        url=made.url,
        created_at=made.created_at or _now(),
    )


def fingerprint_of(bound: BoundCall, arm: CreateArm, made: Issue) -> bytes:
    """Of the request that made what a forge found under this one's id; this one's own where nothing tells them apart.

    The body is no part of the question, since such a forge rewrites it; nor is the place where people moved it.
    """
    repo = bound.repo
    if made.title.strip() != arm.title.strip():
        arm = msgspec.structs.replace(arm, title=made.title, body=owner.strip(made.body))
    if made.replay_mismatch:
        repo = bound.written_at("issue", made).repo
    return request_fingerprint(bound.entry.provider, bound.entry.host, repo, arm)


def carries(found: PullRequest, bound: BoundCall, ref: str) -> bool:
    """Whether what was found begins with the header of this agent's create under this key.

    No other agent can have written the ref into it: it binds agent, key and place under a secret, and what agents write
    is stripped of everything that reads as a header. A stranger can copy it from where it stands in public, so that it
    counts under the daemon's own account alone; which by itself proves nothing, since all agents share it.
    """
    claim = owner.parse(found.body)
    return claim is not None and hmac.compare_digest(claim.ref, ref) and claim.agent == bound.account.agent


def as_it_stands(arm: CreatePullRequest, found: PullRequest) -> CreatePullRequest:
    """The request that would have made what was found; ``arm`` itself where nothing tells the two apart.

    Forges rewrite ends of lines, and cut blanks at the ends.
    """
    body = owner.strip(found.body)
    same = (found.title.strip(), _plain(body)) == (arm.title.strip(), _plain(owner.strip(arm.body)))
    return arm if same else msgspec.structs.replace(arm, title=found.title, body=body)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").strip()
