"""The order of the steps. Read ``ForgeService.begin`` top to bottom: the order is the contract.

identity, shape, scope, provider and role, memo, stamp, provider, record, result. Each step that refuses does so before
anything after it is touched. What needs no waiting is done, and if it comes to an answer answered, in ``begin``; what
must wait is handed back as work, so that nobody sets up a task for a refusal.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeAlias, assert_never

from compass_forged import policy
from compass_forged.errors import BadAnswer, BadRequest, CallError, Fault, ForgeError, StoreError, Unsupported
from compass_forged.observability import Counters, get_logger
from compass_forged.owner import Author
from compass_forged.policy import error_result, to_call_error
from compass_forged.ports import WITHOUT_PULL_REQUESTS, CallContext, Caller, Coordinate, Store, Work
from compass_forged.providers.registry import Entry, Registry
from compass_forged.scope import allows
from compass_forged.service import reads, writes
from compass_forged.service.bound import BoundCall, ServiceLimits
from compass_forged.service.creates import Creates
from compass_forged.service.subscriptions import Subscriptions
from compass_forged.wire.schema import (
    READ_ARMS,
    CommentOnIssue,
    CommentOnPullRequest,
    CreateIssue,
    CreatePullRequest,
    ForgeCall,
    GetIssue,
    GetPullRequest,
    ListIssues,
    ResultArm,
    SubmitReview,
    Subscribe,
    Unsubscribe,
    arm_name,
)

_log = get_logger(__name__)

PlacedArm: TypeAlias = (
    CreateIssue
    | CommentOnIssue
    | CreatePullRequest
    | CommentOnPullRequest
    | SubmitReview
    | GetIssue
    | ListIssues
    | GetPullRequest
    | Subscribe
)
"""An arm that names a forge and a repository there."""


class ForgeService:
    """Implements ``ForgeCaller`` over a store and a registry of providers."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        ref_secret: bytes,
        counters: Counters,
        limits: ServiceLimits | None = None,
        check_create: Callable[[], None] | None = None,
    ) -> None:
        """Make one.

        Args:
            store: keeps what was created.
            registry: the forges.
            ref_secret: keys the ``ref`` of stamped creates; all daemons of one store share it.
            counters: where things are counted.
            limits: deadlines.
            check_create: asked right before something new is created; raises ``CallError`` where nothing may be now.
        """
        limits = limits or ServiceLimits()
        self._registry = registry
        self._counters = counters
        self._creates = Creates(
            store, ref_secret=ref_secret, counters=counters, limits=limits, check_create=check_create
        )
        self._reader = reads.Reader(store, counters=counters, limits=limits)
        self._subscriptions = Subscriptions(store)

    def begin(self, caller: Caller, call: ForgeCall, context: CallContext) -> ResultArm | Work:
        """Begin one call; see ``ForgeCaller.begin``."""
        try:
            begun = self._begin(caller, call, context)
        except Fault:
            raise
        except Exception as error:  # noqa: BLE001 -- answered in-band with its true outcome
            return self._failed(error, call, context)
        return partial(self._finish, begun, call, context) if callable(begun) else begun

    async def execute(self, caller: Caller, call: ForgeCall, context: CallContext) -> ResultArm:
        """``begin``, and what must be waited for."""
        begun = self.begin(caller, call, context)
        return await begun() if callable(begun) else begun

    def _begin(self, caller: Caller, call: ForgeCall, context: CallContext) -> ResultArm | Work:
        account = caller.account
        if account is None or not (caller.session_id and caller.container):  # 1. identity
            raise Fault("permission_denied", "no account stands behind the session")
        author = _author(account.agent, account.owner, caller.session_id)
        policy.check_shape(call)  # 2. shape
        arm = call.arm
        if isinstance(arm, Unsubscribe):  # it names no forge: what it may touch, its row says
            check = None if caller.scope is None else partial(self._check_place, caller)
            return self._subscriptions.unsubscribe(account.agent_id, arm, context, check)
        known = self._registry.find(call.forge)
        repo = known.author.canonical_repo(arm.repo) if known else arm.repo
        if known:
            context.coordinate = f"{known.provider}:{known.host}/{repo}"
        self._check_scope(caller, call, known, repo)  # 3. scope
        entry = known or self._registry.resolve(call.forge)  # 4. provider and role
        if entry.provider in WITHOUT_PULL_REQUESTS and policy.is_about_pull_requests(arm):
            raise Unsupported(entry.provider, _operation(arm))
        if caller.scope is None:
            context.may_touch = in_scope = _anywhere
        else:
            context.may_touch = partial(self._in_scope, caller, entry.provider, entry.host)
            in_scope = partial(self._holds, caller)
        bound = BoundCall(account, author, caller.session_id, entry, repo, context, in_scope)
        return self._dispatch(bound, arm, call.client_request_id)

    def _dispatch(  # noqa: PLR0911 -- a table: one return per kind of arm
        self, bound: BoundCall, arm: PlacedArm, client_request_id: str
    ) -> ResultArm | Work:
        match arm:
            case CreateIssue() | CreatePullRequest():
                return self._creates.begin(bound, arm, client_request_id)  # 5. memo
            case CommentOnIssue() | CommentOnPullRequest():
                return writes.comment(bound, arm)
            case SubmitReview():
                return writes.review(bound, arm)
            case GetIssue():
                return partial(self._reader.get_issue, bound, arm)
            case GetPullRequest():
                return partial(self._reader.get_pull_request, bound, arm)
            case ListIssues():
                return partial(self._reader.list_issues, bound, arm)
            case Subscribe():
                return self._subscriptions.subscribe(bound, arm)
            case _:
                assert_never(arm)

    def _check_scope(self, caller: Caller, call: ForgeCall, known: Entry | None, repo: str) -> None:
        if caller.scope is None:
            return
        wanted = call.forge
        provider = known.provider if known else (wanted.provider if wanted else "")
        host = known.host if known else (wanted.host if wanted else "")
        if not self._in_scope(caller, provider, host, repo):
            raise policy.outside_scope()

    def _check_place(self, caller: Caller, place: Coordinate) -> None:
        if not self._holds(caller, place):
            raise policy.outside_scope()

    def _holds(self, caller: Caller, place: Coordinate) -> bool:
        return self._in_scope(caller, place.provider, place.host, place.repo)

    def _in_scope(self, caller: Caller, provider: str, host: str, repo: str) -> bool:
        default_host = self._registry.default_host(provider)
        return allows(caller.scope, provider=provider, host=host, repo=repo, default_host=default_host)

    # --- what must wait ---------------------------------------------------------------------------------------------

    async def _finish(self, work: Work, call: ForgeCall, context: CallContext) -> ResultArm:
        try:
            return await work()
        except Fault:
            raise
        except Exception as error:  # noqa: BLE001 -- answered in-band with its true outcome
            return self._failed(error, call, context)

    def _failed(self, error: Exception, call: ForgeCall, context: CallContext) -> ResultArm:
        write, sent = not isinstance(call.arm, READ_ARMS), context.guard.sent
        if write and sent and isinstance(error, CallError | ForgeError) and error.outcome == "not_sent":
            self._correct(error, call, context)
        if isinstance(error, CallError):
            return error_result(error, policy.true_outcome(error.outcome, write=write, sent=sent))
        if isinstance(error, ForgeError | StoreError):
            failed = to_call_error(error, write=write, sent=sent)
            if failed.code == "internal":
                _log.error(
                    "call failed",
                    arm=arm_name(call.arm),
                    coordinate=context.coordinate,
                    status=error.status if isinstance(error, BadAnswer | BadRequest) else 0,
                    error=f"{type(error).__name__}: {error}",
                )
            return error_result(failed)
        self._counters.add("internal_errors", where="service")
        _log.error(
            "unexpected error in the service", arm=arm_name(call.arm), coordinate=context.coordinate, exc_info=error
        )
        failed = CallError("internal", "the daemon failed; its log says why")
        return error_result(failed, policy.true_outcome("", write=write, sent=sent))

    def _correct(self, error: Exception, call: ForgeCall, context: CallContext) -> None:
        """What has gone out cannot be ``not_sent``: it is told as unknown, and whoever said so is to be mended."""
        self._counters.add("outcomes_corrected")
        _log.error(
            "a sent write was said not to be sent",
            arm=arm_name(call.arm),
            coordinate=context.coordinate,
            error=f"{type(error).__name__}: {error}",
        )


def _anywhere(_place: str | Coordinate) -> bool:
    return True


@lru_cache(maxsize=4096)
def _author(agent: str, owner: str, session_id: str) -> Author:
    try:
        return Author(agent=agent, owner=owner, session=session_id)
    except ValueError as error:
        raise Fault("permission_denied", "the session's account cannot be written into a header") from error


def _operation(arm: PlacedArm) -> str:
    return f"{arm_name(arm)} for pull requests" if isinstance(arm, Subscribe) else arm_name(arm)
