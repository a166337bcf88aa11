"""What a hundred agents that read the same twenty issues spend of a forge's hourly limit, beside naive clients.

    .venv/bin/python bench/bench_etags.py [--json] [--quick] [--repetitions N]

One simulated hour on a clock that jumps, against the bundled forge with GitHub's own accounting (an answer 304 to a
request under a valid token costs nothing of the hour's 5,000; an account that has none left is refused). Each agent
reads all twenty issues, with their newest comments, once a minute; every minute some issue changes, by a comment from
outside or through the daemon. *Naive*: each agent asks for everything every time, under a limit without end; one
is simulated and counted for each, as naive clients know nothing of each other.
*In step*: all agents begin on the minute. *Spread*: each at a moment of its own.

*wrong*: answers that show less than what stood on the forge when they were asked for. *refused*: calls that ended in an
error. *wait*: from asking to answer, in simulated seconds; the forge takes 0.1 to 0.5 s for each request.

With ``--quick`` there are ten agents, four issues and five minutes.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its own folder is all that there is

from bench.support.fleet import Fleet, Outcome
from bench.support.goals import Measured, measured
from bench.support.outcome import report
from bench.support.processes import child
from bench.support.setup import parser, progress

_PATIENCE_SECONDS: Final = 3600.0
_NOTES: Final = (
    "Primary: requests that the forge counted against the hour. Requests: all that reached it. Points: what GitHub's\n"
    "limit of 900 a minute would count, at most, in any minute."
)


def _measure(stack: ExitStack, scratch: Path, *, repetitions: int, quick: bool) -> Sequence[Measured]:
    load = stack.enter_context(child("bench.support.fleet", scratch=scratch))
    agents, issues, minutes = (10, 4, 5) if quick else (100, 20, 60)
    outcomes: dict[str, list[Outcome]] = {}
    for repetition in range(repetitions):
        for name in ("naive", "step", "spread"):
            progress(f"{name}: repetition {repetition + 1} of {repetitions}")
            many = 1 if name == "naive" else agents
            fleet = Fleet(many, issues, minutes, naive=name == "naive", spread=name == "spread", seed=repetition)
            answer = load.ask(msgspec.json.encode(fleet), _PATIENCE_SECONDS)
            outcomes.setdefault(name, []).append(msgspec.json.decode(answer, type=Outcome))
    naive = [each.primary * agents for each in outcomes["naive"]]
    lines = [measured("naive_primary", "naive: primary", "requests", naive)]
    for name, title in (("step", "in step"), ("spread", "spread")):
        ours = outcomes[name]
        shares = [100 * each.primary / spent for each, spent in zip(ours, naive, strict=True)]
        lines += [
            measured(f"{name}_primary", f"{title}: primary", "requests", [each.primary for each in ours]),
            measured(f"{name}_share", f"{title}: primary / naive", "%", shares, ("at most", 2)),
            measured(f"{name}_requests", f"{title}: requests", "requests", [each.requests for each in ours]),
            measured(
                f"{name}_points", f"{title}: points", "a minute", [each.points for each in ours], ("at most", 900)
            ),
            measured(f"{name}_wrong", f"{title}: wrong", "answers", [each.wrong for each in ours], ("at most", 0)),
            measured(f"{name}_refused", f"{title}: refused", "calls", [each.refused for each in ours], ("at most", 0)),
            measured(f"{name}_wait", f"{title}: wait, p50", "s", [each.wait_p50 for each in ours]),
            measured(f"{name}_wait_p99", f"{title}: wait, p99", "s", [each.wait_p99 for each in ours]),
        ]
    return lines


def main() -> int:
    """Run and print; the exit status."""
    arguments = parser("What shared reads spend of a limit.", repetitions="1 by default").parse_args()
    repetitions = arguments.repetitions or 1
    measure = partial(_measure, repetitions=repetitions, quick=arguments.quick)
    return report("etags", arguments, measure, repetitions=repetitions, notes=_NOTES)


if __name__ == "__main__":
    raise SystemExit(main())
