"""Known bugs of tools that do this job, replayed: each case in the table either has its replays or says why not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio.testing

from tests.cases import answers, cancelling, clocks, framing, reading
from tests.support.cases import Case, Entry, Replay, read_cases

CASES = {row["id"]: Case(**row) for row in read_cases(Path(__file__).with_name("cases.jsonl"))}
CORPUS = Path(__file__).parents[3] / "shared" / "cases" / "corpus.jsonl"

_NO_LINEAR = "test_linear_cases replays it over Linear; here a call to one that is not configured sends nothing"
_NO_QUOTING = (
    "the library offers no helper that quotes a forge's text, so there is none to neutralise mentions in: what an "
    "agent writes goes out byte for byte, and whom it may reach is the forge's and the scope's matter"
)
_NOTHING_IS_DELIVERED = "nothing is ingested or delivered yet: subscribe keeps a row, and no forge is polled"

TABLE: dict[str, Entry] = {
    "C038": Entry(virtual=(answers.null_bodies,)),
    "C042": Entry(
        virtual=(answers.no_null_is_written,),
        otherwise="nothing is edited: a create without a text stands for the write",
    ),
    "C043": Entry(virtual=(answers.nobody_s_comments,)),
    "C049": Entry(virtual=(answers.comments_off_the_diff,)),
    "C050": Entry(virtual=(answers.refused_reviews,)),
    "C051": Entry(virtual=(answers.ranges,)),
    "C052": Entry(virtual=(answers.refused_reviews, answers.comments_off_the_diff)),
    "C055": Entry(
        virtual=(answers.leftovers,),
        otherwise="a review has no client_request_id: a leftover under any owner header is removed, since this daemon "
        "never leaves one",
    ),
    "C059": Entry(
        virtual=(answers.refused_reviews,),
        otherwise="reviews are not requested: the refusal comes to one that is submitted",
    ),
    "C061": Entry(virtual=(answers.one_request,)),
    "C062": Entry(
        virtual=(answers.refused_reviews, answers.comments_off_the_diff),
        otherwise="a comment on a path that is not in the diff is folded into the summary before the forge can refuse "
        "it; what it refuses all the same is invalid_argument",
    ),
    "C064": Entry(virtual=(answers.pages_for_people,)),
    "C065": Entry(virtual=(answers.pages_for_people,)),
    "C069": Entry(
        real=(cancelling.cancelled_while_waiting, cancelling.cancelled_in_connect, cancelling.cancelled_in_reply),
        virtual=(cancelling.cancelled_anywhere,),
    ),
    "C070": Entry(process=(cancelling.sigterm_under_load,)),
    "C076": Entry(
        virtual=(clocks.linear_is_not_there, clocks.unusable_retry_times),
        otherwise="test_linear_cases replays it over Linear; here a call to one that is not configured is not_found "
        "and sends nothing. The fault is the same for GitHub's limits",
    ),
    "C080": Entry(virtual=(clocks.linear_is_not_there,), otherwise=_NO_LINEAR),
    "C081": Entry(virtual=(clocks.linear_is_not_there,), otherwise=_NO_LINEAR),
    "C084": Entry(virtual=(clocks.linear_is_not_there,), otherwise=_NO_LINEAR),
    "C089": Entry(virtual=(clocks.linear_is_not_there,), otherwise=_NO_LINEAR),
    "C090": Entry(virtual=(answers.texts_as_they_are,)),
    "C091": Entry(virtual=(reading.nothing_is_quoted,), otherwise=_NO_QUOTING),
    "C098": Entry(
        virtual=(clocks.refused_token,),
        otherwise="no token source knows when its token expires, so none is refreshed ahead of that: sources are read "
        "anew when the forge refuses what they gave, and the write goes out once more",
    ),
    "C102": Entry(
        virtual=(answers.links_of_any_form,),
        otherwise="no URL of a forge's is followed: the words that name the next page are taken out of it",
    ),
    "C107": Entry(virtual=(answers.too_long,)),
    "C111": Entry(virtual=(answers.no_nul_is_written,)),
    "C112": Entry(
        real=(framing.deep_frames,),
        virtual=(framing.deep_replies, framing.deep_answers),
        otherwise="frames hold MessagePack: the JSON of the case is no frame at all, and the same nesting is replayed "
        "in both encodings",
    ),
    "C118": Entry(
        real=(cancelling.errors_at_the_deadline,),
        virtual=(cancelling.store_error_at_the_deadline, cancelling.forge_error_at_the_deadline),
        otherwise="no transaction spans a forge's answer: a record is one statement, so there is nothing to roll back",
    ),
    "C122": Entry(
        real=(framing.unknown_frames,),
        otherwise="there is no cancel frame; like any frame that is unknown it is the fault invalid_argument, under "
        "its call_id where that can be read. unimplemented is kept for operations that a provider has not",
    ),
    "C123": Entry(real=(cancelling.clients_that_never_cancel, cancelling.writes_that_outlive_their_deadline)),
    "C126": Entry(real=(framing.replaced_socket, framing.socket_mode)),
    "C131": Entry(virtual=(answers.heads_just_pushed,)),
    "C132": Entry(
        virtual=(answers.surrogates, reading.halves_of_characters),
        otherwise="the raw bytes escape the escapes; they are replayed both ways",
    ),
    "C134": Entry(virtual=(answers.surrogates_of_agents, reading.half_characters_of_agents)),
    "C135": Entry(
        real=(framing.line_ends,),
        otherwise="comments are read with their issue; there is no list_comments",
    ),
    "C137": Entry(virtual=(reading.fences_of_their_own,)),
    "C138": Entry(virtual=(reading.a_cut_fence,), otherwise="comments are read with their issue"),
    "C139": Entry(virtual=(reading.a_fence_within_a_line,)),
    "C143": Entry(
        virtual=(reading.letters_stay,),
        otherwise="direction marks and the byte order mark are taken out and counted, as all that a person does not "
        "see; letters and joined emoji are whole",
    ),
    "C144": Entry(virtual=(reading.one_line_titles,)),
    "C145": Entry(virtual=(reading.hidden_markup,)),
    "C147": Entry(virtual=(reading.headers_of_others,)),
    "C149": Entry(virtual=(reading.the_header_is_a_line_of_its_own,)),
    "C156": Entry(real=(cancelling.broken_answers, cancelling.answers_cut_anywhere)),
    "C157": Entry(real=(cancelling.dripping_answers,)),
    "C161": Entry(virtual=(clocks.subscriptions_deliver_nothing,), otherwise=_NOTHING_IS_DELIVERED),
    "C166": Entry(real=(framing.restarted_daemon,)),
    "C168": Entry(
        real=(answers.large_frames,), otherwise="comments are read with their issue, whose own text stands for them"
    ),
    "C170": Entry(real=(framing.any_cut, framing.any_cut_at_the_full_limit, framing.any_cut_of_a_reply)),
    "C171": Entry(
        real=(framing.bad_between_good, framing.any_bad_payload),
        otherwise="a frame of length zero cannot be skipped safely: a last fault, then the connection is closed. Every "
        "other bad frame leaves it up",
    ),
    "C178": Entry(virtual=(answers.cursors_by_hand,), otherwise="no GraphQL: a listing's own cursors are bound to it"),
    "C185": Entry(
        virtual=(answers.diffs_too_large,),
        otherwise="no diff is asked for but as pages of files; where those are refused for size, comments are folded",
    ),
    "C186": Entry(
        virtual=(answers.diffs_too_large,),
        otherwise="no diff is shown to agents; where a review asks for one in vain, its comments are folded",
    ),
    "C188": Entry(
        virtual=(answers.pages_too_far,), otherwise="there is no search: the page that is refused is one of a listing"
    ),
    "C189": Entry(virtual=(answers.pages_to_the_end,), otherwise="there is no search: a listing stands for it"),
    "C194": Entry(real=(cancelling.slow_reader,), otherwise="the large replies are those of list_issues"),
    "C199": Entry(
        virtual=(clocks.subscriptions_deliver_nothing, clocks.order_is_the_forge_s),
        otherwise="nothing is ingested or delivered yet: subscribe keeps a row, and no forge is polled. "
        "What an agent reads page by page follows the forge's own order and cursor, whatever the times say",
    ),
    "C201": Entry(virtual=(answers.refused_creates,)),
    "C202": Entry(virtual=(answers.refused_creates,)),
    "C203": Entry(virtual=(answers.edited_by_hand,)),
    "C204": Entry(
        virtual=(answers.one_header,),
        otherwise="nothing is edited: a text that is stamped over and over stands for it, and one that is sent stamped",
    ),
    "C212": Entry(
        virtual=(clocks.reset_times, clocks.no_hot_loop),
        otherwise="a reset in the past is drawn to one second, not to a minute: a caller that tries again as soon as "
        "it may costs one request a second, and every other call is refused without one",
    ),
    "C213": Entry(virtual=(clocks.retry_after_forms,)),
    "C216": Entry(virtual=(answers.empty_reviews,)),
    "C217": Entry(virtual=(answers.reviews_of_no_commit,), otherwise="reviews are read with their pull request"),
    "C218": Entry(virtual=(answers.a_verdict_is_a_review,)),
    "C220": Entry(
        virtual=(answers.stale_heads,),
        otherwise="an agent names no commit: the daemon names the one in whose diff it found the lines",
    ),
    "C223": Entry(
        real=(framing.unknown_arms,),
        virtual=(framing.unknown_items,),
        otherwise="there is no timeline to list: lists of issues and comments stand for it. On the socket an unknown "
        "arm is a fault of structure, invalid_argument, and not unimplemented. An item without the marks of one is "
        "left out, and told in the page's warnings",
    ),
    "C225": Entry(real=(framing.misspelt_fields,)),
    "C229": Entry(virtual=(reading.nothing_is_quoted,), otherwise=_NO_QUOTING),
    "C231": Entry(virtual=(reading.nothing_is_quoted,), otherwise=_NO_QUOTING),
    "C235": Entry(virtual=(reading.nothing_else_is_filtered,)),
    "C236": Entry(
        virtual=(answers.many_comments, reading.a_flood_is_bounded),
        otherwise="a pull request has no pages: of its comments the newest are shown, and how many",
    ),
    "C239": Entry(virtual=(answers.not_ready,)),
    "C240": Entry(virtual=(answers.no_content,)),
    "C241": Entry(virtual=(clocks.offset_dates, clocks.dates_that_are_none), otherwise="closed_at is not shown"),
    "C243": Entry(
        virtual=(answers.tags_that_are_not_repeated,), otherwise="nothing is polled yet: an agent's reads stand for it"
    ),
    "C249": Entry(real=(cancelling.failures_keep_their_kind,)),
    "C250": Entry(virtual=(clocks.linear_is_not_there,), otherwise=_NO_LINEAR),
    "C252": Entry(virtual=(clocks.linear_is_not_there,), otherwise=_NO_LINEAR),
    "C266": Entry(virtual=(answers.titles,)),
    "C268": Entry(
        virtual=(answers.replies_to_replies,),
        otherwise="there is no reply to a review comment: threads that hold such a chain are read whole",
    ),
    "C272": Entry(real=(answers.bombs,)),
}


def _replays(of: Callable[[Entry], tuple[Replay, ...]], *marks: pytest.MarkDecorator) -> list[Any]:
    return [
        pytest.param(CASES[case], replay, id=f"{case}-{replay.__name__}", marks=marks)
        for case, entry in TABLE.items()
        if case in CASES
        for replay in of(entry)
    ]


def test_every_case_is_in_the_table() -> None:
    assert TABLE.keys() == CASES.keys()
    assert all(entry.real or entry.virtual or entry.process for entry in TABLE.values())


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus that the copy comes from stands beside the checkout only")
def test_the_copy_holds_every_case_of_its_kinds() -> None:
    corpus = {row["id"]: Case(**row) for row in read_cases(CORPUS)}
    assert corpus == CASES


@pytest.mark.parametrize(("case", "replay"), _replays(lambda entry: entry.real))
async def test_replayed(case: Case, replay: Replay) -> None:
    await replay(case)


@pytest.mark.parametrize(("case", "replay"), _replays(lambda entry: entry.virtual))
async def test_replayed_in_virtual_time(case: Case, replay: Replay, autojump_clock: trio.testing.MockClock) -> None:
    await replay(case)


@pytest.mark.parametrize(("case", "replay"), _replays(lambda entry: entry.process, pytest.mark.process))
async def test_replayed_by_a_process(case: Case, replay: Replay) -> None:
    await replay(case)
