"""What the steps of one call share once it is known who calls, and where."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from compass_forged import owner
from compass_forged.errors import BadRepo, CallError
from compass_forged.owner import Author
from compass_forged.policy import invalid, outside_scope
from compass_forged.ports import Account, ArtifactKind, CallContext, Coordinate, Provider
from compass_forged.providers.registry import Entry
from compass_forged.wire.schema import Issue, Outcome


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Deadlines of the service's own waits, in seconds.

    Attributes:
        record_seconds: how long recording an artifact may take, retries included, shielded from cancellation.
        attribution_seconds: how long a read waits for the ownership index before it answers unverified.
    """

    record_seconds: float = 10.0
    attribution_seconds: float = 0.2


class BoundCall(msgspec.Struct):
    """A call that passed identity, shape and scope, bound to its forge."""

    account: Account
    author: Author
    session_id: str
    entry: Entry
    repo: str
    """The canonical name."""
    context: CallContext
    in_scope: Callable[[Coordinate], bool]
    """Whether the session may touch a place, which need not be at the forge that the call names."""

    @property
    def provider(self) -> Provider:
        """The client of the author's credential."""
        return self.entry.author

    def coordinate(self, kind: ArtifactKind, number: int, repo: str | None = None) -> Coordinate:
        """Where an artifact stands; ``repo`` as the forge writes it, None for the one that was asked for.

        Raises:
            BadRepo: ``repo`` fails the provider's grammar.
        """
        key = self.repo if repo is None else self.provider.canonical_repo(repo)
        return Coordinate(self.entry.provider, self.entry.host, key, kind, number)

    def written_at(self, kind: ArtifactKind, made: Issue) -> Coordinate:
        """Where something new stands. Never fails: it exists, and an error would invite a second one."""
        try:
            return self.coordinate(kind, made.number, made.repo)
        except BadRepo:  # the forge's own word fails its grammar: the name that was asked for stands
            return self.coordinate(kind, made.number)

    def check_scope(self, place: Coordinate, outcome: Outcome = "not_sent") -> None:
        """See that the session may be told what stands at ``place``; ``outcome`` is the write's.

        Raises:
            CallError: it may not.
        """
        if not self.in_scope(place):
            raise outside_scope(outcome)

    def stamp(self, body: str, *, ref: str = "") -> str:
        """``body`` under the caller's header.

        Args:
            body: what the agent wrote.
            ref: a keyed create's ref.

        Raises:
            CallError: it is too large; the message names the overage in bytes.
        """
        try:
            return owner.stamp(body, self.author, self.provider.body_limit, ref=ref)
        except owner.BodyTooLarge as error:
            raise self.too_large(error, "the owner header") from error

    def too_large(self, error: owner.BodyTooLarge, beside: str) -> CallError:
        """What is told of a body that does not fit beside what the daemon adds to it."""
        return invalid(
            f"body: {error.overage} bytes too large; {self.entry.provider} takes {error.limit} bytes with {beside}"
        )
