"""Creates: at most one artifact under a key, and none without its row.

What stands here is the memo (of a key, or of a create under way in this process that others join), the send, and the
record, which is shielded and retried.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import chain, repeat
from typing import Final, TypeAlias

import msgspec
import trio

from compass_forged import owner
from compass_forged.errors import (
    CallError,
    ForgeError,
    SchemaMismatch,
    StoreConflict,
    StoreError,
    StoreUnavailable,
    ValueRefused,
)
from compass_forged.fingerprint import coordinate_text, create_ref, request_fingerprint
from compass_forged.observability import Counters, get_logger
from compass_forged.policy import to_call_error
from compass_forged.ports import AuthoredArtifact, Coordinate, Store, Work, WriteGuard
from compass_forged.service.bound import BoundCall, ServiceLimits
from compass_forged.service.reads import cut
from compass_forged.wire.schema import (
    Attribution,
    CreateIssue,
    CreatePullRequest,
    ForgeRef,
    Issue,
    IssueResult,
    PullRequest,
    PullRequestResult,
    ResultArm,
)

_log = get_logger(__name__)

CreateArm: TypeAlias = CreateIssue | CreatePullRequest
Key: TypeAlias = tuple[int, str]
"""(agent id, client request id)."""

MEMOS_AT_HAND: Final = 2048
"""So many memos are kept in memory, the least recently asked for go first: a replay of theirs asks no store."""
_RECORD_RETRY_SECONDS: Final = (0.05, 0.2, 0.5, 1.0, 2.0)
_UNRECORDABLE: Final = (StoreConflict, ValueRefused, SchemaMismatch)
"""What no later attempt would mend."""


@dataclass(slots=True)
class _Flight:
    """A keyed create under way in this process; others under the same key wait for ``done``."""

    fingerprint: bytes
    guard: WriteGuard
    done: trio.Event
    artifact: AuthoredArtifact | None = None
    error: CallError | None = None


class Creates:
    """The creates of all callers. State: flights, memos at hand, and records that are owed."""

    def __init__(
        self,
        store: Store,
        *,
        ref_secret: bytes,
        counters: Counters,
        limits: ServiceLimits,
        check_create: Callable[[], None] | None = None,
    ) -> None:
        """``ref_secret`` keys the ``ref`` of stamped creates; ``check_create`` refuses what would be new."""
        self._store = store
        self._ref_secret = ref_secret
        self._counters = counters
        self._limits = limits
        self._check_create = check_create
        self._flights: dict[Key, _Flight] = {}
        self._at_hand: OrderedDict[Key, AuthoredArtifact] = OrderedDict()
        # Bounded by the creates that were in flight when the store went away: no other is let through.
        self._unrecorded: dict[Coordinate, AuthoredArtifact] = {}

    def begin(self, bound: BoundCall, arm: CreateArm, client_request_id: str) -> ResultArm | Work:
        """Answer a create from a memo at hand, or say what is to be waited for.

        Raises:
            StoreUnavailable: the store is known to be out of reach: nothing is created, keyless or not.
        """
        if not self._store.available:  # by what is known, without a query
            raise StoreUnavailable("the store is out of reach")
        if not client_request_id:
            return partial(self._keyless, bound, arm)
        key = (bound.account.agent_id, client_request_id)
        fingerprint = request_fingerprint(bound.entry.provider, bound.entry.host, bound.repo, arm)
        memo = self._at_hand.get(key)
        if memo is None:
            return partial(self._keyed, bound, arm, key, fingerprint)
        self._at_hand.move_to_end(key)
        self._counters.add("memo_hits")
        return replayed(memo, mismatch=memo.fingerprint != fingerprint)

    async def _keyless(self, bound: BoundCall, arm: CreateArm) -> ResultArm:
        await self._record_what_is_left()
        return await self._send(bound, arm, None, None)

    async def _keyed(self, bound: BoundCall, arm: CreateArm, key: Key, fingerprint: bytes) -> ResultArm:
        while (flight := self._flights.get(key)) is not None:
            bound.context.waits_on = flight.guard
            await flight.done.wait()  # bounded by the call's own deadline
            bound.context.waits_on = None
            if answer := _joined(flight, fingerprint):
                self._counters.add("memo_joins")
                return answer
        return await self._lead(bound, arm, key, fingerprint)

    def _remember(self, key: Key, artifact: AuthoredArtifact) -> None:
        self._at_hand[key] = artifact
        if len(self._at_hand) > MEMOS_AT_HAND:
            self._at_hand.popitem(last=False)

    async def _lead(self, bound: BoundCall, arm: CreateArm, key: Key, fingerprint: bytes) -> ResultArm:
        flight = self._flights[key] = _Flight(fingerprint, bound.context.guard, trio.Event())
        try:
            await self._record_what_is_left()
            memo = await self._store.authored_artifact_by_request_id(*key)  # 5. memo
            if memo is not None:
                self._counters.add("memo_hits")
                flight.artifact = memo
                self._remember(key, memo)
                return replayed(memo, mismatch=memo.fingerprint != fingerprint)
            return await self._send(bound, arm, key, flight)
        except CallError as error:
            flight.error = _apart(error)
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

    async def _send(self, bound: BoundCall, arm: CreateArm, key: Key | None, flight: _Flight | None) -> ResultArm:
        if self._check_create is not None:
            self._check_create()
        body = bound.stamp(arm.body, ref=self._ref(bound, key))  # 6. stamp
        made = await _create(bound, arm, body)  # 7. provider
        artifact = AuthoredArtifact(
            coordinate=bound.written_at("issue" if isinstance(arm, CreateIssue) else "pull_request", made),
            repo=made.repo,
            account=bound.account,
            session_id=bound.session_id,
            client_request_id=key[1] if key else None,
            fingerprint=flight.fingerprint if flight else None,
            url=made.url,
            created_at=made.created_at or _now(),
        )
        if flight:
            flight.artifact = artifact
        recorded = await self._record(artifact)  # 8. record
        if recorded and key:
            self._remember(key, artifact)
        author = bound.author
        made.attribution = Attribution(author.agent, author.owner, author.session, verified=recorded)
        made.body = owner.strip(cut(bound, made.body, self._counters))  # 9. result
        return _result(made)

    def _ref(self, bound: BoundCall, key: Key | None) -> str:
        if key is None:
            return ""
        where = (bound.entry.provider, bound.entry.host, bound.repo)
        return create_ref(self._ref_secret, agent_id=key[0], client_request_id=key[1], where=where)

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
    return _result(found)


def _now() -> str:
    """For a forge that does not tell when it created something."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


async def _create(bound: BoundCall, arm: CreateArm, body: str) -> Issue:
    if isinstance(arm, CreateIssue):
        return await bound.provider.create_issue(msgspec.structs.replace(arm, body=body), bound.context)
    return await bound.provider.create_pull_request(msgspec.structs.replace(arm, body=body), bound.context)


def _result(made: Issue) -> ResultArm:
    return PullRequestResult(pull_request=made) if isinstance(made, PullRequest) else IssueResult(issue=made)


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
        raise _apart(error)
    return None


def _apart(error: CallError) -> CallError:
    """The same error without its traceback, whose frames would hold the call, and through its flight the error."""
    return CallError(error.code, error.message, outcome=error.outcome, retry_after_ms=error.retry_after_ms)
