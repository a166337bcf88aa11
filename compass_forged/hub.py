"""The hub: who stands behind a session, and the life of every call.

Guard order, exactly: (1) no caller wired: ``unavailable``, before any resolution; (2) the session resolves to no
account: ``not_found``; (3) delegate to the caller under the resolved account.

A call's life, by what ends it:

==================  ====================  =============================  =============================================
event               read                  write, not yet sent            write, sent
==================  ====================  =============================  =============================================
deadline            cancelled             cancelled, ``not_sent``        answered ``unknown``; goes on within its grace
connection closes   cancelled             cancelled                      goes on
session unbound     cancelled             cancelled                      goes on
drain ends          cancelled             cancelled                      cancelled at the end of the drain time
==================  ====================  =============================  =============================================

A read runs in the task of the connection that asked. A write runs in the hub's own nursery, so that it outlives the
connection; from ``sending`` on, its cancel scope is shielded, with a deadline of its own.
"""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import trio
from trio.lowlevel import checkpoint_if_cancelled

from compass_forged.errors import CallError, Fault
from compass_forged.observability import Counters, get_logger
from compass_forged.policy import clean_message, error_result
from compass_forged.ports import CallContext, Caller, ForgeCaller, Session
from compass_forged.sessions import SessionTable
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

_End: TypeAlias = Literal["deadline", "disconnect", "unbound", "stopping"]


@dataclass(frozen=True, slots=True)
class CallDeadlines:
    """Seconds a call may take: waiting in the budget gate counts. A sent write has ``grace_seconds`` more."""

    read_seconds: float = 15.0
    write_seconds: float = 30.0
    grace_seconds: float = 30.0


class _Life:
    """One call from admission to its end. Implements ``WriteGuard``."""

    __slots__ = ("answered", "call", "deadline", "done", "end", "fault", "grace", "result", "scope", "sent", "session")

    def __init__(self, session: Session, call: ForgeCall, deadline: float, grace: float) -> None:
        self.session = session
        self.call = call
        self.deadline = deadline
        self.grace = grace
        self.scope = trio.CancelScope(deadline=deadline)
        self.done = trio.Event()
        self.sent = False
        self.answered = False
        self.end: _End = "deadline"
        self.result: ResultArm | None = None
        self.fault: Fault | None = None

    async def sending(self) -> None:
        """See ``WriteGuard``. A scope that was cancelled raises here; after it, only the grace and the drain end it.

        A read stays as it is, whatever its provider says: it runs in its connection's task, which must be able to end.
        """
        await checkpoint_if_cancelled()
        if self.is_write and not self.sent:
            self.sent = True
            self.scope.shield = True
            self.scope.deadline = self.deadline + self.grace

    def give_up(self, end: _End) -> None:
        """Cancel, unless a write has gone out."""
        if not self.sent and not self.done.is_set():
            self.end = end
            self.scope.cancel()

    @property
    def is_write(self) -> bool:
        return not isinstance(self.call.arm, READ_ARMS)


class Hub:
    """Resolves sessions and owns the calls. One instance a daemon; ``run`` is supervised."""

    def __init__(self, sessions: SessionTable, *, counters: Counters, deadlines: CallDeadlines | None = None) -> None:
        """``sessions`` is shared with the gateway and the control socket."""
        self._sessions = sessions
        self._counters = counters
        self._deadlines = deadlines or CallDeadlines()
        self._caller: ForgeCaller | None = None
        self._nursery: trio.Nursery | None = None
        self._draining = False
        self._lives: set[_Life] = set()
        self._idle = trio.Event()

    def wire(self, caller: ForgeCaller) -> None:
        """Give the hub the service behind it; until then every call is ``unavailable``."""
        self._caller = caller

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the nursery in which writes run; until cancelled. While it does not run, calls are ``unavailable``."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._nursery = None

    @property
    def draining(self) -> bool:
        """Whether new calls are refused for good."""
        return self._draining

    @property
    def in_flight(self) -> int:
        """How many calls are under way, sent writes whose callers have gone included."""
        return len(self._lives)

    # --- one call ---------------------------------------------------------------------------------------------------

    async def relay(self, session_id: str, call: ForgeCall) -> ReplyFrame:
        """Answer one call of a session; raises nothing but Cancelled (the connection closed)."""
        began = trio.current_time()
        session: Session | None = None
        context: CallContext | None = None
        reply: ReplyFrame | None = None
        try:
            session = self._admit(session_id)
            life = _Life(session, call, began + self._seconds_for(call), self._deadlines.grace_seconds)
            context = CallContext(container=session.container, guard=life)
            reply = ResultFrame(call_id=call.call_id, result=await self._live(life, context))
            return reply  # noqa: TRY300 -- the finally below logs it
        except Fault as fault:
            reply = fault_frame(fault, call.call_id)
            return reply
        finally:
            # The session as it was admitted: it may have been unbound since, and the line must still say who asked.
            who = session or self._sessions.resolve(session_id)
            self._log_end(session_id, who, call, reply, context, trio.current_time() - began)

    def _admit(self, session_id: str) -> Session:
        if self._caller is None:
            raise Fault("unavailable", "no forge is wired to this daemon")
        session = self._sessions.resolve(session_id)
        if session is None:
            raise Fault("not_found", "the session is not known to this daemon")
        if self._draining:
            raise Fault("unavailable", "the daemon is stopping; try again once it is back", retry_after_ms=1000)
        if self._nursery is None:
            raise Fault("unavailable", "the daemon's hub is restarting; try again", retry_after_ms=500)
        return session

    def _seconds_for(self, call: ForgeCall) -> float:
        read = isinstance(call.arm, READ_ARMS)
        own = self._deadlines.read_seconds if read else self._deadlines.write_seconds
        return min(own, call.timeout_ms / 1000 if call.timeout_ms else math.inf)

    async def _live(self, life: _Life, context: CallContext) -> ResultArm:
        self._lives.add(life)
        if not life.is_write:
            await self._execute(life, context)
            return self._ended(life, context)
        nursery = self._nursery
        assert nursery is not None  # noqa: S101 -- _admit saw it, and there is no checkpoint since
        nursery.start_soon(self._execute, life, context, name=f"write {life.call.call_id}")
        end: _End = "disconnect"
        try:
            with trio.move_on_at(life.deadline):
                await life.done.wait()
            end = "deadline"
        finally:
            life.answered = True
            life.give_up(end)
        return self._ended(life, context)

    async def _execute(self, life: _Life, context: CallContext) -> None:
        """Run the call to its end inside its own scope; keeps what came of it and raises nothing but Cancelled."""
        session, call = life.session, life.call
        caller = Caller(session.account, session.session_id, session.container, session.scope)
        service = self._caller
        assert service is not None  # noqa: S101 -- _admit saw it; it is never unwired
        try:
            with life.scope:
                life.result = await service.execute(caller, call, context)
        except Fault as fault:
            life.fault = fault
        except Exception:  # noqa: BLE001 -- one call's error must not end the hub's nursery
            self._counters.add("internal_errors", where="hub")
            _log.exception("unexpected error under the hub", arm=arm_name(call.arm), session=session.session_id)
            life.fault = Fault("internal", "the daemon failed; its log says why")
        finally:
            life.done.set()
            self._lives.discard(life)
            if not self._lives:
                self._idle.set()
            if life.answered and life.sent:
                self._log_late(life, context)

    def _ended(self, life: _Life, context: CallContext) -> ResultArm:
        if life.fault is not None:
            raise life.fault
        if life.result is not None:
            return life.result
        if life.done.is_set() and not life.scope.cancelled_caught:
            raise Fault("unavailable", "the daemon's hub restarted under this call; try again", retry_after_ms=500)
        if life.end == "unbound":
            raise Fault("permission_denied", "the session was unbound while the call was under way")
        if life.end == "stopping" and not life.sent:
            raise Fault("unavailable", "the daemon stopped before the call was sent; try again", retry_after_ms=1000)
        return error_result(_deadline_error(life, context))

    # --- what ends many calls ---------------------------------------------------------------------------------------

    def unbound(self, session_id: str) -> None:
        """Give up the calls of a session that has just been unbound; sent writes go on and are recorded under it."""
        for life in [life for life in self._lives if life.session.session_id == session_id]:
            life.give_up("unbound")

    async def drain(self, seconds: float) -> bool:
        """Refuse new calls, wait up to ``seconds`` for those under way, then give up what is left.

        Returns:
            Whether all calls ended by themselves.
        """
        self._draining = True
        with trio.move_on_after(seconds):
            while self._lives:
                if self._idle.is_set():
                    self._idle = trio.Event()
                await self._idle.wait()
        left = list(self._lives)
        for life in left:
            if life.sent:
                _log.error(
                    "a sent write did not end within the drain time",
                    session=life.session.session_id,
                    arm=arm_name(life.call.arm),
                )
            life.end = "stopping"
            life.scope.cancel()
        return not left

    # --- log --------------------------------------------------------------------------------------------------------

    def _log_end(
        self,
        session_id: str,
        session: Session | None,
        call: ForgeCall,
        reply: ReplyFrame | None,
        context: CallContext | None,
        seconds: float,
    ) -> None:
        code, outcome = _code_of(reply) if reply is not None else ("disconnected", "")
        arm = arm_name(call.arm)
        self._counters.add("calls", arm=arm, code=code)
        _log.info(
            "call",
            container=session.container if session else "",
            session=session_id,
            agent=session.account.agent if session else "",
            arm=arm,
            coordinate=context.coordinate if context else "",
            code=code,
            outcome=outcome,
            ms=round(seconds * 1000, 3),
            forge_requests=context.forge_requests if context else 0,
        )

    def _log_late(self, life: _Life, context: CallContext) -> None:
        code = _code_of(ResultFrame(call_id="", result=life.result))[0] if life.result is not None else "unknown"
        self._counters.add("late_writes", code=code)
        _log.info(
            "a write ended after its caller had gone",
            session=life.session.session_id,
            arm=arm_name(life.call.arm),
            coordinate=context.coordinate,
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


def _deadline_error(life: _Life, context: CallContext) -> CallError:
    if not life.is_write:
        return CallError("deadline_exceeded", "the forge did not answer within the deadline")
    joined = context.waits_on
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
