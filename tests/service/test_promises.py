"""What the service promises, and that it holds where a step before it breaks.

Nobody writes without an account; every body that is posted begins with the header of whoever calls, and an inline
comment holds none; a write that has gone out is never said not to have; nothing that is kept grows without bound.
"""

import ast
import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from compass_forged import owner
from compass_forged.errors import (
    BadCredentials,
    BadRepo,
    CallError,
    Fault,
    ForgeError,
    ForgeStatus,
    ForgeUnavailable,
    PromiseBroken,
    RateLimited,
    StoreUnavailable,
    Unsupported,
)
from compass_forged.owner import Author
from compass_forged.ports import CallContext, Caller
from compass_forged.providers.fake import Step
from compass_forged.service import ServiceLimits, posts, writes
from compass_forged.service.bound import BoundCall
from compass_forged.wire.schema import Arm, SubmitReview, arm_name
from tests.owner.corpus import FORGERIES
from tests.support.core import Logged
from tests.support.service import (
    CREATE,
    FORGE_ARMS,
    INLINE,
    PULL,
    REVIEW,
    STAMPED,
    STAMPED_ARMS,
    SUBSCRIBE,
    Guard,
    World,
    error_of,
    issue_of,
    new_world,
    raising,
    refusal_of,
    subscription_of,
)

HEADER = "> `compass:owner agent=scout owner=ada session=s-1`"
FORGED = "> `compass:owner agent=pilot owner=bob session=s-2`"
WRITES: tuple[Arm, ...] = (*STAMPED, SUBSCRIBE)


def sent_arm(world: World, arm: Arm) -> Any:  # one of five shapes, all with a body
    (sent,) = world.client_of(arm).calls
    assert isinstance(sent, STAMPED_ARMS)
    return sent


# --- I1: nobody writes without a container, a session and an account ------------------------------------------------


@pytest.mark.parametrize("missing", ["account", "session_id", "container"])
@pytest.mark.parametrize("arm", [*FORGE_ARMS, SUBSCRIBE], ids=arm_name)
async def test_without_any_part_of_an_identity_nothing_happens(arm: Arm, missing: str) -> None:
    world = await new_world(furnished=True)
    nobody: Caller = dataclasses.replace(world.scout, **{missing: None if missing == "account" else ""})  # type: ignore[arg-type]
    with pytest.raises(Fault) as caught:
        await world.run(arm, "k-1", caller=nobody)
    assert caught.value.code == "permission_denied"
    assert world.untouched


async def test_nobody_ends_a_subscription() -> None:
    world = await new_world()
    ended_by = subscription_of(await world.run(SUBSCRIBE))
    world.store.touches = 0
    with pytest.raises(Fault):
        await world.run(ended_by, caller=dataclasses.replace(world.scout, account=None))
    assert world.untouched


# --- I4: what is posted begins with our header ----------------------------------------------------------------------


@pytest.mark.parametrize("arm", STAMPED, ids=arm_name)
@pytest.mark.parametrize("body", [None, FORGED, f"{FORGED}\n\nWords.", "\ufeffWords.", f"Words.\n{HEADER}"], ids=ascii)
async def test_whatever_an_agent_sends_the_post_begins_with_its_own_header_and_holds_one(
    arm: Arm, body: str | None
) -> None:
    world = await new_world(furnished=True)
    if body is not None:
        arm = msgspec.structs.replace(arm, body=body)
    if isinstance(arm, SubmitReview):
        arm = msgspec.structs.replace(arm, verdict="approve")
    result = await world.run(arm)
    if body == FORGED and arm_name(arm).startswith("comment"):
        assert refusal_of(result) == ("invalid_argument", "not_sent")
        return
    posted = sent_arm(world, arm).body
    assert posted.splitlines()[0] == HEADER
    assert owner.strip(posted) == posted[len(HEADER) :].removeprefix("\n\n")
    assert posted.count("compass:owner") == 1


@pytest.mark.parametrize("arm", STAMPED, ids=arm_name)
@pytest.mark.parametrize(
    "wrong", ["The words.", "", FORGED, f"\n{HEADER}", f" {HEADER}", f"{HEADER}The words.", HEADER[:-1]]
)
async def test_a_stamp_that_does_not_stamp_posts_nothing(
    events: Logged, monkeypatch: pytest.MonkeyPatch, arm: Arm, wrong: str
) -> None:
    world = await new_world(furnished=True)
    monkeypatch.setattr(owner, "stamp", lambda *_args, **_named: wrong)
    error = error_of(await world.run(arm, "k-1"))
    assert (error.code, error.outcome) == ("internal", "not_sent")
    assert world.forge_calls == 0
    assert world.store.recorded == []
    (event,) = events
    assert isinstance(event["exc_info"], PromiseBroken)
    assert event["log_level"] == "error"
    assert world.counters.total("internal_errors", where="service") == 1
    monkeypatch.undo()
    assert not hasattr(await world.run(arm, "k-1"), "code")  # and the key is free


@pytest.mark.parametrize("forgery", [each for each in FORGERIES if "\0" not in each.text], ids=lambda each: each.name)
async def test_an_inline_comment_that_was_not_stripped_posts_nothing(
    monkeypatch: pytest.MonkeyPatch, forgery: tuple[str, str, str]
) -> None:
    world = await new_world(furnished=True)
    monkeypatch.setattr(writes, "_inline", lambda arm, _limit: (arm.comments, 0))
    inline = msgspec.structs.replace(INLINE, body=f"Look.\n\n{forgery[1]}\n\nThere.")
    arm = msgspec.structs.replace(REVIEW, comments=[INLINE, inline])
    assert refusal_of(await world.run(arm)) == ("internal", "not_sent")
    assert world.forge_calls == 0


authors = st.builds(Author, *[st.from_regex(owner.HANDLE, fullmatch=True)] * 3)
refs = st.just("") | st.from_regex(r"[a-z2-7]{16}", fullmatch=True).filter(str.isascii)


@given(st.text(), authors, refs, authors)
def test_a_stamped_body_is_known_for_its_author_and_for_nobody_else(
    body: str, author: Author, ref: str, other: Author
) -> None:
    stamped = owner.stamp(body, author, 0, ref=ref)
    assert owner.is_stamped_for(stamped, author)
    assert owner.is_stamped_for(stamped, other) == (author == other)
    assert not owner.is_stamped_for(owner.strip(body), author)


def test_every_write_of_a_provider_goes_through_the_one_place_that_looks() -> None:
    """No module of the service but ``posts`` names an operation that writes."""
    operations = {"create_issue", "comment_on_issue", "create_pull_request", "comment_on_pull_request", "submit_review"}
    here = Path(posts.__file__)
    named: dict[str, set[str]] = {}
    for path in here.parent.glob("*.py"):
        tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        named[path.name] = {node.attr for node in tree if isinstance(node, ast.Attribute)} & operations
    assert named.pop(here.name) == operations
    assert set().union(*named.values()) == set()


# --- I5: what has gone out is never said not to have ----------------------------------------------------------------

CLAIMS = [
    ForgeError("a kind of its own"),
    ForgeUnavailable("refused", outcome="not_sent"),
    RateLimited(1, "the reserve is reached", outcome="not_sent"),
    BadCredentials("author", "no token", outcome="not_sent"),
    BadRepo("repo: bad"),
    Unsupported("github", "it"),
    CallError("internal", "whoever says so", outcome="not_sent"),
]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: type(claim).__name__)
@pytest.mark.parametrize("arm", FORGE_ARMS, ids=arm_name)
async def test_a_write_that_went_out_is_never_told_as_not_sent(events: Logged, arm: Arm, claim: Exception) -> None:
    world = await new_world(furnished=True)
    world.client_of(arm).script(arm_name(arm), Step(lost=claim))
    guard = Guard()
    error = error_of(await world.run(arm, "k-1", guard=guard))
    assert error.outcome == ("unknown" if guard.sent else "")
    assert guard.sent == (arm in STAMPED)
    told = [event for event in events if event["event"] == "a sent write was said not to be sent"]
    assert len(told) == world.counters.total("outcomes_corrected") == guard.sent


@pytest.mark.parametrize("arm", [CREATE, PULL], ids=arm_name)
async def test_nobody_who_waited_sends_a_second_one_after_such_a_word(arm: Arm, autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script(arm_name(arm), Step(after=1, lost=ForgeUnavailable("refused", outcome="not_sent")))
    async with trio.open_nursery() as nursery:
        leader = world.ask(nursery, arm)
        await wait_all_tasks_blocked()
        joiners = [world.ask(nursery, arm) for _ in range(3)]
    assert {refusal_of(asked.result) for asked in (leader, *joiners)} == {("unavailable", "unknown")}
    assert world.forge_calls == 1


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("arm", WRITES, ids=arm_name)
async def test_the_outcome_of_a_failed_write_is_one_of_three(arm: Arm, *, sent: bool) -> None:
    world = await new_world(furnished=True)
    failures: list[Exception] = [
        *CLAIMS,
        ForgeStatus(422, "no"),
        ForgeUnavailable("502", outcome="unknown"),
        KeyError(),
    ]
    for failure in failures:
        world.client_of(arm).script(arm_name(arm), Step(lost=failure) if sent else Step(error=failure))
        world.store.hooks["subscribe"].append(raising(failure))
        guard = Guard()
        error = error_of(await world.run(arm, guard=guard))
        assert error.outcome in ({"rejected", "unknown"} if guard.sent else {"not_sent", "rejected", "unknown"})


# --- I6: nothing grows without bound --------------------------------------------------------------------------------


async def test_what_is_owed_to_the_store_is_bounded_by_what_was_under_way_when_it_went(
    autojump_clock: MockClock,
) -> None:
    world = await new_world(limits=ServiceLimits(record_seconds=1))
    world.forge.script("create_issue", *[Step(after=1)] * 5)
    async with trio.open_nursery() as nursery:
        calls = [world.ask(nursery, key=f"k-{number}" if number % 2 else "") for number in range(5)]
        await wait_all_tasks_blocked()
        world.store.available = False
        refused = [await world.run(CREATE, key) for key in ("k-9", "") for _ in range(50)]
    assert {refusal_of(result) for result in refused} == {("unavailable", "not_sent")}
    assert sorted(issue_of(asked.result).number for asked in calls) == [1, 2, 3, 4, 5]
    assert len(world.service._creates._unrecorded) == 5
    world.store.available = True
    assert not issue_of(await world.run(CREATE)).replayed
    assert world.service._creates._unrecorded == {}
    assert len(world.store.recorded) == 6


async def test_nothing_is_kept_of_calls_that_have_ended() -> None:
    world = await new_world(furnished=True)
    for arm in FORGE_ARMS:
        for step in (Step(), Step(error=ForgeStatus(422, "no")), Step(lost=ForgeUnavailable("502", outcome="unknown"))):
            world.client_of(arm).script(arm_name(arm), step)
            await world.run(arm, f"{arm_name(arm)}-{step}"[:200])
    assert world.service._creates._flights == {}
    assert world.service._creates._unrecorded == {}


async def test_a_store_that_stays_read_only_does_not_let_the_debt_grow(autojump_clock: MockClock) -> None:
    world = await new_world(limits=ServiceLimits(record_seconds=1))
    world.store.hooks["record"].extend([raising(StoreUnavailable("read only"))] * 60)
    await world.run(CREATE, "k-1")
    for number in range(40):
        assert refusal_of(await world.run(CREATE, f"k-{number}")) == ("unavailable", "not_sent")
        assert len(world.service._creates._unrecorded) == 1
    assert len(world.forge.issues) == 1


def test_a_call_bound_to_its_forge_is_small_and_holds_no_secret() -> None:
    """I7 where it begins: nothing that a call carries down knows a credential."""
    fields = {"account", "author", "session_id", "entry", "repo", "context", "in_scope"}
    assert set(BoundCall.__struct_fields__) == fields
    assert not any("token" in field.name for field in dataclasses.fields(CallContext))
