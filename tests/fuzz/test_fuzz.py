"""Any bytes give frames or one typed error; on a connection, one answer a frame, or one last fault and a close.

A few seconds of each fuzzer, under a seed that stays and under one that does not; and that each finds a planted fault.
"""

import json
import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import trio

from bench import fuzz_live, fuzz_wire
from bench.fuzz_live import Settings
from bench.fuzz_wire import Violation
from bench.support.fuzz_grammar import KINDS, Grammar
from bench.support.fuzz_measure import Histogram, Progress
from bench.support.fuzz_msgpack import NotMessagePack, int_at, tokens_of, wide_int
from bench.support.fuzz_mutations import MUTATIONS
from bench.support.fuzz_session import Broken, LiveConnection, Reply, judge, owed
from bench.support.fuzz_streams import BATCH, FRAMING, Frame, FuzzInput, inputs, split
from compass_forged.wire import codec, frames
from compass_forged.wire.codec import DecodeError, encode_call, encode_reply
from compass_forged.wire.frames import FRAME_MAX_BYTES, FrameBuffer, FramingError, encode_frame
from compass_forged.wire.schema import ErrorResult, FaultFrame, ForgeCall, GetIssue, ResultFrame

FIXED_SEED = 7
SECONDS = 3.0
SEEDS = pytest.mark.parametrize("seed", [FIXED_SEED, None], ids=["fixed", "random"])


def chosen(seed: int | None) -> int:
    """The seed, or one that no plugin has chosen; a failure shows it."""
    found = random.SystemRandom().randrange(2**32) if seed is None else seed
    print(f"seed {found}")  # noqa: T201 -- what a failure needs to be seen again
    return found


# --- the fuzzers ----------------------------------------------------------------------------------------------------


@SEEDS
def test_any_bytes_give_frames_or_one_typed_error(seed: int | None) -> None:
    found = chosen(seed)
    try:
        totals = fuzz_wire.run(found, 10_000_000, SECONDS)
    except Violation as violation:
        pytest.fail(fuzz_wire.reproduction(violation, found))
    assert totals.inputs >= BATCH
    assert min(totals.accepted, totals.refused, totals.broken) > 0
    assert totals.mutations.keys() == MUTATIONS.keys() | set(FRAMING)


@pytest.mark.process
@SEEDS
def test_any_bytes_on_one_connection_are_answered_and_hurt_nobody(seed: int | None) -> None:
    settings = Settings(chosen(seed), count=1_000_000, seconds=SECONDS, connections=4)
    try:
        totals = fuzz_live.run(settings)
    except fuzz_live.LiveViolation as violation:
        pytest.fail(fuzz_live.reproduction(violation, settings))
    assert totals.inputs > 100
    assert totals.connections > 4
    assert totals.neighbour["calls"] > 0
    assert totals.rss_end > 0


# --- planted faults, in this process --------------------------------------------------------------------------------


def found_by_fuzzing(seed: int = FIXED_SEED, count: int = 4 * BATCH) -> Violation:
    with pytest.raises(Violation) as caught:
        fuzz_wire.run(seed, count)
    return caught.value


def test_a_wrong_exception_is_found_and_its_number_and_bytes_show_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = codec.decode_call

    def faulty(payload: bytes) -> ForgeCall:
        if b"\xc7\x0c\xff" in payload:
            raise KeyError("timestamp")
        return real(payload)

    monkeypatch.setattr(codec, "decode_call", faulty)
    violation = found_by_fuzzing()
    assert violation.what == "decode_call raised KeyError: 'timestamp'"
    assert "extensions" in violation.found.mutations

    assert fuzz_wire.main(["--seed", str(FIXED_SEED), "--count", str(4 * BATCH), "--json"]) == 1
    out, err = capsys.readouterr()
    shown = json.loads(out)
    data = violation.found.data
    assert shown["violation"] == {"what": violation.what, "number": violation.found.number, "hex": data.hex()}
    again = re.search(r"^again: bench/fuzz_wire.py (.*)$", err, re.MULTILINE)
    assert again is not None
    assert data.hex() in err
    by_hand = ["--hex", data.hex(), "--limit", str(violation.found.limit)]
    for arguments in (again[1].split(), by_hand):
        assert fuzz_wire.main(arguments) == 1, arguments
        assert violation.what in capsys.readouterr().err

    monkeypatch.undo()
    for arguments in (again[1].split(), by_hand):
        assert fuzz_wire.main(arguments) == 0, arguments
        assert re.search(r"^inputs +1$", capsys.readouterr().out, re.MULTILINE)


def lenient(payload: bytes) -> ForgeCall:
    """Takes bytes behind the value for nothing."""
    try:
        return REAL_DECODE(payload)
    except DecodeError:
        for cut in range(1, min(10, len(payload))):
            try:
                return REAL_DECODE(payload[:-cut])
            except DecodeError:
                continue
        raise


def forgetful(payload: bytes) -> ForgeCall:
    """Loses the caller's own deadline."""
    return msgspec.structs.replace(REAL_DECODE(payload), timeout_ms=0)


def talkative(payload: bytes) -> ForgeCall:
    """Shows the peer's own bytes."""
    try:
        return REAL_DECODE(payload)
    except DecodeError as error:
        raise DecodeError(f"{error} in {payload.decode('latin-1')}", error.call_id) from error


def strict(payload: bytes) -> ForgeCall:
    """Refuses a header that is longer than it needs to be."""
    call = REAL_DECODE(payload)
    if b"\xdb\x00\x00\x00" in payload:
        raise DecodeError("frame: not the shortest form", call.call_id)
    return call


def dawdling(payload: bytes) -> ForgeCall:
    """Computes for long over a deep value."""
    if payload.count(b"\x91") > 200:
        until = time.thread_time() + 1.2 * fuzz_wire.SLOW_SECONDS
        while time.thread_time() < until:
            pass
    return REAL_DECODE(payload)


REAL_DECODE = codec.decode_call


@pytest.mark.parametrize(
    ("decode", "what"),
    [
        (lenient, "a broken call was taken"),
        (forgetful, "a valid call gave another value"),
        (talkative, "decode_call's message "),
        (strict, "a valid call gave DecodeError: frame: not the shortest form"),
        (dawdling, "takes "),
    ],
)
def test_a_faulty_decoder_is_found(
    monkeypatch: pytest.MonkeyPatch, decode: Callable[[bytes], ForgeCall], what: str
) -> None:
    monkeypatch.setattr(codec, "decode_call", decode)
    violation = found_by_fuzzing()
    assert violation.what.startswith(what)
    again = next(inputs(FIXED_SEED, violation.found.number))
    assert again == violation.found


class LosesHalfHeaders(FrameBuffer):
    """Forgets a header that does not come in one piece."""

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        super().feed(data if len(data) >= 4 else b"")


class TakesAnyLength(FrameBuffer):
    """Has no limit."""

    def __init__(self, limit: int = FRAME_MAX_BYTES) -> None:
        super().__init__(limit + 1)


class Heals(FrameBuffer):
    """Goes on after bytes that were no frame."""

    __slots__ = ("_broke",)

    def next_frame(self) -> bytes | None:
        if getattr(self, "_broke", False):
            return None
        try:
            return super().next_frame()
        except FramingError:
            self._broke = True
            raise


@pytest.mark.parametrize(
    ("buffer", "what"),
    [
        (LosesHalfHeaders, "the buffer "),
        (TakesAnyLength, "the buffer "),  # gave a frame too many, or did not raise, whichever input comes first
        (Heals, "the buffer raised AssertionError: nothing after a framing error"),
    ],
)
def test_a_faulty_buffer_is_found(monkeypatch: pytest.MonkeyPatch, buffer: type[FrameBuffer], what: str) -> None:
    monkeypatch.setattr(frames, "FrameBuffer", buffer)
    assert found_by_fuzzing().what.startswith(what)


def test_memory_that_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bytes] = []

    def hoarding(payload: bytes) -> ForgeCall:
        kept.append(bytes(20_000))
        return REAL_DECODE(payload)

    monkeypatch.setattr(codec, "decode_call", hoarding)
    monkeypatch.setattr(fuzz_wire, "_WARM_INPUTS", BATCH)
    assert re.fullmatch(r"memory grew by \d+ MiB over \d+ inputs", found_by_fuzzing().what)


# --- planted faults, on a connection --------------------------------------------------------------------------------

CALL = encode_call(ForgeCall(call_id="c1", arm=GetIssue(repo="", issue_number=1)))


def refusal(call_id: str = "", message: str = "frame: no") -> FaultFrame:
    return FaultFrame(call_id=call_id, code="invalid_argument", message=message)


def answer(call_id: str = "c1", code: str = "invalid_argument", message: str = "repo: no") -> ResultFrame:
    return ResultFrame(call_id=call_id, result=ErrorResult(code=code, message=message))


GOOD, BAD, NO_FRAME = encode_frame(CALL), encode_frame(b"\xc1"), bytes(4)


@pytest.mark.parametrize(
    ("sent", "replies", "what"),
    [
        (GOOD + BAD, [answer(), refusal()], ""),
        (GOOD + BAD, [refusal(), answer()], ""),
        (GOOD + GOOD, [answer(), refusal("c1")], ""),  # its id may be in flight still
        (GOOD, [], "not answered: {'c1': 1}"),
        (GOOD, [answer(), answer()], "answered more often than asked: {'c1': 1}"),
        (GOOD, [answer("c2")], "answered more often than asked: {'c2': 1}"),
        (GOOD, [answer(code="internal", message="no")], "the daemon failed: no"),
        (GOOD, [answer(message="a\nb")], "a message that is no line to show: 'a\\nb'"),
        (GOOD, [answer(message="")], "a message that is no line to show: ''"),
        (BAD, [answer("")], "a frame that does not decode, or bytes that are no frame, got no invalid_argument"),
        (GOOD[:-1], [], ""),
        (GOOD[:-1], [refusal()], "answered more often than asked: {'': 1}"),
        (NO_FRAME, [refusal()], ""),
        (NO_FRAME, [], "a frame that does not decode, or bytes that are no frame, got no invalid_argument"),
        (NO_FRAME, [refusal(), refusal()], "answered more often than asked: {'': 1}"),
        (GOOD + NO_FRAME, [refusal()], ""),
        (GOOD + NO_FRAME, [answer(), refusal()], ""),
        (GOOD + NO_FRAME, [refusal(), answer()], "behind the last fault came ResultFrame(call_id='c1'"),
        (BAD + NO_FRAME, [refusal()], "a frame that does not decode, or bytes that are no frame, got no invalid"),
        (NO_FRAME + GOOD, [refusal(), answer()], "answered more often than asked: {'c1': 1}"),
    ],
)
def test_what_the_replies_on_a_connection_are_judged_by(sent: bytes, replies: list[Reply], what: str) -> None:
    fault = judge(owed(sent), replies)
    assert fault.startswith(what)
    assert bool(fault) == bool(what)


def as_input(data: bytes, *, cut: int) -> FuzzInput:
    unknown = Frame(b"", "call", None, refused=False, mutations=())
    return FuzzInput(0, FRAME_MAX_BYTES, (data[:cut], data[cut:]), (unknown,), whole=False, mutations=())


async def serve_once(listener: trio.SocketListener, manners: str) -> None:
    """A daemon that answers one connection; how it does is in ``manners``."""
    async with await listener.accept() as stream:
        buffer = FrameBuffer()
        while data := await stream.receive_some(1 << 16):
            buffer.feed(data)
            try:
                while (payload := buffer.next_frame()) is not None:
                    try:
                        reply: Reply = answer(codec.decode_call(payload).call_id)
                    except DecodeError as error:
                        reply = refusal(error.call_id)
                    if manners == "hangs up":
                        return
                    if manners == "leaves out" and reply.call_id == "c1":
                        continue
                    times = 2 if manners == "answers twice" else 1
                    await stream.send_all(encode_frame(encode_reply(reply)) * times)
            except FramingError:
                if manners != "closes without a word":
                    await stream.send_all(encode_frame(encode_reply(refusal())))
                return
        if manners == "talks to itself":
            await stream.send_all(encode_frame(encode_reply(refusal())))


async def exchanged(tmp_path: Path, manners: str, sent: bytes) -> bool:
    listening = trio.socket.socket(trio.socket.AF_UNIX)
    await listening.bind(str(tmp_path / "s"))
    listening.listen(1)
    listener = trio.SocketListener(listening)
    goes_on, broken = False, None
    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(serve_once, listener, manners)
        connection = LiveConnection(await trio.open_unix_socket(str(tmp_path / "s")))
        try:
            goes_on = await connection.exchange([as_input(sent, cut=len(sent) // 2)])
        except Broken as error:  # raised again outside of the nursery, which would wrap it
            broken = error
        await connection.close()
        nursery.cancel_scope.cancel()
    if broken is not None:
        raise broken
    return goes_on


@pytest.mark.parametrize(("sent", "goes_on"), [(GOOD + BAD, True), (GOOD + GOOD[:-1], False), (GOOD + NO_FRAME, False)])
async def test_a_daemon_that_behaves_passes(tmp_path: Path, sent: bytes, goes_on: bool) -> None:
    assert await exchanged(tmp_path, "behaves", sent) is goes_on


@pytest.mark.parametrize(
    ("manners", "sent", "what"),
    [
        ("answers twice", GOOD, "a valid call after 1 answered frames got "),
        ("hangs up", GOOD, "closed after 0 answers to 1 frames"),
        ("leaves out", GOOD, "0 answers to 1 frames within 0.05 s"),
        ("closes without a word", NO_FRAME, "a frame that does not decode, or bytes that are no frame, got no"),
        ("talks to itself", GOOD[:-1], "an answer that nobody asked for: "),
    ],
)
async def test_a_daemon_that_does_not_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manners: str, sent: bytes, what: str
) -> None:
    if manners == "leaves out":
        monkeypatch.setattr("bench.support.fuzz_session.ANSWER_SECONDS", 0.05)
    with pytest.raises(Broken) as caught:
        await exchanged(tmp_path, manners, sent)
    assert str(caught.value).startswith(what)


# --- planted faults, around a whole daemon ---------------------------------------------------------------------------


class Killer(fuzz_live.Load):
    """Kills the daemon before it sends anything."""

    async def run(self, count: int, seconds: float, pid: int, show: Progress | None) -> None:
        os.kill(pid, signal.SIGKILL)
        await super().run(count, seconds, pid, show)


@pytest.mark.process
def test_a_daemon_that_ends_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fuzz_live, "Load", Killer)
    assert fuzz_live.main(["--seed", str(FIXED_SEED), "--count", "200"]) == 1
    err = capsys.readouterr().err
    assert "violation: the daemon has ended with status -9" in err
    assert f"again: bench/fuzz_live.py --seed {FIXED_SEED}" in err


@pytest.mark.process
def test_a_daemon_that_grows_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fuzz_live, "RSS_GROWTH_BYTES", -(1 << 40))
    assert fuzz_live.main(["--seed", str(FIXED_SEED), "--count", "200", "--json"]) == 1
    out, _ = capsys.readouterr()
    assert json.loads(out)["violation"]["what"].startswith("the daemon's memory grew by ")


# --- what they are built of -----------------------------------------------------------------------------------------


def test_an_input_follows_from_seed_and_number_alone() -> None:
    made = inputs(FIXED_SEED)
    first = [next(made) for _ in range(BATCH + 3)]
    assert [given.number for given in first] == list(range(BATCH + 3))
    assert next(inputs(FIXED_SEED, BATCH + 2)) == first[BATCH + 2]
    assert next(inputs(FIXED_SEED + 1)).data != first[0].data


def test_the_grammar_makes_every_kind_and_its_places_cover_the_bytes() -> None:
    grammar = Grammar(random.Random(FIXED_SEED))  # noqa: S311 -- reproducible on purpose
    for kind in KINDS:
        for _ in range(50):
            document = grammar.document(kind)
            root = document.tokens[0]
            assert (root.start, root.end, root.kind) == (0, len(document.data), "map")
            leaves = [token for token in document.tokens if token.kind not in {"map", "array"}]
            assert all(msgspec.msgpack.decode(document.data[leaf.start : leaf.end]) is not ... for leaf in leaves)


@pytest.mark.parametrize("value", [0, 1, 127, 128, 255, 256, 2**32, 2**63 - 1, 2**64 - 1, -1, -33, -129, -(2**63)])
def test_every_form_of_an_int_means_it(value: int) -> None:
    shortest = msgspec.msgpack.encode(value)
    for form in (shortest, *wide_int(value)):
        assert msgspec.msgpack.decode(form) == value
        assert int_at(form, tokens_of(form)[0]) == value


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\xa2x", b"\xda\x00", b"\x91", b"\xc0\xc0", b"\x91" * 100 + b"\xc0"])
def test_what_is_not_one_value_has_no_places(data: bytes) -> None:
    with pytest.raises(NotMessagePack):
        tokens_of(data)


@pytest.mark.parametrize(
    ("data", "payloads", "ending"),
    [
        (b"", [], "clean"),
        (b"\0\0\0\2ab", [b"ab"], "clean"),
        (b"\0\0\0\2ab\0", [b"ab"], "inside"),
        (b"\0\0\0\2a", [], "inside"),
        (b"\0\0\0\1a\0\0\0\0", [b"a"], "broken"),
        (b"\0\0\0\3abc", [], "broken"),
    ],
)
def test_the_second_framing_keeps_the_rules(data: bytes, payloads: list[bytes], ending: str) -> None:
    assert split(data, 2) == (payloads, ending)


def test_times_fall_into_buckets_of_three_percent() -> None:
    times = Histogram()
    for value in range(1, 100_001):
        times.add(value, value)
    assert (times.largest, times.largest_number) == (100_000, 100_000)
    for share in (0.0001, 0.01, 0.5, 0.99, 0.999):
        assert times.quantile(share) == pytest.approx(share * 100_000, rel=0.04)
    assert times.quantile(1.0) == 100_000
    assert Histogram().quantile(0.5) == 0


@pytest.mark.parametrize("arguments", [["--count", "0"], ["--at", "3"], ["--hex", "xy"], ["--seconds", "-1"]])
def test_options_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        fuzz_wire.main(arguments)
    with pytest.raises(SystemExit, match="2"):
        fuzz_live.main([*arguments, "--connections", "99"])
