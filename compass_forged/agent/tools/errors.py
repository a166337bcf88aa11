"""How a tool fails."""

from compass_forged.agent.errors import AgentError
from compass_forged.agent.render import lines


class ForgeToolError(AgentError):
    """A tool call failed; its text is for the model: one line, what failed, why, and what to do where that is known.

    Attributes:
        tool: the tool's name.
        code: the code of the error behind it; ``invalid_argument`` for parameters that were refused, with nothing sent.
    """

    def __init__(
        self,
        tool: str,
        code: str,
        message: str,
        *,
        retry_after_ms: int = 0,
        outcome: str = "",
        advice: str = "",
    ) -> None:
        super().__init__(code, message, retry_after_ms=retry_after_ms, outcome=outcome)
        self.tool = tool
        self.args = (lines.failed(tool, code, message, retry_after_ms, advice),)
