"""What the tests of hub, gateway, listener and control share: accounts, calls, a scripted caller, a raw client."""

import math
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import structlog.testing
import trio

from compass_forged.ports import Account, CallContext, Caller, Session, Work
from compass_forged.sessions import SessionTable
from compass_forged.wire.codec import decode_reply, encode_call
from compass_forged.wire.frames import FrameBuffer, encode_frame
from compass_forged.wire.schema import (
    Arm,
    CommentOnIssue,
    CommentOnPullRequest,
    CommentRef,
    CreateIssue,
    CreatePullRequest,
    ErrorResult,
    FaultFrame,
    ForgeCall,
    GetIssue,
    GetPullRequest,
    IssueCommentResult,
    ListIssues,
    ReplyFrame,
    ResultArm,
    ResultFrame,
    SubmitReview,
    Subscribe,
    Unsubscribe,
)

SCOUT = Account(agent_id=1, agent="scout", owner_id=7, owner="ada")
PILOT = Account(agent_id=2, agent="pilot", owner_id=8, owner="bob")
READ = GetIssue(repo="acme/site", issue_number=7)
WRITE = CommentOnIssue(repo="acme/site", issue_number=7, body="hello")
ONE_OF_EACH: tuple[Arm, ...] = (
    CreateIssue(repo="acme/site", title="A title"),
    WRITE,
    CreatePullRequest(repo="acme/site", title="A title", head_ref="feature"),
    CommentOnPullRequest(repo="acme/site", pull_number=7, body="hello"),
    SubmitReview(repo="acme/site", pull_number=7, verdict="approve"),
    READ,
    ListIssues(repo="acme/site"),
    GetPullRequest(repo="acme/site", pull_number=7),
    Subscribe(repo="acme/site", kind="issue", number=7),
    Unsubscribe(subscription_id="41"),
)
"""A good call of each of the ten arms."""

Logged: TypeAlias = list[MutableMapping[str, Any]]


def session_of(container: str = "c1", session_id: str = "s-1", account: Account = SCOUT) -> Session:
    """A live session."""
    return Session(session_id, container, account)


def table_of(*sessions: Session) -> SessionTable:
    """A session table that holds these."""
    return SessionTable(sessions)


def call_of(arm: Arm = READ, call_id: str = "1", *, timeout_ms: int = 0, key: str = "") -> ForgeCall:
    """A call of ``arm``."""
    return ForgeCall(call_id=call_id, arm=arm, timeout_ms=timeout_ms, client_request_id=key)


def a_result(text: str = "url") -> ResultArm:
    """Some result, told apart by ``text``."""
    return IssueCommentResult(comment=CommentRef(url=text, comment_id="1"))


def reply_to(call: ForgeCall) -> ReplyFrame:
    """A reply to ``call``, told apart by its call id."""
    return ResultFrame(call_id=call.call_id, result=a_result(call.call_id))


Script: TypeAlias = Callable[[Caller, ForgeCall, CallContext], Awaitable[ResultArm]]


class ScriptedCaller:
    """A ``ForgeCaller`` that does what its script says and remembers who called with what."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script
        self.calls: list[tuple[Caller, ForgeCall]] = []
        self.contexts: list[CallContext] = []
        self.at_once: Callable[[ForgeCall], ResultArm] | None = None
        self.ended: list[str] = []
        """How each script ended: ``ok``, ``cancelled`` or the error's class, in order."""

    def begin(self, caller: Caller, call: ForgeCall, context: CallContext) -> ResultArm | Work:
        """See the port: everything of a script is waited for, but what ``at_once`` answers."""
        if self.at_once is None:
            return partial(self._execute, caller, call, context)
        self.calls.append((caller, call))
        return self.at_once(call)

    async def _execute(self, caller: Caller, call: ForgeCall, context: CallContext) -> ResultArm:
        self.calls.append((caller, call))
        self.contexts.append(context)
        try:
            result = await self.script(caller, call, context) if self.script else a_result()
        except trio.Cancelled:
            self.ended.append("cancelled")
            raise
        except Exception as error:
            self.ended.append(type(error).__name__)
            raise
        self.ended.append("ok")
        return result


def takes(seconds: float, *, sends_after: float = math.inf) -> Script:
    """A script that takes ``seconds`` in all, and says that it sends after ``sends_after`` of them."""

    async def script(_caller: Caller, call: ForgeCall, context: CallContext) -> ResultArm:
        before = min(seconds, sends_after)
        await trio.sleep(before)
        if sends_after <= seconds:
            await context.guard.sending()
        await trio.sleep(seconds - before)
        return a_result(call.call_id)

    return script


def error_of(reply: ReplyFrame | None) -> tuple[str, str]:
    """(code, outcome) of an in-band error."""
    assert isinstance(reply, ResultFrame), reply
    assert isinstance(reply.result, ErrorResult), reply
    return reply.result.code, reply.result.outcome


def fault_of(reply: ReplyFrame | None) -> str:
    """The code of a fault."""
    assert isinstance(reply, FaultFrame), reply
    return reply.code


@contextmanager
def logged() -> Iterator[Logged]:
    """Collect what is logged meanwhile."""
    with structlog.testing.capture_logs() as events:
        yield events


def frame_of(call: ForgeCall) -> bytes:
    """A call as it goes over the socket."""
    return encode_frame(encode_call(call))


class RawClient:
    """The agent's end of a stream, without any of the agent library's care."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._buffer = FrameBuffer(1 << 25)

    async def send(self, *calls: ForgeCall) -> None:
        """Send calls, all in one go."""
        await self.stream.send_all(b"".join(frame_of(call) for call in calls))

    async def reply(self) -> ReplyFrame:
        """The next reply; fails where the daemon has closed."""
        reply = await self.reply_or_end()
        assert reply is not None, "the daemon closed the connection"
        return reply

    async def reply_or_end(self) -> ReplyFrame | None:
        """The next reply; None where the daemon has closed."""
        while (payload := self._buffer.next_frame()) is None:
            data = await self.stream.receive_some(1 << 16)
            if not data:
                assert not self._buffer.in_frame, "the daemon closed within a frame"
                return None
            self._buffer.feed(data)
        return decode_reply(payload)

    async def replies(self, count: int) -> dict[str, ReplyFrame]:
        """The next ``count`` replies by call id."""
        found = [await self.reply() for _ in range(count)]
        return {reply.call_id: reply for reply in found}


class _Task:
    """A relayed call that runs in a task of its own."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()

    def abandon(self) -> None:
        self.scope.cancel()


def in_tasks(
    nursery: trio.Nursery, relay: Callable[[str, ForgeCall], Awaitable[ReplyFrame]]
) -> Callable[[str, ForgeCall, Callable[[ReplyFrame], None]], _Task]:
    """A coroutine function as a gateway's relay."""

    def submit(session_id: str, call: ForgeCall, answer: Callable[[ReplyFrame], None]) -> _Task:
        task = _Task()

        async def run() -> None:
            with task.scope:
                answer(await relay(session_id, call))

        nursery.start_soon(run)
        return task

    return submit
