"""What a call can end with besides a result. Each class says whose fault it is and what to do next.

All of them carry a ``code``, so that a caller can report any failure in one way. ``outcome`` says of a write whether
it may have happened; of a read it is of no consequence.
"""

from compass_forged.wire.schema import Outcome


class AgentError(Exception):
    """Base of every error that this library raises on purpose.

    Attributes:
        code: one lower-case word, from the protocol's codes.
        message: one line: what, where, how to mend it.
        retry_after_ms: when trying again is sensible; 0 where nothing is known.
        outcome: ``not_sent`` if the call had no effect, ``rejected`` if the forge said no, ``unknown`` if nobody
            knows: look with the matching read before repeating anything. A create that is still under way is joined
            when it is repeated under the same ``client_request_id``.
    """

    def __init__(self, code: str, message: str, *, retry_after_ms: int = 0, outcome: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.retry_after_ms = retry_after_ms
        self.outcome = outcome


class ForgeFault(AgentError):
    """The daemon could not take the call to a forge: unbound container, malformed call, going down.

    ``outcome`` is ``unknown`` for ``internal`` and ``unavailable``, since a part of the daemon may have failed with
    the call in its hands; else ``not_sent``.
    """

    def __init__(self, code: str, message: str, retry_after_ms: int = 0) -> None:
        outcome: Outcome = "unknown" if code in {"internal", "unavailable"} else "not_sent"
        super().__init__(code, message, retry_after_ms=retry_after_ms, outcome=outcome)


class ForgeCallFailed(AgentError):
    """The call was executed and failed: the in-band error, with the daemon's own code, message and outcome."""

    def __init__(self, code: str, message: str, retry_after_ms: int = 0, outcome: str = "") -> None:
        super().__init__(code, message, retry_after_ms=retry_after_ms, outcome=outcome)


class DaemonUnreachable(AgentError):
    """Nobody could be reached at the socket. Nothing was sent.

    Attributes:
        path: the socket's path.
        transient: whether waiting may help (a daemon that restarts), or somebody has to mend the path.
    """

    def __init__(self, path: str, why: str, *, transient: bool) -> None:
        super().__init__("unavailable", f"cannot reach the daemon at {path}: {why}", outcome="not_sent")
        self.path = path
        self.transient = transient


class ConnectionLost(AgentError):
    """The connection ended while the call was in flight; the next call connects anew."""

    def __init__(self, why: str) -> None:
        super().__init__("unavailable", f"the connection to the daemon was lost: {why}", outcome="unknown")


class ForgeTimeout(AgentError):
    """No reply came in time. ``outcome`` is ``not_sent`` if the call was still waiting to be sent."""

    def __init__(self, seconds: float, outcome: Outcome) -> None:
        super().__init__("deadline_exceeded", f"no reply from the daemon within {seconds:g} s", outcome=outcome)


class ProtocolViolation(AgentError):
    """The daemon's reply to this call cannot be read: it is newer than this client, or has a bug."""

    def __init__(self, why: str) -> None:
        super().__init__("internal", f"the daemon's reply cannot be read: {why}", outcome="unknown")


class CallRefused(AgentError):
    """The call cannot be put into a frame: the caller's to mend. Nothing was sent."""

    def __init__(self, message: str, code: str = "invalid_argument") -> None:
        super().__init__(code, message, outcome="not_sent")


class CallTooLarge(CallRefused):
    """The call's frame would be over the limit of a request."""


class CallIdInUse(CallRefused):
    """A call of the same ``call_id`` is in flight, or was given up and not answered yet: choose another."""

    def __init__(self, call_id: str) -> None:
        super().__init__(f"call_id: {call_id!r} is in flight on this connection; choose another")


class ClientClosed(CallRefused):
    """The client was used after its context had ended."""

    def __init__(self) -> None:
        super().__init__("the client is closed; call it inside its context", "failed_precondition")
