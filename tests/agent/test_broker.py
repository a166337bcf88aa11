"""The broker: delegation and idempotency keys."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from compass_forged.agent import ForgeBroker, ForgeFault
from compass_forged.wire.codec import decode_call, encode_call
from compass_forged.wire.schema import ForgeCall, GetIssue, ResultArm, UnsubscribedResult

CALL = ForgeCall(call_id="a", arm=GetIssue(repo="o/r", issue_number=1))


class Transport:
    """A transport that keeps what it was asked."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.calls: list[ForgeCall] = []
        self._failure = failure

    async def forge(self, call: ForgeCall) -> ResultArm:
        await trio.lowlevel.checkpoint()
        self.calls.append(call)
        if self._failure is not None:
            raise self._failure
        return UnsubscribedResult()


async def test_a_call_goes_to_the_transport_as_it_is() -> None:
    transport = Transport()
    assert await ForgeBroker(transport).call(CALL) == UnsubscribedResult()
    assert transport.calls == [CALL]


async def test_what_the_transport_raises_comes_out() -> None:
    with pytest.raises(ForgeFault):
        await ForgeBroker(Transport(ForgeFault("internal", "x"))).call(CALL)


def test_a_key_is_the_nonce_and_the_bare_id_and_stays_the_same() -> None:
    broker = ForgeBroker(Transport())
    nonce, colon, tool_call_id = broker.idempotency_key("toolu_01:A b").partition(":")
    assert (len(nonce), colon, tool_call_id) == (16, ":", "toolu_01:A b")
    assert broker.idempotency_key("toolu_01:A b") == f"{nonce}:toolu_01:A b"
    assert broker.idempotency_key("call_2") == f"{nonce}:call_2"


def test_the_same_id_in_two_runs_gives_two_keys() -> None:
    keys = {ForgeBroker(Transport()).idempotency_key("call_1") for _ in range(100)}
    assert len(keys) == 100


def test_the_longest_bare_id_fits_and_one_more_is_replaced_by_its_digest() -> None:
    broker = ForgeBroker(Transport())
    assert broker.idempotency_key("x" * 239).endswith(":" + "x" * 239)
    assert len(broker.idempotency_key("x" * 239)) == 256
    assert ":sha256-" in broker.idempotency_key("x" * 240)


ODD = st.sampled_from(["\ud800", "é", "a\nb", "\x7f", "\0", "x" * 300, "sha256-", "sha256-00", " "])


@given(st.lists(st.text(min_size=1, max_size=300) | ODD, min_size=2, unique=True))
def test_any_id_gives_a_key_of_its_own_that_the_wire_takes(ids: list[str]) -> None:
    broker = ForgeBroker(Transport())
    keys = [broker.idempotency_key(tool_call_id) for tool_call_id in ids]
    assert len(set(keys)) == len(ids)
    for key in keys:
        assert key.isascii()
        assert key.isprintable()
        assert len(key) <= 256
        call = ForgeCall(call_id="a", arm=CALL.arm, client_request_id=key)
        assert decode_call(encode_call(call)) == call
    assert keys == [broker.idempotency_key(tool_call_id) for tool_call_id in ids]


def test_an_id_that_looks_like_a_digest_shares_no_key_with_what_it_digests() -> None:
    broker = ForgeBroker(Transport())
    digest = broker.idempotency_key("é").partition(":")[2]
    assert broker.idempotency_key(digest) != broker.idempotency_key("é")


def test_an_empty_id_is_refused() -> None:
    with pytest.raises(ValueError, match="tool_call_id is empty"):
        ForgeBroker(Transport()).idempotency_key("")
