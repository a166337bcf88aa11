"""Ten tools for a model, one for each arm of a call: schemas, descriptions, and how a call is made and shown."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from compass_forged.agent.broker import ForgeBroker
from compass_forged.agent.tools.catalogue import SPECS, Approval, Spec
from compass_forged.agent.tools.errors import ForgeToolError
from compass_forged.agent.tools.execution import run
from compass_forged.agent.tools.schema import Schema, plain, strict

__all__ = ["CREATE_SECONDS", "AgentTool", "ForgeToolError", "create_forge_tools"]

CREATE_SECONDS = 60.0
"""How long a create may take, with a second attempt where the first one's outcome is unknown."""


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool, in the terms that agent frameworks and model APIs share.

    Attributes:
        name: ``forge_…``; a contract.
        label: what a person is shown.
        description: the prompt.
        parameters: JSON Schema 2020-12 of an object; what may be left out is not required.
        strict_parameters: the same for APIs with a strict mode: all required, what may be left out may be null.
            ``execute`` takes calls of either form.
        approval: ``read`` or ``write``.
    """

    name: str
    label: str
    description: str
    parameters: Schema
    strict_parameters: Schema
    approval: Approval
    _run: Callable[[str, object], Awaitable[str]] = field(repr=False, compare=False)

    async def execute(self, tool_call_id: str, params: Mapping[str, Any]) -> str:
        """Check ``params``, make the call and return the text for the model.

        Args:
            tool_call_id: the model API's id of this tool call. For a create it is what makes it happen once: the same
                id under the same broker is the same artifact.
            params: what the model gave: an object from JSON.

        Raises:
            ForgeToolError: the call failed; its text is one line for the model.
        """
        return await self._run(tool_call_id, params)


def create_forge_tools(broker: ForgeBroker, *, create_seconds: float = CREATE_SECONDS) -> list[AgentTool]:
    """The ten tools over ``broker``.

    Args:
        broker: one for each run of an agent.
        create_seconds: how long a create may take, a second attempt included.
    """
    return [_tool(spec, broker, create_seconds) for spec in SPECS]


def _tool(spec: Spec[Any], broker: ForgeBroker, create_seconds: float) -> AgentTool:
    schema = plain(spec.parameters)
    return AgentTool(
        name=spec.name,
        label=spec.label,
        description=spec.description,
        parameters=plain(spec.parameters),  # the user's own, who may change it
        strict_parameters=strict(schema),
        approval=spec.approval,
        _run=partial(run, spec, schema, broker, create_seconds),
    )
