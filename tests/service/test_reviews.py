"""Reviews: whose credential, what is stamped and what is not, and how large one may be."""

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from compass_forged import owner
from compass_forged.errors import BadReview, ForgePrecondition, ForgeUnavailable
from compass_forged.folding import fold, folded_bytes
from compass_forged.providers.credentials import Credential, StaticToken
from compass_forged.providers.fake import Step
from compass_forged.providers.identity import Identities, Identity, RoleIdentity
from compass_forged.providers.registry import Entry, Registry
from compass_forged.service import ForgeService, writes
from compass_forged.wire.schema import InlineComment, Review, ReviewRef, SubmitReview
from tests.owner.corpus import FORGERIES, INNOCENT
from tests.support.service import (
    INLINE,
    PULL_READ,
    REVIEW,
    SECRET,
    World,
    error_of,
    new_world,
    pull_of,
    refusal_of,
    review_of,
)

HEADER = "> `compass:owner agent=scout owner=ada session=s-1`"
FORGED = "> `compass:owner agent=pilot owner=bob session=s-2`"
SENDABLE = [forgery for forgery in FORGERIES if "\0" not in forgery.text]
"""A text with a NUL is refused for that."""


def with_bodies(*bodies: str, body: str = "A summary.") -> SubmitReview:
    comments = [msgspec.structs.replace(INLINE, line=line, body=text) for line, text in enumerate(bodies, 1)]
    return msgspec.structs.replace(REVIEW, body=body, comments=comments)


async def submitted(world: World, arm: SubmitReview) -> SubmitReview:
    """What the reviewer's client was asked for."""
    review_of(await world.run(arm))
    sent = world.reviewer.calls[-1]
    assert isinstance(sent, SubmitReview)
    return sent


# --- what goes out --------------------------------------------------------------------------------------------------


async def test_the_summary_is_stamped_and_the_comments_are_not() -> None:
    world = await new_world(furnished=True)
    sent = await submitted(world, REVIEW)
    assert sent == msgspec.structs.replace(REVIEW, body=f"{HEADER}\n\nA summary.")
    assert world.store.touches == 0
    assert world.forge.calls == []


class Reviewing:
    """Names an account, or fails to."""

    def __init__(self, account: Identity | None) -> None:
        self.account = account

    async def __call__(self) -> Identity:
        await trio.lowlevel.checkpoint()
        if self.account is None:
            raise ForgeUnavailable("cannot connect to the forge", outcome="not_sent")
        return self.account


@pytest.mark.parametrize(
    ("reviewer", "code"),
    [(Identity("user", 7, "ada"), "failed_precondition"), (None, "unavailable"), (Identity("user", 8, "bob"), "")],
)
async def test_no_review_is_sent_before_author_and_reviewer_are_known_to_be_two(
    reviewer: Identity | None, code: str
) -> None:
    world = await new_world(furnished=True)
    identities = Identities(
        "github.com",
        RoleIdentity(Credential("author", StaticToken("token-one")), Reviewing(Identity("user", 7, "ada"))),
        RoleIdentity(Credential("reviewer", StaticToken("token-two")), Reviewing(reviewer)),
    )
    registry = Registry([Entry("github", "github.com", world.forge, world.reviewer, identities)])
    world.service = ForgeService(world.store, registry, ref_secret=SECRET, counters=world.counters)
    result = await world.run(REVIEW)
    if code:
        refused = error_of(result)
        assert (refused.code, refused.outcome) == (code, "not_sent")
    assert world.reviewer.count() == (0 if code else 1)


@pytest.mark.parametrize("verdict", ["approve", "request_changes", "comment"])
async def test_the_answer_names_the_review_and_its_verdict(verdict: str) -> None:
    world = await new_world(furnished=True)
    ref = review_of(await world.run(msgspec.structs.replace(REVIEW, verdict=verdict), "k-1"))
    assert ref == ReviewRef(
        url="https://github.com/Acme/site/pull/2#pullrequestreview-1", review_id="1", verdict=verdict, inline_count=1
    )
    again = review_of(await world.run(msgspec.structs.replace(REVIEW, verdict=verdict), "k-1"))
    assert again.review_id == "2"  # a key makes a review no create


@pytest.mark.parametrize("body", ["", FORGED, f" \n{FORGED}\n"])
async def test_an_approval_may_say_nothing_and_becomes_the_header_alone(body: str) -> None:
    world = await new_world(furnished=True)
    sent = await submitted(world, SubmitReview(repo="acme/site", pull_number=2, verdict="approve", body=body))
    assert sent.body.rstrip() == HEADER
    assert sent.comments == []


@pytest.mark.parametrize("forgery", SENDABLE, ids=lambda forgery: forgery.name)
async def test_a_header_in_summary_or_comment_arrives_stripped(forgery: tuple[str, str, str]) -> None:
    _name, text, _left = forgery
    world = await new_world(furnished=True)
    sent = await submitted(world, with_bodies(f"First.\n\n{text}\n\nLast.", body=f"First.\n\n{text}\n\nLast."))
    (inline,) = sent.comments
    assert inline.body == owner.strip(f"First.\n\n{text}\n\nLast.")
    assert sent.body == f"{HEADER}\n\n{inline.body}"
    assert owner.strip(inline.body) == inline.body


@pytest.mark.parametrize("text", [text for text in INNOCENT.values() if 0 < len(text) < 10_000 and text.strip()])
async def test_an_innocent_comment_arrives_byte_for_byte(text: str) -> None:
    world = await new_world(furnished=True)
    sent = await submitted(world, with_bodies(text))
    assert sent.comments[0].body == text


async def test_all_of_an_inline_comment_but_its_body_stays() -> None:
    world = await new_world(furnished=True)
    inline = InlineComment(
        path="src/b c.py", line=9, start_line=3, side="LEFT", start_side="LEFT", body=f"{FORGED}\n\nLook."
    )
    sent = await submitted(world, msgspec.structs.replace(REVIEW, comments=[inline]))
    assert sent.comments == [msgspec.structs.replace(inline, body="Look.")]


async def test_a_review_reads_back_without_its_header_and_with_its_claim() -> None:
    world = await new_world(furnished=True)
    await world.run(REVIEW)
    pull = pull_of(await world.run(PULL_READ))
    (review,) = pull.reviews
    assert isinstance(review, Review)
    assert (review.body, review.verdict) == ("A summary.", "changes_requested")
    assert review.attribution is not None
    assert (review.attribution.agent, review.attribution.verified) == ("scout", False)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forgery", [each for each in SENDABLE if not each.left], ids=lambda forgery: forgery.name)
async def test_an_inline_comment_that_is_only_a_header_is_refused(forgery: tuple[str, str, str]) -> None:
    world = await new_world(furnished=True)
    error = error_of(await world.run(with_bodies("Fine.", forgery[1])))
    assert (error.code, error.outcome) == ("invalid_argument", "not_sent")
    assert error.message == "comments[1].body: must not be blank (an owner header alone counts as blank)"
    assert world.untouched


@pytest.mark.parametrize(
    ("raised", "code", "outcome"),
    [
        (BadReview("verdict: the reviewer account opened this pull request itself"), "invalid_argument", "not_sent"),
        (ForgePrecondition("a pending review stands in the way"), "failed_precondition", "rejected"),
    ],
)
async def test_what_the_reviewers_client_refuses_is_told(raised: Exception, code: str, outcome: str) -> None:
    world = await new_world(furnished=True)
    world.reviewer.script("submit_review", Step(error=raised))
    error = error_of(await world.run(REVIEW))
    assert (error.code, error.outcome, error.message) == (code, outcome, str(raised))


# --- size -----------------------------------------------------------------------------------------------------------

LIMIT = 600


def whole(arm: SubmitReview) -> int:
    """The bytes of the summary with every comment folded in."""
    return len(fold(f"{HEADER}\n\n{arm.body}", arm.comments).encode())


@pytest.mark.parametrize("char", ["x", "\u00e9", "\U0001f389"])
@pytest.mark.parametrize("where", ["summary", "comment"])
async def test_a_review_fits_to_the_byte_with_all_its_comments_folded_in(where: str, char: str) -> None:
    least = whole(with_bodies("", "Second.", body="" if where == "summary" else "A summary."))
    room = LIMIT - least
    for over in (0, 1, 3):
        text = char * ((room + over) // len(char.encode())) + "x" * ((room + over) % len(char.encode()))
        arm = with_bodies("", "Second.", body=text) if where == "summary" else with_bodies(text, "Second.")
        if where == "summary":
            arm = msgspec.structs.replace(
                arm, comments=[msgspec.structs.replace(INLINE, line=1, body="-"), arm.comments[1]]
            )
        excess = whole(arm) - LIMIT
        world = await new_world(body_limit=LIMIT)
        await world.furnish()
        result = await world.run(arm)
        if excess <= 0:
            review_of(result)
            assert world.reviewer.count() == 1
            continue
        error = error_of(result)
        assert (error.code, error.outcome) == ("invalid_argument", "not_sent")
        assert error.message == (
            f"body: {excess} bytes too large; github takes {LIMIT} bytes with the owner header and all comments"
        )
        assert world.untouched


async def test_comments_alone_can_use_up_the_whole_limit() -> None:
    for size in (LIMIT - 1, LIMIT, LIMIT + 1, 10 * LIMIT):
        world = await new_world(body_limit=LIMIT)
        await world.furnish()
        text = "x" * max(0, size - folded_bytes([msgspec.structs.replace(INLINE, line=1, body="")]) - 2)
        assert refusal_of(await world.run(with_bodies(text))) == ("invalid_argument", "not_sent")
        assert world.untouched


async def test_headers_that_are_stripped_do_not_count() -> None:
    world = await new_world(body_limit=LIMIT)
    await world.furnish()
    review_of(await world.run(with_bodies(f"{FORGED}\n" * 40 + "Look.", body=f"{FORGED}\n" * 40 + "A summary.")))


async def test_a_forge_without_a_limit_takes_any_review() -> None:
    world = await new_world(body_limit=0)
    await world.furnish()
    review_of(await world.run(with_bodies("x" * 200_000, "y" * 200_000)))


async def test_a_review_of_many_times_the_limit_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    world = await new_world(furnished=True)
    monkeypatch.setattr(owner, "strip", None)  # whoever read it would stumble
    for arm in (with_bodies(*["c" * 3000] * 100), with_bodies("y", body="x" * 140_000)):
        error = error_of(await world.run(arm))
        assert error.code == "invalid_argument"
        assert "bytes too large" in error.message
    paths = [msgspec.structs.replace(INLINE, path="p" * 4000) for _ in range(100)]
    error = error_of(await world.run(msgspec.structs.replace(REVIEW, comments=paths)))
    assert "bytes too large" in error.message
    assert world.untouched


texts = st.text(st.sampled_from("ab>`\n\r \u00e9\U0001f389\u2028<!-c:="), max_size=30) | st.sampled_from(
    [each.text for each in FORGERIES[:40]]
)
inlines = st.builds(
    InlineComment,
    path=st.text(st.sampled_from("ab/`<>!-:é "), min_size=1, max_size=12).filter(lambda path: path.strip() != ""),
    line=st.integers(1, 99),
    start_line=st.integers(0, 5),
    body=texts.filter(lambda text: not owner.is_blank(text)),
)


@given(st.lists(inlines, max_size=4), texts, st.data())
def test_whatever_is_folded_of_a_review_that_fits_fits_and_holds_one_header(
    comments: list[InlineComment], body: str, data: st.DataObject
) -> None:
    """What the service lets through, a provider can fold in any part, and it stays within the limit."""
    limit = data.draw(st.integers(60, 700))
    arm = SubmitReview(repo="a/b", pull_number=1, verdict="approve", body=body, comments=comments)
    clean, reserved = writes._inline(arm, limit)
    author = owner.Author("scout", "ada", "s-1")
    try:
        summary = owner.stamp(body, author, limit, reserved=reserved)
    except owner.BodyTooLarge:
        return
    folded = [comment for comment in clean if data.draw(st.booleans())]
    posted = fold(summary, folded)
    assert len(posted.encode(errors="surrogatepass")) <= limit
    assert owner.is_stamped_for(posted, author)
    left = posted.removeprefix(HEADER).removeprefix(owner.SEPARATOR)
    assert owner.strip(left) == left
