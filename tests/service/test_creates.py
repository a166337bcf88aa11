"""Creates and comments: the memo and the stamp."""

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest
import trio
import trio.testing

from compass_forged import owner
from compass_forged.errors import BadAnswer, ForgeStatus, ForgeUnavailable, RateLimited, ValueRefused
from compass_forged.ports import AuthoredArtifact, Coordinate
from compass_forged.providers.fake import FakeProvider, Step
from compass_forged.wire.codec import encode_reply
from compass_forged.wire.schema import (
    Arm,
    Attribution,
    CommentRef,
    CreateIssue,
    ForgeRef,
    ForgeSelector,
    GetIssue,
    Issue,
    IssueCommentResult,
    IssueResult,
    PullRequest,
    PullRequestResult,
    ResultArm,
    ResultFrame,
)
from tests.support.cases import Desk
from tests.support.service import (
    COMMENT,
    CREATE,
    GHE,
    READ,
    REPO,
    World,
    account_of,
    error_of,
    issue_of,
    new_world,
    raising,
    refusal_of,
)

HEADER = "> `compass:owner agent=scout owner=ada session=s-1`"
FORGED = "> `compass:owner agent=pilot owner=bob session=s-2`"
URL = f"https://github.com/{REPO}/issues/1"
CREATED = "2026-01-01T00:00:01Z"
OTHER = msgspec.structs.replace(CREATE, title="Another title")


def payload(result: ResultArm) -> bytes:
    return encode_reply(ResultFrame(call_id="1", result=result))


def ref_of(body: str) -> str:
    claim = owner.parse(body)
    assert claim is not None
    return claim.ref


# --- memo -----------------------------------------------------------------------------------------------------------


async def test_a_create_answers_the_issue_and_a_replay_its_place_alone() -> None:
    world = await new_world()
    first = issue_of(await world.run(CREATE, "k-1"))
    assert (first.title, first.labels, first.replayed, first.replay_mismatch) == ("A title", ["bug"], False, False)
    again = await world.run(CREATE, "k-1")
    placed = Issue(
        forge=ForgeRef("github", "github.com"), repo=REPO, number=1, url=URL, created_at=CREATED, replayed=True
    )
    assert payload(again) == payload(IssueResult(issue=placed))
    assert world.forge_calls == 1
    assert world.events == ["memo", "forge", "record"]
    assert world.counters.total("memo_hits") == 1


async def test_a_replay_is_answered_in_the_arm_of_the_stored_kind() -> None:
    world = await new_world()
    await world.store.record_authored_artifact(
        AuthoredArtifact(
            coordinate=Coordinate("linear", "linear.app", "SEA", "pull_request", 9),
            repo="SEA",
            account=account_of(world.scout),
            session_id="s-0",
            client_request_id="k-1",
            fingerprint=b"f" * 32,
            url="https://linear.app/x/9",
            created_at=CREATED,
        )
    )
    placed = PullRequest(
        forge=ForgeRef("linear", "linear.app"),
        repo="SEA",
        number=9,
        url="https://linear.app/x/9",
        created_at=CREATED,
        replayed=True,
        replay_mismatch=True,
    )
    assert payload(await world.run(CREATE, "k-1")) == payload(PullRequestResult(pull_request=placed))
    assert world.forge_calls == 0


@pytest.mark.parametrize(
    ("arm", "forge"),
    [
        (OTHER, None),
        (msgspec.structs.replace(CREATE, body="Other words."), None),
        (msgspec.structs.replace(CREATE, labels=[]), None),
        (msgspec.structs.replace(CREATE, repo="acme/other"), None),
        (CREATE, ForgeSelector("github", GHE)),
    ],
    ids=["title", "body", "labels", "repo", "forge"],
)
async def test_another_payload_under_the_key_answers_the_original_and_says_so(
    arm: Arm, forge: ForgeSelector | None
) -> None:
    world = await new_world()
    await world.run(CREATE, "k-1")
    again = issue_of(await world.run(arm, "k-1", forge=forge))
    assert (again.url, again.replayed, again.replay_mismatch) == (URL, True, True)
    assert world.forge_calls == 1


@pytest.mark.parametrize(
    ("arm", "forge"),
    [
        (CREATE, ForgeSelector("github")),
        (CREATE, ForgeSelector("GITHUB", "GitHub.com")),
        (msgspec.structs.replace(CREATE, repo="aCME/SITE"), None),
    ],
)
async def test_the_same_place_written_otherwise_is_no_mismatch(arm: Arm, forge: ForgeSelector | None) -> None:
    world = await new_world()
    await world.run(CREATE, "k-1")
    again = issue_of(await world.run(arm, "k-1", forge=forge))
    assert (again.repo, again.replayed, again.replay_mismatch) == (REPO, True, False)


async def test_a_later_session_of_the_agent_replays_and_another_agent_does_not() -> None:
    world = await new_world()
    await world.run(CREATE, "k-1")
    assert issue_of(await world.run(CREATE, "k-1", caller=replace(world.scout, session_id="s-9"))).replayed
    theirs = issue_of(await world.run(CREATE, "k-1", caller=world.pilot))
    assert (theirs.number, theirs.replayed) == (2, False)
    assert issue_of(await world.run(CREATE, "k-1", caller=world.pilot)).number == 2
    assert world.forge_calls == 2


async def test_another_key_and_no_key_are_other_creates() -> None:
    world = await new_world()
    issues = [issue_of(await world.run(CREATE, key)) for key in ("k-1", "k-2", "", "")]
    assert [issue.number for issue in issues] == [1, 2, 3, 4]
    assert not any(issue.replayed for issue in issues)


async def test_a_keyless_create_asks_for_no_memo_and_leaves_none() -> None:
    world = await new_world()
    await world.run(CREATE)
    assert world.events == ["forge", "record"]
    assert (world.store.recorded[0].client_request_id, world.store.recorded[0].fingerprint) == (None, None)


async def test_a_create_that_the_forge_gives_no_time_is_recorded_with_ours_and_replayed() -> None:
    def timeless(issue: Issue) -> None:
        issue.created_at = ""

    world = await new_world()
    world.forge.on_yes = timeless
    before = datetime.now(UTC).replace(microsecond=0)
    first = issue_of(await world.run(CREATE, "k-1"))
    assert (first.created_at, first.url) == ("", URL)  # what the forge said, no more
    recorded = world.store.recorded[0].created_at
    assert recorded.endswith("Z")
    assert before <= datetime.fromisoformat(recorded) <= datetime.now(UTC)
    again = issue_of(await world.run(CREATE, "k-1"))
    assert (again.url, again.created_at, again.replayed) == (URL, recorded, True)
    assert world.forge_calls == 1


@pytest.mark.parametrize(
    "error",
    [
        ForgeStatus(422, "Validation Failed"),
        ForgeStatus(404, "Not Found"),
        ForgeStatus(410, "Issues are disabled"),
        RateLimited(60, "slow down", outcome="rejected"),
        ForgeUnavailable("connection refused", outcome="not_sent"),
        ForgeUnavailable("502", outcome="unknown"),
        BadAnswer(201, "no URL"),
        RuntimeError("a bug"),
    ],
    ids=repr,
)
async def test_only_an_accepted_create_is_remembered(error: Exception) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(error=error))
    error_of(await world.run(CREATE, "k-1"))
    assert world.store.recorded == []
    again = issue_of(await world.run(CREATE, "k-1"))
    assert (again.number, again.replayed) == (1, False)
    assert world.forge.count("create_issue") == 2


@pytest.mark.parametrize("key", ["k-1", ""])
async def test_no_create_without_a_store(key: str) -> None:
    world = await new_world()
    world.store.available = False
    error = error_of(await world.run(CREATE, key))
    assert (error.code, error.outcome) == ("unavailable", "not_sent")
    assert error.retry_after_ms > 0
    assert world.forge_calls == 0
    world.store.available = True
    assert issue_of(await world.run(CREATE, key)).number == 1


async def test_a_keyless_create_goes_by_the_stores_known_state_and_asks_nothing() -> None:
    world = await new_world()
    world.store.available = False
    await world.run(CREATE)
    assert world.store.touches == 0


async def test_a_known_create_is_not_replayed_while_the_store_is_away() -> None:
    world = await new_world()
    await world.run(CREATE, "k-1")
    world.store.available = False
    assert refusal_of(await world.run(CREATE, "k-1")) == ("unavailable", "not_sent")
    assert world.forge_calls == 1


async def test_a_memo_look_up_that_the_store_refuses_sends_nothing() -> None:
    world = await new_world()
    world.store.hooks["memo"].append(raising(ValueRefused("the store refused a value: rule")))
    assert refusal_of(await world.run(CREATE, "k-1")) == ("internal", "not_sent")
    assert world.forge_calls == 0


# --- stamp ----------------------------------------------------------------------------------------------------------


async def test_the_forge_sees_the_header_first_and_the_agent_never() -> None:
    world = await new_world()
    issue = issue_of(await world.run(CREATE))
    assert world.forge.posted == [f"{HEADER}\n\nThe words."]
    assert issue.body == "The words."
    assert issue.attribution == Attribution("scout", "ada", "s-1", verified=True)


async def test_a_comment_is_stamped_too_and_never_carries_a_ref() -> None:
    world = await new_world()
    await world.run(CREATE)
    result = await world.run(COMMENT, "k-1")
    assert result == IssueCommentResult(comment=CommentRef(url=f"{URL}#issuecomment-1", comment_id="1"))
    assert world.forge.posted[1] == f"{HEADER}\n\nA remark."
    assert world.events == ["forge", "record", "forge"]  # neither memo nor record of the comment


async def test_comments_and_reads_go_on_without_a_store() -> None:
    world = await new_world()
    await world.run(CREATE)
    world.store.available = False
    world.store.touches = 0
    assert isinstance(await world.run(COMMENT), IssueCommentResult)
    assert issue_of(await world.run(READ)).comments[0].body == "A remark."
    assert world.store.touches == 0


async def test_an_empty_body_becomes_the_header_alone() -> None:
    world = await new_world()
    for body in ("", FORGED, f"{FORGED}\n\n{HEADER}\n"):
        assert issue_of(await world.run(msgspec.structs.replace(CREATE, body=body))).body == ""
    assert world.forge.posted == [HEADER] * 3


@pytest.mark.parametrize(
    "body",
    [
        f"{FORGED}\n\nThe words.",
        f"The words.\n{FORGED}",
        f"\ufeff{FORGED}\r\nThe words.",
        f"The words.\n<!-- {FORGED} -->",
        "The words.\n&gt; compass:owner agent=pilot owner=bob session=s-2",
        "The words.\n> > `c\u200bompass:owner agent=pilot owner=bob session=s-2`",
        "The words.\n\uff43ompass:owner agent=pilot",
    ],
)
@pytest.mark.parametrize("arm", [CREATE, COMMENT], ids=["create", "comment"])
async def test_a_forged_header_does_not_get_through(arm: Arm, body: str) -> None:
    world = await new_world()
    await world.run(CREATE)
    await world.run(msgspec.structs.replace(arm, body=body))
    posted = world.forge.posted[-1]
    assert posted.startswith(f"{HEADER}\n\n")
    assert "pilot" not in posted
    assert "The words." in posted


async def test_what_is_no_body_passes_unchanged() -> None:
    world = await new_world()
    title = FORGED.removeprefix("> ")
    await world.run(msgspec.structs.replace(CREATE, title=title, labels=[title]))
    sent = world.forge.issues["acme/site", 1]
    assert (sent.title, sent.labels) == (title, [title])


async def test_a_keyed_create_carries_a_ref_and_a_keyless_one_none() -> None:
    world = await new_world()
    await world.run(CREATE, "k-1")
    await world.run(CREATE)
    keyed, keyless = world.forge.posted
    assert keyed == f"{HEADER.removesuffix('`')} ref={ref_of(keyed)}`\n\nThe words."
    assert len(ref_of(keyed)) == 16
    assert ref_of(keyless) == ""


async def refs(world: World, *keys: str, arm: Arm = CREATE, forge: ForgeSelector | None = None) -> list[str]:
    """The refs under which creates with these keys are sent; each is refused, so that no memo stands in the way."""
    for key in keys:
        for provider in (world.forge, world.ghe):
            provider._scripts["create_issue"].clear()
            provider.script("create_issue", Step(error=ForgeStatus(422, "no")))
        await world.run(arm, key, forge=forge)
    posted = world.ghe.posted if forge else world.forge.posted
    return [ref_of(body) for body in posted[-len(keys) :]]


async def test_a_ref_is_the_same_for_the_same_create_and_binds_agent_key_and_place() -> None:
    world = await new_world()
    (mine,) = await refs(world, "k-1")
    assert await refs(world, "k-1", "k-1") == [mine, mine]
    assert await refs(world, "k-1", arm=msgspec.structs.replace(OTHER, repo="ACME/site")) == [mine]
    others = await refs(world, "k-2")
    others += await refs(world, "k-1", arm=msgspec.structs.replace(CREATE, repo="acme/other"))
    others += await refs(world, "k-1", forge=ForgeSelector("github", GHE))
    await world.run(CREATE, "k-1", caller=world.pilot)
    others.append(ref_of(world.forge.posted[-1]))
    assert len({mine, *others}) == 5


async def test_a_ref_outlives_the_daemon_and_is_secret() -> None:
    one, two = await new_world(), await new_world()
    assert await refs(one, "k-1") == await refs(two, "k-1")
    two.service._creates._ref_secret = b"another secret of thirty-two byte"
    assert await refs(one, "k-1") != await refs(two, "k-1")


@pytest.mark.parametrize(("key", "ref_bytes"), [("", 0), ("k-1", len(" ref=") + 16)])
@pytest.mark.parametrize("filler", ["x", "é", "🎉"])
async def test_exactly_what_fits_beside_the_header_fits(filler: str, key: str, ref_bytes: int) -> None:
    limit = 400
    room = limit - len(HEADER) - ref_bytes - len("\n\n")
    width = len(filler.encode())
    body = filler * (room // width) + "x" * (room % width)
    world = await new_world(body_limit=limit)
    fits = await world.run(msgspec.structs.replace(CREATE, body=body), key)
    assert issue_of(fits).body == body
    assert len(world.forge.posted[0].encode()) == limit


@pytest.mark.parametrize("over", [1, 2, 5000])
@pytest.mark.parametrize("arm", [CREATE, COMMENT], ids=["create", "comment"])
async def test_one_byte_more_is_refused_naming_the_overage(arm: Arm, over: int) -> None:
    limit = 400
    world = await new_world(body_limit=limit)
    body = "x" * (limit - len(HEADER) - 2 + over)
    error = error_of(await world.run(msgspec.structs.replace(arm, body=body)))
    assert error.message == f"body: {over} bytes too large; github takes 400 bytes with the owner header"
    assert (error.code, error.outcome) == ("invalid_argument", "not_sent")
    assert world.forge_calls == 0
    assert world.store.recorded == []


async def test_a_forge_without_a_limit_takes_any_body() -> None:
    world = await new_world(body_limit=0)
    assert issue_of(await world.run(msgspec.structs.replace(CREATE, body="x" * 300_000))).number == 1


async def test_the_key_of_a_comment_is_ignored() -> None:
    world = await new_world()
    await world.run(CREATE)
    results = [await world.run(COMMENT, "k-1") for _ in range(2)]
    assert len({payload(result) for result in results}) == 2
    assert world.forge.count("comment_on_issue") == 2


async def test_a_write_that_is_cancelled_unsent_is_no_write(autojump_clock: trio.testing.MockClock) -> None:
    world = await new_world()
    world.forge.script("create_issue", Step(before=10))
    with trio.move_on_after(5) as scope:
        await world.run(CREATE, "k-1")
    assert scope.cancelled_caught
    assert world.forge.issues == {}
    assert world.store.recorded == []
    assert issue_of(await world.run(CREATE, "k-1")).number == 1


async def test_long_bodies_are_stamped_one_in_each_pass_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    stamped = 0
    stamp = owner.stamp

    def counted(body: str, author: owner.Author, limit: int, *, ref: str = "", reserved: int = 0) -> str:
        nonlocal stamped
        stamped += 1
        return stamp(body, author, limit, ref=ref, reserved=reserved)

    monkeypatch.setattr(owner, "stamp", counted)
    desk = Desk(FakeProvider())
    await desk.ask(GetIssue(repo="acme/site", issue_number=1))  # has the agent bound
    in_a_pass: list[int] = []
    async with trio.open_nursery() as nursery:
        for number in range(8):
            arm = CreateIssue(repo="acme/site", title=str(number), body="x" * 5000)
            nursery.start_soon(desk.ask, arm)
        while stamped < 8:
            before = stamped
            await trio.lowlevel.checkpoint()
            in_a_pass.append(stamped - before)
    assert max(in_a_pass) == 1
