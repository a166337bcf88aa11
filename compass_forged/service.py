"""The service: one forge call as one account. Read ``_run`` top to bottom: the order is the contract.

identity, shape, scope, provider and role, memo, stamp, provider, record, result. Each step that refuses does so before
anything after it is touched.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain, repeat
from typing import Final

import msgspec
import trio

from compass_forged import owner, policy
from compass_forged.errors import (
    BadAnswer,
    BadRepo,
    CallError,
    Fault,
    ForgeError,
    SchemaMismatch,
    StoreConflict,
    StoreError,
    StoreUnavailable,
    ValueRefused,
)
from compass_forged.fingerprint import coordinate_text, create_ref, request_fingerprint
from compass_forged.observability import Counters, get_logger
from compass_forged.owner import Author
from compass_forged.policy import error_result, invalid, to_call_error
from compass_forged.ports import (
    Account,
    ArtifactKind,
    AuthoredArtifact,
    CallContext,
    Caller,
    Coordinate,
    Provider,
    Store,
    WriteGuard,
)
from compass_forged.providers.registry import Entry, Registry
from compass_forged.scope import allows
from compass_forged.wire.codec import encode_reply
from compass_forged.wire.frames import REPLY_MAX_BYTES
from compass_forged.wire.schema import (
    READ_ARMS,
    Attribution,
    Comment,
    CommentOnIssue,
    CreateIssue,
    ForgeCall,
    ForgeRef,
    GetIssue,
    Issue,
    IssueCommentResult,
    IssueResult,
    ListIssues,
    PullRequest,
    PullRequestResult,
    ResultArm,
    ResultFrame,
    Unsubscribe,
    arm_name,
)

_log = get_logger(__name__)

_RECORD_RETRY_SECONDS: Final = (0.05, 0.2, 0.5, 1.0, 2.0)
_FRAME_SLACK_BYTES: Final = 4096
_UNRECORDABLE: Final = (StoreConflict, ValueRefused, SchemaMismatch)
"""What no later attempt would mend."""
_BODY_TIMES_LIMIT: Final = 4
"""A forge's body of so many times its own limit is cut: no honest one is that long, and reading it takes a while."""


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Deadlines of the service's own waits, in seconds.

    Attributes:
        record_seconds: how long recording an artifact may take, retries included, shielded from cancellation.
        attribution_seconds: how long a read waits for the ownership index before it answers unverified.
    """

    record_seconds: float = 10.0
    attribution_seconds: float = 0.2


@dataclass(slots=True)
class _Flight:
    """A keyed create under way in this process; others under the same key wait for ``done``."""

    fingerprint: bytes
    guard: WriteGuard
    done: trio.Event
    artifact: AuthoredArtifact | None = None
    error: CallError | None = None


@dataclass(frozen=True, slots=True)
class _Call:
    """What the steps of one call share once they are known."""

    account: Account
    author: Author
    session_id: str
    entry: Entry
    repo: str
    context: CallContext

    @property
    def provider(self) -> Provider:
        return self.entry.author

    def coordinate(self, kind: ArtifactKind, number: int, repo: str | None = None) -> Coordinate:
        key = self.repo if repo is None else self.provider.canonical_repo(repo)
        return Coordinate(self.entry.provider, self.entry.host, key, kind, number)

    def written_at(self, issue: Issue) -> Coordinate:
        """Where a new issue stands. Never fails: the issue exists, and an error would invite a second one."""
        try:
            return self.coordinate("issue", issue.number, issue.repo)
        except BadRepo:  # the forge's own word fails its grammar: the name that was asked for stands
            return self.coordinate("issue", issue.number)


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
    ) -> None:
        """``ref_secret`` keys the ``ref`` of stamped creates; all daemons of one store share it."""
        self._store = store
        self._registry = registry
        self._ref_secret = ref_secret
        self._counters = counters
        self._limits = limits or ServiceLimits()
        self._flights: dict[tuple[int, str], _Flight] = {}
        # Bounded by the creates that were in flight when the store went away: no other is let through.
        self._unrecorded: dict[Coordinate, AuthoredArtifact] = {}

    async def execute(self, caller: Caller, call: ForgeCall, context: CallContext) -> ResultArm:
        """Execute one call; see ``ForgeCaller.execute``."""
        write = not isinstance(call.arm, READ_ARMS)
        try:
            return await self._run(caller, call, context)
        except CallError as error:
            error.outcome = policy.outcome_if(write, error.outcome)
            return error_result(error)
        except (ForgeError, StoreError) as error:
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
        except Fault:
            raise
        except Exception:  # noqa: BLE001 -- answered in-band with its true outcome
            self._counters.add("internal_errors", where="service")
            _log.exception("unexpected error in the service", arm=arm_name(call.arm), coordinate=context.coordinate)
            outcome = policy.outcome_if(write, "unknown" if context.guard.sent else "not_sent")
            return error_result(CallError("internal", "the daemon failed; its log says why", outcome=outcome))

    async def _run(self, caller: Caller, call: ForgeCall, context: CallContext) -> ResultArm:
        author = _author(caller)  # 1. identity
        policy.check_shape(call)  # 2. shape
        if isinstance(call.arm, Unsubscribe):
            raise _not_yet(call)
        known = self._registry.find(call.forge)
        repo = known.author.canonical_repo(call.arm.repo) if known else call.arm.repo
        if known:
            context.coordinate = f"{known.provider}:{known.host}/{repo}"
        self._check_scope(caller, call, known, repo)  # 3. scope
        entry = known or self._registry.resolve(call.forge)  # 4. provider and role
        context.may_touch = partial(self._in_scope, caller, entry.provider, entry.host)
        assert caller.account is not None  # noqa: S101 -- _author has refused it
        bound = _Call(caller.account, author, caller.session_id, entry, repo, context)
        match call.arm:
            case CreateIssue():
                return await self._create(bound, call, call.arm)
            case CommentOnIssue():
                return await self._comment(bound, call.arm)
            case GetIssue():
                return await self._get_issue(bound, call.arm)
            case ListIssues():
                return await self._list_issues(bound, call.arm)
            case _:
                raise _not_yet(call, entry.provider)

    def _check_scope(self, caller: Caller, call: ForgeCall, known: Entry | None, repo: str) -> None:
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

    # --- creates ----------------------------------------------------------------------------------------------------

    async def _create(self, bound: _Call, call: ForgeCall, arm: CreateIssue) -> ResultArm:
        if not call.client_request_id:
            if not self._store.available:  # by what is known: a keyless create asks the store nothing
                raise StoreUnavailable("the store is out of reach")
            await self._record_what_is_left()
            issue = await self._send_create(bound, arm, None, None)
            return IssueResult(issue=issue)
        key = (bound.account.agent_id, call.client_request_id)
        fingerprint = request_fingerprint(bound.entry.provider, bound.entry.host, bound.repo, arm)
        while (flight := self._flights.get(key)) is not None:
            bound.context.waits_on = flight.guard
            await flight.done.wait()  # bounded by the call's own deadline
            bound.context.waits_on = None
            if answer := _joined(flight, fingerprint):
                self._counters.add("memo_joins")
                return answer
        return await self._lead(bound, arm, key, fingerprint)

    async def _lead(self, bound: _Call, arm: CreateIssue, key: tuple[int, str], fingerprint: bytes) -> ResultArm:
        flight = self._flights[key] = _Flight(fingerprint, bound.context.guard, trio.Event())
        try:
            await self._record_what_is_left()
            memo = await self._store.authored_artifact_by_request_id(*key)  # 5. memo
            if memo is not None:
                self._counters.add("memo_hits")
                flight.artifact = memo
                return replayed(memo, mismatch=memo.fingerprint != fingerprint)
            issue = await self._send_create(bound, arm, key[1], flight)
            return IssueResult(issue=issue)
        except CallError as error:
            flight.error = error
            raise
        except (ForgeError, StoreError) as error:
            flight.error = to_call_error(error, write=True)
            raise
        finally:
            if flight.artifact is None and flight.error is None and bound.context.guard.sent:
                # Cancelled or broken after it went out: whoever waits must not send a second one.
                flight.error = CallError(
                    "unavailable",
                    "an earlier attempt under this key was sent and its end is not known",
                    outcome="unknown",
                )
            del self._flights[key]
            flight.done.set()

    async def _send_create(
        self, bound: _Call, arm: CreateIssue, client_request_id: str | None, flight: _Flight | None
    ) -> Issue:
        where = (bound.entry.provider, bound.entry.host, bound.repo)
        ref = (
            create_ref(
                self._ref_secret,
                agent_id=bound.account.agent_id,
                client_request_id=client_request_id,
                where=where,
            )
            if client_request_id
            else ""
        )
        body = _stamp(arm.body, bound, ref=ref)  # 6. stamp
        issue = await bound.provider.create_issue(msgspec.structs.replace(arm, body=body), bound.context)  # 7. provider
        artifact = AuthoredArtifact(
            coordinate=bound.written_at(issue),
            repo=issue.repo,
            account=bound.account,
            session_id=bound.session_id,
            client_request_id=client_request_id,
            fingerprint=flight.fingerprint if flight else None,
            url=issue.url,
            created_at=issue.created_at or _now(),
        )
        if flight:
            flight.artifact = artifact
        recorded = await self._record(artifact)  # 8. record
        author = bound.author
        issue.attribution = Attribution(author.agent, author.owner, author.session, verified=recorded)
        issue.body = owner.strip(self._cut(bound, issue.body))  # 9. result
        return issue

    async def _record(self, artifact: AuthoredArtifact) -> bool:
        """Write row and memo, shielded and retried within its own deadline; a loss is logged and counted, never raised.

        The artifact exists: nothing here may invite a repeat of the create.
        """
        pauses = chain(_RECORD_RETRY_SECONDS, repeat(_RECORD_RETRY_SECONDS[-1]))
        problem: Exception = StoreUnavailable("the store did not answer in time")
        with trio.move_on_after(self._limits.record_seconds, shield=True):
            while True:
                try:
                    await self._store.record_authored_artifact(artifact)
                except _UNRECORDABLE as error:
                    problem = error
                    break
                except Exception as error:  # noqa: BLE001 -- an outage, or a bug that shows now and then: try again
                    problem = error
                else:
                    return True
                await trio.sleep(next(pauses))
        if isinstance(problem, StoreError) and not isinstance(problem, _UNRECORDABLE):
            self._unrecorded[artifact.coordinate] = artifact
        self._counters.add("records_lost")
        _log.error(
            "artifact could not be recorded",
            coordinate=coordinate_text(artifact.coordinate),
            agent=artifact.account.agent,
            error=f"{type(problem).__name__}: {problem}",
            exc_info=None if isinstance(problem, StoreError) else problem,
        )
        return False

    async def _record_what_is_left(self) -> None:
        """Record what could not be recorded when it was created; until then nothing more is created.

        So a store that reads but cannot write stops creates, and a memo that was lost is found by its key again.

        Raises:
            StoreUnavailable: it still cannot be recorded.
        """
        for coordinate, artifact in list(self._unrecorded.items()):
            try:
                await self._store.record_authored_artifact(artifact)
            except _UNRECORDABLE as error:
                _log.error("artifact cannot be recorded", coordinate=coordinate_text(coordinate), error=str(error))
            else:
                self._counters.add("records_recovered")
                _log.info("artifact recorded late", coordinate=coordinate_text(coordinate))
            self._unrecorded.pop(coordinate, None)

    # --- comments ---------------------------------------------------------------------------------------------------

    async def _comment(self, bound: _Call, arm: CommentOnIssue) -> ResultArm:
        stamped = msgspec.structs.replace(arm, body=_stamp(arm.body, bound))
        return IssueCommentResult(comment=await bound.provider.comment_on_issue(stamped, bound.context))

    # --- reads ------------------------------------------------------------------------------------------------------

    async def _get_issue(self, bound: _Call, arm: GetIssue) -> ResultArm:
        issue = await bound.provider.get_issue(arm, bound.context)
        await self._attribute(bound, [issue])
        for comment in issue.comments:
            await trio.lowlevel.checkpoint()  # as in ``_attribute``
            comment.body = self._cut(bound, comment.body)
            _clean_comment(comment)
        while len(issue.comments) > 1 and _size(IssueResult(issue=issue)) > REPLY_MAX_BYTES:
            del issue.comments[: (len(issue.comments) + 1) // 2]  # the oldest go; comments_total tells
        return IssueResult(issue=issue)

    async def _list_issues(self, bound: _Call, arm: ListIssues) -> ResultArm:
        page = await bound.provider.list_issues(arm, bound.context)
        await self._attribute(bound, page.items)
        if len(page.items) <= 1 or _size(page) <= REPLY_MAX_BYTES:
            return page
        # Cursors are the provider's, so a shorter page must be asked for: half as many items.
        return await self._list_issues(bound, msgspec.structs.replace(arm, limit=len(page.items) // 2))

    async def _attribute(self, bound: _Call, issues: list[Issue]) -> None:
        """Strip the bodies; say who wrote what, from the index in one query where it knows, else from the text."""
        wanted = {issue.number: bound.coordinate("issue", issue.number, issue.repo) for issue in issues}
        known: dict[Coordinate, Attribution] = {}
        if wanted:
            known = await self._index_lookup(list(wanted.values()), bound.account.agent_id)
        for issue in issues:
            await trio.lowlevel.checkpoint()  # a page of hostile bodies takes a while to strip: let others run
            issue.body = self._cut(bound, issue.body)
            claim = owner.parse(issue.body)
            issue.attribution = known.get(wanted[issue.number]) or _claimed(claim)
            issue.body = owner.strip(issue.body)

    def _cut(self, bound: _Call, body: str) -> str:
        most = bound.provider.body_limit * _BODY_TIMES_LIMIT
        if not most or len(body) <= most:
            return body
        self._counters.add("forge_bodies_cut")
        _log.warning("a body from the forge was cut", coordinate=bound.context.coordinate, chars=len(body))
        return body[:most]

    async def _index_lookup(self, coordinates: list[Coordinate], asker: int) -> dict[Coordinate, Attribution]:
        if not self._store.available:
            return {}
        with trio.move_on_after(self._limits.attribution_seconds):
            try:
                found = await self._store.attribution_of(coordinates, asker=asker)
            except StoreError as error:
                _log.warning("attribution not looked up", error=str(error))
            else:
                return {
                    place: Attribution(who.agent, who.owner, who.session_id, verified=True)
                    for place, who in found.items()
                }
        self._counters.add("attribution_lookups_failed")
        return {}


# --- pure helpers ---------------------------------------------------------------------------------------------------


def replayed(memo: AuthoredArtifact, *, mismatch: bool) -> ResultArm:
    """A create answered from its memo: forge, repo, number, url and created_at, in the arm of the stored kind."""
    place = memo.coordinate
    kind: Callable[..., Issue] = Issue if place.kind == "issue" else PullRequest
    found = kind(
        forge=ForgeRef(place.provider, place.host),
        repo=memo.repo,
        number=place.number,
        url=memo.url,
        created_at=memo.created_at,
        replayed=True,
        replay_mismatch=mismatch,
    )
    return PullRequestResult(pull_request=found) if isinstance(found, PullRequest) else IssueResult(issue=found)


def _now() -> str:
    """For a forge that does not tell when it created something."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _author(caller: Caller) -> Author:
    account = caller.account
    if account is None or not caller.session_id:
        raise Fault("permission_denied", "no account stands behind the session")
    try:
        return Author(agent=account.agent, owner=account.owner, session=caller.session_id)
    except ValueError as error:
        raise Fault("permission_denied", "the session's account cannot be written into a header") from error


def _stamp(body: str, bound: _Call, *, ref: str = "") -> str:
    limit = bound.provider.body_limit
    try:
        return owner.stamp(body, bound.author, limit, ref=ref)
    except owner.BodyTooLarge as error:
        raise invalid(
            f"body: {error.overage} bytes too large; {bound.entry.provider} takes {limit} bytes with the owner header"
        ) from error


def _joined(flight: _Flight, fingerprint: bytes) -> ResultArm | None:
    """What a joiner answers once its leader ended; None if it should lead itself.

    Raises:
        CallError: the leader's end is not known, or the same request was refused just now.
    """
    if flight.artifact is not None:
        return replayed(flight.artifact, mismatch=flight.artifact.fingerprint != fingerprint)
    error = flight.error
    if error is not None and (
        error.outcome == "unknown" or (error.outcome == "rejected" and flight.fingerprint == fingerprint)
    ):
        raise CallError(error.code, error.message, outcome=error.outcome, retry_after_ms=error.retry_after_ms)
    return None


def _claimed(claim: owner.Claim | None) -> Attribution | None:
    return None if claim is None else Attribution(claim.agent, claim.owner, claim.session, verified=False)


def _clean_comment(comment: Comment) -> None:
    comment.attribution = _claimed(owner.parse(comment.body))
    comment.body = owner.strip(comment.body)


def _size(result: ResultArm) -> int:
    return len(encode_reply(ResultFrame(call_id="", result=result))) + _FRAME_SLACK_BYTES


def _not_yet(call: ForgeCall, provider: str = "this daemon") -> CallError:
    return CallError("unimplemented", f"{provider} does not implement {arm_name(call.arm)} yet", outcome="not_sent")
