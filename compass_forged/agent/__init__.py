"""The agent library: what runs in a container and speaks to the daemon. Needs msgspec and anyio, nothing else."""

from compass_forged.agent.broker import ForgeBroker
from compass_forged.agent.client import ClientStatistics, ForgeClient, ForgeTransport, connect
from compass_forged.agent.errors import (
    AgentError,
    CallIdInUse,
    CallRefused,
    CallTooLarge,
    ClientClosed,
    ConnectionLost,
    DaemonUnreachable,
    ForgeCallFailed,
    ForgeFault,
    ForgeTimeout,
    ProtocolViolation,
)
from compass_forged.agent.sync import SyncForgeClient
from compass_forged.agent.tools import AgentTool, ForgeToolError, create_forge_tools
from compass_forged.wire.schema import ForgeCall, ForgeSelector, ResultArm

__all__ = [
    "AgentError",
    "AgentTool",
    "CallIdInUse",
    "CallRefused",
    "CallTooLarge",
    "ClientClosed",
    "ClientStatistics",
    "ConnectionLost",
    "DaemonUnreachable",
    "ForgeBroker",
    "ForgeCall",
    "ForgeCallFailed",
    "ForgeClient",
    "ForgeFault",
    "ForgeSelector",
    "ForgeTimeout",
    "ForgeToolError",
    "ForgeTransport",
    "ProtocolViolation",
    "ResultArm",
    "SyncForgeClient",
    "connect",
    "create_forge_tools",
]
