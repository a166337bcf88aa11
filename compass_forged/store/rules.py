"""What a store takes: the schema's CHECKs in Python, for the adapter that has no database. Pure.

The schema is the law; a contract suite shows that both adapters refuse the same values.
"""

import re
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from compass_forged.errors import (
    AgentOwnedByAnother,
    ArtifactOwnedByAnother,
    ContainerUnknown,
    HostTaken,
    RequestKeyTaken,
    SessionTaken,
    SubscriptionsExhausted,
    ValueRefused,
)
from compass_forged.ports import PROVIDER_NUMBERS, AuthoredArtifact, ContainerSpec, Coordinate, SessionBinding
from compass_forged.wire.schema import ARTIFACT_NUMBER_MAX

HANDLE: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,38}", re.ASCII)
"""Handles of agents and users, and session ids."""
CONTAINER_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}", re.ASCII)
HOST_ID: Final = re.compile(r"[!-~]{1,255}", re.ASCII)
REQUEST_ID: Final = re.compile(r"[ -~]{1,256}", re.ASCII)
FINGERPRINT_BYTES: Final = 32
_ID_LIMIT: Final = (1 << 32) - 1
"""uids and gids are below this: the largest one means "none" to the kernel."""
_KINDS: Final = ("issue", "pull_request")
LIST_LIMIT: Final = (1 << 31) - 1
SUBSCRIPTIONS_LIMIT: Final = 10_000
"""How many artifacts one agent may have subscribed to, those that it no longer wants to hear of included."""


def refuse(rule: str) -> ValueRefused:
    """The error for a value that breaks the schema's rule of that name; the value itself is never shown."""
    return ValueRefused(f"the store refused a value: {rule}")


def _check(rule: str, *, holds: bool) -> None:
    if not holds:
        raise refuse(rule)


def storable(text: str) -> bool:
    """Whether a database can hold the text at all: no NUL, no lone surrogate."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def check_container(host: str, spec: ContainerSpec) -> None:
    """Refuse, with ``ValueRefused``, what the schema would."""
    _check("host_containers_host_grammar", holds=HOST_ID.fullmatch(host) is not None)
    _check("host_containers_name_grammar", holds=CONTAINER_NAME.fullmatch(spec.name) is not None)
    _check("host_containers_uids_range", holds=all(0 <= uid < _ID_LIMIT for uid in spec.allowed_uids))
    group = spec.socket_group
    _check("host_containers_group_range", holds=group is None or 0 <= group < _ID_LIMIT)


def check_binding(host: str, binding: SessionBinding) -> None:
    """Refuse, with ``ValueRefused``, what the schema would."""
    _check("agent_sessions_host_text", holds=storable(host) and storable(binding.container))
    _check("agent_sessions_id_grammar", holds=HANDLE.fullmatch(binding.session_id) is not None)
    _check("agent_accounts_handle_grammar", holds=HANDLE.fullmatch(binding.agent) is not None)
    _check("user_accounts_handle_grammar", holds=HANDLE.fullmatch(binding.owner) is not None)
    _check("agent_sessions_scope_text", holds=all(storable(pattern) for pattern in binding.scope or ()))


def check_artifact(artifact: AuthoredArtifact) -> int:
    """Refuse, with ``ValueRefused``, what the schema would; returns when the forge created it, by ``unix_ms``."""
    at = artifact.coordinate
    table = "forge_authored_artifacts"
    _check(f"{table}_provider_known", holds=at.provider in PROVIDER_NUMBERS)
    _check(f"{table}_host_filled", holds=bool(at.host))
    _check(f"{table}_repo_filled", holds=bool(at.repo and artifact.repo))
    _check(f"{table}_kind_known", holds=at.kind in _KINDS)
    _check(f"{table}_number_positive", holds=1 <= at.number <= ARTIFACT_NUMBER_MAX)
    _check(f"{table}_session_grammar", holds=HANDLE.fullmatch(artifact.session_id) is not None)
    check_memo(artifact.client_request_id, artifact.fingerprint)
    _check(f"{table}_text", holds=all(map(storable, (at.host, at.repo, artifact.repo, artifact.url))))
    return unix_ms(artifact.created_at)


def check_memo(key: str | None, fingerprint: bytes | None) -> None:
    """Refuse, with ``ValueRefused``, what the schema would."""
    table = "forge_authored_artifacts"
    _check(f"{table}_request_printable", holds=key is None or REQUEST_ID.fullmatch(key) is not None)
    _check(f"{table}_fingerprint_size", holds=fingerprint is None or len(fingerprint) == FINGERPRINT_BYTES)
    _check(f"{table}_memo_whole", holds=(key is None) == (fingerprint is None))


def check_subscription(at: Coordinate, session_id: str) -> None:
    """Refuse, with ``ValueRefused``, what the schema would."""
    table = "agent_forge_subscriptions"
    _check(f"{table}_provider_known", holds=at.provider in PROVIDER_NUMBERS)
    _check(f"{table}_host_filled", holds=bool(at.host))
    _check(f"{table}_repo_filled", holds=bool(at.repo))
    _check(f"{table}_kind_known", holds=at.kind in _KINDS)
    _check(f"{table}_number_positive", holds=1 <= at.number <= ARTIFACT_NUMBER_MAX)
    _check(f"{table}_session_grammar", holds=HANDLE.fullmatch(session_id) is not None)
    _check(f"{table}_text", holds=storable(at.host) and storable(at.repo))


def unix_ms(created_at: str) -> int:
    """A forge's RFC 3339 time in UTC as milliseconds since 1970.

    Raises:
        ValueRefused: it is no such time; the provider's adapter should have given one.
    """
    try:
        moment = datetime.fromisoformat(created_at)
    except ValueError:
        raise refuse("forge_authored_artifacts_created_at: not an RFC 3339 time in UTC") from None
    if moment.utcoffset() != timedelta(0):
        raise refuse("forge_authored_artifacts_created_at: not an RFC 3339 time in UTC")
    return round(moment.timestamp() * 1000)


def can_stand(at: Coordinate) -> bool:
    """Whether the index could hold this coordinate; of one that it could not, nobody is asked."""
    return (
        at.provider in PROVIDER_NUMBERS
        and at.kind in _KINDS
        and 1 <= at.number <= ARTIFACT_NUMBER_MAX
        and storable(at.host)
        and storable(at.repo)
    )


def clamp_limit(limit: int) -> int:
    """A list's limit as a database takes it: none below zero."""
    return min(max(limit, 0), LIST_LIMIT)


def as_id(number: int) -> int:
    """An account's id to look for, as a database takes it: what no row can hold becomes 0, which none holds either."""
    return number if 0 < number <= ARTIFACT_NUMBER_MAX else 0


def as_question(word: str) -> str:
    """A word to look for, as a database takes it: what no row can hold becomes "", which none holds either."""
    return word if storable(word) else ""


def as_subscription(subscription_id: str) -> UUID | None:
    """A subscription's id as a database takes it; None for what is none as we write them, which no row has."""
    try:
        found = UUID(subscription_id)
    except ValueError:
        return None
    return found if str(found) == subscription_id else None


# The conflicts, in one place so that both adapters say the same.


def container_unknown(container: str) -> ContainerUnknown:
    """The container is not open on this host."""
    return ContainerUnknown(f"container {container}: not open on this host; open it first")


def agent_owned_by_another() -> AgentOwnedByAnother:
    """The agent's handle is known under another owner."""
    return AgentOwnedByAnother("the agent belongs to another owner; an agent is never re-owned: take another handle")


def session_taken() -> SessionTaken:
    """The session id is not free for this agent and container."""
    return SessionTaken("the session id was another agent's, or is live elsewhere; end it there, or take a new id")


def host_taken(host: str) -> HostTaken:
    """Another daemon watches the host."""
    return HostTaken(f"host_id {host}: another daemon runs under it on this store; give each daemon its own host_id")


def request_key_taken() -> RequestKeyTaken:
    """The agent's key stands for another artifact."""
    return RequestKeyTaken("the agent's client_request_id stands for another artifact already")


def artifact_owned_by_another(at: Coordinate) -> ArtifactOwnedByAnother:
    """The coordinate stands under another agent."""
    return ArtifactOwnedByAnother(f"{at.kind} {at.number} in {at.repo} on {at.host} is in the index for another agent")


def subscriptions_exhausted() -> SubscriptionsExhausted:
    """The agent has as many subscriptions as it may have."""
    return SubscriptionsExhausted(
        f"the agent has subscribed to {SUBSCRIPTIONS_LIMIT} artifacts, which is as many as it may; an operator can"
        " delete those that have ended"
    )
