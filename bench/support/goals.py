"""What a benchmark aims at: a ratio or amount beside its goal. Information: nothing fails where one is missed."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from bench.support.report import Spread, aligned, spread

Direction = Literal["at most", "at least"]
_SIGNS: Final[dict[Direction, str]] = {"at most": "≤", "at least": "≥"}


class Measured(msgspec.Struct, frozen=True):
    """One line of a report.

    Attributes:
        key: for machines.
        title: what is measured, and against what.
        unit: of its values; ``x`` for a ratio.
        value: over the repetitions.
        direction: which side of the goal is good; None where there is no goal.
        goal: the bound that the median is held against.
        met: whether the median keeps it.
    """

    key: str
    title: str
    unit: str
    value: Spread
    direction: Direction | None = None
    goal: float | None = None
    met: bool | None = None


def measured(
    key: str, title: str, unit: str, values: Sequence[float], goal: tuple[Direction, float] | None = None
) -> Measured:
    """A line over the values of the repetitions, judged where there is a goal."""
    value = spread(list(values))
    if goal is None:
        return Measured(key, title, unit, value)
    direction, bound = goal
    met = value.median <= bound if direction == "at most" else value.median >= bound
    return Measured(key, title, unit, value, direction, bound, met)


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Repetition by repetition, so that what slows the machine for a while slows both sides."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def goals_table(lines: Sequence[Measured]) -> str:
    """The lines for people."""
    rows = [["what", "unit", "median", "min..max", "goal", ""], *map(_row, lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(aligned(row, widths) for row in rows)


def _row(line: Measured) -> list[str]:
    places = 2 if line.unit in {"x", "s"} else 1
    value = line.value
    goal = "" if line.direction is None else f"{_SIGNS[line.direction]} {line.goal:g}"
    verdict = {None: "", True: "met", False: "missed"}[line.met]
    between = f"{value.min:,.{places}f}..{value.max:,.{places}f}"
    return [line.title, line.unit, f"{value.median:,.{places}f}", between, goal, verdict]
