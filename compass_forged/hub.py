"""The hub: who stands behind a session, and the life of every call.

Guard order, exactly: (1) no caller wired: ``unavailable``, before any resolution; (2) the session resolves to no
account: ``not_found``; (3) delegate to the caller under the resolved account.

Calls run in the hub's own workers (``workers.py``), so that a write outlives the connection that asked for it. How a
call lives and ends is in ``life.py``.
"""

from dataclasses import dataclass

import trio

from compass_forged.deadlines import Deadlines
from compass_forged.errors import Fault
from compass_forged.life import Answer, CallRecords, Life, fault_frame
from compass_forged.observability import Counters, get_logger
from compass_forged.ports import ForgeCaller, Session
from compass_forged.sessions import SessionTable
from compass_forged.wire.schema import ForgeCall, ReplyFrame, arm_name
from compass_forged.workers import WorkerPool

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CallDeadlines:
    """Seconds a call may take: waiting in the budget gate counts. A sent write has ``grace_seconds`` more."""

    read_seconds: float = 15.0
    write_seconds: float = 30.0
    grace_seconds: float = 30.0


class Hub:
    """Resolves sessions and owns the calls. One instance a daemon; ``run`` is supervised."""

    def __init__(self, sessions: SessionTable, *, counters: Counters, deadlines: CallDeadlines | None = None) -> None:
        """``sessions`` is shared with the gateway and the control socket."""
        self._sessions = sessions
        self.records = CallRecords(counters)
        self._limits = deadlines or CallDeadlines()
        self._caller: ForgeCaller | None = None
        self._workers = WorkerPool("call")
        self._deadlines = Deadlines()
        self._draining = False
        self._lives: dict[int, Life] = {}
        self._idle = trio.Event()

    def wire(self, caller: ForgeCaller) -> None:
        """Give the hub the service behind it; until then every call is ``unavailable``."""
        self._caller = caller

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the workers in which calls run; until cancelled. While it does not run, calls are ``unavailable``."""
        # Shielded: it answers for sent writes, which go on when this is cancelled. It lives as long as the workers do.
        keeping = trio.CancelScope(shield=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_deadlines, keeping)
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
            self.records.end(session_id, self._sessions.resolve(session_id), call, reply, None, began)
            return None
        life = Life(self, session, call, answer)
        if life.begin():
            return None
        life.number = self._deadlines.keep(life, life.deadline)
        self._lives[life.number] = life
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

    def seconds_for(self, call: ForgeCall, *, write: bool) -> float:
        """A call's deadline from now: the daemon's own, or the caller's where that is sooner."""
        own = self._limits.write_seconds if write else self._limits.read_seconds
        return min(own, call.timeout_ms / 1000) if call.timeout_ms else own

    def overdue(self, life: Life) -> None:
        """A sent write's deadline has passed: it has its grace from now on."""
        self._deadlines.move(life.number, life, life.deadline + self._limits.grace_seconds)

    def ended(self, life: Life) -> None:
        """A life's work is over."""
        if self._lives.pop(life.number, None) is None:
            return  # it was answered before it was kept
        self._deadlines.drop(life.number)
        if not self._lives and not self._idle.is_set():
            self._idle.set()

    async def _keep_deadlines(self, keeping: trio.CancelScope) -> None:
        with keeping:
            await self._deadlines.run()

    # --- what ends many calls ---------------------------------------------------------------------------------------

    def unbound(self, session_id: str) -> None:
        """Give up the calls of a session that has just been unbound; sent writes go on and are recorded under it."""
        for life in [life for life in self._lives.values() if life.session.session_id == session_id]:
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
        left = list(self._lives.values())
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
        for life in list(self._lives.values()):
            life.stop()
