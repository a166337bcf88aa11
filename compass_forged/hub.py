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

Calls run in the hub's own workers (``workers.py``), so that a write outlives the connection that asked for it. From
``sending`` on, a write's cancel scope is shielded, with a deadline of its own. Whoever asked is answered once, through
a callback: by the call's end, or by its deadline where a sent write goes on.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import trio
from trio.lowlevel import checkpoint, checkpoint_if_cancelled

from compass_forged.errors import CallError, Fault
from compass_forged.observability import Counters, FrequentEvent, get_logger
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
from compass_forged.workers import WorkerPool

_log = get_logger(__name__)
_CALL_LINE: Final = FrequentEvent(
    _log,
    "call",
    ("container", "session", "agent", "arm", "coordinate", "code", "outcome", "ms", "forge_requests"),
)

_SWEEP_AT: Final = 1024
"""So many deadlines of writes that have ended may stay in the heap before it is swept."""

_End: TypeAlias = Literal["deadline", "disconnect", "unbound", "stopping"]


@dataclass(frozen=True, slots=True)
class CallDeadlines:
    """Seconds a call may take: waiting in the budget gate counts. A sent write has ``grace_seconds`` more."""

    read_seconds: float = 15.0
    write_seconds: float = 30.0
    grace_seconds: float = 30.0


Answer: TypeAlias = Callable[[ReplyFrame], None]
"""Takes the one reply of a call; must not raise, and is no checkpoint."""


class Life:
    """One call from admission to its end: a ``WriteGuard`` for the provider, a job for a worker.

    Attributes:
        sent: whether a byte of a write may have gone out.
    """

    __slots__ = (
        "_answer", "_began", "_end", "_fault", "_given_up", "_hub", "_result", "call", "context", "deadline",
        "is_write", "scope", "sent", "session", "watched",
    )  # fmt: skip

    def __init__(self, hub: "Hub", session: Session, call: ForgeCall, answer: Answer) -> None:
        self.session = session
        self.call = call
        self.is_write = not isinstance(call.arm, READ_ARMS)
        self.context = CallContext(container=session.container, guard=self)
        self.scope: trio.CancelScope | None = None
        self.sent = False
        self._hub = hub
        self._answer: Answer | None = answer
        self._began = trio.current_time()
        self.deadline = self._began + hub.seconds_for(call, write=self.is_write)
        self.watched = 0
        self._given_up = False
        self._end: _End = "deadline"
        self._result: ResultArm | None = None
        self._fault: Fault | None = None

    # --- as the provider sees it --------------------------------------------------------------------------------

    async def sending(self) -> None:
        """See ``WriteGuard``. A call that was given up raises here; after it, only grace and drain end it.

        A read stays as it is, whatever its provider says: it must end with its caller.
        """
        scope = self.scope
        # trio sees that a deadline has passed where the loop turns, and where it is asked. Asked here, a deadline that
        # passed since the task's last wait counts as one that passed before the send.
        if scope is not None and scope.cancel_called:
            await checkpoint()
        await checkpoint_if_cancelled()
        if self.is_write and not self.sent and scope is not None:
            self.sent = True
            # In this order: setting the shield asks as well, and would cancel what has gone out by the old deadline.
            scope.deadline = self.deadline + self._hub.grace_seconds
            scope.shield = True
            self._hub.watch(self)

    # --- as the worker sees it ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Execute the call and keep what comes of it; raises nothing but Cancelled."""
        if self._given_up:
            return  # before its worker had begun
        session = self.session
        try:
            self._result = await self._hub.caller.execute(
                Caller(session.account, session.session_id, session.container, session.scope), self.call, self.context
            )
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
        self._hub.count_internal_error()
        _log.exception("unexpected error under the hub", arm=arm_name(self.call.arm), session=self.session.session_id)
        self._fault = Fault("internal", "the daemon failed; its log says why")

    def finish(self, *, cut_off: bool) -> None:
        """The work is over: answer, unless that has been done."""
        self.scope = None
        self._hub.ended(self)
        end = self._came_of_it()
        if self._answer is not None:
            self._reply(end or self._given_up_reply(cut_off=cut_off))
        elif self.sent:
            self._hub.log_late(self, end)

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

    def overdue(self) -> None:
        """The deadline passed and the write has gone out: say so; it goes on."""
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
            self._hub.log_end(self.session.session_id, self.session, self.call, None, self.context, self._began)

    def _reply(self, reply: ReplyFrame) -> None:
        """Answer, then log: whoever asked waits for no log, and hears nothing more."""
        answer, self._answer = self._answer, None
        assert answer is not None  # noqa: S101 -- both callers have looked
        answer(reply)
        self._hub.log_end(self.session.session_id, self.session, self.call, reply, self.context, self._began)

    def stop(self) -> None:
        """The drain time is over: cancel, whatever has been sent."""
        self._end = "stopping"
        self._cancel()

    def _cancel(self) -> None:
        self._given_up = True
        if self.scope is not None:
            self.scope.cancel()


class Hub:
    """Resolves sessions and owns the calls. One instance a daemon; ``run`` is supervised."""

    def __init__(self, sessions: SessionTable, *, counters: Counters, deadlines: CallDeadlines | None = None) -> None:
        """``sessions`` is shared with the gateway and the control socket."""
        self._sessions = sessions
        self._counters = counters
        self._calls = counters.kind("calls", "arm", "code")
        self._deadlines = deadlines or CallDeadlines()
        self._caller: ForgeCaller | None = None
        self._workers = WorkerPool("call")
        self._draining = False
        self._lives: set[Life] = set()
        self._idle = trio.Event()
        self._sent_deadlines: list[tuple[float, int]] = []
        self._sent: dict[int, Life] = {}
        self._sent_count = 0
        self._sooner = trio.Event()

    def wire(self, caller: ForgeCaller) -> None:
        """Give the hub the service behind it; until then every call is ``unavailable``."""
        self._caller = caller

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the workers in which calls run; until cancelled. While it does not run, calls are ``unavailable``."""
        # Shielded: it answers for sent writes, which go on when this is cancelled. It lives as long as the workers do.
        keeping = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._answer_overdue, keeping)
            try:
                await self._workers.run(task_status=task_status)
            finally:
                keeping.cancel()

    @property
    def draining(self) -> bool:
        """Whether new calls are refused for good."""
        return self._draining

    @property
    def in_flight(self) -> int:
        """How many calls are under way, sent writes whose callers have gone included."""
        return len(self._lives)

    # --- one call ---------------------------------------------------------------------------------------------------

    def submit(self, session_id: str, call: ForgeCall, answer: Answer) -> Life | None:
        """Begin one call of a session; not a checkpoint.

        Args:
            session_id: the session that the call's container is bound to.
            call: the call.
            answer: told the reply, once: right here where the call is refused, else later.

        Returns:
            The call's life, to be abandoned when nobody waits for it any more; None if it was answered already.
        """
        try:
            session = self._admit(session_id)
        except Fault as fault:
            began = trio.current_time()
            reply = fault_frame(fault, call.call_id)
            answer(reply)
            self.log_end(session_id, self._sessions.resolve(session_id), call, reply, None, began)
            return None
        life = Life(self, session, call, answer)
        self._lives.add(life)
        self._workers.start(life)
        return life

    async def relay(self, session_id: str, call: ForgeCall) -> ReplyFrame:
        """``submit`` and wait; raises nothing but Cancelled, which abandons the call."""
        answered = trio.Event()
        replies: list[ReplyFrame] = []

        def answer(reply: ReplyFrame) -> None:
            replies.append(reply)
            answered.set()

        life = self.submit(session_id, call, answer)
        try:
            await answered.wait()  # bounded: the call's deadline answers
        finally:
            if life is not None:
                life.abandon()
        return replies[0]

    def _admit(self, session_id: str) -> Session:
        if self._caller is None:
            raise Fault("unavailable", "no forge is wired to this daemon")
        session = self._sessions.resolve(session_id)
        if session is None:
            raise Fault("not_found", "the session is not known to this daemon")
        if self._draining:
            raise Fault("unavailable", "the daemon is stopping; try again once it is back", retry_after_ms=1000)
        if not self._workers.running:
            raise Fault("unavailable", "the daemon's hub is restarting; try again", retry_after_ms=500)
        return session

    # --- what a life needs of its hub -------------------------------------------------------------------------------

    @property
    def caller(self) -> ForgeCaller:
        """The service; wired, since a call was admitted."""
        assert self._caller is not None  # noqa: S101 -- see above
        return self._caller

    @property
    def grace_seconds(self) -> float:
        """What a sent write has beyond its deadline."""
        return self._deadlines.grace_seconds

    def seconds_for(self, call: ForgeCall, *, write: bool) -> float:
        """A call's deadline from now: the daemon's own, or the caller's where that is sooner."""
        own = self._deadlines.write_seconds if write else self._deadlines.read_seconds
        return min(own, call.timeout_ms / 1000) if call.timeout_ms else own

    def ended(self, life: Life) -> None:
        """A life's work is over."""
        self._lives.discard(life)
        self._sent.pop(life.watched, None)
        if not self._lives and not self._idle.is_set():
            self._idle.set()

    def watch(self, life: Life) -> None:
        """A write has gone out: its caller is to be answered at the deadline, while it goes on."""
        self._sent_count += 1
        life.watched = self._sent_count
        self._sent[life.watched] = life
        if len(self._sent_deadlines) > _SWEEP_AT + 2 * len(self._sent):  # most have ended long before
            self._sent_deadlines = [entry for entry in self._sent_deadlines if entry[1] in self._sent]
            heapq.heapify(self._sent_deadlines)
        heapq.heappush(self._sent_deadlines, (life.deadline, life.watched))
        if self._sent_deadlines[0][1] == life.watched:
            self._sooner.set()

    async def _answer_overdue(self, keeping: trio.CancelScope) -> None:
        """Answer those whose sent writes go on beyond their deadline."""
        with keeping:
            while True:
                self._sooner = trio.Event()
                with trio.move_on_at(self._sent_deadlines[0][0] if self._sent_deadlines else math.inf):
                    await self._sooner.wait()
                now = trio.current_time()
                while self._sent_deadlines and self._sent_deadlines[0][0] <= now:
                    _, number = heapq.heappop(self._sent_deadlines)
                    if life := self._sent.get(number):
                        life.overdue()

    def count_internal_error(self) -> None:
        """Something raised that should not."""
        self._counters.add("internal_errors", where="hub")

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
        self.stop()
        return not left

    def stop(self) -> None:
        """Give up everything, sent writes too: a second signal does not wait for them."""
        self._draining = True
        for life in list(self._lives):
            life.stop()

    # --- log --------------------------------------------------------------------------------------------------------

    def log_end(
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
            session.container if session else "",
            session_id,
            session.account.agent if session else "",
            arm,
            context.coordinate if context else "",
            code,
            outcome,
            round((trio.current_time() - began) * 1000, 3),
            context.forge_requests if context else 0,
        )

    def log_late(self, life: Life, end: ReplyFrame | None) -> None:
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
