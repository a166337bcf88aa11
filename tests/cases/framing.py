"""Replays of the cases about frames and sockets. Each takes its case and fails where the daemon does as reported."""

import json
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from compass_forged.agent import ForgeClient, connect
from compass_forged.agent.errors import AgentError, DaemonUnreachable
from compass_forged.config import Limits
from compass_forged.ports import CallContext
from compass_forged.providers.fake import FakeProvider, Step
from compass_forged.store.memory import MemoryStore
from compass_forged.wire.codec import DecodeError, decode_reply, encode_call
from compass_forged.wire.frames import FRAME_MAX_BYTES, HEADER_BYTES, encode_frame
from compass_forged.wire.schema import (
    ARM_NAMES,
    CommentOnIssue,
    CreateIssue,
    FaultFrame,
    ForgeCall,
    GetIssue,
    Issue,
    IssueCommentResult,
    IssueResult,
    IssuesResult,
    ListIssues,
    ResultFrame,
)
from tests.support.cases import Case, Desk, Running, code_of, refused, running, short_directory
from tests.support.core import ONE_OF_EACH, RawClient, call_of
from tests.support.forge_http import answer, comment_json, issue_json, new_github
from tests.support.host import until
from tests.support.scripted_daemon import Peer, answer_to, frame_of_answer, scripted_daemon

encode = msgspec.msgpack.encode
CREATE = CreateIssue(repo="acme/site", title="t")
GOOD = {"arm": "list_issues", "repo": "acme/site"}


@asynccontextmanager
async def a_daemon(limits: Limits | None = None) -> AsyncIterator[tuple[Running, FakeProvider, RawClient]]:
    """A daemon over a forge in memory whose ``acme/site`` holds issue 1; and a connection."""
    forge = FakeProvider(body_limit=0)
    async with running(forge, limits=limits) as daemon:
        client = await daemon.connect()
        await client.send(call_of(CreateIssue(repo="acme/site", title="t"), "first"))
        assert isinstance(await client.reply(), ResultFrame)
        forge.calls.clear()
        async with client.stream:
            yield daemon, forge, client


async def works(client: RawClient, call_id: str = "good") -> None:
    """A good call on this connection is answered."""
    await client.send(call_of(ListIssues(repo="acme/site"), call_id))
    reply = await client.reply()
    assert isinstance(reply, ResultFrame), reply
    assert (reply.call_id, type(reply.result)) == (call_id, IssuesResult)


async def faulted(client: RawClient, payload: bytes, *call_ids: str) -> str:
    """The message of the fault ``invalid_argument`` that answers a payload under one of ``call_ids``."""
    await client.stream.send_all(encode_frame(payload))
    reply = await client.reply()
    assert isinstance(reply, FaultFrame), (payload[:200], reply)
    assert (reply.code, reply.call_id in call_ids) == ("invalid_argument", True), (payload[:200], reply)
    return reply.message


def envelope(**more: object) -> dict[str, object]:
    """The fields of a good call of id ``bad``, changed."""
    return {"frame": "call", "call_id": "bad", "call": GOOD, **more}


# --- what does not decode -------------------------------------------------------------------------------------------


def _bombs(depth: int) -> Iterator[bytes]:
    yield b"\x91" * depth + b"\xc0"  # an array in an array
    yield b"\x81\xa1a" * depth + b"\x01"  # a map in a map


async def deep_frames(case: Case) -> None:
    """Nested payloads, as JSON and as the MessagePack that we speak, wherever a frame has room for them."""
    texts = [eval_json(part) for part in case.input["bytes"].removeprefix("one frame: ").split(" ; also ")]
    async with a_daemon() as (daemon, forge, client):
        other = await daemon.connect("c2")
        for text in texts:
            await faulted(client, text, "")
        for depth in (1, 400, 1_100, 20_000, 100_000):
            for bomb in _bombs(depth):
                raw = msgspec.Raw(bomb)
                for payload in (
                    bomb,
                    encode(envelope(surprise=raw)),
                    encode(envelope(call={**GOOD, "surprise": raw})),
                    encode(envelope(call={**GOOD, "labels": raw})),
                    *(encode(envelope(**{name: raw})) for name in ("frame", "call_id", "call", "forge", "timeout_ms")),
                ):
                    await faulted(client, payload, "bad", "")
            await works(client)
            await works(other)
        assert len(forge.calls) == 10
        await other.stream.aclose()


def eval_json(term: str) -> bytes:
    """The case's own bytes, which it writes as ``'[' * n + ...``; what follows the terms is prose."""
    parts = term.split(" placed ", maxsplit=1)[0].split(" + ")
    out = ""
    for part in parts:
        text, _, times = part.partition(" * ")
        out += text.strip("'") * int(times or 1)
    return out.encode()


async def deep_replies(_case: Case) -> None:
    """The other direction: the agent library takes a reply with an unknown field, and one that nests too deeply fails
    alone."""
    await trio.lowlevel.checkpoint()
    for bomb in _bombs(10):
        reply = {"frame": "fault", "call_id": "1", "code": "internal", "message": "m", "surprise": msgspec.Raw(bomb)}
        assert isinstance(decode_reply(encode(reply)), FaultFrame)
    for depth in (20_000, 100_000):
        for bomb in _bombs(depth):
            reply = {"frame": "fault", "call_id": "1", "code": "internal", "message": "m", "x": msgspec.Raw(bomb)}
            with pytest.raises(DecodeError, match="nested too deeply"):
                decode_reply(encode(reply))


async def deep_answers(_case: Case) -> None:
    """And a forge's answer that nests is an answer that cannot be used."""
    for nested in (b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 20_000 + b"1" + b"}" * 20_000):
        body = json.dumps(issue_json(7, body="MARK")).encode().replace(b'"MARK"', b'"x","surprise":' + nested)
        for content in (nested, body):
            github, _ = new_github(answer(200, content))
            result = await Desk(github).ask(GetIssue(repo="acme/site", issue_number=7))
            assert refused(result).code == "internal"


async def unknown_frames(_case: Case) -> None:
    """A cancel, and any other frame that we have not, is a fault; a call under way knows nothing of it."""
    async with a_daemon() as (_, forge, client):
        await works(client, "answered")
        for frame, call_id in (
            ({"frame": "cancel", "call_id": "never-used"}, "never-used"),
            ({"frame": "cancel", "call_id": "answered"}, "answered"),
            ({"frame": "brand_new_2027", "call_id": "x", "whatever": {}}, "x"),
            ({"frame": "cancel"}, ""),
            ({"frame": "cancel", "call_id": 7}, ""),
            ({"frame": "cancel", "call_id": None}, ""),
            ({"frame": "cancel", "call_id": "x" * 129}, ""),
            ({"frame": "result", "call_id": "x", "result": {"arm": "unsubscribed"}}, "x"),
            ({"frame": "fault", "call_id": "x", "code": "internal", "message": ""}, "x"),
            ({"frame": "", "call_id": "x"}, "x"),
            ({"frame": None, "call_id": "x"}, "x"),
            ({"frame": 3, "call_id": "x"}, "x"),
            ({"call_id": "x", "call": GOOD}, "x"),
            ({}, ""),
        ):
            assert "frame" in await faulted(client, encode(frame), call_id)
            await works(client)
        forge.script("list_issues", Step(before=0.03))
        await client.send(call_of(ListIssues(repo="acme/site"), "slow"))
        await faulted(client, encode({"frame": "cancel", "call_id": "other"}), "other")
        reply = await client.reply()
        assert (type(reply), reply.call_id) == (ResultFrame, "slow")


async def bad_between_good(_case: Case) -> None:
    """Good, bad, good, wrong types, good: each is answered under its id. An empty frame cannot be skipped (the
    contract's rule), so it ends the connection, with a fault and after all answers; a new connection works."""
    async with a_daemon() as (daemon, _, client):
        good = [encode_call(call_of(ListIssues(repo="acme/site"), f"g{n}")) for n in range(4)]
        bad = (b"\xc1", encode(envelope(call_id="b", call={**GOOD, "limit": "many"})))
        sent = [good[0], bad[0], good[1], bad[1], good[2]]
        await client.stream.send_all(b"".join(encode_frame(payload) for payload in sent))
        replies = [await client.reply() for _ in sent]
        await client.stream.send_all(bytes(HEADER_BYTES) + encode_frame(good[3]))
        replies.append(await client.reply())
        assert await client.reply_or_end() is None
        assert {reply.call_id for reply in replies if isinstance(reply, ResultFrame)} == {"g0", "g1", "g2"}
        faults = [reply for reply in replies if isinstance(reply, FaultFrame)]
        assert [(fault.code, fault.call_id) for fault in faults] == [
            ("invalid_argument", ""),
            ("invalid_argument", "b"),
            ("invalid_argument", ""),
        ]
        assert "call.limit" in faults[1].message
        assert "zero-length" in faults[2].message
        async with (await daemon.connect()).stream as again:
            await works(RawClient(again))


async def any_bad_payload(_case: Case) -> None:
    """No payload is terminal: not one that is cut anywhere, nor one with any field of a wrong type."""
    whole = encode(envelope(forge={"provider": "github", "host": ""}, client_request_id="k", timeout_ms=5))
    async with a_daemon() as (_, forge, client):
        for cut in range(1, len(whole)):
            await faulted(client, whole[:cut], "", "bad")
        for byte in (0xC1, 0xC0, 0x80, 0x90, 0xA0, 0x00, 0xFF, 0xC7, 0xD9, 0xDB, 0xDD, 0xDF):
            await faulted(client, bytes([byte]), "")
        numbers: tuple[object, ...] = (1.5, True, -1)
        others: tuple[object, ...] = ([1], {"a": 1}, b"bytes")
        wrong = {
            "frame": (None, "word", *numbers, *others),
            "call_id": (None, "", "x" * 129, *numbers, *others),
            "call": (None, "word", *numbers, *others),
            "forge": ("word", {}, {"provider": None}, {"provider": 1}, *numbers, *others),
            "client_request_id": (None, "x" * 257, *numbers, *others),
            "timeout_ms": (None, "word", -1, 2**64 - 1, *others),
        }
        for name, values in wrong.items():
            for value in values:
                await faulted(client, encode(envelope(**{name: value})), "", "bad")
        assert forge.calls == []
        await works(client)


async def misspelt_fields(case: Case) -> None:
    """A field that we do not know is refused and named, in every arm and in the envelope."""
    assert "client_requst_id" in case.input["bytes"]
    async with a_daemon() as (_, forge, client):
        create = {"arm": "create_issue", "repo": "acme/site", "title": "t"}
        comment = {"arm": "comment_on_issue", "repo": "acme/site", "issue_number": 1, "body": "b"}
        for call in (create, comment):
            for name, value in (("client_requst_id", "k-1"), ("deadline_msec", 200)):
                message = await faulted(client, encode(envelope(call=call, **{name: value})), "bad")
                assert message.startswith(f"{name}: unknown field"), message
        for arm in ONE_OF_EACH:
            fields = msgspec.msgpack.decode(encode(arm))
            for name in arm.__struct_fields__:
                typo = name[:-2] + name[-1] if len(name) > 2 else name + "x"
                spoiled = {**fields, typo: fields.get(name, "")}
                message = await faulted(client, encode(envelope(call=spoiled)), "bad")
                assert message.startswith(f"call.{typo}: unknown field"), message
                if name in fields:
                    del spoiled[name]
                    await faulted(client, encode(envelope(call=spoiled)), "bad")
        for name in ("frame", "call_id", "call", "forge", "client_request_id", "timeout_ms"):
            typo = name[:-2] + name[-1]
            await faulted(client, encode(envelope(**{typo: envelope().get(name, "x")})), "bad")
        await faulted(client, encode(envelope(forge={"provider": "github", "hots": "x"})), "bad")
        assert forge.calls == []
        await works(client)


async def unknown_arms(_case: Case) -> None:
    """An arm that is unknown, missing, null or a number is a fault that lists the arms. Of a name that comes twice one
    value counts, and the call is done once at most."""
    async with a_daemon() as (_, forge, client):
        for unknown in ({**GOOD, "arm": "list_timeline"}, {**GOOD, "arm": "", "x": 1}):
            message = await faulted(client, encode(envelope(call=unknown)), "bad")
            assert all(name in message for name in ARM_NAMES)
        wrong: tuple[object, ...] = (
            {"repo": "acme/site"},
            {**GOOD, "arm": None},
            {**GOOD, "arm": 3},
            None,
            [],
            "list_issues",
            5,
        )
        for call in wrong:
            await faulted(client, encode(envelope(call=call)), "bad")
        assert forge.calls == []
        pairs = (("arm", "list_issues"), ("repo", "acme/site"), ("arm", "get_issue"), ("issue_number", 1))
        twice = bytes([0x80 + len(pairs)]) + b"".join(encode(part) for pair in pairs for part in pair)
        await client.stream.send_all(encode_frame(encode(envelope(call=msgspec.Raw(twice)))))
        assert (await client.reply()).call_id == "bad"
        assert len(forge.calls) <= 1
        await works(client)


async def unknown_items(case: Case) -> None:
    """What a forge's list holds besides what we know does no harm; an item that cannot be told which it is is left out,
    which is said and not passed over in silence. A list of nothing but such items is none."""
    known = [
        issue_json(9, state="brand_new_state_2027"),
        issue_json(8, user={"login": "new[kind]", "type": "BrandNew2027"}, event="brand_new_event_2027", whatever={}),
        issue_json(7, labels=[{"name": None}, {"brand": "new"}, "text", {"name": "bug"}], type={"id": 1}),
        issue_json(6, user=None, body=None, pull_request=None, reactions={"+1": 2}),
        {**issue_json(5), "pull_request": {"brand": "new"}},
    ]
    listing = ListIssues(repo="acme/site")
    github, _ = new_github(answer(200, known))
    result = await Desk(github).ask(listing)
    assert isinstance(result, IssuesResult)
    assert [(issue.number, issue.state) for issue in result.items] == [
        (9, "open"),
        (8, "open"),
        (7, "open"),
        (6, "open"),
    ]
    assert result.items[2].labels == ["text", "bug"]

    comments = [comment_json(1, event="commented", performed_via_github_app={"x": 1}), comment_json(2, user=None)]
    github, _ = new_github(answer(200, issue_json(7, comments=2)), answer(200, comments))
    read = await Desk(github).ask(GetIssue(repo="acme/site", issue_number=7))
    assert isinstance(read, IssueResult)
    assert [comment.id for comment in read.issue.comments] == ["1", "2"]

    timeline = case.input["forge"][0]["body"]
    for item in timeline[1:4]:
        github, forge = new_github(answer(200, [known[0], item]), answer(200, [item]))
        desk = Desk(github)
        rest = await desk.ask(listing)
        assert isinstance(rest, IssuesResult)
        assert ([issue.number for issue in rest.items], len(rest.warnings)) == ([9], 1)
        assert refused(await desk.ask(listing)).code == "internal"
        assert len(forge.requests) == 2


# --- how bytes are cut ----------------------------------------------------------------------------------------------

_SMALL = 8 << 10


def _comment_of(size: int) -> ForgeCall:
    """A comment whose payload has ``size`` bytes, most of them in characters of two and three."""
    body = "é€" * ((size - 200) // 5)
    call = call_of(CommentOnIssue(repo="acme/site", issue_number=1, body=body))
    missing = size - len(encode_call(call))
    return call_of(CommentOnIssue(repo="acme/site", issue_number=1, body=body + "x" * missing))


def _cuts(frame: bytes) -> Iterator[list[bytes]]:
    yield [frame]
    yield [frame[at : at + 4096] for at in range(0, len(frame), 4096)]
    middle = len(frame) // 2
    for at in (*range(1, 40), *range(middle, middle + 5), *range(len(frame) - 5, len(frame))):
        yield [frame[:at], frame[at:]]


async def _taken(client: RawClient, forge: FakeProvider, call: ForgeCall, parts: list[bytes]) -> None:
    forge.calls.clear()
    for part in parts:
        await client.stream.send_all(part)
        await trio.lowlevel.checkpoint()
    reply = await client.reply()
    assert isinstance(reply, ResultFrame), reply
    assert isinstance(reply.result, IssueCommentResult), reply
    assert isinstance(call.arm, CommentOnIssue)
    (arm,) = forge.calls
    assert isinstance(arm, CommentOnIssue)
    assert arm.body.endswith(call.arm.body)


async def any_cut(_case: Case) -> None:
    """A frame at the limit means the same however it is cut, one byte at a time included."""
    async with a_daemon(Limits(frame_max_bytes=_SMALL)) as (_, forge, client):
        call = _comment_of(_SMALL)
        frame = encode_frame(encode_call(call))
        assert len(frame) == _SMALL + HEADER_BYTES
        for parts in _cuts(frame):
            await _taken(client, forge, call, parts)
        await _taken(client, forge, call, [frame[at : at + 1] for at in range(len(frame))])

        small = [encode_frame(encode_call(call_of(ListIssues(repo="acme/site"), str(n)))) for n in range(3)]
        for parts in ([small[0] + small[1]], [small[0] + small[1][:7], small[1][7:]]):
            for part in parts:
                await client.stream.send_all(part)
            assert set(await client.replies(2)) == {"0", "1"}

        await client.stream.send_all((_SMALL + 1).to_bytes(HEADER_BYTES, "big"))
        fault = await client.reply()
        assert isinstance(fault, FaultFrame)
        assert (fault.code, await client.reply_or_end()) == ("invalid_argument", None)


async def any_cut_at_the_full_limit(_case: Case) -> None:
    """The same at the limit that is set by default."""
    async with a_daemon() as (_, forge, client):
        call = _comment_of(FRAME_MAX_BYTES)
        frame = encode_frame(encode_call(call))
        for step in (len(frame), 4096, 65_537):
            await _taken(client, forge, call, [frame[at : at + step] for at in range(0, len(frame), step)])


async def any_cut_of_a_reply(_case: Case) -> None:
    """The agent library reads replies the same however they are cut."""

    def serve(peer: Peer) -> None:
        answered = peer.receive()
        frame = frame_of_answer(answered)
        for at in range(1, len(frame)):
            peer.send(frame[:at])
            peer.send(frame[at:])
            answered = peer.receive()
            assert len(frame_of_answer(answered)) == len(frame)
            frame = frame_of_answer(answered)
        for byte in frame:
            peer.send(bytes([byte]))
        one, two = peer.receive(), peer.receive()
        both = frame_of_answer(one) + frame_of_answer(two)
        peer.send(both[: len(both) // 2 + 9])
        peer.send(both[len(both) // 2 + 9 :])

    with short_directory() as root:
        path = root / "forge.sock"
        with scripted_daemon(path, serve):
            async with connect(path) as client:

                async def ask(call_id: str) -> None:
                    assert await client.forge(call_of(call_id=call_id)) == answer_to(call_id)

                for number in range(len(frame_of_answer("100"))):
                    await ask(str(100 + number))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(ask, "900")
                    nursery.start_soon(ask, "901")


async def line_ends(case: Case) -> None:
    """A body with any character that somebody takes for a line's end goes through whole, both ways."""
    ends = ["\n", "\r", "\r\n", "\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\x1a", "\x04"]
    bodies = [case.input["request"]["body"]]
    bodies += [body for end in ends for body in (f"a{end}b", f"a{end}", f"{end}b", f"a{end}{end}b")]
    async with a_daemon() as (daemon, forge, _), connect(daemon.socket()) as agent:
        for number, body in enumerate(bodies):
            made = await agent.forge(call_of(CreateIssue(repo="acme/site", title="t", body=body), f"i{number}"))
            assert isinstance(made, IssueResult)
            where = made.issue.number
            await agent.forge(call_of(CommentOnIssue(repo="acme/site", issue_number=where, body=body), f"c{number}"))
            read = await agent.forge(call_of(GetIssue(repo="acme/site", issue_number=where), f"r{number}"))
            assert isinstance(read, IssueResult)
            assert read.issue.body == body
            assert [comment.body for comment in read.issue.comments] == [body]
            stamped = [arm.body for arm in forge.calls if isinstance(arm, CreateIssue | CommentOnIssue)]
            assert all(text.endswith(f"\n\n{body}") for text in stamped[-2:])


# --- sockets on disk ------------------------------------------------------------------------------------------------


async def replaced_socket(_case: Case) -> None:
    """Who ends takes away the socket that it bound, and no other that stands in its place."""
    with short_directory() as root:
        for close in (True, False):
            async with a_daemon() as (daemon, _, _):
                ours = daemon.socket("c2")
                standing = root / f"standing-{close}"
                with socket.socket(socket.AF_UNIX) as successor:
                    successor.bind(str(standing))
                    successor.listen()
                    inode = standing.stat().st_ino
                    standing.rename(ours)
                    if close:
                        await daemon.control(lambda client: client.close_container("c2"))
                    else:
                        ours.rename(standing)  # out of the way of the directory's end, and back
                        standing.rename(ours)
                        daemon.drain()
                        await until(lambda: not daemon.socket("c1").exists())
                    assert ours.stat().st_ino == inode
                    with socket.socket(socket.AF_UNIX) as agent:
                        agent.connect(str(ours))


async def socket_mode(_case: Case) -> None:
    """A socket has its mode from its first moment on: nothing changes it later, whatever the umask."""
    changed: list[object] = []
    watching = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event == "os.chmod":
            changed.append(arguments[0])

    sys.addaudithook(hook)  # it cannot be taken away, only silenced
    try:
        for mask in (0o000, 0o022, 0o077):
            before = os.umask(mask)
            try:
                async with a_daemon() as (daemon, _, _):
                    modes = [
                        stat.S_IMODE(path.stat().st_mode) for path in (daemon.socket(), daemon.path / "control.sock")
                    ]
                    assert modes == [0o660, 0o600]
                    assert stat.S_IMODE(daemon.socket().parent.stat().st_mode) == 0o750
            finally:
                os.umask(before)
    finally:
        watching = False
    assert not [place for place in changed if "sock" in str(place)]


class _Held(FakeProvider):
    """A forge that commits a create and holds its answer back until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.committed = trio.Event()
        self.let_go = trio.Event()

    async def create_issue(self, arm: CreateIssue, context: CallContext) -> Issue:
        issue = await super().create_issue(arm, context)
        self.committed.set()
        await self.let_go.wait()
        return issue


async def restarted_daemon(_case: Case) -> None:
    """A mounted directory survives a restart: the agent library finds the new socket by its path, and a create that was
    under way is not done twice. A mounted socket file goes stale, and the error says what to mount instead."""
    forge, store = _Held(), MemoryStore()
    stop, ended = trio.Event(), trio.Event()
    lost: list[AgentError] = []

    async def first_life(*, task_status: trio.TaskStatus[Running]) -> None:
        async with running(forge, path=root, store=store, limits=Limits(drain_seconds=0.05)) as daemon:
            task_status.started(daemon)
            await stop.wait()
        ended.set()

    async def under_way(agent: ForgeClient, call: ForgeCall) -> None:
        with pytest.raises(AgentError) as caught:
            await agent.forge(call)
        lost.append(caught.value)

    with short_directory() as root:
        async with trio.open_nursery() as nursery:
            daemon: Running = await nursery.start(first_life)
            mounted = os.open(daemon.socket().parent, os.O_RDONLY | os.O_DIRECTORY)
            stale = root / "mounted.sock"
            os.link(daemon.socket(), stale)  # it keeps the inode, as a bind mount of the file does
            path = Path(f"/proc/self/fd/{mounted}/forge.sock")
            async with connect(path, reconnect_seconds=5) as agent, connect(stale, reconnect_seconds=0) as unlucky:
                assert isinstance(await unlucky.forge(call_of(ListIssues(repo="acme/site"))), IssuesResult)
                async with trio.open_nursery() as calls:
                    forge.script("list_issues", Step(before=1000))
                    calls.start_soon(under_way, agent, call_of(ListIssues(repo="acme/site"), "read"))
                    calls.start_soon(under_way, agent, call_of(CREATE, "a", key="k-1", timeout_ms=20))
                    await until(lambda: len(lost) > 0)
                    forge.let_go.set()
                    stop.set()
                await ended.wait()
                assert {code_of(error) for error in lost} == {
                    ("deadline_exceeded", "unknown"),
                    ("unavailable", "unknown"),
                }
                with pytest.raises(DaemonUnreachable, match=r"mount the container's directory, not the socket file"):
                    await unlucky.forge(call_of(ListIssues(repo="acme/site"), "b"))
                async with running(forge, path=root, store=store):
                    again = await agent.forge(call_of(CREATE, "c", key="k-1"))
                    assert isinstance(again, IssueResult)
                    assert (again.issue.replayed, forge.count("create_issue")) == (True, 1)
                    with pytest.raises(DaemonUnreachable, match="directory"):
                        await unlucky.forge(call_of(ListIssues(repo="acme/site"), "d"))
            os.close(mounted)
