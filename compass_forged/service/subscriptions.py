"""Subscriptions: rows of the store and nothing else. No forge is asked, and no cursor is set."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from compass_forged.errors import CallError, StoreUnavailable
from compass_forged.ports import ArtifactKind, CallContext, Coordinate, Store, Work
from compass_forged.service.bound import BoundCall
from compass_forged.wire.schema import ResultArm, Subscribe, SubscribedResult, Unsubscribe, UnsubscribedResult

ScopeCheck: TypeAlias = Callable[[Coordinate], None]
"""Raises ``CallError`` where the session's scope does not include the coordinate."""

UNKNOWN_MESSAGE: Final = "no such subscription of this agent"
"""One constant for another agent's and for one that never was, so that nobody can probe for what others follow."""


class Subscriptions:
    """Keeps and ends what agents want to hear of. Both are idempotent.

    Their statements count as sent writes: once one goes out, neither deadline nor disconnect makes its end a guess.
    """

    def __init__(self, store: Store) -> None:
        """``store`` holds the rows."""
        self._store = store

    def subscribe(self, bound: BoundCall, arm: Subscribe) -> Work:
        """Keep a subscription.

        Raises:
            StoreUnavailable: the store is known to be out of reach.
        """
        self._reachable()
        kind: ArtifactKind = "issue" if arm.kind == "issue" else "pull_request"  # judged long before
        return partial(self._subscribe, bound, bound.coordinate(kind, arm.number))

    def unsubscribe(self, agent_id: int, arm: Unsubscribe, context: CallContext, check: ScopeCheck | None) -> Work:
        """End a subscription of the agent's own.

        Args:
            agent_id: the agent that calls.
            arm: names the subscription.
            context: of the call.
            check: judges by the row's coordinate whether the session may touch it; None where it may touch all.

        Raises:
            StoreUnavailable: the store is known to be out of reach.
        """
        self._reachable()
        return partial(self._unsubscribe, agent_id, arm.subscription_id, context, check)

    def _reachable(self) -> None:
        if not self._store.available:  # by what is known, without a query
            raise StoreUnavailable("the store is out of reach")

    async def _subscribe(self, bound: BoundCall, coordinate: Coordinate) -> ResultArm:
        await bound.context.guard.sending()
        kept = await self._store.subscribe(bound.account, coordinate, bound.session_id)
        return SubscribedResult(subscription_id=kept.subscription_id)

    async def _unsubscribe(
        self, agent_id: int, subscription_id: str, context: CallContext, check: ScopeCheck | None
    ) -> ResultArm:
        if check is not None:
            row = await self._store.subscription(agent_id, subscription_id)
            if row is None:
                raise _unknown()
            place = row.coordinate
            context.coordinate = f"{place.provider}:{place.host}/{place.repo}"
            check(place)  # 3. scope
        await context.guard.sending()
        if not await self._store.unsubscribe(agent_id, subscription_id):
            raise _unknown()
        return UnsubscribedResult()


def _unknown() -> CallError:
    return CallError("not_found", UNKNOWN_MESSAGE, outcome="rejected")
