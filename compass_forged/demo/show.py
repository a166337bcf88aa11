"""How the demo looks: scenes with a heading, what was asked, what stands on the forge, and what that shows."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from rich.console import Console, Group
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from compass_forged.errors import ForgedError
from compass_forged.ports import AuthoredArtifact
from compass_forged.terminal import one_line, printable

_SHOWN_LINES = 7
_WIDTH_MAX = 118


class SceneFailed(ForgedError):
    """What the demo claims is not what happened."""


class Stage:
    """Prints to a terminal, or plainly to a file."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self.console.width = min(self.console.width, _WIDTH_MAX)
        self._scene = 0

    @contextmanager
    def waiting(self, what: str) -> Generator[None, None, None]:
        """Show that something takes its time, and afterwards that it is done."""
        with self.console.status(what):
            yield
        self.console.print(Text.assemble(("  ✓ ", "green"), what))

    def scene(self, title: str) -> None:
        """Begin a scene."""
        self._scene += 1
        self.console.print()
        self.console.print(Rule(Text(f"{self._scene}  {title}", style="bold"), align="left", style="cyan"))

    def say(self, text: str) -> None:
        """One sentence of the story."""
        self.console.print(Text(printable(text)))

    def asked(self, who: str, what: str) -> None:
        """What an agent asked for."""
        self.console.print(Text.assemble(("  → ", "cyan"), (who, "bold cyan"), "  ", one_line(what)))

    def answered(self, what: str, *, refused: bool = False) -> None:
        """What came back."""
        arrow, style = ("  ✗ ", "red") if refused else ("  ← ", "green")
        self.console.print(Text.assemble((arrow, style), one_line(what)))

    def shows(self, claim: str, *, true: bool) -> None:
        """State a claim that the demo has just checked.

        Raises:
            SceneFailed: it does not hold.
        """
        if not true:
            raise SceneFailed(claim)
        self.console.print(Text.assemble(("  ✓ ", "bold green"), printable(claim)))

    def body(self, title: str, body: str, *, lines: int = _SHOWN_LINES) -> None:
        """The first lines of a text as the forge holds it; the owner header stands out."""
        found = printable(body).split("\n")
        shown = Text()
        for number, line in enumerate(found[:lines]):
            style = "bold green" if number == 0 and line.startswith("> `compass:owner ") else ""
            shown.append(line + "\n", style=style)
        left = len(found) - lines
        if left > 0:
            shown.append(f"… {left} more lines, {len(body.encode())} bytes in all", style="dim")
        else:
            shown.right_crop(1)
        self.console.print(Panel(shown, title=Text(title), title_align="left", border_style="dim", padding=(0, 1)))

    def table(self, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table."""
        table = Table(title=title, title_justify="left", title_style="bold", header_style="cyan", border_style="dim")
        for head in heads:
            table.add_column(head, overflow="fold")
        for row in rows:
            table.add_row(*(Text(one_line(cell)) for cell in row))
        self.console.print(table)

    def ownership(self, artifacts: Sequence[AuthoredArtifact]) -> None:
        """The ownership index."""
        self.table(
            "forge_authored_artifacts: who wrote what",
            ["artifact", "agent", "owner", "session", "client_request_id", "created"],
            [
                [
                    f"{artifact.repo}#{artifact.coordinate.number}",
                    artifact.account.agent,
                    artifact.account.owner,
                    artifact.session_id,
                    artifact.client_request_id or "-",
                    artifact.created_at,
                ]
                for artifact in artifacts
            ],
        )

    def commands(self, title: str, commands: Sequence[tuple[str, str]]) -> None:
        """Commands to copy, each with what it does. Never wrapped or cut."""
        self.console.print()
        self.console.print(Group(Text(title, style="bold")))
        for what, command in commands:
            self.console.print(Text(f"  # {what}", style="dim"))
            self.console.print(Text(f"  {command}"), soft_wrap=True)
