"""Creates: at most one artifact under a key, and none without its row.

What stands here is the memo (of a key, or of a create under way in this process that others join), the send, and the
record, which is shielded and retried. Where the forge refuses a pull request since one stands already, that may be the
one of an earlier attempt: ``_found`` says what proves it.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from typing import Final

import msgspec
import trio

from compass_forged import owner
from compass_forged.errors import (
    CallError,
    ForgeError,
    PullRequestExists,
    SchemaMismatch,
    StoreConflict,
    StoreError,
    StoreUnavailable,
    ValueRefused,
)
from compass_forged.fingerprint import coordinate_text, create_id, create_ref, request_fingerprint
from compass_forged.observability import Counters, get_logger
from compass_forged.policy import to_call_error
from compass_forged.ports import AuthoredArtifact, Coordinate, Store, Work, WriteGuard
from compass_forged.service import posts
from compass_forged.service.bound import BoundCall, ServiceLimits
from compass_forged.service.made import (
    CreateArm,
    Key,
    as_it_stands,
    carries,
    fingerprint_of,
    replayed,
    result_of,
    row_of,
    told,
)
from compass_forged.service.reads import cut
from compass_forged.wire.schema import (
    Attribution,
    CreateIssue,
    CreatePullRequest,
    Issue,
    ResultArm,
)

_log = get_logger(__name__)

MEMOS_AT_HAND: Final = 2048
"""So many memos are kept in memory, the least recently asked for go first: a replay of theirs asks no store."""
_LONG_CHARS: Final = 4096
"""Longer bodies are stamped one in each pass of the loop: the store may answer for many creates at once, and a body
that was made for it takes a microsecond a character."""
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
        self._stamping = trio.StrictFIFOLock()
        self._flights: dict[Key, _Flight] = {}
        self._at_hand: OrderedDict[Key, AuthoredArtifact] = OrderedDict()
        # Bounded by the creates that were in flight when the store went away: no other is let through.
        self._unrecorded: dict[Coordinate, AuthoredArtifact] = {}

    def begin(self, bound: BoundCall, arm: CreateArm, client_request_id: str) -> ResultArm | Work:
        """Answer a create from a memo at hand, or say what is to be waited for.

        Raises:
            StoreUnavailable: the store is known to be out of reach: nothing is created, keyless or not.
            CallError: what the memo at hand names lies outside the session's scope.
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
        answer = told(bound, memo, fingerprint)
        self._at_hand.move_to_end(key)
        self._counters.add("memo_hits")
        return answer

    async def _keyless(self, bound: BoundCall, arm: CreateArm) -> ResultArm:
        await self._record_what_is_left()
        return await self._send(bound, arm, None, None)

    async def _keyed(self, bound: BoundCall, arm: CreateArm, key: Key, fingerprint: bytes) -> ResultArm:
        while (flight := self._flights.get(key)) is not None:
            bound.context.waits_on = flight.guard
            await flight.done.wait()  # bounded by the call's own deadline
            bound.context.waits_on = None
            if answer := _joined(bound, flight, fingerprint):
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
                flight.artifact = memo
                self._remember(key, memo)
                answer = told(bound, memo, fingerprint)
                self._counters.add("memo_hits")
                return answer
            return await self._send(bound, arm, key, flight)
        except (CallError, ForgeError, StoreError) as error:
            # One of its own, without a traceback, whose frames would hold the call, and through its flight the error.
            flight.error = to_call_error(error, write=True, sent=bound.context.guard.sent)
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
        ref = self._ref(bound, key)
        stamped = msgspec.structs.replace(arm, body=await self._stamp(bound, arm.body, ref))  # 6. stamp
        if key:
            bound.context.create_id = create_id(self._ref_secret, agent_id=key[0], client_request_id=key[1])
        try:
            made = await _post(bound, stamped)  # 7. provider
        except PullRequestExists as refused:
            return await self._found(bound, arm, refused, key, flight)
        made.body = cut(bound, made.body, self._counters)
        fingerprint = flight.fingerprint if flight else None
        if flight and made.replayed:
            fingerprint = fingerprint_of(bound, arm, made)
            made.replay_mismatch = fingerprint != flight.fingerprint
        artifact = row_of(bound, made, key, fingerprint)
        recorded = await self._keep(artifact, key, flight)  # 8. record
        author = bound.author
        made.attribution = Attribution(author.agent, author.owner, author.session, verified=recorded)
        made.body = owner.strip(made.body)  # 9. result
        return result_of(made)

    async def _stamp(self, bound: BoundCall, body: str, ref: str) -> str:
        if len(body) <= _LONG_CHARS:
            return bound.stamp(body, ref=ref)
        async with self._stamping:  # bounded by the call's own deadline
            await trio.lowlevel.checkpoint()
            return bound.stamp(body, ref=ref)

    async def _found(
        self,
        bound: BoundCall,
        arm: CreateArm,
        refused: PullRequestExists,
        key: Key | None,
        flight: _Flight | None,
    ) -> ResultArm:
        """Answer with the pull request that stands in the way of a new one, if it is provably the caller's.

        Raises:
            PullRequestExists: it is not, or nobody can tell.
            CallError: it stands outside the session's scope.
        """
        found = refused.found
        try:
            if found is None or not isinstance(arm, CreatePullRequest):
                raise refused
            place = bound.written_at("pull_request", found)
            bound.check_scope(place, refused.outcome)
            found.body = cut(bound, found.body, self._counters)
            standing = as_it_stands(arm, found)
            fingerprint = request_fingerprint(bound.entry.provider, bound.entry.host, bound.repo, standing)
            by_ref = key is not None and not refused.foreign and carries(found, bound, self._ref(bound, key))
            if not by_ref and not await self._holds(bound, place, key, fingerprint):
                raise refused
        finally:
            # An error that a frame of its own traceback holds is a cycle, and with it stays what the call held.
            del refused
        artifact = row_of(bound, found, key, fingerprint if key else None)
        self._counters.add("creates_found")
        _log.warning("a create was answered with what stood already", coordinate=coordinate_text(place))
        if by_ref:
            await self._keep(artifact, key, flight)
        elif key and flight:  # the row is there, and if it had no memo it has this one; without a key there is none
            flight.artifact = artifact
            self._remember(key, artifact)
        return replayed(artifact, mismatch=standing is not arm)

    async def _holds(self, bound: BoundCall, place: Coordinate, key: Key | None, fingerprint: bytes) -> bool:
        """Whether the index holds what was found for the caller's agent; if it cannot be asked, nobody can tell.

        In the same round trip a row without a memo is given this one. A row that has one keeps it: then a second key is
        remembered in memory alone, and is answered anew from what stands at the forge once it is forgotten there.
        """
        agent_id = bound.account.agent_id
        try:
            if key is not None:
                return await self._store.fill_memo(place, agent_id, key[1], fingerprint)
            known = await self._store.attribution_of([place], asker=agent_id)
        except StoreError as error:
            _log.warning("attribution not looked up", error=str(error))
            return False
        return place in known and known[place].agent == bound.account.agent

    async def _keep(self, artifact: AuthoredArtifact, key: Key | None, flight: _Flight | None) -> bool:
        """Tell those who joined, record, and remember. Whether it is recorded."""
        if flight:
            flight.artifact = artifact
        recorded = await self._record(artifact)
        if recorded and key:
            self._remember(key, artifact)
        return recorded

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


async def _post(bound: BoundCall, arm: CreateArm) -> Issue:
    return await (posts.issue(bound, arm) if isinstance(arm, CreateIssue) else posts.pull_request(bound, arm))


def _joined(bound: BoundCall, flight: _Flight, fingerprint: bytes) -> ResultArm | None:
    """What a joiner answers once its leader ended; None if it should lead itself.

    Raises:
        CallError: the leader's end is not known, or the same request was refused just now, or what the leader made lies
            outside the scope of the joiner's session.
    """
    if flight.artifact is not None:
        return told(bound, flight.artifact, fingerprint)
    error = flight.error
    if error is None or error.code == "permission_denied":  # the leader's scope, which is not the joiner's
        return None
    if error.outcome == "unknown" or (error.outcome == "rejected" and flight.fingerprint == fingerprint):
        raise CallError(error.code, error.message, outcome=error.outcome, retry_after_ms=error.retry_after_ms)
    return None
