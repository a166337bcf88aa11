"""The life of one call under the hub, from admission to its end.

By what ends it:

==================  ====================  =============================  =============================================
event               read                  write, not yet sent            write, sent
==================  ====================  =============================  =============================================
deadline            cancelled             cancelled, ``not_sent``        answered ``unknown``; goes on within its grace
connection closes   cancelled             cancelled                      goes on
session unbound     cancelled             cancelled                      goes on
drain ends          cancelled             cancelled                      cancelled at the end of the drain time
==================  ====================  =============================  =============================================

From ``sending`` on, a write's cancel scope is shielded. Whoever asked is answered once, through a callback: by the
call's end, or by its deadline where a sent write goes on.
"""

import math
from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeAlias

import trio
from trio.lowlevel import checkpoint_if_cancelled

from compass_forged.errors import CallError, Fault
from compass_forged.observability import Counters, FrequentEvent, get_logger
from compass_forged.policy import clean_message, error_result
from compass_forged.ports import CallContext, ForgeCaller, Session, Work
from compass_forged.wire.schema import (
    READ_ARMS,
    ErrorResult,
    FaultFrame,
    ForgeCall,
    ReplyFrame,
    ResultArm,
    ResultFrame,
    arm_name,
)

_log = get_logger(__name__)
_CALL_LINE: Final = FrequentEvent(
    _log,
    "call",
    words=("container", "session", "agent", "arm", "coordinate", "code", "outcome"),
    numbers=("ms", "forge_requests"),
)

_End: TypeAlias = Literal["deadline", "disconnect", "unbound", "stopping"]

Answer: TypeAlias = Callable[[ReplyFrame], None]
"""Takes the one reply of a call; must not raise, and is no checkpoint."""


class Home(Protocol):
    """What a life needs of its hub."""

    @property
    def caller(self) -> ForgeCaller:
        """The service."""
        ...

    @property
    def records(self) -> "CallRecords":
        """Where ends of calls are counted and logged."""
        ...

    def seconds_for(self, call: ForgeCall, *, write: bool) -> float:
        """A call's deadline from now."""
        ...

    def overdue(self, life: "Life") -> None:
        """A sent write's deadline has passed; it has its grace from now on."""
        ...

    def ended(self, life: "Life") -> None:
        """A life's work is over."""
        ...


class Life:
    """One call: a ``WriteGuard`` for the provider, a job for a worker, and kept under a deadline.

    Attributes:
        sent: whether a byte of a write may have gone out.
        number: under which its hub keeps it.
    """

    __slots__ = (
        "_answer", "_began", "_end", "_fault", "_given_up", "_home", "_in_grace", "_result", "_work", "call",
        "context", "deadline", "is_write", "number", "scope", "sent", "session",
    )  # fmt: skip

    def __init__(self, home: Home, session: Session, call: ForgeCall, answer: Answer) -> None:
        self.session = session
        self.call = call
        self.is_write = not isinstance(call.arm, READ_ARMS)
        self.context = CallContext(session.container, self)
        self.scope: trio.CancelScope | None = None
        self.sent = False
        self.number = 0
        self._home = home
        self._answer: Answer | None = answer
        self._began = trio.current_time()
        self.deadline = self._began + home.seconds_for(call, write=self.is_write)
        self.context.deadline = self.deadline
        self._given_up = False
        self._in_grace = False
        self._end: _End = "deadline"
        self._work: Work | None = None
        self._result: ResultArm | None = None
        self._fault: Fault | None = None

    def begin(self) -> bool:
        """Do what needs no waiting. Whether that was all: then it has been answered."""
        try:
            begun = self._home.caller.begin(self.session.caller, self.call, self.context)
        except Fault as fault:
            self._fault = fault
        except Exception:  # noqa: BLE001 -- one call's error must not end the connection of its container
            self._broke()
        else:
            if callable(begun):
                self._work = begun
                return False
            self._result = begun
        self.finish(cut_off=False)
        return True

    # --- as the provider sees it --------------------------------------------------------------------------------

    async def sending(self) -> None:
        """See ``WriteGuard``. A call that was given up raises here; after it, only grace and drain end it.

        A read stays as it is, whatever its provider says: it must end with its caller.
        """
        # The deadline's own task may not have had its turn yet: what has passed by now has passed before the send.
        if trio.current_time() >= self.deadline and not self.sent:
            self.due()
        await checkpoint_if_cancelled()
        if self.is_write and not self.sent and self.scope is not None:
            self.sent = True
            self.scope.shield = True
            self.context.deadline = math.inf

    # --- as the worker sees it ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Do what must wait and keep what comes of it; raises nothing but Cancelled."""
        if self._given_up or self._work is None:
            return  # before its worker had begun
        try:
            self._result = await self._work()
        except Fault as fault:
            self._fault = fault
        except Exception:  # noqa: BLE001 -- one call's error must not end the hub's nursery
            self._broke()
        except BaseExceptionGroup as errors:  # of a nursery within: Cancelled, and an error beside it
            cancelled, others = errors.split(trio.Cancelled)
            if cancelled is None or not isinstance(others, ExceptionGroup):
                raise  # such as KeyboardInterrupt: the daemon's business
            self._broke()
            raise cancelled from None

    def _broke(self) -> None:
        self._home.records.broke()
        _log.exception("unexpected error under the hub", arm=arm_name(self.call.arm), session=self.session.session_id)
        self._fault = Fault("internal", "the daemon failed; its log says why")

    def finish(self, *, cut_off: bool) -> None:
        """The work is over: answer, unless that has been done."""
        self.scope = None
        self._work = None
        self._home.ended(self)
        end = self._came_of_it()
        if self._answer is not None:
            self._reply(end or self._given_up_reply(cut_off=cut_off))
        elif self.sent:
            self._home.records.late(self, end)
        # The cycles end here: in them, what a call held, up to a frame each, would wait for the garbage collector.
        self._fault = None
        self.context.guard = _OVER[self.sent]

    def _came_of_it(self) -> ReplyFrame | None:
        if self._result is not None:
            return ResultFrame(call_id=self.call.call_id, result=self._result)
        return fault_frame(self._fault, self.call.call_id) if self._fault is not None else None

    def _given_up_reply(self, *, cut_off: bool) -> ReplyFrame:
        call_id = self.call.call_id
        joined = self.context.waits_on
        if (cut_off or self._end != "deadline") and not self.sent and joined is not None and joined.sent:
            return ResultFrame(call_id=call_id, result=error_result(_JOINED_AND_GIVEN_UP))
        if cut_off and not self.sent:
            restarting = "the daemon's hub restarted under this call; try again"
            return fault_frame(Fault("unavailable", restarting, retry_after_ms=500), call_id)
        if self._end == "unbound":
            return fault_frame(Fault("permission_denied", "the session was unbound while the call ran"), call_id)
        if self._end == "stopping" and not self.sent:
            stopping = "the daemon stopped before the call was sent; try again"
            return fault_frame(Fault("unavailable", stopping, retry_after_ms=1000), call_id)
        return ResultFrame(call_id=call_id, result=error_result(_deadline_error(self)))

    # --- as the hub and the connection see it -------------------------------------------------------------------

    def due(self) -> None:
        """The deadline has passed. A write that has gone out goes on within its grace, and its caller hears of it."""
        if not self.sent:
            if not self._given_up:
                self.give_up("deadline")
        elif self._in_grace:
            self._cancel()
        else:
            self._in_grace = True
            self._home.overdue(self)
            if self._answer is not None:
                self._reply(ResultFrame(call_id=self.call.call_id, result=error_result(_deadline_error(self))))

    def give_up(self, end: _End) -> None:
        """Cancel, unless a write has gone out."""
        if not self.sent:
            self._end = end
            self._cancel()

    def abandon(self) -> None:
        """The connection closed: nobody takes the answer any more; what has not been sent is given up."""
        if self._answer is not None:
            self._answer = None
            self.give_up("disconnect")
            self._home.records.end(self.session.session_id, self.session, self.call, None, self.context, self._began)

    def _reply(self, reply: ReplyFrame) -> None:
        """Answer, then log: whoever asked waits for no log, and hears nothing more."""
        answer, self._answer = self._answer, None
        assert answer is not None  # noqa: S101 -- both callers have looked
        answer(reply)
        self._home.records.end(self.session.session_id, self.session, self.call, reply, self.context, self._began)

    def stop(self) -> None:
        """The drain time is over: cancel, whatever has been sent."""
        self._end = "stopping"
        self._cancel()

    def _cancel(self) -> None:
        self._given_up = True
        if self.scope is not None:
            self.scope.cancel()


class _Over:
    """The guard of a call that has ended: nothing goes out for it any more."""

    def __init__(self, *, sent: bool) -> None:
        self.sent = sent

    async def sending(self) -> None:
        """See ``WriteGuard``."""
        raise RuntimeError("the call has ended")


_OVER: Final = (_Over(sent=False), _Over(sent=True))


class CallRecords:
    """What is told of calls: one line and one count at the end of each."""

    def __init__(self, counters: Counters) -> None:
        """``counters`` are the daemon's."""
        self._counters = counters
        self._calls = counters.kind("calls", "arm", "code")

    def broke(self) -> None:
        """Something raised that should not."""
        self._counters.add("internal_errors", where="hub")

    def end(
        self,
        session_id: str,
        session: Session | None,
        call: ForgeCall,
        reply: ReplyFrame | None,
        context: CallContext | None,
        began: float,
    ) -> None:
        """One line and one count for a call, at its end."""
        code, outcome = _code_of(reply) if reply is not None else ("disconnected", "")
        arm = arm_name(call.arm)
        self._calls.add(arm, code)
        _CALL_LINE.info(
            (
                session.container if session else "",
                session_id,
                session.account.agent if session else "",
                arm,
                context.coordinate if context else "",
                code,
                outcome,
            ),
            round((trio.current_time() - began) * 1000, 3),
            context.forge_requests if context else 0,
        )

    def late(self, life: Life, end: ReplyFrame | None) -> None:
        """A write ended after its caller had been answered, or had gone. ``end``: what came of it, None if nothing."""
        code = _code_of(end)[0] if end is not None else "unknown"
        self._counters.add("late_writes", code=code)
        _log.info(
            "a write ended after its caller had gone",
            session=life.session.session_id,
            arm=arm_name(life.call.arm),
            coordinate=life.context.coordinate,
            code=code,
        )


def fault_frame(fault: Fault, call_id: str) -> FaultFrame:
    """The frame that answers a fault, its message made safe to hand out."""
    return FaultFrame(
        call_id=call_id,
        code=fault.code,
        message=clean_message(fault.message),
        retry_after_ms=fault.retry_after_ms,
    )


_JOINED_AND_GIVEN_UP: Final = CallError(
    "unavailable", "the call was given up while the create it had joined was on its way", outcome="unknown"
)


def _deadline_error(life: Life) -> CallError:
    if not life.is_write:
        return CallError("deadline_exceeded", "the forge did not answer within the deadline")
    joined = life.context.waits_on
    if life.sent or (joined is not None and joined.sent):
        return CallError(
            "deadline_exceeded",
            "the write was sent and no answer came within the deadline; retry a create under the same key",
            outcome="unknown",
        )
    return CallError("deadline_exceeded", "the deadline passed before the write was sent", outcome="not_sent")


def _code_of(reply: ReplyFrame) -> tuple[str, str]:
    if isinstance(reply, FaultFrame):
        return f"fault:{reply.code}", ""
    if isinstance(reply.result, ErrorResult):
        return reply.result.code, reply.result.outcome
    return "ok", ""
