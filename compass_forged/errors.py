"""The error tree. Each class says whose fault it is and what becomes of it; nothing else crosses a room's border.

* ``Fault``: the relay itself failed (unbound, malformed, going down); becomes a fault frame.
* ``CallError``: a domain failure; becomes an in-band error result.
* ``ForgeError`` and its kinds: a provider could not do what was asked; the service turns them into ``CallError``.
* ``StoreError`` and its kinds: likewise, from a store.
* ``ConfigError``, ``StartError``: an operator's; become one line on stderr and an exit code.
"""

from compass_forged.wire.schema import ErrorCode, FaultCode, Outcome, PullRequest


class ForgedError(Exception):
    """Base of every error that this package raises on purpose."""


class ConfigError(ForgedError):
    """The configuration cannot be used: the operator's to mend. One line: file, key, what is wrong, how to mend it."""


class StartError(ForgedError):
    """The daemon cannot start, or cannot go on, on this host: one line saying what stands in the way."""


class RestartsExhausted(ForgedError):
    """A supervised task crashed too often within its window; the daemon must end."""


class Fault(ForgedError):
    """A failure of the relay itself, answered as a fault frame; the forge was never asked.

    Attributes:
        code: the fault's code.
        message: one line for the agent.
        retry_after_ms: when trying again is sensible; 0 where nothing is known.
    """

    def __init__(self, code: FaultCode, message: str, *, retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.code: FaultCode = code
        self.message = message
        self.retry_after_ms = retry_after_ms


class CallError(ForgedError):
    """A domain failure of one call, answered in-band.

    Attributes:
        code: one of the in-band codes.
        message: one line for the agent.
        retry_after_ms: 0 where nothing is known.
        outcome: of a write that failed; "" for a read.
    """

    def __init__(self, code: ErrorCode, message: str, *, outcome: Outcome = "", retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.outcome: Outcome = outcome
        self.retry_after_ms = retry_after_ms


class PromiseBroken(ForgedError):
    """This program was about to break what it promises: its own fault. Raised before anything is sent."""


# --- providers ------------------------------------------------------------------------------------------------------


class ForgeError(ForgedError):
    """A provider could not do what was asked.

    Attributes:
        outcome: ``not_sent`` if no byte of the request went out, ``rejected`` if the forge definitely said no,
            ``unknown`` if a request went out and nobody knows. Of a read it is of no consequence.
    """

    outcome: Outcome = "not_sent"


class Unsupported(ForgeError):
    """The provider has no such operation. Raised before any I/O."""

    def __init__(self, provider: str, operation: str) -> None:
        super().__init__(f"{provider} has no {operation}")
        self.provider = provider
        self.operation = operation


class BadRepo(ForgeError):
    """The repo string fails the provider's own grammar: the agent's fault. Raised before any I/O."""


class BadCursor(ForgeError):
    """The cursor is none that this listing handed out: the agent's fault. Raised before any I/O."""


class IsPullRequest(ForgeError):
    """The number that was read as an issue's is a pull request's: the agent's fault; nothing was changed.

    Attributes:
        number: the number.
    """

    outcome: Outcome = "rejected"

    def __init__(self, number: int) -> None:
        super().__init__(f"{number} is a pull request")
        self.number = number


class BadReview(ForgeError):
    """The review cannot be made as it was asked for: the agent's fault. Nothing was written."""


class BadArgument(ForgeError):
    """A value breaks a rule that this forge has of its own: the agent's fault. Raised before anything is written."""


class BadRequest(ForgeError):
    """The forge does not take the form of a request: this program's own fault, or the forge has changed.

    Attributes:
        status: the HTTP status of the answer.
    """

    outcome: Outcome = "rejected"

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class PullRequestExists(ForgeError):
    """The forge refused a pull request since one stands for that head and base. Whose it is, the service decides.

    Attributes:
        found: the one that stands, as a listing shows it; None where the forge does not show it. Then nobody knows
            what stands there, and the outcome is ``unknown``.
        foreign: whether its author is known to be another account than the one that writes.
    """

    def __init__(self, found: PullRequest | None, *, foreign: bool = False) -> None:
        super().__init__("a pull request for that head and base exists" + (f": {found.number}" if found else ""))
        self.found = found
        self.foreign = foreign
        self.outcome = "rejected" if found else "unknown"

    @property
    def number(self) -> int:
        """The number of what was found; 0 for nothing."""
        return self.found.number if self.found else 0

    @property
    def url(self) -> str:
        """Its page; "" for nothing."""
        return self.found.url if self.found else ""

    @property
    def first_line(self) -> str:
        """The first line of its body, where a header of ours stands; "" where there is none."""
        return self.found.body.partition("\n")[0].rstrip("\r") if self.found else ""

    @property
    def author(self) -> str:
        """The login of the account that opened it; "" for nothing. All agents share one, so it proves nothing."""
        return self.found.author.login if self.found and self.found.author else ""


class ForgePrecondition(ForgeError):
    """Something that stands on the forge is in the way, and the daemon may not remove it: a person must."""

    outcome: Outcome = "rejected"


class ForgeStatus(ForgeError):
    """The forge refused with a definite client error that is no rate limit and no bad credential.

    Attributes:
        status: the HTTP status (4xx, or a 3xx that may not be followed).
        detail: the forge's own words, flattened to one line; never shown for 403 and 404.
        moved_to: for a 3xx, the new place's canonical name, "" where unknown.
    """

    outcome: Outcome = "rejected"

    def __init__(self, status: int, detail: str, *, moved_to: str = "") -> None:
        super().__init__(f"the forge answered {status}: {detail}")
        self.status = status
        self.detail = detail
        self.moved_to = moved_to


class BadCredentials(ForgeError):
    """The forge does not accept the daemon's credential: an operator must renew it.

    Attributes:
        role: ``author`` or ``reviewer``.
    """

    outcome: Outcome = "rejected"

    def __init__(self, role: str, why: str, *, outcome: Outcome = "rejected") -> None:
        super().__init__(f"the {role} credential is not usable: {why}")
        self.role = role
        self.why = why
        self.outcome = outcome


class RateLimited(ForgeError):
    """The forge's limit, or the gate's reserve, is reached.

    Attributes:
        retry_after_seconds: when a call may pass again, at least.
    """

    def __init__(self, retry_after_seconds: float, why: str, *, outcome: Outcome) -> None:
        super().__init__(why)
        self.retry_after_seconds = retry_after_seconds
        self.outcome = outcome


class ForgeUnavailable(ForgeError):
    """The forge is out of reach or failed on its own (connect, TLS, reset, 5xx).

    Attributes:
        retry_after_seconds: when trying again is sensible; 0 where nothing is known.
    """

    def __init__(self, why: str, *, outcome: Outcome, retry_after_seconds: float = 0.0) -> None:
        super().__init__(why)
        self.outcome = outcome
        self.retry_after_seconds = retry_after_seconds


class WritesPaused(ForgeError):
    """The forge has answered a write under this credential with something else: for a while it is sent no other one.

    It is the forge's fault, or that of what stands before it. Nothing was sent.

    Attributes:
        retry_after_seconds: when a write may pass again, at least.
    """

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__(
            "writes are paused: the forge answered one about another repository, number or author; reads go on"
        )
        self.retry_after_seconds = retry_after_seconds


class BadAnswer(ForgeError):
    """The forge said yes and its answer cannot be read or is about something else: nobody knows what stands there.

    Attributes:
        status: the HTTP status of the answer.
    """

    outcome: Outcome = "unknown"

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class ForeignAnswer(BadAnswer):
    """The forge said yes about another repository, number or author: it, or what stands before it, mixes things up."""


# --- stores ---------------------------------------------------------------------------------------------------------


class StoreError(ForgedError):
    """Base of what a store raises."""


class StoreUnavailable(StoreError):
    """The store is out of reach or did not answer in time: the operator's, and passing. Nothing is known to be done."""


class StoreConflict(StoreError):
    """What was asked contradicts what the store holds. The row that stands is untouched."""


class ArtifactOwnedByAnother(StoreConflict):
    """The coordinate is in the index already, under another agent."""


class RequestKeyTaken(StoreConflict):
    """The agent's ``client_request_id`` is in the index already, for another artifact."""


class AgentOwnedByAnother(StoreConflict):
    """The agent's handle is known under another owner; an agent is never re-owned."""


class SessionTaken(StoreConflict):
    """The session id was another agent's, or is live in another container or on another host."""


class ContainerUnknown(StoreConflict):
    """No container of that name is open on this host."""


class HostTaken(StoreConflict):
    """Another daemon runs under the same ``host_id``: the operator's; each daemon of a store needs its own."""


class SubscriptionsExhausted(StoreConflict):
    """The agent has as many subscriptions as one may have, ended ones included. Nothing was written."""


class ValueRefused(StoreError):
    """A value that the store's schema does not admit: this program's own fault, since values are judged long before.

    The message names the rule and never the value. Nothing was written.
    """


class SchemaMismatch(StoreError):
    """The database's schema is not one that this version may run on: changed, newer, or not migrated."""
