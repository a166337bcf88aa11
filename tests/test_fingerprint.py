import re

import msgspec
import pytest

from compass_forged.fingerprint import coordinate_text, create_ref, request_fingerprint
from compass_forged.ports import Coordinate
from compass_forged.wire.schema import Arm, CreateIssue, CreatePullRequest

ISSUE = CreateIssue(repo="acme/site", title="A title", body="text", labels=["bug"])
WHERE = ("github", "github.com", "acme/site")


def fingerprint(arm: Arm = ISSUE, provider: str = "github", host: str = "github.com", repo: str = "acme/site") -> bytes:
    return request_fingerprint(provider, host, repo, arm)


def test_the_same_request_has_the_same_fingerprint() -> None:
    assert fingerprint() == fingerprint(msgspec.structs.replace(ISSUE))
    assert len(fingerprint()) == 32


def test_a_fingerprint_stays_the_same_between_releases() -> None:
    # A row of an earlier release must still match: a change here is a change of what is stored.
    assert fingerprint().hex() == "6155fd9605210ac8dd118bcff60075676041ca5a47fcab714e5476f76696202f"


def test_the_case_of_the_repository_is_no_change() -> None:
    assert fingerprint(msgspec.structs.replace(ISSUE, repo="Acme/Site")) == fingerprint()


@pytest.mark.parametrize(
    "other",
    [
        fingerprint(msgspec.structs.replace(ISSUE, title="Another")),
        fingerprint(msgspec.structs.replace(ISSUE, body="text ")),
        fingerprint(msgspec.structs.replace(ISSUE, labels=[])),
        fingerprint(CreatePullRequest(repo="acme/site", title="A title", body="text", head_ref="bug")),
        fingerprint(provider="linear"),
        fingerprint(host="ghe.example"),
        fingerprint(repo="acme/other"),
    ],
)
def test_whatever_else_differs_is_a_change(other: bytes) -> None:
    assert other != fingerprint()


def ref(secret: bytes = b"s" * 32, agent_id: int = 1, key: str = "k", where: tuple[str, str, str] = WHERE) -> str:
    return create_ref(secret, agent_id=agent_id, client_request_id=key, where=where)


def test_a_ref_is_sixteen_characters_of_base32() -> None:
    assert re.fullmatch("[a-z2-7]{16}", ref())
    assert ref() == ref()


def test_a_ref_stays_the_same_between_releases() -> None:
    assert ref() == "x6zfq7uut4smlu67"


@pytest.mark.parametrize(
    "other",
    [
        ref(secret=b"t" * 32),
        ref(agent_id=2),
        ref(key="k2"),
        ref(where=("linear", "github.com", "acme/site")),
        ref(where=("github", "ghe.example", "acme/site")),
        ref(where=("github", "github.com", "acme/other")),
        ref(key="kgithub", where=("", "github.com", "acme/site")),  # parts are not just joined
    ],
)
def test_a_ref_binds_secret_agent_key_and_place(other: str) -> None:
    assert other != ref()


def test_a_coordinate_is_one_word() -> None:
    where = Coordinate("github", "github.com", "acme/site", "issue", 7)
    assert coordinate_text(where) == "github:github.com/acme/site#7"
