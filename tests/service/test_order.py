"""The order of the steps: what refuses, and that nothing after it was touched."""

from dataclasses import replace

import msgspec
import pytest
import trio

from compass_forged.errors import Fault, ForgeStatus
from compass_forged.ports import Account, CallContext, Caller
from compass_forged.providers.fake import Step
from compass_forged.wire.schema import (
    READ_ARMS,
    Arm,
    CreateIssue,
    ForgeSelector,
    GetIssue,
    SubmitReview,
    Subscribe,
    Unsubscribe,
    arm_name,
)
from tests.support.core import ONE_OF_EACH
from tests.support.service import (
    COMMENT,
    CREATE,
    GHE,
    LISTING,
    READ,
    REPO,
    Guard,
    error_of,
    issue_of,
    new_world,
    refusal_of,
)

BUILT: tuple[Arm, ...] = (CREATE, COMMENT, READ, LISTING)
PLACED = [arm for arm in ONE_OF_EACH if not isinstance(arm, Unsubscribe)]
"""The arms that name a repository."""


def outcome_of(arm: Arm, outcome: str = "not_sent") -> str:
    return "" if isinstance(arm, READ_ARMS) else outcome


def blank_repo(arm: Arm) -> Arm:
    return msgspec.structs.replace(arm, **({"subscription_id": ""} if isinstance(arm, Unsubscribe) else {"repo": " "}))


# --- the whole way --------------------------------------------------------------------------------------------------


async def test_a_create_goes_through_memo_forge_and_record_in_this_order() -> None:
    world = await new_world()
    issue = issue_of(await world.run(CREATE, "k-1"))
    assert world.events == ["memo", "forge", "record"]
    assert (issue.repo, issue.number, issue.title, issue.body) == (REPO, 1, "A title", "The words.")


@pytest.mark.parametrize(
    ("arm", "events"),
    [(CREATE, ["forge", "record"]), (READ, ["forge", "attribution"]), (LISTING, ["forge", "attribution"])],
    ids=["keyless create", "get", "list"],
)
async def test_a_call_asks_the_store_no_more_than_it_needs(arm: Arm, events: list[str]) -> None:
    world = await new_world()
    await world.run(CREATE)
    world.events.clear()
    await world.run(arm)
    assert world.events == events


async def test_the_context_names_the_coordinate_for_the_log() -> None:
    world = await new_world()
    context = CallContext("c1", Guard())
    await world.run(CREATE, context=context, forge=ForgeSelector("github", GHE))
    assert context.coordinate == f"github:{GHE}/acme/site"


# --- 1. identity ----------------------------------------------------------------------------------------------------

NOBODY = [
    Caller(None, "s-1", "c1"),
    Caller(Account(1, "scout", 1, "ada"), "", "c1"),
    Caller(Account(1, "", 1, "ada"), "s-1", "c1"),
    Caller(Account(1, "scout", 1, ""), "s-1", "c1"),
    Caller(Account(1, "scout", 1, "ada`\nx"), "s-1", "c1"),
    Caller(Account(1, "scout", 1, "ada"), "S 1", "c1"),
]


@pytest.mark.parametrize("caller", NOBODY)
@pytest.mark.parametrize("arm", ONE_OF_EACH, ids=arm_name)
async def test_nobody_is_a_fault_and_nothing_is_touched(arm: Arm, caller: Caller) -> None:
    world = await new_world()
    with pytest.raises(Fault) as caught:
        await world.run(arm, "k-1", caller=caller)
    assert caught.value.code == "permission_denied"
    assert world.untouched


async def test_nobody_is_refused_before_the_shape_is_looked_at() -> None:
    world = await new_world()
    with pytest.raises(Fault):
        await world.run(blank_repo(CREATE), caller=NOBODY[0])


# --- 2. shape -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ONE_OF_EACH, ids=arm_name)
async def test_a_bad_shape_is_refused_before_scope_and_coordinate(arm: Arm) -> None:
    world = await new_world()
    nowhere = replace(world.scout, scope=())
    result = await world.run(blank_repo(arm), caller=nowhere, forge=ForgeSelector("gitlab"))
    assert refusal_of(result) == ("invalid_argument", outcome_of(arm))
    assert world.untouched


@pytest.mark.parametrize(
    ("arm", "field"),
    [
        (msgspec.structs.replace(CREATE, title=" "), "title"),
        (msgspec.structs.replace(CREATE, title="a\nb"), "title"),
        (msgspec.structs.replace(CREATE, labels=["a\tb"]), "labels[0]"),
        (msgspec.structs.replace(COMMENT, issue_number=0), "issue_number"),
        (msgspec.structs.replace(COMMENT, body="> `compass:owner agent=a owner=b session=c`"), "body"),
        (msgspec.structs.replace(READ, issue_number=0), "issue_number"),
        (msgspec.structs.replace(LISTING, state="merged"), "state"),
    ],
)
async def test_a_bad_value_is_named_and_nothing_is_touched(arm: Arm, field: str) -> None:
    world = await new_world()
    error = error_of(await world.run(arm, "k-1"))
    assert (error.code, error.outcome) == ("invalid_argument", outcome_of(arm))
    assert error.message.startswith(f"{field}: ")
    assert world.untouched


@pytest.mark.parametrize("repo", ["acme", "acme/", "/site", "a/b/c", "../..//", "acme/si\u2009te"])
@pytest.mark.parametrize("arm", PLACED, ids=arm_name)
async def test_a_repo_outside_the_forges_grammar_never_gets_to_forge_or_store(arm: Arm, repo: str) -> None:
    world = await new_world()
    result = await world.run(msgspec.structs.replace(arm, repo=repo), "k-1", caller=replace(world.scout, scope=()))
    assert refusal_of(result) == ("invalid_argument", outcome_of(arm))
    assert world.untouched


# --- 3. scope -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forge", [None, ForgeSelector("gitlab", "git.example"), ForgeSelector("nonsense")])
@pytest.mark.parametrize("arm", PLACED, ids=arm_name)
async def test_outside_the_scope_nothing_is_touched_and_nothing_is_told(arm: Arm, forge: ForgeSelector | None) -> None:
    world = await new_world()
    caller = replace(world.scout, scope=("github/other/*",))
    result = await world.run(arm, "k-1", caller=caller, forge=forge)
    assert refusal_of(result) == ("permission_denied", outcome_of(arm))
    assert world.untouched


@pytest.mark.parametrize(
    ("scope", "default", "ghe"),
    [
        (None, True, True),
        ((), False, False),
        (("github/acme/*",), True, False),  # without a host: the provider's default host
        ((f"github:{GHE}/acme/*",), False, True),
        (("github:github.com/ACME/SITE",), True, False),
        ((f"GITHUB:{GHE.upper()}/*/*", "github/x/y"), False, True),
        (("github/acme/*", f"github:{GHE}/acme/site"), True, True),
        (("github/acme/sit",), False, False),
        (("linear/acme/site",), False, False),
    ],
)
async def test_a_scope_means_the_default_host_where_it_names_none(
    scope: tuple[str, ...] | None, *, default: bool, ghe: bool
) -> None:
    world = await new_world()
    caller = replace(world.scout, scope=scope)
    for forge, provider, allowed in (
        (None, world.forge, default),
        (ForgeSelector("github"), world.forge, default),
        (ForgeSelector("github", GHE), world.ghe, ghe),
    ):
        before = provider.count()
        result = await world.run(CREATE, caller=caller, forge=forge)
        assert provider.count() - before == allowed
        if not allowed:
            assert refusal_of(result) == ("permission_denied", "not_sent")


async def test_a_moved_repository_is_judged_by_the_scope_at_the_host_that_was_called() -> None:
    world = await new_world()
    caller = replace(world.scout, scope=("github/acme/*", f"github:{GHE}/acme/site", f"github:{GHE}/deep/*"))
    await world.run(CREATE, caller=caller)
    await world.run(CREATE, caller=caller, forge=ForgeSelector("github", GHE))
    here, there = world.forge.contexts[0].may_touch, world.ghe.contexts[0].may_touch
    assert here is not None
    assert there is not None
    assert [here(repo) for repo in ("Acme/New", "deep/er", "evil/site")] == [True, False, False]
    assert [there(repo) for repo in ("Acme/New", "deep/er", "evil/site")] == [False, True, False]


async def test_without_a_scope_a_moved_repository_is_followed() -> None:
    world = await new_world()
    await world.run(CREATE)
    may_touch = world.forge.contexts[0].may_touch
    assert may_touch is not None
    assert may_touch("anybody/else")


# --- 4. provider ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forge", "named"),
    [
        (ForgeSelector("gitlab"), "gitlab"),
        (ForgeSelector("linear"), "linear"),
        (ForgeSelector("github", "ghe.other"), "github:ghe.other"),
        (ForgeSelector("linear", "github.com"), "linear:github.com"),
        (ForgeSelector("", ""), "forge"),
        (ForgeSelector("nonsense", "x y"), "nonsense:x y"),
    ],
)
@pytest.mark.parametrize("arm", PLACED, ids=arm_name)
async def test_an_unknown_coordinate_is_not_found_and_never_the_default(
    arm: Arm, forge: ForgeSelector, named: str
) -> None:
    world = await new_world()
    error = error_of(await world.run(arm, "k-1", forge=forge))
    assert (error.code, error.outcome) == ("not_found", outcome_of(arm))
    assert named in error.message
    assert world.untouched


async def test_an_unknown_forge_judges_no_grammar() -> None:
    world = await new_world()
    result = await world.run(msgspec.structs.replace(CREATE, repo="no slash"), forge=ForgeSelector("gitlab"))
    assert refusal_of(result) == ("not_found", "not_sent")


@pytest.mark.parametrize("forge", [ForgeSelector("GitHub", GHE.upper()), ForgeSelector("github", GHE)])
@pytest.mark.parametrize("arm", BUILT, ids=arm_name)
async def test_a_call_goes_to_the_forge_that_it_names_and_to_no_other(arm: Arm, forge: ForgeSelector) -> None:
    world = await new_world()
    await world.run(CREATE, forge=forge)
    before = world.ghe.count()
    result = await world.run(arm, forge=forge)
    assert world.ghe.count() == before + 1
    assert world.forge.count() == 0
    if isinstance(arm, CreateIssue | GetIssue):
        assert (issue_of(result).forge.provider, issue_of(result).forge.host) == ("github", GHE)


# --- the arms that are not built ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", [arm for arm in ONE_OF_EACH if isinstance(arm, Subscribe | Unsubscribe)], ids=arm_name)
async def test_an_arm_that_is_not_built_is_unimplemented_and_touches_nothing(arm: Arm) -> None:
    world = await new_world()
    error = error_of(await world.run(arm, "k-1"))
    assert (error.code, error.outcome) == ("unimplemented", outcome_of(arm))
    assert arm_name(arm) in error.message
    assert world.untouched


async def test_without_a_reviewer_a_review_is_refused_naming_the_forge() -> None:
    world = await new_world()
    error = error_of(await world.run(SubmitReview(repo=REPO, pull_number=1, verdict="approve")))
    assert (error.code, error.outcome) == ("failed_precondition", "not_sent")
    assert "no reviewer is configured for github at github.com" in error.message
    assert world.untouched


# --- 5. memo, 6. stamp, 7. provider ---------------------------------------------------------------------------------

LARGE = msgspec.structs.replace(CREATE, body="x" * 65_536)


async def test_a_memo_answers_before_the_stamp_and_the_forge() -> None:
    world = await new_world()
    await world.run(CREATE, "k-1")
    world.events.clear()
    assert issue_of(await world.run(LARGE, "k-1")).replayed
    assert world.events == []  # it is at hand
    world.service._creates._at_hand.clear()
    assert issue_of(await world.run(LARGE, "k-1")).replayed
    assert world.events == ["memo"]
    assert world.forge_calls == 1


@pytest.mark.parametrize("key", ["k-1", ""])
async def test_a_store_away_refuses_before_the_stamp(key: str) -> None:
    world = await new_world()
    world.store.available = False
    assert refusal_of(await world.run(LARGE, key)) == ("unavailable", "not_sent")
    assert world.forge_calls == 0


@pytest.mark.parametrize(("key", "events"), [("k-1", ["memo"]), ("", [])])
async def test_a_body_too_large_stops_before_the_forge_and_the_record(key: str, events: list[str]) -> None:
    world = await new_world()
    assert refusal_of(await world.run(LARGE, key)) == ("invalid_argument", "not_sent")
    assert world.events == events
    assert world.forge_calls == 0


@pytest.mark.parametrize(("key", "events"), [("k-1", ["memo", "forge"]), ("", ["forge"])])
async def test_what_the_forge_refuses_is_not_recorded(key: str, events: list[str]) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(error=ForgeStatus(422, "no")))
    assert refusal_of(await world.run(CREATE, key)) == ("invalid_argument", "rejected")
    assert world.events == events
    assert world.store.recorded == []


async def test_a_comment_too_large_never_gets_to_the_forge() -> None:
    world = await new_world()
    result = await world.run(msgspec.structs.replace(COMMENT, body="x" * 65_536))
    assert refusal_of(result) == ("invalid_argument", "not_sent")
    assert world.untouched


async def test_a_memo_look_up_that_hangs_ends_with_the_calls_deadline_and_nothing_is_sent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = await new_world()
    world.store.hooks["memo"].append(trio.sleep_forever)
    with trio.move_on_after(30) as scope:
        await world.run(CREATE, "k-1")
    assert scope.cancelled_caught
    assert world.forge_calls == 0
    assert not issue_of(await world.run(CREATE, "k-1")).replayed  # and the key is free again
