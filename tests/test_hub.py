import enum
import gc
import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from compass_forged import deadlines as module
from compass_forged.errors import CallError, Fault
from compass_forged.hub import CallDeadlines, Hub
from compass_forged.life import fault_frame
from compass_forged.observability import Counters
from compass_forged.policy import error_result
from compass_forged.ports import CallContext, Caller, Work
from compass_forged.sessions import SessionTable
from compass_forged.supervise import RestartPolicy, supervise
from compass_forged.wire.schema import Arm, ErrorResult, FaultFrame, ForgeCall, ReplyFrame, ResultArm, ResultFrame
from tests.support.core import (
    ONE_OF_EACH,
    PILOT,
    READ,
    SCOUT,
    WRITE,
    Logged,
    Script,
    ScriptedCaller,
    a_result,
    call_of,
    error_of,
    fault_of,
    logged,
    session_of,
    table_of,
    takes,
)

DEADLINES = CallDeadlines(read_seconds=15.0, write_seconds=30.0, grace_seconds=30.0)


@pytest.fixture(autouse=True)
def events() -> Iterator[Logged]:
    with logged() as events:
        yield events


@dataclass
class Asked:
    """One call that a test has under way: its reply, or how it was given up, and when."""

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    reply: ReplyFrame | None = None
    ended_at: float = math.nan
    ended: trio.Event = field(default_factory=trio.Event)


class Rig:
    """A running hub over a scripted caller, on the mock clock, which starts at 0."""

    def __init__(self, script: Script | None, nursery: trio.Nursery) -> None:
        self.sessions: SessionTable = table_of(session_of("c1", "s-1"), session_of("c2", "s-2", PILOT))
        self.counters = Counters()
        self.caller = ScriptedCaller(script)
        self.hub = Hub(self.sessions, counters=self.counters, deadlines=DEADLINES)
        self.hub.wire(self.caller)
        self.nursery = nursery

    def ask(self, arm: Arm = READ, session_id: str = "s-1", *, timeout_ms: int = 0, call_id: str = "1") -> Asked:
        """Start a call as a connection would."""
        asked = Asked()
        call = call_of(arm, call_id, timeout_ms=timeout_ms)

        async def run() -> None:
            try:
                with asked.scope:
                    asked.reply = await self.hub.relay(session_id, call)
            finally:
                asked.ended_at = trio.current_time()
                asked.ended.set()

        self.nursery.start_soon(run)
        return asked


@asynccontextmanager
async def rig(script: Script | None = None) -> AsyncIterator[Rig]:
    async with trio.open_nursery() as nursery:
        made = Rig(script, nursery)
        await nursery.start(made.hub.run)
        yield made
        nursery.cancel_scope.cancel()


def call_lines(events: Logged) -> Logged:
    return [event for event in events if event["event"] == "call"]


# --- the guards -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_id", ["s-1", "nobody", ""])
async def test_without_a_caller_everybody_hears_unavailable(session_id: str) -> None:
    class NeverAsked(SessionTable):
        asked = 0

        def resolve(self, session_id: str) -> None:
            NeverAsked.asked += 1

    hub = Hub(NeverAsked(), counters=Counters())
    with pytest.raises(Fault) as caught:
        hub._admit(session_id)
    assert caught.value.code == "unavailable"
    assert NeverAsked.asked == 0  # before any resolution; the log looks afterwards
    assert fault_of(await hub.relay(session_id, call_of())) == "unavailable"


async def test_an_unknown_session_is_not_found_and_nobody_is_called() -> None:
    async with rig() as made:
        assert fault_of(await made.hub.relay("nobody", call_of(call_id="x"))) == "not_found"
        assert made.caller.calls == []


async def test_a_session_that_ended_is_not_found_never_a_stale_account() -> None:
    async with rig() as made:
        made.sessions.unbind("c1")
        assert fault_of(await made.hub.relay("s-1", call_of())) == "not_found"
        assert made.caller.calls == []


async def test_an_unknown_session_hears_not_found_while_draining_too() -> None:
    async with rig() as made:
        await made.hub.drain(1)
        assert fault_of(await made.hub.relay("nobody", call_of())) == "not_found"
        assert fault_of(await made.hub.relay("s-1", call_of())) == "unavailable"


@pytest.mark.parametrize("arm", ONE_OF_EACH)
async def test_a_call_goes_on_under_the_resolved_account(arm: Arm) -> None:
    async with rig() as made:
        call = call_of(arm, "abc")
        reply = await made.hub.relay("s-2", call)
        assert reply == ResultFrame(call_id="abc", result=a_result())
        assert made.caller.calls == [(Caller(PILOT, "s-2", "c2"), call)]
        assert made.caller.contexts[0].container == "c2"


async def test_a_domain_failure_comes_back_in_band() -> None:
    async def refuses(_caller: Caller, _call: ForgeCall, _context: CallContext) -> ResultArm:
        await trio.lowlevel.checkpoint()
        return error_result(CallError("not_found", "no such artifact", outcome="rejected"))

    async with rig(refuses) as made:
        assert error_of(await made.hub.relay("s-1", call_of(WRITE))) == ("not_found", "rejected")


@pytest.mark.parametrize("arm", [READ, WRITE])
async def test_a_fault_of_the_caller_becomes_a_fault_frame(arm: Arm) -> None:
    async def faults(_caller: Caller, _call: ForgeCall, _context: CallContext) -> ResultArm:
        await trio.lowlevel.checkpoint()
        raise Fault("permission_denied", "nobody\nthere", retry_after_ms=5)

    async with rig(faults) as made:
        reply = await made.hub.relay("s-1", call_of(arm, "abc"))
        assert reply == FaultFrame(call_id="abc", code="permission_denied", message="nobody there", retry_after_ms=5)


@pytest.mark.parametrize("arm", [READ, WRITE])
@pytest.mark.parametrize("error", [ValueError("secret"), ExceptionGroup("g", [KeyError("secret")])])
async def test_an_unexpected_error_is_an_internal_fault_and_the_hub_lives(
    arm: Arm, error: Exception, events: Logged
) -> None:
    async def breaks(_caller: Caller, _call: ForgeCall, _context: CallContext) -> ResultArm:
        await trio.lowlevel.checkpoint()
        raise error

    async with rig(breaks) as made:
        reply = await made.hub.relay("s-1", call_of(arm))
        assert fault_of(reply) == "internal"
        assert "secret" not in str(reply)
        assert made.counters.total("internal_errors", where="hub") == 1
        assert sum(event["log_level"] == "error" for event in events) == 1
        made.caller.script = None
        assert isinstance(await made.hub.relay("s-1", call_of(arm)), ResultFrame)
        assert made.hub.in_flight == 0


# --- the table of deadlines -----------------------------------------------------------------------------------------


async def test_a_read_past_its_deadline_is_cancelled(autojump_clock: MockClock) -> None:
    async with rig(takes(100)) as made:
        asked = made.ask(READ)
        await asked.ended.wait()
        assert error_of(asked.reply) == ("deadline_exceeded", "")
        assert asked.ended_at == pytest.approx(15)
        assert made.caller.ended == ["cancelled"]


async def test_an_unsent_write_past_its_deadline_is_cancelled_and_says_not_sent(autojump_clock: MockClock) -> None:
    async with rig(takes(100)) as made:
        asked = made.ask(WRITE)
        await asked.ended.wait()
        assert error_of(asked.reply) == ("deadline_exceeded", "not_sent")
        assert asked.ended_at == pytest.approx(30)
        await wait_all_tasks_blocked()
        assert made.caller.ended == ["cancelled"]


async def test_a_deadline_that_passes_while_the_task_runs_comes_before_the_send(autojump_clock: MockClock) -> None:
    async def busy_until_late(_caller: Caller, _call: ForgeCall, context: CallContext) -> ResultArm:
        await trio.sleep(1)
        autojump_clock.jump(29.5)  # without a wait, in which trio would notice
        await context.guard.sending()
        raise AssertionError("it must not have been sent")

    async with rig(busy_until_late) as made:
        asked = made.ask(WRITE)
        await asked.ended.wait()
        assert error_of(asked.reply) == ("deadline_exceeded", "not_sent")
        assert made.caller.ended == ["cancelled"]


class _Ticking(trio.abc.Clock):
    """A clock that goes on by a fixed step whenever it is read, and stands otherwise."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self.step = step

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        self.now += self.step
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        self.now = max(self.now, min(deadline, self.now + 1000))
        return 0


@pytest.mark.parametrize("timeout_ms", range(2, 12))
def test_a_write_is_cancelled_before_its_send_or_not_at_all(timeout_ms: int) -> None:
    """Its deadline passes between any two looks at the clock."""

    async def send(_caller: Caller, call: ForgeCall, context: CallContext) -> ResultArm:
        await context.guard.sending()
        await trio.lowlevel.checkpoint()
        return a_result(call.call_id)

    async def scenario() -> None:
        async with rig(send) as made:
            reply = await made.hub.relay("s-1", call_of(WRITE, timeout_ms=timeout_ms))
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            assert made.hub.in_flight == 0
            sent = any(context.guard.sent for context in made.caller.contexts)
            assert made.caller.ended == (["ok"] if sent else ["cancelled"] if made.caller.calls else [])
            if isinstance(reply, ResultFrame) and isinstance(reply.result, ErrorResult):
                assert reply.result.outcome == ("unknown" if sent else "not_sent")

    trio.run(scenario, clock=_Ticking(0.001))


async def test_a_sent_write_past_its_deadline_is_unknown_and_goes_on(autojump_clock: MockClock) -> None:
    async with rig(takes(45, sends_after=29)) as made:
        asked = made.ask(WRITE)
        await asked.ended.wait()
        assert error_of(asked.reply) == ("deadline_exceeded", "unknown")
        assert asked.ended_at == pytest.approx(30)
        assert made.caller.ended == []
        assert made.hub.in_flight == 1
        await trio.sleep(14.9)
        assert made.caller.ended == []
        await trio.sleep(0.2)
        assert made.caller.ended == ["ok"]
        assert made.hub.in_flight == 0
        assert made.counters.total("late_writes", code="ok") == 1


async def test_a_sent_write_ends_with_its_grace(autojump_clock: MockClock) -> None:
    async with rig(takes(1000, sends_after=1)) as made:
        asked = made.ask(WRITE)
        await asked.ended.wait()
        await trio.sleep(29.9)  # deadline 30 + grace 30 = 60
        assert made.caller.ended == []
        await trio.sleep(0.2)
        assert made.caller.ended == ["cancelled"]
        assert made.hub.in_flight == 0
        assert made.counters.total("late_writes", code="unknown") == 1


@pytest.mark.parametrize(
    ("arm", "timeout_ms", "expected"),
    [(READ, 2_000, 2), (WRITE, 2_000, 2), (READ, 999_000, 15), (WRITE, 2**62, 30), (READ, 0, 15), (WRITE, 1, 0.001)],
)
async def test_a_timeout_lowers_the_deadline_and_never_raises_it(
    arm: Arm, timeout_ms: int, expected: float, autojump_clock: MockClock
) -> None:
    async with rig(takes(1000)) as made:
        asked = made.ask(arm, timeout_ms=timeout_ms)
        await asked.ended.wait()
        assert error_of(asked.reply)[0] == "deadline_exceeded"
        assert asked.ended_at == pytest.approx(expected)


async def test_the_grace_of_a_sent_write_follows_its_lowered_deadline(autojump_clock: MockClock) -> None:
    async with rig(takes(1000, sends_after=1)) as made:
        asked = made.ask(WRITE, timeout_ms=2_000)
        await asked.ended.wait()
        assert error_of(asked.reply) == ("deadline_exceeded", "unknown")
        await trio.sleep(29.9)
        assert made.caller.ended == []
        await trio.sleep(0.2)
        assert made.caller.ended == ["cancelled"]


async def test_an_answer_that_comes_in_time_is_the_answer(autojump_clock: MockClock) -> None:
    async with rig(takes(14, sends_after=1)) as made:
        read, write = made.ask(READ, call_id="r"), made.ask(WRITE, call_id="w")
        await read.ended.wait()
        await write.ended.wait()
        assert read.reply == ResultFrame(call_id="r", result=a_result("r"))
        assert write.reply == ResultFrame(call_id="w", result=a_result("w"))


@pytest.mark.parametrize("arm", [READ, WRITE])
async def test_a_disconnect_cancels_what_is_not_sent(arm: Arm, autojump_clock: MockClock) -> None:
    async with rig(takes(10)) as made:
        asked = made.ask(arm)
        await trio.sleep(1)
        asked.scope.cancel()
        await asked.ended.wait()
        await wait_all_tasks_blocked()
        assert made.caller.ended == ["cancelled"]
        assert trio.current_time() == pytest.approx(1)
        assert made.hub.in_flight == 0


async def test_a_write_that_is_given_up_never_gets_to_send(autojump_clock: MockClock) -> None:
    sent: list[bool] = []

    async def just_about_to(_caller: Caller, _call: ForgeCall, context: CallContext) -> ResultArm:
        with trio.CancelScope(shield=True):
            await trio.sleep(5)  # deaf until right before the first byte
        await context.guard.sending()
        sent.append(True)
        return a_result()

    async with rig(just_about_to) as made:
        asked = made.ask(WRITE)
        await trio.sleep(1)
        asked.scope.cancel()
        await trio.sleep(10)
        assert sent == []
        assert made.caller.ended == ["cancelled"]
        assert made.caller.contexts[0].guard.sent is False


async def test_a_sent_write_outlives_its_connection_and_is_recorded(autojump_clock: MockClock) -> None:
    async with rig(takes(10, sends_after=1)) as made:
        asked = made.ask(WRITE)
        await trio.sleep(2)
        asked.scope.cancel()
        await asked.ended.wait()
        assert asked.ended_at == pytest.approx(2)
        assert made.hub.in_flight == 1
        await trio.sleep(8.1)
        assert made.caller.ended == ["ok"]
        assert made.counters.total("late_writes", code="ok") == 1


async def test_a_sent_write_of_a_gone_connection_ends_within_its_grace(autojump_clock: MockClock) -> None:
    async with rig(takes(1000, sends_after=1)) as made:
        asked = made.ask(WRITE)
        await trio.sleep(2)
        asked.scope.cancel()
        await trio.sleep(57.9)
        assert made.caller.ended == []
        await trio.sleep(0.2)
        assert made.caller.ended == ["cancelled"]


@pytest.mark.parametrize("arm", [READ, WRITE])
async def test_unbinding_cancels_what_is_not_sent_and_leaves_other_sessions_alone(
    arm: Arm, autojump_clock: MockClock
) -> None:
    async with rig(takes(10)) as made:
        mine, other = made.ask(arm), made.ask(arm, "s-2")
        await trio.sleep(1)
        made.sessions.unbind("c1")
        made.hub.unbound("s-1")
        await mine.ended.wait()
        assert fault_of(mine.reply) == "permission_denied"
        assert mine.ended_at == pytest.approx(1)
        await other.ended.wait()
        assert isinstance(other.reply, ResultFrame)


async def test_unbinding_lets_a_sent_write_go_on_under_the_session_that_asked(
    autojump_clock: MockClock, events: Logged
) -> None:
    async with rig(takes(10, sends_after=1)) as made:
        asked = made.ask(WRITE)
        await trio.sleep(2)
        made.sessions.unbind("c1")
        made.hub.unbound("s-1")
        made.sessions.bind(session_of("c1", "s-9", PILOT))
        await asked.ended.wait()
        assert asked.reply == ResultFrame(call_id="1", result=a_result("1"))
        assert made.caller.calls[0][0] == Caller(SCOUT, "s-1", "c1")
        (line,) = call_lines(events)
        assert (line["session"], line["agent"], line["container"]) == ("s-1", "scout", "c1")


@pytest.mark.parametrize(("arm", "script"), [(READ, takes(19)), (WRITE, takes(19)), (WRITE, takes(19, sends_after=1))])
async def test_a_drain_lets_calls_finish(arm: Arm, script: Script, autojump_clock: MockClock) -> None:
    async with rig(script) as made:
        made.hub._limits = CallDeadlines(read_seconds=100, write_seconds=100)
        asked = made.ask(arm)
        await trio.sleep(0.5)
        assert await made.hub.drain(20) is True
        assert trio.current_time() == pytest.approx(19)  # not a moment longer
        await asked.ended.wait()
        assert asked.reply == ResultFrame(call_id="1", result=a_result("1"))


@pytest.mark.parametrize("arm", [READ, WRITE])
async def test_the_end_of_a_drain_cancels_what_was_not_sent(arm: Arm, autojump_clock: MockClock) -> None:
    async with rig(takes(100)) as made:
        made.hub._limits = CallDeadlines(read_seconds=100, write_seconds=100)
        asked = made.ask(arm)
        await trio.sleep(1)
        assert await made.hub.drain(20) is False
        await asked.ended.wait()
        assert fault_of(asked.reply) == "unavailable"
        assert asked.ended_at == pytest.approx(21)
        assert made.caller.ended == ["cancelled"]


async def test_the_end_of_a_drain_ends_a_sent_write_whose_outcome_is_then_unknown(
    autojump_clock: MockClock, events: Logged
) -> None:
    async with rig(takes(100, sends_after=0.5)) as made:
        made.hub._limits = CallDeadlines(write_seconds=100)
        asked = made.ask(WRITE)
        await trio.sleep(1)
        assert await made.hub.drain(20) is False
        await asked.ended.wait()
        assert error_of(asked.reply)[1] == "unknown"
        assert asked.ended_at == pytest.approx(21)
        assert [e["session"] for e in events if e["event"] == "a sent write did not end within the drain time"] == [
            "s-1"
        ]


async def test_a_drain_waits_for_sent_writes_whose_callers_have_gone(autojump_clock: MockClock) -> None:
    async with rig(takes(10, sends_after=1)) as made:
        asked = made.ask(WRITE)
        await trio.sleep(2)
        asked.scope.cancel()
        await asked.ended.wait()
        assert await made.hub.drain(20) is True
        assert trio.current_time() == pytest.approx(10)
        assert made.caller.ended == ["ok"]


async def test_a_stop_ends_sent_writes_now_and_refuses_new_calls(autojump_clock: MockClock) -> None:
    async with rig(takes(1000, sends_after=1)) as made:
        write, read, gone = made.ask(WRITE), made.ask(READ, call_id="2"), made.ask(WRITE, call_id="3")
        await trio.sleep(2)
        gone.scope.cancel()
        await gone.ended.wait()
        assert made.hub.in_flight == 3
        made.hub.stop()
        for asked in (write, read):
            await asked.ended.wait()
        await wait_all_tasks_blocked()
        assert trio.current_time() == pytest.approx(2)
        assert error_of(write.reply)[1] == "unknown"
        assert fault_of(read.reply) == "unavailable"
        assert made.caller.ended == ["cancelled"] * 3
        assert made.hub.in_flight == 0
        assert made.counters.total("late_writes", code="unknown") == 1
        assert fault_of(await made.hub.relay("s-1", call_of())) == "unavailable"
        made.hub.stop()  # again is fine


async def test_a_stop_ends_a_drain_that_waits(autojump_clock: MockClock) -> None:
    async with rig(takes(1000, sends_after=1)) as made:
        made.ask(WRITE)
        await trio.sleep(2)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(made.hub.drain, 20)
            await wait_all_tasks_blocked()
            made.hub.stop()
        assert trio.current_time() == pytest.approx(2)


async def test_a_draining_hub_refuses_new_calls_and_says_when_to_come_back(autojump_clock: MockClock) -> None:
    async with rig(takes(5)) as made:
        made.ask(READ)
        await trio.sleep(1)
        made.nursery.start_soon(made.hub.drain, 20)
        await wait_all_tasks_blocked()
        assert made.hub.draining
        reply = await made.hub.relay("s-1", call_of())
        assert fault_of(reply) == "unavailable"
        assert isinstance(reply, FaultFrame)
        assert reply.retry_after_ms > 0
        assert len(made.caller.calls) == 1


async def test_an_idle_hub_drains_at_once(autojump_clock: MockClock) -> None:
    async with rig() as made:
        assert await made.hub.drain(20) is True
        assert trio.current_time() == 0


async def test_a_drain_waits_however_many_calls_have_ended_before(autojump_clock: MockClock) -> None:
    async with rig(takes(5)) as made:
        for _ in range(2):
            asked = made.ask(READ)
            await asked.ended.wait()
        made.ask(READ)
        await trio.sleep(1)
        made.ask(WRITE)
        await wait_all_tasks_blocked()
        assert await made.hub.drain(20) is True
        assert trio.current_time() == pytest.approx(16)


async def test_two_drains_end_together(autojump_clock: MockClock) -> None:
    async with rig(takes(5)) as made:
        made.ask(READ)
        await wait_all_tasks_blocked()
        ended: list[float] = []

        async def drain() -> None:
            assert await made.hub.drain(20)
            ended.append(trio.current_time())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drain)
            nursery.start_soon(drain)
        assert ended == [pytest.approx(5), pytest.approx(5)]


# --- life and crash of the hub itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", [READ, WRITE])
async def test_a_hub_that_does_not_run_is_unavailable(arm: Arm) -> None:
    caller = ScriptedCaller()
    hub = Hub(table_of(session_of()), counters=Counters())
    hub.wire(caller)
    reply = await hub.relay("s-1", call_of(arm))
    assert fault_of(reply) == "unavailable"
    assert isinstance(reply, FaultFrame)
    assert reply.retry_after_ms > 0
    assert caller.calls == []


async def _crash() -> None:
    await trio.lowlevel.checkpoint()
    raise RuntimeError("injected")


async def test_a_crash_gives_up_unsent_writes_and_the_hub_comes_back(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        made = Rig(takes(10), nursery)
        nursery.start_soon(
            lambda: supervise("hub", made.hub.run, counters=made.counters, policy=RestartPolicy(first_seconds=1))
        )
        await wait_all_tasks_blocked()
        asked = made.ask(WRITE)
        await trio.sleep(1)
        assert made.hub._workers._nursery is not None
        made.hub._workers._nursery.start_soon(_crash)
        await asked.ended.wait()
        assert fault_of(asked.reply) == "unavailable"
        assert asked.ended_at == pytest.approx(1)
        assert made.caller.ended == ["cancelled"]
        assert fault_of(await made.hub.relay("s-1", call_of())) == "unavailable"
        await trio.sleep(1)  # the backoff
        again = made.ask(WRITE)
        await again.ended.wait()
        assert isinstance(again.reply, ResultFrame)
        assert made.counters.total("supervisor_restarts", task="hub") == 1
        nursery.cancel_scope.cancel()


async def test_a_crash_lets_sent_writes_end_and_answers_their_callers(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        made = Rig(takes(10, sends_after=1), nursery)
        nursery.start_soon(lambda: supervise("hub", made.hub.run, counters=made.counters))
        await wait_all_tasks_blocked()
        asked = made.ask(WRITE)
        await trio.sleep(2)
        assert made.hub._workers._nursery is not None
        made.hub._workers._nursery.start_soon(_crash)
        await wait_all_tasks_blocked()
        assert made.caller.ended == []
        await asked.ended.wait()
        assert asked.reply == ResultFrame(call_id="1", result=a_result("1"))
        assert made.caller.ended == ["ok"]
        await wait_all_tasks_blocked()  # the crash has been dealt with
        nursery.cancel_scope.cancel()


async def test_a_crash_ends_reads_and_says_when_to_come_back(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        made = Rig(takes(10), nursery)
        nursery.start_soon(lambda: supervise("hub", made.hub.run, counters=made.counters))
        await wait_all_tasks_blocked()
        asked = made.ask(READ)
        await trio.sleep(1)
        assert made.hub._workers._nursery is not None
        made.hub._workers._nursery.start_soon(_crash)
        await asked.ended.wait()
        assert fault_of(asked.reply) == "unavailable"
        assert isinstance(asked.reply, FaultFrame)
        assert asked.reply.retry_after_ms > 0
        assert asked.ended_at == pytest.approx(1)
        assert made.caller.ended == ["cancelled"]
        await wait_all_tasks_blocked()  # the crash has been dealt with
        nursery.cancel_scope.cancel()


async def test_after_a_crash_a_sent_write_is_still_answered_at_its_deadline(
    autojump_clock: MockClock, events: Logged
) -> None:
    async with trio.open_nursery() as nursery:
        made = Rig(takes(50, sends_after=1), nursery)
        nursery.start_soon(lambda: supervise("hub", made.hub.run, counters=made.counters))
        await wait_all_tasks_blocked()
        asked = made.ask(WRITE)
        await trio.sleep(2)
        assert made.hub._workers._nursery is not None
        made.hub._workers._nursery.start_soon(_crash)
        await asked.ended.wait()
        assert asked.ended_at == pytest.approx(30)
        assert error_of(asked.reply) == ("deadline_exceeded", "unknown")
        await trio.sleep(30)
        assert made.caller.ended == ["ok"]
        assert made.counters.total("late_writes", code="ok") == 1
        again = made.ask(WRITE)  # and the hub is back
        await again.ended.wait()
        assert error_of(again.reply) == ("deadline_exceeded", "unknown")
        nursery.cancel_scope.cancel()


async def test_a_crash_spares_nobody_who_is_parked_or_about_to_run(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        made = Rig(takes(10), nursery)
        nursery.start_soon(lambda: supervise("hub", made.hub.run, counters=made.counters))
        await wait_all_tasks_blocked()
        first = made.ask(READ)
        await first.ended.wait()  # its worker is parked
        running = made.ask(READ)
        await trio.sleep(1)
        pool = made.hub._workers._nursery
        assert pool is not None
        replies: list[ReplyFrame] = []
        pool.cancel_scope.cancel()  # what a crash does to the workers, before anything of it is seen
        for number in range(2):  # neither a parked worker nor a new one gets to its first wait
            assert made.hub.submit("s-1", call_of(call_id=str(number)), replies.append) is not None
        await running.ended.wait()
        await wait_all_tasks_blocked()
        assert fault_of(running.reply) == "unavailable"
        assert [fault_of(reply) for reply in replies] == ["unavailable"] * 2
        assert made.hub.in_flight == 0
        nursery.cancel_scope.cancel()


async def test_a_sent_write_whose_worker_breaks_is_unknown_not_to_be_tried_again() -> None:
    class Broken(BaseException):
        pass

    async def breaks(_caller: Caller, _call: ForgeCall, context: CallContext) -> ResultArm:
        await context.guard.sending()
        raise Broken

    replies: list[ReplyFrame] = []
    with pytest.RaisesGroup(Broken, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            made = Rig(breaks, nursery)
            await nursery.start(made.hub.run)
            made.hub.submit("s-1", call_of(WRITE), replies.append)
    assert [error_of(reply) for reply in replies] == [("deadline_exceeded", "unknown")]


@pytest.mark.parametrize("others", [[ValueError("a bug")], [ValueError("a bug"), KeyError("another")]])
async def test_errors_beside_a_cancellation_stay_within_their_call(
    others: list[Exception], autojump_clock: MockClock, events: Logged
) -> None:
    async def breaks(error: Exception) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise error

    async def works(_caller: Caller, call: ForgeCall, _context: CallContext) -> ResultArm:
        if call.call_id == "2":
            return a_result()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            for error in others:
                nursery.start_soon(breaks, error)
        raise AssertionError

    async with rig(works) as made:
        reply = await made.hub.relay("s-1", call_of(READ))
        assert fault_of(reply) == "internal"
        assert trio.current_time() == pytest.approx(DEADLINES.read_seconds)
        assert made.counters.total("internal_errors", where="hub") == 1
        assert isinstance(await made.hub.relay("s-1", call_of(READ, "2")), ResultFrame)


async def test_what_is_no_error_ends_the_hub_even_beside_a_cancellation(autojump_clock: MockClock) -> None:
    class Stop(BaseException):
        pass

    async def stops() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise Stop

    async def works(_caller: Caller, _call: ForgeCall, _context: CallContext) -> ResultArm:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(stops)
        raise AssertionError

    replies: list[ReplyFrame] = []
    with pytest.RaisesGroup(Stop, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            made = Rig(works, nursery)
            await nursery.start(made.hub.run)
            made.hub.submit("s-1", call_of(READ), replies.append)
    assert len(replies) == 1


async def test_cancelling_the_hub_waits_for_sent_writes_alone(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as connections:
        made = Rig(takes(10, sends_after=1), connections)
        unsent = Rig(takes(10), connections)
        async with trio.open_nursery() as nursery:
            await nursery.start(made.hub.run)
            await nursery.start(unsent.hub.run)
            made.ask(WRITE)
            unsent.ask(WRITE)
            await trio.sleep(2)
            nursery.cancel_scope.cancel()
        assert trio.current_time() == pytest.approx(10)
        assert made.caller.ended == ["ok"]
        assert unsent.caller.ended == ["cancelled"]


async def test_a_hub_that_is_cancelled_still_answers_for_sent_writes_at_their_deadline(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as connections:
        made = Rig(takes(50, sends_after=1), connections)
        async with trio.open_nursery() as nursery:
            await nursery.start(made.hub.run)
            asked = made.ask(WRITE)
            await trio.sleep(2)
            nursery.cancel_scope.cancel()
        assert trio.current_time() == pytest.approx(50)
        assert asked.ended_at == pytest.approx(30)
        assert error_of(asked.reply) == ("deadline_exceeded", "unknown")


# --- a call's life, step by step -------------------------------------------------------------------------------------


async def test_a_call_abandoned_before_its_worker_began_is_never_begun(events: Logged) -> None:
    async with rig() as made:
        replies: list[ReplyFrame] = []
        life = made.hub.submit("s-1", call_of(WRITE), replies.append)
        assert life is not None
        life.abandon()
        life.abandon()  # again is nothing
        await wait_all_tasks_blocked()
        assert made.caller.calls == []
        assert replies == []
        assert made.hub.in_flight == 0
        assert [line["code"] for line in call_lines(events)] == ["disconnected"]


async def test_a_call_unbound_before_its_worker_began_is_never_begun(events: Logged) -> None:
    async with rig() as made:
        replies: list[ReplyFrame] = []
        made.hub.submit("s-1", call_of(WRITE), replies.append)
        made.hub.unbound("s-1")
        await wait_all_tasks_blocked()
        assert made.caller.calls == []
        assert [fault_of(reply) for reply in replies] == ["permission_denied"]
        assert len(call_lines(events)) == 1


async def test_whoever_asked_is_told_before_the_log_is_written(events: Logged) -> None:
    lines: list[int] = []
    async with rig() as made:
        made.hub.submit("s-1", call_of(), lambda _reply: lines.append(len(call_lines(events))))
        made.hub.submit("nobody", call_of(), lambda _reply: lines.append(len(call_lines(events))))
        await wait_all_tasks_blocked()
    assert lines == [0, 1]  # the refused one at once, before its line; the other before its own
    assert len(call_lines(events)) == 2


async def test_an_answer_that_came_leaves_nothing_to_abandon(events: Logged) -> None:
    async with rig() as made:
        replies: list[ReplyFrame] = []
        life = made.hub.submit("s-1", call_of(), replies.append)
        await wait_all_tasks_blocked()
        assert life is not None
        life.abandon()
        assert len(replies) == len(call_lines(events)) == 1


async def test_a_sent_write_is_answered_once_and_logged_late_once(autojump_clock: MockClock, events: Logged) -> None:
    async with rig(takes(40, sends_after=1)) as made:
        replies: list[ReplyFrame] = []
        life = made.hub.submit("s-1", call_of(WRITE), replies.append)
        assert life is not None
        await trio.sleep(35)
        assert [error_of(reply) for reply in replies] == [("deadline_exceeded", "unknown")]
        life.abandon()  # the connection goes afterwards
        made.hub.unbound("s-1")
        await trio.sleep(10)
        assert len(replies) == 1
        assert len(call_lines(events)) == 1
        late = [event for event in events if event["event"] == "a write ended after its caller had gone"]
        assert [event["code"] for event in late] == ["ok"]


# --- what needs no waiting ------------------------------------------------------------------------------------------


def refuses(call: ForgeCall) -> ResultArm:
    raise Fault("permission_denied", "nobody")


def breaks(call: ForgeCall) -> ResultArm:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(
    ("at_once", "code"),
    [(lambda call: a_result(call.call_id), "ok"), (refuses, "fault:permission_denied"), (breaks, "fault:internal")],
)
async def test_what_needs_no_waiting_is_answered_before_submit_returns(
    at_once: Callable[[ForgeCall], ResultArm], code: str, events: Logged
) -> None:
    async with rig() as made:
        made.caller.at_once = at_once
        replies: list[ReplyFrame] = []
        assert made.hub.submit("s-1", call_of(WRITE), replies.append) is None
        (reply,) = replies
        assert (f"fault:{reply.code}" if isinstance(reply, FaultFrame) else "ok") == code
        assert made.hub.in_flight == 0
        assert len(made.hub._deadlines) == 0
        (line,) = call_lines(events)
        assert (line["code"], line["session"], line["container"]) == (code, "s-1", "c1")
        assert made.counters.total("calls", code=code) == 1
        assert made.counters.total("internal_errors", where="hub") == (1 if code == "fault:internal" else 0)
        assert await made.hub.drain(1)  # nothing is left to wait for


async def test_a_drain_is_not_woken_by_what_was_answered_at_once(autojump_clock: MockClock) -> None:
    async with rig(takes(5)) as made:
        waiting = made.ask(READ)
        await wait_all_tasks_blocked()
        made.caller.at_once = lambda call: a_result(call.call_id)
        assert isinstance(await made.hub.relay("s-1", call_of(READ, "2")), ResultFrame)
        assert made.hub.in_flight == 1
        assert await made.hub.drain(20)
        assert trio.current_time() == pytest.approx(5)
        await waiting.ended.wait()
        assert isinstance(waiting.reply, ResultFrame)


async def test_a_late_write_that_ends_in_a_fault_is_logged_with_its_code(
    autojump_clock: MockClock, events: Logged
) -> None:
    async def faults(_caller: Caller, _call: ForgeCall, context: CallContext) -> ResultArm:
        await context.guard.sending()
        await trio.sleep(40)
        raise Fault("not_found", "gone")

    async with rig(faults) as made:
        made.ask(WRITE)
        await trio.sleep(50)
        assert made.counters.total("late_writes", code="fault:not_found") == 1


async def test_deadlines_of_calls_that_have_ended_do_not_pile_up(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEEP_AT", 10)
    async with rig(takes(0, sends_after=0)) as made:
        for _ in range(100):
            await made.hub.relay("s-1", call_of(WRITE))
            assert len(made.hub._deadlines._heap) <= 13
        assert len(made.hub._deadlines) == 0
        made.caller.script = takes(40, sends_after=0)
        asked = made.ask(WRITE)  # after many sweeps the next deadline is still kept
        await asked.ended.wait()
        assert error_of(asked.reply) == ("deadline_exceeded", "unknown")
        assert asked.ended_at == pytest.approx(30)


async def test_a_sooner_deadline_among_sent_writes_is_kept(autojump_clock: MockClock) -> None:
    async with rig(takes(100, sends_after=0)) as made:
        slow = made.ask(WRITE)
        await trio.sleep(1)
        quick = made.ask(WRITE, timeout_ms=2000, call_id="2")
        await quick.ended.wait()
        assert quick.ended_at == pytest.approx(3)
        await slow.ended.wait()
        assert slow.ended_at == pytest.approx(30)


# --- the log --------------------------------------------------------------------------------------------------------


async def test_each_call_is_logged_once_at_its_end(autojump_clock: MockClock, events: Logged) -> None:
    async def works(_caller: Caller, _call: ForgeCall, context: CallContext) -> ResultArm:
        context.coordinate = "github:github.com/acme/site"
        context.forge_requests = 3
        await trio.sleep(0.25)
        return a_result()

    async with rig(works) as made:
        await made.hub.relay("s-1", call_of(WRITE))
    (line,) = call_lines(events)
    assert line == {
        "event": "call",
        "log_level": "info",
        "container": "c1",
        "session": "s-1",
        "agent": "scout",
        "arm": "comment_on_issue",
        "coordinate": "github:github.com/acme/site",
        "code": "ok",
        "outcome": "",
        "ms": 250.0,
        "forge_requests": 3,
    }
    assert made.counters.total("calls", arm="comment_on_issue", code="ok") == 1


async def _leave(made: Rig, asked: Asked) -> None:
    await trio.sleep(2)
    asked.scope.cancel()


async def _wait(made: Rig, asked: Asked) -> None:
    await asked.ended.wait()


@pytest.mark.parametrize(
    ("arm", "script", "then", "code", "outcome"),
    [
        (READ, takes(1), _wait, "ok", ""),
        (READ, takes(99), _wait, "deadline_exceeded", ""),
        (WRITE, takes(99), _wait, "deadline_exceeded", "not_sent"),
        (WRITE, takes(99, sends_after=1), _wait, "deadline_exceeded", "unknown"),
        (READ, takes(99), _leave, "disconnected", ""),
        (WRITE, takes(99), _leave, "disconnected", ""),
        (WRITE, takes(99, sends_after=1), _leave, "disconnected", ""),
    ],
)
async def test_however_a_call_ends_it_has_one_line_and_one_count(
    arm: Arm,
    script: Script,
    then: Callable[[Rig, Asked], Awaitable[None]],
    code: str,
    outcome: str,
    autojump_clock: MockClock,
    events: Logged,
) -> None:
    async with rig(script) as made:
        asked = made.ask(arm)
        await then(made, asked)
        await trio.sleep(1000)  # whatever goes on has ended
        (line,) = call_lines(events)
        assert (line["code"], line["outcome"], line["agent"]) == (code, outcome, "scout")
        assert made.counters.total("calls") == 1
        assert made.hub.in_flight == 0


async def test_a_fault_is_logged_with_its_code(events: Logged) -> None:
    async with rig() as made:
        await made.hub.relay("nobody", call_of())
        (line,) = call_lines(events)
        assert (line["code"], line["session"], line["agent"]) == ("fault:not_found", "nobody", "")


async def test_no_line_holds_a_body(autojump_clock: MockClock, events: Logged) -> None:
    async with rig(takes(99, sends_after=1)) as made:
        made.ask(WRITE)
        await trio.sleep(1000)
    assert "hello" not in str(events)


def test_a_faults_message_is_made_safe() -> None:
    frame = fault_frame(Fault("internal", "at /home/x/y\n!", retry_after_ms=2), "9")
    assert frame == FaultFrame(call_id="9", code="internal", message="at [path] !", retry_after_ms=2)


# --- what is left of a call -----------------------------------------------------------------------------------------


class _Ends(enum.Enum):
    AT_ONCE = enum.auto()
    LATER = enum.auto()
    FAULT = enum.auto()
    DEADLINE = enum.auto()
    ABANDONED = enum.auto()
    CANCELLED = enum.auto()


@pytest.mark.parametrize("how", _Ends)
async def test_a_call_that_has_ended_is_let_go_without_the_garbage_collector(
    how: _Ends, autojump_clock: MockClock
) -> None:
    class Service:
        def begin(self, _caller: Caller, _call: ForgeCall, context: CallContext) -> ResultArm | Work:
            if how is _Ends.AT_ONCE:
                return a_result()

            async def work() -> ResultArm:
                if how is not _Ends.CANCELLED:
                    await context.guard.sending()
                if how is _Ends.FAULT:
                    raise Fault("unavailable", "x")
                await trio.sleep(1 if how is _Ends.LATER else 70)
                return a_result()

            return work

    async with trio.open_nursery() as nursery:
        hub = Hub(table_of(session_of()), counters=Counters())
        hub.wire(Service())
        await nursery.start(hub.run)
        for _ in range(2):  # the first leaves a worker behind, and what it keeps for good
            call = call_of(WRITE, "held")
            gc.collect()
            gc.disable()
            try:
                before = sys.getrefcount(call)
                replies: list[ReplyFrame] = []
                life = hub.submit("s-1", call, replies.append)
                if how in {_Ends.ABANDONED, _Ends.CANCELLED}:
                    await trio.sleep(0.5)
                    assert life is not None
                    life.abandon()
                await trio.sleep(100)
                del life
                assert len(replies) == (how not in {_Ends.ABANDONED, _Ends.CANCELLED})
                assert hub.in_flight == 0
                assert sys.getrefcount(call) == before
            finally:
                gc.enable()
        nursery.cancel_scope.cancel()
