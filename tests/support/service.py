"""What the tests of the service share: a world of a watched store, scripted forges and a guard, and what they saw."""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TypeAlias

import trio

from compass_forged.observability import Counters
from compass_forged.ports import (
    Account,
    AuthoredArtifact,
    CallContext,
    Caller,
    ContainerSpec,
    Coordinate,
    IndexedAuthor,
    SessionBinding,
)
from compass_forged.providers.fake import FakeProvider
from compass_forged.providers.registry import Entry, Registry
from compass_forged.service import ForgeService, ServiceLimits
from compass_forged.store.memory import MemoryStore
from compass_forged.wire.schema import (
    Arm,
    CommentOnIssue,
    CreateIssue,
    ErrorResult,
    ForgeCall,
    ForgeSelector,
    GetIssue,
    Issue,
    IssueResult,
    IssuesResult,
    ListIssues,
    ResultArm,
)

REPO = "Acme/site"
CREATE = CreateIssue(repo=REPO, title="A title", body="The words.", labels=["bug"])
COMMENT = CommentOnIssue(repo=REPO, issue_number=1, body="A remark.")
READ = GetIssue(repo=REPO, issue_number=1)
LISTING = ListIssues(repo=REPO)
SECRET = b"k" * 32
GHE = "ghe.example"
HOST = "host-1"

Hook: TypeAlias = Callable[[], Awaitable[None]]


class WatchedStore(MemoryStore):
    """The memory store, told apart by what was asked of it, and disturbed where a test says so.

    Attributes:
        touches: how often any method of it was called.
        asked: the methods that the service uses, by name and in order.
        hooks: what happens first in the next calls of a method, by its name; a hook may raise or wait.
    """

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self.touches = 0
        self.asked = events
        self.hooks: defaultdict[str, deque[Hook]] = defaultdict(deque)
        self.recorded: list[AuthoredArtifact] = []

    async def _enter(self) -> None:
        self.touches += 1
        await super()._enter()

    async def _first(self, method: str) -> None:
        self.asked.append(method)
        if self.hooks[method]:
            self.touches += 1  # a hook that raises keeps the method from counting itself
            await self.hooks[method].popleft()()

    async def record_authored_artifact(self, artifact: AuthoredArtifact) -> None:
        """See the port."""
        await self._first("record")
        await super().record_authored_artifact(artifact)
        self.recorded.append(artifact)

    async def authored_artifact_by_request_id(self, agent_id: int, client_request_id: str) -> AuthoredArtifact | None:
        """See the port."""
        await self._first("memo")
        return await super().authored_artifact_by_request_id(agent_id, client_request_id)

    async def attribution_of(
        self, coordinates: Collection[Coordinate], *, asker: int | None = None
    ) -> dict[Coordinate, IndexedAuthor]:
        """See the port."""
        await self._first("attribution")
        return await super().attribution_of(coordinates, asker=asker)


class WatchedForge(FakeProvider):
    """The scripted forge, which also keeps the contexts of its calls and lets a test change what it answers.

    Attributes:
        contexts: of every call, in order.
        on_yes: done with a created issue once it stands, right before the forge's yes comes back.
        on_page: done with every page of a listing.
    """

    def __init__(self, events: list[str], *, host: str = "github.com", body_limit: int = 65_536) -> None:
        super().__init__(host=host, body_limit=body_limit)
        self.events = events
        self.contexts: list[CallContext] = []
        self.on_yes: Callable[[Issue], None] = lambda _issue: None
        self.on_page: Callable[[IssuesResult], None] = lambda _page: None

    async def create_issue(self, arm: CreateIssue, context: CallContext) -> Issue:
        """See the port."""
        self._saw(context)
        issue = await super().create_issue(arm, context)
        self.on_yes(issue)
        return issue

    async def get_issue(self, arm: GetIssue, context: CallContext) -> Issue:
        """See the port."""
        self._saw(context)
        return await super().get_issue(arm, context)

    async def list_issues(self, arm: ListIssues, context: CallContext) -> IssuesResult:
        """See the port."""
        self._saw(context)
        page = await super().list_issues(arm, context)
        self.on_page(page)
        return page

    def _saw(self, context: CallContext) -> None:
        self.events.append("forge")
        self.contexts.append(context)

    @property
    def posted(self) -> list[str]:
        """The bodies of the writes that came, in order."""
        return [arm.body for arm in self.calls if isinstance(arm, CreateIssue | CommentOnIssue)]


class Guard:
    """The plain ``WriteGuard``: it shields nothing, so that a test can cancel a write that has gone out."""

    def __init__(self) -> None:
        self.sent = False

    async def sending(self) -> None:
        """See the port."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self.sent = True


@dataclass
class Asked:
    """A call that a test has under way.

    Attributes:
        scope: cancels it.
        result: what it answered; None while it runs and where it was cancelled.
        ended: whether it has.
        guard: its guard.
    """

    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    result: ResultArm | None = None
    ended: bool = False
    guard: Guard = field(default_factory=Guard)


class World:
    """A service over a watched store and two GitHub forges; ``github.com`` is the default."""

    def __init__(self, *, body_limit: int = 65_536, limits: ServiceLimits | None = None) -> None:
        self.events: list[str] = []
        self.store = WatchedStore(self.events)
        self.forge = WatchedForge(self.events, body_limit=body_limit)
        self.ghe = WatchedForge(self.events, host=GHE)
        self.counters = Counters()
        registry = Registry([Entry("github", "github.com", self.forge), Entry("github", GHE, self.ghe)])
        self.service = ForgeService(self.store, registry, ref_secret=SECRET, counters=self.counters, limits=limits)
        self.scout = Caller(None, "", "")
        self.pilot = Caller(None, "", "")

    async def populate(self) -> None:
        """Bind the two agents, and forget that the store was asked to."""
        self.scout = await self._bind("scout", "ada", "s-1", "c1")
        self.pilot = await self._bind("pilot", "bob", "s-2", "c2")
        self.store.touches = 0

    async def _bind(self, agent: str, owner: str, session: str, container: str) -> Caller:
        await self.store.open_container(HOST, ContainerSpec(container))
        bound = await self.store.bind_session(HOST, SessionBinding(container, session, agent, owner))
        return Caller(bound.account, session, container)

    async def run(
        self,
        arm: Arm,
        key: str = "",
        *,
        caller: Caller | None = None,
        forge: ForgeSelector | None = None,
        guard: Guard | None = None,
        context: CallContext | None = None,
    ) -> ResultArm:
        """One call, by default the scout's to the default forge."""
        who = caller or self.scout
        call = ForgeCall(call_id="1", arm=arm, forge=forge, client_request_id=key)
        return await self.service.execute(who, call, context or CallContext(who.container, guard or Guard()))

    def ask(self, nursery: trio.Nursery, arm: Arm = CREATE, key: str = "k-1", *, caller: Caller | None = None) -> Asked:
        """One call in a task of its own."""
        asked = Asked()

        async def task() -> None:
            with asked.scope:
                asked.result = await self.run(arm, key, caller=caller, guard=asked.guard)
            asked.ended = True

        nursery.start_soon(task)
        return asked

    @property
    def forge_calls(self) -> int:
        """How many calls have come to any forge."""
        return self.forge.count() + self.ghe.count()

    @property
    def untouched(self) -> bool:
        """Whether neither a forge nor the store has been asked anything."""
        return self.forge_calls == 0 and self.store.touches == 0


async def new_world(*, body_limit: int = 65_536, limits: ServiceLimits | None = None) -> World:
    """A world with its agents bound."""
    world = World(body_limit=body_limit, limits=limits)
    await world.populate()
    return world


def account_of(caller: Caller) -> Account:
    """The account behind a caller."""
    assert caller.account is not None
    return caller.account


def issue_of(result: ResultArm | None) -> Issue:
    """The issue that a call answered."""
    assert isinstance(result, IssueResult), result
    return result.issue


def page_of(result: ResultArm) -> IssuesResult:
    """The page that a call answered."""
    assert isinstance(result, IssuesResult), result
    return result


def refusal_of(result: ResultArm | None) -> tuple[str, str]:
    """(code, outcome) of an in-band error."""
    error = error_of(result)
    return error.code, error.outcome


def error_of(result: ResultArm | None) -> ErrorResult:
    """The in-band error that a call answered."""
    assert isinstance(result, ErrorResult), result
    return result


def raising(error: Exception) -> Hook:
    """A hook of the store that raises."""

    async def hook() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    return hook


def waiting(seconds: float) -> Hook:
    """A hook of the store that takes its time."""

    async def hook() -> None:
        await trio.sleep(seconds)

    return hook
