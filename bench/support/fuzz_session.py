"""One connection to a living daemon under fuzzing: what must be answered, and whether it was."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

import trio

from bench.support.fuzz_streams import Ending, FuzzInput, split
from compass_forged.wire.codec import DecodeError, decode_call, decode_reply, encode_call
from compass_forged.wire.frames import FRAME_MAX_BYTES, REPLY_MAX_BYTES, FrameBuffer, FramingError, encode_frame
from compass_forged.wire.schema import ErrorResult, FaultFrame, ForgeCall, GetIssue, ResultFrame

ANSWER_SECONDS: Final = 20.0
"""How long any one answer may take before the connection counts as hung; the daemon's own deadlines are shorter."""
_RECEIVE_BYTES: Final = 64 << 10
_MESSAGE_MAX_CHARS: Final = 500

Reply: TypeAlias = ResultFrame | FaultFrame


class Broken(Exception):
    """The daemon did not do on a connection what it must; the message says what in one line."""


class Owed(NamedTuple):
    """What received bytes oblige the daemon to.

    Attributes:
        answers: how many answers each call id is owed, those of refused frames included.
        refusals: how many of them are faults that refuse a frame. On "broken" one more under the call id "" is owed,
            as the last answer, and a close; calls under way may go unanswered then.
        ending: how the bytes end.
    """

    answers: Counter[str]
    refusals: Counter[str]
    ending: Ending

    @property
    def total(self) -> int:
        """Answers in all."""
        return self.answers.total()


def owed(data: bytes) -> Owed:
    """What a daemon owes for ``data`` on a fresh connection."""
    payloads, ending = split(data, FRAME_MAX_BYTES)
    answers: Counter[str] = Counter()
    refusals: Counter[str] = Counter()
    for payload in payloads:
        try:
            call_id = decode_call(payload).call_id
        except DecodeError as error:
            call_id = error.call_id
            refusals[call_id] += 1
        answers[call_id] += 1
    if ending == "broken":
        answers[""] += 1
        refusals[""] += 1
    return Owed(answers, refusals, ending)


def judge(debt: Owed, replies: Sequence[Reply]) -> str:
    """What is wrong with the replies to what ``debt`` was made for; "" where nothing is."""
    for reply in replies:
        if fault := _bad_reply(reply):
            return fault
    came = Counter(reply.call_id for reply in replies)
    if more := came - debt.answers:
        return f"answered more often than asked: {dict(more)}"
    if (less := debt.answers - came) and debt.ending != "broken":
        return f"not answered: {dict(less)}"
    if debt.ending == "broken" and replies and (not _is_refusal(replies[-1]) or replies[-1].call_id):
        return f"behind the last fault came {replies[-1]}"
    refused = Counter(reply.call_id for reply in replies if _is_refusal(reply))
    if less := debt.refusals - refused:
        return f"a frame that does not decode, or bytes that are no frame, got no invalid_argument: {dict(less)}"
    return ""


def _is_refusal(reply: Reply) -> bool:
    return isinstance(reply, FaultFrame) and reply.code == "invalid_argument"


def _bad_reply(reply: Reply) -> str:
    told = reply if isinstance(reply, FaultFrame) else reply.result
    if not isinstance(told, FaultFrame | ErrorResult):
        return ""
    if told.code == "internal":
        return f"the daemon failed: {told.message}"
    if not 0 < len(told.message) <= _MESSAGE_MAX_CHARS or not told.message.isprintable():
        return f"a message that is no line to show: {told.message[:_MESSAGE_MAX_CHARS]!r}"
    return ""


def cheap_call(call_id: str) -> bytes:
    """The frame of a valid call that is refused before anything is asked: its repo is blank."""
    return encode_frame(encode_call(ForgeCall(call_id=call_id, arm=GetIssue(repo="", issue_number=1))))


class LiveConnection:
    """A connection to a container's socket."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._buffer = FrameBuffer(REPLY_MAX_BYTES)
        self._asked = 0

    async def exchange(self, group: Sequence[FuzzInput]) -> bool:
        """Send inputs, of which all but the last end cleanly, and check all that comes back.

        Returns:
            Whether the connection can be used on.

        Raises:
            Broken: the daemon does not do what it must, or not in time.
        """
        debt = owed(b"".join(given.data for given in group))
        replies: list[Reply] = []
        try:
            with trio.fail_after(ANSWER_SECONDS):
                fault = await self._both_ways(group, debt, replies)
        except trio.TooSlowError as error:
            raise Broken(f"{len(replies)} answers to {debt.total} frames within {ANSWER_SECONDS:g} s") from error
        if fault := fault or judge(debt, replies):
            raise Broken(fault)
        return debt.ending == "clean"

    async def abandon(self, group: Sequence[FuzzInput]) -> None:
        """Send inputs and hang up without a look at the answers."""
        with trio.move_on_after(ANSWER_SECONDS):
            await self._send(group, trio.Event())
        await self.close()

    async def close(self) -> None:
        """Hang up."""
        await self._stream.aclose()

    async def _both_ways(self, group: Sequence[FuzzInput], debt: Owed, replies: list[Reply]) -> str:
        """Send and receive at the same time; what is wrong, "" where nothing is."""
        sent = trio.Event()
        fault = ""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send, group, sent)
            try:
                await self._collect(debt, replies, sent)
            except Broken as broken:
                fault = str(broken)
                nursery.cancel_scope.cancel()
        return fault

    async def _send(self, group: Sequence[FuzzInput], sent: trio.Event) -> None:
        try:
            for given in group:
                for chunk in given.chunks:
                    await self._stream.send_all(chunk)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the daemon has closed: whether it may, the answers tell
        finally:
            sent.set()

    async def _collect(self, debt: Owed, replies: list[Reply], sent: trio.Event) -> None:
        """Receive what is owed, then make sure that nothing else comes."""
        if debt.ending == "broken":
            while (reply := await self._reply()) is not None:
                replies.append(reply)
            return
        while len(replies) < debt.total:
            if (reply := await self._reply()) is None:
                raise Broken(f"closed after {len(replies)} answers to {debt.total} frames")
            replies.append(reply)
        await sent.wait()  # what was begun behind the last whole frame
        if debt.ending == "inside":
            with suppress(OSError, trio.BrokenResourceError):  # closed already: then nothing may have been said either
                await self._stream.send_eof()
            if (reply := await self._reply()) is not None:
                raise Broken(f"an answer that nobody asked for: {reply}")
            return
        self._asked += 1
        call_id = f"still there {self._asked}"
        try:
            await self._stream.send_all(cheap_call(call_id))
        except trio.BrokenResourceError as error:
            raise Broken(f"closed after {debt.total} answered frames") from error
        reply = await self._reply()
        if reply is None or reply.call_id != call_id:
            raise Broken(f"a valid call after {debt.total} answered frames got {reply}")

    async def _reply(self) -> Reply | None:
        """The next reply; None once the daemon has closed."""
        try:
            while (payload := self._buffer.next_frame()) is None:
                try:
                    data = await self._stream.receive_some(_RECEIVE_BYTES)
                except trio.BrokenResourceError:
                    return None  # it closed with bytes of ours unread
                if not data:
                    return None
                self._buffer.feed(data)
            return decode_reply(payload)
        except (FramingError, DecodeError) as error:
            raise Broken(f"an answer that cannot be read: {error}") from error
