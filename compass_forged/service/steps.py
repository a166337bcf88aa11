"""The order of the steps. Read ``ForgeService.begin`` top to bottom: the order is the contract.

identity, shape, scope, provider and role, memo, stamp, provider, record, result. Each step that refuses does so before
anything after it is touched. What needs no waiting is done, and if it comes to an answer answered, in ``begin``; what
must wait is handed back as work, so that nobody sets up a task for a refusal.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import assert_never

from compass_forged import policy
from compass_forged.errors import BadAnswer, CallError, Fault, ForgeError, StoreError
from compass_forged.observability import Counters, get_logger
from compass_forged.owner import Author
from compass_forged.policy import error_result, to_call_error
from compass_forged.ports import CallContext, Caller, Store, Work
from compass_forged.providers.registry import Entry, Registry
from compass_forged.scope import allows
from compass_forged.service import reads, writes
from compass_forged.service.bound import BoundCall, ServiceLimits
from compass_forged.service.creates import Creates
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
        if account is None or not caller.session_id:  # 1. identity
            raise Fault("permission_denied", "no account stands behind the session")
        author = _author(account.agent, account.owner, caller.session_id)
        policy.check_shape(call)  # 2. shape
        if isinstance(call.arm, Unsubscribe):
            raise _not_yet(call)
        known = self._registry.find(call.forge)
        repo = known.author.canonical_repo(call.arm.repo) if known else call.arm.repo
        if known:
            context.coordinate = f"{known.provider}:{known.host}/{repo}"
        self._check_scope(caller, call, known, repo)  # 3. scope
        entry = known or self._registry.resolve(call.forge)  # 4. provider and role
        context.may_touch = (
            _anywhere if caller.scope is None else partial(self._in_scope, caller, entry.provider, entry.host)
        )
        return self._dispatch(BoundCall(account, author, caller.session_id, entry, repo, context), call)

    def _dispatch(self, bound: BoundCall, call: ForgeCall) -> ResultArm | Work:
        match call.arm:
            case CreateIssue() | CreatePullRequest() as arm:
                return self._creates.begin(bound, arm, call.client_request_id)  # 5. memo
            case CommentOnIssue() | CommentOnPullRequest() as arm:
                return writes.comment(bound, arm)
            case SubmitReview() as arm:
                return writes.review(bound, arm)
            case GetIssue() as arm:
                return partial(self._reader.get_issue, bound, arm)
            case GetPullRequest() as arm:
                return partial(self._reader.get_pull_request, bound, arm)
            case ListIssues() as arm:
                return partial(self._reader.list_issues, bound, arm)
            case Subscribe() | Unsubscribe():
                raise _not_yet(call, bound.entry.provider)
            case _:
                assert_never(call.arm)

    def _check_scope(self, caller: Caller, call: ForgeCall, known: Entry | None, repo: str) -> None:
        if caller.scope is None:
            return
        wanted = call.forge
        provider = known.provider if known else (wanted.provider if wanted else "")
        host = known.host if known else (wanted.host if wanted else "")
        if not self._in_scope(caller, provider, host, repo):
            raise CallError(
                "permission_denied",
                "the session's scope does not include this repository",
                outcome="not_sent",
            )

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
        write = not isinstance(call.arm, READ_ARMS)
        if isinstance(error, CallError):
            error.outcome = policy.outcome_if(write, error.outcome)
            return error_result(error)
        if isinstance(error, ForgeError | StoreError):
            failed = to_call_error(error, write=write)
            if failed.code == "internal":
                _log.error(
                    "call failed",
                    arm=arm_name(call.arm),
                    coordinate=context.coordinate,
                    status=error.status if isinstance(error, BadAnswer) else 0,
                    error=f"{type(error).__name__}: {error}",
                )
            return error_result(failed)
        self._counters.add("internal_errors", where="service")
        _log.error(
            "unexpected error in the service", arm=arm_name(call.arm), coordinate=context.coordinate, exc_info=error
        )
        outcome = policy.outcome_if(write, "unknown" if context.guard.sent else "not_sent")
        return error_result(CallError("internal", "the daemon failed; its log says why", outcome=outcome))


def _anywhere(_repo: str) -> bool:
    return True


@lru_cache(maxsize=4096)
def _author(agent: str, owner: str, session_id: str) -> Author:
    try:
        return Author(agent=agent, owner=owner, session=session_id)
    except ValueError as error:
        raise Fault("permission_denied", "the session's account cannot be written into a header") from error


def _not_yet(call: ForgeCall, provider: str = "this daemon") -> CallError:
    return CallError("unimplemented", f"{provider} does not implement {arm_name(call.arm)} yet", outcome="not_sent")
