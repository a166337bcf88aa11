"""Replays of the cases about deadlines, cancellation and broken transports."""

import gc
import gzip
import json
import signal
import warnings
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from compass_forged.agent import connect
from compass_forged.agent.errors import AgentError
from compass_forged.config import Limits
from compass_forged.errors import RateLimited
from compass_forged.ports import CallContext
from compass_forged.providers.fake import FakeProvider, Step
from compass_forged.providers.github import GitHubProvider
from compass_forged.providers.http import CONCURRENCY_MAX, HttpTransport
from compass_forged.wire.schema import (
    Arm,
    CommentOnIssue,
    CommentRef,
    CreateIssue,
    FaultFrame,
    GetIssue,
    Issue,
    IssueCommentResult,
    IssueResult,
    IssuesResult,
    ListIssues,
    ResultFrame,
)
from tests.support.cases import (
    Case,
    Desk,
    RawForge,
    Running,
    github_at,
    http_answer,
    never,
    raw_forge,
    refused,
    running,
)
from tests.support.core import RawClient, call_of, logged
from tests.support.forge_http import RecordingGuard, comment_json, issue_json
from tests.support.host import until
from tests.support.service import WatchedStore, raising, waiting
from tests.support.world import DaemonProcess, Place, place

READ = GetIssue(repo="acme/site", issue_number=7)
COMMENT = CommentOnIssue(repo="acme/site", issue_number=7, body="hello")
CREATE = CreateIssue(repo="acme/site", title="t")
LISTING = ListIssues(repo="acme/site")
_SHORT_DRAIN = Limits(drain_seconds=0.05)


async def at_rest(daemon: Running, github: GitHubProvider, transport: HttpTransport, forge: RawForge) -> None:
    """Nothing is left of what was cancelled: no call, no place in the gate, no slot, no connection, no creation."""
    await daemon.idle()
    await forge.deserted()
    gate = github.http.gate.statistics()
    assert (gate.in_flight, gate.waiting) == (0, {})
    assert all(found.in_flight == 0 for found in gate.budget.resources)
    assert (transport.free_slots, transport.idle_connections) == (CONCURRENCY_MAX, 0)
    assert daemon.counters.total("internal_errors") == 0


# --- cancelled at every stage ---------------------------------------------------------------------------------------

_Way: TypeAlias = Callable[[Running, RawClient, int], Awaitable[None]]


async def _hangs_up(_daemon: Running, client: RawClient, _count: int) -> None:
    await client.stream.aclose()


async def _is_unbound(daemon: Running, client: RawClient, count: int) -> None:
    await daemon.control(lambda control: control.unbind_session("c1"))
    for reply in (await client.replies(count)).values():
        assert isinstance(reply, FaultFrame)
        assert reply.code == "permission_denied"
    await client.stream.aclose()


async def _ends_with_the_daemon(daemon: Running, client: RawClient, count: int) -> None:
    daemon.drain()
    for reply in (await client.replies(count)).values():
        assert isinstance(reply, FaultFrame)
        assert reply.code == "unavailable"
    await client.stream.aclose()


_WAYS: tuple[_Way, ...] = (_hangs_up, _is_unbound, _ends_with_the_daemon)


def read_of(number: int) -> GetIssue:
    """A read that no other shares."""
    return GetIssue(repo="acme/site", issue_number=100 + number)


def listing_of(number: int) -> ListIssues:
    """A listing that no other shares."""
    return ListIssues(repo="acme/site", labels=[f"label-{number}"])


async def cancelled_while_waiting(_case: Case) -> None:
    """Calls that wait for the forge or for their turn end whole; a write that waits never goes out."""
    for end in _WAYS:
        async with raw_forge(never) as forge, github_at(forge.port) as (github, transport):
            async with running(github, limits=_SHORT_DRAIN) as daemon:
                client = await daemon.connect()
                reads, writes = CONCURRENCY_MAX + 4, 4
                await client.send(*(call_of(read_of(number), f"r{number}") for number in range(reads)))
                await until(lambda: len(forge.seen) == CONCURRENCY_MAX)
                await client.send(*(call_of(COMMENT, f"w{number}") for number in range(writes)))
                await until(lambda: sum(github.http.gate.statistics().waiting.values()) == 8)
                await end(daemon, client, reads + writes)
                if end is not _ends_with_the_daemon:
                    await at_rest(daemon, github, transport, forge)
            assert len(forge.seen) == CONCURRENCY_MAX
            assert github.http.gate.statistics().budget.creations_last_hour == 0
            assert transport.free_slots == CONCURRENCY_MAX
            await forge.deserted()


async def cancelled_in_connect(_case: Case) -> None:
    """So do calls whose connection is still being made: a server that never says its part of the TLS handshake."""
    arms: tuple[Arm, ...] = (READ, LISTING, COMMENT, CREATE)
    try:
        for end in _WAYS:
            async with raw_forge(never) as forge, github_at(forge.port, scheme="https") as (github, transport):
                async with running(github, limits=_SHORT_DRAIN) as daemon:
                    client = await daemon.connect()
                    await client.send(*(call_of(arm, str(number)) for number, arm in enumerate(arms)))
                    await until(lambda: forge.open == len(arms))
                    await end(daemon, client, len(arms))
                    with trio.fail_after(1):
                        await forge.deserted()
                    if end is not _ends_with_the_daemon:
                        await at_rest(daemon, github, transport, forge)
                assert forge.seen == []
                assert github.http.gate.statistics().budget.creations_last_hour == 0
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()  # sockets that a failed replay leaves open must not be told of another test


async def cancelled_in_reply(_case: Case) -> None:
    """A client that goes while its reply is being written: what it asked for is done and kept, others are served."""
    forge = FakeProvider(body_limit=0)
    async with running(forge) as daemon:
        client = await daemon.connect()
        create = CreateIssue(repo="acme/site", title="t", body="x" * 900_000)
        await client.send(call_of(create, "1", key="k-1"))
        await until(lambda: forge.count() == 1)
        await daemon.idle()
        assert await client.stream.receive_some(1)  # the reply has begun, and no socket takes it whole
        await client.stream.aclose()
        again = await daemon.connect()
        async with again.stream:
            await again.send(call_of(create, "2", key="k-1"))
            reply = await again.reply()
        assert isinstance(reply, ResultFrame)
        assert isinstance(reply.result, IssueResult)
        assert (reply.result.issue.replayed, forge.count()) == (True, 1)
        assert daemon.counters.total("internal_errors") == 0


class _Shield(RecordingGuard):
    """From ``sending`` on, the scope is shielded: what the hub does for a write."""

    def __init__(self, scope: trio.CancelScope) -> None:
        super().__init__()
        self._scope = scope

    async def sending(self) -> None:
        await super().sending()
        self._scope.shield = True


async def cancelled_anywhere(_case: Case) -> None:
    """A keyed create that is cancelled at any moment: what stands on the forge is in the index, and the same key never
    makes a second one."""
    for tenths in range(1, 50, 2):
        forge, store = FakeProvider(), WatchedStore([])
        forge.script("create_issue", Step(before=1, after=1))
        store.hooks["memo"].append(waiting(1))
        store.hooks["record"].append(waiting(1))
        desk = Desk(forge, store)
        with trio.move_on_after(tenths / 10), trio.CancelScope() as own:
            await desk.ask(CREATE, "k-1", guard=_Shield(own))
        assert len(store.recorded) == len(forge.issues) == int(tenths > 20), tenths
        store.hooks.clear()
        again = await desk.ask(CREATE, "k-1")
        assert isinstance(again, IssueResult)
        assert again.issue.replayed is (tenths > 20)
        assert len(forge.issues) == 1


# --- errors at the deadline -----------------------------------------------------------------------------------------


class _Breaks(FakeProvider):
    """A forge whose adapter fails while it is cancelled, in the way that ``fail`` says."""

    def __init__(self, fail: Callable[[], None]) -> None:
        super().__init__()
        self._fail = fail

    async def get_issue(self, arm: GetIssue, context: CallContext) -> Issue:
        async with trio.open_nursery() as nursery:  # the failure comes out in a group, beside Cancelled
            nursery.start_soon(self._wait)
            nursery.start_soon(trio.sleep_forever)
        return await super().get_issue(arm, context)

    async def list_issues(self, arm: ListIssues, context: CallContext) -> IssuesResult:
        await self._wait()
        return await super().list_issues(arm, context)

    async def comment_on_issue(self, arm: CommentOnIssue, context: CallContext) -> CommentRef:
        await self._wait()
        return await super().comment_on_issue(arm, context)

    async def _wait(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._fail()


async def errors_at_the_deadline(_case: Case) -> None:
    """An error that is raised just as the deadline cancels the call is answered and logged, and nothing swallows it."""

    def bug() -> None:
        raise RuntimeError("a bug")

    with logged() as events:
        async with running(_Breaks(bug)) as daemon:
            client = await daemon.connect()
            async with client.stream:
                for arm, place in ((LISTING, "service"), (COMMENT, "service"), (READ, "hub")):
                    before = daemon.counters.total("internal_errors", where=place)
                    await client.send(call_of(arm, "1", timeout_ms=20))
                    reply = await client.reply()
                    if arm is COMMENT:  # two tasks see the deadline; either may be the first
                        assert refused(reply).code in {"internal", "deadline_exceeded"}
                        assert refused(reply).outcome == "not_sent"
                    elif arm is READ:  # a group that holds Cancelled passes the service; above it, errors are faults
                        assert isinstance(reply, FaultFrame)
                        assert reply.code == "internal"
                    else:
                        assert refused(reply).code == "internal"
                    await daemon.idle()
                    assert daemon.counters.total("internal_errors", where=place) == before + 1
    failures = [event for event in events if event["event"].startswith("unexpected error")]
    assert [(event["log_level"], bool(event["exc_info"])) for event in failures] == [("error", True)] * 3


async def store_error_at_the_deadline(_case: Case) -> None:
    """A store that breaks at the very moment of the deadline, after the forge's yes, and goes on breaking: the artifact
    is told, the loss is logged with its error."""
    for late in (0, 1):
        store = WatchedStore([])

        async def breaks(late: int = late) -> None:
            await trio.sleep(5 + late)
            raise RuntimeError("a bug")

        store.hooks["record"].extend([breaks] * 10)
        desk = Desk(FakeProvider(), store)
        with logged() as events, trio.move_on_after(5):
            made = await desk.ask(CREATE, "k-1")
            assert isinstance(made, IssueResult)
        (lost,) = [event for event in events if event["event"] == "artifact could not be recorded"]
        assert isinstance(lost["exc_info"], RuntimeError)
        assert desk.counters.total("records_lost") == 1


async def forge_error_at_the_deadline(_case: Case) -> None:
    """The same before the forge's yes: the error is answered, and its own code kept where it has one."""
    for arm, operation in ((READ, "get_issue"), (COMMENT, "comment_on_issue"), (CREATE, "create_issue")):
        for error, code in (
            (RuntimeError("a bug"), "internal"),
            (RateLimited(30, "the limit", outcome="rejected"), "resource_exhausted"),
        ):
            forge = FakeProvider()
            forge.script(operation, Step(before=5, error=error))
            desk = Desk(forge)
            with logged() as events, trio.move_on_after(5) as deadline:
                deadline.deadline += 1e-9  # the error comes first, in the same tick of the clock
                assert refused(await desk.ask(arm, "k-1")).code == code
            failures = [event for event in events if event["event"] == "unexpected error in the service"]
            assert len(failures) == int(code == "internal")
    store = WatchedStore([])
    store.hooks["memo"].append(raising(RuntimeError("a bug")))
    forge = FakeProvider()
    assert refused(await Desk(forge, store).ask(CREATE, "k-1")).outcome == "not_sent"
    assert forge.calls == []


# --- deadlines ------------------------------------------------------------------------------------------------------


async def clients_that_never_cancel(case: Case) -> None:
    """Each call is ended by its own deadline, whether or not anybody still waits for it."""
    assert "50 calls with deadline_ms=200" in case.input["steps"][0]
    async with raw_forge(never) as forge, github_at(forge.port) as (github, transport), running(github) as daemon:
        client = await daemon.connect()
        async with client.stream:
            arms = [listing_of(n) if n % 2 else read_of(n) for n in range(50)]
            await client.send(*(call_of(arm, str(n), timeout_ms=200) for n, arm in enumerate(arms)))
            await until(lambda: len(forge.seen) == CONCURRENCY_MAX)
            await at_rest(daemon, github, transport, forge)  # before a single reply was read
            replies = await client.replies(50)
            assert {refused(reply).code for reply in replies.values()} == {"deadline_exceeded"}


async def writes_that_outlive_their_deadline(_case: Case) -> None:
    """A write that is out is answered at its deadline and goes on; its place is free once the forge has answered."""
    let_go = trio.Event()

    async def late(stream: trio.SocketStream, _method: str, _path: str) -> None:
        await let_go.wait()
        await stream.send_all(http_answer(comment_json(1), 201))

    async with raw_forge(late) as forge, github_at(forge.port) as (github, transport), running(github) as daemon:
        client = await daemon.connect()
        await client.send(*(call_of(COMMENT, str(number), timeout_ms=100) for number in range(5)))
        for reply in (await client.replies(5)).values():
            assert (refused(reply).code, refused(reply).outcome) == ("deadline_exceeded", "unknown")
        await client.stream.aclose()
        assert (await daemon.status()).calls_in_flight == github.http.gate.statistics().in_flight == 5
        let_go.set()
        await daemon.idle()
        assert daemon.counters.total("late_writes", code="ok") == len(forge.seen) == 5
        assert (transport.free_slots, github.http.gate.statistics().in_flight) == (CONCURRENCY_MAX, 0)


async def dripping_answers(_case: Case) -> None:
    """An answer that comes byte by byte does not outlast the call's deadline, and keeps nobody else waiting longer."""

    async def drip(stream: trio.SocketStream, _method: str, path: str) -> None:
        if path.endswith("/8"):
            await stream.send_all(http_answer(issue_json(8)))
            return
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n")
        for _ in range(10_000):
            await stream.send_all(b" ")
            await trio.sleep(0.01)

    async with (
        raw_forge(drip) as forge,
        github_at(forge.port) as (github, transport),
        running(github, limits=_SHORT_DRAIN) as daemon,
    ):
        client, other = await daemon.connect(), await daemon.connect("c2")
        async with client.stream, other.stream:
            await client.send(*(call_of(read_of(number), str(number), timeout_ms=200) for number in range(20)))
            await until(lambda: len(forge.seen) == CONCURRENCY_MAX)
            began = trio.current_time()
            await other.send(call_of(GetIssue(repo="acme/site", issue_number=8)))
            reply = await other.reply()
            assert isinstance(reply, ResultFrame)
            assert isinstance(reply.result, IssueResult)
            assert trio.current_time() - began < 5  # not the 100 seconds that an answer takes to come
            replies = await client.replies(20)
            assert {refused(reply).code for reply in replies.values()} == {"deadline_exceeded"}
            await daemon.idle()
            await until(lambda: forge.open == transport.idle_connections == 1)  # the good one's is kept
            assert transport.free_slots == CONCURRENCY_MAX

            await client.send(call_of(COMMENT, "w", timeout_ms=100))
            error = refused(await client.reply())
            assert (error.code, error.outcome) == ("deadline_exceeded", "unknown")


async def slow_reader(_case: Case) -> None:
    """A client that sends and never reads has few calls under way, then none is read from it, then it is dropped; and
    nobody else notices."""
    forge = FakeProvider(body_limit=0)
    limits = Limits(send_seconds=0.3, calls_per_connection=16)
    async with running(forge, limits=limits) as daemon:
        other = await daemon.connect("c2")
        async with other.stream:
            await other.send(call_of(CreateIssue(repo="acme/site", title="t", body="x" * 500_000)))
            assert isinstance(await other.reply(), ResultFrame)
            client = await daemon.connect()
            async with trio.open_nursery() as nursery:

                async def flood() -> None:
                    try:
                        for number in range(1000):
                            await client.send(call_of(LISTING, str(number)))
                    except trio.BrokenResourceError:
                        return  # dropped before all of it was taken

                flooding = nursery.cancel_scope
                nursery.start_soon(flood)
                await until(lambda: daemon.counters.total("calls", code="ok") > 2)
                asked = 0
                while not daemon.counters.total("clients_dropped"):
                    await other.send(call_of(GetIssue(repo="acme/site", issue_number=99), "o"))
                    assert refused(await other.reply()).code == "not_found"
                    asked += 1
                    await trio.sleep(0.005)
                flooding.cancel()
            assert asked > 0
            assert forge.count("list_issues") <= 2 * 16 + 4  # in flight, and what fills the outbox
            await client.stream.aclose()


# --- broken transports ----------------------------------------------------------------------------------------------

BREAKS: dict[str, bytes] = {
    "server closes after headers": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n",
    "server sends 'HTTP/1.1 200 OK\\r\\nContent-Length: 100\\r\\n\\r\\n{\"a\"' then closes": (
        b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"a"'
    ),
    "garbage status line": b"\x00\xffGARBAGE 99 \r\n\r\n",
    "invalid chunk size": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "header line 200 kB": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
    "gzip header with corrupt body": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n{}{}",
}
_MORE_BREAKS: tuple[bytes, ...] = (
    b"",
    b"HTTP/1.1",
    b"SSH-2.0-OpenSSH_9.9\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"{}" * 1000)[:-9],
)


async def broken_answers(case: Case) -> None:
    """However an answer breaks, a read is unavailable and a write's outcome unknown; the connection lives."""
    assert set(case.input["variants"]) == BREAKS.keys()
    breaks = (*BREAKS.values(), *_MORE_BREAKS)

    async def broken(stream: trio.SocketStream, _method: str, path: str) -> None:
        number = int(path.removesuffix("/comments").rpartition("/")[2])
        await stream.send_all(breaks[number - 1])
        await stream.aclose()

    async with raw_forge(broken) as forge, github_at(forge.port) as (github, transport), running(github) as daemon:
        client = await daemon.connect()
        async with client.stream:
            for number in range(1, len(breaks) + 1):
                forge.seen.clear()
                await client.send(
                    call_of(GetIssue(repo="acme/site", issue_number=number), "read"),
                    call_of(CommentOnIssue(repo="acme/site", issue_number=number, body="b"), "write"),
                )
                replies = await client.replies(2)
                shown = breaks[number - 1][:60]
                assert refused(replies["read"]).code == "unavailable", shown
                write = refused(replies["write"])
                assert (write.code in {"unavailable", "internal"}, write.outcome) == (True, "unknown"), shown
                methods = [method for method, _ in forge.seen]
                assert (methods.count("GET"), methods.count("POST")) == (3, 1), shown
        await at_rest(daemon, github, transport, forge)


async def answers_cut_anywhere(_case: Case) -> None:
    """An answer that is cut at any byte is no answer, to a read and to a write."""
    whole = {"GET": http_answer(issue_json(7)), "POST": http_answer(comment_json(1), 201)}
    cut = 0

    async def cut_off(stream: trio.SocketStream, method: str, _path: str) -> None:
        await stream.send_all(whole[method][:cut])
        await stream.aclose()

    async with raw_forge(cut_off) as forge, github_at(forge.port) as (github, _):
        desk = Desk(github)
        for cut in range(len(whole["POST"])):
            error = refused(await desk.ask(COMMENT))
            assert (error.code in {"unavailable", "internal"}, error.outcome) == (True, "unknown"), cut
        head = whole["GET"].index(b"{")
        for cut in (*range(head + 1), *range(head + 1, len(whole["GET"]), 16)):
            assert refused(await desk.ask(READ)).code == "unavailable", cut
        cut = len(whole["GET"])
        assert isinstance(await desk.ask(READ), IssueResult)
        assert isinstance(await desk.ask(COMMENT), IssueCommentResult)
        await forge.deserted()


async def failures_keep_their_kind(_case: Case) -> None:
    """Through all the nurseries of a daemon, and beside calls that are cancelled, each failure keeps its code."""
    limit = json.dumps({"message": "You have exceeded a secondary rate limit."}).encode()

    async def answers(stream: trio.SocketStream, method: str, path: str) -> None:
        if "/7" in path:
            await never(stream, method, path)
        head = b"HTTP/1.1 403 Forbidden\r\nRetry-After: 30\r\nContent-Length: %d\r\n\r\n" % len(limit)
        await stream.send_all(head + limit)

    slow: tuple[Arm, ...] = (READ, COMMENT)
    async with (
        raw_forge(answers) as forge,
        github_at(forge.port) as (github, _),
        running(github, limits=_SHORT_DRAIN) as daemon,
    ):
        client, leaver = await daemon.connect(), await daemon.connect()
        async with client.stream:
            await leaver.send(call_of(GetIssue(repo="acme/site", issue_number=70), "leaves"))  # no read that is shared
            await client.send(*(call_of(arm, f"slow{n}", timeout_ms=150) for n, arm in enumerate(slow)))
            await until(lambda: len(forge.seen) == 3)
            await leaver.stream.aclose()
            await client.send(call_of(LISTING, "limited"))
            replies = await client.replies(3)
            assert {name: refused(reply).code for name, reply in replies.items()} == {
                "slow0": "deadline_exceeded",
                "slow1": "deadline_exceeded",
                "limited": "resource_exhausted",
            }
        assert daemon.counters.total("internal_errors") == 0

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    closed_port = listeners[0].socket.getsockname()[1]
    await listeners[0].aclose()

    async def hangs_up(stream: trio.SocketStream) -> None:
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, hangs_up, 0)
        no_tls_port = listeners[0].socket.getsockname()[1]
        for scheme, port in (("http", closed_port), ("https", closed_port), ("https", no_tls_port)):
            async with github_at(port, scheme=scheme) as (github, _), running(github) as daemon:
                client = await daemon.connect()
                async with client.stream:
                    arms: tuple[Arm, ...] = (READ, LISTING, COMMENT, CREATE)
                    await client.send(*(call_of(arm, str(n)) for n, arm in enumerate(arms)))
                    errors = {name: refused(reply) for name, reply in (await client.replies(4)).items()}
                    assert {error.code for error in errors.values()} == {"unavailable"}
                    assert [errors[name].outcome for name in "0123"] == ["", "", "not_sent", "not_sent"]
                assert daemon.counters.total("internal_errors") == 0
        nursery.cancel_scope.cancel()


# --- a process ------------------------------------------------------------------------------------------------------


async def sigterm_under_load(_case: Case) -> None:
    """SIGTERM with calls in flight: those that end in time are answered, the others are told that the daemon stops; it
    exits 0, and leaves no traceback."""
    for in_time in (False, True):
        let_go = trio.Event()

        async def answers(stream: trio.SocketStream, _method: str, path: str, let_go: trio.Event = let_go) -> None:
            await let_go.wait()
            number = path.rpartition("/")[2]
            await stream.send_all(http_answer(issue_json(int(number) if number.isdigit() else 7)))

        with place() as where:
            async with raw_forge(answers) as forge:
                drain = 20 if in_time else 0.2
                where.configure(
                    f"http://127.0.0.1:{forge.port}", store='"memory"', extra=f"[limits]\ndrain_seconds = {drain}\n"
                )
                process = DaemonProcess(where)
                try:
                    await trio.to_thread.run_sync(_ready, process, where)
                    ended: list[object] = []

                    async def call(number: int, ended: list[object] = ended) -> None:
                        try:
                            ended.append(await client.forge(call_of(read_of(number), str(number))))
                        except AgentError as error:
                            ended.append(error.code)

                    async with connect(where.socket("c1")) as client, trio.open_nursery() as nursery:
                        for number in range(3):
                            nursery.start_soon(call, number)
                        # Beside whose the credential is, which the daemon asks as well.
                        await until(lambda: sum("/issues/" in str(request) for request in forge.seen) >= 3)
                        process.process.send_signal(signal.SIGTERM)
                        if in_time:
                            let_go.set()
                    status = await trio.to_thread.run_sync(process.process.wait, 30)
                finally:
                    process.close()
            assert status == 0
            kinds = [type(end) if in_time else end for end in ended]
            assert kinds == [IssueResult if in_time else "unavailable"] * 3
            assert "Traceback" not in where.log.read_text()
            assert where.logged()[-1]["event"] == "stopped"


def _ready(process: DaemonProcess, where: Place) -> None:
    process.wait_ready()
    with where.control() as control:
        control.open_container("c1")
        control.bind_session("c1", "s-1", agent="scout", owner="ada")
