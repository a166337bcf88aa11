"""The ports of the daemon: what stores, providers, forge callers and token sources do, and the records they share.

Adapters implement these protocols; the domain knows nothing else of them.
"""

import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from compass_forged.wire.schema import (
    CommentOnIssue,
    CommentOnPullRequest,
    CommentRef,
    CreateIssue,
    CreatePullRequest,
    ForgeCall,
    GetIssue,
    GetPullRequest,
    Issue,
    IssuesResult,
    ListIssues,
    PullRequest,
    ResultArm,
    ReviewRef,
    SubmitReview,
)

ArtifactKind: TypeAlias = Literal["issue", "pull_request"]
Role: TypeAlias = Literal["author", "reviewer"]

PROVIDER_NUMBERS: Mapping[str, int] = {"github": 1, "gitlab": 2, "forgejo": 3, "linear": 4}
"""How a provider is written in the store; a test compares it with the schema's CHECK."""

WITHOUT_PULL_REQUESTS: frozenset[str] = frozenset({"linear"})
"""Providers whose forges have no pull requests, and so no reviews of them."""


@dataclass(frozen=True, slots=True)
class Account:
    """The durable identity behind a session: the agent, and the user who owns it. Handles match ``HANDLE``."""

    agent_id: int
    agent: str
    owner_id: int
    owner: str


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """An open container: its name, the uids that may connect (empty: any), the group of its socket (None: ours)."""

    name: str
    allowed_uids: tuple[int, ...] = ()
    socket_group: int | None = None


@dataclass(frozen=True, slots=True)
class SessionBinding:
    """A request to bind: the container, the session, and the handles of the agent and its owner."""

    container: str
    session_id: str
    agent: str
    owner: str
    scope: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who speaks, as the hub resolved it: nothing in it comes from the container."""

    account: Account | None
    session_id: str
    container: str
    scope: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """A live session: who speaks through a container. ``scope`` None is everything, () is nothing."""

    session_id: str
    container: str
    account: Account
    scope: tuple[str, ...] | None = None
    caller: Caller = field(init=False, repr=False, compare=False)
    """The session as a service sees it, made once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "caller", Caller(self.account, self.session_id, self.container, self.scope))


class Coordinate(NamedTuple):
    """Where an artifact stands. ``repo`` is the forge's canonical name, casefolded (upper case on Linear)."""

    provider: str
    host: str
    repo: str
    kind: ArtifactKind
    number: int


@dataclass(frozen=True, slots=True)
class AuthoredArtifact:
    """A row of the ownership index, memo included.

    Attributes:
        coordinate: where the artifact stands.
        repo: the repository's name as the forge writes it, for display.
        account: who wrote it.
        session_id: in which session.
        client_request_id: the create's idempotency key; None for a keyless create.
        fingerprint: SHA-256 of the request, 32 bytes; None for a keyless create.
        url: its page on the forge.
        created_at: when the forge created it, RFC 3339 in UTC, as it said so.
    """

    coordinate: Coordinate
    repo: str
    account: Account
    session_id: str
    client_request_id: str | None
    fingerprint: bytes | None
    url: str
    created_at: str


@dataclass(frozen=True, slots=True)
class IndexedAuthor:
    """Who wrote an artifact, from the index: handles and session id."""

    agent: str
    owner: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """A row of what agents want to hear of.

    Attributes:
        subscription_id: what the agent is told: a version 4 UUID in its canonical form.
        coordinate: of what.
        session_id: in which session it was begun, or begun again.
        live: whether it stands; False once it has ended.
    """

    subscription_id: str
    coordinate: Coordinate
    session_id: str
    live: bool


@dataclass(frozen=True, slots=True)
class SessionNews:
    """A hint that sessions of a host have changed in the store; what is true now, ``load_host`` says.

    Attributes:
        sessions: the ids of sessions that have ended, or are no longer what they were; None: any may have.
    """

    sessions: frozenset[str] | None


class SessionWatch(Protocol):
    """What a store tells of one host's sessions."""

    async def news(self) -> SessionNews:
        """Wait, without limit, for what has changed since the last news; what comes meanwhile is put together.

        The first news is that any session may have changed, and so is the first after the store was out of reach.
        """
        ...


class Store(Protocol):
    """What the daemon keeps. Both adapters (Postgres, memory) pass one contract suite.

    Every method is a checkpoint, bounded by the adapter's own statement deadline, and raises ``StoreUnavailable``
    when the store is out of reach. A cancelled write may have been committed: read back before saying anything.
    """

    @property
    def available(self) -> bool:
        """Whether the store answered last time it was asked, as far as is known without asking."""
        ...

    async def open_container(self, host: str, spec: ContainerSpec) -> None:
        """Keep that the container is open on this host; again with other settings replaces them."""
        ...

    async def close_container(self, host: str, name: str) -> None:
        """Forget the container and end its session; a container that is not open is no error."""
        ...

    async def bind_session(self, host: str, binding: SessionBinding) -> Session:
        """Bind a session to an open container and create the accounts it names where they are missing.

        Idempotent: the same binding again answers the same (a changed scope is taken over). Another live session of
        the container is ended.

        Raises:
            AgentOwnedByAnother: the agent is known under another owner.
            SessionTaken: the session id was another agent's, or is live in another container or host.
            ContainerUnknown: the container is not open.
        """
        ...

    async def end_session(self, host: str, container: str) -> Session | None:
        """End the container's live session and return it; None if there was none."""
        ...

    async def load_host(self, host: str) -> tuple[list[ContainerSpec], list[Session]]:
        """What is open and bound on this host, for a restart."""
        ...

    def watch_sessions(self, host: str) -> AbstractAsyncContextManager[SessionWatch]:
        """Hold the host for this daemon, and be told of its sessions' ends whoever ends them, this daemon included.

        A session that a transaction ends is told once that has committed, not before. Within the block the store may
        go out of reach: the watch rides that out.

        Raises:
            HostTaken: another daemon watches this host.
            StoreUnavailable: the store cannot be reached, on entering.
        """
        ...

    async def record_authored_artifact(self, artifact: AuthoredArtifact) -> None:
        """Write the ownership row and the memo in one statement: an idempotent upsert on the coordinate.

        The same agent again fills what was null and changes nothing else.

        Raises:
            ArtifactOwnedByAnother: the coordinate stands under another agent.
            RequestKeyTaken: the agent's key stands for another artifact.
        """
        ...

    async def fill_memo(
        self, coordinate: Coordinate, agent_id: int, client_request_id: str, fingerprint: bytes
    ) -> bool:
        """Give the agent's row at the coordinate this memo, where it has none, in one statement; idempotent.

        A row holds one memo, its first: under another key it is untouched.

        Returns:
            Whether the agent has a row there.

        Raises:
            RequestKeyTaken: the agent's key stands for another artifact.
        """
        ...

    async def authored_artifact_by_request_id(self, agent_id: int, client_request_id: str) -> AuthoredArtifact | None:
        """The memo: what the agent created under this key, or None."""
        ...

    async def agent_account(self, handle: str) -> Account | None:
        """The account of the agent of that handle; None if no session was ever bound to one."""
        ...

    async def list_authored_artifacts_by_agent(
        self, agent_id: int, *, repo: str | None = None, limit: int = 100
    ) -> list[AuthoredArtifact]:
        """The agent's artifacts, newest first, at most ``limit``; narrowed as ``list_authored_artifacts`` is."""
        ...

    async def list_authored_artifacts(self, *, repo: str | None = None, limit: int = 100) -> list[AuthoredArtifact]:
        """All agents' artifacts, newest first, at most ``limit``.

        ``repo`` narrows them to repositories of that canonical name, at whatever forge; ASCII case is no difference.
        """
        ...

    async def ref_secret(self) -> bytes:
        """The key of the ``ref`` in stamped creates: 32 random bytes, made once, shared by all daemons of the store."""
        ...

    async def attribution_of(
        self, coordinates: Collection[Coordinate], *, asker: int | None = None
    ) -> dict[Coordinate, IndexedAuthor]:
        """Who wrote these artifacts, for those that the index holds, in one query.

        ``asker`` is the account on whose behalf this is asked: whoever waits is served in turns by account.
        """
        ...

    async def subscribe(self, account: Account, coordinate: Coordinate, session_id: str) -> Subscription:
        """Keep that the agent wants to hear of an artifact, and that its repository is followed; no cursor is set.

        Idempotent: one row for an agent and a coordinate, so that subscribing again answers the same id; one that has
        ended is live again, under the given one.

        Raises:
            SubscriptionsExhausted: the agent has as many as it may have, ended ones included.
        """
        ...

    async def subscription(self, agent_id: int, subscription_id: str) -> Subscription | None:
        """One of the agent's own subscriptions, live or ended; None for another's as for one that never was."""
        ...

    async def unsubscribe(self, agent_id: int, subscription_id: str) -> bool:
        """End one of the agent's own subscriptions; again is no error.

        Returns:
            Whether the agent has, or had, a subscription of that id: False for another's as for one that never was.
        """
        ...


class WriteGuard(Protocol):
    """How a write tells that it goes out: from then on neither deadline nor disconnect cancels it."""

    @property
    def sent(self) -> bool:
        """Whether ``sending`` has returned."""
        ...

    async def sending(self) -> None:
        """Awaited right before the first byte of a write. Raises Cancelled if the call was given up before."""
        ...


@dataclass(slots=True)
class CallContext:
    """What one call carries down to a provider besides its arm.

    Attributes:
        container: for fairness at the budget gate.
        guard: how a write tells that it goes out.
        forge_requests: how many HTTP requests the call has cost so far; the caller counts.
        coordinate: where the call went, as ``provider:host/repo``, for the log; the service fills it in.
        may_touch: whether the call may go on in the repository, told by its new name, to which the forge redirects.
            Where this is None, a read is followed and a write is not.
        waits_on: the guard of the create that this one has joined, while it waits for that one's end: if the call is
            given up meanwhile, the other's sending decides what is known.
        deadline: when the call is given up if nothing has been sent, on trio's clock. No cancel scope tells it: one
            task keeps the deadlines of all calls. From a write's sending on there is none.
        create_id: of a keyed create, 16 bytes that stand for its agent and key and that nobody can tell beforehand; a
            provider whose forge takes an id from the client makes it of them. None for a keyless create.
    """

    container: str
    guard: WriteGuard
    forge_requests: int = 0
    coordinate: str = ""
    may_touch: Callable[[str], bool] | None = None
    waits_on: WriteGuard | None = None
    create_id: bytes | None = None
    deadline: float = math.inf


class Provider(Protocol):
    """One forge under one credential. All bodies arrive stamped and leave as the forge holds them.

    Every operation is a checkpoint, runs under the caller's cancel scope, waits for nothing beyond ``context.deadline``
    and raises one of the ``ForgeError`` kinds. What a provider has not raises ``Unsupported`` before any I/O.
    """

    @property
    def name(self) -> str:
        """The provider's word on the wire, such as ``github``."""
        ...

    @property
    def host(self) -> str:
        """The forge's host as it is written in coordinates."""
        ...

    @property
    def body_limit(self) -> int:
        """The largest body in bytes of UTF-8; 0 for no limit."""
        ...

    def canonical_repo(self, repo: str) -> str:
        """The key under which ``repo`` stands in the index (casefolded on GitHub). No I/O.

        Raises:
            BadRepo: the string fails the provider's grammar.
        """
        ...

    async def create_issue(self, arm: CreateIssue, context: CallContext) -> Issue:
        """Open an issue."""
        ...

    async def comment_on_issue(self, arm: CommentOnIssue, context: CallContext) -> CommentRef:
        """Comment on an issue."""
        ...

    async def create_pull_request(self, arm: CreatePullRequest, context: CallContext) -> PullRequest:
        """Open a pull request."""
        ...

    async def comment_on_pull_request(self, arm: CommentOnPullRequest, context: CallContext) -> CommentRef:
        """Comment on a pull request's conversation."""
        ...

    async def submit_review(self, arm: SubmitReview, context: CallContext) -> ReviewRef:
        """Review a pull request."""
        ...

    async def get_issue(self, arm: GetIssue, context: CallContext) -> Issue:
        """Read an issue with its newest comments."""
        ...

    async def list_issues(self, arm: ListIssues, context: CallContext) -> IssuesResult:
        """List issues, never pull requests."""
        ...

    async def get_pull_request(self, arm: GetPullRequest, context: CallContext) -> PullRequest:
        """Read a pull request."""
        ...


class TokenSource(Protocol):
    """Where a credential comes from. Re-readable without a restart."""

    async def token(self) -> str:
        """The current token.

        Raises:
            ConfigError: it cannot be read; the message names the place and never the value.
            ForgeError: a source that asks a forge for tokens could not have one; the call that needs it was not sent.
        """
        ...

    def invalidate(self) -> None:
        """The forge refused the last token: read anew next time."""
        ...


Work: TypeAlias = Callable[[], Awaitable[ResultArm]]
"""What is left to be waited for of a call; called once. It raises as ``ForgeCaller.begin`` does."""


class ForgeCaller(Protocol):
    """The one-method seam between hub and service."""

    def begin(self, caller: Caller, call: ForgeCall, context: CallContext) -> ResultArm | Work:
        """Begin one call as the caller; not a checkpoint.

        Returns:
            The result arm where nothing had to be waited for, such as a refusal; else the work that comes to one. A
            domain failure is an ``ErrorResult``.

        Raises:
            Fault: the call is structurally wrong, or nobody stands behind it.
        """
        ...
