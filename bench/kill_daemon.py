"""A daemon killed at random instants while it creates: how many artifacts stand under each key afterwards.

    .venv/bin/python bench/kill_daemon.py [--count N] [--seed N] [--json]

Each round asks a real daemon, over a real Postgres and the bundled forge, for eight creates under a key each, kills it
(SIGKILL) at a random instant, starts another, and asks for all of them again. What must be true, and what is allowed,
stands in ``tests/support/kills.py``; the first violation ends the run with status 1 and shows seed and round.
"""

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Final

import trio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a script, its own folder is all that is there

from tests.support.kills import Tally, killing
from tests.support.world import place

_SHOWN_CHARS: Final = 2000


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--count", type=int, default=1000, help="daemons to kill; about 0.7 s each")
    made.add_argument("--seed", type=int, help="of the instants; a fresh one unless given")
    made.add_argument("--json", action="store_true", help="one JSON object, and nothing else")
    return made.parse_args(arguments)


async def _run(count: int, seed: int, tally: list[Tally], *, shown: bool) -> None:
    with place() as where:
        async with killing(where, seed) as made:
            tally.append(made.tally)
            for number in range(count):
                await made.round(number)
                if shown and (number + 1) % 50 == 0:
                    print(made.tally, file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    """Run and print; the exit status: 0, or 1 on a violation."""
    given = _parse(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    tally: list[Tally] = []
    began = time.monotonic()
    violation = ""
    try:
        trio.run(lambda: _run(given.count, seed, tally, shown=not given.json))
    except* AssertionError as errors:
        violation = " ".join(str(_first(errors)).split())[-_SHOWN_CHARS:]  # of a daemon that did not start, its log
    found = tally[0] if tally else Tally()
    if given.json:
        print(
            json.dumps(
                {
                    "kills": found.kills,
                    "creates": sum(found.found.values()),
                    "found": found.found,
                    "duplicates": found.duplicates,
                    "seed": seed,
                    "seconds": round(time.monotonic() - began, 1),
                    "violation": violation,
                }
            )
        )
    else:
        print(f"{found}; seed {seed}")
    if violation:
        print(f"violated after {found.kills} kills, seed {seed}: {violation}", file=sys.stderr)
    return 1 if violation else 0


def _first(errors: BaseExceptionGroup[AssertionError]) -> BaseException:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


if __name__ == "__main__":
    raise SystemExit(main())
