"""One tool call: check the parameters, make the call, show the answer or fail with one line.

A create whose connection was lost, or whose outcome is unknown for another reason, is sent once more under the same
key within its deadline: the daemon answers it from its record, or joins it to the attempt that is still under way.
A caller that is cancelled stops waiting; a write that was sent is not undone.
"""

import hashlib
import secrets
from typing import Any, Final

import anyio
import msgspec
from msgspec import UNSET

from compass_forged.agent.broker import ForgeBroker
from compass_forged.agent.errors import AgentError, CallIdInUse, ForgeTimeout
from compass_forged.agent.tools.arguments import BadParameters, checked
from compass_forged.agent.tools.catalogue import Spec
from compass_forged.agent.tools.errors import ForgeToolError
from compass_forged.agent.tools.parameters import Selector
from compass_forged.agent.tools.schema import Schema
from compass_forged.wire.schema import CALL_ID_MAX_BYTES, ForgeCall, ForgeSelector, ResultArm

RETRY_PAUSE_SECONDS: Final = 0.5
"""How long a create waits before it is sent again, where the daemon names no time."""
_SUFFIX_BYTES: Final = 4
_IDS_TRIED: Final = 4
_ROOM_BYTES: Final = CALL_ID_MAX_BYTES - 2 * _SUFFIX_BYTES - 1


async def run(
    spec: Spec[Any], schema: Schema, broker: ForgeBroker, create_seconds: float, tool_call_id: str, given: object
) -> str:
    """Execute ``spec``'s tool.

    Raises:
        ForgeToolError: the call failed; its text is for the model.
    """
    try:
        parameters = checked(spec.parameters, schema, given)
        call = _call(spec, broker, tool_call_id, parameters)
    except ValueError as error:  # BadParameters, or an empty tool_call_id
        raise ForgeToolError(spec.name, "invalid_argument", str(error), outcome="not_sent") from error
    try:
        result = await (_create(broker, call, create_seconds) if spec.keyed else _send(broker, call))
    except AgentError as error:
        raise _failure(spec, error) from error
    text = spec.shown(parameters, result)
    if text is None:
        arm = str(result.__struct_config__.tag)
        message = f"protocol violation: the daemon answered with the result arm {arm}"
        raise ForgeToolError(spec.name, "internal", message, outcome="unknown", advice=spec.look)
    return text


def _call(spec: Spec[Any], broker: ForgeBroker, tool_call_id: str, parameters: Selector) -> ForgeCall:
    if not tool_call_id:
        raise BadParameters("tool_call_id is empty; give each tool call its own id")
    provider, host = parameters.forge_provider, parameters.forge_host
    return ForgeCall(
        call_id=_call_id(tool_call_id),
        arm=spec.arm(parameters),
        forge=None if provider is UNSET else ForgeSelector(provider=provider, host="" if host is UNSET else host),
        client_request_id=broker.idempotency_key(tool_call_id) if spec.keyed else "",
    )


def _call_id(tool_call_id: str) -> str:
    """The tool call's own id; its digest where it is too long for a call id, or no text."""
    raw = tool_call_id.encode("utf-8", "surrogatepass")
    if len(raw) <= _ROOM_BYTES and raw.decode("utf-8", "replace") == tool_call_id:
        return tool_call_id
    return "sha256-" + hashlib.sha256(raw).hexdigest()


async def _send(broker: ForgeBroker, call: ForgeCall) -> ResultArm:
    """Make the call, under its id with a suffix if that is in flight."""
    wanted = call.call_id
    for _ in range(_IDS_TRIED - 1):
        try:
            return await broker.call(call)
        except CallIdInUse:
            call = msgspec.structs.replace(call, call_id=f"{wanted}.{secrets.token_hex(_SUFFIX_BYTES)}")
    return await broker.call(call)


async def _create(broker: ForgeBroker, call: ForgeCall, seconds: float) -> ResultArm:
    """Make a create's call, and once more under the same key if nobody knows what became of it.

    Raises:
        AgentError: ``outcome`` is ``unknown`` if that of the first attempt was, whatever the second one says.
    """
    first: AgentError | None = None
    deadline = anyio.current_time() + seconds
    with anyio.CancelScope(deadline=deadline):
        try:
            return await _send(broker, call)
        except AgentError as error:
            if error.outcome != "unknown":
                raise
            first = error
        pause = max(first.retry_after_ms / 1000, RETRY_PAUSE_SECONDS)
        if anyio.current_time() + pause < deadline:
            await anyio.sleep(pause)
            try:
                return await _send(broker, call)
            except AgentError as error:
                error.outcome = "unknown"
                raise
    raise first or ForgeTimeout(seconds, "unknown")


def _failure(spec: Spec[Any], error: AgentError) -> ForgeToolError:
    advice = spec.look if error.outcome == "unknown" else ""
    return ForgeToolError(
        spec.name,
        error.code,
        error.message,
        retry_after_ms=error.retry_after_ms,
        outcome=error.outcome,
        advice=advice,
    )
