"""Pull requests: creates under keys that issues share, comments through either arm, and one that stands already."""

import dataclasses

import msgspec
import pytest
import trio
import trio.testing
from trio.testing import MockClock, wait_all_tasks_blocked

from compass_forged import owner
from compass_forged.errors import (
    ForgeStatus,
    ForgeUnavailable,
    PullRequestExists,
    StoreUnavailable,
    ValueRefused,
)
from compass_forged.ports import AuthoredArtifact, Coordinate
from compass_forged.providers.fake import Step
from compass_forged.service import ServiceLimits, creates
from compass_forged.wire.codec import encode_reply
from compass_forged.wire.schema import (
    Arm,
    Attribution,
    CommentOnIssue,
    CommentOnPullRequest,
    CreatePullRequest,
    ForgeRef,
    GetIssue,
    IssueCommentResult,
    PullRequest,
    PullRequestCommentResult,
    PullRequestResult,
    ResultArm,
    ResultFrame,
    arm_name,
)
from tests.support.core import Logged
from tests.support.service import (
    CREATE,
    PULL,
    REPO,
    World,
    account_of,
    error_of,
    issue_of,
    new_world,
    pull_of,
    raising,
    refusal_of,
    waiting,
)

HEADER = "> `compass:owner agent=scout owner=ada session=s-1`"
CREATED = "2026-01-01T00:00:01Z"
URL = f"https://github.com/{REPO}/pull/1"
OTHER = msgspec.structs.replace(PULL, title="Another title")


def payload(result: ResultArm) -> bytes:
    return encode_reply(ResultFrame(call_id="1", result=result))


def placed(*, mismatch: bool = False) -> PullRequestResult:
    """What a replay of pull request 1 answers: its place and nothing else."""
    forge = ForgeRef("github", "github.com")
    pull = PullRequest(forge=forge, repo=REPO, number=1, url=URL, created_at=CREATED)
    pull.replayed, pull.replay_mismatch = True, mismatch
    return PullRequestResult(pull_request=pull)


# --- a create -------------------------------------------------------------------------------------------------------


async def test_a_pull_request_is_opened_as_asked_stamped_and_recorded_as_one() -> None:
    world = await new_world()
    arm = msgspec.structs.replace(PULL, base_ref="stable", draft=True)
    pull = pull_of(await world.run(arm, "k-1"))
    assert (pull.number, pull.title, pull.body, pull.head_ref, pull.base_ref, pull.draft) == (
        1, "A title", "The words.", "feature", "stable", True,
    )  # fmt: skip
    assert pull.attribution == Attribution("scout", "ada", "s-1", verified=True)
    (sent,) = world.forge.calls
    assert isinstance(sent, CreatePullRequest)
    claim = owner.parse(sent.body)
    assert claim is not None
    assert sent == msgspec.structs.replace(arm, body=f"{HEADER[:-1]} ref={claim.ref}`\n\nThe words.")
    (row,) = world.store.recorded
    assert row.coordinate == Coordinate("github", "github.com", "acme/site", "pull_request", 1)
    assert (row.url, row.client_request_id, row.session_id) == (URL, "k-1", "s-1")


async def test_a_replay_answers_the_place_alone() -> None:
    world = await new_world()
    await world.run(PULL, "k-1")
    assert payload(await world.run(PULL, "k-1")) == payload(placed())
    assert payload(await world.run(OTHER, "k-1")) == payload(placed(mismatch=True))
    assert world.forge_calls == 1


@pytest.mark.parametrize(
    "changed",
    [{"head_ref": "b"}, {"base_ref": "b"}, {"draft": True}, {"title": "b"}, {"body": "b"}, {"repo": "acme/b"}],
    ids=lambda changed: next(iter(changed)),
)
async def test_whatever_is_changed_under_the_key_shows(changed: dict[str, object]) -> None:
    world = await new_world()
    await world.run(PULL, "k-1")
    again = pull_of(await world.run(msgspec.structs.replace(PULL, **changed), "k-1"))
    assert (again.number, again.replayed, again.replay_mismatch) == (1, True, True)


async def test_a_hundred_at_once_make_one_pull_request(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_pull_request", Step(before=1, after=1))
    async with trio.open_nursery() as nursery:
        calls = [world.ask(nursery, PULL) for _ in range(100)]
    pulls = [pull_of(asked.result) for asked in calls]
    assert [pull.replayed for pull in pulls].count(False) == 1
    assert {pull.url for pull in pulls} == {URL}
    assert world.forge_calls == 1
    assert sorted(world.events) == ["forge", "memo", "record"]


async def test_a_cancellation_right_after_the_yes_does_not_cost_the_record(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.store.hooks["record"].append(waiting(3))
    async with trio.open_nursery() as nursery:
        asked = world.ask(nursery, PULL)
        world.forge.on_yes = lambda _pull: asked.scope.cancel()
    assert pull_of(asked.result).number == 1
    assert [row.coordinate.kind for row in world.store.recorded] == ["pull_request"]


# --- one key, two kinds ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_hand", [True, False])
async def test_a_key_of_an_issue_used_for_a_pull_request_answers_the_issue(*, at_hand: bool) -> None:
    world = await new_world()
    await world.run(CREATE, "k-1")
    if not at_hand:
        world.service._creates._at_hand.clear()
    issue = issue_of(await world.run(PULL, "k-1"))
    assert (issue.url, issue.replayed, issue.replay_mismatch) == (f"https://github.com/{REPO}/issues/1", True, True)
    assert not issue_of(await world.run(CREATE, "k-1")).replay_mismatch
    assert world.forge_calls == 1


@pytest.mark.parametrize("at_hand", [True, False])
async def test_a_key_of_a_pull_request_used_for_an_issue_answers_the_pull_request(*, at_hand: bool) -> None:
    world = await new_world()
    await world.run(PULL, "k-1")
    if not at_hand:
        world.service._creates._at_hand.clear()
    assert payload(await world.run(CREATE, "k-1")) == payload(placed(mismatch=True))
    assert world.forge_calls == 1


@pytest.mark.parametrize(("first", "second"), [(CREATE, PULL), (PULL, CREATE)])
async def test_a_create_of_the_other_kind_joins_one_under_way(
    first: Arm, second: Arm, autojump_clock: MockClock
) -> None:
    world = await new_world()
    world.forge.script(arm_name(first), Step(after=1))
    async with trio.open_nursery() as nursery:
        leader = world.ask(nursery, first)
        await wait_all_tasks_blocked()
        joiner = world.ask(nursery, second)
    artifact_of = issue_of if first is CREATE else pull_of
    made, joined = artifact_of(leader.result), artifact_of(joiner.result)
    assert (joined.url, joined.replayed, joined.replay_mismatch) == (made.url, True, True)
    assert world.forge_calls == 1


async def test_a_refused_issue_is_no_answer_to_the_pull_request_that_waited_for_it(autojump_clock: MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(before=1, error=ForgeStatus(422, "no")))
    async with trio.open_nursery() as nursery:
        leader = world.ask(nursery, CREATE)
        await wait_all_tasks_blocked()
        joiner = world.ask(nursery, PULL)
    assert refusal_of(leader.result) == ("invalid_argument", "rejected")
    assert not pull_of(joiner.result).replayed


# --- memos at hand --------------------------------------------------------------------------------------------------


async def test_memos_at_hand_are_bounded_and_those_asked_for_longest_ago_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(creates, "MEMOS_AT_HAND", 3)
    world = await new_world()
    for number in range(3):
        await world.run(CREATE, f"k-{number}")
    await world.run(CREATE, "k-0")  # asked for again, so it is the last to go
    await world.run(CREATE, "k-3")
    assert [key for _agent, key in world.service._creates._at_hand] == ["k-2", "k-0", "k-3"]
    world.events.clear()
    assert issue_of(await world.run(CREATE, "k-1")).number == 2
    assert world.events == ["memo"]  # it is gone from memory, and the store has it
    assert [key for _agent, key in world.service._creates._at_hand] == ["k-0", "k-3", "k-1"]


async def test_the_bound_of_memos_at_hand_is_kept_over_many_creates() -> None:
    world = await new_world()
    for number in range(creates.MEMOS_AT_HAND + 40):
        await world.run(CREATE, f"k-{number}")
    assert len(world.service._creates._at_hand) == creates.MEMOS_AT_HAND


async def test_what_was_not_recorded_is_not_at_hand(autojump_clock: MockClock) -> None:
    world = await new_world(limits=ServiceLimits(record_seconds=1))
    world.store.hooks["record"].extend([raising(StoreUnavailable("away"))] * 20)
    await world.run(PULL, "k-1")
    assert dict(world.service._creates._at_hand) == {}


# --- comments through either arm ------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 2], ids=["issue", "pull request"])
async def test_either_arm_comments_on_either_kind(number: int) -> None:
    world = await new_world(furnished=True)
    one = await world.run(CommentOnIssue(repo=REPO, issue_number=number, body="One."))
    two = await world.run(CommentOnPullRequest(repo=REPO, pull_number=number, body="Two."))
    assert isinstance(one, IssueCommentResult)
    assert isinstance(two, PullRequestCommentResult)
    assert one.comment.comment_id != two.comment.comment_id
    assert world.forge.posted == [f"{HEADER}\n\nOne.", f"{HEADER}\n\nTwo."]
    assert world.store.touches == 0


async def test_a_pull_requests_number_read_as_an_issue_names_the_other_arm() -> None:
    world = await new_world(furnished=True)
    error = error_of(await world.run(GetIssue(repo=REPO, issue_number=2)))
    assert (error.code, error.outcome) == ("invalid_argument", "")
    assert error.message == "that number is a pull request; read it with get_pull_request"
    assert world.store.touches == 0


# --- one stands already ---------------------------------------------------------------------------------------------


async def lost(world: World, key: str = "k-1", arm: CreatePullRequest = PULL) -> None:
    """Open a pull request whose answer gets lost: it stands, and nothing of it is recorded."""
    world.forge.script("create_pull_request", Step(lost=ForgeUnavailable("502", outcome="unknown")))
    assert refusal_of(await world.run(arm, key)) == ("unavailable", "unknown")
    assert world.store.recorded == []
    world.events.clear()


async def test_a_retry_finds_what_the_lost_attempt_made_and_records_it(events: Logged) -> None:
    world = await new_world()
    await lost(world)
    assert payload(await world.run(PULL, "k-1")) == payload(placed())
    assert world.events == ["memo", "forge", "record"]  # its ref is proof: nobody need ask the index
    (row,) = world.store.recorded
    assert (row.coordinate.kind, row.coordinate.number, row.client_request_id) == ("pull_request", 1, "k-1")
    assert (row.url, row.created_at, row.repo) == (URL, CREATED, REPO)
    assert len(world.forge.pull_requests) == 1
    assert world.counters.total("creates_found") == 1
    assert [event["event"] for event in events] == ["a create was answered with what stood already"]
    world.events.clear()
    world.service._creates._at_hand.clear()
    assert payload(await world.run(PULL, "k-1")) == payload(placed())
    assert world.events == ["memo"]


async def test_what_was_found_is_at_hand_and_its_joiners_get_it(autojump_clock: MockClock) -> None:
    world = await new_world()
    await lost(world)
    world.forge.script("create_pull_request", Step(before=1))
    async with trio.open_nursery() as nursery:
        calls = [world.ask(nursery, PULL) for _ in range(4)]
    assert {payload(call.result) for call in calls if call.result} == {payload(placed())}
    assert world.forge_calls == 2
    world.events.clear()
    assert pull_of(await world.run(PULL, "k-1")).replayed
    assert world.events == []


async def test_a_retry_in_a_later_session_finds_it_too() -> None:
    world = await new_world()
    await lost(world)
    later = dataclasses.replace(world.scout, session_id="s-9")
    assert payload(await world.run(PULL, "k-1", caller=later)) == payload(placed())


@pytest.mark.parametrize(
    "changed", [{"title": "Another title"}, {"body": "Other words."}], ids=lambda changed: next(iter(changed))
)
async def test_a_retry_with_another_payload_finds_it_and_shows_the_mismatch(changed: dict[str, object]) -> None:
    world = await new_world()
    await lost(world)
    other = msgspec.structs.replace(PULL, **changed)
    assert payload(await world.run(other, "k-1")) == payload(placed(mismatch=True))
    for _ in range(2):  # at hand and from the store
        assert payload(await world.run(other, "k-1")) == payload(placed(mismatch=True))
        assert payload(await world.run(PULL, "k-1")) == payload(placed())
        world.service._creates._at_hand.clear()


@pytest.mark.parametrize("body", ["The words.", "The words.\n\n", "\n\nThe words.", "One.\nTwo.\n", ""])
async def test_what_a_forge_rewrites_is_no_mismatch(body: str) -> None:
    world = await new_world()
    arm = msgspec.structs.replace(PULL, title=" A title ", body=body)
    await lost(world, arm=arm)
    standing = world.forge.pull_requests["acme/site", 1]
    standing.title = standing.title.strip()
    standing.body = standing.body.strip().replace("\n", "\r\n")
    assert payload(await world.run(arm, "k-1")) == payload(placed())


async def test_what_the_index_holds_for_the_agent_is_answered_under_any_key_and_none() -> None:
    world = await new_world()
    await world.run(PULL, "k-1")
    for key, events in (("k-2", ["memo", "forge", "fill"]), ("", ["forge", "attribution"])):
        world.events.clear()
        assert payload(await world.run(PULL, key)) == payload(placed())
        assert world.events == events
    assert payload(await world.run(OTHER, "k-3")) == payload(placed(mismatch=True))
    (row,) = await world.store.list_authored_artifacts()
    assert row.client_request_id == "k-1"  # what stands in the index stands


async def test_a_second_key_is_answered_anew_from_the_forge_once_it_is_forgotten() -> None:
    """The row has room for one key. The second costs the forge's requests again, and two round trips as the first."""
    world = await new_world()
    await world.run(PULL, "k-1")
    await world.run(PULL, "k-2")
    world.events.clear()
    assert payload(await world.run(PULL, "k-2")) == payload(placed())
    assert world.events == []  # at hand
    world.service._creates._at_hand.clear()
    assert payload(await world.run(PULL, "k-2")) == payload(placed())
    assert world.events == ["memo", "forge", "fill"]
    assert len(world.forge.pull_requests) == 1


async def test_joiners_of_a_create_that_the_index_answers_get_its_answer(autojump_clock: MockClock) -> None:
    world = await new_world()
    await world.run(PULL, "k-1")
    world.events.clear()
    world.forge.script("create_pull_request", Step(before=1))
    async with trio.open_nursery() as nursery:
        calls = [world.ask(nursery, PULL, "k-2") for _ in range(4)]
    assert {payload(call.result) for call in calls if call.result} == {payload(placed())}
    assert world.events == ["memo", "forge", "fill"]


@pytest.mark.parametrize("first_key", ["", "k-1"])
async def test_a_key_that_another_daemon_has_used_meanwhile_is_not_answered_with_two_artifacts(first_key: str) -> None:
    world = await new_world()
    await world.run(PULL, first_key)

    async def used() -> None:
        row = AuthoredArtifact(
            Coordinate("github", "github.com", "acme/site", "issue", 9), REPO, account_of(world.scout),
            "s-1", "k-2", bytes(32), "u", CREATED,
        )  # fmt: skip
        await world.store.record_authored_artifact(row)

    world.store.hooks["fill"].append(used)
    refused = error_of(await world.run(PULL, "k-2"))
    assert (refused.code, refused.outcome) == ("already_exists", "rejected")
    assert issue_of(await world.run(PULL, "k-2")).number == 9


async def test_a_keyed_create_completes_the_row_of_a_keyless_one() -> None:
    world = await new_world()
    await world.run(PULL)
    world.events.clear()
    assert payload(await world.run(PULL, "k-1")) == payload(placed())
    assert world.events == ["memo", "forge", "fill"]
    (row,) = await world.store.list_authored_artifacts()
    assert row.client_request_id == "k-1"
    world.service._creates._at_hand.clear()
    world.events.clear()
    assert payload(await world.run(PULL, "k-1")) == payload(placed())
    assert world.events == ["memo"]


async def by_somebody_else(world: World, body: str) -> None:
    """A pull request for the same branches that no create of the scout's made."""
    await world.run(PULL, caller=world.pilot)
    world.store.recorded.clear()
    world.store._artifacts.clear()
    world.forge.pull_requests["acme/site", 1].body = body
    world.events.clear()


def already(world: World, result: ResultArm) -> None:
    """It is refused, naming the number, and nothing is recorded."""
    error = error_of(result)
    assert (error.code, error.outcome) == ("already_exists", "rejected")
    assert error.message == "a pull request for that head and base exists: 1"
    assert world.store.recorded == []
    assert dict(world.service._creates._at_hand) == {}


@pytest.mark.parametrize("key", ["k-1", ""])
@pytest.mark.parametrize(
    "body", ["", "By hand.", HEADER, f"{HEADER}\n\nThe words.", f"{HEADER[:-1]} ref={'a' * 16}`\n\nThe words."]
)
async def test_what_is_not_provably_ours_is_refused_naming_its_number(key: str, body: str) -> None:
    world = await new_world()
    await by_somebody_else(world, body)
    already(world, await world.run(PULL, key))
    assert world.events[-2:] == ["forge", "fill" if key else "attribution"]


async def ref_line(world: World, key: str = "k-1", arm: CreatePullRequest = PULL) -> str:
    """The header under which the scout's create would be sent; the create is refused."""
    world.forge.script("create_pull_request", Step(error=ForgeStatus(422, "no")))
    await world.run(arm, key)
    return world.forge.posted[-1].partition("\n")[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda line: f"Hello\n{line}",
        lambda line: f" {line}",
        lambda line: f"\ufeff{line}",
        lambda line: f"{line} and more",
        lambda line: line.replace("scout", "pilot"),
        lambda line: line.upper(),
        lambda line: f"> {line}",
        lambda line: f"<!-- {line} -->",
    ],
)
async def test_our_ref_counts_in_our_own_header_on_top_alone(change: object) -> None:
    world = await new_world()
    line = await ref_line(world)
    await by_somebody_else(world, line)
    assert callable(change)
    world.forge.pull_requests["acme/site", 1].body = str(change(line))
    already(world, await world.run(PULL, "k-1"))
    world.forge.pull_requests["acme/site", 1].body = line
    assert pull_of(await world.run(PULL, "k-1")).replayed  # to the letter it does


async def test_a_ref_of_another_key_place_or_agent_proves_nothing() -> None:
    world = await new_world()
    others = [
        await ref_line(world, "k-2"),
        await ref_line(world, arm=msgspec.structs.replace(PULL, repo="acme/other")),
    ]
    world.forge.script("create_pull_request", Step(error=ForgeStatus(422, "no")))
    await world.run(PULL, "k-1", caller=world.pilot)
    others.append(world.forge.posted[-1].partition("\n")[0])
    for line in others:
        await by_somebody_else(world, line)
        already(world, await world.run(PULL, "k-1"))
        world.forge.pull_requests.clear()
        world.forge._next_number.clear()


async def test_a_keyless_create_never_adopts_whatever_ref_stands_there() -> None:
    world = await new_world()
    await lost(world)
    already(world, await world.run(PULL))
    assert pull_of(await world.run(PULL, "k-1")).replayed  # under its key it is


async def test_what_the_index_holds_for_another_agent_is_refused() -> None:
    world = await new_world()
    await world.run(PULL, "k-1", caller=world.pilot)
    world.store.recorded.clear()
    world.service._creates._at_hand.clear()
    already(world, await world.run(PULL, "k-1"))
    world.service._creates._at_hand.clear()
    already(world, await world.run(PULL))


@pytest.mark.parametrize("key", ["k-2", ""])
@pytest.mark.parametrize("error", [StoreUnavailable("away"), ValueRefused("rule")], ids=repr)
async def test_an_index_that_cannot_be_asked_proves_nothing(events: Logged, error: Exception, key: str) -> None:
    world = await new_world()
    await world.run(PULL, "k-1")
    world.store.recorded.clear()
    world.store.hooks["fill" if key else "attribution"].append(raising(error))
    refused = error_of(await world.run(PULL, key))
    assert (refused.code, refused.outcome) == ("already_exists", "rejected")
    assert world.store.recorded == []
    assert [event["event"] for event in events] == ["attribution not looked up"]


@pytest.mark.parametrize("key", ["k-1", ""])
async def test_one_that_the_forge_does_not_show_is_unknown_and_asks_nobody(key: str) -> None:
    world = await new_world()
    world.forge.script("create_pull_request", Step(error=PullRequestExists(None)))
    error = error_of(await world.run(PULL, key))
    assert (error.code, error.outcome) == ("already_exists", "unknown")
    assert error.message == "a pull request for that head and base exists, and the forge does not show which"
    assert not {"attribution", "fill"} & set(world.events)


async def test_what_was_found_is_read_no_further_than_any_honest_body_goes(events: Logged) -> None:
    world = await new_world(body_limit=1000)
    await lost(world)
    world.forge.pull_requests["acme/site", 1].body += "x" * 10_000
    assert pull_of(await world.run(PULL, "k-1")).replay_mismatch
    assert world.counters.total("forge_bodies_cut") == 1


async def test_an_issue_is_never_answered_with_a_pull_request_that_was_found() -> None:
    world = await new_world()
    await world.run(PULL, "k-1")
    found = world.forge.pull_requests["acme/site", 1]
    world.forge.script("create_issue", Step(error=PullRequestExists(found)))
    assert refusal_of(await world.run(CREATE, "k-2")) == ("already_exists", "rejected")


async def test_what_was_found_and_cannot_be_recorded_is_still_answered(
    events: Logged, autojump_clock: MockClock
) -> None:
    world = await new_world(limits=ServiceLimits(record_seconds=1))
    await lost(world)
    world.store.hooks["record"].extend([raising(StoreUnavailable("away"))] * 4)
    assert payload(await world.run(PULL, "k-1")) == payload(placed())
    assert world.counters.total("records_lost") == 1
    assert pull_of(await world.run(PULL, "k-1")).replayed
    assert world.counters.total("records_recovered") == 1


async def test_a_refusal_that_one_stands_is_shared_by_the_same_payload(autojump_clock: MockClock) -> None:
    world = await new_world()
    await by_somebody_else(world, "By hand.")
    world.forge.script("create_pull_request", Step(before=1))
    async with trio.open_nursery() as nursery:
        calls = [world.ask(nursery, PULL) for _ in range(3)]
    for call in calls:
        assert call.result is not None
        already(world, call.result)
    assert world.forge_calls == 2


async def test_a_cancellation_while_the_index_is_asked_leaves_the_key_free(autojump_clock: MockClock) -> None:
    world = await new_world()
    await world.run(PULL, "k-1")
    world.store.hooks["fill"].append(waiting(10))
    async with trio.open_nursery() as nursery:
        asked = world.ask(nursery, PULL, "k-2")
        await trio.sleep(1)
        asked.scope.cancel()
    assert asked.result is None
    assert world.service._creates._flights == {}
    assert pull_of(await world.run(PULL, "k-2")).replayed


async def test_a_row_of_another_kind_under_the_number_is_not_the_pull_request() -> None:
    world = await new_world()
    await by_somebody_else(world, "By hand.")
    issue = AuthoredArtifact(
        Coordinate("github", "github.com", "acme/site", "issue", 1), REPO, account_of(world.scout),
        "s-1", None, None, "u", CREATED,
    )  # fmt: skip
    await world.store.record_authored_artifact(issue)
    world.store.recorded.clear()
    already(world, await world.run(PULL, "k-1"))
