"""What waits for a connection of the bridge: one call each, or several that one statement answers. No I/O.

Calls that are *joined* wait as single ones. Whichever worker comes first takes those that wait and fit along, and sends
them as one statement with an array for each parameter. It runs in one transaction, so that an error of the server's
leaves nothing of it: then each is sent again by itself, which decides whose error it was. So a row's own conflict, or a
lock that it waits for, is never its neighbour's, and every caller has the answer that it would have had alone.
"""

import copy
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import outcome
import trio

from compass_forged.store.lanes import FairQueue
from compass_forged.store.statements import Statement

T = TypeVar("T")

TRANSACTION_ATTEMPTS: Final = 3


class Row(Protocol):
    """One row of an answer, its columns by name."""

    def __getitem__(self, key: str, /) -> Any:
        """The column's value."""
        ...


class Connection(Protocol):
    """What a job needs of the driver's connection."""

    async def fetch(self, query: str, /, *arguments: object) -> Any:
        """The rows of one statement."""
        ...

    async def execute(self, query: str, /) -> Any:
        """Run a script."""
        ...


class Executor:
    """Runs statements on the connection of one job. Lives in asyncio land: use it only inside a bridge's job."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def fetch(self, statement: Statement, *arguments: object) -> list[Row]:
        """The statement's rows. The connection prepares each statement once."""
        rows: list[Row] = await self._connection.fetch(statement.sql, *arguments)
        return rows

    async def run_script(self, sql: str) -> None:
        """Run a script of several statements without parameters (a migration)."""
        await self._connection.execute(sql)


Work: TypeAlias = Callable[[Executor], Awaitable[T]]


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """A statement for one row, and the one that does the same for many.

    Attributes:
        alone: takes a row's values as its parameters.
        together: takes an array for each of them, and answers with the ``position``, counted from 1, of every row that
            ``alone`` would have answered with a row.
    """

    alone: Statement
    together: Statement


@dataclass(frozen=True, slots=True)
class Joint:
    """A row that may be sent with others of the same pair.

    Attributes:
        pair: which statements send it.
        values: the parameters of ``pair.alone``.
        marks: two rows that share one are never sent together, as they would be one row in the database.
    """

    pair: Pair
    values: tuple[object, ...]
    marks: frozenset[Hashable]


@dataclass(slots=True, eq=False)
class Job(Generic[T]):
    """One call on its way.

    Attributes:
        work: what to do on a connection.
        in_transaction: whether that takes a transaction of its own around it.
        lane: for whom.
        joint: how it may be sent with others; None where it is sent by itself.
        attempts: how often it runs where the server ends its transaction for a deadlock.
        left: nobody waits for the answer any more.
        done: set once ``answer`` is.
        answer: what came of it.
    """

    work: Work[T]
    in_transaction: bool
    lane: object = None
    joint: Joint | None = None
    attempts: int = TRANSACTION_ATTEMPTS
    left: bool = False
    done: trio.Event = field(default_factory=trio.Event)
    answer: outcome.Maybe[T] | None = None

    def settle(self, answer: outcome.Maybe[T]) -> None:
        """Tell the caller, if it still waits."""
        self.answer = answer
        self.done.set()

    def fall_apart(self) -> "Sequence[Job[Any]]":
        """The jobs to be sent one by one instead; none of a single one."""
        return ()


def joined(joint: Joint, lane: object) -> Job[list[Row]]:
    """A job that sends a row, alone or with others; its answer is empty or has one row."""
    return Job(lambda to: to.fetch(joint.pair.alone, *joint.values), in_transaction=False, lane=lane, joint=joint)


class Together(Job[list[Row]]):
    """Several joined jobs as one."""

    __slots__ = ("_jobs",)

    def __init__(self, pair: Pair, jobs: "Sequence[Job[Any]]") -> None:
        rows = [job.joint.values for job in jobs if job.joint is not None]
        columns = [list(column) for column in zip(*rows, strict=True)]
        # A deadlock among so many rows is looked for row by row.
        super().__init__(lambda to: to.fetch(pair.together, *columns), in_transaction=False, attempts=1)
        self._jobs = jobs

    def settle(self, answer: outcome.Maybe[list[Row]]) -> None:
        """Tell each caller its own answer, or all of them what befell all."""
        if isinstance(answer, outcome.Error):
            for job in self._jobs:  # an exception of its own for each: raising writes into it
                job.settle(outcome.Error(copy.copy(answer.error)))
            return
        rows = {row["position"]: row for row in answer.unwrap()}
        for position, job in enumerate(self._jobs, start=1):
            job.settle(outcome.Value([rows[position]] if position in rows else []))

    def fall_apart(self) -> "Sequence[Job[Any]]":
        """The jobs, each from now on to be sent by itself, without those that nobody waits for."""
        for job in self._jobs:
            job.joint = None
        return [job for job in self._jobs if not job.left]


def take_joined(queue: "FairQueue[Job[Any]]", at_most: int) -> "Job[Any] | None":
    """The next job of the queue, together with up to ``at_most`` in all that fit; None where nothing waits."""
    first = queue.take()
    if first is None or first.joint is None or not queue:
        return first
    pair, marks = first.joint.pair, set(first.joint.marks)

    def fits(job: Job[Any]) -> bool:
        joint = job.joint
        if joint is None or joint.pair is not pair or not marks.isdisjoint(joint.marks):
            return False
        marks.update(joint.marks)
        return True

    along = queue.take_along(at_most - 1, fits)
    return Together(pair, [first, *along]) if along else first
