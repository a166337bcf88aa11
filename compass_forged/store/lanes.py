"""A queue that is fair between those who fill it: one lane each, served in turns. Pure."""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First come, first served within a lane; lanes take turns."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[object, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def waiting_in(self, lane: object) -> int:
        """How many items wait in one lane."""
        found = self._lanes.get(lane)
        return len(found) if found else 0

    def put(self, lane: object, item: T) -> None:
        """Add an item at its lane's end."""
        self._lanes.setdefault(lane, deque()).append(item)
        self._count += 1

    def take(self) -> T | None:
        """The next item of the lane whose turn it is, which goes to the end of the row; None if nothing waits."""
        if not self._lanes:
            return None
        taken: list[T] = []
        self._give(next(iter(self._lanes)), taken)
        return taken[0]

    def take_along(self, at_most: int, fits: Callable[[T], bool]) -> list[T]:
        """Items that go with one that was taken: round after round the first of each lane, if it ``fits``.

        A lane whose first item does not fit keeps its place in the row; one that gives an item goes to the end, as in
        ``take``. ``fits`` is asked once for each item that is looked at, right before the item is taken.
        """
        taken: list[T] = []
        giving = deque(self._lanes)
        while giving and len(taken) < at_most:
            lane = giving.popleft()
            if fits(self._lanes[lane][0]) and self._give(lane, taken):
                giving.append(lane)
        return taken

    def _give(self, lane: object, taken: list[T]) -> bool:
        """Move a lane's first item into ``taken``; says whether the lane has more."""
        items = self._lanes.pop(lane)
        taken.append(items.popleft())
        self._count -= 1
        if items:
            self._lanes[lane] = items
        return bool(items)

    def put_back(self, lane: object, item: T) -> None:
        """Add an item that was taken before: first in its lane, and its lane first in the row."""
        self._lanes.setdefault(lane, deque()).appendleft(item)
        self._lanes.move_to_end(lane, last=False)
        self._count += 1

    def remove(self, lane: object, item: T) -> bool:
        """Take an item out of its lane; False if it is not there any more."""
        items = self._lanes.get(lane)
        if items is None or item not in items:
            return False
        items.remove(item)
        if not items:
            del self._lanes[lane]
        self._count -= 1
        return True
