"""What travels over ``control.sock``: the same framing as a container's socket, a schema of its own.

One request, one reply, in order. Every operation is idempotent and answers what is now true.
"""

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

_Name: TypeAlias = Annotated[str, Meta(max_length=256)]


class _Request(Struct, tag_field="op", forbid_unknown_fields=True, kw_only=True, frozen=True):
    """What requests share."""


class OpenContainer(_Request, tag="open_container", frozen=True, kw_only=True):
    """Open a container's socket. ``allowed_uids`` empty: any; ``socket_group`` None: the daemon's own gid."""

    name: _Name
    allowed_uids: Annotated[list[int], Meta(max_length=64)] = field(default_factory=list)
    socket_group: int | None = None


class CloseContainer(_Request, tag="close_container", frozen=True, kw_only=True):
    """Close a container's socket and end its session."""

    name: _Name


class BindSession(_Request, tag="bind_session", frozen=True, kw_only=True):
    """Bind a session to an open container. ``scope`` None is everything, [] is nothing."""

    container: _Name
    session_id: _Name
    agent: _Name
    owner: _Name
    scope: Annotated[list[_Name], Meta(max_length=256)] | None = None


class UnbindSession(_Request, tag="unbind_session", frozen=True, kw_only=True):
    """End the container's session; the socket stays."""

    container: _Name


class ListContainers(_Request, tag="list_containers", frozen=True, kw_only=True):
    """What is open and bound."""


class GetStatus(_Request, tag="status", frozen=True, kw_only=True):
    """How the daemon is."""


class Drain(_Request, tag="drain", frozen=True, kw_only=True):
    """Stop as on SIGTERM: refuse new calls, finish what was sent, exit 0."""


ControlRequest: TypeAlias = (
    OpenContainer | CloseContainer | BindSession | UnbindSession | ListContainers | GetStatus | Drain
)


class SessionState(Struct, kw_only=True, frozen=True):
    """A live session."""

    session_id: str
    agent: str
    owner: str
    scope: list[str] | None = None


class ContainerState(Struct, kw_only=True, frozen=True):
    """An open container: its socket's path on the host, who may connect, its session if it has one."""

    name: str
    socket: str
    listening: bool
    allowed_uids: list[int] = field(default_factory=list)
    socket_group: int | None = None
    connections: int = 0
    session: SessionState | None = None


class _Reply(Struct, tag_field="reply", kw_only=True, frozen=True):
    """What replies share."""


class ContainerReply(_Reply, tag="container", frozen=True, kw_only=True):
    """Answers open, bind and unbind: the container as it is now."""

    container: ContainerState


class ClosedReply(_Reply, tag="closed", frozen=True, kw_only=True):
    """Answers close."""

    name: str


class ContainersReply(_Reply, tag="containers", frozen=True, kw_only=True):
    """Answers list."""

    containers: list[ContainerState]


class CounterRow(Struct, kw_only=True, frozen=True):
    """One counter: its name, labels and count since the daemon's start."""

    name: str
    labels: dict[str, str]
    count: int


class CredentialState(Struct, kw_only=True, frozen=True):
    """One credential's budget gate. Times in seconds from now; None where the forge has not told.

    ``account``: whose credential it is; None where that is not known. ``broken``: the forge refuses the token, and no
    other has been seen since. ``closed_for``: a secondary limit or the pace of creations keeps the gate shut so long.
    ``paused_for``: the forge has answered a write with something else, and no other one goes out for so long;
    ``on_trial``: then one goes at a time, until one is answered rightly.
    ``points_last_minute`` and ``creations_last_hour`` are our own count against limits that a forge does not show.
    ``remaining`` and ``limit`` are of the forge's ``core`` limit.
    """

    forge: str
    role: str
    account: str | None = None
    broken: bool
    closed_for: float
    paused_for: float = 0.0
    on_trial: bool = False
    in_flight: int
    waiting: int
    points_last_minute: int = 0
    creations_last_hour: int = 0
    remaining: int | None = None
    limit: int | None = None
    resets_in: float | None = None


class MemoryState(Struct, kw_only=True, frozen=True):
    """The daemon's memory: its stage (normal, tight, full), bytes used, and the limit, 0 where there is none."""

    stage: str
    used: int
    limit: int


class StatusReply(_Reply, tag="status", frozen=True, kw_only=True):
    """Answers status. ``forges`` are ``provider:host`` words, the default one first.

    ``request_bytes_held``: of all containers' requests that have not been answered.
    """

    version: str
    pid: int
    host_id: str
    store: str
    store_available: bool
    draining: bool
    containers: int
    sessions: int
    calls_in_flight: int
    forges: list[str] = field(default_factory=list)
    credentials: list[CredentialState] = field(default_factory=list)
    memory: MemoryState | None = None
    request_bytes_held: int = 0
    counters: list[CounterRow] = field(default_factory=list)


class DrainingReply(_Reply, tag="draining", frozen=True, kw_only=True):
    """Answers drain: it has begun."""


class ErrorReply(_Reply, tag="error", frozen=True, kw_only=True):
    """The operation was refused: ``code`` is invalid_argument, conflict, not_found, unavailable or internal."""

    code: str
    message: str


ControlReply: TypeAlias = ContainerReply | ClosedReply | ContainersReply | StatusReply | DrainingReply | ErrorReply

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(ControlRequest).decode
decode_reply = msgspec.msgpack.Decoder(ControlReply).decode
