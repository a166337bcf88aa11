"""Recording: after the forge's yes nothing may be lost silently, and nothing may invite a second create."""

import math
from functools import partial
from itertools import pairwise

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from compass_forged.errors import (
    ArtifactOwnedByAnother,
    BadAnswer,
    ForgeStatus,
    ForgeUnavailable,
    RequestKeyTaken,
    SchemaMismatch,
    StoreUnavailable,
    ValueRefused,
)
from compass_forged.fingerprint import request_fingerprint
from compass_forged.ports import AuthoredArtifact, Coordinate
from compass_forged.providers.fake import Step
from compass_forged.service import ServiceLimits
from compass_forged.wire.schema import Attribution, ForgeSelector, Issue
from tests.support.core import Logged
from tests.support.service import (
    CREATE,
    GHE,
    REPO,
    World,
    account_of,
    error_of,
    issue_of,
    new_world,
    raising,
    refusal_of,
    waiting,
)

PLACE = Coordinate("github", "github.com", "acme/site", "issue", 1)
AWAY = StoreUnavailable("connection refused")


def losses(events: Logged) -> Logged:
    return [event for event in events if event["event"] == "artifact could not be recorded"]


def assert_lost(world: World, events: Logged, kind: str) -> None:
    """One loss: logged at error level with its coordinate and cause, and counted, once each."""
    (loss,) = losses(events)
    assert loss["log_level"] == "error"
    assert loss["coordinate"] == "github:github.com/acme/site#1"
    assert loss["agent"] == "scout"
    assert loss["error"].startswith(f"{kind}: ")
    assert world.counters.total("records_lost") == 1


# --- what is written ------------------------------------------------------------------------------------------------


async def test_row_and_memo_are_one_record_in_the_forges_words() -> None:
    world = await new_world()
    await world.run(msgspec.structs.replace(CREATE, repo="ACME/Site"), "k-1")
    assert world.store.recorded == [
        AuthoredArtifact(
            coordinate=PLACE,
            repo="ACME/Site",
            account=account_of(world.scout),
            session_id="s-1",
            client_request_id="k-1",
            fingerprint=request_fingerprint("github", "github.com", "acme/site", CREATE),
            url="https://github.com/ACME/Site/issues/1",
            created_at="2026-01-01T00:00:01Z",  # the forge's clock; the daemon's own plays no part
        )
    ]


async def test_the_record_names_the_forge_that_was_asked() -> None:
    world = await new_world()
    await world.run(CREATE, forge=ForgeSelector("github", GHE.upper()))
    assert world.store.recorded[0].coordinate == PLACE._replace(host=GHE)


async def test_a_renamed_repository_is_recorded_under_the_name_that_the_forge_gives() -> None:
    world = await new_world()

    def renamed(issue: Issue) -> None:
        issue.repo = "Acme/New-Site"

    world.forge.on_yes = renamed
    assert issue_of(await world.run(CREATE, "k-1")).repo == "Acme/New-Site"
    assert world.store.recorded[0].coordinate == PLACE._replace(repo="acme/new-site")
    assert world.store.recorded[0].repo == "Acme/New-Site"
    again = issue_of(await world.run(CREATE, "k-1"))
    assert (again.repo, again.replayed, again.replay_mismatch) == ("Acme/New-Site", True, False)


async def test_a_yes_whose_repository_fails_the_grammar_is_recorded_where_it_was_asked_for() -> None:
    world = await new_world()

    def garbled(issue: Issue) -> None:
        issue.repo = "garbled"

    world.forge.on_yes = garbled
    assert issue_of(await world.run(CREATE, "k-1")).number == 1
    assert world.store.recorded[0].coordinate == PLACE
    assert issue_of(await world.run(CREATE, "k-1")).replayed


@pytest.mark.parametrize(
    "step",
    [
        Step(error=ForgeStatus(422, "no")),
        Step(error=ForgeUnavailable("refused", outcome="not_sent")),
        Step(lost=ForgeUnavailable("502", outcome="unknown")),
        Step(lost=BadAnswer(201, "no URL")),
        Step(lost=RuntimeError("a bug")),
    ],
    ids=lambda step: repr(step.error or step.lost),
)
@pytest.mark.parametrize("key", ["k-1", ""])
async def test_without_the_forges_yes_there_is_no_row(key: str, step: Step) -> None:
    world = await new_world()
    world.forge.script("create_issue", step)
    error_of(await world.run(CREATE, key))
    assert "record" not in world.events
    assert await world.store.list_authored_artifacts() == []


# --- cancellation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["k-1", ""])
@pytest.mark.parametrize("store_takes", [0.0, 3.0])
async def test_a_cancellation_right_after_the_yes_does_not_cost_the_record(
    autojump_clock: trio.testing.MockClock, key: str, store_takes: float
) -> None:
    world = await new_world()
    world.store.hooks["record"].append(waiting(store_takes))
    async with trio.open_nursery() as nursery:
        asked = world.ask(nursery, key=key)

        def cancel(_issue: Issue) -> None:
            asked.scope.cancel()

        world.forge.on_yes = cancel
    assert asked.scope.cancel_called
    assert [artifact.coordinate for artifact in world.store.recorded] == [PLACE]
    assert issue_of(asked.result).number == 1


async def test_a_cancellation_during_the_record_does_not_cost_it_nor_its_retries(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = await new_world()
    world.store.hooks["record"].extend([raising(AWAY)] * 3)
    async with trio.open_nursery() as nursery:
        asked = world.ask(nursery)
        await trio.sleep(0.1)  # after the second attempt, in the pause before the third
        assert world.events.count("record") == 2
        asked.scope.cancel()
    assert world.events.count("record") == 4
    assert len(world.store.recorded) == 1


# --- a store that comes and goes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("failures", [1, 2, 5, 6, 7])
async def test_a_store_that_comes_back_gets_the_record(
    autojump_clock: trio.testing.MockClock, events: Logged, failures: int
) -> None:
    world = await new_world()
    world.store.hooks["record"].extend([raising(AWAY)] * failures)
    issue = issue_of(await world.run(CREATE, "k-1"))
    assert issue.attribution == Attribution("scout", "ada", "s-1", verified=True)
    assert world.events.count("record") == failures + 1
    assert len(world.store.recorded) == 1
    assert losses(events) == []
    assert world.counters.total("records_lost") == 0
    assert issue_of(await world.run(CREATE, "k-1")).replayed


async def test_a_store_that_goes_away_under_the_create_and_comes_back_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    world = await new_world()
    world.forge.on_yes = lambda _issue: setattr(world.store, "available", False)
    async with trio.open_nursery() as nursery:
        asked = world.ask(nursery)
        await trio.sleep(4)
        assert not asked.ended
        world.store.available = True
    assert issue_of(asked.result).attribution == Attribution("scout", "ada", "s-1", verified=True)
    assert len(world.store.recorded) == 1


@pytest.mark.parametrize("key", ["k-1", ""])
@pytest.mark.parametrize("seconds", [0.01, 3.0, 10.0])
async def test_a_store_that_stays_away_costs_the_record_and_never_the_answer(
    autojump_clock: trio.testing.MockClock, events: Logged, key: str, seconds: float
) -> None:
    world = await new_world(limits=ServiceLimits(record_seconds=seconds))
    world.forge.on_yes = lambda _issue: setattr(world.store, "available", False)
    began = trio.current_time()
    issue = issue_of(await world.run(CREATE, key))
    assert trio.current_time() - began == pytest.approx(seconds)
    assert (issue.number, issue.title, issue.body, issue.replayed) == (1, "A title", "The words.", False)
    assert issue.attribution == Attribution("scout", "ada", "s-1", verified=False)
    assert_lost(world, events, "StoreUnavailable")


async def test_the_pauses_between_the_attempts_grow_and_stay_bounded(autojump_clock: trio.testing.MockClock) -> None:
    world = await new_world()
    at: list[float] = []

    async def away() -> None:
        await trio.lowlevel.checkpoint()
        at.append(trio.current_time())
        raise AWAY

    world.store.hooks["record"].extend([away] * 20)
    await world.run(CREATE, "k-1")
    pauses = [later - earlier for earlier, later in pairwise(at)]
    assert pauses == pytest.approx([0.05, 0.2, 0.5, 1.0, 2.0, 2.0, 2.0, 2.0])


async def test_a_store_that_hangs_is_given_up_within_the_bound(
    autojump_clock: trio.testing.MockClock, events: Logged
) -> None:
    world = await new_world()
    world.store.hooks["record"].append(partial(trio.sleep, math.inf))
    assert issue_of(await world.run(CREATE, "k-1")).number == 1
    assert trio.current_time() == pytest.approx(10.0)
    assert_lost(world, events, "StoreUnavailable")
    assert "in time" in losses(events)[0]["error"]


async def test_an_attempt_that_did_commit_is_taken_for_what_it_is(autojump_clock: trio.testing.MockClock) -> None:
    """The connection breaks in the commit: the second attempt finds the row of the first and is at peace with it."""
    world = await new_world()

    async def commits_and_breaks() -> None:
        artifact = AuthoredArtifact(
            coordinate=PLACE,
            repo=REPO,
            account=account_of(world.scout),
            session_id="s-1",
            client_request_id="k-1",
            fingerprint=request_fingerprint("github", "github.com", "acme/site", CREATE),
            url="https://github.com/Acme/site/issues/1",
            created_at="2026-01-01T00:00:01Z",
        )
        await super(type(world.store), world.store).record_authored_artifact(artifact)
        raise StoreUnavailable("the connection was closed in the commit")

    world.store.hooks["record"].append(commits_and_breaks)
    issue = issue_of(await world.run(CREATE, "k-1"))
    assert issue.attribution == Attribution("scout", "ada", "s-1", verified=True)
    assert len(await world.store.list_authored_artifacts()) == 1
    assert world.counters.total("records_lost") == 0


# --- what no retry mends --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        ArtifactOwnedByAnother("stands under another agent"),
        RequestKeyTaken("stands for another artifact"),
        ValueRefused("the store refused a value: some rule"),
        SchemaMismatch("a newer schema"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("key", ["k-1", ""])
async def test_a_record_that_no_retry_mends_is_lost_aloud_and_the_answer_stands(
    events: Logged, key: str, error: Exception
) -> None:
    world = await new_world()
    world.store.hooks["record"].append(raising(error))
    issue = issue_of(await world.run(CREATE, key))
    assert (issue.number, issue.url) == (1, "https://github.com/Acme/site/issues/1")
    assert issue.attribution == Attribution("scout", "ada", "s-1", verified=False)
    assert world.events.count("record") == 1
    assert_lost(world, events, type(error).__name__)


async def test_a_bug_in_the_store_is_tried_again_and_logged_with_its_traceback(
    events: Logged, autojump_clock: MockClock
) -> None:
    world = await new_world()
    bug = RuntimeError("a bug")
    world.store.hooks["record"].extend([raising(bug)] * 100)
    issue = issue_of(await world.run(CREATE))
    assert issue.attribution is not None
    assert not issue.attribution.verified
    assert trio.current_time() == pytest.approx(10, abs=2.5)
    assert losses(events)[0]["exc_info"] is bug


_TRIES = 9
"""How often a record is tried within its 10 seconds: at 0, .05, .25, .75, 1.75, 3.75, 5.75, 7.75 and 9.75."""


# --- what could not be recorded stops creates until it can ------------------------------------------------------------


@pytest.mark.parametrize("key", ["k-2", ""])
async def test_a_record_that_was_lost_stops_creates_until_it_is_made_up_for(
    key: str, autojump_clock: MockClock
) -> None:
    world = await new_world()
    world.store.hooks["record"].extend([raising(StoreUnavailable("read only"))] * (_TRIES + 2))
    lost = issue_of(await world.run(CREATE, "k-1"))
    assert world.counters.total("records_lost") == 1
    before = world.forge_calls
    while world.store.hooks["record"]:
        assert refusal_of(await world.run(CREATE, key)) == ("unavailable", "not_sent")
    assert world.forge_calls == before
    assert not issue_of(await world.run(CREATE, key)).replayed
    assert world.counters.total("records_recovered") == 1
    again = issue_of(await world.run(CREATE, "k-1"))
    assert (again.number, again.replayed) == (lost.number, True)


async def test_what_can_never_be_recorded_stops_nothing_for_long(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.store.hooks["record"].extend([raising(StoreUnavailable("read only"))] * _TRIES)
    await world.run(CREATE, "k-1")
    assert world.counters.total("records_lost") == 1
    world.store.hooks["record"].append(raising(RequestKeyTaken("another daemon was there first")))
    assert not issue_of(await world.run(CREATE, "k-2")).replayed
    assert world.counters.total("records_recovered") == 0


async def test_an_artifact_that_stands_under_another_agent_keeps_its_row(events: Logged) -> None:
    world = await new_world()
    theirs = AuthoredArtifact(
        PLACE, REPO, account_of(world.pilot), "s-2", None, None, "https://x.example/1", "2026-01-01T00:00:00Z"
    )
    await world.store.record_authored_artifact(theirs)
    assert issue_of(await world.run(CREATE, "k-1")).number == 1
    assert await world.store.list_authored_artifacts() == [theirs]
    assert_lost(world, events, "ArtifactOwnedByAnother")


async def test_a_key_that_another_daemon_used_meanwhile_stands(events: Logged) -> None:
    world = await new_world()
    other = AuthoredArtifact(
        PLACE._replace(number=77),
        REPO,
        account_of(world.scout),
        "s-1",
        "k-1",
        b"f" * 32,
        "https://github.com/Acme/site/issues/77",
        "2026-01-01T00:00:00Z",
    )

    async def meanwhile() -> None:
        await super(type(world.store), world.store).record_authored_artifact(other)

    world.store.hooks["record"].append(meanwhile)
    assert issue_of(await world.run(CREATE, "k-1")).number == 1
    assert issue_of(await world.run(CREATE, "k-1")).number == 77
    assert_lost(world, events, "RequestKeyTaken")


@pytest.mark.parametrize("change", [{"number": 2**63}, {"created_at": "yesterday"}, {"url": "\ud800"}, {"repo": ""}])
async def test_a_yes_that_the_store_cannot_hold_is_still_a_yes(events: Logged, change: dict[str, object]) -> None:
    world = await new_world()

    def changed(issue: Issue) -> None:
        for name, value in change.items():
            setattr(issue, name, value)

    world.forge.on_yes = changed
    assert issue_of(await world.run(CREATE, "k-1")).title == "A title"
    assert len(losses(events)) == 1
    assert world.counters.total("records_lost") == 1


async def test_a_refused_create_says_so_whatever_the_store_does() -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(error=ForgeStatus(422, "no")))
    world.store.hooks["record"].append(raising(RuntimeError("never asked")))
    assert refusal_of(await world.run(CREATE, "k-1")) == ("invalid_argument", "rejected")
    assert len(world.store.hooks["record"]) == 1
