"""What the tests of the service share: a world of a watched store, scripted forges and a guard, and what they saw."""

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
import trio

from compass_forged.errors import BadRepo
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
    Subscription,
)
from compass_forged.providers.fake import FakeProvider, Step
from compass_forged.providers.registry import Entry, Registry
from compass_forged.service import ForgeService, ServiceLimits
from compass_forged.store.memory import MemoryStore
from compass_forged.wire.schema import (
    Arm,
    CommentOnIssue,
    CommentOnPullRequest,
    CreateIssue,
    CreatePullRequest,
    ErrorResult,
    ForgeCall,
    ForgeSelector,
    GetIssue,
    GetPullRequest,
    InlineComment,
    Issue,
    IssueResult,
    IssuesResult,
    ListIssues,
    PullRequest,
    PullRequestResult,
    ResultArm,
    ReviewRef,
    ReviewResult,
    SubmitReview,
    Subscribe,
    SubscribedResult,
    Unsubscribe,
)

REPO = "Acme/site"
CREATE = CreateIssue(repo=REPO, title="A title", body="The words.", labels=["bug"])
COMMENT = CommentOnIssue(repo=REPO, issue_number=1, body="A remark.")
READ = GetIssue(repo=REPO, issue_number=1)
LISTING = ListIssues(repo=REPO)
PULL = CreatePullRequest(repo=REPO, title="A title", head_ref="feature", body="The words.")
PULL_COMMENT = CommentOnPullRequest(repo=REPO, pull_number=2, body="A remark.")
INLINE = InlineComment(path="src/a.py", line=3, body="Look.")
REVIEW = SubmitReview(repo=REPO, pull_number=2, verdict="request_changes", body="A summary.", comments=[INLINE])
PULL_READ = GetPullRequest(repo=REPO, pull_number=2)
SUBSCRIBE = Subscribe(repo=REPO, kind="issue", number=1)
FORGE_ARMS: tuple[Arm, ...] = (CREATE, COMMENT, PULL, PULL_COMMENT, REVIEW, READ, LISTING, PULL_READ)
"""The arms that ask a forge, as they are answered in a furnished world."""
STAMPED: tuple[Arm, ...] = (CREATE, COMMENT, PULL, PULL_COMMENT, REVIEW)
"""The arms whose body is stamped."""
STAMPED_ARMS = (CreateIssue, CommentOnIssue, CreatePullRequest, CommentOnPullRequest, SubmitReview)
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

    async def fill_memo(
        self, coordinate: Coordinate, agent_id: int, client_request_id: str, fingerprint: bytes
    ) -> bool:
        """See the port."""
        await self._first("fill")
        return await super().fill_memo(coordinate, agent_id, client_request_id, fingerprint)

    async def attribution_of(
        self, coordinates: Collection[Coordinate], *, asker: int | None = None
    ) -> dict[Coordinate, IndexedAuthor]:
        """See the port."""
        await self._first("attribution")
        return await super().attribution_of(coordinates, asker=asker)

    async def subscribe(self, account: Account, coordinate: Coordinate, session_id: str) -> Subscription:
        """See the port."""
        await self._first("subscribe")
        return await super().subscribe(account, coordinate, session_id)

    async def subscription(self, agent_id: int, subscription_id: str) -> Subscription | None:
        """See the port."""
        await self._first("subscription")
        return await super().subscription(agent_id, subscription_id)

    async def unsubscribe(self, agent_id: int, subscription_id: str) -> bool:
        """See the port."""
        await self._first("unsubscribe")
        return await super().unsubscribe(agent_id, subscription_id)


class WatchedForge(FakeProvider):
    """The scripted forge, which also keeps the contexts of its calls and lets a test change what it answers.

    Attributes:
        contexts: of every call, in order.
        on_yes: done with a created artifact once it stands, right before the forge's yes comes back.
        on_page: done with every page of a listing.
    """

    def __init__(
        self,
        events: list[str],
        *,
        name: str = "github",
        host: str = "github.com",
        body_limit: int = 65_536,
        told_as: str = "forge",
    ) -> None:
        super().__init__(name=name, host=host, body_limit=body_limit)
        self.events = events
        self.told_as = told_as
        self.contexts: list[CallContext] = []
        self.on_yes: Callable[[Issue], None] = lambda _issue: None
        self.on_page: Callable[[IssuesResult], None] = lambda _page: None

    async def create_issue(self, arm: CreateIssue, context: CallContext) -> Issue:
        """See the port."""
        issue = await super().create_issue(arm, context)
        self.on_yes(issue)
        return issue

    async def create_pull_request(self, arm: CreatePullRequest, context: CallContext) -> PullRequest:
        """See the port."""
        pull = await super().create_pull_request(arm, context)
        self.on_yes(pull)
        return pull

    async def list_issues(self, arm: ListIssues, context: CallContext) -> IssuesResult:
        """See the port."""
        page = await super().list_issues(arm, context)
        self.on_page(page)
        return page

    async def _begin(self, arm: Arm, context: CallContext, *, write: bool) -> Step:
        self.events.append(self.told_as)
        self.contexts.append(context)
        return await super()._begin(arm, context, write=write)

    @property
    def posted(self) -> list[str]:
        """The bodies of the writes that came, in order."""
        return [arm.body for arm in self.calls if isinstance(arm, STAMPED_ARMS)]


class Linear(WatchedForge):
    """A forge without pull requests, whose repositories are teams."""

    def __init__(self, events: list[str]) -> None:
        super().__init__(events, name="linear", host="linear.app")

    def canonical_repo(self, repo: str) -> str:
        """The team's key in upper case."""
        if not repo.isalnum():
            raise BadRepo("repo: must be a team's key")
        return repo.upper()


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
    """A service over a watched store and two GitHub forges; ``github.com`` is the default.

    It has a reviewer there; at the other there is none. Linear is there where it is asked for.
    """

    def __init__(self, *, body_limit: int = 65_536, limits: ServiceLimits | None = None, linear: bool = False) -> None:
        self.events: list[str] = []
        self.store = WatchedStore(self.events)
        self.forge = WatchedForge(self.events, body_limit=body_limit)
        self.reviewer = WatchedForge(self.events, body_limit=body_limit, told_as="reviewer")
        self.reviewer.issues, self.reviewer.pull_requests = self.forge.issues, self.forge.pull_requests
        self.ghe = WatchedForge(self.events, host=GHE)
        self.linear = Linear(self.events)
        self.counters = Counters()
        entries = [Entry("github", "github.com", self.forge, self.reviewer), Entry("github", GHE, self.ghe)]
        if linear:
            entries.append(Entry("linear", "linear.app", self.linear))
        registry = Registry(entries)
        self.service = ForgeService(self.store, registry, ref_secret=SECRET, counters=self.counters, limits=limits)
        self.scout = Caller(None, "", "")
        self.pilot = Caller(None, "", "")

    async def populate(self) -> None:
        """Bind the two agents, and forget that the store was asked to."""
        self.scout = await self._bind("scout", "ada", "s-1", "c1")
        self.pilot = await self._bind("pilot", "bob", "s-2", "c2")
        self.store.touches = 0

    async def furnish(self) -> None:
        """Let the scout open an issue, which is number 1, and a pull request, which is number 2; forget the calls."""
        issue_of(await self.run(CREATE))
        pull_of(await self.run(msgspec.structs.replace(PULL, head_ref="furnished")))
        for forge in self.forges:
            forge.calls.clear()
            forge.contexts.clear()
        self.events.clear()
        self.store.touches = 0
        self.store.recorded.clear()

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
        return sum(forge.count() for forge in self.forges)

    @property
    def forges(self) -> tuple[WatchedForge, ...]:
        """All that could be asked, the reviewer too."""
        return (self.forge, self.reviewer, self.ghe, self.linear)

    def client_of(self, arm: Arm) -> WatchedForge:
        """The client of the default forge that an arm is to go through."""
        return self.reviewer if isinstance(arm, SubmitReview) else self.forge

    @property
    def untouched(self) -> bool:
        """Whether neither a forge nor the store has been asked anything."""
        return self.forge_calls == 0 and self.store.touches == 0


async def new_world(
    *, body_limit: int = 65_536, limits: ServiceLimits | None = None, linear: bool = False, furnished: bool = False
) -> World:
    """A world with its agents bound."""
    world = World(body_limit=body_limit, limits=limits, linear=linear)
    await world.populate()
    if furnished:
        await world.furnish()
    return world


def account_of(caller: Caller) -> Account:
    """The account behind a caller."""
    assert caller.account is not None
    return caller.account


def issue_of(result: ResultArm | None) -> Issue:
    """The issue that a call answered."""
    assert isinstance(result, IssueResult), result
    return result.issue


def pull_of(result: ResultArm | None) -> PullRequest:
    """The pull request that a call answered."""
    assert isinstance(result, PullRequestResult), result
    return result.pull_request


def review_of(result: ResultArm | None) -> ReviewRef:
    """The review that a call answered."""
    assert isinstance(result, ReviewResult), result
    return result.review


def subscription_of(result: ResultArm | None) -> Unsubscribe:
    """What ends the subscription that a call answered."""
    assert isinstance(result, SubscribedResult), result
    return Unsubscribe(subscription_id=result.subscription_id)


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
