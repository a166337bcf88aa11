"""GitHub pull requests: for each operation what is asked, and what its answer means in the canonical types. Pure."""

import re
from typing import Final

import msgspec

from compass_forged.errors import ForgeStatus
from compass_forged.providers.answers import Items, bad, decode, decode_items
from compass_forged.providers.forge_answer import ForgeAnswer
from compass_forged.providers.github_answers import (
    Artifact,
    OwnAccount,
    User,
    artifact_fields,
    expect_author,
    expect_number,
    expect_repo,
    repo_path,
    same_login,
)
from compass_forged.providers.http import HttpRequest
from compass_forged.wire.schema import CreatePullRequest, ForgeRef, PullRequest

_UNPROCESSABLE: Final = 422
# The forge's own words: "A pull request already exists for OWNER:BRANCH."
_EXISTS: Final = re.compile(r"pull request already exists", re.IGNORECASE)
# How ``detail_of`` words an object of ``errors`` that names a field and has no message.
_HEAD_UNKNOWN: Final = re.compile(r"\bPullRequest\.head: invalid\b")
_REF: Final = re.compile(r"[^\x00-\x20\x7f~^:?*\[\\]{1,1000}")
_SHA: Final = re.compile(r"[0-9a-f]{40,64}", re.ASCII)


class _HeadRepo(msgspec.Struct):
    full_name: str = ""


class _End(msgspec.Struct):
    """One end of a pull request. ``repo`` and ``user`` are null where the fork or its owner is gone."""

    ref: str
    sha: str
    repo: _HeadRepo | None = None
    user: User | None = None


class _Pull(Artifact, kw_only=True):
    head: _End
    base: _End
    merged_at: str | None = None
    draft: bool | None = None
    merged: bool | None = None


class _Repository(msgspec.Struct):
    full_name: str
    default_branch: str


_pull_decoder = msgspec.json.Decoder(_Pull)
_repository_decoder = msgspec.json.Decoder(_Repository)


# --- the default branch: docs.github.com/rest/repos/repos#get-a-repository ------------------------------------------


def repository_request(repo: str) -> HttpRequest:
    """What reads a repository."""
    return HttpRequest("GET", repo_path(repo))


def read_default_branch(answer: ForgeAnswer, repo: str) -> tuple[str, str]:
    """The repository's canonical name, and its default branch.

    Raises:
        BadAnswer: the answer is not about this repository, or names no branch.
    """
    raw = decode(_repository_decoder, answer)
    if not answer.moved:
        expect_repo(answer, raw.full_name, repo)
    if not _REF.fullmatch(raw.default_branch):
        bad(answer, "the forge's answer names no default branch")
    return raw.full_name, raw.default_branch


# --- create: docs.github.com/rest/pulls/pulls#create-a-pull-request -------------------------------------------------


def create_request(arm: CreatePullRequest, base: str) -> HttpRequest:
    """What opens a pull request into ``base``."""
    json: dict[str, object] = {"title": arm.title, "head": arm.head_ref, "base": base, "body": arm.body}
    if arm.draft:
        json["draft"] = True
    return HttpRequest("POST", (*repo_path(arm.repo), "pulls"), json=json)


def created_pull(
    answer: ForgeAnswer, arm: CreatePullRequest, forge: ForgeRef, own: OwnAccount | None = None
) -> PullRequest:
    """The pull request that was opened.

    Raises:
        BadAnswer: nobody knows what stands on the forge.
    """
    raw = decode(_pull_decoder, answer)
    pull = _pull(raw, answer, forge)
    expect_repo(answer, pull.repo, answer.moved_to or arm.repo)
    expect_author(answer, raw.user, own)
    if arm.draft and not pull.draft:
        pull.warnings.append("not opened as a draft: the forge has none in this repository")
    return pull


def says_it_exists(refused: ForgeStatus) -> bool:
    """Whether a create was refused since a pull request for its head and base stands."""
    return refused.status == _UNPROCESSABLE and bool(_EXISTS.search(refused.detail))


def says_head_unknown(refused: ForgeStatus) -> bool:
    """Whether a create was refused for its head, which a branch pushed a moment ago meets with too."""
    return refused.status == _UNPROCESSABLE and bool(_HEAD_UNKNOWN.search(refused.detail))


# --- look up: docs.github.com/rest/pulls/pulls#list-pull-requests ---------------------------------------------------


def head_of(arm: CreatePullRequest) -> tuple[str, str]:
    """Owner and branch of the head: ``owner:branch``, or a branch of the repository itself."""
    owner, colon, branch = arm.head_ref.partition(":")
    return (owner, branch) if colon else (arm.repo.partition("/")[0], arm.head_ref)


def look_up_request(arm: CreatePullRequest, base: str) -> HttpRequest:
    """What lists the open pull requests of a head and base."""
    owner, branch = head_of(arm)
    query = (("state", "open"), ("head", f"{owner}:{branch}"), ("base", base), ("per_page", "100"))
    return HttpRequest("GET", (*repo_path(arm.repo), "pulls"), query)


def looked_up(answer: ForgeAnswer, arm: CreatePullRequest, base: str, forge: ForgeRef) -> PullRequest | None:
    """The pull request of that head and base; None where none is shown. A forge that ignores a filter shows others.

    Raises:
        BadAnswer: the answer is not about this repository.
    """
    owner, branch = head_of(arm)

    def read(raw: _Pull) -> PullRequest | None:
        pull = _pull(raw, answer, forge)
        if not answer.moved:
            expect_repo(answer, pull.repo, arm.repo)
        wanted = raw.head.ref == branch and raw.base.ref == base and pull.state == "open"
        return pull if wanted and _owned(raw.head, owner) else None

    found: Items[PullRequest | None] = decode_items(_pull_decoder, read, answer)
    return next((pull for pull in found.good if pull is not None), None)


def _owned(end: _End, owner: str) -> bool:
    have = end.repo.full_name.partition("/")[0] if end.repo else end.user.login if end.user else ""
    return same_login(have, owner)


# --- get: docs.github.com/rest/pulls/pulls#get-a-pull-request -------------------------------------------------------


def get_request(repo: str, number: int) -> HttpRequest:
    """What reads a pull request."""
    return HttpRequest("GET", (*repo_path(repo), "pulls", str(number)))


def read_pull(answer: ForgeAnswer, repo: str, number: int, forge: ForgeRef) -> PullRequest:
    """The pull request without what stands on pages of its own; one that has moved stands under its new name.

    Raises:
        BadAnswer: the answer is not about this pull request.
    """
    pull = _pull(decode(_pull_decoder, answer), answer, forge)
    if not answer.moved:
        expect_repo(answer, pull.repo, repo)
        expect_number(answer, pull.number, number)
    return pull


def is_sha(text: str) -> bool:
    """Whether ``text`` names a commit, in SHA-1 or SHA-256."""
    return _SHA.fullmatch(text) is not None


def _pull(raw: _Pull, answer: ForgeAnswer, forge: ForgeRef) -> PullRequest:
    return PullRequest(
        **artifact_fields(raw, answer, forge, "pull"),
        head_ref=raw.head.ref,
        base_ref=raw.base.ref,
        head_sha=raw.head.sha,
        draft=bool(raw.draft),
        merged=raw.merged_at is not None if raw.merged is None else raw.merged,  # a list tells the time alone
    )
