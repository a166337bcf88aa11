from collections.abc import Callable

import pytest
import structlog.testing
import trio
from trio.testing import MockClock

from compass_forged.errors import (
    BadAnswer,
    BadCredentials,
    CallError,
    ConfigError,
    ForgeError,
    ForgeStatus,
    ForgeUnavailable,
)
from compass_forged.providers.credentials import Credential, EnvToken, StaticToken
from compass_forged.providers.fake import FakeProvider
from compass_forged.providers.github_identity import learn_identity
from compass_forged.providers.identity import LEARN_SECONDS, Identities, Identity, RoleIdentity
from compass_forged.providers.registry import Entry
from tests.support.forge_http import ScriptedForge, answer, new_http

ADA = Identity("user", 7, "ada")
BOB = Identity("user", 8, "bob")
COMPASS = Identity("app", 7, "compass[bot]")
OTHER_APP = Identity("app", 9, "other[bot]")
NAMELESS = Identity("installation", 0, "")


@pytest.mark.parametrize(
    ("one", "two", "other"),
    [
        (ADA, BOB, True),
        (ADA, Identity("user", 7, "Ada-renamed"), False),
        (ADA, COMPASS, True),
        (COMPASS, OTHER_APP, True),
        (COMPASS, COMPASS, False),
        (ADA, NAMELESS, True),
        (COMPASS, NAMELESS, None),
        (NAMELESS, NAMELESS, None),
    ],
)
def test_accounts_are_told_apart(one: Identity, two: Identity, other: bool | None) -> None:
    assert one.is_other_than(two) is other
    assert two.is_other_than(one) is other


class Forge:
    """Names accounts as it is told to, and counts how often it was asked."""

    def __init__(self, *script: Identity | Exception, seconds: float = 0.0) -> None:
        self.script = list(script)
        self.seconds = seconds
        self.asked = 0

    async def __call__(self) -> Identity:
        self.asked += 1
        await trio.sleep(self.seconds)
        told = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(told, Exception):
            raise told
        return told


class Changing:
    """A source whose token a test changes."""

    def __init__(self) -> None:
        self.value = "token-one"

    async def token(self) -> str:
        await trio.lowlevel.checkpoint()
        return self.value

    def invalidate(self) -> None: ...


def new_identities(author: Forge, reviewer: Forge | None, source: Changing | None = None) -> Identities:
    return Identities(
        "github.com",
        RoleIdentity(Credential("author", source or StaticToken("token-author")), author),
        RoleIdentity(Credential("reviewer", StaticToken("token-reviewer")), reviewer) if reviewer else None,
    )


AWAY = ForgeUnavailable("cannot connect to the forge", outcome="not_sent")


async def test_two_accounts_may_review(autojump_clock: MockClock) -> None:
    identities = new_identities(Forge(ADA), Forge(BOB))
    await identities.learn()
    assert identities.all_known
    await identities.check_reviewer()
    assert (identities.known("author"), identities.known("reviewer")) == (ADA, BOB)
    await Entry("github", "github.com", FakeProvider(), None, identities).check_reviewer()


@pytest.mark.parametrize("account", [ADA, COMPASS])
async def test_one_account_in_both_roles_is_refused_by_name_to_the_operator_and_without_to_the_agent(
    account: Identity, autojump_clock: MockClock
) -> None:
    identities = new_identities(Forge(account), Forge(account))
    with pytest.raises(ConfigError, match=r"^forge github.com: author and reviewer are the same account, ") as told:
        await identities.learn()
    assert account.login in str(told.value)
    with pytest.raises(CallError) as refused:
        await identities.check_reviewer()
    assert (refused.value.code, refused.value.outcome) == ("failed_precondition", "not_sent")
    assert account.login not in refused.value.message


async def test_tokens_of_two_nameless_installations_may_be_one_app(autojump_clock: MockClock) -> None:
    with pytest.raises(CallError, match="app_id") as refused:
        await new_identities(Forge(NAMELESS), Forge(COMPASS)).check_reviewer()
    assert refused.value.code == "failed_precondition"
    await new_identities(Forge(ADA), Forge(NAMELESS)).check_reviewer()


@pytest.mark.parametrize("role", ["author", "reviewer"])
async def test_until_both_are_known_reviews_are_unavailable(role: str, autojump_clock: MockClock) -> None:
    forges = {"author": Forge(ADA), "reviewer": Forge(BOB), role: Forge(AWAY, AWAY, BOB if role == "reviewer" else ADA)}
    identities = new_identities(forges["author"], forges["reviewer"])
    with structlog.testing.capture_logs() as logs:
        await identities.learn()
    assert [line["role"] for line in logs if line["log_level"] == "warning"] == [role]
    await trio.sleep(3)
    for _ in range(20):  # that many reviews at once do not ask as many times
        with pytest.raises(ForgeUnavailable) as refused:
            await identities.check_reviewer()
        assert refused.value.outcome == "not_sent"
    assert forges[role].asked == 2
    await trio.sleep(3)
    await identities.check_reviewer()
    assert {name: forge.asked for name, forge in forges.items()} == {"author": 1, "reviewer": 1, role: 3}


async def test_of_many_reviews_at_once_one_asks_who_the_accounts_are(autojump_clock: MockClock) -> None:
    forge = Forge(AWAY, seconds=1.5)
    identities = new_identities(Forge(ADA), forge)
    refused = 0

    async def review() -> None:
        nonlocal refused
        with pytest.raises(ForgeUnavailable):
            await identities.check_reviewer()
        refused += 1

    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(review)
    assert (refused, forge.asked) == (50, 1)
    assert trio.current_time() == 1.5


async def test_no_reviewer_is_not_known_to_be_one() -> None:
    identities = new_identities(Forge(ADA), None)
    await identities.learn()
    assert identities.all_known
    assert identities.known("reviewer") is None
    with pytest.raises(ForgeUnavailable):
        await identities.check_reviewer()


async def test_a_forge_that_does_not_answer_is_given_up(autojump_clock: MockClock) -> None:
    role = RoleIdentity(Credential("author", StaticToken("token-author")), Forge(ADA, seconds=60))
    with pytest.raises(ForgeUnavailable, match="within 10 s"):
        await role.learn()
    assert trio.current_time() == LEARN_SECONDS
    assert role.known is None


async def test_another_token_may_be_another_account(autojump_clock: MockClock) -> None:
    source, forge = Changing(), Forge(ADA, BOB)
    identities = new_identities(forge, Forge(BOB), source)
    await identities.check_reviewer()
    source.value = "token-two"
    await identities.author.credential.token()
    assert identities.known("author") is None
    await trio.sleep(3)
    with pytest.raises(CallError):
        await identities.check_reviewer()
    assert forge.asked == 2


@pytest.mark.parametrize("role", ["author", "reviewer"])
async def test_a_token_that_was_exchanged_since_the_last_call_is_looked_at_before_the_next_review(
    role: str, autojump_clock: MockClock
) -> None:
    source, changing, steady = Changing(), Forge(ADA, BOB), Forge(BOB)
    if role == "reviewer":
        reviewer = RoleIdentity(Credential("reviewer", source), changing)
        identities = Identities(
            "github.com", RoleIdentity(Credential("author", StaticToken("token")), steady), reviewer
        )
    else:
        identities = new_identities(changing, steady, source)
    await identities.check_reviewer()
    await trio.sleep(3)
    source.value = "token-two"  # and nobody has asked for it since
    with pytest.raises(CallError) as refused:
        await identities.check_reviewer()
    assert (refused.value.code, changing.asked) == ("failed_precondition", 2)


async def test_a_reviewer_whose_token_is_gone_is_told_as_that_and_an_author_without_one_keeps_no_review_back(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTHOR_TOKEN", "token-one")
    monkeypatch.setenv("REVIEWER_TOKEN", "token-two")
    author = RoleIdentity(Credential("author", EnvToken("AUTHOR_TOKEN")), Forge(ADA))
    reviewer = RoleIdentity(Credential("reviewer", EnvToken("REVIEWER_TOKEN")), Forge(BOB))
    identities = Identities("github.com", author, reviewer)
    await identities.check_reviewer()
    monkeypatch.delenv("AUTHOR_TOKEN")
    await identities.check_reviewer()
    monkeypatch.delenv("REVIEWER_TOKEN")
    with pytest.raises(BadCredentials, match="reviewer") as refused:
        await identities.check_reviewer()
    assert refused.value.outcome == "not_sent"


async def test_another_installation_token_is_the_same_app(autojump_clock: MockClock) -> None:
    source, forge = Changing(), Forge(COMPASS)
    role = RoleIdentity(Credential("author", source), forge, lasting=True)
    await role.learn()
    source.value = "token-two"
    await role.credential.token()
    await role.learn()
    assert (role.known, forge.asked) == (COMPASS, 1)


async def test_what_is_not_known_is_learned_in_the_background_with_longer_and_longer_pauses(
    autojump_clock: MockClock,
) -> None:
    source, forge = Changing(), Forge(*[AWAY] * 6, ADA, BOB)
    identities = new_identities(forge, Forge(BOB), source)
    with structlog.testing.capture_logs() as logs, trio.move_on_after(3600):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(identities.keep)
            await trio.sleep(200)
            assert forge.asked == 5
            await trio.sleep(1000)
            assert (forge.asked, identities.known("author")) == (7, ADA)
            source.value = "token-two"
            await identities.author.credential.token()
            await trio.sleep(100)
            assert identities.known("author") == BOB
    assert forge.asked == 8
    refused = [line for line in logs if line["event"] == "reviews are refused"]
    assert len(refused) == 1  # and not at every look


# --- GitHub ---------------------------------------------------------------------------------------------------------


async def test_a_user_s_token_names_its_user() -> None:
    forge = ScriptedForge([answer(200, {"id": 7, "login": "ada", "type": "User"})])
    assert await learn_identity(new_http(forge)) == ADA
    assert forge.requests[0].url.path == "/user"


async def test_an_installation_token_is_an_app_s_and_the_daemon_serves_on() -> None:
    forge = ScriptedForge([answer(403, {"message": "Resource not accessible by integration"})])
    assert await learn_identity(new_http(forge)) == NAMELESS
    assert str(NAMELESS) == "an App's installation"


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (lambda: answer(404, {"message": "Not Found"}), ForgeStatus),
        (lambda: answer(403, {"message": "Sorry. Your account was suspended."}), ForgeStatus),
        (lambda: answer(200, b"[]"), BadAnswer),
        (lambda: answer(200, {"id": "7", "login": "ada"}), BadAnswer),
        (lambda: answer(200, b"\xff"), BadAnswer),
    ],
)
async def test_any_other_answer_teaches_nothing(script: Callable[[], object], kind: type[ForgeError]) -> None:
    with pytest.raises(kind):
        await learn_identity(new_http(ScriptedForge([script()])))  # type: ignore[list-item] # a response
