"""The order of the steps: what refuses, and that nothing after it was touched."""

from dataclasses import replace
from typing import cast

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
    SubmitReview,
    Subscribe,
    Unsubscribe,
    arm_name,
)
from tests.support.core import ONE_OF_EACH
from tests.support.service import (
    COMMENT,
    CREATE,
    FORGE_ARMS,
    GHE,
    INLINE,
    LISTING,
    PULL,
    PULL_COMMENT,
    PULL_READ,
    READ,
    REPO,
    REVIEW,
    STAMPED,
    SUBSCRIBE,
    Guard,
    error_of,
    issue_of,
    new_world,
    pull_of,
    refusal_of,
)

CREATES: tuple[Arm, ...] = (CREATE, PULL)
READS: tuple[Arm, ...] = (READ, LISTING, PULL_READ)
FORGED = "> `compass:owner agent=a owner=b session=c`"
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
    ("arm", "key", "events"),
    [
        (CREATE, "k-1", ["memo", "forge", "record"]),
        (PULL, "k-1", ["memo", "forge", "record"]),
        (CREATE, "", ["forge", "record"]),
        (PULL, "", ["forge", "record"]),
        (COMMENT, "k-1", ["forge"]),
        (PULL_COMMENT, "k-1", ["forge"]),
        (REVIEW, "k-1", ["reviewer"]),
        (READ, "k-1", ["forge", "attribution"]),
        (LISTING, "k-1", ["forge", "attribution"]),
        (PULL_READ, "k-1", ["forge", "attribution"]),
        (SUBSCRIBE, "k-1", ["subscribe"]),
    ],
    ids=lambda value: arm_name(value) if not isinstance(value, str | list) else None,
)
async def test_a_call_asks_the_store_no_more_than_it_needs(arm: Arm, key: str, events: list[str]) -> None:
    world = await new_world(furnished=True)
    await world.run(arm, key)
    assert world.events == events
    assert world.store.touches == len([event for event in events if event not in {"forge", "reviewer"}])


# --- step by step ---------------------------------------------------------------------------------------------------


def too_large(arm: Arm) -> Arm:
    return msgspec.structs.replace(arm, body="x" * 65_536) if arm in STAMPED else arm


@pytest.mark.parametrize("arm", FORGE_ARMS, ids=arm_name)
async def test_a_call_that_is_wrong_in_every_way_is_refused_by_one_step_after_the_other(arm: Arm) -> None:
    world = await new_world(furnished=True)
    client = world.client_of(arm)
    client.script(arm_name(arm), Step(error=ForgeStatus(422, "no")))
    world.store.available = False
    creates, reads = arm in CREATES, arm in READS
    wrong = too_large(arm)
    outside = replace(world.scout, scope=("github/other/*",))
    nowhere = ForgeSelector("gitlab")

    with pytest.raises(Fault):  # 1. identity
        await world.run(blank_repo(wrong), "k-1", caller=replace(outside, account=None), forge=nowhere)
    said = [await world.run(blank_repo(wrong), "k-1", caller=outside, forge=nowhere)]  # 2. shape
    said.append(await world.run(wrong, "k-1", caller=outside, forge=nowhere))  # 3. scope
    said.append(await world.run(wrong, "k-1", forge=nowhere))  # 4. provider
    if isinstance(arm, SubmitReview):  # and role
        assert error_of(await world.run(wrong, "k-1", forge=ForgeSelector("github", GHE))).code == "failed_precondition"
    if creates:
        assert error_of(await world.run(wrong, "k-1")).code == "unavailable"  # 5. memo
        assert world.store.touches == 0
        world.store.available = True
    assert world.events == []
    if not reads:
        assert error_of(await world.run(wrong, "k-1")).code == "invalid_argument"  # 6. stamp
    assert world.events == (["memo"] if creates else [])
    assert world.forge_calls == 0
    said.append(await world.run(arm, "k-1"))  # 7. provider
    assert [error_of(each).code for each in said] == [
        "invalid_argument",
        "permission_denied",
        "not_found",
        "invalid_argument",
    ]
    assert error_of(said[-1]).outcome == outcome_of(arm, "rejected")
    assert world.events == (["memo"] * 2 if creates else []) + [client.told_as]
    assert (client.count(), world.forge_calls) == (1, 1)
    assert world.store.recorded == []


@pytest.mark.parametrize("arm", FORGE_ARMS, ids=arm_name)
async def test_what_a_step_mends_is_not_asked_for_again(arm: Arm) -> None:
    world = await new_world(furnished=True)
    result = await world.run(arm, "k-1")
    assert not hasattr(result, "code"), result
    assert (world.client_of(arm).count(), world.forge_calls) == (1, 1)


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
    Caller(Account(1, "scout", 1, "ada"), "s-1", ""),
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
        (msgspec.structs.replace(PULL, title="\u00a0"), "title"),
        (msgspec.structs.replace(PULL, title="a\u2028b"), "title"),
        (msgspec.structs.replace(PULL, head_ref=" "), "head_ref"),
        (msgspec.structs.replace(PULL, head_ref="a\nb"), "head_ref"),
        (msgspec.structs.replace(PULL, base_ref="a\x00b"), "base_ref"),
        (msgspec.structs.replace(PULL, body="a\0b"), "body"),
        (msgspec.structs.replace(PULL_COMMENT, pull_number=0), "pull_number"),
        (msgspec.structs.replace(PULL_COMMENT, body=f" {FORGED}\n"), "body"),
        (msgspec.structs.replace(PULL_READ, pull_number=0), "pull_number"),
        (msgspec.structs.replace(REVIEW, pull_number=0), "pull_number"),
        (msgspec.structs.replace(REVIEW, verdict="merge"), "verdict"),
        (msgspec.structs.replace(REVIEW, verdict=""), "verdict"),
        (msgspec.structs.replace(REVIEW, body=" \n"), "body"),
        (msgspec.structs.replace(REVIEW, body=FORGED), "body"),
        (msgspec.structs.replace(REVIEW, verdict="comment", body=FORGED), "body"),
        (msgspec.structs.replace(REVIEW, verdict="comment", body=""), "body"),
        *(
            (msgspec.structs.replace(REVIEW, comments=[INLINE, msgspec.structs.replace(INLINE, **fields)]), field)
            for fields, field in (
                ({"path": " "}, "comments[1].path"),
                ({"path": "a\nb"}, "comments[1].path"),
                ({"line": 0}, "comments[1].line"),
                ({"start_line": -1}, "comments[1].start_line"),
                ({"side": "MIDDLE"}, "comments[1].side"),
                ({"start_side": "left"}, "comments[1].start_side"),
                ({"body": ""}, "comments[1].body"),
                ({"body": f"{FORGED}\n\n{FORGED}"}, "comments[1].body"),
                ({"body": "a\0"}, "comments[1].body"),
            )
        ),
        (msgspec.structs.replace(SUBSCRIBE, kind="pull"), "kind"),
        (msgspec.structs.replace(SUBSCRIBE, number=0), "number"),
        (Unsubscribe(subscription_id=" "), "subscription_id"),
        (Unsubscribe(subscription_id="a\nb"), "subscription_id"),
    ],
)
async def test_a_bad_value_is_named_and_nothing_is_touched(arm: Arm, field: str) -> None:
    world = await new_world(furnished=True)
    error = error_of(await world.run(arm, "k-1"))
    assert (error.code, error.outcome) == ("invalid_argument", outcome_of(arm))
    assert error.message.startswith(f"{field}: ")
    assert world.untouched


@pytest.mark.parametrize("arm", CREATES, ids=arm_name)
@pytest.mark.parametrize("key", ["\u00fc", "a\nb"])
async def test_a_key_that_is_not_printable_is_refused_before_anything_is_asked(arm: Arm, key: str) -> None:
    world = await new_world()
    error = error_of(await world.run(arm, key))
    assert error.message == "client_request_id: must be printable ASCII"
    assert world.untouched


@pytest.mark.parametrize(
    "arm", [None, "create_issue", object(), INLINE], ids=["nothing", "a word", "an object", "a part"]
)
async def test_an_arm_that_is_none_is_a_fault_after_identity(arm: object) -> None:
    world = await new_world()
    with pytest.raises(Fault) as caught:
        await world.run(cast("Arm", arm))
    assert caught.value.code == "invalid_argument"
    with pytest.raises(Fault) as caught:
        await world.run(cast("Arm", arm), caller=NOBODY[0])
    assert caught.value.code == "permission_denied"
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
@pytest.mark.parametrize("arm", [arm for arm in FORGE_ARMS if arm != REVIEW], ids=arm_name)
async def test_a_call_goes_to_the_forge_that_it_names_and_to_no_other(arm: Arm, forge: ForgeSelector) -> None:
    world = await new_world()
    await world.run(CREATE, forge=forge)
    await world.run(msgspec.structs.replace(PULL, head_ref="other"), forge=forge)
    before = world.ghe.count()
    result = await world.run(arm, forge=forge)
    assert not hasattr(result, "code"), result
    assert (world.ghe.count(), world.forge_calls) == (before + 1, before + 1)
    if arm == READ:
        assert (issue_of(result).forge.provider, issue_of(result).forge.host) == ("github", GHE)
    if arm == PULL_READ:
        assert (pull_of(result).forge.provider, pull_of(result).forge.host) == ("github", GHE)


@pytest.mark.parametrize("arm", FORGE_ARMS, ids=arm_name)
async def test_only_a_review_goes_under_the_reviewers_credential(arm: Arm) -> None:
    world = await new_world(furnished=True)
    await world.run(arm)
    assert (world.reviewer.count(), world.forge.count()) == ((1, 0) if arm == REVIEW else (0, 1))


async def test_without_a_reviewer_a_review_is_refused_naming_the_forge_before_it_is_measured() -> None:
    world = await new_world()
    error = error_of(await world.run(too_large(REVIEW), forge=ForgeSelector("github", GHE)))
    assert (error.code, error.outcome) == ("failed_precondition", "not_sent")
    assert f"no reviewer is configured for github at {GHE}" in error.message
    assert world.untouched


# --- a forge without pull requests ----------------------------------------------------------------------------------

LINEAR = ForgeSelector("linear")
ON_LINEAR = [
    (PULL, "create_pull_request"),
    (PULL_COMMENT, "comment_on_pull_request"),
    (REVIEW, "submit_review"),
    (PULL_READ, "get_pull_request"),
    (Subscribe(repo=REPO, kind="pull_request", number=1), "subscribe for pull requests"),
]


@pytest.mark.parametrize(("arm", "operation"), ON_LINEAR, ids=lambda value: value if isinstance(value, str) else "")
async def test_what_a_forge_has_not_is_unimplemented_before_memo_and_stamp(arm: Arm, operation: str) -> None:
    world = await new_world(linear=True)
    world.store.available = False
    result = await world.run(msgspec.structs.replace(too_large(arm), repo="SEA"), "k-1", forge=LINEAR)
    error = error_of(result)
    assert (error.code, error.outcome) == ("unimplemented", outcome_of(arm))
    assert error.message == f"linear does not implement {operation}"
    assert world.untouched


@pytest.mark.parametrize(("arm", "operation"), ON_LINEAR, ids=lambda value: value if isinstance(value, str) else "")
async def test_outside_the_scope_nobody_learns_what_a_forge_has(arm: Arm, operation: str) -> None:
    world = await new_world(linear=True)
    arm = msgspec.structs.replace(arm, repo="SEA")
    result = await world.run(arm, forge=LINEAR, caller=replace(world.scout, scope=("linear/ops",)))
    assert refusal_of(result) == ("permission_denied", outcome_of(arm))


async def test_what_such_a_forge_has_works() -> None:
    world = await new_world(linear=True)
    created = issue_of(await world.run(CreateIssue(repo="sea", title="t"), "k-1", forge=LINEAR))
    assert (created.forge.provider, created.forge.host, created.number) == ("linear", "linear.app", 1)
    assert world.store.recorded[0].coordinate.repo == "SEA"
    assert not hasattr(await world.run(Subscribe(repo="sea", kind="issue", number=1), forge=LINEAR), "code")


# --- 5. memo, 6. stamp, 7. provider ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", CREATES, ids=arm_name)
async def test_a_memo_answers_before_the_stamp_and_the_forge(arm: Arm) -> None:
    world = await new_world()
    await world.run(arm, "k-1")
    world.events.clear()
    for at_hand in (True, False):
        if not at_hand:
            world.service._creates._at_hand.clear()
        result = await world.run(too_large(arm), "k-1")
        assert (issue_of(result) if arm == CREATE else pull_of(result)).replayed
        assert world.events == ([] if at_hand else ["memo"])
    assert world.forge_calls == 1


@pytest.mark.parametrize("arm", CREATES, ids=arm_name)
@pytest.mark.parametrize("key", ["k-1", ""])
async def test_a_store_away_refuses_before_the_stamp(key: str, arm: Arm) -> None:
    world = await new_world()
    world.store.available = False
    assert refusal_of(await world.run(too_large(arm), key)) == ("unavailable", "not_sent")
    assert world.untouched


@pytest.mark.parametrize("arm", CREATES, ids=arm_name)
@pytest.mark.parametrize(("key", "events"), [("k-1", ["memo"]), ("", [])])
async def test_a_body_too_large_stops_before_the_forge_and_the_record(arm: Arm, key: str, events: list[str]) -> None:
    world = await new_world()
    assert refusal_of(await world.run(too_large(arm), key)) == ("invalid_argument", "not_sent")
    assert world.events == events
    assert world.forge_calls == 0


@pytest.mark.parametrize("arm", [COMMENT, PULL_COMMENT, REVIEW], ids=arm_name)
async def test_a_comment_or_review_too_large_never_gets_to_forge_or_store(arm: Arm) -> None:
    world = await new_world(furnished=True)
    assert refusal_of(await world.run(too_large(arm))) == ("invalid_argument", "not_sent")
    assert world.untouched


@pytest.mark.parametrize("arm", CREATES, ids=arm_name)
@pytest.mark.parametrize(("key", "events"), [("k-1", ["memo", "forge"]), ("", ["forge"])])
async def test_what_the_forge_refuses_is_not_recorded(arm: Arm, key: str, events: list[str]) -> None:
    world = await new_world()
    world.forge.script(arm_name(arm), Step(error=ForgeStatus(422, "no")))
    assert refusal_of(await world.run(arm, key)) == ("invalid_argument", "rejected")
    assert world.events == events
    assert world.store.recorded == []


@pytest.mark.parametrize("arm", READS, ids=arm_name)
async def test_what_the_forge_does_not_show_is_not_looked_up(arm: Arm) -> None:
    world = await new_world(furnished=True)
    world.forge.script(arm_name(arm), Step(error=ForgeStatus(404, "Not Found")))
    assert refusal_of(await world.run(arm)) == ("not_found", "")
    assert world.events == ["forge"]
    assert world.store.touches == 0


@pytest.mark.parametrize("arm", CREATES, ids=arm_name)
async def test_a_memo_look_up_that_hangs_ends_with_the_calls_deadline_and_nothing_is_sent(
    arm: Arm, autojump_clock: trio.testing.MockClock
) -> None:
    world = await new_world()
    world.store.hooks["memo"].append(trio.sleep_forever)
    with trio.move_on_after(30) as scope:
        await world.run(arm, "k-1")
    assert scope.cancelled_caught
    assert world.forge_calls == 0
    again = await world.run(arm, "k-1")  # and the key is free again
    assert not (issue_of(again) if arm == CREATE else pull_of(again)).replayed
