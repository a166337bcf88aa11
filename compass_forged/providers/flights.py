"""A read under way that others share: identical reads under one credential are sent once.

A flight is *open* from the moment its request is let go until its answer is here. Whoever asks for the same while it is
open waits for that answer, and so does whoever asked before it was let go: its request is sent after that, so the
answer is as fresh as an own one. After a write of ours nobody boards a flight that was let go before the write ended:
who writes and then reads, reads what was written.

Nobody depends on who happened to be let go first. If that one is cancelled the flight is *lost*, and the others go on
by themselves.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")


class FlightFailed(Exception):
    """The flight ended without an answer, and an own try would have fared the same: tell as your own what it tells.

    Attributes:
        why: one line.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(eq=False, slots=True)
class Flight(Generic[T]):
    """One shared read. Its leader ends it with ``land``, ``fail`` or ``lose``; the first of them counts."""

    key: Hashable
    _ended: trio.Event = field(default_factory=trio.Event)
    _landed: T | None = None
    _failure: str = ""

    def land(self, answer: T) -> None:
        """The answer is here."""
        if not self._ended.is_set():
            self._landed = answer
            self._ended.set()

    def fail(self, why: str) -> None:
        """There is none, and there would be none for the others either."""
        if not self._ended.is_set():
            self._failure = why
            self._ended.set()

    def lose(self) -> None:
        """The leader has left: each of the others goes on by itself."""
        self._ended.set()

    async def arrival(self) -> T | None:
        """Wait for the answer; None if the flight was lost.

        Raises:
            FlightFailed: there is none.
        """
        await self._ended.wait()
        if self._failure:
            raise FlightFailed(self._failure)
        return self._landed


class Flights(Generic[T]):
    """The flights of one credential that can be boarded."""

    def __init__(self) -> None:
        self._open: dict[Hashable, Flight[T]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def find(self, key: Hashable) -> Flight[T] | None:
        """A flight to board."""
        return self._open.get(key)

    def depart(self, flight: Flight[T]) -> None:
        """Its request has been let go."""
        self._open[flight.key] = flight

    def close(self, flight: Flight[T]) -> None:
        """It has ended; one that did so without an answer is lost."""
        flight.lose()
        if self._open.get(flight.key) is flight:
            del self._open[flight.key]

    def written(self) -> None:
        """A write has ended: what was let go before it may not show it, so nobody else boards that."""
        self._open.clear()


@dataclass(slots=True)
class Writes:
    """Tells the flights of all credentials of one forge that a write has ended under one of them."""

    _flights: list[Flights[Any]] = field(default_factory=list[Flights[Any]])

    def tell(self, flights: Flights[Any]) -> None:
        """Have ``flights`` told from now on."""
        self._flights.append(flights)

    def ended(self) -> None:
        """A write has ended, however it did."""
        for flights in self._flights:
            flights.written()
